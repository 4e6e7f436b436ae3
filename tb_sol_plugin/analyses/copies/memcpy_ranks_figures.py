"""Ranks side by side: one panel per direction, a bar or point per rank, the median as a line."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.analyses.copies.memcpy_ranks_tables import MEASURES, CopyRanks, times_text
from tb_sol_plugin.metrics.copies.records import COLORS, NAMES
from tb_sol_plugin.metrics.ranks.comparison import Spread
from tb_sol_plugin.metrics.ranks.sections import TITLE, RankAxis, axis_of, farthest, hover_head, marks, median_line, name_note
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.report import FigureSection
from tb_sol_plugin.tables.arrays import Floats
from tb_sol_plugin.units import human, scale_of

PANELS: Final = 5
PANEL_PX: Final = 92
GAP_PX: Final = 34
"""Between panels, where the title of the next one is."""
TOP_PX: Final = 26
BOTTOM_PX: Final = 46


def panels(ranks: CopyRanks) -> FigureSection:
    """The compared value of every rank, largest directions first, and no more than five."""
    measure, values = ranks.measure, ranks.matrix()
    sums = dict(zip(ranks.groups, np.nansum(values, axis=1).tolist(), strict=True))
    first = sorted(sums, key=lambda d: -sums[d])[:PANELS]
    shown = [at for at, d in enumerate(ranks.groups) if d in first and np.isfinite(values[at]).any()]
    if not shown:
        summary = f"The {measure.label} is not known for any rank."
        return FigureSection(id="panels", title=TITLE, figure=F.figure([]), summary=summary, height=120, table="ranks")
    axis = axis_of(ranks)
    data: list[F.Plain] = []
    layout: F.Plain = {}
    notes: list[F.Plain] = []
    room = PANEL_PX * len(shown) + GAP_PX * (len(shown) - 1)
    gap, high = GAP_PX / room, PANEL_PX / room
    for at, group in enumerate(shown):
        n = "" if at == 0 else str(at + 1)
        largest = float(np.nanmax(values[group]))
        factor, unit = F.time_scale(largest) if measure.unit == "ns" else scale_of(largest, measure.unit)
        top, peak = 1 - at * (high + gap), largest / factor
        layout[f"xaxis{n}"] = axis.layout(last=at == len(shown) - 1) | {"anchor": f"y{n}"} | ({"matches": "x"} if n else {})
        layout[f"yaxis{n}"] = F.axis(
            unit, domain=[max(top - high, 0.0), top], anchor=f"x{n}", range=[0 if axis.bars else -0.06 * peak, 1.25 * peak or 1], nticks=4
        )
        axes: F.Plain = {"xaxis": f"x{n}", "yaxis": f"y{n}"} if n else {}
        drawn, names = _panel(ranks, axis, group, factor, axes)
        data += drawn + axis.excluded(axes, 0.06 * peak)
        title = f"<b>{NAMES[ranks.groups[group]]}</b>{_median_text(ranks, ranks.groups[group])}"
        notes.append({
            "xref": "paper", "yref": "paper", "x": 0, "y": top, "xanchor": "left", "yanchor": "bottom", "showarrow": False,
            "text": title, "font": {"size": 12, "color": F.light("ink-2")},
        })  # fmt: skip
        notes += [note | {"xref": f"x{n}", "yref": f"y{n}"} for note in names]
    figure = F.figure(data, annotations=notes, margin={"l": 64, "r": 18, "t": TOP_PX, "b": BOTTOM_PX}, bargap=0)
    plain = figure["layout"]
    assert isinstance(plain, dict)
    plain |= layout
    return FigureSection(
        id="panels", title=TITLE, subtitle=f"{measure.label}; the line is the median of the ranks", figure=figure,
        summary=_summary(ranks, [ranks.groups[group] for group in shown]), table="ranks", height=TOP_PX + BOTTOM_PX + room,
    )  # fmt: skip


def _panel(ranks: CopyRanks, axis: RankAxis, group: int, factor: float, axes: F.Plain) -> tuple[list[F.Plain], list[F.Plain]]:  # type: ignore[type-arg]
    """(bars or points and the median, names of the outliers beside theirs) of one direction."""
    direction, raw, outliers = ranks.groups[group], ranks.matrix()[group], ranks.outlier_matrix()[group]
    copies = ranks.matrix("count")[group] > 0
    workers = [w.worker for w, counts in zip(ranks.ranks.read, ranks.ranks.counts.tolist(), strict=True) if counts]
    values, unit = raw / factor, ranks.measure.unit
    amount = [human(v * factor, unit) if some else "no copy in this direction" for v, some in zip(values.tolist(), copies, strict=True)]
    points = marks(
        axis, values, outliers=outliers, name=NAMES[direction], token=COLORS.get(direction, "other"), symbol=F.symbol(direction),
        hover=[f"{hover_head(axis, i, '', outlier=bool(outliers[i]))}<br>{NAMES[direction]}: {text}" for i, text in enumerate(amount)],
        keys=[f"{worker}|{direction}" if some else "" for worker, some in zip(workers, copies.tolist(), strict=True)],
        width=min(0.72, 0.045 * axis.length), axes=axes,
    )  # fmt: skip
    median = ranks.spread_of(direction).median
    line = median_line(axis.ends, [None if median is None else median / factor] * 2, "ink-3", axes)
    return [points, line] if axis.bars else [line, points], _names(axis, values, farthest(_away(raw), outliers))


def _away(values: Floats) -> Floats:
    """How far values are from their median."""
    return np.asarray(np.abs(values - np.nanmedian(values)), np.float64)


def _names(axis: RankAxis, values: Floats, chosen: list[int]) -> list[F.Plain]:  # type: ignore[type-arg]
    """Names of ranks beside their points, on the side where there is room."""
    right = float(axis.x.min()) + 0.85 * float(np.ptp(axis.x))
    sides: list[F.Plain] = [
        {"xanchor": "right", "xshift": -5} if float(axis.x[i]) > right else {"xanchor": "left", "xshift": 5} for i in chosen
    ]
    return [name_note(axis, i, float(values[i])) | side for i, side in zip(chosen, sides, strict=True)]


def _median_text(ranks: CopyRanks, direction: str) -> str:
    """The rest of a panel's title: the median, and how far the largest (of bandwidth the smallest) is from it."""
    found, unit = ranks.spread_of(direction), ranks.measure.unit
    if ranks.measure == MEASURES["bandwidth"]:
        times = found.median / found.least if found.median is not None and found.least else None
        return f"  median {human(found.median, 'B/s')}" + (f", slowest 1/{times:.2f} of it" if times is not None and times > 1.005 else "")
    more = f", largest {times_text(found.imbalance)} times" if found.imbalance is not None and found.imbalance > 1.005 else ""
    return f"  median {human(None if found.median is None else round(found.median), unit)}{more}"


def _summary(ranks: CopyRanks, shown: list[str]) -> str:
    unit, label = ranks.measure.unit, ranks.measure.label
    lowest = ranks.measure == MEASURES["bandwidth"]

    def text(direction: str, found: Spread) -> str:
        side, edge, rank = ("lowest", found.least, found.least_rank) if lowest else ("highest", found.most, found.most_rank)
        return f"{NAMES[direction].lower()}: median {human(found.median, unit)}, {side} {human(edge, unit)} ({rank})"

    parts = [text(direction, ranks.spread_of(direction)) for direction in shown]
    return f"{label[0].upper()}{label[1:]} of {ranks.ranks.compared} ranks. " + "; ".join(parts) + "."
