"""Fits the parameters of step time to measured times."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.goodput.blas import one_thread
from tb_sol_plugin.cost.goodput.model import GAMMA, LEAST, PerfParams, accum_time, log_power_sum, optim_time
from tb_sol_plugin.tables.arrays import Floats

# -- points ----------------------------------------------------------------------------------------------------------


COLUMNS: Final = ("num_nodes", "num_replicas", "atomic_bsz", "accum_step_time", "optim_step_time")


class Dropped(NamedTuple):
    """A point that was left out: its place in what was handed in, and why."""

    place: int
    reason: str


@dataclass(frozen=True)
class Points:
    """Equally long arrays: nodes, replicas, samples per replica and micro-step; seconds of a micro-step without and with synchronizing."""

    num_nodes: Floats
    num_replicas: Floats
    atomic_bsz: Floats
    accum_step_time: Floats
    optim_step_time: Floats

    def __len__(self) -> int:
        return len(self.num_nodes)

    def take(self, rows: npt.NDArray[np.int64] | npt.NDArray[np.bool_]) -> Points:
        """Returns some of the points."""
        return Points(*(getattr(self, name)[rows] for name in COLUMNS))

    def ordered(self) -> Points:
        """Returns the points in one order, whatever order they came in."""
        return self.take(np.lexsort([getattr(self, name) for name in reversed(COLUMNS)]))


def points(
    num_nodes: npt.ArrayLike,
    num_replicas: npt.ArrayLike,
    atomic_bsz: npt.ArrayLike,
    accum_step_time: npt.ArrayLike,
    optim_step_time: npt.ArrayLike,
) -> tuple[Points, tuple[Dropped, ...]]:
    """Returns the usable points, in the order given, and those left out. Scalars and arrays broadcast. Missing values are NaN (or None)."""
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
        (~(accum > 0), "time of a step without synchronization not above 0: the wait for synchronization is longer than the step"),
        (~(optim > 0), "time of a step not above 0"),
    )
    reason = np.full(len(nodes), "", dtype=object)
    for broken, text in checks:
        reason[broken & (reason == "")] = text
    kept = Points(*arrays).take(reason == "")
    return kept, tuple(Dropped(int(i), str(reason[i])) for i in np.flatnonzero(reason != ""))


# -- identify --------------------------------------------------------------------------------------------------------


RAISE = 1.1
"""Without points on several nodes, the network between nodes is taken to be at least so much slower than that within one."""


@dataclass(frozen=True)
class Identified:
    """fixed: parameters the fit holds at a value. known: name -> whether the points determine it. rules: what was missing, as text."""

    fixed: dict[str, float]
    known: dict[str, bool]
    rules: tuple[str, ...]


def identify(points: Points) -> Identified:
    """Returns which parameters the points determine, after the configurations that are among them (not after their times).

    A parameter can be free in the fit and still not be known: with one batch size, many pairs of network time and overlap give the
    same step time, and with one count of replicas, many pairs of alpha and beta give the same network time.
    """
    several = points.num_nodes > 1
    within = ~several & (points.num_replicas > 1)
    more = points.num_replicas > 2
    fixed: dict[str, float] = {}
    unknown: set[str] = set()
    rules: list[str] = []

    def rule(text: str, *names: str) -> None:
        rules.append(text)
        unknown.update(names)

    if len(np.unique(points.atomic_bsz)) == 1:
        fixed["alpha_c"] = float(points.accum_step_time.mean()) / 2
        rule("alpha_c and beta_c not told apart: needs two batch sizes per replica; alpha_c is half of the mean step", "alpha_c", "beta_c")
    if not several.any():
        fixed |= {"alpha_n": LEAST, "beta_n": LEAST}
        rule(f"alpha_n not observed: needs > 1 node; taken as {RAISE} times that within a node, or more", "alpha_n")
    if not within.any():
        fixed |= {"alpha_r": LEAST, "beta_r": LEAST}
        rule("alpha_r not observed: needs > 1 replica on 1 node", "alpha_r")
    if not more.any():
        fixed |= {"beta_n": LEAST, "beta_r": LEAST}
    for name, where, link in (("beta_n", several, "> 1 node"), ("beta_r", within, "1 node")):
        alpha = name.replace("beta", "alpha")
        if not (where & more).any():
            rule(f"{name} not observed: needs > 2 replicas on {link}", name)
        elif len(np.unique(points.num_replicas[where])) == 1:
            rule(f"{alpha} and {name} not told apart: needs two counts of replicas on {link}", alpha, name)
    if not (several | within).any():
        rule("gamma not observed: needs > 1 replica", "gamma")
    elif not _overlap_known(points):
        rule(
            "gamma not told apart from network time: needs > 1 replica with two batch sizes on the same nodes and replicas",
            "gamma", "alpha_n", "beta_n", "alpha_r", "beta_r",
        )  # fmt: skip
    return Identified(fixed, {name: name not in unknown for name in PerfParams._fields}, tuple(rules))


def raised(params: PerfParams, points: Points) -> PerfParams:
    """Returns the parameters with those of the network between nodes raised, where no point is on several nodes."""
    if (points.num_nodes > 1).any():
        return params
    return params._replace(alpha_n=max(params.alpha_n, RAISE * params.alpha_r), beta_n=max(params.beta_n, RAISE * params.beta_r))


def _overlap_known(points: Points) -> bool:
    """Whether some nodes and replicas with a network were run with two batch sizes."""
    seen: dict[tuple[float, float], set[float]] = {}
    for n, r, b in zip(points.num_nodes, points.num_replicas, points.atomic_bsz, strict=True):
        if r > 1:
            seen.setdefault((float(n), float(r)), set()).add(float(b))
    return any(len(sizes) > 1 for sizes in seen.values())


# -- What a fit makes small, and its slope ---------------------------------------------------------------------------


OVERLAP: Final = 1e-3
"""Weight of (gamma - 1)^2: of two fits alike, the one with less overlap."""
RATIO: Final = 1e-2
"""Weight of (beta/alpha)^2: of two fits alike, the one whose network time depends less on the number of replicas."""


def objective(params: PerfParams, points: Points) -> float:
    """Returns the value for the seven parameters."""
    accum = np.log(accum_time(params, points.atomic_bsz)) - np.log(points.accum_step_time)
    optim = np.log(optim_time(params, points.num_nodes, points.num_replicas, points.atomic_bsz)) - np.log(points.optim_step_time)
    ratios = (params.beta_n / params.alpha_n) ** 2 + (params.beta_r / params.alpha_r) ** 2
    return float(np.sqrt(np.mean(accum**2)) + np.sqrt(np.mean(optim**2)) + OVERLAP * (params.gamma - 1) ** 2 + RATIO * ratios)


class LogObjective:
    """The same over z = (log of the six times, gamma), as value and gradient, with the roots rounded off where asked.

    A root mean square has a kink where it is 0, which slows any search that follows the slope; sqrt(mean + smooth^2) has none.
    """

    def __init__(self, points: Points) -> None:
        self._bsz = points.atomic_bsz
        self._several = points.num_nodes > 1
        self._within = ~self._several & (points.num_replicas > 1)
        self._beyond = np.maximum(points.num_replicas - 2, LEAST)
        self._alone = np.log(LEAST + LEAST * self._beyond)
        self._accum = np.log(points.accum_step_time)
        self._optim = np.log(points.optim_step_time)

    def __call__(self, z: Floats, smooth: float, *, sloped: bool = True) -> tuple[float, Floats]:
        """Returns (value, slope); without the slope, which is empty then, in half the time."""
        a_c, b_c, a_n, b_n, a_r, b_r = np.exp(np.minimum(np.maximum(z[:6], -700), 700))
        gamma = float(z[6])
        size = len(self._bsz)
        compute = a_c + b_c * self._bsz
        between, inside = a_n + b_n * self._beyond, a_r + b_r * self._beyond
        log_compute = np.log(compute)
        log_network = np.where(self._several, np.log(between), np.where(self._within, np.log(inside), self._alone))
        log_optim = log_power_sum(log_compute, log_network, gamma)
        off_accum, off_optim = log_compute - self._accum, log_optim - self._optim
        rms_accum = float(np.sqrt(off_accum @ off_accum / size + smooth * smooth))
        rms_optim = float(np.sqrt(off_optim @ off_optim / size + smooth * smooth))
        ratio_n, ratio_r = RATIO * (b_n / a_n) ** 2, RATIO * (b_r / a_r) ** 2
        value = rms_accum + rms_optim + OVERLAP * (gamma - 1) ** 2 + ratio_n + ratio_r
        if not sloped:
            return value, np.empty(0)

        pull_optim = off_optim / (size * max(rms_optim, 1e-300))
        share = np.exp(gamma * (log_compute - log_optim))  # of compute in the power sum; the rest is the network's
        rest = np.exp(gamma * (log_network - log_optim))
        pull_compute = off_accum / (size * max(rms_accum, 1e-300)) + pull_optim * share
        pull_network = pull_optim * rest
        slope = np.empty(7)
        slope[0] = a_c * (pull_compute / compute).sum()
        slope[1] = b_c * (pull_compute * self._bsz / compute).sum()
        for place, where, took, alpha, beta, ratio in (
            (2, self._several, between, a_n, b_n, ratio_n),
            (4, self._within, inside, a_r, b_r, ratio_r),
        ):
            pull = np.where(where, pull_network, 0.0) / took
            slope[place] = alpha * pull.sum() - 2 * ratio
            slope[place + 1] = beta * (pull * self._beyond).sum() + 2 * ratio
        slope[6] = (pull_optim * (share * log_compute + rest * log_network - log_optim)).sum() / gamma + 2 * OVERLAP * (gamma - 1)
        return value, slope


# -- Parameters of the step time from measured points ----------------------------------------------------------------

EVALUATIONS: Final = 50_000
"""Of the objective, at the most, in a fit or in all fits of a bootstrap or a leave-one-out: some times what 36 noisy points take."""
LIMIT_S: Final = 300.0
"""The last resort of a machine that has all but stopped. What ends a fit in time is its number of evaluations, so that the same points
give the same answer on every machine."""

FIRST: Final = PerfParams(0.1, 0.01, 0.1, 0.01, 0.1, 0.01, 1.001)
"""The start that does not look at the points."""
_GAMMAS: Final = (1.05, 1.5, 2.5, 5.0)
"""Overlaps of the starts that do."""
_SMOOTH: Final = (1e-2, 1e-3, 1e-4, 1e-6, 0.0)
"""Each search by slope goes on from the last with less rounding of the kink at a perfect fit."""
QUICK: Final = (1e-3, 1e-5)
"""Evaluations that suffice where a start is nearly the optimum."""
_TIE: Final = 1e-9
_NOTHING: Final = 1e-4
"""Of the shortest step; a part of the time below is not seen in it."""
_CLOSED: Final = 1e-3
"""Of a step; a single point whose network takes less has no fit in closed form."""
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
    """Returns the seven parameters alone, see `fit`."""
    return fit(num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time).params


def fit(
    num_nodes: npt.ArrayLike,
    num_replicas: npt.ArrayLike,
    atomic_bsz: npt.ArrayLike,
    accum_step_time: npt.ArrayLike,
    optim_step_time: npt.ArrayLike,
    *,
    evaluations: int = EVALUATIONS,
    limit_s: float = LIMIT_S,
) -> Fit:
    """Returns parameters that bring predicted step times (s) closest to the measured, see `objective`.

    One value per point in each argument: nodes, replicas, samples per replica and micro-step, seconds of a micro-step without and with
    synchronization. One point is met exactly, see `single`. Several: from five starts, over the logarithms of the times, L-BFGS-B, then
    Nelder-Mead, both within the bounds; the best wins, at a tie the one with the least overlap. The same points in any order give the same
    fit, also where `evaluations` of the objective end it, which is among the warnings; so is the wall time `limit_s`, after which the fit
    may be another on another machine.
    Points that cannot be are left out. ValueError if none is left.
    """
    begun = time.perf_counter()
    given, dropped = points(num_nodes, num_replicas, atomic_bsz, accum_step_time, optim_step_time)
    if not len(given):
        why = f": {dropped[0].reason}" if dropped else ""
        raise ValueError(f"no usable point among {len(dropped)}{why}")
    used = given.ordered()
    found = identify(used)
    budget = Budget(evaluations, limit_s)
    params = single(used)
    if params is None:
        params = _searched(used, found, budget)
    warnings = [f"the fit was ended after {budget.spent}: a better one may exist"] if budget.spent else []
    warnings += _remarks(used, params, found)
    return Fit(params, objective(params, used), given, found.known, found.rules, dropped, tuple(warnings), time.perf_counter() - begun)


def single(used: Points) -> PerfParams | None:
    """Returns the parameters that meet a single point exactly; None for several points, or where the optimum is no such closed form.

    Half of the time without synchronization is alpha_c, the rest is per sample, nothing overlaps (gamma = 1), and the network takes what
    synchronizing adds, all of it in alpha: both errors and both terms that the objective adds for overlap and slope are then 0 but for
    what is held at its bound. One replica has no network: any compute between both times is as good, and the time without is taken.
    """
    if len(used) != 1:
        return None
    nodes, replicas, size, accum, optim = (float(getattr(used, name)[0]) for name in COLUMNS)
    network = optim - accum
    hidden = replicas > 1 and network < _CLOSED * optim  # alpha is then weighed against its slope and the overlap
    if hidden or accum / 2 / max(size, 1.0) < LEAST:
        return None
    alpha = network - LEAST * max(replicas - 2, LEAST)
    found = PerfParams(accum / 2, accum / 2 / size, LEAST, LEAST, LEAST, LEAST, GAMMA[0])
    if replicas > 1:
        found = found._replace(alpha_n=alpha) if nodes > 1 else found._replace(alpha_r=alpha)
    return raised(found, used)


def _searched(used: Points, found: Identified, budget: Budget) -> PerfParams:
    """Returns the parameters of the best of the searches from all starts."""
    search = Search(used, found, budget)
    results = []
    for start in starts(used):
        results.append(search.run(start))
        if budget.spent:
            break
    least = min(value for value, _ in results)
    return min((p for value, p in results if value <= least + _TIE * (1 + least)), key=lambda p: p.gamma)


def starts(used: Points) -> list[PerfParams]:
    """Returns where searches begin: one fixed, and for each of four overlaps one from straight lines through the points."""
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


class Budget:
    """How many evaluations of an objective are left, shared by several searches. spent: what ended them, as text; "" while none did."""

    def __init__(self, evaluations: int, limit_s: float) -> None:
        self._given, self._left = evaluations, evaluations
        self._limit_s, self._until = limit_s, time.perf_counter() + limit_s
        self.spent = ""

    def take(self) -> None:
        """Counts one evaluation; `_SpentError` where there is none left."""
        if self._left <= 0:
            self.spent = f"{self._given:,} evaluations"
        elif time.perf_counter() > self._until:
            self.spent = f"{self._limit_s:g} s"
        if self.spent:
            raise _SpentError
        self._left -= 1


class Search:
    """Searches that share what is fixed and one budget."""

    def __init__(self, used: Points, found: Identified, budget: Budget) -> None:
        self._points = used
        self._value = LogObjective(used)
        self._budget = budget
        self._fixed = {PerfParams._fields.index(name): float(np.log(v)) for name, v in found.fixed.items()}
        self._free = np.array([i for i in range(7) if i not in self._fixed])
        self._bounds = [GAMMA if i == 6 else _FAR for i in self._free]

    def run(self, start: PerfParams, *, stages: tuple[float, ...] = _SMOOTH, polish: bool = True) -> tuple[float, PerfParams]:
        """Returns (objective, parameters) at the end of a search from a start; the objective as `objective` gives it."""
        from scipy.optimize import minimize

        low, high = np.array(self._bounds).T
        best = Lowest(np.clip(_logs(start)[self._free], low, high), stages[-1])
        with suppress(_SpentError), one_thread():  # what was spent leaves the best so far
            x = best.x
            for smooth in stages:
                x = minimize(
                    self._smooth, x, args=(smooth, best), jac=True, method="L-BFGS-B", bounds=self._bounds,
                    options={"maxiter": 500, "ftol": 1e-13, "gtol": 1e-10, "maxcor": 20},
                ).x  # fmt: skip
            if polish:
                minimize(
                    self._plain, best.x, args=(best,), method="Nelder-Mead", bounds=self._bounds,
                    options={"maxiter": 600, "maxfev": 1000, "xatol": 1e-9, "fatol": 1e-12, "initial_simplex": self._simplex(best.x)},
                )  # fmt: skip
        params = raised(self._params(best.x), self._points)
        return objective(params, self._points), params

    def _plain(self, x: Floats, best: Lowest) -> float:
        self._budget.take()
        value, _ = self._value(self._full(x), 0.0, sloped=False)
        best.see(value, x)
        return value

    def _smooth(self, x: Floats, smooth: float, best: Lowest) -> tuple[float, Floats]:
        self._budget.take()
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
        """Returns corners a little off x, within the bounds."""
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


class _SpentError(Exception):
    """The budget of a fit is spent."""


def _logs(params: PerfParams) -> Floats:
    return np.array([*np.log(params[:6]), params.gamma])


def _line(x: Floats, y: Floats) -> tuple[float, float]:
    """Returns (intercept, slope) of a straight line, both kept above a thousandth of what y is. Without points: those of the fixed
    start.
    """
    if not len(x):
        return FIRST.alpha_n, FIRST.beta_n
    spread = x - x.mean()
    slope = float(spread @ y / (spread @ spread)) if spread @ spread > 0 else float(y.mean() / max(2 * x.mean(), 1.0))
    mean = float(max(y.mean(), LEAST))
    slope = max(slope, 1e-3 * mean / max(float(x.max()), 1.0), LEAST)
    return max(float(y.mean() - slope * x.mean()), 1e-3 * mean, LEAST), slope


def _remarks(used: Points, params: PerfParams, found: Identified) -> list[str]:
    """Returns remarks on the outcome of a fit."""
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
        out.append(f"{sooner} of {len(used)} points took less time with synchronization than without, by more than 5 %")
    return out


# -- The fit that others make ----------------------------------------------------------------------------------------


def plain_objective(points: Points, *, evaluations: int = EVALUATIONS, limit_s: float = LIMIT_S) -> float | None:
    """Returns the objective that L-BFGS-B over the seven parameters reaches from the first start alone; None where the budget ends it,
    or an iterate lies outside a bound by rounding, which scipy refuses, or the fit is in closed form, see `single`.

    It stalls at the kink of a perfect fit, so that on clean points it can be many times that of `fit`.
    """
    if single(points) is not None:
        return None
    from scipy.optimize import minimize  # a third of a second that only a search should pay

    budget = Budget(evaluations, limit_s)
    found = identify(points)
    names = [n for n in PerfParams._fields if n not in found.fixed]

    def params(free: Floats) -> PerfParams:
        return PerfParams(**found.fixed | dict(zip(names, (float(v) for v in free), strict=True)))

    def value(free: Floats) -> float:
        budget.take()
        return float(objective(params(free), points))

    first = np.array([getattr(FIRST, n) for n in names])
    bounds = [GAMMA if n == "gamma" else (LEAST, None) for n in names]
    try:
        with one_thread():
            optimum = minimize(value, first, method="L-BFGS-B", bounds=bounds)
    except (_SpentError, ValueError):  # scipy 1.17: "`x0` violates bound constraints" with 9.99999999994e-09 at a bound of 1e-8
        return None
    return float(objective(raised(params(np.asarray(optimum.x)), points), points))
