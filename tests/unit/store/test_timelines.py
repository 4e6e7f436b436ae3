"""Lanes and levels of a timeline beside the cache entry: the same when read again; damaged, old or foreign ones are built anew."""

from __future__ import annotations

import os
import random
import threading
from pathlib import Path

import msgspec
import numpy as np
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.metrics.timeline import counters, summary
from tb_sol_plugin.metrics.timeline import timeline as T
from tb_sol_plugin.metrics.timeline.selection import Selection, everything, select
from tb_sol_plugin.metrics.timeline.timeline import KEPT, Timeline, timeline_of
from tb_sol_plugin.metrics.timeline.workers import Workers
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.store import cache as arrow
from tb_sol_plugin.store import timelines
from tb_sol_plugin.store.cache import Cache
from tb_sol_plugin.store.timelines import KeptTimeline, keep
from tb_sol_plugin.web import timeline as timeline_web
from tests.support.trace_builder import TraceBuilder


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Cache, Capture]:
    """A recording in a cache; of any size a timeline is kept, with what wide views read of it."""
    monkeypatch.setattr(timelines, "FEWEST", 1)
    monkeypatch.setattr(counters, "FEW_SAMPLES", 1)
    monkeypatch.setattr(summary, "MANY", 0)
    chance = random.Random(3)
    t = TraceBuilder()
    t.step(1, 0, 4_000_000)
    for at in range(0, 200_000, 200):
        t.op("outer", at, 150)
        t.launch("gemm", at=at + 10, start=at + 70, duration=chance.randrange(20, 400), stream=7)
        t.memory(at + chance.randrange(200), 512, allocated=chance.randrange(1, 4_096), reserved=4_096)
    capture = ingest.read(str(t.write(tmp_path / "w.1.pt.trace.json")))
    cache = Cache(tmp_path / "cache")
    assert cache.save("key", capture)
    return cache, capture


def saved(cache: Cache, capture: Capture) -> Timeline:
    """The timeline of a capture, built and written."""
    keep(capture, cache, "key")
    shown = timeline_of(capture)
    assert shown.pyramid.levels
    for thread in threading.enumerate():
        if thread.name == "keep timeline":
            thread.join(60)
    assert (cache.directory / "key" / "timeline.json").exists()  # type: ignore[operator]
    return shown


def again(cache: Cache) -> tuple[Timeline, bool]:
    """The timeline of the entry as another process opens it, and whether it was taken from there."""
    capture = cache.load("key")
    assert capture is not None
    keep(capture, cache, "key")
    stored = capture.memo[KEPT].load(T.root_of(capture), len(T.events_of(capture)))  # type: ignore[attr-defined]
    return timeline_of(capture), stored is not None


def opened(cache: Cache) -> tuple[Timeline, bool]:
    """The same, and its lanes are looked at."""
    shown, taken = again(cache)
    assert len(shown.arranged.order) == len(shown.located(np.arange(len(shown.events)))[0])
    return shown, taken


def files(cache: Cache, key: str = "key") -> list[str]:
    """Names of the files of what is kept of a timeline."""
    return sorted(path.name for path in (cache.directory / key).glob("timeline*"))  # type: ignore[operator]


def added_up(shown: Timeline) -> dict[str, list[int]]:
    """What all threads and streams add up to by name."""
    every = select(shown, 0, shown.span_ns + 1, everything(shown)).groups("name")[0]
    return {name: column.tolist() for name, column in every.items()}


def same(a: Timeline, b: Timeline) -> None:
    """Asserts that all there is to ask of two timelines is the same."""
    assert a.events.names.text == b.events.names.text and a.events.names.category.tolist() == b.events.names.category.tolist()
    assert (a.span_ns, a.focus(), a.overflow, a.bands) == (b.span_ns, b.focus(), b.overflow, b.bands)
    for one, other in zip(a.outermost, b.outermost, strict=True):
        assert np.array_equal(one, other)
    ids = np.arange(len(a.events), dtype=np.uint32)
    assert [x.tolist() for x in a.located(ids)] == [x.tolist() for x in b.located(ids)]
    for one, other in zip(a.series, b.series, strict=True):
        assert (one.label, one.unit, one.device, one.source, one.extent) == (other.label, other.unit, other.device, other.source, other.extent)
        assert np.array_equal(one.time_ns, other.time_ns) and np.array_equal(one.value, other.value)
        assert str(vars(counters.bucketed(one, a.top, 0, 1 << a.top + 10))) == str(vars(counters.bucketed(other, a.top, 0, 1 << a.top + 10)))
    assert added_up(a) == added_up(b)
    edges = np.arange(0, a.span_ns, 777, dtype=np.int64)
    for group in (i for i, t in enumerate(a.tracks) if t.kind in T.GROUPS):
        for at in (edges, edges >> a.top << a.top):
            assert [x.tolist() for x in a.summary(group).tile(at)] == [x.tolist() for x in b.summary(group).tile(at)]
    assert [msgspec.json.encode(t) for t in a.tracks] == [msgspec.json.encode(t) for t in b.tracks]
    assert np.array_equal(a.arranged.order, b.arranged.order) and np.array_equal(a.arranged.bounds, b.arranged.bounds)
    for one, other in zip(a.pyramid.levels, b.pyramid.levels, strict=True):
        assert one.z == other.z and all(
            np.array_equal(getattr(one, c), getattr(other, c)) for c in ("start", "end", "event", "first", "busy", "bounds")
        )


