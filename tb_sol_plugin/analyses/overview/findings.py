"""What to fix: every finding with its evidence, what a step takes less without it, and where in the program its time is spent.

Findings do not overlap: rules run from the most specific to the most general, and time that one has claimed is offered to no other. A
saving is that of a replay in which the finding's time is gone and every dependency stays: other work may hold the step then, and a finding
whose time hides behind it stands last. Where the critical path is graded poor, or nothing ran on a device, savings are the time that
findings take, at most; these add up, so that their sum is a bound on what all of them could save together.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.analyses.overview.findings_tables import CALL_COLUMNS, EVENT_COLUMNS, evidence
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.critical.replayed import Replayed, replayed, replayed_findings
from tb_sol_plugin.metrics.report.gap_rows import GAP_COLUMNS
from tb_sol_plugin.metrics.report.notes import edge_notices, graph_notices, source_notices
from tb_sol_plugin.metrics.rules.engine import LEAST, Finding, count_text, to_report
from tb_sol_plugin.metrics.rules.memory import memory_section
from tb_sol_plugin.metrics.rules.time import NEEDS_TIMES, RULES, time_findings
from tb_sol_plugin.metrics.time.scope import Scope, is_profile, is_uncounted, scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.metrics.time.waterfall import waterfall as waterfall_of
from tb_sol_plugin.metrics.trees.phases import STEP, phase_tree
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis, registry
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FindingsSection,
    Link,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Objects
from tb_sol_plugin.tables.table import frame_of
from tb_sol_plugin.units import capitalized, human

COLUMNS = (
    Column("title", "Finding", "", "The cause in words.", "text"),
    Column("rule", "Rule", "", "Stable name of the rule; docs/findings.md describes each.", "code", rank=2),
    Column("saving_ns", "Saving", "ns", "What a step takes less where it is fixed: by replay, or at most.", "bar", color="compute"),
    Column("share", "Of the step", "ratio", "Saving over the step.", "share"),
    Column("basis", "Basis", "", "Replay: its time is gone and every dependency stays. At most: the time that it takes. Hidden: by replay "
           "it saves less than 0.5 % of the step, as other work holds it.", "badge"),
    Column("removed_ns", "Takes", "ns", "Time per step that fixing it takes away; its rows make it up.", rank=2),
    Column("calls", "Calls", "count", "Operator calls whose time it removes.", rank=2, missing="it removes no operator's time"),
    Column("where", "Most in", "", "Layer or phase that holds most of that time.", "code", rank=2, missing="no module or phase around it"),
    Column("candidate", "Proof", "", "Possible: the recording makes the cause likely but does not prove it.", "text", rank=2),
    Column("fix", "Fix", "", "One line of code, or a hint.", "code", rank=3),
    Column("evidence", "Evidence", "", "The numbers behind it.", "text", rank=3),
)
PLACE_COLUMNS = (
    Column("rule", "Rule", "", "Stable name of the rule.", "code"),
    Column("layer", "Layer", "", "Class of the innermost module around the calls.", "code", missing="outside every module"),
    Column("phase", "Phase", "", "Innermost user range around the calls, below the step.", "code", missing="outside every user range"),
    Column("calls", "Calls", "count", "Operator calls."),
    Column("saving_ns", "Takes", "ns", "Their part of the time that fixing it takes away, per step.", "bar", color="compute"),
    Column("share", "Of the finding", "ratio", "Their part of what the finding takes from operators.", "share", rank=2),
)
FEW_RULES = "Only rules that look at sizes, types and times of operators apply to a SOL capture; a profiler trace allows all of them."
FACTS: Final = (
    Fact("findings", "Findings", "count", "Findings that save at least 0.5 % of the step."),
    Fact("combined_ns", "Together", "ns", "What all of them save together per step: replayed at once, or at most; no nanosecond stands in "
         "two of them."),
    Fact("step_ns", "Step", "ns", "Mean length of a step; of the whole recording where no step was recorded."),
    Fact("after_ns", "What remains", "ns", "The step less that: what remains if every finding were fixed to its limit. Below the "
         "limit where a fix replaces work by work with a lower limit: another type, one kernel for several, no recomputation."),
    Fact("hidden", "Hidden", "count", "Findings whose time hides behind other work: by replay each alone saves less than 0.5 % of it."),
    Fact("error_ns", "Error of a saving", "ns", "Of a replay: what is inferred, and how far a blind replay is off."),
    Fact("grade", "Grade of the path", "", "Good or fair: savings are by replay of all dependencies. Poor or none: savings are at most."),
    Fact("sol_ns", "Limit", "ns", "Sum of the limits of all modeled work as it is, per step: the last bars of the waterfall."),
)  # fmt: skip


class FindingsQuery(Query, kw_only=True, frozen=True):
    """Which findings.

    rule: the finding whose calls, gaps and device events are shown as rows, those of all layers and phases ("" = all findings, no rows).
    layer: only what findings take from operators inside modules of this class ("" = everywhere).
    phase: only what they take from operators inside this phase, as the table of places names it ("" = everywhere).
    """

    rule: str = ""
    layer: str = ""
    phase: str = ""


@analysis(
    title="What to fix",
    question="What holds the step back, and what would each fix save?",
    group="",
    order=10,
    requirements=("program",),
    query=FindingsQuery,
    tables={"findings": COLUMNS, "places": PLACE_COLUMNS, "calls": CALL_COLUMNS, "gaps": GAP_COLUMNS, "events": EVENT_COLUMNS},
    facts=FACTS,
)
def findings(capture: Capture, query: FindingsQuery) -> Report:
    """Returns every finding, and a table of the modules and phases in which its time is spent."""
    if is_profile(capture):
        because = "a Proton profile holds sums, no single calls for a rule to examine"
        raise Unavailable(because, hint="the roofline ranks its kernels by their time above the limit")
    part = scope(capture, query)
    waterfall = waterfall_of(capture, part, query.device_limits)
    if not waterfall.work.timed:
        message, _, hint = NEEDS_TIMES.partition(": ")
        raise Unavailable(message[0].lower() + message[1:], hint=hint.rstrip("."))
    if is_uncounted(capture):
        because, hint, _ = capture.missing("work") or ("", "", "")
        raise Unavailable(because, hint=hint)
    judged = replayed_findings(capture, part, waterfall)
    if query.rule:
        return _one(capture, part, waterfall, judged, query.rule)
    found = judged.found
    places, place_of = _places(capture, waterfall, found)
    wanted = [n for n in ("layer", "phase") if getattr(query, n)]
    for name in wanted:
        known = sorted({str(v) for v in places[name] if v})
        if getattr(query, name) not in known:
            raise BadQuery(f"no {name} {getattr(query, name)!r} among the findings", hint=f"there are: {', '.join(known[:20])}", field=name)
        places = places[places[name] == getattr(query, name)]
    if wanted:
        judged = replayed(capture, part, waterfall, _inside(waterfall, time_findings(capture, part, waterfall), places, place_of))
    shown = judged.shown
    report = Report(analysis="findings", title="What to fix", headline=_headline(waterfall, judged))
    report.notices = source_notices(capture, part) + edge_notices(capture, part)
    report.notices += graph_notices(capture, waterfall.work, waterfall.own)
    if waterfall.work.from_ledger and waterfall.work.timed and shown:
        report.notices.append(Notice(FEW_RULES, "info"))
    memory = memory_section(capture, registry()) if not wanted else None
    report.sections = [_facts(waterfall, judged), _cards(waterfall, judged), *([memory] if memory is not None else [])]
    report.sections += [_table(waterfall, judged, places), _place_table(places)]
    return report


def _one(capture: Capture, part: Scope, waterfall: Waterfall, judged: Replayed, rule: str) -> Report:
    """Returns one finding with every row that its saving is taken from."""
    chosen = [f for f in judged.found if f.id == rule]
    if not chosen and rule not in RULES:
        raise BadQuery(f"no finding {rule!r}", hint=f"there are: {', '.join(f.id for f in judged.found) or 'none here'}", field="rule")
    judged = replace(judged, found=chosen)
    report = Report(analysis="findings", title="What to fix", headline=_headline(waterfall, judged))
    report.notices = source_notices(capture, part) + edge_notices(capture, part)
    report.notices.append(Notice("One finding and its rows.", "info", Link("findings", {}, "All findings")))
    if not chosen:
        report.headline = f"The rule {rule} finds nothing in this selection."
        return report
    cards = _cards(waterfall, judged)
    cards.title, cards.findings = "The finding", [to_report(f, pages=registry(), step_ns=_step(waterfall), rows=False) for f in chosen]
    report.sections = [cards, *evidence(capture, part, waterfall, chosen[0])]
    return report


def _step(waterfall: Waterfall) -> float:
    return waterfall.total_ns / waterfall.steps


def _headline(waterfall: Waterfall, judged: Replayed) -> str:
    per = "of each step" if waterfall.stepped else "of the recording"
    shown = judged.found if len(judged.found) == 1 else judged.shown
    hidden = len(judged.found) - len(shown)
    behind = f" {capitalized(count_text(hidden, 'other'))} {'hides' if hidden == 1 else 'hide'} behind other work." if hidden else ""
    if not shown:
        return f"Nothing was found that saves more than {human(LEAST, 'ratio')} {per}.{behind}"
    possible = "Possible: " if shown[0].candidate else ""
    most = "" if judged.grade else "at most "
    first = f"{possible}**{shown[0].title}**: {most}**{human(shown[0].saving, 'ns')}** {per}"
    if len(shown) == 1:
        return f"{first}.{behind}"
    return f"{first}. All {len(shown)} together: {most}{human(judged.shown_together_ns, 'ns')}.{behind}"


def _facts(waterfall: Waterfall, judged: Replayed) -> FactsSection:
    together = judged.shown_together_ns
    step = round(_step(waterfall))
    values: dict[str, Scalar] = {
        "findings": len(judged.shown), "combined_ns": together, "step_ns": step, "after_ns": max(step - together, 0),
        "sol_ns": round(waterfall.sol_ns / waterfall.steps) if waterfall.has_limits else None,
    }  # fmt: skip
    if judged.grade:
        values |= {"hidden": len(judged.found) - len(judged.shown), "error_ns": judged.error_ns, "grade": judged.grade}
    labels = {} if judged.grade else {"combined_ns": "Together, at most", "after_ns": "What remains, at least"}
    return make_facts("answer", "Findings", values, FACTS, weight="headline", style="tiles", hidden=["error_ns", "grade"], labels=labels)


def _cards(waterfall: Waterfall, judged: Replayed) -> FindingsSection:
    step = _step(waterfall)
    there = registry()
    per = "per step" if waterfall.stepped else "of the recording"
    basis = judged.words if judged.grade else "at most; savings add up"
    return FindingsSection(
        id="levers",
        title="What to fix, in order",
        subtitle=f"saving {per}, {basis}",
        findings=[to_report(f, pages=there, step_ns=step) for f in judged.found],
        combined_ns=judged.shown_together_ns if judged.shown else None,
        empty=f"Nothing was found that saves more than {human(LEAST, 'ratio')} of the {'step' if waterfall.stepped else 'recording'}.",
    )


def _inside(waterfall: Waterfall, found: list[Finding], places: pd.DataFrame, place_of: dict[str, Ints]) -> list[Finding]:
    """Returns what findings take from operator calls in some of the places, the rows of `_places` that are left."""
    out = []
    for one in found:
        if one.id in place_of:
            kept = np.isin(place_of[one.id], places.index.to_numpy())
            if kept.any():
                saving = round(float(one.claimed[kept].sum()) / waterfall.steps)
                nothing = np.zeros(0, np.int64)
                out.append(replace(
                    one, saving=saving, rows=one.rows[kept], claimed=one.claimed[kept], idle=iv.empty(), events=nothing,
                    events_ns=np.zeros(0),
                ))  # fmt: skip
    return out


def _places(capture: Capture, waterfall: Waterfall, found: list[Finding]) -> tuple[pd.DataFrame, dict[str, Ints]]:
    """Returns (per finding, layer and phase: calls, and the time per step that the finding takes there; per finding that of its rows)."""
    ops = waterfall.work.ops
    phases, phase = _phase_of(capture, ops["annotation"].to_numpy())
    layers, layer = _layer_of(ops)
    parts: list[dict[str, np.ndarray]] = []
    of_rows: dict[str, Ints] = {}
    for f in found:
        if len(f.rows):
            code, first = arrays.factorize([layer[f.rows], phase[f.rows]])
            of_rows[f.id] = code + sum(len(part["rule"]) for part in parts)
            row = f.rows[first]
            claimed = pd.Series(f.claimed).groupby(code).sum().to_numpy()  # compensated sums
            parts.append({
                "rule": np.full(len(first), f.id, object), "layer": layers[layer[row]], "phase": phases[phase[row]],
                "calls": np.bincount(code), "saving_ns": (claimed / waterfall.steps).round().astype(np.int64),
                "share": claimed / max(float(f.claimed.sum()), 1e-9),
            })  # fmt: skip
    if not parts:
        return pd.DataFrame({c.name: pd.Series(dtype=object) for c in PLACE_COLUMNS}), of_rows
    out = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(-out["saving_ns"], kind="stable")
    return frame_of({name: values[order] for name, values in out.items()}, pd.Index(order)), of_rows


def _layer_of(ops: pd.DataFrame) -> tuple[Objects, Ints]:
    """Returns the names of layers, and the place of each call's among them; "" outside of all."""
    layer = arrays.coded(ops["layer"])
    place, names = pd.factorize(np.array([*(str(name) for name in layer.categories), ""], object))
    return np.asarray(names, object), place[layer.codes].astype(np.int64)


