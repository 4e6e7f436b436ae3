"""Sets two sides against each other: metrics, rows of a grouping, and the difference of the step in parts that add up to it exactly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.compare import change as C
from tb_sol_plugin.metrics.compare.change import Change, Values, Verdict
from tb_sol_plugin.metrics.compare.matching import Named, renamed
from tb_sol_plugin.metrics.compare.samples import BETWEEN, LAUNCH, METRICS, OTHER, PARTS, Grouping, Metric, Samples, per_step
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints

Match = Literal["same", "renamed", "only_a", "only_b"]
Basis = Literal["path", "exclusive", "device", "step"]
BASES: Final[Mapping[Basis, str]] = {
    "path": "by parts of the critical path", "exclusive": "by exclusive parts of the step",
    "device": "by the device's time and the rest", "step": "as a whole",
}  # fmt: skip
"""What a difference of the step is split into."""
DRAWS_OF_ROWS: Final = 500
"""Draws of the bootstrap of many rows at once."""
DEVICE_SPEED: Final = 0.015
"""A factor that all kernels have in common counts as the speed of the device from here on."""
LEAST_KERNELS: Final = 20
COMMON: Final = 0.8
"""Part of the kernels that has to have the factor, within `NEAR`."""
NEAR: Final = 0.01
BARS: Final = 8
"""Bars below one bar."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison: a name, and a recording per run."""

    name: str
    runs: Sequence[Samples]

    @cached_property
    def kept(self) -> list[np.ndarray]:
        """Per run, which steps are neither slow nor fast ones of their side."""
        flags = C.kept(np.concatenate([self.times(run) for run in self.runs]))
        return np.split(flags, np.cumsum([len(run.steps) for run in self.runs])[:-1])

    @staticmethod
    def times(run: Samples) -> Values:
        """Returns the length of each step of a run, ns."""
        return np.asarray(run.values["step_time"], np.float64)

    def values(self, metric: str, *, kept: bool = False) -> list[Values] | None:
        """Returns a metric per step and run; None where a run does not know it. kept: without slow and fast steps.

        Of findings one number per run.
        """
        if metric == "findings":
            return [np.array([len(run.findings or ())], np.float64) for run in self.runs] if self.has_findings else None
        of = METRICS[metric].of or metric
        if any(of not in run.values for run in self.runs):
            return None
        found = [np.asarray(run.values[of], np.float64) for run in self.runs]
        if METRICS[metric].of:
            found = [np.divide(v, self.times(run), out=np.zeros(len(v)), where=self.times(run) > 0)
                     for v, run in zip(found, self.runs, strict=True)]  # fmt: skip
        return [v[k] for v, k in zip(found, self.kept, strict=True)] if kept else found

    def weights(self, metric: str) -> list[Values] | None:
        """Returns what each value of a rate was divided by, per step and run; None of what is no rate."""
        return [self.times(run) for run in self.runs] if metric in METRICS and METRICS[metric].of else None

    @property
    def has_findings(self) -> bool:
        """Whether findings were looked for in every run."""
        return all(run.findings is not None for run in self.runs)

    @property
    def has_steps(self) -> bool:
        return all(run.steps != (-1,) for run in self.runs)

    def knows(self, by: str) -> bool:
        """Whether every run has rows of a grouping."""
        return all(by in run.groupings for run in self.runs)


def pairs_of(a: Side, b: Side) -> list[tuple[int, int]]:
    """Returns the runs of two sides that were recorded in turns, as pairs of neighbors in time; none where they were not.

    Two runs a side or more, as many of both, each pair one of each: A, B, A, B or A, B, B, A.
    """
    began = [(run.began_ns, side, i) for side, of in enumerate((a, b)) for i, run in enumerate(of.runs)]
    times = [at for at, _, _ in began if at is not None]
    if len(a.runs) != len(b.runs) or len(a.runs) < 2 or len(set(times)) < len(began):
        return []
    order = [(side, i) for _, side, i in sorted(began, key=lambda one: one[0] or 0)]
    pairs = [dict(order[k : k + 2]) for k in range(0, len(order), 2)]
    return [(pair[0], pair[1]) for pair in pairs] if all(len(pair) == 2 for pair in pairs) else []


