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


def compressed(values: npt.ArrayLike, kind: str) -> bytes:
    """Returns numbers as bytes, in the numpy type that `kind` names."""
    return zlib.compress(np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<")).tobytes(), LEVEL)


def expanded(body: bytes, kind: str, count: int) -> npt.NDArray[Any]:
    """Returns the numbers again; they cannot be written to. ValueError where the bytes are not `count` numbers of this type."""
    dtype = np.dtype(kind).newbyteorder("<")
    size = count * dtype.itemsize
    try:
        plain = zlib.decompressobj().decompress(body, size + 1)
    except zlib.error as error:
        raise ValueError(f"damaged bytes: {error}") from None
    if len(plain) != size:
        raise ValueError(f"not {count} values")
    return np.frombuffer(plain, dtype)


def pack(columns: Mapping[str, npt.ArrayLike], types: Mapping[str, str]) -> Packed:
    """Returns columns as bytes, each in the numpy type that `types` names. ValueError where their lengths differ."""
    made = {name: np.asarray(columns[name]) for name in types}
    lengths = {len(column) for column in made.values()}
    if len(lengths) > 1:
        raise ValueError(f"columns of different lengths: {sorted(lengths)}")
    return Packed(lengths.pop() if lengths else 0, {name: compressed(made[name], kind) for name, kind in types.items()})


def unpack(packed: Packed, types: Mapping[str, str]) -> Columns:
    """Returns the columns again; they cannot be written to. ValueError where the bytes are not what `pack` made of these types."""
    out: Columns = {}
    for name, kind in types.items():
        try:
            out[name] = expanded(packed.columns.get(name, b""), kind, packed.count)
        except ValueError as error:
            raise ValueError(f"column {name!r}: {error}") from None
    return out
