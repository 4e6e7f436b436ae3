"""The recorder's clock: time since its start, less the work of the recorder itself."""

from __future__ import annotations

import time


class Clock:
    """`now()` in ns from the start, without what was added to `own_ns`.

    Whoever spends time on behalf of the recorder inside a step measures it and adds it to `own_ns`, so that a sampled step lasts as
    long as it would have without being watched (as far as that can be measured from inside Python).
    """

    __slots__ = ("monotonic_ns", "own_ns", "wall_ns")

    def __init__(self) -> None:
        self.wall_ns = time.time_ns()
        self.monotonic_ns = time.perf_counter_ns()
        self.own_ns = 0

    def now(self) -> int:
        return time.perf_counter_ns() - self.monotonic_ns - self.own_ns
