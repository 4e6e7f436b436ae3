"""Memory over time, and what held it at its peak.

What is in use and what the allocator holds, of each device and of the host, from whatever the recording has: memory events of a trace,
an allocator snapshot, a memory timeline, or records of the program. The rows of what holds memory add up to what was in use exactly.
A window of time, a step or another moment may be looked at: all numbers and tables are then of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

from tb_sol_plugin.analyses.memory import memory_figures, memory_tables
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.memory import curves as C
from tb_sol_plugin.metrics.memory.allocations import with_categories
from tb_sol_plugin.metrics.memory.attribution import GROUPINGS, By, attribution, groupings_of
from tb_sol_plugin.metrics.memory.labels import since
from tb_sol_plugin.metrics.memory.leaks import best_leak
from tb_sol_plugin.metrics.memory.sources import SOURCES, Memory, Source, chosen_memory, memories, moment, origin, window_of
from tb_sol_plugin.metrics.memory.summary import headroom, summary
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, FieldNow, Link, Notice, Report
from tb_sol_plugin.units import capitalized, human

ABOUT: Final = 6
"""Steps stand beside what holds memory where they are not so many rows more."""
FEW: Final = 5
"""Notes of a source that are shown above the page."""
QUIET: Final = (C.HOST_RESERVED, C.HOST_SINCE, C.SAMPLES, C.EARLIER, C.REQUESTED)
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
    axis = memory_figures.axis_of(curve, window, start, int(capture.facts.extent_ns[1]))
    callers, lives = memory.teller(whole, ("events",)), memory.teller(whole, ("events", "snapshot"))
    single = memory_tables.allocations_section(capture, lives, window, query.min_bytes, start, _told(part, lives, whole), axis.scale)
    by_step = memory_tables.steps_section(
        capture, whole, start, axis.scale, {n: v for n, v in kept.items() if n not in ("window", "step", "at")}
    )
    drawn = C.thin(C.within(with_categories(capture, whole), window), memory_tables.POINTS)
    others = query.source if not query.device.strip() else None
    stretches = {"allocations": single.stretches} | ({"per_step": by_step.stretches} if by_step is not None else {})
    holds = memory_tables.peak_section(held, by, start, at_peak=at_ns is None, why=why, query={n: v for n, v in kept.items() if n != "at"})
    sections: list[AnySection] = [
        memory_tables.tiles_section(
            found, start, room=room, growth=best_leak(capture, memory.curves), remarks=[n for n in whole.notes if n in QUIET]
        ),
        memory_figures.section(
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
        memory_tables.operators_section(capture, callers, window, _told(part, callers, whole)),
        single.table,
        *memory_tables.devices(capture, memory, whole, query.device_limits),
        memory_tables.curve(capture, memory, drawn, start, window=window, others=others),
    ]
    if by_step is not None:
        room_beside = len(by_step.table.data["step"]) <= len(holds.data["name"]) + ABOUT
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
    """What there is to choose from in this recording; what was asked for stays among it."""
    sources = [c.source for c in memory.curves]
    devices = [m.label for m in memories(capture)[: memory_tables.MOST_DEVICES]]
    values = {
        "device": ([] if memory.label in devices else [memory.label]) + devices,
        "source": ["auto", *(sources if len(sources) > 1 or query.source != "auto" else [])],
        "by": ["auto", *(by for by in GROUPINGS if by in groupings_of(capture, whole) or by == query.by)],
    }
    return {name: FieldNow(memory.label if name == "device" else "", tuple(found)) for name, found in values.items()}


def _moment(at: int | None, start: int, whole: C.Curves) -> int | None:
    """ns of the capture. BadQuery before the first level is known, or after the end."""
    if at is None:
        return None
    return max(at + start, int(whole.time_ns[0]))


def _grouping(capture: Capture, curve: C.Curves, asked: str) -> tuple[By, str]:
    """What the rows of the table are, and why it cannot be answered, "" where it can."""
    can = groupings_of(capture, curve)
    if asked == "auto":
        first: By = "category" if "category" in can or not can else can[0]
        return first, "" if can else "Whose it is, this source does not tell."
    by = next(g for g in GROUPINGS if g == asked)
    if by in can:
        return by, ""
    other = f"; it can by {', '.join(can)}" if can else ""
    return by, f"This source cannot tell it by {by}{other}."


def _ran_out(whole: C.Curves, query: MemoryQuery, start: int) -> Notice:
    """That an allocation failed, and what was there."""
    last, many = whole.events[-1], len(whole.events)
    size = human(last.bytes, "B") if last.bytes >= 0 else "a request"
    said = f"Memory ran out: {size} could not be allocated" + ("" if C.NO_TIMES in whole.notes else f" at {since(last.time_ns, start)}")
    if whole.allocated is not None and len(whole.time_ns) and not whole.relative:
        said += f", with {human(int(whole.allocated[whole.at(last.time_ns)]), 'B')} in use"
        said += f" and {human(last.free, 'B')} free on the device" if last.free >= 0 else ""
    more = f" {human(many - 1, 'count')} more failed before." if many > 1 else ""
    keep = {n: v for n in ("device", "device_limits") if (v := str(getattr(query, n)))}
    return Notice(f"{said}.{more}", "warn", Link("memory_findings", keep, "Why"))


def _part(query: MemoryQuery, window: tuple[int, int] | None, start: int) -> str:
    """The part that is looked at, in words; "" for all."""
    if window is None:
        return ""
    if not query.window.strip():
        return f"step {query.step.strip()}"
    return f"{human(window[0] - start, 'ns')} to {human(window[1] - start, 'ns')}"


def _told(part: str, by: C.Curves, whole: C.Curves) -> str:
    """The part in words, with the source where it is not the one that is shown."""
    return ", ".join(t for t in (part, f"from {SOURCES[by.source]}" if by.source != whole.source else "") if t)


def _kept(query: MemoryQuery) -> dict[str, str]:
    """The query as links carry it on."""
    values = {n: str(getattr(query, n)) for n in ("device", "source", "by", "window", "at", "step", "min_bytes", "device_limits")}
    return {n: v for n, v in values.items() if v not in ("", "auto", "0")}


def _notices(whole: C.Curves, memory: Memory, query: MemoryQuery, kept: dict[str, str], start: int) -> list[Notice]:
    """Whether memory ran out, what to know of the source, another one that tells more, and the way back from a window."""
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
    return out + [Notice(f"{capitalized(note)}.") for note in whole.notes[:FEW] if note not in QUIET]
