"""Attention: 2 B H P (Dqk + Dv) FLOP forward, 2 B H P (3 Dqk + 2 Dv) for a backward that recomputes the scores.

P is the number of (query, key) pairs computed. Causal attention computes half of the square; for unequal lengths the exact
triangle, top-left or bottom-right aligned. `flop` is causal-aware, `flop_dense` counts every pair.
Layouts differ: `_scaled_dot_product_*` is [B, H, S, D], `_flash_attention_*` and `_efficient_attention_*` are [B, S, H, D].
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, model

Mask = Literal["none", "top_left", "bottom_right", "unknown"]
NOT_RECORDED: Final = "causal mask not recorded: every pair counted"


class Sizes(NamedTuple):
    """Batch, query heads, query length, key length, head sizes of queries and values."""

    batch: int
    heads: int
    queries: int
    keys: int
    dqk: int
    dv: int


def pairs(queries: int, keys: int, mask: Mask) -> float:
    """(query, key) pairs that one head computes. A square causal mask counts as exactly half of it."""
    if mask in ("none", "unknown"):
        return queries * keys
    if queries == keys:
        return queries * keys / 2
    if mask == "top_left":
        full = max(queries - keys, 0)
        short = min(queries, keys)
        return short * (short + 1) // 2 + full * keys
    hidden = max(queries - keys, 0)
    first = max(keys - queries, 0)
    rows = queries - hidden
    return rows * first + rows * (rows + 1) // 2


def _sizes(q: Tensor, k: Tensor, v: Tensor, *, sequence_first: bool) -> Sizes | None:
    if not len(q.shape) == len(k.shape) == len(v.shape) or len(q.shape) < 3:
        return None
    if sequence_first:
        if len(q.shape) != 4:
            return None
        return Sizes(q.shape[0], q.shape[2], q.shape[1], k.shape[1], q.shape[3], v.shape[3])
    batch = 1
    for size in q.shape[:-3]:
        batch *= size
    return Sizes(batch, q.shape[-3], q.shape[-2], k.shape[-2], q.shape[-1], v.shape[-1])


def work(sizes: Sizes, mask: Mask, direction: Direction) -> tuple[int, int]:
    """(causal-aware, dense-equivalent) FLOP. The forward has 2 products, the backward 5 (the scores are computed again)."""
    width = sizes.dqk + sizes.dv if direction == "fwd" else 3 * sizes.dqk + 2 * sizes.dv
    per_pair = 2 * sizes.batch * sizes.heads * width
    return round(per_pair * pairs(sizes.queries, sizes.keys, mask)), per_pair * sizes.queries * sizes.keys


def _cost(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    flops: tuple[int, int],
    *,
    out: int,
    logsumexp: int,
    direction: Direction,
    extra: tuple[Tensor | None, ...] = (),
    reason: str = "",
) -> Cost:
    """Forward: Q, K, V read, O and logsumexp written. Backward: these and dO read, dQ, dK, dV written."""
    traffic = [q.bytes, k.bytes, v.bytes, size_of(out, q.dtype), 4 * logsumexp, *(t.bytes for t in extra if t is not None)]
    if direction == "bwd":
        traffic += [size_of(out, q.dtype), *(size_of(t.numel, t.dtype) for t in (q, k, v))]
    return Cost(
        flop=flops[0], flop_dense=flops[1], bytes=total(*traffic), dtype=compute_dtype(q, k, v), kind="attention", direction=direction,
        estimated=bool(reason), reason=reason,
    )  # fmt: skip


def _attention(
    call: Inputs,
    first: int,
    causal: bool | None,
    aligned: Mask,
    *,
    direction: Direction,
    sequence_first: bool = False,
    logsumexp: bool = True,
    bias: int | None = None,
) -> Cost | None:
    q, k, v = (call.tensor(first + i) for i in range(3))
    if q is None or k is None or v is None:
        return None
    sizes = _sizes(q, k, v, sequence_first=sequence_first)
    if sizes is None:
        return None
    mask: Mask = "unknown" if causal is None else aligned if causal else "none"
    out = sizes.batch * sizes.heads * sizes.queries * sizes.dv
    rows = sizes.batch * sizes.heads * sizes.queries if logsumexp else 0
    return _cost(
        q, k, v, work(sizes, mask, direction), out=out, logsumexp=rows, direction=direction,
        extra=(call.tensor(bias),) if bias is not None else (), reason=NOT_RECORDED if mask == "unknown" else "",
    )  # fmt: skip


@model("aten::scaled_dot_product_attention", kind="attention", wrapper=True)
def sdpa(call: Inputs) -> Cost | None:
    """scaled_dot_product_attention(q, k, v, mask, dropout, is_causal): where no leaf was recorded below it."""
    return _attention(call, 0, call.flag(5), "top_left", direction="fwd", logsumexp=False, bias=3)


@model("aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_flash_attention_for_cpu", kind="attention")
def flash(call: Inputs) -> Cost | None:
    """(q, k, v, dropout, is_causal, ...)."""
    return _attention(call, 0, call.flag(4), "top_left", direction="fwd")


@model("aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention", kind="attention")
def efficient(call: Inputs) -> Cost | None:
    """(q, k, v, bias, compute_logsumexp, dropout, is_causal, ...)."""
    return _attention(call, 0, call.flag(6), "top_left", direction="fwd", logsumexp=call.flag(4) is not False, bias=3)


@model("aten::_scaled_dot_product_fused_attention_overrideable", kind="attention")
def overrideable(call: Inputs) -> Cost | None:
    """(q, k, v, bias, dropout, is_causal, ...)."""
    return _attention(call, 0, call.flag(5), "top_left", direction="fwd", bias=3)


@model("aten::_scaled_dot_product_flash_attention_backward", kind="attention")
def flash_backward(call: Inputs) -> Cost | None:
    """(grad, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout, is_causal, ...)."""
    return _attention(call, 1, call.flag(11), "top_left", direction="bwd")


@model("aten::_scaled_dot_product_flash_attention_for_cpu_backward", kind="attention")
def flash_cpu_backward(call: Inputs) -> Cost | None:
    """(grad, q, k, v, out, logsumexp, dropout, is_causal, ...)."""
    return _attention(call, 1, call.flag(7), "top_left", direction="bwd")


@model("aten::_scaled_dot_product_efficient_attention_backward", kind="attention")
def efficient_backward(call: Inputs) -> Cost | None:
    """(grad, q, k, v, bias, out, logsumexp, seed, offset, dropout, grad_mask, is_causal, ...)."""
    return _attention(call, 1, call.flag(11), "top_left", direction="bwd", bias=4)


@model("aten::_scaled_dot_product_cudnn_attention_backward", kind="attention")
def cudnn_backward(call: Inputs) -> Cost | None:
    """(grad, q, k, v, out, logsumexp, seed, offset, bias, cum_q, cum_k, max_q, max_k, dropout, is_causal, ...)."""
    return _attention(call, 1, call.flag(14), "top_left", direction="bwd", bias=8)


@model("aten::_flash_attention_forward", kind="attention")
def flash_forward(call: Inputs) -> Cost | None:
    """(q, k, v, cum_q, cum_k, max_q, max_k, dropout, is_causal, ...); packed sequences where cum_q is a tensor."""
    return _packed_or_plain(call, 0, 3, 8, direction="fwd")


@model("aten::_flash_attention_backward", kind="attention")
def flash_attention_backward(call: Inputs) -> Cost | None:
    """(grad, q, k, v, out, logsumexp, cum_q, cum_k, max_q, max_k, dropout, is_causal, ...)."""
    return _packed_or_plain(call, 1, 6, 11, direction="bwd")


@model("flash_attn::_flash_attn_forward", "flash_attn_3::fwd", kind="attention")
def flash_attn_forward(call: Inputs) -> Cost | None:
    """flash_attn::_flash_attn_forward(q, k, v, dropout, scale, causal, ...)."""
    return _attention(call, 0, call.flag(5), "bottom_right", direction="fwd", sequence_first=True)


@model("flash_attn::_flash_attn_backward", kind="attention")
def flash_attn_backward(call: Inputs) -> Cost | None:
    """flash_attn::_flash_attn_backward(grad, q, k, v, out, logsumexp, dq, dk, dv, dropout, scale, causal, ...)."""
    return _attention(call, 1, call.flag(11), "bottom_right", direction="bwd", sequence_first=True)


@model("flash_attn::_flash_attn_varlen_forward", kind="attention")
def flash_attn_varlen(call: Inputs) -> Cost | None:
    """flash_attn::_flash_attn_varlen_forward(q, k, v, cum_q, cum_k, max_q, max_k, dropout, scale, causal, ...)."""
    return _packed_or_plain(call, 0, 3, 9, direction="fwd")


@model("flash_attn::_flash_attn_varlen_backward", kind="attention")
def flash_attn_varlen_backward(call: Inputs) -> Cost | None:
    """flash_attn::_flash_attn_varlen_backward(grad, q, k, v, out, lse, dq, dk, dv, cum_q, cum_k, max_q, max_k, dropout, scale, causal)."""
    return _packed_or_plain(call, 1, 9, 15, direction="bwd")


_ALIGNMENT: Final[dict[int, Mask]] = {0: "none", 1: "top_left", 2: "bottom_right"}


@model("aten::_efficient_attention_forward", kind="attention")
def efficient_forward(call: Inputs) -> Cost | None:
    """(q, k, v, bias, cum_q, cum_k, max_q, max_k, dropout, mask_type, compute_logsumexp, ...)."""
    return _custom_mask(call, 0, 4, 9, bias=3, direction="fwd")


@model("aten::_efficient_attention_backward", kind="attention")
def efficient_attention_backward(call: Inputs) -> Cost | None:
    """(grad, q, k, v, bias, out, cum_q, cum_k, max_q, max_k, logsumexp, dropout, seed, offset, mask_type, ...)."""
    return _custom_mask(call, 1, 6, 14, bias=4, direction="bwd")


def _custom_mask(call: Inputs, first: int, cumulative: int, mask_type: int, *, bias: int, direction: Direction) -> Cost | None:
    kind = call.value(mask_type)
    mask: Mask = _ALIGNMENT.get(kind, "unknown") if isinstance(kind, int) else "unknown"
    causal = None if mask == "unknown" else mask != "none"
    if call.tensor(cumulative) is not None:
        return _packed(call, first, cumulative, causal, mask, direction=direction)
    return _attention(call, first, causal, mask, direction=direction, sequence_first=True, bias=bias)


def _packed_or_plain(call: Inputs, first: int, cumulative: int, causal: int, *, direction: Direction) -> Cost | None:
    if call.tensor(cumulative) is None:
        return _attention(call, first, call.flag(causal), "bottom_right", direction=direction, sequence_first=True)
    return _packed(call, first, cumulative, call.flag(causal), "bottom_right", direction=direction)


def _packed(call: Inputs, first: int, cumulative: int, causal: bool | None, aligned: Mask, *, direction: Direction) -> Cost | None:
    """Packed sequences, q[T, H, D]: lengths are not recorded. A lower bound: the longest one and equal rests."""
    q, k, v = (call.tensor(first + i) for i in range(3))
    offsets = call.tensor(cumulative)
    if q is None or k is None or v is None or offsets is None:
        return None
    drop = 1 if len(q.shape) == 4 and q.shape[0] == 1 else 0
    if len(q.shape) - drop != 3 or offsets.numel < 2:
        return None
    tokens, heads, dqk = q.shape[drop:]
    keys, dv = k.shape[drop], v.shape[-1]
    count = offsets.numel - 1
    mask: Mask = "unknown" if causal is None else aligned if causal else "none"
    longest_q, longest_k = call.value(cumulative + 2), call.value(cumulative + 3)
    lengths = [(tokens / count, keys / count, count)]
    if isinstance(longest_q, int) and isinstance(longest_k, int) and count > 1 and longest_q <= tokens and longest_k <= keys:
        lengths = [(longest_q, longest_k, 1), ((tokens - longest_q) / (count - 1), (keys - longest_k) / (count - 1), count - 1)]
    width = dqk + dv if direction == "fwd" else 3 * dqk + 2 * dv
    seen = [0.0, 0.0]
    for queries, along, times in lengths:
        half = 0.5 if mask in ("top_left", "bottom_right") else 1.0
        seen[0] += times * queries * along * half
        seen[1] += times * queries * along
    flops = (round(2 * heads * width * seen[0]), round(2 * heads * width * seen[1]))
    reason = "lengths of the packed sequences not recorded: a lower bound"
    return _cost(q, k, v, flops, out=tokens * heads * dv, logsumexp=tokens * heads, direction=direction, extra=(offsets,), reason=reason)
