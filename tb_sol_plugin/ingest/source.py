"""Bytes of a recording: local or through fsspec, gunzipped by their magic bytes whatever the file's ending."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator
from typing import BinaryIO, cast

import fsspec
from isal import igzip

from tb_sol_plugin.errors import BadInput

BLOCK = 1 << 20


def base_name(path: str) -> str:
    """The last part of a path or URL: the only part of it that messages show."""
    return path.rstrip("/").replace("\\", "/").rpartition("/")[2] or path


class Source:
    """A file being read once, front to back.

    `blocks()` yields uncompressed bytes. `position` counts stored bytes read, `size` is the stored size (0 unknown),
    `truncated` says how a compressed stream ended too early ("" if it did not). Raises BadInput for what cannot be opened.
    """

    def __init__(self, path: str, fs_options: dict[str, object] | None = None) -> None:
        self.path = path
        self.name = base_name(path)
        self.truncated = ""
        self.produced = 0
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

    @property
    def position(self) -> int:
        """Stored bytes read so far."""
        try:
            return self._raw.tell()
        except (OSError, ValueError):
            return self.size

    def __enter__(self) -> Source:
        return self

    def __exit__(self, *_: object) -> None:
        self._raw.close()

    def blocks(self, size: int = BLOCK) -> Iterator[bytes]:
        """Uncompressed blocks; a damaged or truncated gzip stream gives what it held and sets `truncated`."""
        try:
            magic = self._raw.read(2)
            self._raw.seek(0)
        except OSError as error:
            raise BadInput(f"reading failed: {type(error).__name__}", hint="check the disk or the connection", file=self.name) from None
        stream: BinaryIO = self._raw
        if magic == b"\x1f\x8b":
            stream = cast(BinaryIO, igzip.IGzipFile(fileobj=self._raw, mode="rb"))
        while True:
            try:
                block = stream.read(size)
            except EOFError:
                self.truncated = f"the gzip stream ends too early, after {self.produced:,} bytes of text"
                return
            except (OSError, zlib.error, igzip.BadGzipFile) as error:
                if self.produced == 0 and not isinstance(error, igzip.BadGzipFile | zlib.error):
                    raise BadInput(
                        f"reading failed: {type(error).__name__}", hint="check the disk or the connection", file=self.name
                    ) from None
                self.truncated = f"the gzip stream is damaged after {self.produced:,} bytes of text"
                return
            except Exception as error:
                if type(error).__module__.startswith("isal"):
                    self.truncated = f"the gzip stream is damaged after {self.produced:,} bytes of text"
                    return
                raise
            if not block:
                return
            self.produced += len(block)
            yield block


def head(path: str, limit: int = 1 << 16, fs_options: dict[str, object] | None = None) -> bytes:
    """The first `limit` uncompressed bytes, for recognising a format. BadInput as for Source."""
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
    fs, inner = fsspec.core.url_to_fs(path, **options)
    info = fs.info(inner)
    if info.get("type") == "directory":
        raise IsADirectoryError(path)
    return cast(BinaryIO, fs.open(inner, "rb")), int(info.get("size") or 0)
