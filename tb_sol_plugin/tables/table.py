"""Holds a table whose columns are looked up once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from msgspec import Struct

Frame = TypeVar("Frame", bound=pd.DataFrame)


class Table(pd.DataFrame):
    """A frame that is never changed: a column is one Series, made when it is first asked for. What is derived of it is a plain frame.

    For frames whose columns are asked for again and again: each time costs a plain frame 20 µs.
    """

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def __getitem__(self, key: Any) -> Any:
        own = self.__dict__
        if type(key) is str and (known := own.get("_columns_asked_for")) is not None and (there := known.get(key)) is not None:
            return there
        if "_columns_asked_for" not in own:
            own["_columns_asked_for"] = {}
            if "_plain" not in own:
                own["_plain"] = _over(pd.DataFrame, self)  # of a subclass pandas makes each column twice
        columns: dict[str, Any] = own["_columns_asked_for"]
        if type(key) is not str:
            return own["_plain"][key]
        found = columns[key] = _column(own["_plain"], key)
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError("a table is not changed: derive a frame with assign()")


def _column(frame: pd.DataFrame, key: str) -> Any:
    """Returns a column of a frame as `frame[key]` does, in half the time where pandas has the short way of 2.1 to 3.0."""
    short = getattr(pd.Series, "_from_mgr", None)
    if short is None:
        return frame[key]
    place = frame.columns.get_loc(key)
    if type(place) is not int:  # several of one name
        return frame[key]
    values = frame._mgr.iget(place)  # type: ignore[union-attr]
    found = short(values, values.axes)
    object.__setattr__(found, "_name", key)
    return found


def with_columns(frame: pd.DataFrame, columns: Mapping[str, object]) -> pd.DataFrame:
    """Returns the frame with more columns, as `assign` does; of many at once in a third of the time."""
    known = {name: values for name, values in columns.items() if name in frame.columns}
    out = frame.assign(**known) if known else frame  # type: ignore[arg-type]
    new = pd.DataFrame({name: values for name, values in columns.items() if name not in known}, index=frame.index, copy=False)
    return pd.concat([out, new], axis=1)


def as_table(frame: pd.DataFrame) -> Table:
    """Returns the frame as a table; a table is itself."""
    if isinstance(frame, Table):
        return frame
    made = _over(Table, frame)
    made.__dict__["_plain"] = frame
    return made


def _over(kind: type[Frame], frame: pd.DataFrame) -> Frame:
    """Returns another frame over the same columns, neither of which is changed from here on; pandas' short way takes a tenth."""
    short = getattr(kind, "_from_mgr", None)
    return kind(frame) if short is None else short(frame._mgr, frame.axes)


FEW: Final = 10_000
"""Rows of a table up to which its columns are copied into one block per type: that takes less time than a block for each column."""


def frame_of(columns: Mapping[str, object], index: pd.Index | None = None) -> pd.DataFrame:
    """Returns `pd.DataFrame(columns, index, copy=False)` of columns of one length, of few rows in a fraction of its time.

    Arrays keep their type, those of objects, too; a list of texts is an array of objects, any other list becomes what numpy makes of it.
    """
    made = [_as_array(values) for values in columns.values()]
    lengths = set(map(len, made))
    if len(lengths) > 1:
        raise ValueError(f"columns of different lengths {sorted(lengths)}")
    return of_arrays(made, _names(tuple(columns)), pd.RangeIndex(max(lengths, default=0)) if index is None else index)


def of_arrays(arrays: Sequence[Any], columns: pd.Index, index: pd.Index) -> pd.DataFrame:
    """Returns a frame of arrays of one length; many rows stay as they are. pandas' own short way (1.0 to 3.0 have it) copies them."""
    short = getattr(pd.DataFrame, "_from_arrays", None)
    if short is not None and len(index) <= FEW:
        found: pd.DataFrame = short(arrays, columns=columns, index=index, verify_integrity=False)
        return found
    as_they_are = (pd.Series(one, index, dtype=object, copy=False) if one.dtype == object else one for one in arrays)
    made = pd.DataFrame(dict(enumerate(as_they_are)), index, copy=False)
    made.columns = columns
    return made


def _as_array(values: Any) -> Any:
    if isinstance(values, pd.Series):
        return values.array if isinstance(values.dtype, pd.api.extensions.ExtensionDtype) else values.to_numpy()
    if isinstance(values, np.ndarray | pd.api.extensions.ExtensionArray):
        return values
    made = np.array(values)
    return np.array(values, object) if made.dtype.kind in "USO" or not len(made) else made


@lru_cache(1_000)
def _names(columns: tuple[str, ...]) -> pd.Index:
    """Returns the names of columns, one index for all frames that have them."""
    return pd.Index(list(columns))


class StoredTable(Struct, frozen=True):
    """A table on disk. read: makes all of it; column: one of its columns alone; numbers: those of one, of texts their codes alone."""

    rows: int
    read: Callable[[], pd.DataFrame]
    column: Callable[[str], pd.Series]
    numbers: Callable[[str], npt.NDArray[Any]]


def numbers_of(column: pd.Series) -> npt.NDArray[Any]:
    """Returns the numbers of a column, of texts their codes."""
    return column.array.codes if isinstance(column.array, pd.Categorical) else column.to_numpy()


class StoredTables(Mapping[str, Table]):
    """Tables by name, each made when it is first asked for and then kept: of a recording on disk most questions need a few.

    size: bytes of all of them where they lie. let_go: gives back the memory through which they are seen, until they are looked at again.
    """

    def __init__(self, stored: Mapping[str, StoredTable], size: int, let_go: Callable[[], object]) -> None:
        self.size = size
        self.let_go = let_go
        self._stored = stored
        self._made: dict[str, Table] = {}

    def __getitem__(self, name: str) -> Table:
        found = self._made.get(name)
        if found is None:
            found = self._made.setdefault(name, as_table(self._stored[name].read()))  # of two threads both get the first one
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)

    def rows(self, name: str) -> int:
        """Returns how many rows a table has, without making it."""
        return self._stored[name].rows

    def column(self, name: str, column: str) -> pd.Series:
        """Returns a column of a table; of one that was not made the others are not, either."""
        found = self._made.get(name)
        return self._stored[name].column(column) if found is None else found[column]

    def numbers(self, name: str, column: str) -> npt.NDArray[Any]:
        """Returns the numbers of a column, of texts their codes, as `column` does."""
        found = self._made.get(name)
        return self._stored[name].numbers(column) if found is None else numbers_of(found[column])

    def __reduce__(self) -> tuple[type[dict[str, Table]], tuple[dict[str, Table]]]:
        return dict, (dict(self),)
