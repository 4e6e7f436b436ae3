"""Says everything about one event: what it is, how long it took against its limit, its arguments, what encloses it, where to go on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import SolError
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.timeline.events import column_text
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.work.work import work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.report import Link
from tb_sol_plugin.tables import tree

MOST_PARENTS: Final = 256
MOST_NAMES: Final = 10
MOST_ARGUMENTS: Final = 500
LONGEST: Final = 2_000
"""Characters of an argument that are shown."""
_LAUNCH: Final = (("occupancy_pct", "Occupancy", "%"), ("registers", "Registers", "count"), ("shared_memory", "Shared memory", "B"))
_INPUTS: Final = (("shapes", "Input Dims"), ("types", "Input type"), ("strides", "Input Strides"), ("concrete", "Concrete Inputs"))
_IDS: Final = (("correlation", "Correlation"), ("context", "Context"), ("external_id", "External id"), ("graph_node", "Graph node"))


@dataclass(frozen=True)
class Field:
    """A labeled value. unit as in reports; mark: estimated, or "" for measured."""

    label: str
    value: str | int | float
    unit: str = ""
    mark: str = ""


@dataclass(frozen=True)
class Detail:
    """What is known of one event. parents: ids, innermost first. children: events that it encloses directly; child_names: those with most
    time, each with its calls and ns.
    """

    table: str
    row: int
    self_ns: int
    depth: int
    fields: list[Field]
    arguments: dict[str, str]
    parents: list[int]
    children: int
    child_names: list[tuple[str, int, int]]
    links: list[Link]


def detail(timeline: Timeline, event: int, limits: str = "") -> Detail:
    """Returns what is known of an event. limits: the device limits that the page uses."""
    table, row = timeline.events.place(event)
    capture = timeline.capture
    fields, arguments = list(_fields(timeline, table, row, limits)), dict(islice(_arguments(timeline, table, row), MOST_ARGUMENTS))
    parents: list[int] = []
    children, names, self_ns, depth = 0, [], 0, 0
    if table == "host":
        host = capture.host
        parent, end = host["parent"].to_numpy(), host["end"].to_numpy()
        depth = int(host["depth"].iloc[row])
        above = int(parent[row])
        while above >= 0 and len(parents) < MOST_PARENTS:
            parents.append(above)
            above = int(parent[above])
        below = slice(row, int(end[row]))
        inside = np.flatnonzero(parent[below] == row) + row
        children, names = len(inside), _child_names(timeline, inside)
        start, duration = host["start_ns"].to_numpy()[below], host["duration_ns"].to_numpy()[below]
        self_ns = int(tree.self_time(start, duration, np.where(parent[below] >= row, parent[below] - row, -1))[0])
    elif table == "device":
        self_ns = int(capture.device["duration_ns"].iloc[row])
    return Detail(table, row, self_ns, depth, fields, arguments, parents, children, names, list(_links(timeline, table, row)))


def _child_names(timeline: Timeline, rows: np.ndarray) -> list[tuple[str, int, int]]:
    if not len(rows):
        return []
    ids = timeline.events.name_ids(rows.astype(np.uint32))
    time = timeline.capture.host["duration_ns"].to_numpy()[rows]
    used, place = np.unique(ids, return_inverse=True)
    count, total = np.bincount(place), np.bincount(place, time)
    best = np.argsort(-total, kind="stable")[:MOST_NAMES]
    text = timeline.events.names.text
    return [(text[int(used[i])], int(count[i]), int(total[i])) for i in best]


def _fields(timeline: Timeline, table: str, row: int, limits: str) -> Iterator[Field]:
    capture = timeline.capture
    frame = capture.tables[table]
    if table == "device":
        one = frame.iloc[row]
        yield Field("Kind", S.DEVICE_KINDS[int(one["kind"])] if not one["communication"] else "communication")
        if int(one["stream"]) >= 0:
            yield Field("Stream", str(int(one["stream"])))
        if int(one["bytes"]) >= 0:
            yield Field("Size", int(one["bytes"]), "B")
            if int(one["duration_ns"]) > 0:
                yield Field("Bandwidth", int(one["bytes"]) / int(one["duration_ns"]) * 1e9, "B/s")
        if column_text(frame, "direction", row):
            yield Field("Direction", column_text(frame, "direction", row))
            ends = [column_text(frame, c, row) for c in ("src_kind", "dst_kind")]
            if all(ends):
                yield Field("Memory", " → ".join(ends))
        call = int(one["call"])
        if call >= 0:
            start = int(capture.host["start_ns"].iloc[call])
            yield Field("From its launch", int(one["start_ns"]) - start, "ns")
        else:
            yield Field("Launch", S.LINKS[int(one["link"])])
        yield from _limit(timeline, row, limits)
        for column, label, unit in _LAUNCH:
            value = float(one[column])
            if value == value and value >= 0:
                yield Field(label, value if unit == "%" else int(value), unit)
    elif table == "host":
        yield Field("Kind", S.HOST_KINDS[int(frame["kind"].iloc[row])])
        below = int(frame["end"].iloc[row]) - row
        calls = at.launches(capture).call
        launched = np.flatnonzero((calls >= row) & (calls < row + below))
        if len(launched):
            yield Field("Device events launched", len(launched), "count")
            yield Field("Their device time", int(capture.device["duration_ns"].to_numpy()[launched].sum()), "ns")
        step = int(np.searchsorted(capture.steps["host_start_ns"].to_numpy(), int(frame["start_ns"].iloc[row]), "right")) - 1
        if step >= 0 and int(frame["start_ns"].iloc[row]) < int(capture.steps["host_end_ns"].iloc[step]):
            yield Field("Step", column_text(capture.steps, "name", step) or "whole trace")


def _limit(timeline: Timeline, row: int, limits: str) -> Iterator[Field]:
    """Yields the limit of the operator call that owns a device event, and how near to it that call ran."""
    capture = timeline.capture
    try:
        done = work(capture, device_for(capture, limits))
    except SolError:
        return
    owner = int(done.owner[row]) if len(done.owner) > row else -1
    if owner < 0:
        return
    one = done.ops.iloc[owner]
    sol, measured = float(one["sol_ns"]), float(one["measured_ns"])
    mark = "estimated" if bool(one["estimated"]) else ""
    yield Field("Operator", str(one["name"]))
    if sol == sol:
        many = int(one["device_events"]) > 1
        yield Field("Limit of the operator call" if many else "Limit", round(sol), "ns", mark)
        if measured > 0:
            yield Field("Speed of light of the call" if many else "Speed of light", sol / measured, "ratio", mark)
        yield Field("Bound", str(one["bound"]))


def _arguments(timeline: Timeline, table: str, row: int) -> Iterator[tuple[str, str]]:
    capture = timeline.capture
    if table == "host":
        at = int(capture.operator_of_host[row])
        if at >= 0:
            operators = capture.tables["operators"]
            for column, label in _INPUTS:
                yield from _text(label, column_text(operators, column, at))
            for column, label in (("sequence", "Sequence number"), ("external_id", "External id")):
                if int(operators[column].iloc[at]) >= 0:
                    yield label, str(int(operators[column].iloc[at]))
            yield from _more(column_text(operators, "extra", at))
        yield from _text("Category", column_text(capture.host, "category", row))
    elif table == "device":
        for column, label in (("grid", "Grid"), ("block", "Block")):
            yield from _text(label, column_text(capture.device, column, row))
        for column, label in _IDS:
            if int(capture.device[column].iloc[row]) >= 0:
                yield label, str(int(capture.device[column].iloc[row]))
        table_ = capture.tables["collectives"]
        found = np.flatnonzero(table_["device"].to_numpy() == row)
        for at in found[:1].tolist():
            for column in ("name", "dtype", "process_group", "process_group_description", "ranks"):
                yield from _text(column.replace("_", " ").capitalize(), column_text(table_, column, at))
            for column in ("group_size", "in_elements", "out_elements"):
                yield column.replace("_", " ").capitalize(), str(int(table_[column].iloc[at]))
    elif table == "instants":
        yield from _text("Arguments", column_text(capture.tables["instants"], "args", row))


def _text(label: str, text: str) -> Iterable[tuple[str, str]]:
    return [(label, text if len(text) <= LONGEST else text[:LONGEST] + " …")] if text else []


def _more(text: str) -> Iterator[tuple[str, str]]:
    try:
        found = msgspec.json.decode(text) if text else {}
    except msgspec.DecodeError:
        found = {}
    for key, value in found.items() if isinstance(found, dict) else ():
        yield from _text(str(key)[:LONGEST], value if isinstance(value, str) else msgspec.json.encode(value).decode())


def _links(timeline: Timeline, table: str, row: int) -> Iterator[Link]:
    """Yields the views that hold this event: its kernel, operator, module, step."""
    capture = timeline.capture
    host = capture.host
    step = -1
    if table == "device":
        one = capture.device.iloc[row]
        step = int(one["step"])
        if int(one["kind"]) == S.KERNEL:
            yield Link("kernels", {"find": column_text(capture.device, "name", row)}, "Kernel")
        else:
            yield Link("memcpy", {}, "Memory copies")
        operator, module = int(one["operator"]), int(one["module"])
        if operator >= 0:
            name = column_text(host, "name", operator)
            yield Link("operators", {"find": name}, "Operator")
            yield Link("roofline", {"find": name}, "Roofline")
        if module >= 0:
            yield Link("modules", {"find": column_text(host, "name", module)}, "Module")
    elif table == "host":
        kind, name = int(host["kind"].iloc[row]), column_text(host, "name", row)
        if kind == S.OPERATOR:
            yield Link("operators", {"find": name}, "Operator")
            yield Link("roofline", {"find": name}, "Roofline")
        elif kind == S.MODULE:
            yield Link("modules", {"find": name}, "Module")
        elif kind == S.ANNOTATION:
            yield Link("phases", {"find": name}, "Phase")
        start = int(host["start_ns"].iloc[row])
        steps = capture.steps
        inside = np.flatnonzero((steps["host_start_ns"].to_numpy() <= start) & (start < steps["host_end_ns"].to_numpy()))
        step = int(inside[0]) if len(inside) else -1
    if step >= 0 and int(capture.steps["number"].iloc[step]) >= 0:
        number = int(capture.steps["number"].iloc[step])
        yield Link("overview", {"step": str(number)}, f"Step {number}")
