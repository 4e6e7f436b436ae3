"""Prints again what `tb-sol analyze NAME FILE` printed before, without loading what computes it: a tenth of a second instead of one.

Kept is the JSON of one local file, asked for without options. It is found again only where nothing around it has changed: the files of its
folder (what is joined to a trace lies there), device files, this package, what is installed beside it, and the settings of the environment.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import zlib
from typing import Final

from msgspec import Struct

from tb_sol_plugin.devices.places import NAMES, folders_above, user_file
from tb_sol_plugin.store.kept import KeptFiles, code_state
from tb_sol_plugin.store.names import CAPTURES
from tb_sol_plugin.store.options import StoreOptions, cache_directory

FOLDER: Final = "printed"
MOST_BESIDE: Final = 2_000
"""Files in the folder of a recording; where there are more, looking at them takes too long."""
LARGEST: Final = 20_000_000
"""Bytes of a report that are kept at the most, compressed."""
_PLAIN: Final = ((), ("--format", "json"), ("--format=json",))


class Printed(Struct, frozen=True):
    """The place of a report on disk. key: changes with whatever the report is made from."""

    name: str
    path: str
    key: str

    def load(self) -> str | None:
        """Returns the report as it was printed; None where it was not, or is damaged."""
        body = _files().load(self.key)
        try:
            return zlib.decompress(body).decode() if body is not None else None
        except (zlib.error, UnicodeDecodeError):
            return None

    def save(self, text: str) -> None:
        """Keep a report, unless something around its file has changed since it was asked for."""
        body = zlib.compress(text.encode(), 1)
        now = printed([self.name, self.path])
        if now is not None and now.key == self.key and len(body) <= LARGEST:
            files = _files()
            files.save(self.key, body)
            files.evict()


def printed(given: list[str]) -> Printed | None:
    """Returns where the answer to `NAME PATH` stands, whether it does or not; None where no such answer is kept."""
    if len(given) < 2 or tuple(given[2:]) not in _PLAIN or given[1].startswith("-") or cache_directory(None) is None:
        return None
    path = os.path.abspath(os.path.expanduser(given[1]))
    if "://" in given[1] or not os.path.isfile(path):
        return None
    beside = _beside(path)
    if beside is None:
        return None
    devices = [os.path.join(folder, name) for folder in folders_above(os.path.dirname(path)) for name in NAMES]
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("TB_SOL_"))
    around = [_stamp(p) for p in (*devices, user_file(), *sys.path)]
    state = (code_state(), sys.version, given[0], path, os.path.realpath(path), beside, around, settings)
    return Printed(given[0], path, hashlib.blake2b(repr(state).encode("utf-8", "surrogatepass"), digest_size=16).hexdigest())


def _beside(path: str) -> list[tuple[str, tuple[int, int, int]]] | None:
    """Returns the files in the folder of a file, and in that of its captures, with their stamps; None where they are too many, or cannot be
    listed.
    """
    out: list[tuple[str, tuple[int, int, int]]] = []
    folder = os.path.dirname(path)
    try:
        for place in (folder, os.path.join(folder, CAPTURES)):
            if place != folder and not os.path.isdir(place):
                continue
            with os.scandir(place) as items:
                for item in items:
                    out.append((os.path.relpath(item.path, folder), _stamp(item.path)))
                    if len(out) > MOST_BESIDE:
                        return None
    except OSError:
        return None
    return sorted(out)


def _stamp(path: str) -> tuple[int, int, int]:
    """Returns (inode, size, time of change) of a file or folder, through links; zeros where there is none."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return (found.st_ino, found.st_size, found.st_mtime_ns)
    return (0, 0, 0)


def _files() -> KeptFiles:
    return KeptFiles(cache_directory(None), FOLDER, StoreOptions().cache_bytes)
