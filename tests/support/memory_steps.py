"""Traces of training steps whose memory is known: parameters from before, activations, gradients, and what is left behind."""

from __future__ import annotations

from pathlib import Path

from tb_sol_plugin import ingest
from tb_sol_plugin.model.capture import Capture
from tests.support.trace_builder import TraceBuilder

STEP = 10_000
BEFORE = 1_000_000


class Memory:
    """Allocations and frees of one device with running totals."""

    def __init__(self, trace: TraceBuilder, reserved: int = 8_000_000) -> None:
        self.trace, self.level, self.reserved, self.next = trace, BEFORE, reserved, 1

    def alloc(self, at: int, size: int) -> int:
        self.level += size
        self.next += 1
        self.trace.memory(at, size, address=self.next, allocated=self.level, reserved=self.reserved)
        return self.next

    def free(self, at: int, address: int, size: int) -> None:
        self.level -= size
        self.trace.memory(at, -size, address=address, allocated=self.level, reserved=self.reserved)


def training(path: Path, kept: list[int], *, state: int = 0, reserved: int = 8_000_000) -> Capture:
    """What is read of `trained`."""
    return ingest.read(str(trained(kept, state=state, reserved=reserved).write(path / "a.pt.trace.json")))


def trained(kept: list[int], *, state: int = 0, reserved: int = 8_000_000) -> TraceBuilder:
    """One step per entry of `kept`. Each: an activation of 500,000 B in `Linear_0`, freed; `kept[i]` bytes in `Cache_0`, never freed;
    gradients of 2,000 B, freed in the next step. state: bytes that the optimizer makes in the first step and keeps. Steps of 10 µs."""
    t = TraceBuilder()
    m = Memory(t, reserved)
    gradient = 0
    for i, size in enumerate(kept):
        at = i * STEP
        t.step(i + 1, at, STEP - 100)
        if gradient:
            m.free(at + 50, gradient, 2_000)
        t.module("Linear_0", at + 100, 1_000, module_id=1)
        t.op("aten::linear", at + 200, 500)
        activation = m.alloc(at + 300, 500_000)
        t.module("Cache_0", at + 2_000, 1_000, module_id=2)
        t.frame("cache.py(7): forward", at + 2_050, 900)
        t.op("aten::cat", at + 2_100, 500)
        if size:
            m.alloc(at + 2_200, size)
        gradient = m.alloc(at + 5_000, 2_000)
        m.free(at + 6_000, activation, 500_000)
        if state and i == 0:
            t.op("aten::zeros_like", at + 7_000, 100)
            m.alloc(at + 7_050, state)
    return t
