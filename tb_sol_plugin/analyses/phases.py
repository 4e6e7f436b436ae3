"""Phases: what each user range and each step costs on the host and on the device.

Device work belongs to the phase that launched it. Work that an autograd thread launches outside every range of its own belongs to
the phase that was open at that moment on the thread that issued the backward pass.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses import analysis
from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics.breakdown import COMMUNICATION, COMPUTATION, MEMCPY, classes, layers
from tb_sol_plugin.metrics.phases import Share, device_owners, host_shares, phase_times
from tb_sol_plugin.metrics.scope import Scope, scope
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.palette import light
from tb_sol_plugin.model.report import (
    Column,
    FactsSection,
    FigureSection,
    Link,
    Mark,
    Notice,
    Report,
    Sort,
    TableSection,
    TreeSpec,
    make_table,
)
from tb_sol_plugin.model.selection import Query
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import human

OUTSIDE = "(outside every phase)"
NO_MODEL = "no cost model, no shapes, or an unknown device"

COLUMNS = (
    Column("id", "Key", "", "Key of the row: the path.", "code", rank=3),
    Column("parent", "Parent", "", "Path of the phase around it.", "code", rank=3),
    Column("name", "Phase", "", "The last level of the path; steps are one phase, ## marks and step numbers are left out.", "tree"),
    Column("path", "Path", "", "Names from the outermost phase down.", "code", rank=3),
    Column("count", "Count", "count", "Ranges of this very path; 0 for a level that only a `/` in names makes."),
    Column("device_events", "GPU events", "count", "Device events launched inside.", rank=2),
    Column("ops", "Operators", "count", "Operator calls inside.", rank=3),
    Column("host_ns", "Host", "ns", "Sum of the durations of its ranges on the host.", "bar", color="host"),
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
    Column("flop", "FLOP", "FLOP", "Floating point operations of the modelled operators inside.", rank=3, missing=NO_MODEL),
    Column("bytes", "Bytes", "B", "Least memory traffic of the modelled operators inside.", rank=3, missing=NO_MODEL),
    Column("sol_ns", "Limit", "ns", "Least time of the modelled operators on this device.", missing=NO_MODEL),
    Column("measured_ns", "Modelled time", "ns", "Device time of the modelled operators.", rank=3, missing=NO_MODEL),
    Column(
        "modelled_share",
        "Modelled",
        "ratio",
        "Part of the plain sum of device time that a cost model covers.",
        "share",
        missing="no device work",
    ),
    Column("efficiency", "Efficiency", "ratio", "Limit over modelled time; covers the modelled part only.", "efficiency", missing=NO_MODEL),
)

FACTS = {
    "phases": "Distinct phases.",
    "ranges": "User ranges in the selection.",
    "steps": "Steps that per-step numbers are divided by; 1 where no step was recorded.",
    "device_events": "Device events in the selection.",
    "events_in_phases": "Device events launched inside some phase.",
    "device_ns": "Union of the intervals of all device events in the selection.",
    "by_time_ns": "Plain sum of device time that belongs to a phase by the moment of its launch on an autograd thread.",
}


class PhasesQuery(Query, kw_only=True, frozen=True):
    """Phases.

    per: sums over all steps of the selection, or divided by their number.
    """

    per: Literal["all", "step"] = "all"

    PAGE: ClassVar[dict[str, str]] = {"per": "step"}


@analysis(
    title="Phases",
    question="What does each phase of a step cost on host and device?",
    group="Time",
    order=50,
    needs=("annotations",),
    query=PhasesQuery,
    tables={"phases": COLUMNS},
    facts=FACTS,
)
def phases(capture: Capture, query: PhasesQuery) -> Report:
    """The phase tree, with the average step by phase and the steps beside each other."""
    part = scope(capture, query)
    frame = phase_times(capture, part, query.device_limits)
    report = Report(analysis="phases", title="Phases", headline=_headline(capture, part, frame))
    report.notices = _notices(capture, part, frame)
    report.sections = [
        _average(capture, part, frame),
        _steps(capture, part),
        _table(capture, part, frame, query),
        _facts(capture, part, frame),
    ]
    return report


# -- numbers --------------------------------------------------------------------------------------------------


def _windows(capture: Capture, part: Scope) -> tuple[np.ndarray, np.ndarray]:
    """Host bounds of the selected steps, so that host and device bars share one scale; the whole window where there are none."""
    if not part.rows:
        return np.array([part.window_ns[0]]), np.array([part.window_ns[1]])
    chosen = list(part.rows)
    return capture.steps["host_start_ns"].to_numpy()[chosen], capture.steps["host_end_ns"].to_numpy()[chosen]


def _gpu_parts(capture: Capture, start: np.ndarray, end: np.ndarray) -> list[np.ndarray]:
    """Per window: compute, exposed communication, exposed copies and idle time of the device, which add up to the window."""
    parts = [iv.overlap_with(start, end, layer) for layer in layers(capture, np.ones(len(capture.device), bool)).exclusive()]
    return [*parts, end - start - sum(parts)]


def _headline(capture: Capture, part: Scope, frame: pd.DataFrame) -> str:
    shares = host_shares(frame, part.step_count)
    if not shares:
        return "No phase lies in this selection."
    top = max(shares, key=lambda s: s.host_ns)
    start, end = _windows(capture, part)
    window = int((end - start).sum())
    row = frame[frame["path"] == top.path].iloc[0]
    each = " per step" if part.rows else ""
    host = human(round(top.host_ns), "ns")
    if not len(capture.device):
        return f"**{top.name}** takes {host} of host time{each}; no device activity was recorded."
    idle_ns = int(_gpu_parts(capture, start, end)[3].sum())
    device = human(round(int(row["device_ns"]) / part.step_count), "ns")
    idle = human(idle_ns / window if window else None, "ratio")
    return (
        f"The device idles {idle} of the time; **{top.name}** is the longest phase: {host} on the host for {device} of device work{each}."
    )


def _notices(capture: Capture, part: Scope, frame: pd.DataFrame) -> list[Notice]:
    out = []
    if not len(capture.device):
        out.append(Notice("No device activity was recorded: host times only.", "info"))
        return out
    tops = frame[frame["parent"] == -1]
    whole, covered = float(tops["device_sum_ns"].sum()), float(np.nansum(tops["modelled_sum_ns"].to_numpy(float)))
    if whole and 0 < covered / whole < 0.8:
        out.append(
            Notice(
                f"{human(covered / whole, 'ratio')} of the device time has a cost model; efficiency covers that part.",
                "warn",
                Link("roofline"),
            )
        )
    by_time = int(tops["by_time_ns"].sum())
    if by_time:
        out.append(
            Notice(
                f"{human(by_time / whole, 'ratio')} of the device time was launched by an autograd thread; "
                "its phase is the one open at that moment.",
                "info",
            )
        )
    return out


# -- figures --------------------------------------------------------------------------------------------------


def _average(capture: Capture, part: Scope, frame: pd.DataFrame) -> FigureSection:
    """Two bars on one scale: the host by top phase, the device by what it does."""
    steps = part.step_count
    start, end = _windows(capture, part)
    window = float((end - start).sum()) / steps
    shares = [s for s in host_shares(frame, steps) if s.host_ns > 0]
    rest = max(window - sum(s.host_ns for s in shares), 0.0)
    longest = max(window, sum(s.host_ns for s in shares), 1.0)
    factor, unit = fig.time_scale(longest)
    data: list[fig.Plain] = []
    strength = _strengths(shares)
    quiet: list[tuple[str, float]] = []
    for share in shares:
        value = share.host_ns / factor
        label = _label(share.name, share.host_ns, longest)
        if not label:
            quiet.append((share.name, share.host_ns))
        data.append(
            _segment(
                "Host", value, light("accent"), label, share.name, share.host_ns, longest, opacity=strength[share.path], key=share.path
            )
        )
    if rest > 0:
        data.append(_segment("Host", rest / factor, light("idle"), "", "outside every phase", rest, longest))
    summary = ", ".join(f"{s.name} {human(round(s.host_ns), 'ns')}" for s in sorted(shares, key=lambda s: -s.host_ns)[:4])
    if len(capture.device):
        parts = [float(p.sum()) / steps for p in _gpu_parts(capture, start, end)]
        names = ("compute", "exposed comm.", "exposed copies", "idle")
        for name, token, time in zip(names, ("compute", "communication", "memcpy", "idle"), parts, strict=True):
            if time > 0:
                label = _label(name, time, longest)
                piece = _segment("GPU", time / factor, light(token), label, name, time, longest)
                piece["marker"] = fig.fill(token)
                piece["insidetextfont"] = {"color": light("ink" if token in ("communication", "idle") else "surface")}
                if not label:
                    quiet.append((name, time))
                data.append(piece)
        summary += "; device " + ", ".join(f"{n} {human(round(p), 'ns')}" for n, p in zip(names, parts, strict=True) if p > 0)
    mean = f"mean of {steps} steps" if len(part.rows) > 1 else ("one step" if part.rows else "the whole recording; no step was recorded")
    x = fig.axis(unit, range=[0, longest / factor])
    y = fig.axis(type="category", autorange="reversed", showgrid=False, showline=False)
    figure = fig.figure(data, x=x, y=y, barmode="stack", margin={"l": 58, "r": 14, "t": 10, "b": 64 if quiet else 46}, bargap=0.45)
    if quiet:
        figure["layout"]["annotations"] = [_unlabelled(quiet)]  # type: ignore[index]
    return FigureSection(
        id="average",
        title="Average step by phase",
        subtitle=f"{mean}, {human(round(window), 'ns')}; both bars share one scale",
        figure=figure,
        summary=f"Per step on the host: {summary}.",
        table="phases",
        span=8,
        height=248,
    )


def _strengths(shares: list[Share]) -> dict[str, float]:
    """Accent at 100, 62, 40, 26 % in order of length, so that neighbours differ."""
    ranked = sorted(shares, key=lambda s: -s.host_ns)
    return {s.path: (1.0, 0.62, 0.4, 0.26)[min(i, 3)] for i, s in enumerate(ranked)}


def _label(name: str, time: float, longest: float) -> str:
    """Text in a segment, where it fits (about 6.5 px a character in about 690 px)."""
    room = time / longest * 690 - 8
    text = f"{name} {human(round(time), 'ns')}"
    if len(text) * 6.5 < room:
        return text
    return name if len(name) * 6.5 < room else ""


def _segment(
    row: str, value: float, color: str, label: str, name: str, time: float, whole: float, *, opacity: float = 1.0, key: str = ""
) -> fig.Plain:
    safe = name.replace("&", "&amp;").replace("<", "&lt;")
    out: fig.Plain = {
        "type": "bar",
        "orientation": "h",
        "y": [row],
        "x": [value],
        "marker": {"color": color, "opacity": opacity, "line": {"width": 0.8, "color": light("surface")}},
        "width": 0.62,
        "text": [label.replace("&", "&amp;").replace("<", "&lt;")],
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


def _unlabelled(quiet: list[tuple[str, float]], room: int = 105) -> fig.Plain:
    """A line below the axis that names what had no room in the bars, the longest first, as far as the line goes."""
    texts = [f"{name} {human(round(time), 'ns')}" for name, time in sorted(quiet, key=lambda q: -q[1])]
    shown = [t for i, t in enumerate(texts) if sum(len(x) + 2 for x in texts[: i + 1]) <= room]
    more = f" and {len(texts) - len(shown)} more" if len(texts) > len(shown) else ""
    said = ", ".join(shown).replace("&", "&amp;").replace("<", "&lt;")
    place = {"xref": "paper", "yref": "paper", "x": 0, "y": 0, "xanchor": "left", "yanchor": "top", "yshift": -44}
    return {**place, "text": f"Not labelled: {said}{more}", "showarrow": False, "font": {"size": 11.5, "color": light("ink-3")}}


def _steps(capture: Capture, part: Scope, limit: int = 200) -> FigureSection:
    """A stacked bar per recorded step: what the device does between the step's host bounds."""
    start, end = (edge[:limit] for edge in _windows(capture, part))
    chosen = list(part.rows)[:limit]
    names = [str(n) for n in capture.steps["number"].to_numpy()[chosen].tolist()] or ["whole recording"]
    complete = capture.steps["complete"].to_numpy()[chosen].tolist()
    length = end - start
    longest = float(length.max())
    factor, unit = fig.time_scale(longest)
    data: list[fig.Plain] = []
    if len(capture.device):
        parts = _gpu_parts(capture, start, end)
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
        summary=f"{len(names)} steps from {human(int(length.min()), 'ns')} to {human(int(length.max()), 'ns')}.",
        span=4,
        height=248,
        links=[Link("steps", label="Steps")],
    )


