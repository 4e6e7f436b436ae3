"""Reads a SOL log, the file that `tb_sol_plugin.capture` writes, into a Capture, with the files it was continued in (see `format.py`).

The header becomes Facts: device, limits in use, versions, ranks, what was recorded. Free texts are redacted.
"""

from __future__ import annotations

import base64
import math
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from tb_sol_plugin import format as F
from tb_sol_plugin import redact
from tb_sol_plugin.devices.spec import MATRIX_COLUMNS, VECTOR_COLUMNS, DeviceProps, DeviceSpec
from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import limits as bounds
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.sol import records as R
from tb_sol_plugin.ingest.sol import tables
from tb_sol_plugin.ingest.sol.collect import Collected
from tb_sol_plugin.ingest.source import Progress, Report, Source
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

# -- the header ------------------------------------------------------------------------------------------------------


FLAGS: Final[dict[str, bool | None]] = {
    "record_shapes": True, "with_stack": False, "profile_memory": False, "with_flops": False, "with_modules": True,
}  # fmt: skip
_PLAIN: Final = ("mode", "every_n_steps", "time_source", "convention")
_MODEL: Final = ("class", "parameters", "trainable", "parameter_bytes", "modules", "compiled")
_DTYPES: Final = {"fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp4_e2m1": "fp4"}
_PLANNED: Final = 80
"""Characters of a size of the plan, and of where it is from."""
_HIGHEST: Final = 1e21
"""FLOP/s, bytes/s or bytes that no device has."""


def check_version(header: Mapping[str, object], file: str) -> tuple[int, int]:
    """Returns (major, minor). BadInput for another major version, with what to do."""
    given = header.get("version")
    parts = given if isinstance(given, list) else [given]
    major, minor = (_whole(parts[i] if i < len(parts) else 0) for i in (0, 1))
    if major is None:
        raise BadInput("the header states no version", hint="write the file anew with tb_sol_plugin.capture", file=file)
    if major not in F.READABLE:
        newer = major > F.VERSION[0]
        known = " and ".join(f"{one}.x" for one in F.READABLE)
        hint = "update tb-sol-plugin" if newer else "open it with the version of tb-sol-plugin that wrote it"
        raise BadInput(f"a SOL capture of format {major}.{minor or 0}; this version reads {known}", hint=hint, file=file)
    return major, minor or 0


def wall_ns(header: Mapping[str, object]) -> int | None:
    """Returns time since 1970 of the recorder's zero; None where it does not say."""
    value = _whole(header.get("wall_ns"))
    return value if value is not None and 0 < value < 2**62 else None


def thread(header: Mapping[str, object]) -> str:
    """Returns the recording process."""
    value = _whole(header.get("pid"))
    return str(value) if value is not None and value >= 0 else "0"


def header_rank(header: Mapping[str, object]) -> tuple[int | None, int | None]:
    """Returns (rank, world size)."""
    own, world = _whole(header.get("rank")), _whole(header.get("world_size"))
    return (own if own is not None and 0 <= own < 2**31 else None), (world if world is not None and 0 < world < 2**31 else None)


def host(header: Mapping[str, object]) -> str:
    """Returns the machine."""
    return redact.text(_text(header.get("host")))[:80]


def versions(header: Mapping[str, object]) -> dict[str, str]:
    """Returns versions by the names a profiler trace gives them."""
    names = {"torch": "torch_version", "cuda": "cuda_runtime_version", "hip": "hip_runtime_version", "library": "tb_sol_plugin"}
    return {name: redact.text(_text(header[key]))[:80] for key, name in names.items() if _text(header.get(key))}


def vendor(header: Mapping[str, object]) -> str:
    """Returns nvidia, amd, xpu or other; "" of a CPU."""
    kind = _text(_part(header, "device").get("type"))
    if kind in ("", "cpu"):
        return ""
    if kind == "cuda":
        return "amd" if _text(header.get("hip")) else "nvidia"
    return "xpu" if kind == "xpu" else "other"


