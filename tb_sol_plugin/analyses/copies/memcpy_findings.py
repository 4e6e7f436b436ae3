"""Why the host waits for copies, which copies follow a costly pattern, and what a fix of each would save.

A copy blocks the host where its call is synchronous, an end of it is pageable, the call outlasts it, or the host waits for it at once. A
finding says what fixing its cause could save per step at most: of time on the host only that in which the device is idle for it, of
time on the device only that in which no kernel runs. Findings can touch the same time; what all of them save together counts it once.
Every finding has its copies as evidence. Thresholds can be changed, and the page says which are.
"""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.copies.memcpy_findings_tables import (
    BLOCKING,
    EVIDENCE,
    PATTERNS,
    blocking_table,
    evidence_table,
    patterns_table,
)
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.copies import bandwidth, records
from tb_sol_plugin.metrics.copies.blocking import blocking
from tb_sol_plugin.metrics.copies.thresholds import DEFAULT, Thresholds, changed, from_text
from tb_sol_plugin.metrics.rules.copies import RULES, copy_findings, rules_off, step_ns, together_ns
from tb_sol_plugin.metrics.rules.engine import Finding, to_report
from tb_sol_plugin.metrics.time.scope import Scope, in_steps, scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis, registry
from tb_sol_plugin.model.report import Fact, FactsSection, FindingsSection, Notice, Report, Scalar, make_facts
from tb_sol_plugin.tables.arrays import Mask
from tb_sol_plugin.units import human

FACTS: Final = (
    Fact("findings", "Findings", "count", "findings that save at least a thousandth of a step"),
    Fact("combined_ns", "Together, at most", "ns", "what all of them could save together per step, at most: no nanosecond counts twice"),
    Fact("held", "Copies that blocked the host", "count", "copies and sets that blocked the host"),
    Fact("held_ns", "Host blocked, in all", "ns", "time blocked, in the whole selection; each nanosecond of a thread counts "
         "once"),
    Fact("dry_ns", "Device idle for it", "ns", "the part of it, and of the wait for the next launch after it, in which the device had no "
         "work"),
    Fact("step_ns", "Step", "ns", "mean length of a step; of the whole selection where no step was recorded"),
)  # fmt: skip


class MemcpyFindingsQuery(Query, kw_only=True, frozen=True):
    """rule: the finding whose copies stand in the table of evidence, as the table of findings names it ("" = the largest)
    thresholds: other thresholds than usual, as "tiny_count=16,tiny_bytes=65536"
    """

    rule: str = ""
    thresholds: str = ""

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {
        "rule": RULES,
        "thresholds": tuple(f"{f.name}={f.default}" for f in fields(Thresholds)),
    }


@analysis(
    title="Waits and patterns",
    question="Which copies block the host, which follow a costly pattern, and what would each fix save?",
    group="Speed of light",
    order=21,
    requirements=("device_events",),
    query=MemcpyFindingsQuery,
    tables={"patterns": PATTERNS, "blocking": BLOCKING, "evidence": EVIDENCE},
    facts=FACTS,
    under="memcpy",
)
def run(capture: Capture, query: MemcpyFindingsQuery) -> Report:
    """The findings as cards and as a table, every copy that blocked the host by its place, and the copies behind one finding."""
    limits_of = from_text(query.thresholds)
    where = scope(capture, query)
    found = records.copies(capture, where.device)
    if not len(found) and not len(records.copies(capture, np.ones(len(capture.device), bool))):
        raise Unavailable("no copy in this recording", hint="record a part of the job that moves data")
    held = blocking(capture, found, limits_of)
    worth = copy_findings(capture, where, bandwidth.peaks(device_for(capture, query.device_limits)), limits_of)
    step = step_ns(capture, where)
    together = together_ns(capture, where, worth)
    keep = {k: v for k, v in (("step", query.step), ("device_limits", query.device_limits), ("thresholds", query.thresholds)) if v}
    chosen = _chosen(worth, query.rule)
    least = f"{human(limits_of.least_share, 'ratio')} of {'a step' if where.rows else 'the recording'}"
    per = "per step, at most" if where.rows else "at most"
    findings = FindingsSection(
        id="findings",
        title="What to fix, in order",
        subtitle=f"saving {per}; together counts no time twice",
        findings=[to_report(f, pages=registry(), step_ns=step, keep=keep) for f in worth],
        combined_ns=together if worth else None,
        empty=f"No copy here costs {least}.",
    )
    evidence = evidence_table(capture, found, held, chosen, query.rule, where)
    tables = [patterns_table(found, worth, step, keep, where), blocking_table(capture, found, held, keep, where)]
    return Report(
        analysis="memcpy_findings",
        title="Waits and patterns",
        headline=_headline(worth, chosen, together, where) or f"No copy here costs {least}.",
        notices=_notices(capture, where, limits_of),
        sections=[
            _facts(worth, together, held, in_steps(capture, where)[found["row"].to_numpy()], step, where),
            *([evidence] if query.rule else []),  # what was asked for comes first
            findings,
            *tables,
            *([] if query.rule else [evidence]),
        ],
    )


