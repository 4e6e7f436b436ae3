"""Columns and facts of the operators page."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.metrics.work.columns import BOUND, BYTES, EFFICIENCY, FLAGS, FLOP, MEASURED, RECOMPUTE, SOL, WASTED, ranked
from tb_sol_plugin.model.report import Column, Fact

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
        missing="recorded without record_shapes",
    ),
    Column(
        "dtype",
        "Type",
        "",
        "Element type of its first tensor; a count where calls differ.",
        "text",
        rank=3,
        missing="recorded without record_shapes",
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
    Column("host_mean_ns", "Host mean", "ns", "Host time over calls.", rank=3),
    Column("device_mean_ns", "Device mean", "ns", "Device self over calls.", rank=3),
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
    Column(
        "modelled_share",
        "Modeled",
        "ratio",
        "Part of the device time that its calls own as carriers of the work that a cost model covers.",
        "share",
        rank=3,
        missing="owns no device work",
    ),
    RECOMPUTE,
    FLAGS,
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
    Fact("efficiency", "Efficiency", "ratio", "Limit over that time."),
    Fact("modelled_share", "Modeled", "ratio", "Part of the device time that a cost model covers."),
    Fact("recompute_ns", "Recomputed", "ns", "Device time of forward work run again inside the backward pass."),
)  # fmt: skip
