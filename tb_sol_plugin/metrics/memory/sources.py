"""Lists the memories of a recording and chooses the source of each that a page shows.

Several sources may record one memory, each under its own name: `CUDA 0` of a trace, `device 0` of a snapshot and of a recorder,
`cuda:0` of a timeline. They stand together here, under the name of the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Literal, TypeAlias

import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.curves import Curves, Event, steps, whole
from tb_sol_plugin.metrics.time.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query

Source: TypeAlias = Literal["auto", "events", "snapshot", "timeline", "recorder"]
SOURCES: Final = {
    "events": "memory events of the trace",
    "snapshot": "allocator snapshot",
    "timeline": "memory timeline",
    "recorder": "records of the program",
}
"""In the order in which they are taken where a reader does not choose."""
NAMELESS: Final = "the device"
_NUMBER: Final = re.compile(r"(?<!\d)(\d+)$")
_HOST: Final = ("cpu", "host")
FEW: Final = 8
"""Names of devices that a message lists."""


@dataclass(frozen=True)
class Memory:
    """One memory. label: for a person. number: of the device, -1 unknown. host: it is the host's. curves: one per source, in order."""

    label: str
    number: int
    host: bool
    curves: tuple[Curves, ...]

    @property
    def best(self) -> Curves:
        """The curve to show first: one with levels before one with changes only, then by the order of sources."""
        return min(self.curves, key=lambda c: c.relative)

    @property
    def failures(self) -> tuple[Event, ...]:
        """Allocations that failed, as any source records them, in order of time."""
        return tuple(sorted({e for c in self.curves for e in c.events if e.what == "oom"}, key=lambda e: e.time_ns))

    def teller(self, curve: Curves, sources: tuple[str, ...]) -> Curves:
        """Returns the curve itself where it is of one of these sources, else that of the first of them that there is; else itself."""
        if curve.source in sources:
            return curve
        return next((c for s in sources for c in self.curves if c.source == s), curve)

    def of(self, source: Source) -> Curves | None:
        """Returns the curve of a source; None where it has none."""
        return self.best if source == "auto" else next((c for c in self.curves if c.source == source), None)


def number_of(label: str) -> int:
    """Returns the number of a device in its name, -1 without one: 3 of `HIP 3` and of `cuda:3`."""
    found = _NUMBER.search(label)
    return int(found[1]) if found else -1


def is_host(label: str) -> bool:
    return label.strip().lower().partition(":")[0] in _HOST


def memories(capture: Capture) -> list[Memory]:
    """Returns the memories that have a curve: devices before the host, the one with the highest peak first among them."""
    return memo(capture, ("memory.memories",), lambda: _memories(capture))


def _memories(capture: Capture) -> list[Memory]:
    groups: dict[tuple[bool, int], list[Curves]] = {}
    nameless = []
    for curve in sorted(whole(capture), key=lambda c: tuple(SOURCES).index(c.source)):
        host, number = is_host(curve.device), number_of(curve.device)
        if not host and number < 0:
            nameless.append(curve)
        else:
            groups.setdefault((host, -1 if host else number), []).append(curve)
    for curve in nameless:  # it is known only where there is one device
        numbers = [key for key in groups if not key[0]]
        groups.setdefault(numbers[0] if len(numbers) == 1 else (False, -1), []).append(curve)
    found = [Memory(curves[0].device or NAMELESS, number, host, tuple(curves)) for (host, number), curves in groups.items()]
    return sorted(found, key=lambda m: (m.host, -m.best.peak, m.number))


def curve_from(capture: Capture, curve: Curves, source: str) -> Curves | None:
    """Returns the curve of another source of the same memory; None without one."""
    same = next((m for m in memories(capture) if any((c.device, c.source) == (curve.device, curve.source) for c in m.curves)), None)
    return next((c for c in same.curves if c.source == source), None) if same is not None else None


