"""Points of step time from traces: what a step waits for, the slowest rank, the median, and what is guessed."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.cost.goodput import fit, objective
from tb_sol_plugin.cost.goodput.model import PerfParams, accum_time, optim_time
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.goodput.part import ScalingPart, Step, part_of, steps
from tb_sol_plugin.metrics.goodput.points import Point, checked, combined, of_run, parse
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import RecordingReduction, ReducedFacts, facts_of
from tests.support.scaling_runs import step_trace, write_run

MS = 1_000_000


def worker(capture: Capture, name: str) -> RecordingReduction[ScalingPart]:
    made = part_of(capture)
    return RecordingReduction(name, "", name, "read", capture.facts.rank, facts_of(capture), body=lambda: b"", decode=lambda _: made)


def made(part: ScalingPart, rank: int | None, world: int | None) -> RecordingReduction[ScalingPart]:
    facts = ReducedFacts("kineto", rank, world, "", "nvidia", (), 0, True, (0, 1))
    return RecordingReduction(f"w{rank}", "", "f", "read", rank, facts, body=lambda: b"", decode=lambda _: part)


def read(folder: Path) -> list[RecordingReduction[ScalingPart]]:
    return [worker(ingest.read(str(path)), path.name) for path in sorted(folder.glob("*.gz"))]


def test_synchronization_of_a_step_is_the_reduction_that_no_kernel_hides(tmp_path: Path) -> None:
    # GIVEN steps of 10 ms that compute for 8 ms and reduce for 3 ms from 7 ms on WHEN read THEN 2 of the 3 ms are waiting
    trace = step_trace(accum_ns=8 * MS, optim_ns=10 * MS, replicas=4, batch=32, hidden_ns=1 * MS, steps=2)
    found = steps(ingest.read(str(trace.write(tmp_path / "a.pt.trace.json.gz"))))
    assert found["duration_ns"].tolist()[1:] == [10 * MS] * 2
    assert found["reduce_ns"].tolist()[1:] == [3 * MS] * 2 and found["sync_ns"].tolist()[1:] == [2 * MS] * 2
    assert found["reduces"].all()


def test_collectives_of_the_forward_pass_reduce_no_gradients(tmp_path: Path) -> None:
    # GIVEN a reduction launched before the backward pass (tensor parallel) WHEN read THEN it is no synchronization of gradients
    trace = step_trace(accum_ns=8 * MS, optim_ns=10 * MS, replicas=1, batch=32, steps=1)
    call = trace.call("cudaLaunchKernel", 20 * MS + 1000, 1000, flow=True)
    trace.collective("allreduce", 28 * MS, 1 * MS, elements=10, correlation=call)
    found = steps(ingest.read(str(trace.write(tmp_path / "a.pt.trace.json.gz"))))
    assert not found["reduces"].any() and not found["sync_ns"].any()


@pytest.mark.parametrize("accumulating", [0, 1])
def test_a_run_makes_one_point_of_its_configuration(tmp_path: Path, accumulating: int) -> None:
    # GIVEN two nodes with 8 replicas, micro-steps of 80 ms and updates of 95 ms WHEN read THEN that is the point, the batch as told
    folder = write_run(tmp_path, nodes=2, replicas=8, batch=32, accum_s=0.08, optim_s=0.095, accumulating=accumulating)
    points, told = of_run("run", read(folder))
    assert told == [] and len(points) == 1 and points[0].key == (2, 8, 32) and points[0].used
    assert points[0].accum_step_time == pytest.approx(0.08) and points[0].optim_step_time == pytest.approx(0.095)
    assert points[0].sync_time == pytest.approx(0.015) and points[0].accumulating == (4 if accumulating else 0)
    assert points[0].guessed == ("nodes: host names of 2 of 8 ranks",)


def test_thirty_six_runs_give_back_the_model_they_were_made_of(tmp_path: Path) -> None:
    # GIVEN runs made of known parameters WHEN read THEN every point lies within a thousandth of the model, and the fit to them is that to
    # the points themselves: the parameters come back, and the objective is what it is at the true ones
    true = PerfParams(0.12, 0.0056, 0.4, 0.025, 0.07, 0.0024, 1.8)
    found = []
    for n, r in ((1, 1), (1, 2), (1, 4), (1, 8), (2, 2), (2, 4), (2, 8), (4, 8), (4, 16)):
        for b in (16, 32, 64, 128):
            accum, optim = float(accum_time(true, b)), float(optim_time(true, n, r, b))
            folder = write_run(tmp_path / f"{n}-{r}-{b}", nodes=n, replicas=r, batch=b, accum_s=accum, optim_s=optim, steps=2)
            (point,), _ = of_run("run", read(folder))
            assert point.key == (n, r, b)
            assert point.optim_step_time == pytest.approx(optim, rel=1e-3) and point.accum_step_time == pytest.approx(accum, rel=1e-3)
            found.append((*point.key, point.accum_step_time, point.optim_step_time))
    assert len(found) == 36
    made_of = fit(*np.array(found).T)
    assert made_of.objective <= 1.001 * objective(true, made_of.points) and all(made_of.identified.values())
    assert made_of.params == pytest.approx(true, rel=1e-2)


def test_the_slowest_rank_stands_for_a_step() -> None:
    # GIVEN two ranks whose steps last 10 and 12, 14 and 11 ms WHEN put together THEN the steps are 12 and 14, their median 13,
    # the waits those of the slower rank: 1 and 3, so that 11 is computed in both
    def part(*rows: tuple[int, int, int]) -> ScalingPart:
        return ScalingPart(tuple(Step(n, d * MS, s * MS, True) for n, d, s in rows), 1, "h", False, 8, "", False, 0, 0)

    (point,), _ = of_run("r", [made(part((1, 10, 9), (2, 14, 3)), 0, 2), made(part((1, 12, 1), (2, 11, 9)), 1, 2)])
    assert (point.optim_step_time, point.accum_step_time, point.sync_time) == pytest.approx((0.013, 0.011, 0.002))
    assert point.guessed == () and point.key == (1, 2, 8)


def test_a_step_far_from_the_others_is_left_out_and_counted() -> None:
    # GIVEN nine steps of 10 to 10.8 ms and one of 100 ms WHEN put together THEN the median is of the nine
    rows = tuple(Step(i, 10 * MS + i * 100_000, 0, False) for i in range(9)) + (Step(9, 100 * MS, 0, False),)
    (point,), _ = of_run("r", [made(ScalingPart(rows, 0, "", False, 8, "", False, 0, 0), 0, 1)])
    assert point.optim_step_time == pytest.approx(0.0104) and point.outliers == 1


def test_a_run_without_batch_size_or_nodes_states_why_it_gives_no_point() -> None:
    # GIVEN no batch size, or no steps WHEN put together THEN there is no point, and the reason says what to record
    rows = (Step(1, 10 * MS, 0, False),)
    points, told = of_run("r", [made(ScalingPart(rows, 0, "", False, 0, "", False, 0, 0), 0, 1)])
    assert points == [] and "atomic_bsz" in told[0]
    points, told = of_run("r", [made(ScalingPart((), 0, "", False, 8, "", False, 0, 0), 0, 1)])
    assert points == [] and "prof.step()" in told[0]
    # AND 6 ranks with tensor parallel 4 are no whole replicas
    points, told = of_run("r", [made(ScalingPart(rows, 0, "", False, 8, "", False, 4, 1), 0, 6)])
    assert points == [] and "multiple" in told[0]


def test_synchronization_longer_than_the_step_is_shown_and_not_fitted() -> None:
    rows = (Step(1, 10 * MS, 11 * MS, True), Step(2, 10 * MS, 11 * MS, True))
    (point,), _ = of_run("r", [made(ScalingPart(rows, 0, "h", False, 8, "", False, 0, 0), 0, 2)])
    assert not point.used and point.why == "synchronization lasts longer than the step"
    assert combined([point])[0].used is False


def rank(*rows: tuple[int, int], batch: int = 8, host: str = "h") -> ScalingPart:
    return ScalingPart(tuple(Step(n, d * MS, 0, True) for n, d in rows), 0, host, False, batch, "", False, 0, 0)


def test_steps_of_ranks_are_matched_by_number_and_else_from_the_last_one_on() -> None:
    # GIVEN rank 0 with steps 1 to 3 of 10, 20 and 30 ms, rank 1 with 2 to 4 of 25, 15 and 99 WHEN put together THEN steps 2 and 3 are in
    # both: 25 and 30 ms, and nothing is guessed
    (point,), _ = of_run("r", [made(rank((1, 10), (2, 20), (3, 30)), 0, 2), made(rank((2, 25), (3, 15), (4, 99)), 1, 2)])
    assert point.optim_step_time == pytest.approx(0.0275) and point.steps == 2 and point.guessed == ()
    # AND where the second rank counts from 101, the steps are 11, 25 and 30 ms, and that is said
    (point,), _ = of_run("r", [made(rank((1, 10), (2, 20), (3, 30)), 0, 2), made(rank((101, 11), (102, 25), (103, 15)), 1, 2)])
    assert point.optim_step_time == pytest.approx(0.025) and point.steps == 3 and "number them differently" in point.guessed[0]


def test_a_rank_without_steps_is_left_out_of_the_point() -> None:
    (point,), told = of_run("r", [made(rank((1, 10), (2, 12)), 0, 2), made(rank(), 1, 2)])
    assert point.optim_step_time == pytest.approx(0.011) and told == [] and "1 of 2 ranks" in point.guessed[0]


def test_ranks_with_different_batches_in_one_step_are_no_configuration() -> None:
    points, told = of_run("r", [made(rank((1, 10), batch=8), 0, 2), made(rank((1, 10), batch=16), 1, 2)])
    assert points == [] and "different batch sizes" in told[0]


def test_one_odd_step_among_equal_ones_is_an_outlier() -> None:
    # GIVEN four steps of exactly 10 ms, so that their median deviation is 0, and one of 50 WHEN put together THEN the one is left out
    (point,), _ = of_run("r", [made(rank((1, 10), (2, 10), (3, 10), (4, 50), (5, 10)), 0, 1)])
    assert point.outliers == 1 and point.optim_step_time == pytest.approx(0.01)


def test_recordings_that_cannot_be_read_are_listed_with_the_reason() -> None:
    broken: RecordingReduction[ScalingPart] = RecordingReduction("w", "", "f", "failed", problem="no JSON", hint="record again", run="r")
    assert of_run("r", [broken]) == ([], ["no JSON"])
    waiting: RecordingReduction[ScalingPart] = RecordingReduction("w", "", "f", "waiting", run="r")
    assert of_run("r", [waiting]) == ([], [])


@pytest.mark.parametrize(
    ("nodes", "replicas", "batch", "accum", "optim", "why"),
    [
        (1, 1, 8, 0.0, 0.1, "not above 0"), (1, 1, 8, -0.1, 0.1, "not above 0"), (1, 1, 8, 0.1, float("nan"), "not above 0"),
        (2, 1, 8, 0.1, 0.1, "more nodes"), (0, 1, 8, 0.1, 0.1, "no node"), (1, 2, 0, 0.1, 0.1, "batch size"),
        (1, 2, 8, 0.2, 0.1, "contradict"), (1, 2, 8, 0.105, 0.1, ""),
    ],
)  # fmt: skip
def test_numbers_that_cannot_be_are_shown_and_not_fitted(
    nodes: int, replicas: int, batch: int, accum: float, optim: float, why: str
) -> None:
    point = checked(Point("", nodes, replicas, batch, accum, optim, 0.0, 0, 0, "given"))
    assert point.used is (why == "") and why in point.why


# -- Points from a person's file: both forms, what is missing, what is no number, what is no such file ---------------


LISTS = {"num_nodes": [1, 2], "num_replicas": [4, 8], "atomic_bsz": [32, 32], "accum_step_time": [0.3, 0.3], "optim_step_time": [0.34, 0.41]}


def test_a_json_file_and_a_csv_file_give_the_same_points() -> None:
    # GIVEN the same two points as JSON and as CSV WHEN read THEN they are equal
    lines = [",".join(LISTS), *(",".join(str(LISTS[n][i]) for n in LISTS) for i in range(2))]
    a, b = parse(json.dumps(LISTS), "p.json"), parse("\n".join(lines), "p.csv")
    assert a.points == b.points and len(a.points) == 2
    assert a.points[1].key == (2, 8, 32) and a.points[1].sync_time == pytest.approx(0.11) and a.points[0].used


def test_a_file_of_points_may_state_batch_limits_and_gradient_noise() -> None:
    more = {"grad_params": {"sqr": 1.0, "var": 2000.0}, "init_batch_size": 128, "max_batch_size": 4096, "atomic_bsz_range": [16, 256]}
    found = parse(json.dumps(LISTS | more | {"accumulation": True, "run": ["a", "b"]}), "p.json")
    assert (found.sqr, found.var, found.initial, found.most, found.bounds, found.accumulation) == (1.0, 2000.0, 128, 4096, (16, 256), True)
    assert [p.run for p in found.points] == ["a", "b"]


def test_bad_rows_are_left_out_with_a_reason() -> None:
    # GIVEN a text where a number should be, half a node, a time below 0 and more nodes than replicas THEN the first two are no points,
    # the others are shown and not used
    text = "num_nodes,num_replicas,atomic_bsz,optim_step_time\n1,x,8,0.1\n1.5,2,8,0.1\n1,2,8,-0.1\n4,2,8,0.1\n1,1,8,0.1\n"
    found = parse(text, "p.csv")
    assert len(found.bad) == 2 and "point 1" in found.bad[0] and "no number" in found.bad[0] and "whole" in found.bad[1]
    assert [p.used for p in found.points] == [False, False, True] and found.points[1].why == "more nodes than replicas"


@pytest.mark.parametrize(
    ("text", "name", "word"),
    [("[]", "p.json", "object"), ("{", "p.json", "p.json"), ("{}", "p.json", "missing"), ("a,b\n1,2\n", "p.csv", "missing"), ("", "p.csv", "missing"),
     (json.dumps(LISTS | {"num_nodes": [1]}), "p.json", "length"), ("[" * 100_000, "p.json", "p.json")],
    ids=["list", "cut", "empty", "other columns", "empty csv", "lengths", "deep"],
)  # fmt: skip
def test_a_file_that_is_no_file_of_points_is_refused(text: str, name: str, word: str) -> None:
    with pytest.raises(BadQuery, match=word):
        parse(text, name)


def test_without_a_time_before_synchronization_the_point_is_marked() -> None:
    found = parse("num_nodes,num_replicas,atomic_bsz,optim_step_time\n1,2,8,0.1\n1,1,8,0.1\n", "p.csv")
    assert found.points[0].guessed and not found.points[1].guessed
