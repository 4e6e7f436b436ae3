"""Reads pickles of plain values without running anything that they hold.

A pickle is a program: it may name any function and call it. Here every opcode is looked at before a value is built (`walk`):
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
import numpy.typing as npt

from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.tables.compiled import compiled

# -- The compiled walk over a pickle's opcodes -----------------------------------------------------------------------
# It builds nothing and checks every length, position and depth. The stack of the pickle machine is kept as nesting depths only.
# A pickle that passes holds dicts, lists, tuples, texts, bytes, numbers and None.


# why it stopped
GOOD, CUT, REFUSED, DEEP, LARGE, MALFORMED, LONG_NUMBER, NO_MEMO, BAD_KEY = range(9)
LONGEST_NUMBER = 9
"""Bytes of a whole number: 64 bits and a sign."""
LONGEST_LINE = 64
"""Characters of a number in the forms of text."""
NEWEST = 5
"""Newest protocol that is read."""
MOST_MARKS = 131072
"""Marks that may be open within each other."""
OF_DICT, OF_LIST, OF_TUPLE, OF_TEXT, OF_NUMBER, OF_PAIR, OF_ITEM = 64, 56, 40, 56, 32, 50, 9
"""Returns the bytes of memory that a value takes, roughly."""

_CODES: Final = {op.name: ord(op.code) for op in pickletools.opcodes}
PROTO, POP, APPEND, SETITEM, TUPLE1, SETITEMS, APPENDS, DICT, DUP, FRAME = (
    _CODES[name] for name in ("PROTO", "POP", "APPEND", "SETITEM", "TUPLE1", "SETITEMS", "APPENDS", "DICT", "DUP", "FRAME")
)


def _by_code(values: dict[str, int]) -> npt.NDArray[np.uint8]:
    """Returns value of each opcode, 0 where none is given. values: names of opcodes with spaces between them -> value."""
    out = np.zeros(256, np.uint8)
    for names, value in values.items():
        out[[_CODES[name] for name in names.split()]] = value
    return out


LENGTH, LINE = 16, 255
FORM: Final = _by_code({
    "PROTO BININT1 BINGET BINPUT": 1,
    "BININT2": 2,
    "BININT LONG_BINGET LONG_BINPUT": 4,
    "BINFLOAT FRAME": 8,
    "SHORT_BINUNICODE SHORT_BINSTRING SHORT_BINBYTES LONG1": LENGTH + 1,
    "BINUNICODE BINSTRING BINBYTES LONG4": LENGTH + 4,
    "BINUNICODE8 BINBYTES8": LENGTH + 8,
    "INT LONG FLOAT STRING UNICODE GET PUT": LINE,
})  # fmt: skip
"""Size of each opcode's argument: its bytes; LENGTH plus the bytes of a length that precedes it; or LINE, up to a newline."""

PUSH, STORE, FETCH, MARK, FEW, MANY, DROP, HEADER, STOP = range(1, 10)
ACTION: Final = _by_code({
    "NONE NEWTRUE NEWFALSE BININT1 BININT2 BININT BINFLOAT LONG1 LONG4 INT LONG FLOAT": PUSH,
    "SHORT_BINUNICODE BINUNICODE BINUNICODE8 SHORT_BINSTRING BINSTRING SHORT_BINBYTES BINBYTES BINBYTES8 STRING UNICODE": PUSH,
    "BINPUT LONG_BINPUT PUT MEMOIZE": STORE,
    "BINGET LONG_BINGET GET": FETCH,
    "MARK": MARK,
    "APPEND SETITEM TUPLE1 TUPLE2 TUPLE3 DUP": FEW,
    "APPENDS SETITEMS TUPLE LIST DICT": MANY,
    "EMPTY_DICT EMPTY_LIST EMPTY_TUPLE": PUSH,
    "POP POP_MARK": DROP,
    "PROTO FRAME": HEADER,
    "STOP": STOP,
})  # fmt: skip
"""What each opcode does; 0 for those that are refused."""

CONSTANT, NUMBER, SEQUENCE, MAPPING, LONG, DECIMAL, TEXT, ESCAPED = range(8)
WHICH: Final = _by_code({
    "BININT1 BININT2 BININT BINFLOAT": NUMBER,
    "EMPTY_LIST EMPTY_TUPLE": SEQUENCE,
    "EMPTY_DICT": MAPPING,
    "LONG1 LONG4": LONG,
    "INT LONG FLOAT": DECIMAL,
    "SHORT_BINUNICODE BINUNICODE BINUNICODE8 SHORT_BINSTRING BINSTRING SHORT_BINBYTES BINBYTES BINBYTES8": TEXT,
    "STRING UNICODE": ESCAPED,
})  # fmt: skip
"""Which scalar or empty container an opcode pushes; CONSTANT is None, True and False."""
DEPTH: Final = _by_code({"EMPTY_DICT EMPTY_LIST EMPTY_TUPLE": 1})
"""Levels of nesting of what an opcode pushes."""
OF_KIND: Final = np.array([0, OF_NUMBER, OF_LIST, OF_DICT, OF_NUMBER + 8, OF_NUMBER + 8, OF_TEXT, OF_TEXT], np.int64)
"""Bytes of memory that each of them takes, roughly, without the characters of a text."""


