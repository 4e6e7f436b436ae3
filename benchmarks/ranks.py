"""Many ranks at once: a run of N files through the store's worker processes, beside torch-tb-profiler's own loader on the same files.

    python -m benchmarks.ranks FILE [--ranks 64]

Both start their processes in the time measured. Ours ends when the last capture can be asked, theirs when all views of the run stand.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

from tb_sol_plugin.errors import StillLoading
from tb_sol_plugin.model.run import Recording
from tb_sol_plugin.store.load import Loader
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.places import single
from tb_sol_plugin.store.scan import Heads, scan

ROOT = Path(__file__).resolve().parents[1]


def ours(path: Path, ranks: int) -> tuple[float, float]:
    """(seconds, peak MB of this process and its workers) for opening all ranks of one run."""
    peak, done = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        me = psutil.Process()
        while not done.wait(0.1):
            processes = [me, *me.children(recursive=True)]
            total = 0
            for process in processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    total += process.memory_info().rss
            peak = max(peak, total / 1e6)

    with tempfile.TemporaryDirectory(prefix="tb-sol-ranks-") as scratch:
        folder = Path(scratch) / "logdir" / "run"
        folder.mkdir(parents=True)
        for rank in range(ranks):
            (folder / f"host_{rank}.1.pt.trace.json.gz").symlink_to(path)
        options = StoreOptions(cache_dir=str(Path(scratch) / "cache"))
        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        loader = Loader(options)
        with ThreadPoolExecutor(ranks) as pool:
            begin = time.perf_counter()
            list(pool.map(lambda r: _open(loader, r), _recordings(folder.parent, options)))
            seconds = time.perf_counter() - begin
        done.set()
        watcher.join()
        loader.close()
    return seconds, peak


def _recordings(logdir: Path, options: StoreOptions) -> list[Recording]:
    return [r for run in scan(single(str(logdir)), options, Heads({})).runs.values() for r in run]


def _open(loader: Loader, recording: Recording) -> None:
    while True:
        with contextlib.suppress(StillLoading):
            loader.capture(recording, wait=60.0)
            return


def theirs(path: Path, ranks: int) -> float:
    """Seconds torch-tb-profiler's loader takes for the run; it starts one process per file."""
    with tempfile.TemporaryDirectory(prefix="tb-sol-ranks-") as scratch:
        for rank in range(ranks):
            (Path(scratch) / f"host_{rank}.1.pt.trace.json.gz").symlink_to(path)
        command = [sys.executable, str(ROOT / "benchmarks" / "theirs_run.py"), scratch]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout.strip().splitlines()[-1])["seconds"])


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.ranks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--no-theirs", action="store_true", help="without torch-tb-profiler")
    options = parser.parse_args()
    cores = os.cpu_count() or 1
    seconds, peak = ours(options.file.resolve(), options.ranks)
    print(f"tb-sol             {options.ranks} ranks in {seconds:.2f} s on {cores} cores, {peak:,.0f} MB in all processes")
    if not options.no_theirs and importlib.util.find_spec("torch_tb_profiler"):
        whole = theirs(options.file.resolve(), options.ranks)
        print(f"torch-tb-profiler  {options.ranks} ranks in {whole:.1f} s: {whole / seconds:.1f} times slower")


if __name__ == "__main__":
    main()
