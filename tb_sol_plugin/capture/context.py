"""The modern entry: `with sol.capture(logdir, model=model) as tracker`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from tb_sol_plugin.capture.tracker import SOLTracker

if TYPE_CHECKING:
    from tb_sol_plugin.capture.tracker import Sizes


def capture(
    logdir: str | None = None,
    *,
    model: object = None,
    every_n_steps: int = 100,
    profile: bool = False,
    phases: bool = True,
    device: str = "auto",
    mode: Literal["auto", "dispatch", "hooks"] = "auto",
    report_interval: int | None = None,
    tensorboard: object = True,
    wandb: bool = True,
    console: bool = True,
    rank: int | None = None,
    batch: Sizes = None,
    tokens: Sizes = None,
    first_iteration: int = 0,
    **options: object,
) -> SOLTracker:
    """A tracker that is running, to be used in a `with`."""
    raise NotImplementedError
