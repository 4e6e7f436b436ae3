"""Which kernels the device spends its time in.

Kernels are grouped by name, by name and operator, or by name, operator and launch properties; the table always adds up to
the plain sum of all kernel time. Copies that the driver runs as a kernel and communication kernels are kernels too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost.roofline import ratio
from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.report.notes import profile_notices
from tb_sol_plugin.metrics.time import kernels as K
from tb_sol_plugin.metrics.time.breakdown import linked, spans_of
from tb_sol_plugin.metrics.time.distinct_names import short_names
from tb_sol_plugin.metrics.time.kernel_names import classify, unit_name
from tb_sol_plugin.metrics.time.scope import is_profile, scope
from tb_sol_plugin.metrics.trees.profile_tree import OUTSIDE, innermost, scope_tree
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
    ranked,
    relabeled,
)
from tb_sol_plugin.metrics.work.sums import calls_of, marks_of, partial, ratios, sums
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model import figure as F
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import Numbers, whole_numbers
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    FigureSection,
    Link,
    Notice,
    OnTimeline,
    Report,
    Scalar,
    Sort,
    TableSection,
    make_facts,
    make_table,
    only_row,
)
from tb_sol_plugin.model.rows import summed
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as I
from tb_sol_plugin.tables.arrays import Floats, Mask, Places, factorize
from tb_sol_plugin.units import capitalized, human

# -- Kernels of a profile without events ------------------------------------------------------------------------------
# sums by name, or by name and scope.


_WHOLE_NUMBERS: Final = ("flop", "bytes", "sol_ns", "measured_ns", "wasted_ns")


def kernel_rows(capture: Capture, query: Query, *, by_scope: bool) -> pd.DataFrame:
    """Returns one row per kernel (and scope, as `operator`), longest first.

    id, name, short_name, operator, calls, total_ns, share, mean_ns, tensor_core (True, False, None unknown), unit, rule, kind, and the
    work of `work.sums`. Frames that no launch belongs to (work that a scope states) are left out.
    """
    calls = calls_of(capture, scope(capture, query), query.device_limits)
    ran = np.flatnonzero(calls.ops["launches"].to_numpy() + np.nan_to_num(calls.ops["measured_ns"].to_numpy(dtype=np.float64)) > 0)
    names = calls.ops["name"]
    node = innermost(capture.tables[S.LEDGER.name])[calls.ops["ledger"].to_numpy()]
    keys = [arrays.codes(names)[ran], *([node[ran]] if by_scope else [])]
    code, first = factorize(keys)
    size = len(first)
    found = sums({n: v[ran] for n, v in calls.values.items()}, code, size)
    time = np.bincount(code, np.nan_to_num(calls.ops["measured_ns"].to_numpy(dtype=np.float64))[ran], size).astype(np.float64)
    launches = np.bincount(code, calls.ops["launches"].to_numpy()[ran], size).astype(np.float64)
    at = arrays.codes(names)[ran[first]]
    judged = classify(names.cat.categories, capture.facts.vendor).iloc[at].reset_index(drop=True)
    tree = scope_tree(capture)
    where = [OUTSIDE if n < 0 else tree.path[n] for n in node[ran[first]].tolist()]
    out = ratios(found).assign(
        name=judged["name"],
        short_name=np.array(short_names([str(n) for n in names.cat.categories]), object)[at],
        operator=where,
        calls=launches.astype(np.int64),
        total_ns=np.rint(time).astype(np.int64),
        share=ratio(time, np.full(size, time.sum())),
        mean_ns=np.rint(ratio(time, launches)),
        tensor_core=pd.Series([None if t < 0 else bool(t) for t in judged["tensor_core"]], dtype=object),
        unit=judged["unit"],
        rule=judged["rule"],
        kind=judged["kind"],
        modelled_share=ratio(np.nan_to_num(found["modelled_sum_ns"].to_numpy()), time),
    )
    out["id"] = [f"{n} | {w}" for n, w in zip(out["name"], where, strict=True)] if by_scope else out["name"]
    for name in (*_WHOLE_NUMBERS, "mean_ns"):
        out[name] = pd.Series([None if v is None or v != v else round(v) for v in out[name].tolist()], dtype=object)
    return out.sort_values(["total_ns", "id"], ascending=[False, True], kind="stable", ignore_index=True)


def profile_report(capture: Capture, query: Query, columns: Sequence[Column], *, by_scope: bool) -> Report:
    """Returns the page of kernels of a profile."""
    rows = kernel_rows(capture, query, by_scope=by_scope)
    return Report(
        analysis="kernels",
        title="Kernels",
        headline=_profile_headline(capture, rows),
        notices=profile_notices(capture),
        sections=[_profile_table(rows, _name_unit(columns, capture), by_scope=by_scope)],
    )


def _profile_headline(capture: Capture, rows: pd.DataFrame) -> str:
    total = int(rows["total_ns"].sum())
    if not total:
        return "No kernel time in this profile."
    first = rows.iloc[0]
    launches = human(int(rows["calls"].sum()), "count")
    text = f"Kernels take **{human(total, 'ns')}** in {launches} launches; the first is `{first['short_name'][:64]}` with "
    text += f"{human(float(first['share']), 'ratio')}."
    unit = unit_name(capture.facts.vendor)
    known = int(rows.loc[rows["tensor_core"].eq(True), "total_ns"].sum())
    unknown = int(rows.loc[rows["tensor_core"].isna(), "total_ns"].sum())
    if unknown >= 0.5 * total:
        return f"{text} Whether {unit}s run is not known for {human(unknown / total, 'ratio')} of it."
    return f"{text} {capitalized(unit)}s run {'at least ' if unknown >= 0.05 * total else ''}{human(known / total, 'ratio')}."


def _profile_table(rows: pd.DataFrame, columns: Sequence[Column], *, by_scope: bool) -> TableSection:
    there = [c for c in columns if c.name in rows and (by_scope or c.name != "operator")]
    there = [ranked(c, 3) if not rows[c.name].notna().any() else c for c in there]
    known = [v for v in rows["sol_ns"] if v is not None]
    measured = sum(v for v in rows["measured_ns"] if v is not None)
    least = sum(s for s, m in zip(rows["sol_ns"], rows["measured_ns"], strict=True) if s is not None and m is not None)
    total: dict[str, Scalar] = {c.name: None for c in there}
    total |= {
        "short_name": "all kernels",
        "calls": int(rows["calls"].sum()),
        "total_ns": int(rows["total_ns"].sum()),
        "share": 1.0 if rows["total_ns"].sum() else None,
        "sol_ns": sum(known) if known else None,
        "measured_ns": measured or None,
        "wasted_ns": measured - least if measured else None,
        "efficiency": least / measured if measured else None,
    }
    section = make_table(
        "kernels",
        "Kernels",
        rows,
        there,
        key="id",
        subtitle=f"{human(len(rows), 'count')} groups; whole profile",
        total={c.name: total[c.name] for c in there},
        sort=Sort("total_ns"),
        filters=["short_name", "name", *(["operator"] if by_scope else []), "kind", "tensor_core"],
        footer="Sums over all launches. Work is what launch hooks stated. Matrix units are judged by name.",
        empty="No kernel was launched.",
    )
    marks = marks_of(section.data["efficiency"], section.data["flags"], section.data["modelled_share"])
    if marks:
        section.marks["efficiency"] = marks
    return section


class KernelsQuery(Query, kw_only=True, frozen=True):
    """group_by: name; name_op adds the operator that launched the kernel; name_annotation the innermost user range around its launch, or
    that of the device where no launch was recorded; properties adds operator, grid, block, registers, shared memory
    scope: all kernels, or only those whose launch was recorded
    measure: what the bars show
    short_us: kernels shorter than this many microseconds count as short
    """

    group_by: Literal["name", "name_op", "name_annotation", "properties"] = "name"
    scope: Literal["all", "linked"] = "all"
    measure: Literal["total_ns", "calls", "mean_ns", "max_ns", "wasted_ns"] = "total_ns"
    short_us: float = 10.0


SHARED: Final = "a kernel takes the part of its operator's work that its time is of the operator's device time"
NOT_RECORDED: Final = "not recorded by this tracer"
WEIGHTED: Final = "mean over the calls that carry it, weighted by their duration"

NAME: Final = (
    Column("short_name", "Kernel", doc="name without parameters and most template arguments; of kernels that share it, what differs",
           show="symbol", color_by="kind", full="name"),
    Column("name", "Full name", doc="name as recorded", show="code", rank=3),
)
OPERATOR: Final = (Column("operator", "Operator", doc="innermost operator around the launch, or why there is none", show="code"),)
ANNOTATION: Final = (Column("annotation", "Range", doc="innermost user range around the launch, or on the device", show="code"),)
PROPERTIES: Final = (
    Column("grid", "Grid", doc="blocks of the launch, x, y, z", show="code", missing=NOT_RECORDED),
    Column("block", "Block", doc="threads per block, x, y, z", show="code", missing=NOT_RECORDED),
    Column("registers", "Registers", "count", "registers per thread", rank=2, missing=NOT_RECORDED),
    Column("shared_memory", "Shared memory", "B", "shared memory per block", rank=2, missing=NOT_RECORDED),
)
VALUES: Final = (
    Column("calls", "Calls", "count", "launches"),
    Column("total_ns", "Total", "ns", "plain sum of durations; kernels that run side by side count each", show="bar", color_by="kind"),
    Column("share", "Share", "ratio", "total over the total of all kernels", show="share", rank=2),
    Column("mean_ns", "Mean", "ns", "total over calls", per="call"),
    Column("median_ns", "Median", "ns", "half of the calls are shorter", rank=3, per="call"),
    Column("p95_ns", "p95", "ns", "95 % of the calls take no longer (nearest rank)", rank=2, per="call"),
    Column("min_ns", "Min", "ns", "shortest call", rank=3, per="call"),
    Column("max_ns", "Max", "ns", "longest call", per="call"),
    Column("longest_ns", "Longest at", "ns", "start of the longest call, since the start of the recording", rank=3),
    Column(
        "tensor_core", "Matrix units", doc="whether the kernel runs on matrix units, judged by its name", show="badge",
        missing="no rule knows this name",
    ),
    Column("unit", "Matrix unit", doc="matrix unit and first generation that has it", rank=3),
    Column("rule", "Rule", doc="the rule that decided about matrix units, and its pattern", show="code", rank=3, missing="none knows it"),
    Column("kind", "Kind", doc="kind of work, judged by the name", rank=3),
    ranked(FLOP, 3, "its part of the matrix operations of its operators"),
    ranked(BYTES, 3, "its part of the least memory traffic of its operators"),
    ranked(SOL, 2, f"least time of its part of its operators' work on this device; {SHARED}"),
    ranked(relabeled(MEASURED, "Kernel time with a limit", "plain sum of the durations of the calls that have a limit"), 3),
    ranked(WASTED, 1, "time of the calls that have a limit, less the limit"),
    ranked(relabeled(EFFICIENCY, "Kernel efficiency", f"limit over the kernel time of the calls that have one; {SHARED}"), 1),
    ranked(BOUND, 3, "what sets the larger part of the limit: compute or memory"),
    ranked(FLAGS, 3, "above limit: faster than the limit; estimated: some of its operators ran several kernels, or sizes are assumed"),
    relabeled(MODELED, "Kernel time modeled", "part of its time whose operator has a cost model"),
    ranked(RECOMPUTE, 3, "part of its time that runs forward work again inside the backward pass"),
    Column("blocks_per_sm", "Blocks per SM", doc=WEIGHTED, rank=2, missing=NOT_RECORDED),
    Column("occupancy_pct", "Occupancy", "%", f"estimated achieved occupancy: {WEIGHTED}", rank=2, missing=NOT_RECORDED),
    Column("streams", "Streams", "count", "streams it runs on, over all devices", rank=3),
    Column("graph_share", "From graphs", "ratio", "part of its time that graph launches started", show="share", rank=3),
    Column("linked_share", "Launch recorded", "ratio", "part of its time whose launch was recorded", show="share", rank=3),
    Column("id", "Id", doc="stable key of the row", rank=3),
)  # fmt: skip
GROUPED: Final = {
    "name": (*NAME, *VALUES), "name_op": (*NAME, *OPERATOR, *VALUES), "name_annotation": (*NAME, *ANNOTATION, *VALUES),
    "properties": (*NAME, *OPERATOR, *PROPERTIES, *VALUES),
}  # fmt: skip

FACTS: Final = (
    Fact("total_ns", "Kernel time, sum", "ns", "plain sum of the durations of all kernels in the selection"),
    Fact("union_ns", "Kernel time, union", "ns", "time in which at least one kernel runs"),
    Fact("count", "Kernels", "count", "kernels in the selection"),
    Fact("distinct_names", "Distinct names", "count", "different kernel names"),
    Fact("tensor_core_ns", "Time on matrix units", "ns", "kernel time on matrix units"),
    Fact("tensor_core_share", "On matrix units", "ratio", "kernel time on matrix units over all kernel time"),
    Fact("tensor_core_unknown_ns", "Time with use unknown", "ns", "kernel time of names that no rule knows"),
    Fact("tensor_core_unknown_share", "Matrix use unknown", "ratio", "the same over all kernel time"),
    Fact("short_count", "Short kernels", "count", "kernels shorter than the threshold"),
    Fact("short_ns", "Time in short kernels", "ns", "their plain sum of durations"),
    Fact("graph_share", "From graph launches", "ratio", "part of kernel time that graph launches started"),
    Fact("linked_share", "Launch recorded", "ratio", "part of kernel time whose launch was recorded"),
    Fact("sol_ns", "Limit of the kernels", "ns", "sum of the limits of the kernels' parts of their operators' work"),
    Fact("measured_ns", "Kernel time with a limit", "ns", "time of the kernels that have a limit, plain sum"),
    Fact("wasted_ns", "Above the limit", "ns", "that time less the limits"),
    Fact("efficiency", "Kernel efficiency", "ratio", "limits over that time; copies and sets of memory are no kernels"),
    Fact("modelled_share", "Kernel time modeled", "ratio", "part of kernel time whose operator has a cost model, communication included"),
)  # fmt: skip
AGAINST: Final = ("sol_ns", "measured_ns", "wasted_ns", "efficiency", "modelled_share")
TOP: Final = 10


@analysis(
    title="Kernels",
    question="Which kernels run longest?",
    group="Time",
    order=30,
    requirements=("kernels",),
    query=KernelsQuery,
    tables={"kernels": (*NAME, *OPERATOR, *ANNOTATION, *PROPERTIES, *VALUES)},
    facts=FACTS,
)
def run(capture: Capture, query: KernelsQuery) -> Report:
    if is_profile(capture):
        by_scope = query.group_by != "name"
        return profile_report(capture, query, GROUPED["name_op" if by_scope else "name"], by_scope=by_scope)
    where = scope(capture, query)
    rows = where.device & (capture.device["kind"].to_numpy() == S.KERNEL)
    if query.scope == "linked":
        rows = rows & linked(capture)
    if not (capture.device["kind"].to_numpy() == S.KERNEL).any():
        raise Unavailable("no kernel in this recording, only copies and sets", hint="see memory copies")
    done = work(capture, device_for(capture, query.device_limits))
    frame = _limited(K.groups(capture, rows, query.group_by, done))
    by_name = frame if query.group_by == "name" else K.groups(capture, rows, "name")
    against = _against(frame)
    values = _values(capture, rows, by_name, query.short_us) | {n: against[n] for n in AGAINST}
    headline = _headline(capture, by_name, values)
    del by_name  # a column takes 8 MB for a million names: none is kept longer than it is needed
    frame = {name: frame[name] for name in (*(shown.name for shown in GROUPED[query.group_by]), "crc")}
    key = "name" if query.group_by == "name" else "id"
    outside = np.zeros(0, np.int64)
    if (operator := frame.get("operator")) is not None:
        outside = np.flatnonzero(operator.rows_of([one in K.OUTSIDE for one in operator.values]))
    total: dict[str, Scalar] = {c.name: None for c in GROUPED[query.group_by]}
    total |= {
        "short_name": "all kernels",
        "calls": values["count"],
        "total_ns": values["total_ns"],
        "share": 1.0 if values["total_ns"] else None,
    }
    total["mean_ns"] = round(int(values["total_ns"] or 0) / len(np.flatnonzero(rows))) if rows.any() else None
    total |= {"graph_share": values["graph_share"], "linked_share": values["linked_share"]} | against
    table = make_table(
        "kernels",
        "Kernels",
        frame,
        _name_unit(GROUPED[query.group_by] if values["sol_ns"] is not None else _hide_columns(GROUPED[query.group_by]), capture),
        key=key,
        subtitle=f"{human(len(frame['name']), 'count')} groups; {where.label}",
        total=total,
        sort=Sort("total_ns"),
        last=frame["id"].at(outside),
        filters=["short_name", "name", *(n for n in ("operator", "annotation") if n in frame), "kind", "tensor_core"],
        row_links=_links(frame, query),
        timeline=OnTimeline("max_ns", "longest_ns", "max_ns", what="its longest call"),
        footer="Total is a plain sum and adds up to all kernel time. A kernel takes the part of its operator's limit that its time is of "
        "the operator's time: estimated (≈) where an operator ran several. Matrix units are judged by name.",
        empty="No kernel was launched in this selection.",
    )
    marks = marks_of(table.data["efficiency"], table.data["flags"], table.data["modelled_share"])
    if marks:
        table.marks["efficiency"] = marks
    return Report(
        analysis="kernels",
        title="Kernels",
        headline=headline,
        notices=_notices(values, query),
        sections=[_figure(frame, key, query), _facts(capture, values, query.short_us), table],
    )


_SUMMED: Final = ("flop", "bytes", "sol_ns", "measured_ns", "wasted_ns")


def _limited(frame: K.Columns) -> K.Columns:
    """Sums of work as whole numbers, None unknown, and the modeled part of each group's time."""
    modeled = np.nan_to_num(frame["modelled_sum_ns"])
    for name in _SUMMED:
        frame[name] = whole_numbers(frame[name])
    return frame | {"modelled_share": ratio(modeled, frame["total_ns"].astype(np.float64)), "modelled_sum_ns": modeled}


