"""The web application: the same under TensorBoard and under `tb-sol serve`."""

from __future__ import annotations

from flask import Flask

from tb_sol_plugin.store.options import Memo
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web import guard
from tb_sol_plugin.web.assets import pages
from tb_sol_plugin.web.options import WebOptions
from tb_sol_plugin.web.packed import Packed
from tb_sol_plugin.web.routes import Context, api
from tb_sol_plugin.web.warmth import Warmth


def create_app(store: Store, options: WebOptions | None = None) -> Flask:
    """A WSGI app over a store. It starts nothing; the first request does."""
    options = options or WebOptions()
    app = Flask("tb_sol_plugin.web", static_folder=None)
    app.url_map.merge_slashes = False
    app.extensions["sol"] = Context(store, options, Memo(options.memo_bytes, lambda packed: packed.size), {}, Warmth())
    app.register_blueprint(api)
    app.register_blueprint(pages)
    guard.install(app)
    return app


__all__ = ["Packed", "WebOptions", "create_app"]
