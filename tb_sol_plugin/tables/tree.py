"""Trees as arrays over rows in preorder: nesting by a stack, sums over subtrees, walks to ancestors.

Rows are sorted by (thread, start, longest first); the rows of a subtree are `[row, end[row])` and `parent[row] < row`.
A stack is needed: real events end after the event that encloses them (rounding, other recorders), so a method
that trusts the ends, level by level, gives a wrong tree.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

FEW = 100_000
"""Rows below which a walk in numpy costs less than loading the compiled one for the first time (some 0.2 s)."""
LEVELS = 64
"""Levels that `nearest` walks one by one; above them it jumps from one row of the mask to the next."""


def preorder(thread: Rows, start: Ints, end: Ints, rank: npt.NDArray[np.int8]) -> Ints:
    """Order of rows by thread, start, end descending, rank, then position. O(n log n), quick on nearly sorted input.

    thread: small non-negative integers. rank: which of two equal intervals is the outer one (lower first).
    """
    if len(start) == 0:
        return np.zeros(0, np.int64)
    low = int(start.min())
    span = int(start.max()) - low + 1
    if span * (int(thread.max()) + 1) < 2**62:
        key = thread.astype(np.int64) * span + (start - low)
        order = np.argsort(key, kind="stable")
        tie_kernel(key[order], order, end, rank)
        return order
    return np.lexsort((rank, -end, start, thread))


def levels(parent: Ints) -> Iterator[Ints]:
    """Yields the rows of each level, the roots (parent -1) first, ascending within a level; parents in any order. O(n log n)."""
    children = np.argsort(parent, kind="stable")
    begin, end = (np.searchsorted(parent[children], np.arange(len(parent)), side) for side in ("left", "right"))
    level = np.flatnonzero(parent < 0)
    while len(level):
        yield level
        many = end[level] - begin[level]
        within = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        level = np.sort(children[np.repeat(begin[level], many) + within])


def nest(thread: Rows, start: Ints, end: Ints) -> tuple[Rows, Rows, Rows, Mask]:
    """Returns (parent, depth, subtree end, clipped) of rows in preorder.

    parent: the deepest earlier row of the thread whose [start, end) contains this start, -1 if none.
    clipped: the row ends after its parent.
    """
    found: tuple[Rows, Rows, Rows, Mask] = nest_kernel(thread, start, end)
    return found


def subtree_sum(values: npt.NDArray[np.generic], end: Rows) -> npt.NDArray[np.generic]:
    """Sum of `values` over each row's subtree, itself included, by one prefix sum. Integers stay exact."""
    kind = np.float64 if values.dtype.kind == "f" else np.int64
    prefix = np.zeros(len(values) + 1, kind)
    np.cumsum(values, out=prefix[1:])
    out: npt.NDArray[np.generic] = prefix[end] - prefix[:-1]
    return out


def self_time(start: Ints, duration: Ints, parent: Rows) -> Ints:
    """Returns duration less the part that direct children cover; a child that ends after its parent is clipped. Never negative."""
    end = start + duration
    has = parent >= 0
    covered = np.zeros(len(start), np.int64)
    if has.any():
        inside = np.minimum(end[has], end[parent[has]]) - start[has]
        np.add.at(covered, parent[has], np.maximum(inside, 0))
    out: Ints = np.maximum(duration - covered, 0)
    return out


def nearest(mask: Mask, parent: Rows, end: Ints, rows: Rows, times: Ints, last: Rows | None = None) -> Rows:
    """Returns for each of `rows` the innermost row of `mask` among itself and its ancestors whose end lies after `times`.

    rows: -1 gives -1. end: end time of every row. times: one per entry of `rows`, the moment that must be contained
    (ancestors start no later by construction). last: subtree end of every row, where it is at hand: few rows are then found without a walk.
    Rows whose answer is above `LEVELS` levels are finished by `nearest_far`: no depth makes the walk quadratic.
    """
    if len(rows) <= FEW and not nearest_kernel.signatures:
        if last is not None:
            return nearest_by_mask(mask, parent, end, rows, times, last)
        return nearest_by_level(mask, parent, end, rows, times)
    out = _walk(mask, parent, end, rows, times)
    left = np.flatnonzero(out < -1)
    if len(left):
        nearest_far(mask, parent, end, left, -2 - out[left], times, out)
    return out


