"""The ranks beside each other: one panel per direction, a bar or point per rank, the median as a line."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.analyses.copies.memcpy_ranks_tables import MEASURES, RankPart, Ranks, times_text
from tb_sol_plugin.metrics.copies.records import COLORS, NAMES
from tb_sol_plugin.metrics.ranks import peers
from tb_sol_plugin.metrics.ranks.axis import BARS, absent, across, escaped, places, short
from tb_sol_plugin.metrics.ranks.axis import ends as ends_of
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.units import human, scale_of

PANELS: Final = 5
PANEL_PX: Final = 92
GAP_PX: Final = 34
"""Between panels, where the title of the next one stands."""
TOP_PX: Final = 26
BOTTOM_PX: Final = 46
NAMED: Final = 3
"""Ranks of a panel whose names stand beside their points."""


def panels(ranks: Ranks, found: peers.Crew[RankPart], what: str) -> FigureSection:
    """The compared value of every rank, largest directions first, and no more than five."""
    measure = MEASURES[what]
    place = places(found)
    sums = {d: float(np.nansum(ranks.values(d, what))) for d in ranks.directions}
    shown = [d for d in ranks.directions if d in sorted(sums, key=lambda d: -sums[d])[:PANELS] and np.isfinite(ranks.values(d, what)).any()]
    if not shown:
        summary = f"The {measure.words} is not known for any rank."
        return FigureSection(id="panels", title="Ranks beside each other", figure=F.figure([]), summary=summary, height=120, table="ranks")
    data: list[F.Plain] = []
    layout: F.Plain = {}
    notes: list[F.Plain] = []
    ends = ends_of(place, found)
    bars = max(len(place), found.total) <= BARS
    room = PANEL_PX * len(shown) + GAP_PX * (len(shown) - 1)
    gap, high = GAP_PX / room, PANEL_PX / room
    for at, direction in enumerate(shown):
        n = "" if at == 0 else str(at + 1)
        values = ranks.values(direction, what)
        factor, unit = F.time_scale(np.nanmax(values)) if measure.unit == "ns" else scale_of(float(np.nanmax(values)), measure.unit)
        top = 1 - at * (high + gap)
        last = at == len(shown) - 1
        layout[f"xaxis{n}"] = across(found, ranks.labels, place, ends, last=last) | {"anchor": f"y{n}"} | ({"matches": "x"} if n else {})
        peak = float(np.nanmax(values)) / factor
        layout[f"yaxis{n}"] = F.axis(
            unit, domain=[max(top - high, 0.0), top], anchor=f"x{n}", range=[0 if bars else -0.06 * peak, 1.25 * peak or 1], nticks=4
        )
        axes: F.Plain = {"xaxis": f"x{n}", "yaxis": f"y{n}"} if n else {}
        data += _panel(ranks, direction, what, place, values / factor, ends, axes, factor, bars=bars)
        data += absent(found, axes, 0.06 * peak)
        notes.append({
            "xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left", "yanchor": "bottom", "showarrow": False,
            "text": f"<b>{NAMES[direction]}</b>{_said(ranks, direction, what)}", "font": {"size": 12, "color": F.light("ink-2")},
        })  # fmt: skip
        notes += _names(ranks, direction, what, place, values / factor, n)
    figure = F.figure(data, annotations=notes, margin={"l": 64, "r": 18, "t": TOP_PX, "b": BOTTOM_PX}, bargap=0)
    plain = figure["layout"]
    assert isinstance(plain, dict)
    plain |= layout
    return FigureSection(
        id="panels",
        title="Ranks beside each other",
        subtitle=f"{measure.words}; the line is the median of the ranks",
        figure=figure,
        summary=_summary(ranks, shown, what),
        table="ranks",
        height=TOP_PX + BOTTOM_PX + room,
    )


def _panel(
    ranks: Ranks, direction: str, what: str, place: np.ndarray, values: np.ndarray, ends: tuple[float, float], axes: F.Plain,
    factor: float, *, bars: bool,
) -> list[F.Plain]:  # fmt: skip
    measure = MEASURES[what]
    token = COLORS.get(direction, "other")
    known = np.flatnonzero(np.isfinite(values))
    far = peers.far(ranks.values(direction, what), measure.least)
    held = ranks.matrix["count"][ranks.directions.index(direction)] > 0
    keys = [f"{ranks.counting[i]}|{direction}" if held[i] else "" for i in known.tolist()]
    amount = [human(float(v) * factor, measure.unit) if h else "no copy in this direction" for v, h in zip(values, held, strict=True)]
    marks = [", far from the others" if yes else "" for yes in far.tolist()]
    hover = [f"<b>{escaped(ranks.labels[i])}</b>{marks[i]}<br>{NAMES[direction]}: {amount[i]}" for i in known.tolist()]
    median = ranks.spread(direction, what).median
    median = None if median is None else median / factor
    line: F.Plain = {
        "type": "scatter", "mode": "lines", "x": list(ends), "y": [median, median], "hoverinfo": "skip", "name": "median",
        "line": {"color": F.light("ink-3"), "width": 1.2, "dash": "dash"}, **axes,
    }  # fmt: skip
    marker = F.fill(token)
    edge = marker["line"] if isinstance(marker["line"], dict) else {}
    width = edge.get("width", 0.8) if bars else 0
    marker["line"] = {
        "width": [1.8 if far[i] else width for i in known.tolist()],
        "color": [F.light("ink") if far[i] else edge.get("color") for i in known.tolist()],
    }
    points: F.Plain = {
        "name": NAMES[direction], "x": place[known].tolist(), "y": values[known].tolist(), "customdata": keys, "hovertext": hover,
        "hoverinfo": "text", "marker": marker, **axes,
    }  # fmt: skip
    if bars:
        points |= {"type": "bar", "width": min(0.72, 0.045 * (ends[1] - ends[0]))}
        return [points, line]
    size = 6 if len(place) <= 300 else 4
    marker |= {"symbol": F.symbol(direction), "opacity": 0.9, "size": [size + 4 if far[i] else size for i in known.tolist()]}
    points |= {"type": "scatter", "mode": "markers"}
    return [line, points]


def _names(ranks: Ranks, direction: str, what: str, place: np.ndarray, values: np.ndarray, n: str) -> list[F.Plain]:
    """The names of the ranks that lie farthest from the others, beside their points."""
    raw = ranks.values(direction, what)
    far = np.flatnonzero(peers.far(raw, MEASURES[what].least))
    if not len(far):
        return []
    away = np.abs(raw[far] - peers.spread(raw).median)  # type: ignore[operator]
    chosen = far[np.argsort(-away, kind="stable")][:NAMED].tolist()
    right = float(place.min()) + 0.85 * float(np.ptp(place))
    return [
        {"xref": f"x{n}", "yref": f"y{n}", "x": float(place[i]), "y": float(values[i]), "text": short(ranks.labels[i]), "showarrow": False,
         "xanchor": "right" if place[i] > right else "left", "xshift": -5 if place[i] > right else 5, "yanchor": "bottom",
         "font": {"size": 11, "color": F.light("ink")}}
        for i in chosen
    ]  # fmt: skip


def _said(ranks: Ranks, direction: str, what: str) -> str:
    """What stands behind the name of a panel: the median and how far the largest lies above it."""
    found, measure = ranks.spread(direction, what), MEASURES[what]
    if what == "bandwidth":
        times = found.median / found.least if found.median is not None and found.least else None
        return f"  median {human(found.median, 'B/s')}" + (f", slowest 1/{times:.2f} of it" if times is not None and times > 1.005 else "")
    more = f", largest {times_text(found.imbalance)} times" if found.imbalance is not None and found.imbalance > 1.005 else ""
    return f"  median {human(None if found.median is None else round(found.median), measure.unit)}{more}"


def _summary(ranks: Ranks, shown: list[str], what: str) -> str:
    measure, parts = MEASURES[what], []
    for direction in shown:
        found = ranks.spread(direction, what)
        at = found.least_at if what == "bandwidth" else found.most_at
        edge = found.least if what == "bandwidth" else found.most
        side = "lowest" if what == "bandwidth" else "highest"
        median, reached = human(found.median, measure.unit), human(edge, measure.unit)
        parts.append(f"{NAMES[direction].lower()}: median {median}, {side} {reached} ({ranks.name_at(at)})")
    return f"{measure.words[0].upper()}{measure.words[1:]} of {len(ranks.counting)} ranks. " + "; ".join(parts) + "."
