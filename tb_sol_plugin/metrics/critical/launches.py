"""Measures launches: one row per call that handed work to a device, with its delay and what was in the queue of the device."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical.device_edges import Work
from tb_sol_plugin.metrics.critical.edges import QUEUE_FULL
from tb_sol_plugin.metrics.critical.graph import Graph, graph_of
from tb_sol_plugin.metrics.critical.waits import outstanding_at
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows
from tb_sol_plugin.tables.table import Table, as_table, frame_of

COLUMNS: Final = (
    "call", "operator", "annotation", "start_ns", "call_ns", "device_ns", "delay_ns", "queue_length", "dry", "short", "blocked",
)  # fmt: skip


class _Launched(NamedTuple):
    """The launches of a recording, by device and call.

    event: their work, by launch and start, as places among the work of the graph. first: the place of each one's first among these, and
    their number at the end. of: the launch of each device row, -1 none. queue, dry, blocked: of each, as `launches` says.
    """

    event: Rows
    first: Rows
    of: Rows
    queue: Rows
    dry: Mask
    blocked: Mask


def launches(capture: Capture, rows: Mask) -> Table:
    """Returns one row per call and device that launched work of a selection, in order of the calls, with COLUMNS:

    call (host row), operator, annotation (host rows of the innermost ones around it, -1), start_ns, call_ns, device_ns (sum of its work),
    delay_ns (to the start of its first work; -1 where that starts before the call, by clocks that differ), dry (its stream had nothing to
    do then), short (its work takes less time than the call), queue_length (commands launched to the device that had not started), blocked
    (the queue was full).
    """
    graph, h = graph_of(capture), at.host(capture)
    every = memo(capture, ("critical.launches",), lambda: _launched(capture, graph))
    work = graph.work
    wanted = arrays.in_use(every.of[rows], len(every.first) - 1)
    if not len(wanted):
        return as_table(pd.DataFrame({name: np.zeros(0, np.int64) for name in COLUMNS}))
    first = every.first[wanted]
    wanted = wanted[np.argsort(work.call[every.event[first]], kind="stable")]
    first, size = every.first[wanted], np.diff(every.first)[wanted]
    event, head = every.event[arrays.ranges(first, size)], every.event[first]
    call, start = work.call[head], h.start[work.call[head]]
    device_ns = np.add.reduceat(work.end[event] - work.start[event], np.cumsum(size) - size)
    delay = work.start[head] - start
    operator, annotation = (capture.device[c].to_numpy()[graph.nodes.device[head]].astype(np.int64) for c in ("operator", "annotation"))
    columns = [
        call, operator, annotation, start, h.duration[call], device_ns, np.where(delay >= 0, delay, -1),
        every.queue[wanted].astype(np.int64), every.dry[wanted] & (delay >= 0), device_ns < h.duration[call], every.blocked[wanted],
    ]  # fmt: skip
    return as_table(frame_of(dict(zip(COLUMNS, columns, strict=True))))


def _launched(capture: Capture, graph: Graph) -> _Launched:
    """Returns the launches of a recording: what needs all of it to be known."""
    work, nodes, h = graph.work, graph.nodes, at.host(capture)
    event = np.flatnonzero(work.call >= 0)
    event = event[arrays.lex_order(work.device[event], work.call[event], work.start[event])]
    device, call = work.device[event], work.call[event]
    first = np.flatnonzero((np.diff(device, prepend=-1) != 0) | (np.diff(call, prepend=-1) != 0))
    head = event[first]
    device, call = device[first], call[first]
    of = np.full(len(nodes.device), -1, np.int32)
    of[nodes.device[event]] = np.repeat(np.arange(len(first), dtype=np.int32), np.diff(first, append=len(event)))
    start, queue = h.start[call], np.zeros(len(first), np.int32)
    for one in np.unique(device).tolist():
        mine = device == one
        queue[mine] = outstanding_at(start[mine], work.start[head[mine]], start[mine])
    full = np.zeros(len(h.start), np.bool_)
    full[nodes.row[graph.edges.target[graph.edges.kind == QUEUE_FULL]]] = True
    places = np.append(first, len(event)).astype(np.int32)
    return _Launched(event.astype(np.int32), places, of, queue, _free_since(work)[head] <= start, full[call])


def _free_since(work: Work) -> Ints:
    """Returns when all earlier work of each event's stream had ended; the least number where there is none."""
    out = np.full(len(work.end), np.iinfo(np.int64).min, np.int64)
    bounds = np.flatnonzero(np.diff(work.stream, prepend=-1, append=-1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        out[low + 1 : high] = np.maximum.accumulate(work.end[low : high - 1])
    return out
