"""Computes the parts of the overview's waterfall: what the step takes, what it could lose, and what stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cost.roofline import TOLERATED
from tb_sol_plugin.devices.limits import devices_in_use, why_no_limits
from tb_sol_plugin.devices.rates import ORIGINS
from tb_sol_plugin.devices.spec import ACHIEVABLE_COLUMNS, MATRIX_COLUMNS, VECTOR_COLUMNS, DeviceSpec
from tb_sol_plugin.metrics.report.notes import oddities
from tb_sol_plugin.metrics.rules.engine import Finding
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.breakdown import COMPUTATION, classes, device_word
from tb_sol_plugin.metrics.time.kernels import kinds_at
from tb_sol_plugin.metrics.time.scope import Scope, source_of
from tb_sol_plugin.metrics.time.waterfall import NO_KIND, SCALED, Waterfall, windows_of
from tb_sol_plugin.model.capture import Capture, recorded_ns
from tb_sol_plugin.model.report import Mark, Scalar
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import NARROW, capitalized, human, number, side_by_side

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
    """The bars of the waterfall, from the measured time down to the limits.

    start = sum of losses + sum of stays. stays: the limits that are left, empty where none are known.
    """

    start: Part
    losses: list[Part]
    stays: list[Part]

    @property
    def all(self) -> list[Part]:
        """In the order of the bars."""
        return [self.start, *self.losses, *self.stays]


def shown_ratio(waterfall: Waterfall) -> float | None:
    """Returns the speed of light over the measured time, None where a cost model covers too little of the work, or the work did not run."""
    if waterfall.captured:
        return None
    share = waterfall.modeled_kernel_share
    return waterfall.ratio if share is not None and share >= LEAST else None


def parts_of(capture: Capture, waterfall: Waterfall) -> Parts:
    """Returns the waterfall's bars, per step; parts without time are left out."""
    each = waterfall.steps
    title = "Step time, measured" if waterfall.stepped else "Recording, measured"
    start = Part(title, waterfall.total_ns / each, "bar-ink", "The measured time.")
    if not waterfall.work.timed:
        return _unsplit(waterfall, start)
    if waterfall.work.from_ledger:
        waiting = _counted_parts(waterfall)
    else:
        waiting = _host_parts(waterfall) if waterfall.work.by_host_time else _waits(capture, waterfall)
    work = _above_limit(waterfall, start.ns) if waterfall.has_limits else _by_kind(capture, waterfall, start.ns)
    losses = [p for p in (*waiting, *work) if p.ns != 0]
    return Parts(start, losses, _stays(waterfall) if waterfall.has_limits else [])


def _waits(capture: Capture, waterfall: Waterfall) -> list[Part]:
    unit, each = device_word(capture), waterfall.steps
    unit = capitalized(unit)
    return [
        Part(f"{unit} waits for input", waterfall.input_wait_ns / each, "idle", "Nothing runs while a batch is fetched."),
        *_host_waits(unit, waterfall),
        Part(
            "Exposed communication",
            waterfall.exposed_communication_ns / each,
            "communication",
            "Communication runs and nothing computes.",
        ),
        Part("Exposed copies", waterfall.exposed_copies_ns / each, "memcpy", "Only copies run."),
    ]


def _host_waits(unit: str, waterfall: Waterfall) -> list[Part]:
    """Returns idle time by cause; causes too small to see are one part with the rest."""
    each, least = waterfall.steps, SMALL * waterfall.total_ns
    causes = (
        ("Launch gaps", waterfall.launch_gap_ns, "Nothing runs while the host prepares the next launch, and from one kernel to the next."),
        ("Host blocked", waterfall.blocked_ns, "Nothing runs after the host waited for the device, or while it is in runtime calls."),
        (
            f"{unit} waits, not for the host",
            waterfall.device_wait_ns,
            "The next work was launched before, or its launch is not recorded, or the profiler itself holds the host.",
        ),
    )
    seen = [(name, ns, meaning) for name, ns, meaning in causes if ns >= least]
    rest = waterfall.host_wait_ns - sum(ns for _, ns, _ in seen)
    name, meaning = (
        (f"{unit} waits otherwise", "Nothing runs while the host does something else.")
        if seen
        else (f"{unit} waits for the host", "Nothing runs and no batch is fetched.")
    )
    return [*(Part(n, ns / each, "idle", m) for n, ns, m in seen), Part(name, rest / each, "idle", meaning)]


