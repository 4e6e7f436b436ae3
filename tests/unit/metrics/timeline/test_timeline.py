"""Tracks of a recording: where each event stands, what they are called, how they are merged, searched, linked and added up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.timeline import counters, events, find, links, selection
from tb_sol_plugin.metrics.timeline.detail import detail
from tb_sol_plugin.metrics.timeline.events import COMMUNICATION, COMPUTE, OPERATOR, SHOWN, Names
from tb_sol_plugin.metrics.timeline.phases import bands
from tb_sol_plugin.metrics.timeline.selection import Selection, everything, select
from tb_sol_plugin.metrics.timeline.timeline import Timeline, timeline_of
from tb_sol_plugin.metrics.timeline.tracks import Track
from tb_sol_plugin.metrics.timeline.workers import Workers
from tests.support.trace_builder import TraceBuilder


@pytest.fixture
def shown(tmp_path: Path) -> Timeline:
    """Two steps' worth of one: an operator around a launch, a kernel on stream 7, a copy on stream 9 beside it, a range, memory."""
    t = TraceBuilder(base_ns=1_700_000_000_000_000_000)
    t.step(3, 0, 10_000)
    t.annotation("forward", 100, 4_000)
    t.op("aten::mm", 200, 1_000, shapes=[[8, 8], [8, 8]], types=["float", "float"])
    t.launch("gemm", at=300, start=2_000, duration=5_000)
    t.copy("HtoD", 3_000, 1_000, src="Pageable", stream=9, bytes=4_096)
    t.kernel("lost", 8_000, 500)
    t.memory(400, 512, allocated=512, reserved=1_024)
    t.memory(5_000, -512, allocated=0, reserved=1_024)
    return timeline_of(ingest.read(str(t.write(tmp_path / "a.json"))))


def track(shown: Timeline, path: str) -> int:
    (found,) = [i for i, t in enumerate(shown.tracks) if t.path.endswith(path)]
    return found


def names(shown: Timeline, ids: np.ndarray) -> list[str]:
    return [shown.events.names.text[i] for i in shown.events.name_ids(ids.astype(np.uint32)).tolist()]


def lane_events(shown: Timeline, lane: int) -> np.ndarray:
    return shown.pyramid.events(range(lane, lane + 1), 0, 10**9)[0].event


def test_every_event_stands_in_one_lane_of_its_thread_or_stream(shown: Timeline) -> None:
    # GIVEN a small recording THEN all of its events are in lanes, once
    assert sorted(shown.arranged.order.tolist()) == list(range(len(shown.events)))
    # AND threads stand below their process, streams below their device, devices first
    kinds = [t.kind for t in shown.tracks]
    assert kinds[:2] == ["worker", "device"] and kinds.index("process") > max(i for i, k in enumerate(kinds) if k == "stream")
    assert all(t.parent < i for i, t in enumerate(shown.tracks))
    # AND the nested ones are one lane deeper each
    main = shown.tracks[track(shown, "/thread 1")] if any(t.path.endswith("/thread 1") for t in shown.tracks) else _thread(shown)
    lanes = [names(shown, lane_events(shown, main.first_lane + i)) for i in range(main.lanes)]
    assert lanes == [["ProfilerStep#3"], ["forward"], ["aten::mm"], ["cudaLaunchKernel"]]
    assert (main.label, main.launches, main.open) == ("main", 1, True)


def _thread(shown: Timeline) -> Track:
    (found,) = [t for t in shown.tracks if t.kind == "thread"]
    return found


def test_streams_say_what_they_do(shown: Timeline) -> None:
    seven, nine = (shown.tracks[track(shown, f"/stream {n}")] for n in (7, 9))
    assert (seven.detail, nine.detail, seven.events, nine.events) == ("compute", "copies", 2, 1)
    assert (seven.first_ns, seven.last_ns) == (2_000, 8_500)


