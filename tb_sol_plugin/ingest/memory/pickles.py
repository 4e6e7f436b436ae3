"""Pickles of plain values, read without running anything that they hold.

A pickle is a program: it may name any function and call it. Here every opcode is looked at before a value is built (`_pickle_check`):
what names a python object, calls one, asks for a persistent object or for a registered extension is refused, and so is what would
take too much memory, nest too deep, or name a length that the file does not have. What is left holds dicts, lists, tuples, texts,
bytes, numbers, booleans and None. It is then built by an unpickler that refuses every name as well, should the walk ever be wrong.
"""

from __future__ import annotations

import gc
import io
import pickle
import pickletools
from typing import Final, NoReturn, TypeAlias

import numpy as np
from numba import njit

from tb_sol_plugin.errors import BadInput

# -- The compiled walk over a pickle's opcodes -----------------------------------------------------------------------
# nothing is built, every length, place and depth is checked before anything is.
#
# It keeps the machine's stack as nesting depths only. What passes holds dicts, lists, tuples, texts, bytes, numbers and None.


# why it stopped
GOOD, CUT, REFUSED, DEEP, LARGE, MALFORMED, LONG_NUMBER, NO_MEMO, OVERFULL = range(9)
LONGEST_NUMBER = 9
"""Bytes of a whole number: 64 bits and a sign."""
LONGEST_LINE = 64
"""Characters of a number in the forms of text."""
OF_DICT, OF_LIST, OF_TUPLE, OF_TEXT, OF_NUMBER, OF_PAIR, OF_ITEM = 64, 56, 40, 56, 32, 50, 9
"""Bytes of memory that a value takes, roughly."""


@njit(cache=True, nogil=True)
def _number(data, at, width):  # type: ignore[no-untyped-def]
    """The little-endian number of `width` bytes; at most 2**62."""
    out = np.int64(0)
    for k in range(width):
        byte = np.int64(data[at + width - 1 - k])
        if out >= np.int64(1) << 54:
            return np.int64(1) << 62
        out = (out << 8) | byte
    return out


@njit(cache=True, nogil=True)
def _line(data, at, n):  # type: ignore[no-untyped-def]
    """Index of the newline from `at` on; n where there is none."""
    while at < n and data[at] != 10:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _decimal(data, at, end):  # type: ignore[no-untyped-def]
    """The decimal number of a line; -1 where it is none or has over ten digits."""
    if at >= end or end - at > 10:
        return np.int64(-1)
    out = np.int64(0)
    for k in range(at, end):
        if data[k] < 48 or data[k] > 57:
            return np.int64(-1)
        out = out * 10 + (np.int64(data[k]) - 48)
    return out


@njit(cache=True, nogil=True)
def _text_bytes(data, at, end):  # type: ignore[no-untyped-def]
    """Bytes that a text takes in memory."""
    for k in range(at, end):
        if data[k] >= 128:
            return 4 * (end - at)
    return end - at


@njit(cache=True, nogil=True)
def _grown(array):  # type: ignore[no-untyped-def]
    out = np.zeros(2 * len(array), array.dtype)
    out[: len(array)] = array
    return out


