"""Seals what the cache keeps: a checksum over the bytes and over the name under which they belong, checked before they are parsed.

A checksum (XXH3, 128 bits, about 15 GB/s) finds flipped bits, cut files and files that stand in another's place. It is no
signature: who may write into the cache directory may also write a checksum.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import xxhash

from tb_sol_plugin.redact import text

if TYPE_CHECKING:
    from typing_extensions import Buffer

log = logging.getLogger("tb_sol_plugin")

_HEX: Final = 32


def checksum(body: Buffer, name: str) -> str:
    """Returns the checksum of bytes under a name, 32 hexadecimal digits. Linear in the bytes."""
    return started(name, body).hexdigest()


def started(name: str, body: Buffer = b"") -> xxhash.xxh3_128:
    """Returns a checksum to which further bytes can be added: of the same bytes and name it is `checksum`."""
    state = xxhash.xxh3_128(name.encode("utf-8", "surrogateescape") + b"\0")
    state.update(body)
    return state


def first_line(state: xxhash.xxh3_128) -> bytes:
    """Returns what stands before bytes of which a checksum was made."""
    return state.hexdigest().encode() + b"\n"


def length() -> int:
    """Returns how long that is."""
    return _HEX + 1


def sealed(body: bytes, name: str) -> bytes:
    """Returns bytes with their checksum as a first line."""
    return first_line(started(name, body)) + body


def unsealed(raw: bytes, name: str) -> bytes | None:
    """Returns what was sealed under a name; None where it is not that any more."""
    body = raw[_HEX + 1 :]
    return body if raw[: _HEX + 1] == checksum(body, name).encode() + b"\n" else None


def report_damage(what: str, why: str) -> None:
    """Say in the server's log that something in the cache was damaged and is made again. what: name in the cache, no path."""
    log.warning("damaged in the cache, made again: %s (%s)", what, text(why)[:200])
