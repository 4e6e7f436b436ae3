"""Shows exactly what one finding takes its saving from: operator calls, idle gaps, device events, each as a row with its part.

The parts of all rows add up to the saving over all steps.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.report.gap_rows import RECORDED, from_step, gap_table, gaps_of, lines_around
from tb_sol_plugin.metrics.report.stretch import stretch
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.rules.time.context import time_context
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, OnTimeline, Sort, TableSection, TimelineSection, make_table
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.units import human

CALL_COLUMNS: Final = (
    Column("step", "Step", doc="Step in which the call begins.", missing="outside every recorded step"),
    Column("start_ns", "Start in the step", "ns", "Start of the call on the host, from the begin of its step; without a step from that "
           "of the recording.", missing="launched before the recording"),
    Column("name", "Operator", doc="Name of the operator.", show="code"),
    Column("shapes", "Sizes", doc="Sizes of its arguments.", show="code", missing="no sizes recorded for this call"),
    Column("kernel", "Kernel", doc="Its longest kernel.", show="code", missing="no kernel of its own"),
    Column("time_ns", "Time", "ns", "Its exclusive part of the device's time; on a recording of the host, of the host's."),
    Column("saving_ns", "Saving", "ns", "The part of it that the finding takes, over all steps.", "bar", color="compute"),
    Column("layer", "Layer", doc="Class of the innermost module around it.", show="code", rank=2, missing="outside every module"),
    Column("line", "Python line", doc="Innermost line of the program around it.", show="code", rank=2,
           missing="no Python stack of the program around the call"),
    RECORDED,
    Column("host_ns", "On the host", "ns", "Duration of the call on the host.", rank=3, missing="launched before the recording"),
    Column("id", "Id", doc="Place of the call in the table of operator calls.", rank=3),
)  # fmt: skip
EVENT_COLUMNS: Final = (
    Column("step", "Step", doc="Step in which the event begins.", missing="outside every recorded step"),
    Column("start_ns", "Start in the step", "ns", "Start of the event, from the begin of its step; without a step from the begin of the "
           "recording."),
    Column("name", "Event", doc="Name of the kernel or copy.", show="code"),
    Column("duration_ns", "Time", "ns", "Its whole duration."),
    Column("saving_ns", "Saving", "ns", "The part of it that the finding takes, over all steps.", "bar", color="memcpy"),
    Column("call", "Launched by", doc="Host call that launched it.", show="code", missing="no launch was recorded"),
    Column("line", "Python line", doc="Innermost line of the program around that call.", show="code", rank=2,
           missing="no Python stack of the program around the call"),
    RECORDED,
    Column("id", "Id", doc="Place of its event in the table of device events.", rank=3),
)  # fmt: skip


def evidence(capture: Capture, part: Scope, waterfall: Waterfall, found: Finding) -> list[TableSection | TimelineSection]:
    """Builds a timeline of the longest stretch, and a table each of the calls, gaps and device events, that make a finding's saving."""
    when = stretch(capture, "when", "On the timeline", _spans(capture, waterfall, found), "marked: what the finding is about")
    out: list[TableSection | TimelineSection] = [when] if when is not None else []
    if len(found.rows):
        out.append(_calls(capture, part, waterfall, found))
    if len(found.idle[0]):
        out.append(_gaps(capture, found))
    if len(found.events):
        out.append(_events(capture, found))
    return out


def _spans(capture: Capture, waterfall: Waterfall, found: Finding) -> iv.Spans:
    """Returns the idle time, device events and device work of the calls that a finding is about."""
    owner = waterfall.work.owner
    rows = found.events.astype(np.int64)
    if len(found.rows) and len(owner) == len(capture.device):
        mine = np.zeros(len(waterfall.work.ops) + 1, np.bool_)
        mine[found.rows.astype(np.int64)] = True
        rows = np.union1d(rows, np.flatnonzero(mine[owner]))
    start = capture.device["start_ns"].to_numpy()[rows]
    end = start + capture.device["duration_ns"].to_numpy()[rows]
    idle = found.idle
    return np.concatenate((start, idle[0])), np.concatenate((end, idle[1]))


