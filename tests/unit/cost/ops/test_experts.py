"""Experts whose sizes only their kernels tell, and single products of all experts."""

from __future__ import annotations

import json
from math import ceil

import pytest

from tb_sol_plugin.cost import Inputs, estimate, explain
from tb_sol_plugin.cost.inputs import Launch
from tests.unit.cost.calls import call, cost

WIDE, DEEP = "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1"


def layer(tokens: int, width: int, experts: int, *launched: Launch) -> Inputs:
    sizes, types = [[tokens, width], [tokens, experts], [], []], ["c10::BFloat16", "c10::BFloat16", "", ""]
    return Inputs(json.dumps(sizes), json.dumps(types), launched=launched)


def started(rows: int, experts: int, tile: tuple[int, int], columns: int, split: int = 1) -> tuple[int, int, int]:
    """Blocks as the package starts them: enough for every way in which the rows can fall on the experts."""
    most = max(sum(ceil(n / tile[0]) for n in (rows - others, *[1] * others)) for others in range(min(experts - 1, rows - 1) + 1))
    return most * ceil(columns / tile[1]) * split, 1, 1


def test_the_blocks_of_both_products_tell_the_width_of_experts() -> None:
    # GIVEN a recorded layer of a 32-expert model, 4 per token: 32 tokens of 3,072; 1,748 and 912 blocks
    c = estimate("vllm::moe_forward", layer(32, 3072, 32, Launch(WIDE, (1748, 1, 1)), Launch(DEEP, (912, 1, 1))))
    assert c is not None
    # THEN 38 blocks of rows make 46 and 24 tiles of 128: 5,761 to 5,888 columns, pairs of gate and value, and 2,945 to 3,072, which has 3,072
    assert "5,762 to 5,888" in c.reason
    assert (c.kind, c.dtype, c.estimated) == ("gemm", "bf16", True)
    assert (c.flop, c.flop_vector) == (2 * 128 * 3072 * 5762 + 2 * 128 * 2881 * 3072, 128 * 5762)
    # AND weights of 4 bits with 8 bits per 32 of them are read for 32 (1 - (7/8)^32) = 31.55 experts; tokens, results and scores once
    weights = 32 * (1 - (7 / 8) ** 32) * (3072 * 5762 + 2881 * 3072) * 17 / 32
    assert c.bytes == 2 * 2 * 32 * 3072 + 2 * 32 * 32 + ceil(weights)


@pytest.mark.parametrize(("tokens", "chosen", "experts", "tile", "columns"), [
    (8, 4, 128, (16, 128), 2880 * 2), (512, 8, 64, (64, 256), 1536), (3, 2, 8, (16, 64), 704), (4096, 1, 16, (128, 256), 8192),
])  # fmt: skip
def test_the_width_lies_in_the_range_told(tokens: int, chosen: int, experts: int, tile: tuple[int, int], columns: int) -> None:
    # GIVEN products of known sizes whose blocks were counted from the worst way to spread the rows
    name = f"_matmul_ogs_NNT_bf16xfp8e4nvxfp8e4nv_{tile[0]}x{tile[1]}x64x2"
    first = Launch(f"{name}_swiglu", started(tokens * chosen, experts, tile, columns, 2))
    c = estimate("vllm::moe_forward", layer(tokens, 1024, experts, first, Launch(name, started(tokens * chosen, experts, tile, 1024, 2))))
    assert c is not None
    assert c.flop is not None
    # THEN FLOP lie below those of the true width, by less than a tile of it; FP8 weights of one byte are multiplied as such
    true = 3 * tokens * chosen * 1024 * columns
    assert true * (1 - tile[1] / columns) < c.flop <= true
    assert c.dtype == "fp8"


def test_kernels_that_tell_no_sizes_leave_the_layer_unknown() -> None:
    wide, deep = Launch(WIDE, (1748, 1, 1)), Launch(DEEP, (912, 1, 1))
    persistent = Launch(f"_p{WIDE}", (304, 1, 1))
    # GIVEN none, one, three, two in another order, blocks not recorded, blocks that no number of experts starts, or that do not divide
    for launched in ((), (deep,), (wide, deep, deep), (deep, wide), (Launch(WIDE), deep), (persistent, deep),
                     (wide, Launch(DEEP, (911, 1, 1))), (Launch(WIDE, (1747, 1, 1)), deep), (wide, Launch(DEEP, (912, 2, 1)))):  # fmt: skip
        assert estimate("vllm::moe_forward", layer(32, 3072, 32, *launched)) is None
        assert explain("vllm::moe_forward", layer(32, 3072, 32, *launched))
    # AND where two numbers per token start as many blocks: 3 tokens on 2 experts make 2 blocks of rows, with one each or two
    assert "per token" in explain("vllm::moe_forward", layer(3, 128, 2, Launch(WIDE, (2, 1, 1)), Launch(DEEP, (2, 1, 1))))


