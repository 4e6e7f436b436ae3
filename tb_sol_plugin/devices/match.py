"""Matches a recorded device to its row of the table.

A device name is matched as a whole or by whole words, then checked against memory, unit count and compute capability:
`NVIDIA L40S` is not an L4, `NVIDIA H800` is not an H100, and a bare `NVIDIA H100` with 114 SMs is the PCIe part.
A device that is not in the table gets peaks derived from its compute capability and no bandwidth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from tb_sol_plugin.devices.catalog import by_name, table
from tb_sol_plugin.devices.rates import CLOCKS_MHZ, RATES
from tb_sol_plugin.devices.spec import EMPTY, MATRIX_COLUMNS, VECTOR_COLUMNS, DeviceBook, DeviceProps, DeviceSpec

UNKNOWN: Final = "unknown"
"""Key of a device that no table holds, whose peaks follow from its generation."""
MEMORY_TOLERANCE: Final = 0.12
"""A reported memory size within 12 % of the row's fits (drivers keep some for themselves)."""

_STRIP: Final = frozenset(("nvidia", "tesla", "amd", "instinct", "geforce", "rtx", "gpu"))
_FORMS: Final = {"sxm": "SXM", "pcie": "PCIE", "nvl": "NVL"}
_OTHER_PARTS: Final = frozenset(("laptop", "mobile", "max", "ti", "super", "d", "v2", "lite"))
"""Words that make another part of the same number: an RTX 4090 Laptop GPU is no RTX 4090."""
_AMD: Final = {"9.0": "cdna2", "9.4": "cdna3", "9.5": "cdna4"}
_CDNA2_UNITS: Final = (104, 110)
"""gfx90a reports 9.0 like the older gfx908 and gfx906: only its unit counts tell it apart (MI210 and MI250 104, MI250X 110 per die)."""
_ALIKE: Final = {"MI210": "MI210 or MI250 die"}
"""What an unnamed board is called whose units and memory a device without a row of its own has too: its limits are the same."""
_MIG: Final = re.compile(r"(?<!\s)\s+MIG\b.*$", re.IGNORECASE)


def match(props: DeviceProps, *, vendor: str = "", book: DeviceBook = EMPTY) -> DeviceSpec | None:
    """Returns the spec of a recorded device; None where neither name nor compute capability says what it is.

    vendor: of the recording. book: rows of device files; one that names the device wins, highest file first.
    """
    base = _MIG.sub("", props.name).strip()
    mig = base != props.name.strip()
    for layer in reversed(book.layers):
        for name in dict.fromkeys((props.name.strip().lower(), base.lower())):
            key = layer.named.get(name, "")
            if key and book.specs[key].vendor != "cpu":
                spec = msgspec.structs.replace(book.specs[key], method="file")
                return _share_of(spec, props) if mig and name == base.lower() else spec
        if layer.every_gpu:
            return msgspec.structs.replace(book.specs[layer.every_gpu], method="file")
    rows = {key: spec for key, spec in table().items() if spec.vendor}
    found = _by_exact_name(base, props, rows, mig) or _by_words(base, props, rows, mig)
    if found is None and not mig:
        found = _unnamed(props, vendor, rows)
    if found is not None:
        # what a file changes of a row counts for the limits, not for telling devices apart
        spec = msgspec.structs.replace(book.specs.get(found.key, found), method=found.method)
        return _share_of(spec, props) if mig else spec
    return None if mig else _derived(props, vendor)


def _by_exact_name(name: str, props: DeviceProps, rows: Mapping[str, DeviceSpec], mig: bool) -> DeviceSpec | None:
    spec = rows.get(by_name().get(name.lower(), ""))
    if spec is None or not (mig or _agrees(spec, props)):
        return None
    return msgspec.structs.replace(spec, method="exact")


def _by_words(name: str, props: DeviceProps, table_rows: Mapping[str, DeviceSpec], mig: bool) -> DeviceSpec | None:
    words = [w for w in re.split(r"[\s_/-]+", re.sub(r"\((tm|r)\)", " ", name.lower())) if w]
    families: dict[str, list[DeviceSpec]] = {}
    for spec in table_rows.values():
        families.setdefault(_family(spec), []).append(spec)
    found = sorted((w for w in words if w in families and w not in _STRIP), key=len, reverse=True)
    if not found or _OTHER_PARTS & set(words):
        return None
    rows = families[found[0]]
    form = next((mark for word in words for start, mark in _FORMS.items() if word.startswith(start)), "")
    if form:
        rows = [r for r in rows if form in r.key] or rows
    rows, method = _fitting(rows, props, mig)
    if not rows:
        return None
    # a framework sees one die of an MI250X; a whole module is meant only where the unit count says so
    dies = [r for r in rows if r.key.endswith("_GCD")] if props.units != 220 else []
    plain = [r for r in rows if found[0] in (a.lower() for a in r.aliases)]
    return msgspec.structs.replace((dies or plain or rows)[0], method=method)