@dataclass(frozen=True)
class MetricChange:
    """One metric on both sides. verdict: of a page; a gate judges by itself."""

    name: str
    change: Change
    verdict: Verdict

    @property
    def unit(self) -> str:
        return METRICS[self.name].unit

    @property
    def outcome(self) -> str:
        """The verdict in words: slower or faster, more or less, lower or higher, no change, no change shown, too few steps to tell."""
        worse, better = ("lower", "higher") if METRICS[self.name].of else ("more", "less")
        if self.name == "step_time":
            worse, better = "slower", "faster"
        words = {"worse": worse, "better": better, "same": "no change", "inconclusive": "no change shown"}
        return words.get(self.verdict, "too few steps to tell")


def metrics_of(a: Side, b: Side, *, floor: float = C.RUN_NOISE, between: Mapping[str, float] | None = None) -> list[MetricChange]:
    """Returns every metric that both sides know. between: noise from run to run per metric, where a history shows it."""
    out = []
    for name, metric in METRICS.items():
        ours, theirs = a.values(name), b.values(name)
        if ours is None or theirs is None:
            continue
        found = changed(name, ours, theirs, (a, b), floor=floor, between=(between or {}).get(name))
        judged = C.turned(found) if metric.of else found  # of rates more is better
        verdict = C.seen(judged, least=1 if metric.exact else C.LEAST_STEPS)
        if found.a == 0 and found.b and _is_new(metric, ours, theirs):
            verdict = "better" if metric.of else "worse"
        out.append(MetricChange(name, found, verdict))
    return out


def _is_new(metric: Metric, ours: Sequence[Values], theirs: Sequence[Values]) -> bool:
    """Whether B has what A has none of, beyond noise: a change from nothing is no part of anything, so it has no interval."""
    if metric.exact:
        return True
    a, b = np.concatenate(ours), np.concatenate(theirs)
    return min(len(a), len(b)) >= C.LEAST_STEPS and float(np.percentile(b, 5)) > float(np.percentile(a, 95))


def changed(
    name: str, ours: Sequence[Values], theirs: Sequence[Values], sides: tuple[Side, Side], *, floor: float = C.RUN_NOISE,
    between: float | None = None, draws: int = 0,
) -> Change:  # fmt: skip
    """Returns how a metric, or the time of a row, changed. ours, theirs: its values on both sides. between: known noise from run to run."""
    if name in METRICS and METRICS[name].exact:
        return C.exactly(ours, theirs)
    weights = [side.weights(name) for side in sides]
    both = (weights[0], weights[1]) if weights[0] is not None and weights[1] is not None else None
    return C.change_of(ours, theirs, floor=floor, between=between, weights=both, draws=draws)


# -- Rows -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rows:
    """Rows of a grouping on both sides, those with the largest difference first. Numbers are per step: means over the kept steps.

    time: "device" or "host", of what delta_ns is. low_ns, high_ns: 95 % interval of it, NaN where a side has fewer than five steps.
    calls_effect_ns + work_effect_ns + speed_effect_ns = delta_ns: what more or fewer calls of A's mean length take, what more or less work
    per call takes at A's speed (0 where work is not known), and the rest. was: what a renamed row is called in A. work_a, work_b: FLOP of
    matrix products, bytes of others, NaN unknown. drawn: draws x rows of delta_ns, the same steps for all rows of a draw; None
    where there are too few steps. noise: of a row from run to run, half the width of the interval as part of its time.
    """

    by: str
    time: Literal["device", "host"]
    name: list[str]
    of: list[str]
    match: list[Match]
    calls_a: Floats
    calls_b: Floats
    host_a: Floats
    host_b: Floats
    device_a: Floats
    device_b: Floats
    delta_ns: Ints
    low_ns: Floats
    high_ns: Floats
    verdict: list[Verdict]
    calls_effect_ns: Ints
    work_effect_ns: Ints
    speed_effect_ns: Ints
    was: list[str]
    work_a: Floats
    work_b: Floats
    cut: tuple[int, int]
    drawn: Values | None
    noise: float

    def __len__(self) -> int:
        return len(self.name)

    @property
    def time_a(self) -> Floats:
        """Time per step of A, of what delta_ns is."""
        return self.device_a if self.time == "device" else self.host_a

    @property
    def time_b(self) -> Floats:
        """Time per step of B, of what delta_ns is."""
        return self.device_b if self.time == "device" else self.host_b

    def interval(self, rows: Sequence[int]) -> tuple[float | None, float | None]:
        """Returns the 95 % interval of the difference of several rows together; None where a side has too few steps."""
        if self.drawn is None:
            return None, None
        at = list(rows)
        size = max(float(self.time_a[at].sum()), float(self.time_b[at].sum()))
        low, high = _bounds(self.drawn[:, at].sum(1, keepdims=True), self.delta_ns[at].sum(keepdims=True), np.array([self.noise * size]))
        return float(low[0]), float(high[0])


