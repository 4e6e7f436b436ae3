"""The numbers of one memory at a glance: in use and reserved at most, what was there before, how much is left of the device."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tb_sol_plugin.devices.limits import device_for
from tb_sol_plugin.metrics.memory.choose import chosen, is_host, memories, number_of
from tb_sol_plugin.metrics.memory.curves import HOST_SINCE, Curves
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

OF_THE_HOST: Final = "the size of the host's memory is not recorded"
NO_CAPACITY: Final = "the memory of the device is not recorded; choose device limits"
NOT_TRACKED: Final = "reserved memory of the host is not tracked"
NO_RESERVED: Final = "this source does not tell what the allocator holds"
NO_HISTORY: Final = "only the history of an allocator snapshot tells them"
CHANGES: Final = "levels are changes since the beginning of the recording"


@dataclass(frozen=True)
class Capacity:
    """Bytes of a device's memory, None unknown; why: where the number is from, or why there is none. estimated: of such devices."""

    bytes: int | None
    why: str
    estimated: bool = False


@dataclass(frozen=True)
class Summary:
    """Numbers of one curve. Bytes; None is unknown.

    peak, peak_ns: in use at most, and when (relative: change since the beginning). reserved, reserved_ns: held by the allocator at most.
    reserved_at_peak: held when most was in use; fragmentation: that less peak. before: in use before the recording began; end: at its end.
    capacity: of the device. left: capacity less reserved (less in use where reserved is unknown), at the worst moment.
    failures: allocations that failed, None where no history of the allocator is recorded, which alone tells them. why: by field, why
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
    capacity: Capacity
    left: int | None
    failures: int | None
    why: dict[str, str]


def summary(capture: Capture, curve: Curves | None = None, *, limits: str = "") -> Summary | None:
    """Of a curve; None: of the memory with most in use. limits: device limits that a reader chose. None where no curve is recorded."""
    if curve is None:
        if not memories(capture):
            return None
        curve = chosen(capture)[1]
    if curve.allocated is None or not len(curve.allocated):
        return None
    size = capacity(capture, curve.device, limits)
    why: dict[str, str] = {}
    reserved = reserved_ns = at_peak = None
    if curve.reserved is not None:
        top = int(curve.reserved.argmax())
        reserved, reserved_ns = int(curve.reserved[top]), int(curve.time_ns[top])
        at_peak = _reserved_at(curve)
    else:
        why["reserved"] = NOT_TRACKED if is_host(curve.device) else NO_RESERVED
    used = reserved if reserved is not None else curve.peak
    left = size.bytes - used if size.bytes is not None and not (curve.relative and reserved is None) else None
    if left is None:
        why["left"] = size.why if size.bytes is None else CHANGES
    elif reserved is None:
        why["left"] = f"{size.why}; less what was in use, for what the allocator held is not known"
    else:
        why["left"] = f"{size.why}; less what the allocator held at most"
    known = at_peak is not None and not curve.relative and at_peak >= curve.peak
    if at_peak is not None and not known:
        why["fragmentation"] = CHANGES if curve.relative else "less is told as reserved than as in use: the two are not of one moment"
    elif at_peak is None:
        why["fragmentation"] = why.get("reserved", NO_RESERVED)
    untold = curve.source == "events" and is_host(curve.device)
    if untold and curve.before >= 0:
        why["before"] = HOST_SINCE
    elif curve.before < 0:
        why["before"] = CHANGES if curve.relative else "this source does not tell what was there before"
    failures = _failures(capture, curve)
    if failures is None:
        why["failures"] = NO_HISTORY
    return Summary(
        device=curve.device, source=curve.source, relative=curve.relative, peak=curve.peak, peak_ns=curve.peak_ns,
        reserved=reserved, reserved_ns=reserved_ns, reserved_at_peak=at_peak,
        fragmentation=at_peak - curve.peak if known and at_peak is not None else None,
        before=curve.before if curve.before >= 0 and not untold else None, end=int(curve.allocated[-1]), capacity=size, left=left,
        failures=failures, why=why,
    )  # fmt: skip


def _failures(capture: Capture, curve: Curves) -> int | None:
    """Allocations that failed, as the history of the device's allocator tells; None without one."""
    device, number = capture.tables[S.MEMORY_EVENTS.name]["device"].to_numpy(), number_of(curve.device)
    told = len(device) > 0 and not is_host(curve.device) and (number < 0 or bool((device == number).any()))
    return sum(e.what == "oom" for e in curve.events) if told else None


def _reserved_at(curve: Curves) -> int | None:
    """Held by the allocator when most was in use: where several events share the moment, at the one with that level."""
    if curve.reserved is None or curve.allocated is None:
        return None
    here = (curve.time_ns == curve.peak_ns) & (curve.allocated == curve.peak)
    row = int(here.argmax()) if here.any() else curve.at(curve.peak_ns)
    return int(curve.reserved[row])


def capacity(capture: Capture, device: str, limits: str = "") -> Capacity:
    """How much memory a device has: of the limits a reader chose, as recorded in the program, as the trace says, else of its device limits.

    BadQuery where `limits` names no device.
    """
    if is_host(device):
        return Capacity(None, OF_THE_HOST)
    if limits:
        spec = device_for(capture, limits)
        if spec is not None and spec.memory_bytes:
            return Capacity(spec.memory_bytes, f"memory of {spec.name}, as chosen")
    number = number_of(device)
    records = capture.tables[S.MEMORY_RECORDS.name]
    of_device = records["device"].to_numpy()
    total = records["total"].to_numpy()
    told = total[(total > 0) & ((of_device == number) if number >= 0 else (of_device >= 0))]
    if len(told):
        return Capacity(int(told.max()), "memory of the device as the program read it")
    props = [p for p in capture.facts.devices if p.memory_bytes > 0 and number in (p.id, -1)]
    if props and (number >= 0 or len({p.memory_bytes for p in props}) == 1):
        return Capacity(props[0].memory_bytes, f"memory of {props[0].name or 'the device'} as recorded")
    spec = device_for(capture)
    if spec is not None and spec.memory_bytes:
        return Capacity(spec.memory_bytes, f"memory of {spec.name}, of its device limits", estimated=True)
    return Capacity(None, NO_CAPACITY)
