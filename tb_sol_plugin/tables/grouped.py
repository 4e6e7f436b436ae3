"""Adds up times of rows by group, with their distribution, in compiled passes over the columns of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed

EVER: Final = 2**62
"""A time, ns, before and after which nothing is."""
MANY: Final = 1_000
"""Values from which on a group is parted at its quantiles by itself; smaller groups are sorted together."""


@dataclass(frozen=True)
class Times:
    """When each row of a table is, ns, and what lies inside of it.

    own: time outside of the rows directly inside, per row; empty: all of it. before: sums of another amount up to each row (one more than
    rows), last: the row after those inside of each; both empty: no such amount.
    """

    start: Ints
    duration: Ints
    own: Ints
    before: Ints
    last: Rows


class Sums:
    """What rows of each group add up to: count, ns of their times and of their own, the other amount; the extremes of their times."""

    def __init__(self, groups: int) -> None:
        self._all = np.zeros((6, groups), np.int64)
        self.count, self.total, self.own, self.inside, self.low, self.high = self._all
        self.low[:], self.high[:] = EVER, -EVER

    def add(self, rows: npt.NDArray[np.integer], group: Rows, times: Times, begin: int, end: int) -> Ints:
        """Add rows of a table, their times cut to `[begin, end)`, and return these. rows: ascending is quickest. group: of each."""
        time = np.empty(len(rows), np.int64)
        if len(rows):
            columns = (times.start, times.duration, times.own, times.before)
            read = (*(fixed(c, np.int64) for c in columns), fixed(times.last, np.int32))
            add_kernel(fixed(rows, np.int64), fixed(group, np.int32), *read, begin, end, time, self._all)
        return time


def quantiles(group: Rows, value: Ints, count: Ints, shares: tuple[float, ...]) -> list[Ints]:
    """Returns per share and group the lowest value that at least that share of the group's are not above; 0 for a group without any.

    value: not negative. count: values of each group. shares: above 0.
    """
    ends = np.cumsum(count)
    first = ends - count
    ranks = [np.minimum(np.ceil(share * count).astype(np.int64), count) - 1 for share in shares]
    ordered = np.empty(len(value), np.int64)
    if len(value):
        gather_kernel(fixed(group, np.int32), fixed(value, np.int64), first.copy(), ordered)
    for at in np.flatnonzero(count >= MANY).tolist():
        ordered[first[at] : ends[at]].partition([int(rank[at]) for rank in ranks])
    few = np.flatnonzero((count > 1) & (count < MANY))
    if len(few):  # all of these in one sort
        rows = np.repeat(first[few] - np.cumsum(count[few]) + count[few], count[few]) + np.arange(int(count[few].sum()))
        ordered[rows] = _sorted_within(np.repeat(np.arange(len(few)), count[few]), ordered[rows])
    there = count > 0
    return [np.where(there, ordered[np.where(there, first + rank, 0)] if len(value) else 0, 0) for rank in ranks]


def _sorted_within(group: Ints, value: Ints) -> Ints:
    """Returns the values by group, ascending within each. Groups ascend."""
    bits = int(value.max()).bit_length()
    if int(group[-1]).bit_length() + bits <= 62:  # one sort of whole numbers instead of two by places
        return np.sort(group << bits | value) & ((1 << bits) - 1)
    return value[np.lexsort((value, group))]


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


@compiled()
def add_kernel(
    rows: Ints, group: Rows, start: Ints, duration: Ints, own: Ints, before: Ints, last: Rows, begin: int, end: int, time: Ints, sums: Ints
) -> None:  # fmt: skip
    """Adds the times of rows, cut to a window, to those of their groups."""
    count, total, own_sum, inside, low, high = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    has_own, has_inside = len(own) > 0, len(before) > 0
    for i in range(len(rows)):
        row, to = rows[i], group[i]
        spent = min(start[row] + duration[row], end) - max(start[row], begin)
        time[i] = spent
        count[to] += 1
        total[to] += spent
        own_sum[to] += own[row] if has_own else spent
        if has_inside:
            inside[to] += before[last[row]] - before[row]
        low[to] = min(low[to], spent)
        high[to] = max(high[to], spent)


@compiled()
def gather_kernel(group: Rows, value: Ints, place: Ints, out: Ints) -> None:
    """Puts the values of each group from its place on."""
    for i in range(len(value)):
        to = group[i]
        out[place[to]] = value[i]
        place[to] += 1
