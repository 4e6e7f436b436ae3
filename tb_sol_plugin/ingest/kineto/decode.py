"""Defines a batch of scanned events: its fields and arguments are fetched by name."""

from __future__ import annotations

import os
import zlib
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.ingest.columns import Array, Codes, Interner, ThreadInterner, decimal_ns, whole_number
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.ingest.kineto import rules, spans
from tb_sol_plugin.ingest.kineto import scan as K
from tb_sol_plugin.tables.arrays import Ints

# -- Byte ranges of a chunk into codes and numbers -------------------------------------------------------------------
# what the compiled loops leave to be asked for by name.


USUAL = 100
"""Bytes of text per event, or more."""
SHORTEST = 24
"""Bytes of text per event below which a chunk is more than one batch."""
FARTHEST = 2**61
"""ns from the clock's zero (73 years) past which a time is no time: sums and differences of two stay within int64."""
TEN_YEARS = 315_360_000 * 10**9
"""ns from the middle of a recording past which a time is of another clock."""


class Text(NamedTuple):
    """A chunk of the file: the bytes and where they lie in memory."""

    raw: bytes | memoryview
    address: int

    def piece(self, offset: int, length: int) -> bytes:
        """Returns a byte range."""
        return bytes(self.raw[offset : offset + length])


def text_of(raw: bytes | memoryview) -> Text:
    """Returns bytes with their address."""
    return Text(raw, np.frombuffer(raw, np.uint8).ctypes.data if raw else 0)


SECRET: Final = np.frombuffer(os.urandom(8 * K.SECRET), np.uint64)
"""What hashes of values depend on: a file that is made so that all its names collide would need to know it."""


