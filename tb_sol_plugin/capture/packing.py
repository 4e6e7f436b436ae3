"""Makes large groups of records small: whole lines, compressed, as the data of a `packed` record (see `tb_sol_plugin.format`)."""

from __future__ import annotations

import binascii
import zlib
from collections.abc import Iterable, Iterator
from typing import Final

from tb_sol_plugin import format as F

LEAST: Final = 4096
"""Bytes below which a group stays as it is: plain lines can be read with any tool."""
LEVEL: Final = 1
"""Of compression. The usual one takes three times as long, between two iterations of a training loop, for a sixth less bytes."""


def packed(lines: Iterable[bytes]) -> list[bytes]:
    """The same lines in as few bytes as may be: as they are, or in packed records of at most `format.PACKED_BYTES` of text each."""
    given = list(lines)
    if sum(map(len, given)) < LEAST:
        return given
    return [line for some in _portions(given) for line in (some if len(some) == 1 and len(some[0]) > F.PACKED_BYTES else [_record(some)])]


def _portions(lines: list[bytes]) -> Iterator[list[bytes]]:
    """Runs of lines that fit into one record; a line that fits into none stands alone."""
    some: list[bytes] = []
    size = 0
    for line in lines:
        if some and size + len(line) > F.PACKED_BYTES:
            yield some
            some, size = [], 0
        some.append(line)
        size += len(line)
    if some:
        yield some


def _record(lines: list[bytes]) -> bytes:
    text = b"".join(lines)
    data = binascii.b2a_base64(zlib.compress(text, LEVEL), newline=False).decode()
    return F.encode({"kind": "packed", "bytes": len(text), "data": data})
