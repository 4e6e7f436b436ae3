"""Manners towards the training loop: errors stay inside, everything is taken off, copies and forks carry nothing, and exits do not hang."""

from __future__ import annotations

import copy
import gc
import io
import os
import pickle
import subprocess
import sys
import threading
import weakref
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.support.forked import python
from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="tracks training loops")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402  (needs torch)

from tb_sol_plugin.capture.tracker import SOLTracker  # noqa: E402

QUIET: dict[str, Any] = {"tensorboard": False, "wandb": False, "console": False}
X = torch.linspace(-1, 1, 8 * 16).view(8, 16)
LINEAR = 2 * 8 * 16 * 16


def layer() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(16, 16)


def clean(model: Any) -> bool:
    """Nothing of ours is on the model, on torch's functions, or on this thread's stack of modes."""
    hooks = any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())
    return not hooks and not hasattr(torch.nn.functional.linear, "_sol_patch") and torch._C._len_torch_dispatch_stack() == 0


def fresh_interpreter(text: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run `text` to its end in a process in which nothing is imported."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-c", text, *map(str, arguments)], env=env, text=True, capture_output=True, timeout=300, check=False
    )


# --- Errors stay inside ---


def test_an_analysis_that_fails_three_times_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an analysis that always fails WHEN ten iterations run
    from tb_sol_plugin.capture.report import analysis

    calls = []

    def broken(*args: object, **kwargs: object) -> None:
        calls.append(1)
        raise ZeroDivisionError("in the analysis")

    monkeypatch.setattr(analysis, "analyze", broken)
    model = layer()
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET) as tracker:
        tracker.initialize(model)
        for _ in range(10):
            model(X)
            tracker.step()
    # THEN it was tried three times, the file says so, and everything else was recorded
    recorded = only(tmp_path)
    assert len(calls) == 3 and recorded.notes["failed_analysis"] == 1 and recorded.notes["failures"] == 3
    assert any("in the analysis" in text for text in recorded.note_texts)
    assert len(recorded.steps) == 10 and [recorded.flop(n) for n in range(10)] == [LINEAR] * 10 and recorded.closed


def test_tracking_ends_when_no_iteration_can_be_ended(tmp_path: Path) -> None:
    # GIVEN a loop whose numbers of iterations are no numbers WHEN it ends five THEN after three failures the tracker takes everything off
    model = layer()
    tracker = SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET)
    tracker.initialize(model)
    off = []
    for _ in range(5):
        model(X)
        tracker.log_analysis("the next one")  # type: ignore[arg-type]
        off.append(tracker.off)
    assert off == [False, False, True, True, True] and clean(model)
    recorded = only(tmp_path)
    assert recorded.notes["off"] == 1 and recorded.closed and recorded.steps == []


def test_hooks_that_cannot_be_put_on_do_not_stop_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN functions that cannot be replaced WHEN an iteration is sampled THEN all is taken back at once, and the others are timed
    from tb_sol_plugin.capture.functional_patcher import FunctionalPatcher

    def broken(self: object) -> None:
        raise RuntimeError("read-only module")

    monkeypatch.setattr(FunctionalPatcher, "install", broken)
    model = layer()
    with SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET) as tracker:
        tracker.initialize(model)
        for _ in range(5):
            assert clean(model)
            model(X)
            tracker.step()
    recorded = only(tmp_path)
    assert len(recorded.steps) == 5 and recorded.sampled == [] and recorded.notes["failed_watch"] == 1


class Odd:
    """Raises at whatever is asked of it."""

    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__

    def __getattr__(self, name: str) -> object:
        raise ValueError(name)


def test_arguments_that_raise_when_read_do_not_stop_training() -> None:
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        tracker.initialize(Odd(), Odd())
        tracker.push_phase(Odd())
        tracker.pop_phase()
        with tracker.phase(Odd()):
            pass
        tracker.log_analysis("seven")  # type: ignore[arg-type]
        tracker.step(Odd(), batch=Odd())  # type: ignore[arg-type]
        tracker.log_analysis(3, Odd())  # type: ignore[arg-type]


# --- Everything is taken off ---