def load() -> None:
    """Loads the compiled walk ahead of time: a server has the moment for it that one short command has not."""
    none = np.zeros(0, np.int64)
    _walk(none.astype(np.bool_), none.astype(np.int32), none, none.astype(np.int32), none)


def _walk(mask: Mask, parent: Rows, end: Ints, rows: Rows, times: Ints) -> Rows:
    read = (fixed(mask, np.bool_), fixed(parent, np.int32), fixed(end, np.int64), fixed(rows, np.int32), fixed(times, np.int64))
    found: Rows = nearest_kernel(*read, LEVELS)
    return found


def nearest_by_level(mask: Mask, parent: Rows, end: Ints, rows: Rows, times: Ints) -> Rows:
    """Returns the same, all rows going up one level at a time."""
    out = np.full(len(rows), -1, np.int32)
    left = np.flatnonzero(rows >= 0)
    at = rows[left]
    for _ in range(LEVELS):
        if not len(left):
            return out
        found = mask[at] & (end[at] > times[left])
        out[left[found]] = at[found]
        left, at = left[~found], parent[at[~found]]
        inside = at >= 0
        left, at = left[inside], at[inside]
    if len(left):
        nearest_far(mask, parent, end, left, at, times, out)
    return out


def nearest_by_mask(mask: Mask, parent: Rows, end: Ints, rows: Rows, times: Ints, last: Rows) -> Rows:
    """Returns the same from the rows of the mask alone: the last one before each row, then up the tree that they are among themselves."""
    out = np.full(len(rows), -1, np.int32)
    own = np.flatnonzero(mask).astype(np.int32)
    until, ends = last[own], end[own]
    above, _, _, _ = nest(np.zeros(len(own), np.int32), own.astype(np.int64), until.astype(np.int64))
    left = np.flatnonzero(rows >= 0)
    at = (np.searchsorted(own, rows[left], side="right") - 1).astype(np.int32)
    for _ in range(LEVELS):
        there = at >= 0
        left, at = left[there], at[there]
        if not len(left):
            return out
        found = (until[at] > rows[left]) & (ends[at] > times[left])
        out[left[found]] = own[at[found]]
        left, at = left[~found], above[at[~found]]
    if len(left):
        nearest_far(mask, parent, end, left, rows[left], times, out)
    return out


def nearest_far(mask: Mask, parent: Rows, end: Ints, left: Ints, at: Rows, times: Ints, out: Rows) -> None:
    """Writes into `out[left]` the same, from the rows `at` on, by jumps from one row of the mask to the next above it.

    Jumps and the latest end above each row are found by doubling: n log(depth). Rows that no row of the mask contains end at once.
    """
    size = len(parent)
    up = np.append(np.where(parent < 0, size, parent), size)  # the last row stands for none, above roots
    jump = np.append(np.where(mask, np.arange(size), up[:-1]), size)  # of the mask or none: itself
    while not np.array_equal(jump, further := jump[jump]):
        jump = further
    above = up
    latest = np.append(np.where(mask, end, np.iinfo(np.int64).min), np.iinfo(np.int64).min)
    while (above < size).any():
        latest, above = np.maximum(latest, latest[above]), above[above]
    above = jump[up]
    ends = np.append(end, 0)
    at = jump[at]
    while len(left):
        inside = (at < size) & (latest[at] > times[left])
        out[left[~inside]] = -1
        left, at = left[inside], at[inside]
        found = ends[at] > times[left]
        out[left[found]] = at[found]
        left, at = left[~found], above[at[~found]]


