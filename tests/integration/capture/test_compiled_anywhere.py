"""torch.compile behind the recorder's back: a wrapper or a function that was not passed, and compilations in traced iterations."""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="records training loops")
if find_spec("torch._dynamo") is None:  # looked for, not imported: 2 s that only these tests should pay
    pytest.skip("this torch cannot compile", allow_module_level=True)
if not hasattr(torch.compiler, "set_stance"):
    pytest.skip("compiled models are not sampled before torch 2.6", allow_module_level=True)

from tb_sol_plugin.capture.loop import profiling  # noqa: E402  (needs torch)
from tb_sol_plugin.capture.tracker import SOLTracker  # noqa: E402
from tb_sol_plugin.capture.work.compiling import compiled_around  # noqa: E402


@pytest.fixture(scope="module", autouse=True)
def compiler() -> None:
    """What the compiler defines when it is loaded stays, too."""
    torch._dynamo.reset()
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_compiled_code_of_others(compiler: None) -> Any:
    torch._dynamo.reset()
    gc.collect()
    yield
    torch._dynamo.reset()
    gc.collect()


def block(dropout: float = 0.0) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.GELU(), torch.nn.Dropout(dropout), torch.nn.Linear(16, 16))


def wrapper_of(model: Any) -> Callable[..., Any]:
    return torch.compile(model, backend="aot_eager")


def function_around(model: Any) -> Callable[..., Any]:
    return torch.compile(lambda x: model(x), backend="aot_eager")


def part_in_place(model: Any) -> Callable[..., Any]:
    model[0].compile(backend="aot_eager")
    return model


def nothing(model: Any) -> Callable[..., Any]:
    return model


def record(
    folder: Path, model: Any, call: Callable[..., Any], *, sizes: Callable[[int], int] = lambda k: 4, steps: int = 8, **options: Any
) -> Any:
    given = {"every_n_steps": 100, "tensorboard": False, "wandb": False, "console": False, **options}
    with SOLTracker(logdir=str(folder), **given) as tracker:
        tracker.initialize(model)
        for k in range(steps):
            call(torch.ones(sizes(k), 16)).square().mean().backward()
            model.zero_grad()
            tracker.step()
    return only(folder)


@pytest.mark.parametrize("compiled", [wrapper_of, function_around, part_in_place])
def test_compiled_code_is_noticed_though_the_model_was_passed_as_it_is(tmp_path: Path, compiled: Callable[..., Any]) -> None:
    # GIVEN a model that is passed as it is, while what runs is compiled WHEN its iterations are counted
    model = block()
    recorded = record(tmp_path, model, compiled(model))
    # THEN the header says so, and the times of the eager operators are not taken for those of the model
    assert recorded.sampled == [0, 1] and recorded.header["model"]["compiled"] is True
    assert all(step["compiled"] for step in recorded.steps if step.get("sampled"))
    import tb_sol_plugin as sol

    (capture,) = sol.open(str(tmp_path)).captures
    assert capture.facts.metadata["model.compiled"] == "true"
    assert capture.tables["ledger"]["compiled"].any() and capture.tables["ledger"]["time_ns"].isna().all()


def test_eager_code_beside_a_compiled_function_is_no_compiled_code(tmp_path: Path) -> None:
    # GIVEN a script that has compiled something it does not call WHEN an eager model is counted THEN it is an eager model
    other = torch.compile(lambda x: x + 1, backend="aot_eager")
    recorded = record(tmp_path, model := block(), model)
    assert recorded.sampled == [0, 1] and recorded.header["model"]["compiled"] is False
    assert not any(step.get("compiled") for step in recorded.steps)
    assert other is not None


def test_a_model_that_is_compiled_later_is_said_to_be(tmp_path: Path) -> None:
    # GIVEN iterations 0 and 1 eager, and compiled code from iteration 2 on WHEN iteration 4 is counted
    model = block()
    made: list[Any] = []

    def call(x: Any) -> Any:
        record.__dict__["calls"] = calls = record.__dict__.get("calls", 0) + 1
        if calls == 3:
            made.append(torch.compile(model, backend="aot_eager"))
        return (made or [model])[0](x)

    record.__dict__["calls"] = 0
    recorded = record(tmp_path, model, call, every_n_steps=4)
    # THEN the first two are eager, the third is not, a note tells, and the page has the model as compiled
    flags = [bool(step.get("compiled")) for step in recorded.steps if step.get("sampled")]
    assert flags == [False, False, True] and "compiled" in recorded.notes
    import tb_sol_plugin as sol

    (capture,) = sol.open(str(tmp_path)).captures
    assert capture.facts.metadata["model.compiled"] == "true"


