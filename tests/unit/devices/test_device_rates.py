"""Rates per generation, what derives from them, and figures that stand wrong in other tables."""

from __future__ import annotations

import pytest

from tb_sol_plugin.devices.catalog import by_name, raw_rows, table
from tb_sol_plugin.devices.limits import caution
from tb_sol_plugin.devices.match import match
from tb_sol_plugin.devices.rates import CLOCKS_MHZ, ORIGINS, RATES, SOURCES, arithmetic, clock_of, figures, generation_of
from tb_sol_plugin.devices.spec import DeviceProps

GIB = 2**30
# dense FLOP per unit and clock as whitepapers give them, written out once more: (FP64, FP32 vector), matrix types
WHITEPAPERS = {
    "7.0": ((64, 128), {"fp16": 1024}),
    "8.0": ((64, 128), {"fp64": 128, "tf32": 1024, "fp16": 2048, "bf16": 2048, "int8": 4096}),
    "8.6": ((4, 256), {"tf32": 512, "fp16": 1024, "bf16": 1024, "int8": 2048}),
    "8.9": ((4, 256), {"tf32": 512, "fp16": 1024, "bf16": 1024, "fp8": 2048, "int8": 2048}),
    "9.0": ((128, 256), {"fp64": 256, "tf32": 2048, "fp16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192}),
    "10.0": ((128, 256), {"tf32": 4096, "fp16": 8192, "bf16": 8192, "fp8": 16384, "fp4": 32768}),
    "cdna2": ((128, 128), {"fp64": 256, "fp32": 256, "fp16": 1024, "bf16": 1024, "int8": 1024}),
    "cdna3": ((128, 256), {"fp64": 256, "tf32": 1024, "fp16": 2048, "bf16": 2048, "fp8": 4096}),
    "cdna4": ((128, 256), {"fp16": 4096, "bf16": 4096, "fp8": 8192, "fp4": 16384}),
}


@pytest.mark.parametrize("generation", list(WHITEPAPERS))
def test_rates_of_a_generation(generation: str) -> None:
    (fp64, fp32), matrix = WHITEPAPERS[generation]
    assert RATES[generation] == ({"fp64": fp64, "fp32": fp32}, matrix)


@pytest.mark.parametrize("generation", [g for g in RATES if g.endswith("g")])
def test_geforce_parts_multiply_at_half_the_rate_with_fp32_accumulation(generation: str) -> None:
    # GIVEN the rates of a generation THEN its GeForce part has the same vector units, and half of FP16, BF16, TF32 and FP8
    base_vector, base = RATES[generation[:-1]]
    vector, matrix = RATES[generation]
    assert vector == base_vector and vector["fp64"] == 4
    for dtype in set(base) - {"int8"}:
        assert matrix[dtype] * 2 == base[dtype]


def test_a_guessed_clock_is_the_lowest_of_its_generation() -> None:
    clocks: dict[str, set[float]] = {}
    for spec in table().values():
        clocks.setdefault(generation_of(spec), set()).update(c for c in (spec.boost_tensor_mhz, spec.boost_vector_mhz) if c)
    for generation, clock in CLOCKS_MHZ.items():
        near = clocks.get(generation) or clocks.get(generation + "g") or clocks[generation.removesuffix("g")]
        assert clock == min(near), generation


def test_figures_that_stand_wrong_elsewhere() -> None:
    rows = table()
    assert rows["H100_SXM"].matrix["bf16"] == 989.4e12  # not the sparse 1979
    assert rows["H100_SXM"].vector["fp32"] == 66.9e12  # not halved with the sparse ones to 33.5
    assert rows["L4"].memory_bandwidth == 300e9  # not 3350 GB/s
    assert rows["A10"].matrix["bf16"] == 125e12  # 72 SM x 1024 x 1695 MHz; 512 is the GeForce rate
    assert by_name()["h100"] == "H100_SXM" and rows["H100_SXM"].units == 132  # not the PCIe bin of 114
    assert rows["RTX_4090"].matrix["fp16"] == 165.2e12 and rows["RTX_4090"].matrix["fp8"] == 330.3e12
    assert RATES["10.0"][0] == {"fp64": 128, "fp32": 256}  # 148 is the number of SMs
    for spec in rows.values():  # sparse is never stored as a dense peak: BF16 is at most twice TF32 and half of FP8
        if "fp8" in spec.matrix and spec.vendor != "intel":
            assert spec.matrix["bf16"] == pytest.approx(spec.matrix["fp8"] / 2, rel=0.02), spec.key


def test_nothing_empty_became_zero() -> None:
    for key, row in raw_rows().items():
        spec = table()[key]
        numbers = [*spec.matrix.values(), *spec.vector.values(), spec.memory_bandwidth, spec.memory_bytes, spec.achievable_bf16]
        assert all(n is None or n > 0 for n in numbers), key
        assert ("bf16" in spec.matrix) == bool(row["bf16_tensor_tflops"])


def test_derived_peaks_say_how_they_come_about() -> None:
    rows = table()
    assert arithmetic(rows["H100_SXM"], "bf16", vector=False) == "132 SM × 4,096 FLOP per clock × 1,830 MHz"
    assert arithmetic(rows["H100_SXM"], "fp64", vector=False) == "132 SM × 256 FLOP per clock × 1,980 MHz"
    assert arithmetic(rows["MI300X"], "bf16", vector=False) == "304 CU × 2,048 FLOP per clock × 2,100 MHz"
    assert arithmetic(rows["L40S"], "bf16", vector=False) == ""  # published 362, which the arithmetic misses by 1.2 %
    assert arithmetic(rows["H20_96"], "bf16", vector=False) == ""  # a capped part


def test_a_clock_that_the_row_leaves_out_follows_from_the_peak() -> None:
    # GIVEN B200: 75 TFLOP/s FP32 on 148 SMs of 256 FLOP per clock, vector clock not given THEN 75e12 / (148 x 256) = 1979.5 MHz
    assert clock_of(table()["B200"], "fp32", vector=True) == pytest.approx(75e12 / (148 * 256) / 1e6)
    assert clock_of(table()["B200"], "bf16", vector=False) == 1855
    assert clock_of(table()["H20_96"], "bf16", vector=False) is None


def test_figures_carry_unit_and_origin() -> None:
    found = {f.name: f for f in figures(table()["H100_SXM"])}
    bf16, bandwidth, link = found["bf16_tensor_tflops"], found["mem_bw_gb_per_s"], found["link_bidir_gb_per_s"]
    assert (bf16.label, bf16.value, bf16.unit, bf16.provenance) == ("BF16 matrix", 989.4e12, "FLOP/s", "derived")
    assert "4,096" in bf16.source
    assert (bandwidth.value, bandwidth.unit, bandwidth.provenance, bandwidth.source) == (3350e9, "B/s", "third_party", "public H100 notes")
    assert (link.label, link.value) == ("NVLink, one way", 450e9)
    assert "mem_gb" not in found and "l2_mb" not in found
    assert not any(f.unverified for f in found.values())
    assert {f.name for f in figures(table()["H100_PCIE"]) if f.unverified} == {"link_bidir_gb_per_s"}
    assert found["boost_tensor_mhz"].value == 1830 and found["boost_tensor_mhz"].unit == "MHz"
    assert found["achievable_bf16_tflops"].value == 794e12


def test_every_figure_of_the_table_has_a_known_origin() -> None:
    for spec in table().values():
        for figure in figures(spec):
            assert figure.provenance in ORIGINS and figure.value > 0, (spec.key, figure)
        assert set(spec.sources) <= set(SOURCES)
    everything = {f.name for f in figures(table()["H200_NVL"]) if f.provenance != "unverified"}
    assert everything <= {"pcie_gen"}


def test_the_achievable_rate_is_of_bf16_and_of_what_runs_as_fast() -> None:
    h100 = table()["H100_SXM"]
    assert (h100.achievable("bf16"), h100.achievable("fp16"), h100.achievable("fp8"), h100.achievable("fp32")) == (
        794e12,
        794e12,
        None,
        None,
    )
    assert table()["H200"].achievable("bf16") is None


@pytest.mark.parametrize(
    ("name", "gib", "capability", "units", "key"),
    [
        ("AMD Instinct MI250X / MI250", 64.0, "9.0", 110, "MI250X_GCD"),
        ("AMD Instinct MI250X", 0, "", 0, "MI250X_GCD"),
        ("AMD Instinct MI250X OAM", 0, "", 0, "MI250X_GCD"),
        ("NVIDIA H100 SXM5 80GB", 79.2, "9.0", 132, "H100_SXM"),
        ("NVIDIA H200 NVL", 140.4, "9.0", 132, "H200_NVL"),
        ("NVIDIA GB200", 185.0, "10.0", 152, "GB200"),
        ("NVIDIA B300 SXM6 AC", 268.0, "10.3", 148, "B300"),
        ("Tesla V100-SXM2-16GB-N", 15.8, "7.0", 80, "V100_SXM2_16"),
        ("nvidia_l40s", 44.5, "8.9", 142, "L40S"),
        ("NVIDIA(R) A100(TM) PCIE 80GB", 79.2, "8.0", 108, "A100_PCIE_80"),
    ],
)
def test_more_names(name: str, gib: float, capability: str, units: int, key: str) -> None:
    spec = match(DeviceProps(0, name, int(gib * GIB), capability, units))
    assert spec is not None and spec.key == key


@pytest.mark.parametrize("name", ["NVIDIA GeForce RTX 4090 Laptop GPU", "NVIDIA GeForce RTX 3090 Ti", "NVIDIA GeForce RTX 4090 D"])
def test_another_part_of_the_same_number_is_none_even_where_nothing_else_was_recorded(name: str) -> None:
    assert match(DeviceProps(0, name)) is None


def test_a_token_match_with_another_compute_capability_is_rejected() -> None:
    spec = match(DeviceProps(0, "NVIDIA H100 80GB HBM3", 80 * GIB, "8.0", 132))
    assert spec is not None and (spec.key, spec.method) == ("unknown", "derived")


def test_an_unknown_geforce_has_the_geforce_rates_and_a_banner() -> None:
    # GIVEN an RTX 4080: 76 SMs of CC 8.9; THEN 76 x 512 x 2520 MHz BF16, no bandwidth, every figure derived, and how to do better
    spec = match(DeviceProps(0, "NVIDIA GeForce RTX 4080", 16 * GIB, "8.9", 76))
    assert spec is not None and spec.memory_bandwidth is None
    assert spec.matrix["bf16"] == 76 * 512 * 2520e6
    assert {f.provenance for f in figures(spec)} == {"derived"}
    said = caution(spec)
    assert "NVIDIA GeForce RTX 4080" in said and "derived" in said and "--sol_device" in said and "sol_devices.json" in said
    assert caution(table()["H100_SXM"]) == "" and caution(None) == ""


def test_generations_whose_rates_are_not_known_have_no_roof_of_that_kind() -> None:
    # a professional Blackwell board: the matrix rates known for CC 12.0 are those of GeForce parts
    spec = match(DeviceProps(0, "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 95 * GIB, "12.0", 188))
    assert spec is not None and spec.matrix == {} and spec.vector["fp32"] == 188 * 256 * 2407e6
    # an MI100 reports the capability of an MI200, but is of the generation before
    assert match(DeviceProps(0, "AMD Instinct MI100", 32 * GIB, "9.0", 120, 64)) is None
    assert match(DeviceProps(0, "NVIDIA Tesla P100-PCIE-16GB", 16 * GIB, "6.0", 56)) is None


def test_unnamed_amd_boards_need_one_row_that_agrees_in_everything() -> None:
    found = match(DeviceProps(0, "AMD Radeon Graphics", 256 * GIB, "9.4", 304, 64))
    assert found is not None and (found.key, found.method) == ("MI325X", "derived") and "MI325X" in caution(found)
    # MI350X and MI355X agree in units and memory: neither is taken, the peaks follow from the generation
    either = match(DeviceProps(0, "AMD Radeon Graphics", 288 * GIB, "9.5", 256, 64))
    assert either is not None and either.key == "unknown" and either.matrix["bf16"] == 256 * 4096 * 2200e6


@pytest.mark.parametrize(
    ("name", "units", "gib", "compute", "bandwidth"),
    [
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", 14, 9.5, 14 / 108, 9.5 / 80),
        ("NVIDIA H100 80GB HBM3 MIG 7g.80gb", 132, 79.2, 1.0, 79.2 / 80),
        ("NVIDIA H100 80GB HBM3 MIG 3g.40gb", 60, 39.4, 60 / 132, 39.4 / 80),
    ],
)
def test_slices(name: str, units: int, gib: float, compute: float, bandwidth: float) -> None:
    spec = match(DeviceProps(0, name, int(gib * GIB), "", units))
    whole = table()["A100_SXM_80" if "A100" in name else "H100_SXM"]
    assert spec is not None and whole.memory_bandwidth is not None
    assert spec.matrix["bf16"] == pytest.approx(whole.matrix["bf16"] * compute)
    assert spec.vector["fp32"] == pytest.approx(whole.vector["fp32"] * compute)
    assert spec.memory_bandwidth == pytest.approx(whole.memory_bandwidth * bandwidth)
    assert set(spec.provenance.values()) == {"derived"} and spec.achievable("bf16") is None and "slice" in caution(spec)


def test_a_slice_without_recorded_sizes_has_no_limits_that_could_be_wrong() -> None:
    spec = match(DeviceProps(0, "NVIDIA A100-SXM4-80GB MIG 1g.10gb"))
    assert spec is not None and spec.matrix == {} and spec.vector == {} and spec.memory_bandwidth is None
    assert match(DeviceProps(0, "NVIDIA H800 MIG 1g.10gb", 10 * GIB, "9.0", 16)) is None
