"""Cost of single calls, worked out by hand."""

from __future__ import annotations

import pytest

from tb_sol_plugin.cost import estimate, model_for, registered
from tb_sol_plugin.cost.ops.attention import pairs
from tests.unit.cost.calls import call, cost

# -- products -------------------------------------------------------------------------------------------------


def test_addmm_counts_the_bias_as_bytes_only() -> None:
    # GIVEN 141x512 times 512x512 with a bias of 512 in BF16
    c = cost("aten::addmm", (512,), (141, 512), (512, 512), "1", "1", dtype="bf16")
    # THEN 2 x 141 x 512 x 512 FLOP and 2 x (141x512 + 512x512 + 141x512 + 512) bytes
    assert (c.flop, c.flop_vector, c.bytes, c.dtype, c.kind) == (73_924_608, 0, 814_080, "bf16", "gemm")


def test_an_expanded_bias_is_read_once_per_element_in_memory() -> None:
    expanded = cost("aten::addmm", (4, 8), (4, 2), (2, 8), "1", "1", strides={0: [0, 1]})
    full = cost("aten::addmm", (4, 8), (4, 2), (2, 8), "1", "1")
    assert full.bytes - expanded.bytes == 4 * (4 * 8 - 8)  # type: ignore[operator]


def test_product_operands_count_at_their_own_size() -> None:
    # FP8 operands, scales of one float each, a BF16 result (dtype 15): 2*16*32*64 FLOP, 16*32 + 32*64 + 8 + 2*16*64 bytes
    c = cost("aten::_scaled_mm", (16, 32), (32, 64), ((1,), "fp32"), ((1,), "fp32"), None, None, "15", dtype="fp8")
    assert (c.flop, c.bytes, c.dtype, c.estimated) == (65_536, 512 + 2048 + 8 + 2048, "fp8", False)
    mixed = cost("aten::_scaled_mm", (16, 32), ((32, 64), "fp8_e5m2"), ((1,), "fp32"), ((1,), "fp32"), None, None, "15", dtype="fp8")
    assert mixed.dtype == "fp8"
    without = cost("aten::_scaled_mm", (16, 32), (32, 64), ((1,), "fp32"), ((1,), "fp32"), dtype="fp8", values=False)
    assert without.estimated and "BF16 assumed" in without.reason


def test_packed_fp4_holds_two_numbers_per_byte() -> None:
    c = cost("aten::_scaled_mm", (16, 32), (32, 64), ((1,), "fp32"), ((1,), "fp32"), None, None, "15", dtype="fp4")
    assert (c.flop, c.dtype) == (2 * 16 * 64 * 64, "fp4")


def test_int8_products_give_int32() -> None:
    c = cost("aten::_int_mm", (8, 16), (16, 4), dtype="int8")
    assert (c.flop, c.bytes, c.dtype) == (1024, 128 + 64 + 4 * 32, "int8")


def test_weight_only_quantization_computes_in_the_activation_type() -> None:
    c = cost("aten::_weight_int8pack_mm", ((4, 32), "bf16"), ((8, 32), "int8"), ((8,), "bf16"))
    assert (c.flop, c.bytes, c.dtype) == (2 * 4 * 32 * 8, 2 * 128 + 256 + 16 + 2 * 32, "bf16")


def test_grouped_products() -> None:
    # 3 groups share 24 rows: 2 x 24 x 8 x 16 FLOP; weights of every group are read
    rows = cost("aten::_grouped_mm", (24, 8), (3, 8, 16), ((3,), "int32"), None, "15", dtype="bf16")
    assert (rows.flop, rows.bytes) == (6144, 2 * (24 * 8 + 3 * 8 * 16 + 24 * 16) + 12)
    # groups along K (a weight gradient): one result per group
    inner = cost("aten::_grouped_mm", (8, 24), (24, 16), ((3,), "int32"), None, "15", dtype="bf16")
    assert (inner.flop, inner.bytes) == (6144, 2 * (8 * 24 + 24 * 16 + 3 * 8 * 16) + 12)


def test_linear_and_wrappers_multiply_by_the_transposed_weight() -> None:
    for name in ("aten::linear", "vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16"):
        c = cost(name, (32, 2880), (201_088, 2880), None, dtype="bf16")
        assert c.flop == 37_064_540_160  # O 851
        assert model_for(name).wrapper  # type: ignore[union-attr]


