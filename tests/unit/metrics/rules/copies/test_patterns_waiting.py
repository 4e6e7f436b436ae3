"""Findings about copies that block the host: which copies, and what they save."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.copy_findings import KIB, MIB, US, found, steps
from tests.support.trace_builder import TraceBuilder


def loop_of_item(t: TraceBuilder, *, size: int = 4, operator: str = "aten::item", dst: str = "Pageable") -> TraceBuilder:
    """Each step of 1 ms: a kernel [50, 400) us, a read of `size` B in [410, 412) us whose call blocks the host in [60, 420), the next
    kernel [500, 950) us launched at 480. Module Net_0, line 12 of train.py."""
    count = sum(1 for e in t.events if str(e.get("name", "")).startswith("ProfilerStep"))
    for n in range(count):
        z = n * 1_000 * US
        own = t.frame("train.py(12): step", z + 10 * US, 900 * US)
        t.module("Net_0", z + 11 * US, 700 * US, module_id=1, parent=own)
        t.launch("a", at=z + 15 * US, start=z + 50 * US, duration=350 * US)
        t.op(operator, z + 55 * US, 370 * US)
        t.op("aten::_local_scalar_dense" if operator == "aten::item" else "aten::copy_", z + 56 * US, 368 * US)
        t.copy("DtoH", z + 410 * US, 2 * US, bytes=size, dst=dst, call=(z + 60 * US, 360 * US))
        t.launch("b", at=z + 480 * US, start=z + 500 * US, duration=450 * US)
    return t


def test_a_loop_of_item_is_a_finding_of_scalar_reads(tmp_path: Path) -> None:
    # GIVEN three steps that each read a loss
    got = found(loop_of_item(steps(3)), tmp_path)
    # THEN it is the reading of a value; the device is idle from 412 to 500 us (the 10 us before are a hand-over): 88 us per step
    assert list(got) == ["scalar_reads"]
    finding = got["scalar_reads"]
    assert (finding.saving, finding.host_ns, len(finding.rows), finding.host, finding.candidate) == (
        88 * US,
        360 * US,
        3,
        True,
        False,
    )
    # AND its module and its line are named
    assert "`aten::item` of `Net_0` at `train.py:12 step`" in finding.evidence and ".item()" in finding.fix
    assert "One copy per step" in finding.evidence and "Device → Pageable" in finding.evidence


def test_a_read_of_one_byte_more_is_no_scalar_read(tmp_path: Path) -> None:
    assert list(found(loop_of_item(steps(1), size=64), tmp_path / "a")) == ["scalar_reads"]
    assert list(found(loop_of_item(steps(1), size=65), tmp_path / "b")) == ["small_to_host"]


@pytest.mark.parametrize(
    ("operator", "advice"), [("aten::nonzero", "torch.where"), ("aten::masked_select", "torch.where"), ("aten::equal", ".all()")]
)
def test_the_advice_fits_the_operator_that_reads(operator: str, advice: str, tmp_path: Path) -> None:
    assert advice in found(loop_of_item(steps(1), operator=operator), tmp_path)["scalar_reads"].fix


def test_small_copies_to_the_host_end_at_the_threshold(tmp_path: Path) -> None:
    small = found(loop_of_item(steps(1), size=64 * KIB - 1, operator="aten::to"), tmp_path / "a")
    large = found(loop_of_item(steps(1), size=64 * KIB, operator="aten::to"), tmp_path / "b")
    assert list(small) == ["small_to_host"] and list(large) == ["blocking_to_host"]
    assert small["small_to_host"].saving == large["blocking_to_host"].saving == 88 * US


def test_a_blocked_host_behind_a_busy_device_saves_nothing(tmp_path: Path) -> None:
    # GIVEN the same read, and a kernel that another thread launched, which runs from 412 us on
    t = loop_of_item(steps(1))
    t.launch("c", at=100 * US, start=412 * US, duration=88 * US, thread=9)
    assert found(t, tmp_path) == {}


def uploads(src: str, api: str) -> TraceBuilder:
    """One copy of 1 MiB to the device in [100, 150) us by a call [20, 160); a kernel until 90 us, the next one launched at 170."""
    t = steps(1)
    t.launch("a", at=0, start=0, duration=90 * US)
    t.copy("HtoD", 100 * US, 50 * US, bytes=MIB, src=src, call=(20 * US, 140 * US), api=api)
    t.copy("HtoD", 700 * US, 50 * US, bytes=MIB, src="Pinned", call=(180 * US, 2 * US), api="cudaMemcpyAsync")
    t.launch("b", at=170 * US, start=180 * US, duration=820 * US)
    return t


def test_synchronous_copies_from_pinned_memory_only_need_non_blocking(tmp_path: Path) -> None:
    # GIVEN a synchronous copy from pinned memory WHEN the host is held in [20, 160) us
    got = found(uploads("Pinned", "cudaMemcpy"), tmp_path)["blocking_to_device"]
    # THEN the device is idle in [150, 180) us (the 10 us before the copy are a hand-over)
    assert got.saving == 30 * US and got.host_ns == 140 * US and "pinned already" in got.fix
    assert found(uploads("Pinned", "cudaMemcpyAsync"), tmp_path / "b")["blocking_to_device"].saving == 30 * US  # ends after the copy


def test_copies_from_pageable_memory_that_are_no_pattern_of_loading(tmp_path: Path) -> None:
    # GIVEN half of the bytes pageable WHEN that is below 80 % THEN it is the copy itself that is told
    got = found(uploads("Pageable", "cudaMemcpyAsync"), tmp_path)
    assert "pageable_loading" not in got and "pin_memory" in got["blocking_to_device"].fix


def test_sets_of_host_memory_and_copies_of_the_host(tmp_path: Path) -> None:
    # GIVEN a synchronous set of unified memory that blocks the host in [100, 200) us, and a copy within the host in [300, 400) us
    t = steps(1)
    t.launch("a", at=0, start=0, duration=100 * US)
    number = t.call("cudaMemset", 100 * US, 100 * US, flow=True)
    t.memset(195 * US, 2 * US, bytes=1024, correlation=number, kind="Managed")
    t.launch("b", at=201 * US, start=210 * US, duration=90 * US)
    t.copy("HtoH", 330 * US, 50 * US, bytes=4096, src="Pinned", dst="Pinned", call=(300 * US, 100 * US))
    t.launch("c", at=401 * US, start=410 * US, duration=590 * US)
    got = found(t, tmp_path)
    # THEN the set: 95 us before it, 3 us after it and, of 10 us until the next kernel, 2: it blocked the host for 100. The copy: 30, 20, 10
    assert got["blocking_sets"].saving == 100 * US and got["blocking_other"].saving == 60 * US


def test_copies_outside_of_every_step_are_no_part_of_a_step(tmp_path: Path) -> None:
    # GIVEN the same read once inside of a step and once after the last one
    t = loop_of_item(steps(1))
    t.launch("a", at=1_015 * US, start=1_050 * US, duration=350 * US)
    t.copy("DtoH", 1_410 * US, 2 * US, bytes=4, dst="Pageable", call=(1_060 * US, 360 * US))
    got = found(t, tmp_path)
    assert list(got) == ["scalar_reads"] and len(got["scalar_reads"].rows) == 1


def waiting_copy(*, launched: int, link: bool = True) -> TraceBuilder:
    """A step of 100 ms. A kernel until 5 ms; `aten::to` copies 1 kB to the host by a call [4, 95) ms; the copy starts at 94 ms, after work
    [70, 94) ms that was launched at `launched`; the next kernel [99, 100) ms is launched at 98.99 ms."""
    t = steps(1, 100_000 * US)
    t.launch("a", at=100 * US, start=200 * US, duration=4_800 * US)
    t.op("aten::to", 3_900 * US, 91_200 * US)
    t.op("aten::copy_", 3_950 * US, 91_100 * US)
    if link:
        t.launch("graph_kernel", at=launched, start=70_000 * US, duration=24_000 * US, thread=9)
    else:
        t.kernel("graph_kernel", 70_000 * US, 24_000 * US)
    t.copy("DtoH", 94_000 * US, 2 * US, bytes=1 << 10, dst="Pageable", call=(4_000 * US, 91_000 * US))
    t.launch("b", at=98_990 * US, start=99_000 * US, duration=1_000 * US)
    return t


def test_a_copy_that_waits_for_earlier_work_on_its_stream_does_not_hold_the_device(tmp_path: Path) -> None:
    # GIVEN a blocking copy behind work that was launched early and started late WHEN the device is idle in [5, 70) ms
    got = found(waiting_copy(launched=300 * US), tmp_path)["small_to_host"]
    # THEN only the 4.998 ms after the copy, until the next launch, are for it
    assert got.saving == 4_998 * US
    assert "the GPU has no work for 5.00\u202fms of that" in got.evidence
    # AND where the host blocked, and another thread launched that work only at 69.99 ms, the device did wait
    assert found(waiting_copy(launched=69_990 * US), tmp_path / "b")["small_to_host"].saving == (65_000 + 4_998) * US


def test_a_copy_before_work_without_a_launch_record_does_not_hold_the_device(tmp_path: Path) -> None:
    assert found(waiting_copy(launched=0, link=False), tmp_path)["small_to_host"].saving == 4_998 * US


def test_a_copy_that_starts_late_itself_waits_on_its_stream(tmp_path: Path) -> None:
    # GIVEN an idle device from 1 ms on, a call that reads a value at 2 ms, and its copy only at 90 ms: earlier work is in another process
    t = steps(1, 100_000 * US)
    t.launch("a", at=0, start=0, duration=1_000 * US)
    t.op("aten::item", 1_900 * US, 88_200 * US)
    t.op("aten::_local_scalar_dense", 1_950 * US, 88_100 * US)
    t.copy("DtoH", 90_000 * US, 2 * US, bytes=4, dst="Pageable", call=(2_000 * US, 88_010 * US))
    t.launch("b", at=90_020 * US, start=90_030 * US, duration=9_970 * US)
    # THEN the 28 us until the next kernel are what the read costs; the 88 ms on its stream are no host's
    assert found(t, tmp_path)["scalar_reads"].saving == 28 * US
