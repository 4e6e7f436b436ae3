"""Work of the device that takes longer than it must: attention, optimizers, layouts, casts, chains, recomputation, the rest above the limit."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.devices.spec import DeviceSpec
from tests.court.case import MS, US, guilty, saves
from tests.support.findings import H100_BANDWIDTH, H100_FP32, call, filled, step
from tests.support.trace_builder import TraceBuilder

MILLION: Final = 1 << 20
SCORE, NARROW, WIDE = [8, 256, 256], [8, 256, 32], [8, 32, 256]
BF16 = "c10::BFloat16"
CPU = DeviceSpec(key="CPU", name="a CPU", vendor="cpu", matrix={"fp32": 100e9, "bf16": 400e9}, vector={"fp32": 50e9}, memory_bandwidth=20e9)
"""Limits of some CPU with BF16 units."""


def least(arrays: float, elements: int = MILLION, size: int = 4) -> float:
    """ns in which an H100 moves so many arrays."""
    return arrays * elements * size / H100_BANDWIDTH * 1e9


def run(calls: list[tuple[str, int, list[list[int]]]], **more: object) -> TraceBuilder:
    """Calls one after another on the device, (name, us, sizes) each, in a step that they fill."""
    t = filled((1 + sum(us for _, us, _ in calls)) * US)
    then(t, calls, US, **more)
    return t


def then(t: TraceBuilder, calls: list[tuple[str, int, list[list[int]]]], now: int, **more: object) -> int:
    """The same from `now` on; returns the end of the last."""
    for name, us, shapes in calls:
        call(t, name, now, us * US, shapes, **more)  # type: ignore[arg-type]
        now += us * US
    return now


# -- attention ---------------------------------------------------------------------------------------------------------

FORWARD = [
    ("aten::bmm", 40, [NARROW, WIDE]), ("aten::div", 10, [SCORE, []]), ("aten::add", 15, [SCORE, [1, 256, 256]]),
    ("aten::_softmax", 30, [SCORE]), ("aten::native_dropout", 12, [SCORE]), ("aten::bmm", 40, [SCORE, NARROW]),
]  # fmt: skip
FLOP = 4 * 8 * 256 * 256 * 32
"""Two products of 2 * 8*256*256*32."""
FUSED = max(FLOP / H100_FP32, least(4, 8 * 256 * 32) / 1e9) * 1e9
"""ns: both products on plain units, or Q, K, V and O once."""


@guilty(unfused_attention=saves(147_000 - FUSED, never="math backend"))
def attention_writes_its_scores() -> TraceBuilder:
    """Product, scale, mask, softmax, dropout, product over one score matrix: 147 us."""
    return run(FORWARD)


@guilty(unfused_attention=saves(147_000 - FUSED, says="math backend"))
def attention_falls_back_to_math() -> TraceBuilder:
    """The same below scaled_dot_product_attention, by its math backend."""
    t = run(FORWARD)
    t.op("aten::_scaled_dot_product_attention_math", 5, 10_000)
    return t


@guilty(unfused_attention=saves(200_000 - max(5 * FLOP / 2 / H100_FP32 * 1e9, least(8, 8 * 256 * 32))))
def attention_writes_its_scores_backward() -> TraceBuilder:
    """dV, dP, the gradient of the softmax, a scale, dQ and dK: 200 us; a fused backward pass has five products."""
    products = [("aten::bmm", 40, [SCORE, NARROW]), ("aten::bmm", 40, [NARROW, WIDE])]
    return run([*products, ("aten::_softmax_backward_data", 30, [SCORE, SCORE]), ("aten::mul", 10, [SCORE, []]),
                ("aten::bmm", 40, [SCORE, NARROW]), ("aten::bmm", 40, [SCORE, NARROW])])  # fmt: skip


# -- the optimizer -----------------------------------------------------------------------------------------------------

ADAM = ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_")


@guilty(unfused_optimizer=saves(80_000 - least(7), says="fused=True"))
def adam_in_eight_passes() -> TraceBuilder:
    """Eight kernels of 10 us over 2**20 parameters, where one pass moves 7 arrays."""
    t = run([("aten::" + n, 10, [[MILLION]] * (3 if n.startswith("addc") else 1)) for n in ADAM])
    t.annotation("Optimizer.step#AdamW.step", 0, 80 * US)
    return t


# -- layouts and casts -------------------------------------------------------------------------------------------------


@guilty(layout_kernels=saves(30 * US, says="channels_last"))
def cudnn_converts_the_layout() -> TraceBuilder:
    """A convolution of 130 us whose first 30 us change NCHW to NHWC; its sizes are not recorded."""
    t = filled(140 * US)
    t.op("aten::cudnn_convolution", 0, 4_000)
    t.launch("void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>(x)", at=100, start=US, duration=30 * US)
    t.launch("cutlass_80_tensorop_s1688fprop_optimized_tf32_128x128_16x4", at=1_000, start=31 * US, duration=109 * US)
    return t


@guilty(permuting_copies=saves(50 * US, possible=True))
def a_copy_only_permutes() -> TraceBuilder:
    """A copy of 50 us between two dense orders of the same elements."""
    t = filled(51 * US)
    call(t, "aten::copy_", US, 50 * US, [[8, 64, 32], [8, 64, 32]], strides=[[2048, 32, 1], [2048, 1, 64]])
    return t


@guilty(weight_casts=saves(20 * US, possible=True), gemm_above_limit=saves(5_000 - least(64 * 1024 + 1024 * 512 + 64 * 512, 1, 2)))
def a_weight_is_cast_before_its_product() -> TraceBuilder:
    """A cast of 20 us from FP32 to BF16 over a tensor of the size that a product of 5 us takes as its weight."""
    t = filled(26 * US)
    t.op("aten::copy_", 0, 10, shapes=[[512, 1024], [512, 1024]], types=[BF16, "float"])
    t.launch("cast", at=1, start=US, duration=20 * US, call_duration=5)
    call(t, "aten::mm", 21 * US, 5 * US, [[64, 1024], [1024, 512]], types=BF16)
    return t


# -- chains ------------------------------------------------------------------------------------------------------------


@guilty(fusable_chains=saves(30_000 - least(3), says="torch.compile(model)"))
def elementwise_kernels_pass_results_through_memory() -> TraceBuilder:
    """relu, mul, add of 10 us each over 2**20 floats: of seven arrays three stay when they are one kernel."""
    return run([("aten::relu", 10, [[MILLION]]), ("aten::mul", 10, [[MILLION], [MILLION]]), ("aten::add", 10, [[MILLION], []])])


@guilty(fusable_chains=saves(30_000 - max(least(MILLION + 1024, 1), (MILLION + 1024) / H100_FP32 * 1e9)))
def a_mean_hands_on_its_rows() -> TraceBuilder:
    """A mean over rows of 1024 x 1024 and an add over its 1024 results."""
    t = filled(31 * US)
    call(t, "aten::mean", US, 20 * US, [[1024, 1024], [], []], concrete=["", "[-1]", "True", ""])
    call(t, "aten::add", 21 * US, 10 * US, [[1024, 1], []])
    return t


@guilty(fusable_chains=saves(30_000 - least(3), says="compiled already", never="torch.compile("))
def a_compiled_region_leaves_a_chain() -> TraceBuilder:
    """The same chain inside of a compiled region: advice to compile would be none."""
    t = run([("aten::relu", 10, [[MILLION]]), ("aten::mul", 10, [[MILLION], [MILLION]]), ("aten::add", 10, [[MILLION], []])])
    t.op("CompiledFunction", 0, US)
    return t


# -- recomputation -----------------------------------------------------------------------------------------------------


@guilty(
    recompute=saves(30 * US, says="30.0\u202f% of the time of all operators"), gemm_above_limit=saves(70_000 - 2 * 2 * 512**3 / H100_FP32 * 1e9),
)  # fmt: skip
def forward_work_runs_again() -> TraceBuilder:
    """A node of the backward pass runs a forward product (30 us) again before its own gradient (20 us)."""
    t = filled(101 * US)
    shapes = [[512, 512], [512, 512]]
    call(t, "aten::mm", US, 50 * US, shapes, sequence=1)
    t.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 500, 490, sequence=1, forward_thread=1)
    call(t, "aten::mm", 51 * US, 30 * US, shapes, sequence=7)
    call(t, "aten::mm", 81 * US, 20 * US, shapes)
    return t


# -- the rest above the limit ------------------------------------------------------------------------------------------


@guilty(attention_above_limit=saves(0, 900 * US, never="sdpa_kernel"))
def attention_of_others_is_slow() -> TraceBuilder:
    """An attention call of vLLM in 900 us: 32 requests of one token over 55,086 cached ones; no backend of PyTorch could be chosen."""
    t = step()
    t.annotation("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)", 0, 5_000)
    shapes = [[32, 64, 64], [32, 8, 64], [32, 8, 64], [32, 64, 64]]
    call(t, "vllm::unified_attention_with_output", 100 * US, 900 * US, shapes, types=BF16, kernel="kernel_unified_attention_3d")
    t.launch("k", at=0, start=0, duration=100 * US)
    return t


@guilty(elementwise_above_limit=saves(990_000 - least(3), says="torch.compile(model)"))
def an_elementwise_kernel_is_slow() -> TraceBuilder:
    """A product of two arrays of 2**20 floats in 990 us: three arrays are moved."""
    return run([("aten::mul", 990, [[MILLION], [MILLION]])], kernel="elementwise")


@guilty(norm_above_limit=saves(500_000 - least(2)))
def a_softmax_is_slow() -> TraceBuilder:
    """A softmax over 1024 x 1024 floats in 500 us: two arrays are moved."""
    t = filled(501 * US)
    call(t, "aten::_softmax", US, 500 * US, [[1024, 1024], [], []], concrete=["", "-1", "False"])
    return t


@guilty(other_above_limit=saves(500_000 - least(2)))
def a_plain_copy_is_slow() -> TraceBuilder:
    """A copy of 2**20 floats in 500 us: one array is read, one written, in the order that they have."""
    t = filled(501 * US)
    call(t, "aten::copy_", US, 500 * US, [[MILLION], [MILLION]], strides=[[1], [1]])
    return t


@guilty(conv_above_limit=saves(0, 500 * US, says="cudnn.benchmark"))
def a_convolution_is_slow() -> TraceBuilder:
    """A convolution in BF16 in 500 us, 3.7 GFLOP."""
    t = filled(501 * US)
    call(t, "aten::cudnn_convolution", US, 500 * US, [[8, 64, 56, 56], [64, 64, 3, 3], [], [], [], [], [], [], []], types=BF16,
         concrete=["", "", "[1, 1]", "[1, 1]", "[1, 1]", "1", "False", "False", "True"], kernel="sm80_xmma_fprop_implicit_gemm_bf16")  # fmt: skip
    return t


# -- without a device --------------------------------------------------------------------------------------------------


@guilty(CPU, fp32_matrix=saves(30 * MS - 2 * 1024**3 / 400e9 * 1e9, says="autocast"))
def fp32_on_a_cpu_with_bf16_units() -> TraceBuilder:
    """1024**3 in FP32 in 30 ms, on a CPU whose BF16 units are four times as fast."""
    t = step(40 * MS, device="")
    t.op("aten::mm", 0, 30 * MS, shapes=[[1024, 1024], [1024, 1024]], types=["float", "float"])
    return t


@guilty(CPU, fusable_chains=saves(8 * MS - 3 * 4 * MILLION / 20e9 * 1e9))
def a_chain_on_a_cpu() -> TraceBuilder:
    """relu and mul of 4 ms each over 2**20 floats: three of five arrays stay."""
    t = step(10 * MS, device="")
    t.op("aten::relu", 0, 4 * MS, shapes=[[MILLION]], types=["float"])
    t.op("aten::mul", 5 * MS, 4 * MS, shapes=[[MILLION], [MILLION]], types=["float", "float"])
    return t


NCHW = [32 * 32 * 64, 32 * 32, 32, 1]


@guilty(CPU, channels_first=saves(30 * MS, 50 * MS, possible=True), fp32_matrix=saves(0, 40 * MS, optional=True))
def images_in_nchw_on_a_cpu() -> TraceBuilder:
    """A convolution (40 ms) and a pooling (10 ms) of 8 x 64 x 32 x 32 images whose planes lie one after another."""
    t = step(50 * MS, device="")
    shape = [8, 64, 32, 32]
    t.op("aten::mkldnn_convolution", 0, 40 * MS, shapes=[shape, [64, 64, 3, 3], [64], [], [], [], []],
         types=["float", "float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar"],
         strides=[NCHW, [576, 9, 3, 1], [1], [], [], [], []], concrete=["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"])  # fmt: skip
    t.op("aten::max_pool2d_with_indices", 40 * MS, 10 * MS, shapes=[shape, [], [], [], [], []],
         types=["float", "ScalarList", "ScalarList", "ScalarList", "ScalarList", "Scalar"], strides=[NCHW, [], [], [], [], []],
         concrete=["", "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "False"])  # fmt: skip
    return t
