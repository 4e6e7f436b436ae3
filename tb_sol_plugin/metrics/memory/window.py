"""Windows and moments of time as a reader writes them: `12.5ms-40ms`, `1000-2000` (ns), from the start of the recording."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import numpy as np

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.memory.curves import Curves, steps
from tb_sol_plugin.metrics.scope import scope
from tb_sol_plugin.model.capture import Capture
from tb_sol_plugin.model.query import Query

UNITS: Final = {"": 1, "ns": 1, "us": 1_000, "µs": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIME: Final = r"(-?\d{1,18}(?:\.\d{1,9})?)\s*(ns|us|µs|ms|s)?"
_MOMENT: Final = re.compile(_TIME)
_WINDOW: Final = re.compile(rf"{_TIME}\s*[-–~:]\s*{_TIME}")
_MOST: Final = 1 << 62
MOMENT: Final = "give it as 12.5ms, or as 12500000 in ns, from the start of the recording"
HINT: Final = "give it as 12.5ms-40ms, or as 12500000-40000000 in ns, from the start of the recording"


def moment(text: str, *, field: str = "at") -> int | None:
    """ns from the start of the recording; None for "". BadQuery where it is no time."""
    plain = text.strip()
    if not plain:
        return None
    found = _MOMENT.fullmatch(plain)
    if found is None:
        raise BadQuery(f"not a time: {plain!r}", hint=MOMENT, field=field)
    return _ns(found[1], found[2] or "", field)


def span(text: str) -> tuple[int, int] | None:
    """(start, end) in ns from the start of the recording; None for "". A unit at the end holds for both. BadQuery where it is none."""
    plain = text.strip()
    if not plain:
        return None
    found = _WINDOW.fullmatch(plain)
    if found is None:
        raise BadQuery(f"not a window: {plain!r}", hint=HINT, field="window")
    start = _ns(found[1], found[2] or found[4] or "", "window")
    end = _ns(found[3], found[4] or "", "window")
    if end <= start:
        raise BadQuery(f"the window {plain!r} has no length", hint="the end must lie after the start", field="window")
    return start, end


def _ns(number: str, unit: str, field: str) -> int:
    value = int((Decimal(number) * UNITS[unit]).to_integral_value())
    if abs(value) > _MOST:
        raise BadQuery(f"no recording is that long: {number} {unit or 'ns'}", hint=HINT, field=field)
    return value


def origin(capture: Capture) -> int:
    """The moment from which a reader's times count: the start of the recording, ns."""
    return int(capture.facts.extent_ns[0])


def window_of(capture: Capture, curve: Curves, text: str, query: Query) -> tuple[int, int] | None:
    """The window (ns of the capture) that a reader asks for: one of time, else the steps of `query.step`; None for all.

    BadQuery where nothing of the curve lies in it: it ends before the curve begins, or begins after its end and that of the recording.
    """
    found = span(text)
    if found is None:
        return _of_steps(capture, query) if query.step.strip() else None
    start, end = found[0] + origin(capture), found[1] + origin(capture)
    first = min(int(curve.time_ns[0]), origin(capture))
    last = max(int(curve.time_ns[-1]), int(capture.facts.extent_ns[1]))
    if end <= first or start >= last:
        low, high = ((t - origin(capture)) / 1e6 for t in (first, last))
        hint = f"the recording lasts from {low:.6g}ms to {high:.6g}ms"
        raise BadQuery(f"nothing was recorded in the window {text.strip()!r}", hint=hint, field="window")
    return max(start, first), min(end, last)


def _of_steps(capture: Capture, query: Query) -> tuple[int, int]:
    """First start and last end of the chosen steps on the host."""
    numbers = scope(capture, query).steps
    table = steps(capture)
    own = np.isin(table["number"].to_numpy(), numbers)
    return int(table["start_ns"].to_numpy()[own].min()), int(table["end_ns"].to_numpy()[own].max())
