"""Memory over time, and what held it at its peak.

What is in use and what the allocator holds, of each device and of the host, from whatever the recording has: memory events of a trace,
an allocator snapshot, a memory timeline, or records of the program. The rows of what holds memory add up to what was in use exactly.
A window of time, a step or another moment may be looked at: all numbers and tables are then of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.memory import memory_tables
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.memory import curves as C
from tb_sol_plugin.metrics.memory.allocations import with_categories
from tb_sol_plugin.metrics.memory.attribution import GROUPINGS, By, attribution, groupings_of
from tb_sol_plugin.metrics.memory.categories import outer_phases
from tb_sol_plugin.metrics.memory.curves import NO_TIMES, Curves
from tb_sol_plugin.metrics.memory.curves import steps as steps_of
from tb_sol_plugin.metrics.memory.labels import CATEGORIES, color, label, since
from tb_sol_plugin.metrics.memory.leaks import best_leak
from tb_sol_plugin.metrics.memory.sources import SOURCES, Memory, Source, chosen_memory, memories, moment, origin, window_of
from tb_sol_plugin.metrics.memory.summary import Summary, headroom, summary
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, FieldNow, FigureSection, Link, Notice, Report, Stretch, Zoom
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import capitalized, human, humans, scale_of

MOST_SHOWN: Final = 6
"""Steps stand beside what holds memory where they are not so many rows more."""
FEW: Final = 5
"""Notes of a source that are shown above the page."""
FOOTER_NOTES: Final = (C.HOST_RESERVED, C.HOST_SINCE, C.SAMPLES, C.EARLIER, C.REQUESTED)
"""Notes that stand below the numbers."""


class MemoryQuery(Query, kw_only=True, frozen=True):
    """by: what holds memory, by which names; auto takes the first that the recording can answer
    device: which memory: its name as the page says it ("" = the device with most in use)
    source: where the numbers are from; auto takes the first that there is, in this order
    window: part of the recording to look at, as 12.5ms-40ms since its start ("" = all of it)
    at: moment at which to say what holds memory, as 12.5ms since the start of the recording ("" = the peak)
    min_bytes: only allocations of at least so many bytes
    """

    by: Literal["auto", "category", "module", "operator", "frame", "phase"] = "auto"
    device: str = ""
    source: Source = "auto"
    window: str = ""
    at: str = ""
    min_bytes: int = 0


@analysis(
    title="Memory",
    question="What holds memory at the peak?",
    group="Run",
    order=10,
    requirements=("memory_use",),
    query=MemoryQuery,
    tables={
        "curve": memory_tables.CURVE,
        "peak": memory_tables.PEAK_COLUMNS,
        "operators": memory_tables.OPERATOR_COLUMNS,
        "allocations": memory_tables.ALLOCATION_COLUMNS,
        "per_step": memory_tables.STEP_COLUMNS,
        "devices": memory_tables.DEVICES,
    },
    facts=memory_tables.FACTS,
)
def run(capture: Capture, query: MemoryQuery) -> Report:
    if query.min_bytes < 0:
        raise BadQuery(f"min_bytes is {query.min_bytes}", hint="give a number of bytes, 0 for all", field="min_bytes")
    if not memories(capture):
        raise Unavailable(
            "memory was recorded, and no device's allocator was in it", hint="record on a device, or with profile(profile_memory=True)"
        )
    memory, whole = chosen_memory(capture, query.device, query.source)
    whole = replace(whole, events=memory.failures)
    window = window_of(capture, whole, query.window, query)
    start = origin(capture)
    at = moment(query.at)
    curve = C.within(whole, window)
    at_ns = _moment(at, start, whole)
    by, why = _grouping(capture, whole, query.by)
    found = summary(capture, curve, limits=query.device_limits)
    if found is None:
        raise Unavailable("no level of memory in use was recorded", hint="record with profile(profile_memory=True)")
    peak_held = attribution(capture, curve, by)
    held = attribution(capture, whole, by, at_ns) if at_ns is not None else peak_held
    room = headroom(capture, whole, limits=query.device_limits)
    part = _part(query, window, start)
    kept = _kept(query)
    axis = axis_of(curve, window, start, int(capture.facts.extent_ns[1]))
    callers, lifetimes = memory.teller(whole, ("events",)), memory.teller(whole, ("events", "snapshot"))
    single = memory_tables.allocations_section(
        capture, lifetimes, window, query.min_bytes, start, _selection_text(part, lifetimes, whole), axis.scale
    )
    by_step = memory_tables.steps_section(
        capture, whole, start, axis.scale, {n: v for n, v in kept.items() if n not in ("window", "step", "at")}
    )
    drawn = C.thin(C.within(with_categories(capture, whole), window), memory_tables.POINTS)
    others = query.source if not query.device.strip() else None
    stretches = {"allocations": single.stretches} | ({"per_step": by_step.stretches} if by_step is not None else {})
    holds = memory_tables.peak_section(held, by, start, at_peak=at_ns is None, why=why, query={n: v for n, v in kept.items() if n != "at"})
    sections: list[AnySection] = [
        memory_tables.tiles_section(
            found, start, room=room, growth=best_leak(capture, memory.curves), remarks=[n for n in whole.notes if n in FOOTER_NOTES]
        ),
        curve_figure(
            capture,
            drawn,
            found,
            axis,
            chosen=(at_ns, held.total) if at_ns is not None else None,
            stretches=stretches,
            title=f"{capitalized(memory.label)} over time",
        ),
        holds,
        *([by_step.table] if by_step is not None else []),
        memory_tables.operators_section(capture, callers, window, _selection_text(part, callers, whole)),
        single.table,
        *memory_tables.devices(capture, memory, whole, query.device_limits),
        memory_tables.curve(capture, memory, drawn, start, window=window, others=others),
    ]
    if by_step is not None:
        room_beside = len(by_step.table.data["step"]) <= len(holds.data["name"]) + MOST_SHOWN
        holds.span = by_step.table.span = 6 if room_beside else 12
    return Report(
        analysis="memory",
        title="Memory",
        headline=memory_tables.headline(
            found, peak_held, by, memory.label, start, part=part, room=room, since_start=C.HOST_SINCE in whole.notes
        ),
        notices=_notices(whole, memory, query, kept, start),
        sections=sections,
        fields=_fields(capture, memory, whole, query),
    )  # fmt: skip


def _fields(capture: Capture, memory: Memory, whole: C.Curves, query: MemoryQuery) -> dict[str, FieldNow]:
    """Returns what there is to choose from in this recording; what was asked for stays among it."""
    sources = [c.source for c in memory.curves]
    devices = [m.label for m in memories(capture)[: memory_tables.MOST_DEVICES]]
    values = {
        "device": ([] if memory.label in devices else [memory.label]) + devices,
        "source": ["auto", *(sources if len(sources) > 1 or query.source != "auto" else [])],
        "by": ["auto", *(by for by in GROUPINGS if by in groupings_of(capture, whole) or by == query.by)],
    }
    return {name: FieldNow(memory.label if name == "device" else "", tuple(found)) for name, found in values.items()}


def _moment(at: int | None, start: int, whole: C.Curves) -> int | None:
    """Returns ns of the capture. BadQuery before the first level is known, or after the end."""
    if at is None:
        return None
    return max(at + start, int(whole.time_ns[0]))


def _grouping(capture: Capture, curve: C.Curves, requested: str) -> tuple[By, str]:
    """Returns what the rows of the table are, and why it cannot be answered, "" where it can."""
    can = groupings_of(capture, curve)
    if requested == "auto":
        first: By = "category" if "category" in can or not can else can[0]
        return first, "" if can else "This source does not record what it belongs to."
    by = next(g for g in GROUPINGS if g == requested)
    if by in can:
        return by, ""
    other = f"; it can by {', '.join(can)}" if can else ""
    return by, f"This source cannot be grouped by {by}{other}."


def _ran_out(whole: C.Curves, query: MemoryQuery, start: int) -> Notice:
    """Says that an allocation failed, and what was free."""
    last, many = whole.events[-1], len(whole.events)
    size = human(last.bytes, "B") if last.bytes >= 0 else "a request"
    text = f"Memory ran out: {size} could not be allocated" + ("" if C.NO_TIMES in whole.notes else f" at {since(last.time_ns, start)}")
    if whole.allocated is not None and len(whole.time_ns) and not whole.relative:
        text += f", with {human(int(whole.allocated[whole.at(last.time_ns)]), 'B')} in use"
        text += f" and {human(last.free, 'B')} free on the device" if last.free >= 0 else ""
    more = f" {human(many - 1, 'count')} more failed before." if many > 1 else ""
    keep = {n: v for n in ("device", "device_limits") if (v := str(getattr(query, n)))}
    return Notice(f"{text}.{more}", "warn", Link("memory_findings", keep, "Why"))


def _part(query: MemoryQuery, window: tuple[int, int] | None, start: int) -> str:
    """Returns the part that is looked at, in words; "" for all."""
    if window is None:
        return ""
    if not query.window.strip():
        return f"step {query.step.strip()}"
    return f"{human(window[0] - start, 'ns')} to {human(window[1] - start, 'ns')}"


def _selection_text(part: str, by: C.Curves, whole: C.Curves) -> str:
    """Returns the part in words, with the source where it is not the one that is shown."""
    return ", ".join(t for t in (part, f"from {SOURCES[by.source]}" if by.source != whole.source else "") if t)


def _kept(query: MemoryQuery) -> dict[str, str]:
    """Returns the query as links carry it on."""
    values = {n: str(getattr(query, n)) for n in ("device", "source", "by", "window", "at", "step", "min_bytes", "device_limits")}
    return {n: v for n, v in values.items() if v not in ("", "auto", "0")}


def _notices(whole: C.Curves, memory: Memory, query: MemoryQuery, kept: dict[str, str], start: int) -> list[Notice]:
    """Says whether memory ran out, what to know of the source, which other one records more, and the way back from a window."""
    out = []
    if whole.events:
        out.append(_ran_out(whole, query, start))
    fuller = max((c for c in memory.curves if c.source != whole.source and not c.relative), key=lambda c: c.peak, default=None)
    if C.HOST_SINCE in whole.notes and fuller is not None and fuller.peak > whole.peak:
        more = f"The {SOURCES[fuller.source]} counts what was there before as well: {human(fuller.peak, 'B')} in use at most."
        others = {n: v for n, v in kept.items() if n not in ("window", "at", "by")}
        out.append(Notice(more, "info", Link("memory", others | {"source": fuller.source, "device": memory.label}, "Look at that")))
    if query.window.strip():
        rest = {n: v for n, v in kept.items() if n not in ("window", "at")}
        out.append(Notice("Numbers and tables are of the window that is drawn.", "info", Link("memory", rest, "Whole recording")))
    return out + [Notice(f"{capitalized(note)}.") for note in whole.notes[:FEW] if note not in FOOTER_NOTES]


# -- Memory over time -------------------------------------------------------------------------------------------------
# what is in use and reserved as steps, what it is for where that is known, the limit, and marks.


MOST_MARKS: Final = 60
"""Steps and phases that are marked; of more, the longest phases and every n-th step. Names stand where they have room."""
STEP_LABEL_SHARE: Final = 0.07
"""A step has its name where it has this share of the axis."""
PHASE_LABEL_SHARE: Final = 0.045
"""A phase has its name where it takes this share of the axis."""
DEVICE_FAR: Final = 3.0
"""The limit is drawn where it is not more than so many times the largest value: else the curve would be a line at the bottom."""
PALE_ALPHA: Final = "26"
"""15 % of a color, as its last two digits."""
NAMES_AT: Final = 0.995
"""Names of phases stand at this height of the figure, above the levels."""
TINTS: Final = (0.12, 0.08, 0.05, 0.03)


@dataclass(frozen=True)
class Axis:
    """The axis of time. origin: ns of its 0. scale: ns per unit. low, high: its ends in ns of the capture."""

    origin: int
    scale: float
    unit: str
    low: int
    high: int

    def x(self, ns: Ints | Iterable[int]) -> list[float]:
        """Converts times of the capture to units of the axis."""
        return ((np.asarray(list(ns) if not isinstance(ns, np.ndarray) else ns, np.int64) - self.origin) / self.scale).tolist()  # type: ignore[no-any-return]

    def share(self, start: int, end: int) -> float:
        """Returns the share of the axis that a stretch of time takes."""
        return (end - start) / max(self.high - self.low, 1)


def axis_of(curve: Curves, window: tuple[int, int] | None, origin: int, last: int) -> Axis:
    """Returns the axis of the window, else of the curve and its recording. A history without times is drawn entry by entry."""
    low, high = window if window is not None else (min(int(curve.time_ns[0]), origin), max(int(curve.time_ns[-1]), last))
    if NO_TIMES in curve.notes:
        return Axis(origin, 1.0, "", low, max(high, low + 1))
    scale, unit = F.time_scale(max(abs(low - origin), abs(high - origin), 1))
    return Axis(origin, scale, unit, low, max(high, low + 1))


def curve_figure(
    capture: Capture,
    curve: Curves,
    found: Summary,
    axis: Axis,
    *,
    chosen: tuple[int, int] | None,
    stretches: dict[str, dict[str, Stretch]],
    title: str,
) -> FigureSection:
    """Draws memory over time. curve: the part to draw, thinned. chosen: a moment and what was in use then, None for the peak."""
    data, top, unit, scale = _levels(curve, axis)
    shapes, notes = _step_marks(capture, axis)
    named = any(n["y"] == NAMES_AT for n in notes)
    limit = found.capacity.bytes
    near = limit is not None and not curve.relative and limit <= DEVICE_FAR * top
    if near and limit is not None:
        shapes.append(_shape(y=limit / scale, color="ink-2", width=1.6))
        notes.append(
            _note_at(
                1,
                limit / scale,
                f"<b>memory of the device, {human(limit, 'B')}</b>",
                xref="paper",
                xanchor="right",
                yanchor="top",
                yshift=-1,
            )
        )
    points, words = _points(curve, axis, scale, chosen)
    data, notes = [*data, *points], [*notes, *words]
    data += _failures(curve, axis, scale)
    if chosen is not None:
        shapes.append(_shape(x=axis.x([chosen[0]])[0], color="accent", width=1.4, dash="3px,3px"))
    high = max(top * (1.24 if named else 1.1), limit * 1.1 if near and limit is not None else 0) / scale
    low = min(int(curve.allocated.min()) if curve.allocated is not None else 0, 0) / scale
    ends = axis.x([axis.low, axis.high])
    measure = "change since the beginning" if curve.relative else "memory"
    drawn = F.figure(
        data,
        x=F.axis(f"since the start of the recording, {axis.unit}" if axis.unit else "entry of the history", range=ends),
        y=F.axis(f"{measure}, {unit}", range=[low * 1.08, high or 1], fixedrange=True, rangemode="normal"),
        shapes=shapes, annotations=notes, hovermode="x", hoverdistance=-1, showlegend=True, margin={"l": 58, "r": 14, "t": 30, "b": 46},
    )  # fmt: skip
    return FigureSection(
        id="curve_figure", title=title, figure=drawn, height=380, table="curve", stretches={n: s for n, s in stretches.items() if s},
        zoom=Zoom("window", "at", axis.scale), summary=_summary(curve, found, axis),
        subtitle="" if near or limit is None else f"of {human(limit, 'B')}, {human(top / limit, 'ratio')} of which is drawn",
    )  # fmt: skip


def _levels(curve: Curves, axis: Axis) -> tuple[list[F.Plain], float, str, float]:
    """Returns (traces, largest value in bytes, unit of the axis, bytes per unit)."""
    x = axis.x(curve.time_ns)
    allocated = curve.allocated if curve.allocated is not None else np.zeros(len(x), np.int64)
    levels = [level for level in (allocated, curve.reserved, curve.highest) if level is not None and len(level)]
    top = float(max((int(np.abs(level).max()) for level in levels), default=0)) or 1.0
    scale, unit = scale_of(top, "B")
    end = axis.x([axis.high])[0]

    def drawn(level: Ints, name: str, **more: object) -> F.Plain:
        """Returns a line of steps that holds its last level to the edge."""
        y = (level / scale).tolist()
        return {"type": "scatter", "mode": "lines", "name": name, "x": [*x, end], "y": [*y, y[-1]], "hoverinfo": "skip"} | more

    data: list[F.Plain] = []
    for name in sorted(curve.categories, key=lambda n: list(CATEGORIES).index(n) if n in CATEGORIES else len(CATEGORIES)):
        if not curve.categories[name].any():
            continue
        line: F.Plain = {"shape": "hv", "width": 0}
        about = "≈ " if curve.source == "events" and not curve.measured and name not in ("before", "unknown") else ""
        text = about + F.escape(label(name))
        data.append(drawn(curve.categories[name], text, stackgroup="for", line=line, fillcolor=F.light(color(name)), opacity=0.8))
    stacked = bool(data)
    if curve.reserved is not None:
        data.append(drawn(curve.reserved, "reserved", line={"shape": "hv", "width": 1.4, "color": F.light("ink-3"), "dash": "4px,3px"}))
    if curve.highest is not None and (curve.highest >= 0).any():
        known = np.where(curve.highest >= 0, curve.highest, allocated)
        line = {"shape": "vh", "width": 1.2, "color": F.light("communication")}
        data.append(drawn(known, "most since the record before", line=line))
    texts = _hover(curve, axis)
    fill: F.Plain = {} if stacked else {"fill": "tozeroy", "fillcolor": F.light("compute") + PALE_ALPHA}
    line = {"shape": "hv", "width": 0.8 if stacked else 1.6, "color": F.light("ink" if stacked else "compute")}
    data.append(drawn(allocated, "in use", line=line, **fill) | {"hoverinfo": "text", "hovertext": [*texts, texts[-1]]})
    return data, top, unit, scale


def _hover(curve: Curves, axis: Axis) -> list[str]:
    """Returns every level at each point, the time first."""
    allocated = curve.allocated if curve.allocated is not None else np.zeros(len(curve.time_ns), np.int64)
    columns = [("in use" if not curve.relative else "change", allocated)]
    columns += [("reserved", curve.reserved)] if curve.reserved is not None else []
    columns += [("most since the record before", curve.highest)] if curve.highest is not None else []
    columns += [(F.escape(label(n)), level) for n, level in curve.categories.items() if level.any()]
    columns_of_lines = [[f"<b>{time}</b>" for time in humans((curve.time_ns - axis.origin).tolist(), "ns")]]
    for name, level in columns:
        code, distinct = pd.factorize(level)
        values = distinct.tolist()
        lines = [f"{name}: {text}" if v or name == "in use" else "" for v, text in zip(values, humans(values, "B"), strict=True)]
        columns_of_lines.append(np.array(lines, object)[code].tolist())
    return ["<br>".join(filter(None, lines)) for lines in zip(*columns_of_lines, strict=True)]


def _points(curve: Curves, axis: Axis, scale: float, chosen: tuple[int, int] | None) -> tuple[list[F.Plain], list[F.Plain]]:
    """Returns (points, words beside them) of the peak, and of the moment that was chosen: its time and what was in use then."""
    points = [(curve.peak_ns, curve.peak, "peak ", "accent" if chosen is None else "ink-3")] if curve.peak_ns >= 0 else []
    points += [(*chosen, "", "accent")] if chosen is not None else []
    marks: list[F.Plain] = []
    notes: list[F.Plain] = []
    for time, level, words, token in points:
        if not axis.low <= time <= axis.high:
            continue
        x = axis.x([time])[0]
        ring: F.Plain = {"size": 9, "symbol": "circle", "color": F.light(token), "line": {"width": 1.5, "color": F.light("surface")}}
        marks.append({
            "type": "scatter", "mode": "markers", "x": [x], "y": [level / scale], "marker": ring, "hoverinfo": "skip",
            "name": words.strip() or "chosen", "showlegend": False, "cliponaxis": False,
        })  # fmt: skip
        right = axis.share(axis.low, time) > 0.8
        side = {"xanchor": "right", "xshift": -7} if right else {"xanchor": "left", "xshift": 7}
        ground: F.Plain = {"bgcolor": F.light("surface"), "opacity": 0.85, "borderpad": 1, "yanchor": "bottom", "yshift": 4}
        notes.append(_note_at(x, level / scale, f"<b>{words}{human(level, 'B')}</b>", color=token, **side, **ground))
    return marks, notes


def _failures(curve: Curves, axis: Axis, scale: float) -> list[F.Plain]:
    found = [e for e in curve.events if e.what == "oom"]
    if not found or curve.allocated is None:
        return []
    levels = [int(curve.allocated[curve.at(e.time_ns)]) / scale for e in found]
    words = [
        f"<b>allocation of {human(e.bytes, 'B')} failed</b>" + (f"<br>free on the device: {human(e.free, 'B')}" if e.free >= 0 else "")
        for e in found
    ]
    marker: F.Plain = {"size": 11, "symbol": "x", "color": F.light("error"), "line": {"width": 1, "color": F.light("surface")}}
    return [{
        "type": "scatter", "mode": "markers", "name": "failed allocation", "x": axis.x([e.time_ns for e in found]), "y": levels,
        "marker": marker,
        "hoverinfo": "text", "hovertext": words, "cliponaxis": False,
    }]  # fmt: skip


def _step_marks(capture: Capture, axis: Axis) -> tuple[list[F.Plain], list[F.Plain]]:
    """Returns lines at the starts of steps, tinted stretches of phases, with names where they have room."""
    shapes: list[F.Plain] = []
    notes: list[F.Plain] = []
    number, first, last = (steps_of(capture)[name].to_numpy() for name in ("number", "start_ns", "end_ns"))
    there = np.flatnonzero((last > axis.low) & (first < axis.high))
    there = there[np.argsort(first[there], kind="stable")]
    there = there[:: max(1, -(-len(there) // MOST_MARKS))]
    free = 0.0  # of the axis, from the right: where the next name on it begins
    for name, start in zip(number[there][::-1].tolist(), first[there][::-1].tolist(), strict=True):
        begin = max(start, axis.low)
        place = axis.share(begin, axis.high)
        if start >= axis.low:
            shapes.append(_shape(x=axis.x([begin])[0], color="line-strong", width=1))
        if place - free >= STEP_LABEL_SHARE:
            free = place
            notes.append(
                _note_at(axis.x([begin])[0], 1, f"step {name}", yref="paper", xanchor="left", yanchor="bottom", yshift=2, color="ink-3")
            )
    labels, first, last = outer_phases(capture)
    there = np.flatnonzero((last > axis.low) & (first < axis.high))
    if len(there) > MOST_MARKS:
        longest = np.argsort(-(last - first)[there].astype(np.int64), kind="stable")[:MOST_MARKS]
        there = there[longest][np.argsort(first[there[longest]].astype(np.int64), kind="stable")]
    tints: dict[str, float] = {}
    for name, start, end in zip(labels[there], first[there], last[there], strict=True):
        begin, stop = max(int(start), axis.low), min(int(end), axis.high)
        tint = tints.setdefault(str(name), TINTS[len(tints) % len(TINTS)])
        ends = axis.x([begin, stop])
        shapes.append({
            "type": "rect", "xref": "x", "yref": "paper", "x0": ends[0], "x1": ends[1], "y0": 0, "y1": 1, "layer": "below",
            "fillcolor": F.light("accent"), "opacity": tint, "line": {"width": 0},
        })  # fmt: skip
        if axis.share(begin, stop) >= PHASE_LABEL_SHARE:
            shown = F.escape(_cut(str(name), axis.share(begin, stop)))
            notes.append(_note_at(ends[0], NAMES_AT, shown, yref="paper", xanchor="left", yanchor="top", xshift=3))
    return shapes, notes


def _cut(name: str, share: float) -> str:
    """Cuts a name to its stretch, of some 160 letters across the figure."""
    room = max(int(share * 160), 4)
    return name if len(name) <= room else name[: room - 1] + "…"


def _shape(*, x: float | None = None, y: float | None = None, color: str, width: float, dash: str = "solid") -> F.Plain:
    upright = x is not None
    place: F.Plain = {"xref": "x", "yref": "paper", "x0": x, "x1": x, "y0": 0, "y1": 1}
    if not upright:
        place = {"xref": "paper", "yref": "y", "x0": 0, "x1": 1, "y0": y, "y1": y}
    return {
        "type": "line",
        "layer": "below" if upright else "above",
        "line": {"color": F.light(color), "width": width, "dash": dash},
        **place,
    }


def _note_at(x: float, y: float, text: str, *, color: str = "ink-2", **more: object) -> F.Plain:
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": {"size": 11.5, "color": F.light(color)}, **more}


def _summary(curve: Curves, found: Summary, axis: Axis) -> str:
    text = f"Memory in use on {curve.device or 'the device'} over {human(axis.high - axis.low, 'ns')}"
    peak = f", at most {human(found.peak, 'B')} at {human(found.peak_ns - axis.origin, 'ns')}"
    held = f"; reserved at most {human(found.reserved, 'B')}" if found.reserved is not None else ""
    return f"{text}{peak}{held}."
