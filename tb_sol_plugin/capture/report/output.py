"""Sends finished iterations to the SOL log, TensorBoard, Weights & Biases and the console; what fails too often is left alone."""

from __future__ import annotations

import os
import sys
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter, perf_counter_ns, sleep
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from tb_sol_plugin.capture.loop.guard import Guard, log
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.phases import PendingTimes
from tb_sol_plugin.capture.loop.schedule import StepRecord, TimeRow
from tb_sol_plugin.capture.loop.timing import EventPool, Pair
from tb_sol_plugin.capture.operation_registry import OpRecord
from tb_sol_plugin.capture.report.scalars import Alike, Entry, Plain, ScalarLog, of_iteration, row_of
from tb_sol_plugin.format import DOMINATES, STARTING

if TYPE_CHECKING:
    from tb_sol_plugin.capture.device_specs import DeviceSpec
    from tb_sol_plugin.capture.layer_hooks import Call
    from tb_sol_plugin.capture.report.analysis import Analysis
    from tb_sol_plugin.capture.report.loggers import Writer
    from tb_sol_plugin.capture.report.writer import CaptureWriter
    from tb_sol_plugin.capture.work.signatures import Signature
    from tb_sol_plugin.capture.work.sums import FoldCache

PhaseTimes: TypeAlias = "dict[str, float | None]"
"""Device time in µs by phase."""

PATIENCE: Final = 2.0
"""Seconds that closing waits for the device to pass the last events."""

MOST_WAITING: Final = 64
"""Iterations that have ended and may wait for the device to pass their events; if there are more, the oldest is written without."""

MOST_MEMORY: Final = 400
"""Records of memory that wait until the file is open."""

LEAST_NS: Final = 50_000_000
"""Least time between two iterations of those that Weights & Biases, or a writer of torch that was given, gets: each costs half a ms."""
NEVER: Final = 1 << 62

KEPT_SAMPLES: Final = 4
"""Sizes of inputs whose last analysis is kept, for iterations that have them again."""

WAITED: Final = 0.02
"""Own work in a sampled iteration, relative to its time on the device, above which its times are reported to contain waiting."""


@dataclass
class Rows:
    """Has the ledger of one finished iteration, as the file's writer reads it."""

    signatures: list[Signature]
    rows: Mapping[tuple[int, ...], Sequence[int]]
    lost: Counter[str]


NO_ROWS: Final = Rows([], {}, Counter())


@dataclass
class Finished:
    """Has an iteration that has ended, with what may still wait for the device: times of phases, of modules and of the whole.

    own_ns: the recorder's own measured work inside it.
    """

    step: StepRecord
    phases: PendingTimes
    calls: list[Call]
    whole: Pair | None
    pool: EventPool | None
    ledger: Rows
    records: Sequence[OpRecord]
    report: bool
    own_ns: int = 0

    @property
    def plain(self) -> bool:
        """Whether it was not sampled, and has no events."""
        return self.pool is None and not self.step.sampled

    def done(self) -> bool:
        """Return whether the device has passed all events of the iteration."""
        pool = self.pool
        if pool is None:
            return True
        pairs = (call[3] for call in reversed(self.calls) if isinstance(call[3], Pair))
        return pool.done(self.whole) and self.phases.done() and all(pool.done(pair) for pair in pairs)

    def settle(self) -> None:
        """Read the events that the device has passed; the others' times stay unknown."""
        pool, step = self.pool, self.step
        step.phase_times = self.phases.rows()
        if not self.calls and pool is None:
            return
        rows: list[TimeRow] = []
        for label, start, duration, events in self.calls:
            if events is None or isinstance(events, Pair):
                rows.append((label, start, duration, None if pool is None else pool.resolve(events), 1))
            else:
                rows.append((label, start, duration, None, events.count))
        step.module_times = rows
        if pool is not None:
            step.device_ns = pool.resolve(self.whole)
            for reason, count in pool.lost.items():
                step.lost[reason] = step.lost.get(reason, 0) + count
            pool.lost.clear()
        self.calls, self.whole = [], None