def _against(frame: K.Columns) -> dict[str, Scalar]:
    """Returns totals of the work over all groups: sums first, then the ratio."""
    sums: dict[str, Scalar] = {}
    for name in _SUMMED:
        column = frame[name]
        sums[name] = summed(column.values[column.known]) if isinstance(column, Numbers) else sum(v for v in column if v is not None)
    sol, measured = sums["sol_ns"], sums["measured_ns"]
    total = int(frame["total_ns"].sum())
    covered = float(frame["modelled_sum_ns"].sum())
    efficiency = float(sol) / float(measured) if sol is not None and measured else None
    return sums | {"efficiency": efficiency, "modelled_share": covered / total if total else None}


def _name_unit(columns: Sequence[Column], capture: Capture) -> list[Column]:
    """Labels the column of matrix units as the manufacturer of the recorded device calls them."""
    label = capitalized(f"{unit_name(capture.facts.vendor)}s")
    return [msgspec.structs.replace(c, label=label) if c.name == "tensor_core" else c for c in columns]


def _hide_columns(columns: tuple[Column, ...]) -> list[Column]:
    """Hides the columns of limits where there are none."""
    return [ranked(c, 3) if c.name in ("sol_ns", "wasted_ns", "efficiency") else c for c in columns]


def _values(capture: Capture, rows: Mask, by_name: K.Columns, short_us: float) -> dict[str, Scalar]:
    duration = capture.device["duration_ns"].to_numpy()[rows]
    short = duration < short_us * 1000
    total = int(duration.sum())
    use, time = by_name["tensor_core"], by_name["total_ns"]
    known, unknown = (int(time[chosen].sum()) for chosen in (use.rows_of([one is True for one in use.values]), ~use.known))
    graph = int(duration[capture.device["graph"].to_numpy()[rows]].sum())
    known_launch = int(duration[linked(capture)[rows]].sum())
    return {
        "total_ns": total,
        "union_ns": I.length(spans_of(capture, rows)),
        "count": len(duration),
        "distinct_names": len(use),
        "tensor_core_share": known / total if total else None,
        "tensor_core_ns": known,
        "tensor_core_unknown_share": unknown / total if total else None,
        "tensor_core_unknown_ns": unknown,
        "short_count": int(short.sum()),
        "short_ns": int(duration[short].sum()),
        "graph_share": graph / total if total else None,
        "linked_share": known_launch / total if total else None,
    }