def test_events_that_overlap_in_part_are_all_shown(tmp_path: Path) -> None:
    # GIVEN kernels of one stream that overlap, and a host event that ends after the one around it
    t = TraceBuilder()
    t.kernel("a", 0, 100)
    t.kernel("b", 50, 100)
    t.kernel("c", 160, 10)
    t.op("outer", 0, 100)
    t.op("inner", 50, 100)
    t.op("next", 120, 10)
    shown = Timeline(ingest.read(str(t.write(tmp_path / "a.json"))))
    # THEN both stand on lanes of their own, and they are counted
    one = shown.tracks[track(shown, "/stream 7")]
    assert [names(shown, lane_events(shown, one.first_lane + i)) for i in range(one.lanes)] == [["a", "c"], ["b"]]
    host = _thread(shown)
    assert [names(shown, lane_events(shown, host.first_lane + i)) for i in range(host.lanes)] == [
        ["outer"], ["inner"], ["next"],
    ]  # fmt: skip
    assert shown.overflow == 2


def test_rows_without_a_name_say_their_number_or_that_there_is_none(tmp_path: Path) -> None:
    # GIVEN an operator on a thread with a number alone, another in a process without one, and marks of a text and of nothing
    t = TraceBuilder()
    t.op("main", 0, 100)
    for pid, tid, at in ((1, -77, 10), (-1, 0, 20)):
        t.add({"ph": "X", "cat": "cpu_op", "name": "op", "pid": pid, "tid": tid, "ts": t.ts(at), "dur": t.ts(5)})
    for pid, tid in (("Traces", "Trace PyTorch Profiler"), ("", "")):
        t.add({"ph": "i", "s": "g", "name": "Iteration Start", "pid": pid, "tid": tid, "ts": t.ts(50)})
    shown = timeline_of(ingest.read(str(t.write(tmp_path / "a.json"))))
    # THEN no row is called "thread" or "process" alone where something tells it apart
    labels = {(one.kind, one.label, one.detail) for one in shown.tracks if one.kind in ("process", "thread", "instants")}
    assert ("thread", "thread -77", "thread -77") in labels and ("process", "process", "pid -1") in labels
    assert {("process", "Traces", ""), ("instants", "Trace PyTorch Profiler instants", "")} <= labels
    assert {("process", "no process", ""), ("instants", "no thread instants", "")} <= labels


def test_memory_is_a_counter_of_its_device(shown: Timeline) -> None:
    allocated, reserved = shown.series[:2]
    assert (allocated.label, allocated.unit, allocated.value.tolist()) == ("memory allocated", "B", [512.0, 0.0])
    assert shown.tracks[track(shown, "/memory allocated")].parent == track(shown, "/GPU 0")
    window = counters.bucketed(reserved, 4, 4_096, 8_192)
    assert window.exact and window.before == 1_024.0 and window.last.tolist() == [1_024.0]


def test_a_long_counter_keeps_its_extremes() -> None:
    # GIVEN more samples than pixels, with one peak THEN a bucket has its lowest, highest and last value, and the one before it
    time, value = np.arange(5_000, dtype=np.int64), np.zeros(5_000)
    value[777], value[4_000] = 9.0, -1.0
    found = counters.bucketed(counters.series("x", "", 0, time, value), 3, 8, 4_104)
    assert not found.exact and found.before == 0.0 and len(found.time_ns) == 512
    assert (found.high.max(), found.low.min()) == (9.0, -1.0) and found.high[np.flatnonzero(found.time_ns == 776)[0]] == 9.0


def test_a_summary_is_the_share_of_each_bucket(shown: Timeline) -> None:
    # GIVEN the device: a kernel from 2,000 to 7,000, a copy inside that, another kernel from 8,000 to 8,500
    category, busy = shown.summary(track(shown, "/GPU 0")).tile(np.array([0, 2_000, 4_000, 8_000, 9_000]))
    assert busy.tolist() == [0, 255, 191, 127] and category.tolist() == [255, 0, 0, 0]


