"""Recordings of a data-parallel job whose step times are known: one trace per node, rank 0 of each, with kernels and reductions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.trace_builder import TraceBuilder

US = 1_000


def step_trace(*, accum_ns: int, optim_ns: int, replicas: int, batch: int, rank: int = 0, host: str = "", steps: int = 4,
               accumulating: int = 0, hidden_ns: int = 0, width: int = 1024, optimizer: str = "AdamW") -> TraceBuilder:  # fmt: skip
    """One rank. Each updating step computes for accum_ns and then waits for a reduction until optim_ns, of which hidden_ns run behind.

    Before each come `accumulating` micro-steps of accum_ns without a reduction. The step's backward pass begins in its middle. A first
    step of twice the length, which has one-time costs, stands before all. batch: 0 leaves it out of the header. width: of the model's one
    weight, 0 where no shapes are recorded; optimizer: its class, "" not recorded.
    """
    header = {"host_name": host or None, "atomic_bsz": batch or None}
    t = TraceBuilder(rank=rank, world_size=replicas, header={k: v for k, v in header.items() if v is not None})
    at, number = 0, 0
    lengths = [(2 * optim_ns, 2 * accum_ns, replicas > 1)]
    lengths += [(length, accum_ns, length == optim_ns and replicas > 1 and last)
                for _ in range(steps) for last, length in ((False, accum_ns), (True, optim_ns)) if last or accumulating]  # fmt: skip
    for length, busy, reduces in lengths:
        t.step(number, at, length)
        t.op("autograd::engine::evaluate_function: MmBackward0", at + length // 2, 5 * US)
        if width:
            t.op("aten::linear", at + 2 * US, 3 * US, shapes=[[batch or 1, width], [width, width], [width]], types=["float"] * 3)
        if optimizer:
            t.annotation(f"Optimizer.step#{optimizer}.step", at + length // 2 + 6 * US, US)
        t.launch("gemm", at=at + 1 * US, start=at, duration=busy, stream=7)
        if reduces:
            call = t.call("cudaLaunchKernel", at + length // 2 + 10 * US, US, flow=True)
            t.collective("allreduce", at + busy - hidden_ns, length - busy + hidden_ns, elements=1000, group_size=replicas, correlation=call)
        at, number = at + length, number + 1
    return t


def write_run(folder: Path, *, nodes: int, replicas: int, batch: int, accum_s: float, optim_s: float, **options: Any) -> Path:
    """A run: one file per node, `node3.pt.trace.json.gz`."""
    for node in range(nodes):
        trace = step_trace(accum_ns=round(accum_s * 1e9), optim_ns=round(optim_s * 1e9), replicas=replicas, batch=batch,
                           rank=node * replicas // nodes, host=f"node-{node}", **options)  # fmt: skip
        trace.write(folder / f"node{node}.1700000000000000000.pt.trace.json.gz")
    return folder
