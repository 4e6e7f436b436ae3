"""The one place where the capture library stops its own errors: none of them reaches the training loop.

A failure is counted and noted. A part that fails again and again is not called any more; when that part is the tracking itself, all ends.
"""

from __future__ import annotations

import functools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Concatenate, Final, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LIMIT: Final = 3
"""Failures of one part after which it is left alone."""
log = logging.getLogger("tb_sol_plugin")


class Boundary:
    """Failures by part and reason.

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
            self.reasons[f"boundary: {type(second).__name__}"] += 1

    def attempt(self, part: str, function: Callable[[], R], default: R) -> R:
        """The function's answer; the default where it fails, or has failed LIMIT times."""
        if self.failures[part] >= LIMIT:
            return default
        try:
            return function()
        except Exception as error:
            self.failed(part, error, vital=False)
            return default


class _Bounded(Protocol):
    """Who has methods that end at the boundary: `off` once tracking has ended."""

    boundary: Boundary
    off: bool


B = TypeVar("B", bound=_Bounded)


def bounded(method: Callable[Concatenate[B, P], None]) -> Callable[Concatenate[B, P], None]:
    """A method that training code calls: it does nothing once tracking is off, and never raises."""
    name = method.__name__

    @functools.wraps(method)
    def inside(self: B, /, *args: P.args, **kwargs: P.kwargs) -> None:
        if self.off:
            return
        try:
            method(self, *args, **kwargs)
        except Exception as error:
            self.boundary.failed(name, error, vital=True)

    return inside
