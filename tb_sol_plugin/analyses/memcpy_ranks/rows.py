"""One row per worker and direction, and what is asked of them: medians, who is far, sums over the ranks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.analyses.memcpy_ranks.part import Direction, RankPart
from tb_sol_plugin.metrics import peers
from tb_sol_plugin.metrics.memcpy.records import DIRECTIONS

Floats = npt.NDArray[np.float64]
NAN: Final = float("nan")


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

    def spread(self, direction: str, what: str) -> peers.Spread:
        """How far the counting workers lie apart."""
        return peers.spread(self.values(direction, what))

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
        """Mean over the counting workers of the sum over directions; None where one is unknown for all."""
        values = self.matrix[column]
        if not values.size or not np.isfinite(values).any():
            return None
        return float(np.nansum(values) / values.shape[1])


def rows_of(found: peers.Crew[RankPart], parts: dict[str, RankPart], what: str) -> Ranks:
    """The rows of the workers that were read, compared by `what` (a key of MEASURES)."""
    held = {(w, d.direction): d for w, p in parts.items() for d in p.directions}
    directions = tuple(d for d in DIRECTIONS if any(d == name for _, name in held))
    counting = tuple(w for w in found.read if w.worker in found.counting)
    matrix = {
        name: np.array([[_value(name, held.get((w.worker, d)), parts[w.worker]) for w in counting] for d in directions], np.float64)
        for name in (*_COLUMNS, "sized_ns")
    }  # fmt: skip
    measure = MEASURES[what]
    medians = {d: peers.spread(row).median for d, row in zip(directions, matrix[measure.column], strict=True)}
    is_far = {
        (w.worker, d)
        for d, row in zip(directions, matrix[measure.column], strict=True)
        for w, yes in zip(counting, peers.far(row, measure.least), strict=True)
        if yes
    }
    told = [(w, d) for w in found.read for d in directions if (w.worker, d) in held]
    numbers = {name: _column([_value(name, held[w.worker, d], parts[w.worker]) for w, d in told], name) for name in _COLUMNS}
    frame = pd.DataFrame({
        "rank": pd.Series([w.rank for w, _ in told], dtype=object), "direction": [d for _, d in told],
        "worker": [w.worker for w, _ in told], "steps": [parts[w.worker].steps for w, _ in told],
        "id": [f"{w.worker}|{d}" for w, d in told], **numbers,
    })  # fmt: skip
    compared = frame[measure.column].to_numpy(np.float64, na_value=NAN) if len(frame) else np.zeros(0)
    frame["of_median"] = [v / m if (m := medians[d]) else NAN for v, (_, d) in zip(compared.tolist(), told, strict=True)]
    several = max((p.devices for p in parts.values()), default=0) > 1 or (found.world or len(found.read)) > 1
    return Ranks(
        frame, tuple(w.span for w, _ in told), tuple(w.worker in found.counting for w, _ in told),
        tuple((w.worker, d) in is_far for w, d in told), tuple(w.worker for w in counting), tuple(peers.label(w) for w in counting),
        matrix, directions, "per step" if any(p.steps for p in parts.values()) else "in the recording",
        several and any(p.events for p in parts.values()) and "PtoP" not in directions,
    )  # fmt: skip


_WHOLE: Final = ("count", "bytes", "without_bytes", "time_ns", "hidden_ns", "exposed_ns", "waits")
_PER_STEP: Final = {
    "count_per_step": "count", "bytes_per_step": "bytes", "time_per_step_ns": "time_ns", "exposed_per_step_ns": "exposed_ns",
    "host_per_step_ns": "lost_ns",
}  # fmt: skip
_COLUMNS: Final = (*_WHOLE, *_PER_STEP, "bandwidth_bytes_per_s")


def _value(name: str, of: Direction | None, worker: RankPart) -> float:
    """A number of a worker's direction; NaN where unknown. Without any copy all but the bandwidth are 0."""
    if name == "bandwidth_bytes_per_s":
        return of.bytes / of.sized_ns * 1e9 if of is not None and of.bytes and of.sized_ns else NAN
    if of is None:
        return 0.0
    found = getattr(of, _PER_STEP.get(name, name))
    if found is None:
        return NAN
    return float(found) / max(worker.steps, 1) if name in _PER_STEP else float(found)


def _column(values: list[float], name: str) -> pd.Series[float]:
    """Whole numbers where the unit has no parts: counts, bytes and ns; None where unknown."""
    if name in ("count_per_step", "bandwidth_bytes_per_s"):
        return pd.Series(values, dtype=np.float64)
    return pd.Series([round(v) if v == v else None for v in values], dtype=object)
