"""Tells whether a series grows, robustly over thousands of noisy times: a slope with its evidence, and the first lasting rise.

All of it works on medians of at most `BLOCKS` equal stretches, so a million points cost as much as a few hundred and single spikes
(a checkpoint, a garbage collection) weigh nothing.

    slope    P. K. Sen, Estimates of the regression coefficient based on Kendall's tau, JASA 63 (1968): the median of the slopes between
             all pairs; its 95 % interval are the slopes whose ranks lie 1.96 standard deviations of Kendall's S around the middle
    change   A. N. Pettitt, A non-parametric approach to the change-point problem, Applied Statistics 28 (1979)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Floats, Ints

BLOCKS: Final = 200
FEWEST: Final = 10
"""Points below which nothing is said."""
SIDE: Final = 5
"""Points that each side of a change must have."""
WORTH: Final = 0.03
"""A change of less than this share of the level before is not told."""
CHANCE: Final = 0.01
"""Probability under which a change is believed."""


@dataclass(frozen=True)
class Slope:
    """Change of y per unit of x: its middle, the ends of its 95 % interval, and the share of pairs of stretches in which y rises."""

    value: float
    low: float
    high: float
    rising: float

    @property
    def sure(self) -> bool:
        """The interval leaves out zero."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Change:
    """From point `at` on the level is `after`; from point `since` up to there it was `before`.

    until: the first point of the next change, or the end.
    """

    at: int
    before: float
    after: float
    since: int
    until: int

    @property
    def share(self) -> float:
        """Growth over the level before."""
        return self.after / self.before - 1.0


def slope(x: Floats, y: Floats) -> Slope | None:
    """Returns the slope of y over x (ascending); None for fewer than FEWEST points or where x does not change."""
    if len(y) < FEWEST:
        return None
    bx, by = _blocks(x), _blocks(y)
    first, second = np.triu_indices(len(by), 1)
    across, up = bx[second] - bx[first], by[second] - by[first]
    use = across > 0
    if not use.any():
        return None
    slopes = np.sort(up[use] / across[use])
    size, count = len(by), len(slopes)
    half = 1.96 * np.sqrt(size * (size - 1) * (2 * size + 5) / 18.0)
    low, high = (int(np.clip(round((count + sign * half) / 2), 0, count - 1)) for sign in (-1, 1))
    moved = up[use] != 0
    rising = float((up[use] > 0).sum() / moved.sum()) if moved.any() else 0.5
    return Slope(float(np.median(slopes)), float(slopes[low]), float(slopes[high]), rising)


