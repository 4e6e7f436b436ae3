"""Memory of each rank, as columns that are compared within a pipeline stage."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memory.attribution import By, attribution, groupings_of
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.expected import place
from tb_sol_plugin.metrics.memory.labels import label
from tb_sol_plugin.metrics.memory.sources import SOURCES
from tb_sol_plugin.metrics.memory.summary import memory_summary
from tb_sol_plugin.metrics.ranks.comparison import Comparison, Measure, Ranks, floats, frame_of, whole
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query

# -- Reduction of one rank --------------------------------------------------------------------------------------------
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
    looked = memory_summary(capture, query)
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
            if by in groupings_of(capture, curve):
                rows = attribution(capture, curve, by).rows
                known = rows[(rows["kind"] == "row") & (rows["bytes"] > 0)]
                if len(known):
                    top = known.iloc[int(known["bytes"].to_numpy().argmax())]
                    name = str(top["name"])
                    return label(name) if by == "category" else name, int(top["bytes"])
    return "", None


NEAR: Final = 64e6
"""Bytes by which a rank must differ from the median to be an outlier."""
MEASURES: Final = {
    "peak": Measure("peak", "B", "memory in use at most", NEAR),
    "reserved": Measure("reserved", "B", "memory held by the allocator at most", NEAR),
    "fragmentation": Measure("fragmentation", "B", "memory held and not in use at the peak", NEAR),
    "before": Measure("before", "B", "memory in use before the window", NEAR),
    "end": Measure("end", "B", "memory in use at the end", NEAR),
    "growth": Measure("growth", "B", "growth of memory in use per step", 1e6),
}
"""By the query field `what`."""

MemoryOfRanks: TypeAlias = Comparison[RankPart]
ALL: Final = "all ranks"
"""The one group where stages are not compared."""
_BYTES: Final = ("peak", "reserved", "reserved_at_peak", "fragmentation", "before", "end", "capacity", "base", "left", "failures", "held")
"""Columns of whole numbers."""


def compare(ranks: Ranks[RankPart], parts: list[RankPart], what: str) -> MemoryOfRanks:
    """Memory of the ranks compared by `what` (a key of MEASURES), within stages where all ranks know theirs. parts: of `ranks.read`."""
    frame = frame_of(enumerate(parts), RankPart)
    stage = floats(frame["stage"])
    frame["left"] = np.where(frame["left"].isna(), frame["at_most"], frame["left"])
    frame = frame.astype(dict.fromkeys((*_BYTES, "growth"), np.float64))
    names = [None if s is None else f"stage {s}" for s in frame["stage"].tolist()]
    frame["stage"], frame["holder"] = pd.Series(names, dtype=object), pd.Series([h or None for h in frame["holder"]], dtype=object)
    distinct = np.unique(stage)
    staged = bool(np.isfinite(stage).all()) and len(distinct) > 1
    frame["group"] = np.searchsorted(distinct, stage) if staged else 0
    groups = tuple(f"stage {int(s)}" for s in distinct) if staged else (ALL,) if parts else ()
    return Comparison(ranks, frame, groups, MEASURES[what])


def staged(ranks: MemoryOfRanks) -> bool:
    """Whether ranks are compared within pipeline stages."""
    return ranks.groups != (ALL,)


def displayed(ranks: MemoryOfRanks) -> pd.DataFrame:
    """The table of ranks without the columns that name a rank."""
    return ranks.frame.assign(**{name: whole(ranks.frame[name]) for name in _BYTES})


def by_stage(ranks: MemoryOfRanks) -> pd.DataFrame:
    """One row per stage over its ranks; where no stages are known one over all of them."""
    value, reserved, left = ranks.spread(), ranks.spread("reserved"), ranks.spread("left")
    sloped = ranks.spread("growth")["count"] > 0
    leaks = np.bincount(ranks.group[ranks.counts & (ranks.frame["verdict"] == "leak").to_numpy()], minlength=len(ranks.groups))
    size = (lambda values: values) if ranks.measure == MEASURES["growth"] else whole
    return pd.DataFrame({
        "stage": list(ranks.groups), "ranks": np.bincount(ranks.group[ranks.counts], minlength=len(ranks.groups)),
        "median": size(value["median"]), "most": size(value["most"]), "most_rank": value["most_rank"],
        "imbalance": value["imbalance"], "excess": size(value["excess"]),
        "reserved": size(reserved["most"]), "reserved_rank": reserved["most_rank"],
        "left": size(left["least"]), "left_rank": left["least_rank"],
        "growing": whole(np.where(sloped, leaks, np.nan)),
    }, dtype=object)  # fmt: skip