def _fitting(rows: list[DeviceSpec], props: DeviceProps, mig: bool) -> tuple[list[DeviceSpec], str]:
    """Return the rows that agree with the recorded properties, and which property distinguished rows last."""
    if mig:  # memory and units are those of a slice
        return [r for r in rows if _fits_capability(r, props)], "token"
    of_memory = [r for r in rows if _fits_memory(r, props)]
    of_units = [r for r in of_memory if _fits_units(r, props) and _fits_capability(r, props)]
    if len(of_units) < len(of_memory):
        return of_units, "units"
    return of_units, "memory" if len(of_memory) < len(rows) else "token"


def _family(spec: DeviceSpec) -> str:
    words = spec.key.lower().split("_")
    return words[1] if words[0] == "rtx" else words[0]


def _unnamed(props: DeviceProps, vendor: str, table_rows: Mapping[str, DeviceSpec]) -> DeviceSpec | None:
    """Returns an AMD board without a name: the one row that agrees in architecture, units and memory."""
    if not _is_amd(props, vendor) or not props.units or not props.memory_bytes or _family_named(props):
        return None
    rows = [r for r in table_rows.values() if r.vendor == "amd" and r.units == props.units and _agrees(r, props)]
    if len(rows) != 1:
        return None
    return msgspec.structs.replace(rows[0], method="derived", name=_ALIKE.get(rows[0].key, rows[0].name))


def _family_named(props: DeviceProps) -> bool:
    return bool(re.search(r"\bMI\d{2,3}", props.name, re.IGNORECASE))


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
    """Returns a MIG slice: compute by its share of the units, bandwidth by its share of the memory; what is not recorded is unknown."""
    compute = props.units / spec.units if props.units and spec.units else 0.0
    memory = props.memory_bytes / spec.memory_bytes if props.memory_bytes and spec.memory_bytes else 0.0
    scale = compute if 0 < compute <= 1 else None
    return msgspec.structs.replace(
        spec,
        name=f"{spec.name} MIG",
        units=props.units or None,
        matrix={d: p * scale for d, p in spec.matrix.items()} if scale else {},
        vector={d: p * scale for d, p in spec.vector.items()} if scale else {},
        memory_bandwidth=spec.memory_bandwidth * min(memory, 1.0) if memory and spec.memory_bandwidth else None,
        memory_bytes=props.memory_bytes or None,
        l2_bytes=None,
        l2_bytes_per_s=None,
        achievable_bf16=None,
        achievable_rates={},
        provenance=dict.fromkeys(spec.provenance, "derived"),
        method="derived",
        notes=_slice_note(spec, props),
    )


def _slice_note(spec: DeviceSpec, props: DeviceProps) -> str:
    compute = f"{props.units} of {spec.units} {spec.unit_kind}" if props.units and spec.units else "an unknown share of the units"
    share = f"{props.memory_bytes / spec.memory_bytes:.0%}" if props.memory_bytes and spec.memory_bytes else "an unknown share"
    return f"a slice of {spec.key}: compute by {compute}, bandwidth by {share} of the memory"


def _derived(props: DeviceProps, vendor: str) -> DeviceSpec | None:
    """Returns a device that is not in the table: rates of its generation, times its units, at the lowest clock of the generation."""
    amd = _is_amd(props, vendor)
    generation = _AMD.get(props.compute_capability, "") if amd else props.compute_capability
    if generation == "cdna2" and props.units not in _CDNA2_UNITS:
        return None
    if "geforce" in props.name.lower():
        generation = generation + "g" if generation + "g" in RATES else generation
    if generation not in RATES or not props.units:
        return None
    vector, matrix = RATES[generation]
    clock = CLOCKS_MHZ[generation]
    per_flop = props.units * clock * 1e6
    peaks = (*(MATRIX_COLUMNS[d] for d in matrix), *(VECTOR_COLUMNS[d] for d in vector))
    unit = "CU" if amd else "SM"
    return DeviceSpec(
        key=UNKNOWN,
        name=props.name or f"{generation} device, {props.units} {unit}",
        vendor="amd" if amd else "nvidia",
        arch=generation if amd else "",
        compute_capability=props.compute_capability,
        unit_kind=unit,
        units=props.units,
        boost_tensor_mhz=float(clock),
        boost_vector_mhz=float(clock),
        matrix={d: r * per_flop for d, r in matrix.items()},
        vector={d: r * per_flop for d, r in vector.items()},
        memory_bytes=props.memory_bytes or None,
        provenance=dict.fromkeys((*peaks, "boost_tensor_mhz", "boost_vector_mhz"), "derived"),
        method="derived",
        notes=f"it is not in the table, its peaks follow from {props.units} {unit} at {clock:,} MHz, its bandwidth is unknown",
    )
