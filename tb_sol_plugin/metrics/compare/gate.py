"""Judges a candidate against a base: which metric got worse by more than its limit, and because of what.

A metric fails only when its whole 95 % interval lies above the limit, so that noise alone does not fail a build. What cannot be decided is
`inconclusive`, with how many more steps would decide it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.compare import change as C
from tb_sol_plugin.metrics.compare.causes import Cause, compared
from tb_sol_plugin.metrics.compare.change import Change, Values
from tb_sol_plugin.metrics.compare.differences import DEVICE_SPEED, Side, Waterfall, common_factor, pairs_of, rows_of
from tb_sol_plugin.metrics.compare.samples import METRICS, PROFILER, per_step, text_of
from tb_sol_plugin.metrics.rules.time import RULES
from tb_sol_plugin.units import human

Outcome: TypeAlias = Literal["regression", "within", "better", "inconclusive", "unavailable"]
Inconclusive: TypeAlias = Literal["inconclusive", "fail", "pass"]

PASSED, UNAVAILABLE, REGRESSION, INCONCLUSIVE = 0, 3, 4, 5
"""Exit statuses."""
OF_ROWS: Final = ("operator", "kernel", "module", "phase")
"""Groupings whose rows are metrics: `operator:aten::mm`."""
FINDING: Final = "finding"
"""What the finding of a rule saves is a metric: `finding:host_wait`."""
LIMIT: Final = 0.03
"""Change that passes where no limit is given."""
UNITS: Final = {"ns": 1.0, "us": 1e3, "µs": 1e3, "ms": 1e6, "s": 1e9, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2.0**10,
                "MiB": 2.0**20, "GiB": 2.0**30, "": 1.0}  # fmt: skip
OUTCOMES: Final[Mapping[C.Verdict, Outcome]] = {
    "worse": "regression", "within": "within", "better": "better", "inconclusive": "inconclusive", "unknown": "inconclusive",
    "same": "within",
}  # fmt: skip
_LIMIT: Final = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?) ?(%|[A-Za-zµ]{0,3})")
NOISY: Final = 0.7
"""Autocorrelation from which on steps hang together too closely to be called samples."""
SHARES_APART: Final = 0.1
"""Difference of the shares of slow steps that lowers trust."""


@dataclass(frozen=True)
class Limit:
    """How much a metric may grow. part: of the base, or None; amount: in the metric's unit. text: as it was given."""

    text: str
    part: float | None = None
    amount: float | None = None

    def of(self, base: float) -> float:
        """Returns the limit as part of the base's median."""
        if self.part is not None:
            return self.part
        return (self.amount or 0.0) / base if base else 0.0


@dataclass(frozen=True)
class Wanted:
    """A metric that is checked, and its limit."""

    name: str
    limit: Limit


@dataclass(frozen=True)
class Budget:
    """A committed number. value: in the metric's unit. allowed: how much more passes; None: as of any metric. text: as it was written."""

    name: str
    value: float
    text: str
    allowed: Limit | None = None


@dataclass(frozen=True)
class Judged:
    """What came of one metric. because: why it is unavailable, and how to record it. more: further steps a side that would decide it.

    detail: what changed, where the number alone does not say it.
    """

    name: str
    unit: str
    limit: Limit
    outcome: Outcome
    change: Change | None = None
    because: str = ""
    more: int | None = None
    detail: str = ""


@dataclass(frozen=True)
class Verdict:
    """The result of a check. outcome: the worst of all metrics."""

    outcome: Outcome
    base: str
    candidate: str
    metrics: Sequence[Judged]
    causes: Sequence[Cause]
    waterfall: Waterfall
    settings: Sequence[tuple[str, str | None, str | None]]
    warnings: Sequence[str]

    def status(self, inconclusive: Inconclusive = "inconclusive") -> int:
        """Returns the exit status: 0 pass, 3 a metric is unavailable, 4 regression, 5 inconclusive (0 or 4 as wanted)."""
        if self.outcome == "inconclusive":
            return {"inconclusive": INCONCLUSIVE, "fail": REGRESSION, "pass": PASSED}[inconclusive]
        return {"regression": REGRESSION, "unavailable": UNAVAILABLE}.get(self.outcome, PASSED)


