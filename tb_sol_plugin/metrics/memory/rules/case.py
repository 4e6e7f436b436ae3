"""What the rules look at, and what they answer: a finding, or why they cannot say."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from tb_sol_plugin.metrics.memory.choose import Memory
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.headroom import Headroom, headroom
from tb_sol_plugin.metrics.memory.leak import Leak, longest
from tb_sol_plugin.metrics.work.direction import in_backward
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Finding, Link


@dataclass(frozen=True)
class MemoryFinding:
    """One cause. saving_bytes: that fixing it could free, at most; share: of the memory in use at the peak, None where it is other memory.

    cost_ns: time per step that the fix costs (recomputation), None unknown or none. candidate: the cause is likely, not proven.
    color: palette member of what it frees. query: of the view that proves it.
    """

    rule: str
    title: str
    evidence: str
    fix: str
    saving_bytes: int
    share: float | None
    analysis: str
    label: str
    query: tuple[tuple[str, str], ...] = ()
    cost_ns: float | None = None
    candidate: bool = False
    color: str = "compute"


@dataclass(frozen=True)
class Lack:
    """What a rule would need. rule: its stable id; because: what is missing; record_it_with: how to record it."""

    rule: str
    because: str
    record_it_with: str


Answer: TypeAlias = "MemoryFinding | list[MemoryFinding] | Lack | None"


@dataclass(frozen=True)
class Case:
    """One memory of a recording before the rules. curve: the one that a page shows; limits: device limits that were chosen."""

    capture: Capture
    memory: Memory
    curve: Curves
    limits: str = ""

    @cached_property
    def room(self) -> Headroom:
        return headroom(self.capture, self.curve, limits=self.limits)

    @cached_property
    def leak(self) -> Leak:
        """Of the source that saw most steps; a leak that one of them found comes first."""
        found = longest(self.capture, self.memory.curves)
        assert found is not None  # a memory has a curve
        return found

    @cached_property
    def trains(self) -> bool | None:
        """Whether the recording holds a backward pass; None where it cannot tell."""
        if len(self.capture.tables[S.BACKWARD.name]) or in_backward(self.capture).any():
            return True
        ledger = self.capture.tables[S.LEDGER.name]
        if len(ledger):
            return bool((ledger["direction"].to_numpy() == 1).any())
        return False if (self.capture.host["kind"].to_numpy() == S.OPERATOR).any() else None

    @cached_property
    def peak(self) -> int:
        """Bytes in use at most, of the curve; 0 unknown."""
        return self.curve.peak if not self.curve.relative else 0

    def share(self, size: int) -> float | None:
        """Of the memory in use at the peak; None where that is unknown, or less than `size`: then the sources contradict each other."""
        return size / self.peak if self.peak > 0 and size <= self.peak else None

    def curve_of(self, *sources: str) -> Curves | None:
        """The first of this memory's curves from one of these sources."""
        return next((c for source in sources for c in self.memory.curves if c.source == source), None)


def as_finding(found: MemoryFinding, pages: Container[str], *, query: dict[str, str] | None = None, here: str = "") -> Finding:
    """A finding as a reader gets it. pages: analyses a link may lead to; query: fields that every link keeps; here: the page that it
    stands on, from which the proof is the curve of memory."""
    target, label = ("memory", "Curve") if found.analysis == here else (found.analysis, found.label)
    keep = dict(query or {}) | dict(found.query)
    return Finding(
        rule=f"memory_{found.rule}", title=found.title, evidence=found.evidence, saving_bytes=found.saving_bytes, share=found.share,
        fix=found.fix, link=Link(target, keep if target == "memory" else {}, label) if target in pages else None, color=found.color,
        candidate=found.candidate,
    )  # fmt: skip
