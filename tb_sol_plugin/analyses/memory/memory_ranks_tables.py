"""One row per worker, and one per pipeline stage: medians within a stage, who is far from the others of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.memory.attribution import By, answers, holders
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.expected import place
from tb_sol_plugin.metrics.memory.labels import label
from tb_sol_plugin.metrics.memory.sources import SOURCES
from tb_sol_plugin.metrics.memory.summary import look
from tb_sol_plugin.metrics.ranks import peers
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query
from tb_sol_plugin.model.report import Scalar
from tb_sol_plugin.tables.arrays import Floats

# -- What the comparison of ranks needs of one worker ----------------------------------------------------------------
# the numbers of its memory, in bytes; None is unknown.


NAME: Final = 120
"""Characters of the name of a holder."""
BY: Final[tuple[By, ...]] = ("category", "module")


class RankPart(msgspec.Struct, frozen=True):
    """One worker, of the memory of its device with most in use.

    peak, reserved: in use and held at most; reserved_at_peak: held when most was in use. before, end: in use before the window and at its
    end. capacity: of the device, base: used on it beside the allocator; left: capacity less base less most held, at_most: where the base is
    not known. growth: bytes per step where a line through the steps says so, verdict: of `leak`. failures: allocations that failed.
    holder, held: what held most at the peak, by category or module, and how much. stage: of the pipeline. relative: levels are changes.
    """

    device: str
    source: str
    relative: bool
    window_ns: int
    peak: int
    reserved: int | None
    reserved_at_peak: int | None
    fragmentation: int | None
    before: int | None
    end: int
    capacity: int | None
    base: int | None
    left: int | None
    at_most: int | None
    growth: float | None
    verdict: str
    failures: int | None
    holder: str
    held: int | None
    stage: int | None
    stages: int | None


def part(capture: Capture, query: Query) -> RankPart:
    """The part of one worker. Unavailable where no device's allocator was recorded."""
    looked = look(capture, query)
    memory, whole, curve, found, room = looked.memory, looked.every, looked.curve, looked.found, looked.room
    name, held = _holder(capture, memory.curves, whole.source)
    at = place(capture).get("pp")
    return RankPart(
        device=memory.label, source=SOURCES[whole.source], relative=found.relative,
        window_ns=int(curve.time_ns[-1] - curve.time_ns[0]), peak=found.peak, reserved=found.reserved,
        reserved_at_peak=found.reserved_at_peak, fragmentation=found.fragmentation, before=found.before, end=found.end,
        capacity=room.total.bytes, base=room.base.bytes, left=room.left.bytes, at_most=room.at_most,
        growth=looked.growth, verdict=looked.grows.verdict if looked.grows is not None else "no_steps",
        failures=looked.failures,
        holder=name[:NAME], held=held, stage=at[0] if at is not None else None,
        stages=at[1] if at is not None else None,
    )  # fmt: skip


def _holder(capture: Capture, curves: tuple[Curves, ...], source: str) -> tuple[str, int | None]:
    """What held most at the peak, by category where any source can tell, else by module; ("", None) where none can."""
    ordered = sorted(curves, key=lambda c: c.source != source)
    for by in BY:
        for curve in ordered:
            if by in answers(capture, curve):
                rows = holders(capture, curve, by).rows
                known = rows[(rows["kind"] == "row") & (rows["bytes"] > 0)]
                if len(known):
                    top = known.iloc[int(known["bytes"].to_numpy().argmax())]
                    name = str(top["name"])
                    return label(name) if by == "category" else name, int(top["bytes"])
    return "", None


NEAR: Final = 64e6
"""Ranks that differ by no more than so many bytes are near each other."""


class Measure(NamedTuple):
    """A number that ranks are compared by: its column, its words, the difference up to which ranks are near each other."""

    column: str
    words: str
    least: float


MEASURES: Final = {
    "peak": Measure("peak", "memory in use at most", NEAR),
    "reserved": Measure("reserved", "memory held by the allocator at most", NEAR),
    "fragmentation": Measure("fragmentation", "memory held and not in use at the peak", NEAR),
    "before": Measure("before", "memory in use before the window", NEAR),
    "end": Measure("end", "memory in use at the end", NEAR),
    "growth": Measure("growth", "growth of memory in use per step", 1e6),
}
"""By the query field `what`."""


