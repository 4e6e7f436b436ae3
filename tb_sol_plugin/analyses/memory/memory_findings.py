"""What could free memory: growth from step to step, fragmentation, what recomputing frees, state that could be divided, each with proof.

A finding says how much fixing it could free at most, over the memory in use at the peak. Two findings can speak of the same memory, so
they do not add up. Where a rule cannot speak, the page says what was not recorded and how to record it. The whole recording is looked
at, whatever step is chosen.
"""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.analyses.memory import memory_findings_tables as T
from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.expected import Batch, maximum_batch
from tb_sol_plugin.metrics.memory.fragmentation import Fragmentation, fragmentation
from tb_sol_plugin.metrics.memory.leaks import Leak
from tb_sol_plugin.metrics.memory.sources import Source, chosen_memory, memories, origin
from tb_sol_plugin.metrics.memory.summary import Amount
from tb_sol_plugin.metrics.rules.engine import Finding, Missing
from tb_sol_plugin.metrics.rules.memory import RULES, card, foremost, memory_context, memory_findings, memory_problem
from tb_sol_plugin.metrics.rules.memory.context import LEAST_SHARE, MemoryContext
from tb_sol_plugin.metrics.rules.memory.recompute import recompute
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis, registry
from tb_sol_plugin.model.report import (
    AnySection,
    Fact,
    FactsSection,
    FieldNow,
    FigureSection,
    FindingsSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    make_facts,
)
from tb_sol_plugin.tables.series import thinned
from tb_sol_plugin.units import human, humans, scale_of

MOST_DEVICES: Final = 16
"""Devices to choose from."""
FEWEST_STEPS: Final = 3
"""Steps below which there is nothing to draw."""
RECORD_MEMORY: Final = "record with profile(profile_memory=True) on a device, store an allocator snapshot, or record memory in the program"
HERE: Final = "memory_findings"
FACTS: Final = (
    Fact("findings", "Findings", "count", "findings, possible ones among them"),
    Fact("largest_bytes", "Largest frees, at most", "B", "memory that fixing the largest finding could free, at most"),
    Fact("left_bytes", "Headroom", "B", "total less base less most reserved: what is left at the worst moment"),
    Fact("gap_bytes", "Reserved, not in use", "B", "reserved less in use, when most is in use"),
    Fact("slope_bytes", "Growth per step", "B", "growth of the least memory in use per step, by least squares"),
    Fact("total_bytes", "Memory of the device", "B", "memory of the device"),
    Fact("base_bytes", "Outside of the allocator", "B", "used on the device outside of the allocator: context, libraries, communication, "
         "other processes"),
    Fact("max_reserved_bytes", "Reserved, at most", "B", "reserved by the allocator at most"),
    Fact("max_allocated_bytes", "In use, at most", "B", "in use at most"),
    Fact("freeable_bytes", "Could be freed", "B", "reserved less active: what the allocator could free"),
    Fact("returnable_bytes", "Given back by empty_cache", "B", "what torch.cuda.empty_cache() would give back to the device"),
    Fact("largest_free_bytes", "Largest free block", "B", "largest free block of the allocator"),
    Fact("requested_bytes", "Asked for", "B", "size of the last allocation that failed"),
    Fact("device_free_bytes", "Free on the device", "B", "free on the device then, as the driver reported"),
    Fact("reserved_then_bytes", "Reserved", "B", "reserved by the allocator then"),
    Fact("allocated_then_bytes", "In use", "B", "in use then"),
    Fact("unused_bytes", "Unused in the allocator", "B", "free blocks that serve such a request, at the moment of the snapshot"),
    Fact("largest_fitting_bytes", "Largest free block", "B", "the largest of them"),
    Fact("where", "Requested by", "", "innermost line of the program that requested it"),
    Fact("setting", "Setting that helps", "", "the line that helps, before the process starts"),
    Fact("largest_batch", "Fits, at most", "count", "largest batch that fits, estimated"),
    Fact("per_sample_bytes", "Per sample", "B", "growth of the peak per sample of the batch"),
    Fact("fixed_bytes", "Without any sample", "B", "what the peak would be with an empty batch"),
)  # fmt: skip


