"""Which ranks delay the job, by cause, and what each costs: the critical path over ranks, and a replay without them.

From the last end backwards a path leads always to the rank that the others waited for; its rows tile the time of the job: own time of a
rank, transfer of a collective, own time of the next. A suspect has more own time than its peers at the same place of the program.
*Saved* is what the job takes less, replayed with that taken away; it is withheld where the replay of the job as it is does not
take as long as was recorded, within 0.1 %. Two stragglers may hide each other: *together* is what is saved without all rows above.
Arriving last is no verdict: a rank may be late because another group held it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks import reports
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Ranks
from tb_sol_plugin.metrics.ranks.job import Job
from tb_sol_plugin.metrics.ranks.own_time import CAUSES
from tb_sol_plugin.metrics.ranks.sections import stretch_link
from tb_sol_plugin.metrics.ranks.stragglers import CAUSE_WORDS
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, Column, Fact, Link, Notice, Report, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.model.row_links import RowLinks
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

SUSPECT_COLUMNS: Final = (
    Column("rank", "Rank", doc="number of the rank"),
    Column("node", "Host", doc="machine that it ran on", show="text", missing="not recorded"),
    Column("cause", "Cause", doc="what it does longer than its peers", show="badge"),
    Column("saved_ns", "Saved", "ns", "how much shorter all that was recorded would be without that", show="bar", color="compute"),
    Column("saved_together_ns", "Together", "ns", "the same without that and all rows above"),
    Column("saved_per_step_ns", "Per step", "ns", "how much shorter a step would be without that", rank=2),
    Column("path_excess_ns", "On the path", "ns", "own time above that of peers on the path through the job, all steps"),
    Column("persistence", "When", doc="in most steps, some, or one", show="badge", missing="no complete step was recorded"),
    Column("arrived_last", "Came last", "count", "collectives that waited for this rank, for whatever reason", rank=2),
    Column("evidence", "Evidence", doc="what shows it", show="text"),
)  # fmt: skip
PATH_COLUMNS: Final = (
    Column("order", "No.", "count", "place on the path"),
    Column("rank", "Rank", doc="the rank that the others waited for"),
    Column("group", "Group", doc="group of the collective that its own time leads to", show="text", missing="not known"),
    Column("seq", "Seq", doc="number of the collective in its group, as recorded", rank=2, missing="not recorded"),
    Column("local_ns", "Own time", "ns", "of the rank, since the collective before it", show="bar", color="compute"),
    Column("peer_median_ns", "Peers", "ns", "median own time of its peers there", missing="it has no peers there"),
    Column("excess_ns", "Above peers", "ns", "own time less that of peers", missing="it has no peers there"),
    Column("cause", "Cause", doc="what most of that time is", show="badge", missing="less than 20 µs above its peers"),
    Column("transfer_ns", "Transfer", "ns", "of the collective, after its last member had come"),
)
NOISE_NS: Final = 20_000
"""A row that is no more above its peers names no cause."""
MOST_LINKED: Final = 1_000
"""Rows of a path that show their link; those of a longer one are opened by Enter."""
FACTS: Final = (
    *R.FACTS,
    Fact("span_ns", "Recorded", "ns", "from the first own time to the last end of a collective"),
    Fact("replay_ns", "", "ns", "the same in the replay of the job as it is"),
    Fact("path_own_ns", "Own time", "ns", "on the path: ranks computing, loading, copying, idle"),
    Fact("path_transfer_ns", "Transfer", "ns", "on the path: collectives after their last member had come"),
    Fact("steps", "", "count", "complete steps"),
)


@analysis(
    scope="ranks",
    title="Stragglers",
    question="Which ranks do the others wait for, and why?",
    group="Run",
    order=3,
    query=Query,
    tables={"suspects": SUSPECT_COLUMNS, "path": PATH_COLUMNS, "left_out": R.LEFT_OUT},
    facts=FACTS,
    under="ranks",
    reduce=reports.SUMMARIES,
)
def run(workers: Sequence[RecordingReduction[RankSummary]], query: Query) -> Report:
    found, job = reports.read_job(workers, query)
    sections: list[AnySection] = []
    if len(job.calls):
        sections = [_tiles(found, job), _suspect_table(job), _path_table(job)]
    sections += R.left_out(found)
    return Report(
        analysis="stragglers", title="Stragglers", headline=R.incomparable(found) or reports.verdict(job),
        notices=[*reports.notices(found, job), *_notices(job)], sections=sections,
    )  # fmt: skip


def _notices(job: Job) -> list[Notice]:
    model = job.model
    if not len(job.calls):
        return []
    if not model.complete:
        return [Notice("Some collectives wait for each other in a circle, so the job cannot be replayed: no saving is given.")]
    if not model.exact:
        gap = human(abs(model.unchanged_ns / model.span_ns - 1) if model.span_ns else 1.0, "ratio")
        return [Notice(f"The replay of the job as it is differs from what was recorded by {gap}: no saving is given.")]
    calls = job.calls
    if (calls["launch_ns"] < 0).any():
        share = human(float((calls["launch_ns"] < 0).mean()), "ratio")
        return [Notice(f"{share} of the collectives have no recorded launch: what they waited for follows from their order alone.", "info")]
    return []


def _suspect_table(job: Job) -> TableSection:
    stragglers, calls = job.stragglers, job.stragglers.calls
    suspects = stragglers.suspects if job.model.exact else ()
    hosts = [None if name.startswith("rank ") else name for name in calls.domains]
    frame = pd.DataFrame({
        "rank": [int(calls.ranks[s.at]) for s in suspects], "node": pd.Series([hosts[calls.domain[s.at]] for s in suspects], dtype=object),
        "cause": [s.words for s in suspects], "saved_ns": [round(s.saved_ns) for s in suspects],
        "saved_together_ns": [round(s.together_ns) for s in suspects],
        "saved_per_step_ns": [round(s.saved_ns / job.steps) for s in suspects], "path_excess_ns": [s.path_excess_ns for s in suspects],
        "persistence": pd.Series([stragglers.persistence(s) for s in suspects], dtype=object),
        "arrived_last": [int(stragglers.arrived_last[s.at]) for s in suspects], "evidence": [reports.evidence(job, s) for s in suspects],
    })  # fmt: skip
    own = {i: job.recordings[s.at] for i, s in enumerate(suspects)} if job.recordings else {}
    links = {
        str(i): Link("critical_path", {"worker": worker, "span": span}, "what holds the steps of this rank")
        for i, (worker, span) in own.items()
    }  # fmt: skip
    return make_table(
        "suspects", "Suspects", frame, SUSPECT_COLUMNS, subtitle="over all that was recorded; the first saves most", row_links=links,
        cell_links={"rank": links},
        empty="No rank takes longer than its peers by 0.2 % of the job." if job.model.exact else "Withheld: the replay is not exact.",
    )  # fmt: skip


def _path_table(job: Job) -> TableSection:
    """Returns the path in order; of long ones the table is in pages. Each row opens its own time on the timeline of its rank."""
    stragglers, calls = job.stragglers, job.stragglers.calls
    path, excess = stragglers.path, stragglers.excess
    rows = path.row
    queued = calls["stream_lag_ns"][rows] >= 0
    peers = (stragglers.peers.count[rows] > 1) & ~queued
    above = excess[rows].sum(axis=1)
    cause = excess[rows].argmax(axis=1) if len(rows) else rows
    group, words = calls["group"][rows], np.array([CAUSE_WORDS[c] for c in CAUSES])
    frame = pd.DataFrame({
        "order": np.arange(1, len(rows) + 1), "rank": calls.ranks[calls.at[rows]],
        "group": pd.Series([calls.groups[g].label if g >= 0 else None for g in group.tolist()], dtype=object),
        "seq": _known(calls["seq"][rows]), "local_ns": path.own_ns,
        "peer_median_ns": _known(np.where(peers, stragglers.peers.median_ns[rows].sum(axis=1), -1)),
        "excess_ns": pd.Series([int(v) if p else None for v, p in zip(above.tolist(), peers.tolist(), strict=True)], dtype=object),
        "cause": arrays.or_none(words[cause], peers & (above > NOISE_NS)),
        "transfer_ns": np.rint(path.transfer_ns).astype(np.int64),
    })  # fmt: skip
    begin, end = stragglers.stretch(rows)

    def own_time(row: int) -> Link:
        one = job.recordings[int(calls.at[rows[row]])]
        return stretch_link(one, int(begin[row]), int(end[row]), "this stretch in the timeline of its rank, with its critical path")

    links = RowLinks(np.full(len(rows), bool(job.recordings), np.bool_), own_time)
    return make_table(
        "path", "Path through the job", frame, PATH_COLUMNS, key="order", sort=Sort("order", descending=False), row_links=links,
        cell_links={"rank": dict(links.items())} if len(rows) <= MOST_LINKED else {},
        adds=["local_ns", "transfer_ns"], subtitle="own times and transfers that add up to the time of the job",
        footer="A row opens its own time on the timeline of its rank; one without waited for the collective before it on its stream.",
    )  # fmt: skip


def _known(values: np.ndarray) -> pd.Series:  # type: ignore[type-arg]
    return pd.Series([v if v >= 0 else None for v in values.tolist()], dtype=object)


def _tiles(found: Ranks[RankSummary], job: Job) -> AnySection:
    path, model = job.stragglers.path, job.model
    values: dict[str, Scalar] = {
        **R.facts(found), "span_ns": round(model.span_ns), "replay_ns": round(model.unchanged_ns) if model.complete else None,
        "path_own_ns": int(path.own_ns.sum()), "path_transfer_ns": round(float(path.transfer_ns.sum())), "steps": len(job.stragglers.steps),
    }  # fmt: skip
    notes = {"workers_read": R.read_note(found), "span_ns": f"{len(job.stragglers.steps)} complete steps"}
    return R.tiles(
        values, FACTS, title="Path through the job", shown=("workers_read", "span_ns", "path_own_ns", "path_transfer_ns"), notes=notes
    )  # fmt: skip