def _unsplit(waterfall: Waterfall, start: Part) -> Parts:
    """Returns the parts of a step whose calls have no times: the limits, and all the rest."""
    stays = _stays(waterfall) if waterfall.has_limits else []
    rest = start.ns - sum(p.ns for p in stays)
    meaning = "Time above the limits, waits and communication: single calls were not timed. A profiler trace records them one by one."
    return Parts(start, [Part("Above limit or waiting" if stays else "Step", rest, "idle", meaning)], stays)


def _counted_parts(waterfall: Waterfall) -> list[Part]:
    """Returns the parts of a SOL capture of a CPU: what is in no operator, and communication."""
    each, scaled = waterfall.steps, f", {SCALED}" if waterfall.scaled else ""
    outside = f"Python, dispatch, and what the recorder does not time{scaled}."
    return [
        Part("Outside operators", waterfall.outside_ns / each, "idle", outside),
        Part("Communication", waterfall.exposed_communication_ns / each, "communication", f"Collectives, by the wall clock{scaled}."),
    ]


def _host_parts(waterfall: Waterfall) -> list[Part]:
    each = waterfall.steps
    return [
        Part("Loading of batches", waterfall.input_wait_ns / each, "host", "A batch is fetched."),
        Part("Outside operators", waterfall.outside_ns / each, "idle", "No operator runs: Python, or nothing that was recorded."),
        Part("Framework", waterfall.framework_ns / each, "host", "Inside operators that only call others: dispatch and autograd."),
    ]


def _above_limit(waterfall: Waterfall, whole: float) -> list[Part]:
    """Returns work above its limit by kind, the largest first; kinds too small to see are one part."""
    each = waterfall.steps
    kinds = []
    for kind, (word, _) in KINDS.items():
        time = waterfall.kind_ns[kind] - waterfall.again_ns[kind]
        least = waterfall.limits.by_kind[kind] - waterfall.limits.again_by_kind[kind]
        over = (time - least) / each
        meaning = f"{human(round(time / each), 'ns')} {_measured(waterfall)}, {human(round(least / each), 'ns')} at the limit."
        name = f"{word} above limit" if over >= 0 else f"{word} below limit"
        kinds.append(
            Part(name, over, kind, meaning if over >= 0 else f"{meaning} Data stayed in a cache, or the limit or the work is wrong.")
        )
    again = sum(waterfall.again_ns.values())
    kinds.append(
        Part(
            "Recomputed work above limit",
            (again - waterfall.limits.again) / each,
            "other",
            f"Forward work that runs again in the backward pass: {human(round(again / each), 'ns')} {_measured(waterfall)}, "
            f"{human(round(waterfall.limits.again / each), 'ns')} at the limit.",
        )
    )
    kinds.append(Part("No cost model", waterfall.unmodelled_ns / each, "host", "Work whose limit is not known."))
    large = [p for p in kinds if abs(p.ns) >= SMALL * whole]
    small = [p for p in kinds if abs(p.ns) < SMALL * whole and p.ns]
    large.sort(key=lambda p: (p.name == "No cost model", -p.ns))
    if len(small) == 1:
        return [*large, *small]
    rest = sum(p.ns for p in small)
    return [*large, Part("Small kinds above limit", rest, "other", "Kinds of work, and work without a limit, below 1 % of the step each.")]


def _measured(waterfall: Waterfall) -> str:
    return SCALED if waterfall.scaled else "measured"


def _by_kind(capture: Capture, waterfall: Waterfall, whole: float) -> list[Part]:
    """Returns work without limits by kind: that of the operators' models on the host, on a device by the names of its kernels."""
    on_host = waterfall.work.by_host_time
    time, word = (dict(waterfall.kind_ns), "") if on_host else (kernel_time(capture, waterfall), " kernels")
    meaning = "By the cost models of the operators." if on_host else "By the cost models of the operators, else by the kernels' names."
    parts = [Part(f"{KINDS[k][0]}{word}", ns / waterfall.steps, k, meaning) for k, ns in time.items() if k != "other"]
    large = sorted((p for p in parts if p.ns >= SMALL * whole), key=lambda p: -p.ns)
    rest = time["other"] / waterfall.steps + sum(p.ns for p in parts if p not in large)
    other = Part("Other operators" if on_host else "Other kernels", rest, "other", "Kinds of work that are small, or unknown by name.")
    unknown_ns = waterfall.unmodelled_ns / waterfall.steps if on_host else 0.0
    unknown = Part("Operators without a model", unknown_ns, "host", "Whose work is not known.")
    return [*large, other, unknown]


