"""Where device files lie: the reader's own, one beside the recordings, one named on the command line. Read again when they change.

TensorBoard imports this at every start: what reads a file is imported when there is one.
"""

from __future__ import annotations

import os
import stat as modes
import threading
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from tb_sol_plugin.devices import places
from tb_sol_plugin.devices.places import NAMES, user_file
from tb_sol_plugin.errors import BadInput
from tb_sol_plugin.store import files
from tb_sol_plugin.store.names import basename, is_url

if TYPE_CHECKING:
    from tb_sol_plugin.devices.files import DeviceFile
    from tb_sol_plugin.devices.spec import DeviceBook, Place

REMOTE_SECONDS: Final = 10.0
"""How long a look at a remote folder holds."""
_Stamp = tuple[int, float]


def split_choice(text: str) -> tuple[str, str]:
    """(path, expression) of `KEY`, `KEY@1410MHz+sparse`, `PATH` or `PATH#KEY@1410MHz`: what names a JSON or CSV file is a path."""
    path, mark, expression = text.partition("#")
    if path.lower().endswith((".json", ".csv")) or is_url(path) or (os.sep in path and os.path.exists(os.path.expanduser(path))):
        return path, expression if mark else ""
    return "", text


def check_choice(text: str, fs_options: Mapping[str, object] | None = None) -> None:
    """BadInput where a path chosen on the command line names no readable file."""
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
        """The rows that hold for recordings below the first of `folders` (local or URL) that has a device file."""
        from tb_sol_plugin.devices.files import book_of
        from tb_sol_plugin.devices.spec import EMPTY

        found: list[tuple[Place, str]] = [("user", user_file())]
        beside = next((path for folder in folders for path in self._beside(folder)), "")
        found += [("logdir", beside), ("chosen", self._path)]
        read = [(place, file) for place, path in found if path and (file := self._read(path, place)) is not None]
        if not read and not self._expression:
            return EMPTY
        with self._lock:
            key = (*((place, id(file)) for place, file in read),)  # kept beside the book, so that no other file gets its id
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

    def _beside(self, folder: str) -> Iterator[str]:
        for name in NAMES:
            path = _join(folder, name)
            if self.stamp(path) is not None:
                yield path

    def stamp(self, path: str) -> _Stamp | None:
        """Size and time of change of a plain file; None where there is none. A look at a remote one holds for a while."""
        if not is_url(path):
            try:
                info = os.stat(path)
            except (OSError, ValueError):
                return None
            return (info.st_size, info.st_mtime_ns) if modes.S_ISREG(info.st_mode) else None
        with self._lock:
            known = self._parsed.get(path)
        if known is not None and time.monotonic() - known[1] < REMOTE_SECONDS:
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
    """Folders where the device file of one run or file may lie, nearest first: its own and two above (one above on a remote)."""
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
