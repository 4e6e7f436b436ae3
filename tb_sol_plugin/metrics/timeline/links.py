"""Links events with what they caused: a launch with its device work, a forward operator with its backward pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.tables.arrays import Ints

Kind = Literal["launch", "backward"]
FLOW: Final = 0
"""Method of pairs that the recording links itself."""
KINDS: Final[tuple[Kind, ...]] = ("launch", "backward")


@dataclass(frozen=True)
class Pairs:
    """Ids of the events at both ends. latency: from the start of the source to the start of the target, ns."""

    kind: Kind
    source: Ints
    target: Ints
    latency: Ints

    def __len__(self) -> int:
        return len(self.source)

    def at(self, rows: Ints) -> Pairs:
        """Returns some of the pairs."""
        return Pairs(self.kind, self.source[rows], self.target[rows], self.latency[rows])


def pairs_of(timeline: Timeline, kind: Kind, *, recorded: bool = False) -> Pairs:
    """Returns all links of a kind, by source; recorded: without those of the backward pass that follow from sequence numbers."""
    return memo(timeline.capture, ("timeline.pairs", kind, recorded), lambda: _pairs(timeline, kind, recorded))


def _pairs(timeline: Timeline, kind: Kind, recorded: bool) -> Pairs:
    capture, events = timeline.capture, timeline.events
    if kind == "launch":
        call = capture.device["call"].to_numpy()
        rows = np.flatnonzero(call >= 0)
        source, target = call[rows].astype(np.int64), rows + events.base("device")
    else:
        table = capture.tables["backward"]
        source, target = (table[c].to_numpy().astype(np.int64) for c in ("forward", "backward"))
        known = (source >= 0) & (target >= 0)
        if recorded:
            known &= table["method"].to_numpy() == FLOW
        source, target = source[known], target[known]
    order = np.argsort(source, kind="stable")
    source, target = source[order], target[order]
    start = capture.host["start_ns"].to_numpy()
    latency = (capture.device["start_ns"].to_numpy()[target - events.base("device")] if kind == "launch" else start[target]) - start[source]
    return Pairs(kind, source, target, latency)


def of_event(timeline: Timeline, event: int) -> list[Pairs]:
    """Returns the links of an event; of a host event those of all it encloses: the work that an operator launched."""
    table, row = timeline.events.place(event)
    end = int(timeline.capture.host["end"].iloc[row]) if table == "host" else event + 1
    out = []
    for kind in KINDS:
        pairs = pairs_of(timeline, kind)
        low, high = (int(i) for i in np.searchsorted(pairs.source, (event, end)))
        by_target, target = memo(timeline.capture, ("timeline.by_target", kind), partial(_by_target, pairs))
        caused = slice(*(int(i) for i in np.searchsorted(target, (event, event + 1))))
        rows = np.union1d(np.arange(low, high), by_target[caused])
        if len(rows):
            out.append(pairs.at(rows))
    return out


def _by_target(pairs: Pairs) -> tuple[Ints, Ints]:
    """Returns the pairs in order of their targets, and the targets in that order."""
    order = np.argsort(pairs.target, kind="stable")
    return order, pairs.target[order]


def joined(pairs: Iterable[Pairs]) -> list[Pairs]:
    """Returns the links of all, those of one kind together."""
    every = list(pairs)
    out = []
    for kind in dict.fromkeys(one.kind for one in every):
        mine = [one for one in every if one.kind == kind]
        out.append(Pairs(kind, *(np.concatenate([getattr(one, c) for one in mine]) for c in ("source", "target", "latency"))))
    return out


def in_window(timeline: Timeline, kinds: Iterable[Kind], begin: int, end: int) -> list[Pairs]:
    """Returns the links of which an end is in a window."""
    out = []
    for kind in kinds:
        pairs = pairs_of(timeline, kind)
        inside = np.zeros(len(pairs), np.bool_)
        for ids in (pairs.source, pairs.target):
            start, duration = timeline.events.times(ids.astype(np.uint32))
            inside |= (start < end) & (start + duration > begin)
        out.append(pairs.at(np.flatnonzero(inside)))
    return out
