"""Which rank delays the others, why, and how much shorter a step is without that.

One row per rank: its steps, what its device does, how much of its communication is exposed and how much of that is waiting for other
ranks, its own time on the critical path over ranks (see *Stragglers*) above that of its peers, and what the job saves without that: the
difference of two replays of all collectives. The heat map shows rank by step where a rank takes longer than its peers; a rank whose
collectives take long only because others come late has nothing there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.ranks import reports
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Ranks
from tb_sol_plugin.metrics.ranks.job import Job
from tb_sol_plugin.metrics.ranks.own_time import CAUSES
from tb_sol_plugin.metrics.ranks.pipeline import pipeline
from tb_sol_plugin.metrics.ranks.stragglers import CAUSE_WORDS, LATE_START_WORDS, LEAST_SHARE, robust_z
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.metrics.rules.engine import Finding, to_report
from tb_sol_plugin.metrics.rules.ranks import LATE, LEAST, RankContext, inconsistent_collectives, job_findings, rank_context
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import analysis, registry
from tb_sol_plugin.model.report import (
    AnySection,
    Column,
    Fact,
    FigureSection,
    FindingsSection,
    Link,
    Mark,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_table,
)
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, whole_numbers
from tb_sol_plugin.units import human, scale_of

MOST_ROWS: Final = 512
"""Ranks that the heat map has a row for each of; of more it has a row per host, of more hosts one per block of ranks."""


LEAST_COLOR: Final = 0.01
"""Part of a step that has the strongest color at least: noise stays pale."""
MOST_CHOICES: Final = 12
"""Hosts that can be chosen above the table."""


class RanksQuery(Query, kw_only=True, frozen=True):
    """what: what the heat map shows of each step: own time above peers, waits that nothing hides, or the length of the step
    order: how its rows are sorted: by number of the rank, by host, by place in the pipeline, or the largest value first
    ranks: ranks that the heat map and the tables show alone, as 0-7,12; what is said of the job stays that of all"""

    what: Literal["excess", "exposed_wait", "step"] = "excess"
    order: Literal["rank", "host", "stage", "value"] = "rank"
    ranks: str = ""


WORDS: Final = {
    "excess": "own time above that of peers", "exposed_wait": "waiting for other ranks that nothing hides", "step": "length of the step",
}  # fmt: skip
NO_STEP: Final = "no complete step was recorded"
NO_REPLAY: Final = "the replay differs from what was recorded"
RANK_COLUMNS: Final = (
    Column("rank", "Rank", doc="number of the rank in the job"),
    Column("node", "Host", doc="machine that it ran on, whose clock it has", show="text", missing="not recorded"),
    Column("status", "Status", doc="compared; alone: no collective in common with another rank; assumed: compared under an assumed number",
           show="badge", rank=2),
    Column("saved_ns", "Saved", "ns", "how much shorter all that was recorded would be without the delays of this rank", show="bar",
           color="compute", missing="not among those with the largest excess, or not known"),
    Column("path_excess_ns", "On the path", "ns", "own time above that of its peers, on the critical path over ranks", missing=NO_REPLAY),
    Column("cause", "Cause", doc="what most of that time is", show="badge", missing="nothing above its peers"),
    Column("persistence", "When", doc="in most steps, some, or one", show="badge", missing="not a suspect"),
    Column("exposed_wait_ns", "Exposed wait", "ns", "waiting for other ranks in collectives while nothing computes",
           missing="no collective is matched"),
    Column("exposed_communication_ns", "Exposed", "ns", "collectives while nothing computes"),
    Column("step_ns", "Step", "ns", "median length of its complete steps", missing=NO_STEP),
    Column("steps", "Steps", "count", "complete steps", rank=3),
    Column("communication_ns", "Collectives", "ns", "union of its collectives", rank=3),
    Column("kernel_ns", "Computation", "ns", "union of its other kernels", rank=3),
    Column("idle_ns", "Idle", "ns", "nothing runs on its device", rank=3),
    Column("z", "z", doc="robust z-score of its own time per step among its peers", rank=3, missing="fewer than five peers, or all alike"),
    Column("device", "Device", doc="name of its device", show="text", rank=3, missing="not recorded"),
    Column("worker", "Worker", doc="name of the worker", show="code", rank=2),
)  # fmt: skip
HEAT_COLUMNS: Final = (
    Column("rank", "Rank", doc="number of the rank"),
    Column("step", "Step", doc="number of the step"),
    Column("value", "Value", "ns", "what the heat map shows", show="bar", color="compute", missing="not known"),
)
FACTS: Final = (
    *R.FACTS,
    Fact("nodes", "Hosts", "count", "machines, each with a clock of its own"),
    Fact("step_ns", "Step", "ns", "median length of complete steps over all ranks"),
    Fact("saved_per_step_ns", "Saved per step", "ns", "how much shorter a step would be without the delays of the rank that costs most"),
    Fact("saved_together_per_step_ns", "", "ns", "the same without those of all ranks that cost 1 % or more"),
    Fact("exposed_wait_share", "Waiting", "ratio", "exposed waits over exposed communication, all ranks"),
    Fact("collectives_matched", "Matched", "ratio", "collectives of all ranks that are matched with one of another rank"),
)


@analysis(
    scope="ranks",
    title="Ranks",
    question="Which rank delays the others, and what does it cost?",
    group="Run",
    order=2,
    query=RanksQuery,
    tables={"ranks": RANK_COLUMNS, "heatmap": HEAT_COLUMNS, "left_out": R.LEFT_OUT},
    facts=FACTS,
    reduce=reports.SUMMARIES,
)
def run(workers: Sequence[RecordingReduction[RankSummary]], query: RanksQuery) -> Report:
    found, job = reports.read_job(workers, query)
    sections: list[AnySection] = []
    context = rank_context(job)
    reported = job_findings(job)
    headline = R.incomparable(found) or _headline(job, reported)
    if len(job.calls):
        places = _chosen(job, query.ranks)
        values = heat_values(job, query.what)
        values = values[np.isin(values["at"], places)]
        cards = _findings(job, context, reported, query)
        sections = [_tiles(found, job), *cards, *_heat(job, query, values, places), _rank_table(found, job, query, places)]
        if len(values):
            sections.append(_heat_table(job, query, values))
    sections += R.left_out(found)
    return Report(analysis="ranks", title="Ranks", headline=headline, notices=reports.notices(found, job), sections=sections)


def _chosen(job: Job, text: str) -> Ints:
    """Returns the places of the ranks that a query names, all where it names none. BadQuery where it names none that is recorded."""
    ranks, chosen = job.calls.ranks, reports.with_ranks(text)
    places = np.flatnonzero(np.isin(ranks, chosen)) if chosen is not None else np.arange(len(ranks))
    if not len(places):
        there = f"there are {reports.ranks_text(ranks)[:80]}"
        raise BadQuery(f"none of the ranks {text.strip()[:40]} is recorded", hint=there, field="ranks")
    return places


def _headline(job: Job, reported: Sequence[Finding]) -> str:
    """Returns the finding that saves most, where that is no late rank, before what is said of late ranks."""
    verdict = reports.verdict(job)
    if not reported or reported[0].rule in LATE:
        return verdict
    first = reported[0]
    less, share = human(first.saving, "ns"), human(first.saving * job.steps / job.model.span_ns, "ratio")
    possible = "Possible: " if first.candidate else ""
    return f"{possible}**{first.title}**: without that a step is at most **{less}** shorter, {share} of it. {verdict}"


def _findings(job: Job, context: RankContext | None, reported: Sequence[Finding], query: RanksQuery) -> list[FindingsSection]:
    """Returns what is wrong with the job, then what delays it; that alone where it cannot be replayed."""
    wrong = inconsistent_collectives(job)
    if context is None and wrong is None:
        return []
    keep = {"step": query.step} if query.step else {}
    step_ns = context.step_ns if context is not None else 0.0
    return [FindingsSection(
        id="findings", title="What to fix", subtitle="saving per step, at most, from a replay without the cause; savings can overlap",
        findings=[*([wrong] if wrong else []), *(to_report(f, pages=registry(), step_ns=step_ns, keep=keep) for f in reported)],
        empty=f"Nothing was found over the ranks that saves {human(LEAST, 'ratio')} of a step.",
    )]  # fmt: skip


# -- Rank by step -----------------------------------------------------------------------------------------------------


def heat_values(job: Job, what: str) -> pd.DataFrame:
    """Returns one row per rank and complete step: at (place of the rank), step, value in ns, NaN where it is not known."""
    calls = job.calls
    complete = [s["complete"] for s in calls.steps]
    at = np.repeat(np.arange(len(complete)), [int(c.sum()) for c in complete])
    step, length = (_joined([s[name][c] for s, c in zip(calls.steps, complete, strict=True)]) for name in ("step", "duration_ns"))
    if what == "step":
        return pd.DataFrame({"at": at, "step": step, "value": length.astype(np.float64)})
    own = job.stragglers.excess_by_step if what == "excess" else job.waits.exposed_wait_by_step
    total = pd.Series(own["value"], pd.MultiIndex.from_arrays([own["at"], own["step"]]))
    return pd.DataFrame({"at": at, "step": step, "value": total.reindex(pd.MultiIndex.from_arrays([at, step])).to_numpy(np.float64)})


def _joined(parts: list[Ints]) -> Ints:
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _heat_table(job: Job, query: RanksQuery, values: pd.DataFrame) -> TableSection:
    shown = pd.DataFrame({
        "rank": job.calls.ranks[values["at"].to_numpy()], "step": values["step"].to_numpy(),
        "value": whole_numbers(values["value"].to_numpy()),
    })  # fmt: skip
    return make_table("heatmap", "Rank by step", shown, HEAT_COLUMNS, subtitle=WORDS[query.what], sort=Sort("value"))


def _heat(job: Job, query: RanksQuery, values: pd.DataFrame, places: Ints) -> list[FigureSection]:
    """Draws the values, one row per rank, of many ranks one per host with its largest value, which opens its ranks."""
    if not values["value"].notna().any():
        return []
    steps = np.unique(values["step"])
    row, names, ranks = _heat_rows(job, values["at"].to_numpy(), places)
    binned = len(ranks) > 0
    column, shape, value = np.searchsorted(steps, values["step"].to_numpy()), (len(names), len(steps)), values["value"].to_numpy()
    z, middle = _largest(row, column, value, shape), _middle(row, column, value, shape)
    order = _order(job, query.order, z, places, binned)
    asks = {name: {"ranks": reports.ranks_text(own)} for name, own in zip(names, ranks, strict=True)} if binned else {}
    z, middle, names = z[order], middle[order], [names[i] for i in order.tolist()]
    top = max(float(np.nanmax(z)), LEAST_COLOR * float(np.median(_joined([s["duration_ns"] for s in job.calls.steps]))), 1.0)
    scale, unit = scale_of(top, "ns")
    of = (steps.tolist(), z.tolist(), middle.tolist())
    text = [
        [_hover(name, int(step), v, m if binned else None) for step, v, m in zip(of[0], line, medians, strict=True)]
        for name, line, medians in zip(names, of[1], of[2], strict=True)
    ]
    bar: F.Plain = {
        "thickness": 8, "len": 0.9, "outlinewidth": 0, "title": {"text": unit, "font": {"size": 11.5}},
        "tickfont": {"size": 11, "color": F.light("ink-3")},
    }  # fmt: skip
    data: list[F.Plain] = [{
        "type": "heatmap", "x": [str(s) for s in steps.tolist()], "y": names, "hoverongaps": False, "text": text, "hoverinfo": "text",
        "z": [[None if v != v else v / scale for v in line] for line in z.tolist()], "zmin": 0, "zmax": top / scale, "colorbar": bar,
        "colorscale": [[0, F.light("sunken")], [0.5, F.light("accent-line")], [1, F.light("accent")]], "xgap": 1,
        "ygap": 1 if len(names) <= 64 else 0,
    }]  # fmt: skip
    height = int(min(max(160, 60 + 14 * len(names)), 620))
    drawn = F.figure(
        data, x=F.axis("step", type="category", showgrid=False),
        y=F.axis("", type="category", showgrid=False, autorange="reversed", nticks=24), margin={"l": 90, "r": 8, "t": 10, "b": 46},
    )  # fmt: skip
    where = np.unravel_index(int(np.nanargmax(z)), z.shape)
    most = f"{names[int(where[0])]} in step {int(steps[int(where[1])])}: {human(float(z[where]), 'ns')}"
    return [FigureSection(
        id="heatmap_figure", title="Rank by step",
        subtitle=f"{WORDS[query.what]}{'; of each row the largest of its ranks, which a click shows' if binned else ''}",
        figure=drawn, height=height, table="heatmap", asks=asks, summary=f"{WORDS[query.what].capitalize()}, most on {most}.",
    )]  # fmt: skip


def _heat_rows(job: Job, at: Ints, places: Ints) -> tuple[Ints, list[str], list[Ints]]:
    """Returns the row of the heat map that each of `at` is in, the names of the rows, and the ranks of each; none where each is one rank.

    at: places of ranks, of those that are shown (places, ascending).
    """
    calls, count = job.calls, len(places)
    position, ranks = np.searchsorted(places, at), calls.ranks[places]
    if count <= MOST_ROWS:
        return position, [f"rank {r}" for r in ranks.tolist()], []
    known, row = np.unique(calls.domain[places], return_inverse=True)
    if 1 < len(known) <= MOST_ROWS:
        names = [calls.domains[d] for d in known.tolist()]
    else:
        row = np.arange(count) // -(-count // MOST_ROWS)
        names = ["ranks {} to {}".format(*own[[0, -1]].tolist()) for own in _of_rows(ranks, row)]
    return row[position], names, _of_rows(ranks, row)


def _of_rows(ranks: Ints, row: Ints) -> list[Ints]:
    """Returns the ranks of each row, ascending."""
    order = np.argsort(row, kind="stable")
    return np.split(ranks[order], np.flatnonzero(np.diff(row[order])) + 1)


def _order(job: Job, rows: str, z: Floats, places: Ints, binned: bool) -> Ints:
    """Returns the rows of the heat map in the order that a query asks for. binned: a row is more than one rank: it has no host or stage."""
    place = np.arange(len(z))
    if rows == "value":
        return np.lexsort((place, -np.nanmax(np.where(np.isfinite(z), z, -np.inf), axis=1)))
    if rows == "host" and not binned:
        return np.lexsort((place, job.calls.domain[places]))
    found = pipeline(job.waits) if rows == "stage" and not binned else None
    return np.lexsort((place, found.stage[places])) if found is not None else place


def _middle(row: Ints, column: Ints, values: Floats, shape: tuple[int, int]) -> Floats:
    """Returns the median of the values of each row and column; NaN without any."""
    known = np.isfinite(values)
    found = arrays.medians(row[known] * shape[1] + column[known], values[known], shape[0] * shape[1])
    return np.asarray(found, np.float64).reshape(shape)


def _largest(row: Ints, column: Ints, values: Floats, shape: tuple[int, int]) -> Floats:
    out = np.full(shape, -np.inf)
    known = np.isfinite(values)
    np.maximum.at(out, (row[known], column[known]), values[known])
    return np.where(np.isfinite(out), out, np.nan)


def _hover(name: str, step: int, value: float, median: float | None) -> str:
    shown = "not known" if value != value else human(value, "ns")
    if median is not None and median == median:
        shown = f"largest {shown}, median {human(median, 'ns')}"
    return f"<b>{F.escape(name)}</b>, step {step}<br>{shown}"


# -- Ranks ------------------------------------------------------------------------------------------------------------


def _rank_table(found: Ranks[RankSummary], job: Job, query: RanksQuery, places: Ints) -> TableSection:
    frame = rank_rows(found, job, whole_job=not query.step.strip()).iloc[places].reset_index(drop=True)
    step = {"step": query.step} if query.step else {}
    every, summaries = _workers(found, job), job.calls.summaries
    moved = set(np.flatnonzero(job.renumbered).tolist())
    links = {
        str(i): Link("operators" if one.host_only else "gpu_breakdown", {"worker": w.worker, "span": w.span, **own}, "what it does")
        for i, (w, one, own) in enumerate((every[at], summaries[at], {} if at in moved else step) for at in places.tolist())
    }
    assumed = np.flatnonzero(job.assumed[places]).tolist()
    marks = {"rank": {str(i): Mark("estimated", "assumed: no rank is recorded") for i in assumed}}
    seen = {
        "node": frame["node"].notna().any(), "device": frame["device"].notna().any(), "status": (frame["status"] != "compared").any(),
        "worker": job.assumed.any(),
    }  # fmt: skip
    hidden = frozenset(name for name, shown in seen.items() if not shown)
    choice = seen["node"] and 1 < len(job.calls.domains) <= MOST_CHOICES
    return make_table(
        "ranks", "Ranks", frame, R.columns_of(RANK_COLUMNS, [True], hidden), key="worker",
        subtitle="over all that was recorded; Step is the median",
        sort=Sort("saved_ns" if frame["saved_ns"].notna().any() else "path_excess_ns"), marks=marks,
        row_links=links, cell_links={"rank": links}, filters=["node"] if choice else [],
        footer="A rank opens what it does. Peers are ranks with the same groups, at the same place of a pipeline.",
    )  # fmt: skip


def _workers(found: Ranks[RankSummary], job: Job) -> list[RecordingReduction[RankSummary]]:
    """Returns the recording of each rank of a job."""
    counted = [one for one, counts in zip(found.read, found.counts.tolist(), strict=True) if counts]
    by_rank = {one.rank: one for one in counted if one.rank is not None}
    others = iter([one for one in counted if one.rank is None])
    return [next(others) if assumed else by_rank[int(r)] for r, assumed in zip(job.calls.ranks.tolist(), job.assumed.tolist(), strict=True)]


def rank_rows(found: Ranks[RankSummary], job: Job, *, whole_job: bool = True) -> pd.DataFrame:
    """Returns one row per rank, as RANK_COLUMNS name them. whole_job: not of some steps alone."""
    calls, stragglers = job.calls, job.stragglers
    count = len(calls.ranks)
    own = [_totals(s, steps, whole_job) for s, steps in zip(calls.summaries, calls.steps, strict=True)]
    steps = [s["duration_ns"][s["complete"]] for s in calls.steps]
    excess = stragglers.path_excess
    cause = excess.argmax(axis=1) if count else np.zeros(0, np.int64)
    exact = job.model.exact
    enough = exact & (excess.max(axis=1, initial=0) > LEAST_SHARE * job.model.span_ns)
    saved, when, late = np.full(count, np.nan), np.full(count, None, object), np.zeros(count, np.bool_)
    for one in reversed(stragglers.suspects):
        saved[one.at], cause[one.at], enough[one.at] = one.saved_ns, one.cause, True
        late[one.at] = one.late_start
        when[one.at] = stragglers.persistence(one)
    wait = job.waits.exposed_wait_by_step
    waited = np.bincount(wait["at"], wait["value"], minlength=count).astype(np.float64)
    waited[np.bincount(wait["at"], minlength=count) == 0] = np.nan
    hosts = [None if name.startswith("rank ") else name for name in calls.domains]
    path = np.where(exact & job.joined, excess.sum(axis=1).astype(np.float64), np.nan) if count else np.zeros(0)
    return pd.DataFrame({
        "rank": calls.ranks, "worker": [w.worker for w in _workers(found, job)], "node": [hosts[d] for d in calls.domain.tolist()],
        "device": [s.device or None for s in calls.summaries],
        "status": np.select([job.alone & (count > 1), job.assumed], ["alone", "assumed"], "compared"),
        "steps": [len(s) for s in steps], "step_ns": whole_numbers([float(np.median(s)) if len(s) else np.nan for s in steps]),
        "kernel_ns": [o[0] for o in own], "communication_ns": [o[1] for o in own], "exposed_communication_ns": [o[2] for o in own],
        "exposed_wait_ns": whole_numbers(waited), "idle_ns": [o[3] for o in own], "path_excess_ns": whole_numbers(path),
        "saved_ns": whole_numbers(saved), "z": robust_z(job.own_per_step, stragglers.peers.role),
        "cause": arrays.or_none(np.where(late, LATE_START_WORDS, np.array([CAUSE_WORDS[c] for c in CAUSES])[cause]), enough),
        "persistence": when,
    })  # fmt: skip


def _totals(one: RankSummary, steps: dict[str, Ints], whole_job: bool) -> tuple[int, int, int, int]:
    if whole_job:
        return one.kernel_ns, one.communication_ns, one.exposed_communication_ns, one.idle_ns
    names = ("kernel_ns", "collectives_ns", "exposed_communication_ns", "idle_ns")
    found = [int(steps[name].sum()) for name in names]
    return found[0], found[1], found[2], found[3]


def _tiles(found: Ranks[RankSummary], job: Job) -> AnySection:
    calls, suspects = job.calls, reports.worth(job) if job.model.exact else []
    steps = [s["duration_ns"][s["complete"]] for s in calls.steps]
    every = np.concatenate(steps) if steps else np.zeros(0)
    exposed, wait = int(calls["exposed_ns"].sum()), job.waits.exposed_wait_by_step["value"]
    matched = (job.found.present > 1)[job.found.number].sum() / max(len(calls), 1)
    values: dict[str, Scalar] = {
        **R.facts(found), "nodes": len(calls.domains), "step_ns": round(float(np.median(every))) if len(every) else None,
        "saved_per_step_ns": round(suspects[0].saved_ns / job.steps) if suspects else 0 if job.model.exact else None,
        "saved_together_per_step_ns": round(suspects[-1].together_ns / job.steps) if suspects else 0 if job.model.exact else None,
        "exposed_wait_share": int(wait.sum()) / exposed if exposed and len(wait) else None,
        "collectives_matched": float(matched),
    }  # fmt: skip
    notes = {
        "workers_read": R.read_note(found), "nodes": f"clocks: {job.clocks.worst}", "step_ns": "median over ranks",
        "saved_per_step_ns": reports.rank_text(job, suspects[0].at) if suspects else "no rank costs 1 %",
        "exposed_wait_share": "of exposed communication",
    }  # fmt: skip
    shown = ("workers_read", "nodes", "step_ns", "saved_per_step_ns", "exposed_wait_share")
    return R.tiles(values, FACTS, title="Over the ranks", shown=shown, notes=notes)
