#!/usr/bin/env python3
"""Writes `simulated_gpu_train/`: three training steps of a small vision transformer on two SIMULATED H100s, and their `truth.json`.

    python samples/simulate_gpu.py

No GPU was there: the events come from a small model of a machine (`simulator.py`). What is true of it is known exactly and written down,
so the sample also serves as a test. On purpose it shows what a real job suffers from: images copied from pageable memory, a host that waits
for the loss, gradients whose last all-reduce nothing hides, a rank that comes late, one slow batch from the data loader.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simulator import COMPUTE, PREFETCH, Json, Rank, settled, write

HERE = Path(__file__).resolve().parent
BATCH, TOKENS, WIDTH, HEADS, FEED, LAYERS, CLASSES, IMAGE = 64, 197, 768, 12, 3072, 6, 1000, 224
ROWS = BATCH * TOKENS
ATTENTION = [[WIDTH], [WIDTH], [3 * WIDTH, WIDTH], [3 * WIDTH], [WIDTH, WIDTH], [WIDTH]]
MLP = [[WIDTH], [WIDTH], [FEED, WIDTH], [FEED], [WIDTH, FEED], [WIDTH]]
PARAMETERS = [[WIDTH, 3, 16, 16], [WIDTH], *(ATTENTION + MLP) * LAYERS, [WIDTH], [WIDTH], [CLASSES, WIDTH], [CLASSES]]
COUNT = sum(math.prod(shape) for shape in PARAMETERS)
BF16 = "c10::BFloat16"
FIRST_STEP, STEPS, WORLD = 10, 3, 2
HIDDEN = [BATCH, TOKENS, WIDTH]
HIDDEN_BYTES = ROWS * WIDTH * 2
NATIVE = "void at::native::(anonymous namespace)::"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<8, at::native::"
XMMA = "sm90_xmma_{}_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_execute_kernel__5x_cudnn"
ADAM = f"{NATIVE}multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4>>"


@dataclass
class Node:
    """One entry of the autograd tape."""

    name: str
    sequence: int
    at: int
    modules: tuple[str, ...]
    run: Callable[[], None]
    parameters: int
    address: int
    size: int


class Trainer:
    """A vision transformer's forward, backward and optimizer, recorded by a Rank."""

    def __init__(self, rank: Rank) -> None:
        self.r = rank
        self.tape: list[Node] = []

    # -- operators --------------------------------------------------------------------------------------------

    def node(self, name: str, at: int, sequence: int, run: Callable[[], None], *, parameters: int = 0, size: int = HIDDEN_BYTES) -> None:
        """Remember how to go back through an operator whose forward began `at`."""
        address = self.r.allocate(size) if size else 0
        self.tape.append(Node(name, sequence, at, tuple(dict.fromkeys(self.r.modules)), run, parameters, address, size))

    def sequence(self) -> int:
        self.r.sequence += 1
        return self.r.sequence

    def gemm(self, op: str, m: int, n: int, k: int, *, bias: bool = False) -> None:
        """One matrix product [m, k] x [k, n]."""
        r = self.r
        shapes, types = [[m, k], [k, n]], [BF16, BF16]
        if bias:
            shapes, types = [[n], *shapes, [], []], [BF16, *types, "Scalar", "Scalar"]
        with r.op(op, shapes, types, ["", "", "", "1", "1"] if bias else ["", ""]):  # type: ignore[arg-type]
            tile = "128x256" if n >= 2304 else "128x192"
            r.kernel(f"nvjet_tst_{tile}_64x4_2x1_v_bz_{'bias_' if bias else ''}TNT", "gemm", flop=2.0 * m * n * k + (m * n if bias else 0),
                     traffic=2.0 * (m * k + k * n + m * n), api="cuLaunchKernelEx", category="cuda_driver",
                     gemm=f"{op} {m}x{n}x{k}")  # fmt: skip

    def linear(self, name: str, n: int, k: int, *, rows: int = ROWS) -> None:
        r = self.r
        with r.frame("", module=name):
            at, sequence = r.clock, self.sequence()
            shape = [BATCH, rows // BATCH, k] if rows == ROWS else [rows, k]
            with r.op("aten::linear", [shape, [n, k], [n]], [BF16] * 3, sequence=sequence):
                self.gemm("aten::addmm", rows, n, k, bias=True)

            def back() -> None:
                self.gemm("aten::mm", rows, k, n)
                self.gemm("aten::mm", n, k, rows)
                with r.op("aten::sum", [[rows, n], [], [], []], [BF16, "ScalarList", "Scalar", ""], ["", "[0]", "True", ""]):
                    r.kernel("void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<...>>>",
                             "reduce", flop=rows * n, traffic=2.0 * rows * n)  # fmt: skip

            self.node("AddmmBackward0", at, sequence, back, parameters=n * k + n, size=rows * n * 2)

    def layer_norm(self, name: str) -> None:
        r = self.r
        with r.frame("", module=name):
            at, sequence = r.clock, self.sequence()
            inputs = [HIDDEN, [], [WIDTH], [WIDTH], []]
            types = [BF16, "ScalarList", BF16, BF16, "Scalar"]
            concrete = ["", f"[{WIDTH}]", "", "", "1e-05"]
            with r.op("aten::layer_norm", [*inputs, []], [*types, "Scalar"], [*concrete, "True"]), \
                 r.op("aten::native_layer_norm", inputs, types, concrete, sequence=sequence):  # type: ignore[arg-type]  # fmt: skip
                r.kernel(f"{NATIVE}vectorized_layer_norm_kernel<c10::BFloat16, float>", "stream",
                         flop=8.0 * ROWS * WIDTH, traffic=2.0 * HIDDEN_BYTES, grid=ROWS)  # fmt: skip

            def back() -> None:
                with r.op("aten::native_layer_norm_backward", [HIDDEN, HIDDEN, [], [ROWS, 1], [ROWS, 1], [WIDTH], [WIDTH], []],  # type: ignore[list-item]
                          [BF16, BF16, "ScalarList", "float", "float", BF16, BF16, ""]):  # fmt: skip
                    r.kernel(f"{NATIVE}layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>",
                             "stream", traffic=3.0 * HIDDEN_BYTES, grid=ROWS)  # fmt: skip
                    r.kernel(f"{NATIVE}GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16, float, 32, 1, 32>",
                             "reduce", traffic=2.0 * HIDDEN_BYTES, grid=24)  # fmt: skip

            self.node("NativeLayerNormBackward0", at, sequence, back, parameters=2 * WIDTH)

    def attention(self) -> None:
        r = self.r
        at, sequence = r.clock, self.sequence()
        head = [BATCH, HEADS, TOKENS, WIDTH // HEADS]
        flop = 4.0 * BATCH * HEADS * TOKENS * TOKENS * (WIDTH // HEADS)
        with r.op("aten::scaled_dot_product_attention", [head, head, head, [], [], [], [], []],
                  [BF16] * 3 + ["", "Scalar", "Scalar", "", "Scalar"], ["", "", "", "", "0.", "False", "", "False"]), \
             r.op("aten::_scaled_dot_product_flash_attention", [head, head, head, [], [], [], []],
                  [BF16] * 3 + ["Scalar", "Scalar", "Scalar", ""], ["", "", "", "0.", "False", "False", ""], sequence=sequence), \
             r.op("aten::_flash_attention_forward", [[BATCH, TOKENS, HEADS, 64]] * 3, [BF16] * 3):  # fmt: skip
            r.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4>, false, false>", "attention",
                     flop=flop, traffic=4.0 * HIDDEN_BYTES, grid=2 * BATCH * HEADS)  # fmt: skip

        def back() -> None:
            with r.op("aten::_scaled_dot_product_flash_attention_backward", [head] * 5 + [head[:3]], [BF16] * 5 + ["float"]), \
                 r.op("aten::_flash_attention_backward", [[BATCH, TOKENS, HEADS, 64]] * 5, [BF16] * 5):  # fmt: skip
                r.kernel("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128, 8>>", "stream",
                         traffic=2.0 * HIDDEN_BYTES, grid=2 * BATCH * HEADS)  # fmt: skip
                r.kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8>>",
                         "attention_bwd", flop=2.5 * flop, traffic=8.0 * HIDDEN_BYTES, grid=2 * BATCH * HEADS)  # fmt: skip
                r.kernel("void pytorch_flash::flash_bwd_convert_dq_kernel<Flash_bwd_kernel_traits<64, 128, 128, 8>>", "stream",
                         traffic=3.0 * HIDDEN_BYTES, grid=2 * BATCH * HEADS)  # fmt: skip

        self.node("ScaledDotProductFlashAttentionBackward0", at, sequence, back)

    def gelu(self, name: str) -> None:
        r = self.r
        wide = [BATCH, TOKENS, FEED]
        with r.frame("", module=name):
            at, sequence = r.clock, self.sequence()
            with r.op("aten::gelu", [wide, []], [BF16, ""], ["", "none"], sequence=sequence):
                r.kernel(f"{ELEMENTWISE}GeluCUDAKernelImpl(...)::lambda, std::array<char*, 2>>",
                         "stream", flop=8.0 * ROWS * FEED, traffic=4.0 * ROWS * FEED, grid=ROWS)  # fmt: skip

            def back() -> None:
                with r.op("aten::gelu_backward", [wide, wide, []], [BF16, BF16, ""], ["", "", "none"]):
                    r.kernel(f"{ELEMENTWISE}GeluBackwardCUDAKernelImpl(...)::lambda, std::array<char*, 3>>",
                             "stream", flop=10.0 * ROWS * FEED, traffic=6.0 * ROWS * FEED, grid=ROWS)  # fmt: skip

            self.node("GeluBackward0", at, sequence, back, size=ROWS * FEED * 2)

    def add(self) -> None:
        r = self.r
        at, sequence = r.clock, self.sequence()
        with r.op("aten::add", [HIDDEN, HIDDEN, []], [BF16, BF16, "Scalar"], ["", "", "1"], sequence=sequence):
            r.kernel(f"{ELEMENTWISE}CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3>>",
                     "stream", flop=1.0 * ROWS * WIDTH, traffic=3.0 * HIDDEN_BYTES, grid=ROWS)  # fmt: skip
        self.node("AddBackward0", at, sequence, lambda: None)

    def patches(self) -> None:
        r = self.r
        image, weight = [BATCH, 3, IMAGE, IMAGE], [WIDTH, 3, 16, 16]
        flop = 2.0 * BATCH * WIDTH * 14 * 14 * 3 * 16 * 16
        inputs = [image, weight, [WIDTH], [], [], [], [], [], []]
        types = [BF16, BF16, BF16, "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"]
        concrete = ["", "", "", "[16, 16]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]
        with r.frame("", module="PatchEmbed_0"), r.frame("", module="Conv2d_0"):
            at, sequence = r.clock, self.sequence()
            with r.op("aten::conv2d", inputs[:7], types[:7], concrete[:7]), \
                 r.op("aten::convolution", inputs, types, concrete, sequence=sequence), \
                 r.op("aten::cudnn_convolution", [image, weight], [BF16, BF16]):  # type: ignore[arg-type]  # fmt: skip
                r.kernel(XMMA.format("fprop_implicit_gemm"), "conv",
                         flop=flop, traffic=2.0 * BATCH * 3 * IMAGE * IMAGE + HIDDEN_BYTES)  # fmt: skip

            def back() -> None:
                with r.op("aten::convolution_backward", [[BATCH, WIDTH, 14, 14], image, weight], [BF16] * 3):  # type: ignore[list-item]
                    r.kernel(XMMA.format("wgrad_implicit_gemm_indexed"),
                             "conv", flop=flop, traffic=2.0 * BATCH * 3 * IMAGE * IMAGE + HIDDEN_BYTES)  # fmt: skip

            self.node("ConvolutionBackward0", at, sequence, back, parameters=WIDTH * 769)

    # -- phases of a step ---------------------------------------------------------------------------------------

    def load(self, slow: bool) -> None:
        """The next batch, and its way to the device."""
        r = self.r
        with r.phase("data"):
            with r.phase("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
                r.spend(2_600_000 if slow else 240_000)
            with r.op("aten::to", [[BATCH, 3, IMAGE, IMAGE]], ["float"]), r.op("aten::_to_copy", [[BATCH, 3, IMAGE, IMAGE]], ["float"]), \
                 r.op("aten::copy_", [[BATCH, 3, IMAGE, IMAGE]] * 2 + [[]], ["float", "float", "Scalar"], ["", "", "False"]):  # fmt: skip
                r.copy("HtoD", BATCH * 3 * IMAGE * IMAGE * 4, "Pageable")
            with r.op("aten::to", [[BATCH]], ["long int"]), r.op("aten::_to_copy", [[BATCH]], ["long int"]), \
                 r.op("aten::copy_", [[BATCH], [BATCH], []], ["long int", "long int", "Scalar"], ["", "", "True"]):  # fmt: skip
                r.copy("HtoD", BATCH * 8, "Pinned", stream=PREFETCH)
            with r.op("aten::to", [[BATCH, 3, IMAGE, IMAGE]], ["float"]), r.op("aten::_to_copy", [[BATCH, 3, IMAGE, IMAGE]], ["float"]), \
                 r.op("aten::copy_", [[BATCH, 3, IMAGE, IMAGE]] * 2 + [[]], [BF16, "float", "Scalar"], ["", "", "False"]):  # fmt: skip
                r.kernel("void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(...)::lambda>",
                         "stream", traffic=6.0 * BATCH * 3 * IMAGE * IMAGE, grid=9408)  # fmt: skip

    def forward(self) -> None:
        r = self.r
        with r.phase("forward"), r.frame("", module="DistributedDataParallel_0"), r.phase("DistributedDataParallel.forward"), \
             r.frame("", module="VisionTransformer_0"):  # fmt: skip
            with r.phase("forward/embedding"):
                self.patches()
            with r.phase("forward/blocks"):
                for i in range(LAYERS):
                    with r.frame("", module=f"Block_{i}"):
                        self.layer_norm(f"LayerNorm_{2 * i}")
                        with r.frame("", module=f"Attention_{i}"):
                            self.linear(f"Linear_{4 * i}", 3 * WIDTH, WIDTH)
                            self.attention()
                            self.linear(f"Linear_{4 * i + 1}", WIDTH, WIDTH)
                        self.add()
                        self.layer_norm(f"LayerNorm_{2 * i + 1}")
                        with r.frame("", module=f"Mlp_{i}"):
                            self.linear(f"Linear_{4 * i + 2}", FEED, WIDTH)
                            self.gelu(f"GELU_{i}")
                            self.linear(f"Linear_{4 * i + 3}", WIDTH, FEED)
                        self.add()
            with r.phase("forward/head"):
                self.layer_norm(f"LayerNorm_{2 * LAYERS}")
                self.linear(f"Linear_{4 * LAYERS}", CLASSES, WIDTH, rows=BATCH)
        with r.phase("loss"), r.op("aten::cross_entropy_loss", [[BATCH, CLASSES], [BATCH]], [BF16, "long int"]):
            at, sequence = r.clock, self.sequence()
            shapes, types = [[BATCH, CLASSES], [], []], [BF16, "Scalar", "Scalar"]
            with r.op("aten::_log_softmax", shapes, types, ["", "1", "False"], sequence=sequence):  # type: ignore[arg-type]
                r.kernel("void (anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float>", "small",
                         traffic=4.0 * BATCH * CLASSES, grid=64)  # fmt: skip

            def back() -> None:
                with r.op("aten::_log_softmax_backward_data", [[BATCH, CLASSES]] * 2, [BF16, BF16]):
                    r.kernel("void (anonymous namespace)::cunn_SoftMaxBackward<8, c10::BFloat16, float>", "small",
                             traffic=6.0 * BATCH * CLASSES, grid=64)  # fmt: skip

            self.node("LogSoftmaxBackward0", at, sequence, back, size=BATCH * CLASSES * 2)

    def backward(self) -> None:
        """The tape in reverse on the autograd thread; gradients are reduced in buckets of about 12 MB."""
        r = self.r
        with r.phase("backward"):
            r.spend(40_000)
            begun = r.clock
            r.now[r.autograd] = max(r.now[r.autograd], begun)
            r.thread = r.autograd
            phases, r.phases = r.phases, []
            bucket = 0
            for position, node in enumerate(reversed(self.tape)):
                wrapper = f"autograd::engine::evaluate_function: {node.name}"
                before = len(r.busy)
                with r.op(wrapper, sequence=node.sequence, forward_thread=1, cost=1800):
                    at = r.clock
                    with r.op(node.name, sequence=node.sequence, forward_thread=1, cost=1500):
                        node.run()
                    r.t.forward_backward(node.at, at, forward_thread=r.main, backward_thread=r.autograd)
                    r.links += 1
                    if node.size:
                        r.release(node.address, node.size)
                elapsed = sum(end - start for start, end in r.busy[before:])
                for module in node.modules:
                    r.module_sums[module][2] += elapsed
                if node.parameters:
                    with r.op("autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", cost=1200):
                        pass
                    bucket += node.parameters
                if bucket >= 6_000_000 or (position == len(self.tape) - 1 and bucket):
                    with r.phase("nccl:all_reduce"), r.op("c10d::allreduce_", [[[bucket]]], ["TensorList"], cost=4000):
                        r.all_reduce(bucket)
                    bucket = 0
            self.tape.clear()
            end = r.clock
            r.thread, r.phases = r.main, phases
            r.now[r.main] = max(begun, end + 8_000)

    def optimize(self) -> None:
        r = self.r
        r.free[COMPUTE] = max(r.free[COMPUTE], r.free[20])
        tensors: list[Json] = [*PARAMETERS]
        with r.phase("optimizer"):
            with r.phase("optimizer/clip"), r.op("aten::_foreach_norm", [tensors, [], []], ["TensorList", "Scalar", ""], ["", "2.", ""]):
                for _ in range(3):
                    r.kernel(f"{NATIVE}multi_tensor_apply_kernel<TensorListMetadata<1>, LpNormFunctor<c10::BFloat16>>",
                             "stream", traffic=4.0 * COUNT / 3, grid=320)  # fmt: skip
            with r.phase("Optimizer.step#AdamW.step"), r.op("aten::_fused_adamw_", [tensors] * 4, ["TensorList"] * 4):
                for _ in range(6):  # reads weight, gradient and two moments, writes weight and moments: 7 x 4 bytes
                    r.kernel(ADAM, "stream", flop=15.0 * COUNT / 6, traffic=28.0 * COUNT / 6, grid=320)
            with r.phase("Optimizer.zero_grad#AdamW.zero_grad"), r.op("aten::zero_", [[COUNT]], [BF16]):
                r.memset(COUNT * 2)
        with r.phase("ema"), r.frame("ema.py(31): update"):
            r.graph_launch([f"triton_poi_fused_add_lerp_mul_{i}" for i in range(4)], 6.0 * COUNT / 4)

    def report(self) -> None:
        """The loss comes back to the host, which waits for it."""
        r = self.r
        with r.phase("log"), r.op("aten::item", [[]], ["float"]), r.op("aten::_local_scalar_dense", [[]], ["float"]):
            r.copy("DtoH", 4, "Pageable")
            r.synchronize("cudaStreamSynchronize", r.free[COMPUTE], COMPUTE)


def simulate(rank: int, arrivals: list[int]) -> Rank:
    """One rank's three steps; rank 1 prepares its batches more slowly."""
    r = Rank(rank, WORLD, 1.0 + 0.06 * rank, arrivals)
    trainer = Trainer(r)
    for i in range(8):
        r.drained(ADAM,
                  4_000 + 31_000 * i, 30_200, 40 + i)  # fmt: skip
    r.spend(60_000)
    with r.frame("train.py(12): <module>"), r.frame("train.py(88): main"):
        for number in range(FIRST_STEP, FIRST_STEP + STEPS):
            start = r.clock
            with r.phase(f"ProfilerStep#{number}"), r.frame("train.py(61): train_step"):
                trainer.load(slow=number == FIRST_STEP + 1 and rank == 1)
                trainer.forward()
                trainer.backward()
                trainer.optimize()
                trainer.report()
            r.steps.append({"number": number, "start_ns": start, "duration_ns": r.clock - start})
            r.spend(25_000)
    r.name_threads()
    return r


def main() -> None:
    ranks = settled(simulate, WORLD, passes=12)
    folder = HERE / "simulated_gpu_train"
    write(ranks, folder)
    truth = {f"rank{r.rank}_{4000 + r.rank}": r.truth() for r in ranks}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")


if __name__ == "__main__":
    main()
