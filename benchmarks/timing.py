"""What the benchmarks share: the time of a stage."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def timed(stage: Callable[[], object], repeats: int) -> float:
    """Median seconds."""
    out = []
    for _ in range(repeats):
        begin = time.perf_counter()
        stage()
        out.append(time.perf_counter() - begin)
    return statistics.median(out)
