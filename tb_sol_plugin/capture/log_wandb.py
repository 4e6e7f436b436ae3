"""The metrics of a step in Weights & Biases, where a run is open there."""

from __future__ import annotations

from tb_sol_plugin.capture.analysis import Analysis


def log_wandb(analysis: Analysis, iteration: int, tables: bool = False) -> bool:
    """Log the scalars of a step into the open run, tables at report intervals. Whether there was a run to log into."""
    raise NotImplementedError