@dataclass(frozen=True)
class _Laid:
    """Rows of one side on the names of both: rows x steps of all its runs, without slow and fast ones. work: mean per row, NaN unknown.

    runs: steps of each run.
    """

    calls: Ints
    host: Ints
    device: Ints
    work: Floats
    runs: list[int]


def rows_of(a: Side, b: Side, by: str, *, floor: float = C.RUN_NOISE) -> Rows | None:
    """Returns the rows of a grouping on both sides, matched by what they are called; None where a side does not have it."""
    if not (a.knows(by) and b.knows(by)):
        return None
    sides = a, b
    ours, theirs = (_names(side, by) for side in sides)
    was = _renamed(ours, theirs, by)
    gone = set(was.values())
    names = {n: v.of for n, v in {**ours, **theirs}.items() if n not in gone}
    place = {name: i for i, name in enumerate(names)}
    laid_b = _laid(b, by, place, len(names))
    laid_a = _laid(a, by, place | {old: place[new] for new, old in was.items()}, len(names))
    both = all(side.values("device_busy") is not None for side in sides)  # else times on the device against none would be a change
    time: Literal["device", "host"] = "device" if both and (laid_a.device.any() or laid_b.device.any()) else "host"
    time_a, time_b = (laid.device if time == "device" else laid.host for laid in (laid_a, laid_b))
    mean_a, mean_b = time_a.mean(1), time_b.mean(1)
    delta = np.round(mean_b).astype(np.int64) - np.round(mean_a).astype(np.int64)
    calls_a, calls_b = laid_a.calls.mean(1), laid_b.calls.mean(1)
    each = np.divide(mean_a, calls_a, out=np.zeros_like(mean_a), where=calls_a > 0)
    more = np.where(calls_a > 0, np.round((calls_b - calls_a) * each), np.where(calls_b > 0, delta, 0)).astype(np.int64)
    more = np.where(calls_b > 0, more, delta)
    grown = _work_effect(laid_a.work, laid_b.work, calls_a, calls_b, each)
    drawn, noise = _drawn(time_a, laid_a.runs, time_b, laid_b.runs), _noise(laid_a.runs, laid_b.runs, floor)
    low, high = _bounds(drawn, delta, noise * np.maximum(mean_a, mean_b))
    match = [_match(x, y, name in was) for name, x, y in zip(names, calls_a.tolist(), calls_b.tolist(), strict=True)]
    step = float(np.concatenate([side.times(run) for side in sides for run in side.runs]).mean())
    verdict = _verdicts(delta, low, high, max(mean_a.sum(), mean_b.sum(), 1.0), step)
    order = np.lexsort((-np.maximum(mean_a, mean_b), -np.abs(delta)))
    keep = order[(calls_a[order] > 0) | (calls_b[order] > 0)]
    keep = keep if both else keep[np.maximum(mean_a, mean_b)[keep] > 0]  # a row of the device alone is not gone where none was recorded
    listed = list(names)

    def text(values: Sequence[str]) -> list[str]:
        return [values[i] for i in keep.tolist()]

    cut = tuple(max(run.groupings[by].cut for run in side.runs) for side in sides)
    return Rows(
        by, time, text(listed), text(list(names.values())), [match[i] for i in keep.tolist()], calls_a[keep], calls_b[keep],
        laid_a.host.mean(1)[keep], laid_b.host.mean(1)[keep], laid_a.device.mean(1)[keep], laid_b.device.mean(1)[keep], delta[keep],
        low[keep], high[keep], [verdict[i] for i in keep.tolist()], more[keep], grown[keep], (delta - more - grown)[keep],
        [was.get(listed[i], "") for i in keep.tolist()], laid_a.work[keep], laid_b.work[keep], (cut[0], cut[1]),
        None if drawn is None else drawn[:, keep], noise,
    )  # fmt: skip


