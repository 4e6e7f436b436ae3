"""Setting a report against a baseline: rows by what names them, what is unknown, what only one side has."""

from __future__ import annotations

import pandas as pd

from tb_sol_plugin.model.against import Steps, against, steps_alike
from tb_sol_plugin.model.report import (
    Column,
    FactsSection,
    FigureSection,
    Finding,
    FindingsSection,
    Mark,
    Notice,
    OnTimeline,
    Report,
    Sort,
    TableSection,
    TreeSpec,
    make_table,
)

COLUMNS = (
    Column("name", "Name", show="code"), Column("calls", "Calls"), Column("time_ns", "Time", "ns", show="bar"),
    Column("mean_ns", "Mean", "ns", per="call"), Column("busy", "Busy", "ratio", show="efficiency", rank=2), Column("id", "Id", rank=3),
)  # fmt: skip


def table(rows: list[tuple[str, int, int | None, int, float | None]], **more: object) -> TableSection:
    frame = pd.DataFrame(rows, columns=["name", "calls", "time_ns", "mean_ns", "busy"], dtype=object).assign(id="x")
    known = [t for t in frame["time_ns"] if t is not None]
    total = {"name": "all", "calls": int(frame["calls"].sum()), "time_ns": sum(known)}
    return make_table("t", "T", frame, COLUMNS, key="name", sort=Sort("time_ns"), total=total, **more)


def joined(here: TableSection, base: TableSection) -> TableSection:
    found = against(Report(analysis="a", title="A", sections=[here]), Report(analysis="a", title="A", sections=[base]), ("new", "old"))
    section = found.sections[0]
    assert isinstance(section, TableSection)
    return section


def test_numbers_of_the_baseline_stand_beside_those_shown() -> None:
    # GIVEN one row that got slower, one that is gone, one that is new, and one whose time is unknown here
    here = table(
        [("mm", 4, 400, 100, 0.5), ("add", 2, 20, 10, None), ("gelu", 1, None, 1, 0.1)], marks={"time_ns": {"0": Mark("estimated")}}
    )
    found = joined(here, table([("gelu", 1, 30, 30, 0.1), ("mm", 4, 300, 75, 0.6), ("cat", 3, 60, 20, 0.2)]))
    # THEN rows are matched by name, those of the baseline alone stand at the end without numbers of this side
    assert found.data["name"] == ["mm", "add", "gelu", "cat"] and found.data["time_ns"] == [400, 20, None, None]
    assert found.data["time_ns_base"] == [300, None, 30, 60]
    # AND a row that is not there counts as 0 where rows add up, an unknown number never does
    assert found.data["time_ns_delta"] == [100, 20, None, -60] and found.data["time_ns_change"] == [100 / 300, None, None, -1.0]
    assert found.data["calls_delta"] == [0, 2, 0, -3]
    # AND a mean of a row that is not there is unknown, as is the change of a share
    assert found.data["mean_ns_delta"] == [25, None, -29, None] and "busy_change" not in found.data
    assert found.data["in_base"] == ["both", "new", "both", "baseline only"] and found.filters == ["in_base"]
    assert found.total is not None and (found.total["time_ns_delta"], found.total["time_ns_base"]) == (420 - 390, 390)
    # AND the largest difference stands first, a difference of an estimated number is estimated, ids have no difference
    assert found.sort == Sort("time_ns_delta") and found.marks["time_ns_delta"]["0"].state == "estimated"
    assert "id_base" not in found.data and [c.rank for c in found.columns if c.name.startswith("time_ns")] == [1, 1, 1, 1]
    assert {c.rank for c in found.columns if c.name.startswith(("calls_", "busy_"))} == {3}


def test_equal_reports_have_no_difference() -> None:
    rows = table([("mm", 4, 400, 100, 0.5), ("add", 2, 20, 10, None)])
    found = joined(rows, rows)
    assert found.data["time_ns_delta"] == [0, 0] and "in_base" not in found.data and found.filters == []
    # AND exchanged sides give the differences with the other sign
    other = table([("add", 3, 25, 9, 0.1), ("mm", 4, 100, 25, 0.5)])
    ours, theirs = joined(rows, other).data, joined(other, rows).data
    assert dict(zip(ours["name"], ours["time_ns_delta"], strict=True)) == {"mm": 300, "add": -5}
    assert dict(zip(theirs["name"], theirs["time_ns_delta"], strict=True)) == {"mm": -300, "add": 5}