def test_what_was_kept_is_what_was_built(kept: tuple[Cache, Capture], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a timeline that was built once WHEN it is opened again THEN nothing is arranged or merged, and all of it is the same
    cache, capture = kept
    built = saved(cache, capture)
    plain = Timeline(cache.load("key"))  # type: ignore[arg-type]
    sums, parts = added_up(plain), select(plain, 0, plain.span_ns // 2, everything(plain)).groups("name")[0]
    monkeypatch.setattr(T, "arrange", lambda *_: pytest.fail("arranged again"))
    monkeypatch.setattr(T, "build", lambda *_: pytest.fail("merged again"))
    for name in ("series_of", "bands", "summary_of"):
        monkeypatch.setattr(T, name, lambda *_, name=name: pytest.fail(f"{name} again"))
    monkeypatch.setattr(T.Events, "_used", lambda *_: pytest.fail("names gathered again"))
    read, taken = again(cache)
    assert taken
    same(built, read)
    # AND what everything adds up to by name is not gone through again; a part of it, or other rows, are
    half = select(read, 0, read.span_ns // 2, everything(read)).groups("name")[0]
    streams = select(read, 0, read.span_ns + 1, [i for i, t in enumerate(read.tracks) if t.kind == "stream"]).groups("name")[0]
    monkeypatch.setattr(Selection, "_groups", lambda *_: pytest.fail("added up again"))
    assert added_up(read) == sums and sum(sums["count"]) == 3_001
    assert all(np.array_equal(half[name], column) for name, column in parts.items()) and streams["count"].tolist() == [1_000]
    # AND counters of what is attached now stand there once, as before
    assert [t.path for t in read.tracks if t.kind == "counter"] == [t.path for t in built.tracks if t.kind == "counter"]


def test_wide_views_are_those_of_everything(kept: tuple[Cache, Capture]) -> None:
    # GIVEN a kept timeline WHEN tiles of its counters and groups are made from what is kept for wide views
    cache, capture = kept
    saved(cache, capture)
    read, _ = again(cache)
    shown = Timeline(cache.load("key"))  # type: ignore[arg-type]
    coarse = [one.coarse() for one in read.series]
    assert all(coarse) and read.top - 3 == coarse[0].z  # type: ignore[union-attr]
    for z in range(read.top - 4, read.top + 2):
        for i in range(-1, (read.span_ns >> z + 10) + 2):
            # THEN they are those of all samples, at the first and the last tile, too
            for one, other in zip(read.series, shown.series, strict=True):
                found, expected = (counters.bucketed(s, z, i << z + 10, i + 1 << z + 10, 40) for s in (one, other))
                assert [str(x) for x in vars(found).values()] == [str(x) for x in vars(expected).values()]
            # AND those of all intervals, where a tile is on the grid and where it is not
            for group in (k for k, t in enumerate(read.tracks) if t.kind in T.GROUPS):
                for edges in (np.arange(1025) + 1024 * i << z, (np.arange(1025) + 1024 * i << z) + 77):
                    assert [x.tolist() for x in read.summary(group).tile(edges)] == [x.tolist() for x in shown.summary(group).tile(edges)]


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "removed"])
def test_a_damaged_file_is_built_again(kept: tuple[Cache, Capture], damage: str) -> None:
    cache, capture = kept
    built = saved(cache, capture)
    names = files(cache)
    assert {"timeline.json", "timeline-order.arrow", "timeline-lanes.arrow", "timeline-names.arrow"} < set(names)
    ways = ("flipped", "cut", "empty", "removed")
    for place, name in enumerate(names):
        if name not in ("timeline.json", "timeline-order.arrow") and ways[place % 4] != damage:
            continue  # all files are sealed alike
        path = cache.directory / "key" / name  # type: ignore[operator]
        whole = path.read_bytes()
        head = (cache.directory / "key" / "timeline.json").read_bytes()  # type: ignore[operator]
        body = bytearray(whole)
        body[len(body) // 2] ^= 1
        os.remove(path)
        if damage != "removed":
            path.write_bytes({"flipped": body, "cut": body[: len(body) // 2], "empty": b""}[damage])
        # WHEN it is opened THEN what that file held is built again, and equal; nothing of it is parsed
        read, taken = again(cache)
        assert taken == (name != "timeline.json")
        same(built, read)
        # AND the head is gone, so that the next process keeps all of it anew
        assert name == "timeline.json" or not (cache.directory / "key" / "timeline.json").exists()  # type: ignore[operator]
        path.write_bytes(whole)
        (cache.directory / "key" / "timeline.json").write_bytes(head)  # type: ignore[operator]


def test_only_what_is_asked_for_is_read(kept: tuple[Cache, Capture], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kept timeline WHEN another process asks for its tracks, and for the tile of one stream that shows all of it
    cache, capture = kept
    saved(cache, capture)
    read: list[str] = []
    mapped = timelines._mapped
    monkeypatch.setattr(timelines, "_mapped", lambda path, name, expected: read.append(name) or mapped(path, name, expected))
    shown, _ = again(cache)
    assert shown.tracks and shown.focus() and read == []
    ((items, _),) = shown.items(next(i for i, t in enumerate(shown.tracks) if t.kind == "stream"), shown.top, (0, 1 << (shown.top + 10)))
    # THEN one level is read, and nothing else
    assert len(items) and len(read) == 1 and read[0].startswith("key/level-")


def test_counters_of_what_is_attached_now_are_not_those_that_were_kept(kept: tuple[Cache, Capture]) -> None:
    cache, capture = kept
    saved(cache, capture)
    found = cache.load("key")
    assert found is not None
    keep(found, cache, "key")
    found = Capture(found.facts, {name: t for name, t in found.tables.items() if name != "memory"}, attached_state="another snapshot")
    assert timeline_of(found).series == [] and timeline_of(capture).series != []


@pytest.mark.skipif(os.name == "nt", reason="Windows refuses to cut a mapped file")
@pytest.mark.parametrize("name", ["timeline-order.arrow", "timeline-lanes.arrow"])
def test_a_file_cut_while_it_is_in_use_is_noticed(kept: tuple[Cache, Capture], name: str) -> None:
    # GIVEN a timeline whose files are mapped WHEN another server puts an equal file in the place of one THEN all stays as it is
    cache, capture = kept
    saved(cache, capture)
    assert opened(cache)[1] and not cache.changed("key")
    path = cache.directory / "key" / name  # type: ignore[operator]
    path.with_suffix(".new").write_bytes(path.read_bytes())
    os.replace(path.with_suffix(".new"), path)
    assert not cache.changed("key")
    # WHEN a mapped one is cut in place, which would end the process at the next look at it THEN the entry is let go
    assert opened(cache)[1]
    os.truncate(path, 0)
    assert cache.changed("key") and not cache.has("key") and cache.replaced == 1


def test_files_of_another_version_or_recording_are_not_taken(kept: tuple[Cache, Capture], monkeypatch: pytest.MonkeyPatch) -> None:
    cache, capture = kept
    saved(cache, capture)
    assert KeptTimeline(cache, "key").load("w", len(T.events_of(capture)) + 1) is None
    assert cache.save("other", capture)
    for name in files(cache):
        (cache.directory / "other" / name).write_bytes((cache.directory / "key" / name).read_bytes())  # type: ignore[operator]
    assert KeptTimeline(cache, "other").load("w", len(T.events_of(capture))) is None
    monkeypatch.setattr(timelines, "VERSION", timelines.VERSION + 1)
    assert KeptTimeline(cache, "key").load("w", len(T.events_of(capture))) is None


def test_paths_follow_the_name_that_the_worker_has_now(kept: tuple[Cache, Capture]) -> None:
    cache, capture = kept
    saved(cache, capture)
    found = KeptTimeline(cache, "key").load("rank 7", len(T.events_of(capture)))
    assert found is not None and found.head.tracks[0].label == "rank 7"
    assert all(t.path == "rank 7" or t.path.startswith("rank 7/") for t in found.head.tracks)


def test_without_an_entry_or_a_disk_nothing_is_kept(kept: tuple[Cache, Capture], tmp_path: Path) -> None:
    _, capture = kept
    for cache in (Cache(None), Cache(tmp_path / "empty")):
        one = Timeline(capture, KeptTimeline(cache, "key"))
        assert one.pyramid.levels
        assert KeptTimeline(cache, "key").load("w", len(one.events)) is None


def test_tracks_and_names_of_what_was_kept_make_no_table_of_events(kept: tuple[Cache, Capture], monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kept timeline WHEN another process shows its tracks, its summary and its names THEN no table but that of the steps is made
    cache, capture = kept
    built = saved(cache, capture)
    made: list[str] = []
    monkeypatch.setattr(arrow, "read", lambda file, place, schema, read=arrow.read: made.append(schema.name) or read(file, place, schema))
    shown, taken = again(cache)
    shape = timeline_web.shape_of(Workers([shown]), "", "")
    assert taken and shape.events == len(built.events) and [t.path for t in shape.tracks] == [t.path for t in built.tracks]
    edges = np.arange(9, dtype=np.int64) << 15
    assert [one.tolist() for one in shown.summary(0).tile(edges)] == [one.tolist() for one in built.summary(0).tile(edges)]
    assert shown.events.names.text == built.events.names.text and shown.events.names.category.tolist() == built.events.names.category.tolist()
    assert made == ["steps"]
