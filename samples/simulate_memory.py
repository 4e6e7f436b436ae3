#!/usr/bin/env python3
"""Writes `simulated_memory/before` and `simulated_memory/after`: memory of a training job on four SIMULATED H100s, and its `truth.json`.

    python samples/simulate_memory.py

No GPU was there. A transformer of four wide layers is trained by four ranks: two pipeline stages (ranks 0 and 1, ranks 2 and 3) of two
replicas each, two micro batches per step. Memory comes from a made-up caching allocator (`caching_allocator.py`), and everything that is
written is of the same allocations: per rank a trace of six steps with memory events, a SOL capture of forty iterations with records of
memory, and of rank 0 a snapshot of the allocator after the last traced step.

On purpose, in both: gradients stay between steps, stage 0 holds a copy of the head that training does not need, and rank 3 gets sequences
that are twice as long. In `before` also: a module keeps 24 MiB of every micro batch, every replica holds the whole state of the
optimizer, a workspace that was made inside of a larger buffer keeps the rest of it from being returned, and an evaluation asks for more
than is left: it would fit, were it not for that rest.
"""

from __future__ import annotations

import gzip
import json
import pickle
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from caching_allocator import MIB, Allocator, Block, OutOfMemory
from simulator import COMPUTE, Json, Rank

from tb_sol_plugin import format as F
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.schedule import StepRecord
from tb_sol_plugin.capture.report.writer import CaptureWriter
from tests.support.trace_builder import BASE_NS, ORIGIN_NS

HERE = Path(__file__).resolve().parent
RUNS = {"before": False, "after": True}
"""Folder of each run: whether the job was changed."""
RANKS, STAGES, REPLICAS, MICRO = 4, 2, 2, 2
WIDTH, HEADS, LAYERS, WORDS = 8192, 64, 2, 32768
TOKENS = (4096, 4096, 4096, 8192)
"""Of one micro batch, by rank."""
ITERATIONS, TRACED = 40, range(30, 36)
HISTORY = 1500
"""Entries that the allocator's history keeps."""
TOTAL = 85_018_279_936
CONTEXT, COMMUNICATION = 528 * MIB, 1104 * MIB
"""Of the device, outside of the allocator: known from two records before the model is made."""
AHEAD = 2_000_000
"""ns that the host may be ahead of the device: then its queue is full."""
LEAK = 24 * MIB
"""What the module keeps of a micro batch."""
TRIAL, BUFFER, WORKSPACE = 2, 6 << 30, 520 * MIB
"""The iteration after which a buffer is tried out and let go, and the workspace that is then made of it and stays."""
WHOLE, SLICE, SLICES = 42 << 30, 3 << 30, 14
"""The logits of an evaluation, at once or one slice after the other."""
SHARDED = ("master_weights", "exp_avg", "exp_avg_sq")
BF16 = "c10::BFloat16"
HOST = "sim0"
ZERO_NS = BASE_NS + ORIGIN_NS
LINES = {
    "main": ("train.py", 88), "train_step": ("train.py", 41), "optimizer": ("train.py", 52), "evaluate": ("evaluate.py", 21),
    "setup": ("train.py", 70), "tune": ("tune.py", 17), "Stage": ("model.py", 96), "Embedding": ("model.py", 12),
    "TokenStats": ("stats.py", 33), "Block": ("model.py", 61), "Attention": ("model.py", 31), "Mlp": ("model.py", 47),
    "LayerNorm": ("model.py", 8), "Linear": ("model.py", 22), "GELU": ("model.py", 49), "Loss": ("model.py", 120),
}  # fmt: skip
"""Where the program is, by function or class."""


