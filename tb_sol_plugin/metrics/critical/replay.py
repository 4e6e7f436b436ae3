"""Replays a graph with other durations: the step that a change would give, and how far the graph can be trusted to say so.

Contention between streams, clocks, the allocator and what other ranks would do are not in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.edges import EVENT, HANDOFF, INFERRED, LAUNCH, QUEUE_FULL, STREAM, SYNC
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.path import PLACE, Path, path_of
from tb_sol_plugin.metrics.critical.window import Window, window_of_steps
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows

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
    guessed = memo(
        capture, ("critical.guessed", kinds), lambda: bool((np.isin(graph.edges.kind, kinds) & (graph.edges.evidence == INFERRED)).any())
    )
    return Trust(unexplained, inferred, blind, grade, abs(blind) + (ERROR_INFERRED if guessed else ERROR), apart)


def _apart(capture: Capture, path: Path) -> bool:
    """Tells whether most device work of some steps has no launch in the recording, or starts before it by their clocks."""
    graph = graph_of(capture)
    lost, step = memo(capture, ("critical.lost",), lambda: _lost(capture))
    inside = np.isin(step, path.rows)
    here = lost[inside] if inside.any() else lost
    return graph.nodes.hosts > 0 and 2 * int(here.sum()) > len(here)


def _lost(capture: Capture) -> tuple[Mask, Rows]:
    """Returns (which device work has no launch in the recording, or starts before it; the step of each)."""
    graph = graph_of(capture)
    work, rows = graph.work, graph.nodes.device
    known = work.call >= 0
    lost = ~known & (capture.device["link"].to_numpy()[rows] != S.BEFORE_WINDOW)
    return lost | (known & (work.start < work.launch)), capture.device["step"].to_numpy()[rows]


def blind_error(capture: Capture, where: Scope) -> float:
    """Returns predicted over measured time of the steps of a selection, less 1, with latencies that are those of other steps.

    Each is the median of its kind: over the other steps; over all of them where there is one, or more than FEW_STEPS.
    """
    window, path = window_of_steps(capture, where), path_of(capture, where)
    last = window.places(path.ends)
    part, ends = window.part.with_nodes(last)
    measured = window.time[part.node]
    held = window.binding[window.happens]
    held = held[held >= 0]
    kinds = window.kind[held]
    apart = 1 < len(path.rows) <= FEW_STEPS
    of_kind = [_Latencies.of(held[kinds == kind], window, path, apart=apart) for kind in LATENCIES]
    step = _step_of(measured[part.order], path)
    by_step = np.argsort(step, kind="stable")
    bounds = np.searchsorted(step[by_step], np.arange(len(path.rows) + 1))
    lag, time, off = part.lags(window.lag), measured.copy(), 0
    for i in range(len(path.rows)):
        for one in of_kind if apart or not i else ():
            own, others = one.edges, one.ascending
            if apart:
                own, others = own[one.step == i], others[one.its_step != i]
            if len(own) and len(others):
                there = part.of_edge[own]  # an edge after which nothing is waited for moves nothing
                usual = int((int(others[(len(others) - 1) // 2]) + int(others[len(others) // 2])) / 2)
                np.add.at(lag, there[there >= 0], usual - window.lag[own[there >= 0]])
        nodes = part.order[by_step[bounds[i] : bounds[i + 1]]]
        passes.replay_into(nodes, part.first, part.source, lag, time)
        off += int(time[ends[i]] - measured[ends[i]])
        time[nodes] = measured[nodes]  # the next step begins as measured
    return off / int((path.end - path.begin).sum())


class _Latencies(NamedTuple):
    """Edges of one kind into nodes of steps: those edges, the step of each; their lags, ascending, and where steps are told apart the step
    of each of these.
    """

    edges: Ints
    step: Ints
    ascending: Ints
    its_step: Ints

    @classmethod
    def of(cls, edges: Ints, window: Window, path: Path, *, apart: bool) -> _Latencies:
        step = _step_of(window.time[window.target[edges]], path)
        edges, step = edges[step >= 0], step[step >= 0]
        lag = window.lag[edges]
        if not apart:
            return cls(edges, step, np.sort(lag), step)
        order = np.argsort(lag, kind="stable")
        return cls(edges, step, lag[order], step[order])


def _step_of(time: Ints, path: Path) -> Ints:
    """Returns the place of the step that each time is in, its start excluded; -1 outside of every step."""
    place = np.searchsorted(path.begin, time, side="left") - 1
    safe = np.maximum(place, 0)
    return np.where((place >= 0) & (time <= path.end[safe]), place, -1)
