"""Runs from which on a number is another one: planted changes are found, flat histories have none."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tb_sol_plugin.metrics.compare import history as H


def test_a_step_of_four_percent_is_found_within_a_run() -> None:
    # GIVEN 24 runs of 1 % noise, 4 % slower from the 13th on WHEN 40 such histories are searched
    random, near = np.random.default_rng(3), 0
    for _ in range(40):
        values = 100 + random.normal(size=24)
        values[12:] *= 1.04
        found = H.changes_of(values.tolist())
        near += any(abs(c.at - 12) <= 1 and 0.02 < (c.change or 0) < 0.06 for c in found)
    assert near >= 38


def test_flat_histories_have_no_change() -> None:
    random = np.random.default_rng(4)
    assert sum(bool(H.changes_of((100 + random.normal(size=24)).tolist())) for _ in range(60)) <= 6


def test_several_changes_and_their_medians() -> None:
    found = H.changes_of([100.0, 101, 99, 100, 101, 99, 120, 121, 119, 120, 121, 119, 80, 81, 79, 80, 81, 79])
    assert [(c.at, c.before, c.after) for c in found] == [(6, 100.0, 120.0), (12, 120.0, 80.0)]
    assert found[0].change == pytest.approx(0.2)


def test_a_rise_that_is_taken_back_is_found() -> None:
    # GIVEN 16 runs, the seventh to the eleventh 15 % slower
    values = 100 + np.random.default_rng(1).normal(size=16) * 0.5
    values[6:11] *= 1.15
    assert [c.at for c in H.changes_of(values.tolist())] == [6, 11]


def test_a_long_history_takes_no_more_stretches_than_it_needs() -> None:
    start, end = H._stretches(1_000)
    assert len(start) < 30_000 and (end - start).min() == 3 and {0} <= set(start.tolist()) and 1_000 in end
    small = {(int(a), int(b)) for a, b in zip(*H._stretches(12), strict=True)}
    every = {(a, b) for a in range(12) for b in range(a + 3, 13) if b - a <= 9 and (a == 0 or a >= 3) and (b == 12 or b <= 9)}
    assert small == every


def test_too_few_runs_tell_nothing() -> None:
    assert H.changes_of([1.0, 1, 1, 9, 9]) == [] and H.changes_of([]) == []
    assert H.changes_of([5.0] * 30) == []


def test_scores_are_those_of_the_rank_sum_test() -> None:
    # GIVEN seven values WHEN the permutation distribution is enumerated THEN mean and variance of the rank sum are those that are used
    ranks = np.arange(1.0, 8.0)
    every = np.array(list(itertools.permutations(ranks)))
    sums = every[:, :3].sum(1)
    assert sums.mean() == 3 * 8 / 2 and sums.var() == pytest.approx(3 * 4 * 8 / 12)
    assert H._scores(ranks[None], np.array([0]), np.array([3]))[0][0] == pytest.approx(abs(6 - 12) / np.sqrt(8.0))
    assert H._ranks(np.array([3.0, 1.0, 3.0, 2.0])).tolist() == [3.5, 1.0, 3.5, 2.0]


def test_what_a_pattern_finds_in_names() -> None:
    # GIVEN names WHEN patterns with and without a group are looked for THEN the first hit counts, and the first group of it
    names = ["lr0.1-b8", "lr0.01-b16", "other", "x\nlr1-b4"]
    assert H.found_in(names, r"lr([\d.]+)-b(\d+)") == {"lr0.1-b8": "0.1", "lr0.01-b16": "0.01", "x\nlr1-b4": "1"}
    assert H.found_in(names, "b(?:8|4)") == {"lr0.1-b8": "b8", "x\nlr1-b4": "b4"}
    assert H.found_in(names, "never") == {} == H.found_in([], "(a)")
    # AND one of exponential time with backtracking ends at once
    assert H.found_in(["a" * 5_000], "(a|aa)+$|(a*)*b") != {}
    # AND numbers sort as numbers, unless one is none
    assert sorted(["10", "9", "-1.5"], key=dict(zip(["10", "9", "-1.5"], H.in_order(["10", "9", "-1.5"]), strict=True)).__getitem__) == ["-1.5", "9", "10"]
    assert H.in_order(["10", "x"]) == [(0.0, "10"), (0.0, "x")]


def test_a_change_of_a_long_history_is_found_at_its_run() -> None:
    # GIVEN 400 runs with a stretch of other ones, of a length that is not tried THEN both of its ends are found at their runs
    values = np.random.default_rng(5).normal(100, 0.5, 400)
    values[143:220] += 8
    assert [c.at for c in H.changes_of(values.tolist())] == [143, 220]
