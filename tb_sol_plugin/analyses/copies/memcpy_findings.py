"""Why the host waits for copies, which copies follow a costly pattern, and what a fix of each would save.

A copy blocks the host where its call is synchronous, an end of it is pageable, the call outlasts it, or the host waits for it at once. A
finding takes of time on the host only that in which the device is idle for it, of time on the device only that in which no kernel runs.
Its saving is that of a replay in which this time is gone and every dependency stays; where the critical path is graded poor it is all of
that time, at most. A copy stands in one finding.
Every finding has its copies as evidence. Thresholds can be changed, and the page says which are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import ClassVar, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.copies import bandwidth, groups, records
from tb_sol_plugin.metrics.copies.blocking import REASONS, blocking
from tb_sol_plugin.metrics.copies.thresholds import DEFAULT, Thresholds, changed, from_text
from tb_sol_plugin.metrics.critical.replayed import Replayed, replayed_copies
from tb_sol_plugin.metrics.rules.copies import RULES, rules_off, step_ns
from tb_sol_plugin.metrics.rules.copies.context import outermost_operator
from tb_sol_plugin.metrics.rules.engine import Finding, to_report
from tb_sol_plugin.metrics.time.attribution import sum_by
from tb_sol_plugin.metrics.time.scope import Scope, in_steps, scope
from tb_sol_plugin.metrics.trees.phases import STEP
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
    OnTimeline,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Mask, Objects, Places, or_none
from tb_sol_plugin.units import human

# -- Tables -----------------------------------------------------------------------------------------------------------
# findings, copies that blocked the host by their place in the program, and the copies behind a finding.


NO_SIZE: Final = "no copy of this row carries a size"
PLACES: Final = (
    Column("outer", "Called as", doc="outermost operator around the call", show="code", missing="no operator around the call"),
    Column("module", "Module", doc="innermost module call around it", show="code", missing="no module around the call"),
    Column("frame", "Python line", doc="innermost python line around it", show="code", missing="no python frames recorded around the call"),
    Column("phase", "Phase", doc="innermost phase around it", rank=2, missing="no phase around the call"),
    Column("operator", "Operator", doc="innermost operator around it", show="code", rank=3, missing="no operator around the call"),
)
PATTERNS: Final = (
    Column("title", "Finding", doc="the cause in words", show="text"),
    Column("rule", "Rule", doc="stable name of the rule, with the direction where it speaks for several", show="code"),
    Column("direction", "Direction", doc="direction of its copies", show="symbol", rank=2),
    Column("saving_ns", "Saving", "ns", "what a step takes less where it is fixed: by replay, or at most", show="bar", color="memcpy"),
    Column("share", "Of the step", "ratio", "saving over the step", show="share"),
    Column("basis", "Basis", doc="replay: its time is gone and every dependency stays; at most: the time that it takes; hidden: by replay "
           "it saves too little to be shown, as other work holds the step", show="badge"),
    Column("removed_ns", "Takes", "ns", "time per step that fixing it takes away", rank=2),
    Column("host_ns", "Host blocked", "ns", "time per step in which its copies block the host", rank=2),
    Column("count", "Copies", "count", "copies that show it, in the whole selection"),
    Column("bytes", "Bytes", "B", "their bytes, as far as recorded", missing=NO_SIZE),
    Column("candidate", "Proof", doc="possible: the recording makes the cause likely but does not prove it", show="text", rank=2),
    Column("fix", "Fix", doc="one line of code, or a hint", show="code", rank=2),
    Column("evidence", "Evidence", doc="the numbers behind it", show="text", rank=3),
)
BLOCKING: Final = (
    Column("reason", "Blocked by", doc="why the host could not go on", show="badge"),
    Column("direction", "Direction", doc="direction of the copies", show="symbol"),
    Column("kinds", "Memory", doc="kinds of the source and destination memory as recorded", missing="not recorded"),
    *PLACES,
    Column("count", "Calls", "count", "copies and sets that blocked the host"),
    Column("bytes", "Bytes", "B", "their bytes, as far as recorded", rank=2, missing=NO_SIZE),
    Column("lost_ns", "Host blocked", "ns", "time in which they blocked the host, with the drain of the stream", show="bar", color="host"),
    Column("idle_ns", "Device idle", "ns", "time in which the device was idle for it: what a copy that does not block could save"),
    Column("longest_ns", "Longest", "ns", "longest single wait", rank=2),
    Column("mean_ns", "Mean", "ns", "mean wait", rank=3, per="call"),
    Column("id", "Id", doc="stable key of the row", rank=3),
)
EVIDENCE: Final = (
    Column("step", "Step", doc="step that launched it, or why there is none"),
    Column("start_ns", "Start", "ns", "start on the device, since the recording began"),
    Column("direction", "Direction", doc="direction of the copy", show="symbol"),
    Column("kinds", "Memory", doc="kinds of the source and destination memory as recorded", missing="not recorded"),
    Column("bytes", "Bytes", "B", "size of the copy", missing="the recording has no size of this copy"),
    Column("duration_ns", "Time", "ns", "duration on the device", show="bar", color_by="direction"),
    Column("exposed_ns", "Exposed", "ns", "part of it behind no kernel that computes", rank=2),
    Column("api", "Call", doc="host call that launched it", show="code", missing="no host call was recorded"),
    Column("reason", "Blocked by", doc="why it blocked the host", show="badge", rank=2, missing="it did not block the host"),
    Column("host_ns", "Host blocked", "ns", "its call, and the wait after it", missing="it did not block the host"),
    Column("idle_ns", "Device idle", "ns", "time in which the device was idle for it", rank=2, missing="it did not block the host"),
    *PLACES,
    Column("device", "Device", doc="device of the copy", rank=3),
    Column("stream", "Stream", doc="stream of the copy", rank=3),
    Column("id", "Id", doc="place of its event in the table of device events", rank=3),
)


def patterns_table(found: pd.DataFrame, judged: Replayed, step: float, keep: dict[str, str], where: Scope) -> TableSection:
    """Builds a table with one row per finding. step: length of a step in ns. keep: query fields that links keep."""
    size, ranked = found["bytes"].to_numpy(), judged.found
    rows: list[dict[str, Scalar]] = [
        {
            "title": f.title, "rule": f.rule, "direction": f.direction, "saving_ns": f.saving,
            "share": f.saving / step if step else None, "basis": judged.basis(f),
            "removed_ns": f.saving if f.removed is None else f.removed, "host_ns": f.host_ns, "count": len(f.rows),
            "bytes": _bytes(size[f.rows]), "candidate": "possible" if f.candidate else "", "fix": f.fix, "evidence": f.evidence,
        }
        for f in ranked
    ]  # fmt: skip
    frame = {c.name: [row[c.name] for row in rows] for c in PATTERNS}
    return make_table(
        "patterns", "The same as a table", frame, PATTERNS, key="rule", subtitle=where.label, sort=Sort("saving_ns"),
        filters=["title", "rule", "direction"],
        row_links={str(i): Link("memcpy_findings", {**keep, "rule": f.rule}, "Its copies") for i, f in enumerate(ranked)},
        footer="A copy stands in one finding. A possible one is likely, not proven: contents of copies are not recorded.",
        empty="No finding.",
    )  # fmt: skip


def blocking_table(capture: Capture, found: pd.DataFrame, blocked: pd.DataFrame, keep: dict[str, str], where: Scope) -> TableSection:
    """Builds the table of copies that blocked the host, by reason, direction, kinds of memory and place; the longest first."""
    rows = np.flatnonzero(blocked["reason"].to_numpy(object) != "")
    keys = {name: _distinct(of[name].to_numpy(object)[rows]) for name, of in (("reason", blocked), ("direction", found))}
    keys |= {"kinds": _kinds_text(found, rows)} | {name: groups.coded(capture, found, name, rows) for name in _BY}
    code = arrays.together(*(part for part, _ in keys.values()))
    first = arrays.first_of(code, int(code.max(initial=-1)) + 1)
    size, host_ns = found["bytes"].to_numpy()[rows], blocked["host_ns"].to_numpy()[rows]
    lost, idle, host, count, with_size = (
        sum_by(code, v, len(first))
        for v in (*(blocked[c].to_numpy()[rows] for c in ("lost_ns", "idle_ns")), host_ns, np.ones_like(size), (size >= 0).astype(np.int64))
    )
    moved = sum_by(code, np.maximum(size, 0), len(first))
    longest = np.zeros(len(first), np.int64)
    np.maximum.at(longest, code, host_ns)
    top = np.flatnonzero(host_ns == longest[code])
    top = top[np.sort(np.unique(code[top], return_index=True)[1])]
    most = np.zeros(len(first), np.intp)
    most[code[top]] = top
    outer = outermost_operator(capture, found["operator"].to_numpy()[rows[most]])
    called = arrays.pick(capture.host["name"], outer) if len(capture.host) else np.full(len(first), "", object)
    named = {name: names[part[first]].tolist() for name, (part, names) in keys.items()}
    out: list[dict[str, Scalar]] = []
    links: dict[str, Link] = {}
    for at in np.argsort(-lost, kind="stable").tolist():
        row = {name: str(values[at]) for name, values in named.items()}
        links[str(len(out))] = Link("memcpy_copies", _choice(row, keep), "Single copies")
        owners: dict[str, Scalar] = {c: _place(row[c]) for c in _BY}
        out.append(owners | {
            "id": "|".join(row.values()), "reason": REASONS[row["reason"]], "kinds": row["kinds"] or None, "count": int(count[at]),
            "direction": row["direction"], "outer": called[at] or None, "bytes": int(moved[at]) if with_size[at] else None,
            "lost_ns": int(lost[at]), "idle_ns": int(idle[at]), "longest_ns": int(longest[at]),
            "mean_ns": round(int(host[at]) / int(count[at])),
        })  # fmt: skip
    frame = {c.name: [row[c.name] for row in out] for c in BLOCKING}
    return make_table(
        "blocking", "Copies that blocked the host", frame, _used_columns(BLOCKING, frame), key="id",
        adds=["count", "bytes", "lost_ns", "idle_ns"],
        subtitle=f"{where.label}; by reason, memory and place", sort=Sort("lost_ns"), filters=["reason", "direction", "kinds"],
        row_links=links,
        footer="Each nanosecond of a thread counts once. Where the device is busy meanwhile, no step is longer for it.",
        empty="No copy blocked the host.",
    )  # fmt: skip


def evidence_table(
    capture: Capture, found: pd.DataFrame, blocked: pd.DataFrame, chosen: Finding | None, rule: str, where: Scope
) -> TableSection:
    """Builds the table of the copies behind a finding, in order of time."""
    rows: Places = chosen.rows.astype(np.intp, copy=False) if chosen is not None else np.zeros(0, np.intp)
    own = {
        name: found[name].to_numpy()[rows]
        for name in ("start_ns", "duration_ns", "exposed_ns", "bytes", "direction", "api", "operator", "device", "stream", "row")
    }  # fmt: skip
    why = {name: blocked[name].to_numpy()[rows] for name in ("reason", "host_ns", "idle_ns")}
    reason, size = why["reason"], own["bytes"]
    holds = reason != ""
    outer = outermost_operator(capture, own["operator"])
    called = arrays.pick(capture.host["name"], outer) if len(capture.host) else np.full(len(rows), "", object)
    frame: groups.Columns = {
        "step": groups.labels(capture, found, "step", rows), "start_ns": own["start_ns"] - capture.facts.extent_ns[0],
        "direction": own["direction"], "kinds": _in_place(*_kinds_text(found, rows)), "bytes": or_none(size, size >= 0),
        "duration_ns": own["duration_ns"], "exposed_ns": own["exposed_ns"],
        "api": records.in_words(own["api"], str), "reason": records.in_words(reason, lambda r: REASONS.get(r, "")),
        **{name: or_none(why[name], holds) for name in ("host_ns", "idle_ns")},
        **{name: _in_place(*groups.coded(capture, found, name, rows)) for name in _BY}, "outer": _in_place(*_distinct(called)),
        **{name: records.numbers_in_words(own[name]) for name in ("device", "stream")},
        "id": np.array([str(row) for row in own["row"].tolist()], object),
    }  # fmt: skip
    title = "Copies behind a finding" if chosen is None else f"Copies behind: {chosen.title}"
    return make_table(
        "evidence", title, frame, _used_columns(EVIDENCE, frame), key="id", subtitle=where.label, sort=Sort("start_ns", descending=False),
        filters=["kinds", "step"], adds=["bytes", "duration_ns", "exposed_ns", "host_ns", "idle_ns"],
        timeline=OnTimeline("start_ns", "start_ns", "duration_ns", capture.facts.extent_ns[0]),
        empty=f"The rule {rule} finds nothing in this selection." if rule else "No finding, no evidence.",
    )  # fmt: skip


Coded: TypeAlias = tuple[npt.NDArray[np.intp], Objects]
_BY: Final[tuple[groups.By, ...]] = ("module", "frame", "operator", "phase")
_NOWHERE: Final = frozenset((*groups.OUTSIDE.values(), groups.NO_FRAMES))


def _place(label: str) -> str | None:
    """Returns an owner as the tables show it: nothing where there is none, a phase without the step around it."""
    return None if label in _NOWHERE else label.removeprefix(f"{STEP}/")


def _used_columns(columns: tuple[Column, ...], frame: Mapping[str, Iterable[object]]) -> list[Column]:
    """Hides owners that no row has; phases come forward where neither modules nor Python lines say more."""
    empty = {c for c in ("module", "frame") if all(v is None for v in frame[c])}
    rank = dict.fromkeys(empty, 3) | ({"phase": 1} if len(empty) == 2 else {})
    return [msgspec.structs.replace(c, rank=rank.get(c.name, c.rank)) for c in columns]


def _in_place(code: npt.NDArray[np.intp], names: Objects) -> Objects:
    """Returns owners by their code as the tables show them, None for none."""
    return np.array([*(_place(str(name)) or None for name in names.tolist()), None], object)[code]


def _distinct(values: Objects) -> Coded:
    """Returns (index into the texts per row, the texts, each once)."""
    code, names = pd.factorize(values)
    return code, np.asarray(names, object)


def _kinds_text(found: pd.DataFrame, rows: Places) -> Coded:
    """Returns the kinds of memory of both ends of some copies, as (index, texts)."""
    code, kinds = records.memory_kinds(found)
    return code[rows], np.array([records.kinds_text(a, b) if a or b else "" for _, a, b in kinds], object)


def _choice(row: dict[str, str], keep: dict[str, str]) -> dict[str, str]:
    """Returns the query of single copies that means a row's copies."""
    out: dict[str, str] = {k: keep[k] for k in ("step", "device_limits") if k in keep}
    out |= {"held": row["reason"]}
    out |= {"direction": row["direction"]} if row["direction"] in records.DIRECTIONS else {}
    return out | {k: row[k] for k in ("kinds", "module", "frame", "operator", "phase") if row[k]}


