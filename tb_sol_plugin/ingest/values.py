"""Byte ranges of a chunk into codes and numbers: what the compiled loops leave to be asked for by name."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.ingest import _scan as K
from tb_sol_plugin.ingest.columns import Array, Interner, decimal_ns, whole_number
from tb_sol_plugin.ingest.health import Health
from tb_sol_plugin.tables.arrays import Bytes, Ints

FARTHEST = 2**61
"""ns from the clock's zero (73 years) past which a time is no time: sums and differences of two stay within int64."""


class Text(NamedTuple):
    """Bytes of a chunk, `size` of them, with room behind: as bytes and, the same memory, as words of eight."""

    data: Bytes
    words: npt.NDArray[np.uint64]
    size: int

    def piece(self, offset: int, length: int) -> bytes:
        """A byte range."""
        return self.data[offset : offset + length].tobytes()


def padded(text: bytes) -> Text:
    """`text` as the compiled loops want it."""
    buffer = np.frombuffer(text + bytes(K.SLACK + (-len(text)) % 8), np.uint8)
    return Text(buffer, buffer.view(np.uint64), len(text))




class ByteInterner:
    """Raw JSON values to codes, in order of first use. `values` holds the distinct raw values met so far."""

    def __init__(self) -> None:
        self._slots = np.full(1 << 12, -1, np.int32)
        self._hashes = np.zeros(1 << 11, np.uint64)
        self._starts = np.zeros(1 << 11, np.int64)
        self._lengths = np.zeros(1 << 11, np.int64)
        self._arena = np.zeros(1 << 13, np.uint64)
        self._count = 0
        self._used = 0
        self._mapped: dict[int, npt.NDArray[np.int32]] = {}

    def __len__(self) -> int:
        return self._count

    def value(self, code: int) -> bytes:
        """The raw value of a code."""
        start, length = int(self._starts[code]), int(self._lengths[code])
        return self._arena[start : start + length // 8 + 1].tobytes()[:length]

    def codes(self, text: Text, offset: Array, length: Array) -> npt.NDArray[np.int32]:
        """Code per byte range."""
        out = np.zeros(len(offset), np.int32)
        done = 0
        while done < len(offset):
            done, self._count, self._used = K.intern(
                text.words,
                offset,
                length,
                out,
                done,
                self._slots,
                self._hashes,
                self._starts,
                self._lengths,
                self._arena,
                self._count,
                self._used,
            )
            if done < len(offset):
                self._grow(int(length[done]))
        return out

    def _grow(self, needed: int) -> None:
        room = needed // 8 + 1
        if self._used + room > len(self._arena):
            bigger = np.zeros(max(2 * len(self._arena), self._used + room), np.uint64)
            bigger[: self._used] = self._arena[: self._used]
            self._arena = bigger
        if 2 * (self._count + 1) > len(self._slots) or self._count >= len(self._hashes):
            self._hashes, self._starts, self._lengths = (
                np.concatenate([a, np.zeros_like(a)]) for a in (self._hashes, self._starts, self._lengths)
            )
            self._slots = np.full(2 * len(self._slots), -1, np.int32)
            K.rehash(self._slots, self._hashes, self._count)

    def into(self, codes: npt.NDArray[np.int32], interner: Interner, shown: object) -> npt.NDArray[np.int32]:
        """The same values as codes of `interner`, whose keys are `shown(raw value)`; worked out once per distinct value."""
        known = self._mapped.get(id(interner), np.zeros(0, np.int32))
        if len(known) < self._count:
            more = np.fromiter((interner[shown(self.value(i))] for i in range(len(known), self._count)), np.int32)  # type: ignore[operator]
            known = np.concatenate([known, more])
            self._mapped[id(interner)] = known
        return known[codes]


def integers(text: Text, offset: Array, length: Array, health: Health) -> Ints:
    """int64 per byte range; -1 for what is not a whole number (null, text, NaN); quoted numbers and hexadecimal are read."""
    whole, fraction, status = np.zeros(len(offset), np.int64), np.zeros(len(offset)), np.zeros(len(offset), np.int8)
    K.numbers(text.data, offset, length, whole, fraction, status)
    for i in np.flatnonzero(status).tolist():
        raw = text.piece(offset[i], length[i])
        whole[i] = whole_number(raw)
        _count_bare_word(raw, health)
    return whole


def _float(raw: bytes) -> float:
    try:
        return float(raw.strip(b'"'))
    except ValueError:
        return float("nan")


def _count_bare_word(raw: bytes, health: Health, count: int = 1) -> None:
    """NaN, Infinity, N/A and the like where JSON wants a value."""
    if (raw[:1].lower() in b"niu" and raw != b"null") or raw[:2].lower() == b"-i":
        health.add("NaN, Infinity or N/A", count, raw[:20].decode("utf-8", "replace"))


def floats(text: Text, offset: Array, length: Array, health: Health) -> npt.NDArray[np.float64]:
    """float64 per byte range, NaN for what is not a number ("N/A" is how old ROCm traces write an unknown bandwidth)."""
    whole, fraction, status = np.zeros(len(offset), np.int64), np.zeros(len(offset)), np.zeros(len(offset), np.int8)
    K.numbers(text.data, offset, length, whole, fraction, status)
    odd = np.flatnonzero(status == 2)
    if len(odd):  # more digits than one division keeps exact: read once per distinct text
        distinct = ByteInterner()
        codes = distinct.codes(text, offset[odd], length[odd])
        raws = [distinct.value(i) for i in range(len(distinct))]
        fraction[odd] = np.fromiter(map(_float, raws), np.float64, len(raws))[codes]
        for raw, count in zip(raws, np.bincount(codes).tolist(), strict=True):
            _count_bare_word(raw, health, count)
    return np.where(np.isfinite(fraction), fraction, np.nan)


def nanoseconds(text: Text, offset: Array, length: Array, health: Health) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """(int64 ns, given) from decimal microsecond texts, without a float in between.

    Digits past the third round half up. Quoted numbers and exponents are read as decimals; null, text and times past
    `FARTHEST` count as not given.
    """
    out, status = np.zeros(len(offset), np.int64), np.zeros(len(offset), np.int8)
    K.microseconds(text.data, offset, length, out, status)
    rounded = status == 1
    if rounded.any():
        i = int(np.argmax(rounded))
        health.add("digits past nanoseconds", int(rounded.sum()), text.piece(offset[i], length[i]).decode())
    for i in np.flatnonzero(status == 2).tolist():
        raw = text.piece(offset[i], length[i])
        value = decimal_ns(raw, health)
        status[i] = 3 if value is None else 0
        out[i] = value or 0
    far = np.abs(out) > FARTHEST
    if far.any():
        i = int(np.argmax(far))
        health.add("time out of range", int(far.sum()), text.piece(offset[i], length[i])[:40].decode("utf-8", "replace"))
        status[far], out[far] = 3, 0
    return out, status != 3
