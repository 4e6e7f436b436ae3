"""Finds the host rows that reach into a stretch of time, without a look at all rows of the recording.

    calls = calls_reaching(capture)
    rows = calls.into(low, high)          # ascending; of nested rows all before a long one are among them
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.time import attribution as at
from tb_sol_plugin.metrics.work.ownership import outermost_operators
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints


@dataclass(frozen=True)
class Reaching:
    """Host rows, ascending, with what tells which of them reach into a stretch.

    threads: for each thread (its first place among the rows, the place after its last). since: of each row, the least start of it and those
    after it on its thread; until: the latest end of it and those before it.
    """

    rows: Ints
    threads: list[tuple[int, int]]
    since: Ints
    until: Ints

    def into(self, low: int, high: int) -> Ints:
        """Returns the rows among which are all that cover some of `[low, high)`, ascending."""
        found = []
        for first, last in self.threads:
            begin = first + int(np.searchsorted(self.until[first:last], low, side="right"))
            end = first + int(np.searchsorted(self.since[first:last], high, side="left"))
            if begin < end:
                found.append(self.rows[begin:end])
        if len(found) == 1:
            return found[0]
        return np.concatenate(found) if found else self.rows[:0]

    def within(self, spans: iv.Spans) -> Ints:
        """Returns the same of the stretch from the first to the last of some spans."""
        return self.into(int(spans[0][0]), int(spans[1][-1])) if len(spans[0]) else self.rows[:0]


def reaching(capture: Capture, name: str, rows: Callable[[], Ints]) -> Reaching:
    """Returns some host rows, ascending, to look for those that reach into a stretch; made once per recording and name."""

    def make() -> Reaching:
        h, chosen = at.host(capture), rows()
        since, until, thread = h.start[chosen], h.stop[chosen], h.thread[chosen]
        bounds = np.flatnonzero(np.diff(thread)) + 1
        threads = list(zip([0, *bounds.tolist()], [*bounds.tolist(), len(chosen)], strict=True)) if len(chosen) else []
        for first, last in threads:
            own = since[first:last]
            if (own[1:] < own[:-1]).any():
                own[::-1] = np.minimum.accumulate(own[::-1])
            np.maximum.accumulate(until[first:last], out=until[first:last])
        return Reaching(chosen, threads, since, until)

    return memo(capture, ("reaching", name), make)


def calls_reaching(capture: Capture) -> Reaching:
    """Returns the runtime and driver calls."""
    return reaching(capture, "calls", lambda: at.of_kind(capture, S.CALL))


def operators_reaching(capture: Capture) -> Reaching:
    """Returns the operators that no other operator is around."""
    return reaching(capture, "operators", lambda: outermost_operators(capture))
