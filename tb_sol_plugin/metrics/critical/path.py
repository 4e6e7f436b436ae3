"""Walks the critical path of each step: what holds its end, back to its start, in segments that tile the step.

A segment is the time between two moments of which one holds the other. Its class says what passed:

    host_*         the program works on a thread: innermost is Python, an operator, a call, or anything else; `dataloader` inside of loading
    launch         from a launching call to the start of its work
    kernel_*       a kernel, by its kind; `communication`, `copy` and `memset` likewise. Where the ranks of the run are known (`over_ranks`)
                   `communication_wait` and `communication_transfer` take the place of communication
    kernel_gap     between two events of a stream
    event_wait     from the work of another stream that was waited for
    sync_return    from the end of device work to the return of the call that waited for it
    wait_overhead  what a call that waits costs by itself
    handoff        from one thread to another
    window         before the first or after the last recorded moment of the step
    unexplained    what exceeds ten times the least of a launch, a gap, a wait or a hand-over
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.errors import BadQuery, Unavailable
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.described import Classes, Described, Kinds, described
from tb_sol_plugin.metrics.critical.edges import EVENT, HANDOFF, KINDS, LAUNCH, QUEUE_FULL, STREAM, SYNC
from tb_sol_plugin.metrics.critical.graph import Graph, graph_of
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time import breakdown as B
from tb_sol_plugin.metrics.time.kernels import kinds_at
from tb_sol_plugin.metrics.time.scope import Scope, complete_steps, device_rows, scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows

KERNEL_KINDS: Final = ("gemm", "attention", "conv", "norm", "elementwise", "other")
CLASSES: Final = (
    "host_python", "host_operator", "host_runtime", "host_other", "dataloader", "launch", *(f"kernel_{kind}" for kind in KERNEL_KINDS),
    "communication", "communication_wait", "communication_transfer", "copy", "memset", "kernel_gap", "event_wait", "sync_return",
    "wait_overhead", "handoff", "window", "unexplained",
)  # fmt: skip
LABELS: Final = {
    "host_python": "Python", "host_operator": "Operators on the host", "host_runtime": "Runtime calls", "host_other": "Other host code",
    "dataloader": "Data loading", "launch": "Launch latency", "kernel_gemm": "Matrix kernels", "kernel_attention": "Attention kernels",
    "kernel_conv": "Convolution kernels", "kernel_norm": "Normalization kernels", "kernel_elementwise": "Elementwise kernels",
    "kernel_other": "Other kernels", "communication": "Communication",
    "communication_wait": "Waiting for other ranks", "communication_transfer": "Transfer between ranks",
    "copy": "Copies", "memset": "Memsets", "kernel_gap": "Gap between kernels",
    "event_wait": "Waits for another stream", "sync_return": "Return of a synchronizing call",
    "wait_overhead": "Cost of a synchronizing call",
    "handoff": "Hand-over between threads", "window": "Outside of the recording", "unexplained": "Unexplained",
}  # fmt: skip
"""What a page calls each class."""
PLACE: Final = {name: place for place, name in enumerate(CLASSES)}
OF_HOST: Final = ("host_python", "host_operator", "host_runtime", "host_other", "dataloader")
"""Classes in which the program works on the host."""
NORMAL: Final = 10
"""A launch, a gap, a wait or a hand-over takes up to so many times its least; more is not explained."""
NORMAL_NS: Final = {LAUNCH: 2_000, STREAM: 2_000, EVENT: 10_000, SYNC: 50_000, QUEUE_FULL: 50_000, HANDOFF: 50_000}
"""So long each may always take, ns: clocks of whole microseconds, and the host's time to wake a thread."""
OF_KIND: Final = {
    LAUNCH: "launch", STREAM: "kernel_gap", EVENT: "event_wait", SYNC: "sync_return", QUEUE_FULL: "sync_return", HANDOFF: "handoff",
}  # fmt: skip


@dataclass(frozen=True)
class Path:
    """Segments of the critical paths of some steps, in order of time. They tile each step exactly.

    step: row of `steps`. start, duration: ns. kind: place in CLASSES. edge: the edge that holds the later moment, -1 where none does.
    host, device: the row that the segment is of, -1. inferred: its edge follows from times alone. residual: ns beyond the least of its
    edge. ends: the last node of each step. begin, end: of each step, ns. rows: of `steps`.
    """

    step: Rows
    start: Ints
    duration: Ints
    kind: Kinds
    edge: Rows
    host: Rows
    device: Rows
    inferred: Mask
    residual: Ints
    ends: Rows
    begin: Ints
    end: Ints
    rows: Ints

    def only(self, some: Mask) -> Path:
        """Returns the same with some of its segments: these tile no step."""
        columns = ("step", "start", "duration", "kind", "edge", "host", "device", "inferred", "residual")
        return replace(self, **{name: getattr(self, name)[some] for name in columns})


