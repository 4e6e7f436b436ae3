"""Activation checkpointing: a forward pass runs again inside the backward pass, on the thread of autograd."""

from __future__ import annotations

import pytest

from tb_sol_plugin.model.capture import Capture
from tests.support.captures import report
from tests.support.check_capture import check_capture
from tests.support.trace_builder import TraceBuilder

MM = {"shapes": [[8, 4], [4, 2]], "types": ["float", "float"]}  # 2 * 8 * 4 * 2 = 128 FLOP


@pytest.fixture(scope="module")
def checkpointed(tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Two blocks, each: forward 500 ns, recomputed forward 500 ns and backward 700 ns of device work; 3,400 ns in all."""
    t = TraceBuilder()
    t.step(1, 0, 100_000)
    t.annotation("train/backward", 20_000, 75_000)
    for i in range(2):
        at, back = 9_000 * i, 22_000 + 35_000 * (1 - i)
        t.module(f"Block_{i}", at, 8_000, module_id=i)
        t.op("CheckpointFunction", at, 8_000, sequence=i)
        t.op("aten::mm", at + 100, 1_000, **MM)
        t.launch("gemm", at=at + 200, start=at + 2_000, duration=500)
        inner = {"thread": 9}
        t.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", back, 30_000, sequence=i, forward_thread=1, **inner)
        t.op("CheckpointFunctionBackward", back + 10, 29_000, sequence=i, forward_thread=1, **inner)
        t.module(f"Block_{i}", back + 100, 5_000, module_id=i, thread=9)
        t.op("aten::mm", back + 200, 1_000, sequence=10 - i, **inner, **MM)
        t.launch("gemm", at=back + 300, start=back + 1_000, duration=500, thread=9)
        t.op("autograd::engine::evaluate_function: MmBackward0", back + 10_000, 5_000, sequence=10 - i, forward_thread=2, **inner)
        t.op("aten::mm", back + 10_200, 1_000, **inner, **MM)
        t.launch("gemm", at=back + 10_300, start=back + 11_000, duration=700, thread=9)
    folder = tmp_path_factory.mktemp("recompute")
    return check_capture(t.write(folder / "w.1.pt.trace.json"), folder / "cache")


def test_modules_hold_forward_recomputation_and_backward(checkpointed: Capture) -> None:
    table = report(checkpointed, "modules").table("modules").set_index("name")
    # 2 calls each: the first and the recomputed forward, 2 * 500 ns; the backward of what was recomputed, 700 ns
    for name in ("Block_0", "Block_1"):
        row = table.loc[name]
        assert (row["calls"], row["device_total_ns"], row["backward_device_ns"], row["flop"]) == (2, 1_000, 700, 3 * 128)


def test_backward_work_is_in_the_phase_that_was_open(checkpointed: Capture) -> None:
    phases = report(checkpointed, "phases").table("phases").set_index("path")["device_ns"]
    # 2 * (500 + 700) ns were launched by autograd's thread while train/backward was open; all 3,400 ns in the step
    assert phases["ProfilerStep"] == 3_400
    assert phases["ProfilerStep/train/backward"] == 2_400


def test_all_recomputed_work_is_in_the_step(checkpointed: Capture) -> None:
    step = report(checkpointed, "steps").table("steps").iloc[0]
    assert step["kernel_ns"] == 3_400 and step["duration_ns"] == 100_000
