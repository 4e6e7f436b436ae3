"""Memory in the course of a tracked run: records at intervals where they are asked for, peaks by phase, and all of them in the file."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter_ns
from types import ModuleType, TracebackType
from typing import Final

from tb_sol_plugin.capture.clock import Clock
from tb_sol_plugin.capture.labels import NONE, Labels
from tb_sol_plugin.capture.memory_records import MemoryRecord, backend_in_use, moment, walked
from tb_sol_plugin.capture.memory_walk import Walk
from tb_sol_plugin.capture.output import Output
from tb_sol_plugin.capture.phase_range import ENDINGS, PhaseRange
from tb_sol_plugin.capture.phases import PhaseStack, _Thread

CONTAINERS: Final = ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict")
"""Modules that are never called, so that none is inside of them on pages."""
HOST: Final = -1
AMOUNTS: Final = ("total", "device_used", "process_used", "allocated", "reserved", "max_allocated", "max_reserved", "context")
CAPTURED: Final = tuple(f"Actual_Captured_{what}_{unit}" for what in ("Master_Weight", "Main_Grad_Mem") for unit in ("MB", "bytes"))
"""Fields of a record that are written where they are known."""


class Peaks:
    """Largest use of the device's memory by phase, in one iteration. It resets torch's own peaks, again and again.

    found: {label of the phase: [most allocated, most reserved]}, of the time in which it was the innermost one; NONE outside of all.
    reset: whether that has happened.
    """

    def __init__(self) -> None:
        self.found: dict[int, list[int]] = {}
        self.reset = False
        self._backend: ModuleType | None = None

    @property
    def on(self) -> bool:
        return self._backend is not None

    def begin(self) -> None:
        """An iteration begins. On the host there is nothing to do."""
        self.found = {}
        self._backend = backend_in_use()
        if self._backend is not None:
            self._backend.reset_peak_memory_stats()
            self.reset = True

    def credit(self, label: int) -> None:
        """What was reached since the last call was reached in that phase."""
        backend = self._backend
        if backend is None:
            return
        most = self.found.setdefault(label, [0, 0])
        most[0] = max(most[0], int(backend.max_memory_allocated()))
        most[1] = max(most[1], int(backend.max_memory_reserved()))
        backend.reset_peak_memory_stats()

    def end(self, label: int) -> dict[int, list[int]]:
        """The iteration ends; what was found."""
        self.credit(label)
        found, self.found, self._backend = self.found, {}, None
        return found


class PeakPhases(PhaseStack):
    """Phases that credit `peaks` whenever the innermost one changes."""

    peaks: Peaks | None = None

    def push(self, name: object, *, scoped: bool = False) -> int:
        peaks = self.peaks
        if peaks is not None and peaks.on and self.open is self.runner:
            began = perf_counter_ns()
            peaks.credit(self.top)
            self.clock.own_ns += perf_counter_ns() - began
        return super().push(name, scoped=scoped)

    def _pop(self, own: _Thread, began: int) -> None:
        peaks = self.peaks
        if peaks is not None and peaks.on and own.open is self.runner:
            peaks.credit(own.open[-1])
        super()._pop(own, began)


class PeakRange(PhaseRange):
    """A `with` block that leaves nothing out: that of most runs goes past the stack of phases where it can."""

    __slots__ = ()

    def __enter__(self) -> None:
        try:
            self._depth = self._phases.push(self._name, scoped=True)
        except Exception as error:
            self._tracker.boundary.failed("push_phase", error, vital=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._depth >= 0:
                self._phases.pop_to(self._depth)
            if kind is not None and self._depth <= 0 and not issubclass(kind, ENDINGS):
                self._tracker.unwound(kind)
        except Exception as problem:
            self._tracker.boundary.failed("pop_phase", problem, vital=True)


class MemoryTracking:
    """The records of one tracker.

    on: records are made at intervals. every: iterations between those of the device; the walk is made where an iteration is reported.
    """

    def __init__(self, labels: Labels, clock: Clock, output: Output, *, on: bool, every: int | None, peaks: Peaks | None) -> None:
        self.on = on or bool(every) or peaks is not None
        self.every = every
        self.peaks = peaks
        self._labels, self._clock, self._output = labels, clock, output
        self._optimizer: Callable[[], object] = _none

    def remember(self, optimizer: object) -> None:
        """The optimizer to walk from now on. It is not kept alive."""
        if optimizer is not None:
            self._optimizer = weakly(optimizer)

    def optimizer(self) -> object:
        """The one that is remembered, as long as somebody keeps it; else None."""
        return self._optimizer()

    # --- When ---

    def due(self, index: int, report: int) -> bool:
        """Whether the iteration of that index ends with a record. report: iterations between reports."""
        return self.on and index % (self.every or report) == 0

    def quiet(self, index: int, report: int) -> int:
        """How many iterations from that one on have nothing to do with memory."""
        every = self.every or report
        return 0 if index % every == 0 else every - index % every - (self.peaks is not None)

    def begin(self, index: int, report: int) -> None:
        """The iteration of that index begins."""
        if self.peaks is not None and self.due(index, report):
            self.peaks.begin()

    def ended(self, number: int, at: int, *, walk: bool, model: object, phase: int) -> None:
        """A record is due of iteration `number`, which ended at `at` on the recorder's clock. walk: with the optimizer. phase: label of the
        innermost open phase."""
        by_phase = self.peaks.end(phase) if self.peaks is not None and self.peaks.on else {}
        record = self._now("iteration", number)
        if by_phase:
            label = max(by_phase, key=lambda one: by_phase[one][0])
            most = {"max_allocated": by_phase[label][0], "max_reserved": max(pair[1] for pair in by_phase.values())}
            record = replace(record, since="iteration", phase=self._name(label), phases=self._named(by_phase), **most)  # type: ignore[arg-type]
        if walk:
            record = walked(record, model, self._optimizer())
        self._write(record, at, by_phase)

    # --- On request ---

    def record(self, tag: object, *, walk: bool, model: object = None, optimizer: object = None) -> MemoryRecord:
        """A record as of now, not yet kept."""
        self.remember(optimizer)
        record = self._now(tag)
        return walked(record, model, optimizer if optimizer is not None else self._optimizer()) if walk else record

    def _now(self, tag: object, iteration: int | None = None) -> MemoryRecord:
        record = moment(tag, iteration)
        return replace(record, since="reset") if self.peaks is not None and self.peaks.reset else record

    def keep(self, record: MemoryRecord, *, running: bool = True) -> None:
        """Write it. running: it was made while the tracker ran, whose clock stood still at times."""
        self._write(record, record.monotonic_ns - self._clock.monotonic_ns - (self._clock.own_ns if running else 0), {})

    def _write(self, record: MemoryRecord, time_ns: int, by_phase: Mapping[int, list[int]]) -> None:
        """Write it as of a time on the recorder's clock. by_phase: its `phases` by label."""
        if self._output.places.logdir is not None:
            self._output.memory(self._fields(record, time_ns, by_phase))

    def _fields(self, record: MemoryRecord, time_ns: int, by_phase: Mapping[int, list[int]]) -> dict[str, object]:
        device = HOST if record.device is None else record.device
        amounts = {name: getattr(record, name) for name in AMOUNTS}
        fields: dict[str, object] = {"kind": "memory", "tag": record.tag, "time_ns": time_ns, "device": device}
        fields |= {name: value for name, value in amounts.items() if value is not None} | {"since": record.since}
        if record.iteration is not None:
            fields["iteration"] = record.iteration
        if by_phase:
            fields["phase"] = max(by_phase, key=lambda one: by_phase[one][0])
            fields["phases"] = [[label, *most] for label, most in by_phase.items()]
        if record.walk is not None:
            label = self._modules(record.walk)
            fields["parts"] = [[p.category, p.dtype, label(p.module), p.device, p.tensors, p.bytes, p.view_bytes] for p in record.parts]
            fields |= {name: value for name in CAPTURED if (value := getattr(record, name)) is not None}
            if record.walk.left_out:
                fields["left_out"] = record.walk.left_out
        if record.problem:
            fields["problem"] = record.problem
        return fields

    # --- Names ---

    def _name(self, label: int) -> str:
        return "/".join(self._labels.path(label))

    def _named(self, by_phase: Mapping[int, list[int]]) -> dict[str, tuple[int, int]]:
        return {self._name(label): (most[0], most[1]) for label, most in by_phase.items()}

    def _modules(self, walk: Walk) -> Callable[[str], int]:
        """Labels of modules by name: those that their calls have, where each is called by the one around it."""
        classes = walk.classes
        root = next(iter(classes), "")
        known: dict[str, int] = {"": NONE}

        def label(name: str) -> int:
            if name not in known:
                above = name
                while True:
                    above = above.rpartition(".")[0]
                    if not above or (above in classes and classes[above] not in CONTAINERS):
                        break
                inside = above or (root if name != root and classes.get(root) == root else "")
                known[name] = self._labels.id_of("module", label(inside), name, classes.get(name, ""))
            return known[name]

        return label


def weakly(thing: object) -> Callable[[], object]:
    """Answers the thing as long as somebody else keeps it; None for what cannot be held so. Of lists and dicts, what is in them."""
    if isinstance(thing, (list, tuple)):
        inside = [weakly(one) for one in thing]
        return lambda: [one() for one in inside]
    if isinstance(thing, Mapping):
        return weakly(list(thing.values()))
    try:
        return weakref.ref(thing)
    except TypeError:
        return _none


def _none() -> object:
    return None
