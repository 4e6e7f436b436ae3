"""Copies that were counted without being recorded: groups of them, what they tell of waiting, and their page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.copies import counted, groups
from tb_sol_plugin.metrics.copies.counted import counted_patterns
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import TableSection, UnavailableReport
from tests.support.sol_builder import SolBuilder

MB = 1_000_000
TO, CLONE, ITEM = "aten::_to_copy", "aten::clone", "aten::_local_scalar_dense"


def row(op, direction, src, dst, devices, *, count=1, size=0, unsized=0, blocking=0, call_ns=1000, module=-1, phase=-1):  # type: ignore[no-untyped-def]
    return [op, direction, src, dst, *devices, False, module, phase, -1, count, size, unsized, blocking, call_ns]


def recording(tmp_path: Path, **header: object) -> Capture:
    """Two steps alike after a first one. In each: 3 pageable batches of 4 MB and a pinned one of 8 MB go to device 0, 2 numbers are read, one
    tensor of 2 MB is cloned and one of 5 MB laid out anew on it, 1 MB goes to device 1; a mask is counted, without a size."""
    b = SolBuilder(copies=True, **header)  # type: ignore[arg-type]
    load, train = b.phase("load"), b.phase("train")
    inside = b.phase("inner", parent=train)
    embed = b.module("embed", "Embedding")
    add = b.sig("aten::add", [[4]], [[4]], work="elementwise")
    for step in range(3):
        b.iteration(step, step * MB, MB, rows=[b.row(add)], phases=[b.time(load, step * MB, 1000), b.time(train, step * MB + 2000, 1000)])
        b.records.append({
            "kind": "copies", "iteration": step,
            "rows": [
                row(TO, "HtoD", "Pageable", "Device", (-1, 0), count=3, size=12 * MB, blocking=3, call_ns=900_000, phase=load),
                row(TO, "HtoD", "Pinned", "Device", (-1, 0), size=8 * MB, call_ns=5_000, phase=load),
                row(ITEM, "DtoH", "Device", "", (0, -1), count=2, size=8, blocking=2, call_ns=2_000_000, module=embed, phase=inside),
                row("aten::nonzero", "DtoH", "Device", "", (0, -1), unsized=1, blocking=1, call_ns=100_000, module=embed, phase=train),
                row(CLONE, "DtoD", "Device", "Device", (0, 0), size=2 * MB, phase=train),
                row(CLONE, "copy kernel", "Device", "Device", (0, 0), size=5 * MB, phase=train),
                row(TO, "PtoP", "Device", "Device", (0, 1), size=MB, phase=train),
            ],
        })  # fmt: skip
    b.close(3)
    return ingest.read(str(b.write(tmp_path / b.name)))


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return recording(tmp_path)


def test_columns_are_those_of_recorded_copies(capture: Capture) -> None:
    # GIVEN counted copies and none recorded THEN every column of the table of recorded ones is there too, and what nobody timed is unknown
    frame = counted.table(capture, "direction")
    theirs = groups.table(capture, np.zeros(0, bool), "direction")
    assert set(theirs.columns) <= set(frame.columns)
    unknown = ["time_ns", "mean_ns", "share", "bandwidth_bytes_per_s", *counted.EVENTS_ONLY]
    assert frame[unknown].isna().all().all()


def test_counted_copies_of_two_steps_by_direction(capture: Capture) -> None:
    frame = counted.table(capture, "direction").set_index("direction")
    # THEN twice of each, in the order of directions; the first step carries one-time costs and is left out
    assert frame.index.tolist() == ["HtoD", "DtoH", "DtoD", "PtoP", "copy kernel"]
    assert frame["count"].tolist() == [8, 6, 2, 2, 2]
    assert frame["bytes"].tolist() == [40 * MB, 16, 4 * MB, 2 * MB, 10 * MB]
    assert frame["without_bytes"].tolist() == [0, 2, 0, 0, 0] and frame["blocking"].tolist() == [6, 6, 0, 0, 0]
    assert frame["call_ns"].tolist() == [1_810_000, 4_200_000, 2000, 2000, 2000]
    assert frame.loc["HtoD", "src_kind"] == "Pageable, Pinned" and frame.loc["DtoH", "dst_kind"] == ""
    assert frame["bytes_share"].sum() == pytest.approx(1)
    assert counted.has(capture) and counted.iterations(capture) == 2


@pytest.mark.parametrize("by", ["direction", "kind", "device", "step", "phase", "module", "operator", "stream"])
def test_groups_of_counted_copies_sum_to_the_whole(capture: Capture, by: str) -> None:
    frame = counted.table(capture, by)
    assert (frame["count"].sum(), frame["bytes"].sum(), frame["without_bytes"].sum()) == (20, 56 * MB + 16, 2)
    assert frame["call_ns"].sum() == 6_016_000 and frame["blocking"].sum() == 12


def test_labels_of_every_grouping(capture: Capture) -> None:
    def of(by: str) -> set[tuple[str, str]]:
        frame = counted.table(capture, by)
        return set(zip(frame["direction"], frame["group"], strict=True))

    assert of("device") == {
        ("HtoD", "device 0"), ("DtoH", "device 0"), ("DtoD", "device 0"), ("copy kernel", "device 0"), ("PtoP", "device 0 to 1"),
    }  # fmt: skip
    assert {g for _, g in of("step")} == {"1", "2"}
    assert {g for _, g in of("module")} == {"embed", "(no module)"} and ("DtoH", "embed") in of("module")
    assert ("DtoH", "train/inner") in of("phase") and ("HtoD", "load") in of("phase")
    assert ("DtoH", "aten::nonzero") in of("operator")
    kinds = counted.table(capture, "kind")
    assert set(zip(kinds["src_kind"], kinds["dst_kind"], strict=True)) == {
        ("Pageable", "Device"), ("Pinned", "Device"), ("Device", ""), ("Device", "Device"),
    }  # fmt: skip


def test_one_step_has_its_own_counted_copies(capture: Capture) -> None:
    where = scope(capture, Query(step="2"))
    assert counted.table(capture, "direction", where)["count"].sum() == 10 and counted.iterations(capture, where) == 1


def test_a_size_that_one_copy_lacks_makes_no_size_of_zero(capture: Capture) -> None:
    frame = counted.table(capture, "operator").set_index("group")
    assert np.isnan(frame.loc["aten::nonzero", "bytes"]) and frame.loc["aten::nonzero", "without_bytes"] == 2


def with_copies(capture: Capture, **columns: object) -> Capture:
    """The same with other columns of its counted copies."""
    tables = {**capture.tables, "copies": capture.tables["copies"].assign(**columns)}
    return Capture(capture.facts, tables)


def test_times_make_a_bandwidth_of_sums(capture: Capture) -> None:
    # GIVEN copies with times, as another profiler has them: 1 ms per row
    timed = with_copies(capture, time_ns=1e6, call_ns=np.nan, blocking=-1)
    frame = counted.table(timed, "direction").set_index("direction")
    # THEN 40 MB in 4 ms are 10 GB/s; the mean is over copies; the shares are of 14 ms
    assert frame.loc["HtoD", "bandwidth_bytes_per_s"] == pytest.approx(10e9) and frame.loc["HtoD", "mean_ns"] == 500_000
    assert frame.loc["HtoD", "share"] == pytest.approx(4 / 14) and frame["share"].sum() == pytest.approx(1)
    assert frame["call_ns"].isna().all() and frame["blocking"].isna().all()
    # AND copies without a size do not slow the others down: 16 bytes in 2 ms
    assert frame.loc["DtoH", "bandwidth_bytes_per_s"] == pytest.approx(16 / 2e-3)
    # AND a row that was not timed leaves its group without a time
    partly = timed.tables["copies"]["time_ns"].where(timed.tables["copies"]["direction"].astype(str) != "DtoD")
    assert np.isnan(counted.table(with_copies(timed, time_ns=partly), "direction").set_index("direction").loc["DtoD", "time_ns"])


# --- What to fix -----------------------------------------------------------------------------------------------------


def test_what_the_host_waits_for_is_found_the_longest_first(capture: Capture) -> None:
    found = counted_patterns(capture)
    assert [(f.rule, f.direction, f.candidate) for f in found] == [
        ("reads", "DtoH", False), ("pageable", "HtoD", False), ("layout", "copy kernel", True),
    ]  # fmt: skip
    reads, pageable, layout = found
    assert (reads.copies, reads.waits, reads.sized_bytes, reads.unsized, reads.call_ns) == (6, 6, 16, 2, 4_200_000)
    assert reads.operators == (ITEM, "aten::nonzero") and reads.modules == ("embed",) and reads.phases == ("train/inner", "train")
    assert (pageable.copies, pageable.waits, pageable.sized_bytes, pageable.phases) == (6, 6, 24 * MB, ("load",))
    assert layout.sized_bytes == 10 * MB


def test_copies_that_wait_for_nothing_are_no_finding(capture: Capture) -> None:
    # GIVEN the same copies, of which the host waits for none; or nobody knows
    for blocking in (0, -1):
        calm = with_copies(capture, blocking=blocking)
        assert [f.rule for f in counted_patterns(calm)] == ["layout"]
    # AND laid out anew by 1 MiB in the two steps is below what is worth a word, by a byte
    copies = capture.tables["copies"]
    kernel = copies["direction"].astype(str) == "copy kernel"
    for size, rules in ((2**20, ["layout"]), (2**20 - 1, [])):
        calm = with_copies(capture, blocking=0, bytes=copies["bytes"].where(~kernel, size))
        assert [f.rule for f in counted_patterns(calm)] == rules


def test_pinned_memory_that_the_host_waits_for_is_another_finding(capture: Capture) -> None:
    copies = capture.tables["copies"]
    pinned = with_copies(capture, blocking=copies["count"].where(copies["src_kind"].astype(str) == "Pinned", 0))
    (first, _) = counted_patterns(pinned)
    assert (first.rule, first.direction, first.copies, first.waits) == ("blocking", "HtoD", 2, 2)


def test_a_profile_of_the_device_tells_pageable_copies_by_their_time(capture: Capture) -> None:
    # GIVEN times of the device, and nothing of waiting: pageable memory makes the host wait, whoever knows of it
    found = counted_patterns(with_copies(capture, time_ns=1e6, call_ns=np.nan, blocking=-1))
    assert [(f.rule, f.direction, f.copies, f.waits, f.time_ns) for f in found] == [
        ("pageable", "HtoD", 6, 0, 2e6), ("layout", "copy kernel", 2, 0, 2e6),
    ]  # fmt: skip
    names = capture.tables["copies"]["name"].cat.rename_categories({TO: "Memcpy HtoD (Pageable -> Device)"})
    (first, _) = counted_patterns(with_copies(capture, time_ns=1e6, call_ns=np.nan, blocking=-1, name=names))
    assert first.operators == () and first.phases == ("load",)


# --- The page --------------------------------------------------------------------------------------------------------


def plain(text: str) -> str:
    return text.replace("\u202f", " ")


def test_the_page_of_a_capture(capture: Capture) -> None:
    report = capture.analyze("memcpy")
    assert plain(report.headline) == (
        "Copies move **20.00 MB** to the device, **8 B** back to the host, **1.00 MB** from device to device per step. "
        "The host waits for **6** copies per step."
    )
    assert [f.rule for f in report.findings] == ["copies_reads", "copies_pageable", "copies_layout"]
    assert all(f.saving_ns is None and f.link is not None for f in report.findings)
    assert plain(report.findings[1].evidence) == (
        "3 per step, 12.00 MB; the calls blocked the host for 900.0 µs per step while they were counted. Most in `aten::_to_copy`, phase `load`."
    )
    frame = report.table("counted")
    assert frame["count"].sum() == 20 and frame["bytes_per_step"].iloc[0] == 20 * MB
    assert frame["time_ns"].isna().all()
    for section in report.sections:
        if section.id.endswith("_card"):
            assert section.span in (3, 4, 6, 12)
    spans = [s.span for s in report.sections if s.id.endswith("_card")]
    assert len(spans) == 5 and sum(spans) == 24


def test_the_page_of_a_profile_with_times(capture: Capture) -> None:
    # GIVEN 1 ms per row: 4 ms of 14 to the device, at 40 MB / 4 ms
    report = with_copies(capture, time_ns=1e6, call_ns=np.nan, blocking=-1).analyze("memcpy")
    assert plain(report.headline) == "All copies together take **14.00 ms**. Most is host to device at 10.00 GB/s."
    assert (report.facts["htod_time_ns"], report.facts["htod_bandwidth_bytes_per_s"]) == (4_000_000, pytest.approx(10e9))
    assert "htod_blocking" not in report.facts
    section = report.section("counted")
    assert isinstance(section, TableSection) and section.sort is not None and section.sort.column == "time_ns"
    assert {"time_ns", "bandwidth_bytes_per_s"} <= {c.name for c in section.columns if c.rank == 1}
    assert "while they were counted" not in report.findings[0].evidence and "1.00 ms per step on the device" in plain(
        report.findings[0].evidence
    )
    # AND without a copy from pageable memory there is nothing to say of waiting, and no claim that nothing waits
    calm = with_copies(capture, time_ns=1e6, call_ns=np.nan, blocking=-1, bytes=8, src_kind="Device", dst_kind="Device")
    assert "findings" not in [s.id for s in with_texts(calm).analyze("memcpy").sections]


def with_texts(capture: Capture) -> Capture:
    copies = capture.tables["copies"]
    return with_copies(capture, **{name: copies[name].astype("category") for name in ("src_kind", "dst_kind")})


def test_copies_within_one_memory_are_no_transfers(tmp_path: Path) -> None:
    b = SolBuilder(copies=True)
    b.iteration(0, 0, MB, rows=[])
    b.records.append({"kind": "copies", "iteration": 0, "rows": [row(CLONE, "HtoH", "Pageable", "Pageable", (-1, -1), size=64)]})
    capture = ingest.read(str(b.write(tmp_path / b.name)))
    assert plain(capture.analyze("memcpy").headline) == "No copy crosses to a device: **1** copy per step within one memory."
    assert capture.analyze("memcpy").findings == []


@pytest.mark.parametrize(
    ("header", "record", "because"),
    [
        ({"copies": None}, None, "copies are not recorded: made by an older recorder"),
        ({"copies": False}, None, "copies were not counted"),
        ({"copies": True, "mode": "hooks"}, None, "copies were not counted"),
        ({"copies": True}, None, "no iteration was counted yet"),
        ({"copies": True}, [], "no copy between memories in the counted iterations"),
    ],
)
def test_the_page_states_why_it_has_no_copies(tmp_path: Path, header: dict[str, object], record: list[object] | None, because: str) -> None:
    b = SolBuilder(**header)  # type: ignore[arg-type]
    b.iteration(0, 0, MB, rows=[])
    if record is not None:
        b.records.append({"kind": "copies", "iteration": 0, "rows": record})  # type: ignore[dict-item]
    answer = ingest.read(str(b.write(tmp_path / b.name))).analyze("memcpy")
    assert isinstance(answer, UnavailableReport) and answer.because == because


# --- Files that lie --------------------------------------------------------------------------------------------------


def test_impossible_sizes_are_unknown_and_counted(tmp_path: Path) -> None:
    # GIVEN one good row among rows that lie
    good = row(TO, "HtoD", "Pageable", "Device", (-1, 0), size=8, blocking=1)
    rows: list[object] = [
        good,
        row(TO, "Sideways", "Pageable", "Device", (-1, 0), size=8),  # a direction that nobody knows
        row(TO, "HtoD", "Pageable", "Device", (-1, 0), size=-5),  # less than nothing
        row(TO, "HtoD", "Pageable", "Device", (-1, 0), size=1 << 60),  # more than there is
        row(TO, "HtoD", "Pageable", "Device", (-7, 1 << 40), size=8),  # devices out of range
        row(TO, "HtoD", "Pageable", "Device", (-1, 0), count=0, size=8),  # no copy at all
        row(TO, "HtoD", "Pageable", "Device", (-1, 0), count=1 << 50, size=8),
        row(TO, "HtoD", "Pageable", "Device", (-1, 0), size=8, unsized=3),  # more without a size than there are
        row(TO, "HtoD", "Pageable", "Device", (-1, 0), size=8, blocking=9),  # waits for more than there are
        row(TO, "HtoD", "Pageable", "Device", (-1, 0), size=8, call_ns=-4, module=99, phase=99),
        row("x" * 5000, "HtoD", "Pageable", "Device", (-1, 0), size=8),
        [*good, "a column of a newer writer"],
        good[:5],
        "no row",
    ]
    b = SolBuilder(copies=True)
    b.iteration(0, 0, MB, rows=[])
    b.records.append({"kind": "copies", "iteration": 0, "rows": rows})  # type: ignore[dict-item]
    b.close(1)
    capture = ingest.read(str(b.write(tmp_path / b.name)))
    found = capture.tables["copies"]
    # THEN ten rows can be used, of which two have no size
    assert len(found) == 10 and found["count"].sum() == 10 and found["without_bytes"].sum() == 3 and found["bytes"].sum() == 64
    assert found["direction"].astype(str).value_counts().to_dict() == {"HtoD": 9, "Unknown": 1}
    assert found["src_device"].tolist() == [-1] * 10 and found["dst_device"].tolist().count(-1) == 1
    assert found["blocking"].tolist().count(-1) == 1 and found["call_ns"].isna().sum() == 1
    assert found["name"].astype(str).str.len().max() == 200
    issues = dict(zip(capture.tables["issues"]["reason"].astype(str), capture.tables["issues"]["count"], strict=True))
    assert issues == {
        "copies of an unknown direction": 1, "impossible number of bytes of copies": 2, "impossible number of copies": 2,
        "more copies without a size than copies": 1, "more waiting copies than copies": 1, "module that is not defined": 1,
        "phase that is not defined": 1, "row that cannot be read": 2,
    }  # fmt: skip
    effects = capture.tables["issues"]["effect"].astype(str)
    assert not pd.Series(effects).eq("").any()


def test_copies_survive_a_file_that_was_cut_off(tmp_path: Path) -> None:
    b = SolBuilder(copies=True)
    for step in range(3):
        b.iteration(step, step * MB, MB, rows=[])
        b.records.append({"kind": "copies", "iteration": step, "rows": [row(TO, "HtoD", "Pinned", "Device", (-1, 0), size=8)]})
    path = b.write(tmp_path / b.name)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])  # in the middle of the last record
    capture = ingest.read(str(path))
    assert capture.facts.truncated and capture.tables["copies"]["iteration"].tolist() == [1]


# --- Beside a trace --------------------------------------------------------------------------------------------------


def trace(directions: list[str]) -> Capture:
    """A trace of two steps with copies of 4 MB in these directions, all in the first step, and one HtoD outside of both."""
    directions = [*directions, "HtoD"]
    n = len(directions)
    device = S.DEVICE.frame(
        {
            "kind": [S.MEMCPY] * n, "direction": directions, "src_kind": ["Pinned"] * n, "dst_kind": ["Device"] * n, "bytes": [4 * MB] * n,
            "start_ns": [100 * i for i in range(n)], "duration_ns": [50] * n, "device": [0] * n, "stream": [7] * n,
            "step": [0] * (n - 1) + [-1],
        }
    )  # fmt: skip
    steps = S.STEPS.frame(
        {"number": [10, 11], "start_ns": [0, 2000], "end_ns": [2000, 4000], "host_start_ns": [0, 2000], "host_end_ns": [2000, 4000]}
    )
    return Capture(Facts("kineto", "t", 0, vendor="nvidia"), {"device": device, "steps": steps})


def test_a_trace_with_a_capture_beside_it_shows_its_own_copies_and_how_the_two_differ(capture: Capture) -> None:
    # GIVEN a trace with 8 copies to the device, 4 to the host and 5 within it, over two steps, beside the capture
    both = trace(["HtoD"] * 8 + ["DtoH"] * 4 + ["DtoD"] * 5).with_ledger(capture)
    report = both.analyze("memcpy")
    # THEN the page is that of the trace
    assert report.facts["htod_count"] == 9 and report.facts["htod_bytes"] == 36 * MB
    # AND a table holds both per step, without the copy outside: 4 to 4, 3 counted (two of them reads) to 2, 1 to 2.5, and 1 peer copy to
    # an unknown number, since the trace leaves them out
    frame = report.table("beside").set_index("direction")
    assert frame["counted"].tolist() == [4, 3, 1, 1] and frame["recorded"].tolist()[:3] == [4, 2, 2.5]
    assert frame[["recorded", "recorded_bytes"]].isna().loc["PtoP"].all()
    assert frame.index.tolist() == ["HtoD", "DtoH", "DtoD", "PtoP"]
    assert frame["counted_bytes"].tolist() == [20 * MB, 8, 2 * MB, MB] and frame["recorded_bytes"].tolist()[:3] == [16 * MB, 8 * MB, 10 * MB]
    reasons = frame["reason"]
    assert reasons.isna()["HtoD"] and "inside operators" in reasons["DtoD"]
    assert reasons["PtoP"] == "the profiler leaves copies between devices out"
    # AND without the capture there is no such table
    with pytest.raises(KeyError):
        both.with_ledger(None).analyze("memcpy").table("beside")
