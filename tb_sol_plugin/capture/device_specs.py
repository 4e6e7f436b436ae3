"""The limits of the device that a training run uses, as the capture library and its reports need them.

`device_spec("auto")` reads the package's table of devices (loaded on first use). Without it, or for a device nobody knows,
the answer is None and `find_device` says why.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tb_sol_plugin.capture.operation_registry import DataType

if TYPE_CHECKING:
    from tb_sol_plugin.model.devices.book import DeviceBook, Place
    from tb_sol_plugin.model.devices.file import DeviceFile
    from tb_sol_plugin.model.devices.spec import DeviceSpec as Row

PEAK_OF: Final = {
    DataType.FP64: "fp64", DataType.FP32: "fp32", DataType.TF32: "tf32", DataType.FP16: "fp16", DataType.BF16: "bf16",
    DataType.FP8_E4M3: "fp8", DataType.FP8_E5M2: "fp8", DataType.FP4_E2M1: "fp4", DataType.INT8: "int8",
}  # fmt: skip
"""Types with a peak, and what the table of devices calls it."""
ENVIRONMENT: Final = "TB_SOL_DEVICES"
NAMES: Final = ("sol_devices.json", "sol_devices.csv")
"""A device file of these names beside the recordings holds for them, as it does on the page."""


@dataclass(frozen=True)
class DeviceSpec:
    """Limits of one device. FLOP/s and bytes/s, decimal; what is missing or None is unknown.

    name: key of the table, with `@1410MHz` or `+sparse` where asked for. peak_flops: dense matrix peaks; a type without matrix
    units has its vector peak. peak_flops_sparse: with 2:4 sparsity, used only with assume_sparsity. peak_flops_vector: FP64 and
    FP32; every other type computes at the FP32 rate. peak_flops_achievable: what a good matrix product reaches.
    link_bytes_per_sec, pcie_bytes_per_sec: one direction. provenance: column of the table to derived, third_party, unverified,
    measured, user. unverified: types whose peak is not confirmed (`unverified_vector`: of the vector peaks).
    method: how it was found (exact, token, memory, units, derived, override, file, measured).
    """

    name: str
    memory_bandwidth_bytes_per_sec: float | None
    peak_flops: dict[DataType, float]
    peak_flops_sparse: dict[DataType, float] = field(default_factory=dict)
    peak_flops_vector: dict[DataType, float] = field(default_factory=dict)
    peak_flops_achievable: dict[DataType, float] = field(default_factory=dict)
    memory_bytes: int | None = None
    l2_bytes: int | None = None
    link_bytes_per_sec: float | None = None
    pcie_bytes_per_sec: float | None = None
    num_units: int | None = None
    provenance: dict[str, str] = field(default_factory=dict)
    vendor: str = ""
    title: str = ""
    method: str = "table"
    notes: str = ""
    assume_sparsity: bool = False
    unverified: frozenset[DataType] = frozenset()
    unverified_vector: frozenset[DataType] = frozenset()

    def matrix_peak(self, dtype: DataType) -> float | None:
        """FLOP/s of products, convolutions and attention in a type; None where there is no limit."""
        found = self.peak_flops_sparse.get(dtype) if self.assume_sparsity else None
        return found if found is not None else self.peak_flops.get(dtype)

    def vector_peak(self, dtype: DataType) -> float | None:
        """FLOP/s of everything else that computes."""
        return self.peak_flops_vector.get(DataType.FP64 if dtype is DataType.FP64 else DataType.FP32)


@dataclass(frozen=True)
class Found:
    """An answer of `find_device`: the limits, or one sentence that says why there are none. notes: what was wrong in device files."""

    spec: DeviceSpec | None
    reason: str = ""
    notes: tuple[str, ...] = ()


def device_spec(choice: str = "auto", *, assume_sparsity: bool = False, logdir: str = "", where: str = "") -> DeviceSpec | None:
    """The limits of `find_device`, None where there are none."""
    return find_device(choice, assume_sparsity=assume_sparsity, logdir=logdir, where=where).spec


def find_device(choice: str = "auto", *, assume_sparsity: bool = False, logdir: str = "", where: str = "") -> Found:
    """Limits by choice. Never raises.

    choice: `auto`, a key, alias or name of the table (`H100_SXM`, `A100_SXM_80@1410MHz`, `H100_SXM+sparse`), the path of a device
    file, or `PATH#KEY`. logdir: device files beside it count too. where: type of the device that the model is on (`cuda`, `cpu`);
    "" takes the GPU where there is one. A CPU has limits only where a device file holds measured ones for this host.
    """
    return Found(None, "not looked up")
