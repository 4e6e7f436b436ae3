"""Decides whether memory in use grows from step to step: a line through the least of each step, a verdict, and what stays behind.

The least that was in use in a step is what outlives it: activations and gradients come and go above it. Growth of that is bytes per
step by ordinary least squares, and it is called a leak where it is above 0 over at least `FEWEST` steps with R² above `SURE`.
What is no leak has its own verdict: the state of an optimizer or a cache that appears in the first steps, growth that levels off,
a level that falls back. Steps are those of a trace, or iterations of the records of a program, the long view.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import curves as C
from tb_sol_plugin.metrics.memory.allocations import allocations_of
from tb_sol_plugin.metrics.memory.categories import own_line, owners
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.fragmentation import unthinned
from tb_sol_plugin.metrics.memory.sources import number_of
from tb_sol_plugin.metrics.trees.module_tree import module_instance
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints
from tb_sol_plugin.tables.table import Table, as_table

# -- Memory in use per step of a trace, or per iteration of a program's records --------------------------------------
# the least and the most of each.


def per_step(capture: Capture, curve: Curves) -> pd.DataFrame:
    """Returns one row per step, in order of time.

    step (number; a count where numbers repeat), start_ns, end_ns, least, most (bytes; -1 unknown).
    """
    return of_records(capture, curve) if curve.source == "recorder" else levels_of_steps(curve, C.steps(capture))


def levels_of_steps(curve: Curves, steps: pd.DataFrame) -> pd.DataFrame:
    """Returns the levels of steps (number, start_ns, end_ns) that a curve reaches into."""
    if curve.allocated is None or not len(curve.time_ns) or not len(steps):
        return _nothing()
    start, end, number = (steps[name].to_numpy() for name in ("start_ns", "end_ns", "number"))
    inside = np.flatnonzero((end > curve.time_ns[0]) & (start <= curve.time_ns[-1]))
    if not len(inside):
        return _nothing()
    inside = inside[np.argsort(start[inside], kind="stable")]
    start, end, number = start[inside], end[inside], number[inside].astype(np.int64)
    least, most = extremes(curve.time_ns, curve.allocated, start, end)
    if (np.diff(number) <= 0).any():
        number = np.arange(len(number), dtype=np.int64)
    return pd.DataFrame({"step": number, "start_ns": start, "end_ns": end, "least": least, "most": most}, copy=False)


def of_records(capture: Capture, curve: Curves) -> pd.DataFrame:
    """Returns the levels of iterations in which memory of the curve's device was recorded. most: only where its own peak was recorded."""
    own = records_of(capture, number_of(curve.device))
    own = own[(own["iteration"].to_numpy() >= 0) & (own["allocated"].to_numpy() >= 0)]
    if not len(own):
        return _nothing()
    of_one = arrays.where(own["since"], lambda s: s == "iteration")
    own = own.assign(most=np.where(of_one, own["max_allocated"].to_numpy(), -1))
    by = own.groupby("iteration", sort=True)
    return pd.DataFrame({
        "step": by["iteration"].first().to_numpy(), "start_ns": by["time_ns"].min().to_numpy(), "end_ns": by["time_ns"].max().to_numpy(),
        "least": by["allocated"].min().to_numpy(), "most": by["most"].max().to_numpy(),
    })  # fmt: skip


def extremes(time: Ints, level: Ints, start: Ints, end: Ints) -> tuple[Ints, Ints]:
    """Returns (least, most) of a level in each of some spans `[start, end)`. The level at a start counts."""
    low = np.maximum(np.searchsorted(time, start, side="right") - 1, 0)
    high = np.maximum(np.searchsorted(time, end, side="left"), low + 1)
    spans = list(zip(low.tolist(), high.tolist(), strict=True))
    return np.array([int(level[a:b].min()) for a, b in spans], np.int64), np.array([int(level[a:b].max()) for a, b in spans], np.int64)


