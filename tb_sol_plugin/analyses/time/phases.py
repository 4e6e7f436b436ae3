"""Phases: what each user range and each step costs on the host and on the device.

Device work belongs to the phase that launched it. Work that an autograd thread launches outside every range of its own belongs to
the phase that was open at that moment on the thread that issued the backward pass.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.time import phases_tables
from tb_sol_plugin.analyses.time.phases_tables import once, per_step, tree_rows
from tb_sol_plugin.metrics.report.notes import edge_notices, joined_notices, source_notices
from tb_sol_plugin.metrics.time import scope as source
from tb_sol_plugin.metrics.time.breakdown import layers
from tb_sol_plugin.metrics.time.scope import Scope, is_capture, scope
from tb_sol_plugin.metrics.trees.label_times import phase_device_ns, usual_phase_ns
from tb_sol_plugin.metrics.trees.phases import STEP, Share, host_shares, phase_times, phase_tree
from tb_sol_plugin.metrics.work.columns import (
    BOUND,
    BYTES,
    EFFICIENCY,
    FLAGS,
    FLOP,
    MEASURED,
    MODELED,
    RECOMPUTE,
    SOL,
    WASTED,
    over_whole,
    ranked,
)
from tb_sol_plugin.metrics.work.sums import NO_PHASE, PhaseWork, marks_of, phase_work, ratios, sums
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.figure import light
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Mark,
    Notice,
    Report,
    Sort,
    TableSection,
    TreeSpec,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import how_many, human

COLUMNS = (
    Column("id", "Key", "", "Key of the row: the path.", "code", rank=3),
    Column("parent", "Parent", "", "Path of the phase around it.", "code", rank=3),
    Column("name", "Phase", "", "The last level of the path; steps are one phase, ## marks and step numbers are left out.", "tree"),
    Column("path", "Path", "", "Names from the outermost phase down.", "code", rank=3),
    Column("count", "Count", "count", "Ranges of this very path; 0 for a level that only a `/` in names makes."),
    Column("device_events", "GPU events", "count", "Device events launched inside.", rank=2),
    Column("ops", "Operators", "count", "Operator calls inside.", rank=3),
    Column("host_ns", "Host", "ns", "Sum of the durations of its ranges on the host.", "bar", color="host"),
    Column(
        "usual_ns",
        "Not sampled",
        "ns",
        "Host time of the phase in iterations of the same inputs that were not sampled: their mean, as often as there are steps.",
        rank=3,
        missing="no such iteration",
    ),
    Column("host_self_ns", "Host self", "ns", "Host time less the phases inside on the same thread; never negative.", rank=3),
    Column(
        "device_ns",
        "Device",
        "ns",
        "Union of the intervals of the device events launched inside: time during which at least one of them ran.",
        "stack",
        parts=("compute_ns", "exposed_communication_ns", "exposed_memcpy_ns"),
        part_colors=("compute", "communication", "memcpy"),
    ),
    Column("device_sum_ns", "Device sum", "ns", "Plain sum of the durations of the device events launched inside.", rank=3),
    Column("compute_ns", "Compute", "ns", "Union of its computation: kernels that are not communication, and memset.", rank=3),
    Column("exposed_communication_ns", "Exp. comm.", "ns", "Its communication that no computation of the device hides.", rank=2),
    Column("exposed_memcpy_ns", "Exp. copies", "ns", "Its copies that neither computation nor communication of the device hides.", rank=2),
    Column(
        "by_time_ns",
        "By time",
        "ns",
        "Plain sum of device time that was launched by an autograd thread and belongs here by the moment of its launch.",
        rank=3,
    ),
    FLOP,
    BYTES,
    SOL,
    MEASURED,
    WASTED,
    ranked(MODELED, 1),
    EFFICIENCY,
    BOUND,
    RECOMPUTE,
    FLAGS,
)
ONCE_COLUMNS = (
    Column("id", "Key", "", "Key of the row: the path.", "code", rank=3),
    Column("phase", "Phase", "", "Path of the innermost phase around the operation, below the step.", "code"),
    Column("ops", "Operations", "count", "Operator calls with a limit, over the steps where numbers are per step."),
    ranked(SOL, 1, "Estimated time: the least time of its operations on this device."),
    Column("share", "Share", "ratio", "Its limit over that of all operations.", "share"),
    ranked(MEASURED, 1, "Device time of the operations that have a limit (host time in a recording without device work)."),
    WASTED,
    EFFICIENCY,
    FLAGS,
)

BETWEEN_EVENTS = "over the time between two events on the device's stream: idle time in it counts"
WHOLE_PHASE = "over the host time of the whole phase in iterations that were not sampled"
COUNTED_FOOTER = (
    "Operators are those that the recorder counted. Backward work counts in the phase that ran it. A phase of the device is as long as "
    "the time between its events."
)
FACTS: Final = (
    Fact("phases", "Phases", "count", "Distinct phases."),
    Fact("ranges", "Ranges", "count", "User ranges in the selection."),
    Fact("steps", "Steps", "count", "Steps that per-step numbers are divided by; 1 where no step was recorded."),
    Fact("device_events", "Device events", "count", "Device events in the selection."),
    Fact("events_in_phases", "Launched in a phase", "count", "Device events launched inside some phase."),
    Fact("device_ns", "Device busy", "ns", "Union of the intervals of all device events in the selection."),
    Fact("by_time_ns", "Owned by time", "ns", "Plain sum of device time that belongs to a phase by the moment of its launch on an "
         "autograd thread."),
)  # fmt: skip


class PhasesQuery(Query, kw_only=True, frozen=True):
    """Phases.

    per: sums over all steps of the selection, or counts, times and work divided by their number.
    """

    per: Literal["all", "step"] = "all"

    PAGE: ClassVar[dict[str, str]] = {"per": "step"}


@analysis(
    title="Phases",
    question="What does each phase of a step cost on host and device?",
    group="Time",
    order=50,
    requirements=("annotations",),
    query=PhasesQuery,
    tables={"phases": COLUMNS, "once": ONCE_COLUMNS},
    facts=FACTS,
)
def phases(capture: Capture, query: PhasesQuery) -> Report:
    """Returns the phase tree, with the average step by phase and the steps beside each other."""
    if source.is_profile(capture):
        return phases_tables.report(capture, query, COLUMNS, FACTS)
    part = scope(capture, query)
    frame = phase_times(capture, part)
    work = phase_work(capture, part, query.device_limits)
    report = Report(analysis="phases", title="Phases", headline=_headline(capture, part, frame, work))
    report.notices = _notices(capture, part, frame, work)
    report.sections = [
        average(capture, part, frame),
        steps(capture, part),
    ]
    of_steps = source.work_of_steps(capture, part) if query.per == "step" else part
    work = phase_work(capture, of_steps, query.device_limits)
    report.sections += [
        _table(capture, of_steps, phase_times(capture, of_steps), work, query),
        *_once(capture, of_steps, work, query),
        _facts(capture, part, frame),
    ]
    return report


# -- Numbers ----------------------------------------------------------------------------------------------------------


def _headline(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork) -> str:
    shares = host_shares(frame, part.step_count)
    if not shares:
        return "No phase lies in this selection."
    top = max(shares, key=lambda s: s.host_ns)
    start, end = windows(capture, part)
    window = int((end - start).sum())
    row = frame[frame["path"] == top.path].iloc[0]
    each = " per step" if part.rows else ""
    host = human(round(top.host_ns), "ns")
    if source.is_capture(capture):
        return _counted(capture, part, frame, work, top.path)
    unmarked = top.path == STEP
    if not len(capture.device):
        text = "No part of the step is marked" if unmarked else f"**{top.name}** takes {host} of host time{each}"
        return f"{text}{_outside(frame) if unmarked else ''}; no device activity was recorded."
    idle_ns = int(gpu_parts(capture, start, end)[3].sum())
    device_ns = round(int(row["device_ns"]) / part.step_count)
    device = f"{human(device_ns, 'ns')} of device work" if device_ns else "no device work"
    idle = human(idle_ns / window if window else None, "ratio")
    if unmarked:
        how = '`record_function("forward")` around a part shows it here'
        return f"The device idles {idle} of the time. No part of the step is marked{_outside(frame)}; {how}."
    return (
        f"The device idles {idle} of the time; **{top.name}** is the longest phase: {host} on the host for {device}{each}."
    )


def _outside(frame: pd.DataFrame) -> str:
    """Names the longest range that lies in no step, with its sum: ranges of other threads run beside the steps and beyond them."""
    others = frame[(frame["parent"] == -1) & (frame["path"] != STEP) & (frame["count"] > 0)]
    if not len(others):
        return ""
    most = others.nlargest(1, "host_ns")
    time, count = int(most["host_ns"].iloc[0]), int(most["count"].iloc[0])
    return f"; outside of it {most['name'].iloc[0]} takes {human(time, 'ns')} in {how_many(count, 'range')}"


def _counted(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork, top: str) -> str:
    """Names the longest phase of a SOL capture, on the device where that was timed, and its part of the work.

    A level that only names make gives way to the longest phase in it.
    """
    place = int(np.flatnonzero(frame["path"].to_numpy() == top)[0])
    while frame["count"].iloc[place] == 0:
        inside = np.flatnonzero(frame["parent"].to_numpy() == frame["node"].iloc[place])
        if not len(inside):
            break
        place = int(inside[frame["host_ns"].to_numpy()[inside].argmax()])
    node, name = int(frame["node"].iloc[place]), str(frame["path"].iloc[place]).removeprefix(f"{STEP}/")
    each = "per step" if part.rows else "in all"
    device = float(phase_device_ns(capture, part)[node]) / part.step_count
    usual = usual_phase_ns(capture, part)
    host = float("nan") if usual is None else float(usual.host_ns[node])
    host = host if host == host else float(frame["host_ns"].iloc[place]) / part.step_count  # a phase that other iterations lack
    time = f"{human(round(device), 'ns')} on the device" if device == device else f"{human(round(host), 'ns')} on the host"
    flop, whole = float(work.inclusive["flop"].iloc[node]), float(np.nansum(work.calls.values["flop"]))
    share = f" and {human(flop / whole, 'ratio')} of the matrix work" if whole and flop == flop else ""
    return f"**{name}** takes {time} {each}{share}."


def _notices(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork) -> list[Notice]:
    out = source_notices(capture, part) + joined_notices(capture, work.calls.done, part) + edge_notices(capture, part)
    if work.calls.done.from_ledger:
        return out
    if not len(capture.device):
        out.append(Notice("No device activity was recorded: host times only.", "info"))
        return out
    tops = frame[frame["parent"] == -1]
    whole = float(tops["device_sum_ns"].sum())
    ops = work.calls.ops
    apart = (ops["link"] | ops["collective"]).to_numpy()
    own, covered = (float(np.nansum(work.calls.values[n][~apart])) for n in ("owned_sum_ns", "modelled_sum_ns"))
    if 0 < covered < 0.8 * own:
        out.append(
            Notice(
                f"{human(covered / own, 'ratio')} of the device's own work, communication and copies over a link set aside, has a cost "
                "model; limits and efficiency cover that part.",
                "warn",
                Link("roofline"),
            )
        )
    by_time = int(tops["by_time_ns"].sum())
    if by_time and whole:
        out.append(
            Notice(
                f"{human(by_time / whole, 'ratio')} of the device time was launched by an autograd thread; "
                "its phase is the one open at that moment.",
                "info",
            )
        )
    return out


# -- Table ------------------------------------------------------------------------------------------------------------


def _table(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork, query: PhasesQuery) -> TableSection:
    rows, outside = tree_rows(capture, part, frame, work, part.step_count if query.per == "step" else 1)
    rank: dict[str, int] = {}
    if work.calls.done.from_ledger:
        hidden_columns = ("device_events", "exposed_communication_ns", "exposed_memcpy_ns", "modelled_share", "compute_ns")
        rank = dict.fromkeys(hidden_columns, 3) | {"flop": 1, "ops": 2} | ({} if rows["device_ns"].notna().any() else {"device_ns": 3})
        rank |= {"usual_ns": 1} if rows["usual_ns"].notna().any() else {}
        rank |= {"measured_ns": 1} if work.calls.done.timed and rows["efficiency"].notna().any() else {}
    elif not len(capture.device):
        rank = dict.fromkeys(("device_events", "device_ns", "exposed_communication_ns", "exposed_memcpy_ns", "modelled_share"), 3)
    if not rows["efficiency"].notna().any():
        rank |= dict.fromkeys(("sol_ns", "wasted_ns", "efficiency", "modelled_share", "bound"), 3)
        if not work.calls.done.timed and rows["sol_ns"].notna().any():
            rank |= {"sol_ns": 1, "bound": 1}
    if float(work.calls.values["recompute_ns"].sum()) > 0:
        rank["recompute_share"] = 2
    columns = over_whole([ranked(c, rank.get(c.name, c.rank)) for c in COLUMNS if c.name in rows], "phase", timed=work.calls.done.timed)
    section = make_table(
        "phases",
        "Phases",
        rows,
        columns,
        subtitle=_each(part, query) + ("" if work.calls.done.from_ledger else "; device time belongs to the phase that launched it"),
        key="id",
        tree=TreeSpec(),
        sort=Sort("host_ns"),
        last=outside,
        filters=["name"],
        footer=COUNTED_FOOTER
        if work.calls.done.from_ledger
        else "≈ efficiency of the modeled part only. Work hidden behind other computation is in Device, not in the exposed columns.",
    )
    marks = marks_of(section.data["efficiency"], section.data["flags"], section.data["modelled_share"] if len(capture.device) else None)
    if not work.calls.done.timed:
        known = [i for i, v in enumerate(section.data["efficiency"]) if v is not None and str(i) not in marks]
        marks |= {str(i): Mark("partial", WHOLE_PHASE if source.on_cpu(capture) else BETWEEN_EVENTS) for i in known}
    if marks:
        section.marks["efficiency"] = marks
    return section


def _each(part: Scope, query: PhasesQuery) -> str:
    if query.per == "step":
        return "per step"
    return f"sums over {human(part.step_count, 'count')} steps" if len(part.rows) > 1 else "sums"


def _once(capture: Capture, part: Scope, work: PhaseWork, query: PhasesQuery) -> list[TableSection]:
    """Returns every operation once, as the console report has it; nothing without limits."""
    divide = part.step_count if query.per == "step" else 1
    rows = once(work, phase_tree(capture).path, divide)
    if rows.empty:
        return []
    rows["ops"] = per_step(rows["ops"].tolist(), divide)
    total = ratios(sums(work.calls.values, np.zeros(len(work.node), np.int8), 1)).iloc[0]
    times = {n: round(float(total[n]) / divide) if total[n] == total[n] else None for n in ("sol_ns", "measured_ns", "wasted_ns")}
    section = make_table(
        "once",
        "Limit by phase",
        rows,
        [c if rows[c.name].notna().any() else ranked(c, 3) for c in ONCE_COLUMNS],
        subtitle=f"{_each(part, query)}; every operation once, at its innermost phase, as in the console report",
        key="id",
        sort=Sort("sol_ns"),
        last=[r for r in rows["id"].tolist() if r == NO_PHASE],
        total={
            "phase": "All",
            **times,
            "share": 1.0,
            "ops": sum(rows["ops"].tolist()),
            "efficiency": float(total["efficiency"]) if total["efficiency"] == total["efficiency"] else None,
        },
        filters=["phase"],
        footer="Rows add up: an operation counts at the innermost phase only, not at those around it.",
        links=[Link("roofline", {"by": "phase"}, "On the roofline")],
    )
    marks = marks_of(section.data["efficiency"], section.data["flags"])
    if marks:
        section.marks["efficiency"] = marks
    return [section]


def _facts(capture: Capture, part: Scope, frame: pd.DataFrame) -> FactsSection:
    tops = frame[frame["parent"] == -1]
    has = bool(len(capture.device))
    busy = layers(capture, part.device).busy
    values: dict[str, int | None] = {
        "phases": len(frame),
        "ranges": int(frame["count"].sum()),
        "steps": part.step_count,
        "device_events": int(part.device.sum()) if has else None,
        "events_in_phases": int(tops["device_events"].sum()) if has else None,
        "device_ns": iv.length(busy) if has else None,
        "by_time_ns": int(tops["by_time_ns"].sum()) if has else None,
    }
    hidden = [name for name, value in values.items() if value is None]
    return make_facts("facts", "Counts", values, FACTS, hidden=hidden)


# -- Figures ----------------------------------------------------------------------------------------------------------
# the average step on host and device, and the steps beside each other.


def windows(capture: Capture, part: Scope) -> tuple[np.ndarray, np.ndarray]:
    """Returns bounds of the selected steps, GPU-aware where device work was recorded; the whole window where there are none."""
    if not part.rows:
        return np.array([part.window_ns[0]]), np.array([part.window_ns[1]])
    chosen = list(part.rows)
    first, last = ("start_ns", "end_ns") if len(capture.device) else ("host_start_ns", "host_end_ns")
    return capture.steps[first].to_numpy()[chosen], capture.steps[last].to_numpy()[chosen]


def host_window_ns(capture: Capture, part: Scope) -> int:
    """Returns the summed host length of the selected steps, of the whole window where there are none."""
    if not part.rows:
        return part.window_length_ns
    chosen = list(part.rows)
    return int((capture.steps["host_end_ns"].to_numpy()[chosen] - capture.steps["host_start_ns"].to_numpy()[chosen]).sum())


def gpu_parts(capture: Capture, start: np.ndarray, end: np.ndarray) -> list[np.ndarray]:
    """Returns per window: compute, exposed communication, exposed copies and idle time of the device, which add up to the window."""
    parts = [iv.overlap_with(start, end, layer) for layer in layers(capture, np.ones(len(capture.device), bool)).exclusive()]
    return [*parts, end - start - sum(parts)]


def average(capture: Capture, part: Scope, frame: pd.DataFrame) -> FigureSection:
    """Draws two bars on one scale: the host by top phase, the device by what it does (of a SOL capture by the same phases)."""
    steps = part.step_count
    start, end = windows(capture, part)
    window = float((end - start).sum()) / steps
    on_host = host_window_ns(capture, part) / steps
    shares = [s for s in host_shares(frame, steps) if s.host_ns > 0]
    mean = f"mean of {steps} steps" if len(part.rows) > 1 else ("one step" if part.rows else "the whole recording; no step was recorded")
    usual = _usual(capture, part, frame, shares)
    if usual is not None:
        shares, window = usual
        on_host, mean = window, "while nothing is counted"
    rest = max(on_host - sum(s.host_ns for s in shares), 0.0)
    longest = max(window, sum(s.host_ns for s in shares), 1.0)
    factor, unit = fig.time_scale(longest)
    data: list[fig.Plain] = []
    strength = _strengths(shares)
    unlabeled: list[tuple[str, float]] = []
    for share in shares:
        value = share.host_ns / factor
        label = _label(share.name, share.host_ns, longest)
        if not label:
            unlabeled.append((share.name, share.host_ns))
        data.append(
            _segment(
                "Host", value, light("accent"), label, share.name, share.host_ns, longest, opacity=strength[share.path], key=share.path
            )
        )
    if rest > 0:
        data.append(_segment("Host", rest / factor, light("idle"), "", "outside every phase", rest, longest))
    summary = ", ".join(f"{s.name} {human(round(s.host_ns), 'ns')}" for s in sorted(shares, key=lambda s: -s.host_ns)[:4])
    if len(capture.device):
        parts = [float(p.sum()) / steps for p in gpu_parts(capture, start, end)]
        names = ("compute", "exposed comm.", "exposed copies", "idle")
        for name, token, time in zip(names, ("compute", "communication", "memcpy", "idle"), parts, strict=True):
            if time > 0:
                label = _label(name, time, longest)
                piece = _segment("GPU", time / factor, light(token), label, name, time, longest)
                piece["marker"] = fig.fill(token)
                piece["insidetextfont"] = {"color": light("ink" if token in ("communication", "idle") else "surface")}
                if not label:
                    unlabeled.append((name, time))
                data.append(piece)
        summary += "; device " + ", ".join(f"{n} {human(round(p), 'ns')}" for n, p in zip(names, parts, strict=True) if p > 0)
    else:
        summary += _timed_by_events(capture, part, frame, shares, data, strength=strength, factor=factor, longest=longest)
    x = fig.axis(unit, range=[0, longest / factor])
    y = fig.axis(type="category", autorange="reversed", showgrid=False, showline=False)
    figure = fig.figure(data, x=x, y=y, barmode="stack", margin={"l": 58, "r": 14, "t": 10, "b": 64 if unlabeled else 46}, bargap=0.45)
    if unlabeled:
        figure["layout"]["annotations"] = [_unlabeled(unlabeled)]  # type: ignore[index]
    return FigureSection(
        id="average",
        title="Average step by phase",
        subtitle=f"{mean}, {human(round(window), 'ns')}" + ("; both bars share one scale" if "device" in summary else ""),
        figure=figure,
        summary=f"Per step on the host: {summary}.",
        table="phases",
        span=8,
        height=248,
    )


def _usual(capture: Capture, part: Scope, frame: pd.DataFrame, shares: list[Share]) -> tuple[list[Share], float] | None:
    """Returns (phases, step) in iterations of a SOL capture in which nothing was counted; None where one of them has no such time."""
    usual = usual_phase_ns(capture, part) if is_capture(capture) else None
    node = dict(zip(frame["path"].tolist(), frame["node"].tolist(), strict=True))
    if usual is None or STEP not in node:
        return None
    out = [replace(s, host_ns=float(usual.host_ns[node[s.path]])) for s in shares]
    step = float(usual.host_ns[node[STEP]])
    return (out, step) if np.isfinite([step, *(s.host_ns for s in out)]).all() else None


def _timed_by_events(
    capture: Capture, part: Scope, frame: pd.DataFrame, shares: list[Share], data: list[fig.Plain], *, strength: dict[str, float],
    factor: float, longest: float,
) -> str:  # fmt: skip
    """Adds the bar of a SOL capture's phases by the time between their events on the device, where all have one; what to say of it."""
    if not is_capture(capture) or not shares:
        return ""
    node = dict(zip(frame["path"].tolist(), frame["node"].tolist(), strict=True))
    time = phase_device_ns(capture, part) / part.step_count
    known = [(share, float(time[node[share.path]])) for share in shares]
    if not all(np.isfinite(value) for _, value in known):
        return ""
    for share, value in known:
        label, look = _label(share.name, value, longest), strength[share.path]
        data.append(_segment("GPU", value / factor, light("accent"), label, share.name, value, longest, opacity=look, key=share.path))
    return "; between events on the device " + ", ".join(f"{share.name} {human(round(value), 'ns')}" for share, value in known[:4])


