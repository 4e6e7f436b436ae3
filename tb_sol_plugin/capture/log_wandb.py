"""The metrics of a step in Weights & Biases, where a run is open there. Nothing here imports the package: who has a run has it."""

from __future__ import annotations

import sys
from typing import Final, Protocol

from tb_sol_plugin.capture import log_values
from tb_sol_plugin.capture.analysis import Analysis

ITERATION: Final = "sol/iteration"
"""The horizontal axis of all metrics here: the iteration, whatever the run's own step counts."""
PATTERNS: Final = ("sol/*", "sol_layer/*", "sol_func/*", "sol_phase/*")


class Run(Protocol):
    """What is asked of a run of `wandb`."""

    id: str

    def define_metric(self, name: str, step_metric: str | None = None, *, hidden: bool | None = None) -> object: ...
    def log(self, data: dict[str, object], *, commit: bool | None = None) -> None: ...


_defined: list[str] = []


def log_wandb(analysis: Analysis, iteration: int, tables: bool = False, *, commit: bool = False) -> bool:
    """Log the scalars of a step into the open run, tables at report intervals. Whether there was a run to log into.

    The figures join the row that the training loop logs next, so the run's own step counter stays as it is. Where a loop logs less often
    than this, a row has the latest figures, and their iteration. commit: make a row of their own, for loops that never log themselves;
    each raises the run's step by one.
    """
    wandb = sys.modules.get("wandb")
    run: Run | None = getattr(wandb, "run", None)
    if wandb is None or run is None:
        return False
    if run.id not in _defined:
        run.define_metric(ITERATION, hidden=True)
        for pattern in PATTERNS:
            run.define_metric(pattern, step_metric=ITERATION)
        _defined[:] = [run.id]
    data: dict[str, object] = {ITERATION: iteration, **log_values.scalars(analysis)}
    if tables:
        for name, (columns, rows) in log_values.tables(analysis).items():
            data[name] = wandb.Table(columns=list(columns), data=rows)
    run.log(data, commit=commit)
    return True
