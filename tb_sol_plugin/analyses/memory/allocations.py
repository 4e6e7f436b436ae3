"""The table of single allocations, the largest of a window with their lives and who made them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.memory import allocations as L
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Mark, Sort, Stretch, TableSection, make_table
from tb_sol_plugin.units import human

MOST: Final = 1000
"""Rows of the table, the largest."""
COLUMNS: Final = (
    Column("bytes", "Size", "B", "bytes of the allocation", show="bar", color="compute"),
    Column("operator", "Operator", doc="innermost operator around the allocation", show="code", missing="no operator around it"),
    Column("parent", "Called by", doc="the operator around that one", show="code", rank=2, missing="no operator around that one"),
    Column("module", "Module", doc="innermost module around the allocation; in the backward pass that of the forward operator", show="code",
           missing="no module around it"),
    Column("state", "State", doc="freed; freed later: after the window; never freed: not while recording; from before: before the "
           "window, or before the recording where it has no start; unknown: its other end is not recorded", show="badge"),
    Column("start_ns", "Allocated", "ns", "since the start of the recording", missing="allocated before the recording began"),
    Column("end_ns", "Freed", "ns", "since the start of the recording", missing="not freed while recording"),
    Column("lifetime_ns", "Lifetime", "ns", "from allocation to free", missing="one of them is not recorded"),
    Column("phase", "Phase", doc="innermost phase around the allocation", rank=2, missing="no phase around it"),
    Column("step", "Step", doc="step in which it was allocated", rank=2, missing="outside every step"),
    Column("frame", "Python line", doc="innermost line of the program around it", show="code", rank=2, missing="not recorded"),
    Column("device", "Device", doc="memory that is meant", rank=3),
    Column("id", "Id", doc="place among the allocations of the recording", rank=3),
)  # fmt: skip
WHO: Final = ("operator", "parent", "module", "phase", "frame", "step")
"""Columns that hide where a recording tells nothing of them."""
NONE_TOLD: Final = {
    "snapshot": "This snapshot holds no history, so no single allocations.",
    "timeline": "A memory timeline tells sums by category, no single allocations.",
    "recorder": "Records of the program are levels at some moments, no single allocations.",
}


@dataclass(frozen=True)
class Shown:
    """The table, and what its rows cover on the axis of the figure (ns since the start of the recording)."""

    table: TableSection
    stretches: dict[str, Stretch]


def section(capture: Capture, curve: Curves, window: tuple[int, int] | None, least: int, origin: int, part: str, scale: float) -> Shown:
    """The largest allocations of at least so many bytes that begin or end in the window."""
    title = "Allocations"
    found = L.lives(capture, curve)
    if found is None:
        table = TableSection(
            id="allocations", title=title, columns=list(COLUMNS), data={c.name: [] for c in COLUMNS}, key="id",
            empty=NONE_TOLD.get(curve.source, "no single allocations"),
        )  # fmt: skip
        return Shown(table, {})
    rows = L.chosen(found, window, least)
    left = max(len(rows) - MOST, 0)
    if left:
        size = found["bytes"].to_numpy()[rows]
        rows = np.sort(rows[np.argpartition(-size, MOST - 1)[:MOST]])
    rows = rows[np.argsort(-found["bytes"].to_numpy()[rows], kind="stable")]
    own = found.iloc[rows].reset_index(drop=True)
    state = L.states(own, window)
    begun, ended = own["row"].to_numpy() >= 0, own["free_row"].to_numpy() >= 0
    life = L.lifetimes(own)
    frame = pd.DataFrame({
        "bytes": own["bytes"], "state": state, "start_ns": _known(own["start_ns"].to_numpy() - origin, begun),
        "end_ns": _known(own["end_ns"].to_numpy() - origin, ended), "lifetime_ns": _known(life, life >= 0), "device": curve.device,
        "id": [str(r) for r in rows.tolist()],
    })  # fmt: skip
    who = L.described(capture, curve, own)
    for name in WHO[:-1]:
        frame[name] = who[name].astype(object).where(who[name].astype(bool), None)
    frame["step"] = who["step"].astype(object).where(who["step"] >= 0, None)
    told = {c.name for c in COLUMNS if c.name not in WHO or bool(frame[c.name].notna().any())}
    shown = [c if c.name in told else msgspec.structs.replace(c, rank=3) for c in COLUMNS]
    marks = {
        str(i): Mark("unknown", "no address is recorded: which free ends it is not known") for i, s in enumerate(state) if s == "unknown"
    }
    largest = f"the largest {human(MOST, 'count')}" if left else "each"
    over = f", of at least {human(least, 'B')}" if least else ""
    table = make_table(
        "allocations", title, frame, shown, key="id", sort=Sort("bytes"), truncated=left, filters=["state"],
        subtitle=f"{largest}{over}{', ' + part if part else ''}",
        marks={"state": marks} if marks else {},
        footer=(f"{human(left, 'count')} smaller ones are not shown; a window shows those that begin or end in it. " if left else "")
        + "A selected row is drawn in the figure, from its allocation to its free.",
        empty=f"No allocation{over}{' begins or ends in this window' if window else ''}.",
    )  # fmt: skip
    return Shown(table, dict(zip(frame["id"], _stretches(own, origin, scale), strict=True)))


def _known(values: npt.NDArray[np.int64], good: npt.NDArray[np.bool_]) -> pd.Series:
    out: list[object] = [v if g else None for v, g in zip(values.tolist(), good.tolist(), strict=True)]
    return pd.Series(out, dtype=object)


def _stretches(own: pd.DataFrame, origin: int, scale: float) -> list[Stretch]:
    """Of each: from allocation to free, open where one of them is not recorded."""
    begun, ended = own["row"].to_numpy() >= 0, own["free_row"].to_numpy() >= 0
    start, end = (own["start_ns"].to_numpy() - origin) / scale, (own["end_ns"].to_numpy() - origin) / scale
    return [
        Stretch(float(a) if b else None, float(z) if e else None, human(int(size), "B"))
        for a, z, b, e, size in zip(start, end, begun, ended, own["bytes"], strict=True)
    ]
