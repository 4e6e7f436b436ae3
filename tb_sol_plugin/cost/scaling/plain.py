"""The fit that others make: one search by slope from one start. What `fit` reaches is shown beside it."""

from __future__ import annotations

import time

import numpy as np
from scipy.optimize import minimize

from tb_sol_plugin.cost.scaling.fit import FIRST
from tb_sol_plugin.cost.scaling.identify import identify, raised
from tb_sol_plugin.cost.scaling.model import GAMMA, LEAST, PerfParams
from tb_sol_plugin.cost.scaling.objective import objective
from tb_sol_plugin.cost.scaling.points import Points
from tb_sol_plugin.tables.arrays import Floats


class _Late(Exception):
    pass


def plain_objective(points: Points, *, limit_s: float = 3.0) -> float | None:
    """The objective that L-BFGS-B over the seven parameters reaches from the first start alone; None where it takes longer.

    It stalls at the kink of a perfect fit, so that on clean points it can be many times that of `fit`.
    """
    until = time.perf_counter() + limit_s
    found = identify(points)
    names = [n for n in PerfParams._fields if n not in found.fixed]

    def params(free: Floats) -> PerfParams:
        return PerfParams(**found.fixed | dict(zip(names, (float(v) for v in free), strict=True)))

    def value(free: Floats) -> float:
        if time.perf_counter() > until:
            raise _Late
        return float(objective(params(free), points))

    first = np.array([getattr(FIRST, n) for n in names])
    bounds = [GAMMA if n == "gamma" else (LEAST, None) for n in names]
    try:
        answer = minimize(value, first, method="L-BFGS-B", bounds=bounds)
    except _Late:
        return None
    return float(objective(raised(params(np.asarray(answer.x)), points), points))