def devices(header: Mapping[str, object]) -> tuple[DeviceProps, ...]:
    """Returns the device that did the work; nothing for a CPU."""
    device = _part(header, "device")
    if not vendor(header):
        return ()
    memory, units = _whole(device.get("memory_bytes")) or 0, _whole(device.get("units")) or 0
    return (
        DeviceProps(
            id=0,
            name=redact.text(_text(device.get("name")))[:200],
            memory_bytes=memory if 0 <= memory < 2**62 else 0,
            units=units if 0 <= units < 2**31 else 0,
        ),
    )


def limits(header: Mapping[str, object]) -> DeviceSpec | None:
    """Returns the limits in use while recording; None where the header has none that can be used."""
    device = _part(header, "device")
    given = _part(device, "limits")
    matrix, vector, achievable = (
        _rates(given, key, allowed)
        for key, allowed in (
            ("peak_flops", MATRIX_COLUMNS), ("peak_flops_vector", VECTOR_COLUMNS), ("peak_flops_achievable", MATRIX_COLUMNS),
        )
    )  # fmt: skip
    bandwidth = _figure(given, "memory_bandwidth_bytes_per_sec")
    if not matrix and not vector and bandwidth is None:
        return None
    sparse = _rates(given, "peak_flops_sparse", MATRIX_COLUMNS) if given.get("assume_sparsity") is True else {}
    origins = device.get("provenance")
    key = _text(device.get("key")) or "capture"
    memory, units, l2 = (_figure(given, name) for name in ("memory_bytes", "num_units", "l2_bytes"))
    return DeviceSpec(
        key=redact.text(key)[:80],
        name=redact.text(_text(device.get("name")) or key)[:200],
        vendor=vendor(header) or "cpu",
        matrix=matrix | sparse,
        vector=vector,
        achievable_rates=achievable,
        memory_bandwidth=bandwidth,
        memory_bytes=None if memory is None else int(memory),
        units=None if units is None else int(units),
        l2_bytes=None if l2 is None else int(l2),
        link_bytes_per_s=_figure(given, "link_bytes_per_sec"),
        pcie_bytes_per_s=_figure(given, "pcie_bytes_per_sec"),
        sparse=bool(sparse),
        provenance={str(k)[:80]: redact.text(_text(v))[:80] for k, v in origins.items()} if isinstance(origins, dict) else {},
        method="capture",
        source="capture",
        notes="the limits in use while recording",
    )


def _compiled(tables: Mapping[str, pd.DataFrame]) -> dict[str, str]:
    """Returns that the model is compiled where the work of an iteration says so: often that was not yet so when the header was written."""
    return {"model.compiled": "true"} if tables["ledger"]["compiled"].any() else {}


def metadata(header: Mapping[str, object]) -> dict[str, str]:
    """Returns settings of the recorder, sizes of the model and its layout, groups of ranks; nothing else of the header leaves the
    reader.
    """
    found: dict[str, object] = {name: header.get(name) for name in _PLAIN}
    found |= {f"model.{name}": _part(header, "model").get(name) for name in _MODEL}
    precision = _part(header, "precision")
    found |= {"precision.matmul": precision.get("matmul"), "precision.cudnn_tf32": precision.get("cudnn_tf32")}
    device = _part(header, "device")
    found |= {"device.type": device.get("type"), "device.key": device.get("key"), "device.name": device.get("name")}
    for name in ("tp", "pp", "dp", "ep", "cp"):
        place = _part(header, "groups").get(name)
        if isinstance(place, list) and len(place) == 2 and all(_whole(v) is not None for v in place):
            found[f"groups.{name}"] = f"{_whole(place[0])} of {_whole(place[1])}"
    out = {}
    for name, value in found.items():
        shown = str(value).lower() if isinstance(value, bool) else _text(value)
        if shown:
            out[name] = redact.text(shown)[: redact.LONGEST]
    return out | _plan(_part(header, "plan"))


