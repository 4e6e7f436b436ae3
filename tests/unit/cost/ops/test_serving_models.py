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
