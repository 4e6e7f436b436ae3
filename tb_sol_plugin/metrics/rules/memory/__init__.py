"""Finds what could free memory: each finding with its evidence, the bytes it could free at most, and one line that does.

    found, missing = memory_findings(memory_context(capture))    # of the memory with most in use
    cards = [card(f, registry()) for f in found]   # for a FindingsSection(saves="memory")

Savings are no parts of a whole: two findings can speak of the same bytes. A rule that lacks its input says what was not recorded and how
to record it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.sources import Memory, memories
from tb_sol_plugin.metrics.memory.summary import NEAR
from tb_sol_plugin.metrics.rules.engine import Finding, Missing, Rule, ids_of, rows_link, run, to_report
from tb_sol_plugin.metrics.rules.memory import rules as R
from tb_sol_plugin.metrics.rules.memory.context import MemoryContext
from tb_sol_plugin.metrics.rules.memory.recompute import activations_recompute
from tb_sol_plugin.model import report
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FindingsSection, Link
from tb_sol_plugin.units import human

_RULES: Final[tuple[Rule[MemoryContext], ...]] = (
    R.leak, R.reserved_above_use, R.one_module, R.optimizer_unsharded, R.vocabulary_misplaced, R.gradients_kept, activations_recompute,
    R.pinned_unused,
)  # fmt: skip
RULES: Final = ids_of(_RULES)
"""Every finding by its stable name, as in `Finding.rule`."""


def memory_context(
    capture: Capture, memory: Memory | None = None, curve: Curves | None = None, *, limits: str = ""
) -> MemoryContext | None:
    """Makes the context of one memory (None: the one with most in use) by one of its curves; None where no memory is recorded."""
    if memory is None:
        every = memories(capture)
        if not every:
            return None
        memory = every[0]
    chosen = curve if curve is not None else memory.best
    return memo(capture, ("memory.context", memory.label, chosen.source, limits), lambda: MemoryContext(capture, memory, chosen, limits))


def memory_findings(context: MemoryContext) -> tuple[list[Finding], list[Missing]]:
    """Returns (findings, the largest first; what rules lack). Those that free less than 1 % of the peak are left out, a leak never."""
    key = ("memory.findings", context.memory.label, context.curve.source, context.limits)
    return memo(context.capture, key, lambda: run(_RULES, context))


def card(found: Finding, pages: Container[str], *, keep: Mapping[str, str] | None = None, here: str = "") -> report.Finding:
    """Returns a finding as a page shows it.

    keep: query fields that links to the curve and to its rows keep; here: the page that it stands on, from which the
    proof is the curve of memory."""
    if found.page == here:
        found = replace(found, page="memory", label="Curve")
    shown = to_report(found, pages=pages, keep=keep if found.page == "memory" else None)
    rows = rows_link(found, keep) if shown.rows is not None else None
    return msgspec.structs.replace(shown, rows=rows)


# -- Whether memory is the problem of a recording -------------------------------------------------------------------------
# an allocation that failed, a device nearly full, or a leak.


def memory_problem(context: MemoryContext) -> str:
    """Returns the sentence that says why memory is the problem, "" where it is none."""
    if context.room.failures:
        last = context.room.failures[-1]
        size = human(last.requested, "B") if last.requested >= 0 else "a request"
        out = f"Memory ran out: {size} could not be allocated{f' at `{last.where}`' if last.where else ''}."
        return f"{out} {last.verdict.partition(':')[0]}: `{last.setting}` helps." if last.setting else out
    if context.room.near and context.room.left.bytes is not None and context.room.total.bytes is not None:
        left, total = human(context.room.left.bytes, "B"), human(context.room.total.bytes, "B")
        return f"{left} of {total} are left at the worst moment, less than {human(NEAR, 'ratio')}."
    if context.leak.found and context.leak.slope * R.LEAK_STEPS >= R.LEAK_MATTERS * max(context.peak, 1):
        return f"Memory in use grows by {human(round(context.leak.slope), 'B')} per step."
    return ""


def foremost(context: MemoryContext) -> list[Finding]:
    """Returns the finding that frees most on the device, and a leak: alone where memory has not run out and is not about to."""
    found, _ = memory_findings(context)
    on_device = [f for f in found if f.rule != "pinned_unused"]
    leaks = [f for f in on_device if f.rule == "leak"]
    if leaks and not (context.room.failures or context.room.near):
        return leaks
    return on_device[:1] + [f for f in leaks if f not in on_device[:1]]


def _device_of(capture: Capture, context: MemoryContext) -> dict[str, str]:
    """Returns what a link needs to mean this memory: nothing where it is the one with most in use."""
    return {} if memories(capture)[0].label == context.memory.label else {"device": context.memory.label}


def memory_section(capture: Capture, pages: Container[str]) -> FindingsSection | None:
    """Returns the foremost findings about memory of a device, where memory is the problem; None elsewhere."""
    every = [m for m in memories(capture) if not m.host]
    context = memory_context(capture, every[0]) if every else None
    why = memory_problem(context) if context is not None else ""
    if context is None or not why:
        return None
    link = [Link("memory_findings", {}, "What to free")] if "memory_findings" in pages else []
    return FindingsSection(
        id="memory", title="Memory", subtitle=why, saves="memory",
        findings=[card(f, pages, keep=_device_of(capture, context)) for f in foremost(context)],
        links=link, empty="Nothing of it is known to go: the page What to free says what was not recorded.",
    )  # fmt: skip