USUAL: Final = Limit("3%", part=LIMIT)
NONE: Final = Limit("0%", part=0.0)
"""Counts and bytes are nearly free of noise: without a limit they may not grow."""


def limit_of(text: str, unit: str) -> Limit:
    """Reads a limit: `3%`, `5ms`, `100MB`, `2`. BadQuery where it is none, or of another unit than the metric."""
    found = _LIMIT.fullmatch(text.strip())
    if found is None:
        raise BadQuery(f"{text!r} is no limit", hint="write 3%, 5ms, 100MB or 2", field="metric")
    value, suffix = float(found[1]), found[2]
    if suffix == "%":
        return Limit(text.strip(), part=value / 100)
    fits = {"ns": ("ns", "us", "µs", "ms", "s"), "B": ("B", "KB", "MB", "GB", "KiB", "MiB", "GiB"), "count": ("",), "ratio": ("",)}[unit]
    if suffix not in fits:
        units = ", ".join(f or "none" for f in fits)
        raise BadQuery(f"{text!r} is no limit of this metric", hint=f"its units are {units}, or %", field="metric")
    return Limit(text.strip(), amount=value * UNITS[suffix])


def wanted_of(texts: Sequence[str], default: Limit | None = None) -> list[Wanted]:
    """Reads `NAME` and `NAME=LIMIT`; without any the step time. BadQuery for a metric that does not exist."""
    out = []
    for text in texts or ["step_time"]:
        name, equals, limit = text.rpartition("=")
        name = name if equals else text
        kind, colon, of = name.partition(":")
        if not (name in METRICS or (colon and kind in OF_ROWS and of) or (kind == FINDING and of in RULES)):
            known = ", ".join([*METRICS, *(f"{g}:NAME" for g in OF_ROWS), f"{FINDING}:RULE"])
            known = f"of findings {', '.join(RULES)}" if kind == FINDING else known
            raise BadQuery(f"no metric {name!r}", hint=f"there is: {known}", field="metric")
        out.append(Wanted(name, limit_of(limit, unit_of(name)) if equals else default or (NONE if is_exact(name) else USUAL)))
    return out


def budget_of(name: str, text: str) -> Budget:
    """Reads a budget: `4.9ms`, or `4.9ms +5%`; of a rate `38.4%`. BadQuery where the metric does not exist or the text is none."""
    wanted_of([name])
    number, plus, allowed = text.partition("+")
    value = limit_of(number, unit_of(name))
    amount = value.amount if value.amount is not None or unit_of(name) != "ratio" else value.part
    if amount is None:
        raise BadQuery(f"{text[:40]!r} is no budget of {name[:80]}", hint="write an amount, as 4.9ms or 4.9ms +5%", field="metric")
    return Budget(name, amount, text.strip(), limit_of(allowed, unit_of(name)) if plus else None)


def budget_text(value: float, unit: str, allowed: Limit | None = None) -> str:
    """Returns a measured number as a budget: `4.931ms`, `32`, `1048576B`, `38.41%`."""
    if unit == "ratio":
        return f"{100 * value:.4g}%{f' +{allowed.text}' if allowed is not None else ''}"
    number = f"{value / 1e6:.4g}ms" if unit == "ns" and value < 1e12 else f"{value / 1e9:.0f}s" if unit == "ns" else f"{round(value)}"
    return f"{number}{'B' if unit == 'B' else ''}{f' +{allowed.text}' if allowed is not None else ''}"


def unit_of(name: str) -> str:
    """Returns the unit of a metric; rows are times."""
    return METRICS[name].unit if name in METRICS else "ns"


def is_rate(name: str) -> bool:
    """Whether a metric is a part of something, of which more is better."""
    return name in METRICS and bool(METRICS[name].of)


