"""Measured step times, one per configuration; those that cannot be are left out with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Floats

COLUMNS: Final = ("num_nodes", "num_replicas", "atomic_bsz", "accum_step_time", "optim_step_time")


class Dropped(NamedTuple):
    """A point that was left out: its place in what was handed in, and why."""

    place: int
    reason: str


@dataclass(frozen=True)
class Points:
    """Equally long arrays: nodes, replicas, samples per replica and micro-step; seconds of a micro-step without and with synchronising."""

    num_nodes: Floats
    num_replicas: Floats
    atomic_bsz: Floats
    accum_step_time: Floats
    optim_step_time: Floats

    def __len__(self) -> int:
        return len(self.num_nodes)

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Points:
        """Some of the points."""
        return Points(*(getattr(self, name)[rows] for name in COLUMNS))

    def ordered(self) -> Points:
        """The points in one order, whatever order they came in."""
        return self.take(np.lexsort([getattr(self, name) for name in reversed(COLUMNS)]))


def points(
    num_nodes: npt.ArrayLike,
    num_replicas: npt.ArrayLike,
    atomic_bsz: npt.ArrayLike,
    accum_step_time: npt.ArrayLike,
    optim_step_time: npt.ArrayLike,
) -> tuple[Points, tuple[Dropped, ...]]:
    """The usable points, in the order given, and those left out. Scalars and arrays broadcast. Missing values are NaN (or None)."""
    given = [np.asarray(a, float) for a in (num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time)]
    arrays = [a.ravel() for a in np.broadcast_arrays(*given)]
    nodes, replicas, atomic, accum, optim = arrays
    whole = [np.isfinite(a) & (a == np.round(a)) for a in (nodes, replicas)]
    checks = (
        (~np.isfinite(nodes) | ~np.isfinite(replicas), "number of nodes or replicas missing"),
        (~(whole[0] & whole[1]), "nodes and replicas must be whole numbers"),
        (~((nodes >= 1) & (replicas >= nodes)), "needs 1 <= nodes <= replicas"),
        (~np.isfinite(atomic), "batch size missing"),
        (~(atomic > 0), "batch size not above 0"),
        (~np.isfinite(accum) | ~np.isfinite(optim), "step time missing"),
        (~(accum > 0), "time of a step without synchronisation not above 0: the wait for synchronisation is longer than the step"),
        (~(optim > 0), "time of a step not above 0"),
    )
    reason = np.full(len(nodes), "", dtype=object)
    for broken, text in checks:
        reason[broken & (reason == "")] = text
    kept = Points(*arrays).take(reason == "")
    return kept, tuple(Dropped(int(i), str(reason[i])) for i in np.flatnonzero(reason != ""))
