"""Measures what opening traces of several sizes costs by stage, beside torch-tb-profiler, and writes the figures of docs/performance.md.

    python -m benchmarks.performance FILE... [--grow FILE...] [--repeats 5]

FILE: measured beside torch-tb-profiler (extra `parity`), in turns. --grow: files of one kind and growing size, whose analyses should grow
with the file; torch-tb-profiler is left out. Every measurement runs in a process of its own. Afterwards `make generate` makes the page.
Run it on a quiet machine: a second process takes caches and memory bandwidth from the first.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from datetime import date
from pathlib import Path
from typing import TypeAlias

from benchmarks.__main__ import ROOT, _child, medians
from benchmarks.performance_page import FIGURES

Figures: TypeAlias = dict[str, dict[str, dict[str, float]]]
"""By file: `first` and `second` opening of ours, and `theirs`, by name of the figure."""


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.performance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--grow", nargs="+", type=Path, metavar="FILE", default=[])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    files = {label(path): measured(path.resolve(), options.repeats, theirs=True) for path in options.files}
    grow = {label(path): measured(path.resolve(), options.repeats, theirs=False) for path in options.grow}
    made = {
        "machine": processor(), "cores": os.cpu_count(), "python": platform.python_version(), "date": date.today().isoformat(),
        "repeats": options.repeats, "files": files, "grow": grow,
    }  # fmt: skip
    FIGURES.write_text(json.dumps(rounded(made), indent=1) + "\n", encoding="utf-8")
    print(FIGURES.relative_to(ROOT))


def label(path: Path) -> str:
    """Returns the name of a file before its endings."""
    return path.name.split(".")[0]


def measured(path: Path, repeats: int, *, theirs: bool) -> dict[str, dict[str, float]]:
    """Returns medians of all figures of one file; each turn has ours with an empty cache, ours from the cache, and theirs."""
    turns: dict[str, list[dict[str, float]]] = {"first": [], "second": []} | ({"theirs": []} if theirs else {})
    for turn in range(repeats):
        print(f"{label(path)}: turn {turn + 1} of {repeats}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="tb-sol-bench-") as scratch:
            env = {**os.environ, "TB_SOL_CACHE_DIR": scratch}
            for which in ("first", "second"):
                turns[which].append(_child([sys.executable, "-m", "benchmarks.stages", which, str(path)], env))
            shutil.rmtree(scratch, ignore_errors=True)
            os.makedirs(scratch)
        if theirs:
            turns["theirs"].append(_child([sys.executable, str(ROOT / "benchmarks" / "theirs.py"), str(path)], dict(os.environ)))
    return {which: medians(runs) for which, runs in turns.items()}


def processor() -> str:
    """Returns the name of the processor, as far as the system tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.exists() else []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor() or "unknown")


def rounded(value: object) -> object:
    """Returns figures with four significant digits."""
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
