"""Writes rows of columns as lines of JSON in one compiled pass: texts by their place in a list, whole numbers, and ns as µs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.compiled import compiled, fixed

_TEXT, _NUMBER, _TIME, _SIGNED = range(4)
_DIGITS: Final = 26
"""Bytes that a number takes at most, with a point, a sign and what parts it from the one before."""


class Lines:
    """Lines of equal columns, written from left to right."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._columns: list[tuple[int, bytes, bool, Ints]] = []
        self._texts: list[bytes] = []

    def text(self, place: npt.ArrayLike, texts: Sequence[str], key: str = "", *, part: bool = False) -> None:
        """Add a text per row, `texts[place]`; -1 adds nothing. key: written before it. part: parted by a comma from what is before it."""
        at = np.asarray(place, np.int64)
        there = np.zeros(len(texts) + 1, np.bool_)  # the last for -1
        there[at] = True
        used = np.flatnonzero(there[:-1])
        rank = np.full(len(texts) + 1, -1, np.int64)  # the last for -1
        rank[used] = len(self._texts) + np.arange(len(used))
        self._texts += [texts[i].encode() for i in used.tolist()]
        self._columns.append((_TEXT, key.encode(), part, rank[at]))

    def constant(self, text: str) -> None:
        """Add the same text to every row."""
        self.text(np.zeros(self._count, np.int64), [text])

    def number(self, values: npt.NDArray[np.integer], key: str, *, part: bool = True) -> None:
        """Add a whole number per row; a negative one is none."""
        self._columns.append((_NUMBER, key.encode(), part, values.astype(np.int64)))

    def signed(self, values: npt.NDArray[np.integer], key: str) -> None:
        """Add a whole number per row, negative ones too, parted by a comma from what is before it."""
        self._columns.append((_SIGNED, key.encode(), True, values.astype(np.int64)))

    def time(self, ns: Ints, key: str) -> None:
        """Add ns as µs, exactly."""
        self._columns.append((_TIME, key.encode(), False, ns.astype(np.int64)))

    def written(self) -> memoryview:
        """Returns the bytes of the lines, with a comma and a new line between them."""
        if not self._count or not self._columns:
            return memoryview(b"")
        kinds, keys, parts, values = zip(*self._columns, strict=True)
        texts, text_ends = _joined(self._texts)
        names, name_ends = _joined(keys)
        long = np.diff(text_ends, append=0)  # the last for -1: 0
        long[-1] = 0
        room = sum(int(long[v].sum()) if kind == _TEXT else self._count * _DIGITS for kind, v in zip(kinds, values, strict=True))
        out = np.empty(room + self._count * (len(names) + 2 * len(keys) + 2), np.uint8)
        read = (np.array(kinds, np.int8), np.array(parts, np.bool_), names, name_ends, texts, text_ends, fixed(np.stack(values), np.int64))
        return out.data[: write_kernel(*(fixed(a, a.dtype) for a in read), out)]


def _joined(texts: Sequence[bytes]) -> tuple[npt.NDArray[np.uint8], Ints]:
    """Returns texts behind each other, and where each begins and the last ends."""
    ends = np.concatenate(([0], np.cumsum([len(text) for text in texts]))).astype(np.int64)
    return np.frombuffer(b"".join(texts), np.uint8), ends


@compiled()
def write_kernel(  # type: ignore[no-untyped-def]
    kinds, parts, names, name_ends, texts, text_ends, values, out
):  # fmt: skip
    """Writes the lines; returns how many bytes they take."""
    digits = np.empty(20, np.uint8)
    n = 0
    for row in range(values.shape[1]):
        if row:
            out[n] = 44  # ,
            out[n + 1] = 10  # new line
            n += 2
        for column in range(len(kinds)):
            value = values[column, row]
            if value < 0 and kinds[column] <= _NUMBER:
                continue
            if parts[column] and out[n - 1] != 123:  # {
                out[n] = 44
                out[n + 1] = 32
                n += 2
            for i in range(name_ends[column], name_ends[column + 1]):
                out[n] = names[i]
                n += 1
            if kinds[column] == _TEXT:
                for i in range(text_ends[value], text_ends[value + 1]):
                    out[n] = texts[i]
                    n += 1
                continue
            if value < 0:
                out[n] = 45  # -
                n += 1
                value = -value
            least = 4 if kinds[column] == _TIME else 1
            size = 0
            while value > 0 or size < least:
                digits[size] = 48 + value % 10
                value //= 10
                size += 1
            for i in range(size - 1, -1, -1):
                out[n] = digits[i]
                n += 1
                if i == 3 and kinds[column] == _TIME:
                    out[n] = 46  # .
                    n += 1
    return n
