"""One step against its limits: totals, layers, functions, phases, and the operations that take longest.

Sums come before ratios: a group's estimate is the sum of its operations' least times, its efficiency the estimate of the timed work
over the time of that work.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.group_times import layers_by_events, phases_by_events, times_of_layers, times_of_phases
from tb_sol_plugin.capture.groups import (
    NO_PHASE,
    UNATTRIBUTED,
    Group,
    Row,
    measured,
    rows_key,
    sorted_groups,
    sum_of,
    untimed,
    whole_sum,
)
from tb_sol_plugin.capture.operation_registry import BoundType, DataType, OpRecord, Shape
from tb_sol_plugin.capture.roofline import Precision, current_precision
from tb_sol_plugin.capture.step import StepRecord
from tb_sol_plugin.capture.tally import LAYERS, Counted, Later, Repeats, tally_of
from tb_sol_plugin.format import COMPILED

__all__ = ["NO_PHASE", "UNATTRIBUTED", "Analysis", "Group", "TopOperation", "analyse", "carry", "times_of_layers", "times_of_phases"]

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
        return self.model_us / self.step_us if self.model_us is not None and self.step_us else None

    @property
    def hfu(self) -> float | None:
        """Hardware FLOP utilisation: as `mfu`, with recomputed work."""
        return self.hardware_us / self.step_us if self.hardware_us is not None and self.step_us else None


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
                arithmetic_intensity=judged / group.bytes if judged is not None and group.bytes else None,
                estimated_us=group.estimated_us,
                measured_us=group.measured_us,
                efficiency=group.efficiency,
                bound=row.result.bound_type,
                flags=group.flags,
            )
        )
    return out
