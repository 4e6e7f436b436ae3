"""Kernels that were launched before the recording began take the work of recorded calls they are alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.work.inferred import REASON
from tb_sol_plugin.metrics.work.work import Work, work
from tb_sol_plugin.model import schemas as S
from tests.support.trace_builder import TraceBuilder

BF16 = ["c10::BFloat16"] * 2
FLOP = 2 * 64 * 32 * 16


def _before(t: TraceBuilder, name: str, start: int, duration: int, number: int, **more: object) -> None:
    """A kernel whose correlation is lower than that of any recorded call."""
    t.kernel(name, start, duration, correlation=number, **more)  # type: ignore[arg-type]


def _product(t: TraceBuilder, at: int, start: int, duration: int, *, name: str = "aten::mm", shapes: tuple[list[int], ...] = ([64, 32], [32, 16]),
             kernel: str = "gemm", **more: object) -> None:  # fmt: skip
    t.op(name, at, 400, shapes=list(shapes), types=BF16[: len(shapes)])
    t.launch(kernel, at=at + 100, start=start, duration=duration, **more)


def _done(t: TraceBuilder, folder: Path) -> Work:
    capture = read(str(t.write(folder / "t.pt.trace.json")))
    assert (capture.device["link"].to_numpy() == S.BEFORE_WINDOW).any()
    return work(capture, table()["H100_SXM"])


def _builder() -> TraceBuilder:
    t = TraceBuilder()
    for _ in range(50):
        t.number("correlation")
    return t


def test_the_same_kernel_did_the_same_work(tmp_path: Path) -> None:
    # GIVEN two recorded products, and one kernel like theirs from before the window
    t = _builder()
    _product(t, 1000, 5000, 500)
    _product(t, 2000, 6000, 520)
    _before(t, "gemm", 100, 505, 3)
    done = _done(t, tmp_path)
    # THEN it is a call of its own with the same work, marked, and all time has an owner
    found = done.ops[done.ops["inferred"]]
    assert found[["name", "flop", "measured_ns", "estimated", "reason", "host", "module"]].astype(object).to_numpy().tolist() == [
        ["aten::mm", FLOP, 505, True, REASON, -1, -1]
    ]
    assert done.unowned_ns == 0
    assert done.modelled_ns == 500 + 520 + 505
    assert np.isfinite(found["sol_ns"].to_numpy()).all()


@pytest.mark.parametrize(
    ("name", "duration", "more"),
    [
        ("other", 500, {}),
        ("gemm", 500, {"grid": [9, 9, 9]}),
        ("gemm", 1500, {}),
    ],
    ids=["another kernel", "another grid", "three times as long"],
)
def test_a_kernel_of_another_name_or_grid_stays_without_an_owner(tmp_path: Path, name: str, duration: int, more: dict[str, object]) -> None:
    t = _builder()
    _product(t, 1000, 5000, 500)
    _before(t, name, 100, duration, 3, **more)
    done = _done(t, tmp_path)
    assert not done.ops["inferred"].any()
    assert done.unowned_ns == duration


def test_equal_kernels_of_different_work_are_distinguished_by_their_time(tmp_path: Path) -> None:
    # GIVEN one kernel and grid that serves products of depth 32 (500 ns) and of depth 320 (4,000 ns)
    t = _builder()
    _product(t, 1000, 5000, 500)
    _product(t, 2000, 6000, 4000, shapes=([64, 320], [320, 16]))
    _before(t, "gemm", 100, 490, 3)
    _before(t, "gemm", 700, 4100, 4)
    _before(t, "gemm", 4900, 900, 5)
    done = _done(t, tmp_path)
    # THEN the time says which one it was, and nothing is said where it fits neither
    assert done.ops.loc[done.ops["inferred"], ["flop", "measured_ns"]].to_numpy().tolist() == [[FLOP, 490], [10 * FLOP, 4100]]
    assert done.unowned_ns == 900


def test_operators_of_the_same_work_are_both_named(tmp_path: Path) -> None:
    # GIVEN a kernel that serves two operators over the same sizes
    t = _builder()
    _product(t, 1000, 5000, 500)
    _product(t, 2000, 6000, 500, name="aten::matmul")
    _before(t, "gemm", 100, 500, 3)
    done = _done(t, tmp_path)
    assert done.ops.loc[done.ops["inferred"], "name"].astype(str).tolist() == ["aten::mm or aten::matmul"]


def test_a_call_of_two_kernels_needs_both(tmp_path: Path) -> None:
    # GIVEN recorded products of two kernels, and before the window a whole pair and a first half alone
    t = _builder()
    t.op("aten::mm", 1000, 400, shapes=[[64, 32], [32, 16]], types=BF16)
    t.launch("split", at=1050, start=5000, duration=300)
    t.launch("reduce", at=1200, start=5300, duration=100)
    _before(t, "split", 100, 300, 3)
    _before(t, "reduce", 400, 100, 4)
    _before(t, "split", 600, 300, 5)
    done = _done(t, tmp_path)
    # THEN one call is inferred, the half stays without an owner
    assert done.ops.loc[done.ops["inferred"], ["flop", "measured_ns", "device_events"]].to_numpy().tolist() == [[FLOP, 400, 2]]
    assert done.unowned_ns == 300
