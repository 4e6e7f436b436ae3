"""The side of a tracker that knows about the process: its device and limits, its rank, what the file's header tells, its profiler."""

from __future__ import annotations

import os
import socket
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter_ns
from typing import TYPE_CHECKING, TypeAlias

from tb_sol_plugin.capture.loop.guard import Clock, Guard
from tb_sol_plugin.capture.loop.header import device_kind, groups_of, header, rank_of
from tb_sol_plugin.capture.loop.phases import PhaseRange, PhaseStack, nvtx_usable
from tb_sol_plugin.capture.loop.schedule import REPORT_INTERVAL, Schedule
from tb_sol_plugin.capture.loop.timing import EventPool, event_pool
from tb_sol_plugin.capture.memory.plan import PlanFacts
from tb_sol_plugin.capture.memory.records import MemoryRecord, MemoryTracking
from tb_sol_plugin.capture.operation_registry import CapturedFunctionalOp, CapturedOp, OpRecord
from tb_sol_plugin.capture.report.output import Output
from tb_sol_plugin.format import SUFFIX, file_name

if TYPE_CHECKING:
    from tb_sol_plugin.capture.device_specs import DeviceSpec
    from tb_sol_plugin.capture.functional_patcher import FunctionalPatcher
    from tb_sol_plugin.capture.hooks.instrument import Instrumentation
    from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks
    from tb_sol_plugin.capture.loop.profiling import DrivenProfiler
    from tb_sol_plugin.capture.report.analysis import Analysis
    from tb_sol_plugin.capture.work.ledger import Ledger


Sizes: TypeAlias = "int | Callable[[], int | None] | None"
"""Samples or tokens of an iteration on this rank: a number, a function asked at its end, None unknown."""


class Facts:
    """What the outputs of a tracker ask."""

    assume_sparsity: bool
    guard: Guard
    clock: Clock
    device: str
    memory: MemoryTracking
    models: list[object]
    output: Output
    phases: PhaseStack
    instrumentation: Instrumentation
    _events: EventPool | None
    _found: tuple[DeviceSpec | None, str] | None
    _inputs: list[tuple[int, int]]
    _kind: str
    _plan: PlanFacts
    _profiler: DrivenProfiler | None
    _rank: int | None
    _schedule: Schedule
    _trace_stacks: bool

    @property
    def logdir(self) -> str | None:
        return self.output.places.logdir

    def _ranks(self) -> tuple[int, int]:
        rank, world = rank_of()
        return (rank, world) if self._rank is None else (self._rank, max(world, self._rank + 1))

    def _header(self) -> dict[str, object]:
        kind = device_kind(self.models)  # asked late: models may move to their device after `initialize`
        return header(
            self.clock,
            self.models,
            mode=self.instrumentation.mode if self._schedule.every else "off",
            every_n_steps=self._schedule.every,
            time_source="cpu" if event_pool(kind) is None else "event",
            kind=kind,
            spec=self._limits()[0],
            ranks=self._ranks(),
            copies=self.instrumentation.copies is not None,
            plan=self._planned(),
        )

    def _planned(self) -> dict[str, list[int | bool | str]]:
        """Sizes of the model and its layout, as far as they are certain."""
        if self._plan.unknown:
            self._note("plan", f"no fields of the memory plan, or no values for them: {', '.join(self._plan.unknown)}")
        groups, optimizer = groups_of(self.models), self.memory.optimizer()
        return self._plan.found(self.models, groups=groups, world=self._ranks()[1], optimizer=optimizer, inputs=self._inputs)

    def _limits(self) -> tuple[DeviceSpec | None, str]:
        if self._found is None:
            from tb_sol_plugin.capture.device_specs import find_device

            found = find_device(self.device, assume_sparsity=self.assume_sparsity, logdir=self.logdir or "", where=self._kind)
            for text in found.notes:
                self._note("device", text)
            self._found = found.spec, found.reason
        return self._found

    def _note(self, code: str, text: str, count: int = 1) -> None:
        self.output.note(code, text, count)

    def _start_profiler(self) -> None:
        if self._profiler is None:
            if self.logdir is None:
                self._schedule.traces = 0
                self._note("profiler", "there is no folder for traces; none is recorded")
                return
            from tb_sol_plugin.capture.loop.profiling import DrivenProfiler

            me = weakref.proxy(self)
            note: Callable[[str, str], None] = lambda code, text: me._note(code, text)
            self._profiler = DrivenProfiler(self.logdir, lambda: me._worker(), note, stacks=self._trace_stacks, memory=self.memory.on)
        if self._profiler.start(self._kind):
            self._schedule.traces -= 1

    def _stop_profiler(self, number: int | None) -> None:
        if self._profiler is not None:
            self._profiler.stop(number)

    def _worker(self) -> str:
        """`<host>_rank<rank>`, as the capture file is called."""
        return file_name(socket.gethostname(), self._ranks()[0], 0, 0).removesuffix(f"_0_0{SUFFIX}")

    def _sizes(self, given: int | None, otherwise: Sizes) -> int | None:
        if given is None and otherwise is None:
            return None

        def ask() -> int | None:
            found = given if given is not None else otherwise() if callable(otherwise) else otherwise
            return None if found is None else int(found)

        return self.guard.attempt("sizes", ask, None)

    def _interval(self, name: str, number: int) -> int:
        """A number of iterations; one that cannot be is noted, and the default is taken."""
        if number >= 0:
            return number
        self._note("interval", f"{name} is {number}, which is no number of iterations; {REPORT_INTERVAL} is taken instead")
        return REPORT_INTERVAL

    def _find_events(self) -> None:
        kind = device_kind(self.models)
        if kind != self._kind:
            self._kind, self._found = kind, None
            self._events = event_pool(kind)
        self.phases.events = self._events
        self.phases.nvtx = nvtx_usable()


