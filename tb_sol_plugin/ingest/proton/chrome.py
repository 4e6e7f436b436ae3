"""The trace that Proton writes (`chrome_trace`): kernels of streams with the call stack of their launch, in newer ones scopes of the host.

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
import numpy as np

from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.ingest import torch_trace
from tb_sol_plugin.ingest.progress import Progress, Report
from tb_sol_plugin.ingest.source import Source
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

LARGEST: Final = 512 << 20
"""Bytes of text that are taken in."""
NOT_NAMED: Final = "a Proton trace names no device and holds no copies"
NO_SCOPES: Final = "this Proton trace holds no scopes of the host: kernels stand without the scopes that launched them"
_LANE: Final = re.compile(r"GPU Stream (\d+)$")
Event = dict[str, object]


class Owned(NamedTuple):
    """kernels: positions of kernels in the events; scopes: position of the scope that each belongs to. Both in order of kernels."""

    kernels: list[int]
    scopes: list[int]


def read(path: str, *, fs_options: dict[str, object] | None = None, progress: Report | None = None) -> Capture:
    """Read one trace. BadInput where it is no JSON or too large."""
    with Source(path, fs_options) as source:
        text = _text(source, progress)
        name, size, broken = source.name, source.size, source.truncated
    events = _events(text, name)
    lanes = _lanes(events)
    plain = [_plain(event, lanes) for event in events]
    owned = _owners(events)
    data = json.dumps({"displayTimeUnit": "us", "traceEvents": plain}).encode()
    capture = torch_trace.read_from(_Text(data, name, size, broken))
    return _attributed(capture, owned)


class _Text(Source):
    """Bytes in memory in the place of a file."""

    def __init__(self, data: bytes, name: str, size: int, truncated: str) -> None:
        self.path = self.name = name
        self.truncated, self.produced, self.size = truncated, 0, size
        self._raw = io.BytesIO(data)


def _text(source: Source, progress: Report | None) -> str:
    blocks, size = [], 0
    for block in source.blocks():
        blocks.append(block)
        size += len(block)
        if size > LARGEST:
            raise BadInput(f"the trace is larger than {LARGEST >> 20} MiB", hint="trace a shorter part", file=source.name)
        if progress is not None:
            progress(Progress(source.position, source.size, 0, "reading"))
    return b"".join(blocks).removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")


def _events(text: str, file: str) -> list[Event]:
    """The events of all objects in the file."""
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
    """Stream by lane, where lanes are named."""
    out: dict[object, int] = {}
    for event in events:
        if event.get("ph") == "M" and event.get("name") == "thread_name":
            args = event.get("args")
            found = _LANE.search(str(args.get("name") if isinstance(args, dict) else ""))
            if found and isinstance(event.get("tid"), int | str):
                out[event["tid"]] = int(found[1])
    return out


def _plain(event: Event, lanes: dict[object, int]) -> Event:
    """The event as a profiler trace has it: kernels with their stream and without a device, scopes as user ranges."""
    kind = event.get("cat")
    if event.get("ph") != "X":
        return event
    if kind == "kernel":
        tid = event.get("tid")
        stream = lanes.get(tid, tid) if isinstance(tid, int | str) else -1
        args = event.get("args")
        kept = {k: v for k, v in args.items() if k != "call_stack"} if isinstance(args, dict) else {}
        return event | {"pid": -1, "args": {**kept, "device": -1, "stream": stream}}
    return event | {"cat": "user_annotation"} if kind == "scope" else event


def _stack(event: Event) -> tuple[str, ...]:
    args = event.get("args")
    stack = args.get("call_stack") if isinstance(args, dict) else None
    return tuple(str(s) for s in stack) if isinstance(stack, list) else ()


def _time(event: Event) -> float:
    value = event.get("ts")
    return float(value) if isinstance(value, int | float) else 0.0


def _owners(events: list[Event]) -> Owned:
    """The scope of each kernel, by its flow where it has one, else by the call stack of its launch."""
    by_stack: dict[tuple[str, ...], list[tuple[float, int]]] = {}
    by_place: dict[tuple[object, float], int] = {}
    for place, event in enumerate(events):
        if event.get("ph") == "X" and event.get("cat") == "scope":
            by_stack.setdefault(_stack(event), []).append((_time(event), place))
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
        stack = _stack(event)
        owner = ends.get((str(event.get("tid")), _time(event)), -1)
        for length in range(len(stack) - 1, 0, -1) if owner < 0 else ():
            there = by_stack.get(stack[:length])
            if there:
                owner = there[max(bisect_right(there, (_time(event), len(events))) - 1, 0)][1]
                break
        if owner >= 0:
            kernels.append(place)
            scopes.append(owner)
    return Owned(kernels, scopes)


def _attributed(capture: Capture, owned: Owned) -> Capture:
    """With the launch of each kernel at its scope."""
    device, host = capture.device, capture.host
    warnings = [NOT_NAMED]
    if owned.kernels and len(host):
        place = np.full(max(int(host["index"].max()), *owned.scopes) + 1, -1, np.int64)
        place[host["index"].to_numpy()] = np.arange(len(host))
        wanted = dict(zip(owned.kernels, place[owned.scopes].tolist(), strict=True))
        row = np.array([wanted.get(i, -1) for i in device["index"].tolist()], np.int32)
        there = row >= 0
        link = np.where(there, S.BY_FLOW, device["link"].to_numpy()).astype(np.int8)
        device = device.assign(call=row, annotation=row, link=link)
    elif len(device):
        warnings.append(NO_SCOPES)
    issues = capture.tables["issues"]
    gone = int((device["link"].to_numpy() == S.NO_RECORD).sum()) if len(device) else 0
    counts = [gone if r == "no launch record" else n for r, n in zip(issues["reason"].astype(str), issues["count"].tolist(), strict=True)]
    issues = issues.assign(count=counts)
    facts = msgspec.structs.replace(
        capture.facts, warnings=(*capture.facts.warnings, *warnings), metadata={**capture.facts.metadata, "profiler": "proton"}
    )
    return Capture(facts, {**capture.tables, "device": device, "issues": issues[issues["count"] > 0].reset_index(drop=True)})
