"""What a profiler's memory events say of who held memory after one of them."""

from __future__ import annotations

from typing import Final

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.held import By, Groups, summed
from tb_sol_plugin.metrics.memory.owners import owners
from tb_sol_plugin.metrics.names import module_instance
from tb_sol_plugin.metrics.phases import phase_tree
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays

OUTSIDE: Final[dict[By, str]] = {
    "operator": at.NO_OPERATOR,
    "module": "(no module)",
    "frame": "(no python line)",
    "phase": "(no phase)",
}
COLUMN: Final[dict[By, str]] = {"operator": "operator", "module": "module", "frame": "line", "phase": "phase_node"}
RELATIVE: Final = "levels are changes since the beginning: memory from before that was freed since counts negative"
NO_ADDRESSES: Final = "no addresses are recorded: what was freed when is unknown"


def answers(capture: Capture, device: R.Device) -> tuple[By, ...]:
    """Groupings for which at least one allocation has an owner; none where lifetimes are unknown."""
    found = R.allocations(capture, device)
    rows = found["row"].to_numpy()[(found["paired"] & ~found["before"]).to_numpy()]
    own = owners(capture).iloc[rows]
    return tuple(by for by, column in COLUMN.items() if bool((own[column].to_numpy() >= 0).any()))


def alive(capture: Capture, device: R.Device, place: int) -> tuple[pd.DataFrame, int, tuple[str, ...]]:
    """(rows of `allocations` made in the window that live after event `place`, bytes from before the window, what to know)."""
    r = R.replay(capture, device)
    found = R.allocations(capture, device)
    first, stop = found["first"].to_numpy(), found["stop"].to_numpy()
    own = found["paired"].to_numpy() & (first >= 0)
    freed = found["before"].to_numpy() & (found["last"].to_numpy() <= place)
    before = (r.before if r.known else 0) - int(found["bytes"].to_numpy()[freed].sum())
    notes = [RELATIVE] * (not r.known and before < 0) + [NO_ADDRESSES] * (not bool(found["paired"].all()))
    lives = pd.DataFrame(found[own & (first <= place) & ((stop < 0) | (stop > place))])
    return lives, max(before, 0) if r.known else before, tuple(notes)  # below 0, totals contradict the frees: the rest says so


def grouped(capture: Capture, lives: pd.DataFrame, by: By) -> Groups:
    """Rows of `allocations` by what ran when they were made. by: not category."""
    rows, size = lives["row"].to_numpy(), lives["bytes"].to_numpy()
    own = owners(capture)
    owner = own[COLUMN[by]].to_numpy()[rows].astype(np.int64)
    names = _names(capture, by)
    if by == "phase":
        code, host_row = owner, own["around"].to_numpy()[rows].astype(np.int64)
    else:
        of_host = arrays.codes(capture.host["name"]) if len(capture.host) else np.zeros(0, np.int64)
        code = np.where(owner >= 0, of_host[owner.clip(0)], -1) if len(of_host) else owner
        host_row = owner
    return summed(np.where(code >= 0, code, len(names)), [*names, OUTSIDE[by]], size, host_row)


def _names(capture: Capture, by: By) -> list[str]:
    def make() -> list[str]:
        if by == "phase":
            return list(phase_tree(capture).path)
        every = [str(name) for name in capture.host["name"].cat.categories]
        return [module_instance(name) for name in every] if by == "module" else every

    return memo(capture, ("memory.holders.names", by), make)
