"""Sums the work of a sampled step, once: console, TensorBoard, Weights & Biases, the file's totals and every group read these sums.

Each record gets its roofline; groups are sums over such rows. Sums come before ratios: a group's estimate is the sum of its operations'
least times, its efficiency the estimate of the timed work over the time of that work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar, overload

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.operation_registry import BoundType, OpRecord, OpType
from tb_sol_plugin.capture.roofline import FLAGS, LAUNCH_BOUND_US, Precision, RooflineResult, roofline
from tb_sol_plugin.roofline import efficiency, exceeds_limit

T = TypeVar("T")
Number = TypeVar("Number", int, float)
UNATTRIBUTED: Final = "(unattributed)"
NO_PHASE: Final = "(no phase)"
COMMUNICATION: Final = OpType.COMMUNICATION


@dataclass(frozen=True)
class Group:
    """Sums operations. count: calls. Times in µs, None unknown.

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
        return efficiency(self.timed_estimate_us, self.timed_us)

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
    """Has a record and its roofline. measured_us: its own time, None where it has none that counts; comparable: with the estimate."""

    record: OpRecord
    result: RooflineResult
    measured_us: float | None
    comparable: bool

    @property
    def has_efficiency(self) -> bool:
        """Whether its time can be compared with its estimate."""
        return self.comparable and self.measured_us is not None and self.result.estimated_time_us is not None


def row_of(record: OpRecord, spec: DeviceSpec | None, precision: Precision, *, timed: bool, comparable: bool) -> Row:
    """Computes the roofline of a record. timed: its time counts. comparable: its time is that of the device whose limits are in spec."""
    measured = record.measured_time_us if timed else None
    result = roofline(record, spec, precision=precision)
    if not (timed and comparable) and result.efficiency is not None:
        result.efficiency = None
        result.flags = [flag for flag in result.flags if flag != "above_limit"]
    return Row(record, result, measured if measured and measured > 0 else None, comparable)


def known_sum(values: Iterable[float | None]) -> float | None:
    """Adds what is known; None where nothing is. The sum is exact, so it does not depend on the order."""
    known = [v for v in values if v is not None]
    return math.fsum(known) if known else None


def whole_sum(values: Iterable[int | None]) -> int | None:
    """Adds whole numbers as `known_sum` does."""
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def sum_of(name: str, rows: Sequence[Row]) -> Group:
    """Sums some rows into a group."""
    compared = [row for row in rows if row.has_efficiency]
    found = {flag for row in rows for flag in row.result.flags} - {"above_limit"}
    group = Group(
        name=name,
        count=sum(row.record.count for row in rows),
        flops=whole_sum(row.record.flops for row in rows),
        flops_vector=whole_sum(row.record.flops_vector for row in rows),
        bytes=whole_sum(row.record.bytes for row in rows),
        estimated_us=known_sum(row.result.estimated_time_us for row in rows),
        compute_us=known_sum(_compute_part(row.result) for row in rows),
        measured_us=known_sum(row.measured_us for row in rows),
        timed_us=known_sum(row.measured_us for row in compared),
        timed_estimate_us=known_sum(row.result.estimated_time_us for row in compared),
        unknown=sum(row.record.count for row in rows if row.record.op_type is not COMMUNICATION and not _is_known(row.record)),
    )
    return flagged(group, found)


def _is_known(record: OpRecord) -> bool:
    return record.bytes is not None or bool(record.flops)


def _compute_part(result: RooflineResult) -> float | None:
    computes = result.bound_type is BoundType.COMPUTE_BOUND
    return result.estimated_time_us if computes or result.estimated_time_us is None else 0.0


def flagged(group: Group, found: Iterable[str]) -> Group:
    """Sets the flags of a group; that of its own efficiency is added."""
    every = {*found} - {"above_limit"}
    if exceeds_limit(group.efficiency):
        every.add("above_limit")
    return replace(group, flags=tuple(flag for flag in FLAGS if flag in every))


def retimed(group: Group, measured_us: float | None, timed_us: float | None) -> Group:
    """Replaces the times of a group whose operations are the same."""
    out = object.__new__(Group)  # a third of the time that `replace` takes
    vars(out).update(vars(group), measured_us=measured_us, timed_us=timed_us)
    return out if exceeds_limit(out.efficiency) == ("above_limit" in group.flags) else flagged(out, group.flags)


def sorted_groups(groups: Iterable[Group], whole: float | None) -> list[Group]:
    """Sorts groups by estimate, else time, else work, `(no phase)` last, and gives each its share of the whole estimate."""
    return sorted((shared(group, whole) for group in groups), key=lambda group: (group.name == NO_PHASE, *size_key(group), group.name))


def shared(group: Group, whole: float | None) -> Group:
    """Gives a group its share of the whole estimate."""
    share = group.estimated_us / whole if whole and group.estimated_us is not None else None
    return group if group.share == share else replace(group, share=share)


