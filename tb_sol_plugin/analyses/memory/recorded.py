"""What is recorded of memory: the levels of the curve as a table, and the devices and sources there are."""

from __future__ import annotations

from typing import Final

import pandas as pd

from tb_sol_plugin.metrics.memory import curves as C
from tb_sol_plugin.metrics.memory.sources import SOURCES, Memory, Source, memories
from tb_sol_plugin.metrics.memory.summary import summary
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Link, TableSection, make_table
from tb_sol_plugin.units import human

POINTS: Final = 3000
"""Points of the curve that is drawn, and of the table beside it; the other devices share as many."""
LEAST_POINTS: Final = 200
MOST_DEVICES: Final = 64
CURVE: Final = (
    Column("time_ns", "Time", "ns", "since the start of the recording; a level holds until the next one"),
    Column("device", "Device", doc="memory that is meant"),
    Column("allocated_bytes", "In use", "B", "in use; the change since the beginning where no totals were recorded"),
    Column("reserved_bytes", "Reserved", "B", "held by the allocator", missing="not told by this source"),
)
DEVICES: Final = (
    Column("memory", "Device", doc="memory that is meant", show="code"),
    Column("source", "Source", doc="what tells of it"),
    Column("peak_bytes", "In use at most", "B", "most that was in use at once, or the change", show="bar", color="compute"),
    Column("reserved_bytes", "Reserved at most", "B", "most that the allocator held", missing="not told by this source"),
    Column("before_bytes", "Before", "B", "in use before the recording began", missing="not told by this source"),
    Column("capacity_bytes", "Memory", "B", "memory of the device", missing="not recorded"),
    Column("points", "Points", "count", "levels that were recorded"),
    Column("key", "Row", doc="device and source", rank=3),
)  # fmt: skip


def curve(
    capture: Capture, memory: Memory, drawn: C.Curves, start: int, *, window: tuple[int, int] | None, others: Source | None
) -> TableSection:
    """Levels over time of the memory that is drawn; others: the source of the other ones to put below it, None for none."""
    shown = [(memory.label, drawn)]
    if others is not None:
        rest = [m for m in memories(capture) if m.label != memory.label][: MOST_DEVICES - 1]
        found = [(m.label, own) for m in rest if (own := m.of(others)) is not None]
        shown += [(name, C.thin(C.within(own, window), max(POINTS // len(found), LEAST_POINTS))) for name, own in found]
    frames = [
        pd.DataFrame({
            "time_ns": c.time_ns - start, "device": name, "allocated_bytes": c.allocated,
            "reserved_bytes": pd.Series(c.reserved if c.reserved is not None else [None] * len(c.time_ns), dtype=object),
        })
        for name, c in shown
    ]  # fmt: skip
    frame = pd.concat(frames, ignore_index=True)
    left = drawn.points - len(drawn.time_ns)
    thinned = (
        f"{human(left, 'count')} points of {memory.label} are left out; every largest and smallest level of each stretch stays."
        if left
        else ""
    )
    return make_table("curve", "Levels over time", frame, CURVE, subtitle="as drawn", footer=thinned)


def devices(capture: Capture, memory: Memory, whole: C.Curves, limits: str) -> list[TableSection]:
    """What else is recorded: other devices, the host, other sources. Left out where there is one curve alone."""
    pairs = [(m, c) for m in memories(capture)[:MOST_DEVICES] for c in m.curves]
    if len(pairs) < 2:
        return []
    rows: list[dict[str, object]] = []
    links: dict[str, Link] = {}
    for m, c in pairs:
        s = summary(capture, c, limits=limits)
        if s is not None:
            links[str(len(rows))] = Link("memory", {"device": m.label, "source": c.source}, "Show it")
            rows.append({
                "memory": m.label, "source": SOURCES[c.source], "peak_bytes": s.peak, "reserved_bytes": s.reserved,
                "before_bytes": s.before,
                "capacity_bytes": s.capacity.bytes, "points": c.points, "key": f"{m.label}, {c.source}",
            })  # fmt: skip
    frame = pd.DataFrame(rows).astype(dict.fromkeys(("reserved_bytes", "before_bytes", "capacity_bytes"), object))
    frame = frame.where(frame.notna(), None)
    left = len(memories(capture)) - MOST_DEVICES
    return [make_table(
        "devices", "What is recorded", frame, DEVICES, key="key", truncated=max(left, 0),
        subtitle=f"shown: {memory.label} from {SOURCES[whole.source]}",
        row_links=links,
    )]  # fmt: skip
