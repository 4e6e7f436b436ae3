"""Makes HTTP answers: bytes with their headers, one shape of errors, static files; refuses other names and changes from other sites.

Also warms the server up while its first page is being read.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.util
import ipaddress
import logging
import mimetypes
import os
import secrets
import select
import socket
import ssl
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from flask import Blueprint, Flask, Request, Response, abort, request
from isal import igzip
from werkzeug.exceptions import ClientDisconnected, HTTPException
from werkzeug.security import safe_join

from tb_sol_plugin import redact
from tb_sol_plugin.errors import MOST_SHOWN, Changed, ReadOnlyView, SolError, shown
from tb_sol_plugin.process import keep_loaded, make_room
from tb_sol_plugin.redact import text
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.wire import Error, ErrorBody

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

    from tb_sol_plugin.model.capture import Capture


# -- a finished answer: bytes, gzipped, and an ETag; kept as such, so that a repeated question costs nothing


JSON = "application/json"
SMALLEST = 1024
"""Bytes below which compression is not worth it."""


@dataclass(frozen=True)
class Packed:
    """An answer as it is kept: gzipped where that pays. Who does not take that, which is rare, has it unpacked."""

    kept: bytes
    zipped: bool
    etag: str
    mimetype: str

    @property
    def size(self) -> int:
        return len(self.kept)

    @property
    def body(self) -> bytes:
        return igzip.decompress(self.kept) if self.zipped else self.kept


def pack(body: bytes, mimetype: str = JSON, level: int = 1) -> Packed:
    """Compresses an answer (level 0 to 3) and computes its ETag."""
    found = igzip.compress(body, compresslevel=level, mtime=0) if len(body) > SMALLEST else body
    zipped = len(found) < len(body)
    kept = found if zipped else body
    return Packed(kept, zipped, hashlib.blake2b(kept, digest_size=12).hexdigest(), mimetype)


def pack_json(value: object) -> Packed:
    """Returns a msgspec struct or builtins as JSON."""
    return pack(msgspec.json.encode(value))


def reply(packed: Packed, request: Request, *, cache: str = "no-cache", status: int = 200) -> Response:
    """Returns the response to `request`: 304 if the client has it, gzipped if it takes that."""
    zipped = packed.zipped and request.accept_encodings.quality("gzip") > 0
    tag = packed.etag + ("-gz" if zipped else "")
    headers = {"ETag": f'"{tag}"', "Cache-Control": cache, "Vary": "Accept-Encoding"}
    request.environ["sol.content_type"] = content_type(packed.mimetype)
    if status == 200 and request.if_none_match.contains_weak(tag):
        return Response(status=304, headers=headers)
    body = packed.kept if zipped else packed.body
    response = Response(body, status=status, headers=headers, content_type=content_type(packed.mimetype))
    if zipped:
        response.headers["Content-Encoding"] = "gzip"
    return response


def content_type(mimetype: str) -> str:
    """Returns the header for a media type: text and scripts are UTF-8."""
    return f"{mimetype}; charset=utf-8" if mimetype.startswith("text/") else mimetype


# -- warming up while the reader of the page looks at the list of runs -----------------------------------------------
# The first report of a server pays for imports and for loading compiled loops, a third of a second in all, and each page once more
# for what only it needs. A recording of four events, asked for every page, pays it ahead, in a thread, while another process still
# reads the real file.


LONGEST_REST: Final = 5.0
"""Seconds that a step of the warm-up waits for reports at the most."""


class WarmUp:
    """Warms the server up once, in a thread. A failure stays silent: it shows again, with a name, at a real request.

    A process that ends waits for it: a thread that is inside of a library's threads when the interpreter ends would abort the process.
    more: what else is done with the small recording.
    """

    def __init__(self, *more: Callable[[Capture], object]) -> None:
        self._more = more
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._ending = threading.Event()
        self._reports = 0
        self._may_go_on = threading.Event()
        self._may_go_on.set()

    def start(self) -> None:
        """Begin, unless that was done."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=warm, args=(self._is_ending, *self._more), name="tb-sol-warm", daemon=True)
                atexit.register(self._end)
                self._thread.start()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Lets it rest before its next step while a report is made, which has the processor to itself."""
        with self._lock:
            self._reports += 1
            self._may_go_on.clear()
        try:
            yield
        finally:
            with self._lock:
                self._reports -= 1
                if not self._reports:
                    self._may_go_on.set()

    def _is_ending(self) -> bool:
        self._may_go_on.wait(LONGEST_REST)
        return self._ending.is_set()

    def _end(self) -> None:
        """Let it stop before the next page, and wait for that."""
        self._ending.set()
        self._may_go_on.set()
        self.wait(30.0)

    def wait(self, seconds: float) -> bool:
        """Whether it is over within `seconds`; True if it was never begun."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join(seconds)
        return thread is None or not thread.is_alive()


