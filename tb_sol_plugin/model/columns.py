"""Holds columns of tables: numbers, distinct values with a code per row, or values spelled when they are asked for.

Each takes a fraction of a list of Python objects and is a sequence of values as lists are: a reader of a report need not know which it has.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.table import as_table

if TYPE_CHECKING:
    from tb_sol_plugin.model.report import Column, Scalar
else:
    Scalar = object

Indices: TypeAlias = npt.NDArray[np.int64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Spell: TypeAlias = "Callable[[Indices], list[Scalar] | arrays.Coded]"

_DIGITS: Final = re.compile("([0-9]+)")
STEP: Final = 4096
"""Values that are spelled at once where all are looked at one after the other."""


class ColumnValues(Sequence["Scalar"]):
    """A column as a sequence of values, equal to a list of the same."""

    def at(self, rows: Indices) -> list[Scalar]:
        """Returns the values of some rows."""
        raise NotImplementedError

    def tolist(self) -> list[Scalar]:
        """Returns all values."""
        return self.at(np.arange(len(self)))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.at(np.arange(len(self))[index])
        return self.at(np.array([range(len(self))[index]], dtype=np.int64))[0]

    def __iter__(self) -> Iterator[Scalar]:
        for start in range(0, len(self), STEP):
            yield from self.at(np.arange(start, min(start + STEP, len(self))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and len(self) == len(other) and self.tolist() == list(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, eq=False)
class Numbers(ColumnValues):
    """Whole or other numbers, all of one type; `known` is False where the value is None."""

    values: npt.NDArray[np.int64] | npt.NDArray[np.float64]
    known: Mask

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return self.values.nbytes + self.known.nbytes

    def at(self, rows: Indices) -> list[Scalar]:
        """Returns the values of some rows."""
        values, known = self.values[rows].tolist(), self.known[rows]
        return values if known.all() else [v if ok else None for v, ok in zip(values, known.tolist(), strict=True)]

    def ranks(self, textual: bool) -> npt.NDArray[np.float64] | npt.NDArray[np.int64]:
        """Returns numbers that sort as the values do."""
        if not textual:
            return self.values
        return as_distinct(self.tolist()).ranks(True)

    def texts_in(self, texts: Collection[str]) -> Mask:
        """Returns which rows have one of these texts; an unknown value is `null`."""
        whole = self.values.dtype == np.int64
        wanted = [n for n in (_whole(t) if whole else _number(t) for t in texts) if n is not None]
        found = np.isin(self.values, np.array(wanted, dtype=self.values.dtype)) & self.known
        return found | ~self.known if "null" in texts else found


@dataclass(frozen=True, eq=False)
class Distinct(ColumnValues):
    """Any values: the distinct ones, and a code per row, -1 for None."""

    codes: npt.NDArray[np.int32]
    values: list[Scalar]

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + sum(64 + len(v) if isinstance(v, str) else 40 for v in self.values)

    @property
    def known(self) -> Mask:
        return self.codes >= 0

    def at(self, rows: Indices) -> list[Scalar]:
        """Returns the values of some rows."""
        return [self.values[c] if c >= 0 else None for c in self.codes[rows].tolist()]

    def ranks(self, textual: bool) -> npt.NDArray[np.int64]:
        """Returns numbers that sort as the values do; values that are the same in order share one."""
        keys = _text_keys([text_of(v) for v in self.values]) if textual else _plain_keys(self.values)
        order = sorted(range(len(keys)), key=keys.__getitem__)
        rank = np.zeros(len(keys) + 1, dtype=np.int64)
        step = 0
        for before, at in zip([None, *order], order, strict=False):
            step += before is not None and keys[before] != keys[at]
            rank[at] = step
        return rank[self.codes]

    def texts_in(self, texts: Collection[str]) -> Mask:
        """Returns which rows have one of these texts; an unknown value is `null`."""
        return self.rows_of([text_of(v) in texts for v in self.values], "null" in texts)

    def rows_of(self, wanted: Sequence[bool], unknown: bool = False) -> Mask:
        """Returns which rows have a wanted value, `unknown` for those without one."""
        return np.array([*wanted, unknown], dtype=bool)[self.codes]


@dataclass(frozen=True, eq=False)
class Spelled(ColumnValues):
    """Texts of `size` rows that a function makes of their places: those of a page alone, all only where they are searched or ordered.

    spell: returns them as a list or dictionary-encoded. different: how many of them are different, where that is known.
    """

    size: int
    spell: Spell
    different: int | None = None

    def __len__(self) -> int:
        return self.size

    @cached_property
    def distinct(self) -> Distinct:
        """All of them, spelled out once."""
        made = self.spell(np.arange(self.size))
        return as_distinct(made) if isinstance(made, list) else of_codes(made.codes, made.categories)

    @property
    def nbytes(self) -> int:
        return self.distinct.nbytes if "distinct" in self.__dict__ else 0

    @property
    def known(self) -> Mask:
        return self.distinct.known

    def at(self, rows: Indices) -> list[Scalar]:
        """Returns the texts of some rows."""
        return plain_list(self.spell(rows))

    def ranks(self, textual: bool) -> npt.NDArray[np.int64]:
        """Returns numbers that sort as the texts do."""
        return self.distinct.ranks(textual)

    def texts_in(self, texts: Collection[str]) -> Mask:
        """Returns which rows have one of these texts."""
        return self.distinct.texts_in(texts)


Values: TypeAlias = Numbers | Distinct | Spelled


def columned(values: Sequence[Scalar]) -> Values:
    """Returns a sequence of values as a column."""
    if isinstance(values, Numbers | Distinct | Spelled):
        return values
    kinds = set(map(type, values)) - {type(None)}
    most = 2**63 if kinds == {int} else 2**53
    if not kinds or not kinds <= {int, float} or any(abs(v) >= most for v in values if type(v) is int):
        return as_distinct(values)
    known, filled = np.array([v is not None for v in values], dtype=bool), [0 if v is None else v for v in values]
    return Numbers(np.array(filled, dtype=np.int64) if kinds == {int} else np.array(filled, dtype=np.float64), known)


def of_series(values: object) -> Values:
    """Returns a column of a frame, without a Python object per row where it is of numbers, of a dictionary or of few texts; NaN, NaT,
    infinity and pandas' NA become None.
    """
    if isinstance(values, Numbers | Distinct | Spelled):
        return values
    series = values if isinstance(values, pd.Series) else pd.Series(values, dtype=object if isinstance(values, list) else None, copy=False)  # type: ignore[call-overload]
    dtype = series.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        text = arrays.coded(series)
        return of_codes(text.codes, text.categories)
    if isinstance(dtype, np.dtype) and (dtype.kind == "i" or (dtype.kind == "u" and dtype.itemsize < 8)):
        return Numbers(series.to_numpy().astype(np.int64, copy=False), np.ones(len(series), dtype=bool))
    if isinstance(dtype, np.dtype) and dtype.kind == "f":
        found = series.to_numpy(dtype=np.float64)
        good = np.isfinite(found)
        if good.all():
            return Numbers(found, good)
        return Numbers(np.where(good, found, 0.0) if good.any() else np.zeros(len(found)), good)
    if isinstance(dtype, np.dtype) and dtype.kind == "b" and len(series):
        truth = series.to_numpy()
        first = bool(truth[0])
        other = truth != first
        return Distinct(other.astype(np.int32), [first, not first] if other.any() else [first])
    if isinstance(dtype, pd.Int64Dtype):
        return Numbers(series.to_numpy(dtype=np.int64, na_value=0), series.notna().to_numpy())
    if isinstance(dtype, pd.StringDtype) or dtype.kind == "O":
        places, different = pd.factorize(series)
        if all(type(one) is str for one in different):
            return Distinct(places.astype(np.int32), [*different])
    return columned(plain_list(series))


def of_codes(codes: npt.NDArray[np.integer], values: pd.Index | npt.NDArray[Any]) -> Distinct:
    """Returns a column of the values with each code, None for -1: with those that are in use, as plain ones."""
    used = arrays.in_use(codes, len(values))
    place = np.full(len(values) + 1, -1, dtype=np.int32)  # the last for none
    place[used] = np.arange(len(used), dtype=np.int32)
    some = values.to_numpy()[used] if isinstance(values, pd.Index) and values.dtype == object else values.take(used)
    return Distinct(place[codes], plain_list(some.tolist()))


def as_distinct(values: Sequence[Scalar]) -> Distinct:
    """Returns any values as distinct ones with a code per row."""
    if isinstance(values, Spelled):
        return values.distinct
    if isinstance(values, Distinct):
        return values
    if all(type(v) is str or v is None for v in values):
        seen: dict[Scalar, int] = {}
        codes = [-1 if v is None else seen.setdefault(v, len(seen)) for v in values]
        return Distinct(np.array(codes, dtype=np.int32), list(seen))
    typed: dict[tuple[type, Scalar], int] = {}
    codes = [-1 if v is None else typed.setdefault((type(v), v), len(typed)) for v in values]
    return Distinct(np.array(codes, dtype=np.int32), [value for _, value in typed])


def text_of(value: Scalar) -> str:
    """Returns a value as the page writes it where it is compared as a text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e21:
        return str(int(value))
    return str(value)


