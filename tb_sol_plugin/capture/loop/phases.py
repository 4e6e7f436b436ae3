"""Keeps the phases that a training loop names: a stack per thread, and the times of their ranges."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from time import perf_counter_ns
from types import TracebackType
from typing import Final, Protocol, TypeAlias

from tb_sol_plugin.capture.loop.guard import Clock, Guard
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tb_sol_plugin.capture.loop.schedule import TimeRow
from tb_sol_plugin.capture.loop.timing import EventPool, Pair

# -- Marks of a phase for profilers that record the process ----------------------------------------------------------
# an NVTX range, and a range in a running torch.profiler.
#
# Without a profiler a mark costs a test of one variable.


class _Open(Protocol):
    def __exit__(self, kind: object, error: object, trace: object, /) -> object: ...


Mark = tuple[bool, "_Open | None"]
"""An open mark: whether an NVTX range was pushed, and the open range of torch.profiler."""
PUSHED: Final[Mark] = (True, None)
"""The mark without a profiler of torch."""


class _State(Protocol):
    _is_profiler_enabled: bool


class _ProfilerQuery:
    """Asks torch whether its profiler is on, where the usual variable is missing."""

    @property
    def _is_profiler_enabled(self) -> bool:
        enabled = getattr(getattr(sys.modules.get("torch"), "autograd", None), "_profiler_enabled", None)
        return bool(enabled is not None and enabled())


def profiler_state() -> _State:
    """Return an object whose `_is_profiler_enabled` says whether a torch profiler records. Never loads torch."""
    module = sys.modules.get("torch.autograd.profiler")
    return module if hasattr(module, "_is_profiler_enabled") else _ProfilerQuery()  # type: ignore[return-value]


def profiler_active() -> bool:
    """Return whether a torch profiler records in this process. Never loads torch."""
    return bool(profiler_state()._is_profiler_enabled)


def nvtx_usable() -> bool:
    """Return whether a CUDA device is in use, so that NVTX ranges make sense. Never loads torch, never initializes CUDA."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    try:
        return bool(cuda is not None and cuda.is_initialized() and hasattr(cuda, "nvtx"))
    except Exception:
        return False


def nvtx_functions() -> tuple[Callable[[str], object], Callable[[], object]]:
    """Return what opens and closes an NVTX range, without torch's wrappers where these are the usual ones."""
    nvtx = sys.modules["torch"].cuda.nvtx
    inner = getattr(nvtx, "_nvtx", None)
    found = getattr(inner, "rangePushA", None), getattr(inner, "rangePop", None)
    return found if all(found) else (nvtx.range_push, nvtx.range_pop)  # type: ignore[return-value]


def open_mark(name: str, nvtx: bool) -> Mark | None:
    """Open the ranges of a phase for profilers; None where none records."""
    found = None
    if nvtx:
        sys.modules["torch"].cuda.nvtx.range_push(name)
    if profiler_active():
        found = sys.modules["torch.autograd.profiler"].record_function(name)
        found.__enter__()
    return (nvtx, found) if found is not None else PUSHED if nvtx else None


def close_mark(mark: Mark | None) -> None:
    """Close what `open_mark` opened."""
    if mark is None:
        return
    pushed, found = mark
    if found is not None:
        found.__exit__(None, None, None)
    if pushed:
        sys.modules["torch"].cuda.nvtx.range_pop()


def _push_range(name: str) -> None:
    sys.modules["torch"].cuda.nvtx.range_push(name)


def _pop_range() -> None:
    sys.modules["torch"].cuda.nvtx.range_pop()


RANGES: Final = 256
"""Ranges of one iteration that are kept singly; beyond, those of the most frequent phase are summed up."""
DEPTH: Final = 64
"""Open phases of a thread; deeper ones are not recorded."""
NAME_LENGTH: Final = 256
NAMES: Final = 10_000
"""Pairs of a phase and one inside it whose label is remembered for quick use."""
PENDING: Final = 64
"""Pairs of events that a summed phase keeps unread."""

PhaseTime: TypeAlias = "tuple[int, int, int, Pair | None]"
"""label, start_ns, duration_ns, events."""


def phase_name(name: object) -> str:
    """Return the text of a name of any type: `(unnamed)` for nothing, at most 256 characters."""
    text = name if isinstance(name, str) else "" if name is None else str(name)
    return text[:NAME_LENGTH].strip().strip("/") or "(unnamed)"


_Frame: TypeAlias = "tuple[str, int, Pair | None, Mark | None, bool, int]"
"""An open range: name, start_ns, events, mark, whether it closes itself at the end of a `with`, number of the step it was opened in."""


