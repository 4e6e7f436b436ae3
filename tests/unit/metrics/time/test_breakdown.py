"""The eight numbers of a device, by hand and as parts of a whole."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin.metrics.time import breakdown
from tb_sol_plugin.metrics.time import breakdown as B
from tb_sol_plugin.metrics.time.breakdown import HAND_OVER_NS, LAUNCH_NS, waits
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import intervals as iv
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

K, C, M = S.KERNEL, S.MEMCPY, S.MEMSET


def capture_of(columns, **more) -> Capture:
    return Capture(Facts("test", "x.json", 0, **more), {"device": S.DEVICE.frame(columns)})


@pytest.fixture
def two_devices() -> Capture:
    """Device 0: gemm [0,40), collective [30,60), peer kernel [60,70), copy [50,90), memset [100,110), copy kernel [110,120).
    Device 1: one gemm [200,230) launched before the window. Window [0,250)."""
    return capture_of(
        {
            "kind": [K, K, K, C, M, K, K],
            "device": [0, 0, 0, 0, 0, 0, 1],
            "start_ns": [0, 30, 60, 50, 100, 110, 200],
            "duration_ns": [40, 30, 10, 40, 10, 10, 30],
            "communication": [False, True, True, False, False, False, False],
            "communication_narrow": [False, True, False, False, False, False, False],
            "copy_kernel": [False, False, False, False, False, True, False],
            "link": [S.BY_CORRELATION] * 5 + [S.BY_FLOW, S.BEFORE_WINDOW],
        },
        extent_ns=(0, 250),
    )


def row(frame, name):
    return frame[frame["device"] == name].iloc[0]


def test_the_breakdown_of_a_device_by_hand(two_devices):
    frame = B.breakdown(two_devices, scope(two_devices, Query()))
    assert frame["device"].tolist() == ["all", "0", "1"]
    # computation [0,40) + memset [100,110) = 50; communication [30,70) = 40, of it [30,40) behind computation;
    # copies [50,90) + [110,120) = 50, of them [50,70) behind communication; busy [0,90) + [100,120)
    zero = row(frame, "0")
    assert zero["computation_ns"] == 50
    assert (zero["communication_ns"], zero["exposed_communication_ns"], zero["overlap_ns"]) == (40, 30, 10)
    assert (zero["memcpy_ns"], zero["exposed_memcpy_ns"]) == (50, 30)
    assert (zero["busy_ns"], zero["total_ns"], zero["idle_ns"]) == (110, 120, 10)
    # the row `all` is the union on one clock: [0,90) [100,120) [200,230) of [0,230)
    everything = row(frame, "all")
    assert (everything["busy_ns"], everything["total_ns"], everything["idle_ns"]) == (140, 230, 90)
    assert everything["utilization"] == pytest.approx(140 / 250)
    # kernels are [0,70) [110,120) [200,230)
    assert everything["kernel_ns"] == 110 and everything["kernel_utilization"] == pytest.approx(110 / 250)


def test_the_narrow_rule_counts_a_peer_kernel_as_computation(two_devices):
    zero = row(B.breakdown(two_devices, scope(two_devices, Query()), rule="narrow"), "0")
    # communication is [30,60); the peer kernel [60,70) joins computation: 40 + 10 + 10
    assert (zero["communication_ns"], zero["computation_ns"], zero["exposed_communication_ns"]) == (30, 60, 20)
    assert zero["busy_ns"] == 110


def test_linked_leaves_out_what_was_launched_before_the_window(two_devices):
    frame = B.breakdown(two_devices, scope(two_devices, Query()), only_linked=True)
    assert frame["device"].tolist() == ["all", "0"]
    assert row(frame, "all")["total_ns"] == 120


EVENT = st.tuples(st.sampled_from([K, C, M]), st.integers(0, 1), st.integers(0, 60), st.integers(0, 20), st.booleans(), st.booleans())
EVENTS = st.lists(EVENT, max_size=14)


@settings(max_examples=50)
@given(EVENTS)
def test_parts_add_up_for_any_events(events):
    # GIVEN any device events WHEN they are taken apart
    kind, device, start, duration, communication, copy = (list(c) for c in zip(*events, strict=True)) if events else ([],) * 6
    capture = capture_of({
        "kind": kind, "device": device, "start_ns": start, "duration_ns": duration, "communication": communication, "copy_kernel": copy,
    })  # fmt: skip
    frame = B.breakdown(capture, scope(capture, Query()))
    # THEN busy is the sum of its exclusive parts, total is busy and idle, and communication splits in two
    assert (frame["busy_ns"] == frame["computation_ns"] + frame["exposed_communication_ns"] + frame["exposed_memcpy_ns"]).all()
    assert (frame["total_ns"] == frame["busy_ns"] + frame["idle_ns"]).all() and (frame["idle_ns"] >= 0).all()
    assert (frame["communication_ns"] == frame["overlap_ns"] + frame["exposed_communication_ns"]).all()


def test_time_per_bin_adds_up_to_the_window(two_devices):
    rows = np.ones(7, bool)
    found = B.use_over_time(B.layers(two_devices, rows), (0, 230), 7)
    assert {len(column) for column in found.values()} == {7}
    busy = sum(int(found[name].sum()) for name in ("computation_ns", "exposed_communication_ns", "exposed_memcpy_ns"))
    assert busy == 140 and busy + int(found["idle_ns"].sum()) == 230
    assert found["start_ns"][0] == 0 and found["end_ns"][-1] == 230


def test_multiprocessor_figures_by_hand():
    # GIVEN half a block per SM over [0,40), two over [20,30), a kernel without the figure; window [0,100)
    capture = capture_of({
        "kind": [K, K, K], "start_ns": [0, 20, 60], "duration_ns": [40, 10, 10],
        "blocks_per_sm": [0.5, 2.0, np.nan], "occupancy_pct": [30.0, 90.0, np.nan],
    }, extent_ns=(0, 100))  # fmt: skip
    everything = row(B.breakdown(capture, scope(capture, Query())), "all")
    # THEN 0.5 * 30 + 1 * 10 = 25 of 100; occupancy (30 * 40 + 90 * 10) / 50
    assert everything["sm_efficiency"] == pytest.approx(0.25)
    assert everything["occupancy_pct"] == pytest.approx(42.0)


def test_figures_that_were_not_recorded_are_unknown_not_zero():
    capture = capture_of({"kind": [K], "start_ns": [0], "duration_ns": [5]})
    everything = row(B.breakdown(capture, scope(capture, Query())), "all")
    assert np.isnan(everything["sm_efficiency"]) and np.isnan(everything["occupancy_pct"])


def test_nothing_on_the_device_is_all_zero():
    capture = capture_of({})
    frame = B.breakdown(capture, scope(capture, Query()))
    assert frame["device"].tolist() == ["all"] and frame["total_ns"].tolist() == [0]
    assert np.isnan(frame["utilization"].iloc[0])


# -- Causes of idle time ---------------------------------------------------------------------------------------------


def test_idle_time_by_cause_by_hand():
    # GIVEN on device 0 kernels [0,100) [200,300) [320,400) [500,600) [700,800), a zero-length one at 650, and device 1 apart;
    # launched at 0, 150 (after 100: host), 250 (before, gap 20: hand-over), 350 (before, gap 100: other), unknown
    capture = Capture(Facts("test", "x", 0), {
        "host": S.HOST.frame({"start_ns": [0, 150, 250, 350], "duration_ns": [1, 1, 1, 1]}),
        "device": S.DEVICE.frame({
            "device": [0, 1, 0, 0, 0, 0, 0], "kind": [0] * 7, "start_ns": [0, 40, 200, 320, 500, 650, 700],
            "duration_ns": [100, 10, 100, 80, 100, 0, 100], "call": [0, 0, 1, 2, 3, 3, -1],
        }),
    })  # fmt: skip
    found = breakdown.gaps(capture, np.ones(7, bool))
    # THEN four gaps on device 0 and none on device 1, each with the row that ends it
    assert found["start_ns"].tolist() == [100, 300, 400, 600]
    assert found["duration_ns"].tolist() == [100, 20, 100, 100]
    assert [breakdown.CAUSES[c] for c in found["cause"]] == ["host_wait", "kernel_wait", "other", "unknown"]
    assert found["next"].tolist() == [2, 3, 4, 6]
    assert breakdown.by_cause(found) == {"host_wait": 100, "kernel_wait": 20, "other": 100, "unknown": 100}
    assert breakdown.by_length(found, 100) == (20, 300)


def test_without_device_work_there_is_no_gap():
    capture = Capture(Facts("test", "x", 0), {})
    found = breakdown.gaps(capture, np.zeros(0, bool))
    assert len(found) == 0 and set(breakdown.by_cause(found).values()) == {0} and breakdown.by_length(found, 10) == (0, 0)


# -- Gaps of the device by cause: launching, blocked, neither --------------------------------------------------------


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