def is_exact(name: str) -> bool:
    """Whether a metric is nearly free of noise."""
    return name in METRICS and METRICS[name].exact


def check(
    base: Side, candidate: Side, wanted: Sequence[Wanted], *, least: int = C.LEAST_STEPS, between: Mapping[str, float] | None = None,
    history: Side | None = None,
) -> Verdict:  # fmt: skip
    """Returns the verdict of every wanted metric, with the causes of what changed.

    least: steps below which trust is lowered. between: noise from run to run per metric, where earlier runs show it. history: these runs.
    """
    pairs = pairs_of(base, candidate)
    alike = {w.name: own for w in wanted if (own := _of_level(history, base, candidate, w.name)) is not None}
    judged = [
        _judge(alike[w.name][0] if w.name in alike else values_of(base, w.name), candidate, w, base.name, (between or {}).get(w.name),
               base.weights(w.name), pairs=() if w.name in alike else pairs)
        for w in wanted
    ]  # fmt: skip
    judged = [replace(j, detail=_new_findings(base, candidate)) if j.name == "findings" else j for j in judged]
    judged = [_without_steps(j, base, candidate) for j in judged]
    found = compared(base, candidate)
    warnings = _of_history(judged, between or {})
    if not between and (len(base.runs) == 1 or len(candidate.runs) == 1):
        warnings.append("one run on a side does not show the noise from run to run, 0.5 % is assumed: record A, B, A, B and name several")
    if pairs and not between:
        warnings.append(f"recorded in turns: compared within {len(pairs)} pairs of neighbors in time, so that what drifts cancels")
    return Verdict(
        _worst(judged), base.name, candidate.name, judged, found.causes, found.waterfall, _settings(base, candidate),
        [*(text for _, text in alike.values()), *_warnings(base, candidate, judged, least), *warnings],
    )  # fmt: skip


def check_budgets(
    budgets: Sequence[Budget], candidate: Side, wanted: Sequence[Wanted], name: str, *, least: int = C.LEAST_STEPS,
    between: Mapping[str, float] | None = None,
) -> Verdict:  # fmt: skip
    """Returns the verdict of every wanted metric against committed numbers. They do not say of what they are made: no cause is named.

    name: what to call the budgets. A metric without a budget is unavailable.
    """
    known = {b.name: b for b in budgets}
    judged = []
    for one in wanted:
        budget = known.get(one.name)
        allowed = budget.allowed if budget is not None and budget.allowed is not None else one.limit
        ours = None if budget is None else [np.array([budget.value])]
        found = _judge(ours, candidate, Wanted(one.name, allowed), name, (between or {}).get(one.name), fixed=True)
        judged.append(replace(found, detail=_findings_of(candidate)) if one.name == "findings" else found)
    steps = round(float(np.concatenate([Side.times(run) for run in candidate.runs]).mean()))
    return Verdict(
        _worst(judged), name, candidate.name, judged, [], Waterfall(steps, steps, ()), [],
        [*_of_side(candidate, least), *_of_history(judged, between or {}, fixed=True), *_undecided(judged)],
    )  # fmt: skip


def noise_between(history: Side, metrics: Sequence[str]) -> dict[str, float]:
    """Returns the noise from run to run of metrics, as part of their median, that earlier runs of one state show.

    BadQuery with fewer than three runs. Metrics that are counts, or that the runs do not know, are left out.
    """
    if len(history.runs) < C.ENOUGH_RUNS:
        hint = f"give {C.ENOUGH_RUNS} runs or more of the same state"
        raise BadQuery(f"a history of {len(history.runs)} runs shows no noise from run to run", hint=hint, field="history")
    found = {name: values_of(history, name) for name in metrics if not is_exact(name)}
    return {name: _noise(values) for name, values in found.items() if values is not None}