class _Thread:
    """Open labels of one thread, their frames, and pushes that were too deep to record."""

    __slots__ = ("excess", "frames", "open")

    def __init__(self) -> None:
        self.open: list[int] = []
        self.frames: list[_Frame] = []
        self.excess = 0


class _ThreadLocal(threading.local):
    def __init__(self) -> None:
        self.thread = _Thread()


@dataclass
class _Sum:
    """Sums the ranges of one label, which are no longer kept singly."""

    start_ns: int
    duration_ns: int = 0
    count: int = 0
    device_ns: int | None = 0
    pending: list[Pair] = field(default_factory=list)


class PhaseStack:
    """Tracks the phase of each thread, and how long the phases of this step lasted.

    A thread without phases of its own (a worker of autograd) is in the innermost phase of the thread that runs the step. A phase that is
    open at the end of a step is cut there: each step has its own part. Times are on the recorder's clock; what pushing and popping
    cost on the thread of the step is added to its own work.

    note: called with (code, text) when something is wrong with the calls; each code once. thread, runner, frames: of the thread that runs
    the step, its open labels and their frames. known: labels by the one around them and their names.
    """

    def __init__(self, labels: Labels, clock: Clock, *, note: Callable[[str, str], None] | None = None) -> None:
        self.labels, self.clock = labels, clock
        self._note = note or (lambda code, text: None)
        self._own = _ThreadLocal()
        self._lock = threading.Lock()
        self._noted: set[str] = set()
        self.step = 0
        self.step_start = 0
        self.thread, self.runner, self.frames = threading.get_ident(), self._own.thread.open, self._own.thread.frames
        self.known: dict[tuple[int, str], int] = {}
        self.times: list[PhaseTime] = []
        self.sums: dict[int, _Sum] = {}
        self.profiler = profiler_state()
        self.events: EventPool | None = None
        self.nvtx = False
        self.push_range: Callable[[str], object] = _push_range
        self.pop_range: Callable[[], object] = _pop_range
        self.on = True

    # --- Where am I ---

    @property
    def open(self) -> list[int]:
        """Labels that are open on the calling thread, innermost last."""
        return self._own.thread.open

    @property
    def top(self) -> int:
        """The label of the calling thread's innermost phase, or the inherited one; NONE outside of all."""
        stack = self._own.thread.open
        return stack[-1] if stack else self.inheriting()

    def inheriting(self) -> int:
        """Return the innermost phase of the thread that runs the step. It waits in `backward()` while workers of autograd run."""
        try:
            return self.runner[-1]
        except IndexError:
            return NONE

    # --- Push and pop ---

    def push(self, name: object, *, scoped: bool = False) -> int:
        """Enter a phase. Returns the depth before, for `pop_to`."""
        # Phases are always on, and run with cold caches: few lookups, few calls.
        began = perf_counter_ns()
        own = self._own.thread
        stack = own.open
        depth = len(stack)
        if not self.on:
            return depth
        if depth:
            if not scoped:
                depth = self._forgotten(own, name)
            if depth >= DEPTH:
                return self._too_deep(own)
            parent = stack[-1] if depth else NONE
        else:
            parent = NONE if stack is self.runner else self.inheriting()
        try:
            label = self.known[parent, name]  # type: ignore[index]
        except (KeyError, TypeError):
            label = self._label(parent, name)
        mark = open_mark(self.labels.known[label].name, self.nvtx) if self.nvtx or self.profiler._is_profiler_enabled else None
        events = None if self.events is None else self.events.started()
        stack.append(label)
        clock, now = self.clock, perf_counter_ns()
        if stack is self.runner:
            clock.own_ns += now - began
        own.frames.append((name, now - clock.monotonic_ns - clock.own_ns, events, mark, scoped, self.step))  # type: ignore[arg-type]
        return depth

    def _label(self, parent: int, name: object) -> int:
        text = phase_name(name)
        label = self.labels.id_of("phase", parent, text)
        if isinstance(name, str) and len(self.known) < NAMES:
            self.known[parent, name] = label
        return label

    def _too_deep(self, own: _Thread) -> int:
        own.excess += 1
        self._once("phase_depth", f"more than {DEPTH} phases are open at once; deeper ones are not recorded. Is one not popped?")
        return len(own.open)

    def pop(self) -> None:
        """Leave the innermost phase. On an empty stack this is noted once and does nothing."""
        began = perf_counter_ns()
        own = self._own.thread
        if own.excess:
            own.excess -= 1
        elif own.open:
            self._pop(own, began)
        elif self.on:
            self._once("phase_pop", "a phase was popped while none was open")

    def pop_to(self, depth: int) -> None:
        """Leave all phases deeper than that, also those that were never popped."""
        began = perf_counter_ns()
        own = self._own.thread
        deeper = len(own.open) - depth
        if deeper == 1 and not own.excess:
            self._pop(own, began)
            return
        if own.excess:
            own.excess = own.excess - 1 if deeper == 0 else 0
        if deeper > 1:
            self._once("phase_not_popped", f"the phase {own.frames[-1][0]!r} was not popped before the one around it ended")
        while len(own.open) > depth:
            self._pop(own, began)
            began = perf_counter_ns()

    @contextmanager
    def phase(self, name: object) -> Iterator[None]:
        """Return the phase of a `with` block, which is left also when an exception is raised in it."""
        depth = self.push(name, scoped=True)
        try:
            yield
        finally:
            self.pop_to(depth)

    def _pop(self, own: _Thread, began: int) -> None:
        clock = self.clock
        _, start, events, mark, _, _ = own.frames.pop()
        label = own.open.pop()
        if events is not None:
            events.stop()
        if mark is not None:
            close_mark(mark)
        if self.on:
            if start < self.step_start:
                start = self.step_start
            duration = began - clock.monotonic_ns - clock.own_ns - start
            self.times.append((label, start, duration if duration > 0 else 0, events))
            if self.sums or len(self.times) > RANGES:
                self.bound()
        if own.open is self.runner:
            clock.own_ns += perf_counter_ns() - began

    def _forgotten(self, own: _Thread, name: object) -> int:
        """Close a phase of an earlier step whose name is pushed again: an exception kept it from being popped."""
        for at, (known, _, _, _, scoped, step) in enumerate(own.frames):
            if step < self.step and known == name and not scoped:
                self._once("phase_not_popped", f"the phase {name!r} of an earlier step was never popped")
                began = perf_counter_ns()
                while len(own.open) > at:
                    self._pop(own, began)
                    began = perf_counter_ns()
                break
        return len(own.open)

    def _once(self, code: str, text: str) -> None:
        if code not in self._noted:
            self._noted.add(code)
            self._note(code, text)

    # --- Times ---

    def bound(self) -> None:
        """Add the last range to its sum if it has one; make a sum where there are too many ranges."""
        with self._lock:
            if self.times and self.times[-1][0] in self.sums:
                time = self.times.pop()
                self._add(self.sums[time[0]], time)
            if len(self.times) > RANGES:
                self._fold()

    def _fold(self) -> None:
        """Fold the ranges of the label that has most into one sum."""
        counts: dict[int, int] = {}
        for time in self.times:
            counts[time[0]] = counts.get(time[0], 0) + 1
        label = max(counts, key=lambda key: counts[key])
        of_label = [time for time in self.times if time[0] == label]
        self.times = [time for time in self.times if time[0] != label]
        summed = self.sums[label] = _Sum(of_label[0][1])
        for time in of_label:
            self._add(summed, time)

    def _add(self, summed: _Sum, time: PhaseTime) -> None:
        _, start, duration, events = time
        summed.start_ns = min(summed.start_ns, start)
        summed.duration_ns += duration
        summed.count += 1
        if events is None or summed.device_ns is None:
            summed.device_ns = None
            summed.pending.clear()
            return
        summed.pending.append(events)
        if len(summed.pending) > PENDING:
            self._settle(summed)

    def _settle(self, summed: _Sum) -> None:
        """Read those events of a sum that the device has passed; give its device time up where too many wait."""
        pool, pending = self.events, summed.pending
        if pool is None:
            return
        while pending and pool.done(pending[0]):
            ns = pool.resolve(pending.pop(0))
            if ns is None or summed.device_ns is None:
                summed.device_ns = None
                pending.clear()
                return
            summed.device_ns += ns
        if len(pending) > 16 * PENDING:
            summed.device_ns = None
            pending.clear()

    def begin_step(self, now: int) -> None:
        """Start the times of a step at `now`, on the thread that runs it. Phases that are open go on in it."""
        own = self._own.thread
        self.step += 1
        self.step_start = now
        self.thread, self.runner, self.frames = threading.get_ident(), own.open, own.frames
        self.profiler = profiler_state()
        self.times, self.sums = [], {}
        if own.frames:
            pool = self.events
            own.frames[:] = [
                (name, now, None if pool is None else pool.started(), mark, scoped, step) for name, _, _, mark, scoped, step in own.frames
            ]

    def end_step(self, now: int) -> PendingTimes:
        """Return the times of the step that ends at `now`; phases that are open count up to now."""
        own = self._own.thread
        if own.open is self.runner:
            for label, (_, start, events, _, _, _) in zip(own.open, own.frames, strict=True):
                if events is not None:
                    events.stop()
                self.times.append((label, max(start, self.step_start), max(0, now - max(start, self.step_start)), events))
                self.bound()
        times, sums = self.times, self.sums
        self.times, self.sums = [], {}
        return PendingTimes(times, sums, self, self.events)


