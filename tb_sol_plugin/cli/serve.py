"""`tb-sol serve`: the page of the SOL tab without TensorBoard."""

from __future__ import annotations

import argparse
import logging
import os
import socket
import sys

from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.store.devices import check_choice
from tb_sol_plugin.store.names import is_url, named, single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.app import create_app
from tb_sol_plugin.web.mount import WebOptions

_PRIVATE = ("localhost", "127.0.0.1", "::1")


def serve(options: argparse.Namespace) -> int:
    """Serve until interrupted. Prints the address on stdout once it listens. BadInput if it cannot listen there."""
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        """No line per request."""

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            return

    roots = named(options.logdir) if options.spec else single(options.logdir)
    for root in roots:
        if not is_url(root.url) and not os.path.exists(root.url):
            raise BadInput("there is no such directory", hint="check the path", file=root.label)
    check_choice(options.device)
    workers = options.workers or min(2, os.cpu_count() or 1)
    store = Store(roots, StoreOptions(cache_dir=options.cache_dir, workers=workers, device=options.device))
    open_to_all = options.host not in _PRIVATE
    web = WebOptions(serve_original=options.serve_original, bind_all=open_to_all)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    try:
        server = make_server(options.host, options.port, create_app(store, web), threaded=True, request_handler=Quiet)
    except (OSError, SystemExit) as error:
        raise BadInput(f"cannot listen on {options.host}:{options.port}", hint="choose another --port, or 0 for a free one") from error
    host = socket.gethostname() if options.host in ("0.0.0.0", "::") else options.host
    print(f"http://{f'[{host}]' if ':' in host else host}:{server.port}/", flush=True)
    if open_to_all:
        print("tb-sol: anybody who reaches this machine can see these recordings", file=sys.stderr)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        return 0
    finally:
        store.close()
    return 0
