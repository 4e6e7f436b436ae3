"""The timeline of one recording: its tracks, what of them a window holds, and where in time its events are."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.timeline.counters import Series, series_of
from tb_sol_plugin.metrics.timeline.events import Events, events_of
from tb_sol_plugin.metrics.timeline.summary import Summary, summary_of
from tb_sol_plugin.metrics.timeline.tracks import GROUPS, Arranged, Track, arrange, compacted, root_of, short_label
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.pyramid import MANY_LANES, Items, Level, Pyramid, build

VERSION: Final = 1
"""Raised when lanes or levels change: what was stored is built again."""
_FAR: Final = 20
"""A recording so many times longer than where nearly all of its events are has outliers."""
_NEARLY_ALL: Final = 0.9995


Layout = Literal["process", "compact"]
"""compact: the streams of each device are one track."""
KEPT: Final = ("timeline.kept",)
"""Where a capture's memo has the place that its timeline is kept in, see `Keeper`."""


@dataclass(frozen=True)
class Stored:
    """Tracks, lanes and levels as they are kept on disk; order and bounds as in `Arranged`. Tracks are without counters."""

    tracks: list[Track]
    order: npt.NDArray[np.uint32]
    bounds: Ints
    levels: tuple[Level, ...]


class Keeper(Protocol):
    """A place that keeps a timeline: `store.timelines`. root: label of the first track. events: how many there are."""

    def load(self, root: str, events: int) -> Stored | None: ...

    def save(self, root: str, stored: Stored) -> bool: ...


