"""What memory is for over time, of the memory events of a trace: allocations added up by their category."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.attribution import TIMELINE, lowest_levels, of_record, records_with_parts
from tb_sol_plugin.metrics.memory.categories import NAMES, categories
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.sources import curve_from, is_host
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints

LASTING: Final = ("params", "buffers", "master_weights", "main_grads", "exp_avg", "exp_avg_sq", "other_optimizer")
"""Parts that a job holds from its first steps to its end."""


def stacked(capture: Capture, curve: Curves) -> Curves:
    """The whole curve of memory events with bytes by category at each point; they add up to what is in use, the rest is `unknown`.

    Other sources, curves without totals and recordings without addresses or categories as they are. Categories are those of the memory
    timeline of the same worker where it has one (`measured`); else those but `before` are estimates. What was there before is divided into
    the parts that a record of the program found until then.
    """
    if curve.source != "events" or curve.relative or curve.allocated is None:
        return curve
    timeline = curve_from(capture, curve, "timeline")
    seen = _measured(curve, timeline) if timeline is not None else None
    if seen is not None:
        return seen
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
    if not is_host(curve.device):  # a host's totals leave out what a record counts
        levels |= _lasting(capture, device.id, int(curve.time_ns[0]), levels["before"])
    if levels.keys() <= {"before"}:  # nothing is known to be for anything
        return curve
    levels["unknown"] = rest
    if any(int(level.min()) < 0 for level in levels.values()):  # totals contradict the events: a stack would lie
        return curve
    return replace(curve, categories=levels)


def _lasting(capture: Capture, device: int, start_ns: int, before: Ints) -> dict[str, Ints]:
    """What was there before, divided: parts that last, as the last record until `start_ns` found them, and the rest of it. Empty where no
    record looked until then, or where more of it goes than they leave: then they were not all there."""
    rows = records_with_parts(capture, device)
    rows = rows[capture.tables[S.MEMORY_RECORDS.name]["time_ns"].to_numpy()[rows] <= start_ns]
    if not len(rows):
        return {}
    found = of_record(capture, int(rows[-1]), "category")
    size = {n: int(b) for n, b in zip(found.names, found.bytes.tolist(), strict=True) if n in LASTING and b > 0}
    if not size or sum(size.values()) > int(before.min()):
        return {}
    return {n: np.full(len(before), b, np.int64) for n, b in size.items()} | {"before": before - sum(size.values())}


def _measured(curve: Curves, timeline: Curves) -> Curves | None:
    """Categories of a timeline at the times of the curve; None where they do not fit into what was in use.

    A host's totals leave out what was there before the recording, so that what a category holds all the time is taken off.
    """
    assert curve.allocated is not None
    place = np.searchsorted(timeline.time_ns, curve.time_ns, side="right") - 1
    always = lowest_levels(timeline) if is_host(curve.device) else {}
    levels: dict[str, Ints] = {}
    rest = curve.allocated.copy()
    for name, level in timeline.categories.items():
        if name in TIMELINE:
            levels[TIMELINE[name]] = np.where(place >= 0, level[place.clip(0)] - always.get(TIMELINE[name], 0), 0)
            rest -= levels[TIMELINE[name]]
    levels["unknown"] = rest
    if any(int(level.min()) < 0 for level in levels.values()):
        return None
    return replace(curve, categories=levels, measured=True)