@dataclass
class Places:
    """Names the outputs. tensorboard: True (a writer of its own in logdir), False, or a summary writer. console: True, False, rich."""

    logdir: str | None = None
    tensorboard: object = True
    wandb: bool = True
    console: bool | str = True


class Logged(NamedTuple):
    """How ordinary iterations are logged. add: takes one for the event file, with what it shares with others; None: there is none.

    due: when by `perf_counter_ns` one is to be logged otherwise: by a writer that was given (board), or by a run of Weights & Biases.
    """

    add: Callable[[Plain | Entry], None] | None
    alike: Alike
    due: int
    board: bool


class Output:
    """Writes and logs finished iterations in their order. Belongs to the process that made it: a forked one writes nothing.

    header: makes the file's header, asked when the first iteration is written, when ranks and devices are known.
    """

    def __init__(
        self,
        places: Places,
        guard: Guard,
        labels: Labels,
        *,
        first_rank: Callable[[], bool],
        header: Callable[[], dict[str, object]],
        spec: Callable[[], tuple[DeviceSpec | None, str]],
    ) -> None:
        self.places, self.guard, self.labels = places, guard, labels
        self._first_rank, self._header, self._spec = first_rank, header, spec
        self._pid = os.getpid()
        self._writer: CaptureWriter | None = None
        self._board: Writer | None = None
        self._own: ScalarLog | None = None
        self._rated = True
        self._due = 0
        self._shared = Alike(None, None, None)
        self._notes: list[tuple[str, str, int]] = []
        self._memory: list[dict[str, object]] = []
        self._closed = False
        self._sample: tuple[str, Analysis] | None = None
        self._samples: dict[str, Analysis] = {}
        self._alike: tuple[StepRecord, PhaseTimes | None] | None = None
        self._totals: Analysis | None = None
        self._fold_cache: FoldCache | None = None
        self._first: bool | None = None
        self._reported: int | None = None
        self._starting: list[int] = []
        self._began_ns: int | None = None
        self.iterations = 0

    def preload(self, *, work: bool) -> None:
        """Load the code that finished iterations need, so that none of them has to wait for it. work: of sampled ones too."""
        if work:
            import tb_sol_plugin.capture.report.analysis
            from tb_sol_plugin.capture.device_specs import preload
            from tb_sol_plugin.capture.work.costs import models

            models()
            preload()
        if self.places.logdir is not None:
            import tb_sol_plugin.capture.report.writer
        if self.places.tensorboard and self._first_rank():
            import tb_sol_plugin.capture.report.events
            import tb_sol_plugin.capture.report.loggers  # noqa: F401

    # --- Finished iterations ---

    def finish(self, done: Finished) -> None:
        """Write and log one iteration."""
        if self._closed or os.getpid() != self._pid:
            return
        attempt, step = self.guard.attempt, done.step
        self.iterations += 1
        if self.iterations <= STARTING:
            self._starting.append(step.duration_ns)
            self._began_ns = step.start_ns if self._began_ns is None else self._began_ns
        if done.plain:
            known = self._recall(step.signature)
            if known:
                self._alike = step, None
            attempt("file", lambda: self._write_plain(done), None)
        else:
            attempt("times", done.settle, None)
            known = attempt("analysis", lambda: self._analyze(done), False)
            attempt("file", lambda: self._write(done), None)
        if done.report:
            attempt("profile", self._profile, None)
        if self._first is None:
            self._first = self._first_rank()
        if self._first:
            attempt("scalars", lambda: self._log(done, known), None)

    def finish_those_done(self, waiting: deque[Any]) -> None:
        """Write and log the iterations at the head of a queue, up to one that waits for the device, or is not `Finished`."""
        while waiting and isinstance(waiting[0], Finished) and (len(waiting) > MOST_WAITING or waiting[0].done()):
            self.finish(waiting.popleft())

    def _log(self, done: Finished, known: bool) -> None:
        """Log one iteration. known: its work is."""
        step, attempt = done.step, self.guard.attempt
        now = perf_counter_ns()
        sample = self._sample[1] if known and self._sample is not None else None
        plain: Plain = (now, row_of(step), self._like(step, sample))
        own = self._own_log()
        if own is not None:
            counted = sample if step.sampled else None
            own.add(plain if counted is None and done.plain and not done.report else Entry(plain, step.device_ns, counted, done.report))
        due = now >= self._due or step.sampled or done.report
        board = self._board if due or not self._rated else None
        wandb = due and self.places.wandb and wandb_open()
        found = None
        if known and (board is not None or wandb or done.report):
            found = attempt("analysis", lambda: self._logged(done), None)
        if board is not None or wandb:
            self._due = now + LEAST_NS
            times = of_iteration(plain, self.labels)
            if board is not None:
                attempt("tensorboard", lambda: _log_tensorboard(found, step.iteration, board, done.report, times), None)
            if wandb:
                attempt("wandb", lambda: _log_wandb(found, step.iteration, done.report, times), None)
        if self.places.console and done.report and found is not None:
            self._report(found)

    def _like(self, step: StepRecord, sample: Analysis | None) -> Alike:
        """Returns what the iteration has in common with others of its sizes; the same object as long as that is so."""
        like = Alike(step.batch, step.tokens, sample, step.sampled and step.compiled)
        if like[:2] != self._shared[:2] or like.sample is not self._shared.sample or like.compiled != self._shared.compiled:
            self._shared = like
        return self._shared

    def _write_plain(self, done: Finished) -> None:
        """Write what most iterations are: not sampled, no device to wait for. Few calls, since each meets cold caches."""
        done.step.phase_times = done.phases.rows()
        writer = self._writer or self._file()
        if writer is not None:
            writer.step(done.step, done.ledger, self.labels)

    def fast_path(self, like: StepRecord) -> tuple[bool, CaptureWriter | None, Logged]:
        """Returns whether iterations like that one are only written and kept for their scalars; by which writer; how they are logged."""
        known = self._sample is not None and like.signature != "" and like.signature == self._sample[0]
        ready = self._writer is not None or self.places.logdir is None
        first = bool(self._first)
        plain = ready and not self._closed and not (first and self._board is not None and not self._rated)
        own = self._own if first else None
        alike = self._like(like, self._sample[1] if known and self._sample is not None else None)
        due = self._due if first and (self._board is not None or self.places.wandb) else NEVER
        return plain, self._writer, Logged(None if own is None else own.add, alike, due, self._board is not None)

    def count_fast(self, count: int, last: StepRecord, size: int) -> None:
        """Counts iterations that were written without a call of this class, up to `last`. size: of the file since then.

        The phases of `last` are known where it was timed on a device.
        """
        self.iterations += count
        if self._writer is not None and not self._writer.problem:
            self._writer.size = size
        if self._sample is not None and last.signature != "" and last.signature == self._sample[0]:
            self._alike = last, self._phase_times(last) if last.phase_times else None

    def _phase_times(self, step: StepRecord) -> PhaseTimes:
        from tb_sol_plugin.capture.report.analysis import times_of_phases

        return times_of_phases(step.phase_times, self.labels)

    def _report(self, found: Analysis) -> None:
        self.guard.attempt("console", lambda: _print(found, self.places.console == "rich"), None)
        self._reported = found.iteration

    def _analyze(self, done: Finished) -> bool:
        """Analyzes an iteration; returns whether its work is known: counted in it, or in a sampled one like it."""
        step = done.step
        if not step.sampled and not self._recall(step.signature):
            return False
        from tb_sol_plugin.capture.report import analysis as work
        from tb_sol_plugin.capture.work.sums import FoldCache

        if self._fold_cache is None:
            self._fold_cache = FoldCache()
        phases = None if done.pool is None else self._phase_times(step)
        if not step.sampled:
            self._alike = step, phases
            return True
        spec, reason = self._spec()
        layers = None
        if not step.compiled and done.pool is not None:
            layers = work.times_of_layers(step.module_times, self.labels, self._fold_cache.layers(done.ledger.rows, done.records))
        found = work.analyze(
            done.records, step, spec, layer_times=layers, phase_times=None if step.compiled else phases, reason=reason,
            counted=done.ledger.rows, cache=self._fold_cache,
        )  # fmt: skip
        if step.device_ns and not step.compiled and done.own_ns > WAITED * step.device_ns:
            share = f"{100 * done.own_ns / step.device_ns:.0f} %"
            text = f"while this iteration was counted, the device may have waited for the recorder, whose work took {share} of that time"
            found = replace(found, notes=(*found.notes, text))
        if step.copies:
            from tb_sol_plugin.capture.report.console import sentence

            line = sentence(step.copies)
            found = replace(found, notes=(*found.notes, line)) if line else found
        if self.iterations == 1:
            found = replace(found, notes=(*found.notes, "this is the first iteration: its times contain what arises once"))
        self._sample, self._alike, self._totals = ("" if step.unlike else step.signature, found), None, None
        if self._sample[0]:
            self._samples.pop(step.signature, None)
            self._samples[step.signature] = found
            if len(self._samples) > KEPT_SAMPLES:
                del self._samples[next(iter(self._samples))]
        step.totals = totals_of(found)
        return True

    def _recall(self, signature: str) -> bool:
        """Returns whether iterations of that signature do the work of a sampled one, which is then the sample in use."""
        if self._sample is not None and signature != "" and signature == self._sample[0]:
            return True
        found = self._samples.get(signature) if signature else None
        if found is not None:
            self._sample, self._alike, self._totals = (signature, found), None, None
        return found is not None

    @property
    def analysis(self) -> Analysis | None:
        """The last analysis, of a sampled iteration or of one like it. It is made when it is read."""
        if self._sample is None or self._alike is None:
            return None if self._sample is None else self._sample[1]
        from tb_sol_plugin.capture.report import analysis as work

        step, phases = self._alike
        return work.carry(self._sample[1], step, phase_times=phases)

    def forget(self) -> None:
        """Forgets earlier iterations: none from now on is like one of them."""
        self._sample = self._alike = self._totals = None
        self._samples.clear()

    def _logged(self, done: Finished) -> Analysis | None:
        """Returns the analysis to log: of an iteration that is like a sampled one and was not timed on a device, only the totals.

        Its groups have nothing new, and writing them in every iteration would take more time than all phases together.
        """
        if done.report or self._sample is None or self._alike is None or self._alike[1] is not None or done.step.device_ns is not None:
            return self.analysis
        step, sample = done.step, self._sample[1]
        if self._totals is None:
            whole = self.analysis
            self._totals = None if whole is None else replace(whole, phases=[])
        if self._totals is None:
            return None
        return replace(self._totals, iteration=step.iteration, age=step.iteration - sample.iteration, step_us=step.duration_ns / 1e3)

    # --- The file ---

    def _write(self, done: Finished) -> None:
        writer = self._file()
        if writer is not None:
            writer.step(done.step, done.ledger, self.labels)

    def _file(self) -> CaptureWriter | None:
        if self._writer is None and self.places.logdir is not None:
            from tb_sol_plugin.capture.report.writer import CaptureWriter

            self._writer = CaptureWriter(self.places.logdir, self._header())
            for note in self._notes:
                self._writer.note(*note)
            self._notes.clear()
            for record in self._memory:
                self._writer.memory(record, self.labels)
            self._memory.clear()
        return self._writer

    def memory(self, record: dict[str, object]) -> None:
        """Writes a record of memory; it is kept until the file is open."""
        if self._closed or os.getpid() != self._pid:
            return
        if self._writer is not None:
            self._writer.memory(record, self.labels)
        elif len(self._memory) < MOST_MEMORY:
            self._memory.append(record)

    def note(self, code: str, text: str, count: int = 1) -> None:
        """Writes a remark; it is kept until the file is open."""
        if self._closed or os.getpid() != self._pid:
            return
        log.info("SOL capture: %s", text)
        if self._writer is not None:
            self._writer.note(code, text, count)
        elif len(self._notes) < 100:
            self._notes.append((code, text, count))

    def _profile(self, *, last: bool = False) -> None:
        """Writes what the program counted of its own steps, where it does."""
        steps = sys.modules.get("tb_sol_plugin.capture.goodput.steps")
        record = None if steps is None or self._writer is None else steps.profile_record(last=last)
        if record is not None and self._writer is not None:
            self._writer.memory(record, self.labels)

    # --- Metrics ---

    def _own_log(self) -> ScalarLog | None:
        """Returns what writes the event file in the folder of the capture, where one is wanted; else finds the writer that was given."""
        wanted = self.places.tensorboard
        if wanted is True:
            if self._own is None and self.places.logdir is not None:
                self._own = ScalarLog(self.places.logdir, self.labels, self.guard)
            return self._own
        if wanted and self._board is None:
            from tb_sol_plugin.capture.report.loggers import is_torch_writer

            self._board = wanted  # type: ignore[assignment]
            self._rated = is_torch_writer(wanted)
        return None

    def _with_startup(self, analysis: Analysis, now: int) -> Analysis:
        """Returns the analysis with a note where the first iterations took most of the run. now: on the recorder's clock."""
        whole, later = now - (self._began_ns or 0), self.iterations - len(self._starting)
        usual = (whole - sum(self._starting)) / later if later > 0 else min(self._starting, default=0)
        beyond = sum(max(0, one - usual) for one in self._starting)
        if (later <= 0 and len(self._starting) < 2) or beyond < whole * DOMINATES:
            return analysis
        text = f"start-up dominates: its first iterations took {beyond / 1e9:.2f} of the {whole / 1e9:.2f} s of this run beyond usual ones"
        return replace(analysis, notes=(*analysis.notes, text))

    def close(self, waiting: list[Finished], *, report: bool, now: int = 0, own: Callable[[], int] = lambda: 0) -> None:
        """Write what waits, then close the file. Waits for the device for PATIENCE seconds at most.

        report: print the last sampled iteration, if it is newer than the last one printed. now: when the last iteration ended, on the
        recorder's clock. own: ns of own work since the last iteration.
        """
        if self._closed or os.getpid() != self._pid:
            return
        until = perf_counter() + PATIENCE
        for done in waiting:
            while not done.done() and perf_counter() < until:
                sleep(0.005)
            self.finish(done)
        if report and self.places.console and self._first and self._sample is not None:
            last = self._sample[1]
            if self._reported is None or self._reported < last.iteration:
                self._report(self._with_startup(last, now))
        self.guard.attempt("file", self._file, None)  # also a run that ended in its first iteration has a file that says so
        for reason, count in self.guard.reasons.items():
            if count > 1:
                self.note("failures", reason, count)
        self.guard.attempt("profile", lambda: self._profile(last=True), None)
        if self._writer is not None:
            writer = self._writer
            self.guard.attempt("close", lambda: writer.close(self.iterations, own()), None)
        if self._own is not None:
            self.guard.attempt("close", self._own.close, None)
        self._closed = True


