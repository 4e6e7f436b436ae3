"""Which rank uses more memory than the others, and which is nearest to running out.

One row per rank, of the memory of its device with most in use: what was in use and reserved by the allocator at most, before the window and
at its end, what is left of the device, how much of it lies between pieces in use, and how much it grows per step. Stages of a pipeline
hold different parts of a model and differ by design: where the recordings name the stage of each rank, ranks are compared within
their stage, else with all. The imbalance is the largest value over the median. A rank that is far from the others is marked (robust
z-score above 3.5 and more than 2 % from the median); of fewer than five ranks none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memory.attribution import By, attribution, groupings_of
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.expected import place
from tb_sol_plugin.metrics.memory.labels import gib, label
from tb_sol_plugin.metrics.memory.sources import SOURCES
from tb_sol_plugin.metrics.memory.summary import memory_summary
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Comparison, Measure, Ranks, floats, frame_of, ranks_of
from tb_sol_plugin.metrics.ranks.sections import TITLE, RankAxis, axis_of, farthest, hover_head, marks, median_line, name_note
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import number_of
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
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
    make_table,
)
from tb_sol_plugin.tables.arrays import Floats, whole_numbers
from tb_sol_plugin.units import capitalized, human, scale_of

# -- Reduction of one rank --------------------------------------------------------------------------------------------
# the numbers of its memory, in bytes; None is unknown.


LONGEST_NAME: Final = 120
"""Characters of the name of a holder."""
BY: Final[tuple[By, ...]] = ("category", "module")


class RankMemory(msgspec.Struct, frozen=True):
    """What is compared of one rank, of its device with most memory in use.

    peak, reserved: in use and held at most; reserved_at_peak: held when most was in use. before, end: in use before the window and at its
    end. capacity: of the device, base: used on it beside the allocator; left: capacity less base less most held, at_most: where the base is
    not known. growth: bytes per step where a line through the steps says so, verdict: of `leak`. failures: allocations that failed.
    holder, held: what held most at the peak, by category or module, and how much. stage: of the pipeline. relative: levels are changes.
    """

    device: str
    source: str
    relative: bool
    window_ns: int
    peak: int
    reserved: int | None
    reserved_at_peak: int | None
    fragmentation: int | None
    before: int | None
    end: int
    capacity: int | None
    base: int | None
    left: int | None
    at_most: int | None
    growth: float | None
    verdict: str
    failures: int | None
    holder: str
    held: int | None
    stage: int | None
    stages: int | None


def memory_of_rank(capture: Capture, query: Query) -> RankMemory:
    """Reduces the memory of one recording to a few numbers. Unavailable where no device's allocator was recorded."""
    memory_numbers = memory_summary(capture, query)
    memory, whole, curve, found, room = (
        memory_numbers.memory,
        memory_numbers.every,
        memory_numbers.curve,
        memory_numbers.found,
        memory_numbers.room,
    )
    name, held = _largest_at_peak(capture, memory.curves, whole.source)
    at = place(capture).get("pp")
    return RankMemory(
        device=memory.label, source=SOURCES[whole.source], relative=found.relative,
        window_ns=int(curve.time_ns[-1] - curve.time_ns[0]), peak=found.peak, reserved=found.reserved,
        reserved_at_peak=found.reserved_at_peak, fragmentation=found.fragmentation, before=found.before, end=found.end,
        capacity=room.total.bytes, base=room.base.bytes, left=room.left.bytes, at_most=room.at_most,
        growth=memory_numbers.growth, verdict=memory_numbers.grows.verdict if memory_numbers.grows is not None else "no_steps",
        failures=memory_numbers.failures,
        holder=name[:LONGEST_NAME], held=held, stage=at[0] if at is not None else None,
        stages=at[1] if at is not None else None,
    )  # fmt: skip


