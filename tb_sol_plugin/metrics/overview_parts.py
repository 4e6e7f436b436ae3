"""The parts of the overview's waterfall: what the step takes, what it could lose, and what stays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.breakdown import COMPUTATION, classes, device_word
from tb_sol_plugin.metrics.kernels import kernel_classes
from tb_sol_plugin.metrics.waterfall import NO_KIND, Waterfall
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import codes
from tb_sol_plugin.units import human

PLAIN: Final = 0.95
"""Part of the device's work with a cost model from which the ratio is shown plain."""
LEAST: Final = 0.80
"""The same from which it is shown at all."""
SMALL: Final = 0.01
"""Parts of the step below which kinds of work are summed up in one bar."""

KINDS: Final = {
    "gemm": ("GEMM", "matrix products"),
    "attention": ("Attention", "attention"),
    "conv": ("Convolution", "convolutions"),
    "norm": ("Softmax, norm", "norms and softmax"),
    "elementwise": ("Elementwise", "elementwise work"),
    "other": ("Other operators", "other operators"),
}
"""Kind of work: the words of its bar, and of a sentence."""


@dataclass(frozen=True)
class Part:
    """One bar. ns: per step, negative where work ran faster than its limit. color: member of the palette. meaning: one sentence."""

    name: str
    ns: float
    color: str
    meaning: str = ""


@dataclass(frozen=True)
class Parts:
    """start = sum of losses + sum of stays. stays: the limits that are left, empty where none are known."""

    start: Part
    losses: list[Part]
    stays: list[Part]

    @property
    def all(self) -> list[Part]:
        """In the order of the bars."""
        return [self.start, *self.losses, *self.stays]


def shown_ratio(fall: Waterfall) -> float | None:
    """The speed of light over the measured time, None where a cost model covers too little of the work."""
    share = fall.modelled_kernel_share
    return fall.ratio if share is not None and share >= LEAST else None


def parts_of(capture: Capture, fall: Waterfall) -> Parts:
    """The waterfall's bars, per step; parts without time are left out."""
    each = fall.steps
    start = Part("Step time, measured" if fall.stepped else "Recording, measured", fall.total_ns / each, "bar-ink", "The measured time.")
    if not fall.work.timed:
        return _unsplit(fall, start)
    waiting = _counted_parts(fall) if fall.work.from_ledger else _host_parts(fall) if fall.work.by_host_time else _waits(capture, fall)
    work = _above_limit(fall, start.ns) if fall.has_limits else _by_kind(capture, fall, start.ns)
    losses = [p for p in (*waiting, *work) if p.ns != 0]
    return Parts(start, losses, _stays(fall) if fall.has_limits else [])


def _waits(capture: Capture, fall: Waterfall) -> list[Part]:
    unit, each = device_word(capture), fall.steps
    unit = unit[:1].upper() + unit[1:]
    return [
        Part(f"{unit} waits for input", fall.input_wait_ns / each, "idle", "Nothing runs while a batch is fetched."),
        *_host_waits(unit, fall),
        Part("Exposed communication", fall.exposed_communication_ns / each, "communication", "Communication runs and nothing computes."),
        Part("Exposed copies", fall.exposed_copies_ns / each, "memcpy", "Only copies run."),
    ]


def _host_waits(unit: str, fall: Waterfall) -> list[Part]:
    """Idle time by cause; causes too small to see are one part with the rest."""
    each, least = fall.steps, SMALL * fall.total_ns
    causes = (
        ("Launch gaps", fall.launch_gap_ns, "Nothing runs while the host prepares the next launch, and from one kernel to the next."),
        ("Host blocked", fall.blocked_ns, "Nothing runs after the host waited for the device, or while it is in runtime calls."),
    )
    seen = [(name, ns, meaning) for name, ns, meaning in causes if ns >= least]
    rest = fall.host_wait_ns - sum(ns for _, ns, _ in seen)
    name, meaning = (
        (f"{unit} waits otherwise", "Nothing runs while the host does something else.")
        if seen
        else (f"{unit} waits for the host", "Nothing runs and no batch is fetched.")
    )
    return [*(Part(n, ns / each, "idle", m) for n, ns, m in seen), Part(name, rest / each, "idle", meaning)]


def _unsplit(fall: Waterfall, start: Part) -> Parts:
    """Of a step whose calls have no times: the limits, and all the rest."""
    stays = _stays(fall) if fall.has_limits else []
    rest = start.ns - sum(p.ns for p in stays)
    meaning = "Time above the limits, waits and communication: single calls were not timed. A profiler trace tells them apart."
    return Parts(start, [Part("Above limit or waiting" if stays else "Step", rest, "idle", meaning)], stays)


def _counted_parts(fall: Waterfall) -> list[Part]:
    """Of a SOL capture of a CPU: what is in no operator, and communication."""
    each, rest = fall.steps, fall.outside_ns
    name, meaning = "Outside operators", "Python, dispatch, and what the recorder does not time."
    if rest < 0:
        name, meaning = (
            "Operators beyond the step",
            "Their times add up to more than the step: several threads at once, or slower while they are counted.",
        )
    communication = Part("Communication", fall.exposed_communication_ns / each, "communication", "Collectives, by the wall clock.")
    return [Part(name, rest / each, "idle", meaning), communication]


