"""Phases: a stack per thread, times of ranges, and what happens when calls do not match."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import pytest

from tb_sol_plugin.capture.loop import phases
from tb_sol_plugin.capture.loop.guard import Clock
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tb_sol_plugin.capture.loop.phases import DEPTH, RANGES, PhaseStack, phase_name


class Bench:
    """A phase stack with the notes it gave."""

    def __init__(self) -> None:
        self.labels, self.clock = Labels(), Clock()
        self.notes: list[str] = []
        self.phases = PhaseStack(self.labels, self.clock, note=lambda code, text: self.notes.append(code))
        self.begin()

    def begin(self) -> None:
        self.phases.begin_step(self.clock.now())

    def end(self) -> list[tuple[tuple[str, ...], int]]:
        """(path, count) of the step's rows."""
        return [(self.labels.path(row[0]), row[4]) for row in self.rows()]

    def rows(self) -> Any:
        return self.phases.end_step(self.clock.now()).rows()


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_nested_phases_have_paths_of_labels(bench: Bench) -> None:
    # GIVEN a phase within a phase, the name of one with `/` WHEN they end
    with bench.phases.phase("train"):
        with bench.phases.phase("train/forward"):
            inside = bench.phases.top
        between = bench.phases.top
    # THEN the label of each names those around it, and names stay as they were pushed
    assert bench.labels.path(inside) == ("train", "train/forward") and bench.labels.path(between) == ("train",)
    assert bench.phases.top == NONE
    rows = bench.rows()
    assert [bench.labels.path(row[0]) for row in rows] == [("train",), ("train", "train/forward")]
    (outer, inner) = rows
    assert outer[1] <= inner[1] and inner[1] + inner[2] <= outer[1] + outer[2]
    assert all(row[3] is None and row[4] == 1 for row in rows)


def test_an_exception_leaves_the_phase_and_those_inside(bench: Bench) -> None:
    # GIVEN a raw push inside a `with` WHEN an exception flies
    with pytest.raises(KeyError), bench.phases.phase("outer"):
        bench.phases.push("inner")
        raise KeyError
    # THEN nothing is open, both have a time, and the missing pop is noted
    assert bench.phases.open == []
    assert bench.end() == [(("outer",), 1), (("outer", "inner"), 1)]
    assert bench.notes == ["phase_not_popped"]


def test_a_pop_too_many_is_noted_once_and_does_nothing(bench: Bench) -> None:
    for _ in range(3):
        bench.phases.pop()
    bench.phases.push("a")
    bench.phases.pop()
    bench.phases.pop()
    assert bench.notes == ["phase_pop"] and bench.end() == [(("a",), 1)]


@pytest.mark.parametrize(
    ("given", "name"),
    [(None, "(unnamed)"), ("", "(unnamed)"), ("/", "(unnamed)"), ("/a/b/", "a/b"), (7, "7"), ("x" * 300, "x" * 256), (b"raw", "b'raw'")],
)
def test_any_object_can_name_a_phase(bench: Bench, given: object, name: str) -> None:
    assert phase_name(given) == name
    with bench.phases.phase(given):
        assert bench.labels.path(bench.phases.top) == (name,)


def test_threads_have_stacks_of_their_own(bench: Bench) -> None:
    # GIVEN another thread with a phase of its own, open at the same time
    seen: dict[str, tuple[str, ...]] = {}
    go, done = threading.Event(), threading.Event()

    def other() -> None:
        with bench.phases.phase("loader"):
            seen["other"] = bench.labels.path(bench.phases.top)
            done.set()
            go.wait(5)

    thread = threading.Thread(target=other)
    with bench.phases.phase("train"):
        thread.start()
        assert done.wait(5)
        seen["mine"] = bench.labels.path(bench.phases.top)
        go.set()
        thread.join(5)
    # THEN the thread of the step is not in it. (A first push on another thread is within the phase of the step, which may have started it.)
    assert seen["mine"] == ("train",) and seen["other"] == ("train", "loader")
    assert sorted(path for path, _ in bench.end()) == [("train",), ("train", "loader")]


def test_a_worker_of_autograd_is_in_the_phase_of_backward(bench: Bench) -> None:
    # GIVEN a thread without phases WHEN the thread of the step is in one THEN so is the worker, and in none after it
    tops: list[int] = []

    def ask() -> None:
        tops.append(bench.phases.top)

    def in_thread() -> None:
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join(5)

    with bench.phases.phase("backward"):
        in_thread()
    in_thread()
    assert [bench.labels.path(top) for top in tops] == [("backward",), ()]


