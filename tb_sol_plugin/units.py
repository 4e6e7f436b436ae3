"""Lists the units a number can carry and formats them as a person reads them.

The frontend mirrors `human` in `frontend/src/units.ts`; `tests/golden/units.json` holds both to the same answers.

Units
    ns       integer nanoseconds            B        bytes                 FLOP     floating point operations
    B/s      bytes per second               FLOP/s   operations per second FLOP/B   arithmetic intensity
    count    a whole number                 ratio    1.0 shown as 100 %    %        already in percent
    MHz      clock                          ""       no unit: text, ids, versions
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

UNITS: Final = ("", "ns", "B", "FLOP", "B/s", "FLOP/s", "FLOP/B", "count", "ratio", "%", "MHz")

NARROW: Final = "\u202f"
"""Narrow no-break space: between thousands, and between a number and its unit."""
MINUS: Final = "\u2212"

_SI: Final = ((1.0, ""), (1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P"), (1e18, "E"))
_STEPS: Final = {"ns": ((1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s"))} | {
    unit: tuple((factor, prefix + unit) for factor, prefix in _SI) for unit in ("B", "FLOP", "B/s", "FLOP/s")
}
"""Of every unit that has larger ones: (factor, name), the smallest first."""
SECONDS_FROM: Final = 1e10
"""ns from which a time is written in seconds: 10 s, so that a step and its parts have one unit, ms."""


_FROM: Final = {
    unit: tuple((SECONDS_FROM if name == "s" else factor) * 0.9995 for factor, name in steps[1:]) for unit, steps in _STEPS.items()
}
"""Of every unit of `_STEPS`: the magnitude from which each step after the first is taken."""


def scale_of(value: float, unit: str) -> tuple[float, str]:
    """Returns the divisor and the name of the unit a person would pick for `value` (base units)."""
    steps = _STEPS.get(unit)
    if steps is None:
        return (0.01, "%") if unit == "ratio" else (1.0, "" if unit == "count" else unit)
    return steps[bisect_right(_FROM[unit], abs(value))] if value == value else steps[0]


def side_by_side(values: Sequence[float | None], unit: str) -> list[str]:
    """Writes amounts that are compared, or stand in one list, in one unit: that of the largest.

    Three significant digits below 0.1 of it; an amount below a thousandth keeps its own unit, since no reader counts the zeros.
    """
    factor, name = scale_of(max((abs(v) for v in values if v is not None), default=0.0), unit)

    def text(value: float | None) -> str:
        scaled = abs(value or 0) / factor
        if value is None or name in ("", "%", unit) or scaled < 0.001:
            return human(value, unit)
        decimals = digits(scaled) if scaled >= 0.1 else 2 - math.floor(math.log10(scaled))
        return number(value / factor, decimals) + NARROW + name

    return [text(v) for v in values]


def digits(value: float) -> int:
    """Returns decimals for up to four significant digits: 0 from 1 000, 1 from 100, 2 from 1, 3 below."""
    magnitude = abs(value)
    if magnitude >= 999.95:
        return 0
    if magnitude >= 99.995:
        return 1
    return 2 if magnitude >= 0.9995 else 3


def number(value: float, decimals: int) -> str:
    """Returns `value` with thousands separated by a narrow space and a real minus sign."""
    text = f"{abs(value):,.{decimals}f}"
    if "," in text:
        text = text.replace(",", NARROW)
    return MINUS + text if value < 0 and not _ZERO.issuperset(text) else text


_ZERO: Final = frozenset("0." + NARROW)
"""The characters of a number that was rounded to nothing: it has no sign."""


def human(value: float | int | None, unit: str = "") -> str:
    """Returns `value` in base units as a person reads it: `12.3 ms`, `989 TFLOP/s`; unknown is an em dash."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "—"
    if unit == "count":
        return number(value, 0)
    if unit in ("ratio", "%"):
        percent = value * 100.0 if unit == "ratio" else float(value)
        if 0 < abs(percent) < 0.05:
            return f"< 0.1{NARROW}%"
        return number(percent, 1) + NARROW + "%"
    if value == 0:
        return f"0{NARROW}{unit}" if unit else "0"
    factor, name = scale_of(float(value), unit)
    scaled = float(value) / factor
    decimals = 0 if unit == "ns" and name == "ns" else digits(scaled)
    if unit == "B" and name == "B":
        decimals = 0
    return number(scaled, decimals) + (NARROW + name if name else "")


def humans(values: Iterable[float | int], unit: str) -> list[str]:
    """Returns many known values of one unit as `human` writes each, in half the time."""
    steps, begins = _STEPS.get(unit), _FROM.get(unit)
    if steps is None or begins is None:
        return [human(v, unit) for v in values]
    out, whole = [], unit in _WHOLE
    ends = [(factor, NARROW + name) for factor, name in steps]
    written: dict[float | int, str] = {}  # lengths and sizes come again and again
    for value in values:
        text = written.get(value)
        if text is None:
            place = bisect_right(begins, value) if value > 0 else 0
            factor, end = ends[place]
            scaled = value / factor
            if (place or not whole) and 0.9995 <= scaled < 999.95:
                text = f"{scaled:.2f}{end}" if scaled < 99.995 else f"{scaled:.1f}{end}"
            elif whole and not place and 0 <= scaled < 999:
                text = f"{scaled:.0f}{end}"
            else:
                text = human(value, unit)
            written[value] = text
        out.append(text)
    return out


_WHOLE: Final = frozenset(("ns", "B"))
"""Units of which a person counts no parts."""


def signed(value: float, unit: str) -> str:
    """Returns a difference as a person reads it, with its sign: `+3.1 ms`."""
    return ("+" if value > 0 else "") + human(value, unit)


def signed_percent(part: float) -> str:
    """Returns a change as a part of something with its sign: `+3.1 %`; what rounds to 0 has none."""
    sign = "" if abs(100 * part) < 0.05 else "+" if part > 0 else MINUS
    return f"{sign}{number(100 * abs(part), 1)}{NARROW}%"


def how_many(count: int, one: str, many: str = "") -> str:
    """Returns `1 replica`, `8 replicas`: how many of a thing. many: the plural, where it is not `one` and an s."""
    return f"{human(count, 'count')} {one if count == 1 else many or one + 's'}"


def capitalized(text: str) -> str:
    """Returns the text with its first letter large, as a sentence begins; the rest stays as it is."""
    return text[:1].upper() + text[1:]