@njit(cache=True, nogil=True)
def walk(data, deepest, most):  # type: ignore[no-untyped-def]
    """(why it stopped, where, opcode there, bytes of memory the values take). deepest: nesting; most: those bytes at most."""
    n = len(data)
    stack = np.zeros(1024, np.int16)
    marks = np.zeros(64, np.int64)
    memo = np.zeros(1024, np.int16)
    size, open_marks, put = 0, 0, 0
    floor = 0  # of the stack: the height at the innermost mark
    cost = np.int64(0)
    i = 0
    while i < n:
        start = i
        op = data[i]
        i += 1
        value = -1  # depth to push; -1: nothing
        store = np.int64(-1)  # memo slot to fill
        fetch = np.int64(-1)  # memo slot to push
        pops = 0  # values that the opcode takes off
        # -- sizes of arguments
        fixed = -1
        width = 0  # of a length that precedes its text
        line = False
        if op == 0x80 or op == 75 or op == 104 or op == 113:  # PROTO, BININT1, BINGET, BINPUT
            fixed = 1
        elif op == 77:  # BININT2
            fixed = 2
        elif op == 74 or op == 106 or op == 114:  # BININT, LONG_BINGET, LONG_BINPUT
            fixed = 4
        elif op == 71 or op == 0x95:  # BINFLOAT, FRAME
            fixed = 8
        elif op == 0x8C or op == 85 or op == 67 or op == 0x8A:  # SHORT_BINUNICODE, SHORT_BINSTRING, SHORT_BINBYTES, LONG1
            width = 1
        elif op == 88 or op == 84 or op == 66 or op == 0x8B:  # BINUNICODE, BINSTRING, BINBYTES, LONG4
            width = 4
        elif op == 0x8D or op == 0x8E:  # BINUNICODE8, BINBYTES8
            width = 8
        elif op == 73 or op == 76 or op == 70 or op == 83 or op == 86 or op == 103 or op == 112:  # I L F S V g p
            line = True
        argument = i
        if fixed > 0:
            if n - i < fixed:
                return CUT, start, op, cost
            i += fixed
        elif width > 0:
            if n - i < width:
                return CUT, start, op, cost
            length = _number(data, i, width)
            if length > n - i - width:
                return CUT, start, op, cost
            argument = i + width
            i = argument + length
        elif line:
            end = _line(data, i, n)
            if end >= n:
                return CUT, start, op, cost
            i = end + 1
        # -- what it does
        if op == 0x80:
            if data[argument] > 5:
                return REFUSED, start, op, cost
        elif op == 0x95:  # a frame: its length must fit, its content follows as opcodes
            if _number(data, argument, 8) > n - i:
                return CUT, start, op, cost
        elif op == 40:  # MARK
            if open_marks == len(marks):
                if open_marks > 65536:
                    return DEEP, start, op, cost
                marks = _grown(marks)
            marks[open_marks] = size
            open_marks += 1
            floor = size
            cost += 8
        elif op == 46:  # STOP
            if size < 1 or open_marks:
                return MALFORMED, start, op, cost
            return GOOD, i, op, cost
        elif op == 78 or op == 0x88 or op == 0x89:  # None, True, False
            value = 0
        elif op == 75 or op == 77 or op == 74 or op == 71:
            value = 0
            cost += OF_NUMBER
        elif op == 0x8A or op == 0x8B:
            if i - argument > LONGEST_NUMBER:
                return LONG_NUMBER, start, op, cost
            value = 0
            cost += OF_NUMBER + 8
        elif op == 73 or op == 76 or op == 70:
            if i - argument > LONGEST_LINE:
                return LONG_NUMBER, start, op, cost
            value = 0
            cost += OF_NUMBER + 8
        elif op == 0x8C or op == 88 or op == 0x8D or op == 85 or op == 84 or op == 67 or op == 66 or op == 0x8E or op == 83 or op == 86:
            value = 0
            cost += OF_TEXT + _text_bytes(data, argument, i)
            if op == 86 or op == 83:  # escapes may name wide characters
                cost += 4 * (i - argument)
        elif op == 125 or op == 93 or op == 41:  # {} [] ()
            value = 1
            cost += OF_DICT if op == 125 else OF_LIST
        elif op == 104:
            fetch = np.int64(data[argument])
        elif op == 106:
            fetch = _number(data, argument, 4)
        elif op == 103:
            fetch = _decimal(data, argument, i - 1)
            if fetch < 0:
                return NO_MEMO, start, op, cost
        elif op == 113:
            store = np.int64(data[argument])
        elif op == 114:
            store = _number(data, argument, 4)
        elif op == 112:
            store = _decimal(data, argument, i - 1)
            if store < 0:
                return NO_MEMO, start, op, cost
        elif op == 0x94:  # MEMOIZE
            store = np.int64(put)
        elif op == 48:  # POP: a value, or the mark above it
            if size > floor:
                size -= 1
            elif open_marks:
                open_marks -= 1
                floor = marks[open_marks - 1] if open_marks else 0
            else:
                return MALFORMED, start, op, cost
        elif op == 49:  # POP_MARK
            if not open_marks:
                return MALFORMED, start, op, cost
            open_marks -= 1
            size = marks[open_marks]
            floor = marks[open_marks - 1] if open_marks else 0
        elif op == 50:  # DUP
            if size <= floor:
                return MALFORMED, start, op, cost
            value = stack[size - 1]
        elif op == 97 or op == 115:  # APPEND, SETITEM
            pops = 1 if op == 97 else 2
            if size - floor <= pops:
                return MALFORMED, start, op, cost
            deep = 0
            for k in range(pops):
                deep = max(deep, stack[size - 1 - k])
            size -= pops
            stack[size - 1] = max(stack[size - 1], deep + 1)
            if stack[size - 1] > deepest:
                return DEEP, start, op, cost
            cost += OF_ITEM if op == 97 else OF_PAIR
        elif 0x85 <= op <= 0x87:  # TUPLE1, TUPLE2, TUPLE3
            pops = op - 0x84
            if size - floor < pops:
                return MALFORMED, start, op, cost
            deep = 0
            for k in range(pops):
                deep = max(deep, stack[size - 1 - k])
            size -= pops
            value = deep + 1
            cost += OF_TUPLE + 8 * pops
        elif op == 101 or op == 117 or op == 116 or op == 108 or op == 100:  # APPENDS, SETITEMS, TUPLE, LIST, DICT
            if not open_marks:
                return MALFORMED, start, op, cost
            open_marks -= 1
            low = marks[open_marks]
            floor = marks[open_marks - 1] if open_marks else 0
            items = size - low
            deep = 0
            for k in range(low, size):
                deep = max(deep, stack[k])
            size = low
            if (op == 117 or op == 100) and items % 2:
                return MALFORMED, start, op, cost
            cost += items * OF_ITEM if op != 117 and op != 100 else items // 2 * OF_PAIR
            if op == 101 or op == 117:
                if size <= floor:
                    return MALFORMED, start, op, cost
                if items:
                    stack[size - 1] = max(stack[size - 1], deep + 1)
                    if stack[size - 1] > deepest:
                        return DEEP, start, op, cost
            else:
                value = deep + 1
                cost += OF_DICT
        else:
            return REFUSED, start, op, cost
        # -- memo and stack
        if store >= 0:
            if size <= floor:
                return MALFORMED, start, op, cost
            if store > put:
                return NO_MEMO, start, op, cost
            if store == put:
                put += 1
                cost += 8
                if put > len(memo):
                    memo = _grown(memo)
            memo[store] = stack[size - 1]
        if fetch >= 0:
            if fetch >= put:
                return NO_MEMO, start, op, cost
            value = memo[fetch]
        if value >= 0:
            if value > deepest:
                return DEEP, start, op, cost
            if size == len(stack):
                stack = _grown(stack)
            stack[size] = value
            size += 1
            cost += 1
        if cost > most:
            return LARGE, start, op, cost
    return CUT, n, np.uint8(0), cost