def chosen_memory(capture: Capture, device: str = "", source: Source = "auto") -> tuple[Memory, Curves]:
    """Returns the memory and the curve that the query names; "" is the first memory.

    BadQuery where there is none of that name or source.
    """
    every = memories(capture)
    wanted = device.strip()
    if not wanted:
        fitting = [m for m in every if m.of(source) is not None] or every
    else:
        fitting = [m for m in every if wanted in (m.label, *(c.device for c in m.curves))]
        fitting = fitting or [m for m in every if wanted.lower() == m.label.lower() or wanted == str(m.number)]
    if not fitting:
        more = f" and {len(every) - FEW} more" if len(every) > FEW else ""
        raise BadQuery(f"no device {wanted!r}", hint=f"there are: {', '.join(m.label for m in every[:FEW])}{more}", field="device")
    memory = fitting[0]
    curve = memory.of(source)
    if curve is None:
        there = ", ".join(c.source for c in memory.curves)
        raise BadQuery(f"nothing of {memory.label} from {SOURCES[source]}", hint=f"choose one of auto, {there}", field="source")
    return memory, curve


# -- Windows and moments of time as a reader writes them -------------------------------------------------------------
# `12.5ms-40ms`, `1000-2000` (ns), from the start of the recording.


UNITS: Final = {"": 1, "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME: Final = r"(-?\d{1,18}(?:\.\d{1,9})?)(?:\s*(ns|us|µs|ms|s))?"
_MOMENT: Final = re.compile(_TIME)
_WINDOW: Final = re.compile(rf"{_TIME}\s*[-–~:]\s*{_TIME}")
_MOST: Final = 1 << 62
MOMENT: Final = "give it as 12.5ms, or as 12500000 in ns, from the start of the recording"
HINT: Final = "give it as 12.5ms-40ms, or as 12500000-40000000 in ns, from the start of the recording"


def moment(text: str, *, field: str = "at") -> int | None:
    """Returns ns from the start of the recording; None for "". BadQuery where it is no time."""
    plain = text.strip()
    if not plain:
        return None
    found = _MOMENT.fullmatch(plain)
    if found is None:
        raise BadQuery(f"not a time: {plain!r}", hint=MOMENT, field=field)
    return _ns(found[1], found[2] or "", field)


def span(text: str) -> tuple[int, int] | None:
    """Returns (start, end) in ns from the start of the recording; None for "". A unit at the end holds for both.

    BadQuery where it is none.
    """
    plain = text.strip()
    if not plain:
        return None
    found = _WINDOW.fullmatch(plain)
    if found is None:
        raise BadQuery(f"not a window: {plain!r}", hint=HINT, field="window")
    start = _ns(found[1], found[2] or found[4] or "", "window")
    end = _ns(found[3], found[4] or "", "window")
    if end <= start:
        raise BadQuery(f"the window {plain!r} has no length", hint="the end must lie after the start", field="window")
    return start, end


def _ns(number: str, unit: str, field: str) -> int:
    value = int((Decimal(number) * UNITS[unit]).to_integral_value())
    if abs(value) > _MOST:
        raise BadQuery(f"no recording is that long: {number} {unit or 'ns'}", hint=HINT, field=field)
    return value


def origin(capture: Capture) -> int:
    """Returns the moment from which a reader's times count: the start of the recording, ns."""
    return int(capture.facts.extent_ns[0])


def window_of(capture: Capture, curve: Curves, text: str, query: Query) -> tuple[int, int] | None:
    """Returns the window (ns of the capture) that a reader asks for: one of time, else the steps of `query.step`; None for all.

    BadQuery where nothing of the curve lies in it: it ends before the curve begins, or begins after its end and that of the recording.
    """
    found = span(text)
    if found is None:
        return _of_steps(capture, query) if query.step.strip() else None
    start, end = found[0] + origin(capture), found[1] + origin(capture)
    first = min(int(curve.time_ns[0]), origin(capture))
    last = max(int(curve.time_ns[-1]), int(capture.facts.extent_ns[1]))
    if end <= first or start >= last:
        low, high = ((t - origin(capture)) / 1e6 for t in (first, last))
        hint = f"the recording lasts from {low:.6g}ms to {high:.6g}ms"
        raise BadQuery(f"nothing was recorded in the window {text.strip()!r}", hint=hint, field="window")
    return max(start, first), min(end, last)


def _of_steps(capture: Capture, query: Query) -> tuple[int, int]:
    """Returns the first start and last end of the chosen steps on the host."""
    numbers = scope(capture, query).steps
    table = steps(capture)
    own = np.isin(table["number"].to_numpy(), numbers)
    return int(table["start_ns"].to_numpy()[own].min()), int(table["end_ns"].to_numpy()[own].max())