def test_an_exception_out_of_the_outermost_phase_ends_the_sampled_iteration(tmp_path: Path) -> None:
    # GIVEN a loop that skips a failing batch WHEN the exception has left the phases THEN nothing is on the model any more
    model = layer()
    with SOLTracker(every_n_steps=2, logdir=str(tmp_path), **QUIET) as tracker:
        tracker.initialize(model)
        for k in range(4):
            try:
                with tracker.phase("train"), tracker.phase("forward"):
                    model(X if k else X[:, :3])
            except RuntimeError:
                assert clean(model)
            tracker.step()
    # AND that iteration counts as not sampled, the next ones are
    recorded = only(tmp_path)
    assert recorded.sampled == [1, 2] and recorded.notes["interrupted"] == 1
    assert recorded.flop(1) == recorded.flop(2) == LINEAR


def test_a_phase_that_ends_with_stop_iteration_keeps_the_iteration_sampled() -> None:
    model = layer()
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        tracker.initialize(model)
        with pytest.raises(StopIteration), tracker.phase("data"):
            next(iter(()))
        assert not clean(model) and tracker.sampled


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, RuntimeError])
def test_an_exception_passes_through_the_tracker_and_closes_the_file(tmp_path: Path, error: type[BaseException]) -> None:
    # GIVEN a step that is interrupted WHEN the exception leaves the `with` THEN it passes, nothing stays, and the file is closed
    model = layer()
    with pytest.raises(error), SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET) as tracker:
        tracker.initialize(model)
        model(X)
        tracker.step()
        model(X)
        raise error
    assert clean(model)
    recorded = only(tmp_path)
    assert recorded.closed and len(recorded.steps) == 1 and recorded.notes["interrupted"] == 1


class InterruptedOnce(torch.nn.Linear):  # type: ignore[misc]
    """A layer between whose two hooks Ctrl-C is pressed, once."""

    hooks = 0

    def register_forward_hook(self, *args: Any, **options: Any) -> Any:
        self.hooks += 1
        if self.hooks == 1:
            raise KeyboardInterrupt
        return super().register_forward_hook(*args, **options)


def test_an_interrupt_while_hooks_are_put_on_leaves_nothing_on_the_model() -> None:
    # GIVEN Ctrl-C while hooks are being put on WHEN it has passed THEN nothing stays, and the tracker works on
    torch.manual_seed(0)
    model = InterruptedOnce(16, 16)
    tracker = SOLTracker(every_n_steps=1, **QUIET)
    with pytest.raises(KeyboardInterrupt):
        tracker.initialize(model)
    assert clean(model)
    tracker.step()
    model(X)
    assert sum(r.flops or 0 for r in tracker.records) == LINEAR
    tracker.close()
    assert clean(model)


