"""Copies by size: the bins, and what is in each."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.attribution import sum_by
from tb_sol_plugin.metrics.memcpy.link import rate
from tb_sol_plugin.metrics.memcpy.records import BINS, DIRECTIONS, EDGES


def sizes(found: pd.DataFrame) -> pd.DataFrame:
    """The size histogram: direction, bin (index into BINS), count, bytes, time_ns, bandwidth_bytes_per_s.

    In order of display, filled bins only. Copies without bytes are left out.
    """
    known = found["bytes"].to_numpy() >= 0
    size, time = found["bytes"].to_numpy()[known], found["duration_ns"].to_numpy()[known]
    code, names = pd.factorize(found["direction"].to_numpy(object)[known])
    order = sorted(range(len(names)), key=lambda i: (DIRECTIONS.index(names[i]) if names[i] in DIRECTIONS else len(DIRECTIONS), i))
    place = np.zeros(len(names), np.int64)
    place[order] = np.arange(len(names))
    cell = place[code] * len(BINS) + np.searchsorted(np.array(EDGES), size, side="left") if len(code) else np.zeros(0, np.int64)
    cells = len(names) * len(BINS)
    count = np.bincount(cell, minlength=cells).astype(np.int64)
    filled = np.flatnonzero(count)
    moved, took = sum_by(cell, size, cells)[filled], sum_by(cell, time, cells)[filled]
    return pd.DataFrame({
        "direction": np.array([names[order[c // len(BINS)]] for c in filled.tolist()], object), "bin": filled % len(BINS),
        "count": count[filled], "bytes": moved, "time_ns": took, "bandwidth_bytes_per_s": rate(moved, took),
    })  # fmt: skip
