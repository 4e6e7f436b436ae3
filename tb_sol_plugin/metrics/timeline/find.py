"""Finds events of a recording by name, in a window, and in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.timeline.events import TABLES, Ids
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

BUCKETS: Final = 1024
AT_ONCE: Final = 2**16
"""Rows whose names are looked at in one go."""
MOST_SEARCHES: Final = 16
"""Searches whose counts are remembered."""
_NONE: Final = np.zeros(0, np.uint32)
Direction = Literal["next", "previous"]


@dataclass(frozen=True)
class Hits:
    """Events with wanted names that start in a window. histogram: starts in each of BUCKETS equal parts of it; per_track: (track, events)
    of those that have any; event: ids of the next ones, or of those before, the nearest first.
    """

    total: int
    histogram: Ints
    per_track: list[tuple[int, int]]
    event: Ids


@dataclass(frozen=True)
class Counted:
    """How many wanted events start in each part of a window, and how many there are in each lane. edges: begins of the parts, and the end.

    wanted: which names are.
    """

    wanted: Mask
    edges: Ints
    histogram: Ints
    lanes: Ints


def matching(names: Sequence[str], text: str) -> npt.NDArray[np.int64]:
    """Returns which names contain a text, whatever the case."""
    wanted = text.casefold()
    return np.array([i for i, name in enumerate(names) if wanted in name.casefold()], np.int64)


def search(
    timeline: Timeline, names: npt.NDArray[np.integer], tracks: Sequence[int] | None, begin: int, end: int,
    *, after: int | None = None, limit: int = 100, direction: Direction = "next",
) -> Hits:  # fmt: skip
    """Returns the events whose name is one of some places in `events.names` and that start in a window, in some tracks (None all).

    after: time from which on, or before which, at most `limit` of them are listed. One pass counts all events, and is remembered; those to
    list are looked for only in the parts of the window that hold any.
    """
    key = (names.tobytes(), None if tracks is None else tuple(tracks), begin, end)
    counted = timeline.searched.get(key)
    if counted is None:
        if len(timeline.searched) >= MOST_SEARCHES:
            timeline.searched.clear()
        counted = timeline.searched[key] = _counted(timeline, names, tracks, begin, end)
    event = _near(timeline, counted, begin if after is None else after, limit, direction == "previous")
    per_track = timeline.by_track(counted.lanes)
    return Hits(sum(n for _, n in per_track), counted.histogram, per_track, event)


def _counted(timeline: Timeline, names: npt.NDArray[np.integer], tracks: Sequence[int] | None, begin: int, end: int) -> Counted:
    events, lanes = timeline.events, len(timeline.arranged.bounds) - 1
    wanted = np.zeros(max(len(events.names.text), 1), np.bool_)
    wanted[names] = True
    chosen = np.zeros(lanes + 1, np.bool_)  # the last stands for events of no lane
    for one in timeline.tracks if tracks is None else (timeline.tracks[t] for t in tracks):
        chosen[one.first_lane : one.first_lane + one.lanes] = True
    width = max(end - begin, 1)
    edges = np.array([begin - -part * width // BUCKETS for part in range(BUCKETS)] + [end], np.int64)
    counts, histogram = np.zeros(lanes + 1, np.int64), np.zeros(BUCKETS, np.int64)
    for table in TABLES if len(names) else ():
        code, category, lookup = events.coded(table)
        mine = (lookup >= 0) & wanted[lookup]
        if not mine.any():
            continue
        start, lane, several = events.columns(table)[0], timeline.lanes_of(table), len(category) > 1
        for at in range(0, len(code), AT_ONCE):
            part = slice(at, at + AT_ONCE)
            kind = category[part] if several else category
            columns = (start[part], np.int64), (code[part], np.int32), (kind, np.uint8), (lane[part], np.uint32)
            count_kernel(*(fixed(*c) for c in columns), fixed(mine, np.bool_), fixed(chosen, np.bool_), edges, counts, histogram)
    histogram.flags.writeable = False
    return Counted(wanted, edges, histogram, counts[:-1])


def _near(timeline: Timeline, counted: Counted, at: int, limit: int, backwards: bool) -> Ids:
    """Returns the next events from a time on, or those before it, the nearest first."""
    edges, histogram = counted.edges, counted.histogram
    low, high = (int(edges[0]), min(at, int(edges[-1]))) if backwards else (max(at, int(edges[0])), int(edges[-1]))
    parts = np.flatnonzero(histogram[: int(np.searchsorted(edges, high))]) if low < high else np.zeros(0, np.int64)
    parts = parts[edges[parts + 1] > low]
    if backwards:
        parts = parts[::-1]
    # the first part may hold some on the other side of the time
    parts = parts[: int(np.searchsorted(np.cumsum(histogram[parts[1:]]), limit)) + 2]
    runs = np.sort(parts)
    times = np.clip(edges[runs], low, high), np.clip(edges[runs + 1], low, high)
    where = timeline.starting(np.flatnonzero(counted.lanes), *times).reshape(2, -1).T.tolist()
    event = np.concatenate([_NONE, *(timeline.arranged.order[a:b] for a, b in where if a < b)])
    event = event[counted.wanted[timeline.events.name_ids(event)]]
    start = timeline.events.times(event)[0]
    best = np.lexsort((event, start))
    return event[best[::-1] if backwards else best][:limit]


def page(timeline: Timeline, track: int, lane: int | None, begin: int, end: int, after: int, limit: int) -> tuple[Ids, int]:
    """Returns the events of a track that are in a window, by start, then lane: at most `limit` from the place `after` on; and how many
    there are in all. Only those of the page are gathered: when it begins and ends is found by counting what starts before.
    """
    one = timeline.tracks[track]
    chosen = range(one.lanes) if lane is None else range(lane, lane + 1)
    lanes = one.first_lane + np.arange(chosen.start, chosen.stop, dtype=np.int64)
    first, _, last = timeline.positions(lanes, begin, end)
    total = int((last - first).sum())
    if after >= total:
        return _NONE, total

    def until(time: int) -> Ints:
        (where, _) = timeline.starting(lanes, np.array([time]), np.array([time]))[:, :, 0]
        inside: Ints = np.clip(where, first, last)
        return inside

    def start_of(place: int) -> int:
        low, high = one.first_ns, end  # at most `place` events start before the first, more before the second
        while high - low > 1:
            middle = (low + high) >> 1
            low, high = (middle, high) if int((until(middle) - first).sum()) <= place else (low, middle)
        return low

    a, b = until(start_of(after)), until(start_of(min(after + limit, total) - 1) + 1)
    order = timeline.arranged.order
    event = np.concatenate([_NONE, *(order[i:j] for i, j in zip(a.tolist(), b.tolist(), strict=True))])
    best = np.lexsort((np.repeat(np.arange(len(lanes)), b - a), timeline.events.times(event)[0]))
    skipped = after - int((a - first).sum())
    return event[best[skipped : skipped + limit]], total


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does."""
    time, code, kind, lane = (fixed(np.zeros(1), kind) for kind in (np.int64, np.int32, np.uint8, np.uint32))
    one, edges = np.zeros(1, np.int64), np.arange(2)
    count_kernel(time, code, kind, lane, fixed(np.ones((1, 1)), np.bool_), fixed(np.ones(1), np.bool_), edges, one.copy(), one.copy())


@compiled()
def count_kernel(
    start: Ints, code: Rows, category: npt.NDArray[np.uint8], lane: Ids, wanted: Mask, chosen: Mask, edges: Ints, lanes: Ints,
    histogram: Ints,
) -> None:  # fmt: skip
    """Counts the rows of a table whose name is wanted and that start in a window, by lane and by part of the window.

    edges: begins of the parts, and the window's end.
    """
    none, several, first, end = len(wanted) - 1, len(category) > 1, edges[0], edges[-1]
    bucket, found, rows = 0, 0, np.empty(len(code), np.int32)
    for row in range(len(code)):  # without a branch: which rows are wanted cannot be foretold
        word = code[row]
        rows[found] = row
        found += wanted[word if word >= 0 else none, category[row if several else 0]]
    for row in rows[:found]:
        time = start[row]
        if time < first or time >= end or not chosen[lane[row]]:
            continue
        lanes[lane[row]] += 1
        while time >= edges[bucket + 1]:
            bucket += 1
        while time < edges[bucket]:
            bucket -= 1
        histogram[bucket] += 1
