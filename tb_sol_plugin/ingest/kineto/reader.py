"""Reads a Kineto or Chrome trace into a Capture."""

from __future__ import annotations

import gc
import re
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from types import TracebackType

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin import redact
from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import limits
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto import header as H
from tb_sol_plugin.ingest.kineto import link
from tb_sol_plugin.ingest.kineto import tables as T
from tb_sol_plugin.ingest.kineto.columns import Columns, Decoder
from tb_sol_plugin.ingest.kineto.decode import Batch, Damage, Scanner
from tb_sol_plugin.ingest.kineto.outline import CLOSED, EVENTS, MORE, Outline
from tb_sol_plugin.ingest.source import Progress, Report, Source
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

# -- Two things at once ----------------------------------------------------------------------------------------------
# the next chunk is read and cut while the columns of the last one are made.
#
# The compiled loops and gunzip release the interpreter lock, so one thread beside the reader is worth almost a core.


AHEAD = 2
"""Batches that may wait: bounds the memory."""


class Pipeline:
    """Adds batches to columns, in order, on a thread of its own. An error there is raised by the next call here."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tb-sol-columns")
        self._waiting: deque[Future[None]] = deque()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._pool.shutdown(wait=True, cancel_futures=kind is not None)

    def put(self, batch: Batch) -> None:
        """Hand over a batch; waits while too many are ahead."""
        self._waiting.append(self._pool.submit(self._columns.add, batch))
        while len(self._waiting) > AHEAD:
            self._waiting.popleft().result()

    def drain(self) -> None:
        """Wait until everything handed over is in the columns."""
        while self._waiting:
            self._waiting.popleft().result()


# -- Text that is not where the grammar wants it ---------------------------------------------------------------------
# finding the next thing that can be read.


_STRING = re.compile(rb'"[^"\\]*(?:\\(?:.|\Z)[^"\\]*)*(?:"|\Z)', re.DOTALL)
"""A string; one that does not close goes on to the end, so that no byte is looked at twice."""
_BARE = re.compile(rb"(?<![\w.\"])(?:-?Infinity|-?inf|NaN|nan|N/A|n/a|undefined)(?![\w.\"])")
_ESCAPES = re.compile(rb"(\\\\)|\\(?![\"\\/bfnrt]|u[0-9a-fA-F]{4})", re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")


def mend(text: bytes, health: Health) -> bytes:
    """Returns `text` with bytes that are not UTF-8, bad escapes, control characters in strings and bare NaN words replaced; counted."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        replaced = text.decode("utf-8", "replace")
        health.add("bytes that are not UTF-8", max(replaced.count("\ufffd") - text.count("\ufffd".encode()), 1))
        text = replaced.encode()
    out = bytearray()
    last = escapes = bare_words = 0
    for match in _STRING.finditer(text):
        gap, found = _BARE.subn(b"null", text[last : match.start()])
        bare_words += found
        out += gap
        string = _CONTROL.sub(lambda m: b"\\u%04x" % m.group()[0], match.group())
        string = _ESCAPES.sub(lambda m: m.group() if m.group(1) else b"\\\\", string)
        escapes += string != match.group()
        out += string
        last = match.end()
    gap, found = _BARE.subn(b"null", text[last:])
    health.add("NaN, Infinity or N/A", bare_words + found)
    health.add("invalid escape or control character", escapes)
    return bytes(out + gap)


def header(text: bytes, health: Health) -> dict[str, object] | None:
    """Returns the fields of the header object that are of use, None for every other; None where it stays unreadable."""
    for candidate in (text, text.rstrip().rstrip(b",}") + b"}"):
        for mended in (False, True):
            try:
                fields = _FIELDS.decode(mend(candidate, health) if mended else candidate)
                return {name: _value(name, bytes(raw), health) for name, raw in fields.items()}
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
    return None


def _value(name: str, raw: bytes, health: Health) -> object:
    if name not in H.READ:
        return None
    if len(raw) > LONGEST_VALUE:
        health.add("header value above the length limit", 1, name)
        return None
    return msgspec.json.decode(raw)


_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
LONGEST_VALUE = 4 << 20
"""Bytes of one header field that are read."""


# -- A stream of bytes into the header, the events chunk by chunk, and the rest of the header ------------------------
# The decoder takes all complete events of what is buffered; what is cut off stays for the next chunk.


CHUNK = 2 << 20
ROOM = 1 << 16
"""Bytes before a chunk in memory, for an event that the one before it began: then the chunk is not moved."""
HEADER_LIMIT = 256 << 20
EVENT_LIMIT = 64 << 20
LESS = "record fewer steps"
MOST_OBJECTS = 100
"""Objects one after the other in which events are looked for."""