def _headline(capture: Capture, by_name: K.Columns, values: dict[str, Scalar]) -> str:
    total = int(values["total_ns"] or 0)
    if not total:
        return "No kernel time in this selection."
    few = int((by_name["total_ns"].cumsum() < 0.8 * total).sum()) + 1
    few_said = "One name takes" if few == 1 else f"{human(few, 'count')} of {human(len(by_name['name']), 'count')} names take"
    most = human(float(by_name["share"][0]), "ratio")
    text = f"{few_said} 80 % of **{human(total, 'ns')}** kernel time; the first is `{F.cut(by_name['short_name'][0], 64)}` with {most}."
    share, unknown = float(values["tensor_core_share"] or 0), float(values["tensor_core_unknown_share"] or 0)
    unit = unit_name(capture.facts.vendor)
    if unknown >= 0.5:
        return f"{text} Whether {unit}s run is not known for {human(unknown, 'ratio')} of it."
    return f"{text} {capitalized(unit)}s run {'at least ' if unknown >= 0.05 else ''}{human(share, 'ratio')}."


def _notices(values: dict[str, Scalar], query: KernelsQuery) -> list[Notice]:
    out: list[Notice] = []
    total = int(values["total_ns"] or 0)
    share = values["linked_share"]
    if isinstance(share, float) and share < 1 and total:
        text = f"{human(1 - share, 'ratio')} of kernel time has no recorded launch: it counts here"
        tail = " and stands in rows of its own." if query.group_by != "name" else "; group by operator to see it apart."
        out.append(Notice(text + tail, "info", Link("health", {}, "Trace health")))
    return out


