"""Sums up one memory: the most in use and reserved, what was there before, how much is left of the device."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.errors import Unavailable
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory.categories import frame_text, frames, own_line
from tb_sol_plugin.metrics.memory.curves import HOST_SINCE, Curves, Event, within
from tb_sol_plugin.metrics.memory.fragmentation import Heap, heap, largest_for, unthinned
from tb_sol_plugin.metrics.memory.leaks import Leak, best_leak, records_of
from tb_sol_plugin.metrics.memory.sources import Memory, chosen_memory, is_host, memories, number_of, window_of
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.units import human

OF_THE_HOST: Final = "the size of the host's memory is not recorded"
NO_CAPACITY: Final = "the memory of the device is not recorded; choose device limits"
NOT_TRACKED: Final = "reserved memory of the host is not tracked"
NO_RESERVED: Final = "this source does not record what is reserved"
NO_HISTORY: Final = "only the history of an allocator snapshot records them"
CHANGES: Final = "levels are changes since the beginning of the recording"


@dataclass(frozen=True)
class Amount:
    """A number of bytes and where it is from; None is unknown, and `why` has the reason. estimated: it is not of this very device."""

    bytes: int | None
    why: str
    estimated: bool = False


@dataclass(frozen=True)
class Summary:
    """Numbers of one curve. Bytes; None is unknown.

    peak, peak_ns: in use at most, and when (relative: change since the beginning). reserved, reserved_ns: the most the allocator reserved.
    reserved_at_peak: reserved when most was in use; fragmentation: that less peak. before: in use before the recording; end: at its end.
    capacity: of the device. left: capacity less reserved (less in use where reserved is unknown), at the worst moment.
    failures: allocations that failed, None where no history of the allocator is recorded. why: by field, why
    it is unknown or what it means.
    """

    device: str
    source: str
    relative: bool
    peak: int
    peak_ns: int
    reserved: int | None
    reserved_ns: int | None
    reserved_at_peak: int | None
    fragmentation: int | None
    before: int | None
    end: int
    capacity: Amount
    left: int | None
    failures: int | None
    why: dict[str, str]


def summary(capture: Capture, curve: Curves | None = None, *, limits: str = "") -> Summary | None:
    """Sum up a curve; None: the memory with most in use. limits: device limits that a reader chose. None where no curve is recorded."""
    if curve is None:
        if not memories(capture):
            return None
        curve = chosen_memory(capture)[1]
    if curve.allocated is None or not len(curve.allocated):
        return None
    size = capacity(capture, curve.device, limits)
    reserved = reserved_ns = at_peak = None
    if curve.reserved is not None:
        top = int(curve.reserved.argmax())
        reserved, reserved_ns = int(curve.reserved[top]), int(curve.time_ns[top])
        at_peak = _reserved_at(curve)
    used = reserved if reserved is not None else curve.peak
    left = size.bytes - used if size.bytes is not None and not (curve.relative and reserved is None) else None
    known = at_peak is not None and not curve.relative and at_peak >= curve.peak
    unreported = curve.source == "events" and is_host(curve.device)
    failures = _failures(capture, curve)
    return Summary(
        device=curve.device, source=curve.source, relative=curve.relative, peak=curve.peak, peak_ns=curve.peak_ns,
        reserved=reserved, reserved_ns=reserved_ns, reserved_at_peak=at_peak,
        fragmentation=at_peak - curve.peak if known and at_peak is not None else None,
        before=curve.before if curve.before >= 0 and not unreported else None, end=int(curve.allocated[-1]), capacity=size, left=left,
        failures=failures, why=_why_unknown(curve, size, left=left, at_peak=at_peak, fragmentation_known=known, failures=failures),
    )  # fmt: skip


def _why_unknown(
    curve: Curves, size: Amount, *, left: int | None, at_peak: int | None, fragmentation_known: bool, failures: int | None
) -> dict[str, str]:
    """Returns, by field of a summary, why it is unknown, or what it means. at_peak: bytes reserved when most was in use."""
    why: dict[str, str] = {}
    if curve.reserved is None:
        why["reserved"] = NOT_TRACKED if is_host(curve.device) else NO_RESERVED
    if left is None:
        why["left"] = size.why if size.bytes is None else CHANGES
    elif curve.reserved is None:
        why["left"] = f"{size.why}; less what was in use, for what was reserved is not known"
    else:
        why["left"] = f"{size.why}; less what was reserved at most"
    if at_peak is not None and not fragmentation_known:
        why["fragmentation"] = CHANGES if curve.relative else "less is reported as reserved than as in use: the two are not of one moment"
    elif at_peak is None:
        why["fragmentation"] = why.get("reserved", NO_RESERVED)
    if curve.source == "events" and is_host(curve.device) and curve.before >= 0:
        why["before"] = HOST_SINCE
    elif curve.before < 0:
        why["before"] = CHANGES if curve.relative else "this source does not record what was in use before"
    if failures is None:
        why["failures"] = NO_HISTORY
    return why


def _failures(capture: Capture, curve: Curves) -> int | None:
    """Returns how many allocations failed, from the history of the device's allocator; None without one."""
    device, number = capture.tables[S.MEMORY_EVENTS.name]["device"].to_numpy(), number_of(curve.device)
    reported = len(device) > 0 and not is_host(curve.device) and (number < 0 or bool((device == number).any()))
    return sum(e.what == "oom" for e in curve.events) if reported else None


