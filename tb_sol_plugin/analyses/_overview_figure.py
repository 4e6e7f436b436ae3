"""Figures of the overview: from the measured step to the speed of light, and what the device does over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.breakdown import layers, use_over_time
from tb_sol_plugin.metrics.levers import device_word
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.waterfall import Waterfall, windows_of
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.palette import light
from tb_sol_plugin.model.report import Column, FigureSection, Link, TableSection, make_table
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import NARROW, human

PLAIN, LEAST = 0.95, 0.80
"""Parts of the device's work with a cost model from which the ratio is shown plain, and at all."""


PART_COLUMNS = (
    Column("part", "Part", "", "A part of the step, exclusive of the others.", "text"),
    Column("time_ns", "Time", "ns", "Per step.", "bar", color_by="color"),
    Column("share", "Share", "ratio", "Over the step.", "share"),
    Column("color", "Colour", "", "Member of the palette.", "text", rank=3),
)


def shown_ratio(fall: Waterfall) -> float | None:
    share = fall.modelled_kernel_share
    return fall.ratio if share is not None and share >= LEAST else None


# -- from measured to the limit -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    name: str
    ns: float
    color: str


_KIND_WORDS = (
    ("norm", "Softmax, norm above limit"),
    ("gemm", "GEMM above limit"),
    ("attention", "Attention above limit"),
    ("conv", "Convolution above limit"),
    ("elementwise", "Elementwise above limit"),
    ("other", "Other operators above limit"),
)


def parts_of(capture: Capture, fall: Waterfall, least: float = 0.01) -> list[Part]:
    """The step, what it could lose, and what stays; per step. Kinds too small to see are one part."""
    each = fall.steps
    unit = device_word(capture)
    start = Part("Step time, measured" if fall.stepped else "Recording, measured", fall.total_ns / each, "bar-ink")
    waits = [
        Part(f"{unit} waits for input", fall.input_wait_ns / each, "idle"),
        Part(f"{unit} waits for the host", fall.host_wait_ns / each, "idle"),
        Part("Exposed communication", fall.exposed_communication_ns / each, "communication"),
        Part("Exposed copies", fall.exposed_copies_ns / each, "memcpy"),
    ]
    if not fall.has_limits:
        rest = (fall.unmodelled_ns + sum(fall.kind_ns.values())) / each
        return [start, *(p for p in waits if p.ns > 0), Part(f"{unit} computes", rest, "compute")]
    kinds = [Part(words, (fall.kind_ns[kind] - fall.limit_ns[kind]) / each, kind) for kind, words in _KIND_WORDS if fall.kind_ns[kind]]
    free = Part("No cost model", fall.unmodelled_ns / each, "host")
    large = sorted((p for p in kinds if abs(p.ns) >= least * start.ns), key=lambda p: -p.ns)
    small = sum(p.ns for p in kinds if abs(p.ns) < least * start.ns)
    if abs(free.ns) >= least * start.ns:
        large.append(free)
    else:
        small += free.ns
    kinds = [*large, Part("Other kernels", small, "other")]
    end = Part("Speed of light" if shown_ratio(fall) is not None else "Limit of modelled work", fall.sol_ns / each, "accent")
    return [start, *(p for p in (*waits, *kinds) if p.ns != 0), end]


