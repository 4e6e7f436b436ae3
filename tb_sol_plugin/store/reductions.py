"""Reduces each recording of a run to what analyses over several recordings need of it, keeps that on disk, and gathers all of a run.

A reduction is made where the capture is opened. Its file stands next to the captures of the cache, not inside their entries: a
thousand captures may be larger than the cache, and their reductions must outlast them.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Struct

from tb_sol_plugin.devices.spec import EMPTY, DeviceBook
from tb_sol_plugin.errors import BadInput, SolError, StillLoading, WorkerKilled
from tb_sol_plugin.model.recordings import Recording, RecordingReduction, Reduced, Reducer, ResultsKept, natural
from tb_sol_plugin.store import files, seal
from tb_sol_plugin.store.cache import cache_key
from tb_sol_plugin.store.join import MEMORY_KINDS, SOL_CAPTURE, attached_state, attached_to, companions, shown_with_another
from tb_sol_plugin.store.kept import KeptFiles, code_state
from tb_sol_plugin.store.load import SETTLE_SECONDS, State, open_here
from tb_sol_plugin.store.names import rank_in
from tb_sol_plugin.store.options import Memo, StoreOptions, cache_directory
from tb_sol_plugin.store.run_index import FEWEST, IndexedRank, RunIndexes, index_name

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture

P = TypeVar("P", bound=msgspec.Struct)

LARGEST: Final = 2 << 20
"""Bytes of one encoded reduction at most."""
FOLDER: Final = "parts"
JOBS: Final = "jobs"


class WantedReduction(Struct, frozen=True):
    """A reduction to make of one recording. attached: recordings whose tables are joined to it before, or may be: all of its run.

    key: the name under which the reduction is kept; changes with the files, the reducer and the device files.
    """

    recording: Recording
    reducer: Reducer
    key: str
    devices: DeviceBook = EMPTY
    attached: tuple[Recording, ...] = ()


class MadeReduction(NamedTuple):
    """body: a `Reduced`, encoded. kept: whether it stands on disk."""

    body: bytes
    kept: bool


class ReductionFiles(KeptFiles):
    """Encoded reductions, each under the key that `WantedReduction` gives it."""

    def __init__(self, cache: Path | None, limit_bytes: int = 0) -> None:
        super().__init__(cache, FOLDER, limit_bytes, lambda body: _decoded(body) is not None)


class JobFiles:
    """What was made of all ranks of a run, in files by name, of the code that made it; as `ResultsKept` has it."""

    def __init__(self, cache: Path | None, limit_bytes: int = 0) -> None:
        self._files = KeptFiles(cache, JOBS, limit_bytes)

    def mapped(self, name: str) -> memoryview | None:
        """Returns what was kept, checked; None where nothing was, or other code made it."""
        found = self._files.mapped(_of_code(name))
        return found[len(_ALIGN) :] if found is not None else None

    def save(self, name: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Keeps pieces that follow one another; those used longest ago go where they are too large."""
        if self._files.save(_of_code(name), _ALIGN, *pieces):
            self._files.evict()


_ALIGN: Final = bytes(-seal.length() % 64)
"""Arrays lie at multiples of 64 in a mapped file."""


def _of_code(name: str) -> str:
    return hashlib.blake2b(f"{code_state()}-{name}".encode(), digest_size=16).hexdigest()


def make_reduction(wanted: WantedReduction, options: StoreOptions, capture: Capture | None = None) -> MadeReduction:
    """Returns the reduction of a recording, from disk or made now; then its capture is read into the cache, and let go.

    A plain function of plain data, as `read_capture` is, but where it is given a `capture` that is open in this process. Raises the errors
    of a read; BadInput where it is too large.
    """
    kept = ReductionFiles(cache_directory(options.cache_dir), options.cache_bytes)
    body = kept.load(wanted.key)
    if body is not None:
        return MadeReduction(body, True)
    recording = wanted.recording
    capture = open_here(recording, options, wanted.devices, wanted.attached) if capture is None else capture
    body = msgspec.msgpack.encode(wanted.reducer(capture))
    if len(body) > LARGEST:
        what = f"what is to be compared of this recording is larger than {LARGEST >> 20} MiB"
        raise BadInput(what, hint="choose fewer steps", file=recording.file)
    return MadeReduction(body, unchanged(recording, options) and kept.save(wanted.key, body))


