"""The ceilings of the roofline chart: which apply, their lines and ridge points, and places for their labels."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, ceil, cos, degrees, floor, log10, radians, sin
from typing import Final, Literal, NamedTuple

import numpy as np

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask
from tb_sol_plugin.units import NARROW, human, scale_of

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


class Canvas(NamedTuple):
    """Both axes as powers of ten, and the height in px."""

    x: tuple[float, float]
    y: tuple[float, float]
    height: float

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Returns px of a point given in powers of ten."""
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
    """A text and where it may stand, best place first. most: cost (px² of marks and lines behind it) above which it is left out.

    Marks behind it are no more than LITTLE unless it must be shown.
    """

    text: str
    color: str
    spots: Sequence[Spot]
    most: float = 900.0
    must: bool = False


def placed(labels: Sequence[Label], canvas: Canvas, marks: Sequence[Box], lines: Sequence[Box]) -> list[fig.Plain]:
    """Returns Plotly annotations of the labels that found a place, in order of importance as given."""
    behind, below = np.array(marks, np.float64).reshape(-1, 4), np.array(lines, np.float64).reshape(-1, 4)
    taken = np.zeros((0, 4))
    out: list[fig.Plain] = []
    for label in labels:
        boxes, place = boxes_of(label.text, label.spots, canvas)
        good = np.ones(len(label.spots), bool)
        good[place[~_inside(boxes, canvas) | (_shared(boxes, taken) > 0).any(axis=1)]] = False
        boxes, place = boxes[good[place]], place[good[place]]
        covered = np.bincount(place, _shared(boxes, behind).sum(axis=1), len(good))
        costs = covered + np.bincount(place, LINE_WEIGHT * _shared(boxes, below).sum(axis=1), len(good))
        best: tuple[float, int] | None = None
        for i in np.flatnonzero(good if label.must else good & (covered <= LITTLE)).tolist():
            cost = float(costs[i])
            if best is None or cost < best[0] - 1.0:
                best = cost, i
            if cost <= LITTLE:
                break
        if best is not None and best[0] <= label.most:
            taken = np.concatenate((taken, boxes[place == best[1]]))
            out.append(_annotation(label, label.spots[best[1]]))
    return out


def boxes_of(text: str, spots: Sequence[Spot], canvas: Canvas) -> tuple[Floats, Ints]:
    """Returns what the text covers at each place, px, as rows of sides like those of `Box`, and the place of each row.

    A turned text is a chain of squares that overlap by half.
    """
    wide, half = len(text) * CHAR_PX, LINE_PX / 2
    count = max(round(2.0 * wide / LINE_PX), 1)
    out: list[Floats] = []
    for spot in spots:
        x, y = canvas.at(spot.x, spot.y)
        x, y = x + spot.right_px, y + spot.up_px
        if not spot.angle:
            left = x - {"left": 0.0, "center": wide / 2, "right": wide}[spot.xanchor]
            bottom = y - {"bottom": 0.0, "middle": half, "top": LINE_PX}[spot.yanchor]
            out.append(np.array([[left, bottom, left + wide, bottom + LINE_PX]]))
            continue
        turn = radians(spot.angle)
        steps = (np.arange(count) + 0.5 - count / 2) * wide / count
        across = x + steps * cos(turn)
        up = y + {"bottom": half, "middle": 0.0, "top": -half}[spot.yanchor] + steps * sin(turn)
        out.append(np.stack((across - half, up - half, across + half, up + half), axis=1))
    return np.concatenate(out), np.repeat(np.arange(len(out)), [len(boxes) for boxes in out])


def _shared(boxes: Floats, others: Floats) -> Floats:
    """Returns the area that each box (row) has in common with each of the others (column), px²."""
    wide = np.minimum(boxes[:, None, 2], others[:, 2]) - np.maximum(boxes[:, None, 0], others[:, 0])
    high = np.minimum(boxes[:, None, 3], others[:, 3]) - np.maximum(boxes[:, None, 1], others[:, 1])
    area: Floats = np.maximum(wide, 0.0) * np.maximum(high, 0.0)
    return area


