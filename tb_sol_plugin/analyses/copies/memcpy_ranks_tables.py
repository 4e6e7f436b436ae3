"""One row per worker and direction, and what is asked of them: medians, who is far, sums over the ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.copies import counted, groups, records
from tb_sol_plugin.metrics.copies.blocking import blocking
from tb_sol_plugin.metrics.copies.records import DIRECTIONS
from tb_sol_plugin.metrics.ranks import peers
from tb_sol_plugin.metrics.time.scope import in_steps, scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.tables.arrays import Floats
from tb_sol_plugin.units import human

# -- What the comparison of ranks needs of one worker ----------------------------------------------------------------
# a few numbers per direction of its copies.


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


NAN: Final = float("nan")
PEERS: Final = "PtoP"


class Measure(NamedTuple):
    """A column that ranks are compared by, its unit, its words, and the difference up to which ranks are near each other."""

    column: str
    unit: str
    words: str
    least: float


MEASURES: Final = {
    "time": Measure("time_per_step_ns", "ns", "time per step", 100e3),
    "exposed": Measure("exposed_per_step_ns", "ns", "exposed time per step", 100e3),
    "bytes": Measure("bytes_per_step", "B", "bytes per step", 0.0),
    "bandwidth": Measure("bandwidth_bytes_per_s", "B/s", "bandwidth", 0.0),
    "host": Measure("host_per_step_ns", "ns", "host time held per step", 100e3),
}
"""By the query field `what`."""


def times_text(ratio: float) -> str:
    """A ratio with the digits that say something: `1.61`, `10.00`, `5 449`."""
    return f"{ratio:.2f}" if ratio < 100 else human(round(ratio), "count")


@dataclass(frozen=True)
class Ranks:
    """rows: one per worker and direction that it copies in, in order of rank and direction; columns as the table of ranks.

    span, counts, far: per row. counting: the workers that numbers over the run are made of, in order of rank, labels what a reader
    calls them. matrix: by column, one value per counting worker and direction (rows in the order of `directions`); NaN is unknown.
    directions: those with a copy, in order of display. per: what numbers are per. peers_unknown: copies between devices may be missing.
    """

    rows: pd.DataFrame
    span: tuple[str, ...]
    counts: tuple[bool, ...]
    far: tuple[bool, ...]
    counting: tuple[str, ...]
    labels: tuple[str, ...]
    matrix: dict[str, Floats]
    directions: tuple[str, ...]
    per: str
    peers_unknown: bool

    def values(self, direction: str, what: str) -> Floats:
        """Of every counting worker the value that is compared."""
        return np.asarray(self.matrix[MEASURES[what].column][self.directions.index(direction)], np.float64)

    def known(self, what: str) -> bool:
        """Whether the compared value is known for any worker."""
        return bool(np.isfinite(self.matrix[MEASURES[what].column]).any()) or not self.directions

    def spread(self, direction: str, what: str) -> peers.Spread:
        """How far the counting workers lie apart."""
        return _spread(direction, self.values(direction, what))

    def holders(self, direction: str) -> int:
        """Counting workers that copy in a direction."""
        return int((self.matrix["count"][self.directions.index(direction)] > 0).sum())

    def name_at(self, place: int) -> str | None:
        """What a reader calls the counting worker at a position."""
        return self.labels[place] if place >= 0 else None

    def rate(self, direction: str) -> float | None:
        """Bytes over time of all counting workers, of the copies that carry a size."""
        at = self.directions.index(direction)
        size, time = self.matrix["bytes"][at], self.matrix["sized_ns"][at]
        both = np.isfinite(size) & np.isfinite(time)
        moved, total = float(size[both].sum()), float(time[both].sum())
        return moved / total * 1e9 if total > 0 and moved > 0 else None

    def mean(self, column: str) -> float | None:
        """Mean of the sum over directions, over the counting workers that know it for any of theirs; None where nobody does."""
        values, held = self.matrix[column], self.matrix["count"] > 0
        knows = ~held.any(axis=0) | (held & np.isfinite(values)).any(axis=0)
        if not values.size or not knows.any():
            return None
        return float(np.nansum(values[:, knows]) / int(knows.sum()))


def rows_of(found: peers.Crew[RankPart], parts: dict[str, RankPart], what: str) -> Ranks:
    """The rows of the workers that were read, compared by `what` (a key of MEASURES)."""
    held = {d.direction for part in parts.values() for d in part.directions}
    directions = tuple(d for d in DIRECTIONS if d in held)
    numbers, has = _numbers([parts[w.worker] for w in found.read], directions)
    counts = np.array([w.worker in found.counting for w in found.read], bool)
    matrix = {name: values[counts].T for name, values in numbers.items()}
    measure = MEASURES[what]
    is_far = np.zeros(has.shape, bool)
    median = np.full(len(directions), NAN)
    for at, values in enumerate(matrix[measure.column]):
        is_far[counts, at] = peers.far(values, measure.least)
        middle = _spread(directions[at], values).median
        median[at] = middle if middle else NAN
    worker, direction = np.nonzero(has)
    frame = pd.DataFrame({name: _column(values[has], name) for name, values in numbers.items() if not name.startswith("in_steps")})
    frame["of_median"] = (numbers[measure.column] / median)[has]
    frame["direction"] = [directions[d] for d in direction]
    frame["worker"] = [found.read[w].worker for w in worker]
    frame["rank"] = pd.Series([found.read[w].rank for w in worker], dtype=object)
    frame["steps"] = [parts[found.read[w].worker].steps for w in worker]
    frame["id"] = [f"{found.read[w].worker}|{directions[d]}" for w, d in zip(worker, direction, strict=True)]
    counting = [w for w in found.read if w.worker in found.counting]
    several = max((p.devices for p in parts.values()), default=0) > 1 or (found.world or len(found.read)) > 1
    return Ranks(
        frame, tuple(found.read[w].span for w in worker), tuple(counts[worker].tolist()), tuple(is_far[has].tolist()),
        tuple(w.worker for w in counting), tuple(peers.label(w) for w in counting), matrix, directions,
        "per step" if any(p.steps for p in parts.values()) else "in the recording",
        several and any(p.events for p in parts.values()) and PEERS not in directions,
    )  # fmt: skip


def _spread(direction: str, values: Floats) -> peers.Spread:
    """How far values of a direction lie apart. Of peer copies that some ranks may not have recorded there is no median."""
    found = peers.spread(values)
    return replace(found, median=None) if direction == PEERS and found.count < len(values) else found


_FIELDS: Final = Direction.__struct_fields__[1:]
_PER_STEP: Final = {
    "count_per_step": "in_steps_count", "bytes_per_step": "in_steps_bytes", "time_per_step_ns": "in_steps_time_ns",
    "exposed_per_step_ns": "in_steps_exposed_ns", "host_per_step_ns": "in_steps_lost_ns",
}  # fmt: skip


def _numbers(parts: list[RankPart], directions: tuple[str, ...]) -> tuple[dict[str, Floats], npt.NDArray[np.bool_]]:
    """By column a value per worker and direction, NaN where unknown; and whether the worker copies in that direction at all.

    A worker without copies in a direction has 0 of everything and no bandwidth. Copies between devices are unknown where none was
    recorded: profilers may leave them out.
    """
    place = {d: i for i, d in enumerate(directions)}
    raw = np.zeros((len(_FIELDS), len(parts), len(directions)))
    has = np.zeros((len(parts), len(directions)), bool)
    for row, part in enumerate(parts):
        for one in part.directions:
            at = place[one.direction]
            raw[:, row, at] = [NAN if v is None else v for v in msgspec.structs.astuple(one)[1:]]
            has[row, at] = True
        if part.events and PEERS in place and not has[row, place[PEERS]]:
            raw[:, row, place[PEERS]] = NAN
    out: dict[str, Floats] = dict(zip(_FIELDS, raw, strict=True))
    steps = np.array([max(p.steps, 1) for p in parts], np.float64)[:, None]
    out |= {name: out[of] / steps for name, of in _PER_STEP.items()}
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = (out["bytes"] > 0) & (out["sized_ns"] > 0)
        out["bandwidth_bytes_per_s"] = np.where(moved, out["bytes"] / out["sized_ns"] * 1e9, NAN)
    return out, has


def _column(values: Floats, name: str) -> pd.Series[float]:
    """Whole numbers where the unit has no parts: counts, bytes and ns; None where unknown."""
    if name in ("count_per_step", "bandwidth_bytes_per_s"):
        return pd.Series(values, dtype=np.float64)
    return pd.Series([round(v) if v == v else None for v in values.tolist()], dtype=object)