def levels_between(history: Side, metrics: Sequence[str]) -> list[str]:
    """Returns which metrics lie around two levels in earlier runs: the noise is then that within a level."""
    out = []
    for name in metrics:
        values = None if is_exact(name) else values_of(history, name)
        levels = C.two_levels(np.array([np.median(v) for v in values])) if values is not None else None
        if levels is not None:
            low, high = (text_of(v, unit_of(name)) for v in (levels.low, levels.high))
            out.append(f"{name}: earlier runs have two levels, {low} and {high}; the noise is that within one")
    return out


def _of_level(history: Side | None, base: Side, candidate: Side, name: str) -> tuple[list[Values], str] | None:
    """Returns the earlier runs of the level at which the candidate lies, and what is to be said of it; None where the base lies there too,
    or earlier runs have one level. Rates and counts have none.
    """
    if history is None or is_exact(name) or is_rate(name):
        return None
    earlier, ours, theirs = (values_of(side, name) for side in (history, base, candidate))
    levels = C.two_levels(np.array([np.median(v) for v in earlier])) if earlier is not None else None
    if earlier is None or levels is None or ours is None or theirs is None:
        return None
    middles = (float(np.median(np.concatenate(v))) for v in (ours, theirs))
    at_base, at_candidate = (abs(middle - levels.high) < abs(middle - levels.low) for middle in middles)
    if at_base == at_candidate:
        return None
    runs = [v for v, high in zip(earlier, levels.is_high.tolist(), strict=True) if high == at_candidate]
    where = f"the candidate lies at the {'higher' if at_candidate else 'lower'} level of earlier runs, {base.name} at the other"
    return runs, f"{name}: {where}; compared with the {len(runs)} runs of its own"


def _noise(values: Sequence[Values]) -> float:
    """Returns the noise from run to run as part of the median, of runs around two levels the larger one within a level."""
    levels = C.two_levels(np.array([np.median(v) for v in values]))
    if levels is None:
        return C.noise_between_runs(values)
    halves = ([v for v, high in zip(values, levels.is_high.tolist(), strict=True) if high is side] for side in (False, True))
    return max(map(C.noise_between_runs, halves))


def _worst(judged: Sequence[Judged]) -> Outcome:
    order: list[Outcome] = ["regression", "unavailable", "inconclusive", "within", "better"]
    return min((j.outcome for j in judged), key=order.index)


def _of_history(judged: Sequence[Judged], between: Mapping[str, float], *, fixed: bool = False) -> list[str]:
    """Returns by how much earlier runs differ without a change, how often such ones would fail, and which limits are too low for that.

    A limit below two standard deviations of a run is too low. fixed: the base is committed numbers.
    """
    out = []
    for one in judged:
        noise = between.get(one.name)
        if noise is None or one.change is None or not one.change.a:
            continue
        limit = one.limit.of(one.change.a)
        if limit < 2 * noise:
            out.append(f"{one.name}: the limit is below the noise of earlier runs; use {100 * 2 * noise:.1f}% or more")
        often = C.false_alarms(noise, limit, (0, one.change.runs[1]) if fixed else one.change.runs)
        rate = f"{100 * often:.1f} %" if often >= 0.001 else "less than 0.1 %"
        differ = f"earlier runs differ by {100 * noise:.1f} % (one standard deviation)"
        out.append(f"{one.name}: {differ}; at this limit {rate} of unchanged ones fail")
    return out


def _findings_of(side: Side) -> str:
    """Returns the findings of a side by their rules."""
    rules = dict.fromkeys(rule for run in side.runs for rule in run.findings or ())
    return f"found: {', '.join(rules)}" if rules else ""


def _new_findings(a: Side, b: Side) -> str:
    """Returns which findings B alone has, and which A alone."""
    ours, theirs = (dict.fromkeys(rule for run in side.runs for rule in run.findings or ()) for side in (a, b))
    parts = {"new": [r for r in theirs if r not in ours], "gone": [r for r in ours if r not in theirs]}
    return "; ".join(f"{word}: {', '.join(rules)}" for word, rules in parts.items() if rules)


