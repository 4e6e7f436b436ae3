"""Adds up times of rows by group, with their distribution, in compiled passes over the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, Rows, ranges
from tb_sol_plugin.tables.compiled import compiled, fixed
from tb_sol_plugin.tables.intervals import search_from

EVER: Final = 2**62
"""A time, ns, before and after which nothing is."""
FEW: Final = 24
"""Values up to which a group is sorted for its quantiles; larger groups are parted at these."""
PARTS: Final = 256
"""Parts of its range that the values of a group are counted in."""
LOADING_PAYS: Final = 20_000
"""Values up to which a sort of them costs less than loading the compiled loop."""
_SLICES: Final = 256
"""Ranges of rows up to which a column is put together of slices."""


@dataclass(frozen=True)
class Runs:
    """Rows of a table: from each `low` to before each `high`. They ascend and do not overlap. label: a group of all rows of each."""

    low: Ints
    high: Ints
    label: Ints

    @cached_property
    def sizes(self) -> Ints:
        """How many rows each has."""
        return self.high - self.low

    def __len__(self) -> int:
        return int(self.sizes.sum())

    @property
    def rows(self) -> Ints:
        """The rows, ascending."""
        if len(self.low) == 1:
            return np.arange(int(self.low[0]), int(self.high[0]))
        return ranges(self.low, self.sizes)

    def of(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Returns the values of a column in these rows."""
        if len(self.low) == 1:
            return column[int(self.low[0]) : int(self.high[0])]
        if len(self.low) <= _SLICES:
            return np.concatenate([column[:0], *(column[a:b] for a, b in zip(self.low.tolist(), self.high.tolist(), strict=True))])
        return column.take(self.rows)


@dataclass(frozen=True)
class Keys:
    """Groups of a table's rows: `group` by code (-1, the last one, without a text) and by kind. kind: one where it is the same for all."""

    code: Rows
    kind: npt.NDArray[np.uint8]
    group: Rows


@dataclass(frozen=True)
class Inside:
    """What lies inside of each row of a table, whose rows are in preorder.

    parent: the row directly around each, -1 for none; what is directly inside of one row does not overlap. last: the row after those inside
    of each. at: rows with another amount, ascending. before: sums of it up to each (one more than `at`).
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


_NONE: Final = np.zeros(0, np.int64)
_NO_ROWS: Final = np.zeros(0, np.int32)
_NOTHING: Final = Inside(_NO_ROWS, _NO_ROWS, _NO_ROWS, _NONE)


class Sums:
    """What rows of each group add up to: count, ns of their times and of their own, the other amount; the extremes of their times.

    rows: how many will be added. keys: where the groups are labels of runs, how many keys there are; `by_key` is then the time of each key
    in each group, and a ns per row.
    """

    def __init__(self, groups: int, rows: int, keys: int = 0) -> None:
        self._all = np.zeros((6, groups), np.int64)
        self.count, self.total, self.own, self.inside, self.low, self.high = self._all
        self.low[:], self.high[:] = EVER, -EVER
        self.by_key = np.zeros((groups if keys else 0, keys), np.int64)
        self.group, self.time, self._added = np.empty(rows, np.int32), np.empty(rows, np.int64), 0

    def add(self, runs: Runs, keys: Keys, times: Times, begin: int, end: int) -> None:
        """Add rows of a table, their times cut to `[begin, end)`, to their groups."""
        if not len(runs):
            return
        inside = times.inside or _NOTHING
        part = slice(self._added, self._added + len(runs))
        self._added = part.stop
        add_kernel(
            tuple(fixed(one, np.int64) for one in (runs.low, runs.high, runs.label)),
            (
                fixed(runs.of(keys.code), np.int32), fixed(runs.of(keys.kind) if len(keys.kind) > 1 else keys.kind, np.uint8),
                fixed(keys.group, np.int32),
            ),
            (fixed(times.start, np.int64), fixed(times.duration, np.int64), fixed(_NONE if times.own is None else times.own, np.int64)),
            (
                *(fixed(one, np.int32) for one in (inside.parent, inside.last, inside.at)),
                fixed(inside.before, np.int64),
            ),
            (begin, end), self.group[part], self.time[part], self._all, self.by_key,
        )  # fmt: skip

    def quantiles(self, *shares: float) -> list[Ints]:
        """Returns those of all rows' times, as `quantiles` does."""
        return quantiles(self.group, self.time, self.count, shares)


