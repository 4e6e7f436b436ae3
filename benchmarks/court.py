"""Prints precision and recall of every rule of the findings over the library of situations with known truth.

    python -m benchmarks.court           # the table with what is known to be missed and why, and what was wrong
    python -m benchmarks.court FILE...   # whether the findings of these recordings keep the laws of all findings

Ends with 1 where a finding is false, or missing without being known to.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tb_sol_plugin.ingest import read
from tests.court.case import Verdict, judge, library, scores
from tests.court.laws import broken


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Runs the command; returns its exit status."""
    parser = argparse.ArgumentParser("python -m benchmarks.court", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="recordings to examine in place of the library")
    parser.add_argument("--only", default="", help="situations whose name contains this")
    options = parser.parse_args(arguments)
    out = console if console is not None else Console(width=150, highlight=False)
    if options.files:
        return _recordings(out, options.files)
    verdicts = [judge(s) for s in library() if options.only in s.name]
    out.print(table(verdicts))
    innocent = sum(v.situation.innocent for v in verdicts)
    out.print(f"{len(verdicts)} situations, {innocent} of them innocent look-alikes")
    bad = False
    for v in verdicts:
        for rule, f in v.wrong.items():
            bad = True
            told = v.situation.truth.get(rule)
            truth = f"true: {told.least:,.0f} to {told.most:,.0f}" if told is not None else "nothing of it is true"
            out.print(f"FALSE   {rule} in {v.situation.name}: saves {f.saving:,}; {truth}\n        {f.title} / {f.evidence} / {f.fix}")
        for rule in v.unknown:
            bad = True
            out.print(f"MISSED  {rule} in {v.situation.name}")
    return int(bad)


def table(verdicts: list[Verdict]) -> Table:
    """Returns the table of all rules."""
    grid = Table("rule", title="Findings court")
    for name in ("found", "false", "missed", "precision", "recall", "look-alikes passed"):
        grid.add_column(name, justify="right")
    for rule, s in scores(verdicts).items():
        alike = f"{s.alike} of {s.alikes}" if s.alikes else ""
        grid.add_row(rule, str(s.right), str(s.wrong), str(s.missed), _part(s.precision), _part(s.recall), alike)
    known = [f"{r} cannot see {v.situation.name}: {v.situation.truth[r].missed}" for v in verdicts for r in v.silent if r not in v.unknown]
    grid.caption = "\n".join(known) or None
    return grid


def _part(value: float | None) -> str:
    return "—" if value is None else f"{value:.2f}"


def _recordings(out: Console, files: list[Path]) -> int:
    bad = 0
    for path in files:
        found = broken(read(str(path)))
        bad += bool(found)
        out.print(f"{path.name}: {'; '.join(found) if found else 'keeps every law'}")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
