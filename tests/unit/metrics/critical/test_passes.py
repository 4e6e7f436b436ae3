"""Order, replay, latest times and the walk, against all paths of small random graphs, compiled and plain."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.tables import order as ordering
from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.compiled import Loop
from tb_sol_plugin.tables.order import topological_order

KERNELS = (ordering.order_kernel, passes.replay_kernel, passes.latest_kernel, passes.walk_kernel, passes.innermost_kernel)
Edge = tuple[int, int, int]


@pytest.fixture(params=["compiled", "plain"])
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs the loops compiled, or as plain Python."""
    monkeypatch.setattr(Loop, "of", lambda loop, size, pays: loop if request.param == "compiled" else loop.py_func)
    return str(request.param)


def columns(nodes: int, edges: list[Edge]) -> tuple[Ints, Rows, Ints]:
    by_target = sorted(edges, key=lambda e: e[1])
    first = np.zeros(nodes + 1, np.int64)
    for _, v, _ in by_target:
        first[v + 1 :] += 1
    return first, np.array([u for u, _, _ in by_target], np.int32), np.array([lag for _, _, lag in by_target], np.int64)


def longest(nodes: int, edges: list[Edge], released: list[int]) -> list[int]:
    """When each node happens, from all paths into it, one after the other: nodes are numbered so that edges ascend."""
    into: dict[int, list[tuple[int, int]]] = {v: [] for v in range(nodes)}
    for u, v, lag in edges:
        into[v].append((u, lag))

    def paths(v: int) -> list[int]:
        return [length + lag for u, lag in into[v] for length in paths(u)] if into[v] else [released[v]]

    return [max(paths(v)) for v in range(nodes)]


def random_graph(seed: int) -> tuple[int, list[Edge], list[int]]:
    rng = random.Random(seed)
    nodes = rng.randint(2, 10)
    edges = [(u, v, rng.randint(0, 9)) for v in range(nodes) for u in range(v) if rng.random() < 0.3]
    return nodes, edges, [rng.randint(0, 5) for _ in range(nodes)]


def shuffled(seed: int, nodes: int, edges: list[Edge], released: list[int]) -> tuple[list[Edge], list[int], list[int]]:
    """The same graph with other numbers: nothing may rely on their order."""
    number = list(range(nodes))
    random.Random(seed).shuffle(number)
    place = [number.index(v) for v in range(nodes)]
    return [(number[u], number[v], lag) for u, v, lag in edges], [released[place[v]] for v in range(nodes)], number


def test_times_slack_and_path_are_those_of_all_paths(chosen: str) -> None:
    # GIVEN random graphs of up to ten nodes WHEN they are replayed THEN times, slack and the path are those of every path tried one by one
    for seed in range(150):
        nodes, plain, own = random_graph(seed)
        expected = longest(nodes, plain, own)
        edges, released, number = shuffled(seed, nodes, plain, own)
        first, source, lag = columns(nodes, edges)
        order = topological_order(first, source)
        assert sorted(order.tolist()) == list(range(nodes))
        time = passes.replay(order, first, source, lag, np.array(released, np.int64))
        assert [int(time[number[v]]) for v in range(nodes)] == expected
        end = number[nodes - 1]
        item = np.array([random.Random(seed + e).randint(-1, 2) for e in range(len(source))], np.int64)
        of = np.flatnonzero(item >= 0)
        pieces = passes.Pieces(of, item[of], lag[of] - lag[of] // 2, lag[of])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(passes, "AT_ONCE", 1 + seed % 3)
            each = passes.replay_each(order, first, source, lag, np.array(released, np.int64), pieces, 3, np.array([end, order[0]]))
        for scale, found in zip((2, 10**9), each, strict=True):  # half of their lag, and nothing
            alone = [np.where(item == k, lag // scale, lag) for k in range(3)]
            again = [passes.replay(order, first, source, other, np.array(released, np.int64)) for other in alone]
            assert found.tolist() == [int(one[[end, order[0]]].max()) for one in again]
        late = passes.latest(order, first, source, lag, np.array([end], np.int32), time[[end]])
        for v in range(nodes):
            slack = int(late[number[v]] - time[number[v]])
            assert slack >= 0
            delayed = late[number[v]] < passes.NEVER
            for by in (slack, slack + 1) if delayed else (10**6,):
                moved = longest_with(nodes, plain, own, v, expected[v] + by)
                assert (moved > expected[nodes - 1]) == (delayed and by > slack), (seed, v, by)


def longest_with(nodes: int, edges: list[Edge], released: list[int], late: int, at: int) -> int:
    """When the last node happens where one node happens no earlier than at a time."""
    out: list[int] = []
    for v in range(nodes):
        into = [out[u] + lag for u, w, lag in edges if w == v]
        time = max(into) if into else released[v]
        out.append(max(time, at) if v == late else time)
    return out[-1]


def test_the_walk_ends_where_nothing_holds_or_the_step_begins(chosen: str) -> None:
    # GIVEN 0 -> 1 -> 2 at 10, 20, 30 WHEN it is walked from 2 THEN it goes back to 0, or to the first node not after the begin
    time = np.array([10, 20, 30], np.int64)
    binding = np.array([-1, 0, 1], np.int32)
    source = np.array([0, 1], np.int32)
    assert passes.walk(time, source, binding, 2, 0).tolist() == [2, 1, 0]
    assert passes.walk(time, source, binding, 2, 20).tolist() == [2, 1]
    assert passes.walk(time, source, binding, 2, 15).tolist() == [2, 1, 0]


def test_a_circle_is_left_out_of_the_order(chosen: str) -> None:
    # GIVEN 0 -> 1 -> 2 -> 1 THEN only 0 has a place
    first, source, _ = columns(3, [(0, 1, 0), (2, 1, 0), (1, 2, 0)])
    assert topological_order(first, source).tolist() == [0]


def test_innermost_of_events_that_do_not_nest(chosen: str) -> None:
    # GIVEN b starting inside of a and ending after it THEN b is innermost until its own end, and then nothing
    row, opens = np.array([0, 1, 0, 1], np.int32), np.array([True, True, False, False])
    begins: Any = np.array([True, False, False, False])
    assert passes.innermost(row, opens, begins).tolist() == [0, 1, 1, -1]


def test_loading_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the loops loaded ahead WHEN they are used THEN none is compiled for other types
    passes.load()
    ordering.load()
    before = [len(kernel.signatures) for kernel in KERNELS]
    monkeypatch.setattr(Loop, "of", lambda loop, size, pays: loop)
    first, source, lag = columns(2, [(0, 1, 5)])
    order = topological_order(first, source)
    time = passes.replay(order, first, source, lag, np.zeros(2, np.int64))
    passes.latest(order, first, source, lag, np.array([1], np.int32), time[1:])
    passes.walk(time, source, np.array([-1, 0], np.int32), 1, 0)
    passes.innermost(np.zeros(2, np.int32), np.array([True, False]), np.array([True, False]))
    assert [len(kernel.signatures) for kernel in KERNELS] == before
