"""Compares one step with the limits of its device: totals, layers, functions, phases, the longest operations, and the scalars of all."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, TypeVar

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tb_sol_plugin.capture.loop.schedule import StepRecord, TimeRow
from tb_sol_plugin.capture.operation_registry import BoundType, DataType, OpRecord, Shape
from tb_sol_plugin.capture.roofline import Precision, current_precision
from tb_sol_plugin.capture.work.sums import (
    LAYERS,
    NO_PHASE,
    TOTAL,
    UNATTRIBUTED,
    FoldCache,
    Group,
    LazySequence,
    LedgerRows,
    Row,
    event_timed,
    folded,
    known_sum,
    size_key,
    sorted_groups,
    sum_of,
    untimed,
    whole_sum,
)
from tb_sol_plugin.format import COMPILED
from tb_sol_plugin.roofline import efficiency, intensity

# -- Times between device events, given to the groups whose work they enclose ----------------------------------------


K = TypeVar("K", bound=Hashable)


def layers_by_events(layers: Mapping[str, Group], rows: Sequence[Row], times: Mapping[str, float | None]) -> dict[str, Group]:
    """Gives layer types the time of the forward calls of their modules, and the estimate of exactly the work inside these."""
    inside: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.record.direction == "fwd" and times.get(row.record.layer_name) is not None:
            inside.setdefault((row.record.layer_type or UNATTRIBUTED, row.record.layer_name), []).append(row)
    out = dict(layers)
    for kind, group in layers.items():
        members = [(path, part) for (of, path), part in inside.items() if of == kind and kind != UNATTRIBUTED]
        if members:
            time = math.fsum(times[path] or 0.0 for path, _ in members)
            work = [row for _, part in members for row in part]
            calls = sum(row.record.count for row in work)
            flags = {"forward_only"} if calls < group.count else set()
            out[kind] = event_timed(group, time, known_sum(row.result.estimated_time_us for row in work), calls, flags)
    return out


def step_by_events(
    total: Group, phases: Mapping[str, Group], step: StepRecord, times: Mapping[str, float | None] | None
) -> tuple[Group, dict[str, Group]]:
    """Gives the total the time of the step, and phases their own times; phases with time and no operation are added."""
    if step.device_ns is not None:
        total = event_timed(total, step.device_ns / 1e3, total.estimated_us)
    times = times or {}
    out = dict(phases)
    every = {name: times.get(name) for name in (*times, *(p for p in phases if p != NO_PHASE))}
    for name, time in _phase_times(every, step.device_ns).items():
        if name in out or name != NO_PHASE:
            group = out.get(name) or Group(name, 0)
            out[name] = event_timed(group, time, group.estimated_us)
    return total, {name: group for name, group in out.items() if group.count or group.measured_us is not None}


def _phase_times(times: Mapping[str, float | None], device_ns: int | None) -> dict[str, float]:
    """Returns the known times; `(no phase)` has what the step lasted beyond all phases, where all are known."""
    out = {name: time for name, time in times.items() if time is not None}
    if device_ns is not None and len(out) == len(times):
        left = device_ns / 1e3 - math.fsum(out.values())
        if left > 0:
            out[NO_PHASE] = left
    return out


def times_of_layers(rows: Iterable[TimeRow], labels: Labels, layers: Collection[str]) -> dict[str, float | None]:
    """Computes the device time in µs of all calls of each of `layers` (`OpRecord.layer_name`), less that of other ones inside it.

    None where a call has no time. rows: of all modules; what lies inside a layer and is none itself belongs to the layer.
    """
    return _own_times(rows, labels, lambda name: name in layers)


def times_of_phases(rows: Iterable[TimeRow], labels: Labels) -> dict[str, float | None]:
    """Computes the device time in µs by phase, less that of the phases inside it; None where it is not known."""
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


TOP: Final = 50
EVENT: Final = "event"
CPU: Final = "cpu"


@dataclass(frozen=True)
class TopOperation:
    """Describes one of the operations with the largest estimates."""

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
    """Describes one step and how it compares with the limits.

    layers and phases sum to the total, functions are a second view of the same work. step_us: wall time of the step. model_us: time of
    its matrix FLOP at the peaks of their types, without work that is done again; hardware_us with it. time_source: cpu (each operation by
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
        """Model FLOP utilization: matrix FLOP over step time and peak, without work that is done again; attention's backward as twice
        its forward."""
        return efficiency(self.model_us, self.step_us)

    @property
    def hfu(self) -> float | None:
        """Hardware FLOP utilization: as `mfu`, with all work that ran: checkpoints, five products of a fused attention's backward."""
        return efficiency(self.hardware_us, self.step_us)


def analyze(
    records: Sequence[OpRecord],
    step: StepRecord,
    spec: DeviceSpec | None,
    *,
    layer_times: Mapping[str, float | None] | None = None,
    phase_times: Mapping[str, float | None] | None = None,
    precision: Precision | None = None,
    reason: str = "",
    counted: LedgerRows | None = None,
    cache: FoldCache | None = None,
) -> Analysis:
    """Analyzes a sampled step.

    Records that carry a time of their own (CPU) are summed. Otherwise a phase has the time between its events, a layer that of the
    events around the forward calls of its modules, and the step the one between its own: layer_times and phase_times in µs by
    `OpRecord.layer_name` and phase, see `times_of_layers`, `times_of_phases`. precision: as now, without. reason: why spec is None.
    counted: the rows of the ledger, one for each record; with cache, which knows the step before, records are left alone if that one did
    the same work.
    """
    precision = current_precision() if precision is None else precision
    own, compiled = _timed_and_compiled(records, step, counted)
    source = CPU if own else EVENT if step.device_ns is not None or layer_times or phase_times else ""
    comparable = spec is not None and (spec.vendor == CPU) == (source != EVENT)
    timed = own and not compiled
    if counted is None or cache is None:
        work = folded(records, spec, precision, timed=timed, comparable=comparable)
    else:
        work = cache.folded(counted, records, spec, precision, timed=timed, comparable=comparable)
    total, layers, functions, phases = work.groups[TOTAL]["total"], *work.groups[LAYERS:]
    if source == EVENT and not compiled and (comparable or spec is None):
        total, phases = step_by_events(total, phases, step, phase_times)
        layers = layers_by_events(layers, work.rows, layer_times or {})
    whole = total.estimated_us
    return Analysis(
        iteration=step.iteration,
        device=spec.name if spec is not None else "",
        total=replace(total, share=1.0 if whole else None),
        layers=sorted_groups(layers.values(), whole),
        functions=sorted_groups(functions.values(), whole),
        phases=sorted_groups(phases.values(), whole),
        top=LazySequence(lambda: _top(work.rows)),
        step_us=None if compiled else step.duration_ns / 1e3,
        model_us=work.model_us if comparable else None,
        hardware_us=work.hardware_us if comparable else None,
        time_source=source,
        reason="" if spec is not None else reason or "the limits of the device are not known",
        notes=_notes(spec, source, comparable=comparable, compiled=compiled),
    )


def _timed_and_compiled(records: Sequence[OpRecord], step: StepRecord, counted: LedgerRows | None) -> tuple[bool, bool]:
    """Return whether operations were timed singly, and whether some are of compiled models. counted: rows that are read in their place."""
    if counted is None:
        return any(r.measured_time_us is not None for r in records), step.compiled or any(r.compiled for r in records)
    return any(row[1] >= 0 for row in counted.values()), step.compiled or any(key[5] & COMPILED for key in counted)


def _notes(spec: DeviceSpec | None, source: str, *, comparable: bool, compiled: bool) -> tuple[str, ...]:
    notes = []
    if spec is not None and not comparable:
        other = "the GPU" if source == EVENT else "the CPU"
        notes.append(f"the limits are those of {spec.name}, the times those of {other}: no efficiency")
    if compiled:
        notes.append("compiled work was counted by running it eagerly for this step: its times are not those of the compiled model")
    return tuple(notes)


def carry(last: Analysis, step: StepRecord, *, phase_times: Mapping[str, float | None] | None = None) -> Analysis:
    """Analyzes a step whose work was not counted: the work of `last` (same sizes of the model's inputs), in its own times.

    Layers, functions and single operations, whose times were not measured, are left out.
    """
    last = last.reported
    total, phases = untimed(last.total), {g.name: untimed(g) for g in last.phases}
    source = EVENT if step.device_ns is not None or phase_times else ""
    if source == EVENT:
        total, phases = step_by_events(total, phases, step, phase_times)
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
    """Chooses the operations with the largest estimates (without limits: the longest); records that differ in function only are one."""
    alike: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        r = row.record
        shapes = repr(r.input_shapes)
        alike.setdefault((r.name, r.layer_name, r.phase, r.direction, shapes, r.dtype, r.is_recompute, r.compiled), []).append(row)
    largest = heapq.nsmallest(TOP, ((sum_of("", members), members[0]) for members in alike.values()), key=lambda found: size_key(found[0]))
    return [_top_operation(rank, group, row) for rank, (group, row) in enumerate(largest, 1)]


def _top_operation(rank: int, group: Group, row: Row) -> TopOperation:
    r = row.record
    judged = group.flops if group.flops or group.flops_vector is None else group.flops_vector
    return TopOperation(
        rank=rank,
        name=r.name,
        layer_name=r.layer_name,
        phase=r.phase,
        direction=r.direction,
        shapes=r.input_shapes,
        dtype=r.dtype,
        count=group.count,
        flops=whole_sum((group.flops, group.flops_vector)),
        bytes=group.bytes,
        arithmetic_intensity=intensity(judged, group.bytes),
        estimated_us=group.estimated_us,
        measured_us=group.measured_us,
        efficiency=group.efficiency,
        bound=row.result.bound_type,
        flags=group.flags,
    )


# -- The scalars and the four tables that a step is logged as: TensorBoard and Weights & Biases get the same ----------------------------


Cell: TypeAlias = "str | int | float | None"

GROUP_COLUMNS: Final = (
    "name", "count", "estimated_ms", "share_pct", "measured_ms", "efficiency_pct", "tflops", "memory_gb", "bound",
)  # fmt: skip
"""tflops: matrix FLOP / 1e12, a count; memory_gb: 1e9 bytes. None is unknown."""
TOP_COLUMNS: Final = (
    "rank", "name", "layer_name", "phase", "direction", "shapes", "dtype", "count", "flops", "bytes", "arithmetic_intensity",
    "estimated_us", "measured_us", "efficiency_pct", "bound", "flags",
)  # fmt: skip
"""flops, bytes: of all calls, matrix and vector FLOP together. flags: names separated by blanks, see `roofline.FLAGS`."""
AGE: Final = "sol/capture_age_iters"
LONGEST: Final = 200
"""Characters of a group's name in the name of a metric."""


def totals(sample: Analysis, device_ns: int | None) -> dict[str, float]:
    """Returns the scalars of the work of a step that did that of `sample`. device_ns: its time on the device, None where not measured."""
    total = untimed(sample.total)
    return _known(_totals(total if device_ns is None else event_timed(total, device_ns / 1e3, total.estimated_us)))


def _totals(total: Group) -> dict[str, float | None]:
    return {
        "sol/total_ops": total.count,
        "sol/total_tflops": _per(total.flops, 1e12),
        "sol/total_memory_gb": _per(total.bytes, 1e9),
        "sol/estimated_time_ms": _per(total.estimated_us, 1e3),
        "sol/measured_time_ms": _per(total.measured_us, 1e3),
        "sol/efficiency_pct": _percent(total.efficiency),
    }


def _known(found: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in found.items() if value is not None}


def scalars(analysis: Analysis) -> dict[str, float]:
    """Returns every scalar of the work of a step by name; what is not known is left out, never 0."""
    found = {**_totals(analysis.total), AGE: analysis.age}
    sections = (("sol_layer", analysis.layers), ("sol_func", analysis.functions), ("sol_phase", analysis.phases))
    for prefix, groups in sections:
        for group in groups:
            name = f"{prefix}/{' '.join(group.name.split())[:LONGEST]}"
            found[f"{name}/count"] = group.count
            found[f"{name}/estimated_ms"] = _per(group.estimated_us, 1e3)
            found[f"{name}/measured_ms"] = _per(group.measured_us, 1e3)
            found[f"{name}/efficiency_pct"] = _percent(group.efficiency)
    return _known(found)


def tables(analysis: Analysis) -> dict[str, tuple[tuple[str, ...], list[list[Cell]]]]:
    """Returns the four tables of the last sampled step by name: columns and rows."""
    analysis = analysis.reported
    return {
        "sol/by_layer_type": (GROUP_COLUMNS, _group_rows(analysis.layers)),
        "sol/by_function": (GROUP_COLUMNS, _group_rows(analysis.functions)),
        "sol/by_phase": (GROUP_COLUMNS, _group_rows(analysis.phases)),
        "sol/top_operations": (TOP_COLUMNS, [_top_row(operation) for operation in analysis.top]),
    }


def _group_rows(groups: Iterable[Group]) -> list[list[Cell]]:
    return [
        [
            group.name,
            group.count,
            _per(group.estimated_us, 1e3),
            _percent(group.share),
            _per(group.measured_us, 1e3),
            _percent(group.efficiency),
            _per(group.flops, 1e12),
            _per(group.bytes, 1e9),
            group.bound.value,
        ]
        for group in groups
    ]


def _top_row(operation: TopOperation) -> list[Cell]:
    return [
        operation.rank,
        operation.name,
        operation.layer_name,
        operation.phase,
        operation.direction,
        shapes_text(operation.shapes),
        operation.dtype.value,
        operation.count,
        operation.flops,
        operation.bytes,
        operation.arithmetic_intensity,
        operation.estimated_us,
        operation.measured_us,
        _percent(operation.efficiency),
        operation.bound.value,
        " ".join(operation.flags),
    ]


def shapes_text(shapes: Iterable[object], longest: int = 120) -> str:
    """Formats sizes as a person reads them: `[128, 64] [64]`; scalars and missing tensors are left out."""
    text = " ".join(str(list(shape)) for shape in shapes if isinstance(shape, list | tuple) and len(shape))
    return text if len(text) <= longest else text[: longest - 3] + "..."


def _per(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit


def _percent(ratio: float | None) -> float | None:
    return None if ratio is None else 100.0 * ratio
