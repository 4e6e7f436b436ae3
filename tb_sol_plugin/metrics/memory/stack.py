"""What memory is for over time, of the memory events of a trace: allocations added up by their category."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.categories import NAMES, categories
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.replay import Ints
from tb_sol_plugin.model.capture import Capture


def stacked(capture: Capture, curve: Curves) -> Curves:
    """The whole curve of memory events with bytes by category at each point; they add up to what is in use, the rest is `unknown`.

    Other sources, curves without totals and recordings without addresses or categories as they are. Categories but `before` are estimates.
    """
    if curve.source != "events" or curve.relative or curve.allocated is None:
        return curve
    device = next(d for d in R.devices(capture) if d.label == curve.device)
    r, found = R.replay(capture, device), R.allocations(capture, device)
    if not len(found) or not bool(found["paired"].all()) or len(curve.time_ns) != len(r.row) + 1:
        return curve
    code = categories(capture, device)["category"].to_numpy()
    first, stop, size = found["first"].to_numpy(), found["stop"].to_numpy(), found["bytes"].to_numpy()
    levels: dict[str, Ints] = {}
    rest = curve.allocated.copy()
    before = NAMES.index("before")
    for i, name in enumerate(NAMES):
        own = code == i
        if name == "unknown" or not (own.any() or i == before):
            continue
        change = np.zeros(len(curve.time_ns), np.int64)  # one point more than events: that before them
        begun, ended = own & (first >= 0), own & (stop >= 0)
        np.add.at(change, first[begun] + 1, size[begun])
        np.subtract.at(change, stop[ended] + 1, size[ended])
        if i == before:
            change[0] += max(r.before, 0)
        levels[name] = np.cumsum(change)
        rest -= levels[name]
    if levels.keys() <= {"before"}:  # nothing is known to be for anything
        return curve
    levels["unknown"] = rest
    if any(int(level.min()) < 0 for level in levels.values()):  # totals contradict the events: a stack would lie
        return curve
    return replace(curve, categories=levels)
