#!/usr/bin/env python3
"""Writes `simulated_gpu_llm/`: two training steps of a small language model on one SIMULATED H100, and their `truth.json`.

    python samples/simulate_llm.py

No GPU was there: the events come from a small model of a machine (`simulator.py`). On purpose it shows what training of a decoder can
suffer from: a head that multiplies in FP32 without TF32, every block run again in the backward pass (activation checkpointing), an
optimizer that runs as a row of passes, rotary embeddings and a gated feed-forward as separate elementwise kernels. Attention is fused,
causal, with grouped queries.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from simulator import COMPUTE, Json, Rank, write

HERE = Path(__file__).resolve().parent
FOLDER = "simulated_gpu_llm"
BATCH, TOKENS, WIDTH, HEADS, KV_HEADS, FEED, LAYERS, WORDS = 1, 2048, 2048, 16, 4, 5632, 4, 8192
HEAD = WIDTH // HEADS
ROWS = BATCH * TOKENS
KV = KV_HEADS * HEAD
GROUPED = (HEADS, KV_HEADS, KV_HEADS)
BLOCK = [[WIDTH], [WIDTH, WIDTH], [KV, WIDTH], [KV, WIDTH], [WIDTH, WIDTH], [WIDTH], [FEED, WIDTH], [FEED, WIDTH], [WIDTH, FEED]]
PARAMETERS = [[WORDS, WIDTH], *BLOCK * LAYERS, [WIDTH]]
COUNT = sum(math.prod(shape) for shape in PARAMETERS)
BF16 = "c10::BFloat16"
FIRST_STEP, STEPS = 4, 2
NATIVE = "void at::native::"
ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<8, at::native::"
ADAM = f"{NATIVE}(anonymous namespace)::multi_tensor_apply_kernel"
FP32_PEAK = 66.9e12


@dataclass
class Node:
    """One entry of the autograd tape. block: which block must run again before it, -1 for none."""

    name: str
    sequence: int
    at: int
    modules: tuple[str, ...]
    run: Callable[[], None]
    block: int


class Trainer:
    """A decoder's forward, backward and optimizer, recorded by a Rank."""

    def __init__(self, rank: Rank) -> None:
        self.r = rank
        self.tape: list[Node] = []
        self.recording = True
        self.block = -1
        self.kept: dict[int, int] = {}

    def node(self, name: str, at: int, sequence: int, run: Callable[[], None], *, saved: bool = True) -> None:
        """Remember how to go back through an operator whose forward began `at`. saved: it needs what the forward pass made."""
        if self.recording:
            self.tape.append(Node(name, sequence, at, tuple(dict.fromkeys(self.r.modules)), run, self.block if saved else -1))

    def sequence(self) -> int:
        self.r.sequence += 1
        return self.r.sequence

    # -- operators --------------------------------------------------------------------------------------------

    def gemm(self, m: int, n: int, k: int, *, fp32: bool = False) -> None:
        """One matrix product [m, k] x [k, n]."""
        r, size = self.r, 4 if fp32 else 2
        kind = "float" if fp32 else BF16
        name = "ampere_sgemm_128x128_tn" if fp32 else f"nvjet_tst_{'128x256' if n >= 2048 else '64x192'}_64x4_2x1_v_bz_TNT"
        with r.op("aten::mm", [[m, k], [k, n]], [kind, kind], ["", ""]):
            r.kernel(name, "sgemm" if fp32 else "gemm", flop=2.0 * m * n * k, traffic=float(size) * (m * k + k * n + m * n),
                     api="cuLaunchKernelEx", category="cuda_driver", gemm=f"aten::mm {m}x{n}x{k}",
                     peak=FP32_PEAK if fp32 else None)  # fmt: skip

    def linear(self, name: str, n: int, k: int, *, fp32: bool = False) -> None:
        r = self.r
        kind = "float" if fp32 else BF16
        with r.frame("", module=name):
            at, sequence = r.clock, self.sequence()
            with r.op("aten::linear", [[ROWS, k], [n, k], []], [kind, kind, ""], sequence=sequence):
                self.gemm(ROWS, n, k, fp32=fp32)

            def back() -> None:
                self.gemm(n, k, ROWS, fp32=fp32)
                self.gemm(ROWS, k, n, fp32=fp32)

            self.node("MmBackward0", at, sequence, back)

    def pointwise(
        self, op: str, functor: str, shape: list[int], inputs: int, back: list[tuple[str, int]], node: str, *, saved: bool = True
    ) -> None:
        """An elementwise operator over `inputs` tensors of `shape`; back: the operators of its gradient and their numbers of inputs."""
        r, count = self.r, math.prod(shape)

        def run(name: str, functor_: str, many: int, sequence: int | None) -> None:
            extra: list[Json] = [[]] if name in ("aten::add", "aten::neg") else []
            shapes: list[Json] = [*([shape] * many), *extra]
            with r.op(name, shapes, [BF16] * many + ["Scalar"] * len(extra), [""] * many + ["1"] * len(extra), sequence=sequence):
                r.kernel(f"{ELEMENTWISE}{functor_}, std::array<char*, {many + 1}>>", "stream", flop=float(count),
                         traffic=2.0 * count * (many + 1), grid=max(count // 4096, 1))  # fmt: skip

        at, sequence = r.clock, self.sequence()
        run(op, functor, inputs, sequence)

        def again() -> None:
            for name, many in back:
                run(name, functor, many, None)

        self.node(node, at, sequence, again, saved=saved)

    def norm(self, name: str) -> None:
        r = self.r
        with r.frame("", module=name):
            at, sequence = r.clock, self.sequence()
            with r.op("aten::_fused_rms_norm", [[ROWS, WIDTH], [], [WIDTH], []], [BF16, "ScalarList", BF16, "Scalar"],
                      ["", f"[{WIDTH}]", "", "1e-06"], sequence=sequence):  # fmt: skip
                r.kernel(f"{NATIVE}(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, true>", "stream",
                         flop=8.0 * ROWS * WIDTH, traffic=4.0 * ROWS * WIDTH, grid=ROWS)  # fmt: skip

            def back() -> None:
                with r.op("aten::_fused_rms_norm_backward", [[ROWS, WIDTH], [ROWS, WIDTH], [], [ROWS, 1], [WIDTH], []],
                          [BF16, BF16, "ScalarList", "float", BF16, ""], ["", "", f"[{WIDTH}]", "", "", "[True, True]"]):  # fmt: skip
                    r.kernel(f"{NATIVE}(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float, true>",
                             "stream", traffic=6.0 * ROWS * WIDTH, grid=ROWS)  # fmt: skip
                    r.kernel(f"{NATIVE}(anonymous namespace)::GammaBetaBackwardCUDAKernelTemplate<c10::BFloat16, float, 32, 1, 32>",
                             "reduce", traffic=4.0 * ROWS * WIDTH, grid=64)  # fmt: skip

            self.node("FusedRmsNormBackward0", at, sequence, back)

    def rotary(self, heads: int) -> None:
        """x * cos + rotated(x) * sin, as three kernels and a concatenation."""
        shape = [BATCH, heads, TOKENS, HEAD]
        for _ in range(2):
            self.pointwise("aten::mul", "BinaryFunctor<c10::BFloat16, MulFunctor<float>>", shape, 2, [("aten::mul", 2)], "MulBackward0")
        self.pointwise("aten::add", "CUDAFunctor_add<c10::BFloat16>", shape, 2, [], "AddBackward0", saved=False)

    def attention(self) -> None:
        r = self.r
        at, sequence = r.clock, self.sequence()
        q, kv = [BATCH, HEADS, TOKENS, HEAD], [BATCH, KV_HEADS, TOKENS, HEAD]
        flop = 2.0 * BATCH * HEADS * TOKENS * TOKENS * HEAD  # 4 B H N N D, half of it behind the causal mask
        data = 2.0 * (2 * math.prod(q) + 2 * math.prod(kv))
        with r.op("aten::scaled_dot_product_attention", [q, kv, kv, [], [], [], [], []],
                  [BF16] * 3 + ["", "Scalar", "Scalar", "", "Scalar"], ["", "", "", "", "0.", "True", "", "True"]), \
             r.op("aten::_scaled_dot_product_flash_attention", [q, kv, kv, [], [], [], []],
                  [BF16] * 3 + ["Scalar", "Scalar", "Scalar", ""], ["", "", "", "0.", "True", "False", ""], sequence=sequence), \
             r.op("aten::_flash_attention_forward", [[BATCH, TOKENS, h, HEAD] for h in GROUPED], [BF16] * 3):  # fmt: skip
            r.kernel("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4>, false, true>", "attention",
                     flop=flop, traffic=data, grid=BATCH * HEADS * 16)  # fmt: skip

        def back() -> None:
            shapes: list[Json] = [q, q, kv, kv, q, [BATCH, HEADS, TOKENS], [], [], [], [], [], [], [2], [], []]
            types: list[Json] = [BF16] * 5 + ["float", "", "", "Scalar", "Scalar", "Scalar", "Scalar", "unsigned long", "unsigned long", ""]
            concrete: list[Json] = [""] * 8 + ["2048", "2048", "0.", "True", "", "", ""]
            with r.op("aten::_scaled_dot_product_flash_attention_backward", shapes, types, concrete), \
                 r.op("aten::_flash_attention_backward", [[BATCH, TOKENS, HEADS, HEAD]] * 5, [BF16] * 5):  # fmt: skip
                r.kernel("void pytorch_flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<128, 64, 128, 8>>", "stream",
                         traffic=4.0 * math.prod(q), grid=BATCH * HEADS * 16)  # fmt: skip
                r.kernel("void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8>>",
                         "attention_bwd", flop=2.5 * flop, traffic=2.0 * data, grid=BATCH * HEADS * 16)  # fmt: skip

        self.node("ScaledDotProductFlashAttentionBackward0", at, sequence, back)

    def layer(self, i: int) -> None:
        """One block: attention and a gated feed-forward, each behind a norm and with a residual."""
        r = self.r
        add = ("aten::add", "CUDAFunctor_add<c10::BFloat16>", [ROWS, WIDTH], 2, [], "AddBackward0")
        with r.frame("", module=f"Block_{i}"):
            self.norm(f"RMSNorm_{2 * i}")
            with r.frame("", module=f"Attention_{i}"):
                self.linear(f"Linear_{7 * i}", WIDTH, WIDTH)
                self.linear(f"Linear_{7 * i + 1}", KV, WIDTH)
                self.linear(f"Linear_{7 * i + 2}", KV, WIDTH)
                self.rotary(HEADS)
                self.rotary(KV_HEADS)
                self.attention()
                self.linear(f"Linear_{7 * i + 3}", WIDTH, WIDTH)
            self.pointwise(*add, saved=False)  # type: ignore[arg-type]
            self.norm(f"RMSNorm_{2 * i + 1}")
            with r.frame("", module=f"Mlp_{i}"):
                wide = [ROWS, FEED]
                self.linear(f"Linear_{7 * i + 4}", FEED, WIDTH)
                self.pointwise("aten::silu", "silu_kernel(...)::lambda", wide, 1, [("aten::silu_backward", 2)], "SiluBackward0")
                self.linear(f"Linear_{7 * i + 5}", FEED, WIDTH)
                product = "BinaryFunctor<c10::BFloat16, MulFunctor<float>>"
                self.pointwise("aten::mul", product, wide, 2, [("aten::mul", 2), ("aten::mul", 2)], "MulBackward0")
                self.linear(f"Linear_{7 * i + 6}", WIDTH, FEED)
            self.pointwise(*add, saved=False)  # type: ignore[arg-type]

    # -- phases of a step ---------------------------------------------------------------------------------------

    def cast(self, to: str, of: str, shape: list[int]) -> None:
        """A copy that changes the type of a tensor."""
        r, count = self.r, math.prod(shape)
        with r.op("aten::to", [shape], [of]), r.op("aten::_to_copy", [shape], [of]), \
             r.op("aten::copy_", [shape, shape, []], [to, of, "Scalar"], ["", "", "False"]):  # fmt: skip
            r.kernel(f"{NATIVE}unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(...)::lambda>", "stream",
                     traffic=6.0 * count, grid=max(count // 1024, 1))  # fmt: skip

    def load(self) -> None:
        r = self.r
        with r.phase("data"):
            with r.phase("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"):
                r.spend(180_000)
            with r.op("aten::to", [[BATCH, TOKENS]], ["long int"]), r.op("aten::_to_copy", [[BATCH, TOKENS]], ["long int"]), \
                 r.op("aten::copy_", [[BATCH, TOKENS]] * 2 + [[]], ["long int", "long int", "Scalar"], ["", "", "True"]):  # fmt: skip
                r.copy("HtoD", ROWS * 8, "Pinned")

    def forward(self) -> None:
        r = self.r
        with r.phase("forward"), r.frame("", module="Decoder_0"):
            with r.frame("", module="Embedding_0"):
                at, sequence = r.clock, self.sequence()
                with r.op("aten::embedding", [[WORDS, WIDTH], [ROWS], [], [], []], [BF16, "long int", "Scalar", "Scalar", "Scalar"],
                          ["", "", "-1", "False", "False"], sequence=sequence):  # fmt: skip
                    r.kernel(f"{NATIVE}(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>",
                             "stream", traffic=4.0 * ROWS * WIDTH, grid=ROWS)  # fmt: skip

                def back() -> None:
                    shapes: list[Json] = [[ROWS, WIDTH], [ROWS], [], [], []]
                    types: list[Json] = [BF16, "long int", "Scalar", "Scalar", "Scalar"]
                    with r.op("aten::embedding_dense_backward", shapes, types, ["", "", str(WORDS), "-1", "False"]):
                        r.kernel(f"{NATIVE}(anonymous namespace)::embedding_backward_feature_kernel<c10::BFloat16, float, long>", "reduce",
                                 traffic=2.0 * (WORDS * WIDTH + 2 * ROWS * WIDTH), grid=WIDTH)  # fmt: skip

                self.node("EmbeddingBackward0", at, sequence, back)
            for i in range(LAYERS):
                with r.frame("torch/utils/checkpoint.py(480): checkpoint"):
                    self.block = i
                    self.kept[i] = r.allocate(ROWS * WIDTH * 2)
                    self.layer(i)
                    self.block = -1
            self.norm(f"RMSNorm_{2 * LAYERS}")
            at, sequence = r.clock, self.sequence()
            self.cast("float", BF16, [ROWS, WIDTH])
            self.node("ToCopyBackward0", at, sequence, lambda: self.cast(BF16, "float", [ROWS, WIDTH]))
            self.linear(f"Linear_{7 * LAYERS}", WORDS, WIDTH, fp32=True)
        with r.phase("loss"):
            at, sequence = r.clock, self.sequence()
            count = ROWS * WORDS
            with r.op("aten::cross_entropy_loss", [[ROWS, WORDS], [ROWS]], ["float", "long int"]), \
                 r.op("aten::log_softmax", [[ROWS, WORDS], [], []], ["float", "Scalar", ""], ["", "1", ""]), \
                 r.op("aten::_log_softmax", [[ROWS, WORDS], [], []], ["float", "Scalar", "Scalar"], ["", "1", "False"], sequence=sequence):  # type: ignore[list-item]  # fmt: skip
                r.kernel("void (anonymous namespace)::cunn_SoftMaxForward<4, float, float>", "stream", flop=5.0 * count,
                         traffic=8.0 * count, grid=ROWS)  # fmt: skip

            def softmax() -> None:
                shapes: list[Json] = [[ROWS, WORDS], [ROWS, WORDS], [], []]
                with r.op("aten::_log_softmax_backward_data", shapes, ["float", "float", "Scalar", "Scalar"], ["", "", "1", "6"]):
                    r.kernel("void (anonymous namespace)::cunn_SoftMaxBackward<4, float, float>", "stream", traffic=12.0 * count, grid=ROWS)

            self.node("LogSoftmaxBackward0", at, sequence, softmax)

    def backward(self) -> None:
        """The tape in reverse on the autograd thread. The first node of a block that needs its tensors runs the block again."""
        r = self.r
        with r.phase("backward"):
            r.spend(40_000)
            begun = r.clock
            r.now[r.autograd] = max(r.now[r.autograd], begun)
            r.thread = r.autograd
            phases, r.phases, parent, r.parent = r.phases, [], r.parent, []
            there: set[int] = set()
            for node in reversed(self.tape):
                before, again = len(r.busy), 0
                with r.op(f"autograd::engine::evaluate_function: {node.name}", sequence=node.sequence, forward_thread=1, cost=1800):
                    at = r.clock
                    with r.op(node.name, sequence=node.sequence, forward_thread=1, cost=1500):
                        if node.block >= 0 and node.block not in there:
                            there.add(node.block)
                            again = self.run_again(node.block)
                        node.run()
                    r.t.forward_backward(node.at, at, forward_thread=r.main, backward_thread=r.autograd)
                    r.links += 1
                elapsed = sum(end - start for start, end in r.busy[before:]) - again
                for module in node.modules:
                    r.module_sums[module][2] += elapsed
            self.tape.clear()
            end = r.clock
            r.thread, r.phases, r.parent = r.main, phases, parent
            r.now[r.main] = max(begun, end + 8_000)

    def run_again(self, i: int) -> int:
        """Activation checkpointing: the forward pass of block i once more; returns its device time."""
        r = self.r
        before, self.recording = len(r.busy), False
        with r.frame("torch/utils/checkpoint.py(1100): unpack_hook"):
            self.layer(i)
        self.recording = True
        r.release(self.kept.pop(i), ROWS * WIDTH * 2)
        elapsed = r.busy[before:]
        r.recomputed[0] += len(elapsed)
        r.recomputed[1] += sum(end - start for start, end in elapsed)
        return sum(end - start for start, end in elapsed)

    def optimize(self) -> None:
        """Adam as a row of multi-tensor passes, each over all parameters: what `foreach=True` runs."""
        r = self.r
        tensors: list[Json] = [*PARAMETERS]
        passes = (
            ("_foreach_lerp_", "TernaryOpScalarFunctor", 2, 1), ("_foreach_mul_", "BinaryOpScalarFunctor", 1, 1),
            ("_foreach_addcmul_", "PointwiseOpScalarFunctor", 3, 1), ("_foreach_sqrt", "UnaryOpFunctor", 1, 1),
            ("_foreach_div_", "BinaryOpScalarFunctor", 1, 1), ("_foreach_add_", "BinaryOpScalarFunctor", 1, 1),
            ("_foreach_mul_", "BinaryOpScalarFunctor", 1, 1), ("_foreach_addcdiv_", "PointwiseOpScalarListFunctor", 3, 1),
        )  # fmt: skip
        with r.phase("optimizer"), r.phase("Optimizer.step#AdamW.step"):
            for name, functor, read, written in passes:
                shapes: list[Json] = [*[tensors] * read, []]
                with r.op(f"aten::{name}", shapes, ["TensorList"] * read + ["Scalar"], [""] * read + ["0.1"]):
                    for _ in range(2):
                        r.kernel(f"{ADAM}<TensorListMetadata<{read + 1}>, {functor}<c10::BFloat16>>", "stream",
                                 flop=float(COUNT) / 2, traffic=2.0 * COUNT * (read + written) / 2, grid=320)  # fmt: skip
        with r.phase("Optimizer.zero_grad#AdamW.zero_grad"), r.op("aten::_foreach_zero_", [tensors], ["TensorList"]):
            r.memset(COUNT * 2)

    def report(self) -> None:
        r = self.r
        with r.phase("log"), r.op("aten::item", [[]], ["float"]), r.op("aten::_local_scalar_dense", [[]], ["float"]):
            r.copy("DtoH", 4, "Pageable")
            r.synchronize("cudaStreamSynchronize", r.free[COMPUTE], COMPUTE)


def simulate() -> Rank:
    """Two steps on one rank."""
    r = Rank(0, 1, 1.0, [])
    trainer = Trainer(r)
    with r.frame("train_llm.py(9): <module>"), r.frame("train_llm.py(54): main"):
        for number in range(FIRST_STEP, FIRST_STEP + STEPS):
            start = r.clock
            with r.phase(f"ProfilerStep#{number}"), r.frame("train_llm.py(33): train_step"):
                trainer.load()
                trainer.forward()
                trainer.backward()
                trainer.optimize()
                trainer.report()
            r.steps.append({"number": number, "start_ns": start, "duration_ns": r.clock - start})
            r.spend(25_000)
    r.name_threads()
    return r


def main() -> None:
    r = simulate()
    folder = HERE / FOLDER
    write([r], folder)
    (folder / "truth.json").write_text(json.dumps({"rank0_4000": r.truth()}, indent=1) + "\n")


if __name__ == "__main__":
    main()
