"""Holds the links of the rows of a table that are so many that each is made when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, ItemsView, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.model.report import Link


class RowLinks(Mapping[str, Link]):
    """Links by the place of their row, as `TableSection.row_links` has them: of a million rows those of a page alone are ever made.

    linked: per row whether it has one. make: the link of a row that has. plain: all of them, as what the JSON encoder takes, where that is
    quicker than to make each.
    """

    def __init__(
        self, linked: npt.NDArray[np.bool_], make: Callable[[int], Link], plain: Callable[[], dict[str, object]] | None = None
    ) -> None:
        self._linked = linked
        self._make = make
        self.plain = plain

    def __getitem__(self, key: str) -> Link:
        row = int(key) if key.isdecimal() else -1
        if not 0 <= row < len(self._linked) or not self._linked[row]:
            raise KeyError(key)
        return self._make(row)

    def __iter__(self) -> Iterator[str]:
        return map(str, np.flatnonzero(self._linked).tolist())

    def __len__(self) -> int:
        return int(np.count_nonzero(self._linked))

    def items(self) -> ItemsView[str, Link]:
        """Returns all of them, without looking up each."""
        return _Items(self)

    def made(self) -> Iterator[tuple[str, Link]]:
        """Yields each with the place of its row."""
        return ((str(row), self._make(row)) for row in np.flatnonzero(self._linked).tolist())

    def first(self, rows: int) -> RowLinks:
        """Returns those of the first rows."""
        return RowLinks(self._linked[:rows], self._make)


class _Items(ItemsView[str, Link]):
    _mapping: RowLinks

    def __iter__(self) -> Iterator[tuple[str, Link]]:
        return self._mapping.made()
