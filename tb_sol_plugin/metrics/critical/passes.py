"""Goes over a graph of moments in compiled loops: replay, latest times, the walk along what holds each moment.

Edges are columns sorted by their target; `first[v]:first[v + 1]` are those into node v. All times and lags are int64 ns.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

LOADING_PAYS: Final = 20_000
"""Nodes up to which the plain loops cost less than loading the compiled ones."""
AT_ONCE: Final = 8
"""Items that are replayed in one pass."""
LANE_BYTES: Final = 64 << 20
"""Memory that such a pass takes at most, but for one item."""
NEVER: Final = 2**62
"""A latest time of what no end waits for."""


def replay(nodes: Rows, first: Ints, source: Rows, lag: Ints, released: Ints) -> Ints:
    """Returns when each node happens: the latest of its sources' times and lags, or `released` where it waits for nothing.

    nodes: in `topological_order`; one that is not among them keeps `released`.
    """
    out = released.astype(np.int64)  # a copy
    replay_into(nodes, first, source, lag, out)
    return out


def replay_into(nodes: Rows, first: Ints, source: Rows, lag: Ints, out: Ints) -> None:
    """Does the same in place: `out` holds when each node that is not replayed happens."""
    read = (fixed(nodes, np.int32), fixed(first, np.int64), fixed(source, np.int32), fixed(lag, np.int64))
    replay_kernel.of(len(nodes), LOADING_PAYS)(*read, out)


def replay_each(nodes: Rows, first: Ints, source: Rows, lag: Ints, released: Ints, item: Ints, items: int, ends: Rows) -> tuple[Ints, Ints]:
    """Returns when the last of `ends` happens where the edges of one item take half of their lag, and where they take none; per item.

    item: of each edge, below `items`, -1 of none. Several are replayed at once, each in two lanes of its own: the graph is read for all.
    """
    half, none = np.zeros(items, np.int64), np.zeros(items, np.int64)
    at_once = max(1, min(AT_ONCE, LANE_BYTES // (16 * max(len(released), 1)), items))
    time = np.repeat(released.astype(np.int64)[:, None], 2 * at_once, axis=1)
    read = (fixed(nodes, np.int32), fixed(first, np.int64), fixed(source, np.int32), fixed(lag, np.int64), fixed(item, np.int32))
    for begin in range(0, items, at_once):
        each_kernel.of(len(nodes) * items, LOADING_PAYS)(*read, begin, time)
        count = min(at_once, items - begin)
        end = time[ends].max(axis=0)
        half[begin : begin + count], none[begin : begin + count] = end[: 2 * count : 2], end[1 : 2 * count : 2]
    return half, none


def latest(nodes: Rows, first: Ints, source: Rows, lag: Ints, ends: Rows, at: Ints) -> Ints:
    """Returns until when each node may happen without a delay of the nodes `ends`, which happen at `at`; NEVER where they do not wait."""
    out = np.full(len(first) - 1, NEVER, np.int64)
    np.minimum.at(out, ends, at)
    read = (fixed(nodes, np.int32), fixed(first, np.int64), fixed(source, np.int32), fixed(lag, np.int64))
    latest_kernel.of(len(nodes), LOADING_PAYS)(*read, out)
    return out


def walk(time: Ints, source: Rows, binding: Rows, end: int, begin_ns: int) -> Rows:
    """Returns the nodes that hold `end`, itself first, back to the first at or before `begin_ns`, or to one that nothing holds."""
    out = np.empty(len(time), np.int32)
    read = (fixed(time, np.int64), fixed(source, np.int32), fixed(binding, np.int32))
    count = walk_kernel.of(len(time), LOADING_PAYS)(*read, end, begin_ns, out)
    return out[:count].copy()


def held_by(nodes: Rows, first: Ints, source: Rows, lag: Ints, time: Ints, binding: Rows) -> Rows:
    """Returns the edge that holds each node at other times: the one that held it before where it still does, else the first that does.

    time: as `replay` gives it for `lag`. binding: before; nodes that are not in `nodes` keep theirs.
    """
    out = binding.astype(np.int32)  # a copy
    read = (fixed(nodes, np.int32), fixed(first, np.int64), fixed(source, np.int32), fixed(lag, np.int64), fixed(time, np.int64))
    held_kernel.of(len(nodes), LOADING_PAYS)(*read, out)
    return out


def innermost(row: Rows, opens: Mask, begins: Mask) -> Rows:
    """Returns per node of the threads the host row that is innermost right after it, -1 for none.

    row, opens: whose start or end each node is, in order of time, thread by thread. begins: first of its thread.
    """
    out = np.full(len(row), -1, np.int32)
    size = int(row.max(initial=-1)) + 1
    read = (fixed(row, np.int32), fixed(opens, np.bool_), fixed(begins, np.bool_))
    innermost_kernel.of(len(row), LOADING_PAYS)(*read, np.zeros(size, np.bool_), np.empty(len(row), np.int32), out)
    return out


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does."""
    none, rows, mask = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.bool_)
    first = np.zeros(1, np.int64)
    of = (fixed(rows, np.int32), fixed(first, np.int64), fixed(rows, np.int32), fixed(none, np.int64))
    replay_kernel(*of, none.copy())
    each_kernel(*of, fixed(rows, np.int32), 0, np.zeros((0, 2), np.int64))
    latest_kernel(*of, none.copy())
    held_kernel(*of, fixed(none, np.int64), rows.copy())
    innermost_kernel(fixed(rows, np.int32), fixed(mask, np.bool_), fixed(mask, np.bool_), mask.copy(), rows.copy(), rows.copy())
    one = np.zeros(1, np.int64)
    walk_kernel(fixed(one, np.int64), fixed(rows, np.int32), fixed(one - 1, np.int32), 0, 0, np.empty(1, np.int32))


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


