"""Single copies: what is chosen is exactly what a row of the summary stands for; sums are of all that were chosen."""

from __future__ import annotations

import numpy as np
import pytest

from tb_sol_plugin.analyses.copies import memcpy_copies
from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.copies import groups, records
from tb_sol_plugin.metrics.copies.groups import CopyChoice
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.query import parse
from tb_sol_plugin.model.report import encode

MIB = 1 << 20
US = 1000
BYS = ("direction", "kind", "stream", "step", "module", "phase")


def recording() -> Capture:
    """Two steps of 1 ms. Host: two operators with a call each. Device 0: 2 MiB up in 200 us from pinned memory, launched by the
    first call; 48 B down; a set without size; device 1: 4 KiB up in 10 us; one copy launched before the window, one outside."""
    rows = [  # kind, direction, source, destination, device, stream, start, duration, bytes, step, link, call, operator
        (S.MEMCPY, "HtoD", "Pinned", "Device", 0, 7, 10, 200, 2 * MIB, 0, S.BY_CORRELATION, 1, 0),
        (S.KERNEL, "", "", "", 0, 7, 110, 50, -1, 0, S.NO_RECORD, -1, -1),
        (S.MEMCPY, "DtoH", "Device", "Pageable", 0, 8, 1100, 2, 48, 1, S.BY_CORRELATION, 3, 2),
        (S.MEMSET, "Memset", "", "Device", 0, 7, 1200, 1, -1, 1, S.NO_RECORD, -1, -1),
        (S.MEMCPY, "HtoD", "Pageable", "Device", 1, 7, 1300, 10, 4096, 1, S.BY_FLOW, 3, 2),
        (S.MEMCPY, "HtoD", "Pinned", "Device", 0, 7, 1400, 10, 64 << 10, -1, S.BEFORE_WINDOW, -1, -1),
        (S.MEMCPY, "HtoD", "Pinned", "Device", 0, 7, 1500, 10, (64 << 10) + 1, -1, S.BY_CORRELATION, 3, 2),
    ]
    c = list(zip(*rows, strict=True))
    return Capture(
        Facts("test", "x.json", 0, vendor="nvidia", devices=(DeviceProps(id=0, name="NVIDIA A100-SXM4-80GB"),), extent_ns=(0, 2000 * US)),
        {
            "host": S.HOST.frame({
                "name": ["aten::to", "cudaMemcpyAsync", "aten::copy_", "cudaMemcpyAsync"], "kind": [S.OPERATOR, S.CALL, S.OPERATOR, S.CALL],
                "thread": [0] * 4, "start_ns": [0, 1 * US, 1050 * US, 1060 * US], "duration_ns": [9 * US, 5 * US, 400 * US, 300 * US],
                "parent": [-1, 0, -1, 2], "depth": [0, 1, 0, 1], "end": [2, 2, 4, 4],
            }),
            "device": S.DEVICE.frame({
                "kind": c[0], "direction": list(c[1]), "src_kind": list(c[2]), "dst_kind": list(c[3]), "device": c[4], "stream": c[5],
                "start_ns": [t * US for t in c[6]], "duration_ns": [t * US for t in c[7]], "bytes": c[8], "step": c[9], "link": c[10],
                "call": c[11], "operator": c[12],
            }),
            "steps": S.STEPS.frame({
                "number": [3, 4], "host_start_ns": [0, 1000 * US], "host_end_ns": [1000 * US, 2000 * US], "start_ns": [0, 1000 * US],
                "end_ns": [1000 * US, 2000 * US], "complete": [True, True],
            }),
        },
    )  # fmt: skip


def ids(**query: str) -> list[str]:
    return recording().analyze("memcpy_copies", **query).table("copies")["id"].tolist()


