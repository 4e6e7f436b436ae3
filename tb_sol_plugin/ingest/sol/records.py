"""Parses one line of a SOL log into a typed record; what does not fit is read field by field and row by row, and counted.

Texts that may be null become "", numbers that may be null stay None. Fields that a newer writer adds are passed over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import ClassVar, Final, TypeAlias, TypeVar

import msgspec

from tb_sol_plugin import format as F
from tb_sol_plugin.ingest.health import Health

Number: TypeAlias = float | None
LedgerRow: TypeAlias = tuple[int, int, int, int, int, int, int, Number]
CopyRow: TypeAlias = tuple[
    str, str, str, str, Number, Number, bool | None, int, int, int, Number, Number, Number, Number, Number
]  # fmt: skip
TimeRow: TypeAlias = tuple[int, Number, Number, Number, Number]
PartRow: TypeAlias = tuple[str, str, int, Number, Number, Number, Number]
PeakRow: TypeAlias = tuple[int, Number, Number]
ProfileRow: TypeAlias = tuple[Number, Number, Number, Number, Number, Number, Number, Number]


class Header(msgspec.Struct, tag_field="kind", tag="header"):
    """Its fields are read as plain JSON by `header_fields`."""


class Sig(msgspec.Struct, tag_field="kind", tag="sig", rename={"shapes": "in", "kind": "class", "out_shapes": "out"}):
    """The arguments may be texts (JSON in a string) or plain JSON."""

    id: int
    op: str | None = ""
    shapes: object = ""
    types: object = ""
    strides: object = ""
    concrete: object = ""
    out_shapes: object = ""
    flop: Number = None
    flop_vector: Number = None
    bytes: Number = None
    dtype: str | None = ""
    kind: str | None = ""
    direction: str | None = ""
    estimated: bool | None = False
    reason: str | None = ""


class Label(msgspec.Struct, tag_field="kind", tag="label", rename={"class_name": "class"}):
    id: int
    what: str = ""
    parent: int | None = -1
    name: str | None = ""
    class_name: str | None = ""


class Ledger(msgspec.Struct, tag_field="kind", tag="ledger"):
    row_type: ClassVar[object] = LedgerRow
    iteration: int
    rows: list[LedgerRow] = []


class Copies(msgspec.Struct, tag_field="kind", tag="copies"):
    row_type: ClassVar[object] = CopyRow
    iteration: int
    rows: list[CopyRow] = []


class PhaseTime(msgspec.Struct, tag_field="kind", tag="phase_time"):
    row_type: ClassVar[object] = TimeRow
    iteration: int
    rows: list[TimeRow] = []


class ModuleTime(msgspec.Struct, tag_field="kind", tag="module_time"):
    row_type: ClassVar[object] = TimeRow
    iteration: int
    rows: list[TimeRow] = []


class Totals(msgspec.Struct):
    """Of one sampled iteration."""

    ops: Number = None
    flop: Number = None
    flop_vector: Number = None
    bytes: Number = None
    sol_ns: Number = None
    unknown: Number = None


class Step(msgspec.Struct, tag_field="kind", tag="step"):
    iteration: int
    start_ns: Number = None
    duration_ns: Number = None
    device_ns: Number = None
    sampled: bool | None = False
    signature: object = ""
    batch: Number = None
    tokens: Number = None
    overhead_ns: Number = None
    before_ns: Number = None
    totals: Totals | None = None
    lost: dict[str, Number] | None = None
    compiled: bool | None = False
    evaluation_ns: Number = None


class Packed(msgspec.Struct, tag_field="kind", tag="packed"):
    data: str
    bytes: Number = None


class Note(msgspec.Struct, tag_field="kind", tag="note"):
    code: str | None = ""
    text: str | None = ""
    count: Number = 1


class Close(msgspec.Struct, tag_field="kind", tag="close"):
    iterations: Number = None


class Memory(msgspec.Struct, tag_field="kind", tag="memory"):
    rows_of: ClassVar[dict[str, object]] = {"parts": PartRow, "phases": PeakRow}
    time_ns: Number
    tag: str | None = ""
    iteration: Number = None
    device: Number = None
    total: Number = None
    device_used: Number = None
    process_used: Number = None
    allocated: Number = None
    reserved: Number = None
    max_allocated: Number = None
    max_reserved: Number = None
    since: str | None = ""
    phase: int | None = None
    phases: list[PeakRow] | None = None
    parts: list[PartRow] | None = None
    left_out: dict[str, Number] | None = None
    problem: str | None = ""


class Profile(msgspec.Struct, tag_field="kind", tag="profile"):
    row_type: ClassVar[object] = ProfileRow
    rows: list[ProfileRow] = []
    grad_sqr: Number = None
    grad_var: Number = None
    grad_biased: bool | None = False
    init_batch_size: Number = None
    max_batch_size: Number = None
    local_bsz_bounds: list[Number] | None = None
    gradient_accumulation: bool | None = False


Record: TypeAlias = Header | Sig | Label | Ledger | Copies | PhaseTime | ModuleTime | Step | Packed | Note | Close | Memory | Profile
_TYPES: Final[dict[str, type[msgspec.Struct]]] = {
    t.__struct_config__.tag: t  # type: ignore[misc]
    for t in (Header, Sig, Label, Ledger, Copies, PhaseTime, ModuleTime, Step, Packed, Note, Close, Memory, Profile)
}
assert set(_TYPES) == set(F.KINDS)
_decode: Final[Callable[[bytes], Record]] = msgspec.json.Decoder(Record).decode
S = TypeVar("S", bound=msgspec.Struct)


UNREADABLE: Final = "row that cannot be read"
MOST_UNREADABLE: Final = 100_000
"""Rows of a recording that are tried in vain, 10 us each, before the rest of a record is passed over with the next one."""


def record_of(line: bytes, health: Health, number: int) -> Record | None:
    """Returns the record of a line; None for what is passed over, which is counted. number: of the line in its file, from 1."""
    try:
        return _decode(line)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        pass
    found = plain(line, health)
    if not isinstance(found, dict):
        health.add("line that is not a record", 1, f"line {number}: {shown(line)}")
        return None
    kind = found.get("kind")
    wanted = _TYPES.get(kind) if isinstance(kind, str) else None
    if wanted is None:
        what = f"line {number}: kind {shown(kind)}"
        health.add("record of an unknown kind" if isinstance(kind, str) else "line that is not a record", 1, what)
        return None
    return _salvaged(wanted, found, health, number)  # type: ignore[return-value]


def plain(line: bytes, health: Health) -> object:
    """Parses any JSON, also with bare NaN or Infinity and with bytes that are not UTF-8; None for what is no JSON."""
    text = line.decode("utf-8", "replace")
    constants: list[str] = []
    try:
        found: object = json.loads(text, parse_constant=constants.append)
        if "\\u" in text:  # halves of a pair of characters stand for nothing
            found = json.loads(json.dumps(found, ensure_ascii=False).encode("utf-8", "replace"), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    health.add("NaN, Infinity or N/A", len(constants), constants[0] if constants else "")
    if "\ufffd" in text and b"\xef\xbf\xbd" not in line:
        health.add("bytes that are not UTF-8", 1, shown(line))
    return found


def header_fields(line: bytes, health: Health) -> dict[str, object]:
    """Returns all fields of a header."""
    found = plain(line, health)
    return found if isinstance(found, dict) else {}


def _salvaged(wanted: type[S], found: dict[str, object], health: Health, number: int) -> S | None:
    values: dict[str, object] = {}
    for field in msgspec.structs.fields(wanted):
        if field.encode_name not in found:
            if field.required:
                health.add("record with missing fields", 1, f"line {number}: {found['kind']} without {field.encode_name}")
                return None
            continue
        value = found[field.encode_name]
        if field.name in (rows_of := getattr(wanted, "rows_of", {})) and value is not None:
            values[field.name] = _rows(value, rows_of[field.name], health, number)
            continue
        if field.name == "rows":
            values["rows"] = _rows(value, wanted.row_type, health, number)  # type: ignore[attr-defined]
            continue
        if field.name == "totals" and isinstance(value, dict):
            value = {k: v for k, v in value.items() if _is_number(v)}
        if field.name in ("lost", "left_out") and isinstance(value, dict):
            value = {str(k): v for k, v in value.items() if _is_number(v)}
        good, read = _read(value, field.type)
        if good:
            values[field.name] = read
        elif field.required:
            health.add("record with missing fields", 1, f"line {number}: {field.encode_name} is {shown(value)}")
            return None
        else:
            health.add("value of the wrong type", 1, f"line {number}: {field.encode_name} is {shown(value)}")
    return wanted(**values)


def _rows(value: object, row_type: object, health: Health, number: int) -> list[object]:
    """Returns the rows that can be read; longer rows by a newer writer are cut to what is known."""
    length = len(row_type.__args__)  # type: ignore[attr-defined]
    out = []
    rows = value if isinstance(value, list) else [value]
    left = MOST_UNREADABLE - health.count(UNREADABLE)
    for place, row in enumerate(rows):
        good, read = _read(row[:length], row_type) if isinstance(row, list) else (False, None)
        if good:
            out.append(read)
        elif left <= 0:
            health.add(UNREADABLE, len(rows) - place)
            break
        else:
            left -= 1
            health.add(UNREADABLE, 1, f"line {number}: {shown(row)}")
    return out


def _read(value: object, wanted: object) -> tuple[bool, object]:
    try:
        return True, msgspec.convert(value, wanted, strict=False)
    except (msgspec.ValidationError, OverflowError, ValueError, RecursionError):
        return False, None


def _is_number(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def amount(value: Number, lowest: float = 0.0) -> float:
    """Returns a number that is finite and not below `lowest`; NaN for anything else."""
    try:
        number = math.nan if value is None else float(value)
    except OverflowError:
        return math.nan
    return number if lowest <= number < math.inf else math.nan


def text_of(value: object) -> str:
    """Returns an argument list as compact JSON, as the tables of a trace have it; a text that is no JSON as it stands."""
    if isinstance(value, str):
        if value[:1] == "[" and " " in value:
            try:
                return msgspec.json.format(value, indent=-1)
            except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
                pass
        return value
    if value is None:
        return ""
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, RecursionError):
        return ""


def shown(value: object) -> str:
    """Returns the beginning of something odd, for an example."""
    text = value[:80].decode("utf-8", "replace") if isinstance(value, bytes) else str(value)[:80]
    return "".join(c if c.isprintable() else "�" for c in text)
