"""The index of a run of many ranks: ranks per second with 1, 2 and 4 processes, the first page from it, and the memory of the server.

    python -m benchmarks.ranks_index [--ranks 1024] [--folder DIR] [--workers 1 2 4] [--dask [1 2 4]]

The ranks are simulated (588 collectives each on 128 hosts at 1,024 ranks) and written to the folder first, unless they are there already.
Each index is made by `tb-sol index` into an empty cache. The first page is asked of a new process, which has read nothing: from all that
the index left, then without the pages, then from what was reduced from each rank alone. --dask: on so many workers of a cluster of this
machine as well; `--workers --dask 4` on four of these alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

PAGE: Final = """
import json, resource, sys, time
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.store import Store
from tb_sol_plugin.web.mount import WebOptions
from tb_sol_plugin.web.routes import create_app
store = Store(single(sys.argv[1]), StoreOptions(cache_dir=sys.argv[2]))
store.listing(60.0)
client = create_app(store, WebOptions()).test_client()
begin, used = time.perf_counter(), time.process_time()
answer = client.get("/api/v1/analysis/ranks?tables=pages&wait=30")
seconds, cpu = time.perf_counter() - begin, time.process_time() - used
assert answer.status_code == 200, answer.status_code
print(json.dumps([seconds, cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3]))
store.close()
"""


class Page(NamedTuple):
    """How long the first page takes a new server, s, of which s of CPU time; its largest memory, MB."""

    seconds: float
    cpu: float
    megabytes: float


def simulated(folder: Path, ranks: int) -> Path:
    """Writes the ranks into a folder, unless they are there; returns the logdir."""
    from tests.support.rank_factory import Job, Slow, simulate

    if len(list((folder / "job").glob("*.json.gz"))) != ranks:
        stragglers = (Slow(ranks // 13, "dataloader", 5e6), Slow(ranks // 3, "host", 3e6))
        simulate(Job(tp=8, dp=ranks // 8, layers=11, steps=12, stragglers=stragglers)).write(folder / "job")
    return folder


def index(logdir: Path, cache: Path, *more: str) -> float:
    """Returns seconds in which `tb-sol index` reads all ranks into an empty cache, as it says."""
    shutil.rmtree(cache, ignore_errors=True)
    command = [sys.executable, "-m", "tb_sol_plugin.cli", "index", str(logdir), "--cache-dir", str(cache), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.splitlines()[0].rsplit(" ", 2)[1])


def used() -> float:
    """Returns CPU seconds of all processes that were started and have ended."""
    found = resource.getrusage(resource.RUSAGE_CHILDREN)
    return found.ru_utime + found.ru_stime


def say(how: str, ranks: int, seconds: float, cpu: float) -> None:
    """Prints how fast ranks were read, and what CPU time each took with starting processes and making pages: load takes none of that."""
    print(f"{how}: {ranks / seconds:.1f} ranks/s; {cpu / ranks * 1e3:.0f} ms of CPU time per rank, pages and starts in it", flush=True)


def first_page(logdir: Path, cache: Path) -> Page:
    """Returns what the first page costs a new server."""
    done = subprocess.run([sys.executable, "-c", PAGE, str(logdir), str(cache)], capture_output=True, text=True, check=True)
    return Page(*json.loads(done.stdout.splitlines()[-1]))


@contextlib.contextmanager
def dask(workers: int) -> Iterator[str]:
    """Starts a cluster of worker processes of this machine; yields its address as `--executor` takes it."""
    from distributed import LocalCluster

    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None, silence_logs=50) as made:
        yield made.scheduler_address.replace("tcp://", "dask://")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.ranks_index", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--folder", type=Path, help="where the simulated ranks are, or go (default: a temporary one)")
    parser.add_argument("--workers", type=int, nargs="*", default=[1, 2, 4], help="processes of each index; none: no such index")
    parser.add_argument("--dask", type=int, nargs="*", help="the same on a Dask cluster of this machine (default: as many workers)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tb-sol-index-") as scratch:
        begin = time.perf_counter()
        logdir, cache = simulated(options.folder or Path(scratch) / "logs", options.ranks), Path(scratch) / "cache"
        print(f"{options.ranks} ranks written in {time.perf_counter() - begin:.0f} s", flush=True)
        for count in options.workers:
            before = used()
            seconds = index(logdir, cache, "--workers", str(count))
            say(f"{count} processes", options.ranks, seconds, used() - before)
        for count in () if options.dask is None else options.dask or options.workers:
            before = used()
            with dask(count) as address:
                seconds = index(logdir, cache, "--executor", address)
            say(f"{count} workers of Dask", options.ranks, seconds, used() - before)
        for place in ("runs", "jobs"):
            print(f"{place}: {sum(p.stat().st_size for p in (cache / place).rglob('*.p*')) / 1e6:.1f} MB")
        for name, gone in (("the index and its pages", "answers"), ("the index", "jobs"), ("what was reduced from each rank alone", "")):
            page = first_page(logdir, cache)
            print(f"first page from {name}: {page.seconds:.2f} s ({page.cpu:.2f} s CPU), {page.megabytes:,.0f} MB")
            shutil.rmtree(cache / (gone or "answers"), ignore_errors=True)
            shutil.rmtree(cache / "answers", ignore_errors=True)


if __name__ == "__main__":
    main()
