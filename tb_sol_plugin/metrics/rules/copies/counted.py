"""What counted copies say of waiting: numbers that the host reads, pageable memory, copies that were asked to block.

What a copy costs is not known without its time on the device; this says how often it happens, where, and how long the host was in
the calls while copies were counted, which is no saving.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.copies import counted
from tb_sol_plugin.metrics.copies.records import COPY_KERNEL
from tb_sol_plugin.metrics.time.scope import Scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays

LAYOUT_BYTES: Final = 1 << 20
"""Bytes per step from which copies into another layout are worth a word."""
PLACES: Final = 2
NO_PLACE: Final = ("(", "Memcpy ")
"""Beginnings of what names no place: `(no module)`, and copies that another profiler names by their direction."""


@dataclass(frozen=True)
class CountedPattern:
    """Copies of one sort in the selected steps.

    rule: reads, pageable, blocking, layout. direction: of the copies. copies, sized_bytes, unsized: sums (unsized: copies without a size).
    waits: copies that the host waited for, 0 also where that is not known. call_ns: of the host inside the calls, time_ns: on the device;
    NaN unknown. operators, modules, phases: where most of
    them are made, the most first. candidate: may be meant.
    """

    rule: str
    direction: str
    copies: int
    sized_bytes: int
    unsized: int
    waits: int
    call_ns: float
    time_ns: float
    operators: tuple[str, ...]
    modules: tuple[str, ...]
    phases: tuple[str, ...]
    candidate: bool = False


def counted_patterns(capture: Capture, where: Scope | None = None) -> list[CountedPattern]:
    """What to look at first: by the host's time inside the calls; where that is unknown, by the time on the device, then by number.

    From pageable memory every copy makes the host wait, so those count also where nobody knows of the waiting (a profile of Proton).
    """
    rows = counted.counted(capture, where)
    if not len(rows):
        return []
    at = np.arange(len(rows))
    direction, src, dst = (arrays.pick(rows[c], at) for c in ("direction", "src_kind", "dst_kind"))
    waits, unknown = rows["blocking"].to_numpy() > 0, rows["blocking"].to_numpy() < 0
    timed = np.isfinite(rows["time_ns"].to_numpy(np.float64))
    crosses = (direction == "HtoD") | (direction == "DtoH")
    host_kind = np.where(direction == "HtoD", src, dst)
    reads = waits & (direction == "DtoH") & (host_kind == "")
    out = []
    if reads.any():
        out.append(_pattern(capture, rows, reads, "reads", "DtoH"))
    for one in ("HtoD", "DtoH"):
        mine = crosses & (direction == one)
        for rule, kind, waiting in (("pageable", "Pageable", waits | (unknown & timed)), ("blocking", "Pinned", waits)):
            chosen = mine & waiting & (host_kind == kind)
            if chosen.any():
                out.append(_pattern(capture, rows, chosen, rule, one))
    layout = direction == COPY_KERNEL
    moved = int(rows["bytes"].to_numpy()[layout].sum())
    if moved >= LAYOUT_BYTES * counted.iterations(capture, where):
        out.append(_pattern(capture, rows, layout, "layout", COPY_KERNEL))
    return sorted(out, key=lambda f: (f.candidate, -np.nan_to_num(f.call_ns), -np.nan_to_num(f.time_ns), -f.copies))


def _pattern(capture: Capture, rows: pd.DataFrame, chosen: npt.NDArray[np.bool_], rule: str, direction: str) -> CountedPattern:
    mine = rows[chosen].reset_index(drop=True)
    count = mine["count"].to_numpy()

    def most(by: str) -> tuple[str, ...]:
        label = counted.labels(capture, mine, by)
        sums = pd.Series(count).groupby(label, sort=False).sum().sort_values(ascending=False, kind="stable")
        return tuple(str(name) for name in sums.index if not str(name).startswith(NO_PLACE))[:PLACES]

    return CountedPattern(
        rule,
        direction,
        int(count.sum()),
        int(mine["bytes"].sum()),
        int(mine["without_bytes"].sum()),
        int(np.maximum(mine["blocking"].to_numpy(), 0).sum()),
        float(mine["call_ns"].to_numpy(np.float64).sum()),
        float(mine["time_ns"].to_numpy(np.float64).sum()),
        most("operator"),
        most("module"),
        most("phase"),
        rule == "layout",
    )
