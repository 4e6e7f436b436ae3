"""The largest batch that fits, by a straight line through the peaks of two or more batch sizes:

    peak = a + b x batch        largest = batch + headroom / b, headroom at the smallest batch of those recorded

a holds parameters and the state of optimizers, b the activations of one sample. It is an estimate: workspaces, fragmentation and lengths of
sequences do not grow in a straight line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.fragmentation import unthinned
from tb_sol_plugin.metrics.memory.headroom import Headroom, headroom, of_device
from tb_sol_plugin.metrics.memory.leak import line_through, warm_up
from tb_sol_plugin.metrics.memory.per_step import per_step
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

WHY: Final = "a straight line through the peaks of the recorded batch sizes"
NO_BATCH: Final = "batch sizes were not recorded: track the loop with sol.capture(logdir, model=model, memory=True, memory_peaks=True)"
ONE_BATCH: Final = "one batch size was recorded: record a few iterations with another one, larger or smaller, in the same run"
NO_PEAKS: Final = (
    "peaks of single iterations were not recorded: record them with sol.capture(..., memory_peaks=True), or a trace of these iterations"
)
NOT_GROWING: Final = "memory in use does not grow with the batch"


@dataclass(frozen=True)
class Point:
    """Peak of memory in use (bytes) of iterations with one batch size; reserved: held at most in them, -1 unknown; count: of iterations."""

    batch: int
    peak: int
    reserved: int
    count: int


@dataclass(frozen=True)
class Batch:
    """points: by batch size, ascending. fixed, per_sample: a and b in bytes; largest: samples, None unknown, and `why`."""

    points: tuple[Point, ...]
    fixed: float | None
    per_sample: float | None
    largest: int | None
    why: str


def maximum_batch(capture: Capture, curve: Curves, *, limits: str = "") -> Batch:
    """Of the device of a curve, by the source that knows the peaks of most batch sizes."""
    room = headroom(capture, curve, limits=limits)
    every = [points_of(capture, c) for c in of_device(capture, curve) if not c.relative]
    points = max(every, key=len) if every else ()
    if not points:
        known = bool((capture.tables[S.ITERATIONS.name]["batch"].to_numpy() > 0).any())
        return Batch((), None, None, None, NO_PEAKS if known else NO_BATCH)
    return estimated(points, room)


def points_of(capture: Capture, curve: Curves) -> tuple[Point, ...]:
    """Peaks by batch size, of steps whose iteration a tracker counted samples in. First iterations that stand apart are left out."""
    return memo(capture, ("memory.batch", curve.device, curve.source), lambda: _points_of(capture, unthinned(capture, curve)))


def _points_of(capture: Capture, curve: Curves) -> tuple[Point, ...]:
    table = capture.tables[S.ITERATIONS.name]
    batches = dict(zip(table["number"].tolist(), table["batch"].tolist(), strict=True))
    steps = per_step(capture, curve)
    steps = steps[steps["most"].to_numpy() >= 0]
    if not len(steps) or not batches:
        return ()
    steps = steps.iloc[min(warm_up(steps["least"].to_numpy(np.float64)), max(len(steps) - 2, 0)) :]
    batch = np.array([batches.get(n, -1) for n in steps["step"].tolist()], np.int64)
    out = []
    for size in np.unique(batch[batch > 0]).tolist():
        own = steps[batch == size]
        held = [_reserved(curve, a, b) for a, b in zip(own["start_ns"].tolist(), own["end_ns"].tolist(), strict=True)]
        out.append(Point(size, int(own["most"].max()), min(held), len(own)))
    return tuple(out)


def _reserved(curve: Curves, start: int, end: int) -> int:
    if curve.reserved is None:
        return -1
    return int(curve.reserved[curve.at(start) : curve.at(end) + 1].max())


def estimated(points: Sequence[Point], room: Headroom) -> Batch:
    """The line through the points, and where it meets what the device has left."""
    found = tuple(sorted(points, key=lambda p: p.batch))
    if len(found) < 2:
        return Batch(found, None, None, None, ONE_BATCH)
    x, y = np.array([p.batch for p in found], np.float64), np.array([p.peak for p in found], np.float64)
    per_sample, _ = line_through(x, y)
    fixed = float(y.mean() - per_sample * x.mean())
    if not per_sample > 0:
        return Batch(found, fixed, None, None, NOT_GROWING)
    first = found[0]
    if room.total.bytes is None or room.base.bytes is None:
        return Batch(found, fixed, per_sample, None, room.total.why if room.total.bytes is None else room.base.why)
    left = room.total.bytes - room.base.bytes - max(first.reserved, first.peak)
    return Batch(found, fixed, per_sample, max(first.batch + int(left // per_sample), 0), WHY)
