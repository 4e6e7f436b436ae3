"""The SOL tracker: counts the work of sampled iterations, times the phases of all, and has what it finds written and logged."""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from tb_sol_plugin.capture.hooks.module_names import models_in
from tb_sol_plugin.capture.loop import guard
from tb_sol_plugin.capture.loop.fast_path import FastPath
from tb_sol_plugin.capture.loop.guard import Clock, Guard, guarded
from tb_sol_plugin.capture.loop.header import compiled
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.phases import PhaseRange, PhaseStack
from tb_sol_plugin.capture.loop.schedule import REPORT_INTERVAL, Alike, Options, Schedule, StepRecord, read_arguments
from tb_sol_plugin.capture.loop.session import Facts, Parts, RecordsMemory, Sizes
from tb_sol_plugin.capture.loop.timing import EventPool, Pair
from tb_sol_plugin.capture.memory.plan import PlanFacts
from tb_sol_plugin.capture.memory.records import MemoryTracking, PeakPhases, PeakRange, Peaks, kept_by, take_waiting
from tb_sol_plugin.capture.operation_registry import OpRecord
from tb_sol_plugin.capture.report.output import NO_ROWS, Finished, Output, Places

if TYPE_CHECKING:
    from tb_sol_plugin.capture.device_specs import DeviceSpec
    from tb_sol_plugin.capture.hooks.instrument import Instrumentation
    from tb_sol_plugin.capture.loop.profiling import DrivenProfiler

Mode: TypeAlias = Literal["auto", "dispatch", "hooks"]
Profile: TypeAlias = Literal["off", "after_sampled"]

WAITING: Final = 2
"""Finished iterations that may wait for the device to pass their events; if there are more, the oldest is written without."""

_sampling: weakref.WeakSet[SOLTracker] = weakref.WeakSet()
"""Trackers that are in a sampled step; one at most."""


