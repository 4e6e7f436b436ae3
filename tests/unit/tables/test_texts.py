"""Look-ups in dictionary-encoded columns equal the same look-ups row by row."""

from __future__ import annotations

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables import arrays

NAMES = st.lists(st.sampled_from(["a", "ab", "b", ""]), min_size=1, max_size=20)


@given(NAMES, st.data())
def test_where_pick_and_largest_equal_a_loop(names: list[str], data: st.DataObject) -> None:
    # GIVEN a column, another one, and a value per row
    other = data.draw(st.lists(st.sampled_from(["x", "y"]), min_size=len(names), max_size=len(names)))
    values = np.array(data.draw(st.lists(st.integers(0, 9), min_size=len(names), max_size=len(names))), np.int64)
    column, second = pd.Series(pd.Categorical(names)), pd.Series(pd.Categorical(other))
    rows = np.arange(len(names))
    # THEN tests and texts are those of the rows
    assert arrays.where(column, lambda n: n.startswith("a")).tolist() == [n.startswith("a") for n in names]
    assert arrays.pick(column, rows[::-1]).tolist() == names[::-1]
    # AND the largest combination has the largest sum
    sums: dict[tuple[str, str], int] = {}
    for a, b, v in zip(names, other, values.tolist(), strict=True):
        sums[a, b] = sums.get((a, b), 0) + v
    found, total = arrays.largest([column, second], rows, values)
    assert total == max(sums.values()) == sums[found[0], found[1]]


def test_a_row_without_text_matches_nothing_and_reads_as_empty() -> None:
    column = pd.Series(pd.Categorical(["a", None, "b"]))
    assert arrays.where(column, lambda n: True).tolist() == [True, False, True]
    assert arrays.pick(column, [1, 2, -1]).tolist() == ["", "b", ""]
    assert arrays.pick(column[:0], [-1, -1]).tolist() == ["", ""]
    assert arrays.largest([column], [], np.zeros(0, np.int64)) == ([""], 0.0)


def test_of_a_large_dictionary_only_the_texts_in_use_are_asked_about() -> None:
    # GIVEN three rows, one of them without text, over a dictionary of 5,000 names that other tables share
    names = [f"kernel {i}" for i in range(5_000)]
    column = pd.Series(pd.Categorical.from_codes([7, -1, 4_999], categories=names))
    asked: list[str] = []
    # THEN the answer is that of a loop over the rows, and nobody else was asked about
    assert arrays.where(column, lambda n: asked.append(n) or n.endswith("7")).tolist() == [True, False, False]  # type: ignore[func-returns-value]
    assert asked == ["kernel 7", "kernel 4999"]
