"""Roofline arithmetic over arrays: `tb_sol_plugin.roofline` for many operations at once, where NaN is what None is there.

    t_sol = max(F / P, Fv / Pv, Q / W)

F, P: matrix FLOP and peak of their dtype; Fv, Pv: vector FLOP and peak; Q, W: bytes and memory bandwidth.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.roofline import TOLERATED
from tb_sol_plugin.tables.arrays import Floats

__all__ = ["BOUNDS", "COMPUTE", "MEMORY", "NONE", "TOLERATED", "limit", "ratio", "sides"]

NONE: Final = 0
COMPUTE: Final = 1
MEMORY: Final = 2
BOUNDS: Final = ("none", "compute", "memory")


def sides(flop: Floats, flop_vector: Floats, data: Floats, peak: Floats, vector_peak: Floats, bandwidth: float) -> tuple[Floats, Floats]:
    """Returns (compute, memory) in seconds per operation: what its arithmetic and what its traffic would take. Units as in `limit`."""
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix = np.where(flop > 0, flop / np.where(peak > 0, peak, np.nan), 0.0)
        vector = np.where(flop_vector > 0, flop_vector / np.where(vector_peak > 0, vector_peak, np.nan), 0.0)
        memory = data / (bandwidth if bandwidth > 0 else np.nan)
    return np.where((flop > 0) & np.isnan(matrix), np.nan, np.fmax(matrix, vector)), memory


def limit(
    flop: Floats, flop_vector: Floats, data: Floats, peak: Floats, vector_peak: Floats, bandwidth: float
) -> tuple[Floats, npt.NDArray[np.int8]]:
    """Returns (t_sol in ns, bound) per operation. Work in FLOP and bytes, peaks in FLOP/s, bandwidth in bytes/s.

    What is unknown leaves the same unknown as `tb_sol_plugin.roofline.limit` says.
    """
    compute, memory = sides(flop, flop_vector, data, peak, vector_peak, bandwidth)
    time = np.where(np.isnan(memory), np.where(flop > 0, compute, np.nan), np.maximum(compute, memory))
    bound = np.where(np.isnan(time), NONE, np.where(np.isnan(memory) | (compute >= memory), COMPUTE, MEMORY)).astype(np.int8)
    bound[np.isfinite(time) & (time <= 0)] = NONE
    return time * 1e9, bound


def ratio(above: Floats, below: Floats) -> Floats:
    """Returns above / below where both are known and below is positive, else NaN."""
    out = np.full(np.shape(above), np.nan)
    use = np.isfinite(above) & np.isfinite(below) & (below > 0)
    out[use] = above[use] / below[use]
    return out
