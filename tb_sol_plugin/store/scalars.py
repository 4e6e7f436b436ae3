"""Last values of a few scalars that a program wrote for TensorBoard: out of the event files in a folder on this machine.

An event file is a row of records: length (8 bytes, little-endian), its checksum (4), the event, its checksum (4). Files that do not
name a scalar that is asked for are passed over without decoding anything.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final

Values = dict[str, tuple[int, float]]
"""Tag -> (step, value) of the last step."""

LARGEST: Final = 256 * 1024 * 1024
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
        """Of each tag the finite value of its last step over the folder's event files; tags without one are missing. Never raises."""
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
    """(path, size, time of change) of the newest event files, the oldest first."""
    out = []
    try:
        with os.scandir(folder) as items:
            for item in items:
                if "tfevents" in item.name and item.is_file(follow_symlinks=False):
                    info = item.stat(follow_symlinks=False)
                    if 0 < info.st_size <= LARGEST:
                        out.append((item.path, info.st_size, info.st_mtime_ns))
    except OSError:
        return []
    return sorted(out, key=lambda one: (one[2], one[0]))[-MOST_FILES:]


def _read(path: str, tags: tuple[str, ...]) -> Values:
    """What one file says of the tags; a record that is cut off or is none ends it."""
    try:
        with Path(path).open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as body:
            if all(body.find(tag.encode()) < 0 for tag in tags):
                return {}
            return _decoded(body, {tag.encode(): tag for tag in tags})
    except (OSError, ValueError):
        return {}


def _decoded(body: mmap.mmap, tags: dict[bytes, str]) -> Values:
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
    """The number of a summary's value: written as such, or as a tensor of one element; None if it is not finite or is none."""
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