@compiled()
def replay_kernel(nodes, first, source, lag, out):  # type: ignore[no-untyped-def]
    """Sets each node that waits to the latest of its sources' times and lags."""
    for i in range(len(nodes)):
        v = nodes[i]
        low, high = first[v], first[v + 1]
        if low < high:
            time = out[source[low]] + lag[low]
            for e in range(low + 1, high):
                time = max(time, out[source[e]] + lag[e])
            out[v] = time


@compiled()
def each_kernel(nodes, first, source, lag, item, begin, time):  # type: ignore[no-untyped-def]
    """Does the same in each lane of `time`; item `begin + k` takes half of its lag in lane 2 k, and nothing in the next."""
    lanes = time.shape[1]
    for i in range(len(nodes)):
        v = nodes[i]
        low, high = first[v], first[v + 1]
        for e in range(low, high):
            u = source[e]
            own = 2 * (item[e] - begin)
            if own < 0 or own >= lanes:
                own = -1
            half, none = time[v, own], time[v, own + 1]
            if e == low:
                for k in range(lanes):
                    time[v, k] = time[u, k] + lag[e]
            else:
                for k in range(lanes):
                    time[v, k] = max(time[v, k], time[u, k] + lag[e])
            if own >= 0:
                less, nothing = time[u, own] + lag[e] // 2, time[u, own + 1]
                time[v, own] = less if e == low else max(half, less)
                time[v, own + 1] = nothing if e == low else max(none, nothing)


@compiled()
def latest_kernel(nodes, first, source, lag, out):  # type: ignore[no-untyped-def]
    """Lowers the latest time of each source to that of its targets less the lag, targets first."""
    never = 2**62
    for i in range(len(nodes) - 1, -1, -1):
        v = nodes[i]
        if out[v] < never:
            for e in range(first[v], first[v + 1]):
                u = source[e]
                out[u] = min(out[u], out[v] - lag[e])


@compiled()
def held_kernel(nodes, first, source, lag, time, out):  # type: ignore[no-untyped-def]
    """Sets for each node an edge whose source and lag give its time; the one it has stays where it does."""
    for i in range(len(nodes)):
        v = nodes[i]
        e = out[v]
        if e < 0 or time[source[e]] + lag[e] == time[v]:
            continue
        for e in range(first[v], first[v + 1]):
            if time[source[e]] + lag[e] == time[v]:
                out[v] = e
                break


@compiled()
def walk_kernel(time, source, binding, end, begin, out):  # type: ignore[no-untyped-def]
    """Writes the nodes from `end` back along what holds each; returns how many."""
    v = end
    out[0] = v
    n = 1
    while time[v] > begin and binding[v] >= 0:
        v = source[binding[v]]
        out[n] = v
        n += 1
    return n


@compiled()
def innermost_kernel(row, opens, begins, closed, stack, out):  # type: ignore[no-untyped-def]
    """Keeps a stack of what is open on a thread; what ends before what it holds stays below until that ends, too."""
    top = 0
    for i in range(len(row)):
        if begins[i]:
            top = 0
        if opens[i]:
            stack[top] = row[i]
            top += 1
        else:
            closed[row[i]] = True
        while top > 0 and closed[stack[top - 1]]:
            top -= 1
        if top > 0:
            out[i] = stack[top - 1]
