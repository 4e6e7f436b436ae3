"""A window of the timeline as a trace file: opened again it shows the same events in the same lanes."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tb_sol_plugin import ingest
from tb_sol_plugin.cli import command as cli
from tb_sol_plugin.metrics.timeline.export import export
from tb_sol_plugin.metrics.timeline.timeline import Timeline, timeline_of
from tb_sol_plugin.metrics.timeline.window import Window, all_tracks, whole
from tb_sol_plugin.model.capture import Capture
from tests.support.batched_pipeline import pipeline
from tests.support.recordings import TRACES, over, path_of
from tests.support.trace_builder import TraceBuilder

TABLES = ("host", "operators", "calls", "frames", "device", "annotations_device", "sync", "memory", "collectives", "backward", "steps", "peers", "process_groups")
HOSTILE = ['<script>1</script>', '"quoted" \\ back', "日本語", "tab\there", "\u2028", "{}[]", "x" * 600, ""]
FEW = [n for n in TRACES if any(w in n for w in ("Qwen", "mtia", "mi300", "b200", "nccl_data", "resnet50"))]


def made(folder: Path) -> Timeline:
    """Two steps' worth of one: nested operators, a launch, a copy beside it, an overlap on stream 7, memory, ranges."""
    t = TraceBuilder(base_ns=1_700_000_000_000_000_000)
    t.step(3, 0, 10_000, gpu=(2_000, 5_000))
    t.op("aten::mm", 200, 1_000, shapes=[[8, 8], [8, 8]], types=["float", "float"])
    t.launch("gemm", at=300, start=2_000, duration=5_000)
    t.launch("beside", at=1_100, start=6_000, duration=3_000, stream=7)
    t.copy("HtoD", 3_000, 1_000, src="Pageable", stream=9, bytes=4_096)
    for at, name in enumerate(HOSTILE):
        t.op(name, 9_100 + 20 * at, 10)
    t.memory(400, 512, allocated=512, reserved=1_024)
    t.memory(5_000, -512, allocated=0, reserved=1_024)
    return timeline_of(ingest.read(str(t.write(folder / "a.pt.trace.json"))))


def events(data: bytes) -> list[dict[str, Any]]:
    return json.loads(gzip.decompress(data))["traceEvents"]  # type: ignore[no-any-return]


def again(shown: Timeline, window: Window, folder: Path) -> Timeline:
    path = folder / "again.pt.trace.json.gz"
    path.write_bytes(b"".join(export(shown, window)))
    return timeline_of(ingest.read(str(path)))


def plain(capture: Capture, name: str) -> pd.DataFrame:
    """A table with texts for categories and threads, without places in the file."""
    out = capture.tables[name].drop(columns="index", errors="ignore")
    threads = capture.tables["threads"]
    if "thread" in out and len(out):
        text = (threads["process"].astype(str) + "/" + threads["thread"].astype(str)).to_numpy()
        out = out.assign(thread=text[out["thread"].to_numpy()])
    return out.astype({c: str for c in out if isinstance(out[c].dtype, pd.CategoricalDtype)}).reset_index(drop=True)


def lanes(shown: Timeline) -> list[tuple[str, int, int]]:
    return sorted((t.path.partition("/")[2], t.lanes, t.events) for t in shown.tracks)


def test_collectives_come_back_with_their_groups(tmp_path: Path) -> None:
    t = TraceBuilder(rank=1, world_size=4)
    told = {"Seq": 7, "Comms Id": 0x9A3, "Src Rank": 1, "Dst Rank": 3, "Global rank start": 1, "Global rank stride": 2}
    t.collective("send", 1_000, 500, elements=8, args=told)
    t.collective("allreduce", 2_000, 500, elements=8)
    shown = timeline_of(ingest.read(str(t.write(tmp_path / "a.pt.trace.json"))))
    back = again(shown, whole(shown), tmp_path)
    for name in ("collectives", "process_groups"):
        pd.testing.assert_frame_equal(plain(shown.capture, name), plain(back.capture, name), obj=name)
    assert plain(back.capture, "collectives")["sequence"].tolist() == [7, -1]


def test_sends_and_receives_of_batches_come_back(tmp_path: Path) -> None:
    # GIVEN a stage between two others, whose batches of sends and receives the host operators record alone
    shown = timeline_of(ingest.read(str(pipeline(stages=3, micro_batches=2, steps=1).trace(1).write(tmp_path / "a.pt.trace.json"))))
    # WHEN it is exported and read again THEN every peer, size and group is the same
    before = plain(shown.capture, "messages")
    assert set(before["receives"]) == {True, False} and len(before) > 4
    back = again(shown, whole(shown), tmp_path)
    pd.testing.assert_frame_equal(before, plain(back.capture, "messages"))


