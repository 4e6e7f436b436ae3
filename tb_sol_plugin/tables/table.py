"""Holds a table whose columns are looked up once."""

from __future__ import annotations

from typing import Any

import pandas as pd


class Table(pd.DataFrame):
    """A frame that is never changed: a column is one Series, made when it is first asked for. What is derived of it is a plain frame."""

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, str):
            return super().__getitem__(key)
        columns: dict[str, Any] = self.__dict__.setdefault("_columns_asked_for", {})
        found = columns.get(key)
        if found is None:
            found = columns[key] = super().__getitem__(key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("a table of a recording is not changed: derive a frame with assign()")


def as_table(frame: pd.DataFrame) -> Table:
    """Returns the frame as a table; a table is itself."""
    return frame if isinstance(frame, Table) else Table(frame)