def _reserved_at(curve: Curves) -> int | None:
    """Returns the bytes reserved when most was in use: where several events share the moment, at the one with that level."""
    if curve.reserved is None or curve.allocated is None:
        return None
    here = (curve.time_ns == curve.peak_ns) & (curve.allocated == curve.peak)
    row = int(here.argmax()) if here.any() else curve.at(curve.peak_ns)
    return int(curve.reserved[row])


def capacity(capture: Capture, device: str, limits: str = "") -> Amount:
    """Returns how much memory a device has.

    It is that of the limits a reader chose, as recorded in the program, as recorded in the trace, else that of its device limits.

    BadQuery where `limits` names no device.
    """
    if is_host(device):
        return Amount(None, OF_THE_HOST)
    if limits:
        spec = device_for(capture, limits)
        if spec is not None and spec.memory_bytes:
            return Amount(spec.memory_bytes, f"memory of {spec.name}, as chosen")
    number = number_of(device)
    records = capture.tables[S.MEMORY_RECORDS.name]
    of_device = records["device"].to_numpy()
    total = records["total"].to_numpy()
    reported = total[(total > 0) & ((of_device == number) if number >= 0 else (of_device >= 0))]
    if len(reported):
        return Amount(int(reported.max()), "memory of the device as the program read it")
    props = [p for p in capture.facts.devices if p.memory_bytes > 0 and number in (p.id, -1)]
    if props and (number >= 0 or len({p.memory_bytes for p in props}) == 1):
        return Amount(props[0].memory_bytes, f"memory of {props[0].name or 'the device'} as recorded")
    spec = device_for(capture)
    if spec is not None and spec.memory_bytes:
        return Amount(spec.memory_bytes, f"memory of {spec.name}, of its device limits", estimated=True)
    return Amount(None, NO_CAPACITY)


# -- How far a device is from running out ----------------------------------------------------------------------------
# The memory of the device, less what is outside the allocator, less the most that the allocator reserved; and the
# reason of each allocation that failed.
#
#     headroom = total - base - max_reserved        base = used on the device - reserved: context, libraries, communication, other processes
#
# Nothing of it is assumed: a part that no recording holds is unknown, with how to record it. What an allocation that fails says of
# the device (free bytes) gives the base too.


