"""Search by name against plain loops over all events: how many, where, and which come next or before."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.timeline import find
from tb_sol_plugin.metrics.timeline.timeline import Timeline, timeline_of
from tests.support.trace_builder import TraceBuilder


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Timeline:
    """Some hundred nested operators of a few names, kernels on two streams that overlap, events at the same moment, a nameless one."""
    r, t = random.Random(4), TraceBuilder()
    for i in range(120):
        t.op(r.choice("abc"), 100 * i, 90)
        t.op(r.choice("abc"), 100 * i, r.randrange(40))
        t.launch(r.choice(("a", "kb")), at=100 * i + 50, start=100 * i + r.randrange(500), duration=r.choice((1, 30, 400)), stream=7 + i % 2)
    t.op("", 5, 1)
    return timeline_of(ingest.read(str(t.write(tmp_path_factory.mktemp("find") / "a.json"))))


class Reference:
    """Plain loops over all events."""

    def __init__(self, shown: Timeline) -> None:
        self.shown = shown
        self.ids = sorted(shown.arranged.order.tolist())
        ids = np.array(self.ids, np.uint32)
        columns = (one.tolist() for one in (shown.events.times(ids)[0], shown.events.name_ids(ids), shown.located(ids)[0]))
        self.start, self.name, self.track = (dict(zip(self.ids, one, strict=True)) for one in columns)

    def check(self, text: str, tracks: list[int] | None, begin: int, end: int, after: int | None, limit: int, way: find.Direction) -> None:
        wanted = find.matching(self.shown.events.names.text, text)
        found = find.search(self.shown, wanted, tracks, begin, end, after=after, limit=limit, direction=way)
        names, at = set(wanted.tolist()), begin if after is None else after
        want = [e for e in self.ids if self.name[e] in names and begin <= self.start[e] < end and (tracks is None or self.track[e] in tracks)]
        assert found.total == len(want)
        assert found.per_track == sorted(Counter(self.track[e] for e in want).items())
        parts = [0] * find.BUCKETS
        for e in want:
            parts[(self.start[e] - begin) * find.BUCKETS // (end - begin)] += 1
        assert found.histogram.tolist() == parts
        ordered = sorted(want, key=lambda e: (self.start[e], e))
        later, earlier = ([e for e in ordered if (self.start[e] >= at) == side] for side in (True, False))
        assert found.event.tolist() == (later[:limit] if way == "next" else earlier[::-1][:limit])


@pytest.mark.parametrize("direction", ["next", "previous"])
def test_search_is_what_plain_loops_find(shown: Timeline, direction: find.Direction) -> None:
    reference = Reference(shown)
    streams = [i for i, t in enumerate(shown.tracks) if t.kind == "stream"]
    for text, tracks, begin, end, after, limit in (
        ("a", None, 0, 20_000, 0, 7), ("b", None, 130, 9_001, 4_000, 3), ("", None, -5, 12_000, 6_000, 1_000), ("A", streams, 0, 7_777, 5_000, 9),
        ("nothing", None, 0, 9_000, 0, 5), ("c", None, 500, 500, 500, 5), ("a", streams[:1], 0, 2**62, 3_000, 4),
    ):  # fmt: skip
        reference.check(text, tracks, begin, end, after, limit, direction)


@given(
    data=st.data(), text=st.sampled_from(("a", "b", "kb", "", "nothing")), begin=st.integers(-300, 13_000), width=st.integers(1, 13_000),
    limit=st.integers(1, 40), way=st.sampled_from(("next", "previous")),
)  # fmt: skip
def test_any_search_is_what_plain_loops_find(
    shown: Timeline, data: st.DataObject, text: str, begin: int, width: int, limit: int, way: find.Direction
) -> None:
    end = begin + width
    tracks = data.draw(st.none() | st.lists(st.integers(0, len(shown.tracks) - 1)))
    for after in data.draw(st.lists(st.none() | st.integers(begin - 10, end + 10), min_size=1, max_size=3)):  # the second one is remembered
        Reference(shown).check(text, tracks, begin, end, after, limit, way)


@given(data=st.data(), begin=st.integers(-300, 13_000), width=st.integers(1, 13_000), after=st.integers(0, 150), limit=st.integers(1, 200))
def test_pages_of_events_are_what_plain_loops_find(shown: Timeline, data: st.DataObject, begin: int, width: int, after: int, limit: int) -> None:
    track = data.draw(st.sampled_from([i for i, t in enumerate(shown.tracks) if t.lanes]))
    lane = data.draw(st.none() | st.integers(0, shown.tracks[track].lanes - 1))
    ids = shown.arranged.order
    (start, duration), (of, at) = shown.events.times(ids), shown.located(ids)
    inside = (start + duration > begin) & (start < begin + width) | (duration == 0) & (start == begin)
    here = np.flatnonzero(inside & (of == track) & ((at == lane) if lane is not None else True)).tolist()
    want = [int(ids[i]) for i in sorted(here, key=lambda i: (start[i], at[i]))]  # those of a lane as they stand there
    found, total = find.page(shown, track, lane, begin, begin + width, after, limit)
    assert (found.tolist(), total) == (want[after : after + limit], len(want))


def test_a_search_counts_all_events_once(shown: Timeline, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a search WHEN its next and previous hits are asked for THEN nothing is counted again
    names = find.matching(shown.events.names.text, "kb")
    first = find.search(shown, names, None, 0, 20_000, limit=1)
    monkeypatch.setattr(find, "count_kernel", None)
    (hit,) = shown.events.times(first.event)[0].tolist()
    again = find.search(shown, names, None, 0, 20_000, after=hit + 1, limit=1)
    assert (again.total, again.per_track) == (first.total, first.per_track) and again.event.tolist() != first.event.tolist()
    back = find.search(shown, names, None, 0, 20_000, after=int(shown.events.times(again.event)[0][0]), limit=1, direction="previous")
    assert back.event.tolist() == first.event.tolist()
    # AND a name that no event has costs no look at the events
    assert find.search(shown, find.matching(shown.events.names.text, "nothing"), None, 0, 20_000).total == 0


def test_samples_of_counters_are_not_found(tmp_path: Path) -> None:
    # GIVEN samples of a counter, which are in no lane, and an instant of the same name
    t = TraceBuilder()
    t.op("aten::mm", 0, 50)
    for phase, at in (("C", 10), ("C", 20), ("i", 30)):
        t.add({"ph": phase, "name": "load", "pid": t.pid, "tid": t.thread, "ts": t.ts(at), "s": "t", "args": {"load": 1}})
    shown = timeline_of(ingest.read(str(t.write(tmp_path / "a.json"))))
    # THEN the instant alone is found, on its track
    found = find.search(shown, find.matching(shown.events.names.text, "load"), None, 0, 1_000)
    (track,) = (i for i, one in enumerate(shown.tracks) if one.kind == "instants")
    assert found.per_track == [(track, 1)] and shown.events.times(found.event)[0].tolist() == [30]
