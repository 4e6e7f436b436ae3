"""Evaluation inside the loop: work that trains nothing is kept apart, and is credited to no other iteration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="records training loops")
from tb_sol_plugin.capture.tracker import SOLTracker  # noqa: E402  (needs torch)

BATCH, LENGTH = 2, 8
EVERY = 10


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 16))


def ids(batch: int = BATCH) -> Any:
    return torch.zeros(batch, LENGTH, dtype=torch.int64)


@torch.no_grad()
def evaluated(net: Any) -> None:
    """As in nanoGPT: several batches in eval mode, back to train mode."""
    net.eval()
    for _ in range(4):
        net(ids(5)).sum().item()
    net.train()


def in_eval_mode_only(net: Any) -> None:
    net.eval()
    net(ids(5)).sum().item()
    net.train()


@torch.inference_mode()
def in_inference_mode(net: Any) -> None:
    net(ids(5))


def with_an_error(net: Any) -> None:
    with torch.no_grad(), pytest.raises(RuntimeError):
        net[1](torch.ones(1, 3))  # no call of the whole model
    with torch.no_grad(), pytest.raises((RuntimeError, IndexError)):
        net(ids() + 100)


def record(
    folder: Path, evaluate: Callable[[Any], None] | None, *, each: int = EVERY, steps: int = 42, train: bool = True, **options: Any
) -> Any:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with SOLTracker(logdir=str(folder), every_n_steps=EVERY, tensorboard=False, wandb=False, console=False, **options) as tracker:
        tracker.initialize(net)
        for k in range(steps):
            if evaluate is not None and k % each == 0:
                evaluate(net)
            if train:
                net(ids()).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            tracker.step()
    return only(folder)


def opened(folder: Path) -> Any:
    import tb_sol_plugin as sol

    (capture,) = sol.open(str(folder)).captures
    return capture


def iterations(folder: Path) -> Any:
    from tb_sol_plugin.devices.limits import device_for
    from tb_sol_plugin.metrics.time.iterations import iterations as of

    capture = opened(folder)
    return of(capture, device_for(capture, "H100_SXM")).frame


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of the same loop without evaluation."""
    folder = tmp_path_factory.mktemp("plain")
    record(folder, None)
    return folder


@pytest.mark.parametrize("evaluate", [evaluated, in_eval_mode_only, in_inference_mode, with_an_error])
def test_evaluation_is_no_work_of_other_iterations(tmp_path: Path, plain: Path, evaluate: Callable[[Any], None]) -> None:
    # GIVEN a loop that evaluates in every tenth iteration, which is also due to be sampled
    recorded = record(tmp_path, evaluate)
    # THEN those that evaluate say so, the next one is sampled in their place, and later samples lie elsewhere
    apart = [step["iteration"] for step in recorded.steps if step.get("evaluation_ns")]
    assert apart[:2] == [0, 10] and 11 in recorded.sampled and len(apart) <= 3
    # AND each iteration after the first is credited with exactly the work of the loop without evaluation
    with_it, without = iterations(tmp_path), iterations(plain)
    for name in ("flop", "matrix_ns", "sol_ns", "bytes"):
        assert with_it[name].iloc[11:].tolist() == without[name].iloc[11:].tolist()
    assert with_it["signature"].iloc[-1] == without["signature"].iloc[-1]
    assert with_it["tokens"].iloc[-1] == without["tokens"].iloc[-1] == BATCH * LENGTH
    # AND the page counts the others only, and says so
    capture = opened(tmp_path)
    overview = capture.analyze("overview")
    assert any("evaluated the model" in notice.text for notice in overview.notices)
    labels = capture.tables["labels"]
    assert (evaluate is with_an_error) or "evaluation" in labels.loc[labels["what"] == "phase", "name"].astype(str).tolist()


def test_a_phase_of_the_script_keeps_its_evaluation(tmp_path: Path) -> None:
    tracked: list[SOLTracker] = []

    def in_a_phase(net: Any) -> None:
        with tracked[0].phase("my evaluation"):
            evaluated(net)

    net = model()
    with SOLTracker(logdir=str(tmp_path), every_n_steps=4, tensorboard=False, wandb=False, console=False) as tracker:
        tracked.append(tracker)
        tracker.initialize(net)
        for k in range(6):
            if k % 4 == 0:
                in_a_phase(net)
            net(ids()).square().mean().backward()
            tracker.step()
    recorded = only(tmp_path)
    assert [step["iteration"] for step in recorded.steps if step.get("evaluation_ns")] == [0, 4]
    labels = opened(tmp_path).tables["labels"]
    assert labels.loc[labels["what"] == "phase", "name"].astype(str).tolist() == ["my evaluation"]


def test_a_loop_that_only_infers_evaluates_nothing(tmp_path: Path) -> None:
    # GIVEN inference alone THEN its work is that of its iterations, in no phase
    recorded = record(tmp_path, evaluated, each=1, train=False)
    assert recorded.sampled == [0, 1, 10, 20, 30, 40]
    assert not any(step.get("evaluation_ns") for step in recorded.steps)
    assert not len(opened(tmp_path).tables["labels"].query("what == 'phase'"))
    assert (iterations(tmp_path)["flop"] > 0).all()


def test_evaluation_in_each_iteration_belongs_to_it(tmp_path: Path, plain: Path) -> None:
    # GIVEN a loop that evaluates every time, as one that computes rewards WHEN read THEN that work is credited to all
    recorded = record(tmp_path, evaluated, each=1)
    assert all(step.get("evaluation_ns") for step in recorded.steps if step.get("sampled"))
    assert recorded.sampled == [0, 1, 10, 20, 30, 40]
    assert (iterations(tmp_path)["flop"].iloc[2:] > iterations(plain)["flop"].iloc[2:]).all()
