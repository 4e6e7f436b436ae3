"""One step against its limits: totals, layers, functions, phases, and the operations that take longest.

Sums come before ratios: a group's estimate is the sum of its operations' least times, its efficiency the estimate of the timed work
over the time of that work.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.labels import NONE, Labels
from tb_sol_plugin.capture.operation_registry import BoundType, DataType, OpRecord, Shape
from tb_sol_plugin.capture.roofline import FLAGS, LAUNCH_BOUND_US, TOLERATED, Precision, RooflineResult, current_precision, roofline
from tb_sol_plugin.capture.step import StepRecord, TimeRow

UNATTRIBUTED: Final = "(unattributed)"
NO_PHASE: Final = "(no phase)"
TOP: Final = 50
EVENT: Final = "event"
CPU: Final = "cpu"
_COMPUTE: Final = BoundType.COMPUTE_BOUND


@dataclass(frozen=True)
class Group:
    """A sum over operations. count: calls. Times in µs, None unknown.

    flops: matrix class; flops_vector apart; None where no operation's is known. compute_us: the part of the estimate that arithmetic
    sets. share: of the total estimate. measured_us: all measured time; timed_us: the part of it whose work has an estimate, which is
    timed_estimate_us. unknown: calls without an estimate. flags: see `roofline.FLAGS`.
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
    counted, 0 in a sampled step.
    """

    iteration: int
    device: str
    total: Group
    layers: list[Group]
    functions: list[Group]
    phases: list[Group]
    top: list[TopOperation]
    step_us: float | None = None
    model_us: float | None = None
    hardware_us: float | None = None
    time_source: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()
    age: int = 0

    @property
    def mfu(self) -> float | None:
        """Model FLOP utilisation: matrix FLOP without recomputed work, over step time and peak."""
        return self.model_us / self.step_us if self.model_us is not None and self.step_us else None

    @property
    def hfu(self) -> float | None:
        """Hardware FLOP utilisation: as `mfu`, with recomputed work."""
        return self.hardware_us / self.step_us if self.hardware_us is not None and self.step_us else None


@dataclass(frozen=True)
class _Row:
    """A record and its roofline. measured_us: its own time, None where it has none that counts; comparable: with the estimate."""

    record: OpRecord
    result: RooflineResult
    measured_us: float | None
    comparable: bool

    @property
    def both(self) -> bool:
        """Whether its time can be set against its estimate."""
        return self.comparable and self.measured_us is not None and self.result.estimated_time_us is not None


def analyse(
    records: Iterable[OpRecord],
    step: StepRecord,
    spec: DeviceSpec | None,
    *,
    layer_times: Mapping[str, float | None] | None = None,
    phase_times: Mapping[str, float | None] | None = None,
    precision: Precision | None = None,
    reason: str = "",
) -> Analysis:
    """A sampled step.

    Records that carry a time of their own (CPU) are summed. Otherwise a phase has the time between its events, a layer that of the
    events around the forward calls of its modules, and the step the one between its own: layer_times and phase_times in µs by
    `OpRecord.layer_name` and phase, see `times_of_layers`, `times_of_phases`. precision: as now, without. reason: why spec is None.
    """
    precision = current_precision() if precision is None else precision
    records = list(records)
    own = any(r.measured_time_us is not None for r in records)
    compiled = step.compiled or any(r.compiled for r in records)
    source = CPU if own else EVENT if step.device_ns is not None or layer_times or phase_times else ""
    foreign = spec is not None and source == CPU and spec.vendor != CPU
    rows = [_row(r, spec, precision, timed=own and not r.compiled, comparable=not foreign) for r in records]
    total = _sum("total", rows)
    if source == EVENT and not compiled and step.device_ns is not None:
        total = _measured(total, step.device_ns / 1e3, total.estimated_us)
    whole = total.estimated_us
    layers = _groups(rows, lambda row: row.record.layer_type or UNATTRIBUTED)
    phases = _groups(rows, lambda row: row.record.phase or NO_PHASE)
    functions = _groups([row for row in rows if row.record.func_name], lambda row: row.record.func_name)
    if source == EVENT and not compiled:
        layers = _layers_by_events(layers, rows, layer_times or {})
        phases = _phases_by_events(phases, phase_times or {}, step.device_ns)
    notes = []
    if foreign and spec is not None:
        notes.append(f"times are those of the CPU and limits those of {spec.name}: no efficiency")
    if compiled:
        notes.append("compiled work was counted by running it eagerly for this step: its times are not those of the compiled model")
    return Analysis(
        iteration=step.iteration,
        device=spec.name if spec is not None else "",
        total=replace(total, share=1.0 if whole else None),
        layers=_sorted(layers.values(), whole),
        functions=_sorted(functions.values(), whole),
        phases=_sorted(phases.values(), whole),
        top=_top(rows),
        step_us=None if compiled else step.duration_ns / 1e3,
        model_us=_at_peak([row for row in rows if not row.record.is_recompute]),
        hardware_us=_at_peak(rows),
        time_source=source,
        reason="" if spec is not None else reason or "the limits of the device are not known",
        notes=tuple(notes),
    )


def carry(last: Analysis, step: StepRecord, *, phase_times: Mapping[str, float | None] | None = None) -> Analysis:
    """A step whose work was not counted, with the work of `last` (same sizes of the model's inputs) and its own times.

    Layers and functions, whose times were not measured, are left out.
    """
    total, phases = _untimed(last.total), {g.name: _untimed(g) for g in last.phases}
    source = EVENT if step.device_ns is not None or phase_times else ""
    if step.device_ns is not None:
        total = _measured(total, step.device_ns / 1e3, last.total.estimated_us)
    if source == EVENT:
        phases = _phases_by_events(phases, phase_times or {}, step.device_ns)
    return replace(
        last,
        iteration=step.iteration,
        total=total,
        layers=[],
        functions=[],
        phases=_sorted(phases.values(), last.total.estimated_us),
        top=[],
        step_us=step.duration_ns / 1e3,
        time_source=source,
        notes=(),
        age=step.iteration - last.iteration + last.age,
    )


# -- rows and sums -----------------------------------------------------------------------------------------------------


def _row(record: OpRecord, spec: DeviceSpec | None, precision: Precision, *, timed: bool, comparable: bool) -> _Row:
    measured = record.measured_time_us if timed else None
    result = roofline(record, spec, precision=precision)
    if not (timed and comparable) and result.efficiency is not None:
        result.efficiency = None
        result.flags = [flag for flag in result.flags if flag != "above_limit"]
    return _Row(record, result, measured if measured and measured > 0 else None, comparable)


def _known(values: Iterable[float | None]) -> float | None:
    """Sum of what is known, None where nothing is. Exact, so that it does not depend on the order."""
    known = [v for v in values if v is not None]
    return math.fsum(known) if known else None


def _whole(values: Iterable[int | None]) -> int | None:
    known = [v for v in values if v is not None]
    return sum(known) if known else None


def _sum(name: str, rows: Sequence[_Row]) -> Group:
    estimates = [row.result.estimated_time_us for row in rows]
    both = [row for row in rows if row.both]
    found = {flag for row in rows for flag in row.result.flags} - {"above_limit"}
    group = Group(
        name=name,
        count=sum(row.record.count for row in rows),
        flops=_whole(row.record.flops for row in rows),
        flops_vector=_whole(row.record.flops_vector for row in rows),
        bytes=_whole(row.record.bytes for row in rows),
        estimated_us=_known(estimates),
        compute_us=_known(0.0 if e is not None and r.result.bound_type is not _COMPUTE else e for r, e in zip(rows, estimates, strict=True)),
        measured_us=_known(row.measured_us for row in rows),
        timed_us=_known(row.measured_us for row in both),
        timed_estimate_us=_known(row.result.estimated_time_us for row in both),
        unknown=sum(row.record.count for row in rows if row.result.estimated_time_us is None),
    )
    return _flagged(group, found)


def _flagged(group: Group, found: Iterable[str]) -> Group:
    """The group with those flags, and the one of its own efficiency."""
    every = {*found} - {"above_limit"}
    if group.efficiency is not None and group.efficiency > TOLERATED:
        every.add("above_limit")
    return replace(group, flags=tuple(flag for flag in FLAGS if flag in every))


def _groups(rows: Iterable[_Row], name_of: Callable[[_Row], str]) -> dict[str, Group]:
    parts: dict[str, list[_Row]] = {}
    for row in rows:
        parts.setdefault(name_of(row), []).append(row)
    return {name: _sum(name, mine) for name, mine in parts.items()}


def _sorted(groups: Iterable[Group], whole: float | None) -> list[Group]:
    """Largest estimate first, else longest time, else most work; `(no phase)` last. With shares of the whole estimate."""
    shared = [replace(g, share=g.estimated_us / whole if whole and g.estimated_us is not None else None) for g in groups]
    return sorted(shared, key=lambda g: (g.name == NO_PHASE, *(-(v or 0) for v in (g.estimated_us, g.measured_us, g.flops, g.bytes)), g.name))


# -- time between events -----------------------------------------------------------------------------------------------


def _measured(group: Group, time_us: float, estimate: float | None, calls: int | None = None, flags: Iterable[str] = ()) -> Group:
    """The group with time between events around `calls` of its operations, whose least time is `estimate`."""
    calls = group.count if calls is None else calls
    short = {"launch_bound_timing"} if calls and time_us < LAUNCH_BOUND_US * calls else set()
    timed = replace(
        group, measured_us=time_us, timed_us=time_us if estimate is not None else None, timed_estimate_us=estimate if time_us > 0 else None
    )
    return _flagged(timed, {*group.flags, *short, *flags})


def _untimed(group: Group) -> Group:
    flags = {*group.flags} - {"launch_bound_timing", "forward_only", "eager_capture"}
    return _flagged(replace(group, measured_us=None, timed_us=None, timed_estimate_us=None), flags)


def _layers_by_events(layers: Mapping[str, Group], rows: Sequence[_Row], times: Mapping[str, float | None]) -> dict[str, Group]:
    """Layer types with the time of the forward calls of their modules, and the estimate of exactly the work inside these."""
    inside: dict[tuple[str, str], list[_Row]] = {}
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
            out[kind] = _measured(group, time, _known(row.result.estimated_time_us for row in work), calls, flags)
    return out


def _phases_by_events(
    phases: Mapping[str, Group], times: Mapping[str, float | None], device_ns: int | None
) -> dict[str, Group]:
    out = dict(phases)
    for name, time in _phase_times(times, device_ns).items():
        if name in out or name != NO_PHASE:
            group = out.get(name) or Group(name, 0)
            out[name] = _measured(group, time, group.estimated_us)
    return out


def _phase_times(times: Mapping[str, float | None], device_ns: int | None) -> dict[str, float]:
    """Known times; `(no phase)` has what the step lasted beyond all phases, where all are known."""
    known = {name: time for name, time in times.items() if time is not None}
    if device_ns is not None and len(known) == len(times):
        left = device_ns / 1e3 - math.fsum(known.values())
        if left > 0:
            known[NO_PHASE] = left
    return known


def times_of_layers(rows: Iterable[TimeRow], labels: Labels) -> dict[str, float | None]:
    """Device time in µs by name of the module, over all its calls; None where a call of it has none."""
    out: dict[str, float | None] = {}
    for label, time in _by_label(rows).items():
        _add(out, labels.known[label].name, time)
    return out


def times_of_phases(rows: Iterable[TimeRow], labels: Labels) -> dict[str, float | None]:
    """Device time in µs by phase, less that of the phases inside it; None where it is not known."""
    whole = _by_label(rows)
    inside: dict[int, float | None] = {}
    for label, time in whole.items():
        around = labels.known[label].parent
        if around != NONE:
            before = inside.get(around, 0.0)
            inside[around] = before + time if before is not None and time is not None else None
    out: dict[str, float | None] = {}
    for label, time in whole.items():
        part = inside.get(label, 0.0)
        own = time - part if time is not None and part is not None else None
        _add(out, labels.known[label].name, own if own is None or own >= 0 else None)
    return out


def _by_label(rows: Iterable[TimeRow]) -> dict[int, float | None]:
    out: dict[int, float | None] = {}
    for label, _, _, device_ns, _ in rows:
        before = out.get(label, 0.0)
        out[label] = before + device_ns / 1e3 if before is not None and device_ns is not None else None
    return out


def _add(out: dict[str, float | None], name: str, time: float | None) -> None:
    before = out.get(name, 0.0)
    out[name] = before + time if before is not None and time is not None else None


# -- single operations, utilisation ------------------------------------------------------------------------------------


def _at_peak(rows: Iterable[_Row]) -> float | None:
    """Time in µs of the matrix FLOP at the peak of each type; those without a peak are left out, None without any."""
    return _known(row.record.flops / row.result.peak_used * 1e6 for row in rows if row.record.flops and row.result.peak_used)


def _top(rows: Iterable[_Row]) -> list[TopOperation]:
    """The operations with the largest estimates (without limits: the longest); records that differ in function only are one."""
    alike: dict[tuple[object, ...], list[_Row]] = {}
    for row in rows:
        r = row.record
        shapes = tuple(map(tuple, r.input_shapes))
        alike.setdefault((r.name, r.layer_name, r.phase, r.direction, shapes, r.dtype, r.is_recompute, r.compiled), []).append(row)
    sums = sorted(
        ((_sum(mine[0].record.name, mine), mine[0]) for mine in alike.values()),
        key=lambda pair: tuple(-(v or 0) for v in (pair[0].estimated_us, pair[0].measured_us, pair[0].flops, pair[0].bytes)),
    )
    out = []
    for rank, (group, row) in enumerate(sums[:TOP], 1):
        r = row.record
        arithmetic = _whole((group.flops, group.flops_vector))
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
                arithmetic_intensity=judged / group.bytes if judged is not None and group.bytes else None,
                estimated_us=group.estimated_us,
                measured_us=group.measured_us,
                efficiency=group.efficiency,
                bound=row.result.bound_type,
                flags=group.flags,
            )
        )
    return out