Plain: TypeAlias = "dict[object, Plain] | list[Plain] | tuple[Plain, ...] | str | bytes | int | float | bool | None"
LARGEST: Final = 1 << 30
"""Bytes of a pickle that are taken in."""
MOST_MEMORY: Final = 6 << 30
"""Bytes that its values may take, as estimated."""
DEEPEST: Final = 32
"""Levels of lists, dicts and tuples within each other."""
SAFE: Final = "open only what you wrote yourself: a pickle from elsewhere can run code in other tools"
AGAIN: Final = "copy the file again, or write it anew"
_WHY: Final = {
    CUT: ("the file ends too early, after {size:,} bytes", AGAIN),
    DEEP: (f"values nest deeper than {DEEPEST} levels at byte {{at:,}}", SAFE),
    LARGE: ("its values would take more than {most:,} MiB of memory", "write a shorter history"),
    MALFORMED: ("it is damaged at byte {at:,}", AGAIN),
    LONG_NUMBER: ("a number of more than 64 bits at byte {at:,}", SAFE),
    NO_MEMO: ("it is damaged at byte {at:,}: it refers to a value that is not there", AGAIN),
}
_NAMES: Final = {ord(op.code): op.name for op in pickletools.opcodes}
_NAMED, _CALLS, _ASKS = "names a python object", "calls a python object", "asks for a registered extension"
_WHAT: Final = {
    "GLOBAL": _NAMED, "STACK_GLOBAL": _NAMED, "INST": _CALLS, "OBJ": _CALLS, "REDUCE": "calls a function",
    "BUILD": "sets the state of an object", "NEWOBJ": "makes an object of a class", "NEWOBJ_EX": "makes an object of a class",
    "PERSID": "asks for a persistent object", "BINPERSID": "asks for a persistent object", "EXT1": _ASKS, "EXT2": _ASKS, "EXT4": _ASKS,
}  # fmt: skip


