"""Keeps the errors of the recorder out of the training loop.

A failure is counted and noted. A part that fails LIMIT times is not called any more; where that part is vital, tracking ends.
"""

from __future__ import annotations

import atexit
import functools
import logging
import os
import time
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LIMIT: Final = 3
"""Failures of one part after which it is left alone."""
log = logging.getLogger("tb_sol_plugin")


class Guard:
    """Counts failures by part and reason, and keeps them from training code.

    note: called with (code, text) for every failure that is new. give_up: called with a sentence when a vital part has failed LIMIT times.
    """

    def __init__(self, note: Callable[[str, str], None], give_up: Callable[[str], None]) -> None:
        self._note, self._give_up = note, give_up
        self.failures: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    def failed(self, part: str, error: Exception, *, vital: bool) -> None:
        """Count and note a failure. Never raises."""
        try:
            self.failures[part] += 1
            reason = f"{part}: {type(error).__name__}: {error}"[:300]
            self.reasons[reason] += 1
            if self.reasons[reason] == 1:
                log.debug("SOL capture: %s", part, exc_info=error)
                self._note(f"failed_{part}", reason)
            if self.failures[part] == LIMIT:
                rest = "SOL tracking ends." if vital else f"{part} is switched off."
                log.warning("SOL capture: %s failed %d times (%s); %s", part, LIMIT, reason, rest)
                if vital:
                    self._give_up(f"{reason}, {LIMIT} times")
        except Exception as second:  # a failure to report a failure is only counted
            self.reasons[f"guard: {type(second).__name__}"] += 1

    def attempt(self, part: str, function: Callable[[], R], default: R) -> R:
        """Return what the function returns; the default where it fails, or has failed LIMIT times."""
        if self.failures[part] >= LIMIT:
            return default
        try:
            return function()
        except Exception as error:
            self.failed(part, error, vital=False)
            return default


class _Bounded(Protocol):
    """Is an object with guarded methods. off: tracking has ended."""

    guard: Guard
    off: bool


B = TypeVar("B", bound=_Bounded)


def guarded(method: Callable[Concatenate[B, P], None]) -> Callable[Concatenate[B, P], None]:
    """Make a method safe to call from training code: it does nothing once tracking is off, and never raises."""
    name = method.__name__

    @functools.wraps(method)
    def inside(self: B, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.off:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.guard.failed(name, error, vital=True)

    return inside


# -- All trackers of the process -------------------------------------------------------------------------------------
# they are closed when it exits, and let go of everything in a process that was forked from it.


class Tracker(Protocol):
    """Is closed at exit and stopped in a forked process; neither method raises."""

    def end(self, *, report: bool) -> None: ...
    def forked(self) -> None: ...


_alive: Final[weakref.WeakSet[Tracker]] = weakref.WeakSet()


def follow(tracker: Tracker) -> None:
    """Close this tracker when the process exits. It is not kept alive."""
    _alive.add(tracker)


def _close_all() -> None:
    for tracker in list(_alive):
        tracker.end(report=False)


def _in_child() -> None:
    for tracker in list(_alive):
        try:
            tracker.forked()
        except Exception:
            log.debug("SOL capture: letting go in a forked process failed", exc_info=True)


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


# -- The recorder's clock --------------------------------------------------------------------------------------------
# time since its start, less the work of the recorder itself.


class Clock:
    """Measures ns since its start, less the work of the recorder itself (`own_ns`).

    All work of the recorder inside a step is measured and added to `own_ns`, so that a sampled step lasts as long as it would have
    without instrumentation (as far as that can be measured from inside Python).
    """

    __slots__ = ("monotonic_ns", "own_ns", "wall_ns")

    def __init__(self) -> None:
        self.wall_ns = time.time_ns()
        self.monotonic_ns = time.perf_counter_ns()
        self.own_ns = 0

    def now(self) -> int:
        return time.perf_counter_ns() - self.monotonic_ns - self.own_ns