def test_what_cannot_be_matched_stays_as_it_is() -> None:
    # GIVEN rows that are single events, rows named by numbers, a list cut to its first rows, and a narrow list
    events = table([("mm", 1, 4, 4, None)], timeline=OnTimeline("time_ns", "id", "time_ns"))
    assert "time_ns_base" not in joined(events, events).data and "no counterpart" in joined(events, events).footer
    steps = table([("3", 1, 4, 4, None), ("4", 1, 4, 4, None)])
    assert "time_ns_base" not in joined(steps, steps).data
    cut, whole = table([("mm", 1, 4, 4, None)], truncated=9), table([("mm", 1, 5, 5, None), ("add", 2, 7, 3, None)])
    # THEN of a cut list no row is called new or gone
    assert joined(cut, whole).data["name"] == ["mm"] and "in_base" not in joined(cut, whole).data
    assert joined(whole, cut).data["time_ns_delta"] == [1, None]
    narrow = table([("mm", 1, 4, 4, None)], span=5)
    assert joined(narrow, narrow) == narrow


def test_a_branch_that_is_gone_keeps_its_place_in_the_tree() -> None:
    columns = (
        Column("name", "Name", show="tree"),
        Column("time_ns", "Time", "ns", show="bar"),
        Column("id", "Id", rank=3),
        Column("up", "Up", rank=3),
    )
    here = make_table(
        "t", "T", pd.DataFrame({"name": ["net"], "time_ns": [5], "id": ["net"], "up": [None]}), columns, key="id", tree=TreeSpec("id", "up")
    )
    old = pd.DataFrame({"name": ["net", "fc"], "time_ns": [9, 4], "id": ["net", "net/fc"], "up": [None, "net"]})
    found = joined(here, make_table("t", "T", old, columns, key="id", tree=TreeSpec("id", "up")))
    assert (found.data["name"], found.data["up"], found.data["time_ns_delta"]) == (["net", "fc"], [None, "net"], [-4, -4])


def test_facts_figures_and_findings() -> None:
    def report(value: int, *rules: str) -> Report:
        facts = FactsSection(id="f", title="F", values={"step_ns": value, "name": "x"}, units={"step_ns": "ns", "name": ""}, span=5)
        figure = FigureSection(id="g", title="G", span=7, table="t", figure={"data": [value]}, height=300)
        findings = FindingsSection(id="l", title="L", findings=[Finding(rule=r, title=r.upper(), evidence="") for r in rules])
        return Report(analysis="a", title="A", sections=[figure, facts, findings], notices=[Notice(f"warned {value}")])

    found = against(report(7, "sync", "copy"), report(5, "sync", "launch"), ("new", "o`ld"))
    # THEN a fact has what it was, both figures share a row, and what came and went is said
    assert [(s.id, s.span) for s in found.sections] == [("g", 6), ("g_base", 6), ("f", 12), ("l", 12)]
    figure, other, facts = found.sections[0], found.sections[1], found.sections[2]
    assert isinstance(figure, FigureSection) and isinstance(other, FigureSection) and isinstance(facts, FactsSection)
    assert (figure.subtitle, other.subtitle, other.table, other.figure) == ("new", "o`ld", "", {"data": [5]})
    assert facts.base == {"step_ns": 5, "name": "x"} and facts.values["step_ns"] == 7
    assert [n.text for n in found.notices] == ["New against `o'ld`: COPY. Only in `o'ld`: LAUNCH.", "`o'ld`: warned 5", "warned 7"]


def test_as_many_steps_of_both() -> None:
    names = ("new", "old")
    # GIVEN as many steps on both sides THEN both stay whole, whatever their numbers
    assert steps_alike("", [1, 2, 3], [7, 8, 9], names) == Steps("", "")
    # GIVEN fewer on one side THEN the last ones of the other
    assert steps_alike("", [1, 2, 3, 4], [8, 9], names) == Steps(
        "3-4", "8-9", "Both over the last 2 steps that each has: 3–4 of new and 8–9 of old."
    )
    # GIVEN steps that both have THEN these; one that the baseline has not THEN its last one
    assert steps_alike("2-3", [1, 2, 3, 4], [2, 3], names) == Steps("2-3", "2-3")
    assert steps_alike("4", [1, 2, 3, 4], [1, 2], names).base == "2"
    # GIVEN no steps, or a range that is none THEN as asked
    assert steps_alike("", [], [1], names) == Steps("", "") and steps_alike("x", [1], [1], names) == Steps("x", "x")
