"""Workers of a run beside each other: who is there, how far their values lie apart, and who lies far from the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.model.recordings import WorkerPart
from tb_sol_plugin.model.report import Column, Notice, TableSection, make_table
from tb_sol_plugin.tables.arrays import Floats, Mask
from tb_sol_plugin.units import human

P = TypeVar("P", bound=msgspec.Struct)

FEWEST: Final = 5
"""Of fewer peers nobody is called far from the others."""
FAR: Final = 3.5
"""Robust z-score from which on a value is far from the others (Iglewicz and Hoaglin)."""
LEAST_SHARE: Final = 0.02
"""A value that differs from the median by no more than this part of it is near."""
NAMED: Final = 8
"""Ranks or workers that a sentence names at most."""

LEFT_OUT: Final = (
    Column("worker", "Worker", doc="worker of the run that is in no number here", show="code"),
    Column("rank", "Rank", doc="its rank, as recorded or as its name says", missing="not known"),
    Column("file", "File", doc="its recording", show="code", missing="it has none"),
    Column("why", "Why", doc="why it is left out", show="text"),
    Column("hint", "What to do", doc="what would bring it in", show="text", missing="nothing"),
)
"""Columns of `left_out`."""


@dataclass(frozen=True)
class Crew(Generic[P]):
    """The workers of a run, in order of rank.

    read: those with a part. counting: of these the ones that numbers over the run are made of: of several with one rank the one that
    `length` says is the longest. world: ranks that the job had, None if unknown. missing: ranks below it without a worker, empty if
    unknown. twice: rank to the workers that say they are it.
    """

    read: tuple[WorkerPart[P], ...]
    counting: frozenset[str]
    without: tuple[WorkerPart[P], ...]
    world: int | None
    worlds: tuple[int, ...]
    missing: tuple[int, ...]
    twice: dict[int, tuple[str, ...]]

    @property
    def total(self) -> int:
        """All workers."""
        return len(self.read) + len(self.without)


def crew(parts: Sequence[WorkerPart[P]], length: Callable[[WorkerPart[P]], int]) -> Crew[P]:
    """Sort the workers of a run. length: of what a worker recorded, in ns."""
    ordered = sorted(parts, key=lambda p: p.order)
    read = tuple(p for p in ordered if p.state == "read")
    longest: dict[int, tuple[int, str]] = {}
    for one in read:
        if one.rank is not None and (one.rank not in longest or length(one) > longest[one.rank][0]):
            longest[one.rank] = (length(one), one.worker)
    counting = frozenset(p.worker for p in read if p.rank is None or longest[p.rank][1] == p.worker)
    often = Counter(p.rank for p in ordered if p.rank is not None)
    worlds = tuple(sorted({p.facts.world_size for p in ordered if p.facts is not None and p.facts.world_size}))
    ranks = {p.rank for p in ordered if p.rank is not None}
    world = max(worlds) if worlds and max(worlds) > max(ranks, default=0) else None
    known = world is not None and all(p.rank is not None for p in ordered)
    return Crew(
        read, counting, tuple(p for p in ordered if p.state != "read"), world, worlds,
        tuple(r for r in range(world) if r not in ranks) if known and world is not None else (),
        {r: tuple(p.worker for p in ordered if p.rank == r) for r, count in often.items() if count > 1},
    )  # fmt: skip


def label(part: WorkerPart[P]) -> str:
    """What a reader calls a worker: its rank, else its name."""
    return part.worker if part.rank is None else f"rank {part.rank}"


def notices(found: Crew[P]) -> list[Notice]:
    """Who is missing, who is there twice, and who could not be read: a line each."""
    out = []
    failed = [p for p in found.without if p.state in ("failed", "lacking")]
    if failed:
        few = f"`{failed[0].worker}`: {failed[0].problem}" if len(failed) == 1 else _some([f"`{p.worker}`" for p in failed])
        who = f"{_workers(len(failed))} of {human(found.total, 'count')}"
        out.append(Notice(f"{who} left out of every number here: {few}. The table below says why."))
    if found.missing:
        verb = "has" if len(found.missing) == 1 else "have"
        out.append(Notice(f"{_ranks(found.missing)} of {human(found.world, 'count')} {verb} no recording in this run.", "info"))
    for rank, workers in sorted(found.twice.items())[:NAMED]:
        counted = next((w for w in workers if w in found.counting), "")
        which = f"; `{counted}`, which recorded for longer, stands for it" if counted else ""
        out.append(Notice(f"Rank {rank} is there {_times(len(workers))}: {_some([f'`{w}`' for w in workers])}{which}."))
    if len(found.worlds) > 1:
        sizes = " and ".join(human(w, "count") for w in found.worlds)
        out.append(Notice(f"The recordings speak of jobs of {sizes} ranks: this folder may hold more than one job."))
    return out


def left_out(found: Crew[P]) -> list[TableSection]:
    """A table of the workers that cannot be compared, none where all can. Its id is `left_out`, its columns are LEFT_OUT."""
    rows = [p for p in found.without if p.state != "waiting"]
    if not rows:
        return []
    frame = pd.DataFrame({
        "worker": [p.worker for p in rows], "rank": pd.Series([p.rank for p in rows], dtype=object),
        "file": [p.file or None for p in rows], "why": [p.problem for p in rows], "hint": [p.hint or None for p in rows],
    })  # fmt: skip
    return [make_table("left_out", "Workers left out", frame, LEFT_OUT, key="worker", subtitle="in no number on this page")]


@dataclass(frozen=True)
class Spread:
    """How far values lie apart. least_at, most_at: positions among all values, those that are unknown included; -1 without values.

    imbalance: most over median; None where the median is not above 0. excess: most less median.
    """

    count: int
    least: float | None = None
    median: float | None = None
    most: float | None = None
    least_at: int = -1
    most_at: int = -1

    @property
    def imbalance(self) -> float | None:
        return self.most / self.median if self.most is not None and self.median is not None and self.median > 0 else None

    @property
    def excess(self) -> float | None:
        return self.most - self.median if self.most is not None and self.median is not None else None


def spread(values: Floats) -> Spread:
    """Of values of which some are unknown (NaN); the median of an even number is the mean of the middle two."""
    known = np.flatnonzero(np.isfinite(values))
    if not len(known):
        return Spread(0)
    mine = values[known]
    low, high = int(known[mine.argmin()]), int(known[mine.argmax()])
    return Spread(len(known), float(values[low]), float(np.median(mine)), float(values[high]), low, high)


def far(values: Floats, least: float = 0.0) -> Mask:
    """Which values lie far from the others: robust z = 0.6745 (x - median) / MAD beyond 3.5, more than 2 % of the median and more than
    `least` away from it. Where more than half are equal (MAD 0) the latter two alone decide. Of fewer than five known values none does.
    """
    known = np.isfinite(values)
    if int(known.sum()) < FEWEST:
        return np.zeros(len(values), bool)
    away = np.abs(values - np.median(values[known]))
    mad = float(np.median(away[known]))
    away_enough = (away > LEAST_SHARE * abs(float(np.median(values[known])))) & (away > least)
    return np.asarray(known & away_enough & (0.6745 * away > FAR * mad), np.bool_)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return f"{shown} and {human(len(names) - NAMED, 'count')} more" if len(names) > NAMED else shown


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{human(count, 'count')} workers"


def _times(count: int) -> str:
    return "twice" if count == 2 else f"{count} times"


def _ranks(ranks: Sequence[int]) -> str:
    """`Rank 5`, `Ranks 3, 5 to 9 and 12`."""
    runs: list[tuple[int, int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1] = (runs[-1][0], rank)
        else:
            runs.append((rank, rank))
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    parts = [str(a) if a == b else f"{a} and {b}" if b == a + 1 and len(runs) == 1 else f"{a} to {b}" for a, b in runs]
    if len(parts) > NAMED:
        return f"{human(len(ranks), 'count')} ranks ({', '.join(parts[:NAMED])} …)"
    return "Ranks " + (parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}")