# -- table ----------------------------------------------------------------------------------------------------

_DIVIDED = (
    "host_ns",
    "host_self_ns",
    "device_ns",
    "device_sum_ns",
    "compute_ns",
    "exposed_communication_ns",
    "exposed_memcpy_ns",
    "by_time_ns",
    "flop",
    "bytes",
    "sol_ns",
    "measured_ns",
)


def _table(capture: Capture, part: Scope, frame: pd.DataFrame, query: PhasesQuery) -> TableSection:
    path = dict(zip(frame["node"].tolist(), frame["path"].tolist(), strict=True))
    sol, measured = frame["sol_ns"].to_numpy(float), frame["measured_ns"].to_numpy(float)
    device_sum = frame["device_sum_ns"].to_numpy(float)
    both = np.isfinite(sol) & (measured > 0)
    out = frame.assign(
        id=frame["path"],
        parent=pd.Series([path.get(p) for p in frame["parent"].tolist()], dtype=object),
        efficiency=np.where(both, sol / np.where(both, measured, 1.0), np.nan),
        modelled_share=np.where(
            device_sum > 0, np.nan_to_num(frame["modelled_sum_ns"].to_numpy(float)) / np.maximum(device_sum, 1.0), np.nan
        ),
    ).astype(object)
    outside = _outside(capture, part)
    if outside:
        out = pd.concat([out, pd.DataFrame(outside).reindex(columns=out.columns).astype(object)], ignore_index=True)
    divide = part.step_count if query.per == "step" else 1
    for name in _DIVIDED:
        out[name] = [None if v is None or v != v else round(v / divide) for v in out[name].tolist()]
    if not len(capture.device):
        for name in (
            "device_ns",
            "device_sum_ns",
            "device_events",
            "compute_ns",
            "exposed_communication_ns",
            "exposed_memcpy_ns",
            "by_time_ns",
        ):
            out[name] = None
    each = "per step" if query.per == "step" else f"sums over {human(part.step_count, 'count')} steps" if len(part.rows) > 1 else "sums"
    section = make_table(
        "phases",
        "Phases",
        out,
        COLUMNS,
        subtitle=f"{each}; device time belongs to the phase that launched it",
        key="id",
        tree=TreeSpec(),
        sort=Sort("host_ns"),
        last=[str(r["id"]) for r in outside],
        filters=["name"],
        footer="≈ efficiency of the modelled part only. Work hidden behind other computation is in Device, not in the exposed columns.",
    )
    for row, (share, value) in enumerate(zip(section.data["modelled_share"], section.data["efficiency"], strict=True)):
        if not isinstance(value, int | float):
            continue
        if value > 1.02:
            section.marks.setdefault("efficiency", {})[str(row)] = Mark("flagged", "faster than the limit: the limit or the work is wrong")
        elif isinstance(share, int | float) and share < 0.95:
            section.marks.setdefault("efficiency", {})[str(row)] = Mark("partial", f"covers {human(share, 'ratio')} of the device time")
    return section


