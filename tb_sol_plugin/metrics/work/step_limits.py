"""Sums, per step, the least time of the work that it launched on this device, and how much of the device's peaks it used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics import memo_under
from tb_sol_plugin.metrics.time.scope import Scope, scope
from tb_sol_plugin.metrics.time.waterfall import Waterfall
from tb_sol_plugin.metrics.time.waterfall import waterfall as waterfall_of
from tb_sol_plugin.metrics.work.sums import Calls, Performed, calls_of, performed, unowned_by_step, use_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Scalar
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask

LIMITS: Final = ("sol_ns", "sol_ratio", "mfu", "hfu", "bandwidth_utilisation", "modelled_share")
"""What is known of the work of a step against the device's limits."""


@dataclass(frozen=True)
class StepLimits:
    """Calls, and where those of each step are: `order[bounds[i]:bounds[i + 1]]`, ascending.

    own: the device's own work, communication and copies over a link set aside.
    unowned_ns: device time of no call per step, last that of no step. waterfall: of the whole recording; of several devices the limit
    is that of the one with most to do.
    """

    order: Ints
    bounds: Ints
    sol: Floats
    modeled: Floats
    owned: Floats
    own: Mask
    performed: Performed
    unowned_ns: Ints
    waterfall: Waterfall
    spec: DeviceSpec | None

    @staticmethod
    def of(capture: Capture, where: Scope, limits: str) -> StepLimits:
        """Returns the calls of a selection in order, put so once per recording."""
        calls = calls_of(capture, where, limits)
        key = ("steps.calls", where.whole, where.rows)
        return memo_under(capture, calls.done.spec, key, lambda: StepLimits._of(capture, calls, limits))

    @staticmethod
    def _of(capture: Capture, calls: Calls, limits: str) -> StepLimits:
        step = calls.ops["step"].to_numpy()
        order = np.argsort(step, kind="stable")
        sol, modeled, owned = (calls.values[n] for n in ("sol_ns", "modelled_sum_ns", "owned_sum_ns"))
        return StepLimits(
            order=order,
            bounds=np.searchsorted(step[order], np.arange(len(capture.steps) + 1)),
            sol=sol,
            modeled=modeled,
            owned=owned,
            own=~(calls.ops["link"] | calls.ops["collective"]).to_numpy(),
            performed=performed(calls.ops),
            unowned_ns=unowned_by_step(capture, calls.done),
            waterfall=waterfall_of(capture, scope(capture, Query()), limits),
            spec=calls.done.spec,
        )

    def limits(self, rows: list[int], time_ns: int, *, steps: int = 1) -> dict[str, Scalar]:
        """Returns the columns of LIMITS for the calls of some steps over `time_ns`, None unknown; the limit is divided by `steps`.

        own_share: the modeled part of the device's own work. rows: of `steps`, none for all calls. Of one step they are worked out once:
        the pages of steps and of trends show the same.
        """
        if len(rows) != 1:
            return self._limits(rows, time_ns, steps)
        kept: dict[tuple[int, int, int], dict[str, Scalar]] = self.__dict__.setdefault("_kept", {})
        key = (rows[0], time_ns, steps)
        if key not in kept:
            kept[key] = self._limits(rows, time_ns, steps)
        return dict(kept[key])

    def _limits(self, rows: list[int], time_ns: int, steps: int) -> dict[str, Scalar]:
        of: slice | Ints = slice(None)
        if rows:
            of = np.concatenate([self.order[self.bounds[row] : self.bounds[row + 1]] for row in rows])
            of.sort()  # sums of floats in one order, whatever the order of the steps
        sol, modeled, owned, own = (values[of] for values in (self.sol, self.modeled, self.owned, self.own))
        whole = float(owned.sum()) + int(self.unowned_ns[rows or slice(None)].sum())
        known = bool(np.isfinite(sol).any())
        limit = float(np.nansum(sol)) / self.waterfall.parallel
        used = use_of(self.performed.take(of), self.spec, time_ns, devices=self.waterfall.devices)
        alone = float(owned[own].sum())
        return {
            "sol_ns": round(limit / steps) if known else None,
            "sol_ratio": limit / time_ns if known and time_ns > 0 else None,
            "mfu": used.mfu,
            "hfu": used.hfu,
            "bandwidth_utilisation": used.bandwidth_utilisation,
            "modelled_share": float(np.nansum(modeled)) / whole if whole > 0 else None,
            "own_share": float(np.nansum(modeled[own])) / alone if alone > 0 else None,
        }
