"""The current tracker of the process: who it is, phases by name from anywhere, and waiting for data."""

from __future__ import annotations

import copy
import logging
import os
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tb_sol_plugin as sol
from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="tracks training loops")
from tb_sol_plugin.capture import (  # noqa: E402  (needs torch)
    clear_sol_captures,
    current,
    get_sol_tracker,
    initialize_sol,
    log_training_sol,
    record_base_memory,
    sol_nvtx_range,
)
from tb_sol_plugin.capture.sol_integration import _state  # noqa: E402

X = torch.ones(8, 16)
QUIET: dict[str, Any] = {"tensorboard": False, "wandb": False, "console": False}


@pytest.fixture(autouse=True)
def no_tracker() -> Iterator[None]:
    """Each test begins and ends in a process without a tracker that has reported nothing."""
    before = current._process.trackers
    current._process.trackers, current._process.warned = [], False
    _state.tracker, _state.level = None, 2
    yield
    if _state.tracker is not None:
        _state.tracker.close()
    current._process.trackers = before
    _state.tracker, _state.level = None, 2


def layer() -> Any:
    return torch.nn.Linear(16, 16)


def test_ranges_name_phases_of_a_tracker_that_capture_started(tmp_path: Path) -> None:
    # GIVEN a tracker of `sol.capture` WHEN code that does not have it names ranges, and ends the iterations
    model = layer()
    with sol.capture(str(tmp_path), model=model, **QUIET) as tracker:
        assert get_sol_tracker() is tracker
        for iteration in range(3):
            clear_sol_captures()
            with sol_nvtx_range("forward", 1), sol.phase("forward/deep"):
                loss = model(X).sum()
            with sol.capture.phase("backward"):  # type: ignore[attr-defined]
                loss.backward()
            log_training_sol(iteration)
    # THEN they are its phases, with their work
    recorded = only(tmp_path)
    assert [s["iteration"] for s in recorded.steps] == [0, 1, 2]
    assert [name for name, *_ in recorded.phase_times[2]] == ["forward", "forward/deep", "backward"]
    assert {row.phase for row in recorded.ledgers[1] if row.flop} == {"forward/deep", "backward"}
    # AND after its end there is none
    assert get_sol_tracker() is None


def test_the_tracker_before_is_current_again_when_one_ends() -> None:
    # GIVEN three trackers, started one in the other WHEN the second ends before the third
    first = sol.capture(None, **QUIET)
    second = initialize_sol(None, logdir=None, **QUIET)
    third = sol.capture(None, **QUIET)
    assert second is not None and get_sol_tracker() is third
    second.close()
    # THEN the third stays, and then the first is current again
    assert get_sol_tracker() is third
    third.close()
    assert get_sol_tracker() is first
    # AND one that is detached is not, until it starts again
    first.detach()
    assert get_sol_tracker() is None
    first.initialize(None)
    assert get_sol_tracker() is first
    # AND none is kept alive
    del first, third
    assert get_sol_tracker() is None


def test_records_of_memory_go_to_the_current_tracker(tmp_path: Path) -> None:
    with sol.capture(str(tmp_path / "outer"), **QUIET) as outer, sol.capture(str(tmp_path / "inner"), **QUIET) as inner:
        record_base_memory("first tag")
        inner.step()
        inner.close()
        record_base_memory("second tag")
        outer.step()
    text = {folder: next((tmp_path / folder).glob("*.sol.jsonl")).read_text(encoding="utf-8") for folder in ("inner", "outer")}
    assert {folder: [tag for tag in ("first", "second") if f'"{tag} tag"' in text[folder]] for folder in text} == {
        "inner": ["first"],
        "outer": ["second"],
    }


def test_a_range_without_a_tracker_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN no tracker WHEN ranges are named by both interfaces THEN one warning names the first
    for _ in range(2):
        with sol_nvtx_range("forward"), sol.phase("loss"):
            pass
    assert [r.levelname for r in caplog.records] == ["WARNING"] and "'forward' is not recorded" in caplog.text


def test_a_range_that_is_switched_off_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN level 0, or a range above the level WHEN it is used without a tracker THEN nothing is said
    assert initialize_sol(layer(), Namespace(timing_log_level=0), **QUIET) is None
    with sol_nvtx_range("forward", 1), sol_nvtx_range("forward", 3):
        pass
    # AND a tracker that somebody else started is left alone by the classic interface
    with sol.capture(None, **QUIET) as tracker:
        assert get_sol_tracker() is None
        with sol_nvtx_range("forward", 1):
            assert not tracker.phases.open
        with sol.phase("forward"):
            assert tracker.phases.open
    assert not caplog.records


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_says_nothing() -> None:
    # GIVEN a tracker WHEN a process that was forked, as a worker of a data loader, names a phase THEN it says nothing
    with sol.capture(None, **QUIET):
        child = os.fork()
        if child == 0:
            said: list[logging.LogRecord] = []
            logging.getLogger("tb_sol_plugin").addFilter(lambda record: said.append(record) or True)  # type: ignore[func-returns-value]
            with sol.phase("collate"):
                pass
            os._exit(len(said))
        assert os.waitpid(child, 0)[1] == 0


