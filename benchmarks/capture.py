"""What tracking costs, as a table: three decoders in training, untracked and tracked in every way, interleaved.

    python -m benchmarks.capture [--rounds 7] [--device cpu] [--json OUT]
    python -m benchmarks.capture --process   # process CPU of what is always on, for steps of about 4, 6 and 90 ms
    python -m benchmarks.capture --check     # prints each figure with its bound; exit status 1 beyond, or 25 % above the committed figures
    python -m benchmarks.capture --docs      # also write the table into docs/capture.md, and the figures that --check compares with

Each tracked step is compared with an untracked one of the same process, and all ways to track alternate, so that a machine that slows down
does so for all of them; each figure is a median over the pairs.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from rich.console import Console

from benchmarks import capture_process, capture_steps
from benchmarks.capture_table import budget, into_docs, regressions, table, verdicts

ROOT = Path(__file__).resolve().parent.parent
COMMITTED = Path(__file__).with_name("capture_figures.json")


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.capture", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="turns of every way to track")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--json", type=Path, metavar="OUT", help="also write all figures there")
    parser.add_argument("--check", action="store_true", help="fail beyond the budget or 25 %% above the committed figures")
    parser.add_argument("--docs", action="store_true", help="write the table into the docs, and the figures into the folder of this file")
    parser.add_argument("--process", action="store_true", help="only the process CPU of what is always on, over steps of several lengths")
    options = parser.parse_args()
    if options.process:
        print(capture_process.table(capture_process.measure(rounds=options.rounds, device=options.device)))
        return
    with tempfile.TemporaryDirectory(prefix="tb-sol-bench-") as folder:
        figures = capture_steps.measure(Path(folder), rounds=options.rounds, device=options.device)
    Console(width=110, highlight=False).print(table(figures))
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")
    committed = json.loads(COMMITTED.read_text()) if COMMITTED.exists() else {}
    if options.docs:
        COMMITTED.write_text(json.dumps({**committed, options.device: figures}, indent=1) + "\n")
        into_docs(ROOT / "docs" / "capture.md", options.device, figures)
    if options.check:
        print(*verdicts(figures), sep="\n")
        problems = budget(figures) + regressions(figures, committed.get(options.device, {}))
        for problem in problems:
            print(problem, file=sys.stderr)
        sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
