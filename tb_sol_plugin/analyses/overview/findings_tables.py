"""Shows exactly what one finding takes its saving from: operator calls, idle gaps, device events, each as a row with its part.

The parts of all rows add up to the saving over all steps; a table that would be too long holds the largest rows and counts the others.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.report.gap_rows import GAP_COLUMNS, MOST, from_step, gap_frame, gaps_of, left_out, lines_around, names_at
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.rules.time.context import time_context
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Column, Sort, TableSection, make_table
from tb_sol_plugin.tables import arrays
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
    Column("id", "Id", doc="Place of its event in the table of device events.", rank=3),
)  # fmt: skip


def evidence_tables(capture: Capture, part: Scope, waterfall: Waterfall, found: Finding) -> list[TableSection]:
    """Builds a table each of the calls, gaps and device events that make a finding's saving."""
    out = []
    if len(found.rows):
        out.append(_calls(capture, part, waterfall, found))
    if len(found.idle[0]):
        out.append(_gaps(capture, found))
    if len(found.events):
        out.append(_events(capture, found))
    return out


def _calls(capture: Capture, part: Scope, waterfall: Waterfall, found: Finding) -> TableSection:
    context = time_context(capture, part, waterfall)
    rows, saving = _most(found.rows.astype(np.int64), found.claimed)
    ops, host = context.ops, context.ops["host"].to_numpy()[rows].astype(np.int32)
    start = capture.host["start_ns"].to_numpy()
    begin = start[np.maximum(host, 0)] if len(start) else np.zeros(len(host), np.int64)
    step, since = from_step(capture, begin)
    known = host >= 0
    frame = pd.DataFrame({
        "step": [s if ok else None for s, ok in zip(step, known.tolist(), strict=True)],
        "start_ns": pd.array(np.where(known, since, 0), dtype="Int64"),
        "name": arrays.pick(ops["name"], rows), "shapes": [str(t) or None for t in arrays.pick(ops["shapes"], rows).tolist()],
        "kernel": names_at(capture.device["name"], context.main[rows]), "time_ns": np.rint(context.time[rows]).astype(np.int64),
        "saving_ns": np.rint(saving).astype(np.int64), "layer": [str(t) or None for t in arrays.pick(ops["layer"], rows).tolist()],
        "line": lines_around(capture, host), "id": [str(r) for r in rows.tolist()],
    })  # fmt: skip
    frame.loc[~known, "start_ns"] = pd.NA
    title, note = "Calls behind the finding", _note("calls", len(rows), len(found.rows), saving, found.claimed)
    return make_table(
        "calls", title, frame, CALL_COLUMNS, key="id", sort=Sort("saving_ns"), filters=["name", "shapes", "kernel", "line"],
        truncated=len(found.rows) - len(rows), footer=note,
    )  # fmt: skip


def _gaps(capture: Capture, found: Finding) -> TableSection:
    start, stop = found.idle
    length = (stop - start).astype(np.float64)
    rows, saving = _most(np.arange(len(start)), length)
    frame = gap_frame(capture, gaps_of(capture, (start[rows], stop[rows])))
    note = _note("gaps", len(rows), len(start), saving, length)
    return make_table(
        "gaps", "Idle time behind the finding", frame, GAP_COLUMNS, key="id", subtitle="the part of each gap that the finding takes",
        sort=Sort("duration_ns"), filters=["cause", "next", "line"], truncated=len(start) - len(rows), footer=note,
    )  # fmt: skip


def _events(capture: Capture, found: Finding) -> TableSection:
    rows, saving = _most(found.events.astype(np.int64), found.events_ns)
    device = capture.device
    start, call = device["start_ns"].to_numpy()[rows], device["call"].to_numpy()[rows].astype(np.int32)
    step, since = from_step(capture, start)
    frame = pd.DataFrame({
        "step": step, "start_ns": since, "name": arrays.pick(device["name"], rows), "duration_ns": device["duration_ns"].to_numpy()[rows],
        "saving_ns": np.rint(saving).astype(np.int64), "call": names_at(capture.host["name"], call), "line": lines_around(capture, call),
        "id": [str(r) for r in rows.tolist()],
    })  # fmt: skip
    note = _note("events", len(rows), len(found.events), saving, found.events_ns)
    return make_table(
        "events", "Device events behind the finding", frame, EVENT_COLUMNS, key="id", sort=Sort("saving_ns"),
        filters=["name", "call", "line"], truncated=len(found.events) - len(rows), footer=note,
    )  # fmt: skip


def _most(rows: arrays.Ints, ns: arrays.Floats) -> tuple[arrays.Ints, arrays.Floats]:
    """Returns the rows of which most is taken, `MOST` of them, and what is taken of each."""
    order = np.argsort(-ns, kind="stable")[:MOST]
    return rows[order], ns[order]


def _note(what: str, shown: int, whole: int, shown_ns: arrays.Floats, whole_ns: arrays.Floats) -> str:
    ns = float(whole_ns.sum())
    left = left_out(what, shown, whole, float(shown_ns.sum()), ns, "those of which most is taken")
    return left or f"Together {human(round(ns), 'ns')} over all steps."
