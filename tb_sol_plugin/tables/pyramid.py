"""Merges events that are too short to see, level by level, so that a window holds no more items than pixels.

A lane holds events that do not overlap, sorted by start. At level z a bucket is `2^z` ns. An item of that level is one event that lasts
a bucket or longer, or the merge of all shorter events of its lane that start in one bucket. Level z + 1 follows from level z alone.
Nothing is dropped: every event is in exactly one item of every level.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints, ranges
from tb_sol_plugin.tables.compiled import compiled, fixed

Longs = npt.NDArray[np.int64]
TILE = 10
"""A tile has `2^TILE` buckets."""
FINEST_PART = 2
"""The finest level that is stored has at most one item per so many events."""
STRIDE = 2
"""Every second level is stored: one between two of them is merged when it is asked for."""
LOADING_PAYS = 50_000
"""Events from which on loading the compiled loops pays."""
_NEVER = 255
"""What stands for the level at which the first event of a lane merges with the one before."""
MANY_LANES = 512
"""Lanes above which a window is looked for in all of them at once, not in one after the other."""


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

    def items(self, rows: slice | Ints, events: int) -> Items:
        """Returns some of the items. events: those of all lanes."""
        if isinstance(rows, slice):
            begin, end, _ = rows.indices(len(self))
            last = self.first[end] if end < len(self) else events
            ends = np.append(self.first[begin:end], last).astype(np.int64)
            return Items(self.start[rows], self.end[rows], self.event[rows], ends[1:] - ends[:-1], self.busy[rows])
        after = rows + 1
        inside = after < len(self)
        ends = np.where(inside, self.first[np.where(inside, after, 0)], events).astype(np.int64)
        return Items(self.start[rows], self.end[rows], self.event[rows], ends - self.first[rows], self.busy[rows])


class Levels(Sequence[Level]):
    """Levels from fine to coarse, each taken when it is looked at. zs: their `z`. take: returns one by its place."""

    def __init__(self, zs: Sequence[int], take: Callable[[int], Level]) -> None:
        self.zs = tuple(zs)
        self._take = take
        self._taken: dict[int, Level] = {}

    @classmethod
    def of(cls, levels: Sequence[Level]) -> Levels:
        """Returns levels that are there."""
        return cls([one.z for one in levels], levels.__getitem__)

    def __len__(self) -> int:
        return len(self.zs)

    @overload
    def __getitem__(self, place: int) -> Level: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Level]: ...
    def __getitem__(self, place: int | slice) -> Level | Sequence[Level]:
        if isinstance(place, slice):
            return [self[i] for i in range(*place.indices(len(self)))]
        at = range(len(self))[place]
        if at not in self._taken:
            self._taken[at] = self._take(at)
        return self._taken[at]


class Pyramid:
    """Events in lanes, and what is merged of them.

    order: event ids by lane, then start, or what returns them; lane i has positions `bounds[i]:bounds[i + 1]`. levels: from fine to
    coarse. times: returns start and duration (ns) of event ids. span: ns from time 0 to the end of the last event.
    """

    def __init__(
        self, order: npt.NDArray[np.uint32] | Callable[[], npt.NDArray[np.uint32]], bounds: Longs, levels: Sequence[Level],
        times: Callable[[npt.NDArray[np.uint32]], tuple[Longs, Longs]], span: int,
    ) -> None:  # fmt: skip
        self._order = order
        self.bounds = bounds
        self.levels = levels if isinstance(levels, Levels) else Levels.of(levels)
        self.times = times
        self.span = span

    @property
    def order(self) -> npt.NDArray[np.uint32]:
        return self._order() if callable(self._order) else self._order

    def windows(self, lanes: range, z: int, begin: int, end: int) -> tuple[Items, Longs]:
        """Returns the items of level z, in some lanes in a row, with an end after `begin` and a start before `end`: lane after lane; and
        how many each lane has.

        Merged first and cut to the window after that: items at its edges are those of any wider window.
        """
        (found,) = self.split(lanes, z, (begin, end))
        return found

    def split(self, lanes: range, z: int, edges: Sequence[int]) -> list[tuple[Items, Longs]]:
        """Returns what `windows` does between each two of ascending edges; all of it is looked for and merged at once."""
        begin, end = edges[0] >> z << z, -(-edges[-1] >> z << z)
        at = next((i for i in range(len(self.levels) - 1, -1, -1) if self.levels.zs[i] <= z), -1)
        found, lane = self._near(lanes, at, z, begin, end)
        if at < 0 or self.levels.zs[at] != z:
            found, lane, _ = merged(found, lane, self._longest(found) if at >= 0 else found.busy, z)
        return [_cut(found, lane, len(lanes), low, high) for low, high in pairwise(edges)]

    def _near(self, lanes: range, at: int, z: int, begin: int, end: int) -> tuple[Items, npt.NDArray[np.int32]]:
        """Returns the items that those of a window at level z are made of and some beside them, and the lane of each.

        at: place of the level that they are of; -1 for single events, of which the finest level says where they are.
        """
        bounds, count = self.levels[at].bounds if at >= 0 else self.bounds, int(self.bounds[-1])
        lane: npt.NDArray[np.int32]
        if len(lanes) > MANY_LANES:
            low, high = int(bounds[lanes.start]), int(bounds[lanes.stop])
            found = self.levels[at].items(slice(low, high), count) if at >= 0 else self._singles(np.asarray(self.order[low:high]))
            lane = np.repeat(np.arange(len(lanes), dtype=np.int32), np.diff(bounds[lanes.start : lanes.stop + 1]))
            near = np.flatnonzero((found.end >= begin - (2 << z)) & (found.start < end))  # what may merge with the first one inside
            return found.at(near), lane[near]
        if at >= 0:
            rows, sizes = _runs(*_reaching(self.levels[at], lanes, z, begin, end))
            found = self.levels[at].items(rows, count)
        else:
            rows, sizes = _runs(*self._bound(lanes, z, begin, end))
            found = self._singles(np.asarray(self.order[rows]))
        return found, np.repeat(np.arange(len(lanes), dtype=np.int32), sizes)

    def _singles(self, event: npt.NDArray[np.uint32]) -> Items:
        start, duration = self.times(event)
        return single(start, duration, event)

    def _bound(self, lanes: range, z: int, begin: int, end: int) -> tuple[Longs, Longs]:
        """Returns positions of some lanes between which the events of a window are, as the finest level knows them."""
        low, high = self.bounds[lanes.start : lanes.stop], self.bounds[lanes.start + 1 : lanes.stop + 1]
        if not self.levels:
            return low, high
        level = self.levels[0]
        first, last = _reaching(level, lanes, max(z, level.z), begin, end)
        some = np.flatnonzero(first < last)
        begins, ends = low.copy(), low.copy()
        begins[some], ends[some] = level.first[first[some]], high[some]
        inner = some[last[some] < level.bounds[lanes.start + 1 : lanes.stop + 1][some]]
        ends[inner] = level.first[last[inner]]
        return begins, ends

    def _longest(self, items: Items) -> Longs:
        out = items.busy.copy()
        several = np.flatnonzero(items.count > 1)
        if len(several):
            out[several] = self.times(items.event[several])[1]
        return out

    def events(self, lanes: range, begin: int, end: int) -> tuple[Items, Longs]:
        """Returns the single events of some lanes in a row that are in a window of any bounds, lane after lane, by start; and how many
        each has.
        """
        found, lane = self._near(lanes, -1, 0, begin, end)
        return _cut(found, lane, len(lanes), begin, end)


def _cut(items: Items, lane: npt.NDArray[np.signedinteger], lanes: int, begin: int, stop: int) -> tuple[Items, Longs]:
    """Returns the items in a window, and how many each lane has."""
    inside = np.flatnonzero(_inside(items.start, items.end, begin, stop))
    return items.at(inside), np.bincount(lane[inside], minlength=lanes)


def _inside(start: Longs, end: Longs, begin: int, stop: int) -> npt.NDArray[np.bool_]:
    """Returns which events or items are in a window; one of no length at its begin is."""
    inside: npt.NDArray[np.bool_] = (end > begin) & (start < stop) | (start == end) & (start == begin)
    return inside


def _runs(low: Longs, high: Longs) -> tuple[slice | Ints, Longs]:
    """Returns the rows from each low to before each high, which ascend, as a slice where that is what they are; and how many each has."""
    sizes = high - low
    count, some = int(sizes.sum()), np.flatnonzero(sizes)
    if not count or count == int(high[some[-1]] - low[some[0]]):
        return slice(int(low[some[0]]), int(high[some[-1]])) if count else slice(0, 0), sizes
    return ranges(low, sizes), sizes


def _reaching(level: Level, lanes: range, z: int, begin: int, stop: int) -> tuple[Longs, Longs]:
    """Returns between which rows of some lanes the items are that reach into a window, from the start of the bucket in which the first of
    them begins.
    """
    out = np.zeros((2, len(lanes)), np.int64)
    columns = (fixed(one, np.int64) for one in (level.start, level.end, level.bounds[lanes.start : lanes.stop + 1]))
    reaching_kernel.of(len(lanes), MANY_LANES)(*columns, z, begin, stop, out)
    return out[0], out[1]


def build(order: npt.NDArray[np.uint32], bounds: Longs, start: Longs, duration: Longs) -> tuple[Level, ...]:
    """Returns the levels to store: the first with at most half as many items as events, then every second one until one tile holds the run.

    order, bounds: as in `Pyramid`. start, duration: by position in `order`. One pass over the events, and one over each level.
    """
    count = len(order)
    if not count:
        return ()
    compiled_pays = count > LOADING_PAYS or join_kernel.loaded
    joins = joined_at(start, duration, compiled_pays=compiled_pays)
    joins[bounds[:-1][np.diff(bounds) > 0]] = _NEVER
    above = np.cumsum(np.bincount(joins, minlength=_NEVER + 1)[::-1])[::-1]  # pairs that join at a level or above it
    low = next((z for z in range(_NEVER) if int(above[z + 1]) * FINEST_PART <= count), _NEVER)
    top = max(int((start + duration).max()) - 1, 0).bit_length() - TILE
    if low > max(top, 0):
        return ()
    wanted = range(low, max(top, low) + STRIDE, STRIDE)
    if not compiled_pays:
        return levels_by_columns(order, bounds, start, duration, wanted)
    levels: list[Level] = []
    below: tuple[npt.NDArray[Any], ...] = (start, start + duration, order, np.arange(count, dtype=np.uint32), duration, duration, joins)
    ends: Longs = bounds
    for z in wanted:
        made = tuple(np.empty(int(above[z + 1]), column.dtype) for column in below)
        ends = merge_kernel(tuple(fixed(column, column.dtype) for column in below), made, fixed(ends, np.int64), z)
        levels.append(Level(z, made[0], made[1], made[2], made[3], made[4], ends))
        below = made
    return tuple(levels)


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does: levels are built by them from here on."""
    none = np.zeros(2, np.int64)
    joined_at(none, none)
    build(np.arange(2, dtype=np.uint32), np.array([0, 2]), none, none)
    one = np.arange(1)
    reaching_kernel(*(fixed(one, np.int64) for _ in range(3)), 0, 0, 1, np.zeros((2, 1), np.int64))
    starting_kernel(fixed(one, np.uint32), 0, one, one + 1, fixed(one, np.int64), one, one, np.zeros((2, 1, 1), np.int64))


