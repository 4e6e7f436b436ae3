"""Says what the time of edges is, and puts alike pieces of it together, in compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.critical.edges import DEVICE, HOST, INFERRED
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

if TYPE_CHECKING:
    from tb_sol_plugin.metrics.critical.graph import Graph

LOADING_PAYS: Final = 10_000
"""Edges up to which the plain loops cost less than loading the compiled ones."""


class Classes(NamedTuple):
    """What becomes the class of what. host, device: of each row, of the host one more for none. kind: of the other kinds of edges.

    overhead: of a call that took more than its least. unknown: of a moment that nothing holds though it belongs to what began in the
    recording. outside: of any other such moment.
    """

    host: Ints
    device: Ints
    kind: Ints
    overhead: int
    unknown: int
    outside: int


class Described(NamedTuple):
    """What is known of the time of edges, as columns. kind: its class. host, device: rows, -1 none. lag: ns. excess: what of it such edges
    normally do not take. most: what they may take. residual: beyond the least. inferred: known from times alone.
    """

    kind: Ints
    host: Ints
    device: Ints
    lag: Ints
    excess: Ints
    most: Ints
    residual: Ints
    inferred: Mask


def described(of: Graph, node: Ints, edge: Ints, classes: Classes, always: Ints, times: int) -> Described:
    """Returns what the time of some edges is, each of which holds a node; -1 for none.

    always: ns that each kind of edges may take, times: and so many times its least.
    """
    size = len(node)
    kind, host, device, lag, excess, most, residual = (np.empty(size, np.int64) for _ in range(7))
    out = Described(kind, host, device, lag, excess, most, residual, np.empty(size, np.bool_))
    nodes, work, edges = of.nodes, of.work, of.edges
    held = fixed(edges.kind, np.int8), fixed(edges.evidence, np.int8), fixed(edges.least, np.int64), fixed(of.lag, np.int64)
    moments = (
        fixed(of.time, np.int64), fixed(nodes.device, np.int64), fixed(work.call, np.int64), fixed(nodes.inside, np.int32),
        fixed(nodes.row, np.int32), fixed(nodes.begins, np.bool_),
    )  # fmt: skip
    tables = tuple(fixed(c, np.int64) for c in (*classes[:3], always))
    places = (nodes.hosts, of.earliest, times, *classes[3:])
    read = fixed(node, np.int64), fixed(edge, np.int64)
    describe_kernel.of(size, LOADING_PAYS)(*read, held, moments, tables, places, tuple(out))
    return out


class Merged(NamedTuple):
    """Pieces of time of which neighbors that are alike are one. key: what each is of. ns: in all. most: of the first. edges: how many."""

    key: Ints
    ns: Ints
    most: Ints
    edges: Ints
    events: Floats


def merged(
    what: Described, alone: Mask, key: Ints, own: Ints, rest: Ints, count: npt.NDArray[np.integer], events: Floats, no_limit: int
) -> Merged:  # fmt: skip
    """Returns the pieces of some edges: what is explained of each, then what is not.

    alone: edges whose time is one piece with a limit. key, rest: of what is explained, and of the rest. own: ns that count in place of what
    is explained, -1 for that. count, events: of each edge; events may be empty.
    """
    size = 2 * len(key)
    keys, ns, most, number = (np.empty(size, np.int64) for _ in range(4))
    taken = np.zeros(size if len(events) else 0)
    of = tuple(fixed(c, np.int64) for c in (what.lag, what.excess, what.most, key, own, rest, count))
    found = merge_kernel.of(len(key), LOADING_PAYS)(
        fixed(alone, np.bool_), of, fixed(events, np.float64), no_limit, keys, ns, most, number, taken
    )
    return Merged(keys[:found], ns[:found], most[:found], number[:found], taken[:found])


def items_of_edges(
    of: Graph, edges: Sequence[npt.NDArray[Any]], nodes: Rows | None, latency: Ints, on_device: Ints, on_host: Ints
) -> Rows:  # fmt: skip
    """Returns the item that the time of each edge counts for: of its kind, device row or host row; -1 of waits of threads.

    edges: their source, target, kind and lag. nodes: of the whole graph for each of theirs; None where they are the same.
    """
    source, target, kind, lag = edges
    time = of.time if nodes is None else of.time[nodes]
    out = np.empty(len(kind), np.int32)
    every = np.zeros(0, np.int32) if nodes is None else nodes
    of_edges = fixed(source, np.int32), fixed(target, np.int32), fixed(kind, np.int8), fixed(lag, np.int64)
    rows = fixed(of.nodes.device, np.int64), fixed(of.nodes.inside, np.int32)
    items_kernel.of(len(kind), LOADING_PAYS)(
        of_edges, fixed(time, np.int64), fixed(every, np.int32), of.nodes.hosts, rows, fixed(latency, np.int64),
        fixed(on_device, np.int64), fixed(on_host, np.int64), out,
    )  # fmt: skip
    return out


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does."""
    none, rows, small, mask = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.bool_)
    long, short, tiny, marks = fixed(none, np.int64), fixed(rows, np.int32), fixed(small, np.int8), fixed(mask, np.bool_)
    held, moments, out = (tiny, tiny, long, long), (long, long, long, short, short, marks), tuple(none.copy() for _ in range(7))
    describe_kernel(long, long, held, moments, (long,) * 4, (0,) * 6, (*out, mask.copy()))
    events = np.zeros(0)
    merge_kernel(marks, (long,) * 7, fixed(events, np.float64), 0, *(none.copy() for _ in range(4)), events.copy())
    items_kernel((short, short, tiny, long), long, short, 0, (long, short), long, long, long, rows.copy())


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


