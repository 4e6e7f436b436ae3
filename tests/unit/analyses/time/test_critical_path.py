"""The page of the critical path, against a recording worked out by hand."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tb_sol_plugin.cli.command import main
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.ingest import read
from tb_sol_plugin.metrics.critical.replayed import replayed
from tb_sol_plugin.metrics.rules.engine import Finding, to_report
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.metrics.time.waterfall import waterfall
from tb_sol_plugin.metrics.timeline.critical import stretches_of
from tb_sol_plugin.metrics.timeline.export import export
from tb_sol_plugin.metrics.timeline.timeline import timeline_of
from tb_sol_plugin.metrics.timeline.window import whole
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Report, TableSection, TimelineSection
from tests.support.captures import report
from tests.support.trace_builder import TraceBuilder

US = 1_000


def plain(text: str) -> str:
    """A text with plain spaces before its units."""
    return text.replace("\u202f", " ")


@pytest.fixture(scope="module")
def two_steps_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of 200 µs. Each: 40 of aten::mm on the host, a launch of 5, a kernel of 100, a wait that returns after 1, 49 of aten::add,
    and 5 after it. A copy of 20 on another stream is hidden behind the kernel."""
    t = TraceBuilder()
    for step in (0, 1):
        at = 200 * US * step
        t.step(step + 1, at, 200 * US)
        t.op("aten::mm", at, 45 * US)
        t.launch("gemm_kernel", at=at + 40 * US, start=at + 45 * US, duration=100 * US, call_duration=2 * US)
        t.copy("HtoD", at + 50 * US, 20 * US, src="Pinned", dst="Device", call=(at + 43 * US, US), stream=9)
        t.call("cudaStreamSynchronize", at + 50 * US, 96 * US)
        t.op("aten::add", at + 146 * US, 49 * US)
    return t.write(tmp_path_factory.mktemp("critical") / "w.pt.trace.json")


@pytest.fixture(scope="module")
def two_steps(two_steps_file: Path) -> Capture:
    return read(str(two_steps_file))


def test_parts_and_classes_are_those_of_the_step(two_steps: Capture) -> None:
    # GIVEN the steps above WHEN their path is asked for THEN host 40 + 49 + 5, launch 5, kernel 100 and the return of the wait add up to it
    answer = report(two_steps, "critical_path")
    facts = answer.facts
    expected = {"host_ns": 94_000, "latency_ns": 5_000, "kernel_ns": 100_000, "wait_ns": 1_000}
    assert {name: facts[name] for name in expected} == expected
    assert (facts["duration_ns"], facts["path_ns"], facts["steps"], facts["grade"], facts["dropped_edges"]) == (200_000, 200_000, 2, "good", 0)
    assert facts["blind_error"] == 0.005  # launches take 5 µs of the kernel and 7 of the copy: their median is 1 off
    classes = dict(zip(answer.table("classes")["class"], answer.table("classes")["time_ns"], strict=True))
    assert classes == {
        "Operators on the host": 89_000, "Other host code": 5_000, "Launch latency": 5_000, "Matrix kernels": 100_000,
        "Return of a synchronizing call": 1_000,
    }  # fmt: skip
    assert plain(answer.headline).startswith(
        "A step of 200.0 µs is bound by **the GPU, 50.0 %** of its critical path. On it are kernels 50.0 %, host code 47.0 %"
    )
    steps = answer.table("steps")
    assert steps["step"].tolist() == [1, 2] and steps["duration_ns"].tolist() == [200_000, 200_000]
    segments = answer.table("segments")
    assert int(segments["duration_ns"].sum()) == 400_000 and segments["order"].tolist() == list(range(1, len(segments) + 1))
    shown = answer.section("stretch")
    assert isinstance(shown, TimelineSection) and [(s, e) for s, e, _ in shown.highlight] == [(200_000, 240_000), (346_000, 400_000)]