def joined_at(start: Longs, duration: Longs, *, compiled_pays: bool = True) -> npt.NDArray[np.uint8]:
    """Returns the lowest level at which each event merges with the one before: both are shorter than a bucket and start in the same one.

    That is how many bits are needed to write what differs in their starts, and their durations. 64: starts of different signs.
    """
    out = np.zeros(len(start), np.uint8)
    if compiled_pays:
        join_kernel(fixed(start, np.int64), fixed(duration, np.int64), out)
        return out
    bits = duration[1:] | duration[:-1] | (start[1:] ^ start[:-1])
    half = bits >> 31
    out[1:] = np.where(bits < 0, 64, np.where(half > 0, 31 + np.frexp(half.astype(np.float64))[1], np.frexp(bits.astype(np.float64))[1]))
    return out


def levels_by_columns(
    order: npt.NDArray[np.uint32], bounds: Longs, start: Longs, duration: Longs, wanted: Iterable[int]
) -> tuple[Level, ...]:  # fmt: skip
    """Returns what `build` does, without a compiled loop that few events would wait for."""
    lane: npt.NDArray[np.signedinteger] = np.repeat(np.arange(len(bounds) - 1, dtype=np.int32), np.diff(bounds))
    items, longest, levels = single(start, duration, order), duration, []
    for z in wanted:
        items, lane, longest = merged(items, lane, longest, z)
        first = np.zeros(len(items), np.uint32)
        first[1:] = np.cumsum(items.count[:-1])
        levels.append(Level(z, items.start, items.end, items.event, first, items.busy, np.searchsorted(lane, np.arange(len(bounds)))))
    return tuple(levels)


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


