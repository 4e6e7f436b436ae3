"""Writes a window of the timeline as Trace Event JSON: for Perfetto and other viewers, and to be read again.

Events keep their names, times, threads, streams and the arguments that are read from recordings; links between launches and device work
are those of the recording. What overlaps the window is written whole, unless it is to be cut.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
from isal import igzip

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.time.attribution import captured_rows
from tb_sol_plugin.metrics.timeline.counters import values_of
from tb_sol_plugin.metrics.timeline.events import Ids
from tb_sol_plugin.metrics.timeline.export_columns import (
    COLLECTIVE,
    COLLECTIVE_NUMBERS,
    DEVICE_NUMBERS,
    DEVICE_RATES,
    MEMORY,
    OPERATOR,
    SYNC_NUMBERS,
    Spread,
    key_of,
    texts_of,
    write_messages,
)
from tb_sol_plugin.metrics.timeline.links import KINDS, pairs_of
from tb_sol_plugin.metrics.timeline.path_export import MARK, marks_of, path_lines, trace_time
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.window import EVERYTHING, Place, Window, is_whole
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.lanes import lanes
from tb_sol_plugin.tables.lines import Lines
from tb_sol_plugin.tables.members import members_of

_BLOCK: Final = 50_000
_LINKS: Final = 10**10
"""More than a recording has links."""
_CATEGORY: Final = {"annotations_device": "gpu_user_annotation", "sync": "cuda_sync"}
_MTIA: Final = "mtia_ccp_events"


def export(timeline: Timeline, window: Window, fingerprint: str = "") -> Iterator[bytes]:
    """Yields the gzip bytes of a trace file with what overlaps a window on some tracks."""
    place = Place(offset_ns=_lead([(timeline, window, Place())]))
    return _packed(_head(timeline, window, fingerprint, place.offset_ns), [_Writer(timeline, window, place)])


def export_together(
    parts: Sequence[tuple[Timeline, Window, Place]], origin_ns: int | None, fingerprint: str = ""
) -> Iterator[bytes]:  # fmt: skip
    """Yields the gzip bytes of one trace file of several recordings, for other viewers: each is named in those of its processes.

    Windows are in the times of each recording. origin_ns: of the moved times, None unknown.
    """
    files = (timeline.capture.facts.file for timeline, _, _ in parts)
    head: dict[str, Any] = {"displayTimeUnit": "ms", "exported_from": f"{', '.join(files)} {fingerprint}".strip()}
    lead = _lead(parts)
    if origin_ns is not None:
        head["baseTimeNanoseconds"] = origin_ns - lead
    return _packed(_opened(head), [_Writer(t, window, replace(place, offset_ns=place.offset_ns + lead)) for t, window, place in parts])


def _lead(parts: Sequence[tuple[Timeline, Window, Place]]) -> int:
    """Returns ns that times of a file for other viewers are moved by: they drop marks from before the first event, at negative times."""
    firsts = (t.first_ns + place.offset_ns for one, window, place in parts if window.split_overlaps for t in one.tracks if t.events)
    return max(0, -min(firsts, default=0))


def _packed(head: str, writers: Sequence[_Writer]) -> Iterator[bytes]:
    packed = _Packer()
    yield packed.add(head.encode())
    first = True
    for writer in writers:
        for lines in writer.lines():
            if lines:
                yield packed.add(b"\n" if first else b",\n", lines)
                first = False
    yield packed.add(b"\n]}\n") + packed.end()


def _opened(head: dict[str, Any]) -> str:
    """Returns the text of a file up to its first event."""
    return json.dumps(head)[:-1] + ', "traceEvents": ['


class _Packer:
    """Compresses as it goes."""

    def __init__(self) -> None:
        self._out = io.BytesIO()
        self._gzip = igzip.GzipFile(fileobj=self._out, mode="wb", compresslevel=1, mtime=0)

    def add(self, *parts: bytes | memoryview) -> bytes:
        for data in parts:
            self._gzip.write(data)
        return self._taken()

    def end(self) -> bytes:
        self._gzip.close()
        return self._taken()

    def _taken(self) -> bytes:
        out = self._out.getvalue()
        self._out.seek(0)
        self._out.truncate()
        return out


def _head(timeline: Timeline, window: Window, fingerprint: str, lead: int) -> str:
    """Returns the text up to the first event: what the recording says of itself, and what is written of it. lead: see `_lead`."""
    facts = timeline.capture.facts
    head: dict[str, Any] = dict(facts.metadata)
    head.update({name: int(value) if is_whole(value) else value for name, value in facts.versions.items()})
    head.update({name: int(value) for name, value in facts.flags.items() if value is not None})
    head["deviceProperties"] = [
        {
            "id": d.id, "name": d.name, "totalGlobalMem": d.memory_bytes, "numSms": d.units, "warpSize": d.warp_size,
            "maxThreadsPerMultiprocessor": d.max_threads_per_unit, "regsPerBlock": d.registers_per_block,
            "sharedMemPerBlock": d.shared_memory_per_block, **_capability(d.compute_capability),
        }
        for d in facts.devices
    ]
    if facts.rank is not None:
        head["distributedInfo"] = {"rank": facts.rank, "world_size": facts.world_size, "backend": facts.backend}
    groups = timeline.capture.tables["process_groups"]
    if len(groups):
        columns = (groups[c].tolist() for c in ("name", "description", "ranks", "size"))
        head.setdefault("distributedInfo", {})["pg_config"] = [
            {"pg_name": name, "pg_desc": description, "ranks": members_of(ranks).tolist() if ranks else None, "pg_size": size}
            for name, description, ranks, size in zip(*columns, strict=True)
        ]
    if facts.absolute:
        head["baseTimeNanoseconds"] = facts.origin_ns - lead
    head["displayTimeUnit"] = "ms"
    if (window.start_ns, window.end_ns) != EVERYTHING:
        head["exported_window"] = f"{window.start_ns}-{window.end_ns} ns after the first event"
    head["exported_from"] = f"{facts.file} {fingerprint}".strip()
    return _opened(head)


def _capability(text: str | None) -> dict[str, int]:
    major, dot, minor = (text or "").partition(".")
    return {"computeMajor": int(major), "computeMinor": int(minor)} if dot and major.isdigit() and minor.isdigit() else {}


def _number(text: str) -> str:
    """Returns the JSON of an id that was a number or a text."""
    return text if is_whole(text) and str(int(text)) == text else json.dumps(text)


def _plain(frame: pd.DataFrame, column: str, rows: Ints) -> list[str]:
    coded = arrays.coded(frame[column])
    texts = [*(str(one) for one in coded.categories), ""]
    return [texts[code] for code in np.asarray(coded.codes)[rows].tolist()]


def _quoted(frame: pd.DataFrame, column: str, rows: Ints) -> list[str]:
    place, texts = texts_of(frame, column, rows, quoted=True)
    return [texts[i] for i in place.tolist()]


class _Writer:
    def __init__(self, timeline: Timeline, window: Window, place: Place) -> None:
        self.timeline, self.window, self.place = timeline, window, place
        self.capture, self.events = timeline.capture, timeline.events
        self.threads = self.capture.tables["threads"]
        names = ("process", "thread", "process_name", "thread_name")
        columns = [self.threads[c].astype(str).tolist() for c in names] if len(self.threads) else [[]] * 4
        self.own_pid, self.tid = ([_number(one) for one in column] for column in columns[:2])
        self.pid = [place.process(one) for one in self.own_pid]
        self.pid_name, self.tid_name = columns[2:]
        self.written: dict[str, npt.NDArray[np.bool_]] = {}
        self.lane: dict[int, int] = {}
        """Of events that stand apart, by id: from 1 on."""

    def lines(self) -> Iterator[bytes | memoryview]:
        """Yields events as JSON, some at a time."""
        chosen = self._chosen()
        yield _lined(self._metadata(chosen))
        for name, make in (("host", self._host), ("device", self._device), ("annotations_device", self._other), ("sync", self._other)):
            rows = chosen.get(name, np.zeros(0, np.int64))
            self.written[name] = np.zeros(len(self.capture.tables[name]), np.bool_)
            self.written[name][rows] = True
            for at in range(0, len(rows), _BLOCK):
                yield make(rows[at : at + _BLOCK], name)
        yield _lined(self._instants(chosen.get("instants", np.zeros(0, np.int64))))
        sources = self._sources()
        yield self._memory(sources)
        yield _lined(self._counters(sources))
        if self.window.flows:
            yield from self._flows()
        if self.window.path:
            for some in path_lines(self.timeline, self.window, self.place, self._where):
                yield _lined(some)

    def _where(self, host: int, device: int) -> str:
        """Returns process and thread of a host or device row."""
        if device < 0:
            return self._at(int(self.capture.host["thread"].iloc[host]))
        number, stream = (int(self.capture.device[c].iloc[device]) for c in ("device", "stream"))
        pid, tid = self._stream(number, stream, self.lane.get(self.events.base("device") + device, 0))
        return f'"pid": {pid}, "tid": {tid}'

    def _chosen(self) -> dict[str, Ints]:
        """Returns the rows of each table that overlap the window on the tracks, in the order of the file."""
        found: list[npt.NDArray[np.integer]] = []
        bounds, order = self.timeline.arranged.bounds, self.timeline.arranged.order
        for track in sorted(set(self.window.tracks)):
            one = self.timeline.tracks[track]
            for lane in range(one.lanes):
                ids = order[int(bounds[one.first_lane + lane]) : int(bounds[one.first_lane + lane + 1])]
                start, duration = self.events.times(ids)
                low, high = self.window.start_ns, self.window.end_ns
                ids = ids[(start < high) & ((start + duration > low) | (start >= low))]
                found.append(ids)
                if lane and one.kind == "stream" and self.window.split_overlaps:
                    self.lane.update(dict.fromkeys(ids.tolist(), lane))
        every = np.sort(np.concatenate(found)) if found else np.zeros(0, np.uint32)
        if self.window.split_overlaps:
            self._set_apart(every[: np.searchsorted(every, self.events.base("device"))].astype(np.int64))
        out = {}
        for name in ("host", "device", "annotations_device", "sync", "instants"):
            base = self.events.base(name)
            rows = every[(every >= base) & (every < base + len(self.capture.tables[name]))].astype(np.int64) - base
            table = self.capture.tables[name]
            if name == "host":  # what comes from the capture of a graph is of another file
                rows = np.setdiff1d(rows, captured_rows(self.capture), assume_unique=True)
            out[name] = rows[np.argsort(table["index"].to_numpy()[rows], kind="stable")] if "index" in table else rows
        return out

    def _set_apart(self, rows: Ints) -> None:
        """Chooses threads for the host events that end after what encloses them."""
        rows = rows[self.capture.host["clipped"].to_numpy()[rows]]
        thread, start, duration = (self.capture.host[c].to_numpy()[rows].astype(np.int64) for c in ("thread", "start_ns", "duration_ns"))
        order = np.lexsort((-duration, start, thread))
        found = lanes(thread[order].astype(np.int32), start[order], (start + duration)[order], "packed")
        self.lane.update(zip(rows[order].tolist(), (found + 1).tolist(), strict=True))

    def _metadata(self, chosen: dict[str, Ints]) -> list[str]:
        used = set(np.unique(self.capture.host["thread"].to_numpy()[chosen["host"]]).tolist())
        used |= set(np.unique(self.capture.tables["instants"]["thread"].to_numpy()[chosen["instants"]]).tolist())
        out, streams = [], {(t.device, t.stream) for t in (self.timeline.tracks[i] for i in self.window.tracks) if t.kind == "stream"}
        for i, (pid, tid) in enumerate(zip(self.pid, self.tid, strict=True)):
            device = _place(self.own_pid[i]), _place(tid)
            if i not in used and device not in streams:
                continue
            if name := self.place.name(self.pid_name[i], self.own_pid[i]):
                out.append(_meta("process_name", pid, tid, "name", json.dumps(name)))
            if self.tid_name[i]:
                out.append(_meta("thread_name", pid, tid, "name", json.dumps(self.tid_name[i])))
        base = self.events.base("device")
        devices, numbers = (self.capture.device[c].to_numpy() for c in ("device", "stream"))
        apart = ((int(devices[e - base]), int(numbers[e - base]), lane) for e, lane in self.lane.items() if e >= base)
        for number, stream, lane in dict.fromkeys(apart):
            where = self._stream(number, stream, lane)
            out.append(_meta("thread_name", *where, "name", json.dumps(f"stream {stream} ({lane + 1})")))
        for thread, lane in sorted({(int(self.capture.host["thread"].to_numpy()[e]), lane) for e, lane in self.lane.items() if e < base}):
            tid = self._beside(thread, lane)
            out.append(_meta("thread_name", self.pid[thread], tid, "name", tid))
        return out

    def _times(self, lines: Lines, start: Ints, duration: Ints) -> None:
        if self.window.clip:
            end = np.minimum(start + duration, self.window.end_ns)
            start = np.maximum(start, self.window.start_ns)
            duration = np.maximum(end - start, 0)
        self._begin(lines, start)
        lines.time(duration, ', "dur": ')

    def _begin(self, lines: Lines, start: Ints) -> None:
        """Add when events are, on the clock of the file."""
        lines.time(start + self.place.offset_ns, ', "ts": ')

    def _begun(self, count: int, category: tuple[Ints, list[str]], name: tuple[Ints, list[str]]) -> Lines:
        """Returns lines of complete events up to their names."""
        lines = Lines(count)
        lines.constant('{"ph": "X"')
        place, words = category
        lines.text(np.where([bool(_cat(one)) for one in words], np.arange(len(words)), -1)[place], words, ', "cat": ')
        lines.text(*name, ', "name": ')
        return lines

    def _host(self, rows: Ints, _: str) -> memoryview:
        host, tables, count = self.capture.host, self.capture.tables, len(rows)
        lines = self._begun(count, *(texts_of(host, c, rows, quoted=True) for c in ("category", "name")))
        self._on_threads(lines, rows)
        self._times(lines, host["start_ns"].to_numpy()[rows], host["duration_ns"].to_numpy()[rows])
        lines.constant(', "args": {')
        place = np.full(len(host), -1, np.int64)
        place[rows] = np.arange(count)
        operators, calls, frames = (Spread(lines, tables[name], place, count, "host") for name in ("operators", "calls", "frames"))
        for column, key in (("external_id", "External id"), ("sequence", "Sequence number"), ("forward_thread", "Fwd thread id")):
            operators.number(column, key)
        for column, key in OPERATOR:
            operators.text(column, key)
        operators.text("extra", "", inside=True)
        write_messages(lines, tables["messages"], place, count)
        for column, key in (("correlation", "correlation"), ("external_id", "External id"), ("cbid", "cbid")):
            calls.number(column, key)
        calls.text("kernel", "kernel", quoted=True)
        for column in ("grid", "block"):
            calls.text(column, column)
        for column, key in (("python_id", "Python id"), ("python_parent_id", "Python parent id"), ("module_id", "Python module id")):
            frames.number(column, key)
        self._marks(lines, "host", rows)
        lines.constant("}}")
        return lines.written()

    def _marks(self, lines: Lines, table: str, rows: Ints) -> None:
        """Add which events are on the critical path, where it is written."""
        if self.window.path:
            lines.number(np.where(marks_of(self.capture, table)[rows], 1, -1), key_of(MARK))

    def _on_threads(self, lines: Lines, rows: Ints) -> None:
        """Add where host events stand."""
        threads = [f", {self._at(thread)}" for thread in range(-1, len(self.pid))]
        place = self.capture.host["thread"].to_numpy()[rows].astype(np.int64) + 1
        if self.lane:
            for i in np.flatnonzero(self.capture.host["clipped"].to_numpy()[rows]).tolist():
                if lane := self.lane.get(int(rows[i])):
                    thread = int(place[i]) - 1
                    threads.append(f', "pid": {self.pid[thread]}, "tid": {self._beside(thread, lane)}')
                    place[i] = len(threads) - 1
        lines.text(place, threads)

    def _beside(self, thread: int, lane: int) -> str:
        """Returns the JSON of the id of a thread beside another one."""
        return json.dumps(f"thread {json.loads(self.tid[thread])} ({lane + 1})")

    def _stream(self, device: int, stream: int, lane: int = 0) -> tuple[str, str]:
        pid = self.place.process(str(device) if device >= 0 else '"no device"')
        return pid, json.dumps(f"stream {stream} ({lane + 1})") if lane else (
            str(stream) if stream >= 0 else '"no stream"'
        )

    def _on_streams(self, lines: Lines, rows: Ints, name: str) -> None:
        """Add where rows of a table of device work stand."""
        device, stream = (self.capture.tables[name][c].to_numpy()[rows].astype(np.int64) for c in ("device", "stream"))
        lane = np.zeros(len(rows), np.int64)
        if self.lane and name == "device":
            lane = np.array([self.lane.get(e, 0) for e in (rows + self.events.base("device")).tolist()], np.int64)
        place, first = arrays.factorize([device, stream, lane])
        where = [self._stream(*one) for one in np.column_stack((device, stream, lane))[first].tolist()]
        lines.text(place, [f', "pid": {pid}, "tid": {tid}' for pid, tid in where])

    def _device(self, rows: Ints, _: str) -> memoryview:
        device, count = self.capture.device, len(rows)
        category, words = texts_of(device, "category", rows, quoted=True)
        mtia = np.array([word == json.dumps(_MTIA) for word in words])[category]
        lines = self._begun(count, (category, words), texts_of(device, "name", rows, quoted=True))
        self._on_streams(lines, rows, "device")
        self._times(lines, device["start_ns"].to_numpy()[rows], device["duration_ns"].to_numpy()[rows])
        lines.constant(', "args": {')
        for column, key in DEVICE_NUMBERS:
            if column != "bytes" or not mtia.any():
                lines.number(device[column].to_numpy()[rows], key_of(key))
        if mtia.any():  # its recorder says `size` of a copy, which is told by its direction
            copies, size = mtia & (device["kind"].to_numpy()[rows] == S.MEMCPY), device["bytes"].to_numpy()[rows]
            lines.number(np.where(copies, -1, size), key_of("bytes"))
            lines.number(np.where(copies, size, -1), key_of("size"))
            place, directions = texts_of(device, "direction", rows)
            lines.text(np.where(copies, place, -1), [json.dumps(one) for one in directions], key_of("direction"), part=True)
        for column, key in DEVICE_RATES:
            rate = device[column].to_numpy()[rows]
            distinct, at = np.unique(rate, return_inverse=True)
            lines.text(np.where(rate == rate, at, -1), [repr(one) for one in distinct.tolist()], key_of(key), part=True)
        for column in ("grid", "block"):
            lines.text(*texts_of(device, column, rows), key_of(column), part=True)
        place = np.full(len(device), -1, np.int64)
        place[rows] = np.arange(count)
        collectives = Spread(lines, self.capture.tables["collectives"], place, count, "device")
        for column, key in COLLECTIVE:
            collectives.text(column, key, quoted=True)
        for column, key in COLLECTIVE_NUMBERS:
            collectives.number(column, key)
        self._marks(lines, "device", rows)
        lines.constant("}}")
        return lines.written()

    def _other(self, rows: Ints, name: str) -> memoryview:
        """Writes ranges that the device repeats, and records of waiting."""
        table = self.capture.tables[name]
        lines = self._begun(
            len(rows), (np.zeros(len(rows), np.int64), [json.dumps(_CATEGORY[name])]), texts_of(table, "name", rows, quoted=True)
        )  # fmt: skip
        self._on_streams(lines, rows, name)
        self._times(lines, table["start_ns"].to_numpy()[rows], table["duration_ns"].to_numpy()[rows])
        lines.constant(', "args": {')
        for column, key in SYNC_NUMBERS if name == "sync" else (("external_id", "External id"),):
            lines.number(table[column].to_numpy()[rows], key_of(key))
        lines.constant("}}")
        return lines.written()

    # -- moments -------------------------------------------------------------------------------------------------------

    def _instants(self, rows: Ints) -> list[str]:
        table = self.capture.tables["instants"]
        columns = (_quoted(table, "name", rows), _quoted(table, "category", rows), _plain(table, "args", rows))
        thread, time = (table[c].to_numpy()[rows].tolist() for c in ("thread", "time_ns"))
        return [
            f'{{"ph": "i", "s": "t"{_cat(c)}, "name": {n}, {self._at(t)}, "ts": {trace_time(ns + self.place.offset_ns)}{_args(a)}}}'
            for n, c, a, t, ns in zip(*columns, thread, time, strict=True)
        ]

    def _at(self, thread: int) -> str:
        return f'"pid": {self.pid[thread]}, "tid": {self.tid[thread]}' if 0 <= thread < len(self.pid) else self._nowhere

    @cached_property
    def _nowhere(self) -> str:
        return f'"pid": {self.place.process("0")}, "tid": 0'

    def _sources(self) -> set[tuple[int, int] | str] | None:
        """Returns which memory and counters are written: those of the chosen tracks; None all, as where every counter is chosen."""
        series = self.timeline.series
        chosen = {self.timeline.tracks[t].series for t in self.window.tracks} - {-1}
        return None if len(chosen) == len(series) else {series[i].source for i in chosen}

    def _with_before(self, time: Ints, group: Ints) -> Ints:
        """Returns rows inside the window, and the last one before it of each group."""
        inside = np.flatnonzero((time >= self.window.start_ns) & (time < self.window.end_ns))
        before = np.flatnonzero(time < self.window.start_ns)
        before = before[np.lexsort((time[before], group[before]))]
        last = before[np.append(group[before][1:] != group[before][:-1], True)] if len(before) else before
        return np.sort(np.concatenate((last, inside)))

    def _memory(self, sources: set[tuple[int, int] | str] | None) -> memoryview:
        table = self.capture.tables["memory"]
        if not len(table):
            return memoryview(b"")
        # without a total it is no value before
        known = [(table[c].to_numpy() >= 0).astype(np.int8) for c in ("total_allocated", "total_reserved")]
        kind, number = (table[c].to_numpy() for c in ("device_type", "device_id"))
        group, first = arrays.factorize([kind, number, *known])
        of = zip(kind[first].tolist(), number[first].tolist(), strict=True)
        mine = np.array([sources is None or one in sources for one in of])
        written = np.flatnonzero(mine[group])
        rows = written[self._with_before(table["time_ns"].to_numpy()[written], group[written])]
        lines, known_thread = Lines(len(rows)), [self._at(thread) for thread in range(-1, len(self.pid))]
        lines.constant('{"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", ')
        lines.text(np.minimum(table["thread"].to_numpy()[rows], len(self.pid)) + 1, known_thread)
        self._begin(lines, table["time_ns"].to_numpy()[rows])
        lines.constant(', "args": {')
        for column, key in MEMORY:
            lines.signed(table[column].to_numpy()[rows], key_of(key))
        for column, key in (("total_allocated", "Total Allocated"), ("total_reserved", "Total Reserved")):
            lines.number(table[column].to_numpy()[rows], key_of(key))
        lines.constant("}}")
        return lines.written()

    def _counters(self, sources: set[tuple[int, int] | str] | None) -> list[str]:
        table = self.capture.tables["instants"]
        samples = np.flatnonzero(arrays.where(table["phase"], lambda phase: phase == "C")) if len(table) else np.zeros(0, np.int64)
        if not len(samples):
            return []
        names = _plain(table, "name", samples)
        if sources is not None:
            mine = np.array([name in sources for name in names], np.bool_)
            samples, names = samples[mine], [name for name in names if name in sources]
        keys = {text: tuple(values_of(text)) for text in set(_plain(table, "args", samples))}
        place: dict[tuple[str, tuple[str, ...]], int] = {}  # a sample can hold some of the values of its counter
        both_of = zip(names, _plain(table, "args", samples), strict=True)
        group = np.array([place.setdefault((name, keys[text]), len(place)) for name, text in both_of], np.int64)
        rows = samples[self._with_before(table["time_ns"].to_numpy()[samples], group)]
        thread, time = (table[c].to_numpy()[rows].tolist() for c in ("thread", "time_ns"))
        both = zip(_quoted(table, "name", rows), _plain(table, "args", rows), thread, time, strict=True)
        by = self.place.offset_ns
        return [f'{{"ph": "C", "name": {n}, {self._at(t)}, "ts": {trace_time(ns + by)}{_args(a)}}}' for n, a, t, ns in both]

    # -- links ---------------------------------------------------------------------------------------------------------

    def _flows(self) -> Iterator[memoryview]:
        """Yields both ends of the links whose events are both written."""
        number = (self.place.number + 1) * _LINKS
        for kind in KINDS:
            pairs = pairs_of(self.timeline, kind, recorded=True)
            here = np.flatnonzero(self._is_written(pairs.source) & self._is_written(pairs.target))
            category = '"ac2g"' if kind == "launch" else '"fwdbwd"'
            for at in range(0, len(here), _BLOCK):
                chosen = pairs.at(here[at : at + _BLOCK])
                numbers = number + 1 + np.arange(len(chosen))
                yield self._ends("s", "", numbers, chosen.source, category)
                yield self._ends("f", ', "bp": "e"', numbers, chosen.target, category)
                number += len(chosen)

    def _is_written(self, ids: Ids) -> npt.NDArray[np.bool_]:
        out = np.zeros(len(ids), np.bool_)
        for name in ("host", "device"):
            base, count = self.events.base(name), len(self.capture.tables[name])
            mine = (ids >= base) & (ids < base + count)
            out[mine] = self.written[name][ids[mine] - base]
        return out

    def _ends(self, phase: str, more: str, number: Ints, ids: Ids, category: str) -> memoryview:
        start, _ = self.events.times(ids)
        if self.window.clip:
            start = np.maximum(start, self.window.start_ns)
        lines = Lines(len(ids))
        lines.constant(f'{{"ph": "{phase}", "id": ')
        lines.number(number, "", part=False)
        base = self.events.base("device")
        rows = ids.astype(np.int64) - base
        if (rows >= 0).all():
            self._on_streams(lines, rows, "device")
        else:  # sources, and ends of a backward pass
            self._on_threads(lines, ids.astype(np.int64))
        self._begin(lines, start)
        lines.constant(f', "cat": {category}, "name": {category}{more}}}')
        return lines.written()


def _lined(lines: list[str]) -> bytes:
    return ",\n".join(lines).encode()


def _place(text: str) -> int:
    return int(text) if is_whole(text) else -1


def _meta(what: str, pid: str, tid: str, key: str, value: str) -> str:
    return f'{{"ph": "M", "name": "{what}", "pid": {pid}, "tid": {tid}, "ts": 0, "args": {{"{key}": {value}}}}}'


def _cat(category: str) -> str:
    return f', "cat": {category}' if category not in ('""', '"unknown"') else ""


def _args(text: str) -> str:
    return f', "args": {text}' if text else ""
