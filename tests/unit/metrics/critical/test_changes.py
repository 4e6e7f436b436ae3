"""Several changes at once, other times, what is left out, and graphs of a region: against a replay edge by edge, and a simulator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.critical.changes import Change, Outcome, outcome, plan_of
from tb_sol_plugin.metrics.critical.edges import DEVICE, EVENT, HOST, SYNC
from tb_sol_plugin.metrics.critical.graph import Graph, graph_of
from tb_sol_plugin.metrics.critical.path import path_of
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support import schedules
from tests.support.schedules import Action, Host, Launch, Sync, run, trace_of
from tests.support.schedules import Graph as OneGraph
from tests.unit.metrics.critical.test_prediction import DEPTH, PROGRAMS, recorded

GEMM, NORM = "gemm_kernel", "norm_kernel"
RETURN = "Return of a synchronizing call"


def replayed(graph: Graph, lag: list[float | None]) -> float:
    """The end by one look at every edge in order of time: each moment is the latest of what it waits for. None: nothing waits for it."""
    source, first = graph.edges.source.tolist(), graph.first.tolist()
    time: list[float] = graph.time.tolist()
    for v in sorted(range(len(time)), key=lambda v: (graph.time[v], v)):
        ready = [time[source[e]] + lag[e] for e in range(first[v], first[v + 1]) if lag[e] is not None]  # type: ignore[operator]
        time[v] = max(ready, default=time[v])
    return max(time)


def held(graph: Graph) -> list[int]:
    """The edges of the critical path."""
    out, v = [], int(graph.time.argmax())
    while (e := int(graph.binding[v])) >= 0:
        out.append(e)
        v = int(graph.edges.source[e])
    return out


def changed(capture: Capture, graph: Graph, changes: Sequence[Change]) -> list[float | None]:
    """The lag of every edge after some changes, one edge at a time."""
    nodes, edges = graph.nodes, graph.edges
    kernel, host = capture.device["name"].astype(str).tolist(), capture.host["name"].astype(str).tolist()
    kinds = {GEMM: "kernels", NORM: "kernels", "ncclDevKernel_AllReduce": "communication", "aten::host_work": "host"}
    out: list[float | None] = graph.lag.tolist()
    works = graph.works.tolist()
    for e, (kind, target) in enumerate(zip(edges.kind.tolist(), edges.target.tolist(), strict=True)):
        name = ""
        if kind == DEVICE:
            name = kernel[int(nodes.device_rows(np.array([target]))[0])]
        elif kind == HOST and works[e] and int(nodes.inside[target - 1]) >= 0:
            name = host[int(nodes.inside[target - 1])]
        for one in changes:
            if (one.change, kind) in (("overlap", EVENT), ("syncs", SYNC)) and graph.first[target + 1] - graph.first[target] > 1:
                out[e] = None
            elif out[e] is not None and name and (name == one.item if one.change == "item" else kinds.get(name) == one.change):
                out[e] = float(one.set_ns) if one.set_ns is not None else out[e] * one.scale  # type: ignore[operator]
    return out


def asked(capture: Capture, *changes: Change) -> Outcome:
    found = outcome(capture, scope(capture, Query()), changes)
    assert int(found.before.sum()) == found.window and int(found.after.sum()) == found.window - found.saved, "classes add up"
    assert (found.before >= 0).all() and (found.after >= 0).all()
    return found


@pytest.mark.parametrize(
    "changes",
    [
        (Change(change="kernels"), Change(item=GEMM, scale=0.5)),
        (Change(item=GEMM, scale=0.3), Change(change="communication", scale=0.7), Change(change="host", scale=1.4)),
        (Change(item=GEMM, set_ns=30_000), Change(item="aten::host_work", set_ns=10_000)),
        (Change(change="overlap"), Change(change="kernels", scale=0.25)),
        (Change(item=GEMM, set_ns=80_000), Change(change="kernels", scale=0.5), Change(change="syncs")),
        (Change(change="kernels", scale=0.5), Change(item=NORM, set_ns=7_000), Change(change="syncs"), Change(change="overlap")),
    ],
)  # fmt: skip
def test_several_changes_are_those_of_a_replay_edge_by_edge(changes: tuple[Change, ...], tmp_path: Path) -> None:
    # GIVEN programs of several streams and waits WHEN parts of them change at once THEN the end is that of a replay of every single edge,
    # but for half a nanosecond of each that is scaled; in another order, where no time is set, it is the same
    for name, program in PROGRAMS.items():
        capture = recorded(program, tmp_path / name)
        graph, found = graph_of(capture), asked(capture, *changes)
        lag, end = changed(capture, graph, changes), int(path_of(capture, scope(capture, Query())).end.max())
        assert abs(end - found.saved - replayed(graph, lag)) <= found.changed, name
        less = [now if then is None else now - then for now, then in zip(graph.lag.tolist(), lag, strict=True)]
        assert abs(sum(less) - found.naive) <= found.changed
        assert abs(sum(less[e] for e in held(graph)) - found.first_order) <= found.changed
        assert asked(capture, *(Change(change=c.change, item=c.item, scale=0.0) for c in changes)).saved == found.at_most >= found.saved
        if all(one.set_ns is None for one in changes):
            assert asked(capture, *reversed(changes)).saved == found.saved


def simulated(program: Sequence[Action]) -> int:
    return run(program, depth=DEPTH).end


def with_kernels(program: Sequence[Action], make: Callable[[Launch], Launch | None]) -> list[Action]:
    """A program with other kernels, or without some."""
    return [new for one in program if (new := make(one) if isinstance(one, Launch) else one) is not None]


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_times_and_what_is_left_out_are_those_of_the_changed_program(name: str, tmp_path: Path) -> None:
    # GIVEN programs WHEN each product takes 25 us, when a kernel is left out, and when both are so and the host waits nowhere THEN the length
    # is that of the simulator that runs the changed program: without the launches of what is left out, with the call of a wait but no wait
    program = PROGRAMS[name]
    capture = recorded(program, tmp_path)
    fixed = with_kernels(program, lambda k: Launch(k.stream, 25_000, k.name) if k.name == GEMM else k)
    without = with_kernels(program, lambda k: None if k.name == NORM else k)
    both = with_kernels(fixed, lambda k: None if k.name == NORM else k)
    free = [Host(2_000) if isinstance(a, Sync) else a for a in both]
    each, gone, nowhere = Change(item=GEMM, set_ns=25_000), Change(item=NORM, remove=True), Change(change="syncs")
    for changes, changed_program in (((each,), fixed), ((gone,), without), ((each, gone), both), ((each, gone, nowhere), free)):
        found, truth = asked(capture, *changes), simulated(changed_program)
        assert abs(found.window - found.saved - truth) <= 0.001 * truth, (changes, found.window, found.saved, truth)
        assert abs(found.window - found.saved - truth) <= found.error


@pytest.mark.parametrize("name", PROGRAMS)
def test_other_latencies_are_those_of_another_machine(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN programs whose launches take 6 us to start and whose waits return 0.9 us late WHEN these take 2 and 4 us THEN the length is that of
    # a simulator with such a machine; both by the class on the path that a person chooses
    capture = recorded(PROGRAMS[name], tmp_path)
    launches, returns = (Change(by="class", item=label, set_ns=ns) for label, ns in (("Launch latency", 2_000), (RETURN, 4_000)))
    for changes, constants in (((launches,), {"LATENCY_NS": 2_000}), ((launches, returns), {"LATENCY_NS": 2_000, "RETURN_NS": 4_000})):
        with monkeypatch.context() as machine:
            for constant, ns in constants.items():
                machine.setattr(schedules, constant, ns)
            truth = simulated(PROGRAMS[name])
        found = asked(capture, *changes)
        assert found.window != truth and abs(found.window - found.saved - truth) <= 0.0005 * truth, (constants, found.window - found.saved, truth)


def layers(count: int, graph: bool) -> list[Action]:
    """Host code, then eight kernels launched from small operators: or the same kernels as one graph."""
    out: list[Action] = []
    for i in range(count):
        kernels = tuple(Launch(7, 3_000 + 500 * j, f"k{j}") for j in range(8))
        body: list[Action] = [OneGraph(kernels)] if graph else [a for k in kernels for a in (Host(12_000), k)]
        out += [Host(30_000), *body, *([Sync()] if i % 4 == 3 else [])]
    return out


def test_a_graph_in_place_of_a_region_is_one_launch(tmp_path: Path) -> None:
    # GIVEN layers of small kernels, each in a range, and code outside of it WHEN each range is one CUDA graph THEN the length is that of the
    # program that launches graphs; of half of the layers it is between; the whole recording as one graph leaves one launch of all
    program, ran = layers(12, False), run(layers(12, False), depth=DEPTH)
    t = trace_of(program, depth=DEPTH)
    starts = [(start, end) for action, start, end, _ in ran.calls if isinstance(action, Host | Launch | Sync)]
    per = 17
    at = 0
    for i in range(12):
        low, high = starts[at + 1][0], starts[at + per - 1][1]
        t.annotation("even" if i % 2 == 0 else "odd", low, high - low)
        at += per + (i % 4 == 3)
    capture = read(str(t.write(tmp_path / "w.pt.trace.json")))
    even, odd = (Change(change="cuda_graph", inside=name) for name in ("even", "odd"))
    both, one, whole = asked(capture, even, odd), asked(capture, even), asked(capture, Change(change="cuda_graph"))
    truth, measured = simulated(layers(12, True)), simulated(program)
    assert both.window == measured and abs(both.window - both.saved - truth) <= 0.001 * truth
    half: list[Action] = []
    for i in range(12):
        body = layers(1, i % 2 == 0)
        half += [*body, *([Sync()] if i % 4 == 3 else [])]
    assert abs(one.window - one.saved - simulated(half)) <= 0.001 * truth
    assert whole.saved > both.saved > one.saved > 0 and whole.changed > both.changed
    # AND what is kept of each range is its first launch: 4 us of the call and its latency
    plan = plan_of(capture, scope(capture, Query()), (even,))
    assert plan.chosen.changed < one.changed + 1 and asked(capture, Change(change="cuda_graph", inside="nothing such")).changed == 0


def test_single_events_and_what_is_inside_of_a_range(tmp_path: Path) -> None:
    # GIVEN two layers in ranges of their own WHEN the kernels of one range, or single events by their rows, take no time THEN only these do
    program: list[Action] = [a for i in range(4) for a in (Host(5_000), Launch(7, 50_000 + i, f"k{i}"))]
    ran = run(program, depth=DEPTH)
    t = trace_of(program, depth=DEPTH)
    t.annotation("first", ran.calls[0][1], ran.calls[3][2] - ran.calls[0][1])
    capture = read(str(t.write(tmp_path / "w.pt.trace.json")))
    names = capture.device["name"].astype(str).tolist()
    inside = asked(capture, Change(change="kernels", inside="first", scale=0.0))
    rows = ",".join(f"device {names.index(n)}" for n in ("k0", "k1"))
    single = asked(capture, Change(by="event", item=rows, scale=0.0))
    assert inside.saved == single.saved > 80_000 and inside.changed == single.changed == 2 and inside.naive == 100_001
    call = capture.host["name"].astype(str).tolist().index("aten::host_work")
    assert asked(capture, Change(by="event", item=f"host {call}", set_ns=9_000)).saved == -4_000


def test_what_changes_outside_of_the_steps_alone_changes_nothing(tmp_path: Path) -> None:
    # GIVEN a step of kernels, and a wait after it WHEN kernels change and waits are taken away THEN the kernels alone count
    program: list[Action] = [a for i in range(8) for a in (Host(5_000), Launch(7, 50_000, f"k{i}"))]
    ran = run([*program, Sync()], depth=DEPTH)
    t = trace_of([*program, Sync()], depth=DEPTH)
    t.step(1, 0, ran.calls[-1][1] - 1_000)
    capture = read(str(t.write(tmp_path / "w.pt.trace.json")))
    both, one = asked(capture, Change(change="kernels"), Change(change="syncs")), asked(capture, Change(change="kernels"))
    assert both.saved == one.saved > 0 and both.changed == one.changed == 8
    assert asked(capture, Change(change="syncs")).saved == 0