def waterfall_figure(capture: Capture, fall: Waterfall, parts: list[Part]) -> FigureSection:
    """Bars from the measured step down to what stays."""
    whole = parts[0].ns or 1.0
    factor, unit = fig.time_scale(whole)
    names = [p.name for p in parts]
    left = whole
    data: list[fig.Plain] = []
    bases: list[float] = []
    for i, p in enumerate(parts):
        ends = i == 0 or i == len(parts) - 1
        base = 0.0 if ends else left - p.ns
        if not ends:
            left -= p.ns
        bases.append(base / factor)
        share = human(p.ns / whole, "ratio")
        text = f"<b>{_plain(p.ns / factor)}</b> {unit}" if ends else f"<b>−{_plain(p.ns / factor)}</b>  {share}"
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "y": [p.name],
                "x": [p.ns / factor],
                "base": [bases[-1]],
                "width": 0.62,
                "marker": fig.fill(p.color),
                "text": [text],
                "textposition": "outside",
                "cliponaxis": False,
                "customdata": [p.name],
                "hoverinfo": "text",
                "constraintext": "none",
                "hovertext": [f"<b>{p.name}</b><br>{human(round(p.ns), 'ns')}, {share} of the step"],
            }
        )
    data[0]["textposition"] = "inside"
    data[0]["insidetextanchor"] = "end"
    data[0]["insidetextfont"] = {"color": light("surface")}
    notes = [
        _left_of(piece, p.name, base)
        for piece, p, base in zip(data[1:-1], parts[1:-1], bases[1:-1], strict=True)
        if base + p.ns / factor > 0.75 * whole / factor
    ]
    end = parts[-1]
    mark = {
        "type": "line",
        "x0": end.ns / factor,
        "x1": end.ns / factor,
        "y0": 0,
        "y1": 1,
        "yref": "paper",
        "line": {"color": light("accent"), "width": 1.2, "dash": "4px,3px"},
    }
    y = fig.axis(
        type="category",
        categoryorder="array",
        categoryarray=names,
        autorange="reversed",
        showgrid=False,
        showline=False,
        tickfont={"size": 12, "color": light("ink")},
    )
    x = fig.axis(f"{unit} per step" if fall.stepped else unit, range=[0, whole / factor * 1.04])
    limits = fall.has_limits and len(capture.device)
    figure = fig.figure(
        data, x=x, y=y, barmode="overlay", margin={"l": 170, "r": 18, "t": 10, "b": 46}, shapes=[mark] if limits else [], annotations=notes
    )
    largest = max(parts[1:-1], key=lambda p: p.ns, default=None)
    said = f"; the largest loss is {largest.name}, {human(round(largest.ns), 'ns')}" if largest else ""
    return FigureSection(
        id="waterfall",
        title="From measured to speed of light" if limits else "Where the measured time goes",
        subtitle="each bar is time the step could lose",
        figure=figure,
        summary=f"From {human(round(whole), 'ns')} measured to {human(round(end.ns), 'ns')}{said}.",
        table="parts",
        span=7,
        height=90 + 36 * max(len(parts), 4),
    )


def _left_of(piece: fig.Plain, name: str, base: float) -> fig.Plain:
    """The label of a bar as a note left of its `base`, where there is more room; the bar loses its own."""
    text = piece["text"]
    assert isinstance(text, list)
    note = {
        "x": base,
        "y": name,
        "text": text[0],
        "showarrow": False,
        "xanchor": "right",
        "xshift": -6,
        "font": {"size": 12},
    }
    piece["text"], piece["textposition"] = [""], "none"
    return note


def _plain(value: float) -> str:
    """A number of the axis' unit with the decimals of its size."""
    return human(value, "count") if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def part_table(parts: list[Part]) -> TableSection:
    whole = parts[0].ns or 1.0
    frame = pd.DataFrame(
        {
            "part": [p.name for p in parts],
            "time_ns": [round(p.ns) for p in parts],
            "share": [p.ns / whole for p in parts],
            "color": [p.color for p in parts],
        }
    )
    return make_table(
        "parts",
        "From measured to speed of light, as a table",
        frame,
        PART_COLUMNS,
        key="part",
        footer="The parts between the first and the last row add up to their difference.",
    )


