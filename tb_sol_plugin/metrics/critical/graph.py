"""Builds the graph of a recording: each moment waits for others, and the latest of them holds it.

The rule is `time(v) = max over edges (u, v) of time(u) + lag(u, v)`. The edge that makes a moment ready last holds it and takes the lag
that was measured; every other one keeps what it costs at least. So replaying the unchanged graph gives every measured time, to the
nanosecond, and the longest path to the end of a step is as long as the step. A moment without edges happens at its own time, whatever
else changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.assembly import bound, by_target
from tb_sol_plugin.metrics.critical.condensed import Condensed, condensed
from tb_sol_plugin.metrics.critical.device_edges import Work, device_edges, work_of
from tb_sol_plugin.metrics.critical.edges import DEVICE, EVENT, HANDOFF, HOST, KINDS, LAUNCH, QUEUE_FULL, STREAM, SYNC, Edges, joined
from tb_sol_plugin.metrics.critical.host_edges import host_edges
from tb_sol_plugin.metrics.critical.nodes import Nodes, nodes_of
from tb_sol_plugin.metrics.critical.waits import CALL_NS, wait_edges
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows

CUT_FIRST = (HANDOFF, EVENT, QUEUE_FULL, SYNC, LAUNCH)
"""Kinds of edges that are cut where a circle of moments of one time is left, in this order; the weakest evidence first."""

APART = np.ones(len(KINDS), np.bool_)
"""Kinds of edges that are no part of a chain of moments: those that may be cut."""
APART[[HOST, STREAM, DEVICE]] = False


@dataclass(frozen=True)
class Graph:
    """A graph of moments as columns.

    edges: by target; those into node v are `first[v]:first[v + 1]`. lag: of each edge, ns. binding: the edge that holds each node, -1 where
    it happens at its own time. condensed: the same graph for replays, in which no edge goes over the begin or the end of a step. dropped:
    edges that contradict the times, by kind. cut: edges that closed a circle.
    """

    nodes: Nodes
    work: Work
    edges: Edges
    first: Rows
    lag: Ints
    binding: Rows
    condensed: Condensed
    dropped: dict[str, int]
    cut: int

    @property
    def time(self) -> Ints:
        """When each node was measured, ns."""
        return self.nodes.time

    @cached_property
    def earliest(self) -> int:
        """The time of the first node; 0 where all are later."""
        return int(self.time.min(initial=0))

    @cached_property
    def works(self) -> Mask:
        """The edges that are not waits of a thread: their lag is what was measured."""
        return np.asarray(self.lag == self.time[self.edges.target] - self.time[self.edges.source], np.bool_)

    def replay(self, lag: Ints | None = None) -> Ints:
        """Returns when each node happens with other lags; with none given, as measured."""
        own = self.lag if lag is None else lag
        part = self.condensed
        out = passes.replay(part.order, part.first, part.source, part.lags(own), self.time[part.node])
        return passes.spread(part.node, out, part.chain, self.first, own)

    def slack(self, ends: Rows, until: Ints) -> Ints:
        """Returns by how much each node may be late while some nodes stay before `until`; NEVER where none waits for it."""
        part, place = self.condensed.with_nodes(ends)
        late = passes.latest(part.order, part.first, part.source, part.lags(self.lag), place, until)
        at = passes.spread_back(part.node, late, part.chain, self.first, self.lag)
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
    bounds = np.unique(np.concatenate([capture.steps[c].to_numpy() for c in ("start_ns", "end_ns")]))
    return assembled(nodes, work, joined(parts), bounds)


def assembled(nodes: Nodes, work: Work, every: Edges, bounds: Ints) -> Graph:
    """Returns the graph of some edges: those against the times left out, circles cut, and lags as measured.

    bounds: times at which steps begin and end, ascending.
    """
    time = nodes.time
    kept, first, count = by_target(every, time)
    dropped = {name: number for name, number in zip(KINDS, count.tolist(), strict=True) if number}
    crossing = _crossing(nodes, bounds)
    cut = 0
    while not (part := condensed(first, kept.source, APART[kept.kind], crossing)).complete:
        weakest = _weakest(kept, part.node[part.order], part.node, len(time))
        cut += int(weakest.sum())
        kept, first, _ = by_target(kept.at(~weakest), time)
    binding, lag = bound(kept, first, time)
    return Graph(nodes, work, kept, first, lag, binding, part, dropped, cut)


def _crossing(nodes: Nodes, bounds: Ints) -> Ints:
    """Returns the nodes that come after a time of `bounds` of which the node before them on their thread or stream does not."""
    time, begins = nodes.time, np.append(np.flatnonzero(nodes.begins), nodes.hosts).tolist()
    found, since = [np.zeros(0, np.int64)], 0
    if len(begins) * len(bounds) < nodes.hosts:  # times of a thread ascend: few look-ups in place of one per node
        since = nodes.hosts
        for low, high in pairwise(begins):
            found.append(low + np.searchsorted(time[low:high], bounds, side="right"))  # `high` where none comes after
    place = np.searchsorted(bounds, time[since:], side="left")
    found.append(since + 1 + np.flatnonzero(place[1:] != place[:-1]))
    out = np.concatenate(found)
    return out[out < len(time)]


def _weakest(kept: Edges, done: Rows, among: Rows, nodes: int) -> Mask:
    """Returns which edges within the circles that are left to cut first: threads and streams by themselves close none.

    done: nodes that can be replayed, of those they are `among`, which have all ends of edges that may be cut.
    """
    left = np.zeros(nodes, np.bool_)
    left[among] = True
    left[done] = False
    inside = left[kept.source] & left[kept.target]
    rank = np.full(len(KINDS), -1, np.int64)
    rank[[*reversed(CUT_FIRST)]] = np.arange(len(CUT_FIRST))
    weak = np.where(inside & (rank[kept.kind] >= 0), kept.evidence.astype(np.int64) * len(KINDS) + rank[kept.kind], -1)
    return np.asarray(weak == weak.max(), np.bool_)
