"""Draws the average step by phase, and the steps one by one."""

from __future__ import annotations

import numpy as np
import pandas as pd
from msgspec.structs import replace

from tb_sol_plugin.metrics.time.breakdown import layers
from tb_sol_plugin.metrics.time.scope import Scope, is_capture
from tb_sol_plugin.metrics.trees.label_times import phase_device_ns, usual_phase_ns
from tb_sol_plugin.metrics.trees.phases import STEP, Share, host_shares
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.figure import light
from tb_sol_plugin.model.report import (
    FigureSection,
    Link,
)
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import human

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
    parts = [iv.overlap_with(start, end, layer) for layer in layers(capture, np.ones(len(capture.device), bool)).exclusive]
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
