"""Rows that are alike, numbered."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints = npt.NDArray[np.int64]


def numbered(key: Ints) -> tuple[Ints, Ints]:
    """(group per row, first row per group) of equal keys, in order of first appearance."""
    code, unique = pd.factorize(key)
    first = np.zeros(len(unique), np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    return code.astype(np.int64), first


def factorize(columns: list[Ints]) -> tuple[Ints, Ints]:
    """The same for rows that agree in all of the integer columns; -1 is a value like any other."""
    key = columns[0].astype(np.int64)
    for column in columns[1:]:
        key = pd.factorize(key)[0].astype(np.int64)
        key = key * (int(column.max(initial=0)) + 2) + column
    return numbered(key)
