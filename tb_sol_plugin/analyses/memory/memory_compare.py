"""Memory of two recordings beside each other: what changed at the peak, and because of what.

Two runs or two ranks. The other one is a run beside the one that is shown, with the same worker, unless it is chosen. Differences are
those of the other one less the one shown. Who held memory at the peaks is matched by name; what stands in one of them only is said.
Both columns add up to the peaks, so the differences add up to theirs. Operators, allocations of the same operator, module and size, and
steps stand beside each other too.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import pandas as pd

from tb_sol_plugin.analyses.memory import memory_compare_lists
from tb_sol_plugin.analyses.memory.memory_compare_figures import bars, lines
from tb_sol_plugin.analyses.memory.memory_compare_tables import BOTH, ComparePart, Differences, differences, grouping, part
from tb_sol_plugin.metrics.memory.labels import gib
from tb_sol_plugin.model.query import PairQuery
from tb_sol_plugin.model.recordings import Side
from tb_sol_plugin.model.registry import Reduction, analysis
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    Fact,
    FactsSection,
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
from tb_sol_plugin.units import capitalized, how_many, human, number


class MemoryCompareQuery(PairQuery, kw_only=True, frozen=True):
    """by: what held memory at the peaks, by which names; auto takes the first that both recordings can answer
    align: what the curves are drawn of: the step with the peak of each, or all since the begin of the first step
    """

    by: Literal["auto", "category", "module", "operator", "frame", "phase"] = "auto"
    align: Literal["step", "start"] = "step"


_NUMBERS: Final = {
    "peak": ("In use at most", "largest memory in use"),
    "reserved": ("Reserved at most", "largest memory held by the allocator"),
    "fragmentation": ("Held, not in use", "held by the allocator less in use, when most was in use"),
    "before": ("Before the window", "in use before the recording began"),
    "end": ("At the end", "in use at the end"),
    "growth": ("Growth per step", "slope of a line through the least that was in use in each step"),
    "left": ("Left", "memory of the device less what is in use outside of the allocator, where that is known, less the most that it held"),
    "capacity": ("Memory of the device", "memory of the device"),
    "base": ("Beside the allocator", "used on the device beside the allocator, the most that is known"),
    "worst": ("Held, not in use, at most", "held by the allocator less in use, when that was most"),
    "free": ("Free blocks", "in free blocks of the allocator at the moment of a snapshot"),
    "split": ("Free beside blocks in use", "of these in segments of which another part is in use"),
    "largest": ("Largest free block", "largest free block of the allocator at the moment of a snapshot"),
}  # fmt: skip
_UNKNOWN: Final = "not known of both recordings"
NUMBERS: Final = (
    Column("measure", "Number", doc="what is compared", show="text"),
    Column("delta", "Difference", "B", "the other recording less the one shown", missing=_UNKNOWN),
    Column("share", "Of it", "ratio", "difference over the value of the one shown", show="share", missing="it is 0, or not known"),
    Column("a", "A", "B", "of the recording that is shown", missing="not known of this recording"),
    Column("b", "B", "B", "of the other recording", missing="not known of this recording"),
)
HELD: Final = (
    Column("name", "Blocked by", doc="what held memory at the peaks; also what was there before, and the rest", show="code"),
    Column("delta", "Difference", "B", "the other recording less the one shown"),
    Column("a", "A", "B", "bytes in use at the peak of the recording that is shown"),
    Column("b", "B", "B", "bytes in use at the peak of the other recording"),
    Column("only", "In", doc="both, or the one recording that has this name", show="text"),
    Column("allocations_a", "Allocations in A", "count", "how many make up these bytes", rank=2, missing="not told by this source"),
    Column("allocations_b", "Allocations in B", "count", "how many make up these bytes", rank=2, missing="not told by this source"),
    Column("abs_delta", "Size of it", "B", "size of the difference, whatever its sign", rank=3),
    Column("kind", "Kind", doc="row; before: in use before the recording began; unknown: the rest; rest: smaller ones together", rank=3),
    Column("color", "Color", doc="color of the row", rank=3),
    Column("key", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
SETTINGS: Final = (
    Column("setting", "Setting", doc="how a recording was made", show="text"),
    Column("a", "A", doc="of the recording that is shown", show="text", missing="not recorded"),
    Column("b", "B", doc="of the other recording", show="text", missing="not recorded"),
    Column("same", "Same", doc="whether both say the same", show="badge"),
)
FACTS: Final = (
    *(
        Fact(f"{name}_delta_bytes", label, "B", f"{label}: the other recording less the one shown")
        for name, (label, _) in _NUMBERS.items()
    ),
    Fact("peak_a_bytes", "", "B", "in use at most, of the recording that is shown"),
    Fact("peak_b_bytes", "", "B", "in use at most, of the other recording"),
    Fact("peak_ratio", "", "", "the latter over the former"),
    Fact("other_run", "", "", "run of the other recording"),
    Fact("other_worker", "", "", "its worker"),
    Fact("by", "", "", "what rows of the table are"),
)  # fmt: skip
SAME: Final = 0.002
"""Peaks that differ by less than this part are called the same."""
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
        "held": HELD,
        "operators": memory_compare_lists.OPERATORS,
        "allocations": memory_compare_lists.ALLOCATIONS,
        "per_step": memory_compare_lists.PER_STEP,
        "settings": SETTINGS,
    },
    facts=FACTS,
    under="memory",
    reduce=Reduction(part, fields=("step", "device_limits"), version=2, sol_log=True),
)
def run(here: Side[ComparePart], there: Side[ComparePart], query: MemoryCompareQuery) -> Report:
    a, b = here.part, there.part
    names = here.name, there.name
    by, why = grouping(a, b, query.by)
    found = differences(a.held[by], b.held[by], by) if by else None
    sections: list[AnySection] = [_tiles(here, there, by), lines(names, (a, b), query.align)]
    if found is not None:
        differs = bool((found.frame["abs_delta"] > 0).any())
        sections += [*([bars(found.frame, names, by)] if differs else []), _held(found, here, there, by)]
    steps = memory_compare_lists.per_step(here, there, a.per_step, b.per_step)
    sections += [
        *([steps] if steps is not None else []),
        memory_compare_lists.operators(here, there, a, b),
        memory_compare_lists.allocations(here, there, a, b),
    ]
    sections += [_numbers(here, there), _settings(here, there)]
    return Report(
        analysis="memory_compare", title="Compare", headline=_headline(here, there, found), notices=_notices(here, there, by, why),
        sections=sections,
    )  # fmt: skip


def _delta(a: float | None, b: float | None) -> float | None:
    return b - a if a is not None and b is not None else None


def _headline(here: Side[ComparePart], there: Side[ComparePart], found: Differences | None) -> str:
    a, b = here.part.peak, there.part.peak
    change = b - a
    sizes = f"{human(b, 'B')} instead of {human(a, 'B')}"
    if abs(change) <= SAME * max(abs(a), abs(b)):
        return f"`{there.name}` and `{here.name}` use the same at their peaks: {human(a, 'B')}."
    side, share = ("less" if change < 0 else "more"), f", {number(100 * abs(change) / a, 1)} %" if a > 0 else ""
    lead = f"`{there.name}` uses **{human(abs(change), 'B')} {side}** at its peak than `{here.name}`: {sizes}{share}"
    first = found.largest(falls=change < 0)[:3] if found is not None else []
    most = [f"{name} {human(abs(size), 'B')}" for name, size in first if abs(size) >= 0.05 * abs(change)]
    return f"{lead}. Most of it: {', '.join(most)}." if most else f"{lead}."


def _tiles(here: Side[ComparePart], there: Side[ComparePart], by: str) -> FactsSection:
    a, b = here.part, there.part
    values: dict[str, Scalar] = {}
    notes: dict[str, str] = {}
    for name in _NUMBERS:
        x, y = getattr(a, name), getattr(b, name)
        change = _delta(x, y)
        values[f"{name}_delta_bytes"] = change if change is None or name == "growth" else round(change)
        if change is not None:
            notes[f"{name}_delta_bytes"] = f"{human(x, 'B')} → {human(y, 'B')}"
    if isinstance(values["peak_delta_bytes"], int) and gib(values["peak_delta_bytes"]):
        notes["peak_delta_bytes"] += f", {gib(values['peak_delta_bytes'])}"
    values |= {
        "peak_a_bytes": a.peak, "peak_b_bytes": b.peak, "peak_ratio": b.peak / a.peak if a.peak > 0 else None,
        "other_run": there.run, "other_worker": there.of.worker, "by": by,
    }  # fmt: skip
    shown = [f"{n}_delta_bytes" for n in ("peak", "reserved", "fragmentation", "growth", "left") if values[f"{n}_delta_bytes"] is not None]
    ordered = {name: values[name] for name in [*shown, *(n for n in values if n not in shown)]}
    return make_facts(
        "facts", "Difference", ordered, FACTS, style="tiles",
        notes={n: t for n, t in notes.items() if n in shown}, hidden=[n for n in ordered if n not in shown],
    )  # fmt: skip


def _held(found: Differences, here: Side[ComparePart], there: Side[ComparePart], by: str) -> TableSection:
    frame = found.frame.copy()
    only = {BOTH: "both", "a": f"only {here.name}", "b": f"only {there.name}"}
    frame["only"] = [only[str(o)] for o in frame["only"]]
    guessed, twice = Mark("estimated", "worked out from where and when it was allocated"), Mark("flagged", "something counts twice")
    marks = {str(i): guessed for i, e in enumerate(frame["estimated"]) if e}
    kinds = zip(frame["kind"], frame["a"], frame["b"], strict=True)
    flagged = {str(i): twice for i, (kind, x, y) in enumerate(kinds) if kind == "unknown" and min(x, y) < 0}
    a, b = here.part, there.part
    common = [note for note in a.notes[by] if note in b.notes[by]]
    notes = common + [f"{side.name}: {note}" for side in (here, there) for note in side.part.notes[by] if note not in common]
    columns = [_named(c, here, there) for c in HELD]
    heading = by.capitalize() if by != "frame" else "Python line"
    columns[0] = Column("name", heading, doc=HELD[0].doc, show="text" if by == "category" else "code")
    same = not any(s.startswith("only") for s in frame["only"])
    columns = [msgspec.structs.replace(c, rank=3) if same and c.name == "only" else c for c in columns]
    return make_table(
        "held", "What held memory at the peaks", frame, columns, key="key", sort=Sort("abs_delta"),
        subtitle=f"by {by}; the differences add up to that of the peaks",
        total={"name": "in use", "delta": b.peak - a.peak, "a": a.peak, "b": b.peak, "abs_delta": abs(b.peak - a.peak)},
        filters=[] if same else ["only"], marks={n: m for n, m in (("name", marks), ("delta", flagged)) if m},
        footer=" ".join(f"{capitalized(n)}." for n in notes),
    )  # fmt: skip


def _named(column: Column, here: Side[ComparePart], there: Side[ComparePart]) -> Column:
    """A and B by their names."""
    of = {"A": here.name, "B": there.name}
    of |= {f"Allocations in {letter}": f"Allocations, {name}" for letter, name in [*of.items()]}
    return msgspec.structs.replace(column, label=of.get(column.label, column.label))


def _numbers(here: Side[ComparePart], there: Side[ComparePart]) -> TableSection:
    rows = []
    for name, (label, _) in _NUMBERS.items():
        if name == "growth":  # of another size: a tile has it
            continue
        x, y = getattr(here.part, name), getattr(there.part, name)
        change = _delta(x, y)
        rows.append({"measure": label, "a": x, "b": y, "delta": change, "share": change / x if change is not None and x else None})
    frame = pd.DataFrame(rows, columns=[c.name for c in NUMBERS], dtype=object)
    sources = [f"{s.name}: {s.part.source}" for s in (here, there)]
    text = sources[0].partition(": ")[2] if here.part.source == there.part.source else "; ".join(sources)
    links = {name: Link("memory", {"run": side.run, "worker": side.of.worker, "span": side.of.span}, f"Memory of {side.name}")
             for name, side in (("a", here), ("b", there))}  # fmt: skip
    return make_table(
        "numbers", "Numbers", frame, [_named(c, here, there) for c in NUMBERS], key="measure", span=6, subtitle=text,
        links=[links["a"], links["b"]],
    )  # fmt: skip


def _settings(here: Side[ComparePart], there: Side[ComparePart]) -> TableSection:
    a, b = here.part.setting, there.part.setting
    rows = [{"setting": name, "a": a.get(name), "b": b.get(name), "same": "same" if a.get(name) == b.get(name) else "differs"}
            for name in dict.fromkeys([*a, *b])]  # fmt: skip
    rows.sort(key=lambda r: r["same"] == "same")
    frame = pd.DataFrame(rows, columns=[c.name for c in SETTINGS])
    return make_table(
        "settings", "How they were recorded", frame, [_named(c, here, there) for c in SETTINGS], key="setting", span=6,
        subtitle="what both recordings say of the job", empty="Neither recording says how it was made.",
    )  # fmt: skip


def _notices(here: Side[ComparePart], there: Side[ComparePart], by: str, why: str) -> list[Notice]:
    a, b = here.part, there.part
    out = []
    other = [n for n in dict.fromkeys([*a.setting, *b.setting]) if n in a.setting and n in b.setting and a.setting[n] != b.setting[n]]
    told = [f"{name} {a.setting[name]} and {b.setting[name]}" for name in other if name not in EXPECTED]
    if told:
        out.append(Notice(f"The two were not made alike: {'; '.join(told)}."))
    if a.relative != b.relative:
        out.append(Notice("One recording holds no totals: its numbers are changes since it began, and do not compare with levels."))
    if a.source != b.source:
        out.append(Notice(f"Numbers are of different sources: {here.name} from {a.source}, {there.name} from {b.source}."))
    for side in (here, there):
        if side.part.failures:
            count = side.part.failures
            text = f"{how_many(count, 'allocation')} failed in `{side.name}`."
            out.append(Notice(text, link=Link("memory_findings", {"run": side.run, "worker": side.of.worker, "span": side.of.span}, "Why")))
    if why:
        out.append(Notice(why if by else f"{why} Record memory with with_stack=True, or with the SOL capture.", "info"))
    return out


__all__ = ["MemoryCompareQuery", "run"]
