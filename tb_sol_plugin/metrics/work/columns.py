"""Declares the table columns of work against its limit, the same on every page."""

from __future__ import annotations

from typing import Final

import msgspec

from tb_sol_plugin.model.report import Column

NO_MODEL: Final = "no cost model, no shapes, or an unknown device"

FLOP: Final = Column("flop", "FLOP", "FLOP", "Matrix operations of the modeled calls.", rank=3, missing="no cost model, or no shapes")
BYTES: Final = Column("bytes", "Bytes", "B", "Least memory traffic of the modeled calls.", rank=3, missing="no cost model, or no shapes")
SOL: Final = Column("sol_ns", "Limit", "ns", "Least time of the modeled calls on this device.", missing=NO_MODEL)
MEASURED: Final = Column(
    "measured_ns",
    "Modeled time",
    "ns",
    "Device time of the calls that have a limit (host time in a recording without device work).",
    rank=3,
    missing=NO_MODEL,
)
WASTED: Final = Column("wasted_ns", "Above limit", "ns", "Modeled time less the limit.", missing=NO_MODEL)
EFFICIENCY: Final = Column(
    "efficiency", "Efficiency", "ratio", "Limit over modeled time; covers the modeled part only.", "efficiency", missing=NO_MODEL
)
BOUND: Final = Column("bound", "Bound", "", "What sets the larger part of the limit: compute or memory.", "badge", rank=2, missing=NO_MODEL)
FLAGS: Final = Column(
    "flags", "Flags", "", "Above limit: faster than the limit. Estimated: sizes of some calls are assumed.", "badge", rank=3
)
RECOMPUTE: Final = Column(
    "recompute_share",
    "Recomputed",
    "ratio",
    "Part of the device time that runs forward work again inside the backward pass.",
    "share",
    rank=3,
    missing="no operator owns device time here",
)


def ranked(column: Column, rank: int, doc: str = "") -> Column:
    """Returns the same column with another rank, and another sentence where a page counts in its own way."""
    return msgspec.structs.replace(column, rank=rank, doc=doc or column.doc)