def _plan(given: Mapping[str, object]) -> dict[str, str]:
    """Returns `plan.hidden` and so on, and `plan.hidden.from`, where it stands: names that the format knows, with values that can be."""
    out = {}
    for name in F.PLAN:
        pair = given.get(name)
        value, where = pair if isinstance(pair, list) and len(pair) == 2 else (None, "")
        shown = str(value).lower() if isinstance(value, bool) else _text(value) if isinstance(value, str) else ""
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62:
            shown = str(value)
        if shown:
            out[f"plan.{name}"] = redact.text(shown)[:_PLANNED]
            out[f"plan.{name}.from"] = redact.text(_text(where))[:_PLANNED]
    return out


def counted_copies(header: Mapping[str, object], iterations: int) -> dict[str, str]:
    """Returns {"copies": …}: `counted in 3` iterations, `off`, `older` (a recorder that knows no copies), `none yet`; {} without a
    header.
    """
    if iterations or not header:
        return {"copies": f"counted in {iterations}"} if iterations else {}
    counts = header.get("copies")
    return {"copies": "older" if not isinstance(counts, bool) else "none yet" if counts and header.get("mode") == "dispatch" else "off"}


def _rates(given: Mapping[str, object], key: str, allowed: Mapping[str, str]) -> dict[str, float]:
    found = _part(given, key)
    out: dict[str, float] = {}
    for dtype in found:
        name = _DTYPES.get(str(dtype).lower(), str(dtype).lower())
        value = _figure(found, dtype)
        if name in allowed and value is not None:
            out.setdefault(name, value)
    return out


def _figure(given: Mapping[str, object], name: str) -> float | None:
    value = given.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if 0 < value < _HIGHEST and math.isfinite(value) else None


