"""Replays findings about time: what a step takes less where each one's time is gone and every dependency stays.

A finding takes time of device events, of operator calls in proportion to their events, and idle time of the device; of idle time the replay
takes what holds the step in it. The saving is then a schedule: anything from all of that time to none, where other work holds the step.
Where the critical path is graded poor, or nothing ran on a device, savings stay what the findings take at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from tb_sol_plugin.metrics import memo_under
from tb_sol_plugin.metrics.critical.edges import DEVICE
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.path import path_of
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.critical.window import Window, window_of_steps
from tb_sol_plugin.metrics.rules.engine import LEAST, Finding, combined_ns, ranked
from tb_sol_plugin.metrics.rules.time import time_findings
from tb_sol_plugin.metrics.time.scope import Scope, complete_steps, is_capture
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints, Rows


@dataclass(frozen=True)
class Replayed:
    """Findings with the savings of a replay, in order. grade: of the critical path; "" where nothing was replayed: savings are at most.

    error_ns: of a saving, per step. taken: what each takes of which edges of the window, ns, by its id.
    """

    found: list[Finding]
    grade: str = ""
    error_ns: int = 0
    steps: int = 1
    window: Window | None = None
    taken: dict[str, tuple[Rows, Ints]] = field(default_factory=dict)

    @property
    def shown(self) -> list[Finding]:
        """Those whose time is not hidden behind other work."""
        return [f for f in self.found if not f.hidden]

    def together_ns(self, some: Sequence[Finding]) -> int:
        """Returns what some of them save together, per step: replayed at once, else the sum of what they save at most."""
        if self.window is None:
            return combined_ns(some)
        lag = self.window.lag.copy()
        for one in some:
            edge, ns = self.taken[one.id]
            np.subtract.at(lag, edge, ns)
        saved = round(self.window.moved_ns(np.maximum(lag, 0)) / self.steps)
        return min(max(saved, max((f.saving for f in some), default=0)), sum(f.removed or 0 for f in some))


def replayed_findings(capture: Capture, part: Scope, waterfall: Waterfall) -> Replayed:
    """Returns all findings about time of a selection, with the savings of a replay where that can be trusted."""
    key = ("replayed_findings", part.label, part.rows, part.window_ns)
    found = time_findings(capture, part, waterfall)
    return memo_under(capture, waterfall.work.spec, key, lambda: replayed(capture, part, waterfall, found))


def replayed(capture: Capture, part: Scope, waterfall: Waterfall, found: Sequence[Finding]) -> Replayed:
    """Returns findings with the savings of a replay; as they are where the critical path is graded poor or nothing ran on a device."""
    owner = waterfall.work.owner
    asked = bool(found) and not is_capture(capture) and len(capture.device) > 0 and len(owner) == len(capture.device)
    if not asked or not len(graph_of(capture).time):
        return Replayed(ranked(found))
    where = complete_steps(capture, part)
    trust = trust_of(capture, where)
    if trust.grade == "poor":
        return Replayed(ranked(found))
    window, path = window_of_steps(capture, where), path_of(capture, where)
    runs = np.flatnonzero(window.kind == DEVICE)
    row = window.graph.nodes.device_rows(window.in_graph(window.target[runs]))
    of_path = window.edge_places(path.edge)
    holds = of_path >= 0
    edge, start, stop = of_path[holds], path.start[holds], (path.start + path.duration)[holds]
    steps = len(path.rows)
    step_ns = int((path.end - path.begin).sum()) / steps
    out, taken, lag = [], {}, window.lag.copy()
    for one in found:
        removed = np.rint(_of_device(capture, owner, one)[row]).astype(np.int64)
        some = np.flatnonzero(removed)
        idle = iv.overlap_with(start, stop, one.idle) if len(one.idle[0]) else np.zeros(0, np.int64)
        at = np.flatnonzero(idle)
        edges, ns = np.concatenate((runs[some], edge[at])), np.concatenate((removed[some], idle[at]))
        np.subtract.at(lag, edges, ns)
        lag[edges] = np.maximum(lag[edges], 0)
        saved = min(max(round(window.moved_ns(lag) / steps), 0), one.saving)
        lag[edges] = window.lag[edges]
        taken[one.id] = edges.astype(np.int32), ns
        out.append(replace(one, saving=saved, removed=one.saving, hidden=saved < LEAST * step_ns))
    return Replayed(ranked(out), trust.grade, round(trust.error * step_ns), steps, window, taken)


def _of_device(capture: Capture, owner: Rows, found: Finding) -> Floats:
    """Returns ns that a finding takes of each device row: of a call's in proportion to their times, of other events as it says."""
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
