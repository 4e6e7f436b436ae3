"""Roofline arithmetic over arrays: the least time of an operation on a device, and which limit sets it.

    t_sol = max(F / P, Fv / Pv, Q / W)

F, P: matrix FLOP and peak of their dtype; Fv, Pv: vector FLOP and peak; Q, W: bytes and memory bandwidth. NaN is unknown.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Floats

NONE: Final = 0
COMPUTE: Final = 1
MEMORY: Final = 2
BOUNDS: Final = ("none", "compute", "memory")

TOLERATED: Final = 1.02
"""An efficiency above this is flagged: a wrong dtype or peak, or data that never left the cache."""


def limit(
    flop: Floats, flop_vector: Floats, data: Floats, peak: Floats, vector_peak: Floats, bandwidth: float
) -> tuple[Floats, npt.NDArray[np.int8]]:
    """(t_sol in ns, bound) per operation. Work in FLOP and bytes, peaks in FLOP/s, bandwidth in bytes/s.

    Matrix work without a peak has no limit, and so has vector work whose traffic is unknown. Where only the traffic of matrix
    work or the bandwidth is unknown, its compute time stands alone (a lower bound).
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        matrix = np.where(flop > 0, flop / peak, 0.0)
        vector = np.where(flop_vector > 0, flop_vector / vector_peak, 0.0)
        memory = data / bandwidth
    compute = np.fmax(matrix, vector)
    compute = np.where((flop > 0) & np.isnan(matrix), np.nan, compute)
    time = np.where(np.isnan(memory), np.where(flop > 0, compute, np.nan), np.maximum(compute, memory))
    bound = np.where(np.isnan(time), NONE, np.where(np.isnan(memory) | (compute >= memory), COMPUTE, MEMORY)).astype(np.int8)
    bound[np.isfinite(time) & (time <= 0)] = NONE
    return time * 1e9, bound


def ratio(above: Floats, below: Floats) -> Floats:
    """above / below where both are known and below is positive, else NaN."""
    out = np.full(np.shape(above), np.nan)
    use = np.isfinite(above) & np.isfinite(below) & (below > 0)
    out[use] = above[use] / below[use]
    return out
