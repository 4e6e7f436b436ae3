"""Measures memory that the allocator reserves and nobody uses: over time, at the peak, and block by block of a snapshot.

The allocator of CUDA and ROCm takes segments from the device and cuts them into blocks. A segment goes back to the device when all of it
is free; free blocks beside used ones (`split`) stay. With expandable segments whole free pages go back, wherever they lie. Segments of
private pools, as those of CUDA graphs, stay as long as their pool. A request is served from blocks of its own pool, stream and size class
alone, so the largest free block is one of these. Sources: c10/cuda/CUDACachingAllocator.cpp of torch 2.x (`release_blocks`,
`unmap_block`, `get_free_block`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.curves import Curves, whole
from tb_sol_plugin.metrics.memory.sources import number_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints

COMMON: Final = ("0,0", "")
"""The pool that everything shares, and where pools were not recorded."""
SMALL_PAGE: Final = 2 << 20
LARGE_PAGE: Final = 20 << 20
"""Bytes by which an expandable segment grows and shrinks (`kSmallBuffer`, `kLargeBuffer`)."""
SMALL_LIMIT: Final = 1 << 20
"""Requests up to this size are served from small segments (`kSmallSize`)."""
SMALLEST_LIMIT: Final = 32 << 20
"""The allocator takes no `max_split_size_mb` of 20 or less."""
USED: Final = "active_allocated"
AWAITING: Final = "active_awaiting_free"
FREE: Final = "inactive"


@dataclass(frozen=True)
class Heap:
    """The allocator of one device at the moment of a snapshot, in bytes.

    reserved: of all segments. used, awaiting (freed, but a stream may still use it), free: of blocks by state; other: the rest of
    reserved, 0 where blocks and segments agree. split: free, in segments of which another part is used. returnable: free, and given back by
    `empty_cache` (estimated with expandable segments: by whole pages). private: free in private pools, which keep it. rounding: used
    blocks less what was asked for; -1 unknown. largest: the largest free block. expandable: None unknown. max_split: bytes from which on
    blocks are not split, -1 without; keep_whole: such a size that would have left the most fragmented segment whole, -1 none.
    pools: one row per pool, stream and size class: pool, stream, kind, segments, reserved, used, awaiting, free, split, returnable,
    rounding, largest, private (bool).
    """

    reserved: int
    used: int
    awaiting: int
    free: int
    other: int
    split: int
    returnable: int
    private: int
    rounding: int
    largest: int
    expandable: bool | None
    max_split: int
    keep_whole: int
    pools: pd.DataFrame

    @property
    def active(self) -> int:
        """Bytes in use, with those that a stream may still use."""
        return self.used + self.awaiting


@dataclass(frozen=True)
class Fragmentation:
    """Memory that is reserved and not in use, of one curve.

    time_ns, allocated, reserved, gap: the levels over time; gap is reserved less allocated. peak_ns, peak_gap, reserved_at_peak: when
    most is in use. worst_ns, worst_gap: when most is unused. max_reserved, max_allocated: of the curve. heap: of a snapshot, None
    without one. requested: in use is counted as the program asked for it, so that rounding is in the gap.
    """

    time_ns: Ints
    allocated: Ints
    reserved: Ints
    gap: Ints
    peak_ns: int
    peak_gap: int
    reserved_at_peak: int
    worst_ns: int
    worst_gap: int
    max_reserved: int
    max_allocated: int
    heap: Heap | None
    requested: bool

    @property
    def share(self) -> float | None:
        """1 - allocated / reserved at the peak; None where nothing is reserved."""
        return self.peak_gap / self.reserved_at_peak if self.reserved_at_peak > 0 else None


def fragmentation(capture: Capture, curve: Curves) -> Fragmentation | None:
    """Measures fragmentation of a curve with reserved memory and totals; None where the source has no such number, as of the host."""
    full = unthinned(capture, curve)
    if full.allocated is None or full.reserved is None or full.relative or not len(full.time_ns):
        return None
    known = (full.reserved >= 0) & (full.allocated >= 0)
    if not known.any():
        return None
    time, used, reserved = full.time_ns[known], full.allocated[known], full.reserved[known]
    gap = reserved - used
    at, worst = int(np.argmax(used)), int(np.argmax(gap))
    return Fragmentation(
        time, used, reserved, gap, int(time[at]), int(gap[at]), int(reserved[at]), int(time[worst]), int(gap[worst]), int(reserved.max()),
        int(used.max()), heap(capture, number_of(curve.device)), full.source == "snapshot",
    )  # fmt: skip


def unthinned(capture: Capture, curve: Curves) -> Curves:
    """Returns the same curve with every point; itself where the capture has none of its device and source."""
    return next((c for c in whole(capture) if (c.device, c.source) == (curve.device, curve.source)), curve)


def heap(capture: Capture, device: int) -> Heap | None:
    """Returns the allocator of one device by the blocks of a snapshot; None where the capture holds none of it.

    -1: the only device there is.
    """
    return memo(capture, ("memory.heap", device), lambda: _heap(capture, device))


def settings(capture: Capture) -> dict[str, object]:
    """Returns the allocator's settings as a snapshot holds them, {} where it does not."""
    try:
        found = json.loads(capture.facts.metadata.get("allocator_settings", "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def expandable(capture: Capture) -> bool | None:
    """Returns whether segments can grow: by the settings, by the text that they were made from, by the history; None unknown."""
    own = settings(capture)
    for name in ("expandable_segments", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
        value = own.get(name)
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and "expandable_segments" in value:
            return "expandable_segments:true" in value.lower().replace(" ", "")
    if bool(arrays.where(capture.tables[S.MEMORY_EVENTS.name]["action"], lambda a: a in ("segment_map", "segment_unmap")).any()):
        return True
    return False if own else None


def _max_split(capture: Capture) -> int:
    """Returns bytes above which blocks are not split, -1 without such a setting."""
    value = settings(capture).get("max_split_size")
    return value if isinstance(value, int) and 0 < value < 1 << 50 else -1


def _heap(capture: Capture, device: int) -> Heap | None:
    table = capture.tables[S.MEMORY_BLOCKS.name]
    every = np.unique(table["device"].to_numpy())
    if device < 0 and len(every) == 1:
        device = int(every[0])
    table = table[table["device"].to_numpy() == device]
    if not len(table):
        return None
    size = table["bytes"].to_numpy().clip(min=0)
    state = [arrays.where(table["state"], lambda s, want=want: s == want) for want in (USED, AWAITING, FREE)]  # type: ignore[misc]
    used, awaiting, free = state
    segment, first, of = np.unique(table["segment"].to_numpy(), return_index=True, return_inverse=True)
    of = of.reshape(-1)
    whole = table["segment_bytes"].to_numpy()[first].clip(min=0)
    busy = np.bincount(of, used | awaiting, minlength=len(segment)) > 0
    known = np.bincount(of, used | awaiting | free, minlength=len(segment)) == np.bincount(of, minlength=len(segment))
    private_row = ~arrays.where(table["pool"], lambda p: p in COMMON)
    grows = expandable(capture)
    back = np.where(free, size, 0)
    if grows:
        small = arrays.where(table["segment_type"], lambda t: t == "small")
        page = np.where(small, SMALL_PAGE, LARGE_PAGE)
        begin = table["address"].to_numpy() - segment[of]
        back = np.where(free, np.maximum((begin + size) // page - -(-begin // page), 0) * page, 0)
        back = np.where(table["address"].to_numpy() >= 0, back, 0)
    else:
        back = np.where(busy[of] | ~known[of], 0, back)
    back = np.where(private_row, 0, back)
    requested = table["requested"].to_numpy()
    asked_bytes = used & (requested >= 0)
    lost = np.where(asked_bytes, size - requested, 0)
    columns = {
        "used": np.where(used, size, 0), "awaiting": np.where(awaiting, size, 0), "free": np.where(free, size, 0),
        "split": np.where(free & busy[of], size, 0), "returnable": back, "rounding": lost,
    }  # fmt: skip
    keys = [arrays.codes(table["pool"]), table["stream"].to_numpy(), arrays.codes(table["segment_type"])]
    group = arrays.together(*keys)
    count = int(group.max()) + 1
    at = arrays.first_of(group, count)
    largest = np.zeros(count, np.int64)
    np.maximum.at(largest, group, columns["free"])
    pools = pd.DataFrame({
        "pool": arrays.pick(table["pool"], at), "stream": table["stream"].to_numpy()[at], "kind": arrays.pick(table["segment_type"], at),
        "segments": np.bincount(group[first], minlength=count), "reserved": _sum(group[first], whole, count),
        **{name: _sum(group, values, count) for name, values in columns.items()}, "largest": largest, "private": private_row[at],
    }).sort_values("reserved", ascending=False, kind="stable", ignore_index=True)  # fmt: skip
    if not asked_bytes.any() and used.any():
        pools["rounding"] = -1
    sums = {name: int(values.sum()) for name, values in columns.items()}
    reserved = int(whole.sum())
    return Heap(
        reserved, sums["used"], sums["awaiting"], sums["free"], reserved - sums["used"] - sums["awaiting"] - sums["free"], sums["split"],
        sums["returnable"], int(columns["free"][private_row].sum()), sums["rounding"] if asked_bytes.any() or not used.any() else -1,
        int(largest.max(initial=0)), grows, _max_split(capture), _keep_whole(of, columns["split"], columns["used"], whole), pools,
    )  # fmt: skip


def _keep_whole(of: Ints, split: Ints, used: Ints, whole: Ints) -> int:
    """Returns a power of two above each used block of the segment with most free memory: blocks of that size would not have split it."""
    count = len(whole)
    worst = int(np.argmax(_sum(of, split, count)))
    most = np.zeros(count, np.int64)
    np.maximum.at(most, of, used)
    size = max(1 << int(most[worst]).bit_length(), SMALLEST_LIMIT)
    return size if split.any() and size <= int(whole[worst]) else -1


def largest_for(found: Heap, requested: int) -> int:
    """Returns the largest free block that a request of that size could be served from, of common pools and its size class."""
    wanted = "small" if requested <= SMALL_LIMIT else "large"
    fitting = found.pools[~found.pools["private"].to_numpy() & found.pools["kind"].isin([wanted, ""]).to_numpy()]
    return int(fitting["largest"].max()) if len(fitting) else 0


def _sum(group: npt.NDArray[np.int64], values: npt.NDArray[np.generic], count: int) -> Ints:
    out = np.zeros(count, np.int64)
    np.add.at(out, group, values.astype(np.int64))
    return out