def test_items_say_what_is_saved(two_steps: Capture) -> None:
    # GIVEN the kernel on the path and a copy behind it WHEN items are replayed THEN half of the kernel saves half of it, and the copy nothing
    items = report(two_steps, "critical_path").table("items").set_index("name")
    kernel = items.loc["gemm_kernel"]
    assert kernel[["time_ns", "total_ns", "share_of_total", "saved_half_ns"]].tolist() == [100_000, 100_000, 1.0, 50_000]
    # at 0 the host holds the step: it comes to the wait at 50, which costs 2 by itself, in place of 146; the copy is of another stream
    assert kernel["saved_zero_ns"] == 94_000
    # AND each item leads to that question: its saving at half is the answer there
    section = report(two_steps, "critical_path").section("items")
    assert isinstance(section, TableSection) and len(section.row_links) == len(items)
    for row, saved in enumerate(items["saved_half_ns"].tolist()):
        assert report(two_steps, "what_if", **section.row_links[str(row)].query).facts["saved_ns"] == saved
    assert "Memcpy HtoD (Pinned -> Device)" not in items.index and items.loc["aten::add"]["saved_zero_ns"] == 49_000


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("operator", {"aten::mm": 140_000, "aten::add": 49_000, "(no operator)": 5_000}),
        ("phase", {"ProfilerStep#1": 97_000, "ProfilerStep#2": 97_000}),
        ("thread", {"thread 4242": 94_000, "device 0, stream 7": 100_000}),
        ("class", {"Matrix kernels": 100_000, "Operators on the host": 89_000}),
    ],
)
def test_items_by(two_steps: Capture, by: str, expected: dict[str, int]) -> None:
    items = report(two_steps, "critical_path", by=by).table("items")
    found = dict(zip(items["name"], items["time_ns"], strict=True))
    assert {name: found.get(name) for name in expected} == expected and int(items["time_ns"].sum()) == 200_000


def test_what_of_the_path_lies_in_a_phase(two_steps: Capture) -> None:
    # GIVEN the steps above WHEN the part of the path in the range of step 2 is asked for THEN it is its host code, its launch and its kernel
    answer = report(two_steps, "critical_path", phase="ProfilerStep#2")
    facts = answer.facts
    assert (facts["duration_ns"], facts["path_ns"], facts["kernel_ns"]) == (200_000, 100_000, 50_000)  # means over two steps
    assert set(answer.table("segments")["phase"]) == {"ProfilerStep#2"} and int(answer.table("items")["time_ns"].sum()) == 100_000
    assert plain(answer.headline).startswith("`ProfilerStep#2` holds **50.0 %** of a step of 200.0 µs: kernels 50.0 %")
    with pytest.raises(BadQuery) as error:
        report(two_steps, "critical_path", phase="no such range")
    assert error.value.field == "phase" and "ProfilerStep#1" in str(error.value.hint)


def test_one_step_alone(two_steps: Capture) -> None:
    answer = report(two_steps, "critical_path", step="2")
    assert answer.facts["steps"] == 1 and answer.facts["duration_ns"] == 200_000
    assert "steps" not in [s.id for s in answer.sections]


def test_a_recording_of_the_host_alone(tmp_path: Path) -> None:
    # GIVEN no device THEN the path is host code, and nothing of a device is said
    t = TraceBuilder(device="")
    t.op("aten::mm", 0, 60 * US)
    t.op("aten::add", 70 * US, 30 * US)
    answer = report(read(str(t.write(tmp_path / "w.pt.trace.json"))), "critical_path")
    assert answer.facts["host_ns"] == 100 * US and "kernel_ns" not in answer.facts
    assert plain(answer.headline).startswith("The recording of 100.0 µs is bound by **the host, 100.0 %**")


def test_a_recording_of_the_device_alone(tmp_path: Path) -> None:
    # GIVEN kernels without any call THEN the stream holds them; nothing is known of what came before the first
    t = TraceBuilder()
    t.kernel("first", 10 * US, 20 * US)
    t.kernel("second", 40 * US, 20 * US)
    answer = report(read(str(t.write(tmp_path / "w.pt.trace.json"))), "critical_path")
    assert answer.facts["kernel_ns"] == 40 * US and answer.facts["path_ns"] == 50 * US