def _judge(
    ours: list[Values] | None, b: Side, wanted: Wanted, base: str, between: float | None, weights: list[Values] | None = None,
    *, fixed: bool = False, pairs: Sequence[tuple[int, int]] = (),
) -> Judged:  # fmt: skip
    """Returns the verdict of one metric. ours, weights: of the base, whose name is `base`; fixed: a committed number. pairs: runs of both
    sides that were recorded beside each other, which count where no history tells the noise.
    """
    unit, theirs = unit_of(wanted.name), values_of(b, wanted.name)
    if ours is None and fixed and theirs is not None:
        found = C.exactly([], theirs)
        return Judged(wanted.name, unit, wanted.limit, "unavailable", found, because=f"{base} has no budget for it; --update writes one")
    if ours is None or theirs is None:
        lacking = " and ".join(name for name, found in ((base, ours), (b.name, theirs)) if found is None)
        because = f"{lacking} {'do' if ours is None and theirs is None else 'does'} not have it; {_record(wanted.name)}"
        return Judged(wanted.name, unit, wanted.limit, "unavailable", because=because)
    rate = b.weights(wanted.name)
    both = None if rate is None else (weights or [np.ones(len(v)) for v in ours], rate)
    if is_exact(wanted.name):
        found = C.exactly(ours, theirs)
    elif pairs and between is None and rate is None:
        found = C.change_of_pairs([ours[i] for i, _ in pairs], [theirs[j] for _, j in pairs])
    else:
        found = C.change_of(ours, theirs, between=between, fixed=fixed, weights=both)
    return _against_limit(found, wanted, rate=rate is not None, fixed=fixed)


def _without_steps(judged: Judged, a: Side, b: Side) -> Judged:
    """Returns a verdict as it holds where a side has no steps: nothing of one side alone, nothing noisy of one sample a side."""
    if (a.has_steps and b.has_steps) or judged.name.partition(":")[0] in ("findings", FINDING):
        return judged
    if a.has_steps != b.has_steps:
        bare, other = (a, b) if b.has_steps else (b, a)
        because = f"{bare.name} has no steps to set against those of {other.name}; call `prof.step()` after every iteration"
        return replace(judged, outcome="unavailable", change=None, because=because, more=None)
    if is_exact(judged.name) or judged.outcome == "unavailable":
        return judged
    return replace(judged, outcome="inconclusive", more=None, detail="no steps: one sample a side")


def _against_limit(found: Change, wanted: Wanted, *, rate: bool, fixed: bool) -> Judged:
    """Returns the verdict of a change against the limit of its metric. rate: more of it is better. fixed: A is a committed number."""
    unit = unit_of(wanted.name)
    if found.change is None or found.a is None or found.b is None:
        return Judged(wanted.name, unit, wanted.limit, "better" if rate else _from_nothing(found, wanted.limit), found)
    limit = wanted.limit.of(found.a)
    worse = C.turned(found) if rate else found
    outcome = OUTCOMES[C.judged(worse, limit)]
    least = replace(worse, samples=(found.samples[1],) * 2) if fixed else worse
    more = C.steps_to_decide(least, limit) if outcome == "inconclusive" else None
    return Judged(wanted.name, unit, wanted.limit, outcome, found, more=more)


def _from_nothing(found: Change, limit: Limit) -> Outcome:
    """Returns the outcome where the base has none of it: what exceeds an absolute limit is a regression, so is anything in percent."""
    return "regression" if (found.b or 0.0) > (limit.amount or 0.0) else "within"


def values_of(side: Side, name: str) -> list[Values] | None:
    """Returns a metric, or the time of a row as `operator:NAME`, per step and run of a side; None where it is not known."""
    if name in METRICS:
        return side.values(name)
    by, _, row = name.partition(":")
    if by == FINDING:
        return [np.array([(run.findings or {}).get(row, 0)], np.float64) for run in side.runs] if side.has_findings else None
    if not side.knows(by):
        return None
    out = []
    for run in side.runs:
        found, count = run.groupings[by], len(run.row_steps)
        if row not in found.names:
            if found.cut:
                return None
            out.append(np.zeros(count))
            continue
        i = found.names.index(row)
        device = per_step(found, "device", count)
        times = device if device.any() else per_step(found, "host", count)
        out.append(times[i].astype(np.float64))
    return out if any(v.any() for v in out) else None


