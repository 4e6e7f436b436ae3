"""Columns and facts of the roofline, with one sentence each, and the totals of its selection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.analyses.efficiency.roofline_selection import (
    Selection,
)
from tb_sol_plugin.devices.limits import devices_in_use
from tb_sol_plugin.devices.spec import MATRIX_COLUMNS, DeviceSpec
from tb_sol_plugin.metrics.report.longest import LONGEST
from tb_sol_plugin.metrics.report.notes import check_of
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.attribution import device_count
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import windows_of
from tb_sol_plugin.metrics.work.columns import MODELED
from tb_sol_plugin.metrics.work.sums import partial, performed, use_of
from tb_sol_plugin.metrics.work.work import Work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import (
    Column,
    Fact,
    FactsSection,
    Mark,
    Scalar,
    make_facts,
)
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import known_total
from tb_sol_plugin.units import human

_NO_MODEL = "no cost model, or sizes not recorded"
_NO_LIMIT = "no cost model, sizes not recorded, or unknown device limits"
ID = Column("id", "Row", "", "Key of the row: what it is grouped by.", "code", rank=3)
COLUMNS = (
    Column("name", "Operator", "", "Operator, kernel, module, layer, phase, step, type or kind, as grouped.", "symbol", color_by="kind"),
    Column("kind", "Kind", "", "Kind of work: gemm, attention, conv, norm, elementwise, other.", "text", rank=3, color_by="kind"),
    Column(
        "input_shapes",
        "Input shapes",
        "",
        "Sizes of the tensors it was called with; empty where calls of several sizes are in one row.",
        "shapes",
        rank=2,
    ),
    Column("dtype", "Type", "", "Type that it computes in; several are joined.", "text", rank=2),
    Column("direction", "Direction", "", "fwd, or bwd for work of the backward pass; several are joined.", "badge", rank=2),
    Column("calls", "Calls", "count", "Calls that own device time."),
    Column("measured_ns", "Time", "ns", "Per call the union of its device intervals, summed over calls.", "bar", color_by="kind"),
    Column("share", "Share", "ratio", "Time over the time of all rows.", "share", rank=2),
    Column(
        "sol_ns",
        "Limit",
        "ns",
        "Least time on this device: per call the larger of compute and memory time, summed.",
        rank=3,
        missing=_NO_LIMIT,
    ),
    Column("wasted_ns", "Above limit", "ns", "Time less the limit, over the calls that have a limit.", missing=_NO_LIMIT),
    Column("efficiency", "Efficiency", "ratio", "Limit over time, sums over the calls that have a limit.", "efficiency", missing=_NO_LIMIT),
    Column(
        "eff_achievable",
        "Of achievable",
        "ratio",
        "Efficiency against the rate that a good product reaches in practice, over the calls whose type has such a rate.",
        "share",
        rank=3,
        missing="no matrix work in a type with a known achievable rate",
    ),
    Column(
        "compute_ns",
        "Compute side",
        "ns",
        "What the arithmetic of the calls would take at the peak of its type.",
        rank=3,
        missing=_NO_LIMIT,
    ),
    Column(
        "memory_ns",
        "Memory side",
        "ns",
        "What the bytes of the calls would take at the memory bandwidth.",
        rank=3,
        missing=_NO_LIMIT,
    ),
    Column(
        "intensity_flop_per_byte",
        "FLOP/B",
        "FLOP/B",
        "FLOP over bytes: matrix FLOP, or vector FLOP where there are no others.",
        missing="no arithmetic, or no cost model",
    ),
    Column(
        "achieved_flop_per_s",
        "FLOP/s",
        "FLOP/s",
        "FLOP over the time of the modeled calls: matrix FLOP, or vector FLOP where there are no others.",
        missing="no arithmetic, or no cost model",
    ),
    Column("achieved_bytes_per_s", "Bandwidth", "B/s", "Bytes over the time of the modeled calls.", missing=_NO_MODEL),
    Column("bound", "Bound", "", "Which limit sets the larger part: compute or memory; none without a limit.", "badge"),
    Column(
        "flop",
        "FLOP",
        "FLOP",
        "Matrix FLOP (products, convolutions, attention) of all calls; a multiply-add is 2, bias adds are none.",
        rank=3,
        missing=_NO_MODEL,
    ),
    Column("vector_flop", "Vector FLOP", "FLOP", "Elementwise, normalization and reduction FLOP of all calls.", rank=3, missing=_NO_MODEL),
    Column(
        "bytes",
        "Bytes",
        "B",
        "Least device memory traffic of all calls: inputs read once, outputs written once.",
        rank=3,
        missing=_NO_MODEL,
    ),
    MODELED,
    Column(
        "recompute",
        "Recomputed",
        "ratio",
        "Share of the time that is forward work run again inside the backward pass.",
        "share",
        rank=3,
        missing="no time",
    ),
    Column("main_kernel", "Main kernel", "", "Kernel that holds most of the row's device time, by its short name.", "code", rank=3),
    Column("cause", "Likely cause", "", "Why the row is faster than its limit, where it is flagged.", "text", rank=3),
    Column(
        "flags",
        "Flags",
        "",
        "above limit: efficiency over 102 %; estimated: something had to be assumed; link: a copy between host and device; recompute: "
        "part of it runs again inside the backward pass; before the window: launched before the recording began.",
        "badge",
        rank=3,
    ),
    *LONGEST,
)
LIST_COLUMNS = (
    COLUMNS[0],
    COLUMNS[1],
    Column("input_shapes", "Input shapes", "", "Sizes of the tensors it was called with.", "shapes", rank=2),
    Column("wasted_ns", "Above limit", "ns", "Time less the limit.", "bar", color_by="kind", missing=_NO_LIMIT),
    Column(
        "running_share", "Running", "ratio", "Share of all time above the limit that this row and those before it hold.", "share", rank=2
    ),
)
_BY_NAME = {c.name: c for c in COLUMNS}
KIND_COLUMNS = (
    Column("name", "Part", "", "Kind of modeled work, or why the rest has no limit here.", "symbol", color_by="kind"),
    _BY_NAME["kind"],
    Column("calls", "Calls", "count", "Operator calls; device events where no operator is known.", rank=2),
    Column(
        "device_ns",
        "Time",
        "ns",
        "Plain sum of device time (host time in a recording without device work): the rows add up to all of it.",
        "bar",
        color_by="kind",
    ),
    Column("share", "Share", "ratio", "Time over the time of all rows.", "share"),
    msgspec.structs.replace(_BY_NAME["sol_ns"], rank=1),
    _BY_NAME["wasted_ns"],
    _BY_NAME["efficiency"],
    *(msgspec.structs.replace(_BY_NAME[name], rank=2) for name in ("achieved_flop_per_s", "achieved_bytes_per_s")),
    *(_BY_NAME[name] for name in ("flop", "vector_flop", "bytes", "modelled_share")),
)
UNMODELED_COLUMNS = (
    Column("name", "Operator", "", "Operator that owns device time and has no limit.", "code"),
    Column("input_shapes", "Input shapes", "", "Sizes of its arguments as recorded.", "shapes", rank=2, missing="no sizes recorded"),
    Column("types", "Types", "", "Types of its arguments as recorded.", "code", rank=3),
    Column("calls", "Calls", "count", "Calls that own device time."),
    Column("measured_ns", "Time", "ns", "Plain sum of its device time.", "bar", color="other"),
    Column("share", "Share", "ratio", "Time over the device time of all operators of the selection.", "share"),
    Column("why", "Why", "", "What is missing: a cost model, or a size, type or value that the model needs.", "text"),
)
PEAK: Final = "peak_flop_per_s_"
FACTS: Final = (
    Fact("device", "Device limits", "", "Device whose limits are used."),
    Fact("limits_from", "Found by", "", "How the device was found: exact, token, memory, units (by recorded properties), derived (by "
         "generation), file (a device file names it) or override."),
    Fact("peak_flop_per_s", "Peak, main type", "FLOP/s", "Dense peak of the type that holds most of the matrix work."),
    Fact("peak_bytes_per_s", "Memory bandwidth", "B/s", "Memory bandwidth of the device."),
    Fact("achievable_flop_per_s", "Achievable, main type", "FLOP/s", "Rate that a good product of the main type reaches in practice: "
         "the dashed line."),
    Fact("mfu", "MFU", "ratio", "Model FLOP utilization: matrix FLOP at the peak of their type over the time of the complete steps, "
         "without work that is done again: of fused attention, twice the forward for the backward pass."),
    Fact("hfu", "HFU", "ratio", "Hardware FLOP utilization: the same with all work that ran, recomputed forward calls and scores too."),
    Fact("bandwidth_utilisation", "Bandwidth utilization", "ratio", "Least memory traffic of the modeled calls over the time of the "
         "complete steps and the memory bandwidth."),
    Fact("steps_ns", "Time of the steps", "ns", "Time of the complete steps that mfu, hfu and bandwidth_utilisation are over."),
    Fact("total_flop", "Matrix work", "FLOP", "Matrix FLOP of all modeled calls."),
    Fact("total_vector_flop", "Vector work", "FLOP", "Vector FLOP of all modeled calls."),
    Fact("total_bytes", "Memory traffic", "B", "Least memory traffic of all modeled calls."),
    Fact("device_ns", "Device time", "ns", "Plain sum of all device time of the selection."),
    Fact("measured_ns", "Time with a limit", "ns", "Time of the calls that have a limit."),
    Fact("sol_ns", "Limit", "ns", "Least time of the same calls."),
    Fact("efficiency", "Efficiency", "ratio", "sol_ns over measured_ns."),
    Fact("modelled_share", "Modeled", "ratio", MODELED.doc),
    Fact("unmodelled_ns", "Not modeled", "ns", "Device time without a cost model."),
    Fact("apart_ns", "Communication, link copies", "ns", "Part of it that is communication or copies over a link: bound by the link, "
         "not by this chart."),
    Fact("explained_flop", "Explained by the trace, per step", "FLOP", "Of a trace with a SOL capture: matrix FLOP per step that the "
         "trace itself explains, recomputed work left out."),
    Fact("counted_flop", "Counted by the SOL capture, per step", "FLOP", "Of a trace with a SOL capture: what the capture counted per "
         "step of the same work."),
    Fact("no_operator_ns", "Launched by no operator", "ns", "Part of it that no recorded operator launched."),
    *(Fact(f"{PEAK}{dtype}", f"Peak, {dtype}", "FLOP/s", f"Dense peak of products in {dtype}.") for dtype in MATRIX_COLUMNS),
    Fact(f"{PEAK}vector", "Peak, vector", "FLOP/s", "Peak of elementwise work."),
)  # fmt: skip
OF_A_TIME: Final = (
    "device_ns", "measured_ns", "sol_ns", "efficiency", "modelled_share", "unmodelled_ns", "apart_ns", "no_operator_ns",
)  # fmt: skip
"""Facts that are left out where they are unknown: without times of calls, without a device or its limits."""
UNVERIFIED: Final = Mark("unverified", "this figure of the device table is not confirmed")


def facts_of(capture: Capture, done: Work, chosen: Selection, part: Scope) -> dict[str, Scalar]:
    """Returns every fact by name. Sums before ratios; unknown is None."""
    spec, ops = done.spec, chosen.ops
    sol = ops["sol_ns"].to_numpy(dtype=np.float64)
    time = ops["measured_ns"].to_numpy(dtype=np.float64)
    timed = np.isfinite(sol) & (time > 0)
    measured, least = round(float(time[timed].sum())), float(sol[timed].sum())
    limited = timed | (np.isfinite(sol) & np.isnan(time))
    facts: dict[str, Scalar] = {
        "device": spec.name if spec else _recorded_name(capture, done),
        "limits_from": spec.method if spec else "none",
    }
    if spec is not None:
        main = main_dtype(ops)
        facts["peak_flop_per_s"] = spec.matrix_peak(main) if main else None
        facts |= {f"{PEAK}{dtype}": spec.matrix_peak(dtype) for dtype in MATRIX_COLUMNS if spec.matrix_peak(dtype) is not None}
        facts[f"{PEAK}vector"] = spec.vector_peak("")
        facts["peak_bytes_per_s"] = spec.memory_bandwidth
        if main and spec.achievable(main) is not None:
            facts["achievable_flop_per_s"] = spec.achievable(main)
        facts |= _use(capture, done, part, spec)
    facts |= {
        "total_flop": known_total(ops, "flop"),
        "total_vector_flop": known_total(ops, "flop_vector"),
        "total_bytes": known_total(ops, "bytes"),
        "device_ns": None if done.by_host_time or not chosen.timed else chosen.whole_ns,
        "measured_ns": measured if timed.any() else None,
        "sol_ns": round(float(sol[limited].sum())) if limited.any() else None,
        "efficiency": least / measured if measured else None,
        "modelled_share": chosen.modelled_ns / chosen.whole_ns if chosen.whole_ns else None,
        "unmodelled_ns": chosen.whole_ns - chosen.modelled_ns if chosen.timed else None,
        "apart_ns": chosen.apart_ns if chosen.timed else None,
        "no_operator_ns": sum(chosen.outside.values()) if chosen.timed else None,
    }
    check = check_of(capture, done, part)
    if check is not None:
        facts |= {"explained_flop": round(check.explained / check.steps), "counted_flop": round(check.counted / check.steps)}
    return facts


def check_mark(capture: Capture, done: Work, part: Scope) -> Mark | None:
    """Returns where a trace that should explain all of its work differs from what the SOL capture beside it counted."""
    check = check_of(capture, done, part)
    if check is None or check.agree or not check.counted:
        return None
    part_of, word = human(abs(check.explained / check.counted - 1), "ratio"), "more" if check.explained > check.counted else "less"
    return Mark("flagged", f"{part_of} {word} than the SOL capture counted: one of them misses work, or counts some twice")


def _use(capture: Capture, done: Work, part: Scope, spec: DeviceSpec) -> dict[str, Scalar]:
    """Returns MFU, HFU and bandwidth utilization over the complete steps of the selection; nothing where no step was recorded.

    The steps of a SOL capture last as long as those of the same work in which nothing was counted, where there are any.
    """
    windows, rows = windows_of(capture, part)
    if not rows:
        return {}
    time = iv.length(windows)
    usual = scope.step_time(capture, rows) if done.from_ledger else None
    if usual is not None:
        time = round(usual.length_ns * len(rows))
    inside = performed(done.ops).take(np.flatnonzero(np.isin(done.ops["step"].to_numpy(), rows)))
    devices = max(device_count(capture), 1)
    use = use_of(inside, spec, time, devices=devices)
    return {"mfu": use.mfu, "hfu": use.hfu, "bandwidth_utilisation": use.bandwidth_utilisation, "steps_ns": time}


def _recorded_name(capture: Capture, done: Work) -> str:
    """Returns what the recording calls a device without known limits."""
    names = sorted({props.name for props in devices_in_use(capture) if props.name})
    return "CPU" if done.by_host_time else ", ".join(names) or "unknown"


def dtypes_with(ops: pd.DataFrame, column: str) -> dict[str, float]:
    """Returns types that have work in a column of FLOP, with their sums, most first."""
    flop = np.nan_to_num(ops[column].to_numpy(dtype=np.float64))
    codes = arrays.coded(ops["dtype"]).codes
    words = [str(d) for d in ops["dtype"].cat.categories]
    sums = np.bincount(np.where(codes < 0, len(words), codes), flop, minlength=len(words) + 1)
    found = {word: float(total) for word, total in zip([*words, ""], sums.tolist(), strict=True) if total > 0}
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def main_dtype(ops: pd.DataFrame) -> str:
    """Returns the type that holds most of the matrix work, "" without any."""
    return next(iter(dtypes_with(ops, "flop")), "")


def facts_section(facts: dict[str, Scalar], spec: DeviceSpec | None, types: Sequence[str], check: Mark | None = None) -> FactsSection:
    """Builds the facts, with a mark on every figure of the device that is not confirmed. types: with matrix work, most first."""
    marks: dict[str, Mark] = {} if check is None else {"explained_flop": check}
    main = types[0] if types else ""
    if spec is not None:
        for name in facts:
            dtype = name.removeprefix(PEAK)
            vector = dtype == "vector"
            if name.startswith(PEAK) and spec.is_unverified("fp32" if vector else dtype, vector=vector):
                marks[name] = UNVERIFIED
        if main and spec.is_unverified(main):
            marks["peak_flop_per_s"] = UNVERIFIED
        if "mem_bw_gb_per_s" in spec.unverified:
            marks["peak_bytes_per_s"] = UNVERIFIED
        if "achievable_bf16_tflops" in spec.unverified and "achievable_flop_per_s" in facts:
            marks["achievable_flop_per_s"] = UNVERIFIED
    used = {"vector", *types}  # the peak of the main type stands under the name of the type
    hidden = [name for name in facts if name.startswith(PEAK) and name.removeprefix(PEAK) not in used]
    hidden += [name for name in OF_A_TIME if facts.get(name) is None]
    if f"{PEAK}{main}" in facts or facts.get("peak_flop_per_s") is None:
        hidden.append("peak_flop_per_s")
    if facts.get("hfu") == facts.get("mfu") and "hfu" in facts:
        hidden.append("hfu")
    part = partial(facts.get("modelled_share")) if facts.get("efficiency") is not None else None
    if part is not None:
        marks["efficiency"] = part
    return make_facts("facts", "Limits and totals", facts, FACTS, marks=marks, hidden=hidden)
