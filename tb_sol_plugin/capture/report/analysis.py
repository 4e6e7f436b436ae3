"""One step against its limits: totals, layers, functions, phases, and the operations that take longest.

Sums come before ratios: a group's estimate is the sum of its operations' least times, its efficiency the estimate of the timed work
over the time of that work.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Final, TypeAlias, TypeVar, overload

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tb_sol_plugin.capture.loop.schedule import StepRecord, TimeRow
from tb_sol_plugin.capture.operation_registry import BoundType, DataType, OpRecord, OpType, Shape
from tb_sol_plugin.capture.roofline import FLAGS, LAUNCH_BOUND_US, Precision, RooflineResult, current_precision, roofline
from tb_sol_plugin.format import COMPILED
from tb_sol_plugin.roofline import efficiency, exceeds_limit, intensity

# -- Sums over operations --------------------------------------------------------------------------------------------
# records with their roofline, grouped by a label, with the ratios made from the sums.


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
    if exceeds_limit(group.efficiency):
        every.add("above_limit")
    return replace(group, flags=tuple(flag for flag in FLAGS if flag in every))


def with_times(group: Group, measured_us: float | None, timed_us: float | None) -> Group:
    """The group with other times of the same operations."""
    out = object.__new__(Group)  # a third of the time that `replace` takes
    vars(out).update(vars(group), measured_us=measured_us, timed_us=timed_us)
    return out if exceeds_limit(out.efficiency) == ("above_limit" in group.flags) else flagged(out, group.flags)


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


# -- Times between device events, given to the groups whose work they enclose ----------------------------------------


K = TypeVar("K", bound=Hashable)


def layers_by_events(layers: Mapping[str, Group], rows: Sequence[Row], times: Mapping[str, float | None]) -> dict[str, Group]:
    """Layer types with the time of the forward calls of their modules, and the estimate of exactly the work inside these."""
    inside: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.record.direction == "fwd" and times.get(row.record.layer_name) is not None:
            inside.setdefault((row.record.layer_type or UNATTRIBUTED, row.record.layer_name), []).append(row)
    out = dict(layers)
    for kind, group in layers.items():
        mine = [(path, part) for (of, path), part in inside.items() if of == kind and kind != UNATTRIBUTED]
        if mine:
            time = math.fsum(times[path] or 0.0 for path, _ in mine)
            work = [row for _, part in mine for row in part]
            calls = sum(row.record.count for row in work)
            flags = {"forward_only"} if calls < group.count else set()
            out[kind] = measured(group, time, known_sum(row.result.estimated_time_us for row in work), calls, flags)
    return out


def phases_by_events(phases: Mapping[str, Group], times: Mapping[str, float | None], device_ns: int | None) -> dict[str, Group]:
    """Phases with their own times, and those that have time and no operation. device_ns: of the step."""
    out = dict(phases)
    every = {name: times.get(name) for name in (*times, *(p for p in phases if p != NO_PHASE))}
    for name, time in _phase_times(every, device_ns).items():
        if name in out or name != NO_PHASE:
            group = out.get(name) or Group(name, 0)
            out[name] = measured(group, time, group.estimated_us)
    return {name: group for name, group in out.items() if group.count or group.measured_us is not None}


def _phase_times(times: Mapping[str, float | None], device_ns: int | None) -> dict[str, float]:
    """Known times; `(no phase)` has what the step lasted beyond all phases, where all are known."""
    out = {name: time for name, time in times.items() if time is not None}
    if device_ns is not None and len(out) == len(times):
        left = device_ns / 1e3 - math.fsum(out.values())
        if left > 0:
            out[NO_PHASE] = left
    return out


def times_of_layers(rows: Iterable[TimeRow], labels: Labels, layers: Collection[str]) -> dict[str, float | None]:
    """Device time in µs of all calls of each of `layers` (`OpRecord.layer_name`), less that of other ones inside it.

    None where a call has no time. rows: of all modules; what lies inside a layer and is none itself belongs to the layer.
    """
    return _own_times(rows, labels, lambda name: name in layers)


def times_of_phases(rows: Iterable[TimeRow], labels: Labels) -> dict[str, float | None]:
    """Device time in µs by phase, less that of the phases inside it; None where it is not known."""
    return _own_times(rows, labels, lambda _: True)


def _own_times(rows: Iterable[TimeRow], labels: Labels, counts: Callable[[str], bool]) -> dict[str, float | None]:
    whole: dict[int, float | None] = {}
    for label, _, _, device_ns, _ in rows:
        if counts(labels.known[label].name):
            _add(whole, label, device_ns / 1e3 if device_ns is not None else None)
    inside: dict[int, float | None] = {}
    for label, time in whole.items():
        around = labels.known[label].parent
        while around != NONE and around not in whole:
            around = labels.known[around].parent
        if around != NONE:
            _add(inside, around, time)
    out: dict[str, float | None] = {}
    for label, time in whole.items():
        part = inside.get(label, 0.0)
        own = time - part if time is not None and part is not None else None
        _add(out, labels.known[label].name, own if own is None or own >= 0 else None)
    return out


def _add(out: dict[K, float | None], key: K, time: float | None) -> None:
    before = out.get(key, 0.0)
    out[key] = before + time if before is not None and time is not None else None


# -- tally -----------------------------------------------------------------------------------------------------------
# Nearly every sampled step of a training loop does the work of the one before. What does not depend on its times, the costs of its calls
# and
# all sums over them, is kept for that case.


T = TypeVar("T")
Picked: TypeAlias = "Callable[[Sequence[float | None]], Sequence[float | None]]"
Counted: TypeAlias = "Mapping[tuple[int, ...], Sequence[int]]"
"""Rows of a ledger: [calls, their time in ns, -1 not timed] by key."""
TOTAL, LAYERS, FUNCTIONS, PHASES = range(4)
_NAMES: Final[tuple[Callable[[OpRecord], str], ...]] = (
    lambda one: "total",
    lambda one: one.layer_type or UNATTRIBUTED,
    lambda one: one.func_name,
    lambda one: one.phase or NO_PHASE,
)
"""The name of a record's group, of each sort of groups; "" for none."""


