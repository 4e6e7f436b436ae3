"""Many ranks at once: a run of N files through the store's worker processes, next to the loader of torch-tb-profiler on the same files.

    python -m benchmarks.ranks FILE [--ranks 64] [--compare]

Both start their processes in the time measured. Ours ends when the last capture can be analyzed, theirs when all views of the run are made.
--compare measures the comparison of all ranks instead, as the page does: when the first answer comes, when the whole one, how long one
takes while reading goes on, when it comes from a server that finds the parts on disk, and the memory of the server and of its workers.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import psutil
from flask.testing import FlaskClient

from tb_sol_plugin.errors import StillLoading
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store.load import Loader
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.scan import Heads, scan

ROOT = Path(__file__).resolve().parents[1]


class Opened(NamedTuple):
    """Seconds from the first request to the last capture, s of CPU time of all processes with their starts, and the most memory of all, MB.

    shared: what two processes share counts once (PSS, where the system tells it). alone: it counts for each (RSS).
    """

    seconds: float
    cpu: float
    shared: float
    alone: float


def ours(path: Path, ranks: int) -> Opened:
    """Returns what opening all ranks of one run takes."""
    shared, alone, done = 0.0, 0.0, threading.Event()

    def sample_memory() -> None:
        nonlocal shared, alone
        me = psutil.Process()
        while not done.wait(0.25):
            processes = [me, *me.children(recursive=True)]
            shared = max(shared, sum(map(_pss, processes)) / 1e6)
            alone = max(alone, sum(map(_rss, processes)) / 1e6)

    with tempfile.TemporaryDirectory(prefix="tb-sol-ranks-") as scratch:
        folder = Path(scratch) / "logdir" / "run"
        folder.mkdir(parents=True)
        for rank in range(ranks):
            (folder / f"host_{rank}.1.pt.trace.json.gz").symlink_to(path)
        options = StoreOptions(cache_dir=str(Path(scratch) / "cache"))
        watcher = threading.Thread(target=sample_memory, daemon=True)
        watcher.start()
        before = used()
        loader = Loader(options)
        with ThreadPoolExecutor(ranks) as pool:
            begin = time.perf_counter()
            list(pool.map(lambda r: _open(loader, r), _recordings(folder.parent, options)))
            seconds = time.perf_counter() - begin
        done.set()
        watcher.join()
        loader.close()
        gone = time.monotonic() + 5
        while psutil.Process().children() and time.monotonic() < gone:  # a process that has not ended is in no sum
            time.sleep(0.05)
    return Opened(seconds, used() - before, shared, alone)


def used() -> float:
    """Returns CPU seconds of this process and of those it started that have ended."""
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)


def _rss(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.NoSuchProcess):
        return int(process.memory_info().rss)
    return 0


def _pss(process: psutil.Process) -> int:
    try:
        with open(f"/proc/{process.pid}/smaps_rollup", encoding="ascii") as stream:
            return next(int(line.split()[1]) << 10 for line in stream if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _rss(process)


def _recordings(logdir: Path, options: StoreOptions) -> list[Recording]:
    return [r for run in scan(single(str(logdir)), options, Heads({})).runs.values() for r in run]


def _open(loader: Loader, recording: Recording) -> None:
    while True:
        with contextlib.suppress(StillLoading):
            loader.capture(recording, wait=60.0)
            return


def compare(path: Path, ranks: int) -> dict[str, float]:
    """Seconds to the first and the whole answer, the slowest request meanwhile, a new server's answer; peak MB of server and of all."""
    from tb_sol_plugin.store.store import Store
    from tb_sol_plugin.web.mount import WebOptions
    from tb_sol_plugin.web.routes import create_app

    found = {"first_s": 0.0, "whole_s": 0.0, "slowest_s": 0.0, "again_s": 0.0, "measure_s": 0.0, "server_mb": 0.0, "all_mb": 0.0}
    done = threading.Event()

    def sample_memory() -> None:
        me = psutil.Process()
        while not done.wait(0.1):
            own, rest = me.memory_info().rss / 1e6, 0.0
            for child in me.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    rest += child.memory_info().rss / 1e6
            found["server_mb"], found["all_mb"] = max(found["server_mb"], own), max(found["all_mb"], own + rest)

    def ask(client: FlaskClient, more: str = "") -> tuple[float, bool, bool]:
        """(seconds, whether it is a report, whether of all ranks)."""
        begin = time.perf_counter()
        answer = client.get(f"/api/v1/analysis/memcpy_ranks?run=run{more}", headers={"Prefer": "respond-async"})
        return time.perf_counter() - begin, answer.status_code == 200, "reading" not in answer.get_json()

    with tempfile.TemporaryDirectory(prefix="tb-sol-ranks-") as scratch:
        folder = Path(scratch) / "logdir" / "run"
        folder.mkdir(parents=True)
        for rank in range(ranks):
            (folder / f"rank{rank}.1.pt.trace.json.gz").symlink_to(path)
        options = StoreOptions(cache_dir=str(Path(scratch) / "cache"))
        store = Store(single(str(folder.parent)), options)
        client = create_app(store, WebOptions()).test_client()
        watcher = threading.Thread(target=sample_memory, daemon=True)
        watcher.start()
        begin = time.perf_counter()
        while True:
            seconds, report, whole = ask(client)
            found["slowest_s"] = max(found["slowest_s"], seconds)
            if report:
                found["first_s"] = found["first_s"] or time.perf_counter() - begin
                if whole:
                    break
            time.sleep(0.6 if report else 0.15)
        found["whole_s"] = time.perf_counter() - begin
        store.close()
        other = Store(single(str(folder.parent)), options)
        other.listing(30.0)
        client = create_app(other, WebOptions()).test_client()
        found["again_s"] = ask(client)[0]
        found["measure_s"] = ask(client, "&what=bytes")[0]
        done.set()
        watcher.join()
        other.close()
    return found


