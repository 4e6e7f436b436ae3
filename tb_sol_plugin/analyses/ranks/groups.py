"""Which process groups there are, which parallelism each serves, and which of their collectives are matched across ranks.

A group is known by its ranks and description: its name is a counter of each process. The parallelism is what the query says, what the
description of Megatron or of a device mesh says, or what the group is used for, with the evidence. Collectives are matched by
their recorded numbers, else by their order; where that is not certain they stay unmatched, and the reason stands here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.ranks import links, reports
from tb_sol_plugin.metrics.ranks import sections as R
from tb_sol_plugin.metrics.ranks.comparison import Ranks
from tb_sol_plugin.metrics.ranks.group_kinds import ACROSS, GroupKind, GroupsQuery, group_kinds, layout, told
from tb_sol_plugin.metrics.ranks.job import Job
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, Column, Fact, Report, Scalar, Sort, make_table
from tb_sol_plugin.tables import members
from tb_sol_plugin.units import human

COLUMNS: Final = (
    Column("description", "Group", doc="its description, as recorded", show="code", missing="not described"),
    Column("ranks", "Ranks", doc="its ranks: 0-7, or evenly spaced 3-1019 by 8", show="code", missing="not recorded"),
    Column("group", "Name", doc="its ranks and description, as other tables name it", show="text", rank=3),
    Column("size", "Size", "count", "its ranks", missing="not recorded"),
    Column("level", "Across", doc=ACROSS, show="badge"),
    Column("kind", "Parallelism", doc="what it serves", show="badge", missing="not known"),
    Column("confidence", "Confidence", doc="stated, inferred, a guess or unknown", show="badge"),
    Column("evidence", "Evidence", doc="why", show="text", rank=2),
    Column("of_fastest", "Of the fastest", "ratio", "bandwidth of its large collectives over that of the fastest group of its kind which "
           "also spans several hosts", missing="nothing to compare it with"),
    Column("instances", "Collectives", "count", "different collectives of this group"),
    Column("matched", "Matched", "count", "those of which two members or more are recorded and matched"),
    Column("inconsistent", "Inconsistent", "count", "those whose members name different kinds, types or sizes: probably a bug of the job"),
    Column("unmatched_because", "Not matched", doc="why collectives of some ranks stay unmatched", show="text",
           missing="all are, or their other members are not recorded"),
)  # fmt: skip
FACTS: Final = (
    *R.FACTS,
    Fact("groups", "Groups", "count", "process groups that ran a collective"),
    Fact("groups_known", "Known", "count", "those whose parallelism is stated or inferred"),
    Fact("layout", "Layout", "", "sizes of tensor, context, pipeline and data parallelism, where they multiply to the ranks of the job"),
    Fact("inconsistent", "", "count", "collectives whose members name different kinds, types or sizes"),
)


@analysis(
    scope="ranks",
    title="Groups",
    question="Which process groups are there, and what do they serve?",
    group="Run",
    order=5,
    query=GroupsQuery,
    tables={"groups": COLUMNS, "left_out": R.LEFT_OUT},
    facts=FACTS,
    under="ranks",
    reduce=reports.SUMMARIES,
)
def run(workers: Sequence[RecordingReduction[RankSummary]], query: GroupsQuery) -> Report:
    stated = told(query.groups)
    found, job = reports.read_job(workers, query)
    kinds = group_kinds(job.calls, stated)
    sections: list[AnySection] = []
    if len(job.calls):
        frame = group_rows(job, kinds)
        hidden = frozenset(name for name in ("unmatched_because", "of_fastest") if frame[name].isna().all())
        hidden |= frozenset(name for name in ("inconsistent",) if not frame[name].any())
        slow = bool((frame["of_fastest"] < links.SLOW).any())
        table = make_table(
            "groups", "Groups", frame, R.columns_of(COLUMNS, [True], hidden),
            sort=Sort("of_fastest", descending=False) if slow else Sort("instances"), filters=["kind", "level"],
            empty="No collective names its group: these recordings hold no arguments of collectives.",
        )  # fmt: skip
        sections = [_tiles(found, job, kinds), table]
    return Report(
        analysis="groups", title="Groups", headline=R.incomparable(found) or _headline(job, kinds), notices=reports.notices(found, job),
        sections=[*sections, *R.left_out(found)],
    )  # fmt: skip


def group_rows(job: Job, kinds: Sequence[GroupKind]) -> pd.DataFrame:
    """Returns one row per group, as COLUMNS name them."""
    calls, found = job.calls, job.found
    count = len(calls.groups)
    of = calls.group_of_channel[found.channel] if len(found) else np.zeros(0, np.int64)
    speed = np.full(count, np.nan)
    compared = links.slow_links(job.waits, links.sizes_of(job.waits, kinds)).of_fastest
    np.fmin.at(speed, calls.group_of_channel, compared)
    because: dict[int, str] = {}
    for channel, why in found.because.items():
        because.setdefault(int(calls.group_of_channel[channel]), why)
    return pd.DataFrame({
        "group": [g.label for g in calls.groups], "description": pd.Series([g.description or None for g in calls.groups], dtype=object),
        "ranks": pd.Series([members.ranges(g.ranks) or None for g in calls.groups], dtype=object),
        "size": pd.Series([g.size if g.size > 0 else None for g in calls.groups], dtype=object), "level": [k.level for k in kinds],
        "kind": pd.Series([k.kind or None for k in kinds], dtype=object), "confidence": [k.confidence for k in kinds],
        "evidence": [k.evidence for k in kinds], "of_fastest": speed,
        "instances": np.bincount(of, minlength=count),
        "matched": np.bincount(of[found.present > 1], minlength=count),
        "inconsistent": np.bincount(of[found.inconsistent], minlength=count),
        "unmatched_because": pd.Series([because.get(i) for i in range(count)], dtype=object),
    })  # fmt: skip


def _headline(job: Job, kinds: Sequence[GroupKind]) -> str:
    calls = job.calls
    if not calls.groups:
        return "No collective names its process group: record with a newer PyTorch to see which parallelism each serves."
    sizes = layout(calls, tuple(kinds))
    wrong = int(job.found.inconsistent.sum())
    text = f"{human(len(calls.groups), 'count')} process groups ran collectives"
    text += f": **{_layout_text(sizes)}**." if sizes is not None else "; their sizes do not multiply to the ranks of the job."
    if wrong:
        text += f" The members of **{human(wrong, 'count')}** collectives name different kinds, types or sizes: probably a bug of the job."
    elif job.found.because:
        text += f" Collectives of {human(len(job.found.because), 'count')} of them are not all matched."
    return text


def _layout_text(sizes: dict[str, int]) -> str:
    return " × ".join(f"{name} {size}" for name, size in sizes.items() if size > 1) or "one rank"


def _tiles(found: Ranks[RankSummary], job: Job, kinds: Sequence[GroupKind]) -> AnySection:
    sizes = layout(job.calls, tuple(kinds))
    values: dict[str, Scalar] = {
        **R.facts(found), "groups": len(kinds), "groups_known": sum(k.confidence in ("stated", "inferred") for k in kinds),
        "layout": _layout_text(sizes) if sizes is not None and kinds else None, "inconsistent": int(job.found.inconsistent.sum()),
    }  # fmt: skip
    notes = {"workers_read": R.read_note(found)}
    return R.tiles(values, FACTS, title="Groups", shown=("workers_read", "groups", "groups_known", "layout"), notes=notes)
