"""Finds what a comparison asks somebody to do: a step that got slower or faster, and kernels, waits, overlap and clocks that make it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from tb_sol_plugin.metrics.compare.causes import Cause, Comparison
from tb_sol_plugin.metrics.compare.differences import DEVICE_SPEED, MetricChange, Rows, common_factor
from tb_sol_plugin.metrics.compare.samples import PROFILER
from tb_sol_plugin.model.report import Finding, Link
from tb_sol_plugin.units import capitalized, human, number, signed, signed_percent

LEAST: Final = 0.01
"""Of the step: a kernel that got slower by less is no finding."""
MORE_LAUNCHES: Final = 0.2
SAME_WORK: Final = 0.05


def findings_of(both: Comparison, names: tuple[str, str], settings: tuple[Mapping[str, str], Mapping[str, str]]) -> list[Finding]:
    """Returns the findings of a comparison, the largest first. names, settings: of both sides."""
    step = next(m for m in both.metrics if m.name == "step_time")
    delta, whole = both.waterfall.b_ns - both.waterfall.a_ns, max(both.waterfall.a_ns, 1)
    out = [*_of_step(step, delta, both.causes, names), *_of_kernels(both.rows.get("kernel"), whole), *_of_counts(both)]
    out += [_of_cause(c, rule, title) for c in both.causes for rule, title in _RULES.get(c.kind, ()) if c.delta_ns > 0]
    out += _of_clock(both.rows.get("kernel"), whole)
    if step.verdict in ("same", "inconclusive"):
        for one in both.hidden:
            if one.delta_ns < 0:
                out.append(Finding(
                    rule="hidden-win", title=f"{capitalized(one.name) if '::' not in one.name else one.name} takes less, the step does not",
                    evidence=f"{signed(one.delta_ns, 'ns')} per step; {one.because}: look at what the step waits for instead",
                    saving_ns=-one.delta_ns, share=-one.delta_ns / whole, link=Link("critical_path"), candidate=True,
                ))  # fmt: skip
    recorded = [n for n in PROFILER if settings[0].get(n) is not None and settings[1].get(n) not in (None, settings[0].get(n))]
    if recorded:
        differ = ", ".join(f"{n} {settings[0][n]} and {settings[1][n]}" for n in recorded)
        out.append(Finding(
            rule="not-comparable", title="The two were recorded with different settings of the profiler", evidence=differ, candidate=True,
            fix="record both with the same arguments of torch.profiler.profile",
        ))  # fmt: skip
    return sorted(out, key=lambda f: (f.candidate, -(f.saving_ns or 0)))


_RULES: Final = {
    "sync_added": (("sync-added", "The host waits for the device more often"),),
    "schedule": (("overlap-lost", "Less of it runs behind other work"),),
}
"""Causes that are findings of their own."""


def _of_step(step: MetricChange, delta: int, causes: Sequence[Cause], names: tuple[str, str]) -> list[Finding]:
    """Returns that the step got slower or faster, because of what."""
    change = step.change
    if step.verdict not in ("worse", "better") or change.change is None or not change.a:
        return []
    worse = step.verdict == "worse"
    interval = f"95 % interval {signed_percent(change.low or 0.0)} to {signed_percent(change.high or 0.0)}"
    size = f"{number(100 * abs(change.change), 1)} % {'more' if worse else 'less'}"
    because = f" {causes[0].plain}." if causes else " No part of it stands out."
    return [Finding(
        rule="regression" if worse else "improvement",
        title=f"A step of {names[1]} takes {size} time than one of {names[0]}",
        evidence=f"{signed(delta, 'ns')} of the mean step, {interval}.{because}", saving_ns=delta if worse else None,
        share=delta / change.a if worse else None, link=Link(causes[0].analysis) if causes else None,
    )]  # fmt: skip


def _of_cause(cause: Cause, rule: str, title: str) -> Finding:
    return Finding(
        rule=rule, title=title, evidence=cause.plain, saving_ns=cause.delta_ns, share=None, link=Link(cause.analysis)
    )


def _of_kernels(kernels: Rows | None, whole: int) -> list[Finding]:
    """Returns kernels in the place of others that take longer by more than a hundredth of the step."""
    if kernels is None or kernels.time != "device":
        return []
    return [
        Finding(
            rule="kernel-substituted", title=f"Another kernel takes longer: {kernels.name[i]}",
            evidence=f"in the place of {kernels.was[i]}, {signed(int(kernels.delta_ns[i]), 'ns')} per step "
            f"in {number(kernels.calls_b[i], 1)} calls",
            saving_ns=int(kernels.delta_ns[i]), share=float(kernels.delta_ns[i]) / whole, link=Link("kernels", {"find": kernels.name[i]}),
        )
        for i in range(len(kernels))
        if kernels.match[i] == "renamed" and kernels.verdict[i] == "worse" and kernels.delta_ns[i] > LEAST * whole
    ]  # fmt: skip


def _of_counts(both: Comparison) -> list[Finding]:
    """Returns that the same work takes a fifth more launches or more."""
    launches = next((m.change for m in both.metrics if m.name == "launches"), None)
    operators = both.rows.get("operator")
    if launches is None or not launches.a or launches.b is None or launches.change is None or operators is None:
        return []
    if launches.change <= MORE_LAUNCHES:
        return []
    before, grown = float(operators.time_a.sum()), float(operators.work_effect_ns.sum())
    if abs(grown) > SAME_WORK * before:
        return []
    kernels = next((m.change.change for m in both.metrics if m.name == "kernel_time"), None)
    return [Finding(
        rule="calls-grew", title="The same work takes more launches",
        evidence=f"{number(launches.a, 0)} → {number(launches.b, 0)} device events per step ({signed_percent(launches.change)})"
        + (f", kernel time {signed_percent(kernels)}" if kernels is not None else ""),
        link=Link("launches"), candidate=True,
    )]  # fmt: skip


def _of_clock(kernels: Rows | None, whole: int) -> list[Finding]:
    """Returns that all kernels got slower or faster by one factor."""
    factor = common_factor(kernels)
    if kernels is None or factor is None or abs(factor - 1) <= DEVICE_SPEED:
        return []
    lost = round((factor - 1) * float(kernels.time_a.sum()))
    return [Finding(
        rule="device-speed", title=f"The device is {'slower' if factor > 1 else 'faster'}, not the code",
        evidence=f"kernels that are the same on both sides take {signed_percent(factor - 1)} time, "
        f"{human(abs(lost), 'ns')} of all kernels: clock, power limit, temperature or another device",
        saving_ns=lost if lost > 0 else None, share=lost / whole if lost > 0 else None, candidate=True,
    )]  # fmt: skip
