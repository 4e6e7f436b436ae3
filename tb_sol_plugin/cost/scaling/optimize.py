"""The batch size of the highest goodput for given nodes and replicas: a search over total batch sizes in equal ratios."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.scaling.model import Best, GoodputFunction, number, require

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
    """The best of 50 total batch sizes from max(M0, lo r) to `max_batch_size` (default M0) in equal ratios.

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
