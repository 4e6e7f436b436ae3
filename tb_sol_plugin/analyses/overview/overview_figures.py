"""What the device does over time, as a figure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.report.overview import SMALL, Part, Parts
from tb_sol_plugin.metrics.time.breakdown import device_word, layers, use_over_time
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import windows_of
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.figure import light
from tb_sol_plugin.model.report import Column, FigureSection, Link, TableSection, make_table
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import MINUS, NARROW, capitalized, human, humans, side_by_side


def _long_gaps(busy: iv.Spans, low: int, high: int, factor: float) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Returns annotations and background bands of the gaps that take 6 % of the time or more."""
    first, last = iv.gaps(busy, low, high)
    long = np.flatnonzero(last - first >= 0.06 * (high - low)).tolist()
    font = {"size": 11.5, "color": light("ink-3")}
    notes: list[dict[str, object]] = [
        {
            "x": float((first[i] + last[i]) / 2 - low) / factor, "y": 50, "text": human(int(last[i] - first[i]), "ns"),
            "showarrow": False, "font": font,
        }
        for i in long
    ]  # fmt: skip
    bands: list[dict[str, object]] = [
        {
            "type": "rect", "x0": float(first[i] - low) / factor, "x1": float(last[i] - low) / factor, "y0": 0, "y1": 100,
            "layer": "below", "line": {"width": 0}, "fillcolor": light("sunken"),
        }
        for i in long
    ]  # fmt: skip
    return notes, bands


def use_figure(capture: Capture, part: Scope, bars: int = 120) -> FigureSection:
    """Draws stacked share of each class in equal slices of the selected steps, with the long gaps named."""
    windows, rows = windows_of(capture, part)
    low, high = (int(windows[0][0]), int(windows[1][-1])) if len(windows[0]) else part.window_ns
    everything = layers(capture, np.ones(len(capture.device), bool))
    used = use_over_time(everything, (low, high), bars)
    factor, unit = fig.time_scale(high - low)
    width = (used["end_ns"] - used["start_ns"]).astype(np.float64)
    middle = ((used["start_ns"] + used["end_ns"]) / 2 - low) / factor
    lengths = humans(width.astype(np.int64).tolist(), "ns")
    data = []
    named = (
        ("computation_ns", "compute", "compute"),
        ("exposed_communication_ns", "communication", "exposed communication"),
        ("exposed_memcpy_ns", "memcpy", "exposed copies"),
    )
    for column, token, words in named:
        values = used[column]
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
                "hovertext": [f"<b>{words}</b><br>{took} of {of}" for took, of in zip(humans(values.tolist(), "ns"), lengths, strict=True)],
            }
        )
    notes, bands = _long_gaps(everything.busy, low, high, factor)
    long = len(notes)
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
    unit_word = device_word(capture)
    busy = iv.length(iv.clip(everything.busy, low, high))
    span = f"{len(rows)} steps" if len(rows) > 1 else "the step" if rows else "the recording"
    return FigureSection(
        id="use",
        title=f"{capitalized(unit_word)} use over time",
        subtitle=f"{span}, {human(int(width.mean()) if len(width) else None, 'ns')} per bar",
        figure=fig.figure(
            data, x=x, y=y, barmode="stack", bargap=0, annotations=notes, shapes=bands, margin={"l": 50, "r": 10, "t": 10, "b": 46}
        ),
        summary=f"Busy for {human(busy, 'ns')} of {human(high - low, 'ns')}; {long} gaps longer than 6 %.",
        span=8,
        height=270,
        links=[Link("gpu_breakdown", label="GPU breakdown")],
    )


# -- The waterfall as a figure and as a table -------------------------------------------------------------------------
# bars from the measured step down to the speed of light.


ROOM: Final = 0.30
"""Part of the axis that the label of a bar may need beside it."""


PART_COLUMNS: Final = (
    Column("part", "Part", "", "A part of the step, exclusive of the others.", "text"),
    Column("time_ns", "Time", "ns", "Per step.", "bar", color_by="color"),
    Column("share", "Share", "ratio", "Over the step.", "share"),
    Column("meaning", "Meaning", "", "What the part is.", "text", rank=2),
    Column("color", "Color", "", "Member of the palette.", "text", rank=3),
)


@dataclass(frozen=True)
class _Bar:
    """A part placed on the axis: `left` and `width` in the axis' unit. row: the line it stands in. said: its label, "" for none."""

    part: Part
    row: str
    left: float
    width: float
    caption: str
    ends: bool


