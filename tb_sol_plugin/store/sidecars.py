"""Reads files that a person puts next to recordings: small text files by name, scalars of event files, and device files.

Text files are looked for in a logdir itself and in the folders of its runs. A name `scalar:TAG` asks for the last value of a scalar
that the program wrote for TensorBoard; all that are found in a folder are one text, `{"scalars": {TAG: value}}`, under the name
`event files`. Folders on a remote have none: each look would fetch the files whole.

Device files: the reader's own, one next to the recordings, one named on the command line. They are read again when they change.
TensorBoard imports this at every start: what reads a device file is imported when there is one.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import stat as modes
import struct
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tb_sol_plugin.devices import places
from tb_sol_plugin.devices.places import NAMES, user_file
from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.model.recordings import Recording
from tb_sol_plugin.store import files
from tb_sol_plugin.store.names import basename, is_url

if TYPE_CHECKING:
    from tb_sol_plugin.devices.files import DeviceFile
    from tb_sol_plugin.devices.spec import DeviceBook, Place
    from tb_sol_plugin.model.recordings import Sidecar


# -- last values of a few scalars, out of the event files in a folder on this machine --------------------------------
# An event file is a row of records: length (8 bytes, little-endian), its checksum (4), the event, its checksum (4). Files that do not
# name a scalar that is asked for are passed over without decoding anything.


Values = dict[str, tuple[int, float]]
"""Tag -> (step, value) of the last step."""

LARGEST_EVENTS_FILE: Final = 256 * 1024 * 1024
"""Bytes of an event file at most: larger ones are passed over."""
MOST_FILES: Final = 16
"""The newest ones of a folder."""
MOST_EVENT: Final = 64 * 1024
"""Bytes of an event with a scalar at most: larger ones hold images or graphs."""
_LENGTH: Final = struct.Struct("<Q")
_FRAME: Final = 16


class Scalars:
    """Reads and remembers, by size and time of change. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[tuple[str, int, int, tuple[str, ...]], Values] = {}

    def last(self, folder: str, tags: Sequence[str]) -> dict[str, float]:
        """Returns for each tag the finite value of its last step over the folder's event files; tags without one are missing. Never
        raises.
        """
        wanted, found = tuple(tags), Values()
        for path, size, changed in _event_files(folder):
            key = (path, size, changed, wanted)
            with self._lock:
                known = self._known.get(key)
            if known is None:
                known = _read(path, wanted)
                with self._lock:
                    if len(self._known) > 4096:
                        self._known.clear()
                    self._known[key] = known
            found |= {tag: new for tag, new in known.items() if tag not in found or new[0] >= found[tag][0]}
        return {tag: value for tag, (_, value) in found.items()}


def _event_files(folder: str) -> list[tuple[str, int, int]]:
    """Returns (path, size, time of change) of the newest event files, the oldest first."""
    out = []
    try:
        with os.scandir(folder) as items:
            for item in items:
                if "tfevents" in item.name and item.is_file(follow_symlinks=False):
                    info = item.stat(follow_symlinks=False)
                    if 0 < info.st_size <= LARGEST_EVENTS_FILE:
                        out.append((item.path, info.st_size, info.st_mtime_ns))
    except OSError:
        return []
    return sorted(out, key=lambda one: (one[2], one[0]))[-MOST_FILES:]


def _read(path: str, tags: tuple[str, ...]) -> Values:
    """Returns what one file says of the tags; a record that is cut off or is none ends it."""
    try:
        with Path(path).open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as body:
            if all(body.find(tag.encode()) < 0 for tag in tags):
                return {}
            return _scalars_decoded(body, {tag.encode(): tag for tag in tags})
    except (OSError, ValueError):
        return {}


def _scalars_decoded(body: mmap.mmap, tags: dict[bytes, str]) -> Values:
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorboard.compat.proto.event_pb2 import Event

    out: Values = {}
    at = 0
    while at + _FRAME <= len(body):
        (length,) = _LENGTH.unpack_from(body, at)
        end = at + _FRAME + length
        if end > len(body):
            break
        event = body[at + 12 : end - 4] if length <= MOST_EVENT else b""
        at = end
        if not any(tag in event for tag in tags):
            continue
        try:
            read = Event.FromString(event)
        except DecodeError:
            break
        for one in read.summary.value:
            if one.tag.encode() in tags and (value := _number(one)) is not None and (one.tag not in out or read.step >= out[one.tag][0]):
                out[one.tag] = (read.step, value)
    return out


