"""Finds events of a recording by name, in a window, and in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.timeline.events import Ids
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

BUCKETS = 1024
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


def matching(names: Sequence[str], text: str) -> npt.NDArray[np.int64]:
    """Returns which names contain a text, whatever the case."""
    wanted = text.casefold()
    return np.array([i for i, name in enumerate(names) if wanted in name.casefold()], np.int64)


def search(
    timeline: Timeline, names: npt.NDArray[np.integer], tracks: Sequence[int] | None, begin: int, end: int,
    *, after: int | None = None, limit: int = 100, direction: Direction = "next",
) -> Hits:  # fmt: skip
    """Returns the events whose name is one of some places in `events.names` and that start in a window, in some tracks (None all).

    after: time from which on, or before which, at most `limit` of them are listed. One pass over the events of each lane; nothing is sorted
    but what is listed.
    """
    events, arranged = timeline.events, timeline.arranged
    wanted = np.zeros(max(len(events.names.text), 1), np.bool_)
    wanted[names] = True
    width = max(end - begin, 1)
    edges = np.array([begin - -part * width // BUCKETS for part in range(BUCKETS)] + [end], np.int64)
    histogram, found, per_track = np.zeros(BUCKETS, np.int64), [np.zeros(0, np.uint32)], []
    at, backwards = begin if after is None else after, direction == "previous"
    columns: dict[str, tuple[npt.NDArray[Any], ...]] = {}
    for track in range(len(timeline.tracks)) if tracks is None else dict.fromkeys(tracks):
        one, count = timeline.tracks[track], 0
        for lane in range(one.first_lane, one.first_lane + one.lanes):
            low, high = int(arranged.bounds[lane]), int(arranged.bounds[lane + 1])
            if low == high:
                continue
            table, _ = events.place(int(arranged.order[low]))
            if table not in columns:
                columns[table] = _columns(timeline, table, wanted)
            listed = np.empty(min(limit, high - low), np.uint32)
            ids = fixed(arranged.order[low:high], np.uint32)
            here, new = scan_kernel(ids, events.base(table), *columns[table], edges, histogram, at, backwards, listed)
            count += here
            found.append(listed[:new])
        if count:
            per_track.append((track, count))
    event = np.concatenate(found)
    start = events.times(event)[0]
    order = np.lexsort((event, start))
    return Hits(sum(n for _, n in per_track), histogram, sorted(per_track), event[order[::-1] if backwards else order][:limit])


def _columns(timeline: Timeline, table: str, wanted: Mask) -> tuple[npt.NDArray[Any], ...]:
    """Returns of a table: start, name code, category (one for all where they are of one), and which pairs of these two are wanted."""
    code, category, lookup = timeline.events.coded(table)
    start, _ = timeline.events.columns(table)
    return fixed(start, np.int64), fixed(code, np.int32), fixed(category, np.uint8), fixed((lookup >= 0) & wanted[lookup], np.bool_)


def listed(timeline: Timeline, track: int, lane: int | None, begin: int, end: int) -> tuple[npt.NDArray[np.uint32], Ints, Ints, Ints]:
    """Returns (event, lane, start, duration) of the events of a track that are in a window, by start, then lane."""
    one, pyramid = timeline.tracks[track], timeline.pyramid
    lanes = range(one.lanes) if lane is None else range(lane, lane + 1)
    found, counts = pyramid.events(range(one.first_lane + lanes.start, one.first_lane + lanes.stop), begin, end)
    at = np.repeat(np.arange(lanes.start, lanes.stop), counts)
    order = np.lexsort((at, found.start))
    return found.event[order], at[order], found.start[order], found.busy[order]


@compiled()
def scan_kernel(
    ids: Ids, base: int, start: Ints, code: Rows, category: npt.NDArray[np.uint8], wanted: Mask, edges: Ints,
    histogram: Ints, at: int, backwards: bool, listed: Ids,
) -> tuple[int, int]:  # fmt: skip
    """Counts the events of one lane, in order of start, whose name is wanted; lists those nearest to a time. Returns (counted, listed).

    edges: begins of the parts of the window, and its end.
    """
    total, kept, bucket = 0, 0, 0
    none, several, most = len(wanted) - 1, len(category) > 1, len(listed)
    for event in ids:
        row = np.int64(event) - base
        word = code[row]
        if not wanted[word if word >= 0 else none, category[row if several else 0]]:
            continue
        time = start[row]
        if time < edges[0] or time >= edges[-1]:
            continue
        total += 1
        while time >= edges[bucket + 1]:
            bucket += 1
        histogram[bucket] += 1
        if backwards and time < at:
            listed[kept % most] = event
            kept += 1
        elif not backwards and time >= at and kept < most:
            listed[kept] = event
            kept += 1
    return total, min(kept, most)
