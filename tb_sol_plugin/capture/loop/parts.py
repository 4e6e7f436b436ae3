"""Makes the parts of a tracker, each from the options and the parts that it needs."""

from __future__ import annotations

import gc
import os
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from tb_sol_plugin.capture.loop.guard import Clock, Guard
from tb_sol_plugin.capture.loop.header import Environment, HeaderMaker, TrackedModels
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.phases import PhaseRange, PhaseStack, profiler_active
from tb_sol_plugin.capture.loop.schedule import REPORT_INTERVAL, IterationSizes, Sampling, Schedule
from tb_sol_plugin.capture.memory.plan import PlanFacts
from tb_sol_plugin.capture.memory.records import MemoryTracking, OptimizerRef, PeakPhases, PeakRange, Peaks
from tb_sol_plugin.capture.report.output import Output, Places

if TYPE_CHECKING:
    import torch

    from tb_sol_plugin.capture.hooks.instrument import Instrumentation
    from tb_sol_plugin.capture.loop.guard import Guard
    from tb_sol_plugin.capture.loop.header import Environment
    from tb_sol_plugin.capture.loop.options import CaptureOptions
    from tb_sol_plugin.capture.loop.schedule import Schedule


# -- profiling -------------------------------------------------------------------------------------------------------
# A traced iteration is never a sampled one: a dispatch mode would show in the trace, and makes compiled models run eagerly.


_RANGE: Final = "SOL iteration, beginning {}"
_MARK: Final = b"SOL iteration, beginning "
_own: Final[weakref.WeakSet[torch.profiler.profile]] = weakref.WeakSet()
"""Profilers that were started here."""


class _Range(Protocol):
    def __enter__(self) -> object: ...
    def __exit__(self, kind: object, error: object, trace: object, /) -> object: ...


class DrivenProfiler:
    """Takes one trace at a time. `start` and `stop` belong outside of what is timed: starting the profiler takes a while.

    folder: of the capture file. stem: answers `<host>_rank<rank>` of that file. note: called with (code, text). stacks: record Python
    frames and with them the calls of modules, which a trace has from nowhere else. memory: record allocations too.
    """

    def __init__(
        self, folder: str, stem: Callable[[], str], note: Callable[[str, str], None], *, stacks: bool = True, memory: bool = False
    ) -> None:
        self._folder, self._stem, self._note, self._stacks, self._memory = folder, stem, note, stacks, memory
        self._profile: torch.profiler.profile | None = None
        self._range: _Range | None = None
        self._starts = 0
        self.written: list[str] = []

    @property
    def running(self) -> bool:
        return self._profile is not None

    def start(self, kind: str) -> bool:
        """Trace the iteration that begins now; False where another profiler is at work. kind: type of the device in use."""
        if profiler_active() or _other_profiler():
            self._note("profiler", "the script has a profiler of its own; no iteration is traced next to it")
            return False
        import torch.profiler

        activity = torch.profiler.ProfilerActivity
        device = getattr(activity, kind.upper(), None) if kind in ("cuda", "xpu") else None
        activities = [activity.CPU, *([device] if device is not None else [])]
        profile = torch.profiler.profile(activities=activities, record_shapes=True, with_stack=self._stacks, profile_memory=self._memory)
        _own.add(profile)
        profile.start()
        self._profile, self._starts = profile, 0
        self.restart()
        return True

    def restart(self) -> None:
        """Begin the iteration anew: its range starts now. Which range is the iteration's, under which number, is known at its end."""
        from torch.profiler import record_function

        self._close_range()
        self._starts += 1
        self._range = record_function(_RANGE.format(self._starts))
        self._range.__enter__()

    def _close_range(self) -> None:
        opened, self._range = self._range, None
        if opened is not None:
            opened.__exit__(None, None, None)

    def stop(self, number: int | None) -> None:
        """Stop, and write the trace of the iteration with that number; None: the iteration did not end, no trace is written."""
        profile, self._profile = self._profile, None
        if profile is None:
            return
        self._close_range()
        profile.stop()
        if number is None:
            return
        import gzip
        import tempfile

        os.makedirs(self._folder, exist_ok=True)
        path = os.path.join(self._folder, f"{self._stem()}.{time.time_ns()}.pt.trace.json.gz")
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".trace-") as place:
            plain, packed = os.path.join(place, "trace.json"), os.path.join(place, "trace.gz")
            profile.export_chrome_trace(plain)
            with open(plain, "rb") as source, gzip.open(packed, "wb", compresslevel=5) as target:
                for line in source:  # the profiler writes one field a line
                    target.write(self._renamed(line, number) if _MARK in line else line)
            os.replace(packed, path)
        self.written.append(path)

    def _renamed(self, line: bytes, number: int) -> bytes:
        """Return the line with the range of the iteration named as profilers name a step, and dropped beginnings named so."""
        for start in range(1, self._starts + 1):
            name = f"ProfilerStep#{number}" if start == self._starts else "before the iteration"
            line = line.replace(f'"{_RANGE.format(start)}"'.encode(), f'"{name}"'.encode())
        return line


