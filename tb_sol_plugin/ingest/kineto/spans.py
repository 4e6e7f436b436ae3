"""Finds where values, entries and events of a JSON text end or begin, in compiled loops over memory by its address (see `words`)."""

from __future__ import annotations

import numpy as np

from tb_sol_plugin.ingest.kineto import words as W
from tb_sol_plugin.tables.compiled import compiled

_PH, _NAME, _CAT, _TS, _PID, _ARGS = (int.from_bytes(key, "big") for key in (b"ph", b"name", b"cat", b"ts", b"pid", b"args"))


@compiled()
def string_end(text, i, n):  # type: ignore[no-untyped-def]
    """Returns the index after the closing quote of the string that opens at i; n + 1 if it does not close."""
    i += 1
    while i + W.WIDE <= n:
        stops = W.quotes(text, i)
        if stops == 0:
            i += W.WIDE
            continue
        i += W.lowest(stops)
        if W.byte(text, i) == 34:
            return i + 1
        i += 2
    while i < n:
        c = W.byte(text, i)
        if c == 34:
            return i + 1
        if c == 92:
            i += 1
        i += 1
    return n + 1


@compiled()
def ends_value(c):  # type: ignore[no-untyped-def]
    """Whether a byte stands behind a number or word: comma, bracket, brace or space."""
    return c == 44 or c == 125 or c == 93 or c <= 32


@compiled()
def word_end(text, i, n):  # type: ignore[no-untyped-def]
    """Returns the index after the number or word that i is in; n + 1 if it does not end before n."""
    while i < n:
        if ends_value(W.byte(text, i)):
            return i
        i += 1
    return n + 1


@compiled()
def value_end(text, i, n):  # type: ignore[no-untyped-def]
    """Returns the index after the value that starts at i; n + 1 if it does not end before n."""
    c = W.byte(text, i)
    if c == 34:
        return string_end(text, i, n)
    if c != 123 and c != 91:
        return word_end(text, i, n)
    depth = 0
    while i < n:
        c = W.byte(text, i)
        if c == 34:
            i = string_end(text, i, n)
            continue
        if c == 123 or c == 91:
            depth += 1
        elif c == 125 or c == 93:
            depth -= 1
            if depth == 0:
                return i + 1
        i += 1
    return n + 1


@compiled()
def space(text, i, n):  # type: ignore[no-untyped-def]
    """Returns the index of the next byte that is no space, from i on; n if there is none."""
    if i < n and W.byte(text, i) > 32:
        return i
    i += 1
    if i < n and W.byte(text, i) > 32:
        return i
    while i + W.WIDE <= n:
        solid = W.solids(text, i)
        if solid != 0:
            return i + W.lowest(solid)
        i += W.WIDE
    while i < n and W.byte(text, i) <= 32:
        i += 1
    return min(i, n)


# what `damage` counts: entries that are no objects and where the first stands, unreadable events and where the first stands, and the
# bytes that may still be looked at again
ENTRIES, FIRST_ENTRY, UNREADABLE, FIRST_UNREADABLE, BUDGET = range(5)
STRICT = -1
"""No patience: `scan` stops at text that is no event."""


@compiled()
def entry_end(text, i, n):  # type: ignore[no-untyped-def]
    """Returns the index of the comma or bracket that ends the entry at i, which is no object; n + 1 where it does not end."""
    depth = 0
    first = i
    while i < n:
        c = W.byte(text, i)
        if c == 34:
            i = string_end(text, i, n)
            continue
        if c == 123 or c == 91:
            depth += 1
        elif c == 125 or c == 93:
            if depth == 0:
                return i if i > first else i + 1  # a brace that closes nothing is an entry of its own
            depth -= 1
        elif c == 44 and depth == 0:
            return i
        i += 1
    return n + 1


@compiled()
def _begins_event(text, i, length):  # type: ignore[no-untyped-def]
    """Whether the key of up to 5 bytes at i is one that events begin with: ph, name, cat, ts, pid or args."""
    key = np.int64(0)
    for k in range(length):
        key = key << 8 | np.int64(W.byte(text, i + k))
    return key in (_PH, _NAME, _CAT, _TS, _PID, _ARGS)


@compiled()
def next_event(text, i, n):  # type: ignore[no-untyped-def]
    """Returns the index from i on at which an object begins whose first key is one of an event; n + 1 where there is none."""
    while i < n:
        if W.byte(text, i) != 123:
            i += 1
            continue
        key = space(text, i + 1, n)
        if key < n and W.byte(text, key) == 34:
            length = 0
            while length < 5 and key + 1 + length < n and W.byte(text, key + 1 + length) != 34:
                length += 1
            colon = space(text, key + length + 2, n)
            if colon < n and W.byte(text, colon) == 58 and _begins_event(text, key + 1, length):
                return i
        i = max(key, i + 1)
    return n + 1


@compiled()
def passed(text, i, n, stopped, patience, damage):  # type: ignore[no-untyped-def]
    """Returns where to go on after the entry at i, which cannot be read as an event; i where more text is needed to tell.

    stopped: how far it was looked at. An entry that is no object ends at the comma or bracket of its level; a damaged object where the
    next event seems to start, which looks at the same bytes again: once the budget for that is spent, a sixteenth of them is passed
    over, so that the time grows with the text whatever is in it.
    """
    place = ENTRIES
    if W.byte(text, i) != 123:
        end = entry_end(text, i, n)
    else:
        place = UNREADABLE
        seen = min(stopped, n) - i
        budget = W.get64(damage, BUDGET) - seen
        W.put64(damage, BUDGET, budget)
        end = next_event(text, i + 1 + (seen >> 4 if budget < 0 else 0), n)
    if end > n:
        if n - i <= patience:
            return i
        end = n
    if W.get64(damage, place) == 0:
        W.put64(damage, place + 1, i)
    W.put64(damage, place, W.get64(damage, place) + 1)
    return end
