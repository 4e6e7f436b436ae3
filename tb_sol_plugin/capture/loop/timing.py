"""Measures device times by pairs of events: pooled, recorded without waiting, read only when the device has passed them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

POOL: Final = 512
"""Pairs of events kept for use again."""
ANY_STREAM: Final = -1
"""Answer of a device that does not tell on which stream an event was recorded."""


class Event(Protocol):
    """Is a timing event, as `torch.cuda.Event` and those of other devices are."""

    def query(self) -> bool: ...
    def elapsed_time(self, end: Any, /) -> float: ...


class RecordedEvent(Event, Protocol):
    """Is a timing event that finds the current stream by itself."""

    def record(self) -> object: ...


Recorder: TypeAlias = "Callable[[Any], int | None]"
"""Records an event on the current stream and returns which stream that is; None where nothing can be recorded now."""


class Pair:
    """Times a range by two events, each on the stream that is current at its record. What fails is counted by the pool; nothing raises.

    began, ended: streams of the two events, None where not recorded. passed: the device is known to have passed both.
    """

    __slots__ = ("_pool", "began", "ended", "first", "last", "passed")

    def __init__(self, pool: EventPool, first: Event, last: Event) -> None:
        self._pool, self.first, self.last = pool, first, last
        self.began: int | None = None
        self.ended: int | None = None
        self.passed = False

    def start(self) -> None:
        try:
            self.began = self._pool.record(self.first)
        except Exception as error:
            self._pool.failed(error)

    def stop(self) -> None:
        if self.began is not None:
            try:
                self.ended = self._pool.record(self.last)
            except Exception as error:
                self._pool.failed(error)

    def within(self, stream: int | None) -> bool:
        """Return whether both events are on this stream, so that who has passed a later event of it has passed both."""
        return self.began == self.ended == stream


class EventPool:
    """Keeps pairs of timing events of one type of device. Nothing here waits; what fails is counted in `lost` by reason.

    `pair()` answers a pair that its user starts and stops, `resolve(pair)` the ns in between once the device has passed both, and takes
    the pair back.

    make: makes a timing event. usable: asked before one is made; false while the stream is captured into a graph, or the device is not in
    use. record: see `Recorder`; default: the events' own way, where usable.
    """

    def __init__(self, make: Callable[[], Event], usable: Callable[[], bool] = lambda: True, record: Recorder | None = None) -> None:
        self._make, self._usable = make, usable
        self.record: Recorder = record or self._by_itself
        self._free: list[Pair] = []
        self.lost: Counter[str] = Counter()

    def _by_itself(self, event: RecordedEvent) -> int | None:
        if not self._usable():
            return None
        event.record()
        return ANY_STREAM

    def failed(self, error: Exception) -> None:
        """Count an event that could not be recorded."""
        self.lost[f"event not recorded: {type(error).__name__}"] += 1

    def pair(self) -> Pair | None:
        """Return a pair of events; None where none can be recorded now."""
        try:
            return self._free.pop()
        except IndexError:
            pass
        try:
            return Pair(self, self._make(), self._make()) if self._usable() else None
        except Exception as error:
            self.lost[f"no event: {type(error).__name__}"] += 1
            return None

    def started(self) -> Pair | None:
        """Return a pair whose first event is recorded."""
        # Called for each phase: what is common is done here.
        try:
            pair = self._free.pop()
        except IndexError:
            made = self.pair()
            if made is None:
                return None
            pair = made
        try:
            pair.began = self.record(pair.first)
        except Exception as error:
            self.failed(error)
        return pair

    def done(self, pair: Pair | None) -> bool:
        """Return whether nothing is gained by waiting: the device has passed both events, or they will never be read."""
        if pair is None or pair.ended is None or pair.passed:
            return True
        try:
            # what is before an event on its stream has passed with it
            pair.passed = pair.last.query() and ((pair.began == pair.ended != ANY_STREAM) or pair.first.query())
            return pair.passed
        except Exception:
            return True  # `resolve` meets the same error, and counts it

    def resolve(self, pair: Pair | None) -> int | None:
        """Return the ns between both events, which go back to the pool; None where that is not known. Ask `done` before."""
        if pair is None or pair.ended is None:
            return None
        try:
            if not (pair.passed or (pair.last.query() and pair.first.query())):
                self.lost["event not completed"] += 1
                pair.ended = None
                return None
            elapsed = pair.first.elapsed_time(pair.last)
        except Exception as error:
            self.lost[f"event not read: {type(error).__name__}"] += 1
            pair.ended = None
            return None
        pair.began = pair.ended = None
        pair.passed = False
        if len(self._free) < POOL:
            self._free.append(pair)
        return round(elapsed * 1e6) if elapsed >= 0 else None


def event_pool(kind: str, index: int | None = None) -> EventPool | None:
    """Return the pool for a type of device (cuda, which ROCm shares; xpu, mps); None where times come from the host's clock.

    A device that the process has not used yet is not initialized for the sake of timing. index: which of several it is; default the
    current one.
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
    usable = lambda: bool(initialized()) and not capturing()
    if kind == "cuda":
        base, record = getattr(torch._C, "_CudaEventBase", None), cuda_recorder(torch, index)
        if base is not None and record is not None:
            return EventPool(lambda: base(enable_timing=True), usable, record)
    return EventPool(lambda: event(enable_timing=True), usable)


def cuda_recorder(torch: Any, index: int | None) -> Recorder | None:
    """Return what records an event of CUDA on the current stream of that device, which it looks up only where it is another than before.

    `torch.cuda.Event.record` asks for the current stream each time and makes an object for it, by a dozen calls of Python. None where this
    torch lacks what it takes.
    """
    core, stream_of = torch._C, torch.cuda.current_stream
    raw_stream = getattr(core, "_cuda_getCurrentRawStream", None)
    capturing = getattr(core, "_cuda_isCurrentStreamCapturing", None)
    current_device = getattr(core, "_cuda_getDevice", None)
    if raw_stream is None or capturing is None or current_device is None:
        return None
    device = -1 if index is None else index
    known: tuple[int, Any] = ANY_STREAM, None

    def record(event: Any) -> int | None:
        nonlocal device, known
        if device < 0:
            device = current_device()
        raw = raw_stream(device)
        if raw and capturing():  # the default stream, 0, cannot be captured
            return None
        last = known  # one object, as threads have streams of their own
        if last[0] != raw:
            known = last = raw, stream_of(device)
        event.record(last[1])
        return raw  # type: ignore[no-any-return]

    return record
