"""Replays the collectives of a job as a model of when each call begins and ends, and again without the delays of some ranks.

    start = end of the collective that bound the rank + own time, but not before the one before on its stream is over
    end = latest start of all members + transfer + how much later than the last one to come this member ends

All members leave a collective that they wait in at one moment: how much later one ends is what its clock is off, and its start is set back
by that. So clocks that are known to some microseconds alone do not make the wrong member the last.

Replayed as it is, the job takes as long as it was measured; with the own time of a rank at what its peers take, the difference of the two
is what that rank costs. Calls whose collective is not known take as long as they did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.ranks.calls import Calls
from tb_sol_plugin.metrics.ranks.waiting import Waits
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask, Rows
from tb_sol_plugin.tables.compiled import compiled, fixed
from tb_sol_plugin.tables.order import topological_order

EXACT: Final = 0.001
"""The replay of the job as it is differs from what was measured by at most this part; else savings are withheld."""


@dataclass(frozen=True, eq=False)
class Model:
    """A job to replay: columns by call, and by collective (calls that are matched to none are collectives of their own).

    number: of each call its collective. rows, begin: calls of collective i are `rows[begin[i] : begin[i + 1]]`. matched: the
    first collectives are those of `waits.found` whose transfer is known, these are their places there. base_ns: when the own time of each
    call begins, on the aligned clock. late: call of each collective that was last to begin. linked: calls whose collective is known. order:
    the collectives in an order in which they can be replayed; without those that wait for each other in a circle.
    """

    waits: Waits
    number: Ints
    rows: Ints
    begin: Ints
    transfer_ns: Floats
    skew_ns: Floats
    clock_ns: Floats
    base_ns: Floats
    start_ns: Floats
    end_ns: Floats
    late: Ints
    linked: Mask
    order: Ints
    matched: Ints

    def transfers(self, of_matched: Floats | Ints) -> Floats:
        """Returns transfers to replay with. of_matched: of each collective of `waits.found`; those that are not replayed do not count."""
        out = self.transfer_ns.copy()
        out[: len(self.matched)] = of_matched[self.matched]
        return out

    @property
    def complete(self) -> bool:
        """Whether every collective can be replayed."""
        return len(self.order) == len(self.transfer_ns)

    @property
    def span_ns(self) -> float:
        """From where own time is first known to the last end, as measured on the aligned clock."""
        return float(self.end_ns.max() - self.base_ns.min()) if len(self.end_ns) else 0.0

    def run(self, own_ns: Floats, transfer_ns: Floats | None = None) -> float:
        """Returns how long the job takes. own_ns: own time before each call. transfer_ns: of each collective, None as it was."""
        calls = self.waits.found.calls
        end = run_kernel(
            self.order, self.begin, self.rows, fixed(calls["pred_row"], np.int64), fixed(own_ns, np.float64),
            fixed(calls["stream_row"], np.int64), fixed(calls["stream_lag_ns"], np.float64), fixed(self.base_ns, np.float64),
            self.transfer_ns if transfer_ns is None else fixed(transfer_ns, np.float64), self.skew_ns, self.clock_ns,
        )  # fmt: skip
        return float(end.max() - self.base_ns.min()) if len(end) else 0.0

    @cached_property
    def own_ns(self) -> Floats:
        """Own time before each call, as it was."""
        return np.asarray(self.waits.found.calls.own.sum(axis=1), np.float64)

    @cached_property
    def unchanged_ns(self) -> float:
        """How long the job takes as it is."""
        return self.run(self.own_ns)

    @property
    def exact(self) -> bool:
        """Whether the model reproduces what was measured."""
        return self.complete and bool(self.span_ns) and abs(self.unchanged_ns - self.span_ns) <= EXACT * self.span_ns


def model_of(waited: Waits) -> Model:
    """Returns the model of a job."""
    found, clock = waited.found, waited.clocks
    calls = found.calls
    known = waited.late >= 0
    number = np.full(len(calls), -1, np.int64)
    linked = known[found.number]
    place = np.cumsum(known) - 1
    number[found.rows[linked]] = place[found.number[linked]]
    alone = np.flatnonzero(number < 0)
    joint = int(known.sum())
    number[alone] = joint + np.arange(len(alone))
    count = joint + len(alone)
    rows = np.argsort(number, kind="stable")
    begin = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(number, minlength=count))))
    start, end = clock.aligned(calls.start, calls.at), clock.aligned(calls.end, calls.at)
    transfer = np.concatenate((waited.transfer_ns[known], calls["duration_ns"][alone])).astype(np.float64)
    late = np.concatenate((found.rows[waited.late[known]], alone))
    skew = end - (start[late] + transfer)[number]
    skew[alone] = 0.0
    off = np.where(calls.sync, skew, 0.0)
    if not clock.common:
        skew = off
    matched = np.zeros(len(calls), np.bool_)
    matched[found.rows[linked]] = True
    return Model(
        waited, number, fixed(rows, np.int64), fixed(begin, np.int64), fixed(transfer, np.float64), fixed(skew, np.float64),
        fixed(off, np.float64),
        _base(calls, start), start, end,
        late, matched, fixed(_order(calls, number, count), np.int64), np.flatnonzero(known),
    )  # fmt: skip


def _base(calls: Calls, start: Floats) -> Floats:
    """Returns when the own time of each call begins. start: of each call.

    That of one that waited for its stream ended before it started: where no collective bound the rank before, it began with that of the
    call before that did not wait so.
    """
    base = start - calls.own.sum(axis=1)
    first = calls["pred_row"] < 0
    queued = first & (calls["stream_lag_ns"] >= 0)
    rows = np.flatnonzero(first)
    last = np.maximum.accumulate(np.where(queued[rows], -1, rows)) if len(rows) else rows
    known = queued[rows] & (last >= 0) & (calls.at[np.maximum(last, 0)] == calls.at[rows])
    base[rows[known]] = np.minimum(base[rows[known]], base[last[known]])
    return np.asarray(base, np.float64)


def _order(calls: Calls, number: Ints, count: int) -> Rows:
    """Returns the collectives in an order in which each comes after those that its members waited for; without those of a circle."""
    waits = np.concatenate((calls["pred_row"], calls["stream_row"])).astype(np.int64)
    known = np.flatnonzero(waits >= 0)
    target = np.tile(number, 2)[known]
    first = np.concatenate((np.zeros(1, np.int64), np.cumsum(np.bincount(target, minlength=count))))
    return topological_order(first, number[waits[known]][np.argsort(target, kind="stable")].astype(np.int32))


# -- compiled loops: compiled once, kept in numba's cache -------------------------------------------------------------


@compiled()
def run_kernel(  # type: ignore[no-untyped-def]
    order, begin, rows, pred, own, before, gap, base, transfer, skew, off
):
    """Returns when each call ends."""
    end = np.zeros(len(pred), np.float64)
    for at in range(len(order)):
        one = order[at]
        latest = -np.inf
        for k in range(begin[one], begin[one + 1]):
            row = rows[k]
            start = (base[row] if pred[row] < 0 else end[pred[row]]) + own[row]
            if before[row] >= 0:
                start = max(start, end[before[row]] + max(gap[row], 0.0))
            latest = max(latest, start - off[row])
        for k in range(begin[one], begin[one + 1]):
            row = rows[k]
            end[row] = latest + transfer[one] + skew[row]
    return end
