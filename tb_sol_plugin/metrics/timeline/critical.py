"""Puts the critical paths of a recording on its timeline: stretches on one thread or stream each, which follow on one another."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical.items import tracks_at
from tb_sol_plugin.metrics.critical.path import Path, selected_path
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables.arrays import Ints


@dataclass(frozen=True)
class Stretches:
    """Parts of critical paths, in order of time, each on one thread or stream. start, end: ns. host, device: row of the event that is most
    of it, -1 for that of the other table. kind: place in CLASSES of most of it.
    """

    start: Ints
    end: Ints
    host: Ints
    device: Ints
    kind: Ints

    def __len__(self) -> int:
        return len(self.start)

    def at(self, rows: Ints) -> Stretches:
        """Returns some of them."""
        return Stretches(*(getattr(self, f.name)[rows] for f in fields(self)))

    def events(self, timeline: Timeline) -> Ints:
        """Returns the id of each one's event."""
        return np.where(self.device >= 0, self.device + timeline.events.base("device"), self.host)

    def longest(self, begin_ns: int, end_ns: int, most: int) -> tuple[Stretches, int]:
        """Returns (those that overlap a window, of more than `most` the longest ones, in order of time; how many there are)."""
        inside = np.flatnonzero((self.start < end_ns) & (self.end > begin_ns))
        longest = np.argsort(self.start[inside] - self.end[inside], kind="stable")[:most]
        return self.at(inside[np.sort(longest)]), len(inside)


def stretches_of(capture: Capture) -> Stretches:
    """Returns the critical paths of all complete steps as stretches. Unavailable where no event takes time."""
    return memo(capture, ("timeline.critical",), lambda: _stretches(capture, selected_path(capture, Query())[1]))


def _stretches(capture: Capture, path: Path) -> Stretches:
    known = np.flatnonzero((path.device >= 0) | (path.host >= 0))
    host, device, start = path.host[known].astype(np.int64), path.device[known].astype(np.int64), path.start[known]
    end = start + path.duration[known]
    place = tracks_at(capture, host, device)
    change = np.flatnonzero(np.concatenate(([True], (place[1:] != place[:-1]) | (start[1:] != end[:-1])))) if len(known) else known
    number = np.zeros(len(known), np.int64)
    number[change[1:]] = 1
    number = np.cumsum(number)
    order = np.lexsort((end - start, number))
    most = order[np.searchsorted(number[order], np.arange(len(change)), side="right") - 1] if len(change) else change
    last = np.append(change[1:], len(known)) - 1 if len(change) else change
    kind = path.kind[known[most]].astype(np.int64)
    return Stretches(start[change], end[last], np.where(device[most] >= 0, -1, host[most]), device[most], kind)

