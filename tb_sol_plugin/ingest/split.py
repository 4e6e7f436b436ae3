"""A stream of bytes into the header, the events chunk by chunk, and the rest of the header.

The decoder takes all complete events of what is buffered; what is cut off stays for the next chunk.
"""

from __future__ import annotations

from collections.abc import Iterator

from tb_sol_plugin.errors import BadInput, NotATrace
from tb_sol_plugin.ingest import repair
from tb_sol_plugin.ingest.decode import Columns, Decoder
from tb_sol_plugin.ingest.pipeline import Pipeline
from tb_sol_plugin.ingest.source import Source

CHUNK = 4 << 20
HEADER_LIMIT = 256 << 20
EVENT_LIMIT = 64 << 20


class Splitter:
    """Reads one source into `columns`; `header` is the object around the events as bytes (events emptied).

    `warnings` are sentences about the file as a whole. `tick` is called after every chunk.
    """

    def __init__(self, source: Source, columns: Columns, decoder: Decoder, pipeline: Pipeline) -> None:
        self.source, self.columns, self.decoder, self._pipeline = source, columns, decoder, pipeline
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
            self._pipeline.drain()
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
                self._pipeline.drain()
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
                "a JSON list of lists, not of events",
                hint="a trace holds events with ph, ts and name",
                file=self.source.name,
            )
        if first not in (b"{", b"]", b""):
            raise NotATrace("a JSON list of values, not of events", hint="a trace holds events with ph, ts and name", file=self.source.name)

    # -- events -----------------------------------------------------------------------------------------------

    def _events(self) -> Iterator[None]:
        """Decode events up to the bracket that closes their list, which is taken too."""
        wanted = CHUNK
        while True:
            self._fill(wanted)
            fed = self.decoder.feed(self._buffer, self._pipeline.put)
            self._take(fed.consumed)
            if fed.closed:
                return
            if fed.broken or (fed.consumed == 0 and (self._eof or wanted > EVENT_LIMIT)):
                if self._skip():
                    return
                wanted = CHUNK
            elif self._eof and not self._buffer.strip(b" \t\r\n,"):
                self._ended_early()
                return
            elif fed.consumed == 0:
                wanted = 2 * max(len(self._buffer), CHUNK)
            else:
                wanted = CHUNK
            yield

    def _skip(self) -> bool:
        """Go past what cannot be read as an event; True at the end of the file."""
        size = CHUNK
        while True:
            self._fill(size)
            final = self._eof or size > EVENT_LIMIT
            skipped, what = repair.skip_entry(self._buffer[:size], final)
            if skipped:
                break
            size *= 2
        cut_off = self._eof and skipped >= len(self._buffer)
        self.columns.health.add(what, 1, self._buffer[:60].decode("utf-8", "replace"))
        if cut_off:
            self._ended_early()
        self._take(skipped)
        return cut_off

    def _ended_early(self) -> None:
        """The list of events was not closed."""
        self._pipeline.drain()
        self.truncated = True
        if not self.source.truncated:
            self.warnings.append(
                f"the file ends in the middle of the events, after byte {self._dropped:,}; "
                f"the {self.columns.total:,} complete events before that are kept"
            )

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
        found = repair.header(text, self.columns.health)
        if found is None and text.strip(b" \t\r\n{}"):
            self.warnings.append("the header could not be read: device names, versions and flags are unknown")
            return {}
        return found
