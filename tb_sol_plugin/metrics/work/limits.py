"""Both sides of the limit of every call: what its arithmetic and what its traffic would take, and the limit at achievable rates.

    compute = max(F / P, Fv / Pv)      memory = Q / W      achievable = max(F / A, Fv / Pv, Q / W)

F, P, A: matrix FLOP, and the dense peak and the achievable rate of their type; Fv, Pv: vector FLOP and peak; Q, W: bytes and memory
bandwidth. The limit is the larger side (`cost.roofline.limit`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd

from tb_sol_plugin.cost import roofline
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.tables.arrays import Floats


class Sides(NamedTuple):
    """Times in ns per row of `Work.ops`, NaN where unknown: no cost model, no peak of the type, no bandwidth.

    achievable_ns: the limit with the achievable rate in the place of the matrix peak; known only for matrix work in a type that has
    such a rate.
    """

    compute_ns: Floats
    memory_ns: Floats
    achievable_ns: Floats


def sides(ops: pd.DataFrame, spec: DeviceSpec | None) -> Sides:
    """The sides of the limit of `ops` (rows of `Work.ops`) on `spec`. A call without a limit has none."""
    unknown = np.full(len(ops), np.nan)
    if spec is None:
        return Sides(unknown, unknown.copy(), unknown.copy())
    flop, vector, data = (ops[c].to_numpy(dtype=np.float64) for c in ("flop", "flop_vector", "bytes"))
    dense, vector_peak, reached = (
        _per_type(ops["dtype"], peak) for peak in (spec.matrix_peak, spec.vector_peak, lambda dtype: achievable(spec, dtype))
    )
    bandwidth = spec.memory_bandwidth or np.nan
    compute, memory = roofline.sides(flop, vector, data, dense, vector_peak, bandwidth)
    reach = np.where((flop > 0) & np.isfinite(reached), roofline.limit(flop, vector, data, reached, vector_peak, bandwidth)[0], np.nan)
    limited = np.isfinite(ops["sol_ns"].to_numpy(dtype=np.float64))
    return Sides(*(np.where(limited, time, np.nan) for time in (compute * 1e9, memory * 1e9, reach)))


def achievable(spec: DeviceSpec, dtype: str) -> float | None:
    """FLOP/s that a good product of `dtype` reaches in practice on the device; None where no such figure is known."""
    return spec.achievable_bf16 if dtype == "bf16" else None


def _per_type(column: pd.Series, peak: Callable[[str], float | None]) -> Floats:
    """`peak` of each row's type, NaN where there is none; asked once per type."""
    table = np.array([*(peak(str(d)) or np.nan for d in column.cat.categories), np.nan], np.float64)
    return np.asarray(table[column.cat.codes.to_numpy()], np.float64)


# -- Limits against what a good kernel reaches instead of what the data sheet says -----------------------------------
# the second, lower ceiling.
#
# Matrix work of a type whose achievable rate is known (`DeviceSpec.achievable`) is bound by that rate; every other limit stays as it is.


def achievable_limits(ops: pd.DataFrame, spec: DeviceSpec) -> Floats | None:
    """Per row of `Work.ops` its limit in ns at the achievable rates; None where the device has none, or no matrix work uses it."""
    names = ops["dtype"].cat.categories.tolist()
    codes = ops["dtype"].cat.codes.to_numpy()
    reached = np.array([*(spec.achievable(d) or np.nan for d in names), np.nan])[codes]
    flop = ops["flop"].to_numpy(dtype=np.float64)
    if not (np.isfinite(reached) & (np.nan_to_num(flop) > 0)).any():
        return None
    dense = np.array([*(spec.matrix_peak(d) or np.nan for d in names), np.nan])[codes]
    vector = np.array([*(spec.vector_peak(d) or np.nan for d in names), spec.vector_peak("") or np.nan])[codes]
    time, _ = roofline.limit(
        flop,
        ops["flop_vector"].to_numpy(dtype=np.float64),
        ops["bytes"].to_numpy(dtype=np.float64),
        np.where(np.isfinite(reached), reached, dense),
        vector,
        spec.memory_bandwidth or np.nan,
    )
    return np.where(np.isfinite(ops["sol_ns"].to_numpy(dtype=np.float64)), time, np.nan)
