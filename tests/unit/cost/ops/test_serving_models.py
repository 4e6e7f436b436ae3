"""Operators of serving engines and quantizers whose argument order comes from the packages' own schemas."""

from __future__ import annotations

import pytest

from tb_sol_plugin.cost import estimate, explain
from tests.unit.cost.calls import call, cost

# -- writes into the key/value cache -----------------------------------------------------------------------------


def test_a_cache_write_reads_its_tokens_and_writes_as_many_rows() -> None:
    # GIVEN a recorded call of SGLang: 212 tokens with rows of 128 BF16, taken out of wider rows, into caches of 4,148,736 slots
    args = ((212, 128), (212, 128), (4_148_736, 128), (4_148_736, 128), ((212,), "int64"), "256", "0", "4148736")
    c = cost("sglang::store_cache", *args, dtype="bf16", strides={1: [1024, 1]})
    # THEN keys and values are read and written, the slots read: the caches are not touched as a whole
    assert (c.flop, c.flop_vector, c.bytes) == (0, 0, 4 * 2 * 212 * 128 + 8 * 212)
    # AND a cache of another type is written in that
    fp8 = cost("sglang::store_cache", *args[:2], ((4_148_736, 128), "fp8"), ((4_148_736, 128), "fp8"), *args[4:], dtype="bf16")
    assert fp8.bytes == 3 * 2 * 212 * 128 + 8 * 212
    # AND rows that do not fit the cache, or slots, have no answer but a reason
    for wrong in ((args[0], args[1], (9, 64), (9, 64), args[4]), (args[0], args[1], args[2], args[3], ((211,), "int64"))):
        assert estimate("sglang::store_cache", call(*wrong, dtype="bf16")) is None
        assert "contradict" in explain("sglang::store_cache", call(*wrong, dtype="bf16"))


# -- group norm ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("later", [False, True])
def test_the_group_norm_of_aiter_reads_once_and_writes_once(later: bool) -> None:
    # GIVEN 2 images of 64 channels of 8 x 8, BF16; later versions are handed the result and scratch memory in front
    x, weight = (2, 64, 8, 8), (64,)
    args: tuple[object, ...] = (x, "32", weight, weight, "1e-05")
    c = cost("aiter::_groupnorm_run", *((x, ((8192,), "fp32"), *args) if later else args), dtype="bf16")
    # THEN 8 operations per element; input, result, weight and bias once
    n = 2 * 64 * 64
    assert (c.kind, c.flop, c.flop_vector, c.bytes) == ("norm", 0, 8 * n, 2 * (2 * n + 2 * 64))


def test_a_group_norm_that_contradicts_itself_says_so() -> None:
    for args in (((2, 64, 8, 8), "32", (63,), (63,)), ((2, 64, 8, 8), "30", (64,), (64,))):
        assert estimate("aiter::_groupnorm_run", call(*args)) is None
        assert "contradict" in explain("aiter::_groupnorm_run", call(*args))


