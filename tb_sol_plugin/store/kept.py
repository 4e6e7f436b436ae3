"""Keeps on disk what was made of recordings: one sealed file each, beside the captures of the cache.

The files stand outside the entries of captures: a thousand captures may be larger than the cache, and what was made of them must outlast
them. Those used longest ago go first.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import tempfile
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

from tb_sol_plugin.store import seal
from tb_sol_plugin.store.options import private
from tb_sol_plugin.version import __version__

SHARE: Final = 20
"""Each kind gets one twentieth of the size that the cache may have."""
_PARTIAL: Final = ".new-"
_STALE: Final = 3600.0
_PIECE: Final = 1 << 20
_CODE: Final = (".py", ".csv", ".json")


class KeptFiles:
    """Small files by key in a folder of the cache; cache None keeps nothing. Methods never raise for reasons of the disk.

    folder: its name there. limit_bytes: of the whole cache, 0 for none. whole: whether bytes that passed their checksum are of the form
    that was written.
    """

    def __init__(self, cache: Path | None, folder: str, limit_bytes: int = 0, whole: Callable[[bytes], bool] = lambda body: True) -> None:
        self.directory = cache / folder if cache is not None else None
        self.folder = folder
        self.limit_bytes = limit_bytes // SHARE
        self._whole = whole
        self._said = False

    def load(self, key: str) -> bytes | None:
        """Returns what was saved under a key; None if there is none or it is damaged (then it is removed)."""
        if self.directory is None:
            return None
        path = self._path(key)
        try:
            body = seal.unsealed(path.read_bytes(), key)
        except OSError:
            return None
        if body is None or not self._whole(body):
            seal.report_damage(f"{self.folder}/{key}", "another checksum" if body is None else "another form")
            _remove(str(path))
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return body

    def mapped(self, key: str) -> memoryview | None:
        """Returns the same, mapped from its file: what nobody looks at takes no memory. It outlasts the file."""
        if self.directory is None:
            return None
        path, head = self._path(key), seal.length()
        try:
            with open(path, "rb") as stream:
                first, state = stream.read(head), seal.started(key)
                while piece := stream.read(_PIECE):
                    state.update(piece)
                if first == seal.first_line(state):
                    os.utime(path)
                    return memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))[head:]
        except (OSError, ValueError):
            return None
        seal.report_damage(f"{self.folder}/{key}", "another checksum")
        _remove(str(path))
        return None

    def there(self, key: str) -> bool:
        """Whether something was saved under a key: what another machine has written may not be."""
        return self.directory is not None and self._path(key).is_file()

    def save(self, key: str, *pieces: bytes | memoryview) -> bool:
        """Write pieces that follow one another under a temporary name and rename it; False if the disk does not let us."""
        if self.directory is None:
            return False
        path, partial = self._path(key), ""
        try:
            for folder in (self.directory.parent, self.directory, path.parent):
                private(folder)
            handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=path.parent)
            with os.fdopen(handle, "wb") as stream:
                state = seal.started(key)
                for piece in pieces:
                    state.update(piece)
                stream.writelines((seal.first_line(state), *pieces))
            os.replace(partial, path)
        except OSError as error:
            if partial:
                _remove(partial)
            if not self._said:
                seal.log.warning("%s cannot be kept on disk (%s)", self.folder, error.strerror or type(error).__name__)
                self._said = True
            return False
        return True

    def remove(self, key: str) -> None:
        """Forget what was saved under a key."""
        if self.directory is not None:
            _remove(str(self._path(key)))

    def evict(self) -> int:
        """Remove the files used longest ago until the limit holds, and what broken writers left. Returns how many."""
        found: list[tuple[float, int, str]] = []
        gone = 0
        for folder in self._folders():
            with contextlib.suppress(OSError):
                for item in os.scandir(folder):
                    info = item.stat()
                    if item.name.startswith(_PARTIAL):
                        gone += time.time() - info.st_mtime > _STALE and _remove(item.path)
                    else:
                        found.append((info.st_mtime, info.st_size, item.path))
        total = sum(size for _, size, _ in found)
        for _, size, path in sorted(found):
            if not self.limit_bytes or total <= self.limit_bytes:
                break
            gone += _remove(path)
            total -= size
        return gone

    def _folders(self) -> list[str]:
        if self.directory is None:
            return []
        try:
            return [item.path for item in os.scandir(self.directory) if item.is_dir()]
        except OSError:
            return []

    def _path(self, key: str) -> Path:
        assert self.directory is not None
        return self.directory / key[:2] / f"{key}.part"


def _remove(path: str) -> bool:
    try:
        os.remove(path)
    except OSError:
        return False
    return True


@cache
def code_state() -> str:
    """Returns a short hash of this package as it is installed: version, and names, sizes and times of its code and tables.

    What code makes of a recording is kept under it: other code makes it anew. Some milliseconds, once per process.
    """
    root = str(Path(__file__).resolve().parents[1])
    found: list[tuple[str, int, int]] = []
    folders = [root]
    while folders:
        with contextlib.suppress(OSError), os.scandir(folders.pop()) as items:
            for item in items:
                if item.is_dir(follow_symlinks=False):
                    folders.append(item.path)
                elif item.name.endswith(_CODE):
                    info = item.stat()
                    found.append((item.path, info.st_size, info.st_mtime_ns))
    return hashlib.blake2b(repr((__version__, sorted(found))).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
