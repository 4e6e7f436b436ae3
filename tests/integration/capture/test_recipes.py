"""The recipes of docs/recipes.md run as they stand there, each in a loop whose work is known."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shutil
from argparse import Namespace
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.format import PART_ROW
from tests.conftest import ROOT
from tests.support.packed_lines import records_in
from tests.support.sol_reading import Recorded, only

torch = pytest.importorskip("torch", reason="records training loops")
from tb_sol_plugin.capture import get_sol_tracker  # noqa: E402  (needs torch)
from tb_sol_plugin.capture.sol_integration import _state  # noqa: E402

TEXT = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
RECIPES = dict(re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", TEXT, flags=re.DOTALL | re.MULTILINE))
COMPILER = shutil.which(os.environ.get("CXX", "g++")) if hasattr(torch.compiler, "set_stance") else None
LINEAR = 2 * 4 * 16 * 16
"""FLOP of one layer, forward, on a batch of 4."""
MOMENT = 4 * 2 * (16 * 16 + 16)
"""Bytes of one moment of two layers."""


@pytest.fixture(autouse=True)
def no_tracker() -> Iterator[None]:
    """Each test begins without a tracker of the classic interface, and leaves none."""
    _state.tracker, _state.level = None, 2
    yield
    if _state.tracker is not None:
        _state.tracker.close()
    _state.tracker = None


def net() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))


def batches(count: int) -> list[Any]:
    return list(torch.linspace(-1, 1, count * 4 * 16).view(count, 4, 16))


def run(name: str, namespace: dict[str, Any]) -> dict[str, Any]:
    """Run the recipe with what its framework, model and data would have given it."""
    exec(compile(RECIPES[name], f"docs/recipes.md: {name}", "exec"), namespace)
    return namespace


def phases_of(recorded: Recorded) -> list[list[str]]:
    return [[name for name, *_ in recorded.phase_times[int(step["iteration"])]] for step in recorded.steps]  # type: ignore[arg-type]


def moments(folder: Path) -> int:
    """Bytes of the first moments in the last record of memory."""
    (path,) = folder.rglob("*.sol.jsonl")
    last = [r for r in records_in(path.read_text(encoding="utf-8")) if r["kind"] == "memory"][-1]
    rows = [dict(zip(PART_ROW, part, strict=True)) for part in last["parts"]]
    return sum(int(row["bytes"]) for row in rows if row["category"] == "exp_avg")


def test_every_recipe_is_run() -> None:
    assert sorted(RECIPES) == ["Accelerate", "In the shape of Megatron-LM", "In the shape of TorchTitan", "nanoGPT"]


def test_accelerate(tmp_path: Path) -> None:
    # GIVEN five batches, two to a step WHEN the recipe runs two epochs
    pytest.importorskip("accelerate", reason="the package accelerate is not installed")
    model = net()
    optimizer = torch.optim.AdamW(model.parameters())
    run(
        "Accelerate",
        {
            "model": model, "optimizer": optimizer, "loader": torch.utils.data.DataLoader(torch.cat(batches(5)), batch_size=4),
            "scheduler": torch.optim.lr_scheduler.ConstantLR(optimizer), "epochs": 2, "logdir": str(tmp_path),
        },
    )  # fmt: skip
    # THEN an epoch has three iterations, the last of one batch, and each batch is waited for
    recorded = only(tmp_path)
    batch = ["data loading", "forward", "backward", "optimizer"]
    assert recorded.closed and recorded.sampled[:2] == [0, 1] and len(recorded.steps) == 6
    assert [[p for p in phases if p != "data loading"] for phases in phases_of(recorded)] == [batch[1:] * n for n in (2, 2, 1, 2, 2, 1)]
    assert all("data loading" in phases for phases in phases_of(recorded))
    assert recorded.flop(1) == 2 * 5 * LINEAR
    assert moments(tmp_path) == MOMENT


@pytest.mark.parametrize(
    "compile", [False, pytest.param(True, marks=pytest.mark.skipif(COMPILER is None, reason="inductor needs a C++ compiler"))]
)
def test_nanogpt(tmp_path: Path, compile: bool) -> None:
    # GIVEN a GPT in small with an evaluation each second iteration WHEN the recipe runs, compiled and not
    class GPT(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.transformer = net()

        def forward(self, x: Any, y: Any) -> Any:
            logits = self.transformer(x)
            return logits, (logits - y).square().mean()

    model = GPT()
    data = cycle(batches(3))

    def get_batch(split: str) -> tuple[Any, Any]:
        return next(data), torch.zeros(4, 16)

    @torch.no_grad()
    def estimate_loss() -> float:
        model.eval()
        found = sum(model(*get_batch("val"))[1].item() for _ in range(2))
        model.train()
        return found

    run(
        "nanoGPT",
        {
            "torch": torch, "os": os, "model": model, "optimizer": torch.optim.AdamW(model.parameters()), "out_dir": str(tmp_path),
            "iter_num": 100, "max_iters": 103, "eval_interval": 2, "gradient_accumulation_steps": 2, "grad_clip": 1.0,
            "ctx": contextlib.nullcontext(), "scaler": torch.amp.GradScaler("cpu", enabled=False), "compile": compile,
            "get_batch": get_batch, "get_lr": lambda number: 1e-3, "estimate_loss": estimate_loss,
        },
    )  # fmt: skip
    # THEN iterations go on from the first number, those that evaluate have the phase, and the work of training is two batches
    recorded = only(tmp_path)
    step = ["forward", "data loading", "backward"] * 2 + ["optimizer"]
    assert [s["iteration"] for s in recorded.steps] == [100, 101, 102, 103]
    assert phases_of(recorded) == [["evaluation", "checkpoint", *step], step] * 2
    assert recorded.flop(101) == 2 * 5 * LINEAR
    assert sum(row.flop or 0 for row in recorded.ledgers[100] if row.phase == "evaluation") == 2 * 2 * LINEAR
    assert (tmp_path / "ckpt.pt").is_file()


def test_torchtitan(tmp_path: Path) -> None:
    # GIVEN a model in two parts, each with its optimizer WHEN the recipe runs three steps of two batches
    class Optimizers:
        def __init__(self, parts: list[Any]) -> None:
            self.optimizers = [torch.optim.AdamW(part.parameters()) for part in parts]

        def __iter__(self) -> Iterator[Any]:
            return iter(self.optimizers)

        def step(self) -> None:
            for optimizer in self.optimizers:
                optimizer.step()

        def zero_grad(self) -> None:
            for optimizer in self.optimizers:
                optimizer.zero_grad()

    parts = list(net())[::2]
    saved: list[int] = []
    nothing = Namespace(step=lambda: None, save=lambda step, last_step: saved.append(step))
    trainer = run("In the shape of TorchTitan", {"torch": torch})["Trainer"]
    loader = [(batch, torch.zeros(4, 16)) for batch in batches(3)]
    trainer(parts, Optimizers(parts), nothing, loader, nothing, steps=3, accumulation=2).train(str(tmp_path))
    # THEN each has its batches, the work of both parts, and the moments of both optimizers
    recorded = only(tmp_path)
    batch = ["data loading", "forward", "backward"]
    assert [s["iteration"] for s in recorded.steps] == [1, 2, 3] == saved
    assert phases_of(recorded) == [[*batch, *batch, "optimizer/clip", "optimizer", "checkpoint"]] * 3
    assert recorded.flop(2) == 2 * 5 * LINEAR
    assert moments(tmp_path) == MOMENT


def test_megatron(tmp_path: Path) -> None:
    # GIVEN a schedule of two microbatches without pipeline, as Megatron's WHEN the recipe trains three iterations and evaluates
    args = Namespace(
        num_microbatches=2, iteration=0, train_iters=3, eval_interval=2, save_interval=3, tensorboard_dir=str(tmp_path), timing_log_level=2,
    )  # fmt: skip
    evaluated: list[int] = []
    saved: list[int] = []

    def forward_backward(*, forward_step_func: Any, data_iterator: Any, model: Any, num_microbatches: int) -> list[Any]:
        losses = []
        for _ in range(num_microbatches):
            loss = forward_step_func(data_iterator, model[0]) / num_microbatches
            loss.backward()
            losses.append(loss.detach())
        return losses

    def evaluate(forward_step_func: Any, data_iterator: Any, model: Any, iteration: int) -> None:
        with torch.no_grad():
            assert math.isfinite(forward_step_func(data_iterator, model[0]).item())
        evaluated.append(iteration)

    model = [net()]
    found = run(
        "In the shape of Megatron-LM",
        {"args": args, "evaluate_and_print_results": evaluate, "save_checkpoint": lambda iteration, *_: saved.append(iteration)},
    )
    data = cycle((batch, torch.zeros(4, 16)) for batch in batches(3))
    optimizer = torch.optim.AdamW(model[0].parameters())
    found["train"](found["forward_step"], model, optimizer, Namespace(step=lambda: None), data, forward_backward)
    tracker = get_sol_tracker()
    assert tracker is not None
    tracker.close()
    # THEN each iteration has its two microbatches and nothing of the evaluation
    recorded = only(tmp_path)
    inner = ["train/data loading", "train/forward"] * 2
    assert ([s["iteration"] for s in recorded.steps], evaluated, saved) == ([1, 2, 3], [2], [3])
    assert phases_of(recorded) == [["train/forward-backward", *inner, "train/optimizer"]] * 3
    assert recorded.flop(2) == 2 * 5 * LINEAR
    assert moments(tmp_path) == MOMENT