class Later(Sequence[T]):
    """A sequence that is made when it is first looked at."""

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
class Tally:
    """Sums over operations.

    rows: each operation with its roofline. groups: of each sort (TOTAL, LAYERS, FUNCTIONS, PHASES) by name. timed: takes, from a list
    with an item per row, those of each group whose time counts, and those whose time can be set against an estimate; None without any.
    model_us, hardware_us: time of the matrix FLOP at the peaks, without and with recomputed work.
    """

    rows: Sequence[Row]
    groups: tuple[dict[str, Group], ...]
    timed: tuple[dict[str, tuple[Picked, Picked] | None], ...]
    model_us: float | None
    hardware_us: float | None

    @property
    def total(self) -> Group:
        return self.groups[TOTAL]["total"]

    def again(self, times: Sequence[float | None]) -> Tally:
        """The same work with other times in µs, known of the same rows."""
        rows = self.rows
        groups = tuple(
            {name: _timed(group, timed[name], times) for name, group in of.items()}
            for of, timed in zip(self.groups, self.timed, strict=True)
        )
        later = Later(lambda: [replace(row, measured_us=time) for row, time in zip(rows, times, strict=True)])
        return replace(self, rows=later, groups=groups)


def _timed(group: Group, picked: tuple[Picked, Picked] | None, times: Sequence[float | None]) -> Group:
    if picked is None:
        return group
    every, both = picked
    measured = known_sum(every(times))
    return with_times(group, measured, measured if both is every else known_sum(both(times)))


def _picked(rows: Sequence[Row], at: Sequence[int]) -> tuple[Picked, Picked] | None:
    """What takes the items of the rows at these places whose time counts, and of those whose time can be set against an estimate."""
    every = [n for n in at if rows[n].measured_us is not None]
    both = [n for n in every if rows[n].both]
    if not every:
        return None
    take = _taker(every)
    return take, take if both == every else _taker(both)


def _taker(at: Sequence[int]) -> Picked:
    if len(at) > 1:
        return itemgetter(*at)
    return lambda items: [items[n] for n in at]


def tally_of(records: Iterable[OpRecord], spec: DeviceSpec | None, precision: Precision, *, timed: bool, comparable: bool) -> Tally:
    """The sums over records. timed: their own times count; comparable: they are those of the device whose limits spec holds."""
    rows = [row_of(one, spec, precision, timed=timed, comparable=comparable) for one in records]
    groups, timings = [], []
    for name_of in _NAMES:
        places: dict[str, list[int]] = {}
        for at, row in enumerate(rows):
            name = name_of(row.record)
            if name:
                places.setdefault(name, []).append(at)
        timings.append({name: _picked(rows, mine) for name, mine in places.items()})
        groups.append({name: sum_of(name, [rows[at] for at in mine]) for name, mine in places.items()})
    whole = groups[TOTAL].setdefault("total", sum_of("total", [])).estimated_us
    groups = [{name: shared(group, whole) for name, group in of.items()} for of in groups]
    timings[TOTAL].setdefault("total", None)
    model = at_peak(row for row in rows if not row.record.is_recompute)
    return Tally(rows, tuple(groups), tuple(timings), model, at_peak(rows))


