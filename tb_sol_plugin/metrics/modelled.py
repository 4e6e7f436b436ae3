"""The modelled operators of a recording as arrays, for sums over any grouping of host rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.work import work
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.device import device_for

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Modelled:
    """One entry per operator call that a cost model covers. NaN is unknown.

    host: its host row. flop, bytes: work. sol_ns: least time on the device. measured_ns: union of the device
    intervals of everything below it; device_sum_ns: their plain sum. Without device activity all three are unknown,
    without a known memory bandwidth the limit is.
    """

    host: npt.NDArray[np.int64]
    flop: Floats
    bytes: Floats
    sol_ns: Floats
    measured_ns: Floats
    device_sum_ns: Floats

    def column(self, name: str) -> Floats:
        """A column by name; `modelled_sum_ns` is device_sum_ns."""
        found: Floats = getattr(self, "device_sum_ns" if name == "modelled_sum_ns" else name)
        return found

    def sums(self, code: npt.NDArray[np.integer], name: str, size: int) -> list[int | float | None]:
        """Per group 0..size-1 (-1 is left out) the sum of a column over its calls; None where no call has a value.

        `efficiency` is sum(sol_ns) / sum(measured_ns) over the calls that have both.
        """
        if name == "efficiency":
            both = np.isfinite(self.sol_ns) & np.isfinite(self.measured_ns) & (self.measured_ns > 0)
            limit, _ = _sum(code, np.where(both, self.sol_ns, np.nan), size)
            time, _ = _sum(code, np.where(both, self.measured_ns, np.nan), size)
            return [a / b if b > 0 else None for a, b in zip(limit.tolist(), time.tolist(), strict=True)]
        total, count = _sum(code, self.column(name), size)
        return [round(v) if n else None for v, n in zip(total.tolist(), count.tolist(), strict=True)]


def _sum(code: npt.NDArray[np.integer], values: Floats, size: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    use = (code >= 0) & np.isfinite(values)
    total = np.bincount(code[use], values[use], minlength=size).astype(np.float64)
    return total, np.bincount(code[use], minlength=size).astype(np.int64)


def modelled(capture: Capture, limits: str = "") -> Modelled:
    """The calls that a cost model covers, under the matched device limits or those of the device named by `limits`.

    Raises BadQuery for a device that the table does not know.
    """
    spec = device_for(capture, limits)

    def make() -> Modelled:
        done = work(capture, spec)
        ops = done.ops[(done.ops["modelled"] & ~done.ops["inferred"]).to_numpy()]
        columns = {c: ops[c].to_numpy(dtype=np.float64) for c in ("flop", "bytes", "sol_ns", "measured_ns", "device_sum_ns")}
        if spec is None or spec.memory_bandwidth is None:
            columns["sol_ns"] = np.full(len(ops), np.nan)
        if done.by_host_time and (spec is None or spec.vendor != "cpu"):
            columns |= {c: np.full(len(ops), np.nan) for c in ("sol_ns", "measured_ns", "device_sum_ns")}
        return Modelled(ops["host"].to_numpy(dtype=np.int64), **columns)

    return memo(capture, ("modelled", spec.fingerprint if spec else "", limits), make)
