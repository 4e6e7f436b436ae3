"""Operators, allocations and steps of two recordings compared: the numbers of `memory` of each, and sums that stay exact."""

from __future__ import annotations

import shutil
from collections import Counter
from functools import cache
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tb_sol_plugin as sol
from tb_sol_plugin.analyses.memory.memory_compare_lists import matched
from tb_sol_plugin.analyses.memory.memory_compare_tables import Item, Listing
from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import Report, TableSection
from tests.conftest import ROOT

SAMPLE = ROOT / "samples" / "simulated_memory"
OF_OPERATORS = (
    "calls", "size_increase_bytes", "self_size_increase_bytes", "allocation_count", "allocated_bytes", "self_allocation_count",
    "self_allocated_bytes",
)  # fmt: skip


def listing(rows: dict[str, int], *, rest: int = 0, cut: int | None = None) -> Listing:
    items = tuple(Item((name,), (size,)) for name, size in rows.items())
    return Listing(items, (sum(rows.values()) + rest,), None if cut is None else (cut,), "events")


# -- rows ---------------------------------------------------------------------------------------------------------


def test_a_row_that_one_recording_lacks_counts_as_0_there() -> None:
    # GIVEN whole lists THEN what one lacks is 0 there, the largest difference first
    found = matched(listing({"a": 10, "b": 5}), listing({"a": 7, "c": -40}), (0,))
    assert [(p.name[0], p.a, p.b, p.only, p.least) for p in found] == [
        ("c", (0,), (-40,), "b", 40), ("b", (5,), (0,), "a", 5), ("a", (10,), (7,), "both", 3),
    ]  # fmt: skip


def test_rows_of_equal_difference_are_ordered_by_the_next_number() -> None:
    # GIVEN operators that add nothing on either side WHEN one allocates 9 more THEN it stands first of them
    a, b = (Listing(tuple(Item((n,), v) for n, v in rows.items()), (0, 0), None, "events")
            for rows in ({"x": (0, 5), "y": (0, 1), "z": (3, 0)}, {"x": (0, 5), "y": (0, 10), "z": (4, 0)}))  # fmt: skip
    assert [(p.name[0], p.least) for p in matched(a, b, (0, 1))] == [("z", 1), ("y", 0), ("x", 0)]


def test_a_row_that_a_truncated_list_does_not_name_is_unknown_rather_than_0() -> None:
    # GIVEN B cut where rows are of 20 at most WHEN A names one of 90 and one of 15 THEN of the first B is unknown, and they differ by 70 at
    # least; the other is one of the smaller ones
    found = matched(listing({"a": 100, "large": 90, "small": 15}), listing({"a": 100}, rest=60, cut=20), (0,))
    assert [(p.name[0], p.a, p.b, p.least) for p in found] == [("large", (90,), None, 70), ("a", (100,), (100,), 0)]


sizes = st.dictionaries(st.sampled_from("abcdef"), st.integers(-50, 50), max_size=6)


@given(sizes, sizes, st.integers(1, 6), st.integers(1, 6))
@settings(max_examples=60, deadline=None)
def test_differences_of_truncated_lists_are_never_overstated(x: dict[str, int], y: dict[str, int], most_a: int, most_b: int) -> None:
    # GIVEN any two lists, each cut after so many THEN known numbers are the true ones and no difference is called larger than it is
    def cut(rows: dict[str, int], most: int) -> Listing:
        order = sorted(rows, key=lambda n: -abs(rows[n]))
        left = [abs(rows[n]) for n in order[most:]]
        kept = {n: rows[n] for n in order[:most]}
        return listing(kept, rest=sum(rows.values()) - sum(kept.values()), cut=max(left) if left else None)

    for p in matched(cut(x, most_a), cut(y, most_b), (0,)):
        true = x.get(p.name[0], 0), y.get(p.name[0], 0)
        assert p.a in (None, (true[0],)) and p.b in (None, (true[1],))
        assert p.least <= abs(true[1] - true[0]) and (None in (p.a, p.b) or p.least == abs(true[1] - true[0]))


# -- the sample ---------------------------------------------------------------------------------------------------


@cache
def alone(run: str, rank: str, **raw: str) -> Report:
    """`memory` of one rank."""
    opened = sol.open(str(SAMPLE), run=run, cache=False)
    (recording,) = (r for r in opened.recordings if r.kind == "kineto" and r.worker.endswith(f"rank{rank}"))
    found = answer_capture("memory", opened.open(recording), raw)
    assert isinstance(found, Report)
    return found


