"""What is wrong with collectives: buffers broadcast in every step, many tiny all-reduces, large ones far below the link."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.findings import assert_disjoint, found
from tests.support.trace_builder import TraceBuilder

MS, US = 1_000_000, 1_000
DDP = "DistributedDataParallel.forward"


def trained(*, steps: int = 2, backward: bool = True) -> TraceBuilder:
    """Steps of 10 ms; the device computes in the last 4 of each, launched 10 µs before."""
    t = TraceBuilder()
    for n in range(steps):
        t.step(n + 1, n * 10 * MS, 10 * MS)
        t.op("aten::mm", n * 10 * MS + 6 * MS - 20 * US, 15 * US)
        t.launch("k", at=n * 10 * MS + 6 * MS - 10 * US, start=n * 10 * MS + 6 * MS, duration=4 * MS, call_duration=5 * US)
    if backward:
        t.op("autograd::engine::evaluate_function: MmBackward0", 9 * MS, 5 * US, thread=9)
        t.forward_backward(6 * MS - 20 * US, 9 * MS, backward_thread=9)
    return t


def collective(t: TraceBuilder, kind: str, at: int, duration: int, *, elements: int, around: str = "", ranks: int = 2) -> None:
    """A collective that is launched at `at` and begins at once, inside of a range of 500 µs around its launch."""
    if around:
        t.annotation(around, at - US, 500 * US)
    number = t.call("cudaLaunchKernel", at, US // 2, flow=True)
    t.collective(kind, at + US // 2, duration, elements=elements, group_size=ranks, correlation=number)


def test_buffers_that_are_broadcast_in_every_step_are_found(tmp_path: Path) -> None:
    # GIVEN two steps, in each DDP broadcasts buffers for 200 µs and unpacks them for 2 ms while the device has no work
    t = trained()
    for n in range(2):
        z = n * 10 * MS + MS
        collective(t, "broadcast", z, 200 * US, elements=1000)
        t.annotation(DDP, z - US, 3 * MS)
        t.op("aten::unflatten_dense_tensors", z + 500 * US, 2 * MS)
    out = found(t, tmp_path)
    finding = out["buffer_broadcasts"]
    # THEN both times are the saving, per step, and the events are evidence
    assert finding.saving == 2_200 * US and not finding.candidate and len(finding.events) == 2
    assert "broadcast_buffers=False" in finding.fix and "2 broadcasts run" in finding.evidence
    assert_disjoint(list(out.values()))


@pytest.mark.parametrize("innocent", ["once", "parameters of an optimizer"])
def test_broadcasts_that_are_not_of_buffers_are_not_blamed(innocent: str, tmp_path: Path) -> None:
    # GIVEN a broadcast by DDP in one of three steps, or in each of them by a sharded optimizer
    t = trained(steps=3)
    for n in range(1 if innocent == "once" else 3):
        around = DDP if innocent == "once" else "Optimizer.step#ZeroRedundancyOptimizer.step"
        collective(t, "broadcast", n * 10 * MS + MS, 200 * US, elements=1000, around=around)
    assert "buffer_broadcasts" not in found(t, tmp_path)


def tiny(count: int, *, elements: int = 256, backward: bool = True, around: str = "") -> TraceBuilder:
    """One step with all-reduces of 20 µs, 50 µs apart; the last takes 30."""
    t = trained(steps=1, backward=backward)
    for i in range(count):
        collective(t, "allreduce", MS + i * 50 * US, (30 if i == count - 1 else 20) * US, elements=elements)
    if around:
        t.annotation(around, MS - US, 9 * MS)
    return t


def test_many_tiny_all_reduces_are_worth_packing(tmp_path: Path) -> None:
    # GIVEN 80 all-reduces of 1 KiB WHEN packed THEN they take as long as the longest, 30 µs
    out = found(tiny(80), tmp_path)
    finding = out["tiny_all_reduces"]
    assert finding.saving == 79 * 20 * US and finding.candidate and len(finding.events) == 80
    assert finding.fix.startswith("dist.all_reduce(torch.cat") and "80 all-reduces" in finding.evidence
    assert float(finding.events_ns.sum()) == pytest.approx(finding.saving)
    assert_disjoint(list(out.values()))


@pytest.mark.parametrize("t", [tiny(20), tiny(80, elements=1 << 20), tiny(80, backward=False), tiny(80, around="SyncBatchNormBackward")],
                         ids=["few", "large", "inference", "sync_batch_norm"])  # fmt: skip
def test_all_reduces_that_packing_does_not_help_are_not_blamed(t: TraceBuilder, tmp_path: Path) -> None:
    got = found(t, tmp_path)
    assert "tiny_all_reduces" not in got and "exposed_communication" in got


@pytest.mark.parametrize(("ns", "ranks", "said"), [(MS, 2, True), (20 * US, 2, False), (MS, 64, False)])
def test_large_collectives_far_below_the_link_are_said_to_be(ns: int, ranks: int, said: bool, tmp_path: Path) -> None:
    # GIVEN 4 all-reduces of 4 MiB: at 4.19 GB/s, at 210 GB/s of the 450 that the link has, or over several nodes
    t = trained(steps=1)
    for i in range(4):
        collective(t, "allreduce", MS + i * 1_100 * US, ns, elements=1 << 20, ranks=ranks)
    finding = found(t, tmp_path)["exposed_communication"]
    assert ("4.19\u202fGB/s bus bandwidth" in finding.evidence) == said == ("NVLink carries" in finding.evidence)
