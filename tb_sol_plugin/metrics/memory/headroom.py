"""How far a device is from running out: what it has, less what lies beside the allocator, less the most that the allocator held; and the
story of each allocation that failed.

    headroom = total - base - max_reserved        base = used on the device - reserved: context, libraries, communication, other processes

Nothing of it is assumed: a part that no recording holds is unknown, with how to record it. What an allocation that fails says of
the device (free bytes) gives the base too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.choose import is_host, memories, number_of
from tb_sol_plugin.metrics.memory.curves import Curves, Event
from tb_sol_plugin.metrics.memory.fragmentation import Heap, heap, largest_for, unthinned
from tb_sol_plugin.metrics.memory.lines import frames, own_line, said
from tb_sol_plugin.metrics.memory.per_step import records_of
from tb_sol_plugin.metrics.memory.summary import capacity
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

RECORD_BASE: Final = 'call record_base_memory("start") before the model is made'
NO_BASE: Final = f"what lies beside the allocator was not recorded: {RECORD_BASE}"
NO_RESERVED: Final = "what the allocator holds was not recorded"
NO_TOTAL: Final = "the memory of the device is not recorded; choose device limits"
OF_THE_HOST: Final = "the host's memory has no allocator that is tracked"
NEAR: Final = 0.05
"""Headroom below this share of the device is a warning."""


@dataclass(frozen=True)
class Amount:
    """A number of bytes and where it is from; None is unknown, and `why` says why. estimated: it is not of this very device."""

    bytes: int | None
    why: str
    estimated: bool = False


@dataclass(frozen=True)
class Failure:
    """An allocation that failed. Bytes; -1 unknown.

    requested; free: on the device then; reserved, allocated: of the allocator then; largest: the largest free block that could serve it,
    unused: free blocks of its size class (private pools apart), both at the moment of the snapshot, which is `later` entries of the history
    after. where: the innermost line of the program outside of torch, stack: the whole call stack, innermost first.
    verdict: why it failed in one sentence; advice: what helps; setting: the line that does, "" where none does.
    """

    time_ns: int
    requested: int
    free: int
    reserved: int
    allocated: int
    largest: int
    unused: int
    later: int
    where: str
    stack: tuple[str, ...]
    verdict: str
    advice: str
    setting: str


@dataclass(frozen=True)
class Headroom:
    """Of one device. total, base, max_reserved, max_allocated; left: what remains; at_most: what remains if nothing lay beside the
    allocator (None where `left` is known, or nothing is). freeable: reserved less active at the moment of the snapshot, else reserved less
    in use at the last record; largest: the largest free block. failures: in order of time.
    """

    total: Amount
    base: Amount
    max_reserved: Amount
    max_allocated: Amount
    left: Amount
    at_most: int | None
    freeable: Amount
    returnable: Amount
    largest: Amount
    failures: tuple[Failure, ...]

    @property
    def share(self) -> float | None:
        """Left over total."""
        return self.left.bytes / self.total.bytes if self.left.bytes is not None and self.total.bytes else None

    @property
    def near(self) -> bool:
        """Whether less than NEAR is left."""
        return self.share is not None and self.share < NEAR


def headroom(capture: Capture, curve: Curves, *, limits: str = "") -> Headroom:
    """Of the device that a curve is of; what other sources of the capture know of it counts too. limits: device limits that were chosen."""
    key = ("memory.headroom", curve.device, curve.source, limits)
    return memo(capture, key, lambda: _headroom(capture, unthinned(capture, curve), limits))


def of_device(capture: Capture, curve: Curves) -> tuple[Curves, ...]:
    """The curves of all sources that speak of the same memory, this one among them."""
    every = [m.curves for m in memories(capture) if any((c.device, c.source) == (curve.device, curve.source) for c in m.curves)]
    return every[0] if every else (curve,)


def _headroom(capture: Capture, curve: Curves, limits: str) -> Headroom:
    number = _number(capture, curve)
    size = capacity(capture, curve.device, limits)
    total = Amount(size.bytes, size.why, size.estimated)
    curves = of_device(capture, curve)
    blocks = None if is_host(curve.device) else heap(capture, number)
    failures = tuple(_failures(capture, curves, number, blocks))
    held, used = _most_reserved(capture, curves, number), _most_allocated(curves)
    base = _base(capture, number, total, failures) if not is_host(curve.device) else Amount(None, OF_THE_HOST)
    left, at_most = _left(total, base, held)
    return Headroom(
        total, base, held, used, left, at_most, _freeable(curve, blocks), _returnable(blocks),
        Amount(blocks.largest, "at the moment of the snapshot") if blocks is not None else Amount(None, _NO_BLOCKS), failures,
    )  # fmt: skip


_NO_BLOCKS: Final = "no allocator snapshot of this device"


def _left(total: Amount, base: Amount, held: Amount) -> tuple[Amount, int | None]:
    for part, why in ((total, total.why), (held, held.why)):
        if part.bytes is None:
            return Amount(None, why), None
    assert total.bytes is not None and held.bytes is not None
    if base.bytes is None:
        return Amount(None, base.why), total.bytes - held.bytes
    return Amount(total.bytes - base.bytes - held.bytes, "total less base less most reserved", total.estimated or base.estimated), None


def _number(capture: Capture, curve: Curves) -> int:
    own = [m.number for m in memories(capture) if any((c.device, c.source) == (curve.device, curve.source) for c in m.curves)]
    return own[0] if own else number_of(curve.device)


def _base(capture: Capture, number: int, total: Amount, failures: tuple[Failure, ...]) -> Amount:
    """The most that was used on the device beside the allocator: by records, else by what a failed allocation says."""
    own = records_of(capture, number)
    used, reserved = own["device_used"].to_numpy(), own["reserved"].to_numpy()
    known = (used >= 0) & (reserved >= 0)
    if known.any():
        beside = (used - reserved)[known]
        at = int(np.argmax(beside))
        tag = arrays.pick(own["tag"], np.flatnonzero(known))[at]
        process = own["process_used"].to_numpy()[known][at]
        other = int(used[known][at] - process) if process >= 0 else 0
        beside_us = f", {human(other, 'B')} of it by other processes" if other > 0 else ""
        return Amount(int(beside[at]), f"used on the device less reserved, at the record {tag!r}{beside_us}")
    for failure in reversed(failures):
        if failure.free >= 0 and failure.reserved >= 0 and total.bytes is not None and not total.estimated:
            beside_it = total.bytes - failure.free - failure.reserved
            if beside_it >= 0:
                return Amount(beside_it, "total less free less reserved, when an allocation failed")
    return Amount(None, NO_BASE)


def _most_reserved(capture: Capture, curves: tuple[Curves, ...], number: int) -> Amount:
    levels = [(c, c.reserved) for c in curves if c.reserved is not None and len(c.reserved)]
    found = [(int(level.max()), f"largest in the {_SAID[c.source]}") for c, level in levels if int(level.max()) >= 0]
    own = records_of(capture, number)["max_reserved"].to_numpy()
    if len(own) and int(own.max()) >= 0:
        found.append((int(own.max()), "largest as the allocator told the program"))
    return Amount(*max(found, key=lambda f: f[0])) if found else Amount(None, NO_RESERVED)


_SAID: Final = {"events": "trace", "snapshot": "snapshot", "recorder": "records", "timeline": "timeline"}


def _most_allocated(curves: tuple[Curves, ...]) -> Amount:
    known = [c for c in curves if not c.relative and c.peak >= 0]
    if not known:
        return Amount(None, "this recording holds no totals")
    most = max(known, key=lambda c: c.peak)
    return Amount(most.peak, f"largest in the {_SAID[most.source]}")


def _freeable(curve: Curves, blocks: Heap | None) -> Amount:
    if blocks is not None:
        return Amount(blocks.reserved - blocks.active, "reserved less active, at the moment of the snapshot")
    if curve.allocated is not None and curve.reserved is not None and not curve.relative and len(curve.allocated):
        return Amount(int(curve.reserved[-1] - curve.allocated[-1]), "reserved less in use, at the end of the recording")
    return Amount(None, NO_RESERVED)


def _returnable(blocks: Heap | None) -> Amount:
    if blocks is None:
        return Amount(None, _NO_BLOCKS)
    if blocks.expandable:
        return Amount(blocks.returnable, "whole free pages, of expandable segments", estimated=True)
    return Amount(blocks.returnable, "segments that are free as a whole")


# -- allocations that failed ------------------------------------------------------------------------------------


def _failures(capture: Capture, curves: tuple[Curves, ...], number: int, blocks: Heap | None) -> list[Failure]:
    history = next((c for c in curves if c.source == "snapshot"), None)
    if history is None:
        return []
    events = capture.tables[S.MEMORY_EVENTS.name]
    device = events["device"].to_numpy()
    every = np.unique(device)
    own = events[device == (int(every[0]) if number < 0 and len(every) == 1 else number)]
    failed = np.flatnonzero(arrays.where(own["action"], lambda a: a == "oom"))
    changes = np.flatnonzero(arrays.where(own["action"], lambda a: a not in ("oom", "snapshot", "")))
    last = failed[len(failed) - len(history.events) :].tolist()
    out = []
    for event, row in zip(history.events, last, strict=False):
        later = int((changes > row).sum())
        out.append(_failure(history, event, blocks, later, capture.facts.vendor))
    return out


def _failure(history: Curves, event: Event, blocks: Heap | None, later: int, vendor: str) -> Failure:
    at = history.at(event.time_ns)
    reserved = int(history.reserved[at]) if history.reserved is not None else -1
    allocated = int(history.allocated[at]) if history.allocated is not None and not history.relative else -1
    largest = largest_for(blocks, event.bytes) if blocks is not None and event.bytes >= 0 else -1
    unused = unused_for(blocks, event.bytes) if blocks is not None and event.bytes >= 0 else -1
    stack = tuple(said(f) for f in frames(event.frames))
    verdict, advice, setting = _judged(event, blocks, largest, unused, reserved, vendor)
    return Failure(
        event.time_ns, event.bytes, event.free, reserved, allocated, largest, unused, later, own_line(event.frames), stack, verdict,
        advice, setting,
    )  # fmt: skip


def unused_for(found: Heap, requested: int) -> int:
    """Free bytes in blocks of the pools and size class that serve such a request."""
    wanted = "small" if requested <= 1 << 20 else "large"
    fitting = found.pools[~found.pools["private"].to_numpy() & found.pools["kind"].isin([wanted, ""]).to_numpy()]
    return int(fitting["free"].sum())


def allocator_setting(vendor: str, value: str) -> str:
    """The environment variable of the allocator's settings."""
    return f"PYTORCH_{'HIP' if vendor == 'amd' else 'CUDA'}_ALLOC_CONF={value}"


