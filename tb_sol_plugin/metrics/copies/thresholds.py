"""Defines thresholds of the findings about memory copies, and reads them from a query: `thresholds="tiny_count=16,tiny_bytes=65536"`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final

from tb_sol_plugin.errors import BadQuery


@dataclass(frozen=True)
class Thresholds:
    """Sizes in bytes, times in ns, shares from 0 to 1. `MEANINGS` defines each."""

    outlast_ns: int = 50_000
    read_bytes: int = 64
    tiny_count: int = 32
    tiny_bytes: int = 64 << 10
    merge_count: int = 3
    merge_bytes: int = 1 << 20
    merge_gap_ns: int = 1_000_000
    again_steps: int = 3
    trip_gap_ns: int = 10_000_000
    trip_count: int = 2
    layout_share: float = 0.05
    pageable_share: float = 0.8
    pinned_share: float = 0.8
    relay_gap_ns: int = 5_000_000
    long_ns: int = 100_000
    exposed_share: float = 0.5
    least_share: float = 0.001


DEFAULT: Final = Thresholds()
MEANINGS: Final = {
    "outlast_ns": "a call that takes longer than its copy by more than this blocked the host",
    "read_bytes": "a copy to the host of at most this size, inside of an operator that reads values, is the reading of a value",
    "tiny_count": "from this many copies of one direction in a step on, tiny ones are worth packing",
    "tiny_bytes": "a copy below this size is tiny",
    "merge_count": "from this many copies in a row on, they can be one",
    "merge_bytes": "a copy below this size can be merged with its neighbors",
    "merge_gap_ns": "copies in a row start less than this after the end of the one before",
    "again_steps": "an upload that comes in this many steps in a row, from one place and of one size, may be a constant",
    "trip_gap_ns": "a copy back that starts at most this after the copy to the host is a round trip",
    "trip_count": "from this many round trips of one size in a step on, data goes back and forth",
    "layout_share": "copies that repeat the one before are reported where they take more than this part of a step",
    "pageable_share": "from this part of the bytes to the device on, loading is pageable",
    "pinned_share": "what a copy from pinned memory reaches of the limit of the link",
    "relay_gap_ns": "a copy to another device that starts at most this after the copy to the host goes around by the host",
    "long_ns": "a copy longer than this is worth hiding",
    "exposed_share": "a copy of which more than this part is exposed is not hidden",
    "least_share": "a finding that saves less than this part of a step is left out",
}
"""What each threshold decides."""


def from_text(text: str) -> Thresholds:
    """Returns `DEFAULT` with the values that a query names, as `name=value,name=value`; "" changes nothing.

    Raises BadQuery for an unknown name, a value that is no number of the right sort, a negative one, or a share above 1.
    """
    own: dict[str, int | float] = {}
    for part in (p.strip() for p in text.split(",")):
        if part:
            name, equals, value = (p.strip() for p in part.partition("="))
            if not equals or name not in MEANINGS:
                raise BadQuery(f"not a threshold: {part[:80]!r}", hint=f"give name=value; names: {', '.join(MEANINGS)}", field="thresholds")
            own[name] = _value(name, value)
    return replace(DEFAULT, **own)  # type: ignore[arg-type]


def changed(at: Thresholds) -> dict[str, int | float]:
    """Returns the thresholds that differ from `DEFAULT`."""
    return {f.name: getattr(at, f.name) for f in fields(at) if getattr(at, f.name) != getattr(DEFAULT, f.name)}


def _value(name: str, text: str) -> int | float:
    share = isinstance(getattr(DEFAULT, name), float)
    try:
        value: int | float = float(text) if share else int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= (1 if share else 2**62):  # NaN fails too
        wanted = "a share from 0 to 1" if share else "a whole number, 0 or more"
        hint = f"give {wanted}, such as {getattr(DEFAULT, name)}"
        raise BadQuery(f"threshold {name!r} does not fit: {text[:40]!r}", hint=hint, field="thresholds")
    return value
