"""From the measured step to the speed of light: every nanosecond of the looked-at windows in exactly one part.

    total = waits for input + waits for the host + exposed communication + exposed copies
          + per kind (time of modelled work above its limit) + time without a cost model + speed of light

Parts of the device's time are exclusive: what several events cover at once counts for the one that computes first, communication
counts where nothing computes, copies where neither runs. The limit of an operator is the one of `metrics.work`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo, texts
from tb_sol_plugin.metrics.breakdown import COMMUNICATION, COMPUTATION, MEMCPY, classes
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.step_split import DATALOADER
from tb_sol_plugin.metrics.work import KINDS, Work, work
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.device import device_for
from tb_sol_plugin.tables import intervals as iv

Ints = npt.NDArray[np.int64]
NO_KIND: Final = len(KINDS)
"""Kind of device time that no cost model covers."""


@dataclass(frozen=True)
class Waterfall:
    """All times in ns, summed over `steps` windows of `windows`.

    own: per device row its exclusive part inside the windows. kind: index into KINDS per device row, NO_KIND without a model.
    kind_ns: exclusive time of modelled work by kind; limit_ns: its limit by kind. counted: per row of Work.ops, whether its limit is in.
    """

    windows: iv.Spans
    steps: int
    stepped: bool
    total_ns: int
    busy_ns: int
    input_wait_ns: int
    host_wait_ns: int
    exposed_communication_ns: int
    exposed_copies_ns: int
    unmodelled_ns: int
    kind_ns: dict[str, int]
    limit_ns: dict[str, float]
    own: Ints
    kind: npt.NDArray[np.int8]
    idle: iv.Spans
    loading: iv.Spans
    counted: npt.NDArray[np.bool_]
    work: Work

    @property
    def sol_ns(self) -> float:
        """Sum of the limits of all modelled work."""
        return sum(self.limit_ns.values())

    @property
    def modelled_kernel_share(self) -> float | None:
        """Part of the device's own work (communication and copies over a link set aside) that a cost model covers; None without any."""
        known = sum(self.kind_ns.values())
        return known / (known + self.unmodelled_ns) if known + self.unmodelled_ns else None

    @property
    def ratio(self) -> float | None:
        """Speed of light over the measured time; None without limits."""
        return self.sol_ns / self.total_ns if self.has_limits and self.total_ns else None

    @property
    def has_limits(self) -> bool:
        """Whether the device's limits are known, memory bandwidth among them, and any work has one."""
        return self.work.spec is not None and bool(self.counted.any())


def windows_of(capture: Capture, part: Scope) -> tuple[iv.Spans, tuple[int, ...]]:
    """(GPU-aware bounds of the selected steps, their rows); incomplete steps are left out where there are others.

    Without a recorded step the window of the selection, and no rows.
    """
    if not part.rows:
        return iv.one(*part.window_ns), ()
    complete = capture.steps["complete"].to_numpy()
    rows = tuple(r for r in part.rows if complete[r]) or part.rows
    chosen = list(rows)
    return iv.union(capture.steps["start_ns"].to_numpy()[chosen], capture.steps["end_ns"].to_numpy()[chosen]), rows


def waterfall(capture: Capture, part: Scope, limits: str = "") -> Waterfall:
    """The split of the selected steps under the matched limits, or those of the device named by `limits` (BadQuery if unknown)."""
    spec = device_for(capture, limits)
    key = ("waterfall", part.label, part.rows, part.window_ns, spec.key if spec else "", limits)
    return memo(capture, key, lambda: _waterfall(capture, part, work(capture, spec)))


