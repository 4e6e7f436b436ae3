"""A finished answer: bytes, the same gzipped, and an ETag. Kept as such, so that a repeated question costs nothing."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import mimetypes
import os
import threading
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
from flask import Blueprint, Request, Response, abort, request
from isal import igzip
from werkzeug.security import safe_join

JSON = "application/json"
SMALLEST = 1024
"""Bytes below which compression is not worth it."""


@dataclass(frozen=True)
class Packed:
    """An answer's body in both forms; `zipped` is empty where it would not pay."""

    body: bytes
    zipped: bytes
    etag: str
    mimetype: str

    @property
    def size(self) -> int:
        return len(self.body) + len(self.zipped)


def pack(body: bytes, mimetype: str = JSON, level: int = 1) -> Packed:
    """Compress (level 0 to 3) and name an answer."""
    zipped = igzip.compress(body, compresslevel=level, mtime=0) if len(body) > SMALLEST else b""
    if len(zipped) >= len(body):
        zipped = b""
    return Packed(body, zipped, hashlib.blake2b(body, digest_size=12).hexdigest(), mimetype)


def pack_json(value: object) -> Packed:
    """A msgspec struct or builtins as JSON."""
    return pack(msgspec.json.encode(value))


def reply(packed: Packed, request: Request, *, cache: str = "no-cache", status: int = 200) -> Response:
    """The response to `request`: 304 if the client has it, gzipped if it takes that."""
    zipped = bool(packed.zipped) and request.accept_encodings.quality("gzip") > 0
    tag = packed.etag + ("-gz" if zipped else "")
    headers = {"ETag": f'"{tag}"', "Cache-Control": cache, "Vary": "Accept-Encoding"}
    request.environ["sol.content_type"] = content_type(packed.mimetype)
    if status == 200 and request.if_none_match.contains_weak(tag):
        return Response(status=304, headers=headers)
    response = Response(
        packed.zipped if zipped else packed.body, status=status, headers=headers, content_type=content_type(packed.mimetype)
    )
    if zipped:
        response.headers["Content-Encoding"] = "gzip"
    return response


def content_type(mimetype: str) -> str:
    """The header for a media type: text and scripts are UTF-8."""
    return f"{mimetype}; charset=utf-8" if mimetype.startswith("text/") else mimetype


# -- Getting ready while the reader of the page looks at the list of runs --------------------------------------------
# The first report of a server pays for imports and for loading compiled loops, a third of a second in all. A recording of
# three events, asked for the first page, pays it ahead, in a thread, while another process still reads the real file.


class Warmth:
    """`start` warms once; later calls do nothing. A failure stays silent: it shows again, with a name, at a real request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless that was done."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=warm, name="tb-sol-warm", daemon=True)
                self._thread.start()

    def wait(self, seconds: float) -> bool:
        """Whether it is over within `seconds`; True if it was never begun."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()


def warm() -> None:
    """Import what reports need and run the first page on a recording of three events."""
    with contextlib.suppress(Exception):
        from tb_sol_plugin.model.answer import answer_capture
        from tb_sol_plugin.model.registry import registry
        from tb_sol_plugin.store.processes import smallest_capture

        first = next(iter(registry()))
        answer_capture(first, smallest_capture(), {})


# -- The built frontend, and Plotly from the installed Python package ------------------------------------------------
# nothing comes from another host.


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
