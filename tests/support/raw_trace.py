"""A second reader of recordings that shares no code with the product: JSON, containment of calls, unions of intervals.

A device event belongs to the operator calls around the runtime call with its correlation number, on the thread of that call.
"""

from __future__ import annotations

import bisect
import gzip
import json
from collections import defaultdict
from decimal import Decimal
from functools import cache
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

SIZE = {"c10::BFloat16": 2, "c10::Half": 2, "float": 4, "double": 8, "long int": 8, "int": 4, "bool": 1, "unsigned char": 1}


class Call(NamedTuple):
    """One operator call of the raw file: sizes as text, tensors (sizes, type, elements in memory), its place in the file."""

    name: str
    sizes: str
    tensors: tuple[tuple[tuple[int, ...], str, int], ...]
    number: int


class Device(NamedTuple):
    start: int
    end: int
    number: object
    around: tuple[Call, ...]
    """Operator calls around the launch, outermost first."""


def ns(value: object) -> int:
    return round(Decimal(str(value)) * 1000)


def sizes_text(shapes: list[Any]) -> str:
    words = []
    for shape in shapes:
        lists = [x for x in shape if isinstance(x, list)] if isinstance(shape, list) else []
        if lists:
            more = f" … {len(lists)}" if len(lists) > 4 else ""
            words.append("[" + ", ".join("×".join(map(str, x)) for x in lists[:4]) + more + "]")
        elif shape:
            words.append("×".join(map(str, shape)))
    return " ".join(words)


def call_of(event: dict[str, Any], number: int) -> Call:
    args = event.get("args", {})
    shapes = args.get("Input Dims", args.get("Input dims")) or []
    types = args.get("Input type") or []
    strides = args.get("Input Strides") or []
    tensors = []
    for at, (shape, kind) in enumerate(zip(shapes, types, strict=False)):
        if kind in SIZE and all(isinstance(s, int) for s in shape):
            steps = strides[at] if at < len(strides) and len(strides[at]) == len(shape) else [1] * len(shape)
            tensors.append((tuple(shape), kind, prod(1 if step == 0 else s for s, step in zip(shape, steps, strict=True))))
    return Call(event["name"], sizes_text(shapes), tuple(tensors), number)


@cache
def raw(path: Path) -> tuple[Device, ...]:
    events = json.loads(gzip.decompress(path.read_bytes()).decode("utf8", "replace"), parse_float=Decimal)["traceEvents"]
    threads: dict[object, list[tuple[int, int, Call]]] = defaultdict(list)
    launches, device = {}, []
    for number, e in enumerate(events):
        category = e.get("cat") if e.get("ph") == "X" else None
        if category in ("cpu_op", "Operator"):
            threads[e["pid"], e["tid"]].append((ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), call_of(e, number)))
        elif category in ("cuda_runtime", "cuda_driver", "Runtime"):
            launches[e.get("args", {}).get("correlation")] = (e["pid"], e["tid"], ns(e["ts"]))
        elif category in ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"):
            device.append(e)
    parents: dict[object, list[int]] = {}
    for key, calls in threads.items():
        calls.sort(key=lambda c: (c[0], -c[1]))
        parents[key], stack = [], []
        for at, (start, _, _) in enumerate(calls):
            while stack and calls[stack[-1]][1] <= start:
                stack.pop()
            parents[key].append(stack[-1] if stack else -1)
            stack.append(at)
    out = []
    for e in device:
        pid, tid, time = launches.get(e.get("args", {}).get("correlation"), (None, None, 0))
        calls, above = threads.get((pid, tid), []), []
        at = bisect.bisect_right(calls, time, key=lambda c: c[0]) - 1
        while at >= 0:
            if calls[at][1] > time:
                above.append(calls[at][2])
            at = parents[pid, tid][at]
        out.append(Device(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"]), e["args"].get("device", e["pid"]), tuple(reversed(above))))
    return tuple(out)


def union(events: list[Device]) -> int:
    total = 0
    for number in {d.number for d in events}:
        reach = 0
        for start, end in sorted((d.start, d.end) for d in events if d.number == number):
            total += max(0, end - max(start, reach))
            reach = max(reach, end)
    return total
