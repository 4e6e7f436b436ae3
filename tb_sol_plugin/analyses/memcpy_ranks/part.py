"""What the comparison of ranks needs of one worker: a few numbers per direction of its copies."""

from __future__ import annotations

import math

import msgspec
import numpy as np

from tb_sol_plugin.metrics.copies import counted, groups, records
from tb_sol_plugin.metrics.copies.blocking import blocking
from tb_sol_plugin.metrics.time.scope import in_steps, scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query


class Direction(msgspec.Struct, frozen=True):
    """Copies of one direction in the selection. None is unknown.

    bytes: of the copies that carry a size, sized_ns their time. time_ns: plain sum of durations. hidden_ns + exposed_ns: union of the
    copies per device. lost_ns: host time that those took which held the host, each nanosecond of a thread once; waits: how many did.
    in_steps_…: the same of the copies that steps launched; of all of them where no step was recorded.
    """

    direction: str
    count: int
    bytes: int | None
    without_bytes: int
    time_ns: int | None
    sized_ns: int | None
    hidden_ns: int | None
    exposed_ns: int | None
    lost_ns: int | None
    waits: int | None
    in_steps_count: int
    in_steps_bytes: int | None
    in_steps_time_ns: int | None
    in_steps_exposed_ns: int | None
    in_steps_lost_ns: int | None


class RankPart(msgspec.Struct, frozen=True):
    """One worker. steps: what per-step numbers divide by; 0 where no step was recorded. window_ns: length of what was looked at.

    events: the copies were recorded as device events; else they were counted, and most of their times are not known.
    devices: on which copies or kernels ran.
    """

    steps: int
    window_ns: int
    events: bool
    devices: int
    directions: tuple[Direction, ...]


def part(capture: Capture, query: Query) -> RankPart:
    """The part of one worker."""
    where = scope(capture, query)
    if not len(capture.device) and counted.has(capture):
        rows = counted.table(capture, "direction", where)
        found = tuple(_counted(dict(zip(rows.columns, row, strict=True))) for row in rows.itertuples(index=False, name=None))
        return RankPart(counted.iterations(capture, where), where.window_length_ns, False, 0, found)
    copies = records.copies(capture, where.device)
    held = blocking(capture, copies)
    table = groups.table(capture, where.device, "direction")
    directions, size, duration = (copies[c].to_numpy() for c in ("direction", "bytes", "duration_ns"))
    lost, holds = held["lost_ns"].to_numpy(), held["reason"].to_numpy(object) != ""
    hidden, exposed = (dict(zip(table["direction"].tolist(), table[c].tolist(), strict=True)) for c in ("hidden_ns", "exposed_ns"))
    told = len(capture.host) > 0
    inside = in_steps(capture, where)
    launched = inside[copies["row"].to_numpy()]
    some = table if launched.all() else groups.table(capture, inside, "direction")
    bare = dict(zip(some["direction"].tolist(), some["exposed_ns"].tolist(), strict=True))
    out = []
    for name in table["direction"].tolist():
        mine = directions == name
        sized = mine & (size >= 0)
        out.append(Direction(
            name, int(mine.sum()), int(size[sized].sum()) if sized.any() else None, int((mine & (size < 0)).sum()),
            int(duration[mine].sum()), int(duration[sized].sum()) if sized.any() else None,
            hidden[name], exposed[name],
            int(lost[mine].sum()) if told else None, int((mine & holds).sum()) if told else None,
            int((mine & launched).sum()), int(size[sized & launched].sum()) if sized.any() else None,
            int(duration[mine & launched].sum()), bare.get(name, 0), int(lost[mine & launched].sum()) if told else None,
        ))  # fmt: skip
    devices = int(np.unique(capture.device["device"].to_numpy()).size)
    return RankPart(where.step_count if where.steps else 0, where.window_length_ns, True, devices, tuple(out))


def _counted(row: dict[str, object]) -> Direction:
    """A direction of counted copies: nobody saw them run, so what hides them and what they cost the host is not known."""
    time, rate = _whole(row["time_ns"]), row["bandwidth_bytes_per_s"]
    size = _whole(row["bytes"])
    sized = round(size / rate * 1e9) if size and isinstance(rate, float) and rate > 0 else None
    count, without = int(str(row["count"])), int(str(row["without_bytes"]))
    waits = _whole(row["blocking"])
    return Direction(str(row["direction"]), count, size, without, time, sized, None, None, None, waits, count, size, time, None, None)


def _whole(value: object) -> int | None:
    return round(value) if isinstance(value, int | float) and math.isfinite(value) else None