def _inside(boxes: Floats, canvas: Canvas) -> Mask:
    left, bottom, right, top = boxes.T
    inside: Mask = (left >= -2) & (right <= WIDTH_PX + 2) & (bottom >= -2) & (top <= canvas.height + 4)
    return inside


def _annotation(label: Label, spot: Spot) -> fig.Plain:
    note: fig.Plain = {
        "x": spot.x, "y": spot.y, "text": label.text, "showarrow": False, "xanchor": spot.xanchor, "yanchor": spot.yanchor,
        "font": {"size": 11.5, "color": fig.light(label.color)}, "borderpad": 0,
    }  # fmt: skip
    shift = {"xshift": spot.right_px, "yshift": spot.up_px, "textangle": -spot.angle}
    return note | {name: round(value, 2) for name, value in shift.items() if value}


class Roof(NamedTuple):
    """A compute ceiling in FLOP/s, with its name."""

    name: str
    peak: float


class Ceilings(NamedTuple):
    """roofs: compute ceilings, highest first; the first one leads. reach: achievable rates. bandwidth, l2: bytes/s, None unknown."""

    roofs: Sequence[Roof] = ()
    reach: Sequence[Roof] = ()
    bandwidth: float | None = None
    l2: float | None = None


def ceilings(spec: DeviceSpec | None, matrix_dtypes: Sequence[str], vector_dtypes: Sequence[str], *, l2: bool = False) -> Ceilings:
    """Returns what the work present runs against: types with matrix FLOP, types with vector FLOP."""
    if spec is None:
        return Ceilings()
    by_peak: dict[float, list[str]] = {}
    for dtype in matrix_dtypes:
        peak = spec.matrix_peak(dtype)
        if peak is not None:
            by_peak.setdefault(peak, []).append(f"{dtype} matrix" if dtype in spec.matrix else f"{dtype} vector")
    for dtype in vector_dtypes:
        peak, name = spec.vector_peak(dtype), "fp64 vector" if dtype == "fp64" else "fp32 vector"
        if peak is not None and name not in by_peak.setdefault(peak, []):
            by_peak[peak].append(name)
    roofs = sorted((Roof(_joined(names), peak) for peak, names in by_peak.items()), key=lambda roof: -roof.peak)
    reached: dict[float, list[str]] = {}
    for dtype in matrix_dtypes:
        rate = spec.achievable(dtype)
        if rate is not None:
            reached.setdefault(rate, []).append(dtype)
    reach = sorted((Roof(", ".join(names), rate) for rate, names in reached.items()), key=lambda roof: -roof.peak)
    return Ceilings(roofs, reach, spec.memory_bandwidth, spec.l2_bytes_per_s if l2 else None)


def _joined(names: Sequence[str]) -> str:
    """Returns `bf16, fp16 matrix` for two of one unit."""
    units = {name.rpartition(" ")[2] for name in names}
    if len(units) > 1:
        return ", ".join(names)
    return f"{', '.join(name.rpartition(' ')[0] for name in names)} {units.pop()}"


def powers(low: float, high: float, unit: str = "", also: float | None = None) -> fig.Plain:
    """A logarithmic axis with its decades named: 0.1, 10, 1 TFLOP/s. also: one more value, in the place of a decade too near to it."""
    values = [10.0**p for p in range(ceil(low), floor(high) + 1)]
    texts = []
    for value in values:
        factor, name = scale_of(value, unit)
        texts.append(f"{round(value / factor, 9):g}{NARROW}{name}" if unit else f"{value:,g}".replace(",", NARROW))
    if also is not None:
        near = 0.09 * (high - low)
        kept = [(v, t) for v, t in zip(values, texts, strict=True) if abs(log10(v) - log10(also)) > near]
        pairs = sorted([*kept, (also, human(also, unit))])
        values, texts = [v for v, _ in pairs], [t for _, t in pairs]
    return {"type": "log", "tickvals": values, "ticktext": texts}


