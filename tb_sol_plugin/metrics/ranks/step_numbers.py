"""Finds ranks that number their steps otherwise than most: a program that was started again on one rank, or counts from elsewhere.

Collectives that ranks have in common tell by how much; where none are matched, their steps by place. Peers, persistence and the choice of
steps compare steps by their numbers, so these are made the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.metrics.ranks.by_name import TOTALS
from tb_sol_plugin.metrics.ranks.calls import Calls, Member
from tb_sol_plugin.metrics.ranks.matching import Matched
from tb_sol_plugin.metrics.ranks.summary import PEERS, ROWS, STEPS
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Mask
from tb_sol_plugin.tables.packed import Packed, compressed, expanded

SURE: Final = 0.9
"""Part of the collectives of a rank that must say the same."""
_TABLES: Final = {"rows": ROWS, "steps": STEPS, "peers": PEERS, "totals": TOTALS}


def step_offsets(found: Matched) -> Ints:
    """Returns what is to be added to the step numbers of each rank, so that they are those of most ranks; 0 where nothing tells."""
    calls = found.calls
    out = np.zeros(len(calls.ranks), np.int64)
    first = _first_steps(calls)
    some = first >= 0
    values, count = np.unique(first[some], return_counts=True)
    if len(values) < 2:
        return out
    usual = int(values[count.argmax()])
    known = first == usual
    shared = _spread(found, out, known)
    for at in np.flatnonzero(~shared & some).tolist():
        if _apart(calls, at, int(np.flatnonzero(known)[0])):
            out[at] = usual - first[at]
    return out


def _first_steps(calls: Calls) -> Ints:
    """Returns the first step of each rank, -1 for one without."""
    return np.array([int(s["step"].min()) if len(s["step"]) else -1 for s in calls.steps], np.int64)


def _spread(found: Matched, out: Ints, known: Mask) -> Mask:
    """Fills in the offsets of ranks that share collectives with those that are known, and so on; returns the ranks that it reached."""
    calls, rows, number = found.calls, found.rows, found.number
    at, step = calls.at[rows], calls["step"][rows].astype(np.int64)
    reached = known.copy()
    while True:
        of = np.full(len(found), -1, np.int64)
        told = reached[at] & (step >= 0)
        np.maximum.at(of, number[told], (step + out[at])[told])
        new = ~reached[at] & (step >= 0) & (of[number] >= 0)
        if not new.any():
            return reached
        difference = (of[number] - step)[new]
        middle = np.nan_to_num(arrays.medians(at[new], difference, len(out))).astype(np.int64)
        count = np.bincount(at[new], minlength=len(out))
        same = np.bincount(at[new], difference == middle[at[new]], len(out))
        sure = (count > 0) & (same >= SURE * count)
        out[sure] = middle[sure]
        reached |= count > 0


def _apart(calls: Calls, at: int, other: int) -> bool:
    """Returns whether two ranks have as many complete steps, and none of the same number."""
    own, theirs = (s["step"][s["complete"]] for s in (calls.steps[at], calls.steps[other]))
    return len(own) == len(theirs) > 0 and not np.isin(own, theirs).any()


def renumbered(found: Sequence[Member], offsets: Ints) -> list[Member]:
    """Returns ranks with other step numbers. found: ascending. offsets: what is added to those of each."""
    return [_moved(one, by) if by else one for one, by in zip(found, offsets.tolist(), strict=True)]


def _moved(one: Member, by: int) -> Member:
    made: dict[str, Packed] = {}
    for name, types in _TABLES.items():
        table = getattr(one.summary, name)
        if table is not None:
            step = expanded(table.columns["step"], types["step"], table.count)
            step = np.where(step >= 0, step + by, step)
            made[name] = Packed(table.count, table.columns | {"step": compressed(step, types["step"])})
    return one._replace(summary=msgspec.structs.replace(one.summary, **made))
