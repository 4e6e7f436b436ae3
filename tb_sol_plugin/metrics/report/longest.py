"""Finds the longest call of each row of a table, by which a row that sums many calls is shown on the timeline."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.time.scope import is_capture
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, OnTimeline
from tb_sol_plugin.tables.arrays import Ints

START: Final = "longest_ns"
TIME: Final = "longest_call_ns"
LONGEST: Final = (
    Column(TIME, "Longest call", "ns", "How long its longest call took: on the host, of a kernel on the device.", rank=3,
           missing="no call of it was recorded"),
    Column(START, "Longest at", "ns", "Start of the longest call, since the start of the recording.", rank=3,
           missing="no call of it was recorded"),
)  # fmt: skip
WHAT: Final = "its longest call"


def longest(
    row: npt.NDArray[np.integer], start: Ints, duration: Ints, size: int, by: npt.NDArray[np.float64] | None = None
) -> dict[str, pd.arrays.IntegerArray]:
    """Returns the columns of LONGEST for rows 0 to size - 1, unknown for one without a call; of equal calls the earliest counts.

    row: per call the row it belongs to, -1 for none. start, duration: per call, ns. by: what is compared instead of the duration, at
    least 0.
    """
    kept = np.flatnonzero(row >= 0)
    own, size_of = row[kept], (duration if by is None else by)[kept]
    most = np.full(size, -1, size_of.dtype)
    np.maximum.at(most, own, size_of)
    best = kept[np.flatnonzero(size_of == most[own])]
    best = best[np.argsort(start[best], kind="stable")][::-1]
    call = np.full(size, -1, np.int64)
    call[row[best]] = best
    return of_calls(call, start, duration)


def of_calls(call: Ints, start: Ints, duration: Ints) -> dict[str, pd.arrays.IntegerArray]:
    """Returns the columns of LONGEST for rows whose longest calls are known. call: of each row, -1 for none."""
    none = call < 0
    at = np.maximum(call, 0)
    found = {TIME: duration[at], START: start[at]} if len(duration) else {TIME: call, START: call}
    return {name: pd.arrays.IntegerArray(values.astype(np.int64), none.copy()) for name, values in found.items()}


def longest_operator(capture: Capture, ops: pd.DataFrame, row: npt.NDArray[np.integer], size: int) -> dict[str, pd.arrays.IntegerArray]:
    """Returns the columns of LONGEST of operator calls, each where the host ran it: that with the most device time is the longest.

    ops: rows of `Work.ops`. row: per call of them the row of the table it belongs to. Calls that no host row stands for are left out.
    """
    host = ops["host"].to_numpy()
    if not len(capture.host):
        host = np.full(len(host), -1)
    known, at_ = host >= 0, np.maximum(host, 0)
    start, duration = (capture.host[name].to_numpy() for name in ("start_ns", "duration_ns"))
    if not known.any():
        start = duration = np.zeros(1, np.int64)
    time = np.nan_to_num(ops["measured_ns"].to_numpy(dtype=np.float64)).clip(min=0)
    return longest(np.where(known, row, -1), start[at_], duration[at_], size, time)


def on_timeline(capture: Capture, column: str) -> OnTimeline | None:
    """Returns where the rows of a table with LONGEST are on the timeline, None of a recording that has no timeline.

    column: the one whose cells lead there.
    """
    return OnTimeline(column, START, TIME, what=WHAT) if has_timeline(capture) else None


def has_timeline(capture: Capture) -> bool:
    """Returns whether the recording has events of its own to show by time: sums and counted work have none."""
    return not is_capture(capture) and bool(len(capture.host) + len(capture.device))
