"""Places for the words in the chart: no two overlap, none leaves the chart, and marks stay in sight where they can.

Positions are worked out for a narrow chart; in a wider one the words are only further apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import cos, radians, sin
from typing import Final, Literal, NamedTuple

import numpy as np

from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.tables.arrays import Floats

CHAR_PX: Final = 5.9
LINE_PX: Final = 15.0
WIDTH_PX: Final = 540.0
"""Width of the plot that positions are worked out for: the narrowest in which the words of the chart are shown in full."""
LINE_WEIGHT: Final = 2.0
"""A line through a text disturbs more than a mark behind it."""
LITTLE: Final = 60.0
"""px² of marks and lines behind a text that do not disturb."""


class Box(NamedTuple):
    """A rectangle in px from the lower left corner of the chart."""

    left: float
    bottom: float
    right: float
    top: float

    def meets(self, other: Box) -> bool:
        return self.left < other.right and other.left < self.right and self.bottom < other.top and other.bottom < self.top

    def shared(self, others: Floats) -> float:
        """Area in common with `others`, px²; one row per rectangle, its weight behind its sides."""
        wide = np.minimum(self.right, others[:, 2]) - np.maximum(self.left, others[:, 0])
        high = np.minimum(self.top, others[:, 3]) - np.maximum(self.bottom, others[:, 1])
        return float((wide.clip(min=0.0) * high.clip(min=0.0) * others[:, 4]).sum())


class Canvas(NamedTuple):
    """Both axes as powers of ten, and the height in px."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """px of a point given in powers of ten."""
        return (
            (x - self.x[0]) / (self.x[1] - self.x[0]) * WIDTH_PX,
            (y - self.y[0]) / (self.y[1] - self.y[0]) * self.height,
        )


class Spot(NamedTuple):
    """A possible place: a point in powers of ten, how the text hangs on it, shift in px (up is positive), angle in degrees."""

    x: float
    y: float
    xanchor: Literal["left", "center", "right"] = "left"
    yanchor: Literal["bottom", "middle", "top"] = "bottom"
    right_px: float = 0.0
    up_px: float = 0.0
    angle: float = 0.0


class Label(NamedTuple):
    """A text and where it may stand, best place first. most: cost (px² of marks and lines behind it) above which it is left out."""

    text: str
    color: str
    spots: Sequence[Spot]
    most: float = 900.0


def placed(labels: Sequence[Label], canvas: Canvas, marks: Sequence[Box], lines: Sequence[Box]) -> list[fig.Plain]:
    """Plotly annotations of the labels that found a place, in order of importance as given."""
    behind = np.array([*((*box, 1.0) for box in marks), *((*box, LINE_WEIGHT) for box in lines)], np.float64).reshape(-1, 5)
    taken: list[Box] = []
    out: list[fig.Plain] = []
    for label in labels:
        best: tuple[float, Spot, list[Box]] | None = None
        for spot in label.spots:
            boxes = boxes_of(label.text, spot, canvas)
            if any(not _inside(box, canvas) or any(box.meets(other) for other in taken) for box in boxes):
                continue
            cost = sum(box.shared(behind) for box in boxes)
            if best is None or cost < best[0] - 1.0:
                best = (cost, spot, boxes)
            if cost <= LITTLE:
                break
        if best is not None and best[0] <= label.most:
            taken += best[2]
            out.append(_annotation(label, best[1]))
    return out


def boxes_of(text: str, spot: Spot, canvas: Canvas) -> list[Box]:
    """What the text covers, px; a turned text as a chain of squares that overlap by half."""
    wide = len(text) * CHAR_PX
    x, y = canvas.at(spot.x, spot.y)
    x, y = x + spot.right_px, y + spot.up_px
    if not spot.angle:
        left = x - {"left": 0.0, "center": wide / 2, "right": wide}[spot.xanchor]
        bottom = y - {"bottom": 0.0, "middle": LINE_PX / 2, "top": LINE_PX}[spot.yanchor]
        return [Box(left, bottom, left + wide, bottom + LINE_PX)]
    count = max(round(2.0 * wide / LINE_PX), 1)
    turn = radians(spot.angle)
    half = LINE_PX / 2
    steps = [(i + 0.5 - count / 2) * wide / count for i in range(count)]
    middle = y + {"bottom": half, "middle": 0.0, "top": -half}[spot.yanchor]
    middles = [(x + step * cos(turn), middle + step * sin(turn)) for step in steps]
    return [Box(cx - half, cy - half, cx + half, cy + half) for cx, cy in middles]


def _inside(box: Box, canvas: Canvas) -> bool:
    return box.left >= -2 and box.right <= WIDTH_PX + 2 and box.bottom >= -2 and box.top <= canvas.height + 4


def _annotation(label: Label, spot: Spot) -> fig.Plain:
    note: fig.Plain = {
        "x": spot.x, "y": spot.y, "text": label.text, "showarrow": False, "xanchor": spot.xanchor, "yanchor": spot.yanchor,
        "font": {"size": 11.5, "color": fig.light(label.color)}, "borderpad": 0,
    }  # fmt: skip
    shift = {"xshift": spot.right_px, "yshift": spot.up_px, "textangle": -spot.angle}
    return note | {name: round(value, 2) for name, value in shift.items() if value}
