"""What could free memory: each finding with its evidence, the bytes it could free at most, and one line that does.

    found, lacking = memory_findings(capture)            # of the memory with most in use
    cards = [as_finding(f, registry()) for f in found]   # for a FindingsSection(saves="memory")

Savings are no parts of a whole: two findings can speak of the same bytes. Rules, one file for each or a few; numbers stand in `limits`.
A rule that lacks its input says what was not recorded and how to record it.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.sources import Memory, memories
from tb_sol_plugin.metrics.memory.summary import NEAR
from tb_sol_plugin.metrics.rules.memory.context import Answer, Case, Lack, MemoryFinding, as_finding
from tb_sol_plugin.metrics.rules.memory.recompute import activations_recompute
from tb_sol_plugin.metrics.rules.memory.rules import (
    LEAK_MATTERS,
    LEAK_STEPS,
    LEAST_SHARE,
    gradients_kept,
    leak,
    one_module,
    optimizer_unsharded,
    pinned_unused,
    reserved_above_use,
    vocabulary_misplaced,
)
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FindingsSection, Link
from tb_sol_plugin.units import human

__all__ = ["RULES", "Case", "Lack", "MemoryFinding", "as_finding", "case_of", "memory_findings"]

_RULES: Final[dict[str, Callable[[Case], Answer]]] = {
    "leak": leak,
    "reserved_above_use": reserved_above_use,
    "one_module": one_module,
    "optimizer_unsharded": optimizer_unsharded,
    "vocabulary_misplaced": vocabulary_misplaced,
    "gradients_kept": gradients_kept,
    "activations_recompute": activations_recompute,
    "pinned_unused": pinned_unused,
}
RULES: Final = (*_RULES, "vocabulary_undivided")
"""Every rule by its stable name, as in `MemoryFinding.rule`."""


def case_of(capture: Capture, memory: Memory | None = None, curve: Curves | None = None, *, limits: str = "") -> Case | None:
    """What rules look at: one memory (None: the one with most in use) by one of its curves; None where no memory is recorded."""
    if memory is None:
        every = memories(capture)
        if not every:
            return None
        memory = every[0]
    chosen = curve if curve is not None else memory.best
    return memo(capture, ("memory.case", memory.label, chosen.source, limits), lambda: Case(capture, memory, chosen, limits))


def memory_findings(case: Case) -> tuple[list[MemoryFinding], list[Lack]]:
    """(findings, the largest first; what rules lack). Those that free less than 1 % of the peak are left out, a leak never."""
    key = ("memory.findings", case.memory.label, case.curve.source, case.limits)
    return memo(case.capture, key, lambda: _findings(case))


def _findings(case: Case) -> tuple[list[MemoryFinding], list[Lack]]:
    found: list[MemoryFinding] = []
    lacking: list[Lack] = []
    for rule in _RULES.values():
        answer = rule(case)
        if isinstance(answer, Lack):
            lacking.append(answer)
        else:
            found += answer if isinstance(answer, list) else [answer] if answer is not None else []
    worth = [f for f in found if f.rule == "leak" or f.share is None or f.share >= LEAST_SHARE]
    return sorted(worth, key=lambda f: -f.saving_bytes), lacking


# -- Whether memory is what ails a recording -------------------------------------------------------------------------
# an allocation that failed, a device nearly full, or a leak.


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
