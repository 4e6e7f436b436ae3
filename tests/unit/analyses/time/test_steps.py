"""The page of the steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest

import tb_sol_plugin as sol
from tb_sol_plugin.ingest import read
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import Report, TableSection, encode
from tests.support.sol_builder import CUDA, SolBuilder
from tests.support.trace_builder import TraceBuilder

PARTS = ["kernel_ns", "memcpy_ns", "memset_ns", "communication_ns", "runtime_ns", "dataloader_ns", "cpu_exec_ns", "other_ns"]


def recording(*, complete=(True, True, False)) -> Capture:
    """Steps 5, 6, 7 of 100, 200 and 50 ns; kernels [10,60) and [100,250); a launch call [60,90) and [300,310)."""
    return Capture(
        Facts("test", "x.json", 0, vendor="nvidia", extent_ns=(0, 350)),
        {
            "host": S.HOST.frame({"name": ["cudaLaunchKernel"] * 2, "kind": [S.CALL] * 2, "start_ns": [60, 300], "duration_ns": [30, 10]}),
            "device": S.DEVICE.frame({"kind": [S.KERNEL] * 2, "start_ns": [10, 100], "duration_ns": [50, 150], "step": [0, 1]}),
            "steps": S.STEPS.frame({
                "number": [5, 6, 7], "host_start_ns": [0, 100, 300], "host_end_ns": [100, 290, 350], "start_ns": [0, 100, 300],
                "end_ns": [100, 300, 350], "device_events": [1, 1, 0], "complete": list(complete),
            }),
        },
    )  # fmt: skip


def test_rows_add_up_and_the_average_is_over_complete_steps():
    report = recording().analyze("steps")
    table = report.table("steps")
    assert table["step"].tolist() == [5, 6, 7] and table["complete"].tolist() == [True, True, False]
    assert (table[PARTS].sum(axis=1) == table["duration_ns"]).all()
    assert table["kernel_ns"].tolist() == [50, 150, 0] and table["runtime_ns"].tolist() == [30, 0, 10]
    # average of 100 and 200 ns; kernels 50 and 150
    total = report.section("steps").total
    assert (total["step"], total["duration_ns"], total["kernel_ns"], total["runtime_ns"]) == ("average of 2 complete steps", 150, 100, 15)
    assert sum(total[p] for p in PARTS) == 150
    assert report.facts["device_share"] == pytest.approx(100 / 150)
    assert [report.facts[n] for n in ("steps", "complete_steps", "fastest_ns", "slowest_ns")] == [3, 2, 100, 200]
    assert report.headline.replace("\u202f", " ") == (
        "A step takes **150 ns**, average of 2 complete steps: 66.7 % kernels, 23.3 % nothing recorded, 10.0 % runtime calls."
    )


def test_of_many_steps_the_figure_draws_the_shortest_and_longest_of_each_stretch():
    # GIVEN 5,000 steps of 100 ns, one of 900 and one of 7 WHEN drawn THEN a bounded number of bars, those two among them, and words for it
    long = np.full(5000, 100)
    long[[1234, 4321]] = 900, 7
    end = np.cumsum(long)
    steps = {"number": np.arange(5000), "host_start_ns": end - long, "host_end_ns": end, "start_ns": end - long, "end_ns": end}
    tables = {
        "host": S.HOST.frame({"name": ["cudaLaunchKernel"], "kind": [S.CALL], "start_ns": [0], "duration_ns": [3]}),
        "steps": S.STEPS.frame({**steps, "device_events": [0] * 5000, "complete": [True] * 5000}),
    }
    report = Capture(Facts("test", "x.json", 0, vendor="nvidia", extent_ns=(0, int(end[-1]))), tables).analyze("steps")
    bars = report.figure("bars").data
    drawn = bars[0].x
    assert len(drawn) <= 1000 and {"0", "1234", "4321", "4999"} <= set(drawn) and len(report.table("steps")) == 5000
    assert {sum(b.y[list(drawn).index(n)] for b in bars) for n in ("1234", "4321")} == {900, 7}
    said = report.section("bars").subtitle.replace("\u202f", " ")
    assert said.endswith(f"the shortest and longest of each stretch, {len(drawn)} of 5 000")
    assert report.section("bars").summary == "The longest is step 1234, 900\u202fns."


def test_an_incomplete_step_stays_and_is_marked():
    report = recording().analyze("steps")
    section = report.section("steps")
    assert isinstance(section, TableSection) and section.marks["step"]["2"].state == "incomplete"
    assert report.notices[0].text == "Step 7 is incomplete: shown, and left out of the average."


def test_one_step_is_shown_alone():
    report = recording().analyze("steps", step="6")
    assert report.table("steps")["step"].tolist() == [6] and report.facts["duration_ns"] == 200
    assert report.headline.startswith("A step takes **200\u202fns**: 75.0")


def test_only_incomplete_steps_are_averaged_with_a_warning():
    report = recording(complete=(False, False, False)).analyze("steps")
    assert report.notices[0].level == "warn" and report.section("steps").total["step"] == "average of 3 incomplete steps"


def test_without_steps_the_whole_trace_is_one():
    # GIVEN a recording of runtime calls only, as one pseudo-step
    capture = Capture(Facts("test", "x", 0, pseudo_step=True, extent_ns=(0, 1629)), {
        "host": S.HOST.frame({"name": ["cudaLaunchKernel"], "kind": [S.CALL], "start_ns": [0], "duration_ns": [100]}),
        "device": S.DEVICE.frame({"kind": [S.KERNEL], "start_ns": [1599], "duration_ns": [30], "step": [0]}),
        "steps": S.STEPS.frame({
            "number": [-1], "host_start_ns": [0], "host_end_ns": [1629], "start_ns": [0], "end_ns": [1629],
            "device_events": [1], "complete": [True],
        }),
    })  # fmt: skip
    report = capture.analyze("steps")
    table = report.table("steps")
    assert table["step"].tolist() == ["whole trace"] and table["duration_ns"].tolist() == [1629] and table["kernel_ns"].tolist() == [30]
    assert report.facts["steps"] == 0 and "No ProfilerStep" in report.notices[0].text
    assert report.headline.startswith("The whole trace takes **1.63")


def test_an_empty_recording_is_unavailable():
    report = Capture(Facts("test", "x", 0), {}).analyze("steps")
    assert not report.available and "no event with a duration" in report.because


def test_everything_is_declared_and_drawable():
    report = recording().analyze("steps")
    encode(report)
    assert set(report.facts) <= {f.name for f in get("steps").facts}
    figure = go.Figure(report.section("bars").figure)
    assert [t.name for t in figure.data] == ["Kernels", "Runtime calls", "Other"]
    assert sum(sum(t.y) for t in figure.data) == pytest.approx(350)


def test_limit_and_utilization_of_each_step(tmp_path):
    # GIVEN two steps of 1 ms, each with a 4096 cubed BF16 product: 500 us in the first, 250 us in the second
    t = TraceBuilder()
    for i, time in enumerate((500_000, 250_000)):
        zero = 2_000_000 * i
        t.step(i + 1, zero, 1_000_000)
        t.op("aten::mm", zero + 100, 900, shapes=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
        t.launch("gemm", at=zero + 200, start=zero + 10_000, duration=time)
    c = read(str(t.write(tmp_path / "t.pt.trace.json")))
    report = c.analyze("steps")
    table = report.table("steps")
    limit = 2 * 4096**3 / 989.4e12 * 1e9
    # THEN each has the limit of its product, 138.9 us, and reaches that over its millisecond; MFU is the same here
    assert table["sol_ns"].tolist() == [round(limit)] * 2 and table["duration_ns"].tolist() == [1_000_000] * 2
    assert table["sol_ratio"].tolist() == pytest.approx([limit / 1e6] * 2) == table["mfu"].tolist() == table["hfu"].tolist()
    assert table["bandwidth_utilisation"].tolist() == pytest.approx([3 * 2 * 4096**2 / (1e-3 * 3350e9)] * 2)
    assert report.facts["sol_ns"] == round(limit) and report.facts["sol_ratio"] == pytest.approx(limit / 1e6)
    assert "at the limits of the device" in report.headline
    # AND one step alone says the same of itself
    assert c.analyze("steps", step="2").facts["sol_ns"] == round(limit)


def test_without_limits_a_step_has_none_and_no_zero():
    report = recording().analyze("steps")
    assert report.facts["sol_ns"] is None and report.table("steps")["sol_ratio"].isna().all()
    shown = {c.name: c.rank for c in report.section("steps").columns}
    assert shown["sol_ns"] == shown["sol_ratio"] == 3


def test_the_sampled_steps_of_a_sol_capture_have_a_limit_and_no_parts(tmp_path: Path) -> None:
    # GIVEN a SOL capture of an H100 whose steps 1, 5 and 10 do 4.947 TFLOP in BF16 (5 ms at 989.4 TFLOP/s) and take 10 ms
    b = SolBuilder(device=CUDA, time_source="event")
    mm = b.sig("aten::mm", [[8, 8], [8, 8]], types=["c10::BFloat16"] * 2, flop=4.947e12, bytes=1e6, dtype="bf16")
    for number in range(11):
        b.iteration(number, number * 10_000_000, 10_000_000, rows=[b.row(mm)] if number in (0, 1, 5, 10) else None)
    # WHEN the page is made
    report = sol.open_capture(str(b.write(tmp_path / b.name)), cache=False).analyze("steps")
    assert isinstance(report, Report)
    # THEN each has its length and its limit, what needs events is unknown and not zero, and the page says what these steps are
    frame = report.table("steps")
    assert frame["step"].tolist() == [1, 5, 10] and frame["duration_ns"].tolist() == [10_000_000] * 3
    assert frame["sol_ns"].tolist() == [5_000_000] * 3 and frame["mfu"].tolist() == pytest.approx([0.5] * 3)
    assert frame[["kernel_ns", "cpu_exec_ns", "other_ns", "device_share", "device_events"]].isna().all().all()
    assert report.facts["sol_ratio"] == pytest.approx(0.5) and report.facts["device_share"] is None
    assert report.headline.startswith("A sampled step takes") and [n.link.analysis for n in report.notices if n.link] == ["iterations"]
    assert [s.id for s in report.sections] == ["bars", "facts", "steps"]
