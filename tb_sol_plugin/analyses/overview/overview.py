"""Overview: how far the step is from the speed of light, and what to fix first.

The ratio is the time that the same work would take at the limits of the device over the measured time: the part of the step in which
the device is busy, times its efficiency while busy. It is shown where a cost model covers enough of the device's work.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.overview import overview_tables
from tb_sol_plugin.analyses.overview.overview_figures import PART_COLUMNS, part_table, use_figure, waterfall_figure
from tb_sol_plugin.analyses.overview.overview_tables import PHASE_COLUMNS, counted_tiles, phase_table
from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.devices.limits import caution
from tb_sol_plugin.metrics.critical.replayed import Replayed, prepared, replayed_findings
from tb_sol_plugin.metrics.report.graph_notes import kinds_notices, replay_notices
from tb_sol_plugin.metrics.report.headline import WRONG, sentence
from tb_sol_plugin.metrics.report.longest import LONGEST, longest_operator, on_timeline
from tb_sol_plugin.metrics.report.notes import edge_notices, graph_notices, joined_notices, source_notices
from tb_sol_plugin.metrics.report.overview import PLAIN, device_and_run, parts_of, shown_ratio
from tb_sol_plugin.metrics.rules.engine import LEAST, count_text, ranked, to_report
from tb_sol_plugin.metrics.rules.memory import memory_section
from tb_sol_plugin.metrics.rules.time import NEEDS_TIMES
from tb_sol_plugin.metrics.time.breakdown import device_word
from tb_sol_plugin.metrics.time.scope import Scope, is_capture, is_profile, is_uncounted, scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.metrics.time.waterfall import waterfall as waterfall_of
from tb_sol_plugin.metrics.work.unmodeled import unmodeled
from tb_sol_plugin.metrics.work.work import SUMS, grouped
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import plain_list
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis, registry
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FindingsSection,
    Link,
    Mark,
    Notice,
    Report,
    Sort,
    TableSection,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.units import capitalized, human

NO_LIMIT = "no cost model, no shapes, or an unknown device"
OPERATOR_COLUMNS = (
    Column("name", "Operator", "", "Name of the operator that owns the work.", "code"),
    Column("kind", "Kind", "", "Kind of work.", "symbol", rank=2),
    Column("shapes", "Input shapes", "", "Sizes of its inputs.", "shapes", rank=2, missing="no sizes recorded for these calls"),
    Column("calls", "Calls", "count", "Calls in the selection.", rank=2),
    Column(
        "measured_ns",
        "Time",
        "ns",
        "Device time of the calls, everything below them included; of a recording of the host their host time.",
        "bar",
        color_by="kind",
    ),
    Column("sol_ns", "Limit", "ns", "Least time of the calls on this device.", missing=NO_LIMIT),
    Column("wasted_ns", "Above limit", "ns", "Time less the limit.", missing=NO_LIMIT),
    Column("efficiency", "Efficiency", "ratio", "Limit over time.", "efficiency", missing=NO_LIMIT),
    Column("bound", "Bound", "", "What sets the larger part of the limit.", "badge", rank=2),
    Column("recompute", "Recomputed", "ratio", "Part of the calls that run forward work again in the backward pass.", "share", rank=3),
    *LONGEST,
)
SPLIT: Final = {
    "kernel_ns": ("Kernels", "compute"),
    "memcpy_ns": ("Copies", "memcpy"),
    "memset_ns": ("Memset", "memset"),
    "communication_ns": ("Communication", "communication"),
    "runtime_ns": ("Runtime calls", "line-strong"),
    "dataloader_ns": ("DataLoader", "host"),
    "cpu_exec_ns": ("CPU execution", "ink-3"),
    "other_ns": ("Other", "idle"),
}
"""The exclusive parts of a step, in order: label and color."""
FACTS: Final = (
    *overview_tables.FACTS,
    *(
        Fact(name, label, "ns", f"Mean per step, exclusive: {name.removesuffix('_ns').replace('_', ' ')}.", color)
        for name, (label, color) in SPLIT.items()
    ),
    Fact("gpu", "Device", "", "Name of the device as recorded, of a CPU as its limits name it."),
    Fact("limits_from", "Limits from", "", "Row of the device table that the limits are from."),
    Fact("events", "Events", "count", "Events in the file."),
    Fact("device_events", "Device events", "count", "Device events in the file."),
    Fact("recorded", "Recorded", "", "What the profiler was asked to record."),
    Fact("framework", "PyTorch", "", "Versions of the framework."),
    Fact("runtime", "Runtime", "", "Versions of the device's runtime and driver."),
    Fact("window_ns", "Time recorded", "ns", "First start to last end in the file."),
    Fact("rank", "Rank", "", "Rank of this worker in the job."),
    Fact("model", "Model", "", "Class of the model that a SOL capture was given."),
    Fact("parameters", "Parameters", "count", "Parameters of that model."),
    Fact("oddities", "Health", "count", "Kinds of oddities met while reading."),
    Fact("matrix_peak", "Matrix peak", "FLOP/s", "Dense matrix rate in the type that most matrix work uses."),
    Fact("achievable_peak", "Achievable matrix rate", "FLOP/s", "Matrix rate that products reach in practice."),
    Fact("vector_peak", "fp32 vector", "FLOP/s", "Rate of the vector units in FP32."),
    Fact("memory_bandwidth", "Memory bandwidth", "B/s", "Rate of the device memory."),
    Fact("link_bandwidth", "PCIe, one way", "B/s", "Rate between host and device, one direction."),
)  # fmt: skip


@analysis(
    title="Overview",
    question="How far from the limit, and what first?",
    group="",
    order=0,
    requirements=("program",),
    query=Query,
    tables={"operators": OPERATOR_COLUMNS, "parts": PART_COLUMNS, "phases": PHASE_COLUMNS},
    facts=FACTS,
)
def overview(capture: Capture, query: Query) -> Report:
    """Returns the step against its limit, what to fix first, where the step goes, the device and the run."""
    part = scope(capture, query)
    if not is_profile(capture):
        prepared(capture, part)
    waterfall = waterfall_of(capture, part, query.device_limits)
    if is_profile(capture):
        return _of_a_profile(capture, part, waterfall, query)
    found = replayed_findings(capture, part, waterfall)
    text = sentence(capture, part, waterfall, found.shown, at_most=not found.grade, hidden=len(found.found) - len(found.shown))
    if is_capture(capture) and not len(capture.tables["iterations"]):
        waiting = "No iteration has ended yet; this page fills as the training runs."
        report = Report(analysis="overview", title="Overview", headline=waiting, notices=_notices(capture, part, waterfall)[1:])
        report.sections = [_device(capture, waterfall, query)]
        return report
    if is_uncounted(capture):
        return _of_times(capture, part, waterfall, query, text)
    parts = parts_of(capture, waterfall)
    report = Report(analysis="overview", title="Overview", headline=text, notices=_notices(capture, part, waterfall))
    on_host = waterfall.work.by_host_time
    counted = waterfall.work.from_ledger
    if counted and not waterfall.has_limits:
        first = counted_tiles(capture, part, waterfall)
    else:
        first = (
            overview_tables.host_tiles(capture, part, waterfall)
            if on_host and not waterfall.has_limits
            else overview_tables.equation(capture, part, waterfall)
        )
    report.sections = [
        first,
        waterfall_figure(parts, per_step=waterfall.stepped, shown=shown_ratio(waterfall) is not None),
        _findings(found, waterfall),
        phase_table(capture, part, query.device_limits) if counted else _split(capture, part, waterfall.stepped),
    ]
    if not on_host and not counted:
        report.sections.append(use_figure(capture, part))
    report.sections.append(_device(capture, waterfall, query))
    if counted or len(waterfall.work.ops):  # a table of nothing is none
        report.sections.append(_operators(capture, waterfall))
    report.sections.append(part_table(parts))
    memory = memory_section(capture, registry())
    if memory is not None:
        report.sections.insert(3, memory)
    return report


def _of_times(capture: Capture, part: Scope, waterfall: Waterfall, query: Query, text: str) -> Report:
    """Returns times and rates of a SOL capture whose work was not counted: what takes them is not known, and no part of a step is shown."""
    phases = phase_table(capture, part, query.device_limits)
    because, record, _ = capture.missing("work") or ("", "", "")
    report = Report(analysis="overview", title="Overview", headline=text)
    report.notices = [Notice(f"{because.capitalize()}: where the time goes is not known. {record[:1].upper()}{record[1:]}.", "warn")]
    report.sections = [counted_tiles(capture, part, waterfall)]
    report.sections += [phases] if len(phases.data["phase"]) else []
    report.sections.append(_device(capture, waterfall, query))
    memory = memory_section(capture, registry())
    if memory is not None:
        report.sections.insert(1, memory)
    return report


def _of_a_profile(capture: Capture, part: Scope, waterfall: Waterfall, query: Query) -> Report:
    """Returns sums over a whole profile: kernels and scopes, without steps."""
    report = Report(analysis="overview", title="Overview", headline=overview_tables.sentence(capture, waterfall))
    report.notices = source_notices(capture, part) + [Notice(text, "warn") for text in (caution(waterfall.work.spec),) if text]
    report.sections = [
        overview_tables.tiles(capture, waterfall),
        overview_tables.scope_table(capture, part, query.device_limits, PHASE_COLUMNS),
        _operators(capture, waterfall),
        _device(capture, waterfall, query),
    ]
    return report


# -- Notices ----------------------------------------------------------------------------------------------------------


def _notices(capture: Capture, part: Scope, waterfall: Waterfall) -> list[Notice]:
    out = source_notices(capture, part) + joined_notices(capture, waterfall.work, part) + edge_notices(capture, part)
    out += kinds_notices(capture, part.rows) + replay_notices(capture) + graph_notices(capture, waterfall.work, waterfall.own)
    if capture.facts.truncated:
        out.append(Notice("The file ends early: this page covers the part that could be read.", "warn", Link("health")))
    if not len(capture.device) and not waterfall.has_limits and not waterfall.work.from_ledger:
        because, record, _ = capture.missing("device_events") or ("", "", "")
        out.append(Notice(f"{because.capitalize()}; {record}. Host times only.", "info"))
    if caution(waterfall.work.spec):
        out.append(Notice(caution(waterfall.work.spec), "warn"))
    faults = capture.devices.notes()
    if faults:
        more = f" {len(faults) - 1} more on the page Trace health." if len(faults) > 1 else ""
        out.append(Notice(f"Device file: {faults[0]}.{more}", "warn", Link("health")))
    lack = capture.missing("shapes") if not waterfall.work.from_ledger else None
    if lack is not None and (waterfall.work.spec is not None or not len(capture.device)):
        out.append(Notice(f"Limits need input shapes: {lack[0]}; {lack[1]}.", "warn"))
    share = waterfall.modeled_kernel_share
    if (
        lack is None
        and waterfall.work.spec is not None
        and waterfall.has_limits
        and share is not None
        and share < PLAIN
        and waterfall.work.timed
    ):
        most = _most_without_model(capture, waterfall)
        out.append(Notice(f"{human(1 - share, 'ratio')} of the {_worker(capture)} work has no limit{most}.", "warn", Link("roofline")))
    return out


def _worker(capture: Capture) -> str:
    return device_word(capture) if len(capture.device) else "host"


def _most_without_model(capture: Capture, waterfall: Waterfall, most: int = 3) -> str:
    """Returns `: `op` (why), …`: the operators with most time and no limit, with the reason; work of no operator among them."""
    ops = waterfall.work.ops
    lost = unmodeled(capture, waterfall.work, ops)
    ns_of: dict[str, float] = {}
    for name, why, ns in zip(lost["name"].tolist(), lost["why"].tolist(), lost["measured_ns"].tolist(), strict=True):
        words = f"`{name}` ({why})"
        ns_of[words] = ns_of.get(words, 0.0) + ns
    free = waterfall.own[
        (waterfall.work.owner < 0) & ~capture.device["communication"].to_numpy() & (capture.device["kind"].to_numpy() != 1)
    ].sum()
    if free > 0:
        ns_of["work of no recorded operator"] = float(free)
    worst = sorted(ns_of, key=lambda name: -ns_of[name])[:most]
    return f": {', '.join(worst)}" if worst else ""


# -- Findings ---------------------------------------------------------------------------------------------------------


def _findings(judged: Replayed, waterfall: Waterfall, most: int = 4) -> FindingsSection:
    whole = waterfall.total_ns / waterfall.steps if waterfall.total_ns else 0
    there = registry()
    found = judged.shown
    shown = found[:most]
    if not any(f.subject == "copies" for f in shown):
        largest = [f for f in found[most:] if f.subject == "copies"][:1]  # the first finding about copies has a line of its own
        shown = ranked([*shown, *largest])
    findings = [to_report(f, pages=there, step_ns=whole) for f in shown]
    combined = min(judged.together_ns(shown), round(whole)) if shown else None
    basis = "by replay" if judged.grade else "at most"
    return FindingsSection(
        id="levers",
        title="What to fix first",
        subtitle=f"saving per step, {basis}" if waterfall.stepped else f"saving, {basis}",
        findings=findings,
        combined_ns=combined,
        span=5,
        links=[Link("findings", label=f"All {len(judged.found)}")] if judged.found and "findings" in there else [],
        empty=_nothing_found(waterfall, len(judged.found)),
    )


def _nothing_found(waterfall: Waterfall, hidden: int) -> str:
    """Returns what stands in the place of the findings where there is none that is not hidden behind other work."""
    if not waterfall.work.timed:
        return NEEDS_TIMES
    if waterfall.work.from_ledger and not len(waterfall.work.ops):
        return "No iteration was sampled: nothing is known of its work."
    none = f"Nothing was found that saves more than {human(LEAST, 'ratio')} of the {'step' if waterfall.stepped else 'recording'}."
    if hidden:
        return f"{none} {capitalized(count_text(hidden, 'finding'))} {'hides' if hidden == 1 else 'hide'} behind other work."
    return none if waterfall.has_limits else f"{none} Most findings need limits, which are not known here."


# -- Where the step goes ----------------------------------------------------------------------------------------------


def _split(capture: Capture, part: Scope, stepped: bool) -> FactsSection:
    values = overview_tables.mean_split(capture, part)
    whole = values["duration_ns"]
    device_only = ("kernel_ns", "memcpy_ns", "memset_ns", "communication_ns")
    shown = {k: values[k] for k in SPLIT if len(capture.device) or k not in device_only}
    where = "first the device, then the host" if len(capture.device) else "host only"
    return make_facts(
        "split",
        f"Where the {'step' if stepped else 'recording'} goes",
        shown,
        FACTS,
        subtitle=f"exclusive parts of {human(whole, 'ns')}; {where}",
        style="split",
        notes={k: human(v / whole if whole else None, "ratio") for k, v in shown.items()},
        hidden=[k for k, v in shown.items() if not v],
        links=[Link("steps", label="Steps")],
    )


# -- Device, run, operators -------------------------------------------------------------------------------------------


def _device(capture: Capture, waterfall: Waterfall, query: Query) -> FactsSection:
    found = device_and_run(capture, waterfall.work.spec, waterfall.work.ops, bool(query.device_limits))
    return make_facts(
        "device",
        "Device and run",
        found.values,
        FACTS,
        labels=found.labels,
        more_docs=found.more,
        style="list",
        span=12 if waterfall.work.by_host_time or waterfall.work.from_ledger else 4,
        notes=found.notes,
        marks=found.marks,
        value_links={"oddities": Link("health", label="Trace health")},
    )


def _hide_column(column: Column) -> Column:
    """Returns the column, shown only when a reader asks for it."""
    return msgspec.structs.replace(column, rank=3)


def _operator_order(waterfall: Waterfall, without: str) -> str:
    """Returns the column that operators are ordered by: time above the limit, time, the limit, or `without` where there is neither."""
    if waterfall.work.timed:
        return "wasted_ns" if waterfall.has_limits else "measured_ns"
    return "sol_ns" if waterfall.has_limits else without


_SUMMED: Final = (*SUMS, "host", "name", "shapes", "kind", "modeled", "bound", "estimated", "reason", "recompute", "launches")
"""Columns of calls that the table of operators is made from."""


def _operators(capture: Capture, waterfall: Waterfall, most: int = 12) -> TableSection:
    """Builds the table of operators and shapes with most time above their limit; by time where there is no limit."""
    ops = waterfall.work.ops
    by_limit = waterfall.has_limits
    use = _chosen(ops, np.flatnonzero(waterfall.counted)) if by_limit and not waterfall.counted.all() else ops
    found = _by_shape(capture, use) if len(use) else {c.name: np.zeros(0) for c in OPERATOR_COLUMNS}
    by = found.get(_operator_order(waterfall, "flop"), np.zeros(0))
    order = np.argsort(-by, kind="stable")  # unknown last
    every = len(order)
    frame: dict[str, list[Any]] = {name: plain_list(values.take(order[:most])) for name, values in found.items()}
    frame["shapes"] = [shapes or None for shapes in frame["shapes"]]
    for name in ("measured_ns", "sol_ns", "wasted_ns"):
        frame[name] = [None if v is None else round(v) for v in frame[name]]
    where = (
        Link("operators", label="Operators") if not by_limit and not waterfall.work.from_ledger else Link("roofline", label="Open roofline")
    )
    kind_of_time = "host" if waterfall.work.by_host_time else "device"
    hidden_columns = () if by_limit else ("sol_ns", "wasted_ns", "efficiency", "bound")
    hidden_columns = hidden_columns if waterfall.work.timed else (*hidden_columns, "measured_ns", "wasted_ns", "efficiency")
    profile = "launches" in ops
    hidden_columns = (*hidden_columns, "shapes") if profile else hidden_columns
    table = make_table(
        "operators",
        _operators_title(waterfall, kind_of_time),
        frame,
        [
            _hide_column(c) if c.name in hidden_columns else c
            for c in (overview_tables.worded(OPERATOR_COLUMNS) if profile else OPERATOR_COLUMNS)
        ],
        adds=["calls", "measured_ns", "wasted_ns"],
        subtitle=f"by {'kernel' if profile else 'operator and shape'}, first {min(most, every)} of {every}",
        sort=Sort(_operator_order(waterfall, "calls")),
        timeline=on_timeline(capture, "name"),
        links=[where] if where.analysis in registry() else [],
        empty="No iteration was sampled." if waterfall.work.from_ledger else "No operator was recorded.",
    )
    _mark(table, frame, where)
    return table


def _chosen(ops: pd.DataFrame, rows: Ints) -> pd.DataFrame:
    return pd.DataFrame({c: ops[c].array.take(rows) for c in _SUMMED if c in ops}, copy=False)


def _operators_title(waterfall: Waterfall, kind_of_time: str) -> str:
    if "launches" in waterfall.work.ops:
        return "Kernels with the most time above their limit" if waterfall.has_limits else "Kernels with the most time"
    if not waterfall.work.timed:
        return "Operators with the largest limits" if waterfall.has_limits else "Operators with the most work"
    return "Operators with the most time above their limit" if waterfall.has_limits else f"Operators with the most {kind_of_time} time"


def _by_shape(capture: Capture, ops: pd.DataFrame) -> dict[str, Any]:
    """Returns calls summed by operator and shapes, with the part of them that is recomputed, and when the longest of them was."""
    keys = ["name", "shapes", "kind"]
    number, first = arrays.factorize([arrays.coded(ops[key]).codes for key in keys])
    sums = grouped(ops, number)
    again = np.bincount(number, ops["recompute"].to_numpy()) / sums["calls"]
    words = {key: arrays.at(ops[key], first) for key in keys}
    return words | sums | {"recompute": again} | longest_operator(capture, ops, number, len(first))


def _mark(table: TableSection, frame: dict[str, list[Any]], where: Link) -> None:
    """Marks flags and estimates of the rows, and where each leads."""
    for row, (efficiency, guessed, why) in enumerate(
        zip(frame["efficiency"], frame.get("estimated", []), frame.get("reason", []), strict=False)
    ):
        if efficiency is not None and efficiency > TOLERATED:
            table.marks.setdefault("efficiency", {})[str(row)] = Mark("flagged", WRONG)
        elif guessed:
            for column in ("sol_ns", "wasted_ns", "efficiency"):
                table.marks.setdefault(column, {})[str(row)] = Mark("estimated", str(why))
    if where.analysis in registry():
        names = enumerate(frame["name"])
        table.row_links = {str(row): Link(where.analysis, {"find": str(name)}, where.label) for row, name in names}
