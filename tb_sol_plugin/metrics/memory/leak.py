"""Does memory in use grow from step to step? A line through the least of each step, a verdict, and what stays behind.

The least that was in use in a step is what outlives it: activations and gradients come and go above it. Growth of that is bytes per
step by ordinary least squares, and it is called a leak where it is above 0 over at least `FEWEST` steps with R² above `SURE`.
What is no leak has its own verdict: the state of an optimizer or a cache that appears in the first steps, growth that levels off,
a level that falls back. Steps are those of a trace, or iterations of the records of a program, the long view.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.fragmentation import unthinned
from tb_sol_plugin.metrics.memory.per_step import per_step
from tb_sol_plugin.metrics.memory.survivors import nobody, parts_that_grow, survivors
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Floats

Verdict = Literal["leak", "none", "warm_up", "levels_off", "falls_back", "unsteady", "few", "no_steps"]

FEWEST: Final = 5
SURE: Final = 0.8
JUMP: Final = 3.0
"""A first increase of more than this many times the later ones is warm-up."""
MOST_WARM: Final = 3
"""Steps at the beginning that are left out where they stand apart: the state of the optimizer appears in the first."""
LONG: Final = 20
"""From this many steps on, the first tenth is left out in any case: caches fill."""
LASTING: Final = 0.5
"""Growth in the second half of the steps below this share of the whole slope has levelled off."""
DROP: Final = 0.5
"""A fall from one step to the next of more than this share of the growth: memory is given back."""
WORDS: Final[dict[Verdict, str]] = {
    "leak": "memory in use grows from step to step",
    "none": "memory in use does not grow from step to step",
    "warm_up": "memory in use grows in the first steps only",
    "levels_off": "memory in use grows and levels off",
    "falls_back": "memory in use rises and falls back",
    "unsteady": "memory in use changes from step to step without a steady growth",
    "few": f"too few steps: at least {FEWEST} after the first ones are needed",
    "no_steps": "no step was recorded",
}


@dataclass(frozen=True)
class Leak:
    """What the steps of one curve say.

    steps: one row per step: step (number), start_ns, end_ns, least, most (bytes in use in it; -1 unknown), fitted (bytes, NaN where left
    out), warm (left out as warm-up), left (bytes allocated in it that nobody freed by the end, NaN unknown).
    slope: bytes per step, r2; NaN without a fit. verdict: see WORDS. evidence: who leaves memory behind step by step (see `survivors`),
    the largest first; empty where nothing tells.
    hint: how to record what is missing, "" where nothing is.
    """

    steps: pd.DataFrame
    slope: float
    r2: float
    verdict: Verdict
    evidence: pd.DataFrame
    hint: str

    @property
    def found(self) -> bool:
        return self.verdict == "leak"

    @property
    def used(self) -> int:
        """Steps that the line goes through."""
        return int((~self.steps["warm"].to_numpy(dtype=bool)).sum()) if len(self.steps) else 0

    @property
    def growth(self) -> int:
        """Bytes by which the line grows over its steps; 0 without one."""
        if self.slope != self.slope:
            return 0
        x = self.steps.loc[~self.steps["warm"], "step"].to_numpy()
        return round(self.slope * float(x[-1] - x[0]))

    @property
    def words(self) -> str:
        return WORDS[self.verdict]


STEPS_MISSING: Final = "call prof.step() after every iteration, and record a trace beside the snapshot"
ITERATIONS_MISSING: Final = "record memory while the loop runs: sol.capture(logdir, model=model, memory=True, memory_every=10)"
MORE: Final = "record more steps, or the whole run at intervals: sol.capture(logdir, model=model, memory_every=10)"


def leak(capture: Capture, curve: Curves) -> Leak:
    """The verdict of one curve."""
    return memo(capture, ("memory.leak", curve.device, curve.source), lambda: _leak(capture, unthinned(capture, curve)))


def longest(capture: Capture, curves: tuple[Curves, ...]) -> Leak | None:
    """Of the curves of one memory the verdict that rests on most steps, one that found a leak before all others; None without curves.

    Who leaves memory behind is told by another of them where this one cannot: records of a program see hundreds of steps, a trace sees who.
    """
    found = [leak(capture, c) for c in curves]
    if not found:
        return None
    best = max(found, key=lambda f: (f.found, f.used))
    tells = next((f for f in found if f.found and len(f.evidence)), None)
    return replace(best, evidence=tells.evidence) if best.found and not len(best.evidence) and tells is not None else best


def _leak(capture: Capture, curve: Curves) -> Leak:
    steps = per_step(capture, curve)
    if not len(steps):
        hint = ITERATIONS_MISSING if curve.source == "recorder" else STEPS_MISSING
        return Leak(_with(steps, np.zeros(0, bool), np.zeros(0)), np.nan, np.nan, "no_steps", nobody(), hint)
    x, y = steps["step"].to_numpy(np.float64), steps["least"].to_numpy(np.float64)
    warm, slope, r2, verdict = judged(x, y)
    line = np.full(len(x), np.nan)
    if slope == slope:
        cool = ~warm
        line = np.where(cool, y[cool].mean() + slope * (x - x[cool].mean()), np.nan)
    out = _with(steps, warm, line)
    if verdict != "leak":
        return Leak(out, slope, r2, verdict, nobody(), MORE if verdict == "few" else "")
    if curve.source == "recorder":
        return Leak(out, slope, r2, verdict, parts_that_grow(capture, curve), "")
    who = survivors(capture, curve, out.loc[~warm])
    if len(who.left):
        out.loc[~warm, "left"] = who.left
    return Leak(out, slope, r2, verdict, who.groups, "")


def judged(x: Floats, y: Floats) -> tuple[npt.NDArray[np.bool_], float, float, Verdict]:
    """(steps left out as warm-up, slope, R², verdict) of the least bytes y in the steps of numbers x, ascending."""
    warm = np.zeros(len(x), bool)
    warm[: warm_up(y)] = True
    x_, y_ = x[~warm], y[~warm]
    if len(x_) < FEWEST:
        slope, r2 = line_through(x_, y_) if len(x_) > 1 else (np.nan, np.nan)
        return warm, slope, r2, "few"
    slope, r2 = line_through(x_, y_)
    if not slope > 0:
        return warm, slope, r2, "warm_up" if warm.any() and float(y_.min()) > float(y[0]) else "none"
    growth = float(y_[-1] - y_[0])
    drop = float(np.maximum(-np.diff(y_), 0).max())
    if growth > 0 and drop > DROP * growth:
        return warm, slope, r2, "falls_back"
    if not r2 > SURE:
        flat = float(np.abs(np.diff(y_)).max()) == 0 or growth <= 0
        return warm, slope, r2, "none" if flat else "levels_off" if _settled(x_, y_, slope) else "unsteady"
    return warm, slope, r2, "levels_off" if _settled(x_, y_, slope) else "leak"


def _settled(x: Floats, y: Floats, slope: float) -> bool:
    half = len(x) // 2
    late, _ = line_through(x[half:], y[half:])
    return late < LASTING * slope


def line_through(x: Floats, y: Floats) -> tuple[float, float]:
    """(slope, R²) of ordinary least squares; NaN slope where x does not change, R² NaN where y does not."""
    dx, dy = x - x.mean(), y - y.mean()
    across, up = float(dx @ dx), float(dy @ dy)
    if not across:
        return np.nan, np.nan
    slope = float(dx @ dy) / across
    return slope, slope * slope * across / up if up else np.nan


def warm_up(y: Floats) -> int:
    """Steps at the beginning that stand apart: those before an increase of more than `JUMP` times what later steps add."""
    size = len(y)
    first = size // 10 if size >= LONG else 0
    rises = np.diff(y)
    for skip in range(min(MOST_WARM, len(rises)), 0, -1):
        later = rises[skip:]
        usual = float(np.median(np.abs(later))) if len(later) else 0.0
        if rises[skip - 1] > JUMP * usual and rises[skip - 1] > 0 and len(later):
            return max(first, skip)
    return first


def _with(steps: pd.DataFrame, warm: npt.NDArray[np.bool_], line: Floats) -> pd.DataFrame:
    return steps.assign(fitted=line, warm=warm, left=np.full(len(steps), np.nan))
