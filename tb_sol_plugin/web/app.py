"""The web application: the same under TensorBoard and under `tb-sol serve`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from flask import Flask

from tb_sol_plugin.store.options import Memo
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import http
from tb_sol_plugin.web.http import WebOptions
from tb_sol_plugin.web.responses import Warmth, pages
from tb_sol_plugin.web.routes import Context, api

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


def create_app(store: Store, options: WebOptions | None = None) -> Flask:
    """A WSGI app over a store. It starts nothing; the first request does."""
    options = options or WebOptions()
    app = Flask("tb_sol_plugin.web", static_folder=None)
    app.url_map.merge_slashes = False
    app.extensions["sol"] = Context(store, options, Memo(options.memo_bytes, lambda packed: packed.size), {}, Warmth())
    app.register_blueprint(api)
    app.register_blueprint(pages)
    http.install(app)
    return app


# -- The Flask app below a path prefix, as TensorBoard calls it ------------------------------------------------------
# `PATH_INFO` arrives whole.


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
