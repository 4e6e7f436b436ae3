"""Defines a recording (one file of a run), and what analyses over several recordings get of each."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture


SNAPSHOT: Final = "memory_snapshot"
TIMELINE: Final = "memory_timeline"
WORDS: Final = {SNAPSHOT: "allocator snapshot", TIMELINE: "memory timeline"}
"""Kinds of memory files that are attached to a recording, and what a page calls them."""


GRAPH_CAPTURE: Final = "graph_capture"
GRAPH_DETAILS: Final = "graph_details"
"""Kinds of files about the capture of graphs: a trace of the time when they were captured, and a list of what each trace was made for."""
EAGER_RUN: Final = "eager_run"
"""GRAPH_CAPTURE and this are keys of `Facts.metadata`: files of captures and of eager runs that name what graphs replay here."""


class Recording(msgspec.Struct, frozen=True):
    """One file of a run. `path` opens through fsspec; `file` is logdir-relative and the only name that leaves the server.

    captures: of a trace the files (GRAPH_CAPTURE, GRAPH_DETAILS) that name what its graph launches replay.
    """

    run: str
    worker: str
    span: str
    path: str
    file: str
    size: int
    mtime: float
    kind: str = "kineto"
    captures: tuple[Recording, ...] = ()


class OtherNames(Struct, frozen=True):
    """Names of the other one of two recordings as a reader gives them; "" is left open."""

    run: str = ""
    worker: str = ""
    span: str = ""

    @classmethod
    def of(cls, raw: Mapping[str, str]) -> OtherNames:
        """Reads the names from the query fields of a pair."""
        return cls(*(raw.get(f"other_{name}", "").strip() for name in ("run", "worker", "span")))

    @property
    def fields(self) -> dict[str, str]:
        """The query fields of a pair that give these names."""
        given = {"other_run": self.run, "other_worker": self.worker, "other_span": self.span}
        return {name: text for name, text in given.items() if text}


def natural(text: str) -> tuple[tuple[int, int, str], ...]:
    """Sort key with numbers as numbers: rank 2 before rank 10."""
    return tuple((0, int(p), "") if p.isdigit() else (1, 0, p) for p in re.split(r"(\d+)", text) if p)


# -- what an analysis over several recordings gets -------------------------------------------------------------------


P_co = TypeVar("P_co", bound=msgspec.Struct, covariant=True)
ReductionState: TypeAlias = Literal["read", "waiting", "failed", "lacking"]
"""read: its reduction is there. waiting: it is being read. failed: its file cannot be. lacking: it does not hold what is needed."""


class ReducedFacts(msgspec.Struct, frozen=True):
    """Facts of a recording that go with every reduction. None and "" are unknown; extent_ns as in `Facts`, from origin_ns."""

    source: str
    rank: int | None
    world_size: int | None
    host_name: str
    vendor: str
    devices: tuple[str, ...]
    origin_ns: int
    absolute: bool
    extent_ns: tuple[int, int]


class Missing(msgspec.Struct, frozen=True):
    """What a recording lacks, and how to record it. error: a BadQuery (a step that it does not have) rather than something not recorded."""

    because: str
    record_it_with: str = ""
    argument: str = ""
    error: bool = False
    field: str = ""


class Reduced(msgspec.Struct, frozen=True):
    """What was reduced from one recording, as it stands on disk. body: the encoded struct; empty where something is missing."""

    facts: ReducedFacts
    body: bytes = b""
    missing: Missing | None = msgspec.field(default=None, name="lack")


class Reducer(Protocol):
    """Reduces a capture; can be sent to another process. key: changes with what the result depends on besides it."""

    @property
    def key(self) -> str: ...

    def __call__(self, capture: Capture) -> Reduced: ...


class ResultsKept(Protocol):
    """Keeps what was made of several reductions, by name, for the next process that has the same code."""

    def mapped(self, name: str) -> memoryview | None:
        """Returns what was kept, checked; None where nothing was."""

    def save(self, name: str, pieces: Sequence[bytes | memoryview]) -> None:
        """Keeps pieces that follow one another; nothing where the disk does not let us."""


@dataclass(frozen=True)
class RecordingReduction(Generic[P_co]):
    """One recording of a run with what was reduced from it. problem and hint: of a failed or lacking one. rank: as recorded, else as
    its name states, else None. key: changes with the reduction. run: name of its run. shown: whether, over several runs, that is the one
    that is selected. place: where results of several are kept, None nowhere.

    The encoded reduction is fetched by `body` on each access, so that going over all recordings keeps one of them at a time.
    """

    worker: str
    span: str
    file: str
    state: ReductionState
    rank: int | None = None
    facts: ReducedFacts | None = None
    problem: str = ""
    hint: str = ""
    missing: Missing | None = None
    key: str = ""
    run: str = ""
    shown: bool = False
    body: Callable[[], bytes] = field(default=bytes, repr=False, compare=False)
    decode: Callable[[bytes], P_co] | None = field(default=None, repr=False, compare=False)
    place: ResultsKept | None = field(default=None, repr=False, compare=False)

    @property
    def reduced(self) -> P_co:
        """What the analysis reduced from this recording; only of one that was read."""
        assert self.state == "read" and self.decode is not None
        return self.decode(self.body())

    @property
    def order(self) -> tuple[object, ...]:
        """Sort key: by rank where known, the others by name, numbers as numbers."""
        return (self.rank is None, self.rank or 0, natural(self.worker))


class Sidecar(msgspec.Struct, frozen=True):
    """A small text file next to recordings. run: the run in whose folder it lies, "" the logdir. problem: why it is empty."""

    run: str
    file: str
    text: str
    problem: str = ""


@dataclass(frozen=True)
class Compared(Generic[P_co]):
    """One of two recordings that are compared.

    name: what tells it from the other one, as short as may be: a run, a rank, a span. run: its run. of: its reduction.
    chosen: how it was found where the reader left it open, "" where the reader named it.
    """

    name: str
    run: str
    of: RecordingReduction[P_co]
    chosen: str = ""

    @property
    def reduced(self) -> P_co:
        """What the analysis reduced from it."""
        return self.of.reduced


def facts_of(capture: Capture) -> ReducedFacts:
    """Returns the facts of a capture that go with every reduction."""
    f = capture.facts
    names = tuple(dict.fromkeys(d.name for d in f.devices if d.name))
    return ReducedFacts(f.source, f.rank, f.world_size, f.host_name, f.vendor, names, f.origin_ns, f.absolute, f.extent_ns)