class MemoryFindingsQuery(Query, kw_only=True, frozen=True):
    """rule: the finding that is shown with the rows that it is counted from ("" = all findings, no rows)
    device: which memory: its name as the page says it ("" = the device with most in use)
    source: where the numbers are from; auto takes the first that there is
    """

    rule: str = ""
    device: str = ""
    source: Source = "auto"


@analysis(
    title="What to free",
    question="What could free memory, and how much?",
    group="Run",
    order=11,
    requirements=("memory_use",),
    query=MemoryFindingsQuery,
    tables=T.TABLES,
    facts=FACTS,
    under="memory",
)
def run(capture: Capture, query: MemoryFindingsQuery) -> Report:
    """Findings as cards, then their proof: headroom, failures, steps, the allocator, layers, batches; last what was not recorded."""
    if not memories(capture):
        raise Unavailable(
            "memory was recorded, and no device's allocator was in it", hint="record on a device, or with profile(profile_memory=True)"
        )
    memory, curve = chosen_memory(capture, query.device, query.source)
    context = memory_context(capture, memory, curve, limits=query.device_limits)
    assert context is not None  # there is a memory
    found, missing = memory_findings(context)
    if query.rule:
        return _one(context, found, query)
    batch = maximum_batch(capture, curve, limits=query.device_limits)
    sections: list[AnySection] = [_tiles(context, found)]
    if context.room.failures:  # why it ran out comes before what else could be freed
        sections.append(_story(context))
    sections.append(_cards(context, found, query))
    if len(context.room.failures) > 1:
        sections.append(T.failures_table(context.room))
    sections += _growth(context)
    sections += _gap(context)
    if _shows_room(context):
        sections.append(_room(context))
    elif not context.memory.host:
        missing = [Missing(context.room.max_reserved.why, RECORD_MEMORY, "headroom"), *missing]
    sections += _recompute(context)
    sections += _batches(batch)
    if _shows_steps(context):
        sections.append(T.steps_table(context.leak))
    if found:
        sections.append(T.findings_table(found))
    missing = missing + _batch_missing(batch)
    if missing:
        sections.append(T.missing_table(missing))
    return Report(
        analysis=HERE, title="What to free", headline=_headline(context, found), notices=_notices(context), sections=sections,
        fields=_fields(context, query),
    )  # fmt: skip


def _one(context: MemoryContext, found: list[Finding], query: MemoryFindingsQuery) -> Report:
    """Returns one finding with every row that it is counted from."""
    chosen = [f for f in found if f.rule == query.rule]
    if not chosen and query.rule not in RULES:
        known = ", ".join(f.rule for f in found) or "none here"
        raise BadQuery(f"no finding {query.rule!r}", hint=f"there are: {known}", field="rule")
    report = Report(analysis=HERE, title="What to free", headline=_headline(context, chosen), notices=_notices(context))
    report.notices.append(Notice("One finding and its rows.", "info", Link(HERE, _kept(query), "All findings")))
    report.fields = _fields(context, query)
    if not chosen:
        report.headline = f"The rule {query.rule} finds nothing here."
        return report
    cards = _cards(context, chosen, query)
    cards.title, cards.findings = "The finding", [msgspec.structs.replace(f, rows=None) for f in cards.findings]
    report.sections = [cards, T.pieces_table(chosen[0])]
    return report


def _kept(query: MemoryFindingsQuery) -> dict[str, str]:
    """Returns the query as links carry it on."""
    source = "" if query.source == "auto" else query.source
    return {k: v for k, v in (("device", query.device), ("source", source), ("device_limits", query.device_limits)) if v}