def changes(y: Floats) -> list[Change]:
    """Returns lasting changes of level by more than WORTH, in order; [] for too few points."""
    if len(y) < FEWEST:
        return []
    edges = _edges(len(y))
    levels = np.array([np.median(y[a:b]) for a, b in pairwise(edges.tolist())])
    cuts = sorted(int(edges[c]) for c in _cuts(levels, 0, len(levels), max(SIDE * len(levels) // len(y), 2), depth=3))
    cuts = [c for c in dict.fromkeys(_refined(y, c, 2 * int(np.diff(edges).max()))[0] for c in cuts) if 0 < c < len(y)]
    while True:  # levels that turn out alike are one level
        ends = [0, *cuts, len(y)]
        middle = [float(np.median(y[a:b])) for a, b in pairwise(ends)]
        weak = [i for i, c in enumerate(cuts) if abs(middle[i + 1] / middle[i] - 1) < WORTH or min(c - ends[i], ends[i + 2] - c) < SIDE]
        if not weak:
            break
        del cuts[min(weak, key=lambda i: abs(middle[i + 1] - middle[i]))]
    return [Change(c, middle[i], middle[i + 1], ends[i], ends[i + 2]) for i, c in enumerate(cuts)]


def drifts(x: Floats, y: Floats, found: Slope, steps: list[Change]) -> bool:
    """Whether a straight line describes y better than the levels between `steps` (smaller sum of absolute distances of stretches)."""
    bx, by = _blocks(x), _blocks(y)
    line = by - found.value * bx
    level = np.full(len(by), steps[0].before)
    for step in steps:
        level[np.arange(len(by)) * len(y) >= step.at * len(by)] = step.after
    return float(np.abs(line - np.median(line)).sum()) < float(np.abs(by - level).sum())


def _edges(size: int) -> npt.NDArray[np.int64]:
    return np.unique(np.linspace(0, size, min(BLOCKS, size) + 1).astype(np.int64))


def _blocks(values: Floats) -> Floats:
    """Returns medians of equal stretches; the values themselves where they are few."""
    edges = _edges(len(values))
    return np.array([np.median(values[a:b]) for a, b in pairwise(edges.tolist())])


def _cuts(levels: Floats, low: int, high: int, side: int, depth: int) -> list[int]:
    """Returns the places where Pettitt's test finds a change, by halving at each."""
    size = high - low
    if depth == 0 or size < 2 * side:
        return []
    part = levels[low:high]
    above = np.sign(part[:, None] - part[None, :]).sum(axis=1)
    walk = np.abs(np.cumsum(above))[:-1]
    walk[: side - 1] = 0
    walk[size - side :] = 0
    at = int(np.argmax(walk))
    chance = 2.0 * np.exp(-6.0 * walk[at] ** 2 / (size**3 + size**2))
    if walk[at] <= 0 or chance > CHANCE:
        return []
    cut = low + at + 1
    return [*_cuts(levels, low, cut, side, depth - 1), cut, *_cuts(levels, cut, high, side, depth - 1)]


def _refined(y: Floats, cut: int, reach: int) -> tuple[int, float]:
    """Returns the point within `reach` of `cut` that splits its neighborhood into two levels with the least sum of absolute distances."""
    low, high = max(cut - reach, 0), min(cut + reach, len(y))
    around = y[low:high]
    before, after = np.median(y[max(cut - 4 * reach, 0) : cut]), np.median(y[cut : cut + 4 * reach])
    loss = np.concatenate(([0.0], np.cumsum(np.abs(around - before)))) + np.abs(around - after).sum()
    loss -= np.concatenate(([0.0], np.cumsum(np.abs(around - after))))
    best = int(np.argmin(loss))
    return low + best, float(loss[best])


# -- Fewer points of a curve made of steps, with every largest and smallest value of it kept -------------------------



LEAST = 8
"""Points that are always allowed."""


def thinned(time_ns: Ints, levels: list[Ints], most: int) -> Ints:
    """Returns positions of at most `most` points of curves over the same times (ascending), in order.

    Time is cut into equal parts; of each part its first and its last point stay, and of every curve its first largest and first
    smallest. So the largest and smallest value of every curve, and where they stand, are exact, and every step lies in its part.
    """
    count = len(time_ns)
    most = max(most, LEAST, 2 * (2 + 2 * len(levels)))
    if count <= most:
        return np.arange(count, dtype=np.int64)
    parts = most // (2 + 2 * len(levels))
    span = float(time_ns[-1] - time_ns[0]) or 1.0
    part = np.minimum(((time_ns - time_ns[0]) / span * parts).astype(np.int64), parts - 1)
    begin = np.flatnonzero(np.r_[True, part[1:] != part[:-1]])
    of = np.cumsum(np.r_[False, part[1:] != part[:-1]])
    kept = [begin, np.r_[begin[1:] - 1, count - 1]]
    for level in levels:
        for extreme in (np.maximum.reduceat(level, begin), np.minimum.reduceat(level, begin)):
            at = np.flatnonzero(level == extreme[of])
            kept.append(at[np.r_[True, of[at][1:] != of[at][:-1]]])
    out: Ints = np.unique(np.concatenate(kept)).astype(np.int64)
    return out
