"""Phases: what each user range and each step costs on the host and on the device.

Device work belongs to the phase that launched it. Work that an autograd thread launches outside every range of its own belongs to
the phase that was open at that moment on the thread that issued the backward pass.
"""

from __future__ import annotations

from typing import ClassVar, Final, Literal

import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.time import phases_tables
from tb_sol_plugin.analyses.time.phases_figures import average, gpu_parts, steps, windows
from tb_sol_plugin.analyses.time.phases_tables import once, tree_rows
from tb_sol_plugin.metrics.report.longest import LONGEST, on_timeline
from tb_sol_plugin.metrics.report.notes import edge_notices, joined_notices, source_notices
from tb_sol_plugin.metrics.time import scope as source
from tb_sol_plugin.metrics.time.breakdown import layers
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.metrics.trees.label_times import phase_device_ns, usual_phase_ns
from tb_sol_plugin.metrics.trees.phases import STEP, host_shares, phase_times, phase_tree
from tb_sol_plugin.metrics.work.columns import (
    BOUND,
    BYTES,
    EFFICIENCY,
    FLAGS,
    FLOP,
    MEASURED,
    MODELED,
    RECOMPUTE,
    SOL,
    WASTED,
    over_whole,
    ranked,
)
from tb_sol_plugin.metrics.work.sums import NO_PHASE, PhaseWork, marks_of, phase_work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    Link,
    Mark,
    Notice,
    Report,
    Sort,
    TableSection,
    TreeSpec,
    make_facts,
    make_table,
)
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import how_many, human

COLUMNS = (
    Column("id", "Key", "", "Key of the row: the path.", "code", rank=3),
    Column("parent", "Parent", "", "Path of the phase around it.", "code", rank=3),
    Column("name", "Phase", "", "The last level of the path; steps are one phase, ## marks and step numbers are left out.", "tree"),
    Column("path", "Path", "", "Names from the outermost phase down.", "code", rank=3),
    Column("count", "Count", "count", "Ranges of this very path; 0 for a level that only a `/` in names makes."),
    Column("device_events", "GPU events", "count", "Device events launched inside.", rank=2),
    Column("ops", "Operators", "count", "Operator calls inside.", rank=3),
    Column("host_ns", "Host", "ns", "Sum of the durations of its ranges on the host.", "bar", color="host"),
    Column(
        "usual_ns",
        "Not sampled",
        "ns",
        "Host time of the phase in iterations of the same inputs that were not sampled: their mean, as often as there are steps.",
        rank=3,
        missing="no such iteration",
    ),
    Column("host_self_ns", "Host self", "ns", "Host time less the phases inside on the same thread; never negative.", rank=3),
    Column(
        "device_ns",
        "Device",
        "ns",
        "Union of the intervals of the device events launched inside: time during which at least one of them ran.",
        "stack",
        parts=("compute_ns", "exposed_communication_ns", "exposed_memcpy_ns"),
        part_colors=("compute", "communication", "memcpy"),
    ),
    Column("device_sum_ns", "Device sum", "ns", "Plain sum of the durations of the device events launched inside.", rank=3),
    Column("compute_ns", "Compute", "ns", "Union of its computation: kernels that are not communication, and memset.", rank=3),
    Column("exposed_communication_ns", "Exp. comm.", "ns", "Its communication that no computation of the device hides.", rank=2),
    Column("exposed_memcpy_ns", "Exp. copies", "ns", "Its copies that neither computation nor communication of the device hides.", rank=2),
    Column(
        "by_time_ns",
        "By time",
        "ns",
        "Plain sum of device time that was launched by an autograd thread and belongs here by the moment of its launch.",
        rank=3,
    ),
    FLOP,
    BYTES,
    SOL,
    MEASURED,
    WASTED,
    ranked(MODELED, 1),
    EFFICIENCY,
    BOUND,
    RECOMPUTE,
    FLAGS,
    *LONGEST,
)
ONCE_COLUMNS = (
    Column("id", "Key", "", "Key of the row: the path.", "code", rank=3),
    Column("phase", "Phase", "", "Path of the innermost phase around the operation, below the step.", "code"),
    Column("ops", "Operations", "count", "Operator calls with a limit, over the steps where numbers are per step."),
    ranked(SOL, 1, "Estimated time: the least time of its operations on this device."),
    Column("share", "Share", "ratio", "Its limit over that of all operations.", "share"),
    ranked(MEASURED, 1, "Device time of the operations that have a limit (host time in a recording without device work)."),
    WASTED,
    EFFICIENCY,
    FLAGS,
)

