"""The timeline of one recording: its tracks, what of them a window holds, and where in time its events are."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.timeline import kept
from tb_sol_plugin.metrics.timeline.counters import COARSE_COLUMNS, Coarse, Series, coarse_of, series_of
from tb_sol_plugin.metrics.timeline.events import TABLES, Events, Ids, events_of
from tb_sol_plugin.metrics.timeline.kept import Keeper
from tb_sol_plugin.metrics.timeline.phases import Band, bands
from tb_sol_plugin.metrics.timeline.summary import Bytes, Cover, Grid, Summary, covers_of, depth_of, members, summary_of
from tb_sol_plugin.metrics.timeline.tracks import GROUPS, Arranged, Track, arrange, compacted, root_of, short_label
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.tables.compiled import fixed
from tb_sol_plugin.tables.pyramid import MANY_LANES, Items, Level, Levels, Pyramid, build, starting_kernel

if TYPE_CHECKING:
    from tb_sol_plugin.metrics.timeline.find import Counted

_FAR: Final = 20
"""A recording so many times longer than where nearly all of its events are has outliers."""
_NEARLY_ALL: Final = 0.9995
"""Part of the events after whose last start, or before whose first one, others are far: 99.9 % lie between both."""
_LISTED: Final = 100
"""Most times of outliers that are listed."""


Layout = Literal["process", "compact"]
"""compact: the streams of each device are one track."""
KEPT: Final = ("timeline.kept",)
"""Where a capture's memo has the place that its timeline is kept in, see `Keeper`."""


