"""Walks a root and reads heads of files: `os.scandir` for local folders, fsspec for everything else."""

from __future__ import annotations

import datetime
import os
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from msgspec import Struct

from tb_sol_plugin import format as F
from tb_sol_plugin.store.names import Root

HEAD = 65_536
"""Bytes (unpacked) that tell which kind a file is."""


class Entry(Struct, frozen=True):
    """A file found below a root. `file` is relative to the root, with `/`; `path` opens."""

    file: str
    path: str
    size: int
    mtime: float


class Budget:
    """How much a scan may do. `over` is the reason it stopped, None while it may go on."""

    def __init__(self, seconds: float, files: int) -> None:
        self.deadline = time.monotonic() + seconds if seconds else float("inf")
        self.files_left = files or 1 << 62
        self.seconds = seconds
        self.limit = files
        self.over: str | None = None

    def spend(self, files: int = 1) -> bool:
        """Counts `files` looked at; False when the scan has to stop."""
        self.files_left -= files
        if self.over is None and self.files_left < 0:
            self.over = f"stopped after {self.limit:,} files"
        if self.over is None and time.monotonic() > self.deadline:
            self.over = f"stopped after {self.seconds:g} s"
        return self.over is None


@dataclass
class Walked:
    """Running counts of a walk, and what went wrong (already without local paths)."""

    files: int = 0
    directories: int = 0
    errors: list[str] | None = None

    def error(self, text: str) -> None:
        self.errors = [*(self.errors or []), text][:50]


def walk(root: Root, budget: Budget, counts: Walked, options: Mapping[str, object]) -> Iterator[Entry]:
    """Yields all files below `root`, nearest folders first, until the budget is spent. Errors are counted, not raised."""
    if root.local:
        yield from _walk_local(root, budget, counts)
    else:
        yield from _walk_remote(root, budget, counts, options)


def _walk_local(root: Root, budget: Budget, counts: Walked) -> Iterator[Entry]:
    if os.path.isfile(root.url):
        stat = os.stat(root.url)
        counts.files += 1
        yield Entry(shown(os.path.basename(root.url)), root.url, stat.st_size, stat.st_mtime)
        return
    linked: set[tuple[int, int]] = set()
    pending: deque[tuple[str, str, tuple[tuple[int, int], ...]]] = deque([(root.url, "", ())])
    while pending:
        folder, below, above = pending.popleft()
        try:
            stat = os.stat(folder)
            entries = sorted(os.scandir(folder), key=lambda e: e.name)
        except OSError as error:
            counts.error(f"{below or root.label}: {error.strerror or type(error).__name__}")
            continue
        counts.directories += 1
        here = (*above, (stat.st_dev, stat.st_ino))
        for entry in entries:
            name = f"{below}/{entry.name}" if below else entry.name
            try:
                if entry.is_dir():
                    if not (entry.is_symlink() and _seen(entry, here, linked)):
                        pending.append((entry.path, name, here))
                    continue
                info = entry.stat()
            except OSError as error:
                if not entry.is_symlink():
                    counts.error(f"{name}: {error.strerror or type(error).__name__}")
                continue
            counts.files += 1
            if not budget.spend():
                return
            if entry.is_file():
                yield Entry(shown(name), entry.path, info.st_size, info.st_mtime)
        if not budget.spend(0):
            return


