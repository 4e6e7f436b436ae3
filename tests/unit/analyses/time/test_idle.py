"""Idle time and launches, against a recording worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.critical.launches import launches
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import TimelineSection
from tests.support.captures import report
from tests.support.trace_builder import TraceBuilder

US = 1_000


@pytest.fixture(scope="module")
def gaps(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Kernels at 10-20, 100-110 (launched at 90), 115-125 (launched at 92), 125.01-130 (at 93), a collective at 160-170 (at 94) and one that
    was launched at 95 and starts at 200. Before 90: Python 20-60 with aten::mm 30-50 in it, a wait from 12 to 20.5, data loading 60-80."""
    t = TraceBuilder()
    t.frame("train.py(3): forward", 20_500, 39_500)
    t.op("aten::mm", 30 * US, 20 * US)
    t.call("cudaDeviceSynchronize", 12 * US, 8_500)
    t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 60 * US, 20 * US)
    t.op("aten::relu", 89 * US, 8 * US)
    for name, at, start, duration, stream in (
        ("first", 5_000, 10_000, 10_000, 7), ("late", 90_000, 100_000, 10_000, 7), ("queued", 92_000, 115_000, 10_000, 7),
        ("next", 93_000, 125_010, 4_990, 7), ("ncclDevKernel_AllReduce_Sum_f32_RING_LL", 94_000, 160_000, 10_000, 7),
        ("lost", 95_000, 200_000, 5_000, 7),
    ):  # fmt: skip
        t.launch(name, at=at, start=start, duration=duration, call_duration=500, stream=stream)
    return read(str(t.write(tmp_path_factory.mktemp("idle") / "w.pt.trace.json")))


def test_causes_of_idle_time(gaps: Capture) -> None:
    # GIVEN the gaps above WHEN they are explained THEN 20-100 is split by what the host did until 90, and then launch latency
    answer = report(gaps, "idle")
    causes = dict(zip(answer.table("causes")["cause"], answer.table("causes")["time_ns"], strict=True))
    assert causes == {
        "The host waited for the device": 500,  # to 20.5
        "Python": 19_500,  # 20.5 to 30 and 50 to 60
        "Operators on the host": 20_000 + 1_000,  # 30 to 50, 89 to 90
        "Data loading": 20_000,  # 60 to 80
        "Other host code": 9_000,  # 80 to 89
        "Launch latency": 10_000,  # 90 to 100
        "Hand-over between kernels": 10,
        "Start of a collective": 30_000,  # 130 to 160
        "No recorded cause": 5_000 + 30_000,  # 110 to 115, 170 to 200
    }
    assert answer.facts["idle_ns"] == sum(causes.values()) == int(answer.table("gaps")["duration_ns"].sum()) == 145_010
    assert answer.facts["host_ns"] == 70_000 and answer.facts["gaps"] == 5
    # AND the timeline shows the longest gap among the others, with what held the device up
    shown = answer.section("stretch")
    assert isinstance(shown, TimelineSection) and shown.path and (15_000, 95_000) in [(s, e) for s, e, _ in shown.highlight]


def test_causes_by_step_and_user_range(tmp_path: Path) -> None:
    # GIVEN a step in which Python holds a kernel up for 20, another one with 40 of it inside of a range, and a kernel after both WHEN causes
    # are added up by step or range THEN a gap is of that of the work that ends it, and all are the idle time
    t = TraceBuilder()
    t.step(1, 0, 100 * US)
    t.step(2, 100 * US, 100 * US)
    t.annotation("forward", 130 * US, 30 * US)
    for at, start in ((5, 10), (25, 30), (140, 150), (230, 240)):
        t.launch("k", at=at * US, start=start * US, duration=10 * US, call_duration=500)
    capture = read(str(t.write(tmp_path / "w.pt.trace.json")))
    whole = report(capture, "idle").facts["idle_ns"]
    found = {}
    for by in ("step", "phase"):
        table = report(capture, "idle", by=by).table("causes")
        assert int(table["time_ns"].sum()) == whole and table["share"].sum() == pytest.approx(1.0)
        found[by] = table.groupby(table["group"].fillna("-"))["time_ns"].sum().to_dict()
    assert found == {"step": {"1": 10 * US, "2": 110 * US, "-": 80 * US}, "phase": {"ProfilerStep#1": 10 * US, "forward": 110 * US, "-": 80 * US}}
    assert "group" not in report(capture, "idle").table("causes")


