"""One memory of a recording as pages that set recordings beside each other look at it: of several, the device with most in use."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics.memory.choose import Memory, chosen, memories
from tb_sol_plugin.metrics.memory.curves import Curves, within
from tb_sol_plugin.metrics.memory.headroom import Headroom, headroom
from tb_sol_plugin.metrics.memory.leak import Leak, longest
from tb_sol_plugin.metrics.memory.summary import Summary, summary
from tb_sol_plugin.metrics.memory.window import window_of
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query


@dataclass(frozen=True)
class Looked:
    """every: the curve of the whole recording, curve: of the window; found: its numbers; room: what is left; grows: None without steps."""

    memory: Memory
    every: Curves
    window: tuple[int, int] | None
    curve: Curves
    found: Summary
    room: Headroom
    grows: Leak | None

    @property
    def growth(self) -> float | None:
        """Bytes per step, where there are steps enough to say so."""
        g = self.grows
        return float(g.slope) if g is not None and g.verdict not in ("few", "no_steps") and math.isfinite(g.slope) else None

    @property
    def failures(self) -> int | None:
        """Allocations that failed; None where nothing tells them."""
        return max(self.found.failures, len(self.room.failures)) if self.found.failures is not None else None


def look(capture: Capture, query: Query) -> Looked:
    """Unavailable where no device's allocator was recorded."""
    if not memories(capture):
        raise Unavailable("no device's allocator was recorded", hint="record on a device, or with profile(profile_memory=True)")
    memory, every = chosen(capture)
    window = window_of(capture, every, "", query)
    curve = within(every, window)
    found = summary(capture, curve, limits=query.device_limits)
    if found is None:
        raise Unavailable("no level of memory in use was recorded", hint="record with profile(profile_memory=True)")
    room, grows = headroom(capture, every, limits=query.device_limits), longest(capture, memory.curves)
    return Looked(memory, every, window, curve, found, room, grows)
