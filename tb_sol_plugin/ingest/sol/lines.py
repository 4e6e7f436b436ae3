"""A stream of bytes to its lines, whatever their length, with bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

LONGEST: Final = 64 << 20
"""Bytes of a line; longer ones are passed over."""


class Line(NamedTuple):
    """number: from 1. ended: a line feed stood behind it. text: without line feed, b"" for a line that is too long."""

    number: int
    text: bytes
    ended: bool
    length: int


def lines(blocks: Iterable[bytes], longest: int = LONGEST) -> Iterator[Line]:
    """Lines that hold anything, in order; the last one may be unended."""
    number, length, skipped = 0, 0, False
    held: list[bytes] = []
    for block in blocks:
        start = 0
        while (stop := block.find(b"\n", start)) >= 0:
            number += 1
            length += stop - start
            text = b"" if length > longest else b"".join((*held, block[start:stop])).strip()
            if text or length > longest:
                yield Line(number, text, True, length)
            held, length, skipped, start = [], 0, False, stop + 1
        length += len(block) - start
        skipped = skipped or length > longest
        if skipped:
            held = []
        elif start < len(block):
            held.append(block[start:])
    text = b"".join(held).strip()
    if text or skipped:
        yield Line(number + 1, b"" if skipped else text, False, length)
