"""The short way through iterations that a device times: the same file, few calls, one query, and no wait."""

from __future__ import annotations

import os
import sys
import types
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import tb_sol_plugin
from tb_sol_plugin.capture.loop import fast_path, header
from tb_sol_plugin.capture.loop.fast_path import FastPath
from tb_sol_plugin.capture.loop.schedule import Schedule
from tb_sol_plugin.capture.loop.timing import EventPool, cuda_recorder
from tb_sol_plugin.capture.report import output
from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="tracks training loops")
from tb_sol_plugin.capture.tracker import SOLTracker  # noqa: E402  (needs torch)
from tests.support.stopped_clock import StoppedClock, stop_clock  # noqa: E402
from tests.unit.capture.loop.test_fast_path import QUIET, X, model, written  # noqa: E402
from tests.unit.capture.loop.test_timing import Device, FakeEvent  # noqa: E402

MAIN, SIDE = 0, 7


class Streams(Device):
    """A device with streams: an event is on the one that is current when it is recorded. asked: questions by kind."""

    def __init__(self) -> None:
        super().__init__()
        self.stream, self.at_once = MAIN, False
        self.asked: Counter[str] = Counter()

    def event(self) -> FakeEvent:
        made = Counted(self)
        self.made.append(made)
        return made

    def record(self, event: FakeEvent) -> int:
        event.record()
        event.stream, event.passed = self.stream, self.at_once  # type: ignore[attr-defined]
        return self.stream

    def pass_those_before(self, at_ms: float, stream: int | None = None) -> None:
        for event in self.made:
            event.passed |= event.at is not None and event.at <= at_ms and stream in (None, event.stream)


class Counted(FakeEvent):
    """An event that counts what it is asked."""

    def __init__(self, device: Streams) -> None:
        super().__init__(device)
        self.asked, self.stream = device.asked, -1

    def query(self) -> bool:
        self.asked["query"] += 1
        return super().query()

    def elapsed_time(self, end: FakeEvent) -> float:
        self.asked["elapsed_time"] += 1
        return super().elapsed_time(end)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Streams:
    made = Streams()
    monkeypatch.setattr(fast_path, "BATCH_NS", 0)  # each is written as soon as it can be
    monkeypatch.setattr(header, "event_pool", lambda kind, index=None: EventPool(made.event, record=made.record))
    return made


class Loop:
    """Iterations with three phases of 1, 2 and 4 ms on a device that is so many of them behind; with 0 it has passed what is recorded."""

    def __init__(self, t: SOLTracker, device: Streams, *, behind: int = 0, clock: StoppedClock | None = None) -> None:
        self.t, self.device, self.behind, self.clock = t, device, behind, clock
        self.layer, self.ends = model(), [0.0]
        device.at_once = behind == 0
        t.initialize(self.layer)

    def iteration(self, stream: int = MAIN) -> int:
        """Returns how many are written after it. stream: that of its forward phase."""
        device, t = self.device, self.t
        for name, ms in (("forward", 1), ("backward", 2), ("optimizer", 4)):
            device.stream = stream if name == "forward" else MAIN
            with t.phase(name):
                if name == "forward":
                    self.layer(X)
                device.now_ms += ms
                if self.clock is not None:
                    self.clock.pass_(1000)
        device.now_ms += 0.5
        t.step()
        self.ends.append(device.now_ms)
        if not device.at_once:
            device.pass_those_before(self.ends[max(0, len(self.ends) - self.behind)])
        return t.output.iterations + t._fast_path.written

    def run(self, iterations: int) -> list[int]:
        return [self.iteration() for _ in range(iterations)]


