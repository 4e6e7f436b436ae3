"""What the rules about copies look at: the copies of a selection, what held the host, and which time could be saved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memcpy.blocking import idle_spans, under
from tb_sol_plugin.metrics.memcpy.link import latency_fit
from tb_sol_plugin.metrics.memcpy.patterns.finding import CopyFinding
from tb_sol_plugin.metrics.memcpy.patterns.say import evidence
from tb_sol_plugin.metrics.memcpy.records import busy
from tb_sol_plugin.metrics.memcpy.thresholds import Thresholds
from tb_sol_plugin.metrics.memcpy.words import COLORS
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Mask, Places


@dataclass(frozen=True)
class Case:
    """A selection of one recording before the rules.

    found: `copies(capture, where.device)`; held: `blocking` of it, in the same order. inside: copies that count, those of the looked-at
    steps (all where none was recorded). windows: these steps in time. steps: what a saving divides by.
    """

    capture: Capture
    where: Scope
    found: pd.DataFrame
    held: pd.DataFrame
    limits: dict[str, tuple[float, str]]
    at: Thresholds
    inside: Mask
    windows: iv.Spans
    steps: int

    # -- columns ----------------------------------------------------------------------------------------------

    @cached_property
    def direction(self) -> npt.NDArray[np.object_]:
        return self.found["direction"].to_numpy(object)

    @cached_property
    def bytes(self) -> npt.NDArray[np.int64]:
        return self.found["bytes"].to_numpy()

    @cached_property
    def duration(self) -> npt.NDArray[np.int64]:
        return self.found["duration_ns"].to_numpy()

    @cached_property
    def start(self) -> npt.NDArray[np.int64]:
        return self.found["start_ns"].to_numpy()

    @cached_property
    def end(self) -> npt.NDArray[np.int64]:
        return self.start + self.duration

    @cached_property
    def step(self) -> npt.NDArray[np.int64]:
        """Row of the step, -1 outside; a recording without steps is one."""
        steps = self.found["step"].to_numpy().astype(np.int64)
        return steps if self.where.rows else np.zeros(len(steps), np.int64)

    @cached_property
    def pageable(self) -> Mask:
        return np.asarray((self.found["src_kind"] == "Pageable") | (self.found["dst_kind"] == "Pageable"), np.bool_)

    @cached_property
    def managed(self) -> Mask:
        out = np.zeros(len(self.found), np.bool_)
        for name in ("src_kind", "dst_kind"):
            code, kinds = pd.factorize(self.found[name].to_numpy(object))
            out |= np.array([str(k).startswith("Managed") for k in kinds], np.bool_)[code] if len(code) else out
        return out

    @cached_property
    def path(self) -> npt.NDArray[np.int64]:
        """A number per chain of operators around the call: equal for equal names from the innermost to the outermost."""
        h = at.host(self.capture)
        if not len(h.start):
            return np.zeros(len(self.found), np.int64)
        name = arrays.codes(self.capture.host["name"])
        row = self.found["operator"].to_numpy().astype(np.int64)
        distinct, place = np.unique(row, return_inverse=True)
        code, left = np.zeros(len(distinct), np.int64), np.flatnonzero(distinct >= 0)
        row = distinct[left]
        while len(left):
            counts = h.kind[row] == S.OPERATOR
            with np.errstate(over="ignore"):
                code[left[counts]] = code[left[counts]] * 1_000_003 + name[row[counts]] + 1
            row = h.parent[row].astype(np.int64)
            left, row = left[row >= 0], row[row >= 0]
        return code[place.reshape(-1)]

    def under(self, *, operator: str = "", annotation: str = "") -> Mask:
        """Copies whose call lies inside of an operator, or of a user range, whose name matches an expression from its start on."""
        wanted, kind = (operator, S.OPERATOR) if operator else (annotation, S.ANNOTATION)
        if not len(self.capture.host):
            return np.zeros(len(self.found), bool)
        expression = re.compile(wanted)
        named = arrays.where(self.capture.host["name"], lambda n: expression.match(n) is not None)
        return under(self.capture, self.found, named & (at.host(self.capture).kind == kind))

    # -- time that could be saved -----------------------------------------------------------------------------

    def on_device(self, rows: Places) -> iv.Spans:
        """When some copies run while no kernel of their device does, inside the windows."""
        device = self.found["device"].to_numpy()[rows]
        parts = []
        for one in np.unique(device).tolist():
            mine = rows[device == one]
            parts.append(iv.subtract(iv.union(self.start[mine], self.end[mine]), busy(self.capture, one, communication=True)))
        return iv.intersect(iv.merge(*parts), self.windows) if parts else iv.empty()

    def on_host(self, rows: Places) -> iv.Spans:
        """When the device runs dry because some copies hold the host, inside the windows."""
        start, pause, resume, until = (self.held[c].to_numpy()[rows] for c in ("from_ns", "pause_ns", "resume_ns", "idle_until_ns"))
        held = iv.union(np.concatenate((start, resume)), np.concatenate((pause, until)))
        return iv.intersect(iv.intersect(idle_spans(self.capture), held), self.windows)

    def fit(self, direction: str) -> tuple[float, float] | None:
        """(latency in ns, bytes/s) of a direction, None where the copies do not show it."""
        if direction not in self._fits:
            self._fits[direction] = latency_fit(self.found, direction)
        return self._fits[direction]

    @cached_property
    def _fits(self) -> dict[str, tuple[float, float] | None]:
        return {}

    @cached_property
    def position(self) -> npt.NDArray[np.int64]:
        """Place of each copy among the events of the recording ordered by device, stream and start: neighbours follow each other."""
        return np.asarray(in_line(self.capture)[self.found["row"].to_numpy()], np.int64)

    # -- findings ---------------------------------------------------------------------------------------------

    def finding(
        self,
        rule: str,
        rows: Places,
        title: str,
        fix: str,
        *,
        spans: iv.Spans,
        most_ns: float = np.inf,
        host: bool = False,
        candidate: bool = False,
        several: bool = False,
        note: str = "",
        direction: str = "",
    ) -> list[CopyFinding]:
        """A finding whose saving is the time of `spans`, and no more than `most_ns` over all steps; none where that is nothing."""
        saving = int(min(most_ns, iv.length(spans))) // self.steps
        if not len(rows) or saving <= 0:
            return []
        main = direction or str(self.direction[rows][0])
        held = int(self.held["lost_ns"].to_numpy()[rows].sum()) // self.steps
        return [
            CopyFinding(
                rule, title, evidence(self.capture, self.found, self.held, rows, self.where, self.steps, saving if host else -1, note), fix,
                saving, host, candidate, main, rows, spans, held, self.steps, "host" if host else COLORS.get(main, "memcpy"), several,
            )
        ]  # fmt: skip


def in_line(capture: Capture) -> npt.NDArray[np.int64]:
    """Place of each device row among all, ordered by device, stream and start."""

    def make() -> npt.NDArray[np.int64]:
        device = capture.device
        order = np.lexsort((device["start_ns"].to_numpy(), device["stream"].to_numpy(), device["device"].to_numpy()))
        out = np.empty(len(order), np.int64)
        out[order] = np.arange(len(order))
        return out

    return memo(capture, ("copies.in_line",), make)