def test_the_depth_of_a_bucket_is_that_of_the_deepest_event_in_it(tmp_path: Path) -> None:
    # GIVEN nested operators, some too short to see, some without length, on two threads
    t = TraceBuilder()
    for at in range(0, 60_000, 3_000):
        t.op("outer", at, 2_500)
        t.op("middle", at + 200, 1_500)
        for k in range(3):
            t.op("short", at + 300 + 90 * k, (40, 0, 77)[k])
        t.op("lone", at + 1_000, 900, thread=99)
    shown = timeline_of(ingest.read(str(t.write(tmp_path / "a.json"))))
    (group,) = [i for i, one in enumerate(shown.tracks) if one.kind == "process"]
    for z, begin in ((4, 0), (6, 64 * 7), (9, 512 * 3), (12, 0)):
        edges = begin + (np.arange(41, dtype=np.int64) << z)
        _, share = shown.summary(group).tile(edges)
        got = shown.depth(group, z, begin, share).tolist()
        # THEN it is one more than the number of the last lane of any thread with an event that covers a part of the bucket
        want = [0] * 40
        for one in (t for t in shown.tracks if t.kind == "thread"):
            for lane in range(one.lanes):
                ids = lane_events(shown, one.first_lane + lane)
                for start, duration in zip(*(c.tolist() for c in shown.events.times(ids)), strict=True):
                    for k, low in enumerate(edges[:-1].tolist()):
                        if duration and start < low + (1 << z) and start + duration > low:
                            want[k] = max(want[k], lane + 1)
        assert got == want, z


def test_search_counts_everywhere(shown: Timeline) -> None:
    found = find.search(shown, find.matching(shown.events.names.text, "GEMM"), None, 0, 10**6)
    assert names(shown, found.event) == ["gemm"] and found.per_track == [(track(shown, "/stream 7"), 1)]
    found = find.search(shown, find.matching(shown.events.names.text, "GEMM"), None, 0, 10_240)
    assert found.total == found.histogram.sum() == found.histogram[200] == 1
    assert not len(find.search(shown, find.matching(shown.events.names.text, "gemm"), [track(shown, "/stream 9")], 0, 10**6).event)


def test_a_name_in_two_tables_is_one_name(tmp_path: Path) -> None:
    # GIVEN a range that the host and the device both have, and one more name after it
    t = TraceBuilder()
    t.annotation("forward", 0, 4_000, gpu=(2_000, 500))
    t.launch("gemm", at=300, start=2_000, duration=500)
    t.annotation("later", 4_100, 50, gpu=(3_000, 500))
    one = timeline_of(ingest.read(str(t.write(tmp_path / "a.json"))))
    # THEN each pair of name and kind is there once, and what is sent to the page is among them
    text, category = one.events.names.text, one.events.names.category.tolist()
    assert len(set(zip(text, category, strict=True))) == len(text)
    w = Workers([one])
    ids = w.name_ids(0, np.arange(len(one.events), dtype=np.uint32))
    assert w.names == text and int(ids.max()) < len(text)
    assert sorted(w.names[i] for i in ids.tolist()) == sorted(names(one, np.arange(len(one.events))))


def test_computation_is_drawn_by_the_kind_of_its_kernels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN kernels of several kinds, a collective, a copy, and an operator that is named as a kernel could be
    t = TraceBuilder()
    kernels = ["sm90_xmma_gemm_bf16", "flash_fwd_kernel", "void at::native::vectorized_elementwise_kernel<4>(int)", "mystery", "ncclDevKernel_AllReduce"]
    for i, name in enumerate(kernels):
        t.kernel(name, 100 * i, 50)
    t.op("gemm", 0, 5)
    one = timeline_of(ingest.read(str(t.write(tmp_path / "a.json"))))
    names = one.events.names
    drawn = {text: SHOWN[i][2] for text, i in zip(names.text, names.shown.tolist(), strict=True)}
    # THEN computation has the color of its kind, as on the page of kernels; the rest that of its category
    assert drawn == dict(zip(kernels, ("gemm", "attention", "elementwise", "other", "communication"), strict=True)) | {"gemm": "host"}
    assert set(names.category.tolist()) == {COMPUTE, COMMUNICATION, OPERATOR}
    assert Workers([one, one]).name_shown == names.shown.tolist()
    # AND of names that are too long to be read none has a kind
    monkeypatch.setattr(events, "MOST_READ", 10)
    assert Names(names.text, names.category).shown is names.category


