"""Makes recordings of a small training loop whose every part can be made longer: what comparisons find is known beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from tb_sol_plugin.ingest import read
from tb_sol_plugin.model.capture import Capture
from tests.support.trace_builder import TraceBuilder

US = 1_000
LAYERS = 6
KERNELS = {"aten::mm": ("gemm_kernel", 400), "aten::gelu": ("gelu_kernel", 60), "aten::native_layer_norm": ("layer_norm_kernel", 90),
           "aten::add": ("add_kernel", 40), "aten::_softmax": ("softmax_kernel", 120)}  # fmt: skip
"""Kernel and length in us by operator, each once per layer."""


@dataclass(frozen=True)
class Job:
    """What the loop does. scale: factor on the kernels of an operator. kernels: another kernel for an operator. more: further launches of an
    operator per layer. clock: factor on all kernels. loading_us: of the next batch. syncs: blocking calls per step, of 300 us each. mallocs:
    calls of the driver's allocator per step, of 200 us each, while the device idles. reduce_us: of an all-reduce, behind the layers or after them.
    by_layer: each layer has kernels of an own name. batch: rows of what operators take, with shapes recorded; 0: without. ops: other names of
    operators, "" for one that is gone. waits: whether what waits for the device is a call, also at the end of a step, and not silence.
    peak_mb: in use at most in each step, 0 not recorded. shapes: factor on the rows of an operator's arguments. noise: standard deviation of
    a step's factor, with autocorrelation 0.5. slow: share of steps that take 1.5 times.
    """

    steps: int = 12
    scale: dict[str, float] = field(default_factory=dict)
    kernels: dict[str, str] = field(default_factory=dict)
    more: dict[str, int] = field(default_factory=dict)
    clock: float = 1.0
    loading_us: int = 200
    syncs: int = 0
    mallocs: int = 0
    reduce_us: int = 0
    reduce_behind: bool = True
    copies: int = 2
    noise: float = 0.01
    slow: float = 0.0
    run_noise: float = 0.0
    by_layer: bool = False
    peak_mb: int = 0
    batch: int = 0
    ops: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, int] = field(default_factory=dict)
    waits: bool = False


def trace(job: Job, seed: int = 0) -> TraceBuilder:
    """Returns the recording of a job."""
    random = np.random.default_rng(seed)
    t = TraceBuilder()
    run = 1 + job.run_noise * random.normal()
    drift, now = random.normal(), 0
    for number in range(1, job.steps + 1):
        drift = 0.5 * drift + np.sqrt(0.75) * random.normal()
        factor = run * (1 + job.noise * drift) * (1.5 if random.random() < job.slow else 1.0)
        now = _step(t, job, number, now, factor)
    return t


def _step(t: TraceBuilder, job: Job, number: int, begin: int, factor: float) -> int:
    """Adds one step that begins at a time; returns its end. The host launches ahead, the device sets the pace."""
    now = begin
    loading = round(job.loading_us * US * factor)
    t.annotation("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", now + US, loading)
    now += loading + 5 * US
    device = now
    for _ in range(job.copies):
        length = round(30 * US * factor)
        t.copy("HtoD", device + 10 * US, length, bytes=1 << 20, src="Pageable", dst="Device", call=(now, 4 * US))
        now, device = now + 6 * US, device + 10 * US + length
    if job.reduce_us and job.reduce_behind:
        now = _all_reduce(t, now, device + 10 * US, round(job.reduce_us * US * factor))
    for layer in range(LAYERS):
        for name, (kernel, length_us) in KERNELS.items():
            for _ in range(1 + job.more.get(name, 0) if job.ops.get(name, name) else 0):
                length = round(length_us * US * job.scale.get(name, 1.0) * job.clock * factor * max(job.batch, 1))
                t.op(job.ops.get(name, name), now, 8 * US, **_arguments(name, job.batch * job.shapes.get(name, 1)))
                device = max(device, now + 6 * US)
                own = f"{job.kernels.get(name, kernel)}{f'_{layer}' if job.by_layer else ''}"
                t.launch(own, at=now + 2 * US, start=device, duration=length, call_duration=3 * US)
                now, device = now + 9 * US, device + length + US
    for name, count, length in (("cudaStreamSynchronize", job.syncs, 300 * US), ("cudaMalloc", job.mallocs, 200 * US)):
        for _ in range(count):
            behind = max(device - now, 0)  # the call waits for the device, or begins when that is done
            now, length_in_all = (now, length + behind) if job.waits else (now + behind, length)
            if name != "cudaMalloc":
                t.op("aten::item", now, length_in_all)
            t.call(name, now + US, length_in_all - 2 * US)
            now += length_in_all + US
    if job.reduce_us and not job.reduce_behind:
        length = round(job.reduce_us * US * factor)
        now, device = _all_reduce(t, now, device + 10 * US, length), device + 10 * US + length
    if job.waits:
        length = max(device - now, 0) + 4 * US
        t.call("cudaDeviceSynchronize", now, length)
        now += length
    end = max(now, device) + 20 * US
    if job.peak_mb:
        size = job.peak_mb << 20
        t.memory(begin + 2 * US, size, allocated=size, reserved=size)
        t.memory(end - 2 * US, -size, allocated=0, reserved=size)
    t.step(number, begin, end - begin)
    return end


def _all_reduce(t: TraceBuilder, now: int, start: int, length: int) -> int:
    """Adds an all-reduce on a stream of its own; returns when its launch is over."""
    t.launch("ncclDevKernel_AllReduce_Sum_f32_RING_LL", at=now, start=start, duration=length, call_duration=4 * US, stream=20)
    return now + 6 * US


def _arguments(name: str, batch: int) -> dict[str, Any]:
    """Returns the shapes of an operator's arguments, where they are recorded."""
    if not batch:
        return {}
    rows = [64 * batch, 512]
    shapes = {"aten::mm": [rows, [512, 512]], "aten::add": [rows, rows, []]}.get(name, [rows])
    return {"shapes": shapes, "types": ["Scalar" if not shape else "float" for shape in shapes]}


def recording(job: Job, seed: int = 0) -> Capture:
    """Returns the capture of a job's recording."""
    with TemporaryDirectory() as folder:
        return read(str(trace(job, seed).write(Path(folder) / "worker0.1700000000000000000.pt.trace.json.gz")))
