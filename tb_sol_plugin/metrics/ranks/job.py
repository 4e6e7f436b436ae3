"""The ranks of a job: which of them have a recording, which are missing, and which are recorded more than once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, TypeVar

import msgspec
import numpy as np

from tb_sol_plugin.model.recordings import WorkerPart
from tb_sol_plugin.tables.arrays import Mask

P = TypeVar("P", bound=msgspec.Struct)


@dataclass(frozen=True, eq=False)
class Ranks(Generic[P]):
    """The recordings of a run, in order of rank.

    read: those that could be read. counts: of these, which are part of statistics over ranks: of several recordings of one rank the
    longest alone. excluded: those that are waiting, failed, or lack what is needed. world_size: ranks of the job, None if unknown;
    world_sizes: every size that a recording states. missing: ranks of the job without a recording, empty if unknown. duplicates: rank to
    the workers that recorded it, where there are several.
    """

    read: tuple[WorkerPart[P], ...]
    counts: Mask
    excluded: tuple[WorkerPart[P], ...]
    world_size: int | None
    world_sizes: tuple[int, ...]
    missing: tuple[int, ...]
    duplicates: dict[int, tuple[str, ...]]

    @property
    def total(self) -> int:
        """Recordings of the run."""
        return len(self.read) + len(self.excluded)

    @property
    def compared(self) -> int:
        """Ranks that statistics are made of."""
        return int(self.counts.sum())

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The label of each recording that was read."""
        return tuple(label(w) for w in self.read)

    @property
    def numbered(self) -> bool:
        """Whether the rank of every recording that was read is known."""
        return all(w.rank is not None for w in self.read)


def _longest_of_each_rank(read: Sequence[WorkerPart[P]], often: Counter[int], length: Callable[[WorkerPart[P]], int]) -> Mask:
    """Mark the recordings that count: of several with one rank the longest, of equal ones the first."""
    longest: dict[int, tuple[int, int]] = {}
    counts = np.ones(len(read), np.bool_)
    for at, one in enumerate(read):
        if one.rank is None or often[one.rank] == 1:
            continue
        own = length(one)
        if one.rank in longest and own <= longest[one.rank][0]:
            counts[at] = False
        else:
            if one.rank in longest:
                counts[longest[one.rank][1]] = False
            longest[one.rank] = (own, at)
    return counts


def ranks_of(workers: Sequence[WorkerPart[P]], length: Callable[[WorkerPart[P]], int]) -> Ranks[P]:
    """Sort the recordings of a run into ranks.

    length: of a recording, in ns; asked only of recordings that share a rank. Of equal ones the first counts.
    """
    ordered = sorted(workers, key=lambda w: w.order)
    often = Counter(w.rank for w in ordered if w.rank is not None)
    read = tuple(w for w in ordered if w.state == "read")
    counts = _longest_of_each_rank(read, often, length)
    stated = tuple(sorted({w.facts.world_size for w in ordered if w.facts is not None and w.facts.world_size}))
    size = max(stated) if stated and max(stated) > max(often, default=0) else None
    known = size is not None and all(w.rank is not None for w in ordered)
    return Ranks(
        read, counts, tuple(w for w in ordered if w.state != "read"), size, stated,
        tuple(r for r in range(size) if r not in often) if known and size is not None else (),
        {r: tuple(w.worker for w in ordered if w.rank == r) for r, count in often.items() if count > 1},
    )  # fmt: skip


def label(worker: WorkerPart[P]) -> str:
    """The name of a recording in text: its rank, else the name of its worker."""
    return worker.worker if worker.rank is None else f"rank {worker.rank}"