def test_links_follow_the_launch(shown: Timeline) -> None:
    (pairs,) = links.in_window(shown, ["launch"], 0, 10**6)
    assert names(shown, pairs.source) == ["cudaLaunchKernel"] and names(shown, pairs.target) == ["gemm"]
    assert links.longest(shown, pairs, 5)[1].tolist() == [1_700]
    # AND an operator has those of what it launched, a kernel its own
    (mm,) = find.search(shown, find.matching(shown.events.names.text, "aten::mm"), None, 0, 10**6).event.tolist()
    assert [len(p) for p in links.of_event(shown, mm)] == [1]
    assert [p.source.tolist() for p in links.of_event(shown, int(pairs.target[0]))] == [pairs.source.tolist()]


def test_the_details_of_a_kernel_and_an_operator(shown: Timeline) -> None:
    (kernel,) = find.search(shown, find.matching(shown.events.names.text, "gemm"), None, 0, 10**6).event.tolist()
    found = detail(shown, kernel)
    values = {f.label: f.value for f in found.fields}
    assert values["From its launch"] == 1_700 and values["Operator"] == "aten::mm" and values["Kind"] == "kernel"
    assert [(x.analysis, x.query.get("find", x.query.get("step"))) for x in found.links] == [
        ("kernels", "gemm"), ("operators", "aten::mm"), ("roofline", "aten::mm"), ("overview", "3"),
    ]  # fmt: skip
    (mm,) = find.search(shown, find.matching(shown.events.names.text, "aten::mm"), None, 0, 10**6).event.tolist()
    found = detail(shown, mm)
    assert found.self_ns == 900 and found.child_names == [("cudaLaunchKernel", 1, 100)]
    assert names(shown, np.array(found.parents)) == ["forward", "ProfilerStep#3"]
    assert found.arguments["Input Dims"] == "[[8,8],[8,8]]"
    assert {f.label: f.value for f in found.fields}["Their device time"] == 5_000


def test_a_selection_adds_up_what_lies_in_it(shown: Timeline) -> None:
    # GIVEN 2,500 to 8,100 on everything: 4,500 ns of gemm, the copy inside that, 100 ns of another kernel
    chosen = select(shown, 2_500, 8_100, everything(shown))
    assert chosen.device_layers.busy_ns == 4_600
    groups = pd.DataFrame(chosen.groups("name")[0]).assign(name=lambda f: [shown.events.names.text[i] for i in f["group"]]).set_index("name")
    assert groups.loc["gemm", ["count", "total_ns", "max_ns"]].tolist() == [1, 4_500, 4_500]
    assert groups.loc["ProfilerStep#3", ["total_ns", "self_ns"]].tolist() == [5_600, 5_600 - 1_600]
    # AND whole events where they are not to be cut
    assert select(shown, 2_500, 8_100, everything(shown), clip=False).groups("name")[0]["total_ns"].max() == 10_000
    # AND the gap between the kernels, with the host event over it
    gaps = chosen.gaps()
    assert (gaps["start_ns"], gaps["duration_ns"], gaps["host_event"]) == ([7_000], [1_000], ["ProfilerStep#3"])
    # AND memory: what was there before, what changed
    counters = chosen.counters()
    assert [counters[c][0] for c in ("counter", "first", "last", "delta")] == ["GPU 0 memory allocated", 512.0, 0.0, -512.0]


