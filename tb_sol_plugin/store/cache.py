"""Keeps captures on disk, so that a file is parsed once: one directory per capture, one file of Arrow tables and one JSON of facts.

The cache is the user's, not the logdir's: it lies under the user's cache directory, keyed by path, size, time of change
and our own versions. An entry is written under a temporary name and renamed, so a reader sees all of it or nothing.
What cannot be written or read is worked around and described in `note`. Nothing of an entry is parsed before its checksums hold:
`facts.json` is sealed under the name of the entry and holds the checksum of the tables; a damaged entry is removed and made again.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from tb_sol_plugin.model import schemas
from tb_sol_plugin.model.capture import Capture, Facts, stored
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store import seal
from tb_sol_plugin.store.options import private
from tb_sol_plugin.tables.schema import Field, Schema
from tb_sol_plugin.tables.table import StoredTable
from tb_sol_plugin.version import __version__

if TYPE_CHECKING:
    from typing_extensions import Buffer

# -- Tables <-> one file ---------------------------------------------------------------------------------------------
# each an Arrow IPC file of a single uncompressed record batch that memory-maps back without a copy, one after the other.
# A file for each would cost more than what is in it, of the many small recordings of a run.
#
# Categories become Arrow dictionaries (code -1 becomes null), booleans are stored as bytes so that they map too.
# The dtype of the categories stands in the field's metadata: what comes back equals what went in.


class Damaged(ValueError):
    """A cache file that is not what was written."""


class Placed(msgspec.Struct, array_like=True, frozen=True):
    """Where a table lies in the file of all tables: its first byte, and how many. rows: of the table."""

    start: int
    size: int
    rows: int


class Sealed(msgspec.Struct, array_like=True, frozen=True):
    """Size and checksum of the file of all tables."""

    size: int
    checksum: str


def write(frames: Mapping[str, tuple[pd.DataFrame, Schema]], path: str) -> tuple[dict[str, Placed], Sealed]:
    """Write the columns that the schemas declare, one table after the other; returns where each lies, and size and checksum of the file."""
    placed = {}
    with open(path, "wb") as stream:
        counted = _Counted(stream)
        for name, (frame, schema) in frames.items():
            counted.write(bytes(-counted.size % ALIGNED))
            begin = counted.size
            _write(frame, schema, counted)
            placed[name] = Placed(begin, counted.size - begin, len(frame))
    return placed, Sealed(counted.size, counted.state.hexdigest())


def _write(frame: pd.DataFrame, schema: Schema, counted: _Counted) -> None:
    arrays, fields = [], []
    for name, declared in schema.fields.items():
        array, note = _to_arrow(frame[name], declared)
        arrays.append(array)
        fields.append(pa.field(name, array.type, metadata={b"sol": note.encode()}))
    batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))
    small = batch.nbytes < AT_ONCE
    counted.begin()
    with pa.BufferOutputStream() if small else pa.PythonFile(counted, "w") as sink:
        with pa.ipc.new_file(sink, batch.schema) as writer:
            writer.write_batch(batch)
        if small:
            counted.write(sink.getvalue())


ALIGNED = 64
"""Bytes to a multiple of which tables begin: their columns lie as Arrow wants them."""
AT_ONCE = 300_000
"""Bytes of a table below which it is written in one piece: each of its columns is several, and each piece goes through Python."""
FILE = "tables.arrow"
"""Name of the file of all tables of an entry."""


class _Counted:
    """A file that counts and sums up what is written to it, without reading it again. `tell` counts from `begin` on."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._begin = self.size = 0
        self.closed = False
        self.state = seal.started(FILE)

    def begin(self) -> None:
        self._begin, self.closed = self.size, False

    def write(self, data: Buffer) -> int:
        self.state.update(data)
        written = memoryview(data).nbytes
        self.size += written
        self._stream.write(data)
        return written

    def flush(self) -> None:
        self._stream.flush()

    def tell(self) -> int:
        return self.size - self._begin

    def close(self) -> None:
        self.closed = True


def mapped(path: str, expected: Sealed) -> mmap.mmap:
    """Returns the mapped file of tables. Damaged if its size or checksum is not the expected one: then nothing of it was parsed."""
    try:
        if os.path.getsize(path) != expected.size:
            raise Damaged("another size")
        with open(path, "rb") as stream:
            found = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise Damaged(error.strerror or type(error).__name__) from None
    if seal.checksum(found, FILE) != expected.checksum:
        raise Damaged("another checksum")
    _let_go(found)
    return found


def _let_go(file: mmap.mmap) -> None:
    """Gives pages back: what was looked at once counts as memory of this process only where it is used."""
    if hasattr(mmap, "MADV_DONTNEED"):
        file.madvise(mmap.MADV_DONTNEED)


