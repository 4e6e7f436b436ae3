"""Tracks a Hugging Face Trainer:

    from tb_sol_plugin.capture.integrations.hugging_face import SOLCallback
    Trainer(model, args, callbacks=[SOLCallback(every_n_steps=100)], ...)

A step is an optimizer step, with all batches that were accumulated for it. Its phases are `data loading`, `train/forward-backward` (the
trainer has no event between the two), `train/optimizer`, and where they are due `logging` (which waits for the loss), `evaluation` and
`checkpoint`: these belong to the step after which they run.

The trainer has no event at which it asks for the next batch either: a step ends with the last event that is due after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from transformers import TrainerCallback

from tb_sol_plugin.capture.integrations import CHECKPOINT, DATA_LOADING, Tracking

if TYPE_CHECKING:
    from torch.nn import Module
    from transformers import TrainerControl, TrainerState, TrainingArguments

LOGGING: Final = "logging"
EVALUATION: Final = "evaluation"
PHASES: Final = (LOGGING, EVALUATION, CHECKPOINT)
BETTER: Final = "checkpoint, if the metric is better"
END_OF_EPOCH: Final = "end of epoch"
"""What may come or is to come, and has no phase."""


class SOLCallback(TrainerCallback):  # type: ignore[misc]
    """Tracks the steps of a trainer. logdir: where captures are written, default the trainer's `output_dir`; `options` as of `capture`.

    With several evaluation sets, or the save strategy `best`, what follows the first evaluation is not announced: there the step ends
    where the next begins, and data loading has no phase of its own.
    """

    def __init__(self, logdir: str = "", **options: object) -> None:
        self._logdir = logdir
        self._tracking = Tracking(options)
        self._stepped = False
        """Whether an optimizer step was made whose iteration has not ended."""
        self._coming: list[str] = []
        """What is due before it ends, in order."""
        self._logged = -1
        """The step whose loss was logged last: it is not logged again at the end of its epoch."""

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: Module | None = None,
        optimizer: object = None,
        **kwargs: object,
    ) -> None:
        self._stepped, self._coming, self._logged = False, [], state.global_step
        self._tracking.start(self._logdir or args.output_dir, model, state.global_step, optimizer)

    def on_epoch_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._coming = []
        self._proceed()

    def on_step_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._end_step()
        self._tracking.enter("train/forward-backward")

    def on_pre_optimizer_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._tracking.enter("train/optimizer")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._stepped = True
        self._coming = self._due(state, control)
        if control.should_training_stop or control.should_epoch_stop or (state.epoch is not None and state.epoch == int(state.epoch)):
            self._coming.append(END_OF_EPOCH)
        self._proceed()

    def on_epoch_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._coming = self._due(state, control)
        self._proceed()

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        if self._coming[:1] == [LOGGING]:  # an evaluation is logged too
            self._logged = state.global_step
            self._came(LOGGING)

    def on_prediction_step(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        if not self._tracking.within(EVALUATION):  # which was not announced
            self._tracking.enter(EVALUATION)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: dict[str, float] | None = None,
        **kwargs: object,
    ) -> None:
        if metrics is not None and "eval_runtime" not in metrics:
            return  # the metrics of one of several sets have its name in theirs
        if getattr(args, "save_strategy", "") == "best" and EVALUATION in self._coming:
            self._coming.insert(self._coming.index(EVALUATION) + 1, BETTER)
        self._came(EVALUATION)

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._came(BETTER if BETTER in self._coming else CHECKPOINT)

    def on_train_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object) -> None:
        self._tracking.stop(complete=self._stepped)
        self._stepped, self._coming = False, []

    def _due(self, state: TrainerState, control: TrainerControl) -> list[str]:
        """Return what the trainer is about to do, in its order."""
        due = (control.should_log and state.global_step > self._logged, control.should_evaluate, control.should_save)
        return [phase for phase, wanted in zip(PHASES, due, strict=True) if wanted]

    def _came(self, event: str) -> None:
        """Go on after an event, and after what was to come before it."""
        if event in self._coming:
            del self._coming[: self._coming.index(event) + 1]
        self._proceed()

    def _proceed(self) -> None:
        """Begin the phase of what comes next. Where that is the next batch, a step that was made ends: waiting belongs to the next one."""
        self._tracking.leave()
        if not self._coming:
            self._end_step()
            self._tracking.enter(DATA_LOADING)
        elif self._coming[0] in PHASES:
            self._tracking.enter(self._coming[0])

    def _end_step(self) -> None:
        self._coming = []
        if self._stepped:
            self._stepped = False
            self._tracking.step()
