"""Says what the time of edges is, and puts alike pieces of it together, in compiled loops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.critical.edges import DEVICE, HOST, INFERRED
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, Rows, stable_order
from tb_sol_plugin.tables.compiled import compiled, fixed

if TYPE_CHECKING:
    from tb_sol_plugin.metrics.critical.graph import Graph
    from tb_sol_plugin.metrics.critical.window import Window

LOADING_PAYS: Final = 10_000
"""Edges up to which the plain loops cost less than loading the compiled ones."""


Kinds: TypeAlias = npt.NDArray[np.int8]
"""Classes, by their places."""


class Classes(NamedTuple):
    """What becomes the class of what. host, device: of each row, of the host one more for none. kind: of the other kinds of edges.

    overhead: of a call that took more than its least. unknown: of a moment that nothing holds though it belongs to what began in the
    recording. outside: of any other such moment.
    """

    host: Kinds
    device: Kinds
    kind: Kinds
    overhead: int
    unknown: int
    outside: int


class Described(NamedTuple):
    """What is known of the time of edges, as columns. kind: its class. host, device: rows, -1 none. lag: ns. excess: what of it such edges
    normally do not take. most: what they may take. residual: beyond the least. inferred: known from times alone.
    """

    kind: Kinds
    host: Rows
    device: Rows
    lag: Ints
    excess: Ints
    most: Ints
    residual: Ints
    inferred: Mask


def described(
    of: Graph, node: npt.NDArray[np.integer], edge: npt.NDArray[np.integer], classes: Classes, always: Ints, times: int
) -> Described:
    """Returns what the time of some edges is, each of which holds a node; -1 for none.

    always: ns that each kind of edges may take, times: and so many times its least.
    """
    size = len(node)
    host, device = np.empty(size, np.int32), np.empty(size, np.int32)
    lag, excess, most, residual = (np.empty(size, np.int64) for _ in range(4))
    out = Described(np.empty(size, np.int8), host, device, lag, excess, most, residual, np.empty(size, np.bool_))
    nodes, work, edges = of.nodes, of.work, of.edges
    held = fixed(edges.kind, np.int8), fixed(edges.evidence, np.int8), fixed(edges.least, np.int64), fixed(of.lag, np.int64)
    moments = (
        fixed(of.time, np.int64), fixed(nodes.device, np.int64), fixed(work.call, np.int64), fixed(nodes.inside, np.int32),
        fixed(nodes.row, np.int32), fixed(nodes.begins, np.bool_),
    )  # fmt: skip
    tables = (*(fixed(c, np.int8) for c in classes[:3]), fixed(always, np.int64))
    places = (nodes.hosts, of.earliest, times, *classes[3:])
    read = fixed(node, np.int32), fixed(edge, np.int32)
    describe_kernel.of(size, LOADING_PAYS)(*read, held, moments, tables, places, tuple(out))
    return out


ROOM_LEFT: Final = 105
"""Percent of the pieces that are expected for which room is made."""


class Merged:
    """Pieces of the time of condensed edges: what of one is of one class and item is one piece.

    key: edge, class and item of each as one number. ns: in all. most: what of it is explained, of the first. edges: of the whole graph.
    events: as many as the edges say, if they do.
    """

    def __init__(self, classes: int, rest: int, items: int, no_limit: int, edges: int, *, events: bool) -> None:
        """classes, items: how many of each, and none. rest: the class of what is not explained. no_limit: `most` where all is. edges: how
        many will be added in all.
        """
        self._terms = (rest, items, no_limit)
        self._slots = np.full((2, classes * items), -1, np.int64)
        self._state = np.array([0, 0, -1], np.int64)
        self._room, self._edges, self._to_come = 0, edges, edges
        self._columns: list[npt.NDArray[Any]] = [np.zeros(0, np.int64) for _ in range(4)] + [np.zeros(0)] * events

    def add(self, what: Described, into: Rows, alone: Mask, item: Ints, own: Ints, count: Ints, events: Floats) -> None:
        """Adds edges, in order of the condensed edges that they are part of.

        into: these, -1 of none. alone: edges whose time is one piece with a limit. item: of each, from 0 on. own: ns that count in place
        of what is explained, -1 for that. count, events: of each edge; events may be empty.
        """
        size, done = int(self._state[0]), self._edges - self._to_come
        self._to_come -= len(item)
        if (need := size + 2 * len(item)) > self._room:
            self._room = need + (ROOM_LEFT * size * self._to_come // (100 * done) if done else 0)  # as many pieces per edge as until now
            for place, column in enumerate(self._columns):
                longer = np.zeros(self._room, column.dtype)
                longer[:size] = column[:size]
                self._columns[place] = longer
        of = (what.lag, what.excess, what.most, item, own, count)
        read = fixed(into, np.int32), fixed(alone, np.bool_), fixed(what.kind, np.int8), tuple(fixed(c, np.int64) for c in of)
        merge_kernel.of(len(item), LOADING_PAYS)(
            *read, fixed(events, np.float64), self._terms, self._slots, self._state, (*self._columns, np.zeros(0))[:5]
        )

    def columns(self) -> list[npt.NDArray[Any]]:
        """Returns key, ns, most, edges and, if they are told, events of the pieces, by key."""
        size = int(self._state[0])
        order = stable_order(self._columns[0][:size])
        return [self._columns.pop(0)[order] for _ in range(len(self._columns))]  # one by one: each is long


def items_of_edges(
    of: Graph, edges: Sequence[npt.NDArray[Any]], nodes: Rows | None, latency: Ints, on_device: Rows, on_host: Rows
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
        fixed(on_device, np.int32), fixed(on_host, np.int32), out,
    )  # fmt: skip
    return out


def totals_of(window: Window, of_edge: npt.NDArray[np.integer], late: Ints, total: Ints, known: Mask) -> tuple[Rows, Ints]:
    """Adds the time of work in a window to the item that it counts for; returns (item, how late it may be) of what may be late.

    of_edge: item of each edge, -1 none. late: of each node, ns. total, known: of each item, in place: time, and whether it has any work.
    """
    item, may = np.empty(len(of_edge), np.int32), np.empty(len(of_edge), np.int64)
    work = fixed(window.kind, np.int8), fixed(window.target, np.int32), fixed(window.lag, np.int64), fixed(of_edge, np.int32)
    found = totals_kernel.of(len(of_edge), LOADING_PAYS)(
        *work, fixed(window.happens, np.bool_), fixed(late, np.int64), total, known, item, may
    )
    return item[:found], may[:found]


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does."""
    none, rows, small, mask = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8), np.zeros(0, np.bool_)
    long, short, tiny, marks = fixed(none, np.int64), fixed(rows, np.int32), fixed(small, np.int8), fixed(mask, np.bool_)
    held, moments = (tiny, tiny, long, long), (long, long, long, short, short, marks)
    out = (small.copy(), rows.copy(), rows.copy(), *(none.copy() for _ in range(4)), mask.copy())
    describe_kernel(short, short, held, moments, (tiny, tiny, tiny, long), (0,) * 6, out)
    events, columns = np.zeros(0), (*(none.copy() for _ in range(4)), np.zeros(0))
    slots, state = np.full((2, 1), -1, np.int64), np.array([0, 0, -1], np.int64)
    merge_kernel(short, marks, tiny, (long,) * 6, fixed(events, np.float64), (0, 1, 0), slots, state, columns)
    totals_kernel(tiny, short, long, short, marks, long, none.copy(), mask.copy(), rows.copy(), none.copy())
    items_kernel((short, short, tiny, long), long, short, 0, (long, short), long, short, short, rows.copy())


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
def merge_kernel(place, alone, kind, of, event, terms, slots, state, columns):  # type: ignore[no-untyped-def]
    """Adds what each edge takes to the piece of its condensed edge, class and item; what is not explained is a class of its own.

    slots: the last piece of each class and item: of no condensed edge, and of any. state: pieces, the first one of the last condensed edge,
    and that edge.
    """
    lag, excess, most, items, own, counts = of
    keys, ns, limit, count, events = columns
    rest, width, no_limit = terms
    n, begin, last = state[0], state[1], state[2]
    span = slots.shape[1]
    for i in range(len(place)):
        edge = place[i]
        if edge >= 0 and edge != last:
            last, begin = edge, n
        for turn in range(2):
            whole = alone[i]
            if turn == 1 and (whole or excess[i] <= 0):
                break
            local = (rest if turn == 1 else int(kind[i])) * width + items[i]  # as whole numbers in the plain loop, too
            row = 1 if edge >= 0 else 0
            at = slots[row, local]
            if at < 0 or (row == 1 and at < begin):
                at = n
                slots[row, local] = n
                keys[n] = (int(edge) + 1) * span + local
                limit[n] = most[i] if whole else no_limit
                n += 1
            if turn == 1:
                ns[at] += excess[i]
            else:
                ns[at] += own[i] if own[i] >= 0 else lag[i] if whole else lag[i] - excess[i]
                count[at] += counts[i]
                if len(event) > 0:
                    events[at] += event[i]
    state[0], state[1], state[2] = n, begin, last


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


@compiled()
def totals_kernel(kind, target, lag, of_edge, happens, late, total, known, item, may):  # type: ignore[no-untyped-def]
    """Adds up work by item, and lists what of it may be late; returns how many."""
    never = 2**62
    n = 0
    for e in range(len(of_edge)):
        own, v = of_edge[e], target[e]
        if own < 0 or not happens[v] or (kind[e] != HOST and kind[e] != DEVICE):
            continue
        total[own] += lag[e]
        known[own] = True
        if late[v] > 0 and late[v] < never:
            item[n], may[n] = own, late[v]
            n += 1
    return n
