"""Sums over operations: records with their roofline, grouped by a label, with the ratios made from the sums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.operation_registry import BoundType, OpRecord, OpType
from tb_sol_plugin.capture.roofline import FLAGS, LAUNCH_BOUND_US, TOLERATED, Precision, RooflineResult, roofline

UNATTRIBUTED: Final = "(unattributed)"
NO_PHASE: Final = "(no phase)"
COMMUNICATION: Final = OpType.COMMUNICATION


@dataclass(frozen=True)
class Group:
    """A sum over operations. count: calls. Times in µs, None unknown.

    flops: matrix class; flops_vector apart; None where no operation's is known. compute_us: the part of the estimate that arithmetic
    sets. share: of the total estimate. measured_us: all measured time; timed_us: the part of it whose work has an estimate, which is
    timed_estimate_us. unknown: calls whose work is not known, communication left out. flags: see `roofline.FLAGS`.
    """

    name: str
    count: int
    flops: int | None = None
    flops_vector: int | None = None
    bytes: int | None = None
    estimated_us: float | None = None
    compute_us: float | None = None
    share: float | None = None
    measured_us: float | None = None
    timed_us: float | None = None
    timed_estimate_us: float | None = None
    unknown: int = 0
    flags: tuple[str, ...] = ()

    @property
    def efficiency(self) -> float | None:
        """Estimate over measured time of the same work; None where one is missing."""
        return self.timed_estimate_us / self.timed_us if self.timed_estimate_us is not None and self.timed_us else None

    @property
    def coverage(self) -> float | None:
        """Part of the estimate whose time was measured."""
        return (self.timed_estimate_us or 0.0) / self.estimated_us if self.estimated_us else None

    @property
    def bound(self) -> BoundType:
        """The side that sets the larger part of the estimate."""
        if not self.estimated_us or self.compute_us is None:
            return BoundType.UNKNOWN
        return BoundType.COMPUTE_BOUND if 2 * self.compute_us >= self.estimated_us else BoundType.MEMORY_BOUND


@dataclass(frozen=True)
class Row:
    """A record and its roofline. measured_us: its own time, None where it has none that counts; comparable: with the estimate."""

    record: OpRecord
    result: RooflineResult
    measured_us: float | None
    comparable: bool

    @property
    def both(self) -> bool:
        """Whether its time can be set against its estimate."""
        return self.comparable and self.measured_us is not None and self.result.estimated_time_us is not None


def row_of(record: OpRecord, spec: DeviceSpec | None, precision: Precision, *, timed: bool, comparable: bool) -> Row:
    """A record and its roofline. timed: its time counts. comparable: its time is that of the device whose limits spec holds."""
    measured = record.measured_time_us if timed else None
    result = roofline(record, spec, precision=precision)
    if not (timed and comparable) and result.efficiency is not None:
        result.efficiency = None
        result.flags = [flag for flag in result.flags if flag != "above_limit"]
    return Row(record, result, measured if measured and measured > 0 else None, comparable)


def known_sum(values: Iterable[float | None]) -> float | None:
    """Sum of what is known, None where nothing is. Exact, so that it does not depend on the order."""
    known = [v for v in values if v is not None]
    return math.fsum(known) if known else None


def whole_sum(values: Iterable[int | None]) -> int | None:
    """As `known_sum`, of whole numbers."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def sum_of(name: str, rows: Sequence[Row]) -> Group:
    """The group of some rows."""
    estimates = [row.result.estimated_time_us for row in rows]
    both = [row for row in rows if row.both]
    found = {flag for row in rows for flag in row.result.flags} - {"above_limit"}
    group = Group(
        name=name,
        count=sum(row.record.count for row in rows),
        flops=whole_sum(row.record.flops for row in rows),
        flops_vector=whole_sum(row.record.flops_vector for row in rows),
        bytes=whole_sum(row.record.bytes for row in rows),
        estimated_us=known_sum(estimates),
        compute_us=known_sum(_compute_part(row.result) for row in rows),
        measured_us=known_sum(row.measured_us for row in rows),
        timed_us=known_sum(row.measured_us for row in both),
        timed_estimate_us=known_sum(row.result.estimated_time_us for row in both),
        unknown=sum(row.record.count for row in rows if row.record.op_type is not COMMUNICATION and not _is_known(row.record)),
    )
    return flagged(group, found)


def _is_known(record: OpRecord) -> bool:
    return record.bytes is not None or bool(record.flops)


def _compute_part(result: RooflineResult) -> float | None:
    computes = result.bound_type is BoundType.COMPUTE_BOUND
    return result.estimated_time_us if computes or result.estimated_time_us is None else 0.0


def flagged(group: Group, found: Iterable[str]) -> Group:
    """The group with those flags, and the one of its own efficiency."""
    every = {*found} - {"above_limit"}
    if group.efficiency is not None and group.efficiency > TOLERATED:
        every.add("above_limit")
    return replace(group, flags=tuple(flag for flag in FLAGS if flag in every))


def with_times(group: Group, measured_us: float | None, timed_us: float | None) -> Group:
    """The group with other times of the same operations."""
    out = object.__new__(Group)  # a third of the time that `replace` takes
    vars(out).update(vars(group), measured_us=measured_us, timed_us=timed_us)
    above = out.efficiency is not None and out.efficiency > TOLERATED
    return out if above == ("above_limit" in group.flags) else flagged(out, group.flags)


def sorted_groups(groups: Iterable[Group], whole: float | None) -> list[Group]:
    """Largest estimate first, else longest time, else most work; `(no phase)` last. With shares of the whole estimate."""
    return sorted((shared(group, whole) for group in groups), key=lambda group: (group.name == NO_PHASE, *size_key(group), group.name))


def shared(group: Group, whole: float | None) -> Group:
    """The group with its share of the whole estimate."""
    share = group.estimated_us / whole if whole and group.estimated_us is not None else None
    return group if group.share == share else replace(group, share=share)


def size_key(group: Group) -> tuple[float, ...]:
    """Sorts larger groups first."""
    return tuple(-(value or 0) for value in (group.estimated_us, group.measured_us, group.flops, group.bytes))


def rows_key(rows: Sequence[Row]) -> tuple[float, ...]:
    """As `size_key`, of some rows before they are summed."""
    return (
        -sum(row.result.estimated_time_us or 0 for row in rows),
        -sum(row.measured_us or 0 for row in rows),
        -sum(row.record.flops or 0 for row in rows),
        -sum(row.record.bytes or 0 for row in rows),
    )


def measured(group: Group, time_us: float, estimate: float | None, calls: int | None = None, flags: Iterable[str] = ()) -> Group:
    """The group with time between events around `calls` of its operations, whose least time is `estimate`."""
    calls = group.count if calls is None else calls
    short = {"launch_bound_timing"} if calls and time_us < LAUNCH_BOUND_US * calls else set()
    timed_us = time_us if estimate is not None and time_us > 0 else None
    timed = replace(group, measured_us=time_us, timed_us=timed_us, timed_estimate_us=estimate if timed_us else None)
    return flagged(timed, {*group.flags, *short, *flags})


def untimed(group: Group) -> Group:
    """The group without its time."""
    flags = {*group.flags} - {"launch_bound_timing", "forward_only"}
    return flagged(replace(group, measured_us=None, timed_us=None, timed_estimate_us=None), flags)
