"""The short way through ordinary iterations writes and tells the same as the long one, and leaves to that what is not ordinary."""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tb_sol_plugin.capture.loop import fast_path
from tb_sol_plugin.capture.loop.fast_path import FastPath
from tb_sol_plugin.capture.loop.schedule import Schedule
from tests.support.sol_reading import only

torch = pytest.importorskip("torch", reason="tracks training loops")
from tb_sol_plugin.capture.tracker import SOLTracker  # noqa: E402  (needs torch)
from tests.support.stopped_clock import StoppedClock as Time  # noqa: E402
from tests.support.stopped_clock import stop_clock  # noqa: E402

QUIET: dict[str, Any] = {"tensorboard": False, "wandb": False, "console": False}


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    """The time of all parts of the tracker."""
    return stop_clock(monkeypatch)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each iteration is written when it ends, as where they are long."""
    monkeypatch.setattr(fast_path, "BATCH_NS", 0)


def written(folder: Path) -> list[dict[str, Any]]:
    """All records but the header and the end of the only file."""
    (path,) = folder.glob("*.sol.jsonl")
    found = [json.loads(line) for line in path.read_text().splitlines()]
    return [record for record in found if record["kind"] not in ("header", "close")]


def model() -> Any:
    torch.manual_seed(0)
    return torch.nn.Linear(16, 16)


X = torch.linspace(-1, 1, 8 * 16).view(8, 16)
Loop = Callable[[SOLTracker, Any, Time], None]


def plain(t: SOLTracker, layer: Any, time: Time) -> None:
    for _ in range(40):
        with t.phase("forward"):
            layer(X)
            time.pass_(70)
            with t.phase("inner"):  # ends at the very moment in which the outer one ends
                time.pass_(30)
        with t.phase("backward"):
            time.pass_(200)
        time.pass_(5)
        t.step()


def numbered(t: SOLTracker, layer: Any, time: Time) -> None:
    for number in (*range(100, 120), *range(300, 340, 2)):
        t.clear()
        t.push_phase("train")
        layer(X)
        time.pass_(number)
        t.pop_phase()
        t.log_analysis(number)


def changing(t: SOLTracker, layer: Any, time: Time) -> None:
    for at in range(40):
        if at % 7 == 3:
            t.start_step(1000 * at)
        with t.phase(f"phase {at // 10}"):
            layer(X)
            time.pass_(10 + at)
        if at == 25:
            t.push_phase("open over the end")
        if at == 27:
            t.pop_phase()
        t.step(batch=None if at < 20 else 8, tokens=64 if at > 30 else None)


def without_phases(t: SOLTracker, layer: Any, time: Time) -> None:
    for _ in range(30):
        layer(X)
        time.pass_(11)
        t.step(batch=4)


def many_phases(t: SOLTracker, layer: Any, time: Time) -> None:
    for at in range(12):
        layer(X)
        for _ in range(300 if at == 7 else 20 + at):
            with t.phase("piece"):
                time.pass_(3)
        t.step()


def sizes(t: SOLTracker, layer: Any, time: Time) -> None:
    for at in range(40):
        layer(X if at % 16 != 5 else X[:4])
        if at % 16 == 9:
            t.start_step()
        time.pass_(9)
        t.step()


@pytest.mark.parametrize("loop", [plain, numbered, changing, without_phases, many_phases, sizes])
def test_the_fast_path_writes_the_same_file(loop: Loop, tmp_path: Path, time: Time, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a loop, and a clock on which nothing of the recorder takes time but a write, which takes 1000 ns
    found: list[list[dict[str, Any]]] = []
    short: list[bool] = []
    end, write = FastPath.end, os.write
    monkeypatch.setattr(os, "write", lambda fd, text: (time.pass_(1000), write(fd, text))[1])

    def counted(self: FastPath, *args: Any) -> bool:
        short.append(end(self, *args))
        return short[-1]

    monkeypatch.setattr(FastPath, "end", counted)
    for way in ("short", "long"):
        if way == "long":
            monkeypatch.setattr(Schedule, "until_due", lambda self: 0)
        time.ns = 1000
        # WHEN it is tracked with the short way and without it
        folder = tmp_path / way
        with SOLTracker(every_n_steps=10, report_interval=20, logdir=str(folder), **QUIET) as t:
            t.initialize(layer := model())
            loop(t, layer, time)
        found.append(written(folder))
        steps = sum(r["kind"] == "step" for r in found[-1])
        assert json.loads(next(folder.glob("*")).read_text().splitlines()[-1])["iterations"] == steps
        if way == "short":
            assert sum(short) >= 0.4 * len(short)  # AND most of it went the short way
            short.clear()
    assert not any(short)
    # THEN the files are equal, record by record and field by field
    assert found[0] == found[1]
    # AND its times are those of the clock: each write stands before the iteration that follows
    steps = [r for r in found[0] if r["kind"] == "step"]
    assert len(steps) >= 12 and all(r["before_ns"] >= 1000 for r in steps[2:]) and all(r["overhead_ns"] == 0 for r in steps)


def test_iterations_are_in_the_file_after_50_ms(tmp_path: Path, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a loop of ordinary iterations of 9 ms, then of 60 ms
    layer, writes, write = model(), [], os.write
    monkeypatch.setattr(os, "write", lambda fd, text: (writes.append(bytes(text).count(b'"kind":"step"')), write(fd, text))[1])
    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t:
        t.initialize(layer)
        for at in range(40):
            with t.phase("forward"):
                layer(X)
                time.pass_(9_000_000 if at < 30 else 60_000_000)
            # WHEN each has ended THEN a process that is killed now loses at most those of the last 50 ms
            t.step()
            steps = [s["iteration"] for s in written(tmp_path) if s["kind"] == "step"]
            assert steps == list(range(len(steps))) and len(steps) > (at - 5 if at < 30 else at)
        # AND six short ones are written at once, which takes one write
        assert t._fast_path.ended > 20
    assert writes.count(6) == 4 and writes.count(1) >= 9


@pytest.mark.parametrize("every", [0, 1, 2, 3, 10])
@pytest.mark.parametrize("report", [1, 4, 10])
@pytest.mark.parametrize("traces", [0, 2])
def test_quiet_iterations_are_those_in_which_nothing_is_due(every: int, report: int, traces: int) -> None:
    # GIVEN a schedule, and which of its iterations are sampled, traced and reported, asked one by one
    schedule, due = Schedule(every, report=report, traces=traces), []
    for _ in range(60):
        sampled = schedule.samples()
        traced = not sampled and schedule.traced()
        due.append((sampled, traced, schedule.reported(-1, sampled=False)))
        schedule.ended(sampled=sampled)
    schedule = Schedule(every, report=report, traces=traces)
    for index in range(40):
        # WHEN it says how many from one on that is not sampled are quiet THEN none of these is reported, and none is followed by one that is watched
        quiet = 0 if due[index][0] else schedule.until_due()
        for at in range(index, index + quiet):
            assert not due[at][2] and not due[at + 1][0] and not due[at + 1][1]
        # AND where it says none, something is due, or traces may be among the first
        if quiet == 0 and not (traces and index < 4):
            assert due[index][0] or due[index][2] or due[index + 1][0] or (every and index < 1)
        sampled = schedule.samples()
        if not sampled:
            schedule.traced()
        schedule.ended(sampled=sampled)


def test_what_is_not_ordinary_goes_the_long_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a loop that goes the short way
    layer, t = model(), SOLTracker(every_n_steps=1000, logdir=str(tmp_path), tensorboard=False, console=False)
    short: list[bool] = []
    end = FastPath.end
    monkeypatch.setattr(FastPath, "end", lambda self, *args: short.append(end(self, *args)) or short[-1])

    def ended(**sizes: int) -> bool:
        layer(X)
        t.step(**sizes)
        return short[-1]

    t.initialize(layer)
    assert [ended() for _ in range(5)] == [False, False, False, True, True]
    # WHEN there is a note, a phase with a new name, an open phase, other sizes, another thread or a run of W&B THEN not this iteration, but
    # those that follow
    t._note("remark", "a remark")
    assert [ended(), ended()] == [False, True]
    with t.phase("new"):
        pass
    assert [ended(), ended()] == [False, True]
    t.push_phase("new")
    assert not ended()
    t.pop_phase()
    assert ended()
    assert [ended(batch=3), ended(batch=3), ended()] == [False, True, False]
    assert ended()
    thread = threading.Thread(target=ended)
    thread.start()
    thread.join(30)
    assert not short[-1]
    assert [ended(), ended()] == [False, True]
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=None))
    assert ended()
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=object()))
    monkeypatch.setattr("tb_sol_plugin.capture.report.output._log_wandb", lambda *args: logged.append(args[1]))
    logged: list[int] = []
    monkeypatch.setattr("tb_sol_plugin.capture.report.output.LEAST_NS", 0)
    assert not ended() and not ended() and len(logged) == 2
    # AND where that one is not due yet the way stays short
    monkeypatch.setattr("tb_sol_plugin.capture.report.output.LEAST_NS", 1 << 60)
    assert not ended() and ended() and ended() and len(logged) == 3
    monkeypatch.setitem(sys.modules, "wandb", types.SimpleNamespace(run=None))
    t.close()
    # AND every iteration is in the file once
    steps = only(tmp_path).steps
    assert [s["iteration"] for s in steps] == list(range(len(short)))
    assert [s.get("batch") for s in steps].count(3) == 2


def test_who_asks_in_between_is_told(tmp_path: Path) -> None:
    # GIVEN ordinary iterations after a sampled one
    layer = model()
    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t:
        t.initialize(layer)
        for at in range(10):
            layer(X)
            t.step()
            # WHEN the analysis is asked for THEN it is that of the iteration that ended last, as old as it is, and the way stays short
            if at >= 4:
                found = t.analysis
                assert found is not None and (found.iteration, found.age) == (at, at - 1)
        assert t._fast_path.left > 0 and t._schedule.index == 10


def test_a_full_disk_ends_the_file_and_nothing_else(tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a disk that is full after some ordinary iterations
    layer, real = model(), os.write
    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t, warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        t.initialize(layer)
        for at in range(20):
            if at == 8:

                def full(fd: int, text: bytes) -> int:
                    raise OSError(errno.ENOSPC, "No space left on device")

                monkeypatch.setattr(os, "write", full)
            layer(X)
            # WHEN training goes on THEN it is not disturbed
            t.step()
        monkeypatch.setattr(os, "write", real)
        assert t.output.iterations + t._fast_path.ended == 20 and not t.off
    # AND the file has what was written before, and one warning says why
    assert [r["iteration"] for r in written(tmp_path) if r["kind"] == "step"] == list(range(8))
    assert [str(w.message) for w in said if "SOL" in str(w.message)] == [
        f"SOL capture: nothing more is written to {tmp_path}: No space left on device"
    ]


def test_a_disk_that_takes_a_part_of_a_record(tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file system that takes at most 25 bytes at a time WHEN ordinary iterations end THEN their records are whole
    layer, real = model(), os.write
    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t:
        t.initialize(layer)
        for at in range(10):
            if at == 5:
                monkeypatch.setattr(os, "write", lambda fd, text: real(fd, bytes(text)[:25]))
            layer(X)
            t.step()
        monkeypatch.setattr(os, "write", real)
        size = t._fast_path.size
        assert size == next(tmp_path.glob("*")).stat().st_size and t._fast_path.ended == 7
    assert [r["iteration"] for r in written(tmp_path) if r["kind"] == "step"] == list(range(10))


def test_a_disk_that_is_full_within_a_record_leaves_no_part_of_it(tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a disk that takes 25 bytes of a record and then no more
    layer, real, taken = model(), os.write, []

    def full(fd: int, text: bytes) -> int:
        if taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken.append(1)
        return real(fd, bytes(text)[:25])

    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        t.initialize(layer)
        for at in range(10):
            if at == 6:
                monkeypatch.setattr(os, "write", full)
            layer(X)
            t.step()
        monkeypatch.setattr(os, "write", real)
    # THEN the file ends with a whole line, that of the iteration before
    (path,) = tmp_path.glob("*.sol.jsonl")
    assert path.read_bytes().endswith(b"}\n")
    assert [r["iteration"] for r in written(tmp_path) if r["kind"] == "step"] == list(range(6))


def test_ctrl_c_within_a_write_costs_that_record_at_most(tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN Ctrl+C after 30 bytes of a record
    layer, real = model(), os.write

    def interrupted(fd: int, text: bytes) -> int:
        real(fd, bytes(text)[:30])
        raise KeyboardInterrupt

    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t:
        t.initialize(layer)
        for at in range(10):
            layer(X)
            if at == 6:
                with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
                    patched.setattr(os, "write", interrupted)
                    t.step()
            else:
                t.step()
    # WHEN training goes on THEN the records that follow stand on lines of their own, with numbers of their own
    (path,) = tmp_path.glob("*.sol.jsonl")
    numbers, broken = [], 0
    for line in path.read_text().splitlines():
        try:
            record = json.loads(line)
            numbers += [record["iteration"]] if record["kind"] == "step" else []
        except ValueError:
            broken += 1
    assert broken == 1 and numbers == [0, 1, 2, 3, 4, 5, 7, 8, 9]


def test_an_error_of_its_own_does_not_reach_training(tmp_path: Path, at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a short way that fails WHEN iterations end THEN training goes on, the file says so, and after three failures tracking ends
    def broken(self: FastPath, phases: int) -> str:
        raise ZeroDivisionError("no text")

    layer = model()
    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t:
        t.initialize(layer)
        monkeypatch.setattr(FastPath, "_text", broken)
        for _ in range(20):
            layer(X)
            t.step()
        assert t.off
    assert only(tmp_path).notes["failed_step"] == 1 and only(tmp_path).notes["off"] == 1


def test_an_iteration_that_cannot_be_written_costs_no_other(tmp_path: Path, time: Time, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN iterations that are written together, one of which has no text
    text = FastPath._text

    def broken(self: FastPath, phases: int) -> str:
        return text(self, 1 // (2 - phases) and phases)

    monkeypatch.setattr(FastPath, "_text", broken)
    layer = model()
    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t:
        t.initialize(layer)
        for at in range(20):
            layer(X)
            for _ in range(2 if at == 12 else 1):
                with t.phase("forward"):
                    time.pass_(1_000_000)
            # WHEN they have ended
            t.step()
    # THEN all others are in the file, and a note says what failed
    assert [r["iteration"] for r in written(tmp_path) if r["kind"] == "step"] == [at for at in range(20) if at != 12]
    assert any("ZeroDivisionError" in note or note.startswith("failed") for note in only(tmp_path).notes)


def test_a_process_that_was_forked_writes_nothing(tmp_path: Path) -> None:
    # GIVEN a tracker on the short way WHEN the process forks and its copy goes on with the loop THEN the file has this process's alone
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    layer = model()
    with SOLTracker(every_n_steps=1000, logdir=str(tmp_path), **QUIET) as t:
        t.initialize(layer)
        for _ in range(6):
            t.step()
        child = os.fork()
        if child == 0:
            t.step()
            os._exit(0)
        os.waitpid(child, 0)
        t.step()
    assert [r["iteration"] for r in written(tmp_path) if r["kind"] == "step"] == list(range(7))


def test_a_file_at_its_cap_goes_on_in_a_next_part(tmp_path: Path) -> None:
    # GIVEN a cap that some hundred iterations reach WHEN they have ended THEN there are parts, and no iteration is missing
    layer = model()
    with SOLTracker(every_n_steps=10_000, report_interval=10_000, logdir=str(tmp_path), **QUIET) as t:
        t.initialize(layer)
        t.step()
        assert t.output._writer is not None
        t.output._writer._cap = cap = 70_000
        for _ in range(600):
            with t.phase("forward"):
                pass
            t.step()
    files = sorted(tmp_path.glob("*.sol.jsonl"))
    assert len(files) >= 2 and all(path.stat().st_size < cap + 200 for path in files)  # and the line that says where it goes on
    numbers = [json.loads(line)["iteration"] for path in files for line in path.read_text().splitlines() if '"kind":"step"' in line]
    assert sorted(numbers) == list(range(601))
