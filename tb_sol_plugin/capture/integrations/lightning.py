"""Tracks a Lightning Trainer:

    from tb_sol_plugin.capture.integrations.lightning import SOLCallback
    Trainer(callbacks=[SOLCallback(every_n_steps=100)])

A step is an optimizer step, with all batches that were accumulated for it. Its phases are `train/forward`, `train/backward`,
`train/optimizer` (under automatic optimization) and `validation`, which belongs to the step after which it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    from pytorch_lightning.callbacks import Callback  # type: ignore[assignment,import-not-found]

from tb_sol_plugin.capture.integrations import Tracking

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer


class SOLCallback(Callback):  # type: ignore[misc]
    """Tracks the steps of a trainer. logdir: where captures are written, default the trainer's log folder; `options` as of `capture`."""

    def __init__(self, logdir: str = "", **options: object) -> None:
        super().__init__()
        self._logdir = logdir
        self._tracking = Tracking(options)
        self._done = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._done = trainer.global_step
        self._tracking.start(self._logdir or trainer.log_dir or trainer.default_root_dir, pl_module, trainer.global_step)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int) -> None:
        if trainer.global_step != self._done:
            self._done = trainer.global_step
            self._tracking.step()
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
        self._tracking.leave()

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._tracking.enter("validation")

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._tracking.leave()

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._tracking.stop(complete=trainer.global_step != self._done)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._tracking.stop(complete=False)