def _largest_at_peak(capture: Capture, curves: tuple[Curves, ...], source: str) -> tuple[str, int | None]:
    """Returns what held most at the peak, by category where any source can tell, else by module; ("", None) where none can."""
    ordered = sorted(curves, key=lambda c: c.source != source)
    for by in BY:
        for curve in ordered:
            if by in groupings_of(capture, curve):
                rows = attribution(capture, curve, by).rows
                known = rows[(rows["kind"] == "row") & (rows["bytes"] > 0)]
                if len(known):
                    top = known.iloc[int(known["bytes"].to_numpy().argmax())]
                    name = str(top["name"])
                    return label(name) if by == "category" else name, int(top["bytes"])
    return "", None


NEAR: Final = 64e6
"""Bytes by which a rank must differ from the median to be an outlier."""
MEASURES: Final = {
    "peak": Measure("peak", "B", "memory in use at most", NEAR),
    "reserved": Measure("reserved", "B", "memory reserved by the allocator at most", NEAR),
    "fragmentation": Measure("fragmentation", "B", "memory reserved and not in use at the peak", NEAR),
    "before": Measure("before", "B", "memory in use before the window", NEAR),
    "end": Measure("end", "B", "memory in use at the end", NEAR),
    "growth": Measure("growth", "B", "growth of memory in use per step", 1e6),
}
"""By the query field `what`."""

MemoryOfRanks: TypeAlias = Comparison[RankMemory]
ALL: Final = "all ranks"
"""The one group where stages are not compared."""
_BYTES: Final = ("peak", "reserved", "reserved_at_peak", "fragmentation", "before", "end", "capacity", "base", "left", "failures", "held")
"""Columns of whole numbers."""


def compare(ranks: Ranks[RankMemory], parts: list[RankMemory], what: str) -> MemoryOfRanks:
    """Memory of the ranks compared by `what` (a key of MEASURES), within stages where all ranks know theirs. parts: of `ranks.read`."""
    frame = frame_of(enumerate(parts), RankMemory)
    stage = floats(frame["stage"])
    frame["left"] = np.where(frame["left"].isna(), frame["at_most"], frame["left"])
    frame = frame.astype(dict.fromkeys((*_BYTES, "growth"), np.float64))
    names = [None if s is None else f"stage {s}" for s in frame["stage"].tolist()]
    frame["stage"], frame["holder"] = pd.Series(names, dtype=object), pd.Series([h or None for h in frame["holder"]], dtype=object)
    distinct = np.unique(stage)
    staged = bool(np.isfinite(stage).all()) and len(distinct) > 1
    frame["group"] = np.searchsorted(distinct, stage) if staged else 0
    groups = tuple(f"stage {int(s)}" for s in distinct) if staged else (ALL,) if parts else ()
    return Comparison(ranks, frame, groups, MEASURES[what])


def has_stages(ranks: MemoryOfRanks) -> bool:
    """Returns whether ranks are compared within pipeline stages."""
    return ranks.groups != (ALL,)


def displayed(ranks: MemoryOfRanks) -> pd.DataFrame:
    """Returns the table of ranks without the columns that name a rank."""
    return ranks.frame.assign(**{name: whole_numbers(ranks.frame[name]) for name in _BYTES})


def by_stage(ranks: MemoryOfRanks) -> pd.DataFrame:
    """Returns one row per stage over its ranks; where no stages are known one over all of them."""
    value, reserved, left = ranks.spread(), ranks.spread("reserved"), ranks.spread("left")
    sloped = ranks.spread("growth")["count"] > 0
    leaks = np.bincount(ranks.group[ranks.counts & (ranks.frame["verdict"] == "leak").to_numpy()], minlength=len(ranks.groups))
    size = (lambda values: values) if ranks.measure == MEASURES["growth"] else whole_numbers
    return pd.DataFrame({
        "stage": list(ranks.groups), "ranks": np.bincount(ranks.group[ranks.counts], minlength=len(ranks.groups)),
        "median": size(value["median"]), "most": size(value["most"]), "most_rank": value["most_rank"],
        "imbalance": value["imbalance"], "excess": size(value["excess"]),
        "reserved": size(reserved["most"]), "reserved_rank": reserved["most_rank"],
        "left": size(left["least"]), "left_rank": left["least_rank"],
        "growing": whole_numbers(np.where(sloped, leaks, np.nan)),
    }, dtype=object)  # fmt: skip