def warm(ending: Callable[[], bool] = lambda: False, *more: Callable[[Capture], object]) -> None:
    """Import what reports need and answer every analysis, in the order of the pages, on a recording of four events.

    ending: asked between two steps whether to leave the rest. more: done with that recording, too.
    """
    with contextlib.suppress(Exception):
        from tb_sol_plugin.errors import SolError
        from tb_sol_plugin.ingest.kineto import decode
        from tb_sol_plugin.metrics.critical import assembly, described, passes
        from tb_sol_plugin.metrics.time import sequences
        from tb_sol_plugin.metrics.timeline import find
        from tb_sol_plugin.metrics.work import sums
        from tb_sol_plugin.model.answer import answer_capture
        from tb_sol_plugin.model.registry import registry
        from tb_sol_plugin.store.processes import smallest_capture
        from tb_sol_plugin.tables import grouped, intervals, lanes, order, pyramid, tree

        for loops in (decode, tree, intervals, pyramid, lanes, grouped, order, assembly, described, passes, sequences, sums, find):
            if ending():
                return
            loops.load()
        capture = smallest_capture()
        for name in registry():
            if ending():
                return
            with contextlib.suppress(SolError):
                answer_capture(name, capture, {})
        for done in more:
            if not ending():
                done(capture)
        if not ending():
            import_module("scipy.optimize")  # 0.3 s that the first fit of Scaling would pay
        keep_loaded()
        make_room()


# -- the built frontend and Plotly: nothing comes from another host ---------------------------------------------------


STATIC = Path(__file__).resolve().parent.parent / "static"
CUSTOM_PLOTLY = STATIC.parent / "vendor" / "plotly-custom.min.js"
"""A bundle of Plotly with the usual kinds of traces; made by `make plotly`."""
_TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".json": "application/json", ".html": "text/html"}

pages = Blueprint("pages", __name__)


