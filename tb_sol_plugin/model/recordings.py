"""A run: the recordings of one job."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

from tb_sol_plugin.errors import NotFound, Unavailable
from tb_sol_plugin.model.capture import Capture

if TYPE_CHECKING:
    from tb_sol_plugin.model.report import FieldNow, Report, UnavailableReport


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
        from tb_sol_plugin.analyses import get, run_analysis

        raw = {k: str(v) for k, v in query.items()}
        if get(name).pair is not None:
            return self.beside(name, raw, other=other)
        if get(name).runs is not None:
            return self.across(name, raw)
        raw |= {"other": str(other)} if other else {}  # which no other analysis takes
        if get(name).over is None:
            first = next((r for r in self.recordings if r.kind == "kineto"), self.recordings[0])
            return run_analysis(name, self.open(first), raw)
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
        one = shown or self._latest
        parts = self._parts(one, part_maker(name, raw), over.decode, beside=over.beside, told=told)
        return run_over(name, parts, raw, {"run": self.name, "worker": one.worker, "span": one.span})

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
        from tb_sol_plugin.analyses import get, nothing_beside, part_maker, run_pair

        pair = get(name).pair
        assert pair is not None
        if self._pairs is None:
            raise NotFound("this run knows of no other recording", hint="open it with tb_sol_plugin.open", field="other_run")
        one = shown or self._latest
        if isinstance(other, str):
            raw = {**raw, "other_run": other} if other else raw
        elsewhere = other.recordings if isinstance(other, Run) else ()
        selection = {"run": self.name, "worker": one.worker, "span": one.span}
        maker = part_maker(name, raw)
        try:
            here, there, stands = self._pairs(one, raw, maker, pair.decode, beside=pair.beside, told=told, other=elsewhere)
        except Unavailable:
            return nothing_beside(name, raw, selection)
        return run_pair(name, here, there, raw, selection, stands)

    def across(
        self, name: str, raw: dict[str, str], shown: Recording | None = None, told: Callable[[int, int], None] = lambda done, total: None
    ) -> Report | UnavailableReport:
        """An analysis over all runs of the place that this one is of; of a run that knows no others, over itself."""
        from tb_sol_plugin.analyses import get, part_maker, run_runs, runs_of

        runs = get(name).runs
        assert runs is not None
        files: list[BesideFile] = []
        if self._everywhere is None:
            parts = self._parts(shown or self._latest, part_maker(name, raw), runs.decode, beside=runs.beside, told=told)
        else:
            parts, files = self._everywhere(
                part_maker(name, raw), runs.decode, runs_of(name, raw, self.name), beside=runs.beside, told=told, files=runs.files
            )
        return run_runs(name, parts, files, raw, {"run": self.name})

    @property
    def _latest(self) -> Recording:
        """The latest recording of the first worker, a trace before others."""
        traces = [r for r in self.recordings if r.kind == "kineto"] or self.recordings
        return [r for r in traces if r.worker == traces[0].worker][-1]


# -- What an analysis over all workers of a run gets -----------------------------------------------------------------


P_co = TypeVar("P_co", bound=msgspec.Struct, covariant=True)
WorkerState: TypeAlias = Literal["read", "waiting", "failed", "lacking"]
"""read: its part is there. waiting: it is being read. failed: its file cannot be. lacking: it does not hold what is needed."""


class WorkerFacts(msgspec.Struct, frozen=True):
    """What is known of a worker's capture whatever is asked. None and "" are unknown; extent_ns as in `Facts`, from origin_ns."""

    source: str
    rank: int | None
    world_size: int | None
    host_name: str
    vendor: str
    devices: tuple[str, ...]
    origin_ns: int
    absolute: bool
    extent_ns: tuple[int, int]


class Lack(msgspec.Struct, frozen=True):
    """Why a capture has no part. error: a BadQuery (a step that it does not have) rather than something that was not recorded."""

    because: str
    record_it_with: str = ""
    argument: str = ""
    error: bool = False
    field: str = ""


class Made(msgspec.Struct, frozen=True):
    """What making a part leaves behind, as it stands on disk. body: the part, encoded; empty where it lacks something."""

    facts: WorkerFacts
    body: bytes = b""
    lack: Lack | None = None


class Maker(Protocol):
    """Makes the part of a capture; can be sent to another process. key: changes with whatever the part depends on besides the capture."""

    @property
    def key(self) -> str: ...

    def __call__(self, capture: Capture) -> Made: ...


@dataclass(frozen=True)
class WorkerPart(Generic[P_co]):
    """One worker of a run. problem and hint: of a failed or lacking one. rank: as recorded, else as its name says, else None.
    key: changes with the part. run: name of its run.

    The encoded part is fetched by `body` when it is asked for, so that going over all workers holds one of them at a time.
    """

    worker: str
    span: str
    file: str
    state: WorkerState
    rank: int | None = None
    facts: WorkerFacts | None = None
    problem: str = ""
    hint: str = ""
    lack: Lack | None = None
    key: str = ""
    run: str = ""
    body: Callable[[], bytes] = field(default=bytes, repr=False, compare=False)
    decode: Callable[[bytes], P_co] | None = field(default=None, repr=False, compare=False)

    @property
    def part(self) -> P_co:
        """What the analysis made of this worker; only of one that was read."""
        assert self.state == "read" and self.decode is not None
        return self.decode(self.body())

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: by rank where known, the others by name, numbers as numbers."""
        return (self.rank is None, self.rank or 0, natural(self.worker))


class BesideFile(msgspec.Struct, frozen=True):
    """A small text file that a person laid beside recordings. run: whose folder it lies in, "" the logdir's own. problem: why it is
    empty."""

    run: str
    file: str
    text: str
    problem: str = ""


@dataclass(frozen=True)
class Side(Generic[P_co]):
    """One of two recordings that are set beside each other.

    name: what tells it from the other one, as short as may be: a run, a rank, a span. run: its run. of: its worker with the part.
    chosen: how it was found where the reader left it open, "" where the reader named it.
    """

    name: str
    run: str
    of: WorkerPart[P_co]
    chosen: str = ""

    @property
    def part(self) -> P_co:
        """What the analysis made of it."""
        return self.of.part


def facts_of(capture: Capture) -> WorkerFacts:
    """The facts of a capture that go with every part."""
    f = capture.facts
    names = tuple(dict.fromkeys(d.name for d in f.devices if d.name))
    return WorkerFacts(f.source, f.rank, f.world_size, f.host_name, f.vendor, names, f.origin_ns, f.absolute, f.extent_ns)
