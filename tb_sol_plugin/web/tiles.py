"""Writes tiles of the timeline in bytes: columns of items, a difference and a byte plane at a time, so that gzip finds what repeats.

Layout, little endian: `SLT1`, length of the header (uint32), the header as JSON padded with spaces to 4 bytes, then per block its columns
in order, each padded to 4. Times are in units of `2^shift` ns after the begin of the tile. `docs/http-api.md` describes every column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.timeline.counters import Buckets
from tb_sol_plugin.tables.pyramid import TILE, Items

MAGIC: Final = b"SLT1"
VERSION: Final = 1
_SHARP: Final = 19
"""Level up to which a tile's positions fit exactly into 32 bits."""
_MOST: Final = 65_535
_EXACT: Final = 2**54
"""Nanoseconds, half a year, of which 255 times as many can still be counted."""


@dataclass(frozen=True)
class Block:
    """One track of one tile: its entry in the header, without `offset`, and its bytes."""

    header: dict[str, Any]
    body: bytes

    @cached_property
    def size(self) -> int:
        return len(self.body) + 400 + 6 * len(self.header.get("names", ())) + 4 * len(self.header.get("lanes", ()))


def join(z: int, blocks: Iterable[Block]) -> bytes:
    """Returns the bytes of some blocks of level z."""
    offset, headers, bodies = 0, [], []
    for block in blocks:
        headers.append({**block.header, "offset": offset})
        bodies.append(block.body)
        offset += len(block.body)
    header = msgspec.json.encode({"v": VERSION, "z": z, "blocks": headers})
    header += b" " * (-len(header) % 4)
    return b"".join((MAGIC, len(header).to_bytes(4, "little"), header, *bodies))


def slices(i: int, track: int, z: int, begin: int, items: Items, lanes: npt.NDArray[np.integer], names: npt.NDArray[np.integer]) -> Block:
    """Returns the block of a track of events. begin: of the tile, on the clock of the items, which stand lane after lane.

    lanes: how many items each has. names: name id per item.
    """
    if not len(items):
        shift = 0 if z <= _SHARP else z - 8
        header = {
            "i": i, "track": track, "kind": "slices", "shift": shift, "items": 0, "lanes": lanes.tolist(), "names": [], "name_bytes": 2,
            "complete": shift == 0,
        }  # fmt: skip
        return Block(header, b"")
    start, end, event, count, busy = items.start - begin, items.end - begin, items.event, items.count, items.busy
    whole = bool((count == 1).all())
    shift = 0 if whole and z <= _SHARP else max(0, z - 8)
    width = 1 << (z + TILE)
    low = np.maximum(start, -width) >> shift
    high = np.maximum(np.minimum(end, 2 * width) >> shift, low + 1)
    used, place = _ranked(names)
    name_bytes = 2 if len(used) <= _MOST + 1 else 4
    length = np.maximum(end - start, 1)
    share = 255 * busy // length if int(busy.max(initial=0)) < _EXACT else 255 * (busy / length)
    share = np.where(end > start, share, 255)
    columns = (
        _planes(_differences(low), "<i4"),
        _planes(high - low, "<u4"),
        _planes(_differences(event), "<u4"),
        _planes(place, "<u2" if name_bytes == 2 else "<u4"),
        _planes(np.minimum(count, _MOST), "<u2"),
        np.minimum(np.maximum(share, 0), 255).astype(np.uint8).tobytes(),
    )
    header = {
        "i": i, "track": track, "kind": "slices", "shift": shift, "items": len(start), "lanes": lanes.tolist(),
        "names": used.tolist(), "name_bytes": name_bytes, "complete": whole and shift == 0,
    }  # fmt: skip
    return Block(header, b"".join(map(_padded, columns)))


def counter(i: int, track: int, z: int, points: Buckets, begin: int) -> Block:
    """Returns the block of a counter. begin: of the tile, on the counter's clock."""
    shift = 0 if points.exact and z <= _SHARP else max(0, z - 8)
    time = ((points.time_ns - begin) >> shift).astype(np.uint32)
    known = points.before == points.before
    header = {
        "i": i, "track": track, "kind": "counter", "shift": shift, "items": len(time), "exact": points.exact and shift == 0,
        "before": points.before if known else None, "complete": points.exact and shift == 0,
    }  # fmt: skip
    values = (one.astype("<f8").tobytes() for one in (points.low, points.high, points.last))
    return Block(header, b"".join((time.astype("<u4").tobytes(), *values)))


def summary(i: int, track: int, columns: Sequence[npt.NDArray[np.uint8]]) -> Block:
    """Returns the block of a group: category, busy share and depth per bucket."""
    header = {"i": i, "track": track, "kind": "summary", "shift": 0, "items": len(columns[0]), "complete": False}
    return Block(header, b"".join(_padded(column.tobytes()) for column in columns))


def _ranked(names: npt.NDArray[np.integer]) -> tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]:
    """Returns the distinct names, ascending, and the place of each item's among them."""
    size = int(names.max(initial=-1)) + 1
    if size > 1_000 + 4 * len(names):  # few of many
        return np.unique(names, return_inverse=True)
    there = np.zeros(size, np.bool_)
    there[names] = True
    return np.flatnonzero(there), (np.cumsum(there) - 1)[names]


def _differences(values: npt.NDArray[np.integer]) -> npt.NDArray[np.integer]:
    """Returns the first value, and of each further one how much more it is than the one before; of unsigned ones as they wrap."""
    out = values.copy()
    out[1:] -= values[:-1]
    return out


def _planes(values: npt.NDArray[np.integer], kind: str) -> bytes:
    """Returns all lowest bytes, then all second ones, and so on. kind: the type that they are written as."""
    written = values.astype(kind)
    return written.view(np.uint8).reshape(-1, written.itemsize).T.tobytes()


def _padded(body: bytes) -> bytes:
    return body + b"\0" * (-len(body) % 4)
