"""What copies of memory cost, and whether they use the link.

Copies are told by direction and by kind of memory. Bandwidth is bytes over time of the copies that carry bytes; the share of
the link counts copies of at least 1 MiB only, because smaller ones are bound by latency. A copy is hidden while a kernel that
is no communication runs on the same device, and exposed otherwise. Sets of memory have a card of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.analyses.copies import memcpy_counted, memcpy_tables
from tb_sol_plugin.analyses.copies.memcpy_tables import notices
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.copies import bandwidth, exposure, groups, records
from tb_sol_plugin.metrics.copies.records import COLORS, NAMES, memory_text
from tb_sol_plugin.metrics.critical.replayed import replayed_copies
from tb_sol_plugin.metrics.rules.copies import step_ns
from tb_sol_plugin.metrics.rules.engine import to_report
from tb_sol_plugin.metrics.time.scope import Scope, in_steps, scope
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis, registry
from tb_sol_plugin.model.report import AnySection, Column, FigureSection, FindingsSection, Link, Report, Scalar, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import how_many, human, humans

FINDINGS: Final = 3
"""Findings shown here; all of them have a page of their own."""


LANES: Final = {exposure.COMPUTE_LANE: "Computation", exposure.COMMUNICATION_LANE: "Communication", **NAMES}
PAINT: Final = {exposure.COMPUTE_LANE: "compute", exposure.COMMUNICATION_LANE: "communication", **COLORS}
LANE_COLUMNS: Final = (
    Column("lane", "Engine", doc="computation, communication, or a direction of copies", show="symbol", color_by="member"),
    Column("union_ns", "Runs", "ns", "time in which at least one event of the lane runs in the window"),
    Column("hidden_ns", "Hidden", "ns", "the part of it behind computation", missing="neither hidden nor exposed"),
    Column("exposed_ns", "Exposed", "ns", "the rest of it", missing="neither hidden nor exposed"),
    Column("member", "Color", doc="color of the lane", rank=3),
)
LANE_PX: Final = 40
LEAST_SHARE: Final = 1 / 1200
"""Shapes are drawn at least this part of the window wide, so that a short copy can be seen."""


class MemcpyQuery(Query, kw_only=True, frozen=True):
    """by: what the rows of the table are: directions, or each direction by one of these"""

    by: groups.By = "direction"


@analysis(
    title="Memory copies",
    question="What do copies cost, and do they use the link?",
    group="Speed of light",
    order=20,
    requirements=("moves",),
    query=MemcpyQuery,
    tables={
        "copies": memcpy_tables.ALL_COLUMNS,
        "per_step": memcpy_tables.STEP_COLUMNS,
        "lanes": LANE_COLUMNS,
        "calls": memcpy_tables.CALL_COLUMNS,
        **memcpy_counted.TABLES,
    },
    facts=memcpy_tables.FACTS,
)
def run(capture: Capture, query: MemcpyQuery) -> Report:
    if memcpy_counted.opens(capture):
        return memcpy_counted.report(capture, query, query.by)
    where = scope(capture, query)
    found = records.copies(capture, where.device)
    if not len(found) and not len(records.copies(capture, np.ones(len(capture.device), bool))):
        raise Unavailable("no copy in this recording", hint="record a part of the job that moves data")
    spec = device_for(capture, query.device_limits)
    limits = bandwidth.peaks(spec)
    unsure = {d for d, column in bandwidth.columns(spec).items() if column in spec.unverified} if spec is not None else set()
    directions = memcpy_tables.limited(groups.sums(capture, where.device, "direction"), limits)
    table = directions if query.by == "direction" else memcpy_tables.limited(groups.sums(capture, where.device, query.by), limits)
    inside = in_steps(capture, where)
    launched = directions if inside.all() else groups.sums(capture, inside, "direction")
    totals = memcpy_tables.totals(directions, launched, where)
    per_step = exposure.per_step(capture, where)
    worst = exposure.worst_step(per_step)
    fitted = bandwidth.fits(found)
    counted_in_log = memcpy_counted.compared_with_trace(capture, where)
    sections: list[AnySection] = [
        *memcpy_tables.cards(capture, found, directions, limits, query.step),
        bandwidth_chart(found, limits, fitted, keyed=query.by == "direction"),
        _findings(capture, where, limits, query.step),
        *memcpy_tables.sections(capture, per_step, where, worst),
        *lanes_sections(capture, found, where, worst),
        memcpy_tables.breakdown_section(capture, found, table, query.by, totals, where, unsure, query.step),
        *memcpy_tables.calls_section(capture, where),
        *([counted_in_log] if counted_in_log is not None else []),
        memcpy_tables.numbers(totals, {d: fit for d in directions["direction"] if (fit := bandwidth.latency_fit(found, d))}),
    ]
    return Report(
        analysis="memcpy",
        title="Memory copies",
        headline=_headline(directions, launched, totals, where),
        notices=notices(capture, found, directions, limits, where, query.step, spec=spec),
        sections=sections,
    )


def _findings(capture: Capture, where: Scope, limits: dict[str, tuple[float, str]], step: str) -> FindingsSection:
    """Builds the section of the largest findings; the rest is on a page of its own."""
    judged = replayed_copies(capture, where, limits)
    found, shown = judged.found, judged.found[:FINDINGS]
    query = {"step": step} if step else {}
    length = step_ns(capture, where)
    more = f"All {len(found)}, with evidence" if len(found) > len(shown) else "With evidence"
    return FindingsSection(
        id="findings",
        title="What to fix first",
        subtitle=f"saving per step, {judged.words}" if where.steps else judged.words,
        span=5,
        findings=[to_report(f, pages=registry(), step_ns=length, keep=query) for f in shown],
        combined_ns=judged.together_ns([f for f in shown if not f.hidden]),
        empty="No copy here costs a thousandth of a step.",
        links=[Link("memcpy_findings", query, more)] if found else [],
    )


def _headline(directions: groups.Columns, launched: groups.Columns, totals: dict[str, Scalar], where: Scope) -> str:
    if not totals["count"]:
        return "No copy was launched in this selection."
    outside = int(totals["count"] or 0) - int(launched["count"].sum())
    several = bool(where.steps) and (len(where.steps) > 1 or outside > 0)
    per = "_per_step" if several else ""
    time, exposed = (human(int(totals[f"{n}{per}_ns"] or 0), "ns") for n in ("time", "exposed"))
    first = int(directions["time_ns"].argmax())
    rate, share = (float(directions[name][first]) for name in ("bandwidth_bytes_per_s", "link_share"))
    fast = f" at {human(rate, 'B/s')}" if np.isfinite(rate) else ""
    of = f", {human(share, 'ratio')} of its limit from 1 MiB on" if np.isfinite(share) else ""
    most = f"Most is {NAMES[str(directions['direction'][first])].lower()}{fast}{of}."
    shown = "all" if exposed == time else "none" if not totals[f"exposed{per}_ns"] else exposed
    if several and outside:
        rest = human(int(totals["time_ns"] or 0) - int(launched["time_ns"].sum()), "ns")
        who = "one takes" if outside == 1 else f"{human(outside, 'count')} take"
        return f"The copies of a step take **{time}**, {shown} of it exposed; outside of every step {who} {rest}. {most}"
    return f"All copies together take **{time}**{' per step' if several else ''}, {shown} of it exposed. {most}"


# -- Engines of a device in one step ----------------------------------------------------------------------------------
# compute, communication, and one lane per direction of copies; exposed copies stand out.


def lanes_sections(capture: Capture, found: pd.DataFrame, where: Scope, worst: int | None) -> list[AnySection]:
    """The lanes of the worst step, or of the whole selection where no step is the worst, drawn and as sums; nothing without copies there.

    found: the copies of the selection. worst: row of `steps`.
    """
    window, number = _lane_window(capture, found, where, worst)
    lanes = exposure.lanes(capture, window)
    if lanes is None:
        return []
    order = list(lanes.totals)
    factor, unit = F.time_scale(float(window[1] - window[0]))
    labels = [_lane_label(name, *sums) for name, sums in lanes.totals.items()]
    data: list[F.Plain] = []
    for name, label in zip(order, labels, strict=True):
        shapes = lanes.shapes[name]
        texts = _lane_hover(capture, shapes, name)
        data.append(_lane_bars(name, label, shapes, texts, window, factor, opacity=0.32 if name in lanes.exposed else 1.0))
        exposed_spans = lanes.exposed.get(name)
        if exposed_spans is not None and len(exposed_spans["start_ns"]):
            inside = np.searchsorted(shapes["start_ns"], exposed_spans["start_ns"], side="right") - 1
            data.append(_lane_bars(name, label, exposed_spans, [texts[max(i, 0)] for i in inside.tolist()], window, factor, opacity=1.0))
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
            x=F.axis(f"{unit} from {_since_start(window[0])}", range=[0, (window[1] - window[0]) / factor], showgrid=True),
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
    return [drawn, _lane_table(lanes.totals, what, window[1] - window[0])]


def _lane_table(totals: dict[str, tuple[int, int, int]], what: str, length: int) -> AnySection:
    """Returns the sums of the lanes, clipped to the window; computation and communication are neither hidden nor exposed."""
    union, hidden, exposed = (list(sums) for sums in zip(*totals.values(), strict=True))
    columns = {
        "lane": [LANES.get(n, n) for n in totals], "member": [PAINT.get(n, "other") for n in totals], "union_ns": union,
        "hidden_ns": [t if t >= 0 else None for t in hidden], "exposed_ns": [t if t >= 0 else None for t in exposed],
    }  # fmt: skip
    return make_table(
        "lanes", "Lanes", columns, LANE_COLUMNS, key="lane", subtitle=f"of {human(length, 'ns')}", span=4,
        footer="A lane is a union: what runs side by side in it counts once, whichever step launched it.",
    )  # fmt: skip


def _lane_window(capture: Capture, found: pd.DataFrame, where: Scope, worst: int | None) -> tuple[tuple[int, int], int | None]:
    """Returns the bounds of the window and the number of the step: its bounds, and what its own copies reach beyond them."""
    if worst is None:
        return where.window_ns, None
    rows = np.flatnonzero(found["step"].to_numpy() == worst)
    low, high = (int(capture.steps[c].to_numpy()[worst]) for c in ("start_ns", "end_ns"))
    if len(rows):
        start = found["start_ns"].to_numpy()[rows]
        low, high = min(low, int(start.min())), max(high, int((start + found["duration_ns"].to_numpy()[rows]).max()))
    number = int(capture.steps["number"].to_numpy()[worst])
    return (low, high), number if number >= 0 and not capture.facts.pseudo_step else None


def _since_start(at: int) -> str:
    """Returns where the window begins, in words."""
    return f"{human(at, 'ns')} into the recording" if at else "the start of the recording"


def _lane_label(name: str, union: int, hidden: int, exposed: int) -> str:
    hidden_text = "hidden" if not exposed else "all exposed" if not hidden else f"{human(exposed, 'ns')} exposed"
    text = human(union, "ns") if exposed < 0 else f"{human(union, 'ns')}, {hidden_text}"
    return f"{LANES.get(name, name)}<br><span style='font-size:10.5px'>{text}</span>"


def _lane_bars(
    name: str, label: str, spans: Mapping[str, Ints], texts: list[str], window: tuple[int, int], factor: float, *, opacity: float
) -> F.Plain:
    start, end = spans["start_ns"] - window[0], spans["end_ns"] - window[0]
    length = np.maximum(end - start, (window[1] - window[0]) * LEAST_SHARE)
    return {
        "type": "bar", "orientation": "h", "name": LANES.get(name, name), "y": [label] * len(start), "base": (start / factor).tolist(),
        "x": (length / factor).tolist(), "marker": {"color": F.light(PAINT.get(name, "other")), "opacity": opacity, "line": {"width": 0}},
        "hovertext": texts, "hovertemplate": "%{hovertext}<extra></extra>", "showlegend": False,
    }  # fmt: skip


def _lane_hover(capture: Capture, shapes: Mapping[str, Ints], lane: str) -> list[str]:
    """Returns what hovering a shape says: a single copy by name, size, rate and operator; merged ones by their sums."""
    if lane in (exposure.COMPUTE_LANE, exposure.COMMUNICATION_LANE):
        return [f"<b>{LANES[lane]}</b><br>{text}" for text in humans((shapes["end_ns"] - shapes["start_ns"]).tolist(), "ns")]
    row, count, size, busy = (shapes[c] for c in ("row", "count", "bytes", "busy_ns"))
    heads = np.array([f"{text} copies, too close to tell apart" for text in humans(count.tolist(), "count")], object)
    single = np.flatnonzero(row >= 0)
    heads[single] = arrays.per_text(capture.device["name"], row[single], _escaped, object)
    owners = np.full(len(row), "", object)
    owner = capture.device["operator"].to_numpy()[row[single]]
    owned = owner >= 0
    by = arrays.per_text(capture.host["name"], owner[owned], lambda name: f"<br>{_escaped(name)}" if name else "", object)
    owners[single[owned]] = by
    return [
        f"<b>{head}</b><br>{much}{time}{called}"
        for head, much, time, called in zip(heads, _amounts(size, busy), humans(busy.tolist(), "ns"), owners, strict=True)
    ]


def _amounts(size: Ints, busy: Ints) -> list[str]:
    """Returns sizes and rates in words; -1: not recorded."""
    rate = np.full(len(size), "", object)
    rated = np.flatnonzero((size > 0) & (busy > 0))
    rate[rated] = [f" at {text}" for text in humans((size[rated] / busy[rated] * 1e9).tolist(), "B/s")]
    sizes = zip(size.tolist(), humans(np.maximum(size, 0).tolist(), "B"), rate.tolist(), strict=True)
    return [f"{text}{fast}, " if number >= 0 else "no size recorded, " for number, text, fast in sizes]


def _escaped(name: str) -> str:
    """Returns a recorded name as text of a figure: nothing of it is markup."""
    text = name if len(name) <= 80 else name[:50] + "…" + name[-29:]
    return F.escape(text)


# -- Bandwidth by copy size -------------------------------------------------------------------------------------------
# bandwidth over size, the limit of each direction's link, and the latency and rate fitted to each kind.


def bandwidth_chart(
    found: pd.DataFrame, limits: dict[str, tuple[float, str]], fitted: list[bandwidth.Fit], *, keyed: bool
) -> FigureSection:
    """Draws bandwidth over size, with the limit of each link. keyed: the points carry the direction as the key of their table row."""
    points = _binned(found)
    title = "Bandwidth by copy size"
    direction, size, rate = (points[name] for name in ("direction", "size", "rate"))
    if not len(size):
        summary = "No copy carries both a size and a time."
        return FigureSection(id="bandwidth", title=title, span=7, height=160, figure=F.figure([]), summary=summary, table="copies")
    low, high = float(size.min()), float(size.max())
    span = np.geomspace(low / 2, high * 2, 60)
    there = set(direction.tolist())
    drawn = [n for n in NAMES if n in there]
    longest = float(points["time"].max())
    of = {n: np.flatnonzero(direction == n) for n in drawn}
    data: list[F.Plain] = [_markers(n, {c: v[of[n]] for c, v in points.items()}, longest, keyed=keyed) for n in drawn]
    seen: set[str] = set()
    for fit in (f for f in fitted if not f.why):
        curve = span / (fit.latency_ns + span / fit.bytes_per_s * 1e9) * 1e9
        kinds = memory_text(fit.direction, fit.src_kind, fit.dst_kind)
        what = f"{NAMES.get(fit.direction, fit.direction)}{f', {kinds}' if kinds else ''}"
        words = f"{what}: {human(fit.latency_ns, 'ns')} + bytes / {human(fit.bytes_per_s, 'B/s')}"
        dash = "dot" if fit.direction in seen else "dash"
        data.append(_line(span.tolist(), curve.tolist(), COLORS.get(fit.direction, "other"), dash, words))
        seen.add(fit.direction)
    tops = [float(rate.max())]
    lines: dict[str, float] = {}
    of_large = (found["bytes"].to_numpy() >= bandwidth.LARGE) & (found["duration_ns"].to_numpy() > 0)
    large = set(pd.unique(found["direction"].to_numpy(object)[of_large]).tolist()) | {"HtoD", "DtoH"}
    for name in drawn:
        if name in limits and name in large and limits[name][1] not in lines:
            peak, what = limits[name]
            lines[what] = peak
            tops.append(peak)
            text = f"{what}, {human(peak, 'B/s')}"
            line = _line([float(span[0]), float(span[-1])], [peak, peak], COLORS.get(name, "other"), "solid", text)
            data.append(line | {"mode": "lines+text", "text": [text, ""], "textposition": "top right"})
    fastest = int(rate.argmax())
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
            y=F.axis("bandwidth", **F.decades(float(rate.min()), max(tops), "B/s")),
            margin={"l": 78, "r": 14, "t": 10, "b": 46},
            showlegend=True,
        ),
        summary=f"The fastest copies are {NAMES[str(direction[fastest])].lower()}, {human(float(rate[fastest]), 'B/s')}.",
    )


def _markers(name: str, points: Mapping[str, npt.NDArray[Any]], longest: float, *, keyed: bool) -> F.Plain:
    size, rate, time = (points[c] for c in ("size", "rate", "time"))
    area = np.maximum(6.0, 26.0 * np.sqrt(time / longest))
    words = (points["count"].tolist(), *(humans(v.tolist(), unit) for v, unit in ((size, "B"), (rate, "B/s"), (time, "ns"))))
    trace: F.Plain = {
        "type": "scatter", "mode": "markers", "name": NAMES[name], "x": size.tolist(), "y": rate.tolist(),
        "marker": {"symbol": F.symbol(name), "size": area.tolist(), "color": F.light(COLORS.get(name, "other")), "opacity": 0.8,
                   "line": {"width": 0.8, "color": F.light("surface")}},
        "hovertext": [f"{how_many(n, 'copy', 'copies')} of {s}<br>{r}, {t} in all" for n, s, r, t in zip(*words, strict=True)],
        "hovertemplate": f"<b>{NAMES[name]}</b><br>%{{hovertext}}<extra></extra>",
    }  # fmt: skip
    return trace | ({"customdata": [name] * len(size)} if keyed else {})


def _line(x: list[float], y: list[float], color: str, dash: str, name: str) -> F.Plain:
    return {
        "type": "scatter", "mode": "lines", "name": name, "x": x, "y": y, "hoverinfo": "name", "showlegend": False,
        "textfont": {"size": 11, "color": F.light("ink-2")},
        "line": {"color": F.light(color), "width": 1.6 if dash == "solid" else 1.2, "dash": dash},
    }  # fmt: skip


def _binned(found: pd.DataFrame) -> dict[str, npt.NDArray[Any]]:
    """Returns copies of nearly equal size and rate as one point: quarters of a power of two by sixteenths of a decade."""
    size, time = found["bytes"].to_numpy(), found["duration_ns"].to_numpy()
    rows = np.flatnonzero((size > 0) & (time > 0))
    size, time = size[rows].astype(np.float64), time[rows].astype(np.float64)
    code, names = records.memory_kinds(found).column(0)
    direction = code[rows]
    cell = arrays.together(direction, *(np.round(v).astype(np.int64) for v in (4 * np.log2(size), 16 * np.log10(size / time))))
    cells = int(cell.max(initial=-1)) + 1
    count = np.bincount(cell, minlength=cells)
    moved, took = (np.bincount(cell, weights, minlength=cells) for weights in (size, time))
    first = arrays.first_of(cell, cells)
    return {"direction": names[direction[first]], "count": count, "time": took, "size": moved / count, "rate": moved / took * 1e9}
