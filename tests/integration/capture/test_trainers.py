"""The callbacks with the real trainers: same numbers with and without, phases of a step, one iteration per optimizer step."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

from tests.support.sol_reading import Recorded, only

torch = pytest.importorskip("torch", reason="records training loops")

LINEAR = 2 * 4 * 16 * 16
"""FLOP of one layer, forward, on a batch of 4."""


def data() -> Any:
    return torch.linspace(-1, 1, 24 * 16).view(24, 16)


# --- Lightning ---


def lightning_run(folder: Path, callbacks: list[Any], **options: Any) -> list[Any]:
    """Six batches of 4 through two layers; parameters at the end."""
    lightning = pytest.importorskip("lightning.pytorch", reason="the package lightning is not installed")
    from torch.utils.data import DataLoader, TensorDataset

    class Model(lightning.LightningModule):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))

        def training_step(self, batch: Any, index: int) -> Any:
            return self.net(batch[0]).square().mean()

        def validation_step(self, batch: Any, index: int) -> None:
            self.net(batch[0])

        def configure_optimizers(self) -> Any:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.manual_seed(1)
    model = Model()
    loader = DataLoader(TensorDataset(data()), batch_size=4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            max_epochs=1, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, default_root_dir=str(folder), callbacks=callbacks, num_sanity_val_steps=1, **options,
        )  # fmt: skip
        trainer.fit(model, loader, loader)
    return [p.detach().clone() for p in model.parameters()]


def lightning_callback(**options: Any) -> Any:
    pytest.importorskip("lightning.pytorch", reason="the package lightning is not installed")
    from tb_sol_plugin.capture.integrations.lightning import SOLCallback

    return SOLCallback(every_n_steps=1, **options)


def check(recorded: Recorded, steps: int, phases: set[str]) -> None:
    assert recorded.closed and [s["iteration"] for s in recorded.steps] == list(range(steps))
    assert {name for times in recorded.phase_times.values() for name, *_ in times} == phases
    for n in recorded.sampled:
        assert sum(row.count for row in recorded.ledgers[n] if row.flop and row.phase == "(no phase)") == 0


def test_lightning_is_tracked_without_a_change_of_its_results(tmp_path: Path) -> None:
    # GIVEN a Lightning run of six steps and a validation WHEN it is tracked by its callback THEN parameters are equal bit for bit
    untracked = lightning_run(tmp_path / "a", [])
    tracked = lightning_run(tmp_path / "b", [lightning_callback()])
    assert all(torch.equal(a, b) for a, b in zip(untracked, tracked, strict=True))
    # AND each of its steps is one iteration with the three phases; the validation belongs to the last
    recorded = only(tmp_path / "b")
    check(recorded, 6, {"train/forward", "train/backward", "train/optimizer", "validation"})
    for n in range(5):
        assert recorded.flop(n, backward=False) == 2 * LINEAR and recorded.flop(n, backward=True) == 3 * LINEAR
        by_phase = {row.phase for row in recorded.ledgers[n] if row.flop}
        assert by_phase == {"train/forward", "train/backward"}
    assert recorded.flop(5) == 5 * LINEAR + 6 * 2 * LINEAR
    # AND layers have the names they have in the model
    assert {row.module[-1] for row in recorded.ledgers[1] if row.flop} == {"net.0", "net.2"}


def test_a_lightning_step_has_all_accumulated_batches(tmp_path: Path) -> None:
    # GIVEN two batches per optimizer step WHEN tracked THEN three iterations of two batches each
    lightning_run(tmp_path, [lightning_callback()], accumulate_grad_batches=2, limit_val_batches=0)
    recorded = only(tmp_path)
    check(recorded, 3, {"train/forward", "train/backward", "train/optimizer"})
    assert [recorded.flop(n) for n in recorded.sampled] == [10 * LINEAR] * 3


def test_a_lightning_run_that_fails_raises_its_own_error(tmp_path: Path) -> None:
    # GIVEN a run that raises in its third batch WHEN tracked THEN its own error comes out and the file is closed
    lightning = pytest.importorskip("lightning.pytorch", reason="the package lightning is not installed")

    class Fails(lightning.Callback):  # type: ignore[misc,name-defined]
        def on_before_backward(self, trainer: Any, module: Any, loss: Any) -> None:
            if trainer.global_step == 2:
                raise KeyError("from the loop")

    with pytest.raises(KeyError, match="from the loop"):
        lightning_run(tmp_path, [lightning_callback(), Fails()])
    recorded = only(tmp_path)
    assert recorded.closed and len(recorded.steps) == 2
    assert torch._C._len_torch_dispatch_stack() == 0


# --- Hugging Face ---


def hugging_face_run(folder: Path, callbacks: list[Any], **options: Any) -> list[Any]:
    """Six batches of 4 through two layers; parameters at the end."""
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    pytest.importorskip("accelerate", reason="transformers' Trainer needs the package accelerate")

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 16))

        def forward(self, x: Any) -> Any:
            return {"loss": self.net(x).square().mean()}

    torch.manual_seed(1)
    model = Model()
    given: dict[str, Any] = {
        "max_steps": 6, "per_device_train_batch_size": 4, "per_device_eval_batch_size": 4, "report_to": [], "save_strategy": "no",
        "logging_strategy": "no", "disable_tqdm": True, "use_cpu": True, "seed": 1, "max_grad_norm": 0.0, **options,
    }  # fmt: skip
    arguments = transformers.TrainingArguments(output_dir=str(folder), **given)
    items = [{"x": row} for row in data()]
    trainer = transformers.Trainer(model, arguments, train_dataset=items, eval_dataset=items[:8], callbacks=callbacks)
    trainer.train()
    return [p.detach().clone() for p in model.parameters()]


def hugging_face_callback(**options: Any) -> Any:
    pytest.importorskip("transformers", reason="the package transformers is not installed")
    from tb_sol_plugin.capture.integrations.hugging_face import SOLCallback

    return SOLCallback(every_n_steps=1, **options)


def test_hugging_face_is_tracked_without_a_change_of_its_results(tmp_path: Path) -> None:
    # GIVEN a Trainer of six steps WHEN it is tracked by its callback THEN parameters are equal bit for bit
    untracked = hugging_face_run(tmp_path / "a", [])
    tracked = hugging_face_run(tmp_path / "b", [hugging_face_callback()])
    assert all(torch.equal(a, b) for a, b in zip(untracked, tracked, strict=True))
    # AND each step is one iteration with its phases and its work
    recorded = only(tmp_path / "b")
    check(recorded, 6, {"train/forward-backward", "train/optimizer"})
    for n in recorded.sampled:
        assert recorded.flop(n, backward=False) == 2 * LINEAR and recorded.flop(n, backward=True) == 3 * LINEAR
    assert {row.module[-1] for row in recorded.ledgers[1] if row.flop} == {"net.0", "net.2"}


def test_a_hugging_face_step_has_all_accumulated_batches_and_the_evaluation_after_it(tmp_path: Path) -> None:
    # GIVEN two batches per step and an evaluation of two batches after every second step WHEN tracked
    options = {"gradient_accumulation_steps": 2, "max_steps": 4, "eval_strategy": "steps", "eval_steps": 2}
    hugging_face_run(tmp_path, [hugging_face_callback()], **options)
    # THEN four iterations of two batches, and the evaluation belongs to the step after which it ran
    recorded = only(tmp_path)
    check(recorded, 4, {"train/forward-backward", "train/optimizer", "evaluation"})
    evaluation = [sum(r.flop or 0 for r in recorded.ledgers[n] if r.phase == "evaluation") for n in range(4)]
    assert evaluation == [0, 2 * 2 * LINEAR, 0, 2 * 2 * LINEAR]
    assert [recorded.flop(n) - evaluation[n] for n in range(4)] == [10 * LINEAR] * 4
