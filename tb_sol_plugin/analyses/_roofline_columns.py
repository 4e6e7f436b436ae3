"""Columns and facts of the roofline, with one sentence each."""

from __future__ import annotations

from tb_sol_plugin.model.device_table import MATRIX_COLUMNS
from tb_sol_plugin.model.report import Column

_NO_MODEL = "no cost model, or sizes not recorded"
_NO_LIMIT = "no cost model, sizes not recorded, or unknown device limits"
ID = Column("id", "Row", "", "Key of the row: what it is grouped by.", "code", rank=3)
COLUMNS = (
    Column("name", "Operator", "", "Operator, module, phase or kernel, as grouped.", "symbol", color_by="kind"),
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
    Column("direction", "Direction", "", "fwd, or bwd for work of the backward pass.", "badge", rank=2),
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
    Column("modelled_share", "Modelled", "ratio", "Share of the time that a cost model covers.", "share", rank=3),
    Column(
        "flags",
        "Flags",
        "",
        "above limit: efficiency over 102 %; estimated: something had to be assumed; link: a copy between host and device.",
        "badge",
        rank=3,
    ),
)
LIST_COLUMNS = (
    COLUMNS[0],
    COLUMNS[1],
    Column("input_shapes", "Input shapes", "", "Sizes of the tensors it was called with.", "shapes", rank=3),
    Column("wasted_ns", "Above limit", "ns", "Time less the limit.", "bar", color_by="kind", missing=_NO_LIMIT),
    Column(
        "running_share", "Running", "ratio", "Share of all time above the limit that this row and those before it hold.", "share", rank=2
    ),
)
FACTS = {
    "device": "Device whose limits are used.",
    "limits_from": "How the device was found: exact, token, memory, units (by recorded properties), derived (by generation) or override.",
    "peak_flop_per_s": "Dense peak of the type that holds most of the matrix work.",
    "peak_bytes_per_s": "Memory bandwidth of the device.",
    "achievable_flop_per_s": "BF16 rate that a good product reaches in practice: the dashed line.",
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
    "no_operator_ns": "Part of it that no recorded operator launched.",
}
FACTS |= {f"peak_flop_per_s_{dtype}": f"Dense peak of products in {dtype}." for dtype in MATRIX_COLUMNS}
FACTS["peak_flop_per_s_vector"] = "Peak of elementwise work."
