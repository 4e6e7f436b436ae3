"""Measures the opening of a file in turns, each in its own process: with an empty cache, from the cache, and by torch-tb-profiler."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def measured(path: Path, repeats: int, *, theirs: bool) -> dict[str, dict[str, float]]:
    """Returns medians of all figures of one file, `first` and `second` opening and `theirs`, by name."""
    turns: dict[str, list[dict[str, float]]] = {"first": [], "second": []} | ({"theirs": []} if theirs else {})
    for turn in range(repeats):
        print(f"{path.name}: turn {turn + 1} of {repeats}", file=sys.stderr)
        with tempfile.TemporaryDirectory(prefix="tb-sol-bench-") as scratch:
            env = {**os.environ, "TB_SOL_CACHE_DIR": str(Path(scratch) / "cache")}
            alone = Path(scratch) / "logs" / path.name  # a server starts processes to read the files beside it
            alone.parent.mkdir()
            alone.symlink_to(path.resolve())
            for which in ("first", "second"):
                turns[which].append(_child([sys.executable, "-m", "benchmarks.stages", which, str(alone)], env))
        if theirs:
            turns["theirs"].append(_child([sys.executable, str(ROOT / "benchmarks" / "theirs.py"), str(path)], dict(os.environ)))
    return {which: medians(runs) for which, runs in turns.items()}


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    """Median per name over the runs that have it; no run, nothing."""
    names = dict.fromkeys(name for run in runs for name in run)
    return {name: statistics.median([run[name] for run in runs if name in run]) for name in names}


def _child(command: list[str], env: dict[str, str]) -> dict[str, float]:
    """The JSON line a child prints; {} with its last words on stderr where it fails."""
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=3600)
    if done.returncode:
        print(f"{' '.join(command[1:])}: {done.stderr.strip().splitlines()[-1:] or done.returncode}", file=sys.stderr)
        return {}
    figures: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return figures