@pytest.mark.parametrize("behind", [0, 1, 3])
def test_the_fast_path_writes_the_same_file_of_a_device(
    behind: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Streams
) -> None:
    # GIVEN a device so many iterations behind the host, and a clock on which nothing of the recorder takes time
    clock = stop_clock(monkeypatch)
    found, short, end = [], [], FastPath.end
    monkeypatch.setattr(FastPath, "end", lambda self, *args: short.append(end(self, *args)) or short[-1])
    for way in ("short", "long"):
        if way == "long":
            monkeypatch.setattr(Schedule, "until_due", lambda self: 0)
        device.now_ms, clock.ns = 0.0, 1000
        with SOLTracker(every_n_steps=12, report_interval=100, logdir=str(tmp_path / way), **QUIET) as t:
            counts = Loop(t, device, behind=behind, clock=clock).run(40)
            device.catch_up()
        found.append(written(tmp_path / way))
        # WHEN iterations end THEN each is written once the device has passed it, on either way
        assert counts == [max(0, n - behind) for n in range(1, 41)]
        if way == "short":
            assert sum(short) >= 0.6 * len(short)
    # AND the files are equal
    assert found[0] == found[1]
    # AND all have 7.5 ms on the device, and 1, 2 and 4 ms in their phases
    steps = [r for r in found[0] if r["kind"] == "step"]
    assert [s["iteration"] for s in steps] == list(range(40)) and {s["device_ns"] for s in steps} == {7_500_000}
    phases = [[row[3] for row in r["rows"]] for r in found[0] if r["kind"] == "phase_time"]
    assert phases == [[1_000_000, 2_000_000, 4_000_000]] * 40


def test_an_iteration_on_a_device_takes_few_calls(device: Streams) -> None:
    # GIVEN a tracker on the short way, two iterations ahead of the device WHEN ten more have run
    with SOLTracker(every_n_steps=1000, **QUIET) as t:
        loop = Loop(t, device, behind=2)
        loop.run(20)
        before, made = t._fast_path.ended, len(device.made)
        device.asked.clear()
        calls: Counter[str] = Counter()
        product = os.path.dirname(tb_sol_plugin.__file__)
        sys.setprofile(lambda frame, event, arg: calls.update((event,) if frame.f_code.co_filename.startswith(product) else ()))
        try:
            loop.run(10)
        finally:
            sys.setprofile(None)
        # THEN each took 40 calls of Python at the most, one or two queries and four times that were read, and no new event
        assert t._fast_path.ended == before + 10
        assert calls["call"] <= 400 and calls["c_call"] <= 1000
        assert device.asked["query"] <= 20 and device.asked["elapsed_time"] == 40
        assert len(device.made) == made


def test_a_phase_on_another_stream_is_waited_for(tmp_path: Path, device: Streams) -> None:
    # GIVEN an iteration on the short way with a phase on a stream that lags behind
    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t:
        loop = Loop(t, device)
        loop.run(6)
        device.at_once, loop.behind = False, 1000
        counts = [loop.iteration(SIDE)]
        for _ in range(2):
            device.pass_those_before(device.now_ms + 1, MAIN)
            counts.append(loop.iteration())
        # WHEN the main stream has passed its end THEN it is not written before the other has too
        assert counts == [6, 6, 6] and t._fast_path.left > 0
        device.catch_up()
        assert loop.iteration() == 9
        device.catch_up()
    rows = [r["rows"] for r in written(tmp_path) if r["kind"] == "phase_time"]
    assert [[row[3] for row in one] for one in rows] == [[1_000_000, 2_000_000, 4_000_000]] * 10


def test_an_iteration_that_begins_anew_is_timed_anew(tmp_path: Path, device: Streams) -> None:
    # GIVEN iterations on the short way, each begun anew after 9 ms of something else WHEN they take 7.5 ms more
    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t:
        loop = Loop(t, device)
        loop.run(6)
        made = len(device.made)
        for _ in range(8):
            device.now_ms += 9
            t.start_step()
            loop.run(1)
        # THEN they have 7.5 ms, and no event was made for it
        assert t._fast_path.ended == 11 and len(device.made) == made
    assert [s["device_ns"] for s in only(tmp_path).steps] == [7_500_000] * 14