def test_matmul_broadcasts_batches() -> None:
    assert cost("aten::matmul", (5, 1, 2, 3), (4, 3, 6)).flop == 2 * 5 * 4 * 2 * 6 * 3
    assert cost("aten::matmul", (3,), (3,)).flop == 6


@pytest.mark.parametrize(("name", "args"), [("aten::mm", ((2, 3), (4, 5))), ("aten::mm", ((2, 3), None)), ("aten::bmm", ((2, 3), (3, 4)))])
def test_sizes_that_do_not_fit_have_no_cost(name: str, args: tuple[object, ...]) -> None:
    assert estimate(name, call(*args)) is None


# -- convolutions ---------------------------------------------------------------------------------------------


def test_patch_convolution_with_and_without_bias() -> None:
    values = ("[14, 14]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1")
    plain = cost("aten::convolution", (1, 3, 1008, 1008), (1024, 3, 14, 14), None, *values, dtype="bf16")
    biased = cost("aten::convolution", (1, 3, 1008, 1008), (1024, 3, 14, 14), (1024,), *values, dtype="bf16")
    assert plain.flop == biased.flop == 6_242_697_216  # O 271
    assert biased.bytes - plain.bytes == 2048  # type: ignore[operator]


def test_output_mask_is_read_as_booleans() -> None:
    def flop(mask: str) -> tuple[int | None, int | None]:
        values = ("[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", mask)
        c = cost("aten::convolution_backward", (2, 4, 8, 8), (2, 3, 8, 8), (4, 3, 1, 1), "[4]", *values)
        return c.flop, c.flop_vector

    one = 2 * (2 * 4 * 8 * 8) * 3
    assert flop("[True, True, False]") == (2 * one, 0)
    assert flop("[False, True, False]") == (one, 0)
    assert flop("[False, False, True]") == (0, 2 * 4 * 8 * 8)
    assert flop("[False]") == (0, 0)


@pytest.mark.parametrize("name", ["aten::convolution_backward", "aten::linear_backward"])
def test_a_backward_pass_reads_the_gradient_of_its_result_once(name: str) -> None:
    # GIVEN a 1 x 1 convolution of 3 to 4 channels over 2 images of 8 x 8, FP32; a linear layer of the same sizes
    grad, x, w = 4 * 2 * 4 * 64, 4 * 2 * 3 * 64, 4 * 4 * 3

    def traffic(mask: str) -> int | None:
        values = ("[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1", mask)
        if name == "aten::linear_backward":
            return cost(name, (128, 3), (128, 4), (4, 3), mask).bytes
        return cost(name, (2, 4, 8, 8), (2, 3, 8, 8), (4, 3, 1, 1), "[4]", *values).bytes

    # THEN each tensor that a gradient needs is read once, each gradient that is asked for is written once
    assert traffic("[True, False, False]") == grad + w + x
    assert traffic("[False, True, False]") == grad + x + w
    assert traffic("[False, False, True]") == grad + 4 * 4
    assert traffic("[True, True, False]") == grad + x + w + x + w
    assert traffic("[True, True, True]") == grad + x + w + x + w + 4 * 4
    assert traffic("[False, False, False]") == 0


def test_a_convolution_without_recorded_values_is_unknown_unless_its_result_is_known() -> None:
    recorded = call((32, 3, 224, 224), (64, 3, 7, 7), None, None, None, None, None, None, None, values=False)
    assert estimate("aten::cudnn_convolution", recorded) is None
    recorded.result = (32, 64, 112, 112)
    c = estimate("aten::cudnn_convolution", recorded)
    assert c is not None and c.flop == 2 * 32 * 64 * 112 * 112 * 3 * 49 and c.estimated and "backward" in c.reason


# -- attention ------------------------------------------------------------------------------------------------


def test_causal_pairs_by_counting_them() -> None:
    # half of a square; else every pair of a triangle, counted one by one
    assert pairs(6, 6, "bottom_right") == 18
    for nq in range(1, 9):
        for nk in range(1, 9):
            if nq != nk:
                assert pairs(nq, nk, "bottom_right") == sum(k <= q + nk - nq for q in range(nq) for k in range(nk)), (nq, nk)
                assert pairs(nq, nk, "top_left") == sum(k <= q for q in range(nq) for k in range(nk)), (nq, nk)
            assert pairs(nq, nk, "none") == nq * nk


