"""The device table and the matching of recorded devices."""

from __future__ import annotations

import csv
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.devices import catalog as device_table
from tb_sol_plugin.devices.catalog import by_name, known_keys, table
from tb_sol_plugin.devices.limits import device_for, overridden, why_no_limits
from tb_sol_plugin.devices.match import match
from tb_sol_plugin.devices.rates import RATES
from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

GIB = 2**30
# clocks and rates, written out once more so that a slip in the package shows: units, tensor MHz, FLOP per unit and clock
DERIVED = {
    ("V100_SXM2_32", "fp16"): (80, 1530, 1024), ("T4", "fp16"): (40, 1590, 1024), ("T4", "int8"): (40, 1590, 2048),
    ("A10", "bf16"): (72, 1695, 1024), ("A10", "tf32"): (72, 1695, 512), ("A30", "bf16"): (56, 1440, 2048),
    ("A100_SXM_80", "bf16"): (108, 1410, 2048), ("A100_SXM_80", "tf32"): (108, 1410, 1024), ("A100_SXM_80", "fp64"): (108, 1410, 128),
    ("A100_SXM_80", "int8"): (108, 1410, 4096), ("L4", "bf16"): (58, 2040, 1024), ("L4", "fp8"): (58, 2040, 2048),
    ("RTX_3090", "bf16"): (82, 1695, 512), ("RTX_4090", "bf16"): (128, 2520, 512), ("RTX_4090", "fp8"): (128, 2520, 1024),
    ("RTX_5090", "bf16"): (170, 2407, 512), ("RTX_5090", "fp4"): (170, 2407, 4096), ("H100_SXM", "bf16"): (132, 1830, 4096),
    ("H100_SXM", "tf32"): (132, 1830, 2048), ("H100_SXM", "fp8"): (132, 1830, 8192), ("H100_PCIE", "bf16"): (114, 1620, 4096),
    ("H200", "bf16"): (132, 1830, 4096), ("B200", "bf16"): (148, 1855, 8192), ("B200", "fp4"): (148, 1855, 32768),
    ("MI250X_GCD", "bf16"): (110, 1700, 1024), ("MI210", "bf16"): (104, 1700, 1024), ("MI210", "fp64"): (104, 1700, 256), ("MI300X", "bf16"): (304, 2100, 2048), ("MI300X", "tf32"): (304, 2100, 1024),
    ("MI300X", "fp8"): (304, 2100, 4096), ("MI355X", "bf16"): (256, 2400, 4096), ("GAUDI3", "bf16"): (8, 1750, 131072),
}  # fmt: skip


@pytest.mark.parametrize(("key", "dtype"), list(DERIVED))
def test_matrix_peaks_follow_from_units_rate_and_clock(key: str, dtype: str) -> None:
    units, clock, rate = DERIVED[key, dtype]
    assert table()[key].matrix[dtype] == pytest.approx(units * clock * 1e6 * rate, rel=0.01)


def test_every_derived_row_agrees_with_the_rates_of_its_generation() -> None:
    # GIVEN every row marked derived with a clock and units; WHEN its matrix peaks are derived; THEN they agree within 1 %
    # (FP64 runs at the vector clock) but for two published figures: L40S FP16 and BF16, 362 against 366.4
    with (Path(device_table.__file__).parent / "devices.csv").open(encoding="utf-8") as file:
        rows = {row["key"]: row for row in csv.DictReader(file)}
    seen, off = 0, []
    for key, spec in table().items():
        generation = spec.arch if spec.vendor == "amd" else spec.compute_capability
        generation += "g" if key.startswith("RTX") and generation + "g" in RATES else ""
        if generation not in RATES or not rows[key]["provenance"].startswith("derived") or not rows[key]["boost_tensor_mhz"]:
            continue
        for dtype, rate in RATES[generation][1].items():
            if dtype not in spec.matrix:
                continue
            seen += 1
            clock = rows[key]["boost_vector_mhz" if dtype == "fp64" else "boost_tensor_mhz"]
            derived = int(rows[key]["units_count"]) * float(clock) * 1e6 * rate
            if abs(spec.matrix[dtype] / derived - 1) > 0.01:
                off.append((key, dtype))
    assert off == [("L40S", "fp16"), ("L40S", "bf16")]
    assert seen >= 60


def test_dense_not_sparse_and_other_figures_often_wrong_elsewhere() -> None:
    t = table()
    assert t["H100_SXM"].matrix["bf16"] == 989.4e12
    assert t["H100_SXM"].vector["fp32"] == 66.9e12
    assert t["L4"].memory_bandwidth == 300e9
    assert t["RTX_4090"].matrix["bf16"] == 165.2e12
    assert t["H100_SXM"].link_bytes_per_s == 450e9
    assert t["H100_SXM"].pcie_bytes_per_s == 63e9
    assert t["H100_SXM"].achievable_bf16 == 794e12
    assert (RATES["10.0"][0]["fp64"], RATES["10.0"][0]["fp32"], RATES["8.6"][0]["fp64"], RATES["7.5"][0]["fp64"]) == (128, 256, 4, 4)


