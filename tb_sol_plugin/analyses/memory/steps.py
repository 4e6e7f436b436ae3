"""The table of steps: in use at most and at the end of each, allocated and freed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.leaks import sums_of_steps
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Column, Link, Sort, Stretch, TableSection, make_table
from tb_sol_plugin.units import human

MOST: Final = 2000
SAMPLED: Final = "records of the program are levels at some moments"
NOT_HELD: Final = "this source does not tell what the allocator holds"
COLUMNS: Final = (
    Column("step", "Step", doc="number in ProfilerStep#N", show="code"),
    Column("peak_bytes", "In use at most", "B", "most that was in use at once during the step", show="bar", color="compute"),
    Column("end_bytes", "At its end", "B", "in use when the step ends"),
    Column("allocated_bytes", "Allocated", "B", "sum of all allocations in the step", missing=SAMPLED),
    Column("freed_bytes", "Freed", "B", "sum of all frees in the step", missing=SAMPLED),
    Column("change_bytes", "Change", "B", "at its end less at the end of the step before", rank=2, missing="the first step"),
    Column("reserved_bytes", "Reserved at most", "B", "most that the allocator held during the step", rank=2, missing=NOT_HELD),
    Column("peak_ns", "Peak at", "ns", "since the start of the step", rank=2),
    Column("start_ns", "Start", "ns", "of the step on the host, since the start of the recording", rank=3),
    Column("duration_ns", "Duration", "ns", "of the step on the host", rank=3),
)  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """The table, and what its rows cover on the axis of the figure."""

    table: TableSection
    stretches: dict[str, Stretch]


def section(capture: Capture, curve: Curves, origin: int, scale: float, query: dict[str, str]) -> Shown | None:
    """None where no step was recorded with a part of the curve. curve: whole."""
    frame = sums_of_steps(capture, curve)
    if not len(frame):
        return None
    left = max(len(frame) - MOST, 0)
    change = np.r_[np.nan, np.diff(frame["end"].to_numpy())]
    start, end = frame["start_ns"].to_numpy(), frame["end_ns"].to_numpy()
    shown = frame.rename(columns={"peak": "peak_bytes", "end": "end_bytes"}).assign(
        change_bytes=change, peak_ns=frame["peak_ns"] - start, start_ns=start - origin, duration_ns=end - start,
        **{f"{n}_bytes": frame[n].astype(object).where(frame[n] >= 0, None) for n in ("allocated", "freed", "reserved")},
    )  # fmt: skip
    shown = shown.iloc[:MOST]
    numbers = [str(n) for n in shown["step"]]
    whole = {str(n) for n in scope(capture, Query()).steps}
    stretches = {
        n: Stretch((a - origin) / scale, (z - origin) / scale, f"step {n}, {human(int(p), 'B')}")
        for n, a, z, p in zip(numbers, start.tolist(), end.tolist(), shown["peak_bytes"], strict=False)
    }
    table = make_table(
        "per_step", "Steps", shown.assign(step=numbers), COLUMNS, key="step", sort=Sort("start_ns", descending=False), truncated=left,
        subtitle="in use at most in each, and what stays at its end",
        row_links={
            str(i): Link("memory", {**query, **({"step": n} if n in whole else {"window": f"{a}ns-{z}ns"})}, "Only this step")
            for i, (n, a, z) in enumerate(zip(numbers, (start - origin).tolist(), (end - origin).tolist(), strict=False))
        },
    )  # fmt: skip
    return Shown(table, stretches)
