"""Whether memory is what ails a recording: an allocation that failed, a device nearly full, or a leak."""

from __future__ import annotations

from collections.abc import Container

from tb_sol_plugin.metrics.memory.choose import memories
from tb_sol_plugin.metrics.memory.headroom import NEAR
from tb_sol_plugin.metrics.memory.rules import case_of, memory_findings
from tb_sol_plugin.metrics.memory.rules.case import Case, MemoryFinding, as_finding
from tb_sol_plugin.metrics.memory.rules.limits import LEAK_MATTERS, LEAK_STEPS
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FindingsSection, Link
from tb_sol_plugin.units import human


def said(case: Case) -> str:
    """The sentence that says why memory is the problem, "" where it is none."""
    if case.room.failures:
        last = case.room.failures[-1]
        size = human(last.requested, "B") if last.requested >= 0 else "a request"
        out = f"Memory ran out: {size} could not be allocated{f' at `{last.where}`' if last.where else ''}."
        return f"{out} {last.verdict.partition(':')[0]}: `{last.setting}` helps." if last.setting else out
    if case.room.near and case.room.left.bytes is not None and case.room.total.bytes is not None:
        left, total = human(case.room.left.bytes, "B"), human(case.room.total.bytes, "B")
        return f"{left} of {total} are left at the worst moment, less than {human(NEAR, 'ratio')}."
    if case.leak.found and case.leak.slope * LEAK_STEPS >= LEAK_MATTERS * max(case.peak, 1):
        return f"Memory in use grows by {human(round(case.leak.slope), 'B')} per step."
    return ""


def foremost(case: Case) -> list[MemoryFinding]:
    """The finding that frees most on the device, and a leak: alone where memory has not run out and is not about to."""
    found, _ = memory_findings(case)
    mine = [f for f in found if f.rule != "pinned_unused"]
    leaks = [f for f in mine if f.rule == "leak"]
    if leaks and not (case.room.failures or case.room.near):
        return leaks
    return mine[:1] + [f for f in leaks if f not in mine[:1]]


def memory_section(capture: Capture, pages: Container[str]) -> FindingsSection | None:
    """The foremost findings about memory of a device, where memory is the problem; None elsewhere."""
    every = [m for m in memories(capture) if not m.host]
    case = case_of(capture, every[0]) if every else None
    why = said(case) if case is not None else ""
    if case is None or not why:
        return None
    link = [Link("memory_findings", {}, "What to free")] if "memory_findings" in pages else []
    return FindingsSection(
        id="memory", title="Memory", subtitle=why, saves="memory", findings=[as_finding(f, pages) for f in foremost(case)],
        links=link, empty="Nothing of it is known to go: the page What to free says what was not recorded.",
    )  # fmt: skip
