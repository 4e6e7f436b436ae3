"""Mixture of experts: routing, dispatch and combine, and fused experts where the sizes of the weights are recorded.

Fused experts over T tokens with k experts each, weights w1[E, H1, D] and w2[E, D, H2] (H1 = 2 H2 where the first product is gated):
2 T k D (H1 + H2) FLOP. An operator that names only the tokens (`vllm::moe_forward`) has a model where the kernels below it tell the
widths: those of triton_kernels say the tile, the types and the number of blocks of their products.

Weights are read by expert. Which experts the tokens chose is not recorded: with uniform routing E (1 - (1 - k/E)^T) different ones
are expected, all of them for many tokens. Bytes are marked as estimated for it.
Source: Shazeer et al., mixture of experts (2017); operator schemas of vLLM, SGLang and aiter; names and grids of `matmul_ogs` and the
routing functions of triton_kernels (Triton 3.4 and 3.5).
Limits: uneven routing and padding of experts to tiles are not recorded.
"""

from __future__ import annotations

import re
from math import ceil
from typing import Final, NamedTuple

import msgspec

from tb_sol_plugin.cost.inputs import Inputs, Launch, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, model, pattern, unknown
from tb_sol_plugin.cost.ops.pointwise import count, like, moved, read, vector

UNIFORM: Final = "experts in use: the number expected with uniform routing"
INTEGERS: Final = ("int32", "int64", "int16", "uint8", "uint32")


def experts_touched(experts: int, tokens: int, chosen: int) -> float:
    """Different experts that `tokens` tokens choose on average, `chosen` of `experts` each, all alike: E (1 - (1 - k/E)^T)."""
    if experts < 1:
        return 0.0
    return experts * (1.0 - (1.0 - min(chosen, experts) / experts) ** tokens)


def fused_experts(
    x: Tensor, first: Tensor, second: Tensor, chosen: int, *extra: Tensor | None, everywhere: int | None = None
) -> Cost | None:
    """Both products of all experts for x[T, D]; None where the sizes of the weights do not fit. extra: tensors read as a whole.

    everywhere: experts of all ranks, where these here are a part of them: so much of the choices falls on this rank on average.
    Packed weights (two FP4 numbers per byte) store half of the inner size; a byte of unknown content whose size fits only as packed
    counts so too. FP8 weights are taken to be multiplied in FP8, whatever the activations come in; others in the activations' type.
    """
    tokens, width = x.numel // max(x.shape[-1], 1), x.shape[-1]
    experts, up, inner = first.shape
    packed = 2 if inner * 2 == width else 1
    hidden = second.shape[2] * packed
    if second.shape[:2] != (experts, width) or inner * packed != width or up not in (hidden, 2 * hidden) or chosen < 1 or experts < 1:
        return None
    every = everywhere if everywhere is not None and everywhere > experts else experts
    here = round(tokens * chosen * experts / every)
    touched = experts_touched(every, tokens, chosen) * experts / every
    each = total(size_of(up * inner, first.dtype), size_of(second.shape[1] * second.shape[2], second.dtype))
    weights = ceil(touched * each) if each is not None else None
    weight_type = compute_dtype(first)
    return Cost(
        flop=2 * here * width * (up + hidden), flop_vector=here * up, bytes=total(x.bytes, like(x), weights, *read(*extra)),
        dtype="fp8" if weight_type == "fp8" else compute_dtype(x), kind="gemm", estimated=True, reason=UNIFORM,
    )  # fmt: skip


@model("vllm::inplace_fused_experts", "vllm::outplace_fused_experts", "sglang::inplace_fused_experts", "sglang::outplace_fused_experts",
       "vllm::rocm_aiter_fused_moe", "vllm::rocm_aiter_asm_moe_tkw1", "aiter::fused_moe_", "aiter::fused_moe", "sglang::fused_moe",
       "sglang::rocm_aiter_fused_moe", "vllm::fused_experts", kind="gemm")  # fmt: skip
