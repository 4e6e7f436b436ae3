"""Profiler traces that a recording takes by itself, of iterations that follow a sampled one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tb_sol_plugin.capture.loop.environment import Environment
    from tb_sol_plugin.capture.loop.guard import Guard
    from tb_sol_plugin.capture.loop.profiling import DrivenProfiler
    from tb_sol_plugin.capture.loop.schedule import Schedule


class ProfilerTraces:
    """Starts and stops the profiler; nothing of it is loaded before the first trace. stacks, memory: as of `DrivenProfiler`."""

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
            from tb_sol_plugin.capture.loop.profiling import DrivenProfiler

            self._profiler = DrivenProfiler(environment.logdir, environment.worker, self._note, stacks=self._stacks, memory=self._memory)
        if self._profiler.start(environment.kind):
            self._schedule.traces -= 1

    def restart(self) -> None:
        """Begin the traced iteration anew."""
        if self._profiler is not None and self._profiler.running:
            self._profiler.restart()

    def stop(self, number: int | None) -> None:
        """Write the trace of the iteration with that number; None drops it. Never raises."""
        profiler = self._profiler
        if profiler is not None and profiler.running:
            self._guard.attempt("profiler", lambda: profiler.stop(number), None)
