"""Slow references of the timeline: lanes, merged items and tiles by plain loops over single events; a reader of binary tiles."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.workers import Workers
from tb_sol_plugin.web.tiles import join
from tb_sol_plugin.web.timeline import tiles_made

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
        whole = bytearray(width * n)
        for k in range(width):  # planes from the lowest byte up
            whole[k::width] = body[at + k * n : at + (k + 1) * n]
        at += width * n + -width * n % 4
        return list(struct.unpack(f"<{n}{' BH I'[width]}", whole))

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


def check_tiles(shown: Timeline, levels: Sequence[int], *, most: int = 64) -> int:
    """Asserts that tiles of every track of events are what plain loops find in its lanes, column by column. Returns how many items there were.

    levels: those to look at; of one with more than `most` tiles, those around some events.
    """
    workers, total = Workers([shown]), 0
    for track, one in enumerate(shown.tracks):
        lanes = []
        for lane in range(one.first_lane, one.first_lane + one.lanes):
            ids = shown.arranged.order[int(shown.arranged.bounds[lane]) : int(shown.arranged.bounds[lane + 1])]
            start, duration = shown.events.times(ids)
            lanes.append(list(zip(start.tolist(), duration.tolist(), ids.tolist(), strict=True)))
        for z in levels if lanes else ():
            wide, count, busy = 1 << (z + 10), 0, 0
            last = max(0, (shown.span_ns - 1) // wide)
            every = last < most
            some = {0, last, *(e[0] // wide for lane in lanes for e in lane[:: max(1, len(lane) // 4)])}
            level = [merged(own, z) for own in lanes]
            for i in range(last + 1) if every else sorted(at for at in some if at >= 0):
                want = [window(items, i * wide, (i + 1) * wide) for items in level]
                flat = [item for own in want for item in own]
                (packed,) = decoded(join(z, tiles_made(workers, track, z, i, i)))
                names = workers.name_ids(0, np.array([item[2] for item in flat], np.uint32)).tolist()
                assert (packed["event"], packed["name"]) == ([item[2] for item in flat], names), (one.path, z, i)
                assert packed["count"] == [min(item[3], 65_535) for item in flat] and packed["lanes"] == [len(own) for own in want]
                begin, unit = i * wide, 1 << packed["shift"]
                low = [max(item[0] - begin, -wide) // unit * unit for item in flat]
                high = [max(min(item[1] - begin, 2 * wide) // unit * unit, a + unit) for item, a in zip(flat, low, strict=True)]
                assert (packed["start"], packed["end"]) == (low, high), (one.path, z, i)
                assert packed["busy"] == [min(255 * b // (e - s), 255) if e > s else 255 for s, e, _, _, b in flat]
                own_items = [item for item in flat if item[0] >= begin]
                count, busy, total = count + sum(x[3] for x in own_items), busy + sum(x[4] for x in own_items), total + len(flat)
            early = [item for own in level for item in own if item[0] < 0]
            if every:  # each event is in one tile, but for those carried into others
                assert count == one.events - sum(x[3] for x in early), (one.path, z)
                assert busy == sum(e[1] for lane in lanes for e in lane) - sum(x[4] for x in early), (one.path, z)
    return total
