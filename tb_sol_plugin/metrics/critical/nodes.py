"""Lays out the moments of a recording: two per event, its start and its end.

Nodes of the host come first, thread by thread in order of time; equal times stand as the events nest. Then those of the device, by device
and stream, start and end of one event after the other. Not nodes: copies of annotations, records of synchronization, instants, the
recorder's own work, and rows that a captured graph was put into the tables with: they take no time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.critical import passes
from tb_sol_plugin.metrics.critical.assembly import moments_of_threads
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask, Rows


@dataclass(frozen=True)
class Nodes:
    """When each node is, and what it is of.

    time: of each, ns. hosts: how many are of the host, which come first. row: host row of each of these. opens: whether it is its start.
    begins: whether it is the first of its thread. inside: the innermost host row right after each, -1 none. start, end: nodes of each host
    row, -1 none. device: device rows in order of their nodes. place: of each device row in that order. stream: number of the stream of each
    device event in that order. unordered: nodes whose time and nesting contradict each other.
    """

    time: Ints
    hosts: int
    row: Rows
    opens: Mask
    begins: Mask
    inside: Rows
    start: Rows
    end: Rows
    device: Ints
    place: Ints
    stream: Ints
    unordered: int

    def device_start(self, rows: npt.NDArray[np.integer]) -> Ints:
        """Returns the start nodes of device rows; their end nodes come right after."""
        found: Ints = self.hosts + 2 * self.place[rows]
        return found

    def device_rows(self, nodes: npt.NDArray[np.integer]) -> Ints:
        """Returns the device rows whose start or end some nodes are, all of them of devices."""
        found: Ints = self.device[(nodes - self.hosts) // 2]
        return found


def nodes_of(capture: Capture) -> Nodes:
    """Returns the nodes of a recording, laid out once."""
    return memo(capture, ("critical.nodes",), lambda: _nodes(capture))


def _nodes(capture: Capture) -> Nodes:
    row, opens, time, unordered = _of_threads(capture)
    thread = at.host(capture).thread[row]
    begins = np.concatenate((np.ones(min(len(row), 1), np.bool_), thread[1:] != thread[:-1]))
    of_row = np.full((2, len(capture.host)), -1, np.int32)
    place = np.arange(len(row), dtype=np.int32)
    of_row[0][row[opens]], of_row[1][row[~opens]] = place[opens], place[~opens]
    device, stream = _of_streams(capture)
    start = capture.device["start_ns"].to_numpy()[device]
    moments = np.empty(2 * len(device), np.int64)
    moments[0::2], moments[1::2] = start, start + capture.device["duration_ns"].to_numpy()[device]
    of_device = np.empty(len(device), np.int64)
    of_device[device] = np.arange(len(device))
    return Nodes(
        np.concatenate((time, moments)), len(row), row, opens, begins, passes.innermost(row, opens, begins), of_row[0], of_row[1], device,
        of_device, stream, unordered,
    )  # fmt: skip


def _of_threads(capture: Capture) -> tuple[Rows, Mask, Ints, int]:
    """Returns (host row, whether it is its start, time) of the nodes of all threads in their order, and how many contradict the nesting.

    """
    h = at.host(capture)
    kept = h.kind != S.OTHER
    kept[at.captured_rows(capture)] = False
    before = np.concatenate(([0], np.cumsum(kept)))
    rows = np.flatnonzero(kept)
    dropped = np.flatnonzero(~kept)
    around = np.zeros(len(kept) + 1, np.int64)  # dropped rows around each row
    np.add.at(around, dropped, 1)
    np.subtract.at(around, h.end[dropped], 1)
    depth = capture.host["depth"].to_numpy()[rows] - np.cumsum(around)[rows]
    row, opens, time = moments_of_threads(rows, depth, before[h.end[rows]], h.start[rows], h.duration[rows])
    thread = h.thread[row]
    wrong = (time[1:] < time[:-1]) & (thread[1:] == thread[:-1])
    if wrong.any():  # ends of events that do not nest: in order of time, equal ones as they nest
        order = np.lexsort((time, thread))
        row, opens, time = row[order], opens[order], time[order]
    return row, opens, time, int(wrong.sum())


def _of_streams(capture: Capture) -> tuple[Ints, Ints]:
    """Returns (device rows by device, stream and start, the number of each one's stream)."""
    device = capture.device
    if not len(device):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    stream, _ = arrays.factorize([arrays.numbered(device[c].to_numpy())[0] for c in ("device", "stream")])
    start = device["start_ns"].to_numpy()
    order = np.lexsort((start + device["duration_ns"].to_numpy(), start, stream))
    return order, stream[order]
