"""Rows of a table on the server: their order, filters, sums and pages are those of the plain reference, which the page is held to as well."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.columns import as_distinct, of_series
from tb_sol_plugin.model.report import Column, Link, Mark, Sort, TableSection
from tb_sol_plugin.model.rows import Bounds, Choice, Distinct, Numbers, TableRows, adds_up, columned
from tests.golden import make_rows
from tests.support.rows_reference import shown, sums

GOLDEN = Path(make_rows.__file__).with_name("rows.json")


def section_of(table: dict[str, Any]) -> TableSection:
    return TableSection(
        id="t", title="T", columns=[Column(**{"label": "", **c}) for c in table["columns"]], data=table["data"], key=table["key"],
        sort=Sort(*table["sort"]) if table.get("sort") else None, last=table.get("last", []), total=table.get("total"),
        filters=table.get("filters", []),
    )  # fmt: skip


def choice_of(choice: dict[str, Any]) -> Choice:
    return Choice(
        Sort(*choice["sort"]) if choice.get("sort") else None, choice.get("find", ""),
        tuple((c, tuple(v)) for c, v in choice.get("keep", {}).items()),
        tuple((c, Bounds(*v)) for c, v in choice.get("ranges", {}).items()),
        None if choice.get("picked") is None else frozenset(choice["picked"]),
    )  # fmt: skip


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    return found.keys() == expected.keys() and all(
        v is None if expected[n] is None else v is not None and math.isclose(v, expected[n], rel_tol=1e-9, abs_tol=1e-9)
        for n, v in found.items()
    )


def test_the_shared_cases_are_fresh_and_the_server_answers_them() -> None:
    # GIVEN the file that the page is tested against WHEN it is made anew and asked of the server THEN both are what it holds
    assert GOLDEN.read_text(encoding="utf-8") == make_rows.text(), "run: python -m tests.golden.make_rows"
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    rows = TableRows(section_of(golden["table"]))
    assert rows.additive == {"time_ns": False, "share": False, "all_ns": True, "rounded": False}
    for case in golden["cases"]:
        found = rows.rows(choice_of(case))
        assert found.tolist() == case["rows"], case
        assert same(rows.sums(found), case["sums"]), case
    assert len({tuple(c["rows"]) for c in golden["cases"]}) > 100


TEXTS = st.one_of(st.none(), st.text("aB1 20é\ue000𝄞,\\", max_size=6))
NUMBERS = st.one_of(st.none(), st.integers(-20, 20), st.sampled_from([0.5, -1.25, 3.0, 1e300]))
WHOLE = st.one_of(st.none(), st.integers(-(2**62), 2**62))


@st.composite
def tables(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any]]:
    """A table of up to 12 rows, and a choice of rows."""
    size = draw(st.integers(0, 12))

    def column(values: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(values, min_size=size, max_size=size))

    columns = [
        {"name": "id"}, {"name": "text", "show": "code"}, {"name": "badge", "show": "badge"}, {"name": "number", "show": "bar", "unit": "ns"},
        {"name": "whole"}, {"name": "plain"},
    ]  # fmt: skip
    data = {
        "id": [f"k{draw(st.integers(0, 30))}" for _ in range(size)], "text": column(TEXTS), "badge": column(st.sampled_from([None, True, False])),
        "number": column(NUMBERS), "whole": column(WHOLE), "plain": column(TEXTS),
    }  # fmt: skip
    keys = st.sampled_from([*data["id"], "k99"])
    names = st.sampled_from([c["name"] for c in columns])
    total = draw(st.sampled_from([None, {"number": sum(v for v in data["number"] if v is not None), "whole": 1}]))
    table = {"columns": columns, "data": data, "key": "id", "sort": draw(st.sampled_from([None, ["number", True]])), "total": total,
             "last": draw(st.lists(keys, max_size=2))}  # fmt: skip
    values = st.one_of(TEXTS, NUMBERS.map(str), st.sampled_from(["true", "false", "null"])).filter(lambda v: v is not None)
    choice = {
        "sort": draw(st.one_of(st.none(), st.tuples(names, st.booleans()))), "find": draw(st.text("ab12 é", max_size=4)),
        "keep": draw(st.dictionaries(st.sampled_from(["text", "badge", "plain"]), st.lists(values, max_size=3), max_size=1)),
        "ranges": draw(st.dictionaries(st.sampled_from(["number", "text"]), st.tuples(st.integers(-5, 5), st.none()), max_size=1)),
        "picked": draw(st.one_of(st.none(), st.lists(keys, max_size=4))),
    }  # fmt: skip
    return table, choice


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(tables(), st.integers(0, 13), st.integers(1, 5))
def test_a_page_is_a_part_of_what_the_reference_shows(made: tuple[dict[str, Any], dict[str, Any]], offset: int, limit: int) -> None:
    # GIVEN any table and choice WHEN a page is cut THEN rows, values, count and sums are the reference's
    table, choice = made
    rows, expected = TableRows(section_of(table)), shown(table, choice)
    page = rows.page(choice_of(choice), offset=offset, limit=limit)
    assert page.rows == expected[offset : offset + limit] and page.length == len(page.rows)
    assert page.count == len(expected) and page.of == len(table["data"]["id"])
    for name, values in page.data.items():
        assert values == [table["data"][name][r] for r in page.rows]
    if choice_of(choice).filters:
        assert same(page.sums, sums(table, expected))


def many(size: int = 1000) -> TableSection:
    return TableSection(
        id="t", title="T", key="name", sort=Sort("time"), filters=["kind", "name"], total={"time": sum(range(size)), "most": size - 1},
        columns=[Column("name", "Name", show="code"), Column("kind", "Kind"), Column("time", "Time", "ns", show="bar"), Column("most", "Most", "ns"),
                 Column("eff", "Efficiency", "ratio", show="efficiency"), Column("stack", "Parts", "ns", show="stack", parts=("time", "most"))],
        data={"name": [f"k{i}" for i in range(size)], "kind": [f"kind {i % 3}" for i in range(size)], "time": list(range(size)),
              "most": list(range(size)), "eff": [0.5] * size, "stack": list(range(size))},
        marks={"eff": {"2": Mark("partial", "half"), "total": Mark("estimated")}}, row_links={"3": Link("kernels")}, apart=[f"k{size - 1}"],
        cell_links={"name": {"2": Link("operators")}},
    )  # fmt: skip


def test_a_row_is_found_by_its_key_in_any_order_and_brings_its_marks_and_links() -> None:
    # GIVEN 1,000 rows, longest first WHEN row k2 is looked for THEN the page around its place comes, its marks and links by its place
    rows = TableRows(many(), {"figure": ["k2", "k7", "gone"]})
    page = rows.page(Choice(), limit=10, key="k2")
    assert (page.at, page.offset, page.length) == (997, 992, 8)
    assert page.rows[5] == 2 and page.marks == {"eff": {"2": Mark("partial", "half")}}
    assert page.row_links == {"3": Link("kernels")} and page.cell_links == {"name": {"2": Link("operators")}}
    # AND one that does not pass comes after the page; figures hear which of their points pass
    page = rows.page(Choice(find="k7"), limit=2, key="k2")
    assert page.at is None and page.length == 2 and page.rows == [799, 798, 2] and page.count == 111
    assert page.passing == {"figure": ["k7"]} and page.sums["time"] == 7 + sum(range(70, 80)) + sum(range(700, 800))
    assert rows.page(Choice(), key="nothing").at is None


def test_what_stands_for_all_rows_has_their_scale_their_values_and_what_adds_up() -> None:
    # GIVEN 1,000 rows of which the longest counts for no scale WHEN their pages are described
    rows = TableRows(many(), {"figure": ["k2", "k7"]})
    pages = rows.pages(rows.page(Choice(), limit=5))
    # THEN the middle, the quarter and the end of the numbers are there, the values that are few, and the columns that add up to the total
    assert pages.rows == 1000 and pages.additive == ["time"] and pages.page.rows == [999, 998, 997, 996, 995]
    profile = pages.profile["time"]
    assert (profile[16], profile[32], profile[64]) == (250, 500, 998) and len(profile) == 65 and pages.profile["name"] == ["k999"]
    assert pages.full == {"stack": 2.0 * 998} and pages.values == {"kind": [("kind 0", 334), ("kind 1", 333), ("kind 2", 333)]}
    assert pages.partial == ["k2"]


def test_the_sizes_of_many_numbers_are_those_of_some_of_them_and_of_the_extremes() -> None:
    # GIVEN 100,000 rows, of which one is far larger than all others WHEN they are described
    times = [int(v) for v in np.random.default_rng(5).permutation(100_000) + 1]
    times[70_001] = 10**12
    columns = [Column("id", "Id", show="code"), Column("ns", "Time", "ns"), Column("off", "Off", "ns")]
    data = {"id": [str(i % 7) for i in range(100_000)], "ns": times, "off": [-t for t in times]}
    rows = TableRows(TableSection(id="t", title="T", key="id", columns=columns, data=data, adds=["ns"], last=[]))
    profile = rows.pages(rows.page(Choice(), limit=5)).profile
    # THEN its size is known, the middle is within a percent or so of the true one, and of negative numbers the same holds
    assert profile["ns"][64] == 10**12 and profile["off"][64] == -(10**12)
    assert abs(profile["ns"][32] - 50_000) < 2_000 and abs(profile["off"][32] + 50_000) < 2_000


def test_a_table_without_a_total_names_the_columns_that_add_up() -> None:
    # GIVEN gaps with a length each, of which one has no size WHEN some are chosen THEN their lengths are summed, the sizes are not
    columns = [Column("id", "Id", show="code"), Column("ns", "Time", "ns"), Column("size", "Size", "B")]
    data = {"id": ["a", "b", "c"], "ns": [5, 7, 11], "size": [1, None, 2]}
    rows = TableRows(TableSection(id="t", title="T", key="id", columns=columns, data=data, adds=["ns", "size"], last=["c"]))
    assert list(rows.additive) == ["ns"] and rows.page(Choice(keep=(("id", ("b", "c")),))).sums == {"ns": 7}


def test_columns_take_little_and_keep_every_value() -> None:
    # GIVEN columns of every sort WHEN kept THEN each value comes back as it was, numbers as arrays
    for values, kind in (
        ([1, None, 2**62], Numbers), ([1.5, None, 2], Numbers), ([2**70, 1], Distinct), ([2**60, 0.5], Distinct), (["a", None, "a"], Distinct),
        ([True, 1, 1.0, "1", None], Distinct), ([None, None], Distinct), ([], Distinct),
    ):  # fmt: skip
        column = columned(values)
        assert isinstance(column, kind)
        back = column.at(np.arange(len(values)))
        assert back == values and [type(v) for v in back if isinstance(v, bool)] == [type(v) for v in values if isinstance(v, bool)]
    big = TableRows(many(20_000))
    assert big.nbytes < 20_000 * 300
    for i in range(40):  # orders and filters that were asked for are forgotten again
        big.page(Choice(find=str(i)))
    assert len(big._masks._kept) == 8


def test_a_column_that_is_not_there_is_refused() -> None:
    rows = TableRows(many())
    for choice, name in (
        (Choice(Sort("gone")), "sort"),
        (Choice(keep=(("gone", ("a",)),)), "keep"),
        (Choice(ranges=(("gone", Bounds(1)),)), "range"),
    ):
        with pytest.raises(BadQuery) as raised:
            rows.page(choice)
        assert raised.value.field == name and "'gone'" in raised.value.message


@pytest.mark.parametrize(
    ("column", "values", "total", "expected"),
    [
        (Column("a", "A", "ns"), [2, 3], 5, True),
        (Column("a", "A", "ns"), [2, 3], 6, False),
        (Column("a", "A", "ns"), [200_000, 300_001], 500_000, True),
        (Column("a", "A", "ns"), [200_000, 300_002], 500_000, False),
        (Column("a", "A", "ns"), [200_000.0, 300_001.0], 500_000, False),
        (Column("a", "A", "ns"), [5, 0], 5, False),
        (Column("a", "A", "ns", per="call"), [2, 3], 5, False),
        (Column("a", "A", "ratio"), [0.5, 0.5], 1.0, False),
        (Column("a", "A", "ratio", show="share"), [0.5, 0.4999999999999], 1.0, True),
        (Column("a", "A", show="efficiency"), [0.5, 0.5], 1.0, False),
        (Column("a", "A", "ns"), [], None, False),
        (Column("a", "A", "ns"), [2, -1], True, False),
    ],
)
def test_only_a_plain_sum_adds_up(column: Column, values: list[float], total: float | None, expected: bool) -> None:
    assert adds_up(column, np.array(values, dtype=None if values else float), total) is expected


@pytest.mark.parametrize("values", [[], [True], [False, False], [False, True, True], [True, False, True]])
def test_truth_values_of_a_frame_are_those_of_a_list(values: list[bool]) -> None:
    # GIVEN truth values as a frame holds them WHEN kept as a column THEN they are what a list of them is
    found, expected = of_series(pd.Series(values, dtype=bool)), as_distinct(values)
    assert list(found) == values and isinstance(found, Distinct)
    assert found.values == expected.values and found.codes.tolist() == expected.codes.tolist()
