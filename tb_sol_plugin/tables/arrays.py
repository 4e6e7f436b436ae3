"""Names types of arrays, and helps over rows that are alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

Ints: TypeAlias = npt.NDArray[np.int64]
Floats: TypeAlias = npt.NDArray[np.float64]
Mask: TypeAlias = npt.NDArray[np.bool_]
Rows: TypeAlias = npt.NDArray[np.int32]
Places: TypeAlias = npt.NDArray[np.intp]
Objects: TypeAlias = npt.NDArray[np.object_]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Coded: TypeAlias = "pd.Categorical[Any]"
"""Texts with a code per row."""


def numbered(key: Ints) -> tuple[Ints, Ints]:
    """Returns (group per row, first row per group) of equal keys, in order of first appearance."""
    if len(key):
        low = int(key.min())
        wide = int(key.max()) - low + 1
        if wide <= 2 * len(key) + FEW:
            place = np.subtract(key, low, dtype=np.intp)
            first = np.full(wide, -1, np.int64)
            first[place[::-1]] = np.arange(len(key) - 1, -1, -1)
            there = np.flatnonzero(first >= 0)
            begins = first[there]
            begins.sort()
            number = np.empty(wide, np.int64)
            number[place[begins]] = np.arange(len(begins))
            return number[place], begins
    code, unique = pd.factorize(key)
    return code.astype(np.int64, copy=False), first_of(code, len(unique)).astype(np.int64, copy=False)


def factorize(columns: Sequence[npt.NDArray[np.integer]]) -> tuple[Ints, Ints]:
    """Returns the same for rows that agree in all of the integer columns; -1 is a value like any other."""
    key, count = columns[0].astype(np.int64), int(columns[0].max(initial=0)) + 2
    for column in columns[1:]:
        wide = int(column.max(initial=0)) + 2
        if count * wide >= _MOST:
            code, unique = pd.factorize(key)
            key, count = code.astype(np.int64), len(unique) + 1
        key = key * wide + column
        count *= wide
    return numbered(key)


_MOST: Final = 2**62
"""Combinations of values that fit into one number."""


def in_order(key: Ints) -> tuple[Ints, Places]:
    """Returns (values that are there, ascending; per row the place of its value), as `np.unique` does, without a sort of all rows."""
    if len(key):
        low = int(key.min())
        wide = int(key.max()) - low + 1
        if wide <= 2 * len(key) + FEW:
            place = np.subtract(key, low, dtype=np.intp)
            here = np.zeros(wide, np.bool_)
            here[place] = True
            return np.flatnonzero(here) + low, (np.cumsum(here) - 1)[place]
    code, values = pd.factorize(key)
    order = np.argsort(values)
    rank = np.empty(len(values), np.intp)
    rank[order] = np.arange(len(values))
    return values[order], rank[code]


def stable_order(values: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Returns the places of values in ascending order, equal ones as they stand.

    Whole numbers are sorted with their places in one number each, which takes a fraction of the time of a sort of places.
    """
    if values.dtype.kind == "i" and len(values) > FEW:
        if (values[1:] >= values[:-1]).all():
            return np.arange(len(values), dtype=np.intp)
        low, bits = int(values.min()), len(values).bit_length()
        if int(values.max()) - low < 1 << (62 - bits):
            key = np.subtract(values, low, dtype=np.int64)  # in place from here on: values may be long
            key <<= bits
            key |= np.arange(len(values), dtype=np.int32 if bits < 32 else np.int64)
            key.sort()
            key &= (1 << bits) - 1
            places: npt.NDArray[np.intp] = key.astype(np.intp, copy=False)
            return places
    return np.argsort(values, kind="stable")


