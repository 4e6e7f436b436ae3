"""One tracker for a training script that is organised around functions."""

from __future__ import annotations

from contextlib import AbstractContextManager

from tb_sol_plugin.capture.tracker import SOLTracker


def initialize_sol(model: object, args: object = None, **options: object) -> SOLTracker | None:
    """Create or reuse the process's tracker."""
    raise NotImplementedError


def get_sol_tracker() -> SOLTracker | None:
    raise NotImplementedError


def clear_sol_captures() -> None:
    raise NotImplementedError


def log_training_sol(iteration: int, clear: bool = True) -> None:
    raise NotImplementedError


def sol_nvtx_range(name: str, log_level: int = 1) -> AbstractContextManager[None]:
    raise NotImplementedError