class Other(TorchDispatchMode):  # type: ignore[misc]
    """Somebody else's mode, which counts calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_a_mode_of_somebody_else_that_stays_open_over_our_end() -> None:
    # GIVEN a mode that is entered inside a sampled step WHEN the step ends before it THEN ours is gone and theirs goes on
    model, other = layer(), Other()
    tracker = SOLTracker(every_n_steps=1, **QUIET)
    tracker.initialize(model)
    with other:
        model(X)
        tracker.close()
        before = other.calls
        model(X)
        assert torch._C._len_torch_dispatch_stack() == 1 and other.calls > before
    assert clean(model)


def test_a_step_that_begins_under_a_mode_of_somebody_else(tmp_path: Path) -> None:
    # GIVEN a mode that is open where a sampled step begins WHEN it closes in that step THEN it closes itself, and a later step is sampled
    model, other = layer(), Other()
    tracker = SOLTracker(every_n_steps=4, logdir=str(tmp_path), **QUIET)
    with other:
        tracker.initialize(model)
        model(X)
    assert clean(model)
    for _ in range(3):
        model(X)
        tracker.step()
    tracker.close()
    recorded = only(tmp_path)
    assert recorded.sampled == [1, 2] or recorded.sampled == [1]
    assert recorded.notes["other_mode"] == 1


# --- Copies ---


def test_copies_of_a_tracked_model_carry_nothing() -> None:
    # GIVEN a model inside a sampled step WHEN it is copied, pickled and saved
    model = torch.nn.Sequential(layer(), torch.nn.ReLU())
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        tracker.initialize(model)
        copied = copy.deepcopy(model)
        pickled = pickle.loads(pickle.dumps(model))
        file = io.BytesIO()
        torch.save(model, file)
        file.seek(0)
        saved = torch.load(file, weights_only=False)
        before = sum(r.flops or 0 for r in tracker.records)
        expected = model(X)
        # THEN the copies compute the same, and are not tracked by module
        for one in (copied, pickled, saved):
            assert torch.equal(one(X), expected)
        named = [r for r in tracker.records if r.module_context and r.flops]
        assert before == 0 and sum(r.flops for r in named) == LINEAR
    for one in (copied, pickled, saved):
        assert torch.equal(one(X), expected)


def test_a_model_that_holds_its_tracker_can_be_copied_and_saved() -> None:
    model = layer()
    with SOLTracker(every_n_steps=1, **QUIET) as tracker:
        model.tracker = tracker
        tracker.initialize(model)
        assert copy.deepcopy(model).tracker is tracker
        assert pickle.loads(pickle.dumps(model)).tracker is None


# --- The end ---


def test_a_tracker_that_is_dropped_closes_itself(tmp_path: Path) -> None:
    # GIVEN a tracker in a sampled step WHEN nobody holds it any more THEN everything is off and the file is closed
    model = layer()

    def loop() -> weakref.ref[SOLTracker]:
        tracker = SOLTracker(every_n_steps=1, logdir=str(tmp_path), **QUIET)
        tracker.initialize(model)
        model(X)
        tracker.step()
        return weakref.ref(tracker)

    dropped = loop()
    gc.collect()
    assert dropped() is None and clean(model)
    recorded = only(tmp_path)
    assert recorded.closed and len(recorded.steps) == 1


def test_two_trackers_take_turns(tmp_path: Path) -> None:
    # GIVEN two trackers of one model that both sample iterations 0 and 1 of ten WHEN the loop ends both in each iteration
    model = layer()
    one = SOLTracker(every_n_steps=100, logdir=str(tmp_path / "one"), **QUIET)
    two = SOLTracker(every_n_steps=100, logdir=str(tmp_path / "two"), **QUIET)
    one.initialize(model)
    two.initialize(model)
    for _ in range(5):
        model(X)
        one.step()
        two.step()
    one.close()
    two.close()
    # THEN the second counts once the first is done, says so, and each has the work of one
    first, second = only(tmp_path / "one"), only(tmp_path / "two")
    assert first.sampled == [0, 1] and second.sampled and not set(first.sampled) & set(second.sampled)
    assert all(recorded.flop(n) == LINEAR for recorded in (first, second) for n in recorded.sampled)
    assert second.notes["two_trackers"] >= 1 and clean(model)


def test_a_thread_that_ends_an_iteration_does_not_wait_for_another_one() -> None:
    # GIVEN an iteration whose end takes long, since the number of its samples is a function that does
    model = layer()
    inside, go, threads = threading.Event(), threading.Event(), []

    def samples() -> int:
        threads.append(threading.get_ident())
        inside.set()
        go.wait(60)
        return 8

    tracker = SOLTracker(every_n_steps=1000, batch=samples, **QUIET)
    tracker.initialize(model)
    thread = threading.Thread(target=tracker.step)
    thread.start()
    assert inside.wait(60)
    # WHEN another thread ends an iteration meanwhile THEN that returns at once
    tracker.step()
    tracker.clear()
    assert thread.is_alive() and threads == [thread.ident]
    go.set()
    thread.join(60)
    assert not thread.is_alive()
    tracker.close()


LOOP = """
import os, sys, torch
import tb_sol_plugin as sol
model = torch.nn.Linear(16, 16)
tracker = sol.capture(sys.argv[1], model=model, every_n_steps=2, tensorboard=False)
for _ in range(3):
    model(torch.ones(8, 16)).sum().backward()
    tracker.step()
