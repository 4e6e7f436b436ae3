"""Points from a person's file: both forms, what is missing, what is no number, what is no such file."""

from __future__ import annotations

import json

import pytest

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.goodput.points import parse

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
