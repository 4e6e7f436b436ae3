"""Work of a profile without events (Proton): each row of its ledger once, in the form of `Work.ops`.

A row holds the sums over all launches of one kernel in one scope. `launches` says how many; work, time and limits are those of all of
them together: they add up, so that limits over time are those of the calls. What nobody stated is unknown: no cost model can tell the
work of a kernel from its name.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.kernel_class import kind_of
from tb_sol_plugin.metrics.work.kinds import DIRECTIONS, KINDS
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import Mask

Codes = npt.NDArray[np.int8]

OTHER_DEVICE: Final = "ran on another kind of device than the limits are of"


def profile_calls(capture: Capture) -> pd.DataFrame:
    """Rows of `Work.ops`, one per row of the ledger, and `launches`. measured_ns is NaN where a scope stated work without a time."""
    table = capture.tables[S.LEDGER.name]
    size = len(table)
    launches = table["count"].to_numpy().clip(min=0)
    each = np.maximum(launches, 1)
    flop, data = (table[c].to_numpy(dtype=np.float64) * each for c in ("flop", "bytes"))
    time = table["time_ns"].to_numpy(dtype=np.float64)
    stated = np.isfinite(data) | (np.nan_to_num(flop) > 0)
    foreign = _on_another_kind(capture)
    reason = arrays.pick(table["reason"], np.arange(size))
    reason = np.where(foreign, OTHER_DEVICE, reason).astype(object)
    kind, collective = _kinds(capture)
    nothing = np.zeros(size, bool)
    none = np.full(size, -1, np.int32)
    empty = pd.Categorical.from_codes(np.zeros(size, np.int8), categories=pd.Index([""], dtype=object))  # type: ignore[arg-type]
    return pd.DataFrame(
        {
            "host": none,
            "name": table["name"].array,
            "kind": pd.Categorical.from_codes(kind, pd.Index(KINDS)),
            "direction": pd.Categorical.from_codes(np.zeros(size, np.int8), pd.Index(DIRECTIONS)),
            "dtype": table["dtype"].array,
            "shapes": empty,
            "shapes_json": empty,
            "flop": flop,
            "flop_vector": np.full(size, np.nan),
            "flop_dense": flop,
            "bytes": data,
            "measured_ns": time,
            "device_sum_ns": time,
            "device_events": np.zeros(size, np.int64),
            "module": none,
            "annotation": none,
            "step": none,
            "estimated": table["estimated"].to_numpy(dtype=bool),
            "reason": pd.Categorical(reason),
            "modelled": stated & ~foreign & ~collective,
            "link": nothing,
            "collective": collective,
            "link_bytes": np.full(size, np.nan),
            "recompute": nothing,
            "inferred": nothing,
            "layer": empty,
            "ledger": np.arange(size, dtype=np.int32),
            "launches": launches,
        }
    )


def _kinds(capture: Capture) -> tuple[Codes, Mask]:
    """(kind of work per row, whether it communicates), judged by the kernel's name."""
    names = capture.tables[S.LEDGER.name]["name"]
    words = [kind_of(str(name)) for name in names.cat.categories]
    places = {word: i for i, word in enumerate(KINDS)}
    other = places["other"]
    known = np.array([*(places.get(word, other) for word in words), other], np.int8)  # type: ignore[call-overload]
    moves = np.array([*(word == "communication" for word in words), False], bool)
    code = arrays.codes(names)
    return known[code], moves[code]


def _on_another_kind(capture: Capture) -> Mask:
    """Whether a row ran on a device unlike the one with most of the time, whose limits count."""
    table = capture.tables[S.LEDGER.name]
    device = table["device"].to_numpy()
    alike = {d.id: (d.name, d.compute_capability, d.units) for d in capture.facts.devices}
    time = np.nan_to_num(table["time_ns"].to_numpy(dtype=np.float64))
    spent: dict[int, float] = {}
    for one in np.unique(device).tolist():
        spent[one] = float(time[device == one].sum())
    known = [d for d in spent if d in alike]
    if len({alike[d] for d in known}) < 2:
        return np.zeros(len(table), bool)
    main = alike[max(known, key=lambda d: spent[d])]
    return np.isin(device, [d for d in known if alike[d] != main])