def waterfall_figure(parts: Parts, *, per_step: bool, shown: bool) -> FigureSection:
    """Draws bars of `parts`. shown: the ratio is known well enough to call what stays the speed of light."""
    whole = parts.start.ns or 1.0
    factor, unit = fig.time_scale(whole)
    bars = _bars(parts, factor, unit)
    rows = list(dict.fromkeys(b.row for b in bars))
    reach = max(whole / factor, *(b.left + b.width for b in bars)) * 1.04
    data, notes = [], []
    for bar in bars:
        data.append(_trace(bar, whole))
        if bar.caption:
            notes.append(_label(bar, reach))
    stays = sum(p.ns for p in parts.stays)
    mark = {"type": "line", "x0": stays / factor, "x1": stays / factor, "y0": 0, "y1": 1, "yref": "paper"}
    line = {"color": light("accent"), "width": 1.2, "dash": "4px,3px"}
    heavy = {bars[0].row, *(b.row for b in bars if b.ends)}
    y = fig.axis(
        type="category",
        categoryorder="array",
        categoryarray=rows,
        tickvals=rows,
        ticktext=[f"<b>{r}</b>" if r in heavy else r for r in rows],
        autorange="reversed",
        showgrid=False,
        showline=False,
        tickfont={"size": 12, "color": light("ink")},
        ticklabelstandoff=4,
    )
    largest = max(parts.losses, key=lambda p: p.ns, default=None)
    text = f"; the largest part is {largest.name}, {human(round(largest.ns), 'ns')}" if largest else ""
    end = f" to {human(round(stays), 'ns')} at the limits" if parts.stays else ""
    return FigureSection(
        id="waterfall",
        title="From measured to speed of light" if shown else "Where the measured time goes",
        subtitle="each bar is time the step could lose" if parts.stays else "each bar is a part of the measured time",
        figure=fig.figure(
            data,
            x=fig.axis(f"{unit} per step" if per_step else unit, range=[0, reach], nticks=7),
            y=y,
            barmode="overlay",
            margin={"l": 170, "r": 18, "t": 10, "b": 46},
            shapes=[mark | {"line": line}] if parts.stays and stays > 0 else [],
            annotations=notes,
        ),
        summary=f"From {human(round(whole), 'ns')} measured{end}{text}.",
        table="parts",
        span=7,
        height=90 + 36 * max(len(rows), 4),
    )


def _bars(parts: Parts, factor: float, unit: str) -> list[_Bar]:
    whole, total = parts.start.ns or 1.0, sum(p.ns for p in parts.stays)
    left = parts.start.ns / factor
    first, end, *others = (_number(text, unit) for text in side_by_side([parts.start.ns, total, *(p.ns for p in parts.losses)], "ns"))
    out = [_Bar(parts.start, parts.start.name, 0.0, left, f"<b>{first}</b> {unit}", True)]
    for part, number in zip(parts.losses, others, strict=True):
        width = part.ns / factor
        text = f"<b>{MINUS if width >= 0 else '+'}{number.removeprefix(MINUS)}</b>  {human(abs(part.ns) / whole, 'ratio')}"
        out.append(_Bar(part, part.name, min(left, left - width), abs(width), text, False))
        left -= width
    at = 0.0
    for place, part in enumerate(parts.stays):
        width = part.ns / factor
        last = place == len(parts.stays) - 1
        text = f"<b>{end}</b> {'' if end[-1:].isalpha() else unit}{_bounds(parts, unit)}" if last else ""
        out.append(_Bar(part, part.name.partition(",")[0], at, width, text, True))
        at += width
    return out


def _number(text: str, unit: str) -> str:
    """Returns a time without the unit that the axis has; one too small for it keeps its own."""
    return text.removesuffix(NARROW + unit)


def _bounds(parts: Parts, unit: str) -> str:
    """Returns the pieces of what stays, where there are several and their words have room right of the bar."""
    total = sum(p.ns for p in parts.stays)
    if len(parts.stays) < 2 or total > 0.45 * parts.start.ns or total < SMALL * parts.start.ns:
        return ""
    texts = side_by_side([parts.start.ns, *(p.ns for p in parts.stays)], "ns")[1:]
    pieces = [f"{_number(t, unit)} {p.name.rpartition(', ')[2].removesuffix('-bound')}" for t, p in zip(texts, parts.stays, strict=True)]
    return f"  {' · '.join(pieces)}"


def _trace(bar: _Bar, whole: float) -> fig.Plain:
    marker = fig.fill(bar.part.color)
    if bar.part.color == "accent-line":
        marker["line"] = {"width": 0.8, "color": light("accent")}
    meaning = f"<br>{bar.part.meaning}" if bar.part.meaning else ""
    share = human(abs(bar.part.ns) / whole, "ratio")
    return {
        "type": "bar",
        "orientation": "h",
        "y": [bar.row],
        "x": [bar.width],
        "base": [bar.left],
        "width": 0.62,
        "marker": marker,
        "customdata": [bar.part.name],
        "hoverinfo": "text",
        "hovertext": [f"<b>{bar.part.name}</b><br>{human(round(bar.part.ns), 'ns')}, {share} of the measured time{meaning}"],
    }


def _label(bar: _Bar, reach: float) -> fig.Plain:
    """Places a label right of its bar where there is room, else left of it, else inside its end."""
    note: fig.Plain = {"y": bar.row, "text": bar.caption, "showarrow": False, "yanchor": "middle"}
    font: fig.Plain = {"size": 12, "color": light("ink-2")}
    clear: fig.Plain = {"font": font, "bgcolor": light("surface"), "borderpad": 1}  # no line runs through the text
    right = bar.left + bar.width
    if right <= reach * (1 - ROOM):
        return note | {"x": right, "xanchor": "left", "xshift": 5} | clear
    if bar.left >= reach * ROOM and not bar.ends:
        return note | {"x": bar.left, "xanchor": "right", "xshift": -5} | clear
    inside = light("surface") if bar.part.color not in ("idle", "norm", "elementwise", "accent-line", "ink-3") else light("ink")
    return note | {"x": right, "xanchor": "right", "xshift": -7, "font": font | {"color": inside}}


def part_table(parts: Parts) -> TableSection:
    """Builds the waterfall as a table."""
    whole = parts.start.ns or 1.0
    every = parts.all
    columns = {
        "part": [p.name for p in every],
        "time_ns": [round(p.ns) for p in every],
        "share": [p.ns / whole for p in every],
        "meaning": [p.meaning for p in every],
        "color": [p.color for p in every],
    }
    return make_table(
        "parts",
        "From measured to speed of light, as a table" if parts.stays else "Where the measured time goes, as a table",
        columns,
        PART_COLUMNS,
        key="part",
        footer="The parts below the first row add up to it.",
    )
