"""Puts intervals into lanes, so that those of one lane never overlap: nested ones one lane deeper, others on the first free lane.

Intervals are sorted by track, start, then the longest first. An interval may start where the previous one of its lane ends;
one without length takes no room.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

LOADING_PAYS = 20_000
"""Overlapping intervals from which on loading the compiled loop pays."""


def lanes(track: Rows, start: Ints, end: Ints, *, nested: bool = True) -> Rows:
    """Returns the lane of each interval within its track, from 0. Rows sorted by track, start, end descending. O(n log n).

    nested: one that lies inside of another is in a deeper lane; otherwise each is on the first that is free, on as few as there can be.
    """
    if not len(start):
        return np.zeros(0, np.int32)
    out = np.zeros(len(start), np.int32)
    for first, last in overlapping(track, start, end):
        out[first:last] = _lanes(start[first:last], end[first:last], nested)
    return out


def overlapping(track: Rows, start: Ints, end: Ints) -> list[tuple[int, int]]:
    """Returns ranges of rows, one per track, in which an interval starts before the previous one ends."""
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(track)) + 1, [len(track)]))
    inside = start[1:] < end[:-1]
    inside[bounds[1:-1] - 1] = False
    some = np.logical_or.reduceat(np.append(inside, False), bounds[:-1])
    return [(int(bounds[i]), int(bounds[i + 1])) for i in np.flatnonzero(some)]


def _lanes(start: Ints, end: Ints, nested: bool) -> Rows:
    kernel = lanes_kernel.of(len(start), LOADING_PAYS)
    found: Rows = kernel(fixed(start, np.int64), fixed(end, np.int64), nested)
    return found


def load() -> None:
    """Loads the compiled loop ahead of time, as `tree.load` does."""
    lanes_kernel(*(fixed((), np.int64),) * 2, True)


@compiled()
def lanes_kernel(start: npt.NDArray[np.int64], end: npt.NDArray[np.int64], nested: bool) -> npt.NDArray[np.int32]:
    """Returns the lane of each interval of one track.

    A stack holds the intervals that contain the current one; a tree over the lanes holds where each is free, so that many lanes cost log n.
    """
    count = len(start)
    out = np.zeros(count, np.int32)
    stack_end = np.empty(count, np.int64)
    stack_lane = np.empty(count, np.int32)
    top = -1
    size = 64
    free = np.full(2 * size, np.int64(-(2**63)), np.int64)  # node i: the earliest time at which a lane below it is free
    for row in range(count):
        while top >= 0 and (stack_end[top] <= start[row] or stack_end[top] < end[row]):
            top -= 1
        base = stack_lane[top] + 1 if top >= 0 and nested else 0
        lane = -1
        while lane < 0:
            node = base + size if base < size else 0
            while node > 0:  # the first leaf from base on that is free: up while it is not, to the right, then down to the left
                if free[node] <= start[row]:
                    while node < size:
                        node *= 2
                        if free[node] > start[row]:
                            node += 1
                    lane = node - size
                    break
                while node > 1 and node & 1:
                    node >>= 1
                node = node + 1 if node > 1 else 0
            if lane < 0:
                wider = np.full(4 * size, np.int64(-(2**63)), np.int64)
                wider[2 * size : 3 * size] = free[size:]
                size *= 2
                for at in range(size - 1, 0, -1):
                    wider[at] = min(wider[2 * at], wider[2 * at + 1])
                free = wider
        out[row] = lane
        node = lane + size
        free[node] = end[row]
        node >>= 1
        while node:
            free[node] = min(free[2 * node], free[2 * node + 1])
            node >>= 1
        top += 1
        stack_end[top] = end[row]
        stack_lane[top] = lane
    return out
