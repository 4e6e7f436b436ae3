"""Decides which operator call owns the work below it, so that nothing is counted twice.

Of nested calls with a model the outermost owns; what lies below gives its device time and no work. A call that only wraps
others (`aten::linear`, `aten::conv2d`, `aten::scaled_dot_product_attention`) owns only where the calls below it explain less
than half of its time and less than half of its matrix work. What no model covers is owned, with unknown cost, by the innermost
operator around the launch.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.ops.collectives import wire_bytes
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, Rows


def outermost(rows: npt.NDArray[np.integer], end: Rows) -> Ints:
    """Returns those of some host rows, ascending, that lie below no other of them. end: subtree end of every host row."""
    return np.asarray(rows[_outermost(rows, end)], np.int64)


def outermost_operators(capture: Capture) -> Ints:
    """Returns the host rows of operators that no other operator is around, ascending."""
    h = attribution.host(capture)
    return memo(capture, ("ownership.outermost_operators",), lambda: outermost(attribution.of_kind(capture, S.OPERATOR), h.end))


def _outermost(rows: npt.NDArray[np.integer], end: Rows) -> Mask:
    if not len(rows):
        return np.zeros(0, bool)
    reach = np.maximum.accumulate(end[rows])
    return np.concatenate((np.ones(1, bool), rows[1:] >= reach[:-1]))


def above(owners: Ints, end: Rows, rows: npt.NDArray[np.integer]) -> Ints:
    """Returns per row the owner that it lies below or is, else -1. owners: ascending, none below another."""
    out = np.full(len(rows), -1, np.int64)
    if len(owners):
        slot = np.searchsorted(owners, rows, side="right") - 1
        found = owners[np.maximum(slot, 0)]
        inside = (slot >= 0) & (rows < end[found]) & (rows >= 0)
        out[inside] = found[inside]
    return out


def owners(end: Rows, modeled: Mask, wrapper: Mask, own_ns: Ints, flop: Floats) -> Ints:
    """Returns host rows that own work, ascending, none below another.

    modeled: rows with a usable cost. own_ns: time that belongs to each row directly (its launches), summed over subtrees here.
    flop: matrix work per row, 0 where it has none or it is unknown.
    """
    rows = np.flatnonzero(modeled)
    before = np.concatenate((np.zeros(1, np.int64), np.cumsum(own_ns)))
    total = before[end[rows]] - before[rows]
    rows, total = rows[total > 0], total[total > 0]
    wraps_others = wrapper[rows]
    leaves, leaf_ns = rows[~wraps_others], total[~wraps_others]
    outer = _outermost(leaves, end)
    leaves, leaf_ns = leaves[outer].astype(np.int64), leaf_ns[outer]
    wraps, wrap_ns = rows[wraps_others], total[wraps_others]
    free = above(leaves, end, wraps) < 0
    wraps, wrap_ns = wraps[free], wrap_ns[free]
    if len(wraps):
        low, high = np.searchsorted(leaves, wraps), np.searchsorted(leaves, end[wraps])
        covered, done = (np.append(np.zeros(1, v.dtype), np.cumsum(v)) for v in (leaf_ns, flop[leaves]))
        by_time = 2 * (covered[high] - covered[low]) >= wrap_ns
        by_work = (flop[wraps] > 0) & (2 * (done[high] - done[low]) >= flop[wraps])
        wraps = wraps[~by_time & ~by_work]
    return outermost(np.sort(np.concatenate((leaves, wraps))), end)


# -- Which pass an operator call belongs to --------------------------------------------------------------------------
# forward, backward, or forward run again inside the backward pass (recomputation).
#
# An autograd node names its forward thread; what lies below it is backward work. Activation checkpointing runs forward operators
# below a node: these draw sequence numbers of their own, which the operators of a plain backward pass do not. Differentiating a
# backward pass (`create_graph=True`) gives its operators sequence numbers too. What is evidence of recomputation:
#
#   a node of a checkpoint, by its name: all that draws numbers below it runs again
#   a node with a backward pass of its own inside (checkpoints by hand): operators that the forward pass called with the same sizes, where
#     they are most of what the node's own forward operator called
#   a node that also holds its own gradient, without a number (checkpoints on hooks of saved tensors): operators that the forward pass
#     called with the same sizes, where the node's own forward operator is among them
#
# Each operator is judged alone: one that the forward pass did not call, such as the copy of a random state, stays backward work.


ENGINE: Final = "autograd::engine::evaluate_function"
NODE: Final = re.compile(r"(autograd::engine::evaluate_function.*|.*Backward\d*)", re.DOTALL)
CREATION: Final = re.compile(r"aten::(empty|zeros|ones|full|new_|rand|scalar_tensor|arange|resize|set_|is_|detach|as_strided|\w*_like$)")
CHECKPOINT: Final = re.compile(r".*checkpoint\w{0,400}backward\d*", re.IGNORECASE | re.DOTALL)


def in_backward(capture: Capture) -> Mask:
    """Returns per host row whether it is or lies below an operator of the backward pass, recomputed forward work left out."""
    return memo(capture, ("work.backward",), lambda: _below_roots(capture) & ~recomputed(capture))


def recomputed(capture: Capture) -> Mask:
    """Returns per host row whether it is or lies below a forward operator that runs again inside the backward pass."""
    return memo(capture, ("work.recomputed",), lambda: _below(capture, _again(capture)))


def _roots(capture: Capture) -> Mask:
    """Returns per host row whether it is a node of the backward pass."""
    return memo(capture, ("work.backward_roots",), lambda: _find_roots(capture))


def _below_roots(capture: Capture) -> Mask:
    """Returns per host row whether it is or lies below a node of the backward pass."""
    return memo(capture, ("work.below_roots",), lambda: _below(capture, _roots(capture)))


def _find_roots(capture: Capture) -> Mask:
    table = capture.tables["operators"]
    roots = attribution.where_named(capture, lambda name: name.startswith(ENGINE))
    roots[table["host"].to_numpy()[table["forward_thread"].to_numpy() > 0]] = True
    return roots


def _again(capture: Capture) -> Mask:
    """Returns host rows of the recomputed operators themselves, inner ones among them."""
    host, table = capture.host, capture.tables["operators"]
    out = np.zeros(len(host), bool)
    nodes = _roots(capture)
    if not nodes.any():
        return out
    rows = table["host"].to_numpy()
    below = _below_roots(capture)[rows]
    candidate = below & (table["sequence"].to_numpy() >= 0) & (table["forward_thread"].to_numpy() <= 0)
    if not candidate.any():
        return out
    is_node = attribution.where_named(capture, lambda name: NODE.fullmatch(name) is not None)
    candidate &= ~is_node[rows]
    if not candidate.any():
        return out
    h = attribution.host(capture)

    def around(mask: Mask, of: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        return tree.nearest(mask, h.parent, h.stop, h.parent[of], h.start[of], h.end)

    key = _call_keys(capture)
    found = _Candidates(rows[candidate], around(nodes, rows[candidate]), key[candidate])
    inside = np.flatnonzero(below & ~candidate & ~is_node[rows])
    operators = inside[nodes[np.maximum(around(h.kind == S.OPERATOR, rows[inside]), 0)]]
    operators = operators[_of_tensors(capture)[operators]]
    mixed = np.zeros(len(host), bool)
    mixed[around(nodes, rows[operators])] = True
    nested = np.zeros(len(host), bool)
    engine = np.flatnonzero(attribution.where_named(capture, lambda name: name.startswith(ENGINE)))
    above_engine = around(nodes, engine)
    nested[above_engine[above_engine >= 0]] = True
    named = attribution.where_named(capture, lambda name: CHECKPOINT.fullmatch(name) is not None)
    use = (mixed & _runs_own_forward(capture, found)) | (nested & _runs_inside_of_forward(capture, found, key))
    seen = np.isin(found.key, np.unique(key[~below]))
    out[found.rows[named[found.node] | (use[found.node] & seen)]] = True
    return out


class _Candidates(NamedTuple):
    """Operators below nodes of the backward pass that drew sequence numbers: their host rows, those of their nodes, and `_call_keys`."""

    rows: npt.NDArray[np.int32]
    node: npt.NDArray[np.int32]
    key: Ints


def _of_tensors(capture: Capture) -> Mask:
    """Returns per row of `operators` whether it works on tensors; allocations and views of nothing say nothing about the pass.

    By the recorded sizes, in a recording without sizes by the name.
    """
    table = capture.tables["operators"]
    out = arrays.where(table["shapes"], lambda text: any(mark.isdigit() for mark in text))
    if out.any():
        return out
    creates = attribution.where_named(capture, lambda name: CREATION.match(name) is not None)
    return np.asarray(~creates[table["host"].to_numpy()])


def _call_keys(capture: Capture) -> Ints:
    """Returns per row of `operators` a number for its name and sizes."""
    table = capture.tables["operators"]
    shape = arrays.codes(table["shapes"]).astype(np.int64)
    out: Ints = arrays.codes(capture.host["name"])[table["host"].to_numpy()].astype(np.int64) * (int(shape.max(initial=0)) + 2) + shape
    return out


def _forwards(capture: Capture, nodes: npt.NDArray[np.int32]) -> tuple[Ints, Ints]:
    """Returns pairs (position in `nodes`, host row of a forward operator linked to that node or to the engine's row straight around it)."""
    links, h = capture.tables["backward"], attribution.host(capture)
    linked = np.zeros(len(h.start), bool)
    linked[links["backward"].to_numpy()] = True
    up = h.parent[nodes]
    root = np.where(linked[nodes], nodes, np.where((up >= 0) & linked[np.maximum(up, 0)], up, -1))
    pairs = pd.DataFrame({"place": np.arange(len(nodes)), "backward": root}).merge(links[["forward", "backward"]], on="backward")
    return pairs["place"].to_numpy(np.int64), pairs["forward"].to_numpy(np.int64)


def _runs_own_forward(capture: Capture, found: _Candidates) -> Mask:
    """Returns per host row whether it is a node with its own forward operator among the candidates, or none of its is recorded."""
    nodes, place = np.unique(found.node, return_inverse=True)
    name = arrays.codes(capture.host["name"]).astype(np.int64)
    of, forward = _forwards(capture, nodes)
    ran = np.isin(of * (int(name.max()) + 1) + name[forward], place.reshape(-1) * (int(name.max()) + 1) + name[found.rows])
    out = np.zeros(len(capture.host), bool)
    out[nodes] = True
    out[nodes[of]] = False
    out[nodes[of[ran]]] = True
    return out


def _runs_inside_of_forward(capture: Capture, found: _Candidates, key: Ints) -> Mask:
    """Returns per host row whether it is a node whose candidates are most of what its forward operator called, or that is not recorded."""
    h, rows = attribution.host(capture), capture.tables["operators"]["host"].to_numpy()
    nodes, place = np.unique(found.node, return_inverse=True)
    of, forward = _forwards(capture, nodes)
    mask = np.zeros(len(h.start), bool)
    mask[forward] = True
    called = np.flatnonzero(_of_tensors(capture) & (_below(capture, mask) & ~mask)[rows])
    up = tree.nearest(h.kind == S.OPERATOR, h.parent, h.stop, h.parent[rows[called]], h.start[rows[called]], h.end)
    each = pd.DataFrame({"parent": up, "key": key[called]})
    pairs = pd.DataFrame({"place": of, "parent": forward}).merge(each, on="parent")
    size = int(key.max()) + 1
    ran = np.isin(pairs["place"].to_numpy(np.int64) * size + pairs["key"].to_numpy(np.int64), place.reshape(-1) * size + found.key)
    total = np.bincount(pairs["place"].to_numpy(np.int64), minlength=len(nodes))
    again = np.bincount(pairs["place"].to_numpy(np.int64)[ran], minlength=len(nodes))
    out = np.zeros(len(capture.host), bool)
    out[nodes] = (total == 0) | (2 * again > total)
    return out


def _below(capture: Capture, roots: Mask) -> Mask:
    """Returns per host row whether it is one of `roots` or lies below one."""
    end = capture.host["end"].to_numpy()
    rows = outermost(np.flatnonzero(roots), end)
    if not len(rows):
        return np.zeros(len(roots), np.bool_)
    level = np.zeros(len(roots) + 1, np.int8)
    level[rows] += 1
    level[end[rows]] -= 1  # none lies below another: each begins and ends where no other does
    return np.cumsum(level[:-1], dtype=np.int8).astype(np.bool_)


# -- Bytes that device events move over a link -----------------------------------------------------------------------
# copies between memories and collectives.


LINK_DIRECTIONS: Final = ("HtoD", "DtoH", "PtoP")


def over_link(capture: Capture) -> npt.NDArray[np.bool_]:
    """Returns per device row whether it is a copy that leaves or enters the device."""

    def make() -> Mask:
        leaves = arrays.where(capture.device["direction"], LINK_DIRECTIONS.__contains__)
        return np.asarray((capture.device["kind"].to_numpy() == S.MEMCPY) & leaves, np.bool_)

    return memo(capture, ("work.over_link",), make)


def link_bytes(capture: Capture) -> npt.NDArray[np.float64]:
    """Returns per device row the bytes over the link: of a copy as recorded, of a collective the least that its rank sends; NaN unknown."""
    return memo(capture, ("work.link_bytes",), lambda: _link_bytes(capture))


def _link_bytes(capture: Capture) -> npt.NDArray[np.float64]:
    out = np.full(len(capture.device), np.nan)
    size = capture.device["bytes"].to_numpy()
    copies = over_link(capture) & (size >= 0)
    out[copies] = size[copies]
    table = capture.tables["collectives"]
    if len(table):
        keys = ["name", "in_elements", "out_elements", "dtype", "group_size"]
        number = table.groupby(keys, observed=True, dropna=False, sort=False).ngroup().to_numpy()
        _, first, place = np.unique(number, return_index=True, return_inverse=True)
        rows = table.iloc[first][keys].itertuples(index=False)
        known = [wire_bytes(str(name), int(low), int(high), str(dtype), int(ranks)) for name, low, high, dtype, ranks in rows]
        out[table["device"].to_numpy()] = np.array([np.nan if b is None else b for b in known], np.float64)[place.reshape(-1)]
    return out
