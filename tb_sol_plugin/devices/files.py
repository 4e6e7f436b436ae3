"""Reads device files: rows that users add to the table of devices, as JSON or CSV with the columns of `devices.csv`.

JSON is a list of objects or `{"devices": [...]}`. `inherits` names a row whose figures hold where the file gives none; a row
whose key the table knows changes that row. A bad row is left out with the reason, the place and the remedy; it never hides a
good one. Text comes in as bytes: nothing here opens files.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from tb_sol_plugin import redact
from tb_sol_plugin.devices.catalog import EXTRA_COLUMNS, by_name, columns, raw_rows, spec_of
from tb_sol_plugin.devices.spec import (
    ACHIEVABLE_COLUMNS,
    MATRIX_COLUMNS,
    PCIE_BYTES_PER_S,
    VECTOR_COLUMNS,
    DeviceBook,
    DeviceSpec,
    Layer,
    Place,
    Problem,
)

LARGEST: Final = 1_000_000
"""Bytes of a device file; more is refused."""
MOST_ROWS: Final = 500
MOST_PROBLEMS: Final = 50
LONGEST: Final = 500
"""Characters of one text."""
HIGHEST: Final = 1e9
"""No figure of any device is as large, in the units of its column (1e9 TFLOP/s, 1e9 GB/s)."""
TEXTS: Final = frozenset((
    "key", "aliases", "vendor", "arch", "compute_capability", "unit_kind", "link_kind", "unsupported", "device_names", "provenance",
    "unverified_fields", "notes", "inherits", "name",
))  # fmt: skip
LISTS: Final = frozenset(("aliases", "unsupported", "device_names", "unverified_fields"))
WHOLE: Final = frozenset(("units_count", "pcie_gen"))
ORIGINS: Final = ("user", "measured")
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}")
_UNITS: Final = {
    **dict.fromkeys((*MATRIX_COLUMNS.values(), *VECTOR_COLUMNS.values(), *ACHIEVABLE_COLUMNS.values()), "1e12 per second, as 989.4"),
    "mem_gb": "GB, as 80", "mem_bw_gb_per_s": "GB/s, as 3350", "l2_bw_gb_per_s": "GB/s, as 5500", "pcie_gen": "3, 4, 5 or 6",
    "link_bidir_gb_per_s": "GB/s of both directions, as 900", "pcie_x16_bidir_gb_per_s": "GB/s of both directions, as 128",
    "boost_vector_mhz": "MHz, as 1980", "boost_tensor_mhz": "MHz, as 1830", "units_count": "a whole number, as 132",
}  # fmt: skip


class Row(msgspec.Struct, frozen=True):
    """One good row. key: "" where only `inherits` was given. given: column to text, "" where the row says that it is unknown."""

    key: str
    inherits: str
    given: dict[str, str]
    place: str


class DeviceFile(msgspec.Struct, frozen=True):
    """What a file holds: its good rows, and what is wrong with the others."""

    file: str
    rows: tuple[Row, ...] = ()
    problems: tuple[Problem, ...] = ()


def known_columns() -> tuple[str, ...]:
    """Returns the columns that a device file may have."""
    return (*columns(), "inherits", *EXTRA_COLUMNS)


def parse(content: bytes, file: str) -> DeviceFile:
    """Returns rows of a device file. file: its name without folders, for messages; `.csv` is read as CSV, all else as JSON. Never
    raises.
    """
    name = redact.text(file)[:120]
    if len(content) > LARGEST:
        return _broken(name, "", f"more than {LARGEST:,} bytes", "a device file holds a few rows")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        return _broken(name, f"line {line}", "not UTF-8 text", "save it as UTF-8")
    if file.lower().endswith(".csv"):
        return _collect(name, _csv_rows(text, name))
    return _collect(name, _json_rows(text, name))


def _broken(file: str, place: str, message: str, hint: str) -> DeviceFile:
    return DeviceFile(file, (), (Problem("error", file, place, message, hint),))


def _collect(file: str, found: Iterator[Row | Problem]) -> DeviceFile:
    rows: list[Row] = []
    problems: list[Problem] = []
    for item in found:
        if isinstance(item, Problem):
            if len(problems) < MOST_PROBLEMS:
                problems.append(item)
        elif len(rows) < MOST_ROWS:
            rows.append(item)
        else:
            problems.append(Problem("error", file, item.place, f"more than {MOST_ROWS} rows", "leave out what you do not need"))
            break
    return DeviceFile(file, tuple(rows), tuple(problems))


# -- JSON ------------------------------------------------------------------------------------------------------------


def _json_rows(text: str, file: str) -> Iterator[Row | Problem]:
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        hint = f"{_json_reason(str(error))}; check the commas and brackets"
        yield Problem("error", file, _json_place(text, str(error)), "not JSON", hint)
        return
    if isinstance(found, dict):
        extra = [k for k in found if k != "devices"]
        if "devices" not in found:
            found = [found]
        else:
            if extra:
                where = f"field {_short(extra[0])}"
                yield Problem("warning", file, where, "not read beside devices", "put figures into the rows")
            found = found["devices"]
    if not isinstance(found, list):
        yield Problem("error", file, "", "neither a list of rows nor an object", 'write [{"key": ...}] or {"devices": [...]}')
        return
    for number, item in enumerate(found[: MOST_ROWS + 1], 1):
        yield from _json_row(item, number, file)


def _json_row(item: object, number: int, file: str) -> Iterator[Row | Problem]:
    place = f"row {number}"
    if not isinstance(item, dict):
        yield Problem("error", file, place, "not an object", 'write {"key": "...", "bf16_tensor_tflops": ...}')
        return
    label = item.get("key") or item.get("inherits")
    if isinstance(label, str) and label:
        place = f"{place} ({_short(label)})"
    cells: dict[str, str] = {}
    wrong: list[Problem] = []
    for column, value in item.items():
        text = _cell(value, column)
        if text is None:
            wrong.append(Problem("error", file, f"{place}, field {_short(column)}", f"{_short(value)} is not a value", _remedy(column)))
        else:
            cells[column] = text
    yield from _checked(cells, wrong, file, place, "field")


def _cell(value: object, column: str) -> str | None:
    """Returns a JSON value as the text of a cell; None where no cell can hold it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, int | float):
        return repr(value) if abs(value) < 1e300 else "1e300"
    if isinstance(value, list) and column in LISTS and all(isinstance(v, str) for v in value):
        return ";".join(str(v).replace(";", " ") for v in value)
    return None