def _host_parts(fall: Waterfall) -> list[Part]:
    each = fall.steps
    return [
        Part("Loading of batches", fall.input_wait_ns / each, "host", "A batch is fetched."),
        Part("Outside operators", fall.outside_ns / each, "idle", "No operator runs: Python, or nothing that was recorded."),
        Part("Framework", fall.framework_ns / each, "host", "Inside operators that only call others: dispatch and autograd."),
    ]


def _above_limit(fall: Waterfall, whole: float) -> list[Part]:
    """Work above its limit by kind, the largest first; kinds too small to see are one part."""
    each = fall.steps
    kinds = []
    for kind, (word, _) in KINDS.items():
        time = fall.kind_ns[kind] - fall.again_ns[kind]
        least = fall.limits.by_kind[kind] - fall.limits.again_by_kind[kind]
        over = (time - least) / each
        meaning = f"{human(round(time / each), 'ns')} measured, {human(round(least / each), 'ns')} at the limit."
        name = f"{word} above limit" if over >= 0 else f"{word} below limit"
        kinds.append(
            Part(name, over, kind, meaning if over >= 0 else f"{meaning} Data stayed in a cache, or the limit or the work is wrong.")
        )
    again = sum(fall.again_ns.values())
    kinds.append(
        Part(
            "Recomputed work above limit",
            (again - fall.limits.again) / each,
            "other",
            f"Forward work that runs again in the backward pass: {human(round(again / each), 'ns')} measured, "
            f"{human(round(fall.limits.again / each), 'ns')} at the limit.",
        )
    )
    kinds.append(Part("No cost model", fall.unmodelled_ns / each, "host", "Work whose limit is not known."))
    large = [p for p in kinds if abs(p.ns) >= SMALL * whole]
    small = [p for p in kinds if abs(p.ns) < SMALL * whole and p.ns]
    large.sort(key=lambda p: (p.name == "No cost model", -p.ns))
    if len(small) == 1:
        return [*large, *small]
    rest = sum(p.ns for p in small)
    return [*large, Part("Small kinds above limit", rest, "other", "Kinds of work, and work without a limit, below 1 % of the step each.")]


def _by_kind(capture: Capture, fall: Waterfall, whole: float) -> list[Part]:
    """Work without limits by kind: that of the operators' models on the host, on a device by the names of its kernels."""
    on_host = fall.work.by_host_time
    time, word = (dict(fall.kind_ns), "") if on_host else (kernel_time(capture, fall), " kernels")
    meaning = "By the cost models of the operators." if on_host else "By the cost models of the operators, else by the kernels' names."
    parts = [Part(f"{KINDS[k][0]}{word}", ns / fall.steps, k, meaning) for k, ns in time.items() if k != "other"]
    large = sorted((p for p in parts if p.ns >= SMALL * whole), key=lambda p: -p.ns)
    rest = time["other"] / fall.steps + sum(p.ns for p in parts if p not in large)
    other = Part("Other operators" if on_host else "Other kernels", rest, "other", "Kinds of work that are small, or unknown by name.")
    unknown = Part("Operators without a model", fall.unmodelled_ns / fall.steps if on_host else 0.0, "host", "Whose work is not known.")
    return [*large, other, unknown]


def kernel_time(capture: Capture, fall: Waterfall) -> dict[str, int]:
    """Exclusive device time of computation by kind of work: that of the cost model, else that of the kernel's name."""
    rows = np.flatnonzero((fall.own > 0) & ((fall.kind != NO_KIND) | (classes(capture) == COMPUTATION)))
    if not len(rows):
        return dict.fromkeys(KINDS, 0)
    named = [k if k in KINDS else "other" for k in kernel_classes(capture)["kind"]]
    by_name = np.array([list(KINDS).index(k) for k in [*named, "other"]], np.int64)[codes(capture.device["name"])[rows]]
    kind = np.where(fall.kind[rows] != NO_KIND, fall.kind[rows], by_name)
    total = np.zeros(len(KINDS), np.int64)
    np.add.at(total, kind, fall.own[rows])
    return dict(zip(KINDS, total.tolist(), strict=True))


def _stays(fall: Waterfall) -> list[Part]:
    each, limits = fall.steps, fall.limits
    head = "Speed of light" if shown_ratio(fall) is not None else "Limit of modelled work"
    parts = [
        Part(f"{head}, compute-bound", limits.compute / each, "accent", "Limits of work that the arithmetic bounds."),
        Part(f"{head}, memory-bound", limits.memory / each, "accent-line", "Limits of work that the memory bandwidth bounds."),
        Part(f"{head}, recomputed", limits.again / each, "ink-3", "Limits of forward work that runs again in the backward pass."),
    ]
    return [p for p in parts if p.ns > 0] or [Part(head, 0.0, "accent", "")]
