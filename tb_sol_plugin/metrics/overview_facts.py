"""Facts about the device and the run in the order a reader looks for them, and model FLOP utilisation."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.device import DeviceSpec, devices_in_use
from tb_sol_plugin.model.report import Mark, Scalar

FLAG_WORDS = {
    "record_shapes": "shapes",
    "with_stack": "stacks",
    "profile_memory": "memory",
    "with_flops": "FLOPs",
    "with_modules": "modules",
}


def mfu(ops: pd.DataFrame, spec: DeviceSpec | None, time_ns: int) -> tuple[float | None, str]:
    """(model FLOP utilisation, the type with most matrix work): sum over types of F / P[type], over the time.

    F: matrix operations, causal-aware. P: dense matrix peak. None without a device, without matrix work or without time.
    Operations in a type without a peak are left out.
    """
    if spec is None or not len(ops) or not time_ns:
        return None, ""
    flop = ops["flop"].to_numpy(dtype=np.float64)
    by_type = pd.Series(np.nan_to_num(flop)).groupby(ops["dtype"].astype(str).to_numpy()).sum()
    seconds = 0.0
    for name, total in by_type.items():
        peak = spec.matrix_peak(str(name))
        if peak and total > 0:
            seconds += float(total) / peak
    if not seconds:
        return None, ""
    return seconds * 1e9 / time_ns, str(by_type.idxmax())


@dataclass
class Found:
    """Values in order, with their units, labels, notes and marks."""

    values: dict[str, Scalar] = field(default_factory=dict)
    units: dict[str, str] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)

    def add(self, name: str, label: str, value: Scalar, unit: str = "", note: str = "", mark: Mark | None = None) -> None:
        """A fact; an unknown one (None or empty text) is left out."""
        if value is None or value == "":
            return
        self.values[name], self.labels[name], self.units[name] = value, label, unit
        if note:
            self.notes[name] = note
        if mark is not None:
            self.marks[name] = mark


def device_and_run(capture: Capture, spec: DeviceSpec | None, ops: pd.DataFrame, chosen: bool) -> Found:
    """Device, limits, versions, what was recorded, counts. chosen: the reader picked the limits."""
    out = Found()
    facts = capture.facts
    used = devices_in_use(capture)
    names = list(dict.fromkeys(d.name or f"device {d.id}" for d in used))
    many = f"{len(used)} × " if len(used) > 1 else ""
    out.add("gpu", "GPU" if facts.vendor in ("nvidia", "amd", "xpu") else "Device", many + ", ".join(names) if names else None)
    if spec is not None:
        _limits(out, spec, ops, chosen)
    versions = facts.versions
    runtime = [
        f"{label} {versions[key]}"
        for key, label in (("cuda_runtime_version", "CUDA"), ("hip_runtime_version", "HIP"), ("cuda_driver_version", "driver"))
        if versions.get(key)
    ]
    out.add("runtime", "Runtime", ", ".join(runtime))
    torch = versions.get("torch_version") or versions.get("pytorch_version") or _torch(facts.metadata)
    out.add("framework", "PyTorch", torch)
    if facts.rank is not None or facts.world_size:
        out.add("rank", "Rank", _rank(facts.rank, facts.world_size), note=facts.backend)
    recorded = [word for flag, word in FLAG_WORDS.items() if facts.flags.get(flag)]
    out.add("recorded", "Recorded", ", ".join(recorded))
    low, high = facts.extent_ns
    out.add("window_ns", "Time recorded", high - low, "ns")
    out.add("events", "Events", facts.total_events, "count")
    if len(capture.device):
        out.add("device_events", "Device events", len(capture.device), "count")
    out.add(
        "oddities",
        "Health",
        len(capture.tables["issues"]),
        "count",
        "kind of oddity" if len(capture.tables["issues"]) == 1 else "kinds of oddities",
    )
    return out


def _limits(out: Found, spec: DeviceSpec, ops: pd.DataFrame, chosen: bool) -> None:
    out.add("limits_from", "Limits from", f"{'chosen' if chosen else 'device table'}, {spec.key}")
    matrix = ops[ops["flop"].to_numpy(dtype=np.float64) > 0] if len(ops) else ops
    by_type = matrix.groupby(matrix["dtype"].astype(str).to_numpy())["flop"].sum() if len(matrix) else pd.Series(dtype=float)
    dtype = str(by_type.idxmax()) if len(by_type) else next((d for d in ("bf16", "fp16", "fp32") if spec.matrix_peak(d)), "")
    unsure = {name: Mark("unverified", "not confirmed by a data sheet") for name in spec.unverified}
    out.add(
        "matrix_peak", f"{dtype} dense", spec.matrix_peak(dtype), "FLOP/s", mark=next((m for n, m in unsure.items() if dtype in n), None)
    )
    out.add("vector_peak", "fp32 vector", spec.vector_peak("fp32"), "FLOP/s")
    out.add(
        "memory_bandwidth", "Memory bandwidth", spec.memory_bandwidth, "B/s", mark=next((m for n, m in unsure.items() if "mem" in n), None)
    )
    out.add("link_bandwidth", "PCIe, one way", spec.pcie_bytes_per_s, "B/s", mark=next((m for n, m in unsure.items() if "pcie" in n), None))


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
