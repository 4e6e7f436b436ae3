"""Packs columns into bytes and reads them again: small enough that those of a thousand ranks fit into memory."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

Columns = dict[str, npt.NDArray[Any]]
"""Columns of one length, by name."""
LEVEL: Final = 1
"""Of zlib: most of what it saves for a small part of the time."""


class Packed(msgspec.Struct, frozen=True):
    """Columns as bytes. count: rows."""

    count: int
    columns: dict[str, bytes]


def pack(columns: Mapping[str, npt.ArrayLike], types: Mapping[str, str]) -> Packed:
    """Returns columns as bytes, each in the numpy type that `types` names. ValueError where their lengths differ."""
    made = {name: np.ascontiguousarray(columns[name], np.dtype(kind).newbyteorder("<")) for name, kind in types.items()}
    lengths = {len(column) for column in made.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    return Packed(lengths.pop() if lengths else 0, {name: zlib.compress(column.tobytes(), LEVEL) for name, column in made.items()})


def unpack(packed: Packed, types: Mapping[str, str]) -> Columns:
    """Returns the columns again; they cannot be written to. ValueError where the bytes are not what `pack` made of these types."""
    out: Columns = {}
    for name, kind in types.items():
        dtype = np.dtype(kind).newbyteorder("<")
        size = packed.count * dtype.itemsize
        body = zlib.decompressobj().decompress(packed.columns.get(name, b""), size + 1)
        if len(body) != size:
            raise ValueError(f"column {name!r} holds no {packed.count} values")
        out[name] = np.frombuffer(body, dtype)
    return out