class PendingTimes:
    """Reads the phase times of a finished step, whose events the device may not have passed yet."""

    def __init__(self, times: list[PhaseTime], sums: dict[int, _Sum], stack: PhaseStack, pool: EventPool | None) -> None:
        self._times, self.sums, self._stack, self._pool = times, sums, stack, pool

    def done(self) -> bool:
        """Return whether the device has passed all events."""
        pool = self._pool
        if pool is None:
            return True
        return all(pool.done(time[3]) for time in reversed(self._times)) and all(
            pool.done(pair) for summed in self.sums.values() for pair in summed.pending
        )

    def rows(self) -> list[TimeRow]:
        """Return one row per range or sum, by start, the outer one first. device_ns is None where the device has not passed the events."""
        pool = self._pool
        out: list[TimeRow]
        if pool is None:
            out = [(label, start, duration, None, 1) for label, start, duration, _ in reversed(self._times)]
        else:
            out = [(label, start, duration, pool.resolve(events), 1) for label, start, duration, events in reversed(self._times)]
        for label, summed in self.sums.items():
            self._stack._settle(summed)
            device = None if summed.pending or pool is None else summed.device_ns
            out.append((label, summed.start_ns, summed.duration_ns, device, summed.count))
        out.sort(key=_by_start)
        return out