def test_findings_save_what_a_replay_says(two_steps: Capture) -> None:
    # GIVEN the steps above WHEN it is asked what would shorten them THEN without the wait they take 251 of 400 µs; the kernel saves half of it;
    # with half of the host's time the steps end at 153 and 306: launches at 20 and 173, kernels from 25 and 178
    found = report(two_steps, "critical_path").findings
    assert [(f.rule, f.saving_ns, f.candidate) for f in found] == [
        ("sync-stalls", 74_500, False), ("kernel-on-path", 50_000, False), ("host-bound", 47_000, False),
    ]  # fmt: skip
    assert "`cudaStreamSynchronize`" in found[0].title and found[1].link is not None and found[1].link.query["item"] == "gemm_kernel"
    for one in found:  # a link leads to the same saving
        assert one.link is not None
        assert report(two_steps, "what_if", **one.link.query).facts["saved_ns"] == one.saving_ns


def test_a_kernel_off_the_path_gains_nothing(tmp_path: Path) -> None:
    # GIVEN a long operator of the host, and a kernel behind it that nothing waits for THEN the kernel is said to gain nothing
    t = TraceBuilder()
    t.op("aten::mm", 0, 400 * US)
    t.launch("gemm_kernel", at=10 * US, start=20 * US, duration=100 * US)
    found = report(read(str(t.write(tmp_path / "w.pt.trace.json"))), "critical_path").findings
    assert [(f.rule, f.saving_ns) for f in found][-1] == ("off-path-hot-kernel", None) and "gemm_kernel" in found[-1].title
    assert found[0].rule == "host-bound"


def test_findings_of_other_rules_are_replayed(two_steps: Capture) -> None:
    # GIVEN findings that take 50 of the 100 µs of one of two kernels, all of a copy behind it, and the device's idle time from 0 to 40, in
    # which the host works WHEN they are replayed THEN the first saves 50 of two steps, the second nothing, the third its 40
    names = two_steps.device["name"].astype(str)
    kernel, copy = (np.flatnonzero(names == n)[:1] for n in ("gemm_kernel", "Memcpy HtoD (Pinned -> Device)"))
    found = [
        Finding(rule="kernel", evidence="", saving=25_000, events=kernel, events_ns=np.array([50_000.0])),
        Finding(rule="copy", evidence="", saving=10_000, events=copy, events_ns=np.array([20_000.0])),
        Finding(rule="wait", evidence="", saving=20_000, idle=(np.array([0]), np.array([40_000]))),
    ]
    part = scope(two_steps, Query())
    fall = waterfall(two_steps, part)
    judged = replayed(two_steps, part, fall, found)
    # the largest first; what hides stands last, and says so
    assert [(f.rule, f.saving, f.removed, f.hidden) for f in judged.found] == [
        ("kernel", 25_000, 25_000, False), ("wait", 20_000, 20_000, False), ("copy", 0, 10_000, True),
    ]  # fmt: skip
    assert judged.grade == "good" and [f.rule for f in judged.shown] == ["kernel", "wait"]
    card = to_report(judged.found[2], pages=(), step_ns=200_000)
    assert card.hidden and card.removed_ns == 10_000 and "hides behind other work: alone it saves nothing" in card.evidence
    # together they take the 25 and the 20, as one follows the other
    assert judged.together_ns(judged.shown) == 45_000 == judged.together_ns(judged.found)
    # of an operator call that owns the kernel half of its time is half of the kernel's
    owner = np.full(len(two_steps.device), -1, np.int32)
    owner[kernel] = 0
    owned = replace(fall, work=msgspec.structs.replace(fall.work, owner=owner, ops=fall.work.ops.copy()))
    call = Finding(evidence="", saving=25_000, rows=np.array([0]), claimed=np.array([50_000.0]))
    assert [f.saving for f in replayed(two_steps, part, owned, [call]).found] == [25_000]


# -- On the timeline ---------------------------------------------------------------------------------------------------


