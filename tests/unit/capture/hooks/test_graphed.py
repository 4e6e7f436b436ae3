"""A tracked model can become CUDA graphs: hooks of the recorder are off while torch looks for them."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import Any

import pytest

from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="tracks training loops")
from tb_sol_plugin.capture.tracker import SOLTracker  # noqa: E402  (needs torch)

QUIET: dict[str, Any] = {"tensorboard": False, "wandb": False, "console": False}
X = torch.linspace(-1, 1, 8 * 16).view(8, 16)


@pytest.fixture
def graphing(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A torch that is built with CUDA, whose function refuses a module with hooks, as torch's own does before it graphs anything."""

    def make_graphed_callables(module: Any, sample_args: Any) -> Any:
        for one in (module,):
            assert not one._backward_hooks and not one._forward_hooks and not one._forward_pre_hooks, "Modules must not have hooks"
        return module

    gc.collect()
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", make_graphed_callables)
    monkeypatch.setattr(torch.cuda.graphs, "make_graphed_callables", make_graphed_callables)
    return make_graphed_callables


@pytest.mark.parametrize("at", [0, 5])
def test_a_tracked_model_is_graphed(at: int, graphing: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN a tracked model in a sampled iteration, whose modules have hooks, or in a later one, in which it has one itself
    layer = torch.nn.Linear(16, 16)
    with SOLTracker(every_n_steps=100, logdir=str(tmp_path), **QUIET) as t, caplog.at_level(logging.WARNING, logger="tb_sol_plugin"):
        t.initialize(layer)
        for step in range(10):
            if step == at:
                assert layer._forward_pre_hooks and t.sampled is (at == 0)
                # WHEN it is graphed, twice THEN torch does not object
                for module in (torch.cuda, torch.cuda.graphs):
                    assert module.make_graphed_callables(layer, (X,)) is layer
                assert not layer._forward_pre_hooks and not t.sampled
            layer(X)
            t.step()
        # AND the hook is back in later iterations
        assert layer._forward_pre_hooks
    # AND one warning says so, and the file; the iteration that was given up is made up for by the next one
    assert [r.message for r in caplog.records if "make_graphed_callables" in r.message] == [caplog.records[0].message]
    recorded = only(tmp_path)
    assert recorded.notes["graphed"] == 1 and recorded.sampled == ([1] if at == 0 else [0, 1])
    # AND torch has its own function again
    assert torch.cuda.make_graphed_callables is graphing and torch.cuda.graphs.make_graphed_callables is graphing


def test_the_function_is_back_when_the_last_tracker_ends(graphing: Any) -> None:
    trackers = [SOLTracker(**QUIET) for _ in range(2)]
    for t in trackers:
        t.initialize(torch.nn.Linear(2, 2))
        t.initialize(t.models)
    assert torch.cuda.make_graphed_callables is not graphing
    trackers[0].detach()
    assert torch.cuda.make_graphed_callables is not graphing
    # WHEN a tracker is detached THEN its model can be graphed by a function that was imported before
    assert graphing(trackers[0].models[0], ()) is not None
    trackers[1].close()
    assert torch.cuda.make_graphed_callables is graphing


def test_a_detached_tracker_starts_again(tmp_path: Path) -> None:
    # GIVEN a tracker that was detached, to graph its model WHEN it is initialized again THEN iterations go on by number, the first sampled
    layer = torch.nn.Linear(16, 16)
    with SOLTracker(every_n_steps=100, logdir=str(tmp_path), **QUIET) as t:
        t.initialize(layer)
        for step in range(8):
            if step == 4:
                t.detach()
                assert not layer._forward_pre_hooks
                t.initialize(layer)
            layer(X)
            t.step()
    assert [s["iteration"] for s in only(tmp_path).steps] == list(range(8)) and only(tmp_path).sampled == [0, 1, 4, 5]


def test_torch_without_cuda_is_left_alone() -> None:
    if torch.backends.cuda.is_built():
        pytest.skip("this torch is built with CUDA")
    before = torch.cuda.make_graphed_callables
    with SOLTracker(**QUIET) as t:
        t.initialize(torch.nn.Linear(2, 2))
        assert torch.cuda.make_graphed_callables is before
