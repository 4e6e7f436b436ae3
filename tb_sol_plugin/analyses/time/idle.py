"""Why devices idle: what the host did before each late launch, and what else work waited for that was launched in time.

A gap is time in which no stream of a device runs. Time until its next launch is split by what the launching thread did: Python, operators,
runtime calls, data loading, waiting for the device, or another thread that worked for it. The causes add up to the idle time exactly.
Streams are shown apart: a stream idles where others run, so its gaps are no idle time of the device.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.critical.idle import CAUSES, idle, streams
from tb_sol_plugin.metrics.report.gap_rows import GAP_COLUMNS, single_gaps
from tb_sol_plugin.metrics.report.notes import edge_notices
from tb_sol_plugin.metrics.report.stretch import stretch
from tb_sol_plugin.metrics.time import breakdown as B
from tb_sol_plugin.metrics.time.attribution import device_count
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.registry import analysis
from tb_sol_plugin.model.report import Column, Fact, OnTimeline, Report, Scalar, Sort, make_facts, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Objects
from tb_sol_plugin.units import capitalized, human

COLOR: Final = {
    "host_python": "host", "host_operator": "host", "host_runtime": "bar-ink", "host_other": "host", "dataloader": "idle-hatch",
    "event_wait": "norm", "collective_wait": "communication",
}  # fmt: skip
CAUSE_COLUMNS: Final = (
    Column("device", "Device", "", "id as recorded", "code", rank=2),
    Column("group", "Step or range", "", "step of the work that ends the gaps, or innermost user range around its launch", "code",
           missing="outside of all"),
    Column("cause", "Cause", "", "what the device waited for"),
    Column("time_ns", "Idle", "ns", "time of gaps of the device for this cause", "bar", color_by="color"),
    Column("share", "Share", "ratio", "of the idle time of the device", "share"),
    Column("gaps", "Gaps", "count", "gaps in which it has a part", rank=2),
    Column("longest_ns", "Longest", "ns", "most of one gap", rank=2),
    Column("longest_start_ns", "Longest at", "ns", "start of that gap, since the start of the recording", rank=3),
    Column("color", "Color", "", "member of the palette", rank=3),
    Column("id", "Id", "", "device, step or range, and cause", rank=3),
)
NO_LAUNCH: Final = "no launch of it was recorded"
STREAMS: Final = (
    Column("stream", "Stream", "", "device and stream as recorded", "code"),
    Column("events", "Events", "count", "device events in the selection"),
    Column("busy_ns", "Busy", "ns", "time in which the stream runs, from its first to its last event", "bar", color="compute"),
    Column("idle_ns", "Between", "ns", "gaps between its events; other streams may run in them", "bar", color="host"),
    Column("host_wait", "Not launched", "ns", "of that, gaps whose next work was launched after they began"),
    Column("kernel_wait", "Hand-over", "ns", "of that, gaps shorter than kernel_wait_ns", rank=2),
    Column("other", "Launched", "ns", "of that, gaps whose next work was launched before they began", rank=2),
    Column("unknown", "No record", "ns", "of that, gaps before work without a launch record", rank=2),
    Column("queue_mean", "Queue, mean", "", "work launched and not started, mean over time", missing=NO_LAUNCH),
    Column("queue_max", "Queue, most", "count", "the most of it", missing=NO_LAUNCH),
    Column("empty_ns", "Queue empty", "ns", "time with nothing in the queue, from the first launch to the last start", rank=2,
           missing=NO_LAUNCH),
)  # fmt: skip
FACTS: Final = (
    Fact("idle_ns", "Idle", "ns", "gaps of all devices, added up", "idle"),
    Fact("host_ns", "Waits for the host", "ns", "of that, until the launch of the next work", "host"),
    Fact("launch_ns", "Launch latency", "ns", "of that, from a late launch to its start", "line-strong"),
    Fact("sync_ns", "After a wait of the host", "ns", "of the time until a launch, that in which the host waited for the device"),
    Fact("unexplained_ns", "Unexplained", "ns", "of that, before work that was launched in time, without a known cause"),
    Fact("gaps", "Gaps", "count", "stretches in which no stream of a device runs"),
)


class IdleQuery(Query, kw_only=True, frozen=True):
    """kernel_wait_ns: gaps before launched work that are shorter than this are hand-overs from one kernel to the next
    by: what the causes are added up for: each device, or within it each step or innermost user range of the work that ends a gap
    """

    kernel_wait_ns: int = B.KERNEL_WAIT_NS
    by: Literal["device", "step", "phase"] = "device"


@analysis(
    title="Idle",
    question="What does the device wait for?",
    group="Time",
    order=6,
    requirements=("device_events",),
    query=IdleQuery,
    tables={"causes": CAUSE_COLUMNS, "streams": STREAMS, "gaps": GAP_COLUMNS},
    facts=FACTS,
    under="gpu_breakdown",
)
def run(capture: Capture, query: IdleQuery) -> Report:
    if not 0 <= query.kernel_wait_ns <= 10**9:
        raise BadQuery(f"kernel_wait_ns {query.kernel_wait_ns} is no length of a gap", hint="give 0 to 1000000000", field="kernel_wait_ns")
    where = scope(capture, query)
    found = idle(capture, where.device, kernel_wait_ns=query.kernel_wait_ns)
    total = {name: int(found[name].sum()) for name in CAUSES}
    start, length = found["start_ns"], found["duration_ns"]
    whole = int(length.sum())
    host = sum(total[name] for name in CAUSES if name.startswith("host_") or name in ("dataloader", "sync", "handoff"))
    values: dict[str, Scalar] = {
        "idle_ns": whole, "host_ns": host, "launch_ns": total["launch"], "sync_ns": total["sync"], "unexplained_ns": total["unexplained"],
        "gaps": len(start),
    }  # fmt: skip
    spans = start, start + length
    around = stretch(capture, "stretch", "Around the longest gap", spans, "shaded: no stream runs; the bar: the critical path", path=True)
    return Report(
        analysis="idle",
        title="Idle",
        headline=_headline(capture, where, whole, total),
        notices=edge_notices(capture, where),
        sections=[
            make_table(
                "causes", "Why it idles", _causes(capture, found, query.by),
                [c for c in CAUSE_COLUMNS if c.name != "group" or query.by != "device"], key="id", sort=Sort("time_ns"), span=8,
                adds=["time_ns", "share"] if len(np.unique(found["device"])) == 1 else ["time_ns"], subtitle=where.label,
                timeline=OnTimeline("longest_ns", "longest_start_ns", "longest_ns", what="its longest gap"),
                footer="Time until a late launch is split by what the launching thread did in it: a gap may have parts of several causes.",
                empty="No gap between two pieces of work.",
            ),
            make_facts("facts", "Idle time", values, FACTS, span=4),
            *([around] if around is not None else []),
            make_table(
                "streams", "By stream", _streams(streams(capture, where.device, kernel_wait_ns=query.kernel_wait_ns)), STREAMS,
                key="stream", sort=Sort("busy_ns"),
                footer="A stream that waits while others run is no idle time of the device: these gaps do not add up to it.",
            ),
            single_gaps(
                capture, "gaps", "Single gaps", B.gaps(capture, where.device, kernel_wait_ns=query.kernel_wait_ns), where.device,
                subtitle="each gap, what ends it and who launches that", empty="No gap between two pieces of work.",
            ),
        ],
    )  # fmt: skip


def _causes(capture: Capture, found: dict[str, Ints], by: str) -> dict[str, list[Scalar]]:
    """Returns one row per device, step or user range, and cause: a gap is of the step and range of the work that ends it."""
    device, start, length = (found[name] for name in ("device", "start_ns", "duration_ns"))
    names, group = _groups(capture, found["next"], by)
    pair, first = arrays.factorize([device, group]) if len(start) else (device, device)
    count = len(first)
    whole = {one: int(length[device == one].sum()) for one in np.unique(device).tolist()}
    parts: list[tuple[Scalar, ...]] = []
    for name, label in CAUSES.items():
        time = found[name]
        some = np.flatnonzero(time)
        total, gaps = arrays.exact_sums(pair[some], time[some], count), np.bincount(pair[some], minlength=count)
        longest = np.zeros(count, np.int64)
        order = some[arrays.stable_order(time[some])]
        longest[pair[order]] = order  # the longest is written last
        for at in np.flatnonzero(total).tolist():
            own, of, most = int(device[first[at]]), int(group[first[at]]), int(longest[at])
            parts.append((
                str(own), names[of] if of >= 0 else None, capitalized(label), int(total[at]), int(total[at]) / max(whole[own], 1),
                int(gaps[at]), int(time[most]), int(start[most]), COLOR.get(name, "line-strong"), f"{own} {of} {name}",
            ))  # fmt: skip
    return {column.name: [part[i] for part in parts] for i, column in enumerate(CAUSE_COLUMNS)}


def _groups(capture: Capture, row: np.ndarray, by: str) -> tuple[list[str], np.ndarray]:
    """Returns (names of steps or user ranges, the place of that of each device row, -1 outside of all); of devices one for all."""
    if by == "step":
        number = capture.steps["number"].to_numpy()
        step = capture.device["step"].to_numpy()[row]
        return [str(n) for n in number.tolist()], np.where((step >= 0) & (np.append(number, -1)[step] >= 0), step, -1)
    if by == "phase":
        around = capture.device["annotation"].to_numpy()[row]
        name = arrays.coded(capture.host["name"])
        return [str(n) for n in name.categories], np.where(around >= 0, np.append(name.codes, -1)[around], -1).astype(np.int64)
    return [""], np.zeros(len(row), np.int64)


def _streams(columns: dict[str, Objects]) -> dict[str, object]:
    known = np.isfinite(columns["queue_mean"].astype(np.float64))
    names = [f"device {d}, stream {s}" for d, s in zip(columns["device"].tolist(), columns["stream"].tolist(), strict=True)]
    return columns | {"stream": names, **{name: arrays.or_none(columns[name], known) for name in ("queue_max", "empty_ns")}}


def _headline(capture: Capture, where: Scope, whole: int, total: dict[str, int]) -> str:
    word = B.device_word(capture)
    if not whole:
        return f"The {word} does not idle between its first and its last event."
    window = max(where.window_length_ns, 1)
    first = sorted(((ns, CAUSES[name]) for name, ns in total.items() if ns), reverse=True)[:3]
    text = ", ".join(f"{label} {human(ns / whole, 'ratio')}" for ns, label in first)
    several = device_count(capture) > 1
    of = "" if several else f", {human(min(whole / window, 1.0), 'ratio')} of the {'steps' if where.rows else 'recording'}"
    return f"Between its first and its last event the {word} idles **{human(whole, 'ns')}**{of}: {text}."