def _part(given: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = given.get(name)
    return found if isinstance(found, dict) else {}


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return int(value)


def _text(value: object) -> str:
    return str(value)[:400] if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


# -- lines of a stream of bytes, whatever their length, with bounded memory ------------------------------------------


LONGEST: Final = 64 << 20
"""Bytes of a line; longer ones are passed over."""


MOST_VALUES: Final = 4_000_000
"""Values of a line, each some 60 bytes of memory while it is read; what a recorder packs into one record has fewer."""


class Line(NamedTuple):
    """number: from 1. ended: a line feed stood behind it. text: without line feed, b"" for a line above the length limit."""

    number: int
    text: bytes
    ended: bool
    length: int


def lines(blocks: Iterable[bytes], longest: int = LONGEST) -> Iterator[Line]:
    """Yields lines that hold anything, in order; the last one may be unended."""
    number, length, skipped = 0, 0, False
    pieces: list[bytes] = []
    for block in blocks:
        start = 0
        while (stop := block.find(b"\n", start)) >= 0:
            number += 1
            length += stop - start
            text = b"" if length > longest else b"".join((*pieces, block[start:stop])).strip()
            if text or length > longest:
                yield Line(number, text, True, length)
            pieces, length, skipped, start = [], 0, False, stop + 1
        length += len(block) - start
        skipped = skipped or length > longest
        if skipped:
            pieces = []
        elif start < len(block):
            pieces.append(block[start:])
    text = b"".join(pieces).strip()
    if text or skipped:
        yield Line(number + 1, b"" if skipped else text, False, length)


# -- packed ----------------------------------------------------------------------------------------------------------


MOST_TEXT: Final = 4 << 30
"""Bytes of text that the packed records of one recording may hold in all."""
_PIECE: Final = 4096
"""Bytes of text that are unpacked at a time: so much before a damaged place may be lost."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")


class Unpacker:
    """Unpacks the packed records of one recording, within bounds.

    most: bytes of text of all of them; those beyond are passed over, and counted.
    """

    def __init__(self, health: Health, *, most: int = MOST_TEXT) -> None:
        self._health, self._left = health, most

    def lines(self, data: str, declared: float | None, number: int) -> Iterator[bytes]:
        """Yields the lines of one record, without line feeds. declared: how many bytes of text it says it holds. number: of its line."""
        health, where = self._health, f"line {number}"
        text, whole = _inflated(_bytes(data), min(F.PACKED_BYTES, self._left))
        if text is None:
            health.add("packed record above the size limit", 1, where)
            return
        self._left -= len(text)
        if not whole or (declared is not None and declared != len(text)):
            health.add("damaged packed record", 1, f"{where}: {len(text):,} of {declared or 0:,.0f} bytes")
        end = len(text) if whole and text.endswith(b"\n") else text.rfind(b"\n") + 1
        for line in text[:end].split(b"\n"):
            if line.strip():
                yield line


def _bytes(data: str) -> bytes:
    """Returns what a text in base64 stands for, up to the first character that cannot be in one."""
    good = _BASE64.match(data)
    length = good.end() if good is not None else 0
    return base64.b64decode(data[: length - length % 4] if length < len(data) else data[: len(data) - len(data) % 4])


def _inflated(raw: bytes, most: int) -> tuple[bytes | None, bool]:
    """Returns (what the compressed bytes hold, up to where they are damaged; None where that is more than `most` bytes, whether all is
    there).
    """
    stream, out, size = zlib.decompressobj(), [], 0
    try:
        while not stream.eof:
            piece = stream.decompress(raw, _PIECE)
            raw = stream.unconsumed_tail
            size += len(piece)
            if size > most:
                return None, False
            out.append(piece)
            if not piece and not raw:
                break
    except zlib.error:
        return b"".join(out), False
    return b"".join(out), stream.eof


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
                health.add("line above the length limit", 1, f"line {number}: {line.length:,} bytes")
                continue
            if line.text.count(b",") > MOST_VALUES:
                health.add("line of too many values", 1, f"line {number}: more than {MOST_VALUES:,} in {line.length:,} bytes")
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
            self.columns.health.add("packed record with a nested or header record", 1, f"line {number}")
        elif record is not None:
            self.take(record, text, number, file)

    def take(self, record: R.Record, line: bytes, number: int, file: str) -> None:
        """Takes one record."""
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
        version = check_version(header, file)
        offset = 0
        if self.header:
            if number > 1:
                self.columns.health.add("second header in one file", 1, f"line {number}")
            first, own = wall_ns(self.header), wall_ns(header)
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
                bounds.check(bounds.ROWS, done, bounds.most(bounds.ROWS, 10), name)
                now = time.monotonic()
                if progress is not None and now - last > 0.1:
                    progress(Progress(source.position, source.size, done, "reading"))
                    last = now
    return _capture(reading, name)


def parts_of(path: str) -> Iterator[str]:
    """Yields the file itself, then where its continuations would stand."""
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
            if columns.health.count("line above the length limit") or columns.health.count("line of too many values"):
                message = f"no line of it can be read: they are longer than {LONGEST >> 20} MiB or hold more than {MOST_VALUES:,} values"
            hint = "try again when the training runs" if empty else OPEN
            raise (BadInput if empty else NotATrace)(message, hint=hint, file=name)
        columns.health.add("no readable header", 1)
    if not reading.closed:
        columns.health.add("no close record", 1)
    found = tables.build(columns, thread=thread(header), first_part=_whole_recording(header))
    for reason, count in columns.iterations.lost.items():
        columns.health.add(f"not recorded: {redact.text(reason)[:120]}", count, effect="missing in the work or the times of its iterations")
    found["issues"] = columns.health.table()
    rank, world = header_rank(header)
    wall = wall_ns(header)
    return Capture(
        Facts(
            source="sol_capture",
            file=name,
            size=reading.size,
            total_events=reading.records,
            origin_ns=wall or 0,
            absolute=wall is not None,
            extent_ns=_extent(found["host"]),
            vendor=vendor(header),
            devices=devices(header),
            flags=dict(FLAGS),
            versions={**versions(header), "capture_format": ".".join(map(str, reading.version))} if header else {},
            rank=rank,
            world_size=world,
            host_name=host(header),
            metadata=metadata(header) | _compiled(found) | counted_copies(header, columns.copies.iterations),
            warnings=_warnings(reading, found),
            truncated=reading.truncated,
            pseudo_step=bool((found["steps"]["number"] < 0).all()),
            limits=limits(header),
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
        note = redact.text(text or code)
        out.append(f"{note} ({count:,} times)" if count > 1 else note)
    return tuple(out[:40])