@dataclass(frozen=True)
class Totals:
    """What rows of a table add up to by group: count, how many are flagged, the time of all, the sum of each further column.

    longest: the row that takes longest, of equal ones the one that starts first; -1 of a group without any.
    """

    count: Ints
    flagged: Ints
    total: Ints
    more: tuple[Ints, ...]
    longest: Ints


def totals(rows: Ints, code: Rows, start: Ints, duration: Ints, flags: Mask, more: Sequence[Ints], groups: int) -> Totals:
    """Adds up some rows of a table by group, in one pass over its columns. code: group per row of the table, from 0 on for these rows."""
    out, longest = np.zeros((groups, 3 + len(more)), np.int64), np.full(groups, -1, np.int64)
    read = fixed(rows, np.int64), fixed(code, np.int32), fixed(start, np.int64), fixed(duration, np.int64), fixed(flags, np.bool_)
    totals_kernel.of(len(rows), LOADING_PAYS)(*read, tuple(fixed(one, np.int64) for one in more), out, longest)
    count, flagged, total, *others = np.ascontiguousarray(out.T)
    return Totals(count, flagged, total, tuple(others), longest)


def quantiles(group: Rows, value: Ints, count: Ints, shares: tuple[float, ...]) -> list[Ints]:
    """Returns per share and group the lowest value that at least that share of the group's are not above; 0 for a group without any.

    value: not negative. count: values of each group. shares: above 0.
    """
    ranks = np.stack([np.minimum(np.ceil(share * count).astype(np.int64), count) - 1 for share in shares])
    return list(_at_ranks(group, value, count, ranks))


