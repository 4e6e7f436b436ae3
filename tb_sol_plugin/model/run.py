"""A run: the recordings of one job, and the analyses that are asked of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from tb_sol_plugin.errors import NotFound, Unavailable
from tb_sol_plugin.model import registry as R
from tb_sol_plugin.model.recordings import BesideFile, Maker, Recording, Side, WorkerPart, natural

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture
    from tb_sol_plugin.model.report import FieldNow, Report, UnavailableReport

P = TypeVar("P", bound=msgspec.Struct)


class PartsReader(Protocol):
    """Of every worker of a run the part that `maker` makes of its recording that goes with the one shown, in natural order.

    beside: parts read what traces have from SOL captures. told: called with (workers done, workers in all) before each of them.
    """

    def __call__(
        self, shown: Recording, maker: Maker, decode: Callable[[bytes], P], *, beside: bool, told: Callable[[int, int], None]
    ) -> list[WorkerPart[P]]: ...


class PairReader(Protocol):
    """The recording shown and the one beside it with the parts that `maker` makes of them, and how the fields stand that name the other.

    raw: query fields, among which those of a `PairQuery` name the other one. other: recordings of a run that is not of this place.
    """

    def __call__(
        self, shown: Recording, raw: Mapping[str, str], maker: Maker, decode: Callable[[bytes], P], *, beside: bool,
        told: Callable[[int, int], None], other: Sequence[Recording] = (),
    ) -> tuple[Side[P], Side[P], dict[str, FieldNow]]: ...  # fmt: skip


class RunsReader(Protocol):
    """Of every worker of all runs there the part of its latest recording, and the small files of some names beside them."""

    def __call__(
        self, maker: Maker, decode: Callable[[bytes], P], choose: Callable[[Sequence[str]], Sequence[str]], *, beside: bool,
        told: Callable[[int, int], None], files: Sequence[str],
    ) -> tuple[list[WorkerPart[P]], list[BesideFile]]: ...  # fmt: skip


class Run:
    """Recordings in natural order (worker, then span); captures are opened on demand by `opener`, parts of them made by `parts`.

    pairs: sets another recording beside one of them; everywhere: reads all runs of its place; None where that cannot be.
    """

    def __init__(
        self,
        name: str,
        recordings: Sequence[Recording],
        opener: Callable[[Recording], Capture],
        parts: PartsReader,
        pairs: PairReader | None = None,
        everywhere: RunsReader | None = None,
    ) -> None:
        self.name = name
        self.recordings = sorted(recordings, key=lambda r: (natural(r.worker), natural(r.span)))
        self._opener = opener
        self._parts = parts
        self._pairs = pairs
        self._everywhere = everywhere

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

    def analyze(self, name: str, *, other: Run | str = "", **query: object) -> Report | UnavailableReport:
        """An analysis over all workers of the run, each with its latest recording; of another analysis that of the first
        recording, a trace before what is read together with it.

        other: for an analysis over two recordings, the run to set beside this one: itself, its name, or its path.
        """
        raw = {k: str(v) for k, v in query.items()}
        if R.get(name).pair is not None:
            return self.beside(name, raw, other=other)
        if R.get(name).runs is not None:
            return self.across(name, raw)
        raw |= {"other": str(other)} if other else {}  # which no other analysis takes
        if R.get(name).over is None:
            first = next((r for r in self.recordings if r.kind == "kineto"), self.recordings[0])
            return R.run_analysis(name, self.open(first), raw)
        return self.compare(name, raw)

    def compare(
        self, name: str, raw: dict[str, str], shown: Recording | None = None, told: Callable[[int, int], None] = lambda done, total: None
    ) -> Report | UnavailableReport:
        """An analysis over all workers. Captures are opened one after the other, and none is kept.

        shown: of other workers the recording that goes with this one is taken: the third with the third; without it the first worker's
        latest. told: called with (workers done, workers in all).
        """
        over = R.get(name).over
        assert over is not None
        one = shown or self._latest
        parts = self._parts(one, R.part_maker(name, raw), over.decode, beside=over.beside, told=told)
        return R.run_over(name, parts, raw, {"run": self.name, "worker": one.worker, "span": one.span})

    def beside(
        self,
        name: str,
        raw: dict[str, str],
        shown: Recording | None = None,
        told: Callable[[int, int], None] = lambda done, total: None,
        other: Run | str = "",
    ) -> Report | UnavailableReport:
        """An analysis over two recordings: the one shown (without it the first worker's latest) and the one that `raw` or `other` names.

        What neither names is chosen: a run beside this one, else another worker of it. NotFound where a name is not there.
        """
        pair = R.get(name).pair
        assert pair is not None
        if self._pairs is None:
            raise NotFound("this run knows of no other recording", hint="open it with tb_sol_plugin.open", field="other_run")
        one = shown or self._latest
        if isinstance(other, str):
            raw = {**raw, "other_run": other} if other else raw
        elsewhere = other.recordings if isinstance(other, Run) else ()
        selection = {"run": self.name, "worker": one.worker, "span": one.span}
        maker = R.part_maker(name, raw)
        try:
            here, there, stands = self._pairs(one, raw, maker, pair.decode, beside=pair.beside, told=told, other=elsewhere)
        except Unavailable:
            return R.nothing_beside(name, raw, selection)
        return R.run_pair(name, here, there, raw, selection, stands)

    def across(
        self, name: str, raw: dict[str, str], shown: Recording | None = None, told: Callable[[int, int], None] = lambda done, total: None
    ) -> Report | UnavailableReport:
        """An analysis over all runs of the place that this one is of; of a run that knows no others, over itself."""
        runs = R.get(name).runs
        assert runs is not None
        files: list[BesideFile] = []
        if self._everywhere is None:
            parts = self._parts(shown or self._latest, R.part_maker(name, raw), runs.decode, beside=runs.beside, told=told)
        else:
            parts, files = self._everywhere(
                R.part_maker(name, raw), runs.decode, R.runs_of(name, raw, self.name), beside=runs.beside, told=told, files=runs.files
            )
        return R.run_runs(name, parts, files, raw, {"run": self.name})

    @property
    def _latest(self) -> Recording:
        """The latest recording of the first worker, a trace before others."""
        traces = [r for r in self.recordings if r.kind == "kineto"] or self.recordings
        return [r for r in traces if r.worker == traces[0].worker][-1]