def test_routing_functions_read_scores_and_write_choices() -> None:
    # GIVEN 32 tokens, 4 of 40 experts each
    top = cost("TopK", (32, 40), "4", "True", "1", "True", None, None, dtype="bf16")
    # THEN scores are read, 4 values, 4 16-bit places and 2 words of 32 bits per token written
    assert (top.flop_vector, top.bytes) == (32 * 40 + 5 * 128, 2 * 32 * 40 + 2 * 128 + 2 * 128 + 4 * 2 * 32)
    sort = cost("SortTokens", (32, 4), ((32, 4), "int64"), "40", dtype="bf16")
    assert (sort.flop_vector, sort.bytes) == (0, 2 * 128 + 8 * 128 + 2 * 128 + 4 * (2 * 128 + 40))


def test_single_products_read_the_experts_in_use() -> None:
    # GIVEN 6 rows of 64, 4 experts with weights of 64 x 96, FP8 with BF16 results
    a, w, out = ((6, 64), "fp8"), ((4, 64, 96), "fp8"), ((6, 96), "bf16")
    used = ceil((1 - (3 / 4) ** 6) * 4 * 64 * 96)
    c = cost("_C::cutlass_moe_mm", out, a, w, ((6, 1), "fp32"), ((4, 1, 96), "fp32"))
    assert (c.flop, c.bytes, c.dtype) == (2 * 6 * 64 * 96, 6 * 64 + used + 2 * 6 * 96 + 4 * 6 + 4 * 4 * 96, "fp8")
    blocks = cost("sgl_kernel::fp8_blockwise_scaled_grouped_mm", out, *[((4,), "int64")] * 5, a, w, ((6, 1), "fp32"), ((4, 1, 1), "fp32"))
    assert (blocks.flop, blocks.bytes) == (c.flop, 6 * 64 + used + 2 * 6 * 96 + 4 * 6 + 4 * 4)
    # AND a product whose sizes do not fit has none
    assert estimate("_C::cutlass_moe_mm", layer(6, 64, 4)) is None


def test_two_stages_of_experts_are_their_fused_form() -> None:
    # GIVEN 8 tokens of 64, 2 of 4 experts each, gated 48 wide, BF16
    x, w1, w2, ids = (8, 64), (4, 96, 64), (4, 64, 48), ((32,), "int32")
    one = cost("aiter::ck_moe_stage1", x, w1, w2, ids, ids, ids, (8, 2, 48), dtype="bf16")
    two = cost("aiter::ck_moe_stage2", (8, 2, 48), w1, w2, ids, ids, ids, x, dtype="bf16")
    whole = cost("aiter::fmoe_g1u1", x, x, w1, w2, ids, ids, ids, ids, "2", dtype="bf16")
    # THEN their FLOP add up to 2 T k D (H1 + H2)
    assert (one.flop, two.flop, whole.flop) == (2 * 16 * 64 * 96, 2 * 16 * 64 * 48, 2 * 16 * 64 * 144)
    # AND each moves its own: 16 rows of 48 leave the first, 8 rows of 64 the second
    used = 1 - (3 / 4) ** 16
    assert one.bytes == 2 * (8 * 64 + 16 * 48) + ceil(used * 2 * 4 * 96 * 64)
    assert two.bytes == 2 * (16 * 48 + 8 * 64) + ceil(used * 2 * 4 * 64 * 48)


def test_packed_weights_of_experts_have_the_sizes_that_stand_as_values() -> None:
    # GIVEN 8 tokens of 64 by 96 columns, 2 of 4 experts each; weights packed 8 to an int32, scales per 32
    packed, scales = ((4, 4, 192), "int32"), ((4, 2, 96), "bf16")
    args: tuple[object, ...] = ((8, 64), None, packed, None, scales, *[None] * 9, "64", "2", "False", "False", "5", "8", "96", "64", "True")
    c = cost("_moe_C::moe_wna16_marlin_gemm", *args, dtype="bf16")
    used = 1 - (2 / 4) ** 8
    assert (c.flop, c.bytes) == (2 * 16 * 64 * 96, 2 * 8 * 64 + ceil(used * (4 * 4 * 4 * 192 + 2 * 4 * 2 * 96)) + 2 * 16 * 96)
    # AND without values that agree with the tokens there is no answer
    assert "packed weights" in explain("_moe_C::moe_wna16_marlin_gemm", call(*args[:-4], "9", "96", "64", "True", dtype="bf16"))
