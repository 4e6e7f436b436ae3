"""A recording that begins in the middle of a step: the rest of that step is in no number per step, and in every sum over everything."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.captures import report
from tests.support.check_capture import check_capture
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

MS = 1_000_000
FLOP = 2 * 4096**3
"""Of one step: a product of 4096 x 4096 matrices."""
PEAK = 132 * 4096 * 1830e6
"""bfloat16 operations of an H100 SXM per second, to four digits."""
NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Three steps of 1 ms on the host and 10 ms on the device: 8 of one product, then 2 of an all-reduce. The device still has 15 ms of
    the step before the recording: a product of 8 ms, an all-reduce of 6 ms, a copy of 1 ms; their launches were not recorded."""
    t = TraceBuilder()
    t.call("cudaStreamIsCapturing", 10, 5)
    t.kernel("sm90_gemm", 0, 8 * MS, correlation=40)
    t.kernel(NCCL, 8 * MS, 6 * MS, correlation=41, stream=20)
    t.copy("DtoD", 14 * MS, 1 * MS, bytes=1_000_000, correlation=42)
    for n in range(3):
        host, device = n * MS, (15 + 10 * n) * MS
        t.step(n, host, MS)
        t.annotation("forward", host + 1_000, 900_000)
        t.op("aten::mm", host + 2_000, 100_000, shapes=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16"] * 2)
        t.launch("sm90_gemm", at=host + 3_000, start=device, duration=8 * MS)
        t.launch(NCCL, at=host + 500_000, start=device + 8 * MS, duration=2 * MS, stream=20)
    folder = tmp_path_factory.mktemp("cut")
    return check_capture(t.write(folder / "w.1.pt.trace.json"), folder / "cache")


def test_every_step_has_the_work_that_it_launched(cut: Capture) -> None:
    # WHEN split into parts THEN the first step is like the others: 8 ms of kernels, 2 of communication, no copy
    found = report(cut, "steps")
    table = found.table("steps")
    assert table["duration_ns"].tolist() == [10 * MS] * 3 and table["start_ns"].tolist() == [15 * MS, 25 * MS, 35 * MS]
    assert table["kernel_ns"].tolist() == [8 * MS] * 3 and table["communication_ns"].tolist() == [2 * MS] * 3
    assert found.facts["duration_ns"] == found.facts["slowest_ns"] == 10 * MS and found.facts["memcpy_ns"] == 0
    # AND what is left out is counted and said
    assert (found.facts["before_ns"], found.facts["before_events"]) == (15 * MS, 3)
    assert [n.text.replace("\u202f", " ") for n in found.notices] == [
        "3 device events (15.00 ms) were launched before the recording began. "
        "The first step begins when that work ends; it is in no step and in no number per step."
    ]


def test_all_pages_agree_on_utilization_and_limits_of_a_step(cut: Capture) -> None:
    # GIVEN one product per step THEN its work over 10 ms is the utilization everywhere: the product before the recording is no step's work
    mfu = FLOP / (10e-3 * PEAK)
    for page in ("steps", "overview", "roofline"):
        assert report(cut, page).facts["mfu"] == pytest.approx(mfu, rel=1e-4), page
    limit = FLOP / PEAK * 1e9
    assert report(cut, "steps").table("steps")["sol_ns"].tolist() == [pytest.approx(limit, rel=1e-4)] * 3
    for page in ("steps", "overview", "whatif"):
        assert report(cut, page).facts["sol_ns"] == pytest.approx(limit, rel=1e-4), page
    assert report(cut, "overview").facts["step_ns"] == report(cut, "whatif").facts["step_ns"] == 10 * MS


def test_exposed_communication_per_step_is_that_of_the_steps(cut: Capture) -> None:
    # GIVEN 2 ms of exposed communication in each of three steps and 6 ms before them
    split = waterfall(cut, scope(cut, Query()))
    assert (split.total_ns, split.exposed_communication_ns, split.exposed_copies_ns) == (30 * MS, 6 * MS, 0)
    finding = next(f for f in report(cut, "findings").table("findings").itertuples() if f.rule == "exposed_communication")
    assert finding.saving_ns == 2 * MS
    assert "exposed comm. 2.00\u202fms" in next(s.summary for s in report(cut, "phases").sections if s.id == "average")


def test_a_step_chosen_alone_has_none_of_the_work_before(cut: Capture) -> None:
    # WHEN the first step is chosen THEN its device work is its own, and the work before it is still counted apart
    chosen = report(cut, "gpu_breakdown", step="0")
    assert (chosen.facts["device_events"], chosen.facts["total_ns"], chosen.facts["utilization"]) == (2, 10 * MS, 1.0)
    assert report(cut, "steps", step="0").facts["before_events"] == 3
    # AND a later step knows nothing of it
    assert report(cut, "steps", step="1").facts["before_events"] is None and not report(cut, "steps", step="1").notices


def test_sums_over_everything_still_hold_all_work(cut: Capture) -> None:
    # GIVEN 15 ms of earlier work and three steps of 10 ms, one after the other
    whole = report(cut, "gpu_breakdown").facts
    assert (whole["total_ns"], whole["busy_ns"], whole["device_events"], whole["unlinked_device_events"]) == (45 * MS, 45 * MS, 9, 3)
    assert (whole["computation_ns"], whole["communication_ns"], whole["memcpy_ns"]) == (32 * MS, 12 * MS, MS)
    assert whole["utilization"] == 1.0


def test_phases_per_step_leave_the_work_before_out(cut: Capture) -> None:
    # WHEN summed THEN the work before the recording is a row of its own; per step it is not there, and the phases are a third of the sums
    sums, each = (report(cut, "phases", per=per).table("phases").set_index("name") for per in ("all", "step"))
    assert sums["device_ns"].to_dict() == {"ProfilerStep": 30 * MS, "forward": 30 * MS, "(launched before the window)": 15 * MS}
    assert each["device_ns"].to_dict() == {"ProfilerStep": 10 * MS, "forward": 10 * MS}


def test_a_step_that_ends_before_it_launches_anything_is_in_no_number_per_step(tmp_path: Path) -> None:
    # GIVEN two steps with 0.9 ms of `forward` and 2 ms of device work each, and a third of 10 us, in which the recording ends
    t = TraceBuilder()
    for n in range(2):
        t.step(n, 3 * n * MS, 3 * MS)
        t.annotation("forward", 3 * n * MS + 1_000, 900_000)
        t.launch("k", at=3 * n * MS + 3_000, start=(3 * n + 1) * MS, duration=2 * MS)
    t.step(2, 6 * MS, 10_000)
    answer = report(read_back(t, tmp_path), "phases", per="step")
    # THEN the headline, the table and the count of steps are those of the first two
    assert "900.0\u202fµs on the host for 2.00\u202fms of device work per step" in answer.headline
    assert answer.facts["steps"] == 2 and answer.facts["ranges"] == 5
    row = answer.table("phases").set_index("path").loc["ProfilerStep/forward"]
    assert (row["count"], row["host_ns"], row["device_ns"]) == (1, 900_000, 2 * MS)
