"""The ceilings of the roofline chart: which apply to the work at hand, their lines, their ridge points and their names."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan2, ceil, cos, degrees, floor, inf, isfinite, log10, nan, radians, sin, sqrt
from typing import Final, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.figure import cut, escape
from tb_sol_plugin.model.report import PointNote, Scalar, number_of
from tb_sol_plugin.tables.arrays import Floats, known_total
from tb_sol_plugin.units import NARROW, how_many, human, scale_of

# -- Places for the words in the chart -------------------------------------------------------------------------------
# no two overlap, none leaves the chart, and marks stay in sight where they can.
#
# Positions are worked out for a narrow chart; in a wider one the words are only further apart.


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
    """What the work present runs against: types with matrix FLOP, types with vector FLOP."""
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
    """`bf16, fp16 matrix` for two of one unit."""
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


# -- lines ------------------------------------------------------------------------------------------------------


def ceiling_lines(found: Ceilings, canvas: Canvas) -> list[fig.Plain]:
    """Roofs, memory diagonal, L2 diagonal, ridge points, and the achievable rates dashed."""
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
    """Where a roof meets the memory diagonal; hover names it where its label found no place."""
    return {
        "type": "scatter", "mode": "markers", "name": "ridge", "x": [r.peak / bandwidth for r in roofs], "y": [r.peak for r in roofs],
        "marker": {"symbol": "circle", "size": 5, "color": fig.light("surface"), "line": {"width": 1.4, "color": fig.light("ink-2")}},
        "hovertext": [
            f"<b>{r.name} {human(r.peak, 'FLOP/s')}</b><br>memory bound below {ridge_text(r.peak / bandwidth)}" for r in roofs
        ],
        "hoverinfo": "text",
    }  # fmt: skip


def ridge_text(value: float) -> str:
    """`295 FLOP/B`."""
    return human(value, "FLOP/B") if value < 100 else f"{value:.0f}{NARROW}FLOP/B"


# -- names ------------------------------------------------------------------------------------------------------


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
            *_beside(text, start, level, canvas),
        ]
        out.append(Label(text, "ink-3" if at else "ink-2", spots, most=3000.0 if not at else 700.0))
    if found.bandwidth:
        out.append(_along(f"memory {human(found.bandwidth, 'B/s')}", found.bandwidth, lead, canvas, up_px=4.0))
        if found.l2:
            out.append(_along(f"L2 {human(found.l2, 'B/s')}", found.l2, lead, canvas, up_px=4.0))
    for reach in found.reach:
        level = log10(reach.peak)
        start = level - log10(found.bandwidth) if found.bandwidth else canvas.x[0]
        which = f"{reach.name} " if len(found.reach) > 1 else ""
        text = f"{which}achievable {_beside_unit(reach.peak, found.roofs[0].peak)}"
        places = [
            Spot(right, level, "right", "top", 0.0, -1.0),
            Spot(right, level, "right", "bottom", 0.0, 1.0),
            Spot(start, level, "left", "top", 14.0, -1.0),
            *_beside(text, start, level, canvas),
        ]
        out.append(Label(text, "ink-3", places, most=700.0))
    if found.bandwidth:
        lead_ridge, *others = _ridge_names(found, canvas)
        out = [out[0], lead_ridge, *out[1:], *others]
    return out


def _beside_unit(rate: float, other: float) -> str:
    """A rate in three digits, without its unit where it is that of the rate above it: `794` beside `989.4 TFLOP/s`."""
    factor, unit = scale_of(rate, "FLOP/s")
    return f"{rate / factor:.3g}" + ("" if scale_of(other, "FLOP/s")[1] == unit else f"{NARROW}{unit}")


def _beside(text: str, start: float, level: float, canvas: Canvas) -> list[Spot]:
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
    """A name along a diagonal, above it: places from its lower end upwards."""
    low = max(canvas.x[0], canvas.y[0] - log10(slope))
    high = lead - log10(slope)
    rise = canvas.height / (canvas.y[1] - canvas.y[0])
    run = WIDTH_PX * 1.25 / (canvas.x[1] - canvas.x[0])
    angle = degrees(turn := atan2(rise, run))
    shift = (LINE_PX / 2 + up_px) / cos(turn)
    places = [low + (high - low) * percent / 100 for percent in range(24, 88, 4)]
    spots = [Spot(x, x + log10(slope), "center", "middle", 0.0, shift, angle) for x in places]
    return Label(text, "ink-3", spots, most=2500.0)


# -- The roofline chart ----------------------------------------------------------------------------------------------
# achieved FLOP/s over arithmetic intensity, with the roofs of the device, and a strip for work without FLOP.


WHOLE_PX: Final = 64.0
"""Diameter of a mark that holds all of the time; area is proportional to time."""
SMALLEST_PX: Final = 6.0
STRIP_PX: Final = 40.0
HEIGHT: Final = 400
STRIP_HEIGHT: Final = 110
"""What the strip adds to the height of the figure."""
TOP: Final = 14
BOTTOM: Final = 46
PIECES: Final = 80
STRIP_MARKS: Final = 46
"""px of the strip itself; the rest are the words above it and the ticks below."""


class Point(NamedTuple):
    """One row of the table as it is drawn. intensity FLOP/B, rate FLOP/s and bandwidth B/s; NaN where unknown.

    allowed: its rate would be this one at its limit. It is drawn there, hollow and as large as its limit, where it was not timed.
    """

    key: str
    label: str
    shapes: str
    kind: str
    calls: int
    measured_ns: float
    sol_ns: float
    intensity: float
    rate: float
    bandwidth: float
    efficiency: float
    bound: str
    kernel: str
    flagged: bool
    cause: str
    allowed: float = nan

    @property
    def hollow(self) -> bool:
        return not good(self.rate) and not good(self.measured_ns) and good(self.allowed)

    @property
    def height(self) -> float:
        """FLOP/s at which it stands."""
        return self.allowed if self.hollow else self.rate

    @property
    def weight(self) -> float:
        """ns that its area shows."""
        return self.sol_ns if self.hollow else self.measured_ns


class Program(NamedTuple):
    """The program's own point: its totals. weight: whole, average or step, which sets size and ink."""

    label: str
    weight: str
    measured_ns: float
    sol_ns: float
    intensity: float
    rate: float


