"""Shows several recordings on one clock: their tracks under each other, their names in one list, and how their clocks were aligned."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.metrics.timeline.align import Alignment, aligned
from tb_sol_plugin.metrics.timeline.events import Ids, Names
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.metrics.timeline.tracks import Track
from tb_sol_plugin.tables.arrays import Rows


class Workers:
    """Timelines of recordings of one run. Tracks are numbered through; times are ns after the earliest start of them all."""

    def __init__(self, timelines: Sequence[Timeline], alignment: Sequence[Alignment] | None = None) -> None:
        self.timelines = list(timelines)
        self.alignment = list(alignment) if alignment is not None else aligned(timelines)
        counts = [len(t.tracks) for t in self.timelines]
        self._firsts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)

    @property
    def origin_ns(self) -> int | None:
        """Time since 1970 at which time begins; None where the recordings do not stand at their own."""
        facts = [t.capture.facts for t in self.timelines]
        if any(a.method != "clock" for a in self.alignment):
            return None
        return min(f.origin_ns - a.offset_ns for f, a in zip(facts, self.alignment, strict=True))

    @cached_property
    def span_ns(self) -> int:
        return max(t.span_ns + a.offset_ns for t, a in zip(self.timelines, self.alignment, strict=True))

    def aligned(self, alignment: Sequence[Alignment]) -> Workers:
        """Returns the same recordings with other offsets; they share what does not depend on these."""
        other = Workers(self.timelines, alignment)
        other.__dict__["_names"] = self._names
        return other

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

    def alike(self, track: int) -> int:
        """Returns the first group of the same recording that shows the same over time; a track that is no group itself."""
        worker, local = self.worker_of(track)
        return self.number(worker, self.timelines[worker].alike(local))

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
    def _names(self) -> tuple[Names, list[Rows]]:
        if len(self.timelines) == 1:
            only = self.timelines[0].events.names
            return only, [np.arange(len(only.text), dtype=np.int32)]
        place: dict[tuple[str, int], int] = {}
        lookups = []
        for one in self.timelines:
            names = one.events.names
            pairs = zip(names.text, names.category.tolist(), strict=True)
            lookups.append(np.fromiter((place.setdefault(pair, len(place)) for pair in pairs), np.int32, len(names.text)))
        category = np.fromiter((category for _, category in place), np.uint8, len(place))
        return Names([text for text, _ in place], category), lookups

    @property
    def names(self) -> list[str]:
        """Distinct names of all recordings; one that stands for two kinds of work is there twice."""
        return self._names[0].text

    @property
    def name_categories(self) -> list[int]:
        found: list[int] = self._names[0].category.tolist()
        return found

    @property
    def name_shown(self) -> list[int]:
        """What each name is drawn as, see `Names.shown`."""
        found: list[int] = self._names[0].shown.tolist()
        return found

    def name_ids(self, worker: int, events: Ids) -> npt.NDArray[np.int32]:
        """Returns the place in `names` of some events of a recording."""
        if len(self.timelines) == 1:
            return self.timelines[0].events.name_ids(events)
        found: npt.NDArray[np.int32] = self._names[1][worker][self.timelines[worker].events.name_ids(events)]
        return found

    def local_names(self, worker: int, ids: npt.NDArray[np.integer]) -> npt.NDArray[np.int64]:
        """Returns which names of a recording are among some places in `names`."""
        return np.flatnonzero(np.isin(self._names[1][worker], ids))
