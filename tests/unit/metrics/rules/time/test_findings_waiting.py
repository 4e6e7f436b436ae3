"""Findings about time without device work: which rule takes which gap, and how much of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.metrics.rules.time.context import time_context
from tb_sol_plugin.metrics.rules.time.idle import _gaps
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import intervals as iv
from tests.support.findings import found, step
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back


def synced(*, begin: int, wait: int = 0) -> TraceBuilder:
    """A kernel [10, 390) us, `aten::item` that waits in [begin, 400) us, the next kernel [460, 1000) us, launched at 450 us."""
    t = step()
    t.op("aten::relu", 0, 5_000)
    t.launch("a", at=1_000, start=10_000, duration=380_000)
    t.op("aten::_local_scalar_dense", 100_000, 320_000)
    t.call("cudaStreamSynchronize", begin, wait or 400_000 - begin)
    t.launch("b", at=450_000, start=460_000, duration=540_000)
    return t


def test_a_host_that_waits_for_the_device_makes_the_device_wait(tmp_path: Path) -> None:
    # GIVEN a wait from 210 to 400 us over the end of a kernel at 390 us WHEN the next kernel starts at 460 us
    finding = found(synced(begin=210_000), tmp_path)["host_sync"]
    # THEN the gap of 70 us is lost, the wait is named, and the fix is about .item()
    assert finding.saving == 70_000 and "`aten::_local_scalar_dense`" in finding.evidence and ".item()" in finding.fix
    assert (finding.page, finding.query) == ("operators", {"t.operators.c.name": "aten::_local_scalar_dense"})


def test_a_wait_costs_no_more_than_its_own_length(tmp_path: Path) -> None:
    # GIVEN the same gap of 70 us, but a wait of only 20 us (380 to 400 us)
    got = found(synced(begin=380_000), tmp_path)
    # THEN 20 us come from the wait, 50 us and the 10 us before the first kernel from something else
    assert got["host_sync"].saving == 20_000 and got["host_wait"].saving == 60_000


def test_a_wait_that_ends_before_the_gap_is_not_its_cause(tmp_path: Path) -> None:
    # GIVEN a wait that returns at 310 us, while the kernel runs until 390 us
    got = found(synced(begin=210_000, wait=100_000), tmp_path)
    assert "host_sync" not in got and got["host_wait"].saving == 80_000


@pytest.mark.parametrize(("engine", "fix"), [("", "schedule("), ("step[DECODE bs=8]", "/start_profile")])
def test_the_first_launch_of_a_kernel_loads_its_code(engine: str, fix: str, tmp_path: Path) -> None:
    # GIVEN a launch of 300 ms whose kernel runs for the first time, in a step of training or an iteration of an engine
    t = TraceBuilder() if engine else step(1_000_000_000)
    if engine:
        t.annotation(engine, 0, 1_000_000_000)
    t.op("aten::relu", 0, 310_000_000)
    t.launch("a", at=0, start=300_000_000, duration=100_000_000, call_duration=300_000_000)
    t.launch("b", at=310_000_000, start=400_000_000, duration=600_000_000)
    finding = found(t, tmp_path)["warm_up"]
    assert finding.saving == 300_000_000 and fix in finding.fix and "`cudaLaunchKernel`" in finding.evidence


def test_a_later_slow_launch_is_no_first_use(tmp_path: Path) -> None:
    # GIVEN the slow launch is the kernel's second
    t = step(1_000_000_000)
    t.op("aten::relu", 0, 310_000_000)
    t.launch("a", at=0, start=1_000_000, duration=1_000_000, call_duration=10_000)
    t.launch("a", at=2_000_000, start=300_000_000, duration=100_000_000, call_duration=298_000_000)
    t.launch("b", at=310_000_000, start=400_000_000, duration=600_000_000)
    assert "warm_up" not in found(t, tmp_path)


def test_idle_time_during_allocation_from_the_driver_is_a_finding(tmp_path: Path) -> None:
    # GIVEN a cudaMalloc [100, 300) us in a gap [50, 350) us
    t = step()
    t.op("aten::empty", 90_000, 220_000)
    t.launch("a", at=0, start=0, duration=50_000)
    t.call("cudaMalloc", 100_000, 200_000)
    t.launch("b", at=330_000, start=350_000, duration=650_000)
    got = found(t, tmp_path)
    assert got["device_allocation"].saving == 200_000 and "expandable_segments" in got["device_allocation"].fix
    assert got["host_wait"].saving == 100_000


def test_a_driver_call_inside_a_runtime_call_is_no_second_call(tmp_path: Path) -> None:
    # GIVEN the same cudaMalloc with the driver's cuMemCreate inside of it
    t = step()
    t.op("aten::empty", 90_000, 220_000)
    t.launch("a", at=0, start=0, duration=50_000)
    t.call("cudaMalloc", 100_000, 200_000)
    t.call("cuMemCreate", 120_000, 100_000)
    t.launch("b", at=330_000, start=350_000, duration=650_000)
    assert "during one call to allocate" in found(t, tmp_path)["device_allocation"].evidence


def queued(gap: int, launched_before: int) -> TraceBuilder:
    """Ten kernels, one every 100 us, with `gap` ns before each; each launched `launched_before` ns before the one before it ends."""
    t = step()
    t.op("aten::relu", 0, 900_000)
    for i in range(10):
        t.launch("k", at=max(100_000 * i - gap - launched_before, 0), start=100_000 * i, duration=100_000 - gap)
    return t


def test_gaps_between_queued_kernels_are_the_devices_own(tmp_path: Path) -> None:
    # GIVEN nine gaps of 2 us, each before a kernel that was launched 50 us before
    finding = found(queued(2_000, 50_000), tmp_path)["handover"]
    assert finding.saving == 9 * 2_000 and "9 times" in finding.evidence and "2.00\u202fµs" in finding.evidence


def test_gaps_before_kernels_that_were_launched_late_are_the_hosts(tmp_path: Path) -> None:
    # GIVEN the same gaps, but each kernel launched 1 us into its gap
    got = found(queued(2_000, -1_000), tmp_path)
    assert "handover" not in got and got["launch_bound"].saving == 9 * 2_000


def test_few_late_launches_are_no_stretch(tmp_path: Path) -> None:
    # GIVEN seven short kernels with gaps of 95 us: one fewer than a graph is worth
    t = step(700_000)
    for i in range(7):
        t.op("aten::relu", 100_000 * i, 10_000)
        t.launch("k", at=100_000 * i, start=100_000 * i + 1_000, duration=5_000)
    assert set(found(t, tmp_path)) == {"host_wait"}


def test_long_gaps_are_no_launch_overhead(tmp_path: Path) -> None:
    # GIVEN ten short kernels, one every two milliseconds: the host does something else in between
    t = step(20_000_000)
    for i in range(10):
        t.op("aten::relu", 2_000_000 * i, 10_000)
        t.launch("k", at=2_000_000 * i, start=2_000_000 * i + 1_000, duration=5_000)
    assert set(found(t, tmp_path)) == {"host_wait"}


def test_a_copy_that_blocks_the_host_is_named(tmp_path: Path) -> None:
    # GIVEN a gap of 500 us, all of it inside a cudaMemcpyAsync
    t = step()
    t.op("aten::to", 0, 520_000)
    t.launch("a", at=0, start=0, duration=1_000)
    t.call("cudaMemcpyAsync", 1_000, 500_000)
    t.launch("b", at=501_000, start=501_000, duration=499_000)
    finding = found(t, tmp_path)["host_wait"]
    assert finding.saving == 500_000 and "`cudaMemcpyAsync`" in finding.evidence and "`aten::to`" in finding.evidence
    # AND without a record of its memory nothing says that it is pageable
    assert "non_blocking=True" in finding.fix and "pin_memory" not in finding.fix


def test_kernels_alone_are_no_ground_for_advice(tmp_path: Path) -> None:
    # GIVEN kernels with long gaps, and neither operators nor steps
    t = TraceBuilder()
    for i in range(20):
        t.kernel("k", 100_000 * i, 5_000)
    assert found(t, tmp_path) == {}


def test_gaps_are_found_again_only_when_idle_time_was_claimed(tmp_path: Path) -> None:
    # GIVEN two gaps: before the first kernel at 10 us, and [390, 460) us
    c = read_back(synced(begin=210_000), tmp_path)
    part = scope(c, Query())
    context = time_context(c, part, waterfall(c, part))
    first = _gaps(context)
    assert (first.stop - first.start).tolist() == [10_000, 70_000] and first.free.tolist() == [10_000, 70_000]
    # WHEN nothing is claimed THEN the same are handed out again
    assert _gaps(context) is first
    # AND WHEN the second is claimed but for its last 5 us THEN those are what is left of it
    context.ledger.take_idle(iv.one(390_000, 455_000))
    assert _gaps(context).free.tolist() == [10_000, 5_000]
