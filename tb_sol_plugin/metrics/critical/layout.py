"""Lays out the graph of a selection for changes: condensed, with what each of its edges adds to each class of the path.

It is made once per recording and selection. A change then only replays: which pieces it takes is worked out once per change, so another
scale costs one pass over the condensed graph, and none over the recording.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.described import Kinds, Merged
from tb_sol_plugin.metrics.critical.edges import KINDS
from tb_sol_plugin.metrics.critical.items import edge_items, keys_of
from tb_sol_plugin.metrics.critical.path import CLASSES, NORMAL_NS, PLACE, begin_class, path_of, shares_of
from tb_sol_plugin.metrics.critical.window import Window, window_of_steps
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, Rows

T = TypeVar("T")
KEPT: Final = 16
"""Changes of a selection that are kept: a person who moves a slider stays with one."""
AT_ONCE: Final = 1 << 17
"""Edges whose pieces are made at once: what is made by the way stays in the cache of a core."""
FAR: Final = 2**61
"""A lag that no other one is below."""
NO_LIMIT: Final = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Pieces:
    """Time of condensed edges, as columns. edge: condensed, ascending, -1 of those after which nothing is waited for.

    kind: place in CLASSES on the path. item: class that a change chooses it by, of what is chosen its group; -1 none. ns: in all. most:
    what of `ns` is explained; NO_LIMIT where all of it is. count: edges of the graph. events: how many events it is the time of, of which
    it may be parts; none where nobody asks.
    """

    edge: Rows
    kind: Kinds
    item: Rows
    ns: Ints
    most: Ints
    count: Rows
    events: Floats | None = None

    def at(self, some: Mask) -> Pieces:
        """Returns some of them."""
        return Pieces(self.edge[some], self.kind[some], self.item[some], self.ns[some], self.most[some], self.count[some])

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
    """The graph of a selection. begin, end: of its steps, ns. steps: how many, begins: of each.

    lag, binding: of the condensed edges, and the one that holds each condensed node, -1 none. time: of the condensed nodes. pieces: of all
    edges in the stretch.
    """

    window: Window
    begin: int
    end: int
    steps: int
    begins: Ints
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
    inside = window.inside
    edges = np.arange(len(inside), dtype=np.int32)[inside]
    pieces = _pieces(capture, window, item[inside], edges)
    return Layout(
        window, int(path.begin.min()), int(path.end.max()), len(path.rows), path.begin, window.lags, binding, window.times,
        pieces,
    )  # fmt: skip


_LATENCY: Final = np.isin(np.arange(len(KINDS)), [*NORMAL_NS])
"""Kinds of edges that are a latency."""


def _pieces(
    capture: Capture, window: Window, item: npt.NDArray[np.integer], edges: npt.NDArray[np.integer], part: Part | None = None
) -> Pieces:  # fmt: skip
    """Returns the pieces of some edges of a window. item: of each of them. part: what of them counts; None for all."""
    if (edges[1:] < edges[:-1]).any():
        order = np.argsort(edges, kind="stable")
        item, edges, part = item[order], edges[order], part.at(order) if part is not None else None
    size, told = int(item.max(initial=-1)) + 2, part is not None and part.events is not None
    found, of = Merged(len(CLASSES), PLACE["unexplained"], size, NO_LIMIT, len(edges), events=told), window.part
    for begin in range(0, len(edges), AT_ONCE):
        at = slice(begin, begin + AT_ONCE)
        some, counted = edges[at], part.at(at) if part is not None else Part(np.full(len(edges[at]), -1), np.ones(len(edges[at]), np.int64))
        share, edge = shares_of(capture, window.graph, window.edges_in_graph(some)), of.of_edge[some]
        # a latency is an edge by itself, whose limit holds at any scale; those of a stream within a chain are split as they were measured
        alone = _LATENCY[window.kind[some]] & (edge >= 0) & (of.high[edge] - of.low[edge] == 1)
        events = np.zeros(0) if counted.events is None else counted.events
        found.add(share, edge, alone, item[at].astype(np.int64) + 1, counted.ns, counted.count, events)
    keys, *columns = found.columns()
    span = len(CLASSES) * size
    edge, kind, own = (keys // span - 1).astype(np.int32), (keys % span // size).astype(np.int8), (keys % size - 1).astype(np.int32)
    ns, most, count, *more = columns
    return Pieces(edge, kind, own, ns, most, count.astype(np.int32), *more)


# -- Changes ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """What of some edges counts: ns of each, -1 for all of it; 0 where it is no edge of its own, else 1; and how many events each is."""

    ns: Ints
    count: Ints
    events: Floats | None = None

    def at(self, some: slice | Mask | Ints) -> Part:
        """Returns that of some of the edges."""
        return Part(self.ns[some], self.count[some], self.events[some] if self.events is not None else None)


class Amounts(NamedTuple):
    """What becomes of each group of time: it is multiplied by `times`, and each of its events takes `each` ns more."""

    times: Floats
    each: Floats

    @property
    def key(self) -> tuple[bytes, bytes]:
        """What answers are kept by."""
        return self.times.tobytes(), self.each.tobytes()


@dataclass(frozen=True, eq=False)
class Chosen:
    """What of a selection changes. pieces: of it, by group. groups: how many. edge: condensed edges with such time, begins: the first piece
    of each. drops: condensed edges for which nothing waits any more; their groups take no time.
    """

    layout: Layout
    pieces: Pieces
    groups: int
    begins: Ints
    edge: Rows
    drops: Ints

    @property
    def changed(self) -> int:
        """How many edges of the graph it is about."""
        return int(self.pieces.count.sum())

    def scaled(self, scale: float) -> Amounts:
        """Returns the same scale for all of it."""
        return Amounts(np.full(self.groups, scale), np.zeros(self.groups))

    def then_ns(self, amounts: Amounts) -> Ints:
        """Returns what each piece takes then."""
        pieces = self.pieces
        out = pieces.ns * amounts.times[pieces.item]
        if pieces.events is not None:
            out += pieces.events * amounts.each[pieces.item]
        return np.rint(out).astype(np.int64)

    def less(self, amounts: Amounts) -> tuple[int, int]:
        """Returns what all of it takes less: on the path, and in all, ns."""
        less = self.pieces.ns - self.then_ns(amounts)
        return int(less[np.append(self.layout.measured.on, False)[self.pieces.edge]].sum()), int(less.sum())

    def lags(self, amounts: Amounts) -> Ints:
        """Returns the lags of the condensed edges then."""
        out = self.layout.lag.copy()
        if len(self.begins):
            out[self.edge] += np.add.reduceat(self.then_ns(amounts) - self.pieces.ns, self.begins)
        out[self.drops] = -FAR
        return out

    def saved_ns(self, amounts: Amounts) -> int:
        """Returns by how much the stretch ends earlier, ns; later: negative. Worked out once for the last few."""
        kept: OrderedDict[tuple[bytes, bytes], int] = self.__dict__.setdefault("_saved", OrderedDict())
        key = amounts.key
        if key not in kept:
            kept[key] = self.layout.earlier_ns(self.layout.replay(self.lags(amounts)))
            while len(kept) > KEPT:
                kept.pop(next(iter(kept)), None)
        return kept[key]

    def then(self, amounts: Amounts) -> tuple[int, Ints]:
        """Returns (by how much the stretch ends earlier, ns of each class on its path then)."""
        layout, lag = self.layout, self.lags(amounts)
        time = layout.replay(lag)
        saved, walk = layout.earlier_ns(time), layout.walk(lag, time)
        more = self.pieces.sums(walk.on, self.then_ns(amounts)) - self.pieces.sums(walk.on, self.pieces.ns)
        return saved, layout.classes(walk, layout.end - saved, more)


def of_classes(layout: Layout, classes: tuple[str, ...]) -> Chosen:
    """Returns all time of some classes, as one group."""
    wanted = np.zeros(len(CLASSES) + 1, np.bool_)
    wanted[[PLACE[c] for c in classes]] = True
    pieces = layout.pieces.at(wanted[layout.pieces.item])
    return _chosen(layout, replace(pieces, item=np.zeros_like(pieces.item)), 1, ())


def of_edges(
    capture: Capture, layout: Layout, edges: npt.NDArray[np.integer], group: Ints | None = None, groups: int = 1, part: Part | None = None,
    drops: npt.ArrayLike = (),
) -> Chosen:  # fmt: skip
    """Returns the time of some edges of the window. group: of each, of so many. drops: edges for which nothing waits any more."""
    window = layout.window
    of = np.zeros(len(edges), np.int64) if group is None else group
    some, dropped = edges.astype(np.int64), np.asarray(drops, np.int64)
    if window.edges is None:
        inside = window.happens[window.target[some]]
        some, of, dropped = some[inside], of[inside], dropped[window.happens[window.target[dropped]]]
        part = part.at(inside) if part is not None else None
    return _chosen(layout, _pieces(capture, window, of, some, part), groups, window.part.of_edge[dropped])


def _chosen(layout: Layout, pieces: Pieces, groups: int, drops: npt.ArrayLike) -> Chosen:
    begins = np.flatnonzero(np.diff(pieces.edge, prepend=-1))  # those after which nothing is waited for stand first
    dropped = np.asarray(drops, np.int64)
    return Chosen(layout, pieces, groups, begins, pieces.edge[begins], dropped[dropped >= 0])


def kept(capture: Capture, where: Scope, key: Hashable, make: Callable[[], T]) -> T:
    """Returns what changes of a selection are about, worked out once for the last few."""
    found: OrderedDict[Hashable, T] = memo(capture, ("critical.chosen", where.rows), OrderedDict)
    one = found.get(key)
    if one is None:
        one = found[key] = make()
        while len(found) > KEPT:
            found.pop(next(iter(found)), None)
    return one