def number_of(value: Scalar) -> float | None:
    """Returns a value as a number; None where it is none."""
    return float(value) if isinstance(value, int | float) else None


def _whole(text: str) -> int | None:
    found = re.fullmatch("-?(0|[1-9][0-9]{0,18})", text)
    return int(text) if found and abs(int(text)) < 2**63 else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


TextKey: TypeAlias = list[tuple[int, float | str | bytes]]


def _text_keys(texts: Sequence[str]) -> list[TextKey]:
    """Returns keys that sort texts without case, groups of digits by their number, in the order of UTF-16 as browsers do."""
    lowered = [t.lower() for t in texts]
    wide = any(t and max(t) >= "\ud800" for t in lowered)

    def key(text: str) -> TextKey:
        parts = enumerate(_DIGITS.split(text))
        return [(1, float(p)) if i % 2 else (0, p.encode("utf-16-be", "surrogatepass") if wide else p) for i, p in parts if p]

    return [key(t) for t in lowered]


def _plain_keys(values: Sequence[Scalar]) -> list[TextKey]:
    """Returns keys that sort numbers and truth values before texts, these by their letters."""
    return [[(2, v.encode("utf-16-be", "surrogatepass")) if isinstance(v, str) else (1, v or 0)] for v in values]


# -- from frames --------------------------------------------------------------------------------------------------------


