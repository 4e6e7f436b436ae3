"""Figures with one value per rank: the axis of ranks, a bar or point per rank, medians, and crosses for ranks that are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
import numpy as np

from tb_sol_plugin.metrics.ranks.comparison import Comparison
from tb_sol_plugin.metrics.ranks.job import Ranks
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.tables.arrays import Floats, Mask

P = TypeVar("P", bound=msgspec.Struct)

TITLE: Final = "Ranks beside each other"
BARS: Final = 100
"""Up to so many ranks have bars, more have points."""
FEW: Final = 24
"""Up to so many recordings without ranks have their names on the axis."""
NAMED: Final = 3
"""Outliers of a panel whose names are drawn."""


@dataclass(frozen=True, eq=False)
class RankAxis(Generic[P]):
    """The axis of ranks. x: of each rank that statistics are made of; ends: of the axis; bars: whether a rank is a bar or a point."""

    ranks: Ranks[P]
    labels: tuple[str, ...]
    x: Floats
    ends: tuple[float, float]
    bars: bool

    @property
    def length(self) -> float:
        """Of the axis, in ranks."""
        return self.ends[1] - self.ends[0]

    def layout(self, *, last: bool = True) -> F.Plain:
        """The axis itself. last: the lowest of several panels, which alone has text."""
        numbered = self.ranks.numbered
        axis = F.axis("rank" if numbered and last else "", range=list(self.ends), showticklabels=last, tickformat="d")
        if self.length < 20:
            axis["dtick"] = 1
        if not numbered:
            many = len(self.x) > FEW
            axis |= {"tickvals": [] if many else self.x.tolist(), "ticktext": [] if many else [short(n) for n in self.labels]}
        return axis

    def excluded(self, axes: F.Plain, height: float) -> list[F.Plain]:
        """Crosses where a rank has no recording, or one that cannot be compared; none where recordings are drawn by name."""
        if not self.ranks.numbered:
            return []
        why = dict.fromkeys(self.ranks.missing, "no recording in this run")
        why |= {p.rank: p.problem for p in self.ranks.excluded if p.rank is not None and p.state != "waiting" and p.rank not in why}
        shown = {w.rank for w in self.ranks.read}
        at = [r for r in sorted(why) if r not in shown]
        if not at:
            return []
        ink = F.light("ink-3")
        return [{
            "type": "scatter", "mode": "markers", "name": "left out", "x": at, "y": [height] * len(at),
            "hovertext": [f"<b>rank {r}</b><br>{F.escape(why[r])}" for r in at], "hoverinfo": "text", "showlegend": False,
            "marker": {"symbol": "x-thin", "size": 7, "color": ink, "line": {"width": 1.4, "color": ink}}, **axes,
        }]  # fmt: skip


def axis_of(compared: Comparison[P]) -> RankAxis[P]:
    """The axis of compared ranks: their numbers, or their order where a recording has no rank.

    It ends at the last rank of the job where that is known, so that it stays the same while ranks are being read.
    """
    ranks = compared.ranks
    own = [w.rank for w, counts in zip(ranks.read, ranks.counts.tolist(), strict=True) if counts]
    x = np.array(own if ranks.numbered else range(len(own)), np.float64)
    known = ranks.world_size is not None and ranks.numbered
    low, high = (0.0, float(ranks.world_size or 1) - 1.0) if known else (float(x.min()), float(x.max()))
    pad = max((high - low) * 0.015, 0.5)
    return RankAxis(ranks, compared.labels, x, (low - pad, high + pad), max(len(x), ranks.total) <= BARS)


def marks(
    axis: RankAxis[P], values: Floats, *, outliers: Mask, hover: Sequence[str], keys: Sequence[str], name: str, token: str,
    width: float, symbol: str = "", axes: F.Plain | None = None,
) -> F.Plain:  # fmt: skip
    """A bar or point per rank whose value is known. Outliers have a thicker edge.

    values, outliers, hover (HTML), keys (of rows of the table) are by rank of the axis. token: color. width: of a bar, in ranks.
    """
    known = np.flatnonzero(np.isfinite(values)).tolist()
    marker = F.fill(token)
    edge = marker["line"] if isinstance(marker["line"], dict) else {}
    thin = edge.get("width", 0.8) if axis.bars else 0
    marker["line"] = {
        "width": [1.8 if outliers[i] else thin for i in known],
        "color": [F.light("ink") if outliers[i] else edge.get("color") for i in known],
    }
    trace: F.Plain = {
        "name": name, "x": axis.x[known].tolist(), "y": values[known].tolist(), "customdata": [keys[i] for i in known],
        "hovertext": [hover[i] for i in known], "hoverinfo": "text", "marker": marker, **(axes or {}),
    }  # fmt: skip
    if axis.bars:
        return trace | {"type": "bar", "width": width}
    size = 6 if len(axis.x) <= 300 else 4
    marker |= {"opacity": 0.9, "size": [size + 4 if outliers[i] else size for i in known]} | ({"symbol": symbol} if symbol else {})
    return trace | {"type": "scatter", "mode": "markers"}


def median_line(x: Sequence[float | None], y: Sequence[float | None], ink: str, axes: F.Plain | None = None) -> F.Plain:
    """A dashed line of medians; None breaks it."""
    line: F.Plain = {"color": F.light(ink), "width": 1.2, "dash": "dash"}
    trace: F.Plain = {"type": "scatter", "mode": "lines", "x": list(x), "y": list(y), "hoverinfo": "skip", "name": "median", "line": line}
    return trace | (axes or {})


def farthest(away: Floats, outliers: Mask) -> list[int]:
    """Positions of the outliers that are named: those that are farthest away."""
    at = np.flatnonzero(outliers)
    return [int(i) for i in at[np.argsort(-away[at], kind="stable")][:NAMED]]


def name_note(axis: RankAxis[P], at: int, y: float) -> F.Plain:
    """The name of a rank above its bar or point."""
    font: F.Plain = {"size": 11, "color": F.light("ink")}
    return {"x": float(axis.x[at]), "y": y, "text": short(axis.labels[at]), "showarrow": False, "yanchor": "bottom", "font": font}


def hover_head(axis: RankAxis[P], at: int, more: str, *, outlier: bool) -> str:
    """The first line of a rank's tooltip."""
    return f"<b>{F.escape(axis.labels[at])}</b>{more}{', far from the others' if outlier else ''}"


def short(name: str) -> str:
    """A name for an axis, cut in the middle."""
    return F.escape(name if len(name) <= 14 else f"{name[:5]}…{name[-8:]}")