def _by_start(row: TimeRow) -> tuple[int, int]:
    return row[1], -row[2]


# -- The phase of a `with` block -------------------------------------------------------------------------------------


ENDINGS: Final = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions that only end an iteration over something."""


class _Tracker(Protocol):
    guard: Guard

    def unwound(self, kind: type[BaseException]) -> None:
        """Handle an exception that has left the outermost phase of the calling thread."""


class PhaseRange:
    """Enters and leaves a phase as a context manager, once. The tracker is informed of an exception that leaves the outermost one."""

    __slots__ = ("_depth", "_name", "_phases", "_tracker")

    def __init__(self, tracker: _Tracker, phases: PhaseStack, name: object) -> None:
        self._tracker, self._phases, self._name, self._depth = tracker, phases, name, -1

    # Phases are always on, and run between kernels that have filled the caches: what is common is done here, in one function each, for
    # the thread that runs the step. All else (torch's profiler, other threads, names that are new) goes to the stack.

    def __enter__(self) -> None:
        try:
            began = perf_counter_ns()
            phases, name = self._phases, self._name
            stack = phases.runner
            depth = len(stack)
            if (
                phases.on
                and depth < DEPTH
                and type(name) is str
                and not phases.profiler._is_profiler_enabled
                and get_ident() == phases.thread
            ):
                label = phases.known.get((stack[-1] if depth else NONE, name))
                if label is not None:
                    self._depth = depth
                    clock, mark, events = phases.clock, None, phases.events
                    if phases.nvtx:
                        phases.push_range(phases.labels.known[label].name)
                        mark = PUSHED
                    pair = None if events is None else events.started()
                    stack.append(label)
                    now = perf_counter_ns()
                    clock.own_ns = own = clock.own_ns + now - began
                    phases.frames.append((name, now - clock.monotonic_ns - own, pair, mark, True, phases.step))
                    return
            self._depth = self._phases.push(self._name, scoped=True)
        except Exception as error:
            self._tracker.guard.failed("push_phase", error, vital=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            began = perf_counter_ns()
            phases, depth = self._phases, self._depth
            if kind is None and 0 <= depth < DEPTH - 1 and phases.on and get_ident() == phases.thread and len(phases.runner) == depth + 1:
                _, start, events, mark, _, _ = phases.frames[-1]
                if mark is None or mark is PUSHED:
                    del phases.frames[-1]
                    label = phases.runner.pop()
                    if events is not None:
                        events.stop()
                    if mark is not None:
                        phases.pop_range()
                    clock = phases.clock
                    own = clock.own_ns
                    if start < phases.step_start:
                        start = phases.step_start
                    duration = began - clock.monotonic_ns - own - start
                    times = phases.times
                    times.append((label, start, duration if duration > 0 else 0, events))
                    if phases.sums or len(times) > RANGES:
                        phases.bound()
                    clock.own_ns = own + perf_counter_ns() - began
                    return
            if self._depth >= 0:
                self._phases.pop_to(self._depth)
            if kind is not None and self._depth <= 0 and not issubclass(kind, ENDINGS):
                self._tracker.unwound(kind)
        except Exception as problem:
            self._tracker.guard.failed("pop_phase", problem, vital=True)