def _record(name: str) -> str:
    if name == "peak_memory":
        return "record with profile_memory=True"
    if is_rate(name):
        return "record with record_shapes=True, on a device whose limits are known (see `tb-sol devices`)"
    if name.partition(":")[0] in ("findings", FINDING):
        return "store a baseline again with --save-baseline; a SOL log has none"
    if name.partition(":")[0] == "module":
        return "record with with_stack=True or with_modules=True"
    if name.partition(":")[0] in OF_ROWS:
        return "see `tb-sol analyze compare` for the names that both have"
    return "record it on a device with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"


def _settings(a: Side, b: Side) -> list[tuple[str, str | None, str | None]]:
    ours, theirs = a.runs[0].settings, b.runs[0].settings
    names = [n for n in dict.fromkeys([*ours, *theirs]) if n != "steps recorded"]
    return [(n, ours.get(n), theirs.get(n)) for n in names if ours.get(n) != theirs.get(n)]


def _warnings(a: Side, b: Side, judged: Sequence[Judged], least: int) -> list[str]:
    """Returns what lowers trust in the comparison."""
    out = [line for side in (a, b) for line in _of_side(side, least)]
    share = [1 - float(np.concatenate(side.kept).mean()) for side in (a, b)]
    if abs(share[0] - share[1]) > SHARES_APART:
        out.append(f"slow steps: {100 * share[0]:.0f} % of {a.name}, {100 * share[1]:.0f} % of {b.name}")
    differ = {name: f"{ours} and {theirs}" for name, ours, theirs in _settings(a, b) if ours is not None and theirs is not None}
    profiler = [name for name in PROFILER if name in differ]
    if profiler:
        out.append(f"recorded with different settings of the profiler ({', '.join(profiler)}): its own cost is part of the times")
    if "device" in differ:
        out.append(f"different devices: {differ['device']}")
    factor = common_factor(rows_of(a, b, "kernel"))
    if factor is not None and abs(factor - 1) > DEVICE_SPEED:
        out.append(f"equal kernels take {100 * (factor - 1):+.1f} % time throughout: another clock, power limit or device")
    return [*out, *_undecided(judged)]


def _of_side(side: Side, least: int) -> list[str]:
    """Returns what lowers trust in one side."""
    out = []
    steps = sum(len(run.steps) for run in side.runs)
    if steps < least:
        out.append(f"{side.name}: {steps} steps are fewer than {least}")
    values = [Side.times(run) for run in side.runs]
    close = [r for r in map(C.autocorrelation, values) if r is not None]
    if close and max(close) > NOISY:
        out.append(f"{side.name}: steps hang together (autocorrelation {max(close):.2f}): fewer independent samples than it seems")
    levels = next((found for found in map(C.two_levels, values) if found is not None), None)
    if levels is not None:
        low, high = human(round(levels.low), "ns"), human(round(levels.high), "ns")
        out.append(f"{side.name}: its steps have two levels, {low} and {high}: the median may be of either")
    if any(C.has_trend(v) for v in values):
        out.append(f"{side.name}: its steps grow or fall through the run (warming up, or a leak)")
    if sum(run.incomplete for run in side.runs) > steps:
        out.append(f"{side.name}: more than half of its steps are incomplete")
    return out


def _undecided(judged: Sequence[Judged]) -> list[str]:
    noisy = [j.name for j in judged if j.outcome == "inconclusive" and j.more is None]
    return [f"{', '.join(noisy)}: too noisy for this limit whatever the number of steps; raise it, or quiet the machine"] if noisy else []


