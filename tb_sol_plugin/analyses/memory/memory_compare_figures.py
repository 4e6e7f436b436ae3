"""Both curves on one axis of time, and the largest differences as bars around zero."""

from __future__ import annotations

from typing import Final

import pandas as pd

from tb_sol_plugin.analyses.memory.memory_compare_tables import ComparePart, Line
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.units import human, scale_of

COLORS: Final = ("compute", "communication")
BARS: Final = 12
BAR_PX: Final = 26
CLOSE: Final = 2.0
"""The memory of the device is a line where it is not more than so many times the larger peak."""


def lines(names: tuple[str, str], parts: tuple[ComparePart, ComparePart], align: str) -> FigureSection:
    """Memory in use of both. align: step (the step with the peak of each, since its begin) or start (all, since the first step's)."""
    steps = tuple(p.of_step for p in parts)
    by_step = align == "step" and None not in steps
    drawn: list[Line] = [s for s in steps if s is not None] if by_step else [p.whole for p in parts]
    top = max((max(line.allocated, default=0) for line in drawn), default=0)
    held = [max(line.reserved) for line in drawn if line.reserved]
    scale, unit = scale_of(float(max(top, *held, 1)), "B")
    factor, time_unit = F.time_scale(max(max(line.end_ns for line in drawn), 1))
    data, notes = [], []
    for at, (name, line) in enumerate(zip(names, drawn, strict=True)):
        color = F.light(COLORS[at])
        x = [t / factor for t in line.time_ns]
        if line.reserved:
            dotted: F.Plain = {"color": color, "width": 1.1, "dash": "3px,3px"}
            data.append(_curve(x, line.reserved, line.end_ns / factor, scale, dotted, f"{name}, reserved"))
        data.append(_curve(x, line.allocated, line.end_ns / factor, scale, {"color": color, "width": 1.8}, name, hover=True))
        place = max(range(len(line.allocated)), key=line.allocated.__getitem__)
        ring: F.Plain = {"size": 8, "color": color, "line": {"width": 1.5, "color": F.light("surface")}}
        data.append({"type": "scatter", "mode": "markers", "name": f"{name}, peak", "x": [x[place]], "y": [line.allocated[place] / scale],
                     "marker": ring, "hoverinfo": "skip", "cliponaxis": False})  # fmt: skip
        notes.append({
            "xref": "paper", "yref": "paper", "x": at, "y": 1, "xanchor": ("left", "right")[at], "yanchor": "bottom", "showarrow": False,
            "text": f"<b>{F.escape(name)}</b> up to {human(line.allocated[place], 'B')}", "font": {"size": 12, "color": color},
        })  # fmt: skip
    shapes, more, high = _device(parts, top, scale)
    where = "the step's begin" if by_step else "the begin of the first step"
    figure = F.figure(
        data, x=F.axis(f"since {where}, {time_unit}", rangemode="tozero"),
        y=F.axis(f"memory, {unit}", range=[0, 1.14 * max(top, high, *held, 1) / scale]), shapes=shapes, annotations=[*notes, *more],
        hovermode="x", margin={"l": 58, "r": 14, "t": 22, "b": 46},
    )  # fmt: skip
    said = [f"step {line.step} of {name}" if line.step is not None else name for name, line in zip(names, drawn, strict=True)]
    peaks = [f"{name} up to {human(max(line.allocated), 'B')}" for name, line in zip(names, drawn, strict=True)]
    subtitle = f"{said[0]} and {said[1]}, each since its begin; dotted: held by the allocator"
    return FigureSection(
        id="curves", title="Memory in use", figure=figure, height=320, subtitle=subtitle, span=12,
        summary=f"Memory in use over time: {'; '.join(peaks)}.", table="numbers",
    )  # fmt: skip