def _json_place(text: str, reason: str) -> str:
    match = re.search(r"byte (\d+)", reason)
    if match is None:
        return ""
    before = text.encode("utf-8", "surrogatepass")[: int(match[1])].decode("utf-8", "replace")
    return f"line {before.count(chr(10)) + 1}, column {len(before) - before.rfind(chr(10))}"


def _json_reason(reason: str) -> str:
    return re.sub(r"^JSON is malformed: |\s*\(byte \d+\)$", "", reason)[:120] or "nested too deeply"


# -- CSV -------------------------------------------------------------------------------------------------------------


def _csv_rows(text: str, file: str) -> Iterator[Row | Problem]:
    reader = csv.reader(io.StringIO(text, newline=""))
    head: list[str] | None = None
    line = 1
    try:
        for cells in reader:
            start, line = line, reader.line_num + 1
            if not any(c.strip() for c in cells) or cells[0].lstrip().startswith("#"):
                continue
            if head is None:
                head = [c.strip() for c in cells]
                unknown = [(i, c) for i, c in enumerate(head, 1) if c not in known_columns()]
                twice = [(i, c) for i, c in enumerate(head, 1) if c in head[: i - 1]]
                for number, name in [*unknown, *twice]:
                    what = "stands twice" if (number, name) in twice else "is not a column of the table"
                    yield Problem("error", file, f"line {start}, column {number}", f"{_short(name) or 'an empty name'} {what}", _near(name))
                if unknown or twice:
                    return
                continue
            place = f"line {start}"
            if len(cells) > len(head):
                what = f"{len(cells)} cells under {len(head)} columns"
                yield Problem("error", file, f"{place}, column {len(head) + 1}", what, "quote cells that hold a comma")
                continue
            yield from _checked({c: v.strip() for c, v in zip(head, cells, strict=False) if v.strip()}, [], file, place, "column")
    except csv.Error as error:
        yield Problem("error", file, f"line {line}", f"not CSV: {error}", "check the quotes")
    if head is None:
        yield Problem("error", file, "", "empty", f"begin with a line of columns, as {','.join(columns()[:3])}")


# -- one row ---------------------------------------------------------------------------------------------------------