def test_a_copy_with_its_time_size_rate_and_launch() -> None:
    # GIVEN 2 MiB in 200 us behind a kernel of 50 us, launched 9 us before WHEN asked
    report = recording().analyze("memcpy_copies", step="3")
    row = report.table("copies").iloc[0]
    # THEN 10.49 GB/s, a third of PCIe 4's 31.5; 50 hidden, 150 exposed; its call, and the operator around it
    assert (row["start_ns"], row["in_step_ns"], row["step"], row["kinds"]) == (10 * US, 10 * US, "3", "Pinned → Device")
    assert row["bandwidth_bytes_per_s"] == pytest.approx(2 * MIB / 200e-6) and row["link_share"] == pytest.approx(2 * MIB / 200e-6 / 31.5e9)
    assert (row["hidden_ns"], row["exposed_ns"]) == (50 * US, 150 * US)
    assert (row["api"], row["call_ns"], row["operator"]) == ("cudaMemcpyAsync", 5 * US, "aten::to")
    assert report.headline.replace("\u202f", " ") == "**1** copy takes **200.0 µs**, 150.0 µs of it exposed."


def test_what_is_not_known_is_null_and_small_copies_have_no_share() -> None:
    table = recording().analyze("memcpy_copies").table("copies").set_index("id")
    assert table.loc["3", ["bytes", "bandwidth_bytes_per_s", "api", "call_ns", "operator"]].isna().all()
    assert np.isnan(table.loc["4", "link_share"]) and table.loc["4", "bandwidth_bytes_per_s"] == pytest.approx(4096 / 10e-6)
    assert np.isnan(table.loc["5", "in_step_ns"]) and table.loc["5", "step"] == "(launched before the window)"


def test_choices_narrow_the_copies_and_their_sums() -> None:
    assert ids() == ["0", "2", "3", "4", "5", "6"]
    assert ids(direction="HtoD") == ["0", "4", "5", "6"]
    assert ids(kinds="Pinned > Device") == ids(kinds="Pinned → Device") == ["0", "5", "6"] and ids(kinds="?->Device") == ["3"]
    assert ids(device="1") == ["4"] and ids(stream="7", device="0") == ["0", "3", "5", "6"]
    # the upper end belongs to the bin
    assert ids(size="to 64 KiB") == ["5"] and ids(size="to 1 MiB") == ["6"] and ids(size="unknown") == ["3"]
    assert ids(min_bytes="4096", max_bytes="65536") == ["4", "5"] and ids(max_bytes="48") == ["2"]
    assert ids(linked="before") == ["5"] and ids(linked="none") == ["3"] and ids(linked="yes", in_step="no") == ["6"]
    report = recording().analyze("memcpy_copies", direction="HtoD", device="0")
    # 200 + 10 + 10 us, of which 50 behind the kernel; 2 MiB + 64 KiB + 64 KiB + 1
    assert (report.facts["count"], report.facts["time_ns"], report.facts["exposed_ns"]) == (3, 220 * US, 170 * US)
    assert report.facts["bytes"] == 2 * MIB + 2 * (64 << 10) + 1


@pytest.mark.parametrize("by", BYS)
def test_a_row_of_a_grouped_table_means_exactly_its_copies(by: groups.By) -> None:
    # GIVEN the copies grouped one way WHEN each row's choice is asked for
    capture = recording()
    every = np.ones(len(capture.device), bool)
    found = records.copies(capture, every)
    table = groups.table(capture, every, by)
    queries = groups.of_rows(capture, found, table, by)
    seen: list[str] = []
    for query, count, time in zip(queries, table["count"], table["time_ns"], strict=True):
        report = capture.analyze("memcpy_copies", **query)
        # THEN it answers as many copies, of as much time, as the row says
        assert (report.facts["count"], report.facts["time_ns"]) == (count, time), query
        seen += report.table("copies")["id"].tolist()
    # AND all rows together every copy once
    assert sorted(seen) == ["0", "2", "3", "4", "5", "6"]


def test_the_step_of_a_table_goes_on_to_its_rows() -> None:
    capture = recording()
    rows = capture.device["step"].to_numpy() == 1
    queries = groups.of_rows(capture, records.copies(capture, rows), groups.table(capture, rows, "direction"), "direction", "4")
    assert {tuple(q.items()) for q in queries} == {(("direction", d), ("step", "4")) for d in ("DtoH", "HtoD", "Memset")}
    steps = groups.of_rows(capture, records.copies(capture, rows), groups.table(capture, rows, "step"), "step", "3-4")
    assert {q["step"] for q in steps} == {"4"}


