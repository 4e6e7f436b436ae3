"""Declares the table columns of work against its limit, the same on every page."""

from __future__ import annotations

from collections.abc import Sequence
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
MODELED: Final = Column(
    "modelled_share",
    "Modeled",
    "ratio",
    "Part of the device time that a cost model covers, copies and communication included (of the operators' host time in a recording "
    "without device work).",
    "share",
    rank=3,
    missing="no device time",
)
"""One quantity on every page. A part of another time has another label: see `relabeled`."""
RECOMPUTE: Final = Column(
    "recompute_share",
    "Recomputed",
    "ratio",
    "Part of the device time that runs forward work again inside the backward pass.",
    "share",
    rank=3,
    missing="no operator owns device time here",
)


def relabeled(column: Column, label: str, doc: str) -> Column:
    """Returns the same column under the words of another quantity."""
    return msgspec.structs.replace(column, label=label, doc=doc)


def over_whole(columns: Sequence[Column], what: str, *, timed: bool = False) -> list[Column]:
    """Returns the columns with words for limits over the time of a whole range (`phase`), where its calls are not `timed`."""
    if timed:
        return list(columns)
    words = {
        "efficiency": (f"Limit over {what} time", f"Limit over the time of the whole {what}, waits and unmodeled work in it included."),
        "wasted_ns": (f"{what.capitalize()} time above limit", f"Time of the whole {what} less the limit."),
    }
    return [relabeled(c, *words[c.name]) if c.name in words else c for c in columns]


def ranked(column: Column, rank: int, doc: str = "") -> Column:
    """Returns the same column with another rank, and another sentence where a page counts in its own way."""
    return msgspec.structs.replace(column, rank=rank, doc=doc or column.doc)
