"""What could free memory: each finding with its evidence, the bytes it could free at most, and one line that does.

    found, lacking = memory_findings(capture)            # of the memory with most in use
    cards = [as_finding(f, registry()) for f in found]   # for a FindingsSection(saves="memory")

Savings are no parts of a whole: two findings can speak of the same bytes. Rules, one file for each or a few; numbers stand in `limits`.
A rule that lacks its input says what was not recorded and how to record it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.choose import Memory, memories
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.rules.allocator import leak, reserved_above_use
from tb_sol_plugin.metrics.memory.rules.case import Answer, Case, Lack, MemoryFinding, as_finding
from tb_sol_plugin.metrics.memory.rules.gradients import gradients_kept
from tb_sol_plugin.metrics.memory.rules.layout import optimizer_unsharded, vocabulary_misplaced
from tb_sol_plugin.metrics.memory.rules.limits import LEAST_SHARE
from tb_sol_plugin.metrics.memory.rules.peak import one_module
from tb_sol_plugin.metrics.memory.rules.pinned import pinned_unused
from tb_sol_plugin.metrics.memory.rules.recompute import activations_recompute
from tb_sol_plugin.model.capture import Capture

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