def records_of(capture: Capture, number: int) -> pd.DataFrame:
    """Returns the records of a device in the program in order of time, peaks by phase left out.

    number: -1 the only device that has some.
    """
    table = capture.tables[S.MEMORY_RECORDS.name]
    if not len(table):
        return table
    device = table["device"].to_numpy()
    every = np.unique(device[device >= 0])
    if number < 0 and len(every) == 1:
        number = int(every[0])
    keep = (device == number) & (number >= 0) & ~arrays.where(table["since"], lambda s: s == "phase")
    out: pd.DataFrame = table[keep].sort_values("time_ns", kind="stable")
    return out


def step_of(steps: pd.DataFrame, time: Ints) -> Ints:
    """Returns the position in `steps` (start_ns, end_ns, ascending) that holds each time, -1 outside of all."""
    start, end = steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy()
    found = np.searchsorted(start, time, side="right") - 1
    return np.where((found >= 0) & (time < end[found.clip(0)]), found, -1) if len(start) else np.full(len(time), -1, np.int64)


def _nothing() -> pd.DataFrame:
    return pd.DataFrame({c: np.zeros(0, np.int64) for c in ("step", "start_ns", "end_ns", "least", "most")})


# -- What steps leave behind -----------------------------------------------------------------------------------------
# Memory allocated in one step and still in use after the last, by module, operator and line.
#
# One that leaves memory in nearly every step is the cause of a growth. What the last step leaves is no evidence: its gradients and
# results had no next step in which they are freed.


OFTEN: Final = 0.8
"""Share of the steps in which a module, operator or line leaves memory behind, from which on it is evidence."""
FEWEST_WALKS: Final = 3
MOST: Final = 12
"""Rows of evidence per grouping."""
COLUMNS: Final = ("by", "name", "per_step", "bytes", "steps", "of_steps", "allocations")
NONE: Final = np.zeros(0, np.int64)
BY: Final = ("module", "operator", "frame")


@dataclass(frozen=True)
class StepLeaks:
    """The memory that steps leave behind.

    groups: by (module, operator, frame or category), name, per_step (mean bytes left per step), bytes (of all steps), steps (in which it
    left some), of_steps (that were counted), allocations (-1 unknown). left: bytes per step, empty where addresses are unknown."""

    groups: pd.DataFrame
    left: Ints


@functools.cache
def no_leaks() -> Table:
    """Returns a table of evidence without rows."""
    return as_table(pd.DataFrame({c: pd.Series(dtype=object if c in ("by", "name") else np.int64) for c in COLUMNS}))


def step_leaks(capture: Capture, curve: Curves, steps: pd.DataFrame) -> StepLeaks:
    """Returns what the steps of a curve leave behind. steps: start_ns, end_ns, in order."""
    found = allocations_of(capture, curve) if len(steps) else None
    if found is None:
        return StepLeaks(_growing(curve, steps) if len(steps) else no_leaks(), NONE)
    if not found["known"].any():
        return StepLeaks(no_leaks(), NONE)
    step = step_of(steps, found["start_ns"].to_numpy())
    last = int(steps["end_ns"].to_numpy()[-1])
    keep = (step >= 0) & found["known"].to_numpy() & (found["row"].to_numpy() >= 0) & (found["end_ns"].to_numpy() >= last)
    row, size, step = found["row"].to_numpy()[keep], found["bytes"].to_numpy()[keep], step[keep]
    named = _of_events(capture, row) if curve.source == "events" else _of_history(capture, row)
    groups = [_often(by, code, names, size, step, len(steps)) for by, code, names in named if (code >= 0).any()]
    return StepLeaks(_joined(groups), _per_step(size, step, len(steps)))


