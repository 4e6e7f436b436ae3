"""Parts of all workers of a run, asked for together: those that are there at once, the others made one after the other.

Nothing is made that nobody waits for: a run is worked on while somebody asks, and a while longer. A capture that a reader opens
comes before parts that are still to be made, because only as many of these are handed out as there are processes.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Executor, Future
from functools import partial
from typing import Final, NamedTuple

from tb_sol_plugin.errors import BadInput, SolError, WorkerKilled
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store.join import SOL_CAPTURE
from tb_sol_plugin.store.load import SETTLE_SECONDS, State
from tb_sol_plugin.store.options import Memo, StoreOptions
from tb_sol_plugin.store.worker_parts import MadePart, PartFiles, Wanted, make_part

KEPT_BYTES: Final = 64_000_000
"""Parts that stand on disk are kept in memory up to this size, for the next question."""
ONLY_HERE_BYTES: Final = 128_000_000
"""Parts that could not be written are kept up to this size; beyond it a worker fails with a reason."""
LEASE_SECONDS: Final = 300.0
"""After the last question for a run its parts are made for so long."""
AT_ONCE: Final = 16
"""Jobs handed to an executor that does not say how many it runs."""
MOST_NAMES: Final = 200_000


class Answer(NamedTuple):
    """What there is of a wanted part. there: it can be fetched under `key`. error: it cannot be made. Neither: it is being made."""

    key: str
    there: bool
    error: SolError | None


class Gather:
    """Thread-safe; starts nothing before it is asked. executor: which one reads a recording. state: where its capture stands."""

    def __init__(
        self,
        options: StoreOptions,
        files: PartFiles,
        executor: Callable[[Recording], Executor],
        state: Callable[[Recording], tuple[State, SolError | None]],
    ) -> None:
        self._options = options
        self._files = files
        self._executor = executor
        self._state = state
        self._on_disk: set[str] = set()
        self._kept: Memo[bytes] = Memo(KEPT_BYTES, len)
        self._only_here: dict[str, tuple[str, bytes]] = {}
        self._errors: dict[str, SolError] = {}
        self._latest: dict[tuple[str, str], tuple[str, float]] = {}
        self._queue: OrderedDict[str, Wanted] = OrderedDict()
        self._running: dict[str, tuple[Wanted, Future[MadePart]]] = {}
        self._asked: dict[str, float] = {}
        self._news = threading.Condition(threading.RLock())
        self._closed = False

    # -- asking ------------------------------------------------------------------------------------------------

    def ask(self, wanted: Sequence[Wanted], wait: float = 0.0) -> list[Answer]:
        """What there is of each, in order; what is not there is made from now on. wait: seconds to wait for all of them."""
        until = time.monotonic() + wait
        with self._news:
            unknown = [w for w in wanted if not self._known(w.key) and w.key not in self._queue]
        on_disk = {w.key: body for w in unknown if (body := self._files.load(w.key)) is not None}
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
                self._asked |= dict.fromkeys((w.recording.run for w in wanted), time.monotonic())
                self._pump()
                left = until - time.monotonic()
                if left <= 0 or all(self._there(w.key) or w.key in self._errors or self._older(w) for w in wanted):
                    return [self._answer(w) for w in wanted]
                self._news.wait(min(left, 1.0))

    def body(self, key: str) -> bytes | None:
        """The encoded part under a key of an answer; None where it vanished from the disk since."""
        with self._news:
            only = self._only_here.get(key)
        found = only[1] if only is not None else self._kept.peek(key)
        if found is None:
            found = self._files.load(key)
            with self._news:
                if found is None:
                    self._on_disk.discard(key)
                else:
                    self._kept.put(key, found)
        return found

    def reading(self, recording: Recording) -> Future[MadePart] | None:
        """The job that reads a recording for its part, None if there is none: who wants its capture waits for that."""
        with self._news:
            return next((future for wanted, future in self._running.values() if wanted.recording == recording), None)

    def cancel(self, run: str) -> bool:
        """Make no more parts of a run; False if none were to be made."""
        with self._news:
            mine = [k for k, w in self._queue.items() if w.recording.run == run]
            for key in mine:
                del self._queue[key]
            running = [(k, w, f) for k, (w, f) in self._running.items() if w.recording.run == run]
            for key, _, _ in running:
                del self._running[key]
        for _, wanted, future in running:
            stop: Callable[[Future[MadePart]], bool] = getattr(self._executor(wanted.recording), "stop", Future.cancel)
            stop(future)
        return bool(mine or running)

    def forget_errors(self) -> None:
        """Let workers that failed be tried again."""
        with self._news:
            self._errors.clear()

    def close(self) -> None:
        """Start nothing any more."""
        with self._news:
            self._closed = True
            self._queue.clear()

    # -- inside; the caller holds the lock ---------------------------------------------------------------------

    def _there(self, key: str) -> bool:
        return key in self._on_disk or key in self._only_here

    def _known(self, key: str) -> bool:
        return self._there(key) or key in self._errors or key in self._running

    def _older(self, wanted: Wanted) -> str:
        """The key of the part of a SOL capture as it was a moment ago: it grows, and is not read anew at every look. "" none."""
        if wanted.recording.kind != SOL_CAPTURE:
            return ""
        key, made = self._latest.get((wanted.recording.path, wanted.reducer.key), ("", 0.0))
        return key if self._there(key) and time.monotonic() - made < SETTLE_SECONDS else ""

    def _answer(self, wanted: Wanted) -> Answer:
        if self._there(wanted.key) or wanted.key in self._errors:
            return Answer(wanted.key, self._there(wanted.key), self._errors.get(wanted.key))
        older = self._latest.get((wanted.recording.path, wanted.reducer.key), ("", 0.0))[0] if wanted.recording.kind == SOL_CAPTURE else ""
        return Answer(older or wanted.key, self._there(older), None)

    def _keep(self, wanted: Wanted, body: bytes) -> None:
        """A part that stands on disk."""
        if len(self._on_disk) > MOST_NAMES:
            self._on_disk.clear()
        self._on_disk.add(wanted.key)
        self._kept.put(wanted.key, body)

    def _keep_here(self, wanted: Wanted, body: bytes) -> None:
        """A part that could not be written: those of other runs give way, not those of its own."""
        self._only_here.pop(self._latest.get((wanted.recording.path, wanted.reducer.key), ("", 0.0))[0], None)
        if self._size_here() + len(body) > ONLY_HERE_BYTES:
            self._only_here = {k: v for k, v in self._only_here.items() if v[0] == wanted.recording.run}
        if self._size_here() + len(body) > ONLY_HERE_BYTES:
            hint = "let the server keep a cache (--sol_cache_dir), and see that its disk has room"
            raise BadInput("there is no room to keep what was read of this worker", hint=hint)
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
            if time.monotonic() - self._asked.get(wanted.recording.run, 0.0) > LEASE_SECONDS:
                del self._queue[key]
                continue
            executor = self._executor(wanted.recording)
            if len(self._running) >= _at_once(executor):
                return
            state, error = self._state(wanted.recording)
            if state in ("queued", "loading"):
                continue  # a reader opens it; a moment later its capture stands in the cache
            del self._queue[key]
            if error is not None:
                self._errors[key] = error
                continue
            try:
                future = executor.submit(make_part, wanted, self._options)
            except RuntimeError:  # the executor was shut down
                return
            self._running[key] = (wanted, future)
            future.add_done_callback(partial(self._finish, key, wanted))

    def _finish(self, key: str, wanted: Wanted, future: Future[MadePart]) -> None:
        """Take the outcome of a job over, in whichever thread it comes; takes the lock itself."""
        with self._news:
            if self._running.get(key, (None, None))[1] is not future:
                return  # canceled
            del self._running[key]
            file = wanted.recording.file
            try:
                made = future.result(timeout=0)
                (self._keep if made.kept else self._keep_here)(wanted, made.body)
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


def _at_once(executor: Executor) -> int:
    """How many jobs an executor runs side by side: more would stand before a capture that a reader opens."""
    found = getattr(executor, "count", getattr(executor, "_max_workers", AT_ONCE))
    return found if isinstance(found, int) else AT_ONCE