class Drawing(NamedTuple):
    """A figure with the notes of its points, by row key, and its height in px."""

    figure: fig.Plain
    notes: dict[str, PointNote]
    height: int


def draw(points: Sequence[Point], program: Sequence[Program], ceilings: Ceilings) -> Drawing:
    """The chart. Points without FLOP but with a bandwidth stand in the strip below; others are left to the table.

    Where nothing was timed, points stand at the rates that the device allows.
    """
    untimed = not any(good(p.rate) or good(p.bandwidth) for p in points)
    chart = [p for p in points if good(p.intensity) and good(p.height if untimed else p.rate)]
    strip = [p for p in points if not good(p.rate) and good(p.bandwidth)]
    whole = sum(p.weight for p in (chart if untimed else points) if good(p.weight)) or 1.0
    program = [p for p in program if good(p.intensity) and good(p.rate)]
    canvas = _canvas(chart, program, ceilings, HEIGHT - TOP - BOTTOM)
    height = HEIGHT + (STRIP_HEIGHT if strip else 0)
    data = [*ceiling_lines(ceilings, canvas), *_marks(chart, whole), *_program(program)]
    names = ceiling_names(ceilings, canvas)
    texts = placed(
        [*names[:1], *_program_names(program), *names[1:]],
        canvas,
        [_mark_box(p, whole, canvas) for p in chart],
        _line_boxes(ceilings, canvas),
    )
    room = height - TOP - BOTTOM
    layout: fig.Plain = {"annotations": texts, "margin": {"l": 74, "r": 16, "t": TOP, "b": BOTTOM}}
    bottom = 0.0
    if strip:
        layout["margin"] = {"l": 74, "r": 16, "t": TOP, "b": BOTTOM - 18}
        room += 18
        bottom = 1.0 - canvas.height / room
        top = STRIP_MARKS / room
        data += _strip_marks(strip, whole, ceilings.bandwidth)
        layout |= _strip_axes(strip, ceilings.bandwidth, top)
        texts.append(_strip_title(strip, top))
    x = fig.axis("arithmetic intensity, FLOP per byte", range=list(canvas.x), anchor="y", **powers(*canvas.x))
    what = "at the limit" if untimed and chart else "achieved"
    y = fig.axis(what, range=list(canvas.y), domain=[round(bottom, 4), 1.0], **powers(*canvas.y, unit="FLOP/s"))
    return Drawing(fig.figure(data, x=x, y=y, **layout), _notes(chart, strip), height)


