"""Products, convolutions and attention under the names of backends and engines, worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.cost import estimate, explain
from tests.unit.cost.calls import call, cost

B16 = {"dtype": "bf16"}


def f32(*shape: int) -> tuple[tuple[int, ...], str]:
    return shape, "fp32"


# -- products -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("equation", "operands", "macs", "out"),
    [
        ("ij,jk->ik", [(3, 4), (4, 5)], 60, 15), ("bik,bkj->bij", [(2, 3, 4), (2, 4, 5)], 120, 30), ("ij,jk", [(3, 4), (4, 5)], 60, 15),
        ("...ij,...jk->...ik", [(7, 2, 3, 4), (2, 4, 5)], 7 * 2 * 60, 7 * 2 * 15), ("i,j->", [(3,), (4,)], 12, 1),
        ("ij -> ji", [(3, 4)], 0, 12), ("bqhd,bkhd->bhqk", [(2, 3, 4, 5), (2, 6, 4, 5)], 2 * 3 * 4 * 5 * 6, 2 * 4 * 3 * 6),
    ],
)  # fmt: skip
def test_einsum_multiplies_all_extents(equation: str, operands: list[tuple[int, ...]], macs: int, out: int) -> None:
    recorded = call(equation, operands)
    recorded.slots = call(equation, operands).slots[:1] + (tuple(t._replace(dtype="fp32") for t in recorded.tensors(1)),)
    found = estimate("aten::einsum", recorded)
    read = sum(t.numel for t in recorded.tensors(1))
    assert found is not None and (found.flop, found.bytes) == (2 * macs, 4 * (read + out))


@pytest.mark.parametrize("equation", ["ij,jk->il", "ij,jk,kl", "ijk,jk", "ij,ik->", ""])
def test_einsum_that_does_not_fit_has_no_work(equation: str) -> None:
    assert estimate("aten::einsum", call(equation, [(3, 4), (4, 5)])) is None


def test_a_base_with_beta_0_is_not_read() -> None:
    for name, base, a, b in (
        ("aten::addmm", (3, 5), (3, 4), (4, 5)), ("aten::baddbmm", (2, 3, 5), (2, 3, 4), (2, 4, 5)), ("aten::addmv", (3,), (3, 4), (4,)),
    ):  # fmt: skip
        read, left = (cost(name, base, a, b, beta, "1") for beta in ("1", "0"))
        size = 1
        for n in base:
            size *= n
        assert read.flop == left.flop and (read.bytes or 0) - (left.bytes or 0) == 4 * size, name


def test_a_product_with_a_result_of_another_type() -> None:
    # mm(a, b, out_dtype=float) in BF16: the result counts 4 bytes each; addmm(bias, a, b, out_dtype, beta, alpha) likewise
    assert cost("aten::mm", (3, 4), (4, 5), "6", **B16).bytes == 2 * (12 + 20) + 4 * 15
    assert cost("aten::addmm", (5,), (3, 4), (4, 5), "6", "0", "1", **B16).bytes == 2 * (12 + 20) + 4 * 15


def test_outer_products_and_dots() -> None:
    assert (cost("aten::ger", (3,), (4,)).flop, cost("aten::ger", (3,), (4,)).bytes) == (12, 4 * (3 + 4 + 12))
    assert cost("aten::addr", (3, 4), (3,), (4,), "1", "1").flop == 24
    assert cost("aten::mv", (3, 4), (4,)).flop == 24 and cost("aten::dot", (7,), (7,)).flop == 14


def test_products_of_packed_weights() -> None:
    # M 2, K 64, N 8: 2048 FLOP in the type of the activations, weights as they are packed
    x = (2, 64)
    int4 = cost("aten::_weight_int4pack_mm", x, ((1, 4, 32, 4), "int32"), "32", (2, 8, 2), **B16)
    assert (int4.flop, int4.bytes, int4.dtype) == (2048, 2 * 128 + 4 * 512 + 2 * 32 + 2 * 16, "bf16")
    gptq = cost("_C::gptq_gemm", x, ((8, 8), "int32"), ((2, 1), "int32"), (2, 8), ((64,), "int32"), "True", "4", **B16)
    assert (gptq.flop, gptq.bytes) == (2048, 2 * 128 + 4 * 64 + 4 * 2 + 2 * 16 + 4 * 64 + 2 * 16)
    awq = cost("_C::awq_gemm", x, ((64, 1), "int32"), (2, 8), ((2, 1), "int32"), "8", **B16)
    assert (awq.flop, awq.bytes) == (2048, 2 * 128 + 4 * 64 + 2 * 16 + 8 + 2 * 16)
    places = (x, None, ((4, 16), "int32"), (2, 8), None, None, None, None, ((10,), "int32"), "12", "2", "8", "64", "True")
    marlin = cost("_C::gptq_marlin_gemm", *places, **B16)
    assert (marlin.flop, marlin.bytes) == (2048, 2 * 128 + 4 * 64 + 2 * 16 + 40 + 2 * 16)
    newer = cost("_C::marlin_gemm", *places[:3], (8,), *places[3:], **B16)
    assert newer.flop == 2048
    assert explain("_C::marlin_gemm", call(*places[:9], "12", **B16)) == "logical sizes of the packed weight not recorded"


def test_sparse_products_count_what_is_stored() -> None:
    # 2:4 sparse a[4, 16] stored as [4, 8]: half of 2 x 4 x 16 x 8
    assert cost("aten::_sparse_semi_structured_mm", (4, 8), ((4, 1), "int16"), (16, 8), **B16).flop == 4 * 16 * 8
    assert cost("aten::_sparse_semi_structured_linear", (3, 16), (4, 8), ((4, 1), "int16"), **B16).flop == 2 * 3 * 4 * 8


def test_scaled_products_of_engines() -> None:
    # M 16, K 32, N 64 in FP8, weights [N, K] or [K, N], result BF16 by value, by tensor, or assumed
    a, scale = ((16, 32), "fp8"), ((16, 1), "fp32")
    work = 2 * 16 * 32 * 64
    for weight in ((64, 32), (32, 64)):
        c = cost("sgl_kernel::fp8_scaled_mm", a, (weight, "fp8"), scale, ((64,), "fp32"), "15", None, **B16)
        assert (c.flop, c.bytes, c.dtype, c.estimated) == (work, 512 + 2048 + 64 + 256 + 2048, "fp8", False)
    assert cost("aiter::gemm_a8w8", a, ((64, 32), "fp8"), scale, ((1, 64), "fp32"), (16, 64), **B16).bytes == 512 + 2048 + 64 + 256 + 2048
    assumed = cost("aiter::gemm_a8w8_blockscale", a, ((64, 32), "fp8"), scale, ((1, 64), "fp32"), **B16)
    assert assumed.estimated and assumed.flop == work
    assert cost("_C::cutlass_scaled_mm", (16, 64), a, ((32, 64), "fp8"), scale, ((64,), "fp32"), None, **B16).flop == work
    # NVFP4 holds two numbers in a byte: K 32 is stored as 16
    fp4 = cost("_C::cutlass_scaled_fp4_mm", (16, 64), ((16, 16), "uint8"), ((64, 16), "uint8"), scale, scale, ((1,), "fp32"), **B16)
    assert (fp4.flop, fp4.dtype, fp4.bytes) == (work, "fp4", 256 + 1024 + 64 + 64 + 4 + 2048)
    v2 = cost("aten::_scaled_mm_v2", a, ((32, 64), "fp8"), [(1,)], "[0]", "[0]", [(1,)], "[0]", "[0]", None, "15")
    assert (v2.flop, v2.bytes) == (work, 512 + 2048 + 2048)
    assert cost("sgl_kernel::bmm_fp8", ((2, 16, 32), "fp8"), ((2, 32, 64), "fp8"), (2, 16, 64), scale, scale, **B16).flop == 2 * work
    assert cost("aiter::batched_gemm_a8w8", ((2, 16, 32), "fp8"), ((2, 64, 32), "fp8"), scale, scale, **B16).flop == 2 * work


def test_transformer_engine_by_its_functions() -> None:
    # x [6, 8] with weights [16, 8] and [8, 16]; gated, the first weight is twice as wide
    assert cost("_Linear", (16, 8), (2, 3, 8), (16,), "True", **B16).flop == 2 * 6 * 16 * 8
    assert cost("_LayerNormLinear", (2, 3, 8), (8,), (8,), (16, 8), (16,), **B16).flop == 2 * 6 * 16 * 8
    for first in (16, 32):
        c = cost("_LayerNormMLP", (2, 3, 8), (8,), (8,), (first, 8), (first,), (8, 16), (8,), **B16)
        assert c.flop == 2 * 6 * 8 * (first + 16) and c.estimated
    assert estimate("_LayerNormMLP", call((2, 3, 8), (8,), (8,), (20, 8), (20,), (8, 16), (8,))) is None


# -- convolutions, sequences --------------------------------------------------------------------------------------


def test_convolutions_under_their_backends() -> None:
    # 2x3x8x8 with 4x3x3x3, stride 1, padding 1: 8 x 8 results, 4 channels, 27 products each
    x, w, macs = (2, 3, 8, 8), (4, 3, 3, 3), 2 * 4 * 64 * 27
    s, p, d = "[1, 1]", "[1, 1]", "[1, 1]"
    calls: dict[str, tuple[object, ...]] = {
        "aten::cudnn_convolution": (x, w, p, s, d, "1", "False"), "aten::miopen_convolution": (x, w, None, p, s, d, "1"),
        "aten::mkldnn_convolution": (x, w, None, p, s, d, "1"), "mkldnn::_convolution_pointwise": (x, w, None, p, s, d, "1"),
        "aten::cudnn_convolution_relu": (x, w, None, s, p, d, "1"), "aten::_slow_conv2d_forward": (x, w, "[3, 3]", None, s, p),
        "aten::slow_conv_dilated2d": (x, w, "[3, 3]", None, s, p, d), "aten::_nnpack_spatial_convolution": (x, w, None, p, s),
        "aten::conv2d": (x, w, None, s, p, d, "1"), "aten::convolution_overrideable": (x, w, None, s, p, d, "False", "[0, 0]", "1"),
    }  # fmt: skip
    for name, args in calls.items():
        c = cost(name, *args)
        assert (c.flop, c.bytes) == (2 * macs, 4 * (2 * 3 * 64 + 4 * 27 + 2 * 4 * 64)), name
    added = cost("aten::cudnn_convolution_add_relu", x, w, (2, 4, 8, 8), "1", (4,), s, p, d, "1")
    assert (added.flop, added.bytes) == (2 * macs, 4 * (384 + 108 + 512 + 512 + 4))
    grad = (2, 4, 8, 8)
    both: dict[str, tuple[object, ...]] = {
        "aten::convolution_backward_overrideable": (grad, x, w, s, p, d, "False", "[0, 0]", "1", "[True, True, False]"),
        "aten::_slow_conv2d_backward": (grad, x, w, "[3, 3]", s, p, "[True, True, False]"),
        "aten::cudnn_convolution_backward": (x, grad, w, p, s, d, "1", "False", "False", "True", "[True, True, False]"),
    }
    for name, args in both.items():
        assert cost(name, *args).flop == 4 * macs, name
    assert cost("aten::cudnn_convolution_backward_input", "[2, 3, 8, 8]", grad, w, p, s, d, "1").flop == 2 * macs
    assert cost("aten::cudnn_convolution_backward_weight", "[4, 3, 3, 3]", grad, x, p, s, d, "1").flop == 2 * macs
    assert estimate("aten::cudnn_convolution_backward_weight", call(None, grad, x)) is None


def test_a_grouped_convolution_without_recorded_values() -> None:
    # GIVEN a depthwise convolution of an old recorder, its result known from the backward call
    recorded = call((2, 8, 9, 9), (8, 1, 3, 3), None, None, None, values=False)
    recorded.result = (2, 8, 9, 9)
    found = estimate("aten::cudnn_convolution", recorded)
    assert found is not None and found.flop == 2 * 2 * 8 * 81 * 9


def test_layers_along_a_sequence() -> None:
    # LSTM: 7 steps, batch 2, 4 inputs, 5 hidden: 4 gates of 5 rows over 4 + 5 columns
    lstm = cost("aten::_cudnn_rnn", (7, 2, 4), [(20, 4), (20, 5), (20,), (20,)], "4")
    assert lstm.flop == 2 * 14 * 20 * 9 and lstm.bytes == 4 * (56 + 220 + 14 * 5)
    assert cost("aten::_cudnn_rnn_backward", (7, 2, 4), [(20, 4), (20, 5), (20,), (20,)], "4").flop == 2 * 2 * 14 * 20 * 9
    assert cost("aten::mkldnn_rnn_layer", (7, 2, 4), (20, 4), (20, 5), (20,), (20,)).flop == 2 * 14 * 20 * 9
    assert cost("DaoAILab::_causal_conv1d_fwd_cpp", (2, 6, 10), (6, 4), (6,)).flop == 2 * 2 * 6 * 10 * 4
    # B 2, T 8, H 4, P 3, G 1, N 5, chunk 4
    ssd = cost("MambaChunkScanCombinedFn", (2, 8, 4, 3), (2, 8, 4), (4,), (2, 8, 1, 5), (2, 8, 1, 5), "4")
    assert ssd.flop == 2 * 2 * 8 * (1 * 4 * 5 + 4 * 4 * 3 + 2 * 4 * 5 * 3)
    assert cost("aten::conv_tbc", (10, 2, 3), (4, 3, 6), (6,), "1").flop == 2 * (10 + 2 - 3) * 2 * 6 * 4 * 3


# -- attention ----------------------------------------------------------------------------------------------------

Q, K = (2, 6, 4, 8), (2, 10, 2, 8)  # [B, S, H, D]: 6 queries of 4 heads, 10 keys of 2 heads
PAIRS = sum(min(10, i + 5) for i in range(6))  # causal, bottom-right: 5, 6, … 10
LINE = 2 * 2 * 4 * 16  # FLOP per pair of all batches and heads


def test_flash_attention_under_its_packages() -> None:
    none = (None,) * 20
    forward: dict[str, tuple[object, ...]] = {
        "flash_attn::_flash_attn_forward": (Q, K, K, "0.", "0.3", "True", "-1", "-1"),
        "flash_attn_3::fwd": (Q, K, K, *none, "0.3", "True", "-1", "-1"),
        "sgl_kernel::fwd": (Q, K, K, *none, "0.3", "True", "-1", "-1"),
        "aiter::mha_fwd": (Q, K, K, "0.", "0.3", "True", "-1", "-1", "False"),
        "aten::_flash_attention_forward": (Q, K, K, None, None, "6", "10", "0.", "True", "False", "", "", ""),
        "aten::_efficient_attention_forward": (Q, K, K, None, None, None, "6", "10", "0.", "2", "True"),
    }
    for name, args in forward.items():
        c = cost(name, *args, **B16)
        assert (c.flop, c.flop_dense) == (LINE * PAIRS, LINE * 60), name
        assert c.bytes == 2 * (2 * 6 * 32 + 2 * 2 * 10 * 16 + 2 * 6 * 32) + 4 * 2 * 4 * 6, name
    back: dict[str, tuple[object, ...]] = {
        "flash_attn::_flash_attn_backward": (Q, Q, K, K, Q, (2, 4, 6), Q, K, K, "0.", "0.3", "True", "-1", "-1"),
        "flash_attn_3::_flash_attn_backward": (Q, Q, K, K, Q, (2, 4, 6), *none[:6], Q, K, K, "0.3", "True", "-1", "-1"),
        "flash_attn_3::bwd": (Q, Q, K, K, Q, (2, 4, 6), Q, K, K, *none[:6], "0.3", "True", "-1", "-1"),
        "aiter::mha_bwd": (Q, Q, K, K, Q, (2, 4, 6), "0.", "0.3", "True", "-1", "-1", "False"),
    }
    for name, args in back.items():
        c = cost(name, *args, **B16)
        assert (c.flop, c.direction) == (LINE * PAIRS * 5 // 2, "bwd"), name


def test_a_sliding_window_caps_every_row() -> None:
    # two keys before the own one: 3 in each of the 6 rows; the first row sees keys 2, 3, 4
    c = cost("flash_attn::_flash_attn_forward", Q, K, K, "0.", "0.3", "True", "2", "0", **B16)
    assert c.flop == LINE * 18 and c.flop_dense == LINE * 60
    both = cost("flash_attn::_flash_attn_forward", Q, K, K, "0.", "0.3", "False", "1", "1", **B16)
    assert both.flop == LINE * (3 * 5 + 2)  # the last row has no key behind it


def test_packed_sequences_of_packages() -> None:
    # 3 sequences, 12 tokens, the longest 6: 36 + 9 + 9 pairs, half of them causal
    q, offsets = (12, 4, 8), ((4,), "int32")
    seen = 2 * 4 * 16 * 54 // 2
    for name, args in {
        "flash_attn::_flash_attn_varlen_forward": (q, q, q, offsets, offsets, "6", "6", "0.", "0.3", "True", "-1", "-1"),
        "_vllm_fa2_C::varlen_fwd": (
            q,
            q,
            q,
            None,
            offsets,
            offsets,
            None,
            None,
            None,
            None,
            "6",
            "6",
            "0.",
            "0.3",
            "False",
            "True",
            "-1",
            "-1",
        ),
        "aiter::mha_varlen_fwd": (q, q, q, offsets, offsets, "6", "6", "1", "0.", "0.3", "0.", "False", "True", "-1", "-1"),
        "aiter::fmha_v3_varlen_fwd": (q, q, q, offsets, offsets, "6", "6", "0.", "0.3", "False", "True", "-1", "-1"),
    }.items():
        c = cost(name, *args, **B16)
        assert c.flop == seen and c.estimated and "lower bound" in c.reason, name


def test_a_page_table_hides_the_lengths() -> None:
    cache, table, offsets = (64, 16, 2, 8), ((3, 9), "int32"), ((4,), "int32")
    calls: dict[str, tuple[object, ...]] = {
        "_vllm_fa2_C::varlen_fwd": ((12, 4, 8), cache, cache, None, offsets, offsets, None, None, table, None, "6", "6", "0.", "0.3", "False", "True"),
        "flash_attn_3::fwd": (Q, cache, cache, *(None,) * 11, table), "flashinfer::batch_prefill_paged_run": (Q, cache, cache),
        "aiter::mha_varlen_fwd": ((12, 4, 8), cache, cache, offsets, offsets, "6", "6", "1", "0.", "0.3", "0.", "False", "True", "-1", "-1",
                                  "False", "False", None, table),
    }  # fmt: skip
    for name, args in calls.items():
        assert estimate(name, call(*args)) is None, name
        assert "page table" in explain(name, call(*args)), name
    # AND the range that sizes leave is told: a row of keys and values has 2 x 2 heads of 8 and 4 bytes, 128 in all
    said = {name: explain(name, call(*args)) for name, args in calls.items()}
    assert "1.54\u202fkB to 55.30\u202fkB of keys and values" in said["_vllm_fa2_C::varlen_fwd"]  # 12 rows; 27 pages of 16
    v1 = ((3, 4, 8), (3, 4, 8), cache, cache, "2", "0.3", table, ((3,), "int32"), "16", "100")
    assert "384\u202fB to 55.30\u202fkB" in explain("_C::paged_attention_v1", call(*v1))
    new = ((3, 4, 8), (3, 2, 8), (3, 2, 8), (3, 4, 8))
    assert "at least 384\u202fB" in explain("vllm::unified_attention_with_output", call(*new))
    for odd in (((3, 4, 8), (3, 4, 8), (64, 2, 1, 16, 8), (64, 2, 8, 16)), ((3, 0, 8), cache, cache), (cache, cache)):
        assert "page table" in explain("_C::paged_attention_v1", call(*odd))


def test_an_all_reduce_that_ends_in_a_norm_is_a_lower_bound() -> None:
    # GIVEN 32 rows of 64 in BF16, 4,096 bytes: x and residual read and written, and the weight
    c = cost("vllm::flashinfer_trtllm_fused_allreduce_norm", (32, 64), (32, 64), (64,), "1e-5", "8", **B16)
    assert c.bytes == 4 * 4_096 + 128 and c.estimated
    assert "4.10\u202fkB (2 ranks) to 8.19\u202fkB" in c.reason and "lower bound" in c.reason


def test_other_attention_of_pytorch() -> None:
    q, k = (2, 4, 6, 8), (2, 4, 10, 8)  # [B, H, S, D]
    whole = 2 * 2 * 4 * 16 * 60
    assert cost("aten::_scaled_dot_product_attention_math", q, k, k, None, "0.", "True").flop == whole
    flex = cost("flex_attention", q, k, k)
    assert flex.flop == whole and flex.estimated and "block mask" in flex.reason
    assert cost("triton_tem_fused_flex_attention_0", q, k, k, (2, 4, 6)).flop == whole
    assert cost("triton_tem_fused_flex_attention_backward_zeros_1", q, k, k).flop == whole * 5 // 2
    quantized = cost("aten::_scaled_dot_product_flash_attention", *[((2, 4, 6, 8), "fp8")] * 3, f32(1), f32(1), f32(1), "0.", "True")
    assert (quantized.flop, quantized.dtype) == (2 * 2 * 4 * 16 * 36 // 2, "fp8")
    args = (q, q, k, k, None, "[True, True, True, False]", q, (2, 4, 6), None, None, "6", "10", "0.", "False")
    assert cost("aten::_scaled_dot_product_fused_attention_overrideable_backward", *args).flop == whole * 5 // 2
    assert cost("aten::_cudnn_attention_forward", q, k, k, None, None, None, "6", "10", "True", "0.", "False").flop == whole


# -- positions as PyTorch itself records them -----------------------------------------------------------------------


def test_recorded_positions_of_calls_on_the_cpu(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="records calls with PyTorch")
    from tests.support.torch_models import matrix_flop, recorded

    half = torch.bfloat16
    steps: dict[str, tuple[Callable[[], Any], int]] = {
        "aten::_int_mm": (
            lambda: torch._int_mm(torch.ones(32, 16, dtype=torch.int8), torch.ones(16, 8, dtype=torch.int8)),
            2 * 32 * 16 * 8,
        ),
        "aten::_weight_int8pack_mm": (
            lambda: torch._weight_int8pack_mm(
                torch.ones(4, 32, dtype=half), torch.ones(16, 32, dtype=torch.int8), torch.ones(16, dtype=half)
            ),
            2 * 4 * 32 * 16,
        ),
        "aten::_grouped_mm": (
            lambda: torch._grouped_mm(
                torch.ones(16, 32, dtype=half), torch.ones(2, 32, 16, dtype=half), offs=torch.tensor([4, 16], dtype=torch.int32)
            ),
            2 * 16 * 32 * 16,
        ),
        "aten::mkldnn_rnn_layer": (lambda: torch.nn.LSTM(4, 5)(torch.randn(7, 2, 4)), 2 * 14 * 20 * 9),
        "aten::mkldnn_rnn_layer_backward": (lambda: torch.nn.LSTM(4, 5)(torch.randn(7, 2, 4))[0].sum().backward(), 3 * 2 * 14 * 20 * 9),
        "aten::addr": (lambda: torch.addr(torch.zeros(3, 4), torch.ones(3), torch.ones(4)), 2 * 12),
        "aten::conv_tbc": (lambda: torch.conv_tbc(torch.ones(10, 2, 3), torch.ones(4, 3, 6), torch.ones(6), 1), 2 * 9 * 2 * 6 * 12),
        "aten::addbmm": (lambda: torch.addbmm(torch.ones(3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5)), 2 * 2 * 60),
    }
    for name, (step, flop) in steps.items():
        ops = recorded(step, tmp_path)
        assert matrix_flop(ops) == flop, name
