"""The Flask app below a path prefix, as TensorBoard calls it: `PATH_INFO` arrives whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class Mount:
    """A WSGI app that makes its inner app (built by `make` at the first request) see addresses without `prefix`."""

    def __init__(self, make: Callable[[], WSGIApplication], prefix: str) -> None:
        self._make = make
        self._prefix = prefix

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == self._prefix or path.startswith(self._prefix + "/"):
            inner = path[len(self._prefix) :] or "/"
            environ = {**environ, "SCRIPT_NAME": environ.get("SCRIPT_NAME", "") + self._prefix, "PATH_INFO": inner}
        return self._make()(environ, start_response)