def size_key(group: Group) -> tuple[float, ...]:
    """Returns the key that sorts larger groups first."""
    return tuple(-(value or 0) for value in (group.estimated_us, group.measured_us, group.flops, group.bytes))


def event_timed(group: Group, time_us: float, estimate: float | None, calls: int | None = None, flags: Iterable[str] = ()) -> Group:
    """Gives a group the time between events around `calls` of its operations, whose least time is `estimate`."""
    calls = group.count if calls is None else calls
    short = {"launch_bound_timing"} if calls and time_us < LAUNCH_BOUND_US * calls else set()
    timed_us = time_us if estimate is not None and time_us > 0 else None
    timed = replace(group, measured_us=time_us, timed_us=timed_us, timed_estimate_us=estimate if timed_us else None)
    return flagged(timed, {*group.flags, *short, *flags})


def untimed(group: Group) -> Group:
    """Removes the time of a group."""
    flags = {*group.flags} - {"launch_bound_timing", "forward_only"}
    return flagged(replace(group, measured_us=None, timed_us=None, timed_estimate_us=None), flags)


# -- The sums of a whole step ----------------------------------------------------------------------------------------
# Nearly every sampled step of a training loop does the work of the one before. The costs of its calls and all sums over them do not
# depend on its times; they are kept for that case.


Picker: TypeAlias = "Callable[[Sequence[float | None]], Sequence[float | None]]"
LedgerRows: TypeAlias = "Mapping[tuple[int, ...], Sequence[int]]"
"""Rows of a ledger: [calls, their time in ns, -1 not timed] by key."""
TOTAL, LAYERS, FUNCTIONS, PHASES = range(4)
_GROUP_OF: Final[tuple[Callable[[OpRecord], str], ...]] = (
    lambda one: "total",
    lambda one: one.layer_type or one.module_class or UNATTRIBUTED,
    lambda one: one.func_name,
    lambda one: one.phase or NO_PHASE,
)
"""The name of a record's group, of each sort of groups; "" for none."""


class LazySequence(Sequence[T]):
    """Is a sequence that is made when it is first read."""

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make: Callable[[], Sequence[T]] | None = make
        self._made: Sequence[T] = ()

    def made(self) -> Sequence[T]:
        """The sequence itself."""
        if self._make is not None:
            self._made, self._make = self._make(), None
        return self._made

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[T]: ...
    def __getitem__(self, at: int | slice) -> T | Sequence[T]:
        return self.made()[at]

    def __len__(self) -> int:
        return len(self.made())

    def __iter__(self) -> Iterator[T]:
        return iter(self.made())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class Folded:
    """Has the sums of a step.

    rows: each operation with its roofline. groups: of each sort (TOTAL, LAYERS, FUNCTIONS, PHASES) by name. pickers: of each group what
    takes, from a list with an item per row, the items whose time counts, and those whose time can be compared with an estimate; None
    without any. model_us, hardware_us: time of the matrix FLOP at the peaks, without and with work that is done again.
    """

    rows: Sequence[Row]
    groups: tuple[dict[str, Group], ...]
    pickers: tuple[dict[str, tuple[Picker, Picker] | None], ...]
    model_us: float | None
    hardware_us: float | None

    def with_times(self, times: Sequence[float | None]) -> Folded:
        """Replaces the times in µs of the same work; the rows that are timed must be the same."""
        rows = self.rows
        groups = tuple(
            {name: _with_times(group, pickers[name], times) for name, group in of.items()}
            for of, pickers in zip(self.groups, self.pickers, strict=True)
        )
        later = LazySequence(lambda: [replace(row, measured_us=time) for row, time in zip(rows, times, strict=True)])
        return replace(self, rows=later, groups=groups)


def _with_times(group: Group, pickers: tuple[Picker, Picker] | None, times: Sequence[float | None]) -> Group:
    if pickers is None:
        return group
    timed, compared = pickers
    measured_us = known_sum(timed(times))
    return retimed(group, measured_us, measured_us if compared is timed else known_sum(compared(times)))


def _pickers(rows: Sequence[Row], places: Sequence[int]) -> tuple[Picker, Picker] | None:
    """Makes what takes the items of those rows at `places` whose time counts, and of those whose time can be compared with an estimate."""
    timed = [n for n in places if rows[n].measured_us is not None]
    compared = [n for n in timed if rows[n].has_efficiency]
    if not timed:
        return None
    take = _picker(timed)
    return take, take if compared == timed else _picker(compared)


def _picker(places: Sequence[int]) -> Picker:
    if len(places) > 1:
        return itemgetter(*places)
    return lambda items: [items[n] for n in places]


