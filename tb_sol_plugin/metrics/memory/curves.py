"""Memory over time of any source in one shape: allocated, reserved, a stack of categories, events, steps; a bounded number of points.

Each level holds from its time to the next one. Unknown is -1, and a curve that a source does not hold is absent: the host's reserved
memory is not tracked, a timeline says nothing of reserved memory, a snapshot's history may have lost its beginning.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import texts
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.replay import Ints
from tb_sol_plugin.metrics.memory.thinning import thinned
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

MOST: Final = 4_000
"""Points of a curve."""
MOST_EVENTS: Final = 200
TOTALS_MISSING: Final = "this recording holds no totals: the curve begins at 0 and shows what was added since its beginning"
REQUESTED: Final = "bytes as the program asked for them: the allocator rounds them up"
NO_TIMES: Final = "this history carries no times: its entries stand one after the other"
EARLIER: Final = "what was in use before the history begins is worked out from the blocks at its end"
HOST_RESERVED: Final = "reserved memory of the host is not tracked"
SAMPLES: Final = "levels at the moments of the records: the peak lies at or before its mark"
NAMES: Final = ("parameter", "optimizer_state", "input", "temporary", "activation", "gradient", "autograd_detail", "unknown")


@dataclass(frozen=True)
class Event:
    """A moment worth a mark. what: oom. bytes: that were asked for; free: on the device then (-1 unknown)."""

    time_ns: int
    what: str
    bytes: int
    free: int
    frames: str = ""


@dataclass(frozen=True)
class Curves:
    """Memory of one device over time.

    device: for a person ("" where the source does not say). source: events, snapshot, timeline or recorder.
    time_ns: of all levels. allocated, reserved: bytes in use and held by the allocator; None where the source has no such curve.
    categories: bytes by category, the same times; empty where unknown. relative: levels are changes since the beginning.
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


def curves(capture: Capture, *, most: int = MOST, window: tuple[int, int] | None = None) -> list[Curves]:
    """One per device and source, those of devices before the host's. window: start and end in ns of the part to show."""
    found = [_of_events(capture, d, most, window) for d in R.devices(capture)]
    found += _of_snapshot(capture, most, window)
    found += _of_timeline(capture, most, window)
    found += _of_records(capture, most, window)
    return [c for c in found if c is not None]


def steps(capture: Capture) -> pd.DataFrame:
    """Steps as marks: number, start_ns, end_ns on the host, in order; none where no step was recorded."""
    table = capture.steps
    if capture.facts.pseudo_step:
        table = table.iloc[:0]
    columns = {"number": "number", "start_ns": "host_start_ns", "end_ns": "host_end_ns"}
    return pd.DataFrame({name: table[column].to_numpy() for name, column in columns.items()})


def _of_events(capture: Capture, device: R.Device, most: int, window: tuple[int, int] | None) -> Curves | None:
    r = R.replay(capture, device)
    relative = not r.known
    level = r.change if relative else r.allocated
    base = 0 if relative else r.before
    start = min(int(capture.facts.extent_ns[0]), int(r.time_ns[0]))
    time = np.r_[start, r.time_ns]
    reserved = np.r_[r.reserved[:1], r.reserved] if r.tracked else None
    notes = [TOTALS_MISSING] * relative + [HOST_RESERVED] * (device.type == R.CPU)
    if r.differs:
        notes.append(f"{r.differs:,} events carry a total that the events before them do not add up to: totals are shown as recorded")
    return _made(
        device.label, "events", time, np.r_[base, level], reserved, {}, most, window,
        relative=relative, before=r.before, events=(), notes=tuple(notes),
    )  # fmt: skip


# -- snapshots --------------------------------------------------------------------------------------------------


def _of_snapshot(capture: Capture, most: int, window: tuple[int, int] | None) -> list[Curves | None]:
    events, blocks = capture.tables[S.MEMORY_EVENTS.name], capture.tables[S.MEMORY_BLOCKS.name]
    return [_of_history(capture, events[events["device"] == d], blocks[blocks["device"] == d], int(d), most, window)
            for d in np.unique(np.r_[events["device"].to_numpy(), blocks["device"].to_numpy()]).tolist()]  # fmt: skip


GAINS: Final = {"alloc": 1, "free_requested": -1}
HOLDS: Final = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def _of_history(
    capture: Capture, events: pd.DataFrame, blocks: pd.DataFrame, device: int, most: int, window: tuple[int, int] | None
) -> Curves | None:
    """From the blocks at the end backwards: what the history does not explain was there before it."""
    time = events["time_ns"].to_numpy()
    untimed = bool((time < 0).any())
    if untimed:
        time = np.arange(len(events), dtype=np.int64)
    action = texts.codes(events["action"])
    names = [str(c) for c in events["action"].cat.categories]
    size = events["bytes"].to_numpy()
    gain, hold = (np.array([signs.get(n, 0) for n in names] + [0], np.int64)[action] * size.clip(min=0) for signs in (GAINS, HOLDS))
    state = blocks["state"].astype(str).to_numpy()
    requested = np.where(blocks["requested"].to_numpy() >= 0, blocks["requested"].to_numpy(), blocks["bytes"].to_numpy())
    in_use = int(requested[state == "active_allocated"].clip(min=0).sum())
    held = int(blocks.drop_duplicates("segment")["segment_bytes"].clip(lower=0).sum())
    before, reserved_before = in_use - int(gain.sum()), held - int(hold.sum())
    if not len(events):
        time, gain, hold = np.array([int(capture.facts.extent_ns[1])]), np.zeros(1, np.int64), np.zeros(1, np.int64)
    level, holds = before + np.cumsum(gain), reserved_before + np.cumsum(hold)
    known = len(blocks) > 0 and int(level.min(initial=before)) >= 0
    notes = [REQUESTED] + [NO_TIMES] * untimed + [EARLIER] * (known and before > 0)
    if not known:  # without blocks, or blocks that contradict the history
        level, before, notes = np.cumsum(gain), -1, [REQUESTED, TOTALS_MISSING]
    held_known = len(blocks) > 0 and int(holds.min(initial=reserved_before)) >= 0
    first = time[:1]
    return _made(
        f"device {device}" if device >= 0 else "", "snapshot", np.r_[first, time], np.r_[max(before, 0), level],
        np.r_[reserved_before, holds] if held_known else None, {}, most, window,
        relative=not known, before=before, events=_failures(events, time), notes=tuple(notes),
    )  # fmt: skip


