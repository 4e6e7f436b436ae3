"""Loads the package's table of devices: `devices.csv` as `DeviceSpec`s.

All peaks are dense (no structured sparsity) and decimal. What the table leaves empty is unknown, never 0.
`limits.py` finds the spec of a recorded device, `file.py` reads rows that users add.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from functools import cache
from pathlib import Path
from typing import Final

from tb_sol_plugin.devices.rates import Figure, figures
from tb_sol_plugin.devices.spec import ACHIEVABLE_COLUMNS, MATRIX_COLUMNS, PCIE_BYTES_PER_S, VECTOR_COLUMNS, DeviceSpec

__all__ = [
    "EXTRA_COLUMNS", "MATRIX_COLUMNS", "PCIE_BYTES_PER_S", "VECTOR_COLUMNS", "DeviceSpec", "Figure", "by_name", "columns", "figures",
    "known_keys", "raw_rows", "spec_of", "table",
]  # fmt: skip

EXTRA_COLUMNS: Final = ("name", "l2_bw_gb_per_s", *(c for c in ACHIEVABLE_COLUMNS.values() if c != "achievable_bf16_tflops"))
"""Columns that a device file may have besides those of the table: figures that nobody publishes."""
_FIGURES: Final = frozenset((
    *MATRIX_COLUMNS.values(), *VECTOR_COLUMNS.values(), *ACHIEVABLE_COLUMNS.values(), "mem_gb", "mem_bw_gb_per_s", "l2_mb",
    "l2_bw_gb_per_s", "link_bidir_gb_per_s", "c2c_bidir_gb_per_s", "pcie_gen", "pcie_x16_bidir_gb_per_s", "boost_vector_mhz",
    "boost_tensor_mhz",
))  # fmt: skip

GRACE_C2C: Final = 450e9
"""Bytes/s between a GPU and the Grace CPU beside it, one direction."""


@cache
def raw_rows() -> Mapping[str, Mapping[str, str]]:
    """Returns the rows of `devices.csv` by key, as text, in file order."""
    with Path(__file__).with_name("devices.csv").open(encoding="utf-8", newline="") as file:
        return {row["key"]: row for row in csv.DictReader(file)}


@cache
def columns() -> tuple[str, ...]:
    """Returns the columns of `devices.csv` in order."""
    return tuple(next(iter(raw_rows().values())))


@cache
def table() -> Mapping[str, DeviceSpec]:
    """Returns every device of `devices.csv` by key, in file order. The CPU row has no peaks: they are measured, never assumed."""
    return {key: spec_of(row) for key, row in raw_rows().items()}


def known_keys() -> tuple[str, ...]:
    """Returns the keys an override accepts, in file order, without the CPU placeholder."""
    return tuple(key for key, spec in table().items() if spec.vendor)


@cache
def by_name() -> Mapping[str, str]:
    """Returns lower-case key, alias or exact device name to key."""
    out: dict[str, str] = {}
    for key, spec in table().items():
        for name in (key, *spec.aliases, *spec.device_names):
            out.setdefault(name.lower(), key)
    return out


def spec_of(row: Mapping[str, str], changed: AbstractSet[str] = frozenset(), origin: str = "user", source: str = "table") -> DeviceSpec:
    """Returns one row as a spec. Raises ValueError where a number does not parse.

    changed: columns that a user gave, whose provenance is `origin`. source: where the row stands.
    """
    unverified = _split(row["unverified_fields"])
    generation, x16 = _number(row, "pcie_gen"), _number(row, "pcie_x16_bidir_gb_per_s")
    pcie = PCIE_BYTES_PER_S.get(int(generation)) if generation is not None else None
    by_rate = x16 is not None and ("pcie_x16_bidir_gb_per_s" in changed or pcie is None)
    if x16 is not None and by_rate:
        pcie = x16 * 1e9 / 2
    link = _number(row, "link_bidir_gb_per_s")
    units, memory, l2 = _number(row, "units_count"), _number(row, "mem_gb"), _number(row, "l2_mb")
    achievable = _peaks(row, ACHIEVABLE_COLUMNS)
    return DeviceSpec(
        key=row["key"],
        name=row.get("name") or re.sub(r"_(\d{2,3})$", r" \1 GB", row["key"]).replace("_", " "),
        vendor=row["vendor"],
        arch=row["arch"],
        compute_capability=row["compute_capability"],
        unit_kind=row["unit_kind"],
        units=None if units is None else int(units),
        boost_vector_mhz=_number(row, "boost_vector_mhz"),
        boost_tensor_mhz=_number(row, "boost_tensor_mhz"),
        matrix=_peaks(row, MATRIX_COLUMNS),
        vector=_peaks(row, VECTOR_COLUMNS),
        memory_bandwidth=_scaled(row, "mem_bw_gb_per_s", 1e9),
        memory_bytes=None if memory is None else int(memory * 2**30),
        l2_bytes=None if l2 is None else int(l2 * 2**20),
        l2_bytes_per_s=_scaled(row, "l2_bw_gb_per_s", 1e9),
        link_kind=row["link_kind"],
        link_bytes_per_s=None if link is None else link * 1e9 / 2,
        c2c_bytes_per_s=_c2c(row),
        pcie_bytes_per_s=pcie,
        pcie_gen=int(generation) if generation is not None and not by_rate and pcie is not None else 0,
        pcie_lanes=16 if generation is not None and not by_rate and pcie is not None else 0,
        achievable_bf16=achievable.pop("bf16", None),
        achievable_rates=achievable,
        sparse_factor=_number(row, "sparse_2to4_factor"),
        unsupported=_split(row["unsupported"]),
        device_names=_split(row["device_names"]),
        aliases=_split(row["aliases"]),
        provenance={c: _origin(row["provenance"], c, unverified, changed, origin) for c, text in row.items() if text and c in _FIGURES},
        sources=tuple(re.findall(r"source:(\w)", row["provenance"])),
        unverified=unverified,
        source=source,
        notes=row["notes"],
    )


def _c2c(row: Mapping[str, str]) -> float | None:
    """Returns one direction of the link to the CPU of the package; the Grace superchips of the table that state none have that of the
    others.
    """
    both = _number(row, "c2c_bidir_gb_per_s")
    if both is None:
        return GRACE_C2C if re.match(r"G[BH]\d", row["key"]) and "c2c_bidir_gb_per_s" in row else None
    return both * 1e9 / 2


def _origin(provenance: str, column: str, unverified: tuple[str, ...], changed: AbstractSet[str], origin: str) -> str:
    if column in unverified:
        return "unverified"
    if column in changed:
        return origin
    if provenance in ("unverified", "measured"):
        return provenance
    peak = column in MATRIX_COLUMNS.values() or column in VECTOR_COLUMNS.values()
    return "derived" if peak and provenance.startswith("derived") else "third_party"


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _number(row: Mapping[str, str], column: str) -> float | None:
    text = row.get(column, "")
    return float(text) if text else None


def _scaled(row: Mapping[str, str], column: str, by: float) -> float | None:
    value = _number(row, column)
    return None if value is None else float(round(value * by))


def _peaks(row: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, float]:
    peaks = {dtype: _scaled(row, column, 1e12) for dtype, column in wanted.items()}
    return {dtype: peak for dtype, peak in peaks.items() if peak is not None}
