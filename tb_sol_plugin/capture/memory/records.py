"""Records the memory of a process at one moment, as reported by its device and its allocator.

    record_base_memory("before the model")          # before there is a model, and again after init_process_group
    record_memory("after step 1", model, optimizer)

Records go into the capture file of the tracker that runs; those made before there is one are kept for the file of the next. Nothing here
raises, and no device is initialized for its sake.
"""

from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter_ns
from types import ModuleType, TracebackType
from typing import Final, Protocol, cast

from tb_sol_plugin.capture.current import current_tracker
from tb_sol_plugin.capture.loop.guard import Clock, log
from tb_sol_plugin.capture.loop.header import rank_of, value_or_none
from tb_sol_plugin.capture.loop.labels import NONE, Labels
from tb_sol_plugin.capture.loop.phases import ENDINGS, PhaseRange, PhaseStack, _Thread
from tb_sol_plugin.capture.memory.model_state import Part, Walk, walk
from tb_sol_plugin.capture.report.output import Output

MIB: Final = 1 << 20
TAG: Final = 200
"""Characters of a tag."""
MOST_WAITING: Final = 200
"""Records that wait for a tracker; the first are kept."""
BACKENDS: Final = ("cuda", "xpu")
"""Modules of torch whose devices have memory of their own; HIP is `cuda` too."""


@dataclass(frozen=True)
class MemoryRecord:
    """Has the memory of one device, in bytes; None is unknown.

    time_ns: since 1970. device: its index, None the host. total, device_used: of the device, by whatever process. process_used: by this
    process, as the driver says; on the host, the pages that it has in memory. allocated, reserved: by torch's allocator, now; max_…: at
    most. since: what the maxima cover: `process` (since it began, or somebody reset them), `iteration`.
    walk: what was found among parameters, gradients and the state of optimizers; None where nothing was walked.
    iteration: that the tracker was in, None without one. phase: name of the phase with the largest peak; phases: {name: (max_allocated,
    max_reserved)}; both only where peaks by phase were asked for. problem: why something is unknown, "" where all went well.
    """

    tag: str
    time_ns: int
    rank: int
    device: int | None
    total: int | None = None
    device_used: int | None = None
    process_used: int | None = None
    allocated: int | None = None
    reserved: int | None = None
    max_allocated: int | None = None
    max_reserved: int | None = None
    since: str = "process"
    walk: Walk | None = None
    iteration: int | None = None
    phase: str = ""
    phases: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    problem: str = ""
    monotonic_ns: int = field(default=0, repr=False, compare=False)

    @property
    def context(self) -> int | None:
        """Used on the device, but not by torch's allocator: the context, libraries, NCCL, and other processes."""
        return _less(self.device_used, self.reserved)

    @property
    def others(self) -> int | None:
        """Used on the device by other processes, where the driver reports what this one uses."""
        return None if self.device is None else _less(self.device_used, self.process_used)

    @property
    def parts(self) -> tuple[Part, ...]:
        return () if self.walk is None else self.walk.parts

    def bytes_of(self, category: str) -> int | None:
        """Bytes of storages of `params`, `buffers`, `grads`, `main_grads`, `master_weights`, `exp_avg`, `exp_avg_sq` or
        `other_optimizer`; None where it was not looked for."""
        return None if self.walk is None else self.walk.bytes_of(category)

    # The names under which Megatron's users know these two. MB is 2**20 bytes there.

    @property
    def Actual_Captured_Master_Weight_bytes(self) -> int | None:
        """FP32 master weights on this rank."""
        return None if self.walk is None else self.walk.master_weight_bytes

    @property
    def Actual_Captured_Master_Weight_MB(self) -> float | None:
        """The same in MiB."""
        return _mib(self.Actual_Captured_Master_Weight_bytes)

    @property
    def Actual_Captured_Main_Grad_Mem_bytes(self) -> int | None:
        """FP32 main gradients on this rank."""
        return None if self.walk is None else self.walk.main_grad_bytes

    @property
    def Actual_Captured_Main_Grad_Mem_MB(self) -> float | None:
        """The same in MiB."""
        return _mib(self.Actual_Captured_Main_Grad_Mem_bytes)