def _fields(context: MemoryContext, query: MemoryFindingsQuery) -> dict[str, FieldNow]:
    """Returns the devices and sources that this recording has; what was asked for stays among them."""
    labels = [m.label for m in memories(context.capture)[:MOST_DEVICES]]
    labels = labels if context.memory.label in labels else [context.memory.label, *labels]
    sources = [c.source for c in context.memory.curves]
    several = len(sources) > 1 or query.source != "auto"
    return {
        "device": FieldNow(context.memory.label, tuple(labels)),
        "source": FieldNow("", ("auto", *(sources if several else ()))),
    }


def _headline(context: MemoryContext, found: list[Finding]) -> str:
    why, first = memory_problem(context), next(iter(foremost(context) or found), None)
    text = f"{why} " if why else ""
    if first is None:
        return text + ("Nothing else was found that frees memory." if why else _none(context))
    text += f"**{first.title}**: at most **{human(first.saving, 'B')}**"
    if first.share is not None:
        text += f", {human(first.share, 'ratio')} of the peak"
    return f"{text}; {len(found) - 1} more below." if len(found) > 1 else f"{text}."


def _none(context: MemoryContext) -> str:
    if not context.peak:
        return "Nothing was found that frees memory."
    return f"Nothing was found that frees more than {human(LEAST_SHARE, 'ratio')} of the {human(context.peak, 'B')} at the peak."


def _notices(context: MemoryContext) -> list[Notice]:
    out = []
    if context.memory.host:
        out.append(Notice(f"{context.memory.label} is memory of the host: reserved memory and headroom are not known there.", "info"))
    if context.curve.relative:
        out.append(Notice("This recording holds no totals: levels are changes, and shares of the peak are unknown.", "info"))
    return out


def _tiles(context: MemoryContext, found: list[Finding]) -> FactsSection:
    gap = next((f for c in context.memory.curves if (f := fragmentation(context.capture, c)) is not None), None)
    room, leak = context.room, context.leak
    known = leak.slope == leak.slope and leak.verdict != "few"
    values: dict[str, Scalar] = {
        "findings": len(found), "largest_bytes": found[0].saving if found else None, "left_bytes": room.left.bytes,
        "gap_bytes": gap.peak_gap if gap is not None else None, "slope_bytes": round(leak.slope) if known else None,
    }  # fmt: skip
    notes = {
        "findings": f"{sum(f.candidate for f in found)} possible, not proven" if any(f.candidate for f in found) else "",
        "largest_bytes": found[0].title if found else "",
        "left_bytes": _left_note(context) or ("" if room.left.bytes is not None else room.left.why),
        "gap_bytes": f"{human(gap.share, 'ratio')} of reserved, at the peak" if gap is not None and gap.share is not None else "",
        "slope_bytes": leak.words,
    }
    marks = {}
    if room.left.bytes is None:
        marks["left_bytes"] = Mark("unknown", room.left.why)
    elif room.left.estimated:
        marks["left_bytes"] = Mark("estimated", room.total.why)
    if gap is None:
        marks["gap_bytes"] = Mark("unknown", room.max_reserved.why if room.max_reserved.bytes is None else "levels are changes")
    if not known:
        marks["slope_bytes"] = Mark("unknown", f"{leak.words}; {leak.hint}")
    return make_facts(
        "answer", "What to free", values, FACTS, weight="headline", style="tiles",
        notes={n: text for n, text in notes.items() if text}, marks=marks,
    )  # fmt: skip


def _left_note(context: MemoryContext) -> str:
    room = context.room
    if room.share is not None:
        return f"{human(room.share, 'ratio')} of the device"
    return f"at most {human(room.at_most, 'B')}: what is in use outside of the allocator is not known" if room.at_most is not None else ""


def _cards(context: MemoryContext, found: list[Finding], query: MemoryFindingsQuery) -> FindingsSection:
    pages, keep = registry(), _kept(query)
    return FindingsSection(
        id="findings", title="What to free, in order", saves="memory",
        subtitle="frees at most; two findings can speak of the same memory" if found else "",
        findings=[card(f, pages, keep=keep, here=HERE) for f in found], empty=_none(context),
    )  # fmt: skip


