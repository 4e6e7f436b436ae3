"""From device files to a book: rows resolved against the table and each other, names and keys told apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tb_sol_plugin.model.devices.book import DeviceBook, Layer, Place, Problem
from tb_sol_plugin.model.devices.file import DeviceFile, Row
from tb_sol_plugin.model.devices.spec import MATRIX_COLUMNS, DeviceSpec
from tb_sol_plugin.model.devices.table import EXTRA_COLUMNS, by_name, columns, raw_rows, spec_of

SPARSE_BY_MISTAKE: Final = 0.02
"""A dense peak within 2 % of twice the table's is the sparse figure of a data sheet."""


def book_of(files: Sequence[tuple[Place, DeviceFile]], default: str = "") -> DeviceBook:
    """The book of some files, lowest first. default: the expression used where a query names no limits.

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


def _layer(place: Place, file: DeviceFile, rows: dict[str, dict[str, str]], specs: dict[str, DeviceSpec]) -> Layer:
    problems = list(file.problems)
    mine: dict[str, DeviceSpec] = {}
    named: dict[str, str] = {}
    alone: dict[bool, list[str]] = {True: [], False: []}
    taken: dict[str, str] = {}
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
            problem = _taken(row, key, taken, named)
            if problem is not None:
                problems.append(Problem("error", file.file, row.place, *problem))
                continue
            problems += _sparse_by_mistake(row, key, rows.get(found), file.file)
            spec = _resolve(row, key, rows, found, file.file)
            mine[key] = spec
            for name in (key, *spec.aliases):
                taken[name.lower()] = key
            named |= {n.lower(): key for n in _names(row)}
            if place == "chosen" or key not in raw_rows():
                alone[spec.vendor == "cpu"].append("" if _names(row) and place != "chosen" else key)
        if len(left) == len(pending):
            for row, _ in left:
                why = "itself, through other rows" if row.inherits.lower() in wanted else f"{row.inherits[:60]}, which is not known"
                problems.append(Problem("error", file.file, row.place, f"inherits {why}", "name a key of the table or of this file"))
            break
        pending = left
        below = {k.lower(): k for k in rows}
    specs.update(mine)
    every = {cpu: keys[0] if len(keys) == 1 and place != "user" else "" for cpu, keys in alone.items()}
    return Layer(file.file, place, tuple(mine), named, every[False], every[True], tuple(problems))


def _key_of(row: Row) -> str:
    """The key in the table's spelling; a row that only inherits is called after what it inherits."""
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
