"""Holds what a user can set about scanning, caching and reading."""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from pathlib import Path
from typing import Generic, TypeVar

from msgspec import Struct
from msgspec import field as struct_field

GB = 1_000_000_000


class StoreOptions(Struct, frozen=True):
    """Limits of the store. Zero means "no limit" for seconds and bytes.

    cache_dir: None for the user's cache directory, "" for no cache at all. cache_bytes: size at which old entries go.
    workers: processes that read files. worker_bytes: resident memory at which one is ended. load_seconds: its time limit.
    open_bytes: captures kept open, by their tables and what analyses derive of these. scan_seconds, scan_files: budget of one scan.
    fresh_seconds: age at which a listing is renewed when somebody asks for it. fs_options: passed on to fsspec.
    device: limits used where a query names none: a key of the table, an expression, or the path of a device file.
    """

    cache_dir: str | None = None
    cache_bytes: int = 20 * GB
    workers: int = struct_field(default_factory=lambda: min(2, os.cpu_count() or 1))
    worker_bytes: int = 0
    load_seconds: float = 3600.0
    open_bytes: int = 4 * GB
    scan_seconds: float = 20.0
    scan_files: int = 500_000
    fresh_seconds: float = 10.0
    fs_options: Mapping[str, object] = struct_field(default_factory=dict)
    device: str = ""


def cache_directory(chosen: str | None) -> Path | None:
    """Returns where captures are kept: as chosen, else `TB_SOL_CACHE_DIR`, else the user's cache directory; None for nowhere."""
    if chosen is None:
        chosen = os.environ.get("TB_SOL_CACHE_DIR")
    if chosen is None:
        import platformdirs

        found = Path(platformdirs.user_cache_dir("tb-sol-plugin", appauthor=False))
        return found if found.is_absolute() else None  # HOME unset for a user without an account: "~" stays as it is
    return Path(chosen).expanduser() if chosen else None


def private(folder: Path) -> None:
    """Makes a folder, and those above it that are missing, for this user alone; what others may only read is closed to them.

    A folder that a group may write into was shared on purpose: it stays as it is, and its entries are private. OSError as of mkdir.
    """
    missing = []
    at = folder
    while not at.exists() and at != at.parent:
        missing.append(at)
        at = at.parent
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)
    mode = folder.stat().st_mode
    if mode & 0o055 and not mode & 0o022:
        with contextlib.suppress(OSError):  # another user's: its entries are private all the same
            folder.chmod(0o700)


# -- Answers kept in memory ------------------------------------------------------------------------------------------
# least recently used go first, bounded by bytes, computed once however many ask at a time.


V = TypeVar("V")


class Memo(Generic[V]):
    """`get(key, make)` returns what `make` returned for that key before, or calls it. Errors of `make` are not kept.

    size: bytes of a value, for the limit. The value used last stays even where it alone is above the limit. freed: called after values went
    for others; with it, values grow while they are kept, and all are measured again when one comes.
    """

    def __init__(self, limit_bytes: int, size: Callable[[V], int], freed: Callable[[], object] | None = None) -> None:
        self._freed = freed
        self._limit = limit_bytes
        self._size = size
        self._kept: OrderedDict[Hashable, tuple[V, int]] = OrderedDict()
        self._total = 0
        self._lock = threading.Lock()
        self._making: dict[Hashable, threading.Lock] = {}

    def peek(self, key: Hashable) -> V | None:
        """Returns the value if it is there; counts as a use."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def get(self, key: Hashable, make: Callable[[], V]) -> V:
        """Returns the value of `key`, made by `make` if it is not there; only one thread makes it."""
        found = self.peek(key)
        if found is not None:
            return found
        with self.alone(key):
            found = self.peek(key)
            if found is None:
                found = make()
                self.put(key, found)
            return found

    @contextlib.contextmanager
    def alone(self, key: Hashable) -> Iterator[None]:
        """Lets one thread at a time make what belongs to a key. What it was about to make may be there by now."""
        with self._lock:
            making = self._making.setdefault(key, threading.Lock())
        with making:
            try:
                yield
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def put(self, key: Hashable, value: V) -> None:
        """Keep a value, letting older ones go."""
        size = self._size(value)
        with self._lock:
            old = self._kept.pop(key, None)
            self._total -= old[1] if old else 0
            self._kept[key] = (value, size)
            self._total += size
            if self._freed is not None:
                self._kept = OrderedDict((k, (v, self._size(v))) for k, (v, _) in self._kept.items())
                self._total = sum(own for _, own in self._kept.values())
            before = len(self._kept)
            while self._total > self._limit and len(self._kept) > 1:
                self._total -= self._kept.popitem(last=False)[1][1]
            some = len(self._kept) < before
        if some and self._freed is not None:
            self._freed()

    def drop(self, key: Hashable) -> None:
        """Let a value go."""
        with self._lock:
            old = self._kept.pop(key, None)
            self._total -= old[1] if old else 0

    def __contains__(self, key: Hashable) -> bool:
        return key in self._kept

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def total_bytes(self) -> int:
        return self._total
