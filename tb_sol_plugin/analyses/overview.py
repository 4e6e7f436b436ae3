"""Overview: how far the step is from the speed of light, and what to fix first.

The ratio is the time that the same work would take at the limits of the device over the measured time: the part of the step in which
the device is busy, times its efficiency while busy. It is shown where a cost model covers enough of the device's work.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses import analysis, registry
from tb_sol_plugin.analyses._overview_figure import PART_COLUMNS, PLAIN, part_table, parts_of, shown_ratio, use_figure, waterfall_figure
from tb_sol_plugin.metrics import texts
from tb_sol_plugin.metrics.levers import Lever, device_word, levers
from tb_sol_plugin.metrics.overview_facts import device_and_run, mfu
from tb_sol_plugin.metrics.scope import Scope, scope
from tb_sol_plugin.metrics.step_split import CATEGORIES, average, split_steps, split_windows
from tb_sol_plugin.metrics.waterfall import Waterfall, waterfall, windows_of
from tb_sol_plugin.metrics.work import group
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.device import why_no_limits
from tb_sol_plugin.model.report import (
    Column,
    FactsSection,
    Finding,
    FindingsSection,
    Link,
    Mark,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_table,
)
from tb_sol_plugin.model.selection import Query
from tb_sol_plugin.units import NARROW, digits, human, number, scale_of

NO_OPERATOR = "work of no operator"

OPERATOR_COLUMNS = (
    Column("name", "Operator", "", "Name of the operator that owns the work.", "code"),
    Column("kind", "Kind", "", "Kind of work.", "symbol", rank=2),
    Column("shapes", "Input shapes", "", "Sizes of its inputs.", "shapes", rank=2, missing="recorded without record_shapes"),
    Column("calls", "Calls", "count", "Calls in the selection.", rank=2),
    Column("measured_ns", "Time", "ns", "Device time of the calls, everything below them included.", "bar", color_by="kind"),
    Column("sol_ns", "Limit", "ns", "Least time of the calls on this device.", missing="no cost model, no shapes, or an unknown device"),
    Column("wasted_ns", "Above limit", "ns", "Time less the limit.", missing="no cost model, no shapes, or an unknown device"),
    Column("efficiency", "Efficiency", "ratio", "Limit over time.", "efficiency", missing="no cost model, no shapes, or an unknown device"),
)
FACTS = {
    "speed_of_light": "Time at the limits of the device over the measured time.",
    "gpu_busy": "Part of the step in which at least one device event runs.",
    "efficiency_while_busy": "Time at the limits over the busy time.",
    "step_ns": "Mean length of a step by its GPU-aware bounds; of the whole recording where no step was recorded.",
    "sol_ns": "Sum of the limits of all modelled work, per step.",
    "mfu": "Matrix operations over the step at the dense peak of their type.",
    "traffic_bytes": "Least memory traffic of the modelled work, per step.",
    "modelled_share": "Part of the device's own work, communication and copies over a link set aside, that a cost model covers.",
    "host_busy": "Part of the step in which some operator, range or frame runs on the host.",
    "loading_share": "Part of the step in which a batch is fetched and nothing else of higher rank runs.",
    "operator_calls": "Operator calls in the selection.",
    **{name: f"Mean per step, exclusive: {name.removesuffix('_ns').replace('_', ' ')}." for name in CATEGORIES},
    "gpu": "Name of the device as recorded.",
    "limits_from": "Row of the device table that the limits are from.",
    "events": "Events in the file.",
    "device_events": "Device events in the file.",
    "recorded": "What the profiler was asked to record.",
    "framework": "Versions of the framework.",
    "runtime": "Versions of the device's runtime and driver.",
    "window_ns": "First start to last end in the file.",
    "rank": "Rank of this worker in the job.",
    "oddities": "Kinds of oddities met while reading.",
    "matrix_peak": "Dense matrix rate in the type that most matrix work uses.",
    "vector_peak": "Rate of the vector units in FP32.",
    "memory_bandwidth": "Rate of the device memory.",
    "link_bandwidth": "Rate between host and device, one direction.",
}


@analysis(
    title="Overview",
    question="How far from the limit, and what first?",
    group="",
    order=0,
    query=Query,
    tables={"operators": OPERATOR_COLUMNS, "parts": PART_COLUMNS},
    facts=FACTS,
)
def overview(capture: Capture, query: Query) -> Report:
    """The step against its limit, the levers, where the step goes, the device and the run."""
    part = scope(capture, query)
    fall = waterfall(capture, part, query.device_limits)
    found = levers(capture, part, fall)
    report = Report(analysis="overview", title="Overview", headline=_sentence(capture, part, fall))
    report.notices = _notices(capture, fall)
    first = _equation(capture, part, fall) if len(capture.device) else _host_facts(capture, part, fall)
    if len(capture.device):
        parts = parts_of(capture, fall)
        report.sections = [
            first,
            waterfall_figure(capture, fall, parts),
            _findings(found, fall),
            _split(capture, part),
            use_figure(capture, part),
        ]
        report.sections += [_device(capture, fall, query), _operators(capture, fall), part_table(parts)]
    else:
        report.sections = [first, _findings(found, fall), _device(capture, fall, query), _split(capture, part), _operators(capture, fall)]
    return report


# -- the answer -----------------------------------------------------------------------------------------------


def _step_name(capture: Capture, part: Scope, fall: Waterfall) -> str:
    if not fall.stepped:
        return "The recording"
    _, rows = windows_of(capture, part)
    return f"Step {int(capture.steps['number'].to_numpy()[rows[0]])}" if len(rows) == 1 else "A step"


def _device_name(fall: Waterfall) -> str:
    spec = fall.work.spec
    return spec.name if spec is not None else "this device"


def _sentence(capture: Capture, part: Scope, fall: Waterfall) -> str:
    name = _step_name(capture, part, fall)
    step = human(round(fall.total_ns / fall.steps), "ns")
    if not len(capture.device):
        return f"{name} takes **{step}** on the host; no device activity was recorded."
    busy = human(fall.busy_ns / fall.total_ns if fall.total_ns else None, "ratio")
    unit = device_word(capture)
    if shown_ratio(fall) is None:
        if fall.work.spec is None:
            why = why_no_limits(capture)
        elif fall.work.spec.memory_bandwidth is None:
            why = f"the memory bandwidth of {_device_name(fall)} is not known"
        elif not fall.has_limits:
            why = "no operator carries the shapes that a cost model needs"
        else:
            why = f"a cost model covers {human(fall.modelled_kernel_share, 'ratio')} of the {unit} work, too little for a ratio"
        return f"{name} takes **{step}**; the {unit} is busy for **{busy}** of it. No speed of light: {why}."
    step, least = _same_unit(fall.total_ns / fall.steps, fall.sol_ns / fall.steps)
    times = fall.total_ns / fall.sol_ns if fall.sol_ns else 0.0
    head = f"{number(times, 1 if times < 100 else 0)}× headroom"
    about = "" if (fall.modelled_kernel_share or 0) >= PLAIN else "about "
    return f"{name} takes **{step}**. The same work at the limits of {_device_name(fall)} takes {about}**{least}**: {head}."


def _same_unit(long_ns: float, short_ns: float) -> tuple[str, str]:
    """Two times in one unit where the longer one stays below 10 000 of it."""
    factor, unit = scale_of(max(short_ns, 1.0), "ns")
    if not short_ns or long_ns / factor >= 1e4:
        return human(round(long_ns), "ns"), human(round(short_ns), "ns")
    texts = [number(v / factor, digits(v / factor)) + NARROW + unit for v in (long_ns, short_ns)]
    return texts[0], texts[1]


def _notices(capture: Capture, fall: Waterfall) -> list[Notice]:
    out = []
    if not len(capture.device):
        because, record, _ = capture.missing("device_events") or ("", "", "")
        out.append(Notice(f"{because.capitalize()}; {record}. Host times only.", "info"))
        return out
    share = fall.modelled_kernel_share
    if fall.work.spec is not None and fall.has_limits and share is not None and share < PLAIN:
        worst = _unmodelled_names(capture, fall)
        most = f"; most of the rest: {', '.join(worst)}" if worst else ""
        out.append(Notice(f"{human(share, 'ratio')} of the {device_word(capture)} work has a cost model{most}.", "warn", Link("roofline")))
    lack = capture.missing("shapes")
    if lack is not None and fall.work.spec is not None:
        out.append(Notice(f"Limits need input shapes: {lack[0]}; {lack[1]}.", "warn"))
    return out


def _unmodelled_names(capture: Capture, fall: Waterfall, most: int = 3) -> list[str]:
    """Operators with most device time and no model; work of no operator counts under its reason."""
    owner = fall.work.owner
    free = (fall.own > 0) & (fall.kind >= len(fall.kind_ns))
    free &= ~(capture.device["communication"].to_numpy()) & (capture.device["kind"].to_numpy() != 1)
    rows = np.flatnonzero(free)
    if not len(rows):
        return []
    names = texts.pick(fall.work.ops["name"], np.arange(len(fall.work.ops)))
    label = np.where(owner[rows] >= 0, names[np.maximum(owner[rows], 0)] if len(names) else "", NO_OPERATOR)
    time = pd.Series(fall.own[rows]).groupby(label).sum().sort_values(ascending=False)
    return [n if n == NO_OPERATOR else f"`{n}`" for n in time.index.astype(str)[:most]]


def _equation(capture: Capture, part: Scope, fall: Waterfall) -> FactsSection:
    """Ratio = busy × efficiency while busy, then tiles."""
    busy = fall.busy_ns / fall.total_ns if fall.total_ns else None
    ratio = shown_ratio(fall)
    efficiency = fall.sol_ns / fall.busy_ns if ratio is not None and fall.busy_ns else None
    counted = fall.work.ops[fall.counted]
    flop = float(np.nansum(counted["flop"].to_numpy(dtype=np.float64)))
    traffic = float(np.nansum(counted["bytes"].to_numpy(dtype=np.float64)))
    use, dtype = mfu(counted, fall.work.spec, fall.total_ns)
    share = fall.modelled_kernel_share
    unit = device_word(capture)
    values: dict[str, Scalar] = {
        "speed_of_light": ratio,
        "gpu_busy": busy,
        "efficiency_while_busy": efficiency,
        "mfu": use,
        "traffic_bytes": round(traffic / fall.steps) if fall.has_limits else None,
        "modelled_share": share,
        "step_ns": round(fall.total_ns / fall.steps),
        "sol_ns": round(fall.sol_ns / fall.steps) if fall.has_limits else None,
    }
    marks = {}
    if ratio is None:
        marks["speed_of_light"] = marks["efficiency_while_busy"] = Mark(
            "unknown", _sentence(capture, part, fall).rpartition("No speed of light: ")[2]
        )
    elif share is not None and share < PLAIN:
        marks["speed_of_light"] = marks["efficiency_while_busy"] = Mark(
            "partial", f"a cost model covers {human(share, 'ratio')} of the {unit} work"
        )
    if use is not None and use >= 0.001 and (share or 0) < PLAIN:
        marks["mfu"] = marks["traffic_bytes"] = Mark("lower_bound", f"a cost model covers {human(share, 'ratio')} of the {unit} work")
    if ratio is not None and ratio > 1.02:
        marks["speed_of_light"] = Mark("flagged", "faster than the limit: the limit or the work is wrong")
    per = "per step" if fall.stepped else "in the recording"
    without = human(round(fall.unmodelled_ns / fall.steps), "ns")
    units = {"traffic_bytes": "B", "step_ns": "ns", "sol_ns": "ns"}
    return FactsSection(
        id="answer",
        title="Speed of light",
        weight="headline",
        style="equation",
        values=values,
        units={k: units.get(k, "ratio") for k in values},
        labels={
            "speed_of_light": "of the speed of light",
            "gpu_busy": f"{unit} busy",
            "efficiency_while_busy": "Efficiency while busy",
            "mfu": f"MFU, {dtype} dense" if dtype else "MFU",
            "traffic_bytes": "Memory traffic",
            "modelled_share": "Kernel time modelled",
            "step_ns": "Step",
            "sol_ns": "At the limits",
        },
        docs=dict(FACTS),
        notes={
            "mfu": f"{human(flop / fall.steps, 'FLOP')} {per}" if flop else "no matrix work with recorded shapes",
            "traffic_bytes": f"at least, {per}",
            "modelled_share": f"{without} without a model {per}",
        },
        hidden=["step_ns", "sol_ns"],
        marks=marks,
        text=_sentence(capture, part, fall),
        value_links={"modelled_share": Link("roofline")},
    )


def _host_facts(capture: Capture, part: Scope, fall: Waterfall) -> FactsSection:
    """The answer of a recording without a device: tiles over the host."""
    split = _mean_split(capture, part)
    whole = split["duration_ns"]
    busy = whole - split["other_ns"]
    values: dict[str, Scalar] = {
        "step_ns": round(fall.total_ns / fall.steps),
        "host_busy": busy / whole if whole else None,
        "loading_share": split["dataloader_ns"] / whole if whole else None,
        "operator_calls": len(fall.work.ops),
    }
    return FactsSection(
        id="answer",
        title="Host time",
        weight="headline",
        style="tiles",
        values=values,
        units={"step_ns": "ns", "host_busy": "ratio", "loading_share": "ratio", "operator_calls": "count"},
        labels={
            "step_ns": "Step" if fall.stepped else "Recording",
            "host_busy": "Host busy",
            "loading_share": "Loading",
            "operator_calls": "Operator calls",
        },
        docs=dict(FACTS),
    )


# -- levers ---------------------------------------------------------------------------------------------------


def _findings(found: list[Lever], fall: Waterfall, most: int = 5) -> FindingsSection:
    whole = fall.total_ns / fall.steps if fall.total_ns else 0
    there = registry()
    shown = found[:most]
    findings = [
        Finding(
            rule=f.rule,
            title=f.title,
            evidence=f.evidence,
            saving_ns=f.saving_ns,
            share=f.saving_ns / whole if whole else None,
            fix=f.fix,
            color=f.color,
            candidate=f.candidate,
            link=Link(f.analysis, {**dict(f.query), **({"find": f.find} if f.find else {})}, f.label) if f.analysis in there else None,
        )
        for f in shown
    ]
    combined = min(sum(f.saving_ns for f in shown), round(whole)) if shown else None
    return FindingsSection(
        id="levers",
        title="What to fix first",
        subtitle="saving per step, at most" if fall.stepped else "saving, at most",
        findings=findings,
        combined_ns=combined,
        span=5,
        empty="No lever saves more than 0.5 % of the step.",
    )


# -- where the step goes --------------------------------------------------------------------------------------


def _mean_split(capture: Capture, part: Scope) -> dict[str, int]:
    _, rows = windows_of(capture, part)
    if rows:
        return average(split_steps(capture).iloc[list(rows)])
    low, high = part.window_ns
    frame = split_windows(capture, [low], [high])
    return average(frame.assign(duration_ns=high - low))


def _split(capture: Capture, part: Scope) -> FactsSection:
    values = _mean_split(capture, part)
    labels = {
        "kernel_ns": "Kernels",
        "memcpy_ns": "Copies",
        "memset_ns": "Memset",
        "communication_ns": "Communication",
        "runtime_ns": "Runtime calls",
        "dataloader_ns": "DataLoader",
        "cpu_exec_ns": "CPU operators",
        "other_ns": "Other",
    }
    colors = {
        "kernel_ns": "compute",
        "memcpy_ns": "memcpy",
        "memset_ns": "memset",
        "communication_ns": "communication",
        "runtime_ns": "line-strong",
        "dataloader_ns": "host",
        "cpu_exec_ns": "ink-3",
        "other_ns": "idle",
    }
    whole = values["duration_ns"]
    device_only = ("kernel_ns", "memcpy_ns", "memset_ns", "communication_ns")
    shown = {k: values[k] for k in CATEGORIES if len(capture.device) or k not in device_only}
    where = "first the device, then the host" if len(capture.device) else "host only"
    return FactsSection(
        id="split",
        title="Where the step goes",
        subtitle=f"exclusive parts of {human(whole, 'ns')}; {where}",
        style="split",
        values=dict(shown),
        units=dict.fromkeys(shown, "ns"),
        labels=labels,
        colors=colors,
        docs={k: FACTS[k] for k in shown},
        notes={k: human(v / whole if whole else None, "ratio") for k, v in shown.items()},
        hidden=[k for k, v in shown.items() if not v],
        links=[Link("steps", label="Steps")],
    )


# -- device, run, operators -----------------------------------------------------------------------------------


def _device(capture: Capture, fall: Waterfall, query: Query) -> FactsSection:
    found = device_and_run(capture, fall.work.spec, fall.work.ops, bool(query.device_limits))
    return FactsSection(
        id="device",
        title="Device and run",
        style="list",
        span=4 if len(capture.device) else 7,
        values=found.values,
        units=found.units,
        labels=found.labels,
        docs={k: FACTS[k] for k in found.values},
        notes=found.notes,
        marks=found.marks,
        value_links={"oddities": Link("health", label="Trace health")},
    )


def _quiet(column: Column) -> Column:
    """The column, shown only when a reader asks for it."""
    return msgspec.structs.replace(column, rank=3)


def _operators(capture: Capture, fall: Waterfall, most: int = 12) -> TableSection:
    """Operators and shapes with most time above their limit; by time where there is no limit."""
    ops = fall.work.ops
    use = ops[fall.counted] if fall.has_limits else ops
    by_limit = fall.has_limits
    if len(use):
        frame = group(use, ["name", "shapes", "kind"]).sort_values(
            "wasted_ns" if by_limit else "measured_ns", ascending=False, kind="stable"
        )
    else:
        frame = pd.DataFrame({c.name: [] for c in OPERATOR_COLUMNS})
    every = len(frame)
    frame = frame.head(most).assign(
        shapes=pd.Series([s or None for s in frame["shapes"].astype(str).head(most)], dtype=object, index=frame.index[:most])
    )
    for name in ("measured_ns", "sol_ns", "wasted_ns"):
        frame[name] = [None if v != v else round(v) for v in frame[name].tolist()]
    on_host = fall.work.by_host_time
    where = Link("operators", label="Operators") if not by_limit else Link("roofline", label="Open roofline")
    title = (
        "Operators with the most time above their limit" if by_limit else f"Operators with the most {'host' if on_host else 'device'} time"
    )
    table = make_table(
        "operators",
        title,
        frame,
        OPERATOR_COLUMNS if by_limit else [_quiet(c) if c.name in ("sol_ns", "wasted_ns", "efficiency") else c for c in OPERATOR_COLUMNS],
        subtitle=f"by operator and shape, first {len(frame)} of {every}",
        sort=Sort("wasted_ns" if by_limit else "measured_ns"),
        links=[where] if where.analysis in registry() else [],
        empty="No operator was recorded.",
    )
    for row, name in enumerate(frame["name"].tolist()):
        value = table.data["efficiency"][row]
        if isinstance(value, float) and value > 1.02:
            table.marks.setdefault("efficiency", {})[str(row)] = Mark("flagged", "faster than the limit: the limit or the work is wrong")
        if where.analysis in registry():
            table.row_links[str(row)] = Link(where.analysis, {"find": str(name)}, where.label)
    return table
