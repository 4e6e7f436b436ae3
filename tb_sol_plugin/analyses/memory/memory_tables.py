"""The table of single allocations, the largest of a window with their lives and who made them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memory import allocations as L
from tb_sol_plugin.metrics.memory import curves as C
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.allocations import by_operator
from tb_sol_plugin.metrics.memory.attribution import Attribution, By
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.labels import color, gib, label, since
from tb_sol_plugin.metrics.memory.leaks import WORDS, Leak, sums_of_steps
from tb_sol_plugin.metrics.memory.sources import SOURCES, Memory, Source, memories
from tb_sol_plugin.metrics.memory.summary import Headroom, Summary, summary
from tb_sol_plugin.metrics.report.longest import has_timeline
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    Link,
    Mark,
    OnTimeline,
    Scalar,
    Sort,
    Stretch,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables.arrays import or_none
from tb_sol_plugin.tables.table import as_table
from tb_sol_plugin.units import capitalized, human, humans

MOST_ALLOCATIONS: Final = 1000
"""Rows of the table, the largest."""
ALLOCATION_COLUMNS: Final = (
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
    "timeline": "A memory timeline has sums by category, no single allocations.",
    "recorder": "Records of the program are levels at some moments, no single allocations.",
}


@dataclass(frozen=True)
class ShownAllocations:
    """The table, and what its rows cover on the axis of the figure (ns since the start of the recording)."""

    table: TableSection
    stretches: dict[str, Stretch]


def allocations_section(
    capture: Capture, curve: Curves, window: tuple[int, int] | None, least: int, origin: int, part: str, scale: float
) -> ShownAllocations:
    """Returns the largest allocations of at least so many bytes that begin or end in the window."""
    title = "Allocations"
    found = L.allocations_of(capture, curve)
    if found is None:
        table = TableSection(
            id="allocations", title=title, columns=list(ALLOCATION_COLUMNS), data={c.name: [] for c in ALLOCATION_COLUMNS}, key="id",
            empty=NONE_TOLD.get(curve.source, "no single allocations"),
        )  # fmt: skip
        return ShownAllocations(table, {})
    rows = L.allocations_in(found, window, least)
    left = max(len(rows) - MOST_ALLOCATIONS, 0)
    if left:
        size = found["bytes"].to_numpy()[rows]
        rows = np.sort(rows[np.argpartition(-size, MOST_ALLOCATIONS - 1)[:MOST_ALLOCATIONS]])
    rows = rows[np.argsort(-found["bytes"].to_numpy()[rows], kind="stable")]
    own = as_table(pd.DataFrame({name: found[name].to_numpy()[rows] for name in L.COLUMNS}, copy=False))
    state = L.states(own, window)
    begun, ended = own["row"].to_numpy() >= 0, own["free_row"].to_numpy() >= 0
    life = L.lifetimes(own)
    who = L.owner_names(capture, curve, own)
    frame: dict[str, Any] = {
        "bytes": own["bytes"].to_numpy(), "state": state, "start_ns": or_none(own["start_ns"].to_numpy() - origin, begun),
        "end_ns": or_none(own["end_ns"].to_numpy() - origin, ended), "lifetime_ns": or_none(life, life >= 0),
        "device": [curve.device] * len(rows), "id": [str(r) for r in rows.tolist()],
        **{name: or_none(who[name], who[name] != "") for name in WHO[:-1]}, "step": or_none(who["step"], who["step"] >= 0),
    }  # fmt: skip
    reported = {c.name for c in ALLOCATION_COLUMNS if c.name not in WHO or any(v is not None for v in frame[c.name])}
    shown = [c if c.name in reported else msgspec.structs.replace(c, rank=3) for c in ALLOCATION_COLUMNS]
    marks = {
        str(i): Mark("unknown", "no address is recorded: which free ends it is not known") for i, s in enumerate(state) if s == "unknown"
    }
    largest = f"the largest {human(MOST_ALLOCATIONS, 'count')}" if left else "each"
    over = f", of at least {human(least, 'B')}" if least else ""
    table = make_table(
        "allocations", title, frame, shown, key="id", sort=Sort("bytes"), adds=["bytes"], truncated=left, filters=["state"],
        subtitle=f"{largest}{over}{', ' + part if part else ''}",
        marks={"state": marks} if marks else {},
        footer=(f"{human(left, 'count')} smaller ones are not shown; a window shows those that begin or end in it. " if left else "")
        + "A selected row is drawn in the figure, from its allocation to its free.",
        timeline=OnTimeline("start_ns", "start_ns", "lifetime_ns", origin) if curve.source == "events" else None,
        empty=f"No allocation{over}{' begins or ends in this window' if window else ''}.",
    )  # fmt: skip
    return ShownAllocations(table, dict(zip(frame["id"], _stretches(own, origin, scale), strict=True)))


def _stretches(own: pd.DataFrame, origin: int, scale: float) -> list[Stretch]:
    """Returns the time of each allocation: from allocation to free, open where one of them is not recorded."""
    begun, ended = own["row"].to_numpy() >= 0, own["free_row"].to_numpy() >= 0
    ends = (((own[name].to_numpy() - origin) / scale) for name in ("start_ns", "end_ns"))
    places = (or_none(end, known).tolist() for end, known in zip(ends, (begun, ended), strict=True))
    return [Stretch(*one) for one in zip(*places, humans(own["bytes"].tolist(), "B"), strict=True)]


# -- The table of steps -----------------------------------------------------------------------------------------------
# in use at most and at the end of each, allocated and freed.


MOST_STEPS: Final = 2000
SAMPLED: Final = "records of the program are levels at some moments"
NOT_HELD: Final = "this source does not record what is reserved"
STEP_COLUMNS: Final = (
    Column("step", "Step", doc="number in ProfilerStep#N", show="code"),
    Column("peak_bytes", "In use at most", "B", "most that was in use at once during the step", show="bar", color="compute"),
    Column("end_bytes", "At its end", "B", "in use when the step ends"),
    Column("allocated_bytes", "Allocated", "B", "sum of all allocations in the step", missing=SAMPLED),
    Column("freed_bytes", "Freed", "B", "sum of all frees in the step", missing=SAMPLED),
    Column("change_bytes", "Change", "B", "at its end less at the end of the step before", rank=2, missing="the first step"),
    Column("reserved_bytes", "Reserved at most", "B", "most that the allocator reserved during the step", rank=2, missing=NOT_HELD),
    Column("peak_ns", "Peak at", "ns", "since the start of the step", rank=2),
    Column("start_ns", "Start", "ns", "of the step on the host, since the start of the recording", rank=3),
    Column("duration_ns", "Duration", "ns", "of the step on the host", rank=3),
)  # fmt: skip


@dataclass(frozen=True)
class ShownSteps:
    """The table, and what its rows cover on the axis of the figure."""

    table: TableSection
    stretches: dict[str, Stretch]


def steps_section(capture: Capture, curve: Curves, origin: int, scale: float, query: dict[str, str]) -> ShownSteps | None:
    """Returns the table of steps; None where no step was recorded with a part of the curve. curve: whole."""
    frame = sums_of_steps(capture, curve)
    if not len(frame):
        return None
    left = max(len(frame) - MOST_STEPS, 0)
    columns = {name: frame[name].to_numpy() for name in frame}
    start, end = columns["start_ns"], columns["end_ns"]
    every: dict[str, Any] = {
        "peak_bytes": columns["peak"], "end_bytes": columns["end"], "change_bytes": np.r_[np.nan, np.diff(columns["end"])],
        "peak_ns": columns["peak_ns"] - start, "start_ns": start - origin, "duration_ns": end - start,
        **{f"{n}_bytes": or_none(columns[n], columns[n] >= 0) for n in ("allocated", "freed", "reserved")},
    }  # fmt: skip
    shown: dict[str, Any] = {name: values[:MOST_STEPS] for name, values in every.items()}
    numbers = [str(n) for n in columns["step"][:MOST_STEPS].tolist()]
    whole = {str(n) for n in scope(capture, Query()).steps}
    stretches = {
        n: Stretch((a - origin) / scale, (z - origin) / scale, f"step {n}, {most}")
        for n, a, z, most in zip(numbers, start.tolist(), end.tolist(), humans(shown["peak_bytes"].tolist(), "B"), strict=False)
    }
    table = make_table(
        "per_step", "Steps", shown | {"step": numbers}, STEP_COLUMNS, key="step", sort=Sort("start_ns", descending=False), truncated=left,
        subtitle="in use at most in each, and what stays at its end",
        timeline=OnTimeline("peak_bytes", "start_ns", "duration_ns", origin) if has_timeline(capture) else None,
        row_links={
            str(i): Link("memory", {**query, **({"step": n} if n in whole else {"window": f"{a}ns-{z}ns"})}, "Only this step")
            for i, (n, a, z) in enumerate(zip(numbers, (start - origin).tolist(), (end - origin).tolist(), strict=False))
        },
    )  # fmt: skip
    return ShownSteps(table, stretches)


# -- What is recorded of memory ---------------------------------------------------------------------------------------
# the levels of the curve as a table, and the devices and sources there are.


POINTS: Final = 3000
"""Points of the curve that is drawn, and of the table beside it; the other devices share as many."""
LEAST_POINTS: Final = 200
MOST_DEVICES: Final = 64
CURVE: Final = (
    Column("time_ns", "Time", "ns", "since the start of the recording; a level holds until the next one"),
    Column("device", "Device", doc="memory that is meant"),
    Column("allocated_bytes", "In use", "B", "in use; the change since the beginning where no totals were recorded"),
    Column("reserved_bytes", "Reserved", "B", "held by the allocator", missing="not recorded by this source"),
)
DEVICES: Final = (
    Column("memory", "Device", doc="memory that is meant", show="code"),
    Column("source", "Source", doc="where it was recorded"),
    Column("peak_bytes", "In use at most", "B", "most that was in use at once, or the change", show="bar", color="compute"),
    Column("reserved_bytes", "Reserved at most", "B", "most that the allocator reserved", missing="not recorded by this source"),
    Column("before_bytes", "Before", "B", "in use before the recording began", missing="not recorded by this source"),
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
    frame = {
        "time_ns": np.concatenate([c.time_ns - start for _, c in shown]),
        "device": [name for name, c in shown for _ in range(len(c.time_ns))],
        "allocated_bytes": np.concatenate([c.allocated for _, c in shown if c.allocated is not None]),
        "reserved_bytes": [v for _, c in shown for v in (c.reserved.tolist() if c.reserved is not None else [None] * len(c.time_ns))],
    }
    left = drawn.points - len(drawn.time_ns)
    thinned = (
        f"{human(left, 'count')} points of {memory.label} are left out; every largest and smallest level of each stretch stays."
        if left
        else ""
    )
    return make_table("curve", "Levels over time", frame, CURVE, subtitle="as drawn", footer=thinned)


def devices(capture: Capture, memory: Memory, whole: C.Curves, limits: str) -> list[TableSection]:
    """Returns the curves of other devices, the host and other sources. Left out where there is one curve alone."""
    pairs = [(m, c) for m in memories(capture)[:MOST_DEVICES] for c in m.curves]
    if len(pairs) < 2:
        return []
    rows: list[dict[str, Scalar]] = []
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
    frame = {c.name: [row[c.name] for row in rows] for c in DEVICES}
    left = len(memories(capture)) - MOST_DEVICES
    return [make_table(
        "devices", "What is recorded", frame, DEVICES, key="key", truncated=max(left, 0),
        subtitle=f"shown: {memory.label} from {SOURCES[whole.source]}",
        row_links=links,
    )]  # fmt: skip


# -- The table of what held memory at one moment ----------------------------------------------------------------------


BYS: Final[dict[str, tuple[str, str]]] = {
    "category": ("What for", "by what it is for"),
    "module": ("Module", "by the module that allocated it"),
    "operator": ("Operator", "by the operator that allocated it"),
    "frame": ("Python line", "by the line of the program that allocated it"),
    "phase": ("Phase", "by the phase in which it was allocated"),
}
MOST_GROUPS: Final = 500
"""Rows of the table; what is left out stands in one row before the last two."""
PEAK_COLUMNS: Final = (
    Column("name", "Blocked by", doc="what holds it; last what was there before, and the rest", show="code"),
    Column("bytes", "In use", "B", "bytes in use at that moment", show="bar", color_by="color"),
    Column("share", "Share", "ratio", "bytes over all that was in use then", show="share"),
    Column("allocations", "Allocations", "count", "how many make up these bytes", missing="not recorded by this source"),
    Column("kind", "Kind", doc="row; before: in use before the recording began; unknown: the rest of what was in use", rank=3),
    Column("color", "Color", doc="color of the row", rank=3),
)  # fmt: skip


def peak_section(found: Attribution, by: By, origin: int, *, at_peak: bool, why: str, query: dict[str, str]) -> TableSection:
    """Builds the table of what was in use; rows add up to it. why: of a grouping that this source cannot answer, else ""."""
    frame = _bounded(found)
    names, kinds, allocations = frame["name"], frame["kind"], frame["allocations"]
    shown: dict[str, Any] = frame | {
        "color": [color(str(n)) if by == "category" and k == "row" else {"before": "host", "unknown": "idle"}.get(str(k), "compute")
                  for n, k in zip(names, kinds, strict=True)],
        "name": [label(str(n)) if by == "category" else n for n in names],
        "allocations": [n if n >= 0 else None for n in allocations],
        "share": [None if share != share else share for share in frame["share"]],
    }  # fmt: skip
    last = [str(n) for n, k in zip(shown["name"], kinds, strict=True) if k != "row"]
    columns = [
        Column("name", BYS[by][0], doc=PEAK_COLUMNS[0].doc, show="text" if by in ("category", "phase") else "code"),
        *PEAK_COLUMNS[1:],
    ]
    moment = f"at the peak, {since(found.time_ns, origin)}" if at_peak else f"at {since(found.time_ns, origin)}"
    size = human(found.total, "B")
    return make_table(
        "peak", "What holds memory", shown, columns, key="name",
        subtitle=f"{moment}: {size}{f' ({gib(found.total)})' if gib(found.total) else ''}, {BYS[by][1]}",
        total={"name": "in use", "bytes": found.total, "share": 1.0 if found.total else None},
        last=last,
        sort=Sort("bytes"), marks=_peak_marks(frame, found.total),
        footer=" ".join([why, *(f"{capitalized(n)}." for n in found.notes)]).strip(),
        links=[] if at_peak else [Link("memory", query, "At the peak")],
    )  # fmt: skip


def _peak_marks(frame: Mapping[str, list[Any]], total: int) -> dict[str, dict[str, Mark]]:
    """Returns marks of names that are estimates, and of a rest that is large or negative."""
    marks: dict[str, dict[str, Mark]] = {"bytes": {}, "name": {}}
    for i, (guess, size, kind) in enumerate(zip(frame["estimated"], frame["bytes"], frame["kind"], strict=True)):
        if guess:
            marks["name"][str(i)] = Mark("estimated", "worked out from where and when it was allocated")
        if kind == "unknown" and (size < 0 or (total and size > 0.05 * total)):
            text = "more is reported than was in use: something counts twice" if size < 0 else "more than 5 % of what was in use"
            marks["bytes"][str(i)] = Mark("flagged", text)
    return {name: of_column for name, of_column in marks.items() if of_column}


def _bounded(found: Attribution) -> dict[str, list[Any]]:
    """Keeps the largest rows; the others become one, so that the sum stays."""
    columns = {name: found.rows[name].tolist() for name in ("name", "bytes", "allocations", "share", "estimated", "kind")}
    own = found.count
    if own <= MOST_GROUPS:
        return columns
    rest = {name: values[MOST_GROUPS - 1 : own] for name, values in columns.items()}
    one = {
        "name": f"{human(len(rest['name']), 'count')} more", "bytes": sum(rest["bytes"]), "allocations": sum(rest["allocations"]),
        "share": float(found.rows["share"].iloc[MOST_GROUPS - 1 : own].sum()), "estimated": any(rest["estimated"]), "kind": "row",
    }  # fmt: skip
    return {name: [*values[: MOST_GROUPS - 1], one[name], *values[own:]] for name, values in columns.items()}


# -- The numbers at the top of the page of memory, and its first sentence ---------------------------------------------


FACTS: Final = (
    Fact("peak_bytes", "In use at most", "B", "most that was in use at once; the change since the beginning where no totals were "
         "recorded"),
    Fact("reserved_bytes", "Reserved at most", "B", "most that the allocator reserved at once"),
    Fact("before_bytes", "Before the recording", "B", "in use before the recording began"),
    Fact("headroom_bytes", "Headroom", "B", "the device's memory less what lay beside the allocator, as far as it is known, and less "
         "the most that it held"),
    Fact("fragmentation_bytes", "Not in use at the peak", "B", "reserved by the allocator and not in use, when most was in use"),
    Fact("leak_bytes_per_step", "Growth per step", "B", "growth of the least that is in use in a step, per step: least squares"),
    Fact("peak_ns", "Peak at", "ns", "when most was in use, since the start of the recording"),
    Fact("end_bytes", "In use at the end", "B", "in use at the end"),
    Fact("capacity_bytes", "Memory of the device", "B", "memory of the device"),
    Fact("failed_allocations", "Failed allocations", "count", "allocations that failed"),
)  # fmt: skip
TILES: Final = ("peak_bytes", "reserved_bytes", "before_bytes", "headroom_bytes", "fragmentation_bytes", "leak_bytes_per_step")


def _tile_notes(found: Summary, values: Mapping[str, Scalar], origin: int, *, at_most: bool) -> dict[str, str]:
    """Returns the line below each tile: sizes in GiB, and what they are a share of."""
    notes = {name: gib(value) for name, value in values.items() if name.endswith("_bytes") and isinstance(value, int)}
    notes["peak_bytes"] = f"{notes.get('peak_bytes', '')} at {since(found.peak_ns, origin)}".strip()
    if found.reserved is not None and found.capacity.bytes:
        notes["reserved_bytes"] += f", {human(found.reserved / found.capacity.bytes, 'ratio')} of the device"
    if values["headroom_bytes"] is not None and found.capacity.bytes:
        notes["headroom_bytes"] += f" of {human(found.capacity.bytes, 'B')}" + (", at most" if at_most else "")
    if found.fragmentation is not None and found.reserved_at_peak:
        notes["fragmentation_bytes"] += f", {human(found.fragmentation / found.reserved_at_peak, 'ratio')} of reserved"
    return notes


def tiles_section(found: Summary, origin: int, *, room: Headroom, growth: Leak | None, remarks: Sequence[str]) -> FactsSection:
    """Builds tiles. remarks: what to know of the source."""
    left = room.left.bytes if room.left.bytes is not None else room.at_most
    fitted = growth is not None and growth.slope == growth.slope and growth.verdict != "few"
    slope = round(growth.slope) if growth is not None and fitted else None
    verdict = growth.words if growth is not None else WORDS["no_steps"]
    values: dict[str, Scalar] = {
        "peak_bytes": found.peak, "reserved_bytes": found.reserved, "before_bytes": found.before, "headroom_bytes": left,
        "fragmentation_bytes": found.fragmentation, "leak_bytes_per_step": slope, "peak_ns": found.peak_ns - origin,
        "end_bytes": found.end, "capacity_bytes": found.capacity.bytes, "failed_allocations": found.failures,
    }  # fmt: skip
    sentence = " ".join(f"{capitalized(note)}." for note in remarks)
    notes = {**_tile_notes(found, values, origin, at_most=room.left.bytes is None), "leak_bytes_per_step": verdict}
    why = {"reserved_bytes": "reserved", "before_bytes": "before", "fragmentation_bytes": "fragmentation", "failed_allocations": "failures"}
    marks = {name: Mark("unknown", found.why[key]) for name, key in why.items() if values[name] is None and key in found.why}
    notes |= {name: mark.why for name, mark in marks.items()}
    if left is None:
        marks["headroom_bytes"], notes["headroom_bytes"] = Mark("unknown", room.left.why), room.left.why
    elif room.left.bytes is None or room.left.estimated:
        marks["headroom_bytes"] = Mark("estimated", room.left.why)
    if slope is None:
        marks["leak_bytes_per_step"] = Mark("unknown", verdict)
    labels = {"peak_bytes": "Rises at most", "end_bytes": "Change at the end"} if found.relative else {}
    links = {"failed_allocations": Link("memory_findings")} if found.failures else {}
    if growth is not None and growth.found:
        links["leak_bytes_per_step"] = Link("memory_findings")
    return make_facts(
        "answer", "Memory at a glance", values, FACTS, labels=labels, text=sentence, style="tiles", notes=notes, marks=marks,
        hidden=[n for n in values if n not in TILES and not (n == "failed_allocations" and found.failures)],
        value_links=links,
    )  # fmt: skip


def headline(found: Summary, what: Attribution, by: By, memory: str, origin: int, *, part: str, room: Headroom, since_start: bool) -> str:
    """The sentence. part: the window or the steps that were asked for, "" for all. since_start: only what came after the profiler began
    is counted."""
    when = f" at {since(found.peak_ns, origin)}"
    inside = f" in {part}" if part else ""
    if found.relative:
        grows = f"Memory in use on {memory} rises by at most **{human(found.peak, 'B')}** above its level at the start of the recording"
        return f"{grows}{inside},{when}. How much was in use then is not recorded."
    size = f"**{human(found.peak, 'B')}**" + (f" ({gib(found.peak)})" if gib(found.peak) else "")
    text = f"At most {size} is in use on {memory}{inside},{when}"
    if since_start:
        text = f"At most {size} of what was allocated since the profiler began is in use on {memory}{inside},{when}"
    parts = _parts(what, by)
    return f"{text}{': ' + parts if parts else ''}.{_left(room)}"


def _left(room: Headroom) -> str:
    """Returns how much of the device is left, in a sentence; "" unknown."""
    left, total = room.left.bytes, room.total.bytes
    if total is None or (left is None and room.at_most is None):
        return ""
    if left is None:
        return f" At most **{human(room.at_most, 'B')}** of the device's {human(total, 'B')} are left."
    return f" **{human(left, 'B')}** of the device's {human(total, 'B')} are left."


def _parts(what: Attribution, by: By) -> str:
    """Returns what memory in use consists of, the largest first, in words; "" where nothing is known of it."""
    out = []
    for name, kind, share, guess, size in zip(
        *(what.rows[c].tolist() for c in ("name", "kind", "share", "estimated", "bytes")), strict=True
    ):
        if size <= 0 or kind == "unknown" or share != share or share < 0.05:
            continue
        about = "≈ " if guess else ""
        if kind == "before":
            out.append((share, f"{human(share, 'ratio')} of it there before the recording began"))
        elif by == "category":
            out.append((share, f"{about}{human(share, 'ratio')} {label(str(name))}"))
        elif name and not str(name).startswith("("):
            out.append((share, f"{about}{human(share, 'ratio')} of it allocated in `{_short(str(name))}`"))
    out.sort(key=lambda p: -p[0])
    return ", ".join(text for _, text in out[: 3 if by == "category" else 2])


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:28]}…{name[-28:]}"


# -- The table of what operators added to memory in use ---------------------------------------------------------------


OUTSIDE: Final = "(no operator)"
MOST: Final = 1000
OPERATOR_COLUMNS: Final = (
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


def operators_section(capture: Capture, curve: Curves, window: tuple[int, int] | None, part: str) -> TableSection:
    """Builds the table of operators; empty, with the reason, for sources that know none."""
    title = "Operators"
    if curve.source != "events":
        empty = "This source has no operators. Record a trace too, with profile(profile_memory=True)."
        return TableSection(
            id="operators",
            title=title,
            columns=list(OPERATOR_COLUMNS),
            data={c.name: [] for c in OPERATOR_COLUMNS},
            key="name",
            empty=empty,
        )
    device = next(d for d in R.devices(capture) if d.label == curve.device)
    found = by_operator(capture, device, window)
    columns = {NAMES.get(name, name): found[name].to_numpy() for name in map(str, found)}
    sums = {c: int(columns[c].sum()) for c in ("self_size_increase_bytes", "self_allocation_count", "self_allocated_bytes")}
    order = columns["self_allocated_bytes"].argsort(kind="stable")[::-1]
    outside = columns["name"][order] == ""
    left = max(len(order) - MOST, 0)
    rows = np.concatenate([order[~outside][:MOST], order[outside]])
    frame: dict[str, Any] = {name: values[rows] for name, values in columns.items()}
    named = frame["name"] != ""
    frame |= {
        "name": np.where(named, frame["name"], OUTSIDE), "calls": or_none(frame["calls"], named), "device": [curve.device] * len(rows),
    }  # fmt: skip
    total = {c.name: None for c in OPERATOR_COLUMNS} | {"name": "all events", **sums} | {
        "size_increase_bytes": sums["self_size_increase_bytes"], "allocation_count": sums["self_allocation_count"],
        "allocated_bytes": sums["self_allocated_bytes"],
    }  # fmt: skip
    return make_table(
        "operators", title, frame, OPERATOR_COLUMNS, key="name", total=total, last=[OUTSIDE] if outside.any() else [], truncated=left,
        sort=Sort("self_size_increase_bytes"), subtitle=f"what they added to memory in use{', ' + part if part else ''}",
        footer="An increase counts allocations less frees: what an operator frees of another's memory counts against it. "
        "Numbers without “self” hold what runs inside, so that rows overlap; those with it add up to the first row.",
        empty=f"No memory event{' in this window' if window else ''}.",
    )  # fmt: skip