# -- The side of a tracker that records memory -----------------------------------------------------------------------
# when it is asked to, and at the ends of iterations.


class RecordsMemory:
    """Records of memory of a tracker; see `memory_records` for what they hold."""

    guard: Guard
    clock: Clock
    memory: MemoryTracking
    phases: PhaseStack
    off: bool
    _busy: threading.Lock
    _model: object
    _next: int
    _pid: int
    _running: bool
    _schedule: Schedule

    def _enter_alone(self) -> bool:
        """Keeps a second thread out."""
        raise NotImplementedError

    def _long_way(self) -> None:
        """What comes next is done by the tracker itself."""
        raise NotImplementedError

    def record_base_memory(self, tag: str) -> MemoryRecord:
        """What is in use on the current device, now; see `memory_records`."""
        return self._record(tag, walk=False)

    def record_memory(self, tag: str, model: object = None, optimizer: object = None) -> MemoryRecord:
        """The same, with what the model (default: the tracked one) and its optimizer (default: that of the call before) hold."""
        return self._record(tag, walk=True, model=self._model if model is None else model, optimizer=optimizer)

    def keeps(self) -> bool:
        """Whether records of memory go here."""
        return self._running and not self.off and os.getpid() == self._pid

    def _record(self, tag: str, *, walk: bool, model: object = None, optimizer: object = None) -> MemoryRecord:
        began, own = perf_counter_ns(), self.clock.own_ns
        record = self.memory.record(tag, walk=walk, model=model, optimizer=optimizer)
        if self.keeps() and self._enter_alone():
            try:
                self._long_way()
                record = replace(record, iteration=self._next)
                self.guard.attempt("memory", lambda: self.memory.keep(record), None)
                self.clock.own_ns = own + perf_counter_ns() - began
            finally:
                self._busy.release()
        elif not self._running and not self.off:
            self.guard.attempt("memory", lambda: self.memory.keep(record, running=False), None)
        return record

    def _record_due(self, number: int, end: int, reported: bool) -> None:
        """Memory at the end of an iteration, where that was asked for. The schedule is at the next one already."""
        index, report = self._schedule.index, self._schedule.report
        if reported or self.memory.due(index - 1, report):
            self.memory.ended(number, end, walk=reported, model=self._model, phase=self.phases.inheriting())
        self.memory.begin(index, report)


# -- The side of a tracker that training code sees between its start and its end -------------------------------------
# parts, phases, and what was captured.


class Parts:
    """Parts of a tracker by their names, its phases, and its records. Nothing here raises into training."""

    guard: Guard
    output: Output
    phases: PhaseStack
    instrumentation: Instrumentation
    off: bool
    _kept: Sequence[OpRecord]
    _range: type[PhaseRange]

    def _tell(self) -> None:
        """Tell the others what went the short way."""
        raise NotImplementedError

    def unwound(self, kind: type[BaseException]) -> None:
        """An exception left the outermost phase."""
        raise NotImplementedError

    @property
    def hooks(self) -> LayerSOLHooks:
        return self.instrumentation.hooks

    @property
    def patcher(self) -> FunctionalPatcher:
        return self.instrumentation.patcher

    @property
    def ledger(self) -> Ledger:
        return self.instrumentation.ledger

    @property
    def analysis(self) -> Analysis | None:
        """Of the last iteration that was sampled, or did the same work as a sampled one. None before."""
        self.guard.attempt("analysis", self._tell, None)
        return self.guard.attempt("analysis", lambda: self.output.analysis, None)

    @property
    def sampled(self) -> bool:
        """Whether the work of the iteration that runs now is counted."""
        return self.instrumentation.on

    def push_phase(self, name: object) -> None:
        """Enter a phase; `/` in its name nests it on pages."""
        try:
            self.phases.push(name)
        except Exception as error:
            self.guard.failed("push_phase", error, vital=True)

    def pop_phase(self) -> None:
        """Leave the innermost phase. With none open this is noted once."""
        try:
            self.phases.pop()
        except Exception as error:
            self.guard.failed("pop_phase", error, vital=True)

    def phase(self, name: object) -> PhaseRange:
        """The phase of a `with` block, left also when an exception flies."""
        return self._range(self, self.phases, name)

    @property
    def records(self) -> list[OpRecord]:
        """The ledger of the iteration that runs, if it is sampled; else what the last one left, see `log_analysis`."""
        if self.instrumentation.on and self.ledger.rows:
            return self.guard.attempt("records", self.instrumentation.records, [])
        return list(self._kept)

    @property
    def captured_ops(self) -> list[CapturedOp]:
        """`records` summed up by supported layer."""
        return self.guard.attempt("records", lambda: self.hooks.records(self.records), [])

    @property
    def captured_functional_ops(self) -> list[CapturedFunctionalOp]:
        """`records` summed up by patched function."""
        return self.guard.attempt("records", lambda: self.patcher.records(self.records), [])
