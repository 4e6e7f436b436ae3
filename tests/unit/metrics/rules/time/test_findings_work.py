"""Findings about operator calls: attention, optimizer, layouts, chains; each with what it must not take for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.rules.time import time_findings
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import _waterfall
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model.query import Query
from tests.support.findings import H100_BANDWIDTH, H100_FP32, call, found, step
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back

MILLION = 1 << 20
SCORE, NARROW, WIDE = [8, 256, 256], [8, 256, 32], [8, 32, 256]


def run(t: TraceBuilder, calls: list[tuple[str, int, list[list[int]]]], **more: object) -> int:
    """Calls one after another on the device, (name, us, sizes) each; returns the end of the last."""
    now = 1_000
    for name, us, shapes in calls:
        call(t, name, now, us * 1_000, shapes, **more)
        now += us * 1_000
    return now


# -- attention ------------------------------------------------------------------------------------------------

FORWARD = [
    ("aten::bmm", 40, [NARROW, WIDE]), ("aten::div", 10, [SCORE, []]), ("aten::add", 15, [SCORE, [1, 256, 256]]),
    ("aten::_softmax", 30, [SCORE]), ("aten::native_dropout", 12, [SCORE]), ("aten::bmm", 40, [SCORE, NARROW]),
]  # fmt: skip
FLOP = 4 * 8 * 256 * 256 * 32
"""Two products of 2 * 8*256*256*32."""


def test_scale_mask_and_dropout_between_belong_to_unfused_attention(tmp_path: Path) -> None:
    # GIVEN product, scale, mask, softmax, dropout, product: 147 us
    t = step(200_000)
    run(t, FORWARD)
    got = found(t, tmp_path)
    # THEN fused: the larger of both products at 66.9 TFLOP/s and q, k, v, o of 8*256*32 floats
    limit = max(FLOP / H100_FP32, 4 * 8 * 256 * 32 * 4 / H100_BANDWIDTH) * 1e9
    finding = got["unfused_attention"]
    assert finding.saving == pytest.approx(147_000 - limit, abs=2) and len(finding.rows) == 6
    # AND nothing of it is offered again
    assert not set(got) & {"fusable_chains", "elementwise_above_limit", "norm_above_limit", "gemm_above_limit"}


def test_elementwise_work_of_another_size_does_not_belong_to_it(tmp_path: Path) -> None:
    # GIVEN between the products an `add` over 8x256x32, not over the scores
    t = step(200_000)
    run(t, [*FORWARD[:1], ("aten::add", 15, [NARROW, NARROW]), *FORWARD[3:4], *FORWARD[5:]])
    assert len(found(t, tmp_path)["unfused_attention"].rows) == 3


def test_the_backward_pass_of_unfused_attention_is_a_finding(tmp_path: Path) -> None:
    # GIVEN dV = P^T dO and dP = dO V^T, the softmax gradient, a scale, dQ = dS K and dK = dS^T Q: 40 + 40 + 30 + 10 + 40 + 40 us
    t = step(300_000)
    products = [("aten::bmm", 40, [SCORE, NARROW]), ("aten::bmm", 40, [NARROW, WIDE])]
    run(t, [*products, ("aten::_softmax_backward_data", 30, [SCORE, SCORE]), ("aten::mul", 10, [SCORE, []]),
            ("aten::bmm", 40, [SCORE, NARROW]), ("aten::bmm", 40, [SCORE, NARROW])])  # fmt: skip
    finding = found(t, tmp_path)["unfused_attention"]
    # THEN a fused backward: five products instead of four, q, k, v, o, do read and dq, dk, dv written
    limit = max(5 * FLOP / 2 / H100_FP32, 8 * 8 * 256 * 32 * 4 / H100_BANDWIDTH) * 1e9
    assert finding.saving == pytest.approx(200_000 - limit, abs=2) and len(finding.rows) == 6 and "once backward" in finding.evidence


def test_attention_by_the_math_backend_is_advised_to_choose_another(tmp_path: Path) -> None:
    # GIVEN the same chain below scaled_dot_product_attention's math backend
    t = step(200_000)
    t.op("aten::_scaled_dot_product_attention_math", 5, 10_000)
    run(t, FORWARD)
    finding = found(t, tmp_path)["unfused_attention"]
    assert "math backend" in finding.evidence and "sdpa_kernel" in finding.fix


def test_a_classifier_is_no_attention(tmp_path: Path) -> None:
    # GIVEN two linear layers with a softmax between: the second product does not take the softmax as its scores
    t = step(200_000)
    run(t, [("aten::mm", 40, [[256, 64], [64, 1000]]), ("aten::_softmax", 30, [[256, 1000]]), ("aten::mm", 40, [[256, 64], [64, 64]])])
    assert "unfused_attention" not in found(t, tmp_path)


# -- optimizer ------------------------------------------------------------------------------------------------

ADAM = ("mul_", "lerp_", "mul_", "addcmul_", "sqrt", "div_", "add_", "addcdiv_")


def optimizer(t: TraceBuilder, names: tuple[str, ...], prefix: str = "aten::") -> None:
    """`Optimizer.step#AdamW.step` over 1 Mi parameters: one kernel of 10 us per name."""
    t.annotation("Optimizer.step#AdamW.step", 0, 90_000)
    run(t, [(prefix + n, 10, [[MILLION]] * (3 if n.startswith("addc") else 1)) for n in names])


def test_an_optimizer_of_many_kernels_is_a_finding(tmp_path: Path) -> None:
    # GIVEN eight passes of 10 us over 2**20 FP32 parameters
    t = step(82_000)
    optimizer(t, ADAM)
    finding = found(t, tmp_path)["unfused_optimizer"]
    # THEN fused: 7 arrays of 4 MiB at 3.35 TB/s; the 1 us before the first kernel and after the last, while it runs, could go too
    limit = 7 * 4 * MILLION / H100_BANDWIDTH * 1e9
    assert finding.saving == pytest.approx(80_000 - limit + 2_000, abs=2)
    assert "8 kernels a step" in finding.evidence and finding.fix == "torch.optim.AdamW(model.parameters(), fused=True)"
    assert "1\u202f048\u202f576 elements" in finding.evidence


def test_a_fused_optimizer_is_left_alone(tmp_path: Path) -> None:
    # GIVEN the same with one fused call among them
    t = step(92_000)
    optimizer(t, (*ADAM, "_fused_adamw_"))
    assert "unfused_optimizer" not in found(t, tmp_path)


@pytest.mark.parametrize(("region", "fix"), [("", "step = torch.compile(optimizer.step)"), ("Torch-Compiled Region: 0/0", "# compiled already")])
def test_an_optimizer_that_is_compiled_is_not_told_to_compile(region: str, fix: str, tmp_path: Path) -> None:
    # GIVEN an optimizer that PyTorch has no fused form of, in plain code or inside a compiled region
    t = step(82_000)
    t.annotation("Optimizer.step#RAdam.step", 0, 90_000)
    if region:
        t.op(region, 0, 90_000)
    run(t, [("aten::" + n, 10, [[MILLION]] * (3 if n.startswith("addc") else 1)) for n in ADAM])
    assert found(t, tmp_path)["unfused_optimizer"].fix.startswith(fix)


def test_the_same_operators_outside_an_optimizer_are_none(tmp_path: Path) -> None:
    t = step(82_000)
    run(t, [("aten::" + n, 10, [[MILLION]] * (3 if n.startswith("addc") else 1)) for n in ADAM])
    assert "unfused_optimizer" not in found(t, tmp_path)


# -- layouts --------------------------------------------------------------------------------------------------


def convolution(t: TraceBuilder, first: str) -> None:
    """`aten::cudnn_convolution` whose first kernel runs 30 us, the second 100 us."""
    t.op("aten::cudnn_convolution", 0, 4_000, shapes=[[8, 64, 56, 56], [64, 64, 3, 3]], types=["float", "float"])
    t.launch(first, at=100, start=10_000, duration=30_000)
    t.launch("cutlass_80_tensorop_s1688fprop_optimized_tf32_128x128_16x4", at=1_000, start=40_000, duration=100_000)


def test_layout_kernels_of_a_library_are_a_finding(tmp_path: Path) -> None:
    t = step(140_000)
    convolution(t, "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)0>(x)")
    finding = found(t, tmp_path)["layout_kernels"]
    # THEN their 30 us of the call's 130 could go
    assert finding.saving == 30_000 and "23.1\u202f%" in finding.evidence and "channels_last" in finding.fix
    assert finding.page == "kernels" and "nchwToNhwcKernel<float\\, float" in finding.query["t.kernels.c.name"]


def test_other_helper_kernels_are_no_layout_change(tmp_path: Path) -> None:
    t = step(140_000)
    convolution(t, "void cudnn::ops::scalePackedTensor_kernel<float, float>(x)")
    assert "layout_kernels" not in found(t, tmp_path)


PERMUTED = ([2048, 32, 1], [2048, 1, 64])
"""Strides of 8x64x32: dense, and dense with the last two dimensions swapped."""


@pytest.mark.parametrize(
    ("strides", "saving"), [(PERMUTED, 50_000), ((PERMUTED[0], PERMUTED[0]), None), ((PERMUTED[0], [4096, 32, 1]), None)]
)
def test_copies_that_only_permute_are_a_finding(tmp_path: Path, strides: tuple[list[int], list[int]], saving: int | None) -> None:
    # GIVEN copies of 50 us: dense to permuted, dense to dense, and out of a larger tensor
    t = step(60_000)
    call(t, "aten::copy_", 10_000, 50_000, [[8, 64, 32], [8, 64, 32]], strides=list(strides))
    finding = found(t, tmp_path).get("permuting_copies")
    # THEN only the first changes nothing but the order; whether it is needed is not known
    assert (finding.saving if finding else None) == saving and (finding is None or finding.candidate)


@pytest.mark.parametrize(("shape", "saving"), [([512, 1024], 20_000), ([64, 1024], None)], ids=["weight", "activation"])
def test_weights_that_are_cast_in_every_step_are_a_finding(tmp_path: Path, shape: list[int], saving: int | None) -> None:
    # GIVEN a cast of 20 us from FP32 to BF16 before a product of 64x1024 by 1024x512 in BF16
    t = step(60_000)
    t.op("aten::copy_", 100, 40, shapes=[shape, shape], types=["c10::BFloat16", "float"])
    t.launch("cast", at=110, start=10_000, duration=20_000)
    call(t, "aten::mm", 30_000, 30_000, [[64, 1024], [1024, 512]], types="c10::BFloat16")
    finding = found(t, tmp_path).get("weight_casts")
    # THEN only a tensor of the weight's size (out, in) is one that need not be cast
    assert (finding.saving if finding else None) == saving and (finding is None or finding.candidate)


# -- chains ---------------------------------------------------------------------------------------------------

CHAIN = [("aten::relu", 10, [[MILLION]]), ("aten::mul", 10, [[MILLION], [MILLION]]), ("aten::add", 10, [[MILLION], []])]


def test_a_chain_of_elementwise_kernels_is_a_finding(tmp_path: Path) -> None:
    # GIVEN relu, mul, add of 10 us each over 2**20 floats: (1+1) + (2+1) + (1+1) arrays, less two intermediates read and written
    t = step(31_000)
    run(t, CHAIN)
    finding = found(t, tmp_path)["fusable_chains"]
    # THEN 3 arrays stay: both operands and the result
    limit = 3 * 4 * MILLION / H100_BANDWIDTH * 1e9
    assert finding.saving == pytest.approx(30_000 - limit, abs=2)
    assert "`relu → mul → add` over 1048576, once" in finding.evidence and "move 16.78\u202fMB" in finding.evidence
    assert finding.fix == "torch.compile(model)"


def test_kernels_over_other_sizes_are_no_chain(tmp_path: Path) -> None:
    t = step(31_000)
    run(t, [CHAIN[0], ("aten::mul", 10, [[MILLION // 2], [MILLION // 2]]), CHAIN[2]])
    assert "fusable_chains" not in found(t, tmp_path)


def test_a_loop_over_alike_tensors_is_no_chain(tmp_path: Path) -> None:
    # GIVEN three products with a number over three tensors of one size: nothing is handed on
    t = step(31_000)
    run(t, [("aten::mul", 10, [[MILLION], []])] * 3)
    assert "fusable_chains" not in found(t, tmp_path)


def test_a_product_between_breaks_the_chain(tmp_path: Path) -> None:
    t = step(61_000)
    run(t, [CHAIN[0], ("aten::mm", 20, [[1024, 1024], [1024, 1024]]), CHAIN[1]])
    assert "fusable_chains" not in found(t, tmp_path)


def test_kernels_on_two_streams_are_no_chain(tmp_path: Path) -> None:
    t = step(31_000)
    for i, (name, us, shapes) in enumerate(CHAIN):
        call(t, name, 1_000 + 10_000 * i, us * 1_000, shapes, kernel_stream=7 + i)
    assert "fusable_chains" not in found(t, tmp_path)


def test_a_reduction_hands_on_its_smaller_result(tmp_path: Path) -> None:
    # GIVEN a mean over the last dimension of 1024x1024 and an add over its 1024 results
    t = step(31_000)
    call(t, "aten::mean", 1_000, 20_000, [[1024, 1024], [], []], concrete=["", "[-1]", "True", ""])
    call(t, "aten::add", 21_000, 10_000, [[1024, 1], []])
    finding = found(t, tmp_path)["fusable_chains"]
    # THEN fused: 4 MiB read and 4 KiB written; the mean's 4 KiB stay inside
    limit = max((4 * MILLION + 4 * 1024) / H100_BANDWIDTH, (MILLION + 1024) / H100_FP32) * 1e9
    assert finding.saving == pytest.approx(30_000 - limit, abs=2)


# -- recomputation --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("again", [True, False])
def test_forward_work_that_runs_again_in_the_backward_pass_is_a_finding(tmp_path: Path, again: bool) -> None:
    # GIVEN a node of the backward pass that runs a forward product (30 us) again before its own gradient (20 us)
    t = step(101_000)
    shapes = [[512, 512], [512, 512]]
    call(t, "aten::mm", 1_000, 50_000, shapes, sequence=1)
    t.op("autograd::engine::evaluate_function: CheckpointFunctionBackward", 500, 490, sequence=1, forward_thread=1)
    call(t, "aten::mm", 51_000, 30_000, shapes, sequence=7 if again else None)
    call(t, "aten::mm", 81_000, 20_000, shapes)
    finding = found(t, tmp_path).get("recompute")
    # THEN its 30 us could go, all of them a product's, and the finding says what that costs
    assert (finding.saving if finding else None) == (30_000 if again else None)
    assert finding is None or ("costs memory" in finding.evidence and "selective_checkpoint" in finding.fix and "100.0\u202f%" in finding.evidence)


# -- without a device -----------------------------------------------------------------------------------------


CPU = DeviceSpec(key="CPU", name="a CPU", vendor="cpu", matrix={"fp32": 100e9, "bf16": 400e9}, vector={"fp32": 50e9}, memory_bandwidth=20e9)
"""Measured limits of some CPU with BF16 units."""


def on_cpu(t: TraceBuilder, folder: Path) -> dict[str, Finding]:
    c = read_back(t, folder)
    part = scope(c, Query())
    return {f.id: f for f in time_findings(c, part, _waterfall(c, part, work(c, CPU)))}


def test_fp32_products_on_a_cpu_with_bf16_units_are_a_finding(tmp_path: Path) -> None:
    # GIVEN 1024**3 in FP32, 30 ms WHEN BF16 has four times the rate: 2.147 GFLOP at 400 GFLOP/s are 5.4 ms
    t = step(40_000_000, device="")
    t.op("aten::mm", 0, 30_000_000, shapes=[[1024, 1024], [1024, 1024]], types=["float", "float"])
    finding = on_cpu(t, tmp_path)["fp32_matrix"]
    assert finding.saving == pytest.approx(30_000_000 - 2 * 1024**3 / 400e9 * 1e9, abs=2)
    assert finding.fix == 'with torch.autocast("cpu", torch.bfloat16):' and "Core" not in finding.title


NCHW, NHWC = [32 * 32 * 64, 32 * 32, 32, 1], [32 * 32 * 64, 1, 32 * 64, 64]
"""Strides of images with 64 channels of 32 x 32."""


@pytest.mark.parametrize("strides", [NCHW, NHWC])
def test_images_in_nchw_on_a_cpu_are_a_finding(tmp_path: Path, strides: list[int]) -> None:
    # GIVEN a convolution and a pooling of 8x64x32x32 images, 40 ms and 10 ms
    t = step(60_000_000, device="")
    shape = [8, 64, 32, 32]
    t.op("aten::mkldnn_convolution", 0, 40_000_000, shapes=[shape, [64, 64, 3, 3], [64], [], [], [], []],
         types=["float", "float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar"],
         strides=[strides, [576, 9, 3, 1] if strides is NCHW else [576, 1, 192, 64], [1], [], [], [], []],
         concrete=["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "1"])  # fmt: skip
    t.op("aten::max_pool2d_with_indices", 45_000_000, 10_000_000, shapes=[shape, [], [], [], [], []],
         types=["float", "ScalarList", "ScalarList", "ScalarList", "ScalarList", "Scalar"], strides=[strides, [], [], [], [], []],
         concrete=["", "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "False"])  # fmt: skip
    got = on_cpu(t, tmp_path)
    # THEN only with the channels first there is advice, over both, and never as a proven cause
    assert ("channels_first" in got) == (strides is NCHW)
    if strides is NCHW:
        assert got["channels_first"].candidate and len(got["channels_first"].rows) == 2 and got["channels_first"].saving < 50_000_000


def test_a_chain_of_elementwise_operators_on_a_cpu_is_a_finding(tmp_path: Path) -> None:
    # GIVEN relu and mul of 4 ms each over 2**20 floats on one thread; fused 3 of 5 arrays stay: 12.6 MB at 20 GB/s
    t = step(10_000_000, device="")
    t.op("aten::relu", 0, 4_000_000, shapes=[[MILLION]], types=["float"])
    t.op("aten::mul", 5_000_000, 4_000_000, shapes=[[MILLION], [MILLION]], types=["float", "float"])
    finding = on_cpu(t, tmp_path)["fusable_chains"]
    assert finding.saving == pytest.approx(8_000_000 - 3 * 4 * MILLION / 20e9 * 1e9, abs=2) and "2 elementwise operators" in finding.evidence


def test_a_recording_of_the_host_without_measured_limits_says_nothing_of_its_work(tmp_path: Path) -> None:
    t = step(100_000, device="")
    t.op("aten::relu", 1_000, 40_000, shapes=[[MILLION]], types=["float"])
    t.op("aten::mul", 50_000, 40_000, shapes=[[MILLION], [MILLION]], types=["float", "float"])
    assert found(t, tmp_path) == {}