def _of_events(capture: Capture, row: Ints) -> list[tuple[str, Ints, list[str]]]:
    """Returns per grouping the code of each allocation's owner (-1 none) and the names of the codes. row: of `memory`."""
    if not len(capture.host):
        return []
    own = owners(capture)
    every = arrays.codes(capture.host["name"])
    names = [str(n) for n in capture.host["name"].cat.categories]
    out = []
    for by in BY:
        host = own[by].to_numpy()[row]
        out.append((by, np.where(host >= 0, every[host.clip(0)], -1), [module_instance(n) for n in names] if by == "module" else names))
    return out


def _of_history(capture: Capture, row: Ints) -> list[tuple[str, Ints, list[str]]]:
    """Returns the same of entries of an allocator's history, which knows lines of the program alone."""
    stacks = capture.tables[S.MEMORY_EVENTS.name]["frames"]
    code = arrays.codes(stacks)[row]
    names = [""] * len(stacks.cat.categories)
    for one in np.unique(code[code >= 0]).tolist():
        names[one] = own_line(str(stacks.cat.categories[one]))
    return [("frame", np.where(np.array([*(bool(n) for n in names), False])[code], code, -1), names)]


def _growing(curve: Curves, steps: pd.DataFrame) -> pd.DataFrame:
    """Returns categories of a timeline whose least grows in nearly every step."""
    rows = []
    for name, level in curve.categories.items():
        least, _ = extremes(curve.time_ns, level, steps["start_ns"].to_numpy(), steps["end_ns"].to_numpy())
        rise = np.diff(least)
        if len(rise) and float((rise > 0).mean()) >= OFTEN:
            rows.append(("category", name, round(float(rise.mean())), int(rise.sum()), int((rise > 0).sum()), len(rise), -1))
    return _joined([pd.DataFrame(rows, columns=list(COLUMNS))] if rows else [])


def parts_that_grow(capture: Capture, curve: Curves) -> pd.DataFrame:
    """Returns the categories of a recorder (with their module where one is named) that grow from record to record."""
    records = records_of(capture, number_of(curve.device))
    parts = capture.tables[S.MEMORY_PARTS.name]
    numbers = records.index.to_numpy()
    own = parts[np.isin(parts["record"].to_numpy(), numbers)]
    walked = np.unique(own["record"].to_numpy())
    if len(walked) < FEWEST_WALKS:
        return no_leaks()
    labels = capture.tables[S.LABELS.name]["name"]
    module = arrays.pick(labels, own["module"].to_numpy()) if len(labels) else np.full(len(own), "", object)
    names = np.array([f"{c}: {m}" if m else c for c, m in zip(own["category"].astype(str), module.tolist(), strict=True)], object)
    order = {int(r): i for i, r in enumerate(r for r in numbers.tolist() if r in set(walked.tolist()))}
    place = np.array([order[int(r)] for r in own["record"]], np.int64)
    step = records["iteration"].to_numpy()[np.isin(numbers, walked)]
    rows = []
    for name, found in pd.DataFrame({"name": names, "place": place, "bytes": own["bytes"].to_numpy()}).groupby("name", sort=True):
        level = np.bincount(found["place"], found["bytes"], minlength=len(order))
        rise = np.diff(level)
        if float((rise > 0).mean()) >= OFTEN:
            per = float(level[-1] - level[0]) / max(int(step[-1] - step[0]), 1)
            rows.append(("category", str(name), round(per), int(rise.sum()), int((rise > 0).sum()), len(rise), -1))
    return _joined([pd.DataFrame(rows, columns=list(COLUMNS))] if rows else [])