def plotly_script() -> str | None:
    """Returns where the installed Python package Plotly keeps the whole of its script; found without importing it."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = os.path.join(folder, "package_data", "plotly.min.js")
        if os.path.isfile(path):
            return path
    return None


@pages.get("/")
def start() -> Response:
    """Returns the page without TensorBoard around it."""
    return _send("index.html")


@pages.get("/vendor/plotly-custom.min.js")
def custom_plotly() -> Response:
    """Serves the bundle of Plotly that draws the usual kinds of traces."""
    return _file(str(CUSTOM_PLOTLY), 3)


@pages.get("/vendor/plotly.min.js")
def plotly() -> Response:
    """Serves the whole of Plotly, which analyses of other packages may need: large, compressed once, revalidated by its ETag."""
    return _file(plotly_script(), 3)


@pages.get("/<path:name>")
def static_file(name: str) -> Response:
    """Returns a file of the built frontend."""
    return _send(name)


def _send(name: str) -> Response:
    return _file(safe_join(str(STATIC), name) if "\0" not in name else None, 2)


def _file(path: str | None, level: int) -> Response:
    """Sends a file compressed; 404 where there is none."""
    if path is None or not os.path.isfile(path):
        abort(404)
    return reply(_packed(path, os.path.getmtime(path), level), request)


@lru_cache(maxsize=64)
def _packed(path: str, changed: float, level: int) -> Packed:
    kind = _TYPES.get(os.path.splitext(path)[1]) or mimetypes.guess_type(path)[0] or "application/octet-stream"
    return pack(Path(path).read_bytes(), kind, level)


# -- headers, one shape of errors, no calls from other sites ---------------------------------------------------------


log = logging.getLogger("tb_sol_plugin")

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)


def install(app: Flask, options: WebOptions) -> None:
    """Register headers, error shapes and the guards of names and of POST on an app."""
    app.before_request(lambda: _own_name_only(options))
    app.before_request(_own_site_only)
    app.after_request(_secure)
    app.register_error_handler(SolError, sol_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _fault)
    app.wsgi_app = KeepType(app.wsgi_app)  # type: ignore[method-assign]


def while_connected() -> None:
    """Raises ClientDisconnected where who asked has closed the connection: nobody will read the answer.

    Called between parts of a long answer. Under werkzeug, and so TensorBoard, the environment has the socket; other
    servers do not say.
    """
    connection = request.environ.get("werkzeug.socket")
    if not isinstance(connection, socket.socket) or isinstance(connection, ssl.SSLSocket):
        return
    with contextlib.suppress(OSError, ValueError):
        readable, _, _ = select.select([connection], [], [], 0)
        if readable and not connection.recv(1, socket.MSG_PEEK):
            raise ClientDisconnected


def error_reply(body: ErrorBody, status: int) -> Response:
    """Returns an error in its one shape."""
    return reply(pack_json(Error(body)), request, status=status, cache="no-store")


def sol_error(error: SolError) -> Response:
    """Returns an error of ours."""
    return error_reply(body_of(error), error.status)


def body_of(error: SolError) -> ErrorBody:
    """Returns the wire form of an error of ours; what it says is free form, so it is cleaned of secrets and, where it is long, cut."""
    file = redact.name(error.file) if error.file else error.file
    now = error.now if isinstance(error, Changed) else ""
    return ErrorBody(error.code, shown(text(error.message)), shown(text(error.hint)), error.field[:MOST_SHOWN], file, now=now)


def fault_reply(error: BaseException, what: str) -> Response:
    """Returns an error nobody expected: logged under an id, shown by that id alone."""
    return error_reply(fault_body(error, what), 500)


def fault_body(error: BaseException, what: str) -> ErrorBody:
    """Log an unexpected error once and say what to look for in the log."""
    number = secrets.token_hex(4)
    log.error("error %s in %s:\n%s", number, what, text("".join(traceback.format_exception(error))))
    return ErrorBody(
        "internal_error", f"{what} failed ({type(error).__name__})", f"look for error {number} in the server's log and report it", id=number
    )


def _http_error(error: HTTPException) -> Response:
    status = error.code or 500
    words = {404: ("not_found", "there is nothing at this address"), 405: ("method_not_allowed", "this address does not take that method")}
    code, message = words.get(status, (f"http_{status}", error.name.lower()))
    response = error_reply(ErrorBody(code, message, "see api/v1/openapi.json"), status)
    if status == 405 and (allowed := getattr(error, "valid_methods", None)):
        response.headers["Allow"] = ", ".join(allowed)
    return response


def _fault(error: Exception) -> Response:
    return fault_reply(error, "this request")


def own_name(host: str, names: Iterable[str]) -> bool:
    """Whether a Host header names this machine: as localhost, by an address, or by one of `names`.

    A page of another site may have its own name point to this machine once it is loaded (DNS rebinding), and would then read what this
    server answers. It cannot do that with an address.
    """
    found = host.strip().lower()
    bracketed = found.startswith("[") and "]" in found
    name = (found[1:].partition("]")[0] if bracketed else found.partition(":")[0] if found.count(":") == 1 else found).rstrip(".")
    if name == "localhost" or name.endswith(".localhost") or any(own in ("*", name) for own in map(str.lower, names)):
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _own_name_only(options: WebOptions) -> None:
    """Refuses requests under a name that is not this machine's, unless the server is open to the network."""
    host = request.environ.get("HTTP_HOST")
    if host is None or options.bind_all or own_name(host, options.hosts):
        return
    hint = "open it as localhost; behind a proxy, start the server with --sol_hosts NAME (tb-sol serve: --hosts NAME)"
    raise ReadOnlyView("this server does not answer under that name", hint=hint)


def _own_site_only() -> None:
    """Refuses changing requests that do not come from our own page or from a program: never from another site's page."""
    if request.method in ("GET", "HEAD", "OPTIONS"):
        return
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    foreign = site not in ("same-origin", "none") if site else origin is not None and origin.partition("://")[2] != request.host
    if foreign:
        raise ReadOnlyView("this request came from another site", hint="use the page of this server")


def _secure(response: Response) -> Response:
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers.setdefault("Cache-Control", "no-cache")
    response.headers.setdefault("Referrer-Policy", "same-origin")
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    kind = str(request.environ.get("sol.content_type", response.mimetype))
    if kind.startswith("text/html"):
        response.headers.setdefault("Content-Security-Policy", POLICY)
        response.headers["X-Frame-Options"] = "SAMEORIGIN"
    return response


class KeepType:
    """Puts the Content-Type back on a 304.

    Werkzeug takes it off; TensorBoard's validator wants it, and a browser may merge the headers of a 304 into what it has.
    """

    def __init__(self, app: WSGIApplication) -> None:
        self._app = app

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        def start(status: str, headers: list[tuple[str, str]], exc_info: object = None) -> Callable[[bytes], object]:
            if not any(name.lower() == "content-type" for name, _ in headers):
                headers = [*headers, ("Content-Type", environ.get("sol.content_type", "text/plain; charset=utf-8"))]
            return start_response(status, headers, exc_info)  # type: ignore[call-arg, arg-type]

        return self._app(environ, start)  # type: ignore[arg-type]