def test_names_and_aliases_are_unique_and_the_table_is_whole() -> None:
    names = [n.lower() for s in table().values() for n in (s.key, *s.aliases) if n]
    assert len(table()) == 41
    assert {n for n in names if names.count(n) > 1} <= {"gaudi2", "gaudi3"}
    device_names = [n for s in table().values() for n in s.device_names]
    assert len(device_names) == len(set(device_names))
    assert "CPU" not in known_keys()
    assert by_name()["a100"] == "A100_SXM_80"


def test_peak_falls_back_to_the_vector_units_and_is_unknown_where_the_hardware_lacks_the_type() -> None:
    t = table()
    assert t["H100_SXM"].matrix_peak("fp32") == 66.9e12
    assert t["T4"].matrix_peak("fp64") == 0.25e12
    assert t["V100_SXM2_16"].matrix_peak("bf16") is None
    assert t["V100_SXM2_16"].matrix_peak("tf32") == 15.7e12
    assert t["MI250X"].matrix_peak("fp32") == 95.7e12
    assert t["H100_SXM"].vector_peak("bf16") == 66.9e12
    assert t["H100_SXM"].matrix_peak("complex64") is None


def test_the_fingerprint_follows_the_content() -> None:
    # GIVEN two objects of equal content, and one that differs in a single figure
    spec = table()["H100_SXM"]
    other = msgspec.structs.replace(spec, matrix={**spec.matrix, "bf16": 900e12})
    reordered = msgspec.structs.replace(spec, matrix=dict(reversed(spec.matrix.items())))
    # THEN equal content has equal fingerprints, whatever was asked of the object before
    assert spec.fingerprint == msgspec.structs.replace(spec).fingerprint == reordered.fingerprint
    assert other.fingerprint != spec.fingerprint
    assert msgspec.structs.replace(spec, method="override").fingerprint != spec.fingerprint


def test_provenance_names_where_a_figure_is_from() -> None:
    t = table()
    assert t["H100_SXM"].provenance["bf16_tensor_tflops"] == "derived"
    assert t["H100_SXM"].provenance["mem_bw_gb_per_s"] == "third_party"
    assert t["A10G"].provenance["bf16_tensor_tflops"] == "unverified"
    assert t["A10G"].is_unverified("bf16")
    assert t["H200_NVL"].provenance["mem_bw_gb_per_s"] == "unverified"


@pytest.mark.parametrize(
    ("name", "gib", "capability", "units", "key", "method"),
    [
        ("NVIDIA H100 80GB HBM3", 79.2, "9.0", 132, "H100_SXM", "exact"),
        ("NVIDIA H100", 79.2, "9.0", 114, "H100_PCIE", "units"),
        ("NVIDIA H100 NVL", 93.1, "9.0", 132, "H100_NVL", "exact"),
        ("NVIDIA H20", 95.6, "9.0", 78, "H20_96", "exact"),
        ("NVIDIA H20", 140.0, "9.0", 78, "H20_141", "memory"),
        ("NVIDIA H200", 139.8, "9.0", 132, "H200", "exact"),
        ("NVIDIA GH200 480GB", 95.0, "9.0", 132, "GH200_96", "memory"),
        ("NVIDIA L40S", 44.5, "8.9", 142, "L40S", "exact"),
        ("NVIDIA A10", 22.5, "8.6", 72, "A10", "exact"),
        ("NVIDIA A100-SXM4-40GB", 39.4, "8.0", 108, "A100_SXM_40", "exact"),
        ("NVIDIA A100-PG509-200", 39.4, "8.0", 108, "A100_SXM_40", "memory"),
        ("Tesla V100-DGXS-32GB", 31.7, "7.0", 80, "V100_SXM2_32", "memory"),
        ("NVIDIA B200", 178.4, "10.0", 148, "B200", "exact"),
        ("AMD Instinct MI300X VF", 191.4, "9.4", 304, "MI300X", "token"),
        ("AMD Instinct MI250X", 64.0, "9.0", 110, "MI250X_GCD", "exact"),
        ("AMD Instinct MI210", 64.0, "9.0", 104, "MI210", "exact"),
    ],
)
def test_real_names_find_their_row(name: str, gib: float, capability: str, units: int, key: str, method: str) -> None:
    spec = match(DeviceProps(0, name, int(gib * GIB), capability, units))
    assert spec is not None
    assert (spec.key, spec.method) == (key, method)


@pytest.mark.parametrize(
    ("name", "gib", "capability", "units"),
    [
        ("NVIDIA H800", 79.2, "9.0", 132),
        ("NVIDIA A800-SXM4-80GB", 79.2, "8.0", 108),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", 16.0, "8.9", 76),
        ("NVIDIA GeForce RTX 3090 Ti", 24.0, "8.6", 84),
        ("AMD Instinct MI308X", 191.9, "9.4", 80),
    ],
)
def test_a_device_that_is_not_in_the_table_is_never_its_neighbor(name: str, gib: float, capability: str, units: int) -> None:
    spec = match(DeviceProps(0, name, int(gib * GIB), capability, units))
    assert spec is not None
    assert (spec.key, spec.method, spec.memory_bandwidth) == ("unknown", "derived", None)


