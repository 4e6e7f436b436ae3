"""Reads the traces of Proton (`chrome_trace`): kernels of streams with the call stack of their launch, in newer ones scopes of the host.

Older files hold one JSON object per stream, one after the other, without scopes; newer ones a single object whose lanes are named
`CPU Thread 0` and `GPU Stream 7`. No event names a device, and copies are not recorded. A kernel belongs to the scope that its call
stack names: the one its flow begins at, else the last one of that stack to start before it.
"""

from __future__ import annotations

import io
import json
import re
from bisect import bisect_right
from typing import Final, NamedTuple

import msgspec

from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.ingest.kineto import reader
from tb_sol_plugin.ingest.source import Progress, Report, Source
from tb_sol_plugin.model.capture import Capture

SHARE: Final = 32
"""One part in so many of the limit of text: all of it is kept."""
NOT_NAMED: Final = "a Proton trace names no device and holds no copies"
NO_SCOPES: Final = "this Proton trace holds no scopes of the host: kernels stand without the scopes that launched them"
LAUNCH: Final = "proton_runtime"
"""Category of the calls that stand for launches; the file itself holds none."""
_LANE: Final = re.compile(r"GPU Stream (\d+)$")
Event = dict[str, object]


class Owned(NamedTuple):
    """kernels: positions of kernels in the events; scopes: position of the scope that each belongs to. Both in order of kernels."""

    kernels: list[int]
    scopes: list[int]


def read(path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None) -> Capture:
    """Read one trace. BadInput where it is no JSON or too large."""
    with Source(path, fs_options, share=SHARE, hint="trace a shorter part") as source:
        text = _text(source, progress)
        name, size, broken = source.name, source.size, source.truncated
    events = _events(text, name)
    lanes = _lanes(events)
    owned = _owners(events)
    of_kernel = dict(zip(owned.kernels, owned.scopes, strict=True))
    plain = [_plain(event, lanes, of_kernel.get(place, -1) + 1) for place, event in enumerate(events)]
    data = json.dumps({"displayTimeUnit": "us", "traceEvents": plain + _launches(events, owned)}).encode()
    capture = reader.read_from(_Text(data, name, size, broken))
    warnings = (*capture.facts.warnings, NOT_NAMED, *([NO_SCOPES] if len(capture.device) and not owned.scopes else []))
    metadata = {**capture.facts.metadata, "profiler": "proton"}
    facts = msgspec.structs.replace(capture.facts, warnings=warnings, metadata=metadata, total_events=len(events))
    counts = capture.tables["categories"]
    return Capture(facts, {**capture.tables, "categories": counts[counts["category"] != LAUNCH].reset_index(drop=True)})


class _Text(Source):
    """Bytes in memory in the place of a file."""

    def __init__(self, data: bytes, name: str, size: int, truncated: str) -> None:
        self.path = self.name = name
        self.truncated, self._ending, self.produced, self.size = "", truncated, 0, size
        self._pool = None
        self.largest, self._hint = 2 * len(data) + 1, ""
        self._raw = io.BytesIO(data)


def _text(source: Source, progress: Report | None) -> str:
    blocks = []
    for block in source.blocks():
        blocks.append(block)
        if progress is not None:
            progress(Progress(source.position, source.size, 0, "reading"))
    return b"".join(blocks).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def _events(text: str, file: str) -> list[Event]:
    """Returns the events of all objects in the file."""
    decoder, at, out = json.JSONDecoder(strict=False), 0, []
    text = text.strip()
    while at < len(text):
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            where = f"after {getattr(error, 'pos', at):,} characters"
            raise BadInput(f"the trace ends or breaks {where}", hint="copy it again, or end it with proton.finalize()", file=file) from None
        found = value.get("traceEvents") if isinstance(value, dict) else None
        out += [e for e in found if isinstance(e, dict)] if isinstance(found, list) else []
        while at < len(text) and text[at] in " \t\r\n,":
            at += 1
    return out


def _lanes(events: list[Event]) -> dict[object, int]:
    """Returns stream by lane, where lanes are named."""
    out: dict[object, int] = {}
    for event in events:
        if event.get("ph") == "M" and event.get("name") == "thread_name":
            args = event.get("args")
            found = _LANE.search(str(args.get("name") if isinstance(args, dict) else ""))
            if found and isinstance(event.get("tid"), int | str):
                out[event["tid"]] = int(found[1])
    return out


