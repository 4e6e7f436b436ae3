"""Simulates a program on devices, writes the trace that a recorder would make of it, and tells how long it takes with other durations.

A program is a list of actions of one host thread. The device runs each stream in order; work starts a launch latency after its call began, a
gap after the work before it on its stream (an overlapping kernel a moment after the start of that), and after the events that its stream
waits for. A launch finds at most `depth` commands of its device unfinished, else it waits until one of them ends. A synchronization returns
a moment after all work of its device has ended, a copy to pageable memory a moment after it has. A graph is one call for many kernels. A
backward pass runs on a thread of its own, which is woken, and wakes the one that waits, a moment later.

    program = [Host(20_000), Launch(7, 50_000, "gemm"), Record(7, "e"), Wait(9, "e"), Launch(9, 30_000, "allreduce"), Sync()]
    run(program).end                                  # ns
    run(program, {"gemm": 0.5}).end                   # with half of the time of every gemm
    trace_of(program, rows=True).write(path)          # what is recorded of it
"""

from __future__ import annotations

import random
from bisect import bisect_right, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.support.trace_builder import TraceBuilder

CALL_NS, LATENCY_NS, GAP_NS, EVENT_NS, RETURN_NS, WAKE_NS = 4_000, 6_000, 1_000, 1_000, 900, 5_000
"""Host time of a call, from a launch to its start, between events of a stream, after an event of another stream, after the device, and until
another thread goes on."""
OVERLAP_NS = 3_000
"""From the start of a kernel to that of the next one where this does not wait for its end."""
ENGINE = 77


@dataclass(frozen=True)
class Host:
    ns: int


@dataclass(frozen=True)
class Launch:
    stream: int
    ns: int
    name: str
    device: int = 0
    overlaps: bool = False


@dataclass(frozen=True)
class Copy:
    """To pageable memory: as of `.item()`."""

    stream: int
    ns: int
    name: str = "Memcpy DtoH"
    device: int = 0
    overlaps: bool = False


@dataclass(frozen=True)
class Graph:
    """Kernels that one call launches; those of its first stream in order, each other one after the first kernel."""

    kernels: tuple[Launch, ...]


@dataclass(frozen=True)
class Record:
    stream: int
    event: str


@dataclass(frozen=True)
class Wait:
    stream: int
    event: str


@dataclass(frozen=True)
class Sync:
    """Of a whole device."""

    device: int = 0


@dataclass(frozen=True)
class Backward:
    """Actions of the thread of the backward pass, until which the other one waits."""

    actions: tuple[Action, ...]


Action: TypeAlias = "Host | Launch | Copy | Graph | Record | Wait | Sync | Backward"


@dataclass
class Ran:
    """When everything happened, ns. calls: (action, start, end of the call, thread, 0 the first). device: (work, place of its call, start,
    end)."""

    calls: list[tuple[Action, int, int, int]] = field(default_factory=list)
    device: list[tuple[Launch | Copy, int, int, int]] = field(default_factory=list)
    end: int = 0


def run(program: Sequence[Action], scale: Mapping[str, float] | None = None, *, depth: int = 1024) -> Ran:
    """Runs a program. scale: of the durations of work, by name. depth: commands that the queue of a device takes."""
    machine = _Machine(scale or {}, depth)
    now = machine.take(program, 0, 0)
    machine.ran.end = max([now, *(end for _, end in machine.last.values())])
    return machine.ran