@compiled()
def _number(data, at, width):  # type: ignore[no-untyped-def]
    """Returns the little-endian number of `width` bytes; at most 2**62."""
    out = np.int64(0)
    for k in range(width):
        byte = np.int64(data[at + width - 1 - k])
        if out >= np.int64(1) << 54:
            return np.int64(1) << 62
        out = (out << 8) | byte
    return out


@compiled()
def _line(data, at, n):  # type: ignore[no-untyped-def]
    """Returns the index of the newline from `at` on; n where there is none."""
    while at < n and data[at] != 10:
        at += 1
    return at


@compiled()
def _decimal(data, at, end):  # type: ignore[no-untyped-def]
    """Returns the decimal number of a line; -1 where it is none or has over ten digits."""
    if at >= end or end - at > 10:
        return np.int64(-1)
    out = np.int64(0)
    for k in range(at, end):
        if data[k] < 48 or data[k] > 57:
            return np.int64(-1)
        out = out * 10 + (np.int64(data[k]) - 48)
    return out


@compiled()
def _text_bytes(data, at, end):  # type: ignore[no-untyped-def]
    """Returns the bytes that a text takes in memory."""
    seen = np.uint8(0)
    for k in range(at, end):
        seen |= data[np.uint64(k)]  # not negative: without the test for it
    if seen >= 128:
        return 4 * (end - at)
    return end - at


@compiled()
def _grown(array):  # type: ignore[no-untyped-def]
    """Returns the array with as many zeros after it."""
    out = np.zeros(2 * len(array), array.dtype)
    out[: len(array)] = array
    return out


@compiled()
def _argument(data, at, form):  # type: ignore[no-untyped-def]
    """Returns (where the argument of an opcode begins, index after it); -1 twice where it is not all there."""
    n = len(data)
    if form < LENGTH:
        return (at, at + form) if n - at >= form else (-1, -1)
    if form == LINE:
        end = _line(data, at, n)
        return (at, end + 1) if end < n else (-1, -1)
    width = form - LENGTH
    if n - at < width:
        return -1, -1
    length = _number(data, at, width)
    return (at + width, at + width + length) if length <= n - at - width else (-1, -1)


@compiled()
def _pushed_bytes(data, op, argument, end):  # type: ignore[no-untyped-def]
    """Returns the bytes of memory that a scalar or an empty container takes; -1 for a number that is too long."""
    kind = WHICH[op]
    if kind < LONG:
        return OF_KIND[kind]
    if kind >= TEXT:
        out = OF_KIND[kind] + _text_bytes(data, argument, end)
        return out + 4 * (end - argument) if kind == ESCAPED else out  # escapes may name wide characters
    return np.int64(-1) if end - argument > (LONGEST_NUMBER if kind == LONG else LONGEST_LINE) else OF_KIND[kind]


@compiled()
def _slot(data, action, form, argument, end, put, above):  # type: ignore[no-untyped-def]
    """Returns the memo slot that an opcode fetches or fills, the next one where it has no argument; below 0: minus the reason why it
    cannot.

    put: slots that are filled. above: values above the innermost mark.
    """
    if form == 1:
        slot = np.int64(data[argument])
    elif form == LINE:
        slot = _decimal(data, argument, end - 1)
    else:
        slot = _number(data, argument, form) if form else np.int64(put)
    if slot < 0:
        return np.int64(-NO_MEMO)
    if action == STORE and above <= 0:
        return np.int64(-MALFORMED)
    return np.int64(-NO_MEMO) if slot >= put + (action == STORE) else slot


@compiled()
def _deepest(stack, low, high):  # type: ignore[no-untyped-def]
    """Returns the depth of the deepest of the values from `low` to `high`; 0 where there are none."""
    deep = np.int64(0)
    for k in range(low, high):
        deep = max(deep, stack[k])
    return deep


@compiled()
def _floor(marks, opened):  # type: ignore[no-untyped-def]
    """Returns the height of the stack at the innermost mark."""
    return marks[opened - 1] if opened > 0 else np.int64(0)


