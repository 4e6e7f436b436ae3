"""The roofline chart: achieved FLOP/s over arithmetic intensity, with the roofs of the device, and a strip for work without FLOP."""

from __future__ import annotations

from collections.abc import Sequence
from math import atan, ceil, degrees, floor, isfinite, log10
from typing import Final, NamedTuple

from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model.device import DeviceSpec
from tb_sol_plugin.units import NARROW, human, scale_of

WHOLE_PX: Final = 64.0
"""Diameter of a mark that holds all of the time; area is proportional to time."""
SMALLEST_PX: Final = 6.0
STRIP_PX: Final = 48.0
STRIP_TOP: Final = 0.15
CHART_BOTTOM: Final = 0.33


class Point(NamedTuple):
    """One row of the table as it is drawn. intensity FLOP/B, rate FLOP/s and bandwidth B/s; NaN where unknown."""

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
    flagged: bool


class Roof(NamedTuple):
    """A compute ceiling in FLOP/s, with its name."""

    name: str
    peak: float
    leading: bool = False


def roofs(spec: DeviceSpec | None, matrix_dtypes: Sequence[str], *, vector: bool) -> list[Roof]:
    """The ceilings that the work present runs against, highest first; the first one leads."""
    if spec is None:
        return []
    by_peak: dict[float, list[str]] = {}
    for dtype in matrix_dtypes:
        peak = spec.matrix_peak(dtype)
        if peak is not None:
            by_peak.setdefault(peak, []).append(f"{dtype} matrix" if dtype in spec.matrix else f"{dtype} vector")
    found = [Roof(", ".join(names), peak) for peak, names in by_peak.items()]
    plain = spec.vector_peak("")
    if vector and plain is not None and plain not in by_peak:
        found.append(Roof("fp32 vector", plain))
    found.sort(key=lambda roof: -roof.peak)
    return [roof._replace(leading=at == 0) for at, roof in enumerate(found)]


def build(points: Sequence[Point], spec: DeviceSpec | None, ceilings: Sequence[Roof]) -> fig.Plain:
    """The figure. Points without FLOP but with a bandwidth stand in the strip below; others are left to the table."""
    placed = [p for p in points if _good(p.intensity) and _good(p.rate)]
    strip = [p for p in points if not _good(p.rate) and _good(p.bandwidth)]
    whole = sum(p.measured_ns for p in points) or 1.0
    bandwidth = spec.memory_bandwidth if spec is not None else None
    x_range, y_range = _ranges(placed, ceilings, bandwidth)
    bottom = CHART_BOTTOM if strip else 0.0
    data = [*_roof_lines(ceilings, bandwidth, spec, x_range), *_marks(placed, whole)]
    layout: fig.Plain = {"annotations": _names(ceilings, bandwidth, spec, x_range, y_range), "margin": {"l": 74, "r": 16, "t": 14, "b": 46}}
    if strip:
        data += _strip_marks(strip, whole, bandwidth)
        layout |= _strip_axes(strip, bandwidth)
    x = fig.axis("arithmetic intensity, FLOP per byte", range=list(x_range), anchor="y", **_powers(*x_range))
    y = fig.axis("achieved", range=list(y_range), domain=[bottom, 1.0], **_powers(*y_range, unit="FLOP/s"))
    return fig.figure(data, x=x, y=y, **layout)