def ceiling_lines(found: Ceilings, canvas: Canvas) -> list[fig.Plain]:
    """Returns roofs, memory diagonal, L2 diagonal, ridge points, and the achievable rates dashed."""
    if not found.roofs:
        return []
    left, right = 10.0 ** canvas.x[0], 10.0 ** canvas.x[1]
    lead = found.roofs[0].peak
    out: list[fig.Plain] = []
    if found.bandwidth:
        ridge = lead / found.bandwidth
        out.append(_line([ridge, ridge], [10.0 ** canvas.y[0], lead], "line-strong", 1.0, "dot"))
    for at, roof in enumerate(found.roofs):
        start = max(roof.peak / found.bandwidth, left) if found.bandwidth else left
        out.append(_line([start, right], [roof.peak] * 2, "ink-3" if at else "ink-2", 1.2 if at else 1.6))
    for slope, color, width in ((found.l2, "ink-3", 1.2), (found.bandwidth, "ink-2", 1.6)):
        if slope:
            end = lead / slope
            begin = min(left, end)
            out.append(_line([begin, end], [begin * slope, end * slope], color, width))
    for reach in found.reach:
        start = max(reach.peak / found.bandwidth, left) if found.bandwidth else left
        out.append(_line([start, right], [reach.peak] * 2, "ink-2", 1.2, "4px,3px"))
    if found.bandwidth:
        out.append(_ridge_points(found.roofs, found.bandwidth))
    return out


