"""Copies by size, and the fits of latency and bandwidth."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.report import encode

KIB, MIB = 1 << 10, 1 << 20


def recording(rows: list[tuple[str, str, str, int, int]]) -> Capture:
    """rows: direction, source, destination, bytes, duration in ns; one after the other."""
    c = list(zip(*rows, strict=True)) if rows else [[]] * 5
    starts = [10_000_000 * i for i in range(len(rows))]
    return Capture(
        Facts("test", "x", 0, vendor="nvidia", devices=(DeviceProps(id=0, name="NVIDIA A100-SXM4-80GB"),)),
        {"device": S.DEVICE.frame({
            "kind": [S.MEMSET if d == "Memset" else S.MEMCPY for d in c[0]], "direction": list(c[0]), "src_kind": list(c[1]),
            "dst_kind": list(c[2]), "bytes": list(c[3]), "duration_ns": list(c[4]), "start_ns": starts, "device": [0] * len(rows),
        })},
    )  # fmt: skip


MIXED = [
    ("HtoD", "Pinned", "Device", 4 * KIB, 2000), ("HtoD", "Pinned", "Device", 4 * KIB + 1, 2000), ("HtoD", "Pinned", "Device", 8 * MIB, 700_000),
    ("DtoH", "Device", "Pageable", 16, 1000), ("DtoH", "Device", "Pageable", 300 * MIB, 20_000_000), ("Memset", "", "Device", -1, 1000),
]  # fmt: skip


def test_bins_hold_their_upper_end_and_copies_without_size_stand_apart() -> None:
    # GIVEN 4 KiB, one byte more, 8 MiB up; 16 B and 300 MiB down; a set without a size WHEN asked
    report = recording(MIXED).analyze("memcpy_hist")
    table = report.table("sizes")
    assert table[["direction", "size", "count"]].to_numpy().tolist() == [
        ["HtoD", "≤ 4 KiB", 1], ["HtoD", "4–64 KiB", 1], ["HtoD", "1–16 MiB", 1], ["DtoH", "≤ 4 KiB", 1], ["DtoH", "> 256 MiB", 1],
    ]  # fmt: skip
    assert table["count_share"].tolist() == [0.2] * 5 and table["bytes_share"].sum() == pytest.approx(1)
    assert report.facts == {"sized": 5, "without_bytes": 1, "small": 3, "small_time_ns": 5000}
    assert report.headline.startswith("**3** of 5 copies are at most 64 KiB")
    assert "1 of 6 copies carries no size" in report.notices[0].text.replace("\u202f", " ")


def test_each_bar_and_each_row_leads_to_its_copies() -> None:
    capture = recording(MIXED)
    section = capture.analyze("memcpy_hist").section("sizes")
    for i, count in enumerate(section.data["count"]):
        copies = capture.analyze("memcpy_copies", **section.row_links[str(i)].query)
        assert copies.facts["count"] == count
    figure = go.Figure(capture.analyze("memcpy_hist").section("histogram").figure)
    keys = {k for trace in figure.data for k in trace.customdata}
    assert set(section.data["id"]) <= keys
    # the three panels show copies, bytes and time of the same bins
    assert next(t.x[0] for t in figure.data if t.name == "Host to device") == 1 and len({t.xaxis for t in figure.data}) == 3


def test_a_link_of_known_latency_and_bandwidth_is_found_again() -> None:
    # GIVEN copies that take 2 us plus bytes at 20 GB/s, in four bins WHEN fitted THEN those two, of PCIe 4's 31.5 GB/s
    rows = [("HtoD", "Pinned", "Device", size, 2000 + round(size / 20)) for size in (1 * KIB, 32 * KIB, 512 * KIB, 8 * MIB)]
    rows += [("DtoH", "Device", "Pageable", 64, 1000), ("DtoH", "Device", "Pageable", 128 * KIB, 9000)]
    rows += [("DtoD", "Device", "Device", size, 5000 - i * 1000) for i, size in enumerate((1 * KIB, 32 * KIB, 512 * KIB))]
    table = recording(rows).analyze("memcpy_hist").table("fits").set_index("direction")
    up = table.loc["HtoD"]
    assert up["latency_ns"] == pytest.approx(2000, rel=0.01) and up["rate_bytes_per_s"] == pytest.approx(20e9, rel=0.01)
    assert up["of_limit"] == pytest.approx(20 / 31.5, rel=0.01) and (up["kinds"], up["copies"], up["bins"]) == ("Pinned → Device", 4, 4)
    # AND where they are not known it is said why
    assert table.loc["DtoH", "note"] == "copies of 2 size bins only; three are needed" and table.loc["DtoH"].isna()["latency_ns"]
    assert "do not grow" in table.loc["DtoD", "note"]


def test_without_sizes_or_copies_it_says_so() -> None:
    report = recording([("HtoD", "", "", -1, 1000)]).analyze("memcpy_hist")
    assert report.headline == "No copy of this selection carries a size." and not len(report.table("fits"))
    encode(report)
    kernels = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({"kind": [S.KERNEL], "start_ns": [0], "duration_ns": [1]})})
    assert kernels.analyze("memcpy_hist").because == "no copy in this recording"
