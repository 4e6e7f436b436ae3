"""The page of the copies."""

from __future__ import annotations

import plotly.graph_objects as go
import pytest

from tb_sol_plugin.analyses import get
from tb_sol_plugin.analyses.memcpy import spans
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, DeviceProps, Facts
from tb_sol_plugin.model.report import FactsSection, TableSection, encode

MIB = 1 << 20
A100 = DeviceProps(id=0, name="NVIDIA A100-SXM4-80GB", memory_bytes=84_990_623_744, compute_capability="8.0", units=108)


def recording(*, vendor: str = "nvidia", world_size: int | None = None, devices: tuple[DeviceProps, ...] = (A100,), peer: bool = False) -> Capture:
    """HtoD: 8 MiB in 1 ms (pinned) and 1 kB in 2 us (pageable); DtoH without a size; DtoD 64 MiB in 100 us;
    one memset; one copy kernel; a kernel that hides the second half of the large HtoD. Two steps."""
    us = 1000
    rows = [  # kind, direction, source, destination, start, duration, bytes, step, copy kernel
        (S.MEMCPY, "HtoD", "Pinned", "Device", 0, 1000, 8 * MIB, 0, False),
        (S.MEMCPY, "HtoD", "Pageable", "Device", 1100, 2, 1000, 0, False),
        (S.MEMCPY, "DtoH", "Device", "Pageable", 1200, 4, -1, 1, False),
        (S.MEMCPY, "PtoP" if peer else "DtoD", "Device", "Device", 1300, 100, 64 * MIB, 1, False),
        (S.MEMSET, "Memset", "", "Device", 1500, 3, 4096, 1, False),
        (S.KERNEL, "", "", "", 1600, 5, -1, 1, True),
        (S.KERNEL, "", "", "", 500, 500, -1, 0, False),
    ]
    c = list(zip(*rows, strict=True))
    return Capture(
        Facts("test", "x.json", 0, vendor=vendor, devices=devices, world_size=world_size, extent_ns=(0, 2000 * us)),
        {
            "device": S.DEVICE.frame({
                "kind": c[0], "direction": list(c[1]), "src_kind": list(c[2]), "dst_kind": list(c[3]), "start_ns": [t * us for t in c[4]],
                "duration_ns": [t * us for t in c[5]], "bytes": c[6], "step": c[7], "copy_kernel": c[8], "device": [0] * 7, "stream": [7] * 7,
                "link": [0] * 7,
            }),
            "steps": S.STEPS.frame({
                "number": [3, 4], "host_start_ns": [0, 1150 * us], "host_end_ns": [1150 * us, 2000 * us], "start_ns": [0, 1150 * us],
                "end_ns": [1150 * us, 2000 * us], "complete": [True, True],
            }),
        },
    )  # fmt: skip


def by_direction(report):
    return report.table("copies").set_index("direction")


def test_directions_with_bandwidth_against_their_limit():
    report = recording().analyze("memcpy")
    table = by_direction(report)
    assert table.index.tolist() == ["HtoD", "DtoH", "DtoD", "Memset", "copy kernel"]
    up = table.loc["HtoD"]
    assert (up["count"], up["bytes"], up["time_ns"]) == (2, 8 * MIB + 1000, 1_002_000)
    assert up["bandwidth_bytes_per_s"] == pytest.approx((8 * MIB + 1000) / 1002e-6)
    # only the 8 MiB copy counts against PCIe 4: 8.389 GB/s of 31.5
    assert up["link_share"] == pytest.approx(8 * MIB / 1e-3 / 31.5e9)
    assert (up["hidden_ns"], up["exposed_ns"]) == (500_000, 502_000)
    # device to device: half of 2 039 GB/s (the table's A100 80 GB)
    assert table.loc["DtoD", "link_share"] == pytest.approx(64 * MIB / 100e-6 / (2039e9 / 2), rel=0.01)
    assert report.facts["htod_link_share"] == up["link_share"] and report.facts["htod_exposed_ns"] == 502_000


def test_the_headline_is_per_step():
    # sum 1000 + 2 + 4 + 100 + 3 + 5 us, exposed 614 us, over two steps
    report = recording().analyze("memcpy")
    assert report.headline.replace("\u202f", " ").startswith(
        "All copies together take **557.0 µs** per step, 307.0 µs of it exposed. Most is host to device at 8.37 GB/s"
    )
    assert report.facts["time_per_step_ns"] == 557_000