def theirs(path: Path, ranks: int) -> tuple[float, float]:
    """Seconds torch-tb-profiler's loader takes for the run, and of CPU time; it starts one process per file."""
    before = used()
    with tempfile.TemporaryDirectory(prefix="tb-sol-ranks-") as scratch:
        for rank in range(ranks):
            (Path(scratch) / f"host_{rank}.1.pt.trace.json.gz").symlink_to(path)
        command = [sys.executable, str(ROOT / "benchmarks" / "theirs_run.py"), scratch]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1])["seconds"]), used() - before


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.ranks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--no-theirs", action="store_true", help="without torch-tb-profiler")
    parser.add_argument("--compare", action="store_true", help="the comparison of all ranks, as the page requests it")
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    if options.compare:
        f = compare(options.file.resolve(), options.ranks)
        print(f"{options.ranks} ranks on {cores} cores: first answer after {f['first_s']:.2f} s, all after {f['whole_s']:.1f} s")
        print(f"slowest request {f['slowest_s']:.2f} s; a new server {f['again_s']:.2f} s, another measure {f['measure_s']:.2f} s")
        print(f"server {f['server_mb']:,.0f} MB, with its workers {f['all_mb']:,.0f} MB")
        return
    own = ours(options.file.resolve(), options.ranks)
    print(
        f"tb-sol             {options.ranks} ranks in {own.seconds:.2f} s ({own.cpu:.2f} s CPU) on {cores} cores; "
        f"{own.shared:,.0f} MB in all processes, {own.alone:,.0f} MB if what they share counts for each"
    )
    if not options.no_theirs and importlib.util.find_spec("torch_tb_profiler"):
        whole, cpu = theirs(options.file.resolve(), options.ranks)
        times = f"{whole / own.seconds:.1f} times as long, {cpu / own.cpu:.1f} times the CPU time"
        print(f"torch-tb-profiler  {options.ranks} ranks in {whole:.1f} s ({cpu:.1f} s CPU): {times}")


if __name__ == "__main__":
    main()
