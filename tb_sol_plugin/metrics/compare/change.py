"""Estimates how much a number changed between two sides, and whether the change is more than noise.

A side is one or more runs, each with a value per step. The change is that of the medians over all steps of a side. Its interval joins two
kinds of noise: within a run, by a moving-block bootstrap, since steps that follow each other are alike; and from run to run, which one run
cannot show: there a floor stands in for it, so that one run a side never proves a change below the floor.

Kuensch 1989 (moving blocks); Benjamini and Hochberg 1995 (many rows).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Values: TypeAlias = npt.NDArray[np.float64]
Verdict: TypeAlias = Literal["worse", "better", "same", "within", "inconclusive", "unknown"]
"""unknown: a side has no value, or too few steps. within: not more than the limit of a gate. same: alike, for a page."""

DRAWS: Final = 2_000
"""Draws of the bootstrap."""
SEED: Final = 20_26
"""Same input, same interval."""
CONFIDENCE: Final = 95
"""Percent of the interval."""
RUN_NOISE: Final = 0.005
"""Standard deviation from run to run where fewer than `ENOUGH_RUNS` show it, as part of the median."""
LEAST_RUN_NOISE: Final = 0.002
"""What several runs show is not taken for less than this."""
ENOUGH_RUNS: Final = 3
LEAST_STEPS: Final = 5
"""Fewer steps on a side give a difference without a verdict."""
ALIKE: Final = 0.01
"""An interval within this part of the median is called the same, on a page."""
TOO_SMALL: Final = 0.001
"""A proven change below this part of the step is called the same."""
OUTLYING: Final = 3 * 1.4826
"""Median absolute deviations from the median, beyond which a step is set apart as slow or fast."""
NOTHING_LEFT: Final = -1.0
"""A time cannot fall by more than all of it."""
NORMAL: Final = 1.96
"""Half width of a 95 % interval in standard deviations of a normal distribution."""
STUDENT: Final = (12.71, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""The same of Student's distribution with 1, 2, ... degrees of freedom: few pairs show their own noise badly."""
LEVELS_APART: Final = 4.0
"""Standard deviations within the halves, of a gap that makes two levels of numbers."""
LEVEL_SHARE: Final = 0.2
LEAST_OF_LEVEL: Final = 3
MOST_STEPS_NAMED: Final = 1_000
"""Above so many further steps a machine is called too noisy."""


@dataclass(frozen=True)
class Change:
    """How a number changed. Parts of A's median: 0.05 is 5 % more.

    a, b: medians of the sides. change: b / a - 1. low, high: its 95 % interval. detectable: half width of the interval, the least change
    that these steps could have shown. samples, runs: of A and B. None is unknown: a side without values, or a median of 0.
    """

    a: float | None
    b: float | None
    change: float | None
    low: float | None
    high: float | None
    samples: tuple[int, int]
    runs: tuple[int, int]

    @property
    def detectable(self) -> float | None:
        return (self.high - self.low) / 2 if self.low is not None and self.high is not None else None


def kept(values: Values) -> npt.NDArray[np.bool_]:
    """Returns which steps lie within three robust standard deviations of the median; the others are slow or fast ones."""
    if not len(values):
        return np.zeros(0, np.bool_)
    middle = float(np.median(values))
    spread = OUTLYING * float(np.median(np.abs(values - middle)))
    return np.asarray(np.abs(values - middle) <= spread, np.bool_)


