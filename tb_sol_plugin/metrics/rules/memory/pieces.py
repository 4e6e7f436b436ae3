"""Lists what a finding about memory counts: allocations, parts of a record, levels, each with its bytes and what the finding takes of it.

What is taken of all rows adds up to the saving to the byte; a row that lowers the saving (memory that is used) takes less than nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.memory.allocations import owner_names
from tb_sol_plugin.metrics.memory.curves import Curves
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays

COLUMNS: Final = ("what", "name", "where", "time_ns", "bytes", "saving_bytes", "id")
CATEGORY_WORDS: Final = {
    "params": "parameters", "grads": "gradients", "main_grads": "gradients", "exp_avg": "optimizer", "exp_avg_sq": "optimizer",
    "other_optimizer": "optimizer", "master_weights": "master weights",
}  # fmt: skip


def pieces(
    what: str | Sequence[str], name: Iterable[object], size: npt.ArrayLike, taken: npt.ArrayLike, saving: int, *,
    where: Iterable[object] | None = None, time_ns: npt.ArrayLike | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Returns a row per piece. taken: bytes that the finding takes of each, apart from rounding; where, time_ns: "" and -1 unknown."""
    names = [str(n) or None for n in name]
    count = len(names)
    sums = np.rint(np.cumsum(np.asarray(taken, np.float64)))
    if count:
        sums[-1] = saving
    time = np.full(count, -1) if time_ns is None else np.asarray(time_ns, np.int64)
    return pd.DataFrame({
        "what": [what] * count if isinstance(what, str) else list(what), "name": names,
        "where": [None] * count if where is None else [str(w) or None for w in where],
        "time_ns": arrays.known(time, time >= 0), "bytes": np.asarray(size, np.int64),
        "saving_bytes": np.diff(sums, prepend=0).astype(np.int64), "id": [str(i) for i in range(count)],
    }, columns=list(COLUMNS))  # fmt: skip


def allocation_pieces(capture: Capture, curve: Curves, live: pd.DataFrame, saving: int, part: float = 1.0) -> pd.DataFrame:
    """Returns a row per allocation of a trace's memory events. live: rows of `replay.allocations`; part: taken of each."""
    who = owner_names(capture, curve, live)
    size = live["bytes"].to_numpy()
    name = np.where(who["operator"] != "", who["operator"], who["frame"])
    time = live["start_ns"].to_numpy() - capture.facts.extent_ns[0]
    return pieces("allocation", name, size, size * part, saving, where=who["module"], time_ns=time)


def part_pieces(parts: pd.DataFrame, saving: int, part: float = 1.0) -> pd.DataFrame:
    """Returns a row per part of a record of the program: module, type, bytes. parts: as `last_parts` gives them."""
    own = parts[parts["bytes"].to_numpy() != 0]
    size = own["bytes"].to_numpy()
    what = [CATEGORY_WORDS.get(str(c), str(c)) for c in own["category"].tolist()]
    name = own["module"].where(own["module"] != "", own["category"])
    return pieces(what, name, size, size * part, saving, where=own["category"] + ", " + own["dtype"])