def _calls(capture: Capture, part: Scope, waterfall: Waterfall, found: Finding) -> TableSection:
    context = time_context(capture, part, waterfall)
    rows, saving = found.rows.astype(np.int64), found.claimed
    ops, host = context.ops, context.ops["host"].to_numpy()[rows].astype(np.int32)
    start = capture.host["start_ns"].to_numpy()
    begin = start[np.maximum(host, 0)] if len(start) else np.zeros(len(host), np.int64)
    step, since = from_step(capture, begin)
    known = host >= 0
    frame = pd.DataFrame({
        "step": arrays.from_codes(np.where(known, step.codes, -1), step.categories),
        "start_ns": pd.array(np.where(known, since, 0), dtype="Int64"),
        "name": arrays.pick(ops["name"], rows), "shapes": _texts(ops["shapes"], rows),
        "kernel": arrays.at(capture.device["name"], context.main[rows]), "time_ns": np.rint(context.time[rows]).astype(np.int64),
        "saving_ns": np.rint(saving).astype(np.int64), "layer": _texts(ops["layer"], rows),
        "line": lines_around(capture, host), "id": rows.astype(str),
        "recorded_ns": pd.array(begin, dtype="Int64"), "host_ns": pd.array(_host_time(capture, host), dtype="Int64"),
    })  # fmt: skip
    frame.loc[~known, ["start_ns", "recorded_ns", "host_ns"]] = pd.NA
    return make_table(
        "calls", "Calls behind the finding", frame, CALL_COLUMNS, key="id", sort=Sort("saving_ns"), adds=["time_ns", "saving_ns"],
        filters=["name", "shapes", "kernel", "line"], footer=_note(saving), timeline=OnTimeline("start_ns", "recorded_ns", "host_ns"),
    )  # fmt: skip


def _host_time(capture: Capture, host: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Returns the duration of rows of the host table, 0 for -1."""
    time = capture.host["duration_ns"].to_numpy()
    return np.where(host >= 0, time[np.maximum(host, 0)], 0) if len(time) else np.zeros(len(host), np.int64)


def _gaps(capture: Capture, found: Finding) -> TableSection:
    start, stop = found.idle
    return gap_table(
        capture, "gaps", "Idle time behind the finding", gaps_of(capture, (start, stop)),
        subtitle="the part of each gap that the finding takes", footer=_note(stop - start),
    )  # fmt: skip


def _events(capture: Capture, found: Finding) -> TableSection:
    rows, saving = found.events.astype(np.int64), found.events_ns
    device = capture.device
    start, call = device["start_ns"].to_numpy()[rows], device["call"].to_numpy()[rows].astype(np.int32)
    step, since = from_step(capture, start)
    frame = pd.DataFrame({
        "step": step, "start_ns": since, "name": arrays.pick(device["name"], rows), "duration_ns": device["duration_ns"].to_numpy()[rows],
        "saving_ns": np.rint(saving).astype(np.int64), "call": arrays.at(capture.host["name"], call), "line": lines_around(capture, call),
        "id": rows.astype(str), "recorded_ns": start,
    })  # fmt: skip
    return make_table(
        "events", "Device events behind the finding", frame, EVENT_COLUMNS, key="id", sort=Sort("saving_ns"),
        adds=["duration_ns", "saving_ns"], filters=["name", "call", "line"], footer=_note(saving),
        timeline=OnTimeline("start_ns", "recorded_ns", "duration_ns"),
    )  # fmt: skip


def _texts(column: pd.Series[str], rows: arrays.Ints) -> arrays.Objects:
    text = arrays.pick(column, rows)
    return arrays.or_none(text, text != "")


def _note(ns: npt.NDArray[np.generic]) -> str:
    return f"Together {human(round(float(ns.sum())), 'ns')} over all steps."
