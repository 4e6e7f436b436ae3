"""Runs processes that read files, as a `concurrent.futures.Executor`: bounded, watched, ended one by one or with the server.

Why not `ProcessPoolExecutor`: it cannot end one job, one dead process breaks all jobs, and it imports the program that
started it (TensorBoard, a notebook) again in each child. Here a child is a fresh interpreter that runs `store.processes`
and talks over its standard streams; a job that is stopped, too large or too slow costs its own process only.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import pickle
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, ParamSpec, TypeVar

from msgspec import Struct
from msgspec import field as struct_field

from tb_sol_plugin.errors import WorkerKilled
from tb_sol_plugin.process import claim, give_back, import_libraries, keep_loaded, make_room
from tb_sol_plugin.units import human

if TYPE_CHECKING:
    from tb_sol_plugin.ingest.source import Progress
    from tb_sol_plugin.model.capture import Capture


P = ParamSpec("P")
R = TypeVar("R")

TRY_AGAIN_SECONDS = (0.2, 1.0)
"""Waited before a job is tried again whose process died or could not be started: the system may be short of memory for a moment."""
MOST_DEATHS = 2
"""Processes that one job may cost."""
IDLE_SECONDS = 300.0
"""A process without work ends after this."""
WATCH_SECONDS = 0.2
SPARE_BYTES = 100_000_000
"""Memory that a process without work keeps for the next job; what it has beyond that goes back to the system, which takes some 30 ms."""

log = logging.getLogger("tb_sol_plugin")


@dataclass
class _Job:
    future: Future[object]
    payload: bytes
    stopped: str = ""
    begun: float = 0.0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)


class Workers(Executor):
    """At most `count` processes. Nothing starts before the first `submit` or `warm`.

    memory_bytes, seconds: limits of one job (0: none). A job beyond them, or whose process dies twice, fails with WorkerKilled.
    Resident memory is read from /proc; where that does not exist only the time limit holds.
    """

    def __init__(self, count: int, *, memory_bytes: int = 0, seconds: float = 0.0) -> None:
        self.count = max(1, count)
        self.memory_bytes = memory_bytes
        self.seconds = seconds
        self._jobs: queue.Queue[_Job | None] = queue.Queue()
        self._threads: list[threading.Thread] = []
        self._active: dict[Future[object], _Job] = {}
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False

    # -- Executor --------------------------------------------------------------------------------------------

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Run `fn` in a process; it, its arguments and its result are pickled."""
        future: Future[R] = Future()
        job = _Job(future, pickle.dumps((fn, args, kwargs)))  # type: ignore[arg-type]
        self._start()
        with self._lock:
            self._active[job.future] = job
        self._jobs.put(job)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End all processes. Running jobs fail with WorkerKilled."""
        self._closed = True
        with self._lock:
            jobs, processes = list(self._active.values()), list(self._processes)
        for job in jobs:
            job.stopped = job.stopped or "the server was ended"
            job.future.cancel()
        for _ in self._threads:
            self._jobs.put(None)
        for process in processes:
            _end(process)
        if wait:
            for thread in self._threads:
                thread.join(5)

    # -- beyond Executor -------------------------------------------------------------------------------------

    def stop(self, future: Future[R], reason: str = "cancelled") -> bool:
        """Take a job back: out of the queue, or by ending its process. False if it is over already."""
        with self._lock:
            job = self._active.get(future)  # type: ignore[arg-type]
        if job is None or future.done():
            return False
        job.stopped = reason
        if future.cancel():
            return True
        if job.process is not None:
            _end(job.process)
        return True

    def warm(self) -> None:
        """Start a process ahead of the first job, so that imports and compiled code are there."""
        with self._lock:
            if not self._threads and not self._closed:
                self._thread(ahead=True)

    # -- inside ----------------------------------------------------------------------------------------------

    def _start(self) -> None:
        with self._lock:
            if self._closed:
                raise RuntimeError("the workers were shut down")
            busy = len(self._active)
            if len(self._threads) < min(self.count, busy + 1):
                self._thread()

    def _thread(self, ahead: bool = False) -> None:
        thread = threading.Thread(target=self._serve, args=(ahead,), name=f"tb-sol-worker-{len(self._threads)}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self, ahead: bool) -> None:
        process: subprocess.Popen[bytes] | None = None
        if ahead:
            with contextlib.suppress(OSError):  # tried again, and told, with the first job
                process = self._spawn()
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                self._retire(process)
                process = None
                continue
            if job is None:
                break
            if job.future.set_running_or_notify_cancel():
                process = self._answered(job, process)
            with self._lock:
                self._active.pop(job.future, None)
        self._retire(process)

    def _answered(self, job: _Job, process: subprocess.Popen[bytes] | None) -> subprocess.Popen[bytes] | None:
        """Answers a job, in a fresh process where the one it had died; returns the process for the next job."""
        deaths = 0
        for wait in (*TRY_AGAIN_SECONDS, None):
            if process is not None and process.poll() is not None:
                self._retire(process)
                process = None
            try:
                process = process or self._spawn()
            except OSError as error:
                reason = f"no process could be started to read this file ({error.strerror or type(error).__name__})"
                failed = WorkerKilled(reason, hint="free some memory and scan again to retry")
            else:
                if self._run(job, process):
                    return process
                deaths += 1
                failed = _killed(job, process, deaths)
                log.warning("a reading process was lost: %s", failed.message)
            if wait is None or deaths == MOST_DEATHS or not _waited(job, wait):
                break
        job.future.set_exception(failed)
        return process

    def _run(self, job: _Job, process: subprocess.Popen[bytes]) -> bool:
        """Runs a job in a process; False where the process was lost."""
        job.begun, job.process = time.monotonic(), process
        over = threading.Event()
        watch = threading.Thread(target=self._watch, args=(job, process, over), name="tb-sol-watch", daemon=True)
        watch.start()
        try:
            if job.stopped:
                raise EOFError
            assert process.stdin is not None and process.stdout is not None
            send(process.stdin, job.payload)
            good, answer = pickle.loads(receive(process.stdout))
        except Exception:  # a broken pipe, a cut or foreign answer: whatever it is, somebody waits for this future
            _end(process)
            return False
        finally:
            over.set()
        if good:
            job.future.set_result(answer)
        else:
            job.future.set_exception(answer)
        return True

    def _watch(self, job: _Job, process: subprocess.Popen[bytes], over: threading.Event) -> None:
        while not over.wait(WATCH_SECONDS):
            if self.seconds and time.monotonic() - job.begun > self.seconds:
                job.stopped = f"it took longer than {self.seconds:g} s"
            elif self.memory_bytes and resident_bytes(process.pid) > self.memory_bytes:
                job.stopped = f"it needed more than {human(self.memory_bytes, 'B')} of memory"
            if job.stopped:
                _end(process)
                return

    def _spawn(self) -> subprocess.Popen[bytes]:
        paths = [p for p in sys.path if p] + [str(Path(__file__).resolve().parents[2])]
        start = "from tb_sol_plugin.store.processes import main; main()"
        code = f"import gc, json, sys; gc.disable(); sys.path[:] = json.loads({json.dumps(json.dumps(paths))}); {start}"
        process = subprocess.Popen(
            [sys.executable or "python3", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONSAFEPATH": "1"},
        )
        with self._lock:
            self._processes.add(process)
        return process

    def _retire(self, process: subprocess.Popen[bytes] | None) -> None:
        if process is None:
            return
        _end(process)
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with self._lock:
            self._processes.discard(process)


def send(stream: IO[bytes], payload: bytes) -> None:
    """Writes one message: eight bytes of length, then the payload."""
    stream.write(len(payload).to_bytes(8, "little"))
    stream.write(payload)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes:
    """Returns one message; EOFError if the other side is gone."""
    head = _exactly(stream, 8)
    return _exactly(stream, int.from_bytes(head, "little"))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    parts = []
    while count:
        part = stream.read(count)
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def resident_bytes(pid: int) -> int:
    """Returns resident memory of a process; 0 where /proc does not say."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _waited(job: _Job, seconds: float) -> bool:
    """Waits before a job is tried again; False as soon as it was stopped."""
    until = time.monotonic() + seconds
    while not job.stopped and time.monotonic() < until:
        time.sleep(0.02)
    return not job.stopped