def test_a_phase_over_several_steps_is_cut_at_their_ends(bench: Bench) -> None:
    # GIVEN a phase that is open at the end of a step
    bench.phases.push("epoch")
    bench.phases.push("warm-up")
    first = bench.rows()
    bench.begin()
    bench.phases.pop()
    second = bench.rows()
    # THEN each step has its part, and the parts do not overlap
    assert [bench.labels.path(row[0])[-1] for row in first] == ["epoch", "warm-up"]
    assert sorted(bench.labels.path(row[0])[-1] for row in second) == ["epoch", "warm-up"]
    assert all(row[1] + row[2] <= second[0][1] for row in first)
    assert bench.notes == []


def test_a_phase_that_an_exception_kept_from_being_popped_does_not_pile_up(bench: Bench) -> None:
    # GIVEN a loop that pushes, fails, and goes on with the next step WHEN it does so three times
    for _ in range(3):
        bench.phases.push("train")
        bench.phases.push("forward")
        bench.rows()
        bench.begin()
    bench.phases.push("train")
    # THEN the phases of earlier steps are closed, and this is noted once
    assert bench.labels.path(bench.phases.top) == ("train",) and len(bench.phases.open) == 1
    assert bench.notes == ["phase_not_popped"]


def test_a_phase_may_contain_one_of_its_own_name(bench: Bench) -> None:
    with bench.phases.phase("block"), bench.phases.phase("block"):
        assert bench.labels.path(bench.phases.top) == ("block", "block")
    bench.phases.push("block")
    bench.phases.push("block")
    assert len(bench.phases.open) == 2


def test_many_ranges_of_one_phase_are_summed_up(bench: Bench) -> None:
    # GIVEN 1000 ranges of one phase and single ones of others WHEN the step ends
    with bench.phases.phase("rollout"):
        for _ in range(1000):
            with bench.phases.phase("token"):
                pass
    with bench.phases.phase("loss"):
        pass
    rows = {bench.labels.path(row[0]): row for row in bench.rows()}
    # THEN there is one row for the 1000, which lasts no longer than what is around it, and rows of their own for the others
    assert {path: row[4] for path, row in rows.items()} == {("rollout",): 1, ("rollout", "token"): 1000, ("loss",): 1}
    token, rollout = rows["rollout", "token"], rows["rollout",]
    assert token[1] >= rollout[1] and token[2] <= rollout[2]


def test_a_fan_of_names_is_bounded_too(bench: Bench) -> None:
    # GIVEN more names than ranges are kept, each of them twice WHEN the step ends
    for k in range(RANGES):
        for _ in range(2):
            with bench.phases.phase(f"expert {k}"):
                pass
    # THEN every call is in a row
    rows = bench.rows()
    assert sum(row[4] for row in rows) == 2 * RANGES and len(rows) <= 2 * RANGES
    assert len({row[0] for row in rows}) == RANGES


def test_a_stack_without_end_is_cut(bench: Bench) -> None:
    for _ in range(DEPTH + 10):
        bench.phases.push("deeper")
    assert len(bench.phases.open) == DEPTH and bench.notes == ["phase_depth"]
    for _ in range(DEPTH + 10):
        bench.phases.pop()
    assert bench.phases.open == [] and bench.notes == ["phase_depth"]
    assert sum(count for _, count in bench.end()) == DEPTH


def test_what_phases_cost_is_not_in_their_times(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a clock that goes on by 1 µs whenever it is read, which happens at both ends of a push and of a pop
    ticks = itertools.count(bench.clock.monotonic_ns + 10**9, 1000)
    monkeypatch.setattr(phases, "perf_counter_ns", lambda: next(ticks))
    before = bench.clock.own_ns
    # WHEN 100 phases of nothing are in one
    with bench.phases.phase("outer"):
        for _ in range(100):
            with bench.phases.phase("inner"):
                pass
    # THEN the microsecond of each push and each pop is the recorder's own; the phases have those in between
    assert bench.clock.own_ns - before == (2 * 100 + 2) * 1000
    times = {path: row[2] for row in bench.rows() if (path := bench.labels.path(row[0])) == ("outer",)}
    assert times == {("outer",): (2 * 100 + 1) * 1000}


def test_off_means_nothing_is_kept(bench: Bench) -> None:
    bench.phases.on = False
    with bench.phases.phase("a"):
        assert bench.phases.open == []
    bench.phases.pop()
    assert bench.end() == [] and bench.notes == []


def test_a_running_profiler_sees_the_phases(bench: Bench) -> None:
    torch = pytest.importorskip("torch", reason="records with torch's profiler")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, bench.phases.phase("rl/rollout"):
        torch.ones(2)
    with bench.phases.phase("not profiled"):
        pass
    names = {event.name for event in profile.events()}
    assert "rl/rollout" in names and "not profiled" not in names
