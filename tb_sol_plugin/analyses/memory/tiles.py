"""The numbers at the top of the page of memory, and its first sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tb_sol_plugin.metrics.memory.attribution import By, Holders
from tb_sol_plugin.metrics.memory.labels import gib, label, since
from tb_sol_plugin.metrics.memory.leaks import WORDS, Leak
from tb_sol_plugin.metrics.memory.summary import Headroom, Summary
from tb_sol_plugin.model.report import FactsSection, Link, Mark, Scalar
from tb_sol_plugin.units import human

FACTS: Final = {
    "peak_bytes": "most that was in use at once; the change since the beginning where no totals were recorded",
    "reserved_bytes": "most that the allocator held at once",
    "before_bytes": "in use before the recording began",
    "headroom_bytes": "the device's memory less what lay beside the allocator, as far as it is known, and less the most that it held",
    "fragmentation_bytes": "held by the allocator and not in use, when most was in use",
    "leak_bytes_per_step": "growth of the least that is in use in a step, per step: least squares",
    "peak_ns": "when most was in use, since the start of the recording",
    "end_bytes": "in use at the end",
    "capacity_bytes": "memory of the device",
    "failed_allocations": "allocations that failed",
}
LABELS: Final = {
    "peak_bytes": "In use at most",
    "reserved_bytes": "Reserved at most",
    "before_bytes": "Before the recording",
    "headroom_bytes": "Headroom",
    "fragmentation_bytes": "Not in use at the peak",
    "leak_bytes_per_step": "Growth per step",
    "peak_ns": "Peak at",
    "end_bytes": "In use at the end",
    "capacity_bytes": "Memory of the device",
    "failed_allocations": "Failed allocations",
}
TILES: Final = ("peak_bytes", "reserved_bytes", "before_bytes", "headroom_bytes", "fragmentation_bytes", "leak_bytes_per_step")


def section(found: Summary, origin: int, *, room: Headroom, growth: Leak | None, remarks: Sequence[str]) -> FactsSection:
    """Tiles. remarks: what to know of the source."""
    left = room.left.bytes if room.left.bytes is not None else room.at_most
    fitted = growth is not None and growth.slope == growth.slope and growth.verdict != "few"
    slope = round(growth.slope) if growth is not None and fitted else None
    verdict = growth.words if growth is not None else WORDS["no_steps"]
    values: dict[str, Scalar] = {
        "peak_bytes": found.peak, "reserved_bytes": found.reserved, "before_bytes": found.before, "headroom_bytes": left,
        "fragmentation_bytes": found.fragmentation, "leak_bytes_per_step": slope, "peak_ns": found.peak_ns - origin,
        "end_bytes": found.end, "capacity_bytes": found.capacity.bytes, "failed_allocations": found.failures,
    }  # fmt: skip
    said = " ".join(f"{note[0].upper()}{note[1:]}." for note in remarks)
    notes = {name: gib(value) for name, value in values.items() if name.endswith("_bytes") and isinstance(value, int)}
    notes["peak_bytes"] = f"{notes.get('peak_bytes', '')} at {since(found.peak_ns, origin)}".strip()
    if found.reserved is not None and found.capacity.bytes:
        notes["reserved_bytes"] += f", {human(found.reserved / found.capacity.bytes, 'ratio')} of the device"
    if left is not None and found.capacity.bytes:
        notes["headroom_bytes"] += f" of {human(found.capacity.bytes, 'B')}" + ("" if room.left.bytes is not None else ", at most")
    if found.fragmentation is not None and found.reserved_at_peak:
        notes["fragmentation_bytes"] += f", {human(found.fragmentation / found.reserved_at_peak, 'ratio')} of reserved"
    notes["leak_bytes_per_step"] = verdict
    why = {"reserved_bytes": "reserved", "before_bytes": "before", "fragmentation_bytes": "fragmentation", "failed_allocations": "failures"}
    marks = {name: Mark("unknown", found.why[key]) for name, key in why.items() if values[name] is None and key in found.why}
    notes |= {name: mark.why for name, mark in marks.items()}
    if left is None:
        marks["headroom_bytes"], notes["headroom_bytes"] = Mark("unknown", room.left.why), room.left.why
    elif room.left.bytes is None or room.left.estimated:
        marks["headroom_bytes"] = Mark("estimated", room.left.why)
    if slope is None:
        marks["leak_bytes_per_step"] = Mark("unknown", verdict)
    labels = LABELS | ({"peak_bytes": "Rises at most", "end_bytes": "Change at the end"} if found.relative else {})
    links = {"failed_allocations": Link("memory_findings")} if found.failures else {}
    if growth is not None and growth.found:
        links["leak_bytes_per_step"] = Link("memory_findings")
    return FactsSection(
        id="answer", text=said, title="Memory at a glance", style="tiles", values=values, labels=labels, docs=dict(FACTS),
        units={n: "ns" if n.endswith("_ns") else "count" if n.startswith("failed") else "B" for n in values}, notes=notes, marks=marks,
        hidden=[n for n in values if n not in TILES and not (n == "failed_allocations" and found.failures)],
        value_links=links,
    )  # fmt: skip


def headline(found: Summary, what: Holders, by: By, memory: str, origin: int, *, part: str, room: Headroom, since_start: bool) -> str:
    """The sentence. part: the window or the steps that were asked for, "" for all. since_start: only what came after the profiler began
    is counted."""
    when = f" at {since(found.peak_ns, origin)}"
    inside = f" in {part}" if part else ""
    if found.relative:
        grows = f"Memory in use on {memory} rises by at most **{human(found.peak, 'B')}** above its level at the start of the recording"
        return f"{grows}{inside},{when}. How much was in use then is not recorded."
    size = f"**{human(found.peak, 'B')}**" + (f" ({gib(found.peak)})" if gib(found.peak) else "")
    said = f"At most {size} is in use on {memory}{inside},{when}"
    if since_start:
        said = f"At most {size} of what was allocated since the profiler began is in use on {memory}{inside},{when}"
    parts = _parts(what, by)
    return f"{said}{': ' + parts if parts else ''}.{_left(room)}"


def _left(room: Headroom) -> str:
    """How much of the device is left, in a sentence; "" unknown."""
    left, total = room.left.bytes, room.total.bytes
    if total is None or (left is None and room.at_most is None):
        return ""
    if left is None:
        return f" At most **{human(room.at_most, 'B')}** of the device's {human(total, 'B')} are left."
    return f" **{human(left, 'B')}** of the device's {human(total, 'B')} are left."


def _parts(what: Holders, by: By) -> str:
    """What it consists of, the largest first, in words; "" where nothing is known of it."""
    rows = what.rows[what.rows["bytes"].to_numpy() > 0]
    out = []
    for name, kind, share, guess in zip(rows["name"], rows["kind"], rows["share"], rows["estimated"], strict=True):
        if kind == "unknown" or share != share or share < 0.05:
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