def _batch(file: mmap.mmap, place: Placed, schema: Schema) -> pa.RecordBatch:
    try:
        reader = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(memoryview(file)[place.start : place.start + place.size])))
        if reader.num_record_batches != 1:
            raise Damaged("not one record batch")
        batch = reader.get_batch(0)
    except (pa.ArrowException, OSError) as error:
        raise Damaged(str(error)) from None
    if list(batch.schema.names) != list(schema.fields) or batch.num_rows != place.rows:
        raise Damaged("other columns or rows")
    return batch


def read(file: mmap.mmap, place: Placed, schema: Schema) -> pd.DataFrame:
    """Returns a table, its numbers views of the mapped file (read-only). Damaged where it does not fit `schema`."""
    batch = _batch(file, place, schema)
    columns: dict[str, object] = {}
    spelled = 0
    for name, array in zip(schema.fields, batch.columns, strict=True):
        columns[name] = _column(batch, schema, name)
        spelled += array.dictionary.nbytes if pa.types.is_dictionary(array.type) else 0
    if spelled > MANY_TEXTS:
        _let_go(file)  # the texts are Python's by now: two copies of a million long names are 200 MB
    return schema.frame(columns)


def read_column(file: mmap.mmap, place: Placed, schema: Schema, name: str) -> pd.Series:
    """Returns one column of a table, as `read` does."""
    return pd.Series(_column(_batch(file, place, schema), schema, name), copy=False)


def read_numbers(file: mmap.mmap, place: Placed, schema: Schema, name: str) -> npt.NDArray[Any]:
    """Returns the numbers of one column of a table, of texts their codes: without the texts, as `read` does."""
    array = _batch(file, place, schema).column(name)
    values = _codes(array) if schema.fields[name].dtype == "category" else _numbers(array, schema.fields[name])
    values.flags.writeable = False
    return values


def _column(batch: pa.RecordBatch, schema: Schema, name: str) -> Any:
    note = (batch.schema.field(name).metadata or {}).get(b"sol", b"").decode()
    return _from_arrow(batch.column(name), schema.fields[name], note)


MANY_TEXTS = 8_000_000
"""Bytes of texts of a table from which on the pages that held them are given back."""


def _to_arrow(series: pd.Series, declared: Field) -> tuple[pa.Array, str]:
    if declared.dtype != "category":
        values = np.ascontiguousarray(series.to_numpy(dtype=declared.dtype))
        return pa.array(values.view(np.uint8) if values.dtype == np.bool_ else values), declared.dtype
    categorical = series.array
    if not isinstance(categorical, pd.Categorical):
        categorical = pd.Categorical(series)
    codes = np.ascontiguousarray(categorical.codes)
    categories = categorical.categories
    words = pa.array(categories.tolist(), pa.large_string())
    if len(codes) and int(codes.min()) < 0:
        mask = codes < 0
        indices = pa.array(np.where(mask, 0, codes).astype(codes.dtype), mask=mask)
    else:
        indices = pa.array(codes)
    return pa.DictionaryArray.from_arrays(indices, words), "object" if categories.dtype == object else "str"


def _from_arrow(array: pa.Array, declared: Field, note: str) -> object:
    if declared.dtype != "category":
        return _numbers(array, declared)
    codes = _codes(array)
    words = array.dictionary.to_pylist()
    categories = pd.Index(words, dtype=object) if note == "object" else pd.Index(words, dtype="str")
    dtype = pd.CategoricalDtype(categories, ordered=False)
    return pd.Categorical.from_codes(codes, dtype=dtype, validate=False)  # type: ignore[arg-type]


def _numbers(array: pa.Array, declared: Field) -> npt.NDArray[Any]:
    if array.null_count or pa.types.is_dictionary(array.type):
        raise Damaged("nulls in a number column")
    values: npt.NDArray[Any] = array.to_numpy(zero_copy_only=True)
    return values.view(np.bool_) if declared.dtype == "bool" else values


def _codes(array: pa.Array) -> npt.NDArray[np.integer]:
    """Returns the code of each text, -1 for none."""
    if not pa.types.is_dictionary(array.type):
        raise Damaged("not a dictionary")
    indices = array.indices.fill_null(-1) if array.null_count else array.indices
    codes: npt.NDArray[np.integer] = indices.to_numpy(zero_copy_only=True)
    if len(codes) and (int(codes.max()) >= len(array.dictionary) or int(codes.min()) < -1):
        raise Damaged("a code without a word")
    return codes


FORMAT = 5
"""Raised when the layout of an entry or the meaning of a table changes."""
_PARTIAL = ".partial-"
_STALE = 3600.0
_SIZES: dict[str, int] = {}
"""Bytes of entries that were measured: an entry does not change. With a thousand of them measuring takes longer than writing one."""


