"""Trees as arrays over rows in preorder: nesting by a stack, sums over subtrees, walks to ancestors.

Rows are sorted by (thread, start, longest first); the rows of a subtree are `[row, end[row])` and `parent[row] < row`.
A stack is needed: real events end after the event that encloses them (rounding, other recorders), so a method
that trusts the ends, level by level, gives a wrong tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

FEW = 100_000
"""Rows below which a walk in numpy costs less than loading the compiled one for the first time (some 0.2 s)."""
LOADING_PAYS = 20_000
"""Rows up to which the plain loop of `nest` costs less than loading the compiled one."""
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
    """Yields the rows of each level, the roots (parent -1) first, ascending within a level; parents in any order. O(n log n).

    A row that no root is above is in none.
    """
    above, depth = parent.astype(np.int64), (parent >= 0).astype(np.int64)
    for _ in range(len(parent).bit_length() + 1):  # each time twice as far up: a deep tree takes as long as a flat one
        below = np.flatnonzero(above >= 0)
        if not len(below):
            break
        depth[below] += depth[above[below]]
        above[below] = above[above[below]]
    rows = np.flatnonzero(above < 0)
    rows = rows[np.argsort(depth[rows], kind="stable")]
    begin = 0
    for size in np.bincount(depth[rows]).tolist():
        yield rows[begin : begin + size]
        begin += size


def nest(thread: Rows, start: Ints, end: Ints) -> tuple[Rows, Rows, Rows, Mask]:
    """Returns (parent, depth, subtree end, clipped) of rows in preorder.

    parent: the deepest earlier row of the thread whose [start, end) contains this start, -1 if none.
    clipped: the row ends after its parent.
    """
    found: tuple[Rows, Rows, Rows, Mask] = nest_kernel.of(len(start), LOADING_PAYS)(thread, start, end)
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
    if len(start) <= FEW and not self_kernel.loaded:
        return self_time_by_columns(start, duration, parent)
    out: Ints = duration.astype(np.int64)  # a copy
    self_kernel(fixed(start, np.int64), fixed(duration, np.int64), fixed(parent, np.int32), out)
    return np.maximum(out, 0, out=out)


def self_time_by_columns(start: Ints, duration: Ints, parent: Rows) -> Ints:
    """Returns what `self_time` does, without a compiled loop that a small table would wait for."""
    end = start + duration
    rows = np.flatnonzero(parent >= 0)
    inside = np.minimum(end[rows], end[parent[rows]]) - start[rows]
    covered = np.zeros(len(start), np.int64)
    np.add.at(covered, parent[rows], np.maximum(inside, 0))
    out: Ints = np.maximum(duration - covered, 0)
    return out


def nearest(mask: Mask, parent: Rows, end: Ints, rows: Rows, times: Ints, last: Rows | None = None) -> Rows:
    """Returns for each of `rows` the innermost row of `mask` among itself and its ancestors whose end lies after `times`.

    rows: -1 gives -1. end: end time of every row. times: one per entry of `rows`, the moment that must be contained
    (ancestors start no later by construction). last: subtree end of every row, where it is at hand: few rows are then found without a walk.
    Rows whose answer is above `LEVELS` levels are finished by `nearest_far`: no depth makes the walk quadratic.
    """
    if len(rows) <= FEW and not nearest_kernel.loaded:
        if last is not None:
            return nearest_by_mask(mask, parent, end, rows, times, last)
        return nearest_by_level(mask, parent, end, rows, times)
    out = _walk(mask, parent, end, rows, times)
    left = np.flatnonzero(out < -1)
    if len(left):
        nearest_far(mask, parent, end, left, -2 - out[left], times, out)
    return out


def load() -> None:
    """Loads the compiled walk and nesting ahead of time: a server has the moment for it that one short command has not."""
    none = np.zeros(0, np.int64)
    nest_kernel(none.astype(np.int32), none, none)
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
    rows: Rows, times: Ints, values: npt.NDArray[np.generic], parent: Rows, end: Ints, last: Rows, group: Rows | None = None
) -> npt.NDArray[np.generic]:
    """Add each value to its row and to every ancestor whose interval contains its time.

    rows: host row per value, -1 skipped. end: end time per host row; last: subtree end. Exact also where events overlap in part,
    which a sum over preorder ranges is not. With `group` (int per host row, -1 none) the sums are per group
    and a value counts once per group however often the group nests in itself; without it they are per row.
    Chains of ancestors that are long for the number of rows are not walked: n log n at any depth.
    """
    size = len(parent) if group is None else (int(group.max()) + 1 if len(group) else 0)
    out = np.zeros(size, np.float64 if values.dtype.kind == "f" else np.int64)
    own = np.arange(size, dtype=np.int32) if group is None else group.astype(np.int32)
    use = rows.astype(np.int32), times, values.astype(out.dtype)
    if sum_to_ancestors_kernel(*use, parent, end, own, group is not None, LEVELS * (len(rows) + len(parent)), out):
        return out
    return _sum_in_order_of_time(*use, end, last, reached_kernel(end, last, own, size), own, np.zeros_like(out))


def _sum_in_order_of_time(
    rows: Rows, times: Ints, values: npt.NDArray[np.generic], end: Ints, last: Rows, reached: Ints, group: Rows, out: npt.NDArray[Any]
) -> npt.NDArray[np.generic]:
    """Adds to each row's group the values of its subtree whose times are below its end, less those that its group has already.

    reached: the latest end that the row's group has above it. What a subtree holds of values up to a time is two sums over the rows before
    its first and its last one, kept in a binary indexed tree while time goes on.
    """
    known = np.flatnonzero(rows >= 0)
    known = known[np.argsort(times[known], kind="stable")]
    asked = np.flatnonzero((group >= 0) & (end > reached))
    row = np.concatenate([asked, asked]).astype(np.int32)
    until = np.concatenate([end[asked], reached[asked]])
    sign = np.repeat(np.array([1, -1], np.int64), len(asked))
    order = np.argsort(until, kind="stable")
    sum_in_order_kernel(rows[known], times[known], values[known], row[order], until[order], sign[order], last, group, out)
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
def self_kernel(start: Ints, duration: Ints, parent: Rows, out: Ints) -> None:
    """Takes from each row's duration in `out` what its direct children cover."""
    for row in range(len(start)):
        above = parent[row]
        if above >= 0:
            out[above] -= max(min(start[row] + duration[row], start[above] + duration[above]) - start[row], 0)


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
def sum_to_ancestors_kernel(rows, times, values, parent, end, group, grouped, most, out):  # type: ignore[no-untyped-def]
    """Returns whether `most` steps up sufficed; `out` holds the sums only then."""
    seen = np.full(len(out) if grouped else 1, -1, np.int64)
    for i in range(len(rows)):
        row = rows[i]
        while row >= 0:
            if most == 0:
                return False
            most -= 1
            if end[row] > times[i]:
                if not grouped:
                    out[row] += values[i]
                else:
                    g = group[row]
                    if g >= 0 and seen[g] != i:
                        seen[g] = i
                        out[g] += values[i]
            row = parent[row]
    return True