def test_flash_attention_forward_and_backward() -> None:
    q = (16, 16, 559, 64)
    c = cost("aten::_scaled_dot_product_flash_attention", q, q, q, "0.", "True", "False", "0.125", dtype="bf16")
    assert (c.flop, c.flop_dense) == (10_239_377_408, 20_478_754_816)  # O 132
    assert c.bytes == 4 * 2 * 16 * 16 * 559 * 64 + 4 * 16 * 16 * 559
    back = cost(
        "aten::_scaled_dot_product_flash_attention_backward", q, q, q, q, q, ((16, 16, 559), "fp32"), None, None, "559", "559", "0.", "True",
        dtype="bf16",
    )  # fmt: skip
    assert back.flop == c.flop * 5 // 2  # type: ignore[operator]
    assert back.bytes == 8 * 2 * 16 * 16 * 559 * 64 + 4 * 16 * 16 * 559
    assert back.direction == "bwd"


def test_grouped_queries_read_fewer_keys() -> None:
    c = cost("aten::_scaled_dot_product_flash_attention", (2, 32, 64, 128), (2, 8, 64, 128), (2, 8, 64, 128), "0.", "False", dtype="bf16")
    assert c.flop == 4 * 2 * 32 * 64 * 64 * 128
    assert c.bytes == 2 * 2 * 64 * 128 * (32 + 8 + 8 + 32) + 4 * 2 * 32 * 64


def test_layouts_differ_between_families() -> None:
    # [B, S, H, D] here, [B, H, S, D] there: the same attention, the same work
    a = cost("aten::_flash_attention_forward", (2, 64, 8, 16), (2, 64, 8, 16), (2, 64, 8, 16), None, None, "64", "64", "0.", "False")
    b = cost("aten::_scaled_dot_product_flash_attention", (2, 8, 64, 16), (2, 8, 64, 16), (2, 8, 64, 16), "0.", "False")
    assert (a.flop, a.bytes) == (b.flop, b.bytes)


def test_decode_step_counts_every_key() -> None:
    # GIVEN one query after 100 keys, causal, bottom-right aligned (E-104); THEN all 100 pairs, no error
    c = cost("aten::_flash_attention_forward", (1, 1, 4, 8), (1, 100, 4, 8), (1, 100, 4, 8), None, None, "1", "100", "0.", "True")
    assert c.flop == 2 * 4 * 100 * 16


def test_packed_sequences_are_a_lower_bound() -> None:
    # 2 sequences of 10 tokens in all, the longest 6, the other 4: 36 + 16 pairs, half of them causal
    q = (10, 4, 8)
    c = cost("aten::_flash_attention_forward", q, q, q, ((3,), "int32"), ((3,), "int32"), "6", "6", "0.", "True")
    assert c.flop == 2 * 4 * 16 * (36 + 16) // 2
    assert c.estimated and "lower bound" in c.reason


