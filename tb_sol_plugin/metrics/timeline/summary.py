"""What a device or a process does over time: the kind of work with most time, the busy share and the greatest depth of each bucket."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.timeline.events import CATEGORIES, Events
from tb_sol_plugin.metrics.timeline.kept import KeptCover, Part, coarse_level
from tb_sol_plugin.metrics.timeline.tracks import Arranged, Track
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.pyramid import Pyramid

NOTHING = 255
DEEPEST = 64
"""Lanes of a track whose depth is told."""
MANY = 2
"""Intervals per point of a grid from which on it is kept."""
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Cover:
    """A union of intervals, and how much of it lies before each."""

    spans: iv.Spans
    before: Ints

    @classmethod
    def of(cls, spans: iv.Spans) -> Cover:
        """Returns the cover of a clean set."""
        return cls(spans, iv.covered_before(spans))

    def between(self, edges: Ints) -> Ints:
        """Returns what is covered between each two ascending edges, ns."""
        until = iv.covered_until(self.spans, edges, self.before)
        return until[1:] - until[:-1]


@dataclass(frozen=True)
class Grid:
    """How much some covers hold before each multiple of `2^z` ns, from 0 on: a row per cover. Wide views need no more of these."""

    z: int
    before: Ints

    @classmethod
    def of_kept(cls, head: KeptCover, part: Part) -> Grid:
        """Returns a grid from what was kept of it."""
        return cls(head.grid, np.stack([part[str(place)] for place in range(len(head.kinds) + 1)]))

    def fits(self, edges: Ints) -> bool:
        """Whether all edges are on the grid."""
        return not bool(np.any(edges & ((1 << self.z) - 1)))

    def between(self, place: int, edges: Ints) -> Ints:
        """Returns what a cover holds between each two edges on the grid, ns."""
        found: Ints = self.before[place].take(edges >> self.z, mode="clip")
        return found[1:] - found[:-1]


class Summary:
    """Unions of a group's time: of each category in `kinds`, and of everything.

    covers: returns those of the kinds, in their order, and that of everything. grid: the same for wide views, None without.
    """

    def __init__(self, kinds: Sequence[int], covers: Callable[[], Sequence[Cover]], grid: Grid | None = None) -> None:
        self.kinds = tuple(kinds)
        self._read, self._grid = covers, grid

    @cached_property
    def covers(self) -> Sequence[Cover]:
        return self._read()

    def tile(self, edges: Ints) -> tuple[Bytes, Bytes]:
        """Returns per bucket between two edges (category with most time or NOTHING; busy share of 255)."""
        count = len(edges) - 1
        grid = self._grid if self._grid is not None and self._grid.fits(edges) else None
        category = np.full(count, NOTHING, np.uint8)
        most = np.zeros(count, np.int64)

        def between(place: int) -> Ints:
            return self.covers[place].between(edges) if grid is None else grid.between(place, edges)

        for place, kind in enumerate(self.kinds):
            time = between(place)
            more = time > most
            category[more], most[more] = kind, time[more]
        width = np.maximum(edges[1:] - edges[:-1], 1)
        busy = between(len(self.kinds)) if len(self.kinds) > 1 else most
        share = np.where(busy > 0, np.maximum(255 * busy // width, 1), 0).astype(np.uint8)
        return category, share

    def kept(self, part: int, span: int) -> tuple[KeptCover, Part, Part | None]:
        """Returns what is kept of it, see `kept`: its covers, and the grid of these where they are many."""
        covers = self.covers
        columns = {
            "start": np.concatenate([c.spans[0] for c in covers]),
            "end": np.concatenate([c.spans[1] for c in covers]),
            "before": np.concatenate([c.before for c in covers]),
        }
        z = coarse_level(span)
        edges = np.arange((span - 1 >> z) + 2, dtype=np.int64) << z
        grid = None
        if len(columns["start"]) > MANY * len(covers) * len(edges):
            grid = {str(place): iv.covered_until(c.spans, edges, c.before) for place, c in enumerate(covers)}
        counts = [(kind, len(c.before)) for kind, c in zip(self.kinds, covers, strict=False)]
        return KeptCover(part, counts, len(covers[-1].before), -1 if grid is None else z), columns, grid


def covers_of(head: KeptCover, part: Part) -> list[Cover]:
    """Returns the covers of a summary from what was kept of them."""
    at, out = 0, []
    for count in (*(count for _, count in head.kinds), head.busy):
        rows = slice(at, at + count)
        out.append(Cover((part["start"][rows], part["end"][rows]), part["before"][rows]))
        at += count
    return out


def members(tracks: Sequence[Track], track: int, below: Sequence[int]) -> list[Track]:
    """Returns the tracks that a group's summary is of: streams and threads; of a worker with devices what these do."""
    chosen = [tracks[i] for i in below if tracks[i].kind in ("stream", "thread")]
    streams = [t for t in chosen if t.kind == "stream"]
    return streams if tracks[track].kind == "worker" and streams else chosen


def summary_of(events: Events, arranged: Arranged, chosen: Sequence[Track]) -> Summary:
    """Returns the unions of some tracks' events: of streams all, of threads those that nothing encloses."""
    names = events.names
    kinds: dict[int, list[iv.Spans]] = {}
    for one in chosen:
        lanes = one.lanes if one.kind == "stream" else min(one.lanes, 1)
        for lane in range(one.first_lane, one.first_lane + lanes):
            ids = arranged.order[int(arranged.bounds[lane]) : int(arranged.bounds[lane + 1])]
            start, duration = events.times(ids)
            category = names.category[events.name_ids(ids)]
            for kind in np.unique(category).tolist():
                rows = category == kind
                kinds.setdefault(kind, []).append(iv.union(start[rows], (start + duration)[rows]))
    by_kind = {kind: iv.merge(*found) for kind, found in sorted(kinds.items()) if kind < len(CATEGORIES)}
    everything = iv.merge(*by_kind.values()) if by_kind else iv.empty()
    covers = [Cover.of(spans) for spans in (*by_kind.values(), everything)]
    return Summary(list(by_kind), lambda: covers)


def depth_of(pyramid: Pyramid, chosen: Sequence[Track], z: int, begin: int, share: Bytes) -> Bytes:
    """Returns the greatest depth per bucket of `2^z` ns from `begin` on: 1 where anything is busy, more where deeper lanes are.

    share: busy share per bucket. Where an offset has moved `begin` off the edges of buckets, depths are those of the nearest ones.
    """
    count = len(share)
    depth = (share > 0).astype(np.uint8)
    low = (begin + (1 << z >> 1)) >> z << z
    for one in chosen:
        deeper = range(one.first_lane + 1, one.first_lane + min(one.lanes, DEEPEST))
        if not deeper:
            continue
        items, counts = pyramid.windows(deeper, z, low, low + (count << z))
        full = np.flatnonzero(items.busy > 0)
        level = np.repeat(np.arange(2, len(deeper) + 2, dtype=np.uint8), counts)[full]
        # an item of several events is busy in the bucket in which they start, and in the next one where the last reaches into it
        first = np.maximum((items.start[full] - low) >> z, 0)
        last = np.minimum((items.end[full] - 1 - low) >> z, count - 1)
        wide = last - first + 1
        ends = np.cumsum(wide)
        mine = np.zeros(count, np.uint8)
        # lanes stand one after the other, each deeper than the one before: the last one written to a bucket stays
        mine[np.repeat(first - ends + wide, wide) + np.arange(int(ends[-1]) if len(ends) else 0)] = np.repeat(level, wide)
        np.maximum(depth, mine, out=depth)
    return depth
