"""Replays memory events of a profiler: bytes in use of each device over time, and one row per allocation with its lifetime.

Events stand in order of time, then of the file. A free without its allocation took place for memory "allocated before the window": how
much of that there was is the first total less the first event's bytes. Nothing is made up where a recording lacks totals or addresses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.table import Table, as_table

CPU: Final = 0
TYPES: Final = {0: "CPU", 1: "CUDA", 6: "HIP", 9: "XLA", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA", 20: "device"}
"""Kinds of devices as torch numbers them."""


@dataclass(frozen=True, order=True)
class Device:
    """One memory: kind as torch numbers it, and the device's number (-1 where it has none, as the host)."""

    type: int
    id: int

    @property
    def label(self) -> str:
        """`CPU`, `CUDA 0`, `HIP 3`."""
        name = TYPES.get(self.type, f"device type {self.type}")
        return name if self.id < 0 else f"{name} {self.id}"


@dataclass(frozen=True)
class Replay:
    """One device's memory events. Arrays have one entry per event, in order.

    row: of `memory`. time_ns, bytes (> 0 allocation, < 0 free), address (-1 not recorded).
    allocated: bytes in use after the event, as recorded; where no total is, as the running sum gives it from the last one; -1 unknown.
    reserved: as recorded, -1 unknown; tracked: whether it is recorded at all (the host's never is).
    change: sum of the bytes of all events so far. before: bytes in use before the first event, -1 unknown.
    differs: events whose recorded total is not `before + change`.
    """

    device: Device
    row: Ints
    time_ns: Ints
    bytes: Ints
    address: Ints
    allocated: Ints
    reserved: Ints
    tracked: bool
    change: Ints
    before: int
    differs: int

    @property
    def known(self) -> bool:
        """Whether bytes in use are known at all; else only their change is."""
        return self.before >= 0

    @property
    def peak(self) -> int:
        """Position of the event after which most is in use (of the change where totals are unknown); -1: before the first one."""
        level = self.allocated if self.known else self.change
        first = self.before if self.known else 0
        if not len(level):
            return -1
        at = int(np.argmax(level))
        return at if int(level[at]) > first else -1


def devices(capture: Capture) -> list[Device]:
    """Returns devices with memory events: devices first, the host last."""
    return memo(capture, ("memory.devices",), lambda: _devices(capture))


def _devices(capture: Capture) -> list[Device]:
    types, ids = (capture.tables["memory"][name].to_numpy() for name in ("device_type", "device_id"))
    found: list[Device] = []
    for one in pd.unique(types).tolist():
        found += [Device(int(one), int(i)) for i in pd.unique(ids[types == one]).tolist()]
    return sorted(found, key=lambda d: (d.type == CPU, d))


def replay(capture: Capture, device: Device) -> Replay:
    """Replays the memory events of one device."""
    return memo(capture, ("memory.replay", device), lambda: _replay(capture, device))


def _replay(capture: Capture, device: Device) -> Replay:
    table = capture.tables["memory"]
    own = (table["device_type"].to_numpy() == device.type) & (table["device_id"].to_numpy() == device.id)
    row = np.flatnonzero(own)
    time, size, address, total, reserved = (
        table[name].to_numpy()[row] for name in ("time_ns", "bytes", "address", "total_allocated", "total_reserved")
    )
    change = np.cumsum(size)
    with_total = np.flatnonzero(total >= 0)
    before = int(total[with_total[0]] - change[with_total[0]]) if len(with_total) else -1
    differs = int((total[with_total] != before + change[with_total]).sum())
    if len(with_total):  # an event without a total goes on from the last one that has it
        last = np.searchsorted(with_total, np.arange(len(row)), side="right") - 1
        anchor = np.where(last >= 0, total[with_total[last.clip(0)]] - change[with_total[last.clip(0)]], before)
        allocated = np.maximum(change + anchor, 0 if before >= 0 else np.iinfo(np.int64).min)
    else:
        allocated = np.full(len(row), -1, np.int64)
    tracked = device.type != CPU and bool((reserved > 0).any())
    return Replay(
        device, row, time, size, address, allocated, reserved if tracked else np.full(len(row), -1, np.int64), tracked, change,
        max(before, -1), differs,
    )  # fmt: skip


