"""Computes the parts of the overview's waterfall: what the step takes, what it could lose, and what stays."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.devices.limits import devices_in_use
from tb_sol_plugin.devices.rates import ORIGINS
from tb_sol_plugin.devices.spec import ACHIEVABLE_COLUMNS, MATRIX_COLUMNS, VECTOR_COLUMNS, DeviceSpec
from tb_sol_plugin.metrics import kept_with
from tb_sol_plugin.metrics.report.notes import oddities
from tb_sol_plugin.metrics.time import scope
from tb_sol_plugin.metrics.time.breakdown import COMPUTATION, classes, device_word
from tb_sol_plugin.metrics.time.kernels import kinds_at
from tb_sol_plugin.metrics.time.waterfall import NO_KIND, SCALED, Waterfall
from tb_sol_plugin.metrics.work.sums import performed
from tb_sol_plugin.model.capture import Capture, recorded_ns
from tb_sol_plugin.model.report import Mark, Scalar
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import capitalized, human

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
            "Graph launch latency",
            waterfall.graph_start_ns,
            "Nothing runs between the launch of a graph and its first event: it is uploaded, or the profiler holds it up.",
        ),
        (
            f"{unit} waits, not for the host",
            waterfall.device_wait_ns - waterfall.graph_start_ns,
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
    kind[unnamed] = kinds_at(capture, rows[unnamed], places)
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
    done = performed(ops)
    total = kept_with(ops, "overview.flop_by_type", lambda: np.bincount(done.type, done.flop, minlength=len(done.types))[:-1])
    if total.sum() > 0:
        return done.types[int(total.argmax())]
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
