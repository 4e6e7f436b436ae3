"""Device times by pairs of events: pooled, recorded without waiting, read only when the device has passed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Final, Protocol

POOL: Final = 1024
"""Events kept for use again."""


class Event(Protocol):
    """What this file needs of `torch.cuda.Event` and its kin on other devices."""

    def record(self) -> object: ...
    def query(self) -> bool: ...
    def elapsed_time(self, end: Event, /) -> float: ...


class Pair:
    """Two events on the stream that was current when each was recorded. `stopped`: the second one is recorded."""

    __slots__ = ("end", "start", "stopped")

    def __init__(self, start: Event, end: Event) -> None:
        self.start, self.end, self.stopped = start, end, False


class EventPool:
    """Pairs of timing events of one kind of device.

    `pair()` records the first event, `stop(pair)` the second, `resolve(pair)` answers the ns between them once the device has passed
    both, and takes the events back. Nothing here waits. What failed is counted in `lost` by reason.

    make: makes a timing event. usable: asked before a record; false while the stream is captured into a graph, or the device is not in use.
    """

    def __init__(self, make: Callable[[], Event], usable: Callable[[], bool] = lambda: True) -> None:
        self._make, self._usable = make, usable
        self._free: list[Event] = []
        self.lost: Counter[str] = Counter()

    def pair(self) -> Pair | None:
        """A pair whose first event is recorded now; None where that cannot be."""
        try:
            if not self._usable():
                return None
            free = self._free
            pair = Pair(free.pop() if free else self._make(), free.pop() if free else self._make())
            pair.start.record()
        except Exception as error:
            self.lost[f"event not recorded: {type(error).__name__}"] += 1
            return None
        return pair

    def stop(self, pair: Pair | None) -> None:
        """Record the second event of a pair."""
        if pair is None:
            return
        try:
            if self._usable():
                pair.end.record()
                pair.stopped = True
        except Exception as error:
            self.lost[f"event not recorded: {type(error).__name__}"] += 1

    def done(self, pair: Pair | None) -> bool:
        """True if nothing is gained by waiting: the device has passed both events, or they will never be read."""
        if pair is None or not pair.stopped:
            return True
        try:
            return pair.end.query() and pair.start.query()
        except Exception:
            return True  # `resolve` meets the same error, and counts it

    def resolve(self, pair: Pair | None) -> int | None:
        """The ns between both events, which go back to the pool; None where that is not known. Ask `done` before."""
        if pair is None or not pair.stopped:
            return None
        pair.stopped = False
        try:
            if not (pair.end.query() and pair.start.query()):
                self.lost["event not completed"] += 1
                return None
            elapsed = pair.start.elapsed_time(pair.end)
        except Exception as error:
            self.lost[f"event not read: {type(error).__name__}"] += 1
            return None
        if len(self._free) < POOL:
            self._free += (pair.start, pair.end)
        return round(elapsed * 1e6) if elapsed >= 0 else None


def event_pool(kind: str) -> EventPool | None:
    """The pool for a kind of device (cuda, which ROCm shares; xpu, mps); None where times come from the host's clock.

    A device that the process has not used yet is not initialised for the sake of timing.
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
