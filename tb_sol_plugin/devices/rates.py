"""Gives FLOP per unit and clock of each generation, what follows from them for a device, and all figures of a device with sources."""

from __future__ import annotations

from typing import Final

import msgspec

from tb_sol_plugin.devices.spec import ACHIEVABLE_COLUMNS, MATRIX_COLUMNS, VECTOR_COLUMNS, DeviceSpec

RATES: Final[dict[str, tuple[dict[str, int], dict[str, int]]]] = {
    "7.0": ({"fp64": 64, "fp32": 128}, {"fp16": 1024}),
    "7.5": ({"fp64": 4, "fp32": 128}, {"fp16": 1024, "int8": 2048}),
    "7.5g": ({"fp64": 4, "fp32": 128}, {"fp16": 512, "int8": 2048}),
    "8.0": ({"fp64": 64, "fp32": 128}, {"fp64": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096}),
    "8.6": ({"fp64": 4, "fp32": 256}, {"tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048}),
    "8.6g": ({"fp64": 4, "fp32": 256}, {"tf32": 256, "fp16": 512, "bf16": 512, "int8": 2048}),
    "8.9": ({"fp64": 4, "fp32": 256}, {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048}),
    "8.9g": ({"fp64": 4, "fp32": 256}, {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048}),
    "9.0": ({"fp64": 128, "fp32": 256}, {"fp64": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192}),
    "10.0": ({"fp64": 128, "fp32": 256}, {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp4": 32768}),
    "12.0": ({"fp64": 4, "fp32": 256}, {}),
    "12.0g": ({"fp64": 4, "fp32": 256}, {"tf32": 256, "fp16": 512, "bf16": 512, "fp8": 1024, "int8": 2048, "fp4": 4096}),
    "cdna2": ({"fp64": 128, "fp32": 128}, {"fp64": 256, "fp32": 256, "fp16": 1024, "bf16": 1024, "int8": 1024}),
    "cdna3": ({"fp64": 128, "fp32": 256}, {"fp64": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096}),
    "cdna4": ({"fp64": 128, "fp32": 256}, {"fp16": 4096, "bf16": 4096, "fp8": 8192, "fp4": 16384}),
}  # fmt: skip
"""(vector, matrix) FLOP per unit and clock, dense, by compute capability (NVIDIA) or architecture (AMD).

A trailing g is the GeForce part of a generation: half the matrix rate with FP32 accumulate. Of CC 12.0 only the GeForce
matrix rates are known, so a professional board of that generation has none.
"""

CLOCKS_MHZ: Final = {
    "7.0": 1380, "7.5": 1590, "7.5g": 1590, "8.0": 1410, "8.6": 1695, "8.6g": 1695, "8.9": 2040, "8.9g": 2520, "9.0": 1620,
    "10.0": 1855, "12.0": 2407, "12.0g": 2407, "cdna2": 1700, "cdna3": 2100, "cdna4": 2200,
}  # fmt: skip
"""The lowest boost clock of a generation in the table, for devices that are not in it."""

GEFORCE: Final = ("geforce", "rtx_30", "rtx_40", "rtx_50")


def generation_of(spec: DeviceSpec) -> str:
    """Returns the row of `RATES` that a device belongs to, "" where there is none."""
    if spec.vendor == "amd":
        return spec.arch if spec.arch in RATES else ""
    cc = spec.compute_capability
    named = (spec.key.lower(), spec.name.lower(), *(n.lower() for n in spec.device_names))
    if cc + "g" in RATES and any(mark in name for mark in GEFORCE for name in named):
        return cc + "g"
    return cc if cc in RATES else ""


def clock_of(spec: DeviceSpec, dtype: str, *, vector: bool) -> float | None:
    """Returns the MHz that the peak of `dtype` holds at; None where the row says nothing of clocks, or the peak does not follow from one.

    FP64 matrix units run at the vector clock (H100: 132 SM x 256 x 1980 MHz = 66.9 TFLOP/s). Where a row gives one of the two
    clocks only, the other follows from the peak, the units and the rate of the generation.
    """
    by_vector = vector or dtype == "fp64"
    given = spec.boost_vector_mhz if by_vector else spec.boost_tensor_mhz
    if given:
        return given
    if not (spec.boost_vector_mhz or spec.boost_tensor_mhz) or not spec.units:
        return None
    vector_rates, matrix_rates = RATES.get(generation_of(spec), ({}, {}))
    rate = (vector_rates if vector else matrix_rates).get(dtype)
    peak = (spec.vector if vector else spec.matrix).get(dtype)
    return peak / (spec.units * rate) / 1e6 if rate and peak else None


def arithmetic(spec: DeviceSpec, dtype: str, *, vector: bool) -> str:
    """Returns how a derived peak comes about, as `132 SM x 4,096 FLOP per clock x 1,830 MHz`; "" where it does not follow within 1 %."""
    rates = RATES.get(generation_of(spec), ({}, {}))[0 if vector else 1]
    clock = spec.boost_vector_mhz if vector or dtype == "fp64" else spec.boost_tensor_mhz
    peak = (spec.vector if vector else spec.matrix).get(dtype)
    if dtype not in rates or not clock or not spec.units or not peak:
        return ""
    if abs(spec.units * rates[dtype] * clock * 1e6 / peak - 1) > 0.01:
        return ""
    return f"{spec.units:,} {spec.unit_kind or 'units'} × {rates[dtype]:,} FLOP per clock × {clock:,.0f} MHz"


# -- every figure of a device, with its unit and source --------------------------------------------------------------


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
    "u": "AMD's figures at the launch of the MI210, 2022-03-22",
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
    """Returns what bounds work on a device, in the order a reader looks for it: matrix, vector, memory, links, clocks. Unknown ones are
    left out.

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