def medians(group: Rows, value: Ints, count: int) -> Floats:
    """Returns what `arrays.medians` does of whole numbers that are not negative; of many in a fifth of the time, as nothing is sorted."""
    if len(value) < LOADING_PAYS:
        return arrays.medians(group, value, count)
    size = np.bincount(group, minlength=count)
    low, high = _at_ranks(group, value, size, np.stack([(size - 1) // 2, size // 2])).astype(np.float64)
    return np.where(size > 0, arrays.middle(low, high), np.nan)


def _at_ranks(group: Rows, value: Ints, count: Ints, ranks: Ints) -> Ints:
    """Returns the values of some ranks in each group, by row of `ranks` and group; 0 for a group without any."""
    out = np.zeros(ranks.shape, np.int64)
    if len(value):
        quantile_kernel(fixed(group, np.int32), fixed(value, np.int64), fixed(count, np.int64), fixed(ranks, np.int64), out)
    return out


def load() -> None:
    """Loads the compiled loops ahead of time, as `tree.load` does."""
    one = np.zeros(1, np.int64)
    group = one.astype(np.int32)
    sums, runs, keys = Sums(1, 1), Runs(one, one + 1, one), Keys(group, group.astype(np.uint8), np.zeros((1, 1), np.int32))
    sums.add(runs, keys, Times(one, one, Inside(group - 1, group + 1, group, np.zeros(2, np.int64))), 0, 1)
    sums.quantiles(1.0)
    totals(one, group, one, one, one > 0, (one, one, one), 1)


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


def _totals(rows, code, start, duration, flags, more, out, longest):  # type: ignore[no-untyped-def]
    """Does what the loop below does, column by column."""
    own, time = code[rows], duration[rows]
    for place, values in enumerate((np.ones(len(rows), np.int64), flags[rows], time, *(column[rows] for column in more))):
        np.add.at(out[:, place], own, values)
    order = np.lexsort((start[rows], -time))[::-1]  # the last one written stays: the first of those that take longest
    longest[own[order]] = rows[order]


@compiled(plain=_totals)
def totals_kernel(rows, code, start, duration, flags, more, out, longest):  # type: ignore[no-untyped-def]
    """Adds count, flags, time and further columns of rows to `out`, by group, and writes the row with most time of each to `longest`."""
    for i in range(len(rows)):
        row = rows[i]
        group, time = code[row], duration[row]
        out[group, 0] += 1
        out[group, 1] += flags[row]
        out[group, 2] += time
        for k in range(len(more)):
            out[group, 3 + k] += more[k][row]
        best = longest[group]
        if best < 0 or time > duration[best] or (time == duration[best] and start[row] < start[best]):
            longest[group] = row


@compiled()
def add_kernel(runs, keys, times, inside, window, group, time, sums, by_key):  # type: ignore[no-untyped-def]
    """Adds the times of rows, cut to a window, to those of their groups, in one pass. A row stands after those around it.

    What a row covers of the row around it is taken from the own time of that one's group, where it is among the rows, too.
    """
    (low, high, label), (code, kind, lookup) = runs, keys
    (start, duration, own), (parent, last, at, before), (begin, end) = times, inside, window
    count, total, alone, amount, least, most = sums[0], sums[1], sums[2], sums[3], sums[4], sums[5]
    none, several, known, nested = len(lookup) - 1, len(kind) > 1, len(own) > 0, len(parent) > 0
    labelled = len(by_key) > 0
    n, place = 0, 0
    around, owner = -1, np.int64(-1)  # the last row around others that is not in their run, and its group; -1 where it is in no run
    firsts = np.empty(len(low), np.int64)
    for run in range(len(low)):
        firsts[run] = n
        for row in range(low[run], high[run]):
            word = code[n]
            key = lookup[word if word >= 0 else none, kind[n if several else 0]]
            to = label[run] if labelled else np.int64(key)
            first, final = max(start[row], begin), min(start[row] + duration[row], end)
            spent = final - first
            if labelled:
                by_key[to, key] += spent + 1
            group[n] = to
            time[n] = spent
            n += 1
            count[to] += 1
            total[to] += spent
            least[to] = min(least[to], spent)
            most[to] = max(most[to], spent)
            alone[to] += max(own[row], 0) if known else spent
            if not nested:
                continue
            if len(at):
                place = search_from(at, row - 1, place)
                if place < len(at) and at[place] < last[row]:
                    amount[to] += before[search_from(at, last[row] - 1, place)] - before[place]
            above = parent[row]
            if known or above < 0:
                continue
            if above >= low[run]:
                holder = np.int64(group[firsts[run] + above - low[run]])
            else:
                if above != around:
                    around, owner = above, np.int64(-1)
                    found = search_from(low[:run], above, run) - 1
                    if found >= 0 and above < high[found]:
                        owner = np.int64(group[firsts[found] + above - low[found]])
                holder = owner
            if holder >= 0:
                alone[holder] -= max(min(final, start[above] + duration[above]) - max(first, start[above]), 0)


@compiled()
def quantile_kernel(group: Rows, value: Ints, count: Ints, ranks: Ints, out: Ints) -> None:
    """Finds the values of some ranks in each group. ranks, out: by share and group; a group without values is left as it is.

    Takes linear time whatever the values: those of a group are counted in equal parts of their range, and only the part with the rank is
    gone on with.
    """
    begins, most = np.empty(len(count), np.int64), 0
    n = 0
    for one in range(len(count)):
        begins[one] = n
        n += count[one]
        most = max(most, count[one])
    ordered, some = np.empty(n, np.int64), np.empty(most, np.int64)
    for i in range(len(value)):
        to = group[i]
        ordered[begins[to]] = value[i]
        begins[to] += 1
    counts = np.zeros(PARTS, np.int64)
    for one in range(len(count)):
        size = count[one]
        mine = ordered[begins[one] - size : begins[one]]
        if 1 < size <= FEW:
            sort_few(mine)
        for share in range(len(ranks)):
            if not size:
                continue
            rank = ranks[share, one]
            if size <= FEW:
                out[share, one] = mine[rank]
                continue
            values = mine
            while len(values) > FEW:
                least, shift = parted(values, counts)
                if shift < 0:
                    break
                part = 0
                while rank >= counts[part]:
                    rank -= counts[part]
                    part += 1
                kept = 0
                for i in range(len(values)):  # without a branch: which are in the part cannot be foretold
                    found = values[i]
                    some[kept] = found
                    kept += ((found - least) >> shift) == part
                values = some[:kept]
            else:
                sort_few(values)
            out[share, one] = values[rank]


@compiled(forceinline=True)
def parted(values, counts):  # type: ignore[no-untyped-def]
    """Counts values in equal parts of their range. Returns the least value, and by how many bits the distance of another one to it is
    shifted for its part; -1 where all are the same.
    """
    least, most = values[0], values[0]
    for found in values:
        least, most = min(least, found), max(most, found)
    if least == most:
        return least, -1
    shift = 0
    while (most - least) >> shift >= PARTS:
        shift += 1
    counts[:] = 0
    for found in values:
        counts[(found - least) >> shift] += 1
    return least, shift


@compiled(forceinline=True)
def sort_few(values):  # type: ignore[no-untyped-def]
    """Sorts few values in place."""
    for i in range(1, len(values)):
        found, at = values[i], i
        while at and values[at - 1] > found:
            values[at] = values[at - 1]
            at -= 1
        values[at] = found
