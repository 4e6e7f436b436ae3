"""Replays findings about time and about copies: what a step takes less where each one's time is gone and every dependency stays.

A finding takes time of device events, of operator calls in proportion to their events, and idle time of the device; of idle time the replay
takes what holds the step in it. One about copies takes what of them runs alone, or the idle time while they block the host. The saving is
then a schedule: anything from all of that time to none, where other work holds the step. Where the critical path is graded poor, or nothing
ran on a device, savings stay what the findings take at most.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np

from tb_sol_plugin.metrics import kept_with, meanwhile, memo, memo_under
from tb_sol_plugin.metrics.copies import records
from tb_sol_plugin.metrics.copies.thresholds import DEFAULT, Thresholds
from tb_sol_plugin.metrics.critical.edges import DEVICE
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.critical.path import path_of
from tb_sol_plugin.metrics.critical.replay import trust_of
from tb_sol_plugin.metrics.critical.window import Window, window_of_steps
from tb_sol_plugin.metrics.rules.copies import copy_findings
from tb_sol_plugin.metrics.rules.engine import LEAST, Finding, combined_ns, ranked
from tb_sol_plugin.metrics.rules.time import time_findings
from tb_sol_plugin.metrics.time.scope import Scope, complete_steps, is_capture
from tb_sol_plugin.metrics.time.waterfall import Waterfall, windows_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints, Rows
from tb_sol_plugin.units import human


@dataclass(frozen=True)
class Replayed:
    """Findings with the savings of a replay, in order. grade: of the critical path; "" where nothing was replayed: savings are at most.

    error_ns: of a saving, per step. window: returns what was replayed, which is large. taken: what each takes of which edges of it, ns, by
    its id.
    """

    found: list[Finding]
    grade: str = ""
    error_ns: int = 0
    steps: int = 1
    window: Callable[[], Window] | None = None
    taken: dict[str, tuple[Rows, Ints]] = field(default_factory=dict)

    @property
    def shown(self) -> list[Finding]:
        """Those whose time is not hidden behind other work."""
        return [f for f in self.found if not f.hidden]

    @property
    def shown_together_ns(self) -> int:
        """What those that are shown save together, per step."""
        return self.together_ns(self.shown)

    @property
    def words(self) -> str:
        """What its savings are."""
        return f"by replay of all dependencies, ± {human(self.error_ns, 'ns')}" if self.grade else "at most"

    def basis(self, one: Finding) -> str:
        """Returns what the saving of one of them is: `replay`, `hidden` or `at most`."""
        return ("hidden" if one.hidden else "replay") if self.grade else "at most"

    def together_ns(self, some: Sequence[Finding]) -> int:
        """Returns what some of them save together, per step: replayed at once, once for all that ask, else the sum of what they save at
        most.
        """
        if self.window is None:
            return combined_ns(some, self.steps)
        together: dict[tuple[str, ...], int] = self.__dict__.setdefault("_together", {})
        key = tuple(one.id for one in some)
        if key not in together:
            together[key] = self._replayed_ns(some, self.window())
        return together[key]

    def _replayed_ns(self, some: Sequence[Finding], window: Window) -> int:
        taken = [self.taken[one.id] for one in some]
        edges: Rows = np.concatenate([np.zeros(0, np.int32), *(edge for edge, _ in taken)])
        ns = np.concatenate([np.zeros(0, np.int64), *(own for _, own in taken)])
        saved = round(window.moved_ns(edges, ns) / self.steps)
        return min(max(saved, max((f.saving for f in some), default=0)), sum(f.removed or 0 for f in some))


def prepared(capture: Capture, part: Scope) -> None:
    """Begins with what a replay of a selection needs, while the caller looks for findings."""

    def make() -> None:
        if len(graph_of(capture).time):
            where = complete_steps(capture, part)
            trust_of(capture, where), window_of_steps(capture, where), path_of(capture, where)

    if len(capture.device) and not is_capture(capture):
        meanwhile(capture, make)


def replayed_findings(capture: Capture, part: Scope, waterfall: Waterfall) -> Replayed:
    """Returns all findings about time of a selection, with the savings of a replay where that can be trusted."""
    key = ("replayed_findings", part.label, part.rows, part.window_ns)
    found = time_findings(capture, part, waterfall)
    return memo_under(capture, waterfall.work.spec, key, lambda: replayed(capture, part, waterfall, found))


def replayed(capture: Capture, part: Scope, waterfall: Waterfall, found: Sequence[Finding]) -> Replayed:
    """Returns findings with the savings of a replay; as they are where the critical path is graded poor or nothing ran on a device."""
    owner = waterfall.work.owner
    if len(owner) != len(capture.device):
        return Replayed(ranked(found))
    duration = capture.device["duration_ns"].to_numpy()

    def owned() -> Floats:
        some = np.flatnonzero(owner >= 0)
        return np.asarray(np.bincount(owner[some], duration[some]), np.float64)

    def takes(rows: Ints) -> Callable[[Finding], Taken]:
        events = _Events(owner, duration, rows, kept_with(waterfall.work.ops, "replayed.owned", owned))
        return lambda one: (events.taken(one), one.idle)

    return _replayed(capture, part, found, takes)


def replayed_copies(
    capture: Capture, part: Scope, limits: dict[str, tuple[float, str]], thresholds: Thresholds = DEFAULT
) -> Replayed:  # fmt: skip
    """Returns all findings about the copies of a selection, with the savings of a replay where that can be trusted."""
    found = copy_findings(capture, part, limits, thresholds)
    key = ("replayed_copies", part.label, part.rows, part.window_ns, tuple(sorted(limits.items())), thresholds)
    steps = max(len(windows_of(capture, part)[1]), 1)

    def make() -> Replayed:
        rows = records.copies(capture, part.device)["row"].to_numpy() if found else np.zeros(0, np.int64)
        def taken(one: Finding, events: Ints) -> Taken:
            out, idle = _of_copies(capture, rows[one.rows], one, steps)
            return out[events], idle

        def takes(events: Ints) -> Callable[[Finding], Taken]:
            return lambda one: taken(one, events)

        return _replayed(capture, part, found, takes, thresholds.least_share, steps)

    return memo(capture, key, make)


Taken: TypeAlias = tuple[Floats, iv.Spans]
"""What a finding takes: ns of each of some device rows, and idle time."""


def _replayed(
    capture: Capture, part: Scope, found: Sequence[Finding], takes: Callable[[Ints], Callable[[Finding], Taken]],
    least: float = LEAST, steps: int = 1,
) -> Replayed:  # fmt: skip
    """Replays findings.

    takes: returns for some device rows what each finding takes of them. least: share of a step from which on a saving is not hidden. steps:
    what they are counted per without a replay.
    """
    if not found or is_capture(capture) or not len(capture.device) or not len(graph_of(capture).time):
        return Replayed(ranked(found), steps=steps)
    where = complete_steps(capture, part)
    trust = trust_of(capture, where)
    if trust.grade == "poor":
        return Replayed(ranked(found), steps=steps)
    window, path = window_of_steps(capture, where), path_of(capture, where)
    runs = np.flatnonzero(window.kind == DEVICE)
    row = window.graph.nodes.device_rows(window.in_graph(window.target[runs]))
    of_path = window.edge_places(path.edge).astype(np.int32)
    holds = of_path >= 0
    edge, start = of_path[holds], path.start[holds]
    stop = start + path.duration[holds]
    del of_path, holds  # of a long recording's path
    steps = len(path.rows)
    step_ns = int((path.end - path.begin).sum()) / steps
    of, out, taken, left = takes(row), [], {}, window.lag.copy()
    for one in found:
        of_rows, spans = of(one)
        removed = np.rint(of_rows).astype(np.int64)
        some = np.flatnonzero(removed)
        idle = iv.overlap_with(start, stop, spans) if len(spans[0]) else np.zeros(0, np.int64)
        at = np.flatnonzero(idle)
        edges: Rows = np.concatenate((runs[some].astype(np.int32), edge[at]))
        ns = np.concatenate((removed[some], idle[at]))
        saved = min(max(round(window.moved_ns(edges, ns, left) / steps), 0), one.saving)
        taken[one.id] = edges, ns
        out.append(replace(one, saving=saved, removed=one.saving, hidden=saved < least * step_ns))
    return Replayed(ranked(out), trust.grade, round(trust.error * step_ns), steps, lambda: window_of_steps(capture, where), taken)


def _of_copies(capture: Capture, rows: Ints, found: Finding, steps: int) -> Taken:
    """Returns what a finding about copies takes: of the copies what runs alone, else the idle time while they block the host.

    rows: device rows of its copies. steps: what its saving is counted per; it may leave a part of the time.
    """
    start, duration = (capture.device[c].to_numpy() for c in ("start_ns", "duration_ns"))
    out, idle = np.zeros(len(start)), found.spans
    if not found.host:
        part = min(1.0, found.saving * steps / max(iv.length(found.spans), 1))
        out[rows] = part * iv.overlap_with(start[rows], (start + duration)[rows], found.spans)
        idle = iv.subtract(found.spans, iv.union(start[rows], (start + duration)[rows]))
    return out, idle


class _Events:
    """Events of a device, of which findings take time: of a call's in proportion to their times, of other events as they say."""

    def __init__(self, owner: Rows, duration: Ints, rows: Ints, owned: Floats) -> None:
        """owner: the call that each event of the recording is of, -1 for none. duration: of each, ns. rows: those that are asked about.
        owned: ns of all events of each call.
        """
        self.all, self.rows = len(owner), rows
        self.owner, self.duration = owner[rows], duration[rows].astype(np.float64)
        self.owned = owned

    def taken(self, found: Finding) -> Floats:
        """Returns ns that a finding takes of each of them."""
        out = np.zeros(len(self.rows))
        if len(found.claimed):
            known = found.rows < len(self.owned)
            calls, part = found.rows[known], np.zeros(len(self.owned) + 1)  # the last for no call
            np.add.at(part, calls, found.claimed[known])
            calls = calls[self.owned[calls] > 0]
            share = np.zeros(len(part))
            share[calls] = part[calls] / self.owned[calls]
            out += np.minimum(share[self.owner], 1.0) * self.duration
        if len(found.events):
            every = np.zeros(self.all)
            np.add.at(every, found.events, found.events_ns)
            out += every[self.rows]
        return np.asarray(np.minimum(out, self.duration), np.float64)
