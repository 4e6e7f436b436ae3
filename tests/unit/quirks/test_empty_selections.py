"""Selections that hold nothing, and clocks that make no sense: every analysis answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.model.registry import registry
from tests.support.captures import report
from tests.support.check_capture import check_capture, is_contract_shaped
from tests.support.trace_builder import Raw, TraceBuilder


@pytest.mark.parametrize("name", list(registry()))
def test_an_empty_step_of_no_length_is_answered(tmp_path: Path, name: str) -> None:
    # GIVEN step 1 of length 0 before an operator with a module and a kernel that belong to no step
    t = TraceBuilder()
    t.step(1, 0, 0)
    t.module("Linear_0", 1_000, 3_000, module_id=0)
    t.op("aten::mm", 1_200, 2_000, shapes=[[8, 4], [4, 2]], types=["float", "float"])
    t.launch("gemm", at=1_500, start=4_000, duration=700)
    c = read(str(t.write(tmp_path / "w.1.pt.trace.json")))
    # WHEN the whole and the step alone are analyzed THEN each answers in the contract's shape
    for query in ({}, {"step": "1"}):
        is_contract_shaped(name, c.analyze(name, **query))


def test_events_decades_apart_are_answered(tmp_path: Path) -> None:
    # GIVEN one kernel at the clock's zero and one 53 years later: what a recorder writes that lost its base time once
    t = TraceBuilder(base_ns=None, origin_ns=0)
    for thread in range(8):
        t.op(f"aten::op{thread}", 1_700_000_000_000_000_000 + 10 * thread, 5, thread=100 + thread)
    t.kernel("early", 0, 40, device=0)
    t.kernel("late", 1_700_000_000_000_000_000, 60, device=0)
    # WHEN it is read and analyzed THEN all invariants hold, the window is that of the others, and the early one is counted
    c = check_capture(t.write(tmp_path / "w.1.pt.trace.json"), tmp_path / "cache")
    whole = report(c, "gpu_breakdown").table("devices").iloc[0]
    assert int(whole["busy_ns"]) == 60 and int(whole["total_ns"]) < 100
    assert "time of another clock" in set(c.tables["issues"]["reason"].astype(str))


def test_times_no_clock_shows_are_counted_and_left_out(tmp_path: Path) -> None:
    # GIVEN two kernels whose times are 292 years apart, of which neither lies within 73 years of the clock's zero
    t = TraceBuilder()
    t.op("aten::mm", 0, 100)
    for ts in ("9000000000000000", "-9000000000000000"):
        t.kernel("lost", 0, 40)["ts"] = Raw(ts)
    # WHEN it is read THEN they are counted and in no sum
    c = check_capture(t.write(tmp_path / "w.1.pt.trace.json"), tmp_path / "cache")
    issues = c.tables["issues"].astype({"reason": str}).set_index("reason")["count"]
    assert issues["time out of range"] == 2 and len(c.device) == 0
