"""Simulates a program on a device, writes the trace that a recorder would make of it, and tells how long it takes with other durations.

A program is a list of actions of one host thread. The device runs each stream in order; work starts a launch latency after its call began, a
gap after the work before it on its stream, and after the events that its stream waits for. A launch finds at most `depth` commands unfinished,
else it waits until one of them ends. A synchronization returns a moment after all work has ended.

    program = [Host(20_000), Launch(7, 50_000, "gemm"), Record(7, "e"), Wait(9, "e"), Launch(9, 30_000, "allreduce"), Sync()]
    run(program).end                                  # ns
    run(program, {"gemm": 0.5}).end                   # with half of the time of every gemm
    trace_of(program, rows=True).write(path)          # what is recorded of it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tests.support.trace_builder import TraceBuilder

CALL_NS, LATENCY_NS, GAP_NS, EVENT_NS, RETURN_NS = 4_000, 6_000, 1_000, 1_000, 900
"""Host time of a call, from a launch to its start, between events of a stream, after an event of another stream, and after the device."""


@dataclass(frozen=True)
class Host:
    ns: int


@dataclass(frozen=True)
class Launch:
    stream: int
    ns: int
    name: str


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
    """Of the whole device."""


Action: TypeAlias = Host | Launch | Record | Wait | Sync


@dataclass
class Ran:
    """When everything happened, ns. calls: (action, start, end of the call). device: (launch, place of its call, start, end)."""

    calls: list[tuple[Action, int, int]] = field(default_factory=list)
    device: list[tuple[Launch, int, int, int]] = field(default_factory=list)
    end: int = 0


def run(program: Sequence[Action], scale: Mapping[str, float] | None = None, *, depth: int = 1024) -> Ran:
    """Runs a program. scale: of the durations of work, by name. depth: commands that the queue takes."""
    out, now = Ran(), 0
    stream_end: dict[int, int] = {}
    events: dict[str, int] = {}
    waits: dict[int, int] = {}
    ends: list[int] = []
    for action in program:
        start = now
        if isinstance(action, Host):
            now += action.ns
        elif isinstance(action, Launch):
            now += CALL_NS
            busy = sorted(e for e in ends if e > start)
            if len(busy) >= depth:
                now = busy[len(busy) - depth] + RETURN_NS
            begin = max(start + LATENCY_NS, waits.pop(action.stream, 0))
            if action.stream in stream_end:
                begin = max(begin, stream_end[action.stream] + GAP_NS)
            stop = begin + round(action.ns * (scale or {}).get(action.name, 1.0))
            stream_end[action.stream] = stop
            ends = [*busy, stop]
            out.device.append((action, len(out.calls), begin, stop))
        elif isinstance(action, Record):
            now += 1_000
            events[action.event] = stream_end.get(action.stream, 0)
        elif isinstance(action, Wait):
            now += 1_000
            waits[action.stream] = max(waits.get(action.stream, 0), events[action.event] + EVENT_NS)
        else:
            now = max(now + CALL_NS // 2, max([e for e in ends if e > start], default=0) + RETURN_NS)
        out.calls.append((action, start, now))
    out.end = max([now, *stream_end.values()])
    return out


def trace_of(program: Sequence[Action], *, rows: bool = True, calls: bool = True, depth: int = 1024) -> TraceBuilder:
    """Returns what is recorded of a program. rows: waits of streams have rows of their own. calls: they and records of events are recorded."""
    t, ran = TraceBuilder(), run(program, depth=depth)
    correlation: dict[int, int] = {}
    recorded: dict[str, tuple[int, int]] = {}
    for place, (action, start, end) in enumerate(ran.calls):
        if isinstance(action, Host):
            t.op("aten::host_work", start, end - start)
        elif isinstance(action, Launch):
            correlation[place] = t.call("cudaLaunchKernel", start, end - start, flow=True)
        elif isinstance(action, Sync):
            t.call("cudaDeviceSynchronize", start, end - start)
        elif calls:
            own = t.call("cudaEventRecord" if isinstance(action, Record) else "cudaStreamWaitEvent", start, end - start)
            if isinstance(action, Record):
                recorded[action.event] = (own, action.stream)
            elif rows:
                row = t.sync("Stream Wait Event", start, end - start, stream=action.stream, correlation=own)
                waits_for = {"wait_on_cuda_event_record_corr_id": recorded[action.event][0], "wait_on_stream": recorded[action.event][1]}
                row["args"] = {**row["args"], **waits_for}  # type: ignore[dict-item]
    for launch, place, start, end in ran.device:
        t.kernel(launch.name, start, end - start, correlation=correlation[place], stream=launch.stream, flow=True)
    return t