def sum_to_ancestors(
    rows: Rows, times: Ints, values: npt.NDArray[np.generic], parent: Rows, end: Ints, group: Rows | None = None
) -> npt.NDArray[np.generic]:
    """Add each value to its row and to every ancestor whose interval contains its time.

    rows: host row per value, -1 skipped. end: end time per host row. Exact also where events overlap in part,
    which a sum over preorder ranges is not. With `group` (int per host row, -1 none) the sums are per group
    and a value counts once per group however often the group nests in itself; without it they are per row.
    """
    size = len(parent) if group is None else (int(group.max()) + 1 if len(group) else 0)
    out = np.zeros(size, np.float64 if values.dtype.kind == "f" else np.int64)
    use = group if group is not None else np.zeros(0, np.int32)
    sum_to_ancestors_kernel(
        rows.astype(np.int32), times, values.astype(out.dtype), parent, end, use.astype(np.int32), group is not None, out
    )
    return out


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


@compiled()
def tie_kernel(key, order, end, rank):  # type: ignore[no-untyped-def]
    """Insertion sort inside runs of equal key: end descending, rank, position. In place on `order`."""
    n = len(order)
    i = 1
    while i < n:
        if key[i] != key[i - 1]:
            i += 1
            continue
        low = i - 1
        high = i
        while high < n and key[high] == key[low]:
            high += 1
        for j in range(low + 1, high):
            item = order[j]
            k = j - 1
            while k >= low:
                other = order[k]
                if end[other] < end[item] or (end[other] == end[item] and rank[other] > rank[item]):
                    order[k + 1] = other
                    k -= 1
                else:
                    break
            order[k + 1] = item
        i = high


@compiled()
def nest_kernel(thread, start, end):  # type: ignore[no-untyped-def]
    n = len(start)
    parent = np.full(n, -1, np.int32)
    depth = np.zeros(n, np.int32)
    last = np.zeros(n, np.int32)
    clipped = np.zeros(n, np.bool_)
    stack = np.zeros(1024, np.int32)
    top = 0
    current = -1
    for i in range(n):
        if thread[i] != current:
            while top > 0:
                top -= 1
                last[stack[top]] = i
            current = thread[i]
        while top > 0 and end[stack[top - 1]] <= start[i]:
            top -= 1
            last[stack[top]] = i
        if top > 0:
            above = stack[top - 1]
            parent[i] = above
            depth[i] = depth[above] + 1
            clipped[i] = end[i] > end[above]
        if top == len(stack):
            bigger = np.zeros(2 * top, np.int32)
            bigger[:top] = stack
            stack = bigger
        stack[top] = i
        top += 1
    while top > 0:
        top -= 1
        last[stack[top]] = n
    return parent, depth, last, clipped


@compiled()
def nearest_kernel(mask, parent, end, rows, times, levels):  # type: ignore[no-untyped-def]
    """Returns what `nearest` does; -2 less the row to go on from where `levels` did not suffice."""
    out = np.full(len(rows), -1, np.int32)
    for i in range(len(rows)):
        row = rows[i]
        left = levels
        while row >= 0:
            if left == 0:
                out[i] = -2 - row
                break
            if mask[row] and end[row] > times[i]:
                out[i] = row
                break
            row = parent[row]
            left -= 1
    return out


@compiled()
def sum_to_ancestors_kernel(rows, times, values, parent, end, group, grouped, out):  # type: ignore[no-untyped-def]
    seen = np.full(len(out) if grouped else 1, -1, np.int64)
    for i in range(len(rows)):
        row = rows[i]
        while row >= 0:
            if end[row] > times[i]:
                if not grouped:
                    out[row] += values[i]
                else:
                    g = group[row]
                    if g >= 0 and seen[g] != i:
                        seen[g] = i
                        out[g] += values[i]
            row = parent[row]
