"""Compares ranks column by column: median, imbalance and outliers within groups of ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
import pandas as pd

from tb_sol_plugin.cached import cached_property
from tb_sol_plugin.model.recordings import RecordingReduction
from tb_sol_plugin.tables.arrays import Floats, Ints, Mask

# -- The ranks of a job ----------------------------------------------------------------------------------------------
# which of them have a recording, which are missing, and which are recorded more than once.


P = TypeVar("P", bound=msgspec.Struct)


@dataclass(frozen=True, eq=False)
class Ranks(Generic[P]):
    """The recordings of a run, in order of rank.

    read: those that could be read. counts: of these, which are part of statistics over ranks: of several recordings of one rank the
    longest alone. excluded: those that are waiting, failed, or lack what is needed. world_size: ranks of the job, None if unknown;
    world_sizes: every size that a recording states. missing: ranks of the job without a recording, empty if unknown. duplicates: rank to
    the workers that recorded it, where there are several.
    """

    read: tuple[RecordingReduction[P], ...]
    counts: Mask
    excluded: tuple[RecordingReduction[P], ...]
    world_size: int | None
    world_sizes: tuple[int, ...]
    missing: tuple[int, ...]
    duplicates: dict[int, tuple[str, ...]]

    @property
    def total(self) -> int:
        """Recordings of the run."""
        return len(self.read) + len(self.excluded)

    @property
    def compared(self) -> int:
        """Ranks that statistics are made of."""
        return int(self.counts.sum())

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """The label of each recording that was read."""
        return tuple(label(w) for w in self.read)

    @property
    def numbered(self) -> bool:
        """Whether the rank of every recording that was read is known."""
        return all(w.rank is not None for w in self.read)


def _longest_of_each_rank(
    read: Sequence[RecordingReduction[P]], often: Counter[int], length: Callable[[RecordingReduction[P]], int]
) -> Mask:
    """Mark the recordings that count: of several with one rank the longest, of equal ones the first."""
    longest: dict[int, tuple[int, int]] = {}
    counts = np.ones(len(read), np.bool_)
    for at, one in enumerate(read):
        if one.rank is None or often[one.rank] == 1:
            continue
        own = length(one)
        if one.rank in longest and own <= longest[one.rank][0]:
            counts[at] = False
        else:
            if one.rank in longest:
                counts[longest[one.rank][1]] = False
            longest[one.rank] = (own, at)
    return counts


def ranks_of(workers: Sequence[RecordingReduction[P]], length: Callable[[RecordingReduction[P]], int]) -> Ranks[P]:
    """Sort the recordings of a run into ranks.

    length: of a recording, in ns; asked only of recordings that share a rank. Of equal ones the first counts.
    """
    ordered = sorted(workers, key=lambda w: w.order)
    often = Counter(w.rank for w in ordered if w.rank is not None)
    read = tuple(w for w in ordered if w.state == "read")
    counts = _longest_of_each_rank(read, often, length)
    stated = tuple(sorted({w.facts.world_size for w in ordered if w.facts is not None and w.facts.world_size}))
    size = max(stated) if stated and max(stated) > max(often, default=0) else None
    known = size is not None and all(w.rank is not None for w in ordered)
    return Ranks(
        read, counts, tuple(w for w in ordered if w.state != "read"), size, stated,
        tuple(r for r in range(size) if r not in often) if known and size is not None else (),
        {r: tuple(w.worker for w in ordered if w.rank == r) for r, count in often.items() if count > 1},
    )  # fmt: skip


def label(worker: RecordingReduction[P]) -> str:
    """Returns the name of a recording in text: its rank, else the name of its worker."""
    return worker.worker if worker.rank is None else f"rank {worker.rank}"


FEWEST: Final = 5
"""A group of fewer known values has no outliers."""
OUTLIER_SCORE: Final = 3.5
"""Robust z-score from which on a value is an outlier (Iglewicz and Hoaglin, 1993)."""
LEAST_SHARE: Final = 0.02
"""A value that differs from the median by no more than this share of it is no outlier."""


class Measure(NamedTuple):
    """A column that ranks are compared by: its unit, its label in a sentence, and the difference below which no rank is an outlier."""

    column: str
    unit: str
    label: str
    tolerance: float = 0.0


class Spread(NamedTuple):
    """How far values of `known` ranks lie apart; None where unknown. least_rank, most_rank: the first with the smallest, largest value."""

    known: int
    least: float | None = None
    median: float | None = None
    most: float | None = None
    least_rank: str | None = None
    most_rank: str | None = None

    @property
    def imbalance(self) -> float | None:
        """Largest over median; None where the median is not above 0."""
        return self.most / self.median if self.most is not None and self.median is not None and self.median > 0 else None

    @property
    def excess(self) -> float | None:
        """Largest less median."""
        return self.most - self.median if self.most is not None and self.median is not None else None


_SPREAD: Final = ("count", "least", "median", "most", "least_at", "most_at")


@dataclass(frozen=True, eq=False)
class Comparison(Generic[P]):
    """Ranks compared by one measure, within groups.

    ranks: of the run. frame: at most one row per recording that was read and group; column `at` is the position in `ranks.read`, `group`
    that in `groups`, columns of numbers are float64 with NaN where unknown. groups: their names, in order of display. incomplete: groups
    without a median where the value of any of their ranks is unknown.
    """

    ranks: Ranks[P]
    frame: pd.DataFrame
    groups: tuple[str, ...]
    measure: Measure
    incomplete: frozenset[str] = frozenset()

    @cached_property
    def at(self) -> Ints:
        """Of each row the position of its recording in `ranks.read`."""
        return self.frame["at"].to_numpy(np.int64)

    @cached_property
    def group(self) -> Ints:
        """Of each row the position of its group in `groups`."""
        return self.frame["group"].to_numpy(np.int64)

    @cached_property
    def counts(self) -> Mask:
        """Whether a row is part of statistics."""
        return np.asarray(self.ranks.counts[self.at], np.bool_)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        """Labels of the ranks that statistics are made of, in the order of the columns of `matrix`."""
        return tuple(name for name, counts in zip(self.ranks.labels, self.ranks.counts.tolist(), strict=True) if counts)

    def counted(self, column: str = "") -> Floats:
        """Returns values of a column (default: the measure) by row, NaN where unknown or not part of statistics."""
        values = self.frame[column or self.measure.column].to_numpy(np.float64)
        return np.where(self.counts, values, np.nan)

    def matrix(self, column: str = "") -> Floats:
        """Returns values of a column (default: the measure), one row per group and one column per rank of `labels`; NaN where unknown."""
        out = np.full((len(self.groups), len(self.ranks.read)), np.nan)
        out[self.group, self.at] = self.frame[column or self.measure.column].to_numpy(np.float64)
        return np.asarray(out[:, self.ranks.counts], np.float64)

    def outlier_matrix(self) -> Mask:
        """Returns whether a value of `matrix` is an outlier of its group."""
        out = np.zeros((len(self.groups), len(self.ranks.read)), np.bool_)
        out[self.group, self.at] = self.outliers
        return np.asarray(out[:, self.ranks.counts], np.bool_)

    def spread(self, column: str = "") -> pd.DataFrame:
        """Returns how far a column (default: the measure) lies apart, one row per group, as `spread`.

        Two more columns, least_rank and most_rank, have the labels of the ranks at both ends, None where all are alike.
        """
        found = spread(self.counted(column), self.group, len(self.groups))
        differ = (found["most"] > found["least"]).tolist()
        for end in ("least", "most"):
            rows = found[f"{end}_at"].tolist()
            names = [self.ranks.labels[self.at[row]] if yes else None for row, yes in zip(rows, differ, strict=True)]
            found[f"{end}_rank"] = pd.Series(names, dtype=object)
        size = np.bincount(self.group[self.counts], minlength=len(self.groups))
        unknown = np.isin(self.groups, list(self.incomplete)) & (found["count"].to_numpy() < size)
        found.loc[unknown, ["median", "imbalance", "excess"]] = np.nan
        return found

    def spread_of(self, group: str | None = None, column: str = "") -> Spread:
        """Returns how far a column (default: the measure) lies apart in one group (None: in the ranks of all groups)."""
        in_group = self.group == self.groups.index(group) if group is not None else np.ones(len(self.frame), np.bool_)
        values = np.where(in_group, self.counted(column), np.nan)
        found = spread(values, np.zeros(len(values), np.int64), 1)
        count, least, median, most, least_at, most_at = (found[c].iloc[0] for c in _SPREAD)
        if not count:
            return Spread(0)
        incomplete = group in self.incomplete and count < int((in_group & self.counts).sum())
        label = self.ranks.labels
        return Spread(
            int(count), float(least), None if incomplete else float(median), float(most), label[self.at[least_at]], label[self.at[most_at]]
        )

    def of_median(self) -> Floats:
        """Returns the measure of each row over the median of its group; NaN where the median is not above 0."""
        median = self.spread()["median"].to_numpy(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.frame[self.measure.column].to_numpy(np.float64) / np.where(median > 0, median, np.nan)[self.group]

    @cached_property
    def outliers(self) -> Mask:
        """Whether the measure of a row is an outlier of its group."""
        return outliers(self.counted(), self.group, len(self.groups), tolerance=self.measure.tolerance)

    def sums(self, columns: Sequence[str]) -> pd.DataFrame:
        """Returns one row per group: sums of columns over the ranks that know all of them; NaN where no rank does."""
        values = np.stack([self.counted(c) for c in columns])
        known = np.isfinite(values).all(axis=0)
        count = np.bincount(self.group[known], minlength=len(self.groups))
        total = {c: np.bincount(self.group[known], v[known], len(self.groups)) for c, v in zip(columns, values, strict=True)}
        return pd.DataFrame({c: np.where(count > 0, v, np.nan) for c, v in total.items()}, index=list(self.groups))


def spread(values: Floats, group: Ints, groups: int) -> pd.DataFrame:
    """Returns how far values lie apart within each group, of values of which some are unknown (NaN).

    Columns: count of known values; least, median and most, NaN without values; least_at and most_at, positions of the first such value
    among all values, -1 without; imbalance, most over median, NaN where the median is not above 0; excess, most less median. The median
    of an even number of values is the mean of the middle two.
    """
    known = np.flatnonzero(np.isfinite(values))
    count = np.bincount(group[known], minlength=groups)
    has, first = count > 0, np.cumsum(count) - count
    ascending = known[np.lexsort((values[known], group[known]))]
    descending = known[np.lexsort((-values[known], group[known]))]
    ends = {name: np.full(groups, -1, np.int64) for name in ("least_at", "most_at")}
    ends["least_at"][has], ends["most_at"][has] = ascending[first[has]], descending[first[has]]
    out = {name: np.full(groups, np.nan) for name in ("least", "median", "most")}
    out["least"][has], out["most"][has] = values[ends["least_at"][has]], values[ends["most_at"][has]]
    low, high = first[has] + (count[has] - 1) // 2, first[has] + count[has] // 2
    out["median"][has] = (values[ascending[low]] + values[ascending[high]]) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        imbalance = np.where(out["median"] > 0, out["most"] / out["median"], np.nan)
    return pd.DataFrame({"count": count, **out, **ends, "imbalance": imbalance, "excess": out["most"] - out["median"]})


def outliers(values: Floats, group: Ints, groups: int, *, tolerance: float = 0.0) -> Mask:
    """Tells which values are outliers of their group.

    The robust z-score 0.6745 (x - median) / MAD is above 3.5, and x is more than 2 % of the median and more than `tolerance` away from
    it. Where more than half of a group are equal (MAD 0) the latter two alone decide. A group of fewer than five known values has none.
    """
    found = spread(values, group, groups)
    median = found["median"].to_numpy(np.float64)[group]
    away = np.abs(values - median)
    mad = spread(away, group, groups)["median"].to_numpy(np.float64)[group]
    enough = np.isfinite(values) & (found["count"].to_numpy()[group] >= FEWEST)
    distant = (away > LEAST_SHARE * np.abs(median)) & (away > tolerance)
    return np.asarray(enough & distant & (0.6745 * away > OUTLIER_SCORE * mad), np.bool_)


def frame_of(rows: Iterable[tuple[int, msgspec.Struct]], kind: type[msgspec.Struct]) -> pd.DataFrame:
    """Returns structs of a type as rows, with columns named as its fields and `at`: the position of the recording that each is of."""
    found = [(at, *msgspec.structs.astuple(row)) for at, row in rows]
    return pd.DataFrame(found, columns=["at", *kind.__struct_fields__], dtype=object)


def floats(values: pd.Series) -> Floats:  # type: ignore[type-arg]
    """Returns numbers of which some are None as float64, NaN for None."""
    return values.to_numpy(np.float64, na_value=np.nan)


def known(value: float) -> float | None:
    """Returns a number as a value of a report: None for NaN."""
    return float(value) if value == value else None
