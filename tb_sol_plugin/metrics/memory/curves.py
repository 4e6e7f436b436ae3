"""Brings memory over time of any source into one shape: allocated, reserved, categories, events, steps; a bounded number of points.

Each level holds from its time to the next one. Unknown is -1, and a curve that a source does not hold is absent: the host's reserved
memory is not tracked, a timeline says nothing of reserved memory, a snapshot's history may have lost its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.series import thinned
from tb_sol_plugin.tables.table import Table, as_table

MOST: Final = 4_000
"""Points of a curve."""
MOST_EVENTS: Final = 200
TOTALS_MISSING: Final = "this recording holds no totals: the curve begins at 0 and shows what was added since its beginning"
REQUESTED: Final = "bytes as the program asked for them: the allocator rounds them up"
NO_TIMES: Final = "this history carries no times: its entries stand one after the other"
EARLIER: Final = "what was in use before the history begins is worked out from the blocks at its end"
HOST_RESERVED: Final = "reserved memory of the host is not tracked"
HOST_SINCE: Final = "the host's totals count from the first profiler of the process on: what was in use before is not in them"
SAMPLES: Final = "levels at the moments of the records: the peak lies at or before its mark"
NAMES: Final = ("parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", "unknown")


@dataclass(frozen=True)
class Event:
    """A marked moment. what: oom. bytes: that were asked for; free: on the device then (-1 unknown)."""

    time_ns: int
    what: str
    bytes: int
    free: int
    frames: str = ""


@dataclass(frozen=True)
class Curves:
    """Memory of one device over time.

    device: for a person ("" where the source does not say). source: events, snapshot, timeline or recorder.
    measured: categories of memory events are those of a timeline beside them, no estimates.
    time_ns: of all levels. allocated, reserved: bytes in use and reserved by the allocator; None where the source has no such curve.
    categories: bytes by category, the same times; empty where unknown. relative: levels are changes since the beginning.
    highest: of a recorder's records the most that was in use up to each since the one before, as far as it was recorded, else -1.
    before: bytes that were in use before the first event, -1 unknown. peak_ns, peak: when most was in use, and how much; exact whatever
    the number of points; -1 without a curve. events: marks. points: of the curve before it was thinned. notes: what to know.
    """

    device: str
    source: str
    time_ns: Ints
    allocated: Ints | None
    reserved: Ints | None
    categories: dict[str, Ints]
    relative: bool
    before: int
    peak_ns: int
    peak: int
    events: tuple[Event, ...]
    points: int
    notes: tuple[str, ...]
    highest: Ints | None = None
    measured: bool = False

    def at(self, time_ns: int) -> int:
        """Returns the position of the level that holds at a time; the first one before all."""
        return max(int(np.searchsorted(self.time_ns, time_ns, side="right")) - 1, 0)


def curves(capture: Capture, *, most: int = MOST, window: tuple[int, int] | None = None) -> list[Curves]:
    """Returns one curve per device and source, those of devices before the host's. window: start and end in ns of the part to show."""
    return [thin(within(curve, window), most) for curve in whole(capture)]


def whole(capture: Capture) -> list[Curves]:
    """Returns the same curves with every point that was recorded. Shared: not to be changed."""
    return memo(capture, ("memory.curves",), lambda: _whole(capture))


def _whole(capture: Capture) -> list[Curves]:
    found: list[Curves | None] = [_of_events(capture, d) for d in R.devices(capture)]
    found += _of_snapshot(capture)
    found += _of_timeline(capture)
    found += _of_records(capture)
    return [c for c in found if c is not None]


def within(curve: Curves, window: tuple[int, int] | None) -> Curves:
    """Cuts a curve to a window of time (ns), with the peak of that part. The level at its start is that of the last event before."""
    if window is None:
        return curve
    low = curve.at(window[0])
    high = max(int(np.searchsorted(curve.time_ns, window[1], side="right")), low + 1)
    cut = slice(low, high)
    time = np.clip(curve.time_ns[cut], *window)
    highest = curve.highest[cut].copy() if curve.highest is not None else None
    if highest is not None and int(curve.time_ns[low]) < window[0]:
        highest[0] = -1  # of the time before the window
    allocated = curve.allocated[cut] if curve.allocated is not None else None
    peak_ns, peak = _most(time, allocated, highest)
    return replace(
        curve, time_ns=time, allocated=allocated, reserved=curve.reserved[cut] if curve.reserved is not None else None,
        categories={name: level[cut] for name, level in curve.categories.items()}, highest=highest, peak_ns=peak_ns, peak=peak,
        events=tuple(e for e in curve.events if window[0] <= e.time_ns <= window[1]), points=len(time),
    )  # fmt: skip