# -- quantizers of FBGEMM ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("home", ["fbgemm", "mslk"])
def test_quantizers_write_a_byte_per_element_and_their_scales(home: str) -> None:
    # GIVEN 48 rows of 96 BF16 numbers
    x, n = (48, 96), 48 * 96

    def work(name: str, *args: object) -> tuple[int | None, int | None]:
        c = cost(f"{home}::{name}", *args, dtype="bf16")
        assert c.flop == 0
        return c.flop_vector, c.bytes

    # THEN two operations per element (find the largest, scale) and FP32 scales: per row, per column, per tensor
    assert work("quantize_fp8_per_row", x, None, None, "None", "False") == (2 * n, 3 * n + 4 * 48)
    assert work("quantize_fp8_per_row", x, None, ((1,), "fp32"), "None", "False") == (2 * n, 3 * n + 4 * 48 + 4)
    assert work("quantize_fp8_per_col", x, None, None) == (2 * n, 3 * n + 4 * 96)
    assert work("quantize_fp8_per_tensor", x, None, None, "False") == (2 * n, 3 * n + 4)
    assert work("per_tensor_dynamic_quantize_i8", x) == (2 * n, 3 * n + 4)
    # AND of a batch of 3, rows of each, or one scale for each
    assert work("quantize_fp8_per_row", (3, *x)) == (6 * n, 9 * n + 4 * 3 * 48)
    assert work("quantize_fp8_per_tensor", (3, *x)) == (6 * n, 9 * n + 4 * 3)
    # AND one operation where the scale is given, or nothing else is asked for
    assert work("quantize_fp8_per_tensor_fixed_scale", x, ((1,), "fp32"), None, "False") == (n, 3 * n + 4)
    assert work("per_tensor_quantize_i8", x, "0.5") == (n, 3 * n)
    assert work("get_fp8_per_tensor_scale", x, None, None) == (n, 2 * n + 4)
    assert work("silu_mul_quantize_i8", x, x, "0.5") == (3 * n, 5 * n)
    assert work("scaled_fp4_quant", ((48, 48), "uint8"), x, ((48, 8), "fp8"), ((1,), "fp32")) == (2 * n, 2 * n + n // 2 + 48 * 8 + 4)


def test_rowwise_quantizers_of_embeddings_keep_scale_and_bias_in_the_row() -> None:
    # GIVEN 10 rows of 16 FP32 numbers THEN 64 bytes read, 16 and 8 of scale and bias written per row
    for name in ("FloatToFused8BitRowwiseQuantized", "FloatToFP8RowwiseQuantized", "FloatOrHalfToFused8BitRowwiseQuantized"):
        c = cost(f"fbgemm::{name}", (10, 16))
        assert (c.flop_vector, c.bytes) == (2 * 160, 10 * (64 + 16 + 8))


def test_a_quantizer_without_fitting_sizes_says_why() -> None:
    assert explain("fbgemm::quantize_fp8_per_row", call((96,), dtype="bf16")) == "fbgemm quantizes 2 or 3 dimensions"
    assert explain("fbgemm::silu_mul_quantize_i8", call((4, 8), (4, 9), "1", dtype="bf16")) == "sizes contradict: the two inputs"
    assert explain("fbgemm::quantize_fp8_per_row", call(None)) == "no sizes recorded"
    assert explain("fbgemm::fake_quantize_nvfp4_per_tensor", call((4, 8))) == "no cost model"


def test_an_fp8_product_of_fbgemm() -> None:
    c = cost("fbgemm::f8f8bf16_rowwise", ((8, 32), "fp8"), ((16, 32), "fp8"), ((8,), "fp32"), ((16,), "fp32"), None, "True")
    assert (c.flop, c.dtype, c.bytes) == (2 * 8 * 16 * 32, "fp8", 8 * 32 + 16 * 32 + 4 * 24 + 2 * 8 * 16)


# -- attention of aiter over a paged cache -------------------------------------------------------------------------


def prefill(tokens: int, sequences: int, most_q: int, most_k: int, *, cache: tuple[int, ...] = (4096, 2, 64), causal: bool = True,
            window: int = -1, pages: int = 512, lse: bool = False) -> tuple[object, ...]:  # fmt: skip
    """aiter::mha_batch_prefill: 8 heads of 64, 2 key heads."""
    offsets = ((sequences + 1,), "int32")
    values = (str(most_q), str(most_k), "0.", "0.125", "0.", "False", str(causal), str(window), "0" if window >= 0 else "-1")
    return ((tokens, 8, 64), cache, cache, offsets, offsets, ((pages,), "int32"), *values, str(lse), "False")


NAME = "aiter::mha_batch_prefill"


@pytest.mark.parametrize("cache", [(4096, 2, 64), (256, 16, 2, 64)], ids=["a token per page", "pages of 16"])
def test_a_single_sequence_meets_the_keys_of_the_longest(cache: tuple[int, ...]) -> None:
    # GIVEN one request: 100 new tokens after 200 cached ones, causal
    c = cost(NAME, *prefill(100, 1, 100, 300, cache=cache), dtype="bf16")
    # THEN query i meets 201 + i keys; queries and result, and 300 rows of keys and values of 2 heads
    seen = sum(201 + i for i in range(100))
    assert c.kind == "attention" and c.estimated and "one sequence" in c.reason
    assert (c.flop, c.flop_dense) == (2 * 8 * 128 * seen, 2 * 8 * 128 * 100 * 300)
    assert c.bytes == 2 * (2 * 100 * 8 * 64 + 2 * 300 * 2 * 64)
    # AND the log-sum-exp where it is asked for; without a mask every pair; in a window of 50 keys before, 51 each, of 150 rows
    assert cost(NAME, *prefill(100, 1, 100, 300, cache=cache, lse=True), dtype="bf16").bytes == c.bytes + 4 * 100 * 8  # type: ignore[operator]
    assert cost(NAME, *prefill(100, 1, 100, 300, cache=cache, causal=False), dtype="bf16").flop == c.flop_dense
    narrow = cost(NAME, *prefill(100, 1, 100, 300, cache=cache, window=50), dtype="bf16")
    assert narrow.flop == 2 * 8 * 128 * 100 * 51
    assert narrow.bytes == 2 * (2 * 100 * 8 * 64 + 2 * 150 * 2 * 64)


def test_several_fresh_sequences_are_a_lower_bound() -> None:
    # GIVEN three requests of together 300 tokens, the longest 100, over their own keys: so each has 100
    c = cost(NAME, *prefill(300, 3, 100, 100, cache=(300, 2, 64), pages=300), dtype="bf16")
    assert c.estimated and "lower bound" in c.reason
    assert (c.flop, c.flop_dense) == (3 * 2 * 8 * 128 * 100 * 100 // 2, 3 * 2 * 8 * 128 * 100 * 100)


def test_lengths_come_from_the_name_of_the_step() -> None:
    # GIVEN 32 requests that decode over 55,086 cached tokens together
    one = call(*prefill(32, 32, 1, 4000), dtype="bf16")
    one.around = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)"
    c = estimate(NAME, one)
    assert c is not None and c.flop == 2 * 8 * 128 * 55_086 and c.bytes == 2 * (2 * 32 * 8 * 64 + 2 * 55_086 * 2 * 64)


def test_what_is_not_recorded_is_no_guess() -> None:
    # GIVEN two requests over a cache: which of them has how many keys stands in device memory
    two = call(*prefill(100, 2, 60, 300), dtype="bf16")
    assert estimate(NAME, two) is None and "page table" in explain(NAME, two)
    # GIVEN a cache in the layout of vectors, whose keys are [pages, heads, width / 8, page, 8]
    vectors = list(prefill(100, 1, 100, 300))
    vectors[1] = (256, 2, 8, 16, 8)
    assert explain(NAME, call(*vectors, dtype="bf16")) == "layout of the key cache not known"
    # GIVEN no concrete values
    assert estimate(NAME, call(*prefill(100, 1, 100, 300), dtype="bf16", values=False)) is None
    # GIVEN more keys than the cache has
    assert estimate(NAME, call(*prefill(100, 1, 100, 5000), dtype="bf16")) is None


# -- products, norms, quantizers, sampling whose positions differ ----------------------------------------------------

N = 6 * 64
"""Elements of 6 rows of 64."""
X, X8, OUT, OUT8 = (6, 64), ((6, 64), "fp8"), (6, 96), ((6, 96), "bf16")
WEIGHT8, ROWS, COLUMNS = ((96, 64), "fp8"), ((6, 1), "fp32"), ((96, 1), "fp32")


@pytest.mark.parametrize(("name", "args", "flop", "vector", "moved"), [
    ("aiter::gemm_a8w8_blockscale_ck", (X8, WEIGHT8, ROWS, COLUMNS, OUT8), 2 * N * 96, 0, N + 96 * 64 + 4 * 102 + 2 * 6 * 96),
    ("sglang::deep_gemm_fp8_fp8_bf16_nt", (X8, ROWS, WEIGHT8, COLUMNS, OUT8), 2 * N * 96, 0, N + 96 * 64 + 4 * 102 + 2 * 6 * 96),
    ("vllm::rocm_per_tensor_float_w8a8_scaled_mm_impl", (X8, ((64, 96), "fp8"), "15", ((1,), "fp32"), ((1,), "fp32")),
     2 * N * 96, 0, N + 96 * 64 + 8 + 2 * 6 * 96),
    ("aiter::gemm_a16w16_asm", (X, (96, 64), OUT), 2 * N * 96, 0, 2 * (N + 96 * 64 + 6 * 96)),
    ("aiter::wvSpltK", ((96, 64), X, OUT, "6", "304"), 2 * N * 96, 0, 2 * (N + 96 * 64 + 6 * 96)),
    ("aiter::rmsnorm2d_fwd_with_add_dynamicquant", (X8, X, X, X, ROWS, (64,), "1e-5"), 0, 9 * N, 3 * 2 * N + N + 4 * 6 + 2 * 64),
    ("aiter::rmsnorm2d_fwd_with_smoothquant", (X8, X, ((64,), "fp32"), ROWS, (64,), "1e-5"), 0, 8 * N, 3 * N + 4 * 64 + 4 * 6 + 2 * 64),
    ("vllm::rocm_aiter_rmsnorm_fused_dynamic_quant", (X, (64,), "1e-5", "24"), 0, 8 * N, 3 * N + 4 * 6 + 2 * 64),
    ("vllm::rocm_aiter_rmsnorm_fused_add_dynamic_quant", (X, X, (64,), "1e-5", "24"), 0, 9 * N, 7 * N + 4 * 6 + 2 * 64),
    ("aiter::smoothquant_fwd", (X8, X, ((64,), "fp32"), ROWS), 0, 3 * N, 3 * N + 4 * 64 + 4 * 6),
    ("aiter::dynamic_per_group_scaled_quant_fp4", (((6, 32), "uint8"), X, ((6, 2), "uint8"), "32"), 0, 2 * N, 2 * N + N // 2 + 12),
    ("vllm::rocm_aiter_per_token_quant", (X, "24", None), 0, 2 * N, 3 * N + 4 * 6),
    ("vllm::rocm_aiter_per_tensor_quant", (X, "24", ((1,), "fp32")), 0, N, 3 * N + 4),
    ("vllm::rocm_aiter_group_fp8_quant", (X, "16"), 0, 2 * N, 3 * N + 4 * 6 * 4),
    ("sgl_kernel::store_kv_cache", ((99, 2, 32), ((99, 2, 32), "fp8"), ((6,), "int64"), (6, 2, 32), (6, 2, 32)), 0, 0, 7 * N + 48),
    ("sgl_kernel::top_k_top_p_sampling_from_probs", (((6, 999), "fp32"), ((6,), "int32"), None, ((6,), "int32"), "0"),
     0, 6 * 999, 4 * 6 * 999 + 48),
    ("_C::apply_repetition_penalties_", (X, ((6, 64), "bool"), ((6, 64), "bool"), (6,)), 0, 2 * N, 6 * N + 2 * 6),
    ("sgl_kernel::merge_state_v2", ((6, 2, 32), ((6, 2), "fp32")) * 3, 0, 3 * N, 3 * (2 * N + 4 * 12)),
])  # fmt: skip
def test_every_argument_is_read_and_written_once(name: str, args: tuple[object, ...], flop: int, vector: int, moved: int) -> None:
    # GIVEN 6 rows of 64 BF16 numbers, 96 columns, 8-bit operands and FP32 scales where the operator has such; FLOP and bytes by hand
    c = cost(name, *args, dtype="bf16")
    assert (c.flop, c.flop_vector, c.bytes) == (flop, vector, moved)


# -- latent attention ------------------------------------------------------------------------------------------------


def test_latent_attention_counts_what_each_pair_of_a_step_does() -> None:
    # GIVEN a step of one prefill of 3 tokens over 2 cached ones and two decode requests with 4 and 6 keys; 2 heads of 8 + 4, values of 6,
    # latent rows of 16
    heads, nope, rope, value, rank = 2, 8, 4, 6, 16
    step = "execute_5_context_1(sq3sk5sqsq9sqsk15)_generation_2(sq2sk10sqsq2sqsk10)"
    args = ((5, heads, nope + rope), (5, rank), (5, 1, rope), (5, heads * value))
    told = call(*args, dtype="bf16")
    told.around = step
    c = estimate("vllm::unified_mla_attention_with_output", told)
    assert c is not None
    # WHEN every pair is counted alone: prefill token i sees 2 + i keys, one decode token all of its own
    work = 0
    for sees in (3, 4, 5):
        work += heads * sees * 2 * (nope + rope + value)
    for sees in (4, 6):
        work += heads * sees * 2 * ((rank + rope) + rank)
    # THEN with the products that lead into and out of the latent space, once per token and head, that is the work
    work += 5 * heads * 2 * (nope * rank + rank * value)
    assert (c.flop, c.kind) == (work, "attention")
    # AND 15 rows of the cache, the weights of both products, queries and results are moved
    assert c.bytes == 2 * (15 * (rank + rope) + heads * rank * (nope + value) + 5 * heads * (nope + rope) + 5 * heads * value)
    # AND without the lengths, with sizes that contradict, or more tokens than the call has, there is no answer but a reason
    assert "page table" in explain("vllm::unified_mla_attention_with_output", call(*args, dtype="bf16"))
    for wrong in ((args[0], args[1], (5, 1, 12), args[3]), (*args[:3], (5, 11)), ((4, 2, 12), (4, 16), (4, 1, 4), (4, 12))):
        other = call(*wrong, dtype="bf16")
        other.around = step
        assert estimate("vllm::unified_mla_attention_with_output", other) is None
        assert "contradict" in explain("vllm::unified_mla_attention_with_output", other)