@cache
def compared_with(run: str, rank: str) -> Report:
    """The comparison of rank 0 of `before` with another one."""
    found = sol.open(str(SAMPLE), run="before", cache=False).analyze("memory_compare", other_run=run, other_worker=rank)
    assert isinstance(found, Report)
    return found


@pytest.fixture(scope="module", params=[("after", "0"), ("before", "3")], ids=["two runs", "two ranks"])
def both(request: pytest.FixtureRequest) -> tuple[Report, Report, Report]:
    """The comparison of rank 0 of `before` with another one, and `memory` of each."""
    run, rank = request.param
    return compared_with(run, rank), alone("before", "0"), alone(run, rank)


def total(report: Report, section: str) -> dict[str, object]:
    found = report.section(section)
    assert isinstance(found, TableSection) and found.total is not None
    return dict(found.total)


def test_operators_have_the_numbers_of_the_memory_page_of_each_recording(both: tuple[Report, Report, Report]) -> None:
    compared, *pages = both
    table = compared.table("operators").set_index("name")
    for side, page in zip("ab", pages, strict=True):
        own = page.table("operators").set_index("name")
        # THEN each number is the page's, an operator that is not there has 0, and so the sums are the page's
        for column in OF_OPERATORS:
            found = table[f"{column}_{side}"]
            named = found.drop("(no operator)") if column == "calls" else found
            assert named.to_dict() == {n: own[column].get(n, 0) for n in named.index}, column
            assert set(own.index) <= set(table.index)
            if column != "calls":
                assert total(compared, "operators")[f"{column}_{side}"] == total(page, "operators")[column]
        assert table[f"self_size_increase_bytes_{side}"].sum() == total(page, "operators")["self_size_increase_bytes"]
    delta = table["self_size_increase_bytes_delta"]
    assert (delta == table["self_size_increase_bytes_b"] - table["self_size_increase_bytes_a"]).all()
    assert (table["abs_delta"] == delta.abs()).all() and table["abs_delta"].is_monotonic_decreasing


def test_allocations_have_the_numbers_of_the_memory_page_of_each_recording(both: tuple[Report, Report, Report]) -> None:
    # GIVEN pages that list every allocation singly WHEN counted by operator, module and size THEN the rows are the same, and what was kept
    compared, *pages = both
    table = compared.table("allocations")
    keys = [tuple("" if pd.isna(v) else v for v in row) for row in table[["operator", "module", "size_bytes"]].itertuples(index=False)]
    for side, page in zip("ab", pages, strict=True):
        section = page.section("allocations")
        assert isinstance(section, TableSection) and section.truncated == 0
        own = page.table("allocations")
        own = own[own["start_ns"].notna()]
        names = own[["operator", "module", "bytes"]].astype(object)
        said = [tuple("" if pd.isna(v) else v for v in row) for row in names.itertuples(index=False)]
        count, kept = Counter(said), Counter(k for k, s in zip(said, own["state"], strict=True) if s == "never freed")
        assert dict(zip(keys, table[f"count_{side}"], strict=True)) == {k: count[k] for k in keys} and set(count) <= set(keys)
        assert dict(zip(keys, table[f"kept_{side}"], strict=True)) == {k: kept[k] for k in keys}
        assert table[f"bytes_{side}"].sum() == own["bytes"].sum() == total(compared, "allocations")[f"bytes_{side}"]
        # AND they are what operators allocated
        assert own["bytes"].sum() == total(compared, "operators")[f"self_allocated_bytes_{side}"]


def test_steps_have_the_numbers_of_the_memory_page_of_each_recording(both: tuple[Report, Report, Report]) -> None:
    compared, *pages = both
    table = compared.table("per_step")
    for side, page in zip("ab", pages, strict=True):
        own = page.table("per_step")
        for column in ("peak_bytes", "end_bytes", "allocated_bytes"):
            assert table[f"{column}_{side}"].tolist() == own[column].tolist()
        assert table[f"step_{side}"].tolist() == own["step"].tolist()
    assert (table["peak_bytes_delta"] == table["peak_bytes_b"] - table["peak_bytes_a"]).all()


