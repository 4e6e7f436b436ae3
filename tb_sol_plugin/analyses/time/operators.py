"""Operators: calls, host time and the device work that each launches.

Device time belongs to an operator when the call that launched it starts inside the operator, on the same thread. Work launched by no
operator, before the window or without a launch record has rows of its own, so the column of directly launched work adds up to all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.metrics.report.longest import LONGEST, of_calls, on_timeline
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.operators import Groups, groups
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.metrics.work.columns import BOUND, BYTES, EFFICIENCY, FLAGS, FLOP, MEASURED, MODELED, RECOMPUTE, SOL, WASTED, ranked
from tb_sol_plugin.metrics.work.sums import VALUES, Calls, calls_of, marks_of, partial, ratios_of, summed
from tb_sol_plugin.model import figure as fig
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import held, joined, listed, taken
from tb_sol_plugin.model.figure import escape
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Notice,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
    only_row,
)
from tb_sol_plugin.model.row_links import RowLinks
from tb_sol_plugin.tables.arrays import whole_or_none
from tb_sol_plugin.tables.grouped import totals
from tb_sol_plugin.units import human

# -- Columns and facts ------------------------------------------------------------------------------------------------


ID = Column("id", "Row", "", "Key of the row: the name and, where rows are split, the property.", "code", rank=3)
COLUMNS = (
    Column("name", "Operator", "", "Name of the operator as recorded.", "code"),
    Column(
        "input_shapes",
        "Input shapes",
        "",
        "Sizes of its inputs; a count where calls of several shapes are in one row.",
        "shapes",
        rank=2,
        missing="no sizes recorded for these calls",
    ),
    Column(
        "dtype",
        "Type",
        "",
        "Element type of its first tensor; a count where calls differ.",
        "text",
        rank=3,
        missing="no types recorded for these calls",
    ),
    Column(
        "module",
        "Module",
        "",
        "Class of the innermost module call around it; a count where calls differ.",
        "code",
        rank=3,
        missing="launched outside every module, or recorded without with_stack",
    ),
    Column("thread", "Thread", "", "Host thread that ran it; a count where calls differ.", "text", rank=3),
    Column("calls", "Calls", "count", "How often it ran; a call inside a call of the same name counts too."),
    Column("launching_calls", "Launching", "count", "Calls that launched device work themselves.", rank=3),
    Column(
        "device_self_ns",
        "Device self",
        "ns",
        "Sum of the durations of device events that it launched itself, not through an operator inside it.",
        "bar",
        color="compute",
    ),
    Column("device_share", "Share", "ratio", "Device self over all device work of the selection.", "share", rank=2),
    Column(
        "device_total_ns",
        "Device total",
        "ns",
        "Sum of the durations of device events launched inside its calls; an event counts once per row, also where calls nest.",
        "bar",
        color="compute",
        rank=2,
    ),
    Column(
        "device_self_union_ns",
        "Device self, union",
        "ns",
        "Per call the time during which at least one of its own device events ran, summed over calls.",
        rank=3,
    ),
    Column("device_events", "GPU events", "count", "Device events that it launched itself.", rank=3),
    Column("host_total_ns", "Host", "ns", "Sum of the durations of its calls.", "bar", color="host", rank=2),
    Column("host_self_ns", "Host self", "ns", "Host time less the operators and the runtime calls inside; never negative.", rank=2),
    Column(
        "host_self_with_calls_ns",
        "Host self with calls",
        "ns",
        "Host time less the operators inside: launching is part of it; never negative.",
        rank=3,
    ),
    Column("host_mean_ns", "Host mean", "ns", "Host time over calls.", rank=3, per="call"),
    Column("device_mean_ns", "Device mean", "ns", "Device self over calls.", rank=3, per="call"),
    FLOP,
    BYTES,
    ranked(SOL, 2),
    ranked(
        MEASURED,
        3,
        "Device time of its calls that have a limit, everything below them included (host time in a recording without device work).",
    ),
    WASTED,
    EFFICIENCY,
    BOUND,
    ranked(MODELED, 3, "Part of the device time that its calls own as carriers of the work that a cost model covers."),
    RECOMPUTE,
    FLAGS,
    *LONGEST,
)

FACTS: Final = (
    Fact("operators", "Operators", "count", "Distinct rows of the table that are operators."),
    Fact("calls", "Calls", "count", "Operator calls in the selection."),
    Fact("device_events", "Device events", "count", "Device events in the selection."),
    Fact("device_ns", "Device work, sum", "ns", "Sum of the durations of all device events in the selection."),
    Fact("sum_device_self_ns", "Sum of device self", "ns", "Sum of the column device_self_ns over every row; equal to device_ns."),
    Fact("no_operator_ns", "Launched by no operator", "ns", "Device time launched outside every operator."),
    Fact("before_window_ns", "Launched before the window", "ns", "Device time of events launched before the recording began."),
    Fact("no_record_ns", "No launch record", "ns", "Device time of events whose launch is not in the recording."),
    Fact("host_ns", "Host time under operators", "ns", "Host time under operators: the sum of host self with calls."),
    Fact("sol_ns", "Limit", "ns", "Sum of the limits of all modeled calls; the same as on the roofline."),
    Fact("measured_ns", "Time with a limit", "ns", "Time of the calls that have a limit."),
    Fact("wasted_ns", "Above the limit", "ns", "Time of the calls that have a limit, less the limit."),
    Fact("efficiency", "Efficiency", "ratio", "Limit over that time; the same as on the roofline."),
    Fact("modelled_share", "Modeled", "ratio", MODELED.doc),
    Fact("recompute_ns", "Recomputed", "ns", "Device time of forward work run again inside the backward pass."),
)  # fmt: skip


MEASURES = {
    "device_self": ("device_self_ns", "device time launched directly", "compute"),
    "device_total": ("device_total_ns", "device time launched inside", "compute"),
    "host_self": ("host_self_ns", "host time of its own", "host"),
    "host_total": ("host_total_ns", "host time", "host"),
    "above_limit": ("wasted_ns", "time above the limit", "compute"),
}


class OperatorsQuery(Query, kw_only=True, frozen=True):
    """Operators.

    group_by: what makes a row: the name, or the name and one more property.
    measure: what the chart ranks by.
    """

    group_by: Literal["name", "name_shape", "name_dtype", "name_module", "name_thread", "name_phase"] = "name"
    measure: Literal["device_self", "device_total", "host_self", "host_total", "above_limit"] = "device_self"


Columns: TypeAlias = dict[str, Sequence[Any]]
"""Values of a row at the same place of each column, None unknown; of many rows arrays, as `held` makes them."""


@dataclass(frozen=True)
class _Sums:
    columns: Columns
    outside: list[str]


@analysis(
    title="Operators",
    question="What runs longest?",
    group="Time",
    order=20,
    requirements=("operators",),
    query=OperatorsQuery,
    tables={"operators": COLUMNS},
    facts=FACTS,
)
def operators(capture: Capture, query: OperatorsQuery) -> Report:
    """Returns one row per operator name (or name and property); device work outside every operator has its own rows."""
    part = scope(capture, query)
    grouped = groups(capture, query.group_by, part)
    found = _sums(capture, part, grouped, query.device_limits)
    columns, outside = found.columns, found.outside
    facts = _facts(capture, part, columns, outside)
    against = _work_facts(calls_of(capture, part, query.device_limits), facts["device_ns"])
    report = Report(analysis="operators", title="Operators", headline=_headline(columns, outside, facts))
    if not len(capture.device):
        report.notices.append(Notice("No device activity was recorded: host times only.", "info"))
    no_launch = sum(int(facts[k]) for k in ("before_window_ns", "no_record_ns"))
    if no_launch:
        share = no_launch / int(facts["device_ns"])
        report.notices.append(
            Notice(
                f"{human(share, 'ratio')} of device time has no launch in this recording; it stands in the last rows.",
                "info",
                Link("links"),
            )
        )
    table = _table(capture, columns, outside, against)
    report.sections = [_figure(columns, query, outside), table, _facts_section(facts, against)]
    return report


# -- Sums -------------------------------------------------------------------------------------------------------------


def _sums(capture: Capture, part: Scope, grouped: Groups, limits: str) -> _Sums:
    size = len(grouped.columns["name"])
    h = at.host(capture)
    launch = at.launches(capture)
    device = capture.device
    chosen = part.device
    duration = device["duration_ns"].to_numpy()[chosen]
    operator = device["operator"].to_numpy()
    rows = grouped.rows
    group_of_device = np.where(operator >= 0, grouped.code[np.maximum(operator, 0)], -1) if len(h.start) else operator
    own = group_of_device[chosen]
    total = at.inclusive(capture, launch.call[chosen], launch.time[chosen], duration, grouped.code)
    per_call = at.union_per_operator(capture, chosen, whole=part.whole)
    launching = np.zeros(len(h.start) + 1, np.bool_)  # the last for none
    launching[operator[chosen]] = True
    self_times = at.self_among(capture, (S.OPERATOR, S.CALL)), at.self_among(capture, (S.OPERATOR,))
    sums = totals(rows, grouped.code, h.start, h.duration, launching[:-1], (per_call, *self_times), size)
    device_union, host_self, host_self_with_calls = sums.more
    device_self = at.sum_by(own, duration, size)
    found = {
        "calls": sums.count,
        "device_self_ns": device_self,
        "device_total_ns": _padded(total, size),
        "device_self_union_ns": device_union,
        "launching_calls": sums.flagged,
        "device_events": np.bincount(own[own >= 0], minlength=size),
        "host_total_ns": sums.total,
        "host_self_ns": host_self,
        "host_self_with_calls_ns": host_self_with_calls,
        "host_mean_ns": sums.total / np.maximum(sums.count, 1),
        "device_mean_ns": device_self / np.maximum(sums.count, 1),
        **of_calls(sums.longest, h.start, h.duration),
    }
    columns: Columns = {**grouped.columns, **{name: held(values) for name, values in found.items()}}
    reasons = at.unowned(capture, np.where(chosen, group_of_device, 0), at.NO_OPERATOR)
    for name, mask in reasons:
        row = _outside_row(device, mask & chosen, name)
        columns = {label: joined(values, row.get(label)) for label, values in columns.items()}
    columns |= {name: held(values) for name, values in _work(capture, part, listed(columns["name"]), grouped, limits).items()}
    whole = int(duration.sum())
    columns["device_share"] = held([v / whole if whole else None for v in columns["device_self_ns"]])
    by = [np.array([np.nan if v is None else v for v in columns[name]], np.float64) for name in ("host_self_ns", "device_self_ns")]
    order = np.lexsort([-v for v in by])  # unknown last
    if not len(device):
        for name in ("device_self_ns", "device_total_ns", "device_self_union_ns", "device_events", "device_mean_ns"):
            columns[name] = held([None] * len(order))
    return _Sums({name: taken(values, order) for name, values in columns.items()}, [name for name, _ in reasons])


def _padded(values: npt.NDArray[np.int64], size: int) -> npt.NDArray[np.int64]:
    """Returns sums per group, for the groups that have no row as well."""
    out = np.zeros(size, values.dtype)
    out[: len(values)] = values
    return out


def _outside_row(device: pd.DataFrame, mask: npt.NDArray[np.bool_], name: str) -> dict[str, Scalar]:
    duration = int(device["duration_ns"].to_numpy()[mask].sum())
    start = device["start_ns"].to_numpy()[mask]
    span = at.union_by(np.zeros(len(start), np.int64), start, start + device["duration_ns"].to_numpy()[mask], 1)
    return {
        "id": name,
        "name": name,
        "device_self_ns": duration,
        "device_total_ns": duration,
        "device_self_union_ns": int(span[0]),
        "device_events": int(mask.sum()),
    }


def _work(capture: Capture, part: Scope, names: list[str], grouped: Groups, limits: str) -> dict[str, npt.NDArray[Any]]:
    """Work and limits at the operator that carries the model; work known by its kernel alone stands at the row outside."""
    calls = calls_of(capture, part, limits)
    before, alone = (names.index(n) if n in names else -1 for n in (at.BEFORE, at.NO_OPERATOR))
    code = np.where(calls.host >= 0, grouped.code[np.maximum(calls.host, 0)] if len(grouped.code) else -1, before)
    code = np.where((calls.host >= 0) & (code < 0), alone, code)
    sums = summed(calls.values, code, len(names))
    found = sums | ratios_of(sums) | {"modelled_share": ratio(sums["modelled_sum_ns"], sums["owned_sum_ns"])}
    return found | {name: whole_or_none(found[name]) for name in (*VALUES, "wasted_ns")}


# -- Presentation -----------------------------------------------------------------------------------------------------


def _named(columns: Columns, outside: list[str]) -> list[int]:
    """Returns the rows that are operators."""
    return [i for i, name in enumerate(columns["name"]) if name not in outside]


def _facts(capture: Capture, part: Scope, columns: Columns, outside: list[str]) -> dict[str, int]:
    named = _named(columns, outside)
    calls, host_self, device_self = (listed(columns[name]) for name in ("calls", "host_self_with_calls_ns", "device_self_ns"))
    device = capture.device["duration_ns"].to_numpy()[part.device]
    rows = dict.fromkeys(outside, 0)
    for name, time in zip(columns["name"], device_self, strict=True):
        if name in rows:
            rows[name] += time or 0
    return {
        "operators": len(named),
        "calls": sum(calls[i] for i in named),
        "device_events": len(device),
        "device_ns": int(device.sum()),
        "sum_device_self_ns": sum(v for v in device_self if v is not None),
        "no_operator_ns": rows.get(at.NO_OPERATOR, 0),
        "before_window_ns": rows.get(at.BEFORE, 0),
        "no_record_ns": rows.get(at.NO_RECORD, 0),
        "host_ns": sum(host_self[i] for i in named),
    }


def _work_facts(calls: Calls, device_ns: int) -> dict[str, Scalar]:
    """Returns totals of the work in the selection; unknown without limits."""
    total = calls.total
    known = {n: None if total[n] != total[n] else round(float(total[n])) for n in ("sol_ns", "measured_ns", "wasted_ns")}
    whole = device_ns or float(np.nansum(calls.values["owned_sum_ns"]))
    covered = float(np.nan_to_num(total["modelled_sum_ns"]))
    return {
        **known,
        "efficiency": None if total["efficiency"] != total["efficiency"] else float(total["efficiency"]),
        "modelled_share": covered / whole if whole else None,
        "recompute_ns": round(float(np.nan_to_num(total["recompute_ns"]))),
    }


def _headline(columns: Columns, outside: list[str], facts: dict[str, int]) -> str:
    named = _named(columns, outside)
    if not named:
        return "No operator was called in this selection."
    if facts["device_ns"]:
        top = named[0]
        time = columns["device_self_ns"][top]
        device_self = listed(columns["device_self_ns"])
        if not any(device_self[i] for i in named):
            return f"No operator launched any of the **{human(facts['device_ns'], 'ns')}** of device work."
        calls = columns["calls"][top]
        count = "one call" if calls == 1 else f"{human(calls, 'count')} calls"
        share = human(time / facts["device_ns"], "ratio")
        return f"`{columns['name'][top]}` launches {human(time, 'ns')} of device work in {count}, **{share}** of all."
    host_self = listed(columns["host_self_ns"])
    top = max(named, key=host_self.__getitem__)
    time = columns["host_self_with_calls_ns"][top]
    whole = facts["host_ns"]
    share = human(time / whole if whole else None, "ratio")
    return f"`{columns['name'][top]}` takes {human(time, 'ns')} of host time of its own, **{share}** of all operators."


def _figure(columns: Columns, query: OperatorsQuery, outside: list[str]) -> FigureSection:
    measure: str = query.measure
    if measure.startswith("device") and not any(v is not None for v in columns["device_self_ns"]):
        measure = "host" + measure.removeprefix("device")
    column, words, token = MEASURES[measure]
    value = listed(columns[column])
    top = sorted((i for i in _named(columns, outside) if (value[i] or 0) > 0), key=lambda i: -value[i])[:10]
    names, calls, values = ([columns[name][i] for i in top] for name in ("name", "calls", column))
    longest = float(values[0]) if top else 1.0
    factor, unit = fig.time_scale(longest)
    labels = [_short(name) for name in names]
    keys = [str(columns["id"][i]) for i in top]
    data = [
        {
            "type": "bar",
            "orientation": "h",
            "y": keys,
            "x": [float(v) / factor for v in values],
            "customdata": keys,
            "marker": fig.fill(token),
            "width": 0.62,
            "text": [human(int(v), "ns") for v in values],
            "textposition": "outside",
            "cliponaxis": False,
            "hovertext": [
                f"<b>{escape(n)}</b><br>{human(int(v), 'ns')}, {human(c, 'count')} calls"
                for n, v, c in zip(names, values, calls, strict=True)
            ],
            "hoverinfo": "text",
        }
    ]
    y = fig.axis(
        autorange="reversed",
        tickmode="array",
        tickvals=keys,
        ticktext=labels,
        type="category",
        showgrid=False,
        tickfont={"family": fig.MONO, "size": 12},
    )
    x = fig.axis(f"{words}, {unit}", range=[0, longest / factor * 1.14])
    best = f"; the first is {names[0]} with {human(int(values[0]), 'ns')}" if top else ""
    return FigureSection(
        id="top",
        title="Top operators",
        subtitle=f"by {words}",
        figure=fig.figure(data, x=x, y=y, margin={"l": 240, "r": 14, "t": 10, "b": 46}),
        summary=f"The {len(top)} operators with the most {words}{best}.",
        table="operators",
        height=70 + 26 * max(len(top), 4),
    )


def _short(name: str, limit: int = 34) -> str:
    """Cuts a name in the middle and escapes it for an axis."""
    cut = name if len(name) <= limit else name[: limit // 2 - 1] + "…" + name[-limit // 2 :]
    return escape(cut)


_ADDED: Final = (
    "calls",
    "device_self_ns",
    "device_share",
    "device_events",
    "host_self_ns",
    "host_self_with_calls_ns",
    "flop",
    "bytes",
    "sol_ns",
    "measured_ns",
    "wasted_ns",
)


def _table(capture: Capture, columns: Columns, outside: list[str], against: dict[str, Scalar]) -> TableSection:
    total: dict[str, Scalar] = {}
    for name in _ADDED:
        known = [v for v in columns[name] if v is not None]
        total[name] = sum(known) if known else None
    total["efficiency"] = against["efficiency"]
    table = make_table(
        "operators",
        "Operators",
        columns,
        (ID, *_shown(columns)),
        key="id",
        sort=Sort("device_self_ns" if total["device_self_ns"] is not None else "host_self_ns"),
        total={"name": "All", **total},
        last=outside,
        filters=["name"],
        timeline=on_timeline(capture, "calls"),
        footer="Device self adds up to all device work; device total counts an event in every operator around its launch. "
        "A limit belongs to the operator that carries the work, and counts everything below it.",
    )
    marks = marks_of(table.data["efficiency"], table.data["flags"], table.data["modelled_share"])
    if marks:
        table.marks["efficiency"] = marks
    names = columns["name"]

    def link(row: int) -> Link:
        if names[row] in outside:
            return Link("links", label="How events were linked")
        return Link("roofline", only_row("ops", "name", names[row]), "On the roofline")

    table.row_links = RowLinks(np.array([n not in outside or n != at.NO_OPERATOR for n in names], bool), link)
    return table


def _shown(columns: Columns) -> list[Column]:
    """Hides columns with nothing to say: device times without a device, limits without any."""
    device = any(v is not None for v in columns["device_self_ns"])
    hidden_columns = set() if device else {"device_self_ns", "device_share", "device_total_ns"}
    raised = set() if device else {"host_total_ns", "host_self_ns"}
    if not any(v is not None for v in columns["efficiency"]):
        hidden_columns |= {"sol_ns", "wasted_ns", "efficiency", "bound"}
    again = {"recompute_share"} if any(columns["recompute_ns"]) else set()
    rank = dict.fromkeys(again, 2) | dict.fromkeys(raised, 1) | dict.fromkeys(hidden_columns, 3)
    return [ranked(c, rank[c.name]) if c.name in rank else c for c in COLUMNS]


def _facts_section(facts: dict[str, int], against: dict[str, Scalar]) -> FactsSection:
    whole = facts["sum_device_self_ns"] == facts["device_ns"]
    subtitle = "every device event is in exactly one row of device self" if whole else ""
    part = partial(against["modelled_share"]) if against["efficiency"] is not None else None
    marks = {"efficiency": part} if part is not None else {}
    return make_facts("facts", "Check", facts | against, FACTS, subtitle=subtitle, span=12, marks=marks)