def _shows_room(context: MemoryContext) -> bool:
    """Returns whether anything is known of what the allocator holds, or of what lies beside it."""
    room = context.room
    return not context.memory.host and any(a.bytes is not None for a in (room.max_reserved, room.base, room.largest))


def _room(context: MemoryContext) -> FactsSection:
    """Builds the headroom of the device, and where each number is from."""
    room = context.room
    amounts: dict[str, Amount] = {
        "total_bytes": room.total, "base_bytes": room.base, "max_reserved_bytes": room.max_reserved, "left_bytes": room.left,
        "max_allocated_bytes": room.max_allocated, "freeable_bytes": room.freeable, "returnable_bytes": room.returnable,
        "largest_free_bytes": room.largest,
    }  # fmt: skip
    marks = {n: Mark("unknown", a.why) for n, a in amounts.items() if a.bytes is None}
    marks |= {n: Mark("estimated", a.why) for n, a in amounts.items() if a.bytes is not None and a.estimated}
    notes = {n: a.why for n, a in amounts.items()}
    if room.at_most is not None:
        notes["left_bytes"] = f"at most {human(room.at_most, 'B')}, if nothing was in use outside of the allocator"
    subtitle = "memory of the device less what is in use outside of the allocator less the most reserved"
    values = {n: a.bytes for n, a in amounts.items()}
    return make_facts("room", "Headroom", values, FACTS, subtitle=subtitle, notes=notes, marks=marks)


def _story(context: MemoryContext) -> FactsSection:
    """Builds the last allocation that failed: what was asked for, what was there, who asked, what helps."""
    last, count = context.room.failures[-1], len(context.room.failures)
    sizes = {
        "requested_bytes": last.requested, "device_free_bytes": last.free, "reserved_then_bytes": last.reserved,
        "allocated_then_bytes": last.allocated, "unused_bytes": last.unused, "largest_fitting_bytes": last.largest,
    }  # fmt: skip
    values: dict[str, Scalar] = {n: size if size >= 0 else None for n, size in sizes.items()}
    values |= {"where": last.where or None, "setting": last.setting or None}
    moment = "at the moment of the snapshot"
    if last.later:
        entries = f"{human(last.later, 'count')} allocator entr{'y' if last.later == 1 else 'ies'}"
        moment = f"in the snapshot, which was taken {entries} after the failure"
    marks = {n: Mark("unknown", "not recorded") for n, v in values.items() if v is None and n != "setting"}
    if last.setting == "":
        marks["setting"] = Mark("unknown", "no setting of the allocator helps")
    words = [t for t in (f"**{last.verdict}**", last.advice, f"What helps: `{last.setting}`." if last.setting else "") if t]
    return make_facts(
        "story", "Why memory ran out", values, FACTS, text=" ".join(words),
        subtitle=f"the last of {count} allocations that failed" if count > 1 else "",
        notes={"unused_bytes": moment, "largest_fitting_bytes": moment, "where": _called(last.stack)},
        marks=marks, hidden=["setting"] if last.setting else [],
    )  # fmt: skip


def _called(stack: tuple[str, ...]) -> str:
    return f"from {stack[1]}" if len(stack) > 1 else ""


def _growth(context: MemoryContext) -> list[AnySection]:
    if not _shows_steps(context):
        return []
    return [steps_figure(context.leak), *([T.growth_table(context.leak)] if context.leak.found else [])]


def _shows_steps(context: MemoryContext) -> bool:
    return len(context.leak.steps) >= FEWEST_STEPS


