"""Facts about the device and the run, in the order in which a reader looks for them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tb_sol_plugin.devices.figures import ORIGINS
from tb_sol_plugin.devices.limits import devices_in_use
from tb_sol_plugin.devices.spec import ACHIEVABLE_COLUMNS, MATRIX_COLUMNS, VECTOR_COLUMNS, DeviceSpec
from tb_sol_plugin.metrics import source
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.report import Mark, Scalar

HOW_FOUND = {
    "derived": "derived from its units and clock",
    "memory": "device table by name and memory",
    "file": "device file",
    "measured": "measured",
    "capture": "the SOL capture, as in use while recording",
}
"""How the limits of a device were found, for a reader; by name where nothing else is said."""
FLAG_WORDS = {
    "record_shapes": "shapes",
    "with_stack": "stacks",
    "profile_memory": "memory",
    "with_flops": "FLOPs",
    "with_modules": "modules",
}


@dataclass
class Found:
    """Values in order, with their units, labels, notes, marks and what a hint adds to the definition."""

    values: dict[str, Scalar] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    docs: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, label: str, value: Scalar, unit: str = "", note: str = "", mark: Mark | None = None, more: str = "") -> None:
        """A fact; an unknown one (None or empty text) is left out."""
        if value is None or value == "":
            return
        self.values[name], self.labels[name], self.units[name] = value, label, unit
        if note:
            self.notes[name] = note
        if mark is not None:
            self.marks[name] = mark
        if more:
            self.docs[name] = f"\n{more}"


def device_and_run(capture: Capture, spec: DeviceSpec | None, ops: pd.DataFrame, chosen: bool) -> Found:
    """Device, limits, versions, what was recorded, counts. chosen: the reader picked the limits."""
    out = Found()
    facts = capture.facts
    used = devices_in_use(capture)
    names = list(dict.fromkeys(d.name or f"device {d.id}" for d in used))
    many = f"{len(used)} × " if len(used) > 1 else ""
    out.add("gpu", "GPU" if facts.vendor in ("nvidia", "amd", "xpu") else "Device", many + ", ".join(names) if names else None)
    if spec is not None and spec.vendor == "cpu":
        out.add("gpu", "CPU", spec.name)
    if spec is not None:
        _limits(out, spec, ops, chosen)
    versions = facts.versions
    runtime = [
        f"{label} {_hip(versions[key]) if label == 'HIP' else versions[key]}"
        for key, label in (("cuda_runtime_version", "CUDA"), ("hip_runtime_version", "HIP"), ("cuda_driver_version", "driver"))
        if versions.get(key)
    ]
    out.add("runtime", "Runtime", ", ".join(runtime))
    torch = versions.get("torch_version") or versions.get("pytorch_version") or _torch(facts.metadata)
    out.add("framework", "PyTorch", torch)
    if facts.rank is not None or facts.world_size:
        out.add("rank", "Rank", _rank(facts.rank, facts.world_size), note=facts.backend)
    _model(out, facts.metadata)
    recorded = [word for flag, word in FLAG_WORDS.items() if facts.flags.get(flag)]
    out.add("recorded", "Recorded", ", ".join(recorded))
    low, high = facts.extent_ns
    profile = source.is_profile(capture)
    out.add("window_ns", "Time recorded", None if profile else high - low, "ns")
    out.add("events", "Records" if source.is_capture(capture) else "Frames" if profile else "Events", facts.total_events, "count")
    if len(capture.device):
        out.add("device_events", "Device events", len(capture.device), "count")
    odd = len(capture.tables["issues"])
    out.add("oddities", "Health", odd, "count", "nothing odd" if odd == 0 else "kind of oddity" if odd == 1 else "kinds of oddities")
    return out


def _model(out: Found, metadata: dict[str, str]) -> None:
    """What a SOL capture says of the model."""
    out.add("model", "Model", metadata.get("model.class"), note="compiled" if metadata.get("model.compiled") == "true" else "")
    count = metadata.get("model.parameters", "")
    out.add("parameters", "Parameters", int(count) if count.isdigit() else None, "count")


def _limits(out: Found, spec: DeviceSpec, ops: pd.DataFrame, chosen: bool) -> None:
    origin = "chosen" if chosen else HOW_FOUND.get(spec.method, "device table")
    out.add("limits_from", "Limits from", f"{origin}, {spec.name if spec.key == 'unknown' else spec.key}", more=spec.notes)
    dtype = _main_type(spec, ops)
    rates = (
        ("matrix_peak", f"{dtype} {spec.density}", spec.matrix_peak(dtype), "FLOP/s", MATRIX_COLUMNS.get(dtype, "")),
        ("achievable_peak", f"{dtype} achievable", spec.achievable(dtype), "FLOP/s", _achievable_column(spec, dtype)),
        ("vector_peak", "fp32 vector", spec.vector_peak("fp32"), "FLOP/s", VECTOR_COLUMNS["fp32"]),
        ("memory_bandwidth", "Memory bandwidth", spec.memory_bandwidth, "B/s", "mem_bw_gb_per_s"),
        ("link_bandwidth", "PCIe, one way", spec.pcie_bytes_per_s, "B/s", "pcie_gen"),
    )
    for name, label, value, unit, column in rates:
        known = spec.provenance.get(column, "derived" if spec.method == "derived" else "")
        unsure = column in spec.unverified or known == "unverified"
        mark = Mark("unverified", ORIGINS["unverified"]) if unsure else None
        if mark is None and known == "derived" and spec.method == "derived":
            mark = Mark("estimated", ORIGINS["derived"])
        out.add(name, label, value, unit, mark=mark, more=ORIGINS.get(known, "").capitalize())


def _achievable_column(spec: DeviceSpec, dtype: str) -> str:
    """The column of the table that the achievable rate of a type is from: BF16's where the type has none of its own."""
    return ACHIEVABLE_COLUMNS.get(dtype if dtype in spec.achievable_rates else "bf16", "")


def _main_type(spec: DeviceSpec, ops: pd.DataFrame) -> str:
    """The type that holds most of the matrix work; without any, the first of BF16, FP16 and FP32 that the device has a rate for."""
    flop = np.nan_to_num(ops["flop"].to_numpy(dtype=np.float64))
    total = np.bincount(ops["dtype"].cat.codes.to_numpy() + 1, flop, minlength=1)[1:] if len(ops) else np.zeros(0)
    if total.sum() > 0:
        return str(ops["dtype"].cat.categories[int(total.argmax())])
    return next((d for d in ("bf16", "fp16", "fp32") if spec.matrix_peak(d)), "")


def _hip(version: str) -> str:
    """`6.4.43483` of HIP's number 60443483 (major × 10⁷ + minor × 10⁵ + patch, as hip_version.h writes it); other text as it is."""
    if not version.isdigit() or int(version) < 10_000_000:
        return version
    number = int(version)
    return f"{number // 10_000_000}.{number // 100_000 % 100}.{number % 100_000}"


def _rank(rank: int | None, world: int | None) -> str:
    """`3 of 16`, with what is known."""
    if rank is None:
        return f"unknown, of {world}"
    return f"{rank} of {world}" if world else str(rank)


def _torch(metadata: dict[str, str]) -> str:
    """A torch version among the allowed metadata."""
    for key, value in metadata.items():
        last = key.rsplit(".", 1)[-1]
        if last in ("torch_version", "pytorch_version") or key.endswith("packages.torch"):
            return value
    return ""
