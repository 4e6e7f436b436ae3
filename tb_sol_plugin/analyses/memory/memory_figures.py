"""Memory over time as a figure: what is in use and reserved as steps, what it is for where that is known, the limit, and marks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.memory.categories import outer_phases
from tb_sol_plugin.metrics.memory.curves import NO_TIMES, Curves
from tb_sol_plugin.metrics.memory.curves import steps as steps_of
from tb_sol_plugin.metrics.memory.labels import CATEGORIES, color, label
from tb_sol_plugin.metrics.memory.summary import Summary
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import FigureSection, Stretch, Zoom
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import human, scale_of

MARKS: Final = 60
"""Steps and phases that are marked; of more, the longest phases and every n-th step. Names stand where they have room."""
LABEL: Final = 0.07
"""A step has its name where it has this share of the axis."""
WIDE: Final = 0.045
"""A phase has its name where it takes this share of the axis."""
FAR: Final = 3.0
"""The limit is drawn where it is not more than so many times the largest value: else the curve would be a line at the bottom."""
PALE: Final = "26"
"""15 % of a color, as its last two digits."""
NAMES_AT: Final = 0.995
"""Names of phases stand at this height of the figure, above the levels."""
TINTS: Final = (0.12, 0.08, 0.05, 0.03)


@dataclass(frozen=True)
class Axis:
    """The axis of time. origin: ns of its 0. scale: ns per unit. low, high: its ends in ns of the capture."""

    origin: int
    scale: float
    unit: str
    low: int
    high: int

    def x(self, ns: Ints | Iterable[int]) -> list[float]:
        """Times of the capture as units of the axis."""
        return ((np.asarray(list(ns) if not isinstance(ns, np.ndarray) else ns, np.int64) - self.origin) / self.scale).tolist()  # type: ignore[no-any-return]

    def share(self, start: int, end: int) -> float:
        """Of the axis, that a stretch of time takes."""
        return (end - start) / max(self.high - self.low, 1)


def axis_of(curve: Curves, window: tuple[int, int] | None, origin: int, last: int) -> Axis:
    """Of the window, else of the curve and the recording around it. A history without times is drawn entry by entry."""
    low, high = window if window is not None else (min(int(curve.time_ns[0]), origin), max(int(curve.time_ns[-1]), last))
    if NO_TIMES in curve.notes:
        return Axis(origin, 1.0, "", low, max(high, low + 1))
    scale, unit = F.time_scale(max(abs(low - origin), abs(high - origin), 1))
    return Axis(origin, scale, unit, low, max(high, low + 1))


def section(
    capture: Capture,
    curve: Curves,
    found: Summary,
    axis: Axis,
    *,
    chosen: tuple[int, int] | None,
    stretches: dict[str, dict[str, Stretch]],
    title: str,
) -> FigureSection:
    """curve: the part to draw, thinned. chosen: a moment and what was in use then, None for the peak."""
    data, top, unit, scale = _levels(curve, axis)
    shapes, notes = _marks(capture, axis)
    named = any(n["y"] == NAMES_AT for n in notes)
    limit = found.capacity.bytes
    near = limit is not None and not curve.relative and limit <= FAR * top
    if near and limit is not None:
        shapes.append(_line(y=limit / scale, color="ink-2", width=1.6))
        notes.append(
            _note(
                1,
                limit / scale,
                f"<b>memory of the device, {human(limit, 'B')}</b>",
                xref="paper",
                xanchor="right",
                yanchor="top",
                yshift=-1,
            )
        )
    points, words = _points(curve, axis, scale, chosen)
    data, notes = [*data, *points], [*notes, *words]
    data += _failures(curve, axis, scale)
    if chosen is not None:
        shapes.append(_line(x=axis.x([chosen[0]])[0], color="accent", width=1.4, dash="3px,3px"))
    high = max(top * (1.24 if named else 1.1), limit * 1.1 if near and limit is not None else 0) / scale
    low = min(int(curve.allocated.min()) if curve.allocated is not None else 0, 0) / scale
    ends = axis.x([axis.low, axis.high])
    measure = "change since the beginning" if curve.relative else "memory"
    drawn = F.figure(
        data,
        x=F.axis(f"since the start of the recording, {axis.unit}" if axis.unit else "entry of the history", range=ends),
        y=F.axis(f"{measure}, {unit}", range=[low * 1.08, high or 1], fixedrange=True, rangemode="normal"),
        shapes=shapes, annotations=notes, hovermode="x", hoverdistance=-1, showlegend=True, margin={"l": 58, "r": 14, "t": 30, "b": 46},
    )  # fmt: skip
    return FigureSection(
        id="curve_figure", title=title, figure=drawn, height=380, table="curve", stretches={n: s for n, s in stretches.items() if s},
        zoom=Zoom("window", "at", axis.scale), summary=_summary(curve, found, axis),
        subtitle="" if near or limit is None else f"of {human(limit, 'B')}, {human(top / limit, 'ratio')} of which is drawn",
    )  # fmt: skip


def _levels(curve: Curves, axis: Axis) -> tuple[list[F.Plain], float, str, float]:
    """(traces, largest value in bytes, unit of the axis, bytes per unit)."""
    x = axis.x(curve.time_ns)
    allocated = curve.allocated if curve.allocated is not None else np.zeros(len(x), np.int64)
    levels = [level for level in (allocated, curve.reserved, curve.highest) if level is not None and len(level)]
    top = float(max((int(np.abs(level).max()) for level in levels), default=0)) or 1.0
    scale, unit = scale_of(top, "B")
    end = axis.x([axis.high])[0]

    def drawn(level: Ints, name: str, **more: object) -> F.Plain:
        """A line of steps that holds its last level to the edge."""
        y = (level / scale).tolist()
        return {"type": "scatter", "mode": "lines", "name": name, "x": [*x, end], "y": [*y, y[-1]], "hoverinfo": "skip"} | more

    data: list[F.Plain] = []
    for name in sorted(curve.categories, key=lambda n: list(CATEGORIES).index(n) if n in CATEGORIES else len(CATEGORIES)):
        if not curve.categories[name].any():
            continue
        line: F.Plain = {"shape": "hv", "width": 0}
        about = "≈ " if curve.source == "events" and not curve.measured and name not in ("before", "unknown") else ""
        said = about + F.escape(label(name))
        data.append(drawn(curve.categories[name], said, stackgroup="for", line=line, fillcolor=F.light(color(name)), opacity=0.8))
    stacked = bool(data)
    if curve.reserved is not None:
        data.append(drawn(curve.reserved, "reserved", line={"shape": "hv", "width": 1.4, "color": F.light("ink-3"), "dash": "4px,3px"}))
    if curve.highest is not None and (curve.highest >= 0).any():
        known = np.where(curve.highest >= 0, curve.highest, allocated)
        line = {"shape": "vh", "width": 1.2, "color": F.light("communication")}
        data.append(drawn(known, "most since the record before", line=line))
    texts = _hover(curve, axis)
    fill: F.Plain = {} if stacked else {"fill": "tozeroy", "fillcolor": F.light("compute") + PALE}
    line = {"shape": "hv", "width": 0.8 if stacked else 1.6, "color": F.light("ink" if stacked else "compute")}
    data.append(drawn(allocated, "in use", line=line, **fill) | {"hoverinfo": "text", "hovertext": [*texts, texts[-1]]})
    return data, top, unit, scale


def _hover(curve: Curves, axis: Axis) -> list[str]:
    """Every level at each point, the time first."""
    allocated = curve.allocated if curve.allocated is not None else np.zeros(len(curve.time_ns), np.int64)
    columns = [("in use" if not curve.relative else "change", allocated)]
    columns += [("reserved", curve.reserved)] if curve.reserved is not None else []
    columns += [("most since the record before", curve.highest)] if curve.highest is not None else []
    columns += [(F.escape(label(n)), level) for n, level in curve.categories.items() if level.any()]
    values = [(name, level.tolist()) for name, level in columns]
    times = (curve.time_ns - axis.origin).tolist()
    return [
        "<br>".join(
            [f"<b>{human(t, 'ns')}</b>", *(f"{name}: {human(level[i], 'B')}" for name, level in values if level[i] or name == "in use")]
        )
        for i, t in enumerate(times)
    ]


def _points(curve: Curves, axis: Axis, scale: float, chosen: tuple[int, int] | None) -> tuple[list[F.Plain], list[F.Plain]]:
    """(points, words beside them) of the peak, and of the moment that was chosen: its time and what was in use then."""
    points = [(curve.peak_ns, curve.peak, "peak ", "accent" if chosen is None else "ink-3")] if curve.peak_ns >= 0 else []
    points += [(*chosen, "", "accent")] if chosen is not None else []
    marks: list[F.Plain] = []
    notes: list[F.Plain] = []
    for time, level, words, token in points:
        if not axis.low <= time <= axis.high:
            continue
        x = axis.x([time])[0]
        ring: F.Plain = {"size": 9, "symbol": "circle", "color": F.light(token), "line": {"width": 1.5, "color": F.light("surface")}}
        marks.append({
            "type": "scatter", "mode": "markers", "x": [x], "y": [level / scale], "marker": ring, "hoverinfo": "skip",
            "name": words.strip() or "chosen", "showlegend": False, "cliponaxis": False,
        })  # fmt: skip
        right = axis.share(axis.low, time) > 0.8
        side = {"xanchor": "right", "xshift": -7} if right else {"xanchor": "left", "xshift": 7}
        ground: F.Plain = {"bgcolor": F.light("surface"), "opacity": 0.85, "borderpad": 1, "yanchor": "bottom", "yshift": 4}
        notes.append(_note(x, level / scale, f"<b>{words}{human(level, 'B')}</b>", color=token, **side, **ground))
    return marks, notes


def _failures(curve: Curves, axis: Axis, scale: float) -> list[F.Plain]:
    found = [e for e in curve.events if e.what == "oom"]
    if not found or curve.allocated is None:
        return []
    levels = [int(curve.allocated[curve.at(e.time_ns)]) / scale for e in found]
    words = [
        f"<b>allocation of {human(e.bytes, 'B')} failed</b>" + (f"<br>free on the device: {human(e.free, 'B')}" if e.free >= 0 else "")
        for e in found
    ]
    marker: F.Plain = {"size": 11, "symbol": "x", "color": F.light("error"), "line": {"width": 1, "color": F.light("surface")}}
    return [{
        "type": "scatter", "mode": "markers", "name": "failed allocation", "x": axis.x([e.time_ns for e in found]), "y": levels,
        "marker": marker,
        "hoverinfo": "text", "hovertext": words, "cliponaxis": False,
    }]  # fmt: skip


def _marks(capture: Capture, axis: Axis) -> tuple[list[F.Plain], list[F.Plain]]:
    """Lines at the starts of steps, tinted stretches of phases, with names where they have room."""
    shapes: list[F.Plain] = []
    notes: list[F.Plain] = []
    steps = steps_of(capture)
    steps = steps[(steps["end_ns"] > axis.low) & (steps["start_ns"] < axis.high)].sort_values("start_ns")
    steps = steps.iloc[:: max(1, -(-len(steps) // MARKS))]
    free = 0.0  # of the axis, from the right: where the next name on it begins
    for number, start, _ in reversed(list(steps.itertuples(index=False))):
        begin = max(int(start), axis.low)
        place = axis.share(begin, axis.high)
        if start >= axis.low:
            shapes.append(_line(x=axis.x([begin])[0], color="line-strong", width=1))
        if place - free >= LABEL:
            free = place
            notes.append(
                _note(axis.x([begin])[0], 1, f"step {number}", yref="paper", xanchor="left", yanchor="bottom", yshift=2, color="ink-3")
            )
    phases = outer_phases(capture)
    phases = phases[(phases["end_ns"] > axis.low) & (phases["start_ns"] < axis.high)]
    if len(phases) > MARKS:
        phases = phases.assign(length=phases["end_ns"] - phases["start_ns"]).nlargest(MARKS, "length").sort_values("start_ns")
    tints: dict[str, float] = {}
    for name, start, end in phases[["name", "start_ns", "end_ns"]].itertuples(index=False):
        begin, stop = max(int(start), axis.low), min(int(end), axis.high)
        tint = tints.setdefault(str(name), TINTS[len(tints) % len(TINTS)])
        ends = axis.x([begin, stop])
        shapes.append({
            "type": "rect", "xref": "x", "yref": "paper", "x0": ends[0], "x1": ends[1], "y0": 0, "y1": 1, "layer": "below",
            "fillcolor": F.light("accent"), "opacity": tint, "line": {"width": 0},
        })  # fmt: skip
        if axis.share(begin, stop) >= WIDE:
            shown = F.escape(_cut(str(name), axis.share(begin, stop)))
            notes.append(_note(ends[0], NAMES_AT, shown, yref="paper", xanchor="left", yanchor="top", xshift=3))
    return shapes, notes


def _cut(name: str, share: float) -> str:
    """A name as long as its stretch has room for, of some 160 letters across the figure."""
    room = max(int(share * 160), 4)
    return name if len(name) <= room else name[: room - 1] + "…"


def _line(*, x: float | None = None, y: float | None = None, color: str, width: float, dash: str = "solid") -> F.Plain:
    upright = x is not None
    place: F.Plain = {"xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1}
    if not upright:
        place = {"xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": y, "y1": y}
    return {
        "type": "line",
        "layer": "below" if upright else "above",
        "line": {"color": F.light(color), "width": width, "dash": dash},
        **place,
    }


def _note(x: float, y: float, text: str, *, color: str = "ink-2", **more: object) -> F.Plain:
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": {"size": 11.5, "color": F.light(color)}, **more}


def _summary(curve: Curves, found: Summary, axis: Axis) -> str:
    said = f"Memory in use on {curve.device or 'the device'} over {human(axis.high - axis.low, 'ns')}"
    peak = f", at most {human(found.peak, 'B')} at {human(found.peak_ns - axis.origin, 'ns')}"
    held = f"; reserved at most {human(found.reserved, 'B')}" if found.reserved is not None else ""
    return f"{said}{peak}{held}."