def unchanged(recording: Recording, options: StoreOptions) -> bool:
    """Whether the file is still what the key says: it may have grown while it was read."""
    try:
        return files.stat_parts(recording.path, options.fs_options) == (recording.size, recording.mtime)
    except OSError:
        return False


# -- which recordings ------------------------------------------------------------------------------------------------


def recordings_like(recordings: Sequence[Recording], shown: Recording) -> list[tuple[str, Recording | None]]:
    """Pairs every worker of a run with its recording that corresponds to the one shown: the k-th where that is its worker's k-th.

    In natural order. Recordings are of the kind of the one shown where a worker has such. A SOL log that is shown with a trace is no
    worker of its own. None for a worker that has no k-th recording.
    """
    chosen = recordings_by_worker(recordings, shown.kind)
    place = [r.span for r in chosen[shown.worker]].index(shown.span)
    return [(worker, own[place] if place < len(own) else None) for worker, own in chosen.items()]


def rank_recordings(recordings: Sequence[Recording], shown: Recording) -> list[Recording]:
    """Returns what `recordings_like` does where every worker of several has such a recording and they are traces, else none."""
    if shown.kind != "kineto" or not any(r.worker != shown.worker for r in recordings):
        return []
    chosen = [recording for _, recording in recordings_like(recordings, shown)]
    found = [r for r in chosen if r is not None]
    return found if 1 < len(found) == len(chosen) else []


def recordings_by_worker(recordings: Sequence[Recording], kind: str) -> dict[str, list[Recording]]:
    """Groups the recordings of a run by worker, both in natural order: of that kind where a worker has such, else all of its own.

    A SOL log that is shown with a trace is no worker of its own, nor is memory that is shown with another recording.
    """
    pairs = companions(tuple(recordings))
    hidden = shown_with_another(recordings) | {pairs[r] for r in recordings if r.kind == kind and r in pairs}
    of_worker: dict[str, list[Recording]] = {}
    for recording in recordings:
        if recording.kind == kind or recording not in hidden:
            of_worker.setdefault(recording.worker, []).append(recording)
    out = {}
    for worker in sorted(of_worker, key=natural):
        own = [r for r in of_worker[worker] if r.kind == kind] or of_worker[worker]
        out[worker] = sorted(own, key=lambda r: natural(r.span))
    return out


def latest_recordings(runs: Mapping[str, Sequence[Recording]]) -> list[Recording]:
    """Returns the latest recording of every worker of every run, a trace where there is one, in natural order."""
    return [own[-1] for recordings in runs.values() for own in recordings_by_worker(recordings, "kineto").values()]


def first_recordings(recordings: Sequence[Recording], shown: str) -> list[Recording]:
    """Returns what tells whether runs are of one job: all recordings of the run that is shown (else of the first), of others the first."""
    chosen = shown if any(r.run == shown for r in recordings) else next((r.run for r in recordings), "")
    first: dict[str, Recording] = {}
    for recording in recordings:
        first.setdefault(recording.run, recording)
    return [r for r in recordings if r.run == chosen or first[r.run] == r]


def further_recordings(
    recordings: Sequence[Recording],
    found: Mapping[Recording, RecordingReduction[P]],
    shown: str,
    alike: Callable[[RecordingReduction[P], RecordingReduction[P]], bool],
) -> list[Recording]:
    """Returns the other recordings of runs that may be of one job with the run that is shown (else the first that was read).

    found: what was reduced from `first_recordings`. None while that of the run that is shown is awaited; those of a run whose first one
    cannot be read may tell more.
    """
    there = any(r.run == shown for r in recordings)
    own = next((made for recording, made in found.items() if made.state == "read" and (not there or recording.run == shown)), None)
    if own is None:
        return []
    near = {
        recording.run
        for recording, made in found.items()
        if made.state in ("failed", "lacking") or (made.state == "read" and alike(made, own))
    }
    return [r for r in recordings if r not in found and r.run in near]


