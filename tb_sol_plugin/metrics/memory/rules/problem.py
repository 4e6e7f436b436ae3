"""Whether memory is what ails a recording: an allocation that failed, a device nearly full, or a leak."""

from __future__ import annotations

from collections.abc import Container

from tb_sol_plugin.metrics.memory.choose import memories
from tb_sol_plugin.metrics.memory.headroom import NEAR
from tb_sol_plugin.metrics.memory.rules import case_of, memory_findings
from tb_sol_plugin.metrics.memory.rules.case import Case, MemoryFinding, as_finding
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FindingsSection, Link
from tb_sol_plugin.units import human


def said(case: Case) -> str:
    """The sentence that says why memory is the problem, "" where it is none."""
    if case.room.failures:
        last = case.room.failures[-1]
        size = human(last.requested, "B") if last.requested >= 0 else "a request"
        return f"Memory ran out: {size} could not be allocated{f' at `{last.where}`' if last.where else ''}."
    if case.room.near and case.room.left.bytes is not None and case.room.total.bytes is not None:
        left, total = human(case.room.left.bytes, "B"), human(case.room.total.bytes, "B")
        return f"{left} of {total} are left at the worst moment, less than {human(NEAR, 'ratio')}."
    if case.leak.found:
        return f"Memory in use grows by {human(round(case.leak.slope), 'B')} per step."
    return ""


def largest(case: Case) -> MemoryFinding | None:
    """The finding that frees most on the device; a leak before all others."""
    found, _ = memory_findings(case)
    mine = [f for f in found if f.share is not None or f.rule == "leak"]
    return next((f for f in mine if f.rule == "leak"), mine[0] if mine else None)


def memory_section(capture: Capture, pages: Container[str]) -> FindingsSection | None:
    """The largest finding about memory of a device, where memory is the problem; None elsewhere."""
    every = [m for m in memories(capture) if not m.host]
    case = case_of(capture, every[0]) if every else None
    why = said(case) if case is not None else ""
    if case is None or not why:
        return None
    first = largest(case)
    link = [Link("memory_findings", {}, "What to free")] if "memory_findings" in pages else []
    return FindingsSection(
        id="memory", title="Memory", subtitle=why, saves="memory", findings=[as_finding(first, pages)] if first is not None else [],
        links=link, empty="Nothing of it is known to go: the page What to free says what was not recorded.",
    )  # fmt: skip
