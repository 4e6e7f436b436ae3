"""Device limits as a reader writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.devices.expression import Expression, parse
from tb_sol_plugin.devices.limits import device_for, overridden
from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts

GIB = 2**30


def capture(*devices: DeviceProps, file: str = "x.json") -> Capture:
    frame = S.DEVICE.frame({"device": [0], "duration_ns": [10]})
    return Capture(Facts("torch", file, 1, devices=devices), {"device": frame} if devices else {})


H100 = capture(DeviceProps(0, "NVIDIA H100 80GB HBM3", 80 * GIB, "9.0", 132))


@pytest.mark.parametrize(
    ("text", "base", "clock", "sparse"),
    [
        ("", "", 0, False),
        ("H100_SXM", "H100_SXM", 0, False),
        ("H100_SXM@1410MHz", "H100_SXM", 1410, False),
        ("h100@1410", "h100", 1410, False),
        ("A100 @ 1.41 GHz", "A100 @ 1.41 GHz", -1, False),
        ("A100@1.41GHz", "A100", 1410, False),
        ("H100_SXM+sparse", "H100_SXM", 0, True),
        ("H100_SXM sparse", "H100_SXM", 0, True),
        ("H100_SXM@1410MHz+sparse", "H100_SXM", 1410, True),
        ("H100_SXM+sparse@1410mhz", "H100_SXM", 1410, True),
        ("NVIDIA H100 80GB HBM3+SPARSE", "NVIDIA H100 80GB HBM3", 0, True),
        ("@1410MHz", "", 1410, False),
        ("+sparse", "", 0, True),
        ("@1410MHz+sparse", "", 1410, True),
    ],
)
def test_forms(text: str, base: str, clock: float, sparse: bool) -> None:
    if clock < 0:
        with pytest.raises(BadQuery):
            parse(text)
    else:
        assert parse(text) == Expression(base, clock, sparse)


@pytest.mark.parametrize(
    "text",
    ["H100@", "H100@fast", "H100@0", "H100@-5MHz", "H100@1e3MHz", "H100@99999MHz", "@1410@1500", "+sparse+sparse", "H100+dense", "@nan", "+",
     "A" * 300],
)  # fmt: skip
def test_what_does_not_parse_says_how_to_write_it(text: str) -> None:
    with pytest.raises(BadQuery) as error:
        device_for(H100, text)
    assert error.value.field == "device_limits" and error.value.hint and error.value.status == 400


@given(st.text(max_size=300))
def test_any_text_gives_a_spec_or_a_clear_refusal(text: str) -> None:
    try:
        spec = device_for(H100, text)
    except BadQuery as error:
        assert error.message and error.hint
    else:
        assert spec is not None


def test_a_clock_scales_compute_and_nothing_else() -> None:
    # GIVEN the H100 at 915 MHz, half its tensor clock of 1830; its vector units run at 1980, FP64 matrix units too
    spec, whole = device_for(H100, "H100_SXM@915MHz"), table()["H100_SXM"]
    assert spec is not None
    assert spec.matrix["bf16"] == pytest.approx(989.4e12 / 2)
    assert spec.vector["fp32"] == pytest.approx(66.9e12 * 915 / 1980)
    assert spec.matrix["fp64"] == pytest.approx(132 * 256 * 915e6, rel=0.01)
    assert (spec.memory_bandwidth, spec.link_bytes_per_s) == (whole.memory_bandwidth, whole.link_bytes_per_s)
    assert spec.achievable("bf16") is None
    assert (spec.key, spec.name, spec.method) == ("H100_SXM@915MHz", "H100 SXM at 915 MHz", "override")
    assert spec.provenance["bf16_tensor_tflops"] == spec.provenance["fp32_vector_tflops"] == "derived"
    assert spec.provenance["mem_bw_gb_per_s"] == "third_party"
    assert "915 MHz" in spec.notes
    assert spec.fingerprint != whole.fingerprint


def test_a_clock_alone_changes_the_limits_as_recorded() -> None:
    spec = device_for(H100, "@915MHz")
    assert spec is not None and (spec.key, spec.method) == ("H100_SXM@915MHz", "exact")
    assert spec.matrix["bf16"] == pytest.approx(494.7e12)
    # a device that is not in the table, too: 108 SM x 2048 x 1000 MHz
    unknown = capture(DeviceProps(0, "NVIDIA A800-SXM4-80GB", 80 * GIB, "8.0", 108))
    found = device_for(unknown, "@1000MHz")
    assert found is not None and found.matrix["bf16"] == pytest.approx(108 * 2048 * 1e9)


def test_rows_with_one_clock_take_the_other_from_the_peak_and_rows_without_are_refused() -> None:
    b200 = device_for(H100, "B200@1855MHz")
    assert b200 is not None and b200.matrix["bf16"] == 2250e12
    assert b200.vector["fp32"] == pytest.approx(148 * 256 * 1855e6)
    for key in ("H20_96", "A10G"):
        with pytest.raises(BadQuery, match="no clock"):
            device_for(H100, f"{key}@1000MHz")


def test_sparse_doubles_the_matrix_peaks_that_have_such_a_mode() -> None:
    spec = device_for(H100, "+sparse")
    assert spec is not None
    assert spec.matrix["bf16"] == pytest.approx(2 * 989.4e12)
    assert spec.matrix["fp8"] == pytest.approx(2 * 1978.9e12)
    assert spec.matrix["fp64"] == 66.9e12 and spec.vector["fp32"] == 66.9e12
    assert spec.provenance["bf16_tensor_tflops"] == "derived" and not spec.is_unverified("bf16")
    # the factor of the A100 is not confirmed, so its sparse peaks are not either
    a100 = device_for(H100, "A100+sparse")
    assert a100 is not None and a100.provenance["bf16_tensor_tflops"] == "unverified" and a100.is_unverified("bf16")
    assert "sparse" in spec.name and "2:4" in spec.notes and spec.key == "H100_SXM+sparse"
    assert spec.achievable("bf16") is None
    both = device_for(H100, "+sparse@915MHz")
    assert both is not None and both.matrix["bf16"] == pytest.approx(989.4e12) and both.key == "H100_SXM@915MHz+sparse"


def test_the_key_of_an_expression_gives_the_same_limits_again() -> None:
    first = device_for(H100, "h100 sparse@1.2GHz")
    assert first is not None
    again = device_for(H100, first.key)
    assert again is not None and again.fingerprint == first.fingerprint


@pytest.mark.parametrize("key", ["V100", "MI300X", "B200", "GAUDI3"])
def test_sparse_peaks_only_where_the_row_offers_them(key: str) -> None:
    with pytest.raises(BadQuery, match="no sparse peaks"):
        device_for(H100, f"{key}+sparse")


def test_an_expression_without_a_device_stays_without_limits() -> None:
    assert device_for(capture(DeviceProps(0, "MTIA thing")), "@1000MHz") is None
    assert device_for(capture(), "+sparse") is None


def test_keys_are_found_by_alias_and_device_name_in_any_case() -> None:
    assert overridden("nvidia h200").key == "H200" and overridden("GaUdI3").key == "GAUDI3"
    for wrong in ("CPU", "", "NVIDIA H800", "../etc/passwd", "H100_SXM.json"):
        with pytest.raises(BadQuery):
            overridden(wrong)


@pytest.mark.parametrize(
    ("text", "host_bytes_per_s", "key"),
    [
        ("H100_SXM+pcie=4x8", 15.75e9, "H100_SXM+pcie=4x8"),  # 31.5 GB/s of generation 4, half of the lanes
        ("H100_SXM+pcie=4", 31.5e9, "H100_SXM+pcie=4x16"),
        ("h100 pcie=gen3x4", 15.75e9 / 4, "H100_SXM+pcie=3x4"),
        ("+pcie_gb_per_s=25", 25e9, "H100_SXM+pcie_gb_per_s=25"),
        ("@915MHz+sparse+PCIE=6x16", 121e9, "H100_SXM@915MHz+sparse+pcie=6x16"),
        ("+pcie=3x8@915MHz", 15.75e9 / 2, "H100_SXM@915MHz+pcie=3x8"),
        # a Grace superchip whose GPU is reached over PCIe: no more link inside of the package
        ("GH200+pcie=5x16", 63e9, "GH200_96+pcie=5x16"),
    ],
)
def test_a_reader_may_say_how_the_device_is_plugged_in(text: str, host_bytes_per_s: float, key: str) -> None:
    spec = device_for(H100, text)
    assert spec is not None
    assert (spec.pcie_bytes_per_s, spec.c2c_bytes_per_s, spec.key) == (pytest.approx(host_bytes_per_s), None, key)
    assert spec.provenance["pcie_gen"] == "user" and "asked for" in spec.notes and "PCIe" in spec.name
    # nothing else changes, and the key gives the same again
    assert spec.memory_bandwidth == table()[key.partition("+")[0].partition("@")[0]].memory_bandwidth
    again = device_for(H100, spec.key)
    assert again is not None and again.key == spec.key and again.pcie_bytes_per_s == spec.pcie_bytes_per_s


@pytest.mark.parametrize(
    "text",
    ["+pcie=", "+pcie=7x16", "+pcie=2x16", "+pcie=4x3", "+pcie=4x0", "+pcie=4x-8", "+pcie=x16", "+pcie_gb_per_s=0", "+pcie_gb_per_s=-5",
     "+pcie_gb_per_s=nan", "+pcie_gb_per_s=1e9", "+pcie=4x8+pcie=3x16", "+pcie=4x8+pcie_gb_per_s=20", "+link_gb_per_s=fast", "+bus=4"],
)  # fmt: skip
def test_a_slot_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(BadQuery) as error:
        device_for(H100, text)
    assert error.value.field == "device_limits" and error.value.hint


def test_the_rate_to_one_other_device() -> None:
    spec = device_for(H100, "+link_gb_per_s=100")
    assert spec is not None and spec.peer_bytes_per_s == 100e9 and spec.provenance["link_bidir_gb_per_s"] == "user"
    # over xGMI the device has seven links, one to each other board: 896 GB/s of both directions are 64 GB/s to one peer
    mi300 = table()["MI300X"]
    assert mi300.link_bytes_per_s == 448e9 and mi300.peer_bytes_per_s == 64e9
    slower = device_for(H100, "MI300X+link_gb_per_s=50")
    assert slower is not None and slower.peer_bytes_per_s == pytest.approx(50e9) and slower.link_bytes_per_s == pytest.approx(350e9)


def test_links_of_the_table() -> None:
    # GIVEN the rows THEN generation and lanes stand beside the rate, and Grace superchips have a link of 450 GB/s to their CPU
    h100, gh200, gb300 = (table()[k] for k in ("H100_SXM", "GH200_96", "GB300"))
    assert (h100.pcie_gen, h100.pcie_lanes, h100.pcie_bytes_per_s, h100.c2c_bytes_per_s) == (5, 16, 63e9, None)
    assert gh200.c2c_bytes_per_s == gb300.c2c_bytes_per_s == 450e9
