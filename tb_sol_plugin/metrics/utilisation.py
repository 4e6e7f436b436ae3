"""How much of the device a stretch of time used: model FLOP utilisation, hardware FLOP utilisation, bandwidth utilisation.

    MFU = sum over types d of F[d] / P[d], over the time; F without recomputed work
    HFU = the same with recomputed work
    bandwidth utilisation = least bytes / (time x bandwidth)

F: matrix FLOP (products, convolutions, attention; causal-aware). P: dense matrix peak. The definitions of MFU and HFU are those of
Chowdhery et al., PaLM (2022), appendix B; with several types the time at the peak of each is summed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tb_sol_plugin.devices.spec import DeviceSpec


@dataclass(frozen=True)
class Utilisation:
    """mfu, hfu, bandwidth_utilisation: ratios, None where the peak, the work or the time is unknown.

    model_flop, recompute_flop: matrix FLOP, None without any matrix work. without_peak_flop: the part in types without a peak, which
    is in no ratio. dtype: the type that holds most of the matrix work, "" without.
    """

    mfu: float | None
    hfu: float | None
    model_flop: int | None
    recompute_flop: int | None
    bandwidth_utilisation: float | None
    dtype: str
    without_peak_flop: int = 0


def utilisation(ops: pd.DataFrame, spec: DeviceSpec | None, time_ns: int, *, devices: int = 1) -> Utilisation:
    """Use of `devices` equal devices over `time_ns` by the calls `ops` (rows of `Work.ops`)."""
    flop = np.nan_to_num(ops["flop"].to_numpy(dtype=np.float64))
    again = ops["recompute"].to_numpy()
    codes = ops["dtype"].cat.codes.to_numpy()
    names = [*ops["dtype"].cat.categories.astype(str), ""]
    by_type = {
        part: np.bincount(np.where(codes < 0, len(names) - 1, codes)[mask], flop[mask], minlength=len(names))
        for part, mask in (("first", ~again), ("again", again))
    }
    both = by_type["first"] + by_type["again"]
    if not both.sum() > 0:
        return Utilisation(None, None, None, None, _bandwidth(ops, spec, time_ns, devices), "")
    peaks = np.array([(spec.matrix_peak(name) or np.nan) if spec is not None else np.nan for name in names])
    lost = np.isnan(peaks)

    def ratio(work: np.ndarray) -> float | None:
        seconds = float((work[~lost] / peaks[~lost]).sum())
        return seconds * 1e9 / (time_ns * devices) if time_ns > 0 and both[~lost].sum() > 0 else None

    return Utilisation(
        ratio(by_type["first"]),
        ratio(both),
        round(float(by_type["first"].sum())),
        round(float(by_type["again"].sum())),
        _bandwidth(ops, spec, time_ns, devices),
        names[int(np.argmax(both))],
        round(float(both[lost].sum())) if spec is not None else 0,
    )


def _bandwidth(ops: pd.DataFrame, spec: DeviceSpec | None, time_ns: int, devices: int) -> float | None:
    data = ops["bytes"].to_numpy(dtype=np.float64)[ops["modelled"].to_numpy()]
    good = np.isfinite(data)
    if spec is None or not spec.memory_bandwidth or time_ns <= 0 or not good.any():
        return None
    return float(data[good].sum()) * 1e9 / (time_ns * devices * spec.memory_bandwidth)
