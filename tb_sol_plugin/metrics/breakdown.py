"""What a device does with its time: computation, communication, copies, idle, as unions of intervals.

Classes of a device event, each event in exactly one:
    computation     kernels that are neither communication nor a copy kernel, and sets of memory (memset)
    communication   collective and peer kernels, by the wide or the narrow rule of the recording's columns
    memcpy          copies, and copies that run as a kernel
Nothing is rounded: integer nanoseconds throughout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as I
from tb_sol_plugin.tables.arrays import Mask

Rule: TypeAlias = Literal["wide", "narrow"]

COMPUTATION: Final = 0
COMMUNICATION: Final = 1
MEMCPY: Final = 2
CLASSES: Final = ("computation", "communication", "memcpy")


def device_word(capture: Capture) -> str:
    """What to call the device in a sentence: a GPU where the recorder's vendor makes one, else plainly "device"."""
    return "GPU" if capture.facts.vendor in ("nvidia", "amd", "xpu") else "device"


def classes(capture: Capture, rule: Rule = "wide") -> npt.NDArray[np.int8]:
    """Index into CLASSES per device row."""
    return memo(capture, ("classes", rule), lambda: _classes(capture.device, rule))


def _classes(device: pd.DataFrame, rule: Rule) -> npt.NDArray[np.int8]:
    kind = device["kind"].to_numpy()
    is_kernel = kind == S.KERNEL
    column = "communication" if rule == "wide" else "communication_narrow"
    out = np.full(len(device), COMPUTATION, np.int8)
    out[is_kernel & device[column].to_numpy()] = COMMUNICATION
    out[(kind == S.MEMCPY) | (is_kernel & device["copy_kernel"].to_numpy())] = MEMCPY
    return out


def linked(capture: Capture) -> Mask:
    """Device rows that found their launch, by correlation or by flow."""
    return np.isin(capture.device["link"].to_numpy(), (S.BY_CORRELATION, S.BY_FLOW))


@dataclass(frozen=True)
class Layers:
    """The union of intervals of each class. They overlap; `exclusive` takes them apart in this order."""

    computation: I.Spans
    communication: I.Spans
    memcpy: I.Spans

    @property
    def busy(self) -> I.Spans:
        return I.merge(self.computation, self.communication, self.memcpy)

    @property
    def busy_ns(self) -> int:
        return I.length(self.busy)

    def exclusive(self) -> tuple[I.Spans, I.Spans, I.Spans]:
        """Computation; communication outside it; copies outside both. Their lengths add up to the busy time."""
        computation, communication, memcpy = I.exclusive([self.computation, self.communication, self.memcpy])
        return computation, communication, memcpy


def spans_of(capture: Capture, rows: Mask) -> I.Spans:
    """Union of the intervals of some device rows."""
    start = capture.device["start_ns"].to_numpy()[rows]
    return I.union(start, start + capture.device["duration_ns"].to_numpy()[rows])


def layers(capture: Capture, rows: Mask, *, rule: Rule = "wide") -> Layers:
    """The three layers over some device rows."""
    kind = classes(capture, rule)
    return Layers(*(spans_of(capture, rows & (kind == k)) for k in (COMPUTATION, COMMUNICATION, MEMCPY)))


def breakdown(capture: Capture, where: Scope, *, rule: Rule = "wide", only_linked: bool = False) -> pd.DataFrame:
    """The breakdown of each device of a scope, first the row `all`: the union over all devices on one clock.

    Columns: device (id as text), events, total_ns (last end - first start of the device's events), busy_ns, idle_ns,
    computation_ns, communication_ns, exposed_communication_ns (not behind computation), memcpy_ns,
    exposed_memcpy_ns (behind neither), overlap_ns (communication behind computation), kernel_ns (union of kernels),
    window_ns (first step's start to last step's end; the extent where no step was recorded), utilization and
    kernel_utilization (busy and kernel time inside the window over it), sm_efficiency and occupancy_pct (NaN where the
    recorder gave no launch figures). total = busy + idle; busy = computation + exposed communication + exposed memcpy.
    """
    rows = where.device & linked(capture) if only_linked else where.device
    ids = capture.device["device"].to_numpy()
    frames = [_row(capture, "all", rows, where, rule)]
    frames += [_row(capture, str(i), rows & (ids == i), where, rule) for i in np.unique(ids[rows]).tolist()]
    return pd.DataFrame(frames)