def shown(name: str) -> str:
    """Returns a file name as text that can be sent: bytes that are not UTF-8 are replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _seen(entry: os.DirEntry[str], above: tuple[tuple[int, int], ...], linked: set[tuple[int, int]]) -> bool:
    """Guards against loops: a link to a folder above it, or to a folder another link has led to, is not followed."""
    stat = entry.stat()
    key = (stat.st_dev, stat.st_ino)
    if key in above or key in linked:
        return True
    linked.add(key)
    return False


def _walk_remote(root: Root, budget: Budget, counts: Walked, options: Mapping[str, object]) -> Iterator[Entry]:
    import fsspec

    try:
        fs, base = fsspec.core.url_to_fs(root.url, **options)
        fs.invalidate_cache()
        found = fs.find(base, withdirs=False, detail=True)
    except ImportError as error:
        counts.error(f"{root.label}: {error}")
        return
    except Exception as error:  # a driver raises what it likes; the page shows it
        counts.error(f"{root.label}: {type(error).__name__}: {_first_line(error)}")
        return
    prefix = base.rstrip("/")
    folders: set[str] = set()
    for path, info in sorted(found.items()):
        counts.files += 1
        if not budget.spend():
            break
        below = path[len(prefix) :].lstrip("/") if path.startswith(prefix) else path.lstrip("/")
        below = below or path.rstrip("/").rsplit("/", 1)[-1]
        folders.add(below.rpartition("/")[0])
        yield Entry(below, fs.unstrip_protocol(path), int(info.get("size") or 0), modified(info))
    counts.directories += len(folders)


def modified(info: Mapping[str, object]) -> float:
    """Returns seconds since the epoch of an fsspec listing entry, whatever the driver calls it; 0 where it does not say."""
    for key in ("mtime", "LastModified", "last_modified", "updated", "modified", "timeModified", "created"):
        value = info.get(key)
        if isinstance(value, datetime.datetime):
            return value.timestamp()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if isinstance(value, str):
            try:
                return datetime.datetime.fromisoformat(value.replace("Z", "+00:00")).timestamp()
            except ValueError:
                continue
    return 0.0


def opener(path: str, options: Mapping[str, object]) -> Callable[[], BinaryIO]:
    """Returns a function that opens `path` for reading bytes."""

    def open_it() -> BinaryIO:
        if "://" not in path:
            return open(path, "rb")
        import fsspec

        return cast(BinaryIO, fsspec.open(path, "rb", **options).open())

    return open_it


def inside(path: str, roots: Iterable[str]) -> str | None:
    """Returns the path that a link leads to where that lies below one of the roots; None where it leads out of them.

    Both may be local or fsspec URLs; a remote file has no links. A root that is a link itself is what it leads to.
    """
    own = _on_disk(path)
    if own is None:
        return path
    real = os.path.realpath(own)
    tops = [Path(os.path.realpath(top)) for root in roots if (top := _on_disk(root)) is not None]
    return real if any(Path(real).is_relative_to(top) for top in tops) else None


def _on_disk(path: str) -> str | None:
    """Returns the local path that a path or URL means, None for a remote one."""
    protocol, found, rest = path.rpartition("://")
    if not found:
        return path
    return rest if protocol.rpartition(":")[2] in ("file", "local") else None


def head(path: str, options: Mapping[str, object]) -> bytes:
    """Returns the first 64 kB of a file, unpacked if its magic bytes say gzip. OSError if it cannot be read."""
    with opener(path, options)() as stream:
        raw = stream.read(HEAD)
    if raw[:2] != b"\x1f\x8b":
        return raw
    try:
        return zlib.decompressobj(wbits=31).decompress(raw, HEAD)
    except zlib.error:
        return raw


def stat(path: str, options: Mapping[str, object]) -> tuple[int, float]:
    """Returns size and time of change, now. FileNotFoundError if it is gone."""
    if "://" not in path:
        info = os.stat(path)
        return info.st_size, info.st_mtime
    import fsspec

    fs, inner = fsspec.core.url_to_fs(path, **options)
    fs.invalidate_cache()
    found = fs.info(inner)
    return int(found.get("size") or 0), modified(found)


def _first_line(error: BaseException) -> str:
    from tb_sol_plugin.redact import text

    return text((str(error).splitlines() or [""])[0])[:200]


# -- A SOL capture that was continued in further files is one recording ----------------------------------------------
# its first file's name, the size of all, the latest change.


def stat_parts(path: str, options: Mapping[str, object]) -> tuple[int, float]:
    """Returns size and time of change of a recording, now. FileNotFoundError if it is gone."""
    found = files_of(path, options)
    return sum(size for _, size, _ in found), max(changed for _, _, changed in found)


def files_of(path: str, options: Mapping[str, object]) -> list[tuple[str, int, float]]:
    """Returns (path, size, time of change) of every file of a recording, now, in their order. FileNotFoundError if the first is gone."""
    out = [(path, *stat(path, options))]
    found = F.PART.search(path)
    if found is not None:
        for part in range(int(found["part"] or 0) + 1, F.MOST_PARTS):
            name = f"{path[: found.start()]}.part{part}{found['ending']}"
            try:
                out.append((name, *stat(name, options)))
            except OSError:
                break
    return out


def merged(entries: Iterable[Entry]) -> list[Entry]:
    """Returns one entry per recording: parts that follow each other without a gap are one."""
    out: list[Entry] = []
    by_stem: dict[tuple[str, str], dict[int, Entry]] = {}
    for entry in entries:
        found = F.PART.search(entry.file)
        if found is None:
            out.append(entry)
        else:
            by_stem.setdefault((entry.file[: found.start()], found["ending"]), {})[int(found["part"] or 0)] = entry
    for parts in by_stem.values():
        numbers = sorted(parts)
        first = [n for n in numbers if n - 1 not in parts]
        for start, stop in zip(first, [*first[1:], F.MOST_PARTS], strict=True):
            out.append(_one([parts[n] for n in numbers if start <= n < stop]))
    return out


def _one(parts: Sequence[Entry]) -> Entry:
    head = parts[0]
    return Entry(head.file, head.path, sum(p.size for p in parts), max(p.mtime for p in parts))
