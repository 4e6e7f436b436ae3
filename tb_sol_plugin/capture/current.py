"""Knows which tracker is the current one of this process, and names phases in it from anywhere in the code.

    with sol.phase("attention"):                # deep in a model, with no tracker at hand
        ...
    for batch in sol.loader(dataloader):        # waiting for data is the phase "data loading"
        ...

Current is the tracker that was started last and still runs; when it ends, that is the one before again. None is kept alive.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import Final, Generic, Protocol, TypeVar

from tb_sol_plugin.capture.loop.guard import log
from tb_sol_plugin.capture.loop.phases import Mark, close_mark, nvtx_usable, open_mark, phase_name

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

DATA_LOADING: Final = "data loading"


class RunningTracker(Protocol):
    """Is what is needed here of a tracker. keeps: whether it tracks this process now."""

    def keeps(self) -> bool: ...
    def phase(self, name: object) -> AbstractContextManager[None]: ...


class _Process:
    """Has the trackers that were started, the last one last, and whether a range without a tracker was reported."""

    def __init__(self) -> None:
        self.trackers: list[weakref.ref[RunningTracker]] = []
        self.warned = False


_process: Final = _Process()


def make_current(tracker: RunningTracker) -> None:
    """Let that tracker be the current one until it ends."""
    others = [known for known in _process.trackers if (found := known()) is not None and found is not tracker and found.keeps()]
    _process.trackers = [*others, weakref.ref(tracker)]


def current_tracker() -> RunningTracker | None:
    """Return the tracker that was started last and still runs; None where none does."""
    for known in reversed(_process.trackers):
        tracker = known()
        if tracker is not None and tracker.keeps():
            return tracker
    return None


def _in_child() -> None:
    """Keep a forked process, as of a data loader, from reporting that it has no tracker."""
    _process.warned = _process.warned or bool(_process.trackers)
    _process.trackers = []


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)


# -- Phases ----------------------------------------------------------------------------------------------------------


def phase(name: object) -> AbstractContextManager[None]:
    """Return a phase of the current tracker, for a `with` block anywhere in the code.

    Where no tracker runs, it is a range for profilers alone, and a warning says so once. In code that torch.compile reads it is nothing:
    a phase there would split the graph.
    """
    torch = sys.modules.get("torch")
    if torch is not None and torch.compiler.is_compiling():
        return nullcontext()
    tracker = current_tracker()
    if tracker is not None:
        return tracker.phase(name)
    if not _process.warned:
        _warn(name)
    return _ProfilerRange(name)


def _warn(name: object) -> None:
    data = sys.modules.get("torch.utils.data")
    if data is not None and data.get_worker_info() is not None:
        return  # a worker of a data loader has no tracker
    _process.warned = True
    log.warning(
        "The phase %r is not recorded, since no tracker runs: start one with sol.capture(logdir, model=model), keep what it returns, or "
        "call initialize_sol(model, args) first. Profilers see the range all the same. Further phases without a tracker are not reported.",
        phase_name(name),
    )


class _ProfilerRange:
    """Is a range for profilers alone."""

    __slots__ = ("_mark", "_name")

    def __init__(self, name: object) -> None:
        self._name = name
        self._mark: Mark | None = None

    def __enter__(self) -> None:
        self._mark = open_mark(phase_name(self._name), nvtx_usable())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        close_mark(self._mark)


# -- Waiting for data ------------------------------------------------------------------------------------------------


def loader(batches: Iterable[T]) -> Loader[T]:
    """Wrap a data loader, or anything that gives out batches: the time in which the loop waits for one is the phase `data loading`.

    All else of it is as before: its length, its attributes, one pass for each `for`.
    """
    return Loader(batches)


class _Wrapper(Generic[T_co]):
    """Passes all attributes that it lacks through to what it wraps."""

    def __init__(self, wrapped: object) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> object:
        if name == "_wrapped":  # a copy that is being made has nothing yet
            raise AttributeError(name)
        return getattr(self._wrapped, name)


class Loader(_Wrapper[T_co]):
    """Gives out the batches of a data loader, and records how long the loop waits for each."""

    _wrapped: Iterable[T_co]

    def __iter__(self) -> Iterator[T_co]:
        with _waiting():  # which may start workers
            return _Batches(iter(self._wrapped))

    def __len__(self) -> int:
        return len(self._wrapped)  # type: ignore[arg-type]


class _Batches(_Wrapper[T_co]):
    """Is one pass over the batches of a data loader."""

    _wrapped: Iterator[T_co]

    def __iter__(self) -> Iterator[T_co]:
        return self

    def __next__(self) -> T_co:
        with _waiting():
            return next(self._wrapped)


def _waiting() -> AbstractContextManager[None]:
    tracker = current_tracker()
    return nullcontext() if tracker is None else tracker.phase(DATA_LOADING)
