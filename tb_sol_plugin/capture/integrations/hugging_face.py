"""Tracks a Hugging Face Trainer:

    from tb_sol_plugin.capture.integrations.hugging_face import SOLCallback
    Trainer(model, args, callbacks=[SOLCallback(every_n_steps=100)], ...)

A step is an optimizer step, with all batches that were accumulated for it. Its phases are `train/forward-backward` (the trainer has no
event between the two), `train/optimizer` and `evaluation`, which belongs to the step after which it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from transformers import TrainerCallback

from tb_sol_plugin.capture.integrations import Tracking

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import TrainerControl, TrainerState, TrainingArguments


class SOLCallback(TrainerCallback):  # type: ignore[misc]
    """Tracks the steps of a trainer. logdir: where captures are written, default the trainer's `output_dir`; `options` as of `capture`."""

    def __init__(self, logdir: str = "", **options: object) -> None:
        self._logdir = logdir
        self._tracking = Tracking(options)
        self._done = 0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Module | None = None, **kwargs: object
    ) -> None:
        self._done = state.global_step
        self._tracking.start(self._logdir or args.output_dir, model, state.global_step)

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        if state.global_step != self._done:
            self._done = state.global_step
            self._tracking.step()
        self._tracking.enter("train/forward-backward")

    def on_pre_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._tracking.leave()
        self._tracking.enter("train/optimizer")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._tracking.leave()
        self._evaluation(control)

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._evaluation(control)

    def _evaluation(self, control: TrainerControl) -> None:
        if control.should_evaluate:
            self._tracking.enter("evaluation")

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._tracking.leave()

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._tracking.stop(complete=state.global_step != self._done)