_ROOM: dict[str, int] = {}
"""Bytes that this process may write into a cache before it is measured again: with a thousand entries that takes 5 ms."""
WRITERS = 64
"""Processes that may write into a cache at one time: each has such a part of the room that there is."""
MUCH = 64_000_000_000
"""Room of a cache without a limit, which is looked through for what broken writers left."""


def key_of(path: str, size: int, mtime: float) -> str:
    """Returns the name of a file's entry. It changes with the file, with the layout and with the version that read it."""
    text = "\0".join((str(FORMAT), __version__, _reader(), _layout(), path, str(size), repr(mtime)))
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()


def cache_key(recording: Recording) -> str:
    """Returns the entry of a recording as it was listed."""
    return key_of(recording.path, recording.size, recording.mtime)


@cache
def _layout() -> str:
    """Returns all tables with their columns and types: another layout, another key."""
    return ";".join(f"{s.name}:{','.join(f'{n}={f.dtype}' for n, f in s.fields.items())}" for s in schemas.ALL.values())


def _reader() -> str:
    """Returns the version that `ingest` gives itself: other rules, other captures."""
    from tb_sol_plugin import ingest

    return str(ingest.FORMAT_VERSION)


class Contents(msgspec.Struct, frozen=True):
    """What `facts.json` of an entry holds. tables: where each that has rows lies in the file that `sealed` describes."""

    tables: dict[str, Placed]
    sealed: Sealed
    facts: Facts


