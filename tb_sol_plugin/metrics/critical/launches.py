"""Measures launches: one row per call that handed work to a device, with its delay and what was in the queue of the device."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.critical.device_edges import Work
from tb_sol_plugin.metrics.critical.edges import QUEUE_FULL
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.waits import outstanding_at
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.tables.table import Table, as_table

COLUMNS: Final = (
    "call", "operator", "annotation", "start_ns", "call_ns", "device_ns", "delay_ns", "queue_length", "dry", "short", "blocked",
)  # fmt: skip


def launches(capture: Capture, rows: Mask) -> Table:
    """Returns one row per call and device that launched work of a selection, in order of the calls, with COLUMNS:

    call (host row), operator, annotation (host rows of the innermost ones around it, -1), start_ns, call_ns, device_ns (sum of its work),
    delay_ns (to the start of its first work; -1 where that starts before the call, by clocks that differ), dry (its stream had nothing to
    do then), short (its work takes less time than the call), queue_length (commands launched to the device that had not started), blocked
    (the queue was full).
    """
    graph, h = graph_of(capture), at.host(capture)
    work, nodes = graph.work, graph.nodes
    launched = np.flatnonzero(work.call >= 0)
    if not rows[nodes.device[launched]].any():
        return as_table(pd.DataFrame({name: np.zeros(0, np.int64) for name in COLUMNS}))
    free = _free_since(work)
    operator, annotation = (capture.device[c].to_numpy().astype(np.int64) for c in ("operator", "annotation"))
    full = np.zeros(len(h.start), np.bool_)
    full[nodes.row[graph.edges.target[graph.edges.kind == QUEUE_FULL]]] = True
    parts = []
    for device in np.unique(work.device[launched]).tolist():
        mine = launched[work.device[launched] == device]
        mine = mine[np.lexsort((work.start[mine], work.call[mine]))]
        first = np.flatnonzero(np.diff(work.call[mine], prepend=-1))
        head, call = mine[first], work.call[mine][first]
        device_ns = np.add.reduceat((work.end - work.start)[mine], first)
        start = h.start[call]
        queue = outstanding_at(start, work.start[head], start)
        delay = work.start[head] - start
        wanted = np.logical_or.reduceat(rows[nodes.device[mine]], first)
        columns = [
            call.astype(np.int64), operator[nodes.device[head]], annotation[nodes.device[head]], start, h.duration[call], device_ns,
            np.where(delay >= 0, delay, -1), queue,
            (free[head] <= start) & (delay >= 0), device_ns < h.duration[call], full[call],
        ]  # fmt: skip
        parts.append([column[wanted] for column in columns])
    joined = [np.concatenate(column) for column in zip(*parts, strict=True)]
    order = np.argsort(joined[0], kind="stable")
    return as_table(pd.DataFrame({name: column[order] for name, column in zip(COLUMNS, joined, strict=True)}, copy=False))


def _free_since(work: Work) -> Ints:
    """Returns when all earlier work of each event's stream had ended; the least number where there is none."""
    out = np.full(len(work.end), np.iinfo(np.int64).min, np.int64)
    bounds = np.flatnonzero(np.diff(work.stream, prepend=-1, append=-1))
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        out[low + 1 : high] = np.maximum.accumulate(work.end[low : high - 1])
    return out
