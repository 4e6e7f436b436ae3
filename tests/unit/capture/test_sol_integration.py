"""The classic interface: one tracker of the process, and ranges by level."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="tracks training loops")
from tb_sol_plugin.capture import (  # noqa: E402  (needs torch)
    SOLTracker,
    clear_sol_captures,
    get_sol_tracker,
    initialize_sol,
    log_training_sol,
    sol_nvtx_range,
)
from tb_sol_plugin.capture.sol_integration import _state  # noqa: E402

X = torch.ones(8, 16)
LINEAR = 2 * 8 * 16 * 16
QUIET: dict[str, Any] = {"tensorboard": False, "wandb": False, "console": False}


@pytest.fixture(autouse=True)
def no_tracker() -> Iterator[None]:
    """Each test begins and ends in a process without a tracker."""
    _state.tracker, _state.level = None, 2
    yield
    if _state.tracker is not None:
        _state.tracker.close()
    _state.tracker, _state.level = None, 2


def layer() -> Any:
    return torch.nn.Linear(16, 16)


def test_all_of_it_may_stay_in_a_script_that_does_not_track() -> None:
    # GIVEN a process without a tracker WHEN a loop uses the interface THEN nothing happens
    assert get_sol_tracker() is None
    clear_sol_captures()
    with sol_nvtx_range("forward", 1):
        pass
    log_training_sol(0, clear=True)
    with pytest.raises(KeyError), sol_nvtx_range("forward"):
        raise KeyError
    assert get_sol_tracker() is None


def test_a_loop_in_the_typical_order(tmp_path: Path) -> None:
    # GIVEN arguments of a script WHEN it trains three iterations, numbered from 1
    args = Namespace(rl_sol_report_interval=50, rl_sol_device="H100_SXM", tensorboard_dir=str(tmp_path), timing_log_level=2)
    model = layer()
    tracker = initialize_sol(model, args, **QUIET)
    assert isinstance(tracker, SOLTracker) and get_sol_tracker() is tracker
    for iteration in range(1, 4):
        clear_sol_captures()
        with sol_nvtx_range("train", 1), sol_nvtx_range("train/forward", log_level=2), sol_nvtx_range("detail", 3):
            loss = model(X).sum()
        with sol_nvtx_range("backward", log_level=1):
            loss.backward()
        log_training_sol(iteration, clear=True)
    tracker.close()
    # THEN the file has them with the phases up to level 2, and limits of the device that was named
    recorded = only(tmp_path)
    assert [s["iteration"] for s in recorded.steps] == [1, 2, 3] and recorded.sampled == [1, 2]
    assert [name for name, *_ in recorded.phase_times[3]] == ["train", "train/forward", "backward"]
    assert recorded.flop(2) == 2 * LINEAR and recorded.header["every_n_steps"] == 50
    assert {row.phase for row in recorded.ledgers[2] if row.backward} == {"backward"}
    assert {row.forward_phase for row in recorded.ledgers[2] if row.backward and row.flop} == {"train/forward"}
    assert recorded.header["device"]["key"] == "H100_SXM"  # type: ignore[index,call-overload]


def test_a_second_call_reuses_the_tracker() -> None:
    model = layer()
    first = initialize_sol(model, **QUIET)
    hooks = len(model._forward_pre_hooks)
    assert initialize_sol(model, Namespace(), **QUIET) is first and len(model._forward_pre_hooks) == hooks
    # AND after it was closed there is a new one
    assert first is not None
    first.close()
    assert initialize_sol(model, **QUIET) is not first


@pytest.mark.parametrize("args", [Namespace(timing_log_level=0), {"timing_log_level": 0}])
def test_level_0_switches_all_off(args: object) -> None:
    # GIVEN level 0 WHEN tracking is asked for THEN there is no tracker, nothing is on the model, and no range is active
    model, before = layer(), torch.nn.functional.linear
    assert initialize_sol(model, args, **QUIET) is None and get_sol_tracker() is None
    assert not model._forward_hooks and torch.nn.functional.linear is before
    seen = _profiled(lambda: sol_nvtx_range("a", 1))
    assert "a" not in seen
    log_training_sol(0)
    # AND a tracker that was on goes off
    tracker = initialize_sol(model, Namespace(timing_log_level=1), **QUIET)
    assert tracker is not None and not tracker.off
    assert initialize_sol(model, args) is None and tracker.off and not model._forward_hooks


@pytest.mark.parametrize(("level", "log_level", "active"), [(2, 0, False), (2, 1, True), (2, 2, True), (2, 3, False), (1, 2, False), (5, 5, True)])
def test_which_ranges_are_active(level: int, log_level: int, active: bool) -> None:
    # GIVEN a level WHEN a range of another one opens THEN it is a phase if 1 <= its level <= the level, and a profiler sees it then
    tracker = initialize_sol(None, Namespace(timing_log_level=level), **QUIET)
    assert tracker is not None
    with sol_nvtx_range("range", log_level):
        assert bool(tracker.phases.open) is active
    assert ("range" in _profiled(lambda: sol_nvtx_range("range", log_level))) is active


def test_a_range_is_seen_by_profilers_without_a_tracker() -> None:
    assert "range" in _profiled(lambda: sol_nvtx_range("range", 1)) and "range" not in _profiled(lambda: sol_nvtx_range("range", 3))


def test_an_exception_pops_the_range() -> None:
    tracker = initialize_sol(None, **QUIET)
    assert tracker is not None
    with pytest.raises(ZeroDivisionError), sol_nvtx_range("outer"), sol_nvtx_range("inner"):
        raise ZeroDivisionError
    assert tracker.phases.open == []


def test_nvtx_ranges_are_opened_and_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a process that uses CUDA, stood in for WHEN ranges nest and one fails THEN each push has its pop, in order
    calls: list[str] = []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda name: calls.append(f"push {name}"))
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", lambda: calls.append("pop"))
    with pytest.raises(KeyError), sol_nvtx_range("a"), sol_nvtx_range("b"):
        raise KeyError
    tracker = SOLTracker(**QUIET)
    tracker.phases.nvtx = True
    with tracker.phase("c"):
        tracker.push_phase("d")
        tracker.pop_phase()
    tracker.close()
    assert calls == ["push a", "push b", "pop", "pop", "push c", "push d", "pop", "pop"]


def test_options_that_do_not_exist_do_not_stop_training(caplog: pytest.LogCaptureFixture) -> None:
    assert initialize_sol(layer(), no_such_option=1) is None and "no_such_option" in caplog.text
    log_training_sol(0)


def _profiled(make: Any) -> set[str]:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile, make():
        torch.ones(2)
    return {event.name for event in profile.events()}
