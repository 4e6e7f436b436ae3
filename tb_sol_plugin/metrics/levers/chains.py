"""Elementwise kernels that run one after another over the same elements: each writes what the next one reads.

A compiler makes one kernel of such a chain. Its traffic is that of the chain less every intermediate (written once, read once), as
far as the sizes tell: which tensor is which is not recorded, so an intermediate that is needed later still has to be written.
"""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost import Inputs
from tb_sol_plugin.cost.inputs import BITS, Tensor, broadcast, wider
from tb_sol_plugin.cost.ops.pointwise import BINARY, COMPARE, UNARY
from tb_sol_plugin.metrics.levers.case import Case, thread_of
from tb_sol_plugin.metrics.levers.lever import Lever, acting, times, took
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import human

_PLAIN: Final = (*UNARY, *BINARY, "addcmul", "addcdiv", "lerp", "where", "masked_fill", "native_dropout", "native_dropout_backward",
                 "threshold_backward", "gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward")  # fmt: skip
POINTWISE: Final = frozenset(f"aten::{n}{s}" for n in _PLAIN for s in ("", "_"))
REDUCE: Final = frozenset(f"aten::{n}" for n in ("mean", "sum", "amax", "amin"))
ROWS: Final = frozenset(f"aten::{n}" for n in ("native_layer_norm", "_softmax", "_log_softmax", "_fused_rms_norm"))
"""Operators along the last dimension that keep the size: compilers fuse their neighbours into them."""
COPIES: Final = frozenset(("aten::copy_",))
MEMBERS: Final = POINTWISE | REDUCE | ROWS | COPIES | {"aten::cat"}
MOST_INPUTS: Final = 3


def fusable_chains(case: Case) -> Lever | None:
    """Runs of at least two such calls, adjacent on one stream (on a recording of the host: on one thread)."""
    spec = case.spec
    if spec is None or spec.memory_bandwidth is None:
        return None
    rows = np.flatnonzero(case.named(MEMBERS.__contains__) & case.known & (case.left == case.time) & np.isfinite(case.bytes))
    if len(rows) < 2:
        return None
    rows, follows, before = _in_order(case, rows)
    code, read = case.by_signature(rows)
    out, out_bytes, inputs = (np.array(v)[code] for v in zip(*(_sizes(name, call) for name, call in read), strict=True))
    follows &= (out[before] > 0) & (inputs == out[before][:, None]).any(axis=1)
    name, sizes = arrays.codes(case.ops["name"])[rows], arrays.codes(case.ops["shapes"])[rows]
    follows &= (name != name[before]) | (sizes != sizes[before])  # one call after another over alike tensors: more likely a loop
    follows[0] = False
    # `before` is the row above in the order of the stream, so that a run of `follows` is a chain
    chain = np.cumsum(~follows) - 1
    length = np.bincount(chain)
    member = length[chain] > 1
    if not member.any():
        return None
    total = np.bincount(chain, case.bytes[rows])
    between = np.bincount(chain[follows], 2.0 * out_bytes[before[follows]], minlength=len(total))
    fused = np.maximum(total - between, total / length)
    vector = np.bincount(chain, np.nan_to_num(case.ops["flop_vector"].to_numpy(dtype=np.float64))[rows])
    limit = np.maximum(fused / spec.memory_bandwidth, vector / (spec.vector_peak("fp32") or np.inf)) * 1e9 / case.fall.parallel
    spent = np.bincount(chain, case.left[rows])
    saved = np.where(length > 1, np.maximum(spent - limit, 0.0), 0.0)
    use = np.flatnonzero(saved[chain] > 0)
    if not len(use):
        return None
    kept, group = rows[use], chain[use]
    claimed = case.claim(kept, case.left[kept] * (saved / np.where(spent > 0, spent, 1.0))[group])
    chains = np.flatnonzero(saved > 0)
    words, most, one = _largest(case, kept, group, saved)
    longest, moved = int(length[chains].max()), float(between[chains].sum())
    lengths = "2" if longest == 2 else f"2 to {longest}"
    what = "operators" if case.on_host else "kernels"
    evidence = (
        f"{acting(len(chains), 'chain', 'takes')} {took(spent[chains].sum())}: {lengths} elementwise {what} each, which move "
        f"{human(moved, 'B')} between them; fused the limit is {took(limit[chains].sum())}. Most, {took(most)} above it: {words}."
    )
    (layer,), _ = arrays.largest([case.ops["layer"]], one, case.time[one])
    fix = f"torch.compile(model)  # or only {layer}" if layer else "torch.compile(model)"
    return Lever(
        "fusable_chains", "Elementwise kernels pass their results through memory", evidence, case.each(float(claimed.sum())),
        fix, "elementwise", "roofline", "Elementwise work on the roofline",
        find=str(arrays.pick(case.ops["name"], one)[0]), rows=kept, claimed=claimed,
    )  # fmt: skip


def _in_order(case: Case, rows: Ints) -> tuple[Ints, npt.NDArray[np.bool_], Ints]:
    """(the calls in the order in which their work runs, whether the call above is a neighbour, the place of that call).

    Neighbours have nothing between them on their stream and share a thread.
    """
    if case.on_host:
        place, stop, stream = rows, rows, np.zeros(len(rows), np.int64)
    else:
        first, last, lane = _places(case)
        rows = rows[np.argsort(first[rows], kind="stable")]
        place, stop, stream = first[rows], last[rows], lane[rows]
    thread = thread_of(case, rows)
    before = np.maximum(np.arange(len(rows)) - 1, 0)
    near = (place == stop[before] + 1) & (thread == thread[before]) & (stream == stream[before]) & (place >= 0)
    return rows, near, before


def _places(case: Case) -> tuple[Ints, Ints, Ints]:
    """Per call the first and last place of its device rows in the order (device, stream, start), and a number for the stream."""
    device, owner = case.capture.device, case.fall.work.owner
    stream, unit = device["stream"].to_numpy(), device["device"].to_numpy()
    lane = unit * (int(stream.max(initial=0)) + 2) + stream
    order = np.argsort(lane, kind="stable")  # rows stand by start already
    mine = np.flatnonzero(owner[order] >= 0)
    first, last, which = (np.full(len(case.ops), -1, np.int64) for _ in range(3))
    first[owner[order][mine][::-1]] = mine[::-1]
    last[owner[order][mine]] = mine
    which[owner[order][mine]] = lane[order][mine]
    return first, last, which


def _sizes(name: str, call: Inputs) -> tuple[int, int, tuple[int, ...]]:
    """(elements of the result, its bytes, elements of the operands); 0 where unknown."""
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


def _largest(case: Case, rows: Ints, group: Ints, saved: Floats) -> tuple[str, float, Ints]:
    """The kind of chain that wastes most, as `pow → mean → add` over its sizes, how much, and the calls of one."""
    names = arrays.codes(case.ops["name"])[rows]
    shapes = arrays.codes(case.ops["shapes"])[rows]
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
    chain = [str(n).removeprefix("aten::") for n in arrays.pick(case.ops["name"], rows[begin:end]).tolist()]
    if len(chain) > 6:
        chain = [*chain[:3], "…", *chain[-2:]]
    shape = str(arrays.pick(case.ops["shapes"], rows[[begin]])[0])
    often = times(int((which.reshape(-1) == best).sum()))
    return f"`{' → '.join(chain)}`{f' over {shape}' if shape else ''}, {often}", float(time[best]), rows[begin:end]
