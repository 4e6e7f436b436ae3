"""Takes traces with torch.profiler of iterations that are not sampled, keeps compilations out of them and bounds the memory they take.

A traced iteration is never a sampled one: a dispatch mode would show in the trace, and makes compiled models run eagerly.
"""

from __future__ import annotations

import contextlib
import gc
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, Protocol

from tb_sol_plugin.capture.loop.phases import profiler_active
from tb_sol_plugin.capture.work.compiling import CompilationStarts

if TYPE_CHECKING:
    import torch

    from tb_sol_plugin.capture.loop.guard import Guard
    from tb_sol_plugin.capture.loop.header import Environment
    from tb_sol_plugin.capture.loop.schedule import Schedule


_RANGE: Final = "SOL iteration, beginning {}"
_MARK: Final = b"SOL iteration, beginning "
_own: Final[weakref.WeakSet[torch.profiler.profile]] = weakref.WeakSet()
"""Profilers that were started here."""


LEAST_LIMIT: Final = 2 << 30
"""Bytes by which the process may grow in any case while an iteration is traced."""
PART_OF_AVAILABLE: Final = 4
"""It may grow by this part of the memory that is available, where that is more."""
_WATCH_SECONDS: Final = 0.05

COMPILED_MEANWHILE: Final = "something was compiled in a traced iteration, whose trace was dropped; a later one is traced instead"
COMPILED_AGAIN: Final = "something was compiled in each of the traced iterations; no more are traced"
TOO_LARGE: Final = "the trace of one iteration took more than {:,} MB of memory and was dropped; "
WITHOUT_STACKS: Final = "later ones are traced without Python frames"
NO_MORE: Final = "no more are traced"