@compiled()
def _drop(op, size, marks, opened):  # type: ignore[no-untyped-def]
    """Returns (height of the stack, open marks) after POP or POP_MARK; height -1 where there is nothing to take off."""
    if op == POP and size > _floor(marks, opened):
        return size - 1, opened
    return (marks[opened - 1], opened - 1) if opened else (np.int64(-1), opened)


@compiled()
def _few(op, stack, size, floor):  # type: ignore[no-untyped-def]
    """Returns what `_many` returns, for opcodes without a mark: APPEND, SETITEM, TUPLE1 to TUPLE3, and DUP, which takes nothing off."""
    into = op in (APPEND, SETITEM)
    count = np.int64(op) - TUPLE1 + 1
    if into or op == DUP:
        count = np.int64(2 if op == SETITEM else 1)
    low = size - count - into
    if low < floor:
        return np.int64(-1), np.int64(0), np.int64(0)
    if op == SETITEM and stack[size - 2] > 0:
        return np.int64(-BAD_KEY), np.int64(0), np.int64(0)
    if op == DUP:
        return size, np.int64(stack[low]), np.int64(0)
    deep = _deepest(stack, low + into, size) + 1
    if not into:
        return low, deep, OF_TUPLE + 8 * count
    return low, max(deep, np.int64(stack[low])), np.int64(OF_ITEM if op == APPEND else OF_PAIR) - 1


@compiled()
def _many(op, stack, size, low, floor, opened):  # type: ignore[no-untyped-def]
    """Turn the values above a mark into a container, or put them into the one below the mark.

    low: height of the stack at the mark; floor: at the mark below it; opened: open marks below it, -1 where there was no mark. Returns
    (height of the stack without the values and their container, -1 where they do not fit; depth of the container, which is pushed next;
    bytes of memory besides that push).
    """
    items = size - low
    into = op in (APPENDS, SETITEMS)
    of_pairs = op in (SETITEMS, DICT)
    if opened < 0 or (of_pairs and items % 2) or low - into < floor:
        return np.int64(-1), np.int64(0), np.int64(0)
    if of_pairs:
        for k in range(low, size, 2):
            if stack[k] > 0:
                return np.int64(-BAD_KEY), np.int64(0), np.int64(0)
    deep = _deepest(stack, low, size) + 1
    cost = items // 2 * OF_PAIR if of_pairs else items * OF_ITEM
    if not into:
        return low, deep, cost + OF_DICT
    container = np.int64(stack[low - 1])
    return low - 1, max(container, deep) if items else container, cost - 1


@compiled()
def _header(data, op, argument, end):  # type: ignore[no-untyped-def]
    """Returns why a protocol, or a frame (its content follows as opcodes), cannot be read; GOOD where it can."""
    if op == PROTO:
        return REFUSED if data[argument] > NEWEST else GOOD
    return CUT if _number(data, argument, 8) > len(data) - end else GOOD


@compiled()
def _frame_end(data, op, argument, end):  # type: ignore[no-untyped-def]
    """Returns where the frame ends that an opcode begins; 0 where it begins none."""
    return end + _number(data, argument, 8) if op == FRAME else np.int64(0)


@compiled()
def _crosses(op, start, end, frame):  # type: ignore[no-untyped-def]
    """Whether an opcode reaches across the end of its frame, or begins another inside: a reader would go on elsewhere than the walk."""
    return start < frame and (end > frame or op == FRAME)


@compiled()
def _last(action, size, opened):  # type: ignore[no-untyped-def]
    """Returns GOOD for STOP with a value on the stack; else why it is wrong, or REFUSED for any other opcode."""
    if action != STOP:
        return REFUSED
    return MALFORMED if size < 1 or opened else GOOD


@compiled()
def _why_stopped(why, size):  # type: ignore[no-untyped-def]
    """Returns why the walk stops: `why` where it says so, too few values, a key that is no plain one, or a depth above the deepest."""
    if why != GOOD:
        return why
    if size == -BAD_KEY:
        return BAD_KEY
    return MALFORMED if size < 0 else DEEP


