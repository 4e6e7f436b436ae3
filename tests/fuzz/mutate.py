"""Changes bytes at random: flips, cuts, repeats, odd numbers and words in the place of good ones, pieces of other inputs."""

from __future__ import annotations

import random
import re
from typing import Final

ODD: Final = (
    b"0", b"-1", b"NaN", b"-Infinity", b"null", b"true", b'""', b"[]", b"{}", b"1e400", b"1e-400", b"9223372036854775807", b"9223372036854775808",
    b"-9223372036854775809", b"18446744073709551616", b"1e184", b"0.1234567890123456789", b'"\\ud800"', b'"\xff"', b'"\\u0000"', b"[[[[[[[[[[",
    b"4611686018427387904", b"1700000000000000", b'"' + b"a" * 300 + b'"', b"\x80\x04", b"\xff\xff\xff\x7f", b"\x00" * 8, b"-0.0", b"1E5", b'"7"',
)  # fmt: skip
_NUMBER: Final = re.compile(rb"-?\d+(?:\.\d+)?")
_TEXT: Final = re.compile(rb'"[^"\\]{0,40}"')
LONGEST: Final = 1 << 16


def mutated(data: bytes, dice: random.Random, others: tuple[bytes, ...]) -> bytes:
    """Returns `data` with one to eight changes."""
    out = bytearray(data)
    for _ in range(dice.choice((1, 1, 2, 3, 8))):
        out = _CHANGES[dice.randrange(len(_CHANGES))](out, dice, others) or bytearray(b"0")
    return bytes(out[:LONGEST])


def _flip(out: bytearray, dice: random.Random, others: tuple[bytes, ...]) -> bytearray:
    out[dice.randrange(len(out))] ^= 1 << dice.randrange(8)
    return out


def _byte(out: bytearray, dice: random.Random, others: tuple[bytes, ...]) -> bytearray:
    out[dice.randrange(len(out))] = dice.choice(b'"\\{}[]:,. 09-x\x00\xff\n?&=') if dice.random() < 0.7 else dice.randrange(256)
    return out


def _cut(out: bytearray, dice: random.Random, others: tuple[bytes, ...]) -> bytearray:
    begin = dice.randrange(len(out))
    return out[:begin] + out[begin + dice.choice((1, 2, 8, 64, len(out))) :]


def _repeat(out: bytearray, dice: random.Random, others: tuple[bytes, ...]) -> bytearray:
    begin = dice.randrange(len(out))
    piece = out[begin : begin + dice.choice((1, 4, 16, 128))]
    return out[:begin] + piece * dice.choice((2, 2, 3, 50)) + out[begin:]


def _replace(pattern: re.Pattern[bytes], out: bytearray, dice: random.Random) -> bytearray:
    found = [m.span() for m in pattern.finditer(out)]
    if not found:
        return out
    begin, end = dice.choice(found)
    return out[:begin] + dice.choice(ODD) + out[end:]


def _number(out: bytearray, dice: random.Random, others: tuple[bytes, ...]) -> bytearray:
    return _replace(_NUMBER, out, dice)


def _text(out: bytearray, dice: random.Random, others: tuple[bytes, ...]) -> bytearray:
    return _replace(_TEXT, out, dice)


def _insert(out: bytearray, dice: random.Random, others: tuple[bytes, ...]) -> bytearray:
    begin = dice.randrange(len(out))
    return out[:begin] + dice.choice(ODD) + out[begin:]


def _splice(out: bytearray, dice: random.Random, others: tuple[bytes, ...]) -> bytearray:
    other = dice.choice(others)
    begin = dice.randrange(len(other) or 1)
    at = dice.randrange(len(out))
    return out[:at] + other[begin : begin + dice.choice((8, 64, 512))] + out[at:]


_CHANGES: Final = (_flip, _byte, _cut, _repeat, _number, _number, _number, _text, _insert, _splice)