def load(data: bytes, *, file: str, what: str = "pickle", largest: int = LARGEST, most_memory: int = MOST_MEMORY) -> Plain:
    """The value of a pickle (protocols 0 to 5) of plain values. BadInput where it is damaged, too large, or anything else.

    file: its name for messages; what: what it should be, for messages. Nothing in it is executed.
    """
    if len(data) > largest:
        raise BadInput(f"this {what} is larger than {largest >> 20:,} MiB", hint="write a shorter history", file=file)
    why, at, opcode, _ = walk(np.frombuffer(data, np.uint8), DEEPEST, most_memory)
    if why == REFUSED:
        name = _NAMES.get(int(opcode), f"0x{int(opcode):02x}")
        said = _WHAT.get(name, "holds what no plain value needs") if int(opcode) != 0x80 else "is of a newer protocol"
        raise BadInput(f"this {what} is refused, nothing in it was run: it {said} ({name} at byte {int(at):,})", hint=SAFE, file=file)
    if why != GOOD:
        words, hint = _WHY[int(why)]
        said = words.format(at=int(at), size=len(data), most=most_memory >> 20)
        raise BadInput(f"this {what} cannot be read: {said}", hint=hint, file=file)
    collects = gc.isenabled()
    gc.disable()  # millions of new dicts, none of them garbage: looking through them takes twice the time of the reading
    stream = io.BufferedReader(io.BytesIO(data), 1 << 17)  # type: ignore[arg-type]
    try:
        value: Plain = _Values(stream, encoding="utf-8", errors="replace").load()
    except BadInput as error:
        raise BadInput(error.message, hint=SAFE, file=file) from None
    except (pickle.UnpicklingError, ValueError, TypeError, EOFError, IndexError, KeyError, OverflowError, AttributeError) as error:
        raise BadInput(f"this {what} cannot be read: it is damaged ({type(error).__name__})", hint=AGAIN, file=file) from None
    finally:
        if collects:
            gc.enable()
    return value


class _Values(pickle.Unpickler):
    """The second lock: no name is looked up and no persistent object is given."""

    def find_class(self, module: str, name: str) -> NoReturn:  # type: ignore[override]
        raise BadInput("this file is refused, nothing in it was run: it names a python object")

    def persistent_load(self, pid: object) -> NoReturn:
        raise BadInput("this file is refused, nothing in it was run: it asks for a persistent object")
