"""Makes the parts of a tracker, each from the options and the parts that it needs."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tb_sol_plugin.capture.loop.guard import Clock, Guard
from tb_sol_plugin.capture.loop.header import Environment, HeaderMaker, TrackedModels
from tb_sol_plugin.capture.loop.labels import Labels
from tb_sol_plugin.capture.loop.phases import PhaseRange, PhaseStack
from tb_sol_plugin.capture.loop.profiling import ProfilerTraces
from tb_sol_plugin.capture.loop.schedule import REPORT_INTERVAL, IterationSizes, Sampling, Schedule
from tb_sol_plugin.capture.memory.plan import PlanFacts
from tb_sol_plugin.capture.memory.records import MemoryTracking, OptimizerRef, PeakPhases, PeakRange, Peaks
from tb_sol_plugin.capture.report.output import Output, Places

if TYPE_CHECKING:

    from tb_sol_plugin.capture.hooks.graphed import GraphedCallables
    from tb_sol_plugin.capture.hooks.inputs import InputWatch
    from tb_sol_plugin.capture.hooks.instrument import Instrumentation
    from tb_sol_plugin.capture.loop.guard import Guard
    from tb_sol_plugin.capture.loop.header import Environment
    from tb_sol_plugin.capture.loop.options import CaptureOptions
    from tb_sol_plugin.capture.loop.schedule import Schedule


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
    inputs: InputWatch
    graphed: GraphedCallables


def make_parts(options: CaptureOptions, give_up: Callable[[str], None]) -> Parts:
    """Return the parts for these options. give_up: called with a sentence when tracking cannot go on."""
    from tb_sol_plugin.capture.hooks.graphed import GraphedCallables  # these load torch
    from tb_sol_plugin.capture.hooks.inputs import InputWatch
    from tb_sol_plugin.capture.hooks.instrument import Instrumentation

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
    sampling = Sampling(
        instrumentation, schedule, tracked, environment,
        guard=guard, note=note, time_layers=options.time_layers, sample_random=options.sample_random,
    )  # fmt: skip
    inputs = InputWatch()

    def take_hooks_off() -> bool:
        were = sampling.on or inputs.on
        sampling.abandon()
        inputs.remove()
        return were

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
        sampling=sampling,
        traces=ProfilerTraces(schedule, environment, guard, note, stacks=options.trace_stacks, memory=memory.on),
        sizes=IterationSizes(options.batch, options.tokens, guard),
        inputs=inputs,
        graphed=GraphedCallables(take_hooks_off, note),
    )
