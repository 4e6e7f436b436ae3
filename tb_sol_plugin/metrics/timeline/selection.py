"""Adds up what lies in an area of the timeline: a window of time on some tracks. Times are cut to the window unless asked otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import breakdown
from tb_sol_plugin.metrics.timeline.events import CATEGORIES, column_text
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.tracks import GROUPS
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables import tree
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.tables.pyramid import Items

GroupBy = Literal["name", "category", "track"]
MOST_GAPS: Final = 20


@dataclass(frozen=True)
class Selection:
    """Events of some tracks that are in `[begin, end)`, by track, lane, start; gathered when they are asked for.

    event: ids. track: of each. start, duration: whole, ns. first, last: cut to the window, or whole where `clip` is off.
    """

    timeline: Timeline
    begin: int
    end: int
    tracks: tuple[int, ...]
    clip: bool

    @cached_property
    def _parts(self) -> list[tuple[int, Items]]:
        out = []
        for track in self.tracks:
            one = self.timeline.tracks[track]
            lanes = [self._lane(lane) for lane in range(one.first_lane, one.first_lane + one.lanes)]
            out += [(track, items) for items in lanes if len(items)]
        return out

    def _lane(self, lane: int) -> Items:
        return self.timeline.pyramid.events(lane, self.begin, self.end)

    @cached_property
    def event(self) -> npt.NDArray[np.uint32]:
        return np.concatenate([np.zeros(0, np.uint32), *(items.event for _, items in self._parts)])

    @cached_property
    def start(self) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *(items.start for _, items in self._parts)])

    @cached_property
    def duration(self) -> Ints:
        return np.concatenate([np.zeros(0, np.int64), *(items.busy for _, items in self._parts)])

    @cached_property
    def track(self) -> Ints:
        return np.repeat(np.array([t for t, _ in self._parts], np.int64), [len(items) for _, items in self._parts])

    @cached_property
    def counts(self) -> dict[int, int]:
        """Events of each chosen track; those of the whole recording need no look at them."""
        arranged = self.timeline.arranged
        if self.begin <= 0 and self.end >= self.timeline.span_ns and len(arranged.order):
            ends = arranged.bounds[1:][np.diff(arranged.bounds) > 0] - 1
            if int(self.timeline.events.times(arranged.order[ends])[0].max()) < self.end:  # else one of no length at the very end
                return {t: self.timeline.tracks[t].events for t in self.tracks}
        out = dict.fromkeys(self.tracks, 0)
        for track, items in self._parts:
            out[track] += len(items)
        return out

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
            found = [self._lane(lane) for lane in range(one.first_lane, one.first_lane + one.lanes)]
            start, end = (np.concatenate([np.zeros(0, np.int64), *(getattr(items, c) for items in found)]) for c in ("start", "end"))
        return iv.union(*(np.clip(edge, self.begin, self.end) if self.clip else edge for edge in (start, end)))

    @cached_property
    def first(self) -> Ints:
        return np.maximum(self.start, self.begin) if self.clip else self.start

    @cached_property
    def last(self) -> Ints:
        end = self.start + self.duration
        return np.minimum(end, self.end) if self.clip else end

    @property
    def time(self) -> Ints:
        """Duration of each event that counts."""
        return self.last - self.first

    @cached_property
    def on_host(self) -> Mask:
        return self.event < self.timeline.events.base("device")

    # -- sums ----------------------------------------------------------------------------------------------------------

    @cached_property
    def device_layers(self) -> breakdown.Layers:
        """Unions of device time in the window by class; over all devices of the chosen tracks."""
        one = self._device
        rows = one.event - np.uint32(self.timeline.events.base("device"))
        kind = breakdown.classes(self.timeline.capture)[rows]
        first, last = one.first, one.last
        return breakdown.Layers(*(iv.union(first[kind == k], last[kind == k]) for k in range(len(breakdown.CLASSES))))

    @cached_property
    def host_busy_ns(self) -> int:
        """Time in which any chosen thread is inside an event."""
        found = [self._covered(t) for t in self.tracks if self.timeline.tracks[t].kind == "thread"]
        return iv.length(iv.union(*(np.concatenate([np.zeros(0, np.int64), *(one[k] for one in found)]) for k in (0, 1))))

    @cached_property
    def self_ns(self) -> Ints:
        """Per event its time less that of events it encloses directly, both cut if events are; of device events all of it.

        What lies in the window whole has what it encloses in it, too: only events across its edges are counted anew.
        """
        out = self.time.copy()
        rows = self.event[self.on_host].astype(np.int64)
        if not len(rows):
            return out
        capture = self.timeline.capture
        out[self.on_host] = memo(capture, ("timeline.self",), partial(_self_ns, capture))[rows]
        cut = np.flatnonzero(self.on_host & ((self.first != self.start) | (self.last != self.start + self.duration)))
        if len(cut):
            parent = capture.host["parent"].to_numpy()
            place = np.full(len(parent) + 1, -1, np.int64)  # the last for no parent
            place[self.event[cut]] = np.arange(len(cut))
            at = place[parent[rows]]
            inner = np.flatnonzero(self.on_host)[at >= 0]
            covered = np.minimum(self.last[inner], self.last[cut[at[at >= 0]]]) - self.first[inner]
            inside = np.bincount(at[at >= 0], np.maximum(covered, 0), minlength=len(cut)).astype(np.int64)
            out[cut] = np.maximum(self.time[cut] - inside, 0)
        return out

    @cached_property
    def launched_ns(self) -> Ints:
        """Per host event the device time of all that was launched inside it, anywhere in the recording; 0 of others."""
        capture = self.timeline.capture
        sums = memo(capture, ("timeline.launched",), partial(_launched, capture))
        out = np.zeros(len(self.event), np.int64)
        rows = self.event[self.on_host].astype(np.int64)
        out[self.on_host] = sums[capture.host["end"].to_numpy()[rows]] - sums[rows]
        return out

    def groups(self, by: GroupBy) -> pd.DataFrame:
        """Returns one row per name, kind of work or track: count, sums and distribution of the times."""
        names = self.timeline.events.names
        ids = self.timeline.events.name_ids(self.event)
        kind: npt.NDArray[np.uint8] = names.category[ids] if len(ids) else np.zeros(0, np.uint8)
        key = np.asarray(ids if by == "name" else kind if by == "category" else self.track, np.int64)
        number = np.bincount(key)
        groups = np.flatnonzero(number)
        count = number[groups]
        first = np.cumsum(count) - count
        ordered = _sorted_within(key, self.time)
        total = np.add.reduceat(ordered, first) if len(first) else np.zeros(0, np.int64)

        def rank(share: float) -> Ints:
            found: Ints = ordered[first + np.minimum(np.ceil(share * count).astype(np.int64), count) - 1]
            return found

        wide = len(number)
        per_kind = np.bincount(key * len(CATEGORIES) + kind, self.time + 1, minlength=wide * len(CATEGORIES)).reshape(wide, len(CATEGORIES))
        frame = pd.DataFrame(
            {
                "group": groups,
                "count": count,
                "total_ns": total,
                "self_ns": _sums(key, self.self_ns, wide)[groups],
                "mean_ns": np.round(total / np.maximum(count, 1)).astype(np.int64),
                "min_ns": ordered[first],
                "p50_ns": rank(0.5),
                "p95_ns": rank(0.95),
                "max_ns": ordered[first + count - 1],
                "device_total_ns": _sums(key, self.launched_ns, wide)[groups],
                "category": per_kind.argmax(axis=1).astype(np.uint8)[groups] if wide else kind,
            }
        )
        return frame.sort_values(["total_ns", "count"], ascending=False, kind="stable").reset_index(drop=True)

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
        of = device[one.event - np.uint32(base)]
        for number in sorted({self.timeline.tracks[t].device for t in self.tracks if self.timeline.tracks[t].kind == "stream"}):
            mine = of == number
            busy = iv.union(one.first[mine], one.last[mine])
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
    out = np.zeros(len(capture.host) + 1, np.int64)
    np.add.at(out, call[call >= 0] + 1, capture.device["duration_ns"].to_numpy()[call >= 0])
    return np.cumsum(out)


def _self_ns(capture: Capture) -> Ints:
    """Returns the time of each host event outside of those it encloses."""
    host = capture.host
    return tree.self_time(*(host[c].to_numpy() for c in ("start_ns", "duration_ns", "parent")))


def _sorted_within(key: Ints, value: Ints) -> Ints:
    """Returns the values by key, ascending within each. Values are not negative."""
    bits = int(value.max()).bit_length() if len(value) else 0
    if len(key) and int(key.max()).bit_length() + bits <= 62:  # one sort of whole numbers instead of two by places
        return np.sort(key << bits | value) & ((1 << bits) - 1)
    return value[np.lexsort((value, key))]


def _sums(place: Ints, values: Ints, count: int) -> Ints:
    out = np.zeros(count, np.int64)
    np.add.at(out, place, values)
    return out


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
