"""What held memory at a moment, by category, module, operator, line of the program or phase: of every source of a curve.

The rows of an answer add up to the level of the curve exactly; what no row explains is a row of its own.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo, texts
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.metrics.memory.held import BEFORE, GROUPINGS, UNKNOWN, By, Groups, Holders, Ints, made, summed
from tb_sol_plugin.metrics.memory.owners import owners
from tb_sol_plugin.metrics.names import module_instance
from tb_sol_plugin.metrics.phases import phase_tree
from tb_sol_plugin.model.capture import Capture

__all__ = ["BEFORE", "GROUPINGS", "UNKNOWN", "By", "Holders", "answers", "holders"]

OUTSIDE: Final[dict[By, str]] = {
    "operator": at.NO_OPERATOR,
    "module": "(no module)",
    "frame": "(no python line)",
    "phase": "(no phase)",
    "category": UNKNOWN,
}
COLUMN: Final[dict[By, str]] = {"operator": "operator", "module": "module", "frame": "frame", "phase": "phase_node"}
RELATIVE: Final = "levels are changes since the beginning: memory from before that was freed since counts negative"
NO_ADDRESSES: Final = "no addresses are recorded: what was freed when is unknown"


def answers(capture: Capture, curve: Curves) -> tuple[By, ...]:
    """The groupings that the source of this curve, or what is joined to it, can answer."""
    if curve.source != "events":
        return ()
    device = _device(capture, curve)
    found = R.allocations(capture, device)
    if not bool((found["paired"] & ~found["before"]).any()):
        return ()
    rows = found["row"].to_numpy()
    own = owners(capture).iloc[rows[rows >= 0]]
    return tuple(by for by in GROUPINGS if by in COLUMN and bool((own[COLUMN[by]].to_numpy() >= 0).any()))


def holders(capture: Capture, curve: Curves, by: By, time_ns: int | None = None) -> Holders:
    """What was in use at a time, after all events of that time; None: at the peak of the curve. ValueError for a wrong grouping."""
    if by not in GROUPINGS:
        raise ValueError(f"no grouping {by!r}")
    if curve.source == "events":
        return _of_events(capture, curve, by, time_ns)
    total = curve.peak if time_ns is None else _level(curve, time_ns)
    return made(curve.peak_ns if time_ns is None else time_ns, total, Groups([], np.zeros(0, np.int64), np.zeros(0, np.int64)))


def _level(curve: Curves, time_ns: int) -> int:
    if curve.allocated is None:
        return 0
    row = int(np.searchsorted(curve.time_ns, time_ns, side="right")) - 1
    return int(curve.allocated[max(row, 0)])


# -- events of a profiler ---------------------------------------------------------------------------------------


def _device(capture: Capture, curve: Curves) -> R.Device:
    return next(d for d in R.devices(capture) if d.label == curve.device)


def _of_events(capture: Capture, curve: Curves, by: By, time_ns: int | None) -> Holders:
    device = _device(capture, curve)
    r = R.replay(capture, device)
    level = r.allocated if r.known else r.change
    base = r.before if r.known else 0
    time = curve.peak_ns if time_ns is None else int(time_ns)
    place = R.at_time(r, time)
    if time_ns is None:
        place = _place_of(r, level, base, time, place, curve.peak)
    total = int(level[place]) if place >= 0 else base
    found = R.allocations(capture, device)
    first, stop = found["first"].to_numpy(), found["stop"].to_numpy()
    own = found["paired"].to_numpy() & (first >= 0)
    alive = found[own & (first <= place) & ((stop < 0) | (stop > place))]
    freed = found["before"].to_numpy() & (found["last"].to_numpy() <= place)
    before = (r.before if r.known else 0) - int(found["bytes"].to_numpy()[freed].sum())
    notes = [RELATIVE] * (not r.known and before < 0) + [NO_ADDRESSES] * (not bool(found["paired"].all()))
    if r.known and before < 0:  # more was freed than the totals say was there: what is left of it is not known
        before = 0
    return made(time, total, _grouped(capture, alive, by), before=before, notes=tuple(notes))


def _place_of(r: R.Replay, level: Ints, base: int, time: int, last: int, peak: int) -> int:
    """The first of the events at `time` after which the level is that of the peak; `last` is the last of them."""
    first = int(np.searchsorted(r.time_ns, time, side="left"))
    same = np.flatnonzero(level[first : last + 1] == peak)
    if len(same):
        return first + int(same[0])
    before = int(level[first - 1]) if first else base
    return first - 1 if before == peak else last


def _grouped(capture: Capture, alive: pd.DataFrame, by: By) -> Groups:
    rows, size = alive["row"].to_numpy(), alive["bytes"].to_numpy()
    own = owners(capture)
    if by == "category":
        return Groups([], np.zeros(0, np.int64), np.zeros(0, np.int64))
    owner = own[COLUMN[by]].to_numpy()[rows].astype(np.int64)
    names = _names(capture, by)
    if by == "phase":
        code, host_row = owner, own["around"].to_numpy()[rows].astype(np.int64)
    else:
        of_host = texts.codes(capture.host["name"]) if len(capture.host) else np.zeros(0, np.int64)
        code = np.where(owner >= 0, of_host[owner.clip(0)], -1) if len(of_host) else owner
        host_row = owner
    code = np.where(code >= 0, code, len(names))
    return summed(code, [*names, OUTSIDE[by]], size, host_row)


def _names(capture: Capture, by: By) -> list[str]:
    def make() -> list[str]:
        if by == "phase":
            return list(phase_tree(capture).path)
        every = [str(name) for name in capture.host["name"].cat.categories]
        return [module_instance(name) for name in every] if by == "module" else every

    return memo(capture, ("memory.holders.names", by), make)
