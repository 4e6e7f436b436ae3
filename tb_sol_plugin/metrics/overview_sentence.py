"""The answer of the overview in plain words: how long, how long at the limits, what limits it, what the first fix would save."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.devices.limits import why_no_limits
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.breakdown import device_word
from tb_sol_plugin.metrics.levers import Lever
from tb_sol_plugin.metrics.overview_parts import KINDS, LEAST, PLAIN, kernel_time, shown_ratio
from tb_sol_plugin.metrics.scope import Scope
from tb_sol_plugin.metrics.source import source_of
from tb_sol_plugin.metrics.waterfall import Waterfall, windows_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.units import NARROW, digits, human, number, scale_of

MOSTLY: Final = 0.6
"""Part of a group from which one member stands for it in a sentence."""
WRONG: Final = "data stayed in a cache, or the limits or the work are wrong"
"""Why a measurement can be below its limit."""
NEARLY: Final = 0.9
"""Part of a group from which one member is the group."""
MEASURE: Final = "tb-sol doctor --measure"


def sentence(capture: Capture, part: Scope, fall: Waterfall, found: list[Lever]) -> str:
    """Two or three sentences, the numbers in bold. found: levers, the largest saving first."""
    ratio = shown_ratio(fall)
    if not fall.total_ns:
        return "Nothing in this recording has a length."
    if ratio is not None and ratio > TOLERATED:
        return f"{_times(capture, part, fall)} It ran faster than its limits: {WRONG}."
    said = [_times(capture, part, fall), _limited(capture, fall, found), _no_limits(capture, fall)]
    return " ".join(s for s in said if s)


def subject(capture: Capture, part: Scope, fall: Waterfall) -> str:
    """What takes the time: `Step 6`, `A step` (the mean of several), `The recording`."""
    if not fall.stepped:
        return "The recording"
    _, rows = windows_of(capture, part)
    return f"Step {int(capture.steps['number'].to_numpy()[rows[0]])}" if len(rows) == 1 else "A step"


def a_device(spec: DeviceSpec) -> str:
    """`an H100 SXM`, `a V100 SXM2 32 GB`, `this CPU`."""
    if spec.vendor == "cpu":
        return "this CPU"
    first = spec.name[:1].upper()
    spelled = not spec.name[1:2].islower()
    return f"{'an' if first in ('AEFHILMNORSX' if spelled else 'AEIO') else 'a'} {spec.name}"


def why_no_ratio(capture: Capture, fall: Waterfall) -> str:
    """Why there is no speed of light; "" where there is one."""
    if shown_ratio(fall) is not None:
        return ""
    spec = fall.work.spec
    if fall.work.by_host_time and spec is None and not capture.facts.devices:
        host = capture.facts.host_name
        return f"the limits of {host or 'this CPU'} are not known; `{MEASURE}`{' run there' if host else ''} measures them"
    if spec is None:
        return why_no_limits(capture)
    if fall.work.by_host_time and spec.vendor != "cpu":
        return f"this work ran on a CPU, and {spec.name} are the limits of another kind of device"
    if spec.memory_bandwidth is None:
        return f"the memory bandwidth of {a_device(spec)} is not known"
    if capture.missing("shapes") is not None and source_of(capture) == "trace":
        return "recorded without shapes"
    if not fall.has_limits:
        return "no operator carries the shapes that a cost model needs"
    share = human(fall.modelled_kernel_share, "ratio")
    return f"a cost model covers {share} of the work, less than the {100 * LEAST:.0f}{NARROW}% that a ratio needs"


def _no_limits(capture: Capture, fall: Waterfall) -> str:
    why = why_no_ratio(capture, fall)
    return f"No speed of light: {why}." if why else ""


def _times(capture: Capture, part: Scope, fall: Waterfall) -> str:
    name = subject(capture, part, fall)
    step = human(round(fall.total_ns / fall.steps), "ns")
    spec = fall.work.spec
    if shown_ratio(fall) is None or spec is None:
        if fall.work.by_host_time:
            return f"{name} takes **{step}** on the host."
        if not fall.work.timed:
            return f"{name} takes **{step}**."
        busy = human(fall.busy_ns / fall.total_ns, "ratio")
        return f"{name} takes **{step}**; the {device_word(capture)} is busy for **{busy}** of it."
    step, least = same_unit(fall.total_ns / fall.steps, fall.sol_ns / fall.steps)
    about = "" if (fall.modelled_kernel_share or 0) >= PLAIN and not fall.work.takes_counted else "about "
    return f"{name} takes **{step}**; the same work at the limits of {a_device(spec)} takes {about}**{least}**."


def same_unit(long_ns: float, short_ns: float) -> tuple[str, str]:
    """Two times in one unit where the longer one stays below 10 000 of it."""
    factor, unit = scale_of(max(short_ns, 1.0), "ns")
    if not short_ns or long_ns / factor >= 1e4:
        return human(round(long_ns), "ns"), human(round(short_ns), "ns")
    texts = [number(v / factor, digits(v / factor)) + NARROW + unit for v in (long_ns, short_ns)]
    return texts[0], texts[1]


# -- what limits it -------------------------------------------------------------------------------------------


GROUPS: Final = {
    "input_wait": "input",
    "host_wait": "host",
    "host_sync": "host",
    "launch_bound": "host",
    "exposed_communication": "communication",
    "exposed_copies": "copies",
}
"""Rule of a finding that needs no more words where its group has just been named; any other finding says its title."""


def _limited(capture: Capture, fall: Waterfall, found: list[Lever]) -> str:
    """The largest group of parts, and what the first fix saves at most."""
    if not fall.work.timed:
        return ""
    group, words, time = _largest(capture, fall)
    if not found:
        return f"{words}."
    first = found[0]
    saving = human(first.saving_ns, "ns")
    if GROUPS.get(first.rule) == group:
        fixing = "fixing that" if first.saving_ns * fall.steps >= 0.9 * time else "the first fix"
        return f"{words}; {fixing} saves at most **{saving}**."
    return f"{words}. The first fix saves at most **{saving}**: {_lower(first.title)}."


def _lower(title: str) -> str:
    """A title inside a sentence: its first letter small where the first word is a plain one."""
    return title[:1].lower() + title[1:] if title[1:2].islower() or title[1:2] == " " else title


def _largest(capture: Capture, fall: Waterfall) -> tuple[str, str, float]:
    """(group, words, ns) of the largest group of parts."""
    if fall.work.by_host_time:
        return _largest_of_host(fall)
    unit = device_word(capture)
    of = "the step" if fall.stepped else "the recording"
    least = fall.sol_ns if shown_ratio(fall) is not None else 0.0
    groups = {
        "input": float(fall.input_wait_ns),
        "host": float(fall.host_wait_ns),
        "communication": float(fall.exposed_communication_ns),
        "copies": float(fall.exposed_copies_ns),
        "work": sum(fall.kind_ns.values()) + fall.unmodelled_ns - least,
        "limit": least,
    }
    group = _first(groups)
    share = f"{percent(groups[group] / fall.total_ns)} of {of}"
    words = {
        "input": f"The {unit} waits {share} for input",
        "host": f"The {unit} waits {share}{_host_cause(fall) if fall.host_wait_ns else ''}",
        "communication": f"For {share} the {unit} only communicates",
        "copies": f"For {share} the {unit} only copies",
        "work": _work_words(capture, fall, share, least > 0),
        "limit": f"The {unit}'s own limits, {_bound(fall)}, take {share}",
    }
    return group, words[group], groups[group]


def _first(groups: dict[str, float]) -> str:
    """The largest group; the limits themselves only where they are most of the time."""
    mostly = 2 * groups["limit"] >= sum(groups.values())
    return "limit" if mostly else max((g for g in groups if g != "limit"), key=lambda g: groups[g])


def _bound(fall: Waterfall) -> str:
    return "mostly arithmetic" if fall.limits.compute > fall.limits.memory else "mostly memory bandwidth"


def _host_cause(fall: Waterfall) -> str:
    """What the host does meanwhile, where one cause stands for all the waiting, or for most of it."""
    launch, blocked = fall.launch_gap_ns / fall.host_wait_ns, fall.blocked_ns / fall.host_wait_ns
    if launch >= MOSTLY:
        return " for the host to launch the next kernel" if launch >= NEARLY else " for the host, mostly for its next launch"
    if blocked >= MOSTLY:
        return f"{'' if blocked >= NEARLY else ', mostly'} while the host is blocked in runtime calls"
    return " for the host"


def _work_words(capture: Capture, fall: Waterfall, share: str, limited: bool) -> str:
    if limited:
        over = {k: fall.kind_ns[k] - fall.limits.by_kind[k] for k in KINDS} | {"unmodelled": float(fall.unmodelled_ns)}
        return f"Time above the limits takes {share}{_most(over)}"
    return f"Kernels take {share}{_most({k: float(v) for k, v in kernel_time(capture, fall).items()})}"


def _most(time: dict[str, float]) -> str:
    """`, most of it convolutions` where one kind has more than half, else `, convolutions the largest part`."""
    whole = sum(max(v, 0.0) for v in time.values())
    best = max(time, key=lambda k: time[k])
    if whole <= 0 or best == "other":
        return ""
    noun = KINDS[best][1] if best in KINDS else "work without a cost model"
    return f", most of it {noun}" if 2 * time[best] > whole else f", {noun} the largest part"


def _largest_of_host(fall: Waterfall) -> tuple[str, str, float]:
    of = "the step" if fall.stepped else "the recording"
    limited = shown_ratio(fall) is not None
    least = fall.sol_ns if limited else 0.0
    work = sum(fall.kind_ns.values()) + fall.unmodelled_ns
    groups = {
        "input": float(fall.input_wait_ns),
        "outside": float(fall.outside_ns),
        "framework": float(fall.framework_ns),
        "work": work - least,
        "limit": least,
    }
    if not len(fall.work.ops):
        return "", "No operator was recorded in it", 0.0
    group = _first(groups)
    share = f"{percent(groups[group] / fall.total_ns)} of {of}"
    over = {k: fall.kind_ns[k] - (fall.limits.by_kind[k] if limited else 0.0) for k in KINDS} | {"unmodelled": float(fall.unmodelled_ns)}
    words = {
        "input": f"Loading of batches takes {share}",
        "outside": f"For {share} no operator runs: it is Python, or was not recorded",
        "framework": f"Operators that only call others take {share}",
        "work": f"{'Time above the limits takes' if limited else 'Operators take'} {share}{_most(over)}",
        "limit": f"The host's own limits, {_bound(fall)}, take {share}",
    }
    return group, words[group], groups[group]


def percent(value: float) -> str:
    """A share in bold and whole percent, with one decimal below ten; `over 99 %` where all but a rest would read as all."""
    if 0.995 <= value < 1:
        return f"over **99{NARROW}%**"
    return "**" + number(100 * value, 0 if value >= 0.0995 else 1) + NARROW + "%**"