def good(value: float) -> bool:
    """Whether a value can stand on a logarithmic axis."""
    return isfinite(value) and value > 0


def distance(efficiency: float) -> str:
    """`4.1× below its limit`; "" where there is none."""
    if not good(efficiency):
        return ""
    times = 1 / efficiency if efficiency < 1 else efficiency
    if times < 1.015:
        return "at its limit"
    digits = 2 if times < 1.095 else 1 if times < 9.95 else 0
    return f"{times:.{digits}f}× {'below' if efficiency < 1 else 'above'} its limit"


# -- axes -------------------------------------------------------------------------------------------------------


def _canvas(points: Sequence[Point], program: Sequence[Program], ceilings: Ceilings, height: float) -> Canvas:
    """Ends of both axes: around the data and the ceilings, with room for the names of these on the right."""
    xs = [log10(p.intensity) for p in points] + [log10(p.intensity) for p in program]
    ys = [log10(p.height) for p in points] + [log10(p.rate) for p in program]
    ridges: list[float] = []
    if ceilings.roofs:
        ys += [log10(roof.peak) for roof in ceilings.roofs]
        if ceilings.bandwidth:
            ridges = [log10(roof.peak / ceilings.bandwidth) for roof in ceilings.roofs]
    low_x, high_x = min([*xs, *ridges], default=-1.0), max([*xs, *ridges], default=2.0)
    low_y, high_y = min(ys, default=9.0), max(ys, default=12.0)
    if high_y - low_y < 2.0:
        low_y = high_y - 2.0
    right = max(high_x + 0.3, max(ridges, default=high_x) + 0.3 * (high_x - low_x + 1.0), low_x + 2.0)
    return Canvas((low_x - 0.35, right), (low_y - 0.35, high_y + 0.45), height)


def _mark_box(point: Point, whole: float, canvas: Canvas) -> Box:
    x, y = canvas.at(log10(point.intensity), log10(point.height))
    half = _size(point, whole, WHOLE_PX) / 2 * 0.9
    return Box(x - half, y - half, x + half, y + half)


def _line_boxes(ceilings: Ceilings, canvas: Canvas) -> list[Box]:
    """The lines, so that words do not stand on them; the diagonals in small pieces."""
    out = []
    if ceilings.roofs:
        for slope in filter(None, (ceilings.bandwidth, ceilings.l2)):
            x0, y0 = canvas.at(canvas.x[0], canvas.x[0] + log10(slope))
            x1, y1 = canvas.at(log10(ceilings.roofs[0].peak / slope), log10(ceilings.roofs[0].peak))
            for at in range(PIECES if x1 > x0 else 0):
                x, y = x0 + (x1 - x0) * at / PIECES, y0 + (y1 - y0) * at / PIECES
                out.append(Box(x - 2, y - 2, x + 2, y + 2))
    for level in [roof.peak for roof in ceilings.roofs] + [reach.peak for reach in ceilings.reach]:
        start = max(log10(level / ceilings.bandwidth), canvas.x[0]) if ceilings.bandwidth else canvas.x[0]
        x, y = canvas.at(start, log10(level))
        out.append(Box(x, y - 0.8, WIDTH_PX, y + 0.8))
    return out


# -- points -----------------------------------------------------------------------------------------------------