def _killed(job: _Job, process: subprocess.Popen[bytes], deaths: int) -> WorkerKilled:
    if job.stopped:
        flags = "--sol_memory_gb, --sol_load_seconds; tb-sol serve: --memory-gb, --load-seconds"
        return WorkerKilled(f"reading was ended: {job.stopped}", hint=f"raise the limit ({flags}), then scan again")
    try:
        code = process.wait(5)
    except subprocess.TimeoutExpired:
        code = 0
    how = f"killed by signal {-code}" if code < 0 else f"ended with status {code}"
    if deaths > 1:
        how += ", and so was the one before it"
    hint = "the system may have run out of memory; scan again to retry" if code == -9 else "scan again to retry"
    return WorkerKilled(f"the process that read this file was {how}", hint=hint)


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(OSError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)


# -- What runs in a reading process ----------------------------------------------------------------------------------
# take a task, read the file, put the capture into the cache.
#
# `read_capture` is a plain function of plain data, so that any executor can run it: our `Workers`, a thread, Dask.


WATCHED: ContextVar[Callable[[Progress], None] | None] = ContextVar("tb_sol_read", default=None)
"""Told of reads in this process and context, a few times a second at most; raising Canceled from it ends the read."""


class Canceled(Exception):
    """Raised inside a read that nobody waits for any more."""


