"""Splits collectives into transfer and wait, and says which rank the others waited for.

In a collective in which each member needs data of all others, the last one to come waits for nobody: its duration is the transfer, what
the others take longer is their wait. That needs no clock. A send and its receive are compared by their starts on the aligned clock, where
that is known well enough. Of other kinds (broadcast, gather, ...) the root is not recorded: their wait is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.ranks.calls import sums_by_step
from tb_sol_plugin.metrics.ranks.clocks import TOLERANCE_NS, Clocks, directed
from tb_sol_plugin.metrics.ranks.matching import Matched
from tb_sol_plugin.metrics.ranks.own_time import exposed_until
from tb_sol_plugin.metrics.ranks.summary import ROOTED
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask
from tb_sol_plugin.tables.packed import Columns

APART_NS: Final = 500_000.0
"""Ends of one collective are at most so far apart, or
`APART_SHARE` of its shortest member."""
APART_SHARE: Final = 0.05
FITTING: Final = 0.9
"""Calls matched by their order alone are believed where so many pass the check of times."""


@dataclass(frozen=True, eq=False)
class Waits:
    """Transfer and wait of matched collectives, ns; -1 is unknown.

    Of each collective: transfer_ns (an upper bound where members are missing), late (place in `found.rows` of the member that the others
    waited for, -1), lateness_ns (median less least duration), start_skew_ns and end_skew_ns (NaN without a common clock), apart (its ends
    are too far apart for one collective). Of each of `found.rows`: wait_ns, start_ns and end_ns on the common clock.
    """

    found: Matched
    clocks: Clocks
    transfer_ns: Ints
    late: Ints
    lateness_ns: Ints
    start_skew_ns: Floats
    end_skew_ns: Floats
    apart: Mask
    wait_ns: Ints
    start_ns: Floats
    end_ns: Floats

    @cached_property
    def late_rank(self) -> Ints:
        """Number of the rank that the others waited for, -1 unknown."""
        calls = self.found.calls
        rank = calls.ranks[calls.at[self.found.rows]]
        return np.where(self.late >= 0, rank[np.maximum(self.late, 0)] if len(rank) else -1, -1)

    @cached_property
    def wait_of_call(self) -> Ints:
        """Wait of each call of the table, -1 unknown."""
        out = np.full(len(self.found.calls), -1, np.int64)
        out[self.found.rows] = self.wait_ns
        return out

    @cached_property
    def exposed_wait(self) -> Ints:
        """How much of the wait of each call nothing hides; -1 where the wait is not known. The wait comes first in a call."""
        wait = self.wait_of_call
        return np.where(wait >= 0, exposed_until(self.found.calls.pieces, np.maximum(wait, 0)), -1)

    @cached_property
    def exposed_wait_by_step(self) -> Columns:
        """The same by rank and step, as `sums_by_step` has it; of calls whose wait is known."""
        return sums_by_step(self.found.calls, self.exposed_wait, self.exposed_wait >= 0)

    @cached_property
    def exposed_transfer(self) -> Ints:
        """How much of the transfer of each call nothing hides; -1 where it is not known."""
        return np.where(self.exposed_wait >= 0, self.found.calls["exposed_ns"] - self.exposed_wait, -1)


def waits(found: Matched, clock: Clocks) -> Waits:
    """Returns transfer and wait of matched collectives."""
    calls, rows, number = found.calls, found.rows, found.number
    duration = calls["duration_ns"][rows].astype(np.int64)
    start, end = clock.aligned(calls.start[rows], calls.at[rows]), clock.aligned(calls.end[rows], calls.at[rows])
    count = len(found)
    transfer, late, lateness = (np.full(count, -1, np.int64) for _ in range(3))
    wait = np.full(len(rows), -1, np.int64)
    if count:
        least = np.asarray(found.least(duration), np.int64)
        sync = found.sync
        transfer[sync] = least[sync]
        wait = np.where(sync[number], duration - least[number], wait)
        late[sync] = _last_of_shortest(found, duration == least[number], start)[sync]
        lateness[sync] = (_medians(found, duration) - least)[sync]
        if clock.common:
            _pairs(found, start, duration, transfer, late, wait)
            _rooted(found, start, duration, transfer, wait)
    skews = [np.asarray(found.most(values), np.float64) - np.asarray(found.least(values), np.float64) for values in (start, end)]
    apart = np.zeros(count, np.bool_)
    if count:
        sigma = np.nan_to_num(clock.sigma_ns)[calls.domain[calls.at[rows]]]
        room = np.maximum(TOLERANCE_NS, 3 * np.asarray(found.most(sigma), np.float64))
        last, first = np.asarray(found.most(start), np.float64), np.asarray(found.least(end), np.float64)
        fits = (last <= first + room) & (skews[1] <= np.maximum(APART_NS, APART_SHARE * transfer) + room)
        apart = found.sync & ~fits
    if not clock.common:
        skews = [np.full(count, np.nan) for _ in skews]
    return Waits(found, clock, transfer, late, lateness, skews[0], skews[1], apart, wait, start, end)


def believed(found: Matched, waited: Waits) -> Matched:
    """Returns the collectives without those of groups that are matched by order alone and do not end together."""
    calls = found.calls
    ordered = calls["seq"][found.first] < 0
    checked = found.sync & ordered
    if not checked.any():
        return found
    total = np.bincount(found.channel[checked], minlength=calls.channels)
    wrong = np.bincount(found.channel[checked & waited.apart], minlength=calls.channels)
    lost = wrong > (1 - FITTING) * total
    if not lost.any():
        return found
    because = {
        int(i): f"{wrong[i]:,} of {total[i]:,} collectives do not end together on the aligned clocks" for i in np.flatnonzero(lost).tolist()
    }
    return found.only(~lost[found.channel], because)


def _last_of_shortest(found: Matched, shortest: Mask, start: Floats) -> Ints:
    """Returns the place of the shortest member of each collective, of several the last to start."""
    number = found.number
    value = np.where(shortest, start, -np.inf)
    top = np.asarray(found.most(value), np.float64)
    place = np.where(value == top[number], np.arange(len(start)), len(start))
    return np.asarray(found.least(place), np.int64)


def _medians(found: Matched, values: Ints) -> Ints:
    """Returns the median of each collective, rounded down."""
    order = np.lexsort((values, found.number))
    low, high = found.begin[:-1] + (found.present - 1) // 2, found.begin[:-1] + found.present // 2
    return np.asarray((values[order[low]] + values[order[high]]) // 2, np.int64)


def _pairs(found: Matched, start: Floats, duration: Ints, transfer: Ints, late: Ints, wait: Ints) -> None:
    """Fills in sends and receives: each waits until the other one has begun."""
    send, receive = directed(found)
    for own, other in ((send, receive), (receive, send)):
        wait[own] = np.clip(np.rint(start[other] - start[own]), 0, duration[own]).astype(np.int64)
    number = found.number[send]
    transfer[number] = np.minimum(duration[send] - wait[send], duration[receive] - wait[receive])
    late[number] = np.where(start[send] > start[receive], send, receive)


def _rooted(found: Matched, start: Floats, duration: Ints, transfer: Ints, wait: Ints) -> None:
    """Fills in what comes from one member: each waits until that one has begun. Nobody is said to be late: the root waits for none."""
    calls, rows, number = found.calls, found.rows, found.number
    source = calls["source"][rows].astype(np.int64)
    of = np.isin(calls["kind"][found.first], ROOTED) & (found.present > 1) & ~found.inconsistent
    of &= np.asarray(found.least(source) == found.most(source), np.bool_)
    here = np.flatnonzero(of[number] & (source >= 0) & (source == calls.ranks[calls.at[rows]]))
    root = np.full(len(found), -1, np.int64)
    root[number[here]] = here
    some = np.flatnonzero(root[number] >= 0)
    if len(some):
        wait[some] = np.clip(np.rint(start[root[number[some]]] - start[some]), 0, duration[some]).astype(np.int64)
        transfer[root >= 0] = np.asarray(found.least(duration - wait), np.int64)[root >= 0]


LONG_NS: Final = 100_000.0
"""Members that all take so much longer than the collective takes elsewhere, and twice as long, waited for one that is not recorded."""


@dataclass(frozen=True)
class Unrecorded:
    """Waiting for members of a group that have no recording.

    channel: the group. ranks: its members without a recording. wait_ns: how much longer than the same collectives elsewhere those of it
    took on every rank that was recorded. collectives: how many did.
    """

    channel: int
    ranks: tuple[int, ...]
    wait_ns: int
    collectives: int


def unrecorded(waited: Waits) -> Unrecorded | None:
    """Returns the group whose members waited longest for one that is not recorded; None where none did.

    In a collective each recorded member of which takes long, the last to come is another one: else it would be short on that. What it takes
    by itself is the median of those of its kind, size and bytes, in all groups. It needs no clock; a link that is slow now and then looks
    the same.
    """
    found = waited.found
    calls = found.calls
    size = calls.size_of_channel[found.channel]
    known = found.sync & (waited.transfer_ns >= 0)
    if not (known & (found.present < size)).any():
        return None
    first = found.first
    code, _ = arrays.factorize([
        calls["kind"][first].astype(np.int64), size, calls["bytes_in"][first].astype(np.int64), calls["bytes_out"][first].astype(np.int64),
    ])  # fmt: skip
    usual = arrays.medians(code[known], waited.transfer_ns[known], int(code.max()) + 1)[code]
    long = waited.transfer_ns - usual
    some = known & (found.present < size) & (long > np.maximum(LONG_NS, usual))
    if not some.any():
        return None
    total = np.bincount(found.channel[some], long[some], calls.channels)
    channel = int(total.argmax())
    members = calls.groups[int(calls.group_of_channel[channel])].ranks
    absent = tuple(np.setdiff1d(members, calls.ranks).tolist())
    return Unrecorded(channel, absent, round(float(total[channel])), int((some & (found.channel == channel)).sum()))
