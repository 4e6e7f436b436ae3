"""The page What to free: what stands first, what each source shows, and what it says of what was not recorded."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.devices.spec import DeviceProps
from tb_sol_plugin.ingest.memory.snapshot import capture_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.report import FactsSection, FigureSection, FindingsSection, Report, encode
from tests.support import memory_heaps as heaps
from tests.support.memory_snapshot import MIB
from tests.support.memory_steps import training
from tests.support.trace_builder import TraceBuilder


def report(c: Capture, **query: object) -> Report:
    out = c.analyze("memory_findings", **query)
    assert isinstance(out, Report)
    msgspec.json.decode(encode(out))  # plain JSON, without NaN
    return out


def ids(r: Report) -> list[str]:
    return [s.id for s in r.sections]


def failed(asked: int = 70 * MIB, free: int = 6 * MIB) -> Capture:
    c = capture_of(heaps.out_of_memory(asked, free), file="m")
    facts = Facts("memory_snapshot", "m", 0, devices=(DeviceProps(0, "GPU", heaps.TOTAL),), metadata=c.facts.metadata, pseudo_step=True)
    return Capture(facts, c.tables)


def test_a_leak_is_drawn_with_its_line_and_who_leaves_memory_behind(tmp_path: Path) -> None:
    # GIVEN 8 steps that leave 3,000 B behind each
    r = report(training(tmp_path, [3_000] * 8))
    # THEN the headline says so, the tile has the slope, and the line runs from the first step's level to the last one's
    assert r.headline.startswith("Memory in use grows by 3.00") and r.facts["slope_bytes"] == 3_000
    figure = r.section("growth_figure")
    assert isinstance(figure, FigureSection) and "R² 1.00" in figure.subtitle
    (line,) = [t for t in r.figure("growth_figure").data if t.name == "line"]
    assert [v * 1e6 for v in line.y] == pytest.approx([1_000_000, 1_021_000]) and list(line.x) == [1, 8]
    assert r.table("growth")["name"].tolist() == ["Cache_0", "aten::cat", "cache.py(7): forward"]
    assert r.table("steps")["left_bytes"].tolist() == [3_000] * 7 + [5_000]
    # AND what rules lack stands last, with how to record it
    missing = r.table("missing").set_index("rule")
    assert "copies=True" in missing.loc["pinned_unused", "record_it_with"] and ids(r)[-1] == "missing"


def test_of_many_steps_a_bounded_number_is_drawn(tmp_path: Path) -> None:
    # GIVEN 2,000 steps that leave 3,000 B behind each WHEN drawn THEN fewer points, and words for it; the line and the table have them all
    r = report(training(tmp_path, [3_000] * 2_000))
    figure = r.section("growth_figure")
    first = r.table("steps")["warm_up"].tolist().index("") + 1
    drawn = r.figure("growth_figure").data
    count = sum(len(t.x) for t in drawn if t.name != "line")
    (line,) = [t for t in drawn if t.name == "line"]
    assert isinstance(figure, FigureSection) and count <= 1_500 and list(line.x) == [first, 2_000] and len(r.table("steps")) == 2_000
    assert figure.subtitle.endswith("the least and most of each stretch, " + f"{count} of 2_000 steps".replace("_", "\u202f"))


def test_warm_up_is_no_leak_and_has_no_evidence(tmp_path: Path) -> None:
    r = report(training(tmp_path, [0] * 8, state=600_000))
    assert "growth" not in ids(r) and r.facts["slope_bytes"] == 0 and r.table("steps")["warm_up"].tolist() == ["warm-up"] + [""] * 7


def test_why_memory_ran_out_is_told_with_its_setting() -> None:
    # GIVEN 70 MiB that failed with 6 MiB free on the device and 120 MiB in pieces of at most 60
    r = report(failed())
    # WHEN the page opens THEN why it ran out and the setting that helps come before what else could be freed
    assert ids(r).index("story") < ids(r).index("findings")
    assert "Memory is fragmented: `PYTORCH_" in r.headline
    assert r.fields["source"].values == ("auto",) and len(r.fields["device"].values) == 1
    story = r.section("story")
    assert isinstance(story, FactsSection) and "fragmented" in story.text and "`PYTORCH_CUDA_ALLOC_CONF=" in story.text
    wanted = {
        "requested_bytes": 70 * MIB, "device_free_bytes": 6 * MIB, "unused_bytes": 120 * MIB, "largest_fitting_bytes": 60 * MIB,
        "reserved_then_bytes": 222 * MIB, "where": "/home/me/train.py(31): loss", "left_bytes": 6 * MIB, "returnable_bytes": 20 * MIB,
        "setting": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True",
    }  # fmt: skip
    assert {n: r.facts[n] for n in wanted} == wanted and r.headline.startswith("Memory ran out: 73.4")
    assert "failures" not in ids(r)  # one is told in full
    pools = r.table("pools")
    assert pools["pool"].tolist() == ["common"] * 3 and int(pools["free_bytes"].sum()) == 122 * MIB - 1536


def test_several_failures_have_a_table() -> None:
    value = heaps.fragmented([heaps.entry("oom", 6 * MIB, size * MIB, at, heaps.ASKED) for at, size in ((10, 200), (20, 70))])
    r = report(capture_of(value, file="m"))
    assert r.table("failures")["requested_bytes"].tolist() == [200 * MIB, 70 * MIB] and r.facts["requested_bytes"] == 70 * MIB
    assert r.table("failures")["setting"].isna().tolist() == [True, False]


def test_headroom_that_is_not_known_says_what_to_record(tmp_path: Path) -> None:
    # GIVEN a trace of an H100, whose memory is told, and nothing beside the allocator WHEN shown THEN headroom is a dash with its reason
    r = report(training(tmp_path, [0] * 6))
    room = r.section("room")
    assert isinstance(room, FactsSection) and room.values["left_bytes"] is None and room.values["total_bytes"] == 85_018_279_936
    assert "record_base_memory" in room.marks["left_bytes"].why and "at most 85.01" in room.notes["left_bytes"]


def test_memory_of_the_host_has_no_allocator(tmp_path: Path) -> None:
    t = TraceBuilder(device="")
    t.op("aten::empty", 0, 1_000)
    t.memory(200, 100, address=1, allocated=100, reserved=0, device_type=0, device_id=-1)
    r = report(ingest.read(str(t.write(tmp_path / "a.pt.trace.json"))))
    assert "room" not in ids(r) and "gap_figure" not in ids(r) and r.notices[0].text.startswith("CPU is memory of the host")
    cards = r.section("findings")
    assert isinstance(cards, FindingsSection) and not cards.findings and "Nothing was found" in cards.empty


def test_a_device_or_source_that_is_not_there_is_said(tmp_path: Path) -> None:
    from tb_sol_plugin.errors import BadQuery

    c = training(tmp_path, [0] * 6)
    with pytest.raises(BadQuery, match="no device"):
        report(c, device="CUDA 7")
    with pytest.raises(BadQuery, match="nothing of"):
        report(c, source="snapshot")
    assert report(c, device="CUDA 0", source="events").facts["findings"] == report(c).facts["findings"]


def test_without_any_memory_it_says_what_to_record(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.op("aten::empty", 0, 1_000)
    out = ingest.read(str(t.write(tmp_path / "a.pt.trace.json"))).analyze("memory_findings")
    assert not out.available and "profile_memory" in out.record_it_with  # type: ignore[union-attr]


def test_records_of_the_host_alone_are_no_allocator() -> None:
    table = S.MEMORY_RECORDS.frame({"device": [-1], "time_ns": [1], "process_used": [5], "since": ["process"]})
    out = Capture(Facts("sol_capture", "x", 0), {"memory_records": table}).analyze("memory_findings")
    assert not out.available


def test_names_of_the_program_are_carried_as_text() -> None:
    # GIVEN a line of the program with a name that looks like markup WHEN shown THEN it is plain text in JSON
    value = heaps.out_of_memory(70 * MIB, 6 * MIB)
    value["device_traces"][0][0]["frames"] = [{"filename": "<script>.py", "line": 3, "name": "<b>f</b>"}]
    body = json.loads(encode(report(capture_of(value, file="m"))))
    assert any(s.get("values", {}).get("where") == "<script>.py(3): <b>f</b>" for s in body["sections"])


def test_two_batch_sizes_give_the_largest_that_fits() -> None:
    # GIVEN peaks of 20 and 32 GB at 4 and 8 samples, 22 GB reserved at 4, 80 GB of which 2 lie beside WHEN asked THEN 22 fit
    gb, number = 10**9, np.arange(6)
    tables = {
        "memory_records": S.MEMORY_RECORDS.frame({
            "device": [0] * 6, "iteration": number, "time_ns": number * 10, "allocated": [8 * gb] * 6, "since": ["iteration"] * 6,
            "max_allocated": [20 * gb, 32 * gb] * 3, "reserved": [22 * gb, 40 * gb] * 3, "total": [80 * gb] * 6,
            "device_used": [24 * gb, 42 * gb] * 3,
        }),
        "iterations": S.ITERATIONS.frame({"number": number, "batch": [4, 8] * 3}),
    }  # fmt: skip
    r = report(Capture(Facts("sol_capture", "x", 0), tables))
    facts = r.section("batch")
    assert isinstance(facts, FactsSection) and (facts.values["largest_batch"], facts.values["per_sample_bytes"]) == (22, 3 * gb)
    assert facts.marks["largest_batch"].state == "estimated" and r.table("batches")["batch"].tolist() == [4, 8]


def test_the_step_pages_speak_of_memory_only_where_it_is_the_problem(tmp_path: Path) -> None:
    # GIVEN a leaking run, and one that does not leak WHEN the overview and What to fix are asked THEN only the first has the card
    leaks, calm = training(tmp_path / "a", [3_000] * 8), training(tmp_path / "b", [0] * 8)
    for name in ("overview", "findings"):
        card = leaks.analyze(name).section("memory")  # type: ignore[union-attr]
        assert isinstance(card, FindingsSection) and card.saves == "memory" and card.findings[0].rule == "memory_leak"
        assert card.findings[0].link is not None and card.findings[0].link.analysis == "memory_findings"
        assert "memory" not in [s.id for s in calm.analyze(name).sections]  # type: ignore[union-attr]
