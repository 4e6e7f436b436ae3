"""Writes the critical path into a trace file: marks on its events, a row of its own with each in turn, and links along its edges."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Final

import numpy as np

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical.edges import DEVICE, HOST, KINDS
from tb_sol_plugin.metrics.critical.graph import Graph, graph_of
from tb_sol_plugin.metrics.critical.path import CLASSES, LABELS, Path, selected_path
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.window import Place, Window
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables.arrays import Ints, Mask

CATEGORY: Final = "critical_path"
MARK: Final = "critical"
"""Argument of the events on the path, as HolisticTraceAnalysis names it in its overlay."""
_IDS: Final = 5 * 10**9
"""Numbers of links of a path begin here, above those of launches."""
_BLOCK: Final = 50_000


def path_of_steps(capture: Capture) -> Path | None:
    """Returns the critical paths of all complete steps; None where no event takes time."""

    def make() -> Path | None:
        try:
            return selected_path(capture, Query())[1]
        except Unavailable:
            return None

    return memo(capture, ("timeline.path_of_steps",), make)


def marks_of(capture: Capture, table: str) -> Mask:
    """Returns which rows of the host or device table are on the critical path."""

    def make() -> Mask:
        out, path = np.zeros(len(capture.tables[table]), np.bool_), path_of_steps(capture)
        if path is not None:
            rows = path.host if table == "host" else path.device
            out[rows[rows >= 0]] = True
        return out

    return memo(capture, ("timeline.path_marks", table), make)


def path_lines(timeline: Timeline, window: Window, place: Place, where: Callable[[int, int], str]) -> Iterator[list[str]]:
    """Yields the critical paths of the complete steps inside a window as events of a trace file, some at a time.

    where: process and thread of a host row and device row, one of them -1, as JSON. Links are left out where the window has none.
    """
    path = path_of_steps(timeline.capture)
    if path is None:
        return
    process = place.process(json.dumps("critical path"))
    own = f'"cat": "{CATEGORY}", "pid": {process}, "tid": 0'
    lane = _lane(timeline, window, path)
    if not len(lane[0]):
        return
    yield [f'{{"ph": "M", "name": "process_name", "pid": {process}, "tid": 0, "ts": 0, "args": {{"name": "Critical path"}}}}']
    start, duration, event, kind = lane
    names = timeline.events.names.text
    name = [json.dumps(names[i]) for i in timeline.events.name_ids(event.astype(np.uint32)).tolist()]
    words = [json.dumps(LABELS[c]) for c in CLASSES]
    shown = zip(name, (start + place.offset_ns).tolist(), duration.tolist(), kind.tolist(), strict=True)
    out = [
        f'{{"ph": "X", {own}, "name": {text}, "ts": {trace_time(at)}, "dur": {trace_time(ns)}, "args": {{"class": {words[of]}}}}}'
        for text, at, ns, of in shown
    ]
    for at in range(0, len(out), _BLOCK):
        yield out[at : at + _BLOCK]
    if window.flows:
        yield from _links(timeline.capture, window, place, where, path)


def _lane(timeline: Timeline, window: Window, path: Path) -> tuple[Ints, Ints, Ints, Ints]:
    """Returns (start, duration, event id, class) of what stands on the path's own row: a stretch per event, of the class of most of it."""
    known = np.flatnonzero((path.device >= 0) | (path.host >= 0))
    start, end = path.start[known], (path.start + path.duration)[known]
    device, host = path.device[known].astype(np.int64), path.host[known].astype(np.int64)
    event = np.where(device >= 0, device + timeline.events.base("device"), host)
    changes = np.flatnonzero(np.concatenate(([True], (event[1:] != event[:-1]) | (start[1:] != end[:-1])))) if len(known) else known
    number = np.zeros(len(known), np.int64)
    number[changes[1:]] = 1
    order = np.lexsort((end - start, np.cumsum(number)))
    last = np.append(changes[1:], len(known)) - 1 if len(known) else changes
    kind = path.kind[known][order[last]].astype(np.int64)  # stretches keep their order, and the longest piece of each is its last
    start, end, event = start[changes], end[last], event[changes]
    inside = (start < window.end_ns) & (end > window.start_ns)
    start, end, event, kind = start[inside], end[inside], event[inside], kind[inside]
    if window.clip:
        start, end = np.maximum(start, window.start_ns), np.minimum(end, window.end_ns)
    return start, end - start, event, kind


def _links(
    capture: Capture, window: Window, place: Place, where: Callable[[int, int], str], path: Path
) -> Iterator[list[str]]:  # fmt: skip
    """Yields links along the edges of the path that lead from one event to another one."""
    graph = graph_of(capture)
    edge = path.edge[path.edge >= 0]
    edge = edge[np.concatenate(([True], edge[1:] != edge[:-1]))] if len(edge) else edge
    edge = edge[~np.isin(graph.edges.kind[edge], (HOST, DEVICE))]
    ends = [_ends(capture, graph, nodes[edge].astype(np.int64)) for nodes in (graph.edges.source, graph.edges.target)]
    inside = np.flatnonzero((ends[0][0] >= window.start_ns) & (ends[1][0] < window.end_ns))
    kinds = [KINDS[k] for k in graph.edges.kind[edge[inside]].tolist()]
    first = _IDS + 2 * _IDS * (place.number + 1)
    halves = [zip(*(column[inside].tolist() for column in end), strict=True) for end in ends]
    pairs = zip(kinds, *halves, strict=True)
    out: list[str] = []
    for i, (kind, (begin, *source), (end, *target)) in enumerate(pairs):
        own = f'"id": {first + i}, "name": "{CATEGORY}", "cat": "{CATEGORY}"'
        out.append(f'{{"ph": "s", {own}, {where(*source)}, "ts": {trace_time(begin + place.offset_ns)}, "args": {{"edge": "{kind}"}}}}')
        out.append(f'{{"ph": "f", "bp": "e", {own}, {where(*target)}, "ts": {trace_time(end + place.offset_ns)}}}')
        if len(out) >= _BLOCK:
            yield out
            out = []
    yield out


def _ends(capture: Capture, graph: Graph, node: Ints) -> tuple[Ints, Ints, Ints]:
    """Returns (time, host row, device row) of some nodes: a time inside of the event, as viewers look for what a link leads to there."""
    nodes = graph.nodes
    on_device = node >= nodes.hosts
    host, device = np.full(len(node), -1, np.int64), np.full(len(node), -1, np.int64)
    host[~on_device], device[on_device] = nodes.row[node[~on_device]], nodes.device_rows(node[on_device])
    start, duration = np.zeros((2, len(node)), np.int64)
    for table, rows in (("host", host), ("device", device)):
        some = rows >= 0
        start[some], duration[some] = (capture.tables[table][c].to_numpy()[rows[some]] for c in ("start_ns", "duration_ns"))
    return np.clip(graph.time[node], start, start + np.maximum(duration - 1, 0)), host, device


def trace_time(ns: int) -> str:
    """Returns ns as a number of µs, exactly."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    return f"{sign}{ns // 1000}.{ns % 1000:03d}"