def _facts(capture: Capture, values: dict[str, Scalar], short_us: float) -> FactsSection:
    unit = unit_name(capture.facts.vendor)
    labels = {
        "tensor_core_share": f"On {unit}s", "tensor_core_ns": f"Time on {unit}s", "tensor_core_unknown_share": f"{unit} use unknown",
        "short_count": f"Below {short_us:g} µs", "short_ns": f"Time below {short_us:g} µs",
    }  # fmt: skip
    part = partial(values["modelled_share"]) if values["efficiency"] is not None else None
    return make_facts("facts", "Numbers", values, FACTS, labels=labels, span=4, marks={} if part is None else {"efficiency": part})


def _figure(frame: K.Columns, key: str, query: KernelsQuery) -> FigureSection:
    measure = query.measure
    column = next(c for c in VALUES if c.name == measure)
    by = frame[measure] if isinstance(frame[measure], np.ndarray) else np.array(frame[measure].tolist(), np.float64)
    first_rows = _largest(by.astype(np.float64), frame["crc"])
    by = by[first_rows].astype(np.float64)
    shown = {n: frame[n] for n in ("short_name", "name", "operator", "kind", "calls", key) if n in frame}
    top = {n: v[first_rows].tolist() if isinstance(v, np.ndarray) else v.at(first_rows) for n, v in shown.items()}
    divisor, unit = F.time_scale(float(by.max()) if len(by) else 0.0) if measure != "calls" else (1.0, "calls")
    places = [f"{i}" for i in range(len(by))]
    labels = [F.cut(n, 40) for n in top["short_name"]]
    if "operator" in top:
        labels = [f"{F.cut(n, 26)} · {F.cut(o, 18)}" for n, o in zip(top["short_name"], top["operator"], strict=True)]
    fills = [F.fill(kind) for kind in top["kind"]]
    data: list[F.Plain] = [
        {
            "type": "bar", "orientation": "h", "y": places, "x": (by / divisor).tolist(),
            "marker": {"color": [m["color"] for m in fills], "line": {"width": 0}},
            "customdata": top[key],
            "hovertext": [_hover(*r) for r in zip(top["name"], top.get("operator", [""] * len(by)), top["calls"], strict=True)],
            "hovertemplate": f"%{{hovertext}}<br>{column.label} %{{x:.4~g}} {unit}<extra></extra>",
        }
    ]  # fmt: skip
    first = f"{column.label}: {top['short_name'][0]} is first." if len(by) else "No kernel in this selection."
    return FigureSection(
        id="top",
        title="Longest kernels" if measure == "total_ns" else f"Kernels by {column.label.lower()}",
        subtitle=f"first {len(by)} of {human(len(frame['id']), 'count')}, color: kind of work",
        span=8,
        height=max(120, 56 + 28 * len(by)),
        table="kernels",
        figure=F.figure(
            data,
            x=F.axis(unit, rangemode="tozero"),
            y=F.axis(autorange="reversed", type="category", tickvals=places, ticktext=labels, gridcolor="rgba(0,0,0,0)"),
            margin={"l": 280, "r": 14, "t": 4, "b": 40},
        ),
        summary=first,
    )