RECORD_BASE: Final = 'call record_base_memory("start") before the model is made'
NO_BASE: Final = f"memory outside of the allocator was not recorded: {RECORD_BASE}"
HEADROOM_NO_RESERVED: Final = "what the allocator reserves was not recorded"
NO_TOTAL: Final = "the memory of the device is not recorded; choose device limits"
HEADROOM_OF_THE_HOST: Final = "the host's memory has no allocator that is tracked"
NEAR: Final = 0.05
"""Headroom below this share of the device is a warning."""


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
    """The memory that is left of one device.

    total, base, max_reserved, max_allocated; left: what remains; at_most: what remains if nothing lay beside the
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
    """Measures the headroom of the device of a curve, with what other sources of the capture know.

    limits: device limits that were chosen.
    """
    key = ("memory.headroom", curve.device, curve.source, limits)
    return memo(capture, key, lambda: _headroom(capture, unthinned(capture, curve), limits))


def of_device(capture: Capture, curve: Curves) -> tuple[Curves, ...]:
    """Returns the curves of all sources that speak of the same memory, this one among them."""
    every = [m.curves for m in memories(capture) if any((c.device, c.source) == (curve.device, curve.source) for c in m.curves)]
    return every[0] if every else (curve,)


def _headroom(capture: Capture, curve: Curves, limits: str) -> Headroom:
    number = _number(capture, curve)
    total = capacity(capture, curve.device, limits)
    curves = of_device(capture, curve)
    blocks = None if is_host(curve.device) else heap(capture, number)
    failures = tuple(_headroom_failures(capture, curves, number, blocks))
    reserved, used = _most_reserved(capture, curves, number), _most_allocated(curves)
    base = _base(capture, number, total, failures) if not is_host(curve.device) else Amount(None, HEADROOM_OF_THE_HOST)
    left, at_most = _left(total, base, reserved)
    return Headroom(
        total, base, reserved, used, left, at_most, _freeable(curve, blocks), _returnable(blocks),
        Amount(blocks.largest, "at the moment of the snapshot") if blocks is not None else Amount(None, _NO_BLOCKS), failures,
    )  # fmt: skip


_NO_BLOCKS: Final = "no allocator snapshot of this device"


def _left(total: Amount, base: Amount, reserved: Amount) -> tuple[Amount, int | None]:
    for part, why in ((total, total.why), (reserved, reserved.why)):
        if part.bytes is None:
            return Amount(None, why), None
    assert total.bytes is not None and reserved.bytes is not None
    if base.bytes is None:
        return Amount(None, base.why), total.bytes - reserved.bytes
    return Amount(total.bytes - base.bytes - reserved.bytes, "total less base less most reserved", total.estimated or base.estimated), None


def _number(capture: Capture, curve: Curves) -> int:
    own = [m.number for m in memories(capture) if any((c.device, c.source) == (curve.device, curve.source) for c in m.curves)]
    return own[0] if own else number_of(curve.device)


def _base(capture: Capture, number: int, total: Amount, failures: tuple[Failure, ...]) -> Amount:
    """Returns the most used on the device outside the allocator: from records, else from a failed allocation."""
    own = records_of(capture, number)
    used, reserved = own["device_used"].to_numpy(), own["reserved"].to_numpy()
    known = (used >= 0) & (reserved >= 0)
    if known.any():
        outside = (used - reserved)[known]
        at = int(np.argmax(outside))
        tag = arrays.pick(own["tag"], np.flatnonzero(known))[at]
        process = own["process_used"].to_numpy()[known][at]
        other = int(used[known][at] - process) if process >= 0 else 0
        others = f", {human(other, 'B')} of it by other processes" if other > 0 else ""
        return Amount(int(outside[at]), f"used on the device less reserved, at the record {tag!r}{others}")
    for failure in reversed(failures):
        if failure.free >= 0 and failure.reserved >= 0 and total.bytes is not None and not total.estimated:
            outside_then = total.bytes - failure.free - failure.reserved
            if outside_then >= 0:
                return Amount(outside_then, "total less free less reserved, when an allocation failed")
    return Amount(None, NO_BASE)


def _most_reserved(capture: Capture, curves: tuple[Curves, ...], number: int) -> Amount:
    levels = [(c, c.reserved) for c in curves if c.reserved is not None and len(c.reserved)]
    found = [(int(level.max()), f"largest in the {_RECORDED_IN[c.source]}") for c, level in levels if int(level.max()) >= 0]
    own = records_of(capture, number)["max_reserved"].to_numpy()
    if len(own) and int(own.max()) >= 0:
        found.append((int(own.max()), "largest as the allocator reported it to the program"))
    return Amount(*max(found, key=lambda f: f[0])) if found else Amount(None, HEADROOM_NO_RESERVED)


_RECORDED_IN: Final = {"events": "trace", "snapshot": "snapshot", "recorder": "records", "timeline": "timeline"}


def _most_allocated(curves: tuple[Curves, ...]) -> Amount:
    known = [c for c in curves if not c.relative and c.peak >= 0]
    if not known:
        return Amount(None, "this recording holds no totals")
    most = max(known, key=lambda c: c.peak)
    return Amount(most.peak, f"largest in the {_RECORDED_IN[most.source]}")


def _freeable(curve: Curves, blocks: Heap | None) -> Amount:
    if blocks is not None:
        return Amount(blocks.reserved - blocks.active, "reserved less active, at the moment of the snapshot")
    if curve.allocated is not None and curve.reserved is not None and not curve.relative and len(curve.allocated):
        return Amount(int(curve.reserved[-1] - curve.allocated[-1]), "reserved less in use, at the end of the recording")
    return Amount(None, HEADROOM_NO_RESERVED)


def _returnable(blocks: Heap | None) -> Amount:
    if blocks is None:
        return Amount(None, _NO_BLOCKS)
    if blocks.expandable:
        return Amount(blocks.returnable, "whole free pages, of expandable segments", estimated=True)
    return Amount(blocks.returnable, "segments that are free as a whole")


# -- allocations that failed ------------------------------------------------------------------------------------


def _headroom_failures(capture: Capture, curves: tuple[Curves, ...], number: int, blocks: Heap | None) -> list[Failure]:
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
    stack = tuple(frame_text(f) for f in frames(event.frames))
    verdict, advice, setting = _judged(event, blocks, largest, unused, reserved, vendor)
    return Failure(
        event.time_ns, event.bytes, event.free, reserved, allocated, largest, unused, later, own_line(event.frames), stack, verdict,
        advice, setting,
    )  # fmt: skip


def unused_for(found: Heap, requested: int) -> int:
    """Returns free bytes in blocks of the pools and size class that serve such a request."""
    wanted = "small" if requested <= 1 << 20 else "large"
    fitting = found.pools[~found.pools["private"].to_numpy() & found.pools["kind"].isin([wanted, ""]).to_numpy()]
    return int(fitting["free"].sum())


def allocator_setting(vendor: str, value: str) -> str:
    """Returns the environment variable of the allocator's settings."""
    return f"PYTORCH_{'HIP' if vendor == 'amd' else 'CUDA'}_ALLOC_CONF={value}"


