"""Copies of each rank and direction, as columns that are compared over the ranks."""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.copies import counted, groups, records
from tb_sol_plugin.metrics.copies.blocking import blocking
from tb_sol_plugin.metrics.copies.records import DIRECTIONS
from tb_sol_plugin.metrics.ranks.comparison import Comparison, Measure, Ranks, frame_of, whole
from tb_sol_plugin.metrics.time.scope import in_steps, scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.units import human

# -- Reduction of one rank --------------------------------------------------------------------------------------------
# a few numbers per direction of its copies.


class Direction(msgspec.Struct, frozen=True):
    """Copies of one direction in the selection. None is unknown.

    bytes: of the copies that carry a size, sized_ns their time. time_ns: plain sum of durations. hidden_ns + exposed_ns: union of the
    copies per device. lost_ns: host time that those took which blocked the host, each nanosecond of a thread once; waits: how many did.
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


PEERS: Final = "PtoP"
MEASURES: Final = {
    "time": Measure("time_per_step_ns", "ns", "time per step", 100e3),
    "exposed": Measure("exposed_per_step_ns", "ns", "exposed time per step", 100e3),
    "bytes": Measure("bytes_per_step", "B", "bytes per step"),
    "bandwidth": Measure("bandwidth_bytes_per_s", "B/s", "bandwidth"),
    "host": Measure("host_per_step_ns", "ns", "host time held per step", 100e3),
}
"""By the query field `what`."""

CopyRanks: TypeAlias = Comparison[RankPart]
_PER_STEP: Final = {
    "count_per_step": "in_steps_count", "bytes_per_step": "in_steps_bytes", "time_per_step_ns": "in_steps_time_ns",
    "exposed_per_step_ns": "in_steps_exposed_ns", "host_per_step_ns": "in_steps_lost_ns",
}  # fmt: skip
_FRACTIONS: Final = ("count_per_step", "bandwidth_bytes_per_s")
"""Columns that are not rounded."""


def times_text(ratio: float) -> str:
    """A ratio with two decimals below 100, else rounded: `1.61`, `5 449`."""
    return f"{ratio:.2f}" if ratio < 100 else human(round(ratio), "count")


def compare(ranks: Ranks[RankPart], parts: list[RankPart], what: str) -> CopyRanks:
    """Copies of the ranks by direction, compared by `what` (a key of MEASURES). parts: of `ranks.read`."""
    frame = _columns(parts)
    directions = tuple(d for d in DIRECTIONS if d in set(frame["direction"]))
    frame["group"] = [directions.index(d) for d in frame["direction"]]
    return Comparison(ranks, frame, directions, MEASURES[what], frozenset({PEERS}))


def _columns(parts: list[RankPart]) -> pd.DataFrame:
    """One row per rank and direction in which any rank copies, `recorded` where this one does.

    A rank without copies in a direction has 0 of everything and no bandwidth. Copies between devices are unknown where none was
    recorded: profilers may leave them out.
    """
    found = frame_of(((at, one) for at, part in enumerate(parts) for one in part.directions), Direction)
    numbers = [c for c in Direction.__struct_fields__ if c != "direction"]
    found = found.astype(dict.fromkeys(("at", *numbers), np.float64)).assign(recorded=True)
    directions = [d for d in DIRECTIONS if d in set(found["direction"])]
    every = pd.MultiIndex.from_product([range(len(parts)), directions], names=["at", "direction"])
    frame = found.set_index(["at", "direction"]).reindex(every).reset_index()
    at = frame["at"].to_numpy(np.int64)
    frame["recorded"] = frame["recorded"].to_numpy(object) == True  # noqa: E712
    unknown = (frame["direction"] == PEERS).to_numpy() & np.array([p.events for p in parts], bool)[at]
    frame.loc[~frame["recorded"].to_numpy() & ~unknown, numbers] = 0.0
    frame["steps"] = np.array([p.steps for p in parts], np.int64)[at]
    for name, of in _PER_STEP.items():
        frame[name] = frame[of] / np.maximum(frame["steps"], 1)
    moved = (frame["bytes"] > 0) & (frame["sized_ns"] > 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        frame["bandwidth_bytes_per_s"] = np.where(moved, frame["bytes"] / frame["sized_ns"] * 1e9, np.nan)
    return frame


def known(ranks: CopyRanks) -> bool:
    """Whether the compared value is known for any rank."""
    return bool(np.isfinite(ranks.counted()).any()) or not ranks.groups


def rows(ranks: CopyRanks) -> list[int]:
    """Rows of the table of ranks: those of the directions in which a rank copies."""
    return [int(i) for i in np.flatnonzero(ranks.frame["recorded"])]


def displayed(ranks: CopyRanks) -> pd.DataFrame:
    """The table of ranks without the columns that name a rank."""
    frame = ranks.frame.iloc[rows(ranks)].reset_index(drop=True)
    numbers = [c for c in (*Direction.__struct_fields__[1:10], *_PER_STEP) if c not in _FRACTIONS]
    return frame.assign(**{c: whole(frame[c]) for c in numbers})


def mean(ranks: CopyRanks, column: str) -> float | None:
    """Mean over ranks of the sum over directions, of the ranks that know it for any direction; None where none does."""
    values, copies = ranks.matrix(column), ranks.matrix("count") > 0
    knows = ~copies.any(axis=0) | (copies & np.isfinite(values)).any(axis=0)
    if not values.size or not knows.any():
        return None
    return float(np.nansum(values[:, knows]) / int(knows.sum()))


def per(parts: list[RankPart]) -> str:
    """The words for what numbers are divided by."""
    return "per step" if any(p.steps for p in parts) else "in the recording"


def peers_unknown(ranks: CopyRanks, parts: list[RankPart]) -> bool:
    """Whether copies between devices may be missing: several devices ran, and none was recorded."""
    several = max((p.devices for p in parts), default=0) > 1 or (ranks.ranks.world_size or len(ranks.ranks.read)) > 1
    return several and any(p.events for p in parts) and PEERS not in ranks.groups