def _strengths(shares: list[Share]) -> dict[str, float]:
    """Returns strengths of the accent, 100, 62, 40 and 26 % in order of length, so that neighbors differ."""
    ranked = sorted(shares, key=lambda s: -s.host_ns)
    return {s.path: (1.0, 0.62, 0.4, 0.26)[min(i, 3)] for i, s in enumerate(ranked)}


def _label(name: str, time: float, longest: float) -> str:
    """Returns text in a segment, where it fits (about 6.5 px a character in about 690 px)."""
    room = time / longest * 690 - 8
    text = f"{name} {human(round(time), 'ns')}"
    if len(text) * 6.5 < room:
        return text
    return name if len(name) * 6.5 < room else ""


def _segment(
    row: str, value: float, color: str, label: str, name: str, time: float, whole: float, *, opacity: float = 1.0, key: str = ""
) -> fig.Plain:
    safe = fig.escape(name)
    out: fig.Plain = {
        "type": "bar",
        "orientation": "h",
        "y": [row],
        "x": [value],
        "marker": {"color": color, "opacity": opacity, "line": {"width": 0.8, "color": light("surface")}},
        "width": 0.62,
        "text": [fig.escape(label)],
        "textposition": "inside",
        "insidetextanchor": "start",
        "textangle": 0,
        "constraintext": "none",
        "hoverinfo": "text",
        "hovertext": [f"<b>{safe}</b><br>{human(round(time), 'ns')}, {human(time / whole, 'ratio')} of the step"],
    }
    if key:
        out["customdata"] = [key]
    out["insidetextfont"] = {"color": light("surface" if opacity > 0.5 else "ink")}
    return out


