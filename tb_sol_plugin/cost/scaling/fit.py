"""Parameters of the step time from measured points."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.scaling.identify import Identified, identify, raised
from tb_sol_plugin.cost.scaling.model import GAMMA, LEAST, PerfParams
from tb_sol_plugin.cost.scaling.objective import LogObjective, objective
from tb_sol_plugin.cost.scaling.points import Dropped, Points, points
from tb_sol_plugin.tables.arrays import Floats

LIMIT_S: Final = 10.0
"""After this time a fit returns the best it has."""
FIRST: Final = PerfParams(0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
"""The start that does not look at the points."""
_GAMMAS: Final = (1.05, 1.5, 2.5, 5.0)
"""Overlaps of the starts that do."""
_SMOOTH: Final = (1e-2, 1e-3, 1e-4, 1e-6, 0.0)
"""Each search by slope goes on from the last with less rounding of the kink at a perfect fit."""
QUICK: Final = (1e-3, 1e-5)
"""What does where a start is all but the answer."""
_TIE: Final = 1e-9
_NOTHING: Final = 1e-4
"""Of the shortest step; a part of the time below is not seen in it."""
_FAR: Final = (np.log(LEAST), 100.0)
"""Bounds of the logarithm of a time in seconds."""


@dataclass(frozen=True)
class Fit:
    """params: all seven as fitted, also those the points do not determine: show no number where `identified[name]` is False.

    objective: its value at `params`. identified, rules: see `identify.Identified`. points: those used, dropped: the rest by their place
    in what was handed in. warnings: what else to know. seconds: how long it took.
    """

    params: PerfParams
    objective: float
    points: Points
    identified: dict[str, bool]
    rules: tuple[str, ...]
    dropped: tuple[Dropped, ...]
    warnings: tuple[str, ...]
    seconds: float

    @property
    def known(self) -> dict[str, float | None]:
        """The parameters by name, None where the points do not determine one."""
        return {name: value if self.identified[name] else None for name, value in self.params._asdict().items()}


def fit_perf_params(
    num_nodes: npt.ArrayLike,
    num_replicas: npt.ArrayLike,
    atomic_bsz: npt.ArrayLike,
    accum_step_time: npt.ArrayLike,
    optim_step_time: npt.ArrayLike,
) -> PerfParams:
    """The seven parameters alone, see `fit`."""
    return fit(num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time).params


def fit(
    num_nodes: npt.ArrayLike,
    num_replicas: npt.ArrayLike,
    atomic_bsz: npt.ArrayLike,
    accum_step_time: npt.ArrayLike,
    optim_step_time: npt.ArrayLike,
    *,
    limit_s: float = LIMIT_S,
) -> Fit:
    """Parameters that bring predicted step times (s) closest to the measured, see `objective`.

    One value per point in each argument: nodes, replicas, samples per replica and micro-step, seconds of a micro-step without and with
    synchronisation. From five starts, over the logarithms of the times: L-BFGS-B, then Nelder-Mead, both within the bounds; the best
    wins, at a tie the one with the least overlap. The same points in any order give the same fit, unless `limit_s` ends it, which is
    among the warnings. Points that cannot be are left out. ValueError if none is left.
    """
    begun = time.perf_counter()
    given, dropped = points(num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time)
    if not len(given):
        why = f": {dropped[0].reason}" if dropped else ""
        raise ValueError(f"no usable point among {len(dropped)}{why}")
    used = given.ordered()
    found = identify(used)
    search = Search(used, found, begun + limit_s)
    results = []
    for start in starts(used):
        results.append(search.run(start))
        if search.late:
            break
    least = min(value for value, _ in results)
    params = min((p for value, p in results if value <= least + _TIE * (1 + least)), key=lambda p: p.gamma)
    warnings = [f"the fit was ended after {limit_s:g} s: a better one may exist"] if search.late else []
    warnings += _remarks(used, params, found)
    return Fit(params, objective(params, used), given, found.known, found.rules, dropped, tuple(warnings), time.perf_counter() - begun)


def starts(used: Points) -> list[PerfParams]:
    """Where searches begin: one fixed, and for each of four overlaps one from straight lines through the points."""
    out = [FIRST]
    intercept, slope = _line(used.atomic_bsz, used.accum_step_time)
    compute = intercept + slope * used.atomic_bsz
    several, within = used.num_nodes > 1, (used.num_nodes <= 1) & (used.num_replicas > 1)
    for gamma in _GAMMAS:
        ratio = np.minimum(compute / used.optim_step_time, 1.0)
        network = used.optim_step_time * np.maximum(1 - ratio**gamma, 1e-12) ** (1 / gamma)
        lines = [_line(np.maximum(used.num_replicas - 2, 0)[where], network[where]) for where in (several, within)]
        out.append(PerfParams(intercept, slope, *lines[0], *lines[1], gamma))
    return out


class Search:
    """Searches that share what is fixed and one end of time (`late` once it has passed)."""

    def __init__(self, used: Points, found: Identified, until: float) -> None:
        self._points = used
        self._value = LogObjective(used)
        self._until = until
        self._fixed = {PerfParams._fields.index(name): float(np.log(v)) for name, v in found.fixed.items()}
        self._free = np.array([i for i in range(7) if i not in self._fixed])
        self._bounds = [GAMMA if i == 6 else _FAR for i in self._free]
        self.late = False

    def run(self, start: PerfParams, *, stages: tuple[float, ...] = _SMOOTH, polish: bool = True) -> tuple[float, PerfParams]:
        """(objective, parameters) at the end of a search from a start; the objective as `objective` gives it."""
        from scipy.optimize import minimize

        low, high = np.array(self._bounds).T
        best = Lowest(np.clip(_logs(start)[self._free], low, high), stages[-1])
        try:
            x = best.x
            for smooth in stages:
                x = minimize(
                    self._smooth, x, args=(smooth, best), jac=True, method="L-BFGS-B", bounds=self._bounds,
                    options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-10, "maxcor": 20},
                ).x  # fmt: skip
            if polish:
                minimize(
                    lambda x: self._smooth(x, 0.0, best)[0], best.x, method="Nelder-Mead", bounds=self._bounds,
                    options={"maxiter": 600, "maxfev": 1000, "xatol": 1e-9, "fatol": 1e-12, "initial_simplex": self._simplex(best.x)},
                )  # fmt: skip
        except _LateError:
            self.late = True
        params = raised(self._params(best.x), self._points)
        return objective(params, self._points), params

    def _smooth(self, x: Floats, smooth: float, best: Lowest) -> tuple[float, Floats]:
        if time.perf_counter() > self._until:
            raise _LateError
        value, slope = self._value(self._full(x), smooth)
        if smooth <= best.from_smooth:
            best.see(value, x)
        return value, slope[self._free]

    def _full(self, x: Floats) -> Floats:
        z = np.empty(7)
        for place, value in self._fixed.items():
            z[place] = value
        z[self._free] = x
        return z

    def _params(self, x: Floats) -> PerfParams:
        z = self._full(x)
        return PerfParams._make([*np.maximum(np.exp(z[:6]), LEAST).tolist(), float(np.clip(z[6], *GAMMA))])

    def _simplex(self, x: Floats) -> Floats:
        """Corners a little off x, within the bounds."""
        out = np.tile(x, (len(x) + 1, 1))
        for i, (low, high) in enumerate(self._bounds):
            step = 0.02 if x[i] + 0.02 <= high else -0.02
            out[i + 1, i] = max(x[i] + step, low)
        return out


class Lowest:
    """The lowest value seen, and where; from values rounded off by no more than `from_smooth`."""

    def __init__(self, x: Floats, from_smooth: float) -> None:
        self.x, self.value, self.from_smooth = x, np.inf, from_smooth

    def see(self, value: float, x: Floats) -> None:
        if value < self.value:
            self.value, self.x = value, x.copy()


class _LateError(Exception):
    """The time of a fit has passed."""


def _logs(params: PerfParams) -> Floats:
    return np.array([*np.log(params[:6]), params.gamma])


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """(intercept, slope) of a straight line, both kept above a thousandth of what y is. Without points: those of the fixed start."""
    if not len(x):
        return FIRST.alpha_n, FIRST.beta_n
    spread = x - x.mean()
    slope = float(spread @ y / (spread @ spread)) if spread @ spread > 0 else float(y.mean() / max(2 * x.mean(), 1.0))
    mean = float(max(y.mean(), LEAST))
    slope = max(slope, 1e-3 * mean / max(float(x.max()), 1.0), LEAST)
    return max(float(y.mean() - slope * x.mean()), 1e-3 * mean, LEAST), slope


def _remarks(used: Points, params: PerfParams, found: Identified) -> list[str]:
    """What the reader of a fit should know of its outcome."""
    shortest = float(used.optim_step_time.min())
    most = {"beta_c": float(used.atomic_bsz.max()), "beta_n": 0.0, "beta_r": 0.0}
    for name, where in (("beta_n", used.num_nodes > 1), ("beta_r", used.num_nodes <= 1)):
        most[name] = float(np.max(used.num_replicas[where] - 2, initial=0))
    out = []
    for name, value in params._asdict().items():
        if name != "gamma" and found.known[name] and value * most.get(name, 1.0) < _NOTHING * shortest:
            out.append(f"{name} is next to nothing: the points show none of it")
    if found.known["gamma"] and params.gamma >= GAMMA[1] - 1e-6:
        out.append("gamma ended at its highest value: network time hides behind compute all but entirely")
    sooner = int((used.optim_step_time < used.accum_step_time * 0.95).sum())
    if sooner:
        out.append(f"{sooner} of {len(used)} points took less time with synchronisation than without, by more than 5 %")
    return out