class SOLTracker(Parts, RecordsMemory, Facts):
    """Counts the work of sampled iterations, and times the phases of all.

    An iteration begins at `initialize`, at `clear` or `start_step`, and where the one before ended; it ends at `log_analysis` or `step`. In
    a sampled one (see `Schedule`) label hooks are on the model, functions carry labels and a dispatch mode counts; all of it is gone when
    the iteration ends. Outside of them only the phases and the iterations are timed. Nothing raises into training: what fails is counted,
    noted in the file and, if it goes on failing, switched off.

    device: whose limits to judge by, see `find_device`. mode: dispatch, hooks (the fallback), or auto. logdir: folder of the capture file;
    None: none is written. every_n_steps: 0 samples nothing; default: report_interval, which is 100. time_layers: in sampled iterations
    on a GPU, a pair of events per lowest module. profile: `after_sampled` traces the iteration after a sampled one, `traces` times at
    most; trace_stacks: with Python frames, without which a trace has no modules. tensorboard: True (a writer in logdir), False or a summary
    writer. console: reports as plain text (True), as tables where there is a terminal (rich), or none. rank: default that of the process.
    batch, tokens: see `Sizes`. copies: in sampled iterations, count copies between memories too.
    memory: record the memory in use at reports, with a walk over model and optimizer; memory_every: that of the device every so many
    iterations as well. memory_peaks: in these iterations, on a GPU, peaks by phase, for which torch's own peak statistics are reset.
    plan: sizes of the model and its layout, as the memory plan names them, where they do not stand in its configuration.

    hooks, patcher, ledger, phases: the parts. analysis: of the last iteration that has one.
    """

    def __init__(
        self,
        device: str = "auto",
        mode: Mode = "auto",
        *,
        logdir: str | None = None,
        every_n_steps: int | None = None,
        report_interval: int | None = None,
        assume_sparsity: bool = False,
        time_layers: bool = True,
        profile: Profile = "off",
        traces: int = 3,
        trace_stacks: bool = True,
        tensorboard: object = True,
        wandb: bool = True,
        console: bool | Literal["rich"] = True,
        rank: int | None = None,
        batch: Sizes = None,
        tokens: Sizes = None,
        first_iteration: int = 0,
        copies: bool = True,
        memory: bool = False,
        memory_every: int | None = None,
        memory_peaks: bool = False,
        optimizer: object = None,
        plan: Mapping[str, object] | None = None,
    ) -> None:
        if mode not in ("auto", "dispatch", "hooks"):
            raise ValueError(f"mode is auto, dispatch or hooks, not {mode!r}")
        if profile not in ("off", "after_sampled"):
            raise ValueError(f"profile is off or after_sampled, not {profile!r}")
        from tb_sol_plugin.capture.hooks.instrument import Instrumentation

        self.device, self.mode, self.assume_sparsity, self.time_layers = device, mode, assume_sparsity, time_layers
        self._rank, self._batch, self._tokens, self._wanted_profile = rank, batch, tokens, profile
        self._given_every, self._given_report = every_n_steps, report_interval
        me = weakref.proxy(self)  # the parts do not keep the tracker alive
        note: Callable[[str, str], None] = lambda code, text: me._note(code, text)
        self.off = False
        self._model: object = None
        self.models: list[object] = []
        self.labels, self.clock = Labels(), Clock()
        self.guard = Guard(note, lambda reason: me._give_up(reason))
        peaks = Peaks() if memory_peaks else None
        self.phases = (PeakPhases if memory_peaks else PhaseStack)(self.labels, self.clock, note=note)
        if isinstance(self.phases, PeakPhases):
            self.phases.peaks = peaks
        self._range = PeakRange if memory_peaks else PhaseRange
        self.output = Output(
            Places(None if logdir is None else os.fspath(logdir), tensorboard, wandb, console),
            self.guard,
            self.labels,
            first_rank=lambda: me._ranks()[0] == 0,
            header=lambda: me._header(),
            spec=lambda: me._limits(),
        )
        self.memory = MemoryTracking(self.labels, self.clock, self.output, on=memory, every=memory_every, peaks=peaks)
        self.memory.remember(optimizer)
        self._plan = PlanFacts()
        self._plan.tell(plan)
        self._inputs: list[tuple[int, int]] = []
        self.instrumentation: Instrumentation = Instrumentation(self.labels, self.clock, self.phases, mode, note, copies=copies)
        self._schedule = Schedule(0, report=REPORT_INTERVAL)
        self._traces, self._trace_stacks = traces, trace_stacks
        self._alike = Alike()
        self._profiler: DrivenProfiler | None = None
        self._events: EventPool | None = None
        self._kind = ""
        self._found: tuple[DeviceSpec | None, str] | None = None
        self._pid = os.getpid()
        self._busy = threading.Lock()
        self._running = self._began = False
        self._compiled = False
        self._next, self._stride = first_iteration, 1
        self._last: int | None = None
        self._start_ns = self._own_at_end = self._own_at_start = self._before_ns = 0
        self._whole: Pair | None = None
        self._waiting: deque[Finished] = deque()
        self._kept: Sequence[OpRecord] = []
        self._fast_path = FastPath(self.clock, self.phases, self._busy)
        guard.follow(self)

    # --- Start ---

    @guarded
    def initialize(self, model: object, args: object = None) -> None:
        """Track a model (or several, in a list or dict; None for work outside of modules) from now on.

        With the same models again this does nothing; with others, those are tracked in place of the ones before. args: parsed arguments
        of the script, see `add_sol_arguments`; what the constructor was told has precedence. With a timing_log_level of 0 in them
        nothing is tracked.
        """
        began, own = perf_counter_ns(), self.clock.own_ns
        models = list(models_in(model))
        if self._running and len(models) == len(self.models) and all(a is b for a, b in zip(models, self.models, strict=True)):
            return
        if not self._enter_alone():
            return
        try:
            self._long_way()
            if not self._running:
                said = read_arguments(args)
                if said.timing_log_level is not None and said.timing_log_level < 1:
                    return
                self._configure(said)
                self._plan.read_args(args)
            else:
                self._abandon()
                self._alike = Alike()
                self.output.forget()
                self._note("model", "another model is tracked from here on; the file's header tells of the first one")
            self._model, self.models = model, models
            self._compiled = compiled(models)
            self._find_events()
            if not self._running:
                kept_by(self)
                for record in take_waiting() if self.logdir is not None else ():
                    self.memory.keep(record, running=False)
                self._own_at_end = own
                self.guard.attempt("preload", lambda: self.output.preload(work=self._schedule.every > 0), None)
            self._running = self._began = True
            self._prepare()
            self._begin_after(began, own)
        finally:
            self._busy.release()

    def _configure(self, said: Options) -> None:
        interval = self._interval("report_interval", self._given_report or said.report_interval or REPORT_INTERVAL)
        every = interval if self._given_every is None else self._interval("every_n_steps", self._given_every)
        traces = self._traces if self._wanted_profile == "after_sampled" else 0
        self._schedule = Schedule(every, report=interval, traces=traces)
        places = self.output.places
        if places.logdir is None:
            places.logdir = said.logdir
        if self.device == "auto" and said.device:
            self.device = said.device
        if self._rank is None:
            self._rank = said.rank
        if traces and every == 1:
            self._note("profiler", "every iteration is sampled, so that none is left to trace")

    # --- Iterations ---

    def start_step(self, iteration: int | None = None) -> None:
        """Begin the iteration now: what happened since the end of the last one belongs to none. iteration: its number, if known."""
        try:
            if (iteration is None or iteration == self._fast_path.number) and self._fast_path.restart():
                return
        except Exception as error:
            self._fail_shortly("start_step", error)
        self._restart(iteration)

    def clear(self) -> None:
        """Drop what was captured of the current iteration, which begins anew. Hooks stay as they are."""
        self.start_step()

    @guarded
    def _restart(self, iteration: int | None) -> None:
        if not self._enter_alone():
            return
        began, own = perf_counter_ns(), self.clock.own_ns
        try:
            self._long_way()
            if iteration is not None:
                self._next = iteration
            self._kept = []
            if self._running:
                self.instrumentation.clear()
                if self._profiler is not None and self._profiler.running:
                    self._profiler.restart()
                self.phases.end_step(self.clock.now())
                self._begin_after(began, own)
        finally:
            self._busy.release()

    def step(self, loss: object = None, *, batch: int | None = None, tokens: int | None = None) -> None:
        """The iteration ends: `log_analysis` with the next number.

        loss: may be passed as to other loggers; it is left alone, since reading it would wait for the device. batch, tokens: samples
        and tokens of this iteration on this rank.
        """
        try:
            if self._fast_path.end(None, batch, tokens):
                return
        except Exception as error:
            return self._fail_shortly("step", error)
        self._end_of_iteration(None, True, batch, tokens)

    def log_analysis(self, iteration: int, clear: bool = True) -> None:
        """The iteration ends: analyse, write and log it under that number. The next one begins.

        clear: forget its operations; otherwise `records` keeps them until the next iteration ends.
        """
        try:
            if self._fast_path.end(iteration, None, None):
                return
        except Exception as error:
            return self._fail_shortly("log_analysis", error)
        self._end_of_iteration(iteration, clear, None, None)

    @guarded
    def _end_of_iteration(self, iteration: int | None, clear: bool, batch: int | None, tokens: int | None) -> None:
        if not self._running or not self._enter_alone():
            return
        try:
            self._long_way()
            clock = self.clock
            began, own = perf_counter_ns(), clock.own_ns
            end = began - clock.monotonic_ns - own
            if self._whole is not None:
                self._whole.stop()
            number = self._next if iteration is None else int(iteration)
            finished = self._end(number, end, batch, tokens)
            if self._last is not None and number > self._last:
                self._stride = number - self._last
            self._last, self._next = number, number + self._stride
            self._kept = [] if clear else finished.records
            if self._waiting or not finished.done():
                self._waiting.append(finished)
                self._write_waiting()
            else:
                self.output.finish(finished)
            if self.memory.on:
                self.guard.attempt("memory", lambda: self._record_due(number, end, finished.report), None)
            self._prepare()
            self._begin_after(began, own)  # where this one ended
            self._arm(finished.step, (batch, tokens))
        finally:
            self._busy.release()

    # --- The short way ---

    def _arm(self, like: StepRecord, given: tuple[int | None, int | None]) -> None:
        """Let iterations like the one that has ended end the short way, as many as nothing is due in. The next one has begun."""
        left = self._schedule.quiet()
        if left < 1 or self.instrumentation.on or like.sampled or self._events is not None or self._waiting or self._kept:
            return
        if self.memory.on:
            left = min(left, self.memory.quiet(self._schedule.index, self._schedule.report))
        if callable(self._batch) or callable(self._tokens) or (self._profiler is not None and self._profiler.running):
            return
        plain, writer, wandb = self.output.short_way(like)
        if not plain or not f"a{like.signature}".isalnum():
            return
        fast = self._fast_path
        fast.number, fast.stride, fast.start_ns = self._next, self._stride, self._start_ns
        fast.own_at_start, fast.own_at_end, fast.before_ns = self._own_at_start, self._own_at_end, self._before_ns
        fast.arm(left, writer, given=given, like=like, labels=self.labels, wandb=wandb)

    def _tell(self) -> None:
        """Tell the others what went the short way."""
        fast = self._fast_path
        if not fast.armed:
            return
        self._next, self._start_ns = fast.number, fast.start_ns
        self._own_at_start, self._own_at_end, self._before_ns = fast.own_at_start, fast.own_at_end, fast.before_ns
        if fast.ended:
            self._last = fast.last[0]
            self._schedule.index += fast.ended
            self.output.passed(fast.ended, fast.last_step(), fast.size)
            fast.ended = 0

    def _long_way(self) -> None:
        """What comes next is done by the tracker itself."""
        self._tell()
        self._fast_path.armed, self._fast_path.left = False, 0

    def _fail_shortly(self, part: str, error: Exception) -> None:
        self._fast_path.left = 0
        self.guard.failed(part, error, vital=True)

    def _end(self, number: int, end: int, batch: int | None, tokens: int | None) -> Finished:
        """Take everything off, and collect what the iteration left."""
        watch, schedule = self.instrumentation, self._schedule
        sampled = watch.on
        self._own_at_end = self.clock.own_ns
        inside = self._own_at_end - self._own_at_start
        if sampled:
            _sampling.discard(self)
            watch.leave()
        pending = self.phases.end_step(end)
        if self._profiler is not None and self._profiler.running:
            self.guard.attempt("profiler", lambda: self._stop_profiler(number), None)
        given = self._sizes(batch, self._batch), self._sizes(tokens, self._tokens)
        step = StepRecord(number, self._start_ns, max(0, end - self._start_ns), sampled=sampled, overhead_ns=inside)
        step.before_ns = self._before_ns
        rows, calls = NO_ROWS, []
        records: Sequence[OpRecord] = []
        if sampled:
            step.compiled = self._compiled = self._compiled or watch.hooks.saw_compiled
            seen = watch.collect(compiled=step.compiled)
            rows, calls, records = seen.rows, seen.calls, seen.records
            step.lost, step.copies = dict(seen.lost), seen.copies
            sizes = (given[0] or watch.sizes.samples, given[1] or watch.sizes.tokens)
            step.signature, step.batch, step.tokens = seen.signature, *sizes
            self._inputs = self._inputs or watch.sizes.ids
            self._alike.saw(seen.signature, given=given, sizes=sizes)
        else:
            step.signature, step.batch, step.tokens = self._alike.guess(given)
        report = schedule.reported(number, sampled=sampled)
        schedule.ended(sampled=sampled)
        return Finished(step, pending, calls, self._whole, self._events, rows, records, report, inside)

    def _write_waiting(self) -> None:
        waiting = self._waiting
        while waiting and (len(waiting) > WAITING or waiting[0].done()):
            self.output.finish(waiting.popleft())

    def _prepare(self) -> None:
        """Put in place what the next iteration needs."""
        schedule = self._schedule
        due = schedule.samples()
        schedule.owed = due
        if due:
            self._find_events()
            if len(_sampling):
                self._note("two_trackers", "another tracker counts this iteration; this one counts a later one")
            elif self.guard.attempt("watch", self._watch, False):
                _sampling.add(self)
                schedule.owed = False
        elif schedule.traced(compiled=self._compiled):
            self.guard.attempt("profiler", self._start_profiler, None)

    def _watch(self) -> bool:
        return self.instrumentation.enter(self._model, self.models, self._events, layers=self.time_layers)

    def _begin_after(self, began: int, own: int) -> None:
        """The next iteration begins. What went on since `began` (by `perf_counter_ns`, when the own work was `own`) was all own work."""
        self.clock.own_ns = own + perf_counter_ns() - began
        self._before_ns = self.clock.own_ns - self._own_at_end
        self._start()

    def _start(self) -> None:
        self._whole = self._events.started() if self._events is not None else None
        self._own_at_start = self.clock.own_ns
        self._start_ns = self.clock.now()
        self.phases.begin_step(self._start_ns)

    def unwound(self, kind: type[BaseException]) -> None:
        """An exception left the outermost phase: whoever catches it finds nothing of ours on the model. The next iteration is sampled."""
        if self.instrumentation.on and self.instrumentation.here():
            self._abandon()
            self._note("interrupted", f"a sampled iteration was given up after {kind.__name__}")

    def _abandon(self) -> None:
        """Take everything off in the middle of an iteration, which then counts as not sampled. Safe in any state."""
        self._schedule.owed |= self.instrumentation.on
        try:
            self.instrumentation.leave()
        finally:
            _sampling.discard(self)

    def _enter_alone(self) -> bool:
        """Keeps a second thread out: False if another thread, or this one in a signal handler, is at it already. Nobody ever waits."""
        if self._busy.acquire(blocking=False):
            return True
        self._note("threads", "two threads, or a signal, were about to end an iteration at once; the second was passed over")
        return False

    # --- The end ---

    @guarded
    def detach(self) -> None:
        """Take everything off the model and torch, and stop tracking; the iteration that runs is dropped. `initialize` starts again."""
        self._stop()

    def _stop(self) -> None:
        self._long_way()
        self._running = False
        self._abandon()
        if self._profiler is not None and self._profiler.running:
            self.guard.attempt("profiler", lambda: self._stop_profiler(None), None)

    def close(self) -> None:
        """Detach, write what waits, report the last sampled iteration, close the file. Never raises; a second call does nothing."""
        self.end(report=True)

    def end(self, *, report: bool) -> None:
        """Close, with or without a last report on the console."""
        if self.off:
            return
        self.off = True
        self.phases.on = False
        began = perf_counter_ns()
        try:
            self._stop()
            waiting = list(self._waiting)
            self._waiting.clear()
            if self._began:
                self.output.close(waiting, report=report, own=lambda: self.clock.own_ns - self._own_at_end + perf_counter_ns() - began)
            self._model, self.models = None, []
        except Exception as error:
            self.guard.failed("close", error, vital=False)

    def _give_up(self, reason: str) -> None:
        self._note("off", f"tracking was switched off: {reason}")
        self.end(report=False)

    def forked(self) -> None:
        """This process is a copy of the one that is tracked: nothing here is recorded or written."""
        self.off = True
        self.phases.on = False
        self.phases.events = None
        self._fast_path.armed, self._fast_path.left = False, 0
        self._abandon()

    def __enter__(self) -> SOLTracker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is not None and not self.off:
            self._note("interrupted", f"training ended with {kind.__name__}")
        self.end(report=kind is None)

    def __del__(self) -> None:
        if not getattr(self, "off", True):
            self.end(report=False)

    def __deepcopy__(self, memo: object) -> SOLTracker:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return type(None), ()