def _gap(context: MemoryContext) -> list[AnySection]:
    curves = [context.curve, *(c for c in context.memory.curves if c is not context.curve)]
    found, curve = next(((f, c) for c in curves if (f := fragmentation(context.capture, c)) is not None), (None, context.curve))
    out: list[AnySection] = [gap_figure(found, curve, origin(context.capture))] if found is not None and len(found.time_ns) > 1 else []
    return [*out, T.pools_table(found.heap)] if found is not None and found.heap is not None else out


def _recompute(context: MemoryContext) -> list[AnySection]:
    found = next((f for c in context.memory.curves if (f := recompute(context.capture, c, context.limits)) is not None), None)
    return [T.layers_table(found)] if found is not None and (found.classes["saving_bytes"].to_numpy() > 0).any() else []


def _batch_missing(found: Batch) -> list[Missing]:
    """Returns what the largest batch needs, where it cannot be worked out."""
    if found.largest is not None or len(found.points) > 1:
        return []
    because, _, how = found.why.partition(": ")
    return [Missing(because, how, "largest_batch")]


def _batches(found: Batch) -> list[AnySection]:
    if len(found.points) < 2:
        return []
    values: dict[str, Scalar] = {
        "largest_batch": found.largest, "per_sample_bytes": None if found.per_sample is None else round(found.per_sample),
        "fixed_bytes": None if found.fixed is None else round(found.fixed),
    }  # fmt: skip
    marks = {n: Mark("estimated", found.why) if v is not None else Mark("unknown", found.why) for n, v in values.items()}
    subtitle = "an estimate" if found.largest is not None else found.why
    facts = make_facts("batch", "Largest batch", values, FACTS, subtitle=subtitle, span=6, marks=marks)
    return [facts, T.batches_table(found)]


# -- Figures ----------------------------------------------------------------------------------------------------------
# the least of each step with its line, and what the allocator holds beside what is in use.


MOST_POINTS: Final = 1500
"""Points of a curve."""


