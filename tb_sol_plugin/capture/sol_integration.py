"""Keeps one tracker for a training script that is organized around functions.

    initialize_sol(model, args)             # before the first forward pass
    for iteration in range(...):
        clear_sol_captures()
        with sol_nvtx_range("forward", 1):
            ...
        log_training_sol(iteration)

All of it may stay in a script that does not track: until `initialize_sol`, and with `--timing-log-level 0`, nothing happens.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import TracebackType
from typing import Final

from tb_sol_plugin.capture.loop.guard import log
from tb_sol_plugin.capture.loop.phases import Mark, close_mark, nvtx_usable, open_mark, phase_name
from tb_sol_plugin.capture.loop.schedule import ALL_LEVELS, read_arguments
from tb_sol_plugin.capture.tracker import SOLTracker


class _State:
    """Has the tracker of the process, and up to which level ranges are active."""

    def __init__(self) -> None:
        self.tracker: SOLTracker | None = None
        self.level = ALL_LEVELS


_state: Final = _State()


def initialize_sol(model: object, args: object = None, **options: object) -> SOLTracker | None:
    """Start tracking a model with the process's tracker, which is made at the first call and reused later. Never raises.

    args: parsed arguments of the script (see `add_sol_arguments`), or None. options: as of `SOLTracker`; they have precedence over
    args. None, and no tracking, where `timing_log_level` in args (or options) is 0, or where a tracker cannot be made.
    """
    level = options.pop("timing_log_level", None)
    if level is None:
        level = read_arguments(args).timing_log_level
    _state.level = level if isinstance(level, int) else ALL_LEVELS
    if _state.level < 1:
        if _state.tracker is not None:
            _state.tracker.close()
        _state.tracker = None
        return None
    if _state.tracker is None or _state.tracker.off:
        try:
            _state.tracker = SOLTracker(**options)  # type: ignore[arg-type]
        except Exception as error:
            log.warning("SOL tracking does not start: %s: %s", type(error).__name__, error)
            return None
    _state.tracker.initialize(model, args)
    return _state.tracker


def get_sol_tracker() -> SOLTracker | None:
    """Return the tracker of the process; None before `initialize_sol`, and where tracking is off."""
    return _state.tracker


def clear_sol_captures() -> None:
    """Drop what was captured of the current iteration, which begins anew."""
    if _state.tracker is not None:
        _state.tracker.clear()


def log_training_sol(iteration: int, clear: bool = True) -> None:
    """End the iteration: analyze, write and log it under that number."""
    if _state.tracker is not None:
        _state.tracker.log_analysis(iteration, clear)


def sol_nvtx_range(name: str, log_level: int = 1) -> AbstractContextManager[None]:
    """Return a phase of the training loop, also as an NVTX range and as a range in a running torch.profiler.

    Active where 1 <= log_level <= timing_log_level; else it does nothing. Both end with the block, also when an exception is raised in it.
    Before `initialize_sol` the ranges of the profilers are there, and no phase.
    """
    if not 1 <= log_level <= _state.level:
        return _NOTHING
    tracker = _state.tracker
    return tracker.phase(name) if tracker is not None else _Marked(name)


class _Nothing:
    """Is a range that does nothing."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return None


class _Marked:
    """Is a range for profilers alone."""

    __slots__ = ("_mark", "_name")

    def __init__(self, name: object) -> None:
        self._name = name
        self._mark: Mark | None = None

    def __enter__(self) -> None:
        self._mark = open_mark(phase_name(self._name), nvtx_usable())

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        close_mark(self._mark)


_NOTHING: Final = _Nothing()