def folded(records: Iterable[OpRecord], spec: DeviceSpec | None, precision: Precision, *, timed: bool, comparable: bool) -> Folded:
    """Sums the records of a step. timed: their own times count; comparable: they are those of the device whose limits are in spec."""
    rows = [row_of(one, spec, precision, timed=timed, comparable=comparable) for one in records]
    groups, pickers = [], []
    for name_of in _GROUP_OF:
        places: dict[str, list[int]] = {}
        for at, row in enumerate(rows):
            name = name_of(row.record)
            if name:
                places.setdefault(name, []).append(at)
        pickers.append({name: _pickers(rows, members) for name, members in places.items()})
        groups.append({name: sum_of(name, [rows[at] for at in members]) for name, members in places.items()})
    whole = groups[TOTAL].setdefault("total", sum_of("total", [])).estimated_us
    groups = [{name: shared(group, whole) for name, group in of.items()} for of in groups]
    pickers[TOTAL].setdefault("total", None)
    return Folded(rows, tuple(groups), tuple(pickers), time_at_peak(rows, again=False), time_at_peak(rows, again=True))


def time_at_peak(rows: Iterable[Row], *, again: bool) -> float | None:
    """Time in µs of the matrix FLOP at the peak of each type; those without a peak are left out, None without any.

    again: with what is done a second time, by recomputed calls and within the backward pass of fused attention.
    """
    used = [(row.record, row.result.peak_used) for row in rows if row.record.flops and row.result.peak_used]
    if again:
        return known_sum((one.flops or 0) / (peak or 1) * 1e6 for one, peak in used)
    return known_sum(((one.flops or 0) - one.flops_again) / (peak or 1) * 1e6 for one, peak in used if not one.is_recompute)


class FoldCache:
    """Keeps the sums of the last step, for a step that did the same work under the same limits."""

    def __init__(self) -> None:
        self._keys: list[tuple[int, ...]] = []
        self._calls: list[tuple[int, bool]] = []
        self._under: tuple[object, ...] = ()
        self._folded: Folded | None = None
        self._layers: frozenset[str] = frozenset()

    def folded(
        self, counted: LedgerRows, records: Sequence[OpRecord], spec: DeviceSpec | None, precision: Precision,
        *, timed: bool, comparable: bool,
    ) -> Folded:  # fmt: skip
        """Returns the sums of a step. records: one per row of `counted`, in that order; they are not read if the work is known."""
        under = spec, precision, timed, comparable
        if self._folded is not None and under == self._under and self._same(counted):
            if not timed:
                return self._folded
            rows = counted.values() if list(counted) == self._keys else [counted[key] for key in self._keys]
            return self._folded.with_times([row[1] / 1000 if row[1] > 0 else None for row in rows])
        made = folded(records, spec, precision, timed=timed, comparable=comparable)
        self._keys, self._calls, self._under = list(counted), _calls(counted.values()), under
        self._folded = made if len(records) == len(counted) else None
        self._layers = frozenset(one.layer_name for one in records if one.layer_type)
        return made

    def layers(self, counted: LedgerRows, records: Sequence[OpRecord]) -> frozenset[str]:
        """Returns the names of the supported layers that did the work."""
        if self._folded is not None and self._same(counted):
            return self._layers
        return frozenset(one.layer_name for one in records if one.layer_type)

    def _same(self, counted: LedgerRows) -> bool:
        """Returns whether these are the calls of the step before, whatever time they took."""
        if len(counted) != len(self._keys):
            return False
        if list(counted) == self._keys:
            return _calls(counted.values()) == self._calls
        try:
            return _calls(counted[key] for key in self._keys) == self._calls
        except KeyError:
            return False


def _calls(rows: Iterable[Sequence[int]]) -> list[tuple[int, bool]]:
    """Returns the calls of each row, and whether they took any time that was measured."""
    return [(row[0], row[1] > 0) for row in rows]


# -- Records of layers and of functions ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Merged:
    """Merges records of one layer or function, in one phase and direction. main: the one with most FLOP, of equals the one with most bytes.

    A sum is None where a part of it is unknown; flops are of the matrix class.
    """

    name: tuple[str, str]
    main: OpRecord
    flops: int | None
    bytes: int | None
    measured_time_us: float | None
    count: int
    estimated: bool


def merged(records: Iterable[OpRecord], name_of: Callable[[OpRecord], tuple[str, str]]) -> list[Merged]:
    """Merges records by name, phase, direction and recomputation, first seen first; those whose name starts with "" are left out."""
    groups: dict[tuple[object, ...], list[OpRecord]] = {}
    for one in records:
        name = name_of(one)
        if name[0]:
            groups.setdefault((name, one.phase, one.direction, one.is_recompute), []).append(one)
    return [
        Merged(
            name=name_of(members[0]),
            main=max(members, key=lambda one: (one.flops or 0, one.bytes or 0)),
            flops=complete_sum([one.flops for one in members]),
            bytes=complete_sum([one.bytes for one in members]),
            measured_time_us=complete_sum([one.measured_time_us for one in members]),
            count=sum(one.count for one in members),
            estimated=any(one.estimated for one in members),
        )
        for members in groups.values()
    ]


def complete_sum(values: Sequence[Number | None]) -> Number | None:
    """Adds numbers; None if one of them is unknown, or there are none."""
    known = [value for value in values if value is not None]
    return sum(known[1:], known[0]) if known and len(known) == len(values) else None
