"""What the comparison of ranks needs of one worker: the numbers of its memory, in bytes; None is unknown."""

from __future__ import annotations

from typing import Final

import msgspec

from tb_sol_plugin.metrics.memory.attribution import By, answers, holders
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.expected import place
from tb_sol_plugin.metrics.memory.labels import label
from tb_sol_plugin.metrics.memory.sources import SOURCES
from tb_sol_plugin.metrics.memory.summary import look
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query

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
