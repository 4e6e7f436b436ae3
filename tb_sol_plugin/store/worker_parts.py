"""What analyses over the workers of a run need of each: made where the capture is opened, and kept on disk.

The files stand beside the captures of the cache, not inside their entries: a thousand captures may be larger than the cache, and
their parts must outlast them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import msgspec

from tb_sol_plugin.devices.spec import EMPTY, DeviceBook
from tb_sol_plugin.errors import BadInput, SolError, StillLoading
from tb_sol_plugin.model.recordings import Recording, Reduced, Reducer, WorkerPart, natural
from tb_sol_plugin.store import files
from tb_sol_plugin.store.cache import cache_key
from tb_sol_plugin.store.join import OF_MEMORY, SOL_CAPTURE, beside_of, companions, state_of, told_with_another
from tb_sol_plugin.store.load import open_here
from tb_sol_plugin.store.names import rank_in
from tb_sol_plugin.store.options import StoreOptions, cache_directory

P = TypeVar("P", bound=msgspec.Struct)

LARGEST: Final = 2 << 20
"""Bytes of one encoded part at most."""
FOLDER: Final = "parts"
KEEP: Final = 20
"""Of the size that the cache may have, parts get the twentieth part."""
_PARTIAL: Final = ".new-"
_STALE: Final = 3600.0


@dataclass(frozen=True)
class Wanted:
    """The part of one recording. beside: recordings whose tables are joined to it before, or may be: all of its run.

    key: the name under which the part is kept; changes with the files, the reducer and the device files.
    """

    recording: Recording
    reducer: Reducer
    key: str
    devices: DeviceBook = EMPTY
    beside: tuple[Recording, ...] = ()


class MadePart(NamedTuple):
    """body: a `Reduced`, encoded. kept: whether it stands on disk."""

    body: bytes
    kept: bool


class PartFiles:
    """A directory of parts; None keeps nothing. Methods never raise for reasons of the disk."""

    def __init__(self, cache: Path | None, limit_bytes: int = 0) -> None:
        self.directory = cache / FOLDER if cache is not None else None
        self.limit_bytes = limit_bytes // KEEP

    def load(self, key: str) -> bytes | None:
        """An encoded part; None if there is none or it is damaged (then it is removed)."""
        if self.directory is None:
            return None
        path = self._path(key)
        try:
            body = path.read_bytes()
        except OSError:
            return None
        if _decoded(body) is None:
            _remove(str(path))
            return None
        with contextlib.suppress(OSError):
            os.utime(path)
        return body

    def save(self, key: str, body: bytes) -> bool:
        """Write a part under a temporary name and rename it; False if the disk does not let us."""
        if self.directory is None:
            return False
        path, partial = self._path(key), ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, partial = tempfile.mkstemp(prefix=_PARTIAL, dir=path.parent)
            with os.fdopen(handle, "wb") as stream:
                stream.write(body)
            os.replace(partial, path)
        except OSError:
            if partial:
                _remove(partial)
            return False
        return True

    def evict(self) -> int:
        """Remove the parts used longest ago until the limit holds, and what broken writers left. Returns how many."""
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


def make_part(wanted: Wanted, options: StoreOptions) -> MadePart:
    """The part of a recording, from disk or made now; then its capture is read into the cache, and let go.

    A plain function of plain data, as `read_capture` is. Raises the errors of a read; BadInput where the part is too large.
    """
    kept = PartFiles(cache_directory(options.cache_dir), options.cache_bytes)
    body = kept.load(wanted.key)
    if body is not None:
        return MadePart(body, True)
    recording = wanted.recording
    capture = open_here(recording, options, wanted.devices, wanted.beside)
    body = msgspec.msgpack.encode(wanted.reducer(capture))
    if len(body) > LARGEST:
        what = f"what is to be compared of this worker is larger than {LARGEST >> 20} MiB"
        raise BadInput(what, hint="choose fewer steps", file=recording.file)
    return MadePart(body, _unchanged(recording, options) and kept.save(wanted.key, body))


def _unchanged(recording: Recording, options: StoreOptions) -> bool:
    """Whether the file is still what the key says: it may have grown while it was read."""
    try:
        return files.stat_parts(recording.path, options.fs_options) == (recording.size, recording.mtime)
    except OSError:
        return False


# -- which recordings ------------------------------------------------------------------------------------------------


def spans_like(recordings: Sequence[Recording], shown: Recording) -> list[tuple[str, Recording | None]]:
    """Of every worker of a run the recording that goes with the one shown, in natural order: the k-th where that is its worker's k-th.

    Recordings are of the kind of the one shown where a worker has such. A SOL capture that a trace tells already is no worker of its
    own beside traces. None for a worker that has no k-th recording.
    """
    chosen = of_workers(recordings, shown.kind)
    place = [r.span for r in chosen[shown.worker]].index(shown.span)
    return [(worker, own[place] if place < len(own) else None) for worker, own in chosen.items()]


def of_workers(recordings: Sequence[Recording], kind: str) -> dict[str, list[Recording]]:
    """The recordings of a run by worker, both in natural order: of that kind where a worker has such, else all of its own.

    A SOL capture that a trace tells already is no worker of its own beside traces, nor is memory that is shown with another recording.
    """
    pairs = companions(tuple(recordings))
    hidden = told_with_another(recordings) | {pairs[r] for r in recordings if r.kind == kind and r in pairs}
    of_worker: dict[str, list[Recording]] = {}
    for recording in recordings:
        if recording.kind == kind or recording not in hidden:
            of_worker.setdefault(recording.worker, []).append(recording)
    out = {}
    for worker in sorted(of_worker, key=natural):
        own = [r for r in of_worker[worker] if r.kind == kind] or of_worker[worker]
        out[worker] = sorted(own, key=lambda r: natural(r.span))
    return out


def of_runs(runs: Mapping[str, Sequence[Recording]]) -> list[Recording]:
    """Of every worker of every run its latest recording, a trace where there is one, in natural order."""
    return [own[-1] for recordings in runs.values() for own in of_workers(recordings, "kineto").values()]


def wanted_of(
    chosen: Sequence[Recording],
    reducer: Reducer,
    *,
    devices: DeviceBook = EMPTY,
    recordings: Sequence[Recording] = (),
) -> list[Wanted]:
    """What to ask for some recordings. recordings: of the run, where parts read the tables of what stands beside them."""
    every = tuple(r for r in recordings if r.kind in (SOL_CAPTURE, *OF_MEMORY))
    whole = state_of(every, cache_key)
    out = []
    for recording in chosen:
        named = tuple(beside_of(recording, recordings))
        # where no name tells which one it is, the header of the trace may, once it is read
        sure = recording.kind == SOL_CAPTURE or {r.kind for r in named} == {r.kind for r in every}
        beside = named if sure else tuple(recordings)
        state = state_of(named, cache_key) if sure else whole
        rest = "\0".join((reducer.key, devices.fingerprint, state))
        key = f"{cache_key(recording)}-{hashlib.blake2b(rest.encode(), digest_size=10).hexdigest()}"
        out.append(Wanted(recording, reducer, key, devices, beside))
    return out


# -- as analyses get them --------------------------------------------------------------------------------------------


def worker_part(
    worker: str,
    recording: Recording,
    key: str,
    body: bytes,
    decode: Callable[[bytes], P],
    again: Callable[[], bytes | None] | None = None,
) -> WorkerPart[P]:
    """What an analysis gets of a recording whose part was made. again: fetches the encoded part when it is looked at; None keeps it."""
    made = _decoded(body)
    if made is None:
        return no_part(worker, recording, BadInput("what was kept of this worker is damaged", hint="scan again"))
    facts, missing = made.facts, made.missing
    rank = rank_in(worker) if facts.rank is None else facts.rank

    def fetched() -> bytes:
        found = _decoded((again() if again is not None else body) or b"")
        if found is None:
            raise StillLoading("what was read of a worker vanished from the cache", hint="ask again", file=recording.file)
        return found.body

    if missing is not None:
        why = (missing.because, missing.record_it_with, missing)
        return WorkerPart(worker, recording.span, recording.file, "lacking", rank, facts, *why, key=key, run=recording.run)
    return WorkerPart(worker, recording.span, recording.file, "read", rank, facts, key=key, run=recording.run, body=fetched, decode=decode)


def no_part(worker: str, recording: Recording | None, error: SolError | None = None) -> WorkerPart[P]:
    """What an analysis gets of a recording without a part: it failed, or is being read (no error); of a worker without a recording."""
    rank = rank_in(worker)
    if recording is None:
        return WorkerPart(worker, "", "", "failed", rank, problem="this worker has fewer recordings than the one shown")
    if error is None:
        return WorkerPart(worker, recording.span, recording.file, "waiting", rank, run=recording.run)
    return WorkerPart(worker, recording.span, recording.file, "failed", rank, problem=error.message, hint=error.hint, run=recording.run)


def _decoded(body: bytes) -> Reduced | None:
    try:
        return msgspec.msgpack.decode(body, type=Reduced)
    except (msgspec.MsgspecError, ValueError):
        return None
