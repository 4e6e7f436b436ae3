"""Decides which iterations are sampled, traced and reported, samples them, and describes those that have ended."""

from __future__ import annotations

import weakref
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from tb_sol_plugin.capture.hooks.instrument import Collected, Instrumentation
    from tb_sol_plugin.capture.loop.guard import Guard
    from tb_sol_plugin.capture.loop.header import Environment, TrackedModels
    from tb_sol_plugin.capture.loop.options import Sizes


SEED: Final = 4
"""Of the iterations that are sampled in the place of those that evaluate: the same ones on each rank and in each run."""
MADE_UP: Final = 4
"""Samples out of turn, of inputs of a size that no sample had, that may come in a row; one more each `every` iterations."""
SPOILT: Final = 5
"""Traces in a row that may be dropped, since something was compiled meanwhile, before no more are tried."""


class Schedule:
    """Decides by the index of an iteration, counted from 0 at the start of the process, what is due in it.

    Sampled: 0, 1 and every `every`-th (0: none). Iteration 0 carries costs that arise once, 1 is the first ordinary one. A sample that
    could not be had is made up for in the next iteration. Traced: up to `traces` iterations that follow a sampled one and are not
    sampled themselves, since a dispatch mode changes what a trace shows.
    """

    def __init__(self, every: int, *, report: int, traces: int = 0) -> None:
        self.restart(every, report=report, traces=traces)

    def restart(self, every: int, *, report: int, traces: int = 0) -> None:
        """Count anew from iteration 0, at these intervals."""
        self.every, self.report, self.traces = max(0, every), max(1, report), max(0, traces)
        self.index = 0
        self.owed = False
        self._last_sampled = -2
        self._trace_owed = False
        self._spoilt = 0
        self._offset = 0
        self._again = self._each = False
        self._random = Random(SEED)
        self._made_up = 0

    def samples(self) -> bool:
        """Return whether the iteration that begins now is due to be sampled."""
        if not self.every:
            return False
        return self.owed or self.index < 2 or self.index % self.every == self._offset

    def pass_over(self) -> None:
        """Let the iteration that begins go unsampled for good; traced is the one after it, as if it had been sampled."""
        self.owed = False
        self._last_sampled = self.index

    def traced(self, *, compiled: bool = False) -> bool:
        """Return whether the iteration that begins now, which is not sampled, is due to be traced.

        compiled: the fourth in place of the third, which is the first to run compiled code, and is spent on compiling it. One that is
        due is not due again, unless `trace_again` says so.
        """
        after = self._trace_owed or self._last_sampled == self.index - 1
        if compiled and self.index < 4:
            after = self.index == 3 and self._last_sampled >= 1
        due = self.traces > 0 and self.index >= 2 and after
        self._trace_owed = self._trace_owed and not due
        return due

    def evaluated(self, evaluated: bool) -> bool:
        """Take note whether the sampled iteration that ends also evaluated the model: then the next one is sampled too.

        Returns whether its work is that of no other iteration.

        And those after it lie elsewhere: who evaluates every 100 iterations would else be sampled only where that happens. Where the next
        one evaluates too, that belongs to each iteration.
        """
        self._each = evaluated and (self._each or self._again)
        self._again = evaluated and not self._each
        if not self._again:
            return False
        self.owed = True
        if self.index > 1 and self.every > 2:
            self._offset = self._random.randrange(1, self.every)
        return True

    def unseen(self) -> None:
        """Let the next iteration be sampled, as the one that ends had inputs of a size that no sampled one had; but not too often."""
        if self.every and self._made_up < MADE_UP + self.index // self.every:
            self._made_up += 1
            self.owed = True

    def trace_again(self) -> bool:
        """Let the next iteration that is not sampled be traced in the place of one that was spoilt; False after `SPOILT` in a row."""
        self._spoilt += 1
        self._trace_owed = self._spoilt < SPOILT
        self.traces += self._trace_owed
        return self._trace_owed

    def trace_taken(self) -> None:
        """Take note that a trace was written."""
        self._spoilt = 0

    def reported(self, iteration: int, *, sampled: bool) -> bool:
        """Return whether the iteration that ends now gets a detailed report: every `report`-th, by index or by its own number."""
        return self.index % self.report == 0 or (sampled and iteration % self.report == 0)

    def until_due(self) -> int:
        """Count the iterations from the running one, which is not sampled, to the next in which something is due.

        Those counted are not reported, and none of them is followed by a sampled or traced one.
        """
        index = self.index
        if self.owed or self._trace_owed or (self.every and index < 1) or (self.traces and index < 4) or index % self.report == 0:
            return 0
        until = self.report - index % self.report
        return min(until, self.every - 1 - (index - self._offset) % self.every) if self.every else until

    def ended(self, *, sampled: bool) -> None:
        """End the iteration. sampled: its work was counted."""
        if sampled:
            self._last_sampled = self.index
        self.index += 1