def _judged(event: Event, blocks: Heap | None, largest: int, unused: int, reserved: int, vendor: str) -> tuple[str, str, str]:
    """Returns (why it failed, what helps, the setting)."""
    requested, free = event.bytes, event.free
    if requested < 0:
        return "How much was asked for is not recorded.", "", ""
    if free >= 0 and free >= requested:
        return (
            f"The device had {human(free, 'B')} free, more than was asked for: a limit of this process was reached.",
            "Raise the share of the device that the process may take.", "torch.cuda.set_per_process_memory_fraction(1.0)",
        )  # fmt: skip
    if blocks is None or unused < 0:
        return (
            f"The device had {human(free, 'B')} free, less than was asked for." if free >= 0 else "What was free is not recorded.",
            "Whether it was fragmented is unknown: the snapshot holds no blocks of this device.", "",
        )  # fmt: skip
    there = max(free, 0) + unused
    if largest >= requested:
        return (
            f"A free block of {human(largest, 'B')} is there at the moment of the snapshot: memory was freed after the failure.",
            "Take the snapshot as memory runs out, in an observer, to see the blocks of that moment.", "",
        )  # fmt: skip
    if there < requested:
        return (
            f"Memory is short by {human(requested - there, 'B')}: free on the device and unused in the allocator are together "
            f"{human(there, 'B')}.",
            "No setting of the allocator helps: keep less in use at the peak. What to free, in order, says what can go.", "",
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


# -- One memory of a recording, for pages that compare recordings -----------------------------------------------------
# Of several memories, the device with most in use.


@dataclass(frozen=True)
class MemorySummary:
    """The memory of a recording that a comparison shows.

    every: the curve of the whole recording, curve: of the window; found: its numbers; room: what is left; grows: None without steps."""

    memory: Memory
    every: Curves
    window: tuple[int, int] | None
    curve: Curves
    found: Summary
    room: Headroom
    grows: Leak | None

    @property
    def growth(self) -> float | None:
        """Bytes per step, where there are steps enough to say so."""
        g = self.grows
        return float(g.slope) if g is not None and g.verdict not in ("few", "no_steps") and math.isfinite(g.slope) else None

    @property
    def failures(self) -> int | None:
        """Allocations that failed; None where nothing records them."""
        return max(self.found.failures, len(self.room.failures)) if self.found.failures is not None else None


def memory_summary(capture: Capture, query: Query) -> MemorySummary:
    """Returns the memory of a capture to compare. Unavailable where no device's allocator was recorded."""
    if not memories(capture):
        raise Unavailable("no device's allocator was recorded", hint="record on a device, or with profile(profile_memory=True)")
    memory, every = chosen_memory(capture)
    window = window_of(capture, every, "", query)
    curve = within(every, window)
    found = summary(capture, curve, limits=query.device_limits)
    if found is None:
        raise Unavailable("no level of memory in use was recorded", hint="record with profile(profile_memory=True)")
    room, grows = headroom(capture, every, limits=query.device_limits), best_leak(capture, memory.curves)
    return MemorySummary(memory, every, window, curve, found, room, grows)
