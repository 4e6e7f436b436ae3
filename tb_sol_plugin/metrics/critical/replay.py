"""Replays a graph with other durations: the step that a change would give, and how far the graph can be trusted to say so.

Contention between streams, clocks, the allocator and what other ranks would do are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.condensed import Condensed
from tb_sol_plugin.metrics.critical.edges import EVENT, HANDOFF, INFERRED, LAUNCH, QUEUE_FULL, STREAM, SYNC
from tb_sol_plugin.metrics.critical.graph import Graph, graph_of
from tb_sol_plugin.metrics.critical.path import PLACE, Path, finals_of, path_of
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints, Rows

LATENCIES: Final = (LAUNCH, STREAM, EVENT, SYNC, QUEUE_FULL, HANDOFF)
"""Kinds of edges whose lag is no work."""
GRADES: Final = (("good", 0.02, 0.03), ("fair", 0.10, 0.10))
"""Each grade with the shares of the step that may be unexplained, and off in a blind replay, at most; else `poor`."""
FEW_STEPS: Final = 16
"""Steps up to which each is predicted from the others alone."""
ERROR: Final = 0.005
"""Error of a prediction, of the step, where waits between streams are known."""
ERROR_INFERRED: Final = 0.03
"""The same where some are inferred, or with several devices waits of the host."""


@dataclass(frozen=True)
class Window:
    """Part of a graph that is replayed: nodes that happen in a stretch of time; all others happen as measured.

    begin, end: of the stretch, its begin excluded, ns. size: how many nodes happen in it. ends: nodes of which the latest ends the stretch.
    part: the condensed graph with these among its nodes. nodes: those of it in the stretch, in order. last_nodes: places of `ends` in it.
    """

    graph: Graph
    begin: int
    end: int
    size: int
    ends: Rows
    part: Condensed
    nodes: Rows
    last_nodes: Ints

    def times(self, lag: Ints) -> Ints:
        """Returns when each node of the graph happens with other lags."""
        graph, part = self.graph, self.part
        return passes.spread(part.node, self._replayed(lag), part.chain, graph.first, lag, graph.time, self.begin, self.end)

    def _replayed(self, lag: Ints) -> Ints:
        part = self.part
        return passes.replay(self.nodes, part.first, part.source, part.lags(lag), self.graph.time[part.node])

    def last(self, time: Ints) -> int:
        """Returns the last of the nodes that the stretch ends with, by the time of each node."""
        return int(self.ends[int(time[self.ends].argmax())])

    def moved_ns(self, lag: Ints) -> int:
        """Returns by how much the stretch ends earlier with other lags, ns; later: negative."""
        return int(self.graph.time[self.ends].max() - self._replayed(lag)[self.last_nodes].max())

    def earlier_ns(self, time: Ints) -> int:
        """Returns the same by the time of each node."""
        return int(self.graph.time[self.ends].max() - time[self.ends].max())

    def moved_by_each_ns(self, item: Ints, items: int) -> tuple[Ints, Ints]:
        """Returns by how much the stretch ends earlier where one item takes half of its time, and where it takes none; per item, ns.

        item: of each edge, -1 of none.
        """
        graph, part = self.graph, self.part
        pieces = pieces_of(part, graph.lag, item, items)
        released, lag = graph.time[part.node], part.lags(graph.lag)
        half, none = passes.replay_each(self.nodes, part.first, part.source, lag, released, pieces, items, self.last_nodes)
        before = int(graph.time[self.ends].max())
        return before - half, before - none


def pieces_of(part: Condensed, lag: Ints, item: Ints, items: int) -> passes.Pieces:
    """Returns what of the lags of a condensed graph is of an item. lag, item: of the edges of the whole graph."""
    edge = np.flatnonzero(item >= 0)
    of = part.of_edge[edge]
    edge, of = edge[of >= 0], of[of >= 0].astype(np.int64)
    key = of * items + item[edge]
    order = np.argsort(key, kind="stable")
    key, whole = key[order], lag[edge][order]
    begin = np.flatnonzero(np.diff(key, prepend=-1))
    half = whole - whole // 2
    if len(begin):
        half, whole = np.add.reduceat(half, begin), np.add.reduceat(whole, begin)
    return passes.Pieces(key[begin] // items, key[begin] % items, half, whole)


def window_of_steps(capture: Capture, where: Scope) -> Window:
    """Returns the part of the graph that the steps of a selection cover, from the first start to the last end."""

    def make() -> Window:
        path, graph = path_of(capture, where), graph_of(capture)
        finals = finals_of(capture, path)
        begin, end = int(path.begin.min()), int(path.end.max())
        ends = finals.node[finals.step == path.rows[int(path.end.argmax())]]
        part, places = graph.condensed.with_nodes(ends)
        time = graph.time[part.node[part.order]]
        inside = part.order[(time > begin) & (time <= end)]
        size = int(((graph.time > begin) & (graph.time <= end)).sum())
        return Window(graph, begin, end, size, ends, part, inside, places)

    return memo(capture, ("critical.window", where.rows), make)


# -- How far to trust it ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trust:
    """How far the path and its replay can be trusted, over the steps of a selection.

    unexplained: share of their time. inferred: share whose edges follow from times alone. blind: predicted over measured time less 1, with
    every latency replaced by the median of its kind in the other steps; of one step in itself. grade: good, fair or poor. error: of a
    prediction, share of the step. apart: most work of devices has no launch, or one after its start: nothing joins host and device.
    """

    unexplained: float
    inferred: float
    blind: float
    grade: str
    error: float
    apart: bool = False


def trust_of(capture: Capture, where: Scope) -> Trust:
    """Returns how far the critical path of a selection can be trusted."""
    return memo(capture, ("critical.trust", where.rows), lambda: _trust(capture, where))


def _trust(capture: Capture, where: Scope) -> Trust:
    path = path_of(capture, where)
    total = int((path.end - path.begin).sum())
    if not total:
        return Trust(0.0, 0.0, 0.0, "poor", ERROR_INFERRED)
    unexplained = int(path.duration[path.kind == PLACE["unexplained"]].sum()) / total
    inferred = int(path.duration[path.inferred].sum()) / total
    blind = blind_error(capture, where)
    apart = _apart(capture, path)
    grade = next((name for name, most, off in GRADES if unexplained <= most and abs(blind) <= off and not apart), "poor")
    graph = graph_of(capture)
    device = graph.work.device
    several = len(device) > 0 and bool((device != device[0]).any())  # which of them the host waited for is a guess
    kinds = (EVENT, SYNC) if several else (EVENT,)
    guessed = bool((np.isin(graph.edges.kind, kinds) & (graph.edges.evidence == INFERRED)).any())
    return Trust(unexplained, inferred, blind, grade, abs(blind) + (ERROR_INFERRED if guessed else ERROR), apart)


def _apart(capture: Capture, path: Path) -> bool:
    """Tells whether most device work of some steps has no launch in the recording, or starts before it by their clocks."""
    graph = graph_of(capture)
    work, rows = graph.work, graph.nodes.device
    inside = np.isin(capture.device["step"].to_numpy()[rows], path.rows)
    inside = inside if inside.any() else np.ones(len(rows), np.bool_)
    known = work.call >= 0
    lost = ~known & (capture.device["link"].to_numpy()[rows] != S.BEFORE_WINDOW)
    lost |= known & (work.start < work.launch)
    return graph.nodes.hosts > 0 and 2 * int((lost & inside).sum()) > int(inside.sum())


def blind_error(capture: Capture, where: Scope) -> float:
    """Returns predicted over measured time of the steps of a selection, less 1, with latencies that are those of other steps.

    Each is the median of its kind: over the other steps; over all of them where there is one, or more than FEW_STEPS.
    """
    graph, path = graph_of(capture), path_of(capture, where)
    edges = graph.edges
    part, ends = graph.condensed.with_nodes(path.ends)
    measured = graph.time[part.node]
    held = graph.binding[graph.binding >= 0]
    of_kind = {kind: held[edges.kind[held] == kind] for kind in LATENCIES}
    step_of = {kind: _step_of(graph.time[edges.target[rows]], path) for kind, rows in of_kind.items()}
    step = _step_of(measured[part.order], path)
    by_step = np.argsort(step, kind="stable")
    bounds = np.searchsorted(step[by_step], np.arange(len(path.rows) + 1))
    apart = 1 < len(path.rows) <= FEW_STEPS
    lag, time, off = part.lags(graph.lag), measured.copy(), 0
    for i in range(len(path.rows)):
        for kind, rows in of_kind.items() if apart or not i else ():
            inside = step_of[kind] == i if apart else step_of[kind] >= 0
            others = ~inside & (step_of[kind] >= 0) if apart else inside
            if inside.any() and others.any():
                own = rows[inside]
                there = part.of_edge[own]  # an edge after which nothing is waited for moves nothing
                np.add.at(lag, there[there >= 0], int(np.median(graph.lag[rows[others]])) - graph.lag[own[there >= 0]])
        nodes = part.order[by_step[bounds[i] : bounds[i + 1]]]
        passes.replay_into(nodes, part.first, part.source, lag, time)
        off += int(time[ends[i]] - measured[ends[i]])
        time[nodes] = measured[nodes]  # the next step begins as measured
    return off / int((path.end - path.begin).sum())


def _step_of(time: Ints, path: Path) -> Ints:
    """Returns the place of the step that each time is in, its start excluded; -1 outside of every step."""
    place = np.searchsorted(path.begin, time, side="left") - 1
    safe = np.maximum(place, 0)
    return np.where((place >= 0) & (time <= path.end[safe]), place, -1)
