"""Packed records back to the lines that they hold. What is damaged gives the lines before the damage; what is too large gives nothing."""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator
from typing import Final

from tb_sol_plugin import format as F
from tb_sol_plugin.ingest.health import Health

MOST_TEXT: Final = 4 << 30
"""Bytes of text that the packed records of one recording may hold in all."""
_PIECE: Final = 4096
"""Bytes of text that are unpacked at a time: so much before a damaged place may be lost."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]*={0,2}")


class Unpacker:
    """Unpacks the packed records of one recording, within bounds.

    most: bytes of text of all of them; those beyond are passed over, and counted.
    """

    def __init__(self, health: Health, *, most: int = MOST_TEXT) -> None:
        self._health, self._left = health, most

    def lines(self, data: str, declared: float | None, number: int) -> Iterator[bytes]:
        """The lines of one record, without line feeds. declared: how many bytes of text it says it holds. number: of its line."""
        health, where = self._health, f"line {number}"
        text, whole = _inflated(_bytes(data), min(F.PACKED_BYTES, self._left))
        if text is None:
            health.add("packed record that holds too much", 1, where)
            return
        self._left -= len(text)
        if not whole or (declared is not None and declared != len(text)):
            health.add("packed record that is damaged", 1, f"{where}: {len(text):,} of {declared or 0:,.0f} bytes")
        end = len(text) if whole and text.endswith(b"\n") else text.rfind(b"\n") + 1
        for line in text[:end].split(b"\n"):
            if line.strip():
                yield line


def _bytes(data: str) -> bytes:
    """What a text in base64 stands for, up to the first character that cannot be in one."""
    good = _BASE64.match(data)
    length = good.end() if good is not None else 0
    return base64.b64decode(data[: length - length % 4] if length < len(data) else data[: len(data) - len(data) % 4])


def _inflated(raw: bytes, most: int) -> tuple[bytes | None, bool]:
    """(what the compressed bytes hold, up to where they are damaged; None where that is more than `most` bytes, whether all is there)."""
    stream, out, size = zlib.decompressobj(), [], 0
    try:
        while not stream.eof:
            piece = stream.decompress(raw, _PIECE)
            raw = stream.unconsumed_tail
            size += len(piece)
            if size > most:
                return None, False
            out.append(piece)
            if not piece and not raw:
                break
    except zlib.error:
        return b"".join(out), False
    return b"".join(out), stream.eof
