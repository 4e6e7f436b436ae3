"""TensorBoard's way in: flags, and the plugin or a page that shows the reason why there is none.

TensorBoard imports this module at every start, so it imports nothing but TensorBoard's base class.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterable
from importlib import metadata
from types import ModuleType
from typing import Any

from tensorboard.plugins import base_plugin


class Loader(base_plugin.TBLoader):  # type: ignore[misc]
    """Defines the `--sol_*` flags and makes the plugin; a missing or broken dependency gives a page that says so."""

    def define_flags(self, parser: argparse.ArgumentParser) -> None:
        """Add our flags; each is read with a default, because embedding programs may not define them."""
        group = parser.add_argument_group("tb_sol_plugin (SOL tab)")
        group.add_argument(
            "--sol_device",
            default="",
            metavar="KEY|PATH",
            help="Device limits to measure against: a key as H100_SXM or H100_SXM@1410MHz+sparse, or a device file (default: as recorded).",
        )
        group.add_argument("--sol_cache_dir", default=None, metavar="DIR", help='Where parsed recordings are kept; "" keeps none.')
        group.add_argument(
            "--sol_cache_gb", type=float, default=20.0, metavar="GB", help="Size at which old parsed recordings are removed."
        )
        group.add_argument(
            "--sol_workers", type=int, default=0, metavar="N", help="Processes that read recordings (default: 2, or 1 on one core)."
        )
        group.add_argument(
            "--sol_memory_gb", type=float, default=0.0, metavar="GB", help="Memory one of them may use (default: 40 %% of the machine's)."
        )
        group.add_argument("--sol_load_seconds", type=float, default=3600.0, metavar="S", help="Time one recording may take to read.")
        group.add_argument("--sol_scan_seconds", type=float, default=20.0, metavar="S", help="Time one scan of the logdir may take.")
        group.add_argument(
            "--sol_serve_original", choices=("auto", "on", "off"), default="auto",
            help="Give out the recordings' own bytes; auto: unless --bind_all or a public --host.",
        )  # fmt: skip
        group.add_argument(
            "--sol_hosts", default="", metavar="NAME,NAME", help="Names besides localhost under which a proxy asks for the page; * for any."
        )

    def fix_flags(self, flags: argparse.Namespace) -> None:
        """Refuse values that cannot be meant."""
        for name in ("sol_cache_gb", "sol_memory_gb", "sol_load_seconds", "sol_scan_seconds", "sol_workers"):
            value = getattr(flags, name, 0)
            if value is not None and (value < 0 or not math.isfinite(value)):
                raise base_plugin.FlagsError(f"--{name} must not be negative, but is {value}")

    def load(self, context: base_plugin.TBContext) -> base_plugin.TBPlugin:
        """Returns the plugin; on failure a stand-in whose page shows the reason."""
        try:
            from tb_sol_plugin.plugin import SolPlugin

            return SolPlugin(context)
        except Exception as error:  # a broken dependency must not cost TensorBoard its start, nor the user the reason
            return ErrorPlugin(context, error)


# -- the tab that stands in when the plugin could not be made: it needs TensorBoard and Python alone -----------------


PACKAGES = ("tensorboard", "flask", "numpy", "pandas", "pyarrow", "plotly", "msgspec", "isal", "fsspec", "numba", "platformdirs", "xxhash")

_SCRIPT = """const info = %s;
export function render() {
  const page = document.body;
  page.style.cssText = "font: 14px/1.5 system-ui; margin: 48px auto; max-width: 720px; padding: 0 24px; color: #14181F; background: #fff";
  const add = (tag, text, style) => {
    const node = page.appendChild(document.createElement(tag));
    node.textContent = text;
    node.style.cssText = style || "";
  };
  add("h1", "SOL could not start", "font-size: 20px");
  add("p", info.message);
  add("pre", info.command, "background: #F1F3F6; padding: 12px; border-radius: 6px; overflow: auto; user-select: all");
  add("p", info.versions, "color: #626D7C; font-size: 12px");
}
"""


class ErrorPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """Serves one module that shows why the real plugin is not there."""

    plugin_name = "sol"

    def __init__(self, context: base_plugin.TBContext, error: BaseException) -> None:
        self._message = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:300]

    def get_plugin_apps(self) -> dict[str, Callable[..., Iterable[bytes]]]:
        return {"/*": self._serve}

    def is_active(self) -> bool:
        return True

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="SOL", disable_reload=False)

    def _serve(self, environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
        script = environ.get("PATH_INFO", "").endswith("/index.js")
        if script:
            body, status, kind = _SCRIPT % _json(self._info()), "200 OK", "text/javascript; charset=utf-8"
        else:
            error = {"error": {"code": "not_started", "message": self._message, "hint": self._info()["command"]}}
            body, status, kind = _json(error), "503 Service Unavailable", "application/json"
        data = body.encode()
        headers = [
            ("Content-Type", kind),
            ("Content-Length", str(len(data))),
            ("X-Content-Type-Options", "nosniff"),
            ("Cache-Control", "no-store"),
        ]
        start_response(status, headers)
        return [data]

    def _info(self) -> dict[str, str]:
        versions = ", ".join(f"{name} {_version(name)}" for name in PACKAGES)
        return {"message": self._message, "command": "pip install --upgrade tb-sol-plugin && tb-sol doctor", "versions": versions}


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "MISSING"


def _json(value: object) -> str:
    """Returns JSON that may stand inside a script."""
    return json.dumps(value).replace("<", "\\u003c")


class _Callable(ModuleType):
    """Lets `sol.loader(batches)` wrap a data loader where TensorBoard runs too: this module and that function share their name."""

    def __call__(self, batches: Iterable[Any]) -> Iterable[Any]:
        from tb_sol_plugin.capture.current import loader

        return loader(batches)


sys.modules[__name__].__class__ = _Callable
