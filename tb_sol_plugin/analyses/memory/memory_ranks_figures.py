"""Ranks side by side: memory in use as a bar, reserved memory behind it, medians and the memory of the device as lines."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.analyses.memory.memory_ranks_tables import MEASURES, MemoryOfRanks, RankPart, staged
from tb_sol_plugin.metrics.ranks.sections import TITLE, RankAxis, axis_of, farthest, hover_head, marks, median_line, name_note
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.tables.arrays import Floats
from tb_sol_plugin.units import human, scale_of

HEIGHT: Final = 260
CLOSE: Final = 3.0
"""The memory of the device is a line where it is not more than so many times the largest value."""


def strip(ranks: MemoryOfRanks) -> FigureSection:
    """One bar or point per rank."""
    measure, values = ranks.measure, _over_groups(ranks)
    known = np.isfinite(values)
    if not known.any():
        summary = f"The {measure.label} is not known for any rank."
        return FigureSection(id="ranks_figure", title=TITLE, figure=F.figure([]), summary=summary, height=120, table="ranks")
    axis = axis_of(ranks)
    peak = measure == MEASURES["peak"]
    reserved = _over_groups(ranks, "reserved") if peak else np.full(len(values), np.nan)
    top = float(np.nanmax(np.r_[values[known], reserved[np.isfinite(reserved)]]))
    low = min(float(values[known].min()), 0.0)
    scale, unit = scale_of(max(top, -low, 1.0), "B")
    data = _reserved(axis, reserved / scale) + _front(ranks, axis, values, reserved, scale)
    data += _medians(ranks, axis, scale) + axis.excluded({}, 0.04 * top / scale)
    shapes, notes, high = _device(ranks, top, scale)
    away = np.abs(values - np.nanmedian(values))
    notes += [name_note(axis, i, float(values[i]) / scale) for i in farthest(away, ranks.outliers[ranks.counts])]
    over = 1.14 * max(high, top) / scale
    drawn = F.figure(
        data, x=axis.layout(), y=F.axis(unit, range=[0 if axis.bars and low >= 0 else (low / scale) * 1.1 - 0.06 * over, over]),
        shapes=shapes, annotations=notes, margin={"l": 64, "r": 18, "t": 18, "b": 46}, bargap=0, barmode="overlay", showlegend=False,
    )  # fmt: skip
    words = "in use at most; behind it, paler, held by the allocator" if peak else measure.label
    return FigureSection(
        id="ranks_figure", title=TITLE, figure=drawn, summary=_summary(ranks), table="ranks", height=HEIGHT,
        subtitle=f"{words}; lines are the medians{' of the stages' if staged(ranks) else ''}",
    )  # fmt: skip


def _over_groups(ranks: MemoryOfRanks, column: str = "") -> Floats:
    """A value per rank: each rank is in one group."""
    return ranks.counted(column)[ranks.counts]


def _width(axis: RankAxis[RankPart]) -> float:
    return min(0.72, 0.045 * axis.length) if axis.length > 16 else 0.62


def _reserved(axis: RankAxis[RankPart], values: Floats) -> list[F.Plain]:
    """What the allocator holds, behind what is in use."""
    there = np.isfinite(values)
    if not there.any():
        return []
    base: F.Plain = {"x": axis.x[there].tolist(), "y": values[there].tolist(), "hoverinfo": "skip", "name": "held by the allocator"}
    if axis.bars:
        look: F.Plain = {"color": F.light("compute") + "2E", "line": {"width": 0.8, "color": F.light("compute")}}
        return [base | {"type": "bar", "width": _width(axis), "marker": look}]
    dash: F.Plain = {"symbol": "line-ew", "size": 6, "line": {"width": 1.2, "color": F.light("ink-3")}}
    return [base | {"type": "scatter", "mode": "markers", "marker": dash}]


def _front(ranks: MemoryOfRanks, axis: RankAxis[RankPart], values: Floats, reserved: Floats, scale: float) -> list[F.Plain]:
    counted = ranks.frame[ranks.counts]
    outliers = ranks.outliers[ranks.counts]
    hover = []
    for i, stage in enumerate(counted["stage"].tolist()):
        lines = [hover_head(axis, i, f", {stage}" if stage else "", outlier=bool(outliers[i]))]
        lines.append(f"{ranks.measure.label}: {human(float(values[i]), 'B')}")
        if np.isfinite(reserved[i]):
            lines.append(f"held by the allocator: {human(float(reserved[i]), 'B')}")
        hover.append("<br>".join(lines))
    keys = [ranks.ranks.read[at].worker for at in counted["at"].tolist()]
    return [marks(
        axis, values / scale, outliers=outliers, hover=hover, keys=keys, name=ranks.measure.label, token="compute", width=_width(axis),
    )]  # fmt: skip


def _medians(ranks: MemoryOfRanks, axis: RankAxis[RankPart], scale: float) -> list[F.Plain]:
    """A dashed line over the ranks of each stage; where these are not adjacent, a piece over each run of them."""
    x: list[float | None] = []
    y: list[float | None] = []
    order = np.argsort(axis.x, kind="stable")
    group = ranks.group[ranks.counts][order]
    for stage, middle in enumerate(ranks.spread()["median"].tolist()):
        if middle != middle:
            continue
        at = np.flatnonzero(np.diff(np.r_[False, group == stage, False].astype(np.int8)))
        for first, last in zip(at[::2].tolist(), at[1::2].tolist(), strict=True):
            x += [float(axis.x[order[first]]) - 0.5, float(axis.x[order[last - 1]]) + 0.5, None]
            y += [middle / scale, middle / scale, None]
    return [median_line(x, y, "ink-2")] if x else []


def _device(ranks: MemoryOfRanks, top: float, scale: float) -> tuple[list[F.Plain], list[F.Plain], float]:
    """(shapes, annotations, highest value): the memory of the device, where all ranks have the same and it is near."""
    capacity = ranks.counted("capacity")
    sizes = {int(c) for c in capacity[np.isfinite(capacity)].tolist()}
    if len(sizes) != 1 or ranks.measure.column not in ("peak", "reserved", "end", "before"):
        return [], [], 0.0
    (size,) = sizes
    note: F.Plain = {"xref": "paper", "x": 1, "xanchor": "right", "yanchor": "bottom", "showarrow": False, "font": {"size": 12}}
    if size > CLOSE * top:
        text = f"{human(size, 'B')} on each device, {size / max(top, 1):,.0f}× the largest"
        return [], [note | {"yref": "paper", "y": 1, "text": text, "font": {"size": 12, "color": F.light("ink-3")}}], 0.0
    line: F.Plain = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": size / scale, "y1": size / scale}
    text = f"<b>memory of the device, {human(size, 'B')}</b>"
    return [line | {"line": {"color": F.light("ink-2"), "width": 1.6}}], [note | {"y": size / scale, "text": text}], float(size)


def _summary(ranks: MemoryOfRanks) -> str:
    parts = []
    for stage in ranks.groups:
        found = ranks.spread_of(stage)
        if found.known:
            where = f"{stage}: " if staged(ranks) else ""
            parts.append(f"{where}median {human(found.median, 'B')}, highest {human(found.most, 'B')} ({found.most_rank})")
    label = ranks.measure.label
    return f"{label[0].upper()}{label[1:]} of {ranks.ranks.compared} ranks. " + "; ".join(parts) + "."