def test_everything_comes_back(tmp_path: Path) -> None:
    shown = made(tmp_path)
    back = again(shown, whole(shown), tmp_path)
    for name in TABLES:
        pd.testing.assert_frame_equal(plain(shown.capture, name), plain(back.capture, name), obj=name)
    assert lanes(shown) == lanes(back)
    assert (back.capture.facts.origin_ns, back.capture.facts.absolute) == (shown.capture.facts.origin_ns, True)


@over([], FEW)
def test_a_real_recording_comes_back(name: str, tmp_path: Path) -> None:
    # GIVEN a recording WHEN everything is exported and read THEN all that is known of its events is the same, in the same lanes
    shown = timeline_of(ingest.read(str(path_of(name))))
    back = again(shown, whole(shown), tmp_path)
    for table in TABLES:
        pd.testing.assert_frame_equal(plain(shown.capture, table), plain(back.capture, table), obj=f"{name} {table}")
    assert lanes(shown) == lanes(back)
    assert back.capture.facts.devices == shown.capture.facts.devices


def test_a_window_holds_what_overlaps_it_whole_or_cut(tmp_path: Path) -> None:
    shown = made(tmp_path)
    tracks = all_tracks(shown)
    # GIVEN a window inside the kernel WHEN exported THEN what overlaps is whole, and nothing else is there
    inside = [e for e in events(b"".join(export(shown, Window(4_000, 6_000, tracks)))) if e["ph"] == "X"]
    assert {e["name"] for e in inside} == {"ProfilerStep#3", "gemm"}
    assert {(e["ts"], e["dur"]) for e in inside if e["name"] == "gemm"} == {(2.0, 5.0)}
    # AND cut to the window where that is asked for
    cut = [e for e in events(b"".join(export(shown, Window(4_000, 6_000, tracks, clip=True)))) if e["ph"] == "X"]
    assert {(e["ts"], e["dur"]) for e in cut} == {(4.0, 2.0)}
    # AND memory has the value before the window, then those inside
    levels = [e["args"]["Total Allocated"] for e in events(b"".join(export(shown, Window(4_000, 6_000, tracks)))) if e["name"] == "[memory]"]
    assert levels == [512, 0]
    # AND of one stream only its events
    (stream,) = [i for i, t in enumerate(shown.tracks) if t.kind == "stream" and t.stream == 9]
    alone = [e for e in events(b"".join(export(shown, Window(0, 10_000, [stream])))) if e["ph"] == "X"]
    assert [e["args"]["stream"] for e in alone] == [9]


def test_links_have_both_ends_inside(tmp_path: Path) -> None:
    shown = made(tmp_path)
    tracks = all_tracks(shown)
    ends = [(e["ph"], e["id"]) for e in events(b"".join(export(shown, whole(shown)))) if e["ph"] in "sf"]
    assert len(ends) == 4 and {p for p, _ in ends} == {"s", "f"}
    # GIVEN a window without the launches WHEN exported THEN no link hangs in the air
    assert not [e for e in events(b"".join(export(shown, Window(4_000, 6_000, tracks)))) if e["ph"] in "sf"]
    assert not [e for e in events(b"".join(export(shown, Window(0, 10_000, tracks, flows=False)))) if e["ph"] in "sf"]


def test_ids_and_versions_that_look_like_numbers_come_back(tmp_path: Path) -> None:
    # GIVEN ids and versions of characters that count as digits but are no numbers WHEN exported THEN they are the texts that they were
    t = TraceBuilder(header={"schemaVersion": "²"})
    for at, odd in enumerate(("²", "--5", "-", "٣", "007", "9" * 30)):
        t.add({"ph": "X", "cat": "cpu_op", "name": f"op{at}", "pid": odd, "tid": odd, "ts": at, "dur": 1, "args": {}})
    shown = timeline_of(ingest.read(str(t.write(tmp_path / "a.pt.trace.json"))))
    back = again(shown, whole(shown), tmp_path)
    pd.testing.assert_frame_equal(plain(shown.capture, "host"), plain(back.capture, "host"))
    assert lanes(shown) == lanes(back) and back.capture.facts.versions == shown.capture.facts.versions


def test_counters_have_the_value_before_and_only_those_chosen(tmp_path: Path) -> None:
    # GIVEN a counter whose samples hold one of two values in turn, another counter, and memory whose last row has no total
    t = TraceBuilder()
    t.op("aten::mm", 0, 5_000)
    for at, (name, key, value) in enumerate((("queue", "a", 1), ("queue", "b", 2), ("power", "W", 3), ("queue", "a", 4))):
        t.add({"ph": "C", "name": name, "pid": 0, "tid": 0, "ts": t.ts(1_000 * at), "args": {key: value}})
    t.memory(1_000, 512, allocated=512, reserved=1_024)
    t.memory(2_000, 256, allocated=None, reserved=None)
    shown = timeline_of(ingest.read(str(t.write(tmp_path / "a.pt.trace.json"))))

    def written(chosen: list[int]) -> list[dict[str, Any]]:
        return [e["args"] for e in events(b"".join(export(shown, Window(2_500, 9_000, chosen)))) if e["ph"] in "Ci"]

    # WHEN a window after most of them is exported THEN each value has what it was before
    found = written(all_tracks(shown))
    assert {"a": 1} in found and {"b": 2} in found and {"W": 3} in found and {"a": 4} in found
    assert 512 in [one.get("Total Allocated") for one in found]
    # AND of one chosen counter only its own samples
    counters = {t.label: i for i, t in enumerate(shown.tracks) if t.kind == "counter"}
    assert written([counters["power W"]]) == [{"W": 3}]
    assert {one["Device Type"] for one in written([counters["memory allocated"]])} == {1}


