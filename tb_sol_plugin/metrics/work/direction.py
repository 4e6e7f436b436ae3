"""Which pass an operator call belongs to: forward, backward, or forward run again inside the backward pass (recomputation).

An autograd node names its forward thread; what lies below it is backward work. Activation checkpointing runs forward operators
below a node: these draw sequence numbers of their own, which the operators of a plain backward pass do not. Differentiating a
backward pass (`create_graph=True`) gives its operators sequence numbers too; such nodes hold nothing else, while a node that
recomputes also holds its own gradient without one, or a whole nested backward pass.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import attribution, memo
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables.arrays import Mask

ENGINE: Final = "autograd::engine::evaluate_function"
NODE: Final = re.compile(r"(autograd::engine::evaluate_function.*|.*Backward\d*)", re.DOTALL)
CHECKPOINT: Final = re.compile(r".*checkpoint\w*backward\d*", re.IGNORECASE | re.DOTALL)


def in_backward(capture: Capture) -> Mask:
    """Per host row whether it is or lies below an operator of the backward pass, recomputed forward work left out."""
    return memo(capture, ("work.backward",), lambda: _below(capture, _roots(capture)) & ~recomputed(capture))


def recomputed(capture: Capture) -> Mask:
    """Per host row whether it is or lies below a forward operator that runs again inside the backward pass."""
    return memo(capture, ("work.recomputed",), lambda: _below(capture, _again(capture)))


def _roots(capture: Capture) -> Mask:
    """Per host row whether it is a node of the backward pass."""
    return memo(capture, ("work.backward_roots",), lambda: _find_roots(capture))


def _find_roots(capture: Capture) -> Mask:
    host, table = capture.host, capture.tables["operators"]
    roots = arrays.where(host["name"], lambda name: name.startswith(ENGINE))
    roots[table["host"].to_numpy()[table["forward_thread"].to_numpy() > 0]] = True
    return roots


def _again(capture: Capture) -> Mask:
    """Host rows of the recomputed operators themselves, inner ones among them."""
    host, table = capture.host, capture.tables["operators"]
    out = np.zeros(len(host), bool)
    nodes = _roots(capture)
    if not nodes.any():
        return out
    rows = table["host"].to_numpy()
    below = _below(capture, nodes)[rows]
    is_node = arrays.where(host["name"], lambda name: NODE.fullmatch(name) is not None)
    candidate = below & (table["sequence"].to_numpy() >= 0) & (table["forward_thread"].to_numpy() <= 0) & ~is_node[rows]
    if not candidate.any():
        return out
    h = attribution.host(capture)

    def around(mask: Mask, of: npt.NDArray[np.integer]) -> npt.NDArray[np.int32]:
        return tree.nearest(mask, h.parent, h.stop, h.parent[of], h.start[of])

    node = around(nodes, rows[candidate])
    inside = np.flatnonzero(below & ~candidate & ~is_node[rows])
    bare = inside[nodes[np.maximum(around(h.kind == S.OPERATOR, rows[inside]), 0)]]
    bare = bare[_has_tensor(capture)[bare]]
    mixed = np.zeros(len(host), bool)
    mixed[around(nodes, rows[bare])] = True
    nested = np.zeros(len(host), bool)
    engine = np.flatnonzero(arrays.where(host["name"], lambda name: name.startswith(ENGINE)))
    above = around(nodes, engine)
    nested[above[above >= 0]] = True
    named = arrays.where(host["name"], lambda name: CHECKPOINT.fullmatch(name) is not None)
    use = (mixed & _seen_forward(capture, rows[candidate], node, candidate, below)) | nested | named
    out[rows[candidate][use[node]]] = True
    return out


def _has_tensor(capture: Capture) -> Mask:
    """Per row of `operators` whether it has an argument with sizes; allocations and views of nothing say nothing about the pass."""
    return arrays.where(capture.tables["operators"]["shapes"], lambda text: any(mark.isdigit() for mark in text))


def _seen_forward(capture: Capture, rows: npt.NDArray[np.int32], node: npt.NDArray[np.int32], candidate: Mask, below: Mask) -> Mask:
    """Per host row whether every candidate below that node calls with sizes that the forward pass has too.

    rows, node: host rows of the candidates and of their nodes. candidate, below: per row of `operators`.
    """
    host, table = capture.host, capture.tables["operators"]
    shape = arrays.codes(table["shapes"])
    key = arrays.codes(host["name"])[table["host"].to_numpy()] * (int(shape.max(initial=0)) + 2) + shape
    known = np.isin(key[candidate], np.unique(key[~below]))
    out = np.zeros(len(host), bool)
    out[node] = True
    out[node[~known]] = False
    return out


def _below(capture: Capture, roots: Mask) -> Mask:
    """Per host row whether it is one of `roots` or lies below one."""
    level = np.zeros(len(roots) + 1, np.int64)
    rows = np.flatnonzero(roots)
    level[rows] += 1
    np.subtract.at(level, capture.host["end"].to_numpy()[rows], 1)
    return np.asarray(np.cumsum(level[:-1]) > 0)
