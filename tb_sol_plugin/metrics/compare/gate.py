"""Judges a candidate against a base: which metric got worse by more than its limit, and because of what.

A metric fails only when its whole 95 % interval lies above the limit, so that noise alone does not fail a build. What cannot be decided is
`inconclusive`, with how many more steps would decide it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.compare import change as C
from tb_sol_plugin.metrics.compare.causes import Cause, compared
from tb_sol_plugin.metrics.compare.change import Change, Values
from tb_sol_plugin.metrics.compare.differences import Side, Waterfall
from tb_sol_plugin.metrics.compare.samples import METRICS, per_step

Outcome: TypeAlias = Literal["regression", "within", "better", "inconclusive", "unavailable"]
Inconclusive: TypeAlias = Literal["inconclusive", "fail", "pass"]

PASSED, UNAVAILABLE, REGRESSION, INCONCLUSIVE = 0, 3, 4, 5
"""Exit statuses."""
OF_ROWS: Final = ("operator", "kernel", "module", "phase")
"""Groupings whose rows are metrics: `operator:aten::mm`."""
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
class Judged:
    """What came of one metric. because: why it is unavailable, and how to record it. more: further steps a side that would decide it."""

    name: str
    unit: str
    limit: Limit
    outcome: Outcome
    change: Change | None = None
    because: str = ""
    more: int | None = None


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
    fits = {"ns": ("ns", "us", "µs", "ms", "s"), "B": ("B", "KB", "MB", "GB", "KiB", "MiB", "GiB"), "count": ("",)}[unit]
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
        if not (name in METRICS or (colon and kind in OF_ROWS and of)):
            known = ", ".join([*METRICS, *(f"{g}:NAME" for g in OF_ROWS)])
            raise BadQuery(f"no metric {name!r}", hint=f"there is: {known}", field="metric")
        out.append(Wanted(name, limit_of(limit, _unit(name)) if equals else default or (NONE if _is_exact(name) else USUAL)))
    return out


def _unit(name: str) -> str:
    return METRICS[name].unit if name in METRICS else "ns"


def _is_exact(name: str) -> bool:
    return name in METRICS and METRICS[name].exact


def check(
    base: Side, candidate: Side, wanted: Sequence[Wanted], *, least: int = C.LEAST_STEPS, between: Mapping[str, float] | None = None
) -> Verdict:
    """Returns the verdict of every wanted metric, with the causes of what changed.

    least: steps below which trust is lowered. between: noise from run to run per metric, where earlier runs show it.
    """
    judged = [_judge(base, candidate, one, (between or {}).get(one.name)) for one in wanted]
    order: list[Outcome] = ["regression", "unavailable", "inconclusive", "within", "better"]
    outcome = min((j.outcome for j in judged), key=order.index)
    found = compared(base, candidate)
    return Verdict(
        outcome, base.name, candidate.name, judged, found.causes, found.waterfall, _settings(base, candidate),
        _warnings(base, candidate, judged, least),
    )  # fmt: skip


def _judge(a: Side, b: Side, wanted: Wanted, between: float | None) -> Judged:
    unit = _unit(wanted.name)
    ours, theirs = _values(a, wanted.name), _values(b, wanted.name)
    if ours is None or theirs is None:
        lacking = " and ".join(side.name for side, found in ((a, ours), (b, theirs)) if found is None)
        because = f"{lacking} {'do' if ours is None and theirs is None else 'does'} not have it; {_record(wanted.name)}"
        return Judged(wanted.name, unit, wanted.limit, "unavailable", because=because)
    found = C.exactly(ours, theirs) if _is_exact(wanted.name) else C.change_of(ours, theirs, between=between)
    if found.change is None or found.a is None or found.b is None:
        return Judged(wanted.name, unit, wanted.limit, _from_nothing(found, wanted.limit), found)
    limit = wanted.limit.of(found.a)
    outcome = OUTCOMES[C.judged(found, limit)]
    more = C.steps_to_decide(found, limit) if outcome == "inconclusive" else None
    return Judged(wanted.name, unit, wanted.limit, outcome, found, more=more)


def _from_nothing(found: Change, limit: Limit) -> Outcome:
    """Returns the outcome where the base has none of it: what exceeds an absolute limit is a regression, so is anything in percent."""
    return "regression" if (found.b or 0.0) > (limit.amount or 0.0) else "within"


def _values(side: Side, name: str) -> list[Values] | None:
    if name in METRICS:
        return side.values(name)
    by, _, row = name.partition(":")
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
    out = []
    for side in (a, b):
        steps = sum(len(run.steps) for run in side.runs)
        if steps < least:
            out.append(f"{side.name}: {steps} steps are fewer than {least}")
        values = [Side.times(run) for run in side.runs]
        close = [r for r in map(C.autocorrelation, values) if r is not None]
        if close and max(close) > NOISY:
            out.append(f"{side.name}: steps hang together (autocorrelation {max(close):.2f}): fewer independent samples than it seems")
        if any(C.has_trend(v) for v in values):
            out.append(f"{side.name}: its steps grow or fall through the run (warming up, or a leak)")
        cut = sum(run.incomplete for run in side.runs)
        if cut > steps:
            out.append(f"{side.name}: more than half of its steps are incomplete")
    share = [1 - float(np.concatenate(side.kept).mean()) for side in (a, b)]
    if abs(share[0] - share[1]) > SHARES_APART:
        out.append(f"slow steps: {100 * share[0]:.0f} % of {a.name}, {100 * share[1]:.0f} % of {b.name}")
    if len(a.runs) == 1 or len(b.runs) == 1:
        out.append("one run on a side does not show the noise from run to run, 0.5 % is assumed: record A, B, A, B and name several")
    noisy = [j for j in judged if j.outcome == "inconclusive" and j.more is None]
    if noisy:
        names = ", ".join(j.name for j in noisy)
        out.append(f"{names}: too noisy for this limit whatever the number of steps; raise it, or quiet the machine")
    return out


