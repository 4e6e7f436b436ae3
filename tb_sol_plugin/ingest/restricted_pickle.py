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

from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.ingest import _pickle_check as check

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
    check.CUT: ("the file ends too early, after {size:,} bytes", AGAIN),
    check.DEEP: (f"values nest deeper than {DEEPEST} levels at byte {{at:,}}", SAFE),
    check.LARGE: ("its values would take more than {most:,} MiB of memory", "write a shorter history"),
    check.MALFORMED: ("it is damaged at byte {at:,}", AGAIN),
    check.LONG_NUMBER: ("a number of more than 64 bits at byte {at:,}", SAFE),
    check.NO_MEMO: ("it is damaged at byte {at:,}: it refers to a value that is not there", AGAIN),
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
    why, at, opcode, _ = check.walk(np.frombuffer(data, np.uint8), DEEPEST, most_memory)
    if why == check.REFUSED:
        name = _NAMES.get(int(opcode), f"0x{int(opcode):02x}")
        said = _WHAT.get(name, "holds what no plain value needs") if int(opcode) != 0x80 else "is of a newer protocol"
        raise BadInput(f"this {what} is refused, nothing in it was run: it {said} ({name} at byte {int(at):,})", hint=SAFE, file=file)
    if why != check.GOOD:
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
