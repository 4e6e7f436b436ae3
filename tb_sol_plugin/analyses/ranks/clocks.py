"""How the clocks of the hosts differ, and how well that is known.

Collectives that all members wait in end together: from those that cross hosts the offset of each clock is fitted, and its drift where the
recording is long enough. *good* is within 20 us without an effect before its cause, *fair* within 200 us; with *poor* or *none* nothing
that needs a common clock is given. Waits, transfers and late ranks need none.
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
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import AnySection, Column, Fact, Report, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.tables.arrays import whole_numbers
from tb_sol_plugin.units import human

COLUMNS: Final = (
    Column("domain", "Clock", doc="host, or the rank alone where its host is not known", show="text"),
    Column("ranks", "Ranks", "count", "ranks that have this clock"),
    Column("offset_ns", "Offset", "ns", "added to its times; the middle clock has 0"),
    Column("drift_ppm", "Drift, ppm", doc="by how much it runs too slow, in parts per million",
           missing="not fitted: that takes a recording of a second or more, whose collectives end closer together with it"),
    Column("jump_ns", "Set by", "ns", "added to its times after it was set while it recorded", rank=2, missing="it was not set"),
    Column("sync_points", "Collectives", "count", "collectives with other hosts that it was fitted by"),
    Column("sigma_ns", "Uncertainty", "ns", "standard deviation of ends around the fit", missing="no collective with another host"),
    Column("interval_ns", "Bounds", "ns", "width of what is possible if nothing ends before it began", rank=2,
           missing="no collective with another host"),
    Column("violations", "Contradictions", "count", "collectives that still end before another member begins", rank=2),
    Column("component", "Set", doc="clocks of one set compare with each other", rank=2),
    Column("grade", "Grade", doc="good, fair, poor or none", show="badge"),
)  # fmt: skip
FACTS: Final = (
    *R.FACTS,
    Fact("clocks", "Clocks", "count", "hosts, each with a clock of its own"),
    Fact("largest_offset_ns", "Apart", "ns", "the largest offset less the smallest"),
    Fact("largest_sigma_ns", "Known within", "ns", "uncertainty of the clock that is known least"),
    Fact("sets", "", "count", "sets of clocks that compare with each other"),
    Fact("negative_launch_delays", "", "count", "collectives that start before their launch: a device's clock differs from its host's"),
)


@analysis(
    scope="ranks",
    title="Clocks",
    question="How far are the clocks of the hosts apart?",
    group="Run",
    order=7,
    query=Query,
    tables={"clocks": COLUMNS, "left_out": R.LEFT_OUT},
    facts=FACTS,
    under="ranks",
    reduce=reports.SUMMARIES,
)
def run(workers: Sequence[RecordingReduction[RankSummary]], query: Query) -> Report:
    found, job = reports.read_job(workers, query)
    calls = job.calls
    sections: list[AnySection] = []
    if len(calls.ranks):
        sections = [_tiles(found, job), _clock_table(job)]
    return Report(
        analysis="clocks", title="Clocks", headline=R.incomparable(found) or _headline(job), notices=reports.notices(found, job),
        sections=[*sections, *R.left_out(found)],
    )  # fmt: skip


def _clock_table(job: Job) -> TableSection:
    clock, calls = job.clocks, job.calls
    frame = pd.DataFrame({
        "domain": list(calls.domains), "ranks": np.bincount(calls.domain, minlength=len(calls.domains)),
        "offset_ns": np.rint(clock.offset_ns).astype(np.int64), "drift_ppm": clock.drift * (1e6 if clock.drift.any() else np.nan),
        "jump_ns": whole_numbers(np.where(clock.jump_ns != 0, clock.jump_ns, np.nan)), "sync_points": clock.sync_points,
        "sigma_ns": whole_numbers(clock.sigma_ns), "interval_ns": whole_numbers(clock.interval_ns), "violations": clock.violations,
        "component": clock.component + 1, "grade": list(clock.grade),
    })  # fmt: skip
    one_set = len(set(clock.component.tolist())) == 1
    hidden = frozenset(name for name, bare in (
        ("component", one_set), ("violations", not clock.violations.any()), ("jump_ns", not clock.jump_ns.any())) if bare)
    return make_table(
        "clocks", "Clocks", frame, R.columns_of(COLUMNS, [True], hidden), key="domain", sort=Sort("sigma_ns"),
        footer="Aligned time = local time + offset + drift × time since the middle of the recording.",
    )  # fmt: skip


def _headline(job: Job) -> str:
    clock, count = job.clocks, len(job.calls.domains)
    if count == 1:
        return "All ranks ran on one host: they have one clock."
    sets = len(set(clock.component.tolist()))
    if sets > 1:
        return f"The clocks of {human(count, 'count')} hosts are in {human(sets, 'count')} sets: no collective joins them."
    apart, sigma = float(np.ptp(clock.offset_ns)), float(np.nanmax(clock.sigma_ns))
    return (
        f"The clocks of {human(count, 'count')} hosts are up to **{human(apart, 'ns')}** apart; the ends of collectives align them "
        f"to within {human(sigma, 'ns')} (**{clock.worst}**)."
    )


def _tiles(found: Ranks[RankSummary], job: Job) -> AnySection:
    clock, calls = job.clocks, job.calls
    sigma = clock.sigma_ns[np.isfinite(clock.sigma_ns)]
    launched = calls["launch_ns"] >= 0
    values: dict[str, Scalar] = {
        **R.facts(found), "clocks": len(calls.domains), "largest_offset_ns": round(float(np.ptp(clock.offset_ns))),
        "largest_sigma_ns": round(float(sigma.max())) if len(sigma) else None, "sets": len(set(clock.component.tolist())),
        "negative_launch_delays": int((launched & (calls.start < calls["launch_ns"])).sum()),
    }  # fmt: skip
    notes = {"workers_read": R.read_note(found), "largest_sigma_ns": f"grade: {clock.worst}"}
    return R.tiles(
        values, FACTS, title="Clocks", shown=("workers_read", "clocks", "largest_offset_ns", "largest_sigma_ns"), notes=notes
    )  # fmt: skip