# -- What a tracker knows of one iteration of a training loop --------------------------------------------------------


TimeRow: TypeAlias = "tuple[int, int, int, int | None, int]"
"""label, start_ns, duration_ns, device_ns (None: not timed), count, as `format.TIME_ROW` names them."""

CopyRow: TypeAlias = "tuple[str, str, str, str, int, int, bool, int, int, int, int, int, int, int | None, int | None]"
"""One row of copies, as `format.COPY_ROW` names it."""


@dataclass
class StepRecord:
    """Describes one iteration. Times in ns on the recorder's clock (`capture/loop/guard.py`).

    device_ns: between two events on the device's stream, None where not timed or not known yet. sampled: its work was counted.
    signature: of the sizes of the model's inputs, "" unknown. overhead_ns: the recorder's own measured work inside the step; before_ns:
    since the end of the step before (of the first, since tracking was set up), when it analyses and writes what has ended.
    lost: things that could not be recorded, by reason. phase_times, module_times: TimeRow. totals: of a sampled step, filled by the
    analysis: {ops, flop, flop_vector, bytes, sol_ns, unknown}. compiled: the model is compiled, and its work was counted by running
    it eagerly, so that the times of this step are not those of the model. copies: CopyRow, None where copies were not counted.
    evaluation_ns: of a sampled step, time in which it evaluated the model between training; its work is counted with the rest.
    unlike: its work is that of no other step, since only some evaluate.
    """

    iteration: int
    start_ns: int = 0
    duration_ns: int = 0
    device_ns: int | None = None
    sampled: bool = False
    signature: str = ""
    batch: int | None = None
    tokens: int | None = None
    overhead_ns: int = 0
    before_ns: int = 0
    lost: dict[str, int] = field(default_factory=dict)
    phase_times: list[TimeRow] = field(default_factory=list)
    module_times: list[TimeRow] = field(default_factory=list)
    totals: dict[str, int | float | None] = field(default_factory=dict)
    compiled: bool = False
    copies: list[CopyRow] | None = None
    evaluation_ns: int = 0
    unlike: bool = False


# -- Command-line options of SOL tracking, and what is read from a script's parsed arguments -------------------------


REPORT_INTERVAL: Final = 100
ALL_LEVELS: Final = 2
"""Level of detail of phases where a script has no option for it: every range that is made with level 1 or 2."""


@dataclass(frozen=True)
class ScriptOptions:
    """Has the options that stand in a script's arguments; None where they do not."""

    report_interval: int | None = None
    device: str | None = None
    logdir: str | None = None
    timing_log_level: int | None = None
    rank: int | None = None


def add_sol_arguments(parser: ArgumentParser) -> ArgumentParser:
    """Add the options to a parser, and return it. An option that the parser already has stays as it is."""
    group = parser.add_argument_group("speed of light")
    has = parser._option_string_actions  # argparse has no public way to ask
    if "--rl-sol-report-interval" not in has:
        group.add_argument(
            "--rl-sol-report-interval",
            type=_interval,
            default=REPORT_INTERVAL,
            metavar="N",
            help="iterations between detailed reports, and between iterations whose work is counted (default %(default)s)",
        )
    if "--rl-sol-device" not in has:
        group.add_argument(
            "--rl-sol-device",
            default="auto",
            metavar="DEVICE",
            help="whose limits to judge by: a key of the table of devices, the path of a device file, or auto (default)",
        )
    if "--sol-logdir" not in has:
        group.add_argument("--sol-logdir", metavar="PATH", help="where capture files go (default: the TensorBoard directory of the run)")
    if "--timing-log-level" not in has:
        group.add_argument(
            "--timing-log-level",
            type=int,
            default=ALL_LEVELS,
            metavar="LEVEL",
            help="detail of the phases: a range counts when its level is at most this; 0 switches all tracking off (default %(default)s)",
        )
    return parser


