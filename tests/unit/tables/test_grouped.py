"""Sums and quantiles of times by group, against plain loops over single rows."""

from __future__ import annotations

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tb_sol_plugin.tables import grouped

TIME = st.one_of(st.integers(0, 3), st.integers(0, 2**40))
ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(-(2**40), 2**40), TIME), max_size=60)


@given(ROWS, st.data())
def test_times_are_cut_to_a_window_and_added_up_by_group(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    # GIVEN rows of a table that enclose each other, some of them chosen, and some with an amount
    chosen = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1)))) if rows else []
    parent = [data.draw(st.integers(-1, i - 1)) for i in range(len(rows))]
    amounts = sorted((data.draw(st.integers(0, len(rows) - 1)), data.draw(st.integers(0, 9))) for _ in range(5)) if rows else []
    last = [data.draw(st.integers(i + 1, len(rows))) for i in range(len(rows))]
    # every chosen row reaches into the window
    begin = min((rows[i][1] + rows[i][2] for i in chosen), default=0)
    end = max(max((rows[i][1] for i in chosen), default=0), begin)
    start, duration, at = (np.array(values, np.int64) for values in ([r[1] for r in rows], [r[2] for r in rows], [a for a, _ in amounts]))
    before = np.cumsum([0, *(amount for _, amount in amounts)]).astype(np.int64)
    of = grouped.Times(start, duration, grouped.Inside(np.array(parent, np.int32), np.array(last, np.int32), at, before))
    group = np.array([rows[i][0] for i in chosen], np.int32)

    def cut(row: int) -> tuple[int, int]:
        return max(rows[row][1], begin), min(rows[row][1] + rows[row][2], end)

    # WHEN they are added THEN each group has what plain loops find
    sums = grouped.Sums(6)
    time = sums.add(np.array(chosen, np.int64), group, of, begin, end)
    want = [cut(i)[1] - cut(i)[0] for i in chosen]
    own = [
        max(w - sum(max(min(cut(c)[1], cut(i)[1]) - max(cut(c)[0], cut(i)[0]), 0) for c in chosen if parent[c] == i), 0)
        for i, w in zip(chosen, want, strict=True)
    ]
    assert time.tolist() == want
    for g in range(6):
        mine = [k for k, i in enumerate(chosen) if rows[i][0] == g]
        assert sums.count[g] == len(mine) and sums.total[g] == sum(want[k] for k in mine)
        assert sums.own[g] == sum(own[k] for k in mine)
        assert sums.inside[g] == sum(amount for k in mine for row, amount in amounts if chosen[k] <= row < last[chosen[k]])
        if mine:
            assert (sums.low[g], sums.high[g]) == (min(want[k] for k in mine), max(want[k] for k in mine))


def test_rows_without_time_of_their_own_count_whole_and_tables_add_up() -> None:
    # GIVEN two tables whose rows enclose nothing, and one whose own time is known
    sums = grouped.Sums(2)
    for times in ([5, 7], [11]):
        column = np.array(times, np.int64)
        of = grouped.Times(np.zeros_like(column), column)
        sums.add(np.arange(len(times)), np.full(len(times), 1, np.int32), of, -grouped.EVER, grouped.EVER)
    assert (sums.count.tolist(), sums.total.tolist(), sums.own.tolist(), sums.inside.tolist()) == ([0, 3], [0, 23], [0, 23], [0, 0])
    assert (sums.low[1], sums.high[1]) == (5, 11)
    known = grouped.Times(np.zeros(1, np.int64), np.array([9]), own=np.array([4]))
    assert sums.add(np.arange(1), np.zeros(1, np.int32), known, -grouped.EVER, grouped.EVER) == [9]
    assert sums.own.tolist() == [4, 23]


@pytest.mark.parametrize("many", [1, 4, grouped.MANY])
@given(st.lists(st.tuples(st.integers(0, 3), st.one_of(TIME, st.just(2**62)), st.booleans()), max_size=40))
def test_quantiles_are_values_of_the_group_by_rank(many: int, rows: list[tuple[int, int, bool]]) -> None:
    # GIVEN groups small and large, values small and too large to be sorted together with their group
    group, value = np.array([r[0] for r in rows], np.int32), np.array([r[1] for r in rows], np.int64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouped, "MANY", many)
        found = grouped.quantiles(group, value, np.bincount(group, minlength=4), (0.5, 0.95))
    for share, got in zip((0.5, 0.95), found, strict=True):
        for g in range(4):
            mine = sorted(r[1] for r in rows if r[0] == g)
            assert got[g] == (mine[ceil(share * len(mine)) - 1] if mine else 0)
