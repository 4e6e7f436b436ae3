"""Which parallelism communicates in the open, and how much of that is waiting.

Of each complete step of each rank, the time in which collectives run and nothing computes goes to the kinds of parallelism whose
collectives run then, of several kinds to each an equal part: so they add up to the exposed communication of the step. It is waiting
while the collectives still wait for their last member (see *Collectives*), and transfer afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks import reports
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Ranks
from tb_sol_plugin.metrics.ranks.exposed import KINDS
from tb_sol_plugin.metrics.ranks.group_kinds import GroupsQuery, group_kinds, told
from tb_sol_plugin.metrics.ranks.job import Job
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, Column, Fact, FigureSection, Report, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.units import capitalized, human, scale_of

NO_STEP: Final = "no complete step was recorded"
BY_KIND: Final = (
    Column("kind", "Parallelism", doc="what the groups serve; other: not known", show="badge"),
    Column("communication_ns", "Communication", "ns", "union of its collectives per rank and step, mean"),
    Column("exposed_ns", "Exposed", "ns", "its part of the time in which nothing computes, per rank and step, mean", show="bar",
           color="communication"),
    Column("transfer_ns", "Transfer", "ns", "of that, transfers"),
    Column("wait_ns", "Waiting", "ns", "of that, waiting for the last member"),
    Column("share", "Of the step", "ratio", "exposed over the length of the steps", show="share"),
    Column("hidden", "Hidden", "ratio", "part of its collectives during which something computes, or which goes to another kind"),
    Column("most_ns", "Most", "ns", "exposed on the rank that has most, per step", rank=2),
    Column("most_rank", "On rank", doc="that rank", rank=2),
)  # fmt: skip
EXPOSED: Final = (
    Column("rank", "Rank", doc="number of the rank"),
    Column("step", "Step", doc="number of the step"),
    Column("kind", "Parallelism", doc="what the groups serve; other: not known", show="badge"),
    Column("communication_ns", "Communication", "ns", "union of its collectives"),
    Column("exposed_ns", "Exposed", "ns", "its part of the time in which nothing computes", show="bar", color="communication"),
    Column("wait_ns", "Waiting", "ns", "of that, waiting for the last member"),
)
FACTS: Final = (
    *R.FACTS,
    Fact("exposed_ns", "Exposed", "ns", "communication while nothing computes, per rank and step, mean"),
    Fact("exposed_share", "Of the step", "ratio", "that over the length of the steps"),
    Fact("wait_ns", "Waiting", "ns", "of that, waiting for the last member of a collective"),
    Fact("steps", "", "count", "complete steps, of all ranks"),
)


@analysis(
    scope="ranks",
    title="Parallelism",
    question="Which parallelism communicates in the open?",
    group="Run",
    order=5,
    query=GroupsQuery,
    tables={"by_kind": BY_KIND, "exposed": EXPOSED, "left_out": R.LEFT_OUT},
    facts=FACTS,
    under="ranks",
    reduce=reports.SUMMARIES,
)
def run(workers: Sequence[RecordingReduction[RankSummary]], query: GroupsQuery) -> Report:
    stated = told(query.groups)
    found, job = reports.read_job(workers, query)
    each = job.exposed(group_kinds(job.calls, stated))
    lengths = [int(s["duration_ns"][s["complete"]].sum()) for s in job.calls.steps]
    count = sum(int(s["complete"].sum()) for s in job.calls.steps)
    total = kind_rows(job, each, count, sum(lengths))
    sections: list[AnySection] = []
    if len(job.calls):
        sections = [_tiles(found, total, count, sum(lengths)), *_figure(total), *_tables(job, total, each)]
    return Report(
        analysis="parallelism", title="Parallelism", headline=R.incomparable(found) or _headline(total, sum(lengths) / max(count, 1)),
        notices=reports.notices(found, job), sections=[*sections, *R.left_out(found)],
    )  # fmt: skip


def kind_rows(job: Job, each: pd.DataFrame, count: int, length_ns: int) -> pd.DataFrame:
    """Returns one row per kind of parallelism as BY_KIND names them. each: of `exposed_by_kind`. count, length_ns: of all steps."""
    steps = np.array([max(int(s["complete"].sum()), 1) for s in job.calls.steps], np.int64)
    rows = []
    for code in np.unique(each["kind"]).tolist():
        mine = each[each["kind"] == code]
        total = mine[["communication_ns", "exposed_ns", "wait_ns"]].sum()
        of_rank = np.bincount(mine["at"], mine["exposed_ns"], len(steps)) / steps
        rows.append({
            "kind": KINDS[code], "communication_ns": round(total["communication_ns"] / count),
            "exposed_ns": round(total["exposed_ns"] / count), "transfer_ns": round((total["exposed_ns"] - total["wait_ns"]) / count),
            "wait_ns": round(total["wait_ns"] / count), "share": total["exposed_ns"] / length_ns,
            "hidden": 1 - total["exposed_ns"] / total["communication_ns"], "most_ns": round(float(of_rank.max())),
            "most_rank": int(job.calls.ranks[of_rank.argmax()]),
        })  # fmt: skip
    return pd.DataFrame(rows, columns=[c.name for c in BY_KIND])


def _tables(job: Job, total: pd.DataFrame, each: pd.DataFrame) -> list[TableSection]:
    shown = pd.DataFrame({
        "rank": job.calls.ranks[each["at"].to_numpy()], "step": each["step"], "kind": np.array(KINDS, object)[each["kind"].to_numpy()],
        **{name: each[name] for name in ("communication_ns", "exposed_ns", "wait_ns")},
    })  # fmt: skip
    empty = f"{capitalized(NO_STEP)}."
    return [
        make_table("by_kind", "By parallelism", total, BY_KIND, key="kind", sort=Sort("exposed_ns"), empty=empty,
                   adds=["exposed_ns", "transfer_ns", "wait_ns", "share"], subtitle="per rank and step, mean over all ranks"),
        make_table("exposed", "By rank and step", shown, EXPOSED, sort=Sort("exposed_ns"), filters=["kind"], empty=empty),
    ]  # fmt: skip


def _figure(total: pd.DataFrame) -> list[FigureSection]:
    """Draws a bar per kind: transfer, and the wait before it."""
    if not len(total) or not total["exposed_ns"].any():
        return []
    ordered = total.sort_values("exposed_ns")
    scale, unit = scale_of(float(ordered["exposed_ns"].max()), "ns")
    data: list[F.Plain] = []
    for column, name, token in (("transfer_ns", "transfer", "communication"), ("wait_ns", "waiting for the last member", "host")):
        data.append({
            "type": "bar", "orientation": "h", "name": name, "y": ordered["kind"].tolist(), "x": (ordered[column] / scale).tolist(),
            "marker": F.fill(token), "hoverinfo": "text",
            "hovertext": [f"<b>{kind}</b>, {name}<br>{human(float(v), 'ns')} per rank and step"
                          for kind, v in zip(ordered["kind"].tolist(), ordered[column].tolist(), strict=True)],
        })  # fmt: skip
    drawn = F.figure(
        data, x=F.axis(f"exposed per rank and step, {unit}"), y=F.axis("", type="category", showgrid=False), barmode="stack",
        showlegend=True,
        legend={"orientation": "h", "y": 1.18, "x": 0, "traceorder": "normal"}, margin={"l": 90, "r": 14, "t": 10, "b": 46},
    )  # fmt: skip
    return [FigureSection(
        id="kinds_figure", title="Exposed communication", subtitle="mean over ranks and complete steps", figure=drawn,
        height=110 + 34 * len(ordered), table="by_kind", summary="Exposed communication by parallelism, split into transfer and waiting.",
    )]  # fmt: skip


def _headline(total: pd.DataFrame, step_ns: float) -> str:
    if not len(total):
        return f"{capitalized(NO_STEP)}: what is exposed per step is not known."
    first = total.iloc[int(total["exposed_ns"].to_numpy().argmax())]
    share = float(total["exposed_ns"].sum()) / max(step_ns, 1.0)
    if share < 0.01:
        return f"Communication is hidden: **{human(share, 'ratio')}** of a step is in the open."
    name = first["kind"] if first["kind"] != "other" else "groups of no known parallelism"
    of = f"**{human(int(total['exposed_ns'].sum()), 'ns')}** of a step, {human(share, 'ratio')}, is communication in the open"
    most = f"most of it for **{name}**, {human(int(first['exposed_ns']), 'ns')}"
    waiting = float(first["wait_ns"]) / max(float(first["exposed_ns"]), 1.0)
    return f"{of}; {most}, of which {human(waiting, 'ratio')} is waiting for the last member."


def _tiles(found: Ranks[RankSummary], total: pd.DataFrame, count: int, length_ns: int) -> AnySection:
    exposed = int(total["exposed_ns"].sum()) if len(total) else None
    values: dict[str, Scalar] = {
        **R.facts(found), "exposed_ns": exposed,
        "exposed_share": exposed * count / length_ns if exposed is not None and length_ns else None,
        "wait_ns": int(total["wait_ns"].sum()) if len(total) else None, "steps": count,
    }  # fmt: skip
    notes = {"workers_read": R.read_note(found), "exposed_ns": "per rank and step", "wait_ns": "for the last member"}
    return R.tiles(
        values, FACTS, title="Exposed communication", shown=("workers_read", "exposed_ns", "exposed_share", "wait_ns"), notes=notes
    )  # fmt: skip
