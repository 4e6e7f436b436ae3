"""Fewer points of a curve made of steps, with every largest and smallest value of it kept."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]

LEAST = 8
"""Points that are always allowed."""


def thinned(time_ns: Ints, levels: list[Ints], most: int) -> Ints:
    """Positions of at most `most` points of curves over the same times (ascending), in order.

    Time is cut into equal parts; of each part its first and its last point stay, and of every curve its first largest and first
    smallest. So the largest and smallest value of every curve, and where they stand, are exact, and every step lies in its part.
    """
    count = len(time_ns)
    most = max(most, LEAST, 2 * (2 + 2 * len(levels)))
    if count <= most:
        return np.arange(count, dtype=np.int64)
    parts = most // (2 + 2 * len(levels))
    span = float(time_ns[-1] - time_ns[0]) or 1.0
    part = np.minimum(((time_ns - time_ns[0]) / span * parts).astype(np.int64), parts - 1)
    begin = np.flatnonzero(np.r_[True, part[1:] != part[:-1]])
    of = np.cumsum(np.r_[False, part[1:] != part[:-1]])
    kept = [begin, np.r_[begin[1:] - 1, count - 1]]
    for level in levels:
        for extreme in (np.maximum.reduceat(level, begin), np.minimum.reduceat(level, begin)):
            at = np.flatnonzero(level == extreme[of])
            kept.append(at[np.r_[True, of[at][1:] != of[at][:-1]]])
    out: Ints = np.unique(np.concatenate(kept)).astype(np.int64)
    return out