class MemoryRanksQuery(Query, kw_only=True, frozen=True):
    """what: what ranks are compared by: most in use or reserved, reserved and not in use, in use before or at the end, growth per step"""

    what: Literal["peak", "reserved", "fragmentation", "before", "end", "growth"] = "peak"


_UNKNOWN_RESERVED: Final = "this source does not record what is reserved"
RANK_COLUMNS: Final = (
    Column("rank", "Rank", doc="rank, as recorded or from the name of the worker", missing="not known"),
    Column("stage", "Stage", doc="stage of the pipeline, from the SOL capture of the worker", show="text", missing="not recorded"),
    Column("of_median", "× median", doc="the compared value over the median of the ranks of its stage, or of all",
           missing="the median is 0, or the value is not known"),
    Column("peak", "In use at most", "B", "largest memory in use", show="bar", color="compute"),
    Column("reserved", "Reserved at most", "B", "largest memory reserved by the allocator", missing=_UNKNOWN_RESERVED),
    Column("left", "Left", "B", "memory of the device less what is in use outside of the allocator less the most that it reserved",
           missing="the size of the device, or what its allocator holds, is not known"),
    Column("fragmentation", "Reserved, not in use", "B", "reserved less in use, when most was in use", missing=_UNKNOWN_RESERVED),
    Column("growth", "Growth per step", "B", "slope of a line through the least that was in use in each step",
           missing="too few steps were recorded"),
    Column("holder", "Held most", doc="what held most at the peak, by category or module", show="text", rank=2,
           missing="this source does not record it"),
    Column("held", "Of the peak", "B", "what that held", rank=2, missing="this source does not record it"),
    Column("before", "Before", "B", "in use before the window", rank=2, missing="this source does not record it"),
    Column("end", "At the end", "B", "in use at the end of the window", rank=2),
    Column("failures", "Failed", "count", "allocations that failed", rank=2, missing="only the history of an allocator snapshot records"),
    Column("base", "Beside", "B", "used on the device outside of the allocator: context, libraries, communication", rank=3,
           missing="not recorded"),
    Column("capacity", "Device", "B", "memory of the device", rank=3, missing="not recorded"),
    Column("reserved_at_peak", "Reserved at the peak", "B", "reserved by the allocator when most was in use", rank=3,
           missing=_UNKNOWN_RESERVED),
    Column("verdict", "Steps", doc="what the line through the steps says", rank=3, show="text"),
    Column("device", "Memory", doc="which memory", rank=3, show="text"),
    Column("source", "Source", doc="where the numbers are from", rank=3, show="text"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=2),
)  # fmt: skip
STAGE_COLUMNS: Final = (
    Column("stage", "Stage", doc="stage of the pipeline; all ranks where stages are not known", show="text"),
    Column("ranks", "Ranks", "count", "ranks of it that were read"),
    Column("median", "Median", "B", "of the compared value", missing="not known"),
    Column("most", "Largest", "B", "of the compared value", missing="not known"),
    Column("most_rank", "Rank", doc="the rank with the largest value", missing="all alike, or not known"),
    Column("imbalance", "Imbalance", doc="largest over median", missing="the median is 0, or not known"),
    Column("excess", "Above median", "B", "largest less median", show="bar", color="compute", missing="not known"),
    Column("reserved", "Reserved at most", "B", "largest memory reserved by an allocator", missing=_UNKNOWN_RESERVED),
    Column("reserved_rank", "Rank", doc="the rank whose allocator reserved most", rank=2, missing="all alike, or not known"),
    Column("left", "Least left", "B", "of the rank that is nearest to running out", missing="not known"),
    Column("left_rank", "Rank", doc="that rank", missing="all alike, or not known"),
    Column("growing", "Growing", "count", "ranks whose memory in use grows from step to step", missing="too few steps were recorded"),
)  # fmt: skip
FACTS: Final = (
    *R.FACTS,
    Fact("stages", "", "count", "stages of the pipeline among them"),
    Fact("peak_bytes", "Highest peak", "B", "memory in use at most, of the rank with most"),
    Fact("reserved_bytes", "", "B", "reserved by an allocator at most, of the rank with most"),
    Fact("imbalance", "Imbalance", "", "the compared value, largest over median, in the stage with the largest difference"),
    Fact("excess_bytes", "", "B", "the difference: largest less median"),
    Fact("left_bytes", "Least left", "B", "left of the device, of the rank nearest to running out"),
    Fact("growing", "Growing", "count", "ranks whose memory in use grows from step to step"),
    Fact("failures", "", "count", "allocations that failed, of all ranks of which the history of an allocator is recorded"),
)  # fmt: skip
EVEN: Final = 1.02
"""Up to this imbalance ranks are even."""


