"""Writes and reads lists of the ranks of a group: evenly spaced stretches, each as START:STRIDE:COUNT, with commas between."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from tb_sol_plugin.tables.arrays import Ints

MOST: Final = 1 << 20
"""Ranks of a group that are taken to be real."""
_NUMBER: Final = re.compile(r"\d{1,9}")


def members_of(text: str) -> Ints:
    """Returns the ranks that such a text lists, in its order; none for a text that lists no ranks, or more than a job has."""
    out: list[Ints] = []
    total = 0
    for run in text.split(",") if text else ():
        start, _, rest = run.partition(":")
        stride, _, count = rest.partition(":")
        try:
            first, step, many = int(start), int(stride), int(count)
        except ValueError:
            return np.zeros(0, np.int64)
        total += many
        last = first + step * (many - 1)
        if many < 1 or total > MOST or not 0 <= first < 2**31 or not 0 <= last < 2**31:
            return np.zeros(0, np.int64)
        out.append(np.arange(many, dtype=np.int64) * step + first)
    return np.concatenate(out) if out else np.zeros(0, np.int64)


def text_of(ranks: Sequence[int] | Ints) -> str:
    """Returns such a text of ranks, each stretch as long as it may be."""
    values = [int(rank) for rank in ranks]
    runs: list[list[int]] = []
    for rank in values:
        if runs and runs[-1][2] > 1 and rank == runs[-1][0] + runs[-1][1] * runs[-1][2]:
            runs[-1][2] += 1
        elif runs and runs[-1][2] == 1:
            runs[-1][1:] = [rank - runs[-1][0], 2]
        else:
            runs.append([rank, 1, 1])
    return ",".join(":".join(map(str, run)) for run in runs)


def ranges(ranks: Sequence[int] | Ints) -> str:
    """Returns ranks as one reads them: `0-7, 16`, evenly spaced ones as `3-1019 by 8`."""
    out = []
    for run in text_of(ranks).split(",") if len(ranks) else ():
        first, stride, count = map(int, run.split(":"))
        last = first + stride * (count - 1)
        apart = f" by {stride}" if stride != 1 else ""
        out.append(str(first) if count == 1 else f"{first}, {last}" if count == 2 else f"{first}-{last}{apart}")
    return ", ".join(out)


def listed(text: str) -> Ints | None:
    """Returns the ranks of `[0, 1, 2]` as a recorder writes them; None where the text is cut short (`...`) or lists none."""
    if "..." in text or not text.strip().startswith("["):
        return None
    found = [int(number) for number in _NUMBER.findall(text)]
    return np.array(found, np.int64) if found else None
