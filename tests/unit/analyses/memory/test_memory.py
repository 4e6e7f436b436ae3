"""The page of memory: numbers worked out by hand for each source, windows and moments, what is unknown stays so."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.answer import answer_capture
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.report import FactsSection, FigureSection, Report, TableSection, UnavailableReport, encode
from tests.support.memory_snapshot import MIB, snapshot, write
from tests.support.trace_builder import TraceBuilder

GB = 10**9


def trace(tmp_path: Path, *, totals: bool = True, addresses: bool = True) -> Capture:
    """Two steps of 10 us. 1,000 B are there before; an addmm in a module allocates 100 B in an inner empty and 40 B that it frees itself;
    300 B from before are freed at 6 us; 60 B come at 13 us and stay; the 100 B are freed at 12 us, after the first step. 8 B on the host."""
    t = TraceBuilder()
    t.step(1, 0, 10_000)
    t.step(2, 10_000, 10_000)
    t.annotation("forward", 500, 5_000)
    t.module("Linear_0", 1_000, 3_000, module_id=1)
    t.frame("model.py(7): forward", 1_100, 2_800)
    t.op("aten::addmm", 1_500, 2_000)
    t.op("aten::empty", 1_600, 200)
    for at, size, address, level in (
        (1_700, 100, 0x10, 1_100), (2_500, 40, 0x20, 1_140), (3_000, -40, 0x20, 1_100), (6_000, -300, 0x30, 800), (12_000, -100, 0x10, 700),
        (13_000, 60, 0x40, 760),
    ):  # fmt: skip
        t.memory(at, size, address=address if addresses else None, allocated=level if totals else None, reserved=4_096 if totals else None)
    t.memory(2_600, 8, address=0x99, allocated=8, reserved=0, device_type=0, device_id=-1)
    return ingest.read(str(t.write(tmp_path / "a.pt.trace.json")))


def ask(capture: Capture, **query: str) -> Report:
    found = answer_capture("memory", capture, query)
    assert isinstance(found, Report)
    encode(found)
    held = found.section("peak")
    assert isinstance(held, TableSection) and held.total is not None
    assert sum(v for v in held.data["bytes"] if isinstance(v, int)) == held.total["bytes"]  # of every answer of this file
    return found


def rows(report: Report, section: str, *columns: str) -> list[list[object]]:
    found = report.section(section)
    assert isinstance(found, TableSection)
    return [list(r) for r in zip(*(found.data[c] for c in columns), strict=True)]


def test_facts_of_the_whole_recording(tmp_path: Path) -> None:
    # GIVEN the trace WHEN asked for its memory THEN 1,140 B are in use at most at 2.5 us, 4,096 B reserved: 2,956 B are held beside
    r = ask(trace(tmp_path), by="operator")
    assert {n: r.facts[n] for n in ("peak_bytes", "reserved_bytes", "before_bytes", "fragmentation_bytes", "peak_ns", "end_bytes")} == {
        "peak_bytes": 1_140, "reserved_bytes": 4_096, "before_bytes": 1_000, "fragmentation_bytes": 2_956, "peak_ns": 2_500, "end_bytes": 760,
    }  # fmt: skip
    # AND 1,000 B of it were there before, the rest is of two operators, nothing is unknown, and both stand last
    assert rows(r, "peak", "name", "bytes", "kind") == [
        ["aten::empty", 100, "row"], ["aten::addmm", 40, "row"], ["allocated before the window", 1_000, "before"], ["unknown", 0, "unknown"],
    ]  # fmt: skip
    section = r.section("peak")
    assert isinstance(section, TableSection) and section.last == ["allocated before the window", "unknown"]
    assert "1.14\u202fkB" in r.headline and "87.7\u202f%" in r.headline


def test_the_curve_holds_every_device(tmp_path: Path) -> None:
    # GIVEN a device and the host WHEN asked for neither THEN levels of both are told, the device's first; the host's reserved is unknown
    r = ask(trace(tmp_path))
    assert rows(r, "curve", "time_ns", "device", "allocated_bytes", "reserved_bytes")[:3] == [
        [0, "CUDA 0", 1_000, 4_096], [1_700, "CUDA 0", 1_100, 4_096], [2_500, "CUDA 0", 1_140, 4_096],
    ]  # fmt: skip
    assert rows(r, "curve", "device", "allocated_bytes", "reserved_bytes")[-1] == ["CPU", 8, None]
    # AND of one that is asked for, its own alone; what else there is stands in a table with links
    host = ask(trace(tmp_path), device="CPU")
    assert {d for (d,) in rows(host, "curve", "device")} == {"CPU"} and host.facts["reserved_bytes"] is None
    assert rows(host, "devices", "memory", "peak_bytes") == [["CUDA 0", 1_140], ["CPU", 8]]
    told = host.section("devices")
    assert isinstance(told, TableSection) and told.row_links["0"].query == {"device": "CUDA 0", "source": "events"}
    answer = host.section("answer")
    assert isinstance(answer, FactsSection) and answer.marks["reserved_bytes"].why == "reserved memory of the host is not tracked"


def test_operators_of_the_recording_and_of_a_window(tmp_path: Path) -> None:
    c = trace(tmp_path)
    names = (
        "name", "calls", "size_increase_bytes", "self_size_increase_bytes", "allocation_count", "self_allocation_count", "allocated_bytes",
        "self_allocated_bytes",
    )  # fmt: skip
    # GIVEN addmm holds +100 +40 -40, its inner empty +100; -300, -100 and +60 lie outside
    found = {r[0]: r[1:] for r in rows(ask(c), "operators", *names)}
    assert found["aten::addmm"] == [1, 100, 0, 2, 1, 140, 40] and found["aten::empty"] == [1, 100, 100, 1, 1, 100, 100]
    assert found["(no operator)"] == [None, -340, -340, 1, 1, 60, 60]
    # WHEN only 2 to 5 us are looked at THEN addmm, which began before, has no call there, and 40 B come and go
    found = {r[0]: r[1:] for r in rows(ask(c, window="2us-5us"), "operators", *names)}
    assert found == {"aten::addmm": [0, 0, 0, 1, 1, 40, 40]}


def test_allocations_say_what_became_of_them(tmp_path: Path) -> None:
    c = trace(tmp_path)
    columns = ("bytes", "state", "start_ns", "end_ns", "lifetime_ns")
    # GIVEN all of it THEN each has its life; the one from before has no start, the last no end
    r = ask(c)
    assert rows(r, "allocations", *columns) == [
        [300, "from before", None, 6_000, None], [100, "freed", 1_700, 12_000, 10_300], [60, "never freed", 13_000, None, None],
        [40, "freed", 2_500, 3_000, 500],
    ]  # fmt: skip
    assert rows(r, "allocations", "operator", "parent", "module", "frame", "phase", "step")[1:] == [
        ["aten::empty", "aten::addmm", "Linear_0", "model.py(7): forward", "ProfilerStep/forward", 1], [None, None, None, None, None, 2],
        ["aten::addmm", None, "Linear_0", "model.py(7): forward", "ProfilerStep/forward", 1],
    ]  # fmt: skip
    # WHEN 1 to 5 us THEN the 100 B are freed later; 300 and 60 B neither begin nor end there
    assert rows(ask(c, window="1000-5000"), "allocations", "bytes", "state") == [[100, "freed later"], [40, "freed"]]
    # WHEN 11 us to the end THEN the 100 B are from before; at least 80 B leave the 60 B out
    assert rows(ask(c, window="11us-20us"), "allocations", "bytes", "state") == [[100, "from before"], [60, "never freed"]]
    assert rows(ask(c, window="11us-20us", min_bytes="80"), "allocations", "bytes") == [[100]]


def test_an_allocation_is_drawn_over_its_lifetime(tmp_path: Path) -> None:
    # GIVEN the figure, in us WHEN rows are looked up THEN they cover their lives, open where an end is not recorded
    r = ask(trace(tmp_path))
    figure = r.section("curve_figure")
    assert isinstance(figure, FigureSection) and figure.zoom is not None
    assert (figure.zoom.window, figure.zoom.at, figure.zoom.scale) == ("window", "at", 1_000.0)
    keys = {size: str(key) for size, key in rows(r, "allocations", "bytes", "id")}
    drawn = figure.stretches["allocations"]
    assert (drawn[keys[100]].start, drawn[keys[100]].end) == (1.7, 12.0)
    assert drawn[keys[300]].start is None and drawn[keys[60]].end is None
    assert (figure.stretches["per_step"]["2"].start, figure.stretches["per_step"]["2"].end) == (10.0, 20.0)


def test_names_of_phases_stand_above_the_peak_and_its_words(tmp_path: Path) -> None:
    # GIVEN a phase with its name in the figure, whose peak is 1,140 B (4,096 reserved) THEN a fifth of the height is left above the levels
    figure = ask(trace(tmp_path)).section("curve_figure")
    assert isinstance(figure, FigureSection)
    layout = figure.figure["layout"]
    assert "forward" in [n["text"] for n in layout["annotations"]]  # type: ignore[index,call-overload]
    assert layout["yaxis"]["range"][1] >= 1.2 * 4.096  # type: ignore[index,call-overload]


def test_growth_of_two_steps_is_no_number(tmp_path: Path) -> None:
    # GIVEN two steps, too few for a line WHEN asked THEN the growth is unknown with that reason, not a slope beside it
    section = ask(trace(tmp_path)).section("answer")
    assert isinstance(section, FactsSection) and section.values["leak_bytes_per_step"] is None
    assert "too few steps" in section.marks["leak_bytes_per_step"].why


def test_memory_of_the_host_says_since_when_it_counts(tmp_path: Path) -> None:
    # GIVEN the host's 8 B, counted since the profiler began WHEN asked THEN the sentence says so
    assert "8\u202fB of what was allocated since the profiler began" in ask(trace(tmp_path), device="CPU").headline.replace("**", "")


def test_memory_per_step_is_listed(tmp_path: Path) -> None:
    # GIVEN two steps THEN the first peaks at 1,140 and ends at 800: +140, -340; the second begins with 800, its highest
    r = ask(trace(tmp_path))
    columns = ("step", "peak_bytes", "end_bytes", "allocated_bytes", "freed_bytes", "change_bytes", "peak_ns")
    assert rows(r, "per_step", *columns) == [["1", 1_140, 800, 140, 340, None, 2_500], ["2", 800, 760, 60, 100, -40, 0]]
    # WHEN one of them is asked for THEN the page is of it
    second = ask(trace(tmp_path), step="2")
    assert second.facts["peak_bytes"] == 800 and "step 2" in second.headline
    assert [r[0] for r in rows(second, "allocations", "bytes")] == [100, 60]


def test_a_moment_in_place_of_the_peak(tmp_path: Path) -> None:
    # GIVEN 7 us, after the 300 B went WHEN asked THEN 800 B are held: 700 of before, 100 of empty; the tiles still speak of the peak
    r = ask(trace(tmp_path), at="7us", by="operator")
    assert rows(r, "peak", "name", "bytes") == [["aten::empty", 100], ["allocated before the window", 700], ["unknown", 0]]
    assert r.facts["peak_bytes"] == 1_140
    section = r.section("peak")
    assert isinstance(section, TableSection) and section.links[0].query == {"by": "operator"}


def test_the_peak_of_a_window(tmp_path: Path) -> None:
    # GIVEN the window from 4 us on, in which nothing rises above the level it begins with THEN its peak is that level, at its start
    r = ask(trace(tmp_path), window="4us-20us")
    assert (r.facts["peak_bytes"], r.facts["peak_ns"]) == (1_100, 4_000)
    figure = r.section("curve_figure")
    assert isinstance(figure, FigureSection) and figure.figure["layout"]["xaxis"]["range"] == [4.0, 20.0]  # type: ignore[index,call-overload]


@pytest.mark.parametrize(
    ("query", "field", "said"),
    [
        ({"window": "abc"}, "window", "not a window"), ({"window": "9ms-3ms"}, "window", "no length"),
        ({"window": "5s-6s"}, "window", "nothing was recorded"), ({"at": "noon"}, "at", "not a time"),
        ({"device": "CUDA 7"}, "device", "no device"), ({"source": "snapshot"}, "source", "nothing of CUDA 0"),
        ({"min_bytes": "-1"}, "min_bytes", "min_bytes is -1"), ({"by": "colour"}, "by", "does not fit"), ({"step": "9"}, "step", "no step 9"),
    ],
)  # fmt: skip
def test_invalid_queries_are_refused_with_a_reason(tmp_path: Path, query: dict[str, str], field: str, said: str) -> None:
    with pytest.raises(BadQuery) as caught:
        answer_capture("memory", trace(tmp_path), query)
    assert caught.value.field == field and said in caught.value.message and caught.value.hint


def test_without_totals_changes_are_shown_and_said(tmp_path: Path) -> None:
    # GIVEN no totals WHEN asked THEN the rise is 140 B, nothing that needs levels is told, and a notice says so
    r = ask(trace(tmp_path, totals=False))
    assert r.facts["peak_bytes"] == 140 and r.facts["before_bytes"] is None and r.facts["fragmentation_bytes"] is None
    assert any("no totals" in n.text for n in r.notices) and r.section("answer").labels["peak_bytes"] == "Rises at most"  # type: ignore[union-attr]
    assert "not recorded" in r.headline


def test_without_addresses_no_lifetime_is_known(tmp_path: Path) -> None:
    # GIVEN no addresses WHEN asked THEN every allocation and every free stands by itself, marked; the curve keeps no stack
    r = ask(trace(tmp_path, addresses=False))
    assert {s for (s,) in rows(r, "allocations", "state")} == {"unknown"} and len(rows(r, "allocations", "bytes")) == 6
    assert rows(r, "allocations", "lifetime_ns") == [[None]] * 6


def made(rows: list[tuple[int, int, int]]) -> Capture:
    """(time, bytes, total) per event of a device, each at its own address."""
    columns = np.array(rows, np.int64).reshape(-1, 3)
    table = S.MEMORY.frame({
        "time_ns": columns[:, 0], "device_type": np.ones(len(rows)), "device_id": np.zeros(len(rows)), "address": np.arange(len(rows)) + 1,
        "bytes": columns[:, 1], "total_allocated": columns[:, 2], "total_reserved": columns[:, 2], "index": np.arange(len(rows)),
    })  # fmt: skip
    return Capture(Facts("kineto", "x", 0), {"memory": table})


def test_a_single_memory_event_has_a_page() -> None:
    # GIVEN one allocation at time 0, in a recording without length THEN it is the peak, and every table is there
    r = ask(made([(0, 64, 164)]))
    assert (r.facts["peak_bytes"], r.facts["before_bytes"], r.facts["end_bytes"]) == (164, 100, 164)
    assert rows(r, "allocations", "bytes", "state") == [[64, "never freed"]]


def test_a_single_free_has_a_page() -> None:
    r = ask(made([(5, -64, 36)]))
    assert (r.facts["peak_bytes"], r.facts["before_bytes"], r.facts["end_bytes"]) == (100, 100, 36)


def test_totals_that_cannot_be_are_shown_as_recorded_without_a_stack() -> None:
    # GIVEN a total below what was allocated THEN the level is as recorded, and what is told too much stands flagged
    r = ask(made([(1, 10, 110), (2, 500, 120), (3, 1, 121)]), at="2", by="operator")
    section = r.section("peak")
    assert (
        isinstance(section, TableSection) and section.data["bytes"] == [510, 100, -490] and section.marks["bytes"]["2"].state == "flagged"
    )
    figure = r.section("curve_figure")
    assert isinstance(figure, FigureSection)
    assert not any("stackgroup" in t for t in figure.figure["data"])  # type: ignore[attr-defined]


def test_the_stack_adds_up_to_what_is_in_use(tmp_path: Path) -> None:
    # GIVEN the trace, whose allocations have an estimated category THEN the areas of the figure add up to its line at every point
    figure = ask(trace(tmp_path)).section("curve_figure")
    assert isinstance(figure, FigureSection)
    data: list[dict[str, object]] = figure.figure["data"]  # type: ignore[assignment]
    parts = [t["y"] for t in data if "stackgroup" in t]
    (whole,) = [t["y"] for t in data if t["name"] == "in use"]
    assert len(parts) > 1 and np.allclose(np.sum(parts, axis=0), whole)  # type: ignore[arg-type]
    assert {t["name"] for t in data if "stackgroup" in t} >= {"allocated before the window"}


def test_many_allocations_are_bounded() -> None:
    # GIVEN 1,500 allocations of 1 to 1,500 B WHEN asked THEN the largest 1,000 stand in the table, 500 are counted as left out
    total = 0
    events = []
    for i in range(1, 1_501):
        total += i
        events.append((i, i, total))
    r = ask(made(events))
    found = r.section("allocations")
    assert isinstance(found, TableSection) and found.truncated == 500
    assert found.data["bytes"] == list(range(1_500, 500, -1))


def test_the_page_offers_what_the_recording_has(tmp_path: Path) -> None:
    # GIVEN one source, two memories, no line of a timeline WHEN asked THEN devices and what can be answered are offered, sources are not
    fields = ask(trace(tmp_path)).fields
    assert (fields["device"].value, fields["device"].values) == ("CUDA 0", ("CUDA 0", "CPU"))
    assert fields["source"].values == ("auto",) and "auto" in fields["by"].values and set(fields["by"].values) >= {"operator", "module"}
    assert ask(trace(tmp_path), source="events").fields["source"].values == ("auto", "events")


# -- other sources ------------------------------------------------------------------------------------------------


def test_an_allocator_snapshot_has_a_page(tmp_path: Path) -> None:
    # GIVEN the snapshot: 500 B before, 1,000 B that come and go, 3 MiB - 100 B that stay; an allocation of 80 GiB failed
    r = ask(ingest.read(str(write(tmp_path / "m.pickle", snapshot()))))
    assert (r.facts["peak_bytes"], r.facts["before_bytes"], r.facts["failed_allocations"]) == (3 * MIB - 100 + 1_500, 500, 1)
    assert rows(r, "allocations", "bytes", "state", "frame") == [
        [3 * MIB - 100, "never freed", "train.py(12): forward"], [1_000, "freed", "train.py(12): forward"],
    ]  # fmt: skip
    # AND that memory ran out is said above all, with the way to its reason
    first = r.notices[0]
    assert first.text.startswith("Memory ran out: 85.90\u202fGB could not be allocated") and first.level == "warn"
    assert first.link is not None and first.link.analysis == "memory_findings"
    # AND it tells no operators: the table is there, empty, and says why
    section = r.section("operators")
    assert isinstance(section, TableSection) and section.data["name"] == [] and "no operators" in section.empty
    figure = r.section("curve_figure")
    assert isinstance(figure, FigureSection)
    assert [t["name"] for t in figure.figure["data"] if t["name"] == "failed allocation"] == ["failed allocation"]  # type: ignore[attr-defined,index]


def test_a_history_without_times_is_drawn_entry_by_entry(tmp_path: Path) -> None:
    # GIVEN a snapshot of an older version WHEN drawn THEN the axis counts entries, and a notice says that they are no times
    value = snapshot()
    for entry in value["device_traces"][0] + value["device_traces"][1]:
        del entry["time_us"]
    r = ask(ingest.read(str(write(tmp_path / "m.pickle", value))))
    figure = r.section("curve_figure")
    assert isinstance(figure, FigureSection) and "entry" in str(figure.figure["layout"]["xaxis"]["title"])  # type: ignore[index,call-overload]
    assert any("no times" in n.text for n in r.notices)


def test_a_memory_timeline_has_a_page(tmp_path: Path) -> None:
    # GIVEN parameters of 10 B and an activation of 5 B WHEN asked THEN both are told by what they are for
    path = tmp_path / "m.json"
    path.write_text("[[-1, 1, 10, 0], [1000, 2, 0, 5], [2000, 2, 5, 4], [3000, 4, -5, 4]]")
    r = ask(ingest.read(str(path)))
    assert rows(r, "peak", "name", "bytes") == [["parameters", 10], ["activations", 5], ["unknown", 0]]
    assert r.facts["reserved_bytes"] is None and r.facts["headroom_bytes"] is None
    assert "no single allocations" in r.section("allocations").empty  # type: ignore[union-attr]


def test_memory_records_of_a_program_have_a_page() -> None:
    # GIVEN records of two iterations: 50 B and 40 B in use at their ends, at most 60 B and 70 B within, of a device of 100 B
    records = S.MEMORY_RECORDS.frame({
        "iteration": [0, 1], "time_ns": [10, 20], "device": [0, 0], "total": [100, 100], "allocated": [50, 40], "reserved": [90, 90],
        "max_allocated": [60, 70], "since": ["iteration", "iteration"], "max_reserved": [90, 90], "device_used": [95, 95],
    })  # fmt: skip
    steps = S.STEPS.frame({"number": [0, 1], "host_start_ns": [0, 10], "host_end_ns": [10, 20], "start_ns": [0, 10], "end_ns": [10, 20]})
    r = ask(Capture(Facts("sol_capture", "x", 0, extent_ns=(0, 20)), {"memory_records": records, "steps": steps}))
    assert (r.facts["peak_bytes"], r.facts["capacity_bytes"]) == (70, 100)
    # AND each step has the peak and the level that the record at its end tells; what was allocated is not known
    assert rows(r, "per_step", "step", "peak_bytes", "end_bytes", "allocated_bytes") == [["0", 60, 50, None], ["1", 70, 40, None]]


def test_a_recording_of_the_host_without_levels_says_so() -> None:
    # GIVEN a record of the host alone, which has no allocator WHEN asked THEN the page is not available, and says how to record
    records = S.MEMORY_RECORDS.frame({"time_ns": [1], "device": [-1], "allocated": [-1], "since": ["process"]})
    found = answer_capture("memory", Capture(Facts("sol_capture", "x", 0), {"memory_records": records}), {})
    assert isinstance(found, UnavailableReport) and found.record_it_with


def test_the_memory_of_the_device_is_a_line_where_it_is_near(tmp_path: Path) -> None:
    # GIVEN a device of 80 GB WHEN 40 GB are in use THEN its memory is drawn; WHEN 1 GB is THEN it is only said
    def lines(in_use: int) -> tuple[int, str]:
        records = S.MEMORY_RECORDS.frame({
            "time_ns": [1, 2], "device": [0, 0], "total": [80 * GB] * 2, "allocated": [in_use] * 2, "reserved": [in_use] * 2,
            "max_allocated": [in_use] * 2, "since": ["process"] * 2,
        })  # fmt: skip
        figure = ask(Capture(Facts("sol_capture", "x", 0, extent_ns=(0, 3)), {"memory_records": records})).section("curve_figure")
        assert isinstance(figure, FigureSection)
        shapes: list[dict[str, object]] = figure.figure["layout"]["shapes"]  # type: ignore[index,call-overload]
        return sum(s["yref"] == "y" for s in shapes), figure.subtitle

    assert lines(40 * GB)[0] == 1
    count, said = lines(GB)
    assert count == 0 and "80.00\u202fGB" in said


def test_names_from_a_file_stay_text(tmp_path: Path) -> None:
    # GIVEN a phase with markup in its name THEN the figure holds it only escaped
    t = TraceBuilder()
    t.step(1, 0, 1_000)
    t.annotation("<img src=x onerror=1>", 0, 900)
    t.memory(200, 64, address=1, allocated=64, reserved=64)
    figure = ask(ingest.read(str(t.write(tmp_path / "a.pt.trace.json")))).section("curve_figure")
    assert isinstance(figure, FigureSection)
    assert "<img" not in str(figure.figure) and "&lt;img" in str(figure.figure)
