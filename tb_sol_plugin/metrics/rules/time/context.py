"""What rules look at, and the ledger that keeps two of them from claiming the same nanosecond.

Time that can be saved stands in three places: the calls of operators (`left`, ns per row of `Work.ops`), the idle time of the
device (`idle`) and the exposed parts of communication and copies, which one rule each reads from the waterfall. A rule takes
from `left` or `idle` what it claims; what is gone is offered to no later rule. So the savings of all findings add up, and their
sum is at most the time of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cost import Inputs
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.time.kernels import kernel_classes
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.metrics.time.waterfall import NO_KIND, Waterfall
from tb_sol_plugin.metrics.work.arguments import arguments_of
from tb_sol_plugin.metrics.work.joined import COUNTED
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, factorize


@dataclass
class Case:
    """One recording (or a selection of its steps) before the rules.

    time: per operator call its exclusive part of the device's time inside the windows; on a recording of the host, of the host's
    time. limit: its limit in ns, NaN unknown (of several devices as in the waterfall). left: what no rule has claimed of
    `time`. idle: idle spans that no rule has claimed. on_host: a recording without device work.
    """

    capture: Capture
    part: Scope
    fall: Waterfall
    time: Floats
    limit: Floats
    left: Floats
    idle: iv.Spans
    on_host: bool

    # -- shorthands -------------------------------------------------------------------------------------------

    @property
    def ops(self) -> pd.DataFrame:
        """Rows of `Work.ops`."""
        return self.fall.work.ops

    @property
    def spec(self) -> DeviceSpec | None:
        """The limits in use."""
        return self.fall.work.spec

    @property
    def vendor(self) -> str:
        """Who made the device: of the recording, "cpu" for one of the host."""
        return "cpu" if self.on_host else self.capture.facts.vendor

    @cached_property
    def flop(self) -> Floats:
        """Matrix FLOP per call, 0 where none or unknown."""
        return np.asarray(np.nan_to_num(self.ops["flop"].to_numpy(dtype=np.float64)), np.float64)

    @cached_property
    def bytes(self) -> Floats:
        """Least traffic per call, NaN unknown."""
        return np.asarray(self.ops["bytes"].to_numpy(dtype=np.float64), np.float64)

    @cached_property
    def known(self) -> Mask:
        """Calls with a limit inside the windows."""
        return np.isfinite(self.limit) & (self.time > 0)

    def named(self, test: Callable[[str], bool]) -> Mask:
        """Calls whose operator's name passes a test."""
        return arrays.where(self.ops["name"], test)

    def of_kind(self, *kinds: str) -> Mask:
        """Calls of some kinds of work."""
        return arrays.where(self.ops["kind"], frozenset(kinds).__contains__)

    def of_type(self, *types: str) -> Mask:
        """Calls that compute in one of some types."""
        return arrays.where(self.ops["dtype"], frozenset(types).__contains__)

    def each(self, ns: float) -> int:
        """Per step."""
        return round(ns / self.fall.steps)

    # -- the ledger -------------------------------------------------------------------------------------------

    def claim(self, rows: Ints, wanted: Floats) -> Floats:
        """Take up to `wanted` ns of each call; returns what was granted."""
        got = np.clip(np.nan_to_num(wanted), 0.0, self.left[rows])
        self.left[rows] -= got
        return got

    def claim_idle(self, spans: iv.Spans) -> int:
        """Take the idle time inside `spans`; returns how much that was."""
        got = iv.length(iv.intersect(self.idle, spans))
        if got:
            self.idle = iv.subtract(self.idle, spans)
        return got

    @cached_property
    def copy_left(self) -> Floats:
        """What no rule has claimed of the exclusive time of each copy, per device row; 0 for other rows and for the work of calls."""
        copy = (self.capture.device["kind"].to_numpy() == S.MEMCPY) & (self.fall.kind == NO_KIND)
        return np.where(copy, self.fall.own, 0).astype(np.float64)

    # -- kernels of calls -------------------------------------------------------------------------------------

    @cached_property
    def main(self) -> Ints:
        """Per call the device row of its longest kernel, -1 without one."""
        out = np.full(len(self.ops), -1, np.int64)
        owner, device = self.fall.work.owner, self.capture.device
        if not len(owner):
            return out
        rows = np.flatnonzero((owner >= 0) & (device["kind"].to_numpy() == S.KERNEL))
        rows = rows[np.argsort(device["duration_ns"].to_numpy()[rows], kind="stable")]
        out[owner[rows]] = rows
        return out

    @cached_property
    def matrix_unit(self) -> npt.NDArray[np.int8]:
        """Per call whether its longest kernel runs on matrix units: 1 yes, 0 no, -1 unknown or without a kernel."""
        codes = arrays.codes(self.capture.device["name"])
        found = np.append(kernel_classes(self.capture)["tensor_core"].to_numpy(), -1)
        return np.asarray(np.where(self.main >= 0, found[codes[np.maximum(self.main, 0)]], -1) if len(codes) else self.main, np.int8)

    def kernel_name(self, row: int) -> str:
        """Name of the longest kernel of a call, "" without one."""
        place = int(self.main[row])
        return str(arrays.pick(self.capture.device["name"], [place])[0]) if place >= 0 else ""

    # -- arguments of calls -----------------------------------------------------------------------------------

    def by_signature(self, rows: Ints) -> tuple[Ints, list[tuple[str, Inputs]]]:
        """(signature per row, what stands in each signature): rows alike in name, sizes, types, strides and values are read once.

        Calls that were launched before the window have no arguments of their own.
        """
        table, place = arguments_of(self.capture, self.fall.work, self.ops.iloc[rows])
        name = arrays.codes(self.ops["name"])[rows]
        columns = [np.append(arrays.codes(table[c]), -1)[place] for c in ("shapes", "types", "strides", "concrete")]
        code, first = factorize([name, *columns])
        names, categories = self.ops["name"].cat.categories, [table[c].cat.categories for c in _COLUMNS]
        read = []
        for codes in zip(name[first].tolist(), *(v[first].tolist() for v in columns), strict=True):
            if codes not in self._read:
                self._read[codes] = Inputs(*(str(c[i]) if i >= 0 else "" for c, i in zip(categories, codes[1:], strict=True)))
            read.append((str(names[codes[0]]), self._read[codes]))
        return code, read

    @cached_property
    def _read(self) -> dict[tuple[int, ...], Inputs]:
        """Arguments by the codes of their texts: rules that look at the same calls read them once."""
        return {}


