"""Idle time for which the host answers: judged by when the next work was launched."""

from __future__ import annotations

from pathlib import Path

from tb_sol_plugin.metrics.time.breakdown import HAND_OVER_NS, STARTS_NS, explained_idle, host_idle
from tb_sol_plugin.tables import intervals as iv
from tests.support.findings import found, step
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

MS = 1_000_000


def answered(t: TraceBuilder, folder: Path) -> tuple[int, int]:
    """(idle time for which the host answers, idle time with a recorded cause)."""
    c = read_back(t, folder)
    return iv.length(host_idle(c)), iv.length(explained_idle(c, iv.one(-(2**62), 2**62)))


def gap(launched: int, *, link: bool = True) -> TraceBuilder:
    """A step of 10 ms: a kernel [0, 1) ms, and one [9, 10) ms that is launched at `launched`."""
    t = step(10 * MS)
    t.op("aten::relu", 0, 10 * MS)
    t.launch("a", at=0, start=0, duration=1 * MS)
    if link:
        t.launch("b", at=launched, start=9 * MS, duration=1 * MS)
    else:
        t.kernel("b", 9 * MS, 1 * MS)
    return t


def test_a_gap_whose_next_work_is_launched_late_is_the_hosts(tmp_path: Path) -> None:
    # GIVEN a kernel that is launched 10 us before it starts, 8 ms after the one before it ended
    t = gap(9 * MS - 10_000)
    # THEN the device waited for the host for the whole of it, and the finding says so
    assert answered(t, tmp_path / "a") == (8 * MS, 8 * MS)
    assert found(t, tmp_path / "b")["host_wait"].saving == 8 * MS


def test_a_gap_whose_next_work_was_launched_before_it_is_not_the_hosts(tmp_path: Path) -> None:
    # GIVEN a kernel that was launched half a millisecond before the gap, and starts 8 ms later (gpu_breakdown: other_wait)
    t = gap(MS // 2)
    assert answered(t, tmp_path / "a") == (0, 0)
    assert found(t, tmp_path / "b") == {}


def test_a_gap_counts_until_the_launch_that_the_device_starts_late(tmp_path: Path) -> None:
    # GIVEN a kernel that is launched 2 ms into the gap by a call of 100 ns WHEN it starts 6 ms later
    assert answered(gap(3 * MS), tmp_path / "a") == (2 * MS + 100, 2 * MS + 100)
    # AND one that starts within 100 us of its launch: the whole gap
    assert answered(gap(9 * MS - STARTS_NS - 100), tmp_path / "b")[0] == 8 * MS
    assert answered(gap(9 * MS - STARTS_NS - 101), tmp_path / "c")[0] == 8 * MS - STARTS_NS - 1


def test_a_gap_before_work_without_a_launch_record_has_no_cause(tmp_path: Path) -> None:
    # GIVEN a second kernel of which no launch was recorded (gpu_breakdown: unknown)
    t = gap(0, link=False)
    assert answered(t, tmp_path / "a") == (0, 0)
    assert found(t, tmp_path / "b") == {}


def test_a_hand_over_has_a_cause_that_is_not_the_host(tmp_path: Path) -> None:
    t = step()
    t.op("aten::relu", 0, MS)
    t.launch("a", at=0, start=0, duration=500_000)
    t.launch("b", at=100_000, start=500_000 + HAND_OVER_NS, duration=500_000 - HAND_OVER_NS)
    assert answered(t, tmp_path) == (0, HAND_OVER_NS)


def test_the_beginning_of_a_recording_is_judged_by_its_launches(tmp_path: Path) -> None:
    # GIVEN a recording of 300 ms: all is launched within 22 ms, and the device starts at 151 ms (it was busy for another process)
    def early(at: int) -> TraceBuilder:
        t = step(300 * MS)
        t.op("aten::relu", 0, at + MS)
        t.launch("a", at=at, start=151 * MS, duration=49 * MS)
        t.launch("b", at=at + MS // 2, start=200 * MS, duration=100 * MS)
        return t

    got = found(early(2 * MS), tmp_path / "a")
    # THEN the device waits for the host only until the first launch
    assert got["host_wait"].saving == 2 * MS + 100
    # AND a first launch at 150.99 ms is a wait of 151 ms for the host
    assert found(early(151 * MS - 10_000), tmp_path / "b")["host_wait"].saving == 151 * MS


def test_the_end_of_a_recording_counts_while_something_runs_on_the_host(tmp_path: Path) -> None:
    # GIVEN a kernel until 1 ms; an operator [2, 5) ms; the recording ends with a call at 9 ms
    def end() -> TraceBuilder:
        t = TraceBuilder()
        t.op("aten::relu", 0, 1_000)
        t.launch("a", at=0, start=0, duration=MS)
        t.op("aten::cpu_work", 2 * MS, 3 * MS)
        t.call("cudaEventQuery", 9 * MS, 1_000)
        return t

    # THEN the operator and the call count, what nothing recorded does not
    assert answered(end(), tmp_path / "a")[0] == 3 * MS + 1_000
    # AND a launch at 4 ms, of which nothing was recorded on the device, ends what is known
    t = end()
    t.call("cudaLaunchKernel", 4 * MS, 1_000)
    assert answered(t, tmp_path / "b")[0] == 2 * MS
    # AND a wait for the device is no work of the host
    t = end()
    t.call("cudaDeviceSynchronize", 6 * MS, 2 * MS)
    assert answered(t, tmp_path / "c")[0] == 3 * MS + 1_000


def test_a_wait_that_outlasts_all_recorded_work_waits_for_other_work(tmp_path: Path) -> None:
    # GIVEN the host in cudaDeviceSynchronize from 0.5 ms, a kernel that ends at 1 ms, the next launched right after the wait, at 9 ms
    def waits(until: int) -> TraceBuilder:
        t = gap(9 * MS - 10_000)
        t.call("cudaDeviceSynchronize", MS // 2, until - MS // 2)
        return t

    # WHEN the wait returns 7.9 ms after the last recorded work THEN the device was busy with something else
    assert answered(waits(8_900_000), tmp_path / "a")[0] == 100_000
    # AND a wait that returns within a millisecond waited for that kernel
    assert answered(waits(1_900_000), tmp_path / "b")[0] == 8 * MS