class Timeline:
    """Tracks and lanes of one recording. Times are ns since its start, as in its tables.

    keeper: where they may have been kept, and will be. compact: the same with the streams of each device as one track.
    """

    def __init__(self, capture: Capture, keeper: Keeper | None = None, *, compact: Timeline | None = None) -> None:
        self.capture = capture
        self.events: Events = events_of(capture)
        self._root = root_of(capture)
        if compact is not None:
            arranged = compacted(self.events, compact.own_tracks, compact.arranged.order, compact.arranged.bounds)
            self._begin(arranged, None, None)
            return
        stored = keeper.load(self._root, len(self.events)) if keeper is not None else None
        if stored is None:
            self._begin(arrange(capture, self.events), None, keeper)
        else:
            self._begin(Arranged(stored.tracks, stored.order, stored.bounds), stored.levels, None)

    def _begin(self, arranged: Arranged, levels: tuple[Level, ...] | None, keeper: Keeper | None) -> None:
        self.arranged = arranged
        self._own = len(arranged.tracks)
        self.series: list[Series] = series_of(self.capture)
        self._add_counters()
        self._lock = threading.Lock()
        self._levels, self._keeper = levels, keeper
        self._summaries: dict[int, Summary] = {}

    @property
    def tracks(self) -> list[Track]:
        return self.arranged.tracks

    @cached_property
    def span_ns(self) -> int:
        """End of the last event or sample; at least 1."""
        ends = [t.last_ns for t in self.tracks]
        return max(1, *ends) if ends else 1

    @property
    def pyramid(self) -> Pyramid:
        """The merged levels, built once."""
        with self._lock:
            if self._levels is None:
                start, duration = self.events.times(self.arranged.order)
                self._levels = build(self.arranged.order, self.arranged.bounds, start, duration)
                if self._keeper is not None:
                    threading.Thread(target=self._keep, args=(self._keeper, self._levels), daemon=True).start()
        return Pyramid(self.arranged.order, self.arranged.bounds, self._levels, self.events.times, self.span_ns)

    def _keep(self, keeper: Keeper, levels: tuple[Level, ...]) -> None:
        """Keeps lanes and levels, and goes on with what was kept: it is mapped, and takes no memory of this process."""
        if keeper.save(self._root, Stored(self.own_tracks, self.arranged.order, self.arranged.bounds, levels)):
            stored = keeper.load(self._root, len(self.events))
            if stored is not None:
                self._levels, self.arranged = stored.levels, replace(self.arranged, order=stored.order)

    @property
    def own_tracks(self) -> list[Track]:
        """The tracks of events, which do not depend on what is attached to a recording: those without counters."""
        return [replace(t, children=[c for c in t.children if c < self._own]) for t in self.tracks[: self._own]]

    @property
    def top(self) -> int:
        """The level at which one tile holds everything."""
        return max(0, (self.span_ns - 1).bit_length() - 10)

    def items(self, track: int, z: int, begin: int, end: int) -> tuple[Items, Ints]:
        """Returns the items of a track, lane after lane, in a window at level z whose bounds stand at edges of buckets; and how many
        each lane has.
        """
        one = self.tracks[track]
        return self.pyramid.windows(range(one.first_lane, one.first_lane + one.lanes), z, begin, end)

    @cached_property
    def outermost(self) -> tuple[Ints, Ints, Ints]:
        """Returns (track, start, end) of the host events inside of no other, and of those that end after what encloses them.

        The time that they cover is that of all host events: every other one lies within one of them.
        """
        host = self.capture.host
        rows = np.flatnonzero((host["parent"].to_numpy() < 0) | host["clipped"].to_numpy())
        ids = (rows + self.events.base("host")).astype(np.uint32)
        start, duration = self.events.times(ids)
        return (self.located(ids)[0] if len(ids) else rows), start, start + duration

    @cached_property
    def overflow(self) -> int:
        """Events that overlap another one of their track without lying inside it: host events that end after what encloses them, and
        device events in a lane below the first.
        """
        clipped = int(self.capture.host["clipped"].to_numpy().sum())
        lanes = np.diff(self.arranged.bounds)
        return clipped + sum(int(lanes[t.first_lane + 1 : t.first_lane + t.lanes].sum()) for t in self.tracks if t.kind == "stream")

    @cached_property
    def _positions(self) -> npt.NDArray[np.uint32]:
        out = np.zeros(len(self.events), np.uint32)
        out[self.arranged.order] = np.arange(len(self.arranged.order), dtype=np.uint32)
        return out

    @cached_property
    def _lane_tracks(self) -> tuple[Ints, Ints]:
        """First lane of each track of events, ascending, and its place."""
        rows = [(t.first_lane, i) for i, t in enumerate(self.tracks) if t.lanes]
        found = np.array(rows, np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def located(self, ids: npt.NDArray[np.integer]) -> tuple[Ints, Ints]:
        """Returns (track, lane within it) of events."""
        lane = np.searchsorted(self.arranged.bounds, self._positions[ids].astype(np.int64), "right") - 1
        first, places = self._lane_tracks
        at = np.searchsorted(first, lane, "right") - 1
        return places[at], lane - first[at]

    def find(self, track: int, start_ns: int, duration_ns: int) -> int:
        """Returns the event of a track with that start and duration, the nearest one where there is none; -1 in a track without events."""
        one, best = self.tracks[track], (-1, -1)
        if one.lanes > MANY_LANES:
            every = self.arranged.order[int(self.arranged.bounds[one.first_lane]) : int(self.arranged.bounds[one.first_lane + one.lanes])]
            start, duration = self.events.times(every)
            return int(every[int(np.argmin(np.abs(start - start_ns) + np.abs(duration - duration_ns)))])
        for lane in range(one.first_lane, one.first_lane + one.lanes):
            ids = self.arranged.order[int(self.arranged.bounds[lane]) : int(self.arranged.bounds[lane + 1])]
            start, duration = self.events.times(ids)
            at = int(np.searchsorted(start, start_ns))
            for i in range(max(at - 1, 0), min(at + 2, len(ids))):
                far = abs(int(start[i]) - start_ns) + abs(int(duration[i]) - duration_ns)
                if best[0] < 0 or far < best[0]:
                    best = (far, int(ids[i]))
        return best[1]

    def below(self, track: int) -> list[int]:
        """Returns the tracks of events inside a group; a track of events itself."""
        one = self.tracks[track]
        if one.kind not in GROUPS:
            return [track] if one.series < 0 else []
        return [i for child in one.children for i in self.below(child)]

    def summary(self, track: int) -> Summary:
        """Returns what a group does over time."""
        if track not in self._summaries:
            self._summaries[track] = summary_of(self.events, self.arranged, self.tracks, track, self.below(track))
        return self._summaries[track]

    def focus(self) -> tuple[int, int, list[tuple[int, int]]]:
        """Returns (start, end) of where nearly all events are, and (time, events) of what lies far outside of it."""
        start, weight = self._weighted
        whole = (0, self.span_ns)
        if len(start) < 2:
            return (*whole, [])
        order = np.argsort(start, kind="stable")
        start, share = start[order], np.cumsum(weight[order])
        total = int(share[-1])
        low = int(start[int(np.searchsorted(share, total * (1 - _NEARLY_ALL)))])
        high = int(start[min(int(np.searchsorted(share, total * _NEARLY_ALL)), len(start) - 1)])
        if self.span_ns <= _FAR * max(high - low, 1):
            return (*whole, [])
        room = max(high - low, 1)
        low, high = max(0, low - room // 20), min(self.span_ns, high + room // 20 + 1)
        outside = np.flatnonzero((start < low) | (start >= high))
        counts = np.diff(share, prepend=0)
        return low, high, [(int(start[i]), int(counts[i])) for i in outside[:100].tolist()]

    @cached_property
    def _weighted(self) -> tuple[Ints, Ints]:
        """Starts and counts of events: of those of a fine level, or one by one where there are few."""
        levels = self.pyramid.levels
        if levels:
            level = levels[min(2, len(levels) - 1)]
            return level.start, level.items(slice(None), len(self.arranged.order)).count
        start, _ = self.events.times(self.arranged.order)
        return start, np.ones(len(start), np.int64)

    def _add_counters(self) -> None:
        tracks = self.arranged.tracks
        by_device = {t.device: i for i, t in enumerate(tracks) if t.kind == "device"}
        for place, one in enumerate(self.series):
            parent = by_device.get(one.device, 0) if one.device >= 0 else 0
            label = short_label(one.label)
            track = Track("counter", label, f"{tracks[parent].path}/{label}", parent, device=one.device, series=place, unit=one.unit)
            track.first_ns, track.last_ns = int(one.time_ns[0]), int(one.time_ns[-1])
            track.events, track.low, track.high = len(one.time_ns), float(one.value.min()), float(one.value.max())
            track.open = place < 2
            tracks[parent].children.append(len(tracks))
            tracks.append(track)


def timeline_of(capture: Capture, layout: Layout = "process") -> Timeline:
    """Returns the timeline of a recording, arranged once in each layout."""
    shown: Timeline = memo(capture, ("timeline",), lambda: Timeline(capture, cast("Keeper | None", capture.memo.get(KEPT))))
    streams = Counter(t.device for t in shown.tracks if t.kind == "stream")
    if layout == "process" or max(streams.values(), default=0) < 2:
        return shown
    return memo(capture, ("timeline", layout), lambda: Timeline(capture, compact=shown))