def _bytes(size: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int | None:
    known = size >= 0
    return int(size[known].sum()) if known.any() else None


FACTS: Final = (
    Fact("findings", "Findings", "count", "findings that save at least a thousandth of a step"),
    Fact("combined_ns", "Together", "ns", "what all of them save together per step: replayed at once, or at most; no nanosecond counts "
         "twice"),
    Fact("hidden", "Hidden", "count", "findings whose time hides behind other work: by replay each alone saves less than that"),
    Fact("error_ns", "Error of a saving", "ns", "of a replay: what is inferred, and how far a blind replay is off"),
    Fact("grade", "Grade of the path", doc="good or fair: savings are by replay of all dependencies; poor or none: savings are at most"),
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
    """Returns the findings as cards and as a table, every copy that blocked the host by its place, and the copies behind one finding."""
    limits_of = from_text(query.thresholds)
    where = scope(capture, query)
    found = records.copies(capture, where.device)
    if not len(found) and not len(records.copies(capture, np.ones(len(capture.device), bool))):
        raise Unavailable("no copy in this recording", hint="record a part of the job that moves data")
    blocked = blocking(capture, found, limits_of)
    judged = replayed_copies(capture, where, bandwidth.peaks(device_for(capture, query.device_limits)), limits_of)
    ranked, step = judged.found, step_ns(capture, where)
    keep = {k: v for k, v in (("step", query.step), ("device_limits", query.device_limits), ("thresholds", query.thresholds)) if v}
    chosen = _chosen(ranked, query.rule)
    least = f"{human(limits_of.least_share, 'ratio')} of {'a step' if where.rows else 'the recording'}"
    per = f"per step, {judged.words}" if where.rows else judged.words
    findings = FindingsSection(
        id="findings",
        title="What to fix, in order",
        subtitle=f"saving {per}",
        findings=[to_report(f, pages=registry(), step_ns=step, keep=keep) for f in ranked],
        combined_ns=judged.shown_together_ns if judged.shown else None,
        empty=f"No copy here costs {least}.",
    )
    evidence = evidence_table(capture, found, blocked, chosen, query.rule, where)
    tables = [patterns_table(found, judged, step, keep, where), blocking_table(capture, found, blocked, keep, where)]
    return Report(
        analysis="memcpy_findings",
        title="Waits and patterns",
        headline=_headline(judged, chosen, where) or f"No copy here costs {least}.",
        notices=_notices(capture, where, limits_of),
        sections=[
            _facts(judged, blocked, in_steps(capture, where)[found["row"].to_numpy()], step, where),
            *([evidence] if query.rule else []),  # what was asked for comes first
            findings,
            *tables,
            *([] if query.rule else [evidence]),
        ],
    )


def _chosen(ranked: list[Finding], rule: str) -> Finding | None:
    """Returns the finding that `rule` names, by its key or its rule; the largest for "". None where that rule found nothing."""
    name = rule.strip().removeprefix("copies_")
    if not name:
        return ranked[0] if ranked else None
    subset = [f for f in ranked if name in (f.rule, f.rule.removesuffix(f"_{f.direction}"))]
    if not subset and name not in RULES and name.rpartition("_")[0] not in RULES:
        known = ", ".join(f.rule for f in ranked) or "none in this selection"
        raise BadQuery(f"no finding {rule[:60]!r}", hint=f"there are: {known}", field="rule")
    return subset[0] if subset else None


def _headline(judged: Replayed, chosen: Finding | None, where: Scope) -> str:
    if not judged.found:
        return ""
    first, per = chosen or judged.found[0], "of each step" if where.rows else "of the recording"
    most, shown = "" if judged.grade else "at most ", judged.shown
    if first.hidden:
        taken = human(first.removed or 0, "ns")
        return f"**{first.title}** takes {taken} {per}, but other work hides that: alone it saves **{human(first.saving, 'ns')}**."
    text = f"**{first.title}**: {most}**{human(first.saving, 'ns')}** {per}"
    if first.host and first.host_ns > first.saving:
        text += f", of {human(first.host_ns, 'ns')} that the host is held"
    return f"{text}. All {len(shown)} together: {most}{human(judged.shown_together_ns, 'ns')}." if len(shown) > 1 else f"{text}."


def _notices(capture: Capture, where: Scope, limits_of: Thresholds) -> list[Notice]:
    off = rules_off(capture, where)
    out = [Notice(off, "info")] if off else []
    own = changed(limits_of)
    if own:
        text = ", ".join(f"{name} {value} (usually {getattr(DEFAULT, name)})" for name, value in own.items())
        out.append(Notice(f"Thresholds changed: {text}.", "info"))
    return out


def _facts(judged: Replayed, blocked: pd.DataFrame, launched: Mask, step: float, where: Scope) -> FactsSection:
    """Builds the facts. launched: per copy whether a step launched it."""
    sums = {n: blocked[c].to_numpy() for n, c in (("held_ns", "lost_ns"), ("dry_ns", "idle_ns"))}
    values: dict[str, Scalar] = {
        "findings": len(judged.shown), "combined_ns": judged.shown_together_ns,
        "held": int((blocked["reason"].to_numpy(object) != "").sum()),
        **{n: int(v.sum()) for n, v in sums.items()}, "step_ns": round(step),
    }  # fmt: skip
    if judged.grade:
        values |= {"hidden": len(judged.found) - len(judged.shown), "error_ns": judged.error_ns, "grade": judged.grade}
    notes = {n: f"{human(round(int(v[launched].sum()) / where.step_count), 'ns')} per step" for n, v in sums.items() if v.any()}
    return make_facts(
        "answer",
        "Waits and patterns",
        values,
        FACTS,
        labels={} if where.rows else {"step_ns": "Recording"},
        hidden=["error_ns", "grade"],
        weight="headline",
        style="tiles",
        notes=notes | {"combined_ns": "per step"} if where.rows else {},
    )
