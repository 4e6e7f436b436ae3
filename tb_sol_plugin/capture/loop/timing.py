"""Measures device times by pairs of events: pooled, recorded without waiting, read only when the device has passed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

POOL: Final = 1024
"""Events kept for use again."""


class Event(Protocol):
    """Is a timing event, as `torch.cuda.Event` and those of other devices are."""

    def record(self) -> object: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end: Event, /) -> float: ...


class Pair:
    """Times a range by two events, each on the stream that is current at its record. What fails is counted by the pool; nothing raises."""

    __slots__ = ("_pool", "began", "first", "last", "stopped")

    def __init__(self, pool: EventPool, first: Event, last: Event) -> None:
        self._pool, self.first, self.last = pool, first, last
        self.began = self.stopped = False

    def start(self) -> None:
        self.began = self._pool.record(self.first)

    def stop(self) -> None:
        self.stopped = self.began and self._pool.record(self.last)


class EventPool:
    """Keeps pairs of timing events of one type of device. Nothing here waits; what fails is counted in `lost` by reason.

    `pair()` answers a pair that its user starts and stops, `resolve(pair)` the ns in between once the device has passed both, and takes
    the events back.

    make: makes a timing event. usable: asked before a record; false while the stream is captured into a graph, or the device is not in use.
    """

    def __init__(self, make: Callable[[], Event], usable: Callable[[], bool] = lambda: True) -> None:
        self._make, self._usable = make, usable
        self._free: list[Event] = []
        self.lost: Counter[str] = Counter()

    def pair(self) -> Pair | None:
        """Return a pair of events; None where none can be recorded now."""
        try:
            if not self._usable():
                return None
            free = self._free
            return Pair(self, free.pop() if free else self._make(), free.pop() if free else self._make())
        except Exception as error:
            self.lost[f"no event: {type(error).__name__}"] += 1
            return None

    def started(self) -> Pair | None:
        """Return a pair whose first event is recorded."""
        pair = self.pair()
        if pair is not None:
            pair.start()
        return pair

    def record(self, event: Event) -> bool:
        """Record an event on the current stream. Returns whether that was possible."""
        try:
            if self._usable():
                event.record()
                return True
        except Exception as error:
            self.lost[f"event not recorded: {type(error).__name__}"] += 1
        return False

    def done(self, pair: Pair | None) -> bool:
        """Return whether nothing is gained by waiting: the device has passed both events, or they will never be read."""
        if pair is None or not pair.stopped:
            return True
        try:
            return pair.last.query() and pair.first.query()
        except Exception:
            return True  # `resolve` meets the same error, and counts it

    def resolve(self, pair: Pair | None) -> int | None:
        """Return the ns between both events, which go back to the pool; None where that is not known. Ask `done` before."""
        if pair is None or not pair.stopped:
            return None
        pair.stopped = False
        try:
            if not (pair.last.query() and pair.first.query()):
                self.lost["event not completed"] += 1
                return None
            elapsed = pair.first.elapsed_time(pair.last)
        except Exception as error:
            self.lost[f"event not read: {type(error).__name__}"] += 1
            return None
        if len(self._free) < POOL:
            self._free += (pair.first, pair.last)
        return round(elapsed * 1e6) if elapsed >= 0 else None


def event_pool(kind: str) -> EventPool | None:
    """Return the pool for a type of device (cuda, which ROCm shares; xpu, mps); None where times come from the host's clock.

    A device that the process has not used yet is not initialized for the sake of timing.
    """
    if kind in ("", "cpu", "meta"):
        return None
    import torch

    module = getattr(torch, kind, None)
    event = getattr(module, "Event", None)
    if event is None or not hasattr(event, "elapsed_time") or not hasattr(event, "query"):
        return None
    initialized = getattr(module, "is_initialized", lambda: True)
    capturing = getattr(module, "is_current_stream_capturing", lambda: False)
    return EventPool(lambda: event(enable_timing=True), lambda: bool(initialized()) and not capturing())
