"""Copies and sets of memory as records: one row each, with what hides it.

A copy is a device event of kind copy or set, or a kernel that the driver runs to copy (direction "copy kernel").
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics import memo
from tb_sol_plugin.metrics.breakdown import COMMUNICATION, COMPUTATION, classes
from tb_sol_plugin.metrics.scope import Mask
from tb_sol_plugin.model import schemas as S
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables import intervals as I

Ints: TypeAlias = npt.NDArray[np.int64]

COPY_KERNEL: Final = "copy kernel"
DIRECTIONS: Final = ("HtoD", "DtoH", "DtoD", "PtoP", "HtoH", "Memset", COPY_KERNEL, "Unknown")
"""In order of display."""
EDGES: Final = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
"""Upper ends of the size bins, inclusive."""
BINS: Final = ("≤ 4 KiB", "4–64 KiB", "64 KiB–1 MiB", "1–16 MiB", "16–256 MiB", "> 256 MiB")


def copies(capture: Capture, rows: Mask) -> pd.DataFrame:
    """The copies and sets among some device rows.

    Columns: row (of `device`), direction, src_kind, dst_kind (texts, "" unknown), device, stream, start_ns, duration_ns,
    bytes (-1 not recorded), hidden_ns and exposed_ns (of the copy alone: behind a kernel that is no communication, or not).
    """
    whole = memo(capture, ("copies",), lambda: _copies(capture))
    return pd.DataFrame(whole[rows[whole["row"].to_numpy()]].reset_index(drop=True))


def _copies(capture: Capture) -> pd.DataFrame:
    device = capture.device
    kind = device["kind"].to_numpy()
    row = np.flatnonzero((kind != S.KERNEL) | device["copy_kernel"].to_numpy())
    direction, src, dst = (texts(device[c], row) for c in ("direction", "src_kind", "dst_kind"))
    direction[kind[row] == S.KERNEL] = COPY_KERNEL
    direction[direction == ""] = "Unknown"
    start, duration = device["start_ns"].to_numpy()[row], device["duration_ns"].to_numpy()[row]
    out = pd.DataFrame({
        "row": row, "direction": direction, "src_kind": src, "dst_kind": dst, "device": device["device"].to_numpy()[row],
        "stream": device["stream"].to_numpy()[row], "start_ns": start, "duration_ns": duration, "bytes": device["bytes"].to_numpy()[row],
    })  # fmt: skip
    out["hidden_ns"] = covered(capture, out["device"].to_numpy(), start, start + duration, communication=False)
    out["exposed_ns"] = duration - out["hidden_ns"]
    return out


def texts(column: pd.Series[str], row: npt.NDArray[np.intp]) -> npt.NDArray[np.object_]:
    return np.array([str(c) for c in column.cat.categories] or [""], object)[column.cat.codes.to_numpy()[row]]


def covered(capture: Capture, device: Ints, start: Ints, end: Ints, *, communication: bool) -> Ints:
    """Length of each interval that kernels of its own device cover: those that compute, or communication kernels too."""
    kind, is_kernel = classes(capture), capture.device["kind"].to_numpy() == S.KERNEL
    work = is_kernel & ((kind == COMPUTATION) | ((kind == COMMUNICATION) if communication else False))
    ids = capture.device["device"].to_numpy()
    first = capture.device["start_ns"].to_numpy()
    last = first + capture.device["duration_ns"].to_numpy()
    out = np.zeros(len(start), np.int64)
    for one in np.unique(device).tolist():
        here = work & (ids == one)
        mine = device == one
        out[mine] = I.overlap_with(start[mine], end[mine], I.union(first[here], last[here]))
    return out
