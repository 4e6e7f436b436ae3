"""What each device does with its time: computation, communication, copies, idle.

Every number is a union of intervals over the streams of a device, so work that runs side by side counts once.
`scope=linked` leaves out work whose launch was not recorded; `communication_rule=narrow` counts only NCCL, RCCL and
cross_device_reduce kernels as communication.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.report.gap_rows import GAP_COLUMNS, single_gaps
from tb_sol_plugin.metrics.report.longest import START, TIME, longest
from tb_sol_plugin.metrics.time import breakdown as B
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import plain_list
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Notice,
    OnTimeline,
    Report,
    Scalar,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables import intervals as I
from tb_sol_plugin.tables.arrays import Mask
from tb_sol_plugin.tables.table import Table
from tb_sol_plugin.units import capitalized, human, side_by_side


class BreakdownQuery(Query, kw_only=True, frozen=True):
    """scope: all device work, or only work whose launch was recorded
    communication_rule: wide counts every known collective and peer kernel, narrow only nccl, rccl and cross_device_reduce
    gap_us: idle gaps shorter than this many microseconds count as short
    """

    scope: Literal["all", "linked"] = "all"
    communication_rule: Literal["wide", "narrow"] = "wide"
    gap_us: float = 10.0


FACTS: Final = (
    Fact("total_ns", "Total", "ns", "last end less first start of the device events in the selection"),
    Fact("busy_ns", "Busy", "ns", "union of all device events over all streams and devices"),
    Fact("idle_ns", "Idle", "ns", "total less busy", "idle"),
    Fact("computation_ns", "Computation", "ns", "union of kernels that are neither communication nor copies, and of memsets", "compute"),
    Fact("communication_ns", "Communication", "ns", "union of communication kernels"),
    Fact("exposed_communication_ns", "Exposed communication", "ns", "communication that runs behind no computation", "communication"),
    Fact("overlap_ns", "Behind computation", "ns", "communication that runs behind computation"),
    Fact("overlap_ratio", "Communication overlapped", "ratio", "overlap over communication; unknown without communication"),
    Fact("memcpy_ns", "Copies", "ns", "union of copies, copies that run as a kernel among them"),
    Fact("exposed_memcpy_ns", "Exposed copies", "ns", "copies that run behind neither computation nor communication", "memcpy"),
    Fact("utilization", "Utilization, all work", "ratio", "busy time inside the steps (or the whole recording without steps) over their "
         "length"),
    Fact("kernel_utilization", "Utilization, kernels only", "ratio", "the same for kernels alone, copies and sets left out"),
    Fact("sm_efficiency", "SM efficiency, estimated", "ratio", "estimated share of multiprocessors with work: the integral of "
         "min(blocks per SM of running kernels, 1)"),
    Fact("occupancy_pct", "Occupancy, estimated", "%", "estimated achieved occupancy, weighted by kernel time"),
    Fact("device_events", "Device events", "count", "device events in the selection"),
    Fact("linked_busy_ns", "Busy, recorded launches only", "ns", "busy time of the events whose launch was recorded"),
    Fact("unlinked_device_events", "Launch not recorded", "count", "device events in the selection whose launch was not recorded"),
    Fact("host_wait_ns", "Waits for the host", "ns", "idle, waiting for the next launch: it came only when the device had no work left"),
    Fact("kernel_wait_ns", "Hand-over between kernels", "ns", "idle: under 30 ns between two pieces of work launched in time"),
    Fact("other_wait_ns", "Launched in time, still waiting", "ns", "idle: the next work was launched in time, the device still waited "
         "(dependency, sync, launch latency)"),
    Fact("unknown_wait_ns", "Cause unknown", "ns", "idle: the launch of the next work was not recorded"),
    Fact("short_gaps_ns", "In short gaps", "ns", "idle in gaps shorter than the threshold"),
    Fact("long_gaps_ns", "In long gaps", "ns", "idle in gaps of the threshold and longer"),
)  # fmt: skip
FACT: Final = {f.name: f for f in FACTS}
PARTS: Final = tuple(FACT[n] for n in ("computation_ns", "exposed_communication_ns", "exposed_memcpy_ns", "idle_ns"))
"""The exclusive parts of the total."""

NO_LAUNCH_FIGURES: Final = "the recorder gave no blocks per SM or occupancy"
COLUMNS: Final = (
    Column("device", "Device", doc="device id as recorded; all is the union over all devices on one clock", show="code"),
    Column("total_ns", "Total", "ns", FACT["total_ns"].doc),
    Column(
        "busy_ns",
        "Busy",
        "ns",
        "union of all device events; the bar shows its exclusive parts",
        show="stack",
        parts=tuple(p.name for p in PARTS[:3]),
        part_colors=tuple(p.color for p in PARTS[:3]),
    ),
    Column("idle_ns", "Idle", "ns", FACT["idle_ns"].doc),
    Column("computation_ns", "Computation", "ns", FACT["computation_ns"].doc, color="compute"),
    Column("communication_ns", "Communication", "ns", FACT["communication_ns"].doc, rank=2, color="communication"),
    Column("exposed_communication_ns", "Exposed comm.", "ns", FACT["exposed_communication_ns"].doc, color="communication"),
    Column("memcpy_ns", "Copies", "ns", FACT["memcpy_ns"].doc, rank=2, color="memcpy"),
    Column("exposed_memcpy_ns", "Exposed copies", "ns", FACT["exposed_memcpy_ns"].doc, color="memcpy"),
    Column("overlap_ns", "Comm. overlapped", "ns", FACT["overlap_ns"].doc, rank=2),
    Column("events", "Events", "count", "device events", rank=2),
    Column("utilization", "Utilization", "ratio", FACT["utilization"].doc, show="efficiency"),
    Column("kernel_utilization", "Kernels only", "ratio", FACT["kernel_utilization"].doc, rank=2, show="share"),
    Column("sm_efficiency", "SM efficiency", "ratio", FACT["sm_efficiency"].doc, rank=2, show="share", missing=NO_LAUNCH_FIGURES),
    Column("occupancy_pct", "Occupancy", "%", FACT["occupancy_pct"].doc, rank=2, missing=NO_LAUNCH_FIGURES),
)
IDLE_COLUMNS: Final = (
    Column("cause", "Cause", doc="why the device waited, judged from the launch of the work that ends the gap"),
    Column("gaps", "Gaps", "count", "stretches in which no stream of a device runs"),
    Column("idle_ns", "Idle", "ns", "time in such gaps, summed over the devices", show="bar", color="host"),
    Column("share", "Of idle", "ratio", "part of the idle time of all causes", show="share"),
    Column("longest_ns", "Longest", "ns", "the longest such gap", rank=2, missing="no such gap"),
    Column("longest_start_ns", "Longest at", "ns", "its start, since the start of the recording", rank=3, missing="no such gap"),
)
CAUSE_FACTS: Final = {"host_wait": "host_wait_ns", "kernel_wait": "kernel_wait_ns", "other": "other_wait_ns", "unknown": "unknown_wait_ns"}

SPOKEN: Final = {
    "host_wait_ns": "because the next work was launched too late",
    "kernel_wait_ns": "between one kernel and the next",
    "other_wait_ns": "with the next work already launched",
    "unknown_wait_ns": "before work whose launch was not recorded",
}
"""What the headline says of the largest cause."""


@analysis(
    title="GPU breakdown",
    question="What does the device do with its time?",
    group="Time",
    order=5,
    requirements=("device_events",),
    query=BreakdownQuery,
    tables={"devices": COLUMNS, "idle": IDLE_COLUMNS, "single_gaps": GAP_COLUMNS},
    facts=FACTS,
)
def run(capture: Capture, query: BreakdownQuery) -> Report:
    where = scope(capture, query)
    only_linked = query.scope == "linked"
    rows = where.device & B.linked(capture) if only_linked else where.device
    frame = B.breakdown(capture, where, rule=query.communication_rule, only_linked=only_linked)
    gaps = B.gaps(capture, rows)
    values = _values(capture, where, rows, frame, gaps, query)
    sections: list[AnySection] = [
        _split(values, where),
        _use(capture, where, rows, query),
        _facts(
            values,
            "facts",
            "Numbers",
            (
                "total_ns",
                "busy_ns",
                "utilization",
                "kernel_utilization",
                "sm_efficiency",
                "occupancy_pct",
                "communication_ns",
                "overlap_ns",
                "overlap_ratio",
                "memcpy_ns",
                "device_events",
                "unlinked_device_events",
                "linked_busy_ns",
            ),
            hidden=_silent(values),
        ),
    ]
    if len(frame) > 2:
        sections.append(_bars(frame))
    sections.append(
        make_table(
            "devices",
            "Devices",
            frame,
            COLUMNS,
            key="device",
            subtitle=where.label,
            footer="Each number is a union of intervals over the streams. Total = busy + idle; busy = computation + "
            "exposed communication + exposed copies. Memsets count as computation.",
        )
    )
    sections.append(
        make_table(
            "idle",
            "Why it idles",
            _idle_table(gaps),
            IDLE_COLUMNS,
            adds=["gaps", "idle_ns", "share"],
            key="cause",
            span=8,
            timeline=OnTimeline("longest_ns", "longest_start_ns", "longest_ns", what="its longest gap"),
            subtitle="gaps in which no stream of a device runs",
            footer="Judged from the launch of the work that ends each gap. The idle time of several devices adds up here, "
            "unlike in the row all.",
        )
    )
    short = f"gaps below {query.gap_us:g} µs are short"
    sections.append(
        _facts(
            values,
            "gaps",
            "Idle time",
            (*CAUSE_FACTS.values(), "short_gaps_ns", "long_gaps_ns"),
            subtitle=short,
            hidden=tuple(CAUSE_FACTS.values()),
        )
    )
    sections.append(_gap_table(capture, gaps, rows))
    return Report(
        analysis="gpu_breakdown",
        title="GPU breakdown",
        headline=_headline(capture, where, values),
        notices=_notices(capture, where, query),
        sections=sections,
    )


def _values(
    capture: Capture, where: Scope, rows: Mask, frame: pd.DataFrame, gaps: pd.DataFrame, query: BreakdownQuery
) -> dict[str, Scalar]:
    everything = frame.iloc[0]
    values: dict[str, Scalar] = {name: plain_list([everything[name]])[0] for name in FACT if name in frame}
    communication = int(everything["communication_ns"])
    values["overlap_ratio"] = int(everything["overlap_ns"]) / communication if communication else None
    values["device_events"] = int(rows.sum())
    known = where.device & B.linked(capture)
    values["unlinked_device_events"] = int((where.device & ~known).sum())
    values["linked_busy_ns"] = B.layers(capture, known, rule=query.communication_rule).busy_ns
    values |= {CAUSE_FACTS[name]: value for name, value in B.by_cause(gaps).items()}
    values["short_gaps_ns"], values["long_gaps_ns"] = B.by_length(gaps, round(query.gap_us * 1000))
    return values


def _headline(capture: Capture, where: Scope, values: dict[str, Scalar]) -> str:
    word = B.device_word(capture)
    total, busy, idle_ns = (int(values[n] or 0) for n in ("total_ns", "busy_ns", "idle_ns"))
    if not values["device_events"]:
        return f"No {word} work was launched in this selection."
    share = values["utilization"]
    assert share is None or isinstance(share, float | int)
    sentence = f"The {word} is busy **{human(share, 'ratio')}** of the {'steps' if where.rows else 'recording'}"
    part, span, idle = side_by_side([busy, total, idle_ns], "ns")
    between = f"{part} of the {span} from its first to its last event"
    exposed = int(values["exposed_communication_ns"] or 0) + int(values["exposed_memcpy_ns"] or 0)
    if idle_ns < 0.0005 * total and not exposed:
        return f"The {word} works all of the **{human(total, 'ns')}** from its first to its last event."
    if idle_ns >= exposed and idle_ns > 0:
        cause, spoken = max(((int(values[name] or 0), text) for name, text in SPOKEN.items()), key=lambda c: c[0])
        amount = side_by_side([total, min(cause, idle_ns)], "ns")[1]
        why = f", {'all' if amount == idle else amount} of it {spoken}" if cause else ""
        return f"{sentence}: {between}; it idles {idle}{why}."
    amount = side_by_side([total, exposed], "ns")[1]
    overlapped = f"; {amount} of that is communication and copies that overlap no computation" if exposed else ""
    return f"{sentence}: {between}{overlapped}."


def _notices(capture: Capture, where: Scope, query: BreakdownQuery) -> list[Notice]:
    out: list[Notice] = []
    at = np.flatnonzero(where.device)
    link, duration = (capture.device[name].to_numpy()[at] for name in ("link", "duration_ns"))
    for value, text in ((S.BEFORE_WINDOW, "were launched before the recording began"), (S.NO_RECORD, "have no launch record")):
        rows = link == value
        if rows.any():
            part = "are left out here" if query.scope == "linked" else "count here; choose scope linked to leave them out"
            out.append(
                Notice(
                    f"{human(int(rows.sum()), 'count')} device events ({human(int(duration[rows].sum()), 'ns')}) {text}: they {part}.",
                    "info",
                    Link("health", {}, "Trace health"),
                )
            )
    return out


def _silent(values: dict[str, Scalar]) -> tuple[str, ...]:
    """Returns facts that say nothing here: communication where there is none, linked figures where everything is linked."""
    communication = () if values["communication_ns"] else ("communication_ns", "overlap_ns", "overlap_ratio")
    return communication + (() if values["unlinked_device_events"] else ("unlinked_device_events", "linked_busy_ns"))


def _facts(
    values: dict[str, Scalar], section: str, title: str, names: tuple[str, ...], subtitle: str = "", hidden: tuple[str, ...] = ()
) -> FactsSection:
    shown = {n: values[n] for n in names}
    return make_facts(section, title, shown, FACTS, subtitle=subtitle, span=4, hidden=[n for n in names if n in hidden])


def _split(values: dict[str, Scalar], where: Scope) -> FactsSection:
    total = int(values["total_ns"] or 0)
    return make_facts(
        "split",
        "Where the time goes",
        {p.name: values[p.name] for p in PARTS},
        FACTS,
        style="split",
        subtitle=f"exclusive parts of {human(total, 'ns')}, first to last device event; {where.label}",
        notes={p.name: human(int(values[p.name] or 0) / total, "ratio") for p in PARTS} if total else {},
    )


def _use(capture: Capture, where: Scope, rows: Mask, query: BreakdownQuery) -> FigureSection:
    low, high = where.window_ns
    found = B.layers(capture, rows, rule=query.communication_rule)
    used = B.use_over_time(found, (low, high))
    word = B.device_word(capture)
    title = f"{capitalized(word)} use over time"
    if high <= low:
        return FigureSection(id="use", title=title, span=8, figure=F.figure([]), summary="Nothing was recorded in this selection.")
    length = used["end_ns"] - used["start_ns"]
    divisor, unit = F.time_scale(high - low)
    middle = ((used["start_ns"] - low) + length / 2) / divisor
    data: list[F.Plain] = [
        {
            "type": "bar", "name": p.label, "x": middle.tolist(), "y": (100.0 * used[p.name] / length).tolist(),
            "width": (0.94 * length / divisor).tolist(), "marker": {"color": F.light(p.color)},
            "hovertemplate": f"<b>{p.label}</b> %{{y:.1f}} %<br>at %{{x:.4~g}} {unit}<extra></extra>",
        }
        for p in PARTS[:3]
        if used[p.name].any()
    ]  # fmt: skip
    start = capture.steps["start_ns"].to_numpy()[list(where.rows)]
    marks = ((start - low) / divisor).tolist() if len(start) <= 40 else []
    line = {"color": F.light("ink-3"), "width": 1, "dash": "dot"}
    names = [_label(x, 100.0, str(n), anchor="left") for x, n in zip(marks, where.steps, strict=True)] if 0 < len(marks) <= 16 else []
    idle_from, idle_to = I.gaps(found.busy, low, high)
    wide = np.flatnonzero(idle_to - idle_from >= 0.06 * (high - low))
    waits = [
        _label(float((idle_from[i] + idle_to[i]) / 2 - low) / divisor, 50.0, human(int(idle_to[i] - idle_from[i]), "ns"), anchor="center")
        for i in wide
    ]
    busy = high - low - int(used["idle_ns"].sum())
    return FigureSection(
        id="use",
        title=title,
        span=8,
        height=280,
        table="devices",
        subtitle=f"{human((high - low) / len(length), 'ns')} per bar" + ("; dotted: where a step starts" if marks else ""),
        figure=F.figure(
            data,
            x=F.axis(f"{unit} since the start of the selection", range=[0, (high - low) / divisor], showgrid=False),
            y=F.axis("busy, %", range=[0, 100]),
            barmode="stack",
            bargap=0,
            shapes=[{"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper", "line": line} for x in marks],
            annotations=[*names, *waits],
            margin={"l": 58, "r": 14, "t": 24 if names else 10, "b": 46},
        ),
        summary=f"The {word} is busy {human(busy, 'ns')} of the {human(high - low, 'ns')} shown.",
    )


def _label(x: float, y: float, text: str, *, anchor: str) -> F.Plain:
    font = {"size": 11, "color": F.light("ink-3")}
    lift = "bottom" if anchor == "left" else "middle"
    return {"x": x, "y": y, "text": text, "showarrow": False, "xanchor": anchor, "yanchor": lift, "font": font}


def _bars(frame: pd.DataFrame) -> FigureSection:
    each = frame.iloc[1:]
    divisor, unit = F.time_scale(float(each["total_ns"].max()))
    names = [f"device {d}" for d in each["device"]]
    data: list[F.Plain] = [
        {
            "type": "bar",
            "orientation": "h",
            "name": p.label,
            "y": names,
            "x": (each[p.name].to_numpy() / divisor).tolist(),
            "marker": F.fill(p.color),
            "customdata": each["device"].tolist(),
            "hovertemplate": f"<b>%{{y}}</b><br>{p.label} %{{x:.4~g}} {unit}<extra></extra>",
        }
        for p in PARTS
    ]
    most = each.iloc[int(each["idle_ns"].to_numpy().argmax())]
    return FigureSection(
        id="bars",
        title="Devices side by side",
        table="devices",
        height=60 + 34 * len(each),
        figure=F.figure(data, x=F.axis(unit), y=F.axis(autorange="reversed", gridcolor="rgba(0,0,0,0)"), barmode="stack"),
        summary=f"Device {most['device']} idles longest, {human(int(most['idle_ns']), 'ns')}.",
    )


def _idle_table(gaps: pd.DataFrame) -> dict[str, object]:
    total = int(gaps["duration_ns"].sum())
    cause, start, duration = (gaps[name].to_numpy() for name in ("cause", "start_ns", "duration_ns"))
    when = longest(cause, start, duration, len(B.CAUSES))
    found = []
    for code, name in enumerate(B.CAUSES):
        here = duration[cause == code]
        share = int(here.sum()) / total if total else np.nan
        found.append((FACT[CAUSE_FACTS[name]].label, len(here), int(here.sum()), share))
    columns: dict[str, object] = {c.name: [row[i] for row in found] for i, c in enumerate(IDLE_COLUMNS[:4])}
    return columns | {"longest_ns": when[TIME], "longest_start_ns": when[START]}


def _gap_table(capture: Capture, gaps: Table, rows: Mask) -> TableSection:
    """Builds the table of single gaps, each of them, the longest first."""
    whole = human(int(gaps["duration_ns"].sum()), "ns")
    return single_gaps(
        capture, "single_gaps", "Single gaps", gaps, rows, largest_first=True,
        subtitle="each gap, what ends it and who launches that",
        footer=f"{whole} in {human(len(gaps), 'count')} gaps: the idle time of each device, added up.",
        empty="No gap between two pieces of work.",
    )  # fmt: skip
