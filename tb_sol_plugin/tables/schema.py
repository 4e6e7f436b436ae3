"""Declared tables: column names, types, units and one sentence each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pandas as pd
from msgspec import Struct

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.tables.arrays import few_texts
from tb_sol_plugin.tables.table import of_arrays


class Field(Struct, frozen=True):
    """A column: numpy dtype name, or "category" for dictionary-encoded strings; unit; one sentence."""

    dtype: str
    unit: str = ""
    doc: str = ""


class Schema(Struct, frozen=True, dict=True):
    """A table's declaration. `row` says what one row is."""

    name: str
    row: str
    fields: Mapping[str, Field]

    def empty(self) -> pd.DataFrame:
        """Returns a table without rows and with every column, made once: most recordings lack most tables."""
        return self._empty.copy(deep=False)

    @cached_property
    def _empty(self) -> pd.DataFrame:
        return self.frame({})

    def frame(self, columns: Mapping[str, object]) -> pd.DataFrame:
        """Returns a DataFrame in declared order and types; zero copy where the types already fit.

        Columns that are not given are filled with the type's "none": -1 for integers, NaN for floats, "" for categories.
        Raises KeyError for a column that is not declared and ValueError for unequal lengths.
        """
        extra = set(columns) - set(self.fields)
        if extra:
            raise KeyError(f"table {self.name} has no column {sorted(extra)}")
        lengths = {len(v) for v in columns.values()}  # type: ignore[arg-type]
        if len(lengths) > 1:
            raise ValueError(f"table {self.name}: columns of different lengths {sorted(lengths)}")
        length = lengths.pop() if lengths else 0
        given = ((columns.get(name), field) for name, field in self.fields.items())
        made = [_none(field, length) if value is None else _typed(value, field) for value, field in given]
        return of_arrays(made, self._columns, pd.RangeIndex(length))

    @cached_property
    def _columns(self) -> pd.Index:
        """The names of the columns, one index for all tables: how pandas keeps texts may differ where they are made (see `strings`)."""
        return pd.Index(list(self.fields))


_UNNAMED: Final = pd.CategoricalDtype(pd.Index([""], dtype=object))


def _none(field: Field, length: int) -> object:
    if field.dtype == "category":
        return pd.Categorical.from_codes(np.zeros(length, np.int32), dtype=_UNNAMED)
    kind = np.dtype(field.dtype)
    if kind.kind == "f":
        return np.full(length, np.nan, kind)
    if kind.kind == "b":
        return np.zeros(length, bool)
    return np.full(length, -1, kind)


def _typed(value: object, field: Field) -> object:
    if field.dtype == "category":
        if isinstance(value, pd.Categorical):
            return value
        if isinstance(value, pd.Series) and isinstance(value.dtype, pd.CategoricalDtype):
            return value.array
        texts = list(value)  # type: ignore[call-overload]
        return few_texts(texts) if {*map(type, texts)} == {str} else pd.Categorical(texts)
    return np.asarray(value, dtype=field.dtype)
