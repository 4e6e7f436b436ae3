"""Memory of two recordings beside each other: what changed at the peak, and because of what.

Two runs or two ranks. The other one is a run beside the one that is shown, with the same worker, unless it is chosen. Differences are
those of B less A: of the other one less the one shown, or, against a baseline, of the one shown less the baseline. Who held memory at the
peaks is matched by name; what stands in one of them only is said. Both columns add up to the peaks, so the differences add up to theirs.
Operators, allocations of the same operator, module and size, and steps stand beside each other too.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.memory import memory_compare_lists
from tb_sol_plugin.analyses.memory.memory_compare_tables import BOTH, Differences, Line, ReducedMemory, differences, grouping, part
from tb_sol_plugin.metrics.compare.change import exactly, seen
from tb_sol_plugin.metrics.compare.differences import MetricChange
from tb_sol_plugin.metrics.memory.labels import gib
from tb_sol_plugin.metrics.report.settings import SETTINGS, named, settings_table
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.query import PairQuery
from tb_sol_plugin.model.recordings import Compared
from tb_sol_plugin.model.registry import Reduction, analysis
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.units import capitalized, how_many, human, number, scale_of, signed, signed_percent


class MemoryCompareQuery(PairQuery, kw_only=True, frozen=True):
    """by: what held memory at the peaks, by which names; auto takes the first that both recordings can answer
    align: what the curves are drawn of: the step with the peak of each, or all since the start of the first step
    """

    by: Literal["auto", "category", "module", "operator", "frame", "phase"] = "auto"
    align: Literal["step", "start"] = "step"


_MEASURES: Final = {
    "peak": ("In use at most", "largest memory in use"),
    "reserved": ("Reserved at most", "largest memory reserved by the allocator"),
    "fragmentation": ("Reserved, not in use", "reserved less in use, when most was in use"),
    "before": ("Before the window", "in use before the recording began"),
    "end": ("At the end", "in use at the end"),
    "growth": ("Growth per step", "slope of a line through the least that was in use in each step"),
    "left": ("Left", "memory of the device less what is in use outside of the allocator, where known, less the most that it reserved"),
    "capacity": ("Memory of the device", "memory of the device"),
    "base": ("Outside of the allocator", "used on the device outside of the allocator, the most that is known"),
    "worst": ("Reserved, not in use, at most", "reserved less in use, when that was most"),
    "free": ("Free blocks", "in free blocks of the allocator at the moment of a snapshot"),
    "split": ("Free next to blocks in use", "of these in segments of which another part is in use"),
    "largest": ("Largest free block", "largest free block of the allocator at the moment of a snapshot"),
}  # fmt: skip
_NOT_OF_BOTH: Final = "not known of both recordings"
NUMBERS: Final = (
    Column("measure", "Number", doc="what is compared", show="text"),
    Column("delta", "Difference", "B", "B less A", missing=_NOT_OF_BOTH),
    Column("share", "Of it", "ratio", "difference over the value of A", show="share", missing="it is 0, or not known"),
    Column("a", "A", "B", "of A", missing="not known of this recording"),
    Column("b", "B", "B", "of B", missing="not known of this recording"),
)
AT_PEAKS: Final = (
    Column("name", "Blocked by", doc="what held memory at the peaks; also what was there before, and the rest", show="code"),
    Column("delta", "Difference", "B", "B less A"),
    Column("a", "A", "B", "bytes in use at the peak of A"),
    Column("b", "B", "B", "bytes in use at the peak of B"),
    Column("only", "In", doc="both, or the one recording that has this name", show="text"),
    Column("allocations_a", "Allocations in A", "count", "how many make up these bytes", rank=2, missing="not recorded by this source"),
    Column("allocations_b", "Allocations in B", "count", "how many make up these bytes", rank=2, missing="not recorded by this source"),
    Column("abs_delta", "Size of it", "B", "size of the difference, whatever its sign", rank=3),
    Column("kind", "Kind", doc="row; before: in use before the recording began; unknown: the rest; rest: smaller ones together", rank=3),
    Column("color", "Color", doc="color of the row", rank=3),
    Column("key", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
FACTS: Final = (
    Fact("outcome", "At its peak it uses", "", "more, less or no change; sizes are nearly free of noise and are compared as they are"),
    *(
        Fact(f"{name}_delta_bytes", label, "B", f"{label}: B less A")
        for name, (label, _) in _MEASURES.items()
    ),
    Fact("peak_a_bytes", "", "B", "in use at most, of A"),
    Fact("peak_b_bytes", "", "B", "in use at most, of B"),
    Fact("peak_ratio", "", "", "the latter over the former"),
    Fact("other_run", "", "", "run of the other recording"),
    Fact("other_worker", "", "", "its worker"),
    Fact("by", "", "", "what rows of the table are"),
)  # fmt: skip
EXPECTED: Final = ("steps recorded", "pipeline stage", "tensor parallel", "data parallel", "expert parallel", "context parallel")
"""Settings that differ between ranks, or say nothing of memory."""


@analysis(
    scope="pair",
    title="Compare",
    question="What changed in memory between two runs, or two ranks?",
    group="Run",
    order=14,
    requirements=("memory_use",),
    query=MemoryCompareQuery,
    tables={
        "numbers": NUMBERS,
        "held": AT_PEAKS,
        "operators": memory_compare_lists.OPERATORS,
        "allocations": memory_compare_lists.ALLOCATIONS,
        "per_step": memory_compare_lists.PER_STEP,
        "settings": SETTINGS,
    },
    facts=FACTS,
    under="memory",
    reduce=Reduction(part, fields=("step", "device_limits"), version=2, sol_log=True),
)
def run(here: Compared[ReducedMemory], there: Compared[ReducedMemory], query: MemoryCompareQuery) -> Report:
    a, b = here.reduced, there.reduced
    names = here.name, there.name
    by, why = grouping(a, b, query.by)
    found = differences(a.held[by], b.held[by], by) if by else None
    sections: list[AnySection] = [_tiles(here, there, by), curves_figure(names, (a, b), query.align)]
    if found is not None:
        differs = bool((found.frame["abs_delta"] > 0).any())
        sections += [*([differences_figure(found.frame, names, by)] if differs else []), _at_peaks(found, here, there, by)]
    steps = memory_compare_lists.per_step(here, there, a.per_step, b.per_step)
    sections += [
        *([steps] if steps is not None else []),
        memory_compare_lists.operators(here, there, a, b),
        memory_compare_lists.allocations(here, there, a, b),
    ]
    sections += [_numbers(here, there), settings_table((here.name, there.name), (here.reduced.setting, there.reduced.setting), span=6)]
    return Report(
        analysis="memory_compare", title="Compare", headline=_headline(here, there, found), notices=_notices(here, there, by, why),
        sections=sections,
    )  # fmt: skip


def _delta(a: float | None, b: float | None) -> float | None:
    return b - a if a is not None and b is not None else None


def _headline(here: Compared[ReducedMemory], there: Compared[ReducedMemory], found: Differences | None) -> str:
    a, b = here.reduced.peak, there.reduced.peak
    change = b - a
    sizes = f"{human(b, 'B')} instead of {human(a, 'B')}"
    if _peaks(here, there).verdict == "same":
        return f"`{there.name}` and `{here.name}` use the same at their peaks: {human(a, 'B')}."
    side, share = ("less" if change < 0 else "more"), f", {number(100 * abs(change) / a, 1)} %" if a > 0 else ""
    lead = f"`{there.name}` uses **{human(abs(change), 'B')} {side}** at its peak than `{here.name}`: {sizes}{share}"
    first = found.largest(falls=change < 0)[:3] if found is not None else []
    most = [f"{name} {human(abs(size), 'B')}" for name, size in first if abs(size) >= 0.05 * abs(change)]
    return f"{lead}. Most of it: {', '.join(most)}." if most else f"{lead}."


def _peaks(here: Compared[ReducedMemory], there: Compared[ReducedMemory]) -> MetricChange:
    """Returns how the peak changed, by the rule of all comparisons of bytes."""
    found = exactly([np.array([float(here.reduced.peak)])], [np.array([float(there.reduced.peak)])])
    return MetricChange("peak_memory", found, seen(found, least=1))


def _tiles(here: Compared[ReducedMemory], there: Compared[ReducedMemory], by: str) -> FactsSection:
    a, b = here.reduced, there.reduced
    values: dict[str, Scalar] = {}
    notes: dict[str, str] = {}
    for name in _MEASURES:
        x, y = getattr(a, name), getattr(b, name)
        change = _delta(x, y)
        values[f"{name}_delta_bytes"] = change if change is None or name == "growth" else round(change)
        if change is not None:
            notes[f"{name}_delta_bytes"] = f"{human(x, 'B')} → {human(y, 'B')}"
    if isinstance(values["peak_delta_bytes"], int) and gib(values["peak_delta_bytes"]):
        notes["peak_delta_bytes"] += f", {gib(values['peak_delta_bytes'])}"
    values |= {
        "peak_a_bytes": a.peak, "peak_b_bytes": b.peak, "peak_ratio": b.peak / a.peak if a.peak > 0 else None,
        "other_run": there.run, "other_worker": there.of.worker, "by": by, "outcome": None,
    }  # fmt: skip
    peaks = _peaks(here, there)
    if a.relative == b.relative and peaks.verdict != "unknown":  # levels do not compare with changes
        size = f", {signed_percent(peaks.change.change or 0.0)}" if peaks.verdict != "same" else ""
        values["outcome"] = f"{peaks.outcome}{size}"
    shown = [f"{n}_delta_bytes" for n in ("peak", "reserved", "fragmentation", "growth", "left") if values[f"{n}_delta_bytes"] is not None]
    shown = [*(["outcome"] if values["outcome"] is not None else []), *shown]
    ordered = {name: values[name] for name in [*shown, *(n for n in values if n not in shown)]}
    return make_facts(
        "facts", "Difference", ordered, FACTS, style="tiles",
        notes={n: t for n, t in notes.items() if n in shown}, hidden=[n for n in ordered if n not in shown],
    )  # fmt: skip


def _at_peaks(found: Differences, here: Compared[ReducedMemory], there: Compared[ReducedMemory], by: str) -> TableSection:
    frame = found.frame.copy()
    only = {BOTH: "both", "a": f"only {here.name}", "b": f"only {there.name}"}
    frame["only"] = [only[str(o)] for o in frame["only"]]
    guessed, twice = Mark("estimated", "worked out from where and when it was allocated"), Mark("flagged", "something counts twice")
    marks = {str(i): guessed for i, e in enumerate(frame["estimated"]) if e}
    kinds = zip(frame["kind"], frame["a"], frame["b"], strict=True)
    flagged = {str(i): twice for i, (kind, x, y) in enumerate(kinds) if kind == "unknown" and min(x, y) < 0}
    a, b = here.reduced, there.reduced
    common = [note for note in a.notes[by] if note in b.notes[by]]
    notes = common + [f"{side.name}: {note}" for side in (here, there) for note in side.reduced.notes[by] if note not in common]
    columns = named(AT_PEAKS, (here.name, there.name))
    heading = by.capitalize() if by != "frame" else "Python line"
    columns[0] = Column("name", heading, doc=AT_PEAKS[0].doc, show="text" if by == "category" else "code")
    same = not any(s.startswith("only") for s in frame["only"])
    columns = [msgspec.structs.replace(c, rank=3) if same and c.name == "only" else c for c in columns]
    return make_table(
        "held", "What held memory at the peaks", frame, columns, key="key", sort=Sort("abs_delta"),
        subtitle=f"by {by}; the differences add up to that of the peaks",
        total={"name": "in use", "delta": b.peak - a.peak, "a": a.peak, "b": b.peak, "abs_delta": abs(b.peak - a.peak)},
        filters=[] if same else ["only"], marks={n: m for n, m in (("name", marks), ("delta", flagged)) if m},
        footer=" ".join(f"{capitalized(n)}." for n in notes),
    )  # fmt: skip


def _numbers(here: Compared[ReducedMemory], there: Compared[ReducedMemory]) -> TableSection:
    rows = []
    for name, (label, _) in _MEASURES.items():
        if name == "growth":  # of another size: a tile has it
            continue
        x, y = getattr(here.reduced, name), getattr(there.reduced, name)
        change = _delta(x, y)
        rows.append({"measure": label, "a": x, "b": y, "delta": change, "share": change / x if change is not None and x else None})
    frame = pd.DataFrame(rows, columns=[c.name for c in NUMBERS], dtype=object)
    sources = [f"{s.name}: {s.reduced.source}" for s in (here, there)]
    text = sources[0].partition(": ")[2] if here.reduced.source == there.reduced.source else "; ".join(sources)
    links = {name: Link("memory", {"run": side.run, "worker": side.of.worker, "span": side.of.span}, f"Memory of {side.name}")
             for name, side in (("a", here), ("b", there))}  # fmt: skip
    return make_table(
        "numbers", "Numbers", frame, named(NUMBERS, (here.name, there.name)), key="measure", span=6, subtitle=text,
        links=[links["a"], links["b"]],
    )  # fmt: skip


def _notices(here: Compared[ReducedMemory], there: Compared[ReducedMemory], by: str, why: str) -> list[Notice]:
    a, b = here.reduced, there.reduced
    out = []
    other = [n for n in dict.fromkeys([*a.setting, *b.setting]) if n in a.setting and n in b.setting and a.setting[n] != b.setting[n]]
    reported = [f"{name} {a.setting[name]} and {b.setting[name]}" for name in other if name not in EXPECTED]
    if reported:
        out.append(Notice(f"The two were not made alike: {'; '.join(reported)}."))
    if a.relative != b.relative:
        out.append(Notice("One recording holds no totals: its numbers are changes since it began, and do not compare with levels."))
    if a.source != b.source:
        out.append(Notice(f"Numbers are of different sources: {here.name} from {a.source}, {there.name} from {b.source}."))
    for side in (here, there):
        if side.reduced.failures:
            count = side.reduced.failures
            text = f"{how_many(count, 'allocation')} failed in `{side.name}`."
            out.append(Notice(text, link=Link("memory_findings", {"run": side.run, "worker": side.of.worker, "span": side.of.span}, "Why")))
    if why:
        out.append(Notice(why if by else f"{why} Record memory with with_stack=True, or with the SOL capture.", "info"))
    return out


# -- Both curves over time, and the largest differences as bars -------------------------------------------------------


COLORS: Final = ("compute", "communication")
BARS: Final = 12
BAR_PX: Final = 26
DEVICE_CLOSE: Final = 2.0
"""The memory of the device is a line where it is not more than so many times the larger peak."""


def curves_figure(names: tuple[str, str], parts: tuple[ReducedMemory, ReducedMemory], align: str) -> FigureSection:
    """Draws memory in use of both. align: step (the step with the peak of each, since its begin) or start (all, since the first step's)."""
    steps = tuple(p.of_step for p in parts)
    by_step = align == "step" and None not in steps
    drawn: list[Line] = [s for s in steps if s is not None] if by_step else [p.whole for p in parts]
    top = max((max(line.allocated, default=0) for line in drawn), default=0)
    held = [max(line.reserved) for line in drawn if line.reserved]
    scale, unit = scale_of(float(max(top, *held, 1)), "B")
    factor, time_unit = F.time_scale(max(max(line.end_ns for line in drawn), 1))
    data, notes = [], []
    for at, (name, line) in enumerate(zip(names, drawn, strict=True)):
        color = F.light(COLORS[at])
        x = [t / factor for t in line.time_ns]
        if line.reserved:
            dotted: F.Plain = {"color": color, "width": 1.1, "dash": "3px,3px"}
            data.append(_curve(x, line.reserved, line.end_ns / factor, scale, dotted, f"{name}, reserved"))
        data.append(_curve(x, line.allocated, line.end_ns / factor, scale, {"color": color, "width": 1.8}, name, hover=True))
        place = max(range(len(line.allocated)), key=line.allocated.__getitem__)
        ring: F.Plain = {"size": 8, "color": color, "line": {"width": 1.5, "color": F.light("surface")}}
        data.append({"type": "scatter", "mode": "markers", "name": f"{name}, peak", "x": [x[place]], "y": [line.allocated[place] / scale],
                     "marker": ring, "hoverinfo": "skip", "cliponaxis": False})  # fmt: skip
        notes.append({
            "xref": "paper", "yref": "paper", "x": at, "y": 1, "xanchor": ("left", "right")[at], "yanchor": "bottom", "showarrow": False,
            "yshift": 15 * (1 - at),  # one above the other: in narrow windows they would meet
            "text": f"<b>{F.escape(name)}</b> up to {human(line.allocated[place], 'B')}", "font": {"size": 12, "color": color},
        })  # fmt: skip
    shapes, more, high = _device_line(parts, top, scale)
    where = "the start of the step" if by_step else "the start of the first step"
    figure = F.figure(
        data, x=F.axis(f"since {where}, {time_unit}", rangemode="tozero"),
        y=F.axis(f"memory, {unit}", range=[0, 1.14 * max(top, high, *held, 1) / scale]), shapes=shapes, annotations=[*notes, *more],
        hovermode="x", margin={"l": 58, "r": 14, "t": 37, "b": 46},
    )  # fmt: skip
    text = [f"step {line.step} of {name}" if line.step is not None else name for name, line in zip(names, drawn, strict=True)]
    peaks = [f"{name} up to {human(max(line.allocated), 'B')}" for name, line in zip(names, drawn, strict=True)]
    subtitle = f"{text[0]} and {text[1]}, each since its start; dotted: reserved by the allocator"
    return FigureSection(
        id="curves", title="Memory in use", figure=figure, height=320, subtitle=subtitle, span=12,
        summary=f"Memory in use over time: {'; '.join(peaks)}.", table="numbers",
    )  # fmt: skip


def _curve(x: list[float], level: tuple[int, ...], end: float, scale: float, line: F.Plain, name: str, *, hover: bool = False) -> F.Plain:
    """Draws steps that hold their last level to the end."""
    y = [v / scale for v in level]
    texts = [f"<b>{F.escape(name)}</b> {human(v, 'B')}" for v in (*level, level[-1])] if hover else None
    hovered: F.Plain = {"hoverinfo": "text", "hovertext": texts} if hover else {"hoverinfo": "skip"}
    return {"type": "scatter", "mode": "lines", "name": name, "x": [*x, end], "y": [*y, y[-1]], "line": {"shape": "hv", **line}, **hovered}


def _device_line(parts: tuple[ReducedMemory, ReducedMemory], top: int, scale: float) -> tuple[list[F.Plain], list[F.Plain], float]:
    sizes = {p.capacity for p in parts if p.capacity}
    if len(sizes) != 1:
        return [], [], 0.0
    (size,) = sizes
    if size > DEVICE_CLOSE * max(top, 1):
        return [], [], 0.0
    line: F.Plain = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": size / scale, "y1": size / scale}
    note: F.Plain = {
        "xref": "paper", "x": 1, "y": size / scale, "xanchor": "right", "yanchor": "bottom", "showarrow": False,
        "text": f"<b>memory of the device, {human(size, 'B')}</b>", "font": {"size": 12},
    }  # fmt: skip
    return [line | {"line": {"color": F.light("ink-2"), "width": 1.6}}], [note], float(size)


def differences_figure(frame: pd.DataFrame, names: tuple[str, str], by: str) -> FigureSection:
    """Draws the rows that differ most, the largest on top. frame: of `differences`, largest first; some row differs."""
    shown = frame[frame["abs_delta"] > 0].head(BARS).iloc[::-1]
    title = "What changed"
    scale, unit = scale_of(float(shown["abs_delta"].max()), "B")
    delta = [v / scale for v in shown["delta"].tolist()]
    widest = max(abs(v) for v in delta)
    texts = [signed(int(v), "B") for v in shown["delta"].tolist()]
    hover = [
        f"<b>{F.escape(str(n))}</b><br>{F.escape(names[0])}: {human(a, 'B')}<br>{F.escape(names[1])}: {human(b, 'B')}<br>{text}"
        for n, a, b, text in zip(shown["name"], shown["a"].tolist(), shown["b"].tolist(), texts, strict=True)
    ]
    data: F.Plain = {
        "type": "bar", "orientation": "h", "x": delta, "y": list(range(len(shown))), "customdata": shown["key"].tolist(),
        "marker": {"color": [F.light(str(c)) for c in shown["color"]], "line": {"width": 0.8, "color": F.light("surface")}},
        "text": texts, "textposition": "outside", "cliponaxis": False, "textfont": {"size": 12, "color": F.light("ink-2")},
        "hoverinfo": "text", "hovertext": hover, "name": "difference", "width": 0.62,
    }  # fmt: skip
    pad = 1.34
    low, high = min([*delta, 0.0]), max([*delta, 0.0])
    figure = F.figure(
        [data],
        x=F.axis(f"{names[1]} less {names[0]}, {unit}", range=[low * pad - 0.02 * widest, high * pad + 0.02 * widest], zeroline=True,
                 zerolinecolor=F.light("ink-3"), zerolinewidth=1),
        y=F.axis("", tickvals=list(range(len(shown))), ticktext=[_cut(str(n)) for n in shown["name"]], showgrid=False),
        margin={"l": 58, "r": 14, "t": 6, "b": 46},
    )  # fmt: skip
    first = shown.iloc[-1]
    return FigureSection(
        id="changed", title=title, figure=figure, height=64 + BAR_PX * max(len(shown), 3), table="held",
        subtitle=f"at the peaks, by {by}: {names[1]} less {names[0]}",
        summary=f"The largest differences; {first['name']}: {signed(int(first['delta']), 'B')}.",
    )  # fmt: skip


def _cut(name: str) -> str:
    return F.escape(name if len(name) <= 34 else f"{name[:14]}…{name[-18:]}")
