"""Trees on the server show what the page's own tables show of them, and large ones stay small in any answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.model.report import Column, Report, Sort, TableSection, TreeSpec
from tb_sol_plugin.model.rows import Bounds, Choice, TableRows
from tb_sol_plugin.model.tree_rows import MOST_PATH, Tree
from tb_sol_plugin.web import tables
from tests.conftest import ROOT

GOLDEN = json.loads((ROOT / "tests" / "golden" / "tree_rows.json").read_text())
"""A tree with equal weights, unknown ones, a parent that is not there and a circle; what the page's tables, by @tanstack/table-core, show of
it for many choices (`frontend/test/rows.test.ts`)."""


def section(table: dict[str, Any]) -> TableSection:
    return TableSection(
        id="t", title="T", key=table["key"], tree=TreeSpec(), sort=Sort(*table["sort"]), last=table["last"], total=table["total"],
        columns=[Column(**c) for c in table["columns"]], data=table["data"],
    )  # fmt: skip


def choice(case: dict[str, Any]) -> Choice:
    base, ids = case["opened"]
    return Choice(
        sort=Sort(*case["sort"]) if case["sort"] else None, find=case.get("find", ""), base=base, toggled=frozenset(ids),
        keep=tuple((k, tuple(v)) for k, v in case.get("keep", {}).items()),
        ranges=tuple((k, Bounds(*v)) for k, v in case.get("ranges", {}).items()),
    )  # fmt: skip


def test_a_tree_on_the_server_is_shown_as_the_page_shows_it() -> None:
    # GIVEN what the page shows of a tree in many orders, with branches opened and closed, and filters
    rows, data = TableRows(section(GOLDEN["table"])), GOLDEN["table"]["data"]
    assert len(GOLDEN["cases"]) >= 60 and rows.additive == {}
    for case in GOLDEN["cases"]:
        # WHEN the server is asked THEN it has the same rows, depths, open and closed branches, and count
        page = rows.page(choice(case), limit=1000)
        shown = (page.rows, page.depth, page.branch, page.count, page.shown)
        assert shown == (case["rows"], case["depth"], case["branch"], case["count"], len(case["rows"])), case["opened"]
        # AND each row comes with what its parent says, and pages in parts make the whole
        assert [data["name"][r] for r in page.rows] == page.data["name"]
        assert [None if (at := rows.tree.up[r]) < 0 else data["name"][at] for r in page.rows] == page.above  # type: ignore[union-attr]
        parts = [rows.page(choice(case), offset=at, limit=7) for at in range(0, len(page.rows), 7)]
        assert [(r, d, b) for p in parts for r, d, b in zip(p.rows, p.depth, p.branch, strict=True)] == list(
            zip(page.rows, page.depth, page.branch, strict=True)
        )


def test_a_row_in_a_closed_branch_comes_with_what_to_open() -> None:
    # GIVEN a row three levels down, all closed WHEN it is asked for THEN it comes with the ids above it, and opening them shows it
    rows = TableRows(section(GOLDEN["table"]))
    deep = int(np.argmax(rows.tree.depth))  # type: ignore[union-attr]
    key = GOLDEN["table"]["data"]["id"][deep]
    page = rows.page(Choice(base="n"), key=key)
    assert page.at is None and page.rows[-1] == deep and len(page.path) == rows.tree.depth[deep] >= 3  # type: ignore[union-attr]
    found = rows.page(Choice(base="n", toggled=frozenset(page.path)), key=key)
    assert found.at is not None and found.rows[found.at - found.offset] == deep and found.path == []


def test_a_tree_of_many_rows_comes_in_pages() -> None:
    # GIVEN 20,000 modules, half of them roots, the others in one chain WHEN put in pages THEN answers stay small and CSV has all
    count = 20_000
    ids = [f"module {i}" for i in range(count)]
    parents = [None if i < count // 2 else ids[i - 1] for i in range(count)]
    columns = [
        Column("id", "Id", show="code"),
        Column("parent", "P", show="code"),
        Column("name", "Name", show="tree"),
        Column("ns", "Time", "ns"),
    ]
    data = {"id": ids, "parent": parents, "name": [f"Layer {i} " + "x" * 100 for i in range(count)], "ns": list(range(count))}
    tree = TableSection(id="t", title="T", key="id", tree=TreeSpec(), sort=Sort("ns"), columns=columns, data=data)  # type: ignore[arg-type]
    body, paged = tables.in_pages(Report(analysis="a", title="A", sections=[tree]), "v")
    assert len(body) < tables.MOST_BYTES and list(paged) == ["t"]
    page = json.loads(body)["sections"][0]["pages"]["page"]
    assert (page["count"], page["shown"], page["length"]) == (count, count // 2, 100)
    assert len(msgspec.json.encode(tables.page_within(paged["t"], Choice(base="a"), limit=1000))) < tables.MOST_BYTES
    lines = "".join(tables.as_csv(paged["t"], tables.RowsRequest("t", Choice(base="n"), columns=("ns",)))).splitlines()
    assert len(lines) == count + 1 and sorted(map(int, lines[1:])) == list(range(count))


@pytest.mark.parametrize("parents", [[1, 2, 0, 0], [0, 1, 2, 3], [3, 0, 1, 2]])
def test_circles_are_cut_and_no_row_is_lost(parents: list[int]) -> None:
    tree = Tree(["0", "1", "2", "3"], [str(p) for p in parents])
    order = tree.order(np.arange(4))
    assert sorted(order.tolist()) == [0, 1, 2, 3] and (tree.up < 0).any()
    place = {row: at for at, row in enumerate(order.tolist())}
    assert all(tree.up[r] < 0 or place[int(tree.up[r])] < place[r] for r in range(4))


def test_the_path_of_a_row_under_thousands_of_levels_is_bounded() -> None:
    # GIVEN 3,000 rows below one another, whose ids have 1,000 characters WHEN the path of the deepest is asked for
    ids = [f"{i:01000d}" for i in range(3_000)]
    found = Tree(ids, [None, *ids[:-1]]).path(2_999)
    # THEN it holds the nearest ones, in half a megabyte; a path that fits is whole
    assert found == ids[2_998:2_498:-1] and sum(map(len, found)) == MOST_PATH
    assert Tree(ids, [None, *ids[:-1]]).path(100) == ids[99::-1]
