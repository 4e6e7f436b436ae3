"""What is kept of a timeline beside its recording: a head with all that is small, and parts, each read and checked when it is asked for.

A part is a few columns of one length. What is derived of the recording alone is kept: a process that opens it again builds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from tb_sol_plugin.metrics.timeline.phases import Band
from tb_sol_plugin.metrics.timeline.tracks import Track

VERSION: Final = 8
"""Raised when lanes, levels or anything else that is kept changes: what was stored is built again."""
Part: TypeAlias = Mapping[str, npt.NDArray[Any]]

ORDER: Final = "order"
"""event: ids by lane, then start."""
LANES: Final = "lanes"
"""lane: the lane of each event, by id; how many lanes there are for one in none."""
NAMES: Final = "names"
"""table, pair: which pairs of name and category each table of events uses, see `Events.used`."""
COARSE: Final = 13
"""Everything has at most `2^COARSE` buckets at the level of wide views: as many as the widest screens have pixels."""
OUTERMOST: Final = "outermost"
"""track, start, end: see `Timeline.outermost`."""
SUMS: Final = "sums"
"""What all threads and streams add up to by name: a row per name, see `Selection.groups`."""
MORE: Final[list[Callable[[Any], Mapping[str, Part]]]] = []
"""Make further parts of a timeline; added by the modules that read these, which build on timelines."""


def level_part(z: int) -> str:
    """Returns the name of the part with the items of a level: start, end, event, first, busy."""
    return f"level-{z}"


def cover_part(track: int) -> str:
    """Returns the name of the part with the unions of a group: start, end, before."""
    return f"cover-{track}"


def grid_part(track: int) -> str:
    """Returns the name of the part with what a group's unions hold before each time of a coarse grid: a column per union."""
    return f"grid-{track}"


def coarse_part(place: int) -> str:
    """Returns the name of the part with a counter at a coarse level: time, low, high, last, at. See `counters.Coarse`."""
    return f"coarse-{place}"


def coarse_level(span: int) -> int:
    """Returns the level of what is kept for wide views: 8,192 buckets hold everything. span: ns."""
    return max(0, (span - 1).bit_length() - COARSE)


def series_part(place: int) -> str:
    """Returns the name of the part with the samples of a counter: time, value."""
    return f"series-{place}"


class KeptCover(msgspec.Struct, frozen=True):
    """Which unions a group's part holds, one after the other: (category, intervals), and those of everything last.

    part: the group whose part it is; groups of the same events share one. grid: level of the grid that is kept, -1 without one.
    """

    part: int
    kinds: list[tuple[int, int]]
    busy: int
    grid: int


class KeptSeries(msgspec.Struct, frozen=True):
    """A counter without its samples, see `counters.Series`."""

    label: str
    unit: str
    device: int
    source: tuple[int, int] | str
    extent: tuple[int, int, int, float, float]
    coarse: int
    """Level at which it is kept for wide views, -1 at none."""


class Head(msgspec.Struct, frozen=True):
    """What of a timeline is small. Tracks are without counters. levels: (z, bounds of the lanes) of each.

    root: label of the first track, with which the paths of all begin. covers: of groups by their place among the tracks.
    attached: state of what was attached to the recording; series, focus and bands hold for no other one.
    """

    version: int
    events: int
    root: str
    attached: str
    tracks: list[Track]
    bounds: list[int]
    levels: list[tuple[int, list[int]]]
    focus: tuple[int, int, list[tuple[int, int]]]
    overflow: int
    covers: dict[int, KeptCover]
    series: list[KeptSeries]
    bands: list[Band]


@dataclass(frozen=True)
class Stored:
    """A timeline as it was kept. part: columns of a part, mapped; None where it is damaged or was not kept.

    ahead: lets the system begin to read some parts, and returns at once.
    """

    head: Head
    part: Callable[[str], Part | None]
    ahead: Callable[[Iterable[str]], None]


class Keeper(Protocol):
    """A place that keeps a timeline: `store.timelines`. root: label of the first track. events: how many there are."""

    def load(self, root: str, events: int) -> Stored | None: ...

    def save(self, head: Head, parts: Mapping[str, Part]) -> bool: ...


def lane_type(lanes: int) -> type[np.uint8] | type[np.uint16] | type[np.uint32]:
    """Returns the type of numbers of lanes: as few bytes as they need."""
    return np.uint8 if lanes < 2**8 else np.uint16 if lanes < 2**16 else np.uint32
