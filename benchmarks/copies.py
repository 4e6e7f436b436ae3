"""What the pages on copies cost where copies are many: a made-up recording, the stages of each page, and a floor.

    python -m benchmarks.copies [--copies 100000 1000000] [--repeats 3]

The recording has the given number of copies, in steps of a thousand, each with its call, a kernel next to every fourth, and an
operator, a module and a python line around every tenth. The floor is what no page can do without: sorting the same rows by start once
and adding up one column of them, with numpy.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from rich.table import Table

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
PAGES = ("memcpy", "memcpy_findings", "memcpy_copies", "memcpy_hist")
GROUPS = ("kind", "stream", "step", "module", "frame")
KINDS = (("HtoD", "Pageable", "Device"), ("HtoD", "Pinned", "Device"), ("DtoH", "Device", "Pinned"), ("DtoD", "Device", "Device"))


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.copies", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--copies", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child)))
        return
    console = Console(width=100, highlight=False)
    for count in options.copies:
        with tempfile.TemporaryDirectory(prefix="tb-sol-bench-") as folder:
            path = Path(folder) / "rank0.1.pt.trace.json"
            written(path, count)
            command = [sys.executable, "-m", "benchmarks.copies", "--child", str(path)]
            env = {**os.environ, "TB_SOL_CACHE_DIR": folder}
            runs = [json.loads(_output(command, env)) for _ in range(options.repeats)]
        console.print(shown(count, {name: statistics.median(r[name] for r in runs) for name in runs[0]}))


def _output(command: list[str], env: dict[str, str]) -> str:
    return subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True).stdout.splitlines()[-1]


def written(path: Path, count: int) -> None:
    """Write the recording; one line per event, so that a million copies need no list of events."""
    clock = 1_000_000_000
    with path.open("w") as out:
        out.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, ')
        out.write('"computeMajor": 9, "computeMinor": 0, "numSms": 132}], "baseTimeNanoseconds": 0, "traceEvents": [\n')
        for i in range(count):
            at, size = clock + 20 * i, (1 << (2 + i % 24)) + i % 7
            if i % 1000 == 0:
                length = 20 * min(1000, count - i) - 1
                out.write(_host("user_annotation", f"ProfilerStep#{i // 1000}", at, length))
            if i % 10 == 0:
                out.write(
                    _host("python_function", f"nn.Module: Block_{i // 10 % 40}", at, 19, f'"Python id": {i}, "Python module id": {i % 40}')
                )
                out.write(
                    _host("python_function", f"train.py({i % 97}): step", at + 1, 17, f'"Python id": {i + 1}, "Python parent id": {i}')
                )
                out.write(_host("cpu_op", "aten::copy_", at + 2, 15, f'"External id": {i + 1}'))
            direction, src, dst = KINDS[i % 4]
            out.write(_host("cuda_runtime", "cudaMemcpyAsync", at + 4, 3, f'"correlation": {2 * i + 10}'))
            out.write(_device("gpu_memcpy", f"Memcpy {direction} ({src} -> {dst})", at + 8, 5, 7 + i % 2, 2 * i + 10, f', "bytes": {size}'))
            if i % 4 == 0:
                out.write(_host("cuda_runtime", "cudaLaunchKernel", at + 8, 2, f'"correlation": {2 * i + 11}'))
                out.write(_device("kernel", "gemm", at + 10, 6, 20, 2 * i + 11, ""))
        out.write(_host("user_annotation", "end", clock + 20 * count, 1).rstrip(",\n") + "\n]}\n")


def _host(category: str, name: str, start: int, length: int, args: str = "") -> str:
    return f'{{"ph":"X","cat":"{category}","name":"{name}","pid":1,"tid":1,"ts":{start},"dur":{length},"args":{{{args}}}}},\n'


def _device(category: str, name: str, start: int, length: int, stream: int, correlation: int, more: str) -> str:
    args = f'"device":0,"context":1,"stream":{stream},"correlation":{correlation}{more}'
    return f'{{"ph":"X","cat":"{category}","name":"{name}","pid":0,"tid":{stream},"ts":{start},"dur":{length},"args":{{{args}}}}},\n'


def measured(path: Path) -> dict[str, float]:
    """Seconds by stage in this process; kernels of numba are compiled before, on the smallest sample."""
    from tb_sol_plugin.ingest import read
    from tb_sol_plugin.metrics.copies import records
    from tb_sol_plugin.metrics.copies.blocking import blocking

    warm = read(str(next((ROOT / "samples" / "simulated_copies").glob("rank0_*.gz"))))
    for name in PAGES:
        warm.analyze(name)
    out: dict[str, float] = {}
    capture = _timed(out, "read the file", lambda: read(str(path)))
    device = capture.device
    start, size = device["start_ns"].to_numpy(), device["bytes"].to_numpy()

    mixed = np.random.default_rng(0).permutation(len(start))
    start, size = start[mixed], size[mixed]

    def floor() -> int:
        return int(np.cumsum(size[np.argsort(start, kind="stable")])[-1])

    _timed(out, "floor: sort, and one sum", floor)
    found = _timed(out, "records of copies", lambda: records.copies(capture, np.ones(len(device), bool)))
    _timed(out, "what blocked the host", lambda: blocking(capture, found))
    for name in PAGES:
        _timed(out, f"page {name}", lambda name=name: capture.analyze(name))  # type: ignore[misc]
    for by in GROUPS:
        _timed(out, f"memcpy by {by}", lambda by=by: capture.analyze("memcpy", by=by))  # type: ignore[misc]
    out["peak MB"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return out


def _timed(out: dict[str, float], name: str, work: Callable[[], T]) -> T:
    gc.collect()
    begun = time.perf_counter()
    value = work()
    out[name] = time.perf_counter() - begun
    return value


def shown(count: int, figures: dict[str, float]) -> Table:
    """One recording's figures; `times the floor` for what comes after reading."""
    out = Table(title=f"{count:,} copies", title_justify="left")
    for name in ("stage", "time", "times the floor"):
        out.add_column(name, justify="left" if name == "stage" else "right")
    floor = figures["floor: sort, and one sum"]
    for name, value in figures.items():
        if name == "peak MB":
            out.add_row("peak memory", f"{value:,.0f} MB", "")
        else:
            many = "" if name.startswith(("read", "floor")) else f"{value / floor:,.0f}"
            out.add_row(name, f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms", many)
    return out


if __name__ == "__main__":
    main()
