"""The driven profiler: a trace of the iteration after a sampled one, under the worker name of the capture."""

from __future__ import annotations

import gc
import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.format import NAME
from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="records with torch's profiler")
from tb_sol_plugin.capture.tracker import SOLTracker  # noqa: E402  (needs torch)

X = torch.ones(8, 16)


@pytest.fixture(autouse=True, scope="module")
def no_profilers_left() -> None:
    """Profilers of other tests are gone: the tracker looks for those that a script holds."""
    gc.collect()


def run(folder: Path, *, steps: int = 8, **options: Any) -> Any:
    model = torch.nn.Linear(16, 16)
    given = {"every_n_steps": 4, "profile": "after_sampled", "tensorboard": False, "wandb": False, "console": False, **options}
    with SOLTracker(logdir=str(folder), **given) as tracker:
        tracker.initialize(model)
        for k in range(steps):
            with tracker.phase("forward"):
                model(X)
            tracker.log_analysis(options.get("first_iteration", 0) + k)
    return tracker


def traces(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(gzip.decompress(path.read_bytes())) for path in sorted(folder.glob("*.pt.trace.json.gz"))]


def steps_in(trace: dict[str, Any]) -> list[str]:
    return [e["name"] for e in trace["traceEvents"] if str(e.get("name")).startswith("ProfilerStep#") and e.get("cat") == "user_annotation"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of eight iterations from number 100, of which the first, the second and the fifth are sampled."""
    folder = tmp_path_factory.mktemp("traces")
    run(folder, first_iteration=100)
    return folder


def test_the_iteration_after_a_sampled_one_is_traced(recorded: Path) -> None:
    # GIVEN iterations 0, 1, 4 sampled WHEN eight run from number 100 THEN 102 and 105 have a trace each
    found = traces(recorded)
    assert [steps_in(t) for t in found] == [["ProfilerStep#102"], ["ProfilerStep#105"]]
    # AND the traces have sizes, phases, and no mark of a dispatch mode
    names = {e["name"] for e in found[0]["traceEvents"] if "name" in e}
    assert {"forward", "aten::addmm"} <= names
    assert any("Input Dims" in e.get("args", {}) for e in found[0]["traceEvents"])
    capture = only(recorded)
    assert capture.sampled == [100, 101, 104] and not capture.notes
    # AND traces and capture are of one rank, and nothing else is left in the folder
    (path,) = recorded.glob("*.sol.jsonl")
    named = NAME.match(path.name)
    assert named is not None
    for path in recorded.glob("*.pt.trace.json.gz"):
        assert re.fullmatch(re.escape(f"{named['host']}_rank{named['rank']}") + r"\.\d+\.pt\.trace\.json\.gz", path.name)
    assert not [path for path in recorded.iterdir() if path.name.startswith(".")]


def test_traces_and_capture_file_are_opened_as_recordings_of_one_rank(recorded: Path) -> None:
    import tb_sol_plugin as sol

    captures = sol.open(str(recorded)).captures
    assert {c.facts.source for c in captures} == {"kineto", "sol_capture"} and len({c.worker for c in captures}) == 1


def modules_in(trace: dict[str, Any]) -> set[str]:
    return {e["name"] for e in trace["traceEvents"] if str(e.get("name")).startswith("nn.Module: ")}


def test_traces_have_the_calls_of_modules(recorded: Path) -> None:
    assert [modules_in(t) for t in traces(recorded)] == [{"nn.Module: Linear_0"}] * 2


def test_there_are_no_more_traces_than_asked_for_and_no_stacks_where_switched_off(tmp_path: Path, recorded: Path) -> None:
    run(tmp_path, steps=20, traces=1, trace_stacks=False, memory=True)
    assert [modules_in(t) for t in traces(tmp_path)] == [set()]
    # AND with memory=True they hold allocations, else none
    allocations = lambda folder: [sum(e.get("name") == "[memory]" for e in t["traceEvents"]) for t in traces(folder)]
    assert all(allocations(tmp_path)) and not any(allocations(recorded))


def test_the_range_has_the_number_that_the_iteration_got_in_the_end(tmp_path: Path) -> None:
    # GIVEN a script whose numbers jump WHEN the traced iteration is not the one that was expected THEN its range is renamed
    model = torch.nn.Linear(16, 16)
    with SOLTracker(logdir=str(tmp_path), every_n_steps=4, profile="after_sampled", tensorboard=False, console=False) as tracker:
        tracker.initialize(model)
        for number in (0, 1, 7):
            model(X)
            tracker.log_analysis(number)
    assert [steps_in(t) for t in traces(tmp_path)] == [["ProfilerStep#7"]]


def test_no_iteration_is_traced_while_the_script_has_a_profiler(tmp_path: Path) -> None:
    # GIVEN a script with a profiler that waits for its turn WHEN it runs with tracking THEN it is undisturbed, and this is noted
    done: list[object] = []
    schedule = torch.profiler.schedule(wait=2, warmup=1, active=2, repeat=1)
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], schedule=schedule, on_trace_ready=done.append
    ) as profile:
        model = torch.nn.Linear(16, 16)
        with SOLTracker(
            logdir=str(tmp_path), every_n_steps=4, profile="after_sampled", tensorboard=False, console=False
        ) as tracker:
            tracker.initialize(model)
            for _ in range(8):
                model(X)
                tracker.step()
                profile.step()
    assert len(done) == 1 and traces(tmp_path) == []
    assert only(tmp_path).notes["profiler"] >= 1


def test_an_iteration_that_does_not_end_leaves_no_trace(tmp_path: Path) -> None:
    run(tmp_path, steps=2)  # the third one is being traced when the tracker closes
    assert traces(tmp_path) == [] and not torch.autograd.profiler._is_profiler_enabled


def test_a_traced_iteration_that_begins_anew_has_one_range(tmp_path: Path) -> None:
    model = torch.nn.Linear(16, 16)
    with SOLTracker(logdir=str(tmp_path), every_n_steps=4, profile="after_sampled", tensorboard=False, console=False) as tracker:
        tracker.initialize(model)
        for number in range(3):
            tracker.clear()
            model(X)
            tracker.log_analysis(number)
    # one range of what was dropped and one of the iteration would be two steps of one number
    (trace,) = traces(tmp_path)
    assert steps_in(trace) == ["ProfilerStep#2"]


def test_a_loop_with_every_iteration_sampled_is_not_traced_and_says_so(tmp_path: Path) -> None:
    run(tmp_path, steps=3, every_n_steps=1)
    assert traces(tmp_path) == [] and only(tmp_path).notes["profiler"] == 1


def test_a_profiler_that_fails_does_not_stop_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object, path: str) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(torch.profiler.profile, "export_chrome_trace", broken)
    run(tmp_path)
    recorded = only(tmp_path)
    assert len(recorded.steps) == 8 and recorded.notes["failed_profiler"] == 1 and traces(tmp_path) == []
