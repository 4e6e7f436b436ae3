"""What the names of device work say: its kind, whether it runs on matrix units, and a short name that no other of the recording has.

Of a million names none is held as a text again: classes are codes, and a short name is spelled when it is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.time.distinct_names import short_names
from tb_sol_plugin.metrics.time.kernel_names import AT_ONCE, KIND_NAMES, MANY, Match, kind_places, matrix_places, plain_name, plain_names
from tb_sol_plugin.process import give_back
from tb_sol_plugin.tables import arrays

Small: TypeAlias = npt.NDArray[np.int8]
Rows: TypeAlias = npt.NDArray[np.integer]


class KernelClasses:
    """One row per distinct name of device work."""

    kind_names: Final = KIND_NAMES

    def __init__(self, texts: pd.Index, used: Rows, vendor: str = "") -> None:
        """Takes texts, and the places of the names among them, ascending; all different. vendor: of the device, "" unknown."""
        self._texts, self._used, self._vendor = texts, used.astype(np.int32), vendor

    def __len__(self) -> int:
        return len(self._used)

    def names(self, rows: Rows | slice = slice(None)) -> list[str]:
        """Returns the names of rows."""
        return arrays.spelled(self._texts, self._used[rows])

    @property
    def kind(self) -> Small:
        """The kind of work of each, by its place in `kind_names`."""
        return self._read[0]

    @property
    def match(self) -> Small:
        """What decides about matrix units, by its place in `matches`."""
        return self._matrix[0]

    @property
    def matches(self) -> Sequence[Match]:
        """What decides about matrix units: those that a name may meet."""
        return self._matrix[1]

    @cached_property
    def tensor_core(self) -> Small:
        """Whether each runs on matrix units: 1 yes, 0 no, -1 unknown."""
        return np.array([-1 if m.tensor_core is None else m.tensor_core for m in self.matches], np.int8)[self.match]

    def short_names(self, rows: Rows | slice = slice(None)) -> list[str]:
        """Returns the short names of rows."""
        told, plain = self._read[1], self._plain(self.names(rows))
        if not told:
            return plain
        places = np.arange(len(self))[rows].tolist()
        return [told.get(place, short) for place, short in zip(places, plain, strict=True)]

    def short_name(self, row: int) -> str:
        """Returns the short name of a row."""
        told = self._read[1].get(row)
        return self._plain([str(self._texts[self._used[row]])])[0] if told is None else told

    def _plain(self, names: Sequence[str]) -> list[str]:
        return [*map(plain_name, names)] if len(self) < MANY else plain_names(names)

    @cached_property
    def _read(self) -> tuple[Small, dict[int, str]]:
        """Returns kinds, and the short names of rows that share their plain name with another."""
        kind, shape = np.zeros(len(self), np.int8), np.zeros(len(self), np.int64)
        for begin in range(0, len(self), AT_ONCE):
            piece = slice(begin, begin + AT_ONCE)
            plain = self._plain(self.names(piece))
            kind[piece], shape[piece] = kind_places(plain), [*map(hash, plain)]
        code, distinct = pd.factorize(shape)
        alike = np.flatnonzero(np.bincount(code, minlength=len(distinct))[code] > 1)  # or their hashes are: then nothing is added
        told = dict(zip(alike.tolist(), short_names(self.names(alike)), strict=True)) if len(alike) else {}
        if len(self) > AT_ONCE:
            give_back()
        return kind, told

    @cached_property
    def _matrix(self) -> tuple[Small, Sequence[Match]]:
        return matrix_places(self.names(), self._vendor)


def classes_of(column: pd.Series, vendor: str) -> tuple[KernelClasses, npt.NDArray[np.int32]]:
    """Returns the classes of the names in a column, and per code of a name its row there, -1 for one that no row has, and last for none."""
    names = arrays.coded(column)
    used = arrays.in_use(names.codes, len(names.categories))  # tables share dictionaries: most of a large one may be names of other tables
    row = np.full(len(names.categories) + 1, -1, np.int32)
    row[used] = np.arange(len(used), dtype=np.int32)
    return KernelClasses(names.categories, used, vendor), row
