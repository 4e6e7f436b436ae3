"""Cuts out of a graph what the steps of a selection cover, to replay that alone.

A short stretch of a long recording gets a graph of its own: its nodes, and the nodes outside that they wait for, which happen as measured.
A stretch of most of the recording is the whole graph, of which the nodes outside are not replayed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.condensed import Condensed, condensed
from tb_sol_plugin.metrics.critical.graph import APART, Graph, graph_of
from tb_sol_plugin.metrics.critical.path import finals_of, path_of
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows


@dataclass(frozen=True)
class Window:
    """Part of a graph that is replayed: nodes that happen in a stretch of time; all others happen as measured.

    All columns but `nodes` and `edges` are about the window itself. begin, end: of the stretch, its begin excluded, ns. size: how many
    nodes happen in it. nodes, edges: those of the graph that each node and each edge of the window is, ascending; None where they are all
    of the graph. time, first, source, kind, lag, binding: as in the graph. part: the condensed graph, with the nodes `ends` among its own.
    order: its nodes in the stretch, each after all that it waits for. ends: nodes of which the latest ends the stretch, and their places
    in `part`.
    """

    graph: Graph
    begin: int
    end: int
    size: int
    nodes: Rows | None
    edges: Rows | None
    time: Ints
    first: Rows
    source: Rows
    kind: npt.NDArray[np.int8]
    lag: Ints
    binding: Rows
    part: Condensed
    order: Rows
    ends: Rows
    last_nodes: Ints

    # -- between the window and the graph -----------------------------------------------------------------------

    @cached_property
    def target(self) -> Rows:
        """The node that each edge goes into."""
        if self.edges is None:
            return self.graph.edges.target
        return np.repeat(np.arange(len(self.time), dtype=np.int32), np.diff(self.first))

    @cached_property
    def works(self) -> Mask:
        """The edges that are not waits of a thread: their lag is what was measured."""
        if self.edges is None:
            return self.graph.works
        return np.asarray(self.lag == self.time[self.target] - self.time[self.source], np.bool_)

    @cached_property
    def happens(self) -> Mask:
        """The nodes that happen in the stretch."""
        return np.asarray((self.time > self.begin) & (self.time <= self.end), np.bool_)

    @property
    def device_ends(self) -> Ints:
        """The nodes that happen in the stretch and are ends of device work."""
        hosts = self.graph.nodes.hosts
        since = hosts if self.nodes is None else int(np.searchsorted(self.nodes, hosts))
        at = since + np.flatnonzero(self.happens[since:])
        ends: Ints = at[(self.in_graph(at) - hosts) % 2 == 1]
        return ends

    @property
    def inside(self) -> Mask:
        """The edges into nodes of the stretch."""
        return self.happens[self.target] if self.edges is None else np.ones(len(self.lag), np.bool_)

    def in_graph(self, nodes: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        """Returns the nodes of the graph that nodes of the window are."""
        return nodes if self.nodes is None else self.nodes[nodes]

    def edges_in_graph(self, edges: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
        """Returns the edges of the graph that edges of the window are, -1 for -1."""
        return edges if self.edges is None or not len(self.edges) else np.where(edges >= 0, self.edges[edges], -1)

    def places(self, nodes: npt.NDArray[np.integer]) -> Ints:
        """Returns the nodes of the window that nodes of the graph are, all of them in it."""
        return nodes.astype(np.int64) if self.nodes is None else np.searchsorted(self.nodes, nodes)

    def edge_places(self, edges: npt.NDArray[np.integer]) -> Ints:
        """Returns the edges of the window that edges of the graph are, -1 of those outside."""
        if self.edges is None:
            return edges.astype(np.int64)
        place = np.searchsorted(self.edges, edges)
        known = np.append(self.edges, -1)[place] == edges
        return np.where(known, place, -1)

    # -- replays ------------------------------------------------------------------------------------------------

    def moved_ns(self, edges: npt.NDArray[np.integer], less: Ints, left: Ints | None = None) -> int:
        """Returns by how much the stretch ends earlier where edges take less, ns, of each no more than it takes; later: negative.

        left: a copy of `lag`, the same again afterwards, for who asks more than once.
        """
        part, lag = self.part, self.lags.copy()
        passes.take(edges, less, self.lag.copy() if left is None else left, part.of_edge, lag)
        if left is not None:
            left[edges] = self.lag[edges]
        time = passes.replay(self.order, part.first, part.source, lag, self.times)
        return int(self.time[self.ends].max() - time[self.last_nodes].max())

    @cached_property
    def lags(self) -> Ints:
        """The lags of the condensed graph."""
        return self.part.lags(self.lag)

    @cached_property
    def times(self) -> Ints:
        """When the nodes of the condensed graph happen."""
        return self.time[self.part.node]

    def moved_by_each_ns(self, pieces: passes.Pieces, items: int) -> tuple[Ints, Ints]:
        """Returns by how much the stretch ends earlier where one item takes half of its time, and where it takes none; per item, ns.

        pieces: what of its lags is of an item, see `pieces_of`.
        """
        part = self.part
        half, none = passes.replay_each(
            self.order, part.first, part.source, self.lags, self.times, pieces, items, self.last_nodes
        )
        before = int(self.time[self.ends].max())
        return before - half, before - none

    def slack(self, ends: Rows, until: Ints) -> Ints:
        """Returns by how much each node may be late while some nodes of the graph stay before `until`; NEVER where none waits for it."""
        part, place = self.part.with_nodes(self.places(ends))
        late = passes.latest(part.order, part.first, part.source, part.lags(self.lag), place, until)
        at = passes.spread_back(part.node, late, part.chain, self.first, self.lag)
        return np.subtract(at, self.time, out=at, where=at < passes.NEVER)


def pieces_of(part: Condensed, lag: Ints, item: npt.NDArray[np.integer], items: int) -> passes.Pieces:
    """Returns what of the lags of a condensed graph is of an item. lag, item: of the edges of the whole graph, -1 of none."""
    return passes.pieces(part.of_edge, lag, item, items)


def window_of_steps(capture: Capture, where: Scope) -> Window:
    """Returns the part of the graph that the steps of a selection cover, from the first start to the last end."""

    def make() -> Window:
        path, graph = path_of(capture, where), graph_of(capture)
        finals = finals_of(capture, path)
        begin, end = int(path.begin.min()), int(path.end.max())
        ends = finals.node[finals.step == path.rows[int(path.end.argmax())]]
        stretch = _happening(graph, begin, end)
        if 2 * len(stretch) > len(graph.time):
            return _most(graph, begin, end, len(stretch), ends)
        bounds = np.unique(np.concatenate((path.begin, path.end)))
        return _cut_out(graph, begin, end, stretch, ends, np.concatenate((finals.node, path.ends)), bounds)

    return memo(capture, ("critical.window", where.rows), make)


def _happening(graph: Graph, begin: int, end: int) -> Ints:
    """Returns the nodes of a graph that happen in a stretch of time, its begin excluded, ascending."""
    time, hosts = graph.time, graph.nodes.hosts
    threads = np.append(np.flatnonzero(graph.nodes.begins), hosts).tolist()
    found, since = [np.zeros(0, np.int64)], 0
    if len(threads) * 64 < hosts:  # times of a thread ascend: few look-ups in place of one per node
        since = hosts
        for low, high in pairwise(threads):
            a, b = np.searchsorted(time[low:high], (begin, end), side="right").tolist()
            found.append(np.arange(low + a, low + b))
    rest = time[since:]
    found.append(since + np.flatnonzero((rest > begin) & (rest <= end)))
    return np.concatenate(found)


def _most(graph: Graph, begin: int, end: int, size: int, ends: Rows) -> Window:
    """Returns the whole graph as a window."""
    part, places = graph.condensed.with_nodes(ends)
    time = graph.time[part.node[part.order]]
    order = part.order[(time > begin) & (time <= end)]
    return Window(
        graph, begin, end, size, None, None, graph.time, graph.first, graph.edges.source, graph.edges.kind, graph.lag, graph.binding, part,
        order, ends, places,
    )  # fmt: skip


def _cut_out(graph: Graph, begin: int, end: int, stretch: Ints, ends: Rows, finals: Rows, bounds: Ints) -> Window:
    """Returns a graph of some nodes, of those that they wait for and of `finals`. bounds: begins and ends of steps, ascending."""
    low = graph.first[stretch]
    count = graph.first[stretch + 1] - low
    edges = arrays.ranges(low, count)
    source = graph.edges.source[edges]
    others = np.concatenate((source, finals))
    moment = graph.time[others]
    outside = np.unique(others[(moment <= begin) | (moment > end)])
    nodes = np.sort(np.concatenate((stretch, outside)))
    time, inside = graph.time[nodes], np.searchsorted(nodes, stretch)
    first = np.zeros(len(nodes) + 1, np.int32)
    first[1:][inside] = count
    np.cumsum(first, out=first, dtype=np.int32)
    binding = np.full(len(nodes), -1, np.int32)
    held = graph.binding[stretch]
    binding[inside] = np.where(held >= 0, held - low + first[inside], -1)
    kind, own = graph.edges.kind[edges], np.searchsorted(nodes, source).astype(np.int32)
    crossing = np.flatnonzero(np.diff(np.searchsorted(bounds, time, side="left"))) + 1
    part, places = condensed(first, own, APART[kind], crossing).with_nodes(np.searchsorted(nodes, ends))
    moment = time[part.node[part.order]]
    order = part.order[(moment > begin) & (moment <= end)]
    return Window(
        graph, begin, end, len(stretch), nodes.astype(np.int32), edges.astype(np.int32), time, first, own, kind, graph.lag[edges], binding,
        part, order, np.searchsorted(nodes, ends).astype(np.int32), places,
    )  # fmt: skip