def test_the_path_on_the_timeline_goes_from_thread_to_stream_and_back(two_steps: Capture, tmp_path: Path) -> None:
    # GIVEN the steps above WHEN their paths are put on the timeline THEN the host holds until each launch, the stream until its kernel ends
    found = stretches_of(two_steps)
    assert list(zip(found.start.tolist(), found.end.tolist(), (found.device >= 0).tolist(), strict=True)) == [
        (0, 40_000, False), (40_000, 145_000, True), (145_000, 240_000, False), (240_000, 345_000, True), (345_000, 400_000, False),
    ]  # fmt: skip
    timeline = timeline_of(two_steps)
    names = timeline.events.names
    shown = [names.text[i] for i in timeline.events.name_ids(found.events(timeline).astype(np.uint32)).tolist()]
    assert shown == ["aten::mm", "gemm_kernel", "aten::add", "gemm_kernel", "aten::add"]
    # AND in a window the longest ones stand in order of time, and all are counted
    few, count = found.longest(0, 300_000, 2)
    assert (few.start.tolist(), count) == ([40_000, 240_000], 4)
    # AND an exported trace has them in a process of their own, with links along them, and the same path when it is read again
    window = replace(whole(timeline), path=True)
    out = tmp_path / "with_path.pt.trace.json.gz"
    out.write_bytes(b"".join(export(timeline, window)))
    events = json.loads(gzip.decompress(out.read_bytes()))["traceEvents"]
    own = [e for e in events if e.get("cat") == "critical_path"]
    lane = [(e["name"], e["ts"], e["dur"], e["args"]["class"]) for e in own if e["ph"] == "X"]
    assert lane[:5] == [
        ("aten::mm", 0, 40, "Operators on the host"), ("gemm_kernel", 40, 105, "Matrix kernels"),
        ("cudaStreamSynchronize", 145, 1, "Return of a synchronizing call"), ("aten::add", 146, 49, "Operators on the host"),
        ("ProfilerStep#1", 195, 5, "Other host code"),
    ]  # fmt: skip
    # the launch from its call to its kernel, and the end of the kernel to that of the wait, each 1 ns before it is over
    starts, ends = ([(e["id"], e["ts"], e["tid"]) for e in own if e["ph"] == ph] for ph in "sf")
    assert [t for _, t, _ in starts] == [40, 144.999, 240, 344.999] and [t for _, t, _ in ends] == [45, 145.999, 245, 345.999]
    assert [i for i, *_ in starts] == [i for i, *_ in ends] and [row for *_, row in ends[:2]] == [7, starts[0][2]]
    assert [e["args"]["edge"] for e in own if e["ph"] == "s"] == ["launch", "sync"] * 2
    marked = [e["name"] for e in events if e.get("args", {}).get("critical") == 1]
    assert sorted(set(marked)) == ["ProfilerStep#1", "ProfilerStep#2", "aten::add", "aten::mm", "cudaStreamSynchronize", "gemm_kernel"]
    # AND what is read again is the recording: the row of the path repeats its events, and adds none
    again = read(str(out))
    assert len(again.host) == len(two_steps.host) and len(again.device) == len(two_steps.device)
    assert report(again, "critical_path").table("classes").equals(report(two_steps, "critical_path").table("classes"))
    without = b"".join(export(timeline, replace(window, path=False)))
    assert b"critical_path" not in gzip.decompress(without)


# -- What if ----------------------------------------------------------------------------------------------------------


def now_then(answer: Report) -> tuple[object, ...]:
    """Step now and then, what is saved to the first order and naively."""
    facts = answer.facts
    table = answer.table("classes")
    assert int(table["before_ns"].sum()) == facts["step_ns"] and int(table["after_ns"].sum()) == facts["new_step_ns"]
    return tuple(facts[name] for name in ("step_ns", "new_step_ns", "first_order_ns", "naive_ns"))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # half of the kernel: 50 of its 100 µs, on the path
        ({"change": "kernels"}, (200_000, 150_000, 50_000, 50_000)),
        # no time: the host comes to its wait at 50 and leaves it at 52; naive and first order take off 100
        ({"change": "kernels", "scale": "0"}, (200_000, 106_000, 100_000, 100_000)),
        # the copy is hidden behind the kernel: nothing is saved
        ({"change": "copies", "scale": "0"}, (200_000, 200_000, 0, 20_000)),
        # twice the copy ends at 90, still before the kernel
        ({"change": "copies", "scale": "2"}, (200_000, 200_000, 0, -20_000)),
        # the host waits nowhere: it ends at 52 + 49 + 5 = 106, the kernel of the first step still runs until 145, that of the second
        # starts then, and it ends at 106 + 40 + 5 + 100 = 251: over both steps 251 / 2, in the second step nothing waits for the first
        ({"change": "syncs"}, None),
        ({"change": "item", "by": "operator", "item": "aten::add", "scale": "0"}, (200_000, 151_000, 49_000, 49_000)),
    ],
)
def test_a_change_is_replayed(two_steps: Capture, query: dict[str, str], expected: tuple[int, ...] | None) -> None:
    answer = report(two_steps, "what_if", **query)
    if expected is None:
        assert answer.facts["new_step_ns"] == 125_500
    else:
        assert now_then(answer) == expected
    assert answer.facts["low_ns"] < answer.facts["saved_ns"] < answer.facts["high_ns"]  # type: ignore[operator]


