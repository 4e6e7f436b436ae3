"""CPU time of calls on a machine that others use as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence

TRIES = 6


def least(measure: Callable[[], Sequence[float]], enough: Callable[[list[float]], bool]) -> list[float]:
    """Returns the least seconds of each measurement, taken again until they are `enough`, six times at most: what disturbs only adds."""
    found = list(measure())
    for _ in range(TRIES - 1):
        if enough(found):
            break
        found = [min(pair) for pair in zip(found, measure(), strict=True)]
    return found