BETWEEN_EVENTS = "over the time between two events on the device's stream: idle time in it counts"
WHOLE_PHASE = "over the host time of the whole phase in iterations that were not sampled"
COUNTED_FOOTER = (
    "Operators are those that the recorder counted. Backward work counts in the phase that ran it. A phase of the device is as long as "
    "the time between its events."
)
FACTS: Final = (
    Fact("phases", "Phases", "count", "Distinct phases."),
    Fact("ranges", "Ranges", "count", "User ranges in the selection."),
    Fact("steps", "Steps", "count", "Complete steps, by which per-step numbers are divided; 1 where no step was recorded."),
    Fact("device_events", "Device events", "count", "Device events in the selection."),
    Fact("events_in_phases", "Launched in a phase", "count", "Device events launched inside some phase."),
    Fact("device_ns", "Device busy", "ns", "Union of the intervals of all device events in the selection."),
    Fact("by_time_ns", "Owned by time", "ns", "Plain sum of device time that belongs to a phase by the moment of its launch on an "
         "autograd thread."),
)  # fmt: skip


class PhasesQuery(Query, kw_only=True, frozen=True):
    """Phases.

    per: sums over all steps of the selection, or counts, times and work of its complete steps divided by their number.
    """

    per: Literal["all", "step"] = "all"

    PAGE: ClassVar[dict[str, str]] = {"per": "step"}


@analysis(
    title="Phases",
    question="What does each phase of a step cost on host and device?",
    group="Time",
    order=50,
    requirements=("annotations",),
    query=PhasesQuery,
    tables={"phases": COLUMNS, "once": ONCE_COLUMNS},
    facts=FACTS,
)
def phases(capture: Capture, query: PhasesQuery) -> Report:
    """Returns the phase tree, with the average step by phase and the steps beside each other."""
    if source.is_profile(capture):
        return phases_tables.report(capture, query, COLUMNS, FACTS)
    part = scope(capture, query)
    mean = source.complete_steps(capture, part)
    frame = phase_times(capture, mean)
    work = phase_work(capture, mean, query.device_limits)
    report = Report(analysis="phases", title="Phases", headline=_headline(capture, mean, frame, work))
    report.notices = _notices(capture, part, frame, work)
    report.sections = [
        average(capture, mean, frame),
        steps(capture, part),
    ]
    of_steps = source.work_of_steps(capture, mean) if query.per == "step" else part
    work = phase_work(capture, of_steps, query.device_limits)
    report.sections += [
        _table(capture, of_steps, phase_times(capture, of_steps), work, query),
        *_once(capture, of_steps, work, query),
        _facts(capture, part, mean, phase_times(capture, part)),
    ]
    return report


# -- Numbers ----------------------------------------------------------------------------------------------------------


def _headline(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork) -> str:
    shares = host_shares(frame, part.step_count)
    if not shares:
        return "No phase lies in this selection."
    top = max(shares, key=lambda s: s.host_ns)
    start, end = windows(capture, part)
    window = int((end - start).sum())
    place = frame["path"].tolist().index(top.path)
    each = " per step" if part.rows else ""
    host = human(round(top.host_ns), "ns")
    if source.is_capture(capture):
        return _counted(capture, part, frame, work, top.path)
    unmarked = top.path == STEP
    if not len(capture.device):
        text = "No part of the step is marked" if unmarked else f"**{top.name}** takes {host} of host time{each}"
        return f"{text}{_outside(frame) if unmarked else ''}; no device activity was recorded."
    idle_ns = int(gpu_parts(capture, start, end)[3].sum())
    device_ns = round(int(frame["device_ns"].to_numpy()[place]) / part.step_count)
    device = f"{human(device_ns, 'ns')} of device work" if device_ns else "no device work"
    idle = human(idle_ns / window if window else None, "ratio")
    if unmarked:
        how = '`record_function("forward")` around a part shows it here'
        return f"The device idles {idle} of the time. No part of the step is marked{_outside(frame)}; {how}."
    return (
        f"The device idles {idle} of the time; **{top.name}** is the longest phase: {host} on the host for {device}{each}."
    )