def test_paged_attention_takes_its_lengths_from_the_name_of_the_step() -> None:
    # GIVEN 32 requests that decode one token each over 55,086 cached tokens in all: 64 query heads, 8 key heads of 64
    args = ((32, 64, 64), (32, 8, 64), (32, 8, 64), (32, 64, 64))
    decode = call(*args, dtype="bf16")
    decode.around = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
    c = estimate("vllm::unified_attention_with_output", decode)
    # THEN every cached token meets one query: 2 x 64 x 128 x 55086 FLOP; q and o, and 8 heads of keys and values, 2 bytes each
    assert c is not None and c.estimated and c.flop == c.flop_dense == 902_529_024
    assert c.bytes == 2 * (2 * 32 * 64 * 64 + 55_086 * 8 * 128)
    # a prefill of 20 and 10 tokens without cached keys: half of 400 + 100 pairs; with 4 cached ones each: 20 x 4 + 210 + 10 x 4 + 55
    for sk, sqsk, seen in ((30, 500, 250), (38, 620, 385)):
        prefill = call(*args, dtype="bf16")
        prefill.around = f"execute_2_context_2(sq30sk{sk}sqsq500sqsk{sqsk})_generation_0(sq0sk0sqsq0sqsk0)"
        c = estimate("vllm::unified_attention_with_output", prefill)
        assert c is not None and (c.flop, c.flop_dense) == (2 * 64 * 128 * seen, 2 * 64 * 128 * sqsk)
    # FP8 queries run on the FP8 units over an FP8 cache, though keys and result are BF16 (E-102)
    q8 = call(((32, 64, 64), "fp8"), *args[1:], dtype="bf16")
    q8.around = decode.around
    c = estimate("vllm::unified_attention_with_output", q8)
    assert c is not None and (c.dtype, c.bytes) == ("fp8", 3 * 32 * 64 * 64 + 55_086 * 8 * 128)
    # more tokens than there are queries, or nothing told: no work
    prefill.around = "context_1(sq33sk33sqsq1089sqsk1089)_generation_0(sq0sk0sqsq0sqsk0)"
    assert estimate("vllm::unified_attention_with_output", prefill) is None
    assert estimate("vllm::unified_attention_with_output", call(*args)) is None


def test_an_unrecorded_mask_is_an_assumption() -> None:
    c = cost("aten::_scaled_dot_product_flash_attention", (1, 1, 4, 8), (1, 1, 4, 8), (1, 1, 4, 8), values=False)
    assert c.estimated and c.flop == c.flop_dense


# -- norms, elementwise, movement -----------------------------------------------------------------------------


def test_layer_norm_reads_writes_and_keeps_statistics() -> None:
    c = cost("aten::native_layer_norm", (1, 141, 512), "[512]", (512,), (512,), "1e-05", dtype="bf16")
    assert (c.flop, c.flop_vector) == (0, 8 * 141 * 512)
    assert c.bytes == 2 * 2 * 141 * 512 + 2 * 1024 + 2 * 4 * 141
    back = cost("aten::native_layer_norm_backward", (4, 8), (4, 8), "[8]", (4, 1), (4, 1), (8,), (8,), "[True, True, True]")
    assert (back.flop_vector, back.bytes) == (16 * 32, 4 * (3 * 32 + 4 + 4 + 8 + 8 + 8))


def test_batch_norm_in_evaluation_is_not_training() -> None:
    # E-105: the text "False" is false
    args = ((8, 16, 4, 4), (16,), (16,), (16,), (16,))
    training, fixed = (cost("aten::native_batch_norm", *args, flag, "0.1", "1e-05") for flag in ("True", "False"))
    n = 8 * 16 * 16
    assert (training.flop_vector, fixed.flop_vector) == (8 * n, 2 * n)
    assert fixed.bytes == 4 * (2 * n + 4 * 16)
    assert training.bytes == 4 * (2 * n + 4 * 16 + 2 * 16 + 2 * 16)


def test_softmax_can_widen() -> None:
    assert cost("aten::_softmax", (4, 8), "-1", "False", dtype="fp16").bytes == 2 * 32 + 2 * 32
    assert cost("aten::_softmax", (4, 8), "-1", "True", dtype="fp16").bytes == 2 * 32 + 4 * 32


def test_elementwise_broadcast_in_place_and_compare() -> None:
    c = cost("aten::mul", (4, 8), (8,))
    assert (c.flop_vector, c.bytes) == (32, 4 * (32 + 8 + 32))
    assert cost("aten::add_", (4, 8), (4, 8), "1").bytes == 4 * 96
    assert cost("aten::relu_", (4, 8)).bytes == 4 * 64
    assert cost("aten::gt", (4, 8), "0").bytes == 4 * 32 + 32
    assert cost("aten::where", ((4, 8), "bool"), (4, 8), (4, 8)).bytes == 32 + 3 * 128
    assert cost("aten::gelu_backward", (4, 8), (4, 8), "none").direction == "bwd"
    assert cost("aten::add", (4, 8), ((4, 8), "unknown type"), "1").bytes is None


