"""Which `DeviceSpec` belongs to a recorded device.

A device name is matched as a whole or by whole words, then checked against memory, unit count and compute capability:
`NVIDIA L40S` is not an L4, `NVIDIA H800` is not an H100, and a bare `NVIDIA H100` with 114 SMs is the PCIe part.
A device that is not in the table gets peaks derived from its compute capability and no bandwidth.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.capture import Capture, DeviceProps
from tb_sol_plugin.model.device_table import DeviceSpec, by_name, known_keys, table

__all__ = ["DeviceSpec", "device_for", "devices_in_use", "known_keys", "match", "overridden", "table", "why_no_limits"]

MEMORY_TOLERANCE: Final = 0.12
"""A reported memory size within 12 % of the row's fits (drivers keep some for themselves)."""

# FLOP per unit and clock, dense, by compute capability (NVIDIA) or architecture (AMD)
RATES: Final[dict[str, tuple[dict[str, int], dict[str, int]]]] = {
    "7.0": ({"fp64": 64, "fp32": 128}, {"fp16": 1024}),
    "7.5": ({"fp64": 4, "fp32": 128}, {"fp16": 1024, "int8": 2048}),
    "8.0": ({"fp64": 64, "fp32": 128}, {"fp64": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096}),
    "8.6": ({"fp64": 4, "fp32": 256}, {"tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048}),
    "8.6g": ({"fp64": 4, "fp32": 256}, {"tf32": 256, "fp16": 512, "bf16": 512, "int8": 2048}),
    "8.9": ({"fp64": 4, "fp32": 256}, {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048}),
    "8.9g": ({"fp64": 4, "fp32": 256}, {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048}),
    "9.0": ({"fp64": 128, "fp32": 256}, {"fp64": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192}),
    "10.0": ({"fp64": 128, "fp32": 256}, {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp4": 32768}),
    "12.0g": ({"fp64": 4, "fp32": 256}, {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048, "fp4": 4096}),
    "cdna2": ({"fp64": 128, "fp32": 128}, {"fp64": 256, "fp32": 256, "fp16": 1024, "bf16": 1024, "int8": 1024}),
    "cdna3": ({"fp64": 128, "fp32": 256}, {"fp64": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096}),
    "cdna4": ({"fp64": 128, "fp32": 256}, {"fp16": 4096, "bf16": 4096, "fp8": 8192, "fp4": 16384}),
}  # fmt: skip
"""(vector, matrix) rates; a trailing g is the GeForce part of a generation (half matrix rate with FP32 accumulate)."""

CLOCKS_MHZ: Final = {
    "7.0": 1380, "7.5": 1590, "8.0": 1410, "8.6": 1695, "8.6g": 1695, "8.9": 2040, "8.9g": 2520, "9.0": 1620, "10.0": 1855,
    "12.0g": 2407, "cdna2": 1700, "cdna3": 2100, "cdna4": 2200,
}  # fmt: skip
"""The lowest matrix boost clock of a generation in the table, for devices that are not in it."""

_STRIP: Final = {"nvidia", "tesla", "amd", "instinct", "geforce", "rtx", "gpu"}
_FORMS: Final = {"sxm": "SXM", "pcie": "PCIE", "nvl": "NVL"}
_AMD: Final = {"9.0": "cdna2", "9.4": "cdna3", "9.5": "cdna4"}


def match(props: DeviceProps, override: str = "", *, vendor: str = "") -> DeviceSpec | None:
    """The spec of a recorded device; None where neither name nor compute capability says what it is.

    override: a key, alias or device name of the table that replaces the match. Raises BadQuery when it is none of them.
    """
    if override:
        return overridden(override)
    base, mig = re.subn(r" MIG\b.*$", "", props.name, flags=re.IGNORECASE)
    base = base.strip()
    spec = _by_exact_name(base, props, mig > 0) or _by_words(base, props, mig > 0)
    if spec is None and not mig:
        spec = _unnamed(props, vendor)
    if spec is not None:
        return _share_of(spec, props) if mig else spec
    return None if mig else _derived(props, vendor)


def overridden(override: str) -> DeviceSpec:
    """The spec a reader asked for by key, alias or device name. Raises BadQuery when the table has none."""
    key = by_name().get(override.lower())
    if key is None or not table()[key].vendor:
        raise BadQuery(f"no device {override!r} in the table", hint=f"known: {', '.join(known_keys())}", field="device_limits")
    return msgspec.structs.replace(table()[key], method="override")


def device_for(capture: Capture, override: str = "") -> DeviceSpec | None:
    """The spec of the device that did most of the recorded work, or None (`why_no_limits` says why).

    Devices of one recording that match different specs are rare (a mixed host); the busiest one is taken.
    """
    if override:
        return overridden(override)
    for props in devices_in_use(capture):
        spec = match(props, vendor=capture.facts.vendor)
        if spec is not None:
            return spec
    return None


def devices_in_use(capture: Capture) -> list[DeviceProps]:
    """Recorded properties of the devices with work, busiest first; all recorded ones where ids do not meet."""
    if not len(capture.device):
        return []
    ids, place = np.unique(capture.device["device"].to_numpy(), return_inverse=True)
    busy = np.bincount(place, weights=capture.device["duration_ns"].to_numpy().clip(min=0).astype(np.float64))
    order = [int(ids[i]) for i in np.argsort(-busy, kind="stable")]
    known = {props.id: props for props in capture.facts.devices}
    used = [known[i] for i in order if i in known]
    return used or list(capture.facts.devices)


def why_no_limits(capture: Capture) -> str:
    """One sentence that says why `device_for` answers None."""
    if not len(capture.device):
        return "a CPU has no fixed peak: FLOP/s are shown, efficiencies are not"
    names = sorted({props.name or "a device without a name" for props in devices_in_use(capture)})
    if not names:
        return "the recording does not name its device; choose its limits to see efficiencies"
    return f"{', '.join(names)} is not in the table of devices; choose its limits to see efficiencies"


def _by_exact_name(name: str, props: DeviceProps, mig: bool) -> DeviceSpec | None:
    key = by_name().get(name.lower())
    if key is None or not table()[key].vendor:
        return None
    spec = table()[key]
    if mig or _agrees(spec, props):
        return msgspec.structs.replace(spec, method="exact")
    return None


def _by_words(name: str, props: DeviceProps, mig: bool) -> DeviceSpec | None:
    words = [w for w in re.split(r"[\s_/-]+", re.sub(r"\((tm|r)\)", " ", name.lower())) if w]
    families: dict[str, list[DeviceSpec]] = {}
    for spec in table().values():
        if spec.vendor:
            families.setdefault(_family(spec), []).append(spec)
    found = sorted((w for w in words if w in families and w not in _STRIP), key=len, reverse=True)
    if not found:
        return None
    rows = families[found[0]]
    form = next((mark for word in words for start, mark in _FORMS.items() if word.startswith(start)), "")
    method = "token"
    if form:
        named = [r for r in rows if form in r.key]
        rows = named or rows
    if not mig:
        fitting = [r for r in rows if _fits_memory(r, props)]
        method = "memory" if len(fitting) < len(rows) else method
        fitting, before = [r for r in fitting if _fits_units(r, props) and _fits_capability(r, props)], len(fitting)
        method = "units" if len(fitting) < before else method
        rows = fitting
    if not rows:
        return None
    plain = [r for r in rows if found[0] in (a.lower() for a in r.aliases)]
    return msgspec.structs.replace((plain or rows)[0], method=method)


def _family(spec: DeviceSpec) -> str:
    words = spec.key.lower().split("_")
    return words[1] if words[0] == "rtx" else words[0]


def _unnamed(props: DeviceProps, vendor: str) -> DeviceSpec | None:
    """An AMD board without a name: the one row that agrees in architecture, units and memory."""
    if not _is_amd(props, vendor) or not props.units or not props.memory_bytes or _family_named(props):
        return None
    rows = [r for r in table().values() if r.vendor == "amd" and r.units == props.units and _agrees(r, props)]
    return msgspec.structs.replace(rows[0], method="derived") if len(rows) == 1 else None


def _family_named(props: DeviceProps) -> bool:
    return bool(re.search(r"\bMI\d{3}", props.name, re.IGNORECASE))


def _is_amd(props: DeviceProps, vendor: str) -> bool:
    return vendor == "amd" or props.name.lower().startswith("amd") or (not props.name and props.warp_size == 64)


def _agrees(spec: DeviceSpec, props: DeviceProps) -> bool:
    return _fits_memory(spec, props) and _fits_units(spec, props) and _fits_capability(spec, props)


def _fits_memory(spec: DeviceSpec, props: DeviceProps) -> bool:
    if not spec.memory_bytes or not props.memory_bytes:
        return True
    return abs(props.memory_bytes - spec.memory_bytes) <= MEMORY_TOLERANCE * spec.memory_bytes


def _fits_units(spec: DeviceSpec, props: DeviceProps) -> bool:
    return not spec.units or not props.units or "units_count" in spec.unverified or spec.units == props.units


def _fits_capability(spec: DeviceSpec, props: DeviceProps) -> bool:
    if not props.compute_capability or not spec.compute_capability or ("compute_capability" in spec.unverified and spec.vendor == "nvidia"):
        return True
    if spec.vendor == "amd":
        return _AMD.get(props.compute_capability, spec.arch) == spec.arch
    return props.compute_capability == spec.compute_capability


def _share_of(spec: DeviceSpec, props: DeviceProps) -> DeviceSpec:
    """A MIG slice: compute by its share of the units, bandwidth by its share of the memory."""
    compute = props.units / spec.units if props.units and spec.units else None
    memory = props.memory_bytes / spec.memory_bytes if props.memory_bytes and spec.memory_bytes else None
    scale = compute if compute is not None and compute < 1 else None
    return msgspec.structs.replace(
        spec,
        name=f"{spec.name} MIG",
        units=props.units or None,
        matrix={d: p * scale for d, p in spec.matrix.items()} if scale else {},
        vector={d: p * scale for d, p in spec.vector.items()} if scale else {},
        memory_bandwidth=spec.memory_bandwidth * memory if memory and memory < 1 and spec.memory_bandwidth else None,
        memory_bytes=props.memory_bytes or None,
        achievable_bf16=None,
        provenance=dict.fromkeys(spec.provenance, "derived"),
        method="derived",
    )


def _derived(props: DeviceProps, vendor: str) -> DeviceSpec | None:
    """A device that is not in the table: rates of its generation, times its units, at the lowest clock of the generation."""
    amd = _is_amd(props, vendor)
    generation = _AMD.get(props.compute_capability, "") if amd else props.compute_capability
    if "geforce" in props.name.lower():
        generation = generation + "g" if generation + "g" in RATES else generation
    if generation not in RATES or not props.units:
        return None
    vector, matrix = RATES[generation]
    per_flop = props.units * CLOCKS_MHZ[generation] * 1e6
    return DeviceSpec(
        key="unknown",
        name=props.name or f"{generation} device, {props.units} units",
        vendor="amd" if amd else "nvidia",
        arch=generation if amd else "",
        compute_capability=props.compute_capability,
        units=props.units,
        matrix={d: r * per_flop for d, r in matrix.items()},
        vector={d: r * per_flop for d, r in vector.items()},
        memory_bytes=props.memory_bytes or None,
        method="derived",
        notes=f"not in the table: peaks follow from {props.units} units at {CLOCKS_MHZ[generation]} MHz; bandwidth unknown",
    )
