"""Merges events that are too short to see, level by level, so that a window holds no more items than pixels.

A lane holds events that do not overlap, sorted by start. At level z a bucket is `2^z` ns. An item of that level is one event that lasts
a bucket or longer, or the merge of all shorter events of its lane that start in one bucket. Level z + 1 follows from level z alone.
Nothing is dropped: every event is in exactly one item of every level.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints

Longs = npt.NDArray[np.int64]
TILE = 10
"""A tile has `2^TILE` buckets."""
FINEST_PART = 2
"""The finest level that is stored has at most one item per so many events."""
STRIDE = 2
"""Every second level is stored: one between two of them is merged when it is asked for."""


_EDGE = 256
"""Events that are read at once to find where a window begins in a lane."""


@dataclass(frozen=True)
class Items:
    """Items by lane, then start, at bucket `2^z` ns; of a stored level those of all lanes.

    start, end: ns, end the largest one. event: id of the longest event, the earliest on ties. count: events merged, at least 1.
    busy: sum of their durations, ns.
    """

    start: Longs
    end: Longs
    event: npt.NDArray[np.uint32]
    count: Longs
    busy: Longs

    def __len__(self) -> int:
        return len(self.start)

    def at(self, rows: slice | Ints | npt.NDArray[np.bool_]) -> Items:
        """Returns some of the items."""
        return Items(self.start[rows], self.end[rows], self.event[rows], self.count[rows], self.busy[rows])


def single(start: Longs, duration: Longs, event: npt.NDArray[np.uint32]) -> Items:
    """Returns events as items of their own."""
    return Items(start, start + duration, event, np.ones(len(start), np.int64), duration)


def merged(items: Items, lane: npt.NDArray[np.signedinteger], longest: Longs, z: int) -> tuple[Items, npt.NDArray[np.signedinteger], Longs]:
    """Returns (items, lane, longest) at level z, from those of a finer level or from single events.

    lane: of each item, in order. longest: duration of each item's longest event, ns.
    """
    joined = _joined(items.start, lane, longest, z)
    first = np.flatnonzero(~joined)
    if len(first) == len(items):
        return items, lane, longest
    after = np.append(first[1:], len(items))
    counts = np.add.reduceat(items.count, first)
    busy = np.add.reduceat(items.busy, first)
    top = np.maximum.reduceat(longest, first)
    event = items.event[first]
    several = after - first > 1
    inside = np.repeat(several, after - first)
    rows = np.flatnonzero(inside)
    run = np.repeat(np.flatnonzero(several), (after - first)[several])
    best = longest[rows] == top[run]
    rows, run = rows[best], run[best]
    earliest = np.concatenate(([True], run[1:] != run[:-1])) if len(run) else np.zeros(0, np.bool_)
    event[run[earliest]] = items.event[rows[earliest]]
    return Items(items.start[first], items.end[after - 1], event, counts, busy), lane[first], top


def _joined(start: Longs, lane: npt.NDArray[np.signedinteger], longest: Longs, z: int) -> npt.NDArray[np.bool_]:
    """Returns which items merge with the one before them at level z."""
    bucket = start >> z
    short = longest < (1 << z)
    out = np.zeros(len(start), np.bool_)
    out[1:] = short[1:] & short[:-1] & (bucket[1:] == bucket[:-1]) & (lane[1:] == lane[:-1])
    return out


def count_at(start: Longs, lane: npt.NDArray[np.signedinteger], longest: Longs, z: int) -> int:
    """Returns how many items level z has."""
    return len(start) - int(np.count_nonzero(_joined(start, lane, longest, z)))


@dataclass(frozen=True)
class Level:
    """A stored level: items of all lanes; lane i has rows `bounds[i]:bounds[i + 1]`. first: position of each item's first event."""

    z: int
    start: Longs
    end: Longs
    event: npt.NDArray[np.uint32]
    first: npt.NDArray[np.uint32]
    busy: Longs
    bounds: Longs

    def __len__(self) -> int:
        return len(self.start)

    def items(self, rows: slice, events: int) -> Items:
        """Returns a range of the items. events: those of all lanes."""
        begin, end, _ = rows.indices(len(self))
        ends = np.append(self.first[begin:end], self.first[end] if end < len(self) else events).astype(np.int64)
        return Items(self.start[rows], self.end[rows], self.event[rows], np.diff(ends), self.busy[rows])


