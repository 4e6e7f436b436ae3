"""What the page of scaling costs: a fit of 36 configurations, the report of it, and a logdir of many runs of several workers.

    python -m benchmarks.scaling [--runs 64] [--workers 8] [--repeats 3]

Times of steps are those of known parameters under 2 % of noise. The parts of workers are made up (2,000 steps each, the most a part
carries); the last lines are the page requested again and with another term, as a server answers it from its reductions.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

os.environ.setdefault("OMP_NUM_THREADS", "1")

import msgspec
import numpy as np

from benchmarks.timing import timed
from tb_sol_plugin.cost.goodput import bootstrap, fit, leave_one_out
from tb_sol_plugin.cost.goodput.fit import plain_objective
from tb_sol_plugin.cost.goodput.model import PerfParams, accum_time, optim_time
from tb_sol_plugin.metrics.goodput import fit as gather
from tb_sol_plugin.metrics.goodput.job import Identity
from tb_sol_plugin.metrics.goodput.part import MOST_STEPS, ScalingPart, Step
from tb_sol_plugin.model.answer import AnalysisRequest, from_runs
from tb_sol_plugin.model.recordings import RecordingReduction, ReducedFacts
from tb_sol_plugin.model.report import Report, encode

TRUE = PerfParams(0.12, 0.0056, 0.4, 0.025, 0.07, 0.0024, 1.8)
PLACES = ((1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (2, 16), (4, 16), (4, 32), (8, 32))
BATCHES = (16, 32, 64, 128)


def configurations() -> np.ndarray:
    """36 rows: nodes, replicas, micro-batch, seconds of a micro-step without and with synchronization."""
    noise = np.exp(np.random.default_rng(0).normal(0, 0.02, (len(PLACES) * len(BATCHES), 2)))
    rows = [(n, r, b, float(accum_time(TRUE, b)), float(optim_time(TRUE, n, r, b))) for n, r in PLACES for b in BATCHES]
    out = np.array(rows)
    out[:, 3:] *= noise
    return out


def parts(runs: int, workers: int) -> tuple[list[RecordingReduction[ScalingPart]], int]:
    """The parts of all workers, encoded, and the bytes of one."""
    rows = configurations()
    decode = msgspec.msgpack.Decoder(ScalingPart).decode
    out, size = [], 0
    for i in range(runs):
        n, r, b, accum, optim = rows[i % len(rows)]
        step = max(int(optim * 1e9), int(accum * 1e9))
        sync = step - int(accum * 1e9)
        for w in range(workers):
            steps = tuple(Step(k, step + 1000 * ((k * 7919 + w) % 997), sync, bool(r > 1)) for k in range(MOST_STEPS))
            part = ScalingPart(steps, 1, f"host{w}", False, int(b), "told", False, 1, 1, nodes=int(n), replicas=int(r),
                               job=Identity(parameters=10**9))  # fmt: skip
            body = msgspec.msgpack.encode(part)
            size = len(body)
            facts = ReducedFacts("kineto", w, int(r), "", "nvidia", ("NVIDIA H100 80GB HBM3",), 0, True, (0, 1))
            out.append(RecordingReduction(
                f"rank{w}", "", f"{i}/{w}", "read", w, facts, key=f"{i}.{w}", run=f"run{i}", body=lambda b=body: b, decode=decode,
            ))  # fmt: skip
    return out, size


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks.scaling", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    columns = configurations().T
    found = fit(*columns)
    print(f"{len(columns[0])} configurations")
    stages: dict[str, Callable[[], object]] = {
        "fit": lambda: fit(*columns), "resampled fits": lambda: bootstrap(found),
        "one left out": lambda: leave_one_out(found), "plain search": lambda: plain_objective(found.points),
    }  # fmt: skip
    for name, stage in stages.items():
        print(f"{name:>24} {timed(stage, options.repeats):8.3f} s")
    workers, size = parts(options.runs, options.workers)
    print(f"{options.runs} runs of {options.workers} workers; a part of {MOST_STEPS:,} steps has {size / 1000:.0f} kB")

    def page(**more: str) -> int:
        report = from_runs(AnalysisRequest("scaling", more), workers, ()).report()
        assert isinstance(report, Report)
        return len(encode(report))

    def first() -> None:
        for kept in (gather._fit, gather._left_out, gather._resampled):
            kept.cache_clear()
        gather._RUNS._known.clear()
        page()

    print(f"{'page, first':>24} {timed(first, 1):8.3f} s")
    print(f"{'page, another term':>24} {timed(lambda: page(share='40'), options.repeats):8.3f} s")
    print(f"{'its size':>24} {page() / 1000:8.0f} kB")


if __name__ == "__main__":
    main()
