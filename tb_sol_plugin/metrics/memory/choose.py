"""Which memories a recording speaks of, and which source of each is looked at.

One memory may be told by several sources, each with its own name for it: `CUDA 0` of a trace, `device 0` of a snapshot and of a recorder,
`cuda:0` of a timeline. They stand together here, under the name of the first.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.curves import Curves, Event, whole
from tb_sol_plugin.model.capture import Capture

Source: TypeAlias = Literal["auto", "events", "snapshot", "timeline", "recorder"]
SOURCES: Final = {
    "events": "memory events of the trace",
    "snapshot": "allocator snapshot",
    "timeline": "memory timeline",
    "recorder": "records of the program",
}
"""In the order in which they are taken where a reader does not choose."""
NAMELESS: Final = "the device"
_NUMBER: Final = re.compile(r"(\d+)$")
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
        """Allocations that failed, as any source tells them, in order of time."""
        return tuple(sorted({e for c in self.curves for e in c.events if e.what == "oom"}, key=lambda e: e.time_ns))

    def teller(self, curve: Curves, sources: tuple[str, ...]) -> Curves:
        """The curve itself where it is of one of these sources, else that of the first of them that there is; else itself."""
        if curve.source in sources:
            return curve
        return next((c for s in sources for c in self.curves if c.source == s), curve)

    def of(self, source: Source) -> Curves | None:
        """The curve of a source; None where it has none."""
        return self.best if source == "auto" else next((c for c in self.curves if c.source == source), None)


def number_of(label: str) -> int:
    """The number of a device in its name, -1 without one: 3 of `HIP 3` and of `cuda:3`."""
    found = _NUMBER.search(label)
    return int(found[1]) if found else -1


def is_host(label: str) -> bool:
    return label.strip().lower().partition(":")[0] in _HOST


def memories(capture: Capture) -> list[Memory]:
    """Those that a curve is known of: devices before the host, the one with the highest peak first among them."""
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
    for curve in nameless:  # it can be told only where there is one device
        numbers = [key for key in groups if not key[0]]
        groups.setdefault(numbers[0] if len(numbers) == 1 else (False, -1), []).append(curve)
    found = [Memory(curves[0].device or NAMELESS, number, host, tuple(curves)) for (host, number), curves in groups.items()]
    return sorted(found, key=lambda m: (m.host, -m.best.peak, m.number))


def beside(capture: Capture, curve: Curves, source: str) -> Curves | None:
    """The curve of another source of the same memory; None without one."""
    same = next((m for m in memories(capture) if any((c.device, c.source) == (curve.device, curve.source) for c in m.curves)), None)
    return next((c for c in same.curves if c.source == source), None) if same is not None else None


def chosen(capture: Capture, device: str = "", source: Source = "auto") -> tuple[Memory, Curves]:
    """The memory and the curve that a reader asks for; "" is the first memory. BadQuery where there is none of that name or source."""
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