def _phase_of(capture: Capture, annotation: npt.NDArray[np.integer]) -> tuple[Objects, Ints]:
    """Returns paths of user ranges below their step, and the place of that around each call among them; "" outside of all."""
    tree = phase_tree(capture)
    node = np.where(annotation >= 0, tree.node[np.maximum(annotation, 0)], -1) if len(tree.node) else annotation
    place, paths = pd.factorize(np.array([*(p.removeprefix(STEP).lstrip("/") for p in tree.path), ""], dtype=object))
    return np.asarray(paths, object), place[node].astype(np.int64)


def _table(waterfall: Waterfall, judged: Replayed, places: pd.DataFrame) -> TableSection:
    step, shown = _step(waterfall), judged.found
    saved: dict[str, dict[str, int]] = {}
    for rule, layer, phase, ns in zip(*(places[name].tolist() for name in ("rule", "layer", "phase", "saving_ns")), strict=True):
        of = saved.setdefault(rule, {})
        of[layer or phase] = of.get(layer or phase, 0) + ns
    where = {rule: max(sorted(of), key=of.__getitem__) for rule, of in saved.items()}
    frame: dict[str, list[object]] = {
        "title": [f.title for f in shown], "rule": [f.id for f in shown], "saving_ns": [f.saving for f in shown],
        "share": [f.saving / step if step else None for f in shown], "basis": [judged.basis(f) for f in shown],
        "removed_ns": [f.saving if f.removed is None else f.removed for f in shown],
        "calls": [len(f.rows) or None for f in shown],
        "where": [where.get(f.id) or None for f in shown], "candidate": ["possible" if f.candidate else "" for f in shown],
        "fix": [f.fix for f in shown], "evidence": [f.evidence for f in shown],
    }  # fmt: skip
    return make_table(
        "findings", "The same as a table", frame, COLUMNS, key="rule", sort=Sort("saving_ns"), filters=["title", "rule", "where"],
        adds=["removed_ns"] if judged.grade else ["saving_ns", "share", "removed_ns"], empty="No finding.",
    )  # fmt: skip


def _place_table(places: pd.DataFrame) -> TableSection:
    frame: dict[str, object] = {column.name: places[column.name] for column in PLACE_COLUMNS}
    frame |= {name: [text or None for text in places[name].tolist()] for name in ("layer", "phase")}
    return make_table(
        "places", "Where the time of the findings is spent", frame, PLACE_COLUMNS, subtitle="operators only, by layer and phase",
        adds=["calls", "saving_ns"], sort=Sort("saving_ns"), filters=["rule", "layer", "phase"],
        empty="No finding takes time from operators.",
        footer="Waits, communication and exposed copies belong to no operator.",
    )  # fmt: skip