class ByteInterner:
    """Raw JSON values to codes, in order of first use."""

    def __init__(self) -> None:
        self._slots = np.full(1 << 12, -1, np.int32)
        self._entries = np.zeros((1 << 11, 3), np.uint64)  # hash, first word of the arena, bytes
        self._arena = np.zeros(1 << 13, np.uint64)
        self._arena[: K.SECRET] = SECRET
        # distinct values, words of the arena used, words that the next value needs; then the lengths of the other arrays
        self._sizes = np.array([0, K.SECRET, 0, 1 << 12, 1 << 11, 1 << 13])

    def __len__(self) -> int:
        return int(self._sizes[0])

    @property
    def table(self) -> tuple[int, ...]:
        """The addresses of what the compiled loops read and fill."""
        return tuple(a.ctypes.data for a in (self._slots, self._entries, self._arena, self._sizes))

    def value(self, code: int) -> bytes:
        """Returns the raw value of a code."""
        start, length = int(self._entries[code, 1]), int(self._entries[code, 2])
        return self._arena[start : start + (length + 7) // 8].tobytes()[:length]

    def codes(self, text: Text, offset: Array, length: Array) -> npt.NDArray[np.int32]:
        """Returns code per byte range."""
        out = np.zeros(len(offset), np.int32)
        done = 0
        while done < len(offset):
            done = K.intern(text.address, len(text.raw), offset, length, out, done, self.table)
            if done < len(offset):
                self.grow()
        return out

    def grow(self) -> None:
        """Makes room for the value that found none. A value that another thread reads meanwhile stays where it is."""
        count, used, room = self._sizes[:3].tolist()
        if used + room > len(self._arena):
            bigger = np.zeros(max(2 * len(self._arena), used + room), np.uint64)
            bigger[:used] = self._arena[:used]
            self._arena = bigger
        if 2 * (count + 1) > len(self._slots) or count >= len(self._entries):
            self._entries = np.concatenate([self._entries, np.zeros_like(self._entries)])
            self._slots = np.full(2 * len(self._slots), -1, np.int32)
            K.rehash(self._slots, self._entries, count)
        self._sizes[3:] = len(self._slots), len(self._entries), len(self._arena)


def load() -> None:
    """Loads ahead of time the compiled loop that only a file of many different values needs."""
    K.rehash(np.full(1, -1, np.int32), np.zeros((0, 3), np.uint64), 0)


class Translation:
    """Codes of raw values to other codes, each made by `make` once, in order of first use."""

    def __init__(self, make: Callable[[int], int]) -> None:
        self._make = make
        self._known = np.full(64, -1, np.int32)

    def of(self, codes: Array) -> Codes:
        """Returns the other code of each code."""
        if not len(codes):
            return np.zeros(0, np.int32)
        top = int(codes.max())
        if top >= len(self._known):
            more = max(len(self._known), top + 1 - len(self._known))
            self._known = np.concatenate([self._known, np.full(more, -1, np.int32)])
        out = self._known[codes]
        if out.min() < 0:
            distinct, first = np.unique(codes[out < 0], return_index=True)
            for code in distinct[np.argsort(first)].tolist():
                self._known[code] = self._make(code)
            out = self._known[codes]
        return out


def _float(raw: bytes) -> float:
    try:
        return float(raw.strip(b'"'))
    except ValueError:
        return float("nan")


def _count_bare_word(raw: bytes, health: Health, count: int = 1) -> None:
    """Counts NaN, Infinity, N/A and the like where JSON wants a value."""
    if (raw[:1].lower() in b"niu" and raw != b"null") or raw[:2].lower() == b"-i":
        health.add("NaN, Infinity or N/A", count, raw[:20].decode("utf-8", "replace"))


# -- One batch of events ---------------------------------------------------------------------------------------------


Rows: TypeAlias = npt.NDArray[np.int64]
MOST_GROUPS: Final = 1000
"""Phases and categories that a batch may hold; real traces have dozens."""
_PLACE: Final = {key: place for place, key in enumerate((*rules.NUMBERS, *rules.TEXTS))}
_SCALE: Final = np.array([1.0, *(10.0**p for p in range(K.MOST_DIGITS + 1)), 1.0, *[np.nan] * 4])
"""By the form of a number, what it is divided by: forms below 0, from the end, are no number."""


def _decimals(value: Ints, form: npt.NDArray[np.int8]) -> npt.NDArray[np.float64]:
    """Returns numbers of any form as floats, NaN for what is none."""
    out: npt.NDArray[np.float64] = value / _SCALE[form]
    exact = form == K.FLOAT
    if exact.any():
        out[exact] = value[exact].view(np.float64)
    return out


class Room:
    """Arrays for the events of one batch: a row, or a place of each row, per event.

    found: offset and length of each field. code: of the fields PH to TID. number and form: of TS, DUR, ID and the arguments, `form` with
    the flags before these. marks, per argument: the events up to which it is written, the first event that has it.
    """

    def __init__(self, events: int) -> None:
        self.found = np.empty((events, 2 * K.FIELDS), np.int32)
        self.code = np.empty((K.TID + 1, events), np.int32)
        self.number = np.empty((3 + K.ARGUMENTS, events), np.int64)
        self.form = np.empty((4 + K.ARGUMENTS, events), np.int8)
        self.marks = np.zeros((2, K.ARGUMENTS), np.int64)
        self.marks[1] = K.NEVER

    def addresses(self, after: Array) -> tuple[int, ...]:
        """Returns the number of events that there is room for and where the arrays lie, with `after` last."""
        return len(self.found), *(a.ctypes.data for a in (self.found, self.code, self.number, self.form, self.marks, after))

    def empty(self) -> Room:
        """Returns itself, with nothing in it."""
        self.marks[0], self.marks[1] = 0, K.NEVER
        return self

    def larger(self) -> Room:
        """Returns a room for twice as many events with the same in it."""
        size = len(self.found)
        out = Room(2 * size)
        out.found[:size], out.marks[:] = self.found, self.marks
        for name in ("code", "number", "form"):
            getattr(out, name)[:, :size] = getattr(self, name)
        return out


class Raw:
    """What lives as long as the file is read: the distinct values, and the codes that others gave them."""

    def __init__(self) -> None:
        self.values = ByteInterner()
        keys = [b"", *map(str.encode, _PLACE)]  # code 0: what is absent
        length = np.array([len(key) for key in keys])
        self.values.codes(text_of(b"".join(keys)), np.cumsum(length) - length, length)
        self.after = np.full(K.ARGUMENTS + 2, -1, np.int32)
        self.fields: list[int] = []
        """Raw codes of phases, categories, processes and threads in order of first use."""
        self.field_order = Translation(partial(_placed, self.fields))
        self.translations: dict[tuple[str, int], Translation] = {}
        self.pairs = np.full((1 << 7, 1 << 7), -1, np.int32)

    def field(self, order: int) -> bytes:
        """Returns the raw value of a field by its place in order of first use."""
        return self.values.value(self.fields[order])

    def into(self, key: str, interner: Interner, shown: Callable[[bytes], object]) -> Translation:
        """Returns the translation of raw values to codes of `interner`, whose keys are `shown(raw value)`."""
        known = self.translations.get((key, id(interner)))
        if known is None:
            value = self.values.value  # what a translation holds does not hold it: memory of a million values is free as soon as it can be
            known = self.translations[key, id(interner)] = Translation(lambda code: interner[shown(value(code))])
        return known


def _placed(found: list[int], code: int) -> int:
    """Returns the place of a code that is put at the end of those found."""
    found.append(code)
    return len(found) - 1


class Batch:
    """Events in file order. Every method answers for all events of the batch; `rows` picks a group afterwards.

    health: where oddities are counted; the receiver puts its own here. clock: first and last ns that may be of the recording.
    text: the bytes the offsets point into. found: offset, length of the raw value of each field. Arguments are columns: of those that
    `NUMBERS` and `TEXTS` name, a number or a code per event, with what form it had. `release` gives the arrays back; nothing that a
    method returned is in them.
    """

    def __init__(self, text: Text, room: Room, count: int, raw: Raw, free: Callable[[Room], None] = lambda _: None) -> None:
        self.text, self.found, self.raw, self.count = text, room.found[:count], raw, count
        self.health = Health()
        self.clock = -FARTHEST, FARTHEST
        self._room, self._free = room, free
        self._whole: dict[str, Ints] = {}
        self._codes: dict[tuple[str, int], Codes] = {}
        self._odd: dict[str, Rows] = {}

    def release(self) -> None:
        """Ends the use of the batch."""
        self._free(self._room)

    # -- fields -----------------------------------------------------------------------------------------------

    def field(self, which: int, rows: Rows) -> tuple[Array, Array]:
        """Returns (offset, length) of a field's raw value; length 0 where it is absent."""
        return self.found[rows, 2 * which], self.found[rows, 2 * which + 1]

    def ordered(self, which: int, rows: Rows | slice = slice(None)) -> Codes:
        """Returns codes of PH, CAT, PID or TID in order of first use; `raw.field` tells of what."""
        return self.raw.field_order.of(self._room.code[which, : self.count][rows])

    def groups(self) -> list[tuple[str, str | None, Rows]]:
        """Returns (phase, category, events) per distinct pair; category None where it is absent or null."""
        phase, category = self.ordered(K.PH), self.ordered(K.CAT)
        size = len(self.raw.fields)
        key = phase.astype(np.int64) * size + category
        order = np.argsort(key.astype(np.uint16) if size < 256 else key, kind="stable")  # of 16 bits: by digits
        key = key[order]
        begins = np.flatnonzero(np.concatenate([[True], key[1:] != key[:-1]]))
        ends = np.concatenate([begins[1:], [self.count]])
        if len(begins) > MOST_GROUPS:
            kept = np.sort(np.argsort(begins - ends, kind="stable")[:MOST_GROUPS])
            begins, ends = begins[kept], ends[kept]
            self.health.add("event of a rare category among thousands", self.count - int((ends - begins).sum()))
        out = []
        for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
            pair = int(key[begin])
            raw_phase, raw_category = self.raw.field(pair // size), self.raw.field(pair % size)
            cat = None if raw_category in (b"", b"null") else scalar(raw_category)
            out.append((scalar(raw_phase), cat, order[begin:end]))
        return out

    def times(self, which: int, rows: Rows) -> tuple[Ints, npt.NDArray[np.bool_]]:
        """Returns (int64 ns, given) of `ts` or `dur`, from decimal microsecond texts, without a float in between.

        Digits past the third round half up. Quoted numbers and exponents are read as decimals; null, text and times past
        `FARTHEST` count as not given.
        """
        out, state = self._room.number[which - K.TS][rows], self._room.form[which - K.TS][rows]
        if state.any():
            self._mend_times(which, rows, out, state)
        low, high = self.clock if which == K.TS else (-FARTHEST, FARTHEST)
        if len(out) and (int(out.max()) > high or int(out.min()) < low):
            self._count_far(which, rows, out, state, (low, high))
        return out, state != K.MISSING

    def _count_far(self, which: int, rows: Rows, out: Ints, state: npt.NDArray[np.int8], bounds: tuple[int, int]) -> None:
        """Counts times that are none, or of another clock than the others, and takes them as not given, in place."""
        given = state != K.MISSING
        beyond = given & (np.abs(out) > FARTHEST)
        other = given & ~beyond & ((out < bounds[0]) | (out > bounds[1]))
        for far, reason in ((beyond, "time out of range"), (other, "time of another clock")):
            if far.any():
                raw = self.raws(which, rows[[int(np.argmax(far))]])[0]
                self.health.add(reason, int(far.sum()), raw[:40].decode("utf-8", "replace"))
                state[far], out[far] = K.MISSING, 0

    def near(self) -> tuple[int, int] | None:
        """Returns the times (ns) that may be of one recording with the events of this batch; None where none has a time."""
        time, state = self._room.number[0, : self.count], self._room.form[0, : self.count]
        known = time[(state == K.EXACT) | (state == K.ROUNDED)]
        if not len(known):
            return None
        middle = int(np.median(known))
        return max(middle - TEN_YEARS, -FARTHEST), min(middle + TEN_YEARS, FARTHEST)

    def _mend_times(self, which: int, rows: Rows, out: Ints, state: npt.NDArray[np.int8]) -> None:
        """Counts times that were rounded and reads the unusual ones, in place."""
        rounded = state == K.ROUNDED
        if rounded.any():
            raw = self.raws(which, rows[[int(np.argmax(rounded))]])[0]
            self.health.add("digits past nanoseconds", int(rounded.sum()), raw.decode())
        odd = np.flatnonzero(state == K.UNUSUAL)
        for i, raw in zip(odd.tolist(), self.raws(which, rows[odd]), strict=True):
            value = decimal_ns(raw, self.health)
            state[i] = K.MISSING if value is None else K.EXACT
            out[i] = value or 0

    def names(self, rows: Rows, interner: Interner) -> Codes:
        """Returns codes of the names."""
        return self.raw.into("", interner, partial(name_of, self.health)).of(self._room.code[K.NAME][rows])

    def unnamed(self, rows: Rows) -> int:
        """Returns how many of the events have no name, or an empty one."""
        return int(np.count_nonzero(self._room.form[K.FLAGS][rows] & K.UNNAMED))

    def odd_args(self, rows: Rows) -> int:
        """Returns how many of the events carry `args` that are no object."""
        return int(np.count_nonzero(self._room.form[K.FLAGS][rows] & K.ODD_ARGS))

    def threads(self, rows: Rows, interner: ThreadInterner) -> Codes:
        """Returns codes of (pid, tid)."""
        pid, tid = self.ordered(K.PID, rows), self.ordered(K.TID, rows)
        few = self.raw.pairs
        small = len(self.raw.fields) <= len(few)
        if small:
            out = few[pid, tid]
            if not len(out) or out.min() >= 0:
                return out
        pairs, place = np.unique(pid.astype(np.int64) << 32 | tid, return_inverse=True)
        value = self.raw.field
        codes = np.fromiter((interner[value(p >> 32), value(p & 0xFFFFFFFF)] for p in pairs.tolist()), np.int32, len(pairs))
        if small:
            few[pairs >> 32, pairs & 0xFFFFFFFF] = codes
        return codes[place]

    def numbers(self, which: int, rows: Rows) -> Ints:
        """Returns a field as int64, -1 where it is no number."""
        value: Ints = self._room.number[which - K.TS][rows]
        form = self._room.form[which - K.TS][rows]
        if form.any():
            odd = np.flatnonzero(form < 0)
            self._mend_whole(value, form, odd, self.raws(which, rows[odd]))
        return value

    def _mend_whole(self, value: Ints, form: npt.NDArray[np.int8], odd: Rows, raws: Iterable[bytes]) -> None:
        """Makes whole numbers of decimals and of the `odd` ones, which are read from their bytes, in place."""
        decimal = form > 0
        value[decimal] = _decimals(value[decimal], form[decimal]).astype(np.int64)
        for i, raw in zip(odd.tolist(), raws, strict=True):
            value[i] = whole_number(raw)
            _count_bare_word(raw, self.health)

    # -- arguments --------------------------------------------------------------------------------------------

    def has(self, key: str) -> bool:
        """Whether any event of the batch carries this argument."""
        return bool(self._room.marks[1, _PLACE[key]] < self.count)

    def _column(self, key: str) -> tuple[Ints, npt.NDArray[np.int8]]:
        """Returns (value, form) of an argument for all events."""
        place = _PLACE[key]
        written = int(self._room.marks[0, place])
        value, form = self._room.number[3 + place, : self.count], self._room.form[4 + place, : self.count]
        if written < self.count:
            value[written:], form[written:] = -1, K.ABSENT
            self._room.marks[0, place] = self.count
        return value, form

    def _ranges(self, value: Ints) -> tuple[Array, Array]:
        """Returns (offset, length) of odd values."""
        return value >> 32, value & 0xFFFFFFFF

    def ints(self, key: str, rows: Rows) -> Ints:
        """Returns an argument as int64 per event, -1 where it is missing or no whole number (null, text, NaN); quoted numbers and
        hexadecimal are read.
        """
        if not self.has(key):
            return np.full(len(rows), -1, np.int64)
        whole = self._whole.get(key)
        if whole is None:
            whole, form = self._column(key)
            if form.max() > 0 or form.min() < K.ABSENT:
                odd = np.flatnonzero(form <= K.ODD)
                raws = list(map(self.text.piece, *(r.tolist() for r in self._ranges(whole[odd]))))
                whole = whole.copy()
                self._mend_whole(whole, form, odd, raws)
            self._whole[key] = whole
        return whole[rows]

    def floats(self, key: str, rows: Rows) -> npt.NDArray[np.float64]:
        """Returns an argument as float64 per event, NaN where it is missing or no number ("N/A" is how old ROCm traces write an unknown
        bandwidth).
        """
        if not self.has(key):
            return np.full(len(rows), np.nan)
        value, form = self._column(key)
        odd = self._odd.get(key)
        if odd is None:
            odd = self._odd[key] = np.flatnonzero(form <= K.ODD)
        if not len(odd):
            return _decimals(value[rows], form[rows])
        out = _decimals(value, form)
        distinct = ByteInterner()  # many digits, exponents, texts: read once per distinct text
        codes = distinct.codes(self.text, *self._ranges(value[odd]))
        raws = [distinct.value(i) for i in range(len(distinct))]
        read = np.fromiter(map(_float, raws), np.float64, len(raws))
        out[odd] = np.where(np.isfinite(read), read, np.nan)[codes]
        for raw, count in zip(raws, np.bincount(codes).tolist(), strict=True):
            _count_bare_word(raw, self.health, count)
        return out[rows]

    def codes(self, key: str, rows: Rows, interner: Interner) -> Codes:
        """Returns an argument as codes of its raw bytes in `interner`; missing is the code of b""."""
        missing = interner[b""]
        if not self.has(key):
            return np.full(len(rows), missing, np.int32)
        out = self._codes.get((key, id(interner)))
        if out is None:
            value, form = self._column(key)
            given = form != K.ABSENT
            out = np.full(self.count, missing, np.int32)
            out[given] = self.raw.into(key, interner, bytes).of(value[given])
            self._codes[key, id(interner)] = out
        return out[rows]

    def where(self, key: str, rows: Rows) -> npt.NDArray[np.bool_]:
        """Returns which events carry the argument with something in it (neither "" nor null)."""
        if not self.has(key):
            return np.zeros(len(rows), bool)
        form = self._column(key)[1][rows]
        return np.asarray((form != K.ABSENT) & (form > K.NULL), np.bool_)

    def raws(self, which: int, rows: Rows) -> list[bytes]:
        """Returns a field's raw bytes per event."""
        offset, length = self.field(which, rows)
        return [self.text.piece(o, n) for o, n in zip(offset.tolist(), length.tolist(), strict=True)]


def scalar(raw: bytes) -> str:
    """Returns a JSON scalar as text; anything unreadable as the text it is."""
    if raw[:1] == b'"':
        try:
            return str(msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeDecodeError):
            return raw[1:-1].decode("utf-8", "replace")
    return "" if raw == b"null" else raw.decode("utf-8", "replace")


def name_of(health: Health, raw: bytes) -> str:
    """Returns an event's name; one that is missing, empty or null is "(unnamed)". Bad escapes and bytes are kept, and counted.

    A name above `LONGEST_NAME` is cut and ends with its length and checksum: different names stay different.
    """
    name = _name(health, raw)
    if len(name) <= LONGEST_NAME:
        return name
    health.add("name above the length limit", 1, name[:80])
    return f"{name[:LONGEST_NAME]}… ({len(name):,} characters, {zlib.crc32(raw):08x})"


def _name(health: Health, raw: bytes) -> str:
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


LONGEST_NAME = 1 << 15
"""Characters of a name that are kept."""
Sink = Callable[[Batch], None]


class Fed(msgspec.Struct, frozen=True):
    """How far a feed got: `consumed` bytes, `closed` if the list ended there, `broken` if the text there is no event."""

    consumed: int
    closed: bool
    broken: bool


class Damage:
    """What a scanner does with entries of the list that are no events: it passes them over and counts them in `health`.

    patience: bytes that an entry may take which does not end; 0 once no more text comes.
    """

    def __init__(self, health: Health, patience: int) -> None:
        self.health, self.patience = health, patience
        self.counts = np.zeros(spans.BUDGET + 1, np.int64)
        self.counts[spans.BUDGET] = AGAIN

    def count(self, view: Text, read: int) -> None:
        """Count what a scan that read so many bytes has passed over."""
        for place, reason in ((spans.ENTRIES, "entry that is not an event"), (spans.UNREADABLE, "unreadable event")):
            count, first = self.counts[place : place + 2].tolist()
            if count:
                self.health.add(reason, count, view.piece(first, 60).decode("utf-8", "replace"))
        self.counts[: spans.BUDGET] = 0
        self.counts[spans.BUDGET] += 4 * read


AGAIN = 64 << 20
"""Bytes that the search for the next event after a damaged one may look at again, besides four times the bytes read."""


class Scanner:
    """The decoder. `feed` cuts all complete events out of `text`, which starts at event level."""

    def __init__(self) -> None:
        self.raw = Raw()
        self._rooms: deque[Room] = deque()

    def feed(self, text: bytes | memoryview, sink: Sink, damage: Damage | None = None) -> Fed:
        if not text:
            return Fed(0, False, False)
        patience, passed = (damage.patience, damage.counts.ctypes.data) if damage else (spans.STRICT, 0)
        view = text_of(text)
        raw, at, events = self.raw, 0, 0
        room = self._room(len(text))
        while True:
            why, events, at = K.scan(view.address, len(text), at, events, room.addresses(raw.after), raw.values.table, patience, passed)
            if why == K.NO_ROOM:
                raw.values.grow()
                continue
            if why == K.FULL and len(room.found) < len(text) // SHORTEST + 16:
                room = room.larger()
                continue
            if events:
                sink(Batch(view, room, events, raw, self._rooms.append))
                room, events = self._room(len(text)), 0
            if why != K.FULL:
                self._rooms.append(room)
                if damage is not None:
                    damage.count(view, at)
                return Fed(at, why == K.CLOSED, why == K.BROKEN)

    def _room(self, size: int) -> Room:
        """Returns arrays that no batch uses any more, or new ones for as many events as `size` bytes usually hold."""
        try:
            return self._rooms.pop().empty()
        except IndexError:
            return Room(size // USUAL + 16)