def test_initialize_sol_without_a_folder_warns(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    # GIVEN no folder WHEN tracking starts, twice THEN that no file is written is said once
    initialize_sol(layer(), None, **QUIET)
    initialize_sol(layer(), None, **QUIET)
    assert [r.getMessage()[:28] for r in caplog.records] == ["initialize_sol has no folder"]
    # AND not where that is asked for, nor where the script's arguments have one
    caplog.clear()
    for options in ({"logdir": None}, {"args": Namespace(tensorboard_dir=str(tmp_path))}):
        assert _state.tracker is not None
        _state.tracker.close()
        initialize_sol(layer(), **options, **QUIET)
    assert not caplog.records


def test_a_phase_does_not_split_a_compiled_graph() -> None:
    # GIVEN a model that names phases in its forward WHEN it is compiled as one graph, under a tracker THEN it is one graph
    class Deep(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = layer()

        def forward(self, x: Any) -> Any:
            with sol.phase("deep"), sol_nvtx_range("deeper", 2):
                return self.linear(x).relu()

    model = Deep()
    graphs: list[int] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(len(graph.graph.nodes))
        return graph.forward

    with sol.capture(None, model=model, every_n_steps=0, **QUIET) as tracker:
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        for _ in range(3):
            compiled(X)
            assert not tracker.phases.times
            tracker.step()
        model(X)
        assert len(tracker.phases.times) == 2
    assert len(graphs) == 1


# --- Waiting for data ---


class Source:
    """Gives out three batches."""

    batch_size = 4

    def __iter__(self) -> Iterator[int]:
        return iter(range(3))

    def __len__(self) -> int:
        return 3


def test_waiting_for_data_is_a_phase_of_each_iteration(tmp_path: Path) -> None:
    # GIVEN a data loader in the wrapper WHEN a loop of two epochs takes its batches
    seen = []
    with sol.capture(str(tmp_path), **QUIET) as tracker:
        batches = sol.loader(Source())
        for _ in range(2):
            for batch in batches:
                seen.append(batch)
                with sol.phase("train"):
                    pass
                tracker.step()
    # THEN all batches came, and each iteration has the phase, in which the first of an epoch also starts the pass
    recorded = only(tmp_path)
    assert seen == [0, 1, 2, 0, 1, 2]
    waits = [[name for name, *_ in recorded.phase_times[n]].count("data loading") for n in range(6)]
    assert waits == [2, 1, 1, 3, 1, 1]  # the fourth iteration began with the end of the first epoch


def test_the_wrapper_is_as_its_data_loader() -> None:
    # GIVEN the wrapper WHEN its length and attributes are asked for THEN they are those of the loader
    source = Source()
    wrapped = sol.loader(source)
    assert len(wrapped) == 3 and wrapped.batch_size == 4 and list(wrapped) == [0, 1, 2] and list(sol.loader(iter("ab"))) == ["a", "b"]
    with pytest.raises(AttributeError, match="no_such"):
        _ = wrapped.no_such
    assert list(copy.deepcopy(wrapped)) == [0, 1, 2]
    real = sol.loader(torch.utils.data.DataLoader(torch.arange(4), batch_size=2))
    assert [b.tolist() for b in real] == [[0, 1], [2, 3]] and real.dataset.tolist() == [0, 1, 2, 3]


def test_the_name_stands_for_the_wrapper_also_where_tensorboard_runs() -> None:
    # GIVEN TensorBoard, which imports the module of that name WHEN a data loader is wrapped THEN it is
    pytest.importorskip("tensorboard", reason="the module needs TensorBoard")
    import tb_sol_plugin.loader  # noqa: F401

    assert list(sol.loader(Source())) == [0, 1, 2]


# --- Names ---


def test_names_are_completed() -> None:
    # GIVEN the package in a notebook WHEN a name is completed THEN the public names are there
    assert {"analyses", "analyze", "capture", "loader", "open", "open_capture", "phase", "save_html", "__version__"} <= set(dir(sol))
    assert not {"TYPE_CHECKING", "annotations"} & set(dir(sol))
    assert {"SOLTracker", "capture", "loader", "phase", "watch_gradients"} <= set(dir(sol.capture))
