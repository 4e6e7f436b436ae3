"""Writes `rows.json` beside it: a table, and which of its rows are shown in which order for many choices, by `tests/support/rows_reference.py`.

The page's own tables are held to it (`frontend/test/rows.test.ts`), and so are the server's (`tests/unit/model/test_rows.py`). Run:
`python -m tests.golden.make_rows`.
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

from tests.support.rows_reference import shown, sums

NAMES = [
    "gemm_2",
    "Gemm_10",
    "gemm_10",
    "add",
    "",
    "ünit 3",
    "日本",
    "𝄞 clef",
    "\ufffd last",
    "10",
    "9",
    "copy 007",
    "copy 7",
    "a\\b,c",
    "outside",
]
TABLE: dict[str, Any] = {
    "columns": [
        {"name": "id", "label": "Id"}, {"name": "name", "label": "Name", "show": "symbol"}, {"name": "kind", "label": "Kind"},
        {"name": "matrix", "label": "Matrix", "show": "badge"}, {"name": "time_ns", "label": "Time", "unit": "ns", "show": "bar"},
        {"name": "share", "label": "Share", "unit": "ratio", "show": "share"}, {"name": "longest_ns", "label": "Longest", "unit": "ns", "per": "call"},
        {"name": "rate", "label": "Rate", "unit": "B/s"},
        {"name": "all_ns", "label": "All", "unit": "ns"}, {"name": "rounded", "label": "Rounded", "unit": "FLOP"}, {"name": "once", "label": "Once"},
    ],
    "data": {
        "id": [f"r{i}" for i in range(len(NAMES))],
        "name": [*NAMES[:-2], None, "outside"],
        "kind": ["gemm", "gemm", None, "elementwise", "Copy", "copy", "gemm", "other", None, "a", "b", "memory", "memory", "other", "outside"],
        "matrix": [True, False, None, True, False, None, True, True, False, None, True, False, True, False, True],
        "time_ns": [30, 10, None, 30, 0, 7, 12, 99, 1, 5, 5, 5, 40, -3, 1000],
        "share": [0.125, 0.0416, None, 0.125, 0.0, 0.03, 0.05, 0.4, 0.004, 0.02, 0.02, 0.02, 0.16, -0.0125, 4.0],
        "longest_ns": [3, 1, 2, 2, 2, 4, 4, 4, 1, None, 5, 5, 6, 6, 9],
        "all_ns": [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 1000], "once": [0, None, 4, *[0] * 11, 9],
        "rounded": [100_001, 300_000, 5, 7, *[10_000] * 10, None],
        "rate": [1e9, 2.5e9, 3e12, None, None, 1e9, 5, 0.5, 12, 8, 8, 8, 1e-3, 7, 1],
    },
    "key": "id", "sort": ["time_ns", True], "last": ["r14"], "filters": ["kind", "matrix"],
    "total": {"name": "all", "time_ns": 241, "share": 0.9831, "longest_ns": 47, "rate": 10.0, "all_ns": 1068, "rounded": 500_018, "once": 4},
}  # fmt: skip
SORTS = [None, *([c["name"], down] for c in TABLE["columns"] for down in (True, False))]
FILTERS: list[dict[str, Any]] = [
    {}, {"find": "gemm"}, {"find": "  COPY  7 "}, {"find": "true"}, {"find": "gemm nothing"}, {"find": "\\"}, {"keep": {"kind": ["gemm", "copy"]}},
    {"keep": {"matrix": ["true"]}}, {"keep": {"matrix": ["null"]}}, {"keep": {"time_ns": ["5", "30"], "kind": []}}, {"keep": {"name": [""]}},
    {"ranges": {"time_ns": [5, None]}}, {"ranges": {"time_ns": [0, 30], "rate": [None, 1e9]}}, {"ranges": {"name": [0, None]}},
    {"picked": ["r3", "r1", "r14", "none"]}, {"find": "e", "keep": {"kind": ["gemm", "memory", "outside"]}, "ranges": {"time_ns": [1, None]}},
]  # fmt: skip


def cases() -> list[dict[str, Any]]:
    """Every order with every filter."""
    out = []
    for sort, filters in product(SORTS, FILTERS):
        choice = {"sort": sort, **filters}
        rows = shown(TABLE, choice)
        out.append({**choice, "rows": rows, "sums": sums(TABLE, rows)})
    return out


def text() -> str:
    """The file as it is committed."""
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in cases())
    return f'{{"table": {json.dumps(TABLE, ensure_ascii=True)},\n"cases": [\n{lines}\n]}}\n'


if __name__ == "__main__":
    Path(__file__).with_name("rows.json").write_text(text(), encoding="utf-8")