def _checked(cells: Mapping[str, str], wrong: list[Problem], file: str, place: str, word: str) -> Iterator[Row | Problem]:
    problems = list(wrong)
    given: dict[str, str] = {}
    for column, text in cells.items():
        problem = _wrong(column, text)
        if problem is None:
            given[column] = redact.text(text)[:LONGEST] if column in TEXTS else text
        else:
            problems.append(Problem("error", file, f"{place}, {word} {_short(column)}", *problem))
    key, inherits = given.pop("key", ""), given.pop("inherits", "")
    if not key and not inherits and not problems:
        problems.append(Problem("error", file, place, "neither key nor inherits", 'name the row with "key"'))
    if key and not (_KEY.fullmatch(key) or key.lower() in by_name()):
        where = f"{place}, {word} key"
        problems.append(Problem("error", file, where, f"{_short(key)} cannot be a key", "use letters, digits, _ . - only"))
    if problems:
        yield from problems
        return
    yield Row(key, inherits, given, place)


def _wrong(column: str, text: str) -> tuple[str, str] | None:
    """Returns (what is wrong, what to do) of one cell; None for a good one."""
    if column not in known_columns():
        return f"{_short(column)} is not a column of the table", _near(column)
    if column in TEXTS:
        if column == "provenance" and text and text not in ORIGINS:
            return f"{_short(text)} is no provenance of a row of yours", f"leave it out, or write {' or '.join(ORIGINS)}"
        return None if len(text) <= LONGEST else (f"more than {LONGEST} characters", "shorten it")
    if not text:
        return None
    try:
        value = float(text.replace("_", "x"))
    except ValueError:
        value = math.nan
    if not 0 < value < HIGHEST or (column in WHOLE and not value.is_integer()):
        return f"{_short(text)} is not a positive number", _remedy(column)
    if column == "pcie_gen" and int(value) not in PCIE_BYTES_PER_S:
        return f"{_short(text)} is no generation of PCIe", _remedy(column)
    return None


def _remedy(column: str) -> str:
    return f"give {_UNITS.get(column, 'a positive number')}" if column not in TEXTS else "give text"


def _near(name: str) -> str:
    import difflib

    close = difflib.get_close_matches(name[:80], known_columns(), 1, 0.5)
    return f"did you mean {close[0]}?" if close else f"columns are those of the table: {', '.join(columns()[:4])}, …"


def _short(value: object) -> str:
    text = redact.text(value if isinstance(value, str) else repr(value)[:200])
    text = "".join(c if c.isprintable() else "�" for c in text)
    return text if len(text) <= 60 else text[:57] + "…"


# -- From device files to a book -------------------------------------------------------------------------------------


SPARSE_BY_MISTAKE: Final = 0.02
"""A dense peak within 2 % of twice the table's is the sparse figure of a data sheet."""


def book_of(files: Sequence[tuple[Place, DeviceFile]], default: str = "") -> DeviceBook:
    """Returns the book of some files, lowest first. default: the expression used where a query names no limits.

    A row without explicit `device_names` that is the only one of its kind (GPU or CPU) in a file beside the recordings applies
    to every recording of that kind; unless its key is one of the table, whose row it then changes. The only row of its kind in
    a file named on the command line always applies.
    """
    rows: dict[str, dict[str, str]] = {key: dict(row) for key, row in raw_rows().items() if row["vendor"]}
    specs: dict[str, DeviceSpec] = {}
    layers = []
    for place, file in files:
        layers.append(_layer(place, file, rows, specs))
    return DeviceBook(specs=specs, layers=tuple(layers), default=default)


@dataclass
class _Draft:
    """What is known of a layer while its rows are read: keys and names in use, and the rows that stand alone for the GPUs and CPUs."""

    file: str
    place: Place
    problems: list[Problem]
    specs: dict[str, DeviceSpec] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    alone: dict[bool, list[str]] = field(default_factory=lambda: {True: [], False: []})