def at_peak(rows: Iterable[Row]) -> float | None:
    """Time in µs of the matrix FLOP at the peak of each type; those without a peak are left out, None without any."""
    return known_sum(row.record.flops / row.result.peak_used * 1e6 for row in rows if row.record.flops and row.result.peak_used)


class Repeats:
    """The tally of the last step, for one that did the same work under the same limits."""

    def __init__(self) -> None:
        self._keys: list[tuple[int, ...]] = []
        self._calls: list[tuple[int, bool]] = []
        self._under: tuple[object, ...] = ()
        self._tally: Tally | None = None
        self._layers: frozenset[str] = frozenset()

    def tally(
        self, counted: Counted, records: Sequence[OpRecord], spec: DeviceSpec | None, precision: Precision, *, timed: bool, comparable: bool
    ) -> Tally:  # fmt: skip
        """The tally of a step. records: of the rows that were counted, in their order; they are not looked at if the work is known."""
        under = spec, precision, timed, comparable
        if self._tally is not None and under == self._under and self._same(counted):
            if not timed:
                return self._tally
            rows = counted.values() if list(counted) == self._keys else [counted[key] for key in self._keys]
            return self._tally.again([row[1] / 1000 if row[1] > 0 else None for row in rows])
        made = tally_of(records, spec, precision, timed=timed, comparable=comparable)
        self._keys, self._calls, self._under = list(counted), _calls(counted.values()), under
        self._tally = made if len(records) == len(counted) else None
        self._layers = frozenset(one.layer_name for one in records if one.layer_type)
        return made

    def layers(self, counted: Counted, records: Sequence[OpRecord]) -> frozenset[str]:
        """Names of the supported layers that did the work."""
        if self._tally is not None and self._same(counted):
            return self._layers
        return frozenset(one.layer_name for one in records if one.layer_type)

    def _same(self, counted: Counted) -> bool:
        """Whether these are the calls of the step before, whatever time they took."""
        if len(counted) != len(self._keys):
            return False
        if list(counted) == self._keys:
            return _calls(counted.values()) == self._calls
        try:
            return _calls(counted[key] for key in self._keys) == self._calls
        except KeyError:
            return False


def _calls(rows: Iterable[Sequence[int]]) -> list[tuple[int, bool]]:
    """Calls of each row, and whether they took any time that was measured."""
    return [(row[0], row[1] > 0) for row in rows]


TOP: Final = 50
EVENT: Final = "event"
CPU: Final = "cpu"


@dataclass(frozen=True)
class TopOperation:
    """One of the operations with the largest estimates."""

    rank: int
    name: str
    layer_name: str
    phase: str
    direction: str
    shapes: list[Shape]
    dtype: DataType
    count: int
    flops: int | None
    bytes: int | None
    arithmetic_intensity: float | None
    estimated_us: float | None
    measured_us: float | None
    efficiency: float | None
    bound: BoundType
    flags: tuple[str, ...]


@dataclass(frozen=True)
class Analysis:
    """What is known of one step.

    layers and phases sum to the total, functions are a second view of the same work. step_us: wall time of the step. model_us: time of
    its matrix FLOP at the peaks of their types, without recomputed work; hardware_us with it. time_source: cpu (each operation by
    wall clock), event (between device events), "" none. reason: why there are no limits. age: iterations since its work was
    counted, 0 in a sampled step. sample: of a step whose work was not counted, the sampled one that it has its work from.
    """

    iteration: int
    device: str
    total: Group
    layers: list[Group]
    functions: list[Group]
    phases: list[Group]
    top: Sequence[TopOperation]
    step_us: float | None = None
    model_us: float | None = None
    hardware_us: float | None = None
    time_source: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()
    age: int = 0
    sample: Analysis | None = None

    @property
    def reported(self) -> Analysis:
        """What reports and tables show: layers, functions and single operations are known of sampled steps only."""
        return self.sample or self

    @property
    def mfu(self) -> float | None:
        """Model FLOP utilisation: matrix FLOP without recomputed work, over step time and peak."""
        return efficiency(self.model_us, self.step_us)

    @property
    def hfu(self) -> float | None:
        """Hardware FLOP utilisation: as `mfu`, with recomputed work."""
        return efficiency(self.hardware_us, self.step_us)


