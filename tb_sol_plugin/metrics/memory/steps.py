"""Memory step by step: in use at most and at the end, allocated and freed."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memory.curves import Curves, steps
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints


def of_steps(capture: Capture, curve: Curves) -> pd.DataFrame:
    """One row per step with a part of the curve. curve: whole, not thinned.

    step (its number), start_ns, end_ns (on the host), peak, peak_ns (in use at most, and when; the level at its start counts), end (in use
    at its end), allocated, freed (sums of all rises and falls; -1 where the source has samples only), reserved (at most; -1 unknown).
    """
    table = steps(capture)
    start, end = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
    time, level = curve.time_ns, curve.allocated
    if level is None or not len(time):
        start, end, table = start[:0], end[:0], table.iloc[:0]
    # a record at the end of a step is of that step; an event at its end is of the next one
    side: Literal["left", "right"] = "right" if curve.source == "recorder" else "left"
    reach = end + (side == "right")
    seen = (reach > (time[0] if len(time) else 0)) & (start <= (time[-1] if len(time) else 0)) & (end > start)
    table, start, end = table[seen], start[seen], end[seen]
    if not len(table) or level is None:
        names = ("step", "start_ns", "end_ns", "peak", "peak_ns", "end", "allocated", "freed", "reserved")
        return pd.DataFrame({name: np.zeros(0, np.int64) for name in names})
    before = np.searchsorted(time, start, side=side) - 1  # the level that the step begins with; -1 none
    low = before.clip(0)
    high = np.maximum(np.searchsorted(time, end, side=side), low + 1)
    inner = np.minimum(before + 1, high)
    at = _argmax(level, low, high)
    peak = level[at]
    if curve.highest is not None:
        some = inner < high
        within = at.copy()
        within[some] = _argmax(curve.highest, inner[some], high[some])
        higher = some & (curve.highest[within] > peak)
        at, peak = np.where(higher, within, at), np.where(higher, curve.highest[within], peak)
    change = np.diff(level, prepend=level[:1])
    up, down = (np.r_[0, np.cumsum(part)] for part in (change.clip(min=0), (-change).clip(min=0)))
    sampled = curve.source == "recorder"
    unknown = np.full(len(table), -1, np.int64)
    return pd.DataFrame({
        "step": table["number"].to_numpy(), "start_ns": start, "end_ns": end, "peak": peak, "peak_ns": np.maximum(time[at], start),
        "end": level[high - 1], "allocated": unknown if sampled else up[high] - up[inner],
        "freed": unknown if sampled else down[high] - down[inner],
        "reserved": curve.reserved[_argmax(curve.reserved, low, high)] if curve.reserved is not None else unknown,
    })  # fmt: skip


def _argmax(level: Ints, low: Ints, high: Ints) -> Ints:
    """Position of the first largest value of each part [low, high), none of them empty; they may overlap."""
    size = high - low
    begin = np.cumsum(size) - size
    place = np.repeat(low - begin, size) + np.arange(int(size.sum()))
    most = np.maximum.reduceat(level[place], begin)
    out: Ints = np.minimum.reduceat(np.where(level[place] == np.repeat(most, size), place, len(level)), begin)
    return out