def test_iterations_are_written_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Streams) -> None:
    # GIVEN iterations of 4 ms by the clock of the host WHEN they end THEN they are written each 50 ms, by one call
    clock, writes, write = stop_clock(monkeypatch), [], os.write
    monkeypatch.setattr(fast_path, "BATCH_NS", 50_000_000)
    with SOLTracker(every_n_steps=1000, report_interval=1000, logdir=str(tmp_path), **QUIET) as t:
        loop = Loop(t, device, clock=clock)
        loop.run(6)
        monkeypatch.setattr(os, "write", lambda fd, text: (writes.append(bytes(text)), write(fd, text))[1])
        for _ in range(60):
            clock.pass_(4_000_000 - 3000)
            loop.iteration()
        monkeypatch.setattr(os, "write", write)
        assert [text.count(b'"kind":"step"') for text in writes] == [15, 13, 13, 13] and len(t._fast_path.waiting) == 66 - 4 - 54
    # AND the rest when the tracker ends; nothing is missing, each with its own times
    steps = only(tmp_path).steps
    assert [s["iteration"] for s in steps] == list(range(66)) and {s["device_ns"] for s in steps} == {7_500_000}


def test_a_device_that_stops_answering_ends_the_short_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: Streams) -> None:
    # GIVEN iterations on the short way WHEN the device passes no more events
    monkeypatch.setattr(output, "PATIENCE", 0.0)
    with SOLTracker(every_n_steps=1000, report_interval=1000, logdir=str(tmp_path), **QUIET) as t:
        loop = Loop(t, device)
        loop.run(6)
        device.at_once, loop.behind = False, 1000
        loop.run(100)
        # THEN some wait, and the others are written without
        assert len(t._fast_path.waiting) <= 65
    steps = only(tmp_path).steps
    assert [s["iteration"] for s in steps] == list(range(106)) and all(s.get("device_ns") is None for s in steps[6:])
    assert any("event not completed" in s.get("lost", {}) for s in steps)


def test_who_asks_meanwhile_has_the_times_of_the_device(device: Streams) -> None:
    # GIVEN a sampled iteration, and ordinary ones after it WHEN the analysis is asked for THEN it is that of the last one that was passed
    with SOLTracker(every_n_steps=1000, **QUIET) as t:
        Loop(t, device, behind=2).run(12)
        found = t.analysis
        assert found is not None and found.iteration == 9
        assert {row.name: row.measured_us for row in found.phases if row.name != "(no phase)"} == {
            "forward": 1000.0, "backward": 2000.0, "optimizer": 4000.0,
        }  # fmt: skip


def fake_torch(calls: list[str], stream: list[int]) -> Any:
    """A torch of which the recorder of events takes what it needs. stream: the current one."""
    core = types.SimpleNamespace(
        _cuda_getCurrentRawStream=lambda device: stream[0] * 16,
        _cuda_isCurrentStreamCapturing=lambda: stream[0] < 0,
        _cuda_getDevice=lambda: calls.append("device") or 3,
    )
    cuda = types.SimpleNamespace(current_stream=lambda device: calls.append(f"stream of {device}") or f"stream {stream[0]}")
    return types.SimpleNamespace(_C=core, cuda=cuda)


@pytest.mark.parametrize("index", [None, 1])
def test_the_stream_is_looked_up_where_it_changes(index: int | None) -> None:
    # GIVEN a CUDA device, the model's or the current one WHEN events are recorded on one stream, on another, and while a graph is captured
    calls: list[str] = []
    recorded: list[str] = []
    stream = [0]
    event = types.SimpleNamespace(record=recorded.append)
    record = cuda_recorder(fake_torch(calls, stream), index)
    assert record is not None
    on = [record(event), record(event)]
    stream[0] = 5
    on += [record(event), record(event)]
    stream[0] = -1
    on.append(record(event))
    # THEN the stream was looked up twice, and nothing is recorded into the graph
    assert on == [0, 0, 80, 80, None]
    assert recorded == ["stream 0", "stream 0", "stream 5", "stream 5"]
    device = 3 if index is None else 1
    assert calls == (["device"] if index is None else []) + [f"stream of {device}"] * 2


def test_a_torch_without_these_functions_records_by_itself() -> None:
    assert cuda_recorder(types.SimpleNamespace(_C=types.SimpleNamespace(), cuda=types.SimpleNamespace(current_stream=None)), 0) is None
