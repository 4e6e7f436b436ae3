"""Lays out the graph of a selection for changes: condensed, with what each of its edges adds to each class of the path.

It is made once per recording and selection. A change then only replays: which pieces it takes is worked out once per change, so another
scale costs one pass over the condensed graph, and none over the recording.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.items import edge_items, keys_of
from tb_sol_plugin.metrics.critical.path import CLASSES, NORMAL_NS, PLACE, begin_class, path_of, shares_of
from tb_sol_plugin.metrics.critical.window import Window, window_of_steps
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows

KEPT: Final = 16
"""Changes of a selection that are kept: a person who moves a slider stays with one."""
FAR: Final = 2**61
"""A lag that no other one is below."""
NO_LIMIT: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Pieces:
    """Time of condensed edges, as columns. edge: condensed, ascending, -1 of those after which nothing is waited for.

    kind: place in CLASSES on the path. item: class that a change chooses it by, -1 none. ns: in all. most: what of `ns` is explained;
    NO_LIMIT where all of it is. count: edges of the graph.
    """

    edge: Ints
    kind: Ints
    item: Ints
    ns: Ints
    most: Ints
    count: Ints

    def at(self, some: Mask) -> Pieces:
        """Returns some of them."""
        return Pieces(*(column[some] for column in (self.edge, self.kind, self.item, self.ns, self.most, self.count)))

    def sums(self, on: Mask, ns: Ints) -> Ints:
        """Returns the sums by class of those on some condensed edges, of another time each; what is not explained is a class of its own."""
        some = np.flatnonzero(np.append(on, False)[self.edge])
        kind, took = self.kind[some], ns[some]
        explained = np.minimum(took, self.most[some])
        out = arrays.exact_sums(kind, explained, len(CLASSES))
        out[PLACE["unexplained"]] += took.sum() - explained.sum()
        return out


@dataclass(frozen=True, eq=False)
class Walk:
    """A critical path over the condensed graph. on: whether each edge is on it. begins: ns before its first moment, of the class `before`.

    first: the first edge of it, -1 none, of which so many ns (`early`) are before the stretch. end: time of its last moment, ns.
    """

    on: Mask
    begins: int
    before: int
    first: int
    early: int
    end: int


@dataclass(frozen=True, eq=False)
class Layout:
    """The graph of a selection. begin, end: of its steps, ns. steps: how many.

    lag, binding: of the condensed edges, and the one that holds each condensed node, -1 none. time: of the condensed nodes. pieces: of all
    edges in the stretch.
    """

    window: Window
    begin: int
    end: int
    steps: int
    lag: Ints
    binding: Rows
    time: Ints
    pieces: Pieces

    def replay(self, lag: Ints) -> Ints:
        """Returns when each condensed node happens with other lags."""
        part = self.window.part
        return passes.replay(self.window.order, part.first, part.source, lag, self.time)

    def earlier_ns(self, time: Ints) -> int:
        """Returns by how much the stretch ends earlier at other times of the condensed nodes, ns; later: negative."""
        ends = self.window.last_nodes
        return int(self.time[ends].max() - time[ends].max())

    def walk(self, lag: Ints, time: Ints) -> Walk:
        """Returns the critical path with other lags, at the times that they give."""
        part, ends = self.window.part, self.window.last_nodes
        binding = self.binding
        if lag is not self.lag:
            binding = passes.held_by(self.window.order, part.first, part.source, lag, time, binding)
        nodes = passes.walk(time, part.source, binding, int(ends[int(time[ends].argmax())]), self.begin)
        on, first = np.zeros(len(lag), np.bool_), int(nodes[-1])
        on[binding[nodes[:-1]]] = True
        before = begin_class(self.window.graph, int(self.window.in_graph(part.node[[first]])[0]))
        begins, edge = int(time[first]) - self.begin, int(binding[nodes[-2]]) if len(nodes) > 1 else -1
        return Walk(on, max(begins, 0), before, edge, max(-begins, 0), int(time[nodes[0]]))

    def classes(self, walk: Walk, end: int, more: Ints | int = 0) -> Ints:
        """Returns ns of each class on a path, which add up to the time until `end`. more: of each class, what a change adds."""
        out: Ints = self.pieces.sums(walk.on, self.pieces.ns) + more
        if walk.early and walk.first >= 0:
            kind = int(self.pieces.kind[np.searchsorted(self.pieces.edge, walk.first)])
            cut = min(walk.early, int(out[kind]))
            out[kind] -= cut
            out[PLACE["unexplained"]] -= walk.early - cut
        out[walk.before] += walk.begins
        out[PLACE["window"]] += max(end - walk.end, 0)
        out[int(out.argmax())] += end - self.begin - int(out.sum())  # what rounding of scaled pieces left
        return out

    @cached_property
    def measured(self) -> Walk:
        """The path as it is."""
        return self.walk(self.lag, self.time)

    @cached_property
    def before(self) -> Ints:
        """Its classes, ns."""
        return self.classes(self.measured, self.end)


def layout_of(capture: Capture, where: Scope) -> Layout:
    """Returns the graph of a selection, laid out once."""
    return memo(capture, ("critical.layout", where.rows), lambda: _layout(capture, where))


def _layout(capture: Capture, where: Scope) -> Layout:
    window, path = window_of_steps(capture, where), path_of(capture, where)
    part = window.part
    held = window.binding[part.node].astype(np.int64)
    binding = np.where(held >= 0, part.of_edge[held], -1).astype(np.int32) if len(part.of_edge) else held.astype(np.int32)
    item = edge_items(capture, window, keys_of(capture, "class"), "class")
    pieces = _pieces(capture, window, item)
    return Layout(
        window, int(path.begin.min()), int(path.end.max()), len(path.rows), part.lags(window.lag), binding, window.time[part.node], pieces
    )  # fmt: skip


def _pieces(capture: Capture, window: Window, item: Rows, edges: Ints | None = None, part_ns: Ints | None = None) -> Pieces:
    """Returns the pieces of some edges of a window, of all where none are named. item: of each edge of the window. part_ns: of work on
    devices, the ns of each edge that count; None for all.
    """
    part = window.part
    if edges is None:
        edges = np.arange(len(window.lag)) if window.edges is not None else np.flatnonzero(window.inside)
    share = shares_of(capture, window.graph, window.edges_in_graph(edges))
    edge = part.of_edge[edges].astype(np.int64)
    # a latency is an edge by itself, whose limit holds at any scale; those of a stream within a chain are split as they were measured
    alone = np.isin(window.kind[edges], [*NORMAL_NS]) & (edge >= 0) & ((part.high - part.low)[edge] == 1)
    most = np.where(alone, share.most, NO_LIMIT)
    apart = np.flatnonzero(~alone & (share.excess > 0))
    at = np.concatenate((np.arange(len(edges)), apart))
    kind = np.concatenate((share.kind, np.full(len(apart), PLACE["unexplained"])))
    own = np.where(alone, share.explained + share.excess, share.explained) if part_ns is None else part_ns
    ns = np.concatenate((own, share.excess[apart]))
    size, classes = len(CLASSES) + 1, len(CLASSES)
    key = ((edge[at] + 1) * classes + kind) * size + item[edges][at] + 1
    counted = np.concatenate((np.ones(len(edges), np.int64), np.zeros(len(apart), np.int64)))
    for _ in range(2):  # neighbors first: most of what is alike stands side by side
        begins = np.flatnonzero(np.diff(key, prepend=-1))
        if len(begins):
            key, ns, most, counted = key[begins], np.add.reduceat(ns, begins), most[at[begins]], np.add.reduceat(counted, begins)
        order = np.argsort(key, kind="stable")
        key, ns, most, counted = key[order], ns[order], most[order], counted[order]
        at = np.arange(len(key))
    return Pieces(key // (classes * size) - 1, key // size % classes, key % size - 1, ns, most, counted)


# -- Changes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Chosen:
    """What of a selection a change is about. pieces: of it. edge, ns: condensed edges with such time, each once, and how much."""

    layout: Layout
    pieces: Pieces
    edge: Ints
    ns: Ints

    @property
    def changed(self) -> int:
        """How many edges of the graph it is about."""
        return int(self.pieces.count.sum())

    @property
    def naive(self) -> int:
        """All its time, ns."""
        return int(self.pieces.ns.sum())

    @cached_property
    def first_order(self) -> int:
        """Its time on the path, ns."""
        return int(self.ns[self.layout.measured.on[self.edge]].sum())

    def lags(self, scale: float | None) -> Ints:
        """Returns the lags of the condensed edges where its time is scaled. scale: None where nothing waits for it at all."""
        out = self.layout.lag.copy()
        out[self.edge] = -FAR if scale is None else out[self.edge] - self.ns + np.rint(self.ns * scale).astype(np.int64)
        return out

    def saved_ns(self, scale: float | None) -> int:
        """Returns by how much the stretch ends earlier, ns; later: negative."""
        return self.layout.earlier_ns(self.layout.replay(self.lags(scale)))

    def saved_at(self, scales: tuple[float, ...]) -> Ints:
        """Returns the same at several scales, worked out once."""
        kept: dict[tuple[float, ...], Ints] = self.__dict__.setdefault("_saved_at", {})
        if scales not in kept:
            kept[scales] = np.array([self.saved_ns(s) for s in scales], np.int64)
        return kept[scales]

    def then(self, scale: float | None) -> tuple[int, Ints]:
        """Returns (by how much the stretch ends earlier, ns of each class on its path then)."""
        layout, lag = self.layout, self.lags(scale)
        time = layout.replay(lag)
        saved, walk = layout.earlier_ns(time), layout.walk(lag, time)
        end = layout.end - saved
        if scale is None:
            return saved, layout.classes(walk, end)
        scaled = np.rint(self.pieces.ns * scale).astype(np.int64)
        return saved, layout.classes(walk, end, self.pieces.sums(walk.on, scaled) - self.pieces.sums(walk.on, self.pieces.ns))


def of_classes(layout: Layout, classes: tuple[str, ...]) -> Chosen:
    """Returns all time of some classes."""
    wanted = np.zeros(len(CLASSES) + 1, np.bool_)
    wanted[[PLACE[c] for c in classes]] = True
    return _chosen(layout, layout.pieces.at(wanted[layout.pieces.item]))


def of_edges(capture: Capture, layout: Layout, edges: npt.NDArray[np.integer], part_ns: Ints | None = None) -> Chosen:
    """Returns the time of some edges of the window. part_ns: of work on devices, a part of the time of each; None for all."""
    window = layout.window
    if window.edges is None:
        inside = window.happens[window.target[edges]]
        edges, part_ns = edges[inside], part_ns[inside] if part_ns is not None else None
    none = np.zeros(len(window.lag), np.int32)
    return _chosen(layout, _pieces(capture, window, none, edges.astype(np.int64), part_ns))


def _chosen(layout: Layout, pieces: Pieces) -> Chosen:
    edge = pieces.edge
    begins = np.flatnonzero(np.diff(edge, prepend=-1))  # those after which nothing is waited for stand first
    if not len(begins):
        return Chosen(layout, pieces, np.zeros(0, np.int64), np.zeros(0, np.int64))
    return Chosen(layout, pieces, edge[begins], np.add.reduceat(pieces.ns, begins))


def kept(capture: Capture, where: Scope, key: Hashable, make: Callable[[], Chosen]) -> Chosen:
    """Returns what a change of a selection is about, worked out once for the last few."""
    found: OrderedDict[Hashable, Chosen] = memo(capture, ("critical.chosen", where.rows), OrderedDict)
    one = found.get(key)
    if one is None:
        one = found[key] = make()
        while len(found) > KEPT:
            found.pop(next(iter(found)), None)
    return one