def steps_window(capture: Capture, where: Scope) -> tuple[int, int]:
    """First start to last end (GPU-aware) of the scope's steps; the scope's window where there are none."""
    if not where.rows:
        return where.window_ns
    chosen = list(where.rows)
    return int(capture.steps["start_ns"].to_numpy()[chosen].min()), int(capture.steps["end_ns"].to_numpy()[chosen].max())


def _row(capture: Capture, name: str, rows: Mask, where: Scope, rule: Rule) -> dict[str, str | int | float]:
    device = capture.device
    found = layers(capture, rows, rule=rule)
    start = device["start_ns"].to_numpy()[rows]
    end = start + device["duration_ns"].to_numpy()[rows]
    total = int(end.max() - start.min()) if len(start) else 0
    busy = found.busy
    _, exposed_communication, exposed_memcpy = found.exclusive()
    kernel_rows = rows & (device["kind"].to_numpy() == S.KERNEL)
    kernels = spans_of(capture, kernel_rows)
    low, high = steps_window(capture, where)
    window = high - low
    return {
        "device": name,
        "events": len(start),
        "total_ns": total,
        "busy_ns": found.busy_ns,
        "idle_ns": total - found.busy_ns,
        "computation_ns": I.length(found.computation),
        "communication_ns": I.length(found.communication),
        "exposed_communication_ns": I.length(exposed_communication),
        "memcpy_ns": I.length(found.memcpy),
        "exposed_memcpy_ns": I.length(exposed_memcpy),
        "overlap_ns": I.length(found.communication) - I.length(exposed_communication),
        "kernel_ns": I.length(kernels),
        "window_ns": window,
        "utilization": I.length(I.clip(busy, low, high)) / window if window else np.nan,
        "kernel_utilization": I.length(I.clip(kernels, low, high)) / window if window else np.nan,
        "sm_efficiency": sm_efficiency(capture, kernel_rows, low, high),
        "occupancy_pct": occupancy(capture, kernel_rows, low, high),
    }


def sm_efficiency(capture: Capture, rows: Mask, low: int, high: int) -> float:
    """Estimated share of multiprocessors with work over a window: the integral of min(blocks per SM of the running kernels, 1).

    NaN where no kernel carries `blocks per SM` (AMD's tracer, old recorders).
    """
    device = capture.device
    blocks = device["blocks_per_sm"].to_numpy()
    rows = rows & np.isfinite(blocks)
    start = np.clip(device["start_ns"].to_numpy()[rows], low, high)
    end = np.clip((device["start_ns"].to_numpy() + device["duration_ns"].to_numpy())[rows], low, high)
    if high <= low or not rows.any():
        return float("nan")
    at = np.concatenate((start, end))
    order = np.argsort(at, kind="stable")
    level = np.cumsum(np.concatenate((blocks[rows], -blocks[rows]))[order])
    length = np.diff(at[order], append=at[order][-1])
    return float((np.clip(level, 0.0, 1.0) * length).sum() / (high - low))


def occupancy(capture: Capture, rows: Mask, low: int, high: int) -> float:
    """Estimated achieved occupancy in percent over a window, weighted by the kernels' time inside it; NaN where not recorded."""
    device = capture.device
    percent = device["occupancy_pct"].to_numpy()
    rows = rows & np.isfinite(percent)
    start = device["start_ns"].to_numpy()[rows]
    weight = np.clip(start + device["duration_ns"].to_numpy()[rows], low, high) - np.clip(start, low, high)
    return float((percent[rows] * weight).sum() / weight.sum()) if weight.sum() > 0 else float("nan")


def use_over_time(found: Layers, window: tuple[int, int], buckets: int = 100) -> pd.DataFrame:
    """Exclusive time of each class in equal parts of a window.

    Columns: start_ns, end_ns, computation_ns, exposed_communication_ns, exposed_memcpy_ns, idle_ns; a row adds up to its length.
    """
    low, high = window
    count = max(1, min(buckets, high - low))
    each, rest = divmod(high - low, count)  # apart, so that a window of decades does not overflow
    slot = np.arange(count + 1, dtype=np.int64)
    edges = low + each * slot + rest * slot // count
    parts = [np.diff(I.covered_until(layer, edges)) for layer in found.exclusive()]
    length = np.diff(edges)
    return pd.DataFrame({
        "start_ns": edges[:-1], "end_ns": edges[1:], "computation_ns": parts[0], "exposed_communication_ns": parts[1],
        "exposed_memcpy_ns": parts[2], "idle_ns": length - parts[0] - parts[1] - parts[2],
    })  # fmt: skip
