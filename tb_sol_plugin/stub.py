"""The tab that stands in when the plugin could not be made: it shows the reason. Needs TensorBoard and Python alone."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from importlib import metadata
from typing import Any

from tensorboard.plugins import base_plugin

PACKAGES = ("tensorboard", "flask", "numpy", "pandas", "pyarrow", "plotly", "msgspec", "isal", "fsspec", "numba", "platformdirs")

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
    """JSON that may stand inside a script."""
    return json.dumps(value).replace("<", "\\u003c")
