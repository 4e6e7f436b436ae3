"""What a device or a process does over time: the kind of work with most time, the busy share and the greatest depth of each bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.timeline.events import CATEGORIES, Events
from tb_sol_plugin.metrics.timeline.kept import KeptCover, Part
from tb_sol_plugin.metrics.timeline.tracks import Arranged, Track
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints
from tb_sol_plugin.tables.pyramid import Pyramid

NOTHING = 255
DEEPEST = 64
"""Lanes of a track whose depth is told."""
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
        return np.diff(iv.covered_until(self.spans, edges, self.before))


@dataclass(frozen=True)
class Summary:
    """Unions of a group's time: of each category, and of everything."""

    kinds: dict[int, Cover]
    busy: Cover

    def tile(self, edges: Ints) -> tuple[Bytes, Bytes]:
        """Returns per bucket between two edges (category with most time or NOTHING; busy share of 255)."""
        count = len(edges) - 1
        category = np.full(count, NOTHING, np.uint8)
        most = np.zeros(count, np.int64)
        for kind, cover in self.kinds.items():
            time = cover.between(edges)
            more = time > most
            category[more], most[more] = kind, time[more]
        width = np.maximum(np.diff(edges), 1)
        busy = self.busy.between(edges) if len(self.kinds) > 1 else most
        share = np.where(busy > 0, np.maximum(255 * busy // width, 1), 0).astype(np.uint8)
        return category, share

    def kept(self, part: int) -> tuple[KeptCover, Part]:
        """Returns what is kept of it, see `kept`."""
        covers = [*self.kinds.values(), self.busy]
        columns = {
            "start": np.concatenate([c.spans[0] for c in covers]),
            "end": np.concatenate([c.spans[1] for c in covers]),
            "before": np.concatenate([c.before for c in covers]),
        }
        return KeptCover(part, [(kind, len(c.before)) for kind, c in self.kinds.items()], len(self.busy.before)), columns

    @classmethod
    def of_kept(cls, head: KeptCover, part: Part) -> Summary:
        """Returns a summary from what was kept of it."""
        at, covers = 0, []
        for count in (*(count for _, count in head.kinds), head.busy):
            rows = slice(at, at + count)
            covers.append(Cover((part["start"][rows], part["end"][rows]), part["before"][rows]))
            at += count
        return cls({kind: cover for (kind, _), cover in zip(head.kinds, covers, strict=False)}, covers[-1])


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
    return Summary({kind: Cover.of(spans) for kind, spans in by_kind.items()}, Cover.of(everything))


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
