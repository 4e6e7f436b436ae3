"""What a fit makes small, and its slope.

    RMSE(log T_accum) + RMSE(log T_optim) + 1e-3 (gamma - 1)^2 + 1e-2 ((beta_n/alpha_n)^2 + (beta_r/alpha_r)^2)

RMSE over all points, of the logarithm of predicted over measured, unweighted.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.cost.scaling.model import LEAST, PerfParams, accum_time, log_power_sum, optim_time
from tb_sol_plugin.cost.scaling.points import Points
from tb_sol_plugin.tables.arrays import Floats

OVERLAP: Final = 1e-3
"""Weight of (gamma - 1)^2: of two fits alike, the one with less overlap."""
RATIO: Final = 1e-2
"""Weight of (beta/alpha)^2: of two fits alike, the one whose network time depends less on the number of replicas."""


def objective(params: PerfParams, points: Points) -> float:
    """The value for the seven parameters."""
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

    def __call__(self, z: Floats, smooth: float) -> tuple[float, Floats]:
        a_c, b_c, a_n, b_n, a_r, b_r = np.exp(np.clip(z[:6], -700, 700))
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

        pull_optim = off_optim / (size * max(rms_optim, 1e-300))
        share = np.exp(gamma * (log_compute - log_optim))  # of compute in the power sum; the rest is the network's
        rest = np.exp(gamma * (log_network - log_optim))
        pull_compute = off_accum / (size * max(rms_accum, 1e-300)) + pull_optim * share
        pull_network = pull_optim * rest
        slope = np.empty(7)
        slope[0] = a_c * (pull_compute / compute).sum()
        slope[1] = b_c * (pull_compute * self._bsz / compute).sum()
        for place, where, time, alpha, beta, ratio in (
            (2, self._several, between, a_n, b_n, ratio_n),
            (4, self._within, inside, a_r, b_r, ratio_r),
        ):
            pull = np.where(where, pull_network, 0.0) / time
            slope[place] = alpha * pull.sum() - 2 * ratio
            slope[place + 1] = beta * (pull * self._beyond).sum() + 2 * ratio
        slope[6] = (pull_optim * (share * log_compute + rest * log_network - log_optim)).sum() / gamma + 2 * OVERLAP * (gamma - 1)
        return value, slope
