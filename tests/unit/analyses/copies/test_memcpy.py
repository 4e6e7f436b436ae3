"""The page of the copies."""

from __future__ import annotations

from functools import cache

import plotly.graph_objects as go
import pytest

from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.registry import get
from tb_sol_plugin.model.report import FactsSection, TableSection, encode

MIB = 1 << 20
A100 = DeviceProps(id=0, name="NVIDIA A100-SXM4-80GB", memory_bytes=84_990_623_744, compute_capability="8.0", units=108)


@cache
def recording(
    *, vendor: str = "nvidia", world_size: int | None = None, devices: tuple[DeviceProps, ...] = (A100,), peer: bool = False
) -> Capture:
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
    assert section.marks == {}
    assert "2 of 6 copies carry no size" in report.notices[0].text.replace("\u202f", " ")


@pytest.mark.parametrize("by", ["direction", "kind", "device", "stream", "step", "phase", "module", "operator", "frame"])
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
    # AND the notice has the evidence, and leads to it
    notice = next(n for n in report.notices if "link assumption is wrong" in n.text)
    assert notice.text.startswith("Device to device: ") and "67.11 MB at 671.1 GB/s" in notice.text.replace("\u202f", " ")
    assert recording().analyze("memcpy_copies", **notice.link.query).facts["count"] == 1


@pytest.mark.parametrize("by", ["direction", "kind", "device", "stream", "step", "phase", "module", "operator", "frame"])
def test_each_row_leads_to_exactly_its_copies(by):
    section = recording().analyze("memcpy", by=by).section("copies")
    for i, (count, time) in enumerate(zip(section.data["count"], section.data["time_ns"], strict=True)):
        link = section.row_links[str(i)]
        copies = recording().analyze(link.analysis, **link.query)
        assert (copies.facts["count"], copies.facts["time_ns"]) == (count, time), link.query


def test_unified_memory_is_not_recorded_where_it_is_used():
    capture = recording()
    assert not [s for s in capture.analyze("memcpy").sections if s.id == "unified_card"]
    device = capture.tables["device"].copy()
    device["dst_kind"] = device["dst_kind"].astype(str).replace("Pageable", "Managed").astype("category")
    card = Capture(capture.facts, {**capture.tables, "device": device}).analyze("memcpy").section("unified_card")
    assert card.text.startswith("Not recorded. 1 copy has a managed end;") and not card.values


def test_steps_with_the_worst_one_and_what_hiding_could_save():
    # GIVEN step 3 with 1000 + 2 us of copies, 500 hidden; step 4 with 4 + 100 + 3 + 5 us, all exposed
    report = recording().analyze("memcpy")
    table = report.table("per_step").set_index("step")
    assert table.loc["3", ["hidden_ns", "exposed_ns", "idle_exposed_ns"]].tolist() == [500_000, 502_000, 502_000]
    assert table.loc["4", ["hidden_ns", "exposed_ns"]].tolist() == [0, 112_000]
    assert table.loc["3", "share"] == pytest.approx(502 / 1150)
    # THEN a mean of 307 us per step of 1 ms could be saved at most; step 3 is the worst, and each row opens its step
    figure = report.section("exposure")
    assert "307.0 µs per step at most, 30.7 % of it" in figure.subtitle.replace("\u202f", " ")
    steps = report.section("per_step")
    assert steps.links[0].query == {"step": "3"} and steps.row_links["1"].query == {"step": "4"}
    assert report.section("engines").title == "Engines in step 3"
    # AND one step alone has its engines, and no comparison
    one = recording().analyze("memcpy", step="4")
    assert not [s for s in one.sections if s.id in ("exposure", "per_step")] and one.section("engines").title == "Engines in step 4"


def test_engines_are_drawn_to_scale_with_exposed_parts_on_top():
    figure = go.Figure(recording().analyze("memcpy").section("engines").figure)
    # step 3 lasts 1150 us; the kernel 500..1000, the copy 0..1000, of which 0..500 is exposed
    copies = [t for t in figure.data if t.name == "Host to device"]
    pale, strong = copies
    assert (pale.base[0], pale.x[0], pale.marker.opacity) == (0, 1.0, 0.32) and (strong.base[0], strong.x[0]) == (0, 0.5)
    assert next(t for t in figure.data if t.name == "Computation").base[0] == 0.5
    sums = recording().analyze("memcpy").table("lanes").set_index("lane")
    assert sums.loc["Host to device", ["union_ns", "hidden_ns", "exposed_ns"]].tolist() == [1_002_000, 500_000, 502_000]
    assert sums.loc["Computation", "union_ns"] == 500_000 and sums.isna().loc["Computation", "exposed_ns"]
    assert "8.39" in strong.hovertext[0] and figure.layout.xaxis.range == (0, 1.15)


def test_cards_and_figure_are_declared_and_drawable():
    report = recording().analyze("memcpy")
    cards = [s for s in report.sections if isinstance(s, FactsSection) and s.style == "card"]
    assert [c.title for c in cards] == ["Host to device", "Device to host", "Device to device", "Memset", "Copy kernels"]
    assert set(report.facts) <= {f.name for f in get("memcpy").facts}
    figure = go.Figure(report.section("bandwidth").figure)
    names = {t.name for t in figure.data}
    assert {"Host to device", "Device to device", "Memset"} <= names and any(n.startswith("PCIe ") for n in names)


def test_a_tracer_that_does_not_tell_kinds_is_said():
    told = recording(vendor="amd")
    assert not any("pinned from pageable" in n.text for n in told.analyze("memcpy").notices)
    device = told.tables["device"].copy()
    for name in ("src_kind", "dst_kind"):
        device[name] = device[name].astype(str).replace({"Pageable": "Host", "Pinned": "Host"}).astype("category")
    silent = Capture(told.facts, {**told.tables, "device": device}).analyze("memcpy")
    assert any("AMD's tracer does not record whether memory is pinned" in n.text for n in silent.notices)


def test_without_copies_it_is_unavailable():
    capture = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({"kind": [S.KERNEL], "start_ns": [0], "duration_ns": [1]})})
    report = capture.analyze("memcpy")
    assert not report.available and report.because == "no copy in this recording"
    cpu = Capture(Facts("test", "x", 0), {}).analyze("memcpy")
    assert not cpu.available and "no device activity" in cpu.because
