"""Captures on disk, so that a file is parsed once: one directory per capture, Arrow tables and one JSON of facts.

The cache is the user's, not the logdir's: it lies under the user's cache directory, keyed by path, size, time of change
and our own versions. An entry is written under a temporary name and renamed, so a reader sees all of it or nothing.
What cannot be written or read is worked around and told in `note`; a damaged entry is removed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

import msgspec

from tb_sol_plugin import __version__
from tb_sol_plugin.model import schemas
from tb_sol_plugin.model.capture import Capture, Facts
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store import arrow

FORMAT = 1
"""Raised when the layout of an entry or the meaning of a table changes."""
_PARTIAL = ".partial-"
_STALE = 3600.0
_SIZES: dict[str, int] = {}
"""Bytes of entries that were measured: an entry does not change. With a thousand of them measuring takes longer than writing one."""


def key_of(path: str, size: int, mtime: float) -> str:
    """The name of a file's entry. It changes with the file, with the layout and with the version that read it."""
    text = "\0".join((str(FORMAT), __version__, _reader(), _layout(), path, str(size), repr(mtime)))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def cache_key(recording: Recording) -> str:
    """The entry of a recording as it was listed."""
    return key_of(recording.path, recording.size, recording.mtime)


@cache
def _layout() -> str:
    """All tables with their columns and types: another layout, another key."""
    return ";".join(f"{s.name}:{','.join(f'{n}={f.dtype}' for n, f in s.fields.items())}" for s in schemas.ALL.values())


def _reader() -> str:
    """The version that `ingest` gives itself: other rules, other captures."""
    from tb_sol_plugin import ingest

    return str(ingest.FORMAT_VERSION)


class Cache:
    """A directory of captures. `directory` None keeps nothing. Methods never raise for reasons of the disk."""

    def __init__(self, directory: Path | None, limit_bytes: int = 0) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self.note = "" if directory else "the cache is switched off"

    def has(self, key: str) -> bool:
        """Whether there is an entry of that name; opening it may still fail."""
        return self.directory is not None and os.path.isfile(self.directory / key / "facts.json")

    def load(self, key: str) -> Capture | None:
        """The capture, its tables mapped from disk; None if there is none or it was damaged (then it is removed)."""
        if not self.has(key) or self.directory is None:
            return None
        folder = self.directory / key
        try:
            facts = msgspec.json.decode((folder / "facts.json").read_bytes(), type=Facts)
            tables = {name: arrow.read(str(folder / f"{name}.arrow"), schema) for name, schema in schemas.ALL.items()}
        except FileNotFoundError:
            self._drop(folder)
            return None
        except (arrow.Damaged, msgspec.MsgspecError, OSError, ValueError, KeyError) as error:
            self.note = f"a damaged cache entry was read anew ({type(error).__name__})"
            self._drop(folder)
            return None
        with contextlib.suppress(OSError):
            os.utime(folder)
        return Capture(facts, tables)

    def facts(self, key: str) -> Facts | None:
        """The facts of an entry alone; None if there is none or it is damaged."""
        if self.directory is None:
            return None
        try:
            return msgspec.json.decode((self.directory / key / "facts.json").read_bytes(), type=Facts)
        except (msgspec.MsgspecError, OSError):
            return None

    def size_of(self, key: str) -> int:
        """Bytes on disk of an entry."""
        return _size(self.directory / key) if self.directory else 0

    def save(self, key: str, capture: Capture) -> bool:
        """Write an entry; False (and a note) if the disk does not let us."""
        if self.directory is None:
            return False
        partial = ""
        try:
            self.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            partial = tempfile.mkdtemp(prefix=_PARTIAL, dir=self.directory)
            for name, schema in schemas.ALL.items():
                arrow.write(capture.tables[name], schema, os.path.join(partial, f"{name}.arrow"))
            with open(os.path.join(partial, "facts.json"), "wb") as stream:
                stream.write(msgspec.json.encode(capture.facts))
            os.rename(partial, self.directory / key)
        except OSError as error:
            if partial:
                shutil.rmtree(partial, ignore_errors=True)
            if self.has(key):
                return True  # another process was quicker
            self.note = (
                f"nothing can be kept in the cache directory ({error.strerror or type(error).__name__}); files are read anew each time"
            )
            return False
        self.evict(keep=key)
        return True

    def evict(self, keep: str = "") -> list[str]:
        """Remove the entries used longest ago until the limit holds, and what broken writers left. Returns their names."""
        if self.directory is None:
            return []
        entries: list[tuple[float, int, Path]] = []
        try:
            for item in os.scandir(self.directory):
                path = Path(item.path)
                stamp = item.stat().st_mtime
                if item.name.startswith(_PARTIAL):
                    if time.time() - stamp > _STALE:
                        self._drop(path)
                elif item.path in _SIZES or (path / "facts.json").exists():
                    entries.append((stamp, _measured(item.path), path))
        except OSError:
            return []
        total = sum(size for _, size, _ in entries)
        gone = []
        for _, size, path in sorted(entries):
            if not self.limit_bytes or total <= self.limit_bytes:
                break
            if path.name != keep:
                self._drop(path)
                gone.append(path.name)
                total -= size
        return gone

    def remove(self, key: str) -> None:
        """Forget one entry."""
        if self.directory is not None:
            self._drop(self.directory / key)

    def _drop(self, folder: Path) -> None:
        _SIZES.pop(str(folder), None)
        shutil.rmtree(folder, ignore_errors=True)


def _measured(path: str) -> int:
    if path not in _SIZES:
        _SIZES[path] = _size(Path(path))
    return _SIZES[path]


def _size(folder: Path) -> int:
    total = 0
    with contextlib.suppress(OSError):
        for item in os.scandir(folder):
            total += item.stat().st_size
    return total