@compiled()
def reached_kernel(end, last, group, groups):  # type: ignore[no-untyped-def]
    """Returns per row in preorder the latest end among the rows of its group above it; the least int64 where there is none."""
    none = np.iinfo(np.int64).min
    n = len(end)
    out = np.full(n, none, np.int64)
    latest = np.full(groups, none, np.int64)
    stack = np.zeros(n, np.int32)
    top = 0
    for i in range(n):
        while top > 0 and last[stack[top - 1]] <= i:
            top -= 1
            left = stack[top]
            latest[group[left]] = out[left]
        g = group[i]
        if g >= 0:
            out[i] = latest[g]
            latest[g] = max(latest[g], end[i])
            stack[top] = i
            top += 1
    return out


@compiled()
def sum_in_order_kernel(rows, times, values, row, until, sign, last, group, out):  # type: ignore[no-untyped-def]
    """Adds, times ascending, to the group of each `row` the values of its subtree whose times are below `until`, with a sign."""
    n = len(last)
    sums = np.zeros(n + 1, values.dtype)
    k = 0
    for q in range(len(row)):
        while k < len(rows) and times[k] < until[q]:
            i = rows[k] + 1
            while i <= n:
                sums[i] += values[k]
                i += i & -i
            k += 1
        total = sums[0]
        i = last[row[q]]
        while i > 0:
            total += sums[i]
            i -= i & -i
        i = row[q]
        while i > 0:
            total -= sums[i]
            i -= i & -i
        out[group[row[q]]] += sign[q] * total