def drawn_steps(count: int, draws: int, random: np.random.Generator) -> npt.NDArray[np.intp]:
    """Returns (draws, count) indexes of steps, in blocks of round(count ** (1/3)) that follow each other."""
    block = max(1, round(count ** (1 / 3)))
    blocks = -(-count // block)
    starts = random.integers(0, count - block + 1, size=(draws, blocks))
    return np.asarray((starts[:, :, None] + np.arange(block)).reshape(draws, -1)[:, :count], np.intp)


def middle_of(runs: Sequence[Values], weights: Sequence[Values] | None = None) -> float | None:
    """Returns the median over all steps of a side; with weights, of rates, their weighted mean: sum over sum. None without a step."""
    found = [np.asarray(run, np.float64) for run in runs if len(run)]
    if not found:
        return None
    values = np.concatenate(found)
    if weights is None:
        return float(np.median(values))
    weight = np.concatenate([w for w in weights if len(w)])
    return float((values * weight).sum() / weight.sum()) if weight.sum() else None


def drawn_medians(runs: Sequence[Values], random: np.random.Generator, draws: int = DRAWS) -> Values:
    """Returns the median over all steps of a side, drawn again and again within each of its runs."""
    drawn = np.concatenate([run[drawn_steps(len(run), draws, random)] for run in runs if len(run)], axis=1)
    return np.asarray(np.median(drawn, axis=1), np.float64)


def noise_between_runs(runs: Sequence[Values], floor: float = RUN_NOISE) -> float:
    """Returns the standard deviation of run medians as part of their mean: measured over `ENOUGH_RUNS` or more, else `floor`."""
    medians = np.array([np.median(run) for run in runs if len(run)])
    if len(medians) < ENOUGH_RUNS or not medians.mean():
        return floor
    return max(float(medians.std(ddof=1) / medians.mean()), LEAST_RUN_NOISE)


def drawn_rates(runs: Sequence[Values], weights: Sequence[Values], random: np.random.Generator, draws: int = DRAWS) -> Values:
    """Returns the weighted mean over all steps of a side, drawn again and again within each of its runs."""
    above, below = np.zeros(draws), np.zeros(draws)
    for run, weight in zip(runs, weights, strict=True):
        if len(run):
            steps = drawn_steps(len(run), draws, random)
            above += (run * weight)[steps].sum(1)
            below += weight[steps].sum(1)
    return np.asarray(above / below, np.float64)


def change_of(
    a: Sequence[Values], b: Sequence[Values], *, floor: float = RUN_NOISE, between: float | None = None, fixed: bool = False,
    weights: tuple[Sequence[Values], Sequence[Values]] | None = None, draws: int = 0,
) -> Change:  # fmt: skip
    """Returns how the median changed from side A to side B; each a value per step (any unit), per run.

    floor: noise from run to run where a side has too few runs to show it; the larger one of both sides counts. between: that noise where
    it is known. fixed: A is a number that somebody committed, which has no noise of its own. weights: of rates, what each value was
    divided by, of both sides: it is then the change of sum over sum. draws: of the bootstrap; 0: `DRAWS`.
    """
    found = exactly(a, b, weights)
    if found.change is None or (found.a == 0 and found.b == 0):
        return found
    change = found.change
    random = np.random.default_rng(SEED)
    if weights is None:
        drawn_a, drawn_b = (drawn_medians(_recorded(side), random, draws or DRAWS) for side in (a, b))
    else:
        drawn_a, drawn_b = (drawn_rates(side, of, random, draws or DRAWS) for side, of in zip((a, b), weights, strict=True))
    a, b = (_recorded(side) for side in (a, b))
    some = drawn_a != 0
    tail = (100 - CONFIDENCE) / 2
    low, high = np.percentile(drawn_b[some] / drawn_a[some] - 1, [tail, 100 - tail])
    noise = between if between is not None else max(noise_between_runs(a, floor), noise_between_runs(b, floor))
    width = NORMAL * noise * float(np.sqrt((0 if fixed else 1 / len(a)) + 1 / len(b)))
    half = float(np.hypot((high - low) / 2, width))
    return replace(found, low=max(change - half, NOTHING_LEFT), high=change + half)


def change_of_pairs(a: Sequence[Values], b: Sequence[Values], *, floor: float = RUN_NOISE) -> Change:
    """Returns how the median changed from each run of A to the run of B that was recorded beside it: what drifts from pair to pair cancels.

    a, b: runs in pairs. The change is the mean of those of the pairs; its noise is how much these differ, of two pairs that of `floor`.
    """
    found = exactly(a, b)
    if not found.a or found.change is None or any(np.median(run) == 0 for run in a):
        return found
    random = np.random.default_rng(SEED)
    each = np.array([np.median(y) / np.median(x) - 1 for x, y in zip(a, b, strict=True)])
    drawn = np.mean([drawn_medians([y], random) / drawn_medians([x], random) - 1 for x, y in zip(a, b, strict=True)], axis=0)
    tail = (100 - CONFIDENCE) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail])
    enough = len(each) >= ENOUGH_RUNS
    noise = max(float(each.std(ddof=1)) if enough else floor * 2**0.5, LEAST_RUN_NOISE * 2**0.5)
    width = (STUDENT[min(len(each) - 2, len(STUDENT) - 1)] if enough else NORMAL) * noise / len(each) ** 0.5
    half, change = float(np.hypot((high - low) / 2, width)), float(each.mean())
    return replace(found, change=change, low=max(change - half, NOTHING_LEFT), high=change + half)


def turned(found: Change) -> Change:
    """Returns a change of what is better the more there is of it, as one that is worse the larger it is; a and b stay."""
    if found.change is None:
        return found
    low, high = (None if end is None else -end for end in (found.high, found.low))
    return replace(found, change=-found.change, low=low, high=high)


def false_alarms(noise: float, limit: float, runs: tuple[int, int]) -> float:
    """Returns how often a gate calls an unchanged candidate a regression, where runs differ by nothing but `noise` (standard deviation).

    The change is then normal, and fails where it exceeds the limit by half an interval. runs: of both sides; a committed number has none.
    """
    apart = noise * math.sqrt(sum(1 / n for n in runs if n))
    return math.erfc((limit / apart + NORMAL) / math.sqrt(2)) / 2 if apart else 0.0


def judged(found: Change, limit: float) -> Verdict:
    """Returns the verdict of a gate: worse where the whole interval lies above the limit, within or better where it lies below it.

    limit: largest change that passes, as part of A's median.
    """
    if found.low is None or found.high is None or min(found.samples) < 1:
        return "unknown"
    if found.low > limit:
        return "worse"
    if found.high <= limit:
        return "better" if found.high < 0 else "within"
    return "inconclusive"