def use_figure(capture: Capture, part: Scope, bars: int = 120) -> FigureSection:
    """Stacked share of each class in equal slices of the selected steps, with the long gaps named."""
    windows, rows = windows_of(capture, part)
    low, high = (int(windows[0][0]), int(windows[1][-1])) if len(windows[0]) else part.window_ns
    everything = layers(capture, np.ones(len(capture.device), bool))
    frame = use_over_time(everything, (low, high), bars)
    factor, unit = fig.time_scale(high - low)
    width = (frame["end_ns"] - frame["start_ns"]).to_numpy(dtype=np.float64)
    middle = ((frame["start_ns"] + frame["end_ns"]).to_numpy() / 2 - low) / factor
    data = []
    named = (
        ("computation_ns", "compute", "compute"),
        ("exposed_communication_ns", "communication", "exposed communication"),
        ("exposed_memcpy_ns", "memcpy", "exposed copies"),
    )
    for column, token, words in named:
        values = frame[column].to_numpy()
        if not values.any():
            continue
        data.append(
            {
                "type": "bar",
                "x": middle.tolist(),
                "y": (100 * values / np.maximum(width, 1)).tolist(),
                "width": (0.9 * width / factor).tolist(),
                "marker": {"color": light(token), "line": {"width": 0}},
                "hoverinfo": "text",
                "hovertext": [
                    f"<b>{words}</b><br>{human(int(v), 'ns')} of {human(int(w), 'ns')}" for v, w in zip(values, width, strict=True)
                ],
            }
        )
    first, last = iv.gaps(everything.busy, low, high)
    long = np.flatnonzero(last - first >= 0.06 * (high - low))
    notes = [
        {
            "x": float((first[i] + last[i]) / 2 - low) / factor,
            "y": 50,
            "text": human(int(last[i] - first[i]), "ns"),
            "showarrow": False,
            "font": {"size": 11.5, "color": light("ink-3")},
        }
        for i in long.tolist()
    ]
    bands = [
        {
            "type": "rect",
            "x0": float(first[i] - low) / factor,
            "x1": float(last[i] - low) / factor,
            "y0": 0,
            "y1": 100,
            "layer": "below",
            "line": {"width": 0},
            "fillcolor": light("sunken"),
        }
        for i in long.tolist()
    ]
    starts = capture.steps["start_ns"].to_numpy()[list(rows)]
    if 1 < len(rows) <= 20:
        numbers = capture.steps["number"].to_numpy()[list(rows)]
        rule = {"color": light("line-strong"), "width": 1, "dash": "dot"}
        for at, number in zip(((starts - low) / factor).tolist(), numbers.tolist(), strict=True):
            bands.append({"type": "line", "x0": at, "x1": at, "y0": 0, "y1": 104, "line": rule})
            label = {"x": at, "y": 104, "text": f"step {number}" if number == numbers[0] else str(number), "showarrow": False}
            notes.append({**label, "xanchor": "left", "yanchor": "bottom", "font": {"size": 11.5, "color": light("ink-3")}})
    x = fig.axis(f"{unit} since the start", range=[0, (high - low) / factor], showgrid=False)
    y = fig.axis("", range=[0, 114 if 1 < len(rows) <= 20 else 102], tickvals=[0, 50, 100], ticktext=["0", "50", f"100{NARROW}%"])
    busy = iv.length(iv.clip(everything.busy, low, high))
    share = human(busy / (high - low) if high > low else None, "ratio")
    span = f"{len(rows)} steps" if len(rows) > 1 else "the step" if rows else "the recording"
    return FigureSection(
        id="use",
        title=f"{device_word(capture)} use over time",
        subtitle=f"{span}, {human(int(width.mean()) if len(width) else None, 'ns')} per bar",
        figure=fig.figure(
            data, x=x, y=y, barmode="stack", bargap=0, annotations=notes, shapes=bands, margin={"l": 50, "r": 10, "t": 10, "b": 46}
        ),
        summary=f"Busy for {share} of {human(high - low, 'ns')}; {len(long)} gaps longer than 6 %.",
        span=8,
        height=270,
        links=[Link("gpu_breakdown", label="GPU breakdown")],
    )
