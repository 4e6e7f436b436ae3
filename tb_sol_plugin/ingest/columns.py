"""Columns that grow chunk by chunk: interned strings, exact times, integers with "none" as -1."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd

from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.tables._kernels import decimal_kernel

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Array = npt.NDArray[Any]
LIMIT = 2**62


class Interner(dict[object, int]):
    """Value to code, in order of first use."""

    def __missing__(self, key: object) -> int:
        code = self[key] = len(self)
        return code

    def codes(self, values: Iterable[object]) -> Codes:
        """int32 code per value."""
        return np.fromiter(map(self.__getitem__, values), np.int32)

    def categorical(self, codes: Array) -> pd.Categorical:
        """A pandas Categorical over all interned strings."""
        return pd.Categorical.from_codes(codes, categories=pd.Index(list(self), dtype=object))


class RawInterner(Interner):
    """JSON text to code; `categorical` shows it compact, so that layout does not make two of one."""

    def text(self, raw: object) -> str:
        """How one value is shown."""
        return _compact(raw) if isinstance(raw, bytes) else str(raw)

    def compact(self) -> tuple[Interner, npt.NDArray[np.int32]]:
        """(the distinct shown texts, the code of each raw value in them)."""
        shown = Interner()
        return shown, np.fromiter((shown[self.text(k)] for k in self), np.int32, len(self))

    def categorical(self, codes: Array) -> pd.Categorical:
        shown, remap = self.compact()
        return shown.categorical(remap[codes] if len(self) else codes)


def _compact(raw: bytes) -> str:
    if not raw:
        return ""
    if b"\n" in raw or b" " in raw:
        raw = msgspec.json.format(raw, indent=-1)
    return raw.decode("utf-8", "replace")


def plain_text(raw: bytes) -> str:
    """The text of a JSON string; other JSON stays as compact JSON; nothing stays empty."""
    if raw[:1] == b'"':
        return str(msgspec.json.decode(raw))
    return _compact(raw)


class TextInterner(RawInterner):
    """JSON values to code; strings are shown without quotes."""

    def text(self, raw: object) -> str:
        return plain_text(raw) if isinstance(raw, bytes) else str(raw)


class ExtraInterner(RawInterner):
    """Rare arguments: the bytes of a call stack alone, or (key, bytes) pairs; shown as a JSON object."""

    def text(self, raw: object) -> str:
        pairs = raw if isinstance(raw, tuple) else ((("Call stack", raw),) if raw else ())
        inner = b",".join(msgspec.json.encode(key) + b":" + value for key, value in pairs)
        return _compact(b"{" + inner + b"}") if inner else ""


def nanoseconds(texts: Sequence[msgspec.Raw], health: Health) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(int64 ns, given) from decimal microsecond texts, without a float in between.

    Digits past the third round half up. Quoted numbers and exponents are read as decimals; null, text and numbers out
    of the int64 range count as not given.
    """
    count = len(texts)
    out = np.zeros(count, np.int64)
    status = np.zeros(count, np.int8)
    if count == 0:
        return out, np.zeros(0, bool)
    joined = b",".join(texts)
    found = decimal_kernel(np.frombuffer(joined, np.uint8), out, status)
    if found != count or joined.count(b",") != count - 1:
        status[:] = 2
    rounded = int((status == 1).sum())
    if rounded:
        health.add("digits past nanoseconds", rounded, bytes(texts[int(np.argmax(status == 1))]).decode())
    for i in np.flatnonzero(status == 2).tolist():
        value = _decimal(bytes(texts[i]))
        if value is None:
            status[i] = 3
        elif abs(value) >= LIMIT:
            status[i] = 3
            health.add("time out of range", 1, bytes(texts[i]).decode("utf-8", "replace"))
        else:
            out[i] = value
            health.add("time in an unusual form", 1, bytes(texts[i]).decode("utf-8", "replace"))
    return out, status != 3


def _decimal(text: bytes) -> int | None:
    try:
        value = Decimal(text.decode().strip().strip('"').strip())
        if not value.is_finite() or value.adjusted() > 30:
            return None if not value.is_finite() else LIMIT
        return int((value * 1000).to_integral_value(ROUND_HALF_UP))
    except (InvalidOperation, UnicodeDecodeError, ValueError):
        return None


def integers(values: Sequence[int | float | str | None]) -> Ints:
    """int64, -1 for what is missing or not a whole number; numeric strings and hexadecimal are read."""
    if values.count(-1) == len(values):
        return np.full(len(values), -1, np.int64)
    try:
        return np.fromiter(values, np.int64, len(values))  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        return np.fromiter(map(_integer, values), np.int64, len(values))


def _integer(value: int | float | str | None) -> int:
    if isinstance(value, str):
        try:
            value = int(value, 0)
        except ValueError:
            try:
                value = float(value)
            except ValueError:
                return -1
    if isinstance(value, float):
        value = int(value) if value == value and abs(value) < LIMIT else -1
    if value is None:
        return -1
    return value if -LIMIT < value < LIMIT else value & (LIMIT - 1)


def floats(values: Sequence[int | float | str | None]) -> npt.NDArray[np.float64]:
    """float64, NaN for what is missing or not a number ("N/A" is how old ROCm traces write an unknown bandwidth)."""
    try:
        return np.array(values, np.float64)
    except (ValueError, TypeError):
        return np.fromiter(map(_float, values), np.float64, len(values))


def _float(value: int | float | str | None) -> float:
    try:
        return float(value) if value is not None else float("nan")
    except (ValueError, TypeError):
        return float("nan")


class Buffer:
    """Named columns made of pieces; `take()` joins them once."""

    def __init__(self) -> None:
        self._pieces: dict[str, list[Array]] = {}
        self.rows = 0

    def add(self, **columns: Array) -> None:
        """Append one piece per column; all of one length, the same names every time."""
        for name, piece in columns.items():
            self._pieces.setdefault(name, []).append(piece)
        self.rows += len(next(iter(columns.values())))

    def minimum(self, name: str) -> int:
        """The smallest value of a column; only with rows."""
        return min(int(piece.min()) for piece in self._pieces[name] if len(piece))

    def take(self) -> dict[str, Array]:
        """The joined columns; the buffer is empty afterwards."""
        out = {}
        for name in list(self._pieces):
            pieces = self._pieces.pop(name)
            out[name] = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        self.rows = 0
        return out