def read_arguments(args: object) -> ScriptOptions:
    """Read the options from parsed arguments (a namespace, a dict or any object) by their argparse names; unusable values are left out."""

    def value(name: str) -> object:
        if isinstance(args, dict):
            return args.get(name)
        return getattr(args, name, None)

    return ScriptOptions(
        report_interval=_whole(value("rl_sol_report_interval")),
        device=_text(value("rl_sol_device")),
        logdir=_text(value("sol_logdir")) or _text(value("tensorboard_dir")),
        timing_log_level=_whole(value("timing_log_level")),
        rank=_whole(value("rank")),
    )


def _interval(text: str) -> int:
    """Read a number of iterations, for argparse."""
    try:
        number = int(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is no whole number") from None
    if number < 1:
        raise ArgumentTypeError(f"{number} iterations are no interval: give 1 or more")
    return number


def _whole(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value)
    except (ValueError, OverflowError):
        return None


def _text(value: object) -> str | None:
    return str(value) if value is not None and not isinstance(value, bool) and str(value) else None


# -- Sampled iterations: the instrumentation goes on the model where one begins and comes off where it ends ------------------------------


_active: Final[weakref.WeakSet[Sampling]] = weakref.WeakSet()
"""Those of all trackers that are in a sampled iteration; one at most."""


RANDOM: Final = (
    "the compiled model draws random numbers (dropout), others when it runs eagerly to be counted: its work is not counted, so that "
    "the training stays as it is. torch._inductor.config.fallback_random = True makes them the same; sample_random=True counts all the same"
)


LATER: Final = "code that torch.compile has compiled runs in later iterations, and did not in the first ones that were counted"


class Sampling:
    """Counts the work of the iterations that the schedule names. time_layers: with a pair of device events around each lowest module.

    A compiled model runs eagerly while it is counted, and compiled code draws other random numbers than eager code does: with dropout,
    the training would be another one from then on. Such a model is not sampled unless sample_random says so.
    """

    def __init__(
        self,
        instrumentation: Instrumentation,
        schedule: Schedule,
        tracked: TrackedModels,
        environment: Environment,
        *,
        guard: Guard,
        note: Callable[[str, str], None],
        time_layers: bool,
        sample_random: bool,
    ) -> None:
        self.instrumentation = instrumentation
        self._schedule, self._tracked, self._environment = schedule, tracked, environment
        self._guard, self._note, self._time_layers, self._sample_random = guard, note, time_layers, sample_random
        self._known_eager = False

    @property
    def on(self) -> bool:
        """Whether the work of the iteration that runs is counted."""
        return self.instrumentation.on

    def begin(self) -> bool:
        """Instrument the iteration that begins, if it is due. Returns whether it was; one that could not be had is made up for later."""
        schedule = self._schedule
        schedule.owed = due = schedule.samples()
        if due:
            self._guard.attempt("compiled", self._tracked.look_around, None)
        if due and not self._sample_random and self._guard.attempt("random", self._would_draw_others, False):
            self._note("random", RANDOM)
            schedule.pass_over()
            return False
        if due:
            self._environment.find_events()
            if len(_active):
                self._note("two_trackers", "another tracker counts this iteration; this one counts a later one")
            elif self._guard.attempt("watch", self._enter, False):
                _active.add(self)
                schedule.owed = False
        return due

    def _would_draw_others(self) -> bool:
        from tb_sol_plugin.capture.hooks.module_names import compiled_and_random

        tracked = self._tracked
        return compiled_and_random(tracked.given, compiled=tracked.compiled or bool(tracked.around))

    def _enter(self) -> bool:
        tracked = self._tracked
        return self.instrumentation.enter(tracked.given, tracked.models, self._environment.events, layers=self._time_layers)

    def leave(self) -> None:
        """Take everything off at the end of a sampled iteration; `collect` answers what it left."""
        _active.discard(self)
        self.instrumentation.leave()

    def collect(self) -> Collected:
        """Return what the sampled iteration left, after `leave`."""
        tracked, instrumentation = self._tracked, self.instrumentation
        if instrumentation.saw_compiled and not tracked.compiled:
            tracked.compiled = True
            if self._known_eager:
                self._note("compiled", LATER)
        self._known_eager = self._known_eager or not tracked.compiled
        found = instrumentation.collect(compiled=tracked.compiled)
        tracked.inputs = tracked.inputs or instrumentation.sizes.ids
        return found

    def abandon(self) -> None:
        """Take everything off in the middle of an iteration, which then counts as not sampled. Safe in any state."""
        self._schedule.owed |= self.on
        try:
            self.instrumentation.leave()
        finally:
            _active.discard(self)

    def unwound(self, kind: type[BaseException]) -> None:
        """Abandon a sampled iteration that an exception has left, so that whoever catches it finds nothing of ours on the model."""
        if self.on and self.instrumentation.here():
            self.abandon()
            self._note("interrupted", f"a sampled iteration was given up after {kind.__name__}")


# -- Samples and tokens of iterations, and which iterations had inputs of the same sizes -----------------------------


MOST_SIGNATURES: Final = 4096
SizePair: TypeAlias = "tuple[int | None, int | None]"
"""(samples, tokens) of an iteration on this rank."""


class InputSignatures:
    """Guesses the inputs of iterations that were not sampled, where no module that is tracked said what they were.

    They are known by what the script says (`batch`, `tokens`): the iteration is like the sampled ones of the same numbers, if those were
    all alike. Where the script says nothing, it is taken to be like the sampled iteration before, if that had inputs of the same sizes as
    the sampled one before it.
    """

    def __init__(self) -> None:
        self._by_size: dict[SizePair, str] = {}
        self._last: list[tuple[str, int | None, int | None]] = []
        self._sampled: set[str] = set()

    def add(self, signature: str, *, given: SizePair, sizes: SizePair) -> None:
        """Add a sampled iteration: the signature of its inputs, the sizes that the script gave, and those that are shown."""
        if given != (None, None):
            self._by_size[given] = signature if self._by_size.get(given, signature) == signature else ""
        self._last = [*self._last[-1:], (signature, *sizes)]
        if len(self._sampled) >= MOST_SIGNATURES:
            self._sampled.clear()
        self._sampled.add(signature)

    def sampled(self, signature: str) -> bool:
        """Return whether an iteration of that signature was sampled."""
        return signature in self._sampled

    def guess(self, given: SizePair) -> tuple[str, int | None, int | None]:
        """Return (signature or "", samples, tokens) of an iteration that was not sampled."""
        if given != (None, None):
            return self._by_size.get(given, ""), *given
        if len(self._last) == 2 and self._last[0] == self._last[1] and self._last[1][0]:
            return self._last[1]
        return "", None, None


class IterationSizes:
    """Finds sizes of iterations by the arguments of `step`, else by the options of the tracker, else by a sampled one like it."""

    def __init__(self, batch: Sizes, tokens: Sizes, guard: Guard) -> None:
        self._batch, self._tokens, self._guard = batch, tokens, guard
        self.signatures = InputSignatures()
        self.by_function = callable(batch) or callable(tokens)

    def given(self, batch: int | None, tokens: int | None) -> SizePair:
        """Return the sizes that the script gave for the iteration that ends now."""
        return self._number(batch, self._batch), self._number(tokens, self._tokens)

    def _number(self, given: int | None, otherwise: Sizes) -> int | None:
        if given is None and otherwise is None:
            return None

        def ask() -> int | None:
            found = given if given is not None else otherwise() if callable(otherwise) else otherwise
            return None if found is None else int(found)

        return self._guard.attempt("sizes", ask, None)

    def forget(self) -> None:
        """Take no iteration from now on to be like one before."""
        self.signatures = InputSignatures()
