"""Takes the summaries of all ranks through matching, clocks, waits, groups and stragglers, once for all pages that ask.

The results of the last few runs are kept: a page of ranks has several tabs, each of which asks for the same. Those of many calls are kept
on disk as well, where the reductions come with a place for it: the next server maps them.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.ranks.calls import Calls, Member, calls_of, only
from tb_sol_plugin.metrics.ranks.clocks import Clocks, clocks, components
from tb_sol_plugin.metrics.ranks.comparison import Ranks, ranks_of
from tb_sol_plugin.metrics.ranks.exposed import exposed_by_kind
from tb_sol_plugin.metrics.ranks.group_kinds import GroupKind
from tb_sol_plugin.metrics.ranks.kept_job import values_of, waits_of
from tb_sol_plugin.metrics.ranks.matching import Matched, matched
from tb_sol_plugin.metrics.ranks.replay import Model, model_of
from tb_sol_plugin.metrics.ranks.step_numbers import renumbered, step_offsets
from tb_sol_plugin.metrics.ranks.stragglers import Stragglers, own_per_step, stragglers
from tb_sol_plugin.metrics.ranks.summary import RankSummary
from tb_sol_plugin.metrics.ranks.waiting import Waits, believed, waits
from tb_sol_plugin.model.recordings import RecordingReduction, ResultsKept
from tb_sol_plugin.process import give_back
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask
from tb_sol_plugin.tables.mapped import read, written

KEPT: Final = 2
"""Jobs whose results are kept in memory."""
MANY: Final = 100_000
"""Calls from which on memory that is free is given back once they are in one table."""
LEAST_KEPT: Final = 20_000
"""Calls of a job from which on it is kept on disk: of fewer it is made in a moment."""


@dataclass(frozen=True, eq=False)
class Job:
    """All ranks of a run, and what follows from them. assumed: whether the rank of a recording is its place, since none is known.

    recordings: of each rank the worker and the span of its recording; none of a job that is of no run. place, name: where what follows
    from the whole job is kept, and under which name; None nowhere. renumbered: of each rank what was added to the numbers of its steps.
    """

    calls: Calls
    assumed: Mask
    waits: Waits
    recordings: tuple[tuple[str, str], ...] = ()
    place: ResultsKept | None = None
    name: str = ""
    renumbered: Ints = field(default_factory=lambda: np.zeros(0, np.int64))

    def recalled(self, what: str, make: Callable[[], Any]) -> Any:
        """Returns plain values that follow from the whole job: as they were kept, else as they are made now."""
        name = f"{self.name}-{what}"
        found = _kept(self.place, name)
        if found is None:
            found = make()
            if self.place is not None:
                self.place.save(name, written(found))
        return found

    @property
    def found(self) -> Matched:
        """The collectives over ranks."""
        return self.waits.found

    @property
    def clocks(self) -> Clocks:
        """How the clocks of hosts differ."""
        return self.waits.clocks

    @cached_property
    def joined(self) -> Mask:
        """The ranks that collectives join, of several sets of them the largest: only these wait for each other."""
        found, count = self.found, len(self.calls.ranks)
        known = (self.waits.late >= 0)[found.number]
        component = components(self.calls.at[found.rows[known]], found.number[known], count)
        size = np.bincount(component) if count else np.zeros(1, np.int64)
        return np.asarray((component == size.argmax()) & (size.max() > 1), np.bool_)

    @cached_property
    def model(self) -> Model:
        """What is replayed: calls of the ranks that are joined, in a table of their own."""
        joined = self.joined
        return model_of(self.waits if joined.all() else _part(self.waits, joined[self.calls.at]))

    @cached_property
    def stragglers(self) -> Stragglers:
        """The path and the suspects."""
        return stragglers(self.model)

    @cached_property
    def _exposed(self) -> dict[tuple[GroupKind, ...], pd.DataFrame]:
        return {}

    def exposed(self, kinds: tuple[GroupKind, ...]) -> pd.DataFrame:
        """Returns exposed communication by rank, step and parallelism, as `exposed_by_kind` does; of the last kinds it is kept."""
        found = self._exposed.get(kinds)
        if found is None:
            found = exposed_by_kind(self.waits, kinds)
            self._exposed.clear()
            self._exposed[kinds] = found
        return found

    @cached_property
    def own_per_step(self) -> Floats:
        """Own time of each rank per complete step, as `own_per_step` returns it."""
        return own_per_step(self.calls)

    @property
    def steps(self) -> int:
        """Complete steps that some rank has, one at least."""
        return max(len(self.stragglers.steps), 1)

    @cached_property
    def alone(self) -> Mask:
        """Ranks none of whose collectives is matched with that of another rank."""
        found = self.found
        shared = found.rows[(found.present > 1)[found.number]]
        out = np.ones(len(self.calls.ranks), np.bool_)
        out[self.calls.at[shared]] = False
        return out


_HOST_PID: Final = re.compile(r"(.*[A-Za-z].*)_\d{3,}")
_NO_HOST: Final = re.compile(r"localhost|(.*[-_.])?(rank|worker|trainer|process|proc|pid|gpu|device|run|trace)[-_]?\d*", re.IGNORECASE)
"""What stands before a number and names no machine, or every one."""
_JOBS: OrderedDict[tuple[tuple[str, str, str], ...], Job] = OrderedDict()
_LOCK: Final = threading.Lock()


def job_of(ranks: Ranks[RankSummary]) -> Job:
    """Returns the job of the recordings that statistics are made of; the same one while these are the same."""
    chosen = [one for one, counts in zip(ranks.read, ranks.counts.tolist(), strict=True) if counts]
    key = tuple((one.worker, one.span, one.key) for one in chosen)
    known = all(one.key for one in chosen)
    with _LOCK:
        if known and key in _JOBS:
            _JOBS.move_to_end(key)
            return _JOBS[key]
    place = chosen[0].place if chosen and known and not any(one.state == "waiting" for one in ranks.excluded) else None
    name = hashlib.blake2b(repr(key).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
    made = _loaded(place, name)
    if made is None:
        made = _made(chosen)
        if place is not None and len(made.calls) >= LEAST_KEPT:
            place.save(name, written(_values(made)))
            made = _loaded(place, name) or made  # whose arrays lie in the file, not in memory
    with _LOCK:
        if known:
            _JOBS[key] = made
            while len(_JOBS) > KEPT:
                _JOBS.popitem(last=False)
    return made


def _values(job: Job) -> dict[str, Any]:
    """Returns a job as plain values; what is replayed too, where that is all of it."""
    found = job.stragglers if job.joined.all() else None
    own = {"assumed": job.assumed, "renumbered": job.renumbered, "recordings": [list(one) for one in job.recordings]}
    return own | {"joined": job.joined, "own_per_step": job.own_per_step, "of": values_of(job.waits, found)}


def _kept(place: ResultsKept | None, name: str) -> Any:
    """Returns values as they were kept; None where they were not."""
    body = place.mapped(name) if place is not None else None
    if body is not None:
        with contextlib.suppress(ValueError):
            return read(body)
    return None


def _loaded(place: ResultsKept | None, name: str) -> Job | None:
    """Returns the job of some recordings as it was kept; None where it was not."""
    values = _kept(place, name)
    if values is None:
        return None
    try:
        waited, found = waits_of(values["of"])
        recordings = tuple((worker, span) for worker, span in values["recordings"])
        job = Job(waited.found.calls, values["assumed"], waited, recordings, place, name, values["renumbered"])
        job.__dict__.update({name: values[name] for name in ("joined", "own_per_step")})
    except (ValueError, KeyError, TypeError):
        return None
    if found is not None:
        job.__dict__.update(model=found.model, stragglers=found)
    return job


def _made(chosen: Sequence[RecordingReduction[RankSummary]]) -> Job:
    """Returns the job of some recordings. One whose rank is not known gets the lowest that no other one has."""
    taken = {one.rank for one in chosen}
    free = (rank for rank in range(2 * len(chosen) + 1) if rank not in taken)
    members, assumed, names = [], {}, {}
    for one in chosen:
        rank = one.rank if one.rank is not None else next(free)
        assumed[rank], names[rank] = one.rank is None, (one.worker, one.span)
        host = (one.facts.host_name if one.facts is not None else "") or host_in(one.worker)
        members.append(Member(rank, host, one.reduced))
    return job_of_members(members, assumed, names)


def host_in(worker: str) -> str:
    """Returns the host that the name of a worker begins with, as `tensorboard_trace_handler` names it (HOST_PID); "" where it has none."""
    found = _HOST_PID.fullmatch(worker)
    return found.group(1) if found is not None and _NO_HOST.fullmatch(found.group(1)) is None else ""


def job_of_members(
    members: Sequence[Member], assumed: Mapping[int, bool] | None = None, names: Mapping[int, tuple[str, str]] | None = None
) -> Job:
    """Returns the job of ranks. assumed: whether the number of a rank is not recorded. names: worker and span of its recording."""
    found = matched(calls_of(members))
    moved = step_offsets(found)
    if moved.any():
        found = matched(calls_of(renumbered(sorted(members, key=lambda m: m.rank), moved)))
    calls = found.calls
    if len(calls) > MANY:
        give_back()  # thousands of small columns of ranks were freed between larger ones
    clock = clocks(found)
    first = waits(found, clock)
    kept = believed(found, first)
    waited = first if kept is found else waits(kept, clocks(kept))
    ranks = calls.ranks.tolist()
    where = tuple(names[rank] for rank in ranks) if names else ()
    return Job(calls, np.array([bool(assumed and assumed[rank]) for rank in ranks], np.bool_), waited, where, renumbered=moved)


def within(job: Job, low: int, high: int) -> Job:
    """Returns the same job in some steps alone, by their numbers; matches and clocks are those of all of it. BadQuery where it has none."""
    step = job.calls["step"]
    kept = (step >= low) & (step <= high) & (step >= 0)
    if not kept.any():
        known = np.unique(step[step >= 0])
        there = f"{int(known[0])} to {int(known[-1])}" if len(known) else "no steps"
        raise BadQuery(f"no collective in step {low} to {high}", hint=f"there are: {there}", field="step")
    part = _part(job.waits, kept)
    return Job(part.found.calls, job.assumed, part, job.recordings, renumbered=job.renumbered)


def _part(waited: Waits, kept: Mask) -> Waits:
    """Returns waits of some calls alone; matches and clocks stay as they are. Collectives with a call that is left out are left out."""
    found = waited.found
    calls = only(found.calls, kept)
    part = found.only(np.asarray(found.least(kept[found.rows]), np.bool_), {})
    part = replace(part, calls=calls, rows=(np.cumsum(kept) - 1)[part.rows])
    return waits(part, replace(waited.clocks, calls=calls))


def ranks_of_run(workers: Sequence[RecordingReduction[RankSummary]]) -> Ranks[RankSummary]:
    """Returns the recordings of a run by rank; of several of one rank the longest counts."""
    return ranks_of(workers, lambda one: one.reduced.window_ns)
