"""Small recordings of graph captures and of what the graphs replay, whose every number is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.support.trace_builder import TraceBuilder

LAYER = (("aten::mm", "gemm", 3_000), ("vllm::unified_attention_with_output", "attention", 2_000), ("aten::add", "add", 1_000))
"""Operator, kernel and device time of each launch of one layer."""
ROOT = "execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_8(sq8sk800sqsq8sqsk800)"


def named_call(t: TraceBuilder, kernel: str, at: int, *, api: str = "hipModuleLaunchKernel", grid: tuple[int, int, int] | None = None) -> None:
    """A call of the recorder that writes which kernel it launches, and of how many blocks."""
    t.call(api, at, 50)
    args = t.events[-1]["args"]
    assert isinstance(args, dict)
    if kernel:
        args["kernel"] = kernel
    if grid is not None:
        args |= {"grid": list(grid), "block": [256, 1, 1]}


def capture_window(
    t: TraceBuilder, layers: Sequence[Sequence[tuple[str, str, int]]], at: int, *, batch: int = 8, mode: str = "FULL",
    annotated: bool = True, ended: bool = True,
) -> int:  # fmt: skip
    """One stream capture of some layers, each in a module `Layer_k`; returns where it ends."""
    length = sum(len(layer) for layer in layers) * 1_000 + 2_000
    if annotated:
        t.annotation(f"capture_{batch}_{mode}", at, length + 1_000)
    t.call("hipStreamBeginCapture", at + 100, 50)
    now = at + 500
    for k, layer in enumerate(layers):
        t.module(f"Layer_{k}", now, 1_000 * len(layer), module_id=k)
        for operator, kernel, _ in layer:
            t.op(operator, now + 100, 800, shapes=[[batch, 64], [64, 64]], types=["float", "float"])
            named_call(t, kernel, now + 200)
            now += 1_000
    if ended:
        t.call("hipStreamEndCapture", at + length, 50)
    return at + length + 2_000


def eager(t: TraceBuilder, layers: Sequence[Sequence[tuple[str, str, int]]], at: int, device_at: int, *, batch: int = 8) -> int:
    """The same layers launched one kernel at a time, as a recorder of CUPTI has them; returns where their host work ends."""
    for k, layer in enumerate(layers):
        t.module(f"Layer_{k}", at, 1_000 * len(layer), module_id=k)
        for operator, kernel, duration in layer:
            t.op(operator, at + 100, 800, shapes=[[batch, 64], [64, 64]], types=["float", "float"])
            t.launch(kernel, at=at + 200, start=device_at, duration=duration)
            at, device_at = at + 1_000, device_at + duration
    return at


def replay(
    t: TraceBuilder, layers: Sequence[Sequence[tuple[str, str, int]]], at: int, device_at: int, *, root: str = ROOT, streams: Sequence[int] = (7,)
) -> int:  # fmt: skip
    """One iteration that launches one graph; returns where its device work ends."""
    if root:
        t.annotation(root, at, 20_000)
    correlation = t.call("hipGraphLaunch", at + 1_000, 5_000)
    now = device_at
    for k, (_, kernel, duration) in enumerate(launch for layer in layers for launch in layer):
        t.kernel(kernel, now, duration, correlation=correlation, stream=streams[k % len(streams)])
        now += duration
    return now


def pair(folder: Path, captured: TraceBuilder, replayed: TraceBuilder, *, details: object = None) -> Path:
    """Writes both as an engine does; returns the recording of the replays."""
    captured.write(folder / "capture_traces" / "graph_capture_rank_0.pt.trace.json")
    if details is not None:
        (folder / "capture_traces" / "execution_details.json").write_text(details if isinstance(details, str) else json.dumps(details))
    return replayed.write(folder / "rank0.pt.trace.json")
