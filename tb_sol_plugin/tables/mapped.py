"""Writes values with the arrays in them as one file, and reads it again with its arrays mapped: what nobody looks at is not read.

    8 bytes   length of the head, little-endian
    head      MessagePack: [values, [[type, shape, place] of each array]]
    arrays    each from a place that is a multiple of 64 on
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

ALIGNED: Final = 64
_ARRAY: Final = 1
_LENGTH: Final = struct.Struct("<Q")


def written(values: Any) -> list[bytes | memoryview]:
    """Returns the pieces of a file, in order. values: dicts, lists, texts, numbers, None and arrays of numbers."""
    arrays: list[npt.NDArray[Any]] = []

    def numbered(value: object) -> msgspec.msgpack.Ext:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"cannot write {type(value).__name__}")
        arrays.append(np.ascontiguousarray(value, value.dtype.newbyteorder("<")))
        return msgspec.msgpack.Ext(_ARRAY, str(len(arrays) - 1).encode())

    tree = msgspec.Raw(msgspec.msgpack.encode(values, enc_hook=numbered))
    table, place = [], 0
    for one in arrays:
        table.append([one.dtype.str, list(one.shape), place])
        place = -(-(place + one.nbytes) // ALIGNED) * ALIGNED
    head = msgspec.msgpack.encode([tree, table])
    pieces: list[bytes | memoryview] = [_LENGTH.pack(len(head)), head, b"\0" * (-(_LENGTH.size + len(head)) % ALIGNED)]
    for one in arrays:
        pieces += [one.reshape(-1).view(np.uint8).data, b"\0" * (-one.nbytes % ALIGNED)]
    return pieces


def read(body: memoryview) -> Any:
    """Returns the values again; their arrays lie in the body and cannot be written to. ValueError where it is not what was written."""
    try:
        (size,) = _LENGTH.unpack_from(body)
        head = msgspec.msgpack.decode(body[_LENGTH.size : _LENGTH.size + size], type=tuple[msgspec.Raw, list[tuple[str, list[int], int]]])
        first = -(-(_LENGTH.size + size) // ALIGNED) * ALIGNED
        arrays = []
        for kind, shape, place in head[1]:
            count = int(np.prod(shape, dtype=np.int64))
            arrays.append(np.frombuffer(body, np.dtype(kind), count, first + place).reshape(shape))
        return msgspec.msgpack.decode(head[0], ext_hook=lambda _, number: arrays[int(bytes(number))])
    except (struct.error, msgspec.MsgspecError, IndexError, TypeError) as error:
        raise ValueError(f"not a file of values: {error}") from None