class Silence:
    """In the place of a trace outside of the traced steps."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_, **__: 0


@dataclass
class Parameter:
    """A weight: its module (qualified name, class), elements, and the blocks of what belongs to it."""

    module: str
    kind: str
    elements: int
    blocks: dict[str, Block] = field(default_factory=dict)


@dataclass
class Node:
    """What autograd does for one operator of the forward pass."""

    name: str
    sequence: int
    modules: tuple[str, ...]
    run: Callable[[Block], Block]


class Trainer(Rank):
    """One rank of the job. changed: as in `after`."""

    def __init__(self, rank: int, changed: bool) -> None:
        super().__init__(rank, RANKS, 1.0 + 0.002 * rank, [])
        self.changed = changed
        self.stage, self.replica = divmod(rank, REPLICAS)
        self.rows = TOKENS[rank]
        self.trace, self.t = self.t, Silence()  # type: ignore[assignment]
        self.device = Allocator(TOTAL, CONTEXT + COMMUNICATION)
        self.history: list[dict[str, object]] = []
        self.where: list[str] = ["main"]
        self.stacks: dict[tuple[str, ...], list[dict[str, object]]] = {}
        self.lines: dict[str, dict[str, object]] = {}
        self.alive: dict[int, Block] = {}
        self.labels = Labels()
        self.phase_label = -1
        self.most: dict[int, list[int]] = {}
        self.phase_times: list[tuple[int, int, int, int | None, int]] = []
        self.records: list[dict[str, object]] = []
        self.rounds: list[StepRecord] = []
        self.kept: list[Block] = []
        self.flat: dict[str, Block] = {}
        self.parameters = self.model()
        self.truth_of: dict[str, object] = {"levels": []}
        self.peak_held: dict[str, object] = {}
        self.snapshot_bytes = b""

    # -- the model --------------------------------------------------------------------------------------------

    def model(self) -> dict[str, Parameter]:
        """Weights of this stage by name, in the order in which they are made."""
        out: dict[str, Parameter] = {}

        def add(name: str, kind: str, *elements: int) -> None:
            for number, count in enumerate(elements):
                out[f"{name}.{('weight', 'bias')[number]}"] = Parameter(name, kind, count)

        if self.stage == 0:
            add("embed", "Embedding", WORDS * WIDTH)
        for i in range(LAYERS * self.stage, LAYERS * (self.stage + 1)):
            add(f"blocks.{i}.norm1", "LayerNorm", WIDTH, WIDTH)
            add(f"blocks.{i}.attention.qkv", "Linear", 3 * WIDTH * WIDTH)
            add(f"blocks.{i}.attention.out", "Linear", WIDTH * WIDTH)
            add(f"blocks.{i}.norm2", "LayerNorm", WIDTH, WIDTH)
            add(f"blocks.{i}.mlp.up", "Linear", 4 * WIDTH * WIDTH)
            add(f"blocks.{i}.mlp.down", "Linear", 4 * WIDTH * WIDTH)
        if self.stage == STAGES - 1:
            add("norm", "LayerNorm", WIDTH, WIDTH)
        add("head", "Linear", WORDS * WIDTH)
        return out

    @property
    def elements(self) -> int:
        return sum(p.elements for p in self.parameters.values())

    # -- memory -----------------------------------------------------------------------------------------------

    def stack(self) -> list[dict[str, object]]:
        """The frames of where the program is, innermost first."""
        key = tuple(self.where)
        if key not in self.stacks:
            found = []
            for name in reversed(key):
                if name not in self.lines:
                    file, line = LINES[name]
                    self.lines[name] = {"filename": file, "line": line, "name": name if name[0].islower() else "forward"}
                found.append(self.lines[name])
            self.stacks[key] = found
        return self.stacks[key]

    def hold(self, size: int, category: str) -> Block:
        """Allocates a block, with its events in every record of memory."""
        try:
            block = self.device.allocate(size)
        except OutOfMemory:
            self.record_events()
            raise
        inside = [self.modules, self.ops] if self.t is self.trace else [[], []]  # only the trace records owners
        block.stack, block.about = self.stack(), (category, *(names[-1] if names else "" for names in inside))
        self.alive[block.address] = block
        self.record_events()
        self.point(block.address, block.size)
        return block

    def drop(self, *blocks: Block) -> None:
        """Frees blocks."""
        for block in blocks:
            address, size = block.address, block.size
            del self.alive[address]
            self.device.release(block)
            self.record_events()
            self.point(address, -size)

    def record_events(self) -> None:
        """Appends the last events of the allocator to its history."""
        for action, address, size in self.device.events:
            place = "device_free" if action == "oom" else "addr"
            entry = {"action": action, place: address, "size": size, "stream": 0, "time_us": (ZERO_NS + self.clock) // 1000,
                     "frames": self.stack()}  # fmt: skip
            self.history.append(entry)

    def point(self, address: int, change: int) -> None:
        level, reserved = self.device.allocated, self.device.reserved
        self.t.memory(self.clock, change, address=address, allocated=level, reserved=reserved, thread=self.thread)
        self.see()
        if self.t is self.trace and level > int(str(self.peak_held.get("bytes", -1))):
            by: dict[str, dict[str, int]] = {"category": defaultdict(int), "module": defaultdict(int), "operator": defaultdict(int)}
            for block in self.alive.values():
                for name, owner in zip(by, block.about, strict=True):
                    by[name][owner] += block.size
            self.peak_held = {"bytes": level, "reserved": reserved, "time_ns": self.clock, **{n: dict(sums) for n, sums in by.items()}}

    def see(self) -> None:
        """Largest levels while the present phase is the innermost one."""
        most = self.most.setdefault(self.phase_label, [0, 0])
        most[0], most[1] = max(most[0], self.device.allocated), max(most[1], self.device.reserved)

    # -- where we are -----------------------------------------------------------------------------------------

    @contextmanager
    def module(self, name: str) -> Iterator[None]:
        """Inside the forward of a module: `Linear_3`."""
        self.where.append(name.rpartition("_")[0])
        with self.frame("", module=name):
            yield
        self.where.pop()

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """A phase of an iteration, for the trace and for the SOL capture."""
        before, self.phase_label = self.phase_label, self.labels.id_of("phase", -1, name)
        self.see()
        start = self.clock
        with self.phase(name):
            yield
        self.phase_times.append((self.phase_label, start, self.clock - start, None, 1))
        self.phase_label = before
        self.see()

    def work(self, name: str, kernel: str, *, flop: float = 0.0, traffic: float = 0.0, kind: str = "stream") -> None:
        """One kernel of the operator that is open."""
        at = self.clock
        self.spend(4000)
        self.now[self.thread] = max(self.clock, self.free[COMPUTE] - AHEAD)
        start = max(self.clock + 1900, self.free[COMPUTE])
        share = {"gemm": (0.62, 0.70), "attention": (0.38, 0.55), "stream": (1.0, 0.82)}[kind]
        duration = int(max(flop / (989e12 * share[0]), traffic / (3.35e12 * share[1])) * 1e9) + 1500
        correlation = self.t.call("cudaLaunchKernel", at, self.clock - at, thread=self.thread, external_id=self.external[-1])
        self.t.kernel(kernel, start, duration, correlation=correlation, external_id=self.external[-1], blocks_per_sm=None,
                      warps_per_sm=None, occupancy=None)  # fmt: skip
        self.free[COMPUTE] = start + duration

    # -- forward ----------------------------------------------------------------------------------------------

    def wide(self, columns: int, size: int = 2) -> int:
        """Bytes of a matrix with a row per token."""
        return self.rows * columns * size

    def gemm(self, m: int, n: int, k: int) -> None:
        self.work("", "nvjet_tst_128x256_64x4_2x1_v_bz_TNT", flop=2.0 * m * n * k, traffic=2.0 * (m * k + k * n + m * n), kind="gemm")

    def node(self, name: str, sequence: int, run: Callable[[Block], Block]) -> None:
        self.tape.append(Node(name, sequence, tuple(self.modules), run))

    def next(self) -> int:
        self.sequence += 1
        return self.sequence

    def linear(self, module: str, weight: str, n: int, k: int, saved: Block, category: str = "activations", *, ends: bool = False) -> Block:
        """x @ W; `saved` is kept for the backward pass. ends: the gradient that comes in is not needed by anybody else."""
        with self.module(module):
            sequence = self.next()
            with self.op("aten::linear", [[self.rows, k], [n, k], []], [BF16, BF16, ""], sequence=sequence):
                out = self.hold(self.wide(n), category)
                self.gemm(self.rows, n, k)

            def back(gradient: Block) -> Block:
                with self.op("aten::mm", [[self.rows, n], [n, k]], [BF16, BF16]):
                    made = self.hold(self.wide(k), "temporary")
                    self.gemm(self.rows, k, n)
                self.weight(weight, lambda: self.gemm(n, k, self.rows), [[n, self.rows], [self.rows, k]])
                self.drop(saved)
                if ends:
                    self.drop(gradient)
                return made

            self.node("MmBackward0", sequence, back)
        return out

    def weight(self, name: str, run: Callable[[], None], shapes: list[Json]) -> None:
        """The gradient of a weight: into what is there from before, else it is that from now on."""
        parameter = self.parameters[name]
        with self.op("aten::mm", shapes, [BF16, BF16]):
            made = self.hold(parameter.elements * 2, "temporary" if "grads" in parameter.blocks else "grads")
            run()
        if made.about[0] == "grads":
            parameter.blocks["grads"] = made
            return
        with self.op("aten::add_", [[parameter.elements]] * 2, [BF16, BF16]):
            self.work("", "vectorized_elementwise_kernel<8, add>", traffic=6.0 * parameter.elements)
        self.drop(made)

    def norm(self, module: str, weight: str, saved: Block) -> Block:
        with self.module(module):
            sequence = self.next()
            with self.op("aten::native_layer_norm", [[self.rows, WIDTH], [], [WIDTH], [WIDTH], []], [BF16, "", BF16, BF16, ""],
                         sequence=sequence):  # fmt: skip
                out = self.hold(self.wide(WIDTH), "activations")
                stats = [self.hold(self.rows * 4, "activations") for _ in range(2)]

            def back(gradient: Block) -> Block:
                with self.op("aten::native_layer_norm_backward", [[self.rows, WIDTH]] * 2, [BF16, BF16]):
                    made = self.hold(self.wide(WIDTH), "temporary")
                for kind in ("weight", "bias"):
                    parameter = self.parameters[f"{weight}.{kind}"]
                    if "grads" not in parameter.blocks:
                        parameter.blocks["grads"] = self.hold(parameter.elements * 2, "grads")
                self.drop(gradient, *stats)
                return made

            self.node("NativeLayerNormBackward0", sequence, back)
        return out

    def add(self, x: Block, more: Block) -> Block:
        """The residual: x stays for whoever kept it, what was added is let go."""
        with self.op("aten::add", [[self.rows, WIDTH]] * 2 + [[]], [BF16, BF16, "Scalar"]):
            out = self.hold(self.wide(WIDTH), "activations")
        self.drop(more)
        return out

    def branch(self, inside: Callable[[Block], Block], x: Block) -> Block:
        """x + inside(x): in the backward pass both gradients are added."""
        begin = len(self.tape)
        out = self.add(x, inside(x))
        nodes, self.tape[begin:] = self.tape[begin:], []

        def back(gradient: Block) -> Block:
            through = gradient
            for one in reversed(nodes):
                through = self.evaluate(one, through)
            with self.op("aten::add", [[self.rows, WIDTH]] * 2 + [[]], [BF16, BF16, "Scalar"]):
                both = self.hold(self.wide(WIDTH), "temporary")
            self.drop(gradient, through, x)
            return both

        self.tape.append(Node("", -1, (), back))
        return out

    def attention(self, i: int, x: Block) -> Block:
        name, at = f"blocks.{i}", i % LAYERS
        y = self.norm(f"LayerNorm_{2 * at}", f"{name}.norm1", x)
        with self.module(f"Attention_{at}"):
            qkv = self.linear(f"Linear_{4 * at}", f"{name}.attention.qkv.weight", 3 * WIDTH, WIDTH, y, ends=True)
            sequence = self.next()
            shape: Json = [1, HEADS, self.rows, WIDTH // HEADS]
            flop = 2.0 * self.rows * self.rows * WIDTH
            with self.op("aten::scaled_dot_product_attention", [shape] * 3, [BF16] * 3, sequence=sequence):
                out = self.hold(self.wide(WIDTH), "activations")
                self.work("", "flash_fwd_kernel", flop=flop, traffic=8.0 * self.rows * WIDTH, kind="attention")

            def back(gradient: Block) -> Block:
                with self.op("aten::_scaled_dot_product_flash_attention_backward", [shape] * 5, [BF16] * 5):
                    made = self.hold(self.wide(3 * WIDTH), "temporary")
                    self.work("", "flash_bwd_kernel", flop=2.5 * flop, traffic=16.0 * self.rows * WIDTH, kind="attention")
                self.drop(gradient, qkv)
                return made

            self.node("ScaledDotProductFlashAttentionBackward0", sequence, back)
            return self.linear(f"Linear_{4 * at + 1}", f"{name}.attention.out.weight", WIDTH, WIDTH, out, "temporary")

    def feed(self, i: int, x: Block) -> Block:
        name, at = f"blocks.{i}", i % LAYERS
        y = self.norm(f"LayerNorm_{2 * at + 1}", f"{name}.norm2", x)
        with self.module(f"Mlp_{at}"):
            up = self.linear(f"Linear_{4 * at + 2}", f"{name}.mlp.up.weight", 4 * WIDTH, WIDTH, y, ends=True)
            with self.module(f"GELU_{at}"):
                sequence = self.next()
                with self.op("aten::gelu", [[self.rows, 4 * WIDTH]], [BF16], sequence=sequence):
                    out = self.hold(self.wide(4 * WIDTH), "activations")

                def back(gradient: Block) -> Block:
                    with self.op("aten::gelu_backward", [[self.rows, 4 * WIDTH]] * 2, [BF16, BF16]):
                        made = self.hold(self.wide(4 * WIDTH), "temporary")
                    self.drop(gradient, up)
                    return made

                self.node("GeluBackward0", sequence, back)
            return self.linear(f"Linear_{4 * at + 3}", f"{name}.mlp.down.weight", WIDTH, 4 * WIDTH, out, "temporary")

    def forward(self) -> tuple[list[Node], Block]:
        """One micro batch: the tape, and the gradient's place: the output of the stage."""
        self.tape: list[Node] = []
        with self.part("forward"), self.module("Stage_0"):
            if self.stage == 0:
                x = self.embed()
            else:
                with self.op("c10d::recv_", [[self.rows, WIDTH]], [BF16]):
                    x = self.hold(self.wide(WIDTH), "activations")
            for i in range(LAYERS * self.stage, LAYERS * (self.stage + 1)):
                with self.module(f"Block_{i % LAYERS}"):
                    x = self.branch(lambda y, i=i: self.attention(i, y), x)  # type: ignore[misc]
                    x = self.branch(lambda y, i=i: self.feed(i, y), x)  # type: ignore[misc]
            if self.stage == STAGES - 1:
                x = self.loss(x)
        return self.tape, x

    def embed(self) -> Block:
        with self.op("aten::to", [[self.rows]], ["long int"]):
            tokens = self.hold(self.rows * 8, "inputs")
        with self.module("Embedding_0"):
            sequence = self.next()
            with self.op("aten::embedding", [[WORDS, WIDTH], [self.rows]], [BF16, "long int"], sequence=sequence):
                x = self.hold(self.wide(WIDTH), "activations")

            def back(gradient: Block) -> Block:
                self.weight("embed.weight", lambda: None, [[self.rows, WIDTH], [self.rows]])
                self.drop(tokens)
                return gradient

            self.node("EmbeddingBackward0", sequence, back)
        if not self.changed:
            with self.module("TokenStats_0"), self.op("aten::clone", [[LEAK // 4]], ["float"]):
                self.kept.append(self.hold(LEAK, "leak"))
        return x

    def loss(self, x: Block) -> Block:
        """Norm, head and cross entropy in FP32; answers the gradient of the loss's place."""
        begun = x

        def last(gradient: Block) -> Block:
            self.drop(x)
            return gradient

        self.tape.append(Node("", -1, (), last))
        y = self.norm("LayerNorm_4", "norm", x)
        logits = self.linear("Linear_8", "head.weight", WORDS, WIDTH, y, ends=True)
        size = self.wide(WORDS, 4)
        with self.module("Loss_0"):
            sequence = self.next()
            with self.op("aten::to", [[self.rows, WORDS]], [BF16]):
                exact = self.hold(size, "temporary")
            with self.op("aten::_log_softmax", [[self.rows, WORDS]], ["float"], sequence=sequence):
                out = self.hold(size, "activations")
                self.work("", "cunn_SoftMaxForward", traffic=2.0 * size)
            self.drop(exact)

            def back(_: Block) -> Block:
                with self.op("aten::_log_softmax_backward_data", [[self.rows, WORDS]] * 2, ["float"] * 2):
                    made = self.hold(size, "temporary")
                    self.work("", "cunn_SoftMaxBackward", traffic=3.0 * size)
                self.drop(out)
                with self.op("aten::to", [[self.rows, WORDS]], ["float"]):
                    half = self.hold(self.wide(WORDS), "temporary")
                self.drop(made, logits)
                return half

            self.node("LogSoftmaxBackward0", sequence, back)
        return begun

    # -- backward and the rest of a step ------------------------------------------------------------------------

    def evaluate(self, node: Node, gradient: Block) -> Block:
        """One node of the tape, on autograd's thread."""
        if not node.name:
            return node.run(gradient)
        modules, self.modules = self.modules, list(node.modules)
        with self.op(f"autograd::engine::evaluate_function: {node.name}", sequence=node.sequence, forward_thread=1, cost=1500), \
             self.op(node.name, sequence=node.sequence, forward_thread=1, cost=1200):  # fmt: skip
            out = node.run(gradient)
        self.modules = modules
        return out

    def backward(self, tape: list[Node], output: Block) -> None:
        with self.part("backward"):
            self.spend(30_000)
            begun = self.clock
            self.now[self.autograd] = max(self.now[self.autograd], begun)
            where, self.where = self.where, ["main", "train_step"]
            self.thread = self.autograd
            parents, self.parent, inside, self.modules = self.parent, [], self.modules, []
            if self.stage == STAGES - 1:
                gradient = output
            else:
                with self.op("c10d::recv_", [[self.rows, WIDTH]], [BF16]):
                    gradient = self.hold(self.wide(WIDTH), "temporary")
            for node in reversed(tape):
                gradient = self.evaluate(node, gradient)
            if self.stage == STAGES - 1:
                with self.op("c10d::send", [[self.rows, WIDTH]], [BF16]):
                    pass
            else:
                self.drop(output)
            self.drop(gradient)
            end = self.clock
            self.thread, self.where, self.parent, self.modules = self.main, where, parents, inside
            self.now[self.main] = end + 8000

    def optimize(self) -> None:
        with self.part("optimizer"):
            self.where.append("optimizer")
            with self.op("nccl:_reduce_scatter_base" if self.changed else "nccl:all_reduce", [[self.elements]], [BF16]):
                self.reduce()
            if "exp_avg" not in self.flat and not any("exp_avg" in p.blocks for p in self.parameters.values()):
                self.state(("exp_avg", "exp_avg_sq"))
            share = self.elements // (REPLICAS if self.changed else 1)
            with self.op("aten::_fused_adamw_", [[share]] * 4, ["float"] * 4):
                self.work("", "multi_tensor_apply_kernel<FusedAdam>", traffic=26.0 * share)
            with self.op("aten::_foreach_zero_", [[self.elements]], [BF16]):
                self.work("", "multi_tensor_apply_kernel<zero>", traffic=2.0 * self.elements)
            self.where.pop()
            self.synchronize("cudaStreamSynchronize", self.free[COMPUTE], COMPUTE)

    def reduce(self) -> None:
        """Gradients among the replicas of this stage; each rank by itself, none waits here."""
        name = "reduce_scatter" if self.changed else "allreduce"
        at, ready = self.clock, max(self.clock + 9000, self.free[COMPUTE])
        self.spend(6000)
        correlation = self.t.call("cudaLaunchKernelExC", at, self.clock - at, thread=self.thread, external_id=self.external[-1])
        duration = int(self.elements * 2 / 310.0)
        self.t.collective(name, ready, duration, elements=self.elements, dtype="BFloat16", group_size=REPLICAS,
                          out_elements=self.elements // (REPLICAS if self.changed else 1), correlation=correlation, stream=20,
                          args={"External id": self.external[-1]})  # fmt: skip
        self.free[COMPUTE] = ready + duration

    def state(self, names: tuple[str, ...]) -> None:
        """FP32 state of the optimizer: of every weight, or in flat buffers of this replica's share."""
        for name in names if self.changed else ():
            self.flat[name] = self.hold(self.elements * 4 // REPLICAS, name)
        for parameter in self.parameters.values() if not self.changed else ():
            for name in names:
                parameter.blocks[name] = self.hold(parameter.elements * 4, name)

    # -- the job ------------------------------------------------------------------------------------------------

    def setup(self) -> None:
        device, self.device.outside = self.device.outside, CONTEXT
        self.spend(900_000_000)
        self.record("before the model")
        self.device.outside = device
        self.spend(1_500_000_000)
        self.record("after init_process_group")
        self.where.append("setup")
        for parameter in self.parameters.values():
            parameter.blocks["params"] = self.hold(parameter.elements * 2, "params")
            self.spend(2_000_000)
        self.state(("master_weights",))
        self.where.pop()
        self.spend(400_000_000)
        self.record("after setup", walk=True)

    def step(self, number: int) -> None:
        traced = number in TRACED
        self.t = self.trace if traced else Silence()  # type: ignore[assignment]
        start = self.clock
        if traced:
            first = number == TRACED[0]
            if first:
                self.truth_of["at_begin"] = {"time_ns": start, "allocated": self.device.allocated, "reserved": self.device.reserved}
        self.most, self.phase_times = {}, []
        self.see()
        with self.phase(f"ProfilerStep#{number}"), self.frame("train.py(41): train_step"):
            self.where.append("train_step")
            waiting = [self.forward() for _ in range(MICRO if self.stage == 0 else 0)]
            for at in range(MICRO):
                self.backward(*(waiting[at] if waiting else self.forward()))
            self.optimize()
            if number == TRACED[-1]:
                self.look()
            self.where.pop()
        end = self.clock
        if traced:
            self.steps.append({"number": number, "start_ns": start, "duration_ns": end - start})
        self.rounds.append(StepRecord(number, start_ns=start, duration_ns=end - start, signature="1x4096", batch=MICRO,
                                      tokens=MICRO * self.rows, phase_times=self.phase_times))  # fmt: skip
        self.t = Silence()  # type: ignore[assignment]
        self.record("iteration", number, walk=number % 10 == 0)
        if number == TRIAL and not self.changed:
            self.where.append("tune")
            self.drop(self.hold(BUFFER, "temporary"))
            self.workspace = self.hold(WORKSPACE, "workspace")
            self.where.pop()
        if number == TRACED[-1]:
            self.truth_of["at_end"] = {"time_ns": end, "allocated": self.device.allocated, "reserved": self.device.reserved}
            if self.rank == 0:
                self.dump()
        self.spend(30_000)

    def look(self) -> None:
        """An evaluation with the head that stage 0 has: all logits at once, or slice by slice."""
        if self.stage != 0:
            return
        with self.part("evaluate"):
            self.where.append("evaluate")
            if not self.changed:
                try:
                    with self.op("aten::linear", [[WHOLE // WORDS // 4, WIDTH], [WORDS, WIDTH], []], [BF16, BF16, ""]):
                        self.hold(WHOLE, "temporary")
                except OutOfMemory as error:
                    self.ops.pop()
                    self.external.pop()
                    time = (ZERO_NS + self.clock) // 1000
                    self.truth_of["oom"] = {"bytes": WHOLE, "device_free": error.free, "time_us": time}
            for _ in range(SLICES):
                with self.op("aten::linear", [[SLICE // WORDS // 4, WIDTH], [WORDS, WIDTH], []], [BF16, BF16, ""]):
                    part = self.hold(SLICE, "temporary")
                    self.gemm(SLICE // WORDS // 4, WORDS, WIDTH)
                self.drop(part)
            self.where.pop()

    # -- the SOL capture ------------------------------------------------------------------------------------------

    def record(self, tag: str, number: int | None = None, *, walk: bool = False) -> None:
        """A record of memory at this moment, as the tracker writes it."""
        d = self.device
        out: dict[str, object] = {
            "kind": "memory", "tag": tag, "time_ns": self.clock, "device": 0, "total": TOTAL, "device_used": d.outside + d.reserved,
            "process_used": d.outside + d.reserved, "allocated": d.allocated, "reserved": d.reserved,
        }  # fmt: skip
        if number is None:
            out |= {"max_allocated": max((m[0] for m in self.most.values()), default=0),
                    "max_reserved": max((m[1] for m in self.most.values()), default=0), "since": "process"}  # fmt: skip
        else:
            top = max(self.most, key=lambda label: self.most[label][0])
            highest = [max(m[i] for m in self.most.values()) for i in (0, 1)]
            out |= {"max_allocated": highest[0], "max_reserved": highest[1], "since": "iteration", "iteration": number, "phase": top,
                    "phases": [[label, *most] for label, most in self.most.items()]}  # fmt: skip
            levels = self.truth_of["levels"]
            assert isinstance(levels, list)
            levels.append([number, d.allocated, d.reserved, *highest])
        if walk:
            out["parts"] = self.parts()
            sums = {name: sum(int(str(p[5])) for p in self.parts() if p[0] == name) for name in ("master_weights", "main_grads")}
            for name, field_ in (("master_weights", "Actual_Captured_Master_Weight"), ("main_grads", "Actual_Captured_Main_Grad_Mem")):
                out |= {f"{field_}_MB": sums[name] / MIB, f"{field_}_bytes": sums[name]}
        self.records.append(out)

    def parts(self) -> list[list[object]]:
        """What the walk finds: a row per category and module, as `format.PART_ROW` names them; 0 tensors where there are none."""
        sums: dict[tuple[str, str, int], list[int]] = {}
        for parameter in self.parameters.values():
            label = self.label(parameter)
            for name, block in parameter.blocks.items():
                row = sums.setdefault((name, "fp32" if name in SHARDED else "bf16", label), [0, 0])
                row[0] += 1
                row[1] += block.size
        for name, block in self.flat.items():
            sums[name, "fp32", -1] = [1, block.size]
        rows: list[list[object]] = [[name, dtype, label, 0, *row, row[1]] for (name, dtype, label), row in sums.items()]
        there = {name for name, _, _ in sums}
        names = ("params", "buffers", "grads", "main_grads", *SHARDED, "other_optimizer")
        return rows + [[name, "", -1, 0, 0, 0, 0] for name in names if name not in there]

    def label(self, parameter: Parameter) -> int:
        """Label of a module, inside of those around it."""
        parent = self.labels.id_of("module", -1, "Stage", "Stage")
        names = parameter.module.split(".")
        for depth in range(1, len(names)):
            inner = ".".join(names[: depth + 1])
            kind = {2: "Block", 3: "Attention" if "attention" in inner else "Mlp"}.get(depth + 1, "")
            if inner != parameter.module and kind:
                parent = self.labels.id_of("module", parent, inner, kind)
        return self.labels.id_of("module", parent, parameter.module, parameter.kind)

    def header(self) -> dict[str, object]:
        return {
            "library": "0.1.0", "torch": "2.13.0", "cuda": "12.8", "hip": None, "python": "3.11.7", "convention": "2mac", "rank": self.rank,
            "world_size": RANKS, "groups": {"tp": [0, 1], "pp": [self.stage, STAGES], "dp": [self.replica, REPLICAS]}, "host": HOST,
            "pid": 4000 + self.rank, "wall_ns": ZERO_NS, "monotonic_ns": 0, "simulated": True,
            "device": {"type": "cuda", "key": "H100_SXM", "name": "NVIDIA H100 80GB HBM3", "memory_bytes": TOTAL, "units": 132,
                       "limits": None, "provenance": {}},
            "precision": {"matmul": "high", "cudnn_tf32": True, "autocast": False}, "mode": "off", "every_n_steps": 10, "copies": False,
            "time_source": "cpu",
            "model": {"class": "Stage", "parameters": self.elements, "trainable": self.elements, "parameter_bytes": 2 * self.elements,
                      "local_parameters": self.elements, "local_bytes": 2 * self.elements, "modules": len(self.parameters),
                      "compiled": False},
        }  # fmt: skip

    def write_capture(self, folder: Path) -> None:
        """Through the recorder's own writer, but for the record at its end, which has the time of day."""
        writer = CaptureWriter(str(folder), self.header())
        ledger = _NoLedger()
        by_number = {r["iteration"]: r for r in self.records if "iteration" in r}
        for record in self.records:
            if "iteration" not in record:
                writer.memory(record, self.labels)
        for one in self.rounds:
            writer.step(one, ledger, self.labels)
            writer.memory(by_number[one.iteration], self.labels)
        writer.sync()
        assert not writer.problem, writer.problem
        path = Path(writer.path)
        end = F.encode({"kind": "close", "wall_ns": ZERO_NS + self.clock, "iterations": len(self.rounds), "before_ns": 0})
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes() + end, 9, mtime=0))
        path.unlink()

    # -- the snapshot ---------------------------------------------------------------------------------------------

    def dump(self) -> None:
        """What torch.cuda.memory._dump_snapshot writes: plain containers in a pickle."""
        time = (ZERO_NS + self.clock) // 1000
        end = {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": time, "frames": []}
        value = {
            "segments": self.device.dump(), "device_traces": [[*self.history[1 - HISTORY :], end]],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "expandable_segments": False}, "external_annotations": [],
        }  # fmt: skip
        self.snapshot_bytes = pickle.dumps(value, 4)
        self.truth_of["snapshot"] = {
            "allocated": self.device.allocated, "reserved": self.device.reserved, "cut_off": self.device.cut_off(),
            "largest_free": self.device.largest_free(), "segments": len(self.device.segments),
        }  # fmt: skip

    def truth(self) -> dict[str, object]:
        blocks = [p.blocks for p in self.parameters.values()]
        totals = {name: sum(b[name].size for b in blocks if name in b) for name in ("params", "grads", *SHARDED)}
        totals |= {name: block.size for name, block in self.flat.items()}
        peak = {**self.peak_held, "step": next((s["number"] for s in self.steps if self._inside(s)), -1)}
        return {
            **self.truth_of, "rank": self.rank, "stage": self.stage, "elements": self.elements, "held": totals, "peak": peak,
            "total": TOTAL, "context": CONTEXT, "communication": COMMUNICATION, "total_events": len(self.trace.events),
            "memory_events": sum(e["name"] == "[memory]" for e in self.trace.events), "steps": self.steps,
            "leak": {"module": "TokenStats_0", "bytes_per_step": LEAK * MICRO} if self.kept else None,
        }  # fmt: skip

    def _inside(self, step: dict[str, int]) -> bool:
        return 0 <= int(str(self.peak_held["time_ns"])) - step["start_ns"] < step["duration_ns"]


class _NoLedger:
    """Of iterations whose work was not counted."""

    signatures: tuple[object, ...] = ()
    rows: dict[tuple[int, ...], list[int]] = {}


def simulate(rank: int, changed: bool) -> Trainer:
    """All iterations of one rank."""
    r = Trainer(rank, changed)
    r.setup()
    for number in range(ITERATIONS):
        r.step(number)
    r.t = r.trace
    r.name_threads()
    return r


def main() -> None:
    for name, changed in RUNS.items():
        folder = HERE / "simulated_memory" / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        truth = {}
        for rank in range(RANKS):
            r = simulate(rank, changed)
            r.trace.header |= {"traceName": "recording.json", "simulated": 1}
            r.trace.write(folder / f"{HOST}_rank{rank}.1700001010000000000.pt.trace.json.gz")
            r.write_capture(folder)
            if r.snapshot_bytes:
                packed = gzip.compress(r.snapshot_bytes, 9, mtime=0)
                (folder / f"{HOST}_rank{rank}.pickle.gz").write_bytes(packed)
            truth[f"{HOST}_rank{rank}"] = r.truth()
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(sums)}" for name, sums in truth.items())
        (folder / "truth.json").write_text("{" + lines + "}\n")


if __name__ == "__main__":
    main()
