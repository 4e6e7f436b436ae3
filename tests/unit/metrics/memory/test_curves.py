"""Curves of memory: thinning keeps extremes, sources meet in one shape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tb_sol_plugin import ingest
from tb_sol_plugin.ingest.memory.snapshot import capture_of
from tb_sol_plugin.metrics.memory import curves as C
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.tables.series import thinned
from tests.support.memory_snapshot import MIB, snapshot, write
from tests.support.trace_builder import TraceBuilder


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(-50, 50)), min_size=1, max_size=400), st.integers(1, 100), st.integers(1, 3))
@settings(max_examples=200, deadline=None)
def test_thinning_keeps_every_extreme_and_both_ends(points: list[tuple[int, int]], most: int, count: int) -> None:
    # GIVEN curves over the same times WHEN thinned
    time = np.sort(np.array([t for t, _ in points], np.int64))
    level = np.array([v for _, v in points], np.int64)
    levels = [level * (k + 1) % (17 + k) for k in range(count)]
    keep = thinned(time, levels, most)
    # THEN order, ends and extremes stay, with the place of the first largest, and the number is bounded
    assert (np.diff(keep) > 0).all() and keep[0] == 0 and keep[-1] == len(time) - 1
    assert len(keep) <= max(most, 2 * (2 + 2 * count), 8)
    for curve in levels:
        assert curve[keep].max() == curve.max() and curve[keep].min() == curve.min() and int(np.argmax(curve)) in keep


def test_a_single_peak_among_many_events_survives() -> None:
    # GIVEN 100,000 events at 1,000 B and one at 9,999 B WHEN thinned to 500 points THEN the peak and its time are exact
    count, at = 100_000, 54_321
    level = np.full(count, 1_000, np.int64)
    level[at] = 9_999
    size = np.diff(level, prepend=1_000)
    ones = np.ones(count, np.int64)
    table = S.MEMORY.frame(
        {"time_ns": np.arange(count) * 10, "device_type": ones, "device_id": ones * 0, "bytes": size, "total_allocated": level}
    )
    (c,) = C.curves(Capture(Facts("kineto", "x", 0, extent_ns=(0, count * 10)), {"memory": table}), most=500)
    assert (c.peak, c.peak_ns, c.points) == (9_999, at * 10, count + 1) and len(c.time_ns) <= 500
    assert c.allocated is not None and c.allocated.max() == 9_999 and c.time_ns[int(np.argmax(c.allocated))] == at * 10


def trace(tmp_path: Path) -> Capture:
    t = TraceBuilder()
    t.step(3, 0, 1_000)
    t.op("aten::empty", 100, 500)
    t.memory(200, 64, address=1, allocated=164, reserved=512)
    t.memory(300, -64, address=1, allocated=100, reserved=512)
    t.memory(400, 8, address=2, allocated=8, reserved=0, device_type=0, device_id=-1)
    return ingest.read(str(t.write(tmp_path / "a.pt.trace.json")))


def test_events_of_a_profiler(tmp_path: Path) -> None:
    # GIVEN 64 B over 100 B that were there before, and 8 B on the host
    c = trace(tmp_path)
    device, host = C.curves(c)
    # THEN the device's curve begins with what was there, and the host's has no reserved memory
    assert (device.device, device.source, device.before, device.peak, device.peak_ns) == ("CUDA 0", "events", 100, 164, 200)
    assert device.time_ns.tolist() == [0, 200, 300] and device.allocated is not None and device.allocated.tolist() == [100, 164, 100]
    assert device.reserved is not None and device.reserved.tolist() == [512, 512, 512] and not device.relative
    assert host.reserved is None and C.HOST_RESERVED in host.notes and host.peak == 8
    assert C.steps(c)[["number", "start_ns", "end_ns"]].values.tolist() == [[3, 0, 1_000]]


def test_a_window_begins_with_the_level_before_it(tmp_path: Path) -> None:
    # GIVEN the same WHEN only 250 to 350 ns are looked at THEN the level at 250 is 164
    device = C.curves(trace(tmp_path), window=(250, 350))[0]
    assert device.time_ns.tolist() == [250, 300] and device.allocated is not None and device.allocated.tolist() == [164, 100]
    assert (device.peak, device.peak_ns) == (164, 250)


def test_without_totals_only_the_change_is_shown(tmp_path: Path) -> None:
    t = TraceBuilder()
    t.memory(200, 64, address=None)
    (c,) = C.curves(ingest.read(str(t.write(tmp_path / "a.pt.trace.json"))))
    assert c.relative and c.before == -1 and C.TOTALS_MISSING in c.notes and c.reserved is None
    assert c.allocated is not None and c.allocated.tolist() == [0, 64]


def test_a_snapshot_is_replayed_from_its_end(tmp_path: Path) -> None:
    # GIVEN the snapshot: at its end 3 MiB - 100 B and 500 B are in use, the history explains the first and 1,000 B that were freed
    one, two = C.curves(ingest.read(str(write(tmp_path / "m.pickle", snapshot()))))
    # THEN 500 B were there before it, and the most is 3 MiB - 100 + 500 + 1,000 B, at 25 us
    assert one.before == 500 and one.peak == 3 * MIB - 100 + 1_500 and one.peak_ns == 25_000 and not one.relative
    assert one.allocated is not None and int(one.allocated[-1]) == 3 * MIB + 400
    # AND reserved begins at 0 and ends at both segments; the second device holds a segment and nothing in it
    assert one.reserved is not None and one.reserved.tolist()[0] == 0 and int(one.reserved[-1]) == 22 * MIB
    assert two.device == "device 1" and two.peak == 0 and two.reserved is not None and int(two.reserved[-1]) == 20 * MIB
    # AND the failed allocation is a mark
    (oom,) = one.events
    assert (oom.what, oom.time_ns, oom.bytes, oom.free) == ("oom", 40_000, 80 << 30, 6 * MIB) and "train.py" in oom.frames


def test_a_history_that_its_blocks_contradict_shows_the_change_only() -> None:
    # GIVEN a history that allocates what no block holds at its end WHEN drawn THEN no level is made up
    value = snapshot()
    value["segments"] = value["segments"][1:2]
    one = C.curves(capture_of(value, file="m"))[0]
    assert one.relative and one.before == -1 and one.allocated is not None and one.allocated.tolist()[0] == 0


def test_a_timeline_is_a_stack_whose_sum_is_allocated(tmp_path: Path) -> None:
    # GIVEN parameters of 10 B, an activation of 5 B made and freed WHEN drawn THEN the sum is 10, 15, 10
    path = tmp_path / "m.json"
    path.write_text("[[-1, 1, 10, 0], [1000, 2, 0, 5], [2000, 2, 5, 4], [3000, 4, -5, 4]]")
    (c,) = C.curves(ingest.read(str(path)))
    assert c.allocated is not None and c.allocated.tolist() == [10, 15, 10] and c.time_ns.tolist() == [0, 1000, 2000]
    assert c.categories["activation"].tolist() == [0, 5, 0] and c.categories["parameter"].tolist() == [10] * 3 and c.reserved is None
    assert (c.peak, c.peak_ns, c.source) == (15, 1000, "timeline")


def test_records_of_a_recorder_are_samples_with_their_peaks() -> None:
    # GIVEN records of a device at 5 and 9 ns, between which 70 B were in use, one of a phase and one of the host WHEN drawn
    table = S.MEMORY_RECORDS.frame({
        "time_ns": [9, 5, 9, 5], "device": [0, 0, 0, -1], "allocated": [40, 50, 60, 1], "reserved": [100, 90, 100, -1],
        "max_allocated": [70, 50, 99, -1], "since": ["iteration", "process", "phase", "process"],
    })  # fmt: skip
    (c,) = C.curves(Capture(Facts("sol_capture", "x", 0), {"memory_records": table}))
    # THEN levels are those of its own records in order of time, and the peak is the highest that they tell
    assert c.time_ns.tolist() == [5, 9] and c.allocated is not None and c.allocated.tolist() == [50, 40]
    assert c.reserved is not None and c.reserved.tolist() == [90, 100] and (c.peak, c.peak_ns, c.source) == (70, 9, "recorder")
    assert C.SAMPLES in c.notes
