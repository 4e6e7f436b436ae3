"""Puts intervals into lanes, so that those of one lane never overlap: nested ones one lane deeper, others on the first free lane.

Intervals are sorted by track, start, then the longest first. An interval may start where the previous one of its lane ends;
one without length takes no room.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

LOADING_PAYS = 20_000
"""Overlapping intervals from which on loading the compiled loops pays."""
How = Literal["nested", "spanning", "packed"]
"""nested: one that lies inside of another is in a deeper lane, one that overlaps it in part on the first free lane below what holds both.
spanning: so, but of two that overlap in part the longer one stays where it is, and the shorter moves below all that runs meanwhile, with
what lies inside of it: no lanes remain empty above the longer one. packed: each on the first that is free, on as few as there can be.
"""


def lanes(track: Rows, start: Ints, end: Ints, how: How = "nested") -> Rows:
    """Returns the lane of each interval within its track, from 0. Rows sorted by track, start, end descending. O(n log n)."""
    if not len(start):
        return np.zeros(0, np.int32)
    out = np.zeros(len(start), np.int32)
    for first, last in overlapping(track, start, end):
        out[first:last] = _lanes(start[first:last], end[first:last], how)
    return out


def overlapping(track: Rows, start: Ints, end: Ints) -> list[tuple[int, int]]:
    """Returns ranges of rows, one per track, in which an interval starts before the previous one ends."""
    bounds = np.concatenate(([0], np.flatnonzero(np.diff(track)) + 1, [len(track)]))
    inside = start[1:] < end[:-1]
    inside[bounds[1:-1] - 1] = False
    some = np.logical_or.reduceat(np.append(inside, False), bounds[:-1])
    return [(int(bounds[i]), int(bounds[i + 1])) for i in np.flatnonzero(some)]


def _lanes(start: Ints, end: Ints, how: How) -> Rows:
    start, end = fixed(start, np.int64), fixed(end, np.int64)
    count = len(start)
    out, least, around = np.full(count, -1, np.int32), np.zeros(count, np.int32), np.full(count, -1, np.int32)
    if how == "nested":
        nested_kernel.of(count, LOADING_PAYS)(start, end, around)
    elif how == "spanning":
        spanning_kernel.of(count, LOADING_PAYS)(start, end, around, least, out)
    free_kernel.of(count, LOADING_PAYS)(start, end, fixed(around, np.int32), fixed(least, np.int32), out)
    return out


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does."""
    none = fixed((), np.int64)
    rows = np.zeros(0, np.int32)
    nested_kernel(none, none, rows)
    spanning_kernel(none, none, rows, rows, rows)
    free_kernel(none, none, fixed(rows, np.int32), fixed(rows, np.int32), rows)


@compiled()
def nested_kernel(start: Ints, end: Ints, around: Rows) -> None:
    """Finds the last interval that contains each one."""
    stack = np.empty(len(start), np.int32)
    top = -1
    for row in range(len(start)):
        while top >= 0 and (end[stack[top]] <= start[row] or end[stack[top]] < end[row]):
            top -= 1
        around[row] = stack[top] if top >= 0 else -1
        top += 1
        stack[top] = row


@compiled()
def spanning_kernel(start: Ints, end: Ints, around: Rows, least: Rows, out: Rows) -> None:
    """Finds the lanes of those that stay where they are, how many of these there are beside each of the others, and what is around each.

    On the stack, one that overlaps in part what is there takes it in: `low` is the first of them, `longest` the length of the longest.
    """
    count = len(start)
    row_of, low, aside = np.empty(count, np.int32), np.empty(count, np.int32), np.zeros(count, np.bool_)
    longest = np.empty(count, np.int64)
    moved = np.zeros(count + 1, np.int32)  # at each row, how many more or fewer groups of rows that move it is in than the one before
    top = -1
    for row in range(count):
        length = end[row] - start[row]
        while top >= 0 and end[row_of[top]] <= start[row]:
            top -= 1
        first, most = row, np.int64(-1)
        while top >= 0 and end[row_of[top]] < end[row]:
            first, most = low[top], max(most, longest[top])
            top -= 1
        around[row] = row_of[top] if top >= 0 else -1
        away = top >= 0 and aside[top]
        if most >= 0:
            shorter = length <= most
            moved[row if shorter else first] += 1
            moved[row + 1 if shorter else row] -= 1
            if shorter:
                away = True
            else:
                first, most = row, length
        if away and most < 0:
            moved[row] += 1
            moved[row + 1] -= 1
        top += 1
        row_of[top], low[top], longest[top], aside[top] = row, first, max(most, length), away
    size = 1
    while size < count:
        size *= 2
    deepest = np.zeros(2 * size, np.int32)  # a tree over the rows: lanes down to that of the deepest that stays
    top, depth = -1, 0
    for row in range(count):
        depth += moved[row]
        while top >= 0 and end[row_of[top]] <= start[row]:
            top -= 1
        least[row] = top + 1
        if not depth:
            top += 1
            out[row] = top
            row_of[top] = row
            deepest[size + row] = top + 1
    for node in range(size - 1, 0, -1):
        deepest[node] = max(deepest[2 * node], deepest[2 * node + 1])
    for row in range(count):
        if out[row] >= 0:
            continue
        left, right = size + row, size + np.searchsorted(start, end[row])
        while left < right:
            if left & 1:
                least[row] = max(least[row], deepest[left])
                left += 1
            if right & 1:
                right -= 1
                least[row] = max(least[row], deepest[right])
            left >>= 1
            right >>= 1


@compiled()
def free_kernel(start: Ints, end: Ints, around: Rows, least: Rows, out: Rows) -> None:
    """Finds the first free lane of each interval that has none, from `least` on and below what is around it, where that had none either.

    A tree over the lanes holds where each is free, so that many lanes cost log n.
    """
    size = 64
    given = out >= 0
    free = np.full(2 * size, np.int64(-(2**63)), np.int64)  # node i: the earliest time at which a lane below it is free
    for row in range(len(start)):
        if given[row]:
            continue
        base = least[row]
        if around[row] >= 0 and not given[around[row]]:
            base = max(base, out[around[row]] + 1)
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