class Keeper(Protocol):
    """Is a tracker that runs and takes records."""

    def record_base_memory(self, tag: str) -> MemoryRecord: ...
    def record_memory(self, tag: str, model: object = None, optimizer: object = None) -> MemoryRecord: ...


class _State:
    def __init__(self) -> None:
        self.waiting: list[MemoryRecord] = []
        self.pid = os.getpid()


_state: Final = _State()


# --- What training code calls ---


def record_base_memory(tag: str) -> MemoryRecord:
    """Record what is in use on the current device. On the host alone, or before a device is in use, the record is one of the host.

    Call it before the model is made, and after `init_process_group`: what came in between is that of the communication.
    """
    keeper = _keeper()
    return keeper.record_base_memory(tag) if keeper is not None else _keep(moment(tag))


def record_memory(tag: str, model: object = None, optimizer: object = None) -> MemoryRecord:
    """Record the same, and what parameters, gradients and the state of optimizers take: read from the tensors, each byte once.

    model: one or several (list, dict); None: that of the tracker. optimizer: one, several, or what wraps them; None: that of the call
    before, or `model.optimizer`. Tensors are not kept. It takes a few µs per tensor.
    """
    keeper = _keeper()
    if keeper is not None:
        return keeper.record_memory(tag, model, optimizer)
    return _keep(walked(moment(tag), model, optimizer))


# --- Who takes them ---


def take_waiting() -> list[MemoryRecord]:
    """Return the records that were made before there was a tracker, and forget them."""
    waiting, _state.waiting = _state.waiting, []
    return waiting if _state.pid == os.getpid() else []


def _keeper() -> Keeper | None:
    return cast("Keeper | None", current_tracker())


def _keep(record: MemoryRecord) -> MemoryRecord:
    if _state.pid != os.getpid():
        _state.pid, _state.waiting = os.getpid(), []
    if len(_state.waiting) < MOST_WAITING:
        _state.waiting.append(record)
    return record


# --- Reading ---


def moment(tag: object, iteration: int | None = None) -> MemoryRecord:
    """Return the memory as it is now. Never raises."""
    when = time.time_ns(), time.perf_counter_ns()
    text = (value_or_none(lambda: str(tag)) or "")[:TAG]
    rank = (value_or_none(rank_of) or (0, 1))[0]
    values: dict[str, int | None] = {}
    device, problem = None, ""
    try:
        backend = backend_in_use()
        if backend is None:
            values = {"process_used": resident()}
        else:
            device = int(backend.current_device())
            values = _of_device(backend, device)
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"[:200]
        log.debug("SOL capture: memory", exc_info=error)
    return MemoryRecord(text, when[0], rank, device, iteration=iteration, problem=problem, monotonic_ns=when[1], **values)  # type: ignore[arg-type]


def walked(record: MemoryRecord, model: object, optimizer: object) -> MemoryRecord:
    """Return the record with the bytes of model and optimizer. Never raises."""
    try:
        return replace(record, walk=walk(model, optimizer))
    except Exception as error:
        log.debug("SOL capture: memory", exc_info=error)
        return replace(record, problem=f"{type(error).__name__}: {error}"[:200])


def backend_in_use() -> ModuleType | None:
    """Return torch.cuda or torch.xpu, if it has been initialized; None on the host alone."""
    torch = sys.modules.get("torch")
    for name in BACKENDS:
        backend = getattr(torch, name, None)
        if backend is not None and value_or_none(lambda backend=backend: bool(backend.is_available() and backend.is_initialized())):  # type: ignore[misc]
            return backend  # type: ignore[no-any-return]
    return None


def _of_device(backend: ModuleType, device: int) -> dict[str, int | None]:
    """Return the amounts of a device, each by itself: one whose query fails is unknown."""
    free, total = value_or_none(lambda: tuple(map(int, backend.mem_get_info(device)))) or (None, None)
    values = {
        "total": total,
        "device_used": _less(total, free),
        "allocated": value_or_none(lambda: int(backend.memory_allocated(device))),
        "reserved": value_or_none(lambda: int(backend.memory_reserved(device))),
        "max_allocated": value_or_none(lambda: int(backend.max_memory_allocated(device))),
        "max_reserved": value_or_none(lambda: int(backend.max_memory_reserved(device))),
    }
    own = value_or_none(lambda: _of_driver(backend, device))
    # A number below what the allocator has reserved is of another process that has our number outside of our container.
    return {**values, "process_used": own if own is not None and own >= (values["reserved"] or 0) else None}