def _often(by: str, code: Ints, names: Sequence[str], size: Ints, step: Ints, count: int) -> pd.DataFrame:
    """Returns names that leave memory behind in nearly every step but the last."""
    early = (code >= 0) & (step < count - 1)
    texts_of: dict[str, int] = {}
    merged = np.array([texts_of.setdefault(n, len(texts_of)) for n in names], np.int64)[code[early]]
    pairs, first = np.unique(np.stack([merged, step[early]], axis=1), axis=0, return_index=True)
    seen = np.bincount(pairs[:, 0], minlength=len(texts_of)) if len(first) else np.zeros(len(texts_of), np.int64)
    total = np.zeros(len(texts_of), np.int64)
    np.add.at(total, merged, size[early])
    calls = np.bincount(merged, minlength=len(texts_of))
    steps_seen = count - 1
    often = np.flatnonzero((seen >= max(OFTEN * steps_seen, 2)) & (total > 0))
    often = often[np.argsort(-total[often], kind="stable")][:MOST]
    every = list(texts_of)
    return pd.DataFrame(
        [(by, every[i], round(int(total[i]) / steps_seen), int(total[i]), int(seen[i]), steps_seen, int(calls[i])) for i in often.tolist()],
        columns=list(COLUMNS),
    )


def _joined(groups: list[pd.DataFrame]) -> pd.DataFrame:
    kept = [g.sort_values("per_step", ascending=False, kind="stable") for g in groups if len(g)]
    return pd.concat(kept, ignore_index=True) if kept else no_leaks()