def test_heap_numbers_are_those_of_the_memory_findings(both: tuple[Report, Report, Report]) -> None:
    # GIVEN a snapshot of rank 0 of both runs, and none of rank 3 THEN its largest free block is a number, or unknown
    compared, *_ = both
    rows = compared.table("numbers").set_index("measure")
    other = bool(compared.facts["other_run"] == "after")
    assert pd.notna(rows.loc["Largest free block", "a"]) and pd.notna(rows.loc["Largest free block", "b"]) == other
    for side in "ab":
        left = rows.loc["Memory of the device", side] - rows.loc["Outside of the allocator", side] - rows.loc["Reserved at most", side]
        assert rows.loc["Left", side] == left
        assert rows.loc["Reserved, not in use, at most", side] >= rows.loc["Reserved, not in use", side]


def test_a_chosen_step_is_compared_alone() -> None:
    # GIVEN a step WHEN compared of it alone THEN operators and allocations are those of that step on either page
    compared = sol.open(str(SAMPLE), run="before", cache=False).analyze("memory_compare", other_run="after", step="32")
    page = alone("before", "0", step="32")
    assert isinstance(compared, Report)
    assert total(compared, "operators")["self_allocated_bytes_a"] == total(page, "operators")["self_allocated_bytes"]
    assert total(compared, "allocations")["bytes_a"] == total(page, "operators")["self_allocated_bytes"]


def test_truncated_lists_still_add_up_to_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN lists of the 5 largest WHEN two ranks are compared THEN the rest is one row, the last, and columns add up to the same sums
    full = compared_with("before", "3")
    monkeypatch.setattr("tb_sol_plugin.analyses.memory.memory_compare_tables.MOST_LISTED", 5)
    found = sol.open(str(SAMPLE), run="before", cache=False).analyze("memory_compare", other_run="before", other_worker="3")
    assert isinstance(found, Report)
    for section, columns in (
        ("operators", ("self_size_increase_bytes", "self_allocated_bytes", "self_allocation_count")), ("allocations", ("bytes", "count", "kept")),
    ):  # fmt: skip
        table, whole = found.table(section).set_index("key"), full.table(section).set_index("key")
        assert table.index[-1] == "rest" and 5 < len(table) < len(whole)
        assert total(found, section) == total(full, section)
        for column in [f"{c}_{side}" for c in columns for side in "ab"]:
            assert table[column].sum() == whole[column].sum() == total(found, section)[column], column
            # AND what is told of a row is what the whole list tells, the rest is unknown
            named = table[column].drop("rest").dropna()
            assert len(named) and named.to_dict() == whole.loc[named.index, column].to_dict()
        assert (table.drop("rest")["abs_delta"] <= whole.loc[table.index[:-1], "abs_delta"]).all()
    # AND numbers that overlap have no sum over the rest
    assert found.table("operators").set_index("key").loc["rest", ["allocated_bytes_a", "size_increase_bytes_b"]].isna().all()


def test_snapshots_compare_allocations_by_line_and_say_why_not_operators(tmp_path: Path) -> None:
    # GIVEN snapshots alone THEN allocations are told by line of the program, 8 of `stats.py` were kept in `before`, and operators say why not
    for run in ("before", "after"):
        (tmp_path / run).mkdir()
        shutil.copy(SAMPLE / run / "sim0_rank0.pickle.gz", tmp_path / run)
    found = sol.open(str(tmp_path), run="before", cache=False).analyze("memory_compare", other_run="after")
    assert isinstance(found, Report)
    operators = found.section("operators")
    assert isinstance(operators, TableSection) and operators.empty.startswith("Neither recording tells operators.")
    table = found.table("allocations").set_index("frame")
    row = table.loc["stats.py(33): forward"]
    assert (row["count_a"], row["kept_a"], row["bytes_a"], row["count_b"]) == (8, 8, 8 * row["size_bytes"], 0)
    # AND beside a trace they are not compared
    mixed = sol.open(str(tmp_path), run="before", cache=False).analyze("memory_compare", other=str(SAMPLE / "after"), other_worker="3")
    assert isinstance(mixed, Report)
    singles = mixed.section("allocations")
    assert isinstance(singles, TableSection) and "do not compare" in singles.empty and not singles.data["bytes_a"]


def test_reductions_of_an_earlier_version_are_made_again() -> None:
    assert get("memory_compare").reduction.version == 2