def test_overlapping_events_of_a_stream_can_stand_apart(tmp_path: Path) -> None:
    # GIVEN two kernels of stream 7 that overlap in part WHEN split THEN the second is on a named thread of its own, for viewers that drop it
    shown = made(tmp_path)
    one = whole(shown)
    split = events(b"".join(export(shown, Window(one.start_ns, one.end_ns, one.tracks, split_overlaps=True))))
    at = {e["name"]: e["tid"] for e in split if e["ph"] == "X" and e.get("cat") == "kernel"}
    assert at["gemm"] == 7 and at["beside"] == "stream 7 (2)"
    assert "stream 7 (2)" in {e["args"]["name"] for e in split if e["ph"] == "M" and e["name"] == "thread_name"}
    # AND read again it is stream 7 as before
    path = tmp_path / "split.pt.trace.json.gz"
    path.write_bytes(b"".join(export(shown, Window(one.start_ns, one.end_ns, one.tracks, split_overlaps=True))))
    assert ingest.read(str(path)).device["stream"].tolist() == shown.capture.device["stream"].tolist()


def test_a_file_for_other_viewers_has_nothing_that_they_drop(tmp_path: Path) -> None:
    # GIVEN a call that ends after what encloses it, one that does so inside of it, with a launch, and a mark 2 µs before the first event
    t = TraceBuilder(base_ns=1_700_000_000_000_000_000)
    t.op("outer", 2_000, 1_000)
    t.op("longer", 2_500, 3_000)
    t.op("longest", 2_600, 6_000)
    t.op("inside", 2_700, 50)
    t.launch("gemm", at=3_000, start=9_000, duration=500)
    t.add({"ph": "i", "s": "g", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": t.ts(0)})
    shown = timeline_of(ingest.read(str(t.write(tmp_path / "a.pt.trace.json"))))
    everything = whole(shown)
    made = json.loads(gzip.decompress(b"".join(export(shown, Window(everything.start_ns, everything.end_ns, everything.tracks, split_overlaps=True)))))
    found = [e for e in made["traceEvents"] if e["ph"] in "Xisf"]
    # WHEN written for other viewers THEN no time is below 0, and the file begins so much earlier
    assert min(e["ts"] for e in found) == 0 and made["baseTimeNanoseconds"] == shown.capture.facts.origin_ns - 2_000
    # AND no two calls of a thread overlap without one lying inside the other
    for tid in {(e["pid"], str(e["tid"])) for e in found}:
        spans = sorted((e["ts"], -e["dur"]) for e in found if e["ph"] == "X" and (e["pid"], str(e["tid"])) == tid)
        for (a, first), (b, second) in itertools.combinations([(ts, ts - dur) for ts, dur in spans], 2):
            assert b >= first or second <= first, (tid, a, b)
    threads = {e["name"]: e["tid"] for e in found if e["ph"] == "X"}
    own = threads["outer"]
    assert threads["inside"] == own and threads["longer"] == f"thread {own} (2)" and threads["longest"] == f"thread {own} (3)"
    assert {f"thread {own} (2)", f"thread {own} (3)"} <= {e["args"]["name"] for e in made["traceEvents"] if e["name"] == "thread_name"}
    # AND opened again it has all of them at the times that they had
    path = tmp_path / "again.pt.trace.json"
    path.write_text(json.dumps(made))
    back = ingest.read(str(path)).host
    assert sorted(zip(back["name"].astype(str), back["start_ns"], strict=True)) == sorted(
        zip(shown.capture.host["name"].astype(str), shown.capture.host["start_ns"], strict=True)
    )


def test_the_command_writes_the_same_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = made(tmp_path)
    out = tmp_path / "part.pt.trace.json.gz"
    arguments = ["export", "timeline", str(tmp_path / "a.pt.trace.json"), "-o", str(out), "--no-cache", "--start", "4000", "--end", "6000"]
    assert cli.main(arguments) == 0
    assert out.read_bytes() == b"".join(export(shown, Window(4_000, 6_000, all_tracks(shown))))
    assert cli.main([*arguments, "--tracks", "no such row"]) == 2 and "no track" in capsys.readouterr().err
    assert cli.main([*arguments[:-4], "--start", "9", "--end", "3"]) == 2
