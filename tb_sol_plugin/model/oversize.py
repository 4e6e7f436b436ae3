"""Copies that cannot be as large as they are recorded."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.devices.spec import DeviceProps


def larger_than_memory(copies: pd.DataFrame, devices: Sequence[DeviceProps]) -> npt.NDArray[np.bool_]:
    """Copies and sets with an end on a device whose memory is smaller than they are; False where its memory is not known.

    copies: columns device, direction and bytes. Copies within the host, and those of unknown direction, can have any size.
    """
    room = np.full(len(copies), np.inf)
    for one in devices:
        if one.memory_bytes > 0:
            room[copies["device"].to_numpy() == one.id] = one.memory_bytes
    inside = ~copies["direction"].isin(("HtoH", "Unknown")).to_numpy()
    return np.asarray(inside & (copies["bytes"].to_numpy() > room), np.bool_)
