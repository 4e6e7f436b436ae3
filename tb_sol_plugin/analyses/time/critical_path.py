"""What bounds the step: the chain of host code, launches, device work and waits of which each held up the next.

Every moment of the recording, the start and end of each event, waits for others: the one before it on its thread or stream, its launch,
the work of another stream, the device. The latest of these holds it. The chain of what holds the end of a step, back to its start, is its
critical path: it is as long as the step, to the nanosecond. Work that is not on it has slack: it may take longer, and gains nothing when it
takes less. What an item would save is replayed with half of its time, and with none: a schedule, no subtraction.

Not in it: contention between streams, changes of clocks, and what other ranks would do. A collective contains waiting for other ranks. Once
all ranks of the run have been read (by the pages of ranks, or `tb-sol index`), waiting and transfer are told apart, and each
collective on the path names the rank that came last and opens what that did before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.time import critical_path_tables as T
from tb_sol_plugin.metrics import meanwhile, memo
from tb_sol_plugin.metrics.critical.findings import findings
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.items import By, items
from tb_sol_plugin.metrics.critical.layout import layout_of
from tb_sol_plugin.metrics.critical.over_ranks import RankWaits, rank_waits, told_apart
from tb_sol_plugin.metrics.critical.parts import PARTS, class_sums, classes_frame, mean_of, steps_frame
from tb_sol_plugin.metrics.critical.path import OF_HOST, PLACE, Path, inside_ranges, path_of, selected_path
from tb_sol_plugin.metrics.critical.replay import Trust, trust_of
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.metrics.report.notes import edge_notices
from tb_sol_plugin.metrics.time.attribution import of_kind
from tb_sol_plugin.metrics.time.breakdown import device_word
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    AnySection,
    FieldNow,
    FindingsSection,
    Link,
    Notice,
    OnTimeline,
    Report,
    Scalar,
    Sort,
    TableSection,
    TimelineSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

MOST_PHASES: Final = 100
"""User ranges that the page offers to choose from."""
MOST_KEPT: Final = 300_000
"""Segments of a path whose table is kept for another grouping: they take 24 MB."""
MOST_MARKED: Final = 200
"""Stretches of a step that are marked on its timeline."""
GRADE_WORDS: Final = {
    "good": "little of the path is unexplained, and a blind replay gives the measured time",
    "fair": "a small part of the path is unexplained, or a blind replay is off by a little",
    "poor": "too much of the path is unexplained, or a blind replay is far off: savings are no predictions here",
}


class CriticalPathQuery(Query, kw_only=True, frozen=True):
    """by: what the items are: kernel is the event itself, on the host the innermost one
    phase: only what of the path lies inside of user ranges of this name ("" = all of it)
    """

    by: By = "kernel"
    phase: str = ""


@analysis(
    title="Critical path",
    question="What bounds the step, and what would a faster part of it save?",
    group="Time",
    order=7,
    requirements=("events", "program"),
    query=CriticalPathQuery,
    tables={"items": T.ITEMS, "classes": T.CLASSES_TABLE, "steps": T.STEPS, "collectives": T.COLLECTIVES, "segments": T.SEGMENTS},
    facts=T.FACTS,
    joins="stragglers",
)
def run(capture: Capture, query: CriticalPathQuery, ranks: Sequence[RecordingReduction[RankSummary]] = ()) -> Report:
    where, path = selected_path(capture, query)
    waits = rank_waits(capture, ranks) if ranks else None
    path = told_apart(capture, path, waits) if waits is not None else path
    trust, phases = trust_of(capture, where), _phases(capture)
    if trust.grade != "poor":
        meanwhile(capture, lambda: layout_of(capture, where))  # for findings, which come after the items
    whole, path = path, inside_ranges(capture, path, query.phase) if query.phase else path
    of = where.rows, query.phase, query.step
    of_path, segments = partial(_of_path, capture, where, query, whole, path, waits), partial(T.segments_table, capture, path)
    means = mean_of(class_sums(path), len(path.rows))
    values = _values(capture, where, path, trust, means)
    found = items(capture, where, query.by, query.phase)
    if trust.grade == "poor":  # a replay is no prediction
        found = found.assign(saved_half_ns=-1, saved_zero_ns=-1)
    own = of_path() if waits is not None else memo(capture, ("critical_path.of_path", *of), of_path)
    frame = T.items_frame(capture, found, len(path.rows), int(values["duration_ns"] or 0), query.by)
    return Report(
        analysis="critical_path",
        title="Critical path",
        headline=_headline(capture, where, values, frame, query.phase),
        provisional=bool((path.kind == PLACE["communication"]).any()),
        fields={"phase": FieldNow(query.phase, phases)},
        notices=[*_notices(capture, path, trust), *edge_notices(capture, where)],
        sections=[
            make_facts(
                "split", "What bounds the step", {name: values[name] for name in PARTS if values[name]}, T.FACTS, style="split",
                subtitle=f"parts of the critical path inside of {query.phase}" if query.phase else
                f"parts of the critical path, which add up to {T.of_steps(capture, where)}",
                notes={n: human(int(values[n] or 0) / max(int(values["duration_ns"] or 0), 1), "ratio") for n in PARTS if values[n]},
            ),
            *own.head,
            make_table(
                "items", "On the path", frame, T.ITEMS, key="full_name", sort=Sort("time_ns"),
                row_links=T.what_if_links(frame["full_name"].tolist(), query.by, query.step),
                subtitle=f"{where.label}; per step; saved: replayed with half of its time, and with none",
                footer="Path: time of the item on the critical path. Total: all its time, off the path too. Slack: by how much what is off "
                "the path may be late. Less time of an item saves no more than the replay says, as other work takes its place on the path.",
            ),
            make_facts(
                "facts", "Trust in the path", {n: values[n] for n in T.TRUST}, T.FACTS, span=4,
                text=f"Grade {trust.grade}: {GRADE_WORDS[trust.grade]}.", hidden=["released", "cut_edges"],
            ),
            *own.tail,
            segments() if waits is not None or len(path.kind) > MOST_KEPT else memo(capture, ("critical_path.segments", *of), segments),
        ],
    )  # fmt: skip


class _OfPath(NamedTuple):
    """Sections about the path itself, whatever its items are: those before them, and those after, but for the segments, which are many."""

    head: list[AnySection]
    tail: list[AnySection]


def _of_path(capture: Capture, where: Scope, query: CriticalPathQuery, whole: Path, path: Path, waits: RankWaits | None) -> _OfPath:
    head = [_timeline(capture, path_of(capture, where)), *_findings(capture, where, query.step, whole)]
    tail: list[AnySection] = [
        make_table(
            "classes", "By class", classes_frame(path), T.CLASSES_TABLE, key="class", span=8, adds=["time_ns", "share", "segments"],
            sort=Sort("time_ns"), timeline=OnTimeline("longest_ns", "longest_start_ns", "longest_ns", what="its longest segment"),
        ),
        *([_steps(capture, path)] if len(path.rows) > 1 and not query.phase else []),
        *([T.collectives_table(capture, path, waits)] if waits is not None else []),
    ]  # fmt: skip
    return _OfPath(head, tail)


def _values(capture: Capture, where: Scope, path: Path, trust: Trust, means: np.ndarray) -> dict[str, Scalar]:
    graph, steps = graph_of(capture), len(path.rows)
    values: dict[str, Scalar] = {
        "duration_ns": round(int((path.end - path.begin).sum()) / steps), "path_ns": round(int(path.duration.sum()) / steps),
        "grade": trust.grade, "unexplained_share": trust.unexplained, "inferred_share": trust.inferred, "blind_error": trust.blind,
        "error_share": trust.error, "dropped_edges": sum(graph.dropped.values()), "cut_edges": graph.cut,
        "released": int((graph.binding < 0).sum()), "nodes": len(graph.time), "edges": len(graph.edges), "steps": len(where.rows),
    }  # fmt: skip
    for name, (*_, classes) in PARTS.items():
        values[name] = int(means[[PLACE[c] for c in classes]].sum())
    return values


def _headline(capture: Capture, where: Scope, values: dict[str, Scalar], frame: pd.DataFrame, phase: str) -> str:
    whole = int(values["duration_ns"] or 0)
    step = ("A step" if len(where.rows) > 1 else "The step") if where.rows else "The recording"
    host = sum(int(values[n] or 0) for n in ("host_ns", "runtime_ns", "dataloader_ns"))
    device = sum(int(values[n] or 0) for n in ("kernel_ns", "copies_ns", "communication_ns"))
    ranks = int(values["rank_wait_ns"] or 0)
    if not whole:
        return f"{step} takes no time."
    if phase:
        part = int(values["path_ns"] or 0)
        return f"`{phase}` holds **{human(part / whole, 'ratio')}** of {step.lower()} of {human(whole, 'ns')}: {_largest(values, part)}."
    bound, part = max((("the host", host), (f"the {device_word(capture)}", device), ("other ranks", ranks)), key=lambda one: one[1])
    share = f"{human(part / whole, 'ratio')}** of its critical path"
    sentence = f"{step} of {human(whole, 'ns')} is bound by **{bound}, {share}. On it are {_largest(values, whole)}."
    half = frame["saved_half_ns"]
    good = np.flatnonzero(half.notna())
    if len(good):
        best = int(good[half.to_numpy()[good].astype(np.float64).argmax()])
        saved = int(half.iloc[best])
        if saved > 0.005 * whole:
            sentence += f" Half of the time of `{frame['name'].iloc[best]}` would save {human(saved, 'ns')}."
    return sentence


def _largest(values: dict[str, Scalar], whole: int) -> str:
    """Returns the largest parts of a path and their shares of a time."""
    parts = [(PARTS[n][0], int(values[n] or 0)) for n in PARTS]
    first = sorted((p for p in parts if p[1]), key=lambda p: -p[1])[:3]
    return ", ".join(f"{label.lower()} {human(ns / max(whole, 1), 'ratio')}" for label, ns in first) or "none of it"


def _phases(capture: Capture) -> tuple[str, ...]:
    """Returns the names of user ranges to choose from, in the order of the recording; none for all of the path."""
    names = arrays.pick(capture.host["name"], of_kind(capture, S.ANNOTATION))
    return ("", *list(dict.fromkeys(str(n) for n in names.tolist()))[:MOST_PHASES])


def _notices(capture: Capture, path: Path, trust: Trust) -> list[Notice]:
    out = []
    if trust.apart:
        text = "Most work of devices has no launch in this recording, or starts before it by the clocks"
        out.append(Notice(f"{text}: nothing joins the paths of host and devices, and what items would save is no prediction.", "warn"))
    elif trust.grade == "poor":
        most = np.flatnonzero(path.kind == PLACE["unexplained"])
        share = human(trust.unexplained, "ratio")
        text = f"The path is not well explained ({share} of it unexplained): what items would save is no prediction."
        if len(most):
            longest = most[int(path.duration[most].argmax())]
            text += f" The longest such segment is {human(int(path.duration[longest]), 'ns')}."
        out.append(Notice(text, "warn"))
    if (path.kind == PLACE["communication"]).any():
        text = "Communication on the path contains waiting for other ranks. The pages of ranks read all of them; from then on waiting and "
        out.append(Notice(text + "transfer are told apart here too.", "info", Link("ranks", {}, "Ranks")))
    return out


def _findings(capture: Capture, where: Scope, step: str, path: Path) -> list[AnySection]:
    waits = int(path.duration[path.kind == PLACE["communication_wait"]].sum())
    made = findings(capture, where, step, waits / max(int((path.end - path.begin).sum()), 1))
    if not made:
        return []
    return [FindingsSection(
        id="path_findings", title="What would shorten the step", subtitle="each saving by a replay that changes this alone", findings=made,
    )]  # fmt: skip


def _steps(capture: Capture, path: Path) -> TableSection:
    frame = steps_frame(path)
    parts = {str(name): frame[name].to_numpy() for name in frame.columns}
    number, start = (capture.steps[name].to_numpy()[parts["row"]] for name in ("number", "start_ns"))
    return make_table(
        "steps", "Step by step", {**parts, "step": number, "start_ns": start, "split": parts["duration_ns"]}, T.STEPS, key="step",
        sort=Sort("step", False), timeline=OnTimeline("step", "start_ns", "duration_ns"),
    )  # fmt: skip


def _timeline(capture: Capture, path: Path) -> TimelineSection:
    """Returns the timeline of the step whose length is the median, with the stretches marked in which its path is on the host."""
    length = path.end - path.begin
    some = np.flatnonzero(length > 0)
    at = int(some[np.argsort(length[some], kind="stable")[len(some) // 2]])
    mine = np.flatnonzero(path.step == path.rows[at])
    on_host = np.isin(path.kind[mine], [PLACE[c] for c in (*OF_HOST, "wait_overhead", "handoff")])
    change = np.flatnonzero(np.concatenate(([True], on_host[1:] != on_host[:-1])))
    start = path.start[mine][change]
    end = np.append(start[1:], path.end[at])
    marked = on_host[change]
    start, end = start[marked], end[marked]
    longest = np.sort(np.argsort(start - end, kind="stable")[:MOST_MARKED])
    word = "the bar and its arrows: the critical path; shaded: it is on the host"
    number = int(capture.steps["number"].to_numpy()[path.rows[at]])
    return TimelineSection(
        id="stretch", title=f"Step {number}" if number >= 0 else "Recording", start_ns=int(path.begin[at]), end_ns=int(path.end[at]),
        height=T.HEIGHT, path=True,
        highlight=[(int(start[i]), int(end[i]), word if n == 0 else "") for n, i in enumerate(longest.tolist())],
    )  # fmt: skip

