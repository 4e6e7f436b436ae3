"""Interval algebra on int64 half-open intervals `[start, end)`.

A set of intervals is a pair of arrays `(start, end)`. A set made by `union` is *clean*: sorted, disjoint, without
empty or touching members; every function here answers with a clean set and, unless it says otherwise, wants clean ones.
An interval whose end is not after its start is empty: it covers nothing and is left out.
Everything is exact integer arithmetic: one sort to make a set clean, one compiled pass to combine two clean ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import ranges
from tb_sol_plugin.tables.compiled import Loop, compiled, fixed

Int: TypeAlias = npt.NDArray[np.int64]
Spans: TypeAlias = tuple[Int, Int]
"""Starts and ends of equal length."""


MANY = 10_000
"""Intervals from which on a compiled pass before the sort pays."""
LOADING_PAYS = 100_000
"""Intervals from which on loading a compiled pass pays, before which numpy does the same."""
A_LOOP_PAYS = 5_000
"""The same where a loop of Python does it."""
A_CALL = 500
"""Intervals that take as long as calling numpy does for none. Of a set of more, what lies apart from the other set is not looked at."""


def empty() -> Spans:
    """Returns the set that covers nothing."""
    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def one(start: int, end: int) -> Spans:
    """Returns a set of one interval, or the empty set where end is not after start."""
    return union(np.array([start], np.int64), np.array([end], np.int64))


def union(start: npt.ArrayLike, end: npt.ArrayLike) -> Spans:
    """Merges any intervals, in any order, into a clean set. Raises ValueError for unequal lengths."""
    first, last = np.asarray(start, np.int64), np.asarray(end, np.int64)
    if first.shape != last.shape:
        raise ValueError(f"{first.shape} starts and {last.shape} ends")
    many = MANY if join_kernel.loaded else LOADING_PAYS
    if len(first) > many:  # rows of a table are mostly in order and inside of each other: few are left to sort
        first, last = join_kernel(*_arrays((first, last)))
    else:
        full = last > first
        first, last = first[full], last[full]
    if not len(first):
        return empty()
    if (first[1:] < first[:-1]).any():
        order = np.argsort(first, kind="stable")
        first, last = first[order], last[order]
    reach = np.maximum.accumulate(last)
    opens = np.concatenate(([True], first[1:] > reach[:-1]))
    closes = np.concatenate((opens[1:], [True]))
    return first[opens], reach[closes]


def merge(*sets: Spans) -> Spans:
    """Returns the union of several sets."""
    out = sets[0] if sets else empty()
    for other in sets[1:]:
        if not len(out[0]):  # with nothing, the other one is the union as it is
            out = other
        elif len(other[0]):
            out = _both(merge_kernel, out, other)
    return out


def length(spans: Spans) -> int:
    """Returns what a clean set covers."""
    return int((spans[1] - spans[0]).sum())


def intersect(a: Spans, b: Spans) -> Spans:
    """Returns what both cover."""
    a = facing(a, b)
    return _both(intersect_kernel, a, facing(b, a))


def subtract(a: Spans, b: Spans) -> Spans:
    """Returns what `a` covers and `b` does not."""
    return _both(subtract_kernel, a, facing(b, a)) if len(a[0]) and len(b[0]) else a


def near(spans: Spans, low: int, high: int) -> Spans:
    """Returns the intervals that have a part inside `[low, high)`, whole."""
    some = slice(int(np.searchsorted(spans[1], low, side="right")), int(np.searchsorted(spans[0], high, side="left")))
    return spans[0][some], spans[1][some]


def facing(spans: Spans, others: Spans) -> Spans:
    """Returns the intervals of a set, without some that lie before the first or after the last one of another: all where that is empty."""
    if len(spans[0]) <= A_CALL or not len(others[0]):
        return spans
    return near(spans, int(others[0][0]), int(others[1][-1]))


def _both(kernel: Loop, a: Spans, b: Spans) -> Spans:
    """Returns what a pass over two clean sets finds."""
    found: Spans = kernel.of(len(a[0]) + len(b[0]) + A_CALL, LOADING_PAYS)(*_arrays(a), *_arrays(b))
    return found


def _merged(a_start: Int, a_end: Int, b_start: Int, b_end: Int) -> Spans:
    return union(np.concatenate((a_start, b_start)), np.concatenate((a_end, b_end)))


def _intersection(a_start: Int, a_end: Int, b_start: Int, b_end: Int) -> Spans:
    """Returns the common part of each pair of intervals that have one."""
    first = np.searchsorted(b_end, a_start, side="right")
    pairs = np.searchsorted(b_start, a_end, side="left") - first
    row = np.repeat(np.arange(len(a_start)), pairs)
    other = ranges(first, pairs)
    return np.maximum(a_start[row], b_start[other]), np.minimum(a_end[row], b_end[other])


def _difference(a_start: Int, a_end: Int, b_start: Int, b_end: Int) -> Spans:
    """Returns what the first set has in common with the gaps of the second."""
    if not len(a_start):
        return empty()
    start, end = np.concatenate((a_start[:1], b_end)), np.concatenate((b_start, a_end[-1:]))
    gap = end > start
    return _intersection(a_start, a_end, start[gap], end[gap])


def clip(spans: Spans, low: int, high: int) -> Spans:
    """Returns the part inside `[low, high)`."""
    spans = near(spans, low, high)
    start, end = np.maximum(spans[0], low), np.minimum(spans[1], high)
    full = end > start
    return start[full], end[full]


def gaps(spans: Spans, low: int, high: int) -> Spans:
    """Returns the part of `[low, high)` that is not covered."""
    return subtract(one(low, high), spans)


def exclusive(layers: Sequence[Spans]) -> list[Spans]:
    """Returns layers by priority: each without what the ones before it cover. Their lengths add up to that of the union."""
    out: list[Spans] = []
    taken = empty()
    for place, layer in enumerate(layers):
        out.append(subtract(layer, taken))
        taken = merge(taken, layer) if place < len(layers) - 1 else taken
    return out


def covered_before(spans: Spans) -> Int:
    """Returns covered length before each interval of a clean set."""
    out = np.zeros(len(spans[0]), np.int64)
    np.cumsum((spans[1] - spans[0])[:-1], out=out[1:])
    return out


def covered_until(spans: Spans, at: npt.ArrayLike, before: Int | None = None) -> Int:
    """Returns covered length before each point: a non-decreasing function of `at`; differences give the cover of any window.

    before: `covered_before` of the set, where it is known: then a look at each point is enough.
    """
    points = np.asarray(at, np.int64)
    start, end = spans
    if not len(start):
        return np.zeros(points.shape, np.int64)
    before = covered_before(spans) if before is None else before
    opened = np.searchsorted(start, points, side="right")
    last = np.maximum(opened - 1, 0)
    return np.where(opened > 0, before[last] + np.minimum(end[last], points) - start[last], 0)


def overlap_with(start: npt.ArrayLike, end: npt.ArrayLike, spans: Spans) -> Int:
    """Returns length of each interval `[start, end)` (any, not a clean set) that `spans` covers; 0 for an empty interval."""
    first, last = np.asarray(start, np.int64), np.asarray(end, np.int64)
    if len(first) and len(spans[0]) > A_CALL:
        spans = near(spans, int(first.min()), int(last.max()))
    if len(first) > (MANY if cover_kernel.loaded else LOADING_PAYS):
        covered: Int = cover_kernel(*_arrays((first, last)), *_arrays(spans))
        return covered
    before = covered_before(spans)
    return np.asarray(np.maximum(covered_until(spans, last, before) - covered_until(spans, first, before), 0), np.int64)


def load() -> None:
    """Loads the compiled passes ahead of time, as `tree.load` does."""
    none = np.zeros(0, np.int64)
    join_kernel(*_arrays(empty()))
    for kernel in (cover_kernel, intersect_kernel, subtract_kernel, merge_kernel):
        kernel(*_arrays(empty()), *_arrays(empty()))
    reach_kernel(none, none, none)


def union_within(group: npt.ArrayLike, start: npt.ArrayLike, end: npt.ArrayLike) -> tuple[Int, Int, Int]:
    """Returns `union` of many groups at once: (group, start, end) of the merged intervals, by group and start.

    `group` holds non-negative codes. Each group keeps its own clean set; groups may overlap each other.
    """
    code, first, last = (np.asarray(x, np.int64) for x in (group, start, end))
    full = last > first
    code, first, last = code[full], first[full], last[full]
    if not len(code):
        return np.zeros(0, np.int64), *empty()
    if (first[1:] < first[:-1]).any():
        order = np.lexsort((first, code))
    else:  # in order of start already; few groups are sorted by their digits
        order = np.argsort(code.astype(np.uint16) if int(code.min()) >= 0 and int(code.max()) < 1 << 16 else code, kind="stable")
    code, first, last = code[order], first[order], last[order]
    left = reach_kernel.of(len(code), A_LOOP_PAYS)(code, first, last)
    return code[:left], first[:left], last[:left]


def _arrays(spans: Spans) -> Spans:
    """Returns what the compiled loops take."""
    return fixed(spans[0], np.int64), fixed(spans[1], np.int64)


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


@compiled(forceinline=True)
def search_from(values, value, at):  # type: ignore[no-untyped-def]
    """Returns how many of ascending values are no larger than one: from `at` on in steps that double, before it by halving."""
    n = len(values)
    if at == 0 or values[at - 1] <= value:
        low, step = at, 1
        while low + step <= n and values[low + step - 1] <= value:
            low += step
            step *= 2
        high = min(low + step - 1, n)
    else:
        low, high = 0, at - 1
    while low < high:
        middle = (low + high) // 2
        if values[middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@compiled()
def join_kernel(start, end):  # type: ignore[no-untyped-def]
    """Joins intervals that begin inside of the one before, and leaves out empty ones; what is left covers the same."""
    first = np.empty(len(start), np.int64)
    last = np.empty(len(start), np.int64)
    n = 0
    for i in range(len(start)):
        if end[i] <= start[i]:
            continue
        if n > 0 and first[n - 1] <= start[i] <= last[n - 1]:
            last[n - 1] = max(last[n - 1], end[i])
        else:
            first[n] = start[i]
            last[n] = end[i]
            n += 1
    return first[:n].copy(), last[:n].copy()


@compiled(plain=_intersection)
def intersect_kernel(a_start, a_end, b_start, b_end):  # type: ignore[no-untyped-def]
    """Returns what two clean sets both cover, in one pass over both."""
    start = np.empty(len(a_start) + len(b_start), np.int64)
    end = np.empty(len(start), np.int64)
    i = j = n = 0
    while i < len(a_start) and j < len(b_start):
        low = max(a_start[i], b_start[j])
        high = min(a_end[i], b_end[j])
        if high > low:
            start[n] = low
            end[n] = high
            n += 1
        if a_end[i] < b_end[j]:
            i += 1
        else:
            j += 1
    return start[:n].copy(), end[:n].copy()


@compiled()
def cover_kernel(start, end, low, high):  # type: ignore[no-untyped-def]
    """Returns the length of each interval that a clean set covers. Rows are mostly in order: the search goes on from the last."""
    out = np.zeros(len(start), np.int64)
    count = len(low)
    before = np.zeros(count + 1, np.int64)
    for i in range(count):
        before[i + 1] = before[i] + high[i] - low[i]
    at = 0  # spans that begin before the last start
    for i in range(len(start)):
        if end[i] <= start[i] or count == 0:
            continue
        first = search_from(low, start[i], at)
        last = search_from(low, end[i], first)
        at = first
        covered = before[last] - before[first]
        if last > 0:
            covered -= max(high[last - 1] - end[i], 0)
        if first > 0:
            covered += max(high[first - 1] - start[i], 0)
        out[i] = covered
    return out


@compiled(plain=_difference)
def subtract_kernel(a_start, a_end, b_start, b_end):  # type: ignore[no-untyped-def]
    """Returns what the first clean set covers and the second does not, in one pass over both."""
    start = np.empty(len(a_start) + len(b_start), np.int64)
    end = np.empty(len(start), np.int64)
    j = n = 0
    for i in range(len(a_start)):
        low = a_start[i]
        high = a_end[i]
        while j < len(b_start) and b_end[j] <= low:
            j += 1
        k = j
        while k < len(b_start) and b_start[k] < high:
            if b_start[k] > low:
                start[n] = low
                end[n] = b_start[k]
                n += 1
            low = max(low, b_end[k])
            k += 1
        if low < high:
            start[n] = low
            end[n] = high
            n += 1
        j = max(j, k - 1)
    return start[:n].copy(), end[:n].copy()


@compiled(plain=_merged)
def merge_kernel(a_start, a_end, b_start, b_end):  # type: ignore[no-untyped-def]
    """Returns the union of two clean sets, in one pass over both."""
    start = np.empty(len(a_start) + len(b_start), np.int64)
    end = np.empty(len(start), np.int64)
    i = j = n = 0
    while i < len(a_start) or j < len(b_start):
        if j == len(b_start) or (i < len(a_start) and a_start[i] <= b_start[j]):
            low = a_start[i]
            high = a_end[i]
            i += 1
        else:
            low = b_start[j]
            high = b_end[j]
            j += 1
        if n > 0 and low <= end[n - 1]:
            end[n - 1] = max(end[n - 1], high)
        else:
            start[n] = low
            end[n] = high
            n += 1
    return start[:n].copy(), end[:n].copy()


@compiled()
def reach_kernel(group, start, end):  # type: ignore[no-untyped-def]
    """Merges intervals sorted by (group, start) within their group, in place; returns how many are left."""
    n = 0
    for i in range(len(group)):
        if n > 0 and group[i] == group[n - 1] and start[i] <= end[n - 1]:
            end[n - 1] = max(end[n - 1], end[i])
        else:
            group[n] = group[i]
            start[n] = start[i]
            end[n] = end[i]
            n += 1
    return n