def _size(point: Point, whole: float, whole_px: float) -> float:
    return round(max(SMALLEST_PX, whole_px * sqrt(point.weight / whole)), 1)


def _marks(points: Sequence[Point], whole: float) -> list[fig.Plain]:
    """One trace per kind, so that colour and shape agree; the largest is drawn first."""
    out: list[fig.Plain] = []
    kinds = sorted({p.kind for p in points}, key=lambda k: -max(p.weight for p in points if p.kind == k))
    for kind in kinds:
        mine = sorted((p for p in points if p.kind == kind), key=lambda p: -p.weight)
        out.append(_scatter(mine, kind, whole) | {"x": [p.intensity for p in mine], "y": [p.height for p in mine]})
    return out


def _scatter(points: Sequence[Point], kind: str, whole: float, whole_px: float = WHOLE_PX) -> fig.Plain:
    marker = fig.fill(kind)
    outline = marker["line"]
    plain = str(outline["color"]) if isinstance(outline, dict) else fig.light("surface")
    hollow = bool(points) and points[0].hollow
    marker |= {
        "symbol": fig.symbol(kind) + "-open" * hollow, "opacity": 0.8,
        "size": [_size(p, whole, whole_px) for p in points],
        "line": {
            "width": [2.0 if p.flagged else 1.4 if hollow else 0.8 for p in points],
            "color": [fig.light("warn") if p.flagged else plain for p in points],
        },
    }  # fmt: skip
    return {
        "type": "scatter", "mode": "markers", "name": kind, "marker": marker, "customdata": [p.key for p in points],
        "hovertext": [_hover(p) for p in points], "hoverinfo": "text", "cliponaxis": False,
    }  # fmt: skip


def _hover(point: Point) -> str:
    lines = [f"<b>{escape(cut(point.label, 96))}</b>"]
    if point.shapes:
        lines.append(escape(cut(point.shapes, 96)))
    calls = how_many(point.calls, "call")
    if point.hollow:
        kind = f", {point.bound}" if point.bound in ("compute", "memory") else ""
        return "<br>".join([
            *lines, f"Limit{kind}, {calls}: {human(point.sol_ns, 'ns')}", f"At its limit: {human(point.allowed, 'FLOP/s')}", "Not timed"
        ])  # fmt: skip
    lines.append(f"Time, {calls}: {human(point.measured_ns, 'ns')}")
    if good(point.sol_ns):
        kind = f", {point.bound}" if point.bound in ("compute", "memory") else ""
        lines.append(f"Limit{kind}: {human(point.sol_ns, 'ns')}, {human(point.efficiency, 'ratio')} reached")
        lines.append(distance(point.efficiency))
    if good(point.rate):
        lines.append(f"Achieved: {human(point.rate, 'FLOP/s')}")
    if good(point.bandwidth):
        lines.append(f"Bandwidth: {human(point.bandwidth, 'B/s')}")
    if point.kernel and point.kernel != point.label:
        lines.append(f"Main kernel: {escape(cut(point.kernel, 56))}")
    if point.cause:
        lines.append(escape(f"Above its limit: {point.cause}"))
    return "<br>".join(line for line in lines if line)


def _notes(chart: Sequence[Point], strip: Sequence[Point]) -> dict[str, PointNote]:
    out: dict[str, PointNote] = {}
    for p in chart:
        if p.hollow:
            out[p.key] = PointNote(p.intensity, p.allowed, None, "not timed: where its limit is")
            continue
        out[p.key] = PointNote(p.intensity, p.rate, p.rate / p.efficiency if good(p.efficiency) else None, distance(p.efficiency))
    for p, y in zip(strip, _strip_places(len(strip)), strict=True):
        limit = p.bandwidth / p.efficiency if good(p.efficiency) else None
        out[p.key] = PointNote(p.bandwidth, y, limit, distance(p.efficiency), "x2")
    return out


# -- the program's own points -----------------------------------------------------------------------------------


