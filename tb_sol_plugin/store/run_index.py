"""Keeps the reductions of a run's ranks together, in a few Parquet files with a manifest: those of a thousand ranks are opened at once.

    <cache>/runs/<name>/manifest.json            which file holds which rank, sealed
    <cache>/runs/<name>/ranks-<checksum>.parquet one row per rank: COLUMNS

A rank is kept in a file of its own as soon as it is read (`ReductionFiles`): an index that is interrupted loses only what was being read.
Once all ranks of a run are there, those with files of their own are written as one more Parquet file, and their own files go. A file is
written under a temporary name and renamed, the manifest last, by one writer at a time: a reader sees all of it or what was there before.
"""

from __future__ import annotations

import contextlib
import hashlib
import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Container, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from tb_sol_plugin.model.recordings import Reduced
from tb_sol_plugin.store import seal
from tb_sol_plugin.store.kept import SHARE
from tb_sol_plugin.store.options import private

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from typing_extensions import Buffer

FOLDER: Final = "runs"
FEWEST: Final = 16
"""Ranks with files of their own from which on these are written as one."""
MOST_FILES: Final = 8
"""Files of an index; one more, and all are written as one."""
ROWS_AT_ONCE: Final = 64
"""Ranks in a row group: who wants one rank reads so many."""
LEASE_SECONDS: Final = 60.0
"""A writer that has not finished by then was ended."""
_PARTIAL: Final = ".new-"
_LEASE: Final = "writing"
_MANIFEST: Final = "manifest.json"
_FORMAT: Final = 1

COLUMNS: Final = {
    "rank": "int64", "worker": "string", "span": "string", "file": "string", "host": "string", "device": "string", "world_size": "int64",
    "origin_ns": "int64", "first_ns": "int64", "last_ns": "int64", "missing": "string", "key": "string", "reduction": "binary",
}  # fmt: skip
"""Columns of an index and their Arrow types. missing: what the recording lacks, null where it was read. key, reduction: for this plugin."""


class IndexedRank(NamedTuple):
    """One rank to keep: names of its recording, of its file in the folder, the key of its reduction, and that, encoded."""

    worker: str
    span: str
    file: str
    key: str
    body: bytes


class _File(msgspec.Struct, frozen=True):
    """A Parquet file of an index: its size and checksum, and of each row the key and the file of the recording."""

    size: int
    checksum: str
    keys: tuple[str, ...]
    of: tuple[str, ...]


class _Manifest(msgspec.Struct, frozen=True):
    """The files of an index by name. format: of the files."""

    files: dict[str, _File]
    format: int = _FORMAT


