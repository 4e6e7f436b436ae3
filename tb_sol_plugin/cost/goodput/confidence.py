"""Estimates how far a fit can be trusted: each configuration left out, residuals drawn anew, bands of what follows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.goodput.fit import EVALUATIONS, LIMIT_S, QUICK, Budget, Fit, Points, Search, identify
from tb_sol_plugin.cost.goodput.model import PerfParams, accum_time, optim_time
from tb_sol_plugin.tables.arrays import Floats

RESAMPLES: Final = 200
SEED: Final = 20211
_EXACT: Final = 1e-6
"""Residuals below are of the search, not of the points: none moves."""


@dataclass(frozen=True)
class LeftOut:
    """One configuration that a fit did not see. errors: predicted / measured - 1, a mean over its points; NaN where it could not be fitted.

    because: why not, "" if it could. The configuration is (num_nodes, num_replicas, atomic_bsz).
    """

    num_nodes: int
    num_replicas: int
    atomic_bsz: float
    accum_error: float
    optim_error: float
    because: str


@dataclass(frozen=True)
class Bootstrap:
    """samples: parameters of each resample. because: why there are none, "" if there are. ended: what ended it early, as text, else "".

    widened: what residuals were multiplied with, for the freedom that the fit itself took from them.
    """

    samples: tuple[PerfParams, ...]
    widened: float
    because: str
    ended: str


def leave_one_out(fit: Fit, *, evaluations: int = EVALUATIONS, limit_s: float = LIMIT_S) -> list[LeftOut]:
    """Returns for each configuration, in order: the fit of all others, and how far its prediction of this one is off.

    A configuration without which a parameter it depends on would no longer be known has no prediction, nor have those that are not
    reached within so many evaluations of the objective over all fits (or the wall time, see `fit`).
    """
    budget = Budget(evaluations, limit_s)
    used = fit.points.ordered()
    keys = np.stack([used.num_nodes, used.num_replicas, used.atomic_bsz], axis=1)
    out: list[LeftOut] = []
    for n, r, b in np.unique(keys, axis=0):
        where = (keys == (n, r, b)).all(axis=1)
        rest = used.take(~where)
        because, accum, optim = "", np.nan, np.nan
        if not len(rest):
            because = "the only configuration"
        elif budget.spent:
            because = f"not reached within {budget.spent}"
        else:
            because = _lost(fit, identify(rest).known, float(n), float(r))
        if not because:
            _, params = Search(rest, identify(rest), budget).run(fit.params, stages=QUICK, polish=False)
            measured = used.take(where)
            accum = float(np.mean(accum_time(params, b) / measured.accum_step_time) - 1)
            optim = float(np.mean(optim_time(params, n, r, b) / measured.optim_step_time) - 1)
            if budget.spent:
                because, accum, optim = f"not reached within {budget.spent}", np.nan, np.nan
        out.append(LeftOut(int(n), int(r), float(b), accum, optim, because))
    return out


def bootstrap(
    fit: Fit, *, resamples: int = RESAMPLES, seed: int = SEED, evaluations: int = EVALUATIONS, limit_s: float = LIMIT_S
) -> Bootstrap:
    """Returns parameters fitted to the predicted times with residuals drawn anew, with replacement; both times of a point are drawn
    together.

    Residuals are of the logarithm of the time, less their mean. The same seed gives the same samples, also where the evaluations of the
    objective over all fits end them; only the wall time, see `fit`, may end them elsewhere on another machine. Parameters that the
    points do not determine do not move as far as they could: see `Fit.identified`.
    """
    budget = Budget(evaluations, limit_s)
    used = fit.points.ordered()
    found = identify(used)
    free = 7 - len(found.fixed)
    left = 2 * len(used) - free
    if left <= 0:
        return Bootstrap((), 1.0, f"{2 * len(used)} times leave nothing to compare with {free} free parameters", "")
    widened = float(np.sqrt(2 * len(used) / left))
    accum = accum_time(fit.params, used.atomic_bsz)
    optim = optim_time(fit.params, used.num_nodes, used.num_replicas, used.atomic_bsz)
    off = np.log(np.stack([used.accum_step_time / accum, used.optim_step_time / optim]))
    off = (off - off.mean(axis=1, keepdims=True)) * widened
    if np.abs(off).max() < _EXACT:
        return Bootstrap((fit.params,) * resamples, widened, "", "")
    rng = np.random.default_rng(seed)
    samples: list[PerfParams] = []
    for _ in range(resamples):
        drawn = np.exp(off[:, rng.integers(len(used), size=len(used))])
        resampled = Points(used.num_nodes, used.num_replicas, used.atomic_bsz, accum * drawn[0], optim * drawn[1])
        _, params = Search(resampled, found, budget).run(fit.params, stages=QUICK, polish=False)
        if budget.spent:
            because = "" if samples else f"none was reached within {budget.spent}"
            return Bootstrap(tuple(samples), widened, because, budget.spent)
        samples.append(params)
    return Bootstrap(tuple(samples), widened, "", "")


def band(
    samples: tuple[PerfParams, ...], predict: Callable[[PerfParams], npt.ArrayLike], *, level: float = 0.9
) -> tuple[Floats, Floats]:
    """Returns (low, high) between which a prediction lies in `level` of the samples: arrays of the shape that `predict` gives.

    ValueError without samples.
    """
    if not samples:
        raise ValueError("no samples: a band needs a bootstrap that found some")
    values = np.stack([np.asarray(predict(s), float) for s in samples])
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return np.asarray(low), np.asarray(high)


def _lost(fit: Fit, known: dict[str, bool], nodes: float, replicas: float) -> str:
    """Returns which parameters of a configuration only that configuration made known, as text."""
    needed = ["alpha_c", "beta_c"]
    if replicas > 1:
        kind = "n" if nodes > 1 else "r"
        needed += [f"alpha_{kind}"] + ([f"beta_{kind}"] if replicas > 2 else [])
    lost = [name for name in needed if fit.identified[name] and not known[name]]
    return f"without it {' and '.join(lost)} would not be known" if lost else ""
