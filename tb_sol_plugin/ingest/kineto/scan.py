"""Holds the compiled loops of the decoder: cut text into values, intern values, read numbers. No Python object per event.

Only `_key` asks numba to inline it, which makes `scan` a third faster; for the others the optimizer behind numba does that better.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# what an event's row in `found` holds: offset and length of the raw value of each field (length 0: absent)
PH, CAT, NAME, PID, TID, TS, DUR, ID, ARGS = range(9)
FIELDS = 9
# why `scan` stopped
INCOMPLETE, CLOSED, BROKEN, FULL, GOING = range(5)  # GOING: it did not
# the keys of the fields, as numbers of their bytes
_PH, _CAT, _NAME, _PID, _TID, _TS, _DUR, _ID, _ARGS = (
    int.from_bytes(key, "big") for key in (b"ph", b"cat", b"name", b"pid", b"tid", b"ts", b"dur", b"id", b"args")
)


SLACK = 16
"""Bytes that must follow the text in its array, so that eight can be loaded anywhere."""

_MIX = np.uint64(0x9E3779B97F4A7C15)


@njit(cache=True, nogil=True)
def _load(words, i):  # type: ignore[no-untyped-def]
    """Returns eight bytes from any offset, out of the array seen as words."""
    k = np.uint64(i) >> np.uint64(3)
    shift = (np.uint64(i) & np.uint64(7)) << np.uint64(3)
    low = words[k] >> shift
    if shift == np.uint64(0):
        return low
    return low | (words[k + np.uint64(1)] << (np.uint64(64) - shift))


@njit(cache=True, nogil=True)
def _at(text, i):  # type: ignore[no-untyped-def]
    """Returns text[i] for an index that is not negative, without the test for it: a tenth of the time of `scan`."""
    return text[np.uint64(i)]


@njit(cache=True, nogil=True)
def _string_end(text, i, n):  # type: ignore[no-untyped-def]
    """Returns the index after the closing quote of the string that opens at i; n + 1 if it does not close."""
    i += 1
    while i < n:
        c = _at(text, i)
        if c == 34:
            return i + 1
        if c == 92:
            i += 1
        i += 1
    return n + 1


@njit(cache=True, nogil=True)
def _value_end(text, i, n):  # type: ignore[no-untyped-def]
    """Returns the index after the value that starts at i; n + 1 if it does not end before n."""
    c = _at(text, i)
    if c == 34:
        return _string_end(text, i, n)
    if c == 123 or c == 91:
        depth = 0
        while i < n:
            c = _at(text, i)
            if c == 34:
                i = _string_end(text, i, n)
                continue
            if c == 123 or c == 91:
                depth += 1
            elif c == 125 or c == 93:
                depth -= 1
                if depth == 0:
                    return i + 1
            i += 1
        return n + 1
    while i < n:
        c = _at(text, i)
        if c == 44 or c == 125 or c == 93 or c <= 32:
            return i
        i += 1
    return n + 1


@njit(cache=True, nogil=True)
def _space(text, i, n):  # type: ignore[no-untyped-def]
    while i < n and _at(text, i) <= 32:
        i += 1
    return i


@njit(cache=True, nogil=True)
def _field(text, i, length):  # type: ignore[no-untyped-def]
    """Returns which event field a key (without quotes) of this length at i is; -1 for others."""
    if length < 2 or length > 4:
        return -1
    key = _at(text, i) << 8 | _at(text, i + 1)
    for k in range(2, length):
        key = key << 8 | _at(text, i + k)
    if length == 2:
        return TS if key == _TS else PH if key == _PH else ID if key == _ID else -1
    if length == 3:
        return CAT if key == _CAT else PID if key == _PID else TID if key == _TID else DUR if key == _DUR else -1
    return NAME if key == _NAME else ARGS if key == _ARGS else -1


@njit(cache=True, nogil=True, inline="always")
def _key(text, i, n):  # type: ignore[no-untyped-def]
    """Returns (why it stopped, length, index of the value) of the key whose quote is at i."""
    if _at(text, i) != 34:
        return BROKEN, 0, i
    end = _string_end(text, i, n)
    if end > n:
        return INCOMPLETE, 0, i
    value = _space(text, end, n)
    if value >= n:
        return INCOMPLETE, 0, i
    if _at(text, value) != 58:
        return BROKEN, 0, i
    value = _space(text, value + 1, n)
    return (GOING if value < n else INCOMPLETE), end - i - 2, value


@njit(cache=True, nogil=True)
def _event(text, i, n, found, args, event, first):  # type: ignore[no-untyped-def]
    """Returns (why it stopped, index after, rows of `args` filled) the event whose content starts at i. first: the row to fill first."""
    for k in range(2 * FIELDS):
        found[event, k] = 0
    pairs = first
    opened = 0  # where the `args` object began; 0: outside of it
    i = _space(text, i, n)
    while i < n:
        c = _at(text, i)
        if c == 44:
            i = _space(text, i + 1, n)
            continue
        key, length, field = i + 1, 0, ARGS
        if c != 125:
            why, length, i = _key(text, i, n)
            if why != GOING:
                return why, i, pairs
            field = -1 if opened else _field(text, key, length)
            if field == ARGS and _at(text, i) == 123:
                opened = i
                pairs = first
                i = _space(text, i + 1, n)
                continue
            value = i
            i = _value_end(text, i, n)
            if i > n or i == value:
                return INCOMPLETE if i > n else BROKEN, i, pairs
        elif not opened:
            return GOING, i + 1, pairs
        else:
            value, opened, i = opened, 0, i + 1
        if opened:
            if pairs >= len(args):
                return (BROKEN if first == 0 else FULL), i, pairs
            args[pairs, 0] = event
            args[pairs, 1] = key
            args[pairs, 2] = length
            args[pairs, 3] = value
            args[pairs, 4] = i - value
            pairs += 1
        elif field >= 0:
            found[event, 2 * field] = value
            found[event, 2 * field + 1] = i - value
        i = _space(text, i, n)
        if not opened and i < n and _at(text, i) != 44 and _at(text, i) != 125:
            return BROKEN, i, pairs
    return INCOMPLETE, i, pairs


@njit(cache=True, nogil=True)
def scan(text, n, start, found, args):  # type: ignore[no-untyped-def]
    """Cut events out of the first n bytes of `text` from `start`, which is at event level of a JSON array.

    text: uint8, of which only the first n count.

    found int32[events, 18]: offset, length per field. args int32[many, 5]: event, key offset, key length (without
    quotes), value offset, value length, for every key of an `args` object.
    Returns (why it stopped, events, args, where): `where` is after the last complete event and its comma, or after
    the closing bracket.
    """
    events = 0
    pairs = 0
    i = start
    while True:
        i = _space(text, i, n)
        while i < n and _at(text, i) == 44:
            i = _space(text, i + 1, n)
        where = i
        if i >= n:
            return INCOMPLETE, events, pairs, where
        if _at(text, i) == 93:
            return CLOSED, events, pairs, i + 1
        if _at(text, i) != 123:
            return BROKEN, events, pairs, where
        if events >= len(found) or pairs + 128 >= len(args):
            return FULL, events, pairs, where
        why, i, after = _event(text, i + 1, n, found, args, events, pairs)
        if why != GOING:
            return why, events, pairs, where
        # what follows an event must be a comma, the end of the list, or not there yet
        j = _space(text, i, n)
        if j < n and _at(text, j) != 44 and _at(text, j) != 93:
            return BROKEN, events, pairs, where
        pairs = after
        events += 1


@njit(cache=True, nogil=True)
def intern(words, offset, length, out, begin, slots, hashes, starts, lengths, arena, count, used):  # type: ignore[no-untyped-def]
    """Gives byte ranges codes, equal bytes equal codes. Returns (next range to do, distinct values, arena words used).

    Stops early where the table is more than half full or the arena has no room: the caller grows them and goes on.
    A hit is compared word by word, so a crafted hash collision cannot merge two values. The arena holds each value
    from a word boundary, filled up with zeros.
    """
    mask = np.uint64(len(slots) - 1)
    for k in range(begin, len(offset)):
        size = length[k]
        at = offset[k]
        whole = size >> 3
        rest = np.uint64(size & 7)
        keep = (np.uint64(1) << (rest << np.uint64(3))) - np.uint64(1)
        h = np.uint64(size) * _MIX
        for i in range(whole):
            h = (h ^ _load(words, at + 8 * i)) * _MIX
            h ^= h >> np.uint64(32)
        tail = _load(words, at + 8 * whole) & keep
        h = (h ^ tail) * _MIX
        h ^= h >> np.uint64(29)
        slot = h & mask
        while True:
            entry = slots[slot]
            if entry < 0:
                if 2 * (count + 1) > len(slots) or count >= len(hashes) or used + whole + 1 > len(arena):
                    return k, count, used
                slots[slot] = count
                hashes[count] = h
                starts[count] = used
                lengths[count] = size
                for i in range(whole):
                    arena[used + i] = _load(words, at + 8 * i)
                arena[used + whole] = tail
                used += whole + 1
                out[k] = count
                count += 1
                break
            if hashes[entry] == h and lengths[entry] == size:
                base = starts[entry]
                same = arena[base + whole] == tail
                i = 0
                while same and i < whole:
                    same = arena[base + i] == _load(words, at + 8 * i)
                    i += 1
                if same:
                    out[k] = entry
                    break
            slot = (slot + np.uint64(1)) & mask
    return len(offset), count, used


@njit(cache=True, nogil=True)
def rehash(slots, hashes, count):  # type: ignore[no-untyped-def]
    """Put `count` entries into an empty slot table."""
    mask = np.uint64(len(slots) - 1)
    for entry in range(count):
        slot = hashes[entry] & mask
        while slots[slot] >= 0:
            slot = (slot + np.uint64(1)) & mask
        slots[slot] = entry


@njit(cache=True, nogil=True)
def numbers(text, offset, length, whole, fraction, status):  # type: ignore[no-untyped-def]
    """Reads plain JSON numbers: `whole` their integer part, `fraction` the float value.

    status: 0 an integer, 1 a decimal whose float is exact by one division, 2 anything else (the caller reads it).
    """
    for k in range(len(offset)):
        i = offset[k]
        end = i + length[k]
        negative = False
        if i < end and _at(text, i) == 45:
            negative = True
            i += 1
        value = np.int64(0)
        digits = 0
        places = 0
        dot = False
        odd = i >= end
        while i < end:
            c = _at(text, i)
            if 48 <= c <= 57:
                value = value * 10 + (c - 48)
                digits += 1
                if dot:
                    places += 1
                if digits > 18:
                    odd = True
                    break
            elif c == 46 and not dot:
                dot = True
            else:
                odd = True
                break
            i += 1
        if odd or digits == 0:
            status[k] = 2
            continue
        if negative:
            value = -value
        if not dot:
            status[k] = 0
            whole[k] = value
            fraction[k] = value
        elif digits <= 15 and places <= 22:
            status[k] = 1
            fraction[k] = value / 10.0**places
        else:
            status[k] = 2


@njit(cache=True, nogil=True)
def microseconds(text, offset, length, out, status):  # type: ignore[no-untyped-def]
    """Converts decimal microseconds to int64 ns; status 0 exact, 1 rounded, 2 odd (the caller reads it), 3 absent."""
    for k in range(len(offset)):
        i = offset[k]
        end = i + length[k]
        if i == end:
            status[k] = 3
            continue
        negative = _at(text, i) == 45
        if negative:
            i += 1
        whole = np.int64(0)
        frac = np.int64(0)
        digits = 0
        places = 0
        dot = False
        odd = False
        up = False
        while i < end:
            c = _at(text, i)
            if 48 <= c <= 57:
                if not dot:
                    whole = whole * 10 + (c - 48)
                    digits += 1
                    if digits > 16:
                        odd = True
                        break
                elif places < 3:
                    frac = frac * 10 + (c - 48)
                    places += 1
                else:
                    if places == 3:
                        up = c >= 53
                    places += 1
            elif c == 46 and not dot:
                dot = True
            else:
                odd = True
                break
            i += 1
        if odd or digits == 0 or whole > 9_200_000_000_000_000:
            status[k] = 2
            continue
        shown = places
        while shown < 3:
            frac *= 10
            shown += 1
        value = whole * 1000 + frac
        if up:
            value += 1
        out[k] = -value if negative else value
        status[k] = 1 if places > 3 else 0
