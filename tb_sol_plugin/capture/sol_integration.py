"""Keeps one tracker for a training script that is organized around functions.

    initialize_sol(model, args)             # before the first forward pass
    for iteration in range(...):
        clear_sol_captures()
        with sol_nvtx_range("forward", 1):
            ...
        log_training_sol(iteration)

All of it may stay in a script that does not track: without a tracker, and with `--timing-log-level 0`, nothing happens. A tracker that
`sol.capture` started is used too: the functions act on the current one.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, cast

from tb_sol_plugin.capture.current import current_tracker, phase
from tb_sol_plugin.capture.loop.guard import log
from tb_sol_plugin.capture.loop.schedule import ALL_LEVELS, read_arguments
from tb_sol_plugin.capture.tracker import SOLTracker


class _State:
    """Keeps the tracker that `initialize_sol` made, and up to which level ranges are active."""

    def __init__(self) -> None:
        self.tracker: SOLTracker | None = None
        self.level = ALL_LEVELS


_state: Final = _State()


def initialize_sol(model: object, args: object = None, **options: object) -> SOLTracker | None:
    """Start tracking a model with a tracker that is made at the first call and reused later. Never raises.

    args: parsed arguments of the script (see `add_sol_arguments`), or None. options: as of `SOLTracker`; they have precedence over
    args. None, and no tracking, where `timing_log_level` in args (or options) is 0, or where a tracker cannot be made. A tracker without a
    folder writes no file; unless `logdir=None` asks for that, a warning says so.
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
    tracker = _state.tracker
    if tracker is not None and not tracker.off:
        tracker.initialize(model, args)
        return tracker
    try:
        _state.tracker = tracker = SOLTracker(**options)  # type: ignore[arg-type]
    except Exception as error:
        log.warning("SOL tracking does not start: %s: %s", type(error).__name__, error)
        return None
    tracker.initialize(model, args)
    if tracker.logdir is None and "logdir" not in options and tracker.first_rank:
        log.warning(
            "initialize_sol has no folder, so that no capture file is written: pass logdir=..., "
            "or arguments of the script with sol_logdir or tensorboard_dir."
        )
    return tracker


def get_sol_tracker() -> SOLTracker | None:
    """Return the current tracker of the process, by whichever interface it was started; None where none runs, and at level 0."""
    return None if _state.level < 1 else cast("SOLTracker | None", current_tracker())


def clear_sol_captures() -> None:
    """Drop what was captured of the current iteration, which begins anew."""
    tracker = get_sol_tracker()
    if tracker is not None:
        tracker.clear()


def log_training_sol(iteration: int, clear: bool = True) -> None:
    """End the iteration: analyze, write and log it under that number."""
    tracker = get_sol_tracker()
    if tracker is not None:
        tracker.log_analysis(iteration, clear)


def sol_nvtx_range(name: str, log_level: int = 1) -> AbstractContextManager[None]:
    """Return a phase of the current tracker, also as an NVTX range and as a range in a running torch.profiler.

    Active where 1 <= log_level <= timing_log_level; else it does nothing. Both end with the block, also when an exception is raised in it.
    Without a tracker the ranges of the profilers are there, and no phase; a warning says so once.
    """
    return phase(name) if 1 <= log_level <= _state.level else nullcontext()
