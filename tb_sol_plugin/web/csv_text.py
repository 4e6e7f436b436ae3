"""A table section as CSV: shown numbers in base units, unknown as an empty cell."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.report import Report, Scalar, TableSection

_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def csv_of(report: Report, section_id: str = "") -> str:
    """The named table; without a name the only one, or all of them, each under a line `# id`.

    Raises BadQuery where the report has no such table.
    """
    tables = [s for s in report.sections if isinstance(s, TableSection)]
    if section_id:
        chosen = [t for t in tables if t.id == section_id]
        if not chosen:
            raise BadQuery(f"no table {section_id!r} in this report", hint=f"there is: {', '.join(t.id for t in tables)}", field="section")
        return _one(chosen[0])
    if len(tables) == 1:
        return _one(tables[0])
    return "\r\n".join(f"# {table.id}\r\n{_one(table)}" for table in tables)


def _one(table: TableSection) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    names = [c.name for c in table.columns]
    writer.writerow(names)
    writer.writerows(zip(*(_cells(table.data[name]) for name in names), strict=True))
    return out.getvalue()


def _cells(values: Sequence[Scalar]) -> list[str | int | float]:
    return [cell(v) for v in values]


def cell(value: Scalar) -> str | int | float:
    """One value: text that a spreadsheet would run as a formula gets an apostrophe before it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and value.startswith(_FORMULA):
        return "'" + value
    return value
