"""The figure of what-if: per phase the measured time, the limit here and the limit there."""

from __future__ import annotations

from typing import Final

import pandas as pd

from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.figure import escape, light
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.units import human

MOST: Final = 10


def bars(frame: pd.DataFrame, here: str, there: str, what: str) -> FigureSection:
    """Horizontal bars: measured, limit here and, where something was asked, limit there. here, there: names, "" for nothing asked."""
    top = frame.head(MOST)
    names = top["name"].astype(str).tolist()
    measured = pd.to_numeric(top["measured_ns"])
    longest = float(measured.max()) if measured.notna().any() else 1.0
    for column in ("sol_ns", "sol_then_ns"):
        limits = pd.to_numeric(top[column])
        longest = max(longest, float(limits.max())) if limits.notna().any() else longest
    factor, unit = fig.time_scale(longest)
    series: list[tuple[str, str, str, float]] = [("measured", "measured_ns", "bar-ink", 1.0)] if measured.notna().any() or top.empty else []
    if pd.to_numeric(top["sol_ns"]).notna().any():
        series.append((f"limit, {here}", "sol_ns", "accent", 0.45 if there else 1.0))
    if there:
        series.append((f"limit, {there}", "sol_then_ns", "accent", 1.0))
    data: list[fig.Plain] = []
    for label, column, token, opacity in series:
        values = pd.to_numeric(top[column])
        known = values.notna().tolist()
        data.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": label,
                "y": names,
                "x": [float(v) / factor if ok else None for v, ok in zip(values, known, strict=True)],
                "customdata": names,
                "marker": {"color": light(token), "opacity": opacity, "line": {"width": 0}},
                "text": [f"{human(round(v), 'ns')}  {label}" if ok else f"no limit  {label}" for v, ok in zip(values, known, strict=True)],
                "textposition": "outside",
                "textfont": {"size": 11.5, "color": light("ink-2")},
                "cliponaxis": False,
                "hoverinfo": "text",
                "hovertext": [
                    f"<b>{escape(n)}</b><br>{escape(label)}: {human(round(v), 'ns') if ok else 'not known'}"
                    for n, v, ok in zip(names, values, known, strict=True)
                ],
            }
        )
    y = fig.axis(type="category", autorange="reversed", showgrid=False, tickfont={"family": fig.MONO, "size": 12}, automargin=True)
    x = fig.axis(unit, range=[0, longest / factor * 1.45])
    left = f", first {MOST} of {len(frame)}" if len(frame) > MOST else ""
    first = names[0] if names else ""
    summary = f"Measured time and limits {what}. The longest is {first}." if names else "No modeled work."
    return FigureSection(
        id="bars",
        title="Measured, and the least it could take",
        subtitle=f"{what}{left}; a bound, not a forecast",
        figure=fig.figure(data, x=x, y=y, barmode="group", bargap=0.32, bargroupgap=0.12, margin={"l": 120, "r": 14, "t": 10, "b": 46}),
        summary=summary,
        table="phases",
        span=8,
        height=max(180, 70 + 26 * len(series) * max(len(names), 1)),
    )
