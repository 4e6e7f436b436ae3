"""Ends ordinary iterations with little work: those that are not sampled and have nothing to log but their times.

What is always on runs between two kernels that have filled the caches, so its time is the number of objects and functions that it
touches, each of them a cache miss. The common iteration therefore has this one function, which works on one object: its times wait in a
queue, and several are written at once, which takes little more than one when the caches are cold. The other parts of the tracker learn of
them when they are next used. Whatever is out of the ordinary is left to `SOLTracker`, which arms the fast path again when it has dealt
with it.

Where a device is timed, an iteration waits until the device has passed its events as well. Of each the last event alone is asked for: what
lies before it on the same stream has been passed too.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from operator import itemgetter
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final, TypeAlias

from tb_sol_plugin.capture.loop.phases import PendingTimes, PhaseTime
from tb_sol_plugin.capture.loop.schedule import StepRecord, TimeRow
from tb_sol_plugin.capture.loop.timing import ANY_STREAM, EventPool, Pair
from tb_sol_plugin.capture.report.output import MOST_WAITING, NO_ROWS, Finished, wandb_open
from tb_sol_plugin.capture.report.scalars import Alike, Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from tb_sol_plugin.capture.hooks.inputs import Seen
    from tb_sol_plugin.capture.loop.guard import Clock
    from tb_sol_plugin.capture.loop.labels import Label, Labels
    from tb_sol_plugin.capture.loop.phases import PhaseStack
    from tb_sol_plugin.capture.report.output import Logged
    from tb_sol_plugin.capture.report.scalars import Plain
    from tb_sol_plugin.capture.report.writer import CaptureWriter

MOST_TEXTS: Final = 32
"""Numbers of phases whose text is kept."""
BATCH_NS: Final = 50_000_000
"""Time in which iterations are collected, to be written at once."""
MOST_COLLECTED: Final = MOST_WAITING // 2
_start_of: Final = itemgetter(1)

Ended: TypeAlias = "tuple[int, int, int, int, int, list[PhaseTime], Pair | None, int]"
"""number, start_ns, duration_ns, own work inside, own work before, phases, events around the whole of an iteration that has ended, and when
that was by `perf_counter_ns`."""


class IterationTimes:
    """Has number and times of the iteration that runs, in ns on the recorder's clock.

    stride: between the numbers of iterations. previous: number of the one before, None for none. own_at_start, own_at_end: `Clock.own_ns`
    when this one began, and when the one before ended. before_ns: own work between the two. whole: the device's events around it.
    """

    __slots__ = ("before_ns", "number", "own_at_end", "own_at_start", "previous", "start_ns", "stride", "whole")

    def __init__(self, number: int) -> None:
        self.number, self.stride = number, 1
        self.previous: int | None = None
        self.start_ns = self.own_at_start = self.own_at_end = self.before_ns = 0
        self.whole: Pair | None = None

    def advance(self, number: int) -> None:
        """Let the iteration of that number be the one before: the next is as far from it as it was from the one before it."""
        if self.previous is not None and number > self.previous:
            self.stride = number - self.previous
        self.previous, self.number = number, number + self.stride


class FastPath(IterationTimes):
    """Ends ordinary iterations, and keeps the times of all: one object, since the common iteration must touch few.

    left: how many iterations can still end here. ended, written: how many did, and were written, since the other parts learned of it; last:
    number, start_ns, duration_ns and device_ns of the last that was written. size: of the file. waiting: iterations that wait to be
    written, in their order; those that did not end here are `Finished`. drain: writes such ones at the head of them, once the device has
    passed their events, and calls `log` again.
    """

    # All that the common iteration needs, in one object.
    __slots__ = (
        "_add", "_alike", "_batch", "_board", "_clock", "_drain", "_due", "_expected", "_fd", "_labels", "_lock", "_monotonic_ns", "_next",
        "_notes", "_open", "_phases", "_pool", "_room", "_rows", "_seen", "_sizes", "_texts", "_thread", "_tokens", "_writer", "_written",
        "ended", "last", "left", "size", "waiting", "written",
    )  # fmt: skip

    def __init__(
        self, clock: Clock, phases: PhaseStack, lock: threading.Lock, seen: list[Seen], *, first: int = 0, drain: Callable[[], None]
    ) -> None:
        super().__init__(first)
        self.waiting: deque[Ended | Finished] = deque()
        self._drain, self._pool, self._next = drain, phases.events, 0
        self._rows: list[TimeRow] = []
        self._seen, self._expected = seen, list(seen)
        self._clock, self._phases, self._lock, self._monotonic_ns = clock, phases, lock, clock.monotonic_ns
        self.left = self.ended = self.written = self.size = 0
        self.last: tuple[int, int, int, int | None] = 0, 0, 0, None
        self._fd, self._room, self._thread = -1, 0, 0
        self._add: Callable[[Plain | Entry], None] | None = None
        self._alike = Alike(None, None, None)
        self._due, self._board = 0, False
        self._writer: CaptureWriter | None = None
        self._open: list[int] = []
        self._labels: list[Label] = []
        self._sizes: tuple[str, int | None, int | None] = "", None, None
        self._written = 0
        self._notes: dict[tuple[str, str], int] = {}
        self._batch: int | None = None
        self._tokens: int | None = None
        self._texts: dict[int, str] = {}

    def arm(
        self, left: int, writer: CaptureWriter | None, *, given: tuple[int | None, int | None], like: StepRecord, expected: list[Seen],
        labels: Labels, logged: Logged,
    ) -> None:  # fmt: skip
        """Take the next `left` iterations.

        given: the sizes that the script gave and must give again; like: the iteration before, whose signature and sizes theirs are;
        expected: what `InputWatch` saw of its inputs, and must see again. logged: where their scalars go; one that is due elsewhere does
        not end here.
        """
        self._expected, self._pool, self._rows = expected, self._phases.events, []
        self._thread, self._open = get_ident(), self._phases.open
        self._batch, self._tokens = given
        self._labels = labels.known
        sizes = like.signature, like.batch, like.tokens
        if sizes != self._sizes:
            self._sizes = sizes
            self._texts.clear()
        self.log(writer, logged)
        self.left = left

    def log(self, writer: CaptureWriter | None, logged: Logged) -> None:
        """Take where iterations go from now on."""
        self._add, self._alike, self._due, self._board = logged
        self._writer = writer if writer is not None and not writer.problem else None
        if self._writer is None:
            self._fd, self._room, self._notes, self._written = -1, 0, {}, len(self._labels)
        else:
            self._fd, self.size, self._room, self._notes, self._written = self._writer.direct()

    def end(self, number: int | None, batch: int | None, tokens: int | None) -> bool:
        """End the iteration and begin the next one. False where the iteration is not an ordinary one; then nothing has happened."""
        if self.left <= 0:
            return False
        began = perf_counter_ns()
        phases, pool = self._phases, self._pool
        if (
            (number is not None and number != self.number)
            or batch != self._batch
            or tokens != self._tokens
            or self._seen != self._expected
            or self._open
            or self._notes
            or phases.sums
            or len(self._labels) != self._written
            or self.size > self._room
            or get_ident() != self._thread
            or (pool is not None and pool.lost)
            or (began >= self._due and (self._board or wandb_open()))
            or not self._lock.acquire(False)
        ):
            return False
        try:
            whole = self.whole
            if whole is not None:
                whole.stop()
            clock = self._clock
            own = clock.own_ns
            end = began - self._monotonic_ns - own
            number, start = self.number, self.start_ns
            times = phases.times
            phases.times = []
            phases.step_start = end
            self._seen.clear()
            inside, before = own - self.own_at_start, self.before_ns
            self.previous = number
            self.number = number + self.stride
            self.start_ns = end
            self.own_at_end = own
            self.ended += 1
            self.left -= 1
            ended = number, start, end - start, inside, before, times, whole, began
            self.whole = None
            self.waiting.append(ended)
            if began >= self._next or len(self.waiting) > MOST_COLLECTED:
                self._next = began + BATCH_NS
                self._write_passed(pool)
            if pool is not None:
                self.whole = pool.started()
            spent = perf_counter_ns() - began
            self.before_ns = spent
            self.own_at_start = clock.own_ns = own + spent
        finally:
            self._lock.release()
        return True

    def _filled(self, phases: int, values: tuple[object, ...]) -> str:
        """Return the records of an iteration with that many phases."""
        try:
            text = self._texts[phases]
        except KeyError:
            text = self._text(phases)
        return text % values

    def _write(self, lines: bytes) -> None:
        try:
            done = os.write(self._fd, lines)
        except BaseException as error:
            self._refused(error, lines)
        else:
            self.size += done
            if done != len(lines):
                self._complete(lines, done)

    def catch_up(self) -> None:
        """Write what waits, where no device is timed, unless an iteration ends just now."""
        if self._lock.acquire(False):
            try:
                self.write_all()
            finally:
                self._lock.release()

    def write_all(self) -> None:
        """Write what waits, where no device is timed. Does nothing on other threads than that of the iterations."""
        if self._pool is None and self.waiting and get_ident() == self._thread:
            self._write_passed(None)

    def _write_passed(self, pool: EventPool | None) -> None:
        """Write the iterations whose events the device has passed, if it is timed, the oldest first, up to one whose events it has not."""
        waiting, length = self.waiting, 0
        texts: list[str] = []
        if pool is not None and not _timed_to_the_end(waiting[-1]):
            return
        while waiting and self.size + length <= self._room:
            one = waiting[0]
            if not isinstance(one, tuple):
                if not one.done():
                    break
                self._write_all(texts)
                texts, length = [], 0
                self._drain()
                continue
            if pool is not None and not _passed(pool, one):
                break
            waiting.popleft()
            try:
                texts.append(self._timed(pool, one) if pool is not None else self._timed_by_host(one))
            except BaseException:
                self._write_all(texts)
                raise
            length += len(texts[-1])
        self._write_all(texts)
        if len(waiting) > MOST_WAITING:
            self.left = 0  # what to do then is the tracker's

    def _write_all(self, texts: list[str]) -> None:
        if self._fd >= 0 and texts:
            self._write("".join(texts).encode())

    def _timed_by_host(self, one: Ended) -> str:
        """Keep the scalars of an iteration that the host alone timed, and return its records; "" where there is no file."""
        number, start, duration, inside, before, times, _, now = one
        values = [number, start, duration, inside, before]
        if times:
            values.append(number)
            for time in _in_order(times):
                values += time[:3]
        row = tuple(values)
        self.last = number, start, duration, None
        self.written += 1
        if self._add is not None:
            self._add((now, row, self._alike))
        return self._filled(len(times), row) if self._fd >= 0 else ""

    def _timed(self, pool: EventPool, one: Ended) -> str:
        """Read the events of an iteration, keep its scalars, and return its records; "" where there is no file."""
        number, start, duration, inside, before, times, whole, now = one
        device = pool.resolve(whole)
        values: list[object] = [number, start, duration, "" if device is None else f',"device_ns":{device}', inside, before]
        rows: list[TimeRow] = []
        row: list[int | None] = [number, start, duration if device is None else device, inside, before]
        if times:
            values.append(number)
            row.append(number)
            for label, begin, spent, pair in _in_order(times):
                ns = pool.resolve(pair)
                row += (label, begin, spent if device is None else ns)
                rows.append((label, begin, spent, ns, 1))
                values += (label, begin, spent, "null" if ns is None else ns)
        self.last, self._rows = (number, start, duration, device), rows
        self.written += 1
        if self._add is not None:
            self._add(Entry((now, tuple(row), self._alike), device, None, False))
        return self._filled(len(times), tuple(values)) if self._fd >= 0 else ""

    def hand_over(self) -> None:
        """Make those that wait what the tracker writes, and end no more of them."""
        self.left = 0
        waiting, pool = self.waiting, self._pool
        signature, batch, tokens = self._sizes
        for at, one in enumerate(waiting):
            if isinstance(one, tuple):
                number, start, duration, inside, before, times, whole, _ = one
                step = StepRecord(number, start, duration, signature=signature, batch=batch, tokens=tokens)
                step.overhead_ns, step.before_ns = inside, before
                waiting[at] = Finished(step, PendingTimes(times, {}, self._phases, pool), [], whole, pool, NO_ROWS, [], False, inside)

    # --- The rest ---

    def restart(self) -> bool:
        """Begin the iteration anew. False where it is not an ordinary one; then nothing has happened."""
        if self.left <= 0:
            return False
        began = perf_counter_ns()
        phases = self._phases
        if self._open or phases.sums or get_ident() != self._thread or not self._lock.acquire(False):
            return False
        try:
            clock = self._clock
            own = clock.own_ns
            phases.times = []
            self._seen.clear()
            if self._pool is not None:
                self._start_whole(self._pool)
            phases.step_start = self.start_ns = began - self._monotonic_ns - own
            own += perf_counter_ns() - began
            self.before_ns = own - self.own_at_end
            self.own_at_start = clock.own_ns = own
        finally:
            self._lock.release()
        return True

    def _start_whole(self, pool: EventPool) -> None:
        whole = self.whole
        if whole is None:
            self.whole = pool.started()
        else:
            whole.start()

    def last_step(self) -> StepRecord:
        """Return the last iteration that was written here; with its phases where a device was timed."""
        signature, batch, tokens = self._sizes
        return StepRecord(*self.last, signature=signature, batch=batch, tokens=tokens, phase_times=self._rows)

    def _text(self, phases: int) -> str:
        """Return the records of an iteration with that many phases, with places for its numbers."""
        signature, batch, tokens = self._sizes
        sizes = f',"signature":"{signature}"' if signature else ""
        sizes += "" if batch is None else f',"batch":{batch:d}'
        sizes += "" if tokens is None else f',"tokens":{tokens:d}'
        device, row = ("", "[%d,%d,%d,null,1]") if self._pool is None else ("%s", "[%d,%d,%d,%s,1]")
        head = '{"kind":"step","iteration":%d,"start_ns":%d,"duration_ns":%d,"sampled":false'
        text = f'{head}{device}{sizes},"overhead_ns":%d,"before_ns":%d}}\n'
        if phases:
            text += f'{{"kind":"phase_time","iteration":%d,"rows":[{",".join([row] * phases)}]}}\n'
        if len(self._texts) < MOST_TEXTS:
            self._texts[phases] = text
        return text

    def _refused(self, error: BaseException, line: bytes) -> None:
        """Deal with a record that was not written, or with a signal's handler that raised meanwhile."""
        writer = self._writer
        if isinstance(error, OSError) and writer is not None:
            self._fd = -1
            writer.continued(self.size, line, 0, error)
            return
        self.left, self.before_ns, self.own_at_start = 0, 0, self._clock.own_ns
        if writer is not None:
            writer.interrupted()
        raise error

    def _complete(self, line: bytes, done: int) -> None:
        """Write the rest of a record of which the file system took a part."""
        if self._writer is not None:
            self._writer.continued(self.size - done, line, done, None)
            self._fd, self.size, self._room, self._notes, _ = self._writer.direct()


def _in_order(times: list[PhaseTime]) -> list[PhaseTime]:
    """Sort the phases of an iteration by their start, in place; of two that begin at once the outer one, which ended later, is first."""
    if len(times) > 1:
        times.reverse()
        times.sort(key=_start_of)
    return times


def _timed_to_the_end(one: Ended | Finished) -> bool:
    """Return whether the last event of an iteration was recorded; else a graph may be captured, where no event may be asked for."""
    whole = one[6] if isinstance(one, tuple) else one.whole
    return whole is not None and whole.ended is not None


def _passed(pool: EventPool, one: Ended) -> bool:
    """Return whether the device has passed the events of an iteration."""
    whole = one[6]
    stream = None
    if whole is not None and whole.ended is not None:
        if not pool.done(whole):
            return False
        stream = whole.ended if whole.ended != ANY_STREAM else None
    for time in one[5]:
        pair = time[3]
        if pair is not None and not pair.passed:
            if stream is not None and pair.within(stream):
                pair.passed = True
            elif not pool.done(pair):
                return False
    return True