def _number(one: object) -> float | None:
    """Returns the number of a summary's value: written as such, or as a tensor of one element; None if it is not finite or is none."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.util import tensor_util

    assert isinstance(one, Summary.Value)
    value = float("nan")
    if one.HasField("simple_value"):
        value = float(one.simple_value)
    elif one.HasField("tensor"):
        try:
            array = tensor_util.make_ndarray(one.tensor)
            value = float(array.item()) if array.size == 1 else value
        except (TypeError, ValueError):
            return None
    return value if math.isfinite(value) else None


LARGEST: Final = 4 * 1024 * 1024
"""Bytes of one at most."""
MOST_FOLDERS: Final = 500
SCALAR: Final = "scalar:"
EVENTS: Final = "event files"
REMOTE_SECONDS: Final = 30.0
"""A look at a remote folder holds for so long."""


class SidecarFiles:
    """Looks for files by name and reads them. Thread-safe. Runs on a remote are not looked into one by one: only their logdir is."""

    def __init__(self, fs_options: Mapping[str, object] | None = None) -> None:
        self._options = dict(fs_options or {})
        self._lock = threading.Lock()
        self._remote: dict[str, tuple[float, str | None, str]] = {}
        self._scalars = Scalars()

    def texts(self, folders: Sequence[tuple[str, str]], names: Sequence[str]) -> list[Sidecar]:
        """Returns those that are there, in order. folders: (run, local path or URL); run "" for a logdir."""
        from tb_sol_plugin.model.recordings import Sidecar  # with pandas, which a server starts without

        out = []
        tags = [name[len(SCALAR) :] for name in names if name.startswith(SCALAR)]
        plain = [name for name in names if not name.startswith(SCALAR)]
        for run, folder in folders[:MOST_FOLDERS]:
            found = self._scalars.last(folder, tags) if tags and not is_url(folder) else {}
            if found:
                out.append(Sidecar(run, f"{run}/{EVENTS}" if run else EVENTS, json.dumps({"scalars": found})))
            for name in plain:
                text, problem = self._remotely(folder, name) if is_url(folder) else self._locally(os.path.join(folder, name))
                if text is not None or problem:
                    out.append(Sidecar(run, f"{run}/{name}" if run else name, text or "", problem))
        return out

    def _locally(self, path: str) -> tuple[str | None, str]:
        try:
            info = os.stat(path)
            if not modes.S_ISREG(info.st_mode):
                return None, ""
            if info.st_size > LARGEST:
                return None, _TOO_LARGE
            if os.path.islink(path) and not _inside(path):
                return None, "a link that leads out of the folder"
            with open(path, "rb") as stream:
                return _decoded(stream.read(LARGEST + 1))
        except FileNotFoundError:
            return None, ""
        except (OSError, ValueError) as error:
            return None, f"cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}"

    def _remotely(self, folder: str, name: str) -> tuple[str | None, str]:
        path = f"{folder.rstrip('/')}/{name}"
        with self._lock:
            known = self._remote.get(path)
        if known is not None and time.monotonic() - known[0] < REMOTE_SECONDS:
            return known[1:]
        try:
            size, _ = files.stat(path, self._options)
            if size > LARGEST:
                found: tuple[str | None, str] = (None, _TOO_LARGE)
            else:
                with files.opener(path, self._options)() as stream:
                    found = _decoded(stream.read(LARGEST + 1))
        except FileNotFoundError:
            found = None, ""
        except Exception as error:  # a driver raises what it likes; the recordings of the same place say so
            found = None, f"cannot be read: {type(error).__name__}"
        with self._lock:
            if len(self._remote) > 256:
                self._remote.clear()
            self._remote[path] = (time.monotonic(), *found)
        return found


_TOO_LARGE: Final = f"larger than {LARGEST // 1024 // 1024} MiB"


def _inside(path: str) -> bool:
    """Whether a link's end lies in the folder that the link is in, or below."""
    folder = os.path.realpath(os.path.dirname(path))
    return os.path.commonpath((folder, os.path.realpath(path))) == folder


def _decoded(body: bytes) -> tuple[str | None, str]:
    if len(body) > LARGEST:
        return None, _TOO_LARGE
    try:
        return body.decode("utf-8-sig"), ""
    except UnicodeDecodeError:
        return None, "no text in UTF-8"


def folders_of(roots: Sequence[tuple[str, str]], runs: Mapping[str, Sequence[Recording]]) -> list[tuple[str, str]]:
    """Returns (run, folder) to look in: the logdirs, then the folders of runs on this machine. roots: (name, URL or path)."""
    out = [("", url) for _, url in roots]
    seen = {os.path.normpath(url) for _, url in roots if not is_url(url)}
    for name, recordings in runs.items():
        path = recordings[0].path if recordings else ""
        folder = os.path.dirname(path)
        if path and not is_url(path) and os.path.normpath(folder) not in seen:
            seen.add(os.path.normpath(folder))
            out.append((name, folder))
    return out


# -- device files ----------------------------------------------------------------------------------------------------


REMOTE_DEVICE_FILE_SECONDS: Final = 10.0
"""How long a look at a remote folder holds."""
_Stamp = tuple[int, float]


def split_choice(text: str) -> tuple[str, str]:
    """Returns (path, expression) of `KEY`, `KEY@1410MHz+sparse`, `PATH` or `PATH#KEY@1410MHz`: what names a JSON or CSV file is a path."""
    path, mark, expression = text.partition("#")
    if path.lower().endswith((".json", ".csv")) or is_url(path) or (os.sep in path and os.path.exists(os.path.expanduser(path))):
        return path, expression if mark else ""
    return "", text