def kernel_time(capture: Capture, waterfall: Waterfall) -> dict[str, int]:
    """Returns the exclusive device time of computation by kind of work: that of the cost model, else that of the kernel's name."""
    rows = np.flatnonzero((waterfall.own > 0) & ((waterfall.kind != NO_KIND) | (classes(capture) == COMPUTATION)))
    if not len(rows):
        return dict.fromkeys(KINDS, 0)
    kind, places = waterfall.kind[rows].astype(np.int64), {name: place for place, name in enumerate(KINDS)}
    unnamed = kind == NO_KIND
    kind[unnamed] = [places.get(name, places["other"]) for name in kinds_at(capture, rows[unnamed])]
    return dict(zip(KINDS, arrays.exact_sums(kind, waterfall.own[rows], len(KINDS)).tolist(), strict=True))


def _stays(waterfall: Waterfall) -> list[Part]:
    each, limits = waterfall.steps, waterfall.limits
    head = "Speed of light" if shown_ratio(waterfall) is not None else "Limit of modeled work"
    parts = [
        Part(f"{head}, compute-bound", limits.compute / each, "accent", "Limits of work that the arithmetic bounds."),
        Part(f"{head}, memory-bound", limits.memory / each, "accent-line", "Limits of work that the memory bandwidth bounds."),
        Part(f"{head}, recomputed", limits.again / each, "ink-3", "Limits of forward work that runs again in the backward pass."),
    ]
    return [p for p in parts if p.ns > 0] or [Part(head, 0.0, "accent", "")]


# -- Facts about the device and the run, in the order in which a reader needs them -------------------------------


HOW_FOUND = {
    "derived": "derived from its units and clock",
    "memory": "device table by name and memory",
    "file": "device file",
    "measured": "measured",
    "capture": "the SOL capture, as in use while recording",
}
"""How the limits of a device were found, for a reader; by name where there is no text."""
FLAG_WORDS = {
    "record_shapes": "shapes",
    "with_stack": "stacks",
    "profile_memory": "memory",
    "with_flops": "FLOPs",
    "with_modules": "modules",
}


@dataclass
class Found:
    """Values in order, with labels of their own, notes, marks and what a hint adds to the definition."""

    values: dict[str, Scalar] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    more: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, value: Scalar, *, label: str = "", note: str = "", mark: Mark | None = None, more: str = "") -> None:
        """Adds a fact; an unknown one (None or empty text) is left out. label: where it is not the usual one."""
        if value is None or value == "":
            return
        self.values[name] = value
        if label:
            self.labels[name] = label
        if note:
            self.notes[name] = note
        if mark is not None:
            self.marks[name] = mark
        if more:
            self.more[name] = more


def device_and_run(capture: Capture, spec: DeviceSpec | None, ops: pd.DataFrame, chosen: bool) -> Found:
    """Returns the facts about device, limits, versions, what was recorded, counts. chosen: the reader picked the limits."""
    out = Found()
    facts = capture.facts
    used = devices_in_use(capture)
    names = list(dict.fromkeys(d.name or f"device {d.id}" for d in used))
    many = f"{len(used)} × " if len(used) > 1 else ""
    kind = "GPU" if facts.vendor in ("nvidia", "amd", "xpu") else "Device"
    out.add("gpu", many + ", ".join(names) if names else None, label=kind)
    if spec is not None and spec.vendor == "cpu":
        out.add("gpu", spec.name, label="CPU")
    if spec is not None:
        _limits(out, spec, ops, chosen)
    versions = facts.versions
    runtime = [
        f"{label} {_hip(versions[key]) if label == 'HIP' else versions[key]}"
        for key, label in (("cuda_runtime_version", "CUDA"), ("hip_runtime_version", "HIP"), ("cuda_driver_version", "driver"))
        if versions.get(key)
    ]
    out.add("runtime", ", ".join(runtime))
    torch = versions.get("torch_version") or versions.get("pytorch_version") or _torch(facts.metadata)
    out.add("framework", torch)
    if facts.rank is not None or facts.world_size:
        out.add("rank", _rank(facts.rank, facts.world_size), note=facts.backend)
    _model(out, facts.metadata)
    recorded = [word for flag, word in FLAG_WORDS.items() if facts.flags.get(flag)]
    out.add("recorded", ", ".join(recorded))
    profile = scope.is_profile(capture)
    out.add("window_ns", None if profile else recorded_ns(capture))
    out.add("events", facts.total_events, label="Records" if scope.is_capture(capture) else "Frames" if profile else "")
    if len(capture.device):
        out.add("device_events", len(capture.device))
    odd = oddities(capture)
    out.add("oddities", odd, note="nothing odd" if odd == 0 else "kind of oddity" if odd == 1 else "kinds of oddities")
    return out


