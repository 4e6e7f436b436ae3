"""Writes an event file of TensorBoard: scalars and texts, without TensorBoard, in a hundredth of the time that its own writer takes.

An event file is a sequence of records: length, CRC of the length, data, CRC of the data; the data is a `tensorflow.Event` in protocol
buffers. TensorBoard's writer works the CRC out byte by byte in Python, which takes half a millisecond for the scalars of one iteration.
Events with the same names differ in few bytes, so all that are written at once are filled into copies of one template. The CRC is linear:
that of an event is the CRC of the template, with zeros in these bytes, xored with what each of them adds at its place, read off a table per
place.

Source: tensorflow/core/lib/io/record_writer.h (framing, masked CRC), event.proto, summary.proto; CRC-32C of Castagnoli, RFC 3720.
"""

from __future__ import annotations

import os
import re
import socket
import struct
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

Bytes: TypeAlias = "npt.NDArray[np.uint8]"
Ints: TypeAlias = "npt.NDArray[np.int64]"
UInts: TypeAlias = "npt.NDArray[Any]"
Floats: TypeAlias = "npt.NDArray[np.float64]"
Places: TypeAlias = "npt.NDArray[np.intp]"

_POLYNOMIAL: Final = 0x82F63B78
_ONES: Final = 0xFFFFFFFF
_WHOLE: Final = (1 << 64) - 1
_MASK_DELTA: Final = 0xA282EAD8
REPEATS: Final = 8
"""Events with the same names after which tables are made for them."""
MOST_LAYOUTS: Final = 64
"""Sets of names whose layout is kept."""


def _byte_table() -> tuple[int, ...]:
    out = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        out.append(value)
    return tuple(out)


_TABLE: Final = _byte_table()


def crc32c(data: bytes | bytearray) -> int:
    """Returns the CRC-32C of some bytes."""
    crc, table = _ONES, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ _ONES


def masked(crc: int) -> bytes:
    """Returns a CRC as it stands in the file: rotated and shifted, so that a CRC of data with CRCs inside stays good."""
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK_DELTA) & _ONES)


def _varint(number: int) -> bytes:
    number &= _WHOLE
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    """Returns a field that has a length: a message, a text."""
    return _varint(number << 3 | 2) + _varint(len(data)) + data


class _Layout:
    """Lays out events of the same names: where the time, the step and the values stand, and what each byte there adds to the CRC."""

    def __init__(self, tags: Sequence[str], step_bytes: int) -> None:
        head = b"\x09" + bytes(8) + b"\x10" + bytes(step_bytes)
        summary = bytearray()
        places = []
        for tag in tags:
            value = _field(1, tag.encode("utf-8", "replace")) + b"\x15"
            summary += b"\x0a" + _varint(len(value) + 4) + value
            places.append(len(summary))
            summary += bytes(4)
        body = head + b"\x2a" + _varint(len(summary))
        self.step_bytes, self.uses = step_bytes, 0
        self._event = np.frombuffer(body + summary, np.uint8)
        self._step = len(head) - step_bytes
        self._values = np.array([len(body) + place + n for place in places for n in range(4)], np.intp)
        length = struct.pack("<Q", len(self._event))
        self._length = np.frombuffer(length + masked(crc32c(length)), np.uint8)
        self._base = 0
        self._changing: Places = np.empty(0, np.intp)
        self._added: UInts = np.empty((0, 256), np.uint32)

    def records(self, steps: UInts, walls: Floats, values: Floats) -> bytes:
        """Returns the records of events, one after the other. steps: all of `step_bytes`; values: a row per event, a column per name."""
        count, size, start = len(steps), len(self._event), len(self._length)
        out = np.empty((count, start + size + 4), np.uint8)
        out[:, :start] = self._length
        data = out[:, start:-4]
        data[:] = self._event
        data[:, 1:9] = walls.astype("<f8").view(np.uint8).reshape(count, 8)
        for n in range(self.step_bytes):
            more = 0x80 if n + 1 < self.step_bytes else 0
            data[:, self._step + n] = (steps >> np.uint64(7 * n)).astype(np.uint8) & 0x7F | more
        with np.errstate(over="ignore"):
            data[:, self._values] = values.astype("<f4").view(np.uint8).reshape(count, len(self._values))
        crc = self.checksums(data)
        mask = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(_MASK_DELTA)
        out[:, -4:] = mask.astype("<u4").view(np.uint8).reshape(count, 4)
        return out.tobytes()

    def checksums(self, data: Bytes) -> UInts:
        """Returns the CRC of each event, a row of bytes."""
        self.uses += len(data)
        if self.uses <= REPEATS:
            return np.array([crc32c(row.tobytes()) for row in data], np.uint32)
        if not len(self._added):
            self._prepare()
        ordinals = np.arange(len(self._changing))
        out: UInts = np.bitwise_xor.reduce(self._added[ordinals, data[:, self._changing]], axis=1) ^ np.uint32(self._base)
        return out

    def _prepare(self) -> None:
        """Work out the CRC with zeros, and what each byte that changes adds to it: its own CRC, moved on over the bytes behind it."""
        size = len(self._event)
        changing = np.zeros(size, bool)
        changing[1:9] = changing[self._step : self._step + self.step_bytes] = changing[self._values] = True
        self._changing = np.flatnonzero(changing)
        self._base = crc32c(self._event.tobytes())
        of_bits = []
        bits = [_TABLE[1 << bit] for bit in range(8)]
        for place in range(size - 1, -1, -1):
            if changing[place]:
                of_bits.append(bits)
            bits = [_TABLE[bit & 0xFF] ^ bit >> 8 for bit in bits]
        added = np.zeros((len(of_bits), 1), np.uint32)
        for column in np.array(of_bits[::-1], np.uint32).T:
            added = np.concatenate([added, added ^ column[:, None]], axis=1)
        self._added = added