def _layer(place: Place, file: DeviceFile, rows: dict[str, dict[str, str]], specs: dict[str, DeviceSpec]) -> Layer:
    draft = _Draft(file.file, place, list(file.problems))
    pending = [(row, _key_of(row)) for row in file.rows]
    below = {k.lower(): k for k in rows}
    while pending:
        wanted = {key.lower() for _, key in pending}
        left = []
        for row, key in pending:
            base = row.inherits or (key if key in rows else "")
            found = _find(base, rows, below) if base else ""
            waits = base.lower() in wanted and base.lower() != key.lower()
            if waits or (base and not found):
                left.append((row, key))
                continue
            _add_row(draft, row, key, rows, found)
        if len(left) == len(pending):
            for row, _ in left:
                why = "itself, through other rows" if row.inherits.lower() in wanted else f"{row.inherits[:60]}, which is not known"
                draft.problems.append(Problem("error", file.file, row.place, f"inherits {why}", "name a key of the table or of this file"))
            break
        pending = left
        below = {k.lower(): k for k in rows}
    specs.update(draft.specs)
    every = {cpu: keys[0] if len(keys) == 1 and place != "user" else "" for cpu, keys in draft.alone.items()}
    return Layer(file.file, place, tuple(draft.specs), draft.named, every[False], every[True], tuple(draft.problems))


def _add_row(draft: _Draft, row: Row, key: str, rows: dict[str, dict[str, str]], base: str) -> None:
    """Add the spec of one row, or the problem that keeps it out. base: key of the row that it inherits from, "" for none."""
    problem = _taken(row, key, draft.taken, draft.named)
    if problem is not None:
        draft.problems.append(Problem("error", draft.file, row.place, *problem))
        return
    draft.problems += _sparse_by_mistake(row, key, rows.get(base), draft.file)
    spec = _resolve(row, key, rows, base, draft.file)
    draft.specs[key] = spec
    for name in (key, *spec.aliases):
        draft.taken[name.lower()] = key
    draft.named |= {n.lower(): key for n in _names(row)}
    if draft.place == "chosen" or key not in raw_rows():
        draft.alone[spec.vendor == "cpu"].append("" if _names(row) and draft.place != "chosen" else key)


def _key_of(row: Row) -> str:
    """Returns the key in the table's spelling; a row that only inherits is called after what it inherits."""
    if not row.key:
        return f"{by_name().get(row.inherits.lower(), row.inherits)}_user"
    return by_name().get(row.key.lower(), row.key)


def _find(name: str, rows: Mapping[str, object], below: Mapping[str, str]) -> str:
    key = by_name().get(name.lower(), "")
    return below.get(name.lower(), "") or (key if key in rows else "")


def _names(row: Row) -> tuple[str, ...]:
    return tuple(n.strip() for n in row.given.get("device_names", "").split(";") if n.strip())


def _taken(row: Row, key: str, taken: Mapping[str, str], named: Mapping[str, str]) -> tuple[str, str] | None:
    for name in (key, *(a.strip() for a in row.given.get("aliases", "").split(";") if a.strip())):
        if name.lower() in taken:
            return f"{name[:60]} stands twice in this file", "give each row its own key"
    for name in _names(row):
        if name.lower() in named:
            return f"{name[:60]} is named by {named[name.lower()]} already", "name a device in one row only"
    return None


def _resolve(row: Row, key: str, rows: dict[str, dict[str, str]], base: str, file: str) -> DeviceSpec:
    merged = dict.fromkeys((*columns(), *EXTRA_COLUMNS), "")
    if base:
        merged |= rows[base]
        if base != key:
            merged |= {"device_names": "", "aliases": "", "name": ""}
    given = dict(row.given)
    origin = given.pop("provenance", "") or "user"
    merged |= given
    merged["key"] = key
    merged["provenance"] = merged["provenance"] if base else origin
    kept = [c for c in merged["unverified_fields"].split(";") if c and c not in given]
    merged["unverified_fields"] = ";".join(kept) if "unverified_fields" not in given else merged["unverified_fields"]
    rows[key] = merged
    return spec_of(merged, frozenset(given), origin, file)


def _sparse_by_mistake(row: Row, key: str, base: Mapping[str, str] | None, file: str) -> list[Problem]:
    compared = base
    if compared is None:
        names = [*_names(row), key]
        compared = next((raw_rows()[by_name()[n.lower()]] for n in names if n.lower() in by_name()), None)
    if compared is None:
        return []
    wrong = []
    for column in MATRIX_COLUMNS.values():
        given, known = row.given.get(column), compared.get(column)
        if given and known and abs(float(given) / (2 * float(known)) - 1) <= SPARSE_BY_MISTAKE:
            wrong.append(f"{column} {float(given):g} is twice the dense {float(known):g} of {compared['key']}")
    if not wrong:
        return []
    hint = "peaks are dense; leave it out and write +sparse where sparse peaks are meant"
    return [Problem("warning", file, row.place, f"{'; '.join(wrong)}: the sparse figure?", hint)]
