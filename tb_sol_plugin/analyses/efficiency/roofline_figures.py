"""The ceilings of the roofline chart: which apply to the work at hand, their lines, their ridge points and their names."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isfinite, log10, nan, sqrt
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.analyses.efficiency.roofline_roofs import (
    WIDTH_PX,
    Box,
    Canvas,
    Ceilings,
    Label,
    Spot,
    ceiling_lines,
    ceiling_names,
    placed,
    powers,
)
from tb_sol_plugin.metrics.work.rows import RowColumns
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import number_of
from tb_sol_plugin.model.figure import cut, escape
from tb_sol_plugin.model.report import PointNote, Scalar
from tb_sol_plugin.tables.arrays import Floats
from tb_sol_plugin.units import NARROW, how_many, human

# -- The roofline chart -----------------------------------------------------------------------------------------------
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
    """Returns the chart. Points without FLOP but with a bandwidth stand in the strip below; others are left to the table.

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
        [*(_mark_box(p, whole, canvas) for p in chart), *(_program_box(p, canvas) for p in program)],
        _line_boxes(ceilings, canvas),
    )
    room = height - TOP - BOTTOM
    layout: fig.Plain = {"annotations": texts, "meta": {"labels": "by importance"}, "margin": {"l": 74, "r": 16, "t": TOP, "b": BOTTOM}}
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
    """Returns whether a value can stand on a logarithmic axis."""
    return isfinite(value) and value > 0


def distance(efficiency: float) -> str:
    """Returns `4.1× below its limit`; "" where there is none."""
    if not good(efficiency):
        return ""
    times = 1 / efficiency if efficiency < 1 else efficiency
    if times < 1.015:
        return "at its limit"
    digits = 2 if times < 1.095 else 1 if times < 9.95 else 0
    return f"{times:.{digits}f}× {'below' if efficiency < 1 else 'above'} its limit"


# -- Axes -------------------------------------------------------------------------------------------------------------


def _canvas(points: Sequence[Point], program: Sequence[Program], ceilings: Ceilings, height: float) -> Canvas:
    """Returns the ends of both axes: around the data and the ceilings, with room for the names of these on the right."""
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


def _program_box(point: Program, canvas: Canvas) -> Box:
    x, y = canvas.at(log10(point.intensity), log10(point.rate))
    half = PROGRAM_PX[point.weight] / 2
    return Box(x - half, y - half, x + half, y + half)


def _line_boxes(ceilings: Ceilings, canvas: Canvas) -> list[Box]:
    """Returns the lines, so that words do not stand on them; the diagonals in small pieces."""
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


# -- Points -----------------------------------------------------------------------------------------------------------


def _size(point: Point, whole: float, whole_px: float) -> float:
    return round(max(SMALLEST_PX, whole_px * sqrt(point.weight / whole)), 1)


def _marks(points: Sequence[Point], whole: float) -> list[fig.Plain]:
    """Returns one trace per kind, so that color and shape agree; the largest is drawn first."""
    out: list[fig.Plain] = []
    kinds = sorted({p.kind for p in points}, key=lambda k: -max(p.weight for p in points if p.kind == k))
    for kind in kinds:
        subset = sorted((p for p in points if p.kind == kind), key=lambda p: -p.weight)
        out.append(_scatter(subset, kind, whole) | {"x": [p.intensity for p in subset], "y": [p.height for p in subset]})
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


# -- The program's own points -----------------------------------------------------------------------------------------


PROGRAM_PX: Final = {"whole": 14.0, "average": 10.0, "step": 6.0}
"""Size of the program's points."""


def _program(program: Sequence[Program]) -> list[fig.Plain]:
    """Returns open diamonds in ink: small for a step, larger for the average, largest for the whole."""
    if not program:
        return []
    looks = {"whole": ("ink", 2.0), "average": ("ink-2", 1.6), "step": ("ink-3", 1.0)}
    order = sorted(program, key=lambda p: PROGRAM_PX[p.weight])
    return [
        {
            "type": "scatter", "mode": "markers", "name": "program", "x": [p.intensity for p in order], "y": [p.rate for p in order],
            "marker": {
                "symbol": "diamond-open", "size": [PROGRAM_PX[p.weight] for p in order], "opacity": 1.0,
                "color": [fig.light(looks[p.weight][0]) for p in order], "line": {"width": [looks[p.weight][1] for p in order]},
            },
            "hovertext": [_program_hover(p) for p in order], "hoverinfo": "text", "cliponaxis": False,
        }
    ]  # fmt: skip


def _program_hover(point: Program) -> str:
    lines = [f"<b>{escape(point.label)}</b>", f"Modeled time: {human(point.measured_ns, 'ns')}"]
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
        out.append(Label(p.label, "ink", spots, most=inf, must=True))
    return out


# -- The strip --------------------------------------------------------------------------------------------------------


def _strip_places(count: int) -> list[float]:
    """Returns heights in the strip, spread so that neighbors in the ranking do not lie on each other."""
    return [0.3 + 0.4 * (at * 0.618 % 1) for at in range(count)]


def _strip_marks(points: Sequence[Point], whole: float, bandwidth: float | None) -> list[fig.Plain]:
    out: list[fig.Plain] = []
    heights = _strip_places(len(points))
    for kind in sorted({p.kind for p in points}):
        subset = [(p, y) for p, y in zip(points, heights, strict=True) if p.kind == kind]
        place: fig.Plain = {"x": [p.bandwidth for p, _ in subset], "y": [y for _, y in subset], "xaxis": "x2", "yaxis": "y2"}
        out.append(_scatter([p for p, _ in subset], kind, whole, STRIP_PX) | place)
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


# -- The program as one point -----------------------------------------------------------------------------------------
# its totals, as the first row of the table and as marks of the chart.


MOST_STEPS: Final = 200


def total_row(frame: RowColumns, facts: dict[str, Scalar]) -> dict[str, Scalar]:
    """Returns values of the total row: totals over totals, rates over the time that a model covers.

    FLOP of a rate are matrix FLOP, or vector FLOP where there are no others.
    """

    def known_total(name: str) -> int | None:
        good = np.isfinite(frame[name])
        return round(float(frame[name][good].sum(dtype=np.float64))) if good.any() else None

    known = float(np.nansum(frame["known_ns"]))
    flop, data = number_of(facts["total_flop"]) or number_of(facts["total_vector_flop"]), number_of(facts["total_bytes"])
    return {
        "name": f"All {how_many(len(frame['name']), 'row')}",
        "calls": known_total("calls"),
        "sol_ns": facts["sol_ns"],
        "wasted_ns": known_total("wasted_ns"),
        "efficiency": facts["efficiency"],
        "compute_ns": known_total("compute_ns"),
        "memory_ns": known_total("memory_ns"),
        "flop": facts["total_flop"],
        "vector_flop": facts["total_vector_flop"],
        "bytes": facts["total_bytes"],
        "modelled_share": facts["modelled_share"],
        "intensity_flop_per_byte": flop / data if flop and data else None,
        "achieved_flop_per_s": flop / known * 1e9 if flop and known else None,
        "achieved_bytes_per_s": data / known * 1e9 if data and known else None,
    }


def program_points(capture: Capture, ops: pd.DataFrame) -> list[Program]:
    """Returns the whole selection, first; where it has several steps also their average and each of them."""
    covered = ops["modeled"].to_numpy()
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