def wanted_reductions(
    chosen: Sequence[Recording],
    reducer: Reducer,
    *,
    devices: DeviceBook = EMPTY,
    recordings: Sequence[Recording] = (),
) -> list[WantedReduction]:
    """Returns the reductions to make of some recordings. recordings: of the run, where reductions read what is attached to them."""
    every = tuple(r for r in recordings if r.kind in (SOL_CAPTURE, *MEMORY_KINDS))
    out = []
    for recording in chosen:
        named = tuple(attached_to(recording, recordings))
        # where no name tells which one it is, the header of the trace may, once it is read
        sure = recording.kind == SOL_CAPTURE or {r.kind for r in named if r not in recording.captures} == {r.kind for r in every}
        attached = named if sure else tuple(recordings)
        state = attached_state(named if sure else (*recording.captures, *every), cache_key)
        rest = "\0".join((reducer.key, devices.fingerprint, state))
        key = f"{cache_key(recording)}-{hashlib.blake2b(rest.encode(), digest_size=10).hexdigest()}"
        out.append(WantedReduction(recording, reducer, key, devices, attached))
    return out


# -- as analyses get them --------------------------------------------------------------------------------------------


def reduction_of(
    worker: str,
    recording: Recording,
    key: str,
    body: bytes,
    decode: Callable[[bytes], P],
    again: Callable[[], bytes | None] | None = None,
    place: ResultsKept | None = None,
) -> RecordingReduction[P]:
    """Returns a finished reduction as analyses get it.

    again: fetches the encoded reduction when it is read; None keeps it. place: where results of several are kept.
    """
    made = _decoded(body)
    if made is None:
        return no_reduction(worker, recording, BadInput("the cached result of this recording is damaged", hint="scan again"))
    facts, missing = made.facts, made.missing
    rank = rank_in(worker) if facts.rank is None else facts.rank

    def fetched() -> bytes:
        found = _decoded((again() if again is not None else body) or b"")
        if found is None:
            raise StillLoading("the cached result of a recording was removed", hint="ask again", file=recording.file)
        return found.body

    if missing is not None:
        why = (missing.because, missing.record_it_with, missing)
        return RecordingReduction(worker, recording.span, recording.file, "lacking", rank, facts, *why, key=key, run=recording.run)
    return RecordingReduction(
        worker, recording.span, recording.file, "read", rank, facts, key=key, run=recording.run, body=fetched, decode=decode,
        place=place,
    )  # fmt: skip


def no_reduction(worker: str, recording: Recording | None, error: SolError | None = None) -> RecordingReduction[P]:
    """Returns what analyses get of a recording that failed or is being read (no error), or of a worker without a recording."""
    rank = rank_in(worker)
    if recording is None:
        return RecordingReduction(worker, "", "", "failed", rank, problem="this worker has fewer recordings than the one shown")
    if error is None:
        return RecordingReduction(worker, recording.span, recording.file, "waiting", rank, run=recording.run)
    return RecordingReduction(
        worker, recording.span, recording.file, "failed", rank, problem=error.message, hint=error.hint, run=recording.run
    )


def _decoded(body: bytes) -> Reduced | None:
    try:
        return msgspec.msgpack.decode(body, type=Reduced)
    except (msgspec.MsgspecError, ValueError):
        return None


# -- reductions of all recordings of a run, requested together --------------------------------------------------------
# Nothing is made that nobody waits for: a run is worked on while somebody asks, and a while longer. A capture that a reader opens
# comes before reductions that are still to be made, because only as many of these are handed out as there are processes.


KEPT_BYTES: Final = 64_000_000
"""Reductions that are on disk are kept in memory up to this size, for the next question."""
ONLY_HERE_BYTES: Final = 128_000_000
"""Reductions that could not be written are kept up to this size; beyond it a recording fails with a reason."""
LEASE_SECONDS: Final = 90.0
"""After the last request for a run its reductions are made for so long: a page asks every second, hidden ones once a minute."""
LEAVING_SECONDS: Final = 5.0
"""When a page says that it leaves, what nobody asks for again within this time is not made: other pages that wait ask every second."""
AT_ONCE: Final = 16
"""Jobs handed to an executor that does not say how many it runs."""
MOST_NAMES: Final = 200_000


