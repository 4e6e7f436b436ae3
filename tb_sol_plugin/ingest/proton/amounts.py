"""Values of metrics: numbers, numbers written as text, and what is neither."""

from __future__ import annotations

import math
import re
from typing import Final, Literal, TypeAlias

Fault: TypeAlias = Literal["", "text", "negative", "not finite", "too large", "no number"]

LARGEST: Final = 2.0**62
_NUMBER: Final = re.compile(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*")


def amount(value: object) -> tuple[float | int | None, Fault]:
    """(a number that is not below 0, None unknown; what was odd). Whole numbers stay exact."""
    odd: Fault = ""
    if isinstance(value, str):
        if len(value) > 40 or not _NUMBER.fullmatch(value):
            return None, "no number"
        value, odd = (int(value) if value.strip().lstrip("+-").isdigit() else float(value)), "text"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None, "no number"
    if isinstance(value, float) and not math.isfinite(value):
        return None, "not finite"
    if value < 0:
        return None, "negative"
    return (value, odd) if value < LARGEST else (None, "too large")


def whole(value: object) -> int | None:
    """A whole number, written as a number or as text; None for anything else."""
    found, _ = amount(value)
    return int(found) if found is not None and found == int(found) else None