@compiled()
def join_kernel(start: Longs, duration: Longs, joins: npt.NDArray[np.uint8]) -> None:
    """Writes the level at which each event merges with the one before, as `joined_at` says."""
    for i in range(1, len(start)):
        bits = duration[i] | duration[i - 1] | (start[i] ^ start[i - 1])
        level = 0
        if bits < 0:
            level = 64
        else:
            for step in (32, 16, 8, 4, 2, 1):
                if bits >> step:
                    level += step
                    bits >>= step
            level += bits
        joins[i] = level


@compiled()
def merge_kernel(items: tuple[npt.NDArray[Any], ...], to: tuple[npt.NDArray[Any], ...], bounds: Longs, z: int) -> Longs:
    """Merges items that join at level z or below; returns the bounds of the lanes.

    items, to: start, end, event, position of the first event, busy, longest, and the level of joining.
    """
    start, end, event, first, busy, longest, joins = items
    to_start, to_end, to_event, to_first, to_busy, to_longest, to_joins = to
    n = -1
    ends = np.zeros(len(bounds), np.int64)
    lane = 0
    for i in range(len(start)):
        if joins[i] <= z:
            to_end[n] = end[i]
            to_busy[n] += busy[i]
            if longest[i] > to_longest[n]:
                to_longest[n] = longest[i]
                to_event[n] = event[i]
            continue
        n += 1
        while bounds[lane + 1] <= i:
            lane += 1
            ends[lane] = n
        to_start[n] = start[i]
        to_end[n] = end[i]
        to_event[n] = event[i]
        to_first[n] = first[i]
        to_busy[n] = busy[i]
        to_longest[n] = longest[i]
        to_joins[n] = joins[i]
    ends[lane + 1 :] = n + 1
    return ends