def steps_figure(found: Leak) -> FigureSection:
    """Draws least in use per step, the line through it, steps of the warm-up apart."""
    places = thinned(np.arange(len(found.steps)), [found.steps["least"].to_numpy(np.int64)], MOST_POINTS)
    table = found.steps.iloc[places]
    x = table["step"].to_numpy()
    least, warm = table["least"].to_numpy(np.float64), table["warm"].to_numpy(dtype=bool)
    factor, unit = scale_of(max(float(least.max()), 1.0), "B")
    number = table["step"].astype(str).tolist()
    data: list[F.Plain] = []
    for name, use, symbol, color in (("least in use", ~warm, "circle", "compute"), ("warm-up", warm, "circle-open", "ink-3")):
        if use.any():
            data.append({
                "type": "scatter", "mode": "markers+lines" if name != "warm-up" and len(x) <= 400 else "markers", "name": name,
                "x": x[use].tolist(), "y": (least[use] / factor).tolist(), "marker": {"color": F.light(color), "symbol": symbol, "size": 6},
                "line": {"color": F.light(color), "width": 1}, "customdata": [n for n, u in zip(number, use.tolist(), strict=True) if u],
                "hovertext": [human(int(v), "B") for v in least[use]],
                "hovertemplate": f"<b>step %{{x}}</b><br>{name} %{{hovertext}}<extra></extra>",
            })  # fmt: skip
    line, number_of = found.steps["fitted"].to_numpy(np.float64), found.steps["step"].to_numpy()
    use = np.isfinite(line)
    if use.any() and found.used > 1 and found.verdict != "few":
        data.append({
            "type": "scatter", "mode": "lines", "name": "line",
            "x": number_of[use][[0, -1]].tolist(), "y": (line[use][[0, -1]] / factor).tolist(),
            "line": {"color": F.light("accent"), "width": 1.6, "dash": "4px 3px"}, "hoverinfo": "skip",
        })  # fmt: skip
    judged = found.slope == found.slope and found.verdict != "few"
    text = f"{found.words}: {human(round(found.slope), 'B')} per step" if judged else found.words
    text += f", R² {found.r2:.2f}" if judged and found.r2 == found.r2 else ""
    few = len(table) < len(found.steps)
    drawn = f"; the least and most of each stretch, {human(len(table), 'count')} of {human(len(found.steps), 'count')} steps" if few else ""
    every = max(-(-int(x[-1] - x[0]) // 10), 1)
    across = F.axis("step", dtick=every, tick0=int(x[0]), tickformat="d")
    return FigureSection(
        id="growth_figure", title="Step by step", subtitle=text + drawn, table="steps", height=280,
        figure=F.figure(data, x=across, y=F.axis(f"least in use, {unit}"), showlegend=False),
        summary=f"Least memory in use in {len(found.steps)} steps: {text}.",
    )  # fmt: skip


def gap_figure(found: Fragmentation, curve: Curves, start_ns: int) -> FigureSection:
    """Draws reserved and in use over time; what lies between them is reserved and not in use."""
    keep = thinned(found.time_ns, [found.gap, found.reserved, found.allocated], MOST_POINTS)
    time = (found.time_ns[keep] - start_ns).astype(np.float64)
    ns, unit = F.time_scale(float(time[-1]) if len(time) else 1.0)
    factor, size = scale_of(max(float(found.max_reserved), 1.0), "B")
    text = humans(found.gap[keep].tolist(), "B")

    def line(name: str, level: np.ndarray, color: str, **more: object) -> F.Plain:
        return {
            "type": "scatter", "mode": "lines", "name": name, "x": (time / ns).tolist(), "y": (level[keep] / factor).tolist(),
            "line": {"shape": "hv", "width": 1.4, "color": F.light(color)},
            "hovertext": [
                f"{name} {much}<br>reserved and not in use {gap}"
                for much, gap in zip(humans(level[keep].tolist(), "B"), text, strict=True)
            ],
            "hovertemplate": "<b>%{x:.4~g} " + unit + "</b><br>%{hovertext}<extra></extra>", **more,
        }  # fmt: skip

    held = line("reserved", found.reserved, "ink-2", fill="tonexty", fillcolor=F.light("idle"))
    marks: list[F.Plain] = [
        {
            "x": (found.peak_ns - start_ns) / ns, "y": found.reserved_at_peak / factor, "text": f"at the peak {human(found.peak_gap, 'B')}",
            "showarrow": True, "arrowhead": 0, "ax": 0, "ay": -22, "arrowcolor": F.light("ink-3"),
            "font": {"size": 11, "color": F.light("ink-2")},
        }
    ]  # fmt: skip
    early = found.time_ns <= found.time_ns[0] + (found.time_ns[-1] - found.time_ns[0]) // 10  # below it stands the name of the line
    marks += [
        {
            "x": 0.004, "xref": "paper", "xanchor": "left", "y": float(level) / factor, "yanchor": side, "text": name,
            "showarrow": False, "font": {"size": 11, "color": F.light(color)},
        }
        for name, level, side, color in (
            ("reserved", found.reserved[0], "bottom", "ink-2"), ("in use", found.allocated[early].min(), "top", "compute"),
        )
    ]  # fmt: skip
    share = f", {human(found.share, 'ratio')} of reserved" if found.share is not None else ""
    return FigureSection(
        id="gap_figure", title="Reserved, not in use", height=280,
        subtitle=f"{human(found.peak_gap, 'B')} when most is in use{share}; {human(found.worst_gap, 'B')} at most",
        figure=F.figure(
            [line("in use", found.allocated, "compute"), held], x=F.axis(f"time, {unit}"), y=F.axis(size, rangemode="tozero"),
            annotations=marks, margin={"l": 58, "r": 14, "t": 26, "b": 46},
        ),
        summary=f"Of {human(found.max_reserved, 'B')} reserved at most, {human(found.worst_gap, 'B')} were not in use at the worst moment."
        + (" In use is counted as the program asked for it." if found.requested else ""),
    )  # fmt: skip