@analysis(
    scope="ranks",
    title="Ranks",
    question="Does one rank use more memory than the others?",
    group="Run",
    order=13,
    requirements=("memory_use",),
    query=MemoryRanksQuery,
    tables={"stages": STAGE_COLUMNS, "ranks": RANK_COLUMNS, "left_out": R.LEFT_OUT},
    facts=FACTS,
    under="memory",
    reduce=Reduction(memory_of_rank, fields=("step", "device_limits"), sol_log=True),
)
def run(workers: Sequence[RecordingReduction[RankMemory]], query: MemoryRanksQuery) -> Report:
    found = ranks_of(workers, lambda w: w.reduced.window_ns)
    parts = [w.reduced for w in found.read]
    ranks = compare(found, parts, query.what)
    stages = by_stage(ranks)
    sections: list[AnySection] = [_tiles(_values(ranks, stages), ranks)]
    if parts:
        sections += [strip(ranks), _stage_table(ranks, stages), _rank_table(ranks, parts, query)]
    sections += R.left_out(found)
    return Report(
        analysis="memory_ranks", title="Ranks", headline=_headline(ranks, stages),
        notices=[*R.notices(found), *_notices(ranks, parts)], sections=sections,
    )  # fmt: skip


def _stage_table(ranks: MemoryOfRanks, stages: pd.DataFrame) -> TableSection:
    staged = has_stages(ranks)
    return make_table(
        "stages", "Stages" if staged else "Over the ranks", stages, STAGE_COLUMNS, key="stage",
        subtitle=f"compared by {ranks.measure.label}",
        footer="Stages of a pipeline hold different parts of the model: each is compared with itself." if staged else "",
    )  # fmt: skip


def _rank_table(ranks: MemoryOfRanks, parts: list[RankMemory], query: MemoryRanksQuery) -> TableSection:
    rows = range(len(parts))
    who = R.identity(ranks, rows)
    step = {"step": query.step} if query.step else {}
    links = R.row_links(ranks, rows, analysis="memory", label="the memory of this rank", query=[step] * len(parts))
    hidden = frozenset({"stage"} if not ranks.frame["stage"].notna().any() else ())
    return make_table(
        "ranks", "Ranks", displayed(ranks).assign(**who), R.columns_of(RANK_COLUMNS, who["rank"].notna().tolist(), hidden), key="worker",
        subtitle=f"compared by {ranks.measure.label}", sort=Sort("of_median"), filters=["stage"] if has_stages(ranks) else [],
        marks=_table_marks(ranks, parts), row_links=links, cell_links={"rank": links, "worker": links},
        footer="A rank opens its memory. Left is of the whole recording.",
    )  # fmt: skip


def _values(ranks: MemoryOfRanks, stages: pd.DataFrame) -> dict[str, Scalar]:
    worst = R.largest(stages, "excess")
    growing = [v for v in stages["growing"].tolist() if v is not None]
    most = {name: ranks.spread_of(None, name).most for name in ("peak", "reserved")}
    least = ranks.spread_of(None, "left").least
    failed = ranks.frame["failures"].sum()
    return {
        **R.facts(ranks.ranks), "stages": len(ranks.groups) if has_stages(ranks) else None,
        **{f"{name}_bytes": None if size is None else round(size) for name, size in most.items()},
        "imbalance": worst["imbalance"] if worst is not None else None, "excess_bytes": worst["excess"] if worst is not None else None,
        "left_bytes": None if least is None else round(least), "growing": sum(growing) if growing else None,
        "failures": int(failed) if ranks.frame["failures"].notna().any() else None,
    }  # fmt: skip