tracker.push_phase("open at exit")
"""


@pytest.mark.parametrize(
    ("ending", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise KeyError('end')", 1), ("os._exit(0)", 0), ("del tracker", 0)],
)
def test_a_process_that_never_closes_its_tracker_keeps_its_finished_iterations(tmp_path: Path, ending: str, code: int) -> None:
    # GIVEN a script that never closes its tracker WHEN it ends in whatever way THEN it ends, and its file has the finished steps
    process = python("-c", f"{LOOP}\n{ending}", tmp_path, errors_apart=True)
    _, errors = process.communicate(300)
    assert process.returncode == code, errors
    assert ("Traceback" in errors) is ("raise" in ending), errors
    recorded = only(tmp_path)
    assert [s["iteration"] for s in recorded.steps] == [0, 1, 2] and recorded.closed is ("os._exit" not in ending)


FORK = """
for ending in ("sys.exit(0)", "tracker.close(); sys.exit(0)", "os._exit(0)", "del tracker; sys.exit(0)"):
    pid = os.fork()
    if pid == 0:
        assert torch._C._len_torch_dispatch_stack() == 0 and not model._forward_hooks
        model(torch.ones(8, 16))
        with tracker.phase("in the child"):
            tracker.step()
        tracker.log_analysis(77)
        exec(ending)
    _, status = os.waitpid(pid, 0)
    assert status == 0, (ending, status)
model(torch.ones(8, 16))
tracker.step()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_forked_process_writes_nothing_however_it_ends(tmp_path: Path) -> None:
    # GIVEN forks inside a sampled step WHEN each child uses the tracker and ends in a way of its own THEN the file is that of the parent alone
    process = python("-c", LOOP.replace('tracker.push_phase("open at exit")', "") + FORK, tmp_path)
    text, _ = process.communicate(300)
    assert process.returncode == 0, text
    recorded = only(tmp_path)
    assert [s["iteration"] for s in recorded.steps] == [0, 1, 2, 3] and recorded.closed
    assert "in the child" not in str(recorded.phase_times)


ALONE = """
import sys
from importlib.machinery import PathFinder
BLOCKED = ("numpy", "pandas", "pyarrow", "msgspec", "flask", "plotly", "numba", "rich", "tensorboard", "wandb", "isal", "fsspec")
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return None if name.split(".")[0] in BLOCKED else PathFinder.find_spec(name, path, target)
    invalidate_caches = PathFinder.invalidate_caches
sys.meta_path[:] = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
"""


def test_a_loop_is_recorded_where_only_torch_is_installed(tmp_path: Path) -> None:
    # GIVEN a process with nothing but torch WHEN it is tracked THEN its work is recorded, with costs unknown and not 0
    ended = fresh_interpreter(f"{ALONE}\n{LOOP}\ntracker.close()\nassert not any(name in sys.modules for name in BLOCKED)", tmp_path)
    assert ended.returncode == 0, ended.stderr
    recorded = only(tmp_path)
    assert recorded.sampled == [0, 1, 2] and recorded.calls(1)["aten::addmm"] == 1
    assert all(row.flop is None and row.sig["reason"] for row in recorded.ledgers[1])
    assert not [code for code in recorded.notes if code.startswith("failed")]


def test_importing_the_recorder_loads_neither_torch_nor_numpy() -> None:
    # GIVEN a process without torch WHEN the capture library is imported THEN it loads none of these
    text = (
        "import sys; import tb_sol_plugin; from tb_sol_plugin import capture; import tb_sol_plugin.capture; "
        "capture.__all__; dir(capture); "
        "print([m for m in ('torch', 'numpy', 'pandas', 'msgspec', 'wandb', 'tensorboard') if m in sys.modules])"
    )
    assert fresh_interpreter(text).stdout.strip() == "[]"


def test_every_public_name_is_there() -> None:
    import importlib

    from tb_sol_plugin import capture

    for name in capture.__all__:
        assert getattr(capture, name) is not None and name in dir(capture)
    for name in ("sol_integration", "layer_hooks", "functional_patcher", "operation_registry", "roofline", "device_specs"):
        assert getattr(capture, name) is importlib.import_module(f"tb_sol_plugin.capture.{name}")
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = capture.no_such_name
    assert callable(capture)
