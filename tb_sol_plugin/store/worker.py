"""What runs in a reading process: take a task, read the file, put the capture into the cache.

`read_capture` is a plain function of plain data, so that any executor can run it: our `Workers`, a thread, Dask.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tb_sol_plugin.ingest.source import Progress
    from tb_sol_plugin.model.capture import Capture


class Cancelled(Exception):
    """Raised inside a read whose progress file was taken away: nobody waits for it any more."""


@dataclass(frozen=True)
class Task:
    """One file to read. progress: a small file the state is written to; removing it cancels. cache: None keeps nothing."""

    path: str
    size: int
    mtime: float
    cache: Path | None
    cache_bytes: int
    progress: str = ""
    fs_options: Mapping[str, object] = field(default_factory=dict)


class Read(NamedTuple):
    """key: of the cache entry, "" if the capture could not be kept there; then it is in `capture`. note: why not."""

    key: str
    capture: Capture | None
    note: str


def read_capture(task: Task) -> Read:
    """Read a recording into the cache. Raises the errors of `ingest.read`; what changes meanwhile is not cached."""
    import msgspec

    from tb_sol_plugin import ingest
    from tb_sol_plugin.errors import BadInput, SolError
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.store import parts
    from tb_sol_plugin.store.cache import Cache, key_of

    try:
        before = parts.stat_parts(task.path, task.fs_options)
        capture = ingest.read(task.path, fs_options=dict(task.fs_options), progress=_reporter(task.progress))
        after = parts.stat_parts(task.path, task.fs_options)
    except FileNotFoundError:
        raise BadInput("the file is not there any more", hint="scan the logdir again") from None
    except (SolError, Cancelled):
        raise
    except MemoryError:
        raise BadInput("this file needs more memory than there is", hint="record fewer steps, or read it on a larger machine") from None
    except OSError as error:
        raise BadInput(f"reading failed: {error.strerror or type(error).__name__}", hint="check the disk or the connection") from None
    cache = Cache(task.cache, task.cache_bytes)
    if before != after and capture.facts.source == "sol_capture":
        return Read("", capture, "")  # its recorder is running
    if before != after:
        warnings = (*capture.facts.warnings, "the file changed while it was read; what was there so far is shown")
        facts = msgspec.structs.replace(capture.facts, warnings=warnings)
        return Read("", Capture(facts, capture.tables), "the file changed while it was read")
    key = key_of(task.path, *before)
    if cache.save(key, capture):
        return Read(key, None, "")
    return Read("", capture, cache.note)


def _reporter(path: str):  # type: ignore[no-untyped-def]
    """A progress callback that writes `path` at most ten times a second; None for no path."""
    if not path:
        return None
    last = [0.0]

    def report(progress: Progress) -> None:
        if not os.path.exists(path):
            raise Cancelled
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
    from tb_sol_plugin.store.workers import receive, send

    inward, outward = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints must not mix with the answers
    sys.stdout = sys.stderr
    threading.Thread(target=_follow_parent, args=(os.getppid(),), daemon=True).start()
    _warm()
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


def _portable(error: Exception) -> Exception:
    """The error if it can be pickled; else one that says as much without local paths."""
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
    """A capture of one kernel that went through file, reader and cache, as a real one does."""
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
        smallest_capture()
