"""Why a device idles: the gaps between its work, by length and by cause."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.breakdown import spans_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Mask

CAUSES: Final = ("host_wait", "kernel_wait", "other", "unknown")
"""host_wait: the work that ends the gap was launched after the gap began, so the device ran dry and waited for the host.
kernel_wait: launched before, and the gap is shorter than `kernel_wait_ns`: the hand-over between two kernels.
other: launched before, and the device still took longer (a dependency, a sync, the launch itself).
unknown: the work that ends the gap has no recorded launch."""


def gaps(capture: Capture, rows: Mask, *, kernel_wait_ns: int = 30) -> pd.DataFrame:
    """Gaps of each device in which none of its streams runs, between its first and its last event.

    Columns: device, start_ns, duration_ns, cause (index into CAUSES), next (the device row that ends the gap).
    """
    device = capture.device
    ids = device["device"].to_numpy()
    parts = [_of_device(capture, rows & (ids == i), int(i), kernel_wait_ns) for i in np.unique(ids[rows]).tolist()]
    columns = ["device", "start_ns", "duration_ns", "cause", "next"]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({c: np.zeros(0, np.int64) for c in columns})


def _of_device(capture: Capture, rows: Mask, device_id: int, kernel_wait_ns: int) -> pd.DataFrame:
    device = capture.device
    start, end = spans_of(capture, rows)
    if not len(start):
        return pd.DataFrame({c: np.zeros(0, np.int64) for c in ("device", "start_ns", "duration_ns", "cause", "next")})
    opened, closed = end[:-1], start[1:]
    full = np.flatnonzero(rows & (device["duration_ns"].to_numpy() > 0))
    full = full[np.argsort(device["start_ns"].to_numpy()[full], kind="stable")]
    following = full[np.searchsorted(device["start_ns"].to_numpy()[full], closed, side="left")]
    call = device["call"].to_numpy()[following]
    host_start = capture.host["start_ns"].to_numpy()
    launched = np.where(call >= 0, host_start[np.maximum(call, 0)] if len(host_start) else 0, 0)
    cause = np.select(
        [call < 0, launched > opened, closed - opened < kernel_wait_ns],
        [CAUSES.index("unknown"), CAUSES.index("host_wait"), CAUSES.index("kernel_wait")],
        CAUSES.index("other"),
    )
    ids = np.full(len(opened), device_id, np.int64)
    return pd.DataFrame({"device": ids, "start_ns": opened, "duration_ns": closed - opened, "cause": cause, "next": following})


def by_cause(found: pd.DataFrame) -> dict[str, int]:
    """Idle ns per cause, every cause present."""
    total = np.bincount(found["cause"].to_numpy().astype(np.int64), weights=found["duration_ns"].to_numpy(), minlength=len(CAUSES))
    return {name: round(float(value)) for name, value in zip(CAUSES, total, strict=True)}


def by_length(found: pd.DataFrame, threshold_ns: int) -> tuple[int, int]:
    """Idle ns in gaps shorter than a threshold, and in the others."""
    duration = found["duration_ns"].to_numpy()
    short = duration < threshold_ns
    return int(duration[short].sum()), int(duration[~short].sum())
