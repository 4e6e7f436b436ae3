"""Attention: the sizes, the pairs, the work and the traffic of one fused call, whichever backend runs it.

FLOP: 2 B H P (Dqk + Dv) forward, 2 B H P (3 Dqk + 2 Dv) for a backward that computes the scores again (five products): 2.5 times the
forward where Dqk = Dv. Of these, the scores, 2 B H P Dqk, are work done again: they count in HFU, and MFU takes twice the forward.
P is the number of (query, key) pairs computed: all of them, half of a square causal mask, else the exact triangle or band.
`flop` is causal-aware, `flop_dense` counts every pair.
Bytes: Q, K, V read and O written once, K and V with their own heads; the log-sum-exp, 4 bytes per row of scores, where it is kept;
a bias or mask read once. Backward: these and dO read, dQ, dK, dV written.
Source: two products forward and five backward, Dao et al., FlashAttention (2022) and FlashAttention-2 (2023); every pair counted
for `flop_dense` as torch.utils.flop_counter does. Limits: softmax and dropout are not counted; lengths of packed sequences are not
in a recording, a block mask of flex attention neither; a result is taken in the type of its queries.

Attention of PyTorch itself: `scaled_dot_product_attention`, its backends forward and backward, and flex attention.
Layouts differ: `_scaled_dot_product_*` is [B, H, S, D],
`_flash_attention_*` and `_efficient_attention_*` are [B, S, H, D]. A causal mask of a rectangle is aligned top-left in
`_scaled_dot_product_*`, bottom-right in `_flash_attention_*`; `_efficient_attention_*` says which.
Source: argument positions of native_functions.yaml, PyTorch 2.0 to 2.13.
Limits: the backward passes count dQ, dK and dV whether or not all are asked for, and no gradient of a bias.

Attention of other packages: flash-attn 2 and 3, serving engines' builds of them, and AMD's aiter.
Causal masks are aligned bottom-right, layouts are [B, S, H, D] or packed [T, H, D].
Source: the operator schemas the packages register (flash-attn 2.7 and 3, vLLM 0.4 to 0.11, sgl-kernel 0.1 to 0.3, aiter 2025).
Attention over a paged cache stands in `paged.py`.
"""

from __future__ import annotations

from math import prod
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, model, pattern, unknown
from tb_sol_plugin.units import human

Mask = Literal["none", "top_left", "bottom_right", "unknown"]
Window: TypeAlias = "tuple[int, int]"

NOT_RECORDED: Final = "causal mask not recorded: every pair counted"
PACKED: Final = "lengths of the packed sequences not recorded: a lower bound"
PAGED: Final = "key lengths stand in a page table, not in the recording"
EVERYWHERE: Final[Window] = (-1, -1)
"""No window. A window (left, right) lets a query see so many keys before and after its own place; -1 is no end."""


class Sizes(NamedTuple):
    """Batch, query heads, query length, key length, head sizes of queries and values."""

    batch: int
    heads: int
    queries: int
    keys: int
    dqk: int
    dv: int


class Places(NamedTuple):
    """Where a call has its arguments, by position. None: it has no such argument."""

    first: int = 0
    """Queries; keys and values follow."""
    causal: int | None = None
    window: int | None = None
    """Left end of the window; the right end follows."""
    cumulative: int | None = None
    """Offsets of packed queries."""
    longest: int | None = None
    """Longest query sequence; the longest key sequence follows."""
    paged: tuple[int, ...] = ()
    """Page tables and used lengths: where one is given, the key lengths are not recorded."""
    bias: int | None = None
    aligned: Mask = "top_left"
    """Where a causal mask of a rectangle starts."""
    sequence_first: bool = False
    """[B, S, H, D] and not [B, H, S, D]."""
    direction: Direction = "fwd"
    logsumexp: bool = True


def _ramp(first: int, rows: int, top: int) -> int:
    """Sum over i = 0 … rows-1 of first + i, held between 0 and top."""
    low = min(max(-first, 0), rows)
    high = min(max(top - first, low), rows)
    return (high - low) * (2 * first + low + high - 1) // 2 + (rows - high) * top


