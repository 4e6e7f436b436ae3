"""Counts the work of sampled iterations, times the phases of all, and has what it finds written and logged: the SOL tracker."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from time import perf_counter_ns
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal

from tb_sol_plugin.capture.current import make_current
from tb_sol_plugin.capture.loop.fast_path import FastPath, IterationTimes
from tb_sol_plugin.capture.loop.guard import follow, guarded
from tb_sol_plugin.capture.loop.options import CaptureOptions, Mode, Profile, Sizes
from tb_sol_plugin.capture.loop.parts import make_parts
from tb_sol_plugin.capture.loop.phases import PhaseRange
from tb_sol_plugin.capture.loop.schedule import REPORT_INTERVAL, ScriptOptions, SizePair, StepRecord, read_arguments
from tb_sol_plugin.capture.memory.records import MemoryRecord, take_waiting
from tb_sol_plugin.capture.operation_registry import CapturedFunctionalOp, CapturedOp, OpRecord
from tb_sol_plugin.capture.report.output import NO_ROWS, Finished

if TYPE_CHECKING:
    from tb_sol_plugin.capture.functional_patcher import FunctionalPatcher
    from tb_sol_plugin.capture.hooks.inputs import Seen
    from tb_sol_plugin.capture.layer_hooks import LayerSOLHooks
    from tb_sol_plugin.capture.report.analysis import Analysis
    from tb_sol_plugin.capture.work.ledger import Ledger

WATCHED: Final = 2
"""Iterations before the sizes of inputs are noted in those that are not sampled: who compiles or graphs a model does so before."""


class SOLTracker:
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
    batch, tokens: see `options.Sizes`. copies: in sampled iterations, count copies between memories too.
    sample_random: sample compiled models that draw random numbers too, which changes the numbers they draw (see `docs/capture.md`).
    memory: record the memory in use at reports, with a walk over model and optimizer; memory_every: that of the device every so many
    iterations as well. memory_peaks: in these iterations, on a GPU, peaks by phase, for which torch's own peak statistics are reset.
    plan: sizes of the model and its layout, as the memory plan names them, where they do not stand in its configuration.

    hooks, patcher, ledger, phases, output, memory: parts, see `loop/parts.py`. analysis: of the last iteration that has one.
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
        sample_random: bool = False,
        memory: bool = False,
        memory_every: int | None = None,
        memory_peaks: bool = False,
        optimizer: object = None,
        plan: Mapping[str, object] | None = None,
    ) -> None:
        self._build(
            CaptureOptions(
                device=device,
                mode=mode,
                logdir=logdir,
                every_n_steps=every_n_steps,
                report_interval=report_interval,
                assume_sparsity=assume_sparsity,
                time_layers=time_layers,
                profile=profile,
                traces=traces,
                trace_stacks=trace_stacks,
                tensorboard=tensorboard,
                wandb=wandb,
                console=console,
                rank=rank,
                batch=batch,
                tokens=tokens,
                first_iteration=first_iteration,
                copies=copies,
                sample_random=sample_random,
                memory=memory,
                memory_every=memory_every,
                memory_peaks=memory_peaks,
                optimizer=optimizer,
                plan=plan,
            )
        )

    @classmethod
    def of(cls, options: CaptureOptions) -> SOLTracker:
        """Return a tracker with these options."""
        tracker = cls.__new__(cls)
        tracker._build(options)
        return tracker

    def _build(self, options: CaptureOptions) -> None:
        self._options = replace(options, optimizer=None)  # which is not kept alive
        me = weakref.proxy(self)  # nor do the parts keep the tracker alive
        parts = make_parts(options, lambda reason: me._give_up(reason))
        self.mode, self.assume_sparsity, self.time_layers = options.mode, options.assume_sparsity, options.time_layers
        self.labels, self.clock, self.guard, self.phases = parts.labels, parts.clock, parts.guard, parts.phases
        self.instrumentation, self.output, self.memory = parts.instrumentation, parts.output, parts.memory
        self._schedule, self._tracked, self._environment, self._plan = parts.schedule, parts.tracked, parts.environment, parts.plan
        self._sampling, self._traces, self._sizes, self._range = parts.sampling, parts.traces, parts.sizes, parts.phase_range
        self._busy = threading.Lock()
        self._inputs, self._graphed = parts.inputs, parts.graphed
        self._fast_path = FastPath(
            self.clock, self.phases, self._busy, self._inputs.seen, first=options.first_iteration, drain=lambda: me._drain()
        )
        self._times: IterationTimes = self._fast_path
        self._pid = os.getpid()
        self.off = self._running = self._began = self._by_inputs = False
        self._kept: Sequence[OpRecord] = []
        follow(self)

    # --- Start ---

    @guarded
    def initialize(self, model: object, args: object = None) -> None:
        """Track a model (or several, in a list or dict; None for work outside of modules) from now on.

        With the same models again this does nothing; with others, those are tracked in place of the ones before. args: parsed arguments
        of the script, see `add_sol_arguments`; arguments of the constructor have precedence. With a timing_log_level of 0 in them
        nothing is tracked.
        """
        began, own = perf_counter_ns(), self.clock.own_ns
        if (self._running and self._tracked.same(model)) or not self._enter_alone():
            return
        try:
            self._leave_fast_path()
            if not self._running:
                script = read_arguments(args)
                if script.timing_log_level is not None and script.timing_log_level < 1:
                    return
                self._configure(script)
                self._plan.read_args(args)
            else:
                self._sampling.abandon()
                self._inputs.remove()
                self._sizes.forget()
                self.output.forget()
                self._note("model", "another model is tracked from here on; the file's header describes the first one")
            self._tracked.set(model)
            self._environment.find_events()
            if not self._running:
                make_current(self)
                for record in take_waiting() if self.logdir is not None else ():
                    self.memory.keep(record, own_ns=0)
                at = began - self.clock.monotonic_ns - own
                self.guard.attempt("memory", lambda: self.memory.run_started(self._times.number, at), None)
                self._times.own_at_end = own
                self.guard.attempt("preload", lambda: self.output.preload(work=self._schedule.every > 0), None)
            self._running = self._began = True
            self._graphed.watch()
            self._prepare()
            self._begin_after(began, own)
        finally:
            self._busy.release()

    def _configure(self, script: ScriptOptions) -> None:
        """Set the intervals, and what else the constructor left open, by the script's arguments."""
        options = self._options
        interval = self._interval("report_interval", options.report_interval or script.report_interval or REPORT_INTERVAL)
        every = interval if options.every_n_steps is None else self._interval("every_n_steps", options.every_n_steps)
        traces = options.traces if options.profile == "after_sampled" else 0
        self._schedule.restart(every, report=interval, traces=traces)
        self._environment.take(script)
        if traces and every == 1:
            self._note("profiler", "every iteration is sampled, so that none is left to trace")

    def _interval(self, name: str, number: int) -> int:
        """Return a number of iterations; one that cannot be is noted, and the default is taken."""
        if number >= 0:
            return number
        self._note("interval", f"{name} is {number}, which is no number of iterations; {REPORT_INTERVAL} is taken instead")
        return REPORT_INTERVAL

    # --- Iterations ---

    def start_step(self, iteration: int | None = None) -> None:
        """Begin the iteration now: what happened since the end of the last one belongs to none. iteration: its number, if known."""
        try:
            fast = self._fast_path
            if (iteration is None or iteration == fast.number) and fast.restart():
                return
        except Exception as error:
            self._fail_fast("start_step", error)
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
            self._leave_fast_path()
            if iteration is not None:
                self._times.number = iteration
            self._kept = []
            if self._running:
                self.instrumentation.clear()
                self._inputs.seen.clear()
                self._traces.restart()
                self.phases.end_step(self.clock.now())
                self._begin_after(began, own)
        finally:
            self._busy.release()

    def step(self, loss: object = None, *, batch: int | None = None, tokens: int | None = None) -> None:
        """End the iteration: `log_analysis` with the next number.

        loss: may be passed as to other loggers; it is left alone, since reading it would wait for the device. batch, tokens: samples
        and tokens of this iteration on this rank.
        """
        try:
            if self._fast_path.end(None, batch, tokens):
                return
        except Exception as error:
            return self._fail_fast("step", error)
        self._end_of_iteration(None, True, batch, tokens)

    def log_analysis(self, iteration: int, clear: bool = True) -> None:
        """End the iteration: analyze, write and log it under that number. The next one begins.

        clear: forget its operations; otherwise `records` keeps them until the next iteration ends.
        """
        try:
            if self._fast_path.end(iteration, None, None):
                return
        except Exception as error:
            return self._fail_fast("log_analysis", error)
        self._end_of_iteration(iteration, clear, None, None)

    @guarded
    def _end_of_iteration(self, iteration: int | None, clear: bool, batch: int | None, tokens: int | None) -> None:
        if not self._running or not self._enter_alone():
            return
        try:
            clock = self.clock
            began, own = perf_counter_ns(), clock.own_ns
            self._leave_fast_path()
            end = began - clock.monotonic_ns - own
            if self._times.whole is not None:
                self._times.whole.stop()
            number = self._times.number if iteration is None else int(iteration)
            finished = self._end(number, end, batch, tokens)
            seen = self._inputs.seen.copy()
            self._inputs.seen.clear()
            self._times.advance(number)
            self._kept = [] if clear else finished.records
            self._write(finished)
            if self.memory.on:
                self.guard.attempt("memory", lambda: self._record_memory_at_end(number, end, finished.report), None)
            self._prepare()
            self._begin_after(began, own)  # where this one ended
            self._arm(finished.step, (batch, tokens), seen)
        finally:
            self._busy.release()

    def _end(self, number: int, end: int, batch: int | None, tokens: int | None) -> Finished:
        """Take everything off, and collect what the iteration left."""
        times, sampling, schedule = self._times, self._sampling, self._schedule
        sampled = sampling.on
        times.own_at_end = self.clock.own_ns
        inside = times.own_at_end - times.own_at_start
        if sampled:
            sampling.leave()
        pending = self.phases.end_step(end)
        self._traces.stop(number)
        given = self._sizes.given(batch, tokens)
        step = StepRecord(number, times.start_ns, max(0, end - times.start_ns), sampled=sampled, overhead_ns=inside)
        step.before_ns = times.before_ns
        rows, calls = NO_ROWS, []
        records: Sequence[OpRecord] = []
        if sampled:
            found = sampling.collect()
            rows, calls, records = found.rows, found.calls, found.records
            step.compiled, step.lost, step.copies = self._tracked.compiled, dict(found.lost), found.copies
            seen = self.instrumentation.sizes
            sizes = (given[0] or seen.samples, given[1] or seen.tokens)
            step.signature, step.batch, step.tokens = found.signature, *sizes
            step.evaluation_ns = seen.evaluation_ns
            step.unlike = schedule.evaluated(step.evaluation_ns > 0)
            self._sizes.signatures.add(found.signature, given=given, sizes=sizes)
            self._by_inputs = bool(seen.signature)
        else:
            step.signature, step.batch, step.tokens = self._inputs_of(given)
        report = schedule.reported(number, sampled=sampled)
        schedule.ended(sampled=sampled)
        return Finished(step, pending, calls, times.whole, self._environment.events, rows, records, report, inside)

    def _inputs_of(self, given: SizePair) -> tuple[str, int | None, int | None]:
        """Return signature, samples and tokens of an iteration that was not sampled. One of unseen sizes has the next one sampled."""
        signatures, watch = self._sizes.signatures, self._inputs
        if not watch.on or not self._by_inputs:
            return signatures.guess(given)
        signature, samples, tokens = self.guard.attempt("inputs", watch.inputs, None) or ("", None, None)
        if signature and not signatures.sampled(signature):
            self._schedule.unseen()
        return signature, given[0] or samples, given[1] or tokens

    def _write(self, finished: Finished) -> None:
        """Write the iteration, in its turn, when the device has passed its events."""
        self._fast_path.waiting.append(finished)
        self.output.finish_those_done(self._fast_path.waiting)

    def _prepare(self) -> None:
        """Put in place what the next iteration needs."""
        tracked, watch, schedule = self._tracked, self._inputs, self._schedule
        compiled = tracked.compiled or bool(tracked.around)
        if not self._sampling.begin() and schedule.traced(compiled=compiled):
            self._traces.start()
        if watch.on and compiled:
            watch.remove()
        elif not watch.on and not compiled and schedule.index >= WATCHED and schedule.every > 1:
            self.guard.attempt("inputs", lambda: watch.attach(tracked.models), None)

    def _begin_after(self, began: int, own: int) -> None:
        """Begin the next iteration. All since `began` (by `perf_counter_ns`, when the own work was `own`) was own work."""
        clock, times, events = self.clock, self._times, self._environment.events
        clock.own_ns = own + perf_counter_ns() - began
        times.before_ns = clock.own_ns - times.own_at_end
        times.whole = events.started() if events is not None else None
        times.own_at_start = clock.own_ns
        times.start_ns = clock.now()
        self.phases.begin_step(times.start_ns)

    def unwound(self, kind: type[BaseException]) -> None:
        """Abandon a sampled iteration whose outermost phase an exception has left. The next iteration is sampled."""
        self._sampling.unwound(kind)

    def _enter_alone(self) -> bool:
        """Keep a second thread out: False if another thread, or this one in a signal handler, is at it already. Nobody ever waits."""
        if self._busy.acquire(blocking=False):
            return True
        self._note("threads", "two threads, or a signal, were about to end an iteration at once; the second was passed over")
        return False

    def _note(self, code: str, text: str, count: int = 1) -> None:
        self.output.note(code, text, count)

    # --- The fast path ---

    def _arm(self, like: StepRecord, given: SizePair, seen: list[Seen]) -> None:
        """Let iterations like the one that has ended take the fast path, as many as nothing is due in. The next one has begun.

        seen: the inputs of the one that has ended.
        """
        schedule = self._schedule
        left = schedule.until_due()
        if left < 1 or self._sampling.on or like.sampled or self._kept:
            return
        if self.memory.on:
            left = min(left, self.memory.quiet(schedule.index, schedule.report))
        if self._sizes.by_function or self._traces.running:
            return
        plain, writer, logged = self.output.fast_path(like)
        if plain and f"a{like.signature}".isalnum():
            self._fast_path.arm(left, writer, given=given, like=like, expected=seen, labels=self.labels, logged=logged)

    def _settle(self) -> None:
        """Let the other parts know of the iterations that took the fast path."""
        fast = self._fast_path
        self._schedule.index += fast.ended
        fast.ended = 0
        if fast.written:
            self.output.count_fast(fast.written, fast.last_step(), fast.size)
            fast.written = 0

    def _drain(self) -> None:
        """Write what waited for the device before iterations took the fast path, which goes on."""
        fast = self._fast_path
        self._settle()
        self.output.finish_those_done(fast.waiting)
        plain, writer, logged = self.output.fast_path(fast.last_step())
        fast.log(writer, logged)
        if not plain:
            fast.left = 0

    def _leave_fast_path(self) -> None:
        self.guard.attempt("file", self._fast_path.write_all, None)
        self._settle()
        self._fast_path.hand_over()

    def _fail_fast(self, part: str, error: Exception) -> None:
        self._fast_path.left = 0
        self.guard.failed(part, error, vital=True)

    # --- Memory ---

    def record_base_memory(self, tag: str) -> MemoryRecord:
        """Record what is in use on the current device, now; see `capture/memory/records.py`."""
        return self._record(tag, walk=False)

    def record_memory(self, tag: str, model: object = None, optimizer: object = None) -> MemoryRecord:
        """Record the same, with the bytes of the model (default: the tracked one) and its optimizer (default: that of the call before)."""
        return self._record(tag, walk=True, model=self._tracked.given if model is None else model, optimizer=optimizer)

    def keeps(self) -> bool:
        """Return whether phases of this process, and records of its memory, go here."""
        return self._running and not self.off and os.getpid() == self._pid

    def _record(self, tag: str, *, walk: bool, model: object = None, optimizer: object = None) -> MemoryRecord:
        began, own = perf_counter_ns(), self.clock.own_ns  # below, the clock stands still from `began` on
        record = self.memory.record(tag, walk=walk, model=model, optimizer=optimizer)
        if self.keeps() and self._enter_alone():
            try:
                self._leave_fast_path()
                record = replace(record, iteration=self._times.number)
                self.guard.attempt("memory", lambda: self.memory.keep(record, own_ns=own + record.monotonic_ns - began), None)
                self.clock.own_ns = own + perf_counter_ns() - began
            finally:
                self._busy.release()
        elif not self._running and not self.off:
            self.guard.attempt("memory", lambda: self.memory.keep(record, own_ns=0), None)
        return record

    def _record_memory_at_end(self, number: int, end: int, reported: bool) -> None:
        index, report = self._schedule.index, self._schedule.report
        self.memory.iteration_ended(
            number, end, index=index, report=report, reported=reported, model=self._tracked.given, phase=self.phases.inheriting()
        )

    # --- Phases, parts, and what was captured; nothing raises into training ---

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
        """Return the phase of a `with` block, which is left also when an exception is raised in it."""
        return self._range(self, self.phases, name)

    @property
    def device(self) -> str:
        return self._environment.device

    @property
    def logdir(self) -> str | None:
        return self._environment.logdir

    @property
    def first_rank(self) -> bool:
        """Whether this process logs metrics."""
        return self._environment.is_first_rank()

    @property
    def models(self) -> list[object]:
        return self._tracked.models

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
    def sampled(self) -> bool:
        """Whether the work of the iteration that runs now is counted."""
        return self._sampling.on

    @property
    def analysis(self) -> Analysis | None:
        """Of the last iteration that was sampled, or did the same work as a sampled one. None before."""
        self.guard.attempt("file", self._fast_path.catch_up, None)
        self.guard.attempt("analysis", self._settle, None)
        return self.guard.attempt("analysis", lambda: self.output.analysis, None)

    @property
    def records(self) -> list[OpRecord]:
        """The ledger of the iteration that runs, if it is sampled; else what the last one left, see `log_analysis`."""
        if self._sampling.on and self.ledger.rows:
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

    # --- The end ---

    @guarded
    def detach(self) -> None:
        """Take everything off the model and torch, and stop tracking; the iteration that runs is dropped. `initialize` starts again."""
        self._stop()

    def _stop(self) -> None:
        self._leave_fast_path()
        self._running = False
        self._sampling.abandon()
        self._inputs.remove()
        self._graphed.leave()
        self._traces.stop(None)

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
            waiting = [one for one in self._fast_path.waiting if isinstance(one, Finished)]
            self._fast_path.waiting.clear()
            if self._began:
                self.guard.attempt("memory", lambda: self.memory.run_ended(self._tracked.given, self._times.previous), None)
                before = self._times.own_at_end + began
                own = lambda: self.clock.own_ns + perf_counter_ns() - before
                self.output.close(waiting, report=report, now=self._times.start_ns, own=own)
            self._tracked.clear()
        except Exception as error:
            self.guard.failed("close", error, vital=False)

    def _give_up(self, reason: str) -> None:
        self._note("off", f"tracking was switched off: {reason}")
        self.end(report=False)

    def forked(self) -> None:
        """Record and write nothing: this process is a copy of the one that is tracked."""
        self.off = True
        self.phases.on = False
        self.phases.events = None
        self._fast_path.ended = self._fast_path.written = self._fast_path.left = 0
        self._sampling.abandon()
        self._inputs.remove()

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
