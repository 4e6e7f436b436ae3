"""What a device or a process does over time: the kind of work with most time, the busy share and the greatest depth of each bucket."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.timeline.events import CATEGORIES, Events
from tb_sol_plugin.metrics.timeline.tracks import Arranged, Track
from tb_sol_plugin.tables import intervals as iv
from tb_sol_plugin.tables.arrays import Ints

NOTHING = 255


@dataclass(frozen=True)
class Summary:
    """Unions of intervals: of each category, of everything, and of what lies at a depth or deeper."""

    kinds: dict[int, iv.Spans]
    busy: iv.Spans
    depths: list[iv.Spans]

    def tile(self, edges: Ints) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint8], npt.NDArray[np.uint8]]:
        """Returns per bucket between two edges (category with most time or NOTHING; busy share of 255; greatest depth)."""
        count = len(edges) - 1
        category = np.full(count, NOTHING, np.uint8)
        most = np.zeros(count, np.int64)
        for kind, spans in self.kinds.items():
            time = np.diff(iv.covered_until(spans, edges))
            more = time > most
            category[more], most[more] = kind, time[more]
        width = np.maximum(np.diff(edges), 1)
        busy = np.diff(iv.covered_until(self.busy, edges))
        share = np.where(busy > 0, np.maximum(255 * busy // width, 1), 0).astype(np.uint8)
        depth = np.zeros(count, np.uint8)
        for level, spans in enumerate(self.depths, 1):
            depth[np.diff(iv.covered_until(spans, edges)) > 0] = level
        return category, share, depth


def summary_of(events: Events, arranged: Arranged, tracks: Sequence[Track], track: int, below: Sequence[int]) -> Summary:
    """Returns the unions of a group's events: of streams all, of threads those that nothing encloses; ranges and records of waiting not."""
    chosen = [tracks[i] for i in below if tracks[i].kind in ("stream", "thread")]
    streams = [t for t in chosen if t.kind == "stream"]
    if tracks[track].kind == "worker" and streams:
        chosen = streams  # what the worker's devices do; of one without, its threads
    names = events.names
    kinds: dict[int, list[iv.Spans]] = {}
    levels: dict[int, list[iv.Spans]] = {}
    for one in chosen:
        lanes = one.lanes if one.kind == "stream" else min(one.lanes, 1)
        for lane in range(one.first_lane, one.first_lane + lanes):
            ids = arranged.order[int(arranged.bounds[lane]) : int(arranged.bounds[lane + 1])]
            start, duration = events.times(ids)
            category = names.category[events.name_ids(ids)]
            for kind in np.unique(category).tolist():
                rows = category == kind
                kinds.setdefault(kind, []).append(iv.union(start[rows], (start + duration)[rows]))
        for depth in range(1, min(one.lanes, 64)):
            lane = one.first_lane + depth
            ids = arranged.order[int(arranged.bounds[lane]) : int(arranged.bounds[lane + 1])]
            start, duration = events.times(ids)
            levels.setdefault(depth, []).append(iv.union(start, start + duration))
    by_kind = {kind: iv.merge(*found) for kind, found in sorted(kinds.items()) if kind < len(CATEGORIES)}
    everything = iv.merge(*by_kind.values()) if by_kind else iv.empty()
    return Summary(by_kind, everything, [everything, *(iv.merge(*levels[depth]) for depth in sorted(levels))])
