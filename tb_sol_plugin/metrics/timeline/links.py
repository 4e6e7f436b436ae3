"""Links events with what they caused: a launch with its device work, a forward operator with its backward pass."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.timeline.events import Ids
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.tables.arrays import Ints

Kind = Literal["launch", "backward"]
FLOW: Final = 0
"""Method of pairs that the recording links itself."""
KINDS: Final[tuple[Kind, ...]] = ("launch", "backward")


@dataclass(frozen=True)
class Pairs:
    """Ids of the events at both ends."""

    kind: Kind
    source: Ids
    target: Ids

    def __len__(self) -> int:
        return len(self.source)

    def at(self, rows: Ints) -> Pairs:
        """Returns some of the pairs."""
        return Pairs(self.kind, self.source[rows], self.target[rows])


def pairs_of(timeline: Timeline, kind: Kind, *, recorded: bool = False) -> Pairs:
    """Returns all links of a kind, by source; recorded: without those of the backward pass that follow from sequence numbers."""
    recorded = recorded and kind == "backward"
    return memo(timeline.capture, ("timeline.pairs", kind, recorded), lambda: _pairs(timeline, kind, recorded))


def _pairs(timeline: Timeline, kind: Kind, recorded: bool) -> Pairs:
    capture, events = timeline.capture, timeline.events
    if kind == "launch":
        call = capture.device["call"].to_numpy()
        rows = np.flatnonzero(call >= 0)
        source, target = call[rows].astype(np.uint32), (rows + events.base("device")).astype(np.uint32)
    else:
        table = capture.tables["backward"]
        ends = [table[c].to_numpy() for c in ("forward", "backward")]
        known = (ends[0] >= 0) & (ends[1] >= 0)
        if recorded:
            known &= table["method"].to_numpy() == FLOW
        source, target = (end[known].astype(np.uint32) for end in ends)
    order = np.argsort(source, kind="stable")
    return Pairs(kind, source[order], target[order])


def launched_ns(timeline: Timeline) -> Ints:
    """Returns sums of the time that the links of launches lead to, up to each: one more than there are of these."""
    pairs = pairs_of(timeline, "launch")

    def made() -> Ints:
        duration = timeline.events.columns("device")[1][pairs.target - np.uint32(timeline.events.base("device"))]
        return np.concatenate((np.zeros(1, np.int64), np.cumsum(duration)))

    return memo(timeline.capture, ("timeline.launched_ns",), made)


def longest(timeline: Timeline, pairs: Pairs, most: int) -> tuple[Pairs, Ints]:
    """Returns the pairs with the longest latencies, and these: from the start of the source to the start of the target, ns."""
    source, target = (timeline.events.times(ids)[0] for ids in (pairs.source, pairs.target))
    latency = target - source
    rows = np.argsort(-latency, kind="stable")[:most]
    return pairs.at(rows), latency[rows]


def of_event(timeline: Timeline, event: int) -> list[Pairs]:
    """Returns the links of an event; of a host event those of all it encloses: the work that an operator launched."""
    table, row = timeline.events.place(event)
    end = int(timeline.capture.host["end"].iloc[row]) if table == "host" else event + 1
    out = []
    for kind in KINDS:
        pairs = pairs_of(timeline, kind)
        low, high = (int(i) for i in np.searchsorted(pairs.source, np.array([event, end], np.uint32)))
        by_target = memo(timeline.capture, ("timeline.by_target", kind), partial(_by_target, pairs))
        caused = (bisect_left(by_target, at, key=pairs.target.__getitem__) for at in (event, event + 1))
        rows = np.union1d(np.arange(low, high), by_target[slice(*caused)])
        if len(rows):
            out.append(pairs.at(rows))
    return out


def _by_target(pairs: Pairs) -> Ids:
    """Returns the places of pairs in order of their targets."""
    return np.argsort(pairs.target, kind="stable").astype(np.uint32)


def joined(pairs: Iterable[Pairs]) -> list[Pairs]:
    """Returns the links of all, those of one kind together."""
    every = list(pairs)
    out = []
    for kind in dict.fromkeys(one.kind for one in every):
        mine = [one for one in every if one.kind == kind]
        out.append(Pairs(kind, *(np.concatenate([getattr(one, c) for one in mine]) for c in ("source", "target"))))
    return out


def in_window(timeline: Timeline, kinds: Iterable[Kind], begin: int, end: int) -> list[Pairs]:
    """Returns the links of which an end is in a window."""
    out = []
    for kind in kinds:
        pairs = pairs_of(timeline, kind)
        inside = np.zeros(len(pairs), np.bool_)
        for ids in (pairs.source, pairs.target):
            start, duration = timeline.events.times(ids)
            inside |= (start < end) & (start + duration > begin)
        out.append(pairs.at(np.flatnonzero(inside)))
    return out
