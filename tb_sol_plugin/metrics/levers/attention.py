"""Attention that runs as product, softmax, product: the score matrix goes to memory and back several times.

A fused kernel reads Q, K, V and writes O (2 (Dqk + Dv) FLOP per pair); its backward reads Q, K, V, O, dO, writes dQ, dK, dV and
computes the scores again (5 products instead of the 4 recorded).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost import Inputs
from tb_sol_plugin.cost.inputs import BITS
from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics.levers.case import Case, thread_of
from tb_sol_plugin.metrics.levers.lever import Lever, times, took
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Floats, Ints

PRODUCTS: Final = frozenset(("aten::bmm", "aten::baddbmm", "aten::matmul", "aten::mm", "aten::addmm", "aten::baddbmm_"))
SOFTMAX: Final = frozenset(("aten::_softmax", "aten::softmax", "aten::_safe_softmax", "aten::_masked_softmax"))
SOFTMAX_BACKWARD: Final = frozenset(("aten::_softmax_backward_data",))
BETWEEN: Final = frozenset(
    f"aten::{n}{s}"
    for n in ("add", "sub", "mul", "div", "masked_fill", "where", "native_dropout", "dropout", "bernoulli", "copy", "clone", "_to_copy",
              "native_dropout_backward", "tril", "_fused_dropout", "fill", "expand", "contiguous")
    for s in ("", "_")
)  # fmt: skip
"""Operators that scale, mask, cast or thin out the scores."""
MATH: Final = "aten::_scaled_dot_product_attention_math"
"""The backend of scaled_dot_product_attention that takes it apart."""
LEAST_KEYS: Final = 2


@dataclass(frozen=True)
class _Call:
    """tensors: sizes of the matrix operands, (…, rows, columns). size: elements of the first tensor."""

    tensors: tuple[tuple[int, ...], ...]
    size: int


def unfused_attention(case: Case) -> Lever | None:
    """Chains of product, softmax, product (and the four products around a softmax gradient) over one score matrix."""
    spec = case.spec
    if spec is None or spec.memory_bandwidth is None or not len(case.ops):
        return None
    product, soft, back = (case.named(known.__contains__) for known in (PRODUCTS, SOFTMAX, SOFTMAX_BACKWARD))
    if not (soft | back).any():
        return None
    chain = np.flatnonzero((product | soft | back) & (case.time > 0))
    code, read = case.by_signature(chain)
    calls = [_read(call) for _, call in read]
    dtype = arrays.pick(case.ops["dtype"], chain)
    thread = thread_of(case, chain)
    parts = [
        _chains(case, chain, code, calls, dtype, thread, product, soft, forward=True),
        _chains(case, chain, code, calls, dtype, thread, product, back, forward=False),
    ]
    rows = np.concatenate([p.rows for p in parts])
    if not len(rows):
        return None
    spent, limit = sum(p.spent for p in parts), sum(p.limit for p in parts)
    claimed = np.concatenate([case.claim(p.rows, case.left[p.rows] * p.part) for p in parts])
    score = next(p.score for p in parts if p.score)
    often = [f"{times(p.count)}{word}" for p, word in zip(parts, ("", " backward"), strict=True) if p.count]
    what = "Product, softmax, product" if parts[0].count else "The products around the softmax gradient"
    math = _below(case, rows, MATH)
    find = str(arrays.pick(case.ops["name"], rows[(soft | back)[rows]][:1])[0])
    return Lever(
        "unfused_attention",
        "Attention writes its score matrix to memory",
        f"{what} over {score} run {took(spent)}, {' and '.join(often)}; fused into one kernel the limit is {took(limit)}."
        + (" `scaled_dot_product_attention` fell back to its math backend: mask, type or head size fit no fused one." if math else ""),
        case.each(float(claimed.sum())),
        "with torch.nn.attention.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):"
        if math
        else "F.scaled_dot_product_attention(q, k, v)",
        "norm",
        "roofline",
        "Its operators on the roofline",
        find=find,
        rows=rows,
        claimed=claimed,
    )  # fmt: skip


@dataclass(frozen=True)
class _Chains:
    rows: Ints
    part: Floats
    """Per row the part of its time that fusing removes."""
    spent: float
    limit: float
    count: int
    score: str


def _chains(
    case: Case, chain: Ints, code: Ints, calls: list[_Call], dtype: npt.NDArray[np.object_], thread: npt.NDArray[np.int32],
    product: npt.NDArray[np.bool_], soft: npt.NDArray[np.bool_], *, forward: bool,
) -> _Chains:  # fmt: skip
    """Softmax calls with one product before and after (forward) or two (backward) among the products and softmaxes of a thread."""
    reach = 1 if forward else 2
    none = _Chains(np.zeros(0, np.int64), np.zeros(0), 0.0, 0.0, 0, "")
    middle = np.flatnonzero(soft[chain])
    middle = middle[(middle >= reach) & (middle < len(chain) - reach)]
    around = np.array([o for o in range(-reach, reach + 1) if o])
    ok = np.ones(len(middle), bool)
    for offset in around.tolist():
        ok &= product[chain[middle + offset]] & (thread[middle + offset] == thread[middle])
    middle = middle[ok]
    if not len(middle):
        return none
    # one answer per distinct combination of signatures
    members = np.stack([code[middle + o] for o in range(-reach, reach + 1)], axis=1)
    kinds, first, which = np.unique(members, axis=0, return_index=True, return_inverse=True)
    types = [str(dtype[middle[f] - 1]) for f in first.tolist()]
    fused = [
        _forward([calls[c] for c in k], d) if forward else _backward([calls[c] for c in k], d) for k, d in zip(kinds, types, strict=True)
    ]
    known = np.array([f is not None for f in fused])[which.reshape(-1)]
    middle, which = middle[known], which.reshape(-1)[known]
    spec = case.spec
    if not len(middle) or spec is None or spec.memory_bandwidth is None:
        return none
    traffic = np.array([0.0 if f is None else f[0] for f in fused])[which]
    peak = np.array([spec.matrix_peak(d) or np.nan for d in types])[which]
    flop = sum(case.flop[chain[middle + o]] for o in around.tolist()) * (1.0 if forward else 1.25)
    limit = np.fmax(flop / peak, traffic / spec.memory_bandwidth) * 1e9 / case.fall.parallel
    rows, group = _members(case, chain, middle, reach, np.array([0 if f is None else f[2] for f in fused], np.int64)[which])
    spent = np.bincount(group, case.left[rows], minlength=len(middle))
    good = spent > limit
    keep = good[group]
    if not keep.any():
        return none
    part = (1 - limit / np.where(good, spent, 1.0))[group]
    worst = int(np.bincount(which[good], (spent - limit)[good]).argmax())
    text = fused[worst]
    return _Chains(
        rows[keep], part[keep], float(spent[good].sum()), float(limit[good].sum()), int(good.sum()), "" if text is None else text[1]
    )


def _members(case: Case, chain: Ints, middle: Ints, reach: int, score: Ints) -> tuple[Ints, Ints]:
    """(calls of each chain: products, softmax, and what stands between the outer ones over as many elements; the chain of each)."""
    rows = [chain[middle + o] for o in range(-reach, reach + 1)]
    group = [np.arange(len(middle))] * (2 * reach + 1)
    glue = np.flatnonzero(case.named(BETWEEN.__contains__) & (case.left > 0))
    if len(glue):
        code, read = case.by_signature(glue)
        size = np.array([_read(call).size for _, call in read], np.int64)[code]
        low, high = chain[middle - reach], chain[middle + reach]
        slot = np.searchsorted(low, glue, side="right") - 1
        safe = np.maximum(slot, 0)
        fits = (slot >= 0) & (glue < high[safe]) & (size == score[safe]) & (thread_of(case, glue) == thread_of(case, low[safe]))
        rows.append(glue[fits])
        group.append(slot[fits])
    flat, owner = np.concatenate(rows), np.concatenate(group)
    _, once = np.unique(flat, return_index=True)  # a product may stand in two chains: the first has it
    return flat[once].astype(np.int64), owner[once].astype(np.int64)


def _read(call: Inputs) -> _Call:
    """Matrix operands (two or more dimensions) in order; a full matrix that is added stands first and is not among the last two."""
    tensors = [t.shape for t in call.flat]
    return _Call(tuple(s for s in tensors if len(s) >= 2), prod(tensors[0]) if tensors else 0)


Fused = tuple[float, str, int]
"""(traffic in bytes, the score matrix in words, its elements)."""


def _forward(calls: list[_Call], dtype: str) -> Fused | None:
    """The first product makes the score matrix, the softmax keeps its size, the second product takes it. None: not attention."""
    one, mid, two = (c.tensors for c in calls)
    if len(one) < 2 or not mid or len(two) < 2 or dtype not in BITS:
        return None
    q, k, v = one[-2], one[-1], two[-1]
    shape = (*q[:-1], k[-1])
    score = prod(shape)
    if prod(mid[0]) != score or prod(two[-2]) != score or shape[-1] < LEAST_KEYS or k[-2] != q[-1]:
        return None
    out = (*q[:-1], v[-1])
    return sum(prod(t) for t in (q, k, v, out)) * BITS[dtype] / 8, "×".join(map(str, shape)), score


def _backward(calls: list[_Call], dtype: str) -> Fused | None:
    """Two products before the softmax gradient (dP = dO Vᵀ makes the scores, dV = Pᵀ dO takes them), two after that take them."""
    tensors = [c.tensors for c in calls]
    if any(len(t) < (1 if i == 2 else 2) for i, t in enumerate(tensors)) or dtype not in BITS:
        return None
    shape = tensors[2][0]
    score = prod(shape)
    if shape[-1] < LEAST_KEYS:
        return None
    makes = [t for t in tensors[:2] if prod((*t[-2][:-1], t[-1][-1])) == score]
    takes = [t for t in (*tensors[:2], *tensors[3:]) if score in (prod(t[-2]), prod(t[-1]))]
    if len(makes) != 1 or len(takes) != 3:
        return None
    (gradient, values), after = makes[0][-2:], tensors[3:]
    others = [t[-1] if prod(t[-2]) == score else t[-2] for t in after]
    size = 2 * (prod(gradient) + prod(values) + sum(prod(o) for o in others))
    return size * BITS[dtype] / 8, "×".join(map(str, shape)), score


def _below(case: Case, rows: Ints, name: str) -> bool:
    """Whether most of some calls lie below an operator of that name."""
    h = at.host(case.capture)
    mask = arrays.where(case.capture.host["name"], name.__eq__)
    if not mask.any():
        return False
    host = case.ops["host"].to_numpy()[rows]
    host = host[host >= 0]
    return bool(2 * (tree.nearest(mask, h.parent, h.stop, host, h.start[host]) >= 0).sum() > len(rows))
