"""A run: the recordings of one job."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.report import Report, UnavailableReport
    from tb_sol_plugin.model.workers import Maker, WorkerPart

P = TypeVar("P", bound=msgspec.Struct)


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


class PartsReader(Protocol):
    """Of every worker of a run the part that `maker` makes of its recording that goes with the one shown, in natural order.

    beside: parts read what traces have from SOL captures. told: called with (workers done, workers in all) before each of them.
    """

    def __call__(
        self, shown: Recording, maker: Maker, decode: Callable[[bytes], P], *, beside: bool, told: Callable[[int, int], None]
    ) -> list[WorkerPart[P]]: ...


class Run:
    """Recordings in natural order (worker, then span); captures are opened on demand by `opener`, parts of them made by `parts`."""

    def __init__(self, name: str, recordings: Sequence[Recording], opener: Callable[[Recording], Capture], parts: PartsReader) -> None:
        self.name = name
        self.recordings = sorted(recordings, key=lambda r: (natural(r.worker), natural(r.span)))
        self._opener = opener
        self._parts = parts

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
        """An analysis over all workers of the run, each with its latest recording; of another analysis that of the first recording."""
        from tb_sol_plugin.analyses import get, run_analysis

        raw = {k: str(v) for k, v in query.items()}
        if get(name).over is None:
            return run_analysis(name, self.open(self.recordings[0]), raw)
        return self.compare(name, raw)

    def compare(
        self, name: str, raw: dict[str, str], shown: Recording | None = None, told: Callable[[int, int], None] = lambda done, total: None
    ) -> Report | UnavailableReport:
        """An analysis over all workers. Captures are opened one after the other, and none is kept.

        shown: of other workers the recording that goes with this one is taken: the third with the third; without it the first worker's
        latest. told: called with (workers done, workers in all).
        """
        from tb_sol_plugin.analyses import get, part_maker, run_over

        over = get(name).over
        assert over is not None
        traces = [r for r in self.recordings if r.kind == "kineto"] or self.recordings
        latest = [r for r in traces if r.worker == traces[0].worker][-1]
        one = shown or latest
        parts = self._parts(one, part_maker(name, raw), over.decode, beside=over.beside, told=told)
        return run_over(name, parts, raw, {"run": self.name, "worker": one.worker, "span": one.span})
