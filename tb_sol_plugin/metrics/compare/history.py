"""Finds the runs from which on a number is another one, in the order in which they were recorded.

Circular binary segmentation (Olshen and others 2004) over ranks: the stretch of a history that differs most from its rest is parted from
it, as long as that difference is larger than all but 5 % of those of the same values in random order (a permutation test of the largest
of all stretches, so that looking at many counts; fewer for each further one). A rise that is taken back later is found too. Each part has
three runs or more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from tb_sol_plugin.errors import BadQuery
from tb_sol_plugin.metrics.compare.change import SEED, TOO_SMALL, Values
from tb_sol_plugin.tables.arrays import Places

LEAST_RUNS: Final = 6
LEAST_PART: Final = 3
PERMUTATIONS: Final = 1_000
AT_ONCE: Final = 50
EVERY_LENGTH: Final = 40
"""Runs up to which stretches of every length are tried."""
LEVEL: Final = 0.05
MOST_PATTERN: Final = 200
"""Characters of a pattern."""
_NUMBER: Final = re.compile(r"[+-]?\d{1,15}(\.\d{1,15})?")


def found_in(names: Sequence[str], pattern: str) -> dict[str, str]:
    """Returns, of names in which a regular expression is found, what its first group matched; all of it where it has no group.

    BadQuery where it is none, or is not in the syntax of RE2, which takes time in proportion to the names whatever the expression.
    """
    if len(pattern) > MOST_PATTERN:
        raise BadQuery(f"a pattern of more than {MOST_PATTERN} characters", hint="shorten it", field="pattern")
    if not names:
        return {}
    texts = pa.array(names, pa.string())
    try:
        found = pc.match_substring_regex(texts, pattern).to_pylist()
        hits = [name for name, hit in zip(names, found, strict=True) if hit]
        if not hits:
            return {}
        groups = _grouped(pa.array(hits, pa.string()), f"({pattern})", 2)
        groups = groups if groups is not None else _grouped(pa.array(hits, pa.string()), f"({pattern})", 1)
    except pa.ArrowInvalid as error:
        why = str(error).partition("Invalid regular expression: ")[2] or str(error)
        hint = r"write one of RE2, as nightly-(\d+); it has no look-around and no references back"
        raise BadQuery(f"{pattern[:80]!r} is no regular expression: {why[:120]}", hint=hint, field="pattern") from None
    return dict(zip(hits, groups or hits, strict=True))


def _grouped(texts: pa.Array, pattern: str, group: int) -> list[str] | None:
    """Returns what a group of a pattern matched first in each text; None where the pattern has fewer groups."""
    try:
        found: list[str] = pc.replace_substring_regex(texts, f"(?s)^.*?{pattern}.*$", rf"\{group}").to_pylist()
    except pa.ArrowInvalid as error:
        if "replacement" in str(error):
            return None
        raise
    return found


def in_order(places: Sequence[str]) -> list[tuple[float, str]]:
    """Returns keys that sort what groups matched: by number where all of them are numbers, else as text."""
    if all(_NUMBER.fullmatch(place) for place in places):
        return [(float(place), "") for place in places]
    return [(0.0, place) for place in places]


@dataclass(frozen=True)
class Changed:
    """From run `at` on (its place) the number is another one. before, after: medians of the runs of the parts at its sides."""

    at: int
    before: float
    after: float
    p: float

    @property
    def change(self) -> float | None:
        """As part of what it was before; None of 0."""
        return self.after / self.before - 1 if self.before else None


def changes_of(values: Sequence[float]) -> list[Changed]:
    """Returns where a history changed, in order. values: of each run, in order of time; fewer than six tell nothing."""
    found = np.asarray(values, np.float64)
    if len(found) < LEAST_RUNS:
        return []
    random = np.random.default_rng(SEED)
    cuts: dict[int, float] = {}
    left = [(0, len(found))]
    while left:
        low, high = left.pop()
        inner, p = _largest(found[low:high], random, LEVEL / (1 + len(cuts)))
        for at in inner:
            cuts[low + at] = p
        if inner:
            left += pairwise([low, *(low + at for at in inner), high])
    edges = [0, *sorted(cuts), len(found)]
    middle = [float(np.median(found[a:b])) for a, b in pairwise(edges)]
    out = [Changed(at, middle[i], middle[i + 1], cuts[at]) for i, at in enumerate(edges[1:-1])]
    return [c for c in out if abs(c.after - c.before) >= TOO_SMALL * abs(c.before)]


def _largest(values: Values, random: np.random.Generator, level: float) -> tuple[list[int], float]:
    """Returns the ends, of the stretch that differs most from its rest (none where chance explains it), and the p-value."""
    n = len(values)
    if n < 2 * LEAST_PART:
        return [], 1.0
    start, end = _stretches(n)
    ranks = _ranks(values)
    own = _scores(ranks[None], start, end)[0]
    best, more = int(own.argmax()), 0
    for _ in range(0, PERMUTATIONS, AT_ONCE):
        shuffled = random.permuted(np.tile(ranks, (AT_ONCE, 1)), axis=1)
        more += int((_scores(shuffled, start, end).max(axis=1) >= own[best] - 1e-12).sum())
        if more > level * (PERMUTATIONS + 1):  # chance explains it, whatever the other orders say
            return [], (1 + more) / (PERMUTATIONS + 1)
    p = (1 + more) / (PERMUTATIONS + 1)
    return (_to_the_run(values, [int(at) for at in (start[best], end[best]) if 0 < at < n]) if p <= level else []), p


def _to_the_run(values: Values, ends: Sequence[int]) -> list[int]:
    """Returns the ends of a stretch at the runs from which on values lie nearer to the median of the one part than to that of the other.

    Ranks tell that a stretch differs and about where: of a long history not every length is tried, and chance moves it by a run or two.
    """
    out: list[int] = []
    edges = [0, *ends, len(values)]
    for i, at in enumerate(ends, 1):
        low, high = (out[-1] if out else 0), edges[i + 1]
        before, after = np.median(values[low:at]), np.median(values[at:high])
        apart = np.cumsum(np.abs(values[low:high] - before) - np.abs(values[low:high] - after))  # the least where the one part ends
        places = np.arange(low + LEAST_PART, high - LEAST_PART + 1)
        out.append(int(places[apart[places - low - 1].argmin()]))
    return out


def _stretches(n: int) -> tuple[Places, Places]:
    """Returns begins and ends of stretches of three runs or more with three or more, or none, before, after and outside of them.

    Of a long history not every length: each is a fifth longer than the one before.
    """
    lengths, length = [], LEAST_PART
    while length <= n - LEAST_PART:
        lengths.append(length)
        length = length + 1 if n <= EVERY_LENGTH else max(length + 1, round(1.2 * length))
    start = np.concatenate([np.arange(n - size + 1) for size in lengths])
    end = start + np.repeat(lengths, [n - size + 1 for size in lengths])
    use = ((start == 0) | (start >= LEAST_PART)) & ((end == n) | (end <= n - LEAST_PART))
    return start[use], end[use]


def _scores(ranks: Values, start: Places, end: Places) -> Values:
    """Returns per order and stretch how far its mean rank lies from the middle, in standard deviations."""
    n = ranks.shape[1]
    size = end - start
    until = np.concatenate([np.zeros((len(ranks), 1)), np.cumsum(ranks, axis=1)], axis=1)
    total = until[:, end] - until[:, start]
    return np.asarray(np.abs(total - size * (n + 1) / 2) / np.sqrt(size * (n - size) * (n + 1) / 12), np.float64)


def _ranks(values: Values) -> Values:
    """Returns ranks from 1 on; equal values share their mean."""
    return np.asarray(pd.Series(values).rank(), np.float64)