def pairs(queries: int, keys: int, mask: Mask, window: Window = EVERYWHERE) -> float:
    """(query, key) pairs that one head computes. A square causal mask counts as exactly half of it."""
    causal = mask in ("top_left", "bottom_right")
    left, right = window
    left = -1 if left >= max(queries, keys) - 1 else left
    right = 0 if causal else -1 if right >= max(queries, keys) else right
    if left < 0 and right < 0:
        return queries * keys
    if causal and left < 0 and queries == keys:
        return queries * keys / 2
    shift = 0 if mask == "top_left" else keys - queries
    before_end = queries * keys if right < 0 else _ramp(shift + right + 1, queries, keys)
    before_start = 0 if left < 0 else _ramp(shift - left, queries, keys)
    return max(before_end - before_start, 0)


def sizes_of(q: Tensor, k: Tensor, v: Tensor, *, sequence_first: bool) -> Sizes | str:
    """The sizes of a call, or what is wrong with them."""
    if not len(q.shape) == len(k.shape) == len(v.shape) or len(q.shape) < 3 or (sequence_first and len(q.shape) != 4):
        return "sizes of queries, keys and values are not of one layout"
    length, head = (-3, -2) if sequence_first else (-2, -3)
    heads, groups = q.shape[head], k.shape[head]
    if q.shape[-1] != k.shape[-1]:
        return f"sizes contradict: heads of {q.shape[-1]} and {k.shape[-1]}"
    if k.shape[length] != v.shape[length]:
        return f"sizes contradict: {k.shape[length]} keys, {v.shape[length]} values"
    if heads != groups and (groups == 0 or heads % groups):
        return f"sizes contradict: {heads} query heads, {groups} key heads"
    batch = 1
    for q_size, k_size in zip(q.shape[:-3], k.shape[:-3], strict=True):
        if q_size != k_size and 1 not in (q_size, k_size):
            return f"sizes contradict: batches of {q_size} and {k_size}"
        batch *= max(q_size, k_size) if q_size and k_size else 0
    return Sizes(batch, heads, q.shape[length], k.shape[length], q.shape[-1], v.shape[-1])


def work(sizes: Sizes, mask: Mask, direction: Direction, window: Window = EVERYWHERE) -> tuple[int, int, int]:
    """(causal-aware, dense-equivalent, done again) FLOP. The forward has 2 products, the backward 5: it computes the scores again."""
    width = sizes.dqk + sizes.dv if direction == "fwd" else 3 * sizes.dqk + 2 * sizes.dv
    per_pair = 2 * sizes.batch * sizes.heads * width
    dense = per_pair * sizes.queries * sizes.keys
    every = mask in ("none", "unknown") and window == EVERYWHERE
    seen = sizes.queries * sizes.keys if every else pairs(sizes.queries, sizes.keys, mask, window)
    aware = per_pair * seen if isinstance(seen, int) else dense // 2
    return aware, dense, 0 if direction == "fwd" else aware * sizes.dqk // max(width, 1)


def fused_cost(
    q: Tensor, k: Tensor, v: Tensor, flops: tuple[int, int, int], *, out: int, logsumexp: int, direction: Direction,
    extra: Tensor | None = None, reason: str = "",
) -> Cost:  # fmt: skip
    traffic = [q.bytes, k.bytes, v.bytes, size_of(out, q.dtype), 4 * logsumexp, 0 if extra is None else extra.bytes]
    if direction == "bwd":
        traffic += [size_of(out, q.dtype), *(size_of(t.numel, t.dtype) for t in (q, k, v))]
    return Cost(
        flop=flops[0], flop_dense=flops[1], flop_again=flops[2], bytes=total(*traffic), dtype=compute_dtype(q, k, v), kind="attention",
        direction=direction, estimated=bool(reason), reason=reason,
    )  # fmt: skip


def unknown_keys(q: Tensor, k: Tensor, v: Tensor, table: Tensor | None = None) -> Cost:
    """No work, and in its reason the range that sizes leave for the bytes of keys and values.

    q[..., H, D]. k and v[..., G, D]: with a page table all pages of the cache, [pages, page, G, D], else the new rows alone. A causal query
    has its own key, so there are as many keys as queries at least; at most those of every page in the table, each read once.
    """
    if len(q.shape) < 3 or len(k.shape) < 3 or len(v.shape) < 3 or 0 in (*q.shape, *k.shape, *v.shape):
        return unknown(PAGED)
    row = total(*(size_of(prod(t.shape[-2:]), t.dtype) for t in (k, v)))
    if row is None:
        return unknown(PAGED)
    least, most = prod(q.shape[:-2]), 0
    if table is not None and len(k.shape) >= 4:
        most = min(table.numel * k.shape[-3], prod(k.shape[:-2]))
    if most <= least:
        return unknown(f"{PAGED}: at least {human(least * row, 'B')} of keys and values are read")
    return unknown(f"{PAGED}: {human(least * row, 'B')} to {human(most * row, 'B')} of keys and values are read")


