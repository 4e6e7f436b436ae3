"""Reads the bytes of a recording, local or through fsspec, gunzipped by their magic bytes whatever the file's ending."""

from __future__ import annotations

import io
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import BinaryIO, TypeAlias, cast

import msgspec
import numpy as np
from isal import igzip, isal_zlib

from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.ingest import limits

BLOCK = 1 << 20
IsalError = cast(type[Exception], isal_zlib.IsalError)  # isal's stub declares an instance where there is a class
AHEAD = 3
"""Blocks that are unpacked before they are asked for."""
HEAD = 1 << 16
"""Bytes of the first block of a file that is unpacked ahead: its header is looked at while the next ones are unpacked."""
PIECE = 1 << 14
"""Stored bytes that salvage unpacks at a time: what damage can cost at most."""


def base_name(path: str) -> str:
    """Returns the last part of a path or URL, the only part of it that messages show, as text that can be sent and printed in a line."""
    name = path.rstrip("/").replace("\\", "/").rpartition("/")[2] or path
    name = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(c if c.isprintable() else "\ufffd" for c in name)


class Source:
    """A file being read once, front to back.

    `blocks()` yields uncompressed bytes. `position` counts stored bytes read, `size` is the stored size (0 unknown),
    `truncated` says how a compressed stream ended too early ("" if it did not). Raises BadInput for what cannot be opened, and for text
    above the limit (`limits.TEXT`), of which a reader that keeps all of it has one part in `share`. hint: how to record less.
    """

    def __init__(self, path: str, fs_options: dict[str, object] | None = None, *, share: int = 1, hint: str = "") -> None:
        self.largest, self._hint = limits.most(limits.TEXT, share), hint
        self.path = path
        self.name = base_name(path)
        self.truncated = self._ending = ""
        self.produced = self.position = 0
        self._pool: ThreadPoolExecutor | None = None
        try:
            self._raw, self.size = _open(path, fs_options or {})
        except FileNotFoundError:
            raise BadInput("the file is not there any more", hint="scan the logdir again", file=self.name) from None
        except IsADirectoryError:
            raise BadInput("this is a directory, not a recording", hint="name a file inside it", file=self.name) from None
        except PermissionError:
            raise BadInput("no permission to read this file", hint="check the file's access rights", file=self.name) from None
        except ImportError as error:
            raise BadInput(f"no driver for this address: {error}", hint="install the driver named here", file=self.name) from None
        except (OSError, ValueError) as error:
            raise BadInput(f"cannot be opened: {type(error).__name__}", hint="check the path and the connection", file=self.name) from None

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        self._raw.close()

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """Yields uncompressed blocks; a damaged or truncated gzip stream gives what it held and sets `truncated`."""
        yield from self._read(size)
        self.truncated = self._ending

    def ahead(self, size: int, room: int) -> Iterator[memoryview]:
        """Yields what `blocks` yields, the first one short, each after `room` bytes that are the caller's. They are unpacked on a thread of
        its own, before they are asked for. Errors and `truncated` come where `blocks` has them.
        """
        blocks = (_behind(room, block) for block in self._read(size, HEAD))
        first = next(blocks, None)
        if first is not None and len(first) == room + HEAD:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="tb-sol-unpack")
            waiting: deque[Future[memoryview | None]] = deque()
            block: memoryview | None = first
            while block is not None:
                while len(waiting) < AHEAD:
                    waiting.append(self._pool.submit(next, blocks, None))
                yield block
                block = waiting.popleft().result()
        elif first is not None:
            yield first
            yield from blocks
        self.truncated = self._ending

    def _read(self, size: int, first: int = 0) -> Iterator[bytes]:
        """Yields uncompressed blocks, the first one of another size; `_ending` says at last how the stream ended."""
        try:
            magic = self._raw.read(2)
            self._raw.seek(0)
        except OSError as error:
            raise BadInput(f"reading failed: {type(error).__name__}", hint="check the disk or the connection", file=self.name) from None
        packed = magic == b"\x1f\x8b"
        stream = cast(BinaryIO, igzip.IGzipFile(fileobj=self._raw, mode="rb")) if packed else self._raw
        while True:
            try:
                block = stream.read(size if self.produced else first or size)
            except (EOFError, zlib.error, IsalError, igzip.BadGzipFile):
                yield from self._salvage()
                return
            except OSError as error:
                if self.produced == 0:
                    raise BadInput(
                        f"reading failed: {type(error).__name__}", hint="check the disk or the connection", file=self.name
                    ) from None
                self._ending = f"reading failed after {self.produced:,} bytes of text"
                return
            if not block:
                return
            self._count(block)
            with suppress(OSError, ValueError):
                self.position = self._raw.tell()
            yield block

    def _count(self, block: bytes) -> None:
        self.produced += len(block)
        limits.check(limits.TEXT, self.produced, self.largest, self.name, self._hint)

    def _salvage(self) -> Iterator[bytes]:
        """Yields what a damaged gzip stream still holds behind the blocks already given: unpacked once more, in small pieces."""
        given, seen = self.produced, 0
        self._raw.seek(0)
        how = "ends too early"
        try:
            for piece in inflated(iter(lambda: self._raw.read(PIECE), b"")):
                seen += len(piece)
                fresh = piece[max(len(piece) - (seen - given), 0) :] if seen > given else b""
                if fresh:
                    self._count(fresh)
                    yield fresh
        except EOFError:
            pass
        except (zlib.error, IsalError):
            how = "is damaged"
        self._ending = f"the gzip stream {how}, after {self.produced:,} bytes of text"


