"""Arranges the events of a recording in tracks and lanes: threads by process, streams, ranges and synchronization by device, instants."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.time.attribution import captured_rows
from tb_sol_plugin.metrics.time.breakdown import CLASSES, classes, device_word
from tb_sol_plugin.metrics.timeline.events import Events, Ids
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.lanes import lanes
from tb_sol_plugin.tables.tree import preorder
from tb_sol_plugin.units import capitalized

Kind = Literal["worker", "process", "device", "thread", "stream", "annotations", "sync", "instants", "counter"]
GROUPS: Final = ("worker", "process", "device")
"""Kinds that hold other tracks; of them a summary is shown."""
_AUTOGRAD: Final = "autograd::engine::"
_FEW_STREAMS: Final = 8
LONGEST_LABEL: Final = 200
"""Characters of the label of a row."""
_WORDS: Final = {"computation": "compute", "communication": "communication", "memcpy": "copies"}


@dataclass
class Track:
    """A group of rows of the timeline. lanes: of its events, from `first_lane` on among those of the recording; 0 of a group.

    path: where it is, stable over recordings of one job. parent: place among the tracks, -1 for none. detail: a second, quieter label.
    launches: device events that this thread launched. open: shown at first. category: index into CATEGORIES of most of its time, or -1.
    series: of a counter, its place among the recording's counters.
    """

    kind: Kind
    label: str
    path: str
    parent: int = -1
    detail: str = ""
    pid: str = ""
    tid: str = ""
    device: int = -1
    stream: int = -1
    first_lane: int = 0
    lanes: int = 0
    events: int = 0
    first_ns: int = 0
    last_ns: int = 0
    launches: int = 0
    category: int = -1
    open: bool = True
    series: int = -1
    unit: str = ""
    low: float | None = None
    high: float | None = None
    children: list[int] = field(default_factory=list)


class Arranged:
    """Tracks, parents first, and the events in lanes. order: event ids by lane, then start; lane i has `order[bounds[i]:bounds[i + 1]]`.

    It is taken, where a function is given for it, when it is asked for.
    """

    def __init__(self, tracks: list[Track], order: Ids | Callable[[], Ids], bounds: Ints) -> None:
        self.tracks = tracks
        self.bounds = bounds
        self._order = order

    @property
    def order(self) -> Ids:
        if callable(self._order):
            self._order = self._order()
        return self._order


@dataclass(frozen=True)
class _Part:
    """Events of one table in groups (threads, streams; -1 none) and lanes. rows: by group, then lane, then start.

    group, lane, count: of each lane that has any, in this order, and how many events it has.
    """

    rows: Ints
    group: Ints
    lane: Ints
    count: Ints

    def of(self, group: int) -> tuple[Ints, Ints]:
        """Returns the rows of a group, and how many each of its lanes has."""
        low, high = (int(i) for i in np.searchsorted(self.group, (group, group + 1)))
        begin, size = int(self.ends[low]), int(self.ends[high] - self.ends[low])
        return self.rows[begin : begin + size], np.bincount(self.lane[low:high], self.count[low:high]).astype(np.int64)

    @cached_property
    def ends(self) -> Ints:
        """Rows before each lane, and all of them."""
        return np.concatenate(([0], np.cumsum(self.count))).astype(np.int64)

    def sizes(self, groups: int) -> Ints:
        """Returns how many events each group has; those of none are left out."""
        some = self.group >= 0
        return np.bincount(self.group[some], self.count[some], minlength=groups).astype(np.int64)

    @property
    def has_none(self) -> bool:
        """Whether events belong to no group."""
        return bool(len(self.group)) and int(self.group[0]) < 0


@dataclass(frozen=True)
class _Thread:
    """A host thread. row: of `threads`. launches: device events that it launched. autograd: it runs the backward pass."""

    row: int
    pid: str
    tid: str
    process: str
    name: str
    events: int
    instants: int
    launches: int
    autograd: bool


def arrange(capture: Capture, events: Events) -> Arranged:
    """Returns the tracks of a recording and which events are in which lane. Every event of a table of events is in exactly one lane."""
    return _Builder(capture, events).made()


def compacted(events: Events, base: Sequence[Track], order: Ids, bounds: Ints) -> Arranged:
    """Returns an arrangement with all streams of a device as one track, its events on as few lanes as there can be.

    base: tracks without counters; order, bounds: as in `Arranged`. Eight lanes suffice unless more events really run at one time.
    """
    tracks: list[Track] = []
    places: dict[int, int] = {}
    parts: list[Ids] = []
    counts: list[Ints] = []
    for at, one in enumerate(base):
        mine = [i for i in base[one.parent].children if base[i].kind == "stream"] if one.kind == "stream" else [at]
        if at != mine[0]:
            continue
        low, high = base[mine[0]].first_lane, base[mine[-1]].first_lane + base[mine[-1]].lanes
        ids, count = np.asarray(order[int(bounds[low]) : int(bounds[high])]), np.diff(bounds[low : high + 1])
        track = replace(one, children=[], parent=places.get(one.parent, -1), first_lane=sum(map(len, counts)), lanes=len(count))
        if len(mine) > 1:
            ids, count = _packed(events, ids)
            rest = {
                "label": f"{len(mine)} streams", "path": f"{base[one.parent].path}/streams", "detail": "", "stream": -1, "category": -1,
                "lanes": len(count), "events": len(ids), "first_ns": min(base[i].first_ns for i in mine),
                "last_ns": max(base[i].last_ns for i in mine), "launches": sum(base[i].launches for i in mine),
            }  # fmt: skip
            track = replace(track, **rest)  # type: ignore[arg-type]
        places[at] = len(tracks)
        if track.parent >= 0:
            tracks[track.parent].children.append(len(tracks))
        tracks.append(track)
        parts.append(ids)
        counts.append(count)
    return Arranged(tracks, np.concatenate(parts), np.concatenate(([0], np.cumsum(np.concatenate(counts)))).astype(np.int64))


def _packed(events: Events, ids: Ids) -> tuple[Ids, Ints]:
    """Returns events by lane and start, and how many are in each lane."""
    start, duration = events.times(ids)
    rows = np.lexsort((-duration, start))
    lane = lanes(np.zeros(len(ids), np.int32), start[rows], (start + duration)[rows], "packed")
    return ids[rows][np.argsort(lane, kind="stable")], np.bincount(lane)


def root_of(capture: Capture) -> str:
    """Returns the label of the track that holds all others: the worker."""
    return capture.worker or (f"rank {capture.facts.rank}" if capture.facts.rank is not None else "worker")


class _Builder:
    def __init__(self, capture: Capture, events: Events) -> None:
        self.capture, self.events = capture, events
        self.root = root_of(capture)
        self.tracks: list[Track] = []
        self.order: list[Ids] = []
        self.counts: list[Ints] = []
        self.lanes = 0
        self.names: dict[str, int] = {}

    def made(self) -> Arranged:
        root = self._add(Track("worker", self.root, self.root))
        self._devices(root)
        self._processes(root)
        counts = np.concatenate(self.counts) if self.counts else np.zeros(0, np.int64)
        bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        order = np.concatenate(self.order) if self.order else np.zeros(0, np.uint32)
        return Arranged(self.tracks, order, bounds)

    # -- groups --------------------------------------------------------------------------------------------------------

    def _devices(self, root: int) -> None:
        device = self.capture.device
        parts = {
            "stream": self._by_stream("device", device["device"].to_numpy(), device["stream"].to_numpy()),
            "annotations": self._by_stream("annotations_device"),
            "sync": self._by_stream("sync"),
        }
        ids = sorted({d for found, _ in parts.values() for d, _ in found}, key=lambda d: (d < 0, d))
        kind = classes(self.capture)
        models = {d.id: d.name for d in reversed(self.capture.facts.devices)}
        streams: dict[tuple[str, int], list[tuple[int, int]]] = {}
        for name, (found, _) in parts.items():
            for place, (device_id, stream) in enumerate(found):
                streams.setdefault((name, device_id), []).append((place, stream))
        for number in ids:
            word = device_word(self.capture)
            label = f"{capitalized(word)} {number if number >= 0 else 'not recorded'}"
            group = self._add(Track("device", label, self._path(root, label), root, detail=models.get(number, ""), device=number))
            for name, what in (("annotations", "ranges"), ("stream", ""), ("sync", "synchronization")):
                _, part = parts[name]
                for place, stream in streams.get((name, number), ()):
                    text = f"stream {stream}" if stream >= 0 else "no stream"
                    track = Track(
                        name, text if not what else f"{text} {what}", "", group, device=number, stream=stream,  # type: ignore[arg-type]
                        open=name == "stream",
                    )  # fmt: skip
                    rows, _ = part.of(place)
                    if name == "stream":
                        track.detail, track.category = self._work(kind[rows], device["duration_ns"].to_numpy()[rows])
                    self._add(track, part, place, {"annotations": "annotations_device", "stream": "device"}.get(name, name))

    def _processes(self, root: int) -> None:
        part, marks = self._host_lanes(), self._instants()
        threads = self._threads(part, marks)
        main = next((t.row for t in threads if not t.autograd), -1)
        by_process: dict[str, list[_Thread]] = {}
        for t in threads:
            by_process.setdefault(t.pid, []).append(t)
        for pid, mine in by_process.items():
            numbered = pid.removeprefix("-").isdigit()
            label = next((t.process for t in mine if t.process), "") or ("process" if numbered else pid or "no process")
            group = self._add(
                Track(
                    "process", label, self._path(root, f"{label} {pid}".strip()), root, detail=f"pid {pid}" if numbered else "",
                    pid=pid, open=any(t.launches or t.row == main for t in mine),
                )
            )  # fmt: skip
            for t in mine:
                self._add_thread(group, t, t.row == main, part, marks)
        if part.has_none or marks.has_none:
            group = self._add(Track("process", "no thread", self._path(root, "no thread"), root, open=False))
            if part.has_none:
                self._add(Track("thread", "events of no thread", "", group, open=False), part, -1, "host")
            if marks.has_none:
                self._add(Track("instants", "instants of no thread", "", group, open=False), marks, -1, "instants")

    def _add_thread(self, group: int, t: _Thread, main: bool, part: _Part, marks: _Part) -> None:
        own = f"thread {t.tid}" if t.tid.removeprefix("-").isdigit() else t.tid or "no thread"
        label = "autograd" if t.autograd else "main" if main else _plain(t.name, t.tid) or own
        if t.events:
            track = Track(
                "thread", label, self._path(group, f"thread {t.tid}"), group, detail=f"thread {t.tid}", pid=t.pid, tid=t.tid,
                launches=t.launches, open=bool(t.launches) or main,
            )  # fmt: skip
            self._add(track, part, t.row, "host")
        if t.instants:
            self._add(Track("instants", f"{label} instants", "", group, pid=t.pid, tid=t.tid, open=False), marks, t.row, "instants")

    def _threads(self, part: _Part, marks: _Part) -> list[_Thread]:
        """Returns the threads that have events, those that launched most device work first, then those with most events."""
        table = self.capture.tables["threads"]
        count = len(table)
        thread, call = self.capture.host["thread"].to_numpy(), self.capture.device["call"].to_numpy()
        launches = np.bincount(thread[call[call >= 0]], minlength=count)
        events, instants = part.sizes(count), marks.sizes(count)
        autograd = self._autograd(thread, count)
        rows = np.arange(count)
        columns = (arrays.pick(table[c], rows).tolist() for c in ("process", "thread", "process_name", "thread_name"))
        out = [
            _Thread(i, pid, tid, process, name, int(events[i]), int(instants[i]), int(launches[i]), bool(autograd[i]))
            for i, (pid, tid, process, name) in enumerate(zip(*columns, strict=True))
            if events[i] or instants[i]
        ]
        return sorted(out, key=lambda t: (-t.launches, -t.events, t.row))

    def _instants(self) -> _Part:
        """Returns the instants by thread and time; samples of counters are none."""
        table = self.capture.tables["instants"]
        rows = np.flatnonzero(~arrays.where(table["phase"], lambda phase: phase == "C")) if len(table) else np.zeros(0, np.int64)
        thread = table["thread"].to_numpy()
        rows = rows[np.lexsort((table["time_ns"].to_numpy()[rows], thread[rows]))]
        return _sorted(rows, thread[rows], np.zeros(len(rows), np.int32))

    def _autograd(self, thread: Rows, count: int) -> npt.NDArray[np.bool_]:
        """Returns which threads run the backward pass: half of their root operators are those of its engine."""
        host = self.capture.host
        roots = np.flatnonzero(host["parent"].to_numpy() < 0)
        engine = arrays.per_text(host["name"], roots, lambda name: name.startswith(_AUTOGRAD))
        at = np.maximum(thread[roots], 0)
        found: npt.NDArray[np.bool_] = np.bincount(at, engine, minlength=count) * 2 > np.bincount(at, minlength=count)
        return found

    # -- lanes ---------------------------------------------------------------------------------------------------------

    def _host_lanes(self) -> _Part:
        """Returns host events by thread and lane: the depth in the tree; where events overlap in part, the first free lane.

        Rows from the capture of a graph take no time: they share the lane below the call that launched it, however deep they nest.
        """
        host = self.capture.host
        thread, start = host["thread"].to_numpy(), host["start_ns"].to_numpy()
        end = start + host["duration_ns"].to_numpy()
        lane = host["depth"].to_numpy()
        captured = captured_rows(self.capture)
        if len(captured):
            launches = self.capture.tables["graph_launches"]
            lane = lane.copy()
            lane[captured] = np.repeat(lane[launches["host"].to_numpy()] + 1, launches["rows"].to_numpy())
        if host["clipped"].to_numpy().any():
            lane = lane.copy() if not len(captured) else lane
            odd = np.zeros(int(thread.max()) + 2, np.bool_)
            odd[thread[host["clipped"].to_numpy()]] = True
            rows = np.flatnonzero(odd[thread])
            lane[rows] = lanes(thread[rows], start[rows], end[rows], "spanning")
        return _sorted(None, thread, lane)

    def _by_stream(self, name: str, device: Ints | None = None, stream: Ints | None = None) -> tuple[list[tuple[int, int]], _Part]:
        """Returns the streams of a table as (device, stream), ascending, and its rows in lanes by them."""
        table = self.capture.tables[name]
        device = table["device"].to_numpy() if device is None else device
        stream = table["stream"].to_numpy() if stream is None else stream
        if not len(table):
            none = np.zeros(0, np.int32)
            return [], _sorted(None, none, none)
        code, first = arrays.factorize([device, stream])
        places = np.lexsort((stream[first], device[first]))
        rank = np.empty(len(places), np.int32)
        rank[places] = np.arange(len(places), dtype=np.int32)
        group = rank[code]
        start = table["start_ns"].to_numpy()
        end = start + table["duration_ns"].to_numpy()
        rows = preorder(group, start, end, np.zeros(len(start), np.int8))
        lane = lanes(group[rows], start[rows], end[rows])
        found = [(int(device[i]), int(stream[i])) for i in first[places].tolist()]
        return found, _sorted(rows, group[rows], lane)

    def _work(self, kind: npt.NDArray[np.int8], duration: Ints) -> tuple[str, int]:
        """Returns a word for what a stream does and the category of most of its time."""
        time = np.bincount(kind, np.maximum(duration, 1), minlength=len(CLASSES))
        most = int(time.argmax())
        return (_WORDS[CLASSES[most]] if time[most] >= 0.9 * time.sum() else "mixed"), most

    # -- tracks --------------------------------------------------------------------------------------------------------

    def _path(self, parent: int, label: str) -> str:
        return f"{self.tracks[parent].path}/{short_label(label)}"

    def _add(self, track: Track, part: _Part | None = None, place: int = 0, table: str = "") -> int:
        """Append a track, with the events of a group where one is given, and count it into those above it. Returns its place."""
        track.label, track.detail = short_label(track.label), short_label(track.detail)
        track.path = track.path or self._path(track.parent, track.label)
        again = self.names[track.path] = self.names.get(track.path, 0) + 1
        if again > 1:
            track.path += f" ({again})"
        at = len(self.tracks)
        self.tracks.append(track)
        if track.parent >= 0:
            self.tracks[track.parent].children.append(at)
        if part is None:
            return at
        rows, counts = part.of(place)
        ids = rows.astype(np.uint32) + np.uint32(self.events.base(table))
        self.order.append(ids)
        self.counts.append(counts)
        track.first_lane, track.lanes, track.events = self.lanes, len(counts), len(ids)
        self.lanes += len(counts)
        if len(ids):
            track.first_ns, track.last_ns = self.events.extent(ids)
        above, empty = track.parent, not len(ids)
        while above >= 0 and not empty:
            one = self.tracks[above]
            one.first_ns = track.first_ns if not one.events else min(one.first_ns, track.first_ns)
            one.last_ns = track.last_ns if not one.events else max(one.last_ns, track.last_ns)
            one.events += track.events
            one.launches += track.launches
            above = one.parent
        return at


def _sorted(rows: Ints | None, group: Rows, lane: Rows) -> _Part:
    """Returns events by group and lane, else in order. rows: None for all of a table."""
    if not len(lane):
        none = np.zeros(0, np.int64)
        return _Part(none, none, none, none)
    wide = int(lane.max()) + 1
    short = wide * (int(group.max()) + 2) <= 2**16
    kind = np.uint16 if short else np.int64  # a stable sort of short integers takes linear time
    key: npt.NDArray[Any] = (group + group.dtype.type(1)).astype(kind)
    key = key * kind(wide) + lane.astype(kind)
    order = np.argsort(key, kind="stable")
    if short:
        counts = np.bincount(key)
        there = np.flatnonzero(counts)
        counts = counts[there]
    else:
        there, counts = np.unique(key, return_counts=True)
    return _Part(order if rows is None else rows[order], there // wide - 1, there % wide, counts)


def short_label(label: str) -> str:
    """Returns a label without its middle where it is longer than any row shows."""
    return label if len(label) <= LONGEST_LABEL else f"{label[: LONGEST_LABEL - 60]}…{label[-59:]}"


def _plain(name: str, tid: str) -> str:
    """Returns the name of a thread where it says more than its number; kineto writes `thread 123 (name)`."""
    inner = re.fullmatch(r"thread -?\d+ \((.*)\)", name)
    name = inner[1] if inner else name
    return "" if name in (tid, f"thread {tid}") else name

