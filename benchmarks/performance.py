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
from datetime import date
from pathlib import Path

from benchmarks.performance_page import FIGURES
from benchmarks.timing import rounded
from benchmarks.turns import ROOT, measured
from tb_sol_plugin.devices.measure import cpu_name


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.performance", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--grow", nargs="+", type=Path, metavar="FILE", default=[])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    files = {label(path): measured(path.resolve(), options.repeats, theirs=True) for path in options.files}
    grow = {label(path): measured(path.resolve(), options.repeats, theirs=False) for path in options.grow}
    made = {
        "machine": cpu_name(), "cores": os.cpu_count(), "python": platform.python_version(), "date": date.today().isoformat(),
        "repeats": options.repeats, "files": files, "grow": grow,
    }  # fmt: skip
    FIGURES.write_text(json.dumps(rounded(made), indent=1) + "\n", encoding="utf-8")
    print(FIGURES.relative_to(ROOT))


def label(path: Path) -> str:
    """Returns the name of a file before its endings."""
    return path.name.split(".")[0]



if __name__ == "__main__":
    main()
