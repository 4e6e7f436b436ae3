"""Mixture of experts: routing, dispatch and combine, and fused experts where the sizes of the weights are recorded.

Fused experts over T tokens with k experts each, weights w1[E, H1, D] and w2[E, D, H2] (H1 = 2 H2 where the first product is gated):
2 T k D (H1 + H2) FLOP. An operator that names only the tokens (`vllm::moe_forward`) has no model: widths and weights are unknown.

Weights are read by expert. Which experts the tokens chose is not recorded: with uniform routing E (1 - (1 - k/E)^T) different ones
are expected, all of them for many tokens. Bytes are marked as estimated for it.
Source: Shazeer et al., mixture of experts (2017); operator schemas of vLLM, SGLang and aiter.
Limits: uneven routing and padding of experts to tiles are not recorded.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
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


@model("vllm::moe_forward", "vllm::moe_forward_shared", "sglang::moe_forward", kind="gemm", wrapper=True)
def forward_by_name(call: Inputs) -> Cost | None:
    """vllm::moe_forward(x[T, D], scores[T, E], layer name): no answer: neither weights nor experts per token are there."""
    return unknown("width, type and number per token of the experts not recorded: the layer is named only")


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