@compiled()
def reaching_kernel(start: Longs, end: Longs, bounds: Longs, z: int, begin: int, stop: int, out: Longs) -> None:
    """Finds, for `_reaching`, the rows of each lane, which begin and end at `bounds`. out: (begin and end, lane) to write to."""
    for lane in range(len(bounds) - 1):
        first, last = bounds[lane], bounds[lane + 1]
        low, found, least = last, last, begin
        for search in range(3):  # the first that ends in it, which may be of no length; its bucket; the first that starts after it
            values = end if search == 0 else start
            at, high = first, last
            while at < high:
                middle = (at + high) >> 1
                if values[middle] < least:
                    at = middle + 1
                else:
                    high = middle
            low, found = (at if search == 0 or (search == 1 and low < last) else low), at
            least = min(start[low], begin) >> z << z if search == 0 and low < last else stop
        out[0, lane], out[1, lane] = min(low, found), found


@compiled()
def starting_kernel(
    order: npt.NDArray[np.uint32], base: int, firsts: Longs, lasts: Longs, start: Longs, begins: Longs, ends: Longs, where: Longs
) -> None:
    """Finds between which positions of some lanes the events are that start in each of some windows, which ascend.

    order: event ids by lane, then start; those of these lanes are rows of one table from `base` on, which start at `start`. firsts, lasts:
    where each lane begins and ends. where: (begin and end, lane, window) to write to.
    """
    for lane in range(len(firsts)):
        at = firsts[lane]
        for window in range(len(begins)):
            for side in range(2):
                edge = begins[window] if side == 0 else ends[window]
                high = lasts[lane]
                while at < high:
                    middle = (at + high) >> 1
                    if start[np.int64(order[middle]) - base] < edge:
                        at = middle + 1
                    else:
                        high = middle
                where[side, lane, window] = at
