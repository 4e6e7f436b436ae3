"""Copies by size: the bins, and what is in each."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.metrics.memcpy.link import rate
from tb_sol_plugin.metrics.memcpy.records import DIRECTIONS, EDGES


def sizes(found: pd.DataFrame) -> pd.DataFrame:
    """The size histogram: direction, bin (index into BINS), count, bytes, time_ns, bandwidth_bytes_per_s.

    Copies without bytes are left out.
    """
    known = found[found["bytes"] >= 0]
    bins = np.searchsorted(np.array(EDGES), known["bytes"].to_numpy(), side="left")
    place = {d: i for i, d in enumerate(DIRECTIONS)}
    out = (
        known.assign(bin=bins, _place=[place.get(d, len(place)) for d in known["direction"]])
        .groupby(["_place", "direction", "bin"], as_index=False)
        .agg(count=("bytes", "size"), bytes=("bytes", "sum"), time_ns=("duration_ns", "sum"))
        .drop(columns="_place")
    )
    out["bandwidth_bytes_per_s"] = rate(out["bytes"].to_numpy(), out["time_ns"].to_numpy())
    return out
