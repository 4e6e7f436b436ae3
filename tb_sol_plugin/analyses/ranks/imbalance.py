"""Which phase, module, operator or kernel takes longer on some ranks than on others, and how long the others waited for that.

Of each complete step and rank the time on the device is summed by name, kernels of computation and copies alone. Ranks that do the same
work are compared: those with the same groups, at the same place of a pipeline. What the largest takes above the median is lost only
as far as others waited for that rank in that step: in collectives in which it came last, for as long as it was late. Names of one
kind overlap with those of another, so losses of different kinds do not add up. Of each rank the 40 names with the most time are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks import reports
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.by_name import By, imbalance
from tb_sol_plugin.metrics.ranks.job import Job
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, Column, Fact, Report, Scalar, Sort, make_table
from tb_sol_plugin.tables import members
from tb_sol_plugin.tables.arrays import whole_numbers
from tb_sol_plugin.units import human

SHOWN: Final = 500
"""Rows of the table at most, the costly ones first."""


class ImbalanceQuery(Query, kw_only=True, frozen=True):
    """by: what the time on devices is summed by"""

    by: By = "kernel"


COLUMNS: Final = (
    Column("name", "Name", doc="of the phase, module, operator or kernel", show="code"),
    Column("among", "Among", doc="ranks that do the same work: of one pipeline stage, with the same groups", show="code"),
    Column("ranks", "Ranks", "count", "those of them that have it", rank=2),
    Column("lost_ns", "Lost", "ns", "sum over steps of the largest less the median, at most what others waited for that rank then",
           show="bar", color="compute"),
    Column("imbalance", "Imbalance", "ratio", "largest over median", missing="the median is 0"),
    Column("max_rank", "Longest on", doc="rank with the largest mean"),
    Column("max_ns", "Longest", "ns", "time on its device per step, mean over its steps: the largest of the ranks"),
    Column("median_ns", "Median", "ns", "the median of the ranks"),
    Column("min_ns", "Shortest", "ns", "the smallest of the ranks", rank=2),
)  # fmt: skip
FACTS: Final = (
    *R.FACTS,
    Fact("names", "Compared", "count", "names that two ranks of one role have"),
    Fact("lost_ns", "Lost", "ns", "of the name that costs most, over all steps"),
    Fact("imbalance", "Imbalance", "ratio", "of that name: largest over median"),
)


@analysis(
    scope="ranks",
    title="Imbalance",
    question="Which work takes longer on some ranks than on others?",
    group="Run",
    order=4,
    query=ImbalanceQuery,
    tables={"rows": COLUMNS, "left_out": R.LEFT_OUT},
    facts=FACTS,
    under="ranks",
    reduce=reports.SUMMARIES,
)
def run(workers: Sequence[RecordingReduction[RankSummary]], query: ImbalanceQuery) -> Report:
    found, job = reports.read_job(workers, query)
    rows = uneven(job, query.by)
    sections: list[AnySection] = []
    if len(job.calls):
        top = rows.iloc[0] if len(rows) else None
        values: dict[str, Scalar] = {
            **R.facts(found), "names": len(rows), "lost_ns": int(top["lost_ns"]) if top is not None else None,
            "imbalance": float(top["imbalance"]) if top is not None and top["imbalance"] == top["imbalance"] else None,
        }  # fmt: skip
        shown = ("workers_read", "names", "lost_ns", "imbalance")
        notes = {"workers_read": R.read_note(found), **({"lost_ns": str(top["name"])[-60:]} if top is not None else {})}
        sections = [R.tiles(values, FACTS, title="Imbalance", shown=shown, notes=notes), make_table(
            "rows", f"By {query.by}", rows.head(SHOWN), _columns(rows), sort=Sort("lost_ns"),
            subtitle="time on devices, ranks that do the same work compared",
            empty=f"No {query.by} ran on the devices of two ranks that do the same work, in complete steps.",
        )]  # fmt: skip
    return Report(
        analysis="imbalance", title="Imbalance", headline=R.incomparable(found) or _headline(job, rows, query),
        notices=reports.notices(found, job), sections=[*sections, *R.left_out(found)],
    )  # fmt: skip


def _columns(rows: pd.DataFrame) -> list[Column]:
    """Returns the columns; ranks that are compared are shown where there are several sets of them."""
    return R.columns_of(COLUMNS, [True], frozenset() if rows["among"].nunique() > 1 else frozenset({"among"}))


def uneven(job: Job, by: By) -> pd.DataFrame:
    """Returns one row per name, as COLUMNS name them, those that cost most first."""
    calls, waited = job.calls, job.waits
    known = (waited.late >= 0) & (waited.lateness_ns > 0)
    row = job.found.rows[waited.late[known]]
    late = pd.Series(waited.lateness_ns[known], index=pd.MultiIndex.from_arrays([calls.at[row], calls["step"][row]]))
    late = late.groupby(level=[0, 1]).sum()
    steps = [s["step"] for s in calls.steps]
    role = job.stragglers.peers.role
    found = imbalance([s.totals for s in calls.summaries], [s.names for s in calls.summaries], by, role, late, steps)
    among = [members.ranges(calls.ranks[role == one]) for one in range(int(role.max(initial=-1)) + 1)]
    found["among"] = [among[one] for one in found["role"].tolist()]
    found["max_rank"] = calls.ranks[found["max_at"].to_numpy(np.int64)]
    for name in ("min_ns", "median_ns", "max_ns", "lost_ns"):
        found[name] = whole_numbers(found[name].astype(np.float64))
    return found[[c.name for c in COLUMNS]]


def _headline(job: Job, rows: pd.DataFrame, query: ImbalanceQuery) -> str:
    if not len(rows):
        return f"No {query.by} of two ranks that do the same work can be compared."
    top = rows.iloc[0]
    share = top["lost_ns"] / max(job.model.span_ns, 1)
    if share < reports.ONE_PERCENT:
        return f"No {query.by} costs the job 1 % of its time by taking longer on one rank than on the others."
    return (
        f"**{str(top['name'])[-100:]}** takes **{top['imbalance']:.2f} times** its median on rank {top['max_rank']}; others waited "
        f"**{human(top['lost_ns'] / job.steps, 'ns')}** per step for the ranks that it takes longest on."
    )
