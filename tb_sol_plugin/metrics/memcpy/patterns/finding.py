"""What a finding about copies is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.model.report import Finding, Link
from tb_sol_plugin.tables import intervals as iv

PAGE: Final = "memcpy_findings"
"""The analysis that holds the evidence of a finding."""


@dataclass(frozen=True)
class CopyFinding:
    """One cause, and the copies that show it.

    rule: stable name; with `direction` the finding's own name, `key`. rows: positions in the frame of `copies(capture, where.device)`.
    saving_ns: per step, at most. host: the host is held (else the device's own time is spent). candidate: likely, not proven.
    host_ns: time per step for which the host is held for these copies, 0 where it is not. steps: what the per-step figures divide by.
    spans: the time that the saving is taken from, as a clean set over the whole selection. color: palette member.
    """

    rule: str
    title: str
    evidence: str
    fix: str
    saving_ns: int
    host: bool
    candidate: bool
    direction: str
    rows: npt.NDArray[np.intp] = field(compare=False, repr=False)
    spans: iv.Spans = field(compare=False, repr=False)
    host_ns: int = 0
    steps: int = 1
    color: str = "memcpy"
    several: bool = False
    """Whether the rule speaks for several directions."""

    @property
    def key(self) -> str:
        """Name of this finding among all: the rule, and the direction where the rule speaks for several."""
        return f"{self.rule}_{self.direction}" if self.several else self.rule


def as_finding(found: CopyFinding, step_ns: float, *, query: dict[str, str] | None = None) -> Finding:
    """A finding as a page shows it, with a link to its copies. step_ns: length of a step. query: what else the link keeps (the step)."""
    many = len(found.rows)
    return Finding(
        rule=f"copies_{found.key}",
        title=found.title,
        evidence=found.evidence,
        saving_ns=found.saving_ns,
        share=found.saving_ns / step_ns if step_ns else None,
        fix=found.fix,
        link=Link(PAGE, {**(query or {}), "rule": found.key}, f"{many:,} copies" if many != 1 else "The copy"),
        color=found.color,
        candidate=found.candidate,
    )


def combined_ns(found: list[CopyFinding]) -> int:
    """What all of `found` could save together, per step and at most: no more than their sum, and no nanosecond of theirs twice."""
    if not found:
        return 0
    together = iv.length(iv.merge(*(f.spans for f in found))) // found[0].steps
    return min(sum(f.saving_ns for f in found), together)
