"""`tb-sol index`: reads every rank of the runs of a logdir, and makes the pages that compare ranks, before anybody opens them."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import Final

from tb_sol_plugin.errors import BadInput, NotFound

WAIT: Final = 2.0
"""Seconds between two lines of progress."""
NAMED: Final = 10
"""Recordings that failed, named per run."""
PAGE: Final = "ranks"
"""The analysis whose reductions are made: all pages of collectives share them."""
EXECUTOR: Final = "a Dask cluster that reads the ranks of a run, as dask://HOST:PORT (default: processes of this machine)"


def index_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of the command."""
    parser.add_argument("logdir", metavar="LOGDIR", help="directory or fsspec URL")
    parser.add_argument("--run", default="", metavar="RUN", help="one run alone (default: all of several ranks)")
    parser.add_argument("--cache-dir", default=None, metavar="DIR", help="where what was read is kept: that of the server")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="processes that read (default: one per core)")
    parser.add_argument("--executor", default="", metavar="dask://HOST:PORT", help=EXECUTOR)


def index(options: argparse.Namespace) -> int:
    """Reads all ranks; prints a line per run. NotFound without a run of several ranks, BadInput where none of them can be read."""
    from tb_sol_plugin.store.cluster import cluster
    from tb_sol_plugin.store.names import is_url, single
    from tb_sol_plugin.store.options import StoreOptions, cache_directory
    from tb_sol_plugin.store.reductions import recordings_by_worker
    from tb_sol_plugin.store.store import Store

    if not is_url(options.logdir) and not os.path.exists(options.logdir):
        raise BadInput("there is no such directory", hint="check the path", file=options.logdir)
    if cache_directory(options.cache_dir) is None:
        raise BadInput("there is no folder to keep an index in", hint="give one with --cache-dir, and to the server as well")
    store = Store(
        single(options.logdir), StoreOptions(cache_dir=options.cache_dir, workers=options.workers or os.cpu_count() or 1),
        ranks_executor=cluster(options.executor) if options.executor else None,
    )  # fmt: skip
    try:
        _, listing = store.listing(600.0)
        runs = [name for name, found in listing.runs.items() if len(recordings_by_worker(found, "kineto")) > 1]
        if options.run:
            runs = [store.recording(options.run).run]
        if not runs:
            raise NotFound("no run of several ranks here", hint="give a folder whose recordings are of several workers", field="run")
        read = sum(_index_run(store, run) for run in runs)
        _make_pages(store, runs)
    finally:
        store.close()
    if not read:
        raise BadInput("no rank could be read", hint="`tb-sol doctor LOGDIR` says what was found and why it was not taken")
    return 0


def _make_pages(store: object, runs: list[str]) -> None:
    """Makes the pages over ranks as a server would, which finds them on disk then. What cannot be shown is left to the server to say."""
    from tb_sol_plugin.model.registry import get, registry
    from tb_sol_plugin.store.store import Store
    from tb_sol_plugin.web.mount import WebOptions
    from tb_sol_plugin.web.routes import create_app

    assert isinstance(store, Store)
    client = create_app(store, WebOptions()).test_client()
    same = get(PAGE).reduction.of
    pages = [name for name, item in registry().items() if item.scope == "ranks" and item.reduction.of is same]
    for run in runs:
        begin = time.monotonic()
        asked = {"run": run, "tables": "pages"}
        made = sum(client.get(f"/api/v1/analysis/{name}", query_string=asked).status_code == 200 for name in pages)
        print(f"{run}: {made} of {len(pages)} pages in {time.monotonic() - begin:.1f} s")


def _index_run(store: object, run: str) -> int:
    """Reads the ranks of a run; returns how many there are."""
    from tb_sol_plugin.model.answer import reducer_of
    from tb_sol_plugin.model.registry import get
    from tb_sol_plugin.store.store import Store

    assert isinstance(store, Store)
    reducer, decode = reducer_of(PAGE, {}), get(PAGE).reduction.decode
    shown = store.recording(run)
    begin = said = time.monotonic()
    while True:
        found = store.rank_reductions(shown, reducer, decode, wait=WAIT)
        waiting = sum(one.state == "waiting" for one in found)
        if not waiting:
            break
        if time.monotonic() - said >= WAIT:
            said = time.monotonic()
            print(f"tb-sol: {run}: {len(found) - waiting:,} of {len(found):,} ranks", file=sys.stderr)
    read = sum(one.state == "read" for one in found)
    print(f"{run}: {read:,} of {len(found):,} ranks in {time.monotonic() - begin:.1f} s")
    lost = [one for one in found if one.state != "read"]
    for one in lost[:NAMED]:
        print(f"  {one.worker}: {one.problem}{f' ({one.hint})' if one.hint else ''}")
    if len(lost) > NAMED:
        print(f"  and {len(lost) - NAMED:,} more")
    return read