@dataclass(frozen=True)
class Ranks:
    """rows: one per worker that was read, in order of rank; columns as the table. span, far: per row. counts: whether a row counts.

    counting: positions of the rows that numbers over ranks are made of; labels: what a reader calls these. stage: of these, -1 where
    stages are not compared. values: of these what is compared (NaN unknown). stages: in order.
    """

    rows: pd.DataFrame
    span: tuple[str, ...]
    far: tuple[bool, ...]
    counts: tuple[bool, ...]
    counting: tuple[int, ...]
    labels: tuple[str, ...]
    stage: npt.NDArray[np.int64]
    values: Floats
    stages: tuple[int, ...]

    @property
    def staged(self) -> bool:
        """Whether stages of a pipeline are known: ranks are then compared within theirs."""
        return self.stages != (-1,)

    def of(self, column: str, stage: int | None = None) -> Floats:
        """Values of a column of the counting rows of a stage (None: all), NaN for the others and where unknown."""
        own = _floats(self.rows[column])[list(self.counting)]
        return np.where(self.stage == stage, own, np.nan) if stage is not None else own

    def name_at(self, place: int) -> str | None:
        """What a reader calls the counting worker at a position."""
        return self.labels[place] if place >= 0 else None


def rows_of(found: peers.Crew[RankPart], parts: dict[str, RankPart], what: str) -> Ranks:
    """The rows of the workers that were read, compared by `what` (a key of MEASURES)."""
    read = [(w, parts[w.worker]) for w in found.read]
    counts = np.array([w.worker in found.counting for w, _ in read], bool)
    staged = all(p.stage is not None for _, p in read) and len({p.stage for _, p in read}) > 1
    stage = np.array([p.stage if staged and p.stage is not None else -1 for _, p in read], np.int64)
    frame = pd.DataFrame({
        "rank": _objects([w.rank for w, _ in read]), "stage": _objects([None if p.stage is None else f"stage {p.stage}" for _, p in read]),
        **{name: _objects([getattr(p, name) for _, p in read]) for name in _TAKEN},
        "left": _objects([p.left if p.left is not None else p.at_most for _, p in read]),
        "holder": _objects([p.holder or None for _, p in read]),
        "worker": [w.worker for w, _ in read],
    })  # fmt: skip
    measure = MEASURES[what]
    own = _floats(frame[measure.column])
    far, median = np.zeros(len(read), bool), np.full(len(read), np.nan)
    stages = tuple(sorted(set(stage.tolist()))) if len(read) else ()
    for one in stages:
        mine = (stage == one) & counts
        far[mine] = peers.far(own[mine], measure.least)
        middle = peers.spread(own[mine]).median
        median[stage == one] = middle if middle is not None and middle > 0 else np.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        frame["of_median"] = own / median
    counting = np.flatnonzero(counts)
    return Ranks(
        frame, tuple(w.span for w, _ in read), tuple(far.tolist()), tuple(counts.tolist()), tuple(counting.tolist()),
        tuple(peers.label(found.read[i]) for i in counting.tolist()), stage[counting], own[counting], stages,
    )  # fmt: skip


_TAKEN: Final = (
    "peak", "reserved", "reserved_at_peak", "fragmentation", "before", "end", "capacity", "base", "growth", "verdict", "failures", "held",
    "device", "source",
)  # fmt: skip


def by_stage(ranks: Ranks, what: str) -> pd.DataFrame:
    """One row per stage over its ranks; where no stages are known one over all of them."""
    out: list[dict[str, object]] = []
    for stage in ranks.stages:
        value = peers.spread(np.where(ranks.stage == stage, ranks.values, np.nan))
        reserved, left = peers.spread(ranks.of("reserved", stage)), peers.spread(ranks.of("left", stage))
        growth = ranks.of("growth", stage)
        most_held, least_left = reserved.most != reserved.least, left.most != left.least
        verdicts = ranks.rows["verdict"].to_numpy(object)[list(ranks.counting)]
        out.append({
            "stage": f"stage {stage}" if stage >= 0 else "all ranks", "ranks": int((ranks.stage == stage).sum()),
            "median": whole(value.median, what), "most": whole(value.most, what),
            "most_rank": ranks.name_at(value.most_at) if value.most != value.least else None,
            "imbalance": value.imbalance, "excess": whole(value.excess, what),
            "reserved": whole(reserved.most, what), "reserved_rank": ranks.name_at(reserved.most_at) if most_held else None,
            "left": whole(left.least, what), "left_rank": ranks.name_at(left.least_at) if least_left else None,
            "growing": int(((verdicts == "leak") & (ranks.stage == stage)).sum()) if bool(np.isfinite(growth).any()) else None,
        })  # fmt: skip
    return pd.DataFrame(out, columns=list(out[0]) if out else None, dtype=object)


def whole(value: float | None, what: str) -> float | int | None:
    """Bytes are whole, but for a slope."""
    return value if value is None or what == "growth" else round(value)


def _objects(values: list[Scalar]) -> pd.Series[str]:
    return pd.Series(values, dtype=object)


def _floats(values: pd.Series[str]) -> Floats:
    return np.array([np.nan if v is None else float(str(v)) for v in values.tolist()], np.float64)