def _largest(by: Floats, number: npt.NDArray[np.uint32]) -> Places:
    """Returns the rows of the largest known values, of equal ones those of the least number first."""
    rows = np.flatnonzero(~np.isnan(by))
    if len(rows) > TOP:
        least = -np.partition(-by[rows], TOP - 1)[TOP - 1]
        rows = rows[by[rows] >= least]
    return rows[np.lexsort((number[rows], -by[rows]))[:TOP]]


def _hover(name: str, operator: str, calls: int) -> str:
    """Returns the full name in lines, and who launched it. Plotly reads `<` as a tag, so names are escaped here."""
    lines = [name[i : i + 80] for i in range(0, min(len(name), 320), 80)]
    text = [F.escape(line) for line in lines]
    return "<b>" + "<br>".join(text) + "</b>" + (f"<br>{operator}" if operator else "") + f"<br>{calls} calls"


def _links(frame: K.Columns, query: KernelsQuery) -> dict[str, Link]:
    """Links each kernel to the operators that launch it."""
    if query.group_by != "name":
        return {}
    step = {"step": query.step} if query.step else {}
    queries = [{"group_by": "name_op"} | only_row("kernels", "name", str(n)) | step for n in frame["name"][:200]]
    return {str(i): Link("kernels", query, "operators that launch it") for i, query in enumerate(queries)}
