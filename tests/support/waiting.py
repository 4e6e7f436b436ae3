"""Waiting for events, never for a number of seconds: a gate that calls pass one by one, and a condition that becomes true."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
LIMIT = 120.0
"""Seconds after which a test fails instead of waiting on: many times what the slowest machine takes."""


class Gate:
    """Lets as many calls pass as it was opened for; the others wait."""

    def __init__(self) -> None:
        self._permits = threading.Semaphore(0)

    def open(self, calls: int = 10_000) -> None:
        """Let that many more calls pass."""
        self._permits.release(calls)

    def wait(self) -> None:
        """Wait for a permit and use it up."""
        assert self._permits.acquire(timeout=LIMIT), "nobody opened the gate"

    def guard(self, patch: pytest.MonkeyPatch, module: object, name: str) -> Gate:
        """Let every call of a function of a module wait here first."""
        plain = getattr(module, name)

        def waiting(*args: Any, **options: Any) -> Any:
            self.wait()
            return plain(*args, **options)

        patch.setattr(module, name, waiting)
        return self


def until(condition: Callable[[], T]) -> T:
    """Ask until the answer is true, and return it."""
    end = time.monotonic() + LIMIT
    while not (found := condition()):
        assert time.monotonic() < end, "did not happen in time"
        time.sleep(0.005)
    return found