def _program(program: Sequence[Program]) -> list[fig.Plain]:
    """Open diamonds in ink: small for a step, larger for the average, largest for the whole."""
    if not program:
        return []
    looks = {"whole": (14.0, "ink", 2.0), "average": (10.0, "ink-2", 1.6), "step": (6.0, "ink-3", 1.0)}
    order = sorted(program, key=lambda p: looks[p.weight][0])
    return [
        {
            "type": "scatter", "mode": "markers", "name": "program", "x": [p.intensity for p in order], "y": [p.rate for p in order],
            "marker": {
                "symbol": "diamond-open", "size": [looks[p.weight][0] for p in order], "opacity": 1.0,
                "color": [fig.light(looks[p.weight][1]) for p in order], "line": {"width": [looks[p.weight][2] for p in order]},
            },
            "hovertext": [_program_hover(p) for p in order], "hoverinfo": "text", "cliponaxis": False,
        }
    ]  # fmt: skip


def _program_hover(point: Program) -> str:
    lines = [f"<b>{escape(point.label)}</b>", f"Modelled time: {human(point.measured_ns, 'ns')}"]
    if good(point.sol_ns) and good(point.measured_ns):
        share = point.sol_ns / point.measured_ns
        lines += [f"Limit: {human(point.sol_ns, 'ns')}, {human(share, 'ratio')} reached"]
    lines += [f"Achieved: {human(point.rate, 'FLOP/s')}", f"{point.intensity:.3g}{NARROW}FLOP/B"]
    return "<br>".join(lines)


def _program_names(program: Sequence[Program]) -> list[Label]:
    out = []
    for p in program:
        if p.weight != "whole":
            continue
        x, y = log10(p.intensity), log10(p.rate)
        spots = [
            Spot(x, y, "left", "middle", 11.0),
            Spot(x, y, "right", "middle", -11.0),
            Spot(x, y, "left", "top", 6.0, -6.0),
            Spot(x, y, "right", "top", -6.0, -6.0),
            Spot(x, y, "center", "top", 0.0, -11.0),
            Spot(x, y, "left", "top", 6.0, -22.0),
            Spot(x, y, "right", "top", -6.0, -22.0),
            Spot(x, y, "center", "bottom", 0.0, 11.0),
        ]
        out.append(Label(p.label, "ink", spots, most=inf))
    return out


# -- the strip --------------------------------------------------------------------------------------------------


def _strip_places(count: int) -> list[float]:
    """Heights in the strip, spread so that neighbours in the ranking do not lie on each other."""
    return [0.3 + 0.4 * (at * 0.618 % 1) for at in range(count)]


def _strip_marks(points: Sequence[Point], whole: float, bandwidth: float | None) -> list[fig.Plain]:
    out: list[fig.Plain] = []
    heights = _strip_places(len(points))
    for kind in sorted({p.kind for p in points}):
        mine = [(p, y) for p, y in zip(points, heights, strict=True) if p.kind == kind]
        place: fig.Plain = {"x": [p.bandwidth for p, _ in mine], "y": [y for _, y in mine], "xaxis": "x2", "yaxis": "y2"}
        out.append(_scatter([p for p, _ in mine], kind, whole, STRIP_PX) | place)
    if bandwidth:
        line = {"color": fig.light("ink-2"), "width": 1.6}
        out.append({
            "type": "scatter", "mode": "lines", "x": [bandwidth] * 2, "y": [0.0, 1.0], "line": line, "hoverinfo": "skip",
            "xaxis": "x2", "yaxis": "y2",
        })  # fmt: skip
    return out


def _strip_axes(points: Sequence[Point], bandwidth: float | None, top: float) -> fig.Plain:
    values = [log10(p.bandwidth) for p in points] + ([log10(bandwidth)] if bandwidth else [])
    low, high = min(values) - 0.3, max(values) + 0.3
    if high - low < 1.8:
        low = high - 1.8
    ticks = powers(low, high, unit="B/s", also=bandwidth)
    return {
        "xaxis2": fig.axis("", range=[low, high], anchor="y2", **ticks),
        "yaxis2": fig.axis(range=[0, 1], domain=[0.0, round(top, 4)], visible=False, fixedrange=True),
    }


