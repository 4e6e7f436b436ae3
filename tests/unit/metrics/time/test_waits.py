"""Gaps of the device by cause: launching, blocked, neither."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.metrics.time.breakdown import HAND_OVER_NS, LAUNCH_NS, waits
from tb_sol_plugin.tables import intervals as iv
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back


def causes(t: TraceBuilder, folder: Path) -> tuple[int, int]:
    found = waits(read_back(t, folder))
    assert iv.length(iv.intersect(found.launch, found.blocked)) == 0
    return iv.length(found.launch), iv.length(found.blocked)


def two_kernels(gap: int, launched: int) -> TraceBuilder:
    """A kernel [10, 20) us and one that starts `gap` after it, launched at `launched`; the step ends with it."""
    t = TraceBuilder()
    t.step(1, 0, 20_000 + gap + 5_000)
    t.launch("a", at=0, start=10_000, duration=10_000)
    t.launch("b", at=launched, start=20_000 + gap, duration=5_000)
    return t


def test_a_gap_until_the_next_launch_is_a_launch_gap(tmp_path: Path) -> None:
    # GIVEN a gap of 50 us whose kernel is launched 40 us into it, and 10 us before the first kernel, launched at once
    assert causes(two_kernels(50_000, 60_000), tmp_path) == (60_000, 0)


@pytest.mark.parametrize(("gap", "launch"), [(HAND_OVER_NS, 10_000 + HAND_OVER_NS), (HAND_OVER_NS + 1_000, 10_000)])
def test_a_launched_kernel_starts_within_a_hand_over(tmp_path: Path, gap: int, launch: int) -> None:
    # GIVEN a second kernel that was launched long before the first one ended THEN only a short gap is launching
    assert causes(two_kernels(gap, 5_000), tmp_path) == (launch, 0)


@pytest.mark.parametrize(("gap", "launch"), [(LAUNCH_NS, 10_000 + LAUNCH_NS), (LAUNCH_NS + 1_000, 10_000)])
def test_no_launch_takes_longer_than_a_millisecond(tmp_path: Path, gap: int, launch: int) -> None:
    assert causes(two_kernels(gap, 20_000 + gap - 2_000), tmp_path) == (launch, 0)


def test_a_gap_after_a_wait_for_the_device_is_blocked(tmp_path: Path) -> None:
    # GIVEN the host in cudaStreamSynchronize when the first kernel ends
    t = two_kernels(50_000, 60_000)
    t.call("cudaStreamSynchronize", 12_000, 10_000)
    # THEN the whole gap follows from it
    assert causes(t, tmp_path) == (10_000, 50_000)


def test_a_gap_that_passes_in_an_allocation_is_blocked(tmp_path: Path) -> None:
    t = two_kernels(50_000, 60_000)
    t.call("cudaMalloc", 25_000, 30_000)
    assert causes(t, tmp_path) == (10_000, 50_000)


def test_the_end_of_a_recording_has_no_cause(tmp_path: Path) -> None:
    # GIVEN 30 us of the step after the last kernel
    t = TraceBuilder()
    t.step(1, 0, 50_000)
    t.launch("a", at=0, start=10_000, duration=10_000)
    assert causes(t, tmp_path) == (10_000, 0)


def test_without_a_device_there_is_no_gap_to_explain(tmp_path: Path) -> None:
    t = TraceBuilder(device="")
    t.step(1, 0, 1_000)
    assert causes(t, tmp_path) == (0, 0)
