"""Adds up what lies in an area of the timeline: a window of time on some tracks. Times are cut to the window unless asked otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.time import breakdown
from tb_sol_plugin.metrics.timeline import kept
from tb_sol_plugin.metrics.timeline.events import CATEGORIES, TABLES, Ids
from tb_sol_plugin.metrics.timeline.links import launched_ns, pairs_of
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.tracks import GROUPS
from tb_sol_plugin.process import give_back
from tb_sol_plugin.tables import arrays, grouped, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints

GroupBy = Literal["name", "category", "track"]
Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""A table by column. Making a DataFrame of a few rows takes as long as adding up what is in them."""
MOST_GAPS: Final = 20
MOST_GROUPS: Final = 100_000
MOST_MADE: Final = 8
"""Sums of everything that are remembered: by name, kind and track, and of some choices of tracks."""
OF_KIND: Final = {"thread": "host", "stream": "device", "annotations": "annotations_device", "sync": "sync", "instants": "instants"}
"""The table whose events each kind of track holds."""


@dataclass(frozen=True)
class _Lanes:
    """Lanes of tracks, with the place of their table, and between which positions of the events by lane theirs are.

    Lanes of one track follow each other.

    early: of the first that is in the window, though it starts before. first: of the first that starts in it.
    """

    table: Ints
    track: Ints
    early: Ints
    first: Ints
    last: Ints

    def at(self, places: npt.NDArray[Any]) -> _Lanes:
        """Returns some of them."""
        return _Lanes(self.table[places], self.track[places], self.early[places], self.first[places], self.last[places])


