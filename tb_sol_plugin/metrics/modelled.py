"""The modelled operators of a recording as arrays, for sums over any grouping of host rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.model.capture import Capture

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Modelled:
    """One entry per operator call that a cost model covers. NaN is unknown.

    host: its host row. flop, bytes: work. sol_ns: least time on the device. measured_ns: device time of everything below it.
    kind: gemm, attention, conv, norm, elementwise, other.
    """

    host: npt.NDArray[np.int64]
    flop: Floats
    bytes: Floats
    sol_ns: Floats
    measured_ns: Floats

    def sums(self, code: npt.NDArray[np.integer], name: str, size: int) -> list[int | float | None]:
        """Per group 0..size-1 (-1 is left out) the sum of a column over its calls; None where no call has a value.

        `efficiency` is sum(sol_ns) / sum(measured_ns) over the calls that have both.
        """
        if name == "efficiency":
            both = np.isfinite(self.sol_ns) & np.isfinite(self.measured_ns) & (self.measured_ns > 0)
            limit, _ = _sum(code, np.where(both, self.sol_ns, np.nan), size)
            time, _ = _sum(code, np.where(both, self.measured_ns, np.nan), size)
            return [a / b if b > 0 else None for a, b in zip(limit.tolist(), time.tolist(), strict=True)]
        total, count = _sum(code, getattr(self, name), size)
        return [round(v) if n else None for v, n in zip(total.tolist(), count.tolist(), strict=True)]


def _sum(code: npt.NDArray[np.integer], values: Floats, size: int) -> tuple[Floats, npt.NDArray[np.int64]]:
    use = (code >= 0) & np.isfinite(values)
    total = np.bincount(code[use], values[use], minlength=size) if use.any() else np.zeros(size)
    count = np.bincount(code[use], minlength=size) if use.any() else np.zeros(size, np.int64)
    return total, count


def modelled(capture: Capture, limits: str = "") -> Modelled:
    """The calls that a cost model covers, under the matched device limits or the device named by `limits`."""

    def make() -> Modelled:
        none = np.zeros(0, np.float64)
        return Modelled(np.zeros(0, np.int64), none, none, none, none)

    return memo(capture, ("modelled", limits), make)
