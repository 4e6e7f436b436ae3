"""A run: the recordings of one job."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.report import Report, UnavailableReport


class Recording(msgspec.Struct, frozen=True):
    """One file of a run. `path` opens through fsspec; `file` is logdir-relative and the only name that leaves the server."""

    run: str
    worker: str
    span: str
    path: str
    file: str
    size: int
    mtime: float
    kind: str = "kineto"


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key with numbers as numbers: rank 2 before rank 10."""
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", text) if p)


class Run:
    """Recordings in natural order (worker, then span); captures are opened on demand by `opener`."""

    def __init__(self, name: str, recordings: Sequence[Recording], opener: Callable[[Recording], Capture]) -> None:
        self.name = name
        self.recordings = sorted(recordings, key=lambda r: (natural(r.worker), natural(r.span)))
        self._opener = opener

    @property
    def workers(self) -> list[str]:
        """Worker names in natural order."""
        return list(dict.fromkeys(r.worker for r in self.recordings))

    def spans(self, worker: str) -> list[str]:
        """Span names of a worker in natural order."""
        return [r.span for r in self.recordings if r.worker == worker]

    def open(self, recording: Recording) -> Capture:
        """One of the recordings, without opening the others."""
        return self._opener(recording)

    @cached_property
    def captures(self) -> list[Capture]:
        """One per worker and span. Opens all of them."""
        return [self._opener(r) for r in self.recordings]

    def analyze(self, name: str, **query: object) -> Report | UnavailableReport:
        """An analysis over the run; with one capture the same as `captures[0].analyze`."""
        from tb_sol_plugin.analyses import run_analysis

        return run_analysis(name, self.captures[0], {k: str(v) for k, v in query.items()})
