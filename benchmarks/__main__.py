"""Prints a table per file: our first opening by stage, the second, latencies over HTTP, memory, next to torch-tb-profiler.

    python -m benchmarks FILE...  [--repeats 3] [--no-theirs] [--no-rest] [--json OUT]

Every measurement runs in a process of its own; the table shows medians over the repeats. torch-tb-profiler needs the extra `parity`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import statistics
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import rest
from benchmarks.turns import measured

STAGES = ("gunzip alone", "read + decode", "trees + links", "cache write", "analyses", "first open")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--requests", type=int, default=30, help="requests per kind over HTTP")
    parser.add_argument("--no-theirs", action="store_true", help="without torch-tb-profiler")
    parser.add_argument("--no-rest", action="store_true", help="without the server")
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write all figures there")
    options = parser.parse_args()
    theirs = not options.no_theirs and importlib.util.find_spec("torch_tb_profiler") is not None
    console = Console(width=110, highlight=False)
    console.print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {options.repeats} repeats, medians")
    figures = {}
    for path in options.files:
        result = measure(path.resolve(), options.repeats, theirs=theirs, with_rest=not options.no_rest, requests=options.requests)
        figures[str(path)] = result
        console.print(table(path, result))
        if not theirs and not options.no_theirs:
            console.print('torch-tb-profiler is not installed: pip install ".[parity]"')
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def measure(path: Path, repeats: int, *, theirs: bool, with_rest: bool, requests: int) -> dict[str, dict[str, float]]:
    """All figures of one file: {"first", "second", "theirs", "rest"} by name, medians."""
    return measured(path, repeats, theirs=theirs) | ({"rest": _rest(path, requests)} if with_rest else {})


def _rest(path: Path, requests: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="tb-sol-bench-") as scratch:
        logdir = Path(scratch) / "logdir" / "run"
        logdir.mkdir(parents=True)
        ending = ".pt.trace.json.gz" if path.suffix == ".gz" else ".pt.trace.json"
        (logdir / f"worker0.1{ending}").symlink_to(path)
        before = os.environ.get("TB_SOL_CACHE_DIR")
        os.environ["TB_SOL_CACHE_DIR"] = str(Path(scratch) / "cache")
        try:
            times, first, peak = rest.latencies(logdir.parent, requests=requests)
        finally:
            os.environ.pop("TB_SOL_CACHE_DIR")
            if before is not None:
                os.environ["TB_SOL_CACHE_DIR"] = before
    out = {"first report over HTTP": first, "peak MB of all processes": peak}
    for label, values in times.items():
        if values:
            out[f"{label} p50"] = statistics.median(values)
            out[f"{label} p95"] = sorted(values)[max(int(len(values) * 0.95) - 1, 0)]
    return out


def table(path: Path, result: dict[str, dict[str, float]]) -> Table:
    """Prints the figures of one file, ours next to those of torch-tb-profiler."""
    first, second, theirs = result["first"], result["second"], result.get("theirs", {})
    size = path.stat().st_size / 1e6
    out = Table(title=f"{path.name}  ({size:.1f} MB stored, {int(first.get('events', 0)):,} events)", title_justify="left")
    for name in ("what", "tb-sol", "torch-tb-profiler", "times faster"):
        out.add_column(name, justify="left" if name == "what" else "right")
    for name in STAGES:
        out.add_row(name, seconds(first.get(name)), "", "", style="bold" if name == "first open" else None)
    for name in ("read + parse", "generate views"):
        if name in theirs:
            out.add_row(name, "", seconds(theirs[name]), "")
    if theirs.get("first open"):
        # ours computes a page on request: the first page, while the others are ready to be requested
        for label, name in (("first page, all views at hand", "first page"), ("every view computed", "first open")):
            if first.get(name):
                ratio = f"{theirs['first open'] / first[name]:.1f}"
                out.add_row(label, seconds(first[name]), seconds(theirs["first open"]), ratio, style="bold")
    out.add_row("peak memory, one process", megabytes(first.get("peak MB")), megabytes(theirs.get("peak MB")), "", end_section=True)
    for name, value in second.items():
        out.add_row(name, seconds(value), "", "")
    out.add_section()
    for name, value in sorted(first.items(), key=lambda item: -item[1]):
        if name.startswith("analysis "):
            out.add_row(name, seconds(value), "", "")
    for name in ("imports", "compile or load kernels"):
        out.add_row(name, seconds(first.get(name)), "", "")
    out.add_section()
    for name, value in result.get("rest", {}).items():
        out.add_row(name, megabytes(value) if "MB" in name else seconds(value), "", "")
    return out


def seconds(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.1f} ms"


def megabytes(value: float | None) -> str:
    return "—" if value is None else f"{value:,.0f} MB"


if __name__ == "__main__":
    main()