def fused(call: Inputs, at: Places) -> Cost | None:
    """The cost of a fused call whose arguments stand at `at`."""
    q, k, v = (call.tensor(at.first + i) for i in range(3))
    if q is None or k is None or v is None:
        return None
    table = next((found for place in at.paged if (found := call.tensor(place)) is not None), None)
    if table is not None:
        return unknown_keys(q, k, v, table)
    causal = None if at.causal is None else call.flag(at.causal)
    mask: Mask = "unknown" if causal is None else at.aligned if causal else "none"
    window = EVERYWHERE if at.window is None else window_of(call, at.window)
    bias = None if at.bias is None else call.tensor(at.bias)
    offsets = None if at.cumulative is None else call.tensor(at.cumulative)
    if offsets is not None:
        longest = None if at.longest is None else (call.value(at.longest), call.value(at.longest + 1))
        return packed_cost(q, k, v, offsets, longest, mask, window, at.direction)
    return plain(q, k, v, mask, at, window=window, bias=bias)


def plain(q: Tensor, k: Tensor, v: Tensor, mask: Mask, at: Places, *, window: Window = EVERYWHERE, bias: Tensor | None = None) -> Cost:
    """Sequences of one length."""
    sizes = sizes_of(q, k, v, sequence_first=at.sequence_first)
    if isinstance(sizes, str):
        return unknown(sizes)
    rows = sizes.batch * sizes.heads * sizes.queries
    return fused_cost(
        q, k, v, work(sizes, mask, at.direction, window), out=rows * sizes.dv, logsumexp=rows if at.logsumexp else 0,
        direction=at.direction, extra=bias, reason=NOT_RECORDED if mask == "unknown" else "",
    )  # fmt: skip


def window_of(call: Inputs, at: int) -> Window:
    left, right = call.value(at), call.value(at + 1)
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (left, right))
    return (int(left), int(right)) if whole else EVERYWHERE  # type: ignore[arg-type]


def packed_cost(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: tuple[object, object] | None, mask: Mask, window: Window,
    direction: Direction,
) -> Cost:  # fmt: skip
    """Packed sequences, q[T, H, D]: lengths are not recorded. A lower bound: the longest one and equal rests.

    For given sums and longest sequences, equal rests have the fewest pairs when lengths of queries and keys are equal.
    """
    drop = 1 if len(q.shape) == 4 and q.shape[0] == 1 else 0
    if not len(q.shape) == len(k.shape) == len(v.shape) == 3 + drop or offsets.numel < 2:
        return unknown("sizes of the packed queries, keys and values are not of one layout")
    tokens, heads, dqk = q.shape[drop:]
    keys, groups, other = k.shape[drop:]
    if dqk != other or v.shape[drop] != keys or (heads != groups and (groups == 0 or heads % groups)):
        return unknown("sizes of the packed queries, keys and values contradict")
    dv, count = v.shape[-1], offsets.numel - 1
    lengths = [(tokens / count, keys / count, count)]
    most_q, most_k = longest or (None, None)
    if (
        isinstance(most_q, int) and isinstance(most_k, int) and count > 1
        and tokens <= most_q * count and keys <= most_k * count and 0 < most_q <= tokens and 0 < most_k <= keys
    ):  # fmt: skip
        lengths = [(most_q, most_k, 1), ((tokens - most_q) / (count - 1), (keys - most_k) / (count - 1), count - 1)]
    width = dqk + dv if direction == "fwd" else 3 * dqk + 2 * dv
    seen = every = 0.0
    for queries, along, times in lengths:
        every += times * queries * along
        seen += times * min(_band(queries, along, mask, window), queries * along)
    again = dqk if direction == "bwd" else 0
    flops = (round(2 * heads * width * seen), round(2 * heads * width * every), round(2 * heads * again * seen))
    reason = f"{PACKED}; {NOT_RECORDED}" if mask == "unknown" else PACKED
    return fused_cost(q, k, v, flops, out=tokens * heads * dv, logsumexp=tokens * heads, direction=direction, extra=offsets, reason=reason)


