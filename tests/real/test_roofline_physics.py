"""The roofline of every recording obeys arithmetic: nothing is lost, nothing is counted twice, nothing unflagged beats its limit."""

from __future__ import annotations

from typing import get_args

import pytest

from tb_sol_plugin.metrics.work.rows import By
from tb_sol_plugin.model.report import FigureSection, Report, TableSection
from tests.support.captures import alone, answered
from tests.support.recordings import HANDED_IN, SAMPLES, over, path_of


@over(HANDED_IN, SAMPLES)
def test_a_roofline_loses_nothing_and_nothing_beats_its_limit_unflagged(name: str) -> None:
    capture = alone(path_of(name))
    found = answered(capture, "roofline")
    if not isinstance(found, Report):
        pytest.skip(found.because)
    facts, table, kinds = found.facts, found.table("ops"), found.table("kinds")
    whole = int(capture.device["duration_ns"].clip(lower=0).sum()) if len(capture.device) else None
    # every nanosecond of the device stands in the table of kinds once
    assert facts["device_ns"] == whole
    assert whole is None or kinds["device_ns"].sum() == whole
    # no row without a flag is faster than its limit, and flags are never clamped away
    efficiency = table["efficiency"].astype(float)
    fast = efficiency > 1.02
    assert table.loc[fast, "flags"].str.contains("above limit").all()
    assert not table.loc[~fast, "flags"].str.contains("above limit").any()
    assert (table.loc[fast, "cause"].str.len() > 0).all()
    # the limits of unflagged rows take at most as long as these rows ran
    plain = table[efficiency.notna() & ~fast]
    above = plain["wasted_ns"].astype(float)
    assert (above >= -0.02 / 1.02 * plain["measured_ns"].astype(float) - 1).all()
    # a limit is at least the larger of its two summed sides, and at most both together
    limited = table[table["sol_ns"].notna() & table["memory_ns"].notna() & table["compute_ns"].notna()].astype(
        dict.fromkeys(("sol_ns", "memory_ns", "compute_ns"), float)
    )
    sides = limited[["compute_ns", "memory_ns"]]
    assert (limited["sol_ns"] >= sides.max(axis=1) - 1).all() and (limited["sol_ns"] <= sides.sum(axis=1) + 2).all()
    # every point of the chart is a row, and its note lies on it
    figure, rows = found.section("roofline"), found.section("ops")
    assert isinstance(figure, FigureSection) and isinstance(rows, TableSection)
    assert set(figure.notes) <= set(rows.data["id"])
    keys = [key for trace in figure.figure["data"] for key in trace.get("customdata", [])]  # type: ignore[attr-defined]
    assert sorted(keys) == sorted(figure.notes)
    # however rows are made, they hold the same time and work
    for by in get_args(By):
        other = answered(capture, "roofline", by=by)
        assert isinstance(other, Report)
        assert other.facts == facts
        ops = other.table("ops")
        assert ops["id"].is_unique, by
        assert abs(ops["flop"].astype(float).sum() - table["flop"].astype(float).sum()) <= 1e-6 * (facts["total_flop"] or 1) + len(ops)
        if by != "kernel":
            assert ops["measured_ns"].sum() == table["measured_ns"].sum(), by
