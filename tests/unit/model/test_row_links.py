"""Links of a table of many rows are made when a row is asked for, and are the same as those that stand in a dict."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.columns import Distinct, Numbers
from tb_sol_plugin.model.report import Link, Report, TableSection, encode
from tb_sol_plugin.model.row_links import RowLinks
from tb_sol_plugin.web import bounds, tables
from tests.support.trace_builder import TraceBuilder


def test_they_read_like_a_dict() -> None:
    # GIVEN rows of which the second has no link
    made: list[int] = []

    def link(row: int) -> Link:
        made.append(row)
        return Link("kernels", {"find": str(row)})

    links = RowLinks(np.array([True, False, True]), link)
    # THEN it is counted and listed without making any, and is equal to the dict of the same
    assert (len(links), list(links), made) == (2, ["0", "2"], [])
    assert links == {"0": Link("kernels", {"find": "0"}), "2": Link("kernels", {"find": "2"})}
    assert [key in links for key in ("0", "1", "2", "3", "-1", "total", "")] == [True, False, True, False, False, False, False]
    assert list(links.first(2)) == ["0"]
    for missing in ("1", "3", "total"):
        with pytest.raises(KeyError):
            links[missing]


def test_a_table_of_many_operators_holds_no_object_per_row_and_leads_on_from_each(tmp_path: Path) -> None:
    # GIVEN 2,500 operators of different names, a kernel of an operator, and one without
    t = TraceBuilder()
    t.step(1, 0, 100_000_000)
    for i in range(2_500):
        t.op(f"mine::op_{i}", i * 10_000, 5_000)
    t.launch("gemm", at=1_000, start=3_000, duration=7_000, stream=7)
    t.launch("lonely", at=50_000_000, start=50_003_000, duration=9_000, stream=7)
    capture = ingest.read(str(t.write(tmp_path / "w.pt.trace.json")))
    report = answer_capture("operators", capture, {})
    assert isinstance(report, Report)
    table = next(s for s in report.sections if isinstance(s, TableSection))
    # THEN its numbers are arrays with what is known of them, the row outside every operator is last, and only it has no link
    assert {n for n, v in table.data.items() if not isinstance(v, Numbers) and set(v) - {None}} == {"id", "name", "thread", "flags"}
    assert {type(v) for v in table.data.values()} == {Numbers, Distinct} and isinstance(table.row_links, RowLinks)
    names = list(table.data["name"])
    outside = names.index(table.last[0])
    assert len(names) == 2_501 and set(table.row_links) == {str(i) for i in range(2_501)} - {str(outside)}
    assert [table.data[c][outside] for c in ("calls", "device_self_ns", "host_total_ns", "host_mean_ns")] == [None, 9_000, None, None]
    assert [table.data[c][names.index("mine::op_0")] for c in ("calls", "device_self_ns", "host_total_ns")] == [1, 7_000, 5_000]
    # AND the whole report, its first rows, and a page hold the links of their rows
    whole = json.loads(encode(report))["sections"]
    found = next(s for s in whole if s["id"] == "operators")["row_links"]
    assert len(found) == 2_500 and found[str(names.index("mine::op_7"))]["query"] == {"t.ops.c.name": "mine::op_7"}
    cut = json.loads(bounds.bounded(report, most=200_000))["sections"]
    some = next(s for s in cut if s["id"] == "operators")
    assert 0 < len(some["row_links"]) <= len(some["data"]["name"]) < 2_500
    page = tables.rows_of(report, table, "v").page(tables.Choice(), offset=2_000, limit=10)
    assert {n: names[int(n)] for n in page.row_links} == {str(r): names[r] for r in page.rows}
    assert all(page.row_links[n].query == {"t.ops.c.name": names[int(n)]} for n in page.row_links)