def seen(found: Change, alike: float = ALIKE, *, least: int = LEAST_STEPS) -> Verdict:
    """Returns the verdict of a page: worse, better, the same within `alike`, else inconclusive; unknown with fewer steps than `least`."""
    if found.low is None or found.high is None or found.change is None or min(found.samples) < least:
        return "unknown"
    if found.low > 0 or found.high < 0:
        return "same" if abs(found.change) < TOO_SMALL else "worse" if found.low > 0 else "better"
    return "same" if -alike <= found.low and found.high <= alike else "inconclusive"


def exactly(
    a: Sequence[Values], b: Sequence[Values], weights: tuple[Sequence[Values], Sequence[Values]] | None = None
) -> Change:  # fmt: skip
    """Returns how a count or a size changed: these are nearly free of noise, so the interval is the change itself."""
    middle_a, middle_b = (middle_of(side, weights and weights[i]) for i, side in enumerate((a, b)))
    a, b = (_recorded(side) for side in (a, b))
    samples, runs = (sum(map(len, a)), sum(map(len, b))), (len(a), len(b))
    if middle_a == 0 and middle_b == 0:
        return Change(0.0, 0.0, 0.0, 0.0, 0.0, samples, runs)
    if not middle_a or middle_b is None:
        return Change(middle_a, middle_b, None, None, None, samples, runs)
    change = middle_b / middle_a - 1
    return Change(middle_a, middle_b, change, change, change, samples, runs)


def _recorded(side: Sequence[Values]) -> list[Values]:
    """Returns the runs of a side that have values."""
    return [np.asarray(run, np.float64) for run in side if len(run)]


def steps_to_decide(found: Change, limit: float) -> int | None:
    """Returns how many more steps a side would decide an inconclusive change; None where no sensible number would.

    The half width falls with the root of the number of steps, so n * (half width / distance to the limit) ** 2 are needed.
    """
    if found.change is None or found.detectable is None:
        return None
    apart = abs(found.change - limit)
    have = min(found.samples)
    needed = have * (found.detectable / apart) ** 2 if apart else float("inf")
    return int(np.ceil(needed)) - have if have < needed <= have + MOST_STEPS_NAMED else None


def discoveries(p: Values, rate: float = 0.05) -> npt.NDArray[np.bool_]:
    """Returns which of many rows changed, with at most a share `rate` of false ones among them (Benjamini and Hochberg)."""
    order = np.argsort(p, kind="stable")
    passed = np.flatnonzero(p[order] <= rate * np.arange(1, len(p) + 1) / max(len(p), 1))
    out = np.zeros(len(p), np.bool_)
    if len(passed):
        out[order[: passed[-1] + 1]] = True
    return out


# -- What lowers trust in a comparison --------------------------------------------------------------------------------


def autocorrelation(values: Values) -> float | None:
    """Returns how alike steps are that follow each other, -1 to 1; None of fewer than `LEAST_STEPS` steps, or of equal ones."""
    if len(values) < LEAST_STEPS:
        return None
    apart = values - values.mean()
    total = float((apart**2).sum())
    return float((apart[1:] * apart[:-1]).sum()) / total if total else None


def has_trend(values: Values) -> bool:
    """Returns whether the steps of a run grow or fall from its begin to its end (Mann and Kendall, at 1 %)."""
    n = len(values)
    if n < 2 * LEAST_STEPS:
        return False
    values = values[np.linspace(0, n - 1, min(n, 500)).round().astype(np.intp)]
    n = len(values)
    s = float(np.sign(values[None, :] - values[:, None])[np.triu_indices(n, 1)].sum())
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    return bool(variance > 0 and (abs(s) - 1) / np.sqrt(variance) > 2.576)


class Levels(NamedTuple):
    """Two levels that numbers lie around. low, high: their medians. is_high: which numbers are of the higher one."""

    low: float
    high: float
    is_high: npt.NDArray[np.bool_]


def two_levels(values: Values) -> Levels | None:
    """Returns the two levels that values lie around; None where they lie around one.

    Two where the widest gap between neighbors in size is more than four standard deviations within the halves at its sides, of which each
    has a fifth of the values or more, and three.
    """
    order = np.sort(values)
    least = max(LEAST_OF_LEVEL, int(np.ceil(LEVEL_SHARE * len(order))))
    if len(order) < 2 * least:
        return None
    gaps = np.diff(order)[least - 1 : len(order) - least]
    at = least + int(np.argmax(gaps))
    low, high = order[:at], order[at:]
    within = float(np.sqrt((low.var() * len(low) + high.var() * len(high)) / len(order)))
    if float(order[at] - order[at - 1]) <= LEVELS_APART * within or order[at] - order[at - 1] <= TOO_SMALL * order[at]:
        return None
    return Levels(float(np.median(low)), float(np.median(high)), np.asarray(values >= order[at], np.bool_))