class Task(Struct, frozen=True):
    """One file to read. progress: a small file the state is written to; removing it cancels. cache: None keeps nothing.

    returned: events up to which a capture that was kept is returned, too, for who wants it in the same process.
    """

    path: str
    size: int
    mtime: float
    cache: Path | None
    cache_bytes: int
    progress: str = ""
    fs_options: Mapping[str, object] = struct_field(default_factory=dict)
    returned: int = 0


class Read(NamedTuple):
    """key: of the cache entry, "" if the capture could not be kept there; then it is in `capture`, as is a small one that is to be
    returned. note: why it was not kept.
    """

    key: str
    capture: Capture | None
    note: str


def read_capture(task: Task) -> Read:
    """Read a recording into the cache. Raises the errors of `ingest.read`; what changes meanwhile is not cached."""
    import msgspec

    from tb_sol_plugin import ingest
    from tb_sol_plugin.errors import BadInput, SolError
    from tb_sol_plugin.ingest.source import base_name
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.store import files
    from tb_sol_plugin.store.cache import Cache, key_of

    name = base_name(task.path)
    try:
        before = files.stat_parts(task.path, task.fs_options)
        capture = ingest.read(task.path, fs_options=dict(task.fs_options), progress=_reporter(task.progress) or WATCHED.get())
        after = files.stat_parts(task.path, task.fs_options)
    except FileNotFoundError:
        raise BadInput("the file is not there any more", hint="scan the logdir again", file=name) from None
    except (SolError, Canceled):
        raise
    except MemoryError:
        hint = "record fewer steps, or read it on a larger machine"
        raise BadInput("this file needs more memory than there is", hint=hint, file=name) from None
    except OSError as error:
        message = f"reading failed: {error.strerror or type(error).__name__}"
        raise BadInput(message, hint="check the disk or the connection", file=name) from None
    cache = Cache(task.cache, task.cache_bytes)
    if before != after and capture.facts.source == "sol_capture":
        return Read("", capture, "")  # its recorder is running
    if before != after:
        warnings = (*capture.facts.warnings, "the file changed while it was read; what was there so far is shown")
        facts = msgspec.structs.replace(capture.facts, warnings=warnings)
        return Read("", Capture(facts, capture.tables), "the file changed while it was read")
    key = key_of(task.path, *before)
    if cache.save(key, capture):
        return Read(key, capture if capture.facts.total_events <= task.returned else None, "")
    return Read("", capture, cache.note)


