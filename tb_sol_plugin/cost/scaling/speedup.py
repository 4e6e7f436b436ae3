"""How many times faster a job trains on more replicas, each count at its best batch size."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.scaling.model import GoodputFunction, Number, number


class SpeedupFunction:
    """`speedup(num_nodes, num_replicas)`: goodput at its best there over that of one replica at its best, under the same limits.

    The limits are those of `GoodputFunction.optimize`. Every pair is worked out once. 0 for (0, 0), and where no batch size fits. All
    NaN if one replica alone has none. scaling efficiency = speedup / num_replicas.
    """

    def __init__(
        self,
        goodput_fn: GoodputFunction,
        max_batch_size: float | None = None,
        atomic_bsz_range: tuple[float, float] | None = None,
        accumulation: bool = False,
        *,
        strict: bool = False,
    ) -> None:
        self.goodput_fn = goodput_fn
        self.max_batch_size = max_batch_size
        self.atomic_bsz_range = atomic_bsz_range
        self.accumulation = accumulation
        self.strict = strict
        self._known: dict[tuple[float, float], float] = {(0.0, 0.0): 0.0}
        self._alone = float(self._goodput(np.ones(1), np.ones(1))[0])

    def __call__(self, num_nodes: npt.ArrayLike, num_replicas: npt.ArrayLike) -> Number:
        """Speedup; numbers or arrays that broadcast. ValueError unless 1 <= n <= r or both are 0."""
        if isinstance(num_nodes, int | float) and isinstance(num_replicas, int | float):
            known = self._known.get((num_nodes, num_replicas))
            if known is not None:
                return known
        nodes, replicas = np.broadcast_arrays(np.asarray(num_nodes, float), np.asarray(num_replicas, float))
        pairs, inverse = np.unique(np.stack([nodes.ravel(), replicas.ravel()], axis=1), axis=0, return_inverse=True)
        keys = [(float(n), float(r)) for n, r in pairs]
        missing = [key for key in keys if key not in self._known]
        if missing:
            n, r = np.array(missing).T
            for key, value in zip(missing, self._goodput(n, r) / self._alone, strict=True):
                self._known[key] = 0.0 if math.isnan(value) and not math.isnan(self._alone) else float(value)
        return number(np.array([self._known[key] for key in keys])[inverse.ravel()].reshape(nodes.shape))

    def _goodput(self, nodes: npt.NDArray[np.float64], replicas: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        found = self.goodput_fn.optimize(
            nodes, replicas, self.max_batch_size, self.atomic_bsz_range, self.accumulation, strict=self.strict
        )
        return np.asarray(found.goodput, float)
