"""Computes exposed time of copies per step, and what the engines of a device do in a window.

Per device: C is the union of its kernels that compute, M the union of some copies. hidden = |M in C|, exposed = |M outside C|;
idle_exposed is the part of the exposed time that no communication kernel covers either. Sums over devices. Integer nanoseconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.copies.records import DIRECTIONS, copies, covered, memory_kinds
from tb_sol_plugin.metrics.time.breakdown import COMMUNICATION, COMPUTATION, classes
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as I
from tb_sol_plugin.tables.arrays import Ints, exact_sums
from tb_sol_plugin.tables.table import Table, as_table, frame_of

ALL: Final = "all"
"""Every direction at once: copies of several directions that run at the same time count once."""
COMPUTE_LANE: Final = "compute"
COMMUNICATION_LANE: Final = "communication"
SLOTS: Final = 600
"""Shapes of a lane closer than a 600th of the window are one: they would share a pixel."""


def per_step(capture: Capture, where: Scope) -> Table:
    """Returns the exposure of the copies and sets that each step launched.

    One row per step and direction, and one per step with direction `all`.

    Columns: step (row of `steps`; -1 outside every step), direction, count, time_ns (plain sum), union_ns, hidden_ns, exposed_ns
    (hidden + exposed = union), idle_exposed_ns, step_ns (length of the step; -1 outside), share (exposed over the length of the step
    on all devices with copies; NaN outside). Ordered by step, `all` first, then directions in their order of display.
    """
    found = copies(capture, where.device)
    step = capture.device["step"].to_numpy()[found["row"].to_numpy()].astype(np.int64)
    names = [ALL, *DIRECTIONS]
    used, texts = memory_kinds(found).column(0)
    place = np.array([names.index(d) if d in names else names.index("Unknown") for d in texts.tolist()] or [0], np.int64)
    direction = place[used] if len(used) else np.zeros(0, np.int64)
    devices = max(len(pd.unique(found["device"].to_numpy())), 1)
    duration = found["duration_ns"].to_numpy()
    parts: list[dict[str, Ints]] = []
    for one in (np.zeros_like(direction), direction):
        code, distinct = pd.factorize(step * len(names) + one)
        code, rows = code.astype(np.int64), len(distinct)
        parts.append({
            "place": distinct, "count": np.bincount(code, minlength=rows).astype(np.int64), "time_ns": exact_sums(code, duration, rows),
            **union_parts(capture, code, found, rows),
        })  # fmt: skip
    both = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(both["place"], kind="stable")  # by step, and in each by direction
    place, *sums = (both[name][order] for name in both)
    at = place // len(names)
    bounds = capture.steps["end_ns"].to_numpy() - capture.steps["start_ns"].to_numpy()
    length = np.where(at >= 0, bounds[np.maximum(at, 0)], -1) if len(bounds) else np.full(len(at), -1, np.int64)
    summed = dict(zip([*both][1:], sums, strict=True))
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(length > 0, summed["exposed_ns"] / (length * devices), np.nan)
    direction = np.array(names, object)[place % len(names)]
    return as_table(frame_of({"step": at, "direction": direction, **summed, "step_ns": length, "share": share}))


def union_parts(capture: Capture, code: Ints, found: pd.DataFrame, count: int) -> dict[str, Ints]:
    """Returns union_ns, hidden_ns, exposed_ns and idle_exposed_ns of groups of copies.

    `code` names the group of each row, below `count`.
    """
    device, ids = pd.factorize(found["device"].to_numpy())
    start = found["start_ns"].to_numpy()
    many = max(len(ids), 1)
    merged, first, last = I.union_within(code * many + device, start, start + found["duration_ns"].to_numpy())
    group, on = merged // many, ids[merged % many] if len(ids) else np.zeros(0, np.int64)
    union = exact_sums(group, last - first, count)
    hidden = exact_sums(group, covered(capture, on, first, last, communication=False), count)
    behind = exact_sums(group, covered(capture, on, first, last, communication=True), count)
    return {"union_ns": union, "hidden_ns": hidden, "exposed_ns": union - hidden, "idle_exposed_ns": union - behind}


def worst_step(steps: pd.DataFrame) -> int | None:
    """Returns the row of `steps` of the step with the most exposed time of copies (the first of equals).

    None where no step has exposed copies.
    """
    row = steps["step"].to_numpy()
    exposed = np.where((steps["direction"].to_numpy() == ALL) & (row >= 0), steps["exposed_ns"].to_numpy(), 0)
    worst = int(exposed.argmax()) if len(exposed) else 0
    return int(row[worst]) if len(exposed) and exposed[worst] > 0 else None


@dataclass(frozen=True)
class Lanes:
    """What the engines of one device do in a window.

    shapes: by lane (`compute`, `communication` or a direction) one row per drawn interval: start_ns, end_ns, count (events merged in it),
    bytes (their sum, -1 where one has none), busy_ns (plain sum of their durations), row (device row of a single copy, else -1).
    exposed: by lane start_ns and end_ns of the parts of copies that no computation covers. totals: by lane union_ns, hidden_ns, exposed_ns
    (-1: neither), clipped to the window; union_ns and exposed_ns: of all its copies together, each moment once. devices: how many
    devices have copies there; `device` is the one with the most exposed time.
    """

    device: int
    devices: int
    window_ns: tuple[int, int]
    shapes: dict[str, dict[str, Ints]]
    exposed: dict[str, dict[str, Ints]]
    totals: dict[str, tuple[int, int, int]]
    union_ns: int
    exposed_ns: int


def lanes(capture: Capture, window_ns: tuple[int, int], *, slots: int = SLOTS) -> Lanes | None:
    """Returns the engine lanes of a window (start, end) in ns: of the device whose copies are exposed the longest.

    None without copies there.

    Everything that runs in the window is included, whatever launched it, clipped to the window. At most twice `slots` shapes per lane.
    """
    low, high = window_ns
    start = capture.device["start_ns"].to_numpy()
    end = start + capture.device["duration_ns"].to_numpy()
    inside = (start < high) & (end > low)
    whole = copies(capture, np.ones(len(inside), np.bool_))
    rows_there = np.flatnonzero(inside[whole["row"].to_numpy()])
    if not len(rows_there) or high <= low:
        return None
    row, size, own, direction = (whole[name].to_numpy()[rows_there] for name in ("row", "bytes", "device", "direction"))
    first, last = np.maximum(start[row], low), np.minimum(end[row], high)
    ids = np.unique(own)
    device_of = capture.device["device"].to_numpy()
    kind, is_kernel = classes(capture), capture.device["kind"].to_numpy() == S.KERNEL
    work = {}
    for one in ids.tolist():
        rows = inside & is_kernel & (device_of == one) & (kind == COMPUTATION)
        work[one] = I.clip(I.union(start[rows], end[rows]), low, high)
    open_spans = {one: I.subtract(_of(first, last, own == one), work[one]) for one in ids.tolist()}
    device = max(ids.tolist(), key=lambda one: (I.length(open_spans[one]), -one))
    gap = max((high - low) // max(slots, 1), 1)
    collective = inside & is_kernel & (device_of == device) & (kind == COMMUNICATION)
    communication = I.clip(I.union(start[collective], end[collective]), low, high)
    shapes: dict[str, dict[str, Ints]] = {}
    exposed: dict[str, dict[str, Ints]] = {}
    totals: dict[str, tuple[int, int, int]] = {}
    for lane, spans in ((COMPUTE_LANE, work[device]), (COMMUNICATION_LANE, communication)):
        if len(spans[0]):
            none = np.full(len(spans[0]), -1)
            shapes[lane] = _merged(*spans, none, none, gap, slots)
            totals[lane] = I.length(spans), -1, -1
    here = own == device
    used = set(pd.unique(direction[here]).tolist())
    for lane in [d for d in DIRECTIONS if d in used]:
        in_lane = here & (direction == lane)
        union = _of(first, last, in_lane)
        open_parts = I.subtract(union, work[device])
        shapes[lane] = _merged(first[in_lane], last[in_lane], size[in_lane], row[in_lane], gap, slots)
        exposed[lane] = dict(zip(("start_ns", "end_ns"), _close(*open_parts, gap), strict=True))
        totals[lane] = I.length(union), I.length(union) - I.length(open_parts), I.length(open_parts)
    return Lanes(
        device,
        len(ids),
        window_ns,
        shapes,
        exposed,
        totals,
        I.length(_of(first, last, here)),
        I.length(open_spans[device]),
    )


def _of(start: Ints, end: Ints, rows: npt.NDArray[np.bool_]) -> I.Spans:
    return I.union(start[rows], end[rows])


def _close(start: Ints, end: Ints, gap: int) -> I.Spans:
    """Fills gaps below `gap` of a clean set."""
    if not len(start):
        return start, end
    opens = np.concatenate(([True], start[1:] - end[:-1] >= gap))
    return start[opens], end[np.concatenate((opens[1:], [True]))]


def _merged(start: Ints, end: Ints, size: Ints, row: Ints, gap: int, most: int) -> dict[str, Ints]:
    """Joins short intervals with less than `gap` before them to the previous one; returns at most twice `most` shapes."""
    order = np.lexsort((end, start))
    start, end, size, row = start[order], end[order], size[order], row[order]
    reach = np.maximum.accumulate(end) if len(end) else end
    long = end - start >= gap
    opens = np.ones(len(start), bool)
    apart = start[1:] - reach[:-1] >= gap
    opens[1:] = apart | long[1:] | long[:-1]
    if np.count_nonzero(opens) > 2 * most:  # many long ones side by side, on many streams
        opens[1:] = apart
    code = np.cumsum(opens) - 1
    count = int(code[-1]) + 1 if len(code) else 0
    first = np.flatnonzero(opens)
    known = np.minimum.reduceat(size, first) >= 0 if count else np.zeros(0, bool)
    number = np.bincount(code, minlength=count).astype(np.int64)
    return {
        "start_ns": start[first], "end_ns": np.maximum.reduceat(end, first) if count else end, "count": number,
        "bytes": np.where(known, exact_sums(code, size, count), -1), "busy_ns": exact_sums(code, end - start, count),
        "row": np.where(number == 1, row[first], -1),
    }  # fmt: skip