def experts(call: Inputs) -> Cost | None:
    """inplace_fused_experts(x[T, D], w1[E, H1, D], w2[E, D, H2], weights[T, k], ids[T, k], ...).

    A later list of integers longer than E maps the experts of all ranks to those here (expert_map, expert_mask).
    """
    x, first, second, ids = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(4)
    if x is None or first is None or second is None or ids is None or len(ids.shape) != 2:
        return None
    if len(first.shape) != 3 or len(second.shape) != 3 or len(x.shape) < 2:
        return None
    later = [t for t in (call.tensor(i) for i in range(5, len(call.slots))) if t is not None]
    everywhere = next((t.numel for t in later if len(t.shape) == 1 and t.dtype in INTEGERS and t.numel > first.shape[0]), None)
    return fused_experts(x, first, second, ids.shape[1], call.tensor(3), ids, everywhere=everywhere)


# -- experts that a layer only names: what the grids of their kernels tell ----------------------------------------------


BY_NAME: Final = ("vllm::moe_forward", "vllm::moe_forward_shared", "sglang::moe_forward")
"""Operators that tell tokens and scores; the layer with the weights is named only."""
_TYPE: Final = r"(?:bf16|fp16|fp32|fp8e[0-9a-z]{1,5}?|mxfp4)"
TELLING: Final = re.compile(
    rf"_matmul_ogs_[NT]{{3}}_{_TYPE}x(?P<x>{_TYPE})x(?P<weight>{_TYPE})_(?P<m>\d{{1,4}})x(?P<n>\d{{1,4}})x\d{{1,4}}x(?P<split>\d{{1,3}})(?P<gated>_swiglu)?"
)
"""A product of triton_kernels: result, activations, weights, tile of rows, columns and depth, parts that the depth is split into. Its
persistent form (`_p_matmul_ogs`) starts as many blocks as there are units, which tells no size."""
_WEIGHT_BITS: Final = {"bf16": (16, 1), "fp16": (16, 1), "fp32": (32, 1), "mxfp4": (17, 4)}
"""Bits per weight as a ratio; of MXFP4 4 bits and a scale of 8 bits per 32 of them. FP8 has 8."""
NAMED_ONLY: Final = "width, type and number per token of the experts not recorded: the layer is named only"
BY_GRID: Final = "width of the experts from the blocks of their kernels"


class _Product(NamedTuple):
    """One product of all experts as its launch tells it. blocks: in all. tile: rows, columns. split: parts of the depth."""

    blocks: int
    tile: tuple[int, int]
    split: int
    x: str
    weight: str

    def columns(self, row_blocks: int) -> range:
        """Returns the widths that so many blocks along the rows leave; empty where they do not divide."""
        count, rest = divmod(self.blocks, max(row_blocks * self.split, 1))
        return range(0) if rest or count < 1 else range((count - 1) * self.tile[1] + 1, count * self.tile[1] + 1)


