"""SOL capture to Capture: the file that `tb_sol_plugin.capture` writes, with the parts it was continued in (see `format.py`)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin import format as F
from tb_sol_plugin import redact
from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest.progress import Progress, Report
from tb_sol_plugin.ingest.sol import header as H
from tb_sol_plugin.ingest.sol import records as R
from tb_sol_plugin.ingest.sol import tables
from tb_sol_plugin.ingest.sol.collect import Collected
from tb_sol_plugin.ingest.sol.lines import lines
from tb_sol_plugin.ingest.sol.packed import Unpacker
from tb_sol_plugin.ingest.source import Source
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

OPEN: Final = "open a file that tb_sol_plugin.capture wrote (*.sol.jsonl)"


class Reading:
    """State of one read over all parts of a recording."""

    def __init__(self) -> None:
        self.columns = Collected()
        self._unpacker = Unpacker(self.columns.health)
        self.header: dict[str, object] = {}
        self.version = (0, 0)
        self.notes: dict[tuple[str, str], int] = {}
        self.records = self.parts = 0
        self.size = 0
        self.closed = self.truncated = False

    def read(self, source: Source) -> Iterator[int]:
        """Take one file in; yields the number of records so far now and then. BadInput for another major version."""
        health, number = self.columns.health, 0
        self.parts += 1
        self.closed = False
        for line in lines(source.blocks()):
            number = line.number
            if not line.text:
                health.add("line that is too long", 1, f"line {number}: {line.length:,} bytes")
                continue
            if not line.ended and R.plain(line.text, health) is None:
                health.add("truncated last line", 1, f"line {number}: {line.length:,} bytes")
                self.truncated = True
                break
            text = line.text.removeprefix(b"\xef\xbb\xbf") if number == 1 else line.text
            record = R.record_of(text, health, number)
            if isinstance(record, R.Packed):
                for inner in self._unpacker.lines(record.data, record.bytes, number):
                    self._take_packed(inner, number, source.name)
            elif record is not None:
                self.take(record, text, number, source.name)
            if number % 512 == 0:
                yield self.records
        self.size += source.size
        if source.truncated:
            self.truncated = True
            health.add("truncated file", 1, source.truncated)

    def _take_packed(self, text: bytes, number: int, file: str) -> None:
        record = R.record_of(text, self.columns.health, number)
        if isinstance(record, R.Packed | R.Header):
            self.columns.health.add("packed record with records that cannot be in one", 1, f"line {number}")
        elif record is not None:
            self.take(record, text, number, file)

    def take(self, record: R.Record, line: bytes, number: int, file: str) -> None:
        """One record."""
        columns = self.columns
        self.records += 1
        if isinstance(record, R.Sig):
            columns.sigs.add(record, number)
        elif isinstance(record, R.Label):
            columns.labels.add(record, number)
        elif isinstance(record, R.Ledger):
            columns.add_ledger(record.iteration, record.rows, number)
        elif isinstance(record, R.Copies):
            columns.add_copies(record.iteration, record.rows, number)
        elif isinstance(record, R.PhaseTime):
            columns.add_times(record.iteration, record.rows, "phase", number)
        elif isinstance(record, R.ModuleTime):
            columns.add_times(record.iteration, record.rows, "module", number)
        elif isinstance(record, R.Step):
            columns.iterations.add(record, columns.offset, number)
        elif isinstance(record, R.Header):
            self._begin(R.header_fields(line, columns.health), number, file)
        elif isinstance(record, R.Note):
            key = (record.code or "")[:80], (record.text or "")[:400]
            if key in self.notes or len(self.notes) < 100:
                self.notes[key] = self.notes.get(key, 0) + max(int(R.amount(record.count) if R.amount(record.count) < 2**53 else 1), 1)
        elif isinstance(record, R.Memory):
            columns.add_memory(record, number)
        elif isinstance(record, R.Profile):
            columns.add_profile(record, number)
        elif isinstance(record, R.Close):
            self.closed = True

    def _begin(self, header: dict[str, object], number: int, file: str) -> None:
        if header.get("format") != F.FORMAT:
            if not self.header:
                raise NotATrace(f"a header of format {R.shown(header.get('format'))}, not a SOL capture", hint=OPEN, file=file)
            self.columns.health.add("header of another format", 1, f"line {number}")
            return
        version = H.check_version(header, file)
        offset = 0
        if self.header:
            if number > 1:
                self.columns.health.add("second header in one file", 1, f"line {number}")
            first, own = H.wall_ns(self.header), H.wall_ns(header)
            offset = own - first if own is not None and first is not None else 0
        else:
            self.header, self.version = header, version
        self.columns.begin(offset)


def read(path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None) -> Capture:
    """Read one recording (local path or fsspec URL), with the parts that stand beside it. BadInput or NotATrace where there is none."""
    reading, last = Reading(), 0.0
    name = ""
    for number, part in enumerate(parts_of(path)):
        if number and not _is_there(part, fs_options):
            break
        with Source(part, fs_options) as source:
            name = name or source.name
            for done in reading.read(source):
                now = time.monotonic()
                if progress is not None and now - last > 0.1:
                    progress(Progress(source.position, source.size, done, "reading"))
                    last = now
    return _capture(reading, name)


def parts_of(path: str) -> Iterator[str]:
    """The file itself, then where its continuations would stand."""
    yield path
    found = F.PART.search(path)
    if found is not None:
        for k in range(int(found["part"] or 0) + 1, F.MOST_PARTS):
            yield f"{path[: found.start()]}.part{k}{found['ending']}"


def _is_there(path: str, fs_options: dict[str, object] | None) -> bool:
    if "://" not in path and "::" not in path:
        return os.path.isfile(path)
    try:
        Source(path, fs_options).__exit__()
    except BadInput:
        return False
    return True


def _capture(reading: Reading, name: str) -> Capture:
    columns, header = reading.columns, reading.header
    if not header:
        if not reading.records:
            empty = reading.size == 0
            message = (
                "the file is empty: its recorder has written nothing yet" if empty else "this is no SOL capture: no line of it is a record"
            )
            hint = "try again when the training runs" if empty else OPEN
            raise (BadInput if empty else NotATrace)(message, hint=hint, file=name)
        columns.health.add("no readable header", 1)
    if not reading.closed:
        columns.health.add("no close record", 1)
    found = tables.build(columns, thread=H.thread(header), first_part=_whole_recording(header))
    for reason, count in columns.iterations.lost.items():
        columns.health.add(f"not recorded: {redact.text(reason)[:120]}", count, effect="missing in the work or the times of its iterations")
    found["issues"] = columns.health.table()
    rank, world = H.rank(header)
    wall = H.wall_ns(header)
    return Capture(
        Facts(
            source="sol_capture",
            file=name,
            size=reading.size,
            total_events=reading.records,
            origin_ns=wall or 0,
            absolute=wall is not None,
            extent_ns=_extent(found["host"]),
            vendor=H.vendor(header),
            devices=H.devices(header),
            flags=dict(H.FLAGS),
            versions={**H.versions(header), "capture_format": ".".join(map(str, reading.version))} if header else {},
            rank=rank,
            world_size=world,
            host_name=H.host(header),
            metadata=H.metadata(header) | H.counted_copies(header, columns.copies.iterations),
            warnings=_warnings(reading, found),
            truncated=reading.truncated,
            pseudo_step=bool((found["steps"]["number"] < 0).all()),
            limits=H.limits(header),
        ),
        found,
    )


def _whole_recording(header: dict[str, object]) -> bool:
    """Whether the recording begins with its first iteration, and not in the middle."""
    part = header.get("part")
    return not (isinstance(part, int) and part > 0)


def _extent(host: pd.DataFrame) -> tuple[int, int]:
    if host.empty:
        return 0, 0
    start = host["start_ns"].to_numpy()
    return int(start.min()), int(np.max(start + host["duration_ns"].to_numpy()))


def _warnings(reading: Reading, found: dict[str, pd.DataFrame]) -> tuple[str, ...]:
    out = []
    iterations, ledger = found[S.ITERATIONS.name], found[S.LEDGER.name]
    if iterations.empty:
        out.append("no finished iteration yet")
    elif not iterations["sampled"].any():
        out.append("no sampled iteration yet: times are there, work is not")
    if ledger["compiled"].any():
        out.append("compiled regions ran without their compiled code in the sampled iterations: their work is right, their times are not")
    for (code, text), count in reading.notes.items():
        said = redact.text(text or code)
        out.append(f"{said} ({count:,} times)" if count > 1 else said)
    return tuple(out[:40])
