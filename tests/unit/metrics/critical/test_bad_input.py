"""Recordings that are cut, overlap, contradict themselves or hold little: each has a path as long as its steps, or says why not. Times in µs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin.metrics.critical.edges import LAUNCH
from tb_sol_plugin.metrics.critical.path import path_of
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.query import Query
from tests.support.captures import report
from tests.unit.metrics.critical.test_graph import US, Trace, classes, opened


def clocks_that_disagree(t: Trace) -> None:
    t.step(1, 0, 1_000 * US)
    for i in range(20):
        t.works("aten::mm", i * 40, 30)
        t.runs(f"k{i}", i * 40 + 20, i * 40 + 10, 20)


def no_launch_records(t: Trace) -> None:
    t.works("aten::mm", 0, 100)
    for i in range(5):
        t.kernel(f"k{i}", (10 + 21 * i) * US, 20 * US, correlation=9_000 + i)


@pytest.mark.parametrize("make", [clocks_that_disagree, no_launch_records])
def test_host_and_device_that_nothing_joins(make: Callable[[Trace], None], tmp_path: Path) -> None:
    # GIVEN kernels that all start before their launches, and kernels without one THEN no kernel waits for the host, and the grade is poor
    t = Trace()
    make(t)
    capture, graph = opened(t, tmp_path)
    assert trust_of(capture, scope(capture, Query())).apart and graph.dropped == ({"launch": 20} if make is clocks_that_disagree else {})
    answer = report(capture, "critical_path")
    assert answer.facts["grade"] == "poor" and answer.facts["path_ns"] == answer.facts["duration_ns"]
    assert "nothing joins the paths of host and devices" in answer.notices[0].text
    assert not answer.findings and answer.table("items")["saved_half_ns"].isna().all()


def test_steps_that_overlap(tmp_path: Path) -> None:
    # GIVEN a second step that begins 100 before the first ends THEN each has a path of its own length, and the time in both counts in each
    t = Trace()
    t.step(1, 0, 300 * US)
    t.step(2, 200 * US, 300 * US)
    for i in range(12):
        t.works("aten::mm", i * 40, 30)
        t.runs(f"k{i}", i * 40 + 5, i * 40 + 12, 30)
    capture, _ = opened(t, tmp_path)
    path = path_of(capture, scope(capture, Query()))
    length = np.bincount(path.step - path.rows[0], path.duration)
    assert length.tolist() == (path.end - path.begin).tolist() and len(length) == 2


def test_a_step_without_device_work(tmp_path: Path) -> None:
    t = Trace()
    t.step(1, 0, 200 * US)
    t.step(2, 200 * US, 200 * US)
    t.works("aten::mm", 10, 100)
    t.runs("k", 20, 30, 50)
    t.works("aten::add", 210, 100)
    capture, _ = opened(t, tmp_path)
    facts = report(capture, "critical_path", step="2").facts
    assert (facts["duration_ns"], facts["path_ns"], facts["host_ns"]) == (200_000, 200_000, 200_000) and "kernel_ns" not in facts


def test_python_frames_that_are_cut_at_both_ends(tmp_path: Path) -> None:
    # GIVEN a frame around everything recorded, one from before it and one that goes on behind it THEN the path is in them, as long as they are
    t = Trace()
    t.frame("train.py(1): outer", -50 * US, 500 * US)
    t.frame("train.py(2): early", -20 * US, 30 * US)
    t.works("aten::mm", 20, 100)
    t.runs("k", 30, 40, 30)
    t.frame("train.py(3): late", 380 * US, 200 * US)
    capture, graph = opened(t, tmp_path)
    assert graph.nodes.unordered == 1  # `late` ends after `outer`, which is around its start
    found = classes(path_of(capture, scope(capture, Query())))
    assert found == {"host_python": 530_000, "host_operator": 98_000, "host_runtime": 2_000}


def test_a_correlation_that_is_used_twice_is_that_of_the_call_before(tmp_path: Path) -> None:
    # GIVEN two calls of one correlation, as of two contexts, and a kernel after each THEN each kernel waits for its own
    t = Trace()
    t.works("aten::mm", 0, 10)
    for at, name in ((20, "first"), (60, "second")):
        t.calls("cudaLaunchKernel", at, 2, correlation=7)
        t.kernel(name, (at + 10) * US, 10 * US, correlation=7)
    capture, graph = opened(t, tmp_path)
    launches = graph.edges.at(graph.edges.kind == LAUNCH)
    names = capture.device["name"].astype(str).to_numpy()[graph.nodes.device_rows(launches.target)]
    assert dict(zip(names.tolist(), graph.time[launches.source].tolist(), strict=True)) == {"first": 20_000, "second": 60_000}


def test_a_recording_of_nothing_says_why_there_is_no_path(tmp_path: Path) -> None:
    t = Trace()
    t.annotation("empty", 0, 0)
    capture, _ = opened(t, tmp_path)
    answer = capture.analyze("critical_path")
    assert not answer.available and answer.because == "no event with a duration in this recording"
