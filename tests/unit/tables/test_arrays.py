"""Sums per group, and columns whose values may be unknown."""

from __future__ import annotations

import numpy as np
import pandas as pd

from tb_sol_plugin.tables.arrays import exact_sums, known, known_sums, known_total, texts, whole_numbers

NAN = float("nan")


def test_integers_are_summed_exactly_beyond_what_a_float_holds() -> None:
    # GIVEN 2^53 and 1 in one group, whose sum no float64 holds, and an empty group
    found = exact_sums(np.array([0, 0, 2]), np.array([2**53, 1, 5]), 3)
    assert found.tolist() == [2**53 + 1, 0, 5]


def test_unknown_is_never_zero() -> None:
    # GIVEN a group with one known value, one with none, one without rows
    sums = known_sums(np.array([0, 0, 1]), np.array([2.0, NAN, NAN]), 3)
    assert sums[0] == 2.0 and np.isnan(sums[1:]).all()
    frame = pd.DataFrame({"some": [1.4, NAN, 2.2], "none": [NAN] * 3})
    assert known_total(frame, "some") == 4 and known_total(frame, "none") is None
    assert known(np.array([7, -1]), np.array([True, False])).tolist() == [7, None]
    assert whole_numbers(pd.Series([1.6, NAN], index=[4, 2])).to_dict() == {4: 2, 2: None}
    assert whole_numbers(np.array([NAN, 3.0])).tolist() == [None, 3] and texts(["a", "", 3]).tolist() == ["a", None, "3"]
