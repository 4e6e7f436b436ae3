"""Finds the launches of graphs in a recording, and how long each waited for its first event on the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints


@dataclass(frozen=True)
class GraphLaunches:
    """Per graph launch with device events: step (-1 outside), captured batch (-1 unknown), mode ("" unknown), when it was called, and ns
    from then to its first event. waits: the union of these times.
    """

    step: Ints
    captured: Ints
    mode: list[str]
    begun: Ints
    latency: Ints
    waits: iv.Spans


def graph_launches(capture: Capture) -> GraphLaunches:
    """Returns the graph launches of a recording, in order of their calls on the host."""
    return memo(capture, ("graph launches",), lambda: _graph_launches(capture))


def _graph_launches(capture: Capture) -> GraphLaunches:
    device = capture.device
    rows = np.flatnonzero(device["graph"].to_numpy())
    call, first = np.unique(device["call"].to_numpy()[rows], return_index=True)  # device rows stand by start
    rows = rows[first]
    begun = at.host(capture).start[call] if len(call) else np.zeros(0, np.int64)
    table = capture.tables[S.GRAPH_LAUNCHES.name]
    known = {int(host): place for place, host in enumerate(table["host"].tolist())}
    place = np.array([known.get(int(row), -1) for row in call.tolist()], np.int64)
    batch = np.append(table["captured_batch"].to_numpy(), -1)[place]
    modes = [*map(str, table["mode"].tolist()), ""]
    step, start = (device[name].to_numpy()[rows].astype(np.int64) for name in ("step", "start_ns"))
    latency = np.maximum(start - begun, 0)
    return GraphLaunches(step, batch, [modes[i] for i in place.tolist()], begun, latency, iv.union(begun, begun + latency))