def test_mean_over_a_dim_that_is_a_text() -> None:
    # E-96: 16 x 559 results over dim [-1], 36 670 400 bytes
    c = cost("aten::mean", (16, 559, 1024), "[-1]", "True", None)
    assert (c.flop_vector, c.bytes) == (16 * 559 * 1024, 36_670_400)
    assert cost("aten::sum", (16, 8), None).bytes == 4 * 128 + 4
    assert cost("aten::max", (16, 8), "-1", "False").bytes == 4 * 128 + 4 * 16 + 8 * 16
    assert cost("aten::mean", (16, 8), None, None, None, values=False).estimated


def test_movement() -> None:
    assert cost("aten::copy_", (4, 8), (4, 8), "False").bytes == 256
    assert cost("aten::copy_", (4, 8), ((4, 8), "bf16"), "False").bytes == 128 + 64
    assert cost("aten::copy_", (4, 8), (4, 8), "False", strides={1: [0, 1]}).bytes == 128 + 32
    assert cost("aten::fill_", (4, 8), "0").bytes == 128
    # an embedding moves its rows, not the table
    assert cost("aten::embedding", (50_000, 16), ((2, 3), "int64")).bytes == 2 * 6 * 16 * 4 + 48
    assert cost("aten::index_select", (10, 6), "1", ((3,), "int64")).bytes == 2 * 30 * 4 + 24
    assert (
        cost("aten::max_pool2d_with_indices", (1, 2, 8, 8), "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "False").bytes
        == 4 * (128 + 32) + 8 * 32
    )


def test_lists_have_no_size_without_a_hint() -> None:
    recorded = call([(4,), (5, 6)], "0")
    found = estimate("aten::cat", recorded)
    assert found is not None and found.bytes is None
    from tb_sol_plugin.cost import Inputs

    hinted = estimate("aten::cat", Inputs("[[[4],[5,6]],[]]", '["TensorList","Scalar"]', hint="bf16"))
    assert hinted is not None and hinted.bytes == 2 * 2 * 34 and hinted.estimated and "kernel" in hinted.reason
    adam = estimate(
        "aten::_fused_adamw_", Inputs("[[[10]],[[10]],[[10]],[[10]],[],[[]]]", '["TensorList"' + ',"TensorList"' * 5 + "]", hint="fp32")
    )
    assert adam is not None and (adam.bytes, adam.flop_vector) == (280, 120)


def test_every_model_survives_any_arguments() -> None:
    # GIVEN calls with nothing, with scalars, with sizes that make no sense; THEN an answer or none, never an error
    odd = [(), (None,) * 3, ((0,),) * 4, ((),) * 6, ((2, 3, 4),) * 12, ("True",) * 11, ((1, 1, 1, 1), "[0, 0]") * 6, ([(2,), (3,)],) * 5]
    for name in (*registered(), "aten::_foreach_add_", "triton_red_fused_x"):
        for args in odd:
            for values in (True, False):
                found = estimate(name, call(*args, values=values))
                assert found is None or found.bytes is None or found.bytes >= 0, name


def test_views_and_unknown_operators_have_no_model() -> None:
    for name in ("aten::view", "aten::as_strided", "aten::reshape", "my::operator", "AddmmBackward0"):
        assert model_for(name) is None


def test_a_loss_gradient_is_zeroed_first() -> None:
    c = cost("aten::nll_loss_backward", (), (32, 1000), ((32,), "int64"), None, "1", "-100", ())
    assert c.bytes == 4 * 32_000 + 4 * 32 + 8 * 32


def test_picking_and_ordering() -> None:
    assert cost("aten::topk", (4, 100), "5", "-1", "True", "True").bytes == 4 * 400 + 20 * (4 + 8)
    assert cost("aten::sort", (4, 100), "-1", "False").bytes == 400 * (4 + 4 + 8)
    # two index lists of 6 over a 10x20x3 tensor: 6 rows of 3
    picked = cost("aten::index", (10, 20, 3), [(6,), (6,)])
    assert (picked.bytes, picked.estimated) == (2 * 18 * 4 + 8 * 12, True)
    # what may be a mask of 10 bytes picks an unknown number
    assert cost("aten::index", (10, 20, 3), [(10,)]).bytes == 10
    assert estimate("aten::index", call((10, 20, 3), None)) is None
    assert cost("aten::upsample_nearest2d", (1, 2, 4, 4), "[8, 8]", None).bytes == 4 * (32 + 128)
