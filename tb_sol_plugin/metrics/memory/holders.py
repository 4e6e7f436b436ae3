"""What held memory at a moment, by category, module, operator, line of the program or phase: of every source of a curve.

The rows of an answer add up to the level of the curve exactly; what no row explains is a row of its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.metrics.memory import held_by_blocks as blocks
from tb_sol_plugin.metrics.memory import held_by_category as category
from tb_sol_plugin.metrics.memory import held_by_events as events
from tb_sol_plugin.metrics.memory import held_by_parts as parts
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.choose import beside
from tb_sol_plugin.metrics.memory.curves import Curves, whole
from tb_sol_plugin.metrics.memory.held import BEFORE, GROUPINGS, NOTHING, UNKNOWN, By, Holders, made
from tb_sol_plugin.model.capture import Capture

__all__ = ["BEFORE", "GROUPINGS", "UNKNOWN", "By", "Holders", "answers", "holders"]

EARLIER_THAN_HISTORY: Final = "what was allocated before the history and freed within it has no call stack"


def answers(capture: Capture, curve: Curves) -> tuple[By, ...]:
    """The groupings that the source of this curve, or what is joined to it, can answer."""
    if curve.source == "events":
        found = events.answers(capture, _device(capture, curve))
        return ("category", *found) if found else ()
    if curve.source == "timeline":
        return ("category",)
    if curve.source == "snapshot":
        every = blocks.lives(capture, _number(curve))
        told = any(every.texts[i] for i in np.unique(every.stack[every.stack >= 0]).tolist())
        known = not curve.relative and (beside(capture, curve, "timeline") or len(parts.records_with_parts(capture, _number(curve))))
        return (*(("category",) if known else ()), *(("frame",) if told else ()))
    rows = parts.records_with_parts(capture, _number(curve))
    return ("category", "module") if len(rows) else ()


def holders(capture: Capture, curve: Curves, by: By, time_ns: int | None = None) -> Holders:
    """What was in use at a time, after all events of that time; None: at the peak of the curve. ValueError for a wrong grouping.

    curve: of this capture; a part of one, or one with fewer points, is asked as if it were whole.
    """
    if by not in GROUPINGS:
        raise ValueError(f"no grouping {by!r}")
    full = next(c for c in whole(capture) if (c.device, c.source) == (curve.device, curve.source))
    time = curve.peak_ns if time_ns is None else int(time_ns)
    place = _peak(full, curve) if time_ns is None else full.at(time)
    level = int(full.allocated[place]) if full.allocated is not None else 0
    total = curve.peak if time_ns is None else level
    if curve.source == "events":
        return _of_events(capture, curve, by, time, total, place - 1)
    if curve.source == "timeline":
        return made(time, total, parts.of_timeline(full, place) if by == "category" else NOTHING)
    if curve.source == "snapshot":
        return _of_snapshot(capture, full, by, time, total, place - 1)
    return _of_records(capture, curve, by, time, total)


def _peak(full: Curves, curve: Curves) -> int:
    """Position in the whole curve of the level that is the peak of a part of it."""
    assert full.allocated is not None
    low = int(np.searchsorted(full.time_ns, curve.peak_ns, side="left"))
    high = int(np.searchsorted(full.time_ns, curve.peak_ns, side="right"))
    same = np.flatnonzero(full.allocated[low:high] == curve.peak)
    if len(same):
        return low + int(same[0])
    return max(low - 1, 0) if low and int(full.allocated[low - 1]) == curve.peak else full.at(curve.peak_ns)


def _device(capture: Capture, curve: Curves) -> R.Device:
    return next(d for d in R.devices(capture) if d.label == curve.device)


def _number(curve: Curves) -> int:
    """`device 3` -> 3; -1 where the source names none."""
    last = curve.device.rpartition(" ")[2]
    return int(last) if last.isdigit() else -1


def _of_events(capture: Capture, curve: Curves, by: By, time: int, total: int, place: int) -> Holders:
    device = _device(capture, curve)
    lives, before, notes = events.alive(capture, device, place)
    if by != "category":
        return made(time, total, events.grouped(capture, lives, by), before=before, notes=notes)
    timeline = beside(capture, curve, "timeline")
    seen = category.measured(timeline, time, total, host=device.type == R.CPU) if timeline is not None else None
    if seen is not None:
        return made(time, total, seen, notes=(*notes, category.MEASURED))
    guess = category.estimated(capture, device, lives)
    found = category.recorded(capture, device.id, time, total, guess) if device.type != R.CPU else None
    if found is not None:
        return made(time, total, found[0], notes=(*notes, *found[1], category.ESTIMATED_REST))
    return made(time, total, guess, before=before, notes=(*notes, category.ESTIMATED))


def _of_snapshot(capture: Capture, full: Curves, by: By, time: int, total: int, place: int) -> Holders:
    if by == "category" and not full.relative:
        return _beside_a_snapshot(capture, full, time, total)
    if by != "frame":
        return made(time, total, NOTHING)
    groups, before = blocks.by_line(capture, _number(full), place)
    notes = [EARLIER_THAN_HISTORY] * bool(before)
    if full.relative:
        before = -blocks.freed_from_before(capture, _number(full), place)
        notes = [events.RELATIVE] * bool(before)
    return made(time, total, groups, before=before, notes=tuple(notes))


def _beside_a_snapshot(capture: Capture, full: Curves, time: int, total: int) -> Holders:
    """A snapshot does not say what memory is for; a timeline and a recorder of the same worker do."""
    timeline = beside(capture, full, "timeline")
    seen = category.measured(timeline, time, total, host=False) if timeline is not None else None
    if seen is not None:
        return made(time, total, seen, notes=(category.MEASURED,))
    found = category.recorded(capture, _number(full), time, total, NOTHING)
    return made(time, total, found[0], notes=found[1]) if found is not None else made(time, total, NOTHING)


def _of_records(capture: Capture, curve: Curves, by: By, time: int, total: int) -> Holders:
    rows = parts.records_with_parts(capture, _number(curve))
    if by not in ("category", "module") or not len(rows):
        return made(time, total, NOTHING)
    record = parts.nearest(capture, rows, time)
    return made(time, total, parts.of_record(capture, record, by), notes=parts.when(capture, record, time))
