"""Puts the nodes of a graph in an order in which each stands after all that it waits for (Kahn 1962), in a compiled loop."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

LOADING_PAYS: Final = 20_000
"""Nodes up to which the plain loop costs less than loading the compiled one."""


def topological_order(first: npt.NDArray[np.integer], source: Rows) -> Rows:
    """Returns the nodes so that each stands after all that it waits for. Shorter than there are nodes where a circle is left.

    Edges are sorted by their target: those into node v come from `source[first[v]:first[v + 1]]`.
    """
    nodes = len(first) - 1
    out, head = np.empty(nodes, np.int32), np.full(nodes, -1, np.int32)
    work = (np.empty(len(source), np.int32), np.empty(len(source), np.int32), np.diff(first).astype(np.int32, copy=False))
    found = order_kernel.of(nodes, LOADING_PAYS)(fixed(first, np.int32), fixed(source, np.int32), head, *work, out)
    return out[:found]


def load() -> None:
    """Loads the compiled loop ahead of time, as `tree.load` does."""
    rows = np.zeros(0, np.int32)
    first = fixed(np.zeros(1, np.int32), np.int32)
    order_kernel(first, fixed(rows, np.int32), rows.copy(), rows.copy(), rows.copy(), rows.copy(), rows.copy())


@compiled()
def order_kernel(first, source, head, following, target, waits, out):  # type: ignore[no-untyped-def]
    """Puts nodes in order, each after all it waits for; returns how many.

    head: the first edge out of each node, -1 for none. following, target: of each edge the next one out of its node, and where it goes.
    waits: edges into each node, counted down.
    """
    n = 0
    for v in range(len(waits) - 1, -1, -1):
        for e in range(first[v + 1] - 1, first[v] - 1, -1):
            following[e], target[e] = head[source[e]], v
            head[source[e]] = e
    for v in range(len(waits)):
        if waits[v] == 0:
            out[n] = v
            n += 1
    i = 0
    while i < n:
        e = head[out[i]]
        i += 1
        while e >= 0:
            v = target[e]
            waits[v] -= 1
            if waits[v] == 0:
                out[n] = v
                n += 1
            e = following[e]
    return n