def ranges_around(capture: Capture, path: Path) -> Rows:
    """Returns the host row of the innermost user range around each segment, or around its launch; -1 for none."""
    found, _ = at.annotation_around(capture, path.host.astype(np.int32))
    if not len(capture.device):
        return found
    own = capture.device["annotation"].to_numpy()[np.maximum(path.device, 0)]
    return np.where(path.device >= 0, own, found).astype(np.int32)


def inside_ranges(capture: Capture, path: Path, name: str) -> Path:
    """Returns what of a path lies inside of user ranges of a name, or was launched there. BadQuery where there is none."""
    h = at.host(capture)
    ranges = at.named(capture, S.ANNOTATION, name.__eq__)
    if not len(ranges):
        known = dict.fromkeys(arrays.pick(capture.host["name"], at.of_kind(capture, S.ANNOTATION)).tolist())
        there = ", ".join(str(n)[:80] for n in list(known)[:20]) or "none"
        raise BadQuery(f"no user range {name[:200]!r} in this recording", hint=f"there are: {there}", field="phase")
    change = np.zeros(len(h.start) + 1, np.int64)
    np.add.at(change, ranges, 1)
    np.subtract.at(change, h.end[ranges], 1)
    around = ranges_around(capture, path)
    return path.only((around >= 0) & (np.cumsum(change)[np.maximum(around, 0)] > 0))


def path_of(capture: Capture, where: Scope) -> Path:
    """Returns the critical paths of the steps of a selection; of the one pseudo-step where no step was recorded.

    The graph holds moments: without an event there is no path.
    """
    rows = where.rows or (0,)
    return memo(capture, ("critical.path", rows), lambda: _path(capture, np.array(rows, np.int64)))


def selected_path(capture: Capture, query: Query) -> tuple[Scope, Path]:
    """Returns the complete steps that a query selects, and their critical paths. Unavailable where no event takes time."""
    where = complete_steps(capture, scope(capture, query))
    path = path_of(capture, where) if len(graph_of(capture).time) else None
    if path is None or not len(path.step):
        raise Unavailable("no event with a duration in this recording", hint="record at least one step")
    return where, path


def _path(capture: Capture, rows: Ints) -> Path:
    graph = graph_of(capture)
    begin, end = (capture.steps[c].to_numpy()[rows] for c in ("start_ns", "end_ns"))
    return walked(capture, graph, rows, _last_nodes(capture, graph, rows, end), begin, end)


@dataclass(frozen=True)
class Finals:
    """Nodes that steps end with: the end of each one's range, and the last event of each stream that it launched.

    A step ends with the latest of its own. node, step (row of `steps`), at: when its step ends, ns.
    """

    node: Rows
    step: Ints
    at: Ints


def finals_of(capture: Capture, path: Path) -> Finals:
    """Returns the nodes that the steps of a path end with; of a recording without steps the last of each thread and stream."""
    return memo(capture, ("critical.finals", tuple(path.rows.tolist())), lambda: _finals(capture, path))


def _finals(capture: Capture, path: Path) -> Finals:
    graph = graph_of(capture)
    nodes, rows = graph.nodes, path.rows
    host = capture.steps["host"].to_numpy()[rows]
    own = np.where(host >= 0, nodes.end[np.maximum(host, 0)], -1) if len(nodes.end) else np.full(len(rows), -1)
    found = [(own[own >= 0], rows[own >= 0])]
    if not len(found[0][0]) and nodes.hosts:
        last = np.append(np.flatnonzero(nodes.begins)[1:], nodes.hosts) - 1
        found.append((last, np.full(len(last), rows[-1])))
    inside = np.sort(nodes.place[device_rows(capture, rows)]) if (host >= 0).any() else np.arange(len(nodes.device))
    step = capture.device["step"].to_numpy()[nodes.device[inside]]
    order = np.lexsort((graph.work.end[inside], nodes.stream[inside], step))
    step, order = step[order], inside[order]
    pair = np.stack((step, nodes.stream[order]))
    ends = np.flatnonzero(np.append((pair[:, 1:] != pair[:, :-1]).any(axis=0), True)) if len(order) else order
    final = order[ends]
    found.append((nodes.hosts + 2 * final + 1, step[ends] if (host >= 0).any() else np.full(len(final), rows[-1])))
    found.append((path.ends, rows))
    node, of = (np.concatenate([part[i] for part in found]).astype(np.int64) for i in (0, 1))
    at_end = path.end[np.searchsorted(rows, of)]
    kept = graph.time[node] <= at_end
    return Finals(node[kept].astype(np.int32), of[kept], at_end[kept])