def _renamed(ours: Mapping[str, Named], theirs: Mapping[str, Named], by: str) -> dict[str, str]:
    """Returns, of names that only B has, those of A that they go with; none of launches and paths: parts match by themselves."""
    if by in (LAUNCH, PATH):
        return {}
    return renamed({n: v for n, v in ours.items() if n not in theirs}, {n: v for n, v in theirs.items() if n not in ours}, by)


def _match(calls_a: float, calls_b: float, renamed: bool) -> Match:
    """Returns on which side a row is."""
    if calls_a == 0 < calls_b:
        return "only_b"
    return "only_a" if calls_b == 0 < calls_a else "renamed" if renamed else "same"


def _work_effect(work_a: Floats, work_b: Floats, calls_a: Floats, calls_b: Floats, each: Floats) -> Ints:
    """Returns what more or less work per call takes, ns: 0 where the work of a side is not known. each: ns of a call of A."""
    known = (work_a > 0) & (work_b > 0) & (calls_a > 0) & (calls_b > 0)
    factor = np.ones(len(work_a))
    factor[known] = (work_b[known] / calls_b[known]) / (work_a[known] / calls_a[known])
    return np.round(calls_b * each * (factor - 1)).astype(np.int64)


def _names(side: Side, by: str) -> dict[str, Named]:
    """Returns what a side calls the rows of a grouping, with the means of the first run that has each."""
    out: dict[str, Named] = {}
    for run in side.runs:
        found, count = run.groupings[by], len(run.row_steps)
        time = per_step(found, "device", count)
        time, calls = (time if time.any() else per_step(found, "host", count)).mean(1), per_step(found, "calls", count).mean(1)
        out |= {
            n: Named(o, c, t) for n, o, c, t in zip(found.names, found.of, calls.tolist(), time.tolist(), strict=True) if n not in out
        }
    return out


def _laid(side: Side, by: str, place: Mapping[str, int], count: int) -> _Laid:
    """Returns the rows of a side on `count` common places, its kept steps beside each other."""
    parts: dict[str, list[Ints]] = {"calls": [], "host": [], "device": [], "work": []}
    runs = []
    for run, kept in zip(side.runs, side.kept, strict=True):
        found: Grouping = run.groupings[by]
        steps = kept[list(run.row_steps)]
        steps = steps if steps.any() else np.ones_like(steps)
        runs.append(int(steps.sum()))
        rows = np.array([place[name] for name in found.names], np.int64)
        for column, values in parts.items():
            wide = np.zeros((count, runs[-1]), np.int64)
            np.add.at(wide, rows, per_step(found, column, len(steps))[:, steps])
            values.append(wide)
    calls, host, device, work = (np.concatenate(values, axis=1) for values in parts.values())
    return _Laid(calls, host, device, np.where((work >= 0).all(1), work.mean(1), np.nan), runs)


def _means(values: Ints, runs: Sequence[int], random: np.random.Generator) -> Values:
    """Returns draws x rows: means over steps that are drawn in blocks within each run, the same steps for all rows."""
    weights = np.zeros((DRAWS_OF_ROWS, values.shape[1]))
    start = 0
    for count in runs:
        drawn = C.drawn_steps(count, DRAWS_OF_ROWS, random) + start
        np.add.at(weights, (np.arange(DRAWS_OF_ROWS)[:, None], drawn), 1.0)
        start += count
    return np.asarray(weights @ values.T.astype(np.float64) / values.shape[1], np.float64)