_COLUMNS = ("shapes", "types", "strides", "concrete")


def case(capture: Capture, part: Scope, fall: Waterfall) -> Case:
    """The ledger at its start: all of the waterfall's time is there to be claimed."""
    ops, owner = fall.work.ops, fall.work.owner
    on_host = not len(capture.device)
    if on_host:
        time = fall.op_own.astype(np.float64)
    else:
        time = np.zeros(len(ops), np.float64)
        device = capture.device
        own_work = ~device["communication"].to_numpy() & ~((device["kind"].to_numpy() == S.MEMCPY) & (fall.kind == NO_KIND))
        mine = np.flatnonzero((owner >= 0) & own_work & (fall.own > 0)) if len(owner) == len(device) else np.zeros(0, np.int64)
        time += np.bincount(owner[mine], fall.own[mine], minlength=len(ops))
    named = ~ops["name"].eq(COUNTED).to_numpy()  # what the SOL capture counted for a phase stands for calls of all kinds
    limit = np.where(fall.counted & named, ops["sol_ns"].to_numpy(dtype=np.float64) / fall.parallel, np.nan)
    return Case(capture, part, fall, time, limit, time.copy(), fall.idle, on_host)


def thread_of(found: Case, rows: Ints) -> npt.NDArray[np.int32]:
    """Host thread of each call, -1 where it was launched before the window."""
    host = found.ops["host"].to_numpy()[rows]
    thread = at.host(found.capture).thread
    return np.asarray(np.where(host >= 0, thread[np.maximum(host, 0)], -1) if len(thread) else host, np.int32)
