"""Replays findings about time on devices: what a step takes less where their events are as much shorter as each finding says.

A saving at most counts the time that a fix removes. What the step takes less can be anything from none of that, where other work holds it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tb_sol_plugin.metrics.critical.edges import DEVICE
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.path import path_of
from tb_sol_plugin.metrics.critical.replay import trust_of, window_of_steps
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.time.scope import Scope, complete_steps, is_capture
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Floats, Rows


def replayed(capture: Capture, part: Scope, owner: Rows, found: Sequence[Finding]) -> list[int | None]:
    """Returns what a step takes less by replay for each finding, ns; None where that cannot be said.

    It cannot of findings that take idle time, of those that take nothing of a device, and where the critical path is graded poor. owner:
    the operator call of each device row, -1 for none.
    """
    out: list[int | None] = [None] * len(found)
    if is_capture(capture) or not len(capture.device) or len(owner) != len(capture.device) or not len(graph_of(capture).time):
        return out
    where = complete_steps(capture, part)
    steps = len(path_of(capture, where).rows)
    if trust_of(capture, where).grade == "poor":
        return out
    graph, window = graph_of(capture), window_of_steps(capture, where)
    runs = np.flatnonzero(graph.edges.kind == DEVICE)
    row = graph.nodes.device_rows(graph.edges.target[runs])
    for i, one in enumerate(found):
        removed = _removed(capture, owner, one)
        if removed is None:
            continue
        lag = graph.lag.copy()
        lag[runs] = np.maximum(lag[runs] - np.rint(removed[row]).astype(np.int64), 0)
        out[i] = round(window.moved_ns(lag) / steps)
    return out


def _removed(capture: Capture, owner: Rows, found: Finding) -> Floats | None:
    """Returns ns that a finding takes of each device row: of a call's in proportion to their times; None where it takes something else."""
    if found.subject == "memory" or len(found.idle[0]) or not (len(found.claimed) or len(found.events_ns)):
        return None
    duration = capture.device["duration_ns"].to_numpy()
    out = np.zeros(len(duration))
    if len(found.claimed):
        calls = int(max(int(owner.max(initial=-1)), int(found.rows.max()))) + 1
        taken = np.zeros(calls + 1)  # the last for no call
        np.add.at(taken, found.rows, found.claimed)
        owned = np.bincount(owner[owner >= 0], duration[owner >= 0], minlength=calls + 1)
        part = np.divide(taken, owned, out=np.zeros(calls + 1), where=owned > 0)
        out += np.minimum(part, 1.0)[owner] * duration
    np.add.at(out, found.events, found.events_ns)
    return np.asarray(np.minimum(out, duration), np.float64)
