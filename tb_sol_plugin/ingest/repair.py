"""Damaged JSON: what can be read is read, and every repair is counted.

Everything here runs only after the strict path has refused a chunk, so it may be slow; it may not lose events.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import msgspec

from tb_sol_plugin.ingest import events as E
from tb_sol_plugin.ingest.health import Health

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
"""A whole string or one structural character."""
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE = re.compile(rb"(?<![\w.\"])(?:-?Infinity|-?inf|NaN|nan|N/A|n/a|undefined)(?![\w.\"])")
_BAD_ESCAPE = re.compile(rb'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_ESCAPES = re.compile(rb"(\\\\)|\\(?![\"\\/bfnrt]|u[0-9a-fA-F]{4})", re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")
EVENT_START = re.compile(rb'\{\s*"(?:ph|name|cat|ts|pid|args)"\s*:')


def mend(text: bytes, health: Health) -> bytes:
    """`text` with bytes that are not UTF-8, bad escapes, control characters in strings and bare NaN words replaced."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        replaced = text.decode("utf-8", "replace")
        health.add("bytes that are not UTF-8", max(replaced.count("\ufffd") - text.count("\ufffd".encode()), 1))
        text = replaced.encode()
    out = bytearray()
    last = 0
    escapes = bare = 0
    for match in _STRING.finditer(text):
        gap, found = _BARE.subn(b"null", text[last : match.start()])
        bare += found
        out += gap
        string = match.group()
        if _CONTROL.search(string):
            string = _CONTROL.sub(lambda m: b"\\u%04x" % m.group()[0], string)
            escapes += 1
        if b"\\" in string and _BAD_ESCAPE.search(string.replace(b"\\\\", b"")):
            string = _ESCAPES.sub(lambda m: m.group() if m.group(1) else b"\\\\", string)
            escapes += 1
        out += string
        last = match.end()
    gap, found = _BARE.subn(b"null", text[last:])
    out += gap
    health.add("NaN, Infinity or N/A", bare + found)
    health.add("invalid escape or control character", escapes)
    return bytes(out)


def entries(text: bytes) -> Iterator[tuple[bytes, int]]:
    """(entry, end) for every complete item of the array whose inside `text` starts with, by balanced brackets.

    Ends at the bracket that closes the array, after which one last (b"]", end) is given; at the end of the text
    without it, nothing more is given.
    """
    depth = 0
    begin = 0
    for match in TOKEN.finditer(text):
        token = text[match.start()]
        if token in b"{[":
            if depth == 0:
                junk = text[begin : match.start()].strip(b" \t\r\n,")
                if junk:
                    yield junk, match.start()
                begin = match.start()
            depth += 1
        elif token in b"}]":
            if depth == 0:
                junk = text[begin : match.start()].strip(b" \t\r\n,")
                if junk:
                    yield junk, match.start()
                yield b"]", match.end()
                return
            depth -= 1
            if depth == 0:
                yield text[begin : match.end()], match.end()
                begin = match.end()


def one_event(text: bytes, health: Health) -> E.Event | None:
    """The event of one entry, mended as needed; None (and counted) where it is no event."""
    if not text.startswith(b"{"):
        health.add("entry that is not an event", 1, text[:60].decode("utf-8", "replace"))
        return None
    value: object = None
    for candidate in (text, None):
        try:
            value = json.loads(candidate if candidate is not None else mend(text, health), strict=False, parse_constant=lambda _: None)
            break
        except (ValueError, RecursionError):
            continue
    if not isinstance(value, dict):
        health.add("unreadable event", 1, text[:60].decode("utf-8", "replace"))
        return None
    return from_dict(value, text, health)


def from_dict(value: dict[str, object], text: bytes, health: Health) -> E.Event:
    """An Event from a decoded object whose fields may have any type. Times keep their decimal text."""
    name = value.get("name")
    if name is None or name == "":
        health.add("event without a name")
        name = "(unnamed)"
    args = value.get("args")
    raw = E.NO_ARGS
    if isinstance(args, dict):
        raw = msgspec.Raw(msgspec.json.encode(_finite(args)))
    elif args is not None:
        health.add("arguments that are not an object", 1, str(args)[:60])
    times = _time_texts(text)
    category = value.get("cat")
    return E.Event(
        ph=str(value.get("ph", "")),
        cat=None if category is None else str(category),
        name=str(name),
        pid=_plain(value.get("pid")),
        tid=_plain(value.get("tid")),
        ts=times("ts", value),
        dur=times("dur", value),
        id=_plain(value.get("id")),
        args=raw,
    )


def _time_texts(text: bytes):  # type: ignore[no-untyped-def]
    def find(key: str, value: dict[str, object]) -> msgspec.Raw:
        number = value.get(key)
        if number is None:
            return E.EMPTY
        if isinstance(number, float):  # the decimal text, not the float that was made from it
            found = re.findall(rb'"' + key.encode() + rb'"\s*:\s*(-?[0-9.eE+-]+)', text)
            if found:
                return msgspec.Raw(found[-1])
        return msgspec.Raw(str(number).encode()) if isinstance(number, int | float) else msgspec.Raw(json.dumps(str(number)).encode())

    return find


def _plain(value: object) -> int | float | str | None:
    return value if isinstance(value, int | float | str) or value is None else json.dumps(value)


def _finite(value: object) -> object:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))) else value


def clean_args(raw: bytes) -> bytes | None:
    """Arguments with values of unexpected types turned to text, so that the typed decoder takes them; None if no object."""
    try:
        value = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        return None
    if not isinstance(value, dict):
        return None
    return msgspec.json.encode(
        {k: v if v is None or isinstance(v, int | float | str) or k in _NESTED else json.dumps(v) for k, v in value.items()}
    )


_NESTED = {"Input Dims", "Input dims", "Input type", "Input Strides", "Concrete Inputs", "grid", "block", "Call stack", "Module Hierarchy"}