class Cache:
    """A directory of captures. `directory` None keeps nothing. Methods never raise for reasons of the disk."""

    def __init__(self, directory: Path | None, limit_bytes: int = 0) -> None:
        self.directory = directory
        self.limit_bytes = limit_bytes
        self.note = "" if directory else "the cache is switched off"
        self.replaced = 0
        """Raised when tables that were handed out must not be touched any more."""
        self._mapped: dict[str, list[tuple[str, tuple[int, ...]]]] = {}

    def has(self, key: str) -> bool:
        """Whether there is an entry of that name; opening it may still fail."""
        return self.directory is not None and os.path.isfile(self.directory / key / "facts.json")

    def load(self, key: str) -> Capture | None:
        """Returns the capture, its tables mapped from disk; None if there is none or it was damaged (then it is removed)."""
        if not self.has(key) or self.directory is None:
            return None
        folder = self.directory / key
        for last in (False, True):  # the second time for an entry that another server removed or replaced meanwhile
            try:
                found = self._mapped_now(key)
            except (Damaged, msgspec.MsgspecError, OSError, ValueError, KeyError) as error:
                if not folder.is_dir():
                    return None
                if last:
                    self.note = f"a damaged cache entry was read anew ({type(error).__name__})"
                    seal.report_damage(f"entry {key}", str(error.strerror) if isinstance(error, OSError) else str(error))
                    self._drop(folder)
                    return None
            else:
                break
        with contextlib.suppress(OSError):
            os.utime(folder)
        return found

    def _mapped_now(self, key: str) -> Capture:
        """Returns the capture of an entry. Damaged, OSError and what msgspec raises where it is none."""
        assert self.directory is not None
        contents = self._contents(key)
        if not contents.tables:
            return Capture(contents.facts, {})
        path = str(self.directory / key / FILE)
        before = stamp(path)
        file = mapped(path, contents.sealed)
        there = {}
        for name, place in contents.tables.items():
            of = (file, place, schemas.ALL[name])
            there[name] = StoredTable(place.rows, partial(read, *of), partial(read_column, *of), partial(read_numbers, *of))
        self._mapped[key] = [(path, before)]
        return Capture(contents.facts, stored(there, contents.sealed.size, partial(_let_go, file)))

    def changed(self, key: str) -> bool:
        """Whether a file of an entry was changed in place since its tables were mapped: they must not be touched any more.

        Takes a microsecond per table. A file that was removed or replaced stays what it was for who has mapped it.
        """
        for path, (inode, *before) in self._mapped.get(key, ()):
            now, *state = stamp(path)
            if now == inode and state != before:
                seal.report_damage(f"entry {key}", "changed while it was in use")
                self._drop(Path(path).parent)
                self.replaced += 1
                return True
        return False

    def watch(self, key: str, stamps: list[tuple[str, tuple[int, ...]]]) -> None:
        """Look at more mapped files of an entry in `changed`. stamps: path and `stamp` of each from before it was mapped."""
        self._mapped.setdefault(key, []).extend(one for one in stamps if one not in self._mapped.get(key, ()))

    def _contents(self, key: str) -> Contents:
        """Returns what stands in `facts.json` of an entry. Damaged where it is not what was written for that key; OSError."""
        assert self.directory is not None
        body = seal.unsealed((self.directory / key / "facts.json").read_bytes(), f"{key}/facts")
        if body is None:
            raise Damaged("facts: another checksum")
        return msgspec.json.decode(body, type=Contents)

    def facts(self, key: str) -> Facts | None:
        """Returns the facts of an entry alone; None if there is none or it is damaged."""
        if self.directory is None:
            return None
        try:
            return self._contents(key).facts
        except (Damaged, msgspec.MsgspecError, OSError):
            return None

    def write_note(self, key: str, body: bytes) -> None:
        """Keep a short note beside an entry; nothing where there is no entry or the disk does not let us."""
        if not self.has(key) or self.directory is None:
            return
        with contextlib.suppress(OSError):
            handle, partial = tempfile.mkstemp(prefix="note", dir=self.directory / key)
            with os.fdopen(handle, "wb") as stream:
                stream.write(seal.sealed(body, f"{key}/note"))
            os.replace(partial, self.directory / key / "note.json")

    def read_note(self, key: str) -> bytes | None:
        """Returns the note beside an entry, None without one or where it is damaged."""
        if self.directory is None:
            return None
        try:
            raw = (self.directory / key / "note.json").read_bytes()
        except OSError:
            return None
        body = seal.unsealed(raw, f"{key}/note")
        if body is None:
            seal.report_damage(f"note of entry {key}", "another checksum")
            with contextlib.suppress(OSError):
                os.remove(self.directory / key / "note.json")
        return body

    def size_of(self, key: str) -> int:
        """Returns bytes on disk of an entry."""
        return _size(self.directory / key) if self.directory else 0

    def save(self, key: str, capture: Capture) -> bool:
        """Write an entry; False (and a note) if the disk does not let us."""
        if self.directory is None:
            return False
        unnamed = ""
        try:
            private(self.directory)
            unnamed = tempfile.mkdtemp(prefix=_PARTIAL, dir=self.directory)
            placed, sealed = write(
                {name: (table, schemas.ALL[name]) for name, table in capture.tables.items() if len(table)}, os.path.join(unnamed, FILE)
            )
            with open(os.path.join(unnamed, "facts.json"), "wb") as stream:
                stream.write(seal.sealed(msgspec.json.encode(Contents(placed, sealed, capture.facts)), f"{key}/facts"))
            self._put(unnamed, key)
        except OSError as error:
            if unnamed:
                shutil.rmtree(unnamed, ignore_errors=True)
            why = error.strerror or type(error).__name__
            self.note = f"nothing can be kept in the cache directory ({why}); files are read anew each time"
            seal.log.warning(self.note)
            return False
        where = str(self.directory)
        _ROOM[where] = _ROOM.get(where, 0) - self.size_of(key)
        if _ROOM[where] < 0:
            self.evict(keep=key)
        return True

    def _put(self, unnamed: str, key: str) -> None:
        """Give a written entry its name, unless another process was quicker; what is no whole entry there gives way. OSError."""
        assert self.directory is not None
        for left in range(4, -1, -1):
            try:
                return os.rename(unnamed, self.directory / key)
            except OSError:
                if self.load(key) is not None:
                    return shutil.rmtree(unnamed, ignore_errors=True)
                if not left:
                    raise
                self._drop(self.directory / key)

    def evict(self, keep: str = "") -> list[str]:
        """Remove the entries used longest ago until the limit holds, and what broken writers left. Returns their names."""
        if self.directory is None:
            return []
        entries: list[tuple[float, int, Path]] = []
        try:
            for item in os.scandir(self.directory):
                path = Path(item.path)
                used = item.stat().st_mtime
                if item.name.startswith(_PARTIAL):
                    if time.time() - used > _STALE:
                        self._drop(path)
                elif item.path in _SIZES or (path / "facts.json").exists():
                    entries.append((used, _measured(item.path), path))
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
        _ROOM[str(self.directory)] = (self.limit_bytes - total if self.limit_bytes else MUCH) // WRITERS
        return gone

    def remove(self, key: str) -> None:
        """Forget one entry."""
        if self.directory is not None:
            self._drop(self.directory / key)

    def grew(self, key: str) -> None:
        """Measure an entry anew: something was added to it."""
        _SIZES.pop(str(self.directory / key) if self.directory is not None else "", None)

    def _drop(self, folder: Path) -> None:
        _SIZES.pop(str(folder), None)
        self._mapped.pop(folder.name, None)
        gone = folder
        if not folder.name.startswith(_PARTIAL):
            with contextlib.suppress(OSError):  # at once, so that nobody sees half of it and nothing new is removed with it
                gone = folder.rename(folder.with_name(f"{_PARTIAL}{folder.name}-{os.getpid()}-{time.monotonic_ns()}"))
        shutil.rmtree(gone, ignore_errors=True)


def stamp(path: str) -> tuple[int, ...]:
    """Returns (inode, size, time of change) of a file; zeros where it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0, 0)
    return (found.st_ino, found.st_size, found.st_mtime_ns)


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