def thin(curve: Curves, most: int) -> Curves:
    """Thins a curve to at most so many points; its peak and every largest and smallest value of its levels stay."""
    levels = [level for level in (curve.allocated, curve.reserved, curve.highest) if level is not None]
    keep = thinned(curve.time_ns, levels, most)
    if len(keep) == len(curve.time_ns):
        return curve
    return replace(
        curve, time_ns=curve.time_ns[keep], allocated=curve.allocated[keep] if curve.allocated is not None else None,
        reserved=curve.reserved[keep] if curve.reserved is not None else None,
        categories={name: level[keep] for name, level in curve.categories.items()},
        highest=curve.highest[keep] if curve.highest is not None else None,
    )  # fmt: skip


def steps(capture: Capture) -> Table:
    """Returns steps as marks: number, start_ns, end_ns on the host, in order; none where no step was recorded."""

    def make() -> Table:
        columns = {"number": "number", "start_ns": "host_start_ns", "end_ns": "host_end_ns"}
        some = 0 if capture.facts.pseudo_step else len(capture.steps)
        return as_table(pd.DataFrame({name: capture.steps[column].to_numpy()[:some] for name, column in columns.items()}, copy=False))

    return memo(capture, ("memory.steps",), make)


def _of_events(capture: Capture, device: R.Device) -> Curves | None:
    r = R.replay(capture, device)
    relative = not r.known
    level = r.change if relative else r.allocated
    base = 0 if relative else r.before
    start = min(int(capture.facts.extent_ns[0]), int(r.time_ns[0]))
    time = np.r_[start, r.time_ns]
    reserved = _reserved_levels(r.reserved) if r.tracked else None
    notes = [TOTALS_MISSING] * relative + [HOST_RESERVED, HOST_SINCE] * (device.type == R.CPU)
    if r.differs:
        notes.append(f"{r.differs:,} events carry a total that the events before them do not add up to: totals are shown as recorded")
    return _made(
        device.label, "events", time, np.r_[base, level], reserved, {},
        relative=relative, before=r.before, events=(), notes=tuple(notes),
    )  # fmt: skip


def _reserved_levels(reserved: Ints) -> Ints:
    """Returns what was reserved from before the first event on: where an event lacks it, as in the last one that has it, or the first."""
    known = np.flatnonzero(reserved >= 0)
    last = np.searchsorted(known, np.arange(-1, len(reserved)), side="right") - 1
    return np.asarray(reserved[known[last.clip(0)]], np.int64)


# -- snapshots --------------------------------------------------------------------------------------------------


def _of_snapshot(capture: Capture) -> list[Curves | None]:
    events, blocks = capture.tables[S.MEMORY_EVENTS.name], capture.tables[S.MEMORY_BLOCKS.name]
    return [_of_history(capture, events[events["device"] == d], blocks[blocks["device"] == d], int(d))
            for d in np.unique(np.r_[events["device"].to_numpy(), blocks["device"].to_numpy()]).tolist()]  # fmt: skip


GAINS: Final = {"alloc": 1, "free_requested": -1}
HOLDS: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def _of_history(capture: Capture, events: pd.DataFrame, blocks: pd.DataFrame, device: int) -> Curves | None:
    """Makes the curve of a history, from the blocks at its end backwards: what the history does not explain was there before it."""
    time = events["time_ns"].to_numpy()
    untimed = bool((time < 0).any())
    if untimed:
        time = np.arange(len(events), dtype=np.int64)
    action = arrays.codes(events["action"])
    names = [str(c) for c in events["action"].cat.categories]
    size = events["bytes"].to_numpy()
    gain, hold = (np.array([signs.get(n, 0) for n in names] + [0], np.int64)[action] * size.clip(min=0) for signs in (GAINS, HOLDS))
    state = blocks["state"].astype(str).to_numpy()
    requested = np.where(blocks["requested"].to_numpy() >= 0, blocks["requested"].to_numpy(), blocks["bytes"].to_numpy())
    in_use = int(requested[state == "active_allocated"].clip(min=0).sum())
    segments = blocks.drop_duplicates("segment")["segment_bytes"].to_numpy()
    reserved = int(segments.clip(min=0).sum())
    before, reserved_before = in_use - int(gain.sum()), reserved - int(hold.sum())
    if not len(events):
        time, gain, hold = np.array([int(capture.facts.extent_ns[1])]), np.zeros(1, np.int64), np.zeros(1, np.int64)
    level, reserved_level = before + np.cumsum(gain), reserved_before + np.cumsum(hold)
    known = len(blocks) > 0 and int(level.min(initial=before)) >= 0
    notes = [REQUESTED] + [NO_TIMES] * untimed + [EARLIER] * (known and before > 0)
    if not known:  # without blocks, or blocks that contradict the history
        level, before, notes = np.cumsum(gain), -1, [REQUESTED, TOTALS_MISSING]
    reserved_known = len(blocks) > 0 and bool((segments >= 0).all()) and int(reserved_level.min(initial=reserved_before)) >= 0
    first = time[:1]
    return _made(
        f"device {device}" if device >= 0 else "", "snapshot", np.r_[first, time], np.r_[max(before, 0), level],
        np.r_[reserved_before, reserved_level] if reserved_known else None, {},
        relative=not known, before=before, events=_failures(events, time), notes=tuple(notes),
    )  # fmt: skip


