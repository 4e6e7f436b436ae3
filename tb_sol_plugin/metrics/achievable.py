"""Limits against what a good kernel reaches instead of what the data sheet says: the second, lower ceiling.

The table of devices has the rate that matrix products reach in BF16; FP16 runs on the same units at the same peak, so it has the same
rate. Every other limit stays as it is.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import limit
from tb_sol_plugin.model.device import DeviceSpec

Floats = npt.NDArray[np.float64]


def achievable_peak(spec: DeviceSpec, dtype: str) -> float | None:
    """FLOP/s that matrix work in `dtype` reaches in practice; None where the table has no such rate."""
    reached, dense = spec.achievable_bf16, spec.matrix_peak("bf16")
    if reached is None or not dense or dtype not in ("bf16", "fp16"):
        return None
    peak = spec.matrix_peak(dtype)
    return None if peak is None else reached if peak == dense else None


def achievable_limits(ops: pd.DataFrame, spec: DeviceSpec) -> Floats | None:
    """Per row of `Work.ops` its limit in ns at the achievable rates; None where the device has none, or no matrix work uses it."""
    names = ops["dtype"].cat.categories.tolist()
    codes = ops["dtype"].cat.codes.to_numpy()
    reached = np.array([*(achievable_peak(spec, d) or np.nan for d in names), np.nan])[codes]
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