def _band(queries: float, keys: float, mask: Mask, window: Window) -> float:
    """Pairs of one packed sequence of mean length: half of it when causal, at most the window's width per row."""
    seen = queries * keys
    short = min(queries, keys)
    if mask == "top_left":
        seen = short * short / 2 + (queries - short) * keys
    elif mask == "bottom_right":
        seen = short * short / 2 + short * (keys - short)
    left, right = window
    if left >= 0 and (right >= 0 or mask != "none"):
        width = min(keys, left + 1 + max(right, 0))
        seen = min(seen, queries * width - min(width * width, queries * queries) / 2)
    return seen


# -- Attention of PyTorch itself -------------------------------------------------------------------------------------


@model("aten::scaled_dot_product_attention", kind="attention", wrapper=True)
def sdpa(call: Inputs) -> Cost | None:
    """scaled_dot_product_attention(q 0, k 1, v 2, mask 3, dropout 4, is_causal 5): where no leaf was recorded below it."""
    return fused(call, Places(causal=5, bias=3, logsumexp=False))


@model("aten::_scaled_dot_product_attention_math", "aten::_scaled_dot_product_attention_math_for_mps", kind="attention", wrapper=True)
def math(call: Inputs) -> Cost | None:
    """_scaled_dot_product_attention_math(q 0, k 1, v 2, mask 3, ...): products and a softmax of their own, which own the work where
    they were recorded. It computes every pair, masked or not. Bytes: of a fused call, a lower bound."""
    q, k, v = (call.tensor(at) for at in range(3))
    return None if q is None or k is None or v is None else plain(q, k, v, "none", Places(logsumexp=False), bias=call.tensor(3))


@model("aten::_scaled_dot_product_flash_attention", kind="attention")
def flash(call: Inputs) -> Cost | None:
    """_scaled_dot_product_flash_attention(q 0, k 1, v 2, dropout 3, is_causal 4, ...); the quantized form has three scales at 3 to 5
    and is_causal at 7."""
    quantized = any(call.tensor(at) is not None for at in (3, 4, 5))
    return fused(call, Places(causal=7 if quantized else 4))


@model("aten::_scaled_dot_product_flash_attention_for_cpu", kind="attention")
def flash_cpu(call: Inputs) -> Cost | None:
    """_scaled_dot_product_flash_attention_for_cpu(q 0, k 1, v 2, dropout 3, is_causal 4, mask 5, ...)."""
    return fused(call, Places(causal=4, bias=5))


@model("aten::_scaled_dot_product_efficient_attention", "aten::_scaled_dot_product_cudnn_attention", kind="attention")
def efficient(call: Inputs) -> Cost | None:
    """_scaled_dot_product_efficient_attention(q 0, k 1, v 2, bias 3, compute_logsumexp 4, dropout 5, is_causal 6, ...)."""
    return fused(call, Places(causal=6, bias=3, logsumexp=call.flag(4) is not False))


@model("aten::_scaled_dot_product_fused_attention_overrideable", kind="attention")
def overrideable(call: Inputs) -> Cost | None:
    """_scaled_dot_product_fused_attention_overrideable(q 0, k 1, v 2, bias 3, dropout 4, is_causal 5, ...)."""
    return fused(call, Places(causal=5, bias=3))


@model("aten::_triton_scaled_dot_attention", kind="attention")
def triton_sdpa(call: Inputs) -> Cost | None:
    """_triton_scaled_dot_attention(q 0, k 1, v 2, dropout 3): no mask."""
    q, k, v = (call.tensor(at) for at in range(3))
    return None if q is None or k is None or v is None else plain(q, k, v, "none", Places(logsumexp=False))


@model("aten::_scaled_dot_product_flash_attention_backward", kind="attention")
def flash_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_flash_attention_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, cum_q 6, cum_k 7, max_q 8, max_k 9,
    dropout 10, is_causal 11, ...)."""
    return fused(call, Places(1, causal=11, direction="bwd"))


@model("aten::_scaled_dot_product_flash_attention_for_cpu_backward", kind="attention")
def flash_cpu_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_flash_attention_for_cpu_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dropout 6, is_causal 7, mask 8)."""
    return fused(call, Places(1, causal=7, bias=8, direction="bwd"))


