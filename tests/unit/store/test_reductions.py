"""Reductions of all recordings of a run: made once, in reading processes, kept on disk, with bounded memory; order, stopping, errors."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest

from tb_sol_plugin.errors import BadInput, StillLoading
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import Recording, RecordingReduction, Reduced, ReducedFacts, facts_of
from tb_sol_plugin.store import load, processes, reductions
from tb_sol_plugin.store.cache import cache_key
from tb_sol_plugin.store.names import single
from tb_sol_plugin.store.options import StoreOptions
from tb_sol_plugin.store.reductions import LARGEST, ReductionFiles, recordings_like
from tb_sol_plugin.store.store import Store
from tests.support.tiny import trace
from tests.support.waiting import Gate, until


class Counted(msgspec.Struct, frozen=True):
    """A part that is as large as one likes. pid: of the process that made it."""

    events: int
    pid: int
    filler: bytes = b""


decode = msgspec.msgpack.Decoder(Counted).decode


@dataclass(frozen=True)
class Reducer:
    """Counts events. size: bytes of filler."""

    version: int = 1
    size: int = 0

    @property
    def key(self) -> str:
        return f"counted-{self.version}-{self.size}"

    def __call__(self, capture: Capture) -> Reduced:
        part = Counted(capture.facts.total_events, os.getpid(), bytes(self.size))
        return Reduced(facts_of(capture), msgspec.msgpack.encode(part))


@dataclass(frozen=True)
class Gated(Reducer):
    """Reduces as many recordings as its gate was opened for."""

    gate: Gate = field(default_factory=Gate)

    def __call__(self, capture: Capture) -> Reduced:
        self.gate.wait()
        return super().__call__(capture)


@dataclass(frozen=True)
class Broken:
    """Raises what nobody expected."""

    key: str = "broken"

    def __call__(self, capture: Capture) -> Reduced:
        raise ZeroDivisionError("at /home/joe")


class Counting(Executor):
    """A pool of threads that notes what it was asked to read, and reads it here."""

    def __init__(self, threads: int = 2) -> None:
        self.pool = ThreadPoolExecutor(threads)
        self.count = threads
        self.asked: list[str] = []

    def submit(self, fn: Callable[..., object], /, *args: object, **kwargs: object) -> Future[object]:  # type: ignore[override]
        wanted = args[0]
        self.asked.append(wanted.recording.file if hasattr(wanted, "recording") else "capture")
        return self.pool.submit(fn, *args, **kwargs)

    def finish(self) -> None:
        """Wait for what one thread was given, and for what that handed out when it ended."""
        self.pool.submit(int).result(120)


def runs(root: Path, workers: int = 4) -> Path:
    for rank in range(workers):
        trace(root / "logs" / "job" / f"rank{rank}.1.pt.trace.json", distributedInfo={"rank": rank, "world_size": workers})
    return root / "logs"


@pytest.fixture
def executor() -> Iterator[Counting]:
    made = Counting()
    yield made
    made.pool.shutdown()


@pytest.fixture
def options(tmp_path: Path) -> StoreOptions:
    return StoreOptions(cache_dir=str(tmp_path / "cache"))


def ask(store: Store, reducer: object = Reducer(), wait: float = 120.0) -> list[RecordingReduction[Counted]]:
    return store.rank_reductions(store.recording("job"), reducer, decode, wait=wait)  # type: ignore[arg-type]


def test_reductions_come_in_natural_order_of_workers(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    # GIVEN eleven workers WHEN reductions are requested THEN each has its own, rank 2 before rank 10, with rank and world as recorded
    store = Store(single(str(runs(tmp_path, 11))), options, executor)
    found = ask(store)
    assert [p.worker for p in found] == [f"rank{r}" for r in range(11)] and [p.rank for p in found] == list(range(11))
    assert all(p.state == "read" and p.reduced.events == 3 and p.facts is not None and p.facts.world_size == 11 for p in found)
    assert sorted(executor.asked) == sorted(f"job/rank{r}.1.pt.trace.json" for r in range(11))


def test_the_second_request_reads_nothing(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    # GIVEN parts that were made WHEN they are asked for again, also by another server THEN no file is read, and nothing is opened
    logs = runs(tmp_path)
    ask(Store(single(str(logs)), options, executor))
    executor.asked.clear()
    other = Store(single(str(logs)), options, executor)
    assert all(p.reduced.events == 3 for p in ask(other, wait=0.0)) and not executor.asked
    assert len(other.loader._open) == 0


def test_reductions_stay_when_their_captures_leave_the_cache(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    # GIVEN a cache that lost its captures THEN the parts are there, and the captures are not read anew for them
    logs = runs(tmp_path)
    store = Store(single(str(logs)), options, executor)
    ask(store)
    for recording in store.recordings("job"):
        store.loader.cache.remove(cache_key(recording))
    executor.asked.clear()
    assert all(p.state == "read" for p in ask(Store(single(str(logs)), options, executor), wait=0.0)) and not executor.asked


def test_another_reducer_and_a_changed_file_are_reduced_anew(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    logs = runs(tmp_path, 2)
    store = Store(single(str(logs)), options, executor)
    ask(store)
    executor.asked.clear()
    assert [p.reduced.events for p in ask(store, Reducer(version=2))] == [3, 3] and len(executor.asked) == 2
    # GIVEN one file that changed THEN that one alone is read
    executor.asked.clear()
    trace(logs / "job" / "rank1.1.pt.trace.json", events=[], distributedInfo={"rank": 1, "world_size": 2})
    store.rescan()
    assert [p.reduced.events for p in ask(store)] == [3, 0] and executor.asked == ["job/rank1.1.pt.trace.json"]


def test_what_is_there_comes_at_once(tmp_path: Path, options: StoreOptions) -> None:
    # GIVEN one reader and three recordings WHEN one of them is reduced THEN it is there while the others wait; later all are there
    executor, gated = Counting(1), Gated()
    store = Store(single(str(runs(tmp_path, 3))), options, executor)

    def states() -> list[str]:
        return [p.state for p in ask(store, gated, wait=0.0)]

    assert states() == ["waiting"] * 3
    gated.gate.open(1)
    until(lambda: "read" in states())
    assert states() == ["read", "waiting", "waiting"]
    gated.gate.open()
    assert [p.state for p in ask(store, gated)] == ["read"] * 3 and len(executor.asked) == 3
    executor.pool.shutdown()


def test_many_ask_and_each_is_made_once(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    # GIVEN eight threads that ask while two recordings are being reduced THEN each recording is reduced once
    store, gated = Store(single(str(runs(tmp_path, 4))), options, executor), Gated()
    store.listing(5.0)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, store, gated) for _ in range(8)]
        until(lambda: len(executor.asked) == 2)
        gated.gate.open()
        assert all([p.state for p in answer.result()] == ["read"] * 4 for answer in answers) and len(executor.asked) == 4


def test_a_broken_file_hides_no_other_worker(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    # GIVEN a file that is no trace and an empty one THEN they fail with a reason, are not read again, and are after a rescan
    logs = runs(tmp_path, 3)
    (logs / "job" / "rank1.1.pt.trace.json").write_text("nonsense")
    (logs / "job" / "rank3.1.pt.trace.json").write_bytes(b"")
    store = Store(single(str(logs)), options, executor)
    found = ask(store)
    assert [p.state for p in found] == ["read", "failed", "read", "failed"] and [p.rank for p in found] == [0, 1, 2, 3]
    assert all(p.problem and p.hint and str(tmp_path) not in p.problem for p in found if p.state == "failed")
    executor.asked.clear()
    assert [p.state for p in ask(store, wait=0.0)] == ["read", "failed", "read", "failed"] and not executor.asked
    trace(logs / "job" / "rank1.1.pt.trace.json")
    store.rescan()
    assert [p.state for p in ask(store)] == ["read", "read", "read", "failed"]


def test_an_exception_in_a_reducer_fails_only_its_analysis(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    store = Store(single(str(runs(tmp_path, 2))), options, executor)
    found = ask(store, Broken())
    assert [p.state for p in found] == ["failed"] * 2 and "ZeroDivisionError" in found[0].problem and "joe" not in found[0].problem
    assert [p.state for p in ask(store)] == ["read"] * 2


def test_a_reduction_that_is_too_large_is_refused(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    store = Store(single(str(runs(tmp_path, 1))), options, executor)
    found = ask(store, Reducer(size=LARGEST))
    assert found[0].state == "failed" and "larger than 2 MiB" in found[0].problem


def test_reductions_in_memory_are_bounded(tmp_path: Path, options: StoreOptions, executor: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN 8 recordings with reductions of 1 MB WHEN memory for them is 4 MB THEN all are there, one at a time, and no more than 4 stay
    monkeypatch.setattr(reductions, "KEPT_BYTES", 4_000_000)
    store = Store(single(str(runs(tmp_path, 8))), options, executor)
    found = ask(store, Reducer(size=1_000_000))
    assert [len(p.reduced.filler) for p in found] == [1_000_000] * 8
    assert store.partial_results._kept.total_bytes <= 4_100_000 and not store.partial_results._only_here
    executor.asked.clear()
    assert all(p.state == "read" for p in ask(store, Reducer(size=1_000_000), wait=0.0)) and not executor.asked


def test_without_a_cache_reductions_stay_in_memory_up_to_a_limit(tmp_path: Path, executor: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN no cache and room for two parts of 1 MB THEN two are there and the third says what to do
    monkeypatch.setattr(reductions, "ONLY_HERE_BYTES", 2_500_000)
    store = Store(single(str(runs(tmp_path, 3))), StoreOptions(cache_dir=""), executor)
    found = ask(store, Reducer(size=1_000_000))
    assert sorted(p.state for p in found) == ["failed", "read", "read"]
    failed = next(p for p in found if p.state == "failed")
    assert "no room" in failed.problem and "--sol_cache_dir" in failed.hint
    executor.asked.clear()
    assert sorted(p.state for p in ask(store, Reducer(size=1_000_000), wait=0.0)) == ["failed", "read", "read"] and not executor.asked


def test_a_damaged_reduction_is_made_again(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    logs = runs(tmp_path, 2)
    ask(Store(single(str(logs)), options, executor))
    files = sorted((tmp_path / "cache" / "parts").rglob("*.part"))
    assert len(files) == 2
    files[0].write_bytes(files[0].read_bytes()[:-20])
    executor.asked.clear()
    assert all(p.reduced.events == 3 for p in ask(Store(single(str(logs)), options, executor))) and len(executor.asked) == 1


def test_a_reduction_removed_from_disk_is_made_again(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    # GIVEN parts on disk alone WHEN their files go THEN looking says so, the next question finds the others gone, and all are made again
    store = Store(single(str(runs(tmp_path, 2))), options, executor)
    found = ask(store)
    for path in (tmp_path / "cache" / "parts").rglob("*.part"):
        path.unlink()
    for part in found:
        store.partial_results._kept.drop(part.key)
    with pytest.raises(StillLoading):
        found[0].reduced  # noqa: B018
    assert [p.state for p in ask(store)] == ["read", "waiting"]
    assert [p.state for p in ask(store)] == ["read", "read"]


def test_the_reductions_used_longest_ago_are_evicted(tmp_path: Path) -> None:
    # GIVEN a limit of 2,000 bytes for parts and three of 1,000 THEN the one used longest ago goes, and what a broken writer left
    files = ReductionFiles(tmp_path, 20 * 2_000)
    body = msgspec.msgpack.encode(Reduced(ReducedFacts("kineto", None, None, "", "", (), 0, False, (0, 0)), bytes(900)))
    for i, name in enumerate(("aa-1", "ab-2", "ac-3")):
        assert files.save(name, body)
        os.utime(tmp_path / "parts" / name[:2] / f"{name}.part", (1000 + i, 1000 + i))
    left = tmp_path / "parts" / "aa" / ".new-x"
    left.write_bytes(b"x")
    os.utime(left, (0, 0))
    limit = 2 * (tmp_path / "parts" / "ab" / "ab-2.part").stat().st_size
    files.limit_bytes = limit
    assert files.evict() == 2 and files.load("aa-1") is None and files.load("ab-2") == body and not left.exists()
    assert ReductionFiles(None).load("x") is None and not ReductionFiles(None).save("x", b"") and ReductionFiles(None).evict() == 0


def test_stopping_a_run_reads_no_further_recording(tmp_path: Path, options: StoreOptions) -> None:
    # GIVEN one reader that is at the first of five WHEN the run is stopped THEN no more than that one is made
    executor, gated = Counting(1), Gated()
    store = Store(single(str(runs(tmp_path, 5))), options, executor)
    ask(store, gated, wait=0.0)
    assert store.cancel(store.recording("job")) and not store.cancel(store.recording("job"))
    gated.gate.open()
    executor.finish()
    assert len(executor.asked) == 1
    executor.pool.shutdown()


def test_reading_stops_when_nobody_asked_for_the_lease(tmp_path: Path, options: StoreOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a reader who asked once, and left WHEN the lease is over THEN reading stops; it goes on with the next question
    executor, gated = Counting(1), Gated()
    store = Store(single(str(runs(tmp_path, 4))), options, executor)
    ask(store, gated, wait=0.0)
    with monkeypatch.context() as over:
        over.setattr(reductions, "LEASE_SECONDS", -1.0)
        gated.gate.open()
        executor.finish()
    assert len(executor.asked) == 1
    assert all(p.state == "read" for p in ask(store, gated)) and len(executor.asked) == 4
    executor.pool.shutdown()


def test_an_opened_capture_comes_before_reductions_still_to_be_made(tmp_path: Path, options: StoreOptions) -> None:
    # GIVEN ten recordings to be reduced by one reader WHEN somebody opens the last one THEN it is next, not the eleventh
    executor, gated = Counting(1), Gated()
    store = Store(single(str(runs(tmp_path, 10))), options, executor)
    ask(store, gated, wait=0.0)
    with ThreadPoolExecutor(1) as pool:
        opened = pool.submit(store.capture, store.recording("job", "rank9"), 120.0)
        until(lambda: "capture" in executor.asked)
        gated.gate.open()
        assert opened.result().facts.total_events == 3
    assert executor.asked.index("capture") == 1
    store.cancel(store.recording("job"))
    executor.pool.shutdown()


def test_a_recording_opened_before_is_reduced_first(tmp_path: Path, options: StoreOptions) -> None:
    # GIVEN the last of five workers on screen WHEN all are asked for THEN its part is made first, the others in their order
    executor = Counting(1)
    store = Store(single(str(runs(tmp_path, 5))), options, executor)
    store.capture(store.recording("job", "rank3"), wait=120.0)
    executor.asked.clear()
    ask(store)
    assert [name[len("job/") :].partition(".")[0] for name in executor.asked] == ["rank3", "rank0", "rank1", "rank2", "rank4"]
    executor.pool.shutdown()


@dataclass(frozen=True)
class Noting(Reducer):
    """Notes the captures that it reduces."""

    seen: list[Capture] = field(default_factory=list)

    def __call__(self, capture: Capture) -> Reduced:
        self.seen.append(capture)
        return super().__call__(capture)


def test_a_recording_whose_pages_were_shown_is_reduced_as_it_is_open(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    # GIVEN one of three workers on screen, analyzed, and one that is open only
    store = Store(single(str(runs(tmp_path, 3))), options, executor)
    shown, _ = (store.capture(store.recording("job", name), wait=120.0) for name in ("rank1", "rank2"))
    shown.memo["critical.graph",] = "made"
    executor.asked.clear()
    # WHEN all are compared THEN it is reduced where it is open, with what was derived of it; the others by what reads recordings
    reducer = Noting()
    found = ask(store, reducer)
    assert [p.state for p in found] == ["read"] * 3 and sum(one is shown for one in reducer.seen) == 1 and len(reducer.seen) == 3
    assert sorted(executor.asked) == ["job/rank0.1.pt.trace.json", "job/rank2.1.pt.trace.json"]


def test_a_recording_that_is_open_with_an_older_file_is_read_for_its_reduction(tmp_path: Path, options: StoreOptions) -> None:
    # GIVEN a capture on screen that was analyzed with a file attached that another one replaced
    executor = Counting(1)
    store = Store(single(str(runs(tmp_path, 1))), options, executor)
    shown = store.capture(store.recording("job"), wait=120.0)
    shown.memo["critical.graph",] = "made"
    executor.asked.clear()
    shown.attached_state = "older"
    # WHEN it is compared THEN it is opened as it is now
    reducer = Noting()
    assert [p.state for p in ask(store, reducer)] == ["read"] and reducer.seen[0] is not shown
    assert executor.asked == ["job/rank0.1.pt.trace.json"]
    executor.pool.shutdown()


def test_a_file_is_not_read_twice_at_the_same_time(tmp_path: Path, options: StoreOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a worker whose file is being read for its part WHEN its page is opened THEN that waits for the read, and uses its capture
    executor = Counting(2)
    reads: list[str] = []
    go = threading.Event()

    def slowly(task: processes.Task) -> processes.Read:
        reads.append(task.path)
        assert go.wait(120)
        return processes.read_capture(task)

    monkeypatch.setattr(load, "read_capture", slowly)
    store = Store(single(str(runs(tmp_path, 1))), options, executor)
    ask(store, wait=0.0)
    with pytest.raises(StillLoading):
        store.capture(store.recording("job"), wait=0.0)
    go.set()
    assert store.capture(store.recording("job"), wait=120.0).facts.total_events == 3
    assert len(reads) == 1 and executor.asked == ["job/rank0.1.pt.trace.json"]
    executor.pool.shutdown()


def test_reductions_are_made_in_other_processes(tmp_path: Path) -> None:
    # GIVEN no executor of ours THEN parts are made in other processes, and the server opens no capture
    store = Store(single(str(runs(tmp_path, 3))), StoreOptions(cache_dir=str(tmp_path / "cache"), workers=1))
    try:
        found = ask(store, wait=120.0)
        assert [p.state for p in found] == ["read"] * 3 and all(p.reduced.pid != os.getpid() for p in found)
        assert len(store.loader._open) == 0 and all(store.loader.state(r)[0] == "ready" for r in store.recordings("job"))
    finally:
        store.close()


def test_closing_ends_waiting(tmp_path: Path, options: StoreOptions) -> None:
    # GIVEN a store that was closed while the first of three was reduced WHEN asked again THEN nothing more is made, and the question ends
    executor, gated = Counting(1), Gated()
    store = Store(single(str(runs(tmp_path, 3))), options, executor)
    ask(store, gated, wait=0.0)
    store.close()
    gated.gate.open()
    assert [p.state for p in ask(store, gated, wait=0.1)][1:] == ["waiting"] * 2 and len(executor.asked) == 1
    executor.pool.shutdown()


# -- which recordings -------------------------------------------------------------------------------------------------


def recording(worker: str, span: str, kind: str = "kineto") -> Recording:
    return Recording("job", worker, span, f"/x/{worker}.{span}", f"job/{worker}.{span}", 1, 1.0, kind)


def test_the_kth_recording_of_a_worker_is_compared_with_the_kth() -> None:
    # GIVEN workers with three, two and one recordings of other names WHEN the second of one is shown THEN the second of each is meant
    every = [recording("r0", s) for s in ("5", "10", "20")] + [recording("r1", s) for s in ("6", "11")] + [recording("r10", "7")]
    chosen = recordings_like(every, every[1])
    assert [(w, r.span if r else None) for w, r in chosen] == [("r0", "10"), ("r1", "11"), ("r10", None)]
    assert [r.span if r else None for _, r in recordings_like(every, every[0])] == ["5", "6", "7"]


def test_a_sol_log_attached_to_a_trace_is_no_worker() -> None:
    # GIVEN traces of two ranks, the SOL capture of the first, and that of a rank without a trace
    every = [recording("rank0", "1"), recording("rank1", "1"), recording("node_rank0", "1700000000000000000", "sol_capture")]
    every.append(recording("node_rank2", "1700000000000000000", "sol_capture"))
    # THEN beside a trace: both traces and the lone SOL capture; beside a SOL capture: both SOL captures and the lone trace
    assert [w for w, _ in recordings_like(every, every[0])] == ["node_rank2", "rank0", "rank1"]
    assert [w for w, _ in recordings_like(every, every[2])] == ["node_rank0", "node_rank2", "rank1"]


def test_a_worker_with_fewer_recordings_fails_with_a_reason(tmp_path: Path, options: StoreOptions, executor: Counting) -> None:
    logs = runs(tmp_path, 2)
    trace(logs / "job" / "rank0.2.pt.trace.json")
    store = Store(single(str(logs)), options, executor)
    found = store.rank_reductions(store.recording("job", "rank0", "2"), Reducer(), decode, wait=120.0)
    assert [p.state for p in found] == ["read", "failed"] and "fewer recordings" in found[1].problem
    assert store.worker_count(store.recording("job")) == 2


def test_a_missing_file_raises_the_error_of_reading(tmp_path: Path, options: StoreOptions) -> None:
    # GIVEN a recording that is gone THEN making its part raises what reading raises
    gone = Recording("job", "r", "1", str(tmp_path / "no.json"), "job/no.json", 1, 1.0)
    wanted = reductions.wanted_reductions([gone], Reducer())[0]
    with pytest.raises(BadInput, match="not there any more"):
        reductions.make_reduction(wanted, options)


def test_a_growing_sol_log_is_not_read_at_every_request(
    tmp_path: Path, options: StoreOptions, executor: Counting, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN SOL captures whose recorder goes on writing WHEN they have grown THEN for a minute what was read stands, then it is read anew
    from tests.support.sol_builder import SolBuilder

    def write(iterations: int) -> None:
        for rank in range(2):
            b = SolBuilder(rank=rank, world_size=2)
            add = b.sig("aten::add", [[4]], [[4]], work="elementwise")
            for step in range(iterations):
                b.iteration(step, step * 1_000_000, 1_000_000, rows=[b.row(add)])
            (tmp_path / "logs" / "job").mkdir(parents=True, exist_ok=True)
            b.write(tmp_path / "logs" / "job" / b.name)

    write(2)
    store = Store(single(str(tmp_path / "logs")), options, executor)
    before = [p.reduced.events for p in ask(store)]
    write(4)
    store.rescan()
    executor.asked.clear()
    again = ask(store, wait=0.0)
    assert [p.state for p in again] == ["read", "read"] and [p.reduced.events for p in again] == before and not executor.asked
    monkeypatch.setattr(reductions, "SETTLE_SECONDS", 0.0)
    grown = ask(store)
    assert all(p.reduced.events > n for p, n in zip(grown, before, strict=True)) and len(executor.asked) == 2
