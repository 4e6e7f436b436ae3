"""What a replay predicts, against a simulator that ran the changed program: its schedule is the truth."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.critical import edges as edge
from tb_sol_plugin.metrics.critical.changes import Change, Outcome, outcome
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.schedules import Action, Backward, Copy, Graph, Host, Launch, Record, Sync, Wait, run, trace_of

DEPTH = 1_000


def layers(kernel_ns: int, host_ns: int, communication_ns: int, count: int, *, sync_every: int = 16) -> list[Action]:
    """Layers of two kernels, the second followed by a collective on its own stream; each fourth layer the computation waits for it."""
    rng = random.Random(7)
    out: list[Action] = []
    for i in range(count):
        out += [Host(round(host_ns * rng.uniform(0.5, 1.5))), Launch(7, round(kernel_ns * rng.uniform(0.5, 1.5)), "gemm_kernel")]
        if communication_ns:
            out += [Launch(7, kernel_ns // 2, "norm_kernel"), Record(7, f"grad{i}"), Wait(20, f"grad{i}")]
            out.append(Launch(20, round(communication_ns * rng.uniform(0.5, 1.5)), "ncclDevKernel_AllReduce"))
            if i % 4 == 3:
                out += [Record(20, f"done{i}"), Wait(7, f"done{i}")]
        if i % sync_every == sync_every - 1:
            out.append(Sync())
    return out


PROGRAMS: dict[str, list[Action]] = {
    "host bound": layers(20_000, 80_000, 15_000, 32),
    "balanced": layers(60_000, 60_000, 40_000, 32),
    "communication": layers(40_000, 20_000, 120_000, 32),
}
QUEUE_FULL = layers(50_000, 1_000, 0, 1_200, sync_every=1_200)
CHANGES = (("gemm_kernel", 0.5), ("gemm_kernel", 1.5), ("norm_kernel", 0.0), ("ncclDevKernel_AllReduce", 0.5))


def varied(count: int, make: Callable[[random.Random, int], list[Action]], seed: int = 3) -> list[Action]:
    """Some rounds of actions whose durations vary."""
    rng = random.Random(seed)
    return [action for i in range(count) for action in make(rng, i)]


def ns(rng: random.Random, mean: int) -> int:
    return round(mean * rng.uniform(0.5, 1.5))


def gemm(rng: random.Random, mean: int, stream: int = 7, **how: Any) -> Launch:
    return Launch(stream, ns(rng, mean), "gemm_kernel", **how)


def graphs(rng: random.Random, i: int) -> list[Action]:
    kernels = (gemm(rng, 20_000), gemm(rng, 15_000), Launch(9, ns(rng, 30_000), "norm_kernel"), Launch(7, ns(rng, 25_000), "norm_kernel"))
    return [Host(ns(rng, 60_000)), Graph(kernels), *([Sync()] if i % 6 == 5 else [])]


def items(rng: random.Random, _: int) -> list[Action]:
    return [Host(ns(rng, 15_000)), gemm(rng, 60_000), Launch(7, ns(rng, 20_000), "norm_kernel"), Copy(7, 2_000), Host(ns(rng, 30_000))]


def pageable(rng: random.Random, i: int) -> list[Action]:
    copy: list[Action] = [Copy(9, ns(rng, 80_000))] if i % 2 else []
    return [Host(ns(rng, 20_000)), gemm(rng, 50_000), Launch(7, ns(rng, 20_000), "norm_kernel"), *copy]


def training(rng: random.Random, _: int) -> list[Action]:
    def layers(count: int, host: int) -> list[Action]:
        return [a for _ in range(count) for a in (Host(ns(rng, host)), gemm(rng, 40_000), Launch(7, ns(rng, 10_000), "norm_kernel"))]

    return [*layers(4, 60_000), Backward(tuple(layers(5, 50_000))), Host(ns(rng, 80_000)), Launch(7, 5_000, "norm_kernel")]


def two_devices(rng: random.Random, i: int) -> list[Action]:
    work = [Host(ns(rng, 10_000)), gemm(rng, 45_000), Launch(7, ns(rng, 60_000), "norm_kernel", device=1)]
    return [*work, *([Sync(), Sync(1)] if i % 5 == 4 else [])]


def overlapping(rng: random.Random, i: int) -> list[Action]:
    late = [Launch(7, ns(rng, 30_000), "norm_kernel"), gemm(rng, 30_000, overlaps=True)]
    return [Host(ns(rng, 8_000)), gemm(rng, 40_000), *late, *([Sync()] if i % 8 == 7 else [])]


MORE = {
    "graph replay": (graphs, 0.0005), "item": (items, 0.0005), "pageable copies": (pageable, 0.0005), "autograd thread": (training, 0.0005),
    "two devices": (two_devices, 0.0005), "two devices, unnamed": (two_devices, 0.011), "overlapping kernels": (overlapping, 0.0005),
}  # fmt: skip
"""Programs, with the error of a prediction. Unnamed: no row says which device the host waits for."""


@pytest.mark.parametrize("name", MORE)
def test_replay_of_graphs_waits_threads_and_devices(name: str, tmp_path: Path) -> None:
    # GIVEN programs that replay graphs, wait for single values, copy to pageable memory, run a backward pass, use two devices or kernels
    # that start before the one before them ends WHEN kernels take half, half more or no time THEN the length is that of the simulator
    make, most = MORE[name]
    program = varied(24, make)
    capture = recorded(program, tmp_path, rows="unnamed" not in name)
    for kernel, scale in (("gemm_kernel", 0.5), ("gemm_kernel", 1.5), ("norm_kernel", 0.0), ("norm_kernel", 2.0)):
        found, truth = predicted(capture, kernel, scale), run(program, {kernel: scale}, depth=DEPTH).end
        assert found.window == run(program, depth=DEPTH).end
        off = abs(found.window - found.saved - truth) / truth
        assert off <= most, (name, kernel, scale, off)
        assert abs(found.window - found.saved - truth) <= found.error, "the interval holds the truth"


def test_rows_of_some_waits_are_missing(tmp_path: Path) -> None:
    # GIVEN programs of whose waits half have rows, at random THEN those without are told from times, and the interval holds the truth
    for name, program in PROGRAMS.items():
        capture = recorded(program, tmp_path / name, rows=0.5)
        edges = graph_of(capture).edges
        assert set(edges.evidence[edges.kind == edge.EVENT].tolist()) >= {edge.RECORDED}
        for kernel, scale in CHANGES:
            found, truth = predicted(capture, kernel, scale), run(program, {kernel: scale}, depth=DEPTH).end
            off = abs(found.window - found.saved - truth)
            assert off <= found.error, (name, kernel, scale)


def recorded(program: list[Action], folder: Path, **how: float) -> Capture:
    return read(str(trace_of(program, depth=DEPTH, **how).write(folder / "w.pt.trace.json")))


def predicted(capture: Capture, name: str, scale: float) -> Outcome:
    where = scope(capture, Query())
    return outcome(capture, where, (Change(item=name, scale=scale),))


@pytest.mark.parametrize(("rows", "calls", "most"), [(True, True, 0.0005), (False, True, 0.0001), (False, False, 0.029)])
def test_replay_predicts_what_the_simulator_runs(rows: bool, calls: bool, most: float, tmp_path: Path) -> None:
    # GIVEN programs bound by the host, by nothing alone, and by communication, recorded with rows of waits, with calls alone, and with neither
    # WHEN kernels take half, half more or no time, or collectives half THEN the new length is that of the simulator, within the error of CP-74
    for name, program in PROGRAMS.items():
        capture = recorded(program, tmp_path / name, rows=rows, calls=calls)
        for kernel, scale in CHANGES:
            found, truth = predicted(capture, kernel, scale), run(program, {kernel: scale}, depth=DEPTH).end
            assert found.window == run(program, depth=DEPTH).end
            off = abs(found.window - found.saved - truth) / truth
            assert off <= most, (name, kernel, scale, off)
            assert off * truth <= found.error, "the interval holds the truth"
            naive = abs(found.window - found.naive - truth) / truth
            assert off <= naive + 1e-9, "no prediction is worse than a subtraction"


def test_a_launch_queue_that_is_full(tmp_path: Path) -> None:
    # GIVEN 1,200 kernels behind a queue of 1,000 WHEN they take half of their time THEN the step does, launches that waited for the queue too
    capture = recorded(QUEUE_FULL, tmp_path)
    edges = graph_of(capture).edges
    full = edges.kind == edge.QUEUE_FULL
    assert int(full.sum()) > 50 and set(edges.evidence[full].tolist()) == {edge.INFERRED}
    for scale in (0.5, 1.5):
        found, truth = predicted(capture, "gemm_kernel", scale), run(QUEUE_FULL, {"gemm_kernel": scale}, depth=DEPTH).end
        assert abs(found.window - found.saved - truth) / truth <= 0.0005, scale


def test_the_grade_and_interval_say_what_is_not_recorded(tmp_path: Path) -> None:
    # GIVEN the same program with and without records of its waits WHEN it is graded THEN the interval without is wider, or the grade lower
    program = PROGRAMS["communication"]
    known, unknown = (recorded(program, tmp_path / str(rows), rows=rows, calls=rows) for rows in (True, False))
    one, other = (trust_of(c, scope(c, Query())) for c in (known, unknown))
    assert one.grade == "good" and (other.grade != "good" or other.error > one.error) and one.inferred == 0


def test_what_is_shorter_makes_no_step_longer_and_what_has_slack_saves_nothing(tmp_path: Path) -> None:
    # GIVEN a program of two streams WHEN each event of the device takes no time THEN the end is no later; and where its slack is positive, the
    # end does not move
    graph = graph_of(recorded(PROGRAMS["balanced"], tmp_path))
    device = np.flatnonzero(graph.edges.kind == edge.DEVICE)
    last = np.array([int(graph.time.argmax())], np.int32)
    slack = graph.slack(last, graph.time[last])[graph.edges.target[device]]
    saving = []
    for one in device.tolist():
        lag = graph.lag.copy()
        lag[one] = 0
        saving.append(int(graph.time[last[0]] - graph.replay(lag)[last[0]]))
    assert min(saving) >= 0 and max(saving) > 0 and not np.array(saving)[slack > 0].any()