def _of_driver(backend: ModuleType, device: int) -> int | None:
    """Return the bytes that this process uses on the device, by NVML where its bindings are installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    try:
        uuid = str(backend.get_device_properties(device).uuid)
        handle = nvml.nvmlDeviceGetHandleByUUID((uuid if uuid.startswith("GPU-") else f"GPU-{uuid}").encode())
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return next((int(one.usedGpuMemory) for one in running if one.pid == os.getpid() and one.usedGpuMemory), None)
    finally:
        nvml.nvmlShutdown()


def resident() -> int | None:
    """Return the bytes of this process in the memory of the host; None where the system has no /proc as Linux has."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _less(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a - b


def _mib(size: int | None) -> float | None:
    return None if size is None else size / MIB


# -- Memory in the course of a tracked run ---------------------------------------------------------------------------
# records at intervals where they are asked for, peaks by phase, and all of them in the file.


CONTAINERS: Final = ("ModuleList", "ModuleDict", "ParameterList", "ParameterDict")
"""Modules that are never called, so that none is inside of them on pages."""
HOST: Final = -1
AMOUNTS: Final = ("total", "device_used", "process_used", "allocated", "reserved", "max_allocated", "max_reserved", "context")
CAPTURED: Final = tuple(f"Actual_Captured_{what}_{unit}" for what in ("Master_Weight", "Main_Grad_Mem") for unit in ("MB", "bytes"))
"""Fields of a record that are written where they are known."""


