"""What the engines of a device do in one step: compute, communication, and one lane per direction of copies; exposed copies stand out."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.copies import bandwidth, exposure, records
from tb_sol_plugin.metrics.copies.records import COLORS, NAMES, memory_text
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import AnySection, Column, FigureSection, Link, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import how_many, human

TITLES: Final = {exposure.COMPUTE_LANE: "Computation", exposure.COMMUNICATION_LANE: "Communication", **NAMES}
PAINT: Final = {exposure.COMPUTE_LANE: "compute", exposure.COMMUNICATION_LANE: "communication", **COLORS}
COLUMNS: Final = (
    Column("lane", "Engine", doc="computation, communication, or a direction of copies", show="symbol", color_by="member"),
    Column("union_ns", "Runs", "ns", "time in which at least one event of the lane runs in the window"),
    Column("hidden_ns", "Hidden", "ns", "the part of it behind computation", missing="neither hidden nor exposed"),
    Column("exposed_ns", "Exposed", "ns", "the rest of it", missing="neither hidden nor exposed"),
    Column("member", "Color", doc="color of the lane", rank=3),
)
LANE_PX: Final = 40
LEAST: Final = 1 / 1200
"""Shapes are drawn at least this part of the window wide, so that a short copy can be seen."""


def sections(capture: Capture, found: pd.DataFrame, where: Scope, worst: int | None) -> list[AnySection]:
    """The lanes of the worst step, or of the whole selection where no step is the worst, drawn and as sums; nothing without copies there.

    found: the copies of the selection. worst: row of `steps`.
    """
    window, number = _window(capture, found, where, worst)
    lanes = exposure.lanes(capture, window)
    if lanes is None:
        return []
    totals = lanes.totals.set_index("lane")
    order = totals.index.tolist()
    factor, unit = F.time_scale(float(window[1] - window[0]))
    labels = [_label(name, totals.loc[name]) for name in order]
    data: list[F.Plain] = []
    for name, label in zip(order, labels, strict=True):
        shapes = lanes.shapes[lanes.shapes["lane"] == name].reset_index(drop=True)
        texts = _texts(capture, shapes, name)
        copies = name not in (exposure.COMPUTE_LANE, exposure.COMMUNICATION_LANE)
        data.append(_bars(name, label, shapes, texts, window, factor, opacity=0.32 if copies else 1.0))
        bare = lanes.exposed[lanes.exposed["lane"] == name].reset_index(drop=True)
        if len(bare):
            inside = np.searchsorted(shapes["start_ns"].to_numpy(), bare["start_ns"].to_numpy(), side="right") - 1
            data.append(_bars(name, label, bare, [texts[max(i, 0)] for i in inside.tolist()], window, factor, opacity=1.0))
    what = f"step {number}" if number is not None else f"the {where.label}" if where.whole else where.label
    which = f"device {lanes.device}, one of {lanes.devices} with copies; " if lanes.devices > 1 else ""
    drawn = FigureSection(
        id="engines",
        title=f"Engines in {what}",
        span=8,
        table="lanes",
        subtitle=f"{which}{'most exposed; ' if number is not None and len(where.rows) > 1 else ''}"
        "strong: exposed, pale: behind computation",
        height=70 + LANE_PX * len(order),
        figure=F.figure(
            data,
            x=F.axis(f"{unit} from {_hms(window[0])}", range=[0, (window[1] - window[0]) / factor], showgrid=True),
            y=F.axis(showgrid=False, fixedrange=True, range=[len(order) - 0.5, -0.5])
            | {"type": "category", "categoryorder": "array", "categoryarray": labels},
            barmode="overlay",
            bargap=0.35,
            margin={"l": 176, "r": 14, "t": 6, "b": 44},
        ),
        summary=f"Copies of {what} run for {human(lanes.union_ns, 'ns')}, {human(lanes.exposed_ns, 'ns')} of it behind no computation, in "
        f"{human(window[1] - window[0], 'ns')}.",
        links=[Link("memcpy_copies", {"step": str(number)}, "Its copies")] if number is not None else [],
    )
    return [drawn, _table(lanes.totals, what, window[1] - window[0])]


def _table(totals: pd.DataFrame, what: str, length: int) -> AnySection:
    """The sums of the lanes, clipped to the window; computation and communication are neither hidden nor exposed."""
    frame = totals.assign(lane=[TITLES.get(n, n) for n in totals["lane"]], member=[PAINT.get(n, "other") for n in totals["lane"]])
    for name in ("hidden_ns", "exposed_ns"):
        frame[name] = pd.Series([t if t >= 0 else None for t in totals[name].tolist()], dtype=object)
    return make_table(
        "lanes", "Lanes", frame, COLUMNS, key="lane", subtitle=f"of {human(length, 'ns')}", span=4,
        footer="A lane is a union: what runs side by side in it counts once, whichever step launched it.",
    )  # fmt: skip


def _window(capture: Capture, found: pd.DataFrame, where: Scope, worst: int | None) -> tuple[tuple[int, int], int | None]:
    """From where to where, and the number of the step: its bounds, and what its own copies reach beyond them."""
    if worst is None:
        return where.window_ns, None
    mine = found[found["step"] == worst]
    low, high = (int(capture.steps[c].to_numpy()[worst]) for c in ("start_ns", "end_ns"))
    if len(mine):
        low = min(low, int(mine["start_ns"].min()))
        high = max(high, int((mine["start_ns"] + mine["duration_ns"]).max()))
    number = int(capture.steps["number"].to_numpy()[worst])
    return (low, high), number if number >= 0 and not capture.facts.pseudo_step else None


def _hms(at: int) -> str:
    """Where the window begins, in words."""
    return f"{human(at, 'ns')} into the recording" if at else "the start of the recording"


def _label(name: str, total: pd.Series[int]) -> str:
    exposed, union = int(total["exposed_ns"]), int(total["union_ns"])
    told = "hidden" if not exposed else "all exposed" if exposed == union else f"{human(exposed, 'ns')} exposed"
    said = human(union, "ns") if exposed < 0 else f"{human(union, 'ns')}, {told}"
    return f"{TITLES.get(name, name)}<br><span style='font-size:10.5px'>{said}</span>"


def _bars(
    name: str, label: str, spans: pd.DataFrame, texts: list[str], window: tuple[int, int], factor: float, *, opacity: float
) -> F.Plain:
    start, end = spans["start_ns"].to_numpy() - window[0], spans["end_ns"].to_numpy() - window[0]
    length = np.maximum(end - start, (window[1] - window[0]) * LEAST)
    return {
        "type": "bar", "orientation": "h", "name": TITLES.get(name, name), "y": [label] * len(spans), "base": (start / factor).tolist(),
        "x": (length / factor).tolist(), "marker": {"color": F.light(PAINT.get(name, "other")), "opacity": opacity, "line": {"width": 0}},
        "hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>", "showlegend": False,
    }  # fmt: skip


def _texts(capture: Capture, shapes: pd.DataFrame, lane: str) -> list[str]:
    """What hovering a shape says: a single copy by name, size, rate and operator; merged ones by their sums."""
    if lane in (exposure.COMPUTE_LANE, exposure.COMMUNICATION_LANE):
        return [f"<b>{TITLES[lane]}</b><br>{human(int(b - a), 'ns')}" for a, b in zip(shapes["start_ns"], shapes["end_ns"], strict=True)]
    row = shapes["row"].to_numpy().astype(np.int64)
    single = np.maximum(row, 0)
    names = records.texts(capture.device["name"], single)
    operator = capture.device["operator"].to_numpy()[single]
    owners = records.texts(capture.host["name"], np.maximum(operator, 0)) if len(capture.host) else np.full(len(row), "", object)
    out = []
    for at, name, op, owner, count, size, busy in zip(
        row.tolist(),
        names.tolist(),
        operator.tolist(),
        owners.tolist(),
        *(shapes[c].tolist() for c in ("count", "bytes", "busy_ns")),
        strict=True,
    ):
        head = _plain(str(name)) if at >= 0 else f"{human(count, 'count')} copies, too close to tell apart"
        rate = f" at {human(size / busy * 1e9, 'B/s')}" if size > 0 and busy > 0 else ""
        much = f"{human(size, 'B')}{rate}, " if size >= 0 else "no size recorded, "
        by = f"<br>{_plain(str(owner))}" if at >= 0 and op >= 0 and owner else ""
        out.append(f"<b>{head}</b><br>{much}{human(busy, 'ns')}{by}")
    return out


def _plain(name: str) -> str:
    """A recorded name as text of a figure: nothing of it is markup."""
    text = name if len(name) <= 80 else name[:50] + "…" + name[-29:]
    return F.escape(text)


# -- A roofline for copies -------------------------------------------------------------------------------------------
# bandwidth over size, the limit of each direction's link, and the latency and rate fitted to each kind.


def section(found: pd.DataFrame, limits: dict[str, tuple[float, str]], fitted: list[bandwidth.Fit], *, keyed: bool) -> FigureSection:
    """The figure. keyed: the points carry the direction as the key of their table row."""
    known = found.loc[(found["bytes"] > 0) & (found["duration_ns"] > 0), ["direction", "bytes", "duration_ns"]]
    points = _points(known)
    title = "Bandwidth by copy size"
    if not len(points):
        summary = "No copy carries both a size and a time."
        return FigureSection(id="bandwidth", title=title, span=7, height=160, figure=F.figure([]), summary=summary, table="copies")
    low, high = float(points["size"].min()), float(points["size"].max())
    span = np.geomspace(low / 2, high * 2, 60)
    drawn = [n for n in NAMES if (points["direction"] == n).any()]
    longest = float(points["time"].max())
    data: list[F.Plain] = [_markers(n, points[points["direction"] == n], longest, keyed=keyed) for n in drawn]
    seen: set[str] = set()
    for fit in (f for f in fitted if not f.why):
        curve = span / (fit.latency_ns + span / fit.bytes_per_s * 1e9) * 1e9
        kinds = memory_text(fit.direction, fit.src_kind, fit.dst_kind)
        what = f"{NAMES.get(fit.direction, fit.direction)}{f', {kinds}' if kinds else ''}"
        words = f"{what}: {human(fit.latency_ns, 'ns')} + bytes / {human(fit.bytes_per_s, 'B/s')}"
        dash = "dot" if fit.direction in seen else "dash"
        data.append(_line(span.tolist(), curve.tolist(), COLORS.get(fit.direction, "other"), dash, words))
        seen.add(fit.direction)
    tops = [float(points["rate"].max())]
    lines: dict[str, float] = {}
    large = set(known.loc[known["bytes"] >= bandwidth.LARGE, "direction"]) | {"HtoD", "DtoH"}
    for name in drawn:
        if name in limits and name in large and limits[name][1] not in lines:
            peak, what = limits[name]
            lines[what] = peak
            tops.append(peak)
            text = f"{what}, {human(peak, 'B/s')}"
            line = _line([float(span[0]), float(span[-1])], [peak, peak], COLORS.get(name, "other"), "solid", text)
            data.append(line | {"mode": "lines+text", "text": [text, ""], "textposition": "top right"})
    fastest = points.iloc[int(points["rate"].to_numpy().argmax())]
    return FigureSection(
        id="bandwidth",
        title=title,
        subtitle="area: time; dashed: fitted latency and rate" if seen else "area: time",
        span=7,
        height=400,
        table="copies",
        figure=F.figure(
            data,
            x=F.axis("copy size", **F.sizes(low, high), range=[float(np.log10(span[0])), float(np.log10(span[-1]))]),
            y=F.axis("bandwidth", **F.decades(float(points["rate"].min()), max(tops), "B/s")),
            margin={"l": 78, "r": 14, "t": 10, "b": 46},
            showlegend=True,
        ),
        summary=f"The fastest copies are {NAMES[str(fastest['direction'])].lower()}, {human(float(fastest['rate']), 'B/s')}.",
    )


def _markers(name: str, mine: pd.DataFrame, longest: float, *, keyed: bool) -> F.Plain:
    area = np.maximum(6.0, 26.0 * np.sqrt(mine["time"].to_numpy() / longest))
    trace: F.Plain = {
        "type": "scatter", "mode": "markers", "name": NAMES[name], "x": mine["size"].tolist(), "y": mine["rate"].tolist(),
        "marker": {"symbol": F.symbol(name), "size": area.tolist(), "color": F.light(COLORS.get(name, "other")), "opacity": 0.8,
                   "line": {"width": 0.8, "color": F.light("surface")}},
        "hovertext": [f"{how_many(int(n), 'copy', 'copies')} of {human(s, 'B')}<br>{human(r, 'B/s')}, {human(t, 'ns')} in all"
                      for n, s, r, t in zip(mine["count"], mine["size"], mine["rate"], mine["time"], strict=True)],
        "hovertemplate": f"<b>{NAMES[name]}</b><br>%{{hovertext}}<extra></extra>",
    }  # fmt: skip
    return trace | ({"customdata": [name] * len(mine)} if keyed else {})


def _line(x: list[float], y: list[float], color: str, dash: str, name: str) -> F.Plain:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "hoverinfo": "name", "showlegend": False,
        "textfont": {"size": 11, "color": F.light("ink-2")},
        "line": {"color": F.light(color), "width": 1.6 if dash == "solid" else 1.2, "dash": dash},
    }  # fmt: skip


def _points(known: pd.DataFrame) -> pd.DataFrame:
    """Copies of nearly equal size and rate as one point: quarters of a power of two by sixteenths of a decade."""
    size, time = known["bytes"].to_numpy(np.float64), known["duration_ns"].to_numpy(np.float64)
    direction = known["direction"].to_numpy(object)
    cell = arrays.together(direction, np.round(4 * np.log2(size)), np.round(16 * np.log10(size / time)))
    cells = int(cell.max(initial=-1)) + 1
    count, moved, took = (np.bincount(cell, w, minlength=cells) for w in (None, size, time))
    first = arrays.first_of(cell, cells)
    return pd.DataFrame({
        "direction": direction[first], "count": count, "bytes": moved, "time": took, "size": moved / count, "rate": moved / took * 1e9,
    })  # fmt: skip