@model("aten::_scaled_dot_product_efficient_attention_backward", kind="attention")
def efficient_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_efficient_attention_backward(dO 0, q 1, k 2, v 3, bias 4, O 5, logsumexp 6, seed 7, offset 8, dropout 9,
    grad_mask 10, is_causal 11, ...)."""
    return fused(call, Places(1, causal=11, bias=4, direction="bwd"))


@model("aten::_scaled_dot_product_cudnn_attention_backward", "aten::_cudnn_attention_backward", kind="attention")
def cudnn_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_cudnn_attention_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, seed 6, offset 7, bias 8, cum_q 9, cum_k 10,
    max_q 11, max_k 12, dropout 13, is_causal 14, ...)."""
    packed = None if _ranks(call, 1) == 4 else 9
    return fused(call, Places(1, causal=14, bias=8, cumulative=packed, longest=11, direction="bwd"))


@model("aten::_scaled_dot_product_fused_attention_overrideable_backward", kind="attention")
def overrideable_backward(call: Inputs) -> Cost | None:
    """_scaled_dot_product_fused_attention_overrideable_backward(dO 0, q 1, k 2, v 3, bias 4, grad_mask 5, O 6, logsumexp 7, cum_q 8,
    cum_k 9, max_q 10, max_k 11, dropout 12, is_causal 13, ...)."""
    return fused(call, Places(1, causal=13, bias=4, direction="bwd"))


@model("aten::_cudnn_attention_forward", kind="attention")
def cudnn_forward(call: Inputs) -> Cost | None:
    """_cudnn_attention_forward(q 0, k 1, v 2, bias 3, cum_q 4, cum_k 5, max_q 6, max_k 7, logsumexp 8, dropout 9, is_causal 10, ...)."""
    return fused(call, Places(causal=10, bias=3, cumulative=4, longest=6, logsumexp=call.flag(8) is not False))


@model("aten::_flash_attention_forward", kind="attention")
def flash_forward(call: Inputs) -> Cost | None:
    """_flash_attention_forward(q 0, k 1, v 2, cum_q 3, cum_k 4, max_q 5, max_k 6, dropout 7, is_causal 8, debug 9, scale 10,
    window_left 11, window_right 12, used_k 13, alibi 14, block_table 15); packed sequences where cum_q is a tensor."""
    return fused(call, BSHD._replace(causal=8, window=11, cumulative=3, longest=5, paged=(13, 15)))


@model("aten::_flash_attention_backward", kind="attention")
def flash_attention_backward(call: Inputs) -> Cost | None:
    """_flash_attention_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, cum_q 6, cum_k 7, max_q 8, max_k 9, dropout 10, is_causal 11,
    rng 12, unused 13, scale 14, window_left 15, window_right 16)."""
    return fused(call, BSHD._replace(first=1, causal=11, window=15, cumulative=6, longest=8, direction="bwd"))


ALIGNMENT: Final[dict[int, Mask]] = {0: "none", 1: "top_left", 2: "bottom_right"}


@model("aten::_efficient_attention_forward", kind="attention")
def efficient_forward(call: Inputs) -> Cost | None:
    """_efficient_attention_forward(q 0, k 1, v 2, bias 3, cum_q 4, cum_k 5, max_q 6, max_k 7, dropout 8, mask_type 9, logsumexp 10,
    scale 11, used_k 12, window 13); mask_type 0 none, 1 causal top-left, 2 causal bottom-right."""
    return _by_mask_type(call, Places(cumulative=4, longest=6, paged=(12,), bias=3, logsumexp=call.flag(10) is not False), 9, 13)


@model("aten::_efficient_attention_backward", kind="attention")
def efficient_attention_backward(call: Inputs) -> Cost | None:
    """_efficient_attention_backward(dO 0, q 1, k 2, v 3, bias 4, O 5, cum_q 6, cum_k 7, max_q 8, max_k 9, logsumexp 10, dropout 11,
    seed 12, offset 13, mask_type 14, bias_requires_grad 15, scale 16, splits 17, window 18)."""
    return _by_mask_type(call, Places(1, cumulative=6, longest=8, bias=4, direction="bwd"), 14, 18)