class EventFile:
    """Appends to an event file of its own in a folder. Not for several threads at once.

    Nothing is buffered but what `write` has not been called for. What the file system refuses is raised.
    """

    def __init__(self, folder: str) -> None:
        os.makedirs(folder, exist_ok=True)
        host = re.sub(r"[^A-Za-z0-9._-]+", "-", socket.gethostname()) or "host"
        name = f"events.out.tfevents.{int(time.time()):010d}.{host}.{os.getpid()}."
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self.path, self._fd = "", -1
        for count in range(100):  # another one of this process may have begun in the same second
            self.path = os.path.join(folder, f"{name}{count}")
            try:
                self._fd = os.open(self.path, flags, 0o644)
                break
            except FileExistsError:
                continue
        else:
            raise FileExistsError(self.path)
        self._layouts: dict[tuple[int, tuple[str, ...]], _Layout] = {}
        self._waiting: list[bytes] = []
        self._rows: list[tuple[int, float, tuple[float, ...]]] = []
        self._tags: tuple[str, ...] = ()
        self._event(b"\x09" + struct.pack("<d", time.time()) + _field(3, b"brain.Event:2"))
        self.write()

    def add_scalars(self, values: Mapping[str, float], step: int, wall_time: float) -> None:
        """Adds scalars of one step as one event."""
        tags = tuple(values)
        if tags != self._tags:
            self._add_rows()
            self._tags = tags
        self._rows.append((step & _WHOLE, wall_time, tuple(values.values())))

    def _add_rows(self) -> None:
        """Adds the events that wait to be encoded together: those of the same names, one after another."""
        rows, self._rows = self._rows, []
        if rows:
            steps, walls, values = zip(*rows, strict=True)
            matrix = np.array(values, np.float64).reshape(len(rows), len(self._tags))
            self._encode(self._tags, np.array(steps, np.uint64), np.array(walls, np.float64), matrix)

    def add_events(self, tags: Sequence[str], steps: Ints, walls: Floats, values: Floats) -> None:
        """Adds events of the same names: their steps, times in seconds, and values, a row per event and a column per name."""
        self._add_rows()
        self._encode(tuple(tags), steps.astype(np.uint64), walls, values)

    def _encode(self, tags: tuple[str, ...], steps: UInts, walls: Floats, values: Floats) -> None:
        longer = np.sum([steps >= np.uint64(1 << 7 * n) for n in range(1, 10)], axis=0)
        cuts = [0, *(np.flatnonzero(np.diff(longer)) + 1).tolist(), len(steps)]
        for first, end in pairwise(cuts):
            layout = self._layout(tags, 1 + int(longer[first]))
            self._waiting.append(layout.records(steps[first:end], walls[first:end], values[first:end]))

    def _layout(self, tags: tuple[str, ...], step_bytes: int) -> _Layout:
        layout = self._layouts.get((step_bytes, tags))
        if layout is None:
            if len(self._layouts) >= MOST_LAYOUTS:
                self._layouts.clear()
            self._layouts.pop((step_bytes - 1, tags), None)  # steps grow: that of shorter ones is not needed any more
            layout = self._layouts[step_bytes, tags] = _Layout(tags, step_bytes)
        return layout

    def add_text(self, tag: str, text: str, step: int) -> None:
        """Adds a text in Markdown, as the text page of TensorBoard shows it."""
        tensor = b"\x08\x07" + _field(2, _field(2, b"\x08\x01")) + _field(8, text.encode("utf-8", "replace"))  # DT_STRING, [1]
        metadata = _field(1, _field(1, b"text"))
        value = _field(1, f"{tag}/text_summary".encode("utf-8", "replace")) + _field(8, tensor) + _field(9, metadata)
        self._add_rows()
        self._event(b"\x09" + struct.pack("<d", time.time()) + b"\x10" + _varint(step) + _field(5, _field(1, value)))

    def _event(self, data: bytes) -> None:
        length = struct.pack("<Q", len(data))
        self._waiting += (length, masked(crc32c(length)), data, masked(crc32c(data)))

    def write(self) -> None:
        """Writes what was added since."""
        self._add_rows()
        text, self._waiting = memoryview(b"".join(self._waiting)), []
        while text and self._fd >= 0:
            text = text[os.write(self._fd, text) :]

    def close(self) -> None:
        """Writes the rest and closes the file."""
        if self._fd >= 0:
            try:
                self.write()
            finally:
                fd, self._fd = self._fd, -1
                os.close(fd)