def _chosen(worth: list[Finding], rule: str) -> Finding | None:
    """The finding that `rule` names, by its key or its rule; the largest for "". None where that rule found nothing."""
    name = rule.strip().removeprefix("copies_")
    if not name:
        return worth[0] if worth else None
    mine = [f for f in worth if name in (f.rule, f.rule.removesuffix(f"_{f.direction}"))]
    if not mine and name not in RULES and name.rpartition("_")[0] not in RULES:
        known = ", ".join(f.rule for f in worth) or "none in this selection"
        raise BadQuery(f"no finding {rule[:60]!r}", hint=f"there are: {known}", field="rule")
    return mine[0] if mine else None


def _headline(worth: list[Finding], chosen: Finding | None, together: int, where: Scope) -> str:
    if not worth:
        return ""
    first, per = chosen or worth[0], "of each step" if where.rows else "of the recording"
    text = f"**{first.title}**: at most **{human(first.saving, 'ns')}** {per}"
    if first.host and first.host_ns > first.saving:
        text += f", of {human(first.host_ns, 'ns')} that the host is held"
    return f"{text}. All {len(worth)} together: at most {human(together, 'ns')}." if len(worth) > 1 else f"{text}."


def _notices(capture: Capture, where: Scope, limits_of: Thresholds) -> list[Notice]:
    off = rules_off(capture, where)
    out = [Notice(off, "info")] if off else []
    own = changed(limits_of)
    if own:
        said = ", ".join(f"{name} {value} (usually {getattr(DEFAULT, name)})" for name, value in own.items())
        out.append(Notice(f"Thresholds changed: {said}.", "info"))
    return out


def _facts(
    worth: list[Finding], together: int, held: pd.DataFrame, launched: Mask, step: float, where: Scope
) -> FactsSection:
    """together: ns that all findings could save. launched: per copy whether a step launched it: what is per step is of those."""
    sums = {n: held[c].to_numpy() for n, c in (("held_ns", "lost_ns"), ("dry_ns", "idle_ns"))}
    values: dict[str, Scalar] = {
        "findings": len(worth), "combined_ns": together, "held": int(held["reason"].ne("").sum()),
        **{n: int(v.sum()) for n, v in sums.items()}, "step_ns": round(step),
    }  # fmt: skip
    notes = {n: f"{human(round(int(v[launched].sum()) / where.step_count), 'ns')} per step" for n, v in sums.items() if v.any()}
    return make_facts(
        "answer",
        "Waits and patterns",
        values,
        FACTS,
        labels={} if where.rows else {"step_ns": "Recording"},
        weight="headline",
        style="tiles",
        notes=notes | {"combined_ns": "per step"} if where.rows else {},
    )