def _behind(room: int, block: bytes) -> memoryview:
    """Returns a block with so many bytes before it, which hold anything."""
    out = np.empty(room + len(block), np.uint8)
    out[room:] = np.frombuffer(block, np.uint8)  # lets other threads run, as long as it takes
    return out.data


def inflated(blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yields text of a gzip stream of one or more members, piece by piece, so that damage costs at most one piece.

    Raises EOFError where the last member does not end, and a zlib error where the stream is damaged; zeros behind a member are padding.
    """
    member = isal_zlib.decompressobj(wbits=31)
    begun = False
    for block in blocks:
        while block:
            if member.eof:
                block = block.lstrip(b"\0")
                if not block:
                    break
                member = isal_zlib.decompressobj(wbits=31)
            begun = True
            piece = member.decompress(block)
            block = member.unused_data if member.eof else b""
            if piece:
                yield piece
    if begun and not member.eof:
        raise EOFError


def head(path: str, limit: int = 1 << 16, fs_options: dict[str, object] | None = None) -> bytes:
    """Returns the first `limit` uncompressed bytes, for recognizing a format. BadInput as for Source."""
    with Source(path, fs_options) as source:
        out = io.BytesIO()
        for block in source.blocks(limit):
            out.write(block)
            if out.tell() >= limit:
                break
        return out.getvalue()[:limit]


def _open(path: str, options: dict[str, object]) -> tuple[BinaryIO, int]:
    if "://" not in path and "::" not in path:
        if os.path.isdir(path):
            raise IsADirectoryError(path)
        handle = open(path, "rb")  # noqa: SIM115  (closed by Source)
        return handle, os.fstat(handle.fileno()).st_size
    import fsspec

    fs, inner = fsspec.core.url_to_fs(path, **options)
    info = fs.info(inner)
    if info.get("type") == "directory":
        raise IsADirectoryError(path)
    return cast(BinaryIO, fs.open(inner, "rb")), int(info.get("size") or 0)


# -- What a long read tells its caller -------------------------------------------------------------------------------


class Progress(msgspec.Struct, frozen=True):
    """bytes_read of total_bytes are of the file as stored (compressed); events so far; stage: reading, linking, done."""

    bytes_read: int
    total_bytes: int
    events: int
    stage: str


Report: TypeAlias = Callable[[Progress], None]
"""Called a few times a second at most; raising from it cancels the read."""