def _drawn(a: Ints, runs_a: Sequence[int], b: Ints, runs_b: Sequence[int]) -> Values | None:
    """Returns draws x rows of the differences of means; None where a side has too few steps."""
    if min(a.shape[1], b.shape[1]) < C.LEAST_STEPS:
        return None
    random = np.random.default_rng(C.SEED)
    return _means(b, runs_b, random) - _means(a, runs_a, random)


def _noise(runs_a: Sequence[int], runs_b: Sequence[int], floor: float) -> float:
    """Returns half the width of the interval that the noise from run to run makes, as part of a time."""
    return C.NORMAL * floor * float(np.sqrt(1 / len(runs_a) + 1 / len(runs_b)))


def _bounds(drawn: Values | None, delta: Ints, width: Floats) -> tuple[Floats, Floats]:
    """Returns the 95 % interval of each difference; NaN without draws. width: half of what the noise from run to run adds, ns."""
    if drawn is None:
        nan = np.full(len(delta), np.nan)
        return nan, nan.copy()
    tail = (100 - C.CONFIDENCE) / 2
    low, high = np.percentile(drawn, [tail, 100 - tail], axis=0)
    half = np.hypot((high - low) / 2, width)
    return delta - half, delta + half


def _verdicts(delta: Ints, low: Floats, high: Floats, whole: float, step: float) -> list[Verdict]:
    """Returns which rows changed, with at most 5 % false ones among them; a change below a thousandth of the step is the same."""
    known = np.isfinite(low)
    half = np.where(known, (high - low) / 2, 1.0)
    z = np.abs(delta) / np.maximum(half / C.NORMAL, 1e-9)
    real = C.discoveries(_two_sided(z)) & known
    small = np.abs(delta) < C.TOO_SMALL * min(step, whole)
    out: list[Verdict] = []
    for d, k, r, s in zip(delta.tolist(), known.tolist(), real.tolist(), small.tolist(), strict=True):
        out.append("unknown" if not k else "same" if s else "worse" if r and d > 0 else "better" if r and d < 0 else "inconclusive")
    return out


def _two_sided(z: Floats) -> Floats:
    """Returns the two-sided p-value of normal deviates."""
    return np.array([math.erfc(v / math.sqrt(2)) for v in z.tolist()], np.float64)


# -- The difference of the step in parts ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """One part of the difference of the mean step. delta_ns: B less A. parts: what it is made of, which adds up to it exactly."""

    name: str
    delta_ns: int
    low_ns: float | None = None
    high_ns: float | None = None
    because: str = ""
    parts: tuple[Bar, ...] = field(default=())


@dataclass(frozen=True)
class Waterfall:
    """From A's mean step to B's, ns. bars add up to b_ns - a_ns exactly. basis: what they are parts of: the critical path, exclusive parts
    of the step, the device's time and the rest, or the step as a whole.
    """

    a_ns: int
    b_ns: int
    bars: tuple[Bar, ...]
    basis: Basis = "exclusive"


SLOW: Final = "slow_steps"
PATH: Final = "path:"
"""Begin of the names of parts of the critical path, and the grouping of what they consist of."""
REST: Final = {
    "kernel_ns": "streams that overlap, and kernels outside of the bounds of their step",
    "communication_ns": "behind other work, and streams that overlap",
    "memcpy_ns": "behind kernels, and streams that overlap",
    "cpu_exec_ns": "threads that overlap, and time outside of operators",
}
"""Below a bar: what its rows do not add up to."""
STEP: Final = "step"
BUSY: Final = ("device_busy", "idle")
"""Bars where the exclusive parts are not known: the device's time, and the rest of the step."""
BELOW: Final = {"kernel_ns": LAUNCH, "communication_ns": LAUNCH, "memcpy_ns": "copy", "cpu_exec_ns": "operator"}
"""The grouping whose rows stand below a bar: kernels by module and operator where these were recorded."""
OTHERS: Final = "others"
RESIDUE: Final = "rest"
LEAST_BAR: Final = 0.002
"""Of the step; rows below it stand together."""


