"""Workers beside each other: medians, who is far, who is missing or there twice."""

from __future__ import annotations

import numpy as np
import pytest

from tb_sol_plugin.metrics.ranks import peers
from tb_sol_plugin.model.recordings import WorkerFacts, WorkerPart, WorkerState


def worker(name: str, rank: int | None, *, world: int | None = None, state: WorkerState = "read") -> WorkerPart:  # type: ignore[type-arg]
    facts = WorkerFacts("kineto", rank, world, "", "", (), 0, True, (0, 0)) if state == "read" else None
    return WorkerPart(name, "default", f"run/{name}.json", state, rank, facts, problem="" if state == "read" else "not JSON")


def test_spread_of_known_values() -> None:
    # GIVEN 4, unknown, 1, 9, 2: in order 1 2 4 9, the middle two are 2 and 4
    found = peers.spread(np.array([4.0, np.nan, 1.0, 9.0, 2.0]))
    # THEN the median is 3, the largest 3 times that and 6 above it, and places count the unknown one too
    assert (found.count, found.least, found.median, found.most) == (4, 1.0, 3.0, 9.0)
    assert (found.least_at, found.most_at, found.imbalance, found.excess) == (2, 3, 3.0, 6.0)


def test_no_ratio_to_a_median_of_nothing() -> None:
    assert peers.spread(np.array([0.0, 0.0, 5.0])).imbalance is None  # 5 / 0 is no number
    none = peers.spread(np.array([np.nan, np.nan]))
    assert none == peers.Spread(0) and none.imbalance is None and none.excess is None
    assert peers.spread(np.zeros(0)).count == 0


def test_far_needs_five_values() -> None:
    # GIVEN one value ten times the others WHEN there are four, or five values THEN it is named only among five
    assert not peers.far(np.array([1e6, 1e6, 1.1e6, 1e7])).any()
    assert peers.far(np.array([1e6, 1e6, 1.1e6, 0.9e6, 1e7])).tolist() == [False, False, False, False, True]
    assert not peers.far(np.array([1e6, np.nan, np.nan, 1.1e6, 1e7, 1e6])).any()  # four are known


def test_far_is_measured_against_what_is_usual() -> None:
    # GIVEN 90 95 100 105 110 and a sixth value x; the median is 102.5 with x above, deviations 12.5 7.5 2.5 2.5 7.5 and x - 102.5
    # THEN the MAD is 7.5 and x is far beyond 102.5 + 3.5 * 7.5 / 0.6745 = 141.4
    usual = [90.0, 95.0, 100.0, 105.0, 110.0]
    assert not peers.far(np.array([*usual, 141.0])).any()
    assert peers.far(np.array([*usual, 142.0])).tolist() == [False] * 5 + [True]


def test_equal_values_but_one() -> None:
    # GIVEN a MAD of 0 THEN more than 2 % of the median, and more than `least`, is far
    assert not peers.far(np.array([100.0] * 6 + [102.0])).any()
    assert peers.far(np.array([100.0] * 6 + [102.1])).sum() == 1
    assert not peers.far(np.array([100.0] * 6 + [150.0]), least=60.0).any()


def test_crew_says_who_is_missing_and_who_is_there_twice() -> None:
    # GIVEN ranks 0, 2 (twice, the second recorded for longer) and 3 of 6, and one broken file of rank 1
    parts = [
        worker("a_rank10", 3, world=6), worker("rank0", 0, world=6), worker("x", 2, world=6), worker("y", 2, world=6),
        worker("rank1", 1, state="failed"),
    ]  # fmt: skip
    found = peers.crew(parts, lambda p: {"x": 5, "y": 9}.get(p.worker, 7))
    # THEN order is by rank, the longer one of the two counts, ranks 4 and 5 are missing, and 1 is not missing but left out
    assert [p.worker for p in found.read] == ["rank0", "x", "y", "a_rank10"]
    assert found.counting == {"rank0", "y", "a_rank10"} and found.missing == (4, 5) and found.world == 6
    assert found.twice == {2: ("x", "y")} and [p.worker for p in found.without] == ["rank1"]
    texts = " ".join(n.text for n in peers.notices(found))
    assert "1 worker of 5" in texts and "`rank1`: not JSON" in texts
    assert "Ranks 4 and 5 of 6 have no recording" in texts and "Rank 2 is there twice: `x`, `y`; `y`, which recorded for longer" in texts
    table = peers.left_out(found)[0]
    assert table.data == {"worker": ["rank1"], "rank": [1], "file": ["run/rank1.json"], "why": ["not JSON"], "hint": [None]}


def test_without_ranks_nobody_is_missing() -> None:
    # GIVEN a worker whose rank is not known THEN it may be any: no rank is called missing
    found = peers.crew([worker("host_1", None, world=4), worker("rank0", 0, world=4)], lambda p: 1)
    assert found.missing == () and not peers.notices(found) and found.counting == {"host_1", "rank0"}
    assert [peers.label(p) for p in found.read] == ["rank 0", "host_1"] and peers.left_out(found) == []


def test_two_jobs_in_one_folder_are_told() -> None:
    found = peers.crew([worker("rank0", 0, world=2), worker("rank1", 1, world=8)], lambda p: 1)
    assert "jobs of 2 and 8 ranks" in " ".join(n.text for n in peers.notices(found)) and found.missing == (2, 3, 4, 5, 6, 7)


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([5], "Rank 5"), ([4, 5], "Ranks 4 and 5"), ([1, 2, 3], "Ranks 1 to 3"), ([0, 2, 3, 4, 9], "Ranks 0, 2 to 4 and 9")],
)
def test_ranks_in_words(ranks: list[int], text: str) -> None:
    assert peers._ranks(ranks) == text


def test_many_gaps_are_cut() -> None:
    assert peers._ranks(range(0, 2000, 2)) == "1 000 ranks (0, 2, 4, 6, 8, 10, 12, 14 …)".replace("1 0", "1\u202f0")