def escape(text: str) -> str:
    """Text for a Plotly label, which knows a few tags."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _good(value: float) -> bool:
    return isfinite(value) and value > 0


def _ranges(points: Sequence[Point], ceilings: Sequence[Roof], bandwidth: float | None) -> tuple[tuple[float, float], tuple[float, float]]:
    """Ends of both axes as powers of ten: around the data and the ceilings."""
    xs = [log10(p.intensity) for p in points]
    ys = [log10(p.rate) for p in points]
    if ceilings:
        ys.append(log10(ceilings[0].peak))
        if bandwidth:
            xs += [log10(ceilings[0].peak / bandwidth), log10(ceilings[-1].peak / bandwidth)]
    low_x, high_x = min(xs, default=-1.0), max(xs, default=2.0)
    low_y, high_y = min(ys, default=9.0), max(ys, default=12.0)
    return (low_x - 0.35, max(high_x, low_x + 1.5) + 1.0), (low_y - 0.35, high_y + 0.5)


def _powers(low: float, high: float, unit: str = "") -> fig.Plain:
    """A logarithmic axis with its decades named: 0.1, 10, 1 TFLOP/s."""
    values = [10.0**p for p in range(ceil(low), floor(high) + 1)]
    texts = []
    for value in values:
        factor, name = scale_of(value, unit)
        texts.append(f"{round(value / factor, 9):g}{NARROW}{name}" if unit else f"{value:g}")
    return {"type": "log", "tickvals": values, "ticktext": texts}


def _line(x: list[float], y: list[float], color: str, width: float, dash: str = "solid", **more: object) -> fig.Plain:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": x,
        "y": y,
        "line": {"color": fig.light(color), "width": width, "dash": dash},
        "hoverinfo": "skip",
    } | more


def _roof_lines(
    ceilings: Sequence[Roof], bandwidth: float | None, spec: DeviceSpec | None, x_range: tuple[float, float]
) -> list[fig.Plain]:
    if not ceilings:
        return []
    left, right = 10.0 ** x_range[0], 10.0 ** x_range[1]
    out: list[fig.Plain] = []
    for roof in ceilings:
        start = max(roof.peak / bandwidth, left) if bandwidth else left
        out.append(_line([start, right], [roof.peak] * 2, "ink-2" if roof.leading else "ink-3", 1.6 if roof.leading else 1.2))
    if bandwidth:
        ridge = ceilings[0].peak / bandwidth
        out.append(_line([left, ridge], [left * bandwidth, ridge * bandwidth], "ink-2", 1.6))
        out.append(_line([ridge, ridge], [10.0**-30, ceilings[0].peak], "line-strong", 1.0, "dot"))
    reach = _achievable(ceilings, spec)
    if reach:
        start = max(reach / bandwidth, left) if bandwidth else left
        out.append(_line([start, right], [reach] * 2, "ink-2", 1.2, "4px,3px"))
    return out


def _achievable(ceilings: Sequence[Roof], spec: DeviceSpec | None) -> float | None:
    """The rate that a good BF16 product reaches, where BF16 work is there."""
    return spec.achievable_bf16 if spec is not None and any("bf16 matrix" in roof.name for roof in ceilings) else None


def _text(x: float, y: float, text: str, color: str, **more: object) -> fig.Plain:
    """A label on logarithmic axes: x and y as powers of ten."""
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": {"size": 11.5, "color": fig.light(color)}} | more


def _names(
    ceilings: Sequence[Roof], bandwidth: float | None, spec: DeviceSpec | None, x_range: tuple[float, float], y_range: tuple[float, float]
) -> list[fig.Plain]:
    out: list[fig.Plain] = []
    taken: list[float] = []
    for roof in ceilings:
        level = log10(roof.peak)
        if any(abs(level - other) < 0.16 for other in taken):
            continue
        taken.append(level)
        color = "ink-2" if roof.leading else "ink-3"
        out.append(_text(x_range[1], level, f"{roof.name} {human(roof.peak, 'FLOP/s')}", color, xanchor="right", yanchor="bottom"))
    reach = _achievable(ceilings, spec)
    if reach:
        out.append(_text(x_range[1], log10(reach), f"achievable {human(reach, 'FLOP/s')}", "ink-3", xanchor="right", yanchor="top"))
    if ceilings and bandwidth:
        ridge = log10(ceilings[0].peak / bandwidth)
        rise = (y_range[1] - y_range[0]) / 330.0
        run = (x_range[1] - x_range[0]) / 660.0
        middle = x_range[0] + 0.3 * (min(ridge, x_range[1]) - x_range[0])
        out.append(
            _text(
                middle,
                middle + log10(bandwidth),
                f"memory {human(bandwidth, 'B/s')}",
                "ink-3",
                yanchor="bottom",
                yshift=6,
                textangle=-degrees(atan(run / rise)),
            )
        )
        out.append(_text(ridge, y_range[0], "memory bound ", "ink-3", xanchor="right", yanchor="bottom"))
        above = f" compute bound above {10.0**ridge:.0f} FLOP/B"
        out.append(_text(ridge, y_range[0], above, "ink-3", xanchor="left", yanchor="bottom"))
    return out


def _marks(points: Sequence[Point], whole: float) -> list[fig.Plain]:
    """One trace per kind, so that colour and shape agree; the largest is drawn first."""
    out: list[fig.Plain] = []
    kinds = sorted({p.kind for p in points}, key=lambda k: -max(p.measured_ns for p in points if p.kind == k))
    for kind in kinds:
        mine = sorted((p for p in points if p.kind == kind), key=lambda p: -p.measured_ns)
        out.append(_scatter(mine, kind, whole) | {"x": [p.intensity for p in mine], "y": [p.rate for p in mine]})
    return out


def _scatter(points: Sequence[Point], kind: str, whole: float, whole_px: float = WHOLE_PX) -> fig.Plain:
    marker = fig.fill(kind)
    outline = marker["line"]
    plain = str(outline["color"]) if isinstance(outline, dict) else fig.light("surface")
    marker |= {
        "symbol": fig.symbol(kind), "opacity": 0.8,
        "size": [round(max(SMALLEST_PX, whole_px * (p.measured_ns / whole) ** 0.5), 1) for p in points],
        "line": {
            "width": [2.0 if p.flagged else 0.8 for p in points],
            "color": [fig.light("warn") if p.flagged else plain for p in points],
        },
    }  # fmt: skip
    return {
        "type": "scatter", "mode": "markers", "name": kind, "marker": marker, "customdata": [p.key for p in points],
        "hovertext": [_hover(p) for p in points], "hoverinfo": "text", "cliponaxis": False,
    }  # fmt: skip


def _hover(point: Point) -> str:
    lines = [f"<b>{escape(point.label)}</b>"]
    if point.shapes:
        lines.append(escape(point.shapes))
    lines.append(f"Time, {human(point.calls, 'count')} call{'s' if point.calls != 1 else ''}: {human(point.measured_ns, 'ns')}")
    if _good(point.sol_ns):
        lines.append(f"Limit: {human(point.sol_ns, 'ns')}, {human(point.efficiency, 'ratio')} reached")
        if point.efficiency < 1:
            lines.append(f"{1 / point.efficiency:.1f}× below its limit")
    if _good(point.rate):
        lines.append(f"Achieved: {human(point.rate, 'FLOP/s')}")
    if _good(point.bandwidth):
        lines.append(f"Bandwidth: {human(point.bandwidth, 'B/s')}")
    if point.flagged:
        lines.append("Above its limit: data that stayed in cache, fewer operations by the algorithm, or a wrong type")
    return "<br>".join(lines)


def _strip_marks(points: Sequence[Point], whole: float, bandwidth: float | None) -> list[fig.Plain]:
    out: list[fig.Plain] = []
    for kind in sorted({p.kind for p in points}):
        mine = [p for p in points if p.kind == kind]
        place: fig.Plain = {"x": [p.bandwidth for p in mine], "y": [0.3 + 0.4 * (at * 0.618 % 1) for at in range(len(mine))]}
        out.append(_scatter(mine, kind, whole, STRIP_PX) | place | {"xaxis": "x2", "yaxis": "y2"})
    if bandwidth:
        out.append(_line([bandwidth] * 2, [0.0, 1.0], "ink-2", 1.6, xaxis="x2", yaxis="y2"))
    return out


def _strip_axes(points: Sequence[Point], bandwidth: float | None) -> fig.Plain:
    values = [log10(p.bandwidth) for p in points] + ([log10(bandwidth)] if bandwidth else [])
    low, high = min(values) - 0.3, max(values) + 0.3
    time = sum(p.measured_ns for p in points)
    return {
        "xaxis2": fig.axis(
            f"no arithmetic, by bandwidth: {human(len(points), 'count')} operator{'s' if len(points) != 1 else ''}, {human(time, 'ns')}",
            range=[low, high], anchor="y2", **_powers(low, high, unit="B/s"),
        ),
        "yaxis2": fig.axis(range=[0, 1], domain=[0.0, STRIP_TOP], visible=False, fixedrange=True),
    }  # fmt: skip