def _outside(frame: pd.DataFrame) -> str:
    """Names the longest range that lies in no step, with its sum: ranges of other threads run beside the steps and beyond them."""
    others = frame[(frame["parent"] == -1) & (frame["path"] != STEP) & (frame["count"] > 0)]
    if not len(others):
        return ""
    most = others.nlargest(1, "host_ns")
    time, count = int(most["host_ns"].iloc[0]), int(most["count"].iloc[0])
    return f"; outside of it {most['name'].iloc[0]} takes {human(time, 'ns')} in {how_many(count, 'range')}"


def _counted(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork, top: str) -> str:
    """Names the longest phase of a SOL capture, on the device where that was timed, and its part of the work.

    A level that only names make gives way to the longest phase in it.
    """
    place = int(np.flatnonzero(frame["path"].to_numpy() == top)[0])
    while frame["count"].iloc[place] == 0:
        inside = np.flatnonzero(frame["parent"].to_numpy() == frame["node"].iloc[place])
        if not len(inside):
            break
        place = int(inside[frame["host_ns"].to_numpy()[inside].argmax()])
    node, name = int(frame["node"].iloc[place]), str(frame["path"].iloc[place]).removeprefix(f"{STEP}/")
    each = "per step" if part.rows else "in all"
    device = float(phase_device_ns(capture, part)[node]) / part.step_count
    usual = usual_phase_ns(capture, part)
    host = float("nan") if usual is None else float(usual.host_ns[node])
    host = host if host == host else float(frame["host_ns"].iloc[place]) / part.step_count  # a phase that other iterations lack
    time = f"{human(round(device), 'ns')} on the device" if device == device else f"{human(round(host), 'ns')} on the host"
    flop, whole = float(work.inside["flop"][node]), float(np.nansum(work.calls.values["flop"]))
    share = f" and {human(flop / whole, 'ratio')} of the matrix work" if whole and flop == flop else ""
    return f"**{name}** takes {time} {each}{share}."


def _at_the_top(frame: pd.DataFrame, column: str) -> int:
    """Returns the sum of a column over the phases in no other."""
    return int(frame[column].to_numpy()[frame["parent"].to_numpy() == -1].sum())


def _notices(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork) -> list[Notice]:
    out = source_notices(capture, part) + joined_notices(capture, work.calls.done, part) + edge_notices(capture, part)
    if work.calls.done.from_ledger:
        return out
    if not len(capture.device):
        out.append(Notice("No device activity was recorded: host times only.", "info"))
        return out
    whole, by_time = _at_the_top(frame, "device_sum_ns"), _at_the_top(frame, "by_time_ns")
    ops = work.calls.ops
    apart = (ops["link"] | ops["collective"]).to_numpy()
    own, covered = (float(np.nansum(work.calls.values[n][~apart])) for n in ("owned_sum_ns", "modelled_sum_ns"))
    if 0 < covered < 0.8 * own:
        out.append(
            Notice(
                f"{human(covered / own, 'ratio')} of the device's own work, communication and copies over a link set aside, has a cost "
                "model; limits and efficiency cover that part.",
                "warn",
                Link("roofline"),
            )
        )
    if by_time and whole:
        out.append(
            Notice(
                f"{human(by_time / whole, 'ratio')} of the device time was launched by an autograd thread; "
                "its phase is the one open at that moment.",
                "info",
            )
        )
    return out


# -- Table ------------------------------------------------------------------------------------------------------------