def test_a_size_that_was_not_recorded_is_unknown():
    report = recording().analyze("memcpy")
    section = report.section("copies")
    assert isinstance(section, TableSection)
    row = section.data["direction"].index("DtoH")
    assert section.data["bytes"][row] is None and section.data["without_bytes"][row] == 1
    assert section.data["bandwidth_bytes_per_s"][row] is None and section.data["link_share"][row] is None
    assert "2 of 6 copies carry no size" in report.notices[0].text.replace("\u202f", " ")


@pytest.mark.parametrize("by", ["direction", "kind", "stream", "step", "module", "phase"])
def test_every_grouping_has_the_same_sums_and_its_own_keys(by):
    report = recording().analyze("memcpy", by=by)
    table = report.table("copies")
    assert (table["count"].sum(), table["bytes"].sum(), table["time_ns"].sum()) == (6, 72 * MIB + 1000 + 4096, 1_114_000)
    assert table["id"].is_unique and (by in table.columns) == (by != "kind")
    encode(report)


def test_a_step_selects_its_copies():
    report = recording().analyze("memcpy", step="3")
    assert by_direction(report).index.tolist() == ["HtoD"] and report.facts["steps"] == 1
    assert recording().analyze("memcpy", by="step").table("copies")["step"].tolist() == ["3", "4", "4", "4", "4"]


def test_peer_copies_are_not_recorded_rather_than_zero():
    def card(capture):
        return [s for s in capture.analyze("memcpy").sections if s.id == "ptop_card"]

    assert "16 ranks ran" in card(recording(world_size=16))[0].text and not card(recording(world_size=16))[0].values
    assert not card(recording())
    shown = card(recording(world_size=16, peer=True))[0]
    assert shown.values["ptop_count"] == 1 and not shown.text


def test_without_a_known_device_there_is_no_share():
    report = recording(devices=()).analyze("memcpy")
    assert by_direction(report)["link_share"].isna().all()
    assert any(n.text.startswith("No limits to compare with") for n in report.notices)
    # and a chosen device brings it back
    assert recording(devices=()).analyze("memcpy", device_limits="A100").facts["htod_link_share"] is not None


def test_a_share_above_the_limit_is_flagged_not_clamped():
    # GIVEN PCIe 3 limits on a copy at 8.39 GB/s, and device copies at 671 GB/s on a T4 (320 GB/s, half of it)
    report = recording().analyze("memcpy", device_limits="T4")
    section = report.section("copies")
    row = section.data["direction"].index("DtoD")
    assert section.data["link_share"][row] == pytest.approx(64 * MIB / 100e-6 / 160e9)
    assert section.marks["link_share"][str(row)].state == "flagged"
    assert any("link assumption is wrong" in n.text for n in report.notices)


def test_the_histogram_counts_copies_with_a_size():
    sizes = recording().analyze("memcpy").table("sizes")
    assert sizes[["direction", "size", "count"]].to_numpy().tolist() == [
        ["HtoD", "≤ 4 KiB", 1], ["HtoD", "1–16 MiB", 1], ["DtoD", "16–256 MiB", 1], ["Memset", "≤ 4 KiB", 1],
    ]  # fmt: skip


def test_cards_and_figure_are_declared_and_drawable():
    report = recording(vendor="amd").analyze("memcpy")
    cards = [s for s in report.sections if isinstance(s, FactsSection) and s.style == "card"]
    assert [c.title for c in cards] == ["Host to device", "Device to host", "Device to device", "Memset", "Copy kernels"]
    assert set(report.facts) <= set(get("memcpy").facts)
    figure = go.Figure(report.section("bandwidth").figure)
    names = {t.name for t in figure.data}
    assert {"Host to device", "Device to device", "Memset"} <= names and any(n.startswith("PCIe x16") for n in names)
    assert any("pinned from pageable" in n.text for n in report.notices)


@pytest.mark.parametrize("count", range(0, 9))
def test_cards_fill_their_rows(count):
    found = spans(count)
    assert len(found) == count and all(2 <= s <= 6 for s in found)
    if count > 1:
        assert sum(found) % 12 == 0


def test_without_copies_it_is_unavailable():
    capture = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({"kind": [S.KERNEL], "start_ns": [0], "duration_ns": [1]})})
    report = capture.analyze("memcpy")
    assert not report.available and report.because == "no copy in this recording"
    cpu = Capture(Facts("test", "x", 0), {}).analyze("memcpy")
    assert not cpu.available and "no device activity" in cpu.because
