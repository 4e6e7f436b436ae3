"""Sampled iterations: the instrumentation goes on the model where one begins and comes off where it ends."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tb_sol_plugin.capture.hooks.instrument import Collected, Instrumentation
    from tb_sol_plugin.capture.loop.environment import Environment, TrackedModels
    from tb_sol_plugin.capture.loop.guard import Guard
    from tb_sol_plugin.capture.loop.schedule import Schedule

_active: Final[weakref.WeakSet[Sampling]] = weakref.WeakSet()
"""Those of all trackers that are in a sampled iteration; one at most."""


class Sampling:
    """Counts the work of the iterations that the schedule names. time_layers: with a pair of device events around each lowest module."""

    def __init__(
        self,
        instrumentation: Instrumentation,
        schedule: Schedule,
        tracked: TrackedModels,
        environment: Environment,
        *,
        guard: Guard,
        note: Callable[[str, str], None],
        time_layers: bool,
    ) -> None:
        self.instrumentation = instrumentation
        self._schedule, self._tracked, self._environment = schedule, tracked, environment
        self._guard, self._note, self._time_layers = guard, note, time_layers

    @property
    def on(self) -> bool:
        """Whether the work of the iteration that runs is counted."""
        return self.instrumentation.on

    def begin(self) -> bool:
        """Instrument the iteration that begins, if it is due. Returns whether it was; one that could not be had is made up for later."""
        schedule = self._schedule
        schedule.owed = due = schedule.samples()
        if due:
            self._environment.find_events()
            if len(_active):
                self._note("two_trackers", "another tracker counts this iteration; this one counts a later one")
            elif self._guard.attempt("watch", self._enter, False):
                _active.add(self)
                schedule.owed = False
        return due

    def _enter(self) -> bool:
        tracked = self._tracked
        return self.instrumentation.enter(tracked.given, tracked.models, self._environment.events, layers=self._time_layers)

    def leave(self) -> None:
        """Take everything off at the end of a sampled iteration; `collect` answers what it left."""
        _active.discard(self)
        self.instrumentation.leave()

    def collect(self) -> Collected:
        """Return what the sampled iteration left, after `leave`."""
        tracked, instrumentation = self._tracked, self.instrumentation
        tracked.compiled = tracked.compiled or instrumentation.hooks.saw_compiled
        found = instrumentation.collect(compiled=tracked.compiled)
        tracked.inputs = tracked.inputs or instrumentation.sizes.ids
        return found

    def abandon(self) -> None:
        """Take everything off in the middle of an iteration, which then counts as not sampled. Safe in any state."""
        self._schedule.owed |= self.on
        try:
            self.instrumentation.leave()
        finally:
            _active.discard(self)

    def unwound(self, kind: type[BaseException]) -> None:
        """Abandon a sampled iteration that an exception has left, so that whoever catches it finds nothing of ours on the model."""
        if self.on and self.instrumentation.here():
            self.abandon()
            self._note("interrupted", f"a sampled iteration was given up after {kind.__name__}")
