"""Adds up times of rows by group, with their distribution, in compiled passes over the columns of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed
from tb_sol_plugin.tables.intervals import search_from

EVER: Final = 2**62
"""A time, ns, before and after which nothing is."""
MANY: Final = 100
"""Values from which on a group is parted at its quantiles by itself; smaller groups are sorted together."""


@dataclass(frozen=True)
class Inside:
    """What lies inside of each row of a table.

    parent: the row directly around each, -1 for none. last: the row after those inside of each. at, before: rows with another amount,
    ascending, and sums of it up to each (one more than `at`).
    """

    parent: Rows
    last: Rows
    at: Rows
    before: Ints


@dataclass(frozen=True)
class Times:
    """When each row of a table is, ns.

    own: time outside of the rows directly inside, where not all of those are added, too; None: it follows from them.
    """

    start: Ints
    duration: Ints
    inside: Inside | None = None
    own: Ints | None = None


class Sums:
    """What rows of each group add up to: count, ns of their times and of their own, the other amount; the extremes of their times."""

    def __init__(self, groups: int) -> None:
        self._all = np.zeros((6, groups), np.int64)
        self.count, self.total, self.own, self.inside, self.low, self.high = self._all
        self.low[:], self.high[:] = EVER, -EVER

    def add(self, rows: npt.NDArray[np.integer], group: Rows, times: Times, begin: int, end: int) -> Ints:
        """Add rows of a table, their times cut to `[begin, end)`, and return these. rows: ascending. group: of each.

        The time of a row of its own is never negative, however much those inside of it overlap.
        """
        time = np.empty(len(rows), np.int64)
        if not len(rows):
            return time
        of = (fixed(rows, np.int64), fixed(group, np.int32), fixed(times.start, np.int64), fixed(times.duration, np.int64))
        add_kernel(*of, begin, end, time, self._all)
        inside, own = times.inside, time
        if times.own is not None:
            own = times.own[rows]
        elif inside is not None:
            own = time.copy()
            own_kernel(of[0], of[2], of[3], fixed(inside.parent, np.int32), begin, end, own)
        add_own_kernel(of[1], fixed(own, np.int64), self._all)
        if inside is not None and len(inside.at):
            add_amount_kernel(*of[:2], fixed(inside.last, np.int32), fixed(inside.at, np.int32), fixed(inside.before, np.int64), self._all)
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
    many = np.flatnonzero(count >= MANY)
    for low, high, *wanted in np.stack([first[many], ends[many], *(rank[many] for rank in ranks)], axis=1).tolist():
        ordered[low:high].partition(wanted)
    few = np.flatnonzero((count > 1) & (count < MANY))
    if len(few):  # all of these in one sort
        rows = np.repeat(first[few] - np.cumsum(count[few]) + count[few], count[few]) + np.arange(int(count[few].sum()))
        ordered[rows] = _sorted_within(np.repeat(np.arange(len(few)), count[few]), ordered[rows])
    there = count > 0
    return [np.where(there, ordered[np.where(there, first + rank, 0)] if len(value) else 0, 0) for rank in ranks]


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does."""
    one = np.zeros(1, np.int64)
    group = one.astype(np.int32)
    sums = Sums(1)
    sums.add(one, group, Times(one, one, Inside(group - 1, group + 1, group, np.zeros(2, np.int64))), 0, 1)
    quantiles(group, one, sums.count, (1.0,))


def _sorted_within(group: Ints, value: Ints) -> Ints:
    """Returns the values by group, ascending within each. Groups ascend."""
    bits = int(value.max()).bit_length()
    if int(group[-1]).bit_length() + bits <= 62:  # one sort of whole numbers instead of two by places
        return np.sort(group << bits | value) & ((1 << bits) - 1)
    return value[np.lexsort((value, group))]


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


@compiled()
def add_kernel(rows: Ints, group: Rows, start: Ints, duration: Ints, begin: int, end: int, time: Ints, sums: Ints) -> None:
    """Adds the times of rows, cut to a window, to those of their groups."""
    count, total, low, high = sums[0], sums[1], sums[4], sums[5]
    for i in range(len(rows)):
        row, to = rows[i], group[i]
        spent = min(start[row] + duration[row], end) - max(start[row], begin)
        time[i] = spent
        count[to] += 1
        total[to] += spent
        low[to] = min(low[to], spent)
        high[to] = max(high[to], spent)


@compiled()
def own_kernel(rows: Ints, start: Ints, duration: Ints, parent: Rows, begin: int, end: int, own: Ints) -> None:
    """Takes what each row covers of the row around it from the own time of that one, where it is among the rows, too.

    Rows ascend: between two of them there are at most as many others as their numbers are apart, mostly just as many.
    """
    for i in range(len(rows)):
        row = rows[i]
        above = parent[row]
        if above < 0:
            continue
        low, high = max(i - (row - above), 0), i
        if rows[low] != above:
            while low < high:
                middle = (low + high) >> 1
                if rows[middle] < above:
                    low = middle + 1
                else:
                    high = middle
            if rows[low] != above:
                continue
        first, last = max(start[row], begin), min(start[row] + duration[row], end)
        own[low] -= max(min(last, start[above] + duration[above]) - max(first, start[above]), 0)


@compiled()
def add_own_kernel(group: Rows, own: Ints, sums: Ints) -> None:
    """Adds the time of rows of their own to those of their groups."""
    total = sums[2]
    for i in range(len(group)):
        total[group[i]] += max(own[i], 0)


@compiled()
def add_amount_kernel(rows: Ints, group: Rows, last: Rows, at: Rows, before: Ints, sums: Ints) -> None:
    """Adds the other amount inside of rows to those of their groups. Rows ascend: the search goes on from the last."""
    total = sums[3]
    place = 0
    for i in range(len(rows)):
        row = rows[i]
        place = search_from(at, row - 1, place)
        if place < len(at) and at[place] < last[row]:
            total[group[i]] += before[search_from(at, last[row] - 1, place)] - before[place]


@compiled()
def gather_kernel(group: Rows, value: Ints, place: Ints, out: Ints) -> None:
    """Puts the values of each group from its place on."""
    for i in range(len(value)):
        to = group[i]
        out[place[to]] = value[i]
        place[to] += 1