def _by_mask_type(call: Inputs, at: Places, mask_type: int, window: int) -> Cost | None:
    kind = call.value(mask_type)
    mask: Mask = ALIGNMENT.get(kind, "unknown") if isinstance(kind, int) else "unknown"
    reach = call.value(window)
    if call.tensor(at.cumulative or 0) is not None:
        return fused(call, at._replace(causal=mask_type if mask != "unknown" else None, aligned=mask, sequence_first=True))
    q, k, v = (call.tensor(at.first + i) for i in range(3))
    if q is None or k is None or v is None:
        return None
    band = (reach - 1, 0) if isinstance(reach, int) and reach > 0 else EVERYWHERE
    return plain(q, k, v, mask, at._replace(sequence_first=True), window=band, bias=None if at.bias is None else call.tensor(at.bias))


def _ranks(call: Inputs, at: int) -> int:
    q = call.tensor(at)
    return 0 if q is None else len(q.shape)


FLEX: Final = "block mask not recorded: every pair counted"


def _flex(call: Inputs, direction: Direction) -> Cost | None:
    tensors = call.flat[:3]
    if len(tensors) < 3 or any(len(t.shape) != 4 for t in tensors):
        return None
    found = plain(tensors[0], tensors[1], tensors[2], "unknown", Places(direction=direction))
    return found if found.flop is None else msgspec.structs.replace(found, reason=FLEX)


@pattern(r"(higher_order::)?flex_attention|triton_tem_\w*flex_attention(?:(?!flex_attention|backward)\w)*", kind="attention")
def flex(call: Inputs) -> Cost | None:
    """flex_attention(q 0, k 1, v 2, ...) and the template kernel that the compiler makes of it: q, k, v [B, H, S, D] stand first.
    The block mask is data: every pair is counted, an upper bound."""
    return _flex(call, "fwd")


@pattern(r"(higher_order::)?flex_attention_backward|triton_tem_(?=\w*flex_attention_backward)\w*", kind="attention")
def flex_backward(call: Inputs) -> Cost | None:
    """flex_attention_backward(q 0, k 1, v 2, ...): as forward, five products."""
    return _flex(call, "bwd")


# -- Attention of other packages -------------------------------------------------------------------------------------


BSHD = Places(aligned="bottom_right", sequence_first=True)


@model("flash_attn::_flash_attn_forward", kind="attention")
def flash_attn_forward(call: Inputs) -> Cost | None:
    """_flash_attn_forward(q 0, k 1, v 2, dropout 3, scale 4, causal 5, window_left 6, window_right 7, ...)."""
    return fused(call, BSHD._replace(causal=5, window=6))


@model("flash_attn::_flash_attn_backward", kind="attention")
def flash_attn_backward(call: Inputs) -> Cost | None:
    """_flash_attn_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dq 6, dk 7, dv 8, dropout 9, scale 10, causal 11, window 12 and 13)."""
    return fused(call, BSHD._replace(first=1, causal=11, window=12, direction="bwd"))


@model("flash_attn::_flash_attn_varlen_forward", kind="attention")
def flash_attn_varlen(call: Inputs) -> Cost | None:
    """_flash_attn_varlen_forward(q 0, k 1, v 2, cum_q 3, cum_k 4, max_q 5, max_k 6, dropout 7, scale 8, causal 9, window 10 and 11,
    softcap 12, alibi 13, return_softmax 14, block_table 15, leftpad 16, used_k 17)."""
    return fused(call, BSHD._replace(causal=9, window=10, cumulative=3, longest=5, paged=(15, 17)))


@model("flash_attn::_flash_attn_varlen_backward", kind="attention")
def flash_attn_varlen_backward(call: Inputs) -> Cost | None:
    """_flash_attn_varlen_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dq 6, dk 7, dv 8, cum_q 9, cum_k 10, max_q 11, max_k 12,
    dropout 13, scale 14, causal 15, window 16 and 17)."""
    return fused(call, BSHD._replace(first=1, causal=15, window=16, cumulative=9, longest=11, direction="bwd"))


