"""Every figure of a device with its unit and where it is from, for whoever shows them."""

from __future__ import annotations

from typing import Final

import msgspec

from tb_sol_plugin.devices.rates import arithmetic
from tb_sol_plugin.devices.spec import ACHIEVABLE_COLUMNS, MATRIX_COLUMNS, VECTOR_COLUMNS, DeviceSpec

ORIGINS: Final = {
    "derived": "follows from units, rate and clock",
    "third_party": "published, not confirmed by a data sheet",
    "unverified": "not confirmed",
    "measured": "measured on the machine",
    "user": "given by a device file",
}
"""What each provenance means, for a reader."""

SOURCES: Final = {
    "a": "throughput table of Lightning Fabric", "b": "public notebook (80 SM, 1530 MHz)", "c": "public lists of GPU specifications",
    "d": "hardware list of LLMRoofline", "e": "public A100 notes, a cluster's device query", "f": "karpathy/nanochat#60",
    "g": "RTX 4090 sheet", "h": "RTX 5090 specification page", "i": "public H100 notes",
    "j": "H100 PCIe product brief PB-11133, GH100 whitepaper table 1", "k": "H100 datasheet quoted in Lightning-AI/pytorch-lightning#21743",
    "l": "public H200 and B300 comparison", "m": "public H20 comparisons", "n": "accelerator chapter of stas00/ml-engineering",
    "o": "public B200 and B300 notes, HGX tables", "p": "per-die constant of a training framework",
    "q": "device table of torch 2.13 inductor", "r": "per-CU rates of the CDNA2, CDNA3 and CDNA4 whitepapers",
    "s": "ISSCC 2026 coverage, press tables", "t": "press article on Gaudi3, 2024-04-09",
}  # fmt: skip
"""The letters of the column `provenance` of `devices.csv`. All are third-party sources."""

_ORDER: Final = ("bf16", "fp16", "tf32", "fp8", "fp4", "int8", "fp32", "fp64")


class Figure(msgspec.Struct, frozen=True):
    """One figure. name: its column in the table. value: in `unit` (FLOP/s, B/s, MHz).

    provenance: derived, third_party, unverified, measured or user. source: in words, or the arithmetic of a derived peak.
    """

    name: str
    label: str
    value: float
    unit: str
    provenance: str
    source: str = ""

    @property
    def unverified(self) -> bool:
        """Whether it deserves a mark."""
        return self.provenance == "unverified"


def figures(spec: DeviceSpec) -> list[Figure]:
    """What bounds work on a device, in the order a reader looks for it: matrix, vector, memory, links, clocks. Unknown ones are left out.

    Sizes of memory and caches tell devices apart and bound nothing; they are no figures here.
    """
    out: list[Figure] = []

    def add(name: str, label: str, value: float | None, unit: str, how: str = "") -> None:
        if value is None:
            return
        origin = spec.provenance.get(name, "derived" if spec.method == "derived" else "third_party")
        out.append(Figure(name, label, float(value), unit, origin, how if how and origin == "derived" else _source(spec, origin)))

    for dtype in _ORDER:
        add(MATRIX_COLUMNS[dtype], f"{dtype.upper()} matrix", spec.matrix.get(dtype), "FLOP/s", arithmetic(spec, dtype, vector=False))
    for dtype in ("fp32", "fp64"):
        add(VECTOR_COLUMNS[dtype], f"{dtype.upper()} vector", spec.vector.get(dtype), "FLOP/s", arithmetic(spec, dtype, vector=True))
    add("mem_bw_gb_per_s", "Memory bandwidth", spec.memory_bandwidth, "B/s")
    add("l2_bw_gb_per_s", "L2 bandwidth", spec.l2_bytes_per_s, "B/s")
    kind = {"nvlink": "NVLink", "xgmi": "xGMI", "roce": "RoCE"}.get(spec.link_kind, "Link")
    add("link_bidir_gb_per_s", f"{kind}, one way", spec.link_bytes_per_s, "B/s")
    add("c2c_bidir_gb_per_s", "To the CPU of its package, one way", spec.c2c_bytes_per_s, "B/s")
    pcie = "pcie_x16_bidir_gb_per_s" if spec.provenance.get("pcie_x16_bidir_gb_per_s") == "user" else "pcie_gen"
    add(pcie, "PCIe, one way", spec.pcie_bytes_per_s, "B/s")
    for dtype in _ORDER:
        rate = spec.achievable_bf16 if dtype == "bf16" and "bf16" not in spec.achievable_rates else spec.achievable_rates.get(dtype)
        add(ACHIEVABLE_COLUMNS[dtype], f"{dtype.upper()} matrix, achievable", rate, "FLOP/s")
    add("boost_tensor_mhz", "Matrix clock", spec.boost_tensor_mhz, "MHz")
    add("boost_vector_mhz", "Vector clock", spec.boost_vector_mhz, "MHz")
    return out


def _source(spec: DeviceSpec, origin: str) -> str:
    if origin == "user":
        return spec.source if spec.source != "table" else ""
    if origin in ("third_party", "derived") and spec.sources and spec.method != "derived":
        return "; ".join(SOURCES[letter] for letter in spec.sources if letter in SOURCES)
    return ""
