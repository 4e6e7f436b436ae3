"""Lanes: nested intervals below each other, others on the first free lane, as a slow reference says."""

from __future__ import annotations

import itertools
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables import compiled as compiled_loops
from tb_sol_plugin.tables import lanes as L
from tests.support.timeline_reference import lane_of_each

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=60)


def in_order(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    return sorted(((start, start + length) for start, length in spans), key=lambda s: (s[0], -s[1]))


def lanes(spans: list[tuple[int, int]], track: list[int] | None = None, how: L.How = "nested") -> list[int]:
    start, end = (np.array([s[i] for s in spans], np.int64) for i in (0, 1))
    return L.lanes(np.array(track if track is not None else [0] * len(spans), np.int32), start, end, how).tolist()


@given(SPANS)
def test_lanes_are_those_of_the_reference(spans: list[tuple[int, int]]) -> None:
    # GIVEN any intervals of one track THEN each lies in the lane that plain loops find
    events = in_order(spans)
    found = lanes(events)
    assert found == lane_of_each(events)
    # AND none of a lane overlaps the one before it
    for lane in set(found):
        own = [e for e, at in zip(events, found, strict=True) if at == lane]
        assert all(b[0] >= a[1] for a, b in itertools.pairwise(own))


@given(SPANS)
def test_the_compiled_loops_agree_with_the_plain_ones(spans: list[tuple[int, int]]) -> None:
    events = in_order(spans)
    for how in get_args(L.How):
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(L, "LOADING_PAYS", 0)
            compiled = lanes(events, how=how)
            patched.setattr(compiled_loops.Loop, "of", lambda loop, size, pays: loop.py_func)
            assert lanes(events, how=how) == compiled


@given(SPANS)
def test_of_two_that_overlap_in_part_the_shorter_moves(spans: list[tuple[int, int]]) -> None:
    # GIVEN any intervals of one track
    events = in_order(spans)
    found = lanes(events, how="spanning")
    for lane in set(found):  # THEN none of a lane overlaps the one before it
        own = [e for e, at in zip(events, found, strict=True) if at == lane]
        assert all(b[0] >= a[1] for a, b in itertools.pairwise(own))
    # AND one that lies inside of another is below it, unless that, or what it lies in, has moved away: in a chain of those that overlap in
    # part, from a longer one
    chain = list(range(len(events)))
    for (i, (a, b)), (k, (c, d)) in itertools.combinations(enumerate(events), 2):
        if a < c < b < d:
            chain = [chain[i] if one == chain[k] else one for one in chain]
    length = [b - a for a, b in events]
    moves = [any(chain[k] == chain[i] and length[k] >= length[i] for k in range(len(events)) if k != i) for i in range(len(events))]
    for (i, (a, b)), (k, (c, d)) in itertools.combinations(enumerate(events), 2):
        if a <= c < d <= b:
            assert found[k] > found[i] or any(moves[j] for j, (x, y) in enumerate(events) if x <= a and b <= y)
    if all(not a < c < b < d for (a, b), (c, d) in itertools.combinations(events, 2)):
        assert found == lanes(events)  # AND where all nest, each is in the lane of its depth


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        ([(0, 10), (2, 5), (5, 8), (12, 13)], [0, 1, 1, 0]),  # nested, one begins where the other ends
        ([(0, 10), (5, 15), (12, 14)], [0, 1, 2]),  # partly overlapping; the third lies inside the second
        ([(0, 10), (5, 15), (10, 20)], [0, 1, 0]),  # the first lane is free again
        ([(3, 3), (3, 3)], [0, 0]),  # without length they take no room
        ([(0, 5), (0, 5)], [0, 1]),  # equal ones nest
    ],
)
def test_known_lanes(spans: list[tuple[int, int]], wanted: list[int]) -> None:
    assert lanes(spans) == wanted


@pytest.mark.parametrize(
    ("spans", "wanted"),
    [
        # a long step begins inside of a short call, and all that follows lies in the step: the call moves, with what is in it
        ([(0, 1000), (10, 40), (12, 30), (20, 900), (22, 28), (50, 800), (60, 70)], [0, 3, 4, 1, 2, 2, 3]),
        ([(0, 10), (5, 15), (12, 14)], [0, 1, 2]),  # of equal ones the later moves, what is in it too
        ([(0, 100), (90, 120), (95, 99), (150, 160)], [0, 1, 2, 0]),  # the shorter is the later one
        ([(0, 10), (5, 100), (50, 300)], [0, 1, 0]),  # each longer than the one before it: two move, the first to where nothing is by then
    ],
)
def test_known_lanes_of_spanning_ones(spans: list[tuple[int, int]], wanted: list[int]) -> None:
    assert lanes(spans, how="spanning") == wanted


def test_tracks_do_not_see_each_other() -> None:
    assert lanes([(0, 10), (5, 15), (0, 10), (5, 15)], [0, 0, 1, 1]) == [0, 1, 0, 1]


def test_a_staircase_of_many_overlaps_takes_a_lane_each() -> None:
    # GIVEN 30,000 intervals that all overlap, each ending after the one before it THEN they are found without looking through all lanes
    n = 30_000
    start = np.arange(n, dtype=np.int64)
    for how in ("nested", "spanning"):
        assert L.lanes(np.zeros(n, np.int32), start, start + n, how).tolist() == list(range(n))  # type: ignore[arg-type]
    # AND where each is longer than the one before it, the last stays, all others stand below it
    assert L.lanes(np.zeros(n, np.int32), start, start * 2 + n, "spanning").tolist() == [*range(1, n), 0]


@given(SPANS)
def test_lanes_that_need_not_nest_are_as_few_as_run_at_one_time(spans: list[tuple[int, int]]) -> None:
    events = in_order(spans)
    start, end = (np.array([s[i] for s in events], np.int64) for i in (0, 1))
    found = L.lanes(np.zeros(len(events), np.int32), start, end, "packed").tolist()
    # THEN no two of a lane overlap
    for lane in set(found):
        own = [events[i] for i in range(len(events)) if found[i] == lane]
        assert all(b[0] >= a[1] for a, b in itertools.pairwise(own))
    # AND there are as many lanes as there are events at the busiest moment, those without length counted as one
    most = max((sum(1 for a, b in events if a <= time < b) + ((time, time) in events) for time, _ in events), default=0)
    assert len(set(found)) == most
