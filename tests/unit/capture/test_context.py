"""The modern entry: `with sol.capture(...) as tracker`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import tb_sol_plugin as sol
from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="tracks training loops")

X = torch.ones(8, 16)
LINEAR = 2 * 8 * 16 * 16
QUIET: dict[str, Any] = {"tensorboard": False, "wandb": False, "console": False}


def test_the_package_and_its_name_start_a_tracker(tmp_path: Path) -> None:
    # GIVEN the ways to name it WHEN called THEN each gives a running tracker
    from tb_sol_plugin.capture import SOLTracker, capture

    for number, start in enumerate((sol.capture, capture, sol.capture.capture)):
        with start(str(tmp_path / str(number)), model=torch.nn.Linear(2, 2), **QUIET) as tracker:
            assert isinstance(tracker, SOLTracker) and tracker.sampled
        assert tracker.off and not tracker.sampled


def test_a_with_block_records_all_iterations_of_its_loop(tmp_path: Path) -> None:
    # GIVEN a loop of five iterations, the first and every third of them sampled WHEN it ends THEN its file has all of them
    model = torch.nn.Linear(16, 16)
    with sol.capture(tmp_path, model=model, every_n_steps=3, **QUIET) as tracker:  # a path may be one of pathlib
        for _ in range(5):
            with tracker.phase("forward"):
                loss = model(X).sum()
            tracker.step(loss, batch=8)
    recorded = only(tmp_path)
    assert recorded.sampled == [0, 1, 3] and recorded.closed and recorded.header["every_n_steps"] == 3
    assert [recorded.flop(n) for n in recorded.sampled] == [LINEAR] * 3 and {s["batch"] for s in recorded.steps} == {8}


def test_without_phases(tmp_path: Path) -> None:
    with sol.capture(str(tmp_path), model=torch.nn.Linear(16, 16), phases=False, **QUIET) as tracker:
        with tracker.phase("forward"):
            X.sum()
        tracker.step()
    recorded = only(tmp_path)
    assert recorded.phase_times == {} and {row.phase for row in recorded.ledgers[0]} == {""}


def test_without_a_folder_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Linear(16, 16)
    with sol.capture(model=model, every_n_steps=1, console=False) as tracker:
        model(X)
        tracker.step()
        assert tracker.analysis is not None and tracker.analysis.total.flops == LINEAR
    assert not list(tmp_path.iterdir())


def test_nothing_is_sampled_with_0(tmp_path: Path) -> None:
    model = torch.nn.Linear(16, 16)
    with sol.capture(str(tmp_path), model=model, every_n_steps=0, **QUIET) as tracker:
        for _ in range(3):
            assert not model._forward_hooks
            with tracker.phase("forward"):
                model(X)
            tracker.step()
    recorded = only(tmp_path)
    assert len(recorded.steps) == 3 and recorded.sampled == [] and recorded.header["mode"] == "off"
    assert len(recorded.phase_times) == 3


def test_the_fallback_mode_counts_layers(tmp_path: Path) -> None:
    # GIVEN mode hooks WHEN a layer is trained THEN its forward is counted, and its backward, one product here, is an estimate
    model = torch.nn.Linear(16, 16)
    with sol.capture(str(tmp_path), model=model, every_n_steps=1, mode="hooks", **QUIET) as tracker:
        model(X).sum().backward()
        assert torch._C._len_torch_dispatch_stack() == 0
        tracker.step()
    recorded = only(tmp_path)
    assert recorded.header["mode"] == "hooks"
    assert recorded.flop(0, backward=False) == LINEAR and recorded.flop(0, backward=True) == LINEAR


def test_an_unknown_option_is_an_error_at_once() -> None:
    with pytest.raises(TypeError, match="no_such"):
        sol.capture(no_such=1)


def test_reports_as_tables_on_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a tracker that is to report in tables WHEN its first iteration ends
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    with sol.capture(None, device="H100_SXM", console="rich") as tracker:
        torch.ones(4, 4) @ torch.ones(4, 4)
        tracker.step()
    out = capsys.readouterr().out
    # THEN tables are printed, and it is said that it was the first
    assert "Layer type" in out and "By Layer Type:" not in out
    assert "This is the first iteration" in out