def _per_step(size: Ints, step: Ints, count: int) -> Ints:
    out = np.zeros(count, np.int64)
    np.add.at(out, step, size)
    return out


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
"""Growth in the second half of the steps below this share of the whole slope has leveled off."""
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
    """What the steps of one curve show about growth.

    steps: one row per step: step (number), start_ns, end_ns, least, most (bytes in use in it; -1 unknown), fitted (bytes, NaN where left
    out), warm (left out as warm-up), left (bytes allocated in it that nobody freed by the end, NaN unknown).
    slope: bytes per step, r2; NaN without a fit. verdict: see WORDS. evidence: who leaves memory behind step by step (see `step_leaks`),
    the largest first; empty where no source tells.
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
    """Judges from one curve whether memory leaks."""
    return memo(capture, ("memory.leak", curve.device, curve.source), lambda: _leak(capture, unthinned(capture, curve)))


def best_leak(capture: Capture, curves: tuple[Curves, ...]) -> Leak | None:
    """Returns the verdict that rests on most steps, of the curves of one memory; one that found a leak before all others; None without any.

    Where this one cannot tell who leaves memory behind, another of them does: records of a program see hundreds of steps, a trace sees who.
    """
    found = [leak(capture, c) for c in curves]
    if not found:
        return None
    best = max(found, key=lambda f: (f.found, f.used))
    source = next((f for f in found if f.found and len(f.evidence)), None)
    return replace(best, evidence=source.evidence) if best.found and not len(best.evidence) and source is not None else best


def _leak(capture: Capture, curve: Curves) -> Leak:
    steps = per_step(capture, curve)
    if not len(steps):
        hint = ITERATIONS_MISSING if curve.source == "recorder" else STEPS_MISSING
        return Leak(_with(steps, np.zeros(0, bool), np.zeros(0)), np.nan, np.nan, "no_steps", no_leaks(), hint)
    x, y = steps["step"].to_numpy(np.float64), steps["least"].to_numpy(np.float64)
    warm, slope, r2, verdict = judge_growth(x, y)
    line = np.full(len(x), np.nan)
    if slope == slope:
        cool = ~warm
        line = np.where(cool, y[cool].mean() + slope * (x - x[cool].mean()), np.nan)
    out = _with(steps, warm, line)
    if verdict != "leak":
        return Leak(out, slope, r2, verdict, no_leaks(), MORE if verdict == "few" else "")
    if curve.source == "recorder":
        return Leak(out, slope, r2, verdict, parts_that_grow(capture, curve), "")
    who = step_leaks(capture, curve, out.loc[~warm])
    if len(who.left):
        out.loc[~warm, "left"] = who.left
    return Leak(out, slope, r2, verdict, who.groups, "")


def judge_growth(x: Floats, y: Floats) -> tuple[npt.NDArray[np.bool_], float, float, Verdict]:
    """Returns (steps left out as warm-up, slope, R², verdict) of the least bytes y in the steps of numbers x, ascending."""
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
    """Returns (slope, R²) of ordinary least squares; NaN slope where x does not change, R² NaN where y does not."""
    dx, dy = x - x.mean(), y - y.mean()
    across, up = float(dx @ dx), float(dy @ dy)
    if not across:
        return np.nan, np.nan
    slope = float(dx @ dy) / across
    return slope, slope * slope * across / up if up else np.nan


def warm_up(y: Floats) -> int:
    """Returns steps at the beginning that stand apart: those before an increase of more than `JUMP` times what later steps add."""
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


# -- Memory step by step ---------------------------------------------------------------------------------------------
# in use at most and at the end, allocated and freed.


def sums_of_steps(capture: Capture, curve: Curves) -> Table:
    """Returns one row per step with a part of the curve. curve: whole, not thinned.

    step (its number), start_ns, end_ns (on the host), peak, peak_ns (in use at most, and when; the level at its start counts), end (in use
    at its end), allocated, freed (sums of all rises and falls; -1 where the source has samples only), reserved (at most; -1 unknown).
    """
    return memo(capture, ("memory.sums_of_steps", curve.device, curve.source), lambda: _sums_of_steps(capture, curve))


def _sums_of_steps(capture: Capture, curve: Curves) -> Table:
    start, end, number = (C.steps(capture)[name].to_numpy() for name in ("start_ns", "end_ns", "number"))
    time, level = curve.time_ns, curve.allocated
    # a record at the end of a step is of that step; an event at its end is of the next one
    side: Literal["left", "right"] = "right" if curve.source == "recorder" else "left"
    reach = end + (side == "right")
    if level is not None and len(time):
        seen = (reach > time[0]) & (start <= time[-1]) & (end > start)
        number, start, end = number[seen], start[seen], end[seen]
    if level is None or not len(time) or not len(number):
        names = ("step", "start_ns", "end_ns", "peak", "peak_ns", "end", "allocated", "freed", "reserved")
        return as_table(pd.DataFrame({name: np.zeros(0, np.int64) for name in names}))
    before = np.searchsorted(time, start, side=side) - 1  # the level that the step begins with; -1 none
    low = before.clip(0)
    high = np.maximum(np.searchsorted(time, end, side=side), low + 1)
    inner = np.minimum(before + 1, high)
    at = _argmax(level, low, high)
    peak = level[at]
    if curve.highest is not None:
        some = inner < high
        within = at.copy()
        within[some] = _argmax(curve.highest, inner[some], high[some])
        higher = some & (curve.highest[within] > peak)
        at, peak = np.where(higher, within, at), np.where(higher, curve.highest[within], peak)
    change = np.diff(level, prepend=level[:1])
    up, down = (np.r_[0, np.cumsum(part)] for part in (change.clip(min=0), (-change).clip(min=0)))
    sampled = curve.source == "recorder"
    unknown = np.full(len(number), -1, np.int64)
    return as_table(pd.DataFrame({
        "step": number, "start_ns": start, "end_ns": end, "peak": peak, "peak_ns": np.maximum(time[at], start),
        "end": level[high - 1], "allocated": unknown if sampled else up[high] - up[inner],
        "freed": unknown if sampled else down[high] - down[inner],
        "reserved": curve.reserved[_argmax(curve.reserved, low, high)] if curve.reserved is not None else unknown,
    }, copy=False))  # fmt: skip


def _argmax(level: Ints, low: Ints, high: Ints) -> Ints:
    """Returns the position of the first largest value of each part [low, high), none of them empty; they may overlap."""
    size = high - low
    begin = np.cumsum(size) - size
    place = np.repeat(low - begin, size) + np.arange(int(size.sum()))
    most = np.maximum.reduceat(level[place], begin)
    out: Ints = np.minimum.reduceat(np.where(level[place] == np.repeat(most, size), place, len(level)), begin)
    return out
