"""Sums of what is known per group: numpy, the compiled loop and exact fractions agree."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.metrics.work import sums as W

VALUE = st.one_of(st.floats(0, 1e15), st.sampled_from([math.nan, math.inf, -math.inf]))


@given(st.lists(st.tuples(st.integers(-1, 4), VALUE), max_size=30))
def test_known_values_are_added_per_group_the_same_in_both_ways(calls: list[tuple[int, float]]) -> None:
    # GIVEN calls, each of a group or of none (-1), with a value or none
    group, values = np.array([g for g, _ in calls], np.int64), np.array([v for _, v in calls], np.float64)
    found = []
    for way in (W.add_known, W.add_known_kernel, W.add_known_kernel.py_func):
        total, known = np.zeros(5), np.zeros(5, np.bool_)
        some = way(W.fixed(group, np.int64), W.fixed(values, np.float64), total, known)
        found.append((bool(some), total.tolist(), known.tolist()))
    # WHEN they are added per group THEN to the bit the same comes out in numpy, compiled, and as a plain loop
    assert found[0] == found[1] == found[2]
    # THEN it is the exact sum, but for rounding, and a group without a value has none
    for at, (total, known) in enumerate(zip(*found[0][1:], strict=True)):
        mine = [v for g, v in calls if g == at and math.isfinite(v)]
        assert known == bool(mine) and math.isclose(total, sum(map(Fraction, mine)), rel_tol=1e-12)
    assert found[0][0] == any(found[0][2])
