"""Condenses a graph for replays: a chain of moments of which each waits for the one before it alone is one edge, with the sum of its lags.

Most moments of a recording are such: a thread goes from one to the next. What is left are the moments at which something is waited for, and
those that others wait for. A replay of these gives the same times to the nanosecond, and goes over a tenth of the graph.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.critical.assembly import chained, places_between, sums_between
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.order import topological_order


@dataclass(frozen=True)
class Condensed:
    """A condensed graph, as columns like those of the whole one.

    node: the moment that each node of it is. first, source: edges by target. low, high: each stands for the edges `low:high` of the whole
    graph, whose lags add up. order: its nodes, each after all that it waits for; fewer than there are where a circle is left. chain: of the
    whole graph, which moments wait for the one before them alone. whole: where the edges of the whole graph into each moment begin.
    """

    node: Rows
    first: Rows
    source: Rows
    low: Rows
    high: Rows
    order: Rows
    chain: Mask
    whole: Rows

    @property
    def complete(self) -> bool:
        """Whether no circle is left."""
        return len(self.order) == len(self.node)

    def lags(self, lag: Ints) -> Ints:
        """Returns the lags of its edges from those of the whole graph."""
        return sums_between(lag, self.low, self.high)

    @cached_property
    def of_edge(self) -> Rows:
        """The edge of it that each edge of the whole graph is part of, -1 of those after which nothing is waited for."""
        return places_between(self.low, self.high, int(self.whole[-1]))

    def with_nodes(self, moments: npt.NDArray[np.integer]) -> tuple[Condensed, Ints]:
        """Returns (the same with these moments among its nodes, their places)."""
        wanted = np.unique(moments).astype(np.int64)
        before = np.searchsorted(self.node, wanted, side="right") - 1
        new = self.node[before] != wanted
        if not new.any():
            return self, before[np.searchsorted(wanted, moments)]
        wanted, before = wanted[new], before[new]
        at = before + 1
        own, later = at + np.arange(len(at)), np.zeros(len(self.node) + 1, np.int32)
        np.add.at(later, at, 1)
        old = np.arange(len(self.node), dtype=np.int32)
        old += np.cumsum(later[:-1], dtype=np.int32)
        node = np.insert(self.node, at, wanted)
        first = np.concatenate((np.zeros(1, np.int32), np.cumsum(np.insert(np.diff(self.first), at, 1), dtype=np.int32)))
        edge = self.first[at]
        source, high = np.insert(old[self.source], edge, own - 1), np.insert(self.high, edge, self.whole[wanted] + 1)
        low = np.insert(self.low, edge, self.whole[node[own - 1] + 1])
        split = own[self.chain[np.append(node, 0)[own + 1]] & (own + 1 < len(node))]  # a chain goes on after it
        source[first[split + 1]], low[first[split + 1]] = split, self.whole[node[split]] + 1
        turn = np.empty(len(self.node), np.int32)
        turn[self.order] = np.arange(len(self.order), dtype=np.int32)
        order = np.insert(old[self.order], turn[before] + 1, own)
        made = Condensed(node, first, source, low, high, order, self.chain, self.whole)
        return made, np.searchsorted(node, moments)


def condensed(first: Rows, source: Rows, apart: Mask, cuts: npt.NDArray[np.integer]) -> Condensed:
    """Returns a graph condensed. first, source: its edges by target. apart: edges that stay by themselves. cuts: so do those into these
    moments."""
    chain, node, (begin, start, low, high) = chained(first, source, apart, cuts)
    return Condensed(node, begin, start, low, high, topological_order(begin, start), chain, first)
