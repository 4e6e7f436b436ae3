"""Models step time, throughput, statistical efficiency and goodput of a data-parallel job.

    T_accum = alpha_c + beta_c b
    T_net   = A + B max(r - 2, 1e-8);  A, B = alpha_n, beta_n on several nodes; alpha_r, beta_r on one; 1e-8, 1e-8 for one replica
    T_optim = (T_accum^gamma + T_net^gamma)^(1/gamma)
    T_total = k T_accum + T_optim,  throughput = M / T_total
    efficiency = (var + sqr) / (var + sqr M/M0),  goodput = throughput x efficiency

gamma is 1 where compute overlaps nothing of the network time, 10 where nearly all of the shorter is overlapped by the longer.
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Floats

Number: TypeAlias = float | Floats
"""A float where all that went in were scalars, else an array of the shape they broadcast to."""

LEAST: Final = 1e-8
"""The least value of a time parameter, and the value of one that is not there."""
GAMMA: Final = (1.0, 10.0)
"""Bounds of gamma."""


class PerfParams(NamedTuple):
    """Step time. alpha: seconds; beta_c: seconds per sample; beta_n, beta_r: seconds per replica beyond the second; gamma: no unit.

    c compute, n network between nodes, r network within one node.
    """

    alpha_c: float
    beta_c: float
    alpha_n: float
    beta_n: float
    alpha_r: float
    beta_r: float
    gamma: float


class GradParams(NamedTuple):
    """The gradient's squared norm (sqr) and its variance (var) at the first batch size; their ratio alone matters. Below 0 counts as 0."""

    sqr: float
    var: float


def accum_time(params: PerfParams, atomic_bsz: npt.ArrayLike) -> Floats:
    """Returns T_accum: seconds of a micro-step of b samples without synchronization."""
    return np.asarray(params.alpha_c + params.beta_c * np.asarray(atomic_bsz, float))


def network_time(params: PerfParams, num_nodes: npt.ArrayLike, num_replicas: npt.ArrayLike) -> Floats:
    """Returns T_net: seconds of synchronizing gradients, without overlap."""
    nodes, replicas = np.broadcast_arrays(np.asarray(num_nodes, float), np.asarray(num_replicas, float))
    several, within = nodes > 1, (nodes <= 1) & (replicas > 1)
    alpha = np.select([several, within], [params.alpha_n, params.alpha_r], LEAST)
    beta = np.select([several, within], [params.beta_n, params.beta_r], LEAST)
    return np.asarray(alpha + beta * np.maximum(replicas - 2, LEAST))


def log_power_sum(first: Floats, second: Floats, gamma: float) -> Floats:
    """Returns the log of (x^gamma + y^gamma)^(1/gamma) for log x and log y; the larger is factored out, so that no power overflows."""
    high = np.maximum(first, second)
    return high + np.log1p(np.exp(-gamma * np.abs(first - second))) / gamma


def optim_time(params: PerfParams, num_nodes: npt.ArrayLike, num_replicas: npt.ArrayLike, atomic_bsz: npt.ArrayLike) -> Floats:
    """Returns T_optim: seconds of a micro-step of b samples whose gradients are synchronized."""
    compute, network = accum_time(params, atomic_bsz), network_time(params, num_nodes, num_replicas)
    with np.errstate(divide="ignore"):  # a parameter may be 0
        return np.exp(log_power_sum(np.log(compute), np.log(network), params.gamma))


