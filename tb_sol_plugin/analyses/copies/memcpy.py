"""What copies of memory cost, and whether they use the link.

Copies are told by direction and by kind of memory. Bandwidth is bytes over time of the copies that carry bytes; the share of
the link counts copies of at least 1 MiB only, because smaller ones are bound by latency. A copy is hidden while a kernel that
is no communication runs on the same device, and exposed otherwise. Sets of memory have a card of their own.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.copies import memcpy_counted, memcpy_figures, memcpy_tables
from tb_sol_plugin.analyses.copies.memcpy_tables import notices
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.copies import bandwidth, exposure, groups, records
from tb_sol_plugin.metrics.copies.records import NAMES
from tb_sol_plugin.metrics.rules.copies import copy_findings, step_ns, together_ns
from tb_sol_plugin.metrics.rules.engine import to_report
from tb_sol_plugin.metrics.time.scope import Scope, in_steps, scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis, registry
from tb_sol_plugin.model.report import AnySection, FindingsSection, Link, Report, Scalar
from tb_sol_plugin.units import human

FINDINGS = 3
"""Findings shown here; all of them have a page of their own."""


class MemcpyQuery(Query, kw_only=True, frozen=True):
    """by: what the rows of the table are: directions, or each direction by one of these"""

    by: groups.By = "direction"


@analysis(
    title="Memory copies",
    question="What do copies cost, and do they use the link?",
    group="Speed of light",
    order=20,
    requirements=("moves",),
    query=MemcpyQuery,
    tables={
        "copies": memcpy_tables.ALL_COLUMNS,
        "per_step": memcpy_tables.STEP_COLUMNS,
        "lanes": memcpy_figures.COLUMNS,
        "calls": memcpy_tables.CALL_COLUMNS,
        **memcpy_counted.TABLES,
    },
    facts=memcpy_tables.FACTS,
)
def run(capture: Capture, query: MemcpyQuery) -> Report:
    if memcpy_counted.opens(capture):
        return memcpy_counted.report(capture, query, query.by)
    where = scope(capture, query)
    found = records.copies(capture, where.device)
    if not len(found) and not len(records.copies(capture, np.ones(len(capture.device), bool))):
        raise Unavailable("no copy in this recording", hint="record a part of the job that moves data")
    spec = device_for(capture, query.device_limits)
    limits = bandwidth.peaks(spec)
    unsure = {d for d, column in bandwidth.columns(spec).items() if column in spec.unverified} if spec is not None else set()
    directions = memcpy_tables.limited(groups.table(capture, where.device, "direction"), limits)
    table = directions if query.by == "direction" else memcpy_tables.limited(groups.table(capture, where.device, query.by), limits)
    inside = in_steps(capture, where)
    launched = directions if inside.all() else groups.table(capture, inside, "direction")
    totals = memcpy_tables.totals(directions, launched, where)
    per_step = exposure.per_step(capture, where)
    worst = exposure.worst_step(per_step)
    beside = memcpy_counted.beside(capture, where)
    sections: list[AnySection] = [
        *memcpy_tables.cards(capture, found, directions, limits, query.step),
        memcpy_figures.section(found, limits, bandwidth.fits(found), keyed=query.by == "direction"),
        _findings(capture, where, limits, query.step),
        *memcpy_tables.sections(capture, per_step, where, worst),
        *memcpy_figures.sections(capture, found, where, worst),
        memcpy_tables.breakdown_section(capture, found, table, query.by, totals, where, unsure, query.step),
        *memcpy_tables.calls_section(capture, where),
        *([beside] if beside is not None else []),
        memcpy_tables.numbers(totals, {d: fit for d in directions["direction"] if (fit := bandwidth.latency_fit(found, d)) is not None}),
    ]
    return Report(
        analysis="memcpy",
        title="Memory copies",
        headline=_headline(directions, launched, totals, where),
        notices=notices(capture, found, directions, limits, where, query.step, spec=spec),
        sections=sections,
    )


def _findings(capture: Capture, where: Scope, limits: dict[str, tuple[float, str]], step: str) -> FindingsSection:
    """The largest findings; the rest on their own page."""
    found = copy_findings(capture, where, limits)
    shown = found[:FINDINGS]
    query = {"step": step} if step else {}
    length = step_ns(capture, where)
    more = f"All {len(found)}, with evidence" if len(found) > len(shown) else "With evidence"
    return FindingsSection(
        id="findings",
        title="What to fix first",
        subtitle="saving per step, at most; savings can overlap" if where.steps else "at most; savings can overlap",
        span=5,
        findings=[to_report(f, pages=registry(), step_ns=length, keep=query) for f in shown],
        combined_ns=together_ns(capture, where, shown),
        empty="No copy here costs a thousandth of a step.",
        links=[Link("memcpy_findings", query, more)] if found else [],
    )


def _headline(directions: pd.DataFrame, launched: pd.DataFrame, totals: dict[str, Scalar], where: Scope) -> str:
    if not totals["count"]:
        return "No copy was launched in this selection."
    outside = int(totals["count"] or 0) - int(launched["count"].sum())
    several = bool(where.steps) and (len(where.steps) > 1 or outside > 0)
    per = "_per_step" if several else ""
    time, exposed = (human(int(totals[f"{n}{per}_ns"] or 0), "ns") for n in ("time", "exposed"))
    first = directions.iloc[int(directions["time_ns"].to_numpy().argmax())]
    rate, share = float(first["bandwidth_bytes_per_s"]), float(first["link_share"])
    fast = f" at {human(rate, 'B/s')}" if np.isfinite(rate) else ""
    of = f", {human(share, 'ratio')} of its limit from 1 MiB on" if np.isfinite(share) else ""
    most = f"Most is {NAMES[str(first['direction'])].lower()}{fast}{of}."
    shown = "all" if exposed == time else exposed
    if several and outside:
        rest = human(int(totals["time_ns"] or 0) - int(launched["time_ns"].sum()), "ns")
        who = "one takes" if outside == 1 else f"{human(outside, 'count')} take"
        return f"The copies of a step take **{time}**, {shown} of it exposed; outside of every step {who} {rest}. {most}"
    return f"All copies together take **{time}**{' per step' if several else ''}, {shown} of it exposed. {most}"