@compiled()
def describe_kernel(node, edge, held, moments, tables, places, out):  # type: ignore[no-untyped-def]
    """Writes what each edge's time is; tables by host row, by kind, and what kinds may take end with that of none."""
    kinds, evidence, least, lags = held
    time, device_row, call, inside, row, begins = moments
    of_host, of_device, of_kind, always = tables
    hosts, earliest, times, overhead, unknown, outside = places
    kind, host, device, lag, excess, most, residual, inferred = out
    for i in range(len(node)):
        v, e = node[i], edge[i]
        h, d, place = -1, -1, (v - hosts) // 2
        if v >= hosts:
            d = device_row[place]
        if e < 0:
            if v < hosts:
                h, wakes = row[v], begins[v] and time[v] > earliest
            else:
                wakes = len(call) > 0 and call[place] >= 0
            kind[i], inferred[i] = unknown if wakes else outside, False
            lag[i], excess[i], most[i], residual[i] = 0, 0, always[-1], 0
        else:
            k, took = kinds[e], lags[e]
            if k == HOST:
                h = inside[v - 1]
                kind[i] = overhead if took > least[e] else of_host[h]
            else:
                if v < hosts:
                    h = row[v]
                kind[i] = of_device[d] if k == DEVICE else of_kind[k]
            normal = max(times * least[e], always[k])
            lag[i], excess[i], most[i], residual[i] = took, max(took - normal, 0), normal, took - least[e]
            inferred[i] = evidence[e] == INFERRED
        host[i], device[i] = h, d


@compiled()
def merge_kernel(alone, of, event, no_limit, keys, ns, limit, count, events):  # type: ignore[no-untyped-def]
    """Writes the pieces, adding each to the one before it where both are of one key; returns how many."""
    lag, excess, most, key, own, rest, counts = of
    n = 0
    for turn in range(2):
        for i in range(len(key)):
            if turn == 0:
                one, time, number = key[i], own[i], counts[i]
                if time < 0:
                    time = lag[i] if alone[i] else lag[i] - excess[i]
            elif alone[i] or excess[i] <= 0:
                continue
            else:
                one, time, number = rest[i], excess[i], 0
            if n == 0 or keys[n - 1] != one:
                keys[n], ns[n], count[n] = one, 0, 0
                limit[n] = most[i] if turn == 0 and alone[i] else no_limit
                n += 1
            ns[n - 1] += time
            count[n - 1] += number
            if turn == 0 and len(event) > 0:
                events[n - 1] += event[i]
    return n


@compiled()
def items_kernel(edges, time, nodes, hosts, rows, latency, on_device, on_host, out):  # type: ignore[no-untyped-def]
    """Writes the item of each edge; what a thread did in between is of the innermost row, time that it waited is of none."""
    source, target, kind, lag = edges
    device_row, inside = rows
    for e in range(len(kind)):
        k, v = kind[e], target[e]
        whole = nodes[v] if len(nodes) > 0 else v
        if k == HOST:
            at = inside[whole - 1] if lag[e] == time[v] - time[source[e]] else -1
            out[e] = on_host[at] if at >= 0 else -1
        elif k == DEVICE:
            out[e] = on_device[device_row[(whole - hosts) // 2]]
        else:
            out[e] = latency[k]
