"""Goes over a graph of moments in compiled loops: replay, latest times, the walk along what holds each moment.

Edges are columns sorted by their target; `first[v]:first[v + 1]` are those into node v. All times and lags are int64 ns.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints, Mask, Rows, stable_order
from tb_sol_plugin.tables.compiled import compiled, fixed

LOADING_PAYS: Final = 20_000
"""Nodes up to which the plain loops cost less than loading the compiled ones."""
AT_ONCE: Final = 8
"""Items that are replayed in one pass."""
LANE_BYTES: Final = 32 << 20
"""Memory that such a pass takes at most, but for one item."""
NEVER: Final = 2**62
"""A latest time of what no end waits for."""


def replay(nodes: Rows, first: Rows, source: Rows, lag: Ints, released: Ints) -> Ints:
    """Returns when each node happens: the latest of its sources' times and lags, or `released` where it waits for nothing.

    nodes: in `topological_order`; one that is not among them keeps `released`.
    """
    out = released.astype(np.int64)  # a copy
    replay_into(nodes, first, source, lag, out)
    return out


def replay_into(nodes: Rows, first: Rows, source: Rows, lag: Ints, out: Ints) -> None:
    """Does the same in place: `out` holds when each node that is not replayed happens."""
    read = (fixed(nodes, np.int32), fixed(first, np.int32), fixed(source, np.int32), fixed(lag, np.int64))
    replay_kernel.of(len(nodes), LOADING_PAYS)(*read, out)


def replay_each(
    nodes: Rows, first: Rows, source: Rows, lag: Ints, released: Ints, pieces: Pieces, items: int, ends: npt.NDArray[np.integer]
) -> tuple[Ints, Ints]:  # fmt: skip
    """Returns when the last of `ends` happens where one item takes half of its time, and where it takes none; per item.

    pieces: what of the lag of each edge is of an item. Several are replayed at once, in two lanes each: the graph is read for all.
    """
    half, none = np.zeros(items, np.int64), np.zeros(items, np.int64)
    at_once = max(1, min(AT_ONCE, LANE_BYTES // (16 * max(len(released), 1)), items))
    own = np.zeros(len(lag) + 1, np.int64)
    np.cumsum(np.bincount(pieces.edge, minlength=len(lag)), out=own[1:])
    time = np.repeat(released.astype(np.int64)[:, None], 2 * at_once, axis=1)
    read = (fixed(nodes, np.int32), fixed(first, np.int32), fixed(source, np.int32), fixed(lag, np.int64))
    of = [fixed(column, np.int64) for column in (own, *pieces[1:])]
    for begin in range(0, items, at_once):
        each_kernel.of(len(nodes) * items, LOADING_PAYS)(*read, *of, begin, time)
        count = min(at_once, items - begin)
        end = time[ends].max(axis=0)
        half[begin : begin + count], none[begin : begin + count] = end[: 2 * count : 2], end[1 : 2 * count : 2]
    return half, none


class Pieces(NamedTuple):
    """What of the lags of edges is of an item. edge: ascending, each pair with an item once. half, whole: ns, half of a lag rounded up."""

    edge: Ints
    item: Ints
    half: Ints
    whole: Ints


def pieces(of: Rows, lag: Ints, item: npt.NDArray[np.integer], items: int) -> Pieces:
    """Returns what of the lags of a graph is of an item. of: the edge of it that each edge of a whole graph is part of, ascending; -1 none.

    lag, item: of these, -1 of no item. items: how many.
    """
    read = (fixed(of, np.int32), fixed(lag, np.int64), fixed(item, np.int32))
    loop = pieces_kernel.of(len(of), LOADING_PAYS)
    none = np.zeros(0, np.int64)
    size = loop(*read, np.full(items, -1, np.int64), Pieces(none, none, none, none)[:])
    out = Pieces(*(np.zeros(size, np.int64) for _ in range(4)))
    loop(*read, np.full(items, -1, np.int64), out[:])
    return out


def spread(node: Rows, at: Ints, chain: Mask, first: Rows, lag: Ints) -> Ints:
    """Returns when each node of a whole graph happens, from those of the condensed one.

    node: of the whole graph for each of the condensed one, which happens `at`. chain: nodes that wait for the one before them alone.
    """
    out = np.empty(len(chain), np.int64)
    out[node] = at
    spread_kernel.of(len(chain), LOADING_PAYS)(fixed(chain, np.bool_), fixed(first, np.int32), fixed(lag, np.int64), out)
    return out


def spread_back(node: Rows, late: Ints, chain: Mask, first: Rows, lag: Ints) -> Ints:
    """Returns until when each node of a whole graph may happen, from those of the condensed one; NEVER where nothing waits for it."""
    out = np.full(len(chain), NEVER, np.int64)
    out[node] = late
    back_kernel.of(len(chain), LOADING_PAYS)(fixed(chain, np.bool_), fixed(first, np.int32), fixed(lag, np.int64), out)
    return out


def latest(nodes: Rows, first: Rows, source: Rows, lag: Ints, ends: npt.NDArray[np.integer], at: Ints) -> Ints:
    """Returns until when each node may happen without a delay of the nodes `ends`, which happen at `at`; NEVER where they do not wait."""
    out = np.full(len(first) - 1, NEVER, np.int64)
    np.minimum.at(out, ends, at)
    read = (fixed(nodes, np.int32), fixed(first, np.int32), fixed(source, np.int32), fixed(lag, np.int64))
    latest_kernel.of(len(nodes), LOADING_PAYS)(*read, out)
    return out


def walk(time: Ints, source: Rows, binding: Rows, end: int, begin_ns: int) -> Rows:
    """Returns the nodes that hold `end`, itself first, back to the first at or before `begin_ns`, or to one that nothing holds."""
    out = np.empty(len(time), np.int32)
    read = (fixed(time, np.int64), fixed(source, np.int32), fixed(binding, np.int32))
    count = walk_kernel.of(len(time), LOADING_PAYS)(*read, end, begin_ns, out)
    return out[:count].copy()


def held_by(nodes: Rows, first: Rows, source: Rows, lag: Ints, time: Ints, binding: Rows) -> Rows:
    """Returns the edge that holds each node at other times: the one that held it before where it still does, else the first that does.

    time: as `replay` gives it for `lag`. binding: before; nodes that are not in `nodes` keep theirs.
    """
    out = binding.astype(np.int32)  # a copy
    read = (fixed(nodes, np.int32), fixed(first, np.int32), fixed(source, np.int32), fixed(lag, np.int64), fixed(time, np.int64))
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


def doing_until(time: Ints, doing: npt.NDArray[np.int8], moments: Ints, codes: int, early: int) -> npt.NDArray[np.int64]:
    """Returns (codes, moments): ns that a thread has spent on each of some things until each moment.

    time, doing: ascending, and what the thread does from then on. early: what it does before the first: less than none of it is spent.
    """
    out = np.zeros((codes, len(moments)), np.int64)
    order = stable_order(moments)
    read = (fixed(time, np.int64), fixed(doing, np.int8), fixed(moments, np.int64), fixed(order, np.int64))
    doing_kernel.of(len(time) + len(moments), LOADING_PAYS)(*read, early, np.zeros(codes, np.int64), out)
    return out


def take(edges: npt.NDArray[np.integer], ns: Ints, left: Ints, of: Rows, lag: Ints) -> None:
    """Takes time of edges of a whole graph from the lags of the condensed one, in place: of each no more than is left of it.

    left: of each edge, ns. of: the edge of the condensed graph that each is part of, -1 of none.
    """
    read = fixed(edges, np.int64), fixed(ns, np.int64)
    take_kernel.of(len(edges), LOADING_PAYS)(*read, left, fixed(of, np.int32), lag)


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does."""
    none, rows, mask = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.bool_)
    first = np.zeros(1, np.int32)
    of = (fixed(rows, np.int32), fixed(first, np.int32), fixed(rows, np.int32), fixed(none, np.int64))
    replay_kernel(*of, none.copy())
    each_kernel(*of, fixed(np.zeros(1, np.int64), np.int64), *(fixed(none, np.int64) for _ in range(3)), 0, np.zeros((0, 2), np.int64))
    spread_kernel(fixed(mask, np.bool_), fixed(first, np.int32), fixed(none, np.int64), none.copy())
    back_kernel(fixed(mask, np.bool_), fixed(first, np.int32), fixed(none, np.int64), none.copy())
    latest_kernel(*of, none.copy())
    held_kernel(*of, fixed(none, np.int64), rows.copy())
    innermost_kernel(fixed(rows, np.int32), fixed(mask, np.bool_), fixed(mask, np.bool_), mask.copy(), rows.copy(), rows.copy())
    pieces_kernel(fixed(rows, np.int32), fixed(none, np.int64), fixed(rows, np.int32), none.copy(), (none,) * 4)
    take_kernel(fixed(none, np.int64), fixed(none, np.int64), none.copy(), fixed(rows, np.int32), none.copy())
    one = np.zeros(1, np.int64)
    doing_kernel(fixed(one, np.int64), fixed(one, np.int8), *[fixed(one, np.int64)] * 2, 0, one.copy(), np.zeros((1, 1), np.int64))
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
def each_kernel(nodes, first, source, lag, own, item, half, whole, begin, time):  # type: ignore[no-untyped-def]
    """Does the same in each lane of `time`: item `begin + k` takes `half` less in lane 2 k, and `whole` less in the next."""
    lanes = time.shape[1]
    found = np.empty(lanes, np.int64)
    for i in range(len(nodes)):
        v = nodes[i]
        low, high = first[v], first[v + 1]
        for e in range(low, high):
            u = source[e]
            for k in range(lanes):
                found[k] = time[u, k] + lag[e]
            for p in range(own[e], own[e + 1]):
                k = 2 * (item[p] - begin)
                if k >= 0 and k < lanes:
                    found[k] -= half[p]
                    found[k + 1] -= whole[p]
            if e == low:
                for k in range(lanes):
                    time[v, k] = found[k]
            else:
                for k in range(lanes):
                    time[v, k] = max(time[v, k], found[k])


