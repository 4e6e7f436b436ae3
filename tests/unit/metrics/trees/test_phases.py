"""The phase tree: paths, what belongs to them, what is exposed."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.trees.module_tree import phase_name, phase_parts
from tb_sol_plugin.metrics.trees.phases import LONGEST, STEP, host_shares, phase_times, phase_tree
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back, training


def times(c: Capture, step: str = "") -> pd.DataFrame:
    return phase_times(c, scope(c, Query(step=step))).set_index("path")


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("ProfilerStep#12", ["ProfilerStep"]),
        ("## forward ##", ["forward"]),
        ("train/forward/layer 3", ["train", "forward", "layer 3"]),
        ("Optimizer.step#Adam.step", ["Optimizer.step#Adam.step"]),
        ("/home/user/x.py", ["/home/user/x.py"]),  # a path has an empty level: it stays one name
        ("https://host/x", ["https://host/x"]),
        ("####", ["####"]),
        ("#5", ["#5"]),
    ],
)
def test_the_name_of_a_range_is_split_into_levels_at_slashes(name: str, parts: list[str]) -> None:
    assert phase_parts(name) == parts
    assert "/".join(parts) == phase_name(name)


def test_host_and_device_time_of_a_training_run(tmp_path: Path) -> None:
    # GIVEN two steps with forward (70 000 of device work), backward on an autograd thread (80 000), optimizer/step (5 000)
    t = times(read_back(training(), tmp_path))
    # THEN steps are one node, a slash makes a level, and the autograd thread's work is in backward, by time
    assert t.index.tolist() == [
        "ProfilerStep", "ProfilerStep/forward", "ProfilerStep/backward", "ProfilerStep/optimizer", "ProfilerStep/optimizer/step",
    ]  # fmt: skip
    assert t["count"].tolist() == [2, 2, 2, 0, 2]
    assert t["host_ns"].tolist() == [1_998_000, 600_000, 800_000, 200_000, 200_000]
    assert t["device_sum_ns"].tolist() == [312_000, 140_000, 160_000, 10_000, 10_000]
    assert t["by_time_ns"].tolist() == [160_000, 0, 160_000, 0, 0]
    assert t["device_events"].tolist() == [14, 6, 4, 2, 2]
    # AND host time of the step that no phase covers is its own: 2 * (999 000 - 300 000 - 400 000 - 100 000)
    assert t.loc["ProfilerStep", "host_self_ns"] == 398_000


def test_a_range_beside_the_steps_is_no_part_of_one(tmp_path: Path) -> None:
    # GIVEN one step of 500, and all-reduces of 900 and 800 on another thread, beside the step and beyond it
    t = TraceBuilder()
    t.step(1, 0, 500)
    t.annotation("gloo:all_reduce", 100, 900, thread=77)
    t.annotation("gloo:all_reduce", 1_100, 800, thread=77)
    c = read_back(t, tmp_path)
    # THEN the parts of the step are the step itself, and the sentence gives the ranges outside with their sum, not per step
    assert [(s.path, s.host_ns) for s in host_shares(times(c).reset_index(), 1)] == [(STEP, 500)]
    told = c.analyze("phases")
    assert told.headline.replace("\u202f", " ") == (
        "No part of the step is marked; outside of it gloo:all_reduce takes 1.70 µs in 2 ranges; no device activity was recorded."
    )
    assert "gloo" not in next(s for s in told.sections if s.id == "average").summary


def test_device_time_of_a_phase_is_a_union_and_its_plain_sum_has_a_column(tmp_path: Path) -> None:
    # GIVEN a phase that launches two kernels which overlap: [100, 200) and [150, 250) on two streams
    t = TraceBuilder()
    t.annotation("p", 0, 1_000)
    t.launch("a", at=10, start=100, duration=100, call_duration=5)
    t.launch("b", at=20, start=150, duration=100, call_duration=5, stream=8)
    row = times(read_back(t, tmp_path)).loc["p"]
    assert (row["device_ns"], row["device_sum_ns"], row["compute_ns"]) == (150, 200, 150)


def test_exposed_means_not_hidden_by_any_computation_of_the_device(tmp_path: Path) -> None:
    # GIVEN phase `reduce` whose all-reduce runs [100, 200) while a kernel of phase `math` computes [150, 300),
    # and a copy of `reduce` at [190, 320)
    t = TraceBuilder()
    t.annotation("math", 0, 40)
    t.launch("gemm", at=10, start=150, duration=150, call_duration=5)
    t.annotation("reduce", 50, 40)
    t.launch("ncclDevKernel_AllReduce", at=60, start=100, duration=100, call_duration=5, stream=20)
    t.copy("HtoD", 190, 130, bytes=64, src="Pinned", call=(70, 5), stream=21)
    row = times(read_back(t, tmp_path)).loc["reduce"]
    # THEN 50 of the communication and 20 of the copy are exposed; the union of both is [100, 320)
    assert (row["exposed_communication_ns"], row["exposed_memcpy_ns"], row["device_ns"], row["compute_ns"]) == (50, 20, 220, 0)


def test_a_name_that_repeats_its_enclosing_range_does_not_double_it(tmp_path: Path) -> None:
    # GIVEN `train` around `train/forward` around `train/forward/layer`, `train/head` in another range below `train`,
    # and `x` around another `x`
    t = TraceBuilder()
    t.annotation("train", 0, 1_000)
    t.annotation("train/forward", 100, 500)
    t.annotation("train/forward/layer", 200, 100)
    t.annotation("Wrapper.forward", 700, 200)
    t.annotation("train/head", 750, 100)
    t.annotation("x", 2_000, 500)
    t.annotation("x", 2_100, 100)
    tree = phase_tree(read_back(t, tmp_path))
    assert tree.path == [
        "train", "train/forward", "train/forward/layer", "train/Wrapper.forward", "train/Wrapper.forward/head", "x", "x/x",
    ]  # fmt: skip
    assert tree.end.tolist() == [5, 3, 3, 5, 5, 7, 7]


def test_the_tree_of_one_step_counts_only_ranges_of_that_step(tmp_path: Path) -> None:
    t = times(read_back(training(), tmp_path), step="1")
    assert t.loc["ProfilerStep", ["count", "device_sum_ns"]].tolist() == [1, 156_000]


def test_phases_below_the_step_have_shares_of_an_average_step(tmp_path: Path) -> None:
    c = read_back(training(), tmp_path)
    shares = host_shares(phase_times(c, scope(c, Query())), 2)
    assert [(s.name, s.host_ns) for s in shares] == [("forward", 300_000), ("backward", 400_000), ("optimizer", 100_000)]


def test_ranges_nested_deeper_than_pythons_recursion_limit_make_a_tree(tmp_path: Path) -> None:
    # GIVEN 1,500 ranges, each inside the one before, the same two names by turns
    t = TraceBuilder()
    for i in range(1_500):
        t.annotation("even" if i % 2 == 0 else "odd", i, 10_000 - 2 * i)
    tree = phase_tree(read_back(t, tmp_path))
    # THEN each has a node of its own, one below the other, and each subtree goes on to the end
    assert tree.depth.tolist() == list(range(1_500)) and tree.parent.tolist() == list(range(-1, 1_499))
    assert set(tree.end.tolist()) == {1_500} and tree.path[100] == "/".join((["even", "odd"] * 51)[:101])
    # AND each has a path of its own that ends with its name; none grows with the depth
    assert len(set(tree.path)) == 1_500 and max(map(len, tree.path)) <= LONGEST
    assert all(path.rpartition("/")[2] == name for path, name in zip(tree.path, tree.name, strict=True))


# -- The parts of an average step on the host ------------------------------------------------------------------------


def test_a_level_that_only_names_make_gives_way_to_the_phases_in_it() -> None:
    # GIVEN two steps around `rl`, which no range has, with `rl/a` and `rl/b` in it
    frame = pd.DataFrame({
        "node": [0, 1, 2, 3], "parent": [-1, 0, 1, 1], "name": [STEP, "rl", "a", "b"],
        "path": [STEP, f"{STEP}/rl", f"{STEP}/rl/a", f"{STEP}/rl/b"], "count": [2, 0, 2, 2], "host_ns": [100, 90, 60, 30],
    })  # fmt: skip
    # WHEN the shares are asked THEN they are those of a and b, per step; with ranges of its own, `rl` is one
    assert [(s.name, s.host_ns) for s in host_shares(frame, 2)] == [("a", 30.0), ("b", 15.0)]
    assert [(s.name, s.host_ns) for s in host_shares(frame.assign(count=[2, 2, 2, 2]), 2)] == [("rl", 45.0)]


def test_a_level_next_to_other_phases_stays() -> None:
    # GIVEN two levels that only names make beside each other WHEN the shares are asked THEN both are there, so that the bar adds up
    frame = pd.DataFrame({
        "node": [0, 1, 2], "parent": [-1, 0, 0], "name": [STEP, "x", "y"], "path": [STEP, f"{STEP}/x", f"{STEP}/y"], "count": [1, 0, 0],
        "host_ns": [10, 6, 4],
    })  # fmt: skip
    assert [s.name for s in host_shares(frame, 1)] == ["x", "y"]
