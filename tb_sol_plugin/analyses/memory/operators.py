"""The table of what operators added to memory in use."""

from __future__ import annotations

from typing import Final

import pandas as pd

from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.allocations import by_operator
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Sort, TableSection, make_table

OUTSIDE: Final = "(no operator)"
MOST: Final = 1000
COLUMNS: Final = (
    Column("name", "Operator", doc="name of the operator; (no operator): events outside of every operator", show="code"),
    Column("calls", "Calls", "count", "calls that start in the window", missing="not an operator"),
    Column("size_increase_bytes", "Increase", "B", "what its calls added to memory in use, with what runs inside; frees count negative"),
    Column("self_size_increase_bytes", "Self increase", "B", "of events whose innermost operator it is", show="bar", color="compute"),
    Column("allocation_count", "Allocations", "count", "allocations inside its calls"),
    Column("self_allocation_count", "Self allocations", "count", "allocations whose innermost operator it is", rank=2),
    Column("allocated_bytes", "Allocated", "B", "bytes of the allocations inside its calls, freed or not"),
    Column("self_allocated_bytes", "Self allocated", "B", "bytes of the allocations whose innermost operator it is", rank=2),
    Column("device", "Device", doc="memory that is meant", rank=3),
)  # fmt: skip
NAMES: Final = {
    "size_increase": "size_increase_bytes", "self_size_increase": "self_size_increase_bytes", "allocations": "allocation_count",
    "self_allocations": "self_allocation_count",
}  # fmt: skip


def section(capture: Capture, curve: Curves, window: tuple[int, int] | None, part: str) -> TableSection:
    """Empty, with the reason, for sources that know no operators."""
    title = "Operators"
    if curve.source != "events":
        empty = "This source tells no operators. Record a trace beside it with profile(profile_memory=True)."
        return TableSection(id="operators", title=title, columns=list(COLUMNS), data={c.name: [] for c in COLUMNS}, key="name", empty=empty)
    device = next(d for d in R.devices(capture) if d.label == curve.device)
    frame = by_operator(capture, device, window).rename(columns=NAMES)
    outside = frame["name"].to_numpy() == ""
    sums = {c: int(frame[c].sum()) for c in ("self_size_increase_bytes", "self_allocation_count", "self_allocated_bytes")}
    order = frame["self_allocated_bytes"].to_numpy().argsort(kind="stable")[::-1]
    frame, outside = frame.iloc[order], outside[order]
    left = max(len(frame) - MOST, 0)
    frame = pd.concat([frame[~outside].iloc[:MOST], frame[outside]], ignore_index=True)
    named = frame["name"].to_numpy() != ""
    frame = frame.assign(
        name=frame["name"].where(named, OUTSIDE), calls=frame["calls"].astype(object).where(named, None), device=curve.device,
    )  # fmt: skip
    total = {c.name: None for c in COLUMNS} | {"name": "all events", **sums} | {
        "size_increase_bytes": sums["self_size_increase_bytes"], "allocation_count": sums["self_allocation_count"],
        "allocated_bytes": sums["self_allocated_bytes"],
    }  # fmt: skip
    return make_table(
        "operators", title, frame, COLUMNS, key="name", total=total, last=[OUTSIDE] if outside.any() else [], truncated=left,
        sort=Sort("self_size_increase_bytes"), subtitle=f"what they added to memory in use{', ' + part if part else ''}",
        footer="An increase counts allocations less frees: what an operator frees of another's memory counts against it. "
        "Numbers without “self” hold what runs inside, so that rows overlap; those with it add up to the first row.",
        empty=f"No memory event{' in this window' if window else ''}.",
    )  # fmt: skip
