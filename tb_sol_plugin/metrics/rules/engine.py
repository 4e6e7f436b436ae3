"""What a finding is before it is shown, and the words that rules share."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.model.report import Finding, Link
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.units import human

LEAST: Final = 0.005
"""Smallest saving shown, as a part of the step."""


@dataclass(frozen=True)
class Lever:
    """One cause. saving_ns: per step, at most. color: palette member of the time it removes. analysis, find: where the proof is.

    query: further query fields of the proof. label: words of the link. candidate: the cause is likely, not proven.
    per_step: the numbers of the evidence are per step already.
    rows, claimed: operator calls (rows of `Work.ops`) whose time it removes and how much of each in ns over all steps; empty for
    idle time, communication and copies.
    """

    rule: str
    title: str
    evidence: str
    saving_ns: int
    fix: str
    color: str
    analysis: str
    label: str
    find: str = ""
    query: tuple[tuple[str, str], ...] = ()
    candidate: bool = False
    per_step: bool = False
    rows: Ints = field(default_factory=lambda: np.zeros(0, np.int64), compare=False, repr=False)
    claimed: Floats = field(default_factory=lambda: np.zeros(0, np.float64), compare=False, repr=False)


def finding(lever: Lever, saving_ns: int, step_ns: float, *, pages: Container[str]) -> Finding:
    """A lever as a reader gets it. saving_ns: of it, what is looked at; step_ns: of one step. pages: analyses a link may lead to."""
    query = {**dict(lever.query), **({"find": lever.find} if lever.find else {})}
    return Finding(
        rule=lever.rule,
        title=lever.title,
        evidence=lever.evidence,
        saving_ns=saving_ns,
        share=saving_ns / step_ns if step_ns else None,
        fix=lever.fix,
        color=lever.color,
        candidate=lever.candidate,
        link=Link(lever.analysis, query, lever.label) if lever.analysis in pages else None,
    )


def counted(n: int, one: str, many: str = "") -> str:
    """`one call`, `12 calls`."""
    return f"one {one}" if n == 1 else f"{human(n, 'count')} {many or one + 's'}"


def acting(n: int, one: str, verb: str, many: str = "") -> str:
    """`One call runs`, `12 calls run`: a count at the head of a sentence and its verb (given for one: `runs`)."""
    text = counted(n, one, many)
    return f"{text[0].upper()}{text[1:]} {verb if n == 1 else verb.removesuffix('s')}"


def times(n: int) -> str:
    """`once`, `12 times`."""
    return "once" if n == 1 else f"{human(n, 'count')} times"


def took(ns: float) -> str:
    """A time as a person reads it."""
    return human(round(ns), "ns")


def over(name: str, shapes: str) -> str:
    """`` `aten::mm` over 512×512 512×512 ``; the sizes only where they are known."""
    return f"`{name}`{f' over {shapes}' if shapes else ''}"


# -- What a finding about copies is ----------------------------------------------------------------------------------


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
