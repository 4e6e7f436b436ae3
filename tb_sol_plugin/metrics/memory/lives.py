"""Single allocations with their lives, of the sources that tell them: memory events of a trace, and the history of an allocator."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import attribution as at
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.memory import replay as R
from tb_sol_plugin.metrics.memory.choose import number_of
from tb_sol_plugin.metrics.memory.curves import GAINS, Curves
from tb_sol_plugin.metrics.memory.lines import own_line
from tb_sol_plugin.metrics.memory.owners import owners
from tb_sol_plugin.metrics.names import module_instance
from tb_sol_plugin.metrics.phases import STEP, phase_tree
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Ints, Objects

COLUMNS: Final = ("bytes", "start_ns", "end_ns", "known", "row", "free_row")
NEVER: Final = np.iinfo(np.int64).max


def lives(capture: Capture, curve: Curves) -> pd.DataFrame | None:
    """Allocations of a curve's source, in order of their first event; None where the source tells none.

    bytes; start_ns, end_ns (-1: before the recording; NEVER: not freed while recording); known: whether both ends are told (where no
    addresses are recorded, an allocation has no end and a free no beginning); row, free_row: of `memory` or `memory_events`, -1 none.
    Shared: not to be changed.
    """
    if curve.source == "events":
        device = next(d for d in R.devices(capture) if d.label == curve.device)
        return memo(capture, ("memory.lives", device), lambda: _frame(R.allocations(capture, device)))
    if curve.source == "snapshot" and len(capture.tables[S.MEMORY_EVENTS.name]):
        number = number_of(curve.device)
        return memo(capture, ("memory.lives", number), lambda: _of_history(capture, number))
    return None


def _frame(found: pd.DataFrame) -> pd.DataFrame:
    first, last = found["first"].to_numpy(), found["last"].to_numpy()
    return pd.DataFrame({
        "bytes": found["bytes"].to_numpy(), "start_ns": np.where(first >= 0, found["start_ns"].to_numpy(), -1),
        "end_ns": np.where(last >= 0, found["end_ns"].to_numpy(), NEVER),
        "known": found["paired"].to_numpy() & ~found["reused"].to_numpy(), "row": found["row"].to_numpy(),
        "free_row": found["free_row"].to_numpy(),
    })  # fmt: skip


def _of_history(capture: Capture, number: int) -> pd.DataFrame:
    """The history of a snapshot through the same pairing: it differs in names only."""
    table = capture.tables[S.MEMORY_EVENTS.name]
    gains = np.array([GAINS.get(str(c), 0) for c in table["action"].cat.categories] + [0], np.int64)[arrays.codes(table["action"])]
    row = np.flatnonzero((table["device"].to_numpy() == number) & (gains != 0))
    time = table["time_ns"].to_numpy()[row]
    if (time < 0).any():  # without times entries stand one after the other, as in the curve
        own = np.flatnonzero(table["device"].to_numpy() == number)
        time = np.searchsorted(own, row).astype(np.int64)
    size = gains[row] * table["bytes"].to_numpy()[row].clip(min=0)
    address = table["address"].to_numpy()[row]
    none = np.full(len(row), -1, np.int64)
    replayed = R.Replay(R.Device(1, number), row, time, size, address, none, none, False, np.cumsum(size), -1, 0)
    return _frame(R.lives(replayed))


def chosen(found: pd.DataFrame, window: tuple[int, int] | None, least: int = 0) -> npt.NDArray[np.intp]:
    """Positions of the allocations of at least so many bytes that begin or end in a window."""
    keep = found["bytes"].to_numpy() >= least
    if window is not None:
        start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
        begins = (found["row"].to_numpy() >= 0) & (start >= window[0]) & (start <= window[1])
        ends = (found["free_row"].to_numpy() >= 0) & (end >= window[0]) & (end <= window[1])
        keep &= begins | ends
    return np.flatnonzero(keep)


def described(capture: Capture, curve: Curves, found: pd.DataFrame) -> pd.DataFrame:
    """Who made each of these allocations: operator, parent, module, phase, frame (texts, "" unknown), step (number, -1 none)."""
    row = found["row"].to_numpy()
    if curve.source != "events":
        said = arrays.pick(capture.tables[S.MEMORY_EVENTS.name]["frames"], row.clip(0)) if len(row) else np.zeros(0, object)
        frames = [own_line(str(text)) if r >= 0 else "" for text, r in zip(said, row.tolist(), strict=True)]
        none = [""] * len(row)
        return pd.DataFrame({"operator": none, "parent": none, "module": none, "phase": none, "frame": frames, "step": -1})
    own = owners(capture).iloc[np.where(row >= 0, row, 0)].reset_index(drop=True)
    rows = {name: np.where(row >= 0, own[name].to_numpy(), -1) for name in own.columns}
    parent = at.nearest(capture, S.OPERATOR, rows["operator"], strict=True)
    paths = np.array([*("" if p == STEP else p for p in phase_tree(capture).path), ""], object)
    numbers = np.append(capture.steps["number"].to_numpy(), -1)
    return pd.DataFrame({
        "operator": _names(capture, rows["operator"]), "parent": _names(capture, parent),
        "module": [module_instance(str(n)) for n in _names(capture, rows["module"])], "phase": paths[rows["phase_node"]],
        "frame": _names(capture, rows["frame"]), "step": numbers[rows["step"]],
    })  # fmt: skip


def _names(capture: Capture, rows: npt.ArrayLike) -> Objects:
    """Names of host rows, "" for -1."""
    row = np.asarray(rows, np.int64)
    if not len(capture.host):
        return np.full(len(row), "", object)
    names = arrays.pick(capture.host["name"], row.clip(0))
    return np.where(row >= 0, names, "")


def states(found: pd.DataFrame, window: tuple[int, int] | None) -> list[str]:
    """What became of each: freed, freed later (than the window), never freed, from before (the window or the recording), unknown."""
    start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
    begun = found["row"].to_numpy() >= 0
    low, high = window if window is not None else (np.iinfo(np.int64).min, NEVER - 1)
    out = np.select(
        [~found["known"].to_numpy(), ~begun | (start < low), end == NEVER, end > high],
        ["unknown", "from before", "never freed", "freed later"],
        "freed",
    )
    return [str(s) for s in out]


def lifetimes(found: pd.DataFrame) -> Ints:
    """ns from allocation to free, -1 where one of them is not recorded."""
    start, end = found["start_ns"].to_numpy(), found["end_ns"].to_numpy()
    both = (found["row"].to_numpy() >= 0) & (found["free_row"].to_numpy() >= 0)
    return np.where(both, end - start, -1)
