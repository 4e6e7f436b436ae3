"""The built frontend, and Plotly from the installed Python package: nothing comes from another host."""

from __future__ import annotations

import importlib.util
import mimetypes
import os
from functools import lru_cache
from pathlib import Path

from flask import Blueprint, Response, abort, request
from werkzeug.security import safe_join

from tb_sol_plugin.web.packed import Packed, pack, reply

STATIC = Path(__file__).resolve().parent.parent / "static"
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json", ".html": "text/html"}

pages = Blueprint("pages", __name__)


def plotly_script() -> str | None:
    """Where the installed Plotly keeps its script; found without importing it."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = os.path.join(folder, "package_data", "plotly.min.js")
        if os.path.isfile(path):
            return path
    return None


@pages.get("/")
def start() -> Response:
    """The page without TensorBoard around it."""
    return _send("index.html")


@pages.get("/vendor/plotly.min.js")
def plotly() -> Response:
    """Plotly: large, compressed once, revalidated by its ETag."""
    path = plotly_script()
    if path is None:
        abort(404)
    return reply(_packed(path, os.path.getmtime(path), 3), request)


@pages.get("/<path:name>")
def static_file(name: str) -> Response:
    """A file of the built frontend."""
    return _send(name)


def _send(name: str) -> Response:
    full = safe_join(str(STATIC), name) if "\0" not in name else None
    if full is None or not os.path.isfile(full):
        abort(404)
    return reply(_packed(full, os.path.getmtime(full), 2), request)


@lru_cache(maxsize=64)
def _packed(path: str, changed: float, level: int) -> Packed:
    kind = _TYPES.get(os.path.splitext(path)[1]) or mimetypes.guess_type(path)[0] or "application/octet-stream"
    return pack(Path(path).read_bytes(), kind, level)
