"""Puts the clocks of several recordings beside each other: an integer offset for each, with the method and how sure it is.

Asked for as text, as it stands in links: `clock`, `none`, `step`, `step:7`, `manual:0,1500`, `collective`. Offsets begin at 0: the earliest
event of all stands at time 0, and none is moved out of view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.timeline.timeline import Timeline
from tb_sol_plugin.tables.arrays import Ints

Method = Literal["clock", "collective", "step", "manual", "none"]
METHODS: Final[dict[Method, str]] = {
    "clock": "by the absolute time in the files",
    "collective": "by the ends of matched collectives",
    "step": "by the start of a step",
    "manual": "by hand",
    "none": "not aligned: each begins at 0",
}
UNKNOWN: Final = "not aligned: at least one file has no absolute time"
FARTHEST: Final = 10**17
"""Nanoseconds, some three years: no two recordings of a run are farther from each other."""
LONGEST: Final = 4_000
"""Characters of what is asked."""


@dataclass(frozen=True)
class Alignment:
    """How the clock of one recording was put beside the others. offset_ns: added to its times. uncertainty_ns: None unknown."""

    worker: str
    span: str
    offset_ns: int
    method: Method
    uncertainty_ns: int | None = None
    text: str = ""


@dataclass(frozen=True)
class Choice:
    """A way to align that can be asked for. why_not: what is missing for it, "" where nothing is."""

    asked: str
    label: str
    why_not: str


Offsets = Callable[[Sequence[Timeline]], "Sequence[tuple[int, int | None]] | None"]
"""Returns the offset (ns, of any origin) and the uncertainty (ns, None unknown) of each recording; None where it finds nothing to go by."""

def _by_collectives(timelines: Sequence[Timeline]) -> Sequence[tuple[int, int | None]] | None:
    from tb_sol_plugin.metrics.ranks.offsets import offsets_of  # matching of ranks is loaded where it is asked for

    return offsets_of([t.capture for t in timelines])


MEASURED: Final[dict[Method, Offsets]] = {"collective": _by_collectives}
"""What measures offsets by other methods."""


def aligned(timelines: Sequence[Timeline], asked: str = "") -> list[Alignment]:
    """Returns how the clocks of recordings are aligned. asked: as in links; "" by their clocks where all are known, else not at all.

    BadQuery for what cannot be done.
    """
    word, _, value = asked.partition(":")
    if len(asked) > LONGEST or (asked and word not in get_args(Method)) or (value and word not in ("step", "manual")):
        raise BadQuery(f"no alignment {asked[:40]!r}", hint="choose clock, none, step, step:NUMBER, manual:NS,NS or collective", field="al")
    known = all(t.capture.facts.absolute for t in timelines)
    if not asked:
        return _as("clock", _clocks(timelines)) if known else _as("none", _apart(timelines), UNKNOWN)
    why_not = next((c.why_not for c in choices(timelines) if c.asked == word), "")
    if why_not:
        raise BadQuery(f"cannot align {METHODS[word]}: {why_not}", hint="leave out al, or choose none", field="al")  # type: ignore[index]
    if word == "manual":
        return _as("manual", _by_hand(timelines, value))
    if word == "step":
        number = _step(timelines, value)
        return _as("step", _steps(timelines, number), f"by the start of step {number}")
    measured = MEASURED[word](timelines) if word in MEASURED else None  # type: ignore[index]
    if measured is not None:
        return _as(word, [(t, *one) for t, one in zip(timelines, measured, strict=True)])  # type: ignore[arg-type]
    return _as("clock", _clocks(timelines)) if word == "clock" else _as("none", _apart(timelines))


def choices(timelines: Sequence[Timeline]) -> list[Choice]:
    """Returns the ways in which several recordings can be aligned; none for a single one."""
    if len(timelines) < 2:
        return []
    reasons: dict[Method, str] = {
        "clock": "" if all(t.capture.facts.absolute for t in timelines) else "at least one file has no absolute time",
        "collective": "" if _measured("collective", timelines) is not None else "no collectives of these recordings were matched",
        "step": "" if common_steps(timelines) else "no complete step that all of them have",
        "manual": "",
        "none": "",
    }
    return [Choice(method, METHODS[method], why_not) for method, why_not in reasons.items()]


def common_steps(timelines: Sequence[Timeline]) -> list[int]:
    """Returns the numbers of the complete steps that all recordings have, ascending."""
    found = [set(_starts(t)) for t in timelines]
    return sorted(set.intersection(*found)) if found else []


def _measured(method: Method, timelines: Sequence[Timeline]) -> Sequence[tuple[int, int | None]] | None:
    return MEASURED[method](timelines) if method in MEASURED else None


_Moved = Sequence[tuple[Timeline, int, "int | None"]]
"""Recordings with their offset of any origin, and its uncertainty."""


def _as(method: Method, moved: _Moved, text: str = "") -> list[Alignment]:
    first = min((offset for _, offset, _ in moved), default=0)
    return [
        Alignment(t.capture.worker, t.capture.span, offset - first, method, sure, text or METHODS[method]) for t, offset, sure in moved
    ]


def _clocks(timelines: Sequence[Timeline]) -> _Moved:
    """Clocks of different machines differ by an unknown amount."""
    alone = len(timelines) == 1
    return [(t, t.capture.facts.origin_ns, 0 if alone else None) for t in timelines]


def _apart(timelines: Sequence[Timeline]) -> _Moved:
    return [(t, 0, None) for t in timelines]


def _by_hand(timelines: Sequence[Timeline], text: str) -> _Moved:
    parts = text.split(",") if text else []
    try:
        offsets = [int(part) if len(part) <= 20 and part.isascii() else FARTHEST + 1 for part in parts]
    except ValueError:
        offsets = []
    if len(offsets) != len(timelines) or any(abs(offset) > FARTHEST for offset in offsets):
        hint = f"give {len(timelines)} whole numbers of ns, one per worker, as manual:{','.join(['0'] * len(timelines))[:80]}"
        raise BadQuery(f"no offsets {text[:40]!r}", hint=hint, field="al")
    return [(t, offset, None) for t, offset in zip(timelines, offsets, strict=True)]


def _step(timelines: Sequence[Timeline], text: str) -> int:
    steps = common_steps(timelines)
    number = steps[0] if not text else next((n for n in steps if str(n) == text), None)
    if number is None:
        near = ", ".join(map(str, steps[:10]))
        raise BadQuery(f"not all recordings have a complete step {text[:40]!r}", hint=f"choose of {near}", field="al")
    return number


def _steps(timelines: Sequence[Timeline], number: int) -> _Moved:
    """The uncertainty is half of the interquartile range of what the other steps say; unknown where there is none."""
    steps = common_steps(timelines)
    begins = [np.array([_starts(t)[n] for n in steps], np.int64) for t in timelines]
    at = steps.index(number)
    return [(t, -int(begin[at]), _spread(begin - begins[0])) for t, begin in zip(timelines, begins, strict=True)]


def _spread(values: Ints) -> int | None:
    if len(values) < 2:
        return None
    low, high = np.percentile(values, (25, 75), method="inverted_cdf").tolist()
    return (int(high) - int(low) + 1) // 2


def _starts(timeline: Timeline) -> dict[int, int]:
    table = timeline.capture.steps
    columns = (table[c].tolist() for c in ("number", "host_start_ns", "complete"))
    return {n: start for n, start, complete in zip(*columns, strict=True) if n >= 0 and complete}
