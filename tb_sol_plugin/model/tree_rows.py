"""Orders the rows of a tree: siblings in the order of the table, children below their parent, as far as branches are open.

What the page does with the few rows of a small table, over arrays. Nothing is done row by row but level by level.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

Indices: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]

OPEN_ROWS: Final = 24
"""Rows up to which the heaviest branches stand open from the start, and the share of the heaviest root that they have at the least."""
HEAVY: Final = 0.04
MOST_PATH: Final = 500_000
"""Characters of the ids above a row that one answer holds."""


class Tree:
    """Who is whose parent. A parent that is not there makes its row a root; a circle is cut."""

    def __init__(self, ids: Sequence[str], parents: Sequence[str | None]) -> None:
        place = {name: at for at, name in enumerate(ids)}
        self.ids = ids
        self.up: Indices = np.array([-1 if p is None else place.get(p, -1) for p in parents], dtype=np.int64)
        self.up[self.up == np.arange(len(ids))] = -1
        self.depth = _depths(self.up)
        by_depth = np.argsort(self.depth, kind="stable")
        self._levels = np.split(by_depth, np.cumsum(np.bincount(self.depth))[:-1]) if len(ids) else []
        self.branch = np.zeros(len(ids), dtype=bool)
        self.branch[self.up[self.up >= 0]] = True
        self._sizes = np.ones(len(ids), dtype=np.int64)
        for rows in reversed(self._levels[1:]):
            np.add.at(self._sizes, self.up[rows], self._sizes[rows])

    @property
    def nbytes(self) -> int:
        return 40 * len(self.ids) + sum(60 + len(name) for name in self.ids)

    def order(self, flat: Indices) -> Indices:
        """Returns all rows, each above its children, siblings as they stand in `flat`."""
        rank, place = np.empty_like(flat), np.empty_like(flat)
        rank[flat] = np.arange(len(flat))
        family = np.lexsort((rank, self.up))
        before = np.cumsum(self._sizes[family]) - self._sizes[family]
        first = np.concatenate([[True], self.up[family][1:] != self.up[family][:-1]])[: len(flat)]
        offset = np.empty_like(flat)
        offset[family] = before - before[np.maximum.accumulate(np.where(first, np.arange(len(flat)), 0))]
        for depth, rows in enumerate(self._levels):
            place[rows] = offset[rows] + (place[self.up[rows]] + 1 if depth else 0)
        out = np.empty_like(flat)
        out[place] = np.arange(len(flat))
        return out

    def seen(self, open_: Mask) -> Mask:
        """Returns the rows whose ancestors are all open."""
        out = np.ones(len(self.up), dtype=bool)
        for rows in self._levels[1:]:
            out[rows] = out[self.up[rows]] & open_[self.up[rows]]
        return out

    def kept(self, passing: Mask) -> Mask:
        """Returns the rows that pass and those with a row below that does."""
        out = passing.copy()
        for rows in reversed(self._levels[1:]):
            out[self.up[rows[out[rows]]]] = True
        return out

    def parents_of(self, rows: Mask) -> Mask:
        """Returns which rows have one of these right below."""
        out = np.zeros(len(self.up), dtype=bool)
        above = self.up[rows]
        out[above[above >= 0]] = True
        return out

    def toggled(self, natural: Mask, ids: Collection[str]) -> Mask:
        """Returns what is open where the rows of some ids are the other way round."""
        if not ids:
            return np.asarray(natural & self.branch)
        turned = np.array([name in ids for name in self.ids], dtype=bool)
        return np.asarray((natural ^ turned) & self.branch)

    def path(self, row: int) -> list[str]:
        """Returns the ids above a row, the nearest first, as many as hold `MOST_PATH` characters together."""
        out: list[str] = []
        left = MOST_PATH
        while (row := int(self.up[row])) >= 0 and (left := left - len(self.ids[row])) >= 0:
            out.append(self.ids[row])
        return out

    def heaviest(self, weight: npt.NDArray[np.float64], roots: Indices) -> Mask:
        """Returns what is open from the start: the heaviest branches first, while the table stays short enough to see at once."""
        out = np.zeros(len(self.up), dtype=bool)
        shown = len(roots)
        if shown >= OPEN_ROWS:
            return out
        least = HEAVY * max(0.0, *weight[roots].tolist()) if shown else 0.0
        fringe = roots[self.branch[roots]].tolist()
        while fringe:
            at = fringe.pop(max(range(len(fringe)), key=lambda i: (weight[fringe[i]], i)))
            inner = np.flatnonzero(self.up == at)
            if shown + len(inner) > OPEN_ROWS or weight[at] < least:
                continue
            out[at] = True
            shown += len(inner)
            fringe += inner[self.branch[inner]].tolist()
        return out


def _depths(up: Indices) -> Indices:
    """Returns how many rows stand above each; a circle is cut, in `up` too, where a walk up from its first row comes round again."""
    while True:
        depth, above = (up >= 0).astype(np.int64), up.copy()
        for _ in range(max(1, len(up)).bit_length() + 1):
            some = above >= 0
            if not some.any():
                return depth
            depth[some] += depth[above[some]]
            above[some] = above[above[some]]
        at, seen = int(np.flatnonzero(above >= 0)[0]), set()
        while at not in seen:
            seen.add(at)
            at = int(up[at])
        up[at] = -1