class Peaks:
    """Measures the largest use of device memory by phase in one iteration. It resets torch's own peaks at every change of phase.

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
        """Begin an iteration. On the host there is nothing to do."""
        self.found = {}
        self._backend = backend_in_use()
        if self._backend is not None:
            self._backend.reset_peak_memory_stats()
            self.reset = True

    def credit(self, label: int) -> None:
        """Attribute the peak since the last call to that phase."""
        backend = self._backend
        if backend is None:
            return
        most = self.found.setdefault(label, [0, 0])
        most[0] = max(most[0], int(backend.max_memory_allocated()))
        most[1] = max(most[1], int(backend.max_memory_reserved()))
        backend.reset_peak_memory_stats()

    def end(self, label: int) -> dict[int, list[int]]:
        """End the iteration, and return the peaks by phase."""
        self.credit(label)
        found, self.found, self._backend = self.found, {}, None
        return found


class PeakPhases(PhaseStack):
    """Updates `peaks` whenever the innermost phase of the stack changes."""

    def __init__(self, labels: Labels, clock: Clock, peaks: Peaks, *, note: Callable[[str, str], None] | None = None) -> None:
        super().__init__(labels, clock, note=note)
        self.peaks = peaks

    def push(self, name: object, *, scoped: bool = False) -> int:
        peaks = self.peaks
        if peaks.on and self.open is self.runner:
            began = perf_counter_ns()
            peaks.credit(self.top)
            self.clock.own_ns += perf_counter_ns() - began
        return super().push(name, scoped=scoped)

    def _pop(self, own: _Thread, began: int) -> None:
        peaks = self.peaks
        if peaks.on and own.open is self.runner:
            peaks.credit(own.open[-1])
        super()._pop(own, began)


class PeakRange(PhaseRange):
    """Goes always through the stack of phases, which `PhaseRange` bypasses where it can."""

    __slots__ = ()

    def __enter__(self) -> None:
        try:
            self._depth = self._phases.push(self._name, scoped=True)
        except Exception as error:
            self._tracker.guard.failed("push_phase", error, vital=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if self._depth >= 0:
                self._phases.pop_to(self._depth)
            if kind is not None and self._depth <= 0 and not issubclass(kind, ENDINGS):
                self._tracker.unwound(kind)
        except Exception as problem:
            self._tracker.guard.failed("pop_phase", problem, vital=True)


class OptimizerRef:
    """Refers to the optimizer of the last call that named one, without keeping it alive."""

    def __init__(self) -> None:
        self._get: Callable[[], object] = _none

    def set(self, optimizer: object) -> None:
        """Take another one, unless it is None."""
        if optimizer is not None:
            self._get = weakly(optimizer)

    def get(self) -> object:
        """Return the optimizer as long as somebody keeps it; else None."""
        return self._get()


class MemoryTracking:
    """Makes the memory records of one tracker.

    on: records are made at intervals. every: iterations between those of the device; the walk is made where an iteration is reported.
    """

    def __init__(
        self, labels: Labels, clock: Clock, output: Output, optimizer: OptimizerRef, *, on: bool, every: int | None, peaks: Peaks | None
    ) -> None:
        self.on = on or bool(every) or peaks is not None
        self.every = every
        self.peaks = peaks
        self._labels, self._clock, self._output, self._optimizer = labels, clock, output, optimizer
        self._walked: int | None = None

    # --- The run ---

    def run_started(self, first: int, at: int) -> None:
        """Record what is in use before the first iteration, if records are made at intervals. first: its number; at: see `ended`."""
        if self.on and self._output.places.logdir is not None:
            self._write(replace(self.record("run start", walk=False), iteration=first), at, {})

    def run_ended(self, model: object, last: int | None) -> None:
        """Record what is in use, with the peak of the run and the optimizer, unless the last iteration has a record with these.

        last: its number, None where none ended. The optimizer is looked at as long as somebody keeps it.
        """
        if self.on and self._output.places.logdir is not None and last is not None and last != self._walked:
            self.keep(replace(self.record("run end", walk=True, model=model), iteration=last))

    # --- When ---

    def due(self, index: int, report: int) -> bool:
        """Return whether the iteration of that index ends with a record. report: iterations between reports."""
        return self.on and index % (self.every or report) == 0

    def quiet(self, index: int, report: int) -> int:
        """Return how many iterations from that one on end without a record."""
        every = self.every or report
        return 0 if index % every == 0 else every - index % every - (self.peaks is not None)

    def begin(self, index: int, report: int) -> None:
        """Begin the iteration of that index."""
        if self.peaks is not None and self.due(index, report):
            self.peaks.begin()

    def iteration_ended(self, number: int, at: int, *, index: int, report: int, reported: bool, model: object, phase: int) -> None:
        """Record the memory where that is due at the end of an iteration. index: of the iteration that follows; at: see `ended`."""
        if reported or self.due(index - 1, report):
            self.ended(number, at, walk=reported, model=model, phase=phase)
        self.begin(index, report)

    def ended(self, number: int, at: int, *, walk: bool, model: object, phase: int) -> None:
        """Take the record of iteration `number`, which ended at `at` on the recorder's clock. walk: with the optimizer. phase: label of the
        innermost open phase."""
        by_phase = self.peaks.end(phase) if self.peaks is not None and self.peaks.on else {}
        record = self._now("iteration", number)
        if by_phase:
            label = max(by_phase, key=lambda one: by_phase[one][0])
            most = {"max_allocated": by_phase[label][0], "max_reserved": max(pair[1] for pair in by_phase.values())}
            record = replace(record, since="iteration", phase=self._name(label), phases=self._named(by_phase), **most)  # type: ignore[arg-type]
        if walk:
            record = walked(record, model, self._optimizer.get())
            self._walked = number
        self._write(record, at, by_phase)

    # --- On request ---

    def record(self, tag: object, *, walk: bool, model: object = None, optimizer: object = None) -> MemoryRecord:
        """Return a record as of now, which is not yet written."""
        self._optimizer.set(optimizer)
        record = self._now(tag)
        return walked(record, model, optimizer if optimizer is not None else self._optimizer.get()) if walk else record

    def _now(self, tag: object, iteration: int | None = None) -> MemoryRecord:
        record = moment(tag, iteration)
        return replace(record, since="reset") if self.peaks is not None and self.peaks.reset else record

    def keep(self, record: MemoryRecord, *, own_ns: int | None = None) -> None:
        """Write it. own_ns: for how long the recorder's clock had stood still when it was made; None for as long as until now."""
        own = self._clock.own_ns if own_ns is None else own_ns
        self._write(record, record.monotonic_ns - self._clock.monotonic_ns - own, {})

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
        """Return labels of modules by name: those that their calls have, where each is called by the one around it."""
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
    """Return a function that returns the object while others keep it alive, and None after. Of lists and dicts, the elements."""
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