def _plain(event: Event, lanes: dict[object, int], launch: int) -> Event:
    """Returns the event as a profiler trace has it: kernels with their stream and their launch, without a device; scopes as user ranges."""
    kind = event.get("cat")
    if event.get("ph") != "X":
        return event
    if kind == "kernel":
        tid = event.get("tid")
        stream = lanes.get(tid, tid) if isinstance(tid, int | str) else -1
        args = event.get("args")
        kept = {k: v for k, v in args.items() if k != "call_stack"} if isinstance(args, dict) else {}
        return event | {"pid": -1, "args": {**kept, "device": -1, "stream": stream, **({"correlation": launch} if launch else {})}}
    return event | {"cat": "user_annotation"} if kind == "scope" else event


class _Stacks:
    """Call stacks as nodes of one tree: node 0 is the empty stack, `above` the node of each stack without its last frame."""

    def __init__(self) -> None:
        self._below: dict[tuple[int, str], int] = {}
        self.above = [0]

    def node(self, event: Event) -> int:
        """Returns the node of an event's call stack; grows with the frames, not with their square."""
        args = event.get("args")
        stack = args.get("call_stack") if isinstance(args, dict) else None
        here = 0
        for frame in stack if isinstance(stack, list) else ():
            key = here, str(frame)
            if key not in self._below:
                self._below[key] = len(self.above)
                self.above.append(here)
            here = self._below[key]
        return here


def _time(event: Event) -> float:
    value = event.get("ts")
    return float(value) if isinstance(value, int | float) else 0.0


def _owners(events: list[Event]) -> Owned:
    """Returns the scope of each kernel, by its flow where it has one, else by the call stack of its launch."""
    stacks = _Stacks()
    by_stack: dict[int, list[tuple[float, int]]] = {}
    by_place: dict[tuple[object, float], int] = {}
    for place, event in enumerate(events):
        if event.get("ph") == "X" and event.get("cat") == "scope":
            by_stack.setdefault(stacks.node(event), []).append((_time(event), place))
            by_place[str(event.get("tid")), _time(event)] = place
    for found in by_stack.values():
        found.sort()
    begins: dict[object, list[int]] = {}
    ends: dict[tuple[object, float], int] = {}
    for event in events:
        if event.get("name") != "launch->kernel" or not isinstance(event.get("id"), int | str):
            continue
        key = str(event.get("tid")), _time(event)
        if event.get("ph") == "s" and key in by_place:
            begins.setdefault(event["id"], []).append(by_place[key])
        elif event.get("ph") == "f" and begins.get(event["id"]):
            ends[key] = begins[event["id"]][-1]
    kernels, scopes = [], []
    for place, event in enumerate(events):
        if event.get("ph") != "X" or event.get("cat") != "kernel":
            continue
        owner = ends.get((str(event.get("tid")), _time(event)), -1)
        node = stacks.above[stacks.node(event)] if owner < 0 else 0
        while node and node not in by_stack:
            node = stacks.above[node]
        if node:
            there = by_stack[node]
            owner = there[max(bisect_right(there, (_time(event), len(events))) - 1, 0)][1]
        if owner >= 0:
            kernels.append(place)
            scopes.append(owner)
    return Owned(kernels, scopes)


def _launches(events: list[Event], owned: Owned) -> list[Event]:
    """Returns one call without length per scope that launches: where its kernels were launched from, as a profiler trace has it.

    It stands at the start of the scope, or behind the scopes inside it that begin at the same moment.
    """
    starts: dict[str, list[tuple[float, float]]] = {}
    for event in events:
        if event.get("ph") == "X" and event.get("cat") == "scope":
            starts.setdefault(str(event.get("tid")), []).append((_time(event), _time(event) + _length(event)))
    for spans in starts.values():
        spans.sort()
    out: list[Event] = []
    for place in sorted(set(owned.scopes)):
        scope = events[place]
        at, end = _time(scope), _time(scope) + _length(scope)
        spans, own = starts[str(scope.get("tid"))], (_time(scope), end)
        next_one = bisect_right(spans, own)  # what is inside and begins with it stands before it: it ends earlier
        inside = next_one - 2
        while inside >= 0 and spans[inside][0] == own[0]:
            at = max(at, spans[inside][1]) if spans[inside][1] < end else at
            inside -= 1
        while next_one < len(spans) and spans[next_one][0] <= at < spans[next_one][1] and spans[next_one][1] < end:
            at, next_one = spans[next_one][1], next_one + 1
        out.append(
            {
                "ph": "X", "cat": LAUNCH, "name": "launch", "pid": scope.get("pid"), "tid": scope.get("tid"),
                "ts": at, "dur": 0, "args": {"correlation": place + 1},
            }
        )  # fmt: skip
    return out


def _length(event: Event) -> float:
    value = event.get("dur")
    return float(value) if isinstance(value, int | float) else 0.0