class _Growth:
    """Calls a function in the main thread when the process has grown by so many bytes, from `watch` to `leave`; Linux only.

    A profiler has to be stopped by the thread that started it, in the middle of what that does: Python runs pending calls there. Where
    training runs in another thread than the main one, nothing is watched.
    """

    def __init__(self, grown: Callable[[], None]) -> None:
        self.most = LEAST_LIMIT
        self._grown = grown
        self._ended = threading.Event()
        self._pending: object = None

    def watch(self) -> None:
        """Begin, where this can be watched."""
        if threading.current_thread() is threading.main_thread() and _resident() is not None:
            self.most = max(LEAST_LIMIT, _available() // PART_OF_AVAILABLE)
            threading.Thread(target=self._run, args=(self._ended,), name="tb-sol-trace-memory", daemon=True).start()

    def leave(self) -> None:
        """End. What is pending does nothing any more."""
        self._ended.set()
        self._ended = threading.Event()

    def _run(self, ended: threading.Event) -> None:
        before = _resident() or 0
        while not ended.wait(_WATCH_SECONDS):
            if (_resident() or 0) - before > self.most:
                return self._call_in_main_thread(ended)

    def _call_in_main_thread(self, ended: threading.Event) -> None:
        import ctypes

        def call(_: object) -> int:
            if not ended.is_set():
                self._grown()
            return 0

        self._pending = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(call)  # kept as long as it may be called
        ctypes.pythonapi.Py_AddPendingCall(self._pending, None)


def _resident() -> int | None:
    """Returns the bytes of this process in memory; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _available() -> int:
    """Returns the bytes of memory that the system can still give; 0 where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as stream:
            return next(int(line.split()[1]) << 10 for line in stream if line.startswith("MemAvailable:"))
    except (OSError, ValueError, IndexError, StopIteration):
        return 0


class _Range(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> object: ...


class DrivenProfiler:
    """Takes one trace at a time. `start` and `stop` belong outside of what is timed: starting the profiler takes a while.

    folder: of the capture file. stem: answers `<host>_rank<rank>` of that file. note: called with (code, text). stacks: record Python
    frames and with them the calls of modules, which a trace has from nowhere else. memory: record allocations too. spoilt: called when
    a trace was dropped before its iteration ended: with "compiled" since something began to be compiled, "memory" since it took too much.
    """

    def __init__(
        self, folder: str, stem: Callable[[], str], note: Callable[[str, str], None], *, stacks: bool = True, memory: bool = False,
        spoilt: Callable[[Literal["compiled", "memory"]], None] = lambda why: None,
    ) -> None:  # fmt: skip
        self._folder, self._stem, self._note, self.stacks, self._memory, self._spoilt = folder, stem, note, stacks, memory, spoilt
        self._compilations = CompilationStarts(lambda: self._drop("compiled"))
        self._growth = _Growth(lambda: self._drop("memory"))
        self._profile: torch.profiler.profile | None = None
        self._range: _Range | None = None
        self._starts = 0
        self.written: list[str] = []

    @property
    def running(self) -> bool:
        return self._profile is not None

    def start(self, kind: str) -> bool:
        """Trace the iteration that begins now; False where another profiler is at work. kind: type of the device in use."""
        if profiler_active() or _other_profiler():
            self._note("profiler", "the script has a profiler of its own; no iteration is traced next to it")
            return False
        import torch.profiler

        activity = torch.profiler.ProfilerActivity
        device = getattr(activity, kind.upper(), None) if kind in ("cuda", "xpu") else None
        activities = [activity.CPU, *([device] if device is not None else [])]
        profile = torch.profiler.profile(activities=activities, record_shapes=True, with_stack=self.stacks, profile_memory=self._memory)
        _own.add(profile)
        profile.start()
        self._profile, self._starts = profile, 0
        self.restart()
        self._compilations.watch()
        self._growth.watch()  # a thread that begins after the profiler is not in the trace
        return True

    @property
    def most_memory(self) -> int:
        """Bytes by which the process may grow while an iteration is traced."""
        return self._growth.most

    def _drop(self, why: Literal["compiled", "memory"]) -> None:
        """Stop in the middle of an iteration, without a trace. Never raises: it is called from inside of what the script does."""
        if self.running:
            with contextlib.suppress(Exception):
                self.stop(None)
            with contextlib.suppress(Exception):
                self._spoilt(why)

    def restart(self) -> None:
        """Begin the iteration anew: its range starts now. Which range is the iteration's, under which number, is known at its end."""
        from torch.profiler import record_function

        self._close_range()
        self._starts += 1
        self._range = record_function(_RANGE.format(self._starts))
        self._range.__enter__()

    def _close_range(self) -> None:
        opened, self._range = self._range, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def stop(self, number: int | None) -> None:
        """Stop, and write the trace of the iteration with that number; None: the iteration did not end, no trace is written."""
        profile, self._profile = self._profile, None
        self._compilations.leave()
        self._growth.leave()
        if profile is None:
            return
        self._close_range()
        profile.stop()
        if number is None:
            return
        import gzip
        import tempfile

        os.makedirs(self._folder, exist_ok=True)
        path = os.path.join(self._folder, f"{self._stem()}.{time.time_ns()}.pt.trace.json.gz")
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".trace-") as place:
            plain, packed = os.path.join(place, "trace.json"), os.path.join(place, "trace.gz")
            profile.export_chrome_trace(plain)
            with open(plain, "rb") as source, gzip.open(packed, "wb", compresslevel=5) as target:
                for line in source:  # the profiler writes one field a line
                    target.write(self._renamed(line, number) if _MARK in line else line)
            os.replace(packed, path)
        self.written.append(path)

    def _renamed(self, line: bytes, number: int) -> bytes:
        """Return the line with the range of the iteration named as profilers name a step, and dropped beginnings named so."""
        for start in range(1, self._starts + 1):
            name = f"ProfilerStep#{number}" if start == self._starts else "before the iteration"
            line = line.replace(f'"{_RANGE.format(start)}"'.encode(), f'"{name}"'.encode())
        return line


def _other_profiler() -> bool:
    """Return whether the script has a profiler of its own, which may start at any of its own steps: two at once are an error in torch."""
    from torch.profiler import profile

    def found() -> bool:
        every = gc.get_objects()
        return profile in map(type, every) and any(type(one) is profile and one not in _own for one in every)

    if found():
        gc.collect()  # one without references is no profiler of the script
        return found()
    return False


class ProfilerTraces:
    """Traces iterations after a sampled one. torch.profiler is not imported before the first. stacks, memory: see `DrivenProfiler`."""

    def __init__(
        self, schedule: Schedule, environment: Environment, guard: Guard, note: Callable[[str, str], None], *, stacks: bool, memory: bool
    ) -> None:
        self._schedule, self._environment, self._guard, self._note = schedule, environment, guard, note
        self._stacks, self._memory = stacks, memory
        self._profiler: DrivenProfiler | None = None

    @property
    def running(self) -> bool:
        """Whether the iteration that runs is traced."""
        return self._profiler is not None and self._profiler.running

    def start(self) -> None:
        """Trace the iteration that begins now, where a folder is there for it. Never raises."""
        self._guard.attempt("profiler", self._start, None)

    def _start(self) -> None:
        environment = self._environment
        if self._profiler is None:
            if environment.logdir is None:
                self._schedule.traces = 0
                self._note("profiler", "there is no folder for traces; none is recorded")
                return
            self._profiler = DrivenProfiler(
                environment.logdir, environment.worker, self._note, stacks=self._stacks, memory=self._memory, spoilt=self._spoilt
            )
        if self._profiler.start(environment.kind):
            self._schedule.traces -= 1

    def _spoilt(self, why: Literal["compiled", "memory"]) -> None:
        """Let another iteration be traced in the place of the one whose trace was dropped, if there is a chance that it succeeds."""
        profiler = self._profiler
        if why == "compiled":
            self._note("profiler", COMPILED_MEANWHILE if self._schedule.trace_again() else COMPILED_AGAIN)
        elif profiler is not None:
            again = profiler.stacks and self._schedule.trace_again()
            if not again:
                self._schedule.traces = 0
            profiler.stacks = False
            self._note("profiler", TOO_LARGE.format(profiler.most_memory >> 20) + (WITHOUT_STACKS if again else NO_MORE))

    def restart(self) -> None:
        """Begin the traced iteration anew."""
        if self._profiler is not None and self._profiler.running:
            self._profiler.restart()

    def stop(self, number: int | None) -> None:
        """Write the trace of the iteration with that number; None drops it. Never raises."""
        profiler = self._profiler
        if profiler is not None and profiler.running:
            self._guard.attempt("profiler", lambda: profiler.stop(number), None)
            if number is not None:
                self._schedule.trace_taken()
