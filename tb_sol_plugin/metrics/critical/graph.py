"""Builds the graph of a recording: each moment waits for others, and the latest of them holds it.

The rule is `time(v) = max over edges (u, v) of time(u) + lag(u, v)`. The edge that makes a moment ready last holds it and takes the lag
that was measured; every other one keeps what it costs at least. So replaying the unchanged graph gives every measured time, to the
nanosecond, and the longest path to the end of a step is as long as the step. A moment without edges happens at its own time, whatever
else changes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.device_edges import Work, device_edges, work_of
from tb_sol_plugin.metrics.critical.edges import EVENT, HANDOFF, KINDS, LAUNCH, QUEUE_FULL, SYNC, Edges, joined
from tb_sol_plugin.metrics.critical.host_edges import host_edges
from tb_sol_plugin.metrics.critical.nodes import Nodes, nodes_of
from tb_sol_plugin.metrics.critical.waits import CALL_NS, wait_edges
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.order import topological_order

CUT_FIRST = (HANDOFF, EVENT, QUEUE_FULL, SYNC, LAUNCH)
"""Kinds of edges that are cut where a circle of moments of one time is left, in this order; the weakest evidence first."""


@dataclass(frozen=True)
class Graph:
    """A graph of moments as columns.

    edges: by target; those into node v are `first[v]:first[v + 1]`. lag: of each edge, ns. binding: the edge that holds each node, -1 where
    it happens at its own time. order: nodes, each after all that it waits for. residual: ns of each node's lag beyond what the edge that
    holds it costs at least. dropped: edges that contradict the times, by kind. cut: edges that closed a circle.
    """

    nodes: Nodes
    work: Work
    edges: Edges
    first: Ints
    lag: Ints
    binding: Rows
    order: Rows
    dropped: dict[str, int]
    cut: int

    @property
    def time(self) -> Ints:
        """When each node was measured, ns."""
        return self.nodes.time

    def replay(self, lag: Ints | None = None) -> Ints:
        """Returns when each node happens with other lags; with none given, as measured."""
        return passes.replay(self.order, self.first, self.edges.source, self.lag if lag is None else lag, self.time)

    def slack(self, ends: Rows, until: Ints) -> Ints:
        """Returns by how much each node may be late while some nodes stay before `until`; NEVER where none waits for it."""
        at = passes.latest(self.order, self.first, self.edges.source, self.lag, ends, until)
        found: Ints = np.where(at < passes.NEVER, at - self.time, passes.NEVER)
        return found


def graph_of(capture: Capture) -> Graph:
    """Returns the graph of a recording, built once."""
    return memo(capture, ("critical.graph",), lambda: _graph(capture))


def _graph(capture: Capture) -> Graph:
    nodes = nodes_of(capture)
    work = work_of(capture, nodes)
    waits, waited = wait_edges(capture, nodes, work)
    parts = [*host_edges(capture, nodes, waited, CALL_NS), *device_edges(capture, nodes, work), *waits]
    return assembled(nodes, work, joined(parts))


def assembled(nodes: Nodes, work: Work, every: Edges) -> Graph:
    """Returns the graph of some edges: those against the times left out, circles cut, and lags as measured."""
    time = nodes.time
    measured = time[every.target] - time[every.source]
    wrong = (measured < 0) | (every.least < 0)
    count = np.bincount(every.kind[wrong], minlength=len(KINDS)).tolist()
    dropped = {name: number for name, number in zip(KINDS, count, strict=True) if number}
    kept = every.at(~wrong)
    kept = kept.at(np.argsort(kept.target, kind="stable"))
    cut = 0
    while True:
        first = np.zeros(len(time) + 1, np.int64)
        np.cumsum(np.bincount(kept.target, minlength=len(time)), out=first[1:])
        order = topological_order(first, kept.source)
        if len(order) == len(time):
            break
        weakest = _weakest(kept, order, len(time))
        cut += int(weakest.sum())
        kept = kept.at(~weakest)
    measured = time[kept.target] - time[kept.source]
    least = np.minimum(kept.least, measured)
    binding = _binding(kept, time[kept.source] + least, first)
    lag = least.copy()
    held = binding[binding >= 0]
    lag[held] = measured[held]
    return Graph(nodes, work, replace(kept, least=least), first, lag, binding, order, dropped, cut)


def _weakest(kept: Edges, order: Rows, nodes: int) -> Mask:
    """Returns which edges within the circles that are left to cut first: threads and streams by themselves close none."""
    left = np.ones(nodes, np.bool_)
    left[order] = False
    inside = left[kept.source] & left[kept.target]
    rank = np.full(len(KINDS), -1, np.int64)
    rank[[*reversed(CUT_FIRST)]] = np.arange(len(CUT_FIRST))
    weak = np.where(inside & (rank[kept.kind] >= 0), kept.evidence.astype(np.int64) * len(KINDS) + rank[kept.kind], -1)
    return np.asarray(weak == weak.max(), np.bool_)


def _binding(kept: Edges, ready: Ints, first: Ints) -> Rows:
    """Returns the edge that makes each node ready last; of several the best known one, of these the first."""
    into = np.diff(first)
    out = np.where(into > 0, first[:-1], -1).astype(np.int32)
    several = np.flatnonzero(into[kept.target] > 1)
    target = kept.target[several]
    order = np.lexsort((-np.arange(len(several)), -kept.evidence[several], ready[several], target))
    last = np.flatnonzero(np.append(target[order][1:] != target[order][:-1], True)) if len(several) else np.zeros(0, np.int64)
    out[target[order[last]]] = several[order[last]]
    return out
