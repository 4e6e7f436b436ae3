"""Which rank uses more memory than the others, and which is nearest to running out.

One row per rank, of the memory of its device with most in use: what was in use and held by the allocator at most, before the window and
at its end, what is left of the device, how much of it lies between pieces in use, and how much it grows per step. Stages of a pipeline
hold different parts of a model and differ by design: where the recordings name the stage of each rank, ranks are compared within
their stage, else with all. The imbalance is the largest value over the median. A rank that is far from the others is marked (robust
z-score above 3.5 and more than 2 % from the median); of fewer than five ranks none is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import pandas as pd

from tb_sol_plugin.analyses.memory.memory_ranks_figures import strip
from tb_sol_plugin.analyses.memory.memory_ranks_tables import MEASURES, RankPart, Ranks, by_stage, part, rows_of
from tb_sol_plugin.metrics.memory.labels import gib
from tb_sol_plugin.metrics.ranks import peers
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import WorkerPart
from tb_sol_plugin.model.registry import over_workers
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
    make_facts,
    make_table,
    number_of,
    plain_list,
)
from tb_sol_plugin.units import human


class MemoryRanksQuery(Query, kw_only=True, frozen=True):
    """what: what ranks are compared by: in use or reserved at most, held and not in use, in use before or at the end, growth per step"""

    what: Literal["peak", "reserved", "fragmentation", "before", "end", "growth"] = "peak"


_UNKNOWN_RESERVED: Final = "this source does not tell what the allocator holds"
RANKS: Final = (
    Column("rank", "Rank", doc="rank of the worker, as recorded or as its name says", missing="not known"),
    Column("stage", "Stage", doc="stage of the pipeline, as the SOL capture of the worker says", show="text", missing="not recorded"),
    Column("of_median", "× median", doc="the compared value over the median of the ranks of its stage, or of all",
           missing="the median is 0, or the value is not known"),
    Column("peak", "In use at most", "B", "largest memory in use", show="bar", color="compute"),
    Column("reserved", "Reserved at most", "B", "largest memory held by the allocator", missing=_UNKNOWN_RESERVED),
    Column("left", "Left", "B", "memory of the device less what lies beside the allocator less the most that it held",
           missing="the size of the device, or what its allocator holds, is not known"),
    Column("fragmentation", "Held, not in use", "B", "held by the allocator less in use, when most was in use", missing=_UNKNOWN_RESERVED),
    Column("growth", "Growth per step", "B", "slope of a line through the least that was in use in each step",
           missing="too few steps were recorded"),
    Column("holder", "Held most", doc="what held most at the peak, by category or module", show="text", rank=2,
           missing="this source does not tell"),
    Column("held", "Of the peak", "B", "what that held", rank=2, missing="this source does not tell"),
    Column("before", "Before", "B", "in use before the window", rank=2, missing="this source does not tell"),
    Column("end", "At the end", "B", "in use at the end of the window", rank=2),
    Column("failures", "Failed", "count", "allocations that failed", rank=2, missing="only the history of an allocator snapshot tells"),
    Column("base", "Beside", "B", "used on the device beside the allocator: context, libraries, communication", rank=3,
           missing="not recorded"),
    Column("capacity", "Device", "B", "memory of the device", rank=3, missing="not recorded"),
    Column("reserved_at_peak", "Reserved at the peak", "B", "held by the allocator when most was in use", rank=3,
           missing=_UNKNOWN_RESERVED),
    Column("verdict", "Steps", doc="what the line through the steps says", rank=3, show="text"),
    Column("device", "Memory", doc="which memory", rank=3, show="text"),
    Column("source", "Source", doc="where the numbers are from", rank=3, show="text"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=2),
)  # fmt: skip
STAGES: Final = (
    Column("stage", "Stage", doc="stage of the pipeline; all ranks where stages are not known", show="text"),
    Column("ranks", "Ranks", "count", "ranks of it that were read"),
    Column("median", "Median", "B", "of the compared value", missing="not known"),
    Column("most", "Largest", "B", "of the compared value", missing="not known"),
    Column("most_rank", "Rank", doc="the rank with the largest value", missing="all alike, or not known"),
    Column("imbalance", "Imbalance", doc="largest over median", missing="the median is 0, or not known"),
    Column("excess", "Above median", "B", "largest less median", show="bar", color="compute", missing="not known"),
    Column("reserved", "Reserved at most", "B", "largest memory held by an allocator", missing=_UNKNOWN_RESERVED),
    Column("reserved_rank", "Rank", doc="the rank whose allocator held most", rank=2, missing="all alike, or not known"),
    Column("left", "Least left", "B", "of the rank that is nearest to running out", missing="not known"),
    Column("left_rank", "Rank", doc="that rank", missing="all alike, or not known"),
    Column("growing", "Growing", "count", "ranks whose memory in use grows from step to step", missing="too few steps were recorded"),
)  # fmt: skip
FACTS: Final = (
    Fact("workers", "", "count", "workers of the run"),
    Fact("workers_read", "Workers", "count", "those whose recording could be read"),
    Fact("ranks_present", "", "count", "different ranks among them"),
    Fact("world_size", "", "count", "ranks of the job, as the recordings say"),
    Fact("ranks_missing", "", "count", "ranks of the job without a recording here"),
    Fact("stages", "", "count", "stages of the pipeline among them"),
    Fact("peak_bytes", "Highest peak", "B", "memory in use at most, of the rank with most"),
    Fact("reserved_bytes", "", "B", "held by an allocator at most, of the rank with most"),
    Fact("imbalance", "Imbalance", "", "the compared value, largest over median, in the stage with the largest difference"),
    Fact("excess_bytes", "", "B", "the difference: largest less median"),
    Fact("left_bytes", "Least left", "B", "left of the device, of the rank nearest to running out"),
    Fact("growing", "Growing", "count", "ranks whose memory in use grows from step to step"),
    Fact("failures", "", "count", "allocations that failed, of all ranks of which the history of an allocator is recorded"),
)  # fmt: skip
EVEN: Final = 1.02
"""Up to this imbalance ranks are even."""


@over_workers(
    part=part,
    title="Ranks",
    question="Does one rank use more memory than the others?",
    group="Run",
    order=13,
    needs=("memory_use",),
    query=MemoryRanksQuery,
    fields=("step", "device_limits"),
    beside=True,
    tables={"stages": STAGES, "ranks": RANKS, "left_out": peers.LEFT_OUT},
    facts=FACTS,
    icon="memory",
    under="memory",
)
def run(workers: Sequence[WorkerPart[RankPart]], query: MemoryRanksQuery) -> Report:
    parts = {w.worker: w.part for w in workers if w.state == "read"}
    found = peers.crew(workers, lambda w: parts[w.worker].window_ns)
    ranks = rows_of(found, parts, query.what)
    stages = by_stage(ranks, query.what)
    sections: list[AnySection] = [_tiles(_values(found, ranks, stages), ranks, query.what)]
    if len(ranks.rows):
        links = _links(ranks, query)
        words = MEASURES[query.what].words
        sections += [
            strip(ranks, found, query.what),
            make_table(
                "stages", "Stages" if ranks.staged else "Over the ranks", stages, STAGES, key="stage", subtitle=f"compared by {words}",
                footer="Stages of a pipeline hold different parts of the model: each is compared with itself." if ranks.staged else "",
            ),
            make_table(
                "ranks", "Ranks", ranks.rows, _columns(ranks), key="worker", subtitle=f"compared by {words}", sort=Sort("of_median"),
                filters=["stage"] if ranks.staged else [], marks=_marks(ranks, parts), row_links=links,
                cell_links={"rank": links, "worker": links}, footer="A rank opens its memory. Left is of the whole recording.",
            ),
        ]  # fmt: skip
    sections += peers.left_out(found)
    return Report(
        analysis="memory_ranks", title="Ranks", headline=_headline(found, ranks, stages, query.what),
        notices=[*peers.notices(found), *_notices(found, ranks, parts)], sections=sections,
    )  # fmt: skip


def _columns(ranks: Ranks) -> list[Column]:
    """Workers without a rank are told by their names, which stand first; stages only where any is known."""
    ranked = ranks.rows["rank"].notna()
    hidden = {"stage"} if not ranks.rows["stage"].notna().any() else set()
    shown = {} if ranked.all() else {"worker": 1, "rank": 1 if ranked.any() else 3}
    columns = [msgspec.structs.replace(c, rank=3 if c.name in hidden else shown.get(c.name, c.rank)) for c in RANKS]
    return columns if ranked.all() else sorted(columns, key=lambda c: c.name != "worker")


def _worst(stages: pd.DataFrame) -> dict[str, Scalar] | None:
    """The row of the stage whose largest value lies farthest above its median."""
    known = stages[stages["excess"].notna()] if len(stages) else stages
    if not len(known):
        return None
    at = int(known["excess"].astype(float).to_numpy().argmax())
    return {str(name): plain_list(known[name])[at] for name in known}


def _values(found: peers.Crew[RankPart], ranks: Ranks, stages: pd.DataFrame) -> dict[str, Scalar]:
    worst = _worst(stages)
    most = {name: peers.spread(ranks.of(name)) for name in ("peak", "reserved", "left")} if len(ranks.rows) else {}
    growing = [v for v in stages["growing"].tolist() if v is not None] if len(stages) else []
    largest = {name: round(s.most) if s.most is not None else None for name, s in most.items()}
    least = most["left"].least if most else None
    failed = [int(n) for n in ranks.rows["failures"].tolist() if n is not None and n == n] if len(ranks.rows) else []
    return {
        "workers": found.total, "workers_read": len(found.read), "ranks_present": len({p.rank for p in found.read if p.rank is not None}),
        "world_size": found.world, "ranks_missing": len(found.missing) if found.world is not None else None,
        "stages": len(ranks.stages) if ranks.staged else None, "peak_bytes": largest.get("peak"), "reserved_bytes": largest.get("reserved"),
        "imbalance": worst["imbalance"] if worst is not None else None, "excess_bytes": worst["excess"] if worst is not None else None,
        "left_bytes": round(least) if least is not None else None, "growing": sum(growing) if growing else None,
        "failures": sum(failed) if failed else None,
    }  # fmt: skip


def _tiles(facts: dict[str, Scalar], ranks: Ranks, what: str) -> FactsSection:
    tiles = ("workers_read", "peak_bytes", "imbalance", "left_bytes", "growing")
    shown = [name for name in tiles if facts[name] is not None]
    read, total, world = facts["workers_read"], facts["workers"], facts["world_size"]
    job = f", job of {human(number_of(world), 'count')}" if world else ""
    notes = {"workers_read": f"all read{job}" if read == total else f"of {human(number_of(total), 'count')}{job}"}
    for name, column, most in (("peak_bytes", "peak", True), ("left_bytes", "left", False)):
        of = peers.spread(ranks.of(column)) if len(ranks.rows) else peers.Spread(0)
        rank, size = ranks.name_at(of.most_at if most else of.least_at), facts[name]
        notes[name] = ", ".join(filter(None, (rank or "", gib(int(size)) if isinstance(size, int) else "")))
    notes |= {"imbalance": f"largest over median{' of its stage' if ranks.staged else ''}", "growing": "ranks that use more in every step"}
    if what != "peak":
        notes["imbalance"] = f"{MEASURES[what].words}: {notes['imbalance']}"
    ordered = {name: facts[name] for name in [*shown, *(n for n in facts if n not in shown)]}
    return make_facts(
        "facts", "Over the ranks", ordered, FACTS, style="tiles",
        notes={n: t for n, t in notes.items() if n in shown}, hidden=[n for n in ordered if n not in shown],
    )  # fmt: skip


def _headline(found: peers.Crew[RankPart], ranks: Ranks, stages: pd.DataFrame, what: str) -> str:
    many = f"{human(len(ranks.counting), 'count')} ranks"
    if not found.read:
        return f"None of {human(found.total, 'count')} workers has been read."
    if len(ranks.counting) == 1:
        return f"One of {human(found.total, 'count')} workers has been read: nothing to compare it with."
    worst, words = _worst(stages), MEASURES[what].words
    if worst is None:
        return f"The {words} of {many} is not known."
    times = number_of(worst["imbalance"])
    where = f"the ranks of {worst['stage']}" if ranks.staged else many
    if what == "growth" and (times is None or times <= EVEN):
        grow = [v for v in stages["growing"].tolist() if v]
        if grow:
            size = human(number_of(max(v for v in stages["most"].tolist() if v is not None)), "B")
            return f"Memory in use grows from step to step on {human(sum(grow), 'count')} of {many}, by up to **{size}** per step."
    if times is None or times <= EVEN:
        within = ", each compared within its stage" if ranks.staged else ""
        most = max(times or 1.0, 1.0)
        return f"{many[0].upper()}{many[1:]} are alike{within}: the {words} is nowhere more than {most:.2f} times the median."
    size, above = human(number_of(worst["most"]), "B"), human(number_of(worst["excess"]), "B")
    top = peers.spread(ranks.of("peak"))
    if what == "peak" and top.most is not None:
        fullest = ranks.name_at(top.most_at)
        first = f"Most is in use on **{fullest}**: **{human(top.most, 'B')}** at its peak"
        if fullest == worst["most_rank"]:
            return f"{first}, {times:.2f} times the median of {where}: {above} more."
        if ranks.staged:
            return f"{first}. Farthest from {where} is **{worst['most_rank']}**: {size}, {times:.2f} times their median, {above} more."
    lead = {"peak": f"uses {size} at its peak", "reserved": f"holds {size} at most"}.get(what, f"stands out: {words} {size}")
    return f"**{worst['most_rank']}** {lead}, {times:.2f} times the median of {where}: {above} more."


def _notices(found: peers.Crew[RankPart], ranks: Ranks, parts: dict[str, RankPart]) -> list[Notice]:
    out = []
    failed = [(w, count) for w in found.read if (count := parts[w.worker].failures)]
    if failed:
        names = ", ".join(peers.label(w) for w, _ in failed[:4]) + (" …" if len(failed) > 4 else "")
        count = sum(n for _, n in failed)
        text = f"{human(count, 'count')} allocation{'s' if count > 1 else ''} failed, on {names}."
        first = failed[0][0]
        out.append(Notice(text, link=Link("memory_findings", {"worker": first.worker, "span": first.span}, "Why")))
    sources = sorted({parts[w.worker].source for w in found.read})
    if len(sources) > 1:
        out.append(Notice(f"Numbers of these ranks are from different sources: {', '.join(sources)}. They see different parts of the run."))
    if any(parts[w.worker].relative for w in found.read):
        out.append(Notice("Some recordings hold no totals: their numbers are changes since they began, and do not compare with levels."))
    return out


def _marks(ranks: Ranks, parts: dict[str, RankPart]) -> dict[str, dict[str, Mark]]:
    out: dict[str, dict[str, Mark]] = {"of_median": {}, "rank": {}, "left": {}, "peak": {}, "growth": {}}
    for i, worker in enumerate(ranks.rows["worker"].tolist()):
        one = parts[worker]
        if ranks.far[i]:
            out["of_median"][str(i)] = Mark("flagged", "far from the other ranks" + (" of its stage" if ranks.staged else ""))
        if not ranks.counts[i]:
            out["rank"][str(i)] = Mark("flagged", "this rank is there more than once; another worker stands for it")
        if one.left is None and one.at_most is not None:
            out["left"][str(i)] = Mark("estimated", "at most: what lies beside the allocator was not recorded")
        if one.relative:
            out["peak"][str(i)] = Mark("estimated", "change since the beginning of the recording: it holds no totals")
        if one.verdict == "leak":
            out["growth"][str(i)] = Mark("flagged", "memory in use grows from step to step")
    return {name: marks for name, marks in out.items() if marks}


def _links(ranks: Ranks, query: MemoryRanksQuery) -> dict[str, Link]:
    step = {"step": query.step} if query.step else {}
    rows = enumerate(zip(ranks.rows["worker"], ranks.span, strict=True))
    return {str(i): Link("memory", {"worker": worker, "span": span} | step, "the memory of this rank") for i, (worker, span) in rows}


__all__ = ["MemoryRanksQuery", "run"]