@dataclass(frozen=True)
class Selection:
    """Events of some tracks that are in `[begin, end)`; gathered when they are asked for.

    clip: times are cut to the window.
    """

    timeline: Timeline
    begin: int
    end: int
    tracks: tuple[int, ...]
    clip: bool

    @cached_property
    def _lanes(self) -> _Lanes:
        """Where the events of each lane are that has any."""
        timeline, arranged = self.timeline, self.timeline.arranged
        shown = [timeline.tracks[t] for t in self.tracks]
        sizes = np.array([one.lanes for one in shown], np.int64)
        track = np.repeat(np.array(self.tracks, np.int64), sizes)
        table = np.repeat(np.array([TABLES.index(OF_KIND[one.kind]) for one in shown], np.int64), sizes)
        lanes = np.concatenate([np.zeros(0, np.int64), *(np.arange(t.first_lane, t.first_lane + t.lanes) for t in shown)])
        if self._is_whole:
            first, last = arranged.bounds[lanes], arranged.bounds[lanes + 1]
            early = first
        else:
            early, first, last = timeline.positions(lanes, self.begin, self.end)
        some = early < last
        return _Lanes(table[some], track[some], early[some], first[some], last[some])

    @cached_property
    def _is_whole(self) -> bool:
        """Whether every event of the tracks is in the window."""
        arranged = self.timeline.arranged
        first = min((self.timeline.tracks[t].first_ns for t in self.tracks), default=0)  # an instant may be before the recording starts
        if not (self.begin <= min(first, 0) and self.end >= self.timeline.span_ns and len(arranged.order)):
            return False
        ends = arranged.bounds[1:][np.diff(arranged.bounds) > 0] - 1
        return int(self.timeline.events.times(arranged.order[ends])[0].max()) < self.end  # else one of no length stands at the very end

    def _ids(self, track: int) -> Ids:
        """Returns the events of a track, by lane and start."""
        order, lanes = self.timeline.arranged.order, self._lanes
        mine = lanes.track == track
        return np.concatenate(
            [np.zeros(0, np.uint32), *(order[a:b] for a, b in zip(lanes.early[mine].tolist(), lanes.last[mine].tolist(), strict=True))]
        )

    def _runs(self, table: str, *, by_track: bool = False) -> grouped.Runs:
        """Returns which rows of a table are in it; by_track: with the track of each run.

        Those of a thread that start in the window follow each other, as all of a table often do: nothing is gathered of them.
        """
        base, order, lanes = self.timeline.events.base(table), self.timeline.arranged.order, self._lanes
        chosen = lanes.at(lanes.table == TABLES.index(table))
        before = chosen.early < chosen.first
        early = order[chosen.early[before]].astype(np.int64) - base
        low, high, label = [early], [early + 1], [chosen.track[before]]
        inside = chosen.at(chosen.first < chosen.last)
        size = inside.last - inside.first
        least, most = (order[at].astype(np.int64) - base for at in (inside.first, inside.last - 1))
        starts = np.flatnonzero(np.diff(inside.track, prepend=-1))
        if len(starts):
            found = np.minimum.reduceat(least, starts), np.maximum.reduceat(most, starts) + 1
            loose = found[1] - found[0] != np.add.reduceat(size, starts)
            if loose.any() and not by_track and int(most.max()) + 1 - int(least.min()) == int(size.sum()):
                found, starts = (least.min(keepdims=True), most.max(keepdims=True) + 1), starts[:1]
            elif loose.any():  # streams mingle in their table
                of = np.isin(inside.track, inside.track[starts[loose]])
                parts = zip(inside.first[of].tolist(), inside.last[of].tolist(), strict=True)
                rows = np.concatenate([order[a:b] for a, b in parts]).astype(np.int64) - base
                low, high, label = [*low, rows], [*high, rows + 1], [*label, np.repeat(inside.track[of], size[of])]
                found, starts = (found[0][~loose], found[1][~loose]), starts[~loose]
            low, high, label = [*low, found[0]], [*high, found[1]], [*label, inside.track[starts]]
        begins, ends, labels = map(np.concatenate, (low, high, label))
        ascending = np.argsort(begins)
        return grouped.Runs(begins[ascending], ends[ascending], labels[ascending])

    @cached_property
    def event(self) -> Ints:
        """The events' ids, ascending."""
        return np.concatenate([self._runs(table).rows + self.timeline.events.base(table) for table in TABLES])

    @cached_property
    def counts(self) -> dict[int, int]:
        """Events of each chosen track."""
        found = np.zeros(len(self.timeline.tracks), np.int64)
        np.add.at(found, self._lanes.track, self._lanes.last - self._lanes.early)
        return {t: int(found[t]) for t in self.tracks}

    @property
    def has_host(self) -> bool:
        """Whether an event of a thread is in it."""
        return any(count and self.timeline.tracks[t].kind == "thread" for t, count in self.counts.items())

    @cached_property
    def _device(self) -> tuple[Ints, Ints, Ints]:
        """The rows of the chosen streams' events, and their begins and ends as they count."""
        runs = self._runs("device")
        start, duration = (runs.of(column) for column in self.timeline.events.columns("device"))
        return runs.rows, *self._cut(start, start + duration)

    def _cut(self, start: Ints, end: Ints) -> iv.Spans:
        """Returns times as they count."""
        return (np.maximum(start, self.begin), np.minimum(end, self.end)) if self.clip else (start, end)

    @cached_property
    def _covered(self) -> dict[int, iv.Spans]:
        """The time in which each track is busy. What nests inside of host events adds nothing to their outermost ones."""
        of, begins, ends = self.timeline.outermost
        near = np.flatnonzero((begins < self.end) & (ends > self.begin))
        of, begins, ends = of[near], begins[near], ends[near]
        out = {}
        for track in self.tracks:
            if self.timeline.tracks[track].kind == "thread":
                mine = of == track
                start, end = begins[mine], ends[mine]
            else:
                start, duration = self.timeline.events.times(self._ids(track))
                end = start + duration
            out[track] = iv.union(*self._cut(start, end))
        return out

    # -- sums ----------------------------------------------------------------------------------------------------------

    @cached_property
    def device_layers(self) -> breakdown.Layers:
        """Unions of device time in the window by class; over all devices of the chosen tracks."""
        rows, first, last = self._device
        kind = breakdown.classes(self.timeline.capture)[rows]
        return breakdown.Layers(*(iv.union(first[kind == k], last[kind == k]) for k in range(len(breakdown.CLASSES))))

    @cached_property
    def host_busy_ns(self) -> int:
        """Time in which any chosen thread is inside an event."""
        found = [self._covered[t] for t in self.tracks if self.timeline.tracks[t].kind == "thread"]
        return iv.length(iv.union(*(np.concatenate([np.zeros(0, np.int64), *(one[k] for one in found)]) for k in (0, 1))))

    def groups(self, by: GroupBy) -> tuple[Columns, int]:
        """Returns one row per name, kind of work or track: count, sums and distribution of the times; and how many with less time are left
        out beyond `MOST_GROUPS`. Those of everything are made once.
        """
        made = self.timeline.made
        key = ("groups", by, self.tracks, self.clip)
        found = made.get(key) if self._is_whole else None
        if found is None:
            kept_groups = self._kept_groups(by) if self._is_whole else None
            columns, left = self._groups(by, MOST_GROUPS) if kept_groups is None else _first(kept_groups, MOST_GROUPS)
            for column in columns.values():
                column.flags.writeable = False
            found = columns, left
            if self._is_whole:
                if len(made) >= MOST_MADE:
                    made.clear()
                made[key] = found
        return found

    def _kept_groups(self, by: GroupBy) -> Columns | None:
        """Returns what everything adds up to as it was kept beside the recording; None for another choice, or where it was not."""
        is_kept = by == "name" and self.clip and self.tracks == tuple(everything(self.timeline))
        return self.timeline.part(kept.SUMS) if is_kept else None

    def _groups(self, by: GroupBy, most: int | None = None) -> tuple[Columns, int]:
        events = self.timeline.events
        names = events.names
        wide = {"name": len(names.text), "category": len(CATEGORIES), "track": len(self.timeline.tracks)}[by]
        begin, end = (self.begin, self.end) if self.clip else (-grouped.EVER, grouped.EVER)
        by_track = by == "track"
        sums = grouped.Sums(wide, sum(self.counts.values()), len(CATEGORIES) if by_track else 0)
        for table in TABLES:
            code, kind, named = events.coded(table)
            lookup = named if by == "name" else np.where(named < 0, -1, names.category[named])
            sums.add(self._runs(table, by_track=by_track), grouped.Keys(code, kind, lookup), self._times(table), begin, end)
        p50, p95 = sums.quantiles(0.5, 0.95)
        groups = np.flatnonzero(sums.count)
        left = len(groups)
        groups = groups[np.lexsort((-sums.count[groups], -sums.total[groups]))][:most]
        left -= len(groups)
        count, total = sums.count[groups], sums.total[groups]
        category = names.category if by == "name" else np.arange(wide) if by == "category" else sums.by_key.argmax(axis=1)
        columns = {
            "group": groups,
            "count": count,
            "total_ns": total,
            "self_ns": sums.own[groups],
            "mean_ns": np.round(total / np.maximum(count, 1)).astype(np.int64),
            "min_ns": sums.low[groups],
            "p50_ns": p50[groups],
            "p95_ns": p95[groups],
            "max_ns": sums.high[groups],
            "device_total_ns": sums.inside[groups],
            "category": category[groups].astype(np.uint8),
        }
        return columns, left

    def _times(self, table: str) -> grouped.Times:
        """Returns the times of a table's rows; of host events also what is inside of each: host events, and device time launched there."""
        capture = self.timeline.capture
        start, duration = self.timeline.events.columns(table)
        if table != "host":
            return grouped.Times(start, duration)
        parent, last = (capture.host[c].to_numpy() for c in ("parent", "end"))
        at, before = pairs_of(self.timeline, "launch").source.view(np.int32), launched_ns(self.timeline)
        # whole events count what is inside of them even where that is outside of the window
        own = None if self.clip else tree.self_time(start, duration, parent)
        return grouped.Times(start, duration, grouped.Inside(parent, last, at, before), own)

    def busy(self) -> dict[str, list[Any]]:
        """Returns one row per chosen track, by column: events, union of their time, its share of the window."""
        tracks = [self.timeline.tracks[track] for track in self.tracks]
        busy = [iv.length(self._covered[track]) for track in self.tracks]
        return {
            "track": list(self.tracks), "path": [t.path for t in tracks], "kind": [t.kind for t in tracks],
            "events": [self.counts[track] for track in self.tracks], "busy_ns": busy,
            "busy_share": [ns / max(self.end - self.begin, 1) for ns in busy],
        }  # fmt: skip

    def let_go(self) -> None:
        """Forgets what was gathered; of everything, as many ids and times as there are events, whose memory goes back to the system."""
        for name in [name for name in self.__dict__ if name not in self.__dataclass_fields__]:
            del self.__dict__[name]
        if self._is_whole:
            give_back()

    def gaps(self, most: int = MOST_GAPS) -> dict[str, list[Any]]:
        """Returns the longest stretches of the window in which no chosen stream of a device is busy, and what the host does meanwhile.

        A row each, by column, the longest first; "" where no host event is over it.
        """
        found: list[tuple[int, Ints, Ints]] = []
        rows, first, last = self._device
        of = self.timeline.capture.device["device"].to_numpy()[rows]
        for number in sorted({self.timeline.tracks[t].device for t in self.tracks if self.timeline.tracks[t].kind == "stream"}):
            mine = of == number
            busy = iv.union(first[mine], last[mine])
            found.append((number, *iv.gaps(iv.clip(busy, self.begin, self.end), self.begin, self.end)))
        start, end = (np.concatenate([np.zeros(0, np.int64), *(spans[k] for spans in found)]) for k in (1, 2))
        number_of = np.repeat(np.array([spans[0] for spans in found], np.int64), [len(spans[1]) for spans in found])
        best = np.lexsort((start, start - end))[:most]
        start, end = start[best], end[best]
        meanwhile = self._host_over((start + end) // 2)
        return {
            "device": number_of[best].tolist(), "start_ns": start.tolist(), "duration_ns": (end - start).tolist(),
            "host_event": [name for name, _ in meanwhile], "host_thread": [thread for _, thread in meanwhile],
        }  # fmt: skip

    def _host_over(self, times: Ints) -> list[tuple[str, str]]:
        """Returns the innermost host event at each time, and its thread, of the threads that launch most; "" outside of all."""
        host, arranged = self.timeline.capture.host, self.timeline.arranged
        thread, start, duration, parent = (host[c].to_numpy() for c in ("thread", "start_ns", "duration_ns", "parent"))
        found, threads = np.full(len(times), -1, np.int64), [""] * len(times)
        for track in (t for t in self.timeline.tracks if t.kind == "thread" and t.launches):
            left = np.flatnonzero(found < 0)
            if not len(left):
                break
            own = thread[arranged.order[int(arranged.bounds[track.first_lane])]]
            first, last = (int(i) for i in np.searchsorted(thread, np.array([own, own + 1], thread.dtype)))
            rows = np.searchsorted(start[first:last], times[left], "right") - 1
            rows[rows >= 0] += first
            while (over := np.flatnonzero((rows >= 0) & (start[rows] + duration[rows] <= times[left]))).size:
                rows[over] = parent[rows[over]]
            found[left] = rows
            for place in left[rows >= 0].tolist():
                threads[place] = track.label
        return list(zip(arrays.pick(host["name"], found).tolist(), threads, strict=True))

    def counters(self) -> dict[str, list[Any]]:
        """Returns one row per counter, by column: first, last, lowest and highest value in the window."""
        rows: list[tuple[str | float, ...]] = []
        for one in self.timeline.series:
            low, high = (int(i) for i in np.searchsorted(one.time_ns, (self.begin, self.end), "left"))
            value = one.value[max(low - 1, 0) : high]
            if len(value):
                where = f"GPU {one.device}" if one.device >= 0 else ""
                label = f"{where} {one.label}".strip()
                first, last = float(value[0]), float(value[-1])
                rows.append((label, one.unit, first, last, float(value.min()), float(value.max()), last - first))
        return {name: [row[i] for row in rows] for i, name in enumerate(("counter", "unit", "first", "last", "min", "max", "delta"))}


def _first(columns: Columns, most: int) -> tuple[Columns, int]:
    """Returns the first rows of a table, in memory of their own where there are more, and how many these are."""
    left = len(columns["group"]) - most
    return ({name: column[:most].copy() for name, column in columns.items()}, left) if left > 0 else (columns, 0)


def select(timeline: Timeline, begin: int, end: int, tracks: Sequence[int], *, clip: bool = True) -> Selection:
    """Returns the events of some tracks in `[begin, end)`; of a group those of all tracks inside it."""
    chosen = tuple(dict.fromkeys(t for track in tracks for t in timeline.below(track)))
    return Selection(timeline, begin, end, chosen, clip)


def everything(timeline: Timeline) -> list[int]:
    """Returns all tracks of streams and threads: what a selection takes where no track is named."""
    return [i for i, t in enumerate(timeline.tracks) if t.kind in ("stream", "thread") and t.kind not in GROUPS]


def sums_to_keep(timeline: Timeline) -> dict[str, Columns]:
    """Returns what everything adds up to by name, as a part that is kept: gone through once while it is in memory anyway."""
    chosen = select(timeline, 0, timeline.span_ns + 1, everything(timeline))
    sums = chosen._groups("name")[0] if len(timeline.events) else {}
    chosen.let_go()
    return {kept.SUMS: sums} if sums else {}


kept.MORE.append(sums_to_keep)


def named_tracks(shown: Timeline, text: str) -> list[int]:
    """Returns the tracks that a text names: numbers and ranges, or paths with `;` between them; "" all threads and streams. BadQuery."""
    if not text:
        return everything(shown)
    paths = {t.path: i for i, t in enumerate(shown.tracks)}
    if any(part in paths for part in text.split(";")):
        unknown = [part for part in text.split(";") if part not in paths]
        if unknown:
            raise BadQuery(f"no track {unknown[0][:80]!r}", hint=f"tracks begin with {next(iter(paths))!r}", field="tracks")
        return [paths[part] for part in text.split(";")]
    out: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            low, high = int(first[:9]), int(last[:9]) if dash else int(first[:9])
        except ValueError:
            raise BadQuery(f"no tracks {text[:80]!r}", hint="give numbers and ranges as 0-5,9, or paths", field="tracks") from None
        if not 0 <= low <= high < len(shown.tracks):
            raise BadQuery(f"no tracks {part[:40]}", hint=f"there are tracks 0 to {len(shown.tracks) - 1}", field="tracks")
        out += range(low, high + 1)
    return out
