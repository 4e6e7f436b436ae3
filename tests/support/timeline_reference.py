"""Slow references of the timeline: lanes, merged items and tiles by plain loops over single events; a reader of binary tiles."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

Event = tuple[int, int, int]
"""start, duration, id"""
Item = tuple[int, int, int, int, int]
"""start, end, event, count, busy"""


def lane_of_each(events: Sequence[tuple[int, int]]) -> list[int]:
    """Returns lanes of (start, end) in order of start, longest first: below the last one that holds it, on the first free lane."""
    lanes: list[int] = []
    for row, (start, end) in enumerate(events):
        around = [lanes[i] for i, (a, b) in enumerate(events[:row]) if a <= start < b and end <= b]
        lane = around[-1] + 1 if around else 0
        while any(lanes[i] == lane and b > start for i, (_, b) in enumerate(events[:row])):
            lane += 1
        lanes.append(lane)
    return lanes


def merged(events: Sequence[Event], z: int) -> list[Item]:
    """Returns the items of one lane at level z."""
    out: list[list[int]] = []
    bucket: int | None = None
    for start, duration, event in events:
        if duration >= 1 << z:
            out.append([start, start + duration, event, 1, duration, duration])
            bucket = None
        elif bucket == start // (1 << z):
            item = out[-1]
            item[1] = max(item[1], start + duration)
            if duration > item[5]:
                item[2], item[5] = event, duration
            item[3] += 1
            item[4] += duration
        else:
            out.append([start, start + duration, event, 1, duration, duration])
            bucket = start // (1 << z)
    return [(i[0], i[1], i[2], i[3], i[4]) for i in out]


def window(items: Sequence[Item], begin: int, end: int) -> list[Item]:
    """Returns the items that reach into a window; one without length stands where it starts."""
    return [i for i in items if (i[1] > begin and i[0] < end) or i[0] == i[1] == begin]


def decoded(body: bytes) -> list[dict[str, Any]]:
    """Returns the blocks of a binary answer with their columns as lists, times in ns after the begin of the tile."""
    assert body[:4] == b"SLT1"
    (length,) = struct.unpack("<I", body[4:8])
    header = json.loads(body[8 : 8 + length])
    assert header["v"] == 1 and length % 4 == 0
    out = []
    for block in header["blocks"]:
        at = 8 + length + block["offset"]
        block = {**block, "z": header["z"]}
        if block["kind"] == "slices":
            block |= _slices(body, at, block)
        elif block["kind"] == "counter":
            n = block["items"]
            block["time"] = [t << block["shift"] for t in struct.unpack(f"<{n}I", body[at : at + 4 * n])]
            at += 4 * n
            for name in ("min", "max", "last"):
                block[name] = list(struct.unpack(f"<{n}d", body[at : at + 8 * n]))
                at += 8 * n
        else:
            for name in ("category", "busy", "depth"):
                block[name] = list(body[at : at + 1024])
                at += 1024
        out.append(block)
    return out


def _slices(body: bytes, at: int, block: dict[str, Any]) -> dict[str, list[int]]:
    n = block["items"]

    def column(width: int) -> list[int]:
        nonlocal at
        planes = [body[at + k * n : at + (k + 1) * n] for k in range(width)]
        at += width * n + -width * n % 4
        return [sum(plane[i] << (8 * k) for k, plane in enumerate(planes)) for i in range(n)]

    starts, lengths, events, names, counts = (column(w) for w in (4, 4, 4, block["name_bytes"], 2))
    busy = column(1)
    start, event, a, b = [], [], 0, 0
    for i in range(n):
        a, b = (a + starts[i]) & 0xFFFFFFFF, (b + events[i]) & 0xFFFFFFFF
        start.append(a - (1 << 32) if a >= 1 << 31 else a)
        event.append(b)
    shift = block["shift"]
    return {
        "start": [s << shift for s in start],
        "end": [(s + d) << shift for s, d in zip(start, lengths, strict=True)],
        "event": event,
        "name": [block["names"][i] for i in names],
        "count": counts,
        "busy": busy,
    }
