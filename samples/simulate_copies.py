#!/usr/bin/env python3
"""Writes `simulated_copies/`: six training steps of a ranking model on four SIMULATED H100 hosts, and their `truth.json`.

    python samples/simulate_copies.py

No GPU was there, see `simulator.py`. The job moves memory in every way a job should not, each once and on purpose; `PLANTED` lists them.
Ranks 2 and 3 keep an embedding table on a second device: those of rank 2 do not reach each other and go through the host. Copies to
the device take 1.7 times as long on rank 1, as if its process ran on the wrong socket.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from simulator import COMMUNICATION, COMPUTE, PREFETCH, Json, Rank, settled, write

from tests.support.trace_builder import Raw

HERE = Path(__file__).resolve().parent
WORLD, FIRST_STEP, STEPS, BLOCKS = 4, 12, 6, 2
ROWS, WIDTH, FEED = 16384, 1024, 4096
BF16 = "c10::BFloat16"
SLOW_RANK, SLOWER = 1, 1.7
RATES = {"Pageable": 9.6, "Pinned": 52.0, "Managed": 21.0, "Device": 1420.0, "peer": 366.0}
"""Bytes per nanosecond by the slower end of a copy; between two devices over NVLink."""
MIB, KIB = 1 << 20, 1 << 10
BATCH, TARGETS, FEATURE, FEATURES = 32 * MIB, 6 * MIB, 128 * KIB, 6
MASK, ROUTED, TABLE, SCALE, SCALES = MIB, 512 * KIB, 128 * KIB, 4 * KIB, 34
EMBEDDED, CLONED, CLONES, HISTOGRAM, ROWS_UVM, CHECKPOINT = 4 * MIB, 128 * MIB, 4, 8 * MIB, 512 * KIB, 32 * MIB
NATIVE = "void at::native::(anonymous namespace)::"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<8, at::native::"
ADAM = f"{NATIVE}multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"

PLANTED: dict[str, dict[str, Json]] = {
    "pageable_loader": {"direction": "HtoD", "bytes": BATCH, "per_step": 1, "line": "data/batches.py(41): to_device"},
    "hidden_transfer": {"direction": "HtoD", "bytes": TARGETS, "per_step": 1, "line": "data/batches.py(41): to_device"},
    "coalescable": {"direction": "HtoD", "bytes": FEATURE, "per_step": FEATURES, "line": "data/features.py(77): upload"},
    "redundant": {"direction": "HtoD", "bytes": MASK, "per_step": 1, "module": "MaskBias_0", "line": "model.py(58): build_mask"},
    "ping_pong": {"direction": "both", "bytes": ROUTED, "per_step": 2 * BLOCKS, "module": "Router", "line": "router.py(36): top_k_on_cpu"},
    "peer_through_host": {"direction": "both", "bytes": EMBEDDED, "per_step": 2, "ranks": [2], "line": "embed.py(52): gather"},
    "layout": {"direction": "DtoD", "bytes": CLONED, "per_step": CLONES * BLOCKS, "module": "Layout", "line": "layout.py(15): repack"},
    "tiny": {"direction": "HtoD", "bytes": SCALE, "per_step": SCALES, "line": "optim/scales.py(57): push_scales"},
    "tiny_read": {"direction": "DtoH", "bytes": 4, "per_step": 1, "line": "hooks.py(23): log_loss"},
    "sync_api": {"direction": "HtoD", "bytes": TABLE, "per_step": 1, "line": "ext/lookup.py(12): load_table"},
    "waits": {"direction": "DtoH", "bytes": HISTOGRAM, "per_step": 1, "line": "metrics.py(64): histogram"},
    "managed": {"direction": "HtoD", "bytes": ROWS_UVM, "per_step": 1, "line": "uvm/table.py(88): refresh"},
    "managed_set": {"direction": "Memset", "bytes": ROWS_UVM, "per_step": 1, "line": "uvm/table.py(88): refresh"},
    "imbalance": {"direction": "HtoD", "ranks": [SLOW_RANK], "times": SLOWER},
}
"""What is wrong with the job: what a reader of the recording must find, and where."""


class Mover(Rank):
    """A rank with copies of every kind."""

    def move(self, direction: str, size: int, src: str, dst: str, *, stream: int = COMPUTE, device: int = 0,
             api: str = "cudaMemcpyAsync", category: str = "cuda_runtime", hold: int | None = None, sized: bool = True,
             devices: tuple[int, int] | None = None) -> None:  # fmt: skip
        """One call and the copy it starts. hold: how long after the end of the copy the call returns; None for at once."""
        at, lane = self.clock, self.lane(device, stream)
        self.spend(5200)
        start, duration = max(at + 6000, self.free[lane]), self.duration(direction, size, "peer" if devices else slowest(src, dst))
        if hold is not None:
            self.now[self.thread] = max(self.clock, start + duration + hold)
        correlation = self.t.call(api, at, self.clock - at, thread=self.thread, category=category, external_id=self.external[-1], flow=True)
        self.row(f"Memcpy {direction} ({src} -> {dst})", start, duration, size if sized else None, correlation, stream, device, devices)
        self.add_copy(f"{direction} {src} -> {dst}", start, duration, size if sized else 0, lane)

    def duration(self, direction: str, size: int, end: str) -> int:
        """Time of a copy on the device, by its slower end."""
        slow = SLOWER if self.rank == SLOW_RANK and direction == "HtoD" else 1.0
        return int((size / RATES[end] + 1100) * slow * self.random.uniform(0.99, 1.02))

    def add_copy(self, name: str, start: int, duration: int, size: int, lane: int) -> None:
        self._account("", start, duration, lane, is_kernel=False)
        entry = self.copies[name]
        for i, value in enumerate((1, size, duration)):
            entry[i] += value

    def row(self, name: str, start: int, duration: int, size: int | None, correlation: int, stream: int, device: int,
            devices: tuple[int, int] | None = None, graph: dict[str, Json] | None = None) -> None:  # fmt: skip
        """The device's record of a copy or set as Kineto writes it, with the end of its flow."""
        place: dict[str, Json] = {"device": device, "context": 1 + device, "stream": stream}
        if devices is not None:
            a, b = devices
            place = {"fromDevice": a, "inDevice": device, "toDevice": b, "fromContext": 1 + a, "inContext": 1 + device, "toContext": 1 + b,
                     "stream": stream}  # fmt: skip
        args: dict[str, Json] = {"External id": self.external[-1]} if self.external else {}
        args |= place | {"correlation": correlation} | ({} if size is None else {"bytes": size})
        if size is not None:
            args["memory bandwidth (GB/s)"] = round(size / duration, 6)
        category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
        self.t.add({"ph": "X", "cat": category, "name": name, "pid": device, "tid": stream, "ts": self.t.ts(start),
                    "dur": Raw(f"{duration // 1000}.{duration % 1000:03d}"), "args": {**args, **(graph or {})}})  # fmt: skip
        self.t.add({"ph": "f", "id": correlation, "pid": device, "tid": stream, "ts": self.t.ts(start), "cat": "ac2g", "name": "ac2g",
                    "bp": "e"})  # fmt: skip

    def fill(self, size: int, kind: str, api: str, *, hold: int | None = None) -> None:
        """A set of memory."""
        at = self.clock
        self.spend(3000)
        start, duration = max(self.clock + 1500, self.free[COMPUTE]), 1200 + int(size / 2000)
        if hold is not None:
            self.now[self.thread] = max(self.clock, start + duration + hold)
        correlation = self.t.call(api, at, self.clock - at, thread=self.thread, external_id=self.external[-1], flow=True)
        self.row(f"Memset ({kind})", start, duration, size, correlation, COMPUTE, 0)
        self.add_copy("Memset", start, duration, size, COMPUTE)

    def calls_only(self, *names: str) -> None:
        """Host calls that leave no record on the device."""
        for name in names:
            at = self.clock
            self.spend(14_000)
            self.t.call(name, at, self.clock - at, thread=self.thread, external_id=self.external[-1])

    def replay(self, names: list[str], traffic: float, copied: int) -> None:
        """One cudaGraphLaunch: kernels and a copy under a single correlation."""
        at = self.clock
        self.spend(9000)
        correlation = self.t.call("cudaGraphLaunch", at, self.clock - at, thread=self.thread, flow=True)
        start = max(self.clock + 3000, self.free[COMPUTE])
        for i, name in enumerate(names):
            duration = int(traffic / 2.68e12 * 1e9) + 1500
            self.t.kernel(name, start, duration, correlation=correlation, args=node(i))
            self._account(name, start, duration, COMPUTE)
            self.graph[0], self.graph[1] = self.graph[0] + 1, self.graph[1] + duration
            start += duration + 600
        duration = self.duration("DtoD", copied, "Device")
        self.row("Memcpy DtoD (Device -> Device)", start, duration, copied, correlation, COMPUTE, 0, graph=node(len(names)))
        self.add_copy("DtoD Device -> Device", start, duration, copied, COMPUTE)
        self.graph[0], self.graph[1] = self.graph[0] + 1, self.graph[1] + duration

    def early(self, start: int, size: int, correlation: int) -> None:
        """A copy whose call lies before the recording."""
        duration = self.duration("HtoD", size, "Pinned")
        self.row("Memcpy HtoD (Pinned -> Device)", start, duration, size, correlation, PREFETCH, 0)
        self.add_copy("HtoD Pinned -> Device", start, duration, size, PREFETCH)
        self.before[0], self.before[1] = self.before[0] + 1, self.before[1] + duration