def test_without_a_name_the_item_that_saves_most_is_taken(two_steps: Capture) -> None:
    answer = report(two_steps, "what_if")
    assert answer.fields["item"].value == "gemm_kernel" and "aten::add" in answer.fields["item"].values
    assert plain(answer.headline) == (  # of the 94 us of the host on the path, all stay
        "If `gemm_kernel` took 50.0 % of the time, a step would take **150.0 µs** in place of 200.0 µs: 50.00 µs less. "
        "Host code would then hold 62.7 % of it."
    )


def test_a_name_or_scale_that_there_is_not(two_steps: Capture) -> None:
    for query, field in (({"item": "no such kernel"}, "item"), ({"scale": "-1"}, "scale")):
        with pytest.raises(BadQuery) as error:
            two_steps.analyze("what_if", **query)
        assert error.value.field == field and error.value.hint


def test_several_changes_at_once(two_steps: Capture, two_steps_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN the steps above WHEN the kernel takes half and aten::add nothing THEN each step is 50 and 49 shorter: 101 of 200 us
    half, none = {"change": "kernels"}, {"change": "item", "by": "operator", "item": "aten::add", "scale": 0}
    answer = report(two_steps, "what_if", **half, also=json.dumps([none]))
    assert now_then(answer) == (200_000, 101_000, 99_000, 99_000)
    changes = answer.table("changes")
    assert changes["saved_ns"].tolist() == [50_000, 49_000] and changes["place"].tolist() == [1, 2]
    assert plain(changes["change"][0]) == "all kernels took 50.0 % of the time" and "All of them save" in answer.section("changes").footer  # type: ignore[union-attr]
    assert " time, and `aten::add` took" in plain(answer.headline)
    # AND one after the other: two halves are a quarter, 75 shorter; a time that is set is that time
    assert now_then(report(two_steps, "what_if", **half, also=json.dumps([half])))[1] == 125_000
    assert now_then(report(two_steps, "what_if", **half, also=json.dumps([{"change": "kernels", "set_ns": 90_000}])))[1] == 190_000
    # AND a list in Python, and JSON on the command line, ask the same
    assert two_steps.analyze("what_if", change="kernels", also=[none]).facts == answer.facts  # type: ignore[union-attr]
    assert main(["analyze", "what_if", str(two_steps_file), "--change", "kernels", "--also", json.dumps([none]), "--no-cache"]) == 0
    assert json.loads(capsys.readouterr().out)["headline"] == answer.headline


def test_times_that_are_set_and_what_is_left_out(two_steps: Capture) -> None:
    # GIVEN the steps above WHEN each kernel takes 30 THEN each step is 70 shorter; left out, its launch of 5 and the call of 2 go with it: the
    # host comes to its wait at 48, which costs 2, and ends at 104
    fixed = report(two_steps, "what_if", change="item", item="gemm_kernel", set_ns="30000")
    assert now_then(fixed) == (200_000, 130_000, 70_000, 70_000) and "each event of `gemm_kernel` took" in fixed.headline
    gone = report(two_steps, "what_if", change="item", item="gemm_kernel", remove="true")
    assert gone.facts["new_step_ns"] == 104_000 and "`gemm_kernel` was left out" in gone.headline
    assert gone.fields["scale"].idle and not gone.fields["item"].idle
    # AND single events are named by their rows; without one the longest on the path is taken: a kernel of two
    single = report(two_steps, "what_if", by="event", scale="0.5")
    assert single.fields["item"].value in single.fields["item"].values and single.facts["dependencies"] == 1
    assert single.facts["new_step_ns"] == 175_000 and "If `gemm_kernel` (device " in single.headline
    # AND only what is in a range changes: the kernel of the second step, of two
    inside = report(two_steps, "what_if", change="kernels", inside="ProfilerStep#2", scale="0.5")
    assert inside.facts["new_step_ns"] == 175_000 and "ProfilerStep#1" in inside.fields["inside"].values
    assert plain(inside.headline).startswith("If all kernels in `ProfilerStep#2` took 50.0 % of the time, a step")


def test_a_graph_of_a_range_says_what_it_cannot_hold(two_steps: Capture) -> None:
    # GIVEN a range around launches and a wait WHEN it is one CUDA graph THEN the wait is said to stay
    answer = report(two_steps, "what_if", change="cuda_graph", inside="ProfilerStep#1")
    assert plain(answer.notices[0].text).startswith("1 wait of the host for the device in it")
    assert answer.fields["by"].idle and answer.fields["scale"].idle and "were those of one CUDA graph each" in answer.headline


@pytest.mark.parametrize(
    ("query", "field", "text"),
    [
        ({"also": "[{"}, "also", "is no list as JSON"),
        ({"also": '[{"change": "faster"}]'}, "also", "Invalid enum value 'faster' - at `also[0].change`"),
        ({"also": '[{"speed": 1}]'}, "also", "unknown field `speed`"),
        ({"also": '[{"item": "no such kernel"}]'}, "also", "no kernel 'no such kernel' in this recording"),
        ({"also": json.dumps([{"change": "syncs"}] * 16)}, "also", "17 changes at once"),
        ({"set_ns": "-1"}, "set_ns", "-1 ns is no length of an event"),
        ({"set_ns": "1", "remove": "true"}, "set_ns", "what is left out takes no time"),
        ({"inside": "no such range"}, "inside", "no host event 'no such range' in this recording"),
        ({"by": "event", "item": "gemm_kernel"}, "item", "no events: 'gemm_kernel'"),
        ({"by": "event", "item": "device 0, host 99"}, "item", "no host event 99 in this recording"),
    ],
)  # fmt: skip
def test_changes_that_say_nothing(two_steps: Capture, query: dict[str, str], field: str, text: str) -> None:
    with pytest.raises(BadQuery) as error:
        two_steps.analyze("what_if", **query)
    assert error.value.field == field and error.value.hint and text in str(error.value)


def test_a_path_that_is_not_explained_predicts_nothing(tmp_path: Path) -> None:
    # GIVEN kernels that start 500 µs after their launch, for no recorded reason THEN the grade is poor, and an interval is all that is said
    t = TraceBuilder()
    for i, late in enumerate((5, 5, 5, 500)):
        at = 1_000 * US * i
        t.launch("gemm_kernel", at=at, start=at + late * US, duration=100 * US)
    capture = read(str(t.write(tmp_path / "w.pt.trace.json")))
    page, answer = report(capture, "critical_path"), report(capture, "what_if", change="kernels")
    assert page.facts["grade"] == "poor" and not page.findings and page.table("items")["saved_half_ns"].isna().all()
    assert "not well explained" in page.notices[0].text
    assert answer.facts["saved_ns"] is None and answer.facts["low_ns"] < answer.facts["high_ns"]  # type: ignore[operator]
    assert "would save between" in answer.headline


# -- Slack ------------------------------------------------------------------------------------------------------------


def test_slack_of_events(two_steps: Capture) -> None:
    # GIVEN the steps above THEN the kernels hold their steps; the copies end at 70 of 200 and nothing waits for them but the end of the step
    answer = report(two_steps, "slack")
    table = answer.table("events")
    kernels, copies = table[table["name"] == "gemm_kernel"], table[table["name"] != "gemm_kernel"]
    assert kernels["slack_ns"].tolist() == [0, 0] and kernels["on_path"].all() and not copies["on_path"].any()
    # the copy of the first step runs before that of the second on its stream, which may start 130 later than it does at 250
    assert copies["slack_ns"].tolist() == [130_000, 130_000]
    assert answer.facts["on_path"] == 2 and answer.facts["on_path_ns"] == 200_000
    host = report(two_steps, "slack", side="host").table("events")
    assert host[host["name"] == "aten::add"]["slack_ns"].tolist() == [0, 0]
