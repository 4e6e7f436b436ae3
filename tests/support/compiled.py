"""Compiles all loops into numba's cache, once for all processes of a test session.

    python -m tests.support.compiled
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.timeline import find
from tb_sol_plugin.metrics.timeline.timeline import timeline_of
from tb_sol_plugin.tables import pyramid
from tb_sol_plugin.web.http import warm

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
TRACE = "simulated_gpu_train/rank0_4000.1700000000000000000.pt.trace.json.gz"
SNAPSHOT = "simulated_memory/before/sim0_rank0.pickle.gz"
ANALYSES = ("gpu_breakdown", "operators", "modules", "memcpy", "memory", "timeline_selection")


def main() -> None:
    """Reads a trace and an allocator snapshot, runs the analyses whose loops are compiled, and loads all loops as a server does."""
    capture = read(str(SAMPLES / TRACE))
    for name in ANALYSES:
        capture.analyze(name)
    find.search(timeline_of(capture), np.zeros(1, np.int64), None, 0, 1)
    pyramid.load()
    warm()
    read(str(SAMPLES / SNAPSHOT))


if __name__ == "__main__":
    main()
