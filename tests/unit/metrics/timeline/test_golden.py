"""Tiles against plain loops over single events, and links between the right lanes: real recordings, and odd ones made for it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.analyses.time import timeline
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.timeline import find, links
from tb_sol_plugin.metrics.timeline.selection import everything, select
from tb_sol_plugin.metrics.timeline.timeline import Timeline, timeline_of
from tests.support.recordings import TRACES, over, path_of
from tests.support.timeline_reference import check_tiles
from tests.support.trace_builder import TraceBuilder

REAL = [n for n in TRACES if any(w in n for w in ("Qwen", "nccl_data", "b200"))]
YEARS = 10**17


@over([], REAL)
def test_tiles_of_a_real_recording_at_six_levels(name: str) -> None:
    shown = timeline_of(ingest.read(str(path_of(name))))
    assert check_tiles(shown, [shown.top - k for k in (0, 1, 2, 3, 5, 9)]) > 1_000


@over([], REAL)
def test_launches_lead_to_their_kernels_in_the_right_lanes(name: str) -> None:
    # GIVEN every device event with a launch, as the tables have it
    shown = timeline_of(ingest.read(str(path_of(name))))
    capture, base = shown.capture, shown.events.base("device")
    call = capture.device["call"].to_numpy()
    (pairs,) = links.in_window(shown, ["launch"], -YEARS, YEARS)
    want = {(int(c), int(row) + base) for row, c in enumerate(call) if c >= 0}
    assert set(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True)) == want and len(pairs) == len(want) > 100
    # THEN both ends stand on the thread of the call and on the stream of the kernel, in a lane where that very event is
    for ids, kind in ((pairs.source, "thread"), (pairs.target, "stream")):
        track, lane = shown.located(ids.astype(np.uint32))
        start, duration = shown.events.times(ids.astype(np.uint32))
        for t, at, event, a, d in list(zip(track.tolist(), lane.tolist(), ids.tolist(), start.tolist(), duration.tolist(), strict=True))[::37]:
            one = shown.tracks[t]
            assert one.kind == kind and event in shown.pyramid.events(range(one.first_lane + at, one.first_lane + at + 1), a, a + max(d, 1))[0].event.tolist()
    streams = capture.device["stream"].to_numpy()[pairs.target - base]
    assert [shown.tracks[t].stream for t in shown.located(pairs.target.astype(np.uint32))[0].tolist()] == streams.tolist()
    # AND of each end the link to the other is found
    for source, target in list(zip(pairs.source.tolist(), pairs.target.tolist(), strict=True))[:: max(1, len(pairs) // 50)]:
        assert any(target in found.target for found in links.of_event(shown, source) if found.kind == "launch")
        assert any(source in found.source for found in links.of_event(shown, target) if found.kind == "launch")


def empty(t: TraceBuilder) -> None:
    t.memory(5, 512, allocated=512, reserved=1_024)


def one_event(t: TraceBuilder) -> None:
    t.op("alone", 7, 3)


def without_length(t: TraceBuilder) -> None:
    for at in (5, 5, 5, 900, 900):
        t.op("moment", at, 0)
        t.kernel("moment", at, 0)


def deep(t: TraceBuilder) -> None:
    for depth in range(200):
        t.op(f"level {depth % 7}", depth, 2_000 - 2 * depth)


def adjacent(t: TraceBuilder) -> None:
    for i in range(500):
        t.kernel("next", 10 * i, 10)
    t.op("over everything", 0, 10_000)


def overlapping(t: TraceBuilder) -> None:
    r = random.Random(3)
    for i in range(300):
        t.kernel("k", 40 * i, r.choice((1, 30, 100, 2_000)), stream=7 + i % 3)
        t.op("o", 40 * i, r.choice((1, 30, 100, 2_000)))


def before_the_base(t: TraceBuilder) -> None:
    for at in (-5_000_000, -3, 0, 4, 9_000):
        t.op("early", at, 100)
        t.kernel("early", at + 50, 70)


def years_apart(t: TraceBuilder) -> None:
    t.op("first", 0, 10)
    for i in range(50):
        t.op("last", YEARS + 20 * i, 10)
        t.kernel("long", YEARS + 20 * i, YEARS if i == 49 else 15)


def markup(t: TraceBuilder) -> None:
    for i, name in enumerate(('<img src=x onerror="alert(1)">', "</script><script>", "${x}", "\u2028", "", "a" * 40_000)):
        t.op(name, 100 * i, 50)
        t.launch(name, at=100 * i + 1, start=100 * i + 30, duration=40)


ODD = (empty, one_event, without_length, deep, adjacent, overlapping, before_the_base, years_apart, markup)


def read(make: Callable[[TraceBuilder], None], folder: Path) -> Timeline:
    t = TraceBuilder(base_ns=1_700_000_000_000_000_000)
    make(t)
    return timeline_of(ingest.read(str(t.write(folder / "a.pt.trace.json"))))


@pytest.mark.parametrize("make", ODD, ids=lambda make: make.__name__)
def test_tiles_of_odd_recordings(make: Callable[[TraceBuilder], None], tmp_path: Path) -> None:
    # GIVEN a recording that is odd in one way THEN its tiles are what plain loops find, at fine levels and at the coarsest ones
    shown = read(make, tmp_path)
    assert (check_tiles(shown, sorted({0, 3, 5, max(shown.top - 1, 0), shown.top, shown.top + 2}), most=20) > 0) == (make is not empty)
    # AND every event is in one lane, found by its name and added up once
    assert sorted(shown.arranged.order.tolist()) == list(range(len(shown.events)))
    found = find.search(shown, find.matching(shown.events.names.text, ""), None, -YEARS, 4 * YEARS)
    assert found.total == found.histogram.sum() == len(shown.events)
    chosen = select(shown, -YEARS, 4 * YEARS, everything(shown))
    assert int(chosen.groups("name")[0]["count"].sum()) == sum(t.events for t in shown.tracks if t.kind in ("stream", "thread"))
    if make is empty:
        with pytest.raises(Unavailable, match="no event with a time"):
            timeline.run(shown.capture, timeline.TimelineQuery())


def check_positions(shown: Timeline, seed: int) -> int:
    """Compare where the events of windows stand, whose edges are those of events or beside them, with plain loops. Returns how many."""
    r, order, bounds, seen = random.Random(seed), shown.arranged.order, shown.arranged.bounds.tolist(), 0
    start, duration = (one.tolist() for one in shown.events.times(order))
    edges = [0, shown.span_ns, *(t + r.choice((-1, 0, 0, 1)) for i in r.choices(range(len(order)), k=40) for t in (start[i], start[i] + duration[i]))]
    for low, high in (sorted(r.sample(edges, 2)) for _ in range(40)):
        if low == high:
            continue
        first, _, last = shown.positions(np.arange(len(bounds) - 1), low, high)
        for lane, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
            rows = range(bounds[lane], bounds[lane + 1])
            inside = [i for i in rows if (start[i] + duration[i] > low and start[i] < high) or (duration[i] == 0 and start[i] == low)]
            assert list(range(a, b)) == inside, (low, high, lane)
            seen += len(inside)
        chosen = select(shown, low, high, everything(shown))
        assert chosen.event.tolist() == sorted(int(i) for t in chosen.tracks for i in chosen._ids(t))
    return seen


@pytest.mark.parametrize("make", [make for make in ODD if make is not empty], ids=lambda make: make.__name__)
def test_events_of_a_window_stand_where_plain_loops_find_them(make: Callable[[TraceBuilder], None], tmp_path: Path) -> None:
    assert check_positions(read(make, tmp_path), 5) > 0


@over([], REAL[:1])
def test_events_of_windows_of_a_real_recording(name: str) -> None:
    assert check_positions(timeline_of(ingest.read(str(path_of(name)))), 6) > 1_000


def test_ten_thousand_tracks(tmp_path: Path) -> None:
    # GIVEN events on ten thousand threads
    line = '{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": %d, "ts": %d.%03d, "dur": 0.005}'
    lines = ",\n".join(line % (1_000 + i, *divmod(10 * i, 1_000)) for i in range(10_000))
    path = tmp_path / "a.pt.trace.json"
    path.write_text(f'{{"schemaVersion": 1, "traceEvents": [\n{lines}\n]}}')
    shown = timeline_of(ingest.read(str(path)))
    # THEN each is a track of its own, and its tile is
    threads = [i for i, one in enumerate(shown.tracks) if one.kind == "thread"]
    assert len(threads) == 10_000 and all(shown.tracks[i].events == 1 for i in threads)
    found = find.search(shown, np.arange(len(shown.events.names.text)), None, 0, shown.span_ns)
    assert found.total == 10_000 == len(found.per_track)
    ((items, _),) = shown.items(threads[-1], shown.top, (0, 1 << (shown.top + 10)))
    assert items.count.tolist() == [1]