def _curve(x: list[float], level: tuple[int, ...], end: float, scale: float, line: F.Plain, name: str, *, hover: bool = False) -> F.Plain:
    """Steps that hold their last level to the end."""
    y = [v / scale for v in level]
    texts = [f"<b>{F.escape(name)}</b> {human(v, 'B')}" for v in (*level, level[-1])] if hover else None
    told: F.Plain = {"hoverinfo": "text", "hovertext": texts} if hover else {"hoverinfo": "skip"}
    return {"type": "scatter", "mode": "lines", "name": name, "x": [*x, end], "y": [*y, y[-1]], "line": {"shape": "hv", **line}, **told}


def _device(parts: tuple[ComparePart, ComparePart], top: int, scale: float) -> tuple[list[F.Plain], list[F.Plain], float]:
    sizes = {p.capacity for p in parts if p.capacity}
    if len(sizes) != 1:
        return [], [], 0.0
    (size,) = sizes
    if size > CLOSE * max(top, 1):
        return [], [], 0.0
    line: F.Plain = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": size / scale, "y1": size / scale}
    note: F.Plain = {
        "xref": "paper", "x": 1, "y": size / scale, "xanchor": "right", "yanchor": "bottom", "showarrow": False,
        "text": f"<b>memory of the device, {human(size, 'B')}</b>", "font": {"size": 12},
    }  # fmt: skip
    return [line | {"line": {"color": F.light("ink-2"), "width": 1.6}}], [note], float(size)


def bars(frame: pd.DataFrame, names: tuple[str, str], by: str) -> FigureSection:
    """The rows that differ most, the largest on top. frame: of `differences`, largest first; some row differs."""
    shown = frame[frame["abs_delta"] > 0].head(BARS).iloc[::-1]
    title = "What changed"
    scale, unit = scale_of(float(shown["abs_delta"].max()), "B")
    delta = [v / scale for v in shown["delta"].tolist()]
    widest = max(abs(v) for v in delta)
    texts = [_signed(int(v)) for v in shown["delta"].tolist()]
    hover = [
        f"<b>{F.escape(str(n))}</b><br>{F.escape(names[0])}: {human(a, 'B')}<br>{F.escape(names[1])}: {human(b, 'B')}<br>{text}"
        for n, a, b, text in zip(shown["name"], shown["a"].tolist(), shown["b"].tolist(), texts, strict=True)
    ]
    data: F.Plain = {
        "type": "bar", "orientation": "h", "x": delta, "y": list(range(len(shown))), "customdata": shown["key"].tolist(),
        "marker": {"color": [F.light(str(c)) for c in shown["color"]], "line": {"width": 0.8, "color": F.light("surface")}},
        "text": texts, "textposition": "outside", "cliponaxis": False, "textfont": {"size": 12, "color": F.light("ink-2")},
        "hoverinfo": "text", "hovertext": hover, "name": "difference", "width": 0.62,
    }  # fmt: skip
    pad = 1.34
    low, high = min([*delta, 0.0]), max([*delta, 0.0])
    figure = F.figure(
        [data],
        x=F.axis(f"{names[1]} less {names[0]}, {unit}", range=[low * pad - 0.02 * widest, high * pad + 0.02 * widest], zeroline=True,
                 zerolinecolor=F.light("ink-3"), zerolinewidth=1),
        y=F.axis("", tickvals=list(range(len(shown))), ticktext=[_cut(str(n)) for n in shown["name"]], showgrid=False),
        margin={"l": 58, "r": 14, "t": 6, "b": 46},
    )  # fmt: skip
    first = shown.iloc[-1]
    return FigureSection(
        id="changed", title=title, figure=figure, height=64 + BAR_PX * max(len(shown), 3), table="held",
        subtitle=f"at the peaks, by {by}: {names[1]} less {names[0]}",
        summary=f"The largest differences; {first['name']}: {_signed(int(first['delta']))}.",
    )  # fmt: skip


def _signed(value: int) -> str:
    return f"{'+' if value > 0 else '−' if value < 0 else ''}{human(abs(value), 'B')}"


def _cut(name: str) -> str:
    return F.escape(name if len(name) <= 34 else f"{name[:14]}…{name[-18:]}")
