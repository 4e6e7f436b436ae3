"""What a replay predicts, against a simulator that ran the changed program: its schedule is the truth."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.critical import edges as edge
from tb_sol_plugin.metrics.critical.changes import Outcome, outcome, selected
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.schedules import Action, Host, Launch, Record, Sync, Wait, run, trace_of

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


def recorded(program: list[Action], folder: Path, **how: bool) -> Capture:
    return read(str(trace_of(program, depth=DEPTH, **how).write(folder / "w.pt.trace.json")))


def predicted(capture: Capture, name: str, scale: float) -> Outcome:
    where = scope(capture, Query())
    return outcome(capture, where, selected(capture, where, "item", "kernel", name), "item", scale)


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