class _Segments(NamedTuple):
    """Segments of some walks, one per node of each, before what is not explained of one and the rest of its step are segments of their own.

    explained, excess: what of each is, and is not; one of neither is none. late: from the last node of each walk to the end of its step.
    """

    step: Rows
    since: Ints
    explained: Ints
    excess: Ints
    edge: Rows
    what: Described
    late: Ints


def _segments(capture: Capture, of: Graph, ends: Ints, begin: Ints, end: Ints) -> _Segments:
    walks = [
        passes.walk(of.time, of.edges.source, of.binding, last, low)[::-1]
        for last, low in zip(ends.tolist(), begin.tolist(), strict=True)
    ]
    size = np.array([len(w) for w in walks], np.int64)
    node = np.concatenate([np.zeros(0, np.int32), *walks])
    step = np.repeat(np.arange(len(ends), dtype=np.int32), size)
    time = of.time[node]
    first = np.concatenate(([0], np.cumsum(size)[:-1])) if len(size) else np.zeros(0, np.int64)
    since = np.concatenate(([0], time[:-1]))[: len(time)]
    since[first] = begin
    since = np.maximum(since, begin[step])
    edge = of.binding[node]
    edge[first] = -1  # what holds the first moment is of the time before the step
    duration = np.minimum(time, end[step]) - since
    what = _what(of, node, edge, host_classes(capture), device_classes(capture))
    excess = np.minimum(what.excess, np.maximum(duration, 0))
    late = np.maximum(end - of.time[ends], 0)
    return _Segments(step, since, duration - excess, excess, edge, what, late)


def _what(graph: Graph, node: npt.NDArray[np.integer], edge: npt.NDArray[np.integer], of_host: Kinds, of_device: Kinds) -> Described:
    """Returns what the time of some edges of a graph is, each of which holds a node; -1 for none. of_host, of_device: classes of rows."""
    of_kind = np.full(len(KINDS), -1, np.int8)
    always = np.full(len(KINDS) + 1, np.iinfo(np.int64).max, np.int64)  # the last for none
    for one, name in OF_KIND.items():
        of_kind[one], always[one] = PLACE[name], NORMAL_NS[one]
    places = (PLACE[name] for name in ("wait_overhead", "unexplained", "window"))
    return described(graph, node, edge, Classes(of_host, of_device, of_kind, *places), always, NORMAL)


def shares_of(capture: Capture, graph: Graph, edges: npt.NDArray[np.integer]) -> Described:
    """Returns what the time of some edges of a graph is, on a path that they are on."""
    return _what(graph, graph.edges.target[edges], edges, host_classes(capture), device_classes(capture))


def begin_class(graph: Graph, node: int) -> int:
    """Returns the class of the time before a node that a path begins with."""
    return int(_what(graph, np.array([node]), np.array([-1]), np.zeros(0, np.int8), np.zeros(0, np.int8)).kind[0])


def walked(capture: Capture, graph: Graph, rows: Ints, ends: Ints, begin: Ints, end: Ints) -> Path:
    """Returns the paths from some nodes back to a time each. rows: what each is called. end: when each ends, no earlier than its node."""
    own = _segments(capture, graph, ends, begin, end)
    # what is not explained of a segment, and the part of a step after its last moment, are segments of their own
    what, more = own.what, own.excess > 0
    pieces = (own.explained > 0) + more.astype(np.int64)
    of = np.repeat(np.arange(len(pieces)), pieces)
    rest = (np.cumsum(pieces) - 1)[more]
    start, length, kind = own.since[of], own.explained[of], what.kind[of]
    start[rest] += own.explained[more]
    length[rest] = own.excess[more]
    residual = np.where(more, 0, what.residual)[of]
    kind[rest], residual[rest] = PLACE["unexplained"], what.residual[more]
    columns: list[npt.NDArray[Any]] = [
        own.step[of], start, length, kind, own.edge[of], what.host[of], what.device[of], what.inferred[of], residual
    ]  # fmt: skip
    tail = np.flatnonzero(own.late)
    if len(tail):
        at, late = np.searchsorted(columns[0], tail, side="right"), own.late[tail]
        more_of: tuple[npt.ArrayLike, ...] = (tail, end[tail] - late, late, PLACE["window"], -1, -1, -1, False, 0)
        columns = [np.insert(column, at, values) for column, values in zip(columns, more_of, strict=True)]
    whose, start, length, kind, edge, host, device, inferred, residual = columns
    whose = rows.astype(np.int32)[whose]
    return Path(whose, start, length, kind, edge, host, device, inferred, residual, ends.astype(np.int32), begin, end, rows)