def waterfall_of(
    a: Side, b: Side, rows: Mapping[str, Rows | None], *, floor: float = C.RUN_NOISE, basis: Literal["path", "exclusive"] = "exclusive"
) -> Waterfall:
    """Returns the difference of the mean step, first what slow and fast steps make of it, then by parts of the kept steps.

    rows: of groupings `launch`, `copy` and `operator`, for what stands below a bar; of the critical path of `PATH`.
    """
    names = PARTS if basis == "exclusive" else tuple(a.runs[0].parts)
    sides = a, b
    every = [np.concatenate([side.times(run) for run in side.runs]) for side in sides]
    kept = [np.concatenate(side.kept) for side in sides]
    mean = [round(float(v.mean())) for v in every]
    steady = [round(float(v[k].mean())) for v, k in zip(every, kept, strict=True)]
    slow = (mean[1] - steady[1]) - (mean[0] - steady[0])
    why = "steps more than three robust standard deviations from the median"
    bars = [Bar(SLOW, slow, *_of_slow(every, kept, slow), because=why)] if slow else []
    if any(set(run.parts) != set(names) for side in sides for run in side.runs):
        return Waterfall(mean[0], mean[1], (*bars, *_busy_and_idle(a, b, steady)), "device" if _has_busy(a, b) else "step")
    matrices = [
        np.concatenate([np.array([run.parts[p] for p in names])[:, k] for run, k in zip(side.runs, side.kept, strict=True)], axis=1)
        for side in sides
    ]
    runs = [[int(k.sum()) for k in side.kept] for side in sides]
    means = [arrays.rounded(m.mean(1), total) for m, total in zip(matrices, steady, strict=True)]
    delta = means[1] - means[0]
    drawn, noise = _drawn(matrices[0], runs[0], matrices[1], runs[1]), _noise(runs[0], runs[1], floor)
    size = np.maximum(means[0], means[1]).astype(np.float64)
    low, high = _bounds(drawn, delta, noise * size)
    for i, part in enumerate(names):
        if means[0][i] or means[1][i]:
            known = bool(np.isfinite(low[i]))
            ends = (float(low[i]) if known else None, float(high[i]) if known else None)
            whole = _Whole(int(delta[i]), None if drawn is None else drawn[:, i], noise * float(size[i]), LEAST_BAR * max(steady))
            bars.append(Bar(part, int(delta[i]), ends[0], ends[1], parts=_below(part, whole, rows)))
    return Waterfall(mean[0], mean[1], tuple(bars), basis)


def _of_slow(every: Sequence[Values], kept: Sequence[np.ndarray], slow: int) -> tuple[float | None, float | None]:
    """Returns the interval of what slow and fast steps make of the difference; None where a side has too few steps."""
    if min(map(len, every)) < C.LEAST_STEPS:
        return None, None
    random = np.random.default_rng(C.SEED)
    drawn = []
    for values, flags in zip(every, kept, strict=True):
        steps = C.drawn_steps(len(values), DRAWS_OF_ROWS, random)
        inside = flags[steps]
        steady = np.where(inside, values[steps], 0.0).sum(1) / np.maximum(inside.sum(1), 1)
        drawn.append(np.where(inside.any(1), values[steps].mean(1) - steady, 0.0))
    low, high = _bounds((drawn[1] - drawn[0])[:, None], np.array([slow]), np.zeros(1))
    return float(low[0]), float(high[0])


def _has_busy(a: Side, b: Side) -> bool:
    return all(side.values(BUSY[0]) is not None for side in (a, b))


def _busy_and_idle(a: Side, b: Side, steady: Sequence[int]) -> list[Bar]:
    """Returns the difference of the kept steps by the device's time and the rest; as one bar where it is not known. steady: means."""
    total = steady[1] - steady[0]
    if not _has_busy(a, b):
        return [Bar(STEP, total)]
    busy = [round(float(np.concatenate(side.values(BUSY[0], kept=True) or []).mean())) for side in (a, b)]
    return [Bar(BUSY[0], busy[1] - busy[0]), Bar(BUSY[1], total - (busy[1] - busy[0]))]


@dataclass(frozen=True)
class _Whole:
    """A bar that rows are set below. drawn: its difference in each draw. width: what the noise from run to run adds. least: ns of a bar."""

    delta: int
    drawn: Values | None
    width: float
    least: float