def index_name(folder: str, reducer: str) -> str:
    """Returns the name of the index of the recordings in a folder, in whichever logdir it is shown. reducer: what is reduced from them."""
    return hashlib.blake2b("\0".join((folder, reducer)).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class RunIndexes:
    """The indexes of a cache; None keeps none. limit_bytes: of the whole cache, 0 for none. Methods never raise for reasons of the disk."""

    def __init__(self, cache: Path | None, limit_bytes: int = 0) -> None:
        self.directory = cache / FOLDER if cache is not None else None
        self.limit_bytes = limit_bytes // SHARE

    def load(self, name: str, keys: Sequence[str]) -> dict[str, bytes]:
        """Returns the encoded reductions that an index has, of those asked for. A damaged file is removed: its ranks are read anew."""
        found: dict[str, bytes] = {}
        manifest = self._manifest(name)
        wanted = set(keys)
        for file, known in manifest.files.items():
            if not wanted.isdisjoint(known.keys):
                found.update(self._rows(name, file, known, wanted))
        if found and self.directory is not None:
            with contextlib.suppress(OSError):
                os.utime(self.directory / name)
        return found

    def add(self, name: str, ranks: Sequence[IndexedRank]) -> frozenset[str]:
        """Keeps ranks that an index does not have; returns the keys that it has afterwards. Another writer's turn changes nothing.

        The rows of a file are in the order of ranks: from any executor the same bytes.
        """
        if self.directory is None:
            return frozenset()
        try:
            private(self.directory.parent)
            private(self.directory)
            private(self.directory / name)
            with _lease(self.directory / name / _LEASE) as mine:
                if not mine:
                    return frozenset()
                return self._added(name, ranks)
        except OSError as error:
            seal.log.warning("the index of a run cannot be kept on disk (%s)", error.strerror or type(error).__name__)
            return frozenset()

    def evict(self) -> int:
        """Removes the indexes used longest ago until the limit holds. Returns how many."""
        if self.directory is None or not self.limit_bytes:
            return 0
        found: list[tuple[float, int, str]] = []
        with contextlib.suppress(OSError):
            folders = [item for item in os.scandir(self.directory) if item.is_dir(follow_symlinks=False)]
            found = [(one.stat().st_mtime, sum(file.stat().st_size for file in os.scandir(one.path)), one.path) for one in folders]
        total, gone = sum(size for _, size, _ in found), 0
        for _, size, path in sorted(found):
            if total <= self.limit_bytes:
                break
            shutil.rmtree(path, ignore_errors=True)
            total, gone = total - size, gone + 1
        return gone

    # -- inside --------------------------------------------------------------------------------------------------------

    def _manifest(self, name: str) -> _Manifest:
        """Returns the manifest of an index; an empty one where there is none, or it is not what was written."""
        if self.directory is None:
            return _Manifest({})
        try:
            raw = (self.directory / name / _MANIFEST).read_bytes()
        except OSError:
            return _Manifest({})
        body = seal.unsealed(raw, f"{name}/{_MANIFEST}")
        with contextlib.suppress(msgspec.MsgspecError):
            found = msgspec.json.decode(body or b"", type=_Manifest)
            return found if found.format == _FORMAT else _Manifest({})
        seal.report_damage(f"{FOLDER}/{name}", "another checksum" if body is None else "another form")
        return _Manifest({})

    def _rows(self, name: str, file: str, known: _File, wanted: set[str]) -> Iterator[tuple[str, bytes]]:
        """Returns (key, reduction) of the wanted rows of a file; none of a damaged one."""
        found = self._opened(name, file, known)
        if found is None:
            return
        for group in sorted({at // ROWS_AT_ONCE for at, key in enumerate(known.keys) if key in wanted}):
            table = found.read_row_group(group, columns=["key", "reduction"], use_threads=False)
            for key, body in zip(table["key"].to_pylist(), table["reduction"], strict=True):
                if key in wanted:
                    yield key, body.as_py()

    def _opened(self, name: str, file: str, known: _File) -> pq.ParquetFile | None:
        """Returns a file of an index, mapped; None where it is gone or damaged. Nothing is parsed before its checksum holds."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert self.directory is not None
        path = self.directory / name / file
        try:
            with open(path, "rb") as stream:
                mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):
            return None
        if len(mapped) == known.size and seal.checksum(mapped, file) == known.checksum:
            return pq.ParquetFile(pa.BufferReader(pa.py_buffer(mapped)))
        seal.report_damage(f"{FOLDER}/{name}/{file}", "another checksum")
        with contextlib.suppress(OSError):
            os.remove(path)
        return None

    def _added(self, name: str, ranks: Sequence[IndexedRank]) -> frozenset[str]:
        """Writes what an index does not have as one more file; as one with all of it where there are many files, or it has grown old.

        A row is old where its recording is asked for under another key: it was recorded anew, or has grown. OSError.
        """
        assert self.directory is not None
        folder, manifest = self.directory / name, self._manifest(name)
        files = {file: known for file, known in manifest.files.items() if (folder / file).is_file()}
        keys, of = {one.key for one in ranks}, {one.file for one in ranks}
        old = {key for f in files.values() for key, file in zip(f.keys, f.of, strict=True) if file in of and key not in keys}
        has = {key for known in files.values() for key in known.keys}
        new = [one for one in ranks if one.key not in has]
        if new or files != manifest.files:
            tables = [table_of(new)]
            if len(files) >= MOST_FILES or len(old) > len(keys):
                tables = [*self._kept_rows(name, files, old), *tables]
                files = {}
            if sum(map(len, tables)):
                file, known = _write(folder, tables)
                files[file] = known
            _replace(folder, _MANIFEST, seal.sealed(msgspec.json.encode(_Manifest(files)), f"{name}/{_MANIFEST}"))
        _tidy(folder, files, manifest.files)
        return frozenset(key for known in files.values() for key in known.keys)

    def _kept_rows(self, name: str, files: Mapping[str, _File], old: set[str]) -> list[pa.Table]:
        """Returns the rows of files that are not old, a table per file; none of a damaged one."""
        out = []
        for file, known in files.items():
            found = self._opened(name, file, known)
            if found is not None:
                out.append(found.read(use_threads=False).filter([key not in old for key in known.keys]))
        return out


@contextlib.contextmanager
def _lease(path: Path) -> Iterator[bool]:
    """Yields whether this process is the one that writes: nobody else is, or who was has not finished for long."""
    with contextlib.suppress(OSError):
        if time.time() - path.stat().st_mtime > LEASE_SECONDS:
            path.unlink()
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(OSError):
            path.unlink()


def _tidy(folder: Path, files: Container[str], before: Container[str]) -> None:
    """Removes files that an index has no more, and what a writer that was ended left. before: files that it had. OSError."""
    for item in os.scandir(folder):
        left = item.name not in files and item.name not in (_MANIFEST, _LEASE)
        if left and (item.name in before or time.time() - item.stat().st_mtime > LEASE_SECONDS):
            with contextlib.suppress(OSError):
                os.remove(item.path)


def _write(folder: Path, tables: Sequence[pa.Table]) -> tuple[str, _File]:
    """Writes tables of ranks as one Parquet file; returns its name and what the manifest says of it. OSError."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.concat_tables(tables).combine_chunks()
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, row_group_size=ROWS_AT_ONCE, compression="none", use_dictionary=False,
        write_statistics=[name for name in COLUMNS if name not in ("key", "reduction")],
    )  # fmt: skip
    body = sink.getvalue()
    file = f"ranks-{seal.checksum(body, '')[:16]}.parquet"
    _replace(folder, file, body)
    return file, _File(body.size, seal.checksum(body, file), tuple(table["key"].to_pylist()), tuple(table["file"].to_pylist()))


def table_of(ranks: Sequence[IndexedRank]) -> pa.Table:
    """Returns ranks as a table of COLUMNS."""
    import pyarrow as pa

    columns: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    for one in ranks:
        made = msgspec.msgpack.decode(one.body, type=Reduced)
        f = made.facts
        row: Mapping[str, Any] = {
            "rank": f.rank, "worker": one.worker, "span": one.span, "file": one.file, "host": f.host_name or None,
            "device": ", ".join(f.devices) or None, "world_size": f.world_size, "origin_ns": f.origin_ns, "first_ns": f.extent_ns[0],
            "last_ns": f.extent_ns[1], "missing": made.missing.because if made.missing is not None else None, "key": one.key,
            "reduction": one.body,
        }  # fmt: skip
        for name, values in columns.items():
            values.append(row[name])
    types = {"int64": pa.int64(), "string": pa.string(), "binary": pa.binary()}
    return pa.table({name: pa.array(values, types[COLUMNS[name]]) for name, values in columns.items()})


def _replace(folder: Path, name: str, body: Buffer) -> None:
    """Writes a file under a temporary name and renames it. OSError."""
    handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=folder)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(body)
        os.replace(partial, folder / name)
    except OSError:
        with contextlib.suppress(OSError):
            os.remove(partial)
        raise
