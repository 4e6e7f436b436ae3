"""Holds the compiled loops of the decoder: one pass over text that cuts events, gives values codes and reads numbers.

No Python object per event. Memory is given by its address. Every load is inside of the text, whatever it holds: a test for the end stands
before each; rows are below the size of their room, and codes come out of the tables.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tb_sol_plugin.ingest.kineto import rules
from tb_sol_plugin.ingest.kineto import words as W
from tb_sol_plugin.ingest.kineto.spans import STRICT, ends_value, passed, space, string_end, value_end, word_end
from tb_sol_plugin.tables.compiled import compiled

# what an event's row in `found` holds: offset and length of the raw value of each field (length 0: absent)
PH, CAT, NAME, PID, TID, TS, DUR, ID, ARGS = range(9)
FIELDS = 9
FLAGS = 3
"""Row of `form` behind those of TS, DUR and ID; then one per argument."""
FIRST_TEXT: Final = 41
ARGUMENTS: Final = 71
"""Arguments that are kept; `which` counts them, and those from `FIRST_TEXT` on are codes of their texts.

Written out, since compiled loops are kept for as long as this file is the same: a change of the rules has to change it too.
"""
assert (len(rules.NUMBERS), len(rules.NUMBERS) + len(rules.TEXTS)) == (FIRST_TEXT, ARGUMENTS)
UNNAMED, ODD_ARGS = 1, 2
# why `scan` stopped
INCOMPLETE, CLOSED, BROKEN, FULL, NO_ROOM, GOING = range(6)  # GOING: it did not
# state of a time
EXACT, ROUNDED, UNUSUAL, MISSING = range(4)
MOST_DIGITS: Final = 15
"""Digits of a decimal that one division reads exactly."""
# form of a number: 0 a whole one, 1 + p a decimal with p places that one division reads exactly, FLOAT the bits of a float, and
FLOAT: Final = MOST_DIGITS + 2
ABSENT, ODD, NULL, EMPTY = -1, -2, -3, -4
NEVER = 1 << 40
"""Event in which a key was never seen."""
# the keys of the fields, as numbers of their bytes
_PH, _CAT, _NAME, _PID, _TID, _TS, _DUR, _ID, _ARGS = (
    int.from_bytes(key, "little") for key in (b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"id", b"args")
)
_POWERS = np.array([10**k for k in range(19)], np.int64)
_SIGN = np.int64(-(1 << 63))
_ZEROS = np.uint64(0x3030303030303030)
_MIX = np.uint64(0x9E3779B97F4A7C15)
SECRET: Final = 3
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


# -- numbers ----------------------------------------------------------------------------------------------------------


@compiled()
def _digits(text, i, n):  # type: ignore[no-untyped-def]
    """Returns how many decimal digits stand from i on."""
    begin = i
    while i + W.WIDE <= n:
        others = W.no_digits(text, i)
        if others != 0:
            return i + W.lowest(others) - begin
        i += W.WIDE
    while i < n and 48 <= W.byte(text, i) <= 57:
        i += 1
    return i - begin


@compiled()
def _eight(text, i, count):  # type: ignore[no-untyped-def]
    """Returns the number that 1 to 8 digits at i write: eight bytes at once, what stands before the digits made zeros."""
    first = i + count - 8
    if first < 0:
        value = np.int64(0)
        for k in range(i, i + count):
            value = value * 10 + np.int64(W.byte(text, k)) - 48
        return value
    gap = np.uint64(8 * (8 - count))
    x = (((W.eight(text, first) ^ _ZEROS) >> gap) << gap) & np.uint64(0x0F0F0F0F0F0F0F0F)
    x = ((x * np.uint64(2561)) >> np.uint64(8)) & np.uint64(0x00FF00FF00FF00FF)
    x = ((x * np.uint64(6553601)) >> np.uint64(16)) & np.uint64(0x0000FFFF0000FFFF)
    return np.int64((x * np.uint64(42949672960001)) >> np.uint64(32))


@compiled()
def _whole(text, i, count):  # type: ignore[no-untyped-def]
    """Returns the number that up to 18 digits at i write."""
    value = np.int64(0)
    while count > 0:
        part = count & 7 if count & 7 else 8
        value = value * _POWERS[part] + _eight(text, i, part)
        i += part
        count -= part
    return value


@compiled()
def _quotient(value, places):  # type: ignore[no-untyped-def]
    """Returns the float nearest to value / 10**places, as its bits. Two bits more than a float has, and one for the rest, decide it."""
    divisor = _POWERS[places]
    whole = value // divisor
    rest = value - whole * divisor
    shift = 0
    while value and whole < 1 << 54:
        whole, rest, shift = 2 * whole, 2 * rest, shift + 1
        if rest >= divisor:
            whole, rest = whole + 1, rest - divisor
    return W.bits(math.ldexp(np.float64(whole | 1 if rest else whole), -shift))


@compiled(forceinline=True)
def _signed(text, i, n):  # type: ignore[no-untyped-def]
    """Returns (whether the number at i is negative, where its digits begin, how many there are before a point)."""
    negative = W.byte(text, i) == 45
    first = i + 1 if negative else i
    return negative, first, _digits(text, first, n)


@compiled()
def _number(text, i, n):  # type: ignore[no-untyped-def]
    """Returns (index after, value, form) of the number that starts at i: of a decimal without its point. ODD: the caller reads it."""
    negative, first, count = _signed(text, i, n)
    i = first + count
    value, form = np.int64(0), ODD
    if i < n and W.byte(text, i) == 46:
        places = _digits(text, i + 1, n)
        if 0 < count + places <= 18:
            value = _whole(text, first, count) * _POWERS[places] + _whole(text, i + 1, places)
            form = 1 + places
            if count + places > MOST_DIGITS:
                value, form = _quotient(value, places), FLOAT
        i += 1 + places
    elif 0 < count <= 18:
        value, form = _whole(text, first, count), 0
    if i >= n or not ends_value(W.byte(text, i)):
        i, form = word_end(text, i, n), ODD
    if negative:
        value = value ^ _SIGN if form == FLOAT else -value
    return i, value, form


@compiled()
def _time(text, i, n):  # type: ignore[no-untyped-def]
    """Returns (index after, ns, state) of the decimal microseconds that start at i."""
    negative, first, count = _signed(text, i, n)
    i = first + count
    value, state = np.int64(0), EXACT if 0 < count <= 16 else UNUSUAL
    if state == EXACT:
        value = _whole(text, first, count)
        if value > 9_200_000_000_000_000:
            state = UNUSUAL
        value *= 1000
    if i < n and W.byte(text, i) == 46:
        places = _digits(text, i + 1, n)
        known = min(places, 3)
        value += _whole(text, i + 1, known) * _POWERS[3 - known]
        if places > 3:
            value += W.byte(text, i + 4) >= 53
            state = ROUNDED if state == EXACT else state
        i += 1 + places
    if i >= n or not ends_value(W.byte(text, i)):
        i, state = word_end(text, i, n), UNUSUAL
    return i, -value if negative else value, state


# -- values to codes --------------------------------------------------------------------------------------------------


@compiled(forceinline=True)
def _part(text, i, count, n):  # type: ignore[no-untyped-def]
    """Returns `count` (at most 8) bytes from i on as a number, the first lowest."""
    if count <= 0:
        return np.uint64(0)
    if i + 8 <= n:
        return W.eight(text, i) & (_ALL >> np.uint64(64 - 8 * count))
    out = np.uint64(0)
    for k in range(count):
        out |= np.uint64(W.byte(text, i + k)) << np.uint64(8 * k)
    return out


@compiled(forceinline=True)
def _hash(text, i, size, n, arena):  # type: ignore[no-untyped-def]
    """Returns a hash of bytes that nobody can predict without the secret, which is the first `SECRET` words of the arena."""
    h = W.word(arena, 0) ^ (np.uint64(size) * _MIX)
    while size > 16:
        h = W.fold(W.eight(text, i) ^ W.word(arena, 1), W.eight(text, i + 8) ^ h)
        i += 16
        size -= 16
    return W.fold(_part(text, i, min(size, 8), n) ^ W.word(arena, 2), _part(text, i + 8, size - 8, n) ^ h)


@compiled()
def _same(text, i, size, n, arena, base):  # type: ignore[no-untyped-def]
    """Whether bytes of the text are those that the arena holds from word `base` on."""
    differ = np.uint64(0)
    whole = size >> 3
    for k in range(whole):
        differ |= W.eight(text, i + 8 * k) ^ W.word(arena, base + k)
    if size & 7:
        differ |= _part(text, i + 8 * whole, size & 7, n) ^ W.word(arena, base + whole)
    return differ == 0


@compiled(forceinline=True)
def _find(text, i, size, n, table, h):  # type: ignore[no-untyped-def]
    """Returns (code, slot) of a value: -1 and the free slot where it would stand if it is new. A hit is compared byte by byte."""
    slots, entries, arena, sizes = table
    mask = W.get64(sizes, 3) - 1
    slot = np.int64(h) & mask
    while True:
        code = W.get32(slots, slot)
        if code < 0:
            return code, slot
        same = W.word(entries, 3 * code) == h and W.get64(entries, 3 * code + 2) == size
        if same and _same(text, i, size, n, arena, W.get64(entries, 3 * code + 1)):
            return code, slot
        slot = (slot + 1) & mask


@compiled(forceinline=True)
def _intern(text, i, size, n, table):  # type: ignore[no-untyped-def]
    """Returns the code of a value, a new one if it is new; -1 where the tables have no room: the caller makes it for `sizes[2]` words.

    table: addresses of a `decode.ByteInterner`. The arena holds each value from a word boundary, filled up with zeros.
    """
    slots, entries, arena, sizes = table
    h = _hash(text, i, size, n, arena)
    code, slot = _find(text, i, size, n, table, h)
    if code >= 0:
        return code
    code, used = W.get64(sizes, 0), W.get64(sizes, 1)
    room = (size + 7) >> 3
    if 2 * (code + 1) > W.get64(sizes, 3) or code >= W.get64(sizes, 4) or used + room > W.get64(sizes, 5):
        W.put64(sizes, 2, room)
        return np.int64(-1)
    W.put32(slots, slot, code)
    W.put64(entries, 3 * code, np.int64(h))
    W.put64(entries, 3 * code + 1, used)
    W.put64(entries, 3 * code + 2, size)
    for k in range(room):
        W.put64(arena, used + k, np.int64(_part(text, i + 8 * k, min(size - 8 * k, 8), n)))
    W.put64(sizes, 0, code + 1)
    W.put64(sizes, 1, used + room)
    return code


@compiled()
def intern(text, n, offset, length, out, begin, table):  # type: ignore[no-untyped-def]
    """Gives byte ranges of the n bytes at address `text` codes, equal bytes equal codes. Returns the next range to do: short of all
    where a table is full.
    """
    for k in range(begin, len(offset)):
        code = _intern(text, np.int64(offset[k]), np.int64(length[k]), n, table)
        if code < 0:
            return k
        out[k] = code
    return len(offset)


@compiled()
def rehash(slots, entries, count):  # type: ignore[no-untyped-def]
    """Put `count` entries into an empty slot table."""
    mask = np.uint64(len(slots) - 1)
    for entry in range(count):
        slot = entries[entry, 0] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = entry


# -- events -----------------------------------------------------------------------------------------------------------


@compiled(forceinline=True)
def _field(text, i, length, n):  # type: ignore[no-untyped-def]
    """Returns which event field a key (without quotes) of this length at i is; -1 for others."""
    if length < 2 or length > 4:
        return -1
    key = _part(text, i, length, n)
    if length == 2:
        return TS if key == _TS else PH if key == _PH else ID if key == _ID else -1
    if length == 3:
        return CAT if key == _CAT else PID if key == _PID else TID if key == _TID else DUR if key == _DUR else -1
    return NAME if key == _NAME else ARGS if key == _ARGS else -1


@compiled(forceinline=True)
def _expected(text, i, n, which, table):  # type: ignore[no-untyped-def]
    """Returns the index after argument key `which` and its quote if that is what stands at i; else 0."""
    if which < 0:
        return 0
    _, entries, arena, _ = table
    size = W.get64(entries, 3 * which + 5)
    end = i + size
    if end >= n or W.byte(text, end) != 34 or not _same(text, i, size, n, arena, W.get64(entries, 3 * which + 4)):
        return 0
    return end + 1


@compiled(forceinline=True)
def _put(which, event, value, kind, room):  # type: ignore[no-untyped-def]
    """Writes an argument of an event; the events since the last that had it get none."""
    rows, _, _, number, form, marks, _ = room
    numbers, forms = (3 + which) * rows, (4 + which) * rows
    for row in range(W.get64(marks, which), event):
        W.put64(number, numbers + row, -1)
        W.put8(form, forms + row, ABSENT)
    W.put64(number, numbers + event, value)
    W.put8(form, forms + event, kind)
    W.put64(marks, which, event + 1)
    if W.get64(marks, ARGUMENTS + which) > event:
        W.put64(marks, ARGUMENTS + which, event)


@compiled()
def _forget(event, room):  # type: ignore[no-untyped-def]
    """Takes back the arguments of an event: a later `args` object of the same event replaces them."""
    rows, _, _, number, form, marks, _ = room
    for which in range(ARGUMENTS):
        if W.get64(marks, which) == event + 1:
            W.put64(number, (3 + which) * rows + event, -1)
            W.put8(form, (4 + which) * rows + event, ABSENT)
            if W.get64(marks, ARGUMENTS + which) == event:
                W.put64(marks, ARGUMENTS + which, NEVER)


@compiled()
def _blank(event, room):  # type: ignore[no-untyped-def]
    """Empties the row of an event."""
    rows, found, code, number, form, _, _ = room
    for k in range(FIELDS):
        W.put64(found, FIELDS * event + k, 0)
    for k in range(TID + 1):
        W.put32(code, k * rows + event, 0)
    for k in range(3):
        W.put64(number, k * rows + event, 0)
    W.put8(form, event, MISSING)
    W.put8(form, rows + event, MISSING)
    W.put8(form, 2 * rows + event, ABSENT)
    W.put8(form, FLAGS * rows + event, UNNAMED)


@compiled(forceinline=True)
def _set(field, event, at, length, first, value, kind, room):  # type: ignore[no-untyped-def]
    """Writes a field of an event. first: the first byte of its value."""
    rows, found, code, number, form, _, _ = room
    W.put32(found, 2 * (FIELDS * event + field), at)
    W.put32(found, 2 * (FIELDS * event + field) + 1, length)
    flags = FLAGS * rows + event
    if field <= TID:
        W.put32(code, field * rows + event, value)
        if field == NAME:
            W.put8(form, flags, (np.int64(W.byte(form, flags)) & ODD_ARGS) | (UNNAMED if length <= 2 else 0))
    elif field == ARGS:
        odd = first != 123 and first != 110
        W.put8(form, flags, (np.int64(W.byte(form, flags)) & UNNAMED) | (ODD_ARGS if odd else 0))
    else:
        W.put64(number, (field - TS) * rows + event, value)
        W.put8(form, (field - TS) * rows + event, kind)


@compiled(forceinline=True)
def _read(text, v, n, field, which):  # type: ignore[no-untyped-def]
    """Returns (index after, number, kind) of the value at v: a time, a number, or where it stands and what it looks like."""
    c = W.byte(text, v)
    timed = field in (TS, DUR)
    if (48 <= c <= 57 or c == 45 or c == 46) and (timed or field == ID or (which >= 0 and which < FIRST_TEXT)):
        end, number, kind = _time(text, v, n) if timed else _number(text, v, n)
    else:
        end, number, kind = value_end(text, v, n), np.int64(0), UNUSUAL if timed else ODD
    if kind == ODD:
        number = v << 32 | (end - v)
        if c == 110 and end - v == 4:
            kind = NULL
        elif c == 34 and end - v == 2:
            kind = EMPTY
    return end, number, kind


@compiled(forceinline=True)
def _key(text, i, n, opened, last, after, table):  # type: ignore[no-untyped-def]
    """Returns (why it stopped, field, argument, index of the value) of the key whose quote is at i: a field, or an argument where `opened`.

    last: the argument before this one; `after` remembers which one followed it, as events of one kind list theirs in one order.
    """
    field, which, end = -1, -1, 0
    if opened:
        which = W.get32(after, last)
        end = _expected(text, i + 1, n, which, table)
    if end == 0:
        end = string_end(text, i, n)
        if end > n:
            return INCOMPLETE, field, which, i
        size = end - i - 2
        if opened:
            which = _find(text, i + 1, size, n, table, _hash(text, i + 1, size, n, table[2]))[0] - 1
            which = which if which < ARGUMENTS else -1
            W.put32(after, last, which)
        else:
            field = _field(text, i + 1, size, n)
    v = space(text, end, n)
    if v >= n:
        return INCOMPLETE, field, which, i
    if W.byte(text, v) != 58:
        return BROKEN, field, which, i
    v = space(text, v + 1, n)
    return (GOING if v < n else INCOMPLETE), field, which, v


@compiled(forceinline=True)
def _event(text, i, n, event, room, table):  # type: ignore[no-untyped-def]
    """Returns (why it stopped, index after) the event whose content starts at i."""
    _blank(event, room)
    opened, begun = 0, False  # where the `args` object began, 0 outside of it; whether one did
    last = ARGUMENTS
    i = space(text, i, n)
    while i < n:
        c = W.byte(text, i)
        if c == 44:
            i = space(text, i + 1, n)
            continue
        if c == 125:
            if not opened:
                return GOING, i + 1
            _set(ARGS, event, opened, i + 1 - opened, 123, 0, 0, room)
            opened, i = 0, i + 1
        elif c != 34:
            return BROKEN, i
        else:
            why, field, which, v = _key(text, i, n, opened, last, room[6], table)
            if why != GOING:
                return why, i
            first = W.byte(text, v)
            if field == ARGS and first == 123:
                if begun:
                    _forget(event, room)
                opened, begun, last, i = v, True, ARGUMENTS + 1, space(text, v + 1, n)
                continue
            i, number, kind = _read(text, v, n, field, which)
            if i > n:
                return INCOMPLETE, i
            if i == v:
                return BROKEN, i
            if (0 <= field <= TID) or which >= FIRST_TEXT:
                number = _intern(text, v, i - v, n, table)
                if number < 0:
                    return NO_ROOM, i
                kind = kind if kind < ODD else 0
            if opened:
                last = which if which >= 0 else ARGUMENTS
                if which >= 0:
                    _put(which, event, number, kind, room)
            elif field >= 0:
                _set(field, event, v, i - v, first, number, kind, room)
        i = space(text, i, n)
        if not opened and i < n and W.byte(text, i) != 44 and W.byte(text, i) != 125:
            return BROKEN, i
    return INCOMPLETE, i


@compiled()
def scan(text, n, i, event, room, table, patience, damage):  # type: ignore[no-untyped-def]
    """Cut events out of the n bytes at address `text` from i on, which is at event level of a JSON array, into a room from row `event` on.

    room: rows and addresses of a `decode.Room`. table: addresses of a `decode.ByteInterner` whose first values are none and the keys of
    the arguments to keep. patience: bytes that an entry may take which does not end (0: no more text comes); entries that cannot be read
    are passed over and counted at the address `damage`; STRICT stops at them.
    Returns (why it stopped, events, where): `where` is after the last complete event and its comma, or after the closing bracket.
    """
    while True:
        i = space(text, i, n)
        while i < n and W.byte(text, i) == 44:
            i = space(text, i + 1, n)
        if i >= n:
            return INCOMPLETE, event, i
        if W.byte(text, i) == 93:
            return CLOSED, event, i + 1
        why, end = BROKEN, i
        if W.byte(text, i) == 123:
            if event >= room[0]:
                return FULL, event, i
            why, end = _event(text, i + 1, n, event, room, table)
            if why == GOING:  # what follows an event must be a comma, the end of the list, or not there yet
                end = space(text, end, n)
                if end < n and W.byte(text, end) != 44 and W.byte(text, end) != 93:
                    why = BROKEN
        if why == GOING:
            event += 1
        elif why == NO_ROOM or patience == STRICT or (why == INCOMPLETE and n - i <= patience):
            return why, event, i
        else:
            if W.byte(text, i) == 123:
                _forget(event, room)
            end = passed(text, i, n, n if why == INCOMPLETE else end, patience, damage)
            if end == i:
                return INCOMPLETE, event, i
        i = end
