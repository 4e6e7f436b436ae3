"""A run: the recordings of one job, and the analyses that are asked of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tb_sol_plugin.model.answer import AnalysisRequest, RecordingSource, answer
from tb_sol_plugin.model.recordings import Recording, natural
from tb_sol_plugin.model.registry import get

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.report import Report, UnavailableReport


class Run:
    """Recordings in natural order (worker, then span). source: opens them on demand, and reduces them for analyses over several."""

    def __init__(self, name: str, recordings: Sequence[Recording], source: RecordingSource) -> None:
        self.name = name
        self.recordings = sorted(recordings, key=lambda r: (natural(r.worker), natural(r.span)))
        self.source = source

    @property
    def workers(self) -> list[str]:
        """Worker names in natural order."""
        return list(dict.fromkeys(r.worker for r in self.recordings))

    def spans(self, worker: str) -> list[str]:
        """Span names of a worker in natural order."""
        return [r.span for r in self.recordings if r.worker == worker]

    def open(self, recording: Recording) -> Capture:
        """One of the recordings, without opening the others."""
        return self.source.open(recording)

    @cached_property
    def captures(self) -> list[Capture]:
        """One per worker and span. Opens all of them."""
        return [self.source.open(r) for r in self.recordings]

    def analyze(self, name: str, *, other: Run | str = "", **query: object) -> Report | UnavailableReport:
        """An analysis over all workers of the run, each with its latest recording; of another analysis that of the first
        recording, a trace before what is read together with it.

        other: for an analysis over two recordings, the run to set beside this one: itself, its name, or its path.
        """
        raw, scope = {k: str(v) for k, v in query.items()}, get(name).scope
        elsewhere: Sequence[Recording] = ()
        if scope == "pair" and isinstance(other, Run):
            elsewhere = other.recordings
        elif scope == "pair":
            raw |= {"other_run": str(other)} if other else {}
        elif scope != "runs":
            raw |= {"other": str(other)} if other else {}  # which no other analysis takes
        shown = self._latest if scope in ("ranks", "pair", "runs") else self._first
        return answer(AnalysisRequest(name, raw, shown, self.name, elsewhere), self.source)

    @property
    def _first(self) -> Recording:
        """The first recording, a trace before others."""
        return next((r for r in self.recordings if r.kind == "kineto"), self.recordings[0])

    @property
    def _latest(self) -> Recording:
        """The latest recording of the first worker, a trace before others."""
        traces = [r for r in self.recordings if r.kind == "kineto"] or self.recordings
        return [r for r in traces if r.worker == traces[0].worker][-1]
