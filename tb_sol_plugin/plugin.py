"""Defines the TensorBoard plugin: a tab, one route that takes all, and an answer to "is there anything to show" that never waits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tensorboard.plugins import base_plugin

from tb_sol_plugin.store.names import roots_of
from tb_sol_plugin.store.options import GB, StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import Mount, WebOptions, host_names

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

_PRIVATE = ("", "localhost", "127.0.0.1", "::1")


class SolPlugin(base_plugin.TBPlugin):  # type: ignore[misc]
    """The tab "SOL". Making it reads flags and nothing else; scanning and serving begin with the first request."""

    plugin_name = "sol"

    def __init__(self, context: base_plugin.TBContext) -> None:
        flags = context.flags
        self._web = web_options(flags)
        self._store = Store(roots_of(context.logdir or "", getattr(flags, "logdir_spec", "") or ""), store_options(flags))
        self._lock = threading.Lock()
        self._app: WSGIApplication | None = None

    def get_plugin_apps(self) -> dict[str, Callable[..., Iterable[bytes]]]:
        return {"/*": Mount(self._application, f"/data/plugin/{self.plugin_name}")}

    def is_active(self) -> bool:
        return self._store.active()

    def frontend_metadata(self) -> base_plugin.FrontendMetadata:
        return base_plugin.FrontendMetadata(es_module_path="/index.js", tab_name="SOL", disable_reload=False)

    def _application(self) -> WSGIApplication:
        with self._lock:
            if self._app is None:
                from tb_sol_plugin.web.routes import create_app

                self._app = create_app(self._store, self._web)
            return self._app


def web_options(flags: Any) -> WebOptions:
    """Returns what is served, from TensorBoard's flags and ours. A host that others can reach counts like --bind_all."""
    public = bool(getattr(flags, "bind_all", False)) or (getattr(flags, "host", None) or "") not in _PRIVATE
    hosts = host_names(getattr(flags, "sol_hosts", "") or "")
    return WebOptions(serve_original=getattr(flags, "sol_serve_original", "auto"), bind_all=public, hosts=hosts)


def store_options(flags: Any) -> StoreOptions:
    """Returns limits of the store from our flags; absent ones keep their defaults."""
    return StoreOptions(
        cache_dir=getattr(flags, "sol_cache_dir", None),
        cache_bytes=int(getattr(flags, "sol_cache_gb", 20.0) * GB),
        worker_bytes=int(getattr(flags, "sol_memory_gb", 0.0) * GB),
        load_seconds=getattr(flags, "sol_load_seconds", 3600.0),
        scan_seconds=getattr(flags, "sol_scan_seconds", 20.0),
        workers=getattr(flags, "sol_workers", 0) or min(2, os.cpu_count() or 1),
        device=getattr(flags, "sol_device", "") or "",
    )
