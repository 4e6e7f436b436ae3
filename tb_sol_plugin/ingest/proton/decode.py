"""Decodes MessagePack without recursion and without trust: no container may announce more entries than bytes are left.

Memory stays in proportion to the file, whatever its headers claim. Timestamps and other extension types read as None.
"""

from __future__ import annotations

import json
import math
import re
import struct
from typing import Final, Literal, TypeAlias

from tb_sol_plugin.errors import BadInput

_MAP, _ARRAY, _TEXT, _BYTES, _EXTENSION = range(5)
_SIZED: Final = {
    0xC4: (_BYTES, ">B"), 0xC5: (_BYTES, ">H"), 0xC6: (_BYTES, ">I"), 0xC7: (_EXTENSION, ">B"), 0xC8: (_EXTENSION, ">H"),
    0xC9: (_EXTENSION, ">I"), 0xD9: (_TEXT, ">B"), 0xDA: (_TEXT, ">H"), 0xDB: (_TEXT, ">I"), 0xDC: (_ARRAY, ">H"),
    0xDD: (_ARRAY, ">I"), 0xDE: (_MAP, ">H"), 0xDF: (_MAP, ">I"),
}  # fmt: skip
_NUMBERS: Final = {
    0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q",
}  # fmt: skip
_WORDS: Final = {0xC0: None, 0xC2: False, 0xC3: True}
_FIXED_EXTENSION: Final = {0xD4: 1, 0xD5: 2, 0xD6: 4, 0xD7: 8, 0xD8: 16}


class _Open:
    """A container that is being filled; `left` entries are still to come (of a map keys and values)."""

    __slots__ = ("key", "left", "value")

    def __init__(self, value: dict[object, object] | list[object], left: int) -> None:
        self.value, self.left = value, left
        self.key: object = None

    def add(self, value: object) -> None:
        if isinstance(self.value, list):
            self.value.append(value)
        elif self.left % 2 == 0:
            self.key = value if isinstance(value, str | int | float | bool | bytes) else None
        else:
            self.value[self.key] = value
        self.left -= 1


def decode(data: bytes, file: str) -> object:
    """Returns the one value that `data` holds. BadInput where it ends too early, claims too much or holds something behind the value."""
    stack: list[_Open] = []
    at = 0
    while True:
        kind, value, size, at = _head(data, at, file)
        if kind in (_MAP, _ARRAY):
            entries = size * (2 if kind == _MAP else 1)
            if entries > len(data) - at:
                raise BadInput(
                    f"a list of {size:,} entries is announced where {len(data) - at:,} bytes are left",
                    hint="copy the file again: it is cut off or damaged",
                    file=file,
                )
            made: dict[object, object] | list[object] = {} if kind == _MAP else []
            if entries:
                stack.append(_Open(made, entries))
                continue
            value = made
        while True:
            if not stack:
                if at < len(data):
                    raise BadInput(f"{len(data) - at:,} bytes follow the end of the profile", hint="copy the file again", file=file)
                return value
            stack[-1].add(value)
            if stack[-1].left:
                break
            value = stack.pop().value


def _head(data: bytes, at: int, file: str) -> tuple[int, object, int, int]:
    """Returns (kind of container or -1, value, entries, position behind) of what begins at `at`."""
    if at >= len(data):
        raise _short(data, file)
    code = data[at]
    at += 1
    if code < 0x80:
        return -1, code, 0, at
    if code >= 0xE0:
        return -1, code - 256, 0, at
    if code < 0x90:
        return _MAP, None, code & 0x0F, at
    if code < 0xA0:
        return _ARRAY, None, code & 0x0F, at
    if code < 0xC0:
        return _piece(data, at, code & 0x1F, _TEXT, file)
    if code in _WORDS:
        return -1, _WORDS[code], 0, at
    if code in _NUMBERS:
        number, at = _number(data, at, _NUMBERS[code], file)
        return -1, number, 0, at
    if code in _FIXED_EXTENSION:
        return _piece(data, at, _FIXED_EXTENSION[code] + 1, _EXTENSION, file)
    if code not in _SIZED:
        raise BadInput(f"this is no MessagePack: byte {at:,} does not fit", hint="open the file that Proton wrote", file=file)
    kind, form = _SIZED[code]
    size, at = _number(data, at, form, file)
    if kind in (_MAP, _ARRAY):
        return kind, None, int(size), at
    return _piece(data, at, int(size) + (kind == _EXTENSION), kind, file)


def _number(data: bytes, at: int, form: str, file: str) -> tuple[int | float, int]:
    end = at + struct.calcsize(form)
    if end > len(data):
        raise _short(data, file)
    return struct.unpack_from(form, data, at)[0], end


def _piece(data: bytes, at: int, size: int, kind: int, file: str) -> tuple[int, object, int, int]:
    end = at + size
    if end > len(data):
        raise _short(data, file)
    raw = data[at:end]
    return -1, None if kind == _EXTENSION else raw.decode("utf-8", "replace") if kind == _TEXT else raw, 0, end


def _short(data: bytes, file: str) -> BadInput:
    hint = "copy it again, or let the program end with proton.finalize()"
    return BadInput(f"the file ends too early, after {len(data):,} bytes", hint=hint, file=file)