def _line(x: list[float], y: list[float], color: str, width: float, dash: str = "solid") -> fig.Plain:
    line = {"color": fig.light(color), "width": width, "dash": dash}
    return {"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, "hoverinfo": "skip"}


def _ridge_points(roofs: Sequence[Roof], bandwidth: float) -> fig.Plain:
    """Returns where a roof meets the memory diagonal; hover names it where its label found no place."""
    return {
        "type": "scatter", "mode": "markers", "name": "ridge", "x": [r.peak / bandwidth for r in roofs], "y": [r.peak for r in roofs],
        "marker": {"symbol": "circle", "size": 5, "color": fig.light("surface"), "line": {"width": 1.4, "color": fig.light("ink-2")}},
        "hovertext": [
            f"<b>{r.name} {human(r.peak, 'FLOP/s')}</b><br>memory bound below {ridge_text(r.peak / bandwidth)}" for r in roofs
        ],
        "hoverinfo": "text",
    }  # fmt: skip


def ridge_text(value: float) -> str:
    """Returns `295 FLOP/B`."""
    return human(value, "FLOP/B") if value < 100 else f"{value:.0f}{NARROW}FLOP/B"


def ceiling_names(found: Ceilings, canvas: Canvas) -> list[Label]:
    """Names of the ceilings with the places each may take, the most important first."""
    if not found.roofs:
        return []
    out: list[Label] = []
    right = canvas.x[1]
    lead = log10(found.roofs[0].peak)
    for at, roof in enumerate(found.roofs):
        level = log10(roof.peak)
        start = _ridge(roof, found) if found.bandwidth else canvas.x[0]
        text = f"{roof.name} {human(roof.peak, 'FLOP/s')}"
        spots = [
            Spot(right, level, "right", "bottom", 0.0, 1.0),
            Spot(right, level, "right", "bottom", 0.0, 12.0),
            Spot(right, level, "right", "top", 0.0, -1.0),
            Spot(start, level, "left", "top", 10.0, -1.0),
            *_places_by_roof(text, start, level, canvas),
        ]
        out.append(Label(text, "ink-3" if at else "ink-2", spots, most=700.0 if at else 3000.0, must=not at))
    if found.bandwidth:
        out.append(_along(f"memory {human(found.bandwidth, 'B/s')}", found.bandwidth, lead, canvas, up_px=4.0))
        if found.l2:
            out.append(_along(f"L2 {human(found.l2, 'B/s')}", found.l2, lead, canvas, up_px=4.0))
    for reach in found.reach:
        level = log10(reach.peak)
        start = level - log10(found.bandwidth) if found.bandwidth else canvas.x[0]
        which = f"{reach.name} " if len(found.reach) > 1 else ""
        text = f"{which}achievable {_rate_without_unit(reach.peak, found.roofs[0].peak)}"
        places = [
            Spot(right, level, "right", "top", 0.0, -1.0),
            Spot(right, level, "right", "bottom", 0.0, 1.0),
            Spot(start, level, "left", "top", 14.0, -1.0),
            *_places_by_roof(text, start, level, canvas),
            *(Spot(start, level, "right", "middle", -8.0, up) for up in (0.0, -9.0, 9.0)),
        ]
        out.append(Label(text, "ink-3", places, most=700.0))
    if found.bandwidth:
        lead_ridge, *others = _ridge_names(found, canvas)
        out = [out[0], lead_ridge, *out[1:], *others]
    return out


def _rate_without_unit(rate: float, other: float) -> str:
    """Returns a rate in three digits, without its unit where it is that of the rate above it: `794` beside `989.4 TFLOP/s`."""
    factor, unit = scale_of(rate, "FLOP/s")
    return f"{rate / factor:.3g}" + ("" if scale_of(other, "FLOP/s")[1] == unit else f"{NARROW}{unit}")


def _places_by_roof(text: str, start: float, level: float, canvas: Canvas) -> list[Spot]:
    """Places above and below a roof, from its right end leftwards, over its own length."""
    room = int(WIDTH_PX - canvas.at(start, level)[0] - len(text) * CHAR_PX)
    spots = [(Spot(canvas.x[1], level, "right", "bottom", -float(px), 1.0), Spot(canvas.x[1], level, "right", "top", -float(px), -1.0))
             for px in range(30, room, 30)]  # fmt: skip
    return [spot for pair in spots for spot in pair]


def _ridge(roof: Roof, found: Ceilings) -> float:
    return log10(roof.peak / found.bandwidth) if found.bandwidth else 0.0


def _ridge_names(found: Ceilings, canvas: Canvas) -> list[Label]:
    out = []
    for at, roof in enumerate(found.roofs):
        ridge, level = _ridge(roof, found), log10(roof.peak)
        value = ridge_text(10.0**ridge)
        spots = [Spot(ridge, level, "right", "bottom", -5.0, up) for up in (1.0, 7.0, 14.0)]
        out.append(Label(value if at else f"ridge {value}", "ink-3", spots, most=500.0 if at else 1500.0))
    lead = _ridge(found.roofs[0], found)
    floor_y = canvas.y[0]
    out.append(Label("memory bound", "ink-3", [Spot(lead, floor_y, "right", "bottom", -5.0, 1.0)], most=500.0))
    out.append(Label("compute bound", "ink-3", [Spot(lead, floor_y, "left", "bottom", 5.0, 1.0)], most=500.0))
    return out


def _along(text: str, slope: float, lead: float, canvas: Canvas, *, up_px: float) -> Label:
    """Returns a name along a diagonal, above it: places from its lower end upwards."""
    low = max(canvas.x[0], canvas.y[0] - log10(slope))
    high = lead - log10(slope)
    rise = canvas.height / (canvas.y[1] - canvas.y[0])
    run = WIDTH_PX * 1.25 / (canvas.x[1] - canvas.x[0])
    angle = degrees(turn := atan2(rise, run))
    shift = (LINE_PX / 2 + up_px) / cos(turn)
    places = [low + (high - low) * percent / 100 for percent in range(24, 88, 4)]
    spots = [Spot(x, x + log10(slope), "center", "middle", 0.0, shift, angle) for x in places]
    return Label(text, "ink-3", spots, most=2500.0, must=True)
