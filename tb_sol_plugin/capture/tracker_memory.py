"""The side of a tracker that records memory: when it is asked to, and at the ends of iterations."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from time import perf_counter_ns

from tb_sol_plugin.capture.boundary import Boundary
from tb_sol_plugin.capture.clock import Clock
from tb_sol_plugin.capture.memory_records import MemoryRecord
from tb_sol_plugin.capture.memory_tracking import MemoryTracking
from tb_sol_plugin.capture.phases import PhaseStack
from tb_sol_plugin.capture.schedule import Schedule


class RecordsMemory:
    """Records of memory of a tracker; see `memory_records` for what they hold."""

    boundary: Boundary
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
                self.boundary.attempt("memory", lambda: self.memory.keep(record), None)
                self.clock.own_ns = own + perf_counter_ns() - began
            finally:
                self._busy.release()
        elif not self._running and not self.off:
            self.boundary.attempt("memory", lambda: self.memory.keep(record, running=False), None)
        return record

    def _record_due(self, number: int, end: int, reported: bool) -> None:
        """Memory at the end of an iteration, where that was asked for. The schedule is at the next one already."""
        index, report = self._schedule.index, self._schedule.report
        if reported or self.memory.due(index - 1, report):
            self.memory.ended(number, end, walk=reported, model=self._model, phase=self.phases.inheriting())
        self.memory.begin(index, report)
