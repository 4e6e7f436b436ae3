"""Attention: the sizes, the pairs, the work and the traffic of one fused call, whichever backend runs it.

FLOP: 2 B H P (Dqk + Dv) forward, 2 B H P (3 Dqk + 2 Dv) for a backward that computes the scores again (five products).
P is the number of (query, key) pairs computed: all of them, half of a square causal mask, else the exact triangle or band.
`flop` is causal-aware, `flop_dense` counts every pair.
Bytes: Q, K, V read and O written once, K and V with their own heads; the log-sum-exp, 4 bytes per row of scores, where it is kept;
a bias or mask read once. Backward: these and dO read, dQ, dK, dV written.
Source: two products forward and five backward, Dao et al., FlashAttention (2022) and FlashAttention-2 (2023); every pair counted
for `flop_dense` as torch.utils.flop_counter does. Limits: softmax and dropout are not counted; lengths of packed sequences are not
in a recording, a block mask of flex attention neither; a result is taken in the type of its queries.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

from tb_sol_plugin.cost.inputs import Inputs, Tensor, compute_dtype, size_of, total
from tb_sol_plugin.cost.model import Cost, Direction, unknown

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
    for mine, other in zip(q.shape[:-3], k.shape[:-3], strict=True):
        if mine != other and 1 not in (mine, other):
            return f"sizes contradict: batches of {mine} and {other}"
        batch *= max(mine, other) if mine and other else 0
    return Sizes(batch, heads, q.shape[length], k.shape[length], q.shape[-1], v.shape[-1])


def work(sizes: Sizes, mask: Mask, direction: Direction, window: Window = EVERYWHERE) -> tuple[int, int]:
    """(causal-aware, dense-equivalent) FLOP. The forward has 2 products, the backward 5 (the scores are computed again)."""
    width = sizes.dqk + sizes.dv if direction == "fwd" else 3 * sizes.dqk + 2 * sizes.dv
    per_pair = 2 * sizes.batch * sizes.heads * width
    dense = per_pair * sizes.queries * sizes.keys
    if mask in ("none", "unknown") and window == EVERYWHERE:
        return dense, dense
    seen = pairs(sizes.queries, sizes.keys, mask, window)
    return (per_pair * seen if isinstance(seen, int) else dense // 2), dense


def _cost(
    q: Tensor, k: Tensor, v: Tensor, flops: tuple[int, int], *, out: int, logsumexp: int, direction: Direction, extra: Tensor | None = None,
    reason: str = "",
) -> Cost:  # fmt: skip
    traffic = [q.bytes, k.bytes, v.bytes, size_of(out, q.dtype), 4 * logsumexp, 0 if extra is None else extra.bytes]
    if direction == "bwd":
        traffic += [size_of(out, q.dtype), *(size_of(t.numel, t.dtype) for t in (q, k, v))]
    return Cost(
        flop=flops[0], flop_dense=flops[1], bytes=total(*traffic), dtype=compute_dtype(q, k, v), kind="attention", direction=direction,
        estimated=bool(reason), reason=reason,
    )  # fmt: skip


def fused(call: Inputs, at: Places) -> Cost | None:
    """The cost of a fused call whose arguments stand at `at`."""
    q, k, v = (call.tensor(at.first + i) for i in range(3))
    if q is None or k is None or v is None:
        return None
    if any(call.tensor(place) is not None for place in at.paged):
        return unknown(PAGED)
    causal = None if at.causal is None else call.flag(at.causal)
    mask: Mask = "unknown" if causal is None else at.aligned if causal else "none"
    window = EVERYWHERE if at.window is None else _window(call, at.window)
    bias = None if at.bias is None else call.tensor(at.bias)
    offsets = None if at.cumulative is None else call.tensor(at.cumulative)
    if offsets is not None:
        longest = None if at.longest is None else (call.value(at.longest), call.value(at.longest + 1))
        return _packed(q, k, v, offsets, longest, mask, window, at.direction)
    return plain(q, k, v, mask, at, window=window, bias=bias)


def plain(q: Tensor, k: Tensor, v: Tensor, mask: Mask, at: Places, *, window: Window = EVERYWHERE, bias: Tensor | None = None) -> Cost:
    """Sequences of one length."""
    sizes = sizes_of(q, k, v, sequence_first=at.sequence_first)
    if isinstance(sizes, str):
        return unknown(sizes)
    rows = sizes.batch * sizes.heads * sizes.queries
    return _cost(
        q, k, v, work(sizes, mask, at.direction, window), out=rows * sizes.dv, logsumexp=rows if at.logsumexp else 0,
        direction=at.direction, extra=bias, reason=NOT_RECORDED if mask == "unknown" else "",
    )  # fmt: skip


def _window(call: Inputs, at: int) -> Window:
    left, right = call.value(at), call.value(at + 1)
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in (left, right))
    return (int(left), int(right)) if whole else EVERYWHERE  # type: ignore[arg-type]


def _packed(
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
    flops = (round(2 * heads * width * seen), round(2 * heads * width * every))
    reason = f"{PACKED}; {NOT_RECORDED}" if mask == "unknown" else PACKED
    return _cost(q, k, v, flops, out=tokens * heads * dv, logsumexp=tokens * heads, direction=direction, extra=offsets, reason=reason)


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
