"""How the pages of the copies say directions, kinds of memory and sizes, and how a query names them."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.metrics.memcpy.records import BINS, COPY_KERNEL, EDGES

NAMES: Final = {
    "HtoD": "Host to device", "DtoH": "Device to host", "DtoD": "Device to device", "PtoP": "Peer to peer", "HtoH": "Host to host",
    "Memset": "Memset", COPY_KERNEL: "Copy kernels", "Unknown": "Direction unknown",
}  # fmt: skip
COLORS: Final = {"HtoD": "HtoD", "DtoH": "DtoH", "DtoD": "DtoD", "Memset": "Memset", "PtoP": "communication", COPY_KERNEL: "DtoD"}
"""Palette member per direction; others have the colour of what has no class."""
ARROW: Final = " → "
SIZES: Final = ("to 4 KiB", "to 64 KiB", "to 1 MiB", "to 16 MiB", "to 256 MiB", "over 256 MiB", "unknown")
"""The size bins as a query names them, in the order of BINS; the last: copies without a size."""


def kinds_text(src: str, dst: str) -> str:
    """`Pinned → Device`; `?` for an end whose kind was not recorded."""
    return f"{src or '?'}{ARROW}{dst or '?'}"


def memory_text(direction: str, src: str, dst: str) -> str:
    """The kinds as a page shows them: both ends of a copy, the one that a set fills, "" where neither was recorded."""
    if direction == "Memset" and not src:
        return dst
    return kinds_text(src, dst) if src or dst else ""


def kinds_of(text: str) -> tuple[str, str] | None:
    """The two kinds of `kinds_text`; `>` and `->` do for the arrow, and nothing for `?`. None for other texts."""
    parts = re.split(r"\s*(?:→|->|>)\s*", text.strip())
    if len(parts) != 2:
        return None
    src, dst = ("" if p == "?" else p for p in parts)
    return src, dst


def in_bin(found: pd.DataFrame, name: str) -> npt.NDArray[np.bool_]:
    """Per copy whether its size is in the bin of that name (see SIZES)."""
    size = found["bytes"].to_numpy()
    if name == SIZES[-1]:
        return np.asarray(size < 0, np.bool_)
    at = np.searchsorted(np.array(EDGES), size, side="left")
    return np.asarray((size >= 0) & (at == SIZES.index(name)), np.bool_)


def bin_name(index: int) -> str:
    """The bin as a page shows it: `64 KiB–1 MiB`."""
    return BINS[index]
