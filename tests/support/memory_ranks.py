"""Ranks whose memory is known: a few allocations each, with totals, in steps of one millisecond."""

from __future__ import annotations

from pathlib import Path

from tests.support.trace_builder import TraceBuilder

MB = 1_000_000
STEP = 1_000_000
DEVICE = 85_018_279_936
"""Bytes of the H100 of the builder."""


def rank_trace(rank: int, world: int, *, peak: int, before: int = 100 * MB, reserved: int = 0, steps: int = 2, leak: int = 0) -> TraceBuilder:
    """`before` bytes are there; in each step what is missing to `peak` is allocated by aten::mm and freed again, and `leak` stays.

    The peak is that of the first step where nothing stays, else that of the last. reserved: held all the time, the peak where 0.
    """
    t = TraceBuilder(rank=rank, world_size=world)
    level, held = before, reserved or peak + leak * steps
    for i in range(steps):
        at = i * STEP
        t.step(i + 1, at, STEP)
        t.op("aten::mm", at + 100_000, 50_000)
        level += peak - before
        t.memory(at + 110_000, peak - before, address=1000 + i, allocated=level, reserved=held)
        if leak:
            t.op("aten::clone", at + 200_000, 50_000)
            level += leak
            t.memory(at + 210_000, leak, address=2000 + i, allocated=level, reserved=held)
        level -= peak - before
        t.memory(at + 800_000, -(peak - before), address=1000 + i, allocated=level, reserved=held)
    return t


def write_run(folder: Path, peaks: list[int]) -> Path:
    """One rank per peak."""
    for rank, peak in enumerate(peaks):
        rank_trace(rank, len(peaks), peak=peak, reserved=peak + 10 * MB).write(folder / f"rank{rank}.1700000000000000000.pt.trace.json.gz")
    return folder
