"""Finds what each collective of one rank waited for: the collective before it, and what the rank did in between.

A collective starts when the work before it on its device is done, when the host has launched it, and when its stream is free. The
compute stream in turn waits for some of the collectives: for those at whose end nothing computes. Such a collective binds; from its
end to the start of the next one is the rank's own time, split by what was done in it:

    kernel       kernels of computation run
    copy         copies run, and no kernel of computation
    comm         only other collectives run
    dataloader   nothing runs, and the program loads its next batch
    host         nothing runs, and the next work was launched after it became idle
    other        nothing runs for another reason

Asynchronous collectives that pile up on one stream start when that is free: then the own time ends earlier, where the work before them was
done. Nothing here needs another rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints, Mask

CAUSES: Final = ("kernel", "comm", "copy", "dataloader", "host", "other")
"""What a rank does between two collectives, in the order of the columns."""
TAIL_NS: Final = 1_000
"""Nothing computes in this time before the end of a collective that binds."""
RESUMES_NS: Final = 200_000
"""The work that a collective held up was launched by this time after its end; else the host was late by itself."""
HAND_OVER_NS: Final = 20_000
"""A stream hands over from one collective to the next within this time."""
MOST_PIECES: Final = 32
"""Exposed stretches of one collective that are kept as they are."""


class Work(NamedTuple):
    """Events of a device in order of their start: start, end and launch, ns. launch: -1 where none is recorded."""

    start: Ints
    end: Ints
    launch: Ints


@dataclass(frozen=True)
class Activity:
    """What runs on a device, and what its host does, as clean sets of intervals."""

    compute: iv.Spans
    copies: iv.Spans
    communication: iv.Spans
    loads: iv.Spans
    waits: iv.Spans


class Dependencies(NamedTuple):
    """What each collective waited for.

    pred_row: the last collective before it that binds, -1 none. pred_lag_ns: own time since the end of that, or since `begin_ns`.
    stream_row: the collective that its stream ran before, -1 none. stream_lag_ns: where it waited for that, from its end on; -1 where it
    did not wait for its stream. own_ns: pred_lag_ns by CAUSES, one row per collective; they add up to it exactly. slack_ns: of one that
    computation waited for, the time that it had until then: from when it could start (launched, and the computation launched before it
    done) until computation ran out of other work, 0 where that was at once; -1 where nothing waited for it.
    """

    pred_row: Ints
    pred_lag_ns: Ints
    stream_row: Ints
    stream_lag_ns: Ints
    own_ns: Ints
    slack_ns: Ints


def dependencies(
    rows: Work, stream: npt.NDArray[np.integer], sends: Mask, kernels: Work, activity: Activity, begin_ns: int
) -> Dependencies:
    """Returns what collectives waited for.

    rows: collectives of one device. sends: those that computation waits for only where it goes on right after them. kernels: computation
    of the device. begin_ns: from when on the own time of the first ones is known.
    """
    binds = _binds(rows, sends, kernels, activity.compute)
    pred = _last_ended(rows, binds)
    begin = np.where(pred >= 0, rows.end[np.maximum(pred, 0)], np.minimum(begin_ns, rows.start))
    before = _before_on_stream(rows, stream)
    free = np.where(before >= 0, rows.end[np.maximum(before, 0)], -1)
    could = _ready(rows, kernels)
    ready = np.clip(could, begin, rows.start)
    queued = (before >= 0) & (before != pred) & (rows.start - free <= HAND_OVER_NS) & (ready < free)
    lag = np.where(queued, ready, rows.start) - begin
    own = own_time(begin, begin + lag, activity)
    slack = np.where(binds, np.maximum(_ran_out(rows, activity.compute) - np.minimum(could, rows.start), 0), -1)
    return Dependencies(pred, lag, before, np.where(queued, rows.start - free, -1), own, slack)


def own_time(begin: Ints, end: Ints, activity: Activity) -> Ints:
    """Returns the time of each window by CAUSES, one row per window: exclusive, and exact in sum."""
    layers = iv.exclusive([activity.compute, activity.copies, activity.communication, activity.loads, activity.waits])
    compute, copy, comm, load, wait = (iv.overlap_with(begin, end, layer) for layer in layers)
    other = np.maximum(end - begin, 0) - compute - copy - comm - load - wait
    return np.stack((compute, comm, copy, load, wait, other), axis=1)


def _binds(rows: Work, sends: Mask, kernels: Work, compute: iv.Spans) -> Mask:
    """Returns which collectives the computation waited for."""
    covered = iv.overlap_with(rows.start, rows.end, compute)
    idle_at_end = iv.overlap_with(np.maximum(rows.end - TAIL_NS, rows.start), rows.end, compute) == 0
    place = np.searchsorted(kernels.start, rows.end, side="left")
    there, last = place < len(kernels.start), np.minimum(place, len(kernels.start) - 1)
    none = np.zeros(len(rows.start), np.int64)
    launch, resumes = (kernels.launch[last], kernels.start[last]) if len(kernels.start) else (none, none)
    queued = ~there | (launch <= rows.end + RESUMES_NS)
    at_once = there & (launch <= rows.end) & (resumes <= rows.end + HAND_OVER_NS)
    return np.asarray(np.where(sends, idle_at_end & at_once, (covered == 0) | (idle_at_end & queued)), np.bool_)


def _last_ended(rows: Work, among: Mask) -> Ints:
    """Returns which of some collectives ended last before each one began, of those launched before it; -1 for none."""
    some = np.flatnonzero(among)
    if not len(some):
        return np.full(len(rows.start), -1, np.int64)
    by_end = some[np.argsort(rows.end[some], kind="stable")]
    place = np.searchsorted(rows.end[by_end], rows.start, side="right") - 1
    ended = np.where(place >= 0, by_end[np.maximum(place, 0)], -1)
    by_launch = some[np.lexsort((rows.start[some], rows.launch[some]))]
    top = _place_of_highest(rows.end[by_launch])
    place = np.searchsorted(rows.launch[by_launch], rows.launch, side="left") - 1
    launched = np.where(place >= 0, by_launch[top[np.maximum(place, 0)]], -1)
    over = (rows.launch >= 0) & ((launched < 0) | (rows.end[np.maximum(launched, 0)] <= rows.start))
    found = np.where(over, launched, ended)
    return np.where(found < np.arange(len(rows.start)), found, -1)


def _place_of_highest(values: Ints) -> Ints:
    """Returns the place of the highest of the values up to each."""
    highest = np.maximum.accumulate(values)
    new = np.concatenate(([True], highest[1:] > highest[:-1]))
    return np.maximum.accumulate(np.where(new, np.arange(len(values)), 0))


def _before_on_stream(rows: Work, stream: npt.NDArray[np.integer]) -> Ints:
    """Returns the collective before each one on its stream, -1 where there is none or it was not over."""
    order = np.lexsort((np.arange(len(stream)), stream))
    out = np.full(len(stream), -1, np.int64)
    same = stream[order][1:] == stream[order][:-1]
    out[order[1:][same]] = order[:-1][same]
    over = (out >= 0) & (rows.end[np.maximum(out, 0)] <= rows.start)
    return np.where(over, out, -1)


def _ready(rows: Work, kernels: Work) -> Ints:
    """Returns when the computation launched before each collective was done, and the collective itself launched; its start if unknown."""
    known = kernels.launch >= 0
    order = np.argsort(kernels.launch[known], kind="stable")
    launch, done = kernels.launch[known][order], np.maximum.accumulate(kernels.end[known][order])
    place = np.searchsorted(launch, rows.launch, side="left") - 1
    last = np.where(place >= 0, done[np.maximum(place, 0)] if len(done) else 0, 0)
    return np.where(rows.launch >= 0, np.maximum(last, rows.launch), rows.start)


def _ran_out(rows: Work, compute: iv.Spans) -> Ints:
    """Returns when computation last ended before the end of each collective; 0 where it had not begun."""
    place = np.searchsorted(compute[1], rows.end, side="right") - 1
    return np.where(place >= 0, compute[1][np.maximum(place, 0)], 0) if len(compute[1]) else np.zeros(len(rows.end), np.int64)


# -- The part of a collective that nothing hides -----------------------------------------------------------------------


class Pieces(NamedTuple):
    """Stretches of collectives in which nothing computes: of which row, from when after its start, how long; ns, by row and time."""

    row: Ints
    offset_ns: Ints
    length_ns: Ints


def exposed(rows: Work, compute: iv.Spans) -> Pieces:
    """Returns the stretches of each collective in which no kernel of computation runs on its device.

    A collective of more than MOST_PIECES has one for each of so many equal parts, as long as what it has in that: exact in sum.
    """
    if not len(rows.start):
        return Pieces(*(np.zeros(0, np.int64) for _ in range(3)))
    low, high = iv.gaps(compute, int(rows.start.min()), int(rows.end.max()))
    first = np.searchsorted(high, rows.start, side="right")
    count = np.maximum(np.searchsorted(low, rows.end, side="left") - first, 0)
    few = count <= MOST_PIECES
    row, at = _spread(np.flatnonzero(few), first[few], count[few])
    begin = np.maximum(low[at], rows.start[row])
    plain = Pieces(row, begin - rows.start[row], np.minimum(high[at], rows.end[row]) - begin)
    many = np.flatnonzero(~few)
    if not len(many):
        return plain
    part = np.arange(MOST_PIECES + 1, dtype=np.int64)
    edges = (rows.end - rows.start)[many, None] * part // MOST_PIECES
    free = np.diff(iv.covered_until((low, high), rows.start[many, None] + edges), axis=1)
    binned = Pieces(np.repeat(many, MOST_PIECES), edges[:, :-1].ravel(), free.ravel())
    every = [np.concatenate(pair) for pair in zip(plain, binned, strict=True)]
    every = [column[every[2] > 0] for column in every]
    order = np.lexsort((every[1], every[0]))
    return Pieces(*(column[order] for column in every))


def _spread(row: Ints, first: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Returns each row as often as it has places, and these places: `first` and those after it."""
    ends = np.cumsum(count)
    total = int(ends[-1]) if len(ends) else 0
    return np.repeat(row, count), np.repeat(first - ends + count, count) + np.arange(total, dtype=np.int64)


def exposed_until(pieces: Pieces, until: Ints) -> Ints:
    """Returns how much of each collective is exposed in its first `until` ns. until: of each collective, one per row."""
    part = np.clip(until[pieces.row] - pieces.offset_ns, 0, pieces.length_ns)
    out = np.zeros(len(until), np.int64)
    np.add.at(out, pieces.row, part)
    return out
