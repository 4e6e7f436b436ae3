"""One small training recording with numbers that can be added up on paper, for the tests of trees and findings.

Times in ns. Main thread 4242 runs two steps of 1 000 000; thread 4243 runs their backward pass.

    step n   starts at n * 1 000 000
    +10 000   ## forward ##, 300 000 long
        +20 000   nn.Module: Net_0, 200 000 long
            +30 000   nn.Module: Linear_0, 50 000: aten::linear > aten::addmm launches gemm, 40 000 long
            +90 000   nn.Module: Linear_1, 50 000: aten::linear > aten::addmm launches gemm, 20 000 long
            +150 000  aten::relu launches relu, 10 000 long
    +320 000  ## backward ##, 400 000 long
        thread 4243: two evaluate_function roots; the one of Linear_1 launches a kernel of 30 000, the one of Linear_0 of 50 000
    +800 000  optimizer/step, 100 000 long: aten::add_ launches 5 000
    +950 000  a kernel that no operator launches, 1 000 long
"""

from __future__ import annotations

from pathlib import Path

from tb_sol_plugin.ingest import read
from tb_sol_plugin.model.capture import Capture
from tests.support.trace_builder import TraceBuilder

BACKWARD_THREAD = 4243
STEP = 1_000_000
GEMM = {"shapes": [[8], [4, 16], [16, 8]], "types": ["float", "float", "float"]}


def training(*, steps: int = 2, device: str = "NVIDIA H100 80GB HBM3") -> TraceBuilder:
    """The builder, so that a test can add to it."""
    t = TraceBuilder(device=device)
    for n in range(steps):
        _step(t, n)
    return t


def _step(t: TraceBuilder, n: int) -> None:
    z = n * STEP
    t.step(n, z, STEP - 1_000)
    t.annotation("## forward ##", z + 10_000, 300_000)
    net = t.module("Net_0", z + 20_000, 200_000, module_id=1)
    for i, (at, time) in enumerate(((30_000, 40_000), (90_000, 20_000))):
        t.module(f"Linear_{i}", z + at, 50_000, module_id=2 + i, parent=net)
        t.op("aten::linear", z + at + 5_000, 40_000, shapes=[[4, 16], [8, 16], [8]], types=["float"] * 3, sequence=10 * n + i)
        t.op("aten::addmm", z + at + 10_000, 20_000, sequence=10 * n + i, **GEMM)
        t.launch("ampere_sgemm_32x32", at=z + at + 15_000, start=z + at + 20_000, duration=time, call_duration=4_000)
    t.op("aten::relu", z + 150_000, 20_000, shapes=[[4, 8]], types=["float"])
    t.launch("relu_kernel", at=z + 155_000, start=z + 160_000, duration=10_000, call_duration=4_000)
    t.annotation("## backward ##", z + 320_000, 400_000)
    for i, (at, time) in enumerate(((330_000, 30_000), (400_000, 50_000))):
        number = 10 * n + 1 - i
        back = {"thread": BACKWARD_THREAD, "sequence": number, "forward_thread": 1}
        t.op("autograd::engine::evaluate_function: AddmmBackward0", z + at, 60_000, **back)
        t.op("AddmmBackward0", z + at + 5_000, 50_000, **back)
        t.op("aten::mm", z + at + 10_000, 30_000, thread=BACKWARD_THREAD)
        t.launch(
            "ampere_sgemm_64x32", at=z + at + 15_000, start=z + at + 20_000, duration=time, call_duration=4_000, thread=BACKWARD_THREAD
        )
    t.annotation("optimizer/step", z + 800_000, 100_000)
    t.op("aten::add_", z + 810_000, 20_000)
    t.launch("add_kernel", at=z + 815_000, start=z + 820_000, duration=5_000, call_duration=4_000)
    t.launch("own_kernel", at=z + 950_000, start=z + 960_000, duration=1_000, call_duration=4_000)


def read_back(t: TraceBuilder, folder: Path) -> Capture:
    """What the product reads from the builder's file."""
    return read(str(t.write(folder / "worker0.1700000000000000000.pt.trace.json")))
