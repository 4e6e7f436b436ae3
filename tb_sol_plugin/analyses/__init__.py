"""Analyses: one pure file each, in rooms by subject; none imports another.

A module here that calls `@analysis(...)` (see `model/registry.py`) is an analysis: its route, CLI subcommand, CSV, OpenAPI entry and page
follow. The module's docstring is its help. Its tables and figures stand beside it as `NAME_tables.py` and `NAME_figures.py` where they
are long.
"""

from __future__ import annotations

import sys
from types import ModuleType

from tb_sol_plugin.model.registry import AnalysisInfo, Reduction, analysis, described

__all__ = ["Reduction", "analysis"]


class _Callable(ModuleType):
    """Lets `tb_sol_plugin.analyses()` answer the registry: this package and that function share their name."""

    def __call__(self) -> dict[str, AnalysisInfo]:
        return described()


sys.modules[__name__].__class__ = _Callable
