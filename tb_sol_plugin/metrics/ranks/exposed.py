"""Splits the exposed communication of each rank and step by the parallelism that it serves.

At any moment in which collectives run and nothing computes, the time goes to the kinds of parallelism whose collectives run; of several
kinds to each an equal part, what does not divide to the first. So kinds add up to the exposed communication of the step. A
moment is waiting where every collective of its kind that runs then still waits for its last member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.ranks.calls import Calls
from tb_sol_plugin.metrics.ranks.group_kinds import NAMES, GroupKind
from tb_sol_plugin.metrics.ranks.waiting import Waits
from tb_sol_plugin.tables.arrays import Ints

KINDS: Final = tuple(dict.fromkeys((*NAMES, "other")))
"""Kinds of parallelism in the order in which time that does not divide is given out; "other" is what is not known, too."""
Counts = npt.NDArray[np.int64]


def exposed_by_kind(waited: Waits, kinds: Sequence[GroupKind]) -> pd.DataFrame:
    """Returns one row per rank, complete step and kind of parallelism that ran a collective in it.

    Columns: at (place of the rank), step (number), kind (place in KINDS), communication_ns (union of its collectives), exposed_ns (its
    part of the time in which nothing computes), wait_ns (of that, waiting for a last member). Over the kinds exposed_ns
    adds up to the exposed communication of the step. Steps of which no collective was kept are left out.
    """
    calls = waited.found.calls
    of = np.array([KINDS.index(k.kind) if k.kind else len(KINDS) - 1 for k in kinds] + [len(KINDS) - 1], np.int64)
    return exposed_by_class(waited, of[calls["group"]])


def exposed_by_class(waited: Waits, kind: Ints) -> pd.DataFrame:
    """Returns the same by any class of calls. kind: of each call the number of its class; in their order odd ns are given out."""
    calls = waited.found.calls
    window = _windows(calls)
    wait = np.maximum(waited.wait_of_call, 0)
    parts = [pd.DataFrame({name: np.zeros(0, np.int64) for name in _COLUMNS})]
    for first in range(0, len(calls.ranks), AT_ONCE):
        ranks = (first, first + AT_ONCE)
        some = window[slice(*np.searchsorted(window["at"], ranks))]
        rows = slice(*np.searchsorted(calls.at, ranks))
        if len(some) and rows.start < rows.stop:
            parts.append(_of_ranks(calls, rows, some.reset_index(drop=True), kind, wait))
    return pd.concat(parts, ignore_index=True)


def _of_ranks(calls: Calls, rows: slice, window: pd.DataFrame, kind: Ints, wait: Ints) -> pd.DataFrame:
    """Returns the rows of some ranks: those of the calls `rows`, whose steps are `window`."""
    own = slice(*np.searchsorted(calls.pieces.row, (rows.start, rows.stop)))
    row, offset, length = (column[own] for column in calls.pieces)
    low = calls.start[row] + offset
    waits = np.clip(wait[row] - offset, 0, length)
    used, own_kind = np.unique(kind[rows], return_inverse=True)
    own_kind = own_kind.reshape(-1)
    whole = _union(window, calls.at[rows], own_kind, calls.start[rows], calls.end[rows], len(used))
    exposed, waiting = _shares(window, calls.at[row], own_kind[row - rows.start], low, low + length, low + waits, len(used))
    exposed, waiting = _fitted(exposed, waiting, window["exposed_ns"].to_numpy())
    place, code = np.nonzero(whole > 0)
    return pd.DataFrame({
        "at": window["at"].to_numpy()[place], "step": window["step"].to_numpy()[place], "kind": used[code],
        "communication_ns": whole[place, code], "exposed_ns": exposed[place, code], "wait_ns": waiting[place, code],
    })  # fmt: skip


AT_ONCE: Final = 64
"""Ranks whose intervals are gone over together: that bounds the memory of it."""
_COLUMNS: Final = ("at", "step", "kind", "communication_ns", "exposed_ns", "wait_ns")


def _windows(calls: Calls) -> pd.DataFrame:
    """Returns the complete steps of all ranks by rank and start: at, step, start, end, exposed_ns."""
    parts = []
    for at, steps in enumerate(calls.steps):
        some = steps["complete"]
        parts.append(np.stack([
            np.full(int(some.sum()), at), steps["step"][some], steps["start_ns"][some],
            steps["start_ns"][some] + steps["duration_ns"][some], steps["exposed_communication_ns"][some],
        ]))  # fmt: skip
    found = np.concatenate(parts, axis=1) if parts else np.zeros((5, 0), np.int64)
    found = found[:, np.lexsort((found[2], found[0]))]
    return pd.DataFrame(dict(zip(("at", "step", "start", "end", "exposed_ns"), found.astype(np.int64), strict=True)))


def _sweep(window: pd.DataFrame, at: Ints, ends: Sequence[tuple[Ints, int]], column: Ints, width: int) -> tuple[Ints, Ints, Counts]:
    """Returns (window, length, how many of each column are open) of each stretch between two events of one rank, inside of windows.

    ends: of each interval a time and by how much its column changes there.
    """
    edges = window["at"].to_numpy(), window["start"].to_numpy(), window["end"].to_numpy()
    rank = np.concatenate([edges[0], edges[0], *([at] * len(ends))])
    time = np.concatenate([edges[1], edges[2], *(t for t, _ in ends)])
    none = np.full(2 * len(window), -1, np.int64)
    where = np.concatenate([none, *([column] * len(ends))]).astype(np.int64)
    change = np.concatenate([np.zeros(2 * len(window), np.int64), *(np.full(len(at), by, np.int64) for _, by in ends)])
    order = np.lexsort((time, rank))
    rank, time, where, change = rank[order], time[order], where[order], change[order]
    open_ = np.zeros((len(order), width), np.int32)
    some = where >= 0
    open_[np.flatnonzero(some), where[some]] = change[some]
    np.cumsum(open_, axis=0, out=open_)
    length = np.diff(time, append=time[-1:] if len(time) else time)
    length[:-1][np.diff(rank) != 0] = 0
    least = int(time.min())
    span = int(time.max()) - least + 1
    key, begins = rank * span + time - least, edges[0] * span + edges[1] - least
    place = np.searchsorted(begins, key, side="right") - 1
    safe = np.maximum(place, 0)
    kept = (length > 0) & (place >= 0) & (edges[0][safe] == rank) & (time < edges[2][safe]) & (open_ > 0).any(axis=1)
    return safe[kept], length[kept], open_[kept].astype(np.int64)


def _union(window: pd.DataFrame, at: Ints, kind: Ints, low: Ints, high: Ints, kinds: int) -> Counts:
    """Returns the union of the intervals of each kind inside each window."""
    place, length, open_ = _sweep(window, at, ((low, 1), (high, -1)), kind, kinds)
    return _summed(place, length[:, None] * (open_ > 0), len(window))


def _shares(window: pd.DataFrame, at: Ints, kind: Ints, low: Ints, high: Ints, waits: Ints, width: int) -> tuple[Counts, Counts]:
    """Returns (exposed time of each kind in each window, how much of that is waiting). waits: when each interval stops to wait."""
    both = np.concatenate((kind, kind + width))
    rank = np.concatenate((at, at))
    place, length, open_ = _sweep(
        window, rank, ((np.concatenate((low, low)), 1), (np.concatenate((high, waits)), -1)), both, 2 * width
    )  # fmt: skip
    runs = open_[:, :width] > 0
    many = np.maximum(runs.sum(axis=1), 1)
    share = np.where(runs, (length // many)[:, None], 0)
    share[np.arange(len(share)), runs.argmax(axis=1)] += np.where(runs.any(axis=1), length % many, 0)
    waiting = np.where(open_[:, width:] >= open_[:, :width], share, 0)
    return _summed(place, share, len(window)), _summed(place, waiting, len(window))


def _summed(place: Ints, values: Counts, count: int) -> Counts:
    """Returns sums of rows by place. place: ascending."""
    out = np.zeros((count, values.shape[1]), np.int64)
    if len(place):
        first = np.flatnonzero(np.diff(place, prepend=-1))
        out[place[first]] = np.add.reduceat(values, first, axis=0)
    return out


def _fitted(exposed: Counts, waiting: Counts, whole: Ints) -> tuple[Counts, Counts]:
    """Returns parts that add up to the whole of each window.

    A collective of very many exposed stretches has them binned, so that stretches of two kinds may seem to overlap for a moment.
    """
    total = exposed.sum(axis=1)
    off = (total > 0) & (total != whole)
    if not off.any():
        return exposed, waiting
    parts = exposed[off]
    made = parts * (whole[off] / total[off])[:, None]
    fitted = np.floor(made).astype(np.int64)
    fitted[np.arange(len(fitted)), made.argmax(axis=1)] += whole[off] - fitted.sum(axis=1)
    out, waits = exposed.copy(), waiting.copy()
    out[off] = fitted
    waits[off] = np.minimum(np.floor(waiting[off] * (whole[off] / total[off])[:, None]).astype(np.int64), fitted)
    return out, waits
