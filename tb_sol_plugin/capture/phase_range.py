"""The phase of a `with` block."""

from __future__ import annotations

from threading import get_ident
from time import perf_counter_ns
from types import TracebackType
from typing import Final, Protocol

from tb_sol_plugin.capture.boundary import Boundary
from tb_sol_plugin.capture.labels import NONE
from tb_sol_plugin.capture.phases import DEPTH, RANGES, PhaseStack

ENDINGS: Final = (StopIteration, StopAsyncIteration, GeneratorExit)
"""Exceptions that only end an iteration over something."""


class _Tracker(Protocol):
    boundary: Boundary

    def unwound(self, kind: type[BaseException]) -> None:
        """An exception has left the outermost phase of the calling thread."""


class PhaseRange:
    """A phase as a context manager, for one use. It is left also when an exception flies; the tracker learns of one that left them all."""

    __slots__ = ("_depth", "_name", "_phases", "_tracker")

    def __init__(self, tracker: _Tracker, phases: PhaseStack, name: object) -> None:
        self._tracker, self._phases, self._name, self._depth = tracker, phases, name, -1

    # Phases are always on, and run between kernels that have filled the caches: what is common is done here, in one function each, for
    # the thread that runs the step. All else (profilers, devices, other threads, names that are new) goes to the stack.

    def __enter__(self) -> None:
        try:
            began = perf_counter_ns()
            phases, name = self._phases, self._name
            stack = phases.runner
            depth = len(stack)
            if (
                phases.on
                and phases.events is None
                and not phases.nvtx
                and depth < DEPTH
                and type(name) is str
                and not phases.profiler._is_profiler_enabled
                and get_ident() == phases.thread
            ):
                label = phases.known.get((stack[-1] if depth else NONE, name))
                if label is not None:
                    self._depth = depth
                    clock = phases.clock
                    stack.append(label)
                    now = perf_counter_ns()
                    clock.own_ns = own = clock.own_ns + now - began
                    phases.frames.append((name, now - clock.monotonic_ns - own, None, None, True, phases.step))
                    return
            self._depth = self._phases.push(self._name, scoped=True)
        except Exception as error:
            self._tracker.boundary.failed("push_phase", error, vital=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            began = perf_counter_ns()
            phases, depth = self._phases, self._depth
            if kind is None and 0 <= depth < DEPTH - 1 and phases.on and get_ident() == phases.thread and len(phases.runner) == depth + 1:
                _, start, events, mark, _, _ = phases.frames[-1]
                if events is None and mark is None:
                    del phases.frames[-1]
                    clock = phases.clock
                    own = clock.own_ns
                    if start < phases.step_start:
                        start = phases.step_start
                    duration = began - clock.monotonic_ns - own - start
                    times = phases.times
                    times.append((phases.runner.pop(), start, duration if duration > 0 else 0, None))
                    if phases.sums or len(times) > RANGES:
                        phases.bound()
                    clock.own_ns = own + perf_counter_ns() - began
                    return
            if self._depth >= 0:
                self._phases.pop_to(self._depth)
            if kind is not None and self._depth <= 0 and not issubclass(kind, ENDINGS):
                self._tracker.unwound(kind)
        except Exception as problem:
            self._tracker.boundary.failed("pop_phase", problem, vital=True)
