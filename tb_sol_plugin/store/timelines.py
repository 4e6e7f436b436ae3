"""Keeps the timeline of a recording beside its cache entry: a head, and Arrow files that are mapped and checked one by one, when asked for.

`timeline.json` says which tracks there are and seals the files; it is written last. A file whose bytes are not those that were written is
not parsed: what it held is made again, and kept again by the next process. Of another version or of other events nothing is taken.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa

from tb_sol_plugin.metrics.timeline.kept import VERSION, Head, Part, Stored
from tb_sol_plugin.metrics.timeline.tracks import Track
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.store import seal
from tb_sol_plugin.store.cache import Cache, stamp

_HEAD: Final = "timeline.json"
FEWEST: Final = 20_000
"""Events below which lanes are arranged in a few ms: nothing is kept."""


class _Sealed(msgspec.Struct, frozen=True):
    """The head, and size and checksum of the file of each part."""

    version: int
    events: int
    head: msgspec.Raw
    files: dict[str, tuple[int, str]]


class KeptTimeline:
    """The timeline kept beside one entry of the cache. Its methods never raise for reasons of the disk."""

    def __init__(self, cache: Cache, key: str) -> None:
        self._cache, self._key = cache, key

    @property
    def _folder(self) -> Path | None:
        return self._cache.directory / self._key if self._cache.directory is not None and self._cache.has(self._key) else None

    def load(self, root: str, events: int) -> Stored | None:
        """Returns what was kept; None without it, or where it is of other events. root: label of the first track now.

        Its parts are read when they are asked for.
        """
        folder = self._folder
        if folder is None or events < FEWEST:
            return None
        try:
            body = seal.unsealed((folder / _HEAD).read_bytes(), f"{self._key}/timeline")
        except OSError:
            return None
        try:
            if body is None:
                raise ValueError("another checksum")
            sealed = msgspec.json.decode(body, type=_Sealed)
            if sealed.version != VERSION or sealed.events != events:
                return None
            head = msgspec.json.decode(sealed.head, type=Head)
        except (ValueError, msgspec.MsgspecError) as error:
            self._damaged(folder, str(error))
            return None
        renamed = msgspec.structs.replace(head, root=root, tracks=[_renamed(t, head.root, root) for t in head.tracks])
        parts = _Parts(self, folder, sealed.files)
        return Stored(renamed, parts.take, parts.ahead)

    def read(self, folder: Path, name: str, expected: tuple[int, str]) -> Part | None:
        """Returns the columns of a part as views of its mapped file; None where that is not what was written."""
        path = folder / _file(name)
        try:
            before = stamp(str(path))
            part = _mapped(path, f"{self._key}/{name}", expected)
        except (ValueError, OSError, pa.ArrowException) as error:
            self._damaged(folder, f"{name}: {error.strerror if isinstance(error, OSError) else error}")
            return None
        self._cache.watch(self._key, [(str(path), before)])
        return part

    def _damaged(self, folder: Path, why: str) -> None:
        seal.report_damage(f"timeline of entry {self._key}", why)
        with contextlib.suppress(OSError):
            os.remove(folder / _HEAD)

    def save(self, head: Head, parts: Mapping[str, Part]) -> bool:
        """Write head and parts; False where there is no entry, few events, or the disk does not let us."""
        folder = self._folder
        if folder is None or head.events < FEWEST:
            return False
        try:
            files = {name: self._write(folder, name, part) for name, part in parts.items()}
            sealed = _Sealed(VERSION, head.events, msgspec.Raw(msgspec.json.encode(head)), files)
            _replace(folder, _HEAD, seal.sealed(msgspec.json.encode(sealed), f"{self._key}/timeline"))
        except OSError as error:
            seal.log.warning("a timeline was not kept: %s", error.strerror or type(error).__name__)
            return False
        self._cache.grew(self._key)
        return True

    def _write(self, folder: Path, name: str, part: Part) -> tuple[int, str]:
        sink = pa.BufferOutputStream()
        batch = pa.RecordBatch.from_arrays([pa.array(np.ascontiguousarray(column)) for column in part.values()], names=list(part))
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        body = sink.getvalue()
        _replace(folder, _file(name), body)
        return body.size, seal.checksum(body, f"{self._key}/{name}")


class _Parts:
    """The parts of a timeline; each is read once. files: size and checksum of each."""

    def __init__(self, place: KeptTimeline, folder: Path, files: Mapping[str, tuple[int, str]]) -> None:
        self._place, self._folder, self._files = place, folder, files
        self._taken: dict[str, Part | None] = {}
        self._lock = threading.Lock()

    def take(self, name: str) -> Part | None:
        """Returns a part, None where it was not kept or is damaged."""
        with self._lock:
            if name not in self._taken:
                expected = self._files.get(name)
                self._taken[name] = self._place.read(self._folder, name, expected) if expected is not None else None
            return self._taken[name]


    def ahead(self, names: Iterable[str]) -> None:
        """Lets the system begin to read the files of some parts that were not taken yet."""
        if not hasattr(os, "posix_fadvise"):
            return
        for name in names:
            if name not in self._taken and name in self._files:
                with contextlib.suppress(OSError), open(self._folder / _file(name), "rb", buffering=0) as stream:
                    os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def _file(name: str) -> str:
    return f"timeline-{name}.arrow"


def _replace(folder: Path, name: str, body: object) -> None:
    handle, partial = tempfile.mkstemp(prefix=f".{name}", dir=folder)
    with os.fdopen(handle, "wb") as stream:
        stream.write(body)  # type: ignore[arg-type]
    os.replace(partial, folder / name)


def _mapped(path: Path, name: str, expected: tuple[int, str]) -> Part:
    """Returns the columns of a file as views of its bytes. ValueError where it is not what was written."""
    size, checksum = expected
    if os.path.getsize(path) != size:
        raise ValueError("another size")
    with open(path, "rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    if seal.checksum(mapped, name) != checksum:
        raise ValueError("another checksum")
    batch = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped))).get_batch(0)
    return {column: batch.column(column).to_numpy(zero_copy_only=True) for column in batch.schema.names}


def _renamed(track: Track, old: str, new: str) -> Track:
    """Returns a track with its path below the label that the recording has now."""
    if track.path == old or track.path.startswith(f"{old}/"):
        track.path = new + track.path[len(old) :]
    if track.kind == "worker":
        track.label = new
    return track


def keep(capture: Capture, cache: Cache, key: str) -> None:
    """Lets the timeline of a capture be taken from its cache entry, and be kept there once it is built."""
    from tb_sol_plugin.metrics.timeline.timeline import KEPT

    capture.memo.setdefault(KEPT, KeptTimeline(cache, key))
