"""The report of a step as plain text, 90 characters wide."""

from __future__ import annotations

from tb_sol_plugin.capture.analysis import Analysis


def console_report(analysis: Analysis) -> str:
    """The report as text, without a newline at its end."""
    raise NotImplementedError
