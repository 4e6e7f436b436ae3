"""Writes the headline of the overview: how long, how long at the limits, what limits it, what the first fix would save."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.devices.limits import why_no_limits
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.report.overview import KINDS, LEAST, PLAIN, kernel_time, shown_ratio
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.breakdown import device_word
from tb_sol_plugin.metrics.time.scope import Scope, source_of
from tb_sol_plugin.metrics.time.waterfall import Waterfall, windows_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.units import NARROW, human, number, side_by_side

MOSTLY: Final = 0.6
"""Part of a group from which one member is named for it in a sentence."""
WRONG: Final = "data stayed in a cache, or the limits or the work are wrong"
"""Why a measurement can be below its limit."""
NEARLY: Final = 0.9
"""Part of a group from which one member is the group."""
MEASURE: Final = "tb-sol doctor --measure"


def sentence(capture: Capture, part: Scope, waterfall: Waterfall, found: list[Finding], *, at_most: bool = True, hidden: int = 0) -> str:
    """Writes two or three sentences, the numbers in bold. found: those to name, the largest saving first; hidden: how many are not."""
    ratio = shown_ratio(waterfall)
    if not waterfall.total_ns:
        return "Nothing in this recording has a length."
    if ratio is not None and ratio > TOLERATED:
        return f"{_times(capture, part, waterfall)} It ran faster than its limits: {WRONG}."
    sentences = [_times(capture, part, waterfall), _limited(capture, waterfall, found, at_most, hidden), _no_limits(capture, waterfall)]
    return " ".join(s for s in sentences if s)


def subject(capture: Capture, part: Scope, waterfall: Waterfall) -> str:
    """Returns what takes the time: `Step 6`, `A step` (the mean of several), `The recording`."""
    if not waterfall.stepped:
        return "The recording"
    _, rows = windows_of(capture, part)
    return f"Step {int(capture.steps['number'].to_numpy()[rows[0]])}" if len(rows) == 1 else "A step"


def a_device(spec: DeviceSpec) -> str:
    """Returns `an H100 SXM`, `a V100 SXM2 32 GB`, `this CPU`."""
    if spec.vendor == "cpu":
        return "this CPU"
    first = spec.name[:1].upper()
    spelled = not spec.name[1:2].islower()
    return f"{'an' if first in ('AEFHILMNORSX' if spelled else 'AEIO') else 'a'} {spec.name}"


def why_no_ratio(capture: Capture, waterfall: Waterfall) -> str:
    """Returns why there is no speed of light; "" where there is one."""
    if shown_ratio(waterfall) is not None or scope.is_uncounted(capture):
        return "" if shown_ratio(waterfall) is not None else "the work of no iteration was counted"
    if waterfall.captured:
        return f"this is a recording of graph captures: {waterfall.captured:,} launches became nodes of graphs and did not run"
    spec = waterfall.work.spec
    if waterfall.work.by_host_time and spec is None and not capture.facts.devices:
        host = capture.facts.host_name
        return f"the limits of {host or 'this CPU'} are not known; `{MEASURE}`{' run there' if host else ''} measures them"
    if spec is None:
        return why_no_limits(capture)
    if waterfall.work.by_host_time and spec.vendor != "cpu":
        return f"this work ran on a CPU, and {spec.name} are the limits of another kind of device"
    if spec.memory_bandwidth is None:
        return f"the memory bandwidth of {a_device(spec)} is not known"
    if capture.missing("shapes") is not None and source_of(capture) == "trace":
        return "recorded without shapes"
    if not waterfall.has_limits:
        return "no operator carries the shapes that a cost model needs"
    share = human(waterfall.modeled_kernel_share, "ratio")
    return f"a cost model covers {share} of the work, less than the {100 * LEAST:.0f}{NARROW}% that a ratio needs"


def _no_limits(capture: Capture, waterfall: Waterfall) -> str:
    why = why_no_ratio(capture, waterfall)
    return f"No speed of light: {why}." if why else ""


def _times(capture: Capture, part: Scope, waterfall: Waterfall) -> str:
    name = subject(capture, part, waterfall)
    step = human(round(waterfall.total_ns / waterfall.steps), "ns")
    spec = waterfall.work.spec
    if shown_ratio(waterfall) is None or spec is None:
        if waterfall.work.by_host_time:
            return f"{name} takes **{step}** on the host."
        if not waterfall.work.timed:
            return f"{name} takes **{step}**."
        busy = human(waterfall.busy_ns / waterfall.total_ns, "ratio")
        return f"{name} takes **{step}**; the {device_word(capture)} is busy for **{busy}** of it."
    step, least = side_by_side([waterfall.total_ns / waterfall.steps, waterfall.sol_ns / waterfall.steps], "ns")
    about = "" if (waterfall.modeled_kernel_share or 0) >= PLAIN and not waterfall.work.takes_counted else "about "
    return f"{name} takes **{step}**; the same work at the limits of {a_device(spec)} takes {about}**{least}**."


# -- what limits it -------------------------------------------------------------------------------------------


GROUPS: Final = {
    "input_wait": "input",
    "host_wait": "host",
    "host_sync": "host",
    "launch_bound": "host",
    "exposed_communication": "communication",
    "exposed_copies": "copies",
}
"""Rule of a finding that needs no more words where its group has just been named; any other finding is named by its title."""


def _limited(capture: Capture, waterfall: Waterfall, found: list[Finding], at_most: bool, hidden: int) -> str:
    """Returns the largest group of parts, and what the first fix saves."""
    if not waterfall.work.timed:
        return ""
    group, words, time = _largest(capture, waterfall)
    if not found:
        return f"{words}." if not hidden else f"{words}; no fix alone saves much, as other work goes on meanwhile."
    first = found[0]
    saving = f"{'at most ' if at_most else ''}**{human(first.saving, 'ns')}**"
    if GROUPS.get(first.id) == group:
        fixing = "a possible fix" if first.candidate else "fixing that" if first.saving * waterfall.steps >= 0.9 * time else "the first fix"
        return f"{words}; {fixing} saves {saving}."
    return f"{words}. {'A possible' if first.candidate else 'The first'} fix saves {saving}: {_lower(first.title)}."


def _lower(title: str) -> str:
    """Returns a title inside a sentence: its first letter small where the first word is a plain one."""
    return title[:1].lower() + title[1:] if title[1:2].islower() or title[1:2] == " " else title


def _largest(capture: Capture, waterfall: Waterfall) -> tuple[str, str, float]:
    """Returns (group, words, ns) of the largest group of parts."""
    if waterfall.work.by_host_time:
        return _largest_of_host(waterfall)
    unit = device_word(capture)
    of = "the step" if waterfall.stepped else "the recording"
    least = waterfall.sol_ns if shown_ratio(waterfall) is not None else 0.0
    groups = {
        "input": float(waterfall.input_wait_ns),
        "host": float(waterfall.host_wait_ns),
        "communication": float(waterfall.exposed_communication_ns),
        "copies": float(waterfall.exposed_copies_ns),
        "work": sum(waterfall.kind_ns.values()) + waterfall.unmodelled_ns - least,
        "limit": least,
    }
    group = _first(groups)
    share = f"{percent(groups[group] / waterfall.total_ns)} of {of}"
    words = {
        "input": f"The {unit} waits {share} for input",
        "host": f"The {unit} waits {share}{_host_cause(waterfall) if waterfall.host_wait_ns else ''}",
        "communication": f"For {share} the {unit} only communicates",
        "copies": f"For {share} the {unit} only copies",
        "work": _work_words(capture, waterfall, share, least > 0),
        "limit": f"The {unit}'s own limits, {_bound(waterfall)}, take {share}",
    }
    return group, words[group], groups[group]


def _first(groups: dict[str, float]) -> str:
    """Returns the largest group; the limits themselves only where they are most of the time."""
    mostly = 2 * groups["limit"] >= sum(groups.values())
    return "limit" if mostly else max((g for g in groups if g != "limit"), key=lambda g: groups[g])


def _bound(waterfall: Waterfall) -> str:
    return "mostly arithmetic" if waterfall.limits.compute > waterfall.limits.memory else "mostly memory bandwidth"


def _host_cause(waterfall: Waterfall) -> str:
    """Returns what the host does meanwhile, where one cause explains all the waiting, or most of it."""
    launch, blocked = waterfall.launch_gap_ns / waterfall.host_wait_ns, waterfall.blocked_ns / waterfall.host_wait_ns
    if launch >= MOSTLY:
        return " for the host to launch the next kernel" if launch >= NEARLY else " for the host, mostly for its next launch"
    if blocked >= MOSTLY:
        return f"{'' if blocked >= NEARLY else ', mostly'} while the host is blocked in runtime calls"
    late = waterfall.graph_start_ns / waterfall.host_wait_ns
    if late >= MOSTLY:
        return f"{'' if late >= NEARLY else ', mostly'} for a graph to start after its launch"
    if 2 * waterfall.device_wait_ns >= waterfall.host_wait_ns:
        return ", mostly for something other than the host"
    return " for the host"


def _work_words(capture: Capture, waterfall: Waterfall, share: str, limited: bool) -> str:
    if limited:
        over = {k: waterfall.kind_ns[k] - waterfall.limits.by_kind[k] for k in KINDS} | {"unmodelled": float(waterfall.unmodelled_ns)}
        return f"Time above the limits takes {share}{_most(over)}"
    return f"Kernels take {share}{_most({k: float(v) for k, v in kernel_time(capture, waterfall).items()})}"


def _most(time: dict[str, float]) -> str:
    """Returns `, most of it convolutions` where one kind has more than half, else `, convolutions the largest part`."""
    whole = sum(max(v, 0.0) for v in time.values())
    best = max(time, key=lambda k: time[k])
    if whole <= 0 or best == "other":
        return ""
    noun = KINDS[best][1] if best in KINDS else "work without a cost model"
    return f", most of it {noun}" if 2 * time[best] > whole else f", {noun} the largest part"


def _largest_of_host(waterfall: Waterfall) -> tuple[str, str, float]:
    of = "the step" if waterfall.stepped else "the recording"
    limited = shown_ratio(waterfall) is not None
    least = waterfall.sol_ns if limited else 0.0
    work = sum(waterfall.kind_ns.values()) + waterfall.unmodelled_ns
    groups = {
        "input": float(waterfall.input_wait_ns),
        "outside": float(waterfall.outside_ns),
        "framework": float(waterfall.framework_ns),
        "work": work - least,
        "limit": least,
    }
    if not len(waterfall.work.ops):
        return "", f"No {'iteration was sampled' if waterfall.work.from_ledger else 'operator was recorded in it'}", 0.0
    group = _first(groups)
    share = f"{percent(groups[group] / waterfall.total_ns)} of {of}"
    over = {k: waterfall.kind_ns[k] - (waterfall.limits.by_kind[k] if limited else 0.0) for k in KINDS}
    over["unmodelled"] = float(waterfall.unmodelled_ns)
    words = {
        "input": f"Loading of batches takes {share}",
        "outside": f"For {share} no operator runs: it is Python, a range such as communication on the host, or was not recorded",
        "framework": f"Operators that only call others take {share}",
        "work": f"{'Time above the limits takes' if limited else 'Operators take'} {share}{_most(over)}",
        "limit": f"The host's own limits, {_bound(waterfall)}, take {share}",
    }
    return group, words[group], groups[group]


def percent(value: float) -> str:
    """Returns a share in bold and whole percent, with one decimal below ten; `over 99 %` where all but a rest would read as all."""
    if 0.995 <= value < 1:
        return f"over **99{NARROW}%**"
    return "**" + number(100 * value, 0 if value >= 0.0995 else 1) + NARROW + "%**"
