"""Puts a graph together in compiled loops: moments of threads in order, edges by target, what holds each moment, chains of moments.

Each loop goes once over its columns; the same in numpy takes a dozen columns of a recording's length that are thrown away.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.critical.edges import KINDS, Edges
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

LOADING_PAYS: Final = 20_000
"""Moments or edges up to which the plain loops cost less than loading the compiled ones."""


def moments_of_threads(
    rows: npt.NDArray[np.integer], depth: npt.NDArray[np.integer], end: Ints, start: Ints, duration: Ints
) -> tuple[Rows, Mask, Ints]:
    """Returns (host row, whether it is its start, time) of two moments per row, as rows nest.

    rows: of the host, in preorder. depth: how many of them are around each. end: how many stand before the end of each one's subtree.
    start, duration: of each, ns.
    """
    size = 2 * len(rows)
    row, opens, time = np.empty(size, np.int32), np.zeros(size, np.bool_), np.empty(size, np.int64)
    read = fixed(rows, np.int32), fixed(depth, np.int32), *(fixed(c, np.int64) for c in (end, start, duration))
    moments_kernel.of(size, LOADING_PAYS)(*read, row, opens, time)
    return row, opens, time


def by_target(every: Edges, time: Ints) -> tuple[Edges, Rows, Ints]:
    """Returns (edges by target, where those into each node begin, edges against the times that were left out, by kind).

    Edges into one node keep their order. time: of each node. What an edge costs at least is no more than what was measured.
    """
    size = len(time)
    first, dropped = np.zeros(size + 2, np.int32), np.zeros(len(KINDS), np.int64)
    read = (
        fixed(every.source, np.int32), fixed(every.target, np.int32), fixed(every.kind, np.int8), fixed(every.least, np.int64),
        fixed(time, np.int64),
    )  # fmt: skip
    count_kernel.of(len(every), LOADING_PAYS)(*read, first, dropped)
    np.cumsum(first, out=first, dtype=np.int32)
    kept = int(first[-1])
    source, target, least = np.empty(kept, np.int32), np.empty(kept, np.int32), np.empty(kept, np.int64)
    kind, evidence = np.empty(kept, np.int8), np.empty(kept, np.int8)
    place_kernel.of(len(every), LOADING_PAYS)(*read, fixed(every.evidence, np.int8), first, source, target, kind, evidence, least)
    return Edges(source, target, kind, evidence, least), first[:-1], dropped


def bound(edges: Edges, first: Rows, time: Ints) -> tuple[Rows, Ints]:
    """Returns (the edge that makes each node ready last, -1 for none; the lag of each edge: as measured where it is such, else least).

    Of several that make a node ready at one time it is the best known one, of these the first.
    """
    binding, lag = np.full(len(time), -1, np.int32), edges.least.copy()
    read = fixed(first, np.int32), fixed(edges.source, np.int32), fixed(edges.evidence, np.int8), fixed(time, np.int64)
    bound_kernel.of(len(time), LOADING_PAYS)(*read, binding, lag)
    return binding, lag


def chained(first: Rows, source: Rows, apart: Mask, cuts: npt.NDArray[np.integer]) -> tuple[Mask, Rows, tuple[Rows, Rows, Rows, Rows]]:
    """Returns (which nodes wait for the one before them alone; the nodes that are left when each chain is one edge; their edges).

    apart: edges that stay by themselves. cuts: nodes that are in no chain. Edges: where those into each node that is left begin, the place
    of the node that each comes from, and which edges of the whole graph it stands for, begin and end.
    """
    size = len(first) - 1
    chain, kept = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
    kept[cuts] = True
    read = fixed(first, np.int32), fixed(source, np.int32)
    edges = chains_kernel.of(size, LOADING_PAYS)(*read, fixed(apart, np.bool_), chain, kept)
    node = np.flatnonzero(kept).astype(np.int32)
    begin, start = np.zeros(len(node) + 1, np.int32), np.empty(edges, np.int32)
    low, high = np.empty(edges, np.int32), np.empty(edges, np.int32)
    place = np.empty(size, np.int32)
    condense_kernel.of(size, LOADING_PAYS)(*read, fixed(chain, np.bool_), fixed(node, np.int32), place, begin, start, low, high)
    return chain, node, (begin, start, low, high)


def sums_between(values: Ints, low: Rows, high: Rows) -> Ints:
    """Returns the sums of `values[low:high]` for each pair of these."""
    out = np.empty(len(low), np.int64)
    sums_kernel.of(len(low), LOADING_PAYS)(fixed(values, np.int64), fixed(low, np.int32), fixed(high, np.int32), out)
    return out


def places_between(low: Rows, high: Rows, size: int) -> Rows:
    """Returns for each of `size` rows which pair of `low` and `high` it lies between, -1 for none."""
    out = np.full(size, -1, np.int32)
    places_kernel.of(size, LOADING_PAYS)(fixed(low, np.int32), fixed(high, np.int32), out)
    return out


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does."""
    none, rows, small, mask = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.bool_)
    long, short, tiny = fixed(none, np.int64), fixed(rows, np.int32), fixed(small, np.int8)
    moments_kernel(short, short, long, long, long, rows.copy(), mask.copy(), none.copy())
    count_kernel(short, short, tiny, long, long, rows.copy(), none.copy())
    place_kernel(short, short, tiny, long, long, tiny, rows.copy(), rows.copy(), rows.copy(), small.copy(), small.copy(), none.copy())
    bound_kernel(fixed(np.zeros(1, np.int32), np.int32), short, tiny, long, rows.copy(), none.copy())
    first = fixed(np.zeros(1, np.int32), np.int32)
    chains_kernel(first, short, fixed(mask, np.bool_), mask.copy(), mask.copy())
    condense_kernel(
        first, short, fixed(mask, np.bool_), short, rows.copy(), np.zeros(1, np.int32), rows.copy(), rows.copy(), rows.copy()
    )  # fmt: skip
    sums_kernel(long, short, short, none.copy())
    places_kernel(short, short, rows.copy())


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