@dataclass(frozen=True)
class Pyramid:
    """Events in lanes, and what is merged of them.

    order: event ids by lane, then start; lane i has positions `bounds[i]:bounds[i + 1]`. levels: from fine to coarse.
    times: returns start and duration (ns) of event ids. span: ns from time 0 to the end of the last event.
    """

    order: npt.NDArray[np.uint32]
    bounds: Longs
    levels: tuple[Level, ...]
    times: Callable[[npt.NDArray[np.uint32]], tuple[Longs, Longs]]
    span: int

    def window(self, lane: int, z: int, begin: int, end: int) -> Items:
        """Returns the items of level z of a lane with an end after `begin` and a start before `end`; both stand at edges of buckets.

        Merged first and cut to the window after that: items at its edges are those of any wider window.
        """
        at = next((i for i in range(len(self.levels) - 1, -1, -1) if self.levels[i].z <= z), -1)
        if at >= 0:
            level = self.levels[at]
            low, high = int(level.bounds[lane]), int(level.bounds[lane + 1])
            rows = _rows(level.start[low:high], level.end[low:high], z, begin, end)
            found = level.items(slice(low + rows.start, low + rows.stop), len(self.order))
            longest = self._longest(found)
        else:
            found = self._events(lane, z, begin, end)
            longest = found.busy
        if at < 0 or self.levels[at].z != z:
            found, _, _ = merged(found, np.zeros(len(found), np.int8), longest, z)
        return found.at(_inside(found.start, found.end, begin, end))

    def _events(self, lane: int, z: int, begin: int, end: int) -> Items:
        """Returns single events of a lane that the items of a window at level z are made of; the finest level says where they are."""
        low, high = self._near(lane, z, begin, end)
        event = np.asarray(self.order[low:high])
        start, duration = self.times(event)
        rows = _rows(start, start + duration, z, begin, end)
        return single(start[rows], duration[rows], event[rows])

    def _near(self, lane: int, z: int, begin: int, end: int) -> tuple[int, int]:
        """Returns positions of a lane between which the events of a window are, as the finest level knows them."""
        low, high = int(self.bounds[lane]), int(self.bounds[lane + 1])
        if not self.levels:
            return low, high
        level = self.levels[0]
        a, b = int(level.bounds[lane]), int(level.bounds[lane + 1])
        rows = _rows(level.start[a:b], level.end[a:b], max(z, level.z), begin, end)
        if rows.start == rows.stop:
            return low, low
        return int(level.first[a + rows.start]), int(level.first[a + rows.stop]) if a + rows.stop < b else high

    def _longest(self, items: Items) -> Longs:
        out = items.busy.copy()
        several = np.flatnonzero(items.count > 1)
        if len(several):
            out[several] = self.times(items.event[several])[1]
        return out

    def positions(self, lane: int, begin: int, end: int) -> slice:
        """Returns where in `order` the single events of a lane are that are in a window of any bounds; only those at its edges are read."""
        low, high = self._near(lane, 0, begin, end)
        first = self._edge(low, high, begin, end)
        return slice(low, low) if first < 0 else slice(first, 1 + self._edge(first, high, begin, end, last=True))

    def _edge(self, low: int, high: int, begin: int, end: int, *, last: bool = False) -> int:
        """Returns the first position in a window, or the last one; -1 for none."""
        for done in range(0, high - low, _EDGE):
            part = slice(max(high - done - _EDGE, low), high - done) if last else slice(low + done, min(low + done + _EDGE, high))
            start, duration = self.times(np.asarray(self.order[part]))
            inside = np.flatnonzero(_inside(start, start + duration, begin, end))
            if len(inside):
                return part.start + int(inside[-1 if last else 0])
        return -1

    def events(self, lane: int, begin: int, end: int) -> Items:
        """Returns the single events of a lane that are in a window of any bounds, by start."""
        found = self._events(lane, 0, begin, end)
        return found.at(_inside(found.start, found.end, begin, end))


def _inside(start: Longs, end: Longs, begin: int, stop: int) -> npt.NDArray[np.bool_]:
    """Returns which events or items are in a window; one of no length at its begin is."""
    inside: npt.NDArray[np.bool_] = (end > begin) & (start < stop) | (start == end) & (start == begin)
    return inside


def _rows(start: Longs, end: Longs, z: int, begin: int, stop: int) -> slice:
    """Returns the rows of one lane that reach into a window, from the start of the bucket in which the first of them begins."""
    low = int(np.searchsorted(end, begin, "left"))  # one that ends at the begin may be of no length
    if low < len(start):
        low = int(np.searchsorted(start, min(int(start[low]), begin) >> z << z, "left"))
    high = int(np.searchsorted(start, stop, "left"))
    return slice(min(low, high), high)


def build(order: npt.NDArray[np.uint32], bounds: Longs, start: Longs, duration: Longs) -> tuple[Level, ...]:
    """Returns the levels to store: the first with at most half as many items as events, then every second one until one tile holds the run.

    order, bounds: as in `Pyramid`. start, duration: by position in `order`. O(n log n) with a small factor.
    """
    count = len(order)
    if not count:
        return ()
    lane = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    top = max(int((start + duration).max()) - 1, 0).bit_length() - TILE
    low, high = 0, 62
    while low < high:  # the count falls from level to level
        middle = (low + high) // 2
        if count_at(start, lane, duration, middle) * FINEST_PART <= count:
            high = middle
        else:
            low = middle + 1
    if low >= 62 or low > max(top, 0):
        return ()
    levels: list[Level] = []
    items, longest = single(start, duration, order), duration
    for z in range(low, max(top, low) + STRIDE, STRIDE):
        items, lane, longest = merged(items, lane, longest, z)
        first = np.zeros(len(items), np.uint32)
        first[1:] = np.cumsum(items.count[:-1])
        levels.append(Level(z, items.start, items.end, items.event, first, items.busy, np.searchsorted(lane, np.arange(len(bounds)))))
    return tuple(levels)
