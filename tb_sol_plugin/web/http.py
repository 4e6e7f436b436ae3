"""What holds for every answer: headers, one shape of errors, no calls from other sites."""

from __future__ import annotations

import logging
import secrets
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException

from tb_sol_plugin.errors import ReadOnlyView, SolError
from tb_sol_plugin.redact import text
from tb_sol_plugin.web.responses import pack_json, reply
from tb_sol_plugin.web.wire import Error, ErrorBody

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


log = logging.getLogger("tb_sol_plugin")

POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; object-src 'none'"
)


def install(app: Flask) -> None:
    """Register headers, error shapes and the guard of POST on an app."""
    app.before_request(_own_site_only)
    app.after_request(_secure)
    app.register_error_handler(SolError, sol_error)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(Exception, _fault)
    app.wsgi_app = KeepType(app.wsgi_app)  # type: ignore[method-assign]


def error_reply(body: ErrorBody, status: int) -> Response:
    """An error in its one shape."""
    return reply(pack_json(Error(body)), request, status=status, cache="no-store")


def sol_error(error: SolError) -> Response:
    """An error of ours."""
    return error_reply(body_of(error), error.status)


def body_of(error: SolError) -> ErrorBody:
    """The wire form of an error of ours; what it says is free form, so it is cleaned of secrets."""
    return ErrorBody(error.code, text(error.message), text(error.hint), error.field, error.file)


def fault_reply(error: BaseException, what: str) -> Response:
    """An error nobody expected: logged under an id, shown by that id alone."""
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


def _own_site_only() -> None:
    """Changing requests come from our own page or from a program, never from another site's page."""
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
    kind = str(request.environ.get("sol.content_type", response.mimetype))
    if kind.startswith("text/html"):
        response.headers["Content-Security-Policy"] = POLICY
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


# -- What the server offers, and to whom -----------------------------------------------------------------------------
