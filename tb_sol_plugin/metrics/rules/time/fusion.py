"""Finds attention that runs as product, softmax, product: the score matrix goes to memory and back several times.

A fused kernel reads Q, K, V and writes O (2 (Dqk + Dv) FLOP per pair); its backward reads Q, K, V, O, dO, writes dQ, dK, dV and
computes the scores again (5 products instead of the 4 recorded).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.inputs import BITS, Inputs, Tensor, broadcast, wider
from tb_sol_plugin.cost.ops.pointwise import BINARY, COMPARE, UNARY
from tb_sol_plugin.metrics import kept_with
from tb_sol_plugin.metrics.rules.engine import Answer, rule, subject_verb, time_text, times_text
from tb_sol_plugin.metrics.rules.time.context import Claim, TimeContext, thread_of
from tb_sol_plugin.metrics.rules.time.recorded import NOT_FUSED, compiled_calls, compiled_rows, fusing
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import device_word
from tb_sol_plugin.metrics.work.ownership import above, outermost
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask
from tb_sol_plugin.units import human

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
    """The arguments of one call that a rule compares.

    tensors: sizes of the matrix operands, (…, rows, columns). size: elements of the first tensor.
    """

    tensors: tuple[tuple[int, ...], ...]
    size: int


@rule(
    "unfused_attention", title="Attention writes its score matrix to memory", fix="F.scaled_dot_product_attention(q, k, v)",
    page="roofline", label="Its operators on the roofline", color="norm",
)  # fmt: skip
def unfused_attention(context: TimeContext) -> Answer:
    """Finds chains of product, softmax, product (and the four products around a softmax gradient) over one score matrix."""
    spec = context.spec
    if spec is None or spec.memory_bandwidth is None or not len(context.ops):
        return None
    product, soft, back = (context.named(known.__contains__) for known in (PRODUCTS, SOFTMAX, SOFTMAX_BACKWARD))
    if not (soft | back).any():
        return None
    chain = np.flatnonzero((product | soft | back) & (context.time > 0))
    code, read = context.by_signature(chain)
    calls = [_read(call) for _, call in read]
    dtype = arrays.pick(context.ops["dtype"], chain)
    thread = thread_of(context, chain)
    parts = [
        _chains(context, chain, code, calls, dtype, thread, product, soft, forward=True),
        _chains(context, chain, code, calls, dtype, thread, product, back, forward=False),
    ]
    rows = np.concatenate([p.rows for p in parts])
    if not len(rows):
        return None
    spent, limit = sum(p.spent for p in parts), sum(p.limit for p in parts)
    claimed = np.concatenate([context.claim(p.rows, context.left[p.rows] * p.part).ns for p in parts])
    often = [f"{times_text(p.count)}{word}" for p, word in zip(parts, ("", " backward"), strict=True) if p.count]
    most = max(parts, key=lambda p: p.most)
    every = len(often) == 1 and most.times == most.count
    score = f" over {most.score}" if every else ""
    largest = "" if every else f" Most, {time_text(most.most)} above it: {most.score}, {times_text(most.times)}"
    largest += " backward." if largest and most is parts[1] else "." if largest else ""
    what = "Product, softmax, product" if parts[0].count else "The products around the softmax gradient"
    math = _below(context, rows, MATH)
    return context.finding(
        f"{what}{score} run {time_text(spent)}, {' and '.join(often)}; fused into one kernel the limit is {time_text(limit)}.{largest}"
        + (" `scaled_dot_product_attention` fell back to its math backend: mask, type or head size fit no fused one." if math else ""),
        Claim(rows, claimed, context.ops),
        fix="with torch.nn.attention.sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):" if math else "",
    )


@dataclass(frozen=True)
class _Chains:
    rows: Ints
    part: Floats
    """Per row the part of its time that fusing removes."""
    spent: float
    limit: float
    count: int
    score: str
    """The score matrix over which most is saved, in words."""
    times: int = 0
    """Chains over a score matrix of that size."""
    most: float = 0.0
    """ns above the limit of these."""


def _between_products(
    soft: npt.NDArray[np.bool_], product: npt.NDArray[np.bool_], thread: npt.NDArray[np.int32], reach: int
) -> Ints:
    """Returns the places of the softmax calls with `reach` products of the same thread right before and right after them."""
    middle = np.flatnonzero(soft)
    middle = middle[(middle >= reach) & (middle < len(soft) - reach)]
    ok = np.ones(len(middle), bool)
    for offset in (o for o in range(-reach, reach + 1) if o):
        ok &= product[middle + offset] & (thread[middle + offset] == thread[middle])
    return np.asarray(middle[ok], np.int64)


def _chains(
    context: TimeContext, chain: Ints, code: Ints, calls: list[_Call], dtype: npt.NDArray[np.object_], thread: npt.NDArray[np.int32],
    product: npt.NDArray[np.bool_], soft: npt.NDArray[np.bool_], *, forward: bool,
) -> _Chains:  # fmt: skip
    """Returns softmax calls with one product before and after (forward) or two (backward) among the products and softmaxes of a thread."""
    reach = 1 if forward else 2
    none = _Chains(np.zeros(0, np.int64), np.zeros(0), 0.0, 0.0, 0, "")
    around = np.array([o for o in range(-reach, reach + 1) if o])
    middle = _between_products(soft[chain], product[chain], thread, reach)
    if not len(middle):
        return none
    # one answer per distinct combination of signatures
    members = [code[middle + o] for o in range(-reach, reach + 1)]
    which, first = arrays.factorize(members)
    types = [str(d) for d in dtype[middle[first] - 1].tolist()]
    kinds = zip(*(member[first].tolist() for member in members), strict=True)
    fused = [(_forward if forward else _backward)([calls[c] for c in k], d) for k, d in zip(kinds, types, strict=True)]
    known = np.array([f is not None for f in fused])[which]
    middle, which = middle[known], which[known]
    spec = context.spec
    if not len(middle) or spec is None or spec.memory_bandwidth is None:
        return none
    traffic = np.array([0.0 if f is None else f[0] for f in fused])[which]
    peak = np.array([spec.matrix_peak(d) or np.nan for d in types])[which]
    flop = sum(context.flop[chain[middle + o]] for o in around.tolist()) * (1.0 if forward else 1.25)
    limit = np.fmax(flop / peak, traffic / spec.memory_bandwidth) * 1e9 / context.waterfall.parallel
    rows, group = _members(context, chain, middle, reach, np.array([0 if f is None else f[2] for f in fused], np.int64)[which])
    spent = np.bincount(group, context.left[rows], minlength=len(middle))
    good = spent > limit
    keep = good[group]
    if not keep.any():
        return none
    part = (1 - limit / np.where(good, spent, 1.0))[group]
    largest = _largest_size(fused, which[good], (spent - limit)[good])
    return _Chains(rows[keep], part[keep], float(spent[good].sum()), float(limit[good].sum()), int(good.sum()), *largest)


def _largest_size(fused: list[Fused | None], which: Ints, above: Floats) -> tuple[str, int, float]:
    """Returns (the score matrix over which most is saved, its chains, what is saved of them). which: per chain its place in `fused`."""
    texts, size = np.unique(["" if f is None else f[1] for f in fused], return_inverse=True)
    of = size.reshape(-1)[which]
    saved = np.bincount(of, above)
    worst = int(saved.argmax())
    return str(texts[worst]), int((of == worst).sum()), float(saved[worst])


def _members(context: TimeContext, chain: Ints, middle: Ints, reach: int, score: Ints) -> tuple[Ints, Ints]:
    """Returns (calls of each chain: products, softmax, and what stands between the outer ones over as many elements; the chain of each)."""
    rows = [chain[middle + o] for o in range(-reach, reach + 1)]
    group = [np.arange(len(middle))] * (2 * reach + 1)
    glue = np.flatnonzero(context.named(BETWEEN.__contains__) & (context.left > 0))
    if len(glue):
        code, read = context.by_signature(glue)
        size = np.array([_read(call).size for _, call in read], np.int64)[code]
        low, high = chain[middle - reach], chain[middle + reach]
        slot = np.searchsorted(low, glue, side="right") - 1
        safe = np.maximum(slot, 0)
        fits = (slot >= 0) & (glue < high[safe]) & (size == score[safe]) & (thread_of(context, glue) == thread_of(context, low[safe]))
        rows.append(glue[fits])
        group.append(slot[fits])
    flat, owner = np.concatenate(rows), np.concatenate(group)
    _, once = np.unique(flat, return_index=True)  # a product may stand in two chains: the first has it
    return flat[once].astype(np.int64), owner[once].astype(np.int64)


def _read(call: Inputs) -> _Call:
    """Returns matrix operands (two or more dimensions) in order; a full matrix that is added stands first and is not among the last two."""
    tensors = [t.shape for t in call.flat]
    return _Call(tuple(s for s in tensors if len(s) >= 2), prod(tensors[0]) if tensors else 0)


Fused = tuple[float, str, int]
"""(traffic in bytes, the score matrix in words, its elements)."""


def _forward(calls: list[_Call], dtype: str) -> Fused | None:
    """Matches a forward chain: a product makes the scores, the softmax keeps their size, a product takes them. None: not attention."""
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
    """Matches a backward chain: dP = dO Vᵀ makes the scores, dV = Pᵀ dO takes them, the softmax gradient, two products that take them."""
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


def _below(context: TimeContext, rows: Ints, name: str) -> bool:
    """Returns whether most of some calls lie below an operator of that name."""
    h = at.host(context.capture)
    if not at.any_named(context.capture, name.__eq__):
        return False
    mask = at.where_named(context.capture, name.__eq__)
    host = context.ops["host"].to_numpy()[rows]
    host = host[host >= 0]
    return bool(2 * (tree.nearest(mask, h.parent, h.stop, host, h.start[host], h.end) >= 0).sum() > len(rows))


# -- Elementwise kernels that run one after another over the same elements -------------------------------------------
# each writes what the next one reads.
#
# A compiler makes one kernel of such a chain. Its traffic is that of the chain less every intermediate (written once, read once), as
# far as the sizes tell: which tensor is which is not recorded, so an intermediate that is needed later still has to be written.


_PLAIN: Final = (*UNARY, *BINARY, "addcmul", "addcdiv", "lerp", "where", "masked_fill", "native_dropout", "native_dropout_backward",
                 "threshold_backward", "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward")  # fmt: skip
POINTWISE: Final = frozenset(f"aten::{n}{s}" for n in _PLAIN for s in ("", "_"))
REDUCE: Final = frozenset(f"aten::{n}" for n in ("mean", "sum", "amax", "amin"))
ROWS: Final = frozenset(f"aten::{n}" for n in ("native_layer_norm", "_softmax", "_log_softmax", "_fused_rms_norm"))
"""Operators along the last dimension that keep the size: compilers fuse their neighbors into them."""
COPIES: Final = frozenset(("aten::copy_",))
MEMBERS: Final = POINTWISE | REDUCE | ROWS | COPIES | {"aten::cat"}
MOST_INPUTS: Final = 3


@rule(
    "fusable_chains", title="Elementwise kernels pass their results through memory", page="roofline",
    label="Elementwise work on the roofline", color="elementwise",
)  # fmt: skip
def fusable_chains(context: TimeContext) -> Answer:
    """Runs of at least two such calls, adjacent on one stream (on a recording of the host: on one thread)."""
    spec = context.spec
    if spec is None or spec.memory_bandwidth is None:
        return None
    rows = np.flatnonzero(context.named(MEMBERS.__contains__) & context.known & (context.left == context.time) & np.isfinite(context.bytes))
    if len(rows) < 2:
        return None
    rows, follows, before = _in_order(context, rows)
    code, read = context.by_signature(rows)
    out, out_bytes, inputs = (np.array(v)[code] for v in zip(*(_sizes(name, call) for name, call in read), strict=True))
    follows &= (out[before] > 0) & (inputs == out[before][:, None]).any(axis=1)
    name, sizes = arrays.codes(context.ops["name"])[rows], arrays.codes(context.ops["shapes"])[rows]
    follows &= (name != name[before]) | (sizes != sizes[before])  # one call after another over alike tensors: more likely a loop
    follows[0] = False
    # `before` is the row above in the order of the stream, so that a run of `follows` is a chain
    chain = np.cumsum(~follows) - 1
    length = np.bincount(chain)
    member = length[chain] > 1
    if not member.any():
        return None
    total = np.bincount(chain, context.bytes[rows])
    between = np.bincount(chain[follows], 2.0 * out_bytes[before[follows]], minlength=len(total))
    fused = np.maximum(total - between, total / length)
    vector = np.bincount(chain, np.nan_to_num(context.ops["flop_vector"].to_numpy(dtype=np.float64))[rows])
    limit = np.maximum(fused / spec.memory_bandwidth, vector / (spec.vector_peak("fp32") or np.inf)) * 1e9 / context.waterfall.parallel
    spent = np.bincount(chain, context.left[rows])
    saved = np.where(length > 1, np.maximum(spent - limit, 0.0), 0.0)
    use = np.flatnonzero(saved[chain] > 0)
    if not len(use):
        return None
    kept, group = rows[use], chain[use]
    claim = context.claim(kept, context.left[kept] * (saved / np.where(spent > 0, spent, 1.0))[group])
    chains = np.flatnonzero(saved > 0)
    words, most, one = _largest(context, kept, group, saved)
    longest, moved = int(length[chains].max()), float(between[chains].sum())
    lengths = "2" if longest == 2 else f"2 to {longest}"
    what = "operators" if context.on_host else "kernels"
    evidence = (
        f"{subject_verb(len(chains), 'chain', 'takes')} {time_text(spent[chains].sum())}: {lengths} elementwise {what} each, which move "
        f"{human(moved, 'B')} between them; fused the limit is {time_text(limit[chains].sum())}. Most, {time_text(most)} above it: {words}."
    )
    (layer,), _ = arrays.largest([context.ops["layer"]], one, context.time[one])
    fix = fusing(context, claim, f"or only {layer}" if layer else "")
    return context.finding(evidence, claim, fix=fix)


def _in_order(context: TimeContext, rows: Ints) -> tuple[Ints, npt.NDArray[np.bool_], Ints]:
    """Returns (the calls in the order in which their work runs, whether the call above is a neighbor, the place of that call).

    Neighbors have nothing between them on their stream and share a thread.
    """
    if context.on_host:
        place, stop, stream = rows, rows, np.zeros(len(rows), np.int64)
    else:
        first, last, lane = kept_with(context.ops, "fusion.places", lambda: _places(context))
        rows = rows[np.argsort(first[rows], kind="stable")]
        place, stop, stream = first[rows], last[rows], lane[rows]
    thread = thread_of(context, rows)
    before = np.maximum(np.arange(len(rows)) - 1, 0)
    near = (place == stop[before] + 1) & (thread == thread[before]) & (stream == stream[before]) & (place >= 0)
    return rows, near, before


def _places(context: TimeContext) -> tuple[Ints, Ints, Ints]:
    """Returns per call the first and last place of its device rows in the order (device, stream, start), and a number for the stream."""
    device, owner = context.capture.device, context.waterfall.work.owner
    stream, unit = device["stream"].to_numpy(), device["device"].to_numpy()
    lane = unit * (int(stream.max(initial=0)) + 2) + stream
    order = np.argsort(lane, kind="stable")  # rows stand by start already
    owned = np.flatnonzero(owner[order] >= 0)
    first, last, which = (np.full(len(context.ops), -1, np.int64) for _ in range(3))
    first[owner[order][owned][::-1]] = owned[::-1]
    last[owner[order][owned]] = owned
    which[owner[order][owned]] = lane[order][owned]
    return first, last, which


def _sizes(name: str, call: Inputs) -> tuple[int, int, tuple[int, ...]]:
    """Returns (elements of the result, its bytes, elements of the operands); 0 where unknown."""
    tensors = [*call.tensors(0)] if name == "aten::cat" else [t for t in (call.tensor(i) for i in range(MOST_INPUTS)) if t is not None]
    operands = tensors[1:2] if name in COPIES else tensors
    inputs = tuple(t.numel for t in operands[:MOST_INPUTS])
    padded = (*inputs, *(-1 for _ in range(MOST_INPUTS - len(inputs))))
    result = _result(name, call, tensors)
    if result is None:
        return 0, 0, padded
    elements, dtype = result
    return elements, elements * BITS.get(dtype, 0) // 8, padded


def _result(name: str, call: Inputs, tensors: list[Tensor]) -> tuple[int, str] | None:
    if not tensors:
        return None
    if name == "aten::cat":
        return sum(t.numel for t in tensors), tensors[0].dtype or call.hint
    if name in COPIES or name in ROWS or name.endswith("_"):
        return tensors[0].numel, tensors[0].dtype
    if name in REDUCE:
        dims = call.ints(1)
        shape = tensors[0].shape
        if not call.has_values:
            return None
        left = 1 if dims is None else prod(n for d, n in enumerate(shape) if d not in {i % len(shape) for i in dims if shape})
        return left, tensors[0].dtype
    joined = broadcast(*(t.shape for t in tensors))
    if joined is None:
        return None
    if name.removeprefix("aten::") in COMPARE:
        return prod(joined), "bool"
    full = [t.dtype for t in tensors if t.shape] or [tensors[0].dtype]
    return prod(joined), wider(*(d for d in full if d != "bool")) or full[0]


def _largest(context: TimeContext, rows: Ints, group: Ints, saved: Floats) -> tuple[str, float, Ints]:
    """Returns the kind of chain that wastes most, as `pow → mean → add` over its sizes, how much, and the calls of one."""
    names = arrays.codes(context.ops["name"])[rows]
    shapes = arrays.codes(context.ops["shapes"])[rows]
    edge = np.flatnonzero(np.concatenate(([True], group[1:] != group[:-1])))
    weight = (names + 1) * 1_000_003 + (shapes + 1)
    turn = np.arange(len(rows)) - np.repeat(edge, np.diff(np.concatenate((edge, [len(rows)]))))
    with np.errstate(over="ignore"):
        key = np.add.reduceat(weight * (turn * 2_654_435_761 + 1), edge)
    kinds, first, which = np.unique(key, return_index=True, return_inverse=True)
    time = np.bincount(which.reshape(-1), saved[group[edge]], minlength=len(kinds))
    best = int(time.argmax())
    begin = int(edge[first[best]])
    end = int(np.concatenate((edge, [len(rows)]))[first[best] + 1])
    chain = [str(n).removeprefix("aten::") for n in arrays.pick(context.ops["name"], rows[begin:end]).tolist()]
    if len(chain) > 6:
        chain = [*chain[:3], "…", *chain[-2:]]
    shape = str(arrays.pick(context.ops["shapes"], rows[[begin]])[0])
    often = times_text(int((which.reshape(-1) == best).sum()))
    return f"`{' → '.join(chain)}`{f' over {shape}' if shape else ''}, {often}", float(time[best]), rows[begin:end]


# -- Optimizer steps that are not fused ------------------------------------------------------------------------------
# many kernels over the parameters, or lists of them, where one pass would do.
#
# A fused step reads parameter, gradient and state once and writes parameter and state once: 7 arrays for Adam and its kin
# (p, g, m, v read; p, m, v written), 5 for SGD with momentum, 3 without.


STEP: Final = re.compile(r"^Optimizer\.step#(\w+)\.step$")
FUSED: Final = re.compile(r"_fused_|[Ff]used_?(Adam|SGD|LAMB|Lion|Adagrad)|multi_tensor_(adam|sgd|lamb)|^triton_|DeepSpeedCPUAdam")
"""Names of operators and kernels that do the whole update in one pass."""
HAS_FUSED: Final = ("Adam", "AdamW", "SGD", "Adagrad")
"""Optimizers of torch.optim with `fused=True`."""


def _is_fused(name: str) -> bool:
    return FUSED.search(name) is not None


LAUNCH_GAP_NS: Final = 200_000
"""More idle time per kernel than 200 µs has another cause than launching it."""
LEAST_CALLS: Final = 8
"""Fewer operator calls per step than this are as good as fused."""


@rule(
    "unfused_optimizer", title="The optimizer takes many passes over its parameters", page="phases",
    label="The optimizer among the phases", color="elementwise",
)  # fmt: skip
def unfused_optimizer(context: TimeContext) -> Answer:
    """Finds time of the optimizer's calls above one pass over its arrays, and the device's idle time inside it."""
    h = at.host(context.capture)
    name = context.capture.host["name"]
    steps = _optimizer_steps(context)
    steps = steps[iv.overlap_with(h.start[steps], h.stop[steps], context.waterfall.windows) > 0]
    if not len(steps):
        return None
    if _inside(context, steps, at.named(context.capture, S.OPERATOR, _is_fused)).any():
        return None
    rows = np.flatnonzero(context.left > 0)
    rows = rows[_inside(context, steps, context.ops["host"].to_numpy()[rows])]
    kernels = _kernels(context, steps)
    count = len(rows) if context.on_host else len(kernels)
    if len(rows) < LEAST_CALLS * len(steps):
        return None
    if arrays.per_text(context.capture.device["name"], kernels, _is_fused).any():
        return None
    (full,), _ = arrays.largest([name], steps, np.ones(len(steps)))
    kind = next(iter(STEP.findall(full)), "")
    spent = float(context.left[rows].sum())
    passed, elements, size = _parameters(context, rows)
    spec = context.spec
    bandwidth = spec.memory_bandwidth if spec is not None else None
    limit = passed * size / bandwidth * 1e9 / context.waterfall.parallel if bandwidth and size else None
    claim = context.claim(rows, context.left[rows] * (1 - limit / spent)) if limit is not None and spent > limit else None
    idle = _launch_gaps(context, iv.union(h.start[steps], h.stop[steps]), len(kernels))
    if (claim is None or not claim.ns.any()) and not len(idle[0]):
        return None
    each = human(round(count / len(steps)), "count")
    evidence = f"`{kind}` updates its parameters with {each} {'operators' if context.on_host else 'kernels'} a step, {time_text(spent)}"
    if limit:
        size_each = human(round(elements / context.waterfall.steps), "count")
        evidence += f"; one pass over {passed} arrays of {size_each} elements has a limit of {time_text(limit)}"
    if len(idle[0]):
        evidence += f"; the {device_word(context.capture)} idles {time_text(iv.length(idle))} meanwhile"
    return context.finding(
        evidence + ".",
        claim,
        idle=idle,
        fix=_optimizer_fix(context, kind, rows, kernels),
        names=context.phases_of(steps),
    )


def fused_fix(context: TimeContext, spans: iv.Spans) -> str:
    """Returns the advice to fuse the optimizer in whose step over half of some time passes on the host; "" where that is none to fuse."""
    h, name, steps = at.host(context.capture), context.capture.host["name"], _optimizer_steps(context)
    time = iv.overlap_with(h.start[steps], h.stop[steps], spans)
    if 2 * int(time.sum()) <= iv.length(spans):
        return ""
    (full,), _ = arrays.largest([name], steps, time.astype(np.float64))
    kind = next(iter(STEP.findall(full)), "")
    if kind not in HAS_FUSED or _inside(context, steps, np.flatnonzero(at.where_named(context.capture, _is_fused))).any():
        return ""
    return f"torch.optim.{kind}(model.parameters(), fused=True)  # one call instead of several on the host"


def _optimizer_steps(context: TimeContext) -> Ints:
    """Returns the host rows of the ranges that torch puts around the step of an optimizer."""
    return at.named(context.capture, S.ANNOTATION, lambda n: STEP.match(n) is not None)


def _optimizer_fix(context: TimeContext, kind: str, rows: Ints, kernels: Ints) -> str:
    """Returns how to make one pass of an optimizer's calls; what torch.compile has made already is not told to compile."""
    if kind in HAS_FUSED:
        return f"torch.optim.{kind}(model.parameters(), fused=True)"
    if context.on_host:
        made = compiled_calls(context.capture, context.ops["host"].to_numpy()[rows].astype(np.int64))
    else:
        made = compiled_rows(context.capture, kernels.astype(np.int64))
    return NOT_FUSED if 2 * int(made.sum()) > len(made) else "step = torch.compile(optimizer.step)"


