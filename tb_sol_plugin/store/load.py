"""Opens captures: from memory, from the cache, or by a worker process that reads the file; one read however many ask."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import msgspec

from tb_sol_plugin.devices.spec import EMPTY, DeviceBook
from tb_sol_plugin.errors import BadInput, SolError, StillLoading, WorkerKilled
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store.cache import Cache, cache_key
from tb_sol_plugin.store.graphs import JoinedFiles
from tb_sol_plugin.store.join import SOL_CAPTURE, attached_state, attached_to, with_attached
from tb_sol_plugin.store.names import IN_PROCESS
from tb_sol_plugin.store.options import Memo, StoreOptions, cache_directory
from tb_sol_plugin.store.processes import Canceled, Read, Task, Workers, read_capture
from tb_sol_plugin.tables.table import StoredTables

State: TypeAlias = Literal["new", "queued", "loading", "ready", "error"]


SETTLE_SECONDS = 60.0
"""A trace keeps what its growing SOL capture held for so long, and with it what was derived from both."""


SMALL: Final = 100_000
"""Events of a recording that is used as it was read, some 20 MB: mapping what was written takes longer than it saves."""


class Progress(msgspec.Struct, frozen=True):
    """How far a read is. bytes of total are of the stored file; queue_position 0 is being read, 1 is next."""

    bytes: int
    total: int
    events: int
    stage: str
    elapsed_s: float
    queue_position: int


@dataclass
class _Job:
    recording: Recording
    future: Future[Read]
    progress: str
    begun: float


class Loader:
    """Captures by recording. Thread-safe; starts nothing before the first request.

    executor: anything with the `concurrent.futures.Executor` interface (a Dask cluster's `Client.get_executor()` too);
    None for our own worker processes. Files of a file system that lives in this process (`memory://`) are read in a thread.
    """

    def __init__(self, options: StoreOptions, executor: Executor | None = None) -> None:
        self.options = options
        self.cache = Cache(cache_directory(options.cache_dir), options.cache_bytes)
        self._executor = executor
        self._own: list[Executor] = []
        # what is derived refers to its capture: a collection, of few ms, frees it; Python would begin one after millions of objects
        self._open: Memo[Capture] = Memo(options.open_bytes, open_bytes, gc.collect)
        self._jobs: dict[str, _Job] = {}
        self._errors: dict[str, SolError] = {}
        self._behind: dict[str, Recording] = {}
        self._settled: dict[str, tuple[float, frozenset[str]]] = {}
        self._latest: dict[str, str] = {}
        self._lock = threading.RLock()
        self._spool = ""
        self._closed = False

    # -- asking ------------------------------------------------------------------------------------------------

    def capture(
        self, recording: Recording, wait: float = 0.0, devices: DeviceBook = EMPTY, recordings: Sequence[Recording] = ()
    ) -> Capture:
        """Returns the capture of a recording. StillLoading after `wait` seconds; BadInput or WorkerKilled if it cannot be read.

        devices: the rows of device files that hold for it now. recordings: of its run; a trace gets the tables of its SOL
        capture, and either those of the snapshot and the timeline of its worker.
        """
        key, found = self._newest(recording, wait)
        if found.devices.fingerprint != devices.fingerprint:
            found = found.with_devices(devices)
            self._open.put(key, found)
        return self._joined(key, recording, found, recordings, wait) if recordings or recording.captures else found

    def _newest(self, recording: Recording, wait: float) -> tuple[str, Capture]:
        """Returns (key, capture); a SOL capture that grows is shown as it was a moment ago where it is not read anew in time."""
        key = cache_key(recording)
        try:
            return key, self._capture(recording, wait)
        except StillLoading:
            older = self._latest.get(recording.path, "") if recording.kind == SOL_CAPTURE else ""
            found = self._open.peek(older)
            if found is None:
                raise
            return older, found

    def _joined(self, key: str, recording: Recording, found: Capture, recordings: Sequence[Recording], wait: float) -> Capture:
        attached = attached_to(recording, recordings, found.facts.rank)
        joined = JoinedFiles.of(self.cache, key, attached, cache_key)
        changed = [r for r in attached if self._changed_below(cache_key(r))]
        if changed or (joined is not None and self.cache.changed(joined.key)):
            self._open.drop(key)
            key, found = self._newest(recording, wait)
        state = attached_state(attached, self._stamp)
        rest = frozenset(self._stamp(r) for r in attached if r.kind != SOL_CAPTURE)
        until, of_others = self._settled.get(key, (0.0, frozenset()))
        grew = bool(found.attached_state) and rest == of_others  # what changed is a SOL capture, or nothing
        if found.attached_state == state or (grew and time.monotonic() < until):
            return found
        try:
            state = attached_state(attached, self._stamp)
            found = with_attached(found, attached, lambda other: self._capture(other, wait), state, self.options.fs_options, joined)
        except StillLoading:
            if found.attached_state:
                return found  # with what the SOL capture held a moment ago
            with self._lock:
                self._behind[cache_key(recording)] = next((r for r in attached if cache_key(r) in self._jobs), recording)
            raise
        self._behind.pop(cache_key(recording), None)
        found.attached_state = attached_state(attached, self._stamp)
        self._settled[key] = (time.monotonic() + SETTLE_SECONDS, rest)
        self._open.put(key, found)
        return found

    def entry_of(self, recording: Recording, found: Capture, recordings: Sequence[Recording]) -> str:
        """Returns the entry of the cache that holds the tables of a capture: with the names of what its graphs replay one of its own."""
        key = cache_key(recording)
        attached = attached_to(recording, recordings, found.facts.rank) if found.unjoined is not None else ()
        joined = JoinedFiles.of(self.cache, key, attached, cache_key)
        return joined.key if joined is not None else key

    def _stamp(self, recording: Recording) -> str:
        """Returns a text that changes with the file, and where it could not be read with every new try."""
        key = cache_key(recording)
        return f"{key}!" if key in self._errors else key

    def _capture(self, recording: Recording, wait: float) -> Capture:
        key = cache_key(recording)
        found = self._ready(key, recording)
        if found is not None:
            return found
        with self._lock:
            error = self._errors.get(key)
            if error is not None:
                raise error.copy()
            job = self._jobs.get(key) or self._submit(key, recording)
        try:
            job.future.result(timeout=wait)
        except FutureTimeout:
            if not job.future.done():
                raise StillLoading("this recording is being read", hint="ask again in a moment", file=recording.file) from None
        except (CancelledError, Exception):
            pass  # `_finish` keeps it as an error, which is raised below
        self._finish(key, job)
        with self._lock:
            error = self._errors.get(key)
        if error is not None:
            raise error.copy()
        found = self._ready(key, recording)
        if found is None:
            raise StillLoading("reading was canceled", hint="ask again to start it anew", file=recording.file)
        return found

    def state(self, recording: Recording) -> tuple[State, SolError | None]:
        """Returns where a recording stands, without starting anything."""
        key = cache_key(recording)
        if key in self._open:
            return "ready", None
        with self._lock:
            error, job = self._errors.get(key), self._jobs.get(key)
        if error is not None:
            return "error", error
        if job is not None:
            return ("loading" if job.future.running() else "queued"), None
        return ("ready" if self.cache.has(key) else "new"), None

    def progress(self, recording: Recording) -> Progress | None:
        """Returns how far the read of a recording is; None if none is under way."""
        key = cache_key(recording)
        with self._lock:
            behind = self._behind.get(key)
            job = self._jobs.get(key) or (self._jobs.get(cache_key(behind)) if behind is not None else None)
            if job is None:
                return None
            running = job.future.running()
            waiting = [j for j in self._jobs.values() if not j.future.running() and not j.future.done()]
            next_up = running or not any(j.future.running() for j in self._jobs.values())
            position = 0 if running or job not in waiting else waiting.index(job) + 1
        state: dict[str, object] = {}
        with contextlib.suppress(OSError, ValueError), open(job.progress, encoding="ascii") as stream:
            state = json.loads(stream.read() or "{}")
        elapsed = time.monotonic() - job.begun
        waiting_for = "compiling, once per machine" if elapsed > 2 and not state else "starting"
        return Progress(
            bytes=_number(state.get("bytes")), total=_number(state.get("total")) or recording.size, events=_number(state.get("events")),
            stage=str(state.get("stage", waiting_for if next_up else "queued")), elapsed_s=round(elapsed, 3),
            queue_position=position,
        )  # fmt: skip

    def cancel(self, recording: Recording) -> bool:
        """Stop reading a recording; False if it was not being read."""
        with self._lock:
            job = self._jobs.pop(cache_key(recording), None)
        if job is None:
            return False
        with contextlib.suppress(OSError):
            os.remove(job.progress)
        stop: Callable[[Future[Read]], bool] = getattr(self.executor_for(recording), "stop", Future.cancel)
        stop(job.future)
        return True

    def forget_errors(self) -> None:
        """Let files that failed be tried again, and traces take what their SOL captures hold by now."""
        with self._lock:
            self._errors.clear()
            self._settled.clear()

    def warm(self) -> None:
        """Start a worker process ahead of the first file."""
        with self._lock:
            workers = self._workers()
        if isinstance(workers, Workers):
            workers.warm()

    def close(self) -> None:
        """End what we started and remove what we spooled."""
        self._closed = True
        for executor in self._own:
            executor.shutdown(wait=False, cancel_futures=True)
        if self._spool:
            shutil.rmtree(self._spool, ignore_errors=True)

    def analysed(self, recording: Recording, devices: DeviceBook, recordings: Sequence[Recording]) -> Capture | None:
        """Returns the capture of a recording if it is open and most that analyses derive has been: with these device files, and with what
        is attached to it of `recordings`. Opens none.
        """
        key = cache_key(recording)
        found = self._open.peek(key)
        if found is None or not is_analysed(found) or found.devices.fingerprint != devices.fingerprint or self._changed_below(key):
            return None
        attached = attached_to(recording, recordings, found.facts.rank)
        return found if found.attached_state == attached_state(attached, cache_key) else None

    # -- inside ------------------------------------------------------------------------------------------------

    def _ready(self, key: str, recording: Recording) -> Capture | None:
        found = self._open.peek(key)
        if found is not None and self._changed_below(key):
            found = None
        if found is not None or not self.cache.has(key):
            return found
        try:
            return self._open.get(key, lambda: named(self._cached(key), recording))
        except LookupError:
            return None

    def _changed_below(self, key: str) -> bool:
        """Whether files of an entry were changed below its tables; then the capture is let go."""
        if not self.cache.changed(key):
            return False
        self._open.drop(key)
        return True

    def _cached(self, key: str) -> Capture:
        found = self.cache.load(key)
        if found is None:
            raise LookupError(key)
        return found

    def _submit(self, key: str, recording: Recording) -> _Job:
        if self._closed:
            raise StillLoading("the server is shutting down", file=recording.file)
        if not self._spool:
            self._spool = tempfile.mkdtemp(prefix="tb-sol-")
            weakref.finalize(self, shutil.rmtree, self._spool, ignore_errors=True)  # also where nobody calls close()
        progress = os.path.join(self._spool, f"{key}-{time.monotonic_ns()}.json")
        with open(progress, "w", encoding="ascii"):
            pass
        task = Task(
            recording.path,
            recording.size,
            recording.mtime,
            self.cache.directory,
            self.cache.limit_bytes,
            progress,
            dict(self.options.fs_options),
        )
        future = self.executor_for(recording).submit(read_capture, task)
        job = _Job(recording, future, progress, time.monotonic())
        self._jobs[key] = job
        future.add_done_callback(lambda _: self._finish(key, job))
        return job

    def _finish(self, key: str, job: _Job) -> None:
        """Take the outcome of a job over, once, from whichever thread comes first."""
        with self._lock:
            if self._jobs.get(key) is not job:
                return
            recording = job.recording
            with contextlib.suppress(OSError):
                os.remove(job.progress)
            try:
                read = job.future.result(timeout=0)
                if read.note:
                    self.cache.note = read.note
                capture = read.capture if read.capture is not None else self.cache.load(read.key)
                if capture is None:
                    raise BadInput("the cache entry of this recording was removed", hint="scan again to read the file once more")
                self._open.put(key, named(capture, recording))
                self._latest[recording.path] = key
            except (CancelledError, Canceled):
                pass
            except SolError as error:
                error.file = recording.file
                self._errors[key] = error
            except Exception as error:
                failed = WorkerKilled(f"reading failed: {type(error).__name__}", hint="scan again to retry", file=recording.file)
                self._errors[key] = failed
            finally:
                del self._jobs[key]

    def executor_for(self, recording: Recording) -> Executor:
        """Returns what reads a recording: our processes, or a thread where its file system lives in this process."""
        if recording.path.startswith(IN_PROCESS):
            return self._thread()
        return self._workers()

    def _workers(self) -> Executor:
        with self._lock:
            if self._executor is None:
                limits = self.options
                self._executor = Workers(
                    limits.workers, memory_bytes=limits.worker_bytes or default_worker_bytes(), seconds=limits.load_seconds
                )
                self._own.append(self._executor)
            return self._executor

    def _thread(self) -> Executor:
        with self._lock:
            for executor in self._own:
                if isinstance(executor, ThreadPoolExecutor):
                    return executor
            pool = ThreadPoolExecutor(1, "tb-sol-read")
            self._own.append(pool)
            return pool


def open_here(recording: Recording, options: StoreOptions, devices: DeviceBook = EMPTY, recordings: Sequence[Recording] = ()) -> Capture:
    """Returns the capture of a recording, read in this process if it is not in the cache. For the notebook and the command line.

    recordings: of its run; see `Loader.capture`.
    """
    found = _open_here(recording, options, devices)
    attached = attached_to(recording, recordings, found.facts.rank)
    if not attached:
        return found
    cache = Cache(cache_directory(options.cache_dir), options.cache_bytes)
    joined = JoinedFiles.of(cache, cache_key(recording), attached, cache_key)
    state = attached_state(attached, cache_key)
    return with_attached(found, attached, lambda other: _open_here(other, options, devices), state, options.fs_options, joined)


def _open_here(recording: Recording, options: StoreOptions, devices: DeviceBook) -> Capture:
    cache = Cache(cache_directory(options.cache_dir), options.cache_bytes)
    found = cache.load(cache_key(recording))
    if found is None:
        try:
            where = (cache.directory, cache.limit_bytes, "", dict(options.fs_options), SMALL)
            task = Task(recording.path, recording.size, recording.mtime, *where)
            read = read_capture(task)
        except SolError as error:
            error.file = error.file or recording.file
            raise
        found = read.capture if read.capture is not None else cache.load(read.key)
    if found is None:
        raise BadInput("the cache entry of this recording was removed", hint="try again, or open it with cache=False", file=recording.file)
    return named(found, recording, devices)


def named(capture: Capture, recording: Recording, devices: DeviceBook = EMPTY) -> Capture:
    """Returns the capture under the names the listing gave it; `facts.file` is relative to the logdir."""
    facts = msgspec.structs.replace(capture.facts, file=recording.file, size=recording.size)
    return Capture(facts, capture.tables, run=recording.run, worker=recording.worker, span=recording.span, devices=devices)


DERIVED_BYTES: Final = 600
"""What all analyses together derive of an event and keep with the capture: 0.7 GB of 1.2 million, measured."""
LITTLE_BYTES: Final = 100
"""What is kept of an event without the graph of dependencies, on which most of the above rests."""


def is_analysed(capture: Capture) -> bool:
    """Whether an open capture has, or had, its graph of dependencies, on which most rests that analyses derive."""
    return ("critical.graph",) in capture.memo or "critical.graph" in capture.memo.dropped


def open_bytes(capture: Capture) -> int:
    """Returns bytes that an open capture takes at most: its tables, and what analyses have derived of their events."""
    each = DERIVED_BYTES if is_analysed(capture) else LITTLE_BYTES if capture.memo else 0
    derived = each * (capture.rows("host") + capture.rows("device"))
    return table_bytes(capture) + min(derived, capture.memo.limit or derived)


def table_bytes(capture: Capture) -> int:
    """Returns bytes of all tables: of those on disk as they lie there, of others without the words of the dictionaries."""
    if isinstance(capture.tables, StoredTables):
        return capture.tables.size
    return sum(int(table[name].nbytes) for table in capture.tables.values() if len(table) for name in table)


def default_worker_bytes() -> int:
    """Returns four tenths of the memory this process may use (its control group's limit, else the machine's); 0 if unknown."""
    sizes = []
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sizes.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    with contextlib.suppress(OSError, ValueError), open("/sys/fs/cgroup/memory.max", encoding="ascii") as stream:
        sizes.append(int(stream.read()))
    return int(min(sizes) * 0.4) if sizes else 0


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) else 0
