"""Rows of a table by the plainest code there is: one Python object per row, a comparison per pair. The page and the server must agree with it.

A table is `{"columns": [{"name", "show"}], "data", "key", "sort", "last", "total"}`, a choice
`{"sort": [column, descending] | None, "find", "keep", "ranges", "picked"}`.
"""

from __future__ import annotations

import functools
import math
import re
from typing import Any

TEXTUAL = {"text", "code", "symbol", "tree", "shapes", "badge"}


def text_of(value: Any) -> str:
    """A value as JavaScript's String() writes it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def compare_texts(a: str, b: str) -> int:
    """Orders two texts as people count: parts of digits by their number, other parts by their UTF-16 units; a part of digits comes last."""
    ours, theirs = ([p for p in re.split("([0-9]+)", t.lower()) if p] for t in (a, b))
    for one, two in zip(ours, theirs, strict=False):
        digits = [part[0] in "0123456789" for part in (one, two)]
        if digits[0] != digits[1]:
            return 1 if digits[0] else -1
        first, second = (float(one), float(two)) if digits[0] else (one.encode("utf-16-be"), two.encode("utf-16-be"))
        if first != second:
            return 1 if first > second else -1  # type: ignore[operator]
    return len(ours) - len(theirs)


def compare_plain(a: Any, b: Any) -> int:
    """Orders two numbers, or two texts by their UTF-16 units."""
    first, second = (v.encode("utf-16-be") if isinstance(v, str) else v for v in (a, b))
    return 0 if first == second else 1 if first > second else -1


def passes(table: dict[str, Any], row: int, choice: dict[str, Any]) -> bool:
    """Whether one row passes every filter."""
    data = table["data"]
    texts = [
        text_of(data[c["name"]][row]).lower() for c in table["columns"] if c.get("show") in TEXTUAL and data[c["name"]][row] is not None
    ]
    if not all(any(word in text for text in texts) for word in choice.get("find", "").lower().split()):
        return False
    for column, values in choice.get("keep", {}).items():
        if values and text_of(data[column][row]) not in values:
            return False
    for column, (above, below) in choice.get("ranges", {}).items():
        value = data[column][row]
        if isinstance(value, bool) or not isinstance(value, int | float):
            return False
        if (above is not None and not value > above) or (below is not None and not value < below):
            return False
    return choice.get("picked") is None or text_of(data[table["key"]][row]) in choice["picked"]


def shown(table: dict[str, Any], choice: dict[str, Any]) -> list[int]:
    """The places of the rows that pass, in order: unknown values last, rows outside the sum after them."""
    data, size = table["data"], len(table["data"][table["columns"][0]["name"]])
    outside = {r for r in range(size) if text_of(data[table["key"]][r]) in table.get("last", [])}
    inside = [r for r in range(size) if r not in outside]
    column, descending = choice.get("sort") or table.get("sort") or (None, False)
    if column is not None:
        textual = next(c.get("show") in TEXTUAL for c in table["columns"] if c["name"] == column)

        def compare(a: int, b: int) -> int:
            one, two = data[column][a], data[column][b]
            if one is None or two is None:
                return (one is None) - (two is None) or a - b
            found = compare_texts(text_of(one), text_of(two)) if textual else compare_plain(one, two)
            return (-found if descending else found) or a - b

        inside.sort(key=functools.cmp_to_key(compare))
    return [r for r in [*inside, *sorted(outside)] if passes(table, r, choice)]


def sums(table: dict[str, Any], rows: list[int]) -> dict[str, float | None]:
    """The sums over some rows of the columns whose rows add up to the total; rows outside the sum left out."""
    data, total = table["data"], table.get("total") or {}
    size = len(data[table["columns"][0]["name"]])
    inside = [r for r in range(size) if text_of(data[table["key"]][r]) not in table.get("last", [])]
    out: dict[str, float | None] = {}
    for column in table["columns"]:
        name, show, unit = column["name"], column.get("show", "number"), column.get("unit", "")
        if show not in ("number", "bar", "stack", "share") or column.get("per") or (unit in ("ratio", "%") and show != "share"):
            continue
        if name not in total or isinstance(total[name], bool) or not isinstance(total[name], int | float):
            continue
        for counted in (inside, list(range(size))):
            every = [data[name][r] for r in counted if data[name][r] is not None]
            if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in data[name] if v is not None):
                continue
            whole = all(isinstance(v, int) for v in data[name] if v is not None)
            most = max(1e-9 * abs(total[name]), 1e-12, min(0.5 * len(every) if whole else 0, 1e-5 * abs(total[name])))
            if len([v for v in every if v]) >= 2 and abs(math.fsum(every) - total[name]) <= most and name not in out:
                known = [data[name][r] for r in rows if r in counted and data[name][r] is not None]
                out[name] = math.fsum(known) if known else None
    return out