def _tiles(facts: dict[str, Scalar], ranks: MemoryOfRanks) -> FactsSection:
    ends = {"peak_bytes": ranks.spread_of(None, "peak").most_rank, "left_bytes": ranks.spread_of(None, "left").least_rank}
    notes = {"workers_read": R.read_note(ranks.ranks)}
    for name, rank in ends.items():
        size = facts[name]
        notes[name] = ", ".join(filter(None, (rank or "", gib(int(size)) if isinstance(size, int) else "")))
    notes["growing"] = "ranks that use more in every step"
    notes["imbalance"] = f"largest over median{' of its stage' if has_stages(ranks) else ''}"
    if ranks.measure != MEASURES["peak"]:
        notes["imbalance"] = f"{ranks.measure.label}: {notes['imbalance']}"
    shown = ("workers_read", "peak_bytes", "imbalance", "left_bytes", "growing")
    return R.tiles(facts, FACTS, title="Over the ranks", shown=shown, notes=notes)


def _headline(ranks: MemoryOfRanks, stages: pd.DataFrame) -> str:
    if alone := R.incomparable(ranks.ranks):
        return alone
    many, what, staged = f"{human(ranks.ranks.compared, 'count')} ranks", ranks.measure.column, has_stages(ranks)
    worst, words = R.largest(stages, "excess"), ranks.measure.label
    if worst is None:
        return f"The {words} of {many} is not known."
    times = number_of(worst["imbalance"])
    where = f"the ranks of {worst['stage']}" if staged else many
    if what == "growth" and (times is None or times <= EVEN):
        grow = [v for v in stages["growing"].tolist() if v]
        if grow:
            size = human(float(stages["most"].astype(float).max()), "B")
            return f"Memory in use grows from step to step on {human(sum(grow), 'count')} of {many}, by up to **{size}** per step."
    if times is None or times <= EVEN:
        within = ", each compared within its stage" if staged else ""
        most = max(times or 1.0, 1.0)
        return f"{capitalized(many)} are alike{within}: the {words} is nowhere more than {most:.2f} times the median."
    size, above = human(number_of(worst["most"]), "B"), human(number_of(worst["excess"]), "B")
    top = ranks.spread_of(None, "peak")
    if what == "peak" and top.most is not None:
        first = f"Most is in use on **{top.most_rank}**: **{human(top.most, 'B')}** at its peak"
        if top.most_rank == worst["most_rank"]:
            return f"{first}, {times:.2f} times the median of {where}: {above} more."
        if staged:
            return f"{first}. Farthest from {where} is **{worst['most_rank']}**: {size}, {times:.2f} times their median, {above} more."
    lead = {"peak": f"uses {size} at its peak", "reserved": f"holds {size} at most"}.get(what, f"stands out: {words} {size}")
    return f"**{worst['most_rank']}** {lead}, {times:.2f} times the median of {where}: {above} more."


def _notices(ranks: MemoryOfRanks, parts: list[RankMemory]) -> list[Notice]:
    out = []
    failed = [at for at, p in enumerate(parts) if p.failures]
    if failed:
        names = ", ".join(ranks.ranks.labels[at] for at in failed[:4]) + (" …" if len(failed) > 4 else "")
        count = sum(parts[at].failures or 0 for at in failed)
        text = f"{human(count, 'count')} allocation{'s' if count > 1 else ''} failed, on {names}."
        first = ranks.ranks.read[failed[0]]
        out.append(Notice(text, link=Link("memory_findings", {"worker": first.worker, "span": first.span}, "Why")))
    sources = sorted({p.source for p in parts})
    if len(sources) > 1:
        out.append(Notice(f"Numbers of these ranks are from different sources: {', '.join(sources)}. They see different parts of the run."))
    if any(p.relative for p in parts):
        out.append(Notice("Some recordings hold no totals: their numbers are changes since they began, and do not compare with levels."))
    return out