class GoodputFunction:
    """Goodput of one job: `goodput(num_nodes, num_replicas, atomic_bsz, accum_steps)`.

    grad_params None: not known, efficiency is 1 everywhere and goodput is throughput. init_batch_size: M0, the total batch size that
    the job was made for, at which efficiency is 1.
    """

    def __init__(
        self,
        perf_params: PerfParams | tuple[float, ...],
        grad_params: GradParams | tuple[float, float] | None,
        init_batch_size: float,
    ) -> None:
        self.perf_params = PerfParams(*perf_params)
        self.grad_params = None if grad_params is None else GradParams(*grad_params)
        self.init_batch_size = init_batch_size
        if not init_batch_size > 0:
            raise ValueError(f"init_batch_size must be above 0, not {init_batch_size}")

    def __call__(
        self, num_nodes: npt.ArrayLike, num_replicas: npt.ArrayLike, atomic_bsz: npt.ArrayLike, accum_steps: npt.ArrayLike = 0
    ) -> Number:
        """Returns the same as `evaluate`."""
        return self.evaluate(num_nodes, num_replicas, atomic_bsz, accum_steps)

    def evaluate(
        self, num_nodes: npt.ArrayLike, num_replicas: npt.ArrayLike, atomic_bsz: npt.ArrayLike, accum_steps: npt.ArrayLike = 0
    ) -> Number:
        """Returns goodput in samples per second, each worth as much as one at M0. ValueError unless M >= M0 and 1 <= n <= r."""
        total = np.asarray(num_replicas, float) * np.asarray(atomic_bsz, float) * (np.asarray(accum_steps, float) + 1)
        return number(self.throughput(num_nodes, num_replicas, atomic_bsz, accum_steps) * np.asarray(self.efficiency(total)))

    def throughput(
        self, num_nodes: npt.ArrayLike, num_replicas: npt.ArrayLike, atomic_bsz: npt.ArrayLike, accum_steps: npt.ArrayLike = 0
    ) -> Number:
        """Returns samples per second, whatever they are worth. ValueError unless 1 <= n <= r."""
        nodes, replicas = np.asarray(num_nodes, float), np.asarray(num_replicas, float)
        atomic, steps = np.asarray(atomic_bsz, float), np.asarray(accum_steps, float)
        require(nodes >= 1, "num_nodes is {}, below {}", nodes, 1.0)
        require(replicas >= nodes, "num_replicas is {}, below num_nodes, which is {}", replicas, nodes)
        total_time = steps * accum_time(self.perf_params, atomic) + optim_time(self.perf_params, nodes, replicas, atomic)
        return number(replicas * atomic * (steps + 1) / total_time)

    def efficiency(self, batch_size: npt.ArrayLike) -> Number:
        """Returns what a sample is worth at a total batch size, in (0, 1]; 1 at M0. ValueError below M0."""
        total = np.asarray(batch_size, float)
        require(total >= self.init_batch_size, "the batch size is {}, below init_batch_size, which is {}", total, self.init_batch_size)
        if self.grad_params is None:
            return number(np.ones_like(total))
        sqr, var = (max(v, 0.0) for v in self.grad_params)
        scale = total / self.init_batch_size
        return number((var + sqr) / (var + sqr * scale) if var + sqr > 0 else 1 / scale)

    def optimize(
        self,
        num_nodes: npt.ArrayLike,
        num_replicas: npt.ArrayLike,
        max_batch_size: float | None = None,
        atomic_bsz_range: tuple[float, float] | None = None,
        accumulation: bool = False,
        *,
        strict: bool = False,
    ) -> Best:
        """Returns the batch size of the highest goodput on n nodes and r replicas; numbers or arrays that broadcast. See
        `optimize.best`.
        """

        return best(self, num_nodes, num_replicas, max_batch_size, atomic_bsz_range, accumulation, strict=strict)


class Best(NamedTuple):
    """The highest goodput (samples/s) and what reaches it: atomic batch size and accumulation steps. None fits: NaN, 0 and 0."""

    goodput: Number
    atomic_bsz: int | npt.NDArray[np.int64]
    accum_steps: int | npt.NDArray[np.int64]


def number(value: npt.ArrayLike) -> Number:
    """Returns a float for an array without dimensions, else the array."""
    array = np.asarray(value, float)
    return float(array) if array.ndim == 0 else array


def require(holds: npt.ArrayLike, text: str, found: npt.ArrayLike, against: npt.ArrayLike) -> None:
    """Raises ValueError with the first two values that break a rule, unless all keep it."""
    if not np.all(holds):
        broken, one, other = np.broadcast_arrays(~np.asarray(holds), np.asarray(found), np.asarray(against))
        place = int(np.argmax(broken.ravel()))
        raise ValueError(text.format(f"{one.ravel()[place]:g}", f"{other.ravel()[place]:g}"))


