"""Lists of ranks as evenly spaced stretches: by hand, there and back, and texts that list none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables.members import listed, members_of, ranges, text_of


@pytest.mark.parametrize(
    ("ranks", "text"),
    [([0, 1, 2, 3], "0:1:4"), ([5], "5:1:1"), ([0, 8, 16], "0:8:3"), ([0, 1, 8, 9], "0:1:2,8:1:2"), ([3, 2, 1], "3:-1:3"), ([], "")],
)
def test_stretches(ranks: list[int], text: str) -> None:
    assert text_of(ranks) == text and members_of(text).tolist() == ranks


@given(st.lists(st.integers(0, 5_000), max_size=40))
def test_there_and_back(ranks: list[int]) -> None:
    assert members_of(text_of(ranks)).tolist() == ranks


@pytest.mark.parametrize("text", ["x", "1:2", "0:1:0", "0:1:-3", "0:1:9999999999", "-1:1:2", "0:-1:2", "1:1:2,", "0:1:1048576,0:1:1"])
def test_a_text_that_lists_no_ranks(text: str) -> None:
    assert not len(members_of(text))


def test_lists_as_recorders_write_them() -> None:
    # GIVEN a list, one that is cut short, one without an end, a word, none
    found = [listed(text) for text in ("[0, 8, 16]", "[0, 1, ..., 31]", "[]", "default", "")]
    assert found[0] is not None and found[0].tolist() == [0, 8, 16] and found[1:] == [None, None, None, None]


def test_ranks_are_written_as_one_reads_them() -> None:
    assert ranges([]) == "" and ranges([3]) == "3" and ranges([0, 8]) == "0, 8" and ranges(range(8)) == "0-7"
    assert ranges(range(3, 1024, 8)) == "3-1019 by 8" and ranges([0, 1, 2, 3, 16]) == "0-3, 16" and ranges([0, 1, 4, 5]) == "0, 1, 4, 5"