def _below(part: str, whole: _Whole, rows: Mapping[str, Rows | None]) -> tuple[Bar, ...]:
    """Returns the rows that a bar is made of, those that changed most, the others together, and what they do not add up to."""
    on_path = part.startswith(PATH)
    found = rows.get(PATH if on_path else BELOW.get(part, ""))
    if found is None or (part == "cpu_exec_ns" and found.time != "host"):
        return ()
    use = np.ones(len(found), np.bool_)
    if found.by == LAUNCH:
        use = np.array([of == "communication" for of in found.of], np.bool_) == (part == "communication_ns")
    if part == "memcpy_ns":
        use = np.array([name != "Memset" for name in found.name], np.bool_)
    if on_path:
        use = np.array([of == part for of in found.of], np.bool_)
    own = np.flatnonzero(use & (found.delta_ns != 0)).tolist()
    levels = [name.split(BETWEEN) for name in found.name]
    paths = [tuple(filter(None, level[on_path:])) for level in levels]
    bars = _levels(found, own, paths, 0, whole.least)
    rest = whole.delta - int(found.delta_ns[own].sum())
    low, high = _of_rest(found, own, whole, rest)
    return (*bars, Bar(RESIDUE, rest, low, high, because=REST.get(part, "steps whose rows were not taken"))) if rest else bars


def _levels(found: Rows, own: Sequence[int], paths: Sequence[tuple[str, ...]], depth: int, least: float) -> tuple[Bar, ...]:
    """Returns bars of rows by the parts of their paths from a depth on: they add up, and what is below each adds up to it."""
    groups: dict[str, list[int]] = {}
    for row in own:
        name = paths[row][depth] if depth < len(paths[row]) else OTHER
        groups.setdefault(OTHERS if name == OTHER else name, []).append(row)
    size = {name: int(found.delta_ns[at].sum()) for name, at in groups.items()}
    order = sorted((n for n in groups if n != OTHERS), key=lambda n: -abs(size[n]))
    shown = [n for n in order[:BARS] if abs(size[n]) >= least or (not depth and n == order[0])]
    bars = []
    for n in shown:
        deeper = any(len(paths[row]) > depth + 1 for row in groups[n])
        low, high = found.interval(groups[n])
        bars.append(Bar(n, size[n], low, high, parts=_levels(found, groups[n], paths, depth + 1, least) if deeper else ()))
    others = [row for n, at in groups.items() if n not in shown for row in at]
    left = int(found.delta_ns[others].sum()) if others else 0
    if left:
        low, high = found.interval(others)
        bars.append(Bar(OTHERS, left, low, high))
    return tuple(bars)


def _of_rest(found: Rows, own: Sequence[int], whole: _Whole, rest: int) -> tuple[float | None, float | None]:
    """Returns the interval of what rows do not add up to: of the same draws of steps; None where they are of other steps."""
    if whole.drawn is None or found.drawn is None:
        return None, None
    drawn = (whole.drawn - found.drawn[:, list(own)].sum(1))[:, None]
    low, high = _bounds(drawn, np.array([rest]), np.array([whole.width]))
    return float(low[0]), float(high[0])


def common_factor(kernels: Rows | None) -> float | None:
    """Returns by which factor all kernels got slower, 1.02 for 2 %; None where they have none in common.

    Over kernels of one name with as many calls on both sides: the median weighted by time, where at least 20 kernels with a fifth of the
    device time exist and four fifths of them lie within 1 % of it.
    """
    if kernels is None or kernels.time != "device":
        return None
    a, b = kernels.device_a, kernels.device_b
    use = (a > 0) & (b > 0) & (np.abs(kernels.calls_a - kernels.calls_b) < 1e-9)
    use &= np.array([name != OTHER and of != "communication" for name, of in zip(kernels.name, kernels.of, strict=True)], np.bool_)
    if use.sum() < LEAST_KERNELS or a[use].sum() < 0.2 * a.sum():
        return None
    factor, weight = b[use] / a[use], a[use]
    order = np.argsort(factor, kind="stable")
    middle = float(factor[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])
    return middle if float((np.abs(factor / middle - 1) <= NEAR).mean()) >= COMMON else None
