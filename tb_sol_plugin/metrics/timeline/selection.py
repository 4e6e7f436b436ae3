"""Adds up what lies in an area of the timeline: a window of time on some tracks. Times are cut to the window unless asked otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.time import breakdown
from tb_sol_plugin.metrics.timeline import kept
from tb_sol_plugin.metrics.timeline.events import CATEGORIES, TABLES, Ids, column_text
from tb_sol_plugin.metrics.timeline.links import launched_ns, pairs_of
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.tracks import GROUPS
from tb_sol_plugin.process import give_back
from tb_sol_plugin.tables import grouped, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Rows

GroupBy = Literal["name", "category", "track"]
Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""A table by column. Making a DataFrame of a few rows takes as long as adding up what is in them."""
MOST_GAPS: Final = 20
MOST_MADE: Final = 8
"""Sums of everything that are remembered: by name, kind and track, and of some choices of tracks."""
OF_KIND: Final = {"thread": "host", "stream": "device", "annotations": "annotations_device", "sync": "sync", "instants": "instants"}
"""The table whose events each kind of track holds."""
_FEW: Final = 20
"""Of fewer ids than one in so many of those between them they are sorted; of more, all of these are gone through."""


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
    known: Mapping[int, list[slice]] = field(default_factory=dict, repr=False, compare=False)
    """Of tracks whose events have been looked for in this window: where they are."""

    def _ids(self, track: int) -> Ids:
        """Returns the events of a track, by lane and start."""
        one, arranged = self.timeline.tracks[track], self.timeline.arranged
        if self._is_whole:
            return np.asarray(arranged.order[int(arranged.bounds[one.first_lane]) : int(arranged.bounds[one.first_lane + one.lanes])])
        return np.concatenate([np.zeros(0, np.uint32), *(arranged.order[part] for part in self._positions[track])])

    @cached_property
    def _positions(self) -> dict[int, list[slice]]:
        """Where the events of each track are, one range per lane that has any."""
        out = {t: self.known[t] for t in self.tracks if t in self.known}
        tracks = [t for t in self.tracks if t not in out]
        shown = [self.timeline.tracks[t] for t in tracks]
        lanes = np.concatenate([np.zeros(0, np.int64), *(np.arange(t.first_lane, t.first_lane + t.lanes) for t in shown)])
        found = zip(*(edge.tolist() for edge in self.timeline.positions(lanes, self.begin, self.end)), strict=True)
        for track, one in zip(tracks, shown, strict=True):
            out[track] = [slice(a, b) for a, b in islice(found, one.lanes) if a < b]
        return out

    @cached_property
    def _is_whole(self) -> bool:
        """Whether every event of the recording is in the window."""
        arranged = self.timeline.arranged
        if not (self.begin <= 0 and self.end >= self.timeline.span_ns and len(arranged.order)):
            return False
        ends = arranged.bounds[1:][np.diff(arranged.bounds) > 0] - 1
        return int(self.timeline.events.times(arranged.order[ends])[0].max()) < self.end  # else one of no length stands at the very end

    @cached_property
    def event(self) -> Ints:
        """The events' ids, ascending."""
        if self._is_whole and (every := self._whole_tables()) is not None:
            return every
        runs: list[list[Ints]] = []
        last = -1
        for ids in sorted((_ascending(ids) for ids in map(self._ids, self.tracks) if len(ids)), key=lambda ids: int(ids[0])):
            if ids[0] > last:  # threads follow each other in their table, streams mingle in theirs
                runs.append([])
            runs[-1].append(ids)
            last = max(last, int(ids[-1]))
        return np.concatenate([np.zeros(0, np.int64), *(run[0] if len(run) == 1 else _ascending(np.concatenate(run)) for run in runs)])

    def _whole_tables(self) -> Ints | None:
        """Returns the ids of all events of the chosen tracks' tables, ascending; None where a track of these is not chosen."""
        events, chosen = self.timeline.events, dict.fromkeys(TABLES, 0)
        for track, count in self.counts.items():
            chosen[OF_KIND[self.timeline.tracks[track].kind]] += count
        if any(count not in (0, rows) for count, rows in zip(chosen.values(), events.counts, strict=True)):
            return None
        parts = [np.arange(events.base(name), events.base(name) + count) for name, count in chosen.items()]
        return np.concatenate(parts).astype(np.int64, copy=False)

    @cached_property
    def _track_of(self) -> Rows:
        """The track of each event."""
        track = np.zeros(len(self.timeline.events), np.int32)
        for one in self.tracks:
            track[self._ids(one)] = one
        return track[self.event]

    @cached_property
    def counts(self) -> dict[int, int]:
        """Events of each chosen track."""
        if self._is_whole:
            return {t: self.timeline.tracks[t].events for t in self.tracks}
        return {t: sum(part.stop - part.start for part in parts) for t, parts in self._positions.items()}

    @property
    def has_host(self) -> bool:
        """Whether an event of a thread is in it."""
        return any(count and self.timeline.tracks[t].kind == "thread" for t, count in self.counts.items())

    @cached_property
    def _device(self) -> Selection:
        """The chosen streams alone: without the host's events, of which there are many more."""
        streams = tuple(t for t in self.tracks if self.timeline.tracks[t].kind == "stream")
        return replace(self, tracks=streams, known={} if self._is_whole else {t: self._positions[t] for t in streams})

    def _covered(self, track: int) -> iv.Spans:
        """Returns the time in which a track is busy. What nests inside of host events adds nothing to their outermost ones."""
        one = self.timeline.tracks[track]
        if one.kind == "thread":
            of, start, end = self.timeline.outermost
            mine = (of == track) & (start < self.end) & (end > self.begin)
            start, end = start[mine], end[mine]
        else:
            start, duration = self.timeline.events.times(self._ids(track))
            end = start + duration
        return iv.union(*(np.clip(edge, self.begin, self.end) if self.clip else edge for edge in (start, end)))

    @cached_property
    def _spans(self) -> tuple[Ints, Ints]:
        """Begins and ends of the events as they count."""
        start, duration = self.timeline.events.times(self.event.astype(np.uint32))
        end = start + duration
        return (np.maximum(start, self.begin), np.minimum(end, self.end)) if self.clip else (start, end)

    # -- sums ----------------------------------------------------------------------------------------------------------

    @cached_property
    def device_layers(self) -> breakdown.Layers:
        """Unions of device time in the window by class; over all devices of the chosen tracks."""
        one = self._device
        kind = breakdown.classes(self.timeline.capture)[one.event - self.timeline.events.base("device")]
        first, last = one._spans
        return breakdown.Layers(*(iv.union(first[kind == k], last[kind == k]) for k in range(len(breakdown.CLASSES))))

    @cached_property
    def host_busy_ns(self) -> int:
        """Time in which any chosen thread is inside an event."""
        found = [self._covered(t) for t in self.tracks if self.timeline.tracks[t].kind == "thread"]
        return iv.length(iv.union(*(np.concatenate([np.zeros(0, np.int64), *(one[k] for one in found)]) for k in (0, 1))))

    def groups(self, by: GroupBy) -> Columns:
        """Returns one row per name, kind of work or track: count, sums and distribution of the times. Those of everything are made once."""
        if not self._is_whole:
            return self._groups(by)
        made = self.timeline.made
        key = ("groups", by, self.tracks, self.clip)
        found = made.get(key)
        if found is None:
            if len(made) >= MOST_MADE:
                made.clear()
            found = made[key] = self._kept_groups(by) or self._groups(by)
            for column in found.values():
                column.flags.writeable = False
        return found

    def _kept_groups(self, by: GroupBy) -> Columns | None:
        """Returns what everything adds up to as it was kept beside the recording; None for another choice, or where it was not."""
        is_kept = by == "name" and self.clip and self.tracks == tuple(everything(self.timeline))
        return self.timeline.part(kept.SUMS) if is_kept else None

    def _groups(self, by: GroupBy) -> Columns:
        events = self.timeline.events
        names = events.names
        wide = {"name": len(names.text), "category": len(CATEGORIES), "track": len(self.timeline.tracks)}[by]
        begin, end = (self.begin, self.end) if self.clip else (-grouped.EVER, grouped.EVER)
        sums, keys, times = grouped.Sums(wide), [np.zeros(0, np.int32)], [np.zeros(0, np.int64)]
        kinds = np.zeros(wide * len(CATEGORIES), np.float64)
        edges = np.searchsorted(self.event, events.bases)
        for table, low, high in zip(TABLES, edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            if low == high:
                continue
            rows = self.event[low:high] - events.base(table)
            ids = events.name_ids_of(table, rows)
            key = ids if by == "name" else names.category[ids].astype(np.int32) if by == "category" else self._track_of[low:high]
            of = self._times(table)
            time = sums.add(rows, key, of, begin, end)
            if by == "track":
                kinds += np.bincount(key * len(CATEGORIES) + names.category[ids], time + 1, minlength=len(kinds))
            keys, times = [*keys, key], [*times, time]
        p50, p95 = grouped.quantiles(np.concatenate(keys), np.concatenate(times), sums.count, (0.5, 0.95))
        groups = np.flatnonzero(sums.count)
        groups = groups[np.lexsort((-sums.count[groups], -sums.total[groups]))]
        count, total = sums.count[groups], sums.total[groups]
        category = names.category if by == "name" else np.arange(wide) if by == "category" else kinds.reshape(wide, -1).argmax(axis=1)
        return {
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
        busy = [iv.length(self._covered(track)) for track in self.tracks]
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

    def gaps(self) -> dict[str, list[Any]]:
        """Returns the longest stretches of the window in which no chosen stream of a device is busy, and what the host does meanwhile.

        A row each, by column, the longest first; "" where no host event is over it.
        """
        found: list[tuple[int, Ints, Ints]] = []
        device = self.timeline.capture.device["device"].to_numpy()
        base = self.timeline.events.base("device")
        one = self._device
        of = device[one.event - base]
        first, last = one._spans
        for number in sorted({self.timeline.tracks[t].device for t in self.tracks if self.timeline.tracks[t].kind == "stream"}):
            mine = of == number
            busy = iv.union(first[mine], last[mine])
            found.append((number, *iv.gaps(iv.clip(busy, self.begin, self.end), self.begin, self.end)))
        start, end = (np.concatenate([np.zeros(0, np.int64), *(spans[k] for spans in found)]) for k in (1, 2))
        number_of = np.repeat(np.array([spans[0] for spans in found], np.int64), [len(spans[1]) for spans in found])
        best = np.lexsort((start, start - end))[:MOST_GAPS]
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
        out = [("", "")] * len(times)
        for track in (t for t in self.timeline.tracks if t.kind == "thread" and t.launches):
            own = thread[arranged.order[int(arranged.bounds[track.first_lane])]]
            first, last = (int(i) for i in np.searchsorted(thread, np.array([own, own + 1], thread.dtype)))
            rows = np.searchsorted(start[first:last], times, "right") - 1
            for place, (row, time) in enumerate(zip(rows.tolist(), times.tolist(), strict=True)):
                row = row + first if row >= 0 else -1
                while row >= 0 and start[row] + duration[row] <= time:
                    row = int(parent[row])
                if row >= 0 and not out[place][1]:
                    out[place] = (column_text(host, "name", row), track.label)
        return out

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


def _ascending(ids: npt.NDArray[np.integer]) -> Ints:
    """Returns distinct ids, at least one, in order."""
    low, high = int(ids.min()), int(ids.max())
    if high - low > _FEW * len(ids):
        return np.sort(ids, kind="stable").astype(np.int64)
    there = np.zeros(high - low + 1, np.bool_)
    there[ids - ids.dtype.type(low)] = True
    found = np.flatnonzero(there)
    found += low
    return found


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
    sums = chosen._groups("name") if len(timeline.events) else {}
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
