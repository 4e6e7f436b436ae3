"""Columns and facts of the roofline, with one sentence each."""

from __future__ import annotations

import msgspec

from tb_sol_plugin.devices.spec import MATRIX_COLUMNS
from tb_sol_plugin.model.report import Column

_NO_MODEL = "no cost model, or sizes not recorded"
_NO_LIMIT = "no cost model, sizes not recorded, or unknown device limits"
MODELLED = Column("modelled_share", "Modelled", "ratio", "Share of the time that a cost model covers.", "share", rank=3)
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
        "FLOP over the time of the modelled calls: matrix FLOP, or vector FLOP where there are no others.",
        missing="no arithmetic, or no cost model",
    ),
    Column("achieved_bytes_per_s", "Bandwidth", "B/s", "Bytes over the time of the modelled calls.", missing=_NO_MODEL),
    Column("bound", "Bound", "", "Which limit holds the larger part: compute or memory; none without a limit.", "badge"),
    Column(
        "flop",
        "FLOP",
        "FLOP",
        "Matrix FLOP (products, convolutions, attention) of all calls; a multiply-add is 2, bias adds are none.",
        rank=3,
        missing=_NO_MODEL,
    ),
    Column("vector_flop", "Vector FLOP", "FLOP", "Elementwise, normalisation and reduction FLOP of all calls.", rank=3, missing=_NO_MODEL),
    Column(
        "bytes",
        "Bytes",
        "B",
        "Least device memory traffic of all calls: inputs read once, outputs written once.",
        rank=3,
        missing=_NO_MODEL,
    ),
    MODELLED,
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
    Column("name", "Part", "", "Kind of modelled work, or why the rest has no limit here.", "symbol", color_by="kind"),
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
UNMODELLED_COLUMNS = (
    Column("name", "Operator", "", "Operator that owns device time and has no limit.", "code"),
    Column("input_shapes", "Input shapes", "", "Sizes of its arguments as recorded.", "shapes", rank=2, missing="no sizes recorded"),
    Column("types", "Types", "", "Types of its arguments as recorded.", "code", rank=3),
    Column("calls", "Calls", "count", "Calls that own device time."),
    Column("measured_ns", "Time", "ns", "Plain sum of its device time.", "bar", color="other"),
    Column("share", "Share", "ratio", "Time over the device time of all operators of the selection.", "share"),
    Column("why", "Why", "", "What is missing: a cost model, or a size, type or value that the model needs.", "text"),
)
FACTS = {
    "device": "Device whose limits are used.",
    "limits_from": "How the device was found: exact, token, memory, units (by recorded properties), derived (by generation), file (a "
    "device file names it) or override.",
    "peak_flop_per_s": "Dense peak of the type that holds most of the matrix work.",
    "peak_bytes_per_s": "Memory bandwidth of the device.",
    "achievable_flop_per_s": "Rate that a good product of the main type reaches in practice: the dashed line.",
    "mfu": "Model FLOP utilisation: matrix FLOP at the peak of their type over the time of the complete steps, recomputation left out.",
    "hfu": "Hardware FLOP utilisation: the same with recomputed work.",
    "bandwidth_utilisation": "Least memory traffic of the modelled calls over the time of the complete steps and the memory bandwidth.",
    "steps_ns": "Time of the complete steps that mfu, hfu and bandwidth_utilisation are over.",
    "total_flop": "Matrix FLOP of all modelled calls.",
    "total_vector_flop": "Vector FLOP of all modelled calls.",
    "total_bytes": "Least memory traffic of all modelled calls.",
    "device_ns": "Plain sum of all device time of the selection.",
    "measured_ns": "Time of the calls that have a limit.",
    "sol_ns": "Least time of the same calls.",
    "efficiency": "sol_ns over measured_ns.",
    "modelled_share": "Share of the device time that a cost model covers.",
    "unmodelled_ns": "Device time without a cost model.",
    "apart_ns": "Part of it that is communication or copies over a link: bound by the link, not by this chart.",
    "explained_flop": "Of a trace beside a SOL capture: matrix FLOP per step that the trace itself explains, recomputed work left out.",
    "counted_flop": "Of a trace beside a SOL capture: what the capture counted per step of the same work.",
    "no_operator_ns": "Part of it that no recorded operator launched.",
}
FACTS |= {f"peak_flop_per_s_{dtype}": f"Dense peak of products in {dtype}." for dtype in MATRIX_COLUMNS}
FACTS["peak_flop_per_s_vector"] = "Peak of elementwise work."