class ReductionStatus(NamedTuple):
    """Says whether a reduction can be fetched under `key` (there) or cannot be made (error). Neither: it is being made."""

    key: str
    there: bool
    error: SolError | None


class _Running(NamedTuple):
    """A reduction that is being made, and by which executor."""

    wanted: WantedReduction
    future: Future[MadeReduction]
    executor: Executor


class PartialResults:
    """Makes the reductions of a run in the background and hands out those that are there. Thread-safe; starts nothing by itself.

    executor: which one reads a recording. state: how far its capture is. analysed: returns a capture whose reduction takes little, because
    it is open here and was analyzed; it is made here then, in place of opening the recording in another process once more.
    """

    def __init__(
        self,
        options: StoreOptions,
        files: ReductionFiles,
        executor: Callable[[Recording], Executor],
        state: Callable[[Recording], tuple[State, SolError | None]],
        analysed: Callable[[Recording, DeviceBook, Sequence[Recording]], Capture | None],
    ) -> None:
        self._options = options
        self._files = files
        directory = files.directory
        self._indexes = RunIndexes(directory.parent if directory is not None else None, options.cache_bytes)
        self.jobs = JobFiles(directory.parent if directory is not None else None, options.cache_bytes)
        self._indexed: dict[str, str] = {}
        """Keys of reductions that stand in the index of their run, and its name."""
        self._executor = executor
        self._state = state
        self._analysed = analysed
        self._here = ThreadPoolExecutor(1, "tb-sol-reduce")
        self._on_disk: set[str] = set()
        self._kept: Memo[bytes] = Memo(KEPT_BYTES, len)
        self._only_here: dict[str, tuple[str, bytes]] = {}
        self._errors: dict[str, SolError] = {}
        self._latest: dict[tuple[str, str], tuple[str, float]] = {}
        self._queue: OrderedDict[str, WantedReduction] = OrderedDict()
        self._running: dict[str, _Running] = {}
        self._requested: dict[str, float] = {}
        self._news = threading.Condition(threading.RLock())
        self._closed = False

    # -- asking ------------------------------------------------------------------------------------------------

    def ask(self, wanted: Sequence[WantedReduction], wait: float = 0.0) -> list[ReductionStatus]:
        """Returns the status of each, in order; what is not there is made from now on. wait: seconds to wait for all of them."""
        until = time.monotonic() + wait
        with self._news:
            unknown = [w for w in wanted if not self._known(w.key) and w.key not in self._queue]
        on_disk = self._from_indexes(unknown)
        on_disk |= {w.key: body for w in unknown if w.key not in on_disk and (body := self._files.load(w.key)) is not None}
        absent = [w for w in unknown if w.key not in on_disk]
        absent.sort(key=lambda w: self._state(w.recording)[0] != "ready")  # what was opened before takes no time
        with self._news:
            for one in unknown:
                if one.key in on_disk:
                    self._keep(one, on_disk[one.key])
            for one in absent:
                if not self._known(one.key) and not self._older(one):
                    self._queue.setdefault(one.key, one)
            while True:
                self._requested |= dict.fromkeys((w.recording.run for w in wanted), time.monotonic())
                self._pump()
                left = until - time.monotonic()
                complete = all(self._there(w.key) or w.key in self._errors or self._older(w) for w in wanted)
                if left <= 0 or complete:
                    out = [self._answer(w) for w in wanted]
                    break
                self._news.wait(min(left, 1.0))
        if complete:
            self._index(wanted)
        return out

    def _from_indexes(self, wanted: Sequence[WantedReduction]) -> dict[str, bytes]:
        """Returns the encoded reductions that stand in indexes of runs, by their keys."""
        by_name: dict[str, list[str]] = {}
        for one in wanted:
            by_name.setdefault(_index_of(one), []).append(one.key)
        found: dict[str, bytes] = {}
        for name, keys in by_name.items():
            there = self._indexes.load(name, keys)
            found |= there
            with self._news:
                self._indexed |= dict.fromkeys(there, name)
        return found

    def _index(self, wanted: Sequence[WantedReduction]) -> None:
        """Writes ranks that have files of their own as one file, where they are many; their own files go. What grows keeps its own."""
        by_name: dict[str, list[WantedReduction]] = {}
        for one in wanted:
            if one.recording.kind != SOL_CAPTURE and one.key in self._on_disk:
                by_name.setdefault(_index_of(one), []).append(one)
        for name, own in by_name.items():
            if sum(one.key not in self._indexed for one in own) < FEWEST:
                continue
            bodies = [(one, self.body(one.key)) for one in own]
            ranks = [_indexed(w, body) for w, body in bodies if body is not None]
            there = self._indexes.add(name, ranks)
            with self._news:
                self._indexed |= dict.fromkeys(there, name)
            for rank in ranks:
                if rank.key in there:
                    self._files.remove(rank.key)
            self._indexes.evict()

    def made(self, wanted: Sequence[WantedReduction]) -> bool:
        """Whether all of them are there. Makes none."""
        with self._news:
            unknown = [w for w in wanted if not self._there(w.key)]
        for one in unknown:
            body = self._files.load(one.key)
            if body is None:
                return False
            with self._news:
                self._keep(one, body)
        return True

    def body(self, key: str) -> bytes | None:
        """Returns the encoded reduction under the key of a status; None where it was removed from the disk since."""
        with self._news:
            only = self._only_here.get(key)
        found = only[1] if only is not None else self._kept.peek(key)
        if found is None:
            name = self._indexed.get(key)
            found = self._indexes.load(name, [key]).get(key) if name is not None else self._files.load(key)
            with self._news:
                if found is None:
                    self._on_disk.discard(key)
                    self._indexed.pop(key, None)
                else:
                    self._kept.put(key, found)
        return found

    def reading(self, recording: Recording) -> Future[MadeReduction] | None:
        """Returns the job that reads a recording for its reduction, None if there is none: who wants its capture waits for that."""
        with self._news:
            return next((job.future for job in self._running.values() if job.wanted.recording.path == recording.path), None)

    def cancel(self, run: str) -> bool:
        """Make no more reductions of a run; False if none were to be made."""
        with self._news:
            queued = [k for k, w in self._queue.items() if w.recording.run == run]
            for key in queued:
                del self._queue[key]
            running = {k: job for k, job in self._running.items() if job.wanted.recording.run == run}
            for key in running:
                del self._running[key]
        for job in running.values():
            stop: Callable[[Future[MadeReduction]], bool] = getattr(job.executor, "stop", Future.cancel)
            stop(job.future)
        return bool(queued or running)

    def leave(self) -> None:
        """Somebody waits no more: what nobody asks for again in a moment need not be made. What is being read is read to its end."""
        with self._news:
            latest = time.monotonic() - LEASE_SECONDS + LEAVING_SECONDS
            self._requested = {run: min(at, latest) for run, at in self._requested.items()}

    def forget_errors(self) -> None:
        """Let recordings that failed be tried again."""
        with self._news:
            self._errors.clear()

    def close(self) -> None:
        """Start nothing any more."""
        with self._news:
            self._closed = True
            self._queue.clear()
        self._here.shutdown(wait=False, cancel_futures=True)

    # -- inside; the caller holds the lock ---------------------------------------------------------------------

    def _there(self, key: str) -> bool:
        return key in self._on_disk or key in self._only_here

    def _known(self, key: str) -> bool:
        return self._there(key) or key in self._errors or key in self._running

    def _older(self, wanted: WantedReduction) -> str:
        """Returns the key of the reduction of a SOL log as it was a moment ago: it grows, and is not read at every request. "" none."""
        if wanted.recording.kind != SOL_CAPTURE:
            return ""
        key, made = self._latest.get((wanted.recording.path, wanted.reducer.key), ("", 0.0))
        return key if self._there(key) and time.monotonic() - made < SETTLE_SECONDS else ""

    def _answer(self, wanted: WantedReduction) -> ReductionStatus:
        if self._there(wanted.key) or wanted.key in self._errors:
            return ReductionStatus(wanted.key, self._there(wanted.key), self._errors.get(wanted.key))
        older = self._latest.get((wanted.recording.path, wanted.reducer.key), ("", 0.0))[0] if wanted.recording.kind == SOL_CAPTURE else ""
        return ReductionStatus(older or wanted.key, self._there(older), None)

    def _keep(self, wanted: WantedReduction, body: bytes) -> None:
        """Remember a reduction that is on disk."""
        if len(self._on_disk) > MOST_NAMES:
            self._on_disk.clear()
            self._indexed.clear()
        self._on_disk.add(wanted.key)
        self._kept.put(wanted.key, body)

    def _keep_here(self, wanted: WantedReduction, body: bytes) -> None:
        """Keep a reduction that could not be written: those of other runs give way, not those of its own."""
        self._only_here.pop(self._latest.get((wanted.recording.path, wanted.reducer.key), ("", 0.0))[0], None)
        if self._size_here() + len(body) > ONLY_HERE_BYTES:
            self._only_here = {k: v for k, v in self._only_here.items() if v[0] == wanted.recording.run}
        if self._size_here() + len(body) > ONLY_HERE_BYTES:
            hint = "let the server keep a cache (--sol_cache_dir), and see that its disk has room"
            raise BadInput("there is no room to keep the result of this recording", hint=hint)
        self._only_here[wanted.key] = (wanted.recording.run, body)

    def _size_here(self) -> int:
        return sum(len(body) for _, body in self._only_here.values())

    def _pump(self) -> None:
        """Hand out as many jobs as are run at a time."""
        for key, wanted in list(self._queue.items()):
            if self._closed:
                return
            if key not in self._queue:
                continue  # a job that ended at once has handed it out
            if time.monotonic() - self._requested.get(wanted.recording.run, 0.0) > LEASE_SECONDS:
                del self._queue[key]
                continue
            analysed = self._analysed(wanted.recording, wanted.devices, wanted.attached)
            executor = self._executor(wanted.recording) if analysed is None else self._here
            if analysed is None and sum(job.executor is executor for job in self._running.values()) >= _at_once(executor):
                return
            state, error = self._state(wanted.recording)
            if state in ("queued", "loading"):
                continue  # a reader opens it; a moment later its capture stands in the cache
            del self._queue[key]
            if error is not None:
                self._errors[key] = error
                continue
            try:
                future = executor.submit(make_reduction, wanted, self._options, *(() if analysed is None else (analysed,)))
            except RuntimeError:  # the executor was shut down
                return
            self._running[key] = _Running(wanted, future, executor)
            future.add_done_callback(partial(self._finish, key, wanted))

    def _finish(self, key: str, wanted: WantedReduction, future: Future[MadeReduction]) -> None:
        """Take the outcome of a job over, in whichever thread it comes; takes the lock itself."""
        with self._news:
            job = self._running.get(key)
            if job is None or job.future is not future:
                return  # canceled
            del self._running[key]
            file = wanted.recording.file
            try:
                made = future.result(timeout=0)
                kept = made.kept and (self._files.there(key) or self._files.save(key, made.body))  # another machine has its own disk
                (self._keep if kept else self._keep_here)(wanted, made.body)
                self._latest[wanted.recording.path, wanted.reducer.key] = (key, time.monotonic())
            except CancelledError:
                pass
            except SolError as error:
                error.file = file
                self._errors[key] = error
            except Exception as error:
                self._errors[key] = WorkerKilled(f"reading failed: {type(error).__name__}", hint="scan again to retry", file=file)
            if not self._queue and not self._running:
                self._files.evict()
            self._pump()
            self._news.notify_all()


def _indexed(wanted: WantedReduction, body: bytes) -> IndexedRank:
    """Returns a reduction as an index keeps it. body: encoded."""
    of = wanted.recording
    return IndexedRank(of.worker, of.span, of.path[of.path.rfind("/") + 1 :], wanted.key, body)


def _index_of(wanted: WantedReduction) -> str:
    """Returns the name of the index that a reduction stands in."""
    path = wanted.recording.path
    return index_name(path[: path.rfind("/") + 1], f"{wanted.reducer.key}-{wanted.devices.fingerprint}")


def _at_once(executor: Executor) -> int:
    """Returns how many jobs an executor runs side by side: more would stand before a capture that a reader opens."""
    found = getattr(executor, "count", getattr(executor, "_max_workers", AT_ONCE))
    return found if isinstance(found, int) else AT_ONCE
