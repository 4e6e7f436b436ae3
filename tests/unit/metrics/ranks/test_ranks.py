"""Ranks of a job and their comparison: medians, outliers, and who is missing or recorded twice."""

from __future__ import annotations

import msgspec
import numpy as np
import pandas as pd
import pytest

from tb_sol_plugin.metrics.ranks import sections
from tb_sol_plugin.metrics.ranks.comparison import Comparison, Measure, Spread, frame_of, outliers, ranks_of, spread
from tb_sol_plugin.model.recordings import RecordingReduction, ReducedFacts, ReductionState
from tb_sol_plugin.tables.arrays import Floats, Mask


def worker(name: str, rank: int | None, *, world: int | None = None, state: ReductionState = "read") -> RecordingReduction:  # type: ignore[type-arg]
    facts = ReducedFacts("kineto", rank, world, "", "", (), 0, True, (0, 0)) if state == "read" else None
    return RecordingReduction(name, "default", f"run/{name}.json", state, rank, facts, problem="" if state == "read" else "not JSON")


def one_group(values: Floats, tolerance: float = 0.0) -> Mask:
    return outliers(values, np.zeros(len(values), np.int64), 1, tolerance=tolerance)


def compared(values: list[float], groups: list[int], *, twice: bool = False) -> Comparison:  # type: ignore[type-arg]
    """One row per rank; twice: the last recording is a shorter one of the rank before it."""
    parts = [worker(f"w{i}", i) for i in range(len(values))]
    if twice:
        parts[-1] = worker("z", len(values) - 2)
    ranks = ranks_of(parts, lambda w: 1 if w.worker == "z" else 2)
    frame = pd.DataFrame({"at": range(len(values)), "group": groups, "x": values})
    return Comparison(ranks, frame, ("even", "odd")[: max(groups) + 1], Measure("x", "B", "x"))


def test_spread_of_known_values() -> None:
    # GIVEN 4, unknown, 1, 9, 2: in order 1 2 4 9, the middle two are 2 and 4
    found = spread(np.array([4.0, np.nan, 1.0, 9.0, 2.0]), np.zeros(5, np.int64), 1).iloc[0]
    # THEN the median is 3, the largest 3 times that and 6 above it, and positions count the unknown one too
    assert found[["count", "least", "median", "most"]].tolist() == [4, 1.0, 3.0, 9.0]
    assert found[["least_at", "most_at", "imbalance", "excess"]].tolist() == [2, 3, 3.0, 6.0]


def test_groups_are_compared_by_themselves() -> None:
    # GIVEN two groups that alternate: 1 5 9 and 20 20, and a group without rows THEN each has its own median; the first of equals is named
    found = spread(np.array([1.0, 20.0, 5.0, 20.0, 9.0]), np.array([0, 1, 0, 1, 0]), 3)
    assert (
        found["median"].tolist()[:2] == [5.0, 20.0] and found["most_at"].tolist() == [4, 1, -1] and found["least_at"].tolist() == [0, 1, -1]
    )
    assert found["count"].tolist() == [3, 2, 0] and found["imbalance"].isna().tolist() == [False, False, True]


def test_no_ratio_to_a_median_of_nothing() -> None:
    zeros = np.zeros(3, np.int64)
    assert spread(np.array([0.0, 0.0, 5.0]), zeros, 1)["imbalance"].isna().all()  # 5 / 0 is no number
    none = spread(np.array([np.nan, np.nan]), zeros[:2], 1)
    assert none["count"].tolist() == [0] and none[["least", "median", "most", "imbalance", "excess"]].isna().all(axis=None)
    assert len(spread(np.zeros(0), np.zeros(0, np.int64), 0)) == 0


def test_an_outlier_needs_five_values() -> None:
    # GIVEN one value ten times the others WHEN there are four, or five values THEN it is an outlier only among five
    assert not one_group(np.array([1e6, 1e6, 1.1e6, 1e7])).any()
    assert one_group(np.array([1e6, 1e6, 1.1e6, 0.9e6, 1e7])).tolist() == [False, False, False, False, True]
    assert not one_group(np.array([1e6, np.nan, np.nan, 1.1e6, 1e7, 1e6])).any()  # four are known


def test_an_outlier_is_measured_against_what_is_usual() -> None:
    # GIVEN 90 95 100 105 110 and a sixth value x; the median is 102.5 with x above, deviations 12.5 7.5 2.5 2.5 7.5 and x - 102.5
    # THEN the MAD is 7.5 and x is far beyond 102.5 + 3.5 * 7.5 / 0.6745 = 141.4
    usual = [90.0, 95.0, 100.0, 105.0, 110.0]
    assert not one_group(np.array([*usual, 141.0])).any()
    assert one_group(np.array([*usual, 142.0])).tolist() == [False] * 5 + [True]


def test_one_value_among_equal_ones_is_an_outlier_only_if_it_is_far() -> None:
    # GIVEN a MAD of 0 THEN more than 2 % of the median, and more than the tolerance, is an outlier
    assert not one_group(np.array([100.0] * 6 + [102.0])).any()
    assert one_group(np.array([100.0] * 6 + [102.1])).sum() == 1
    assert not one_group(np.array([100.0] * 6 + [150.0]), tolerance=60.0).any()


