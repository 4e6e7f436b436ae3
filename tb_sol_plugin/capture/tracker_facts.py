"""The side of a tracker that knows about the process: its device and limits, its rank, what the file's header tells, its profiler."""

from __future__ import annotations

import socket
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from tb_sol_plugin.capture.arguments import REPORT_INTERVAL
from tb_sol_plugin.capture.boundary import Boundary
from tb_sol_plugin.capture.clock import Clock
from tb_sol_plugin.capture.header import device_kind, groups_of, header, rank_of
from tb_sol_plugin.capture.memory_plan import PlanFacts
from tb_sol_plugin.capture.memory_tracking import MemoryTracking
from tb_sol_plugin.capture.nvtx import nvtx_usable
from tb_sol_plugin.capture.output import Output
from tb_sol_plugin.capture.phases import PhaseStack
from tb_sol_plugin.capture.schedule import Schedule
from tb_sol_plugin.capture.timing import EventPool, event_pool
from tb_sol_plugin.format import SUFFIX, file_name

if TYPE_CHECKING:
    from tb_sol_plugin.capture.device_specs import DeviceSpec
    from tb_sol_plugin.capture.profiling import DrivenProfiler
    from tb_sol_plugin.capture.watch import Watch

Sizes: TypeAlias = "int | Callable[[], int | None] | None"
"""Samples or tokens of an iteration on this rank: a number, a function asked at its end, None unknown."""


class Facts:
    """What the outputs of a tracker ask."""

    assume_sparsity: bool
    boundary: Boundary
    clock: Clock
    device: str
    memory: MemoryTracking
    models: list[object]
    output: Output
    phases: PhaseStack
    watch: Watch
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
            mode=self.watch.mode if self._schedule.every else "off",
            every_n_steps=self._schedule.every,
            time_source="cpu" if event_pool(kind) is None else "event",
            kind=kind,
            spec=self._limits()[0],
            ranks=self._ranks(),
            copies=self.watch.copies is not None,
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
            from tb_sol_plugin.capture.profiling import DrivenProfiler

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

        return self.boundary.attempt("sizes", ask, None)

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
