"""Dictionary-encoded text columns without spelling every row out: the test or the look-up runs once per distinct text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pandas as pd

Objects = npt.NDArray[np.object_]


def codes(column: pd.Series) -> npt.NDArray[np.int64]:
    """Code per row, -1 for none."""
    return np.asarray(column.cat.codes.to_numpy(), np.int64)


def where(column: pd.Series, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Rows whose text passes a test; a row without text does not."""
    hit = np.array([*(bool(test(str(c))) for c in column.cat.categories), False], bool)
    return np.asarray(hit[codes(column)], np.bool_)


def pick(column: pd.Series, rows: npt.ArrayLike) -> Objects:
    """Texts at rows, "" for none."""
    texts = np.array([*(str(c) for c in column.cat.categories), ""], dtype=object)
    out: Objects = texts[codes(column)[np.asarray(rows, np.int64)]]
    return out


def largest(columns: list[pd.Series], rows: npt.ArrayLike, values: npt.NDArray[np.generic]) -> tuple[list[str], float]:
    """The combination of texts with the largest sum of `values` over rows, and that sum. (["", …], 0.0) without rows."""
    at = np.asarray(rows, np.int64)
    if not len(at):
        return [""] * len(columns), 0.0
    key = np.zeros(len(at), np.int64)
    for column in columns:
        key = pd.factorize(key)[0] * (len(column.cat.categories) + 1) + codes(column)[at] + 1
    group, unique = pd.factorize(key)
    total = np.bincount(group, values.astype(np.float64), minlength=len(unique))
    best = int(total.argmax())
    row = at[int(np.flatnonzero(group == best)[0])]
    return [str(pick(column, [row])[0]) for column in columns], float(total[best])