def _unlabeled(unlabeled: list[tuple[str, float]], room: int = 105) -> fig.Plain:
    """Returns a line below the axis that names what had no room in the bars, the longest first, as far as the line goes."""
    texts = [f"{name} {human(round(time), 'ns')}" for name, time in sorted(unlabeled, key=lambda q: -q[1])]
    shown = [t for i, t in enumerate(texts) if sum(len(x) + 2 for x in texts[: i + 1]) <= room]
    more = f" and {len(texts) - len(shown)} more" if len(texts) > len(shown) else ""
    text = fig.escape(", ".join(shown))
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": 0, "xanchor": "left", "yanchor": "top", "yshift": -44}
    return {**place, "text": f"Not labeled: {text}{more}", "showarrow": False, "font": {"size": 11.5, "color": light("ink-3")}}


def steps(capture: Capture, part: Scope, limit: int = 200) -> FigureSection:
    """Draws a stacked bar per recorded step: what the device does between the step's GPU-aware bounds, the host between its own."""
    start, end = (edge[:limit] for edge in windows(capture, part))
    chosen = list(part.rows)[:limit]
    names = [str(n) for n in capture.steps["number"].to_numpy()[chosen].tolist()] or ["whole recording"]
    complete = capture.steps["complete"].to_numpy()[chosen].tolist()
    length = end - start
    longest = float(length.max())
    factor, unit = fig.time_scale(longest)
    data: list[fig.Plain] = []
    if len(capture.device):
        parts = gpu_parts(capture, start, end)
        rows = list(
            zip(
                ("compute", "exposed communication", "exposed copies", "idle"),
                ("compute", "communication", "memcpy", "idle"),
                parts,
                strict=True,
            )
        )
    else:
        rows = [("host", "host", length)]
    for name, token, values in rows:
        data.append(
            {
                "type": "bar",
                "x": names,
                "y": (values / factor).tolist(),
                "marker": fig.fill(token),
                "width": 0.62,
                "hoverinfo": "text",
                "hovertext": [f"<b>step {n}</b><br>{name} {human(int(v), 'ns')}" for n, v in zip(names, values.tolist(), strict=True)],
            }
        )
    incomplete = [n for n, ok in zip(names, complete, strict=False) if not ok]
    more = f"; {', '.join(incomplete)} incomplete" if incomplete else ""
    what = "GPU time" if len(capture.device) else "host time"
    left = f", first {limit} of {len(part.rows)}" if len(part.rows) > limit else ""
    return FigureSection(
        id="steps",
        title="Steps",
        subtitle=f"{what}, {unit}{left}{more}",
        figure=fig.figure(
            data,
            x=fig.axis("", type="category", showgrid=False),
            y=fig.axis(unit),
            barmode="stack",
            margin={"l": 50, "r": 8, "t": 10, "b": 34},
        ),
        summary=_lengths(length),
        span=4,
        height=248,
        links=[Link("steps", label="Steps")],
    )


def _lengths(length: np.ndarray) -> str:
    shortest, longest = (human(int(v), "ns") for v in (length.min(), length.max()))
    return f"{len(length)} steps from {shortest} to {longest}." if len(length) > 1 else f"One step of {longest}."
