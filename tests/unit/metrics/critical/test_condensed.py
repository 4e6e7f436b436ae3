"""A condensed graph gives the times of the whole one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.condensed import condensed
from tb_sol_plugin.metrics.critical.window import pieces_of
from tb_sol_plugin.tables.compiled import Loop
from tb_sol_plugin.tables.order import topological_order


@pytest.mark.parametrize("plain", [False, True])
def test_replays_of_a_condensed_graph_are_those_of_the_whole_one(plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN random graphs of chains and a few other edges, cut at some moments WHEN they are replayed condensed, with some moments asked for
    # THEN times, latest times and what items save are those of the whole graph
    monkeypatch.setattr(Loop, "of", lambda loop, size, pays: loop.py_func if plain else loop)
    kept = []
    for seed in range(60):
        rng = random.Random(seed)
        nodes = rng.randint(1, 40)
        edges = [(v - 1, v) for v in range(1, nodes) if rng.random() < 0.85]
        edges += [(rng.randrange(v), v) for v in range(1, nodes) if rng.random() < 0.15]
        edges.sort(key=lambda e: e[1])
        source = np.array([u for u, _ in edges], np.int32)
        first = np.concatenate(([0], np.cumsum(np.bincount([v for _, v in edges], minlength=nodes))))
        lag = np.array([rng.randint(0, 9) for _ in edges], np.int64)
        released = np.array([rng.randint(0, 5) for _ in range(nodes)], np.int64)
        cuts = np.array([v for v in range(nodes) if rng.random() < 0.1], np.int64)
        asked = np.array([rng.randrange(nodes) for _ in range(rng.randint(0, 3))] + [nodes - 1], np.int32)
        small = condensed(first, source, np.array([rng.random() < 0.05 for _ in edges], np.bool_), cuts)
        part, place = small.with_nodes(asked)
        assert part.complete and part.node[place].tolist() == asked.tolist() and np.isin(cuts, part.node).all()
        order = topological_order(first, source)
        time = passes.replay(order, first, source, lag, released)
        kept.append((nodes, len(part.node)))
        for one in (small, part):
            short = passes.replay(one.order, one.first, one.source, one.lags(lag), released[one.node])
            assert short.tolist() == time[one.node].tolist()
            assert passes.spread(one.node, short, one.chain, first, lag).tolist() == time.tolist()
        late = passes.latest(order, first, source, lag, asked, time[asked])
        found = passes.latest(part.order, part.first, part.source, part.lags(lag), place, time[asked])
        assert passes.spread_back(part.node, found, part.chain, first, lag).tolist() == late.tolist()
        item = np.array([rng.randint(-1, 2) for _ in edges], np.int64)
        each = passes.replay_each(
            part.order, part.first, part.source, part.lags(lag), released[part.node], pieces_of(part, lag, item, 3), 3, place,
        )  # fmt: skip
        for less, got in zip((2, 10**9), each, strict=True):
            alone = [passes.replay(order, first, source, np.where(item == k, lag // less, lag), released) for k in range(3)]
            assert got.tolist() == [int(t[asked].max()) for t in alone]
    assert 2 * sum(n for _, n in kept) < 1.5 * sum(n for n, _ in kept), "it is condensed"


def test_a_circle_is_left_where_the_whole_graph_has_one() -> None:
    # GIVEN 0 -> 1 -> 2 -> 3 and 3 -> 1 THEN the condensed graph is not complete: 1 to 3 wait for each other
    found = condensed(np.array([0, 0, 2, 3, 4]), np.array([0, 3, 1, 2], np.int32), np.zeros(4, np.bool_), np.zeros(0, np.int64))
    assert not found.complete and found.node[found.order].tolist() == [0]