def _failures(events: pd.DataFrame, time: Ints) -> tuple[Event, ...]:
    """Returns allocations that failed, the last ones where there are many."""
    rows = np.flatnonzero(arrays.where(events["action"], lambda a: a == "oom"))[-MOST_EVENTS:]
    free = events["device_free"].to_numpy()
    size = events["bytes"].to_numpy()
    stacks = arrays.pick(events["frames"], rows)
    return tuple(Event(int(time[i]), "oom", int(size[i]), int(free[i]), str(f)) for i, f in zip(rows.tolist(), stacks, strict=True))


# -- timelines --------------------------------------------------------------------------------------------------


def _of_timeline(capture: Capture) -> list[Curves | None]:
    table = capture.tables[S.MEMORY_TIMELINE.name]
    if not len(table):
        return []
    names = table["device"].astype(str)
    return [_stack(table[(names == d).to_numpy()], d) for d in sorted(set(names))]


def _stack(table: pd.DataFrame, device: str) -> Curves | None:
    """Returns categories on one axis of time; their sum is what is allocated."""
    time, at = np.unique(table["time_ns"].to_numpy(), return_inverse=True)
    category = table["category"].astype(str).to_numpy()
    size = table["bytes"].to_numpy()
    levels: dict[str, Ints] = {}
    for name in NAMES:
        own = np.flatnonzero(category == name)
        if len(own):
            last = np.searchsorted(at[own], np.arange(len(time)), side="right") - 1
            levels[name] = np.where(last >= 0, size[own][last.clip(0)], 0)
    total = np.zeros(len(time), np.int64)
    for level in levels.values():
        total += level
    return _made(device, "timeline", time, total, None, levels, relative=False, before=-1, events=(), notes=())


# -- a recorder in the program ----------------------------------------------------------------------------------


def _of_records(capture: Capture) -> list[Curves | None]:
    """Makes the curve of records, at their times; peaks between records are known from the records, without their time."""
    table = capture.tables[S.MEMORY_RECORDS.name]
    if not len(table):
        return []
    use = (table["device"].to_numpy() >= 0) & (table["allocated"].to_numpy() >= 0) & arrays.where(table["since"], lambda s: s != "phase")
    table = table[use].sort_values("time_ns", kind="stable")
    out = []
    for device in np.unique(table["device"].to_numpy()).tolist():
        own = table[table["device"] == device]
        reserved = own["reserved"].to_numpy()
        out.append(_made(
            f"device {device}", "recorder", own["time_ns"].to_numpy(), own["allocated"].to_numpy(),
            reserved if bool((reserved >= 0).all()) else None, {}, relative=False, before=-1, events=(), notes=(SAMPLES,),
            highest=own["max_allocated"].to_numpy(),
        ))  # fmt: skip
    return out


# -- all --------------------------------------------------------------------------------------------------------


def _most(time: Ints, allocated: Ints | None, highest: Ints | None) -> tuple[int, int]:
    """Returns (when most was in use, how much); of a peak between records only the record after it is known. -1 without a curve."""
    if allocated is None or not len(time):
        return -1, -1
    level = allocated if highest is None else np.maximum(allocated, highest)
    top = int(np.argmax(level))
    return int(time[top]), int(level[top])


def _made(
    device: str, source: str, time: Ints, allocated: Ints, reserved: Ints | None, categories: dict[str, Ints], *,
    relative: bool, before: int, events: tuple[Event, ...], notes: tuple[str, ...], highest: Ints | None = None,
) -> Curves | None:  # fmt: skip
    """Makes a curve; None without a single point."""
    if not len(time):
        return None
    peak_ns, peak = _most(time, allocated, highest)
    return Curves(
        device=device, source=source, time_ns=time, allocated=allocated, reserved=reserved, categories=categories, relative=relative,
        before=before, peak_ns=peak_ns, peak=peak, events=events, points=len(time), notes=notes, highest=highest,
    )  # fmt: skip
