"""What the comparison needs of one recording: numbers of its memory, who held it at the peak, its curve, how it was made."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from tb_sol_plugin.analyses.memory_compare.listing import Listing, Steps, kinds_of, operators_of, steps_of
from tb_sol_plugin.metrics.memory.attribution import GROUPINGS, By, answers, holders
from tb_sol_plugin.metrics.memory.curves import Curves, steps, thin, within
from tb_sol_plugin.metrics.memory.fragmentation import heap
from tb_sol_plugin.metrics.memory.sources import SOURCES
from tb_sol_plugin.metrics.memory.summary import look
from tb_sol_plugin.metrics.report.notes import setting
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query

POINTS: Final = 600
"""Points of a curve."""
MOST: Final = 1500
"""Rows of who held memory, by each grouping; the smaller ones are one row."""
NAME: Final = 240
"""Characters of a name."""
REST: Final = "rest"
SMALLER: Final = "smaller ones"


class Row(msgspec.Struct, frozen=True, array_like=True):
    """Who held memory. kind: row, before, unknown, or rest: the smaller rows together. allocations: -1 unknown."""

    name: str
    bytes: int
    allocations: int
    kind: str
    estimated: bool


class Line(msgspec.Struct, frozen=True):
    """A curve. time_ns: since its begin; end_ns: how far it reaches. reserved: None where the source has none. step: None for all."""

    time_ns: tuple[int, ...]
    end_ns: int
    allocated: tuple[int, ...]
    reserved: tuple[int, ...] | None
    step: int | None


class ComparePart(msgspec.Struct, frozen=True):
    """One recording, of the memory of its device with most in use. Bytes; None is unknown, as in `metrics.memory.summary`.

    growth: bytes per step where a line through the steps was made. held: by grouping, rows that add up to peak. notes: of each grouping.
    whole: since the first step's begin, else the recording's; of_step: the step with the peak since its begin, None where no step holds it.
    setting: how the recording was made. base: used on the device beside the allocator. worst: most that was held and not in use at once.
    Of a snapshot: free: held in free blocks, split: of these in segments in use, largest: the largest free block. operators, kinds: of the
    window that is shown; per_step: of all steps.
    """

    device: str
    source: str
    relative: bool
    peak: int
    reserved: int | None
    reserved_at_peak: int | None
    fragmentation: int | None
    before: int | None
    end: int
    capacity: int | None
    left: int | None
    growth: float | None
    failures: int | None
    held: dict[str, tuple[Row, ...]]
    notes: dict[str, tuple[str, ...]]
    whole: Line
    of_step: Line | None
    setting: dict[str, str]
    base: int | None = None
    worst: int | None = None
    free: int | None = None
    split: int | None = None
    largest: int | None = None
    operators: Listing | None = None
    kinds: Listing | None = None
    per_step: Steps | None = None


def part(capture: Capture, query: Query) -> ComparePart:
    """The part of one recording. Unavailable where no device's allocator was recorded."""
    looked = look(capture, query)
    memory, every, window, curve = looked.memory, looked.every, looked.window, looked.curve
    found, room = looked.found, looked.room
    blocks = None if memory.host else heap(capture, memory.number)
    held: dict[str, tuple[Row, ...]] = {}
    notes: dict[str, tuple[str, ...]] = {}
    for by in GROUPINGS:
        if by in answers(capture, every):
            held[by], notes[by] = _rows(capture, curve, by)
    return ComparePart(
        device=memory.label, source=SOURCES[every.source], relative=found.relative, peak=found.peak, reserved=found.reserved,
        reserved_at_peak=found.reserved_at_peak, fragmentation=found.fragmentation, before=found.before, end=found.end,
        capacity=room.total.bytes, left=room.left.bytes if room.left.bytes is not None else found.left,
        growth=looked.growth,
        failures=looked.failures,
        held=held, notes=notes, whole=_whole(capture, curve), of_step=_of_step(capture, every, curve), setting=setting(capture),
        base=room.base.bytes, worst=_worst(curve), free=blocks.free if blocks is not None else None,
        split=blocks.split if blocks is not None else None, largest=blocks.largest if blocks is not None else None,
        operators=operators_of(capture, memory.teller(every, ("events",)), window),
        kinds=kinds_of(capture, memory.teller(every, ("events", "snapshot")), window), per_step=steps_of(capture, every),
    )  # fmt: skip


def _worst(curve: Curves) -> int | None:
    """Most that was held and not in use at one moment; None without levels of both."""
    if curve.allocated is None or curve.reserved is None or curve.relative:
        return None
    known = (curve.reserved >= 0) & (curve.allocated >= 0)
    gap = int((curve.reserved - curve.allocated)[known].max()) if known.any() else -1
    return gap if gap >= 0 else None


def _rows(capture: Capture, curve: Curves, by: By) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """The largest rows, the others as one; they add up to the peak."""
    found = holders(capture, curve, by)
    columns = (found.rows[c].tolist() for c in ("name", "bytes", "allocations", "kind", "estimated"))
    rows = [
        Row(str(name)[:NAME], int(size), int(many), str(kind), bool(guess)) for name, size, many, kind, guess in zip(*columns, strict=True)
    ]
    named = sorted((r for r in rows if r.kind == "row"), key=lambda r: -r.bytes)
    small = named[MOST:]
    out = [*named[:MOST], *(r for r in rows if r.kind != "row")]
    if small:
        size, many = sum(r.bytes for r in small), sum(r.allocations for r in small)
        out.append(Row(SMALLER, size, many, REST, any(r.estimated for r in small)))
    return tuple(out), found.notes


def _whole(capture: Capture, curve: Curves) -> Line:
    """From the begin of the first step that the curve reaches, else of the recording."""
    table = steps(capture)
    inside = table[(table["end_ns"] > curve.time_ns[0]) & (table["start_ns"] <= curve.time_ns[-1])]
    start = int(inside["start_ns"].min()) if len(inside) else min(int(capture.facts.extent_ns[0]), int(curve.time_ns[0]))
    return _line(curve, start, int(curve.time_ns[-1]), None)


def _of_step(capture: Capture, every: Curves, curve: Curves) -> Line | None:
    """The step in which most was in use."""
    table = steps(capture)
    at = np.flatnonzero((table["start_ns"].to_numpy() <= curve.peak_ns) & (curve.peak_ns < table["end_ns"].to_numpy()))
    if not len(at):
        return None
    start, end = int(table["start_ns"].iloc[at[0]]), int(table["end_ns"].iloc[at[0]])
    return _line(within(every, (start, end)), start, end, int(table["number"].iloc[at[0]]))


def _line(curve: Curves, start: int, end: int, step: int | None) -> Line:
    thinned = thin(curve, POINTS)
    assert thinned.allocated is not None
    reserved = tuple(thinned.reserved.tolist()) if thinned.reserved is not None else None
    return Line(tuple((thinned.time_ns - start).tolist()), end - start, tuple(thinned.allocated.tolist()), reserved, step)