class Splitter:
    """Reads one source into `columns`; `header` is the object around the events as bytes (events emptied).

    `warnings` are sentences about the file as a whole. `tick` is called after every chunk.
    """

    def __init__(self, source: Source, columns: Columns, decoder: Decoder, pipeline: Pipeline) -> None:
        self.source, self.columns, self.decoder, self._pipeline = source, columns, decoder, pipeline
        self.warnings: list[str] = []
        self.header: dict[str, object] = {}
        self.truncated = False
        self.is_list = False
        self._blocks = source.ahead(CHUNK, ROOM)
        self._buffer = b""
        self._eof = False
        self._dropped = 0

    # -- bytes ------------------------------------------------------------------------------------------------

    def _fill(self, wanted: int) -> None:
        """Reads until there are `wanted` bytes, or all there are."""
        if len(self._buffer) >= wanted or self._eof:
            return
        pieces: list[bytes | memoryview] = [self._buffer]
        have = len(self._buffer)
        while have < wanted:
            block = next(self._blocks, None)
            if block is None:
                self._eof = True
                break
            pieces.append(block[ROOM:])
            have += len(block) - ROOM
        self._buffer = b"".join(pieces)

    def _next(self) -> bytes | memoryview:
        """Returns what is buffered and the next block, as one text."""
        begun = self._buffer
        block = next(self._blocks, None) if len(begun) <= ROOM else None
        if block is None:
            self._fill(len(begun) + 1)
            return self._buffer
        block[ROOM - len(begun) : ROOM] = begun
        return block[ROOM - len(begun) :]

    def _take(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._dropped += count

    # -- the file ---------------------------------------------------------------------------------------------

    def run(self) -> Iterator[None]:
        """Read everything; yields after every chunk. NotATrace or BadInput where there is nothing to read."""
        self._fill(1 << 12)
        start = self._buffer[:3] == b"\xef\xbb\xbf"
        if start:
            self._take(3)
        text = self._buffer.lstrip()
        if not text:
            reason = self.source.truncated or "the file is empty"
            raise BadInput(reason, hint="record it again; the profiler writes the file when the schedule ends", file=self.source.name)
        self._take(len(self._buffer) - len(text))
        if text[:1] == b"[":
            self.is_list = True
            self._take(1)
            self._check_list()
            yield from self._events()
            self._pipeline.drain()
        elif text[:1] == b"{":
            yield from self._objects()
        else:
            raise BadInput("this is not JSON", hint="a trace starts with { or [", file=self.source.name)
        if self.source.truncated:
            self.truncated = True
            self.warnings.append(f"{self.source.truncated}; the {self.columns.total:,} complete events before that are kept")

    def _objects(self) -> Iterator[None]:
        """Yields the first object that has events, of one or more joined together."""
        for number in count(1):
            before = self._head()
            tail = b"}"
            if before is None:
                self.header = self._parse_header(self._buffer) or self.header
                self._take(len(self._buffer))
                return
            found, prefix = before
            if found:
                yield from self._events()
                self._pipeline.drain()
                tail = self._tail()
            header = self._parse_header(prefix + (b"[]" if found else b"") + tail)
            self.header = header if header is not None else self.header
            self._fill(1)
            rest = self._buffer.lstrip()
            if not rest:
                return
            if self.columns.total or not rest.startswith(b"{") or number == MOST_OBJECTS:
                self.warnings.append("text after the end of the trace was not read")
                return
            self._take(len(self._buffer) - len(rest))

    def _head(self) -> tuple[bool, bytes] | None:
        """Advance past `"traceEvents": [`. (True, text before it), (False, a whole object without it) or None at the end."""
        outline = Outline(0, events=True)
        self._fill(1)
        while True:
            why, read = outline.feed(self._buffer)
            self._take(read)
            if why != MORE:
                self._count_cut(outline)
                return why == EVENTS, outline.text()
            if self._eof:
                self._buffer = outline.text()
                return None
            if outline.size > HEADER_LIMIT:
                raise NotATrace("no traceEvents in the first 256 MB", hint="this JSON is not a profiler trace", file=self.source.name)
            self._fill(max(len(self._buffer) + 1, 1 << 16))

    def _count_cut(self, outline: Outline) -> None:
        self.columns.health.add("header text above the length limit", outline.cut)

    def _check_list(self) -> None:
        """Refuses a list of rows that are not events (a memory timeline holds lists)."""
        first = self._buffer.lstrip()[:1]
        if first == b"[":
            raise NotATrace(
                "a JSON list of lists, not of events",
                hint="a trace holds events with ph, ts and name",
                file=self.source.name,
            )
        if first not in (b"{", b"]", b""):
            raise NotATrace("a JSON list of values, not of events", hint="a trace holds events with ph, ts and name", file=self.source.name)

    # -- events -----------------------------------------------------------------------------------------------

    def _events(self) -> Iterator[None]:
        """Decode events up to the bracket that closes their list, which is taken too; what is no event is passed over and counted."""
        most = limits.most(limits.ROWS)
        damage = Damage(self.columns.health, EVENT_LIMIT)
        text = self._next() if len(self._buffer) <= ROOM else self._buffer  # each feed costs as much as some thousand events
        while True:
            damage.patience = 0 if self._eof else EVENT_LIMIT
            self.columns.read(self.source.position / self.source.size if self.source.size else 1.0)
            fed = self.decoder.feed(text, self._pipeline.put, damage)
            self._buffer = bytes(text[fed.consumed :])
            self._dropped += fed.consumed
            limits.check(limits.ROWS, self.columns.total, most, self.source.name, LESS)
            if fed.closed:
                return
            if self._eof:
                self._ended_early()
                return
            if fed.consumed:
                text = self._next()
            else:
                self._fill(2 * max(len(self._buffer), CHUNK))
                text = self._buffer
            yield

    def _ended_early(self) -> None:
        """Notes that the list of events was not closed."""
        self._pipeline.drain()
        self.truncated = True
        if not self.source.truncated:
            self.warnings.append(
                f"the file ends in the middle of the events, after byte {self._dropped:,}; "
                f"the {self.columns.total:,} complete events before that are kept"
            )

    # -- header -----------------------------------------------------------------------------------------------

    def _tail(self) -> bytes:
        """Returns the text from after the list to the end of the object, taken."""
        outline = Outline(1, events=False)
        while True:
            self._fill(1 << 16)
            why, read = outline.feed(self._buffer)
            self._take(read)
            if why == CLOSED:
                self._count_cut(outline)
                return outline.text() + b"}"
            if self._eof or outline.size > HEADER_LIMIT:
                if not self.truncated:
                    self.truncated = True
                    self.warnings.append("the file ends in the middle of its header; header fields after the events may be missing")
                whole = outline.text()
                self._take(len(self._buffer))
                return whole[: max(whole.rfind(b","), 0)] + b"}"

    def _parse_header(self, text: bytes) -> dict[str, object] | None:
        """Returns the header object; a text that stays unreadable is reported and gives the empty header."""
        found = header(text, self.columns.health)
        if found is None and text.strip(b" \t\r\n{}"):
            self.warnings.append("the header could not be read: device names, versions and flags are unknown")
            return {}
        return found


OPEN = "open the file that the profiler wrote (*.pt.trace.json)"
EPOCH_US = 10**14
"""Without a base time, a ts from here on (in µs) is time since 1970; below it the origin is unknown."""


def read(
    path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None, decoder: Decoder | None = None
) -> Capture:
    """Read one trace file (local path or fsspec URL). BadInput or NotATrace where it holds no trace."""
    with Source(path, fs_options) as source:
        return read_from(source, progress=progress, decoder=decoder)


def read_from(source: Source, *, progress: Report | None = None, decoder: Decoder | None = None) -> Capture:
    """Read what `source` gives; errors as for `read`."""
    columns = Columns()
    with _without_gc(), Pipeline(columns) as pipeline:
        splitter = Splitter(source, columns, decoder or Scanner(), pipeline)
        last = 0.0
        for _ in splitter.run():
            now = time.monotonic()
            if progress is not None and now - last > 0.1:
                progress(Progress(source.position, source.size, columns.total, "reading"))
                last = now
        limits.check(limits.ROWS, columns.total, limits.most(limits.ROWS), source.name, LESS)
        if columns.total == 0 and not splitter.is_list and not (H.TRACE_KEYS & set(splitter.header)) and not splitter.truncated:
            raise NotATrace("this JSON holds no traceEvents", hint=OPEN, file=source.name)
        if progress is not None:
            progress(Progress(source.size, source.size, columns.total, "linking"))
        del splitter.decoder  # what it knows of a million different values is not needed while their tables are made
        capture = build(columns, splitter.header, source=source, warnings=splitter.warnings, truncated=splitter.truncated)
        if splitter.is_list and columns.total and not any(str(phase) for phase in capture.tables["categories"]["phase"].cat.categories):
            raise NotATrace("this JSON list holds no trace events: none has a phase (ph)", hint=OPEN, file=source.name)
        return capture


@contextmanager
def _without_gc() -> Iterator[None]:
    """No garbage collection while columns grow: there are no cycles, and every pass would walk what is kept."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def build(columns: Columns, header: dict[str, object], *, source: Source, warnings: list[str], truncated: bool) -> Capture:
    """Builds tables, trees and links of what was read."""
    T.pair_begin_end(columns)
    origin = min((b.minimum("start") for b in (columns.host, columns.device) if b.rows), default=0)
    host, old_to_new = T.host(columns, origin)
    host_table = S.HOST.frame(host)
    operators = T.remapped(columns.operators, old_to_new)
    calls = T.remapped(columns.calls, old_to_new)
    frames = T.remapped(columns.frames, old_to_new)
    tables: dict[str, pd.DataFrame] = {
        "host": host_table,
        "operators": S.OPERATORS.frame(
            {
                **{k: operators[k] for k in ("host", "sequence", "forward_thread", "external_id") if k in operators},
                **{
                    k: getattr(columns, k).categorical(operators[k])
                    for k in ("shapes", "types", "strides", "concrete", "extra")
                    if k in operators
                },
            }
        ),
        "calls": S.CALLS.frame(
            {
                k: columns.kernels.categorical(v) if k == "kernel" else columns.grids.categorical(v) if k in ("grid", "block") else v
                for k, v in calls.items()
            }
        ),
        "frames": S.FRAMES.frame(frames),
        "threads": T.threads(columns),
        "flows": T.flows(columns, origin),
        "memory": T.memory(columns, origin),
        "sync": T.sync(columns, origin),
        "annotations_device": T.device_annotations(columns, origin),
        "instants": T.instants(columns, origin),
        "categories": T.categories(columns),
    }
    view = link.Host(host_table)
    device, device_table, device_order = T.device(columns, origin, view, tables)
    low, high = T.extent(view, device)
    tables["steps"], step = link.steps(view, host_table, device_table, (low, high))
    device["step"] = step
    tables["device"] = S.DEVICE.frame(device)
    tables["backward"] = link.backward(view, tables["operators"], tables["flows"])
    tables["collectives"] = T.collectives(columns, device_order)
    tables["messages"] = T.messages(columns, old_to_new)
    tables["process_groups"] = S.PROCESS_GROUPS.frame(H.process_groups(header))
    tables["peers"] = T.peers(columns, device_order)
    T.observe(columns, tables, view)
    T.observe_memory(tables["memory"], columns.health)
    T.observe_copies(tables["device"], H.devices(header), columns.health)
    tables["issues"] = columns.health.table()
    facts = _facts(columns, header, source, tables, origin, (low, high), warnings, truncated)
    return Capture(facts, tables)


# -- facts ----------------------------------------------------------------------------------------------------


def _facts(
    columns: Columns,
    header: dict[str, object],
    source: Source,
    tables: dict[str, pd.DataFrame],
    origin: int,
    extent: tuple[int, int],
    warnings: list[str],
    truncated: bool,
) -> Facts:
    base = H.base_time(header)
    rank, world, backend = H.distributed(header)
    devices = H.devices(header)
    calls = tables["calls"]["host"].to_numpy()[:2000]
    call_names = _present(tables["host"]["name"].iloc[calls])
    device_categories = _present(tables["device"]["category"])
    if columns.total == 0:
        warnings = [*warnings, "the file holds no events"]
    return Facts(
        source="kineto",
        file=source.name,
        size=source.size,
        total_events=columns.total,
        origin_ns=origin + (base or 0),
        absolute=base is not None or origin >= EPOCH_US * 1000,
        extent_ns=extent,
        vendor=H.vendor(header, device_categories, call_names, tuple(d.name for d in devices)),
        devices=devices,
        flags=H.flags(header),
        versions=H.versions(header),
        rank=rank,
        world_size=world,
        backend=backend,
        host_name=redact.text(str(header.get("host_name") or ""))[:80],
        metadata=H.metadata(header),
        errors=H.logged(header, "ERROR"),
        warnings=tuple(warnings) + H.logged(header, "WARNING"),
        truncated=truncated,
        pseudo_step=bool((tables["steps"]["number"] < 0).all()),
        external_id_regime=_regime(tables),
    )


def _regime(tables: dict[str, pd.DataFrame]) -> int:
    """Returns 1 to 4: what the external id of calls and device events means; 0 where none is recorded."""
    calls = tables["calls"]
    ids, correlation = calls["external_id"].to_numpy(), calls["correlation"].to_numpy()
    given = ids > 0
    if not given.any():
        return 0
    if (ids[given] == correlation[given]).mean() > 0.95:
        return 2
    legacy = bool({"Operator", "Runtime"} & _present(tables["host"]["category"]))
    return 1 if legacy else 3 if (ids == correlation).any() else 4


def _present(column: pd.Series) -> set[str]:
    """Returns the texts that a dictionary-encoded column holds."""
    texts = column.cat.categories
    return {str(texts[code]) for code in np.flatnonzero(np.bincount(column.cat.codes, minlength=1)).tolist()} if len(column) else set()