def _table(capture: Capture, part: Scope, frame: pd.DataFrame, work: PhaseWork, query: PhasesQuery) -> TableSection:
    rows, outside = tree_rows(capture, part, frame, work, part.step_count if query.per == "step" else 1)
    rank: dict[str, int] = {}
    if work.calls.done.from_ledger:
        hidden_columns = ("device_events", "exposed_communication_ns", "exposed_memcpy_ns", "modelled_share", "compute_ns")
        rank = dict.fromkeys(hidden_columns, 3) | {"flop": 1, "ops": 2} | ({} if _any(rows["device_ns"]) else {"device_ns": 3})
        rank |= {"usual_ns": 1} if _any(rows["usual_ns"]) else {}
        rank |= {"measured_ns": 1} if work.calls.done.timed and _any(rows["efficiency"]) else {}
    elif not len(capture.device):
        rank = dict.fromkeys(("device_events", "device_ns", "exposed_communication_ns", "exposed_memcpy_ns", "modelled_share"), 3)
    if not _any(rows["efficiency"]):
        rank |= dict.fromkeys(("sol_ns", "wasted_ns", "efficiency", "modelled_share", "bound"), 3)
        if not work.calls.done.timed and _any(rows["sol_ns"]):
            rank |= {"sol_ns": 1, "bound": 1}
    if float(work.calls.values["recompute_ns"].sum()) > 0:
        rank["recompute_share"] = 2
    columns = over_whole([ranked(c, rank.get(c.name, c.rank)) for c in COLUMNS if c.name in rows], "phase", timed=work.calls.done.timed)
    section = make_table(
        "phases",
        "Phases",
        rows,
        columns,
        subtitle=_each(part, query) + ("" if work.calls.done.from_ledger else "; device time belongs to the phase that launched it"),
        key="id",
        tree=TreeSpec(),
        sort=Sort("host_ns"),
        last=outside,
        filters=["name"],
        timeline=on_timeline(capture, "count"),
        footer=COUNTED_FOOTER
        if work.calls.done.from_ledger
        else "≈ efficiency of the modeled part only. Work hidden behind other computation is in Device, not in the exposed columns.",
    )
    marks = marks_of(section.data["efficiency"], section.data["flags"], section.data["modelled_share"] if len(capture.device) else None)
    if not work.calls.done.timed:
        known = [i for i, v in enumerate(section.data["efficiency"]) if v is not None and str(i) not in marks]
        marks |= {str(i): Mark("partial", WHOLE_PHASE if source.on_cpu(capture) else BETWEEN_EVENTS) for i in known}
    if marks:
        section.marks["efficiency"] = marks
    return section


def _any(values: list[object]) -> bool:
    """Returns whether something is known of a column."""
    return any(v is not None for v in values)


def _each(part: Scope, query: PhasesQuery) -> str:
    if query.per == "step":
        return "per step"
    return f"sums over {human(part.step_count, 'count')} steps" if len(part.rows) > 1 else "sums"


def _once(capture: Capture, part: Scope, work: PhaseWork, query: PhasesQuery) -> list[TableSection]:
    """Returns every operation once, as the console report has it; nothing without limits."""
    divide = part.step_count if query.per == "step" else 1
    rows = once(work, phase_tree(capture).path, divide)
    if not rows["id"]:
        return []
    total = work.calls.total
    times = {n: round(float(total[n]) / divide) if total[n] == total[n] else None for n in ("sol_ns", "measured_ns", "wasted_ns")}
    section = make_table(
        "once",
        "Limit by phase",
        rows,
        [c if _any(rows[c.name]) else ranked(c, 3) for c in ONCE_COLUMNS],
        subtitle=f"{_each(part, query)}; every operation once, at its innermost phase, as in the console report",
        key="id",
        sort=Sort("sol_ns"),
        last=[r for r in rows["id"] if r == NO_PHASE],
        total={
            "phase": "All",
            **times,
            "share": 1.0,
            "ops": sum(rows["ops"]),
            "efficiency": float(total["efficiency"]) if total["efficiency"] == total["efficiency"] else None,
        },
        filters=["phase"],
        footer="Rows add up: an operation counts at the innermost phase only, not at those around it.",
        links=[Link("roofline", {"by": "phase"}, "On the roofline")],
    )
    marks = marks_of(section.data["efficiency"], section.data["flags"])
    if marks:
        section.marks["efficiency"] = marks
    return [section]


def _facts(capture: Capture, part: Scope, mean: Scope, frame: pd.DataFrame) -> FactsSection:
    has = bool(len(capture.device))
    busy = layers(capture, part.device).busy
    values: dict[str, int | None] = {
        "phases": len(frame),
        "ranges": int(frame["count"].to_numpy().sum()),
        "steps": mean.step_count,
        "device_events": int(part.device.sum()) if has else None,
        "events_in_phases": _at_the_top(frame, "device_events") if has else None,
        "device_ns": iv.length(busy) if has else None,
        "by_time_ns": _at_the_top(frame, "by_time_ns") if has else None,
    }
    hidden = [name for name, value in values.items() if value is None]
    return make_facts("facts", "Counts", values, FACTS, hidden=hidden)
