"""Copies inside of a device: duplicates, gradients, inputs of graphs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.copy_findings import US, found, steps
from tests.support.trace_builder import TraceBuilder

DDP = "DistributedDataParallel.forward"


def copied(t: TraceBuilder, at: int, length: int, operators: list[str], *, size: int = 1 << 20, stream: int = 7) -> None:
    """A copy inside of the device, launched by a chain of operators."""
    host = at // 10
    for depth, name in enumerate(operators):
        t.op(name, host + 10 * depth, 1_000 - 20 * depth)
    t.copy("DtoD", at, length, bytes=size, call=(host + 10 * len(operators), 100), stream=stream)


def duplicates(lengths: list[int], **other: object) -> TraceBuilder:
    """Clones one after another in a step of 1 ms; `sizes`, `chains` and `between` change the second of them."""
    t = steps(1)
    at = 100 * US
    for i, length in enumerate(lengths):
        chain = other.get("chain", "aten::clone") if i == 1 else "aten::clone"
        copied(t, at, length, [str(chain), "aten::copy_"], size=(1 << 20) + (i == 1 and bool(other.get("size"))))
        at += length + 20 * US
        if i == 0 and other.get("kernel"):
            t.launch("k", at=50, start=at - 10 * US, duration=US)
    return t


def test_the_same_bytes_copied_twice_in_a_row_are_a_finding(tmp_path: Path) -> None:
    # GIVEN two clones of one size, 25 001 + 25 000 ns of a step of 1 ms WHEN that is more than 5 % THEN both could go
    got = found(duplicates([25_001, 25_000]), tmp_path)["duplicate_copies"]
    assert got.saving == 50_001 and got.candidate and len(got.rows) == 2


@pytest.mark.parametrize(
    "trace",
    [
        {"lengths": [25_000, 25_000]},  # 5 % of the step: not more
        {"lengths": [60_000]},  # only one
        {"lengths": [60_000, 60_000], "size": True},
        {"lengths": [60_000, 60_000], "chain": "aten::contiguous"},
        {"lengths": [60_000, 60_000], "kernel": True},
    ],
)
def test_single_short_or_different_copies_are_no_duplicates(trace: dict, tmp_path: Path) -> None:  # type: ignore[type-arg]
    assert "duplicate_copies" not in found(duplicates(**trace), tmp_path)


def test_another_operator_is_no_change_of_layout(tmp_path: Path) -> None:
    t = steps(1)
    for at in (100, 200):
        copied(t, at * US, 60 * US, ["aten::cat"])
    assert "duplicate_copies" not in found(t, tmp_path)


ENGINE = "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad"


def test_gradients_copied_into_buckets_are_a_finding(tmp_path: Path) -> None:
    # GIVEN two copies of 30 us inside of AccumulateGrad, of which a kernel hides 10 us, and data parallelism
    t = steps(1)
    t.annotation(DDP, 0, 1 * US)
    for at in (100, 300):
        copied(t, at * US, 30 * US, [ENGINE, "torch::autograd::AccumulateGrad", "aten::copy_"])
    t.launch("k", at=0, start=320 * US, duration=100 * US, stream=9)
    got = found(t, tmp_path)["gradient_copies"]
    # THEN 50 us could go, by views into the buckets
    assert got.saving == 50 * US and got.candidate and "gradient_as_bucket_view" in got.fix
    assert "`torch::autograd::AccumulateGrad`" in got.evidence and "bucket" in got.evidence


def test_gradients_that_are_cloned_and_those_without_data_parallelism(tmp_path: Path) -> None:
    t = steps(1)
    copied(t, 100 * US, 30 * US, [ENGINE, "torch::autograd::AccumulateGrad", "aten::clone", "aten::copy_"])
    cloned = found(t, tmp_path / "a")["gradient_copies"]
    assert "cloned" in cloned.title and "layout" in cloned.evidence
    t = steps(1)
    copied(t, 100 * US, 30 * US, [ENGINE, "torch::autograd::AccumulateGrad", "aten::copy_"])
    assert "set_to_none" in found(t, tmp_path / "b")["gradient_copies"].fix
    t = steps(1)
    copied(t, 100 * US, 30 * US, ["SelectBackward0", "aten::copy_"])
    assert "gradient_copies" not in found(t, tmp_path / "c")


def test_inputs_copied_into_a_graphs_static_buffers_are_a_finding(tmp_path: Path) -> None:
    # GIVEN a compiled function that copies for 40 us and then launches its graph, in which a copy is too; and a clone of a result
    t = steps(1)
    copied(t, 600 * US, 40 * US, ["CompiledFunction", "aten::clone", "aten::copy_"])
    copied(t, 100 * US, 40 * US, ["CompiledFunction", "aten::copy_"])
    number = t.call("cudaGraphLaunch", 10 * US + 500, 300, flow=True)
    t.copy("DtoD", 200 * US, 30 * US, bytes=4096, correlation=number)
    got = found(t, tmp_path / "a")["graph_inputs"]
    # THEN only the copy before the launch is told
    assert got.saving == 40 * US and len(got.rows) == 1 and "mark_static_address" in got.fix
    # AND without a graph it is an ordinary copy
    t = steps(1)
    copied(t, 100 * US, 40 * US, ["CompiledFunction", "aten::copy_"])
    assert "graph_inputs" not in found(t, tmp_path / "b")