@pytest.mark.parametrize("compiled", [wrapper_of, function_around])
def test_dropout_behind_a_wrapper_keeps_its_random_numbers(tmp_path: Path, compiled: Callable[..., Any]) -> None:
    # GIVEN a model with dropout that compiled code runs WHEN recorded THEN nothing is counted, and the file says why
    model = block(dropout=0.5)
    recorded = record(tmp_path, model, compiled(model))
    assert recorded.sampled == [] and "random" in recorded.notes


def test_what_is_compiled_around_a_model() -> None:
    model = block()
    ids = {id(one) for one in model.modules()}
    assert compiled_around(ids) in ("", "function")  # other tests of this process may have left functions
    wrapper = torch.compile(model[0], backend="aot_eager")
    assert compiled_around(ids) == "wrapper" and wrapper is not None


# -- traces ----------------------------------------------------------------------------------------------------------


def traced(folder: Path) -> list[str]:
    import gzip
    import json
    import re

    found: list[str] = []
    for path in sorted(folder.glob("*.pt.trace.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        names = [str(e.get("name")) for e in trace["traceEvents"] if e.get("cat") == "user_annotation"]
        found += [name for name in names if re.match(r"ProfilerStep#", name)]
        assert not any("convert_frame" in str(e.get("name")) for e in trace["traceEvents"])  # which compiles
    return found


def test_the_first_compilation_is_not_traced(tmp_path: Path) -> None:
    # GIVEN a compiled wrapper that was not passed WHEN traced THEN iteration 2, which compiles, has no trace; 3 has
    model = block()
    record(tmp_path, model, wrapper_of(model), profile="after_sampled", traces=1)
    assert traced(tmp_path) == ["ProfilerStep#3"]


def test_a_trace_is_dropped_as_soon_as_something_is_compiled_and_taken_later(tmp_path: Path) -> None:
    # GIVEN inputs whose size changes in iterations 3 and 4, so that the code is compiled again there
    model = block()
    call = torch.compile(model, backend="aot_eager", dynamic=False)
    recorded = record(tmp_path, model, call, sizes=lambda k: {3: 5, 4: 6}.get(k, 4), profile="after_sampled", traces=1)
    # THEN these two have no trace, 5 has, and a note says why
    assert traced(tmp_path) == ["ProfilerStep#5"]
    assert "profiler" in recorded.notes


def test_tracing_ends_where_every_iteration_compiles(tmp_path: Path) -> None:
    model = block()
    call = torch.compile(model, backend="aot_eager", dynamic=False)
    torch._dynamo.config.recompile_limit, before = 64, torch._dynamo.config.recompile_limit
    try:
        record(tmp_path, model, call, sizes=lambda k: 4 + k, steps=12, profile="after_sampled", traces=1)
    finally:
        torch._dynamo.config.recompile_limit = before
    assert traced(tmp_path) == []


@pytest.mark.skipif(profiling._resident() is None, reason="the memory of a process is read from /proc")
def test_a_trace_that_takes_too_much_memory_is_dropped_and_taken_without_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a limit of 64 MB and iterations that grow by more while they are traced with Python frames
    monkeypatch.setattr(profiling, "LEAST_LIMIT", 64 << 20)
    monkeypatch.setattr(profiling, "PART_OF_AVAILABLE", 1 << 40)
    model, held = block(), []

    def call(x: Any) -> Any:
        if len(held) == 2:
            import time

            kept = torch.ones(48 << 20)  # 192 MB
            end = time.monotonic() + 20
            while profiling_runs() and time.monotonic() < end:
                kept.sum()
        held.append(None)
        return model(x)

    tracker: list[Any] = []

    def profiling_runs() -> bool:
        return bool(tracker) and tracker[0]._traces.running

    given = {"every_n_steps": 100, "tensorboard": False, "wandb": False, "console": False}
    with SOLTracker(logdir=str(tmp_path), profile="after_sampled", traces=1, **given) as one:
        tracker.append(one)
        one.initialize(model)
        for _ in range(6):
            call(torch.ones(4, 16)).sum().backward()
            one.step()
    # THEN the trace of iteration 2 was dropped in the middle of it, 3 was traced without frames, and the file says so
    assert traced(tmp_path) == ["ProfilerStep#3"]
    assert profiling.WITHOUT_STACKS in next(tmp_path.glob("*.sol.jsonl")).read_text()
