"""Bytes that device events move over a link: copies between memories and collectives."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cost.ops.collectives import wire_bytes
from tb_sol_plugin.metrics import memo
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture

LINK_DIRECTIONS: Final = ("HtoD", "DtoH", "PtoP")


def over_link(capture: Capture) -> npt.NDArray[np.bool_]:
    """Per device row whether it is a copy that leaves or enters the device."""
    device = capture.device
    return np.asarray((device["kind"].to_numpy() == S.MEMCPY) & device["direction"].isin(LINK_DIRECTIONS).to_numpy())


def link_bytes(capture: Capture) -> npt.NDArray[np.float64]:
    """Per device row the bytes over the link: of a copy as recorded, of a collective the least that its rank sends; NaN unknown."""
    return memo(capture, ("work.link_bytes",), lambda: _link_bytes(capture))


def _link_bytes(capture: Capture) -> npt.NDArray[np.float64]:
    out = np.full(len(capture.device), np.nan)
    size = capture.device["bytes"].to_numpy()
    copies = over_link(capture) & (size >= 0)
    out[copies] = size[copies]
    table = capture.tables["collectives"]
    if len(table):
        keys = ["name", "in_elements", "out_elements", "dtype", "group_size"]
        number = table.groupby(keys, observed=True, dropna=False, sort=False).ngroup().to_numpy()
        _, first, place = np.unique(number, return_index=True, return_inverse=True)
        rows = table.iloc[first][keys].itertuples(index=False)
        known = [wire_bytes(str(name), int(low), int(high), str(dtype), int(ranks)) for name, low, high, dtype, ranks in rows]
        out[table["device"].to_numpy()] = np.array([np.nan if b is None else b for b in known], np.float64)[place.reshape(-1)]
    return out
