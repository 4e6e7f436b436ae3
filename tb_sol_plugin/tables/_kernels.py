"""The compiled loops of `tree` and `intervals`. Compiled once, kept in numba's cache."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def nearest_kernel(mask, parent, end, rows, times):  # type: ignore[no-untyped-def]
    out = np.full(len(rows), -1, np.int32)
    for i in range(len(rows)):
        row = rows[i]
        while row >= 0:
            if mask[row] and end[row] > times[i]:
                out[i] = row
                break
            row = parent[row]
    return out


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
def intersect_kernel(a_start, a_end, b_start, b_end):  # type: ignore[no-untyped-def]
    """What two clean sets both cover, in one pass over both."""
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


@njit(cache=True, nogil=True)
def subtract_kernel(a_start, a_end, b_start, b_end):  # type: ignore[no-untyped-def]
    """What the first clean set covers and the second does not, in one pass over both."""
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


@njit(cache=True, nogil=True)
def merge_kernel(a_start, a_end, b_start, b_end):  # type: ignore[no-untyped-def]
    """The union of two clean sets, in one pass over both."""
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


@njit(cache=True, nogil=True)
def reach_kernel(group, start, end):  # type: ignore[no-untyped-def]
    """Intervals sorted by (group, start) merged within their group, in place; how many are left."""
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