def check_choice(text: str, fs_options: Mapping[str, object] | None = None) -> None:
    """Raises BadInput where a path chosen on the command line names no readable file."""
    path, _ = split_choice(text)
    if path and DeviceFiles(text, fs_options or {}).stamp(path) is None:
        raise BadInput(
            "there is no such device file", hint="give a key of the table, or the path of a JSON or CSV file", file=basename(path)
        )


class DeviceFiles:
    """Books of device rows by folder. Thread-safe; opens nothing before it is asked, and nothing that is not a plain small file.

    chosen: `KEY`, `PATH` or `PATH#KEY` of the command line.
    """

    def __init__(self, chosen: str = "", fs_options: Mapping[str, object] | None = None) -> None:
        self._path, self._expression = split_choice(chosen)
        self._options = dict(fs_options or {})
        self._lock = threading.Lock()
        self._parsed: dict[str, tuple[_Stamp | None, float, DeviceFile | None]] = {}
        self._books: dict[tuple[object, ...], tuple[list[tuple[Place, DeviceFile]], DeviceBook]] = {}

    def book(self, *folders: str) -> DeviceBook:
        """Returns the rows that hold for recordings below the first of `folders` (local or URL) that has a device file."""
        from tb_sol_plugin.devices.files import book_of
        from tb_sol_plugin.devices.spec import EMPTY

        found: list[tuple[Place, str]] = [("user", user_file())]
        in_logdir = next((path for folder in folders for path in self._files_in(folder)), "")
        found += [("logdir", in_logdir), ("chosen", self._path)]
        read = [(place, file) for place, path in found if path and (file := self._read(path, place)) is not None]
        if not read and not self._expression:
            return EMPTY
        with self._lock:
            key = (*((place, id(file)) for place, file in read),)  # kept with the book, so that no other file gets its id
            known = self._books.get(key)
            if known is None:
                if len(self._books) > 64:
                    self._books.clear()
                known = self._books[key] = read, book_of(read, self._expression)
            return known[1]

    def forget(self) -> None:
        """Read every file anew when it is asked for, also one that could not be read."""
        with self._lock:
            self._parsed.clear()

    def _files_in(self, folder: str) -> Iterator[str]:
        for name in NAMES:
            path = _join(folder, name)
            if self.stamp(path) is not None:
                yield path

    def stamp(self, path: str) -> _Stamp | None:
        """Returns size and time of change of a plain file; None where there is none. A look at a remote one holds for a while."""
        if not is_url(path):
            try:
                info = os.stat(path)
            except (OSError, ValueError):
                return None
            return (info.st_size, info.st_mtime_ns) if modes.S_ISREG(info.st_mode) else None
        with self._lock:
            known = self._parsed.get(path)
        if known is not None and time.monotonic() - known[1] < REMOTE_DEVICE_FILE_SECONDS:
            return known[0]
        try:
            found: _Stamp | None = files.stat(path, self._options)
        except FileNotFoundError:
            found = None
        except Exception:  # a driver raises what it likes; the recordings of the same place say so
            found = None
        with self._lock:
            same = known is not None and known[0] == found
            self._parsed[path] = (found, time.monotonic(), known[2] if known is not None and same else None)
        return found

    def _read(self, path: str, place: Place) -> DeviceFile | None:
        from tb_sol_plugin.devices.files import LARGEST, parse

        name = basename(path)
        stamp = self.stamp(path)
        with self._lock:
            known = self._parsed.get(path)
        if known is not None and known[0] == stamp and known[2] is not None:
            return known[2]
        if stamp is None:
            if place != "chosen":
                return None
            made = _unreadable(name, "there is no such file", "check --sol_device")
        elif stamp[0] > LARGEST:
            made = _unreadable(name, f"more than {LARGEST:,} bytes", "a device file holds a few rows")
        else:
            try:
                with files.opener(path, self._options)() as stream:
                    made = parse(stream.read(LARGEST + 1), name)
            except Exception as error:  # a driver raises what it likes; shown on the page
                why = getattr(error, "strerror", None) or type(error).__name__
                made = _unreadable(name, f"cannot be read: {why}", "check its permissions")
        with self._lock:
            self._parsed[path] = (stamp, time.monotonic(), made)
        return made


def _unreadable(name: str, message: str, hint: str) -> DeviceFile:
    from tb_sol_plugin.devices.files import DeviceFile
    from tb_sol_plugin.devices.spec import Problem

    return DeviceFile(name, (), (Problem("error", name, "", message, hint),))


def _join(folder: str, name: str = NAMES[0]) -> str:
    return f"{folder.rstrip('/')}/{name}" if is_url(folder) else os.path.join(folder, name)


def folders_above(path: str, *, file: bool) -> tuple[str, ...]:
    """Returns folders where the device file of one run or file may lie, nearest first: its own and two above (one above on a remote)."""
    if is_url(path):
        head = path.rstrip("/")
        parts = head.split("://", 1)
        out = []
        for _ in range(3 if file else 2):
            out.append("://".join(parts))
            above = parts[-1].rpartition("/")[0]
            if not above:
                break
            parts = [*parts[:-1], above]
        return tuple(out[1:] if file else out)
    here = os.path.abspath(os.path.expanduser(path))
    return places.folders_above(os.path.dirname(here) if file else here)
