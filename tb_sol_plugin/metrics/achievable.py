"""Limits against what a good kernel reaches instead of what the data sheet says: the second, lower ceiling.

Matrix work of a type whose achievable rate is known (`DeviceSpec.achievable`) is bound by that rate; every other limit stays as it is.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import limit
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.tables.arrays import Floats


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
    time, _ = limit(
        flop,
        ops["flop_vector"].to_numpy(dtype=np.float64),
        ops["bytes"].to_numpy(dtype=np.float64),
        np.where(np.isfinite(reached), reached, dense),
        vector,
        spec.memory_bandwidth or np.nan,
    )
    return np.where(np.isfinite(ops["sol_ns"].to_numpy(dtype=np.float64)), time, np.nan)
