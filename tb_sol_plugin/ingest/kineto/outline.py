"""Takes in the text around the events of a trace, its header, block by block: long strings are cut, so that no header takes much memory."""

from __future__ import annotations

from typing import Final

import numpy as np

from tb_sol_plugin.tables.compiled import compiled

MORE, EVENTS, CLOSED = range(3)
"""Why `Outline.feed` stopped: at the end of the block, behind the bracket that opens `traceEvents`, or behind the last brace."""
LONGEST: Final = 1 << 16
"""Bytes of a string that are kept."""
_DEPTH, _QUOTED, _KEPT, _ESCAPE, _PAIR, _MATCHED, _AFTER, _CUT, _SOUGHT = range(9)
_NAME: Final = np.frombuffer(b"traceEvents", np.uint8)
_NO_KEY, _KEY, _COLON = range(3)


@compiled()
def _follow_escape(c, state):  # type: ignore[no-untyped-def]
    """Sets what of an escape is still to come behind byte c, and whether the half of a pair stands before it."""
    if state[_ESCAPE] == 0:
        state[_ESCAPE] = 1 if c == 92 else 0
        state[_PAIR] = 0 if c != 92 and state[_PAIR] == 2 else state[_PAIR]
    elif state[_ESCAPE] == 1:
        state[_ESCAPE] = 5 if c == 117 else 0
        state[_PAIR] = 0
    else:  # the digits behind backslash and u: 5 to 2; the first half of a pair begins with D8 to DB
        if state[_ESCAPE] == 5:
            state[_PAIR] = 1 if c == 68 or c == 100 else 0
        elif state[_ESCAPE] == 4 and state[_PAIR] == 1:
            state[_PAIR] = 2 if c == 56 or c == 57 or (c | 32) == 97 or (c | 32) == 98 else 0
        state[_ESCAPE] = 0 if state[_ESCAPE] == 2 else state[_ESCAPE] - 1


@compiled()
def _in_string(c, state, longest):  # type: ignore[no-untyped-def]
    """Returns whether byte c of a string is kept; `state` follows its escapes, so that none is cut in two."""
    boundary = state[_ESCAPE] == 0 and (c & 0xC0) != 0x80 and state[_PAIR] < 2
    if c == 34 and state[_ESCAPE] == 0:
        state[_QUOTED] = 0
        state[_AFTER] = _KEY if state[_MATCHED] == len(_NAME) and state[_DEPTH] == 1 else _NO_KEY
        return True
    if state[_KEPT] < 0 or (state[_KEPT] >= longest and boundary):
        state[_CUT] += state[_KEPT] >= 0
        state[_KEPT] = -1
    else:
        state[_KEPT] += 1
    if state[_MATCHED] >= 0:
        place = state[_MATCHED]
        state[_MATCHED] = place + 1 if place < len(_NAME) and c == _NAME[place] else -1
    _follow_escape(c, state)
    return state[_KEPT] >= 0


@compiled()
def _take(text, out, state, longest):  # type: ignore[no-untyped-def]
    """Returns (why it stopped, bytes read, bytes kept in `out`)."""
    kept = 0
    for i in range(len(text)):
        c = text[i]
        if state[_QUOTED]:
            if _in_string(c, state, longest):
                out[kept] = c
                kept += 1
            continue
        after, state[_AFTER] = state[_AFTER], _NO_KEY
        if c == 34:
            state[_QUOTED], state[_KEPT], state[_ESCAPE], state[_PAIR] = 1, 0, 0, 0
            state[_MATCHED] = 0 if state[_SOUGHT] else -1
        elif c == 123 or c == 91:
            if c == 91 and after == _COLON and state[_DEPTH] == 1:
                return EVENTS, i + 1, kept
            state[_DEPTH] += 1
        elif c == 125 or c == 93:
            state[_DEPTH] -= 1
            if state[_DEPTH] == 0:
                return CLOSED, i + 1, kept
        elif c <= 32:
            state[_AFTER] = after
        elif c == 58 and after == _KEY:
            state[_AFTER] = _COLON
        out[kept] = c
        kept += 1
    return MORE, len(text), kept


class Outline:
    """The text around the events. Its time and memory grow linearly with what is fed.

    depth: brackets that are open ahead of it. events: whether the list of `traceEvents` ends it.

    `text()` is what was kept, without the bracket or brace that ended it; `cut` counts the strings that were longer than `LONGEST`.
    """

    def __init__(self, depth: int, *, events: bool) -> None:
        self._state = np.zeros(9, np.int64)
        self._state[_DEPTH], self._state[_SOUGHT] = depth, events
        self._pieces: list[bytes] = []
        self.size = 0

    def feed(self, block: bytes) -> tuple[int, int]:
        """Take in a block; returns (why it stopped, bytes of the block that were read)."""
        out = np.empty(len(block), np.uint8)
        why, read, kept = _take(np.frombuffer(block, np.uint8), out, self._state, LONGEST)
        self._pieces.append(out[:kept].tobytes())
        self.size += kept
        return why, read

    @property
    def cut(self) -> int:
        """Strings that were cut."""
        return int(self._state[_CUT])

    def text(self) -> bytes:
        return b"".join(self._pieces)
