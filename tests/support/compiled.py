"""Compiles all loops into numba's cache, once for all processes of a test session.

    python -m tests.support.compiled
"""

from __future__ import annotations

from pathlib import Path

from tb_sol_plugin.ingest import read
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
    warm()
    read(str(SAMPLES / SNAPSHOT))


if __name__ == "__main__":
    main()
