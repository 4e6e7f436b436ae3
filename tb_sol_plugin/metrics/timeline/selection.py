"""Adds up what lies in an area of the timeline: a window of time on some tracks. Times are cut to the window unless asked otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import breakdown
from tb_sol_plugin.metrics.timeline.events import CATEGORIES, TABLES, Ids, column_text
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.tracks import GROUPS
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import grouped, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Rows

GroupBy = Literal["name", "category", "track"]
MOST_GAPS: Final = 20


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

    def _ids(self, track: int) -> Ids:
        """Returns the events of a track, by lane and start."""
        one, arranged = self.timeline.tracks[track], self.timeline.arranged
        if self._is_whole:
            return np.asarray(arranged.order[int(arranged.bounds[one.first_lane]) : int(arranged.bounds[one.first_lane + one.lanes])])
        return np.concatenate([np.zeros(0, np.uint32), *(arranged.order[part] for part in self._positions(track))])

    def _positions(self, track: int) -> list[slice]:
        """Returns where the events of a track are, one range per lane that has any."""
        one, pyramid = self.timeline.tracks[track], self.timeline.pyramid
        found = (pyramid.positions(lane, self.begin, self.end) for lane in range(one.first_lane, one.first_lane + one.lanes))
        return [part for part in found if part.start < part.stop]

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
        chosen = np.zeros(len(self.timeline.events), np.bool_)
        for track in self.tracks:
            chosen[self._ids(track)] = True
        return np.flatnonzero(chosen)

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
        return {t: self.timeline.tracks[t].events if self._is_whole else len(self._ids(t)) for t in self.tracks}

    @property
    def has_host(self) -> bool:
        """Whether an event of a thread is in it."""
        return any(count and self.timeline.tracks[t].kind == "thread" for t, count in self.counts.items())

    @cached_property
    def _device(self) -> Selection:
        """The chosen streams alone: without the host's events, of which there are many more."""
        return replace(self, tracks=tuple(t for t in self.tracks if self.timeline.tracks[t].kind == "stream"))

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

    def groups(self, by: GroupBy) -> pd.DataFrame:
        """Returns one row per name, kind of work or track: count, sums and distribution of the times."""
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
            if table == "host" and self.clip and not self._is_whole:
                self._cut(sums.own, rows, key, of)
            if by == "track":
                kinds += np.bincount(key * len(CATEGORIES) + names.category[ids], time + 1, minlength=len(kinds))
            keys, times = [*keys, key], [*times, time]
        p50, p95 = grouped.quantiles(np.concatenate(keys), np.concatenate(times), sums.count, (0.5, 0.95))
        groups = np.flatnonzero(sums.count)
        count, total = sums.count[groups], sums.total[groups]
        category = names.category if by == "name" else np.arange(wide) if by == "category" else kinds.reshape(wide, -1).argmax(axis=1)
        frame = pd.DataFrame(
            {
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
        )
        return frame.sort_values(["total_ns", "count"], ascending=False, kind="stable").reset_index(drop=True)

    def _times(self, table: str) -> grouped.Times:
        """Returns the times of a table's rows; of host events also those outside of what they enclose, and what was launched inside."""
        capture, none = self.timeline.capture, np.zeros(0, np.int64)
        start, duration = self.timeline.events.columns(table)
        if table != "host":
            return grouped.Times(start, duration, none, none, none.astype(np.int32))
        own = memo(capture, ("timeline.self",), partial(_self_ns, capture))
        launched = memo(capture, ("timeline.launched",), partial(_launched, capture))
        return grouped.Times(start, duration, own, launched, capture.host["end"].to_numpy())

    def _cut(self, sums: Ints, rows: Ints, key: Rows, of: grouped.Times) -> None:
        """Puts right the sums of own time, where the window cuts a host event: the first or the last one of a lane.

        What lies in the window whole has what it encloses in it, too.
        """
        order, threads = self.timeline.arranged.order, [t for t in self.tracks if self.timeline.tracks[t].kind == "thread"]
        ends = {order[at] for t in threads for part in self._positions(t) for at in (part.start, part.stop - 1)}
        cut = np.array(sorted(ends), np.int64) - self.timeline.events.base("host")
        first, last = of.start[cut], of.start[cut] + of.duration[cut]
        cut = cut[(first < self.begin) | (last > self.end)]
        if not len(cut):
            return
        parent = self.timeline.capture.host["parent"].to_numpy()
        is_cut = np.zeros(len(parent) + 1, np.bool_)  # the last for no parent
        is_cut[cut] = True
        inner = rows[is_cut[parent[rows]]]
        at, above = np.searchsorted(cut, parent[inner]), parent[inner]

        def begins(events: Ints) -> Ints:
            return np.maximum(of.start[events], self.begin)

        def ends_at(events: Ints) -> Ints:
            ends: Ints = of.start[events] + of.duration[events]
            return np.minimum(ends, self.end)

        covered = np.maximum(np.minimum(ends_at(inner), ends_at(above)) - begins(inner), 0)
        own = ends_at(cut) - begins(cut) - np.bincount(at, covered, minlength=len(cut)).astype(np.int64)
        np.add.at(sums, key[np.searchsorted(rows, cut)], np.maximum(own, 0) - of.own[cut])

    def busy(self) -> pd.DataFrame:
        """Returns one row per chosen track: events, union of their time, its share of the window."""
        rows = []
        for track in self.tracks:
            busy = iv.length(self._covered(track))
            one = self.timeline.tracks[track]
            rows.append((track, one.path, one.kind, self.counts[track], busy, busy / max(self.end - self.begin, 1)))
        return pd.DataFrame(rows, columns=["track", "path", "kind", "events", "busy_ns", "busy_share"])

    def gaps(self) -> pd.DataFrame:
        """Returns the longest stretches of the window in which no chosen stream of a device is busy, and what the host does meanwhile."""
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
        gaps = zip(number_of[best].tolist(), start[best].tolist(), end[best].tolist(), strict=True)
        rows = [(d, a, b - a, *self._host_over((a + b) // 2)) for d, a, b in gaps]
        return pd.DataFrame(rows, columns=["device", "start_ns", "duration_ns", "host_event", "host_thread"])

    def _host_over(self, time: int) -> tuple[str, str]:
        """Returns the innermost host event at a time, and its thread, of the threads that launch most; "" where none is inside an event."""
        pyramid = self.timeline.pyramid
        for track in (t for t in self.timeline.tracks if t.kind == "thread" and t.launches):
            best = -1
            for lane in range(track.first_lane, track.first_lane + track.lanes):
                inside = pyramid.events(lane, time, time + 1)
                best = int(inside.event[0]) if len(inside) else best
            if best >= 0:
                return column_text(self.timeline.capture.host, "name", best), track.label
        return "", ""

    def counters(self) -> pd.DataFrame:
        """Returns one row per counter: first, last, lowest and highest value in the window."""
        rows = []
        for one in self.timeline.series:
            low, high = (int(i) for i in np.searchsorted(one.time_ns, (self.begin, self.end), "left"))
            value = one.value[max(low - 1, 0) : high]
            if len(value):
                where = f"GPU {one.device}" if one.device >= 0 else ""
                label = f"{where} {one.label}".strip()
                rows.append((label, one.unit, *(float(x) for x in (value[0], value[-1], value.min(), value.max()))))
        frame = pd.DataFrame(rows, columns=["counter", "unit", "first", "last", "min", "max"])
        return frame.assign(delta=frame["last"] - frame["first"])


def select(timeline: Timeline, begin: int, end: int, tracks: Sequence[int], *, clip: bool = True) -> Selection:
    """Returns the events of some tracks in `[begin, end)`; of a group those of all tracks inside it."""
    chosen = tuple(dict.fromkeys(t for track in tracks for t in timeline.below(track)))
    return Selection(timeline, begin, end, chosen, clip)


def everything(timeline: Timeline) -> list[int]:
    """Returns all tracks of streams and threads: what a selection takes where no track is named."""
    return [i for i, t in enumerate(timeline.tracks) if t.kind in ("stream", "thread") and t.kind not in GROUPS]


def _launched(capture: Capture) -> Ints:
    call = capture.device["call"].to_numpy()
    duration = capture.device["duration_ns"].to_numpy()
    rows = np.flatnonzero(call >= 0)
    out = np.zeros(len(capture.host) + 1, np.int64)
    np.add.at(out, call[rows] + 1, duration[rows])
    return np.cumsum(out, out=out)


def _self_ns(capture: Capture) -> Ints:
    """Returns the time of each host event outside of those it encloses."""
    host = capture.host
    return tree.self_time(*(host[c].to_numpy() for c in ("start_ns", "duration_ns", "parent")))


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
