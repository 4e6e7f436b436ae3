"""What the critical path costs: its graph, the passes over it, the first page and replies of what if, next to HTA on the same file.

    python -m benchmarks.critical FILE... [--hta PYTHON] [--repeats 3]

CPU seconds, medians, each in a process of its own whose compiled loops are loaded. --hta: an interpreter that has HolisticTraceAnalysis;
its time is `critical_path_analysis` of one step, or of one annotation, of a trace that is parsed. Bytes per moment are those of the graph's
columns.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.timing import Stage, table

ROOT: Final = Path(__file__).resolve().parents[1]
STAGES: Final = (
    "host events", "moments", "dependencies", "bytes per moment", "build", "replay", "slack", "first page", "what if",
    "another scale", "HTA, one step",
)  # fmt: skip
HTA: Final = """
import json, sys, time, logging
logging.disable(logging.CRITICAL)
from hta.trace_analysis import TraceAnalysis
found = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir="")
begin = time.process_time()
graph, done = found.critical_path_analysis(rank=0, annotation=sys.argv[2], instance_id=0)
print(json.dumps({"HTA, one step": time.process_time() - begin if done else None}))
"""


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.critical", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--hta", help="an interpreter that has HolisticTraceAnalysis")
    parser.add_argument("--annotation", default="ProfilerStep", help="what HTA is asked for")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.files[0])))
        return
    columns = {}
    for path in options.files:
        with tempfile.TemporaryDirectory(prefix="tb-sol-critical-") as folder:
            env = {**os.environ, "TB_SOL_CACHE_DIR": folder}
            command = [sys.executable, "-m", "benchmarks.critical", "--child", str(path)]
            runs = [json.loads(_output(command, env)) for _ in range(options.repeats)]
            if options.hta:
                theirs = [options.hta, "-c", HTA, str(path.resolve()), options.annotation]
                for run in runs:
                    run |= json.loads(_output(theirs, env))
        known = {name: [r[name] for r in runs if r.get(name) is not None] for name in STAGES}
        columns[path.name[:24]] = {name: statistics.median(values) for name, values in known.items() if values}
    print(table(["", *columns], [[name, *(_shown(name, c.get(name)) for c in columns.values())] for name in STAGES]))


def _output(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command[:4])} failed: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout.splitlines()[-1]


def _shown(name: str, value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if name in STAGES[:4] else f"{value:.4f} s"


def measured(path: Path) -> dict[str, float]:
    """Figures of one recording."""
    from tb_sol_plugin.ingest import read
    from tb_sol_plugin.metrics.critical.graph import graph_of
    from tb_sol_plugin.web.http import warm

    warm()
    capture = read(str(path))
    out: dict[str, float] = {"host events": len(capture.host)}
    with Stage(out, "build"):
        graph = graph_of(capture)
    with Stage(out, "replay"):
        graph.replay()
    with Stage(out, "slack"):
        graph.slack(np.array([int(graph.time.argmax())], np.int32), graph.time.max(keepdims=True))
    with Stage(out, "first page"):
        capture.analyze("critical_path")
    capture.analyze("what_if")
    with Stage(out, "what if"):
        capture.analyze("what_if", change="host")
    with Stage(out, "another scale"):
        capture.analyze("what_if", change="host", scale="0.4")
    out |= {"moments": len(graph.time), "dependencies": len(graph.edges), "bytes per moment": held_bytes(graph) / max(len(graph.time), 1)}
    return {name: out.get(f"cpu {name}", out.get(name, 0.0)) for name in STAGES if name in out}



def held_bytes(value: object) -> int:
    """Returns the bytes of all arrays of a graph; those that take no memory of their own count nothing."""
    if isinstance(value, np.ndarray):
        return value.nbytes if 0 not in value.strides else 0
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return sum(held_bytes(getattr(value, f.name)) for f in dataclasses.fields(value))
    return 0


if __name__ == "__main__":
    main()