def _table_marks(ranks: MemoryOfRanks, parts: list[RankMemory]) -> dict[str, dict[str, Mark]]:
    out = R.row_marks(ranks, range(len(parts)), "other ranks" + (" of its stage" if has_stages(ranks) else ""))
    out |= {"left": {}, "peak": {}, "growth": {}}
    for i, one in enumerate(parts):
        if one.left is None and one.at_most is not None:
            out["left"][str(i)] = Mark("estimated", "at most: what is in use outside of the allocator was not recorded")
        if one.relative:
            out["peak"][str(i)] = Mark("estimated", "change since the beginning of the recording: it holds no totals")
        if one.verdict == "leak":
            out["growth"][str(i)] = Mark("flagged", "memory in use grows from step to step")
    return {name: marks for name, marks in out.items() if marks}


# -- Panels of ranks --------------------------------------------------------------------------------------------------
# memory in use as a bar, reserved memory behind it, medians and the memory of the device as lines.


STRIP_PX: Final = 260
DEVICE_CLOSE: Final = 3.0
"""The memory of the device is a line where it is not more than so many times the largest value."""


def strip(ranks: MemoryOfRanks) -> FigureSection:
    """Draws one bar or point per rank."""
    measure, values = ranks.measure, _over_groups(ranks)
    known = np.isfinite(values)
    if not known.any():
        summary = f"The {measure.label} is not known for any rank."
        return FigureSection(id="ranks_figure", title=TITLE, figure=F.figure([]), summary=summary, height=120, table="ranks")
    axis = axis_of(ranks)
    peak = measure == MEASURES["peak"]
    reserved = _over_groups(ranks, "reserved") if peak else np.full(len(values), np.nan)
    top = float(np.nanmax(np.r_[values[known], reserved[np.isfinite(reserved)]]))
    low = min(float(values[known].min()), 0.0)
    scale, unit = scale_of(max(top, -low, 1.0), "B")
    data = _reserved(axis, reserved / scale) + _points(ranks, axis, values, reserved, scale)
    data += _medians(ranks, axis, scale) + axis.excluded({}, 0.04 * top / scale)
    shapes, notes, high = _device_line(ranks, top, scale)
    away = np.abs(values - np.nanmedian(values))
    notes += [name_note(axis, i, float(values[i]) / scale) for i in farthest(away, ranks.outliers[ranks.counts])]
    over = 1.14 * max(high, top) / scale
    drawn = F.figure(
        data, x=axis.layout(), y=F.axis(unit, range=[0 if axis.bars and low >= 0 else (low / scale) * 1.1 - 0.06 * over, over]),
        shapes=shapes, annotations=notes, margin={"l": 64, "r": 18, "t": 18, "b": 46}, bargap=0, barmode="overlay", showlegend=False,
    )  # fmt: skip
    words = "in use at most; behind it, paler, reserved by the allocator" if peak else measure.label
    return FigureSection(
        id="ranks_figure", title=TITLE, figure=drawn, summary=_summary(ranks), table="ranks", height=STRIP_PX,
        subtitle=f"{words}; lines are the medians{' of the stages' if has_stages(ranks) else ''}",
    )  # fmt: skip


def _over_groups(ranks: MemoryOfRanks, column: str = "") -> Floats:
    """Returns a value per rank: each rank is in one group."""
    return ranks.counted(column)[ranks.counts]


def _width(axis: RankAxis[RankMemory]) -> float:
    return min(0.72, 0.045 * axis.length) if axis.length > 16 else 0.62


def _reserved(axis: RankAxis[RankMemory], values: Floats) -> list[F.Plain]:
    """Returns what the allocator holds, behind what is in use."""
    there = np.isfinite(values)
    if not there.any():
        return []
    base: F.Plain = {"x": axis.x[there].tolist(), "y": values[there].tolist(), "hoverinfo": "skip", "name": "held by the allocator"}
    if axis.bars:
        look: F.Plain = {"color": F.light("compute") + "2E", "line": {"width": 0.8, "color": F.light("compute")}}
        return [base | {"type": "bar", "width": _width(axis), "marker": look}]
    dash: F.Plain = {"symbol": "line-ew", "size": 6, "line": {"width": 1.2, "color": F.light("ink-3")}}
    return [base | {"type": "scatter", "mode": "markers", "marker": dash}]