def test_an_instant_before_the_start_is_in_no_window_after_it(tmp_path: Path) -> None:
    # GIVEN a record of the profiler from before the first event WHEN all of its track is chosen from time 0 on THEN it adds up to nothing,
    # and from before it on it is one event without length
    t = TraceBuilder(base_ns=None)
    t.op("x", 5_000, 100)
    t.events.append({"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace", "ts": 1.0})
    one = timeline_of(ingest.read(str(t.write(tmp_path / "a.json"))))
    every = [i for i, track in enumerate(one.tracks) if track.lanes]
    first = min(one.tracks[i].first_ns for i in every)
    assert first < 0
    for low, count in ((0, 1), (first, 2)):
        groups = select(one, low, one.span_ns + 1, every).groups("name")[0]
        assert groups["count"].sum() == count and groups["total_ns"].sum() == 100


def test_of_many_names_those_with_most_time_are_kept(shown: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN all groups of everything, and of a part WHEN fewer are shown than there are THEN they are the first, and the others are counted
    every = everything(shown)
    for end in (shown.span_ns, 2_000):
        whole, none = select(shown, 0, end, every).groups("name")
        monkeypatch.setattr(selection, "MOST_GROUPS", 2)
        shown.made.clear()
        some, left = select(shown, 0, end, every).groups("name")
        assert none == 0 and left == len(whole["group"]) - 2 > 0
        assert {n: v.tolist() for n, v in some.items()} == {n: v[:2].tolist() for n, v in whole.items()}
        first, more = selection._first(whole, 2)
        assert more == left and first["total_ns"].base is None and first["total_ns"].tolist() == some["total_ns"].tolist()
        monkeypatch.undo()
        shown.made.clear()


def test_what_everything_adds_up_to_is_made_once(shown: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN selections of all there is, by windows of different ends WHEN their sums are asked for THEN they are made once for each choice
    made: list[str] = []
    groups = Selection._groups
    monkeypatch.setattr(Selection, "_groups", lambda self, by, most=None: made.append(by) or groups(self, by, most))
    first = select(shown, 0, shown.span_ns, everything(shown)).groups("name")[0]
    with pytest.raises(ValueError, match="read-only"):
        first["count"][0] = -1  # what was handed out is everyone's
    second = select(shown, -5, shown.span_ns + 7, everything(shown)).groups("name")[0]
    assert made == ["name"] and second["count"].min() == 1 and second["count"].sum() == sum(shown.tracks[t].events for t in everything(shown))
    # AND other tracks, other groups and a part are others
    every, span = everything(shown), shown.span_ns
    for by, end, tracks in (("track", span, every), ("name", span, every[:1]), ("name", 2_000, every)):
        select(shown, 0, end, tracks).groups(by)
    assert made == ["name", "track", "name", "name"]
    # AND what is forgotten afterwards is gathered again where it is asked for
    chosen = select(shown, 0, span, every)
    event = chosen.event.tolist()
    chosen.let_go()
    assert "event" not in vars(chosen) and chosen.event.tolist() == event


def test_phases_are_the_ranges_below_a_step(shown: Timeline) -> None:
    assert [(b.label, b.start_ns, b.end_ns) for b in bands(shown.capture)] == [("forward", 100, 4_100)]


def test_an_event_at_time_zero_does_not_stretch_the_axis(tmp_path: Path) -> None:
    # GIVEN 3,000 kernels an hour after one at time 0 THEN the axis is where they are, and the one is named
    t = TraceBuilder(base_ns=None)
    t.kernel("early", 0, 10)
    for i in range(3_000):
        t.kernel("k", 3_600_000_000_000 + i * 1_000, 500)
    shown = Timeline(ingest.read(str(t.write(tmp_path / "a.json"))))
    low, high, far = shown.focus()
    assert high - low < 10_000_000 and [count for _, count in far] == [1]
    # AND of many all are counted, and the first ones named
    many = Timeline(shown.capture)
    start = np.concatenate([np.arange(150), 3_600_000_000_000 + np.arange(400_000)])
    vars(many)["_weighted"] = start, np.ones(len(start), np.int64)
    low, _, far = many.focus()
    assert low > 3_500_000_000_000 and [time for time, _ in far] == list(range(100)) and [count for _, count in far] == [1] * 99 + [51]


def test_two_workers_stand_on_one_clock(tmp_path: Path) -> None:
    # GIVEN a second worker that began 5,000 ns later by the absolute time in both files
    shown = []
    for i, base in enumerate((1_700_000_000_000_000_000, 1_700_000_000_000_005_000)):
        t = TraceBuilder(base_ns=base)
        t.op("aten::mm", 0, 100)
        shown.append(Timeline(ingest.read(str(t.write(tmp_path / f"{i}.json")))))
    both = Workers(shown)
    assert [(a.offset_ns, a.method) for a in both.alignment] == [(0, "clock"), (5_000, "clock")]
    assert both.names == ["aten::mm"] and both.worker_of(len(shown[0].tracks)) == (1, 0)
    # AND without absolute times nothing is moved, and that is said
    t = TraceBuilder(base_ns=None)
    t.op("x", 0, 100)
    other = Timeline(ingest.read(str(t.write(tmp_path / "c.json"))))
    assert not other.capture.facts.absolute
    assert [a.method for a in Workers([shown[0], other]).alignment] == ["none", "none"]


@pytest.mark.parametrize("clip", [True, False])
def test_groups_of_any_window_are_those_of_plain_loops(tmp_path: Path, clip: bool) -> None:
    # GIVEN nested operators with kernels WHEN windows cut them anywhere THEN counts, sums and self times are those of loops over events
    t = TraceBuilder()
    for at in range(0, 20_000, 4_000):
        t.op("outer", at, 3_500)
        t.op("middle", at + 200, 2_500)
        t.launch("gemm", at=at + 400, start=at + 1_000, duration=2_200)
        t.op("inner", at + 1_500, 700)
    t.op("late", 3_400, 450)  # ends after the one it begins inside of
    one = timeline_of(ingest.read(str(t.write(tmp_path / "a.json"))))
    host = one.capture.host
    start, end = host["start_ns"].tolist(), (host["start_ns"] + host["duration_ns"]).tolist()
    parent, name = host["parent"].tolist(), host["name"].astype(str).tolist()
    for low in range(0, 20_000, 650):
        for high in (low + 300, low + 3_000, 25_000):
            got = pd.DataFrame(select(one, low, high, everything(one), clip=clip).groups("name")[0])
            want: dict[str, list[int]] = {}
            for i, (a, b) in enumerate(zip(start, end, strict=True)):
                if a >= high or b <= low:
                    continue
                cut = (lambda x, y: (max(x, low), min(y, high))) if clip else (lambda x, y: (x, y))  # noqa: B023
                first, last = cut(a, b)
                own = last - first
                for j, above in enumerate(parent):
                    if above == i and (not clip or (start[j] < high and end[j] > low)):
                        x, y = cut(start[j], end[j])
                        own -= max(min(y, last) - x, 0)
                found = want.setdefault(name[i], [0, 0, 0, 10**9, 0])
                found[:] = [found[0] + 1, found[1] + last - first, found[2] + own, min(found[3], last - first), max(found[4], last - first)]
            rows = {one.events.names.text[g]: r for g, *r in got[["group", "count", "total_ns", "self_ns", "min_ns", "max_ns"]].values.tolist()}
            assert {k: v for k, v in rows.items() if k != "gemm"} == want, (low, high)
            # AND a thread is busy in every ns that one of its events covers
            found_busy = select(one, low, high, everything(one), clip=True).busy()
            busy = found_busy["busy_ns"][found_busy["kind"].index("thread")]
            covered = {ns for a, b in zip(start, end, strict=True) for ns in range(max(a, low) // 50, -(-min(b, high) // 50))}
            assert busy == 50 * len(covered), (low, high)