# -- The batch size of the highest goodput for given nodes and replicas ----------------------------------------------


CANDIDATES: Final = 50
"""Total batch sizes tried."""
_EPS: Final = 1e-8
_ALIKE: Final = 1e-6


def best(
    goodput: GoodputFunction,
    num_nodes: npt.ArrayLike,
    num_replicas: npt.ArrayLike,
    max_batch_size: float | None = None,
    atomic_bsz_range: tuple[float, float] | None = None,
    accumulation: bool = False,
    *,
    strict: bool = False,
) -> Best:
    """Returns the best of 50 total batch sizes from max(M0, lo r) to `max_batch_size` (default M0) in equal ratios.

    atomic_bsz_range: (lo, hi), default (1, max_batch_size). A replica's share M/r is rounded up and kept within the range, so that
    the total may exceed `max_batch_size` by less than r; strict=True rounds such candidates down, and takes the smallest total among
    those whose goodput differs by rounding alone. accumulation: a share above hi is
    divided into micro-steps, and a lone replica above M0 takes at least two (gradient statistics need them). Without it, a lone
    replica stays at M0. Candidates below M0 are left out; where none is left, goodput is NaN and both counts are 0.

    ValueError: 1 <= n <= r does not hold, a range without numbers, or `max_batch_size` below M0.
    """
    first = float(goodput.init_batch_size)
    most = first if max_batch_size is None else float(max_batch_size)
    if not most >= first:
        raise ValueError(f"max_batch_size is {most:g}, below init_batch_size, which is {first:g}")
    low, high = (1.0, most) if atomic_bsz_range is None else (float(np.ceil(atomic_bsz_range[0])), float(np.floor(atomic_bsz_range[1])))
    if not 0 < low <= high:
        raise ValueError(f"atomic_bsz_range is ({low:g}, {high:g}) in whole samples; it must rise, from above 0")
    nodes, replicas = np.broadcast_arrays(np.asarray(num_nodes, float), np.asarray(num_replicas, float))
    require(nodes >= 1, "num_nodes is {}, below {}", nodes, 1.0)
    require(replicas >= nodes, "num_replicas is {}, below num_nodes, which is {}", replicas, nodes)
    total = np.geomspace(np.maximum(first, low * replicas), most, CANDIDATES)
    share = total / replicas
    alone = replicas == 1
    if accumulation:
        steps = np.ceil(share / high - _EPS) - 1
        steps = np.where(alone & (share > first + _EPS), np.maximum(steps, 1), steps)
        atomic = np.ceil(share / (steps + 1) - _EPS)
    else:
        steps = np.zeros_like(share)
        atomic = np.where(alone, np.ceil(first), np.ceil(share - _EPS))
    atomic = np.clip(atomic, low, high)
    if strict:
        room = np.floor(most / (replicas * (steps + 1)) + _EPS)
        atomic = np.minimum(atomic, room)
    reached = replicas * atomic * (steps + 1)
    fits = (reached >= first) & (atomic >= low)
    value = np.full(share.shape, np.nan)
    if fits.any():
        nodes, replicas = np.broadcast_to(nodes, share.shape), np.broadcast_to(replicas, share.shape)
        value[fits] = goodput.evaluate(nodes[fits], replicas[fits], atomic[fits], steps[fits])
    ranked = np.where(fits, value, -np.inf)
    place = np.argmax(ranked >= ranked.max(axis=0) * (1 - _ALIKE) if strict else ranked, axis=0)[None]
    value, atomic, steps, fits = (np.take_along_axis(a, place, axis=0)[0] for a in (value, atomic, steps, fits))
    counts = (np.where(fits, a, 0).astype(np.int64) for a in (atomic, steps))
    return Best(number(value), *(int(c) if c.ndim == 0 else c for c in counts))


# -- How many times faster a job trains on more replicas, each count at its best batch size --------------------------


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
        """Returns the speedup; numbers or arrays that broadcast. ValueError unless 1 <= n <= r or both are 0."""
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
