"""Roofline: which work wastes most, and against which wall.

Every operator call that a cost model covers is set against the limit of the device: the larger of its FLOP over the peak of its
type and its bytes over the memory bandwidth. Bytes are a lower bound: each tensor read or written once. Peaks are dense, without
structured sparsity; attention counts only the pairs that a causal mask leaves. Work without a model is shown with its time.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses import _roofline_figure as chart
from tb_sol_plugin.analyses import analysis
from tb_sol_plugin.analyses._roofline_columns import COLUMNS, FACTS, ID, LIST_COLUMNS
from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics.scope import Scope, scope
from tb_sol_plugin.metrics.work import Work, work
from tb_sol_plugin.metrics.work_rows import By, rows
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.device import DeviceSpec, device_for, devices_in_use, why_no_limits
from tb_sol_plugin.model.device_table import MATRIX_COLUMNS
from tb_sol_plugin.model.report import (
    FactsSection,
    FigureSection,
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
from tb_sol_plugin.units import human

MOST_ROWS: Final = 20_000
MOST_POINTS: Final = 400
DRAWN_SHARE: Final = 0.995
"""The longest rows are drawn until they hold this share of the time; the axes then fit what matters."""
LISTED: Final = 10
ONE: Final = {
    "op_shape": "Operator",
    "op": "Operator",
    "kernel": "Kernel",
    "module": "Module",
    "layer": "Layer",
    "phase": "Phase",
    "step": "Step",
    "dtype": "Type",
    "kind": "Kind",
}


class RooflineQuery(Query, kw_only=True, frozen=True):
    """Roofline.

    by: what makes a row: operator and shapes, operator, innermost module, innermost phase, or kernel.
    attention: count the pairs that a causal mask leaves, or every pair as some counters do.
    """

    by: By = "op_shape"
    attention: Literal["causal_aware", "dense_equivalent"] = "causal_aware"


@analysis(
    title="Roofline",
    question="Which work wastes most, and against which wall?",
    group="Speed of light",
    order=10,
    needs=("operators", "shapes"),
    query=RooflineQuery,
    tables={"ops": COLUMNS, "above": LIST_COLUMNS},
    facts=FACTS,
)
def roofline(capture: Capture, query: RooflineQuery) -> Report:
    """One row per group of operator calls, against the limits of the device."""
    spec = device_for(capture, query.device_limits)
    part = scope(capture, query)
    done = work(capture, spec, dense=query.attention == "dense_equivalent")
    ops, outside = _selected(capture, done, part)
    frame = rows(capture, done, ops, query.by)
    facts = _facts(capture, done, ops, frame, outside, part)
    report = Report(analysis="roofline", title="Roofline", headline=_headline(frame, facts, spec, done.by_host_time))
    report.notices = _notices(capture, done, ops, facts)
    ranked = [_list(frame)] if frame["wasted_ns"].notna().any() else []
    table = _table(frame, outside, facts, query)
    report.sections = [_figure(frame, ops, done, query, span=8 if ranked else 12), *ranked, table, _facts_section(facts, spec, ops)]
    return report


# -- selection ----------------------------------------------------------------------------------------------


def _selected(capture: Capture, done: Work, part: Scope) -> tuple[pd.DataFrame, dict[str, int]]:
    """Calls of the selection, and the device time in it that no operator owns, by the reason."""
    ops = done.ops if part.whole else done.ops[done.ops["step"].isin(part.rows).to_numpy()]
    outside: dict[str, int] = {}
    if not done.by_host_time:
        alone = part.device & (done.owner < 0)
        link, duration = capture.device["link"].to_numpy(), capture.device["duration_ns"].to_numpy()
        known = {at.BEFORE: link == S.BEFORE_WINDOW, at.NO_RECORD: link == S.NO_RECORD}
        rest = ~(known[at.BEFORE] | known[at.NO_RECORD])
        for name, mask in ((at.NO_OPERATOR, rest), *known.items()):
            time = int(duration[mask & alone].sum())
            if time:
                outside[name] = time
    return ops, outside


# -- facts and words ------------------------------------------------------------------------------------------


def _facts(capture: Capture, done: Work, ops: pd.DataFrame, frame: pd.DataFrame, outside: dict[str, int], part: Scope) -> dict[str, Scalar]:
    spec = done.spec
    has_limit = np.isfinite(ops["sol_ns"].to_numpy(dtype=np.float64))
    measured = int(ops["measured_ns"].to_numpy()[has_limit].sum())
    sol = float(ops["sol_ns"].to_numpy(dtype=np.float64)[has_limit].sum())
    covered = ops["modelled"].to_numpy()
    time = ops["measured_ns" if done.by_host_time else "device_sum_ns"].to_numpy()
    whole = int(time.sum()) + sum(outside.values())
    modelled = int(time[covered].sum())
    facts: dict[str, Scalar] = {
        "device": spec.name if spec else _recorded_name(capture, done),
        "limits_from": spec.method if spec else "none",
    }
    if spec is not None:
        main = _main_dtype(ops)
        facts["peak_flop_per_s"] = spec.matrix_peak(main) if main else None
        facts |= {f"peak_flop_per_s_{dtype}": spec.matrix_peak(dtype) for dtype in MATRIX_COLUMNS if spec.matrix_peak(dtype) is not None}
        facts["peak_flop_per_s_vector"] = spec.vector_peak("")
        facts["peak_bytes_per_s"] = spec.memory_bandwidth
        if spec.achievable_bf16 is not None:
            facts["achievable_flop_per_s"] = spec.achievable_bf16
    facts |= {
        "total_flop": _total(ops, "flop"),
        "total_vector_flop": _total(ops, "flop_vector"),
        "total_bytes": _total(ops, "bytes"),
        "device_ns": None if done.by_host_time else whole,
        "measured_ns": measured if has_limit.any() else None,
        "sol_ns": round(sol) if has_limit.any() else None,
        "efficiency": sol / measured if measured else None,
        "modelled_share": modelled / whole if whole else None,
        "unmodelled_ns": whole - modelled,
        "apart_ns": _apart(capture, done, part),
        "no_operator_ns": sum(outside.values()),
    }
    return facts


def _apart(capture: Capture, done: Work, part: Scope) -> int:
    """Device time of communication and of copies over a link, which device memory does not bound. Plain sum, ns."""
    if done.by_host_time:
        return 0
    owner = done.owner
    over_link = np.append(done.ops["link"].to_numpy(), False)[owner]
    chosen = part.device & (capture.device["communication"].to_numpy() | over_link)
    modelled = np.append(done.ops["modelled"].to_numpy(), False)[owner]
    return int(capture.device["duration_ns"].to_numpy()[chosen & ~modelled].sum())


def _recorded_name(capture: Capture, done: Work) -> str:
    """What the recording calls a device without known limits."""
    names = sorted({props.name for props in devices_in_use(capture) if props.name})
    return "CPU" if done.by_host_time else ", ".join(names) or "unknown"


def _total(ops: pd.DataFrame, column: str) -> int | None:
    values = ops[column].to_numpy(dtype=np.float64)
    good = np.isfinite(values)
    return round(float(values[good].sum())) if good.any() else None


def _main_dtype(ops: pd.DataFrame) -> str:
    matrix = ops[ops["flop"].to_numpy(dtype=np.float64) > 0]
    sums = matrix.groupby("dtype", observed=True)["flop"].sum()
    return str(sums.idxmax()) if len(sums) else ""


def _headline(frame: pd.DataFrame, facts: dict[str, Scalar], spec: DeviceSpec | None, by_host: bool) -> str:
    share, efficiency = facts["modelled_share"], facts["efficiency"]
    if by_host:
        return "This recording has no device work: rates are over host time, and a CPU has no fixed limit."
    if spec is None or not isinstance(efficiency, float):
        covered = human(_number(share), "ratio")
        return f"The limits of the device are not known: rates are shown, efficiencies are not. {covered} of device time is modelled."
    partly = "" if isinstance(share, float) and share >= 0.95 else "≈ "
    first = f"Modelled kernels run at **{partly}{human(efficiency, 'ratio')}** of what the {spec.name} allows."
    if isinstance(share, float) and share < 0.95:
        covered = human(share, "ratio")
        first = f"Modelled kernels, {covered} of device time, run at **{human(efficiency, 'ratio')}** of what the {spec.name} allows."
    wasted = frame["wasted_ns"].to_numpy(dtype=np.float64)
    above = np.sort(wasted[np.isfinite(wasted) & (wasted > 0)])[::-1]
    if not len(above):
        return first
    running = np.cumsum(above) / above.sum()
    count = min(int(np.searchsorted(running, 0.8)) + 1, 5, len(above))
    rows = "One row holds" if count == 1 else f"{('', '', 'Two', 'Three', 'Four', 'Five')[count]} rows hold"
    return f"{first} {rows} **{human(float(running[count - 1]), 'ratio')}** of the time above the limit."


def _number(value: Scalar) -> float | None:
    return float(value) if isinstance(value, int | float) else None


def _notices(capture: Capture, done: Work, ops: pd.DataFrame, facts: dict[str, Scalar]) -> list[Notice]:
    out: list[Notice] = []
    if done.spec is None:
        out.append(Notice(why_no_limits(capture)[0].upper() + why_no_limits(capture)[1:] + ".", "info" if done.by_host_time else "warn"))
    elif done.spec.method == "derived":
        text = done.spec.notes or "its peaks are a share of a known device"
        out.append(Notice(f"The limits of {done.spec.name} are derived: {text}. Choose other device limits if you know them."))
    share = facts["modelled_share"]
    whole, bare_ns, apart = (int(str(facts[n] or 0)) for n in ("device_ns", "unmodelled_ns", "apart_ns"))
    if isinstance(share, float) and bare_ns - apart > 0.1 * whole and not done.by_host_time:
        busy = capture.device["communication"].to_numpy()
        talks = np.bincount(done.owner[busy & (done.owner >= 0)], minlength=len(done.ops)) > 0
        bare = ops[~ops["modelled"].to_numpy() & ~ops["link"].to_numpy() & ~talks[ops.index.to_numpy()]]
        largest = bare.groupby("name", observed=True)["device_sum_ns"].sum().sort_values(ascending=False).head(3)
        named = ", ".join(f"`{name}` {human(int(time), 'ns')}" for name, time in largest.items())
        tail = f" Largest without: {named}." if named else ""
        rest = f" {human(apart, 'ns')} are communication and copies over a link, which this chart does not bound." if apart else ""
        out.append(Notice(f"A cost model covers {human(share, 'ratio')} of device time.{rest}{tail}", "info"))
    return out


# -- sections -------------------------------------------------------------------------------------------------


def _figure(frame: pd.DataFrame, ops: pd.DataFrame, done: Work, query: RooflineQuery, *, span: int) -> FigureSection:
    spec = done.spec
    columns = (
        "id",
        "name",
        "input_shapes",
        "kind",
        "calls",
        "measured_ns",
        "sol_ns",
        "intensity_flop_per_byte",
        "achieved_flop_per_s",
        "achieved_bytes_per_s",
        "efficiency",
        "flagged",
    )
    time = frame["measured_ns"].to_numpy(dtype=np.float64)
    large = frame[np.cumsum(time) - time < DRAWN_SHARE * time.sum()].head(MOST_POINTS)
    points = [chart.Point(*row) for row in large[list(columns)].itertuples(index=False)]
    flop = ops["flop"].to_numpy(dtype=np.float64)
    dtypes = sorted(set(ops["dtype"].astype(str).to_numpy()[flop > 0]))
    vector = bool((ops["flop_vector"].to_numpy(dtype=np.float64) > 0).any())
    pairs = "causal-aware" if query.attention == "causal_aware" else "every pair of attention counted"
    count = f"{human(len(points), 'count')} of {human(len(frame), 'count')} rows" if len(points) < len(frame) else ""
    title = f"{spec.name}, dense, {pairs}" if spec else "Achieved rates"
    return FigureSection(
        id="roofline",
        title=title,
        subtitle="; ".join(filter(None, ("area is time", "the line is what the device allows" if spec else "no limits known", count))),
        figure=chart.build(points, spec, chart.roofs(spec, dtypes, vector=vector)),
        span=span,
        table="ops",
        height=460,
        summary=f"Achieved FLOP per second over arithmetic intensity of {len(points)} rows, with the limits of the device." + _worst(frame),
    )


def _worst(frame: pd.DataFrame) -> str:
    wasted = frame["wasted_ns"].to_numpy(dtype=np.float64)
    if not np.isfinite(wasted).any():
        return ""
    row = frame.iloc[int(np.nanargmax(wasted))]
    return f" Most time above its limit: {row['name']}, {human(float(row['wasted_ns']), 'ns')}."


def _list(frame: pd.DataFrame) -> TableSection:
    wasted = frame["wasted_ns"].to_numpy(dtype=np.float64)
    order = np.argsort(-np.nan_to_num(wasted, nan=-np.inf), kind="stable")
    order = order[np.nan_to_num(wasted[order], nan=-1.0) > 0]
    above = frame.iloc[order].copy()
    total = float(above["wasted_ns"].sum())
    above["running_share"] = above["wasted_ns"].cumsum() / total if total else np.nan
    above = _integers(above.head(LISTED), ("wasted_ns",))
    return make_table(
        "above",
        "Most time above the limit",
        above,
        (ID, *LIST_COLUMNS),
        span=4,
        key="id",
        subtitle="with running share",
        empty="No row has a limit here.",
    )


_WHOLE: Final = ("calls", "measured_ns", "sol_ns", "wasted_ns", "flop", "vector_flop", "bytes")


def _integers(frame: pd.DataFrame, columns: tuple[str, ...]) -> pd.DataFrame:
    """Sums as whole numbers; unknown stays unknown, and so does what no integer holds (shapes that no memory holds)."""
    whole = {c: pd.array([round(v) if abs(v) < 2**63 else None for v in frame[c].tolist()], dtype="Int64") for c in columns}
    return frame.assign(**whole)


def _table(frame: pd.DataFrame, outside: dict[str, int], facts: dict[str, Scalar], query: RooflineQuery) -> TableSection:
    shown = frame.head(MOST_ROWS)
    whole = float(frame["measured_ns"].sum()) + sum(outside.values())
    if outside:
        empty = dict.fromkeys(("input_shapes", "dtype", "direction", "flags", "reason"), "")
        times = [float(time) for time in outside.values()]
        extra = pd.DataFrame({"id": list(outside), "name": list(outside), "kind": "other", "bound": "none", "measured_ns": times, **empty})
        shown = pd.concat([shown, extra.reindex(columns=shown.columns)], ignore_index=True)
    shown = _integers(shown, _WHOLE).assign(share=shown["measured_ns"].to_numpy(dtype=np.float64) / whole if whole else np.nan)
    total: dict[str, Scalar] = {
        "name": f"All {human(len(frame), 'count')} rows",
        "calls": _sum(frame, "calls"),
        "measured_ns": round(whole),
        "share": 1.0 if whole else None,
        "sol_ns": facts["sol_ns"],
        "wasted_ns": _sum(frame, "wasted_ns"),
        "efficiency": facts["efficiency"],
        "flop": facts["total_flop"],
        "vector_flop": facts["total_vector_flop"],
        "bytes": facts["total_bytes"],
        "modelled_share": facts["modelled_share"],
        **_rates(facts, float(frame["known_ns"].sum())),
    }
    marks: dict[str, dict[str, Mark]] = {"efficiency": {}, "sol_ns": {}}
    for row, (value, guessed, why) in enumerate(zip(shown["efficiency"], shown["estimated"], shown["reason"], strict=True)):
        if value is not None and value == value and value > TOLERATED:
            marks["efficiency"][str(row)] = Mark(
                "flagged", "above the limit: data that stayed in cache, an algorithm with fewer operations, or a wrong type"
            )
        elif guessed is True or guessed == 1:
            marks["efficiency"][str(row)] = marks["sol_ns"][str(row)] = Mark("estimated", str(why) or "memory bandwidth unknown")
    columns = [msgspec.structs.replace(c, label=ONE[query.by]) if c.name == "name" else c for c in COLUMNS]
    if query.by != "op_shape":
        columns = [msgspec.structs.replace(c, rank=3) if c.name in ("input_shapes", "direction") else c for c in columns]
    if not frame["efficiency"].notna().any():
        columns = [msgspec.structs.replace(c, rank=3) if c.name in ("wasted_ns", "efficiency", "bound") else c for c in columns]
    table = make_table(
        "ops",
        f"{ONE[query.by]}s",
        shown,
        (ID, *columns),
        key="id",
        sort=Sort("measured_ns"),
        total=total,
        last=list(outside),
        marks=marks,
        filters=["kind", "bound"],
        truncated=max(len(frame) - MOST_ROWS, 0),
        footer="Bytes are a lower bound: each tensor read or written once.",
        empty="No operator has device time here.",
    )
    for row, name in enumerate(shown["name"].tolist()):
        if name in outside:
            table.row_links[str(row)] = Link("links", label="How events were linked")
        elif "::" in str(name):
            table.row_links[str(row)] = Link("operators", {"find": str(name)}, "In the operators")
    return table


def _rates(facts: dict[str, Scalar], known_ns: float) -> dict[str, Scalar]:
    """Intensity and rates of all rows: totals over totals, matrix FLOP only, over the time that a model covers."""
    flop, data = _number(facts["total_flop"]), _number(facts["total_bytes"])
    return {
        "intensity_flop_per_byte": flop / data if flop and data else None,
        "achieved_flop_per_s": flop / known_ns * 1e9 if flop and known_ns else None,
        "achieved_bytes_per_s": data / known_ns * 1e9 if data and known_ns else None,
    }


def _sum(frame: pd.DataFrame, column: str) -> int | None:
    values = frame[column].to_numpy(dtype=np.float64)
    good = np.isfinite(values)
    return round(float(values[good].sum())) if good.any() else None


def _facts_section(facts: dict[str, Scalar], spec: DeviceSpec | None, ops: pd.DataFrame) -> FactsSection:
    units = {k: _unit(k) for k in facts}
    labels = {
        "device": "Device limits",
        "limits_from": "Found by",
        "peak_flop_per_s": "Peak, main type",
        "peak_bytes_per_s": "Memory bandwidth",
        "achievable_flop_per_s": "Achievable, bf16",
        "total_flop": "Matrix work",
        "total_vector_flop": "Vector work",
        "total_bytes": "Memory traffic",
        "device_ns": "Device time",
        "measured_ns": "Time with a limit",
        "sol_ns": "Limit",
        "efficiency": "Efficiency",
        "modelled_share": "Modelled",
        "unmodelled_ns": "Not modelled",
        "no_operator_ns": "Launched by no operator",
        "apart_ns": "Communication, link copies",
    }
    marks: dict[str, Mark] = {}
    for name in facts:
        if name.startswith("peak_flop_per_s_"):
            dtype = name.removeprefix("peak_flop_per_s_")
            labels[name] = f"Peak, {dtype}"
            if spec is not None and spec.is_unverified("fp32" if dtype == "vector" else dtype, vector=dtype == "vector"):
                marks[name] = Mark("unverified", "this figure of the device table is not confirmed")
    if spec is not None and "mem_bw_gb_per_s" in spec.unverified:
        marks["peak_bytes_per_s"] = Mark("unverified", "this figure of the device table is not confirmed")
    docs = {name: FACTS[name] for name in facts}
    used = {"vector", *ops["dtype"].astype(str)[ops["flop"].to_numpy(dtype=np.float64) > 0]}
    hidden = [name for name in facts if name.startswith("peak_flop_per_s_") and name.removeprefix("peak_flop_per_s_") not in used]
    return FactsSection(
        id="facts", title="Limits and totals", values=facts, units=units, labels=labels, docs=docs, marks=marks, hidden=hidden, span=12
    )


def _unit(name: str) -> str:
    if name.endswith("_flop_per_s") or name.startswith("peak_flop_per_s"):
        return "FLOP/s"
    if name == "peak_bytes_per_s":
        return "B/s"
    if name.endswith("_ns"):
        return "ns"
    return {"total_flop": "FLOP", "total_vector_flop": "FLOP", "total_bytes": "B", "efficiency": "ratio", "modelled_share": "ratio"}.get(
        name, ""
    )