@compiled()
def moments_kernel(rows, depth, end, start, duration, row, opens, time):  # type: ignore[no-untyped-def]
    """The start of row i comes after i starts and the ends of all before it that are not around it; its end after those of its subtree."""
    for i in range(len(rows)):
        at = 2 * i - depth[i]
        row[at], opens[at], time[at] = rows[i], True, start[i]
        at = 2 * end[i] - 1 - depth[i]
        row[at], time[at] = rows[i], start[i] + duration[i]


@compiled()
def count_kernel(source, target, kind, least, time, first, dropped):  # type: ignore[no-untyped-def]
    """Counts in `first[v + 2]` the edges into node v, and by kind those against the times."""
    for e in range(len(source)):
        if least[e] < 0 or time[target[e]] < time[source[e]]:
            dropped[kind[e]] += 1
        else:
            first[target[e] + 2] += 1


@compiled()
def place_kernel(source, target, kind, least, time, evidence, first, to, into, kinds, known, cost):  # type: ignore[no-untyped-def]
    """Puts each edge where those into its target are; `first[v + 1]` goes from their begin to their end."""
    for e in range(len(source)):
        measured = time[target[e]] - time[source[e]]
        if least[e] < 0 or measured < 0:
            continue
        at = first[target[e] + 1]
        first[target[e] + 1] = at + 1
        to[at], into[at], kinds[at], known[at] = source[e], target[e], kind[e], evidence[e]
        cost[at] = min(least[e], measured)


@compiled()
def bound_kernel(first, source, evidence, time, binding, lag):  # type: ignore[no-untyped-def]
    """Finds the edge that makes each node ready last and gives it the lag that was measured."""
    for v in range(len(first) - 1):
        low, high = first[v], first[v + 1]
        if low == high:
            continue
        best, ready = low, time[source[low]] + lag[low]
        for e in range(low + 1, high):
            own = time[source[e]] + lag[e]
            if own > ready or (own == ready and evidence[e] < evidence[best]):
                best, ready = e, own
        binding[v] = best
        lag[best] = time[v] - time[source[best]]


@compiled()
def chains_kernel(first, source, apart, chain, kept):  # type: ignore[no-untyped-def]
    """Marks chains; returns how many edges there are between what is left.

    kept: on entry the nodes that are in no chain; then also those that anything but a chain goes to or comes from.
    """
    for v in range(len(chain)):
        e = first[v]
        chain[v] = not kept[v] and first[v + 1] - e == 1 and source[e] == v - 1 and not apart[e]
    edges = 0
    for v in range(len(chain)):
        if not chain[v]:
            kept[v] = True
            edges += first[v + 1] - first[v]
            for e in range(first[v], first[v + 1]):
                kept[source[e]] = True
    for v in range(len(chain)):
        if chain[v] and kept[v]:
            edges += 1
    return edges


@compiled()
def condense_kernel(first, source, chain, node, place, begin, start, low, high):  # type: ignore[no-untyped-def]
    """Writes the edges into each node that is left: those it has, of one in a chain that from the node before it on."""
    for i in range(len(node)):
        place[node[i]] = i
    n = 0
    for i in range(len(node)):
        v = node[i]
        if chain[v]:
            low[n], high[n], start[n] = first[node[i - 1] + 1], first[v] + 1, i - 1
            n += 1
        else:
            for e in range(first[v], first[v + 1]):
                low[n], high[n], start[n] = e, e + 1, place[source[e]]
                n += 1
        begin[i + 1] = n


@compiled()
def sums_kernel(values, low, high, out):  # type: ignore[no-untyped-def]
    """Sums values between bounds."""
    for i in range(len(low)):
        total = 0
        for e in range(low[i], high[i]):
            total += values[e]
        out[i] = total


@compiled()
def places_kernel(low, high, out):  # type: ignore[no-untyped-def]
    """Writes the place of each pair of bounds to the rows between them."""
    for i in range(len(low)):
        for e in range(low[i], high[i]):
            out[e] = i