def _model(out: Found, metadata: dict[str, str]) -> None:
    """Returns what a SOL capture says of the model."""
    out.add("model", metadata.get("model.class"), note="compiled" if metadata.get("model.compiled") == "true" else "")
    count = metadata.get("model.parameters", "")
    out.add("parameters", int(count) if count.isdigit() else None)


def _limits(out: Found, spec: DeviceSpec, ops: pd.DataFrame, chosen: bool) -> None:
    origin = "chosen" if chosen else HOW_FOUND.get(spec.method, "device table")
    out.add("limits_from", f"{origin}, {spec.name if spec.key == 'unknown' else spec.key}", more=spec.notes)
    dtype = _main_type(spec, ops)
    rates = (
        ("matrix_peak", f"{dtype} {spec.density}", spec.matrix_peak(dtype), MATRIX_COLUMNS.get(dtype, "")),
        ("achievable_peak", f"{dtype} achievable", spec.achievable(dtype), _achievable_column(spec, dtype)),
        ("vector_peak", "", spec.vector_peak("fp32"), VECTOR_COLUMNS["fp32"]),
        ("memory_bandwidth", "", spec.memory_bandwidth, "mem_bw_gb_per_s"),
        ("link_bandwidth", "", spec.pcie_bytes_per_s, "pcie_gen"),
    )
    for name, label, value, column in rates:
        known = spec.provenance.get(column, "derived" if spec.method == "derived" else "")
        unsure = column in spec.unverified or known == "unverified"
        mark = Mark("unverified", ORIGINS["unverified"]) if unsure else None
        if mark is None and known == "derived" and spec.method == "derived":
            mark = Mark("estimated", ORIGINS["derived"])
        out.add(name, value, label=label, mark=mark, more=ORIGINS.get(known, "").capitalize())


def _achievable_column(spec: DeviceSpec, dtype: str) -> str:
    """Returns the column of the table that the achievable rate of a type is from: BF16's where the type has none of its own."""
    return ACHIEVABLE_COLUMNS.get(dtype if dtype in spec.achievable_rates else "bf16", "")


def _main_type(spec: DeviceSpec, ops: pd.DataFrame) -> str:
    """Returns the type that holds most of the matrix work; without any, the first of BF16, FP16 and FP32 that the device has a rate for."""
    flop = np.nan_to_num(ops["flop"].to_numpy(dtype=np.float64))
    total = np.bincount(ops["dtype"].cat.codes.to_numpy() + 1, flop, minlength=1)[1:] if len(ops) else np.zeros(0)
    if total.sum() > 0:
        return str(ops["dtype"].cat.categories[int(total.argmax())])
    return next((d for d in ("bf16", "fp16", "fp32") if spec.matrix_peak(d)), "")


def _hip(version: str) -> str:
    """Returns `6.4.43483` of HIP's number 60443483 (major × 10⁷ + minor × 10⁵ + patch, as hip_version.h writes it); other text as it is."""
    if not version.isdigit() or int(version) < 10_000_000:
        return version
    number = int(version)
    return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"


def _rank(rank: int | None, world: int | None) -> str:
    """Returns `3 of 16`, with what is known."""
    if rank is None:
        return f"unknown, of {world}"
    return f"{rank} of {world}" if world else str(rank)


def _torch(metadata: dict[str, str]) -> str:
    """Returns a torch version among the allowed metadata."""
    for key, value in metadata.items():
        last = key.rsplit(".", 1)[-1]
        if last in ("torch_version", "pytorch_version") or key.endswith("packages.torch"):
            return value
    return ""


# -- The headline of the overview -----------------------------------------------------------------------
# how long, how long at the limits, what limits it, what the first fix would save.


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
