"""A made-up machine for the `simulate_*.py` scripts: one rank's host threads, streams and clock, and the sums that must come out.

Nothing here was measured. A kernel takes the longer of its arithmetic and its traffic at a fixed share of the H100's published peaks
(989 TFLOP/s bf16, 3.35 TB/s), plus 1.5 us, with a little seeded jitter. Everything is integer nanoseconds and the same on every machine.
"""

from __future__ import annotations

import random
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.support.trace_builder import Json, TraceBuilder

__all__ = ["COMMUNICATION", "COMPUTE", "PREFETCH", "Json", "Rank"]

PEAK_FLOP, PEAK_BYTES = 989e12, 3.35e12
COMPUTE, COMMUNICATION, PREFETCH = 7, 20, 24
SHARE = {"gemm": (0.62, 0.70), "conv": (0.45, 0.60), "attention": (0.38, 0.55), "attention_bwd": (0.30, 0.50), "sgemm": (0.82, 0.70),
         "stream": (1.0, 0.82), "reduce": (1.0, 0.55), "small": (1.0, 0.30)}  # fmt: skip
"""Share of the arithmetic and of the memory peak that a kind of kernel reaches here."""
LINKS = {"Pageable": 6.4, "Pinned": 52.0}
"""Bytes per nanosecond of a host copy."""
BUS = 310.0
"""Bytes per nanosecond of an all-reduce between two ranks."""