def lex_order(*keys: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Returns the places in ascending order of the first key, then of the next ones, equal ones as they stand.

    `np.lexsort` takes keys the other way round, and several times as long where they are in order or whole numbers.
    """
    order = np.arange(len(keys[0]))
    for key in reversed(keys):
        own = key[order]
        if not (own[1:] >= own[:-1]).all():
            order = order[stable_order(own)]
    return order


def ranges(first: npt.NDArray[np.integer], count: npt.NDArray[np.integer]) -> Ints:
    """Returns `first[i], first[i] + 1, ...` for each i, `count[i]` numbers of each, one range after the other."""
    ends = np.cumsum(count, dtype=np.int64)
    out: Ints = np.repeat(first - ends + count, count) + np.arange(int(ends[-1]) if len(ends) else 0)
    return out


def ranked(values: npt.NDArray[np.integer], size: int) -> tuple[Ints, Ints, Rows]:
    """Returns (values that are there, ascending; the first row of each; per row the place of its value, -1 for one below 0).

    As `np.unique` does, without a sort: all values are below `size`.
    """
    first = np.full(size + 1, len(values), np.int64)  # the last for none
    first[values[::-1]] = np.arange(len(values) - 1, -1, -1)
    there = np.flatnonzero(first[:-1] < len(values))
    place = np.full(size + 1, -1, np.int32)
    place[there] = np.arange(len(there), dtype=np.int32)
    return there.astype(np.int64, copy=False), first[there], place[values]


# -- Dictionary-encoded text columns without spelling every row out --------------------------------------------------


def codes(column: pd.Series) -> npt.NDArray[np.int64]:
    """Returns code per row, -1 for none."""
    return coded(column).codes.astype(np.int64)


def coded(column: pd.Series) -> pd.Categorical:
    """Returns the codes and categories of a dictionary-encoded column, without a Series around each."""
    return cast("pd.Categorical", column.array)


def in_use(code: npt.NDArray[np.integer], count: int) -> npt.NDArray[np.intp]:
    """Returns which of the codes below `count` are there, ascending; -1 is none."""
    here = np.zeros(count + 1, np.bool_)  # the last for none
    here[code] = True
    return np.flatnonzero(here[:-1])


FEW = 500
"""Distinct texts that are asked about without a look at which of them a column uses."""
FEW_CODES = 16
"""Codes that are looked for one by one: comparing a column with a number is quicker than looking every number up."""


AT_ONCE = 256
"""Texts that are looked through together for hints: most of a million hold none."""


def hinted(texts: Sequence[str], hints: Sequence[str]) -> Iterator[int]:
    """Yields the places of texts that hold one of some hints, which are in lower case, in any case."""
    for begin in range(0, len(texts), AT_ONCE):
        piece = texts[begin : begin + AT_ONCE]
        together = "\n".join(piece).lower()
        there = [hint for hint in hints if hint in together]
        if there:
            yield from (begin + i for i, text in enumerate(map(str.lower, piece)) if any(hint in text for hint in there))


def where(column: pd.Series, test: Callable[[str], bool], hints: Sequence[str] = ()) -> npt.NDArray[np.bool_]:
    """Returns rows whose text passes a test; a row without text does not.

    hints: in lower case; a text that passes holds one of them in some case. Many texts are looked through for these first.
    """
    code, categories = coded(column).codes, coded(column).categories
    if len(categories) <= FEW:
        return having(code, [place for place, text in enumerate(categories.tolist()) if test(str(text))], len(categories))
    used = in_use(code, len(categories))  # tables share dictionaries: most of a large one may be names of other tables
    texts = spelled(categories, used)
    asked = hinted(texts, hints) if hints else range(len(texts))
    return having(code, [int(used[i]) for i in asked if test(texts[i])], len(categories))


def having(code: npt.NDArray[np.integer], wanted: list[int], count: int) -> Mask:
    """Returns rows with one of some codes; all are below `count`, -1 is none."""
    if len(wanted) > FEW_CODES:
        hit = np.zeros(count + 1, np.bool_)  # the last for none
        hit[wanted] = True
        return np.asarray(hit[code], np.bool_)
    out = code == wanted[0] if wanted else np.zeros(len(code), np.bool_)
    for one in wanted[1:]:
        out |= code == one
    return out


def per_text(
    column: pd.Series, rows: npt.NDArray[np.integer], function: Callable[[str], object], dtype: type = bool
) -> npt.NDArray[Any]:
    """Returns what a function answers for the text of each row, "" for none, asked once per distinct one."""
    text = coded(column)
    code = text.codes[rows]
    used = in_use(code, len(text.categories))
    out: npt.NDArray[Any] = np.zeros(len(text.categories) + 1, dtype)  # the last for none
    out[used] = np.array([*map(function, spelled(text.categories, used))], dtype)
    if (code < 0).any():
        out[-1] = function("")
    found: npt.NDArray[Any] = out[code]
    return found


def each(values: Objects, test: Callable[[str], bool]) -> npt.NDArray[np.bool_]:
    """Returns what a test answers for each text, asked once per distinct one."""
    code, distinct = pd.factorize(values)
    return np.array([bool(test(str(t))) for t in distinct], np.bool_)[code] if len(code) else np.zeros(0, np.bool_)


def together(*keys: npt.NDArray[np.generic]) -> npt.NDArray[np.int64]:
    """Returns one number per row, the same for rows that are equal in every key (nan is equal to nan), in order of first use."""
    if not len(keys[0]):
        return np.zeros(0, np.int64)
    parts = [k.astype(np.int64, copy=False) if _whole(k) else pd.factorize(k, use_na_sentinel=False)[0] for k in keys]
    code, count = np.zeros(len(keys[0]), np.int64), 1
    for part in parts:
        low, high = int(part.min()), int(part.max())
        if count * (high - low + 1) >= _MOST:
            code, distinct = pd.factorize(code)
            part, values = pd.factorize(part)
            count, low, high = len(distinct), 0, len(values) - 1
        code = code * (high - low + 1) + (part - low)
        count *= high - low + 1
    return numbered(code)[0]


def _whole(key: npt.NDArray[np.generic]) -> bool:
    """Whether a key is of whole numbers that an int64 holds."""
    return key.dtype.kind in "bi" or (key.dtype.kind == "u" and key.dtype.itemsize < 8)


def first_of(code: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.intp]:
    """Returns the first row of each code below `count`; every code is in use."""
    out = np.zeros(count, np.intp)
    out[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    return out


def pick(column: pd.Series, rows: npt.ArrayLike) -> Objects:
    """Returns texts at rows, "" for none, and for row -1."""
    text, wanted = coded(column), np.asarray(rows, np.int64)
    if not len(wanted) or not len(text.codes):
        return np.full(len(wanted), "", object)
    used, place = in_order(np.where(wanted >= 0, text.codes[wanted], -1).astype(np.int64))
    return words(text.categories, used)[place]


def words(texts: pd.Index, code: npt.NDArray[np.integer]) -> Objects:
    """Returns the text of each code, "" for -1."""
    out, known = np.full(len(code), "", object), code >= 0
    out[known] = spelled(texts, code[known])
    return out


def spelled(texts: pd.Index, places: npt.NDArray[np.integer]) -> list[str]:
    """Returns some of the texts; without an index of them where texts are kept as Python's own."""
    some = texts.to_numpy()[places] if texts.dtype == object else texts.take(places)
    return [*map(str, some.tolist())]


def at(column: pd.Series, rows: npt.NDArray[np.integer]) -> Coded:
    """Returns the texts at rows, none where a row is -1, still dictionary-encoded."""
    if not len(column):
        return from_codes(np.full(len(rows), -1, np.int8), [])
    text = coded(column)
    code = np.where(rows >= 0, text.codes[np.maximum(rows, 0)], -1)
    return pd.Categorical.from_codes(code, dtype=text.dtype, validate=False)  # type: ignore[arg-type]


def from_codes(code: npt.NDArray[np.integer], texts: Sequence[str] | npt.NDArray[np.generic] | pd.Index) -> Coded:
    """Returns texts by their code, dictionary-encoded; -1 is none."""
    categories = texts if isinstance(texts, pd.Index) else pd.Index(texts, dtype=object)
    return pd.Categorical.from_codes(code, categories, validate=False)  # type: ignore[call-overload, no-any-return]


def labels(code: npt.NDArray[np.integer], names: Sequence[str | None] | Objects) -> Coded:
    """Returns one name per row from its place among `names`; equal names are one label, None is none."""
    place, distinct = pd.factorize(np.asarray(names, object))
    dtype: Any = distinct_texts(pd.Index(distinct, dtype=object))
    return pd.Categorical.from_codes(place[code].astype(np.int32), dtype=dtype, validate=False)


def few_texts(values: list[str]) -> pd.Categorical:
    """Returns `pd.Categorical(values)`, of few different texts in less than half of its time: each recording has ten such columns."""
    texts = sorted(set(values))
    if not 0 < len(texts) < np.iinfo(np.int8).max:
        return pd.Categorical(cast(list[object], values))
    place = {text: code for code, text in enumerate(texts)}
    dtype: Any = distinct_texts(pd.Index(texts))
    return pd.Categorical.from_codes(np.fromiter(map(place.__getitem__, values), np.int8, len(values)), dtype=dtype, validate=False)


def distinct_texts(texts: pd.Index) -> pd.CategoricalDtype:
    """Returns the type of a dictionary-encoded column of texts that are known to be distinct, which pandas would find out again."""
    short = getattr(pd.CategoricalDtype, "_from_fastpath", None)
    return pd.CategoricalDtype(texts) if short is None else short(texts, ordered=False)


def largest(columns: list[pd.Series], rows: npt.ArrayLike, values: npt.NDArray[np.generic]) -> tuple[list[str], float]:
    """Returns the combination of texts with the largest sum of `values` over rows, and that sum. (["", …], 0.0) without rows."""
    at = np.asarray(rows, np.int64)
    if not len(at):
        return [""] * len(columns), 0.0
    key, count = np.zeros(len(at), np.int64), 1
    for column in columns:
        text = coded(column)
        wide = len(text.categories) + 1
        if count * wide > max(FEW, len(at)):  # few enough combinations to count all that could be
            code, unique = pd.factorize(key)
            key, count = code.astype(np.int64), len(unique)
        key = key * wide + text.codes[at] + 1
        count *= wide
    if count > max(FEW, len(at)):
        code, unique = pd.factorize(key)
        key, count = code.astype(np.int64), len(unique)
    total = np.bincount(key, values.astype(np.float64), minlength=count)[key]
    best = int(total.argmax())  # of equal ones the first to appear
    texts = [coded(column) for column in columns]
    place = at[best]
    return [str(t.categories[t.codes[place]]) if t.codes[place] >= 0 else "" for t in texts], float(total[best])


# -- Sums per group, and values that may be unknown ------------------------------------------------------------------


def medians(code: npt.NDArray[np.integer], values: npt.NDArray[np.generic], count: int) -> Floats:
    """Returns the median of the values of each code below `count`, NaN where a code has none; values are known."""
    size = np.bincount(code, minlength=count)
    begin = np.cumsum(size) - size
    out = np.full(count, np.nan)
    some = np.flatnonzero(size)
    places = np.concatenate((begin[some] + (size[some] - 1) // 2, begin[some] + size[some] // 2))
    low, high = np.split(_ordered_within(code, values, count, places).astype(np.float64), 2)
    out[some] = middle(low, high)
    return out


def middle(low: Floats, high: Floats) -> Floats:
    """Returns the medians of groups, of the two values in the middle of each; of an odd number they are one."""
    return np.where(low == high, low, (low + high) / 2)


def _ordered_within(code: npt.NDArray[np.integer], values: npt.NDArray[Any], count: int, places: Places) -> npt.NDArray[Any]:
    """Returns what stands at some places among values by code, ascending within each."""
    if values.dtype.kind in "iu" and len(values):
        low, stride = int(values.min()), int(values.max()) - int(values.min()) + 1
        if count * stride < _MOST:  # one number per pair: numbers alone are sorted in a fraction of the time
            pair = code.astype(np.int64) * stride + (values.astype(np.int64) - low)
            pair.sort()
            return pair[places] % stride + low
    return values[np.lexsort((values, code))[places]]


def exact_sums(code: npt.NDArray[np.integer], values: npt.NDArray[np.integer], count: int) -> Ints:
    """Sum of integers per code, exact beyond 2^53."""
    out = np.zeros(count, np.int64)
    np.add.at(out, code, values)
    return out


def rounded(values: Floats, total: int) -> Ints:
    """Returns whole numbers that add up to `total`: those with the largest remainder are rounded up."""
    down = np.floor(values).astype(np.int64)
    left = total - int(down.sum())
    each, rest = divmod(left, len(down))
    down += each
    down[np.argsort(-(values - np.floor(values)), kind="stable")[:rest]] += 1
    return down


def known_sums(code: npt.NDArray[np.integer], values: Floats, count: int) -> Floats:
    """Sum per code over the values that are known, NaN where none is."""
    good = np.isfinite(values)
    out = np.bincount(code[good], values[good], minlength=count).astype(np.float64)
    out[np.bincount(code[good], minlength=count) == 0] = np.nan
    return out


def known_total(frame: pd.DataFrame, column: str) -> int | None:
    """Returns the sum of the known values of a column as a whole number, None where none is."""
    values = frame[column].to_numpy(dtype=np.float64)
    good = np.isfinite(values)
    return round(float(values[good].sum())) if good.any() else None


def known(values: npt.NDArray[np.generic], good: Mask) -> pd.Series:
    """Returns a column of the values, None where one is not good."""
    return pd.Series([v if g else None for v, g in zip(values.tolist(), good.tolist(), strict=True)], dtype=object)


def whole_numbers(values: pd.Series | npt.ArrayLike) -> pd.Series:
    """Returns a column of whole numbers, None for NaN."""
    index = values.index if isinstance(values, pd.Series) else None
    return pd.Series(whole_or_none(np.asarray(values)), index=index)


def whole_or_none(values: npt.NDArray[np.generic]) -> Objects:
    """Returns whole numbers, None for NaN."""
    out = np.empty(len(values), object)
    out[:] = [round(v) if v == v else None for v in values.tolist()]
    return out


def or_none(texts: npt.NDArray[np.generic], known: Mask) -> Objects:
    """Returns texts of rows, None where it is not known."""
    out = np.full(len(texts), None, object)
    out[known] = texts[known].astype(object)
    return out


def texts(values: Iterable[object]) -> pd.Series:
    """Returns a column of texts, None for an empty one."""
    return pd.Series([str(v) or None for v in values], dtype=object)
