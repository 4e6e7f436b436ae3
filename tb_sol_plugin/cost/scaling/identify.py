"""What a set of points determines of the seven parameters, and what a fit takes for the rest."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tb_sol_plugin.cost.scaling.model import LEAST, PerfParams
from tb_sol_plugin.cost.scaling.points import Points

RAISE = 1.1
"""Without points on several nodes, the network between nodes is taken to be at least so much slower than that within one."""


@dataclass(frozen=True)
class Identified:
    """fixed: parameters the fit holds at a value. known: name -> whether the points determine it. rules: what was missing, as text."""

    fixed: dict[str, float]
    known: dict[str, bool]
    rules: tuple[str, ...]


def identify(points: Points) -> Identified:
    """Which parameters the points determine, after the configurations that are among them (not after their times).

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
    """The parameters with those of the network between nodes raised, where no point is on several nodes."""
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
