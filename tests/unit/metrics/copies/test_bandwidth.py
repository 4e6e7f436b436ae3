"""Limits of links, and what copies say about them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.devices.catalog import table
from tb_sol_plugin.devices.limits import overridden
from tb_sol_plugin.devices.spec import DeviceSpec
from tb_sol_plugin.metrics.copies import bandwidth

MIB = 1 << 20
GEN4 = DeviceSpec(key="x", name="x", memory_bandwidth=2e12, l2_bytes=40 * MIB, pcie_bytes_per_s=31.5e9, pcie_gen=4, pcie_lanes=16,
                  link_bytes_per_s=300e9, link_kind="nvlink")  # fmt: skip


def large(rate_gb: float, *, direction: str = "HtoD", src: str = "Pinned", dst: str = "Device", size: int = 64 * MIB, count: int = 4) -> pd.DataFrame:
    """Some copies of one size at one rate, to the nanosecond."""
    return pd.DataFrame({
        "direction": direction, "src_kind": src, "dst_kind": dst, "bytes": [size] * count, "duration_ns": round(size / rate_gb) // 10 * 10 + 1,
    })  # fmt: skip


def say(found: pd.DataFrame, spec: DeviceSpec = GEN4) -> list[tuple[str, str]]:
    return [(e.direction, e.verdict) for e in bandwidth.evidence(found, bandwidth.peaks(spec), spec)]


# -- limits ---------------------------------------------------------------------------------------------------


def test_a_copy_on_the_device_reads_and_writes_each_byte() -> None:
    found = bandwidth.peaks(GEN4)
    assert found["DtoD"] == (1e12, "memory / 2") and found["Memset"] == (2e12, "memory")
    assert found["HtoD"] == found["DtoH"] == (31.5e9, "PCIe 4.0 x16")
    assert found["PtoP"] == (300e9, "NVLink") and "HtoH" not in found and "Unknown" not in found
    assert bandwidth.peaks(None) == {}


@pytest.mark.parametrize(
    ("key", "host", "peer"),
    [
        ("V100_SXM2_32", (15.75e9, "PCIe 3.0 x16"), (150e9, "NVLink")),
        ("A100_SXM_80", (31.5e9, "PCIe 4.0 x16"), (300e9, "NVLink")),
        ("H100_SXM", (63e9, "PCIe 5.0 x16"), (450e9, "NVLink")),
        ("B200", (63e9, "PCIe 5.0 x16"), (900e9, "NVLink")),
        ("B300", (121e9, "PCIe 6.0 x16"), (900e9, "NVLink")),
        ("GH200_96", (450e9, "C2C"), (450e9, "NVLink")),
        ("GB200", (450e9, "C2C"), (900e9, "NVLink")),
        ("GB300", (450e9, "C2C"), (900e9, "NVLink")),
        ("MI300X", (63e9, "PCIe 5.0 x16"), (64e9, "xGMI, one link")),
        ("L4", (31.5e9, "PCIe 4.0 x16"), (31.5e9, "PCIe 4.0 x16")),  # no link of its own: peers talk over PCIe
        ("GAUDI3", (63e9, "PCIe 5.0 x16"), (600e9, "RoCE")),
    ],
)  # fmt: skip
def test_limits_come_from_the_columns_of_the_device_table(key: str, host: tuple[float, str], peer: tuple[float, str]) -> None:
    # one direction, GB/s: PCIe of 16 lanes 15.75, 31.5, 63 and 121 by generation; half of what NVLink moves both ways
    found = bandwidth.peaks(overridden(key))
    assert found["HtoD"] == found["DtoH"] == host
    assert found["PtoP"] == peer
    spec = table()[key]
    assert found["DtoD"][0] == spec.memory_bandwidth / 2 and found["Memset"][0] == spec.memory_bandwidth


def test_every_row_of_the_table_names_the_column_of_each_limit() -> None:
    for spec in table().values():
        assert set(bandwidth.peaks(spec)) <= set(bandwidth.columns(spec)) | {"HtoD"}
    assert bandwidth.columns(table()["GB200"])["HtoD"] == "c2c_bidir_gb_per_s" and bandwidth.columns(GEN4)["HtoD"] == "pcie_gen"
    assert bandwidth.columns(table()["L4"])["PtoP"] == "pcie_gen"


def test_limits_given_as_a_rate_have_no_generation() -> None:
    assert bandwidth.peaks(DeviceSpec(key="x", name="x", pcie_bytes_per_s=25e9)) == {"HtoD": (25e9, "PCIe"), "DtoH": (25e9, "PCIe")}


@pytest.mark.parametrize(
    ("gb_per_s", "words", "override"),
    [
        (3.0, "PCIe 3.0 x4", "+pcie=3x4"), (7.0, "PCIe 3.0 x8 or 4.0 x4", "+pcie=3x8"), (12.0, "PCIe 3.0 x16 or 4.0 x8", "+pcie=3x16"),
        (16.4, "PCIe 3.0 x16 or 4.0 x8", "+pcie=3x16"), (16.6, "PCIe 4.0 x16 or 5.0 x8", "+pcie=4x16"),  # 15.75 x 1.05 = 16.54
        (55.0, "PCIe 5.0 x16 or 6.0 x8", "+pcie=5x16"), (100.0, "PCIe 6.0 x16", "+pcie=6x16"), (200.0, "", ""),
    ],
)  # fmt: skip
def test_the_slowest_pcie_link_that_carries_a_rate(gb_per_s: float, words: str, override: str) -> None:
    assert bandwidth.suits(gb_per_s * 1e9) == (words, override)


# -- evidence -------------------------------------------------------------------------------------------------


def test_a_copy_faster_than_the_limit_says_that_the_assumption_is_wrong() -> None:
    # GIVEN four copies at 20 GB/s and one at 55 over an assumed 31.5 GB/s
    found = pd.concat([large(20), large(55, count=1), large(20)], ignore_index=True)
    (said,) = bandwidth.evidence(found, bandwidth.peaks(GEN4), GEN4)
    # THEN the fastest one is named, and what would suit
    assert (said.verdict, said.row, said.override, said.suits) == ("wrong", 4, "+pcie=5x16", "PCIe 5.0 x16 or 6.0 x8")
    assert said.bytes_per_s == pytest.approx(55e9, rel=1e-3) and said.share == pytest.approx(55 / 31.5, rel=1e-3)
    assert "wrong" in said.text and "+pcie=5x16" in said.text and "PCIe 4.0 x16" in said.text


def test_rates_within_five_percent_of_the_limit_are_no_evidence() -> None:
    assert say(large(31.5 * 1.04)) == [] and say(large(31.5 * 1.06)) == [("HtoD", "wrong")]


def test_small_copies_are_no_evidence() -> None:
    assert say(large(300, size=MIB - 1)) == [] and say(large(300, size=MIB)) == [("HtoD", "wrong")]


def test_short_copies_under_a_coarse_clock_are_no_evidence() -> None:
    # GIVEN 1 MiB in 31 us by a clock of microseconds: 33.8 GB/s, but between 32.8 and 34.9; the limit times 1.05 is 33.1
    coarse = pd.DataFrame({"direction": "HtoD", "src_kind": "Pinned", "dst_kind": "Device", "bytes": [MIB], "duration_ns": [31_000]})
    assert say(coarse) == []
    assert say(coarse.assign(duration_ns=31_001)) == [("HtoD", "wrong")]


def test_pinned_copies_far_below_the_limit_suggest_a_slower_link() -> None:
    # GIVEN an H100 on PCIe 5.0 whose pinned copies reach 12 GB/s
    (said,) = bandwidth.evidence(large(12), bandwidth.peaks(table()["H100_SXM"]))
    assert (said.verdict, said.suits, said.override) == ("slow", "PCIe 3.0 x16 or 4.0 x8", "+pcie=3x16")
    # what the reader may then say makes it agree
    assert bandwidth.evidence(large(12), bandwidth.peaks(overridden("H100_SXM")) | {"HtoD": (15.75e9, "PCIe 3.0 x16")}) == []
    # at half of the limit and more, with two copies only, or from pageable memory, nothing is said
    assert say(large(31.5 * 0.53)) == [] and say(large(31.5 * 0.52)) == [("HtoD", "slow")]
    assert say(large(12, count=2)) == [] and say(large(12, src="Pageable")) == [] and say(large(12, src="Host")) == []
    # one fast copy in ten is enough to show that the link can do more
    assert say(pd.concat([large(8, count=8), large(25, count=2)], ignore_index=True)) == []


def test_pageable_copies_reach_six_tenths_at_most() -> None:
    assert say(large(31.5 * 0.59, src="Pageable")) == []
    assert say(large(31.5 * 0.61, src="Pageable")) == [("HtoD", "pageable")]
    assert bandwidth.expected("Device", "Pageable") == (0.0, 0.6) and bandwidth.expected("Pinned", "Device") == (0.65, 1.05)
    assert bandwidth.expected("Pageable", "Pinned") == (0.0, 0.6) and bandwidth.expected("Host", "Device") is None


def test_copies_that_fit_into_the_cache_are_not_bound_by_memory() -> None:
    # GIVEN an L2 of 40 MiB THEN copies of up to 20 MiB fit with both ends, sets of up to 40 MiB
    assert say(large(1500, direction="DtoD", size=20 * MIB)) == [("DtoD", "cache")]
    assert say(large(1500, direction="DtoD", size=20 * MIB + 1)) == [("DtoD", "wrong")]
    assert say(large(3000, direction="Memset", src="", size=40 * MIB)) == [("Memset", "cache")]
    (said,) = bandwidth.evidence(large(1500, direction="DtoD"), bandwidth.peaks(GEN4), GEN4)
    assert said.override == "" and said.suits == ""


def test_directions_are_judged_apart_and_impossible_sizes_not_at_all() -> None:
    found = pd.concat([large(25), large(50, direction="DtoH", src="Device", dst="Pinned"), large(200, direction="PtoP")], ignore_index=True)
    assert say(found) == [("DtoH", "wrong")]
    assert say(large(500).assign(oversize=True)) == []
    assert say(found.iloc[:0]) == []


def test_rate_is_unknown_without_bytes_or_time() -> None:
    got = bandwidth.rate(np.array([100, 0, 100, -1]), np.array([10, 10, 0, 10]))
    assert got[0] == 10e9 and np.isnan(got[1:]).all()