def test_a_stream_and_its_queue(gaps: Capture) -> None:
    # GIVEN launches at 5, 90, 92, 93, 94, 95 and starts at 10, 100, 115, 125.01, 160, 200 THEN up to five wait: from 95 to 100
    row = report(gaps, "idle").table("streams").iloc[0]
    assert row["stream"] == "device 0, stream 7" and row["queue_max"] == 5 and row["empty_ns"] == 80_000  # from 10 to 90
    waited = 5_000 + 10_000 + 23_000 + 32_010 + 66_000 + 105_000
    assert row["queue_mean"] == pytest.approx(waited / 195_000)
    assert row[["host_wait", "kernel_wait", "other", "unknown"]].tolist() == [80_000, 10, 65_000, 0]


def test_a_longer_hand_over(gaps: Capture) -> None:
    answer = report(gaps, "idle", kernel_wait_ns="6000")
    causes = dict(zip(answer.table("causes")["cause"], answer.table("causes")["time_ns"], strict=True))
    assert causes["Hand-over between kernels"] == 5_010


def test_launches(gaps: Capture) -> None:
    # GIVEN the launches above THEN two of six find an idle stream, with delays of 5 and 10 µs; queues at the calls are 0, 0, 1, 2, 3, 4
    answer = report(gaps, "launches")
    row = answer.table("calls").iloc[0]
    assert (row["name"], row["count"], row["call_ns"], row["device_ns"]) == ("cudaLaunchKernel", 6, 3_000, 49_990)
    assert row["delay_ns"] == answer.facts["delay_ns"] == 7_500
    assert row["queue_length"] == pytest.approx(10 / 6) and row["blocked_ns"] == 0 and answer.facts["queue_max"] == 4
    by = report(gaps, "launches", by="operator").table("calls").set_index("name")
    assert by["count"].to_dict() == {"aten::relu": 5, "(no operator)": 1}


def test_launches_by_user_range(tmp_path: Path) -> None:
    # GIVEN a launch in two ranges, one in the outer alone, and one in none THEN each counts for the innermost
    t = TraceBuilder()
    t.annotation("forward", 0, 100 * US)
    t.annotation("layer", 10 * US, 30 * US)
    for at in (20, 60, 200):
        t.launch("k", at=at * US, start=(at + 10) * US, duration=5 * US)
    calls = report(read(str(t.write(tmp_path / "w.pt.trace.json"))), "launches", by="annotation").table("calls").set_index("name")
    assert calls["count"].to_dict() == {"layer": 1, "forward": 1, "(no range)": 1} and set(calls["device_ns"]) == {5 * US}


def test_work_that_starts_before_its_launch_has_no_delay(tmp_path: Path) -> None:
    # GIVEN launches of which two start their work before the call, by clocks that differ WHEN asked THEN their delay is unknown, never 0
    t = TraceBuilder()
    for i, delay in enumerate((40, -30, 60, -10)):
        t.launch(f"k{i}", at=500 * US * (i + 1), start=500 * US * (i + 1) + delay * US, duration=20 * US, call_duration=500)
    capture = read(str(t.write(tmp_path / "w.pt.trace.json")))
    found = launches(capture, np.ones(len(capture.device), np.bool_))
    assert found["delay_ns"].tolist() == [40 * US, -1, 60 * US, -1]
    row = report(capture, "launches").table("calls").iloc[0]
    assert (row["wait_ns"], row["delay_ns"]) == (50 * US, 50 * US)
