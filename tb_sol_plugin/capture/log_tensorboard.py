"""The metrics of a step as TensorBoard scalars, and its tables as text."""

from __future__ import annotations

from typing import Protocol

from tb_sol_plugin.capture.analysis import Analysis


class Writer(Protocol):
    """What is asked of a summary writer (torch.utils.tensorboard, tensorboardX)."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int | None = ...) -> object: ...


def log_tensorboard(analysis: Analysis, iteration: int, writer: Writer, tables: bool = False) -> None:
    """Log the scalars of a step; tables: at report intervals also the tables."""
    raise NotImplementedError
