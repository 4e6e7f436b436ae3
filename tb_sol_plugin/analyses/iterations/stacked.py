"""The phases of each iteration, stacked."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.analyses.iterations.figure import across, places
from tb_sol_plugin.metrics.time.iterations import NO_PHASE, PhaseTimes
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.units import human

BARS: Final = 120
STRENGTH: Final = (1.0, 0.62, 0.4, 0.26)
"""Accent of the longest phases, so that neighbours differ."""


def by_phase(frame: pd.DataFrame, found: PhaseTimes) -> FigureSection | None:
    """A bar per iteration, or per stretch where there are many: time of each outermost phase, then what is outside. None without phases."""
    if not found.names:
        return None
    keep = np.flatnonzero(~frame["first"].to_numpy()) if (~frame["first"]).any() else np.arange(len(frame))
    begun = np.flatnonzero(np.diff(frame["segment"].to_numpy()[keep]) != 0) + 1
    even = np.linspace(0, len(keep), min(BARS, len(keep)) + 1).astype(np.int64)
    edges = np.unique(np.concatenate((even, begun[:BARS])))
    size = np.diff(edges)
    time = frame["time_ns"].to_numpy()[keep]
    number, place = frame["number"].to_numpy()[keep], places(frame)[keep]
    slowest = [keep[a + int(np.nanargmax(time[a:b]))] for a, b in pairwise(edges.tolist())]
    keys = [frame["id"].iat[int(r)] for r in slowest]
    names = list(found.names[: len(STRENGTH)])
    rows = [found.times[i][keep] for i in range(len(names))]
    if len(found.names) > len(names):
        names.append(f"{len(found.names) - len(names)} other phases")
        rows.append(found.times[len(STRENGTH) :].sum(axis=0)[keep])
    inside = found.times.sum(axis=0)[keep]
    rest = np.clip(time - inside, 0.0, None)
    middle = [np.add.reduceat(values, edges[:-1]) / size for values in (*rows, rest)]
    whole = np.sum(middle, axis=0)
    factor, unit = F.time_scale(float(whole.max()) if len(whole) else 1.0)
    spans = [_span(int(number[a]), int(number[b - 1])) for a, b in pairwise(edges.tolist())]
    many = bool((size > 1).any())
    x: list[object] = [float(place[a] + place[b - 1]) / 2 for a, b in pairwise(edges.tolist())]
    width = [float(place[b - 1] - place[a] + 1) * 0.86 for a, b in pairwise(edges.tolist())]
    data: list[F.Plain] = []
    for i, (name, values) in enumerate(zip([*names, NO_PHASE], middle, strict=True)):
        if not values.any():
            continue
        last = name == NO_PHASE
        marker: F.Plain = F.fill("line-strong" if last else "host" if i >= len(STRENGTH) else "accent")
        marker["line"] = {"width": 0}
        if not last and i < len(STRENGTH):
            marker["opacity"] = STRENGTH[i]
        safe = name.replace("&", "&amp;").replace("<", "&lt;")
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": x,
                "y": (values / factor).tolist(),
                "width": width,
                "marker": marker,
                "customdata": keys,
                "hoverinfo": "text",
                "hovertext": _hover(safe, spans, values, whole, size),
            }
        )
    sums = [(float(values.sum()), name) for name, values in zip([*names, NO_PHASE], middle, strict=True)]
    told = ", ".join(f"{name} {human(value / float(whole.sum()), 'ratio')}" for value, name in sorted(sums, reverse=True)[:4] if value > 0)
    first = "" if len(keep) == len(frame) else "; without the first iteration"
    stretch = (
        f"; a bar is the average of about {human(round(len(keep) / len(size)), 'count')} iterations, a click selects the longest"
        if many
        else ""
    )
    return FigureSection(
        id="phases",
        title="Phases over iterations",
        subtitle=f"{'device' if found.on_device else 'host'} time of the outermost phases{first}{stretch}",
        figure=F.figure(
            data,
            x=across(frame, places(frame), gridcolor="rgba(0,0,0,0)"),
            y=F.axis(unit),
            barmode="stack",
            bargap=0,
            showlegend=True,
            margin={"l": 62, "r": 14, "t": 12, "b": 46},
        ),
        summary=f"Share of step time: {told}.",
        table="iterations",
        span=8,
        height=320,
    )


def _span(low: int, high: int) -> str:
    return f"iteration {human(low, 'count')}" if low == high else f"iterations {human(low, 'count')}–{human(high, 'count')}"


def _hover(
    name: str, spans: list[str], values: npt.NDArray[np.float64], whole: npt.NDArray[np.float64], size: npt.NDArray[np.int64]
) -> list[str]:
    rows = zip(spans, values.tolist(), whole.tolist(), size.tolist(), strict=True)
    return [
        f"<b>{name}</b>, {span}<br>{human(v, 'ns')}{' on average' if n > 1 else ''}, {human(v / w if w else None, 'ratio')}"
        for span, v, w, n in rows
    ]
