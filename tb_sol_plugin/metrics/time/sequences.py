"""Finds runs of kernels that repeat on a stream: by the names alone, so that layers show even where graphs replay them without operators.

Windows of each length are numbered from those one kernel shorter, which compares names and no hashes. A run is kept where no longer one
occurs as often, and where it is not itself a shorter run repeated; its occurrences are counted without overlap, from the first on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.compiled import compiled, fixed

SHORTEST: Final = 2
LONGEST: Final = 64
"""Kernels in a run."""
MOST_KERNELS: Final = 200_000
"""Kernels that are looked through; of more, the first ones."""
MOST_RUNS: Final = 200
"""Runs that are kept, those that take longest."""
LEAST: Final = 0.005
"""Part of the kernel time that the occurrences of a run take at least."""
_PER_LENGTH: Final = 50
"""Runs of one length that are counted exactly, those whose occurrences, overlapping ones included, take longest."""


class Kernels(NamedTuple):
    """Kernels by stream, in order of start. rows: of the device table. name: code per kernel. stream: number per kernel, ascending."""

    rows: Ints
    name: Ints
    stream: Ints
    start: Ints
    duration: Ints


@dataclass(frozen=True)
class RepeatedRun:
    """A run of kernels that repeats. at: places of the first kernels of its occurrences, which do not overlap, in `Kernels`.

    total_ns: plain sum of its kernels in all occurrences. gap_ns: time between its kernels in which none of the stream runs, likewise.
    """

    length: int
    at: Ints
    total_ns: int
    gap_ns: int


def kernels_of(device_rows: Ints, name: Ints, stream: Ints, start: Ints, duration: Ints) -> Kernels:
    """Returns kernels by stream, in order of start; the first MOST_KERNELS of them. stream: any number per kernel."""
    if len(device_rows) > MOST_KERNELS:
        first = np.sort(np.argsort(start, kind="stable")[:MOST_KERNELS])
        device_rows, name, stream, start, duration = (column[first] for column in (device_rows, name, stream, start, duration))
    order = np.lexsort((start, stream))
    return Kernels(*(column[order] for column in (device_rows, name, stream, start, duration)))


def repeated_runs(kernels: Kernels) -> list[RepeatedRun]:
    """Returns the runs that occur at least twice without overlap, those that take longest first, shorter before longer ones."""
    count = len(kernels.rows)
    if count < 2 * SHORTEST:
        return []
    times = _Times.of(kernels)
    last = np.searchsorted(kernels.stream, kernels.stream, side="right") - np.arange(count)  # kernels of the stream from each on
    found: list[RepeatedRun] = []
    _, code = arrays.in_order(kernels.name)
    none = np.zeros(0, np.int64)
    own = _Windows(code.astype(np.int64), np.bincount(code), none, none)
    read = _fixed(kernels.name), _fixed(times.before), _fixed(last)
    for length in range(SHORTEST - 1, LONGEST + 1):
        longer = _longer(own, *read, length)
        if length >= SHORTEST:
            found += _of_length(kernels, times, own, longer, length)
        own = longer
        if not (own.often > 1).any():
            break
    found.sort(key=lambda run: (-run.total_ns, run.length))
    return found[:MOST_RUNS]


class _Times(NamedTuple):
    """Sums of the durations of the kernels before each, when each ends, and whether none ends before an earlier one of its stream."""

    before: Ints
    stop: Ints
    ascending: bool

    @classmethod
    def of(cls, kernels: Kernels) -> _Times:
        stop = kernels.start + kernels.duration
        falls = (stop[1:] < stop[:-1]) & (kernels.stream[1:] == kernels.stream[:-1])
        return cls(np.concatenate((np.zeros(1, np.int64), np.cumsum(kernels.duration))), stop, not falls.any())

    def end(self, at: Ints, length: int) -> Ints:
        """Returns when the last of so many kernels from each place on ends."""
        found: Ints = self.stop[at + length - 1] if self.ascending else self.stop[at[:, None] + np.arange(length)].max(axis=1)
        return found


class _Windows(NamedTuple):
    """Windows of one length. code: number of the one that begins at each kernel, -1 none. By number, in order of first appearance: how
    often it occurs, its first place, and the sum of the durations in all its occurrences.
    """

    code: Ints
    often: Ints
    first: Ints
    cost: Ints


def _longer(own: _Windows, name: Ints, before: Ints, last: Ints, length: int) -> _Windows:
    """Returns the windows one kernel longer than `length`; none where the stream ends before, or one of its two halves occurs once."""
    if longer_kernel.loaded or len(own.code) > LOADING_PAYS:
        code, often, first, cost = (np.empty(len(own.code), np.int64) for _ in range(4))
        slots = np.full(1 << (2 * len(code)).bit_length(), -1, np.int32)
        count = longer_kernel(_fixed(own.code), _fixed(own.often), name, before, last, length, slots, code, often, first, cost)
        return _Windows(code, often[:count], first[:count], cost[:count])
    code = np.full(len(own.code), -1, np.int64)
    again = np.append(own.often > 1, False)[own.code]  # -1 takes the last
    can = np.flatnonzero(again[:-1] & again[1:] & (last[:-1] > length))
    if not len(can):
        none = np.zeros(0, np.int64)
        return _Windows(code, none, none, none)
    place, first = arrays.numbered(own.code[can] * (int(name.max()) + 1) + name[can + length])
    code[can] = place
    return _Windows(code, np.bincount(place), can[first], arrays.exact_sums(place, before[can + length + 1] - before[can], len(first)))


def _fixed(values: Ints) -> Ints:
    return fixed(values, np.int64)


LOADING_PAYS: Final = 30_000
"""Kernels from which on loading the compiled numbering pays, in a process that has not loaded it."""


def load() -> None:
    """Loads the compiled numbering ahead of time, as `tree.load` does."""
    none = np.zeros(0, np.int64)
    longer_kernel(*[_fixed(none)] * 5, 1, np.full(1, -1, np.int32), none, none, none, none)
    apart_kernel(_fixed(none), 1, none.copy())


@compiled()
def longer_kernel(own, often, name, before, last, length, slots, code, count, first, cost):  # type: ignore[no-untyped-def]
    """Numbers windows one kernel longer than those of `own`; what it knows is told apart by its number there and the name that it adds.

    slots: -1 in each of a power of two of places, of which half stay free. code, count, first, cost: what is filled. Returns how many.
    """
    mask = len(slots) - 1
    found = 0
    size = len(own)
    for i in range(size):
        code[i] = -1
        if i + 1 >= size or last[i] <= length:
            continue
        head = own[i]
        tail = own[i + 1]
        if head < 0 or tail < 0 or often[head] < 2 or often[tail] < 2:
            continue
        added = name[i + length]
        at = (head * 40503 + added * 2654435761) & mask
        while True:
            number = slots[at]
            if number < 0:
                number = found
                slots[at] = number
                first[number] = i
                count[number] = 0
                cost[number] = 0
                found += 1
                break
            there = first[number]
            if own[there] == head and name[there + length] == added:
                break
            at = (at + 1) & mask
        code[i] = number
        count[number] += 1
        cost[number] += before[i + length + 1] - before[i]
    return found


def _of_length(kernels: Kernels, times: _Times, own: _Windows, longer: _Windows, length: int) -> list[RepeatedRun]:
    """Returns the runs of one length that no longer one occurs as often as, and that are not shorter ones repeated."""
    code, often, first, cost = own
    chosen = np.flatnonzero((often > 1) & (cost >= LEAST * times.before[-1]))
    if not len(chosen):
        return []
    more = np.append(longer.often, 0)  # the last for none
    chosen = chosen[more[longer.code[first[chosen]]] < often[chosen]]
    if not len(chosen):
        return []
    chosen = chosen[more[longer.code[first[chosen] - 1]] < often[chosen]]  # before the first kernel: the last, with which none begins
    chosen = chosen[np.argsort(-cost[chosen], kind="stable")][:_PER_LENGTH]
    chosen = chosen[[not _periodic(kernels.name[at : at + length].tolist()) for at in first[chosen].tolist()]] if len(chosen) else chosen
    if not len(chosen):
        return []
    wanted = np.full(len(often) + 1, -1, np.int64)
    wanted[chosen] = np.arange(len(chosen))
    of = wanted[code]
    mine = np.flatnonzero(of >= 0)
    mine = mine[arrays.stable_order(of[mine])]
    bounds = np.searchsorted(of[mine], np.arange(len(chosen) + 1))
    out = []
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        at = _apart(mine[low:high], length)
        if len(at) > 1:
            sums = times.before[at + length] - times.before[at]
            spans = times.end(at, length) - kernels.start[at]
            out.append(RepeatedRun(length, at, int(sums.sum()), int(np.maximum(spans - sums, 0).sum())))
    return out


def _periodic(names: list[int]) -> bool:
    """Whether names are a shorter run that stands in them at least twice, one after the other."""
    return any(names[period] == names[0] and names[period:] == names[:-period] for period in range(1, len(names) // 2 + 1))


def _apart(at: Ints, length: int) -> Ints:
    """Returns those of ascending places that are at least `length` apart, from the first on."""
    if bool((np.diff(at) >= length).all()):
        return at
    out = np.empty(len(at), np.int64)
    return out[: apart_kernel.of(len(at), LOADING_PAYS)(_fixed(at), length, out)]


@compiled()
def apart_kernel(at, length, out):  # type: ignore[no-untyped-def]
    """Writes each of ascending places that is far enough from the one before; returns how many."""
    n = 0
    for i in range(len(at)):
        if n == 0 or at[i] >= out[n - 1] + length:
            out[n] = at[i]
            n += 1
    return n


class Layer(NamedTuple):
    """The run that looks like a layer. place: in the list of runs. share: of the kernel time of the selection."""

    place: int
    share: float


COVERS: Final = 0.5
"""Part of the kernel time that a layer takes at least."""


def layer_of(runs: list[RepeatedRun], kernels: Kernels, iterations: int) -> Layer | None:
    """Returns the longest run that takes at least COVERS of the kernel time and occurs twice or more per iteration; None without one."""
    total = float(kernels.duration.sum())
    there = [k for k, run in enumerate(runs) if run.total_ns >= COVERS * total and len(run.at) >= 2 * iterations]
    if not there or total <= 0:
        return None
    best = max(there, key=lambda k: (runs[k].length, runs[k].total_ns))
    return Layer(best, runs[best].total_ns / total)
