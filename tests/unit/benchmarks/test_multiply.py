"""The trace multiplier keeps copies apart and exact."""

from __future__ import annotations

import io
from pathlib import Path

from benchmarks.multiply import multiply
from benchmarks.turns import medians
from tb_sol_plugin.ingest import read
from tests.support.trace_builder import TraceBuilder


def test_three_copies_hold_three_times_everything(tmp_path: Path) -> None:
    # GIVEN a trace with a step, a linked kernel, a backward link and a module call
    t = TraceBuilder()
    t.step(7, 0, 10_001)
    t.module("Linear_0", 100, 2_000, module_id=0)
    t.op("aten::mm", 200, 500, sequence=5)
    t.launch("k", at=300, start=1_000, duration=33)
    t.op("MmBackward0", 5_000, 500, thread=9, sequence=5, forward_thread=1)
    t.forward_backward(200, 5_000, backward_thread=9)
    t.launch("kb", at=5_100, start=6_000, duration=44, thread=9)
    t.metadata("process_name", "python")
    source = t.write(tmp_path / "one.json.gz")
    # WHEN it is written three times
    text = io.StringIO()
    written = multiply(source, 3, text)
    target = tmp_path / "three.json"
    target.write_text(text.getvalue())
    # THEN every copy has its own launches, links and step, metadata stands once, and durations are exact
    c = read(str(target))
    assert written == c.facts.total_events == 3 * (len(t.events) - 1) + 1
    assert sorted(c.device["duration_ns"]) == [33, 33, 33, 44, 44, 44] and c.device["call"].nunique() == 6
    assert c.steps["number"].tolist() == [7, 8, 9] and set(c.steps["host_end_ns"] - c.steps["host_start_ns"]) == {10_001}
    assert len(c.tables["backward"]) == 3 and c.facts.devices == read(str(source)).facts.devices


def test_medians_leave_failed_runs_out() -> None:
    # GIVEN three runs, one of which failed WHEN the medians are taken THEN they are over the others
    assert medians([{"a": 1.0}, {}, {"a": 3.0}]) == {"a": 2.0} and medians([{}, {}]) == {}