# -- JSON of any depth, with NaN and Infinity ------------------------------------------------------------------------
# a reader without recursion.
#
# A profile is as deep as the program's call stack, so that recursive readers may give up on it. This one answers plain dicts, lists,
# texts and numbers.


_TOKEN: Final = re.compile(
    r'[ \t\r\n]*(?:([{}\[\],:])|("[^"\\]*(?:\\.[^"\\]*)*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)'
    r"|(true|false|null|NaN|-?Infinity|nan|-?inf)\b)",
    re.DOTALL,
)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_JSON_WORDS: Final[dict[str, object]] = {
    "true": True, "false": False, "null": None, "NaN": float("nan"), "nan": float("nan"), "Infinity": float("inf"),
    "-Infinity": float("-inf"), "inf": float("inf"), "-inf": float("-inf"),
}  # fmt: skip
_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _NEXT = range(6)


def decode_json(text: str, file: str) -> object:
    """Returns the one value that `text` holds. BadInput says where it ends too early or is no JSON."""
    stack: list[tuple[dict[str, object] | list[object], str]] = []
    here: dict[str, object] | list[object] | None = None
    key, expect, at = "", _VALUE, 0
    while True:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _broken(text, at, file)
        at = found.end()
        mark, quoted, number, word = found.groups()
        if mark in ("}", "]"):
            allowed = (_NEXT, _FIRST_KEY) if mark == "}" else (_NEXT, _FIRST_VALUE)
            if here is None or expect not in allowed or isinstance(here, dict) != (mark == "}"):
                raise _broken(text, found.start(1), file)
            value: object = here
            here, key = stack.pop() if len(stack) > 1 else (None, "")
            if here is None:
                return _alone(value, text, at, file)
            expect = _NEXT
            continue
        if (mark == "," and expect == _NEXT) or (mark == ":" and expect == _COLON):
            expect = _KEY if mark == "," and isinstance(here, dict) else _VALUE
            continue
        if expect in (_KEY, _FIRST_KEY):
            if quoted is None:
                raise _broken(text, at, file)
            key, expect = _text(quoted), _COLON
            continue
        if expect not in (_VALUE, _FIRST_VALUE) or mark in (",", ":"):
            raise _broken(text, found.start(), file)
        value = _json_value(mark, quoted, number, word)
        if here is not None:
            _put(here, key, value)
        if mark:
            stack.append((here if here is not None else {}, key))
            here, expect = value, (_FIRST_KEY if mark == "{" else _FIRST_VALUE)  # type: ignore[assignment]
        elif here is None:
            return _alone(value, text, at, file)
        else:
            expect = _NEXT


def _put(container: dict[str, object] | list[object], key: str, value: object) -> None:
    if isinstance(container, dict):
        container[key] = value
    else:
        container.append(value)


def _json_value(mark: str | None, quoted: str | None, number: str | None, word: str | None) -> object:
    """Return the value that a token stands for; an empty dict or list for an opening bracket."""
    if mark:
        return {} if mark == "{" else []
    return _text(quoted) if quoted else _json_number(number) if number else _JSON_WORDS.get(word or "")


def _text(quoted: str) -> str:
    if "\\" not in quoted:
        return quoted[1:-1]
    try:
        return str(json.loads(quoted, strict=False)).encode("utf-8", "replace").decode()  # halves of a pair stand for nothing
    except ValueError:
        return quoted[1:-1]


def _json_number(text: str) -> int | float:
    if text.lstrip("-").isdigit():
        return int(text) if len(text) < 25 else float(text)
    return float(text)


def _alone(value: object, text: str, at: int, file: str) -> object:
    rest = _SPACE.match(text, at)
    if rest is not None and rest.end() < len(text):
        raise _broken(text, rest.end(), file)
    return value


def _broken(text: str, at: int, file: str) -> BadInput:
    rest = _SPACE.match(text, at)
    at = rest.end() if rest is not None else at
    if at >= len(text) or (text[at] == '"' and '"' not in text[at + 1 :]):
        return BadInput(
            f"the file ends too early, after {len(text):,} characters",
            hint="copy it again, or let the program end with proton.finalize()",
            file=file,
        )
    return BadInput(f"this is no JSON: character {at + 1:,} does not fit", hint="write the profile anew with proton.finalize()", file=file)


# -- Values of metrics -----------------------------------------------------------------------------------------------
# numbers, numbers written as text, and what is neither.


Fault: TypeAlias = Literal["", "text", "negative", "not finite", "too large", "no number"]

LARGEST: Final = 2.0**62
_NUMBER: Final = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*")


def amount(value: object) -> tuple[float | int | None, Fault]:
    """Returns (a number that is not below 0, None unknown; what was odd). Whole numbers stay exact."""
    odd: Fault = ""
    if isinstance(value, str):
        if len(value) > 40 or not _NUMBER.fullmatch(value):
            return None, "no number"
        value, odd = (int(value) if value.strip().lstrip("+-").isdigit() else float(value)), "text"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, "no number"
    if isinstance(value, float) and not math.isfinite(value):
        return None, "not finite"
    if value < 0:
        return None, "negative"
    return (value, odd) if value < LARGEST else (None, "too large")


def whole(value: object) -> int | None:
    """Returns a whole number, written as a number or as text; None for anything else."""
    found, _ = amount(value)
    return int(found) if found is not None and found == int(found) else None