def _points(ranks: MemoryOfRanks, axis: RankAxis[RankMemory], values: Floats, reserved: Floats, scale: float) -> list[F.Plain]:
    counted = ranks.frame[ranks.counts]
    outliers = ranks.outliers[ranks.counts]
    hover = []
    for i, stage in enumerate(counted["stage"].tolist()):
        lines = [hover_head(axis, i, f", {stage}" if stage else "", outlier=bool(outliers[i]))]
        lines.append(f"{ranks.measure.label}: {human(float(values[i]), 'B')}")
        if np.isfinite(reserved[i]):
            lines.append(f"held by the allocator: {human(float(reserved[i]), 'B')}")
        hover.append("<br>".join(lines))
    keys = [ranks.ranks.read[at].worker for at in counted["at"].tolist()]
    return [marks(
        axis, values / scale, outliers=outliers, hover=hover, keys=keys, name=ranks.measure.label, token="compute", width=_width(axis),
    )]  # fmt: skip


def _medians(ranks: MemoryOfRanks, axis: RankAxis[RankMemory], scale: float) -> list[F.Plain]:
    """Returns a dashed line over the ranks of each stage; where these are not adjacent, a piece over each run of them."""
    x: list[float | None] = []
    y: list[float | None] = []
    order = np.argsort(axis.x, kind="stable")
    group = ranks.group[ranks.counts][order]
    for stage, middle in enumerate(ranks.spread()["median"].tolist()):
        if middle != middle:
            continue
        at = np.flatnonzero(np.diff(np.r_[False, group == stage, False].astype(np.int8)))
        for first, last in zip(at[::2].tolist(), at[1::2].tolist(), strict=True):
            x += [float(axis.x[order[first]]) - 0.5, float(axis.x[order[last - 1]]) + 0.5, None]
            y += [middle / scale, middle / scale, None]
    return [median_line(x, y, "ink-2")] if x else []


def _device_line(ranks: MemoryOfRanks, top: float, scale: float) -> tuple[list[F.Plain], list[F.Plain], float]:
    """Returns (shapes, annotations, highest value): the memory of the device, where all ranks have the same and it is near."""
    capacity = ranks.counted("capacity")
    sizes = {int(c) for c in capacity[np.isfinite(capacity)].tolist()}
    if len(sizes) != 1 or ranks.measure.column not in ("peak", "reserved", "end", "before"):
        return [], [], 0.0
    (size,) = sizes
    note: F.Plain = {"xref": "paper", "x": 1, "xanchor": "right", "yanchor": "bottom", "showarrow": False, "font": {"size": 12}}
    if size > DEVICE_CLOSE * top:
        text = f"{human(size, 'B')} on each device, {size / max(top, 1):,.0f}× the largest"
        return [], [note | {"yref": "paper", "y": 1, "text": text, "font": {"size": 12, "color": F.light("ink-3")}}], 0.0
    line: F.Plain = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "yref": "y", "y0": size / scale, "y1": size / scale}
    text = f"<b>memory of the device, {human(size, 'B')}</b>"
    return [line | {"line": {"color": F.light("ink-2"), "width": 1.6}}], [note | {"y": size / scale, "text": text}], float(size)


def _summary(ranks: MemoryOfRanks) -> str:
    parts = []
    for stage in ranks.groups:
        found = ranks.spread_of(stage)
        if found.known:
            where = f"{stage}: " if has_stages(ranks) else ""
            parts.append(f"{where}median {human(found.median, 'B')}, highest {human(found.most, 'B')} ({found.most_rank})")
    label = ranks.measure.label
    return f"{capitalized(label)} of {ranks.ranks.compared} ranks. " + "; ".join(parts) + "."