def row_blocks(rows: int, experts: int, tile: int) -> int:
    """Returns the blocks of `tile` rows that triton_kernels starts for rows spread over experts in an unknown way: one per row where
    there are no more rows than experts, else ceil((rows - experts + 1) / tile) + experts - 1.
    """
    return rows if rows <= experts else -(-(rows - experts + 1) // tile) + experts - 1


def _product(launch: Launch) -> tuple[bool, _Product] | None:
    """Returns (whether its results are gated, the product) of a launch; None where it says too little."""
    found = TELLING.fullmatch(launch.kernel)
    if found is None or len(launch.grid) != 3 or launch.grid[1:] != (1, 1):
        return None
    tile = int(found["m"]), int(found["n"])
    if min(*tile, int(found["split"]), launch.grid[0]) < 1:
        return None
    return found["gated"] is not None, _Product(launch.grid[0], tile, int(found["split"]), found["x"], found["weight"])


def _chosen(product: _Product, tokens: int, experts: int, width: int) -> list[int]:
    """Returns the numbers of experts per token with which a product of known width starts as many blocks as it did."""
    return [k for k in range(1, min(experts, 64) + 1) if width in product.columns(row_blocks(tokens * k, experts, product.tile[0]))]


@model(*BY_NAME, kind="gemm", wrapper=True)
def forward_by_name(call: Inputs) -> Cost | None:
    """vllm::moe_forward(x[T, D], scores[T, E], layer name): neither weights nor experts per token are there. Two products of triton_kernels
    below tell them: the second, D wide, starts its blocks for one number k of experts per token; with it the blocks of the first, gated
    one leave a range of a tile for its width, H1. The least of it counts; the second product is H1 / 2 deep."""
    x, scores = call.tensor(0), call.tensor(1)
    products = [found for found in map(_product, call.launched) if found is not None]
    if x is None or scores is None or len(x.shape) != 2 or len(scores.shape) != 2 or x.shape[0] != scores.shape[0]:
        return unknown(NAMED_ONLY)
    if len(call.launched) != 2 or [gated for gated, _ in products] != [True, False] or 0 in (*x.shape, scores.shape[1]):
        return unknown(f"{NAMED_ONLY}, and its kernels tell no sizes")
    (tokens, width), experts = x.shape, scores.shape[1]
    first, second = (product for _, product in products)
    chosen = _chosen(second, tokens, experts, width)
    if len(chosen) != 1:
        return unknown("number of experts per token not recorded, and the blocks of the kernels do not tell it")
    wide = first.columns(row_blocks(tokens * chosen[0], experts, first.tile[0]))
    even = wide.start + wide.start % 2
    if not wide or even not in wide:
        return unknown("sizes contradict: blocks of both products")
    bits, per = _WEIGHT_BITS.get(first.weight, (8, 1))
    touched = experts_touched(experts, tokens, chosen[0])
    weights = ceil(touched * (even * width + width * (even // 2)) * bits / (8 * per))
    here = tokens * chosen[0]
    return Cost(
        flop=2 * here * width * (even + even // 2), flop_vector=here * even, bytes=total(x.bytes, like(x), scores.bytes, weights),
        dtype="fp8" if first.x.startswith("fp8") and first.weight.startswith(("fp8", "mxfp4")) else first.x, kind="gemm", estimated=True,
        reason=f"{BY_GRID}: {even:,} to {wide.stop - 1:,}, the least counted; {UNIFORM}",
    )  # fmt: skip


ROUTING_FUNCTION: Final = "a routing function of triton_kernels known by its name and sizes"


@model("TopK", kind="norm")
def top_scores(call: Inputs) -> Cost | None:
    """TopK(scores[T, E] 0, k 1, softmax 2, ...): scores read; k values, k 16-bit indices and E bits per token written; a comparison per
    score and the softmax of the k largest, 5 k FLOP."""
    scores, chosen = call.tensor(0), count(call, 1)
    if scores is None or len(scores.shape) != 2 or chosen is None or not 0 < chosen <= scores.shape[1]:
        return None
    (tokens, experts), kept = scores.shape, scores.shape[0] * chosen
    written = (size_of(kept, scores.dtype), size_of(kept, "int16"), size_of(tokens * -(-experts // 32), "int32"))
    return vector(scores.dtype, scores.numel + 5 * kept, scores.bytes, *written, kind="norm", reason=ROUTING_FUNCTION)


@model("SortTokens", kind="other")
def sort_by_expert(call: Inputs) -> Cost | None:
    """SortTokens(weights[T, k] 0, experts[T, k] 1, E 2, ...): both read; the weights in their new order, two lists of T k 32-bit places and
    a count per expert written. Lists of blocks by expert are left out: a lower bound."""
    weights, chosen, experts = call.tensor(0), call.tensor(1), count(call, 2)
    if weights is None or chosen is None or weights.shape != chosen.shape or len(weights.shape) != 2 or experts is None:
        return None
    written = (like(weights), size_of(2 * weights.numel + experts, "int32"))
    return moved(weights.dtype, *read(weights, chosen), *written, reason=ROUTING_FUNCTION)


# -- single products of all experts ------------------------------------------------------------------------------------


def _one_product(x: Tensor | None, weight: Tensor | None, rows: int, columns: int, out_dtype: str, *extra: Tensor | None) -> Cost | None:
    """rows of x by [E, columns, K] or [E, K, columns], K as in x or, of packed weights, half of it. extra: tensors read as a whole.

    Rows fall on experts as uniform routing has it.
    """
    if x is None or weight is None or len(weight.shape) != 3 or not x.shape or 0 in weight.shape or rows < 1 or columns < 1:
        return None
    inner, sides = x.shape[-1], sorted(weight.shape[1:])
    if sides not in (sorted((inner, columns)), sorted((inner // 2, columns))) or weight.bytes is None:
        return None
    part = experts_touched(weight.shape[0], rows, 1) / weight.shape[0]
    stored = ceil(part * weight.bytes)
    kind = compute_dtype(weight)
    if x.dtype == "uint8":
        return unknown("what a byte of the activations holds is not recorded")
    return Cost(
        flop=2 * rows * inner * columns * (2 if x.dtype == "fp4x2" else 1),
        bytes=total(x.bytes, stored, size_of(rows * columns, out_dtype or x.dtype), *read(*extra)),
        dtype="fp8" if kind == "fp8" else compute_dtype(x), kind="gemm", estimated=True, reason=UNIFORM,
    )  # fmt: skip


@model("_C::cutlass_moe_mm", kind="gemm")
def grouped_rows(call: Inputs) -> Cost | None:
    """cutlass_moe_mm(out[M, N] 0, a[M, K] 1, b[E, K, N] 2, scales of a 3, of b 4, ...): a row per choice: 2 M N K."""
    out, a = call.tensor(0), call.tensor(1)
    if out is None or a is None or len(out.shape) != 2 or len(a.shape) != 2 or out.shape[0] != a.shape[0]:
        return None
    return _one_product(a, call.tensor(2), *out.shape, out.dtype, call.tensor(3), call.tensor(4))


@model("sgl_kernel::fp8_blockwise_scaled_grouped_mm", kind="gemm")
def grouped_blocks(call: Inputs) -> Cost | None:
    """fp8_blockwise_scaled_grouped_mm(out[M, N] 0, five lists of pointers, a[M, K] 6, b[E, K, N] 7, scales 8 and 9, ...): 2 M N K."""
    out, a = call.tensor(0), call.tensor(6)
    if out is None or a is None or len(out.shape) != 2 or len(a.shape) != 2 or out.shape[0] != a.shape[0]:
        return None
    return _one_product(a, call.tensor(7), *out.shape, out.dtype, call.tensor(8), call.tensor(9))


@model("aiter::ck_moe_stage1", "aiter::ck_moe_stage1_fwd", kind="gemm")
def first_stage(call: Inputs) -> Cost | None:
    """ck_moe_stage1(x[T, D] 0, w1[E, H1, D] 1, w2 2, three lists 3 to 5, out[T, k, H2] 6, ...): 2 T k D H1; H1 = 2 H2 where gated."""
    x, weight, out = call.tensor(0), call.tensor(1), call.tensor(6)
    if x is None or weight is None or out is None or len(out.shape) != 3 or len(weight.shape) != 3 or out.shape[0] != x.shape[0]:
        return None
    if weight.shape[1] not in (out.shape[2], 2 * out.shape[2]):
        return unknown("sizes contradict: weights and result")
    found = _one_product(x, weight, out.shape[0] * out.shape[1], weight.shape[1], out.dtype)
    if found is None or weight.shape[1] == out.shape[2]:
        return found
    gate = size_of(out.numel, out.dtype)  # of the result only one half leaves the kernel
    if gate is None or found.bytes is None:
        return None
    return msgspec.structs.replace(found, bytes=found.bytes - gate, flop_vector=2 * out.numel)


@model("aiter::ck_moe_stage2", "aiter::ck_moe_stage2_fwd", kind="gemm")
def second_stage(call: Inputs) -> Cost | None:
    """ck_moe_stage2(x[T, k, H2] 0, w1 1, w2[E, D, H2] 2, three lists 3 to 5, out[T, D] 6, ...): 2 T k H2 D; choices are summed."""
    x, weight, out = call.tensor(0), call.tensor(2), call.tensor(6)
    if x is None or out is None or len(x.shape) != 3 or len(out.shape) != 2 or out.shape[0] != x.shape[0]:
        return None
    found = _one_product(x, weight, x.shape[0] * x.shape[1], out.shape[1], out.dtype)
    more = size_of((x.shape[1] - 1) * out.numel, out.dtype)
    if found is None or found.bytes is None or more is None:
        return found
    return msgspec.structs.replace(found, bytes=found.bytes - more, flop_vector=x.shape[1] * out.numel)


@pattern(r"aiter::fmoe(_g1u1|_fp8_blockscale_g1u1|_int8_g1u0)?", kind="gemm")
def assembled_experts(call: Inputs) -> Cost | None:
    """fmoe_g1u1(out[T, D] 0, x[T, D] 1, w1[E, H1, D] 2, w2[E, D, H2] 3, four lists 4 to 7, k 8, ...): both products."""
    out, x, first, second, chosen = call.tensor(0), call.tensor(1), call.tensor(2), call.tensor(3), count(call, 8)
    if out is None or x is None or first is None or second is None or chosen is None or len(x.shape) != 2 or out.shape != x.shape:
        return None
    return fused_experts(x, first, second, chosen) if len(first.shape) == len(second.shape) == 3 else None


@model("_moe_C::moe_wna16_marlin_gemm", kind="gemm")
def marlin_experts(call: Inputs) -> Cost | None:
    """moe_wna16_marlin_gemm(x[M, K] 0, out 1, packed weight[E, ...] 2, bias 3, scales[E, ...] 4, ..., k, two flags, type, M, N, K, ...):
    2 M k N K, computed in the type of x. Versions differ in their positions: M, N, K are the values in a row that agree with x."""
    x, packed, scales = call.tensor(0), call.tensor(2), call.tensor(4)
    if x is None or packed is None or len(x.shape) != 2 or len(packed.shape) != 3 or not packed.shape[0]:
        return None
    values = call.values
    for at in range(4, len(values) - 2):
        chosen, m, n, k = values[at - 4], *values[at : at + 3]
        whole = [v for v in (chosen, m, n, k) if isinstance(v, int) and not isinstance(v, bool) and v > 0]
        if len(whole) == 4 and (m, k) == x.shape and isinstance(values[at - 3], bool) and isinstance(values[at - 2], bool):
            rows = x.shape[0] * whole[0]
            part = experts_touched(packed.shape[0], x.shape[0], whole[0]) / packed.shape[0]
            read_once = total(*read(packed, scales))
            weights = None if read_once is None else ceil(part * read_once)
            return Cost(
                flop=2 * rows * x.shape[1] * whole[2], bytes=total(x.bytes, weights, size_of(rows * whole[2], x.dtype)), kind="gemm",
                dtype=compute_dtype(x), estimated=True, reason=UNIFORM,
            )  # fmt: skip
    return unknown("logical sizes of the packed weights not recorded")


@pattern(r"(_moe_C|sgl_kernel|aiter|vllm|vllm_aiter|flashinfer)::(rocm_aiter_)?(topk_softmax(_asm)?|topk_sigmoid|grouped_topk|"
         r"biased_grouped_topk(_hip)?|moe_fused_gate|fused_topk)", kind="norm")  # fmt: skip
def routing(call: Inputs) -> Cost | None:
    """topk_softmax(weights, ids, ..., scores[T, E], ...): every argument once; 5 FLOP per score (the softmax). Results that are
    returned new are left out: they are small against the scores."""
    tensors = call.flat
    if not tensors:
        return None
    scores = max(tensors, key=lambda t: t.numel)
    return vector(scores.dtype, 5 * scores.numel, *read(*tensors), kind="norm")


@pattern(r"(_moe_C|sgl_kernel|aiter|vllm)::(batched_|sgl_)?moe_(align_block_size|sorting_fwd|sorting_opus_fwd)", kind="other")
def align(call: Inputs) -> Cost | None:
    """moe_align_block_size(ids[T, k], experts, block, sorted, expert of block, count, ...): ids read, the lists written once."""
    tensors = call.flat
    return moved(tensors[0].dtype, *read(*tensors)) if tensors else None


@model("_moe_C::moe_sum", "aiter::moe_sum", "sgl_kernel::moe_sum", "sgl_kernel::moe_sum_reduce", kind="elementwise")
def combine(call: Inputs) -> Cost | None:
    """moe_sum(x[T, k, D], out[T, D]): x read, out written; one FLOP per element of x."""
    x, out = call.tensor(0), call.tensor(1)
    return None if x is None or out is None else vector(x.dtype, x.numel, *read(x, out))


@model("_moe_C::moe_permute", "_moe_C::moe_unpermute", kind="other")
def permute_in_place(call: Inputs) -> Cost | None:
    """moe_permute(x, ids, ...): tokens read k times at most and written once per choice; every recorded argument once, a lower bound."""
    tensors = call.flat
    reason = "every recorded argument counted once, a lower bound"
    return moved(tensors[0].dtype, *read(*tensors), reason=reason) if tensors else None


def _choices(call: Inputs) -> int | None:
    """Rows after a dispatch: as recorded, or one per element of the integer indices."""
    return next((t.numel for t in call.flat if t.dtype in INTEGERS and len(t.shape) <= 2), None)


@model("PermuteMoE_topK", "_moe_permute_index_map", kind="other")
def dispatch(call: Inputs) -> Cost | None:
    """PermuteMoE_topK(x[T, D], ids[T, k], ...): one row read and written per choice (read at most the tokens there are)."""
    x, rows = call.tensor(0), _choices(call)
    if x is None or rows is None or len(x.shape) != 2:
        return None
    return moved(x.dtype, x.bytes, size_of(rows * x.shape[1], x.dtype), *read(*call.flat[1:]))


@model("_moe_permute_mask_map", kind="other")
def dispatch_by_mask(call: Inputs) -> Cost | None:
    """_moe_permute_mask_map(x[T, D], mask[T, E], rows, ...): the number of rows is a recorded value, else unknown."""
    x, mask, rows = call.tensor(0), call.tensor(1), count(call, 2)
    if x is None or mask is None or len(x.shape) != 2 or rows is None:
        return None
    return moved(x.dtype, x.bytes, mask.bytes, size_of(rows * x.shape[1], x.dtype))


@model("UnpermuteMoE_topK", "_moe_unpermute_index_map", "_moe_unpermute_mask_map", kind="other")
def undispatch(call: Inputs) -> Cost | None:
    """UnpermuteMoE_topK(rows[T k, D], map, probabilities[T, k]): rows read, one per token written; 2 FLOP per element with weights.

    The number of tokens comes from the probabilities; without them the result is left out, a lower bound.
    """
    x = call.tensor(0)
    if x is None or len(x.shape) != 2:
        return None
    weights = next((t for t in call.flat[1:] if len(t.shape) == 2 and t.dtype not in (*INTEGERS, "bool")), None)
    out = size_of(weights.shape[0] * x.shape[1], x.dtype) if weights is not None else 0
    reason = "" if weights is not None else "number of tokens not recorded: result left out, a lower bound"
    flop = x.numel * (2 if weights is not None else 1)
    return moved(x.dtype, x.bytes, out, *read(*call.flat[1:]), flop=flop, reason=reason)
