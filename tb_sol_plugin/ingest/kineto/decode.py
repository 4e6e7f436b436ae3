"""Defines a batch of scanned events: its fields and arguments are fetched by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.ingest.columns import Array, Codes, Interner, ThreadInterner, decimal_ns, whole_number
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto import scan as K
from tb_sol_plugin.tables.arrays import Bytes, Ints

# -- Byte ranges of a chunk into codes and numbers -------------------------------------------------------------------
# what the compiled loops leave to be asked for by name.


FARTHEST = 2**61
"""ns from the clock's zero (73 years) past which a time is no time: sums and differences of two stay within int64."""


class Text(NamedTuple):
    """Bytes of a chunk, `size` of them, with room behind: as bytes and, the same memory, as words of eight."""

    data: Bytes
    words: npt.NDArray[np.uint64]
    size: int

    def piece(self, offset: int, length: int) -> bytes:
        """Returns a byte range."""
        return self.data[offset : offset + length].tobytes()


def padded(text: bytes) -> Text:
    """Returns `text` as the compiled loops want it."""
    buffer = np.frombuffer(text + bytes(K.SLACK + (-len(text)) % 8), np.uint8)
    return Text(buffer, buffer.view(np.uint64), len(text))




class ByteInterner:
    """Raw JSON values to codes, in order of first use. `values` holds the distinct raw values met so far."""

    def __init__(self) -> None:
        self._slots = np.full(1 << 12, -1, np.int32)
        self._hashes = np.zeros(1 << 11, np.uint64)
        self._starts = np.zeros(1 << 11, np.int64)
        self._lengths = np.zeros(1 << 11, np.int64)
        self._arena = np.zeros(1 << 13, np.uint64)
        self._count = 0
        self._used = 0
        self._mapped: dict[int, npt.NDArray[np.int32]] = {}

    def __len__(self) -> int:
        return self._count

    def value(self, code: int) -> bytes:
        """Returns the raw value of a code."""
        start, length = int(self._starts[code]), int(self._lengths[code])
        return self._arena[start : start + length // 8 + 1].tobytes()[:length]

    def codes(self, text: Text, offset: Array, length: Array) -> npt.NDArray[np.int32]:
        """Returns code per byte range."""
        out = np.zeros(len(offset), np.int32)
        done = 0
        while done < len(offset):
            done, self._count, self._used = K.intern(
                text.words,
                offset,
                length,
                out,
                done,
                self._slots,
                self._hashes,
                self._starts,
                self._lengths,
                self._arena,
                self._count,
                self._used,
            )
            if done < len(offset):
                self._grow(int(length[done]))
        return out

    def _grow(self, needed: int) -> None:
        room = needed // 8 + 1
        if self._used + room > len(self._arena):
            bigger = np.zeros(max(2 * len(self._arena), self._used + room), np.uint64)
            bigger[: self._used] = self._arena[: self._used]
            self._arena = bigger
        if 2 * (self._count + 1) > len(self._slots) or self._count >= len(self._hashes):
            self._hashes, self._starts, self._lengths = (
                np.concatenate([a, np.zeros_like(a)]) for a in (self._hashes, self._starts, self._lengths)
            )
            self._slots = np.full(2 * len(self._slots), -1, np.int32)
            K.rehash(self._slots, self._hashes, self._count)

    def into(self, codes: npt.NDArray[np.int32], interner: Interner, shown: object) -> npt.NDArray[np.int32]:
        """Returns the same values as codes of `interner`, whose keys are `shown(raw value)`; worked out once per distinct value."""
        known = self._mapped.get(id(interner), np.zeros(0, np.int32))
        if len(known) < self._count:
            more = np.fromiter((interner[shown(self.value(i))] for i in range(len(known), self._count)), np.int32)  # type: ignore[operator]
            known = np.concatenate([known, more])
            self._mapped[id(interner)] = known
        return known[codes]


def integers(text: Text, offset: Array, length: Array, health: Health) -> Ints:
    """Returns int64 per byte range; -1 for what is not a whole number (null, text, NaN); quoted numbers and hexadecimal are read."""
    whole, fraction, status = np.zeros(len(offset), np.int64), np.zeros(len(offset)), np.zeros(len(offset), np.int8)
    K.numbers(text.data, offset, length, whole, fraction, status)
    for i in np.flatnonzero(status).tolist():
        raw = text.piece(offset[i], length[i])
        whole[i] = whole_number(raw)
        _count_bare_word(raw, health)
    return whole


def _float(raw: bytes) -> float:
    try:
        return float(raw.strip(b'"'))
    except ValueError:
        return float("nan")


def _count_bare_word(raw: bytes, health: Health, count: int = 1) -> None:
    """Counts NaN, Infinity, N/A and the like where JSON wants a value."""
    if (raw[:1].lower() in b"niu" and raw != b"null") or raw[:2].lower() == b"-i":
        health.add("NaN, Infinity or N/A", count, raw[:20].decode("utf-8", "replace"))


def floats(text: Text, offset: Array, length: Array, health: Health) -> npt.NDArray[np.float64]:
    """Returns float64 per byte range, NaN for what is not a number ("N/A" is how old ROCm traces write an unknown bandwidth)."""
    whole, fraction, status = np.zeros(len(offset), np.int64), np.zeros(len(offset)), np.zeros(len(offset), np.int8)
    K.numbers(text.data, offset, length, whole, fraction, status)
    odd = np.flatnonzero(status == 2)
    if len(odd):  # more digits than one division keeps exact: read once per distinct text
        distinct = ByteInterner()
        codes = distinct.codes(text, offset[odd], length[odd])
        raws = [distinct.value(i) for i in range(len(distinct))]
        fraction[odd] = np.fromiter(map(_float, raws), np.float64, len(raws))[codes]
        for raw, count in zip(raws, np.bincount(codes).tolist(), strict=True):
            _count_bare_word(raw, health, count)
    return np.where(np.isfinite(fraction), fraction, np.nan)


def nanoseconds(text: Text, offset: Array, length: Array, health: Health) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Returns (int64 ns, given) from decimal microsecond texts, without a float in between.

    Digits past the third round half up. Quoted numbers and exponents are read as decimals; null, text and times past
    `FARTHEST` count as not given.
    """
    out, status = np.zeros(len(offset), np.int64), np.zeros(len(offset), np.int8)
    K.microseconds(text.data, offset, length, out, status)
    rounded = status == 1
    if rounded.any():
        i = int(np.argmax(rounded))
        health.add("digits past nanoseconds", int(rounded.sum()), text.piece(offset[i], length[i]).decode())
    for i in np.flatnonzero(status == 2).tolist():
        raw = text.piece(offset[i], length[i])
        value = decimal_ns(raw, health)
        status[i] = 3 if value is None else 0
        out[i] = value or 0
    far = np.abs(out) > FARTHEST
    if far.any():
        i = int(np.argmax(far))
        health.add("time out of range", int(far.sum()), text.piece(offset[i], length[i])[:40].decode("utf-8", "replace"))
        status[far], out[far] = 3, 0
    return out, status != 3


Rows: TypeAlias = npt.NDArray[np.int64]


class Raw:
    """Interners of raw values that live as long as the file is read."""

    def __init__(self) -> None:
        self.fields = ByteInterner()
        self.keys = ByteInterner()
        self.names = ByteInterner()
        self.columns: dict[str, ByteInterner] = {}


class Batch:
    """Events in file order. Every method answers for all events of the batch; `rows` picks a group afterwards.

    health: where oddities are counted; the receiver puts its own here. text: the bytes the offsets point into.
    found: offset, length of the raw value of each field. Arguments are kept
    as (event, key offset, key length, value offset, value length), sorted by key.
    """

    def __init__(self, text: Text, found: npt.NDArray[np.int32], args: npt.NDArray[np.int32], raw: Raw) -> None:
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
        """Returns (offset, length) of a field's raw value; length 0 where it is absent."""
        return self.found[rows, 2 * which], self.found[rows, 2 * which + 1]

    def groups(self) -> list[tuple[str, str | None, Rows]]:
        """Returns (phase, category, events) per distinct pair; category None where it is absent or null."""
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
        """Returns (ns, given) of `ts` or `dur`."""
        return nanoseconds(self.text, *self.field(which, rows), self.health)

    def names(self, rows: Rows, interner: Interner) -> Codes:
        """Returns codes of the names."""
        codes = self.raw.names.codes(self.text, *self.field(K.NAME, rows))
        return self.raw.names.into(codes, interner, partial(name_of, self.health))

    def unnamed(self, rows: Rows) -> int:
        """Returns how many of the events have no name, or an empty one."""
        return int((self.field(K.NAME, rows)[1] <= 2).sum())

    def threads(self, rows: Rows, interner: ThreadInterner) -> Codes:
        """Returns codes of (pid, tid)."""
        pid = self.raw.fields.codes(self.text, *self.field(K.PID, rows)).astype(np.int64)
        tid = self.raw.fields.codes(self.text, *self.field(K.TID, rows)).astype(np.int64)
        pairs, place = np.unique(pid << 32 | tid, return_inverse=True)
        value = self.raw.fields.value
        return np.fromiter((interner[value(p >> 32), value(p & 0xFFFFFFFF)] for p in pairs.tolist()), np.int32, len(pairs))[place]

    def numbers(self, which: int, rows: Rows) -> Ints:
        """Returns a field as int64, -1 where it is no number."""
        return integers(self.text, *self.field(which, rows), self.health)

    # -- arguments --------------------------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Whether any event of the batch carries this argument."""
        return key in self._spans

    def odd_args(self, rows: Rows) -> int:
        """Returns how many of the events carry `args` that are no object."""
        offset, length = self.field(K.ARGS, rows)
        given = length > 0
        first = self.text.data[np.minimum(offset, self.text.size)]
        return int((given & (first != 123) & (first != 110)).sum())

    def ints(self, key: str, rows: Rows) -> Ints:
        """Returns an argument as int64 per event, -1 where it is missing."""
        whole = self._whole.get(key)
        if whole is None:
            if key not in self._spans:
                return np.full(len(rows), -1, np.int64)
            pairs = self._pairs(key)
            whole = np.full(self.count, -1, np.int64)
            whole[pairs[:, 0]] = integers(self.text, pairs[:, 3], pairs[:, 4], self.health)
            self._whole[key] = whole
        return whole[rows]

    def floats(self, key: str, rows: Rows) -> npt.NDArray[np.float64]:
        """Returns an argument as float64 per event, NaN where it is missing."""
        out = np.full(self.count, np.nan)
        if key in self._spans:
            pairs = self._pairs(key)
            out[pairs[:, 0]] = floats(self.text, pairs[:, 3], pairs[:, 4], self.health)
        return out[rows]

    def codes(self, key: str, rows: Rows, interner: Interner) -> Codes:
        """Returns an argument as codes of its raw bytes in `interner`; missing is the code of b""."""
        if key not in self._spans:
            return np.full(len(rows), interner[b""], np.int32)
        pairs = self._pairs(key)
        raw = self.raw.columns.setdefault(key, ByteInterner())
        out = np.full(self.count, interner[b""], np.int32)
        out[pairs[:, 0]] = raw.into(raw.codes(self.text, pairs[:, 3], pairs[:, 4]), interner, bytes)
        return out[rows]

    def where(self, key: str, rows: Rows) -> npt.NDArray[np.bool_]:
        """Returns which events carry the argument with something in it (neither "" nor null)."""
        out = np.zeros(self.count, bool)
        if key in self._spans:
            pairs = self._pairs(key)
            null = (pairs[:, 4] == 4) & (self.text.data[pairs[:, 3]] == 110)
            empty = (pairs[:, 4] == 2) & (self.text.data[pairs[:, 3]] == 34)
            out[pairs[~(null | empty), 0]] = True
        return out[rows]

    def raws(self, which: int, rows: Rows) -> list[bytes]:
        """Returns a field's raw bytes per event."""
        offset, length = self.field(which, rows)
        return [self.text.piece(o, n) for o, n in zip(offset.tolist(), length.tolist(), strict=True)]

    def _pairs(self, key: str) -> npt.NDArray[np.int32]:
        low, high = self._spans[key]
        return self._args[low:high]


def scalar(raw: bytes) -> str:
    """Returns a JSON scalar as text; anything unreadable as the text it is."""
    if raw[:1] == b'"':
        try:
            return str(msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return raw[1:-1].decode("utf-8", "replace")
    return "" if raw == b"null" else raw.decode("utf-8", "replace")


def name_of(health: Health, raw: bytes) -> str:
    """Returns an event's name; one that is missing, empty or null is "(unnamed)". Bad escapes and bytes are kept, and counted."""
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
        view = padded(text)
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
