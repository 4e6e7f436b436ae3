"""The ranks beside each other: what each uses at most as a bar, what its allocator holds behind it, medians and the device as lines."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.analyses.memory.memory_ranks_tables import MEASURES, RankPart, Ranks
from tb_sol_plugin.metrics.ranks import peers
from tb_sol_plugin.metrics.ranks.axis import BARS, absent, across, ends, escaped, places, short
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.units import human, scale_of

HEIGHT: Final = 260
CLOSE: Final = 3.0
"""The memory of the device is a line where it is not more than so many times the largest value."""
NAMED: Final = 3
"""Ranks far from the others whose names stand in the figure."""


def strip(ranks: Ranks, found: peers.Crew[RankPart], what: str) -> FigureSection:
    """One bar or point per rank."""
    measure = MEASURES[what]
    title, known = "Ranks beside each other", np.isfinite(ranks.values)
    if not known.any():
        said = f"The {measure.words} is not known for any rank."
        return FigureSection(id="ranks_figure", title=title, figure=F.figure([]), summary=said, height=120, table="ranks")
    place = places(found)
    limits = ends(place, found)
    behind = ranks.of("reserved") if what == "peak" else np.full(len(place), np.nan)
    top = float(np.nanmax(np.r_[ranks.values[known], behind[np.isfinite(behind)]]))
    low = min(float(ranks.values[known].min()), 0.0)
    scale, unit = scale_of(max(top, -low, 1.0), "B")
    bars = max(len(place), found.total) <= BARS
    data = _behind(place, behind / scale, limits, bars=bars) + _front(ranks, place, behind, scale, what, limits, bars=bars)
    data += _medians(ranks, place, scale) + absent(found, {}, 0.04 * top / scale)
    shapes, notes, high = _device(ranks, top, scale, what)
    notes += _names(ranks, place, scale)
    over = 1.14 * max(high, top) / scale
    drawn = F.figure(
        data,
        x=across(found, ranks.labels, place, limits),
        y=F.axis(unit, range=[0 if bars and low >= 0 else (low / scale) * 1.1 - 0.06 * over, over]),
        shapes=shapes, annotations=notes, margin={"l": 64, "r": 18, "t": 18, "b": 46}, bargap=0, barmode="overlay", showlegend=False,
    )  # fmt: skip
    words = "in use at most; behind it, paler, held by the allocator" if what == "peak" else measure.words
    return FigureSection(
        id="ranks_figure", title=title, figure=drawn, summary=_summary(ranks, what), table="ranks", height=HEIGHT,
        subtitle=f"{words}; lines are the medians{' of the stages' if ranks.staged else ''}",
    )  # fmt: skip


def _width(limits: tuple[float, float]) -> float:
    return min(0.72, 0.045 * (limits[1] - limits[0])) if limits[1] - limits[0] > 16 else 0.62


def _behind(place: np.ndarray, values: np.ndarray, limits: tuple[float, float], *, bars: bool) -> list[F.Plain]:
    """What the allocator holds."""
    there = np.isfinite(values)
    if not there.any():
        return []
    base: F.Plain = {"x": place[there].tolist(), "y": values[there].tolist(), "hoverinfo": "skip", "name": "held by the allocator"}
    if bars:
        look: F.Plain = {"color": F.light("compute") + "2E", "line": {"width": 0.8, "color": F.light("compute")}}
        return [base | {"type": "bar", "width": _width(limits), "marker": look}]
    dash: F.Plain = {"symbol": "line-ew", "size": 6, "line": {"width": 1.2, "color": F.light("ink-3")}}
    return [base | {"type": "scatter", "mode": "markers", "marker": dash}]


def _front(
    ranks: Ranks, place: np.ndarray, behind: np.ndarray, scale: float, what: str, limits: tuple[float, float], *, bars: bool
) -> list[F.Plain]:
    known = np.flatnonzero(np.isfinite(ranks.values))
    rows = ranks.rows.iloc[list(ranks.counting)]
    workers, stages = rows["worker"].tolist(), rows["stage"].tolist()
    far = [ranks.far[ranks.counting[i]] for i in known.tolist()]
    hover = []
    for i, away in zip(known.tolist(), far, strict=True):
        lines = [f"<b>{escaped(ranks.labels[i])}</b>" + (f", {stages[i]}" if stages[i] else "") + (", far from the others" if away else "")]
        lines.append(f"{MEASURES[what].words}: {human(float(ranks.values[i]), 'B')}")
        if np.isfinite(behind[i]):
            lines.append(f"held by the allocator: {human(float(behind[i]), 'B')}")
        hover.append("<br>".join(lines))
    marker: F.Plain = {
        "color": F.light("compute"),
        "line": {"width": [1.8 if a else 0.8 if bars else 0 for a in far], "color": [F.light("ink" if a else "surface") for a in far]},
    }
    points: F.Plain = {
        "name": MEASURES[what].words, "x": place[known].tolist(), "y": (ranks.values[known] / scale).tolist(),
        "customdata": [workers[i] for i in known.tolist()], "hovertext": hover, "hoverinfo": "text", "marker": marker,
    }  # fmt: skip
    if bars:
        return [points | {"type": "bar", "width": _width(limits)}]
    size = 6 if len(place) <= 300 else 4
    marker |= {"opacity": 0.9, "size": [size + 4 if a else size for a in far]}
    return [points | {"type": "scatter", "mode": "markers"}]


def _medians(ranks: Ranks, place: np.ndarray, scale: float) -> list[F.Plain]:
    """A dashed line over the ranks of each stage; where these do not stand side by side, a piece over each run of them."""
    x: list[float | None] = []
    y: list[float | None] = []
    order = np.argsort(place, kind="stable")
    for stage in ranks.stages:
        middle = peers.spread(np.where(ranks.stage == stage, ranks.values, np.nan)).median
        if middle is None:
            continue
        own = ranks.stage[order] == stage
        at = np.flatnonzero(np.diff(np.r_[False, own, False].astype(np.int8)))
        for first, last in zip(at[::2].tolist(), at[1::2].tolist(), strict=True):
            x += [float(place[order[first]]) - 0.5, float(place[order[last - 1]]) + 0.5, None]
            y += [middle / scale, middle / scale, None]
    line: F.Plain = {"color": F.light("ink-2"), "width": 1.2, "dash": "dash"}
    return [{"type": "scatter", "mode": "lines", "x": x, "y": y, "hoverinfo": "skip", "name": "median", "line": line}] if x else []


def _device(ranks: Ranks, top: float, scale: float, what: str) -> tuple[list[F.Plain], list[F.Plain], float]:
    """(shapes, annotations, highest value): the memory of the device, where all ranks have the same and it is near."""
    sizes = {int(c) for c in ranks.of("capacity")[np.isfinite(ranks.of("capacity"))].tolist()}
    if len(sizes) != 1 or what not in ("peak", "reserved", "end", "before"):
        return [], [], 0.0
    (size,) = sizes
    note: F.Plain = {"xref": "paper", "x": 1, "xanchor": "right", "yanchor": "bottom", "showarrow": False, "font": {"size": 12}}
    if size > CLOSE * top:
        said = f"{human(size, 'B')} on each device, {size / max(top, 1):,.0f}× the largest"
        return [], [note | {"yref": "paper", "y": 1, "text": said, "font": {"size": 12, "color": F.light("ink-3")}}], 0.0
    line: F.Plain = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": size / scale, "y1": size / scale}
    text = f"<b>memory of the device, {human(size, 'B')}</b>"
    return [line | {"line": {"color": F.light("ink-2"), "width": 1.6}}], [note | {"y": size / scale, "text": text}], float(size)


def _names(ranks: Ranks, place: np.ndarray, scale: float) -> list[F.Plain]:
    """The names of the ranks that lie farthest from the others, above their points."""
    far = np.flatnonzero(np.array([ranks.far[i] for i in ranks.counting], bool))
    chosen = far[np.argsort(-np.abs(ranks.values[far] - np.nanmedian(ranks.values)), kind="stable")][:NAMED].tolist() if len(far) else []
    return [
        {"x": float(place[i]), "y": float(ranks.values[i]) / scale, "text": short(ranks.labels[i]), "showarrow": False, "yanchor": "bottom",
         "font": {"size": 11, "color": F.light("ink")}}
        for i in chosen
    ]  # fmt: skip


def _summary(ranks: Ranks, what: str) -> str:
    said = []
    for stage in ranks.stages:
        of = peers.spread(np.where(ranks.stage == stage, ranks.values, np.nan))
        if of.count:
            where = f"stage {stage}: " if stage >= 0 else ""
            said.append(f"{where}median {human(of.median, 'B')}, highest {human(of.most, 'B')} ({ranks.name_at(of.most_at)})")
    words = MEASURES[what].words
    return f"{words[0].upper()}{words[1:]} of {len(ranks.counting)} ranks. " + "; ".join(said) + "."
