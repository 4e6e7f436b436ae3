"""One step against its limits: totals, layers, functions, phases, and the operations that take longest.

Sums come before ratios: a group's estimate is the sum of its operations' least times, its efficiency the estimate of the timed work
over the time of that work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tb_sol_plugin.capture.device_specs import DeviceSpec
from tb_sol_plugin.capture.labels import Labels
from tb_sol_plugin.capture.operation_registry import BoundType, DataType, OpRecord, Shape
from tb_sol_plugin.capture.roofline import Precision

UNATTRIBUTED: Final = "(unattributed)"
NO_PHASE: Final = "(no phase)"
TOP: Final = 50
TimeRow = tuple[int, int, int, "int | None", int]
"""(label, start_ns, duration_ns, device_ns, count), see `format.TIME_ROW`."""


class Step(Protocol):
    """What is asked of a step record. device_ns: time on the device, None where no events were recorded."""

    @property
    def iteration(self) -> int: ...
    @property
    def duration_ns(self) -> int | None: ...
    @property
    def device_ns(self) -> int | None: ...


@dataclass(frozen=True)
class Group:
    """A sum over operations. count: calls. Times in µs, None unknown.

    flops: matrix class; flops_vector apart. compute_us: the part of the estimate that arithmetic sets. share: of the total estimate.
    timed_estimate_us: least time of exactly the work inside measured_us. unknown: calls without an estimate.
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
    timed_estimate_us: float | None = None
    unknown: int = 0
    flags: tuple[str, ...] = ()


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
    """What is known of one step. age: iterations since its work was counted, 0 in a sampled step. reason: why there are no limits."""

    iteration: int
    device: str
    total: Group
    layers: list[Group]
    functions: list[Group]
    phases: list[Group]
    top: list[TopOperation]
    step_us: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    time_source: str = ""
    reason: str = ""
    notes: tuple[str, ...] = ()
    age: int = 0


def analyse(
    records: Iterable[OpRecord],
    step: Step,
    spec: DeviceSpec | None,
    *,
    layer_times: Mapping[str, float | None] | None = None,
    phase_times: Mapping[str, float | None] | None = None,
    precision: Precision | None = None,
    reason: str = "",
) -> Analysis:
    """A sampled step. layer_times, phase_times: device time in µs by layer path and phase name (`times_of_layers`, `times_of_phases`)."""
    raise NotImplementedError


def carry(last: Analysis, step: Step, *, phase_times: Mapping[str, float | None] | None = None) -> Analysis:
    """A step whose work was not counted, with the work of `last` (same sizes of the model's inputs) and its own times."""
    raise NotImplementedError


def times_of_layers(rows: Sequence[TimeRow], labels: Labels) -> dict[str, float | None]:
    """Device time in µs by module name; None where a call of it has none."""
    raise NotImplementedError


def times_of_phases(rows: Sequence[TimeRow], labels: Labels) -> dict[str, float | None]:
    """Device time in µs by phase name, less that of the phases inside; None where it is not known."""
    raise NotImplementedError
