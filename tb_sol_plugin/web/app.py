"""The web application: the same under TensorBoard and under `tb-sol serve`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import Flask

from tb_sol_plugin.store.options import Memo
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import http
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.responses import Warmth, pages
from tb_sol_plugin.web.routes import Context, api

if TYPE_CHECKING:
    pass


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