def _reporter(path: str):  # type: ignore[no-untyped-def]
    """Returns a progress callback that writes `path` at most ten times a second; None for no path."""
    if not path:
        return None
    last = [0.0]

    def report(progress: Progress) -> None:
        if not os.path.exists(path):
            raise Canceled
        now = time.monotonic()
        if now - last[0] < 0.1:
            return
        last[0] = now
        state = {"bytes": progress.bytes_read, "total": progress.total_bytes, "events": progress.events, "stage": progress.stage}
        with contextlib.suppress(OSError):
            with open(path + ".new", "w", encoding="ascii") as stream:
                json.dump(state, stream)
            os.replace(path + ".new", path)

    return report


# -- the process -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Answer messages on the standard streams until the other side is gone."""
    claim()  # before any thread: the first one would have a pool of memory of its own
    inward, outward = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    sys.stdout = sys.stderr
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()
    _warm()
    keep_loaded()
    least = resident_bytes(os.getpid())
    make_room()
    gc.enable()  # off since the process began: a tenth of its start would go into looking for garbage in what it imports
    while True:
        try:
            function, args, kwargs = pickle.loads(receive(inward))
        except (EOFError, OSError):
            return
        try:
            answer = (True, function(*args, **kwargs))
        except Exception as error:  # crosses to the server, which shows or logs it
            answer = (False, _portable(error))
        try:
            send(outward, pickle.dumps(answer))
        except (BrokenPipeError, OSError):
            return
        if resident_bytes(os.getpid()) > least + SPARE_BYTES:
            del function, args, kwargs, answer
            gc.collect()  # what is derived of a capture refers to it
            give_back()


def _portable(error: Exception) -> Exception:
    """Returns the error if it can be pickled; else one that says as much without local paths."""
    from tb_sol_plugin.errors import BadInput, SolError
    from tb_sol_plugin.redact import text

    if isinstance(error, SolError):
        return error
    import traceback

    frame = traceback.extract_tb(error.__traceback__)[-1]
    place = f"{Path(frame.filename).name}:{frame.lineno}"
    print(text("".join(traceback.format_exception(error))), file=sys.stderr)
    return BadInput(
        f"reading failed inside the reader ({type(error).__name__} at {place})",
        hint="please report this with the recording's producer version",
    )


def _follow_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


SMALLEST = {
    "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "numSms": 132, "computeMajor": 9, "computeMinor": 0}],
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 0, "dur": 90},
        {
            "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1, "dur": 20,
            "args": {"External id": 1, "Input Dims": [[8, 8], [8, 8]], "Input type": ["float", "float"]},
        },
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 1, "tid": 1, "ts": 5, "dur": 2, "args": {"correlation": 7}},
        {
            "ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 20, "dur": 30,
            "args": {"correlation": 7, "device": 0, "stream": 7},
        },
    ],
}  # fmt: skip
"""A recording of one step with one launched kernel."""


def smallest_capture() -> Capture:
    """Returns a capture of one kernel that went through file, reader and cache, as a real one does."""
    from tb_sol_plugin import ingest
    from tb_sol_plugin.store.cache import Cache

    with tempfile.TemporaryDirectory(prefix="tb-sol-") as folder:
        path = os.path.join(folder, "warm.json")
        with open(path, "w", encoding="ascii") as stream:
            json.dump(SMALLEST, stream)
        capture = ingest.read(path)
        cache = Cache(Path(folder) / "cache")
        cache.save("warm", capture)
        return cache.load("warm") or capture


def _warm() -> None:
    """Read a small recording, so that imports are done and compiled code is loaded before the first real one."""
    with contextlib.suppress(Exception):  # a failure here shows again, with a name, at the first real file
        from tb_sol_plugin.tables.compiled import import_numba

        import_libraries()
        import_numba()
        from tb_sol_plugin.ingest.kineto import decode
        from tb_sol_plugin.tables import tree

        smallest_capture()
        for loops in (decode, tree):  # those that only a file of many events needs
            loops.load()