@compiled()
def pieces_kernel(of, lag, item, last, out):  # type: ignore[no-untyped-def]
    """Writes the pieces where there is room for them; returns how many. last: the last piece of each item."""
    edge, whose, half, whole = out
    n, begin, current = 0, 0, -1
    for e in range(len(of)):
        if of[e] < 0 or item[e] < 0:
            continue
        if of[e] != current:
            current, begin = of[e], n
        at = last[item[e]]
        if at < begin:
            at = n
            last[item[e]] = n
            n += 1
        if len(edge) > 0:
            edge[at], whose[at] = current, item[e]
            half[at] += lag[e] - lag[e] // 2
            whole[at] += lag[e]
    return n


@compiled()
def spread_kernel(chain, first, lag, out):  # type: ignore[no-untyped-def]
    """Sets each node of a chain to the time of the one before it and its lag."""
    for v in range(len(chain)):
        if chain[v]:
            out[v] = out[v - 1] + lag[first[v]]


@compiled()
def back_kernel(chain, first, lag, out):  # type: ignore[no-untyped-def]
    """Lowers the latest time of each node before one of a chain to that of the latter less the lag, last nodes first."""
    never = 2**62
    for v in range(len(chain) - 1, 0, -1):
        if chain[v] and out[v] < never:
            out[v - 1] = min(out[v - 1], out[v] - lag[first[v]])


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


@compiled()
def doing_kernel(time, doing, moments, order, early, spent, out):  # type: ignore[no-untyped-def]
    """Writes what is spent until each moment, in `order` of time."""
    i = 0
    for k in order:
        moment = moments[k]
        while i + 1 < len(time) and time[i + 1] <= moment:
            spent[doing[i]] += time[i + 1] - time[i]
            i += 1
        for code in range(len(spent)):
            out[code, k] = spent[code]
        if moment >= time[0]:
            out[doing[i], k] += moment - time[i]
        else:
            out[early, k] += moment - time[0]


@compiled()
def take_kernel(edges, ns, left, of, lag):  # type: ignore[no-untyped-def]
    """Lowers what is left of each edge, and the lag of the condensed one that it is part of."""
    for i in range(len(edges)):
        e = edges[i]
        taken = min(ns[i], left[e])
        left[e] -= taken
        if of[e] >= 0:
            lag[of[e]] -= taken
