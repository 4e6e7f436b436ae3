"""Callbacks for training frameworks. Each file imports its framework, so import the one you use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tb_sol_plugin.capture.context import capture

if TYPE_CHECKING:
    from torch.nn import Module

    from tb_sol_plugin.capture.tracker import SOLTracker


# -- Opens, steps and closes one capture by the events of a trainer; the callbacks share it --------------------------


class Tracking:
    """Follows the events of a trainer. They may come in any order and without their counterpart: each call does what is left to do.

    options: as of `capture`.
    """

    def __init__(self, options: dict[str, object]) -> None:
        self._options = options
        self._tracker: SOLTracker | None = None
        self._open: list[str] = []

    def start(self, logdir: str | None, model: Module | None, first: int) -> None:
        """Open the capture; `first` is the number of the first iteration, after a resumed run above 0."""
        self.stop(complete=False)
        self._tracker = capture(logdir, model=model, first_iteration=first, **self._options)  # type: ignore[arg-type]

    def step(self) -> None:
        """End the iteration."""
        self.leave()
        if self._tracker is not None:
            self._tracker.step()

    def enter(self, phase: str) -> None:
        """Begin a phase; the phase of the event before ends, since trainers' phases follow each other."""
        self.leave()
        if self._tracker is not None:
            self._tracker.push_phase(phase)
            self._open.append(phase)

    def leave(self, phase: str = "") -> None:
        """End the open phase; with a name, only that one."""
        while self._tracker is not None and self._open and phase in ("", self._open[-1]):
            self._tracker.pop_phase()
            self._open.pop()

    def stop(self, *, complete: bool) -> None:
        """Close the capture. complete: the iteration that is open has come to its end."""
        self.leave()
        if complete:
            self.step()
        if self._tracker is not None:
            self._tracker.close()
        self._tracker = None
