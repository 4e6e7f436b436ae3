"""The page of waits and patterns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model.registry import registry
from tb_sol_plugin.model.report import FindingsSection, TableSection, UnavailableReport
from tests.support.captures import report
from tests.support.copy_findings import US, steps
from tests.support.trace_builder import TraceBuilder
from tests.support.training import read_back


def loop(*, device: str = "NVIDIA H100 80GB HBM3") -> TraceBuilder:
    """Two steps of 1 ms. Each: kernel [50, 400) us, .item() of 4 B in [410, 412) held in [60, 420), kernel [500, 700) launched at 480,
    an exposed pinned copy of 2 MiB [700, 900) launched at 30."""
    t = steps(2, device=device)
    for n in range(2):
        z = n * 1_000 * US
        own = t.frame("train.py(12): step", z + 10 * US, 900 * US)
        t.module("Net_0", z + 51 * US, 400 * US, module_id=1, parent=own)
        t.copy("HtoD", z + 700 * US, 200 * US, bytes=2 << 20, src="Pinned", call=(z + 30 * US, 2 * US), stream=20)
        t.launch("a", at=z + 15 * US, start=z + 50 * US, duration=350 * US)
        t.op("aten::item", z + 55 * US, 370 * US)
        t.op("aten::_local_scalar_dense", z + 56 * US, 368 * US)
        t.copy("DtoH", z + 410 * US, 2 * US, bytes=4, dst="Pageable", call=(z + 60 * US, 360 * US))
        t.launch("b", at=z + 480 * US, start=z + 500 * US, duration=200 * US)
    return t


def test_the_page_names_the_largest_finding_and_all_of_them_together(tmp_path: Path) -> None:
    got = report(read_back(loop(), tmp_path), "memcpy_findings")
    # GIVEN 200 us of an exposed copy and 88 us of a device that is idle for .item(), per step of 1 ms WHEN both are replayed
    # THEN the read saves its time, since the host holds the step; nothing waits for the copy, and the host ends after it: it saves nothing
    assert got.headline == (
        "**Reading single values blocks the host**: **88.00\u202fµs** of each step, of 360.0\u202fµs that the host is held."
    )
    assert [(f.rule, f.saving_ns, f.removed_ns, f.share, f.hidden) for f in got.findings] == [
        ("copies_scalar_reads", 88 * US, 88 * US, pytest.approx(0.088), False), ("copies_exposed_HtoD", 0, 200 * US, 0.0, True),
    ]  # fmt: skip
    assert "hides behind other work: alone it saves nothing" in got.findings[1].evidence
    section = got.section("findings")
    assert isinstance(section, FindingsSection) and section.combined_ns == 88 * US and "by replay" in section.subtitle
    own = {name: got.facts[name] for name in ("findings", "hidden", "combined_ns", "held", "held_ns", "dry_ns", "step_ns", "grade")}
    assert own == {
        "findings": 1, "hidden": 1, "combined_ns": 88 * US, "held": 2, "held_ns": 720 * US, "dry_ns": 176 * US, "step_ns": 1_000 * US,
        "grade": "good",
    }  # fmt: skip
    assert got.table("patterns")[["basis", "removed_ns"]].values.tolist() == [["replay", 88 * US], ["hidden", 200 * US]]
    assert got.notices == [] and registry()["memcpy_findings"].under == "memcpy"


def test_a_copy_that_the_step_waits_for_saves_its_time(tmp_path: Path) -> None:
    # GIVEN kernels launched ahead, of which the second waits 200 us on its stream for a copy that runs alone, of which 100 us save at most
    t = steps(1)
    t.launch("a", at=15 * US, start=50 * US, duration=350 * US)
    t.copy("HtoD", 400 * US, 200 * US, bytes=2 << 20, src="Pinned", call=(30 * US, 2 * US))
    t.launch("b", at=40 * US, start=600 * US, duration=900 * US)
    got = report(read_back(t, tmp_path), "memcpy_findings")
    assert [(f.rule, f.saving_ns, f.hidden) for f in got.findings] == [("copies_exposed_HtoD", 200 * US, False)]
    # WHEN the path is graded poor: nothing was launched in this recording THEN all of its time is saved at most
    t = steps(1)
    t.kernel("a", 50 * US, 350 * US)
    t.copy("HtoD", 400 * US, 200 * US, bytes=2 << 20, src="Pinned")
    t.kernel("b", 600 * US, 300 * US)
    got = report(read_back(t, tmp_path / "poor"), "memcpy_findings")
    assert [(f.saving_ns, f.removed_ns) for f in got.findings] == [(200 * US, None)] and "grade" not in got.facts
    assert got.headline.endswith("at most **200.0\u202fµs** of each step.") and got.table("patterns")["basis"].tolist() == ["at most"]


def test_copies_that_held_the_host_stand_by_reason_and_place(tmp_path: Path) -> None:
    got = report(read_back(loop(), tmp_path), "memcpy_findings")
    (row,) = got.table("blocking").to_dict("records")
    assert (row["reason"], row["direction"], row["kinds"], row["module"], row["frame"], row["outer"], row["operator"]) == (
        "Reads a value", "DtoH", "Device → Pageable", "Net_0", "train.py:12 step", "aten::item", "aten::_local_scalar_dense",
    )  # fmt: skip
    # two reads of 360 us, for which the device is idle for 88 us each
    assert (row["count"], row["bytes"], row["lost_ns"], row["idle_ns"], row["longest_ns"], row["mean_ns"]) == (
        2, 8, 720 * US, 176 * US, 360 * US, 360 * US,
    )  # fmt: skip
    section = got.section("blocking")
    assert isinstance(section, TableSection)
    # AND its link means these two copies and no other
    link = section.row_links["0"]
    c = read_back(loop(), tmp_path)
    assert link.query["held"] == "tiny_read"  # others of the same place that held nothing are left out
    assert link.analysis == "memcpy_copies" and report(c, link.analysis, **link.query).facts["count"] == 2


def test_evidence_is_of_the_largest_finding_or_of_the_one_that_is_asked_for(tmp_path: Path) -> None:
    c = read_back(loop(), tmp_path)
    largest = report(c, "memcpy_findings").table("evidence")
    assert largest["direction"].tolist() == ["DtoH", "DtoH"] and (largest["host_ns"] == 360 * US).all()
    other = report(c, "memcpy_findings", rule="exposed").table("evidence")
    assert other["direction"].tolist() == ["HtoD", "HtoD"] and other["host_ns"].isna().all()
    asked = report(c, "memcpy_findings", rule="scalar_reads").table("evidence")
    assert asked["direction"].tolist() == ["DtoH", "DtoH"] and asked["step"].tolist() == ["1", "2"]
    first = [s.id for s in report(c, "memcpy_findings", rule="scalar_reads").sections]
    assert first == ["answer", "evidence", "findings", "patterns", "blocking"]
    assert asked["host_ns"].tolist() == [360 * US] * 2 and asked["start_ns"].tolist() == [410 * US, 1_410 * US]
    # AND the row of each finding links to its copies
    section = report(c, "memcpy_findings", step="1").section("patterns")
    assert isinstance(section, TableSection)
    assert section.row_links["0"].query == {"step": "1", "rule": "scalar_reads"}
    # AND a rule that found nothing says so, one that does not exist is refused
    empty = report(c, "memcpy_findings", rule="ping_pong").section("evidence")
    assert isinstance(empty, TableSection) and empty.data["id"] == [] and "ping_pong finds nothing" in empty.empty
    with pytest.raises(BadQuery) as error:
        report(c, "memcpy_findings", rule="no_such")
    assert error.value.field == "rule" and "scalar_reads" in error.value.hint


def test_thresholds_can_be_changed_and_the_page_says_so(tmp_path: Path) -> None:
    c = read_back(loop(), tmp_path)
    got = report(c, "memcpy_findings", thresholds="long_ns=200000,read_bytes=3")
    assert [f.rule for f in got.findings] == ["copies_small_to_host"]
    assert [n.text for n in got.notices] == ["Thresholds changed: read_bytes 3 (usually 64), long_ns 200000 (usually 100000)."]
    assert got.findings[0].link is not None and got.findings[0].link.query["thresholds"] == "long_ns=200000,read_bytes=3"
    with pytest.raises(BadQuery):
        report(c, "memcpy_findings", thresholds="long=1")


def test_one_step_has_its_own_findings(tmp_path: Path) -> None:
    got = report(read_back(loop(), tmp_path), "memcpy_findings", step="2")
    assert got.facts["held"] == 1 and [f.saving_ns for f in got.findings] == [88 * US, 0]


def test_nothing_to_fix_says_so(tmp_path: Path) -> None:
    t = steps(1)
    t.launch("k", at=0, start=0, duration=1_000 * US)
    t.copy("DtoD", 10 * US, 5 * US, bytes=4096, call=(1_000, 100), stream=9)
    got = report(read_back(t, tmp_path), "memcpy_findings")
    assert got.findings == [] and got.headline == "No copy here costs 0.1\u202f% of a step."
    assert got.table("blocking").empty and got.table("evidence").empty


def test_without_copies_or_without_a_device_the_page_explains_itself(tmp_path: Path) -> None:
    t = steps(1)
    t.launch("k", at=0, start=0, duration=100 * US)
    answer = read_back(t, tmp_path / "a").analyze("memcpy_findings")
    assert isinstance(answer, UnavailableReport) and answer.because == "no copy in this recording" and answer.record_it_with
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 100)
    answer = read_back(t, tmp_path / "b").analyze("memcpy_findings")
    assert isinstance(answer, UnavailableReport) and answer.because and answer.record_it_with


def test_kinds_that_a_tracer_does_not_tell_are_said(tmp_path: Path) -> None:
    t = steps(1, device="AMD Instinct MI300X")
    t.copy("HtoD", 100 * US, 500 * US, bytes=8_000_000, src="Host", call=(90 * US, 2 * US), api="hipMemcpyAsync")
    got = report(read_back(t, tmp_path), "memcpy_findings")
    assert [n.text for n in got.notices] == [
        "AMD's tracer does not record whether memory is pinned, pageable or unified: rules that need the kind of memory are off."
    ]