def _judged(event: Event, blocks: Heap | None, largest: int, unused: int, reserved: int, vendor: str) -> tuple[str, str, str]:
    """(why it failed, what helps, the setting)."""
    asked, free = event.bytes, event.free
    if asked < 0:
        return "How much was asked for is not recorded.", "", ""
    if free >= 0 and free >= asked:
        return (
            f"The device had {human(free, 'B')} free, more than was asked for: a limit of this process was reached.",
            "Raise the share of the device that the process may take.", "torch.cuda.set_per_process_memory_fraction(1.0)",
        )  # fmt: skip
    if blocks is None or unused < 0:
        return (
            f"The device had {human(free, 'B')} free, less than was asked for." if free >= 0 else "What was free is not recorded.",
            "Whether it was fragmented cannot be told: the snapshot holds no blocks of this device.", "",
        )  # fmt: skip
    there = max(free, 0) + unused
    if largest >= asked:
        return (
            f"A free block of {human(largest, 'B')} is there at the moment of the snapshot: memory was freed after the failure.",
            "Take the snapshot as memory runs out, in an observer, to see the blocks of that moment.", "",
        )  # fmt: skip
    if there < asked:
        return (
            f"Memory is short by {human(asked - there, 'B')}: free on the device and unused in the allocator are together "
            f"{human(there, 'B')}.",
            "No setting of the allocator helps: hold less at the peak. What to free, in order, says what can go.", "",
        )  # fmt: skip
    why = (
        f"Memory is fragmented: free on the device and unused in the allocator are together {human(there, 'B')}, more than was asked "
        f"for, but the largest free block is {human(largest, 'B')}."
    )
    if blocks.expandable:
        return (
            why, "Segments are expandable already: what is left are holes between blocks that live long. Allocate those first, "
            "or keep sizes equal from step to step.", "",
        )  # fmt: skip
    grow = allocator_setting(vendor, "expandable_segments:True")
    if blocks.max_split >= 0:
        return why, "Large blocks are not split any more; let segments grow instead.", grow
    advice = "Let segments grow in place, so that free blocks join."
    if blocks.keep_whole > 0:
        size = human(blocks.keep_whole, "B")
        advice += f" Where the platform cannot, keep blocks of more than {size} whole: max_split_size_mb:{blocks.keep_whole >> 20}."
    return why, advice, grow