MANY_ROWS = 2_000
"""Rows of a table from which its columns are kept as arrays, and no longer as lists."""


def column_data(
    frame: pd.DataFrame | Mapping[str, object],
    columns: Sequence[Column],
    spelled: Mapping[str, Spell] | None = None,
) -> dict[str, Sequence[Scalar]]:
    """Returns `frame` in the order of `columns`, as plain lists, of many rows as arrays; NaN, NaT, infinity and pandas' NA become None.

    frame: a table, or its columns as arrays and lists of one length, by name. spelled: by column that is not in the frame, what makes its
    values of an array of places. Extra columns of the frame are left out; a missing one is a KeyError (a wrong table is worse than none).
    """
    made = spelled or {}
    size = len(frame) if isinstance(frame, pd.DataFrame) else len(next(iter(frame.values()), ()))  # type: ignore[arg-type]
    if isinstance(frame, pd.DataFrame):
        frame = as_table(frame)
    if size > MANY_ROWS:
        return {c.name: Spelled(size, made[c.name]) if c.name in made else of_series(frame[c.name]) for c in columns}
    return {c.name: Spelled(size, made[c.name]).tolist() if c.name in made else plain_list(frame[c.name]) for c in columns}


def held(values: object) -> list[Scalar] | Values:
    """Returns values of rows as a list, of many rows as arrays: a list of a million numbers takes five times their bytes."""
    return of_series(values) if len(values) > MANY_ROWS else plain_list(values)  # type: ignore[arg-type]


