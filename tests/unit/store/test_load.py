"""Reading in processes: once per file, with progress, canceled, killed, too large, too slow; and from the cache."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import fsspec
import pandas as pd
import pytest
from msgspec.structs import replace

from tb_sol_plugin import ingest
from tb_sol_plugin.errors import BadInput, NotFound, StillLoading, WorkerKilled
from tb_sol_plugin.metrics.critical.graph import graph_of
from tb_sol_plugin.metrics.timeline.timeline import timeline_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store import load, processes
from tb_sol_plugin.store.cache import Cache, cache_key
from tb_sol_plugin.store.load import DERIVED_BYTES, Loader, open_bytes
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import Memo, StoreOptions
from tb_sol_plugin.store.processes import Workers
from tb_sol_plugin.store.reductions import ReductionFiles
from tb_sol_plugin.store.scan import Heads, scan
from tb_sol_plugin.store.store import Store
from tests.support.tiny import EVENTS, trace


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    (tmp_path / "logs").mkdir()
    made = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "cache"), workers=1, fresh_seconds=0.0))
    yield made
    made.close()


@pytest.fixture
def threaded(tmp_path: Path) -> Iterator[Store]:
    """A store that reads in a thread, for what does not depend on processes."""
    (tmp_path / "logs").mkdir()
    with ThreadPoolExecutor(1) as pool:
        made = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "cache"), fresh_seconds=0.0), executor=pool)
        yield made
        made.close()


def soon(question: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not question():
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.01)


# functions that run in a worker process ---------------------------------------------------------------------------


def add(a: int, b: int) -> int:
    return a + b


def pid() -> int:
    return os.getpid()


def die_at_first(tries: str) -> int:
    """Appends to a file, and dies the first time."""
    with open(tries, "a", encoding="ascii") as stream:
        stream.write("x")
    if os.path.getsize(tries) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


def die_each_time(tries: str) -> None:
    with open(tries, "a", encoding="ascii") as stream:
        stream.write("x")
    os.kill(os.getpid(), signal.SIGKILL)


def sleep(seconds: float) -> None:
    time.sleep(seconds)


def eat(count: int) -> int:
    block = bytearray(count)
    block[::4096] = b"x" * len(block[::4096])
    time.sleep(120)
    return len(block)


def refuse() -> None:
    raise BadInput("no", hint="yes", file="f.json")


def fail() -> None:
    raise ZeroDivisionError("secret=abc at /home/joe")


def noisy() -> str:
    print("to the answers' stream?")
    os.system("echo and from a child")
    return "said"


# -- the processes ---------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    """One process at a time; a test may kill it, the next job starts another."""
    made = Workers(1, memory_bytes=1_200_000_000, seconds=20)
    yield made
    made.shutdown()


def test_a_process_answers_and_is_kept(workers: Workers) -> None:
    assert workers.submit(add, 2, 3).result(60) == 5
    first = workers.submit(pid).result(60)
    assert first == workers.submit(pid).result(60) != os.getpid()


def test_what_a_library_prints_does_not_mix_with_answers(workers: Workers) -> None:
    assert workers.submit(noisy).result(60) == "said"


def test_our_errors_cross_whole_and_others_without_their_text(workers: Workers) -> None:
    with pytest.raises(BadInput) as ours:
        workers.submit(refuse).result(60)
    assert (ours.value.message, ours.value.hint, ours.value.file) == ("no", "yes", "f.json")
    with pytest.raises(BadInput, match="ZeroDivisionError") as theirs:
        workers.submit(fail).result(60)
    assert "joe" not in str(theirs.value) and "abc" not in str(theirs.value)


def test_a_job_that_kills_its_process_twice_fails_alone(workers: Workers, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    # GIVEN a job that kills its process and one behind it WHEN both ran THEN the first was tried twice and says so, the second is answered
    dead, alive = workers.submit(die_each_time, str(tmp_path / "tries")), workers.submit(add, 1, 1)
    with pytest.raises(WorkerKilled, match="signal 9, and so was the one before it"):
        dead.result(60)
    assert alive.result(60) == 2 and (tmp_path / "tries").read_text() == "xx"
    assert caplog.text.count("killed by signal 9") == 2


def test_a_job_whose_process_dies_once_is_answered_by_another(workers: Workers, tmp_path: Path) -> None:
    before = workers.submit(pid).result(60)
    assert workers.submit(die_at_first, str(tmp_path / "tries")).result(60) == workers.submit(pid).result(60) != before
    assert (tmp_path / "tries").read_text() == "xx"


def test_a_job_that_is_stopped_before_it_is_tried_again_is_not(workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "TRY_AGAIN_SECONDS", (60.0, 60.0))
    dead = workers.submit(die_each_time, str(tmp_path / "tries"))
    soon(lambda: (tmp_path / "tries").exists() and all(one.poll() is not None for one in workers._processes))
    assert workers.stop(dead)
    with pytest.raises(WorkerKilled):
        dead.result(10)
    assert (tmp_path / "tries").read_text() == "x"


def test_a_job_that_needs_too_much_memory_is_ended(workers: Workers) -> None:
    with pytest.raises(WorkerKilled, match=r"more than 1\.20.GB"):
        workers.submit(eat, 1_500_000_000).result(60)


def test_a_job_that_takes_too_long_is_ended() -> None:
    workers = Workers(1, seconds=0.5)
    try:
        workers.submit(add, 1, 1).exception(60)
        with pytest.raises(WorkerKilled, match=r"longer than 0\.5 s"):
            workers.submit(sleep, 30).result(60)
    finally:
        workers.shutdown()


def test_a_running_job_can_be_stopped_and_a_waiting_one_taken_back(workers: Workers) -> None:
    running, waiting = workers.submit(sleep, 30), workers.submit(sleep, 30)
    soon(running.running)
    assert workers.stop(waiting) and waiting.cancelled()
    assert workers.stop(running)
    with pytest.raises(WorkerKilled, match="cancelled"):
        running.result(10)
    assert not workers.stop(running)


def test_a_process_started_ahead_takes_the_first_job() -> None:
    # GIVEN room for two WHEN one was warmed and one job comes THEN the warmed one does it and no second is started
    workers = Workers(2)
    try:
        workers.warm()
        soon(lambda: len(workers._processes) == 1)
        (ahead,) = workers._processes
        assert workers.submit(pid).result(60) == ahead.pid
        workers.warm()
        assert len(workers._processes) == 1
    finally:
        workers.shutdown()


def test_a_process_that_cannot_be_started_is_an_error_not_a_wait(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []

    def none_left() -> None:
        tried.append(1)
        raise OSError(12, "Cannot allocate memory")

    with monkeypatch.context() as patch:
        patch.setattr(workers, "_spawn", none_left)
        patch.setattr(processes, "TRY_AGAIN_SECONDS", (0.0, 0.0))
        workers.warm()
        with pytest.raises(WorkerKilled, match="Cannot allocate memory"):
            workers.submit(pid).result(10)
    assert len(tried) >= 3  # at once, and twice more, and ahead of it
    assert workers.submit(add, 1, 1).result(60) == 2


def test_processes_end_with_their_pool() -> None:
    workers = Workers(1)
    number = workers.submit(pid).result(60)
    workers.shutdown()
    with pytest.raises(ProcessLookupError):
        os.kill(number, 0)
    with pytest.raises(RuntimeError):
        workers.submit(pid)


# -- captures --------------------------------------------------------------------------------------------------------


def test_a_recording_is_read_in_a_process_and_next_time_from_the_cache(store: Store, tmp_path: Path) -> None:
    # GIVEN a recording of three events, 10 to 50 µs
    trace(tmp_path / "logs" / "run" / "rank3.json.gz")
    recording = store.recording("run")
    assert store.loader.state(recording)[0] == "new"
    # WHEN it is asked for THEN it comes whole, under its names, and nothing was written beside it
    capture = store.capture(recording, 60)
    assert (capture.run, capture.worker, capture.span, capture.facts.file) == ("run", "rank3", "default", "run/rank3.json.gz")
    assert (len(capture.device), capture.facts.total_events) == (1, 3)
    assert capture.device["duration_ns"].tolist() == [30_000]
    assert [p.name for p in (tmp_path / "logs" / "run").iterdir()] == ["rank3.json.gz"]
    assert store.capture(recording) is capture
    # AND another server opens it without a process
    other = Store(store.roots, store.options, executor=Refusing())
    assert other.loader.state(other.recording("run"))[0] == "ready"
    again = other.capture(other.recording("run"))
    assert again.facts == capture.facts


class Refusing(ThreadPoolExecutor):
    def submit(self, *_: object, **__: object) -> Future[object]:  # type: ignore[override]
        raise AssertionError("nothing should be read")


class Held(ThreadPoolExecutor):
    """A thread that reads when it is told to; counts what it was given."""

    def __init__(self) -> None:
        super().__init__(1)
        self.go = threading.Event()
        self.count = 0

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future[object]:  # type: ignore[override]
        self.count += 1

        def run() -> object:
            assert self.go.wait(30)
            return fn(*args, **kwargs)

        return super().submit(run)


def test_many_requests_share_one_read_and_see_its_progress(tmp_path: Path) -> None:
    # GIVEN two recordings and one slow reader
    for name in ("a", "b"):
        trace(tmp_path / "logs" / f"{name}.json")
    held = Held()
    store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "c")), executor=held)
    first, second = store.recordings("logs")
    for recording in (first, second):
        with pytest.raises(StillLoading):
            store.capture(recording, 0.01)
    # THEN the first is being read, the second is next, each with its size as total
    soon(lambda: store.loader.state(first)[0] == "loading")
    assert store.loader.state(second)[0] == "queued"
    told = store.progress(second)
    assert told is not None and told.queue_position == 1 and told.total == second.size and told.stage == "queued"
    # WHEN five more ask at once THEN the file is read once and all get it
    got: list[Capture] = []
    threads = [threading.Thread(target=lambda: got.append(store.capture(first, 30))) for _ in range(5)]
    for thread in threads:
        thread.start()
    held.go.set()
    for thread in threads:
        thread.join(30)
    assert len(got) == 5 and held.count == 2
    assert store.progress(first) is None and store.loader.state(first)[0] == "ready"
    store.close()


def test_cancel_ends_the_read_and_leaves_no_error(tmp_path: Path) -> None:
    trace(tmp_path / "logs" / "a.json")
    held = Held()
    store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=str(tmp_path / "c")), executor=held)
    recording = store.recording()
    with pytest.raises(StillLoading):
        store.capture(recording, 0.01)
    assert store.loader.cancel(recording) and not store.loader.cancel(recording)
    assert store.loader.state(recording)[0] == "new"
    held.go.set()
    assert store.capture(recording, 30).facts.total_events == 3


def test_a_read_without_a_progress_file_stops(tmp_path: Path) -> None:
    # GIVEN a reporter whose file was taken away WHEN it reports THEN the read is canceled
    from tb_sol_plugin.ingest import Progress

    file = tmp_path / "p.json"
    file.touch()
    report = processes._reporter(str(file))
    report(Progress(5, 10, 2, "reading"))
    assert json.loads(file.read_text()) == {"bytes": 5, "total": 10, "events": 2, "stage": "reading"}
    file.unlink()
    with pytest.raises(processes.Canceled):
        report(Progress(6, 10, 3, "reading"))


def test_a_killed_process_is_an_error_until_the_next_scan(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a reader that dies
    trace(tmp_path / "logs" / "a.json")
    recording = store.recording()
    original = load.read_capture
    monkeypatch.setattr(load, "read_capture", dying)
    with pytest.raises(WorkerKilled) as error:
        store.capture(recording, 60)
    assert error.value.file == "a.json" and "signal 9" in error.value.message
    # THEN it stays an error and is not tried again by itself
    monkeypatch.setattr(load, "read_capture", original)
    with pytest.raises(WorkerKilled):
        store.capture(recording, 60)
    assert store.loader.state(recording)[0] == "error"
    # WHEN scanned again THEN it is tried again
    store.rescan()
    assert store.capture(store.recording(), 60).facts.total_events == 3


def dying(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_grown_file_is_read_anew_and_a_removed_one_is_an_error(threaded: Store, tmp_path: Path) -> None:
    # GIVEN an open recording WHEN its file grows THEN the next listing knows it and the new content is read
    file = trace(tmp_path / "logs" / "a.json")
    assert threaded.capture(threaded.recording(), 60).facts.total_events == 3
    trace(file, EVENTS + EVENTS)
    threaded.rescan()
    assert threaded.capture(threaded.recording(), 60).facts.total_events == 6
    # WHEN one vanishes after it was listed THEN reading it says so
    gone = trace(tmp_path / "logs" / "gone" / "b.json")
    threaded.rescan()
    recording = threaded.recording("gone")
    gone.unlink()
    with pytest.raises(BadInput, match="not there any more") as error:
        threaded.capture(recording, 60)
    assert error.value.file == "gone/b.json"
    # AND after a scan its run is gone, with near names in the hint
    threaded.rescan()
    with pytest.raises(NotFound) as missing:
        threaded.recording("gone")
    assert "logs" in missing.value.hint


def test_a_file_that_changes_while_it_is_read_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tb_sol_plugin import ingest

    file = trace(tmp_path / "a.json")
    original = ingest.read

    def growing(path: str, **more: object) -> Capture:
        capture = original(path, **more)  # type: ignore[arg-type]
        trace(file, EVENTS + EVENTS)
        return capture

    monkeypatch.setattr(ingest, "read", growing)
    info = os.stat(file)
    read = processes.read_capture(processes.Task(str(file), info.st_size, info.st_mtime, tmp_path / "c", 0))
    assert read.capture is not None and "changed while it was read" in read.capture.facts.warnings[-1]
    assert not (tmp_path / "c").exists()


def test_without_a_cache_it_works_with_a_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN a cache directory that cannot be made WHEN a recording is opened THEN it opens, and the note says why it is slow
    (tmp_path / "file").touch()
    trace(tmp_path / "logs" / "a.json")
    for chosen, note in ((str(tmp_path / "file" / "cache"), "cache directory"), ("", "switched off")):
        with ThreadPoolExecutor(1) as pool:
            store = Store(single(str(tmp_path / "logs")), StoreOptions(cache_dir=chosen), executor=pool)
            assert store.capture(store.recording(), 60).facts.total_events == 3
            assert note in store.loader.cache.note
    assert "nothing can be kept" in caplog.text and str(tmp_path) not in caplog.text


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_a_disk_that_fills_up_costs_the_cache_only(threaded: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN a disk on which a write fails in the middle of a file
    import resource

    trace(tmp_path / "logs" / "a.json")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2_000, hard))
    try:
        # WHEN a recording is opened THEN it opens, the log says why nothing is kept, nothing half is left
        assert threaded.capture(threaded.recording(), 60).facts.total_events == 3
        assert not ReductionFiles(tmp_path / "cache").save("aa-1", bytes(5_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "nothing can be kept" in caplog.text and "cannot be kept on disk" in caplog.text
    assert not [p for p in (tmp_path / "cache").rglob("*") if p.is_file()]
    # AND with room again it is kept
    with ThreadPoolExecutor(1) as pool:
        again = Store(threaded.roots, threaded.options, executor=pool)
        again.capture(again.recording(), 60)
        assert again.loader.state(again.recording())[0] == "ready" and any((tmp_path / "cache").rglob("facts.json"))


def test_two_servers_on_one_cache_never_see_half_an_entry(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    # GIVEN two servers that keep, use and remove the same entries at the same time
    trace(tmp_path / "a.json")
    whole = ingest.read(str(tmp_path / "a.json"))

    def work(turn: int) -> int:
        cache, found = Cache(tmp_path / "cache", limit_bytes=1 if turn % 2 else 0), 0
        for number in range(15):
            assert cache.save(f"k{number % 2}", whole)
            got = cache.load(f"k{number % 2}")
            assert got is None or (got.facts == whole.facts and got.tables["host"].equals(whole.tables["host"]))
            found += got is not None
            if turn % 2:
                cache.remove(f"k{number % 2}")
        return found

    # WHEN each has done so THEN what was found was whole, and nobody called anything damaged
    with ThreadPoolExecutor(3) as pool:
        assert sum(pool.map(work, range(3))) > 0
    assert not caplog.records


def test_a_small_recording_is_used_as_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a recording that is read for the first time in the process that wants it
    trace(tmp_path / "logs" / "a.json")
    options = StoreOptions(cache_dir=str(tmp_path / "cache"))
    (recording,) = scan(single(str(tmp_path / "logs")), options, Heads({})).runs["logs"]
    mapped: list[str] = []
    monkeypatch.setattr(Cache, "load", lambda self, key, load=Cache.load: mapped.append(key) or load(self, key))
    # WHEN it is small THEN it is kept, and what was read is used; a larger one is mapped from what was kept
    first = load.open_here(recording, options)
    assert mapped == [cache_key(recording)] and Cache(tmp_path / "cache").has(mapped[0])
    shutil.rmtree(tmp_path / "cache")
    monkeypatch.setattr(load, "SMALL", 1)
    second = load.open_here(recording, options)
    assert len(mapped) == 3 and first.facts == second.facts
    for name, table in first.tables.items():
        pd.testing.assert_frame_equal(pd.DataFrame(table), pd.DataFrame(second.tables[name]))


def test_a_damaged_cache_entry_is_read_anew(threaded: Store, tmp_path: Path) -> None:
    trace(tmp_path / "logs" / "a.json")
    threaded.capture(threaded.recording(), 60)
    for table in (tmp_path / "cache").rglob("tables.arrow"):
        table.write_bytes(b"garbage")
    with ThreadPoolExecutor(1) as pool:
        other = Store(threaded.roots, threaded.options, executor=pool)
        assert other.capture(other.recording(), 60).facts.total_events == 3
        assert "damaged" in other.loader.cache.note


@pytest.mark.skipif(os.name == "nt", reason="Windows refuses to cut a mapped file")
def test_a_cache_file_cut_while_it_is_in_use_is_noticed(threaded: Store, tmp_path: Path) -> None:
    # GIVEN an opened recording, its tables mapped WHEN a file of its entry is cut in place THEN the next question reads it anew
    trace(tmp_path / "logs" / "a.json")
    before = threaded.capture(threaded.recording(), 60)
    starts = before.tables["host"]["start_ns"].tolist()
    (table,) = (tmp_path / "cache").rglob("tables.arrow")
    os.truncate(table, 0)
    found = threaded.capture(threaded.recording(), 60)
    assert found is not before and found.tables["host"]["start_ns"].tolist() == starts
    assert threaded.loader.cache.replaced == 1 and threaded.capture(threaded.recording(), 60) is found


def test_a_file_that_is_no_recording_says_what_to_do(threaded: Store, tmp_path: Path) -> None:
    (tmp_path / "logs" / "a.pt.trace.json").write_bytes(b"\x00\x01 not json at all")
    with pytest.raises(BadInput) as error:
        threaded.capture(threaded.recording(), 60)
    assert error.value.hint and error.value.file == "a.pt.trace.json"
    assert str(tmp_path) not in error.value.message + error.value.hint


def test_a_read_only_logdir_can_be_read(threaded: Store, tmp_path: Path) -> None:
    trace(tmp_path / "logs" / "a.json").chmod(0o400)
    (tmp_path / "logs").chmod(0o500)
    try:
        assert threaded.capture(threaded.recording(), 60).facts.total_events == 3
    finally:
        (tmp_path / "logs").chmod(0o700)


def test_files_of_this_process_are_read_in_a_thread(tmp_path: Path) -> None:
    # GIVEN a logdir that lives in memory (no other process sees it) WHEN opened THEN it opens
    fs = fsspec.filesystem("memory")
    fs.pipe("/mem/run/a.json", json.dumps({"traceEvents": EVENTS}).encode())
    try:
        store = Store(single("memory://mem"), StoreOptions(cache_dir=str(tmp_path)), executor=Refusing())
        capture = store.capture(store.recording("run"), 60)
        assert capture.facts.total_events == 3 and capture.facts.file == "run/a.json"
        store.close()
    finally:
        fs.store.clear()


def test_opened_captures_are_bounded(tmp_path: Path) -> None:
    # GIVEN room for one capture WHEN three are opened, one after the other
    for name in "abc":
        trace(tmp_path / "logs" / f"{name}.json")
    with ThreadPoolExecutor(1) as pool:
        loader = Loader(StoreOptions(cache_dir=str(tmp_path / "c"), open_bytes=1), pool)
        store = Store(single(str(tmp_path / "logs")))
        recordings: list[Recording] = list(store.recordings("logs"))
        opened = []
        for recording in recordings:
            capture = loader.capture(recording, 60)
            timeline_of(capture)  # it is kept with its capture, and refers to it
            opened.append(weakref.ref(capture))
            del capture
        # THEN those that made room are gone, without a garbage collection of Python's own
        assert len(loader._open) == 1 and [one() is None for one in opened] == [True, True, False]


def test_an_open_capture_counts_with_what_is_derived_of_it(tmp_path: Path) -> None:
    # GIVEN a capture WHEN its graph of dependencies is made THEN it takes more room, and by that makes an older one go when the next comes
    capture = ingest.read(str(trace(tmp_path / "a.json")))
    plain = open_bytes(capture)
    graph_of(capture)
    assert open_bytes(capture) == plain + DERIVED_BYTES * (len(capture.host) + len(capture.device)) > plain
    gone: list[bool] = []
    kept: Memo[Capture] = Memo(open_bytes(capture) + 2 * plain, open_bytes, lambda: gone.append(True))
    others = [ingest.read(str(trace(tmp_path / f"{name}.json"))) for name in "bc"]
    for name, one in zip("abc", (capture, *others), strict=True):
        kept.put(name, one)
    assert len(kept) == 3 and not gone
    for one in others:
        graph_of(one)
    kept.put("d", ingest.read(str(trace(tmp_path / "d.json"))))
    assert len(kept) < 4 and gone == [True] and "a" not in kept


def test_active_answers_at_once(tmp_path: Path) -> None:
    # GIVEN no roots THEN no; an unknown logdir THEN yes; an empty one THEN no once it is known; one with a recording THEN yes for good
    assert not Store(()).active()
    (tmp_path / "logs").mkdir()
    empty = Store(single(str(tmp_path / "logs")), StoreOptions(fresh_seconds=0.0))
    empty.active()
    empty.listing(5.0)
    soon(lambda: not empty.active())
    file = trace(tmp_path / "logs" / "a.pt.trace.json")
    soon(empty.active)
    file.unlink()
    empty.rescan()
    assert empty.active()


def test_a_failed_scan_is_reported_and_the_old_listing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace(tmp_path / "a.json")
    store = Store(single(str(tmp_path)), replace(StoreOptions(), fresh_seconds=0.0))
    assert store.rescan()[0] == "done"

    def broken(*_: object) -> None:
        raise RuntimeError("disk on fire")

    monkeypatch.setattr("tb_sol_plugin.store.store.scan", broken)
    state, listing = store.rescan()
    assert state == "error" and len(listing.runs) == 1 and "RuntimeError" in store.failed
