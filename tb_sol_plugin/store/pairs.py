"""Finds the recording to compare another one with, by the names of runs, workers and spans alone: as requested, else chosen."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from tb_sol_plugin.errors import BadQuery, NotFound, Unavailable
from tb_sol_plugin.model.recordings import OtherNames, Recording, natural
from tb_sol_plugin.model.report import FieldNow
from tb_sol_plugin.store.names import labels, near, rank_in
from tb_sol_plugin.store.reductions import recordings_by_worker

MOST_CHOICES: Final = 500
"""Names of runs, workers or spans that are offered."""
NOTHING: Final = "there is no second recording here to compare this one with"
SAME_WORKER: Final = "the same worker of another run"
RECORD: Final = "let several ranks record, or put a second run into the logdir"


class Paired(Struct, frozen=True):
    """Two recordings to compare. names: what tells them apart, as short as may be. chosen: how the other one was found, "" where
    the reader named it. fields: how the query fields of the other one stand.
    """

    shown: Recording
    other: Recording
    names: tuple[str, str]
    chosen: str
    fields: dict[str, FieldNow]


def paired(shown: Recording, runs: Mapping[str, Sequence[Recording]], wanted: OtherNames) -> Paired:
    """Returns the recording to compare with the one shown. runs: recordings of all runs by name, that of the one shown among them.

    NotFound for a name that is not there, with near ones; BadQuery where it is the recording itself; Unavailable where there is no other.
    """
    other, chosen = _other(shown, runs, wanted)
    if other == shown:
        raise BadQuery("this is the recording itself", hint="name another run, worker or span", field=_field(wanted))
    return Paired(shown, other, names_of(shown, other, runs), chosen, _fields(other, shown.kind, runs))


def has_other(shown: Recording, runs: Mapping[str, Sequence[Recording]]) -> bool:
    """Whether there is a recording to compare with this one."""
    try:
        return _other(shown, runs, OtherNames())[0] != shown
    except Unavailable:
        return False


def _other(shown: Recording, runs: Mapping[str, Sequence[Recording]], wanted: OtherNames) -> tuple[Recording, str]:
    """Returns the other recording, and how it was chosen: first its run, then its worker, then its span, each as wanted, else for the
    reader.
    """
    if wanted.run and wanted.run not in runs:
        raise NotFound(f"no run {wanted.run[:80]!r} here", hint=near(wanted.run, runs), field="other_run")
    run = wanted.run or _other_run(shown, runs)
    there = recordings_by_worker(runs[run], shown.kind)
    worker, how = (_named(wanted.worker, there), "") if wanted.worker else _other_worker(shown, runs, run, there)
    chosen = "" if wanted.worker or (wanted.run and how == SAME_WORKER) else how
    own = there[worker]
    if wanted.span:
        every = [*own, *(r for r in runs[run] if r.worker == worker)]  # of another kind too where it is named
        for recording in every:
            if recording.span == wanted.span:
                return recording, chosen
        raise NotFound(f"no span {wanted.span[:80]!r} of this worker", hint=near(wanted.span, [r.span for r in own]), field="other_span")
    if (run, worker) != (shown.run, shown.worker):
        return _counterpart(shown, own, recordings_by_worker(runs[shown.run], shown.kind).get(shown.worker, [])), chosen
    spans = [r for r in own if r != shown]
    if spans:
        earlier = [r for r in spans if natural(r.span) < natural(shown.span)]
        return (earlier[-1] if earlier else spans[0]), "another span of this worker"
    if wanted != OtherNames():
        return shown, ""
    raise Unavailable(NOTHING, hint=RECORD)


def _other_run(shown: Recording, runs: Mapping[str, Sequence[Recording]]) -> str:
    """Returns a run in the same folder, or with the same workers, that has the worker shown; else its own run if others recorded there,
    else any run that has the worker, else its own.
    """
    names = [n for n in runs if _folder(n) == _folder(shown.run) != ""]
    names = names if len(names) > 1 else [n for n in runs if _names(runs[n]) == _names(runs[shown.run])]
    near = _with_worker(shown, names, runs)
    if near or set(recordings_by_worker(runs[shown.run], shown.kind)) - {shown.worker}:
        return near or shown.run
    return _with_worker(shown, list(runs), runs) or shown.run


def _with_worker(shown: Recording, names: Sequence[str], runs: Mapping[str, Sequence[Recording]]) -> str:
    """Returns the next run in natural order that has the worker shown, else the one before; "" where none has it."""
    order = sorted((n for n in names if n != shown.run), key=natural)
    after = [n for n in order if natural(n) > natural(shown.run)]
    found = (n for n in [*after, *reversed([n for n in order if n not in after])]
             if _same_worker(shown, runs[shown.run], recordings_by_worker(runs[n], shown.kind)) is not None)  # fmt: skip
    return next(found, "")


def _other_worker(
    shown: Recording, runs: Mapping[str, Sequence[Recording]], run: str, there: Mapping[str, Sequence[Recording]]
) -> tuple[str, str]:
    """Returns (worker, how it was found): of another run the same one, else its first; of this run the next one."""
    if run != shown.run:
        same = _same_worker(shown, runs[shown.run], there)
        return (same, SAME_WORKER) if same is not None else (next(iter(there)), "its first worker")
    others = [w for w in there if w != shown.worker]
    after = [w for w in others if natural(w) > natural(shown.worker)]
    return ((after or others)[0], "another worker of this run") if others else (shown.worker, "")


def _named(name: str, there: Mapping[str, Sequence[Recording]]) -> str:
    """Returns a worker by its name or by its rank. NotFound with near names."""
    if name in there:
        return name
    rank = int(name) if re.fullmatch(r"\d{1,9}", name) else rank_in(name.replace(" ", ""))
    ranked = [w for w in there if rank is not None and rank_in(w) == rank]
    if len(ranked) != 1:
        raise NotFound(f"no worker {name[:80]!r} in this run", hint=near(name, there), field="other_worker")
    return ranked[0]


def _same_worker(shown: Recording, own: Sequence[Recording], there: Mapping[str, Sequence[Recording]]) -> str | None:
    """Returns the worker of another run that goes with the one shown: of its name, else of its rank, else where both runs have one
    worker.
    """
    if shown.worker in there:
        return shown.worker
    rank = rank_in(shown.worker)
    if rank is not None:
        ranked = [w for w in there if rank_in(w) == rank]
        return ranked[0] if ranked else None
    return next(iter(there)) if len(there) == 1 and len({r.worker for r in own}) <= 1 else None


def _counterpart(shown: Recording, there: Sequence[Recording], own: Sequence[Recording]) -> Recording:
    """Returns the recording in the place that the one shown has among its own, else the last."""
    place = own.index(shown) if shown in own else 0
    return there[place] if place < len(there) else there[-1]


def _field(wanted: OtherNames) -> str:
    return "other_span" if wanted.span else "other_worker" if wanted.worker else "other_run"


def _names(recordings: Sequence[Recording]) -> set[str]:
    """Returns workers of a run: two runs with the same ones are likely the same job."""
    return {r.worker for r in recordings}


def _folder(run: str) -> str:
    return run.rpartition("/")[0]


# -- for a person ----------------------------------------------------------------------------------------------------


def names_of(shown: Recording, other: Recording, runs: Mapping[str, Sequence[Recording]]) -> tuple[str, str]:
    """Returns what tells two recordings apart: their runs without the folders they share, their ranks or workers, their spans."""
    of_run = _apart(shown.run, other.run) if shown.run != other.run else ("", "")
    ranks = rank_in(shown.worker), rank_in(other.worker)
    same = shown.worker == other.worker or (ranks[0] is not None and ranks[0] == ranks[1])
    one_each = of_run[0] != "" and all(len({r.worker for r in runs.get(r_.run, [r_])}) == 1 for r_ in (shown, other))
    by_rank = None not in ranks and ranks[0] != ranks[1]
    of_worker = tuple(f"rank {rank}" if by_rank else r.worker for rank, r in zip(ranks, (shown, other), strict=True))
    parts = [of_run] if of_run[0] else []
    if not same and not one_each:
        parts.append((of_worker[0], of_worker[1]))
    if not parts:
        known = labels(r.span for r in runs.get(shown.run, [shown, other]) if r.worker == shown.worker)
        parts.append((f"span {known.get(shown.span, shown.span)}", f"span {known.get(other.span, other.span)}"))
    return ", ".join(p[0] for p in parts), ", ".join(p[1] for p in parts)


def _apart(a: str, b: str) -> tuple[str, str]:
    """Returns two names of runs without the folders that both begin with."""
    left, right = a.split("/"), b.split("/")
    shared = 0
    while shared < min(len(left), len(right)) - 1 and left[shared] == right[shared]:
        shared += 1
    return "/".join(left[shared:]) or ".", "/".join(right[shared:]) or "."


def _fields(other: Recording, kind: str, runs: Mapping[str, Sequence[Recording]]) -> dict[str, FieldNow]:
    workers = recordings_by_worker(runs[other.run], kind)
    spans = dict.fromkeys(r.span for r in (*workers.get(other.worker, ()), other))
    return {
        "other_run": FieldNow(other.run, tuple(runs)[:MOST_CHOICES]),
        "other_worker": FieldNow(other.worker, tuple(workers)[:MOST_CHOICES]),
        "other_span": FieldNow(other.span, tuple(spans)[:MOST_CHOICES]),
    }
