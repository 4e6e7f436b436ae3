"""Keeps lanes and merged levels of a timeline beside the cache entry of its recording: Arrow files that are mapped, not read.

`timeline.json` says which tracks there are and seals the files; it is written last. What is damaged, of another version or of other events
is built again, never trusted.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tb_sol_plugin.metrics.timeline.timeline import VERSION, Stored
from tb_sol_plugin.metrics.timeline.tracks import Track
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.store import seal
from tb_sol_plugin.store.cache import Cache, stamp
from tb_sol_plugin.tables.pyramid import Level

_LANES: Final = "lanes.arrow"
_LEVELS: Final = "levels.arrow"
_HEAD: Final = "timeline.json"
_COLUMNS: Final = {"start": np.int64, "end": np.int64, "event": np.uint32, "first": np.uint32, "busy": np.int64}
FEWEST: Final = 20_000
"""Events below which lanes are arranged in a few ms: nothing is kept."""


class _Head(msgspec.Struct, frozen=True):
    """root: label of the tracks' first, with which their paths begin. levels: (z, bounds) of each batch. files: size and checksum."""

    version: int
    events: int
    root: str
    tracks: list[Track]
    bounds: list[int]
    levels: list[tuple[int, list[int]]]
    files: dict[str, tuple[int, str]]


class KeptTimeline:
    """The timeline kept beside one entry of the cache. Its methods never raise for reasons of the disk."""

    def __init__(self, cache: Cache, key: str) -> None:
        self._cache, self._key = cache, key

    @property
    def _folder(self) -> Path | None:
        return self._cache.directory / self._key if self._cache.directory is not None and self._cache.has(self._key) else None

    def load(self, root: str, events: int) -> Stored | None:
        """Returns what was kept; None without it, or where it is damaged or of other events. root: label of the first track now."""
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
            head = msgspec.json.decode(body, type=_Head)
            if head.version != VERSION or head.events != events:
                return None
            stamps = [(str(folder / name), stamp(str(folder / name))) for name in (_LANES, _LEVELS)]
            (lanes,) = _batches(folder / _LANES, f"{self._key}/{_LANES}", head.files[_LANES], {"order": np.uint32})
            order, bounds = lanes["order"], np.array(head.bounds, np.int64)
            if len(order) != events or int(bounds[-1]) != events or (len(order) and int(order.max()) >= events):
                raise ValueError("lanes of other events")
            found = _batches(folder / _LEVELS, f"{self._key}/{_LEVELS}", head.files[_LEVELS], _COLUMNS)
            levels = tuple(_level(z, np.array(ends, np.int64), columns) for (z, ends), columns in zip(head.levels, found, strict=True))
        except (ValueError, KeyError, IndexError, OSError, msgspec.MsgspecError, pa.ArrowException) as error:
            seal.report_damage(f"timeline of entry {self._key}", str(error))
            with contextlib.suppress(OSError):
                os.remove(folder / _HEAD)
            return None
        self._cache.watch(self._key, stamps)
        return Stored([_renamed(t, head.root, root) for t in head.tracks], np.asarray(order), bounds, levels)

    def save(self, root: str, stored: Stored) -> bool:
        """Write lanes and levels; False where there is no entry, few events, or the disk does not let us."""
        folder = self._folder
        if folder is None or len(stored.order) < FEWEST:
            return False
        try:
            files = {
                _LANES: self._write(folder, _LANES, [{"order": stored.order}], {"order": np.uint32}),
                _LEVELS: self._write(folder, _LEVELS, [{c: getattr(one, c) for c in _COLUMNS} for one in stored.levels], _COLUMNS),
            }
            levels = [(one.z, one.bounds.tolist()) for one in stored.levels]
            head = _Head(VERSION, len(stored.order), root, stored.tracks, stored.bounds.tolist(), levels, files)
            _replace(folder, _HEAD, seal.sealed(msgspec.json.encode(head), f"{self._key}/timeline"))
        except OSError as error:
            seal.log.warning("a timeline was not kept: %s", error.strerror or type(error).__name__)
            return False
        self._cache.grew(self._key)
        return True

    def _write(self, folder: Path, name: str, batches: list[dict[str, Any]], columns: dict[str, Any]) -> tuple[int, str]:
        schema = pa.schema([pa.field(c, pa.from_numpy_dtype(kind)) for c, kind in columns.items()])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_file(sink, schema) as writer:
            for one in batches:
                writer.write_batch(pa.RecordBatch.from_arrays([pa.array(np.asarray(one[c], k)) for c, k in columns.items()], schema=schema))
        body = sink.getvalue()
        _replace(folder, name, body)
        return body.size, seal.checksum(body, f"{self._key}/{name}")


def _replace(folder: Path, name: str, body: object) -> None:
    handle, partial = tempfile.mkstemp(prefix=f".{name}", dir=folder)
    with os.fdopen(handle, "wb") as stream:
        stream.write(body)  # type: ignore[arg-type]
    os.replace(partial, folder / name)


def _batches(path: Path, name: str, expected: tuple[int, str], columns: dict[str, Any]) -> list[dict[str, npt.NDArray[Any]]]:
    """Returns the columns of each batch as views of the mapped file. ValueError where it is not what was written."""
    size, checksum = expected
    if os.path.getsize(path) != size:
        raise ValueError("another size")
    with open(path, "rb") as stream:
        mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    if seal.checksum(mapped, name) != checksum:
        raise ValueError("another checksum")
    reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(mapped)))
    if reader.schema.names != list(columns):
        raise ValueError("other columns")
    out = []
    for i in range(reader.num_record_batches):
        batch = reader.get_batch(i)
        found = {c: batch.column(c).to_numpy(zero_copy_only=True) for c in columns}
        if any(found[c].dtype != kind for c, kind in columns.items()):
            raise ValueError("columns of another type")
        out.append(found)
    return out


def _level(z: int, bounds: npt.NDArray[np.int64], columns: dict[str, npt.NDArray[Any]]) -> Level:
    if len(bounds) == 0 or int(bounds[-1]) != len(columns["start"]):
        raise ValueError("a level without its lanes")
    return Level(z, columns["start"], columns["end"], columns["event"], columns["first"], columns["busy"], bounds)


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
