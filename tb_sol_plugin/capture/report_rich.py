"""The report of a step as tables for a terminal. Needs `rich`; without it the plain report is printed."""

from __future__ import annotations

from typing import TextIO

from tb_sol_plugin.capture.analysis import Analysis


def print_rich(analysis: Analysis, *, file: TextIO | None = None) -> None:
    """Print tables to a terminal, the plain report to anything else."""
    raise NotImplementedError
