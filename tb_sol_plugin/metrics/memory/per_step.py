"""Memory in use per step of a trace, or per iteration of a program's records: the least and the most of each."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memory import curves as C
from tb_sol_plugin.metrics.memory.choose import number_of
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints


def per_step(capture: Capture, curve: Curves) -> pd.DataFrame:
    """One row per step, in order: step (number; a count where numbers repeat), start_ns, end_ns, least, most (bytes; -1 unknown)."""
    return of_records(capture, curve) if curve.source == "recorder" else of_steps(curve, C.steps(capture))


def of_steps(curve: Curves, steps: pd.DataFrame) -> pd.DataFrame:
    """Of steps (number, start_ns, end_ns) that a curve reaches into."""
    if curve.allocated is None or not len(curve.time_ns) or not len(steps):
        return _nothing()
    inside = (steps["end_ns"].to_numpy() > curve.time_ns[0]) & (steps["start_ns"].to_numpy() <= curve.time_ns[-1])
    steps = steps[inside].sort_values("start_ns", kind="stable", ignore_index=True)
    if not len(steps):
        return _nothing()
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    least, most = extremes(curve.time_ns, curve.allocated, start, end)
    number = steps["number"].to_numpy().astype(np.int64)
    if (np.diff(number) <= 0).any():
        number = np.arange(len(number), dtype=np.int64)
    return pd.DataFrame({"step": number, "start_ns": start, "end_ns": end, "least": least, "most": most})


def of_records(capture: Capture, curve: Curves) -> pd.DataFrame:
    """Of iterations in which the program recorded memory of the curve's device. most: only where its own peak was recorded."""
    own = records_of(capture, number_of(curve.device))
    own = own[(own["iteration"].to_numpy() >= 0) & (own["allocated"].to_numpy() >= 0)]
    if not len(own):
        return _nothing()
    of_one = arrays.where(own["since"], lambda s: s == "iteration")
    own = own.assign(most=np.where(of_one, own["max_allocated"].to_numpy(), -1))
    by = own.groupby("iteration", sort=True)
    return pd.DataFrame({
        "step": by["iteration"].first().to_numpy(), "start_ns": by["time_ns"].min().to_numpy(), "end_ns": by["time_ns"].max().to_numpy(),
        "least": by["allocated"].min().to_numpy(), "most": by["most"].max().to_numpy(),
    })  # fmt: skip


def extremes(time: Ints, level: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """(least, most) of a level in each of some spans `[start, end)`. The level that holds at a start counts."""
    low = np.maximum(np.searchsorted(time, start, side="right") - 1, 0)
    high = np.maximum(np.searchsorted(time, end, side="left"), low + 1)
    spans = list(zip(low.tolist(), high.tolist(), strict=True))
    return np.array([int(level[a:b].min()) for a, b in spans], np.int64), np.array([int(level[a:b].max()) for a, b in spans], np.int64)


def records_of(capture: Capture, number: int) -> pd.DataFrame:
    """The records of a device in the program in order of time, peaks by phase left out. number: -1 the only device that has some."""
    table = capture.tables[S.MEMORY_RECORDS.name]
    device = table["device"].to_numpy()
    every = np.unique(device[device >= 0])
    if number < 0 and len(every) == 1:
        number = int(every[0])
    keep = (device == number) & (number >= 0) & ~arrays.where(table["since"], lambda s: s == "phase")
    out: pd.DataFrame = table[keep].sort_values("time_ns", kind="stable")
    return out


def step_of(steps: pd.DataFrame, time: Ints) -> Ints:
    """Position in `steps` (start_ns, end_ns, ascending) that holds each time, -1 outside of all."""
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    found = np.searchsorted(start, time, side="right") - 1
    return np.where((found >= 0) & (time < end[found.clip(0)]), found, -1) if len(start) else np.full(len(time), -1, np.int64)


def _nothing() -> pd.DataFrame:
    return pd.DataFrame({c: np.zeros(0, np.int64) for c in ("step", "start_ns", "end_ns", "least", "most")})
