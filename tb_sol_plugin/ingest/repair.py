"""Text that is not where the grammar wants it: finding the next thing that can be read."""

from __future__ import annotations

import re

import msgspec

from tb_sol_plugin.ingest.health import Health

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
"""A whole string or one structural character."""
EVENT_START = re.compile(rb'\{\s*"(?:ph|name|cat|ts|pid|args)"\s*:')
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_BARE = re.compile(rb"(?<![\w.\"])(?:-?Infinity|-?inf|NaN|nan|N/A|n/a|undefined)(?![\w.\"])")
_ESCAPES = re.compile(rb"(\\\\)|\\(?![\"\\/bfnrt]|u[0-9a-fA-F]{4})", re.DOTALL)
_CONTROL = re.compile(rb"[\x00-\x1f]")


def mend(text: bytes, health: Health) -> bytes:
    """`text` with bytes that are not UTF-8, bad escapes, control characters in strings and bare NaN words replaced; counted."""
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        replaced = text.decode("utf-8", "replace")
        health.add("bytes that are not UTF-8", max(replaced.count("\ufffd") - text.count("\ufffd".encode()), 1))
        text = replaced.encode()
    out = bytearray()
    last = escapes = bare = 0
    for match in _STRING.finditer(text):
        gap, found = _BARE.subn(b"null", text[last : match.start()])
        bare += found
        out += gap
        string = _CONTROL.sub(lambda m: b"\\u%04x" % m.group()[0], match.group())
        string = _ESCAPES.sub(lambda m: m.group() if m.group(1) else b"\\\\", string)
        escapes += string != match.group()
        out += string
        last = match.end()
    gap, found = _BARE.subn(b"null", text[last:])
    health.add("NaN, Infinity or N/A", bare + found)
    health.add("invalid escape or control character", escapes)
    return bytes(out + gap)


def header(text: bytes, health: Health) -> dict[str, object] | None:
    """The header object; None where it stays unreadable."""
    for candidate in (text, text.rstrip().rstrip(b",}") + b"}"):
        for mended in (False, True):
            try:
                value = msgspec.json.decode(mend(candidate, health) if mended else candidate)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                continue
            return value if isinstance(value, dict) else None
    return None


def skip_entry(text: bytes, final: bool) -> tuple[int, str]:
    """(bytes to skip, what is skipped) past an entry of the list that cannot be read as an event.

    A value that is no object ends at the next comma or bracket of its own level; an object that is damaged inside
    ends where the next event seems to start. 0 bytes: more text is needed to tell.
    """
    if not text.startswith(b"{"):
        end = _value_end(text)
        if end or not final:
            return end, "entry that is not an event"
        return len(text), "entry that is not an event"
    start = EVENT_START.search(text, 1)
    if start is not None:
        return start.start(), "unreadable event"
    return (len(text), "unreadable event") if final else (0, "")


def _value_end(text: bytes) -> int:
    """Bytes up to the comma or bracket that ends the value the text starts with; 0 if it does not end here."""
    depth = 0
    for match in re.finditer(rb'"(?:[^"\\]|\\.)*"|[{}\[\],]', text, re.DOTALL):
        token = match.group()
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            if depth == 0:
                return match.start()
            depth -= 1
        elif token == b"," and depth == 0:
            return match.start()
    return 0
