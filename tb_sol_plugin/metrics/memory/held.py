"""What held memory at one moment, as rows that add up to what was in use then."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.tables.arrays import Ints

By: TypeAlias = Literal["category", "module", "operator", "frame", "phase"]
GROUPINGS: Final[tuple[By, ...]] = ("category", "module", "operator", "frame", "phase")
BEFORE: Final = "allocated before the window"
UNKNOWN: Final = "unknown"
COLUMNS: Final = ("name", "bytes", "allocations", "share", "estimated", "kind", "host_row", "stack")
FLAGGED_SHARE: Final = 0.05
"""Unknown above this share of what was in use is said."""
NEGATIVE: Final = "more is found than was in use: something is counted twice, or events are missing"



@dataclass(frozen=True)
class Holders:
    """Who held memory at time_ns, of one curve and by one grouping.

    total: bytes in use then, the level of the curve. rows: name, bytes, allocations (-1 unknown), share (of total; NaN where total is 0),
    estimated (whether the name is one), kind (row; before: was there before the recording began, whose it is was not recorded; unknown:
    the rest), host_row (of the largest allocation; -1 none), stack (its call stack as lines, "" none).
    Rows stand largest first, then before, then unknown, which is always there.
    rows["bytes"] sums to total exactly: unknown is what is left, and negative where rows count too much.
    notes: what to know, one sentence each.
    """

    time_ns: int
    total: int
    rows: pd.DataFrame
    notes: tuple[str, ...]

    @property
    def unknown(self) -> int:
        """Bytes of the row unknown."""
        return int(self.rows.loc[self.rows["kind"] == "unknown", "bytes"].sum())


@dataclass(frozen=True)
class Groups:
    """Bytes per name before they are held against the total: one entry per name. The last three may be left out."""

    names: list[str]
    bytes: Ints
    allocations: Ints
    estimated: npt.NDArray[np.bool_] | None = None
    host_row: Ints | None = None
    stacks: Sequence[str] | None = None


NOTHING: Final = Groups([], np.zeros(0, np.int64), np.zeros(0, np.int64))


def made(
    time_ns: int, total: int, groups: Groups, *, before: int = 0, before_allocations: int = -1, notes: tuple[str, ...] = ()
) -> Holders:
    """Rows of the groups, largest first, then what was there before (left out where 0), then the rest."""
    count = len(groups.names)
    order = np.argsort(-groups.bytes, kind="stable")
    rest = int(total) - int(groups.bytes.sum()) - int(before)
    estimated = groups.estimated if groups.estimated is not None else np.zeros(count, bool)
    host_row = groups.host_row if groups.host_row is not None else np.full(count, -1, np.int64)
    stacks = groups.stacks if groups.stacks is not None else [""] * count
    columns: dict[str, list[object]] = {
        "name": [groups.names[i] for i in order.tolist()],
        "bytes": groups.bytes[order].tolist(),
        "allocations": groups.allocations[order].tolist(),
        "estimated": estimated[order].tolist(),
        "kind": ["row"] * count,
        "host_row": host_row[order].tolist(),
        "stack": [stacks[i] for i in order.tolist()],
    }
    for name, size, allocations, kind in ((BEFORE, before, before_allocations, "before"), (UNKNOWN, rest, -1, "unknown")):
        if kind == "unknown" or size:
            for column, value in zip(columns.values(), (name, int(size), allocations, False, kind, -1, ""), strict=True):
                column.append(value)
    rows = pd.DataFrame(columns).astype({
        "bytes": np.int64, "allocations": np.int64, "estimated": bool, "host_row": np.int64,
        "name": object, "kind": object, "stack": object,
    })  # fmt: skip
    rows["share"] = rows["bytes"] / total if total else np.nan
    said = list(notes)
    if rest < 0:
        said.append(NEGATIVE)
    elif total > 0 and rest > FLAGGED_SHARE * total:
        said.append(f"{rest / total:.0%} of what was in use is unknown")
    return Holders(int(time_ns), int(total), rows[list(COLUMNS)], tuple(said))


def summed(
    code: Ints, names: list[str], size: Ints, host_row: Ints | None = None, *, estimated: npt.NDArray[np.bool_] | None = None,
    stacks: Sequence[str] | None = None,
) -> Groups:  # fmt: skip
    """Allocations added up by name. code: per allocation the position in `names`; names that hold nothing are left out.

    host_row: per allocation; of a name that of its largest. estimated: per allocation; of a name whether any is. stacks: per name.
    """
    count = len(names)
    total, calls = np.zeros(count, np.int64), np.bincount(code, minlength=count).astype(np.int64)
    np.add.at(total, code, size)
    guess = np.zeros(count, bool)
    if estimated is not None:
        np.logical_or.at(guess, code, estimated)
    rows = np.full(count, -1, np.int64)
    if host_row is not None:
        order = np.argsort(size, kind="stable")
        rows[code[order]] = host_row[order]
    kept = np.flatnonzero(calls)
    of = [stacks[i] for i in kept.tolist()] if stacks is not None else None
    return Groups([names[i] for i in kept.tolist()], total[kept], calls[kept], guess[kept], rows[kept], of)