def _launch_gaps(context: TimeContext, inside: iv.Spans, kernels: int) -> iv.Spans:
    """Takes the device's idle time inside the optimizer, where it is short enough per kernel to come from launching many; else nothing."""
    if context.on_host or not kernels:
        return iv.empty()
    idle = iv.length(iv.intersect(context.waterfall.idle, inside))
    return context.ledger.take_idle(inside) if idle <= LAUNCH_GAP_NS * kernels else iv.empty()


def _inside(context: TimeContext, steps: Ints, rows: npt.NDArray[np.integer]) -> Mask:
    """Returns which of some host rows are one of others, or lie below it; -1 does not."""
    end = at.host(context.capture).end
    return np.asarray(above(outermost(steps, end), end, rows) >= 0, np.bool_)


def _kernels(context: TimeContext, steps: Ints) -> Ints:
    """Returns device rows with own time that were launched in some steps of optimizers."""
    if context.on_host:
        return np.zeros(0, np.int64)
    rows = np.flatnonzero(context.waterfall.own > 0)
    return rows[_inside(context, steps, context.capture.device["call"].to_numpy()[rows])]


def _parameters(context: TimeContext, rows: Ints) -> tuple[int, int, int]:
    """Returns (arrays that one pass moves, elements of all parameters over all steps, their bytes); (0, 0, 0) where sizes are not recorded.

    `addcdiv_` runs once per parameter and marks Adam and its kin; `mul_` without it the momentum of SGD; else `add_` is all there is.
    """
    code, read = context.by_signature(rows)
    calls = np.bincount(code, minlength=len(read)).tolist()
    _, first = np.unique(code, return_index=True)
    types = arrays.pick(context.ops["dtype"], rows[first]).tolist()  # of lists the type is not recorded: the one that the cost model took
    for verb, passed in (("addcdiv", 7), ("mul", 5), ("add", 3)):
        name = re.compile(rf"aten::(_foreach_)?{verb}_?")
        found = [
            (n * t.numel, t.dtype or dtype)
            for n, dtype, (operator, call) in zip(calls, types, read, strict=True)
            if name.fullmatch(operator)
            for t in _first(call)
        ]
        elements = sum(n for n, _ in found)
        if elements:
            return passed, elements, sum(n * BITS.get(dtype, 32) // 8 for n, dtype in found)
    return 0, 0, 0


def _first(call: Inputs) -> tuple[Tensor, ...]:
    """Returns the tensors that a call updates."""
    one = call.tensor(0)
    return (one,) if one is not None else call.tensors(0)
