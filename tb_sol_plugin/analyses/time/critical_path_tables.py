"""Columns, facts and frames of the critical path."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.critical.edges import EVIDENCE, KINDS
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.items import By, threads_and_streams, tracks_at
from tb_sol_plugin.metrics.critical.over_ranks import RankWaits, collectives_on
from tb_sol_plugin.metrics.critical.parts import PARTS
from tb_sol_plugin.metrics.critical.path import CLASSES, LABELS, Path, ranges_around
from tb_sol_plugin.metrics.ranks.sections import stretch_link
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.kernels import short_kernel_names
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import Spell
from tb_sol_plugin.model.report import Column, Fact, Link, OnTimeline, Sort, TableSection, make_table
from tb_sol_plugin.model.row_links import RowLinks
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Rows
from tb_sol_plugin.tables.table import frame_of
from tb_sol_plugin.units import human

HEIGHT: Final = 320
MOST_LINKED: Final = 1_000
"""Collectives that show the way to the rank that came last; those of more are opened by Enter."""
COLOR: Final = {
    **dict.fromkeys(("host_python", "host_operator", "host_other"), "host"), "host_runtime": "bar-ink", "dataloader": "idle-hatch",
    **dict.fromkeys(("communication", "communication_transfer"), "communication"), "communication_wait": "eff-50",
    "copy": "memcpy", "memset": "memset",
    **{f"kernel_{kind}": kind for kind in ("gemm", "attention", "conv", "norm", "elementwise", "other")},
}  # fmt: skip
"""Palette member of a class; of others `line-strong`."""
NOT_REPLAYED: Final = "replayed are the items with most time on the path, unless the grade is poor"
NO_WORK: Final = "no work: it is a wait"
ITEMS: Final = (
    Column("name", "Item", "", "event, operator, module, phase, thread or class; in brackets what is no work", "code", full="full_name"),
    Column("class", "Class", "", "class of most of its time on the path", "badge"),
    Column("time_ns", "On the path", "ns", "its time on the critical path of a step", "bar", color_by="color"),
    Column("share", "Of the step", "ratio", "that over the step", "share"),
    Column("total_ns", "Total", "ns", "all its time in a step, on the path or not; on the host its own", missing=NO_WORK),
    Column("share_of_total", "Path ÷ total", "ratio", "part of its time that is on the path", "share", rank=2, missing=NO_WORK),
    Column("slack_ns", "Slack", "ns", "median by which its events off the path may be late without a longer step", rank=2,
           missing="all of it is on the path, or nothing waits for the rest"),
    Column("saved_half_ns", "Saved at half", "ns", "what a step takes less where all of the item takes half of its time, by replay",
           missing=NOT_REPLAYED),
    Column("saved_zero_ns", "Saved at most", "ns", "the same where it takes no time", missing=NOT_REPLAYED),
    Column("segments", "Segments", "count", "pieces of the path, over all steps", rank=3),
    Column("inferred_ns", "Inferred", "ns", "part of its time on the path that follows from times alone", rank=3),
    Column("color", "Color", "", "member of the palette", rank=3),
    Column("full_name", "Full name", "", "its name as recorded", "code", rank=3),
)  # fmt: skip
CLASSES_TABLE: Final = (
    Column("class", "Class", "", "what passes on the path"),
    Column("time_ns", "Time", "ns", "mean per step; the classes add up to the step", "bar", color="accent"),
    Column("share", "Share", "ratio", "of the step", "share"),
    Column("segments", "Segments", "count", "over all steps", rank=2),
    Column("inferred_ns", "Inferred", "ns", "part that follows from times alone, per step", rank=2),
    Column("longest_ns", "Longest", "ns", "its longest segment", rank=2),
    Column("longest_start_ns", "Longest at", "ns", "start of that, since the start of the recording", rank=3),
)
STEPS: Final = (
    Column("step", "Step", "", "number of the step", "code"),
    Column("start_ns", "Start", "ns", "since the start of the recording", rank=3),
    Column("duration_ns", "Duration", "ns", "as long as its critical path"),
    Column(
        "split", "Path", "ns", "parts of its critical path", "stack", parts=tuple(PARTS),
        part_colors=tuple(color for _, color, *_ in PARTS.values()),
    ),
    *(Column(name, label, "ns", f"{doc}; on the path", color=color, rank=2) for name, (label, color, doc, _) in PARTS.items()),
)  # fmt: skip
SEGMENTS: Final = (
    Column("order", "No.", "count", "place in order of time", rank=2),
    Column("step", "Step", "", "step that it is of", missing="outside every recorded step", rank=2),
    Column("start_ns", "Start", "ns", "since the start of the recording"),
    Column("duration_ns", "Length", "ns", "of the segment", "bar", color="accent"),
    Column("class", "Class", "", "what passes in it", "badge"),
    Column("name", "Event", "", "innermost host event, or device event", "code", missing="nothing was recorded then"),
    Column("edge", "Edge", "", "what holds its end: host, launch, stream, event, device, sync, queue_full or handoff", rank=2,
           missing="nothing does"),
    Column("evidence", "Evidence", "", "how that is known: recorded, by call order, or inferred from times", rank=2,
           missing="nothing holds it"),
    Column("residual_ns", "Beyond least", "ns", "what it takes beyond the least of such an edge", rank=2),
    Column("thread", "Where", "", "host thread, or device and stream", rank=2, missing="neither"),
    Column("operator", "Operator", "", "innermost operator around it or its launch", "code", rank=2, missing="no operator"),
    Column("module", "Module", "", "innermost module around it or its launch", "code", rank=3, missing="no module"),
    Column("phase", "Phase", "", "innermost user range around it or its launch", "code", rank=3, missing="no range"),
)  # fmt: skip
COLLECTIVES: Final = (
    Column("order", "No.", "count", "place in order of time", rank=2),
    Column("step", "Step", "", "step that it is of", missing="outside every recorded step", rank=2),
    Column("start_ns", "Start", "ns", "since the start of the recording"),
    Column("kind", "Collective", "", "its kind", "badge"),
    Column("group", "Group", "", "process group: its description and ranks", "text", missing="not known"),
    Column("seq", "Seq", "", "number of the collective in its group, as recorded", rank=2, missing="not recorded"),
    Column("time_ns", "On the path", "ns", "its time on the critical path", "bar", color="communication"),
    Column("path_wait_ns", "Waiting", "ns", "part of that until the last rank came", "bar", color="eff-50"),
    Column("path_transfer_ns", "Transfer", "ns", "part of that after the last rank had come"),
    Column("late_rank", "Came last", "", "rank that the others waited for; it opens its own time before this collective",
           missing="this rank itself, or not known"),
    Column("late_own_ns", "Its own time", "ns", "what that rank did since the collective that had bound it", missing="not known", rank=2),
)  # fmt: skip
FACTS: Final = (
    Fact("duration_ns", "Step", "ns", "mean length of the complete steps of the selection"),
    Fact("path_ns", "Path", "ns", "mean length of their critical paths: the same"),
    *(Fact(name, label, "ns", f"{doc}; on the path, mean per step", color) for name, (label, color, doc, _) in PARTS.items()),
    Fact("grade", "Grade", "", "how far the replay can be trusted: good, fair or poor, by the unexplained share and the blind error"),
    Fact("unexplained_share", "Unexplained", "ratio", "part of the path beyond ten times the least of a launch, gap, wait or hand-over"),
    Fact("inferred_share", "Inferred", "ratio", "part of the path whose edges follow from times alone"),
    Fact("blind_error", "Blind error", "ratio", "predicted over measured time less 1, each latency that of its kind in the other steps"),
    Fact("error_share", "Error of a saving", "ratio", "of the step: blind error and 0.5 %, with inferred waits between streams 3 %"),
    Fact("dropped_edges", "Dropped", "count", "dependencies that contradict the recorded times, and were left out"),
    Fact("cut_edges", "Cut", "count", "dependencies left out because they closed a circle of moments of one time"),
    Fact("released", "Unheld", "count", "moments that wait for nothing in the recording"),
    Fact("nodes", "Moments", "count", "starts and ends of events"),
    Fact("edges", "Dependencies", "count", "between these moments"),
    Fact("steps", "Steps", "count", "complete steps of the selection; 0 where none was recorded"),
)
TRUST: Final = (
    "duration_ns", "path_ns", "grade", "unexplained_share", "inferred_share", "blind_error", "error_share", "dropped_edges", "cut_edges",
    "released", "nodes", "edges", "steps",
)  # fmt: skip


def of_steps(capture: Capture, where: Scope) -> str:
    """Returns what a mean is over."""
    if not where.rows:
        return "the recording"
    return f"step {where.steps[0]}" if len(where.rows) == 1 else f"the mean of {human(len(where.rows), 'count')} steps"


def items_frame(capture: Capture, found: pd.DataFrame, steps: int, whole: int, by: By) -> pd.DataFrame:
    """Returns the items per step as ITEMS names them."""
    names = found["name"].tolist()
    short = short_kernel_names(capture, names) if by == "kernel" and len(capture.device) else {}
    time, total = found["time_ns"].to_numpy(), found["total_ns"].to_numpy()
    kind = [CLASSES[k] for k in found["kind"].tolist()]
    mean = {c: found[c].to_numpy() for c in ("total_ns", "slack_ns", "saved_half_ns", "saved_zero_ns")}
    divided = {c: arrays.known(np.rint(v / steps).astype(np.int64) if c != "slack_ns" else v, v >= 0) for c, v in mean.items()}
    return frame_of({
        "name": _distinct([short.get(n, n) for n in names], names), "class": [LABELS[k] for k in kind],
        "time_ns": np.rint(time / steps).astype(np.int64), "share": time / max(whole * steps, 1), **divided,
        "share_of_total": arrays.known(np.minimum(time / np.maximum(total, 1), 1.0), total > 0), "segments": found["segments"].to_numpy(),
        "inferred_ns": found["inferred_ns"].to_numpy() // steps, "color": [COLOR.get(k, "line-strong") for k in kind], "full_name": names,
    })  # fmt: skip


def what_if_links(names: list[str], by: By, step: str) -> RowLinks:
    """Returns the way from each item to what half of its time would bring."""
    selected = {"step": step} if step else {}

    def link(row: int) -> Link:
        return Link("what_if", {"by": by, "item": names[row], "scale": "0.5"} | selected, "What if it took half of the time")

    return RowLinks(np.ones(len(names), np.bool_), link)


def _distinct(short: list[str], full: list[str]) -> list[str]:
    """Returns the short names; of those that two items share the full ones."""
    count: dict[str, int] = {}
    for one in short:
        count[one] = count.get(one, 0) + 1
    return [s if count[s] == 1 else f for s, f in zip(short, full, strict=True)]


def segments_table(capture: Capture, path: Path) -> TableSection:
    """Returns every segment of a path. Of most of its texts those of a page alone are made: there may be a million segments."""
    kind, evidence = arrays.labels(path.kind, [LABELS[c] for c in CLASSES]), graph_of(capture).edges.evidences(path.edge)
    columns = {
        "order": np.arange(1, len(path.edge) + 1), "start_ns": path.start, "duration_ns": path.duration, "class": kind,
        "evidence": arrays.from_codes(evidence, EVIDENCE), "residual_ns": path.residual,
    }  # fmt: skip
    return make_table(
        "segments", "Segments", columns, SEGMENTS, _spelled(capture, path), key="order", sort=Sort("duration_ns"),
        filters=["class", "evidence"], adds=["duration_ns"], timeline=OnTimeline("start_ns", "start_ns", "duration_ns"),
        subtitle="each stretch between two moments of which one holds the other",
    )  # fmt: skip


def _spelled(capture: Capture, path: Path) -> dict[str, Spell]:
    """Returns what makes texts of some segments. It holds columns and not the recording, which may be closed before the table is."""
    host, device, names, on_device = path.host, path.device, capture.host["name"], capture.device["name"]
    above = [
        np.where(device >= 0, capture.device[column].to_numpy()[device], at.nearest(capture, kind, host)) if len(on_device)
        else at.nearest(capture, kind, host)
        for column, kind in (("operator", S.OPERATOR), ("module", S.MODULE))
    ]  # fmt: skip
    around = dict(zip(("operator", "module", "phase"), [*above, ranges_around(capture, path)], strict=True))
    kinds, steps = graph_of(capture).edges.kinds(path.edge), _steps(capture, path)
    texts, place = threads_and_streams(capture)[0], tracks_at(capture, host, device)

    def of_name(rows: Rows) -> Spell:
        return lambda some: arrays.at(names, rows[some])

    return {
        "step": steps, "name": lambda some: _names(names, on_device, host[some], device[some]),
        "edge": lambda some: arrays.from_codes(kinds[some], KINDS), "thread": lambda some: arrays.labels(place[some], [*texts, None]),
        **{name: of_name(rows) for name, rows in around.items()},
    }  # fmt: skip


def _steps(capture: Capture, path: Path) -> Spell:
    """Returns what makes the number of the step of some segments, none where no step was recorded."""
    recorded = not capture.facts.pseudo_step and len(capture.steps) > 0
    numbers = [*(str(n) for n in capture.steps["number"].tolist())] if recorded else []
    return lambda some: arrays.labels(path.step[some] if recorded else np.full(len(some), -1), [*numbers, None])


def _names(of_host: pd.Series, of_device: pd.Series, host: Rows, device: Rows) -> arrays.Coded:
    """Returns the name of the host or device event of each segment."""
    one, other = arrays.at(of_host, host), arrays.at(of_device, device)
    texts = pd.Index([*one.categories, *other.categories], dtype=object)
    code = np.where(device >= 0, other.codes.astype(np.int64) + len(one.categories), one.codes.astype(np.int64))
    used = arrays.in_use(code, len(texts))
    place = np.full(len(texts) + 1, -1, np.int64)
    place[used] = np.arange(len(used))
    return arrays.labels(place[code], [*(str(t) for t in texts.take(used)), None])


def collectives_table(capture: Capture, path: Path, waits: RankWaits) -> TableSection:
    """Returns the collectives on a path with what of each is waiting for other ranks, and for which."""
    found, job = collectives_on(path, waits), waits.job
    calls, stragglers = job.calls, job.stragglers
    late, here = found["late"].to_numpy(), calls.at[found["call"].to_numpy()]
    known = late >= 0
    known &= calls.at[late] != here
    late = np.where(known, late, 0)
    start = capture.device["start_ns"].to_numpy()[found["device"].to_numpy()]
    number = capture.steps["number"].to_numpy()[found["step"].to_numpy()]
    begin, end = stragglers.stretch(late)
    frame = found.assign(
        order=np.arange(1, len(found) + 1), step=arrays.known(number, number >= 0), start_ns=start,
        duration_ns=capture.device["duration_ns"].to_numpy()[found["device"].to_numpy()],
        late_rank=arrays.known(calls.ranks[calls.at[late]], known), late_own_ns=arrays.known(calls.own[late].sum(axis=1), known),
    )

    def own_time(row: int) -> Link:
        at = int(calls.at[late[row]])
        return stretch_link(job.recordings[at], int(begin[row]), int(end[row]), f"what rank {int(calls.ranks[at])} did before")

    links = RowLinks(known, own_time)
    return make_table(
        "collectives", "Collectives on the path", frame, COLLECTIVES, key="order", sort=Sort("path_wait_ns"), filters=["kind", "group"],
        adds=["time_ns", "path_wait_ns", "path_transfer_ns"], row_links=links,
        cell_links={"late_rank": dict(links.items())} if len(frame) <= MOST_LINKED else {},
        timeline=OnTimeline("start_ns", "start_ns", "time_ns"), subtitle="over all steps; those whose wait for other ranks is known",
        footer="Waiting ends when the last rank has come: what that rank did before holds this step.",
        empty="No collective whose wait is known is on the path.",
    )  # fmt: skip