def allocations(capture: Capture, device: Device) -> Table:
    """Returns one row per allocation and per free of memory from before the window, in order of the first event of each.

    first, last: positions in the replay of the allocation and of its free (-1: from before the window; never freed in it). stop: as
    last, or of the next allocation of its address.
    row, free_row: the same in `memory`. address, bytes (of the allocation; of a free alone what it freed), start_ns, end_ns, lifetime_ns
    (-1 unknown). before: allocated before the window. paired: its address is recorded, so that its other end is known where there is
    one; of events without address nothing is known but their own bytes.
    reused: its address was allocated again without a free of it in between, so it ended no later than then.
    """
    return memo(capture, ("memory.allocations", device), lambda: as_table(pair_allocations(replay(capture, device))))


def pair_allocations(r: Replay) -> pd.DataFrame:
    """Returns `allocations` of any sequence of events that gain and free memory at addresses."""
    use = np.flatnonzero(r.bytes != 0)
    addressed = use[r.address[use] != -1]
    order = addressed[np.argsort(r.address[addressed], kind="stable")]
    gain = r.bytes[order] > 0
    same = np.r_[r.address[order][1:] == r.address[order][:-1], False] if len(order) else np.zeros(0, bool)
    partner = np.full(len(r.bytes), -1, np.int64)  # of an allocation the position of its free
    stop = np.full(len(r.bytes), -1, np.int64)
    freed = np.zeros(len(r.bytes), bool)
    if len(order):
        followed = np.flatnonzero(gain & same)
        nxt = followed + 1
        is_free = ~gain[nxt]
        partner[order[followed[is_free]]] = order[nxt[is_free]]
        stop[order[followed]] = order[nxt]
        freed[order[nxt[is_free]]] = True
    starts = use[r.bytes[use] > 0]
    alone = use[(r.bytes[use] < 0) & ~freed[use]]
    first = np.r_[starts, np.full(len(alone), -1, np.int64)]
    last = np.r_[partner[starts], alone]
    ends = np.r_[stop[starts], alone]
    at = np.r_[starts, alone]
    back = np.argsort(at, kind="stable")
    first, last, ends, at = first[back], last[back], ends[back], at[back]
    start = np.where(first >= 0, r.time_ns[first.clip(0)] if len(r.time_ns) else 0, -1)
    end = np.where(last >= 0, r.time_ns[last.clip(0)] if len(r.time_ns) else 0, -1)
    return pd.DataFrame({
        "first": first, "last": last, "stop": ends,
        "row": np.where(first >= 0, r.row[first.clip(0)] if len(r.row) else 0, -1),
        "free_row": np.where(last >= 0, r.row[last.clip(0)] if len(r.row) else 0, -1),
        "address": r.address[at], "bytes": np.abs(r.bytes[at]), "start_ns": start, "end_ns": end,
        "lifetime_ns": np.where((first >= 0) & (last >= 0), end - start, -1),
        "before": (first < 0) & (r.address[at] != -1), "paired": r.address[at] != -1, "reused": (last < 0) & (ends >= 0),
    }, copy=False)  # fmt: skip


def live_allocations(capture: Capture, device: Device, at: int) -> tuple[pd.DataFrame, int]:
    """Returns (rows of `allocations` that are live after event `at`, bytes from before the window that no row of them names).

    at: position in the replay, -1 before the first event. Rows from before the window are those that are freed later; the rest of what
    was in use then is the second number. It is -1 where it is not known: totals or addresses are missing.
    """
    found = allocations(capture, device)
    r = replay(capture, device)
    first, stop = found["first"].to_numpy(), found["stop"].to_numpy()
    live = (first <= at) & ((stop < 0) | (stop > at)) & found["paired"].to_numpy()
    out = pd.DataFrame(found[live])
    if not r.known or not found["paired"].all():
        return out, -1
    in_use = int(r.allocated[at]) if at >= 0 else r.before
    return out, in_use - int(out["bytes"].sum())