class Timeline:
    """Tracks and lanes of one recording. Times are ns since its start, as in its tables.

    keeper: where they may have been kept, and will be. base: the same with each stream of a device as one track; here all of them are one.
    """

    def __init__(self, capture: Capture, keeper: Keeper | None = None, *, base: Timeline | None = None) -> None:
        self.capture = capture
        self.events: Events = events_of(capture)
        self._root = root_of(capture)
        self._lock = threading.RLock()
        self._base, self._keeper = base, keeper if base is None else None
        self._stored = self._keeper.load(self._root, len(self.events)) if self._keeper is not None else None
        self._levels: tuple[Level, ...] | None = None
        self._summaries: dict[int, Summary] = {}
        self._groups: dict[int, list[Track]] = {}
        self.made: dict[object, tuple[Mapping[str, npt.NDArray[Any]], int]] = {}
        """What was added up of everything, by what it is of."""
        self.searched: dict[object, Counted] = {}
        """What was counted, by what was looked for."""
        self.arranged: Arranged
        if base is not None:
            self.arranged = compacted(self.events, base.own_tracks, base.arranged.order, base.arranged.bounds)
        elif self._stored is not None:
            self.arranged = self._arranged(self._stored.head)
        else:
            self.arranged = arrange(capture, self.events)
        self._own = len(self.arranged.tracks)
        self.series: list[Series] = self._kept_series() if self._knows_attached else series_of(capture)
        self._add_counters()

    # -- what was kept -------------------------------------------------------------------------------------------------

    def part(self, name: str) -> kept.Part | None:
        """Returns a part as it was kept, None where it was not, or is damaged: then it is made as if nothing had been kept."""
        return self._stored.part(name) if self._stored is not None else None

    def read_ahead(self, *, lanes: bool) -> None:
        """Lets the system begin to read what the first picture needs of what was kept. lanes: those of events, too."""
        stored = self._stored
        if stored is None:
            return
        head, wide = stored.head, kept.coarse_level(self.span_ns)
        names = [kept.grid_part(c.part) if c.grid >= 0 else kept.cover_part(c.part) for c in head.covers.values()]
        if lanes:
            names += [kept.coarse_part(i) if s.coarse >= 0 else kept.series_part(i) for i, s in enumerate(head.series)]
            first = next((i for i in range(len(head.levels) - 1, -1, -1) if head.levels[i][0] <= wide), 0)
            names += [kept.NAMES, *(kept.level_part(z) for z, _ in head.levels[first:])]
        stored.ahead(dict.fromkeys(names))

    @property
    def _knows_attached(self) -> bool:
        """Whether what was kept is of the recording with what is attached to it now."""
        return self._stored is not None and self._stored.head.attached == self.capture.attached_state

    def _arranged(self, head: kept.Head) -> Arranged:
        self.events.known = self._kept_names

        def order() -> Ids:
            part = self.part(kept.ORDER)
            return part["event"] if part is not None else arrange(self.capture, self.events).order

        tracks = [replace(t, children=list(t.children)) for t in head.tracks]
        return Arranged(tracks, order, np.array(head.bounds, np.int64))

    def _kept_names(self) -> list[Ints] | None:
        part = self.part(kept.NAMES)
        return None if part is None else [part["pair"][part["table"] == table] for table in range(len(TABLES))]

    def _kept_series(self) -> list[Series]:
        assert self._stored is not None

        def columns(place: int) -> Callable[[], tuple[Ints, Floats]]:
            def read() -> tuple[Ints, Floats]:
                part = self.part(kept.series_part(place))
                return series_of(self.capture)[place].columns() if part is None else (part["time"], part["value"])

            return read

        def coarse(place: int, z: int) -> Callable[[], Coarse | None]:
            def read() -> Coarse | None:
                part = self.part(kept.coarse_part(place)) if z >= 0 else None
                return None if part is None else Coarse(z, *(part[c] for c in COARSE_COLUMNS))

            return read

        series = enumerate(self._stored.head.series)
        return [Series(s.label, s.unit, s.device, s.source, s.extent, columns(i), coarse(i, s.coarse)) for i, s in series]

    def _kept_level(self, place: int) -> Level:
        assert self._stored is not None
        z, bounds = self._stored.head.levels[place]
        part = self.part(kept.level_part(z))
        if part is None:
            return self._built[place]
        return Level(z, part["start"], part["end"], part["event"], part["first"], part["busy"], np.array(bounds, np.int64))

    @property
    def _built(self) -> tuple[Level, ...]:
        """The merged levels in memory, built once."""
        with self._lock:
            if self._levels is None:
                start, duration = self.events.times(self.arranged.order)
                self._levels = build(self.arranged.order, self.arranged.bounds, start, duration)
            return self._levels

    @cached_property
    def _pyramid(self) -> Pyramid:
        levels: Sequence[Level]
        if self._stored is not None:
            levels = Levels([z for z, _ in self._stored.head.levels], self._kept_level)
        else:
            levels = self._built
            if self._keeper is not None:
                threading.Thread(target=self._keep, args=(self._keeper,), name="keep timeline", daemon=True).start()
        return Pyramid(lambda: self.arranged.order, self.arranged.bounds, levels, self.events.times, self.span_ns)

    @property
    def pyramid(self) -> Pyramid:
        """The merged levels."""
        with self._lock:
            return self._pyramid

    def _keep(self, keeper: Keeper) -> None:
        """Keeps the timeline, and goes on with what was kept: it is mapped, and takes no memory of this process."""
        if keeper.save(*self.to_keep()):
            stored = keeper.load(self._root, len(self.events))
            if stored is not None:
                with self._lock:
                    self._stored, self._levels, self._summaries = stored, None, {}
                    self.__dict__.pop("_pyramid", None)
                    arranged = self._arranged(stored.head)
                    self.arranged = Arranged(self.arranged.tracks, lambda: arranged.order, self.arranged.bounds)
                    for name in ("outermost", "_lane_of"):
                        self.__dict__.pop(name, None)
                    if self._knows_attached:
                        self.series = self._kept_series()

    def to_keep(self) -> tuple[kept.Head, dict[str, kept.Part]]:
        """Returns all that can be kept."""
        track, start, end = self.outermost
        used = self.events.used
        parts: dict[str, kept.Part] = {
            kept.ORDER: {"event": self.arranged.order},
            kept.LANES: {"lane": self._lane_of},
            kept.OUTERMOST: {"track": track.astype(np.int64), "start": start, "end": end},
            kept.NAMES: {"table": np.repeat(np.arange(len(used)), list(map(len, used))), "pair": np.concatenate(used)},
        }
        for level in self._built:
            parts[kept.level_part(level.z)] = {c: getattr(level, c) for c in ("start", "end", "event", "first", "busy")}
        wide = kept.coarse_level(self.span_ns)
        coarse: dict[int, int] = {}
        for place, one in enumerate(self.series):
            parts[kept.series_part(place)] = dict(zip(("time", "value"), one.columns(), strict=True))
            if (few := coarse_of(one, wide)) is not None:
                coarse[place] = wide
                parts[kept.coarse_part(place)] = {c: getattr(few, c) for c in COARSE_COLUMNS}
        covers: dict[int, kept.KeptCover] = {}
        for group in (i for i, t in enumerate(self.tracks) if t.kind in GROUPS):
            if self.alike(group) != group:
                covers[group] = covers[self.alike(group)]
                continue
            covers[group], parts[kept.cover_part(group)], grid = self.summary(group).kept(group, self.span_ns)
            if grid is not None:
                parts[kept.grid_part(group)] = grid
        for more in kept.MORE:
            parts.update(more(self))
        head = kept.Head(
            kept.VERSION, len(self.events), self._root, self.capture.attached_state, self.own_tracks, self.arranged.bounds.tolist(),
            [(one.z, one.bounds.tolist()) for one in self._built], self.focus(), self.overflow, covers,
            [kept.KeptSeries(s.label, s.unit, s.device, s.source, s.extent, coarse.get(i, -1)) for i, s in enumerate(self.series)],
            self.bands,
        )  # fmt: skip
        return head, parts

    @property
    def tracks(self) -> list[Track]:
        return self.arranged.tracks

    @cached_property
    def span_ns(self) -> int:
        """End of the last event or sample; at least 1."""
        ends = [t.last_ns for t in self.tracks]
        return max(1, *ends) if ends else 1

    @property
    def own_tracks(self) -> list[Track]:
        """The tracks of events, which do not depend on what is attached to a recording: those without counters."""
        return [replace(t, children=[c for c in t.children if c < self._own]) for t in self.tracks[: self._own]]

    @property
    def top(self) -> int:
        """The level at which one tile holds everything."""
        return max(0, (self.span_ns - 1).bit_length() - 10)

    def items(self, track: int, z: int, edges: Sequence[int]) -> list[tuple[Items, Ints]]:
        """Returns the items of a track, lane after lane, between each two of ascending times at level z; and how many each lane has."""
        one = self.tracks[track]
        return self.pyramid.split(range(one.first_lane, one.first_lane + one.lanes), z, edges)

    @cached_property
    def outermost(self) -> tuple[Ints, Ints, Ints]:
        """Returns (track, start, end) of the host events inside of no other, and of those that end after what encloses them.

        The time that they cover is that of all host events: every other one lies within one of them.
        """
        part = self.part(kept.OUTERMOST)
        if part is not None:
            return part["track"], part["start"], part["end"]
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
        if self._stored is not None:
            return self._stored.head.overflow
        clipped = int(self.capture.host["clipped"].to_numpy().sum())
        lanes = np.diff(self.arranged.bounds)
        return clipped + sum(int(lanes[t.first_lane + 1 : t.first_lane + t.lanes].sum()) for t in self.tracks if t.kind == "stream")

    @cached_property
    def bands(self) -> list[Band]:
        """The phases of the recording."""
        if self._base is not None:
            return self._base.bands
        return self._stored.head.bands if self._stored is not None and self._knows_attached else bands(self.capture)

    @cached_property
    def _lane_of(self) -> npt.NDArray[np.unsignedinteger[Any]]:
        """The lane of each event; how many lanes there are for one in none, as samples of counters are."""
        part = self.part(kept.LANES)
        if part is not None:
            return part["lane"]
        lanes = len(self.arranged.bounds) - 1
        out = np.full(len(self.events), lanes, kept.lane_type(lanes + 1))
        out[self.arranged.order] = np.repeat(np.arange(lanes, dtype=out.dtype), np.diff(self.arranged.bounds))
        return out

    @cached_property
    def _lane_tracks(self) -> tuple[Ints, Ints]:
        """First lane of each track of events, ascending, and its place."""
        rows = [(t.first_lane, i) for i, t in enumerate(self.tracks) if t.lanes]
        found = np.array(rows, np.int64).reshape(-1, 2)
        return found[:, 0], found[:, 1]

    def located(self, ids: npt.NDArray[np.integer]) -> tuple[Ints, Ints]:
        """Returns (track, lane within it) of events."""
        lane = self._lane_of[ids].astype(np.int64)
        first, places = self._lane_tracks
        at = np.searchsorted(first, lane, "right") - 1
        return places[at], lane - first[at]

    def lanes_of(self, table: str) -> npt.NDArray[np.unsignedinteger[Any]]:
        """Returns the lane of each row of a table; how many lanes there are for a row in none."""
        base = self.events.base(table)
        return self._lane_of[base : base + self.events.counts[TABLES.index(table)]]

    def by_track(self, lanes: Ints) -> list[tuple[int, int]]:
        """Returns (track, sum) of the tracks with lanes that have any of something. lanes: how much each has."""
        first, places = self._lane_tracks
        there = np.flatnonzero(lanes)
        found = np.zeros(len(self.tracks), np.int64)
        np.add.at(found, places[np.searchsorted(first, there, "right") - 1], lanes[there])
        return [(int(track), int(found[track])) for track in np.flatnonzero(found)]

    def starting(self, lanes: Ints, begins: Ints, ends: Ints) -> Ints:
        """Returns between which positions of `arranged.order` the events of some lanes are that start in each of some windows: (begin and
        end, lane, window). begins, ends: of the windows, which ascend.
        """
        firsts, lasts = self.arranged.bounds[lanes], self.arranged.bounds[lanes + 1]
        where = np.zeros((2, len(lanes), len(begins)), np.int64)
        filled, order = np.flatnonzero(firsts < lasts), fixed(self.arranged.order, np.uint32)
        table_of = np.searchsorted(self.events.bases, order[firsts[filled]], "right") - 1  # a lane is of one table
        for table in np.unique(table_of).tolist():
            mine = filled[table_of == table]
            part = np.zeros((2, len(mine), len(begins)), np.int64)
            start = fixed(self.events.columns(TABLES[table])[0], np.int64)
            starting_kernel(order, int(self.events.bases[table]), firsts[mine], lasts[mine], start, begins, ends, part)
            where[:, mine] = part
        return where

    def positions(self, lanes: Ints, begin: int, end: int) -> tuple[Ints, Ints, Ints]:
        """Returns where in `arranged.order` the events of each of some lanes are that are in a window; one of no length at its begin is.

        These are positions of the first that is in it, of the first that starts in it, and after the last one.
        """
        first, last = self.starting(lanes, np.array([begin]), np.array([end]))[:, :, 0]
        early = first.copy()
        before = np.flatnonzero(first > self.arranged.bounds[lanes])  # the last one that starts before the window may reach into it
        start, duration = self.events.times(self.arranged.order[first[before] - 1])
        early[before[start + duration > begin]] -= 1
        return early, first, last

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

    def _members(self, track: int) -> list[Track]:
        """Returns the tracks of events whose time a group shows."""
        if track not in self._groups:
            self._groups[track] = members(self.tracks, track, self.below(track))
        return self._groups[track]

    @cached_property
    def _alike(self) -> dict[int, int]:
        first: dict[tuple[int, ...], int] = {}
        groups = [i for i, t in enumerate(self.tracks) if t.kind in GROUPS]
        return {i: first.setdefault(tuple(t.first_lane for t in self._members(i)), i) for i in groups}

    def alike(self, track: int) -> int:
        """Returns the first group with the time of the same tracks; a track that is no group itself."""
        return self._alike.get(track, track)

    def summary(self, track: int) -> Summary:
        """Returns what a group does over time."""
        if track not in self._summaries:
            self._summaries[track] = self._summary(track)
        return self._summaries[track]

    def _summary(self, track: int) -> Summary:
        if self._base is not None:  # the same events, whatever lanes they are on
            path = self.tracks[track].path
            return self._base.summary(next(i for i, t in enumerate(self._base.tracks) if t.path == path))
        head = self._stored.head.covers.get(track) if self._stored is not None else None
        if head is None:
            return self._made_summary(track)

        def covers() -> Sequence[Cover]:
            part = self.part(kept.cover_part(head.part))
            return covers_of(head, part) if part is not None else self._made_summary(track).covers

        grid = self.part(kept.grid_part(head.part)) if head.grid >= 0 else None
        return Summary([kind for kind, _ in head.kinds], covers, None if grid is None else Grid.of_kept(head, grid))

    def _made_summary(self, track: int) -> Summary:
        return summary_of(self.events, self.arranged, self._members(track))

    def depth(self, track: int, z: int, begin: int, share: Bytes) -> Bytes:
        """Returns the greatest depth of a group per bucket of level z from `begin` on; share: busy share of each, see `Summary.tile`."""
        return depth_of(self.pyramid, self._members(track), z, begin, share)

    def focus(self) -> tuple[int, int, list[tuple[int, int]]]:
        """Returns (start, end) of where nearly all events are, and (time, events) of those far outside; the last of many holds the rest."""
        return self._stored.head.focus if self._stored is not None and self._knows_attached else self._focus

    @cached_property
    def _focus(self) -> tuple[int, int, list[tuple[int, int]]]:
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
        counts = np.diff(share, prepend=0)[outside]
        if len(outside) > _LISTED:
            counts[_LISTED - 1] = counts[_LISTED - 1 :].sum()
        return low, high, list(zip(start[outside[:_LISTED]].tolist(), counts[:_LISTED].tolist(), strict=True))

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
            track.events, track.first_ns, track.last_ns, track.low, track.high = one.extent
            track.open = place < 2
            tracks[parent].children.append(len(tracks))
            tracks.append(track)


def timeline_of(capture: Capture, layout: Layout = "process") -> Timeline:
    """Returns the timeline of a recording, arranged once in each layout."""
    shown: Timeline = memo(capture, ("timeline",), lambda: Timeline(capture, cast("Keeper | None", capture.memo.get(KEPT))))
    streams = Counter(t.device for t in shown.tracks if t.kind == "stream")
    if layout == "process" or max(streams.values(), default=0) < 2:
        return shown
    return memo(capture, ("timeline", layout), lambda: Timeline(capture, base=shown))
