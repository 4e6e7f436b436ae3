"""JSON of any depth, with NaN and Infinity: a reader without recursion.

A profile is as deep as the program's call stack, so that recursive readers may give up on it. This one answers plain dicts, lists,
texts and numbers.
"""

from __future__ import annotations

import json
import re
from typing import Final

from tb_sol_plugin.errors import BadInput

_TOKEN: Final = re.compile(
    r'[ \t\r\n]*(?:([{}\[\],:])|("[^"\\]*(?:\\.[^"\\]*)*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?)'
    r"|(true|false|null|NaN|-?Infinity|nan|-?inf)\b)",
    re.DOTALL,
)
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_WORDS: Final[dict[str, object]] = {
    "true": True, "false": False, "null": None, "NaN": float("nan"), "nan": float("nan"), "Infinity": float("inf"),
    "-Infinity": float("-inf"), "inf": float("inf"), "-inf": float("-inf"),
}  # fmt: skip
_VALUE, _FIRST_VALUE, _KEY, _FIRST_KEY, _COLON, _NEXT = range(6)


def decode(text: str, file: str) -> object:
    """The one value that `text` holds. BadInput says where it ends too early or is no JSON."""
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
        if mark == "," and expect == _NEXT:
            expect = _KEY if isinstance(here, dict) else _VALUE
            continue
        if mark == ":" and expect == _COLON:
            expect = _VALUE
            continue
        if expect in (_KEY, _FIRST_KEY):
            if quoted is None:
                raise _broken(text, at, file)
            key, expect = _text(quoted), _COLON
            continue
        if expect not in (_VALUE, _FIRST_VALUE) or mark in (",", ":"):
            raise _broken(text, found.start(), file)
        value = {} if mark == "{" else [] if mark == "[" else _text(quoted) if quoted else _number(number) if number else _WORDS[word]
        if isinstance(here, dict):
            here[key] = value
        elif here is not None:
            here.append(value)
        if mark:
            stack.append((here if here is not None else {}, key))
            here, expect = value, (_FIRST_KEY if mark == "{" else _FIRST_VALUE)  # type: ignore[assignment]
        elif here is None:
            return _alone(value, text, at, file)
        else:
            expect = _NEXT


def _text(quoted: str) -> str:
    if "\\" not in quoted:
        return quoted[1:-1]
    try:
        return str(json.loads(quoted, strict=False)).encode("utf-8", "replace").decode()  # halves of a pair stand for nothing
    except ValueError:
        return quoted[1:-1]


def _number(text: str) -> int | float:
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
