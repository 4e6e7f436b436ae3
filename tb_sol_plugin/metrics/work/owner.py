"""Which operator call owns the work below it, so that nothing is counted twice.

Of nested calls with a model the outermost owns; what lies below gives its device time and no work. A call that only wraps
others (`aten::linear`, `aten::conv2d`, `aten::scaled_dot_product_attention`) owns only where the calls below it explain less
than half of its time and less than half of its matrix work. What no model covers is owned, with unknown cost, by the innermost
operator around the launch.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables import tree
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, Rows


def outermost(rows: npt.NDArray[np.integer], end: Rows) -> Ints:
    """Of host rows in ascending order those that lie below no other of them. end: subtree end of every host row."""
    if not len(rows):
        return np.zeros(0, np.int64)
    reach = np.maximum.accumulate(end[rows])
    return np.asarray(rows[np.concatenate((np.ones(1, bool), rows[1:] >= reach[:-1]))], np.int64)


def above(owners: Ints, end: Rows, rows: npt.NDArray[np.integer]) -> Ints:
    """For each row the owner that it lies below or is, else -1. owners: ascending, none below another."""
    out = np.full(len(rows), -1, np.int64)
    if len(owners):
        slot = np.searchsorted(owners, rows, side="right") - 1
        found = owners[np.maximum(slot, 0)]
        inside = (slot >= 0) & (rows < end[found]) & (rows >= 0)
        out[inside] = found[inside]
    return out


def owners(end: Rows, modelled: Mask, wrapper: Mask, own_ns: Ints, flop: Floats) -> Ints:
    """Host rows that own work, ascending, none below another.

    modelled: rows with a usable cost. own_ns: time that belongs to each row directly (its launches), summed over subtrees here.
    flop: matrix work per row, 0 where it has none or it is unknown.
    """
    total = np.asarray(tree.subtree_sum(own_ns, end), np.int64)
    busy = modelled & (total > 0)
    leaves = outermost(np.flatnonzero(busy & ~wrapper), end)
    wraps = np.flatnonzero(busy & wrapper)
    wraps = wraps[above(leaves, end, wraps) < 0]
    if len(wraps):
        explained = np.zeros(len(end), np.int64)
        explained[leaves] = total[leaves]
        matrix = np.zeros(len(end), np.float64)
        matrix[leaves] = flop[leaves]
        covered, done = np.asarray(tree.subtree_sum(explained, end), np.int64), np.asarray(tree.subtree_sum(matrix, end), np.float64)
        by_time = 2 * covered[wraps] >= total[wraps]
        by_work = (flop[wraps] > 0) & (2 * done[wraps] >= flop[wraps])
        wraps = wraps[~by_time & ~by_work]
    return outermost(np.sort(np.concatenate((leaves, wraps))), end)
