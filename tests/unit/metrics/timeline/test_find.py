"""Search by name against plain loops over all events: how many, where, and which come next or before."""

from __future__ import annotations

import random

import numpy as np
import pytest

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


@pytest.mark.parametrize("direction", ["next", "previous"])
def test_search_is_what_plain_loops_find(shown: Timeline, direction: find.Direction) -> None:
    ids = np.arange(len(shown.events), dtype=np.uint32)
    starts, names = shown.events.times(ids)[0].tolist(), shown.events.name_ids(ids).tolist()
    track_of = shown.located(ids)[0].tolist()
    streams = [i for i, t in enumerate(shown.tracks) if t.kind == "stream"]
    for text, tracks, begin, end, after, limit in (
        ("a", None, 0, 20_000, 0, 7), ("b", None, 130, 9_001, 4_000, 3), ("", None, -5, 12_000, 6_000, 1_000), ("A", streams, 0, 7_777, 5_000, 9),
        ("nothing", None, 0, 9_000, 0, 5), ("c", None, 500, 500, 500, 5), ("a", streams[:1], 0, 2**62, 3_000, 4),
    ):  # fmt: skip
        wanted = find.matching(shown.events.names.text, text)
        found = find.search(shown, wanted, tracks, begin, end, after=after, limit=limit, direction=direction)
        want = [e for e in ids.tolist() if names[e] in wanted and begin <= starts[e] < end and (tracks is None or track_of[e] in tracks)]
        assert found.total == len(want)
        assert dict(found.per_track) == {t: n for t in set(track_of) if (n := sum(1 for e in want if track_of[e] == t))}
        parts = [0] * find.BUCKETS
        for e in want:
            parts[(starts[e] - begin) * find.BUCKETS // (end - begin)] += 1
        assert found.histogram.tolist() == parts
        ordered = sorted(want, key=lambda e: (starts[e], e))
        near = [e for e in ordered if starts[e] >= after][:limit] if direction == "next" else [e for e in ordered if starts[e] < after][::-1][:limit]
        assert [starts[e] for e in found.event.tolist()] == [starts[e] for e in near]
        assert set(found.event.tolist()) <= set(want) and len(set(found.event.tolist())) == len(near)
