"""Shows several recordings on one clock: their tracks under each other, their names in one list, and how their clocks were aligned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.timeline.events import Ids
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.tracks import Track
from tb_sol_plugin.tables.arrays import Rows

Method = Literal["clock", "collective", "step", "manual", "none"]
METHODS: Final = {
    "clock": "by the absolute time in the files",
    "collective": "by the ends of matched collectives",
    "step": "by the start of a step",
    "manual": "by hand",
    "none": "not aligned: at least one file has no absolute time",
}


@dataclass(frozen=True)
class Alignment:
    """How the clock of one recording was put beside the others. offset_ns: added to its times. uncertainty_ns: None unknown."""

    worker: str
    span: str
    offset_ns: int
    method: Method
    uncertainty_ns: int | None = None


class Workers:
    """Timelines of recordings of one run. Tracks are numbered through; times are ns after the earliest start of them all."""

    def __init__(self, timelines: Sequence[Timeline], alignment: Sequence[Alignment] | None = None) -> None:
        self.timelines = list(timelines)
        self.alignment = list(alignment) if alignment is not None else by_clock(timelines)
        counts = [len(t.tracks) for t in self.timelines]
        self._firsts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)

    @property
    def origin_ns(self) -> int | None:
        """Time since 1970 at which time begins; None where the clock is not known."""
        facts = [t.capture.facts for t in self.timelines]
        if not all(f.absolute for f in facts):
            return None
        return min(f.origin_ns - a.offset_ns for f, a in zip(facts, self.alignment, strict=True))

    @cached_property
    def span_ns(self) -> int:
        return max(t.span_ns + a.offset_ns for t, a in zip(self.timelines, self.alignment, strict=True))

    @property
    def track_count(self) -> int:
        return int(self._firsts[-1])

    def worker_of(self, track: int) -> tuple[int, int]:
        """Returns (place among the recordings, place among its tracks). IndexError for a track that there is not."""
        if not 0 <= track < self.track_count:
            raise IndexError(track)
        worker = int(np.searchsorted(self._firsts, track, "right")) - 1
        return worker, track - int(self._firsts[worker])

    def at(self, track: int) -> tuple[Timeline, Track, int, int]:
        """Returns (timeline, track, its place there, offset in ns)."""
        worker, local = self.worker_of(track)
        return self.timelines[worker], self.timelines[worker].tracks[local], local, self.alignment[worker].offset_ns

    def number(self, worker: int, local: int) -> int:
        """Returns the number of a track."""
        return int(self._firsts[worker]) + local

    def track_of_path(self, path: str) -> int | None:
        """Returns the track at a path, None where there is none."""
        for worker, timeline in enumerate(self.timelines):
            for local, track in enumerate(timeline.tracks):
                if track.path == path:
                    return self.number(worker, local)
        return None

    # -- names ---------------------------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> tuple[list[str], list[int], list[Rows]]:
        place: dict[tuple[str, int], int] = {}
        lookups = []
        for one in self.timelines:
            names = one.events.names
            pairs = zip(names.text, names.category.tolist(), strict=True)
            lookups.append(np.fromiter((place.setdefault(pair, len(place)) for pair in pairs), np.int32, len(names.text)))
        return [text for text, _ in place], [category for _, category in place], lookups

    @property
    def names(self) -> list[str]:
        """Distinct names of all recordings; one that stands for two kinds of work is there twice."""
        return self._names[0]

    @property
    def name_categories(self) -> list[int]:
        return self._names[1]

    def name_ids(self, worker: int, events: Ids) -> npt.NDArray[np.int32]:
        """Returns the place in `names` of some events of a recording."""
        if len(self.timelines) == 1:
            return self.timelines[0].events.name_ids(events)
        found: npt.NDArray[np.int32] = self._names[2][worker][self.timelines[worker].events.name_ids(events)]
        return found

    def local_names(self, worker: int, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Returns which names of a recording are among some places in `names`."""
        return np.flatnonzero(np.isin(self._names[2][worker], ids))


def by_clock(timelines: Sequence[Timeline]) -> list[Alignment]:
    """Returns alignments by the absolute time in the files where every one has it, else none: each begins at 0."""
    facts = [t.capture.facts for t in timelines]
    names = [(t.capture.worker, t.capture.span) for t in timelines]
    if not all(f.absolute for f in facts):
        return [Alignment(worker, span, 0, "none") for worker, span in names]
    first = min(f.origin_ns for f in facts)
    alone = len(timelines) == 1
    return [
        Alignment(worker, span, f.origin_ns - first, "clock", 0 if alone else None) for (worker, span), f in zip(names, facts, strict=True)
    ]
