"""What the rules about copies look at: the copies of a selection, what held the host, and which time could be saved."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo, texts
from tb_sol_plugin.metrics.breakdown import COMMUNICATION, COMPUTATION, classes
from tb_sol_plugin.metrics.memcpy.blocking import idle_spans, under
from tb_sol_plugin.metrics.memcpy.link import latency_fit
from tb_sol_plugin.metrics.memcpy.patterns.finding import CopyFinding
from tb_sol_plugin.metrics.memcpy.patterns.say import evidence
from tb_sol_plugin.metrics.memcpy.thresholds import Thresholds
from tb_sol_plugin.metrics.memcpy.words import COLORS
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv

Mask = npt.NDArray[np.bool_]
Places = npt.NDArray[np.intp]


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
        ends = [self.found[c].astype(str).str.startswith("Managed").to_numpy() for c in ("src_kind", "dst_kind")]
        return np.asarray(ends[0] | ends[1], np.bool_)

    @cached_property
    def path(self) -> npt.NDArray[np.int64]:
        """A number per chain of operators around the call: equal for equal names from the innermost to the outermost."""
        h = at.host(self.capture)
        if not len(h.start):
            return np.zeros(len(self.found), np.int64)
        name = texts.codes(self.capture.host["name"])
        row = self.found["operator"].to_numpy().astype(np.int64)
        code = np.zeros(len(row), np.int64)
        while (row >= 0).any():
            safe = np.maximum(row, 0)
            counts = (row >= 0) & (h.kind[safe] == S.OPERATOR)
            with np.errstate(over="ignore"):
                code = np.where(counts, code * 1_000_003 + name[safe] + 1, code)
            row = np.where(row >= 0, h.parent[safe], -1)
        return code

    def under(self, *, operator: str = "", annotation: str = "") -> Mask:
        """Copies whose call lies inside of an operator, or of a user range, whose name matches an expression from its start on."""
        wanted, kind = (operator, S.OPERATOR) if operator else (annotation, S.ANNOTATION)
        if not len(self.capture.host):
            return np.zeros(len(self.found), bool)
        expression = re.compile(wanted)
        named = texts.where(self.capture.host["name"], lambda n: expression.match(n) is not None)
        return under(self.capture, self.found, named & (at.host(self.capture).kind == kind))

    # -- time that could be saved -----------------------------------------------------------------------------

    def on_device(self, rows: Places) -> iv.Spans:
        """When some copies run while no kernel of their device does, inside the windows."""
        device = self.found["device"].to_numpy()[rows]
        parts = []
        for one in np.unique(device).tolist():
            mine = rows[device == one]
            parts.append(iv.subtract(iv.union(self.start[mine], self.end[mine]), _kernels(self.capture, one)))
        return iv.intersect(iv.merge(*parts), self.windows) if parts else iv.empty()

    def on_host(self, rows: Places) -> iv.Spans:
        """When the device runs dry because some copies hold the host, inside the windows."""
        start, pause, resume, until = (self.held[c].to_numpy()[rows] for c in ("from_ns", "pause_ns", "resume_ns", "idle_until_ns"))
        held = iv.union(np.concatenate((start, resume)), np.concatenate((pause, until)))
        return iv.intersect(iv.intersect(idle_spans(self.capture), held), self.windows)

    def fit(self, direction: str) -> tuple[float, float] | None:
        """(latency in ns, bytes/s) of a direction, None where the copies do not show it."""
        return latency_fit(self.found, direction)

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


def _kernels(capture: Capture, device: int) -> iv.Spans:
    """When a device computes or communicates."""

    def make() -> iv.Spans:
        table = capture.device
        kind = classes(capture)
        own = (table["device"].to_numpy() == device) & (table["kind"].to_numpy() == S.KERNEL)
        own &= (kind == COMPUTATION) | (kind == COMMUNICATION)
        start = table["start_ns"].to_numpy()[own]
        return iv.union(start, start + table["duration_ns"].to_numpy()[own])

    return memo(capture, ("copies.kernels", device), make)