def _waterfall(capture: Capture, part: Scope, done: Work) -> Waterfall:
    windows, rows = windows_of(capture, part)
    device = capture.device
    modelled = done.ops["modelled"].to_numpy()
    owner = done.owner if len(done.owner) == len(device) else np.full(len(device), -1, np.int32)
    has = owner >= 0
    kind = np.full(len(device), NO_KIND, np.int8)
    kind[has] = np.where(modelled, done.ops["kind"].cat.codes.to_numpy(), NO_KIND)[owner[has]]
    layer = classes(capture).copy()
    layer[(layer == MEMCPY) & (kind != NO_KIND)] = COMPUTATION
    start = device["start_ns"].to_numpy()
    own, busy = _exclusive(start, start + device["duration_ns"].to_numpy(), layer, windows)
    total = iv.length(windows)
    idle = iv.subtract(windows, busy)
    loading = loading_spans(capture)
    waits = iv.length(iv.intersect(idle, loading))
    is_kind = [(layer == COMPUTATION) & (kind == k) for k in range(len(KINDS))]
    known = done.spec is not None and done.spec.memory_bandwidth is not None and not done.by_host_time
    counted = modelled & known & np.isfinite(done.ops["sol_ns"].to_numpy(dtype=np.float64))
    if rows:
        counted &= np.isin(done.ops["step"].to_numpy(), rows)
    else:
        counted &= part.host[done.ops["host"].to_numpy()]
    sol = np.where(counted, done.ops["sol_ns"].to_numpy(dtype=np.float64), 0.0)
    limit = np.bincount(done.ops["kind"].cat.codes.to_numpy(), sol, minlength=len(KINDS)) if len(sol) else np.zeros(len(KINDS))
    return Waterfall(
        windows=windows,
        steps=max(len(rows), 1),
        stepped=bool(rows),
        total_ns=total,
        busy_ns=iv.length(busy),
        input_wait_ns=waits,
        host_wait_ns=iv.length(idle) - waits,
        exposed_communication_ns=int(own[layer == COMMUNICATION].sum()),
        exposed_copies_ns=int(own[layer == MEMCPY].sum()),
        unmodelled_ns=int(own[(layer == COMPUTATION) & (kind == NO_KIND)].sum()),
        kind_ns={k: int(own[is_kind[i]].sum()) for i, k in enumerate(KINDS)},
        limit_ns={k: float(limit[i]) for i, k in enumerate(KINDS)},
        own=own,
        kind=np.where(layer == COMPUTATION, kind, NO_KIND).astype(np.int8),
        idle=idle,
        loading=loading,
        counted=counted,
        work=done,
    )


def loading_spans(capture: Capture) -> iv.Spans:
    """When some thread fetches a batch: `enumerate(DataLoader)#….__next__` and the like."""

    def make() -> iv.Spans:
        name = capture.host["name"]
        h = at.host(capture)
        rows = texts.where(name, lambda n: DATALOADER.match(n) is not None) & np.isin(h.kind, (S.ANNOTATION, S.OPERATOR))
        return iv.union(h.start[rows], h.stop[rows])

    return memo(capture, ("waterfall.loading",), make)


def _exclusive(start: Ints, stop: Ints, layer: npt.NDArray[np.int8], windows: iv.Spans) -> tuple[Ints, iv.Spans]:
    """(exclusive part per row inside the windows, busy time inside them). Layers take precedence in the order of their numbers.

    Within a layer an event owns what no earlier one covers: its interval after the furthest end so far.
    """
    own = np.zeros(len(start), np.int64)
    free = windows
    for level in (COMPUTATION, COMMUNICATION, MEMCPY):
        rows = np.flatnonzero((layer == level) & (stop > start))
        if not len(rows):
            continue
        rows = rows[np.argsort(start[rows], kind="stable")]
        reach = np.concatenate((np.full(1, np.iinfo(np.int64).min), np.maximum.accumulate(stop[rows])[:-1]))
        first = np.maximum(start[rows], reach)
        last = np.maximum(stop[rows], first)
        own[rows] = iv.overlap_with(first, last, free)
        free = iv.subtract(free, iv.union(start[rows], stop[rows]))
    return own, iv.subtract(windows, free)
