"""How close a PyTorch job runs to the speed of light of its hardware, inside TensorBoard.

Importing this package is cheap: everything heavy is loaded on first use (TensorBoard imports it at every start).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tb_sol_plugin.version import __version__

__all__ = ["__version__", "analyses", "analyze", "capture", "compare", "loader", "open", "open_capture", "phase", "save_html"]

if TYPE_CHECKING:
    from tb_sol_plugin.api import analyses, analyze, compare, open, open_capture, save_html
    from tb_sol_plugin.capture.context import capture
    from tb_sol_plugin.capture.current import loader, phase


def __getattr__(name: str) -> object:
    if name in ("analyses", "analyze", "compare", "open", "open_capture", "save_html"):
        from tb_sol_plugin import api

        return getattr(api, name)
    if name == "capture":
        import importlib

        return importlib.import_module("tb_sol_plugin.capture")
    if name in ("loader", "phase"):
        from tb_sol_plugin.capture import current

        return getattr(current, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(({*globals(), *__all__}) - {"TYPE_CHECKING", "annotations"})
