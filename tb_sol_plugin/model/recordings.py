"""A run: the recordings of one job."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Literal, Protocol, TypeAlias, TypeVar

import msgspec

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture


SNAPSHOT: Final = "memory_snapshot"
TIMELINE: Final = "memory_timeline"
WORDS: Final = {SNAPSHOT: "allocator snapshot", TIMELINE: "memory timeline"}
"""Kinds of memory files that lie beside a recording, and what a page calls them."""


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


class Missing(msgspec.Struct, frozen=True):
    """What a recording lacks, and how to record it. error: a BadQuery (a step that it does not have) rather than something not recorded."""

    because: str
    record_it_with: str = ""
    argument: str = ""
    error: bool = False
    field: str = ""


class Reduced(msgspec.Struct, frozen=True):
    """What was reduced from one recording, as it stands on disk. body: the encoded struct; empty where something is missing."""

    facts: WorkerFacts
    body: bytes = b""
    missing: Missing | None = msgspec.field(default=None, name="lack")


class Reducer(Protocol):
    """Reduces a capture; can be sent to another process. key: changes with what the result depends on besides it."""

    @property
    def key(self) -> str: ...

    def __call__(self, capture: Capture) -> Reduced: ...


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
    missing: Missing | None = None
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
