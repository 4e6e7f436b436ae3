"""The SOL tracker: counts the work of sampled iterations, times phases always, and writes and logs what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

from tb_sol_plugin.capture.operation_registry import CapturedFunctionalOp, CapturedOp, OpRecord

if TYPE_CHECKING:
    from tb_sol_plugin.capture.analysis import Analysis

Sizes: TypeAlias = "int | Callable[[], int] | None"


class SOLTracker:
    """Counts the work of sampled iterations, and times the phases of all."""

    def __init__(
        self,
        device: str = "auto",
        mode: Literal["auto", "dispatch", "hooks"] = "auto",
        *,
        logdir: str | None = None,
        every_n_steps: int | None = None,
        report_interval: int = 100,
        assume_sparsity: bool = False,
        time_layers: bool = True,
        profile: Literal["off", "after_sampled"] = "off",
        traces: int = 3,
        tensorboard: object = True,
        wandb: bool = True,
        console: bool = True,
        rank: int | None = None,
        batch: Sizes = None,
        tokens: Sizes = None,
        first_iteration: int = 0,
    ) -> None:
        raise NotImplementedError

    analysis: Analysis | None

    def initialize(self, model: object, args: object = None) -> None:
        raise NotImplementedError

    def push_phase(self, name: object) -> None:
        raise NotImplementedError

    def pop_phase(self) -> None:
        raise NotImplementedError

    @contextmanager
    def phase(self, name: object) -> Iterator[None]:
        raise NotImplementedError
        yield

    def start_step(self) -> None:
        """Begin the iteration now: what happened since the end of the last one belongs to none."""
        raise NotImplementedError

    def step(self, loss: object = None, *, batch: int | None = None, tokens: int | None = None) -> None:
        """End of an iteration: `log_analysis` with the next number."""
        raise NotImplementedError

    def log_analysis(self, iteration: int, clear: bool = True) -> None:
        raise NotImplementedError

    def clear(self) -> None:
        raise NotImplementedError

    @property
    def records(self) -> list[OpRecord]:
        raise NotImplementedError

    @property
    def captured_ops(self) -> list[CapturedOp]:
        raise NotImplementedError

    @property
    def captured_functional_ops(self) -> list[CapturedFunctionalOp]:
        raise NotImplementedError

    def detach(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> SOLTracker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
