"""Builds columns that grow chunk by chunk: interned strings, exact times, integers with "none" as -1."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.tables.arrays import distinct_texts

Codes = npt.NDArray[np.int32]
Array = npt.NDArray[Any]
LIMIT = 2**62


class Interner(dict[object, int]):
    """Value to code, in order of first use."""

    _dtype: pd.CategoricalDtype | None = None

    def __missing__(self, key: object) -> int:
        code = self[key] = len(self)
        return code

    def codes(self, values: Iterable[object]) -> Codes:
        """Returns int32 code per value."""
        return np.fromiter(map(self.__getitem__, values), np.int32)

    def categorical(self, codes: Array) -> pd.Categorical:
        """Returns a pandas Categorical over all interned strings; those made from one state share their categories."""
        if self._dtype is None or len(self._dtype.categories) != len(self):
            self._dtype = distinct_texts(pd.Index(list(self), dtype=object))
        return pd.Categorical.from_codes(codes, dtype=self._dtype, validate=False)


class RawInterner(Interner):
    """JSON text to code; `categorical` shows it compact, so that layout does not make two of one."""

    def text(self, raw: object) -> str:
        """Returns how one value is shown."""
        return _compact(raw) if isinstance(raw, bytes) else str(raw)

    _compact: tuple[Interner, Codes] | None = None

    def compact(self) -> tuple[Interner, Codes]:
        """Returns (the distinct shown texts, the code of each raw value in them)."""
        if self._compact is None or len(self._compact[1]) != len(self):
            shown = Interner()
            self._compact = shown, np.fromiter((shown[self.text(k)] for k in self), np.int32, len(self))
        return self._compact

    def categorical(self, codes: Array) -> pd.Categorical:
        shown, remap = self.compact()
        return shown.categorical(remap[codes] if len(self) else codes)


class ThreadInterner(Interner):
    """(pid, tid) as raw JSON to a code; a number written as text is the same thread. `distinct` holds the threads as text."""

    def __init__(self) -> None:
        super().__init__()
        self.distinct = Interner()

    def __missing__(self, key: object) -> int:
        process, thread = key if isinstance(key, tuple) else (key, b"")
        code = self[key] = self.distinct[(identity(process), identity(thread))]
        return code


def identity(raw: bytes) -> str:
    """Returns a pid or tid as the one text it is known by: 7, 7.0 and "7" are one."""
    text = plain_text(raw)
    if text == "null":
        return ""
    return text[:-2] if text.endswith(".0") else text


def _compact(raw: bytes) -> str:
    """Returns JSON without needless space; what is not valid JSON stays as written."""
    if b"\n" in raw or b" " in raw:
        try:
            raw = msgspec.json.format(raw, indent=-1)
        except (msgspec.DecodeError, RecursionError):  # no JSON, or lists within lists past any depth
            raw = raw.strip()
    return raw.decode("utf-8", "replace")


def plain_text(raw: bytes) -> str:
    """Returns the text of a JSON string; other JSON stays as compact JSON; nothing stays empty."""
    if raw[:1] == b'"':
        try:
            return str(msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return raw[1:-1].decode("utf-8", "replace")
    return _compact(raw)


class TextInterner(RawInterner):
    """JSON values to code; strings are shown without quotes."""

    def text(self, raw: object) -> str:
        return plain_text(raw) if isinstance(raw, bytes) else str(raw)


class ExtraInterner(RawInterner):
    """Rare arguments: a tuple of (key, raw value) pairs, shown as a JSON object."""

    def text(self, raw: object) -> str:
        pairs = raw if isinstance(raw, tuple) else ()
        inner = b",".join(msgspec.json.encode(key) + b":" + value for key, value in pairs)
        return _compact(b"{" + inner + b"}") if inner else ""


def decimal_ns(text: bytes, health: Health) -> int | None:
    """Returns ns of a time that is no plain decimal (exponent, quoted); None where it is no number or out of range, which is counted."""
    value = _decimal(text)
    shown = text[:40].decode("utf-8", "replace")
    if value is not None and abs(value) >= LIMIT:
        health.add("time out of range", 1, shown)
        return None
    if value is not None:
        health.add("time in an unusual form", 1, shown)
    return value


def _decimal(text: bytes) -> int | None:
    try:
        value = Decimal(text.decode().strip().strip('"').strip())
        if not value.is_finite() or value.adjusted() > 30:
            return None if not value.is_finite() else LIMIT
        return int((value * 1000).to_integral_value(ROUND_HALF_UP))
    except (InvalidOperation, UnicodeDecodeError, ValueError):
        return None


def whole_number(raw: bytes) -> int:
    """Returns a raw JSON value as a whole number: quoted, hexadecimal and x.0 are read; anything else is -1."""
    text = raw.strip(b'"').strip()
    try:
        value = int(text, 0)
    except ValueError:
        try:
            number = float(text)
        except ValueError:
            return -1
        if number != number or abs(number) >= LIMIT:
            return -1
        value = int(number)
    return value if -LIMIT < value < LIMIT else value & (LIMIT - 1)


class Buffer:
    """Named columns that grow piece by piece. `share` says how much of the file is read: room is made for all that is to come, which costs
    no memory before it is written, so that a column is seldom moved.
    """

    def __init__(self, share: Callable[[], float] = lambda: 1.0) -> None:
        self._columns: dict[str, Array] = {}
        self._share = share
        self._room = 0
        self.rows = 0

    def add(self, **columns: Array) -> None:
        """Append one piece per column; all of one length, the same names every time."""
        end = self.rows + len(next(iter(columns.values())))
        if end > self._room:
            self._room = int(end * min(max(1.25 / max(self._share(), 1e-3), 1.5), MOST_AHEAD))
            for name, column in self._columns.items():
                self._columns[name] = self._moved(column, column.dtype)
        for name, piece in columns.items():
            column = self._columns.get(name, piece[:0])
            if not len(column) or column.dtype != piece.dtype:
                column = self._columns[name] = self._moved(column, np.promote_types(column.dtype, piece.dtype))
            column[self.rows : end] = piece
        self.rows = end

    def _moved(self, column: Array, kind: np.dtype[Any]) -> Array:
        out = np.empty(self._room, kind)
        out[: self.rows] = column[: self.rows]
        return out

    def minimum(self, name: str) -> int:
        """Returns the smallest value of a column; only with rows."""
        return int(self._columns[name][: self.rows].min())

    def take(self) -> dict[str, Array]:
        """Returns the columns; the buffer is empty afterwards."""
        out = {name: column[: self.rows] for name, column in self._columns.items()}
        self._columns, self._room, self.rows = {}, 0, 0
        return out


MOST_AHEAD: Final = 64
"""How many times the rows there are a buffer makes room for."""