def whole_numbers(values: npt.NDArray[np.float64]) -> Values:
    """Returns a column of whole numbers, None for NaN."""
    known = np.isfinite(values)
    if not known.any():
        return Numbers(np.zeros(len(values), np.int64), known)
    if not (np.abs(values[known]) < 2**62).all():
        return as_distinct(arrays.whole_or_none(values).tolist())
    return Numbers(np.where(known, np.rint(values), 0).astype(np.int64), known)


def taken(values: Sequence[Scalar], order: Indices) -> Sequence[Scalar]:
    """Returns what `held` returned in another order."""
    if isinstance(values, Numbers):
        return Numbers(values.values[order], values.known[order])
    return Distinct(values.codes[order], values.values) if isinstance(values, Distinct) else [values[i] for i in order.tolist()]


def joined(values: Sequence[Scalar], more: Scalar) -> Sequence[Scalar]:
    """Returns what `held` returned with one value more."""
    if isinstance(values, Numbers) and (more is None or isinstance(more, int | float)):
        return Numbers(np.append(values.values, more or 0), np.append(values.known, more is not None))
    return [*values, more]


def listed(values: Sequence[Scalar]) -> list[Any]:
    """Returns what `held` returned as a list, for a loop over its values."""
    return values if isinstance(values, list) else list(values)


def plain_list(values: object) -> list[Scalar]:
    """Converts any pandas Series, numpy array or sequence as a list of str, int, float, bool and None."""
    if isinstance(values, ColumnValues):
        return values.tolist()
    if isinstance(values, pd.Series):
        values = values.to_numpy() if isinstance(values.dtype, np.dtype) else values.array
    if isinstance(values, np.ndarray) and values.dtype.kind in "iubO":
        whole: list[Scalar] = values.tolist()
        if values.dtype.kind != "O":
            return whole
        values = whole
    if isinstance(values, list):
        kinds = set(map(type, values))
        if kinds <= _PLAIN:
            return values
        if kinds <= _PLAIN | {float}:
            return [None if type(v) is float and not math.isfinite(v) else v for v in values]
        return [_plain(v) for v in values]
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return _plain_floats(values)
    if isinstance(values, pd.Categorical):
        texts = [*plain_list(values.categories.tolist()), None]
        return [texts[code] for code in values.codes.tolist()]
    if isinstance(values, pd.arrays.IntegerArray):
        return values.to_numpy(object, na_value=None).tolist()  # type: ignore[no-any-return, arg-type]
    if isinstance(getattr(values, "dtype", None), pd.StringDtype):
        return plain_list(values.tolist())  # type: ignore[attr-defined]
    series = pd.Series(values)  # type: ignore[call-overload]
    if pd.api.types.is_float_dtype(series.dtype):
        return _plain_floats(series.to_numpy(dtype="float64", na_value=np.nan))
    if pd.api.types.is_object_dtype(series.dtype) or pd.api.types.is_string_dtype(series.dtype):
        return plain_list(series.tolist())
    return [None if v is pd.NA else v for v in series.tolist()]


_PLAIN: Final = frozenset((str, bool, int, type(None)))


def _plain_floats(array: npt.NDArray[Any]) -> list[Scalar]:
    good = np.isfinite(array)
    floats: list[Scalar] = array.tolist()
    return floats if good.all() else [v if ok else None for v, ok in zip(floats, good.tolist(), strict=True)]


def _plain(value: object) -> Scalar:
    if value is None or isinstance(value, str | bool | int):
        return value
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else None
    if isinstance(value, str | bool | int):
        return value
    return None
