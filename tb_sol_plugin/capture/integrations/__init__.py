"""Callbacks for training frameworks. Each file imports its framework, so import the one you use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tb_sol_plugin.capture.context import capture
from tb_sol_plugin.capture.current import DATA_LOADING as DATA_LOADING

if TYPE_CHECKING:
    from torch.nn import Module

    from tb_sol_plugin.capture.tracker import SOLTracker

CHECKPOINT = "checkpoint"

# -- Opens, steps and closes one capture by the events of a trainer; the callbacks share it --------------------------


class Tracking:
    """Follows the events of a trainer. They may come in any order and without their counterpart: each call does what is left to do.

    options: as of `capture`.
    """

    def __init__(self, options: dict[str, object]) -> None:
        self._options = options
        self._tracker: SOLTracker | None = None
        self._open: list[str] = []

    def start(self, logdir: str | None, model: Module | None, first: int, optimizer: object = None) -> None:
        """Open the capture; `first` is the number of the first iteration, after a resumed run above 0."""
        self.stop(complete=False)
        given = {"optimizer": optimizer, **self._options}
        self._tracker = capture(logdir, model=model, first_iteration=first, **given)  # type: ignore[arg-type]

    def step(self) -> None:
        """End the iteration."""
        self.leave()
        if self._tracker is not None:
            self._tracker.step()

    def enter(self, phase: str, *, inside: bool = False) -> None:
        """Begin a phase. That of the event before ends, since trainers' phases follow each other, unless this one is `inside` of it."""
        if not inside:
            self.leave()
        if self._tracker is not None:
            self._tracker.push_phase(phase)
            self._open.append(phase)

    def within(self, phase: str) -> bool:
        """Return whether that phase is open."""
        return phase in self._open

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
