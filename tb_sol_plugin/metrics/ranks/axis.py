"""The axis of a figure that has the workers of a run side by side: at their ranks, or by name where one has none."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec
import numpy as np

from tb_sol_plugin.metrics.ranks.peers import Crew
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.tables.arrays import Floats

P = TypeVar("P", bound=msgspec.Struct)

BARS: Final = 100
"""Up to so many ranks have bars, more have points."""
FEW: Final = 24
"""Up to so many workers without ranks have their names on the axis."""


def by_rank(found: Crew[P]) -> bool:
    """Whether ranks stand on the axis, and not the names of workers."""
    return all(w.rank is not None for w in found.read)


def places(found: Crew[P]) -> Floats:
    """Where the counting workers stand on the axis: at their ranks, or in their order where one has none."""
    own = [w.rank for w in found.read if w.worker in found.counting]
    return np.array(own if by_rank(found) else range(len(own)), np.float64)


def ends(place: Floats, found: Crew[P]) -> tuple[float, float]:
    """The ends of the axis: of all ranks of the job where that is known, so that it stays while they are being read."""
    known = found.world is not None and by_rank(found)
    low, high = (0.0, float(found.world or 1) - 1.0) if known else (float(place.min()), float(place.max()))
    pad = max((high - low) * 0.015, 0.5)
    return low - pad, high + pad


def across(found: Crew[P], labels: tuple[str, ...], place: Floats, limits: tuple[float, float], *, last: bool = True) -> F.Plain:
    """The axis itself. labels: what a reader calls the counting workers. last: of several below each other the one with text."""
    ranked = by_rank(found)
    axis = F.axis("rank" if ranked and last else "", range=list(limits), showticklabels=last, tickformat="d")
    if limits[1] - limits[0] < 20:
        axis["dtick"] = 1
    if not ranked:
        many = len(place) > FEW
        axis |= {"tickvals": [] if many else place.tolist(), "ticktext": [] if many else [short(n) for n in labels]}
    return axis


def absent(found: Crew[P], axes: F.Plain, height: float) -> list[F.Plain]:
    """Crosses where a rank has no recording, or one that cannot be compared; nothing where workers stand by name."""
    if not by_rank(found):
        return []
    why = dict.fromkeys(found.missing, "no recording in this run")
    why |= {p.rank: p.problem for p in found.without if p.rank is not None and p.state != "waiting" and p.rank not in why}
    shown = {w.rank for w in found.read}
    at = [r for r in sorted(why) if r not in shown]
    if not at:
        return []
    return [{
        "type": "scatter", "mode": "markers", "name": "left out", "x": at, "y": [height] * len(at),
        "hovertext": [f"<b>rank {r}</b><br>{escaped(why[r])}" for r in at], "hoverinfo": "text", "showlegend": False,
        "marker": {"symbol": "x-thin", "size": 7, "color": F.light("ink-3"), "line": {"width": 1.4, "color": F.light("ink-3")}}, **axes,
    }]  # fmt: skip


def short(name: str) -> str:
    """A name for an axis, cut in the middle."""
    return escaped(name if len(name) <= 14 else f"{name[:5]}…{name[-8:]}")


def escaped(name: str) -> str:
    """A worker's name is any file's name: nothing in it is markup."""
    return name.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