def _last_nodes(capture: Capture, graph: Graph, rows: Ints, end: Ints) -> Ints:
    """Returns the last node of each step: of its device work, of its own range, else the last one recorded up to its end."""
    nodes, time = graph.nodes, graph.time
    out = np.full(len(rows), -1, np.int64)
    host = capture.steps["host"].to_numpy()[rows]
    if len(nodes.end):
        own = np.where(host >= 0, nodes.end[np.maximum(host, 0)], -1)
        out = np.where((own >= 0) & (time[np.maximum(own, 0)] == end), own, out)
    found = _last_work(capture, graph)[rows].astype(np.int64) if len(nodes.device) else np.full(len(rows), -1, np.int64)
    good = found >= 0
    good[good] = graph.work.end[found[good]] == end[good]
    out = np.where(good, nodes.hosts + 2 * found + 1, out)
    none = np.flatnonzero(out < 0)
    if len(none):
        out[none] = _last_until(time, end[none])
    return np.asarray(out, np.int64)


def _last_work(capture: Capture, graph: Graph) -> Rows:
    """Returns the device event of each step that ends last, by its place among the nodes; -1 for none."""

    def make() -> Rows:
        step = capture.device["step"].to_numpy()[graph.nodes.device]
        order = np.lexsort((graph.work.end, step))
        out = np.full(len(capture.steps) + 1, -1, np.int32)  # the last for work of no step
        out[step[order]] = order  # the last one is written last
        return out[:-1]

    return memo(capture, ("critical.last_work",), make)


def _last_until(time: Ints, until: Ints) -> Ints:
    """Returns the last node up to each of some times, of equal ones that which stands last; the first of all where there is none."""
    bounds, place = np.unique(until, return_inverse=True)
    of = np.searchsorted(bounds, time, side="left")
    latest = np.full(len(bounds) + 1, np.iinfo(np.int64).min, np.int64)
    np.maximum.at(latest, of, time)
    node = np.full(len(latest), -1, np.int64)
    rows = np.flatnonzero(time == latest[of])
    node[of[rows]] = rows  # the last one is written last
    before = np.maximum.accumulate(np.where(node >= 0, np.arange(len(node)), -1))[place]
    return np.where(before >= 0, node[before], int(time.argmin()))


def host_classes(capture: Capture) -> Kinds:
    """Returns the class of the time in which each host row is innermost; one more, the last, for none."""

    def make() -> Kinds:
        h = at.host(capture)
        of_kind = np.full(len(S.HOST_KINDS), PLACE["host_other"], np.int8)
        of_kind[[S.FRAME, S.MODULE]] = PLACE["host_python"]
        of_kind[S.OPERATOR], of_kind[S.CALL] = PLACE["host_operator"], PLACE["host_runtime"]
        out = np.append(of_kind[h.kind], np.int8(PLACE["host_other"]))
        loads = B.loading_rows(capture, S.OPERATOR, S.ANNOTATION, S.FRAME, S.MODULE)
        if len(loads):
            inside = np.zeros(len(out) + 1, np.int32)
            np.add.at(inside, loads, 1)
            np.subtract.at(inside, h.end[loads], 1)
            out[np.flatnonzero(np.cumsum(inside)[:-2] > 0)] = PLACE["dataloader"]
        return out

    return memo(capture, ("critical.host_classes",), make)


def device_classes(capture: Capture) -> Kinds:
    """Returns the class of each device row's time."""

    def make() -> Kinds:
        kind, sort = B.classes(capture), capture.device["kind"].to_numpy()
        out = kinds_at(capture, np.arange(len(kind)), {name: PLACE[f"kernel_{name}"] for name in KERNEL_KINDS}).astype(np.int8)
        out[kind == B.COMMUNICATION] = PLACE["communication"]
        out[kind == B.MEMCPY] = PLACE["copy"]
        out[sort == S.MEMSET] = PLACE["memset"]
        return out

    return memo(capture, ("critical.device_classes",), make)
