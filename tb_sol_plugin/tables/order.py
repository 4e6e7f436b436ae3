"""Puts the nodes of a graph in an order in which each stands after all that it waits for (Kahn 1962), in a compiled loop."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

LOADING_PAYS: Final = 20_000
"""Nodes up to which the plain loop costs less than loading the compiled one."""


def topological_order(first: Ints, source: Rows) -> Rows:
    """Returns the nodes so that each stands after all that it waits for. Shorter than there are nodes where a circle is left.

    Edges are sorted by their target: those into node v come from `source[first[v]:first[v + 1]]`.
    """
    nodes = len(first) - 1
    by_source = np.argsort(source, kind="stable")
    target = np.repeat(np.arange(nodes, dtype=np.int32), np.diff(first))[by_source]
    begin = np.zeros(nodes + 1, np.int64)
    np.cumsum(np.bincount(source, minlength=nodes), out=begin[1:])
    out = np.empty(nodes, np.int32)
    found = order_kernel.of(nodes, LOADING_PAYS)(fixed(begin, np.int64), fixed(target, np.int32), np.diff(first), out)
    return out[:found]


def load() -> None:
    """Loads the compiled loop ahead of time, as `tree.load` does."""
    none = np.zeros(0, np.int64)
    order_kernel(fixed(np.zeros(1, np.int64), np.int64), fixed(none, np.int32), none.copy(), none.astype(np.int32))


@compiled()
def order_kernel(begin, target, waits, out):  # type: ignore[no-untyped-def]
    """Puts nodes in order, each after all it waits for; returns how many. waits: edges into each node, counted down."""
    n = 0
    for v in range(len(waits)):
        if waits[v] == 0:
            out[n] = v
            n += 1
    i = 0
    while i < n:
        u = out[i]
        i += 1
        for e in range(begin[u], begin[u + 1]):
            v = target[e]
            waits[v] -= 1
            if waits[v] == 0:
                out[n] = v
                n += 1
    return n
