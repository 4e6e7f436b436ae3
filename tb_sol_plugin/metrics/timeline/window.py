"""Says what of which recordings stands in a trace file: a window on some tracks, and how the processes of several are kept apart."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tb_sol_plugin.metrics.timeline.timeline import Timeline

EVERYTHING: Final = (-(2**62), 2**62)
"""Window of all times: a mark can come before the first event."""
_PROCESSES: Final = 10_000_000
"""More than there are process ids (4,194,304 at most): what those of two recordings are apart."""


@dataclass(frozen=True)
class Window:
    """What is written. tracks: places among the timeline's tracks. clip: events are cut to the window.

    split_overlaps: events that overlap another of their stream or thread without lying inside it go to threads of their own, and times
    begin at 0, as some viewers drop what does not. path: the critical path stands in a process of its own, its events are marked, and links
    lead along it.
    """

    start_ns: int
    end_ns: int
    tracks: Sequence[int]
    flows: bool = True
    clip: bool = False
    split_overlaps: bool = False
    path: bool = False


def whole(timeline: Timeline) -> Window:
    """Returns the window of everything, counters too."""
    return Window(EVERYTHING[0], EVERYTHING[1], all_tracks(timeline))


def all_tracks(timeline: Timeline) -> list[int]:
    """Returns every track that holds something: threads, streams, ranges, waiting, instants and counters."""
    return [i for i, t in enumerate(timeline.tracks) if t.lanes or t.series >= 0]


def rows_of(timeline: Timeline, tracks: Sequence[int] | None) -> list[int]:
    """Returns the tracks that hold what some tracks stand for: of a worker, process or device those inside of it. None: all."""
    return all_tracks(timeline) if tracks is None else [i for track in tracks for i in (timeline.below(track) or [track])]


@dataclass(frozen=True)
class Place:
    """Where a recording stands in a file of several: its processes are numbered apart and named after it, its times moved.

    number: among them; -1 alone in the file, with its processes as they are. offset_ns: added to its times.
    """

    number: int = -1
    label: str = ""
    offset_ns: int = 0

    def process(self, pid: str) -> str:
        """Returns the JSON of a process id, from that of the recording's own."""
        if self.number < 0:
            return pid
        if is_whole(pid) and 0 <= int(pid) < _PROCESSES:
            return str((self.number + 1) * _PROCESSES + int(pid))
        return json.dumps(f"{self.label} {json.loads(pid)}")

    def name(self, process: str, pid: str) -> str:
        """Returns the name of a process; "" for none. pid: JSON of the recording's own id."""
        return process if self.number < 0 else f"{self.label}: {process or json.loads(pid)}"


def is_whole(text: str) -> bool:
    """Whether a text is a whole number of a size that every reader knows exactly; `²` and `--5` are none."""
    return len(text) < 18 and text.isascii() and text.removeprefix("-").isdigit()
