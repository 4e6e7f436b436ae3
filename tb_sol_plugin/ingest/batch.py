"""A batch of events and their arguments, asked for by name: what a decoder hands on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.ingest import _scan as K
from tb_sol_plugin.ingest import values
from tb_sol_plugin.ingest.columns import Array, Codes, Interner, ThreadInterner
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.tables.arrays import Ints

Rows: TypeAlias = npt.NDArray[np.int64]


class Raw:
    """Interners of raw values that live as long as the file is read."""

    def __init__(self) -> None:
        self.fields = values.ByteInterner()
        self.keys = values.ByteInterner()
        self.names = values.ByteInterner()
        self.columns: dict[str, values.ByteInterner] = {}


class Batch:
    """Events in file order. Every method answers for all events of the batch; `rows` picks a group afterwards.

    health: where oddities are counted; the receiver puts its own here. text: the bytes the offsets point into.
    found: offset, length of the raw value of each field. Arguments are kept
    as (event, key offset, key length, value offset, value length), sorted by key.
    """

    def __init__(self, text: values.Text, found: npt.NDArray[np.int32], args: npt.NDArray[np.int32], raw: Raw) -> None:
        self.text, self.found, self.raw = text, found, raw
        self.health = Health()
        self.count = len(found)
        codes = raw.keys.codes(text, args[:, 1], args[:, 2])
        order = np.argsort(codes.astype(np.uint16) if len(raw.keys) < 65536 else codes, kind="stable")
        self._args = args[order]
        counts = np.bincount(codes, minlength=len(raw.keys))
        ends = np.cumsum(counts)
        self._spans = {
            raw.keys.value(i).decode("utf-8", "replace"): (int(ends[i] - counts[i]), int(ends[i])) for i in np.flatnonzero(counts).tolist()
        }
        self._whole: dict[str, Ints] = {}

    # -- fields -----------------------------------------------------------------------------------------------

    def field(self, which: int, rows: Rows) -> tuple[Array, Array]:
        """(offset, length) of a field's raw value; length 0 where it is absent."""
        return self.found[rows, 2 * which], self.found[rows, 2 * which + 1]

    def groups(self) -> list[tuple[str, str | None, Rows]]:
        """(phase, category, events) per distinct pair; category None where it is absent or null."""
        every = np.arange(self.count)
        phase = self.raw.fields.codes(self.text, *self.field(K.PH, every)).astype(np.int64)
        category = self.raw.fields.codes(self.text, *self.field(K.CAT, every)).astype(np.int64)
        size = len(self.raw.fields)
        key = phase * size + category
        out = []
        for pair in np.flatnonzero(np.bincount(key, minlength=1)).tolist() if size < 2000 else np.unique(key).tolist():
            raw_phase, raw_category = self.raw.fields.value(pair // size), self.raw.fields.value(pair % size)
            cat = None if raw_category in (b"", b"null") else scalar(raw_category)
            out.append((scalar(raw_phase), cat, np.flatnonzero(key == pair)))
        return out

    def times(self, which: int, rows: Rows) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """(ns, given) of `ts` or `dur`."""
        return values.nanoseconds(self.text, *self.field(which, rows), self.health)

    def names(self, rows: Rows, interner: Interner) -> Codes:
        """Codes of the names."""
        codes = self.raw.names.codes(self.text, *self.field(K.NAME, rows))
        return self.raw.names.into(codes, interner, partial(name_of, self.health))

    def unnamed(self, rows: Rows) -> int:
        """How many of the events have no name, or an empty one."""
        return int((self.field(K.NAME, rows)[1] <= 2).sum())

    def threads(self, rows: Rows, interner: ThreadInterner) -> Codes:
        """Codes of (pid, tid)."""
        pid = self.raw.fields.codes(self.text, *self.field(K.PID, rows)).astype(np.int64)
        tid = self.raw.fields.codes(self.text, *self.field(K.TID, rows)).astype(np.int64)
        pairs, place = np.unique(pid << 32 | tid, return_inverse=True)
        value = self.raw.fields.value
        return np.fromiter((interner[value(p >> 32), value(p & 0xFFFFFFFF)] for p in pairs.tolist()), np.int32, len(pairs))[place]

    def numbers(self, which: int, rows: Rows) -> Ints:
        """A field as int64, -1 where it is no number."""
        return values.integers(self.text, *self.field(which, rows), self.health)

    # -- arguments --------------------------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Whether any event of the batch carries this argument."""
        return key in self._spans

    def odd_args(self, rows: Rows) -> int:
        """How many of the events carry `args` that are no object."""
        offset, length = self.field(K.ARGS, rows)
        given = length > 0
        first = self.text.data[np.minimum(offset, self.text.size)]
        return int((given & (first != 123) & (first != 110)).sum())

    def ints(self, key: str, rows: Rows) -> Ints:
        """An argument as int64 per event, -1 where it is missing."""
        whole = self._whole.get(key)
        if whole is None:
            if key not in self._spans:
                return np.full(len(rows), -1, np.int64)
            pairs = self._pairs(key)
            whole = np.full(self.count, -1, np.int64)
            whole[pairs[:, 0]] = values.integers(self.text, pairs[:, 3], pairs[:, 4], self.health)
            self._whole[key] = whole
        return whole[rows]

    def floats(self, key: str, rows: Rows) -> npt.NDArray[np.float64]:
        """An argument as float64 per event, NaN where it is missing."""
        out = np.full(self.count, np.nan)
        if key in self._spans:
            pairs = self._pairs(key)
            out[pairs[:, 0]] = values.floats(self.text, pairs[:, 3], pairs[:, 4], self.health)
        return out[rows]

    def codes(self, key: str, rows: Rows, interner: Interner) -> Codes:
        """An argument as codes of its raw bytes in `interner`; missing is the code of b""."""
        if key not in self._spans:
            return np.full(len(rows), interner[b""], np.int32)
        pairs = self._pairs(key)
        raw = self.raw.columns.setdefault(key, values.ByteInterner())
        out = np.full(self.count, interner[b""], np.int32)
        out[pairs[:, 0]] = raw.into(raw.codes(self.text, pairs[:, 3], pairs[:, 4]), interner, bytes)
        return out[rows]

    def where(self, key: str, rows: Rows) -> npt.NDArray[np.bool_]:
        """Which events carry the argument with something in it (neither "" nor null)."""
        out = np.zeros(self.count, bool)
        if key in self._spans:
            pairs = self._pairs(key)
            null = (pairs[:, 4] == 4) & (self.text.data[pairs[:, 3]] == 110)
            empty = (pairs[:, 4] == 2) & (self.text.data[pairs[:, 3]] == 34)
            out[pairs[~(null | empty), 0]] = True
        return out[rows]

    def raws(self, which: int, rows: Rows) -> list[bytes]:
        """A field's raw bytes per event."""
        offset, length = self.field(which, rows)
        return [self.text.piece(o, n) for o, n in zip(offset.tolist(), length.tolist(), strict=True)]

    def _pairs(self, key: str) -> npt.NDArray[np.int32]:
        low, high = self._spans[key]
        return self._args[low:high]


def scalar(raw: bytes) -> str:
    """A JSON scalar as text; anything unreadable as the text it is."""
    if raw[:1] == b'"':
        try:
            return str(msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return raw[1:-1].decode("utf-8", "replace")
    return "" if raw == b"null" else raw.decode("utf-8", "replace")


def name_of(health: Health, raw: bytes) -> str:
    """An event's name; one that is missing, empty or null is "(unnamed)". Bad escapes and bytes are kept, and counted."""
    if raw in (b"", b'""', b"null"):
        return "(unnamed)"
    if raw[:1] == b'"':
        try:
            return str(msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError):
            try:
                text = raw[1:-1].decode("utf-8")
                health.add("invalid escape or control character", 1, text[:80])
            except UnicodeDecodeError:
                text = raw[1:-1].decode("utf-8", "replace")
                health.add("bytes that are not UTF-8", 1, text[:80])
            return text
    return raw.decode("utf-8", "replace")


Sink = Callable[[Batch], None]


class Fed(msgspec.Struct, frozen=True):
    """How far a feed got: `consumed` bytes, `closed` if the list ended there, `broken` if the text there is no event."""

    consumed: int
    closed: bool
    broken: bool


class Scanner:
    """The decoder. `feed` cuts all complete events out of `text`, which starts at event level."""

    def __init__(self) -> None:
        self.raw = Raw()
        self._found = np.zeros((0, 18), np.int32)
        self._args = np.zeros((0, 5), np.int32)

    def feed(self, text: bytes, sink: Sink) -> Fed:
        view = values.padded(text)
        events, pairs = len(text) // 24 + 16, len(text) // 10 + 512
        if len(self._found) < events:
            self._found = np.zeros((events, 18), np.int32)
        if len(self._args) < pairs:
            self._args = np.zeros((pairs, 5), np.int32)
        at = 0
        while True:
            why, count, used, at = K.scan(view.data, view.size, at, self._found, self._args)
            if count:
                sink(Batch(view, self._found[:count].copy(), self._args[:used], self.raw))
            if why != K.FULL:
                return Fed(at, why == K.CLOSED, why == K.BROKEN)
