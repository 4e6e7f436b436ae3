"""The ceilings of a device: `devices.csv` as `DeviceSpec`s.

All peaks are dense (no structured sparsity) and decimal. What the table leaves empty is unknown, never 0.
`model/device.py` finds the spec of a recorded device.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import Final

import msgspec

MATRIX_COLUMNS: Final = {
    "fp64": "fp64_tensor_tflops", "fp32": "fp32_matrix_tflops", "tf32": "tf32_tensor_tflops", "fp16": "fp16_tensor_tflops",
    "bf16": "bf16_tensor_tflops", "fp8": "fp8_tensor_tflops", "fp4": "fp4_tensor_tflops", "int8": "int8_tops",
}  # fmt: skip
"""dtype to the column of its matrix-unit peak (GEMM, convolution, attention)."""
VECTOR_COLUMNS: Final = {"fp64": "fp64_vector_tflops", "fp32": "fp32_vector_tflops"}
"""dtype to the column of its vector peak (elementwise, norms, reductions)."""

PCIE_BYTES_PER_S: Final = {3: 15.75e9, 4: 31.5e9, 5: 63e9, 6: 121e9}
"""Usable peak of an x16 link in one direction, by generation."""


class DeviceSpec(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """Ceilings of one device as a framework sees it.

    matrix, vector: FLOP/s by dtype (fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8). memory_bandwidth: bytes/s.
    link_bytes_per_s, pcie_bytes_per_s: one direction. achievable_bf16: FLOP/s a good GEMM reaches (second ceiling).
    provenance: column of the table to datasheet, derived, third_party, unverified or measured. unverified: columns not confirmed.
    method: how the spec was found (override, exact, token, memory, units, derived, table).
    """

    key: str
    name: str
    vendor: str = ""
    arch: str = ""
    compute_capability: str = ""
    units: int | None = None
    matrix: dict[str, float] = {}
    vector: dict[str, float] = {}
    memory_bandwidth: float | None = None
    memory_bytes: int | None = None
    link_kind: str = ""
    link_bytes_per_s: float | None = None
    pcie_bytes_per_s: float | None = None
    achievable_bf16: float | None = None
    sparse_factor: float | None = None
    unsupported: tuple[str, ...] = ()
    device_names: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    provenance: dict[str, str] = {}
    unverified: tuple[str, ...] = ()
    method: str = "table"
    notes: str = ""

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of everything here: equal for equal content, whichever object holds it."""
        content = json.dumps(msgspec.to_builtins(self), sort_keys=True)
        return hashlib.blake2b(content.encode(), digest_size=8).hexdigest()

    def matrix_peak(self, dtype: str) -> float | None:
        """FLOP/s of the matrix class in `dtype`; None where there is no ceiling.

        Without a matrix rate FP64 and FP32 run on the vector units, and TF32 as FP32.
        """
        if dtype in self.matrix:
            return self.matrix[dtype]
        if dtype == "tf32":
            return self.matrix_peak("fp32")
        return self.vector.get(dtype)

    def vector_peak(self, dtype: str) -> float | None:
        """FLOP/s of the vector class: FP64 has its own rate, every other dtype counts at the FP32 rate."""
        return self.vector.get("fp64" if dtype == "fp64" else "fp32")

    def is_unverified(self, dtype: str, *, vector: bool = False) -> bool:
        """Whether the peak that `matrix_peak` or `vector_peak` gives for `dtype` is not confirmed."""
        column = (VECTOR_COLUMNS if vector or dtype not in self.matrix else MATRIX_COLUMNS).get(dtype, "")
        return column in self.unverified


@cache
def table() -> Mapping[str, DeviceSpec]:
    """Every device of `devices.csv` by key, in file order. The CPU row has no peaks: they are measured, never assumed."""
    with Path(__file__).with_name("devices.csv").open(encoding="utf-8", newline="") as file:
        return {row["key"]: spec_of(row) for row in csv.DictReader(file)}


def known_keys() -> tuple[str, ...]:
    """The keys an override accepts, in file order, without the CPU placeholder."""
    return tuple(key for key, spec in table().items() if spec.vendor)


@cache
def by_name() -> Mapping[str, str]:
    """Lower-case key, alias or exact device name to key."""
    out: dict[str, str] = {}
    for key, spec in table().items():
        for name in (key, *spec.aliases, *spec.device_names):
            out.setdefault(name.lower(), key)
    return out


def spec_of(row: Mapping[str, str]) -> DeviceSpec:
    """One row of the table. Raises ValueError where a number does not parse."""
    unverified = _split(row["unverified_fields"])
    generation = _number(row, "pcie_gen")
    link = _number(row, "link_bidir_gb_per_s")
    bandwidth, memory = _number(row, "mem_bw_gb_per_s"), _number(row, "mem_gb")
    units, achievable = _number(row, "units_count"), _number(row, "achievable_bf16_tflops")
    return DeviceSpec(
        key=row["key"],
        name=re.sub(r"_(\d{2,3})$", r" \1 GB", row["key"]).replace("_", " "),
        vendor=row["vendor"],
        arch=row["arch"],
        compute_capability=row["compute_capability"],
        units=None if units is None else int(units),
        matrix=_peaks(row, MATRIX_COLUMNS),
        vector=_peaks(row, VECTOR_COLUMNS),
        memory_bandwidth=None if bandwidth is None else float(round(bandwidth * 1e9)),
        memory_bytes=None if memory is None else int(memory * 2**30),
        link_kind=row["link_kind"],
        link_bytes_per_s=None if link is None else link * 1e9 / 2,
        pcie_bytes_per_s=None if generation is None else PCIE_BYTES_PER_S[int(generation)],
        achievable_bf16=None if achievable is None else float(round(achievable * 1e12)),
        sparse_factor=_number(row, "sparse_2to4_factor"),
        unsupported=_split(row["unsupported"]),
        device_names=_split(row["device_names"]),
        aliases=_split(row["aliases"]),
        provenance={c: _origin(row["provenance"], c, unverified) for c, text in row.items() if text and c in _FIGURES},
        unverified=unverified,
        notes=row["notes"],
    )


_FIGURES: Final = frozenset(
    (
        *MATRIX_COLUMNS.values(),
        *VECTOR_COLUMNS.values(),
        "mem_gb",
        "mem_bw_gb_per_s",
        "link_bidir_gb_per_s",
        "pcie_gen",
        "achievable_bf16_tflops",
    )
)


def _origin(provenance: str, column: str, unverified: tuple[str, ...]) -> str:
    if provenance == "unverified" or column in unverified:
        return "unverified"
    if provenance == "measured":
        return "measured"
    peak = column in MATRIX_COLUMNS.values() or column in VECTOR_COLUMNS.values()
    return "derived" if peak and provenance.startswith("derived") else "third_party"


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(";") if part.strip())


def _number(row: Mapping[str, str], column: str) -> float | None:
    return float(row[column]) if row[column] else None


def _peaks(row: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, float]:
    peaks = {dtype: _number(row, column) for dtype, column in columns.items()}
    return {dtype: float(round(peak * 1e12)) for dtype, peak in peaks.items() if peak is not None}