class _Machine:
    """last: start and end of the last work by device and stream. waits: until when the next work of a stream waits. ends: of unfinished work of each
    device, ascending."""

    def __init__(self, scale: Mapping[str, float], depth: int) -> None:
        self.scale, self.depth, self.ran = scale, depth, Ran()
        self.last: dict[tuple[int, int], tuple[int, int]] = {}
        self.events: dict[str, int] = {}
        self.waits: dict[int, int] = {}
        self.ends: dict[int, list[int]] = {}

    def take(self, actions: Sequence[Action], now: int, thread: int) -> int:
        """Takes actions on a thread from a time on; returns when it is done."""
        for action in actions:
            start = now
            if isinstance(action, Backward):
                now = self.take(action.actions, now + WAKE_NS, ENGINE) + WAKE_NS
                continue
            place = len(self.ran.calls)
            self.ran.calls.append((action, start, start, thread))
            now = self.done(action, start, place)
            self.ran.calls[place] = (action, start, now, thread)
        return now

    def done(self, action: Action, start: int, place: int) -> int:
        """Takes one action; returns when its call is over."""
        if isinstance(action, Host):
            return start + action.ns
        if isinstance(action, Graph):
            first = action.kernels[0]
            end = self.start(first, start, place)[1]
            for kernel in action.kernels[1:]:
                self.start(kernel, start if kernel.stream == first.stream else end + EVENT_NS - LATENCY_NS, place)
            return start + CALL_NS
        if isinstance(action, Launch | Copy):
            busy = self.ends.setdefault(action.device, [])
            del busy[: bisect_right(busy, start)]
            full = busy[len(busy) - self.depth] + RETURN_NS if len(busy) >= self.depth else 0
            end = self.start(action, start, place)[1]
            insort(busy, end)
            return max(start + CALL_NS, full, end + RETURN_NS if isinstance(action, Copy) else 0)
        if isinstance(action, Record):
            self.events[action.event] = self.last.get((0, action.stream), (0, 0))[1]
            return start + 1_000
        if isinstance(action, Wait):
            self.waits[action.stream] = max(self.waits.get(action.stream, 0), self.events[action.event] + EVENT_NS)
            return start + 1_000
        assert isinstance(action, Sync)
        last = max([end for (device, _), (_, end) in self.last.items() if device == action.device and end > start], default=0)
        return max(start + CALL_NS // 2, last + RETURN_NS)

    def start(self, work: Launch | Copy, launched: int, place: int) -> tuple[int, int]:
        """Runs work that was launched at a time; returns its start and end."""
        begin = max(launched + LATENCY_NS, self.waits.pop(work.stream, 0))
        where = work.device, work.stream
        if where in self.last:
            before = self.last[where]
            begin = max(begin, before[0] + OVERLAP_NS if work.overlaps else before[1] + GAP_NS)
        end = begin + round(work.ns * self.scale.get(work.name, 1.0))
        self.last[where] = begin, end
        self.ran.device.append((work, place, begin, end))
        return begin, end


def trace_of(program: Sequence[Action], *, rows: bool | float = True, calls: bool = True, depth: int = 1024) -> TraceBuilder:
    """Returns what is recorded of a program. rows: waits of streams have rows of their own, or so large a part of them. calls: they and
    records of events are recorded."""
    t, ran, rng = TraceBuilder(), run(program, depth=depth), random.Random(5)
    correlation: dict[int, int] = {}
    recorded: dict[str, tuple[int, int]] = {}
    for place, (action, start, end, thread) in enumerate(ran.calls):
        own = {"thread": thread} if thread else {}
        if isinstance(action, Host):
            name = "autograd::engine::evaluate_function: MmBackward0" if thread else "aten::host_work"
            t.op(name, start, end - start, **own)
        elif isinstance(action, Launch | Copy | Graph):
            api = {"Launch": "cudaLaunchKernel", "Copy": "cudaMemcpyAsync", "Graph": "cudaGraphLaunch"}[type(action).__name__]
            correlation[place] = t.call(api, start, end - start, flow=True, **own)
        elif isinstance(action, Sync):
            number = t.call("cudaDeviceSynchronize", start, end - start, **own)
            if rows and action.device:
                t.sync("Context Sync", start, end - start, stream=-1, correlation=number, device=action.device)
        elif calls and isinstance(action, Record | Wait):
            number = t.call("cudaEventRecord" if isinstance(action, Record) else "cudaStreamWaitEvent", start, end - start, **own)
            if isinstance(action, Record):
                recorded[action.event] = (number, action.stream)
            elif rng.random() < rows:
                row = t.sync("Stream Wait Event", start, end - start, stream=action.stream, correlation=number)
                waits_for = {"wait_on_cuda_event_record_corr_id": recorded[action.event][0], "wait_on_stream": recorded[action.event][1]}
                row["args"] = {**row["args"], **waits_for}  # type: ignore[dict-item]
    for work, place, start, end in ran.device:
        if isinstance(work, Copy):
            t.copy("DtoH", start, end - start, src="Device", dst="Pageable", stream=work.stream, correlation=correlation[place])
        else:
            t.kernel(
                work.name, start, end - start, correlation=correlation[place], stream=work.stream, device=work.device,
                flow=not isinstance(ran.calls[place][0], Graph),
            )  # fmt: skip
    return t
