"""FLOP per unit and clock of each generation, and what follows from them for a device that no table holds."""

from __future__ import annotations

from typing import Final

from tb_sol_plugin.devices.spec import DeviceSpec

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
    """The row of `RATES` that a device belongs to, "" where there is none."""
    if spec.vendor == "amd":
        return spec.arch if spec.arch in RATES else ""
    cc = spec.compute_capability
    named = (spec.key.lower(), spec.name.lower(), *(n.lower() for n in spec.device_names))
    if cc + "g" in RATES and any(mark in name for mark in GEFORCE for name in named):
        return cc + "g"
    return cc if cc in RATES else ""


def clock_of(spec: DeviceSpec, dtype: str, *, vector: bool) -> float | None:
    """MHz that the peak of `dtype` holds at; None where the row says nothing of clocks, or the peak does not follow from one.

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
    """How a derived peak comes about, as `132 SM x 4,096 FLOP per clock x 1,830 MHz`; "" where it does not follow within 1 %."""
    rates = RATES.get(generation_of(spec), ({}, {}))[0 if vector else 1]
    clock = spec.boost_vector_mhz if vector or dtype == "fp64" else spec.boost_tensor_mhz
    peak = (spec.vector if vector else spec.matrix).get(dtype)
    if dtype not in rates or not clock or not spec.units or not peak:
        return ""
    if abs(spec.units * rates[dtype] * clock * 1e6 / peak - 1) > 0.01:
        return ""
    return f"{spec.units:,} {spec.unit_kind or 'units'} × {rates[dtype]:,} FLOP per clock × {clock:,.0f} MHz"