@compiled()
def walk(data, deepest, most):  # type: ignore[no-untyped-def]
    """Returns (why it stopped, where, opcode there, bytes of memory the values take). deepest: nesting; most: those bytes at most."""
    n = len(data)
    stack, size = np.zeros(1024, np.int16), np.int64(0)
    marks, opened = np.zeros(64, np.int64), 0
    memo, put = np.zeros(1024, np.int16), 0
    floor = np.int64(0)  # of the stack: the height at the innermost mark
    cost = np.int64(0)
    frame = np.int64(0)  # where the frame ends that opcodes are in; none reaches across
    i = 0
    while i < n:
        start = i
        op = data[i]
        argument, i = _argument(data, start + 1, FORM[op])
        if i < 0:
            return CUT, start, op, cost
        if _crosses(op, start, i, frame):
            return MALFORMED, start, op, cost
        value = np.int64(-1)  # depth to push; -1: nothing
        why = GOOD
        action = ACTION[op]
        if action == PUSH:
            value = np.int64(DEPTH[op])
            taken = _pushed_bytes(data, op, argument, i)
            if taken < 0:
                return LONG_NUMBER, start, op, cost
            cost += taken
        elif action in (FETCH, STORE):
            slot = _slot(data, action, FORM[op], argument, i, put, size - floor)
            if slot < 0:
                return -slot, start, op, cost
            if action == FETCH:
                value = np.int64(memo[slot])
            else:
                if slot == put:
                    if put == len(memo):
                        memo = _grown(memo)
                    put += 1
                    cost += 8
                memo[slot] = stack[size - 1]
        elif action == MARK:
            if opened == len(marks):
                marks = _grown(marks)
            marks[opened] = floor = size
            opened += 1
            cost += 8
            why = DEEP if opened > MOST_MARKS else GOOD
        elif action == FEW:
            size, value, taken = _few(op, stack, size, floor)
            cost += taken
        elif action == MANY:
            low, opened = floor, opened - 1
            floor = _floor(marks, opened)
            size, value, taken = _many(op, stack, size, low, floor, opened)
            cost += taken
        elif action == DROP:
            size, opened = _drop(op, size, marks, opened)
            floor = _floor(marks, opened)
        elif action == HEADER:
            why = _header(data, op, argument, i)
            frame = max(frame, _frame_end(data, op, argument, i))
        else:
            why = _last(action, size, opened)
            return why, i if why == GOOD else start, op, cost
        if why != GOOD or size < 0 or value > deepest:
            return _why_stopped(why, size), start, op, cost
        if value >= 0:
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
    BAD_KEY: ("the key of a dict at byte {at:,} is a list, tuple or dict", SAFE),
    NO_MEMO: ("it is damaged at byte {at:,}: it refers to a value that is not there", AGAIN),
}
_NAMES: Final = {code: name for name, code in _CODES.items()}
_NAMED, _CALLS, _ASKS = "names a python object", "calls a python object", "asks for a registered extension"
_WHAT: Final = {
    "GLOBAL": _NAMED, "STACK_GLOBAL": _NAMED, "INST": _CALLS, "OBJ": _CALLS, "REDUCE": "calls a function",
    "BUILD": "sets the state of an object", "NEWOBJ": "makes an object of a class", "NEWOBJ_EX": "makes an object of a class",
    "PERSID": "asks for a persistent object", "BINPERSID": "asks for a persistent object", "EXT1": _ASKS, "EXT2": _ASKS, "EXT4": _ASKS,
}  # fmt: skip


def load(data: bytes, *, file: str, what: str = "pickle", largest: int = LARGEST, most_memory: int = MOST_MEMORY) -> Plain:
    """Returns the value of a pickle (protocols 0 to 5) of plain values. BadInput where it is damaged, too large, or anything else.

    file: its name for messages; what: what it should be, for messages. Nothing in it is executed.
    """
    if len(data) > largest:
        raise BadInput(f"this {what} is larger than {largest >> 20:,} MiB", hint="write a shorter history", file=file)
    why, at, opcode, _ = walk(np.frombuffer(data, np.uint8), DEEPEST, most_memory)
    if why == REFUSED:
        name = _NAMES.get(int(opcode), f"0x{int(opcode):02x}")
        text = _WHAT.get(name, "holds what no plain value needs") if int(opcode) != 0x80 else "is of a newer protocol"
        raise BadInput(f"this {what} is refused, nothing in it was run: it {text} ({name} at byte {int(at):,})", hint=SAFE, file=file)
    if why != GOOD:
        words, hint = _WHY[int(why)]
        text = words.format(at=int(at), size=len(data), most=most_memory >> 20)
        raise BadInput(f"this {what} cannot be read: {text}", hint=hint, file=file)
    collects = gc.isenabled()
    gc.disable()  # millions of new dicts, none of them garbage: looking through them takes twice the time of the reading
    stream = io.BufferedReader(io.BytesIO(data), 1 << 17)  # type: ignore[arg-type]
    try:
        value: Plain = _Values(stream, encoding="utf-8", errors="replace").load()
    except BadInput as error:
        raise BadInput(error.message, hint=SAFE, file=file) from None
    except (pickle.UnpicklingError, ValueError, TypeError, EOFError, LookupError, OverflowError, AttributeError, MemoryError) as error:
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
