"""The phase of a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import Final, Protocol

from tb_sol_plugin.capture.boundary import Boundary
from tb_sol_plugin.capture.phases import PhaseStack

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

    def __enter__(self) -> None:
        try:
            self._depth = self._phases.push(self._name, scoped=True)
        except Exception as error:
            self._tracker.boundary.failed("push_phase", error, vital=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._depth >= 0:
                self._phases.pop_to(self._depth)
            if kind is not None and self._depth <= 0 and not issubclass(kind, ENDINGS):
                self._tracker.unwound(kind)
        except Exception as problem:
            self._tracker.boundary.failed("pop_phase", problem, vital=True)