def slowest(src: str, dst: str) -> str:
    return min(src, dst, key=RATES.__getitem__)


def node(number: int) -> dict[str, Json]:
    return {"graph id": 5, "graph node id": 21_474_836_480 + number}


class Node(NamedTuple):
    """One entry of the autograd tape."""

    name: str
    sequence: int
    at: int
    modules: tuple[str, ...]
    run: Callable[[], None]


class Trainer:
    """One training step after the other, recorded by a Mover."""

    def __init__(self, rank: Mover) -> None:
        self.r = rank
        self.tape: list[Node] = []

    @contextmanager
    def to(self, shape: list[Json], dtype: str) -> Iterator[None]:
        """`tensor.to(...)` around its copy."""
        r = self.r
        with r.op("aten::to", [shape], [dtype]), r.op("aten::_to_copy", [shape], [dtype]), \
             r.op("aten::copy_", [shape, shape, []], [dtype, dtype, "Scalar"]):  # fmt: skip
            yield

    # -- what the model computes --------------------------------------------------------------------------------

    def remember(self, name: str, at: int, run: Callable[[], None]) -> None:
        self.tape.append(Node(name, self.r.sequence, at, tuple(dict.fromkeys(self.r.modules)), run))

    def gemm(self, op: str, m: int, n: int, k: int) -> None:
        r = self.r
        shapes: list[Json] = [[m, k], [k, n]]
        with r.op(op, [[n], *shapes, [], []] if op == "aten::addmm" else shapes, [BF16] * (3 if op == "aten::addmm" else 2)):
            r.kernel("nvjet_tst_128x256_64x4_2x1_v_bz_TNT", "gemm", flop=2.0 * m * n * k + (m * n if op == "aten::addmm" else 0),
                     traffic=2.0 * (m * k + k * n + m * n), api="cuLaunchKernelEx", category="cuda_driver",
                     gemm=f"{op} {m}x{n}x{k}")  # fmt: skip

    def linear(self, name: str, n: int, k: int) -> None:
        r = self.r
        with r.frame("", module=name):
            at, r.sequence = r.clock, r.sequence + 1
            with r.op("aten::linear", [[ROWS, k], [n, k], [n]], [BF16] * 3, sequence=r.sequence):
                self.gemm("aten::addmm", ROWS, n, k)

            def back() -> None:
                self.gemm("aten::mm", ROWS, k, n)
                self.gemm("aten::mm", n, k, ROWS)

            self.remember("AddmmBackward0", at, back)

    def gelu(self, name: str) -> None:
        r = self.r
        with r.frame("", module=name):
            at, r.sequence = r.clock, r.sequence + 1
            with r.op("aten::gelu", [[ROWS, FEED], []], [BF16, ""], ["", "none"], sequence=r.sequence):
                r.kernel(f"{ELEMENTWISE}GeluCUDAKernelImpl(...)::lambda, std::array<char*, 2>>", "stream", traffic=4.0 * ROWS * FEED,
                         grid=ROWS)  # fmt: skip

            def back() -> None:
                with r.op("aten::gelu_backward", [[ROWS, FEED], [ROWS, FEED], []], [BF16, BF16, ""], ["", "", "none"]):
                    r.kernel(f"{ELEMENTWISE}GeluBackwardCUDAKernelImpl(...)::lambda, std::array<char*, 3>>", "stream",
                             traffic=6.0 * ROWS * FEED, grid=ROWS)  # fmt: skip

            self.remember("GeluBackward0", at, back)

    # -- what it copies -----------------------------------------------------------------------------------------

    def load(self) -> None:
        """A batch from pageable memory, targets that nothing hides, features one by one."""
        r = self.r
        with r.phase("data"):
            with r.phase("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
                r.spend(210_000)
            with r.frame("data/batches.py(41): to_device"):
                with self.to([ROWS, WIDTH], BF16):
                    r.move("HtoD", BATCH, "Pageable", "Device", hold=1500)
                with self.to([ROWS, 96], "float"):
                    r.move("HtoD", TARGETS, "Pinned", "Device", stream=PREFETCH)
                r.free[COMPUTE] = max(r.free[COMPUTE], r.free[PREFETCH])  # the main stream waits for an event of the other
            with r.frame("data/features.py(77): upload"):
                for _ in range(FEATURES):
                    with r.op("aten::copy_", [[ROWS, 2], [ROWS, 2], []], ["float", "float", "Scalar"], ["", "", "True"]):
                        r.move("HtoD", FEATURE, "Pinned", "Device")

    def embed(self) -> None:
        """Rows of a table on a second device: through the host on rank 2, over NVLink on rank 3."""
        r = self.r
        if r.rank < 2:
            return
        with r.frame("", module="SplitEmbedding_0"), r.frame("embed.py(52): gather"):
            with r.op("aten::embedding", [[100_000, 128], [ROWS]], [BF16, "long int"]):
                r.kernel(f"{NATIVE}vectorized_gather_kernel<16, long>", "reduce", traffic=2.0 * EMBEDDED, device=1)
            if r.rank == 3:
                with self.to([ROWS, 128], BF16):
                    r.move("PtoP", EMBEDDED, "Device", "Device", device=1, api="cudaMemcpyPeerAsync", devices=(1, 0))
            else:
                with self.to([ROWS, 128], BF16):
                    r.move("DtoH", EMBEDDED, "Device", "Pageable", device=1, hold=1500)
                with self.to([ROWS, 128], BF16):
                    r.move("HtoD", EMBEDDED, "Pageable", "Device", hold=1500)
            r.free[COMPUTE] = max(r.free[COMPUTE], r.free[r.lane(1, COMPUTE)])

    def mask(self) -> None:
        """A constant that goes to the device again and again."""
        r = self.r
        with r.frame("", module="MaskBias_0"), r.frame("model.py(58): build_mask"), self.to([1024, 1024], "bool"):
            r.move("HtoD", MASK, "Pageable", "Device", hold=1500)

    def route(self, number: int) -> None:
        """To the host, a choice there, and back."""
        r = self.r
        with r.frame("", module=f"Router_{number}"), r.frame("router.py(36): top_k_on_cpu"):
            with self.to([ROWS, 8], "float"):
                r.move("DtoH", ROUTED, "Device", "Pageable", hold=1500)
            with r.op("aten::topk", [[ROWS, 8], [], [], [], []], ["float", *["Scalar"] * 4], ["", "2", "-1", "True", "True"]):
                r.spend(150_000)
            with self.to([ROWS, 8], "float"):
                r.move("HtoD", ROUTED, "Pageable", "Device", hold=1500)

    def repack(self, number: int) -> None:
        """The same activations copied once per reader."""
        r = self.r
        with r.frame("", module=f"Layout_{number}"), r.frame("layout.py(15): repack"):
            for _ in range(CLONES):
                with r.op("aten::contiguous", [[ROWS, FEED], []], [BF16, "Scalar"]), \
                     r.op("aten::clone", [[ROWS, FEED], []], [BF16, "Scalar"]), \
                     r.op("aten::copy_", [[ROWS, FEED], [ROWS, FEED], []], [BF16, BF16, "Scalar"]):  # fmt: skip
                    r.move("DtoD", CLONED, "Device", "Device")

    # -- a step -------------------------------------------------------------------------------------------------

    def forward(self) -> None:
        r = self.r
        with r.phase("forward"), r.frame("", module="DistributedDataParallel_0"), r.frame("", module="Ranker_0"):
            self.mask()
            self.embed()
            for i in range(BLOCKS):
                with r.frame("", module=f"Block_{i}"):
                    self.linear(f"Linear_{2 * i}", FEED, WIDTH)
                    self.gelu(f"GELU_{i}")
                    self.repack(i)
                    self.linear(f"Linear_{2 * i + 1}", WIDTH, FEED)
                    self.route(i)

    def backward(self) -> None:
        """The tape in reverse on the autograd thread; gradients are reduced once per block."""
        r = self.r
        with r.phase("backward"):
            r.spend(40_000)
            begun = r.clock
            r.now[r.autograd] = max(r.now[r.autograd], begun)
            r.thread, phases, r.phases = r.autograd, r.phases, []
            for position, entry in enumerate(reversed(self.tape)):
                before = len(r.busy)
                with r.op(f"autograd::engine::evaluate_function: {entry.name}", sequence=entry.sequence, forward_thread=1, cost=1800):
                    at = r.clock
                    with r.op(entry.name, sequence=entry.sequence, forward_thread=1, cost=1500):
                        entry.run()
                    r.t.forward_backward(entry.at, at, forward_thread=r.main, backward_thread=r.autograd)
                    r.links += 1
                elapsed = sum(end - start for start, end in r.busy[before:])
                for module in entry.modules:
                    r.module_sums[module][2] += elapsed
                if position % 3 == 2:
                    with r.phase("nccl:all_reduce"), r.op("c10d::allreduce_", [[[2 * WIDTH * FEED]]], ["TensorList"], cost=4000):
                        r.all_reduce(2 * WIDTH * FEED)
            self.tape.clear()
            end, r.thread, r.phases = r.clock, r.main, phases
            r.now[r.main] = max(begun, end + 8000)
            r.free[COMPUTE] = max(r.free[COMPUTE], r.free[COMMUNICATION])  # the main stream waits for the gradients

    def optimize(self) -> None:
        """Weights, and 34 little numbers that go up one by one; then averaged weights through a graph, which copies too."""
        r = self.r
        count = BLOCKS * 2 * WIDTH * FEED
        with r.phase("optimizer"):
            with r.phase("Optimizer.step#AdamW.step"), r.op("aten::_fused_adamw_", [[[WIDTH, FEED]] * 4] * 4, ["TensorList"] * 4):
                r.kernel(ADAM, "stream", flop=15.0 * count, traffic=28.0 * count, grid=320)
            with r.phase("Optimizer.zero_grad#AdamW.zero_grad"), r.op("aten::zero_", [[count]], [BF16]):
                r.fill(2 * count, "Device", "cudaMemsetAsync")
        with r.phase("scales"), r.frame("optim/scales.py(57): push_scales"):
            for _ in range(SCALES):
                with r.op("aten::copy_", [[1024], [1024], []], ["float", "float", "Scalar"], ["", "", "True"]):
                    r.move("HtoD", SCALE, "Pinned", "Device")
        with r.phase("ema"), r.frame("ema.py(31): update"):
            r.replay([f"triton_poi_fused_add_lerp_mul_{i}" for i in range(2)], 6.0 * count / 2, 2 * MIB)

    def tables(self, first: bool) -> None:
        """Memory that migrates, a call that waits, and the driver's own calls."""
        r = self.r
        with r.phase("tables"):
            with r.frame("uvm/table.py(88): refresh"), r.op("fbgemm::uvm_cache_refresh", [[ROWS, 8]], ["float"]):
                r.calls_only(*(["cudaMemAdvise"] if first else []), "cudaMemPrefetchAsync")
                r.move("HtoD", ROWS_UVM, "Managed", "Device", hold=1500)
                r.fill(ROWS_UVM, "Managed", "cudaMemset", hold=1200)
            with r.frame("ext/lookup.py(12): load_table"), r.op("lookup_ext::load", [[32768]], ["float"]):
                r.move("HtoD", TABLE, "Pinned", "Device", api="cudaMemcpy", hold=2000)
                r.move("DtoD", TABLE, "Device", "Device", api="cuMemcpyDtoDAsync_v2", category="cuda_driver")

    def log(self) -> None:
        """The loss on the host: the device runs dry while the line is written."""
        r = self.r
        with r.phase("log"), r.frame("hooks.py(23): log_loss"):
            with r.op("aten::item", [[]], ["float"]), r.op("aten::_local_scalar_dense", [[]], ["float"]):
                r.move("DtoH", 4, "Device", "Pageable", hold=1500)
                r.synchronize("cudaStreamSynchronize", r.free[COMPUTE], COMPUTE)
            r.spend(180_000)

    def report(self, *, without_size: bool) -> None:
        """A histogram that the call waits for."""
        r = self.r
        with r.phase("metrics"), r.frame("metrics.py(64): histogram"):
            with self.to([2048, 1024], "float"):
                r.move("DtoH", HISTOGRAM, "Device", "Pinned", hold=70_000)
            with r.op("aten::copy_", [[1024, 256], [1024, 256], []], ["float", "float", "Scalar"]):
                r.move("DtoD", MIB, "Device", "Device", sized=not without_size)


def simulate(rank: int, arrivals: list[int]) -> Mover:
    """One rank's six steps."""
    r = Mover(rank, WORLD, 1.0, arrivals, devices=2 if rank > 1 else 1)
    trainer = Trainer(r)
    r.drained(ADAM, 4_000, 60_200, 40)
    r.early(9_000, 2 * MIB, 41)
    r.spend(60_000)
    with r.frame("train.py(12): <module>"), r.frame("train.py(88): main"):
        for number in range(FIRST_STEP, FIRST_STEP + STEPS):
            start = r.clock
            with r.phase(f"ProfilerStep#{number}"), r.frame("train.py(61): train_step"):
                block = r.allocate(ROWS * FEED * 2)
                trainer.load()
                trainer.forward()
                trainer.backward()
                trainer.log()
                trainer.optimize()
                trainer.tables(first=number == FIRST_STEP)
                trainer.report(without_size=number == FIRST_STEP + 1)
                r.release(block, ROWS * FEED * 2)
            r.steps.append({"number": number, "start_ns": start, "duration_ns": r.clock - start})
            r.spend(25_000)
        with r.frame("checkpoint.py(19): save"), trainer.to([4096, 4096], BF16):
            r.move("DtoH", CHECKPOINT, "Device", "Pinned", stream=PREFETCH)
    r.name_threads()
    return r


def main() -> None:
    ranks = settled(simulate, WORLD, passes=20)
    folder = HERE / "simulated_copies"
    write(ranks, folder)
    truth = {f"rank{r.rank}_{4000 + r.rank}": r.truth() | {"planted": planted(r.rank)} for r in ranks}
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(sums)}" for name, sums in truth.items())
    (folder / "truth.json").write_text("{" + lines + "}\n")


def planted(rank: int) -> dict[str, Json]:
    """What one rank suffers from."""
    out: dict[str, Json] = {}
    for name, cause in PLANTED.items():
        ranks = cause.get("ranks", [*range(WORLD)])
        if isinstance(ranks, list) and rank in ranks:
            out[name] = dict(cause)
    return out


if __name__ == "__main__":
    main()
