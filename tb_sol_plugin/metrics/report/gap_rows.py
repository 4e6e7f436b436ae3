"""Says of single idle gaps when they are, what ends them and who launches that: one row per gap.

A gap is time in which a device runs nothing. What ends it is the next device event; the call that launched it, and the line of Python
around that call, say which part of the program the device was waiting for.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import kept_with
from tb_sol_plugin.metrics.copies.records import frame_text
from tb_sol_plugin.metrics.rules.copies.context import outermost_operator
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.breakdown import CAUSES, KERNEL_WAIT_NS
from tb_sol_plugin.metrics.time.frames import program_frames
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.columns import MANY_ROWS, Distinct, of_codes
from tb_sol_plugin.model.report import Column, OnTimeline, Scalar, Sort, TableSection, make_table
from tb_sol_plugin.tables import arrays, tree
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Coded, Ints, Mask, Places
from tb_sol_plugin.tables.table import Table

CAUSE_WORDS: Final = {
    "host_wait": "Waits for the host",
    "kernel_wait": "Hand-over between kernels",
    "other": "Launched in time, still waiting",
    "unknown": "Cause unknown",
}
EDGES: Final = ("Before the first work", "After the last work")
LOADING: Final = "Loads a batch"
"""Cause of the waits of a recording of the host."""
RECORDED: Final = Column("recorded_ns", "Recorded at", "ns", "Start, since the start of the recording.", rank=3)
GAP_COLUMNS: Final = (
    Column("step", "Step", doc="Step in which the gap begins.", missing="outside every recorded step"),
    Column("start_ns", "Start in the step", "ns", "Start of the gap from the begin of its step; without a step from that of the "
           "recording."),
    Column("duration_ns", "Idle", "ns", "Length of the gap.", show="bar", color="host"),
    Column("cause", "Cause", doc="Why the device waited, judged from the launch of the work that ends the gap.", show="badge"),
    Column("next", "Next", doc="Device event that ends the gap.", show="code", missing="nothing follows in the recording"),
    Column("call", "Launched by", doc="Host call that launched what ends the gap.", show="code", missing="no launch was recorded"),
    Column("operator", "Operator", doc="Outermost operator around that call.", show="code", rank=2, missing="no operator around the call"),
    Column("line", "Python line", doc="Innermost line of the program around that call.", show="code",
           missing="no Python stack of the program around the call"),
    Column("previous", "Previous", doc="Device event that ended before the gap.", show="code", rank=2, missing="nothing ran before"),
    Column("device", "Device", doc="Device id as recorded.", rank=3, missing="all devices of the recording"),
    RECORDED,
    Column("id", "Id", doc="Start of the gap in ns since the recording began, and its device.", rank=3),
)  # fmt: skip


def single_gaps(
    capture: Capture, section_id: str, title: str, found: Table, rows: Mask, *, largest_first: bool = False, **more: object
) -> TableSection:  # fmt: skip
    """Returns the table of GAP_COLUMNS for `breakdown.gaps` of some device rows, in order of time or the longest first."""

    def make() -> Columns:
        return _gap_columns(capture, found, previous_of(capture, found, rows))

    columns = kept_with(found, "gap_rows.columns", make)
    order = np.argsort(-found["duration_ns"].to_numpy(), kind="stable") if largest_first else None
    return _section(capture, section_id, title, columns, found["device"].to_numpy(), order, **more)


def gap_table(capture: Capture, section_id: str, title: str, found: pd.DataFrame, **more: object) -> TableSection:
    """Returns the table of GAP_COLUMNS for gaps as `breakdown.gaps` gives them, with a column `previous` of device rows (-1 none).

    cause, next: -1 at the edges of the recording. device: -1 where no device of the recording runs anything.
    """
    columns = _gap_columns(capture, found, found["previous"].to_numpy().astype(np.int64))
    return _section(capture, section_id, title, columns, found["device"].to_numpy(), None, **more)


Columns: TypeAlias = dict[str, Distinct | Ints]


def _section(
    capture: Capture, section_id: str, title: str, columns: Columns, ids: npt.NDArray[np.integer], order: Places | None, **more: object
) -> TableSection:  # fmt: skip
    if order is not None:
        columns = {name: Distinct(v.codes[order], v.values) if isinstance(v, Distinct) else v[order] for name, v in columns.items()}
        ids = ids[order]
    own = np.asarray(columns["recorded_ns"]) - capture.facts.extent_ns[0]
    shown: dict[str, object] = {
        name: v.tolist() if isinstance(v, Distinct) and len(v) <= MANY_ROWS else v for name, v in columns.items()
    }

    def named(rows: Ints) -> list[Scalar]:
        both = zip(own[rows].tolist(), ids[rows].tolist(), strict=True)
        return [f"{start}@{device}" if device >= 0 else str(start) for start, device in both]

    return make_table(
        section_id, title, shown, GAP_COLUMNS, {"id": named}, key="id", sort=Sort("duration_ns"), adds=["duration_ns"],
        filters=["cause", "next", "line"], timeline=OnTimeline("start_ns", "recorded_ns", "duration_ns"), **more,
    )  # fmt: skip


def _gap_columns(capture: Capture, found: pd.DataFrame, previous: Ints) -> Columns:
    start, following = found["start_ns"].to_numpy(), found["next"].to_numpy().astype(np.int64)
    call = np.append(capture.device["call"].to_numpy(), -1)[following].astype(np.int32)  # -1 takes the last one
    step, since = from_step(capture, start)
    devices, place = arrays.in_order(found["device"].to_numpy())
    first = int(np.searchsorted(devices, 0))  # before it what is no device
    line = lines_around(capture, call)
    return {
        "step": of_codes(step.codes, step.categories), "start_ns": since, "duration_ns": found["duration_ns"].to_numpy(),
        "cause": _cause_words(capture, found), "next": _names(capture.device["name"], following),
        "call": _names(capture.host["name"], call), "operator": _names(capture.host["name"], _outermost(capture, call)),
        "line": of_codes(line.codes, line.categories), "previous": _names(capture.device["name"], previous),
        "device": of_codes(np.maximum(place - first, -1), devices[first:].astype(str)), "recorded_ns": start,
    }  # fmt: skip


def _names(column: pd.Series, rows: npt.NDArray[np.integer]) -> Distinct:
    """Returns the names at rows, None where a row is -1."""
    text = arrays.coded(column)
    code = np.where(rows >= 0, text.codes[rows], -1) if len(text) else np.full(len(rows), -1)
    return of_codes(code, text.categories)


def _cause_words(capture: Capture, found: pd.DataFrame) -> Distinct:
    words = np.array([*(CAUSE_WORDS[c] for c in CAUSES), EDGES[0], EDGES[1], LOADING], object)
    cause = found["cause"].to_numpy().astype(np.int64)
    if not len(capture.device):
        return of_codes(np.full(len(found), len(words) - 1), words)
    edge = np.where(found["next"].to_numpy() < 0, len(CAUSES) + 1, len(CAUSES))
    return of_codes(np.where(cause >= 0, cause, edge), words)


def previous_of(capture: Capture, found: pd.DataFrame, rows: Mask) -> Ints:
    """Returns the device row that ended before each gap of a device began, -1 none."""
    out, ids = np.full(len(found), -1, np.int64), capture.device["device"].to_numpy()
    of = found["device"].to_numpy()
    for one in np.unique(of).tolist():
        mine = np.flatnonzero(of == one)
        out[mine] = _before(capture, np.flatnonzero(rows & (ids == one)), found["start_ns"].to_numpy()[mine])
    return out


def gaps_of(capture: Capture, spans: iv.Spans) -> pd.DataFrame:
    """Returns idle time of all devices together as gaps, each a part of one; the cause is that of the whole gap.

    Columns as of `breakdown.gaps`, with `previous`; device is -1.
    """
    start, stop = spans
    first = capture.device["start_ns"].to_numpy()
    last = first + capture.device["duration_ns"].to_numpy()
    full = np.flatnonzero(last > first)
    order = full[np.argsort(first[full], kind="stable")]
    slot = np.searchsorted(first[order], stop)
    following = np.where(slot < len(order), np.append(order, -1)[np.minimum(slot, len(order))], -1)
    before = _before(capture, full, start)
    opened = np.where(before >= 0, last[before] if len(last) else 0, 0)
    launch = at.launches(capture)
    at_end = np.maximum(following, 0)
    call, time = (launch.call[at_end], launch.time[at_end]) if len(first) else (following, start)
    closed = first[at_end] if len(first) else stop
    cause = np.select(
        [(following < 0) | (before < 0), call < 0, time > opened, closed - opened < KERNEL_WAIT_NS],
        [-1, CAUSES.index("unknown"), CAUSES.index("host_wait"), CAUSES.index("kernel_wait")], CAUSES.index("other"),
    )  # fmt: skip
    return pd.DataFrame({
        "device": np.full(len(start), -1), "start_ns": start, "duration_ns": stop - start, "cause": cause, "next": following,
        "previous": before,
    })  # fmt: skip


def from_step(capture: Capture, times: Ints) -> tuple[Coded, Ints]:
    """Returns (the step that each moment lies in, None outside; ns since its begin, since that of the recording outside)."""
    origin = np.full(len(times), capture.facts.extent_ns[0], np.int64)
    if capture.facts.pseudo_step or not len(capture.steps):
        return arrays.from_codes(np.full(len(times), -1, np.int8), []), times - origin
    begin, end = capture.steps["start_ns"].to_numpy(), capture.steps["end_ns"].to_numpy()
    order = np.argsort(begin, kind="stable")
    place = order[np.maximum(np.searchsorted(begin[order], times, side="right") - 1, 0)]
    inside = (times >= begin[place]) & (times < end[place])
    numbers, number = arrays.in_order(capture.steps["number"].to_numpy())
    step = arrays.from_codes(np.where(inside, number[place], -1), numbers.astype(str))
    return step, times - np.where(inside, begin[place], origin)


def lines_around(capture: Capture, calls: npt.NDArray[np.integer]) -> Coded:
    """Returns the innermost line of the program around some host rows, None without one."""
    h = at.host(capture)
    if not len(h.start):
        return arrays.from_codes(np.full(len(calls), -1, np.int8), [])
    rows = np.asarray(calls, np.int32)
    above = tree.nearest(program_frames(capture), h.parent, h.stop, rows, h.start[np.maximum(rows, 0)], h.end)
    used, place = arrays.in_order(above.astype(np.int64))  # a line launches again and again
    text = frame_text(capture, used)
    return arrays.labels(place, arrays.or_none(text, text != ""))


def _before(capture: Capture, rows: npt.NDArray[np.integer], times: Ints) -> Ints:
    """Returns the last of some device rows to have ended by each moment, -1 none."""
    device = capture.device
    stop = (device["start_ns"].to_numpy() + device["duration_ns"].to_numpy())[rows]
    order = np.argsort(stop, kind="stable")
    slot = np.searchsorted(stop[order], times, side="right") - 1
    return np.asarray(np.where(slot >= 0, np.append(rows[order], -1)[slot], -1), np.int64)


def _outermost(capture: Capture, rows: npt.NDArray[np.int32]) -> npt.NDArray[np.int64]:
    """Returns the outermost operator around each host row, -1 without one."""
    if not len(capture.host):
        return np.full(len(rows), -1, np.int64)
    return outermost_operator(capture, at.nearest(capture, S.OPERATOR, rows))