class Rank:
    """One rank: emits events and keeps the sums that a reader of the trace must find (`truth`).

    arrivals: for each collective in turn, when the slowest rank reached it in the previous pass (empty in the first).
    """

    def __init__(self, rank: int, world: int, pace: float, arrivals: list[int], *, devices: int = 1) -> None:
        self.t = TraceBuilder(device="NVIDIA H100 80GB HBM3", devices=devices, pid=4000 + rank, rank=rank, world_size=world)
        self.rank, self.world, self.pace, self.arrivals = rank, world, pace, arrivals
        self.random = random.Random(f"rank {rank}")
        self.main, self.autograd = self.t.pid, self.t.pid + 77
        self.now = {self.main: 0, self.autograd: 0}
        self.thread = self.main
        self.free: dict[int, int] = defaultdict(int)
        self.sequence = 900
        self.reached: list[int] = []
        self.busy: list[tuple[int, int]] = []
        self.ops: list[str] = []
        self.external: list[int] = []
        self.modules: list[str] = []
        self.phases: list[str] = []
        self.parent: list[int] = []
        self.module_ids: dict[str, int] = {}
        self.allocated = self.peak = 3_400_000_000
        self.address = 0x7F2000000000
        self.kernels: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.operators: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.module_sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.phase_sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
        self.copies: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.gemms: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self.collectives = [0, 0, 0]
        self.before = [0, 0]
        self.graph = [0, 0]
        self.recomputed = [0, 0]
        self.steps: list[dict[str, int]] = []
        self.links = 0

    # -- host -------------------------------------------------------------------------------------------------

    def spend(self, ns: int) -> None:
        """Host time on the current thread."""
        self.now[self.thread] += int(ns * self.pace * self.random.uniform(0.92, 1.12))

    @property
    def clock(self) -> int:
        return self.now[self.thread]

    @contextmanager
    def op(self, name: str, shapes: list[Json] | None = None, types: list[Json] | None = None, concrete: list[Json] | None = None,
           *, sequence: int | None = None, forward_thread: int | None = None, cost: int = 2600) -> Iterator[None]:  # fmt: skip
        """A cpu_op around what is inside."""
        start, external = self.clock, self.t.number("external")
        self.ops.append(name)
        self.external.append(external)
        self.spend(cost)
        yield
        self.spend(cost // 3)
        self.ops.pop()
        self.external.pop()
        self.operators[name][0] += 1
        strides: list[Json] = [_strides(s) for s in shapes or []]
        self.t.op(name, start, self.clock - start, thread=self.thread, shapes=shapes, types=types, concrete=concrete,
                  strides=strides if shapes else None, sequence=sequence, forward_thread=forward_thread, external_id=external)  # fmt: skip

    @contextmanager
    def frame(self, name: str, *, module: str = "", cost: int = 900) -> Iterator[None]:
        """A python frame, or a call of the module instance `module`."""
        start, number = self.clock, self.t.number("python")
        parent = self.parent[-1] if self.parent else None
        self.parent.append(number)
        if module:
            self.modules.append(module)
            self.module_sums[module][0] += 1
        self.spend(cost)
        yield
        self.spend(cost // 2)
        self.parent.pop()
        identity = self.module_ids.setdefault(module, len(self.module_ids)) if module else None
        if module:
            self.modules.pop()
        self.t.frame(f"nn.Module: {module}" if module else name, start, self.clock - start, parent=parent, thread=self.thread,
                     module_id=identity, python_id=number)  # fmt: skip

    @contextmanager
    def phase(self, name: str, *, cost: int = 1500) -> Iterator[None]:
        """A user annotation."""
        start = self.clock
        self.phases.append(name)
        self.phase_sums[name][0] += 1
        self.spend(cost)
        yield
        self.spend(cost // 3)
        self.phases.pop()
        self.t.annotation(name, start, self.clock - start, thread=self.thread)

    # -- device -----------------------------------------------------------------------------------------------

    def kernel(self, name: str, kind: str, *, flop: float = 0.0, traffic: float = 0.0, stream: int = COMPUTE, api: str = "cudaLaunchKernel",
               category: str = "cuda_runtime", grid: int = 132, gemm: str = "", peak: float | None = None,
               device: int = 0) -> None:  # fmt: skip
        """Launch one kernel of `flop` operations and `traffic` bytes; peak: FLOP/s where it is not the BF16 peak."""
        lane = self.lane(device, stream)
        compute, memory = SHARE[kind]
        ideal = max(flop / ((peak or PEAK_FLOP) * compute), traffic / (PEAK_BYTES * memory)) * 1e9
        duration = int(ideal * self.random.uniform(0.985, 1.03)) + 1500
        at = self.clock
        self.spend(4200)
        start = max(self.clock + 1900, self.free[lane])
        correlation = self.t.call(api, at, self.clock - at, thread=self.thread, category=category, external_id=self.external[-1], flow=True)
        self.t.kernel(name, start, duration, correlation=correlation, stream=stream, grid=(grid, 1, 1), external_id=self.external[-1],
                      blocks_per_sm=round(grid / 132, 6), warps_per_sm=round(8 * grid / 132, 6), occupancy=min(100, 8 * grid // 132),
                      registers=168 if kind in ("gemm", "attention") else 40, flow=True, device=device)  # fmt: skip
        self._account(name, start, duration, lane)
        if gemm:
            self.gemms[gemm][0] += 1
            self.gemms[gemm][1] += int(flop)
            self.gemms[gemm][2] += duration

    @staticmethod
    def lane(device: int, stream: int) -> int:
        """A stream of a device, as one number."""
        return 1000 * device + stream

    def _account(self, name: str, start: int, duration: int, lane: int, *, is_kernel: bool = True) -> None:
        self.free[lane] = start + duration
        self.busy.append((start, start + duration))
        if is_kernel:
            self.kernels[name][0] += 1
            self.kernels[name][1] += duration
        if self.ops:
            self.operators[self.ops[-1]][1] += duration
        for module in dict.fromkeys(self.modules):
            self.module_sums[module][1] += duration
        for phase in dict.fromkeys(self.phases):
            self.phase_sums[phase][1] += duration

    def copy(self, direction: str, size: int, host: str, *, stream: int = COMPUTE, waits: bool = False) -> None:
        """A copy between host memory of kind `host` and the device; a pageable one, or one that `waits`, blocks the host thread."""
        src, dst = (host, "Device") if direction == "HtoD" else ("Device", host)
        at = self.clock
        start = max(at + 6000, self.free[stream])
        duration = int(size / LINKS[host] * self.random.uniform(0.99, 1.04)) + 1100
        self.spend(5200)
        if host == "Pageable":
            self.now[self.thread] = max(self.clock, start + duration + 1500)
        correlation = self.t.call("cudaMemcpyAsync", at, self.clock - at, thread=self.thread, external_id=self.external[-1], flow=True)
        self.t.copy(direction, start, duration, src=src, dst=dst, bytes=size, correlation=correlation, stream=stream)
        self._account("", start, duration, stream, is_kernel=False)
        entry = self.copies[f"{direction} {src} -> {dst}"]
        for i, value in enumerate((1, size, duration)):
            entry[i] += value
        if waits:
            self.synchronize("cudaStreamSynchronize", self.free[stream], stream)

    def memset(self, size: int) -> None:
        """A memset on the compute stream."""
        at = self.clock
        self.spend(3000)
        start, duration = max(self.clock + 1500, self.free[COMPUTE]), 1200 + int(size / 2000)
        self.t.memset(start, duration, bytes=size, call=(at, self.clock - at))
        self._account("", start, duration, COMPUTE, is_kernel=False)
        entry = self.copies["Memset"]
        for i, value in enumerate((1, size, duration)):
            entry[i] += value

    def synchronize(self, api: str, until: int, stream: int) -> None:
        """The host waits for the device."""
        at = self.clock
        self.now[self.thread] = max(at + 2000, until + 2500)
        correlation = self.t.call(api, at, self.clock - at, thread=self.thread)
        self.t.sync("Stream Sync" if "Stream" in api else "Context Sync", at, self.clock - at, stream=stream, correlation=correlation)

    def all_reduce(self, elements: int) -> None:
        """A bf16 all-reduce that begins when the gradients are there and ends when the slowest rank has come."""
        ready = max(self.clock + 9000, self.free[COMPUTE], self.free[COMMUNICATION])
        index = len(self.reached)
        self.reached.append(ready)
        last = self.arrivals[index] if self.arrivals else ready
        size = elements * 2
        end = max(ready, last) + int(size / BUS) + 12_000
        at = self.clock
        self.spend(6500)
        correlation = self.t.call("cudaLaunchKernelExC", at, self.clock - at, thread=self.thread, external_id=self.external[-1], flow=True)
        self.t.collective("allreduce", ready, end - ready, elements=elements, dtype="BFloat16", group_size=self.world,
                          correlation=correlation, stream=COMMUNICATION, args={"External id": self.external[-1]})  # fmt: skip
        name = str(next(e["name"] for e in reversed(self.t.events) if e.get("cat") == "kernel"))
        self._account(name, ready, end - ready, COMMUNICATION)
        self.collectives[0] += 1
        self.collectives[1] += size
        self.collectives[2] += end - ready

    def graph_launch(self, names: list[str], traffic: float) -> None:
        """One cudaGraphLaunch that runs `names` one after another under a single correlation."""
        at = self.clock
        self.spend(9000)
        correlation = self.t.call("cudaGraphLaunch", at, self.clock - at, thread=self.thread, flow=True)
        start = max(self.clock + 3000, self.free[COMPUTE])
        for i, name in enumerate(names):
            duration = int(traffic / (PEAK_BYTES * 0.8) * 1e9) + 1500
            self.t.kernel(name, start, duration, correlation=correlation, args={"graph id": 5, "graph node id": 21_474_836_480 + i})
            self._account(name, start, duration, COMPUTE)
            self.graph[0] += 1
            self.graph[1] += duration
            start += duration + 600

    def drained(self, name: str, start: int, duration: int, correlation: int) -> None:
        """A kernel that was launched before the recording began: its launch is not in the file."""
        self.t.kernel(name, start, duration, correlation=correlation)
        self._account(name, start, duration, COMPUTE)
        self.before[0] += 1
        self.before[1] += duration

    # -- memory -----------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> int:
        """A block of device memory; returns its address."""
        self.address += size + 512
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        self.t.memory(self.clock, size, address=self.address, allocated=self.allocated, reserved=22_000_000_000, thread=self.thread)
        return self.address

    def release(self, address: int, size: int) -> None:
        """Give a block back."""
        self.allocated -= size
        self.t.memory(self.clock, -size, address=address, allocated=self.allocated, reserved=22_000_000_000, thread=self.thread)

    def name_threads(self) -> None:
        """Metadata events: what process and threads are called."""
        t = self.t
        t.metadata("process_name", "python3")
        t.metadata("process_labels", "CPU")
        t.metadata("thread_name", f"thread {self.main} (python3)", tid=self.main)
        t.metadata("thread_name", f"thread {self.autograd} (pt_autograd_0)", tid=self.autograd)
        streams = {(int(str(e["pid"])), int(str(e["tid"]))) for e in t.events if e.get("cat") == "kernel"} | {(0, PREFETCH)}
        for device in sorted({d for d, _ in streams}):
            t.metadata("process_name", "python3", pid=device)
            t.metadata("process_labels", f"GPU {device}", pid=device)
            for stream in sorted(s for d, s in streams if d == device):
                t.metadata("thread_name", f"stream {stream} ", pid=device, tid=stream)

    # -- truth ------------------------------------------------------------------------------------------------

    def truth(self) -> dict[str, object]:
        """The sums a reader of this trace must find, all in ns, bytes and FLOP."""

        def named(keys: tuple[str, ...], sums: dict[str, list[int]]) -> dict[str, dict[str, int]]:
            return {name: dict(zip(keys, values, strict=True)) for name, values in sorted(sums.items())}

        return {
            "total_events": len(self.t.events),
            "steps": self.steps,
            "device_events": len(self.busy),
            "device_sum_ns": sum(end - start for start, end in self.busy),
            "device_busy_ns": _union(self.busy),
            "device_extent_ns": max(e for _, e in self.busy) - min(s for s, _ in self.busy),
            "before_window": {"events": self.before[0], "total_ns": self.before[1]},
            "graph": {"events": self.graph[0], "total_ns": self.graph[1]},
            "recompute": {"events": self.recomputed[0], "total_ns": self.recomputed[1]},
            "forward_backward_flows": self.links,
            "peak_allocated_bytes": self.peak,
            "collectives": {"count": self.collectives[0], "bytes": self.collectives[1], "time_ns": self.collectives[2]},
            "kernels": named(("calls", "total_ns"), self.kernels),
            "copies": named(("count", "bytes", "time_ns"), self.copies),
            "operators": named(("calls", "device_self_ns"), self.operators),
            "modules": named(("calls", "device_total_ns", "backward_device_ns"), self.module_sums),
            "phases": named(("count", "device_ns"), self.phase_sums),
            "gemms": named(("calls", "flop", "measured_ns"), self.gemms),
        }


def settled(simulate: Callable[[int, list[int]], Rank], world: int, *, passes: int) -> list[Rank]:
    """The ranks of a job, simulated until each collective begins when the slowest rank reaches it; at most so many passes."""
    arrivals: list[int] = []
    for _ in range(passes):
        ranks = [simulate(rank, arrivals) for rank in range(world)]
        latest = [max(times) for times in zip(*(r.reached for r in ranks), strict=True)]
        if latest == arrivals:
            break
        arrivals = latest
    return ranks


def write(ranks: list[Rank], folder: Path) -> None:
    """A recording per rank, named as torch's trace handler does, and marked as simulated."""
    for r in ranks:
        r.t.header |= {"traceName": "recording.json", "simulated": 1}
        r.t.write(folder / f"rank{r.rank}_{4000 + r.rank}.1700000000000000000.pt.trace.json.gz")


def _strides(shape: Json) -> Json:
    if not isinstance(shape, list) or (shape and isinstance(shape[0], list)):
        return []
    out: list[Json] = []
    step = 1
    for size in reversed(shape):
        out.insert(0, step)
        step *= int(size)  # type: ignore[arg-type]
    return out


def _union(intervals: list[tuple[int, int]]) -> int:
    total, reach = 0, -1
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reach))
        reach = max(reach, end)
    return total
