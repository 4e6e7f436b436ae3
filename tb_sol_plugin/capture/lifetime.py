"""All trackers of the process: they are closed when it exits, and let go of everything in a process that was forked from it."""

from __future__ import annotations

import atexit
import os
import weakref
from typing import Final, Protocol

from tb_sol_plugin.capture.boundary import log


class Tracker(Protocol):
    """What is asked of a tracker; neither raises."""

    def end(self, *, report: bool) -> None: ...
    def forked(self) -> None: ...


_alive: Final[weakref.WeakSet[Tracker]] = weakref.WeakSet()


def follow(tracker: Tracker) -> None:
    """See to the end of a tracker, without keeping it alive."""
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
