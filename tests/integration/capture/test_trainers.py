"""The callbacks with the real trainers: same numbers with and without, phases of a step, one iteration per optimizer step."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.cost.transformer.memory import Model
from tb_sol_plugin.format import PART_ROW
from tests.support.packed_lines import records_in
from tests.support.sol_reading import Recorded, only

torch = pytest.importorskip("torch", reason="records training loops")

LINEAR = 2 * 4 * 16 * 16
"""FLOP of one layer, forward, on a batch of 4."""


def data() -> Any:
    return torch.linspace(-1, 1, 24 * 16).view(24, 16)


# --- Lightning ---


def lightning_run(folder: Path, callbacks: list[Any], epochs: int = 1, **options: Any) -> list[Any]:
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
        given = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False, **options}
        trainer = lightning.Trainer(
            max_epochs=epochs, accelerator="cpu", devices=1, default_root_dir=str(folder), callbacks=callbacks, num_sanity_val_steps=1,
            **given,
        )  # fmt: skip
        trainer.fit(model, loader, loader)
    return [p.detach().clone() for p in model.parameters()]


def lightning_callback(**options: Any) -> Any:
    pytest.importorskip("lightning.pytorch", reason="the package lightning is not installed")
    from tb_sol_plugin.capture.integrations.lightning import SOLCallback

    return SOLCallback(**{"every_n_steps": 1, "console": False, "tensorboard": False, **options})


def phases_of(recorded: Recorded) -> list[list[str]]:
    """Phases of each iteration, in order, without those in a row."""
    every = [[name for name, *_ in recorded.phase_times.get(n, [])] for n in range(len(recorded.steps))]
    return [[name for at, name in enumerate(names) if not at or names[at - 1] != name] for names in every]


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
    check(recorded, 6, {"data loading", "train/forward", "train/backward", "train/optimizer", "validation"})
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
    check(recorded, 3, {"data loading", "train/forward", "train/backward", "train/optimizer"})
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


def test_validation_and_checkpoints_of_lightning_belong_to_the_step_before_and_loading_to_the_one_after(tmp_path: Path) -> None:
    # GIVEN two epochs of three steps with a checkpoint each two steps and a validation each epoch WHEN tracked
    pytest.importorskip("lightning.pytorch", reason="the package lightning is not installed")
    from lightning.pytorch.callbacks import ModelCheckpoint

    saving = ModelCheckpoint(dirpath=str(tmp_path / "saved"), every_n_train_steps=2, save_top_k=-1)
    lightning_run(
        tmp_path, [saving, lightning_callback(memory=True)], epochs=2, accumulate_grad_batches=2, enable_checkpointing=True,
        limit_val_batches=1,
    )  # fmt: skip
    # THEN a step is two batches, each waited for; a checkpoint and a validation belong to the step after which they were made
    recorded = only(tmp_path)
    batch = ["data loading", "train/forward", "train/backward"]
    step = [*batch, *batch, "train/optimizer"]
    ends = [[], ["checkpoint"], ["validation"], ["checkpoint"], [], ["checkpoint", "validation"]]
    assert phases_of(recorded) == [step + end for end in ends]
    # AND the callback found the optimizer: two layers with two moments each
    assert memory_of(tmp_path, "exp_avg") == 4 * 2 * (16 * 16 + 16)


def test_the_profiler_of_a_lightning_run_is_as_before(tmp_path: Path) -> None:
    # GIVEN a run with a profiler of its own WHEN it was tracked THEN the profiler saw its actions, and nothing of ours is on it
    pytest.importorskip("lightning.pytorch", reason="the package lightning is not installed")
    from lightning.pytorch.profilers import SimpleProfiler

    profiler = SimpleProfiler(dirpath=str(tmp_path), filename="p")
    lightning_run(tmp_path, [lightning_callback()], profiler=profiler, limit_val_batches=0)
    assert len(profiler.recorded_durations["[_TrainingEpochLoop].train_dataloader_next"]) == 6
    assert not {"start", "stop"} & set(vars(profiler))
    assert len(only(tmp_path).steps) == 6


# --- Hugging Face ---


def hugging_face_run(folder: Path, callbacks: list[Any], sets: int = 1, **options: Any) -> list[Any]:
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
    evaluated: Any = items[:8] if sets == 1 else {str(n): items[:8] for n in range(sets)}
    trainer = transformers.Trainer(model, arguments, train_dataset=items, eval_dataset=evaluated, callbacks=callbacks)
    trainer.train()
    return [p.detach().clone() for p in model.parameters()]


def hugging_face_callback(**options: Any) -> Any:
    pytest.importorskip("transformers", reason="the package transformers is not installed")
    from tb_sol_plugin.capture.integrations.hugging_face import SOLCallback

    return SOLCallback(**{"every_n_steps": 1, "console": False, "tensorboard": False, **options})


def test_hugging_face_is_tracked_without_a_change_of_its_results(tmp_path: Path) -> None:
    # GIVEN a Trainer of six steps WHEN it is tracked by its callback THEN parameters are equal bit for bit
    untracked = hugging_face_run(tmp_path / "a", [])
    tracked = hugging_face_run(tmp_path / "b", [hugging_face_callback()])
    assert all(torch.equal(a, b) for a, b in zip(untracked, tracked, strict=True))
    # AND each step is one iteration with its phases and its work
    recorded = only(tmp_path / "b")
    check(recorded, 6, {"data loading", "train/forward-backward", "train/optimizer"})
    for n in recorded.sampled:
        assert recorded.flop(n, backward=False) == 2 * LINEAR and recorded.flop(n, backward=True) == 3 * LINEAR
    assert {row.module[-1] for row in recorded.ledgers[1] if row.flop} == {"net.0", "net.2"}


def test_a_hugging_face_step_has_all_accumulated_batches_and_the_evaluation_after_it(tmp_path: Path) -> None:
    # GIVEN two batches per step and an evaluation of two batches after every second step WHEN tracked
    options = {"gradient_accumulation_steps": 2, "max_steps": 4, "eval_strategy": "steps", "eval_steps": 2}
    hugging_face_run(tmp_path, [hugging_face_callback()], **options)
    # THEN four iterations of two batches, and the evaluation belongs to the step after which it ran
    recorded = only(tmp_path)
    check(recorded, 4, {"data loading", "train/forward-backward", "train/optimizer", "evaluation"})
    evaluation = [sum(r.flop or 0 for r in recorded.ledgers[n] if r.phase == "evaluation") for n in range(4)]
    assert evaluation == [0, 2 * 2 * LINEAR, 0, 2 * 2 * LINEAR]
    assert [recorded.flop(n) - evaluation[n] for n in range(4)] == [10 * LINEAR] * 4


def test_logging_evaluation_and_checkpoints_of_a_step_belong_to_it_and_loading_to_the_one_after(tmp_path: Path) -> None:
    # GIVEN six steps with a loss each second, an evaluation each third and a checkpoint each fourth WHEN tracked
    options = {
        "logging_strategy": "steps", "logging_steps": 2, "eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 4,
    }  # fmt: skip
    hugging_face_run(tmp_path, [hugging_face_callback(memory=True)], **options)
    # THEN each follows the step after which it ran, and each step begins with its data loading; the last one saves
    step = ["data loading", "train/forward-backward", "train/optimizer"]
    recorded = only(tmp_path)
    ends = [[], ["logging"], ["evaluation"], ["logging", "checkpoint"], [], ["logging", "evaluation", "checkpoint"]]
    assert phases_of(recorded) == [step + end for end in ends]
    # AND the callback found the optimizer: two layers with two moments each
    assert memory_of(tmp_path, "exp_avg") == 4 * 2 * (16 * 16 + 16)


def test_what_ends_an_epoch_belongs_to_its_last_step(tmp_path: Path) -> None:
    # GIVEN two epochs of three steps, each with an evaluation and a checkpoint WHEN tracked, by a trainer that also logs at each step
    options = {
        "max_steps": -1, "num_train_epochs": 2, "per_device_train_batch_size": 8, "eval_strategy": "epoch", "save_strategy": "epoch",
        "logging_strategy": "steps", "logging_steps": 1,
    }  # fmt: skip
    hugging_face_run(tmp_path, [hugging_face_callback()], **options)
    step = ["data loading", "train/forward-backward", "train/optimizer", "logging"]
    last = [*step, "evaluation", "checkpoint"]
    assert phases_of(only(tmp_path)) == [step, step, last, step, step, last]


def test_several_evaluation_sets_belong_to_the_step_after_which_they_run(tmp_path: Path) -> None:
    # GIVEN two evaluation sets, of which the second is not announced WHEN tracked
    hugging_face_run(tmp_path, [hugging_face_callback()], sets=2, eval_strategy="steps", eval_steps=2, max_steps=4)
    # THEN both are in the step after which they run, which ends where the next begins
    recorded = only(tmp_path)
    step = ["data loading", "train/forward-backward", "train/optimizer"]
    assert phases_of(recorded) == [step, [*step, "evaluation"], step[1:], [*step, "evaluation"]]
    evaluation = [sum(r.flop or 0 for r in recorded.ledgers[n] if r.phase == "evaluation") for n in range(4)]
    assert evaluation == [0, 2 * 2 * 2 * LINEAR, 0, 2 * 2 * 2 * LINEAR]


def test_a_checkpoint_that_depends_on_an_evaluation_is_not_expected(tmp_path: Path) -> None:
    # GIVEN checkpoints of the best model, which only the first of three evaluations gives WHEN tracked
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")

    class Score(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
            metrics["eval_score"] = 1.0

    options = {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "best", "metric_for_best_model": "score"}
    hugging_face_run(tmp_path, [Score(), hugging_face_callback()], **options)
    assert [path.name for path in tmp_path.glob("checkpoint-*")] == ["checkpoint-2"]
    # THEN a step without it ends where the next begins
    step = ["data loading", "train/forward-backward", "train/optimizer"]
    last = [*step, "evaluation"]
    assert phases_of(only(tmp_path)) == [step, last, step, last, step[1:], last]


def memory_of(folder: Path, category: str) -> int:
    """Bytes of a category in the last record of memory."""
    (path,) = sorted(folder.rglob("*.sol.jsonl"))
    (record, *_) = [r for r in reversed(list(records_in(path.read_text(encoding="utf-8")))) if r["kind"] == "memory"]
    rows = [dict(zip(PART_ROW, part, strict=True)) for part in record["parts"]]
    return sum(int(row["bytes"]) for row in rows if row["category"] == category)


@pytest.mark.parametrize(("name", "parameters"), [("GPT2", 124_439_808), ("Qwen3", 8_190_735_360)])
def test_the_plan_of_a_model_has_its_parameters(name: str, parameters: int) -> None:
    # GIVEN GPT-2 small and Qwen3-8B by their published configurations, without memory for the numbers
    transformers = pytest.importorskip("transformers", reason="the package transformers is not installed")
    from tb_sol_plugin.capture.memory.plan import PlanFacts

    qwen = {"num_hidden_layers": 36, "hidden_size": 4096, "intermediate_size": 12288, "vocab_size": 151936, "num_key_value_heads": 8}
    sizes = qwen if name == "Qwen3" else {}
    kind = {"GPT2": "GPT2LMHeadModel", "Qwen3": "Qwen3ForCausalLM"}[name]
    with torch.device("meta"):
        model = getattr(transformers, kind)(getattr(transformers, f"{name}Config")(**sizes))
    # WHEN the sizes are read that a capture records THEN the plan of them has as many parameters as the model
    found = PlanFacts().found([model], groups={}, world=1)
    own = {field: value for field, (value, _) in found.items() if field in Model.__dataclass_fields__}
    assert Model(**own).parameters == sum(p.numel() for p in model.parameters()) == parameters