@model("flash_attn_3::fwd", "flash_attn_3::_flash_attn_forward", "sgl_kernel::fwd", "_vllm_fa3_C::fwd", kind="attention")
def flash3_forward(call: Inputs) -> Cost | None:
    """fwd(q 0, k 1, v 2, new k 3, new v 4, q_v 5, out 6, cum_q 7, cum_k 8, cum_k_new 9, used_q 10, used_k 11, max_q 12, max_k 13,
    page_table 14, ..., scale 23, causal 24, window 25 and 26). FP8 operands run against the FP8 peak."""
    return fused(call, BSHD._replace(causal=24, window=25, cumulative=7, longest=12, paged=(11, 14)))


@model("flash_attn_3::_flash_attn_backward", kind="attention")
def flash3_backward(call: Inputs) -> Cost | None:
    """_flash_attn_backward(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, cum_q 6, cum_k 7, used_q 8, used_k 9, max_q 10, max_k 11, dq 12,
    dk 13, dv 14, scale 15, causal 16, window 17 and 18)."""
    return fused(call, BSHD._replace(first=1, causal=16, window=17, cumulative=6, longest=10, paged=(8, 9), direction="bwd"))


@model("flash_attn_3::bwd", kind="attention")
def flash3_plain_backward(call: Inputs) -> Cost | None:
    """bwd(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dq 6, dk 7, dv 8, cum_q 9, cum_k 10, used_q 11, used_k 12, max_q 13, max_k 14,
    scale 15, causal 16, window 17 and 18)."""
    return fused(call, BSHD._replace(first=1, causal=16, window=17, cumulative=9, longest=13, paged=(11, 12), direction="bwd"))


@model("_vllm_fa2_C::varlen_fwd", kind="attention")
def vllm_varlen(call: Inputs) -> Cost | None:
    """varlen_fwd(q 0, k 1, v 2, out 3, cum_q 4, cum_k 5, used_k 6, leftpad 7, block_table 8, alibi 9, max_q 10, max_k 11, dropout 12,
    scale 13, zero 14, causal 15, window 16 and 17)."""
    return fused(call, BSHD._replace(causal=15, window=16, cumulative=4, longest=10, paged=(6, 8)))


def _by_flags(call: Inputs, nth: int, direction: Direction, first: int, cumulative: int | None) -> Cost | None:
    """Versions differ in where the causal flag stands: it is the n-th boolean, and the window follows it."""
    flags = [at for at, value in enumerate(call.values) if isinstance(value, bool)]
    causal = flags[nth] if len(flags) > nth else None
    at = BSHD._replace(first=first, causal=causal, window=None if causal is None else causal + 1, direction=direction)
    if cumulative is not None:
        tables = tuple(i for i, slot in enumerate(call.shapes) if i > cumulative + 3 and call.types[i : i + 1] == ["int"] and slot)
        at = at._replace(cumulative=cumulative, longest=cumulative + 2, paged=tables)
    return fused(call, at)


@model("aiter::mha_fwd", "aiter::fmha_v3_fwd", kind="attention")
def aiter_forward(call: Inputs) -> Cost | None:
    """mha_fwd(q 0, k 1, v 2, dropout 3, scale 4, causal, window left and right, ...); causal is the first flag."""
    return _by_flags(call, 0, "fwd", 0, None)


@model("aiter::mha_bwd", "aiter::fmha_v3_bwd", kind="attention")
def aiter_backward(call: Inputs) -> Cost | None:
    """mha_bwd(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, dropout 6, scale 7, causal, window left and right, ...); the first flag."""
    return _by_flags(call, 0, "bwd", 1, None)


@model("aiter::mha_varlen_fwd", "aiter::fmha_v3_varlen_fwd", kind="attention")
def aiter_varlen(call: Inputs) -> Cost | None:
    """mha_varlen_fwd(q 0, k 1, v 2, cum_q 3, cum_k 4, max_q 5, max_k 6, ..., zero, causal, window, ..., block_table); causal is the
    second flag. An integer tensor behind the offsets is a page table."""
    return _by_flags(call, 1, "fwd", 0, 3)


@model("aiter::mha_varlen_bwd", "aiter::fmha_v3_varlen_bwd", kind="attention")
def aiter_varlen_backward(call: Inputs) -> Cost | None:
    """mha_varlen_bwd(dO 0, q 1, k 2, v 3, O 4, logsumexp 5, cum_q 6, cum_k 7, max_q 8, max_k 9, ..., zero, causal, window, ...)."""
    return _by_flags(call, 1, "bwd", 1, 6)
