"""Checks the options of a recording once; they are handed on as one value."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Mode: TypeAlias = Literal["auto", "dispatch", "hooks"]
Profile: TypeAlias = Literal["off", "after_sampled"]
Sizes: TypeAlias = "int | Callable[[], int | None] | None"
"""Samples or tokens of an iteration on this rank: a number, a function called at its end, None unknown."""


@dataclass(frozen=True)
class CaptureOptions:
    """Has the keyword arguments of `SOLTracker` and `capture`, which explain them; `phases` is that of `capture`.

    ValueError for an unknown mode or profile. Intervals are checked when tracking starts, since the script's arguments can set them too.
    """

    device: str = "auto"
    mode: Mode = "auto"
    logdir: str | None = None
    every_n_steps: int | None = None
    report_interval: int | None = None
    assume_sparsity: bool = False
    time_layers: bool = True
    profile: Profile = "off"
    traces: int = 3
    trace_stacks: bool = True
    tensorboard: object = True
    wandb: bool = True
    console: bool | Literal["rich"] = True
    rank: int | None = None
    batch: Sizes = None
    tokens: Sizes = None
    first_iteration: int = 0
    copies: bool = True
    sample_random: bool = False
    memory: bool = False
    memory_every: int | None = None
    memory_peaks: bool = False
    optimizer: object = None
    plan: Mapping[str, object] | None = None
    phases: bool = True

    def __post_init__(self) -> None:
        if self.mode not in ("auto", "dispatch", "hooks"):
            raise ValueError(f"mode is auto, dispatch or hooks, not {self.mode!r}")
        if self.profile not in ("off", "after_sampled"):
            raise ValueError(f"profile is off or after_sampled, not {self.profile!r}")
        if self.logdir is not None:
            object.__setattr__(self, "logdir", os.fspath(self.logdir))