def totals_of(analysis: Analysis) -> dict[str, int | float | None]:
    """Return the sums over all counted calls, named as the file does. sol_ns: the least time at the limits in use, None without limits."""
    total = analysis.total
    return {
        "ops": total.count,
        "flop": total.flops,
        "flop_vector": total.flops_vector,
        "bytes": total.bytes,
        "sol_ns": None if total.estimated_us is None else round(total.estimated_us * 1e3, 3),
        "unknown": total.unknown,
    }


def wandb_open() -> bool:
    """Return whether a run of Weights & Biases is active."""
    return getattr(sys.modules.get("wandb"), "run", None) is not None


def _log_wandb(analysis: Analysis | None, iteration: int, tables: bool, times: Mapping[str, float]) -> None:
    from tb_sol_plugin.capture.report.loggers import log_wandb

    log_wandb(analysis, iteration, tables, times=times)


def _log_tensorboard(analysis: Analysis | None, iteration: int, board: Writer, tables: bool, times: Mapping[str, float]) -> None:
    from tb_sol_plugin.capture.report.loggers import log_tensorboard

    log_tensorboard(analysis, iteration, board, tables, times=times)


def _print(analysis: Analysis, tables: bool) -> None:
    if tables:
        from tb_sol_plugin.capture.report.console import print_rich

        return print_rich(analysis)
    from tb_sol_plugin.capture.report.console import console_report

    print(console_report(analysis), flush=True)
