"""Finds events of a recording by name, in a window, and in order of time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.tables.arrays import Ints

BUCKETS = 1024


@dataclass(frozen=True)
class Hits:
    """Events with wanted names, by start: ids, starts and tracks."""

    event: npt.NDArray[np.uint32]
    start: Ints
    track: Ints

    def histogram(self, begin: int, end: int) -> list[int]:
        """Returns how many start in each of BUCKETS equal parts of a window."""
        inside = self.start[(self.start >= begin) & (self.start < end)]
        part = (inside - begin) * BUCKETS // max(end - begin, 1)
        counts: list[int] = np.bincount(np.minimum(part, BUCKETS - 1), minlength=BUCKETS).tolist()
        return counts

    def per_track(self) -> list[tuple[int, int]]:
        """Returns (track, events) of the tracks that have any."""
        counts = np.bincount(self.track) if len(self.track) else np.zeros(0, np.int64)
        return [(int(i), int(counts[i])) for i in np.flatnonzero(counts)]


def matching(names: Sequence[str], text: str) -> npt.NDArray[np.int64]:
    """Returns which names contain a text, whatever the case."""
    wanted = text.casefold()
    return np.array([i for i, name in enumerate(names) if wanted in name.casefold()], np.int64)


def search(timeline: Timeline, names: npt.NDArray[np.integer], tracks: Sequence[int] | None, begin: int, end: int) -> Hits:
    """Returns the events whose name is one of some places in `events.names`, in a window and in some tracks (None all), by start."""
    wanted = np.zeros(max(len(timeline.events.names.text), 1), np.bool_)
    wanted[names] = True
    everyone = memo(timeline.capture, ("timeline.name_ids",), partial(_all_names, timeline))
    ids = np.flatnonzero(wanted[everyone]).astype(np.uint32)
    start, _ = timeline.events.times(ids)
    track, _ = timeline.located(ids)
    keep = (start >= begin) & (start < end)
    if tracks is not None:
        keep &= np.isin(track, np.array(list(tracks), np.int64))
    ids, start, track = ids[keep], start[keep], track[keep]
    order = np.argsort(start, kind="stable")
    return Hits(ids[order], start[order], track[order])


def _all_names(timeline: Timeline) -> npt.NDArray[np.int32]:
    return timeline.events.all_name_ids()


def listed(timeline: Timeline, track: int, lane: int | None, begin: int, end: int) -> tuple[npt.NDArray[np.uint32], Ints, Ints, Ints]:
    """Returns (event, lane, start, duration) of the events of a track that are in a window, by start, then lane."""
    one, pyramid = timeline.tracks[track], timeline.pyramid
    lanes = range(one.lanes) if lane is None else [lane]
    found = [(i, pyramid.events(one.first_lane + i, begin, end)) for i in lanes]
    found = [(i, items) for i, items in found if len(items)]
    if not found:
        none = np.zeros(0, np.int64)
        return np.zeros(0, np.uint32), none, none, none
    event, start, duration = (np.concatenate([getattr(items, c) for _, items in found]) for c in ("event", "start", "busy"))
    at = np.repeat([i for i, _ in found], [len(items) for _, items in found])
    order = np.lexsort((at, start))
    return event[order], at[order], start[order], duration[order]