def _outside(capture: Capture, part: Scope) -> list[dict[str, object]]:
    """Device work of no phase, by reason."""
    device = capture.device
    owner = np.where(part.device, device_owners(capture).node, 0)
    start, duration = device["start_ns"].to_numpy(), device["duration_ns"].to_numpy()
    kind = classes(capture)
    everything = layers(capture, part.device)
    behind = iv.merge(everything.computation, everything.communication)
    out: list[dict[str, object]] = []
    for name, mask in at.unowned(capture, owner, OUTSIDE):
        spans = {
            k: iv.union(start[mask & (kind == k)], (start + duration)[mask & (kind == k)]) for k in (COMPUTATION, COMMUNICATION, MEMCPY)
        }
        out.append(
            {
                "id": name,
                "parent": None,
                "path": name,
                "name": name,
                "device_events": int(mask.sum()),
                "device_sum_ns": int(duration[mask].sum()),
                "device_ns": iv.length(iv.merge(*spans.values())),
                "compute_ns": iv.length(spans[COMPUTATION]),
                "exposed_communication_ns": iv.length(iv.subtract(spans[COMMUNICATION], everything.computation)),
                "exposed_memcpy_ns": iv.length(iv.subtract(spans[MEMCPY], behind)),
            }
        )
    return out


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
    labels = {
        "phases": "Phases",
        "ranges": "Ranges",
        "steps": "Steps",
        "device_events": "Device events",
        "events_in_phases": "Launched in a phase",
        "device_ns": "Device busy",
        "by_time_ns": "Owned by time",
    }
    units = {k: "ns" if k.endswith("_ns") else "count" for k in values}
    return FactsSection(id="facts", title="Counts", values=dict(values), units=units, labels=labels, docs=dict(FACTS))
