"""Sums per group, and columns whose values may be unknown."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables import arrays
from tb_sol_plugin.tables.arrays import (
    exact_sums,
    factorize,
    in_order,
    known,
    known_sums,
    known_total,
    largest,
    medians,
    numbered,
    per_text,
    ranked,
    texts,
    together,
    whole_numbers,
)

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
    assert whole_numbers(np.array([NAN, 3.0])).tolist() == whole_numbers([NAN, 2.6]).tolist() == [None, 3] and texts(["a", "", 3]).tolist() == ["a", None, "3"]


def test_values_are_ranked_as_by_a_sort() -> None:
    # GIVEN values below 9, some of them none
    there, first, place = ranked(np.array([4, -1, 2, 4, 8, 2]), 9)
    # THEN the values ascend, with the first row of each, and each row has the place of its value
    assert there.tolist() == [2, 4, 8] and first.tolist() == [2, 0, 4] and place.tolist() == [1, -1, 0, 1, 2, 0]
    assert [x.tolist() for x in ranked(np.zeros(0, np.int64), 3)] == [[], [], []]


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(-3, 3), max_size=30))
def test_values_in_order_are_those_of_a_sort(values: list[int]) -> None:
    key = np.array(values, np.int64)
    expected = np.unique(key, return_inverse=True)
    assert [part.tolist() for part in in_order(key)] == [part.tolist() for part in expected]


@given(st.lists(st.integers(-(2**62), 2**62) | st.integers(-3, 3), max_size=30))
def test_equal_keys_are_numbered_in_order_of_first_appearance(values: list[int]) -> None:
    seen = list(dict.fromkeys(values))
    group, first = numbered(np.array(values, np.int64))
    assert group.tolist() == [seen.index(v) for v in values] and first.tolist() == [values.index(v) for v in seen]


def test_rows_are_alike_only_where_all_columns_agree_however_large_their_numbers() -> None:
    # GIVEN three columns whose combinations need more than 64 bits, -1 a value like any other
    large = 2**40
    columns = [np.array([large, large, -1, large, -1]), np.array([3, large, 3, 3, 3]), np.array([large, 0, -1, large, -1])]
    # THEN rows 0 and 3 are alike, and 2 and 4, numbered in order of first appearance
    code, first = factorize(columns)
    assert code.tolist() == [0, 1, 2, 0, 2] and first.tolist() == [0, 1, 2]


def test_rows_are_together_where_every_key_is_equal_nan_included() -> None:
    # GIVEN a key with nan twice, beside another key that tells two of three rows apart
    assert together(np.array([NAN, 1.0, NAN, NAN]), np.array([2, 2, 2, 3])).tolist() == [0, 1, 0, 2]
    assert together(np.array([5, 5, 6]), np.array([NAN, 0.0, NAN])).tolist() == [0, 1, 2]


def test_medians_are_those_of_each_group() -> None:
    # GIVEN groups of three, two, none and one value
    found = medians(np.array([0, 1, 0, 3, 0, 1]), np.array([9, 4, 1, 7, 2, 5]), 4)
    # THEN the middle one, the mean of the middle two, none, the only one
    assert found[[0, 1, 3]].tolist() == [2.0, 4.5, 7.0] and np.isnan(found[2])
    assert medians(np.zeros(0, np.int64), np.zeros(0), 0).tolist() == []


def test_the_largest_of_equal_sums_is_the_first_to_appear() -> None:
    # GIVEN two columns of many texts (so that combinations are not counted one by one), rows without a text among them
    names = pd.Series(pd.Categorical.from_codes([2, 0, 1, -1, 0], [f"n{i}" for i in range(900)]))
    sizes = pd.Series(pd.Categorical.from_codes([5, 5, 0, 1, 5], [f"s{i}" for i in range(900)]))
    values = np.array([4, 1, 4, 2, 3])
    # THEN n2 s5 and n0 s5 both have 4, of rows 0 and of 1 and 4: the first is named
    assert largest([names, sizes], np.arange(5), values) == (["n2", "s5"], 4.0)
    # AND of few texts alike; a row without one is ""
    few = names.cat.remove_unused_categories()
    assert largest([few], np.array([3, 1, 4]), np.array([9, 4, 4])) == ([""], 9.0)
    assert largest([few, few], np.array([1, 2, 4]), values[[1, 2, 4]]) == (["n0", "n0"], 4.0)
    assert largest([few], np.zeros(0, np.int64), np.zeros(0)) == ([""], 0.0)


def test_a_function_is_asked_once_per_text_in_use() -> None:
    # GIVEN rows with two of three texts, and one row without a text
    column = pd.Series(pd.Categorical.from_codes([2, 0, 2, -1], ["a", "bb", "cccc"]))
    asked: list[str] = []
    # WHEN lengths of three rows are asked for THEN each text in use is looked at once
    assert per_text(column, np.array([0, 1, 2]), lambda text: asked.append(text) or len(text), np.int64).tolist() == [4, 1, 4]
    assert asked == ["a", "cccc"]
    # AND a row without a text has the answer for ""
    assert per_text(column, np.array([3, 1]), lambda text: text + "!", object).tolist() == ["!", "a!"]
    assert per_text(column, np.zeros(0, np.int64), bool).tolist() == []


@pytest.mark.parametrize("kind", ["few", "many", "negative", "wide", "floats", "short", "unsigned"])
def test_places_in_order_are_those_of_a_stable_sort(kind: str) -> None:
    rng = np.random.default_rng(7)
    values = {
        "few": rng.integers(0, 5, 100), "many": rng.integers(0, 50, 20_000), "negative": rng.integers(-(2**40), 2**40, 5_000) // 2**36,
        "wide": rng.integers(-(2**62), 2**62, 3_000), "floats": rng.integers(0, 9, 3_000) / 2, "short": rng.integers(0, 100, 3_000, np.int8),
        "unsigned": rng.integers(2**63, 2**63 + 9, 3_000, np.uint64),
    }[kind]  # fmt: skip
    assert arrays.stable_order(values).tolist() == np.argsort(values, kind="stable").tolist()


@pytest.mark.parametrize("ordered", [0, 1, 2])
def test_rows_in_order_of_several_keys_are_those_of_a_sort_by_all(ordered: int) -> None:
    rng = np.random.default_rng(ordered)
    keys = [rng.integers(-3, 4, 5_000), rng.integers(0, 9, 5_000, np.int8), rng.integers(0, 2**40, 5_000) / 2]
    keys[ordered].sort()
    assert arrays.lex_order(*keys).tolist() == np.lexsort(keys[::-1]).tolist()
    assert arrays.lex_order(keys[0][:0], keys[1][:0]).tolist() == []