def analyse(
    records: Sequence[OpRecord],
    step: StepRecord,
    spec: DeviceSpec | None,
    *,
    layer_times: Mapping[str, float | None] | None = None,
    phase_times: Mapping[str, float | None] | None = None,
    precision: Precision | None = None,
    reason: str = "",
    counted: Counted | None = None,
    repeats: Repeats | None = None,
) -> Analysis:
    """A sampled step.

    Records that carry a time of their own (CPU) are summed. Otherwise a phase has the time between its events, a layer that of the
    events around the forward calls of its modules, and the step the one between its own: layer_times and phase_times in µs by
    `OpRecord.layer_name` and phase, see `times_of_layers`, `times_of_phases`. precision: as now, without. reason: why spec is None.
    counted: the rows of the ledger, one for each record; with repeats, which knows the step before, records are left alone if that one did
    the same work.
    """
    precision = current_precision() if precision is None else precision
    if counted is None:
        own = any(r.measured_time_us is not None for r in records)
        compiled = step.compiled or any(r.compiled for r in records)
    else:
        own = any(row[1] >= 0 for row in counted.values())
        compiled = step.compiled or any(key[5] & COMPILED for key in counted)
    source = CPU if own else EVENT if step.device_ns is not None or layer_times or phase_times else ""
    comparable = spec is not None and (spec.vendor == CPU) == (source != EVENT)
    timed = own and not compiled
    if counted is None or repeats is None:
        tally = tally_of(records, spec, precision, timed=timed, comparable=comparable)
    else:
        tally = repeats.tally(counted, records, spec, precision, timed=timed, comparable=comparable)
    by_events = source == EVENT and not compiled and (comparable or spec is None)
    total, layers, functions, phases = tally.total, *tally.groups[LAYERS:]
    if by_events and step.device_ns is not None:
        total = measured(total, step.device_ns / 1e3, total.estimated_us)
    whole = total.estimated_us
    if by_events:
        layers = layers_by_events(layers, tally.rows, layer_times or {})
        phases = phases_by_events(phases, phase_times or {}, step.device_ns)
    notes = []
    if spec is not None and not comparable:
        other = "the GPU" if source == EVENT else "the CPU"
        notes.append(f"the limits are those of {spec.name}, the times those of {other}: no efficiency")
    if compiled:
        notes.append("compiled work was counted by running it eagerly for this step: its times are not those of the compiled model")
    return Analysis(
        iteration=step.iteration,
        device=spec.name if spec is not None else "",
        total=replace(total, share=1.0 if whole else None),
        layers=sorted_groups(layers.values(), whole),
        functions=sorted_groups(functions.values(), whole),
        phases=sorted_groups(phases.values(), whole),
        top=Later(lambda: _top(tally.rows)),
        step_us=None if compiled else step.duration_ns / 1e3,
        model_us=tally.model_us if comparable else None,
        hardware_us=tally.hardware_us if comparable else None,
        time_source=source,
        reason="" if spec is not None else reason or "the limits of the device are not known",
        notes=tuple(notes),
    )


def carry(last: Analysis, step: StepRecord, *, phase_times: Mapping[str, float | None] | None = None) -> Analysis:
    """A step whose work was not counted, with the work of `last` (same sizes of the model's inputs) and its own times.

    Layers, functions and single operations, whose times were not measured, are left out.
    """
    last = last.reported
    total, phases = untimed(last.total), {g.name: untimed(g) for g in last.phases}
    source = EVENT if step.device_ns is not None or phase_times else ""
    if step.device_ns is not None:
        total = measured(total, step.device_ns / 1e3, last.total.estimated_us)
    if source == EVENT:
        phases = phases_by_events(phases, phase_times or {}, step.device_ns)
    return replace(
        last,
        iteration=step.iteration,
        total=total,
        layers=[],
        functions=[],
        phases=sorted_groups(phases.values(), last.total.estimated_us),
        top=[],
        step_us=step.duration_ns / 1e3,
        time_source=source,
        notes=(),
        age=step.iteration - last.iteration,
        sample=last,
    )


def _top(rows: Iterable[Row]) -> list[TopOperation]:
    """The operations with the largest estimates (without limits: the longest); records that differ in function only are one."""
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        r = row.record
        shapes = repr(r.input_shapes)
        alike.setdefault((r.name, r.layer_name, r.phase, r.direction, shapes, r.dtype, r.is_recompute, r.compiled), []).append(row)
    largest = heapq.nsmallest(TOP, alike.values(), key=rows_key)
    out = []
    for rank, mine in enumerate(largest, 1):
        group, row = sum_of(mine[0].record.name, mine), mine[0]
        r = row.record
        arithmetic = whole_sum((group.flops, group.flops_vector))
        judged = group.flops if group.flops or group.flops_vector is None else group.flops_vector
        out.append(
            TopOperation(
                rank=rank,
                name=r.name,
                layer_name=r.layer_name,
                phase=r.phase,
                direction=r.direction,
                shapes=r.input_shapes,
                dtype=r.dtype,
                count=group.count,
                flops=arithmetic,
                bytes=group.bytes,
                arithmetic_intensity=intensity(judged, group.bytes),
                estimated_us=group.estimated_us,
                measured_us=group.measured_us,
                efficiency=group.efficiency,
                bound=row.result.bound_type,
                flags=group.flags,
            )
        )
    return out
