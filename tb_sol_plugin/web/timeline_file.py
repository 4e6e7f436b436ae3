"""Puts a window of the timeline into a page that is saved as a file: its rows, its names, the critical path, and its tiles from coarse to
fine.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from tb_sol_plugin.metrics.timeline.timeline import timeline_of
from tb_sol_plugin.metrics.timeline.tracks import GROUPS
from tb_sol_plugin.metrics.timeline.workers import Workers
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.tables.pyramid import TILE
from tb_sol_plugin.web import tiles, timeline_path
from tb_sol_plugin.web.timeline import MOST_FLOWS, events_shown, names_of, shape_of, tiles_made

MOST_BYTES: Final = 3_700_000
"""Bytes of compressed tiles: less than 5 MB of a file's text."""
AROUND: Final = 0.05
"""Of a window's length, before and behind it."""
MOST_SUMMARIES: Final = 32
"""Tiles of each worker, process and device at a level: finer ones, of which every place would have one, are not saved."""
FINGERPRINT: Final = "file"


class SavedTimeline(NamedTuple):
    """shape, names, path: JSON, as the server answers. tiles: answers of one level after the other, each behind its length (uint32).

    path: the critical path inside of the window, b"" where there is none.
    """

    shape: bytes
    names: bytes
    tiles: bytes
    path: bytes = b""


def saved_timeline(capture: Capture, window: tuple[int, int] | None = None, most: int = MOST_BYTES) -> SavedTimeline | None:
    """Returns the timeline of a recording; None where it has no event.

    window: ns that the tiles cover, with a little around; None for everything. most: bytes of all tiles, compressed: levels that are
    finer than that allows are left out, and those above are shown in their place.
    """
    timeline = timeline_of(capture)
    if not len(timeline.events):
        return None
    w = Workers([timeline])
    low, high = window or (0, w.span_ns)
    around = int((high - low) * AROUND)
    made: list[bytes] = []
    size = 0
    for z, blocks in _levels(w, max(0, low - around), min(w.span_ns, high + around)):
        body = tiles.join(z, blocks)
        size += len(zlib.compress(body, 1))
        if size > most and made:
            break
        made.append(len(body).to_bytes(4, "little") + body)
    shape, names = (msgspec.json.encode(one) for one in (shape_of(w, FINGERPRINT, ""), names_of(w)))
    return SavedTimeline(shape, names, b"".join(made), _path(w, low, high))


def _path(w: Workers, low: int, high: int) -> bytes:
    """Returns the critical path inside of a window as the server answers; without names of events, which the page draws nowhere."""
    found = timeline_path.flows(w, low, high, MOST_FLOWS, events_shown)
    if not found.flows:
        return b""
    flows = [
        msgspec.structs.replace(f, source=msgspec.structs.replace(f.source, name=""), target=msgspec.structs.replace(f.target, name=""))
        for f in found.flows
    ]
    return msgspec.json.encode(msgspec.structs.replace(found, flows=flows))


def _levels(w: Workers, low: int, high: int) -> Iterator[tuple[int, list[tiles.Block]]]:
    """Yields each level with its tiles, from the one whose tile holds everything on, as long as finer ones show more."""
    z = max(0, w.span_ns.bit_length() - TILE)
    tracks = {t: w.at(t)[1].kind for t in range(w.track_count)}
    wanted = {t: [0] for t, kind in tracks.items() if kind not in GROUPS}
    while z >= 0 and wanted:
        every = sorted({i for places in wanted.values() for i in places})
        groups = every if len(every) <= MOST_SUMMARIES else []
        asked = {t: groups if kind in GROUPS else wanted.get(t, []) for t, kind in tracks.items()}
        blocks = [block for t, places in asked.items() for first, last in _runs(places) for block in tiles_made(w, t, z, first, last)]
        yield z, sorted(blocks, key=lambda block: int(block.header["i"]))
        wide = 1 << (z - 1 + TILE) if z else 0
        finer: dict[int, list[int]] = {}
        for block in blocks:
            if not block.header["complete"] and block.header["kind"] != "summary" and z:
                children = (2 * block.header["i"], 2 * block.header["i"] + 1)
                finer.setdefault(block.header["track"], []).extend(i for i in children if i * wide <= high and (i + 1) * wide > low)
        wanted, z = {t: sorted(places) for t, places in finer.items() if places}, z - 1


def _runs(places: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yields the first and last of each run of numbers that follow each other."""
    first = last = None
    for i in places:
        if last is not None and first is not None and i != last + 1:
            yield first, last
            first = i
        first = i if first is None else first
        last = i
    if first is not None and last is not None:
        yield first, last
