"""What a link or memory can do in a direction, and what copies reach: rates, limits, and the fit of latency and bandwidth.

Bandwidth is sum of bytes over sum of time of the copies that carry bytes, never a mean of rates.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.memcpy.records import EDGES, Ints
from tb_sol_plugin.model.devices.spec import DeviceSpec

LARGE: Final = 1 << 20
"""Copies of at least 1 MiB say something about the link; smaller ones are bound by latency."""


def rate(size: Ints, time_ns: Ints) -> npt.NDArray[np.float64]:
    """Bytes per second; NaN where there is no size or no time."""
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where((size > 0) & (time_ns > 0), size / time_ns * 1e9, np.nan), np.float64)


def peaks(spec: DeviceSpec | None) -> dict[str, tuple[float, str]]:
    """Bytes/s that a direction can reach at most, and what limits it; directions without a known limit are left out.

    A copy on one device reads and writes each byte, so it gets half of the memory bandwidth.
    """
    if spec is None:
        return {}
    out: dict[str, tuple[float, str]] = {}
    if spec.pcie_bytes_per_s is not None:
        out |= dict.fromkeys(("HtoD", "DtoH"), (spec.pcie_bytes_per_s, "PCIe x16"))
    if spec.memory_bandwidth is not None:
        out |= {"DtoD": (spec.memory_bandwidth / 2, "memory / 2"), "Memset": (spec.memory_bandwidth, "memory")}
    if spec.link_bytes_per_s is not None:
        out["PtoP"] = (spec.link_bytes_per_s, {"nvlink": "NVLink", "xgmi": "xGMI"}.get(spec.link_kind.lower(), spec.link_kind or "link"))
    return out


def latency_fit(found: pd.DataFrame, direction: str) -> tuple[float, float] | None:
    """(t0 in ns, bytes/s) of `t = t0 + bytes / rate`, least squares through the 10th percentile of each size bin.

    Weighted by 1/t, so that small and large copies count alike. None with less than three filled bins or no rising line.
    """
    mine = found[(found["direction"] == direction) & (found["bytes"] > 0) & (found["duration_ns"] > 0)]
    size, time = mine["bytes"].to_numpy().astype(np.float64), mine["duration_ns"].to_numpy().astype(np.float64)
    bins = np.searchsorted(np.array(EDGES), size, side="left")
    points = []
    for one in np.unique(bins).tolist():
        s, t = size[bins == one], time[bins == one]
        fast = np.argsort(t / s, kind="stable")[: max(1, len(t) // 10)]
        points.append((float(np.median(s[fast])), float(np.median(t[fast]))))
    if len(points) < 3:
        return None
    x, y = np.array([p[0] for p in points]), np.array([p[1] for p in points])
    slope, start = np.linalg.lstsq(np.stack((x / y, 1 / y), axis=1), np.ones(len(x)), rcond=None)[0].tolist()
    return (float(start), 1e9 / float(slope)) if slope > 0 and start > 0 else None
