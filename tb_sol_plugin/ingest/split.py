"""A stream of bytes into the header, the events chunk by chunk, and the rest of the header.

A chunk ends at a guessed boundary between two events. The guess proves itself: the chunk starts at event level, and
only if it decodes as a complete array was its end at event level too. A chunk that does not decode is cut by
balanced brackets instead, event by event.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import repair
from tb_sol_plugin.ingest.decode import Columns, Decoder, add_events
from tb_sol_plugin.ingest.source import Source

CHUNK = 1 << 20
HEADER_LIMIT = 256 << 20
EVENT_LIMIT = 64 << 20
_BOUNDARY = re.compile(rb'\}\s*,\s*(?=\{\s*"(?:ph|name|cat|ts|pid)"\s*:)')
_CLOSE = re.compile(rb"\}\s*,?\s*\]")
_SPACE = re.compile(rb"[\s,]*")


class Splitter:
    """Reads one source into `columns`; `header` is the object around the events as bytes (events emptied).

    `warnings` are sentences about the file as a whole. `tick` is called after every chunk.
    """

    def __init__(self, source: Source, columns: Columns, decoder: Decoder) -> None:
        self.source, self.columns, self.decoder = source, columns, decoder
        self.warnings: list[str] = []
        self.header: dict[str, object] = {}
        self.truncated = False
        self.is_list = False
        self._blocks = source.blocks()
        self._buffer = b""
        self._eof = False
        self._dropped = 0

    # -- bytes ------------------------------------------------------------------------------------------------

    def _fill(self, wanted: int) -> None:
        """Have at least `wanted` bytes, or all there are."""
        if len(self._buffer) >= wanted or self._eof:
            return
        pieces = [self._buffer]
        have = len(self._buffer)
        while have < wanted:
            block = next(self._blocks, b"")
            if not block:
                self._eof = True
                break
            pieces.append(block)
            have += len(block)
        self._buffer = b"".join(pieces)

    def _take(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._dropped += count

    # -- the file ---------------------------------------------------------------------------------------------

    def run(self) -> Iterator[None]:
        """Read everything; yields after every chunk. NotATrace or BadInput where there is nothing to read."""
        self._fill(1 << 12)
        start = self._buffer[:3] == b"\xef\xbb\xbf"
        if start:
            self._take(3)
        text = self._buffer.lstrip()
        if not text:
            reason = self.source.truncated or "the file is empty"
            raise BadInput(reason, hint="record it again; the profiler writes the file when the schedule ends", file=self.source.name)
        self._take(len(self._buffer) - len(text))
        if text[:1] == b"[":
            self.is_list = True
            self._take(1)
            self._check_list()
            yield from self._events()
        elif text[:1] == b"{":
            yield from self._objects()
        else:
            raise BadInput("this is not JSON", hint="a trace starts with { or [", file=self.source.name)
        if self.source.truncated:
            self.truncated = True
            self.warnings.append(f"{self.source.truncated}; the {self.columns.total:,} complete events before that are kept")

    def _objects(self) -> Iterator[None]:
        """The first object that has events, of one or more joined together."""
        while True:
            before = self._head()
            tail = b"}"
            if before is None:
                self.header = self._parse_header(self._buffer) or self.header
                self._take(len(self._buffer))
                return
            found, prefix = before
            if found:
                yield from self._events()
                tail = self._tail()
            header = self._parse_header(prefix + (b"[]" if found else b"") + tail)
            self.header = header if header is not None else self.header
            self._fill(1)
            rest = self._buffer.lstrip()
            if not rest:
                return
            if self.columns.total or not rest.startswith(b"{"):
                self.warnings.append("text after the end of the trace was not read")
                return
            self._take(len(self._buffer) - len(rest))

    def _head(self) -> tuple[bool, bytes] | None:
        """Advance past `"traceEvents": [`. (True, text before it), (False, a whole object without it) or None at the end."""
        wanted = 1 << 16
        while True:
            self._fill(wanted)
            depth = 0
            key_end = -1
            for match in repair.TOKEN.finditer(self._buffer):
                token = self._buffer[match.start()]
                if token in b"{[":
                    if token == 91 and depth == 1 and key_end >= 0 and self._buffer[key_end : match.start()].strip() == b":":
                        prefix = self._buffer[: match.start()]
                        self._take(match.end())
                        return True, prefix
                    depth += 1
                elif token in b"}]":
                    depth -= 1
                    if depth == 0:
                        whole = self._buffer[: match.end() - 1]
                        self._take(match.end())
                        return False, whole
                elif depth == 1:
                    key_end = match.end() if match.group() == b'"traceEvents"' else -1
            if self._eof:
                return None
            if wanted > HEADER_LIMIT:
                raise NotATrace("no traceEvents in the first 256 MB", hint="this JSON is not a profiler trace", file=self.source.name)
            wanted = 2 * len(self._buffer) + CHUNK

    def _check_list(self) -> None:
        """A list of rows that are not events is something else (a memory timeline holds lists)."""
        first = self._buffer.lstrip()[:1]
        if first == b"[":
            raise NotATrace(
                "a memory timeline (rows of time, action, bytes, category), not a trace",
                hint="open the .pt.trace.json recorded beside it",
                file=self.source.name,
            )
        if first not in (b"{", b"]", b""):
            raise NotATrace("a JSON list of values, not of events", hint="a trace holds events with ph, ts and name", file=self.source.name)

    # -- events -----------------------------------------------------------------------------------------------

    def _events(self) -> Iterator[None]:
        """Decode events up to the bracket that closes their list, which is taken too."""
        while True:
            self._fill(CHUNK)
            skip = _SPACE.match(self._buffer)
            if skip is not None and skip.end():
                self._take(skip.end())
                self._fill(CHUNK)
            if self._buffer[:1] == b"]":
                self._take(1)
                return
            if not self._buffer:
                self._ended_early("")
                return
            if not self._fast_chunk() and self._slow_chunk():
                return
            yield

    def _fast_chunk(self) -> bool:
        """One chunk by a guessed boundary; False where no guess holds. Takes the closing bracket into account later."""
        window = self._buffer[:CHUNK]
        cut = _last(_BOUNDARY, window)
        full = not self._eof or len(self._buffer) > CHUNK // 2
        if cut is not None and full and self._try(window[: cut.start() + 1]):
            self._take(cut.end())
            return True
        if self._eof:
            closes = [m.end() - 1 for m in _CLOSE.finditer(self._buffer)][-8:]
            for end in reversed(closes):
                if self._try(self._buffer[:end].rstrip(b" \t\r\n,")):
                    self._take(end)
                    return True
            if cut is not None and self._try(window[: cut.start() + 1]):
                self._take(cut.end())
                return True
        return False

    def _try(self, events: bytes) -> bool:
        try:
            self.decoder(b"[" + events + b"]", self.columns)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return False
        return True

    def _slow_chunk(self) -> bool:
        """Cut what is buffered by balanced brackets and mend event by event. True at the end of the list or the file."""
        health = self.columns.health
        size = CHUNK
        while True:
            self._fill(size)
            text = self._buffer[:size]
            found = list(repair.entries(text))
            if found or (self._eof and size >= len(self._buffer)):
                break
            if size > EVENT_LIMIT:
                break
            size *= 2
        closed = bool(found) and found[-1][0] == b"]"
        batch = []
        pending: list[bytes] = []
        for entry, _ in found:
            if entry == b"]":
                break
            pending.append(entry)
        mended = repair.mend(b",".join(pending), health) if pending else b""
        if not mended or not self._try(mended):
            batch = [event for event in (repair.one_event(entry, health) for entry in pending) if event is not None]
            add_events(batch, self.columns)
        if found:
            self._take(found[-1][1])
        if closed:
            return True
        if not found:
            return self._resync()
        return False

    def _resync(self) -> bool:
        """No complete entry at all: skip to the next thing that looks like an event, or end."""
        start = repair.EVENT_START.search(self._buffer, 1)
        if start is None:
            self._ended_early(self._buffer[:60].decode("utf-8", "replace"))
            self._take(len(self._buffer))
            return True
        self.columns.health.add("unreadable event", 1, self._buffer[:60].decode("utf-8", "replace"))
        self._take(start.start())
        return False

    def _ended_early(self, example: str) -> None:
        self.truncated = True
        if not self.source.truncated:
            where = self._dropped
            self.warnings.append(
                f"the file ends in the middle of the events, after byte {where:,}; "
                f"the {self.columns.total:,} complete events before that are kept"
            )
        if example:
            self.columns.health.add("unreadable event", 1, example)

    # -- header -----------------------------------------------------------------------------------------------

    def _tail(self) -> bytes:
        """The text from after the list to the end of the object, taken."""
        wanted = 1 << 16
        while True:
            self._fill(wanted)
            depth = 1
            for match in repair.TOKEN.finditer(self._buffer):
                token = self._buffer[match.start()]
                if token in b"{[":
                    depth += 1
                elif token in b"}]":
                    depth -= 1
                    if depth == 0:
                        tail = self._buffer[: match.end()]
                        self._take(match.end())
                        return tail
            if self._eof or wanted > HEADER_LIMIT:
                if not self.truncated:
                    self.truncated = True
                    self.warnings.append("the file ends in the middle of its header; header fields after the events may be missing")
                whole = self._buffer[: max(self._buffer.rfind(b","), 0)] + b"}"
                self._take(len(self._buffer))
                return whole
            wanted = 2 * len(self._buffer) + CHUNK

    def _parse_header(self, text: bytes) -> dict[str, object] | None:
        """The header object; a text that stays unreadable is reported and gives the empty header."""
        for candidate in (text, text.rstrip().rstrip(b",}") + b"}"):
            for attempt in (candidate, repair.mend(candidate, self.columns.health)):
                try:
                    value = msgspec.json.decode(attempt)
                except (msgspec.DecodeError, RecursionError):
                    continue
                return value if isinstance(value, dict) else None
        if text.strip(b" \t\r\n{}"):
            self.warnings.append("the header could not be read: device names, versions and flags are unknown")
        return {} if text else None


def _last(pattern: re.Pattern[bytes], window: bytes) -> re.Match[bytes] | None:
    """The last match near the end of `window`, looking ever further back."""
    back = 1 << 14
    while True:
        start = max(len(window) - back, 0)
        found = list(pattern.finditer(window, start))
        if found or start == 0:
            return found[-1] if found else None
        back *= 8
