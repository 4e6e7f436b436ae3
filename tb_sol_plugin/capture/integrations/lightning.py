"""Tracks a Lightning Trainer:

    from tb_sol_plugin.capture.integrations.lightning import SOLCallback
    Trainer(callbacks=[SOLCallback(every_n_steps=100)])

A step is an optimizer step, with all batches that were accumulated for it. Its phases are `data loading`, `train/forward`,
`train/backward`, `train/optimizer` (under automatic optimization), and where they are due `validation` and `checkpoint`: these belong to
the step after which they run, which ends where the trainer asks for the next batch.

When it asks for a batch, and when it saves, the trainer says only to its profiler (whichever it has, also none): while it trains, the
callback listens there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment,import-not-found]

from tb_sol_plugin.capture.integrations import CHECKPOINT, DATA_LOADING, Tracking

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.profilers import Profiler

NEXT_BATCH: Final = "train_dataloader_next"
SAVING: Final = "save_checkpoint"


class SOLCallback(Callback):  # type: ignore[misc]
    """Tracks the steps of a trainer. logdir: where captures are written, default the trainer's log folder; `options` as of `capture`."""

    def __init__(self, logdir: str = "", **options: object) -> None:
        super().__init__()
        self._logdir = logdir
        self._tracking = Tracking(options)
        self._done = 0
        self._in_batch = False
        self._unlisten: Callable[[], None] = _nothing

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._unlisten()
        self._done, self._in_batch = trainer.global_step, False
        folder = self._logdir or trainer.log_dir or trainer.default_root_dir
        self._tracking.start(folder, pl_module, trainer.global_step, trainer.optimizers)
        self._unlisten = _listen(trainer.profiler, lambda action: self._began(trainer, action), self._ended)

    def _began(self, trainer: Trainer, action: str) -> None:
        if action.endswith(NEXT_BATCH):
            if not self._in_batch:  # in which a step that takes an iterator asks itself
                self._step(trainer)
            self._tracking.enter(DATA_LOADING, inside=self._in_batch)
        elif action == SAVING:
            self._tracking.enter(CHECKPOINT, inside=True)

    def _ended(self, action: str) -> None:
        if action.endswith(NEXT_BATCH) and self._in_batch:
            self._tracking.leave(DATA_LOADING)
        elif action == SAVING:
            self._tracking.leave(CHECKPOINT)

    def _step(self, trainer: Trainer) -> None:
        """End the iteration, if its optimizer step was made."""
        if trainer.global_step != self._done:
            self._done = trainer.global_step
            self._tracking.step()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._step(trainer)
        self._tracking.enter(DATA_LOADING)  # workers start

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        self._step(trainer)
        self._in_batch = True
        self._tracking.enter("train/forward")

    def on_before_zero_grad(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        self._tracking.leave("train/forward")

    def on_before_backward(self, trainer: Trainer, pl_module: LightningModule, loss: object) -> None:
        self._tracking.enter("train/backward")

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._tracking.leave("train/backward")

    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: object) -> None:
        self._tracking.enter("train/optimizer")

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int) -> None:
        self._in_batch = False
        self._tracking.leave()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._tracking.enter("validation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._tracking.leave()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._unlisten()
        self._tracking.stop(complete=trainer.global_step != self._done)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._unlisten()
        self._tracking.stop(complete=False)


def _nothing() -> None:
    return None


def _listen(profiler: Profiler, began: Callable[[str], None], ended: Callable[[str], None]) -> Callable[[], None]:
    """Call `began` and `ended` with each action that the profiler is told of. Returns a function that ends it."""
    start, stop = profiler.start, profiler.stop

    def started(action_name: str) -> None:
        began(action_name)
        start(action_name)

    def stopped(action_name: str) -> None:
        stop(action_name)
        ended(action_name)

    def end() -> None:
        if profiler.__dict__.get("start") is started:
            del profiler.start
        if profiler.__dict__.get("stop") is stopped:
            del profiler.stop

    profiler.start, profiler.stop = started, stopped  # type: ignore[method-assign]
    return end