def test_statistics_leave_out_the_second_recording_of_a_rank() -> None:
    # GIVEN 1 2 3 and a second recording of the last rank with 90 THEN the median is 2, and the second one is shown against it
    found = compared([1.0, 2.0, 3.0, 90.0], [0, 0, 0, 0], twice=True)
    assert found.spread_of() == Spread(3, 1.0, 2.0, 3.0, "rank 0", "rank 2") and found.spread_of().imbalance == 1.5
    assert found.of_median().tolist() == [0.5, 1.0, 1.5, 45.0] and found.matrix().tolist() == [[1.0, 2.0, 3.0]]
    assert found.sums(("x",))["x"].tolist() == [6.0] and found.counts.tolist() == [True, True, True, False]


def test_both_ends_of_a_group_have_names_unless_all_are_alike() -> None:
    found = compared([1.0, 7.0, 4.0, 7.0], [0, 1, 0, 1]).spread()
    assert found["least_rank"].tolist() == ["rank 0", None] and found["most_rank"].tolist() == ["rank 2", None]


def test_a_group_that_must_be_complete_has_no_median_without_a_value() -> None:
    whole_one = compared([1.0, 7.0, np.nan, 7.0], [0, 1, 0, 1])
    found = Comparison(whole_one.ranks, whole_one.frame, whole_one.groups, whole_one.measure, frozenset({"even"}))
    assert found.spread()["median"].isna().tolist() == [True, False] and found.spread_of("even") == Spread(
        1, 1.0, None, 1.0, "rank 0", "rank 0"
    )


def test_structs_of_ranks_become_rows_of_a_table() -> None:
    class Row(msgspec.Struct, frozen=True):
        name: str
        size: int | None

    found = frame_of([(0, Row("a", 3)), (2, Row("b", None))], Row)
    assert found["at"].tolist() == [0, 2] and found["size"].tolist() == [3, None]


def test_missing_and_duplicate_ranks_are_listed() -> None:
    # GIVEN ranks 0, 2 (twice, the second recorded for longer) and 3 of 6, and one broken file of rank 1
    parts = [
        worker("a_rank10", 3, world=6), worker("rank0", 0, world=6), worker("x", 2, world=6), worker("y", 2, world=6),
        worker("rank1", 1, state="failed"),
    ]  # fmt: skip
    found = ranks_of(parts, lambda p: {"x": 5, "y": 9}.get(p.worker, 7))
    # THEN order is by rank, the longer one of the two counts, ranks 4 and 5 are missing, and 1 is not missing but left out
    assert [p.worker for p in found.read] == ["rank0", "x", "y", "a_rank10"]
    assert found.counts.tolist() == [True, False, True, True] and found.missing == (4, 5) and found.world_size == 6
    assert found.duplicates == {2: ("x", "y")} and [p.worker for p in found.excluded] == ["rank1"]
    texts = " ".join(n.text for n in sections.notices(found))
    assert "1 worker of 5" in texts and "`rank1`: not JSON" in texts
    assert "Ranks 4 and 5 of 6 have no recording" in texts and "Rank 2 is there twice: `x`, `y`; `y`, which recorded for longer" in texts
    table = sections.left_out(found)[0]
    assert table.data == {"worker": ["rank1"], "rank": [1], "file": ["run/rank1.json"], "why": ["not JSON"], "hint": [None]}


def test_recordings_without_rank_numbers_have_no_missing_ranks() -> None:
    # GIVEN a worker whose rank is not known THEN it may be any: no rank is called missing
    found = ranks_of([worker("host_1", None, world=4), worker("rank0", 0, world=4)], lambda p: 1)
    assert found.missing == () and not sections.notices(found) and found.counts.all()
    assert found.labels == ("rank 0", "host_1") and sections.left_out(found) == []


def test_two_jobs_in_one_folder_are_reported() -> None:
    found = ranks_of([worker("rank0", 0, world=2), worker("rank1", 1, world=8)], lambda p: 1)
    assert "jobs of 2 and 8 ranks" in " ".join(n.text for n in sections.notices(found)) and found.missing == (2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        ([5], "Rank 5"),
        ([4, 5], "Ranks 4 and 5"),
        ([1, 2, 3], "Ranks 1 to 3"),
        ([0, 2, 3, 4, 9], "Ranks 0, 2 to 4 and 9"),
        ([1, 2, 4, 5, 6], "Ranks 1, 2 and 4 to 6"),
    ],
)
def test_runs_of_ranks_are_written_as_ranges(ranks: list[int], text: str) -> None:
    assert sections.ranks_named(ranks) == text


def test_a_long_list_of_ranks_is_cut() -> None:
    assert sections.ranks_named(range(0, 2000, 2)) == "1 000 ranks (0, 2, 4, 6, 8, 10, 12, 14 …)".replace("1 0", "1\u202f0")
