"""Ends ordinary iterations with little work: those that are not sampled, have no device to wait for and nothing to log.

What is always on runs between two kernels that have filled the caches, so its time is the number of objects and functions that it
touches, each of them a cache miss. The common iteration therefore has this one function, which works on one object: the record is one
formatted text and one `write`, and the other parts of the tracker learn of it when they are next used. Whatever is out of the ordinary is
left to `SOLTracker`, which arms the fast path again when it has dealt with it.
"""

from __future__ import annotations

import os
import threading
from operator import itemgetter
from threading import get_ident
from time import perf_counter_ns
from typing import TYPE_CHECKING, Final

from tb_sol_plugin.capture.loop.schedule import StepRecord
from tb_sol_plugin.capture.report.output import wandb_open
from tb_sol_plugin.capture.report.scalars import Alike

if TYPE_CHECKING:
    from collections.abc import Callable

    from tb_sol_plugin.capture.hooks.inputs import Seen
    from tb_sol_plugin.capture.loop.guard import Clock
    from tb_sol_plugin.capture.loop.labels import Label, Labels
    from tb_sol_plugin.capture.loop.phases import PhaseStack
    from tb_sol_plugin.capture.report.output import Logged
    from tb_sol_plugin.capture.report.scalars import Entry, Plain
    from tb_sol_plugin.capture.report.writer import CaptureWriter

MOST_TEXTS: Final = 32
"""Numbers of phases whose text is kept."""
_start_of: Final = itemgetter(1)


class IterationTimes:
    """Has number and times of the iteration that runs, in ns on the recorder's clock.

    stride: between the numbers of iterations. previous: number of the one before, None for none. own_at_start, own_at_end: `Clock.own_ns`
    when this one began, and when the one before ended. before_ns: own work between the two.
    """

    __slots__ = ("before_ns", "number", "own_at_end", "own_at_start", "previous", "start_ns", "stride")

    def __init__(self, number: int) -> None:
        self.number, self.stride = number, 1
        self.previous: int | None = None
        self.start_ns = self.own_at_start = self.own_at_end = self.before_ns = 0

    def advance(self, number: int) -> None:
        """Let the iteration of that number be the one before: the next is as far from it as it was from the one before it."""
        if self.previous is not None and number > self.previous:
            self.stride = number - self.previous
        self.previous, self.number = number, number + self.stride


class FastPath(IterationTimes):
    """Ends ordinary iterations, and keeps the times of all: one object, since the common iteration must touch few.

    left: how many iterations can still end here. ended: how many did since the other parts learned of it; last: number, start_ns and
    duration_ns of the last of them. size: of the file.
    """

    # All that the common iteration needs, in one object.
    __slots__ = (
        "_add", "_alike", "_batch", "_board", "_clock", "_due", "_expected", "_fd", "_labels", "_lock", "_monotonic_ns", "_notes", "_open",
        "_phases", "_room", "_seen", "_texts", "_thread", "_tokens", "_writer", "_written", "ended", "last", "left", "size",
    )  # fmt: skip

    def __init__(self, clock: Clock, phases: PhaseStack, lock: threading.Lock, seen: list[Seen], *, first: int = 0) -> None:
        super().__init__(first)
        self._seen, self._expected = seen, list(seen)
        self._clock, self._phases, self._lock, self._monotonic_ns = clock, phases, lock, clock.monotonic_ns
        self.left = self.ended = self.size = 0
        self.last = 0, 0, 0
        self._fd, self._room, self._thread = -1, 0, 0
        self._add: Callable[[Plain | Entry], None] | None = None
        self._alike = Alike(None, None, None)
        self._due, self._board = 0, False
        self._writer: CaptureWriter | None = None
        self._open: list[int] = []
        self._labels: list[Label] = []
        self._written: tuple[str, int | None, int | None, int] = "", None, None, 0
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
        self._expected = expected
        self._thread, self._open = get_ident(), self._phases.open
        self._batch, self._tokens = given
        self._add, self._alike, self._due, self._board = logged
        self._writer = writer if writer is not None and not writer.problem else None
        self._labels = labels.known
        count = len(labels.known)
        if self._writer is None:
            self._fd, self._room, self._notes = -1, 0, {}
        else:
            self._fd, self.size, self._room, self._notes, count = self._writer.direct()
        written = like.signature, like.batch, like.tokens, count
        if written != self._written:
            self._written = written
            self._texts.clear()
        self.left = left

    def end(self, number: int | None, batch: int | None, tokens: int | None) -> bool:
        """End the iteration and begin the next one. False where the iteration is not an ordinary one; then nothing has happened."""
        if self.left <= 0:
            return False
        began = perf_counter_ns()
        phases = self._phases
        if (
            (number is not None and number != self.number)
            or batch != self._batch
            or tokens != self._tokens
            or self._seen != self._expected
            or self._open
            or self._notes
            or phases.sums
            or len(self._labels) != self._written[3]
            or self.size > self._room
            or get_ident() != self._thread
            or (began >= self._due and (self._board or wandb_open()))
            or not self._lock.acquire(False)
        ):
            return False
        try:
            clock = self._clock
            own = clock.own_ns
            end = began - self._monotonic_ns - own
            number, start = self.number, self.start_ns
            duration = end - start
            times = phases.times
            phases.times = []
            phases.step_start = end
            self._seen.clear()
            inside, before = own - self.own_at_start, self.before_ns
            self.last = number, start, duration
            self.number = number + self.stride
            self.start_ns = end
            self.own_at_end = own
            self.ended += 1
            self.left -= 1
            fd = self._fd
            if fd >= 0:
                values = [number, start, duration, inside, before]
                if times:
                    if len(times) > 1:
                        times.reverse()  # of two that begin at once the outer one comes first
                        times.sort(key=_start_of)
                    values.append(number)
                    for time in times:
                        values += time[:3]
                try:
                    text = self._texts[len(times)]
                except KeyError:
                    text = self._text(len(times))
                line = (text % tuple(values)).encode()
                try:
                    done = os.write(fd, line)
                except BaseException as error:
                    self._refused(error, line)
                else:
                    self.size += done
                    if done != len(line):
                        self._complete(line, done)
            if self._add is not None:
                self._add((began, number, duration, times, self._alike))
            spent = perf_counter_ns() - began
            self.before_ns = spent
            self.own_at_start = clock.own_ns = own + spent
        finally:
            self._lock.release()
        return True

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
            phases.step_start = self.start_ns = began - self._monotonic_ns - own
            own += perf_counter_ns() - began
            self.before_ns = own - self.own_at_end
            self.own_at_start = clock.own_ns = own
        finally:
            self._lock.release()
        return True

    def last_step(self) -> StepRecord:
        """Return the last iteration that ended here, without its phases."""
        signature, batch, tokens, _ = self._written
        return StepRecord(*self.last, signature=signature, batch=batch, tokens=tokens)

    def _text(self, phases: int) -> str:
        """Return the records of an iteration with that many phases, with places for its numbers."""
        signature, batch, tokens, _ = self._written
        sizes = f',"signature":"{signature}"' if signature else ""
        sizes += "" if batch is None else f',"batch":{batch:d}'
        sizes += "" if tokens is None else f',"tokens":{tokens:d}'
        text = f'{{"kind":"step","iteration":%d,"start_ns":%d,"duration_ns":%d,"sampled":false{sizes},"overhead_ns":%d,"before_ns":%d}}\n'
        if phases:
            text += f'{{"kind":"phase_time","iteration":%d,"rows":[{",".join(["[%d,%d,%d,null,1]"] * phases)}]}}\n'
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