def _strip_title(points: Sequence[Point], top: float) -> fig.Plain:
    time = sum(p.measured_ns for p in points)
    text = f"No arithmetic, by bandwidth: {how_many(len(points), 'row')}, {human(time, 'ns')}"
    return {
        "x": 0, "y": round(top, 4), "xref": "paper", "yref": "paper", "text": text, "showarrow": False, "xanchor": "left",
        "yanchor": "bottom", "yshift": 4, "font": {"size": 12, "color": fig.light("ink-3")},
    }  # fmt: skip


# -- The program as one point ----------------------------------------------------------------------------------------
# its totals, as the first row of the table and as marks of the chart.


MOST_STEPS: Final = 200


def total_row(frame: pd.DataFrame, facts: dict[str, Scalar]) -> dict[str, Scalar]:
    """Values of the total row: totals over totals, rates over the time that a model covers.

    FLOP of a rate are matrix FLOP, or vector FLOP where there are no others.
    """
    known = float(frame["known_ns"].sum())
    flop, data = number_of(facts["total_flop"]) or number_of(facts["total_vector_flop"]), number_of(facts["total_bytes"])
    return {
        "name": f"All {how_many(len(frame), 'row')}",
        "calls": known_total(frame, "calls"),
        "sol_ns": facts["sol_ns"],
        "wasted_ns": known_total(frame, "wasted_ns"),
        "efficiency": facts["efficiency"],
        "compute_ns": known_total(frame, "compute_ns"),
        "memory_ns": known_total(frame, "memory_ns"),
        "flop": facts["total_flop"],
        "vector_flop": facts["total_vector_flop"],
        "bytes": facts["total_bytes"],
        "modelled_share": facts["modelled_share"],
        "intensity_flop_per_byte": flop / data if flop and data else None,
        "achieved_flop_per_s": flop / known * 1e9 if flop and known else None,
        "achieved_bytes_per_s": data / known * 1e9 if data and known else None,
    }


def program_points(capture: Capture, ops: pd.DataFrame) -> list[Program]:
    """The whole selection, first; where it has several steps also their average and each of them."""
    covered = ops["modelled"].to_numpy()
    out = [_point("whole program", "whole", ops, np.zeros(len(ops), np.int64), covered, 1)[0]]
    step = ops["step"].to_numpy().astype(np.int64)
    numbers = capture.steps["number"].to_numpy()
    complete = capture.steps["complete"].to_numpy() & (numbers >= 0)
    rows = np.unique(step[(step >= 0) & covered])
    rows = rows[complete[rows]] if len(rows) else rows
    if len(rows) < 2:
        return out
    inside = covered & np.isin(step, rows)
    count = human(len(rows), "count")
    out += _point(f"average of {count} complete steps", "average", ops, np.zeros(len(ops), np.int64), inside, 1, parts=len(rows))
    place = np.searchsorted(rows, np.where(inside, step, rows[0]))
    each = _point("", "step", ops, place, inside, len(rows))
    return out + [p._replace(label=f"step {numbers[row]}") for p, row in zip(each, rows.tolist(), strict=True)][:MOST_STEPS]


def _point(label: str, weight: str, ops: pd.DataFrame, code: npt.NDArray[np.integer], mask: npt.NDArray[np.bool_], size: int,
           *, parts: int = 1) -> list[Program]:  # fmt: skip
    def total(column: str) -> Floats:
        values = np.nan_to_num(ops[column].to_numpy(dtype=np.float64))
        return np.bincount(code[mask], values[mask], minlength=size).astype(np.float64) / parts

    flop, data, time, least = (total(c) for c in ("flop", "bytes", "measured_ns", "sol_ns"))
    vector = total("flop_vector")
    work = flop if flop.sum() > 0 else vector
    with np.errstate(divide="ignore", invalid="ignore"):
        intensity, rate = work / data, work / time * 1e9
    values = zip(time.tolist(), least.tolist(), intensity.tolist(), rate.tolist(), strict=True)
    return [Program(label, weight, *four) for four in values]