def test_unknown_device_derives_from_its_generation() -> None:
    # GIVEN a CDNA2 board of 104 units and a memory that no row of the table has; THEN 104 x 1024 x 1700 MHz
    spec = match(DeviceProps(0, "AMD Radeon Graphics", 32 * GIB, "9.0", 104, 64))
    assert spec is not None
    assert (spec.key, spec.memory_bandwidth) == ("unknown", None)
    assert spec.matrix["bf16"] == 104 * 1024 * 1700e6
    # and without a generation there is nothing to say
    assert match(DeviceProps(0, "Some Accelerator", 64 * GIB, "", 104)) is None


def test_an_mi210_has_the_limits_that_amd_states() -> None:
    # GIVEN AMD's figures of the MI210: 104 units at 1.7 GHz, 64 GB of HBM2e at 1.6 TB/s, three links of 100 GB/s
    spec = match(DeviceProps(0, "AMD Instinct MI210", 68_702_699_520, "9.0", 104, 64))
    assert spec is not None and spec.key == "MI210"
    # THEN its peaks: 22.6 FP64 and FP32, 45.3 as matrices, 181 FP16, BF16 and INT8 (TFLOPS); TF32 and FP8 it lacks
    assert (spec.vector["fp64"], spec.vector["fp32"]) == (22.6e12, 22.6e12)
    assert (spec.matrix["fp64"], spec.matrix["fp32"], spec.matrix["fp16"], spec.matrix["bf16"], spec.matrix["int8"]) == (
        45.3e12, 45.3e12, 181e12, 181e12, 181e12,
    )  # fmt: skip
    assert spec.matrix_peak("fp8") is None and {"tf32", "fp8", "fp4"} == set(spec.unsupported)
    assert (spec.memory_bandwidth, spec.memory_bytes, spec.link_bytes_per_s) == (1638e9, 64 * GIB, 150e9)
    # AND a board without a name that has its units and memory gets its limits, marked; a die of an MI250 has the same
    unnamed = match(DeviceProps(0, "AMD Radeon Graphics", 68_702_699_520, "9.0", 104, 64))
    assert unnamed is not None
    assert (unnamed.key, unnamed.method, unnamed.memory_bandwidth) == ("MI210", "derived", 1638e9)
    assert spec.name == "MI210" and unnamed.name == "MI210 or MI250 die" and "MI250" in unnamed.notes
    # AND one that is named otherwise is not taken for it
    other = match(DeviceProps(0, "AMD Instinct MI250X / MI250", 68_702_699_520, "9.0", 104, 64))
    assert other is not None and other.key == "unknown"


def test_unnamed_amd_board_is_found_by_units_and_memory() -> None:
    spec = match(DeviceProps(0, "", 206_141_652_992, "9.4", 304, 64))
    assert spec is not None
    assert (spec.key, spec.method) == ("MI300X", "derived")


def test_a_slice_of_a_device_gets_its_share() -> None:
    # GIVEN 14 of 108 SMs and 10 of 80 GiB; THEN 14/108 of the peak and 1/8 of the bandwidth
    spec = match(DeviceProps(0, "NVIDIA A100-SXM4-80GB MIG 1g.10gb", 10 * GIB, "8.0", 14))
    assert spec is not None
    assert spec.matrix["bf16"] == pytest.approx(312e12 * 14 / 108)
    assert spec.memory_bandwidth == pytest.approx(2039e9 / 8)
    assert spec.method == "derived"


def test_override_wins_and_a_wrong_one_says_what_there_is() -> None:
    spec = overridden("a100")
    assert spec is not None
    assert (spec.key, spec.method) == ("A100_SXM_80", "override")
    with pytest.raises(BadQuery) as error:
        overridden("H999")
    assert error.value.field == "device_limits"
    assert "H100_SXM" in error.value.hint
    with pytest.raises(BadQuery):
        overridden("CPU")


def _capture(devices: tuple[DeviceProps, ...], ids: list[int], durations: list[int]) -> Capture:
    frame = S.DEVICE.frame({"device": ids, "duration_ns": durations})
    return Capture(Facts("torch", "x.json", 1, devices=devices), {"device": frame})


def test_device_for_takes_the_busiest_recorded_device() -> None:
    devices = (DeviceProps(0, "NVIDIA L4", 24 * GIB, "8.9", 58), DeviceProps(1, "NVIDIA B200", 180 * GIB, "10.0", 148))
    spec = device_for(_capture(devices, [0, 1, 1], [5, 10, 20]))
    assert spec is not None
    assert spec.key == "B200"


def test_without_device_work_there_are_no_limits_and_a_reason() -> None:
    capture = Capture(Facts("torch", "x.json", 1, devices=(DeviceProps(0, "NVIDIA L4"),)), {})
    assert device_for(capture) is None
    assert "CPU" in why_no_limits(capture)
    unnamed = _capture((DeviceProps(0, "MTIA thing"),), [0], [5])
    assert device_for(unnamed) is None
    assert "MTIA thing" in why_no_limits(unnamed)
    assert np.isfinite(len(why_no_limits(_capture((), [0], [5]))))
