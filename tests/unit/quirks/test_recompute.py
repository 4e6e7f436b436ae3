"""Activation checkpointing: a forward pass runs again inside the backward pass, on the thread of autograd."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.metrics.work.work import work
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


def test_checkpoints_on_saved_tensors_run_again_below_the_first_node_that_needs_one(tmp_path: Path) -> None:
    # GIVEN conv, relu, conv in the module Block_0 (500 ns a convolution); below the backward node of the second convolution, on the thread
    # of autograd: a copy of the random state, the three again, then the node's gradients (900 ns), and later those of the first one (900)
    sizes = {
        "shapes": [[2, 4, 6, 6], [4, 4, 3, 3], [], [], [], [], [], [], []],
        "types": ["float", "float", *[""] * 7],
        "concrete": ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"],
    }
    gradient = {
        "shapes": [[2, 4, 6, 6], [2, 4, 6, 6], [4, 4, 3, 3], [], [], [], [], [], [], [], []],
        "types": ["float", "float", "float", *[""] * 8],
        "concrete": ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"],
    }
    t = TraceBuilder()
    t.step(1, 0, 40_000)
    t.module("Block_0", 100, 7_000, module_id=1)
    inner = {"thread": 9}
    for at, thread, first in ((200, None, 5), (11_000, 9, 0)):
        for i in range(2):
            t.op("aten::convolution", at + 3_000 * i, 1_000, sequence=first + 2 * i, thread=thread, **sizes)
            t.launch("conv", at=at + 100 + 3_000 * i, start=at + 1_500 + 3_000 * i, duration=500, thread=thread)
        t.op("aten::relu", at + 1_500, 500, sequence=first + 1, thread=thread, shapes=[[2, 4, 6, 6]], types=["float"])
    for name, at, long, sequence in (("Convolution", 10_000, 12_000, 7), ("Convolution", 25_000, 5_000, 5)):
        t.op(f"autograd::engine::evaluate_function: {name}Backward0", at, long, sequence=sequence, forward_thread=1, **inner)
        t.op(f"{name}Backward0", at + 10, long - 20, sequence=sequence, forward_thread=1, **inner)
        t.op("aten::convolution_backward", at + long - 3_000, 2_000, **inner, **gradient)
        t.launch("dgrad_wgrad", at=at + long - 2_900, start=at + long - 2_000, duration=900, thread=9)
    t.op("aten::clone", 10_100, 100, sequence=0, shapes=[[16], []], types=["unsigned char", ""], **inner)
    t.launch("copy", at=10_120, start=10_400, duration=30, thread=9)
    c = check_capture(t.write(tmp_path / "w.1.pt.trace.json"), tmp_path / "cache")
    # THEN two convolutions run again: 2 * 2 * 6 * 6 * 4 * 4 * 9 FLOP each, forward 2 of them, backward 4
    ops = work(c).ops
    one = 2 * 2 * 36 * 16 * 9
    again, backward = ops["recompute"], ops["direction"] == "bwd"
    assert [int(ops.loc[m, "flop"].sum()) for m in (~again & ~backward, again, backward)] == [2 * one, 2 * one, 4 * one]
    # AND the copy of the state is backward work, not forward work run again
    assert ops.loc[again, "name"].unique().tolist() == ["aten::convolution"] and backward[ops["name"] == "aten::clone"].all()
    # AND with them the hardware does 8 where the model asks for 6
    facts = report(c, "overview").facts
    assert facts["hfu"] / facts["mfu"] == pytest.approx(8 / 6)  # type: ignore[operator]
    # AND all of it is the module's: forward twice, and 2 * 900 + 30 of backward
    modules = report(c, "modules")
    row = modules.table("modules").set_index("name").loc["Block_0"]
    assert row["backward_device_ns"] == 1_830 and row["time_ns"] == 3_830 and row["recompute_share"] == pytest.approx(1_000 / 3_830)
    assert modules.facts["recompute_ns"] == 1_000
