"""Recordings of memory alone (allocator snapshots, memory timelines): whose they are, and which of several is joined to it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tb_sol_plugin.errors import SolError, StillLoading
from tb_sol_plugin.model.memory_join import SNAPSHOT, TIMELINE, WORDS
from tb_sol_plugin.model.recordings import Recording, natural
from tb_sol_plugin.store.names import rank_in

if TYPE_CHECKING:
    from tb_sol_plugin.model.capture import Capture

OF_MEMORY: Final = (SNAPSHOT, TIMELINE)
MOST_OPENED: Final = 4
"""Recordings of one kind that are opened in search of the one of a capture's time."""
APART_NS: Final = 60 * 10**9
"""A snapshot or timeline further from a recording is of another run."""
_AFTER: Final = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True)
class Index:
    """Of the recordings of one run: names of workers that could bear memory; recordings of memory by kind, by rank, by bearer."""

    bearers: frozenset[str]
    of_rank: Mapping[tuple[str, int], list[Recording]]
    of_name: Mapping[tuple[str, str], list[Recording]]
    of_kind: Mapping[str, list[Recording]]


def index_of(recordings: Sequence[Recording]) -> Index:
    """Made in one pass, for all workers of a run."""
    bearers = frozenset(r.worker for r in recordings if bears(r))
    index = Index(bearers, defaultdict(list), defaultdict(list), defaultdict(list))
    for r in recordings:
        if r.kind in OF_MEMORY:
            rank = rank_in(r.worker)
            index.of_kind[r.kind].append(r)
            index.of_name[r.kind, _bearer_of(r.worker, bearers)].append(r)
            if rank is not None:
                index.of_rank[r.kind, rank].append(r)
    return index


def bears(recording: Recording) -> bool:
    """Whether memory can be joined to it: to a trace or a SOL capture."""
    return recording.kind not in (*OF_MEMORY, "proton")


def memory_beside(
    bearer: Recording, recordings: Sequence[Recording], rank: int | None = None, *, index: Index | None = None
) -> list[Recording]:
    """Snapshots and timelines of the worker of a trace or a SOL capture among others of its run, in natural order.

    recordings: without SOL captures that a trace tells, which bear none.

    Of each kind: by the worker's name, whole or in front of another word (`host_7.memory.pickle`); else by the rank in the name, or as
    the header of the recording says; else where the run has one worker that could bear it and one file's name of that kind.
    """
    if not bears(bearer):
        return []
    found = index_of([bearer, *(r for r in recordings if r.run == bearer.run)]) if index is None else index
    own = rank_in(bearer.worker) if rank is None else rank
    out: list[Recording] = []
    for kind in OF_MEMORY:
        there = found.of_kind.get(kind, [])
        named = found.of_name.get((kind, bearer.worker), [])
        ranked = found.of_rank.get((kind, own), []) if own is not None else []
        alone = found.bearers <= {bearer.worker} and len({r.worker for r in there}) == 1
        alone = alone and (own is None or rank_in(there[0].worker) in (None, own))
        out += named or ranked or (there if alone else [])
    return sorted(out, key=lambda r: (r.kind, natural(r.worker), natural(r.span)))


def same_worker(bearer: str, other: str) -> bool:
    """Whether a file's name is that of a worker by itself: by its beginning, or by the rank that both state."""
    rank = rank_in(bearer)
    return bool(_bearer_of(other, frozenset({bearer}))) or (rank is not None and rank_in(other) == rank)


def _bearer_of(name: str, workers: frozenset[str]) -> str:
    """The worker whose name a file's name is, or begins with up to a separator; the longest of several; "" none."""
    if name in workers:
        return name
    ends = [m.start() for m in _AFTER.finditer(name)]
    return next((name[:end] for end in reversed(ends) if name[:end] in workers), "")


def join_memory(capture: Capture, beside: Sequence[Recording], opened: Callable[[Recording], Capture], state: str) -> Capture:
    """The capture with the tables of one snapshot and one timeline out of those of its worker: the one that shares most of its time.

    One that cannot be read hides nothing and is told, as is one of another time. StillLoading where one is being read.
    """
    from tb_sol_plugin.model.memory_join import with_memory  # with pandas, which a scan does without

    problems: list[str] = []
    chosen: dict[str, Capture] = {}
    for kind in OF_MEMORY:
        best = -1
        for recording in _nearest_first(capture, [r for r in beside if r.kind == kind])[:MOST_OPENED]:
            name = recording.file.rpartition("/")[2]
            try:
                other = opened(recording)
            except StillLoading:
                raise
            except SolError as error:
                problems.append(f"{name}: {error.message}")
                continue
            if not (capture.facts.absolute and other.facts.absolute):
                which = "this recording" if other.facts.absolute else f"this {WORDS[kind]}"
                problems.append(f"{name}: {which} does not say when it was, so that their times cannot be held against each other")
                continue
            shared = shared_ns(capture, other)
            if shared < 0:
                problems.append(f"{name}: this {WORDS[kind]} is of another time")
            elif shared > best:
                chosen[kind], best = other, shared
    if chosen:  # files of other times are none of this recording's, once there is one that is
        kept = {kind: [r.file.rpartition("/")[2] for r in beside if r.kind == kind] for kind in chosen}
        other_times = {f"{name}: this {WORDS[kind]} is of another time" for kind, names in kept.items() for name in names}
        problems = [p for p in problems if p not in other_times]
    return with_memory(capture, chosen, beside=state, problems=tuple(problems))


def _nearest_first(capture: Capture, found: list[Recording]) -> list[Recording]:
    """Those written soonest after the capture ended; without times the latest first."""
    from tb_sol_plugin.model.memory_join import spans_of

    if not capture.facts.absolute:
        return list(reversed(found))
    end = spans_of(capture)[1] / 1e9
    return sorted(found, key=lambda r: abs(r.mtime - end))


def shared_ns(capture: Capture, other: Capture) -> int:
    """Time that two recordings of known times share; -1 where they are further apart than APART_NS.

    A snapshot that keeps a short history may begin after the trace ended, and be of the same run.
    """
    from tb_sol_plugin.model.memory_join import spans_of

    (a, b), (c, d) = spans_of(capture), spans_of(other)
    shared = min(b, d) - max(a, c)
    return max(shared, 0) if shared >= -APART_NS else -1