def test_more_copies_than_rows_are_told_and_the_sums_are_of_all() -> None:
    # GIVEN six copies and two rows WHEN the first in time, the longest, or the largest are asked for
    report = recording().analyze("memcpy_copies", most="2")
    section = report.section("copies")
    assert report.table("copies")["id"].tolist() == ["0", "2"] and section.truncated == 4 and report.facts["count"] == 6
    assert "4 more copies" in section.footer
    assert ids(most="2", first="duration") == ["0", "4"] and ids(most="2", first="bytes") == ["0", "6"]
    assert ids(most="1", first="call") == ["2"]
    with pytest.raises(BadQuery, match="most is 0"):
        ids(most="0")


def test_the_figure_of_many_copies_draws_those_that_bound_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a thousand copies in two directions, every tenth of them slower the later it is, and one of 1 ns
    monkeypatch.setattr(memcpy_copies, "POINTS", 64)
    i = np.arange(1000)
    time = np.where(i % 10 == 0, 100 + i, 50)
    time[501] = 1
    device = {
        "kind": [S.MEMCPY] * 1000, "direction": np.where(i % 2, "DtoH", "HtoD").tolist(), "device": i * 0, "start_ns": 2000 * i,
        "duration_ns": time, "bytes": i * 0 + 512,
    }  # fmt: skip
    report = Capture(Facts("test", "x.json", 0, extent_ns=(0, 2_000_000)), {"device": S.DEVICE.frame(device)}).analyze("memcpy_copies")
    # WHEN the report is made THEN the table has them all, and the figure some that it names: the longest, the shortest, both ends
    figure = report.section("when")
    drawn = {one for trace in figure.figure["data"] for one in trace["customdata"]}
    assert len(report.table("copies")) == 1000 and 32 <= len(drawn) <= 64
    assert {"990", "501", "0", "1", "998", "999"} <= drawn
    assert figure.subtitle.startswith(f"{len(drawn)} of 1\u202f000 copies: by direction, of each small part of the time the first, last")


def test_kinds_that_cannot_be_read_and_choices_without_copies() -> None:
    with pytest.raises(BadQuery, match="not two kinds"):
        ids(kinds="Pinned")
    report = recording().analyze("memcpy_copies", direction="PtoP")
    assert report.headline == "No copy fits this choice." and "6 copies without this choice" in report.section("copies").empty.replace(
        "\u202f", " "
    )
    encode(report)


def test_copies_are_unavailable_without_any() -> None:
    lone = Capture(Facts("test", "x", 0), {"device": S.DEVICE.frame({"kind": [S.KERNEL], "start_ns": [0], "duration_ns": [1]})})
    assert lone.analyze("memcpy_copies").because == "no copy in this recording"
    assert "no device activity" in Capture(Facts("test", "x", 0), {}).analyze("memcpy_copies").because


def test_a_choice_is_said_in_words() -> None:
    choice = parse(CopyChoice, {"direction": "DtoH", "kinds": "Device > Pageable", "stream": "7", "size": "to 4 KiB", "linked": "yes"})
    assert groups.choice_text(choice) == "device to host, Device > Pageable, to 4 KiB, stream 7, launch recorded"
    assert groups.choice_text(CopyChoice()) == ""


def test_copies_that_held_the_host_are_chosen_by_their_reason() -> None:
    # GIVEN 48 B down to pageable memory and 4 KiB up from it by `cudaMemcpyAsync`, and a pinned copy of 10 us whose call takes 300 us
    assert [ids(held=reason) for reason in ("any", "pageable", "waits")] == [["2", "4", "6"], ["2", "4"], ["6"]]
    assert ids(held="tiny_read") == ids(held="sync_api") == []
    got = recording().analyze("memcpy_copies", held="pageable", direction="DtoH")
    assert got.facts["count"] == got.facts["held"] == 1
    assert got.section("copies").subtitle.startswith("device to host, that blocked the host (pageable memory)")
