"""A roofline for copies: bandwidth over size, the limit of each direction's link, and the latency and rate fitted to each kind."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.copies import bandwidth
from tb_sol_plugin.metrics.copies.records import COLORS, NAMES, memory_text
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human


def section(found: pd.DataFrame, limits: dict[str, tuple[float, str]], fitted: list[bandwidth.Fit], *, keyed: bool) -> FigureSection:
    """The figure. keyed: the points carry the direction as the key of their table row."""
    known = found.loc[(found["bytes"] > 0) & (found["duration_ns"] > 0), ["direction", "bytes", "duration_ns"]]
    points = _points(known)
    title = "Bandwidth by copy size"
    if not len(points):
        summary = "No copy carries both a size and a time."
        return FigureSection(id="bandwidth", title=title, span=7, height=160, figure=F.figure([]), summary=summary, table="copies")
    low, high = float(points["size"].min()), float(points["size"].max())
    span = np.geomspace(low / 2, high * 2, 60)
    drawn = [n for n in NAMES if (points["direction"] == n).any()]
    longest = float(points["time"].max())
    data: list[F.Plain] = [_markers(n, points[points["direction"] == n], longest, keyed=keyed) for n in drawn]
    seen: set[str] = set()
    for fit in (f for f in fitted if not f.why):
        curve = span / (fit.latency_ns + span / fit.bytes_per_s * 1e9) * 1e9
        kinds = memory_text(fit.direction, fit.src_kind, fit.dst_kind)
        what = f"{NAMES.get(fit.direction, fit.direction)}{f', {kinds}' if kinds else ''}"
        words = f"{what}: {human(fit.latency_ns, 'ns')} + bytes / {human(fit.bytes_per_s, 'B/s')}"
        dash = "dot" if fit.direction in seen else "dash"
        data.append(_line(span.tolist(), curve.tolist(), COLORS.get(fit.direction, "other"), dash, words))
        seen.add(fit.direction)
    tops = [float(points["rate"].max())]
    lines: dict[str, float] = {}
    large = set(known.loc[known["bytes"] >= bandwidth.LARGE, "direction"]) | {"HtoD", "DtoH"}
    for name in drawn:
        if name in limits and name in large and limits[name][1] not in lines:
            peak, what = limits[name]
            lines[what] = peak
            tops.append(peak)
            text = f"{what}, {human(peak, 'B/s')}"
            line = _line([float(span[0]), float(span[-1])], [peak, peak], COLORS.get(name, "other"), "solid", text)
            data.append(line | {"mode": "lines+text", "text": [text, ""], "textposition": "top right"})
    fastest = points.iloc[int(points["rate"].to_numpy().argmax())]
    return FigureSection(
        id="bandwidth",
        title=title,
        subtitle="area: time; dashed: fitted latency and rate" if seen else "area: time",
        span=7,
        height=400,
        table="copies",
        figure=F.figure(
            data,
            x=F.axis("copy size", **F.sizes(low, high), range=[float(np.log10(span[0])), float(np.log10(span[-1]))]),
            y=F.axis("bandwidth", **F.decades(float(points["rate"].min()), max(tops), "B/s")),
            margin={"l": 78, "r": 14, "t": 10, "b": 46},
            showlegend=True,
        ),
        summary=f"The fastest copies are {NAMES[str(fastest['direction'])].lower()}, {human(float(fastest['rate']), 'B/s')}.",
    )


def _markers(name: str, mine: pd.DataFrame, longest: float, *, keyed: bool) -> F.Plain:
    area = np.maximum(6.0, 26.0 * np.sqrt(mine["time"].to_numpy() / longest))
    trace: F.Plain = {
        "type": "scatter", "mode": "markers", "name": NAMES[name], "x": mine["size"].tolist(), "y": mine["rate"].tolist(),
        "marker": {"symbol": F.symbol(name), "size": area.tolist(), "color": F.light(COLORS.get(name, "other")), "opacity": 0.8,
                   "line": {"width": 0.8, "color": F.light("surface")}},
        "hovertext": [f"{_copies(int(n))} of {human(s, 'B')}<br>{human(r, 'B/s')}, {human(t, 'ns')} in all"
                      for n, s, r, t in zip(mine["count"], mine["size"], mine["rate"], mine["time"], strict=True)],
        "hovertemplate": f"<b>{NAMES[name]}</b><br>%{{hovertext}}<extra></extra>",
    }  # fmt: skip
    return trace | ({"customdata": [name] * len(mine)} if keyed else {})


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{human(count, 'count')} copies"


def _line(x: list[float], y: list[float], color: str, dash: str, name: str) -> F.Plain:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "hoverinfo": "name", "showlegend": False,
        "textfont": {"size": 11, "color": F.light("ink-2")},
        "line": {"color": F.light(color), "width": 1.6 if dash == "solid" else 1.2, "dash": dash},
    }  # fmt: skip


def _points(known: pd.DataFrame) -> pd.DataFrame:
    """Copies of nearly equal size and rate as one point: quarters of a power of two by sixteenths of a decade."""
    size, time = known["bytes"].to_numpy(np.float64), known["duration_ns"].to_numpy(np.float64)
    direction = known["direction"].to_numpy(object)
    cell = arrays.together(direction, np.round(4 * np.log2(size)), np.round(16 * np.log10(size / time)))
    cells = int(cell.max(initial=-1)) + 1
    count, moved, took = (np.bincount(cell, w, minlength=cells) for w in (None, size, time))
    first = arrays.first_of(cell, cells)
    return pd.DataFrame({
        "direction": direction[first], "count": count, "bytes": moved, "time": took, "size": moved / count, "rate": moved / took * 1e9,
    })  # fmt: skip