def _other_profiler() -> bool:
    """Return whether the script has a profiler of its own, which may start at any of its own steps: two at once are an error in torch."""
    from torch.profiler import profile

    def found() -> bool:
        every = gc.get_objects()
        return profile in map(type, every) and any(type(one) is profile and one not in _own for one in every)

    if found():
        gc.collect()  # one without references is no profiler of the script
        return found()
    return False


class ProfilerTraces:
    """Traces iterations after a sampled one. torch.profiler is not imported before the first. stacks, memory: see `DrivenProfiler`."""

    def __init__(
        self, schedule: Schedule, environment: Environment, guard: Guard, note: Callable[[str, str], None], *, stacks: bool, memory: bool
    ) -> None:
        self._schedule, self._environment, self._guard, self._note = schedule, environment, guard, note
        self._stacks, self._memory = stacks, memory
        self._profiler: DrivenProfiler | None = None

    @property
    def running(self) -> bool:
        """Whether the iteration that runs is traced."""
        return self._profiler is not None and self._profiler.running

    def start(self) -> None:
        """Trace the iteration that begins now, where a folder is there for it. Never raises."""
        self._guard.attempt("profiler", self._start, None)

    def _start(self) -> None:
        environment = self._environment
        if self._profiler is None:
            if environment.logdir is None:
                self._schedule.traces = 0
                self._note("profiler", "there is no folder for traces; none is recorded")
                return
            self._profiler = DrivenProfiler(environment.logdir, environment.worker, self._note, stacks=self._stacks, memory=self._memory)
        if self._profiler.start(environment.kind):
            self._schedule.traces -= 1

    def restart(self) -> None:
        """Begin the traced iteration anew."""
        if self._profiler is not None and self._profiler.running:
            self._profiler.restart()

    def stop(self, number: int | None) -> None:
        """Write the trace of the iteration with that number; None drops it. Never raises."""
        profiler = self._profiler
        if profiler is not None and profiler.running:
            self._guard.attempt("profiler", lambda: profiler.stop(number), None)


@dataclass(frozen=True)
class Parts:
    """Has the parts of one tracker. phase_range: the class of its `with` blocks."""

    labels: Labels
    clock: Clock
    guard: Guard
    phases: PhaseStack
    phase_range: type[PhaseRange]
    schedule: Schedule
    tracked: TrackedModels
    environment: Environment
    plan: PlanFacts
    output: Output
    instrumentation: Instrumentation
    memory: MemoryTracking
    sampling: Sampling
    traces: ProfilerTraces
    sizes: IterationSizes


def make_parts(options: CaptureOptions, give_up: Callable[[str], None]) -> Parts:
    """Return the parts for these options. give_up: called with a sentence when tracking cannot go on."""
    from tb_sol_plugin.capture.hooks.instrument import Instrumentation  # which loads torch

    def note(code: str, text: str) -> None:
        """Write a remark. The output refers to parts that make remarks, so these do not keep it alive."""
        found = written()
        if found is not None:
            found.note(code, text)

    labels, clock, guard = Labels(), Clock(), Guard(note, give_up)
    schedule, tracked = Schedule(0, report=REPORT_INTERVAL), TrackedModels()
    peaks = Peaks() if options.memory_peaks else None
    make_phases = PhaseStack if peaks is None else partial(PeakPhases, peaks=peaks)
    phases: PhaseStack = make_phases(labels, clock, note=note)
    phases.on = options.phases
    places = Places(options.logdir, options.tensorboard, options.wandb, options.console)
    environment = Environment(options, places, tracked, phases, note)
    optimizer, plan = OptimizerRef(), PlanFacts()
    optimizer.set(options.optimizer)
    plan.add_given(options.plan)
    output = Output(
        places, guard, labels,
        first_rank=environment.is_first_rank, header=lambda: header.make(), spec=environment.limits,
    )  # fmt: skip
    written = weakref.ref(output)
    instrumentation = Instrumentation(labels, clock, phases, options.mode, note, copies=options.copies)
    header = HeaderMaker(clock, tracked, environment, schedule, instrumentation, plan=plan, optimizer=optimizer.get, note=note)
    memory = MemoryTracking(labels, clock, output, optimizer, on=options.memory, every=options.memory_every, peaks=peaks)
    return Parts(
        labels=labels,
        clock=clock,
        guard=guard,
        phases=phases,
        phase_range=PhaseRange if peaks is None else PeakRange,
        schedule=schedule,
        tracked=tracked,
        environment=environment,
        plan=plan,
        output=output,
        instrumentation=instrumentation,
        memory=memory,
        sampling=Sampling(
            instrumentation,
            schedule,
            tracked,
            environment,
            guard=guard,
            note=note,
            time_layers=options.time_layers,
            sample_random=options.sample_random,
        ),
        traces=ProfilerTraces(schedule, environment, guard, note, stacks=options.trace_stacks, memory=memory.on),
        sizes=IterationSizes(options.batch, options.tokens, guard),
    )