def _failures(events: pd.DataFrame, time: Ints) -> tuple[Event, ...]:
    """Allocations that failed, the last ones where there are many."""
    rows = np.flatnonzero(texts.where(events["action"], lambda a: a == "oom"))[-MOST_EVENTS:]
    free = events["device_free"].to_numpy()
    size = events["bytes"].to_numpy()
    said = texts.pick(events["frames"], rows)
    return tuple(Event(int(time[i]), "oom", int(size[i]), int(free[i]), str(f)) for i, f in zip(rows.tolist(), said, strict=True))


# -- timelines --------------------------------------------------------------------------------------------------


def _of_timeline(capture: Capture, most: int, window: tuple[int, int] | None) -> list[Curves | None]:
    table = capture.tables[S.MEMORY_TIMELINE.name]
    names = table["device"].astype(str)
    return [_stack(table[(names == d).to_numpy()], d, most, window) for d in sorted(set(names))] if len(table) else []


def _stack(table: pd.DataFrame, device: str, most: int, window: tuple[int, int] | None) -> Curves | None:
    """Categories on one axis of time; their sum is what is allocated."""
    time, at = np.unique(table["time_ns"].to_numpy(), return_inverse=True)
    category = table["category"].astype(str).to_numpy()
    size = table["bytes"].to_numpy()
    levels: dict[str, Ints] = {}
    for name in NAMES:
        own = np.flatnonzero(category == name)
        if len(own):
            last = np.searchsorted(at[own], np.arange(len(time)), side="right") - 1
            levels[name] = np.where(last >= 0, size[own][last.clip(0)], 0)
    whole = np.zeros(len(time), np.int64)
    for level in levels.values():
        whole += level
    return _made(device, "timeline", time, whole, None, levels, most, window, relative=False, before=-1, events=(), notes=())


# -- a recorder in the program ----------------------------------------------------------------------------------


def _of_records(capture: Capture, most: int, window: tuple[int, int] | None) -> list[Curves | None]:
    """Levels at the moments of the records; the peaks between them are told by the records themselves, without their moment."""
    table = capture.tables[S.MEMORY_RECORDS.name]
    use = (table["device"].to_numpy() >= 0) & (table["allocated"].to_numpy() >= 0) & texts.where(table["since"], lambda s: s != "phase")
    table = table[use].sort_values("time_ns", kind="stable")
    out = []
    for device in np.unique(table["device"].to_numpy()).tolist():
        own = table[table["device"] == device]
        reserved = own["reserved"].to_numpy()
        made = _made(
            f"device {device}", "recorder", own["time_ns"].to_numpy(), own["allocated"].to_numpy(),
            reserved if bool((reserved >= 0).all()) else None, {}, most, window, relative=False, before=-1, events=(), notes=(SAMPLES,),
        )  # fmt: skip
        highest = own["max_allocated"].to_numpy()
        if made is not None and window is None and int(highest.max()) > made.peak:
            at = int(np.argmax(highest))
            made = replace(made, peak=int(highest[at]), peak_ns=int(own["time_ns"].to_numpy()[at]))
        out.append(made)
    return out


# -- all --------------------------------------------------------------------------------------------------------


def _made(
    device: str, source: str, time: Ints, allocated: Ints, reserved: Ints | None, categories: dict[str, Ints], most: int,
    window: tuple[int, int] | None, *, relative: bool, before: int, events: tuple[Event, ...], notes: tuple[str, ...],
) -> Curves | None:  # fmt: skip
    """The part in the window, thinned. The level at the window's start is that of the last event before it."""
    if window is not None:
        low = max(int(np.searchsorted(time, window[0], side="right")) - 1, 0)
        high = int(np.searchsorted(time, window[1], side="right"))
        cut = slice(low, max(high, low + 1))
        time = np.clip(time[cut], *window)
        allocated, reserved = allocated[cut], reserved[cut] if reserved is not None else None
        categories = {name: level[cut] for name, level in categories.items()}
        events = tuple(e for e in events if window[0] <= e.time_ns <= window[1])
    if not len(time):
        return None
    top = int(np.argmax(allocated))
    keep = thinned(time, [allocated, *([] if reserved is None else [reserved]), *categories.values()], most)
    return Curves(
        device=device, source=source, time_ns=time[keep], allocated=allocated[keep],
        reserved=reserved[keep] if reserved is not None else None,
        categories={name: level[keep] for name, level in categories.items()},
        relative=relative, before=before, peak_ns=int(time[top]), peak=int(allocated[top]), events=events, points=len(time), notes=notes,
    )  # fmt: skip
